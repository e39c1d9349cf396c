// SPDX-License-Identifier: Apache-2.0
// index.h - dimension numbers of gather and scatter as the partitioner sees them.
//
// Both are told in gather's terms: an *operand* is indexed by vectors of *indices*, and *windows*
// are what is taken from it (the result of a gather) or put into it (the updates of a scatter).
#ifndef VT_SPMD_INDEX_H
#define VT_SPMD_INDEX_H

#include "spmd/partition/partition.h"

// Dimensions that belong together, in the operand, the indices and the windows. A list that has
// nothing to say of one of them leaves it alone.
typedef struct vt_index_dims {
  int32_t count, operand[VT_MAX_RANK], indices[VT_MAX_RANK], windows[VT_MAX_RANK];
} vt_index_dims;

typedef struct vt_indexing {
  const vt_op *op;
  bool scatter;
  uint32_t count;           // operands, and of a scatter also updates
  vt_type operand, indices; // of the whole arrays
  vt_type windows;
  int32_t vector_dim; // of the indices; their rank = every index is a vector of one
  int32_t map_count;
  int32_t map[VT_MAX_RANK];   // the operand's dimension that a component indexes
  int64_t sizes[VT_MAX_RANK]; // of a window, along the operand's dimensions
  vt_index_dims batch;        // every array has them: batching dimensions
  vt_index_dims parallel;     // as good as batching dimensions, as the index counts along them
  vt_index_dims covered;      // operand and windows: windows are as large as the operand
  vt_index_dims positions;    // indices and windows: all dimensions of the indices but the vectors
  vt_index_dims free;         // positions that are neither batch nor parallel
} vt_indexing;

void vt_indexing_read(const vt_op *op, vt_indexing *out);

// An assignment of an array of `rank` dimensions: dimension to[i] is cut as dimension from[i] is.
const vt_assign *vt_assign_along(vt_parter *p, const vt_assign *a, int32_t count,
                                 const int32_t *from, const int32_t *to, int32_t rank);

#endif
