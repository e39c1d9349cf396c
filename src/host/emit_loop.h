// SPDX-License-Identifier: Apache-2.0
// emit_loop.h - shared by the files that write the code of loops (emit_loop*.c).
//
// A value of n elements is vectors of as many lanes as the target has, or one vector of the power
// of two from n on; one element is a vector of one lane. Lanes past its end are never read. While
// an op is written, the emitter's `lanes` are those of its result.
#ifndef VT_HOST_EMIT_LOOP_H
#define VT_HOST_EMIT_LOOP_H

#include "host/emit.h"
#include "host/loop.h"

enum { VT_MOST_LANES = 16, VT_LOOP_VECTORS = VT_LOOP_ELEMENTS / 8 };

// A value as the code has it.
typedef struct vt_held {
  uint32_t count;       // of vectors
  LLVMValueRef *parts;  // NULL while only in memory
  LLVMValueRef pointer; // of its elements in memory form; NULL until needed
  bool memory;          // lives there: an update changes it
} vt_held;

typedef struct vt_loop_code {
  vt_emitter *e;
  const vt_loop *loop;
  vt_arena arena;
  int lanes;                // of the target
  LLVMBasicBlockRef entry;  // holds what is allocated on the stack
  LLVMBasicBlockRef failed; // where a called op that failed ends
  vt_held *values;          // of the function being written, by id
} vt_loop_code;

// emit_loop_value.c
LLVMTypeRef vt_loop_i64_type(vt_loop_code *m);
LLVMTypeRef vt_loop_i32_type(vt_loop_code *m);
LLVMTypeRef vt_loop_pointer_type(vt_loop_code *m);
LLVMValueRef vt_loop_i64(vt_loop_code *m, int64_t x);
LLVMValueRef vt_loop_i32(vt_loop_code *m, int64_t x);
int vt_loop_lanes(const vt_loop_code *m, vt_type type);        // of its vectors
uint32_t vt_loop_vectors(const vt_loop_code *m, vt_type type); // how many
// Sets the lanes of the emitter to those of the type; returns what they were.
int vt_loop_use_lanes(vt_loop_code *m, vt_type type);
vt_held vt_loop_new(vt_loop_code *m, vt_type type); // parts to be filled in
static inline vt_held *vt_loop_held(vt_loop_code *m, const vt_value *value) {
  return &m->values[value->id];
}
LLVMValueRef vt_loop_at_byte(vt_loop_code *m, LLVMValueRef pointer, LLVMValueRef offset);
LLVMValueRef vt_loop_load_element(vt_loop_code *m, vt_dtype dtype, LLVMValueRef pointer,
                                  int64_t at);
// The emitter's lanes from element `at` on, in registers.
LLVMValueRef vt_loop_load_vector(vt_loop_code *m, vt_dtype dtype, LLVMValueRef pointer, int64_t at);
// The first `count` lanes of the emitter's.
void vt_loop_store_row(vt_loop_code *m, vt_dtype dtype, LLVMValueRef x, int64_t count,
                       LLVMValueRef pointer);
void vt_loop_load(vt_loop_code *m, vt_type type, LLVMValueRef pointer, vt_held *out);
void vt_loop_store(vt_loop_code *m, vt_type type, const vt_held *held, LLVMValueRef pointer);
LLVMValueRef vt_loop_room(vt_loop_code *m, int64_t bytes); // on the stack
LLVMValueRef vt_loop_room_of(vt_loop_code *m, vt_type type);
// Its vectors, loaded from memory if they are only there.
vt_held *vt_loop_parts(vt_loop_code *m, const vt_value *value);
// Its address: where it already is, or on the stack with room for one vector past its end.
LLVMValueRef vt_loop_memory(vt_loop_code *m, const vt_value *value);
// A vector of the emitter's lanes whose lane l is element at[l] of the value.
LLVMValueRef vt_loop_load_lanes(vt_loop_code *m, const vt_value *value, const int64_t *at);
LLVMValueRef vt_loop_element(vt_loop_code *m, const vt_value *value, int64_t at); // a scalar

// emit_loop_index.c
void vt_loop_dynamic_slice(vt_loop_code *m, const vt_op *op);
void vt_loop_dynamic_update(vt_loop_code *m, const vt_op *op);
void vt_loop_gather(vt_loop_code *m, const vt_op *op);
void vt_loop_scatter(vt_loop_code *m, const vt_op *op);

// emit_loop_op.c
void vt_loop_op(vt_loop_code *m, const vt_op *op); // sets the values of its results

// emit_loop.c
// The code of a function; its returns, as the code has them.
vt_held *vt_loop_func(vt_loop_code *m, const vt_func *func, const vt_held *params);

#endif
