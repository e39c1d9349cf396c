// SPDX-License-Identifier: Apache-2.0
// dot.h - shared by dot.c and convolution.c: the type to multiply in, and operands converted to it.
#ifndef VT_EVAL_DOT_H
#define VT_EVAL_DOT_H

#include "eval/kernel.h"

typedef struct vt_dot_mode {
  vt_dtype type;     // of products and sums: F32, F64, S32, S64, C64, C128
  vt_dtype round[2]; // float type the operands are rounded to first, VT_DTYPE_INVALID = none
} vt_dot_mode;

vt_dot_mode vt_dot_mode_of(const vt_op *op, const vt_eval_env *env);
// A contiguous array of the given dims, read from `in` by strides (in elements) and an offset, in
// mode->type. The caller frees the result unless it is in.data (*out_owned says which).
vt_status vt_dot_operand(const vt_dot_mode *mode, int32_t which, vt_tensor in, int64_t offset,
                         int32_t rank, const int64_t *dims, const int64_t *strides, void **out,
                         bool *out_owned) VT_CHECKED;
// x [batch][m][k], y [batch][k][n] to out [batch][m][n], contiguous, all of `type`; out is
// overwritten.
vt_status vt_dot_matmul(vt_dtype type, int64_t batch, int64_t m, int64_t n, int64_t k,
                        const void *x, const void *y, void *out) VT_CHECKED;

#endif
