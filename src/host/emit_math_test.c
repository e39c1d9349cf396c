// SPDX-License-Identifier: Apache-2.0
// emit_math_test.c - the f32 functions of emit_math.c against libm in double, over inputs of all
// exponents and signs, and against the evaluator at the edges of their domains. Subnormal inputs
// and results are flushed on both sides: compiled code runs with FTZ and DAZ.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#include "eval/vec.h"
#include "host/cpu.h"
#include "host/fuse.h"
#include "host/kernel.h"
#include "ir/number.h"

enum { COUNT = 1 << 20 };

static double logistic(double x) {
  return 1 / (1 + exp(-x));
}
static double rsqrt(double x) {
  return 1 / sqrt(x);
}

typedef struct row {
  vt_opcode code;
  double (*reference)(double);
  double ulp;      // allowed
  double least;    // results smaller than this count in ulp of this
  float low, high; // inputs outside are skipped
  double by_table; // allowed with AVX-512, which has tables; 0: the same
} row;

static const row rows[] = {
    {VT_OP_EXPONENTIAL, exp, 1.0, 0, -INFINITY, INFINITY, 0.6},
    {VT_OP_EXPONENTIAL_MINUS_ONE, expm1, 2.0, 0, -INFINITY, INFINITY, 0},
    {VT_OP_LOG, log, 1.0, 0, -INFINITY, INFINITY, 0},
    {VT_OP_LOG_PLUS_ONE, log1p, 2.0, 0, -INFINITY, INFINITY, 0},
    {VT_OP_LOGISTIC, logistic, 3.0, 0, -87, INFINITY, 0},
    {VT_OP_TANH, tanh, 3.0, 0, -INFINITY, INFINITY, 1.2},
    {VT_OP_ERF, erf, 2.0, 0, -INFINITY, INFINITY, 0},
    {VT_OP_ERFC, erfc, 5.0, 0, -INFINITY, INFINITY, 2.5},
    {VT_OP_SINE, sin, 2.0, 0x1p-24, -8192, 8192, 0},
    {VT_OP_COSINE, cos, 2.0, 0x1p-24, -8192, 8192, 0},
    {VT_OP_SINE, sin, 1.0, 0, 8193, INFINITY, 0},
    {VT_OP_RSQRT, rsqrt, 1.5, 0, -INFINITY, INFINITY, 0},
    {VT_OP_CBRT, cbrt, 1.0, 0, -INFINITY, INFINITY, 0},
    {VT_OP_TAN, tan, 1.5, 0, -INFINITY, INFINITY, 0},
};

// out = op(in...) through a compiled kernel.
static void run_op(vt_opcode code, uint32_t count, float *const *in, float *out) {
  vt_module *module = vt_module_create();
  vt_func *func = module->main = vt_func_create(module, "main");
  vt_module_add_func(module, func);
  vt_type type = vt_type_make(&module->arena, VT_F32, 1, (int64_t[]){COUNT});
  vt_value *operands[2];
  for (uint32_t i = 0; i < count; i++) operands[i] = vt_func_add_param(func, type);
  vt_value *y = vt_build(func, NULL, code, NULL, type, count, operands);
  vt_func_set_returns(func, 1, &y);
  vt_arena arena = {0};
  vt_group *groups;
  uint32_t group_count;
  vt_jit *jit;
  vt_kernel *kernel;
  assert_null(vt_host_fuse(func, NULL, &arena, &groups, &group_count));
  assert_int_equal(group_count, 1);
  assert_null(vt_jit_create(&jit));
  assert_null(vt_jit_compile(jit, (const vt_group *[]){&groups[0]}, 1, &kernel));
  assert_null(vt_kernel_run(kernel, (void *[]){in[0], in[count - 1]}, (void *[]){out}, NULL));
  vt_jit_destroy(jit);
  vt_arena_free(&arena);
  vt_module_destroy(module);
}

static double distance(double least, double want, float got) {
  if (fabs(want) < FLT_MIN) return fabsf(got) < FLT_MIN ? 0 : INFINITY;
  if (want != want || got != got) return want != want && got != got ? 0 : INFINITY;
  if (isinf((float)want) || isinf(got))
    return (float)want == got ? 0 : fabs(want) >= FLT_MAX ? 1 : INFINITY;
  double size = fabs(want) > least ? fabs(want) : least;
  return fabs(want - (double)got) / ldexp(1, ilogb(size) - 23);
}

static float *new_floats(void) {
  float *x = aligned_alloc(64, COUNT * sizeof *x + 128);
  assert_non_null(x);
  return x;
}

static void functions_keep_their_ulp(void **state) {
  (void)state;
  float *in = new_floats(), *out = new_floats();
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    const row *r = &rows[k];
    for (uint32_t i = 0; i < COUNT;
         i++) { // every 4096th bit pattern, jittered; half of them near one
      uint32_t bits = (i >> 1) * 8192 + i * 2654435761u % 8192;
      if (i & 1) bits = 0x3c000000u + (bits & 0x87ffffffu);
      memcpy(&in[i], &bits, 4);
      if (fabsf(in[i]) < FLT_MIN) in[i] = 0;
      if (!(in[i] >= r->low && in[i] <= r->high)) in[i] = r->high < INFINITY ? r->high : 1e4f;
    }
    run_op(r->code, 1, &in, out);
    double worst = 0, allowed = r->by_table && vt_host_level() == 4 ? r->by_table : r->ulp;
    float at = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
      double d = distance(r->least, r->reference((double)in[i]), out[i]);
      if (d > worst) worst = d, at = in[i];
    }
    print_message("%-24s worst %.3f ulp at %a, allowed %.1f\n", vt_op_short_name(r->code), worst,
                  (double)at, allowed);
    assert_true(worst <= allowed);
  }
  free(in);
  free(out);
}

typedef struct row2 {
  vt_opcode code;
  double (*reference)(double, double);
  double ulp;
} row2;

static const row2 rows2[] = {
    {VT_OP_POWER, pow, 1.0}, {VT_OP_ATAN2, atan2, 2.0}, {VT_OP_REMAINDER, fmod, 0}};

static float random_float(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  uint32_t bits = (uint32_t)(*state >> 32);
  float x;
  memcpy(&x, &bits, 4);
  return fabsf(x) < FLT_MIN || x != x ? 1 : x;
}

// Second operands: of any size, of the size of the first, and exponents of finite powers.
static void fill_pairs(float *x, float *y) {
  uint64_t state = 1;
  for (uint32_t i = 0; i < COUNT; i++) {
    x[i] = random_float(&state), y[i] = random_float(&state);
    float mantissa = y[i] * ldexpf(1, -ilogbf(y[i]));
    if (i % 4 == 1) y[i] = ldexpf(mantissa, ilogbf(x[i]) / 2 * 2);
    if (i % 4 == 2) x[i] = fabsf(x[i]), y[i] = mantissa * 64 / (1 + fabsf(log2f(x[i])));
    if (i % 4 == 3) x[i] = x[i] * ldexpf(1, -ilogbf(x[i])), y[i] = roundf(mantissa * 60);
    if (fabsf(y[i]) < FLT_MIN) y[i] = 0;
  }
}

static void functions_of_two_keep_their_ulp(void **state) {
  (void)state;
  float *in[2] = {new_floats(), new_floats()}, *out = new_floats();
  fill_pairs(in[0], in[1]);
  for (size_t k = 0; k < sizeof rows2 / sizeof *rows2; k++) {
    const row2 *r = &rows2[k];
    run_op(r->code, 2, in, out);
    double worst = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
      double d = distance(0, r->reference((double)in[0][i], (double)in[1][i]), out[i]);
      if (d > worst) worst = d, at = i;
    }
    print_message("%-24s worst %.3f ulp at %a, %a, allowed %.1f\n", vt_op_short_name(r->code),
                  worst, (double)in[0][at], (double)in[1][at], r->ulp);
    assert_true(worst <= r->ulp);
  }
  for (int i = 0; i < 2; i++) free(in[i]);
  free(out);
}

// ---- The edges: what the evaluator says, to an ulp.

static const float edges[] = {0,          1,           2,
                              3,          0.5F,        1.5F,
                              0x1p-126F,  0x1.8p-149F, 0x1.fffffep-127F,
                              0x1p-75F,   8,           27,
                              0x1p23F,    0x1p24F,     0x1.8p24F,
                              16777215,   8388607.5F,  0x1.fffffep127F,
                              0x1p127F,   1e30F,       100,
                              -3e-39F,    0.99999994F, 1.0000001F,
                              126,        127,         128,
                              149,        150,         1e-5F,
                              0x1p-24F,   88.722832F,  88.72284F,
                              87.336540F, 87.336548F,  3.1415927F,
                              INFINITY,   NAN};
enum { EDGES = 2 * sizeof edges / sizeof *edges };

static float edge(uint32_t i) {
  float x = edges[i / 2 % (EDGES / 2)];
  return i % 2 ? -x : x;
}

static float flushed(float x) {
  return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

// Equal but for an ulp or two; zeros also in sign.
static bool agrees(float want, float got) {
  if (want != want || got != got) return want != want && got != got;
  if (want == 0 || got == 0) return want == got && !signbit(want) == !signbit(got);
  if (isinf(want) || isinf(got)) return want == got;
  return fabs((double)want - (double)got) <= 3 * ldexp(1, ilogbf(want) - 23);
}

static void check_edges(vt_opcode code, uint32_t count, float *const *in, float *out) {
  float *want = new_floats();
  for (uint32_t i = 0; i < COUNT; i++)
    in[0][i] = edge(i), in[count - 1][i] = edge(i / (count > 1 ? EDGES : 1));
  run_op(code, count, in, out);
  for (uint32_t i = 0; i < COUNT; i++)
    for (uint32_t k = 0; k < count; k++) in[k][i] = flushed(in[k][i]);
  vt_vec_op(VT_VEC_F32, code)(EDGES * EDGES, in[0], in[count - 1], NULL, want, 0);
  for (uint32_t i = 0; i < EDGES * EDGES; i++) {
    float w = flushed(want[i]), g = flushed(out[i]);
    if (!agrees(w, g))
      fail_msg("%s of %a, %a: %a, evaluator %a", vt_op_short_name(code), (double)in[0][i],
               (double)in[count - 1][i], (double)g, (double)w);
  }
  free(want);
}

static void edges_are_the_evaluators(void **state) {
  (void)state;
  float *in[2] = {new_floats(), new_floats()}, *out = new_floats();
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) check_edges(rows[k].code, 1, in, out);
  for (size_t k = 0; k < sizeof rows2 / sizeof *rows2; k++) check_edges(rows2[k].code, 2, in, out);
  check_edges(VT_OP_ROUND_NEAREST_AFZ, 1, in, out);
  for (int i = 0; i < 2; i++) free(in[i]);
  free(out);
}

// Arithmetic that looks at bits: no result is subnormal.
static void subnormals_are_zeros(void **state) {
  (void)state;
  static const vt_opcode codes[] = {VT_OP_SIGN, VT_OP_REMAINDER};
  float *in[2] = {new_floats(), new_floats()}, *out = new_floats();
  for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
    for (uint32_t i = 0; i < COUNT; i++) in[0][i] = edge(i), in[1][i] = edge(i / EDGES);
    run_op(codes[k], k ? 2 : 1, in, out);
    for (uint32_t i = 0; i < EDGES * EDGES; i++) {
      float zero = flushed(out[i]);
      if (memcmp(&zero, &out[i], sizeof zero))
        fail_msg("%s of %a, %a: %a", vt_op_short_name(codes[k]), (double)edge(i),
                 (double)edge(i / EDGES), vt_f64_from_f32_exact(out[i]));
    }
  }
  for (int i = 0; i < 2; i++) free(in[i]);
  free(out);
}

int main(void) {
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() | 0x8040);
  setenv("VTPU_CACHE_DIR", "", 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_keep_their_ulp), cmocka_unit_test(functions_of_two_keep_their_ulp),
      cmocka_unit_test(edges_are_the_evaluators), cmocka_unit_test(subnormals_are_zeros)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
