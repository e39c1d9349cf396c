// SPDX-License-Identifier: Apache-2.0
// corners_test.c - the meaning of ops where it is easy to get wrong, as measured on XLA or given in
// StableHLO's specification; ordinary cases are in eltwise_test.c and kernels_test.c.
#include "eval/eval_support.h"
#include "eval/vec.h"

#define INF ((double)INFINITY)
static const double NaN = (double)NAN;

static void one_operand(vt_opcode code, vt_dtype in, numbers x, vt_dtype out, numbers want,
                        const char *what) {
  bench b = bench_new();
  int64_t n = x.count / (vt_dtype_is_complex(in) ? 2 : 1);
  operand(&b, in, 1, &n, x);
  make_one(&b, code, out, 1, &n, 0);
  finish(&b, want, 2, what);
}

static void compare_rows(vt_dtype type, int64_t direction, int64_t kind, numbers x, numbers y,
                         numbers want, const char *what) {
  bench b = bench_new();
  int64_t n = want.count;
  operand(&b, type, 1, &n, x);
  operand(&b, type, 1, &n, y);
  vt_op *op = make_one(&b, VT_OP_COMPARE, VT_PRED, 1, &n, 0);
  vt_op_set_i64(op, VT_ATTR_COMPARISON_DIRECTION, direction);
  vt_op_set_i64(op, VT_ATTR_COMPARE_TYPE, kind);
  finish(&b, want, 0, what);
}

static void complex_corners(void **state) {
  (void)state;
  one_operand(VT_OP_ABS, VT_C64, N(3e30, 4e30), VT_F32, N(5e30), "abs is hypot: no overflow");
  one_operand(VT_OP_SIGN, VT_C64, N(INF, INF), VT_C64, N(NaN, NaN), "sign of an infinite number");
  one_operand(VT_OP_SQRT, VT_C64, N(-4, -0.0), VT_C64, N(0.0, -2), "below the branch cut of sqrt");
  one_operand(VT_OP_LOG, VT_C64, N(-1, 0.0, -1, -0.0), VT_C64, N(0.0, M_PI, 0.0, -M_PI),
              "both sides of the branch cut of log");
  one_operand(VT_OP_REAL, VT_F32, N(3, -0.0), VT_F32, N(3, -0.0), "real of a real number");
  one_operand(VT_OP_IMAG, VT_F32, N(3, -1), VT_F32, N(0.0, 0.0), "imag of a real number");
  one_operand(VT_OP_CONVERT, VT_C64, N(2.75, 9, 0.0, 7), VT_F32, N(2.75, 0.0),
              "conversion drops the imaginary part");
  one_operand(VT_OP_CONVERT, VT_C64, N(2.75, 9, 0.0, 7), VT_PRED, N(1, 0),
              "conversion to bool looks at the real part");
  one_operand(VT_OP_CONVERT, VT_F32, N(2.5), VT_C64, N(2.5, 0.0), "conversion to complex");
  bench b = bench_new();
  operand(&b, VT_C64, DIMS(2), N(0.0, 0.0, 1, 5));
  operand(&b, VT_C64, DIMS(2), N(0.0, 0.0, 1, 4));
  make_one(&b, VT_OP_MINIMUM, VT_C64, DIMS(2), 0);
  finish(&b, N(0.0, 0.0, 1, 4), 0, "minimum is lexicographic");
  b = bench_new();
  operand(&b, VT_C128, DIMS(1), N(1 + 0x1p-30, 1 - 0x1p-30));
  operand(&b, VT_C128, DIMS(1), N(1 + 0x1p-30, 1 + 0x1p-30));
  make_one(&b, VT_OP_MULTIPLY, VT_C128, DIMS(1), 0);
  finish(&b, N(0x1p-29, 2 + 0x1p-29), 0, "both products round before one is taken from the other");
  b = bench_new();
  operand(&b, VT_C64, DIMS(1), N(0.0, 0.0));
  operand(&b, VT_C64, DIMS(1), N(0.0, 0.0));
  make_one(&b, VT_OP_DIVIDE, VT_C64, DIMS(1), 0);
  finish(&b, N(NaN, NaN), 0, "0 / 0");
  numbers x = N(1, 2, 1, 2, 1, 2), y = N(1, 3, 1, 2, 2, 0.0);
  compare_rows(VT_C64, VT_CMP_EQ, VT_CMPTYPE_FLOAT, x, y, N(0, 1, 0), "complex EQ");
  compare_rows(VT_C64, VT_CMP_NE, VT_CMPTYPE_FLOAT, x, y, N(1, 0, 1), "complex NE");
  compare_rows(VT_C64, VT_CMP_LT, VT_CMPTYPE_FLOAT, x, y, N(1, 0, 1), "complex LT: lexicographic");
}

// -NaN < -inf < ... < -0 < +0 < ... < inf < NaN; a NaN equals one of the same bits. And the default
// orders: floats FLOAT, signed SIGNED, unsigned and bool UNSIGNED.
static void orders(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_F32, VT_F64, VT_BF16, VT_F16};
  numbers up = N(-NaN, -INF, -1, -0.0, 0.0, 1, INF), next = N(-INF, -1, -0.0, 0.0, 1, INF, NaN);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    compare_rows(types[i], VT_CMP_LT, VT_CMPTYPE_TOTALORDER, up, next, N(1, 1, 1, 1, 1, 1, 1),
                 "total order, ascending");
    compare_rows(types[i], VT_CMP_GE, VT_CMPTYPE_TOTALORDER, up, next, N(0, 0, 0, 0, 0, 0, 0),
                 "total order, descending");
    compare_rows(types[i], VT_CMP_EQ, VT_CMPTYPE_TOTALORDER, N(NaN, -NaN, -NaN, 0.0),
                 N(NaN, -NaN, NaN, -0.0), N(1, 1, 0, 0), "total order, equal bits");
    compare_rows(types[i], VT_CMP_LT, VT_CMPTYPE_NOTYPE, N(-0.0, NaN, 1), N(0.0, 1, 2), N(0, 0, 1),
                 "floats without a comparison type");
  }
  compare_rows(VT_S8, VT_CMP_LT, VT_CMPTYPE_NOTYPE, N(-1), N(1), N(1), "signed without a type");
  compare_rows(VT_U8, VT_CMP_LT, VT_CMPTYPE_NOTYPE, N(255), N(1), N(0), "unsigned without a type");
  compare_rows(VT_PRED, VT_CMP_GT, VT_CMPTYPE_NOTYPE, N(1), N(0), N(1), "bool without a type");
  one_operand(VT_OP_IS_FINITE, VT_F4E2M1FN, N(6, 0.0), VT_PRED, N(1, 1),
              "all of a float of 4 bits");
}

static void undefined_on_bool(void **state) {
  (void)state;
  static const vt_opcode codes[] = {VT_OP_SUBTRACT, VT_OP_DIVIDE, VT_OP_REMAINDER, VT_OP_POWER};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    bench b = bench_new();
    operand(&b, VT_PRED, DIMS(1), N(1));
    operand(&b, VT_PRED, DIMS(1), N(1));
    make_one(&b, codes[i], VT_PRED, DIMS(1), 0);
    assert_false(vt_eval_supports(b.op));
    bench_free(&b);
  }
}

static void placing(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_C64, DIMS(1), N(1, -0.0));
  make_one(&b, VT_OP_BITCAST_CONVERT, VT_U64, DIMS(1), 0);
  finish(&b, N(9223372037920129024.0), 0, "a complex number is one element of double width");
  b = bench_new();
  operand(&b, VT_C64, DIMS(1), N(1, -0.0));
  make_one(&b, VT_OP_BITCAST_CONVERT, VT_U32, DIMS(1, 2), 0);
  finish(&b, N(1065353216, 2147483648.0), 0, "the real part is the low word");

  b = bench_new();
  operand(&b, VT_S32, DIMS(2), N(1, 2));
  vt_op *op = make_one(&b, VT_OP_BROADCAST, VT_S32, DIMS(3, 2), 0);
  INTS(op, BROADCAST_SIZES, 3);
  finish(&b, N(1, 2, 1, 2, 1, 2), 0, "broadcast puts dimensions in front");

  b = bench_new();
  op = make_one(&b, VT_OP_IOTA, VT_C64, DIMS(3), 0);
  vt_op_set_i64(op, VT_ATTR_IOTA_DIMENSION, 0);
  finish(&b, N(0.0, 0.0, 1, 0.0, 2, 0.0), 0, "iota of complex numbers");
  b = bench_new();
  op = make_one(&b, VT_OP_IOTA, VT_S8, DIMS(130), 0);
  vt_op_set_i64(op, VT_ATTR_IOTA_DIMENSION, 0);
  run_op(&b);
  assert_true(vt_number_load(VT_S8, b.out[0].data, 129) == -127); // iota wraps
  bench_free(&b);
}

// Windows of 2 x 1 in a 3 x 3 array; the index names the column first; window dimensions of the
// result precede the index's own.
static void gather_windows(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_S32, DIMS(3, 3), N(1, 2, 3, 4, 5, 6, 7, 8, 9));
  operand(&b, VT_S32, DIMS(2, 2), N(2, 0, 0, 9));
  vt_op *op = make_one(&b, VT_OP_GATHER, VT_S32, DIMS(2, 2), 0);
  INTS(op, OFFSET_DIMS, 0);
  INTS(op, COLLAPSED_SLICE_DIMS, 1);
  NO_INTS(op, OPERAND_BATCHING_DIMS);
  NO_INTS(op, START_INDICES_BATCHING_DIMS);
  INTS(op, START_INDEX_MAP, 1, 0);
  vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, 1);
  INTS(op, SLICE_SIZES, 2, 1);
  finish(&b, N(3, 4, 6, 7), 0, "gather: start_index_map, offset_dims, clamped start");

  b = bench_new(); // index_vector_dim is the rank of the indices: each index is a scalar
  operand(&b, VT_S32, DIMS(4), N(1, 2, 3, 4));
  operand(&b, VT_U8, DIMS(1, 3), N(3, 0, 200));
  op = make_one(&b, VT_OP_GATHER, VT_S32, DIMS(1, 3), 0);
  NO_INTS(op, OFFSET_DIMS);
  INTS(op, COLLAPSED_SLICE_DIMS, 0);
  NO_INTS(op, OPERAND_BATCHING_DIMS);
  NO_INTS(op, START_INDICES_BATCHING_DIMS);
  INTS(op, START_INDEX_MAP, 0);
  vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, 2);
  INTS(op, SLICE_SIZES, 1);
  finish(&b, N(4, 1, 4), 0, "gather: scalar indices");
}

// Windows of two elements in a row of four; no two windows overlap.
static vt_op *row_scatter(bench *b, uint32_t inputs, numbers starts, numbers updates) {
  vt_type types[2];
  int64_t n = starts.count, dims[2] = {n, 2}, index_dims[2] = {n, 1};
  for (uint32_t i = 0; i < inputs; i++) operand(b, VT_S32, DIMS(4), N(1, 2, 3, 4));
  operand(b, VT_S32, 2, index_dims, starts);
  for (uint32_t i = 0; i < inputs; i++) operand(b, VT_S32, 2, dims, updates);
  for (uint32_t i = 0; i < inputs; i++) types[i] = b->in[i].type;
  vt_op *op = make_op(b, VT_OP_SCATTER, inputs, types, 1);
  INTS(op, UPDATE_WINDOW_DIMS, 1);
  NO_INTS(op, INSERTED_WINDOW_DIMS);
  NO_INTS(op, INPUT_BATCHING_DIMS);
  NO_INTS(op, SCATTER_INDICES_BATCHING_DIMS);
  INTS(op, SCATTER_DIMS_TO_OPERAND_DIMS, 0);
  vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, 1);
  return op;
}

static void scatter_windows(void **state) {
  (void)state;
  bench b = bench_new();
  row_scatter(&b, 1, N(3, -1, 1), N(9, 9, 9, 9, 10, 20))->regions[0] =
      binary_region(&b, VT_OP_ADD, VT_S32);
  finish(&b, N(1, 12, 23, 4), 0, "a window that is partly outside is skipped whole");
  b = bench_new();
  row_scatter(&b, 1, N(0), N(10, 20))->regions[0] = binary_region(&b, VT_OP_SUBTRACT, VT_S32);
  finish(&b, N(-9, -18, 3, 4), 0, "the computation gets (current, update)");
  // Two arrays, one index: the first gets the sums, the second the first's old values.
  b = bench_new();
  vt_op *op = row_scatter(&b, 2, N(2), N(10, 20));
  vt_func *body = vt_func_create(b.module, "");
  vt_type scalar = {VT_S32, 0, NULL};
  for (int i = 0; i < 4; i++) vt_func_add_param(body, scalar);
  vt_value *pair[2] = {body->params[0], body->params[3]}, *returns[2];
  returns[0] = vt_build(body, NULL, VT_OP_ADD, &vt_loc_unknown, scalar, 2, pair);
  returns[1] = body->params[0];
  vt_func_set_returns(body, 2, returns);
  op->regions[0] = body;
  run_op(&b);
  expect_numbers(b.out[0], N(1, 2, 13, 24), 0, "scatter of several arrays");
  expect_numbers(b.out[1], N(1, 2, 3, 4), 0, "scatter of several arrays");
  bench_free(&b);
}

static void select_and_scatter_padding(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(3), N(-5, -1, -7));
  operand(&b, VT_F32, DIMS(3), N(10, 20, 30));
  operand(&b, VT_F32, SCALAR, N(0.5));
  vt_op *op = make_one(&b, VT_OP_SELECT_AND_SCATTER, VT_F32, DIMS(3), 2);
  INTS(op, WINDOW_DIMENSIONS, 2);
  INTS(op, WINDOW_STRIDES, 2);
  INTS(op, PADDING, 1, 2);
  op->regions[0] = compare_region(&b, VT_CMP_GE, VT_CMPTYPE_FLOAT, VT_F32);
  op->regions[1] = binary_region(&b, VT_OP_ADD, VT_F32);
  finish(&b, N(10.5, 20.5, 0.5), 0, "padding is never chosen; a window of padding chooses nothing");
}

// The larger value and its index; on a tie the smaller index.
static vt_func *argmax_body(bench *b) {
  vt_func *f = vt_func_create(b->module, "");
  vt_type key = {VT_F32, 0, NULL}, at = {VT_S32, 0, NULL};
  vt_value *x = vt_func_add_param(f, key), *i = vt_func_add_param(f, at),
           *y = vt_func_add_param(f, key), *j = vt_func_add_param(f, at);
  vt_value *ge = compare_in(f, VT_CMP_GE, VT_CMPTYPE_FLOAT, x, y), *returns[2];
  returns[0] = vt_build(f, NULL, VT_OP_SELECT, &vt_loc_unknown, key, 3, (vt_value *[]){ge, x, y});
  returns[1] = vt_build(f, NULL, VT_OP_SELECT, &vt_loc_unknown, at, 3, (vt_value *[]){ge, i, j});
  vt_func_set_returns(f, 2, returns);
  return f;
}

static void reductions(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(2, 3), N(1, 7, 7, -2, -9, -3));
  operand(&b, VT_S32, DIMS(2, 3), N(0, 1, 2, 0, 1, 2));
  operand(&b, VT_F32, SCALAR, N(-INF));
  operand(&b, VT_S32, SCALAR, N(-1));
  vt_type types[2] = {result_type(&b, VT_F32, DIMS(2)), result_type(&b, VT_S32, DIMS(2))};
  vt_op *op = make_op(&b, VT_OP_REDUCE, 2, types, 1);
  INTS(op, DIMENSIONS, 1);
  op->regions[0] = argmax_body(&b);
  run_op(&b);
  expect_numbers(b.out[0], N(7, -2), 0, "several arrays reduced together: values");
  expect_numbers(b.out[1], N(1, 0), 0, "several arrays reduced together: places");
  bench_free(&b);

  // bf16 values, f32 body: 256 and 256 ones are 512, which bf16 sums never reach.
  b = bench_new();
  double ones[257];
  for (int i = 0; i < 257; i++) ones[i] = i ? 1 : 256;
  operand(&b, VT_BF16, DIMS(257), (numbers){257, ones});
  operand(&b, VT_BF16, SCALAR, N(0.0));
  op = make_one(&b, VT_OP_REDUCE, VT_F32, SCALAR, 1);
  INTS(op, DIMENSIONS, 0);
  op->regions[0] = binary_region(&b, VT_OP_ADD, VT_F32);
  finish(&b, N(512), 0, "the body's type is wider: convert first");

  b = bench_new(); // a window larger than the array: no positions; windows over padding: init
  operand(&b, VT_F32, DIMS(2), N(1, 2));
  operand(&b, VT_F32, SCALAR, N(3));
  op = make_one(&b, VT_OP_REDUCE_WINDOW, VT_F32, DIMS(0), 1);
  INTS(op, WINDOW_DIMENSIONS, 3);
  INTS(op, WINDOW_STRIDES, 1);
  INTS(op, BASE_DILATIONS, 1);
  INTS(op, WINDOW_DILATIONS, 1);
  INTS(op, PADDING, 0, 0);
  op->regions[0] = binary_region(&b, VT_OP_ADD, VT_F32);
  finish(&b, NONE, 0, "a window that does not fit");
}

static void set_contraction(vt_op *op, int64_t lhs, int64_t rhs) {
  NO_INTS(op, LHS_BATCHING_DIMENSIONS);
  NO_INTS(op, RHS_BATCHING_DIMENSIONS);
  vt_op_set_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, lhs >= 0, &lhs);
  vt_op_set_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, rhs >= 0, &rhs);
  INTS(op, PRECISION_CONFIG, 0, 0);
}

static void contractions(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(2), N(1, 2));
  operand(&b, VT_F32, DIMS(3), N(10, 20, 30));
  set_contraction(make_one(&b, VT_OP_DOT_GENERAL, VT_F32, DIMS(2, 3), 0), -1, -1);
  finish(&b, N(10, 20, 30, 20, 40, 60), 0, "nothing contracted: outer product");
  b = bench_new();
  operand(&b, VT_F32, DIMS(2, 0), NONE);
  operand(&b, VT_F32, DIMS(0, 1), NONE);
  set_contraction(make_one(&b, VT_OP_DOT_GENERAL, VT_F32, DIMS(2, 1), 0), 1, 0);
  finish(&b, N(0.0, 0.0), 0, "a contraction over size 0");
  b = bench_new();
  operand(&b, VT_BF16, DIMS(2), N(1, 2));
  operand(&b, VT_F32, DIMS(2), N(3, 0.5));
  set_contraction(make_one(&b, VT_OP_DOT_GENERAL, VT_F32, SCALAR, 0), 0, 0);
  finish(&b, N(4), 0, "operands of different types");
  b = bench_new();
  operand(&b, VT_S32, DIMS(2), N(1, 2));
  operand(&b, VT_S32, DIMS(2, 2), N(1, 2, 3, 4));
  INTS(make_one(&b, VT_OP_DOT, VT_S32, DIMS(2), 0), PRECISION_CONFIG, 0, 0);
  finish(&b, N(7, 10), 0, "dot of a vector");

  // Input [features][batch][width], kernel [width][out][in], result [width][batch][features].
  b = bench_new();
  operand(&b, VT_F32, DIMS(2, 1, 3), N(1, 2, 3, 10, 20, 30));
  operand(&b, VT_F32, DIMS(2, 1, 2), N(1, 2, 100, 200));
  vt_op *op = make_one(&b, VT_OP_CONVOLUTION, VT_F32, DIMS(2, 1, 1), 0);
  INTS(op, WINDOW_STRIDES, 1);
  INTS(op, LHS_DILATION, 1);
  INTS(op, RHS_DILATION, 1);
  INTS(op, PADDING, 0, 0);
  INTS(op, WINDOW_REVERSAL, 0);
  vt_op_set_i64(op, VT_ATTR_INPUT_BATCH_DIMENSION, 1);
  vt_op_set_i64(op, VT_ATTR_INPUT_FEATURE_DIMENSION, 0);
  INTS(op, INPUT_SPATIAL_DIMENSIONS, 2);
  vt_op_set_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 1);
  vt_op_set_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 2);
  INTS(op, KERNEL_SPATIAL_DIMENSIONS, 0);
  vt_op_set_i64(op, VT_ATTR_OUTPUT_BATCH_DIMENSION, 1);
  vt_op_set_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION, 2);
  INTS(op, OUTPUT_SPATIAL_DIMENSIONS, 0);
  vt_op_set_i64(op, VT_ATTR_FEATURE_GROUP_COUNT, 1);
  vt_op_set_i64(op, VT_ATTR_BATCH_GROUP_COUNT, 1);
  INTS(op, PRECISION_CONFIG, 0, 0);
  finish(&b, N(4221, 6342), 0, "dimension numbers of a convolution are free");
}

static void transforms(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_C64, DIMS(2, 2), N(1, 0.0, 2, 0.0, 3, 0.0, 4, 0.0));
  vt_op *op = make_one(&b, VT_OP_FFT, VT_C64, DIMS(2, 2), 0);
  vt_op_set_i64(op, VT_ATTR_FFT_TYPE, VT_FFT_FFT);
  INTS(op, FFT_LENGTH, 2, 2);
  finish(&b, N(10, 0.0, -2, 0.0, -4, 0.0, 0.0, 0.0), 4, "fft over two dimensions");
  b = bench_new();
  operand(&b, VT_C64, DIMS(2, 2), N(10, 0.0, -2, 0.0, -4, 0.0, 0.0, 0.0));
  op = make_one(&b, VT_OP_FFT, VT_C64, DIMS(2, 2), 0);
  vt_op_set_i64(op, VT_ATTR_FFT_TYPE, VT_FFT_IFFT);
  INTS(op, FFT_LENGTH, 2, 2);
  finish(&b, N(1, 0.0, 2, 0.0, 3, 0.0, 4, 0.0), 4, "the inverse divides by the product");

  b = bench_new(); // a^H x = b with a = [i 99; 0 1] stored as upper
  operand(&b, VT_C64, DIMS(2, 2), N(0.0, 1, 1, 0.0, 99, 99, 1, 0.0));
  operand(&b, VT_C64, DIMS(2, 1), N(1, 0.0, 2, 0.0));
  op = make_one(&b, VT_OP_TRIANGULAR_SOLVE, VT_C64, DIMS(2, 1), 0);
  vt_op_set_i64(op, VT_ATTR_LEFT_SIDE, 1);
  vt_op_set_i64(op, VT_ATTR_LOWER, 0);
  vt_op_set_i64(op, VT_ATTR_UNIT_DIAGONAL, 0);
  vt_op_set_i64(op, VT_ATTR_TRANSPOSE_A, VT_ADJOINT);
  finish(&b, N(0.0, 1, 2, -1), 4, "triangular_solve with the adjoint");
}

// ---- c64 goes through f64 where that is quick: as c128, whatever the neighbours are.

static const double parts[] = {0.0, -0.0, 1, -1, 2.5, -3, 12, 1e-5, -7, INF, -INF, NAN};
enum { PARTS = sizeof parts / sizeof *parts, NUMBERS = PARTS * PARTS, PAIRS = NUMBERS * NUMBERS };

// Of two parts of one number, or two real numbers. f32 over- and underflows where c128 does not.
static bool like_wide(const float *got, const double *want, int count) {
  double size = fabs(want[0]) + (count > 1 ? fabs(want[1]) : 0);
  if (isfinite(size) && !(size < 1e37 && size > 1e-37)) return true;
  for (int i = 0; i < count; i++) {
    double g = (double)got[i], w = want[i];
    if (!((g != g && w != w) || g == w || fabs(g - w) <= 3e-5 * size)) return false;
  }
  return true;
}

static void check_quick(vt_opcode code, float *const *in, double *const *wide) {
  int count = code == VT_OP_ABS ? 1 : 2;
  float *got = calloc(2 * PAIRS, sizeof *got);
  double *want = calloc(2 * PAIRS, sizeof *want);
  vt_vec_op(VT_VEC_C64, code)(PAIRS, in[0], in[1], NULL, got, 0);
  vt_vec_op(VT_VEC_C128, code)(PAIRS, wide[0], wide[1], NULL, want, 0);
  for (int i = 0; i < PAIRS; i++)
    if (!like_wide(got + count * i, want + count * i, count))
      fail_msg("%s of %g + %gi, %g + %gi: %g, wide %g", vt_op_short_name(code), wide[0][2 * i],
               wide[0][2 * i + 1], wide[1][2 * i], wide[1][2 * i + 1], (double)got[count * i],
               want[count * i]);
  free(got);
  free(want);
}

static void quick_complex_numbers(void **state) {
  (void)state;
  static const vt_opcode codes[] = {VT_OP_DIVIDE, VT_OP_TANH, VT_OP_ABS, VT_OP_POWER,
                                    VT_OP_MULTIPLY};
  float *in[2];
  double *wide[2];
  for (int k = 0; k < 2; k++) {
    in[k] = calloc(2 * PAIRS, sizeof *in[k]);
    wide[k] = calloc(2 * PAIRS, sizeof *wide[k]);
    for (int i = 0; i < 2 * PAIRS; i++) {
      int number = k ? i / 2 / NUMBERS : i / 2 % NUMBERS;
      in[k][i] = (float)parts[i % 2 ? number / PARTS : number % PARTS];
      wide[k][i] = (double)in[k][i];
    }
  }
  for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) check_quick(codes[c], in, wide);
  for (int k = 0; k < 2; k++) {
    free(in[k]);
    free(wide[k]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(complex_corners),
      cmocka_unit_test(orders),
      cmocka_unit_test(undefined_on_bool),
      cmocka_unit_test(placing),
      cmocka_unit_test(gather_windows),
      cmocka_unit_test(scatter_windows),
      cmocka_unit_test(select_and_scatter_padding),
      cmocka_unit_test(reductions),
      cmocka_unit_test(contractions),
      cmocka_unit_test(transforms),
      cmocka_unit_test(quick_complex_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
