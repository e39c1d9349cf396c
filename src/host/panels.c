// SPDX-License-Identifier: Apache-2.0
// panels.c - see panels.h.
//
// The right side is laid out in panels of 16 columns, each row of a panel next to the one before;
// the left side in blocks of up to six rows, each of their columns next to the one before, K cut
// into depths of which a panel's part stays in the first cache. A task is some panels times some
// blocks of rows; the sums of a depth go on from those of the depths before. Where the
// right side's numbers are bf16 and few rows read it, panels are bf16: half of what is read from
// memory, and the same result.
#include <omp.h>
#include <string.h>

#include "host/cpu.h"
#include "host/panels.h"
#include "host/products.h"
#include "ir/number.h"

enum {
  N = VT_PRODUCT_LANES,
  DEPTH = 256,
  FEW_ROWS = 16, // up to here reading the right side takes longer than multiplying
  MIN_ROWS = 32, // from here on laying it out for one run pays off
  PANELS = 4,    // of a task
  BLOCKS = 20,   // of a task
  LAID = 8,      // laid out at once
  ROWS = BLOCKS * VT_PANEL_ROWS,
  TALL = 16 * ROWS, // from here on a task lays out its own rows
  MIN_K = 8,
  MIN_LAID = 64 << 10, // numbers that one more thread lays out
  MIN_PRODUCTS = 2 << 20
};

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t ceil_of(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
static int64_t panels_of(const vt_panels *p) {
  return ceil_of(p->n, N);
}
static int64_t blocks_of(const vt_panels *p) {
  return ceil_of(p->m, VT_PANEL_ROWS);
}
// Rows are spread evenly over the blocks.
static int64_t first_row(const vt_panels *p, int64_t block) {
  return block * p->m / blocks_of(p);
}

bool vt_panels_prepare(vt_panels *p, bool any_size) {
  if (vt_host_level() != 3) return false;
  if (!any_size && (p->n < N || p->k < MIN_K || p->m < (p->kept ? 2 : MIN_ROWS))) return false;
  p->panel = p->bf16 && p->m <= FEW_ROWS ? VT_BF16 : VT_F32;
  p->rhs_bytes = panels_of(p) * N * p->k * (int64_t)vt_dtype_bytes(p->panel);
  p->threads = p->m >= TALL ? omp_get_max_threads() : 0;
  p->lhs_bytes = (p->threads ? p->threads * ROWS : p->m) * p->k * (int64_t)sizeof(float);
  return true;
}

// A number of a side that lies in bf16 or in f32.
static inline float number(const void *side, bool narrow, int64_t i) {
  return narrow ? vt_f32_from_bf16(((const uint16_t *)side)[i]) : ((const float *)side)[i];
}

static inline const void *element(const void *side, bool narrow, int64_t i) {
  return (const char *)side + i * (narrow ? 2 : 4);
}

static inline __attribute__((always_inline)) void lay_row(const vt_panels *p, const void *from,
                                                          bool narrow, int64_t step,
                                                          int64_t columns, int64_t k, void *to) {
  float *wide = to, row[N] = {0};
  uint16_t *half = to;
  for (int64_t i = 0; i < columns; i++) row[i] = number(from, narrow, i * step);
  if (p->panel == VT_F32)
    memcpy(wide + k * N, row, sizeof row);
  else
    for (int i = 0; i < N; i++) half[k * N + i] = (uint16_t)(vt_f32_bits(row[i]) >> 16);
}

static inline __attribute__((always_inline)) void
lay_panel(const vt_panels *p, const void *from, bool narrow, int64_t columns, void *to) {
  for (int64_t k = 0; k < p->k; k++, from = element(from, narrow, p->rhs_row))
    if (columns == N && p->rhs_column == 1)
      lay_row(p, from, narrow, 1, N, k, to);
    else
      lay_row(p, from, narrow, p->rhs_column, columns, k, to);
}

void vt_panels_lay(const vt_panels *p, const void *rhs, void *panels) {
  int64_t count = panels_of(p), bytes = p->rhs_bytes / count;
  bool narrow = p->from[1] == VT_BF16;
#pragma omp parallel for schedule(dynamic, vt_host_share(count)) if (p->n * p->k >= MIN_LAID)
  for (int64_t i = 0; i < count; i++) {
    const void *from = element(rhs, narrow, i * N * p->rhs_column);
    char *to = (char *)panels + i * bytes;
    if (narrow)
      lay_panel(p, from, true, least(N, p->n - i * N), to);
    else
      lay_panel(p, from, false, least(N, p->n - i * N), to);
  }
}

// A block's rows for each depth, which all blocks of the depth before precede.
static inline __attribute__((always_inline)) void lay_rows(const vt_panels *p, const void *lhs,
                                                           bool narrow, int64_t lo, int64_t rows,
                                                           int64_t column, float *to) {
  for (int64_t k = 0; k < p->k; k += DEPTH) {
    int64_t depth = least(DEPTH, p->k - k);
    float *part = to + k * p->m + lo * depth;
    for (int64_t i = 0; i < depth; i++)
      for (int64_t r = 0; r < rows; r++)
        part[i * rows + r] = number(lhs, narrow, r * p->lhs_row + (k + i) * column);
  }
}

static void lay_block(const vt_panels *p, const void *lhs, int64_t block, float *to) {
  int64_t lo = first_row(p, block), rows = first_row(p, block + 1) - lo;
  bool narrow = p->from[0] == VT_BF16, whole = rows == VT_PANEL_ROWS && p->lhs_column == 1;
  lhs = element(lhs, narrow, lo * p->lhs_row);
  if (whole && narrow)
    lay_rows(p, lhs, true, lo, VT_PANEL_ROWS, 1, to);
  else if (whole)
    lay_rows(p, lhs, false, lo, VT_PANEL_ROWS, 1, to);
  else
    lay_rows(p, lhs, narrow, lo, rows, p->lhs_column, to);
}

// Blocks of a left side whose rows lie next to each other, column by column: each line of memory is
// read once for all of them.
static inline __attribute__((always_inline)) void lay_across(const vt_panels *p, const void *lhs,
                                                             bool narrow, int64_t first,
                                                             int64_t count, float *to) {
  int64_t lo[LAID + 1];
  for (int64_t b = 0; b <= count; b++) lo[b] = first_row(p, first + b);
  for (int64_t k = 0; k < p->k; k++) {
    int64_t at = k % DEPTH, depth = least(DEPTH, p->k - (k - at));
    const void *from = element(lhs, narrow, k * p->lhs_column);
    for (int64_t b = 0; b < count; b++) {
      int64_t rows = lo[b + 1] - lo[b];
      float *part = to + (k - at) * p->m + lo[b] * depth + at * rows;
      if (rows == VT_PANEL_ROWS)
        for (int64_t r = 0; r < VT_PANEL_ROWS; r++) part[r] = number(from, narrow, lo[b] + r);
      else
        for (int64_t r = 0; r < rows; r++) part[r] = number(from, narrow, lo[b] + r);
    }
  }
}

static void lay_blocks(const vt_panels *p, const void *lhs, int64_t first, float *to) {
  int64_t count = least(LAID, blocks_of(p) - first);
  if (p->lhs_row != 1 || p->lhs_column == 1)
    for (int64_t b = 0; b < count; b++) lay_block(p, lhs, first + b, to);
  else if (p->from[0] == VT_BF16)
    lay_across(p, lhs, true, first, count, to);
  else
    lay_across(p, lhs, false, first, count, to);
}

static void lay_left(const vt_panels *p, const void *lhs, float *to) {
  int64_t count = ceil_of(blocks_of(p), LAID);
#pragma omp parallel for schedule(dynamic, vt_host_share(count)) if (p->m * p->k >= MIN_LAID)
  for (int64_t i = 0; i < count; i++) lay_blocks(p, lhs, i * LAID, to);
}

typedef struct tile {
  const vt_product_code *code;
  int64_t rows, columns, depth;
  const float *lhs, *bias;
  const void *panel;
  vt_panel_sums kind;
  float *out;
  int64_t out_row;
} tile;

static void multiply(const vt_panels *p, const tile *t) {
  if (p->panel == VT_F32)
    t->code->panel_f32(t->rows, t->depth, t->lhs, t->panel, t->bias, t->kind, t->out, t->out_row);
  else
    t->code->panel_bf16(t->rows, t->depth, t->lhs, t->panel, t->bias, t->kind, t->out, t->out_row);
}

// A panel that the result ends in: by way of memory that is wide enough.
static void multiply_narrow(const vt_panels *p, const tile *t) {
  float sums[VT_PANEL_ROWS][N] = {{0}}, bias[N] = {0};
  tile whole = *t;
  size_t bytes = (size_t)t->columns * sizeof(float);
  for (int64_t r = 0; t->kind && r < t->rows; r++) memcpy(sums[r], t->out + r * t->out_row, bytes);
  if (t->bias) memcpy(bias, t->bias, bytes);
  whole.bias = t->bias ? bias : NULL;
  whole.out = sums[0];
  whole.out_row = N;
  multiply(p, &whole);
  for (int64_t r = 0; r < t->rows; r++) memcpy(t->out + r * t->out_row, sums[r], bytes);
}

typedef struct operands {
  const void *lhs; // as it is, or laid out
  const float *bias;
  const char *panels;
  float *out;
  int64_t row, column; // of the result, where `out` is
} operands;

static void multiply_all(const vt_panels *p, const operands *o, int64_t first_panel,
                         int64_t first_block) {
  int64_t last_panel = least(first_panel + PANELS, panels_of(p));
  int64_t last_block = least(first_block + BLOCKS, blocks_of(p));
  int64_t size = (int64_t)vt_dtype_bytes(p->panel);
  const vt_product_code *code = vt_product_code_of();
  for (int64_t k = 0; k < p->k; k += DEPTH) {
    int64_t depth = least(DEPTH, p->k - k);
    for (int64_t i = first_panel; i < last_panel; i++)
      for (int64_t b = first_block; b < last_block; b++) {
        int64_t lo = first_row(p, b);
        tile t = {.code = code,
                  .rows = first_row(p, b + 1) - lo,
                  .columns = least(N, p->n - i * N),
                  .depth = depth,
                  .lhs = (const float *)o->lhs + k * p->m + lo * depth,
                  .bias = o->bias && k + depth == p->k ? o->bias + i * N : NULL,
                  .panel = o->panels + (i * p->k + k) * N * size,
                  .kind = k         ? VT_PANEL_GOES_ON
                          : p->adds ? VT_PANEL_ADDS
                                    : VT_PANEL_FRESH,
                  .out = o->out + (lo - o->row) * p->out_row + i * N - o->column,
                  .out_row = p->out_row};
        if (t.columns == N)
          multiply(p, &t);
        else
          multiply_narrow(p, &t);
      }
  }
}

// A product of several depths that is added to something is whole before.
static void multiply_and_add(const vt_panels *p, const operands *o, int64_t first_panel,
                             int64_t first_block) {
  float sums[ROWS * PANELS * N];
  int64_t first = first_row(p, first_block), column = first_panel * N;
  int64_t rows = first_row(p, least(first_block + BLOCKS, blocks_of(p))) - first;
  int64_t columns = least(PANELS * N, p->n - column);
  vt_panels part = *p;
  operands whole = *o;
  part.adds = false;
  part.out_row = PANELS * N;
  whole.out = sums, whole.row = first, whole.column = column;
  multiply_all(&part, &whole, first_panel, first_block);
  for (int64_t r = 0; r < rows; r++) {
    float *out = o->out + (first + r) * p->out_row + column;
    for (int64_t i = 0; i < columns; i++) out[i] += sums[r * part.out_row + i];
  }
}

static void run_task(const vt_panels *p, const operands *o, int64_t first_panel,
                     int64_t first_block) {
  if (p->adds && p->k > DEPTH)
    multiply_and_add(p, o, first_panel, first_block);
  else
    multiply_all(p, o, first_panel, first_block);
}

// Rows from `first` on, as a product of their own.
static void run_rows(const vt_panels *p, const operands *whole, int64_t first, float *scratch) {
  vt_panels part = *p;
  operands o = *whole;
  part.m = least(ROWS, p->m - first);
  o.out += first * p->out_row;
  const void *lhs = element(whole->lhs, p->from[0] == VT_BF16, first * p->lhs_row);
  for (int64_t b = 0; b < blocks_of(&part); b += LAID) lay_blocks(&part, lhs, b, scratch);
  o.lhs = scratch;
  for (int64_t i = 0; i < panels_of(p); i += PANELS) run_task(&part, &o, i, 0);
}

void vt_panels_run(const vt_panels *p, const void *lhs, const void *panels, const float *bias,
                   float *out, void *scratch) {
  operands o = {.lhs = lhs, .bias = bias, .panels = panels, .out = out};
  if (p->threads) {
    float *own = scratch;
#pragma omp parallel for schedule(dynamic) num_threads(p->threads)
    for (int64_t i = 0; i < ceil_of(p->m, ROWS); i++)
      run_rows(p, &o, i * ROWS, own + omp_get_thread_num() * ROWS * p->k);
    return;
  }
  lay_left(p, lhs, scratch);
  o.lhs = scratch;
  int64_t down = ceil_of(blocks_of(p), BLOCKS), tasks = down * ceil_of(panels_of(p), PANELS);
#pragma omp parallel for schedule(dynamic) if (p->m * p->n * p->k >= MIN_PRODUCTS)
  for (int64_t i = 0; i < tasks; i++) run_task(p, &o, i / down * PANELS, i % down * BLOCKS);
}
