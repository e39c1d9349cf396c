// SPDX-License-Identifier: Apache-2.0
// gen_library.c - linear algebra, Fourier transforms, random bits.
#include "gen_makers.h"

static vt_type square(gen *g, vt_dtype dtype, int64_t n) {
  int64_t dims[3] = {gen_between(g, 1, 3), n, n};
  return gen_chance(g, 40) ? gen_type(g, dtype, 3, dims) : gen_type(g, dtype, 2, dims + 1);
}

// The other triangle of a factor is implementation-defined, so it is masked.
static void mask_triangle(gen *g, vt_value *factor, bool lower) {
  vt_type type = factor->type, index = gen_retyped(g, type, VT_S32);
  vt_value *place[2];
  for (int i = 0; i < 2; i++) {
    vt_op *op = gen_op(g, VT_OP_IOTA, 0, NULL, 1, &index, 0);
    vt_op_set_i64(op, VT_ATTR_IOTA_DIMENSION, type.rank - 2 + i);
    place[i] = &op->results[0];
  }
  vt_type mask = gen_retyped(g, type, VT_PRED);
  vt_op *op = gen_op(g, VT_OP_COMPARE, 2, place, 1, &mask, 0);
  vt_op_set_i64(op, VT_ATTR_COMPARISON_DIRECTION, lower ? VT_CMP_GE : VT_CMP_LE);
  vt_op_set_i64(op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_SIGNED);
  vt_value *choice[3] = {&op->results[0], factor, gen_splat(g, type, 0)};
  gen_done(g, gen_op(g, VT_OP_SELECT, 3, choice, 1, &type, 0), true, false);
}

bool gen_cholesky(gen *g, const gen_row *row) {
  vt_type type = square(g, gen_dtype(g, row->dtypes), gen_between(g, 1, 12));
  vt_value *x = gen_leaf(g, type, VALUE_DEFINITE);
  bool lower = gen_chance(g, 50);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  vt_op_set_i64(op, VT_ATTR_LOWER, lower);
  mask_triangle(g, &op->results[0], lower);
  return true;
}

bool gen_triangular_solve(gen *g, const gen_row *row) {
  vt_dtype dtype = gen_dtype(g, row->dtypes);
  int64_t n = gen_between(g, 1, 9), dims[3];
  vt_type a = square(g, dtype, n);
  bool left = gen_chance(g, 50);
  for (int32_t d = 0; d < a.rank; d++) dims[d] = a.dims[d];
  dims[a.rank - (left ? 1 : 2)] = gen_between(g, 1, 6);
  vt_value *x[2] = {gen_leaf(g, a, VALUE_DEFINITE),
                    gen_leaf(g, gen_type(g, dtype, a.rank, dims), VALUE_SMOOTH)};
  bool complex = vt_dtype_is_complex(dtype), unit = n <= 3 && gen_chance(g, 40);
  vt_op *op = gen_op(g, row->code, 2, x, 1, &x[1]->type, 0);
  vt_op_set_i64(op, VT_ATTR_LEFT_SIDE, left);
  vt_op_set_i64(op, VT_ATTR_LOWER, gen_chance(g, 50));
  vt_op_set_i64(op, VT_ATTR_UNIT_DIAGONAL, unit);
  vt_op_set_i64(op, VT_ATTR_TRANSPOSE_A,
                gen_between(g, VT_NO_TRANSPOSE, complex ? VT_ADJOINT : VT_TRANSPOSE));
  gen_done(g, op, true, false);
  return true;
}

bool gen_fft(gen *g, const gen_row *row) {
  vt_dtype dtype = gen_dtype(g, row->dtypes), real = dtype == VT_C64 ? VT_F32 : VT_F64;
  int64_t kind = gen_between(g, VT_FFT_FFT, VT_FFT_IRFFT), in[4], out[4], length[3];
  int32_t rank = (int32_t)gen_between(g, 1, 3), count = (int32_t)gen_between(g, 1, rank);
  for (int32_t d = 0; d < rank; d++) {
    in[d] = out[d] = gen_between(g, 1, d + count >= rank ? (count > 1 ? 9 : 40) : 4);
    if (d + count < rank) continue;
    length[d - (rank - count)] = in[d];
    if (d == rank - 1 && kind == VT_FFT_RFFT) out[d] = in[d] / 2 + 1;
    if (d == rank - 1 && kind == VT_FFT_IRFFT) in[d] = in[d] / 2 + 1;
  }
  vt_value *x =
      gen_leaf(g, gen_type(g, kind == VT_FFT_RFFT ? real : dtype, rank, in), VALUE_SMOOTH);
  vt_type type = gen_type(g, kind == VT_FFT_IRFFT ? real : dtype, rank, out);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  vt_op_set_i64(op, VT_ATTR_FFT_TYPE, kind);
  vt_op_set_ints(op, VT_ATTR_FFT_LENGTH, (uint32_t)count, length);
  gen_done(g, op, true, false);
  return true;
}

bool gen_rng_bit_generator(gen *g, const gen_row *row) {
  int64_t algorithm = gen_chance(g, 50) ? VT_RNG_THREE_FRY : VT_RNG_PHILOX;
  int64_t words = algorithm == VT_RNG_THREE_FRY ? 2 : gen_between(g, 2, 3);
  vt_value *state = gen_of(g, gen_type(g, VT_U64, 1, &words), PICK_EXACT);
  vt_type types[2] = {state->type, gen_shape(g, gen_dtype(g, row->dtypes))};
  vt_op *op = gen_op(g, row->code, 1, &state, 2, types, 0);
  vt_op_set_i64(op, VT_ATTR_RNG_ALGORITHM, algorithm);
  gen_done(g, op, false, false);
  return true;
}
