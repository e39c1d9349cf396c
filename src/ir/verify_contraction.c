// SPDX-License-Identifier: Apache-2.0
// verify_contraction.c - dot_general, dot and convolution.
#include <inttypes.h>

#include "ir/verify.h"
#include "ir/window.h"

static bool holds(const int64_t *list, uint32_t count, int64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value) return true;
  return false;
}

static vt_status verify_precision(const vt_op *op) {
  const vt_attr *attr = vt_op_attr(op, VT_ATTR_PRECISION_CONFIG);
  if (!attr) return VT_OK;
  CHECK(op, attr->count == 0 || attr->count == 2, "precision_config has %u entries", attr->count);
  for (uint32_t i = 0; i < attr->count; i++)
    CHECK(op, attr->ints[i] >= VT_PRECISION_DEFAULT && attr->ints[i] <= VT_PRECISION_HIGHEST,
          "precision_config holds %" PRId64, attr->ints[i]);
  return VT_OK;
}

// Operands are numbers (or bools), results numbers: the result type says how to accumulate.
static vt_status verify_element_types(const vt_op *op) {
  for (uint32_t i = 0; i < 2; i++)
    CHECK(op, vt_operand_type(op, i).dtype != VT_TOKEN, "operand %u is a token", i);
  CHECK(op, vt_result_type(op, 0).dtype != VT_TOKEN, "the result is a token");
  bool complex_in = vt_dtype_is_complex(vt_operand_type(op, 0).dtype) ||
                    vt_dtype_is_complex(vt_operand_type(op, 1).dtype);
  CHECK(op, !complex_in || vt_dtype_is_complex(vt_result_type(op, 0).dtype),
        "complex operands need a complex result");
  return VT_OK;
}

vt_status vt_verify_dot_general(const vt_op *op) {
  vt_type lhs = vt_operand_type(op, 0), rhs = vt_operand_type(op, 1);
  const int64_t *lb, *rb, *lc, *rc;
  uint32_t lbn, rbn, lcn, rcn;
  VT_TRY(vt_verify_dims(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, lhs.rank, false, &lb, &lbn));
  VT_TRY(vt_verify_dims(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, rhs.rank, false, &rb, &rbn));
  VT_TRY(vt_verify_dims(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, lhs.rank, false, &lc, &lcn));
  VT_TRY(vt_verify_dims(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, rhs.rank, false, &rc, &rcn));
  CHECK(op, lbn == rbn && lcn == rcn, "dimension lists of lhs and rhs differ in length");
  int64_t dims[2 * VT_MAX_RANK];
  int32_t rank = 0;
  for (uint32_t i = 0; i < lbn; i++) {
    CHECK(op, lhs.dims[lb[i]] == rhs.dims[rb[i]], "batching dimensions differ in size");
    CHECK(op, !holds(lc, lcn, lb[i]) && !holds(rc, rcn, rb[i]),
          "a dimension is batching and contracting");
    dims[rank++] = lhs.dims[lb[i]];
  }
  for (uint32_t i = 0; i < lcn; i++)
    CHECK(op, lhs.dims[lc[i]] == rhs.dims[rc[i]],
          "contracting sizes %" PRId64 " and %" PRId64 " differ", lhs.dims[lc[i]], rhs.dims[rc[i]]);
  for (int32_t d = 0; d < lhs.rank; d++)
    if (!holds(lb, lbn, d) && !holds(lc, lcn, d)) dims[rank++] = lhs.dims[d];
  for (int32_t d = 0; d < rhs.rank; d++)
    if (!holds(rb, rbn, d) && !holds(rc, rcn, d)) dims[rank++] = rhs.dims[d];
  VT_TRY(verify_precision(op));
  VT_TRY(verify_element_types(op));
  return vt_verify_result(op, 0, vt_result_type(op, 0).dtype, rank, dims);
}

vt_status vt_verify_dot(const vt_op *op) {
  vt_type lhs = vt_operand_type(op, 0), rhs = vt_operand_type(op, 1);
  CHECK(op, lhs.rank >= 1 && lhs.rank <= 2 && rhs.rank >= 1 && rhs.rank <= 2,
        "operands must be vectors or matrices");
  CHECK(op, lhs.dims[lhs.rank - 1] == rhs.dims[0], "contracting sizes differ");
  int64_t dims[2];
  int32_t rank = 0;
  if (lhs.rank == 2) dims[rank++] = lhs.dims[0];
  if (rhs.rank == 2) dims[rank++] = rhs.dims[1];
  VT_TRY(verify_precision(op));
  VT_TRY(verify_element_types(op));
  return vt_verify_result(op, 0, vt_result_type(op, 0).dtype, rank, dims);
}

// Batch, feature and spatial dimension numbers must be a permutation of 0..rank-1.
static vt_status verify_dim_numbers(const vt_op *op, const char *what, int32_t rank, int64_t a,
                                    int64_t b, const int64_t *spatial) {
  uint64_t seen = 0;
  for (int32_t i = 0; i < rank; i++) {
    int64_t d = i == 0 ? a : i == 1 ? b : spatial[i - 2];
    CHECK(op, d >= 0 && d < rank && !(seen >> d & 1), "%s dimension numbers are not a permutation",
          what);
    seen |= (uint64_t)1 << d;
  }
  return VT_OK;
}

vt_status vt_verify_convolution(const vt_op *op) {
  vt_type lhs = vt_operand_type(op, 0), rhs = vt_operand_type(op, 1), out = vt_result_type(op, 0);
  CHECK(op, lhs.rank >= 2 && rhs.rank == lhs.rank && out.rank == lhs.rank,
        "operands and result differ in rank");
  uint32_t spatial = (uint32_t)lhs.rank - 2;
  const int64_t *in_s, *k_s, *out_s, *stride, *padding, *lhs_dilation, *rhs_dilation, *reversal;
  int64_t in_b, in_f, k_i, k_o, out_b, out_f, groups, batch_groups;
  VT_TRY(vt_verify_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, spatial, &in_s));
  VT_TRY(vt_verify_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, spatial, &k_s));
  VT_TRY(vt_verify_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, spatial, &out_s));
  VT_TRY(vt_verify_ints(op, VT_ATTR_WINDOW_STRIDES, spatial, &stride));
  VT_TRY(vt_verify_ints(op, VT_ATTR_PADDING, 2 * spatial, &padding));
  VT_TRY(vt_verify_ints(op, VT_ATTR_LHS_DILATION, spatial, &lhs_dilation));
  VT_TRY(vt_verify_ints(op, VT_ATTR_RHS_DILATION, spatial, &rhs_dilation));
  VT_TRY(vt_verify_ints(op, VT_ATTR_WINDOW_REVERSAL, spatial, &reversal));
  int64_t last = lhs.rank - 1;
  VT_TRY(vt_verify_i64(op, VT_ATTR_INPUT_BATCH_DIMENSION, 0, last, &in_b));
  VT_TRY(vt_verify_i64(op, VT_ATTR_INPUT_FEATURE_DIMENSION, 0, last, &in_f));
  VT_TRY(vt_verify_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 0, last, &k_i));
  VT_TRY(vt_verify_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0, last, &k_o));
  VT_TRY(vt_verify_i64(op, VT_ATTR_OUTPUT_BATCH_DIMENSION, 0, last, &out_b));
  VT_TRY(vt_verify_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION, 0, last, &out_f));
  VT_TRY(vt_verify_i64(op, VT_ATTR_FEATURE_GROUP_COUNT, 1, INT64_MAX, &groups));
  VT_TRY(vt_verify_i64(op, VT_ATTR_BATCH_GROUP_COUNT, 1, INT64_MAX, &batch_groups));
  VT_TRY(verify_dim_numbers(op, "input", lhs.rank, in_b, in_f, in_s));
  VT_TRY(verify_dim_numbers(op, "kernel", lhs.rank, k_i, k_o, k_s));
  VT_TRY(verify_dim_numbers(op, "output", lhs.rank, out_b, out_f, out_s));
  CHECK(op, groups == 1 || batch_groups == 1,
        "both feature_group_count and batch_group_count exceed 1");
  CHECK(op,
        lhs.dims[in_f] % groups == 0 && rhs.dims[k_i] == lhs.dims[in_f] / groups &&
            rhs.dims[k_o] % groups == 0,
        "feature groups do not fit %" PRId64 " input and %" PRId64 " output features",
        lhs.dims[in_f], rhs.dims[k_o]);
  CHECK(op, lhs.dims[in_b] % batch_groups == 0 && rhs.dims[k_o] % batch_groups == 0,
        "batch groups do not fit");
  int64_t dims[VT_MAX_RANK];
  dims[out_b] = lhs.dims[in_b] / batch_groups;
  dims[out_f] = rhs.dims[k_o];
  for (uint32_t i = 0; i < spatial; i++) {
    vt_window w = {rhs.dims[k_s[i]],   stride[i],       padding[2 * i],
                   padding[2 * i + 1], lhs_dilation[i], rhs_dilation[i]};
    CHECK(op, vt_window_output(lhs.dims[in_s[i]], w, &dims[out_s[i]]),
          "window of spatial dimension %u is not valid", i);
  }
  VT_TRY(verify_precision(op));
  VT_TRY(verify_element_types(op));
  return vt_verify_result(op, 0, out.dtype, out.rank, dims);
}

vt_status vt_verify_einsum(const vt_op *op) {
  (void)op;
  return vt_error(VT_UNIMPLEMENTED, "einsum is not supported: use dot_general");
}
