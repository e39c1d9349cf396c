// SPDX-License-Identifier: Apache-2.0
// indexed.h - shared by gather and scatter: windows of an operand at indexed positions.
//
// The other array, gather's result or scatter's updates, holds the windows: it is seen as [batch
// dims][window dims], in any order. A batch index selects one index, which is the start of one
// window.
#ifndef VT_EVAL_INDEXED_H
#define VT_EVAL_INDEXED_H

#include "eval/kernel.h"

// The attributes by meaning.
typedef struct vt_indexed_keys {
  vt_attr_key window_dims;  // of the other array
  vt_attr_key dropped_dims; // operand dimensions without a window dimension
  vt_attr_key operand_batching_dims, indices_batching_dims;
  vt_attr_key index_map; // operand dimension of each part of an index
} vt_indexed_keys;

extern const vt_indexed_keys vt_gather_keys, vt_scatter_keys;

typedef struct vt_indexed {
  int32_t batch_rank, window_rank;
  int64_t batch_dims[VT_MAX_RANK], batch_strides[VT_MAX_RANK]; // in the other array
  int64_t window_dims[VT_MAX_RANK], window_strides[VT_MAX_RANK];
  int64_t place_strides[VT_MAX_RANK]; // of the window dimensions in the operand
  int64_t index_strides[VT_MAX_RANK]; // in the indices, by batch dimension
  int64_t component_stride;           // between the parts of one index
  const int64_t *index_map;
  uint32_t components;
  int64_t limits[VT_MAX_RANK]; // largest start by operand dimension
  int64_t operand_strides[VT_MAX_RANK];
  int32_t batching_count; // operand dimensions that follow a batch dimension
  int64_t batching_dim[VT_MAX_RANK], batching_at[VT_MAX_RANK]; // operand dim, batch dimension
} vt_indexed;

// `sizes` of the windows by operand dimension; NULL = those of the other array, which may then
// exceed the operand's. errors INVALID_ARGUMENT
vt_status vt_indexed_plan(const vt_op *op, const vt_indexed_keys *keys, vt_type operand,
                          vt_type indices, vt_type other, const int64_t *sizes,
                          vt_indexed *out_plan) VT_CHECKED;

// Start in the operand, in elements, of the window of batch index `at`. A window that leaves the
// operand is moved into it (`clamp`), or the result is false.
bool vt_indexed_find(const vt_indexed *plan, vt_tensor indices, const int64_t *at, bool clamp,
                     int64_t *out_place);

// The body of a scatter returns the update itself: later windows win.
bool vt_scatter_assigns(const vt_func *body, uint32_t inputs);

#endif
