// SPDX-License-Identifier: Apache-2.0
// emit_math_test.c - the f32 functions of emit_math.c against libm in double, over inputs of all
// exponents and signs. Subnormal inputs and results are flushed on both sides: compiled code runs
// with FTZ and DAZ.
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

#include "host/fuse.h"
#include "host/kernel.h"

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
} row;

static const row rows[] = {
    {VT_OP_EXPONENTIAL, exp, 1.0, 0, -INFINITY, INFINITY},
    {VT_OP_EXPONENTIAL_MINUS_ONE, expm1, 2.0, 0, -INFINITY, INFINITY},
    {VT_OP_LOG, log, 1.0, 0, -INFINITY, INFINITY},
    {VT_OP_LOG_PLUS_ONE, log1p, 2.0, 0, -INFINITY, INFINITY},
    {VT_OP_LOGISTIC, logistic, 3.0, 0, -87, INFINITY},
    {VT_OP_TANH, tanh, 3.0, 0, -INFINITY, INFINITY},
    {VT_OP_SINE, sin, 2.0, 0x1p-24, -8192, 8192},
    {VT_OP_COSINE, cos, 2.0, 0x1p-24, -8192, 8192},
    {VT_OP_SINE, sin, 1.0, 0, 8193, INFINITY},
    {VT_OP_RSQRT, rsqrt, 1.5, 0, -INFINITY, INFINITY},
    {VT_OP_CBRT, cbrt, 1.0, 0, -INFINITY, INFINITY},
    {VT_OP_TAN, tan, 1.5, 0, -INFINITY, INFINITY},
};

// out = op(in) through a compiled kernel.
static void run_op(vt_opcode code, float *in, float *out) {
  vt_module *module = vt_module_create();
  vt_func *func = module->main = vt_func_create(module, "main");
  vt_module_add_func(module, func);
  vt_type type = vt_type_make(&module->arena, VT_F32, 1, (int64_t[]){COUNT});
  vt_value *x = vt_func_add_param(func, type), *y = vt_build(func, NULL, code, NULL, type, 1, &x);
  vt_func_set_returns(func, 1, &y);
  vt_arena arena = {0};
  vt_group *groups;
  uint32_t count;
  vt_jit *jit;
  vt_kernel *kernel;
  assert_null(vt_host_fuse(func, NULL, &arena, &groups, &count));
  assert_int_equal(count, 1);
  assert_null(vt_jit_create(&jit));
  assert_null(vt_jit_compile(jit, (const vt_group *[]){&groups[0]}, 1, &kernel));
  assert_null(vt_kernel_run(kernel, (void *[]){in}, (void *[]){out}, NULL));
  vt_jit_destroy(jit);
  vt_arena_free(&arena);
  vt_module_destroy(module);
}

static double distance(const row *r, double want, float got) {
  if (fabs(want) < FLT_MIN) return fabsf(got) < FLT_MIN ? 0 : INFINITY;
  if (want != want || got != got) return want != want && got != got ? 0 : INFINITY;
  if (isinf((float)want) || isinf(got))
    return (float)want == got ? 0 : fabs(want) >= FLT_MAX ? 1 : INFINITY;
  double size = fabs(want) > r->least ? fabs(want) : r->least;
  return fabs(want - (double)got) / ldexp(1, ilogb(size) - 23);
}

static void functions_keep_their_ulp(void **state) {
  (void)state;
  float *in = aligned_alloc(64, COUNT * sizeof *in + 128),
        *out = aligned_alloc(64, COUNT * sizeof *out + 128);
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
    run_op(r->code, in, out);
    double worst = 0;
    float at = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
      double d = distance(r, r->reference((double)in[i]), out[i]);
      if (d > worst) worst = d, at = in[i];
    }
    print_message("%-24s worst %.3f ulp at %a, allowed %.1f\n", vt_op_short_name(r->code), worst,
                  (double)at, r->ulp);
    assert_true(worst <= r->ulp);
  }
  free(in);
  free(out);
}

int main(void) {
#pragma omp parallel
  _mm_setcsr(_mm_getcsr() | 0x8040);
  setenv("VTPU_CACHE_DIR", "", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(functions_keep_their_ulp)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
