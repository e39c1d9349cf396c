// SPDX-License-Identifier: Apache-2.0
// amx.c - see amx.h.
//
// Why not oneDNN: its kernel uses all eight tile registers and splits the work in equal halves.
// When the core's other hardware thread (another virtual machine's, say) also uses the matrix unit,
// the physical registers behind the eight are shared, loads and products no longer overlap, and
// such a kernel drops to a quarter of its speed. Measured per core with data in L1, GFLOP/s alone
// and with such a neighbour: 2 x 2 products on eight registers 2100 and 550, 1 x 2 products on four
// 2100 and 1060. And a team with equal halves waits for the slower core.
//
// How: operands are laid out in tiles of 1 KiB, as the unit expects: the left side 16 rows of 32
// numbers, the right side 16 rows of 16 pairs (adjacent in K). A tile of the result is 16 x 16 sums
// in f32. Two ways to split a product into tasks, which threads take one at a time:
//   blocks   the right side is packed once for all; a task packs some rows of the left side and
//            computes a block of the result
//   parts    where the result is small and K is long: a task is a part of K, packs both sides and
//            has sums of its own, which are added up in order
#include "host/amx.h"

#include <omp.h>
#include <stdbool.h>
#include <string.h>

#include "host/amx_tiles.h"
#include "host/cpu.h"

enum {
  CHUNK = 16, // tiles of K at once: two rows of the left side stay in L1
  MIN_PRODUCTS = 1 << 18,
  MIN_ITEM_PRODUCTS = 4 << 20,
  MIN_TASKS = 12,
  BUSY = 86, // percent of the threads
  PARTS = 16,
  PARTS_BYTES = 1 << 20 // of partial sums, at most
};

static const tile_config full_tiles = {
    .palette = 1, .column_bytes = {64, 64, 64, 64, 64, 64}, .rows = {T, T, T, T, T, T}};

// The pixels under one tap of a window for 32 columns starting at `k`.
static void window_rows(const vt_amx_window *w, const uint16_t *from, int64_t tap, int64_t k,
                        int64_t end, const uint16_t **rows) {
  int64_t h = tap / w->kernel[1] * w->dilation[0] - w->low[0],
          v = tap % w->kernel[1] * w->dilation[1] - w->low[1];
  int64_t x = k % w->output[1], y = k / w->output[1] % w->output[0],
          n = k / w->output[1] / w->output[0];
  for (int i = 0; i < PAIRED; i++, k++) {
    int64_t at_y = y * w->stride[0] + h, at_x = x * w->stride[1] + v;
    bool inside = k < end && at_y >= 0 && at_y < w->input[0] && at_x >= 0 && at_x < w->input[1];
    rows[i] = inside ? from + n * w->batch_stride + at_y * w->input_strides[0] +
                           at_x * w->input_strides[1]
                     : NULL;
    if (++x == w->output[1]) x = 0, y++;
    if (y == w->output[0]) y = 0, n++;
  }
}

// Rows [m, m + count) and columns [k, end) of a left side read through a window.
static void pack_window(const vt_amx_window *w, const uint16_t *from, int64_t m, int64_t count,
                        int64_t k, int64_t end, int64_t depth, uint16_t *to) {
  for (int64_t d = 0; k + d < end; d += PAIRED) {
    const uint16_t *rows[PAIRED];
    int64_t tap = -1;
    for (int64_t f = 0; f < count; f += T) {
      if ((m + f) / w->channels != tap) {
        tap = (m + f) / w->channels;
        window_rows(w, from, tap, k + d, end, rows);
      }
      pack_rows(rows, (m + f) % w->channels, T, false, to + (f / T * depth + d / PAIRED) * TILE);
    }
  }
}

// One or two tiles of the left side times as many of the right side. `stores`: the result comes
// from memory, and its lines are on their way before they are stored to.
AMX static inline __attribute__((always_inline)) void
multiply_tiles(const uint16_t *const *lhs, const uint16_t *const *rhs, int64_t depth,
               const sums_at *at, const int rows, const int columns, bool stores) {
  begin_sums(at, rows, columns);
  for (int64_t d = 0; d < depth; d++) {
    MULTIPLY_TILES(4, 5, lhs[0] + d * TILE, 64, lhs[1] + d * TILE, 64, rhs[0] + d * TILE,
                   rhs[1] + d * TILE);
    for (int i = 0; stores && d < T && i < 2 * columns; i++)
      if (rows > 1 || i % 2 == 0)
        __builtin_prefetch((const char *)at[i].to + d * at[i].to_stride, 1);
  }
  end_sums(at, rows, columns);
}

AMX static void multiply_any(const uint16_t *const *lhs, const uint16_t *const *rhs, int64_t depth,
                             const sums_at *at, int rows, int columns, bool stores) {
  if (rows > 1 && columns > 1)
    multiply_tiles(lhs, rhs, depth, at, 2, 2, stores);
  else if (rows > 1)
    multiply_tiles(lhs, rhs, depth, at, 2, 1, stores);
  else if (columns > 1)
    multiply_tiles(lhs, rhs, depth, at, 1, 2, stores);
  else
    multiply_tiles(lhs, rhs, depth, at, 1, 1, stores);
}

// A block of the result that one thread computes.
typedef struct block {
  int64_t m, n, m_tiles; // rows, columns; m_tiles: tiles of a column of sums
  float *direct;         // the result, which full tiles of sums are stored to, or NULL
  int64_t row;           // of the result
  const float *bias;     // of the block's first column, or NULL
  float *sums;           // tiles [n][m]
} block;

static sums_at place(const block *b, int64_t i, int64_t j, bool first) {
  sums_at at;
  if (b->direct && (i + 1) * T <= b->m && (j + 1) * T <= b->n) {
    at.to = b->direct + i * T * b->row + j * T;
    at.to_stride = b->row * (int64_t)sizeof(float);
  } else {
    at.to = b->sums + (j * b->m_tiles + i) * SUMS;
    at.to_stride = T * (int64_t)sizeof(float);
  }
  at.from = first ? NULL : at.to;
  at.from_stride = at.to_stride;
  if (first && b->bias && (j + 1) * T <= b->n) at.from = b->bias + j * T, at.from_stride = 0;
  return at;
}

// Adds `depth` tiles of K to the block, two rows of tiles at a time so that they stay in L1.
// `lhs_depth` and `rhs_depth` are the strides, in tiles, between rows (columns) of the packed
// sides. `stores`: as above.
static void multiply_chunk(const block *b, const uint16_t *lhs, int64_t lhs_depth,
                           const uint16_t *rhs, int64_t rhs_depth, int64_t depth, bool first,
                           bool stores) {
  int64_t rows = tiles_of(b->m, T), columns = tiles_of(b->n, T);
  for (int64_t i = 0; i < rows; i += 2)
    for (int64_t j = 0; j < columns; j += 2) {
      int high = i + 1 < rows ? 2 : 1, wide = j + 1 < columns ? 2 : 1;
      const uint16_t *l[2] = {lhs + i * lhs_depth * TILE, lhs + (i + 1) * lhs_depth * TILE};
      const uint16_t *r[2] = {rhs + j * rhs_depth * TILE, rhs + (j + 1) * rhs_depth * TILE};
      sums_at at[4];
      for (int s = 0; s < 4; s++)
        if (s % 2 < high && s / 2 < wide) at[s] = place(b, i + s % 2, j + s / 2, first);
      multiply_any(l, r, depth, at, high, wide, stores);
    }
}

// The 32 numbers of f32 as bf16. The unit takes subnormal numbers as zeros, as this does.
BF16 static inline __m512i round_line(const float *from, int64_t count) {
  __m512 low = _mm512_maskz_loadu_ps(first16(count), from);
  __m512 high =
      count > T ? _mm512_maskz_loadu_ps(first16(count - T), from + T) : _mm512_setzero_ps();
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// As pack_lines and pack_rows, of numbers of f32.
BF16 static void round_lines(const float *from, int64_t line, int64_t lines, int64_t k, bool right,
                             uint16_t *to) {
  __m512i rows[T];
  for (int i = 0; i < T; i++)
    rows[i] = i < lines ? round_line(from + i * line, k) : _mm512_setzero_si512();
  if (right) transpose(rows);
  for (int i = 0; i < T; i++) _mm512_store_si512(to + i * PAIRED, rows[i]);
}

BF16 static void round_rows(const float *from, int64_t row, int64_t rows, int64_t count, bool right,
                            uint16_t *to) {
  const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                       23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512i pairs[T];
  __mmask16 mask = first16(count);
  for (int i = 0; i < T; i++) {
    __m512 even = _mm512_setzero_ps(), odd = even;
    if (2 * i < rows) even = _mm512_maskz_loadu_ps(mask, from + 2 * i * row);
    if (2 * i + 1 < rows) odd = _mm512_maskz_loadu_ps(mask, from + (2 * i + 1) * row);
    pairs[i] = _mm512_permutexvar_epi16(zip, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
  }
  if (!right) transpose(pairs);
  for (int i = 0; i < T; i++) _mm512_store_si512(to + i * PAIRED, pairs[i]);
}

static void round_side(const vt_amx_side *s, const float *from, int64_t free, int64_t k, bool right,
                       uint16_t *to) {
  int64_t depth = tiles_of(k, PAIRED);
  if (s->along == 1) {
    for (int64_t f = 0; f < free; f += T) {
      const float *at = from + f * s->across;
      for (int64_t d = 0; d < k; d += PAIRED)
        round_lines(at + d, s->across, free - f, k - d, right,
                    to + (f / T * depth + d / PAIRED) * TILE);
    }
    return;
  }
  for (int64_t d = 0; d < k; d += PAIRED) {
    const float *at = from + d * s->along;
    for (int64_t f = 0; f < free; f += T)
      round_rows(at + f, s->along, k - d, free - f, right,
                 to + (f / T * depth + d / PAIRED) * TILE);
  }
}

// Writes the sums that are not in the result yet: those of edge tiles, or all.
BF16 static void write_sums(const block *b, vt_dtype dtype, char *out) {
  for (int64_t j = 0; j * T < b->n; j++) {
    bool full = (j + 1) * T <= b->n;
    __mmask16 mask = first16(b->n - j * T);
    __m512 bias =
        b->bias && !full ? _mm512_maskz_loadu_ps(mask, b->bias + j * T) : _mm512_setzero_ps();
    for (int64_t i = 0; i * T < b->m; i++) {
      if (b->direct && full && (i + 1) * T <= b->m) continue;
      const float *from = b->sums + (j * b->m_tiles + i) * SUMS;
      for (int64_t r = 0; r < T && i * T + r < b->m; r++) {
        int64_t at = (i * T + r) * b->row + j * T;
        __m512 value = _mm512_load_ps(from + r * T);
        if (b->bias && !full) value = _mm512_add_ps(value, bias);
        if (dtype == VT_F32)
          _mm512_mask_storeu_ps((float *)(void *)out + at, mask, value);
        else
          _mm256_mask_storeu_epi16((uint16_t *)(void *)out + at, mask, to_bf16(value));
      }
    }
  }
}

typedef struct run {
  const vt_amx_product *p;
  const char *lhs, *rhs;
  const float *bias;
  char *out;
  char *shared, *own; // the packed right side or all parts' sums; what a thread packs
} run;

// Offsets of a batch item in elements.
static void item_offsets(const vt_amx_product *p, int64_t item, int64_t *offsets) {
  memset(offsets, 0, 3 * sizeof *offsets);
  for (int32_t d = p->batch_rank; d-- > 0;) {
    int64_t index = item % p->batch_sizes[d];
    item /= p->batch_sizes[d];
    for (int t = 0; t < 3; t++) offsets[t] += index * p->batch_strides[t][d];
  }
}

// Rows [m, m + count) and columns [k, k + length) of the left side of an item at `offset`.
static void pack_lhs(const run *r, int64_t offset, int64_t m, int64_t count, int64_t k,
                     int64_t length, int64_t depth, uint16_t *to) {
  const vt_amx_product *p = r->p;
  const uint16_t *from = (const uint16_t *)(const void *)r->lhs + offset;
  if (p->windowed)
    pack_window(&p->window, from, m, count, k, k + length, depth, to);
  else
    pack(from + m * p->lhs_row + k * p->lhs_column, p->lhs_row, p->lhs_column, count, length, depth,
         false, to);
}

// A block of rows and columns of one item, whose right side is packed; two rows of tiles at a time,
// so that their sums stay in the cache. `*packed`: the first row of the left side that `own` has.
static void run_block(const run *r, const int64_t *offsets, int64_t task, char *own,
                      int64_t *packed) {
  const vt_amx_product *p = r->p;
  int64_t across = tiles_of(p->n, p->block_n), depth = p->depth;
  int64_t i = task / across * p->block_m, j = task % across * p->block_n;
  int64_t rows = least(p->block_m, p->m - i);
  uint16_t *lhs = (uint16_t *)(void *)own;
  const uint16_t *rhs = (const uint16_t *)(const void *)r->shared + j / T * depth * TILE;
  block b = {.n = least(p->block_n, p->n - j),
             .m_tiles = 2,
             .row = p->out_row,
             .bias = r->bias ? r->bias + j : NULL,
             .sums = (float *)(void *)(own + p->lhs_bytes)};
  if (*packed != i) pack_lhs(r, offsets[0], i, rows, 0, p->k, depth, lhs);
  *packed = i;
  for (int64_t m = 0; m < rows; m += 2 * T, lhs += 2 * depth * TILE) {
    int64_t out_at = offsets[2] + (i + m) * p->out_row + j;
    b.m = least(2 * T, rows - m);
    b.direct = p->out == VT_F32 ? (float *)(void *)r->out + out_at : NULL;
    for (int64_t d = 0; d < depth; d += CHUNK)
      multiply_chunk(&b, lhs + d * TILE, depth, rhs + d * TILE, depth, least(CHUNK, depth - d),
                     d == 0, d == 0);
    write_sums(&b, p->out, r->out + out_at * (int64_t)vt_dtype_bytes(p->out));
  }
}

// The partial sums over one part of K.
static void run_part(const run *r, int64_t part, char *own) {
  const vt_amx_product *p = r->p;
  int64_t lo = part * p->depth / p->parts, hi = (part + 1) * p->depth / p->parts;
  uint16_t *lhs = (uint16_t *)(void *)own, *rhs = (uint16_t *)(void *)(own + p->lhs_bytes);
  block b = {.m = p->m,
             .n = p->n,
             .m_tiles = tiles_of(p->m, T),
             .row = p->out_row,
             .bias = part == 0 ? r->bias : NULL,
             .sums = (float *)(void *)(r->shared + part * p->sums_bytes)};
  for (int64_t d = lo; d < hi; d += CHUNK) {
    int64_t tiles = least(CHUNK, hi - d), k = least(tiles * PAIRED, p->k - d * PAIRED);
    pack_lhs(r, 0, 0, p->m, d * PAIRED, k, tiles, lhs);
    pack((const uint16_t *)(const void *)r->rhs + d * PAIRED * p->rhs_row, p->rhs_column,
         p->rhs_row, p->n, k, tiles, true, rhs);
    multiply_chunk(&b, lhs, tiles, rhs, tiles, tiles, d == lo, d == lo);
  }
}

// Tasks that add up partial sums: some tiles of one column of tiles of the result each.
enum { ADDED = 8 };

static int64_t adding_tasks(const vt_amx_product *p) {
  return tiles_of(p->n, T) * tiles_of(tiles_of(p->m, T), ADDED);
}

AMX static void add_parts(const run *r, int64_t task) {
  const vt_amx_product *p = r->p;
  int64_t m_tiles = tiles_of(p->m, T), pieces = tiles_of(m_tiles, ADDED);
  int64_t column = task / pieces, first = task % pieces * ADDED;
  int64_t size = least(ADDED, m_tiles - first) * SUMS;
  int64_t part = p->sums_bytes / (int64_t)sizeof(float);
  float *to = (float *)(void *)r->shared + (column * m_tiles + first) * SUMS;
  for (int64_t s = 1; s < p->parts; s++)
    for (int64_t i = 0; i < size; i += T)
      _mm512_store_ps(to + i,
                      _mm512_add_ps(_mm512_load_ps(to + i), _mm512_load_ps(to + s * part + i)));
  int64_t at = column * T;
  block b = {.m = least(ADDED * T, p->m - first * T),
             .n = least(T, p->n - at),
             .m_tiles = m_tiles,
             .row = p->out_row,
             .bias = r->bias ? r->bias + at : NULL,
             .sums = to};
  at += first * T * p->out_row;
  write_sums(&b, p->out, r->out + at * (int64_t)vt_dtype_bytes(p->out));
}

// Separate functions: Clang drops the target attribute when it outlines a parallel region.
AMX static void take_tiles(void) {
  _tile_loadconfig(&full_tiles);
}

AMX static void release_tiles(void) {
  _tile_release();
}

AMX static void run_all_parts(const run *r) {
  const vt_amx_product *p = r->p;
#pragma omp parallel num_threads(p->threads)
  {
    char *own = r->own + omp_get_thread_num() * (p->lhs_bytes + p->rhs_bytes);
    take_tiles();
#pragma omp for schedule(dynamic) nowait
    for (int64_t part = 0; part < p->parts; part++) run_part(r, part, own);
    release_tiles(); // before waiting: tiles in use slow the neighbour down
#pragma omp barrier
#pragma omp for schedule(dynamic) nowait
    for (int64_t i = 0; i < adding_tasks(p); i++) add_parts(r, i);
  }
}

AMX static void run_all_blocks(const run *r) {
  const vt_amx_product *p = r->p;
  int64_t tasks = tiles_of(p->m, p->block_m) * tiles_of(p->n, p->block_n);
  // The right side is packed in pieces in memory order.
  int64_t piece_k = p->rhs_column == 1 ? PAIRED : p->depth * PAIRED;
  int64_t piece_n = p->rhs_column == 1 ? p->n : 2 * T;
  int64_t across = tiles_of(p->n, piece_n), pieces = across * tiles_of(p->k, piece_k);
#pragma omp parallel num_threads(p->threads)
  {
    char *own = r->own + omp_get_thread_num() * (p->lhs_bytes + p->sums_bytes);
    for (int64_t item = 0; item < p->items; item++) {
      int64_t offsets[3], packed = -1;
      item_offsets(p, item, offsets);
#pragma omp for schedule(dynamic)
      for (int64_t t = 0; t < pieces; t++) {
        int64_t k = t / across * piece_k, n = t % across * piece_n;
        pack((const uint16_t *)(const void *)r->rhs + offsets[1] + k * p->rhs_row +
                 n * p->rhs_column,
             p->rhs_column, p->rhs_row, least(piece_n, p->n - n), least(piece_k, p->k - k),
             p->depth, true,
             (uint16_t *)(void *)r->shared + (n / T * p->depth + k / PAIRED) * TILE);
      }
      take_tiles();
#pragma omp for schedule(dynamic) nowait
      for (int64_t t = 0; t < tasks; t++) run_block(r, offsets, t, own, &packed);
      release_tiles();
#pragma omp barrier // the packed right side is free for the next item
    }
  }
}

void vt_amx_run(const vt_amx_product *p, const void *lhs, const void *rhs, const float *bias,
                void *out, void *scratch) {
  run r = {.p = p, .lhs = lhs, .rhs = rhs, .bias = bias, .out = out, .shared = scratch};
  r.own = r.shared + (p->parts > 1 ? p->parts * p->sums_bytes : p->rhs_bytes);
  if (p->parts > 1)
    run_all_parts(&r);
  else
    run_all_blocks(&r);
}

int64_t vt_amx_side_bytes(int64_t free, int64_t k) {
  return tiles_of(free, T) * tiles_of(k, PAIRED) * TILE * (int64_t)sizeof(uint16_t);
}

void vt_amx_lay(const vt_amx_side *s, const void *from, int64_t free, int64_t k, bool right,
                void *to) {
  if (s->dtype == VT_F32)
    round_side(s, from, free, k, right, to);
  else
    pack(from, s->across, s->along, free, k, tiles_of(k, PAIRED), right, to);
}

// Reads the sums of edge tiles, to which a product is added, from the result.
AMX static void read_sums(const block *b) {
  for (int64_t j = 0; j * T < b->n; j++) {
    __mmask16 mask = first16(b->n - j * T);
    for (int64_t i = 0; i * T < b->m; i++) {
      if ((j + 1) * T <= b->n && (i + 1) * T <= b->m) continue;
      float *to = b->sums + (j * b->m_tiles + i) * SUMS;
      for (int64_t r = 0; r < T; r++) {
        const float *from = b->direct + (i * T + r) * b->row + j * T;
        _mm512_store_ps(to + r * T,
                        i * T + r < b->m ? _mm512_maskz_loadu_ps(mask, from) : _mm512_setzero_ps());
      }
    }
  }
}

void vt_amx_multiply(const void *lhs, const void *rhs, int64_t m, int64_t n, int64_t k, bool adds,
                     float *out, int64_t out_row, void *sums) {
  int64_t depth = tiles_of(k, PAIRED);
  take_tiles();
  for (int64_t i = 0; i < m; i += 2 * T) {
    block b = {.m = least(2 * T, m - i),
               .n = n,
               .m_tiles = 2,
               .direct = out + i * out_row,
               .row = out_row,
               .sums = sums};
    bool edges = b.m % T || n % T;
    if (adds && edges) read_sums(&b);
    for (int64_t d = 0; d < depth; d += CHUNK)
      multiply_chunk(&b, (const uint16_t *)lhs + (i / T * depth + d) * TILE, depth,
                     (const uint16_t *)rhs + d * TILE, depth, least(CHUNK, depth - d),
                     d == 0 && !adds, false); // the result is in the cache
    if (edges) write_sums(&b, VT_F32, (char *)b.direct);
  }
  release_tiles();
}

// oneDNN is as good or better for small batch items and results with few rows or columns.
static bool large(const vt_amx_product *p) {
  int64_t least_products = p->items > 1 ? MIN_ITEM_PRODUCTS : MIN_PRODUCTS;
  return p->m >= T && p->n >= T && p->m * p->n * p->k >= least_products;
}

// Whether there are enough blocks for all threads, and the last to be taken keep most of them busy.
static bool keeps_busy(const vt_amx_product *p) {
  int64_t tasks = tiles_of(p->m, p->block_m) * tiles_of(p->n, p->block_n), threads = p->threads;
  return tasks >= MIN_TASKS && tasks >= 2 * threads &&
         tasks * 100 >= tiles_of(tasks, threads) * threads * BUSY;
}

bool vt_amx_prepare(vt_amx_product *p, bool any_size) {
  bool lhs = p->windowed ? p->window.channels % T == 0 : p->lhs_row == 1 || p->lhs_column == 1;
  if (!vt_host_has_amx() || !lhs || (p->rhs_row != 1 && p->rhs_column != 1) ||
      (p->out != VT_F32 && p->out != VT_BF16))
    return false;
  p->items = 1;
  for (int32_t d = 0; d < p->batch_rank; d++) p->items *= p->batch_sizes[d];
  if (!any_size && !large(p)) return false;
  const int64_t tile_bytes = TILE * (int64_t)sizeof(uint16_t);
  int64_t m_tiles = tiles_of(p->m, T), n_tiles = tiles_of(p->n, T);
  p->threads = omp_get_max_threads();
  p->depth = tiles_of(p->k, PAIRED);
  p->parts = 1;
  p->sums_bytes = m_tiles * n_tiles * SUMS * (int64_t)sizeof(float);
  if (p->items == 1 && p->sums_bytes <= PARTS_BYTES && p->depth >= PARTS * CHUNK / 2) {
    p->parts = PARTS;
    p->lhs_bytes = m_tiles * CHUNK * tile_bytes;
    p->rhs_bytes = n_tiles * CHUNK * tile_bytes;
    p->scratch_bytes = p->parts * p->sums_bytes + p->threads * (p->lhs_bytes + p->rhs_bytes);
    return true;
  }
  p->block_m = 128, p->block_n = 512;
  while (p->block_m > 2 * T && !keeps_busy(p)) p->block_m /= 2;
  while (p->block_n > 4 * T && !keeps_busy(p)) p->block_n /= 2;
  p->lhs_bytes = p->block_m / T * p->depth * tile_bytes;
  p->rhs_bytes = n_tiles * p->depth * tile_bytes;
  p->sums_bytes = 2 * T * least(p->block_n, n_tiles * T) * (int64_t)sizeof(float);
  p->scratch_bytes = p->rhs_bytes + p->threads * (p->lhs_bytes + p->sums_bytes);
  return true;
}
