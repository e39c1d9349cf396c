// SPDX-License-Identifier: Apache-2.0
// kernel_tiles.c - products of kernels on Intel's matrix unit: out = [out +] a x b.
//
// Both sides are laid out in tiles (src/host/amx.h), rounded to bf16 on the way where they are f32.
// Each sum goes on from what `out` holds, so that an accumulator is read and written once. A kernel
// whose points of the grid are not shared between threads has its larger products shared, with the
// same bits.
#include <omp.h>

#include "host/amx.h"
#include "host/cpu.h"
#include "mosaic_host/kernel_product.h"

enum {
  BLOCK = 64,            // rows or columns of a side that a thread lays out at once
  MIN_SHARED = 4 << 20,  // multiplications that are worth waking a thread
  MOST_BYTES = 512 << 10 // of a side that one thread alone lays out at once: a part of its cache
};

typedef struct tiles {
  const vt_kproduct *p;
  vt_amx_side sides[2];
  int whole; // the side that is laid out first
  const char *from[2];
  float *out;
  char *own; // of each thread: the whole side, a block of the other, sums of edges
  int64_t own_bytes, block;
} tiles;

static int64_t least(int64_t x, int64_t y) {
  return x < y ? x : y;
}

// Threads lay out the smaller side each for itself: what another core has written is slow to read.
static int whole_side(const vt_kproduct *p) {
  return p->m > p->n;
}

static int64_t free_of(const vt_kproduct *p, int side) {
  return side ? p->n : p->m;
}

static int64_t product_threads(const vt_kproduct *p) {
  int64_t blocks = (free_of(p, !whole_side(p)) + BLOCK - 1) / BLOCK;
  return p->m * p->n * p->k >= MIN_SHARED && blocks > 1 ? vt_host_threads() : 1;
}

// Of one thread as many as there is room for: long rows are read faster than short ones.
static int64_t block_size(const vt_kproduct *p, bool shared) {
  int64_t count = free_of(p, !whole_side(p)), size = MOST_BYTES / vt_amx_side_bytes(1, p->k) * 16;
  if (shared || size < BLOCK) return BLOCK;
  return least(size, (count + 15) / 16 * 16);
}

static int64_t own_bytes(const vt_kproduct *p, bool shared) {
  return vt_amx_side_bytes(free_of(p, whole_side(p)), p->k) +
         vt_amx_side_bytes(block_size(p, shared), p->k) + VT_AMX_SUMS(p->n);
}

int64_t vt_ktiles_pad_bytes(const vt_kproduct *p) {
  int64_t threads = product_threads(p), alone = own_bytes(p, false);
  int64_t shared = threads * own_bytes(p, true);
  if (threads > 1 && shared > alone) alone = shared;
  // As vt_ktiles_rows has it.
  int64_t rows = vt_amx_side_bytes(p->n, p->k) + vt_amx_side_bytes(BLOCK, p->k) + VT_AMX_SUMS(p->n);
  return rows > alone ? rows : alone;
}

static void lay(const tiles *t, int side, int64_t at, int64_t count, char *to) {
  const vt_amx_side *s = &t->sides[side];
  vt_amx_lay(s, t->from[side] + at * s->across * (int64_t)vt_dtype_bytes(s->dtype), count, t->p->k,
             side == 1, to);
}

// A block of the other side times the whole one.
static void run_block(const tiles *t, int64_t at, char *own) {
  const vt_kproduct *p = t->p;
  int64_t free[2] = {p->m, p->n};
  free[!t->whole] = least(t->block, free[!t->whole] - at);
  char *sides[2], *sums;
  sides[t->whole] = own;
  sides[!t->whole] = own + vt_amx_side_bytes(free_of(p, t->whole), p->k);
  sums = sides[!t->whole] + vt_amx_side_bytes(t->block, p->k);
  lay(t, !t->whole, at, free[!t->whole], sides[!t->whole]);
  vt_amx_multiply(sides[0], sides[1], free[0], free[1], p->k, p->adds,
                  t->out + (t->whole ? at * p->row : at), p->row, sums);
}

static void run_one(const tiles *t, int threads) {
  int64_t size = free_of(t->p, !t->whole), whole = free_of(t->p, t->whole);
  if (threads == 1) {
    lay(t, t->whole, 0, whole, t->own);
    for (int64_t at = 0; at < size; at += t->block) run_block(t, at, t->own);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    char *own = t->own + omp_get_thread_num() * t->own_bytes;
    lay(t, t->whole, 0, whole, own);
#pragma omp for schedule(dynamic, 1)
    for (int64_t at = 0; at < size; at += t->block) run_block(t, at, own);
  }
}

vt_kproduct vt_ktiles_at(const vt_mmachine *m, const vt_kproduct *p) {
  vt_kproduct q = *p;
  for (int i = 0; i < 2; i++) {
    vt_kside *s = &q.sides[i];
    if (s->window < 0) continue;
    const int64_t *strides = m->windows[s->window].strides;
    int64_t bytes = (int64_t)vt_dtype_bytes(s->dtype);
    if (s->window_dims[0] >= 0) s->rows = strides[s->window_dims[0]] / bytes;
    if (s->window_dims[1] >= 0) s->columns = strides[s->window_dims[1]] / bytes;
  }
  return q;
}

void vt_ktiles_run(const vt_kproduct *p, const void *a, const void *b, void *out, void *pad) {
  const vt_kside *l = &p->sides[0], *r = &p->sides[1];
  tiles t = {.p = p,
             .sides = {{l->dtype, l->rows, l->columns}, {r->dtype, r->columns, r->rows}},
             .whole = whole_side(p),
             .own = pad};
  int threads = omp_get_num_threads() > 1 ? 1 : (int)product_threads(p);
  t.own_bytes = own_bytes(p, threads > 1);
  t.block = block_size(p, threads > 1);
  for (int64_t i = 0; i < p->batch; i++) {
    t.from[0] = (const char *)a + i * l->batch * (int64_t)vt_dtype_bytes(l->dtype);
    t.from[1] = (const char *)b + i * r->batch * (int64_t)vt_dtype_bytes(r->dtype);
    t.out = (float *)out + i * p->m * p->row;
    run_one(&t, threads);
  }
}

void vt_ktiles_lay(const vt_kproduct *p, const void *b, void *pad) {
  vt_amx_side side = {p->sides[1].dtype, p->sides[1].columns, p->sides[1].rows};
  vt_amx_lay(&side, b, p->n, p->k, true, pad);
}

void vt_ktiles_rows(const vt_kproduct *p, const void *a, int64_t row, int64_t rows, void *out,
                    void *pad) {
  vt_amx_side side = {p->sides[0].dtype, p->sides[0].rows, p->sides[0].columns};
  char *left = (char *)pad + vt_amx_side_bytes(p->n, p->k);
  const char *from = (const char *)a + row * side.across * (int64_t)vt_dtype_bytes(side.dtype);
  if (!p->laid) vt_amx_lay(&side, from, rows, p->k, false, left);
  vt_amx_multiply(p->laid ? a : left, pad, rows, p->n, p->k, p->adds, (float *)out + row * p->row,
                  p->row, left + vt_amx_side_bytes(BLOCK, p->k));
}
