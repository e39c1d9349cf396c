// SPDX-License-Identifier: Apache-2.0
// complex_test.c - code for complex numbers against the evaluator, bit for bit: each op by itself,
// and some fused, on pairs of special and ordinary numbers. That they have code.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "host/compiled_text.h"
#include "host/plan.h"
#include "ir/number.h"

enum { ROWS = 61, COLUMNS = 37, COUNT = ROWS * COLUMNS };
#define C "tensor<61x37xcomplex<f32>>"
#define F "tensor<61x37xf32>"
#define P "tensor<61x37xi1>"

// From %x and %y: %r, whose elements have this many bytes.
typedef struct row {
  const char *code, *type;
  int bytes;
} row;
#define ONE(op, to, bytes) {"%r = stablehlo." op " %x : (" C ") -> " to "\n", to, bytes}
#define TWO(op)            {"%r = stablehlo." op " %x, %y : " C "\n", C, 8}
#define PARTS                                                                                      \
  "%a = stablehlo.real %x : (" C ") -> " F "\n%b = stablehlo.imag %y : (" C ") -> " F "\n"

static const row rows[] = {
    ONE("real", F, 4),
    ONE("imag", F, 4),
    ONE("abs", F, 4),
    ONE("sign", C, 8),
    ONE("negate", C, 8),
    ONE("convert", F, 4),
    TWO("add"),
    TWO("subtract"),
    TWO("multiply"),
    {PARTS "%r = stablehlo.complex %a, %b : " C "\n", C, 8},
    {PARTS "%r = stablehlo.convert %a : (" F ") -> " C "\n", C, 8},
    {"%r = stablehlo.compare EQ, %x, %y : (" C ", " C ") -> " P "\n", P, 1},
    {"%r = stablehlo.compare NE, %x, %y : (" C ", " C ") -> " P "\n", P, 1},
    {PARTS "%p = stablehlo.compare LT, %a, %b : (" F ", " F ") -> " P "\n"
           "%r = stablehlo.select %p, %x, %y : " P ", " C "\n",
     C, 8},
    {"%k = stablehlo.constant dense<(2.0,-0.5)> : " C "\n%m = stablehlo.multiply %x, %k : " C "\n"
     "%s = stablehlo.slice %y [0:1, 0:37] : (" C ") -> tensor<1x37xcomplex<f32>>\n"
     "%b = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<1x37xcomplex<f32>>) -> " C "\n"
     "%d = stablehlo.subtract %m, %b : " C "\n%r = stablehlo.abs %d : (" C ") -> " F "\n",
     F, 4},
};

static vt_program *compile(const row *r, bool evaluator) {
  vt_text text = {0};
  vt_text_printf(&text, "module @m {\nfunc.func @main(%%x: " C ", %%y: " C ") -> %s {\n%s", r->type,
                 r->code);
  vt_text_printf(&text, "return %%r : %s\n}\n}\n", r->type);
  return compiled_text(&text, evaluator);
}

// Pairs of all specials as parts, then ordinary numbers of all sizes.
static void fill(float *x, int by) {
  static const float specials[] = {NAN,    INFINITY, -INFINITY, 0.0f,  -0.0f,
                                   1e-40f, 3e38f,    -1e-30f,   1e25f, 1.5f};
  enum { SPECIALS = sizeof specials / sizeof *specials };
  uint64_t random = 7 + (uint64_t)by;
  for (int i = 0; i < COUNT; i++)
    for (int part = 0; part < 2; part++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      int power = (int)(random >> 33) % (i % 3 ? 4 : 60);
      float number = ldexpf((float)(random >> 40) * 0x1p-23f - 1, i % 3 == 1 ? -power : power);
      int which = (part ? i * by : i) % (2 * SPECIALS);
      x[2 * i + part] = which < SPECIALS && i % 2 ? specials[which] : number;
    }
}

static bool same(const row *r, const void *want, const void *got) {
  if (r->bytes == 1) return !memcmp(want, got, COUNT);
  const float *a = want, *b = got;
  for (int i = 0; i < COUNT * r->bytes / 4; i++)
    if (vt_f32_bits(a[i]) != vt_f32_bits(b[i]) && !(a[i] != a[i] && b[i] != b[i])) return false;
  return true;
}

static void bits_are_the_evaluators(void **state) {
  (void)state;
  float *x = vt_host_alloc(8 * COUNT), *y = vt_host_alloc(8 * COUNT);
  void *want = vt_host_alloc(8 * COUNT), *got = vt_host_alloc(8 * COUNT);
  fill(x, 3), fill(y, 7);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_program *evaluated = compile(&rows[i], true), *compiled = compile(&rows[i], false);
    if (compiled->kernels.size != 1 || compiled->plan->step_count != 1)
      fail_msg("%s: not one kernel", rows[i].code);
    run_pair(evaluated, x, y, want);
    run_pair(compiled, x, y, got);
    if (!same(&rows[i], want, got)) fail_msg("%s: other bits", rows[i].code);
    vt_program_destroy(evaluated);
    vt_program_destroy(compiled);
  }
  vt_host_free(x), vt_host_free(y), vt_host_free(want), vt_host_free(got);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bits_are_the_evaluators)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
