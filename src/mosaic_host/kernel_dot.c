// SPDX-License-Identifier: Apache-2.0
// kernel_dot.c - products of bf16 matrices in registers of AVX512-BF16: out = [out +] a x b.
//
// vdpbf16ps adds two products to each of 16 sums, so b is brought into panels of 64 columns in
// which the two rows of a pair lie next to each other; a is read as it is when the contracted
// dimension lies together there. A tile of 6 x 64 sums stays in registers over the whole of that
// dimension. Sums go on from what `out` holds: blocks of the dimension, one after the other, give
// the bits of one product over all of it. oneDNN would begin each block's sums at zero.
#include "host/cpu.h"
#include "mosaic_host/kernel_product.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define ISA    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define INLINE ISA __attribute__((always_inline)) static inline

enum { ROWS = 6, LANES = 16, VECTORS = 4, PANEL = LANES * VECTORS };

bool vt_kdot_here(void) {
  return vt_host_fast_bf16() && !vt_host_has_amx();
}

static int64_t pairs_of(const vt_kproduct *p) {
  return (p->k + 1) / 2;
}

static bool packs_lhs(const vt_kproduct *p) {
  return p->sides[0].columns != 1 || p->k % 2;
}

static int64_t panel_bytes(const vt_kproduct *p) {
  return pairs_of(p) * PANEL * 4;
}

int64_t vt_kdot_pad_bytes(const vt_kproduct *p) {
  return panel_bytes(p) + (packs_lhs(p) ? p->m * pairs_of(p) * 4 : 0) + 64;
}

// ---- bringing operands into order ---------------------------------------------------------------

// Rows of `a`, each with an even number of elements.
static void pack_lhs(const vt_kproduct *p, const uint16_t *a, uint16_t *out) {
  const vt_kside *s = &p->sides[0];
  int64_t width = 2 * pairs_of(p);
  for (int64_t r = 0; r < p->m; r++) {
    for (int64_t c = 0; c < p->k; c++) out[r * width + c] = a[r * s->rows + c * s->columns];
    if (p->k % 2) out[r * width + p->k] = 0;
  }
}

INLINE __mmask16 first(int64_t count) {
  return (__mmask16)(count >= LANES ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

// Columns lie next to each other.
ISA static void pack_rows(const vt_kproduct *p, const uint16_t *b, int64_t columns, uint32_t *out) {
  int64_t step = p->sides[1].rows;
  for (int64_t k = 0; k < p->k; k += 2)
    for (int64_t c = 0; c < columns; c += LANES) {
      __mmask16 low = first(columns - c), high = k + 1 < p->k ? low : 0;
      const uint16_t *at = b + k * step + c;
      __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(low, at));
      __m512i y = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(high, high ? at + step : at));
      _mm512_store_si512(out + k / 2 * PANEL + c, _mm512_or_si512(x, _mm512_slli_epi32(y, 16)));
    }
}

// Lane l of register r to lane r of register l: swaps halves, quarters, eighths, single lanes.
INLINE void transpose(__m512i *x) {
#pragma GCC unroll 4
  for (int bit = 1; bit < LANES; bit *= 2) {
    int32_t low[LANES], high[LANES];
    for (int l = 0; l < LANES; l++) {
      low[l] = l & bit ? LANES + (l ^ bit) : l;
      high[l] = l & bit ? LANES + l : l ^ bit;
    }
    __m512i from_low = _mm512_loadu_si512(low), from_high = _mm512_loadu_si512(high);
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++) {
      if (r & bit) continue;
      __m512i a = x[r], b = x[r | bit];
      x[r] = _mm512_permutex2var_epi32(a, from_low, b);
      x[r | bit] = _mm512_permutex2var_epi32(a, from_high, b);
    }
  }
}

// Elements of the contracted dimension lie next to each other.
ISA static void pack_columns(const vt_kproduct *p, const uint16_t *b, int64_t columns,
                             uint32_t *out) {
  int64_t step = p->sides[1].columns, pairs = pairs_of(p);
  for (int64_t c = 0; c < columns; c += LANES)
    for (int64_t at = 0; at < pairs; at += LANES) {
      int64_t left = p->k - 2 * at;
      __mmask32 kept = left >= 2 * LANES ? 0xffffffffu : (1u << left) - 1;
      __m512i x[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++)
        x[i] = c + i < columns ? _mm512_maskz_loadu_epi16(kept, b + (c + i) * step + 2 * at)
                               : _mm512_setzero_si512();
      transpose(x);
      for (int i = 0; i < LANES && at + i < pairs; i++)
        _mm512_store_si512(out + (at + i) * PANEL + c, x[i]);
    }
}

// ---- a tile -------------------------------------------------------------------------------------

typedef struct tile {
  int64_t pairs, lhs_row, row; // strides in elements
  bool adds;
  __mmask16 last; // of the last register of columns
  const uint16_t *a;
  const uint32_t *panel;
  float *out;
} tile;

INLINE void run_tile(const tile *t, const int rows, const int vectors) {
  __m512 sums[ROWS][VECTORS];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      sums[r][v] = t->adds ? _mm512_maskz_loadu_ps(v + 1 < vectors ? 0xffff : t->last,
                                                   t->out + r * t->row + v * LANES)
                           : _mm512_setzero_ps();
  for (int64_t p = 0; p < t->pairs; p++) {
    __m512i columns[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      columns[v] = _mm512_load_si512(t->panel + p * PANEL + v * LANES);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      int32_t pair;
      memcpy(&pair, t->a + r * t->lhs_row + 2 * p, sizeof pair);
      __m512i both = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++)
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)both, (__m512bh)columns[v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      _mm512_mask_storeu_ps(t->out + r * t->row + v * LANES, v + 1 < vectors ? 0xffff : t->last,
                            sums[r][v]);
}

#define WIDTHS(rows)                                                                               \
  case rows:                                                                                       \
    if (vectors == 1) run_tile(t, rows, 1);                                                        \
    if (vectors == 2) run_tile(t, rows, 2);                                                        \
    if (vectors == 3) run_tile(t, rows, 3);                                                        \
    if (vectors == 4) run_tile(t, rows, 4);                                                        \
    break;

ISA static void any_tile(const tile *t, int64_t rows, int64_t vectors) {
  switch (rows) {
    WIDTHS(1)
    WIDTHS(2)
    WIDTHS(3)
    WIDTHS(4)
    WIDTHS(5)
    WIDTHS(6)
  default:
    break;
  }
}

ISA static void run_one(const vt_kproduct *p, const uint16_t *a, const uint16_t *b, float *out,
                        char *pad) {
  uint32_t *panel = (uint32_t *)(((uintptr_t)pad + 63) / 64 * 64);
  tile t = {.pairs = pairs_of(p), .lhs_row = p->sides[0].rows, .row = p->row, .adds = p->adds};
  if (packs_lhs(p)) {
    uint16_t *packed = (uint16_t *)((char *)panel + panel_bytes(p));
    pack_lhs(p, a, packed);
    a = packed;
    t.lhs_row = 2 * t.pairs;
  }
  t.panel = panel;
  for (int64_t c = 0; c < p->n; c += PANEL) {
    int64_t columns = p->n - c < PANEL ? p->n - c : PANEL, vectors = (columns + LANES - 1) / LANES;
    t.last = first(columns - (vectors - 1) * LANES);
    if (p->sides[1].columns == 1)
      pack_rows(p, b + c, columns, panel);
    else
      pack_columns(p, b + c * p->sides[1].columns, columns, panel);
    for (int64_t r = 0; r < p->m; r += ROWS) {
      t.a = a + r * t.lhs_row;
      t.out = out + r * p->row + c;
      any_tile(&t, p->m - r < ROWS ? p->m - r : ROWS, vectors);
    }
  }
}

void vt_kdot_run(const vt_kproduct *p, const void *a, const void *b, void *out, void *pad) {
  for (int64_t i = 0; i < p->batch; i++)
    run_one(p, (const uint16_t *)a + i * p->sides[0].batch,
            (const uint16_t *)b + i * p->sides[1].batch, (float *)out + i * p->m * p->row, pad);
}
#else
bool vt_kdot_here(void) {
  return false;
}
int64_t vt_kdot_pad_bytes(const vt_kproduct *p) {
  (void)p;
  return 0;
}
void vt_kdot_run(const vt_kproduct *p, const void *a, const void *b, void *out, void *pad) {
  (void)p, (void)a, (void)b, (void)out, (void)pad;
}
#endif
