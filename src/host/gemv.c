// SPDX-License-Identifier: Apache-2.0
// gemv.c - a matrix times a vector in f32, reads each number of the matrix once and runs at memory
// speed. A model that answers one request at a time spends its time here.
//
// The matrix is read in memory order. If rows run along K, a task computes some of the results,
// four dot products at a time. If they run along N, a task takes a block of K and adds four scaled
// rows at a time to its own partial sums, which are then added in order: results are bit-identical
// for any number of threads.
#include <string.h>

#include "host/contraction.h"
#include "host/cpu.h"
#include "host/products.h"

enum { MAX_BLOCKS = 32, MIN_ROWS = 64, RESULTS = 32 };
static const int64_t MIN_ELEMENTS = 16 << 10;

typedef struct gemv {
  bool vector_first; // the vector is input 0
  bool along_k;      // rows of the matrix run along K
  int64_t k, n, row; // stride between rows of the matrix, in elements
  int64_t vector_stride;
  int64_t blocks; // of K, when rows run along N
  int64_t x_offset, sums_offset;
} gemv;

static void run_along_n(const gemv *g, const float *x, const float *matrix, float *sums,
                        float *out) {
  const vt_product_code *code = vt_product_code_of();
#pragma omp parallel for schedule(dynamic)
  for (int64_t b = 0; b < g->blocks; b++) {
    int64_t lo = b * g->k / g->blocks, hi = (b + 1) * g->k / g->blocks;
    code->sum_of_rows(x + lo, matrix + lo * g->row, g->row, g->n, hi - lo, sums + b * g->n);
  }
  memcpy(out, sums, sizeof *out * (size_t)g->n);
  for (int64_t b = 1; b < g->blocks; b++)
    for (int64_t i = 0; i < g->n; i++) out[i] += sums[b * g->n + i];
}

static vt_status run_gemv(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  (void)exec;
  const gemv *g = step->body;
  const vt_product_code *code = vt_product_code_of();
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    const float *x = (const void *)slots[step->input_slots[g->vector_first ? 0 : 1]];
    const float *matrix = (const void *)slots[step->input_slots[g->vector_first ? 1 : 0]];
    char *scratch = step->scratch_bytes ? slots[step->scratch_slot] : NULL;
    float *out = (void *)slots[step->output_slots[0]];
    if (g->vector_stride != 1) {
      float *dense = (void *)(scratch + g->x_offset);
      for (int64_t i = 0; i < g->k; i++) dense[i] = x[i * g->vector_stride];
      x = dense;
    }
    if (g->along_k) {
#pragma omp parallel for schedule(dynamic, 1 + g->n / RESULTS / VT_LOOP_SHARES)
      for (int64_t n = 0; n < g->n; n += RESULTS)
        code->dots_of_rows(x, matrix + n * g->row, g->row, g->k,
                           g->n - n < RESULTS ? g->n - n : RESULTS, out + n);
    } else {
      run_along_n(g, x, matrix, (void *)(scratch + g->sums_offset), out);
    }
    if (step->input_count == 3) {
      const float *bias = (const void *)slots[step->input_slots[2]];
      for (int64_t i = 0; i < g->n; i++) out[i] += bias[i];
    }
  }
  return VT_OK;
}

// The list's only dimension and the matrix's `stride` along it; false when there are several.
static bool only(const vt_dims *list, bool lhs, int64_t *size, int64_t *stride) {
  if (list->count > 1) return false;
  *size = list->count ? list->at[0].size : 1;
  *stride = !list->count ? 1 : lhs ? list->at[0].lhs : list->at[0].rhs;
  return true;
}

bool vt_step_gemv(vt_plan *plan, vt_step *step, const vt_contraction *c) {
  bool vector_first = c->m.count == 0; // else the vector is on the right
  const vt_dims *free = vector_first ? &c->n : &c->m;
  if (c->batch.count || (c->m.count && c->n.count) || !free->count) return false;
  for (int i = 0; i < 2; i++)
    if (step->inputs[i]->type.dtype != VT_F32) return false;
  if (step->outputs[0]->type.dtype != VT_F32) return false;
  gemv g = {.vector_first = vector_first};
  int64_t along_k, along_n, out_stride = free->at[0].out;
  if (!only(&c->k, !vector_first, &g.k, &along_k) || !only(free, !vector_first, &g.n, &along_n) ||
      out_stride != 1 || g.k * g.n < MIN_ELEMENTS)
    return false;
  g.along_k = along_k == 1;
  if (!g.along_k && along_n != 1) return false;
  g.row = g.along_k ? along_n : along_k;
  g.vector_stride = c->k.count ? vector_first ? c->k.at[0].lhs : c->k.at[0].rhs : 1;
  if (step->input_count == 3 && vt_type_elements(step->inputs[2]->type) != g.n) return false;
  g.blocks = g.k / MIN_ROWS < 1 ? 1 : g.k / MIN_ROWS > MAX_BLOCKS ? MAX_BLOCKS : g.k / MIN_ROWS;
  if (g.vector_stride != 1) g.x_offset = vt_step_reserve(step, g.k * (int64_t)sizeof(float));
  if (!g.along_k) g.sums_offset = vt_step_reserve(step, g.blocks * g.n * (int64_t)sizeof(float));
  gemv *body = VT_NEW(&plan->program->arena, gemv);
  *body = g;
  step->body = body;
  step->run = run_gemv;
  step->runner = "gemv";
  return true;
}

const vt_product_code *vt_product_code_v2(void);
const vt_product_code *vt_product_code_v3(void);
const vt_product_code *vt_product_code_v4(void);

const vt_product_code *vt_product_code_of(void) {
  return VT_OF_LEVEL(vt_product_code)();
}
