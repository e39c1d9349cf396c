// SPDX-License-Identifier: Apache-2.0
// kernel_places.h - where the windows of a gather or scatter are. Internal to native kernels.
//
// The indices are read in blocks, so that the work at those places is a plain loop over an array of
// offsets.
#ifndef VT_HOST_KERNEL_PLACES_H
#define VT_HOST_KERNEL_PLACES_H

#include "eval/indexed.h"
#include "host/kernel_move.h"

enum { VT_PLACES_BLOCK = 1024 };

typedef struct vt_places {
  int64_t count; // of windows
  int32_t rank;  // batch dimensions after joining, at least one
  int64_t dims[VT_MAX_RANK];
  int64_t other[VT_MAX_RANK];   // byte strides in the result of a gather, the updates of a scatter
  int64_t index[VT_MAX_RANK];   // in the indices
  int64_t operand[VT_MAX_RANK]; // in the operand (batching dimensions), else 0
  int32_t starts;
  struct {
    int64_t at, limit, stride; // byte offset of the component; largest start; bytes in the operand
  } start[VT_MAX_RANK];
  vt_dtype index_type;
  bool disjoint; // windows with different places share no element
  vt_box window; // of one window: to = the other array, from = the operand
} vt_places;

// errors INVALID_ARGUMENT: the shapes do not fit; `sizes` as in vt_indexed_plan.
vt_status vt_places_make(const vt_op *op, const vt_indexed_keys *keys, vt_type operand,
                         vt_type indices, vt_type other, const int64_t *sizes,
                         vt_places *out) VT_CHECKED;
// Windows next to each other in the other array: byte offset of the first, distance of the next.
typedef struct vt_places_run {
  int64_t n, other, step;
} vt_places_run;

// The places, as byte offsets in the operand, of the windows from `from` on: at most `most` (itself
// at most VT_PLACES_BLOCK), and only those in one run. Starts out of bounds are moved into bounds
// (`clamp`) or reported as an offset of -1.
vt_places_run vt_places_find(const vt_places *p, const void *indices, int64_t from, int64_t most,
                             bool clamp, int64_t *places);

#endif
