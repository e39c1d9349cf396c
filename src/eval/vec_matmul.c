// SPDX-License-Identifier: Apache-2.0
// vec_matmul.c - matrix products of contiguous rows. Built once per instruction set.
//
// c += a b in panels: DEPTH x COLUMNS of b are packed, then ROWS x COLUMNS of c are summed in
// registers. The sum over one panel starts at zero and is added to c afterwards, which also keeps
// long f32 sums accurate.
#include <string.h>

#include "eval/vec.h"

#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, ROWS = 8, VECTORS = 2 };
#elif defined(__AVX2__)
enum { VECTOR_BYTES = 32, ROWS = 4, VECTORS = 2 };
#else
enum { VECTOR_BYTES = 16, ROWS = 4, VECTORS = 2 };
#endif
enum { DEPTH = 256 };

#define MATMUL(T, suffix)                                                                          \
  typedef T vector_##suffix __attribute__((vector_size(VECTOR_BYTES)));                            \
  typedef T loose_##suffix __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T))));         \
  enum {                                                                                           \
    LANES_##suffix = VECTOR_BYTES / (int)sizeof(T),                                                \
    COLUMNS_##suffix = VECTORS * LANES_##suffix                                                    \
  };                                                                                               \
  /* `rows` is a constant where this is inlined. */                                                \
  static inline __attribute__((always_inline)) void tile_##suffix(                                 \
      int rows, int64_t depth, const T *a, int64_t a_stride, const T *panel, T *c,                 \
      int64_t c_stride, int64_t cols) {                                                            \
    vector_##suffix acc[ROWS][VECTORS];                                                            \
    for (int r = 0; r < rows; r++)                                                                 \
      for (int v = 0; v < VECTORS; v++) acc[r][v] = (vector_##suffix){0};                          \
    for (int64_t k = 0; k < depth; k++) {                                                          \
      vector_##suffix b[VECTORS];                                                                  \
      for (int v = 0; v < VECTORS; v++)                                                            \
        b[v] = *(const vector_##suffix *)(const void *)(panel + k * COLUMNS_##suffix +             \
                                                        v * LANES_##suffix);                       \
      for (int r = 0; r < rows; r++)                                                               \
        for (int v = 0; v < VECTORS; v++) acc[r][v] += a[r * a_stride + k] * b[v];                 \
    }                                                                                              \
    for (int r = 0; r < rows; r++) {                                                               \
      if (cols == COLUMNS_##suffix) {                                                              \
        for (int v = 0; v < VECTORS; v++)                                                          \
          *(loose_##suffix *)(void *)(c + r * c_stride + v * LANES_##suffix) += acc[r][v];         \
      } else {                                                                                     \
        T rest[COLUMNS_##suffix];                                                                  \
        memcpy(rest, acc[r], sizeof rest);                                                         \
        for (int64_t j = 0; j < cols; j++) c[r * c_stride + j] += rest[j];                         \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  static void matmul_##suffix(int64_t rows, int64_t cols, int64_t depth, const void *a_,           \
                              int64_t a_stride, const void *b_, int64_t b_stride, void *c_,        \
                              int64_t c_stride) {                                                  \
    const T *a = a_, *b = b_;                                                                      \
    T *c = c_;                                                                                     \
    _Alignas(64) T panel[DEPTH * COLUMNS_##suffix];                                                \
    for (int64_t k0 = 0; k0 < depth; k0 += DEPTH) {                                                \
      int64_t kn = depth - k0 < DEPTH ? depth - k0 : DEPTH;                                        \
      for (int64_t j0 = 0; j0 < cols; j0 += COLUMNS_##suffix) {                                    \
        int64_t jn = cols - j0 < COLUMNS_##suffix ? cols - j0 : COLUMNS_##suffix;                  \
        if (jn < COLUMNS_##suffix)                                                                 \
          memset(panel, 0, sizeof panel[0] * COLUMNS_##suffix * (size_t)kn);                       \
        for (int64_t k = 0; k < kn; k++)                                                           \
          memcpy(panel + k * COLUMNS_##suffix, b + (k0 + k) * b_stride + j0,                       \
                 sizeof(T) * (size_t)jn);                                                          \
        int64_t i = 0;                                                                             \
        for (; i + ROWS <= rows; i += ROWS)                                                        \
          tile_##suffix(ROWS, kn, a + i * a_stride + k0, a_stride, panel, c + i * c_stride + j0,   \
                        c_stride, jn);                                                             \
        for (; i < rows; i++)                                                                      \
          tile_##suffix(1, kn, a + i * a_stride + k0, a_stride, panel, c + i * c_stride + j0,      \
                        c_stride, jn);                                                             \
      }                                                                                            \
    }                                                                                              \
  }
MATMUL(float, f32)
MATMUL(double, f64)
MATMUL(uint32_t, u32)
MATMUL(uint64_t, u64)

vt_vec_matmul_fn VT_VEC_NAME(vt_vec_matmul)(vt_vec_class klass) {
  switch (klass) {
  case VT_VEC_F32:
    return matmul_f32;
  case VT_VEC_F64:
    return matmul_f64;
  case VT_VEC_S32:
  case VT_VEC_U32:
    return matmul_u32;
  case VT_VEC_S64:
  case VT_VEC_U64:
    return matmul_u64;
  default:
    return NULL;
  }
}
