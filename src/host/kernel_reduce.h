// SPDX-License-Identifier: Apache-2.0
// kernel_reduce.h - partial results of reductions: neutral values, pairwise combination, storing.
#ifndef VT_HOST_KERNEL_REDUCE_H
#define VT_HOST_KERNEL_REDUCE_H

#include "host/nest.h"

// `dtype` is a type of registers: f32 stands for bf16 and f16. pred takes a byte of 0 or 1.
void vt_reduce_fill(vt_reducer reducer, vt_dtype dtype, void *out, int64_t count);
void vt_reduce_combine(vt_reducer reducer, vt_dtype dtype, void *into, const void *from,
                       int64_t count);
// Writes accumulators as elements of `dtype`, rounded to nearest even.
void vt_reduce_store(vt_dtype dtype, void *out, const void *from, int64_t count);

#endif
