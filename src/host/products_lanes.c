// SPDX-License-Identifier: Apache-2.0
// products_lanes.c - see products.h. Built once per x86 level (VT_ISA) with vectors of its size:
// PARTS of them are as many sums as the level has registers for.
#include <string.h>

#include "host/products.h"
#include "ir/number.h"

#if defined(__AVX512F__)
enum { LANES = 16, PARTS = 6 };
#elif defined(__AVX__)
enum { LANES = 8, PARTS = 12 };
#else
enum { LANES = 4, PARTS = 12 };
#endif
enum { TOGETHER = 4, SPLIT = VT_PRODUCT_LANES / LANES };

#define PASTE2(a, b) a##_##b
#define PASTE(a, b)  PASTE2(a, b)
#define UNROLLED     _Pragma("GCC unroll 16")

typedef float lanes __attribute__((vector_size(LANES * 4), aligned(4)));
typedef uint16_t halves __attribute__((vector_size(LANES * 2), aligned(2)));
typedef uint32_t words __attribute__((vector_size(LANES * 4)));

static inline lanes load(const float *from) {
  return *(const lanes *)(const void *)from;
}

static inline void store(float *to, lanes x) {
  *(lanes *)(void *)to = x;
}

// Of two neighbours in bf16 the first is the low half of a word.
static inline words load_pairs(const uint16_t *from) {
  words x;
  memcpy(&x, from, sizeof x);
  return x;
}
static inline lanes even_of(words pairs) {
  return (lanes)(pairs << 16);
}
static inline lanes odd_of(words pairs) {
  return (lanes)(pairs & 0xffff0000);
}

static inline lanes load_bf16(const uint16_t *from) {
  return (lanes)(__builtin_convertvector(*(const halves *)(const void *)from, words) << 16);
}

static void convolve_line(const float *in, const int64_t *offsets, const float *weights,
                          int64_t taps, float start, float *out, int64_t count) {
  enum { BLOCK = LANES * PARTS };
  int64_t i = 0;
  for (; i + BLOCK <= count; i += BLOCK) {
    lanes sums[PARTS];
    UNROLLED for (int v = 0; v < PARTS; v++) sums[v] = (lanes){0} + start;
    for (int64_t t = 0; t < taps; t++) {
      const float *from = in + i + offsets[t];
      float weight = weights[t];
      UNROLLED for (int v = 0; v < PARTS; v++) sums[v] += weight * load(from + v * LANES);
    }
    memcpy(out + i, sums, sizeof sums);
  }
  for (; i < count; i += LANES) {
    lanes sum = (lanes){0} + start;
    for (int64_t t = 0; t < taps; t++) sum += weights[t] * load(in + i + offsets[t]);
    memcpy(out + i, &sum, sizeof(float) * (size_t)(count - i < LANES ? count - i : LANES));
  }
}

// Of rows that are read at once each is a stream of its own through memory, as one core reads
// four fastest: they begin a quarter of all rows apart, and are fetched this far ahead.
enum { AHEAD = 2048 };
#define STREAM(matrix, t) ((matrix) + ((r) + (t) * quarter) * few->row)

static inline void fetch_ahead(const void *from) {
  __builtin_prefetch((const char *)from + AHEAD);
}

// Vectors that a row is multiplied with at once: their sums with TOGETHER rows stay in registers.
enum { VECTORS = LANES == 16 ? 4 : 1 };
#define INLINE static inline __attribute__((always_inline))

typedef float four __attribute__((vector_size(16)));
typedef float eight __attribute__((vector_size(32)));

// Lane i of 4 is the sum of all lanes whose number is i more than a multiple of 4.
INLINE four fold(const lanes *sums) {
#if defined(__AVX512F__)
  eight half = __builtin_shufflevector(sums[0], sums[0], 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(sums[0], sums[0], 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX__)
  eight half = sums[0] + sums[1];
#endif
#if defined(__AVX__)
  return __builtin_shufflevector(half, half, 0, 1, 2, 3) +
         __builtin_shufflevector(half, half, 4, 5, 6, 7);
#else
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
#endif
}

// Of each of TOGETHER rows the sum of its lanes.
INLINE void finish_dots(lanes (*sums)[SPLIT], float *out) {
  four a = fold(sums[0]), b = fold(sums[1]), c = fold(sums[2]), d = fold(sums[3]);
  four first =
      __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  four last = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  four total = __builtin_shufflevector(first, last, 0, 1, 4, 5) +
               __builtin_shufflevector(first, last, 2, 3, 6, 7);
  memcpy(out, &total, sizeof total);
}

// The dots of `vectors` vectors, a constant, with each of TOGETHER rows.
INLINE void dots_f32(int vectors, const float *x, int64_t x_vector, const float *const *from,
                     int64_t k, bool fetch, float (*out)[TOGETHER]) {
  lanes sums[VECTORS][TOGETHER][SPLIT] = {{{{0}}}};
  int64_t i = 0;
  for (; i + VT_PRODUCT_LANES <= k; i += VT_PRODUCT_LANES) {
    for (int t = 0; fetch && t < TOGETHER; t++) fetch_ahead(from[t] + i);
    UNROLLED for (int p = 0; p < SPLIT; p++) {
      lanes row[TOGETHER];
      UNROLLED for (int t = 0; t < TOGETHER; t++) row[t] = load(from[t] + i + p * LANES);
      UNROLLED for (int v = 0; v < vectors; v++) {
        lanes value = load(x + v * x_vector + i + p * LANES);
        UNROLLED for (int t = 0; t < TOGETHER; t++) sums[v][t][p] += row[t] * value;
      }
    }
  }
  UNROLLED for (int v = 0; v < vectors; v++) finish_dots(sums[v], out[v]);
  for (; i < k; i++)
    for (int v = 0; v < vectors; v++)
      for (int t = 0; t < TOGETHER; t++) out[v][t] += from[t][i] * x[v * x_vector + i];
}

INLINE void dots_bf16(int vectors, const float *x, int64_t x_vector, const uint16_t *const *from,
                      int64_t k, bool fetch, float (*out)[TOGETHER]) {
  lanes sums[VECTORS][TOGETHER][SPLIT] = {{{{0}}}};
  int64_t i = 0;
  for (; i + 2 * VT_PRODUCT_LANES <= k; i += 2 * VT_PRODUCT_LANES) {
    for (int t = 0; fetch && t < TOGETHER; t++) fetch_ahead(from[t] + i);
    UNROLLED for (int p = 0; p < SPLIT; p++) {
      words pairs[TOGETHER];
      UNROLLED for (int t = 0; t < TOGETHER; t++) pairs[t] =
          load_pairs(from[t] + i + 2 * p * LANES);
      UNROLLED for (int v = 0; v < vectors; v++) {
        const float *at = x + v * x_vector + i + p * LANES;
        lanes even = load(at), odd = load(at + VT_PRODUCT_LANES);
        UNROLLED for (int t = 0; t < TOGETHER; t++) {
          sums[v][t][p] += even_of(pairs[t]) * even;
          sums[v][t][p] += odd_of(pairs[t]) * odd;
        }
      }
    }
  }
  UNROLLED for (int v = 0; v < vectors; v++) finish_dots(sums[v], out[v]);
  for (; i < k; i++)
    for (int v = 0; v < vectors; v++)
      for (int t = 0; t < TOGETHER; t++)
        out[v][t] += vt_f32_from_bf16(from[t][i]) * x[v * x_vector + i];
}

// For each of `vectors` vectors sums[i] += x[0] * from[0][i] + x[1] * from[1][i] + ... for `rows`
// rows; both are constants. Sums of the next vector begin n later.
INLINE void add_f32(int vectors, int rows, float (*x)[TOGETHER], const float *const *from,
                    int64_t n, bool fetch, float *sums) {
  int64_t i = 0;
  for (; i + VT_PRODUCT_LANES <= n; i += VT_PRODUCT_LANES) {
    for (int t = 0; fetch && t < rows; t++) fetch_ahead(from[t] + i);
    UNROLLED for (int p = 0; p < SPLIT; p++) {
      lanes row[TOGETHER];
      UNROLLED for (int t = 0; t < rows; t++) row[t] = load(from[t] + i + p * LANES);
      UNROLLED for (int v = 0; v < vectors; v++) {
        float *to = sums + v * n + i + p * LANES;
        lanes sum = load(to);
        UNROLLED for (int t = 0; t < rows; t++) sum += x[v][t] * row[t];
        store(to, sum);
      }
    }
  }
  for (; i < n; i++)
    for (int v = 0; v < vectors; v++)
      for (int t = 0; t < rows; t++) sums[v * n + i] += x[v][t] * from[t][i];
}

INLINE void add_bf16(int vectors, int rows, float (*x)[TOGETHER], const uint16_t *const *from,
                     int64_t n, bool fetch, float *sums) {
  int64_t i = 0;
  for (; i + 2 * VT_PRODUCT_LANES <= n; i += 2 * VT_PRODUCT_LANES) {
    for (int t = 0; fetch && t < rows; t++) fetch_ahead(from[t] + i);
    UNROLLED for (int p = 0; p < SPLIT; p++) {
      words pairs[TOGETHER];
      UNROLLED for (int t = 0; t < rows; t++) pairs[t] = load_pairs(from[t] + i + 2 * p * LANES);
      UNROLLED for (int v = 0; v < vectors; v++) {
        float *evens = sums + v * n + i + p * LANES, *odds = evens + VT_PRODUCT_LANES;
        lanes even = load(evens), odd = load(odds);
        UNROLLED for (int t = 0; t < rows; t++) {
          even += x[v][t] * even_of(pairs[t]);
          odd += x[v][t] * odd_of(pairs[t]);
        }
        store(evens, even);
        store(odds, odd);
      }
    }
  }
  for (; i < n; i++)
    for (int v = 0; v < vectors; v++)
      for (int t = 0; t < rows; t++) sums[v * n + i] += x[v][t] * vt_f32_from_bf16(from[t][i]);
}

// The first vectors of a matrix bring its rows into cache, and those ahead of them.
#define DEFINE_FEW(type, name)                                                                     \
  static void few_dots_##name(const vt_few *few, const float *x, const type *matrix, float *out,   \
                              int64_t rows) {                                                      \
    int64_t quarter = rows / TOGETHER;                                                             \
    for (int64_t r = 0; r < rows; r = r + 1 == quarter ? quarter * TOGETHER : r + 1) {             \
      int together = r < quarter ? TOGETHER : 1;                                                   \
      for (const vt_few_item *item = few->items; item < few->items + few->item_count; item++) {    \
        const type *from[TOGETHER];                                                                \
        for (int t = 0; t < TOGETHER; t++)                                                         \
          from[t] = STREAM(matrix + item->matrix, t < together ? t : 0);                           \
        for (int64_t v = 0, count; v < few->vectors; v += count) {                                 \
          const float *at = x + item->x + v * few->x_vector;                                       \
          float *to = out + item->out + v * few->out_vector, dots[VECTORS][TOGETHER];              \
          count = few->vectors - v < VECTORS ? 1 : VECTORS;                                        \
          if (count == VECTORS)                                                                    \
            dots_##name(VECTORS, at, few->x_vector, from, few->length, v == 0, dots);              \
          else                                                                                     \
            dots_##name(1, at, 0, from, few->length, v == 0, dots);                                \
          for (int64_t c = 0; c < count; c++)                                                      \
            for (int t = 0; t < together; t++)                                                     \
              to[c * few->out_vector + (r + t * quarter) * few->out_step] = dots[c][t];            \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  static void few_sums_##name(const vt_few *few, const float *x, const type *matrix, float *sums,  \
                              int64_t rows) {                                                      \
    int64_t quarter = rows / TOGETHER, n = few->length;                                            \
    memset(sums, 0, sizeof *sums *(size_t)(few->item_count * few->vectors * n));                   \
    for (int64_t r = 0; r < rows; r = r + 1 == quarter ? quarter * TOGETHER : r + 1) {             \
      float *to = sums;                                                                            \
      int together = r < quarter ? TOGETHER : 1;                                                   \
      for (const vt_few_item *item = few->items; item < few->items + few->item_count; item++) {    \
        const type *from[TOGETHER];                                                                \
        for (int t = 0; t < TOGETHER; t++)                                                         \
          from[t] = STREAM(matrix + item->matrix, t < together ? t : 0);                           \
        for (int64_t v = 0, count; v < few->vectors; v += count, to += count * n) {                \
          const float *at = x + item->x + v * few->x_vector + r;                                   \
          float terms[VECTORS][TOGETHER];                                                          \
          count = together == 1 || few->vectors - v < VECTORS ? 1 : VECTORS;                       \
          for (int64_t c = 0; c < count; c++)                                                      \
            for (int t = 0; t < together; t++) terms[c][t] = at[c * few->x_vector + t * quarter];  \
          if (together == 1)                                                                       \
            add_##name(1, 1, terms, from, n, false, to);                                           \
          else if (count == VECTORS)                                                               \
            add_##name(VECTORS, TOGETHER, terms, from, n, v == 0, to);                             \
          else                                                                                     \
            add_##name(1, TOGETHER, terms, from, n, v == 0, to);                                   \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }
DEFINE_FEW(float, f32)
DEFINE_FEW(uint16_t, bf16)

// Of `rows` rows, a constant: then the sums stay in registers.
#define OF_ROWS(function, count)                                                                   \
  case count:                                                                                      \
    function(count, k, lhs, panel, bias, kind, out, out_row);                                      \
    break;
#define EACH_SUM(rows)                                                                             \
  UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int p = 0; p < SPLIT; p++)
#define DEFINE_PANEL(name, type, load_panel)                                                       \
  static inline __attribute__((always_inline)) void name##_terms(                                  \
      int rows, int64_t k, const float *lhs, const type *panel, lanes(*sums)[SPLIT]) {             \
    EACH_SUM(rows) sums[r][p] = (lanes){0};                                                        \
    for (int64_t i = 0; i < k; i++, lhs += rows, panel += VT_PRODUCT_LANES) {                      \
      lanes right[SPLIT];                                                                          \
      UNROLLED for (int p = 0; p < SPLIT; p++) right[p] = load_panel(panel + p * LANES);           \
      EACH_SUM(rows) sums[r][p] += lhs[r] * right[p];                                              \
    }                                                                                              \
  }                                                                                                \
  static inline __attribute__((always_inline)) void name##_rows(                                   \
      int rows, int64_t k, const float *lhs, const type *panel, const float *bias,                 \
      vt_panel_sums kind, float *out, int64_t out_row) {                                           \
    lanes sums[VT_PANEL_ROWS][SPLIT], before[VT_PANEL_ROWS][SPLIT];                                \
    name##_terms(rows, k < VT_PANEL_TERMS ? k : VT_PANEL_TERMS, lhs, panel, sums);                 \
    if (kind == VT_PANEL_GOES_ON)                                                                  \
      EACH_SUM(rows) sums[r][p] += load(out + r * out_row + p * LANES);                            \
    for (int64_t i = VT_PANEL_TERMS; i < k; i += VT_PANEL_TERMS) {                                 \
      EACH_SUM(rows) before[r][p] = sums[r][p];                                                    \
      name##_terms(rows, k - i < VT_PANEL_TERMS ? k - i : VT_PANEL_TERMS, lhs + i * rows,          \
                   panel + i * VT_PRODUCT_LANES, sums);                                            \
      EACH_SUM(rows) sums[r][p] += before[r][p];                                                   \
    }                                                                                              \
    if (kind == VT_PANEL_ADDS) EACH_SUM(rows) sums[r][p] += load(out + r * out_row + p * LANES);   \
    UNROLLED for (int p = 0; p < SPLIT; p++) {                                                     \
      lanes more = bias ? load(bias + p * LANES) : (lanes){0};                                     \
      UNROLLED for (int r = 0; r < rows; r++)                                                      \
          store(out + r * out_row + p * LANES, bias ? sums[r][p] + more : sums[r][p]);             \
    }                                                                                              \
  }                                                                                                \
  static void name(int64_t rows, int64_t k, const float *lhs, const type *panel,                   \
                   const float *bias, vt_panel_sums kind, float *out, int64_t out_row) {           \
    switch (rows) {                                                                                \
      OF_ROWS(name##_rows, 1)                                                                      \
      OF_ROWS(name##_rows, 2)                                                                      \
      OF_ROWS(name##_rows, 3)                                                                      \
      OF_ROWS(name##_rows, 4)                                                                      \
      OF_ROWS(name##_rows, 5)                                                                      \
      OF_ROWS(name##_rows, VT_PANEL_ROWS)                                                          \
    }                                                                                              \
  }
DEFINE_PANEL(panel_f32, float, load)
DEFINE_PANEL(panel_bf16, uint16_t, load_bf16)

static void sum_of_lines(const float *in, int64_t stride, const int32_t *index, const float *weight,
                         int64_t taps, float *out, int64_t count) {
  enum { LINE_PARTS = TOGETHER * SPLIT, BLOCK = LANES * LINE_PARTS };
  int64_t i = 0;
  for (; i + BLOCK <= count; i += BLOCK) {
    lanes sums[LINE_PARTS] = {{0}};
    for (int64_t t = 0; t < taps; t++) {
      const float *from = in + index[t] * stride + i;
      UNROLLED for (int v = 0; v < LINE_PARTS; v++) sums[v] += weight[t] * load(from + v * LANES);
    }
    memcpy(out + i, sums, sizeof sums);
  }
  for (; i < count; i += LANES) {
    lanes sum = {0};
    for (int64_t t = 0; t < taps; t++) sum += weight[t] * load(in + index[t] * stride + i);
    memcpy(out + i, &sum, sizeof(float) * (size_t)(count - i < LANES ? count - i : LANES));
  }
}

static void gather_sums(const float *const *in, int64_t rows, const int32_t *index,
                        const float *weight, int64_t taps, float (*out)[VT_PRODUCT_LANES]) {
  for (int64_t r = 0; r < rows; r++) {
    const float *from = in[r];
    float sums[VT_PRODUCT_LANES] = {0};
    for (int64_t t = 0; t < taps; t++)
      for (int l = 0; l < VT_PRODUCT_LANES; l++) {
        int64_t at = t * VT_PRODUCT_LANES + l;
        sums[l] += weight[at] * from[index[at]];
      }
    memcpy(out[r], sums, sizeof sums);
  }
}

// Goes over the image once for each vector of features, so that the sums of all taps fit.
#define DEFINE_WALK(name, type, load_gradient)                                                     \
  static void name(const vt_walk *w, const float *image, const type *gradient,                     \
                   const int64_t *offsets, float(*sums)[VT_PRODUCT_LANES]) {                       \
    for (int p = 0; p < SPLIT; p++) {                                                              \
      lanes held[VT_WALK_TAPS];                                                                    \
      for (int t = 0; t < VT_WALK_TAPS; t++) held[t] = load(sums[t] + p * LANES);                  \
      const type *from = gradient + p * LANES;                                                     \
      for (int64_t y = 0; y < w->rows; y++) {                                                      \
        const float *row = image + y * w->image_row;                                               \
        for (int64_t x = 0; x < w->columns; x++) {                                                 \
          lanes value = load_gradient(from);                                                       \
          UNROLLED for (int t = 0; t < VT_WALK_TAPS; t++) held[t] += row[offsets[t]] * value;      \
          row += w->image_column;                                                                  \
          from += w->gradient_column;                                                              \
        }                                                                                          \
      }                                                                                            \
      for (int t = 0; t < VT_WALK_TAPS; t++) memcpy(sums[t] + p * LANES, &held[t], sizeof(lanes)); \
    }                                                                                              \
  }
DEFINE_WALK(walk_f32, float, load)
DEFINE_WALK(walk_bf16, uint16_t, load_bf16)

static const vt_product_code code = {
    .convolve_line = convolve_line,
    .few_dots_f32 = few_dots_f32,
    .few_dots_bf16 = few_dots_bf16,
    .few_sums_f32 = few_sums_f32,
    .few_sums_bf16 = few_sums_bf16,
    .panel_f32 = panel_f32,
    .panel_bf16 = panel_bf16,
    .sum_of_lines = sum_of_lines,
    .gather_sums = gather_sums,
    .walk_f32 = walk_f32,
    .walk_bf16 = walk_bf16,
};

const vt_product_code *PASTE(vt_product_code, VT_ISA)(void);
const vt_product_code *PASTE(vt_product_code, VT_ISA)(void) {
  return &code;
}
