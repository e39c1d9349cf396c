// SPDX-License-Identifier: Apache-2.0
// roofline_test.c - counts of small modules compared with counts by hand.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "chip/chip.h"
#include "chip/flops.h"
#include "import/import.h"

#define MAIN(params, result, body)                                                                 \
  "module { func.func public @main(" params ") -> " result " {\n" body "} }\n"
#define DOT(name, a, b, types)                                                                     \
  name " = stablehlo.dot_general " a ", " b ", contracting_dims = [1] x [0] : " types "\n"

static vt_roofline of(const char *text, const char *slice_name, int32_t devices) {
  vt_module *module;
  vt_slice slice;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, strlen(text)}, &module);
  if (st) fail_msg("%s\n%s", vt_status_message(st), text);
  assert_null(vt_slice_from_name(slice_name, &slice));
  vt_roofline r = vt_chip_roofline(&slice, devices, module, NULL);
  vt_module_destroy(module);
  return r;
}

static void assert_near(double a, double b) {
  if (!(a > 0.999 * b && a < 1.001 * b)) fail_msg("%g is not %g", a, b);
}

#define PRODUCT                                                                                    \
  DOT("%p", "%a", "%b", "(tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>")             \
  "%t = stablehlo.tanh %p : tensor<64x16xf32>\n"
#define SECOND                                                                                     \
  DOT("%q", "%a", "%b", "(tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>")             \
  "%s = stablehlo.add %t, %q : tensor<64x16xf32>\n"
#define PARAMS "%a: tensor<64x32xf32>, %b: tensor<32x16xf32>, %unused: tensor<1000x1000xf32>"

static void each_array_counts_once(void **state) {
  (void)state;
  static const char once[] =
      MAIN(PARAMS, "tensor<64x16xf32>", PRODUCT "return %t : tensor<64x16xf32>\n");
  static const char again[] =
      MAIN(PARAMS, "tensor<64x16xf32>", PRODUCT SECOND "return %s : tensor<64x16xf32>\n");
  vt_roofline r = of(once, "v3-8", 1);
  assert_true(r.flops == 2.0 * 64 * 32 * 16 + 64 * 16);
  assert_true(r.transcendentals == 64 * 16);
  assert_true(r.bytes == 4 * (64 * 32 + 32 * 16 + 64 * 16));
  assert_true(r.exact_trips);
  assert_near(r.seconds, r.bytes / (900e9 / 2)); // one of two cores of a chip; memory bound
  assert_true(r.usd > 0);
  assert_near(of(once, "v3-8", 8).seconds, r.seconds / 8);
  assert_true(of(again, "v3-8", 1).bytes == r.bytes);
}

// Which products take less time than those of bf16, and how much.
static void narrow_products_take_less_time_where_there_are_units(void **state) {
  (void)state;
  static const struct {
    const char *slice, *lhs, *rhs;
    int32_t devices;
    double flops_per_s;
  } rows[] = {
      {"v4-8", "i8", "i8", 1, 275e12},
      {"v5e-1", "i8", "i8", 1, 2 * 197e12},
      {"v5e-1", "i4", "i4", 1, 4 * 197e12},
      {"v5e-1", "i4", "i8", 1, 2 * 197e12},
      {"v5e-1", "bf16", "i8", 1, 197e12},
      {"v6e-1", "f8E4M3FN", "f8E4M3FN", 1, 918e12},
      {"tpu7x-8", "f8E4M3FN", "f8E5M2", 2, 2 * 2307e12},
      {"tpu7x-8", "f8E4M3FN", "i8", 2, 2307e12},
      {"tpu7x-8", "i8", "i8", 2, 2307e12}, // no units for integers
      {"tpu7x-8", "i4", "i4", 2, 2307e12},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_text text = {0};
    vt_text_printf(&text,
                   "module { func.func public @main(%%a: tensor<8192x8192x%s>, "
                   "%%b: tensor<8192x8192x%s>) -> tensor<8192x8192xf32> {\n"
                   "%%p = stablehlo.dot_general %%a, %%b, contracting_dims = [1] x [0] : "
                   "(tensor<8192x8192x%s>, tensor<8192x8192x%s>) -> tensor<8192x8192xf32>\n"
                   "return %%p : tensor<8192x8192xf32>\n} }\n",
                   rows[i].lhs, rows[i].rhs, rows[i].lhs, rows[i].rhs);
    assert_near(of(vt_text_string(&text), rows[i].slice, rows[i].devices).seconds,
                2.0 * 8192 * 8192 * 8192 / rows[i].flops_per_s);
    vt_text_free(&text);
  }
}

typedef struct conv_row {
  int in, window, out, stride, low, high, in_dilation, window_dilation, groups, pairs;
} conv_row;

static void products_with_padding_do_not_count(void **state) {
  (void)state;
  static const conv_row rows[] = {
      {8, 3, 6, 1, 0, 0, 1, 1, 1, 18}, // no padding: all
      {7, 3, 7, 1, 1, 1, 1, 1, 1, 19}, // the ends hit two
      {8, 3, 4, 2, 0, 1, 1, 1, 1, 11}, // stride, padding on one side
      {4, 3, 9, 1, 2, 2, 2, 1, 1, 12}, // as a transposed convolution: each element hits each weight
      {9, 3, 5, 1, 0, 0, 1, 2, 1, 15}, // dilated window
      {4, 2, 3, 3, 1, 2, 2, 1, 1, 3},  // at 0 and 1, 2 and 3, 5 and 6 less one of padding: 0, 2, 6
      {8, 1, 4, 2, 0, -1, 1, 1, 4, 4},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const conv_row *r = &rows[i];
    vt_text text = {0};
    vt_text_printf(
        &text,
        "module { func.func public @main(%%x: tensor<5x%dx8xf32>, %%k: tensor<%dx%dx16xf32>) -> "
        "tensor<5x%dx16xf32> {\n%%y = stablehlo.convolution(%%x, %%k) dim_numbers = [b, 0, f]x[0, "
        "i, o]->[b, 0, f], window = {stride = [%d], pad = [[%d, %d]], lhs_dilate = [%d], "
        "rhs_dilate = [%d]} {batch_group_count = 1 : i64, feature_group_count = %d : i64} : "
        "(tensor<5x%dx8xf32>, tensor<%dx%dx16xf32>) -> tensor<5x%dx16xf32>\nreturn %%y : "
        "tensor<5x%dx16xf32>\n} }\n",
        r->in, r->window, 8 / r->groups, r->out, r->stride, r->low, r->high, r->in_dilation,
        r->window_dilation, r->groups, r->in, r->window, 8 / r->groups, r->out, r->out);
    double flops = of(vt_text_string(&text), "v3-8", 1).flops;
    double want = 2.0 * 5 * 16 * (8.0 / (double)r->groups) * (double)r->pairs;
    if (flops != want) fail_msg("row %zu: %g flops, not %g", i, flops, want);
    vt_text_free(&text);
  }
}

// A reduction reads its operand once; of a sliced argument only the slice is read.
static void reductions_read_once_and_slices_their_part(void **state) {
  (void)state;
  vt_roofline r = of(
      MAIN("%x: tensor<1024x256xf32>", "tensor<16xf32>",
           "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
           "%s = stablehlo.slice %x [0:16, 0:256] : (tensor<1024x256xf32>) -> tensor<16x256xf32>\n"
           "%e = stablehlo.exponential %s : tensor<16x256xf32>\n"
           "%r = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1] :"
           " (tensor<16x256xf32>, tensor<f32>) -> tensor<16xf32>\n"
           "return %r : tensor<16xf32>\n"),
      "v3-8", 1);
  assert_true(r.flops == 2 * 16 * 256 && r.transcendentals == 16 * 256);
  assert_true(r.bytes == 4 * (16 * 256 + 16));
}

#define SLICE_OF(name, bounds, type)                                                               \
  name " = stablehlo.slice %x [" bounds "] : (tensor<1024x256xf32>) -> " type "\n"
#define SUM_OF(first, second, type)                                                                \
  MAIN("%x: tensor<1024x256xf32>", type,                                                           \
       SLICE_OF("%a", first, type)                                                                 \
           SLICE_OF("%b", second, type) "%s = stablehlo.add %a, %b : " type "\n"                   \
                                        "return %s : " type "\n")

// Of several slices of an array all elements are read, once.
static void slices_add_up(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double read, written; // elements
  } rows[] = {
      {SUM_OF("0:512, 0:256", "512:1024, 0:256", "tensor<512x256xf32>"), 1024 * 256, 512 * 256},
      {SUM_OF("0:1024, 0:256:2", "0:1024, 1:256:2", "tensor<1024x128xf32>"), 1024 * 256,
       1024 * 128},
      {SUM_OF("0:16, 0:256", "8:24, 0:256", "tensor<16x256xf32>"), 16 * 256, 16 * 256}, // at least
      {SUM_OF("0:16, 0:128", "8:24, 128:256", "tensor<16x128xf32>"), 32 * 128, 16 * 128},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_near(of(rows[i].text, "v3-8", 1).bytes, 4 * (rows[i].read + rows[i].written));
}

// An argument that is updated in place costs no further read or write.
static void updates_are_in_place(void **state) {
  (void)state;
  static const char text[] =
      MAIN("%c: tensor<4096x128xf32>, %r: tensor<1x128xf32>", "tensor<4096x128xf32>",
           "%i = stablehlo.constant dense<3> : tensor<i32>\n"
           "%j = stablehlo.constant dense<0> : tensor<i32>\n"
           "%n = stablehlo.dynamic_update_slice %c, %r, %i, %j : (tensor<4096x128xf32>, "
           "tensor<1x128xf32>, tensor<i32>, tensor<i32>) -> tensor<4096x128xf32>\n"
           "return %n : tensor<4096x128xf32>\n");
  assert_true(of(text, "v3-8", 1).bytes == 4 * 2 * 128);
}

// for (i = 0; i < 10; i += step) x = x . weights
#define LOOP(result, x, weights, types, type)                                                      \
  result ":2 = stablehlo.while(%i = %zero, %y = " x ") : tensor<i32>, " type "\n"                  \
         "cond {\n"                                                                                \
         "  %ten = stablehlo.constant dense<10> : tensor<i32>\n"                                   \
         "  %less = stablehlo.compare LT, %i, %ten, SIGNED :"                                      \
         " (tensor<i32>, tensor<i32>) -> tensor<i1>\n"                                             \
         "  stablehlo.return %less : tensor<i1>\n"                                                 \
         "} do {\n"                                                                                \
         "  %j = stablehlo.add %i, %step : tensor<i32>\n"                                          \
         "  " DOT("%q", "%y", weights, types) "  stablehlo.return %j, %q : tensor<i32>, " type     \
                                              "\n}\n"
#define SQUARE "tensor<4096x4096xf32>"
#define ROWS   "tensor<8x4096xf32>"
#define TRIPS(params, step)                                                                        \
  MAIN("%a: " ROWS ", %b: " SQUARE params, ROWS,                                                   \
       "%zero = stablehlo.constant dense<0> : tensor<i32>\n" step LOOP(                            \
           "%l", "%a", "%b", "(" ROWS ", " SQUARE ") -> " ROWS, ROWS) "return %l#1 : " ROWS "\n")

// The step matters: 0, 4, 8. Weights beyond what the chip can keep are read on every trip.
static void trips_are_counted(void **state) {
  (void)state;
  double weights = 4.0 * 4096 * 4096, x = 4.0 * 8 * 4096, product = 2.0 * 8 * 4096 * 4096;
  vt_roofline r = of(TRIPS("", "%step = stablehlo.constant dense<4> : tensor<i32>\n"), "v3-8", 1);
  assert_true(r.exact_trips);
  assert_true(r.flops == 3 * (product + 1) + 4); // one addition per trip, one more comparison
  assert_near(r.bytes, 3 * weights + 2 * x - 2 * (16 << 20));
  r = of(TRIPS(", %step: tensor<i32>", ""), "v3-8", 1);
  assert_false(r.exact_trips);
  assert_true(r.flops == product + 1 + 2);             // reported once
  assert_true(r.bytes <= x && r.seconds <= x / 450e9); // possibly never
}

#define CHOICE(params, cheap, result)                                                              \
  MAIN("%c: tensor<i1>, %a: " SQUARE params, SQUARE,                                               \
       "%r = \"stablehlo.if\"(%c) ({\n" DOT(                                                       \
           "%p", "%a", "%a",                                                                       \
           "(" SQUARE ", " SQUARE ") -> " SQUARE) "  stablehlo.return %p : " SQUARE                \
                                                  "\n}, {\n" cheap "  stablehlo.return " result    \
                                                  " : " SQUARE "\n}) : (tensor<i1>) -> " SQUARE    \
                                                  "\nreturn %r : " SQUARE "\n")

// The dearest branch need not be the one that runs.
static void the_dearest_branch_counts(void **state) {
  (void)state;
  vt_roofline r = of(CHOICE("", "", "%a"), "v3-8", 1);
  assert_true(r.flops == 2.0 * 4096 * 4096 * 4096 && r.exact_trips);
  assert_true(r.seconds < 1e-9 + 2 * 4.0 * 4096 * 4096 / 450e9);
  // A loop of unknown trip count, in the branch that looks cheap.
  r = of(CHOICE(", %step: tensor<i32>",
                "  %zero = stablehlo.constant dense<0> : tensor<i32>\n" LOOP(
                    "%l", "%a", "%a", "(" SQUARE ", " SQUARE ") -> " SQUARE, SQUARE),
                "%l#1"),
         "v3-8", 1);
  assert_false(r.exact_trips);
}

#define MANUAL(result, x, axis, local)                                                             \
  result " = sdy.manual_computation(" x ") in_shardings=[<@mesh, [{\"" axis "\"}, {}]>] "          \
         "out_shardings=[<@mesh, [{\"" axis "\"}, {}]>] manual_axes={\"" axis "\"} (" local        \
         ") {\n"
#define PART(name, x, rows)                                                                        \
  "%k = stablehlo.iota dim = 0 : tensor<512x512xf32>\n" DOT(                                       \
      name, x, "%k",                                                                               \
      "(tensor<" rows "x512xf32>, tensor<512x512xf32>) -> tensor<" rows "x512xf32>")
#define END(value, rows, whole)                                                                    \
  "sdy.return " value " : tensor<" rows "x512xf32>\n} : (tensor<" whole                            \
  "x512xf32>) -> tensor<" whole "x512xf32>\n"
#define MESHED(axes, body)                                                                         \
  "module { sdy.mesh @mesh = <[" axes "]>\nfunc.func public @main(%x: tensor<4096x512xf32>) -> "   \
  "tensor<4096x512xf32> {\n" body "return %r : tensor<4096x512xf32>\n} }\n"
#define GRID "\"x\"=4, \"y\"=2"

// The same product [4096,512] x [512,512] takes an eighth of the time on eight devices however it
// is divided.
static void manual_regions_divide_the_time(void **state) {
  (void)state;
  static const struct {
    const char *way, *text;
    int copies; // of what a device computes for itself
  } rows[] = {{"by the compiler", MESHED(GRID, PART("%r", "%x", "4096")), 1},
              {"over all axes",
               MESHED("\"x\"=8", MANUAL("%r", "%x", "x", "%u: tensor<512x512xf32>")
                                     PART("%v", "%u", "512") END("%v", "512", "4096")),
               8},
              {"over one axis", // the other is left to the compiler
               MESHED(GRID, MANUAL("%r", "%x", "x", "%u: tensor<1024x512xf32>")
                                PART("%v", "%u", "1024") END("%v", "1024", "4096")),
               4},
              {"in two levels",
               MESHED(GRID, MANUAL("%r", "%x", "x", "%u: tensor<1024x512xf32>") MANUAL(
                                "%v", "%u", "y", "%w: tensor<512x512xf32>") PART("%q", "%w", "512")
                                END("%q", "512", "1024") END("%v", "1024", "4096")),
               8}};
  const double want = 2.0 * 4096 * 512 * 512;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double iotas = 512 * 512 * rows[i].copies;
    vt_roofline r = of(rows[i].text, "v3-8", 8);
    if (r.flops != want + iotas)
      fail_msg("%s: %g flops, not %g", rows[i].way, r.flops, want + iotas);
    assert_true(r.bytes >= 4.0 * 4096 * 512 && r.bytes <= 2 * 4.0 * 4096 * 512);
    double products = want / (4 * 123e12), bytes = r.bytes / (4 * 900e9);
    assert_near(r.seconds, products > bytes ? products : bytes);
  }
}

static void logarithms_are_ours(void **state) {
  (void)state;
  for (int i = -20; i <= 60; i++) assert_true(vt_log2(ldexp(1, i)) == i);
  for (double x = 1; x < 1e12; x *= 1.37)
    assert_true(fabs(vt_log2(x) - log2(x)) <= 1e-15 * (1 + log2(x)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_array_counts_once),
      cmocka_unit_test(narrow_products_take_less_time_where_there_are_units),
      cmocka_unit_test(products_with_padding_do_not_count),
      cmocka_unit_test(reductions_read_once_and_slices_their_part),
      cmocka_unit_test(slices_add_up),
      cmocka_unit_test(updates_are_in_place),
      cmocka_unit_test(trips_are_counted),
      cmocka_unit_test(the_dearest_branch_counts),
      cmocka_unit_test(manual_regions_divide_the_time),
      cmocka_unit_test(logarithms_are_ours),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
