// SPDX-License-Identifier: Apache-2.0
// strip_pairs.c - see strip_pairs.h. How: an instruction multiplies 16 pairs of numbers with one
// pair and adds both products to 16 sums. Sums of up to 6 rows by 64 columns stay in registers
// while K passes by; the pairs of the right side come from the tiles of strip.c, which are 16 rows
// of 16 pairs, those of the left side from where they lie. The right side of 64 columns stays in
// the second cache while the rows pass by.
#include "host/strip_pairs.h"

#include <immintrin.h>
#include <string.h>

#define PAIRS __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

enum {
  LANES = 16,
  ROWS = 8,    // at most, whose sums are in registers
  AHEAD = 12,  // rows that are fetched before they are read
  VECTORS = 4, // of each
  STEP = 64,   // bytes of 16 pairs
  TILE_BYTES = LANES * STEP
};

// R rows times V vectors of columns. What is read and written after it is fetched on the way, one
// line at a step: in one go it would be more than can be under way.
typedef struct block {
  const vt_strip *strip;
  const char *rows[ROWS];
  const char *rhs;
  int64_t across; // bytes from 16 columns to the next
  float *sums;
  int64_t sums_row;
  int64_t pairs;                 // of a run
  bool odd;                      // a number is behind them
  bool goes_on;                  // from the sums that are there
  const char *ahead, *next;      // rows of the left side; columns of the right side
  int64_t ahead_step, next_step; // bytes; 0: nothing
  bool fetches;                  // the sums' lines, too
} block;

PAIRS static inline __attribute__((always_inline)) void
step(const block *b, __m512 sums[ROWS][VECTORS], const char *const *left, const char *right,
     int64_t k, int R, int V, uint32_t mask) {
  __m512bh columns[VECTORS];
#pragma GCC unroll 4
  for (int j = 0; j < V; j++)
    columns[j] = (__m512bh)_mm512_load_si512(right + j * b->across + k * STEP);
#pragma GCC unroll 8
  for (int i = 0; i < R; i++) {
    uint32_t pair;
    memcpy(&pair, left[i] + k * 4, sizeof pair);
    __m512bh row = (__m512bh)_mm512_set1_epi32((int32_t)(pair & mask));
#pragma GCC unroll 4
    for (int j = 0; j < V; j++) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], row, columns[j]);
  }
}

PAIRS static inline __attribute__((always_inline)) void multiply(const block *b, int R, int V) {
  const vt_strip *p = b->strip;
  int64_t pairs = b->pairs, run_bytes = (p->full + (p->tail > 0)) * TILE_BYTES;
  int64_t first = !b->fetches ? 0 : pairs < R * V ? pairs : R * V;
  const char *ahead = b->ahead, *next = b->next, *place = (const char *)(b->sums + R * b->sums_row);
  __m512 sums[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < R; i++)
#pragma GCC unroll 4
    for (int j = 0; j < V; j++)
      sums[i][j] =
          b->goes_on ? _mm512_loadu_ps(b->sums + i * b->sums_row + j * LANES) : _mm512_setzero_ps();
  const uint32_t both = UINT32_MAX, one = UINT16_MAX;
  for (int64_t run = 0; run < p->runs; run++) {
    const char *right = b->rhs + run * run_bytes, *left[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < R; i++) left[i] = b->rows[i] + p->starts[run];
    int64_t k = 0;
    for (; k < first; k++, ahead += b->ahead_step, next += b->next_step) {
      __builtin_prefetch(ahead);
      __builtin_prefetch(next, 0, 2);
      __builtin_prefetch(place + k / V * b->sums_row * 4 + k % V * STEP, 1);
      step(b, sums, left, right, k, R, V, both);
    }
    first = 0;
    for (; k < pairs; k++, ahead += b->ahead_step, next += b->next_step) {
      __builtin_prefetch(ahead);
      __builtin_prefetch(next, 0, 2);
      step(b, sums, left, right, k, R, V, both);
    }
    if (b->odd) step(b, sums, left, right, k, R, V, one);
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; i++)
#pragma GCC unroll 4
    for (int j = 0; j < V; j++) _mm512_storeu_ps(b->sums + i * b->sums_row + j * LANES, sums[i][j]);
}

#define MULTIPLY(R, V)                                                                             \
  PAIRS static void multiply_##R##_##V(const block *b) {                                           \
    multiply(b, R, V);                                                                             \
  }
#define SIX(DO, V)   DO(1, V) DO(2, V) DO(3, V) DO(4, V) DO(5, V) DO(6, V)
#define EIGHT(DO, V) SIX(DO, V) DO(7, V) DO(8, V)
#define ALL(DO)      EIGHT(DO, 1) EIGHT(DO, 2) EIGHT(DO, 3) SIX(DO, 4)
ALL(MULTIPLY)
#define ENTRY(R, V) [V - 1][R - 1] = multiply_##R##_##V,
static void (*const multiply_of[VECTORS][ROWS])(const block *) = {ALL(ENTRY)};
static const int most_rows[VECTORS] = {8, 8, 8, 6};

static const char *row_at(const vt_strip_pairs *t, int64_t i) {
  return t->lhs + i / t->line * t->lhs_line + i % t->line * t->lhs_row;
}

// Up to 64 columns, and what is multiplied next: of a matrix other columns, then another piece.
static void multiply_columns(const vt_strip_pairs *t, int64_t column, int64_t from, int64_t pairs) {
  const vt_strip *p = t->strip;
  int64_t left = (t->columns - column + LANES - 1) / LANES, wide = left < VECTORS ? left : VECTORS;
  int64_t most = most_rows[wide - 1], whole = t->until - t->from,
          group = column / (VECTORS * LANES);
  // Parts of nearly the same number of rows: few sums would wait for each other.
  int64_t parts = (t->rows + most - 1) / most;
  bool dense = !p->windowed && t->lhs_row == p->k * 2, more = from + pairs < t->until;
  block b = {.strip = p, .across = p->depth * TILE_BYTES, .sums_row = t->sums_row};
  b.pairs = pairs, b.goes_on = from > t->from, b.odd = p->length % 2;
  b.fetches = t->sums_row == p->n && !b.goes_on;
  b.rhs = t->rhs + column / LANES * b.across + from * STEP;
  for (int64_t part = 0; part < parts; part++) {
    int64_t low = t->rows * part / parts, high = t->rows * (part + 1) / parts;
    for (int64_t i = low; i < high; i++) b.rows[i - low] = row_at(t, i) + from * 4;
    b.ahead = b.rows[0], b.next = b.rhs;
    b.ahead_step = b.next_step = 0;
    if (t->fetches && t->behind - column > VECTORS * LANES && pairs == whole) {
      int64_t bytes = VECTORS * b.across / parts;
      b.next += VECTORS * b.across + part * bytes;
      b.next_step = bytes / (p->runs * pairs) + 1;
    }
    if (dense && !column && pairs == whole)
      b.ahead += AHEAD * t->lhs_row, b.ahead_step = 4 * (high - low);
    else if (more && group < high - low)
      b.ahead = b.rows[group] + pairs * 4, b.ahead_step = 4;
    b.sums = t->sums + low * t->sums_row + column;
    multiply_of[wide - 1][high - low - 1](&b);
  }
}

void vt_strip_multiply_pairs(const vt_strip_pairs *t) {
  const vt_strip *p = t->strip;
  int64_t piece = p->piece ? p->piece / 2 : t->until - t->from;
  for (int64_t from = t->from; from < t->until; from += piece) {
    int64_t pairs = t->until - from < piece ? t->until - from : piece;
    for (int64_t column = 0; column < t->columns; column += VECTORS * LANES)
      if (!vt_strip_is_unread(t->unread, column)) multiply_columns(t, column, from, pairs);
  }
}
