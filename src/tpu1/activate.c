// SPDX-License-Identifier: Apache-2.0
// activate.c - scale, nonlinearity and saturation of the activation unit, a row of lanes at a time.
// In: 32-bit values. Out: 8- or 16-bit results, one per int32. Tables of sigmoid and tanh are built
// on first use.
#include "base/check.h"
#include "tpu1/activate.h"

#include <math.h>
#include <pthread.h>

enum { TABLE = 65536, CHUNK = 32 };
static int16_t sigmoid_table[TABLE], tanh_table[TABLE];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static int16_t fixed15(double y) {
  double r = floor(y * 32768 + 0.5);
  return (int16_t)(r > 32767 ? 32767 : r);
}

static void tables_make(void) {
  for (int i = 0; i < TABLE; i++) {
    double x = (i - TABLE / 2) / 4096.0;
    sigmoid_table[i] = fixed15(1 / (1 + exp(-x)));
    tanh_table[i] = fixed15(tanh(x));
  }
}

static inline int32_t clamp(int64_t v, int32_t low, int32_t high) {
  return v < low ? low : v > high ? high : (int32_t)v;
}

static inline void limits(const vt_tpu1_scaling *s, int32_t *low, int32_t *high) {
  *low = s->wide_out ? INT16_MIN : s->unsigned_out ? 0 : INT8_MIN;
  *high = s->wide_out ? INT16_MAX : s->unsigned_out ? UINT8_MAX : INT8_MAX;
  if (s->fn == VT_TPU1_FN_RELU) *low = 0;
}

// Fixed-point inputs (12 fraction bits, saturated to 16) in `out` become results.
static void lookup(int64_t n, const vt_tpu1_scaling *s, int32_t *out) {
  vt_assert_each(i, n, out[i] >= -TABLE / 2 && out[i] < TABLE / 2);
  pthread_once(&tables_once, tables_make);
  const int16_t *table = s->fn == VT_TPU1_FN_TANH ? tanh_table : sigmoid_table;
  for (int64_t i = 0; i < n; i++) {
    int32_t y = table[out[i] + TABLE / 2];
    if (!s->wide_out)
      y = s->unsigned_out ? clamp((y + 64) >> 7, 0, UINT8_MAX)
                          : clamp((y + 128) >> 8, INT8_MIN, INT8_MAX);
    out[i] = y;
  }
}

static inline __attribute__((always_inline)) void scale_body(const int32_t *v, int64_t n,
                                                             const vt_tpu1_scaling *s, int32_t low,
                                                             int32_t high, int32_t *out) {
  vt_assert(s->shift >= 0 && s->shift < 63 && low <= high);
  int64_t half = s->shift ? (int64_t)1 << (s->shift - 1) : 0, scale = s->scale, offset = s->offset;
  for (int64_t i = 0; i < n; i++) {
    int64_t r = (((int64_t)v[i] * scale + half) >> s->shift) + offset;
    r = r < low ? low : r;
    out[i] = (int32_t)(r > high ? high : r);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq"))) static void scale_avx512(const int32_t *v, int64_t n,
                                                                     const vt_tpu1_scaling *s,
                                                                     int32_t low, int32_t high,
                                                                     int32_t *out) {
  scale_body(v, n, s, low, high, out);
}
#endif
static void scale_any(const int32_t *v, int64_t n, const vt_tpu1_scaling *s, int32_t low,
                      int32_t high, int32_t *out) {
  scale_body(v, n, s, low, high, out);
}

static void scale_lanes(const int32_t *values, int64_t n, const vt_tpu1_scaling *s, int32_t low,
                        int32_t high, int32_t *out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512dq")) {
    scale_avx512(values, n, s, low, high, out);
    return;
  }
#endif
  scale_any(values, n, s, low, high, out);
}

static bool all_zero(const int32_t *values, int64_t n) {
  int32_t any = 0;
  for (int64_t i = 0; i < n; i++) any |= values[i];
  return any == 0;
}

void vt_tpu1_activate_lanes(const int32_t *values, int64_t n, const vt_tpu1_scaling *s,
                            int32_t *out) {
  bool table = s->fn == VT_TPU1_FN_SIGMOID || s->fn == VT_TPU1_FN_TANH;
  int32_t low = INT16_MIN, high = INT16_MAX, zero = 0, of_zero;
  if (!table) limits(s, &low, &high);
  scale_body(&zero, 1, s, low, high, &of_zero);
  // Lanes without a channel are zero, there are many, and they all have the same result.
  for (int64_t i = 0; i < n; i += CHUNK) {
    int64_t count = n - i < CHUNK ? n - i : CHUNK;
    if (all_zero(values + i, count))
      for (int64_t k = 0; k < count; k++) out[i + k] = of_zero;
    else
      scale_lanes(values + i, count, s, low, high, out + i);
  }
  if (table) lookup(n, s, out);
}

void vt_tpu1_add_lanes(const int32_t *a, const int32_t *b, int64_t n, const vt_tpu1_scaling *s,
                       int32_t *out) {
  vt_assert(s->shift >= 0 && s->shift < 63);
  bool table = s->fn == VT_TPU1_FN_SIGMOID || s->fn == VT_TPU1_FN_TANH;
  int32_t low = INT16_MIN, high = INT16_MAX;
  if (!table) limits(s, &low, &high);
  int64_t half = s->shift ? (int64_t)1 << (s->shift - 1) : 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t r =
        (((int64_t)a[i] * s->scale + (int64_t)b[i] * s->scale_b + half) >> s->shift) + s->offset;
    out[i] = clamp(r, low, high);
  }
  if (table) lookup(n, s, out);
}
