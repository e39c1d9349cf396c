// SPDX-License-Identifier: Apache-2.0
// panels_test.c - products of panels.c against sums in f64: rows and columns that fill no block or
// panel, several depths, both orders of both sides, panels of f32 and of bf16, a bias, sums
// on top of others, the same bits on any number of threads and in blocks along K.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <string.h>

#include "host/host.h"
#include "host/panels.h"
#include "ir/number.h"

static const int64_t shapes[][3] = {{1, 1, 1},      {2, 16, 9},     {6, 17, 256},
                                    {7, 48, 257},   {16, 33, 40},   {17, 15, 300},
                                    {133, 70, 513}, {250, 130, 64}, {1999, 20, 270}};

static float draw(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return vt_f32_from_bf16(vt_bf16_from_f32((float)(int32_t)*state * 0x1p-31f));
}

static float *drawn(int64_t count, uint32_t *state) {
  float *out = vt_host_alloc(count * (int64_t)sizeof(float));
  for (int64_t i = 0; i < count; i++) out[i] = draw(state);
  return out;
}

static void compare(const vt_panels *p, const float *lhs, const float *rhs, const float *bias,
                    const float *before, const float *out) {
  for (int64_t m = 0; m < p->m; m++)
    for (int64_t n = 0; n < p->n; n++) {
      double sum = bias ? (double)bias[n] : 0;
      if (p->adds) sum += (double)before[m * p->out_row + n];
      for (int64_t k = 0; k < p->k; k++)
        sum += (double)lhs[m * p->lhs_row + k * p->lhs_column] *
               (double)rhs[k * p->rhs_row + n * p->rhs_column];
      float got = out[m * p->out_row + n];
      if (!(fabs((double)got - sum) <= 1e-6 * sqrt((double)p->k) + 1e-6))
        fail_msg("%d x %d x %d at %d, %d: %g for %g", (int)p->m, (int)p->n, (int)p->k, (int)m,
                 (int)n, (double)got, sum);
    }
}

static void multiply(const vt_panels *p, const float *lhs, const float *rhs, const float *bias,
                     float *out) {
  void *panels = vt_host_alloc(p->rhs_bytes), *scratch = vt_host_alloc(p->lhs_bytes);
  vt_panels_lay(p, rhs, panels);
  vt_panels_run(p, lhs, panels, bias, out, scratch);
  vt_host_free(panels);
  vt_host_free(scratch);
}

static void products_match(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int form = 0; form < 32; form++) {
      uint32_t seed = (uint32_t)i;
      int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
      bool left = form & 1, right = form & 2; // stored by columns
      vt_panels p = {.m = m,
                     .n = n,
                     .k = k,
                     .lhs_row = left ? 1 : k,
                     .lhs_column = left ? m : 1,
                     .rhs_row = right ? 1 : n,
                     .rhs_column = right ? k : 1,
                     .out_row = n + 3,
                     .bias = form & 4,
                     .adds = form & 16,
                     .kept = true,
                     .bf16 = form & 8};
      if (!vt_panels_prepare(&p, true)) skip(); // another processor
      assert_int_equal(p.panel, p.bf16 && m <= 16 ? VT_BF16 : VT_F32);
      int64_t results = m * p.out_row;
      float *lhs = drawn(m * k, &seed), *rhs = drawn(k * n, &seed), *bias = drawn(n, &seed);
      float *out = drawn(results, &seed), *alone = drawn(results, &seed);
      float *before = drawn(results, &seed);
      memcpy(alone, out, (size_t)results * sizeof *out);
      memcpy(before, out, (size_t)results * sizeof *out);
      multiply(&p, lhs, rhs, p.bias ? bias : NULL, out);
      compare(&p, lhs, rhs, p.bias ? bias : NULL, before, out);
      int threads = omp_get_max_threads();
      omp_set_num_threads(1);
      multiply(&p, lhs, rhs, p.bias ? bias : NULL, alone);
      omp_set_num_threads(threads);
      assert_memory_equal(out, alone, (size_t)results * sizeof *out); // nothing beyond a row's end
      float *all[] = {lhs, rhs, bias, out, alone, before};
      for (int f = 0; f < 6; f++) vt_host_free(all[f]);
    }
}

// Products of blocks of K, each added to the sum of those before.
static void add_blocks(const vt_panels *whole, int64_t block, const float *lhs, const float *rhs,
                       float *out) {
  for (int64_t at = 0; at < whole->k; at += block) {
    vt_panels p = *whole;
    p.k = whole->k - at < block ? whole->k - at : block;
    p.adds = at > 0;
    assert_true(vt_panels_prepare(&p, true));
    multiply(&p, lhs + at, rhs + at * p.rhs_row, NULL, out);
  }
}

// Blocks of 128 add up to the bits of the whole product; a product that is added to something has
// the bits of the product and an addition.
static void blocks_add_up(void **state) {
  (void)state;
  enum { M = 37, N = 50, K = 700 };
  uint32_t seed = 7;
  vt_panels p = {.m = M, .n = N, .k = K, .lhs_row = K, .lhs_column = 1, .rhs_row = N, .out_row = N};
  p.rhs_column = 1;
  if (!vt_panels_prepare(&p, true)) skip(); // another processor
  float *lhs = drawn(M * K, &seed), *rhs = drawn(K * N, &seed);
  float *whole = drawn(M * N, &seed), *sum = drawn(M * N, &seed), *part = drawn(M * N, &seed);
  multiply(&p, lhs, rhs, NULL, whole);
  add_blocks(&p, 128, lhs, rhs, sum);
  assert_memory_equal(whole, sum, M * N * sizeof *sum);
  for (int64_t block = 200; block <= 400; block += 200) {
    memset(sum, 0, M * N * sizeof *sum);
    for (int64_t at = 0; at < K; at += block) {
      vt_panels one = p;
      one.k = K - at < block ? K - at : block;
      assert_true(vt_panels_prepare(&one, true));
      multiply(&one, lhs + at, rhs + at * N, NULL, part);
      for (int64_t i = 0; i < M * N; i++) sum[i] += part[i];
    }
    add_blocks(&p, block, lhs, rhs, whole);
    assert_memory_equal(whole, sum, M * N * sizeof *sum);
  }
  float *all[] = {lhs, rhs, whole, sum, part};
  for (int f = 0; f < 5; f++) vt_host_free(all[f]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_match),
                                     cmocka_unit_test(blocks_add_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
