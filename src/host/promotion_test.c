// SPDX-License-Identifier: Apache-2.0
// promotion_test.c - reductions whose results have a wider type than what they add up: those of the
// evaluator, bit for bit.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "host/compiled_text.h"
#include "ir/type.h"

enum { ROWS = 40, COLUMNS = 1000, COUNT = ROWS * COLUMNS };

// From %x, of 40 x 1000 elements, and %i, one: $N is their type, $W the wider one, $F the body.
typedef struct row {
  const char *code, *result;
} row;

#define BODY                                                                                       \
  "({\n^bb0(%a: tensor<$W>, %b: tensor<$W>):\n%s = stablehlo.add %a, %b : tensor<$W>\n"            \
  "stablehlo.return %s : tensor<$W>\n})"

static const row rows[] = {
    {"\"stablehlo.reduce\"(%x, %i) " BODY " {dimensions = array<i64: 1>} : (tensor<40x1000x$N>, "
     "tensor<$N>) -> tensor<40x$W>",
     "tensor<40x$W>"},
    {"\"stablehlo.reduce\"(%x, %i) " BODY " {dimensions = array<i64: 0>} : (tensor<40x1000x$N>, "
     "tensor<$N>) -> tensor<1000x$W>",
     "tensor<1000x$W>"},
    {"\"stablehlo.reduce_window\"(%x, %i) " BODY " {window_dimensions = array<i64: 2, 2>, "
     "window_strides = array<i64: 2, 2>} : (tensor<40x1000x$N>, tensor<$N>) -> tensor<20x500x$W>",
     "tensor<20x500x$W>"},
    {"\"stablehlo.reduce_window\"(%x, %i) " BODY " {window_dimensions = array<i64: 2, 1>, "
     "window_strides = array<i64: 2, 1>} : (tensor<40x1000x$N>, tensor<$N>) -> tensor<20x1000x$W>",
     "tensor<20x1000x$W>"},
    {"\"stablehlo.reduce_window\"(%x, %i) " BODY " {window_dimensions = array<i64: 1, 1000>, "
     "padding = dense<[[0, 0], [999, 0]]> : tensor<2x2xi64>} : (tensor<40x1000x$N>, tensor<$N>) -> "
     "tensor<40x1000x$W>",
     "tensor<40x1000x$W>"},
};

static const struct {
  const char *narrow, *wide;
  vt_dtype dtype;
} types[] = {{"f32", "f64", VT_F32}, {"bf16", "f32", VT_BF16}, {"i32", "i64", VT_S32}};

static void print_with(vt_text *text, const char *code, const char *narrow, const char *wide) {
  for (; *code; code++)
    if (*code == '$')
      vt_text_printf(text, "%s", *++code == 'N' ? narrow : wide);
    else
      vt_text_printf(text, "%c", *code);
}

static vt_program *compile(const row *r, int type, bool evaluator) {
  const char *narrow = types[type].narrow, *wide = types[type].wide;
  vt_text text = {0};
  print_with(&text, "func.func @main(%x: tensor<40x1000x$N>, %i: tensor<$N>) -> ", narrow, wide);
  print_with(&text, r->result, narrow, wide);
  print_with(&text, " {\n%r = ", narrow, wide);
  print_with(&text, r->code, narrow, wide);
  print_with(&text, "\nreturn %r : ", narrow, wide);
  print_with(&text, r->result, narrow, wide);
  print_with(&text, "\n}\n", narrow, wide);
  return compiled_text(&text, evaluator);
}

static void run(vt_program *program, void *x, void *init, void *out) {
  run_pair(program, x, init, out);
  vt_program_destroy(program);
}

// Small whole numbers, of which all sums are exact.
static void fill(vt_dtype dtype, void *x) {
  for (int i = 0; i < COUNT; i++) {
    int number = i * 7 % 11 - 5;
    float f = (float)number;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (dtype == VT_F32) ((float *)x)[i] = f;
    if (dtype == VT_S32) ((int32_t *)x)[i] = number;
    if (dtype == VT_BF16) ((uint16_t *)x)[i] = (uint16_t)(bits >> 16);
  }
}

static void wider_results(void **state) {
  (void)state;
  enum { BYTES = 8 * COUNT };
  char *x = vt_host_alloc(BYTES), *want = vt_host_alloc(BYTES), *got = vt_host_alloc(BYTES);
  int64_t zero = 0;
  for (int t = 0; t < (int)(sizeof types / sizeof *types); t++)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      fill(types[t].dtype, x);
      memset(want, 0, BYTES), memset(got, 0, BYTES);
      run(compile(&rows[i], t, true), x, &zero, want);
      run(compile(&rows[i], t, false), x, &zero, got);
      if (memcmp(want, got, BYTES) != 0)
        fail_msg("%s to %s: other numbers: %s", types[t].narrow, types[t].wide, rows[i].code);
    }
  vt_host_free(x), vt_host_free(want), vt_host_free(got);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(wider_results)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
