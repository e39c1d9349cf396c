// SPDX-License-Identifier: Apache-2.0
// gemv.c - a matrix of f32 or bf16 times a vector, reads each number of the matrix once and runs at
// memory speed. Sums are f32. A model that answers one request at a time spends its time here.
//
// The matrix is read in memory order. If rows run along K, a task computes some of the results,
// four dot products at a time. If they run along N, a task takes a block of K and adds four scaled
// rows at a time to its own partial sums, which are then added in order: results are bit-identical
// for any number of threads.
#include <string.h>

#include "host/contraction.h"
#include "host/cpu.h"
#include "host/products.h"
#include "ir/number.h"

enum { MAX_BLOCKS = 32, MIN_ROWS = 64, RESULTS = 32 };
static const int64_t MIN_ELEMENTS = 16 << 10;

typedef struct gemv {
  bool vector_first;            // the vector is input 0
  bool along_k;                 // rows of the matrix run along K
  vt_dtype vector, matrix, out; // f32 or bf16
  int64_t k, n, row;            // stride between rows of the matrix, in elements
  bool copies;                  // the vector
  int64_t vector_stride;
  int64_t blocks;                            // of K, when rows run along N
  int64_t x_offset, sums_offset, out_offset; // in scratch; out: in f32, before it is rounded
} gemv;

static void run_along_k(const gemv *g, const float *x, const char *matrix, float *out) {
  const vt_product_code *code = vt_product_code_of();
#pragma omp parallel for schedule(dynamic, 1 + g->n / RESULTS / VT_LOOP_SHARES)
  for (int64_t n = 0; n < g->n; n += RESULTS) {
    int64_t count = g->n - n < RESULTS ? g->n - n : RESULTS;
    if (g->matrix == VT_F32)
      code->dots_of_rows(x, (const float *)(const void *)matrix + n * g->row, g->row, g->k, count,
                         out + n);
    else
      code->dots_of_rows_bf16(x, (const uint16_t *)(const void *)matrix + n * g->row, g->row, g->k,
                              count, out + n);
  }
}

static void run_along_n(const gemv *g, const float *x, const char *matrix, float *sums,
                        float *out) {
  const vt_product_code *code = vt_product_code_of();
#pragma omp parallel for schedule(dynamic)
  for (int64_t b = 0; b < g->blocks; b++) {
    int64_t lo = b * g->k / g->blocks, count = (b + 1) * g->k / g->blocks - lo;
    if (g->matrix == VT_F32)
      code->sum_of_rows(x + lo, (const float *)(const void *)matrix + lo * g->row, g->row, g->n,
                        count, sums + b * g->n);
    else
      code->sum_of_rows_bf16(x + lo, (const uint16_t *)(const void *)matrix + lo * g->row, g->row,
                             g->n, count, sums + b * g->n);
  }
  for (int64_t b = 1; b < g->blocks; b++)
    for (int64_t i = 0; i < g->n; i++) sums[i] += sums[b * g->n + i];
  for (int64_t i = 0; i < g->n; i++) out[i] = sums[g->matrix == VT_F32 ? i : vt_dealt(i, g->n)];
}

// The vector's numbers side by side in f32, in the order that the matrix asks for.
static const float *dense_vector(const gemv *g, const char *x, char *scratch) {
  if (!g->copies) return (const void *)x;
  float *dense = (void *)(scratch + g->x_offset);
  bool deals = g->along_k && g->matrix == VT_BF16;
  for (int64_t i = 0; i < g->k; i++) {
    int64_t at = i * g->vector_stride;
    dense[deals ? vt_dealt(i, g->k) : i] =
        g->vector == VT_F32 ? ((const float *)(const void *)x)[at]
                            : vt_f32_from_bf16(((const uint16_t *)(const void *)x)[at]);
  }
  return dense;
}

static vt_status run_gemv(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  (void)exec;
  const gemv *g = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots, *scratch = NULL;
    if (step->scratch_bytes) scratch = slots[step->scratch_slot];
    const char *matrix = slots[step->input_slots[g->vector_first ? 1 : 0]];
    const float *x = dense_vector(g, slots[step->input_slots[g->vector_first ? 0 : 1]], scratch);
    char *result = slots[step->output_slots[0]];
    float *out = (void *)(g->out == VT_F32 ? result : scratch + g->out_offset);
    if (g->along_k)
      run_along_k(g, x, matrix, out);
    else
      run_along_n(g, x, matrix, (void *)(scratch + g->sums_offset), out);
    if (step->input_count == 3) {
      const float *bias = (const void *)slots[step->input_slots[2]];
      for (int64_t i = 0; i < g->n; i++) out[i] += bias[i];
    }
    if (g->out == VT_BF16)
      for (int64_t i = 0; i < g->n; i++) ((uint16_t *)(void *)result)[i] = vt_bf16_from_f32(out[i]);
  }
  return VT_OK;
}

static bool takes(vt_dtype dtype) {
  return dtype == VT_F32 || dtype == VT_BF16;
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
  gemv g = {.vector_first = vector_first,
            .vector = step->inputs[vector_first ? 0 : 1]->type.dtype,
            .matrix = step->inputs[vector_first ? 1 : 0]->type.dtype,
            .out = step->outputs[0]->type.dtype};
  if (!takes(g.vector) || !takes(g.matrix) || !takes(g.out)) return false;
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
  g.copies = g.vector == VT_BF16 || g.vector_stride != 1 || (g.along_k && g.matrix == VT_BF16);
  if (g.copies) g.x_offset = vt_step_reserve(step, g.k * (int64_t)sizeof(float));
  if (g.out == VT_BF16) g.out_offset = vt_step_reserve(step, g.n * (int64_t)sizeof(float));
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
