// SPDX-License-Identifier: Apache-2.0
// verify_library.c - linear algebra, Fourier transforms, random numbers.
#include <inttypes.h>

#include "ir/verify.h"

static vt_status verify_square(const vt_op *op, vt_type a) {
  CHECK(op, vt_dtype_is_float(a.dtype) || vt_dtype_is_complex(a.dtype),
        "not defined for element type %s", vt_dtype_get(a.dtype)->text);
  CHECK(op, a.rank >= 2 && a.dims[a.rank - 1] == a.dims[a.rank - 2],
        "the operand is not a batch of square matrices");
  return VT_OK;
}

vt_status vt_verify_triangular_solve(const vt_op *op) {
  vt_type a = vt_operand_type(op, 0), b = vt_operand_type(op, 1);
  int64_t left, value;
  VT_TRY(verify_square(op, a));
  VT_TRY(vt_verify_i64(op, VT_ATTR_LEFT_SIDE, 0, 1, &left));
  VT_TRY(vt_verify_i64(op, VT_ATTR_LOWER, 0, 1, &value));
  VT_TRY(vt_verify_i64(op, VT_ATTR_UNIT_DIAGONAL, 0, 1, &value));
  VT_TRY(vt_verify_i64(op, VT_ATTR_TRANSPOSE_A, VT_NO_TRANSPOSE, VT_ADJOINT, &value));
  CHECK(op, a.dtype == b.dtype && a.rank == b.rank, "operands differ in rank or element type");
  for (int32_t d = 0; d < a.rank - 2; d++)
    CHECK(op, a.dims[d] == b.dims[d], "batch dimension %d differs", d);
  CHECK(op, b.dims[b.rank - (left ? 2 : 1)] == a.dims[a.rank - 1],
        "the sizes of a and b do not fit");
  return vt_verify_result(op, 0, b.dtype, b.rank, b.dims);
}

vt_status vt_verify_fft(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0);
  const vt_attr *length = vt_op_attr(op, VT_ATTR_FFT_LENGTH);
  int64_t type, dims[VT_MAX_RANK];
  VT_TRY(vt_verify_i64(op, VT_ATTR_FFT_TYPE, VT_FFT_FFT, VT_FFT_IRFFT, &type));
  CHECK(op, length && length->count >= 1 && length->count <= 3 && (int32_t)length->count <= in.rank,
        "fft_length has a wrong number of entries");
  bool real_in = type == VT_FFT_RFFT, real_out = type == VT_FFT_IRFFT;
  vt_dtype want = real_in ? (vt_result_type(op, 0).dtype == VT_C64 ? VT_F32 : VT_F64)
                          : (real_out ? (vt_result_type(op, 0).dtype == VT_F32 ? VT_C64 : VT_C128)
                                      : vt_result_type(op, 0).dtype);
  CHECK(op, in.dtype == want && (real_in || vt_dtype_is_complex(in.dtype)),
        "element types do not fit the fft type");
  int32_t first = in.rank - (int32_t)length->count;
  for (int32_t d = 0; d < in.rank; d++) {
    dims[d] = in.dims[d];
    if (d < first) continue;
    int64_t n = length->ints[d - first];
    bool last = d == in.rank - 1;
    CHECK(op, n >= 0, "fft_length holds %" PRId64, n);
    int64_t half = n ? n / 2 + 1 : 0;
    CHECK(op, in.dims[d] == (real_out && last ? half : n), "dimension %d does not fit fft_length",
          d);
    if (real_in && last) dims[d] = half;
    if (real_out && last) dims[d] = n;
  }
  return vt_verify_result(op, 0, vt_result_type(op, 0).dtype, in.rank, dims);
}

vt_status vt_verify_rng_bit_generator(const vt_op *op) {
  vt_type state = vt_operand_type(op, 0), bits = vt_result_type(op, 1);
  int64_t algorithm;
  VT_TRY(vt_verify_i64(op, VT_ATTR_RNG_ALGORITHM, VT_RNG_DEFAULT, VT_RNG_PHILOX, &algorithm));
  CHECK(op, state.rank == 1 && state.dtype == VT_U64, "the state is not a vector of ui64");
  CHECK(op, state.dims[0] == 2 || (state.dims[0] == 3 && algorithm != VT_RNG_THREE_FRY),
        "a state of %" PRId64 " words does not fit the algorithm", state.dims[0]);
  CHECK(op, vt_dtype_is_integer(bits.dtype) || vt_dtype_is_float(bits.dtype),
        "result of element type %s", vt_dtype_get(bits.dtype)->text);
  return vt_verify_result(op, 0, state.dtype, 1, state.dims);
}

vt_status vt_verify_rng(const vt_op *op) {
  vt_type a = vt_operand_type(op, 0), b = vt_operand_type(op, 1), shape = vt_operand_type(op, 2);
  int64_t distribution;
  VT_TRY(
      vt_verify_i64(op, VT_ATTR_RNG_DISTRIBUTION, VT_DIST_UNIFORM, VT_DIST_NORMAL, &distribution));
  CHECK(op, !a.rank && !b.rank && a.dtype == b.dtype && a.dtype == vt_result_type(op, 0).dtype,
        "bounds are not scalars of the result's type");
  CHECK(op, shape.rank == 1 && shape.dims[0] == vt_result_type(op, 0).rank,
        "the shape operand does not fit the result");
  return VT_OK;
}

vt_status vt_verify_cholesky(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0);
  int64_t lower;
  VT_TRY(verify_square(op, in));
  VT_TRY(vt_verify_i64(op, VT_ATTR_LOWER, 0, 1, &lower));
  return vt_verify_result(op, 0, in.dtype, in.rank, in.dims);
}
