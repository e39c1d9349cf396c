// SPDX-License-Identifier: Apache-2.0
// loop.h - whiles of many small iterations as one function of generated code: what qualifies
// (loop.c), its code (emit_loop.c), the step that runs it (exec_loop.c).
//
// An iteration of a step list costs about a microsecond whatever it computes. If the state is small
// (a cell of a recurrent network, a counter) and the number of iterations is known to be large, the
// whole while becomes a loop whose state stays in registers. Large values are supported in two
// ways: read (sequences, weights), or grown by one contiguous dynamic_update_slice per iteration
// (the outputs of a scan), which is done in place.
#ifndef VT_HOST_LOOP_H
#define VT_HOST_LOOP_H

#include "host/emit.h"

enum { VT_LOOP_ELEMENTS = 256 }; // of a value in registers

typedef enum vt_loop_home {
  VT_LOOP_STATE,  // carried in registers
  VT_LOOP_FIXED,  // returned unchanged: small ones in registers, others read from memory
  VT_LOOP_GROWING // carried in the memory of the result
} vt_loop_home;

typedef struct vt_loop {
  const vt_op *op;
  vt_func *cond, *body;
  uint32_t carried;
  uint8_t *homes; // vt_loop_home by parameter of the body
} vt_loop;

// The loop of a while; NULL when it does not qualify. Numbers its regions.
vt_loop *vt_loop_find(vt_arena *arena, const vt_op *op);
// Which element of which operand lies at element `at` of the result: broadcast_in_dim, transpose,
// slice, concatenate, reverse.
typedef struct vt_loop_place {
  uint32_t operand;
  int64_t element;
} vt_loop_place;
vt_loop_place vt_loop_source(const vt_op *op, int64_t at);
// The same for the k-th term of element `at` of a reduction or a dot; returns the number of terms.
int64_t vt_loop_terms(const vt_op *op);
int64_t vt_loop_term(const vt_op *op, uint32_t operand, int64_t at, int64_t k);
static inline bool vt_loop_in_registers(vt_type type) {
  return vt_type_elements(type) <= VT_LOOP_ELEMENTS;
}

void vt_loop_key(const vt_loop *loop, const vt_target *target, vt_text *out_key);
// The function `name`(void *const *arguments): operands of the while, then its results.
void vt_emit_loop(vt_emitter *e, const vt_loop *loop, const char *name);

#endif
