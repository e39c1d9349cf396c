// SPDX-License-Identifier: Apache-2.0
// kernel_move.h - copying boxes of elements, and the ops that only do that. Internal to native
// kernels.
#ifndef VT_HOST_KERNEL_MOVE_H
#define VT_HOST_KERNEL_MOVE_H

#include "host/kernel_native.h"

// A copy of dims[0] x ... elements of `bytes` each; strides in bytes on both sides.
typedef struct vt_box {
  int32_t rank; // >= 1 after vt_box_normalise
  int64_t bytes;
  int64_t dims[VT_MAX_RANK], to[VT_MAX_RANK], from[VT_MAX_RANK];
} vt_box;

void vt_box_normalise(vt_box *box);
void vt_box_copy(const vt_box *box, void *to, const void *from); // parallel when large
// An integer of 1, 2, 4 or 8 bytes; unsigned ones past INT64_MAX read as INT64_MAX.
int64_t vt_read_index(const void *data, int64_t bytes, bool is_signed);

// Out-of-order execution hides the latency of reads from arrays up to this size.
enum { VT_NEAR_READ_BYTES = 512 << 10 };

bool vt_move_supports(const vt_op *op);
const vt_native *vt_move_create(vt_arena *arena, const vt_op *op);
// Of a dynamic_slice or dynamic_update_slice: bytes before its part of the array.
int64_t vt_move_start(const vt_native *move, void *const *starts);
bool vt_gather_supports(const vt_op *op);
bool vt_gather_is_far(const vt_op *op); // its reads should be prefetched
const vt_native *vt_gather_create(vt_arena *arena, const vt_op *op);
bool vt_scatter_supports(const vt_op *op);
const vt_native *vt_scatter_create(vt_arena *arena, const vt_op *op);
bool vt_fft_supports(const vt_op *op);
const vt_native *vt_fft_create(vt_arena *arena, const vt_op *op);
bool vt_linalg_supports(const vt_op *op);
const vt_native *vt_linalg_create(vt_arena *arena, const vt_op *op);
bool vt_topk_supports(const vt_op *op);
const vt_native *vt_topk_create(vt_arena *arena, const vt_op *op);
bool vt_window_supports(const vt_op *op);
const vt_native *vt_window_create(vt_arena *arena, const vt_op *op);

#endif
