// SPDX-License-Identifier: Apache-2.0
// amx_tiles.h - operands of Intel's matrix unit: tiles of 1 KiB, laid out from matrices of bf16.
// Internal to the files that multiply with it.
//
// Of the left side a tile is 16 rows of 32 numbers, of the right side 16 rows of 16 pairs (adjacent
// in K). A tile of the result is 16 x 16 sums in f32.
#ifndef VT_HOST_AMX_TILES_H
#define VT_HOST_AMX_TILES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq")))
#define BF16                                                                                       \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

enum {
  T = 16,            // rows and columns of a tile of sums
  PAIRED = 2 * T,    // K of a tile
  TILE = T * PAIRED, // numbers of an operand's tile
  TILE_BYTES = 2 * TILE,
  SUMS = T * T,            // of a tile of sums
  LINES_AHEAD = 4 * PAIRED // numbers of a line that are fetched before they are packed
};

typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t column_bytes[16];
  uint8_t rows[16];
} tile_config;

static inline int64_t tiles_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

static inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

AMX static inline __mmask16 first16(int64_t count) {
  return (__mmask16)(count >= T ? 0xffff : (1u << count) - 1);
}
AMX static inline __mmask32 first32(int64_t count) {
  return count >= PAIRED ? 0xffffffffu : (1u << count) - 1;
}

// Transposes the 16 x 16 words of `rows`.
AMX static inline void transpose(__m512i *rows) {
  __m512i t[T];
  for (int i = 0; i < T; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < T; i += 4)
    for (int h = 0; h < 2; h++) {
      rows[i + 2 * h] = _mm512_unpacklo_epi64(t[i + h], t[i + 2 + h]);
      rows[i + 2 * h + 1] = _mm512_unpackhi_epi64(t[i + h], t[i + 2 + h]);
    }
  for (int i = 0; i < 4; i++)
    for (int h = 0; h < T; h += 8) {
      t[h + i] = _mm512_shuffle_i32x4(rows[h + i], rows[h + 4 + i], 0x88);
      t[h + 4 + i] = _mm512_shuffle_i32x4(rows[h + i], rows[h + 4 + i], 0xdd);
    }
  for (int i = 0; i < 4; i++)
    for (int h = 0; h < 8; h += 4) {
      rows[h + i] = _mm512_shuffle_i32x4(t[h + i], t[8 + h + i], 0x88);
      rows[8 + h + i] = _mm512_shuffle_i32x4(t[h + i], t[8 + h + i], 0xdd);
    }
}

// Interleaves two rows of 16 numbers (NULL for zeros) into one of 16 pairs.
AMX static inline __m512i pair_rows(const uint16_t *even, const uint16_t *odd, int64_t at,
                                    __mmask16 columns) {
  const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                       23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m256i low = _mm256_setzero_si256(), high = low;
  if (even) low = _mm256_maskz_loadu_epi16(columns, even + at);
  if (odd) high = _mm256_maskz_loadu_epi16(columns, odd + at);
  __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  return _mm512_permutexvar_epi16(zip, both);
}

// One tile from `lines` lines along K, of `k` numbers each; transposed for the right side.
AMX static inline void pack_lines(const uint16_t *from, int64_t line, int64_t lines, int64_t k,
                                  bool right, int64_t ahead, uint16_t *to) {
  __m512i rows[T];
  __mmask32 mask = first32(k);
  for (int i = 0; i < T; i++) {
    if (i < lines) _mm_prefetch((const char *)(from + i * line + ahead), _MM_HINT_T0);
    rows[i] = i < lines ? _mm512_maskz_loadu_epi16(mask, from + i * line) : _mm512_setzero_si512();
  }
  if (right) transpose(rows);
  for (int i = 0; i < T; i++) _mm512_store_si512(to + i * PAIRED, rows[i]);
}

// One tile from 32 rows across K, from number `at` of each on; transposed for the left side.
AMX static inline void pack_rows(const uint16_t *const *from, int64_t at, int64_t count, bool right,
                                 uint16_t *to) {
  __m512i rows[T];
  __mmask16 mask = first16(count);
  for (int i = 0; i < T; i++) rows[i] = pair_rows(from[2 * i], from[2 * i + 1], at, mask);
  if (!right) transpose(rows);
  for (int i = 0; i < T; i++) _mm512_store_si512(to + i * PAIRED, rows[i]);
}

// Two of them side by side: where rows lie a large power of two apart, a line is gone before its
// second half is read.
AMX static inline void pack_two(const uint16_t *const *from, int64_t at, int64_t count, bool right,
                                uint16_t *to, uint16_t *second) {
  __m512i rows[2][T];
  __mmask16 mask = first16(count - T);
  for (int i = 0; i < T; i++) {
    rows[0][i] = pair_rows(from[2 * i], from[2 * i + 1], at, 0xffff);
    rows[1][i] = pair_rows(from[2 * i], from[2 * i + 1], at + T, mask);
  }
  for (int h = 0; h < 2; h++) {
    if (!right) transpose(rows[h]);
    for (int i = 0; i < T; i++) _mm512_store_si512((h ? second : to) + i * PAIRED, rows[h][i]);
  }
}

// Tiles [free][K] of an operand, `depth` of K for each of the free dimension (M or N). `across` and
// `along` are its strides over the free dimension and over K.
AMX static inline void pack(const uint16_t *from, int64_t across, int64_t along, int64_t free,
                            int64_t k, int64_t depth, bool right, uint16_t *to) {
  if (along == 1) {
    for (int64_t f = 0; f < free; f += T) {
      const uint16_t *at = from + f * across;
      for (int64_t d = 0; d < k; d += PAIRED)
        pack_lines(at + d, across, free - f, k - d, right, LINES_AHEAD,
                   to + (f / T * depth + d / PAIRED) * TILE);
    }
    return;
  }
  for (int64_t d = 0; d < k; d += PAIRED) {
    const uint16_t *rows[PAIRED];
    for (int64_t i = 0; i < PAIRED; i++) rows[i] = d + i < k ? from + (d + i) * along : NULL;
    for (int64_t f = 0; f < free; f += 2 * T) {
      for (int64_t i = 0; i < PAIRED && d + PAIRED + i < k; i++)
        _mm_prefetch((const char *)(from + (d + PAIRED + i) * along + f), _MM_HINT_T1);
      uint16_t *tile = to + (f / T * depth + d / PAIRED) * TILE;
      if (free - f > T)
        pack_two(rows, f, free - f, right, tile, tile + depth * TILE);
      else
        pack_rows(rows, f, free - f, right, tile);
    }
  }
}

// Where a tile of sums comes from and goes to; strides in bytes. `from` NULL: zeros.
typedef struct sums_at {
  const float *from;
  float *to;
  int64_t from_stride, to_stride;
} sums_at;

// One or two rows of tiles times one or two columns, whose sums are in the registers 0 to 3: rows 0
// and 1 of the first column, then of the second. The unit takes 52 cycles for a product and begins
// one every 16, so two sums alone would leave it idle for half of the time.
#define BEGIN_SUM(number)                                                                          \
  do {                                                                                             \
    if (at[number].from)                                                                           \
      _tile_loadd(number, at[number].from, at[number].from_stride);                                \
    else                                                                                           \
      _tile_zero(number);                                                                          \
  } while (0)
AMX static inline __attribute__((always_inline)) void begin_sums(const sums_at *at, const int rows,
                                                                 const int columns) {
  BEGIN_SUM(0);
  if (rows > 1) BEGIN_SUM(1);
  if (columns > 1) BEGIN_SUM(2);
  if (rows > 1 && columns > 1) BEGIN_SUM(3);
}
#undef BEGIN_SUM

AMX static inline __attribute__((always_inline)) void end_sums(const sums_at *at, const int rows,
                                                               const int columns) {
  _tile_stored(0, at[0].to, at[0].to_stride);
  if (rows > 1) _tile_stored(1, at[1].to, at[1].to_stride);
  if (columns > 1) _tile_stored(2, at[2].to, at[2].to_stride);
  if (rows > 1 && columns > 1) _tile_stored(3, at[3].to, at[3].to_stride);
}

// Adds one tile of K, in the registers `left` and `right`. The right side bypasses the first cache:
// the left stays there for the next columns.
#define MULTIPLY_TILES(left, right, lhs0, stride0, lhs1, stride1, rhs0, rhs1)                      \
  do {                                                                                             \
    _tile_stream_loadd(right, rhs0, 64);                                                           \
    _tile_loadd(left, lhs0, stride0);                                                              \
    _tile_dpbf16ps(0, left, right);                                                                \
    if (rows > 1) {                                                                                \
      _tile_loadd(left, lhs1, stride1);                                                            \
      _tile_dpbf16ps(1, left, right);                                                              \
    }                                                                                              \
    if (columns > 1) {                                                                             \
      _tile_stream_loadd(right, rhs1, 64);                                                         \
      if (rows > 1) {                                                                              \
        _tile_dpbf16ps(3, left, right);                                                            \
        _tile_loadd(left, lhs0, stride0);                                                          \
      }                                                                                            \
      _tile_dpbf16ps(2, left, right);                                                              \
    }                                                                                              \
  } while (0)

// The same of two rows by two columns that have a pair of registers each: where K ends with this.
#define MULTIPLY_TAILS(lhs0, stride0, lhs1, stride1, rhs0, rhs1)                                   \
  do {                                                                                             \
    _tile_stream_loadd(7, rhs0, 64);                                                               \
    _tile_loadd(6, lhs0, stride0);                                                                 \
    _tile_dpbf16ps(0, 6, 7);                                                                       \
    _tile_loadd(4, lhs1, stride1);                                                                 \
    _tile_dpbf16ps(1, 4, 7);                                                                       \
    _tile_stream_loadd(5, rhs1, 64);                                                               \
    _tile_dpbf16ps(3, 4, 5);                                                                       \
    _tile_dpbf16ps(2, 6, 5);                                                                       \
  } while (0)

// The unit takes subnormal numbers as zeros, as this does.
BF16 static inline __m256i to_bf16(__m512 value) {
  return (__m256i)_mm512_cvtneps_pbh(value);
}

#endif
