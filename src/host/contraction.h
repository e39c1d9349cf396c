// SPDX-License-Identifier: Apache-2.0
// contraction.h - a product of two tensors as lists of dimensions, the common form of dots and 1x1
// convolutions.
#ifndef VT_HOST_CONTRACTION_H
#define VT_HOST_CONTRACTION_H

#include "host/plan.h"

typedef struct vt_dim {
  int64_t size, lhs, rhs, out; // strides in elements; 0 where the tensor lacks the dimension
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

// Appends a dimension inside the ones before; size 1 is left out.
static inline void vt_dims_push(vt_dims *list, int64_t size, int64_t lhs, int64_t rhs,
                                int64_t out) {
  if (size != 1) list->at[list->count++] = (vt_dim){size, lhs, rhs, out};
}

// Makes the step a product of a matrix and a vector in f32; false when it is none. (gemv.c)
bool vt_step_gemv(vt_plan *plan, vt_step *step, const vt_contraction *contraction);
// Makes the step a matmul; false when its size or element types are not for oneDNN. (dnnl_dot.c)
bool vt_step_contraction(vt_plan *plan, vt_step *step, const vt_contraction *contraction);
// Lets a step that is a product of f32 already first look whether one side, a matrix of a line for
// each of its free dimension, is nearly all zeros. K and free dimensions are collapsed.
// (dot_sparse.c)
void vt_step_sparse(vt_plan *plan, vt_step *step, const vt_contraction *contraction, bool any_size);
// True when no pass has rounded the operands of a contraction that rounds, so that the step has to.
bool vt_rounds_operands(const vt_plan *plan, const vt_op *op);

#endif
