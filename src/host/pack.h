// SPDX-License-Identifier: Apache-2.0
// pack.h - copies a strided array into another order, converting between f32 and bf16 on the way.
#ifndef VT_HOST_PACK_H
#define VT_HOST_PACK_H

#include "ir/type.h"

enum { VT_PACK_RANK = 12 };

// Dimensions from outer to inner; strides in elements. Both element types are F32 or BF16, or equal
// in size.
typedef struct vt_pack {
  int32_t rank;
  int64_t from_offset; // offset of the first element; source strides may be negative
  int64_t sizes[VT_PACK_RANK], from_strides[VT_PACK_RANK], to_strides[VT_PACK_RANK];
  vt_dtype from, to;
  bool round; // F32 to F32: to the nearest value of bf16
} vt_pack;

// Adds a dimension inside the ones before it; size 1 is left out.
void vt_pack_add(vt_pack *pack, int64_t size, int64_t from_stride, int64_t to_stride);
// Merges dimensions that are contiguous on both sides and sorts them into the target's order. Call
// once, last.
void vt_pack_finish(vt_pack *pack);
// Runs on the calling thread's OpenMP team. Threads: any.
void vt_pack_run(const vt_pack *pack, const void *from, void *to);

#endif
