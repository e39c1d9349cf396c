// SPDX-License-Identifier: Apache-2.0
// verify_shape.c - constants and the ops that move data by fixed rules.
#include <inttypes.h>

#include "ir/verify.h"

vt_status vt_verify_constant(const vt_op *op) {
  const vt_literal *literal = vt_attr_literal(op, VT_ATTR_VALUE);
  CHECK(op, literal && (literal->data || !vt_type_bytes(literal->type)),
        "constant without a value");
  CHECK(op, vt_type_equal(literal->type, vt_result_type(op, 0)),
        "the value has a different type than the result");
  return VT_OK;
}

vt_status vt_verify_broadcast_in_dim(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0), out = vt_result_type(op, 0);
  const int64_t *dims;
  uint32_t count;
  VT_TRY(vt_verify_dims(op, VT_ATTR_BROADCAST_DIMENSIONS, out.rank, false, &dims, &count));
  CHECK(op, count == (uint32_t)in.rank, "broadcast_dimensions has %u entries, the operand rank %d",
        count, in.rank);
  for (int32_t d = 0; d < in.rank; d++)
    CHECK(op, in.dims[d] == 1 || in.dims[d] == out.dims[dims[d]],
          "operand dimension %d of size %" PRId64 " does not fit result dimension %" PRId64
          " of size %" PRId64,
          d, in.dims[d], dims[d], out.dims[dims[d]]);
  CHECK(op, in.dtype == out.dtype, "element types differ");
  return VT_OK;
}

vt_status vt_verify_broadcast(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0), out = vt_result_type(op, 0);
  const int64_t *sizes;
  CHECK(op, out.rank >= in.rank, "the result has a smaller rank");
  VT_TRY(vt_verify_ints(op, VT_ATTR_BROADCAST_SIZES, (uint32_t)(out.rank - in.rank), &sizes));
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < out.rank; d++)
    dims[d] = d < out.rank - in.rank ? sizes[d] : in.dims[d - (out.rank - in.rank)];
  return vt_verify_result(op, 0, in.dtype, out.rank, dims);
}

vt_status vt_verify_transpose(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0);
  const int64_t *permutation;
  uint32_t count;
  VT_TRY(vt_verify_dims(op, VT_ATTR_PERMUTATION, in.rank, false, &permutation, &count));
  CHECK(op, count == (uint32_t)in.rank, "permutation has %u entries, the operand rank %d", count,
        in.rank);
  int64_t dims[VT_MAX_RANK];
  for (uint32_t d = 0; d < count; d++) dims[d] = in.dims[permutation[d]];
  return vt_verify_result(op, 0, in.dtype, in.rank, dims);
}

vt_status vt_verify_slice(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0);
  const int64_t *start, *limit, *stride;
  VT_TRY(vt_verify_ints(op, VT_ATTR_START_INDICES, (uint32_t)in.rank, &start));
  VT_TRY(vt_verify_ints(op, VT_ATTR_LIMIT_INDICES, (uint32_t)in.rank, &limit));
  VT_TRY(vt_verify_ints(op, VT_ATTR_STRIDES, (uint32_t)in.rank, &stride));
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < in.rank; d++) {
    CHECK(op, 0 <= start[d] && start[d] <= limit[d] && limit[d] <= in.dims[d] && stride[d] >= 1,
          "slice %" PRId64 ":%" PRId64 ":%" PRId64 " does not fit dimension %d of size %" PRId64,
          start[d], limit[d], stride[d], d, in.dims[d]);
    dims[d] = (limit[d] - start[d]) / stride[d] + ((limit[d] - start[d]) % stride[d] != 0);
  }
  return vt_verify_result(op, 0, in.dtype, in.rank, dims);
}

vt_status vt_verify_pad(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0), value = vt_operand_type(op, 1);
  const int64_t *low, *high, *interior;
  VT_TRY(vt_verify_ints(op, VT_ATTR_EDGE_PADDING_LOW, (uint32_t)in.rank, &low));
  VT_TRY(vt_verify_ints(op, VT_ATTR_EDGE_PADDING_HIGH, (uint32_t)in.rank, &high));
  VT_TRY(vt_verify_ints(op, VT_ATTR_INTERIOR_PADDING, (uint32_t)in.rank, &interior));
  CHECK(op, !value.rank && value.dtype == in.dtype,
        "the padding value is not a scalar of the operand's type");
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < in.rank; d++) {
    int64_t size, gaps = in.dims[d] ? in.dims[d] - 1 : 0;
    CHECK(op,
          interior[d] >= 0 && !__builtin_mul_overflow(gaps, interior[d], &size) &&
              !__builtin_add_overflow(size, in.dims[d], &size) &&
              !__builtin_add_overflow(size, low[d], &size) &&
              !__builtin_add_overflow(size, high[d], &size) && size >= 0,
          "padding of dimension %d gives no valid size", d);
    dims[d] = size;
  }
  return vt_verify_result(op, 0, in.dtype, in.rank, dims);
}

vt_status vt_verify_concatenate(const vt_op *op) {
  CHECK(op, op->operand_count > 0, "has no operands");
  vt_type first = vt_operand_type(op, 0);
  int64_t along, dims[VT_MAX_RANK];
  VT_TRY(vt_verify_i64(op, VT_ATTR_DIMENSION, 0, first.rank - 1, &along));
  for (int32_t d = 0; d < first.rank; d++) dims[d] = d == along ? 0 : first.dims[d];
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_type type = vt_operand_type(op, i);
    CHECK(op, type.rank == first.rank && type.dtype == first.dtype,
          "operand %u has a different rank or type", i);
    for (int32_t d = 0; d < type.rank; d++) {
      if (d == along)
        CHECK(op, !__builtin_add_overflow(dims[d], type.dims[d], &dims[d]), "sizes overflow");
      else
        CHECK(op, type.dims[d] == dims[d], "operand %u differs in dimension %d", i, d);
    }
  }
  return vt_verify_result(op, 0, first.dtype, first.rank, dims);
}

vt_status vt_verify_bitcast(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0), out = vt_result_type(op, 0);
  int in_bits = vt_dtype_get(in.dtype)->bits, out_bits = vt_dtype_get(out.dtype)->bits;
  CHECK(op, in_bits && out_bits, "not defined for these element types");
  vt_type small = out_bits < in_bits ? out : in, large = out_bits < in_bits ? in : out;
  int small_bits = out_bits < in_bits ? out_bits : in_bits,
      large_bits = out_bits < in_bits ? in_bits : out_bits;
  int32_t extra = small_bits == large_bits ? 0 : 1;
  CHECK(op, small.rank == large.rank + extra, "ranks do not fit the element sizes");
  for (int32_t d = 0; d < large.rank; d++)
    CHECK(op, small.dims[d] == large.dims[d], "dimension %d differs", d);
  CHECK(op,
        !extra ||
            (large_bits % small_bits == 0 && small.dims[small.rank - 1] == large_bits / small_bits),
        "the last dimension does not fit the element sizes");
  return VT_OK;
}

vt_status vt_verify_iota(const vt_op *op) {
  vt_type out = vt_result_type(op, 0);
  int64_t dim;
  CHECK(op, out.dtype != VT_PRED && out.dtype != VT_TOKEN, "not a number type");
  return vt_verify_i64(op, VT_ATTR_IOTA_DIMENSION, 0, out.rank - 1, &dim);
}

vt_status vt_verify_reshape(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0), out = vt_result_type(op, 0);
  CHECK(op, in.dtype == out.dtype && in.dtype != VT_TOKEN, "element types differ");
  CHECK(op, vt_type_elements(in) == vt_type_elements(out),
        "operand has %" PRId64 " elements, result %" PRId64, vt_type_elements(in),
        vt_type_elements(out));
  return VT_OK;
}

vt_status vt_verify_reverse(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0);
  const int64_t *dims;
  uint32_t count;
  VT_TRY(vt_verify_dims(op, VT_ATTR_DIMENSIONS, in.rank, false, &dims, &count));
  return vt_verify_result(op, 0, in.dtype, in.rank, in.dims);
}
