// SPDX-License-Identifier: Apache-2.0
// contraction.h - a product of two tensors as lists of dimensions, the common form of dots and 1x1
// convolutions.
#ifndef VT_HOST_CONTRACTION_H
#define VT_HOST_CONTRACTION_H

#include "host/plan.h"

typedef struct vt_dim {
  int64_t size, lhs, rhs, out; // strides in elements; 0 if the tensor lacks the dimension
} vt_dim;
typedef struct vt_dims {
  int32_t count;
  vt_dim at[VT_MAX_RANK];
} vt_dims;

// out[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, k, n]. The result is dense along
// the last of n.
typedef struct vt_contraction {
  vt_dims batch, m, n, k;
} vt_contraction;

// Appends an inner dimension; size 1 is dropped.
static inline void vt_dims_push(vt_dims *list, int64_t size, int64_t lhs, int64_t rhs,
                                int64_t out) {
  if (size != 1) list->at[list->count++] = (vt_dim){size, lhs, rhs, out};
}

// Makes the step matrices times one or a few vectors; false when it is none. (gemv.c)
bool vt_step_gemv(vt_plan *plan, vt_step *step, const vt_contraction *contraction);
// Makes the step a matmul; false when its size or element types do not suit oneDNN. (dnnl_dot.c)
bool vt_step_contraction(vt_plan *plan, vt_step *step, const vt_contraction *contraction);
// Makes a prepared f32 product check at run time whether one side, a matrix with one line per index
// of its free dimension, is nearly all zeros. K and free dimensions are already collapsed.
// (dot_sparse.c)
void vt_step_sparse(vt_plan *plan, vt_step *step, const vt_contraction *contraction, bool any_size);
// True when the contraction's operands need rounding and no pass has done it: the step must.
bool vt_rounds_operands(const vt_plan *plan, const vt_op *op);

#endif
