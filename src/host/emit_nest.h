// SPDX-License-Identifier: Apache-2.0
// emit_nest.h - what the files that emit the loops of a nest share: emit_nest.c,
// emit_pass.c, emit_scatter.c.
#ifndef VT_HOST_EMIT_NEST_H
#define VT_HOST_EMIT_NEST_H

#include "base/check.h"
#include "host/emit.h"

enum { AT_ONCE = 4 }; // vectors of a cheap reduction

typedef struct node_state {
  bool live;
  uint8_t level;
  uint32_t slot;            // of dims: where offset and strides begin; 0 = none
  LLVMValueRef pointer;     // of the array, without row offset
  LLVMValueRef row_pointer; // for this row
  LLVMValueRef row_index;   // iota: value at column 0 of this row
  // gather, scatter: as vectors of 32 or 64 bits
  LLVMValueRef column_stride, limits[3], strides[3];
  LLVMValueRef places, updates, spare; // scatter: of a block; what takes the updates left out
  LLVMValueRef once;                   // value of scalar and row level
  LLVMValueRef in_pass;                // value of full level, in pass `pass`
  int32_t pass;
  LLVMValueRef buffer; // kept row, NULL = none
  bool kept;
  bool filled;            // before the first row
  uint32_t uses;          // passes that ask for the value, a bit each
  int32_t store_pass;     // output: the pass that writes it
  LLVMValueRef phi, phi2; // accumulating vectors of this pass (argmax: value, index)
  LLVMValueRef start, next, next2;
  LLVMValueRef phis[AT_ONCE], nexts[AT_ONCE];
} node_state;

typedef struct loops {
  vt_emitter *e;
  const vt_nest *nest;
  node_state *state; // of the row at hand
  int32_t abreast;   // rows side by side, each with a state
  node_state *states[VT_NEST_ABREAST];
  bool movable[VT_NEST_NODES]; // may be computed where they are needed, if at all
  LLVMValueRef args, dims, row_lo, row_hi, col_lo, col_hi, accumulators;
  LLVMValueRef column, columns; // current index; number of columns (i64)
  LLVMValueRef mask;            // lanes inside the row; NULL when all are
  LLVMValueRef dim_values[VT_NEST_ATOMS];
  int32_t pass;
  LLVMBasicBlockRef before, latch; // of the loop over columns: where it comes from, its end
  LLVMBasicBlockRef wide_done;
  bool begun;    // the pass has done some columns already
  bool ragged;   // stores need the mask
  bool fetching; // addresses of later columns
} loops;

// ---- Small builders.

static inline LLVMTypeRef i64_type(const loops *l) {
  return LLVMInt64TypeInContext(l->e->context);
}
static inline LLVMTypeRef i32_type(const loops *l) {
  return LLVMInt32TypeInContext(l->e->context);
}
static inline LLVMTypeRef pointer_type(const loops *l) {
  return LLVMPointerTypeInContext(l->e->context, 0);
}
static inline LLVMValueRef i64_constant(const loops *l, int64_t x) {
  return LLVMConstInt(i64_type(l), (uint64_t)x, true);
}

static inline LLVMBasicBlockRef new_block(loops *l, const char *name) {
  return LLVMAppendBasicBlockInContext(l->e->context, l->e->function, name);
}

static inline LLVMValueRef argument(loops *l, int64_t number) {
  LLVMValueRef at = i64_constant(l, number);
  LLVMValueRef p = LLVMBuildInBoundsGEP2(l->e->builder, pointer_type(l), l->args, &at, 1, "");
  return LLVMBuildLoad2(l->e->builder, pointer_type(l), p, "");
}

static inline LLVMValueRef byte_offset(loops *l, LLVMValueRef pointer, LLVMValueRef bytes) {
  return LLVMBuildGEP2(l->e->builder, LLVMInt8TypeInContext(l->e->context), pointer, &bytes, 1, "");
}

static inline LLVMValueRef vt_nest_phi(loops *l, LLVMValueRef start, LLVMBasicBlockRef from) {
  LLVMValueRef phi = LLVMBuildPhi(l->e->builder, LLVMTypeOf(start), "");
  LLVMAddIncoming(phi, &start, &from, 1);
  return phi;
}

static inline LLVMValueRef first_lane(loops *l, LLVMValueRef vector) {
  return LLVMBuildExtractElement(l->e->builder, vector, LLVMConstInt(i32_type(l), 0, false), "");
}

// ---- Of the loops.

static inline void vt_nest_each_row(loops *l, void (*what)(loops *l)) {
  for (int32_t r = 0; r < l->abreast; r++) {
    l->state = l->states[r];
    what(l);
  }
}

// A node's value for the columns at hand.
LLVMValueRef vt_nest_value(loops *l, uint32_t node);
// Computes what the coming loop must find ready.
void vt_nest_prepare(loops *l, uint8_t level, int32_t stage);
LLVMValueRef vt_nest_lane_numbers(loops *l, LLVMTypeRef element);
LLVMValueRef vt_nest_load(loops *l, vt_dtype dtype, LLVMValueRef pointer);
LLVMValueRef vt_nest_load_splat(loops *l, vt_dtype dtype, LLVMValueRef pointer);
void vt_nest_store_first(loops *l, vt_dtype dtype, LLVMValueRef pointer, LLVMValueRef x);
void vt_nest_store(loops *l, vt_dtype dtype, LLVMValueRef pointer, LLVMValueRef x, bool masked);
// Byte offsets from the row's first element, of 32 or 64 bits each. Lanes behind the end hold any
// index: a gather moves it into bounds like all, and so is their column. A scatter asks which lanes
// are `inside`, the others have any offset.
LLVMValueRef vt_nest_offsets(loops *l, node_state *s, const vt_nest_node *n, LLVMValueRef *inside);
// Prefetches; `mode` is 1 for what will be written.
void vt_nest_fetch(loops *l, LLVMValueRef pointer, unsigned mode);
// A line that will be written, some vectors on: of this row, or of one that follows it.
void vt_nest_fetch_ahead(loops *l, vt_dtype dtype, LLVMValueRef pointer);
// How many ops it takes to compute a value; `seen` are counted already.
int vt_nest_cost(loops *l, uint32_t node, bool *seen);
// Sets the mask of the lanes inside the row, where one is needed.
void vt_nest_mask(loops *l, bool reduces);

// emit_pass.c
void vt_nest_emit_passes(loops *l);

// emit_scatter.c
void vt_nest_rooms(loops *l, node_state *s, const vt_nest_node *n);
void vt_nest_emit_scatter(loops *l, uint32_t node);

#endif
