// SPDX-License-Identifier: Apache-2.0
// mac.c - the multiplier array of the functional simulator: byte matrices in float arithmetic,
// which is exact because 256 products of at most 255 * 255 stay below 2^24, and which every
// compiler turns into fused multiply-adds. In: inputs and weights widened to float. Out: 32-bit
// accumulators. One body, compiled for three vector widths.
#include <string.h>

#include "base/check.h"
#include "tpu1/exec.h"

enum { LANES = 16, ROWS = 6, K_EXACT = 256 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t ints __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint32_t uints __attribute__((vector_size(LANES * sizeof(uint32_t))));

static inline __attribute__((always_inline)) void
block(const vt_tpu1_pass *p, int64_t row, int rows, int64_t col, int64_t k0, int64_t k1) {
  lanes sum[ROWS][2];
  memset(sum, 0, sizeof sum);
  const float *in = p->in + row * p->k_stride, *weights = p->weights + col;
  for (int64_t k = k0; k < k1; k++) {
    lanes w0, w1;
    memcpy(&w0, weights + k * p->n_stride, sizeof w0);
    memcpy(&w1, weights + k * p->n_stride + LANES, sizeof w1);
    for (int r = 0; r < rows; r++) {
      float a = in[r * p->k_stride + k];
      sum[r][0] += a * w0;
      sum[r][1] += a * w1;
    }
  }
  for (int r = 0; r < rows; r++)
    for (int h = 0; h < 2; h++) {
      int32_t *at = p->acc + (row + r) * p->dim + col + h * LANES;
      uints old, add = (uints) __builtin_convertvector(sum[r][h], ints) << p->shift;
      memcpy(&old, at, sizeof old);
      old += add;
      memcpy(at, &old, sizeof old);
    }
}

static inline __attribute__((always_inline)) void body(const vt_tpu1_pass *p) {
  for (int64_t k0 = 0; k0 < p->k; k0 += K_EXACT) {
    int64_t k1 = k0 + K_EXACT < p->k ? k0 + K_EXACT : p->k;
    for (int64_t col = 0; col < p->n; col += 2 * LANES) {
      int64_t row = 0;
      for (; row + ROWS <= p->rows; row += ROWS) block(p, row, ROWS, col, k0, k1);
      for (; row < p->rows; row++) block(p, row, 1, col, k0, k1);
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq,avx512bw,fma"))) static void
mac_avx512(const vt_tpu1_pass *p) {
  body(p);
}
__attribute__((target("avx2,fma"))) static void mac_avx2(const vt_tpu1_pass *p) {
  body(p);
}
#endif
static void mac_any(const vt_tpu1_pass *p) {
  body(p);
}

void vt_tpu1_mac(const vt_tpu1_pass *p) {
  vt_assert(p->k <= p->k_stride && p->n <= p->n_stride && p->n_stride % (2 * LANES) == 0);
  vt_assert(p->n <= p->dim && p->shift >= 0 && p->shift < 32);
  if (!p->accumulate) memset(p->acc, 0, sizeof(int32_t) * (size_t)(p->rows * p->dim));
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    mac_avx512(p);
    return;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    mac_avx2(p);
    return;
  }
#endif
  mac_any(p);
}
