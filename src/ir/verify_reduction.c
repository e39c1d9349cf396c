// SPDX-License-Identifier: Apache-2.0
// verify_reduction.c - reduce, windows, sort, map and batch normalisation.
#include <inttypes.h>

#include "ir/verify.h"
#include "ir/window.h"

enum { MAX_INPUTS = 256 };

// Body of a reduction over `count` inputs: accumulators, then elements, all scalars of the results'
// types.
static vt_status verify_body(const vt_op *op, uint32_t count) {
  vt_type params[2 * MAX_INPUTS];
  for (uint32_t i = 0; i < count; i++)
    params[i] = params[count + i] = (vt_type){vt_result_type(op, i).dtype, 0, NULL};
  return vt_verify_region(op, 0, 2 * count, params, count, params);
}

static vt_status verify_inputs(const vt_op *op, uint32_t *out_count) {
  uint32_t count = op->result_count;
  CHECK(op, count >= 1 && count <= MAX_INPUTS && vt_op_own_operands(op) == 2 * count,
        "has %u operands for %u results", vt_op_own_operands(op), count);
  for (uint32_t i = 0; i < count; i++) {
    CHECK(op, vt_type_same_dims(vt_operand_type(op, i), vt_operand_type(op, 0)),
          "inputs have different shapes");
    CHECK(op, !vt_operand_type(op, count + i).rank, "init value %u is not a scalar", i);
    CHECK(op,
          vt_operand_type(op, i).dtype != VT_TOKEN &&
              vt_operand_type(op, count + i).dtype != VT_TOKEN,
          "input %u is a token", i);
  }
  *out_count = count;
  return VT_OK;
}

vt_status vt_verify_reduce(const vt_op *op) {
  uint32_t count, reduced_count;
  const int64_t *reduced;
  VT_TRY(verify_inputs(op, &count));
  vt_type in = vt_operand_type(op, 0);
  VT_TRY(vt_verify_dims(op, VT_ATTR_DIMENSIONS, in.rank, false, &reduced, &reduced_count));
  int64_t dims[VT_MAX_RANK];
  int32_t rank = 0;
  uint64_t mask = 0;
  for (uint32_t i = 0; i < reduced_count; i++) mask |= (uint64_t)1 << reduced[i];
  for (int32_t d = 0; d < in.rank; d++)
    if (!(mask >> d & 1)) dims[rank++] = in.dims[d];
  for (uint32_t i = 0; i < count; i++)
    VT_TRY(vt_verify_result(op, i, vt_result_type(op, i).dtype, rank, dims));
  return verify_body(op, count);
}

static vt_status verify_window_dims(const vt_op *op, vt_type in, bool dilations,
                                    int64_t *out_dims) {
  const int64_t *size, *stride, *padding, *base = NULL, *window = NULL;
  uint32_t rank = (uint32_t)in.rank;
  VT_TRY(vt_verify_ints(op, VT_ATTR_WINDOW_DIMENSIONS, rank, &size));
  VT_TRY(vt_verify_ints(op, VT_ATTR_WINDOW_STRIDES, rank, &stride));
  VT_TRY(vt_verify_ints(op, VT_ATTR_PADDING, 2 * rank, &padding));
  if (dilations) {
    VT_TRY(vt_verify_ints(op, VT_ATTR_BASE_DILATIONS, rank, &base));
    VT_TRY(vt_verify_ints(op, VT_ATTR_WINDOW_DILATIONS, rank, &window));
  }
  for (uint32_t d = 0; d < rank; d++) {
    vt_window w = {size[d],
                   stride[d],
                   padding[2 * d],
                   padding[2 * d + 1],
                   base ? base[d] : 1,
                   window ? window[d] : 1};
    CHECK(op, size[d] >= 1 && vt_window_output(in.dims[d], w, &out_dims[d]),
          "window of dimension %u is not valid", d);
  }
  return VT_OK;
}

vt_status vt_verify_reduce_window(const vt_op *op) {
  uint32_t count;
  int64_t dims[VT_MAX_RANK];
  VT_TRY(verify_inputs(op, &count));
  vt_type in = vt_operand_type(op, 0);
  VT_TRY(verify_window_dims(op, in, true, dims));
  for (uint32_t i = 0; i < count; i++)
    VT_TRY(vt_verify_result(op, i, vt_result_type(op, i).dtype, in.rank, dims));
  return verify_body(op, count);
}

vt_status vt_verify_select_and_scatter(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0), source = vt_operand_type(op, 1),
          init = vt_operand_type(op, 2);
  CHECK(op, vt_op_own_operands(op) == 3, "has %u operands", vt_op_own_operands(op));
  int64_t dims[VT_MAX_RANK];
  VT_TRY(verify_window_dims(op, in, false, dims));
  CHECK(op, vt_type_equal(source, (vt_type){in.dtype, in.rank, dims}),
        "the source does not fit the windows");
  CHECK(op, !init.rank && init.dtype == in.dtype,
        "the init value is not a scalar of the operand's type");
  VT_TRY(vt_verify_result(op, 0, in.dtype, in.rank, in.dims));
  vt_type scalar = {in.dtype, 0, NULL}, predicate = {VT_PRED, 0, NULL};
  vt_type pair[2] = {scalar, scalar};
  VT_TRY(vt_verify_region(op, 0, 2, pair, 1, &predicate));
  return vt_verify_region(op, 1, 2, pair, 1, &scalar);
}

vt_status vt_verify_sort(const vt_op *op) {
  uint32_t count = op->result_count;
  int64_t along;
  CHECK(op, count >= 1 && count <= MAX_INPUTS && vt_op_own_operands(op) == count,
        "has %u operands for %u results", vt_op_own_operands(op), count);
  vt_type first = vt_operand_type(op, 0);
  VT_TRY(
      vt_verify_i64(op, VT_ATTR_DIMENSION, -first.rank, first.rank ? first.rank - 1 : -1, &along));
  vt_type params[2 * MAX_INPUTS];
  for (uint32_t i = 0; i < count; i++) {
    vt_type type = vt_operand_type(op, i);
    CHECK(op, vt_type_same_dims(type, first) && type.dtype != VT_TOKEN,
          "inputs have different shapes");
    VT_TRY(vt_verify_result(op, i, type.dtype, type.rank, type.dims));
    params[2 * i] = params[2 * i + 1] = (vt_type){type.dtype, 0, NULL};
  }
  vt_type predicate = {VT_PRED, 0, NULL};
  return vt_verify_region(op, 0, 2 * count, params, 1, &predicate);
}

vt_status vt_verify_map(const vt_op *op) {
  uint32_t count = vt_op_own_operands(op);
  CHECK(op, count >= 1 && count <= MAX_INPUTS, "has %u operands", count);
  vt_type out = vt_result_type(op, 0), params[MAX_INPUTS];
  const int64_t *dims;
  VT_TRY(vt_verify_ints(op, VT_ATTR_DIMENSIONS, (uint32_t)out.rank, &dims));
  for (int32_t d = 0; d < out.rank; d++)
    CHECK(op, dims[d] == d, "dimensions must be all dimensions in order");
  for (uint32_t i = 0; i < count; i++) {
    CHECK(op, vt_type_same_dims(vt_operand_type(op, i), out), "operand %u has a different shape",
          i);
    params[i] = (vt_type){vt_operand_type(op, i).dtype, 0, NULL};
  }
  vt_type scalar = {out.dtype, 0, NULL};
  return vt_verify_region(op, 0, count, params, 1, &scalar);
}

vt_status vt_verify_batch_norm(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0);
  int64_t feature;
  CHECK(op, vt_dtype_is_float(in.dtype), "not defined for element type %s",
        vt_dtype_get(in.dtype)->text);
  CHECK(op, vt_op_attr(op, VT_ATTR_EPSILON), "attribute epsilon is missing");
  VT_TRY(vt_verify_i64(op, VT_ATTR_FEATURE_INDEX, 0, in.rank - 1, &feature));
  const int64_t *vector = &in.dims[feature];
  for (uint32_t i = 1; i < op->operand_count; i++) {
    bool whole = op->code == VT_OP_BATCH_NORM_GRAD && i == 4;
    vt_type want = whole ? in : (vt_type){in.dtype, 1, vector};
    CHECK(op, vt_type_equal(vt_operand_type(op, i), want), "operand %u has the wrong type", i);
  }
  VT_TRY(vt_verify_result(op, 0, in.dtype, in.rank, in.dims));
  for (uint32_t i = 1; i < op->result_count; i++)
    VT_TRY(vt_verify_result(op, i, in.dtype, 1, vector));
  return VT_OK;
}
