// SPDX-License-Identifier: Apache-2.0
// strip_tiles.c - see strip_tiles.h.
#include "host/strip_tiles.h"

#include "host/amx_tiles.h"
#include "host/strip_pairs.h"

enum {
  ALIGNED = 2048, // bytes: rows so far apart, or twice, push each other out of the first cache
  PACKED = 256    // columns that pay for a copy
};

// A pair of rows of tiles of the left side, and what is fetched meanwhile: of a matrix at each step
// the line of 64 bytes of some rows of the next pair, of an image a line of what is copied next. In
// one go it would be more than can be under way.
typedef struct side {
  const char *at[2];
  int64_t stride[2]; // bytes
  int64_t along;     // bytes between tiles along K
  const char *ahead;
  int64_t ahead_step;              // bytes from step to step
  int64_t ahead_lines, ahead_line; // of a matrix: at a step, and bytes between them
} side;

// Tile registers: 0 to 3 sums, 4 and 5 the sides, 6 and 7 the sides at the end of a run; where runs
// are shorter than a tile, all four are sides.
#define STEP(left, right, number)                                                                  \
  do {                                                                                             \
    int64_t along = (number) * lhs->along;                                                         \
    MULTIPLY_TILES(left, right, a0 + along, lhs->stride[0], a1 + along, lhs->stride[1], tile,      \
                   tile + across);                                                                 \
    for (int64_t line = 0; line < (windowed ? 1 : lhs->ahead_lines); line++)                       \
      _mm_prefetch(ahead + line * lhs->ahead_line, _MM_HINT_T1);                                   \
    ahead += lhs->ahead_step;                                                                      \
    if (fetches)                                                                                   \
      for (int64_t line = 0; line < 2 * TILE_BYTES; line += 64)                                    \
        _mm_prefetch(next + line, _MM_HINT_T1);                                                    \
    tile += TILE_BYTES;                                                                            \
    next += 2 * TILE_BYTES;                                                                        \
  } while (0)

// Some tiles of each run.
typedef struct piece {
  int64_t runs, tile, tiles;
  bool tail;    // and the numbers behind them
  bool goes_on; // from the sums that are there
} piece;

// One or two rows of tiles times one or two columns. `fetches`: what is multiplied next is on its
// way, two tiles at each step.
AMX static inline __attribute__((always_inline)) void
multiply(const vt_strip *p, const piece *k, const side *lhs, const char *tile, const sums_at *at,
         const int rows, const int columns, const bool windowed, bool fetches) {
  int64_t across = p->depth * TILE_BYTES;
  const char *next = tile + columns * across, *ahead = lhs->ahead;
  begin_sums(at, rows, columns);
  for (int64_t r = 0; r < k->runs; r++) {
    const char *a0 = lhs->at[0] + p->starts[r], *a1 = lhs->at[1] + p->starts[r];
    if (windowed && !p->full) {
      MULTIPLY_TAILS(a0, lhs->stride[0], a1, lhs->stride[1], tile, tile + across);
      _mm_prefetch(ahead, _MM_HINT_T1);
      ahead += lhs->ahead_step;
      tile += TILE_BYTES;
      continue;
    }
    for (int64_t d = k->tile; d < k->tile + k->tiles; d++) STEP(4, 5, d);
    if (k->tail) STEP(6, 7, p->full);
  }
  end_sums(at, rows, columns);
}

AMX static void multiply_any(const vt_strip *p, const piece *k, const side *lhs, const char *tile,
                             const sums_at *at, int rows, int columns, bool fetches) {
  if (rows > 1 && columns > 1 && p->windowed)
    multiply(p, k, lhs, tile, at, 2, 2, true, fetches);
  else if (rows > 1 && columns > 1)
    multiply(p, k, lhs, tile, at, 2, 2, false, fetches);
  else if (rows > 1)
    multiply(p, k, lhs, tile, at, 2, 1, false, fetches);
  else if (columns > 1)
    multiply(p, k, lhs, tile, at, 1, 2, false, fetches);
  else
    multiply(p, k, lhs, tile, at, 1, 1, false, fetches);
}

static const char *rows_at(const vt_strip_rows *t, int64_t tile, int64_t *stride) {
  bool edge = t->edge && (tile + 1) * T > t->rows;
  *stride = edge ? t->strip->k * 2 : t->lhs_stride;
  return edge ? t->edge : t->lhs + tile * T * t->lhs_stride;
}

// The rows of tiles that are read first: where they come from memory, nothing else foresees it.
static void fetch_rows(const vt_strip_rows *t) {
  int64_t end = least(t->rows, 2 * T), bytes = t->strip->k * 2;
  for (int64_t i = 0; i < end; i++)
    for (int64_t at = 0; at < bytes; at += 64)
      _mm_prefetch(t->lhs + i * t->lhs_stride + at, _MM_HINT_T1);
}

// Copies the tiles of a piece, so that their rows lie side by side.
AMX static void pack_side(const piece *k, int rows, side *lhs, char *own) {
  for (int r = 0; r < rows; r++, own += VT_STRIP_MOST_DEPTH * TILE_BYTES) {
    for (int64_t i = 0; i < T; i++) {
      const char *from = lhs->at[r] + i * lhs->stride[r] + k->tile * 64;
      for (int64_t d = 0; d < k->tiles; d++)
        _mm512_store_si512(own + d * TILE_BYTES + i * 64, _mm512_loadu_si512(from + d * 64));
    }
    lhs->at[r] = own - k->tile * TILE_BYTES;
    lhs->stride[r] = 64;
  }
  lhs->along = TILE_BYTES;
  __asm__ volatile("" : : : "memory"); // GCC does not know what tiles are loaded from
}

// Rows of tiles from `i` on, columns of tiles from `j` on, two or one of each.
AMX static void multiply_pair(const vt_strip_rows *t, const piece *k, side *lhs, int64_t i,
                              int64_t j, int rows, int columns, const char *rhs, bool fetches) {
  int64_t row = t->sums_row;
  sums_at at[4];
  for (int s = 0; s < 4; s++) {
    float *to = t->sums + (i + s % 2) * T * row + (j + s / 2) * T;
    at[s] = (sums_at){k->goes_on ? to : NULL, to, row * 4, row * 4};
  }
  if (rows < 2) lhs->at[1] = lhs->at[0], lhs->stride[1] = lhs->stride[0];
  multiply_any(t->strip, k, lhs, rhs + j * t->strip->depth * TILE_BYTES, at, rows, columns,
               fetches);
}

// Two rows of tiles of the left side stay in the first cache while the columns pass by.
AMX static void multiply_piece(const vt_strip_rows *t, const piece *k, const char *rhs,
                               int64_t columns) {
  const vt_strip *p = t->strip;
  int64_t tiles = tiles_of(t->rows, T), end = tiles_of(columns, T);
  bool packs = !p->tail && t->lhs_stride % ALIGNED == 0 && columns >= PACKED;
  bool dense = t->lhs_stride == k->tiles * 2 * PAIRED; // fetched in the order of memory
  _Alignas(64) char own[2 * VT_STRIP_MOST_DEPTH * TILE_BYTES];
  rhs += k->tile * TILE_BYTES;
  for (int64_t i = 0; i < tiles; i += 2) {
    int high = i + 1 < tiles ? 2 : 1;
    side lhs = {.along = 2 * PAIRED};
    for (int r = 0; r < high; r++) lhs.at[r] = rows_at(t, i + r, &lhs.stride[r]);
    lhs.ahead = i + 2 < tiles || !t->next ? t->lhs + (i + 2) * T * t->lhs_stride : t->next;
    lhs.ahead += k->tile * 2 * PAIRED;
    lhs.ahead_lines = tiles_of(2 * T, tiles_of(end, 2));
    lhs.ahead_line = dense ? 64 : t->lhs_stride;
    lhs.ahead_step = dense ? lhs.ahead_lines * 64 : 64;
    int64_t ahead = lhs.ahead_lines * t->lhs_stride; // of a pair
    if (packs) pack_side(k, high, &lhs, own);
    for (int64_t j = 0; j < end; j += 2, lhs.ahead += ahead)
      if (!vt_strip_is_unread(t->unread, j * T))
        multiply_pair(t, k, &lhs, i, j, high, j + 1 < end ? 2 : 1, rhs,
                      t->fetches && i == 0 && j + 2 < end);
  }
}

// An image's lines are in the first cache already: a pixel is in many windows.
AMX void vt_strip_multiply_pixels(const vt_strip_rows *t, int64_t i, int64_t column,
                                  int64_t columns) {
  const vt_strip *p = t->strip;
  const char *rhs = t->rhs + column / T * p->depth * TILE_BYTES;
  piece all = {.runs = p->runs, .tiles = p->full, .tail = p->tail > 0};
  int64_t tiles = tiles_of(t->rows, T), end = tiles_of(columns, T);
  int64_t steps = tiles_of(tiles, 2) * tiles_of(end, 2) * p->depth;
  int64_t each = t->next ? tiles_of(t->next_bytes, steps) : 0; // bytes of a step
  const char *ahead = (t->next ? t->next : t->lhs) + i / 2 * tiles_of(end, 2) * p->depth * each;
  int high = i + 1 < tiles ? 2 : 1;
  __asm__ volatile("" : : : "memory"); // GCC does not know what tiles are loaded from
  side lhs = {.along = 2 * PAIRED, .ahead_step = each};
  for (int r = 0; r < high; r++) lhs.at[r] = rows_at(t, i + r, &lhs.stride[r]);
  for (int64_t j = 0; j < end; j += 2, ahead += p->depth * each) {
    lhs.ahead = ahead;
    multiply_pair(t, &all, &lhs, p->pixels ? 0 : i, j, high, j + 1 < end ? 2 : 1, rhs,
                  t->fetches && i == 0 && j + 2 < end);
  }
}

AMX void vt_strip_multiply_rows(const vt_strip_rows *t, int64_t column, int64_t columns) {
  const vt_strip *p = t->strip;
  const char *rhs = t->rhs + column / T * p->depth * TILE_BYTES;
  __asm__ volatile("" : : : "memory"); // GCC does not know what tiles are loaded from
  if (!t->fetched) fetch_rows(t);
  int64_t full = least(t->until, p->full);
  int64_t pieces = most(1, (full - t->from + VT_STRIP_DEPTH / 2) / VT_STRIP_DEPTH);
  int64_t tiles = most(1, tiles_of(full - t->from, pieces));
  for (int64_t d = t->from; d == t->from || d < full; d += tiles) {
    int64_t count = least(tiles, full - d);
    piece k = {.runs = 1, .tile = d, .tiles = count, .goes_on = d > t->from};
    k.tail = d + count == p->full && t->until > p->full;
    multiply_piece(t, &k, rhs, columns);
  }
}

AMX void vt_strip_take_tiles(const vt_strip *p) {
  if (!p->tiles) return;
  tile_config config = {.palette = 1,
                        .column_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                        .rows = {T, T, T, T, T, T, T, T}};
  if (p->tail) {
    config.column_bytes[6] = (uint16_t)(2 * p->tail);
    config.rows[7] = (uint8_t)(p->tail / 2);
    if (!p->full) config.column_bytes[4] = config.column_bytes[6], config.rows[5] = config.rows[7];
  }
  __asm__ volatile("" : : "r"(&config) : "memory"); // GCC does not know that it is read
  _tile_loadconfig(&config);
}

AMX void vt_strip_release_tiles(const vt_strip *p) {
  if (p->tiles) _tile_release();
}
