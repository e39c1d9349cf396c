// SPDX-License-Identifier: Apache-2.0
// touched_test.c - the time of operators that read or change a part of an array: slices, updates,
// rows by their indices.
#include "chip/time/kernels.h"
#include "chip/time_test.h"

static const char *table(const char *type, int64_t rows, bool scatter) {
  static char text[2048];
  char all[64], some[64], at[64];
  snprintf(all, sizeof all, "tensor<100000x512x%s>", type);
  snprintf(some, sizeof some, "tensor<%lldx512x%s>", (long long)rows, type);
  snprintf(at, sizeof at, "tensor<%lldx1xi32>", (long long)rows);
  if (scatter)
    snprintf(text, sizeof text,
             "module { func.func public @main(%%t: %s {tf.aliasing_output = 0 : i32}, %%i: %s, "
             "%%u: %s) -> %s {\n%%r = \"stablehlo.scatter\"(%%t, %%i, %%u) "
             "<{scatter_dimension_numbers = "
             "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
             "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({\n"
             "^bb0(%%x: tensor<%s>, %%y: tensor<%s>):\n%%s = stablehlo.add %%x, %%y : tensor<%s>\n"
             "stablehlo.return %%s : tensor<%s> }) : (%s, %s, %s) -> %s\nreturn %%r : %s } }\n",
             all, at, some, all, type, type, type, type, all, at, some, all, all);
  else
    snprintf(text, sizeof text,
             "module { func.func public @main(%%t: %s, %%i: %s) -> %s {\n"
             "%%r = \"stablehlo.gather\"(%%t, %%i) <{dimension_numbers = #stablehlo.gather<"
             "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
             "index_vector_dim = 1>, slice_sizes = array<i64: 1, 512>}> : (%s, %s) -> %s\n"
             "return %%r : %s } }\n",
             all, at, some, all, at, some, some);
  return text;
}

static void rows_by_index_cost_their_words(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++) {
    double last = 0;
    for (int64_t rows = 8; rows < 60000; rows = rows * 3 + 1) {
      double gather = seconds_on(slices[i], table("f32", rows, false));
      assert_true(gather >= last && seconds_on(slices[i], table("f32", rows, true)) > gather);
      last = gather;
    }
    vt_slice roomy = slice_of(slices[i]);
    vt_chip large = *roomy.chip;
    large.vmem_bytes_per_core = 1 << 28;
    roomy.chip = &large;
    last = 0;
    for (int64_t rows = 8; rows < 400000; rows = rows * 5 / 4 + 1) {
      double gather = time_on(&roomy, 1, table("f32", rows, false)).seconds;
      assert_true(gather >= last);
      last = gather;
    }
    // Two rows of bf16 share their words: one of them costs what a row of f32 does, or more when it
    // is written again.
    vt_slice slice = slice_of(slices[i]);
    double narrow = time_on(&slice, 1, table("bf16", 20000, false)).hbm_bytes;
    double wide = time_on(&slice, 1, table("f32", 20000, false)).hbm_bytes;
    assert_true(narrow > 0.7 * wide && narrow < wide);
  }
}

static const char *update(const char *of, const char *donated) {
  static char text[2048];
  snprintf(text, sizeof text,
           "module { func.func public @main(%%x: tensor<4096x4096xf32>%s, %%y: tensor<8x4096xf32>, "
           "%%i: tensor<i32>) -> tensor<4096x4096xf32> {\n"
           "%%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
           "%%z = stablehlo.broadcast_in_dim %%c, dims = [] : (tensor<f32>) -> "
           "tensor<4096x4096xf32>\n"
           "%%o = stablehlo.constant dense<0> : tensor<i32>\n"
           "%%r = stablehlo.dynamic_update_slice %s, %%y, %%i, %%o : (tensor<4096x4096xf32>, "
           "tensor<8x4096xf32>, tensor<i32>, tensor<i32>) -> tensor<4096x4096xf32>\n"
           "return %%r : tensor<4096x4096xf32> } }\n",
           donated, of);
  return text;
}

// In place, 8 rows are read and written; an array that the caller keeps is copied before, and one
// that starts as zeros has to be written.
static void an_update_copies_what_it_may_not_change(void **unused) {
  (void)unused;
  double array = 4.0 * 4096 * 4096;
  for (int i = 0; i < SLICES; i++) {
    vt_slice slice = slice_of(slices[i]);
    double given = time_on(&slice, 1, update("%x", " {tf.aliasing_output = 0 : i32}")).hbm_bytes;
    double copied = time_on(&slice, 1, update("%x", "")).hbm_bytes;
    double made = time_on(&slice, 1, update("%z", "")).hbm_bytes;
    assert_true(given < 0.01 * array);
    assert_true(copied > 2 * array && copied < 2.01 * array);
    assert_true(made > (slice.chip->cmem_bytes || slices[i][1] > '3' ? 0 : array));
    assert_true(made < 1.01 * array);
  }
}

// A table that fits into VMEM is copied there where that is less: its rows move faster.
static void rows_of_small_tables_are_near(void **unused) {
  (void)unused;
  vt_slice slice = slice_of("tpu7x-8");
  vt_chip large = *slice.chip;
  double far = time_on(&slice, 1, table("bf16", 200000, false)).busy[VT_BOUND_VPU];
  large.vmem_bytes_per_core = 1 << 28;
  slice.chip = &large;
  assert_true(time_on(&slice, 1, table("bf16", 200000, false)).busy[VT_BOUND_VPU] < far / 2);
}

// With half of the memory's rate where a device has two: rows may be named twice.
static void an_update_by_index_runs_on_one_core(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++)
    assert_int_equal(cores_of(slices[i], table("f32", 4096, true)), 1);
}

// The sum of two slices of an array.
static const char *two_slices(const char *first, const char *second, const char *of) {
  static char text[1024];
  snprintf(text, sizeof text,
           "module { func.func public @main(%%x: tensor<4096x4096xf32>) -> %s {\n"
           "%%a = stablehlo.slice %%x %s : (tensor<4096x4096xf32>) -> %s\n"
           "%%b = stablehlo.slice %%x %s : (tensor<4096x4096xf32>) -> %s\n"
           "%%c = stablehlo.add %%a, %%b : %s\nreturn %%c : %s } }\n",
           of, first, of, second, of, of, of);
  return text;
}

// A kernel reads of an array what its slices have together, but no more than all of it, and whole
// rows of 128 lanes.
static void slices_add_up(void **unused) {
  (void)unused;
  const double array = 4.0 * 4096 * 4096;
  static const struct {
    const char *first, *second, *of;
    double moved; // in arrays
  } cases[] = {
      {"[0:4096, 0:2048]", "[0:4096, 2048:4096]", "tensor<4096x2048xf32>", 1.5},
      {"[0:2048, 0:4096]", "[2048:4096, 0:4096]", "tensor<2048x4096xf32>", 1.5},
      {"[0:4096, 0:4096:2]", "[0:4096, 1:4096:2]", "tensor<4096x2048xf32>", 1.5},
      {"[0:1024, 0:4096]", "[1024:2048, 0:4096]", "tensor<1024x4096xf32>", 0.75},
      {"[0:4095, 0:4096]", "[1:4096, 0:4096]", "tensor<4095x4096xf32>", 2},
      {"[0:4096, 5:6]", "[0:4096, 4000:4001]", "tensor<4096x1xf32>", 2 / 32.0},
  };
  for (int i = 0; i < SLICES; i++)
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
      vt_slice slice = slice_of(slices[i]);
      const char *text = two_slices(cases[k].first, cases[k].second, cases[k].of);
      double moved = time_on(&slice, 1, text).hbm_bytes / array;
      assert_true(fabs(moved - cases[k].moved) < 0.01);
    }
}

static void dimensions_of_one_take_no_room(void **unused) {
  (void)unused;
  for (int i = 0; i < SLICES; i++) {
    const vt_chip *chip = slice_of(slices[i]).chip;
    vt_type plain = {VT_F32, 3, (const int64_t[]){8, 1000, 500}};
    vt_type more = {VT_F32, 5, (const int64_t[]){8, 1000, 1, 500, 1}};
    assert_true(vt_matrices_bytes(chip, more) == vt_matrices_bytes(chip, plain));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dimensions_of_one_take_no_room),
      cmocka_unit_test(slices_add_up),
      cmocka_unit_test(rows_by_index_cost_their_words),
      cmocka_unit_test(rows_of_small_tables_are_near),
      cmocka_unit_test(an_update_copies_what_it_may_not_change),
      cmocka_unit_test(an_update_by_index_runs_on_one_core),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
