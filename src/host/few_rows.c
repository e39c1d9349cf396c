// SPDX-License-Identifier: Apache-2.0
// few_rows.c - see few_rows.h.
//
// The right side is laid out by amx.c: for each 16 columns of the result the tiles of K, 1 KiB
// each, one after the other. So the weights are one line through memory, and reading them is all
// the time that this takes. A task has some columns of tiles and reads them as four streams, which
// begin a quarter of them apart (products_lanes.c says why). Each element is summed along K in
// order.
#include "host/few_rows.h"

#include <immintrin.h>
#include <omp.h>
#include <stdbool.h>
#include <string.h>

#include "host/amx.h"
#include "host/cpu.h"
#include "ir/number.h"

#define AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq")))

enum {
  T = 16,            // rows and columns of a tile of sums
  PAIRED = 2 * T,    // K of a tile
  TILE = T * PAIRED, // numbers of an operand's tile
  TILE_BYTES = TILE * (int)sizeof(uint16_t),
  STREAMS = 4,
  AHEAD = 2048, // bytes
  TASK_BYTES = 256 << 10,
  LAY_COLUMNS = 16 * T
};

typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t column_bytes[16];
  uint8_t rows[16];
} tile_config;

static int64_t tiles_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// Registers 0 to 3 hold sums, 4 the left side, 5 the right.
AMX static void take_tiles(int64_t rows) {
  uint8_t m = (uint8_t)rows;
  tile_config config = {
      .palette = 1, .column_bytes = {64, 64, 64, 64, 64, 64}, .rows = {m, m, m, m, m, T}};
  __asm__ volatile("" : : "r"(&config) : "memory"); // GCC 12 takes it for 8 bytes that are read
  _tile_loadconfig(&config);
}

AMX static void release_tiles(void) {
  _tile_release();
}

typedef struct run {
  const vt_few_rows *p;
  const uint16_t *lhs;
  int64_t lhs_row, lhs_tile; // bytes between rows, numbers between tiles of K
  const uint16_t *rhs;
  const float *bias;
  char *out;
} run;

AMX static inline void fetch_tile(const uint16_t *tile) {
  for (int i = 0; i < TILE; i += PAIRED)
    _mm_prefetch((const char *)(tile + i) + AHEAD, _MM_HINT_T0);
}

// The sums of tile `column` of columns are in a register whose number must be a constant.
#define BEGIN_SUMS(number, column)                                                                 \
  if (r->bias)                                                                                     \
    _tile_loadd(number, r->bias + (column) * T, 0);                                                \
  else                                                                                             \
    _tile_zero(number)
#define ADD_TILE(number, tile)                                                                     \
  fetch_tile(tile);                                                                                \
  _tile_loadd(5, tile, 64);                                                                        \
  _tile_dpbf16ps(number, 4, 5)
#define END_SUMS(number, column)                                                                   \
  do {                                                                                             \
    _tile_stored(number, sums, sizeof(float) * T);                                                 \
    write_sums(r, column, sums);                                                                   \
  } while (0)

AMX static void write_sums(const run *r, int64_t column, const float *sums) {
  const vt_few_rows *p = r->p;
  int64_t at = column * T, count = p->n - at < T ? p->n - at : T;
  __mmask16 mask = (__mmask16)((1u << count) - 1);
  for (int64_t row = 0; row < p->m; row++, at += p->out_row) {
    __m512 value = _mm512_load_ps(sums + row * T);
    if (p->out == VT_F32) {
      _mm512_mask_storeu_ps((float *)(void *)r->out + at, mask, value);
      continue;
    }
    uint16_t rounded[T];
    for (int i = 0; i < T; i++) rounded[i] = vt_bf16_from_f32(sums[row * T + i]);
    memcpy((uint16_t *)(void *)r->out + at, rounded, sizeof *rounded * (size_t)count);
  }
}

AMX static void multiply4(const run *r, int64_t column, int64_t apart) {
  int64_t depth = tiles_of(r->p->k, PAIRED), stream = apart * depth * TILE;
  const uint16_t *lhs = r->lhs, *rhs = r->rhs + column * depth * TILE;
  BEGIN_SUMS(0, column);
  BEGIN_SUMS(1, column + apart);
  BEGIN_SUMS(2, column + 2 * apart);
  BEGIN_SUMS(3, column + 3 * apart);
  for (int64_t d = 0; d < depth; d++, lhs += r->lhs_tile, rhs += TILE) {
    _tile_loadd(4, lhs, r->lhs_row);
    ADD_TILE(0, rhs);
    ADD_TILE(1, rhs + stream);
    ADD_TILE(2, rhs + 2 * stream);
    ADD_TILE(3, rhs + 3 * stream);
  }
  float sums[T * T] __attribute__((aligned(64)));
  END_SUMS(0, column);
  END_SUMS(1, column + apart);
  END_SUMS(2, column + 2 * apart);
  END_SUMS(3, column + 3 * apart);
}

AMX static void multiply1(const run *r, int64_t column) {
  int64_t depth = tiles_of(r->p->k, PAIRED);
  const uint16_t *lhs = r->lhs, *rhs = r->rhs + column * depth * TILE;
  BEGIN_SUMS(0, column);
  for (int64_t d = 0; d < depth; d++, lhs += r->lhs_tile, rhs += TILE) {
    _tile_loadd(4, lhs, r->lhs_row);
    ADD_TILE(0, rhs);
  }
  float sums[T * T] __attribute__((aligned(64)));
  END_SUMS(0, column);
}

// Columns [lo, hi) of tiles.
static void run_task(const run *r, int64_t lo, int64_t hi) {
  int64_t apart = (hi - lo) / STREAMS;
  take_tiles(r->p->m);
  for (int64_t i = 0; i < apart; i++) multiply4(r, lo + i, apart);
  for (int64_t i = lo + STREAMS * apart; i < hi; i++) multiply1(r, i);
  release_tiles();
}

bool vt_few_rows_prepare(vt_few_rows *p) {
  if (!vt_host_has_amx() || p->m > T || (p->out != VT_F32 && p->out != VT_BF16)) return false;
  if ((p->lhs_row != 1 && p->lhs_column != 1) || (p->rhs_row != 1 && p->rhs_column != 1))
    return false;
  p->rhs_bytes = vt_amx_side_bytes(p->n, p->k);
  p->lhs_bytes = vt_amx_side_bytes(p->m, p->k);
  return true;
}

void vt_few_rows_lay(const vt_few_rows *p, const void *rhs, void *laid) {
  vt_amx_side side = {.dtype = VT_BF16, .across = p->rhs_column, .along = p->rhs_row};
  int64_t depth = tiles_of(p->k, PAIRED);
#pragma omp parallel for schedule(dynamic)
  for (int64_t n = 0; n < p->n; n += LAY_COLUMNS)
    vt_amx_lay(&side, (const uint16_t *)rhs + n * p->rhs_column,
               p->n - n < LAY_COLUMNS ? p->n - n : LAY_COLUMNS, p->k, true,
               (char *)laid + n / T * depth * TILE_BYTES);
}

void vt_few_rows_run(const vt_few_rows *p, const void *lhs, const void *laid, const float *bias,
                     void *out, void *scratch) {
  run r = {.p = p, .rhs = laid, .bias = bias, .out = out};
  if (p->lhs_column == 1 && p->k % PAIRED == 0) { // the rows are tiles where they lie
    r.lhs = lhs, r.lhs_row = p->lhs_row * (int64_t)sizeof(uint16_t), r.lhs_tile = PAIRED;
  } else {
    vt_amx_side side = {.dtype = VT_BF16, .across = p->lhs_row, .along = p->lhs_column};
    vt_amx_lay(&side, lhs, p->m, p->k, false, scratch);
    r.lhs = scratch, r.lhs_row = PAIRED * (int64_t)sizeof(uint16_t), r.lhs_tile = TILE;
  }
  int64_t columns = tiles_of(p->n, T), bytes = tiles_of(p->k, PAIRED) * TILE_BYTES;
  int64_t quarter = tiles_of(TASK_BYTES / STREAMS, bytes), step = STREAMS * quarter;
#pragma omp parallel for schedule(dynamic) if (columns > step)
  for (int64_t i = 0; i < columns; i += step)
    run_task(&r, i, i + step < columns ? i + step : columns);
}
