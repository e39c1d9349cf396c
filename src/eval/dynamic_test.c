// SPDX-License-Identifier: Apache-2.0
// dynamic_test.c - dynamic-shape ops with types that are known after all, and Shardy's annotation
// ops, which change nothing.
#include "eval/eval_support.h"

static void slices_and_pads(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_S32, DIMS(4), N(1, 2, 3, 4));
  operand(&b, VT_S64, DIMS(1), N(1));
  operand(&b, VT_S64, DIMS(1), N(4));
  operand(&b, VT_S64, DIMS(1), N(2));
  make_one(&b, VT_OP_REAL_DYNAMIC_SLICE, VT_S32, DIMS(2), 0);
  finish(&b, N(2, 4), 0, "real_dynamic_slice");

  b = bench_new();
  operand(&b, VT_S32, DIMS(4), N(1, 2, 3, 4));
  operand(&b, VT_S64, DIMS(1), N(3));
  operand(&b, VT_S64, DIMS(1), N(9));
  operand(&b, VT_S64, DIMS(1), N(2));
  make_one(&b, VT_OP_REAL_DYNAMIC_SLICE, VT_S32, DIMS(2), 0);
  vt_status st = vt_eval_op(b.op, &b.env, b.in, b.out);
  assert_int_equal(vt_status_code(st), VT_INVALID_ARGUMENT);
  vt_status_free(st);
  bench_free(&b);

  b = bench_new();
  operand(&b, VT_S32, DIMS(2), N(1, 2));
  operand(&b, VT_S32, SCALAR, N(0));
  operand(&b, VT_S64, DIMS(1), N(1));
  operand(&b, VT_S64, DIMS(1), N(0));
  operand(&b, VT_S64, DIMS(1), N(1));
  make_one(&b, VT_OP_DYNAMIC_PAD, VT_S32, DIMS(4), 0);
  finish(&b, N(0, 1, 0, 2), 0, "dynamic_pad");
}

// sizes are an operand: 2 rows of a 3x2 array from a clamped start, or one element of each.
static void gathers(void **state) {
  (void)state;
  static const struct {
    int64_t sizes[2], out_dims[3], offset_dims[2];
    int32_t out_rank, offset_count;
    bool collapse;
    double want[8];
  } rows[] = {
      {{2, 2}, {2, 2, 2}, {1, 2}, 3, 2, false, {3, 4, 5, 6, 1, 2, 3, 4}},
      {{1, 2}, {2, 2}, {1}, 2, 1, true, {5, 6, 1, 2}},
      {{1, 1}, {2, 1}, {1}, 2, 1, true, {5, 1}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, VT_S32, DIMS(3, 2), N(1, 2, 3, 4, 5, 6));
    operand(&b, VT_S32, DIMS(2, 1), N(7, -3)); // clamped to the last start, and to 0
    operand(&b, VT_S64, DIMS(2), N((double)rows[i].sizes[0], (double)rows[i].sizes[1]));
    int64_t n = 1;
    for (int32_t d = 0; d < rows[i].out_rank; d++) n *= rows[i].out_dims[d];
    vt_op *op = make_one(&b, VT_OP_DYNAMIC_GATHER, VT_S32, rows[i].out_rank, rows[i].out_dims, 0);
    vt_op_set_ints(op, VT_ATTR_OFFSET_DIMS, (uint32_t)rows[i].offset_count, rows[i].offset_dims);
    vt_op_set_ints(op, VT_ATTR_COLLAPSED_SLICE_DIMS, rows[i].collapse, (const int64_t[]){0});
    NO_INTS(op, OPERAND_BATCHING_DIMS);
    NO_INTS(op, START_INDICES_BATCHING_DIMS);
    INTS(op, START_INDEX_MAP, 0);
    vt_op_set_i64(op, VT_ATTR_INDEX_VECTOR_DIM, 1);
    finish(&b, (numbers){n, rows[i].want}, 0, "dynamic_gather");
  }
}

// padding is an operand; the rest is the convolution's: [1][1][3] with a window of 2.
static void convolutions(void **state) {
  (void)state;
  static const struct {
    int64_t low, high, stride, size;
    double want[5];
  } rows[] = {{0, 0, 1, 2, {12, 23}},
              {1, 0, 1, 3, {1, 12, 23}},
              {1, 2, 1, 5, {1, 12, 23, 30, 0}},
              {-1, 1, 1, 2, {23, 30}},
              {1, 0, 2, 2, {1, 23}}};
  static const vt_attr_key places[] = {VT_ATTR_INPUT_BATCH_DIMENSION,
                                       VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION,
                                       VT_ATTR_OUTPUT_BATCH_DIMENSION};
  static const vt_attr_key features[] = {VT_ATTR_INPUT_FEATURE_DIMENSION,
                                         VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION,
                                         VT_ATTR_OUTPUT_FEATURE_DIMENSION};
  static const vt_attr_key spatial[] = {VT_ATTR_INPUT_SPATIAL_DIMENSIONS,
                                        VT_ATTR_KERNEL_SPATIAL_DIMENSIONS,
                                        VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, VT_F32, DIMS(1, 1, 3), N(1, 2, 3));
    operand(&b, VT_F32, DIMS(1, 1, 2), N(10, 1));
    operand(&b, VT_S32, DIMS(1, 2), N((double)rows[i].low, (double)rows[i].high));
    vt_op *op = make_one(&b, VT_OP_DYNAMIC_CONV, VT_F32, DIMS(1, 1, rows[i].size), 0);
    for (int k = 0; k < 3; k++) {
      vt_op_set_i64(op, places[k], 0);
      vt_op_set_i64(op, features[k], 1);
      vt_op_set_ints(op, spatial[k], 1, (const int64_t[]){2});
    }
    INTS(op, WINDOW_STRIDES, rows[i].stride);
    INTS(op, LHS_DILATION, 1);
    INTS(op, RHS_DILATION, 1);
    INTS(op, WINDOW_REVERSAL, 0);
    INTS(op, PRECISION_CONFIG, 0, 0);
    vt_op_set_i64(op, VT_ATTR_FEATURE_GROUP_COUNT, 1);
    vt_op_set_i64(op, VT_ATTR_BATCH_GROUP_COUNT, 1);
    finish(&b, (numbers){rows[i].size, rows[i].want}, 0, "dynamic_conv");
  }
}

static void sizes(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_F32, DIMS(3, 2), N(1, 2, 3, 4, 5, 6));
  vt_op *op = make_one(&b, VT_OP_GET_DIMENSION_SIZE, VT_S32, SCALAR, 0);
  vt_op_set_i64(op, VT_ATTR_DIMENSION, 0);
  finish(&b, N(3), 0, "get_dimension_size");
  for (int size = 1; size <= 2; size++) {
    b = bench_new();
    operand(&b, VT_F32, DIMS(3, 2), N(1, 2, 3, 4, 5, 6));
    operand(&b, VT_S32, SCALAR, N(size));
    op = make_one(&b, VT_OP_SET_DIMENSION_SIZE, VT_F32, DIMS(3, 2), 0);
    vt_op_set_i64(op, VT_ATTR_DIMENSION, 1);
    if (size == 2) {
      finish(&b, N(1, 2, 3, 4, 5, 6), 0, "set_dimension_size to what it is");
      continue;
    }
    vt_status st = vt_eval_op(b.op, &b.env, b.in, b.out);
    assert_int_equal(vt_status_code(st), VT_UNIMPLEMENTED);
    vt_status_free(st);
    bench_free(&b);
  }
}

static void marks(void **state) {
  (void)state;
  static const vt_opcode codes[] = {VT_OP_SHARDING_CONSTRAINT, VT_OP_RESHARD,
                                    VT_OP_PROPAGATION_BARRIER, VT_OP_DATA_FLOW_EDGE};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    bench b = bench_new();
    operand(&b, VT_F32, DIMS(2, 2), N(1, -0.0, NAN, 4));
    make_one(&b, codes[i], VT_F32, DIMS(2, 2), 0);
    finish(&b, N(1, -0.0, NAN, 4), 0, vt_op_short_name(codes[i]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slices_and_pads), cmocka_unit_test(gathers), cmocka_unit_test(convolutions),
      cmocka_unit_test(sizes),           cmocka_unit_test(marks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
