// SPDX-License-Identifier: Apache-2.0
// loop.h - whiles of small iterations as one function of generated code: what qualifies (loop.c,
// loop_check.c), where elements of small values come from (loop_places.c), the code (emit_loop.c
// and its parts), the step that runs it (exec_loop.c).
//
// An iteration of a step list costs about a microsecond whatever it computes. If the state is small
// (the cell of a recurrent network, a step of a solver) and the number of iterations is large or
// not known, the whole while becomes one function whose state stays in registers. It holds the
// control flow inside the body too: branches, further whiles, calls. Large values are read where
// they are (sequences, weights, tables), or carried in the memory of the result and changed there,
// by a dynamic_update_slice or a scatter (the outputs of a scan, a queue). Ops without code in a
// loop are done by the evaluator, called from it.
//
// A value is in registers if it has at most VT_LOOP_ELEMENTS elements and is no carried value that
// the body updates in place. Values in memory are versions of one piece of memory: an update makes
// the next version, after which nothing may read the ones before.
#ifndef VT_HOST_LOOP_H
#define VT_HOST_LOOP_H

#include "base/array.h"
#include "eval/eval.h"

typedef struct vt_target vt_target;   // host/emit.h
typedef struct vt_emitter vt_emitter; // likewise

enum { VT_LOOP_ELEMENTS = 256 }; // of a value in registers

typedef enum vt_loop_home {
  VT_LOOP_STATE, // carried in registers
  VT_LOOP_FIXED, // returned unchanged: small ones in registers, others read from memory
  VT_LOOP_MEMORY // carried in memory: of the while's result, in a nested one that of its operand,
                 // or if small on the stack
} vt_loop_home;

// Of one while: where the parameters of its body live.
typedef struct vt_loop_homes {
  const vt_func *body;
  uint8_t *of; // vt_loop_home by parameter
} vt_loop_homes;

typedef struct vt_loop {
  const vt_op *op;
  VT_ARRAY(vt_loop_homes *) homes; // of the while and those in it, in an arena
  VT_ARRAY(const vt_op *) called;  // by the evaluator, in an arena
  bool has_effect;                 // one of them
} vt_loop;

// The loop of a while; NULL when it does not qualify. Numbers its regions.
vt_loop *vt_loop_find(vt_arena *arena, const vt_op *op);
uint8_t *vt_loop_homes_of(const vt_loop *loop, const vt_func *body); // NULL: unknown
uint32_t vt_loop_called(const vt_loop *loop, const vt_op *op);       // its place in `called`
void vt_loop_key(const vt_loop *loop, const vt_target *target, vt_text *out_key);

// Whether the results are the operands, also as elements in registers.
bool vt_loop_renames(const vt_op *op);

// loop_check.c: whether there is code for a plain op on values in registers (operands that it reads
// from memory may be large), and about how many instructions it takes; how it is done.
bool vt_loop_is_empty(const vt_op *op); // its results have no elements, and it does nothing else
typedef enum vt_loop_way { VT_LOOP_REFUSED, VT_LOOP_CODE, VT_LOOP_CALL } vt_loop_way;
vt_loop_way vt_loop_way_of(const vt_op *op, int64_t *cost);
// A reduction whose region becomes code, once for each term.
bool vt_loop_folds(const vt_op *op);

// loop_places.c
// Which element of which operand lies at element `at` of the result: broadcast_in_dim, transpose,
// slice, concatenate, reverse, pad.
typedef struct vt_loop_place {
  uint32_t operand;
  int64_t element;
} vt_loop_place;
vt_loop_place vt_loop_source(const vt_op *op, int64_t at);
// The same for the k-th term of element `at` of a reduction or a dot; and the number of terms.
int64_t vt_loop_terms(const vt_op *op);
int64_t vt_loop_term(const vt_op *op, uint32_t operand, int64_t at, int64_t k);
// Where element `at` of a window of these sizes lies in an array, from the window's start.
int64_t vt_loop_in_window(vt_type whole, const int64_t *sizes, int64_t at);
static inline int64_t vt_loop_elements(vt_type type) { // as a value: tokens are empty
  return type.dtype == VT_TOKEN ? 0 : vt_type_elements(type);
}
static inline bool vt_loop_in_registers(vt_type type) {
  return vt_loop_elements(type) <= VT_LOOP_ELEMENTS;
}

// The function `name`(void *const *arguments, vt_loop_context *): operands of the while, then its
// results. Returns 0, or another number when an op failed.
void vt_emit_loop(vt_emitter *e, const vt_loop *loop, const char *name);

// What the function runs the evaluator with.
typedef struct vt_loop_context {
  const vt_loop *loop;
  const vt_eval_env *env;
  vt_tensor **tensors; // by called op: operands, results
  vt_status status;    // of the op that failed
} vt_loop_context;
typedef int32_t vt_loop_fn(void *const *arguments, vt_loop_context *context);
// Called from the function: 0, or an error in the context. `memory` of operands, then results.
int32_t vt_loop_call(vt_loop_context *context, int32_t number, void *const *memory);

#endif
