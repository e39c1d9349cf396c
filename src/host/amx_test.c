// SPDX-License-Identifier: Apache-2.0
// amx_test.c - products on the matrix unit against a triple loop, over random sizes, strides,
// batches, biases and result types. Small integers, so every order of summation gives the same
// result.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/amx.h"
#include "host/cpu.h"

enum { ROUNDS = 300 };

typedef struct arrays {
  uint16_t *lhs, *rhs;
  float *bias;
  char *out, *scratch;
  int64_t out_bytes;
} arrays;

static uint32_t seed = 1;
static int64_t below(int64_t bound) {
  seed = seed * 1664525u + 1013904223u;
  return (int64_t)(seed >> 8) % bound;
}

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bf16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void *aligned(int64_t bytes) {
  void *memory = NULL;
  assert_int_equal(posix_memalign(&memory, 64, (size_t)bytes + 64), 0);
  memset(memory, 0x7e, (size_t)bytes + 64);
  return memory;
}

// A product of about the given size; sides in both orders, rows sometimes padded, one side
// sometimes shared by the whole batch.
static vt_amx_product random_product(int64_t m, int64_t n, int64_t k, int64_t items) {
  vt_amx_product p = {.m = m, .n = n, .k = k, .bias = below(2)};
  p.out = below(3) ? VT_F32 : VT_BF16;
  int64_t lhs_apart = below(2) * 3, rhs_apart = below(2) * 5;
  bool lhs_turned = below(2), rhs_turned = below(2);
  p.lhs_row = lhs_turned ? 1 : k + lhs_apart, p.lhs_column = lhs_turned ? m + lhs_apart : 1;
  p.rhs_row = rhs_turned ? 1 : n + rhs_apart, p.rhs_column = rhs_turned ? k + rhs_apart : 1;
  p.out_row = n + below(2) * 7;
  if (items > 1) {
    p.batch_rank = 1;
    p.batch_sizes[0] = items;
    p.batch_strides[0][0] = below(3) ? (m + 3) * (k + 3) : 0;
    p.batch_strides[1][0] = below(3) ? (n + 5) * (k + 5) : 0;
    p.batch_strides[2][0] = m * p.out_row;
  }
  return p;
}

static arrays make_arrays(const vt_amx_product *p, bool fractions) {
  int64_t lhs = p->items * (p->m + 3) * (p->k + 3), rhs = p->items * (p->n + 5) * (p->k + 5);
  arrays a = {.lhs = aligned(2 * lhs), .rhs = aligned(2 * rhs), .bias = aligned(4 * p->n)};
  a.out_bytes = p->items * p->m * p->out_row * (int64_t)vt_dtype_bytes(p->out);
  a.out = aligned(a.out_bytes);
  a.scratch = aligned(p->scratch_bytes);
  float scale = fractions ? 1.0f / 3 : 1;
  for (int64_t i = 0; i < lhs; i++) a.lhs[i] = to_bf16((float)(below(9) - 4) * scale);
  for (int64_t i = 0; i < rhs; i++) a.rhs[i] = to_bf16((float)(below(9) - 4) * scale);
  for (int64_t i = 0; i < p->n; i++) a.bias[i] = (float)(below(200) - 100) * scale;
  return a;
}

static void free_arrays(arrays *a) {
  void *all[] = {a->lhs, a->rhs, a->bias, a->out, a->scratch};
  for (int i = 0; i < 5; i++) free(all[i]);
}

static void compare(const vt_amx_product *p, const arrays *a, int64_t item) {
  int64_t l = p->batch_strides[0][0] * item, r = p->batch_strides[1][0] * item,
          o = p->batch_strides[2][0] * item;
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      float sum = p->bias ? a->bias[j] : 0;
      for (int64_t k = 0; k < p->k; k++)
        sum += from_bf16(a->lhs[l + i * p->lhs_row + k * p->lhs_column]) *
               from_bf16(a->rhs[r + k * p->rhs_row + j * p->rhs_column]);
      int64_t at = o + i * p->out_row + j;
      float got = p->out == VT_F32 ? ((const float *)(const void *)a->out)[at]
                                   : from_bf16(((const uint16_t *)(const void *)a->out)[at]);
      float want = p->out == VT_F32 ? sum : from_bf16(to_bf16(sum));
      if (got != want)
        fail_msg("%lld x %lld x %lld, item %lld: [%lld, %lld] is %g, not %g", (long long)p->m,
                 (long long)p->n, (long long)p->k, (long long)item, (long long)i, (long long)j,
                 (double)got, (double)want);
    }
}

static void check(vt_amx_product p) {
  assert_true(vt_amx_prepare(&p, true));
  arrays a = make_arrays(&p, false);
  vt_amx_run(&p, a.lhs, a.rhs, p.bias ? a.bias : NULL, a.out, a.scratch);
  for (int64_t item = 0; item < p.items; item++) compare(&p, &a, item);
  // Nothing is written between rows.
  if (p.out_row > p.n && p.out == VT_F32)
    assert_int_equal(((const uint32_t *)(const void *)a.out)[p.n], 0x7e7e7e7e);
  free_arrays(&a);
}

static void random_products_are_right(void **state) {
  (void)state;
  if (!vt_host_has_amx()) skip();
  for (int i = 0; i < ROUNDS; i++) {
    int64_t size = i % 10 ? 90 : 300;
    check(random_product(1 + below(size), 1 + below(size), 1 + below(2 * size),
                         i % 4 ? 1 : 1 + below(4)));
  }
}

// K split into parts, several blocks, exact tiles.
static void large_products_are_right(void **state) {
  (void)state;
  if (!vt_host_has_amx()) skip();
  check(random_product(40, 33, 9000, 1));
  check(random_product(64, 64, 8192, 1));
  check(random_product(1000, 700, 64, 1));
  check(random_product(129, 1300, 530, 1));
}

// The gradient of a convolution's weights, by its definition.
static float window_sum(const vt_amx_product *p, const arrays *a, int64_t row, int64_t feature) {
  const vt_amx_window *w = &p->window;
  int64_t tap = row / w->channels, channel = row % w->channels;
  float sum = 0;
  for (int64_t k = 0; k < p->k; k++) {
    int64_t x = k % w->output[1], y = k / w->output[1] % w->output[0],
            n = k / w->output[1] / w->output[0];
    int64_t at_y = y * w->stride[0] + tap / w->kernel[1] * w->dilation[0] - w->low[0],
            at_x = x * w->stride[1] + tap % w->kernel[1] * w->dilation[1] - w->low[1];
    if (at_y < 0 || at_y >= w->input[0] || at_x < 0 || at_x >= w->input[1]) continue;
    int64_t at = n * w->batch_stride + at_y * w->input_strides[0] + at_x * w->input_strides[1];
    sum += from_bf16(a->lhs[at + channel]) * from_bf16(a->rhs[k * p->n + feature]);
  }
  return sum;
}

static void check_window(void) {
  int64_t batch = 1 + below(4), features = 1 + below(80);
  vt_amx_window w = {.channels = 16 * (1 + below(4))};
  for (int d = 0; d < 2; d++) {
    w.kernel[d] = 1 + below(4), w.stride[d] = 1 + below(3), w.dilation[d] = 1 + below(2);
    w.input[d] = 1 + below(12), w.low[d] = below(3), w.output[d] = 1 + below(9);
  }
  w.input_strides[1] = w.channels + below(2) * 8;
  w.input_strides[0] = w.input[1] * w.input_strides[1];
  w.batch_stride = w.input[0] * w.input_strides[0];
  vt_amx_product p = {.m = w.kernel[0] * w.kernel[1] * w.channels,
                      .n = features,
                      .k = batch * w.output[0] * w.output[1],
                      .rhs_row = features,
                      .rhs_column = 1,
                      .out_row = features,
                      .out = VT_F32,
                      .windowed = true,
                      .window = w};
  assert_true(vt_amx_prepare(&p, true));
  vt_amx_product sizes = p; // for arrays that hold the whole input
  if (sizes.m < batch * w.batch_stride) sizes.m = batch * w.batch_stride;
  arrays a = make_arrays(&sizes, false);
  vt_amx_run(&p, a.lhs, a.rhs, NULL, a.out, a.scratch);
  for (int64_t row = 0; row < p.m; row++)
    for (int64_t f = 0; f < features; f++) {
      float want = window_sum(&p, &a, row, f), got = ((float *)(void *)a.out)[row * features + f];
      if (got != want)
        fail_msg("row %lld, feature %lld: %g, not %g", (long long)row, (long long)f, (double)got,
                 (double)want);
    }
  free_arrays(&a);
}

static void gradients_of_convolutions_are_right(void **state) {
  (void)state;
  if (!vt_host_has_amx()) skip();
  for (int i = 0; i < ROUNDS / 10; i++) check_window();
}

// ---- products of sides that the caller lays out -------------------------------------------------

typedef struct laid {
  int64_t m, n, k, row;
  vt_amx_side sides[2];
  void *from[2];
} laid;

static float number_of(const laid *l, int side, int64_t free, int64_t k) {
  int64_t at = free * l->sides[side].across + k * l->sides[side].along;
  return l->sides[side].dtype == VT_F32 ? from_bf16(to_bf16(((const float *)l->from[side])[at]))
                                        : from_bf16(((const uint16_t *)l->from[side])[at]);
}

// Memory of the side's own size, so that a sanitizer sees reads beyond it. f32 with more bits than
// bf16 holds: integers that do not lie in the middle of two of its numbers.
static void make_side(laid *l, int side, int64_t free) {
  bool turned = below(2), wide = below(2);
  vt_amx_side *s = &l->sides[side];
  *s = (vt_amx_side){wide ? VT_F32 : VT_BF16, turned ? 1 : l->k, turned ? free : 1};
  l->from[side] = malloc((size_t)(free * l->k) * (wide ? 4 : 2));
  assert_non_null(l->from[side]);
  for (int64_t i = 0; i < free * l->k; i++) {
    float x = (float)(below(9) - 4);
    if (wide)
      ((float *)l->from[side])[i] = x * 1.001f;
    else
      ((uint16_t *)l->from[side])[i] = to_bf16(x);
  }
}

// In two stretches of K, the second added to the first; rows and columns in parts.
static void multiply_laid(const laid *l, float *out, int64_t split) {
  int64_t columns = l->n > 16 ? (l->n / 2 + 15) / 16 * 16 : l->n;
  for (int part = 0; part < 2; part++) {
    int64_t at = part ? split : 0, k = part ? l->k - split : split;
    if (!k) continue;
    char *packed[2], *sums = aligned(VT_AMX_SUMS(l->n));
    for (int side = 0; side < 2; side++) {
      const vt_amx_side *s = &l->sides[side];
      int64_t free = side ? l->n : l->m;
      packed[side] = aligned(vt_amx_side_bytes(free, k));
      const char *from =
          (const char *)l->from[side] + at * s->along * (int64_t)vt_dtype_bytes(s->dtype);
      vt_amx_lay(s, from, free, k, side, packed[side]);
    }
    bool adds = part && split;
    vt_amx_multiply(packed[0], packed[1], l->m, columns, k, adds, out, l->row, sums);
    if (columns < l->n)
      vt_amx_multiply(packed[0], packed[1] + vt_amx_side_bytes(columns, k), l->m, l->n - columns, k,
                      adds, out + columns, l->row, sums);
    free(packed[0]);
    free(packed[1]);
    free(sums);
  }
}

static void check_laid(laid l) {
  l.row = l.n + below(2) * 3;
  make_side(&l, 0, l.m);
  make_side(&l, 1, l.n);
  int64_t size = l.m * l.row;
  float *whole = aligned(4 * size), *parts = aligned(4 * size);
  multiply_laid(&l, whole, 0);
  multiply_laid(&l, parts, l.k / 64 * 32);
  assert_memory_equal(whole, parts, (size_t)size * 4); // and nothing between rows
  for (int64_t i = 0; i < l.m; i++)
    for (int64_t j = 0; j < l.n; j++) {
      float sum = 0;
      for (int64_t k = 0; k < l.k; k++) sum += number_of(&l, 0, i, k) * number_of(&l, 1, j, k);
      float got = whole[i * l.row + j];
      if (got != sum)
        fail_msg("%lld x %lld x %lld: [%lld, %lld] is %g, not %g", (long long)l.m, (long long)l.n,
                 (long long)l.k, (long long)i, (long long)j, (double)got, (double)sum);
    }
  void *all[] = {l.from[0], l.from[1], whole, parts};
  for (int i = 0; i < 4; i++) free(all[i]);
}

static void laid_products_go_on_from_what_is_there(void **state) {
  (void)state;
  if (!vt_host_has_amx()) skip();
  for (int i = 0; i < ROUNDS / 2; i++) {
    int64_t size = i % 10 ? 90 : 300;
    check_laid((laid){.m = 1 + below(size), .n = 1 + below(size), .k = 1 + below(2 * size)});
  }
}

static void any_team_gives_the_same_bits(void **state) {
  (void)state;
  if (!vt_host_has_amx()) skip();
  int threads = omp_get_max_threads();
  static const int64_t sizes[][3] = {{70, 50, 5000}, {500, 600, 300}, {31, 17, 100}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    vt_amx_product p = random_product(sizes[s][0], sizes[s][1], sizes[s][2], 1);
    omp_set_num_threads(3);
    assert_true(vt_amx_prepare(&p, true));
    arrays a = make_arrays(&p, true);
    vt_amx_run(&p, a.lhs, a.rhs, p.bias ? a.bias : NULL, a.out, a.scratch);
    char *many = aligned(a.out_bytes);
    memcpy(many, a.out, (size_t)a.out_bytes);
    omp_set_num_threads(1);
    vt_amx_product alone = p;
    assert_true(vt_amx_prepare(&alone, true));
    vt_amx_run(&alone, a.lhs, a.rhs, p.bias ? a.bias : NULL, a.out, a.scratch);
    assert_memory_equal(many, a.out, (size_t)a.out_bytes);
    free(many);
    free_arrays(&a);
  }
  omp_set_num_threads(threads);
}

// Of two threads as of 16 at most a seventh waits for the last blocks.
static void blocks_keep_a_team_busy(void **state) {
  (void)state;
  if (!vt_host_has_amx()) skip();
  int threads = omp_get_max_threads();
  static const int64_t sizes[][2] = {
      {768, 3072}, {768, 768}, {512, 2048}, {256, 1024}, {2304, 256}};
  static const int teams[] = {2, 4, 8, 16};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (size_t t = 0; t < sizeof teams / sizeof *teams; t++) {
      omp_set_num_threads(teams[t]);
      vt_amx_product p = random_product(sizes[s][0], sizes[s][1], 64, 1);
      assert_true(vt_amx_prepare(&p, true));
      int64_t blocks = ((p.m + p.block_m - 1) / p.block_m) * ((p.n + p.block_n - 1) / p.block_n);
      int64_t turns = (blocks + teams[t] - 1) / teams[t];
      if (blocks < 2 * teams[t] || 7 * blocks < 6 * turns * teams[t])
        fail_msg("%lld x %lld, %d threads: %lld blocks", (long long)p.m, (long long)p.n, teams[t],
                 (long long)blocks);
    }
  omp_set_num_threads(threads);
}

static void other_products_are_refused(void **state) {
  (void)state;
  if (!vt_host_has_amx()) skip();
  vt_amx_product p = {.m = 64,
                      .n = 64,
                      .k = 64,
                      .lhs_row = 64,
                      .lhs_column = 1,
                      .rhs_row = 64,
                      .rhs_column = 1,
                      .out_row = 64,
                      .out = VT_F32};
  assert_true(vt_amx_prepare(&p, false));
  p.m = 8; // few rows
  assert_false(vt_amx_prepare(&p, false));
  assert_true(vt_amx_prepare(&p, true));
  p.rhs_column = 2; // neither rows nor columns are contiguous
  assert_false(vt_amx_prepare(&p, true));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_products_are_right),
      cmocka_unit_test(large_products_are_right),
      cmocka_unit_test(gradients_of_convolutions_are_right),
      cmocka_unit_test(laid_products_go_on_from_what_is_there),
      cmocka_unit_test(any_team_gives_the_same_bits),
      cmocka_unit_test(blocks_keep_a_team_busy),
      cmocka_unit_test(other_products_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
