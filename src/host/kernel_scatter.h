// SPDX-License-Identifier: Apache-2.0
// kernel_scatter.h - the loops of scatter: updates combined into places. Internal to native
// kernels.
#ifndef VT_HOST_KERNEL_SCATTER_H
#define VT_HOST_KERNEL_SCATTER_H

#include "ir/ops.h"
#include "ir/type.h"

// Combines n windows, in order: element j of window i lies at out + place[i] + j * out_step and at
// updates + i * next + j * step; all in bytes. Windows with a negative place are left out, but
// single elements and runs of at most VT_COMBINE_SHORT bytes must all have a place. `far`: out does
// not fit the nearest cache. VT_COMBINE_AHEAD more places can be read.
enum { VT_COMBINE_AHEAD = 24, VT_COMBINE_SHORT = 64 };
typedef void (*vt_combine_fn)(int64_t n, const int64_t *place, bool far, char *out,
                              int64_t out_step, const char *updates, int64_t next, int64_t step,
                              int64_t width);

// The loop of an op (VT_OP_INVALID: the update replaces the element) for elements of a type; NULL
// if there is none.
vt_combine_fn vt_combine_of(vt_opcode code, vt_dtype dtype);

#endif
