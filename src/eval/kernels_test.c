// SPDX-License-Identifier: Apache-2.0
// kernels_test.c - structured ops: small programs with known answers, including each op's corner
// cases.
#include "eval/eval_support.h"

#define INF ((double)INFINITY)
static const double NaN = (double)NAN;

static void shapes(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_S32, DIMS(2), N(1, 2));
  vt_op *op = make_one(&b, VT_OP_BROADCAST_IN_DIM, VT_S32, DIMS(2, 3), 0);
  INTS(op, BROADCAST_DIMENSIONS, 0);
  finish(&b, N(1, 1, 1, 2, 2, 2), 0, "broadcast_in_dim");

  b = bench_new();
  operand(&b, VT_F64, DIMS(1, 2), N(1, 2));
  op = make_one(&b, VT_OP_BROADCAST_IN_DIM, VT_F64, DIMS(2, 2), 0);
  INTS(op, BROADCAST_DIMENSIONS, 1, 0);
  finish(&b, N(1, 1, 2, 2), 0, "broadcast_in_dim swaps and expands");

  b = bench_new();
  operand(&b, VT_S8, DIMS(2, 3), N(1, 2, 3, 4, 5, 6));
  op = make_one(&b, VT_OP_TRANSPOSE, VT_S8, DIMS(3, 2), 0);
  INTS(op, PERMUTATION, 1, 0);
  finish(&b, N(1, 4, 2, 5, 3, 6), 0, "transpose");

  b = bench_new();
  operand(&b, VT_S32, DIMS(2, 3), N(1, 2, 3, 4, 5, 6));
  op = make_one(&b, VT_OP_REVERSE, VT_S32, DIMS(2, 3), 0);
  INTS(op, DIMENSIONS, 0, 1);
  finish(&b, N(6, 5, 4, 3, 2, 1), 0, "reverse");

  b = bench_new();
  operand(&b, VT_S32, DIMS(7), N(0, 1, 2, 3, 4, 5, 6));
  op = make_one(&b, VT_OP_SLICE, VT_S32, DIMS(3), 0);
  INTS(op, START_INDICES, 1);
  INTS(op, LIMIT_INDICES, 6);
  INTS(op, STRIDES, 2);
  finish(&b, N(1, 3, 5), 0, "slice");

  b = bench_new();
  operand(&b, VT_S32, DIMS(0), NONE);
  operand(&b, VT_S32, DIMS(2), N(1, 2));
  operand(&b, VT_S32, DIMS(1), N(3));
  op = make_one(&b, VT_OP_CONCATENATE, VT_S32, DIMS(3), 0);
  vt_op_set_i64(op, VT_ATTR_DIMENSION, 0);
  finish(&b, N(1, 2, 3), 0, "concatenate with an empty part");

  b = bench_new();
  op = make_one(&b, VT_OP_IOTA, VT_BF16, DIMS(259), 0);
  vt_op_set_i64(op, VT_ATTR_IOTA_DIMENSION, 0);
  run_op(&b);
  assert_true(vt_number_load(VT_BF16, b.out[0].data, 257) == 256);
  assert_true(vt_number_load(VT_BF16, b.out[0].data, 258) == 258);
  bench_free(&b);

  b = bench_new();
  op = make_one(&b, VT_OP_IOTA, VT_S4, DIMS(2, 10), 0);
  vt_op_set_i64(op, VT_ATTR_IOTA_DIMENSION, 1);
  finish(&b, N(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, 0, 1, 2, 3, 4, 5, 6, 7, -8, -7), 0, "iota wraps");
}

static void pads(void **state) {
  (void)state;
  static const struct {
    int64_t low, high, interior, size;
    double want[12];
  } rows[] = {
      {1, 1, 1, 7, {9, 1, 9, 2, 9, 3, 9}}, {-1, -1, 0, 1, {2}},   {-1, 1, 1, 5, {9, 2, 9, 3, 9}},
      {-2, 0, 2, 5, {9, 2, 9, 9, 3}},      {3, -4, 0, 2, {9, 9}}, {0, -3, 0, 0, {0}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, VT_S32, DIMS(3), N(1, 2, 3));
    operand(&b, VT_S32, SCALAR, N(9));
    vt_op *op = make_one(&b, VT_OP_PAD, VT_S32, 1, &rows[i].size, 0);
    INTS(op, EDGE_PADDING_LOW, rows[i].low);
    INTS(op, EDGE_PADDING_HIGH, rows[i].high);
    INTS(op, INTERIOR_PADDING, rows[i].interior);
    finish(&b, (numbers){rows[i].size, rows[i].want}, 0, "pad");
  }
}

// Large transposes and strided moves compared with index arithmetic.
static void moves(void **state) {
  (void)state;
  enum { A = 37, B = 5, C = 41 };
  static double values[A * B * C], want[A * B * C];
  for (int i = 0; i < A * B * C; i++) values[i] = i % 251;
  int64_t permutations[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  int64_t dims[3] = {A, B, C};
  static const vt_dtype types[] = {VT_U8, VT_S16, VT_F32, VT_F64};
  for (int p = 0; p < 6; p++)
    for (int t = 0; t < 4; t++) {
      int64_t out[3], at[3];
      for (int d = 0; d < 3; d++) out[d] = dims[permutations[p][d]];
      int n = 0;
      for (at[permutations[p][0]] = 0; at[permutations[p][0]] < out[0]; at[permutations[p][0]]++)
        for (at[permutations[p][1]] = 0; at[permutations[p][1]] < out[1]; at[permutations[p][1]]++)
          for (at[permutations[p][2]] = 0; at[permutations[p][2]] < out[2];
               at[permutations[p][2]]++)
            want[n++] = values[(at[0] * B + at[1]) * C + at[2]];
      bench b = bench_new();
      operand(&b, types[t], 3, dims, (numbers){n, values});
      vt_op *op = make_one(&b, VT_OP_TRANSPOSE, types[t], 3, out, 0);
      vt_op_set_ints(op, VT_ATTR_PERMUTATION, 3, permutations[p]);
      finish(&b, (numbers){n, want}, 0, "transpose");
    }
}

static void dynamic_slices(void **state) {
  (void)state;
  static const struct {
    vt_dtype type;
    double start, want;
  } rows[] = {{VT_S32, 1, 1},
              {VT_S32, -5, 0},
              {VT_S32, 100, 3},
              {VT_U32, 4294967295.0, 3},
              {VT_U8, 200, 3}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, VT_S32, DIMS(5), N(0, 1, 2, 3, 4));
    operand(&b, rows[i].type, SCALAR, (numbers){1, &rows[i].start});
    vt_op *op = make_one(&b, VT_OP_DYNAMIC_SLICE, VT_S32, DIMS(2), 0);
    INTS(op, SLICE_SIZES, 2);
    finish(&b, N(rows[i].want, rows[i].want + 1), 0, "dynamic_slice");
  }
  bench b = bench_new();
  operand(&b, VT_S32, DIMS(2, 3), N(0, 0, 0, 0, 0, 0));
  operand(&b, VT_S32, DIMS(1, 2), N(7, 8));
  operand(&b, VT_S32, SCALAR, N(9));
  operand(&b, VT_S32, SCALAR, N(1));
  make_one(&b, VT_OP_DYNAMIC_UPDATE_SLICE, VT_S32, DIMS(2, 3), 0);
  assert_true(vt_eval_in_place_ok(b.op, 0, 0));
  finish(&b, N(0, 0, 0, 0, 7, 8), 0, "dynamic_update_slice");
}

static vt_op *gather(bench *b, numbers indices, int64_t n) {
  operand(b, VT_S32, DIMS(3, 2), N(1, 2, 3, 4, 5, 6));
  operand(b, VT_S32, 1, &n, indices);
  int64_t dims[2] = {n, 2};
  vt_op *op = make_one(b, VT_OP_GATHER, VT_S32, 2, dims, 0);
  INTS(op, OFFSET_DIMS, 1);
  INTS(op, COLLAPSED_SLICE_DIMS, 0);
  NO_INTS(op, OPERAND_BATCHING_DIMS);
  NO_INTS(op, START_INDICES_BATCHING_DIMS);
  INTS(op, START_INDEX_MAP, 0);
  vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, 1);
  INTS(op, SLICE_SIZES, 1, 2);
  return op;
}

static void gathers(void **state) {
  (void)state;
  bench b = bench_new();
  gather(&b, N(2, 0, -1, 9), 4);
  finish(&b, N(5, 6, 1, 2, 1, 2, 5, 6), 0, "gather clamps");

  // Batching dimensions: result[b, i] = operand[b, index[b, i]]
  b = bench_new();
  operand(&b, VT_F32, DIMS(2, 3), N(1, 2, 3, 4, 5, 6));
  operand(&b, VT_S64, DIMS(2, 2, 1), N(0, 2, 1, 1));
  vt_op *op = make_one(&b, VT_OP_GATHER, VT_F32, DIMS(2, 2), 0);
  NO_INTS(op, OFFSET_DIMS);
  INTS(op, COLLAPSED_SLICE_DIMS, 1);
  INTS(op, OPERAND_BATCHING_DIMS, 0);
  INTS(op, START_INDICES_BATCHING_DIMS, 0);
  INTS(op, START_INDEX_MAP, 1);
  vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, 2);
  INTS(op, SLICE_SIZES, 1, 1);
  finish(&b, N(1, 3, 5, 5), 0, "gather with batching dims");
}

static vt_op *scatter(bench *b, vt_dtype type, numbers indices, numbers updates, vt_func *body) {
  int64_t n = indices.count, dims[2] = {n, 2};
  operand(b, type, DIMS(3, 2), N(1, 2, 3, 4, 5, 6));
  operand(b, VT_S32, 1, &n, indices);
  operand(b, type, 2, dims, updates);
  vt_op *op = make_one(b, VT_OP_SCATTER, type, DIMS(3, 2), 1);
  INTS(op, UPDATE_WINDOW_DIMS, 1);
  INTS(op, INSERTED_WINDOW_DIMS, 0);
  NO_INTS(op, INPUT_BATCHING_DIMS);
  NO_INTS(op, SCATTER_INDICES_BATCHING_DIMS);
  INTS(op, SCATTER_DIMS_TO_OPERAND_DIMS, 0);
  vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, 1);
  op->regions[0] = body;
  return op;
}

static void scatters(void **state) {
  (void)state;
  bench b = bench_new();
  scatter(&b, VT_S32, N(0, 0, -1, 3), N(10, 20, 1, 2, 7, 7, 7, 7),
          binary_region(&b, VT_OP_ADD, VT_S32));
  finish(&b, N(12, 24, 3, 4, 5, 6), 0, "scatter adds, skips what is outside");

  b = bench_new();
  vt_func *set = vt_func_create(b.module, "");
  vt_func_add_param(set, (vt_type){VT_F32, 0, NULL});
  vt_func_add_param(set, (vt_type){VT_F32, 0, NULL});
  vt_func_set_returns(set, 1, &set->params[1]);
  scatter(&b, VT_F32, N(2, 2), N(7, 8, 9, 10), set);
  finish(&b, N(1, 2, 3, 4, 9, 10), 0, "scatter: later updates win");

  b = bench_new();
  scatter(&b, VT_BF16, N(1), N(0.5, 4), binary_region(&b, VT_OP_MAXIMUM, VT_BF16));
  finish(&b, N(1, 2, 3, 4, 5, 6), 0, "scatter of bf16");
}

static void dots(void **state) {
  (void)state;
  const struct {
    vt_dtype in, out;
    bool exact, high;
    numbers x, y, want;
    const char *why;
  } rows[] = {
      {VT_F32, VT_F32, true, false, N(257, 1, 0, 1), N(1, 0, 1, 2), N(258, 2, 1, 2), "f32"},
      {VT_F32, VT_F32, false, false, N(257, 1, 0, 1), N(1, 0, 1, 2), N(257, 2, 1, 2),
       "operands rounded to bf16"},
      {VT_F32, VT_F32, false, true, N(257, 1, 0, 1), N(1, 0, 1, 2), N(258, 2, 1, 2), "HIGHEST"},
      {VT_S8, VT_S32, true, false, N(100, 100, 1, 0), N(100, 0, 100, 1), N(20000, 100, 100, 0),
       "widens"},
      {VT_S8, VT_S8, true, false, N(100, 100, 1, 0), N(100, 0, 100, 1), N(32, 100, 100, 0),
       "wraps"},
      {VT_BF16, VT_F32, false, false, N(1, 1, 0, 1), N(256, 0, 1, 2), N(257, 2, 1, 2), "f32 sums"},
      {VT_BF16, VT_BF16, false, false, N(1, 1, 0, 1), N(256, 0, 1, 2), N(256, 2, 1, 2),
       "rounded once"},
      {VT_F64, VT_F64, false, false, N(1, 1e-12, 0, 1), N(1, 0, 1, 2), N(1 + 1e-12, 2e-12, 1, 2),
       "f64 is never rounded"},
      {VT_PRED, VT_PRED, false, false, N(1, 1, 0, 0), N(1, 0, 1, 0), N(1, 0, 0, 0), "or of ands"},
      {VT_U64, VT_U64, false, false, N(1, 2, 3, 4), N(5, 6, 7, 8), N(19, 22, 43, 50), "64 bits"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    b.env.exact_dots = rows[i].exact;
    operand(&b, rows[i].in, DIMS(2, 2), rows[i].x);
    operand(&b, rows[i].in, DIMS(2, 2), rows[i].y);
    vt_op *op = make_one(&b, VT_OP_DOT_GENERAL, rows[i].out, DIMS(2, 2), 0);
    NO_INTS(op, LHS_BATCHING_DIMENSIONS);
    NO_INTS(op, RHS_BATCHING_DIMENSIONS);
    INTS(op, LHS_CONTRACTING_DIMENSIONS, 1);
    INTS(op, RHS_CONTRACTING_DIMENSIONS, 0);
    INTS(op, PRECISION_CONFIG, rows[i].high ? VT_PRECISION_HIGHEST : 0, 0);
    finish(&b, rows[i].want, 0, rows[i].why);
  }
}

// Shapes around the tile sizes, batches, transposed sides and matrix times vector, compared with
// three nested loops.
static void dot_shapes(void **state) {
  (void)state;
  static const int64_t sizes[][4] = {{1, 1, 1, 1},   {2, 3, 5, 7},    {1, 1, 300, 1},
                                     {1, 65, 1, 33}, {3, 70, 259, 1}, {1, 1, 40, 65},
                                     {2, 33, 0, 3},  {1, 17, 513, 34}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int flip = 0; flip < 4; flip++)
      for (int type = 0; type < 3; type++) {
        int64_t g = sizes[s][0], m = sizes[s][1], k = sizes[s][2], n = sizes[s][3];
        vt_dtype dtype = type == 0 ? VT_F32 : type == 1 ? VT_S32 : VT_F64;
        double *x = calloc((size_t)(g * m * k) + 1, 8), *y = calloc((size_t)(g * k * n) + 1, 8);
        double *want = calloc((size_t)(g * m * n) + 1, 8);
        for (int64_t i = 0; i < g * m * k; i++) x[i] = (double)(i * 7 % 11) - 5;
        for (int64_t i = 0; i < g * k * n; i++) y[i] = (double)(i * 5 % 13) - 6;
        bool fx = flip & 1, fy = flip & 2;
        for (int64_t a = 0; a < g; a++)
          for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
              for (int64_t p = 0; p < k; p++)
                want[(a * m + i) * n + j] += x[a * m * k + (fx ? p * m + i : i * k + p)] *
                                             y[a * k * n + (fy ? j * k + p : p * n + j)];
        for (int64_t i = 0; i < g * m * n; i++) want[i] += 0.0;
        bench b = bench_new();
        int64_t xd[3] = {g, fx ? k : m, fx ? m : k}, yd[3] = {g, fy ? n : k, fy ? k : n},
                zd[3] = {g, m, n};
        operand(&b, dtype, 3, xd, (numbers){g * m * k, x});
        operand(&b, dtype, 3, yd, (numbers){g * k * n, y});
        vt_op *op = make_one(&b, VT_OP_DOT_GENERAL, dtype, 3, zd, 0);
        INTS(op, LHS_BATCHING_DIMENSIONS, 0);
        INTS(op, RHS_BATCHING_DIMENSIONS, 0);
        INTS(op, LHS_CONTRACTING_DIMENSIONS, fx ? 1 : 2);
        INTS(op, RHS_CONTRACTING_DIMENSIONS, fy ? 2 : 1);
        INTS(op, PRECISION_CONFIG, 0, 0);
        finish(&b, (numbers){g * m * n, want}, 1e-6, "dot_general");
        free(x);
        free(y);
        free(want);
      }
}

// Which f32 dots round their operands: 257 is 256 in bf16.
static void dot_rounding(void **state) {
  (void)state;
  static const struct {
    int64_t g, m, k, n;
    bool rounds;
    const char *why;
  } rows[] = {
      {1, 2, 2, 2, true, "a matrix product"},
      {3, 2, 2, 2, true, "a batch of them"},
      {1, 1, 4, 1, false, "vector times vector"},
      {1, 3, 4, 1, false, "matrix times vector"},
      {1, 1, 4, 3, false, "vector times matrix"},
      {5, 3, 4, 1, false, "a batch of matrix times vector"},
      {1, 3, 1, 3, false, "nothing to sum"},
  };
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    int64_t g = rows[r].g, m = rows[r].m, k = rows[r].k, n = rows[r].n;
    double x[64], y[64], want[64];
    for (int i = 0; i < 64; i++) {
      x[i] = 257;
      y[i] = 1;
      want[i] = (double)k * (rows[r].rounds ? 256 : 257);
    }
    bench b = bench_new();
    b.env.exact_dots = false;
    int64_t xd[3] = {g, m, k}, yd[3] = {g, k, n}, zd[3] = {g, m, n};
    operand(&b, VT_F32, 3, xd, (numbers){g * m * k, x});
    operand(&b, VT_F32, 3, yd, (numbers){g * k * n, y});
    vt_op *op = make_one(&b, VT_OP_DOT_GENERAL, VT_F32, 3, zd, 0);
    INTS(op, LHS_BATCHING_DIMENSIONS, 0);
    INTS(op, RHS_BATCHING_DIMENSIONS, 0);
    INTS(op, LHS_CONTRACTING_DIMENSIONS, 2);
    INTS(op, RHS_CONTRACTING_DIMENSIONS, 1);
    INTS(op, PRECISION_CONFIG, 0, 0);
    finish(&b, (numbers){g * m * n, want}, 0, rows[r].why);
  }
}

static vt_op *conv1d(bench *b, numbers x, int64_t batch, int64_t features, numbers w,
                     int64_t out_features, int64_t size, int64_t out_batch, int64_t low,
                     int64_t high, const int64_t *strides_dilations) {
  int64_t width = x.count / (batch * features), window = strides_dilations[3],
          in_features = w.count / (window * out_features);
  int64_t xd[3] = {batch, features, width}, wd[3] = {out_features, in_features, window},
          zd[3] = {out_batch, out_features, size};
  operand(b, VT_F32, 3, xd, x);
  operand(b, VT_F32, 3, wd, w);
  vt_op *op = make_one(b, VT_OP_CONVOLUTION, VT_F32, 3, zd, 0);
  INTS(op, WINDOW_STRIDES, strides_dilations[0]);
  INTS(op, LHS_DILATION, strides_dilations[1]);
  INTS(op, RHS_DILATION, strides_dilations[2]);
  INTS(op, PADDING, low, high);
  INTS(op, WINDOW_REVERSAL, strides_dilations[4]);
  vt_op_set_i64(op, VT_ATTR_INPUT_BATCH_DIMENSION, 0);
  vt_op_set_i64(op, VT_ATTR_INPUT_FEATURE_DIMENSION, 1);
  INTS(op, INPUT_SPATIAL_DIMENSIONS, 2);
  vt_op_set_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
  vt_op_set_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 1);
  INTS(op, KERNEL_SPATIAL_DIMENSIONS, 2);
  vt_op_set_i64(op, VT_ATTR_OUTPUT_BATCH_DIMENSION, 0);
  vt_op_set_i64(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION, 1);
  INTS(op, OUTPUT_SPATIAL_DIMENSIONS, 2);
  vt_op_set_i64(op, VT_ATTR_FEATURE_GROUP_COUNT, 1);
  vt_op_set_i64(op, VT_ATTR_BATCH_GROUP_COUNT, 1);
  INTS(op, PRECISION_CONFIG, 0, 0);
  return op;
}

static void convolutions(void **state) {
  (void)state;
  const struct {
    int64_t settings[5]; // stride, input dilation, window dilation, window size, reversal
    int64_t low, high, size;
    numbers want;
    const char *why;
  } rows[] = {
      {{1, 1, 1, 2, 0}, 0, 0, 3, N(21, 32, 43), "cross-correlation"},
      {{1, 1, 1, 2, 1}, 0, 0, 3, N(12, 23, 34), "reversed"},
      {{1, 1, 1, 2, 0}, 1, 1, 5, N(10, 21, 32, 43, 4), "padded"},
      {{2, 1, 1, 2, 0}, 0, 0, 2, N(21, 43), "stride"},
      {{1, 1, 2, 2, 0}, 0, 0, 2, N(31, 42), "window dilation"},
      {{1, 2, 1, 2, 0}, 0, 0, 6, N(1, 20, 2, 30, 3, 40), "input dilation"},
      {{1, 1, 1, 2, 0}, -1, -1, 1, N(32), "negative padding"},
      {{1, 2, 1, 2, 0}, -1, 0, 5, N(20, 2, 30, 3, 40), "negative padding of a dilated input"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    conv1d(&b, N(1, 2, 3, 4), 1, 1, N(1, 10), 1, rows[i].size, 1, rows[i].low, rows[i].high,
           rows[i].settings);
    finish(&b, rows[i].want, 0, rows[i].why);
  }
  const int64_t plain[5] = {1, 1, 1, 1, 0};
  bench b = bench_new();
  vt_op *op = conv1d(&b, N(1, 2, 3, 4), 1, 2, N(1, 10, 100, 1000), 4, 2, 1, 0, 0, plain);
  vt_op_set_i64(op, VT_ATTR_FEATURE_GROUP_COUNT, 2);
  finish(&b, N(1, 2, 10, 20, 300, 400, 3000, 4000), 0, "feature groups");
  b = bench_new();
  op = conv1d(&b, N(1, 2, 3, 4), 4, 1, N(1, 10, 100, 1000), 4, 1, 2, 0, 0, plain);
  vt_op_set_i64(op, VT_ATTR_BATCH_GROUP_COUNT, 2);
  finish(&b, N(1, 10, 300, 3000, 2, 20, 400, 4000), 0, "batch groups");
}

static void reductions(void **state) {
  (void)state;
  const struct {
    vt_opcode code;
    vt_dtype type;
    numbers init, want;
    const char *why;
  } rows[] = {
      {VT_OP_ADD, VT_S32, N(100), N(106, 115), "init enters once"},
      {VT_OP_MAXIMUM, VT_F32, N(4), N(4, 6), "max"},
      {VT_OP_MULTIPLY, VT_F64, N(1), N(6, 120), "product"},
      {VT_OP_SUBTRACT, VT_F32, N(0.0), N(-6, -15), "any body, in order from init"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, rows[i].type, DIMS(2, 3), N(1, 2, 3, 4, 5, 6));
    operand(&b, rows[i].type, SCALAR, rows[i].init);
    vt_op *op = make_one(&b, VT_OP_REDUCE, rows[i].type, DIMS(2), 1);
    INTS(op, DIMENSIONS, 1);
    op->regions[0] = binary_region(&b, rows[i].code, rows[i].type);
    finish(&b, rows[i].want, 0, rows[i].why);
  }
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(2, 0), NONE);
  operand(&b, VT_F32, SCALAR, N(7));
  vt_op *op = make_one(&b, VT_OP_REDUCE, VT_F32, DIMS(2), 1);
  INTS(op, DIMENSIONS, 1);
  op->regions[0] = binary_region(&b, VT_OP_ADD, VT_F32);
  finish(&b, N(7, 7), 0, "nothing to reduce gives init");
}

// Every path of reduce.c: rows, columns, parts, transposed; sums of whole numbers are exact in any
// order.
static void reduction_paths(void **state) {
  (void)state;
  static const int64_t shapes_[][3] = {{3, 1000, 1}, {1000, 3, 1}, {1, 5000, 1}, {7, 11, 13},
                                       {300, 2, 5},  {2, 300, 40}, {4, 64, 64}};
  for (size_t s = 0; s < sizeof shapes_ / sizeof *shapes_; s++)
    for (int mask = 1; mask < 8; mask++)
      for (int body = 0; body < 4; body++) {
        const int64_t *d = shapes_[s];
        int64_t n = d[0] * d[1] * d[2], out_dims[3], reduced[3], kept = 0, gone = 0, out_n = 1;
        for (int i = 0; i < 3; i++)
          if (mask >> i & 1)
            reduced[gone++] = i;
          else
            out_n *= out_dims[kept++] = d[i];
        static const vt_opcode codes[] = {VT_OP_ADD, VT_OP_MAXIMUM, VT_OP_ADD, VT_OP_SUBTRACT};
        static const vt_dtype types[] = {VT_F32, VT_F32, VT_S16, VT_S32};
        double *x = malloc(8 * (size_t)n), *want = malloc(8 * (size_t)out_n);
        for (int64_t i = 0; i < out_n; i++) want[i] = body == 1 ? -1 : 0;
        for (int64_t i = 0; i < n; i++) {
          x[i] = (double)(i * 31 % 17) - (body == 1 ? 8 : 0);
          int64_t at[3] = {i / (d[1] * d[2]), i / d[2] % d[1], i % d[2]}, place = 0;
          for (int k = 0; k < 3; k++)
            if (!(mask >> k & 1)) place = place * d[k] + at[k];
          if (body == 1)
            want[place] = x[i] > want[place] ? x[i] : want[place];
          else
            want[place] += x[i];
        }
        if (body == 2)
          for (int64_t i = 0; i < out_n; i++) want[i] = (double)(int16_t)(int64_t)want[i];
        bench b = bench_new();
        operand(&b, types[body], 3, d, (numbers){n, x});
        operand(&b, types[body], SCALAR, N(body == 1 ? -1 : 0));
        vt_op *op = make_one(&b, VT_OP_REDUCE, types[body], (int32_t)kept, out_dims, 1);
        vt_op_set_ints(op, VT_ATTR_DIMENSIONS, (uint32_t)gone, reduced);
        vt_func *region = binary_region(&b, body == 3 ? VT_OP_ADD : codes[body], types[body]);
        if (body == 3) { // add(b, add(a, 0)): associative, but not recognised
          region = vt_func_create(b.module, "");
          vt_type t = {VT_S32, 0, NULL};
          vt_value *p = vt_func_add_param(region, t), *q = vt_func_add_param(region, t);
          static const int32_t zero = 0;
          static const vt_literal literal = {{VT_S32, 0, NULL}, &zero, false};
          vt_value *z = vt_build_constant(region, NULL, &vt_loc_unknown, &literal);
          vt_value *inner =
              vt_build(region, NULL, VT_OP_ADD, &vt_loc_unknown, t, 2, (vt_value *[]){p, z});
          vt_value *sum =
              vt_build(region, NULL, VT_OP_ADD, &vt_loc_unknown, t, 2, (vt_value *[]){q, inner});
          vt_func_set_returns(region, 1, &sum);
        }
        op->regions[0] = region;
        finish(&b, (numbers){out_n, want}, 0, "reduce");
        free(x);
        free(want);
      }
}

static vt_op *windowed(bench *b, numbers x, numbers init, int64_t size, const int64_t *w,
                       vt_opcode code) {
  operand(b, VT_F32, 1, &x.count, x);
  operand(b, VT_F32, SCALAR, init);
  vt_op *op = make_one(b, VT_OP_REDUCE_WINDOW, VT_F32, 1, &size, 1);
  INTS(op, WINDOW_DIMENSIONS, w[0]);
  INTS(op, WINDOW_STRIDES, w[1]);
  INTS(op, BASE_DILATIONS, w[2]);
  INTS(op, WINDOW_DILATIONS, w[3]);
  INTS(op, PADDING, w[4], w[5]);
  op->regions[0] = binary_region(b, code, VT_F32);
  return op;
}

static void windows(void **state) {
  (void)state;
  const struct {
    int64_t w[6]; // size, stride, base dilation, window dilation, low, high
    double init;
    numbers want;
    const char *why;
  } rows[] = {
      {{2, 1, 1, 1, 0, 0}, 0.0, N(3, 5, 7), "sliding"},
      {{2, 2, 1, 1, 0, 0}, 0.0, N(3, 7), "stride"},
      {{2, 1, 1, 1, 1, 1}, 100, N(101, 103, 105, 107, 104), "init enters once, padding is skipped"},
      {{2, 1, 2, 1, 0, 0}, 10, N(11, 12, 12, 13, 13, 14), "holes are skipped"},
      {{2, 1, 1, 2, 0, 0}, 0.0, N(4, 6), "window dilation"},
      {{4, 1, 1, 1, 3, 0}, 0.0, N(1, 3, 6, 10), "prefix sums"},
      {{4, 1, 1, 1, 0, 3}, 1, N(11, 10, 8, 5), "suffix sums"},
      {{2, 1, 1, 1, -1, 0}, 0.0, N(5, 7), "negative padding"},
      {{1, 3, 2, 1, 2, 2}, 5, N(5, 5, 8, 5), "strides over holes"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    windowed(&b, N(1, 2, 3, 4), (numbers){1, &rows[i].init}, rows[i].want.count, rows[i].w,
             VT_OP_ADD);
    finish(&b, rows[i].want, 0, rows[i].why);
  }
}

static void select_and_scatters(void **state) {
  (void)state;
  const struct {
    numbers x, source, want;
    const char *why;
  } rows[] = {
      {N(1, 3, 3, 2), N(10, 20), N(0.5, 10.5, 20.5, 0.5), "maxima"},
      {N(2, 2, 1, 1), N(10, 20), N(10.5, 0.5, 20.5, 0.5), "ties keep the first"},
      {N(NaN, 1, 5, NaN), N(10, 20), N(0.5, 10.5, 0.5, 20.5),
       "NaN loses to what follows, and is taken when last"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, VT_F32, DIMS(4), rows[i].x);
    operand(&b, VT_F32, DIMS(2), rows[i].source);
    operand(&b, VT_F32, SCALAR, N(0.5));
    vt_op *op = make_one(&b, VT_OP_SELECT_AND_SCATTER, VT_F32, DIMS(4), 2);
    INTS(op, WINDOW_DIMENSIONS, 2);
    INTS(op, WINDOW_STRIDES, 2);
    INTS(op, PADDING, 0, 0);
    op->regions[0] = compare_region(&b, VT_CMP_GE, VT_CMPTYPE_FLOAT, VT_F32);
    op->regions[1] = binary_region(&b, VT_OP_ADD, VT_F32);
    finish(&b, rows[i].want, 0, rows[i].why);
  }
}

static void sort_pair(vt_func *(*make)(bench *), int64_t n, const double *keys, double *out_keys,
                      double *out_values) {
  bench b = bench_new();
  double *values = malloc(8 * (size_t)n);
  for (int64_t i = 0; i < n; i++) values[i] = (double)i;
  operand(&b, VT_F32, 1, &n, (numbers){n, keys});
  operand(&b, VT_S32, 1, &n, (numbers){n, values});
  vt_type types[2] = {b.in[0].type, b.in[1].type};
  vt_op *op = make_op(&b, VT_OP_SORT, 2, types, 1);
  vt_op_set_i64(op, VT_ATTR_DIMENSION, -1);
  vt_op_set_i64(op, VT_ATTR_IS_STABLE, 1);
  op->regions[0] = make(&b);
  run_op(&b);
  for (int64_t i = 0; i < n; i++) {
    out_keys[i] = vt_number_load(VT_F32, b.out[0].data, i);
    out_values[i] = vt_number_load(VT_S32, b.out[1].data, i);
  }
  free(values);
  bench_free(&b);
}

static vt_func *comparator(bench *b, int form) {
  vt_func *f = vt_func_create(b->module, "");
  vt_type key = {VT_F32, 0, NULL}, value = {VT_S32, 0, NULL}, pred = {VT_PRED, 0, NULL};
  vt_value *x = vt_func_add_param(f, key), *y = vt_func_add_param(f, key);
  vt_func_add_param(f, value);
  vt_func_add_param(f, value);
  vt_value *r = compare_in(f, form == 1 ? VT_CMP_GT : VT_CMP_LT, VT_CMPTYPE_TOTALORDER, x, y);
  if (form == 2) { // an uncommon comparator: not (a >= b)
    r = compare_in(f, VT_CMP_GE, VT_CMPTYPE_TOTALORDER, x, y);
    r = vt_build(f, NULL, VT_OP_NOT, &vt_loc_unknown, pred, 1, &r);
  }
  if (form == 3) { // |a| < |b|, then the second array descending
    vt_value *ax = vt_build(f, NULL, VT_OP_ABS, &vt_loc_unknown, key, 1, &x);
    vt_value *ay = vt_build(f, NULL, VT_OP_ABS, &vt_loc_unknown, key, 1, &y);
    vt_value *less = compare_in(f, VT_CMP_LT, VT_CMPTYPE_FLOAT, ax, ay);
    vt_value *equal = compare_in(f, VT_CMP_EQ, VT_CMPTYPE_FLOAT, ax, ay);
    vt_value *second = compare_in(f, VT_CMP_GT, VT_CMPTYPE_SIGNED, f->params[2], f->params[3]);
    vt_value *both =
        vt_build(f, NULL, VT_OP_AND, &vt_loc_unknown, pred, 2, (vt_value *[]){equal, second});
    r = vt_build(f, NULL, VT_OP_OR, &vt_loc_unknown, pred, 2, (vt_value *[]){less, both});
  }
  vt_func_set_returns(f, 1, &r);
  return f;
}
static vt_func *ascending(bench *b) {
  return comparator(b, 0);
}
static vt_func *descending(bench *b) {
  return comparator(b, 1);
}
static vt_func *unusual(bench *b) {
  return comparator(b, 2);
}
static vt_func *two_keys(bench *b) {
  return comparator(b, 3);
}

static void sorts(void **state) {
  (void)state;
  double keys[500], out[500], order[500], again[500], again_order[500];
  for (int i = 0; i < 500; i++) keys[i] = (i * 37 % 23) - 11;
  for (int64_t n = 1; n <= 500; n = n * 3 + 1) {
    sort_pair(ascending, n, keys, out, order);
    for (int64_t i = 1; i < n; i++) {
      assert_true(out[i - 1] <= out[i]);
      if (out[i - 1] == out[i]) assert_true(order[i - 1] < order[i]); // stable
      assert_true(keys[(int)order[i]] == out[i]);
    }
    sort_pair(unusual, n, keys, again, again_order);
    assert_memory_equal(order, again_order, 8 * (size_t)n);
    sort_pair(descending, n, keys, out, order);
    for (int64_t i = 1; i < n; i++) {
      assert_true(out[i - 1] >= out[i]);
      if (out[i - 1] == out[i]) assert_true(order[i - 1] < order[i]);
    }
    sort_pair(two_keys, n, keys, out, order);
    for (int64_t i = 1; i < n; i++) {
      assert_true(fabs(out[i - 1]) <= fabs(out[i]));
      if (fabs(out[i - 1]) == fabs(out[i])) assert_true(order[i - 1] > order[i]);
    }
  }
  const double corners[] = {NaN, 1, 0.0, -0.0, -INF, INF};
  sort_pair(ascending, 6, corners, out, order);
  const double want[] = {4, 3, 2, 1, 5, 0};
  assert_memory_equal(order, want, sizeof want);
}

static void linear_algebra(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(2, 2, 2), N(4, 99, 2, 5, 1, 0, 0, -1));
  vt_op *op = make_one(&b, VT_OP_CHOLESKY, VT_F32, DIMS(2, 2, 2), 0);
  vt_op_set_i64(op, VT_ATTR_LOWER, 1);
  finish(&b, N(2, 0.0, 1, 2, NaN, NaN, NaN, NaN), 0,
         "cholesky reads one triangle; not definite is NaN");

  b = bench_new();
  operand(&b, VT_C64, DIMS(2, 2), N(4, 0, 0, 2, 77, 77, 5, 0));
  op = make_one(&b, VT_OP_CHOLESKY, VT_C64, DIMS(2, 2), 0);
  vt_op_set_i64(op, VT_ATTR_LOWER, 0);
  finish(&b, N(2, 0.0, 0.0, 1, 0.0, 0.0, 2, 0.0), 0, "upper complex factor");

  // a = [2 99; 3 4], b = [2 4; 5 8]: 99 is in the triangle that lower systems do not read.
  const struct {
    int left, lower, unit, transpose;
    numbers want;
  } rows[] = {
      {1, 1, 0, VT_NO_TRANSPOSE, N(1, 2, 0.5, 0.5)},
      {1, 1, 1, VT_NO_TRANSPOSE, N(2, 4, -1, -4)},
      {1, 1, 0, VT_TRANSPOSE, N(-0.875, -1, 1.25, 2)},
      {0, 1, 0, VT_NO_TRANSPOSE, N(-0.5, 1, -0.5, 2)},
      {1, 0, 0, VT_NO_TRANSPOSE, N(-60.875, -97, 1.25, 2)},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    b = bench_new();
    operand(&b, VT_F64, DIMS(2, 2), N(2, 99, 3, 4));
    operand(&b, VT_F64, DIMS(2, 2), N(2, 4, 5, 8));
    op = make_one(&b, VT_OP_TRIANGULAR_SOLVE, VT_F64, DIMS(2, 2), 0);
    vt_op_set_i64(op, VT_ATTR_LEFT_SIDE, rows[i].left);
    vt_op_set_i64(op, VT_ATTR_LOWER, rows[i].lower);
    vt_op_set_i64(op, VT_ATTR_UNIT_DIAGONAL, rows[i].unit);
    vt_op_set_i64(op, VT_ATTR_TRANSPOSE_A, rows[i].transpose);
    finish(&b, rows[i].want, 4, "triangular_solve");
  }
}

static void ffts(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 3, 8, 12, 17, 30, 31, 64, 100};
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    for (int inverse = 0; inverse < 2; inverse++) {
      int64_t n = lengths[l];
      double x[200], want[200];
      for (int64_t i = 0; i < 2 * n; i++) x[i] = (double)(i * 13 % 7) - 3;
      for (int64_t k = 0; k < n; k++) {
        want[2 * k] = want[2 * k + 1] = 0;
        for (int64_t j = 0; j < n; j++) {
          double angle = (inverse ? 2 : -2) * M_PI * (double)(j * k % n) / (double)n,
                 c = cos(angle), s = sin(angle);
          want[2 * k] += (x[2 * j] * c - x[2 * j + 1] * s) / (double)(inverse ? n : 1);
          want[2 * k + 1] += (x[2 * j] * s + x[2 * j + 1] * c) / (double)(inverse ? n : 1);
        }
      }
      bench b = bench_new();
      operand(&b, VT_C128, 1, &n, (numbers){2 * n, x});
      vt_op *op = make_one(&b, VT_OP_FFT, VT_C128, 1, &n, 0);
      vt_op_set_i64(op, VT_ATTR_FFT_TYPE, inverse ? VT_FFT_IFFT : VT_FFT_FFT);
      INTS(op, FFT_LENGTH, n);
      run_op(&b);
      for (int64_t i = 0; i < 2 * n; i++)
        if (fabs(((double *)b.out[0].data)[i] - want[i]) > 1e-11)
          fail_msg("fft of %lld points", (long long)n);
      bench_free(&b);
    }
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(4), N(1, 2, 3, 4));
  vt_op *op = make_one(&b, VT_OP_FFT, VT_C64, DIMS(3), 0);
  vt_op_set_i64(op, VT_ATTR_FFT_TYPE, VT_FFT_RFFT);
  INTS(op, FFT_LENGTH, 4);
  finish(&b, N(10, 0.0, -2, 2, -2, 0.0), 2, "rfft");
  b = bench_new();
  operand(&b, VT_C64, DIMS(3), N(10, 5, -2, 2, -2, 7));
  op = make_one(&b, VT_OP_FFT, VT_F32, DIMS(4), 0);
  vt_op_set_i64(op, VT_ATTR_FFT_TYPE, VT_FFT_IRFFT);
  INTS(op, FFT_LENGTH, 4);
  finish(&b, N(1, 2, 3, 4), 2, "irfft ignores imaginary parts of the real bins");
  b = bench_new();
  operand(&b, VT_C64, DIMS(2), N(6, 0.0, -1.5, 0.8660254));
  op = make_one(&b, VT_OP_FFT, VT_F32, DIMS(3), 0);
  vt_op_set_i64(op, VT_ATTR_FFT_TYPE, VT_FFT_IRFFT);
  INTS(op, FFT_LENGTH, 3);
  finish(&b, N(1, 2, 3), 2, "irfft of odd length");
}

// First words of Random123's published known-answer vectors (kat_vectors): zero key and counter.
static void random_bits(void **state) {
  (void)state;
  const struct {
    int64_t algorithm;
    numbers want;
  } rows[] = {
      {VT_RNG_THREE_FRY, N(0x6b200159, 0x99ba4efe)},
      {VT_RNG_PHILOX, N(0x6627e8d5, 0xe169c58d)},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, VT_U64, DIMS(2), N(0, 0));
    vt_type types[2] = {b.in[0].type, result_type(&b, VT_U32, DIMS(2))};
    vt_op *op = make_op(&b, VT_OP_RNG_BIT_GENERATOR, 2, types, 0);
    vt_op_set_i64(op, VT_ATTR_RNG_ALGORITHM, rows[i].algorithm);
    run_op(&b);
    expect_numbers(b.out[0], N(0, 1), 0, "state");
    expect_numbers(b.out[1], rows[i].want, 0, "bits");
    bench_free(&b);
  }
}

static void batch_norms(void **state) {
  (void)state;
  const int64_t two = 2;
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(2, 2), N(1, 2, 3, 4));
  operand(&b, VT_F32, 1, &two, N(2, 3));
  operand(&b, VT_F32, 1, &two, N(10, 20));
  vt_type types[3] = {b.in[0].type, b.in[1].type, b.in[1].type};
  vt_op *op = make_op(&b, VT_OP_BATCH_NORM_TRAINING, 3, types, 0);
  vt_op_set_f64(op, VT_ATTR_EPSILON, 0);
  vt_op_set_i64(op, VT_ATTR_FEATURE_INDEX, 1);
  run_op(&b);
  expect_numbers(b.out[0], N(8, 17, 12, 23), 0, "normalised");
  expect_numbers(b.out[1], N(2, 3), 0, "mean");
  expect_numbers(b.out[2], N(1, 1), 0, "biased variance");
  bench_free(&b);

  b = bench_new();
  operand(&b, VT_F32, DIMS(2, 2), N(1, 2, 3, 4));
  operand(&b, VT_F32, 1, &two, N(2, 3));
  operand(&b, VT_F32, 1, &two, N(10, 20));
  operand(&b, VT_F32, 1, &two, N(0.0, 2));
  operand(&b, VT_F32, 1, &two, N(3, 0.0));
  op = make_one(&b, VT_OP_BATCH_NORM_INFERENCE, VT_F32, DIMS(2, 2), 0);
  vt_op_set_f64(op, VT_ATTR_EPSILON, 1);
  vt_op_set_i64(op, VT_ATTR_FEATURE_INDEX, 1);
  finish(&b, N(11, 20, 13, 26), 0, "batch_norm_inference");

  b = bench_new();
  operand(&b, VT_F32, DIMS(2, 2), N(1, 2, 3, 4));
  operand(&b, VT_F32, 1, &two, N(2, 3));
  operand(&b, VT_F32, 1, &two, N(2, 3));
  operand(&b, VT_F32, 1, &two, N(1, 1));
  operand(&b, VT_F32, DIMS(2, 2), N(1, 0.0, 0.0, 4));
  vt_type grads[3] = {b.in[0].type, b.in[1].type, b.in[1].type};
  op = make_op(&b, VT_OP_BATCH_NORM_GRAD, 3, grads, 0);
  vt_op_set_f64(op, VT_ATTR_EPSILON, 0);
  vt_op_set_i64(op, VT_ATTR_FEATURE_INDEX, 1);
  run_op(&b);
  expect_numbers(b.out[0], N(0.0, 0.0, 0.0, 0.0), 0, "two values leave no gradient");
  expect_numbers(b.out[1], N(-1, 4), 0, "scale");
  expect_numbers(b.out[2], N(1, 4), 0, "offset");
  bench_free(&b);
}

static void older_ops(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(3), N(1, 2, 3));
  operand(&b, VT_F32, DIMS(3), N(10, 20, 30));
  vt_op *op = make_one(&b, VT_OP_MAP, VT_F32, DIMS(3), 1);
  INTS(op, DIMENSIONS, 0);
  op->regions[0] = binary_region(&b, VT_OP_MULTIPLY, VT_F32);
  finish(&b, N(10, 40, 90), 0, "map");

  b = bench_new();
  operand(&b, VT_S32, DIMS(2, 3), N(1, 2, 3, 4, 5, 6));
  operand(&b, VT_S32, DIMS(2, 2), N(2, 0, 1, 1));
  op = make_one(&b, VT_OP_TORCH_INDEX_SELECT, VT_S32, DIMS(2, 2), 0);
  vt_op_set_i64(op, VT_ATTR_DIM, 1);
  vt_op_set_i64(op, VT_ATTR_BATCH_DIMS, 1);
  finish(&b, N(3, 1, 5, 5), 0, "torch_index_select");

  b = bench_new();
  operand(&b, VT_F32, DIMS(2, 3), N(1, 2, 3, 4, 5, 6));
  operand(&b, VT_F32, DIMS(3, 1), N(1, 10, 100));
  op = make_one(&b, VT_OP_EINSUM, VT_F32, DIMS(1, 2), 0);
  vt_op_set_string(op, VT_ATTR_EINSUM_CONFIG, "ij,jk->ki");
  finish(&b, N(321, 654), 0, "einsum");

  b = bench_new();
  operand(&b, VT_F32, SCALAR, N(2));
  operand(&b, VT_F32, SCALAR, N(5));
  operand(&b, VT_S64, DIMS(1), N(4000));
  op = make_one(&b, VT_OP_RNG, VT_F32, DIMS(4000), 0);
  vt_op_set_i64(op, VT_ATTR_RNG_DISTRIBUTION, VT_DIST_UNIFORM);
  run_op(&b);
  double sum = 0;
  for (int64_t i = 0; i < 4000; i++) {
    double x = vt_number_load(VT_F32, b.out[0].data, i);
    assert_true(x >= 2 && x < 5);
    sum += x;
  }
  assert_true(fabs(sum / 4000 - 3.5) < 0.06);
  bench_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes),
      cmocka_unit_test(pads),
      cmocka_unit_test(moves),
      cmocka_unit_test(gathers),
      cmocka_unit_test(dynamic_slices),
      cmocka_unit_test(scatters),
      cmocka_unit_test(dots),
      cmocka_unit_test(dot_shapes),
      cmocka_unit_test(dot_rounding),
      cmocka_unit_test(convolutions),
      cmocka_unit_test(reductions),
      cmocka_unit_test(reduction_paths),
      cmocka_unit_test(windows),
      cmocka_unit_test(sorts),
      cmocka_unit_test(select_and_scatters),
      cmocka_unit_test(ffts),
      cmocka_unit_test(linear_algebra),
      cmocka_unit_test(random_bits),
      cmocka_unit_test(batch_norms),
      cmocka_unit_test(older_ops),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
