// SPDX-License-Identifier: Apache-2.0
// dot.h - contractions of two arrays: dots, and convolutions seen as dots.
#ifndef VT_SPMD_DOT_H
#define VT_SPMD_DOT_H

#include "spmd/partition/partition.h"

enum { VT_SIDE_LHS, VT_SIDE_RHS, VT_SIDE_OUT, VT_SIDES };

// Dimensions that belong together: one of each array, -1 = that array has none.
typedef struct vt_dot_dim {
  int32_t at[VT_SIDES];
} vt_dot_dim;
typedef struct vt_dot_dims {
  int32_t count;
  vt_dot_dim dims[VT_MAX_RANK];
} vt_dot_dims;

// What follows a local contraction whose operands are cut along contracted dimensions: the devices
// add up their results, and keep the parts that they shall have.
typedef struct vt_dot_sum {
  const struct vt_dot_sum *outer; // done first
  const vt_groups *groups;        // in which it is done
  const vt_assign *operand;       // cut along `operand_mask`; or
  uint32_t operand_mask;
  const vt_assign *out; // of the result, cut along `slice_mask`
  uint32_t slice_mask;
  bool sum_copies; // of out, after slicing
} vt_dot_sum;

typedef struct vt_contraction {
  const vt_op *op;
  vt_dot_dims batch, contracted, lhs_free, rhs_free;
  int32_t ranks[VT_SIDES];
  // Emits the local op for what the devices hold.
  vt_value *(*emit)(vt_parter *p, const struct vt_contraction *c, vt_part lhs, vt_part rhs);
  // Tried before the rules, in every group: the local result in the assignment `out`; NULL: it has
  // no way. Not given: no such rule.
  vt_value *(*special)(vt_parter *p, const struct vt_contraction *c, vt_part lhs, vt_part rhs,
                       vt_type type, const vt_assign *out);
  const vt_dot_sum *sums; // innermost first
  const void *conv;       // conv.c
} vt_contraction;

// What must follow a local op that is not emitted by the rules.
vt_value *vt_contract_sum(vt_parter *p, const vt_contraction *c, vt_value *local);

// The local result in the assignment `out`, of an array of type `type` (in the current group).
vt_value *vt_contract(vt_parter *p, const vt_contraction *c, vt_part lhs, vt_part rhs, vt_type type,
                      const vt_assign *out);

#endif
