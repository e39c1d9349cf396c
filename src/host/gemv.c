// SPDX-License-Identifier: Apache-2.0
// gemv.c - a matrix of f32 or bf16 times a vector, or a batch of matrices times a few vectors each
// (keys and values of a decoder's heads). Reads each number of the matrices once, where it lies, at
// memory speed. Sums are f32. A model that answers one request at a time spends its time here.
//
// The matrices are read in memory order: those whose rows lie side by side in the same loop
// (products.h, vt_few). If rows run along K, a task computes some of the results. If they run along
// N, a task takes a part of K and has sums of its own, which are then added in order: results are
// bit-identical for any number of threads.
#include <string.h>

#include "host/contraction.h"
#include "host/cpu.h"
#include "host/products.h"
#include "ir/number.h"

enum {
  MAX_VECTORS = 8, // for each matrix of a batch
  MAX_ITEMS = 256, // matrices side by side
  MAX_PARTS = 64,
  ALIGNED = 16, // rows of a task, so that no two write to one cache line
  MIN_ROWS = 32 // of a task whose sums are added up
};
static const int64_t PART_BYTES = 256 << 10, MIN_SHARED_BYTES = 256 << 10,
                     MIN_SHARED_SUMS = 32 << 10;

typedef struct gemv {
  bool vector_first;            // the vectors are input 0
  bool along_k;                 // rows of the matrices run along K
  vt_dtype vector, matrix, out; // f32 or bf16
  int64_t k, n;
  vt_dims outer; // of the batch, those that `few` does not go over; lhs: vectors, rhs: matrices
  int64_t outer_count;
  vt_few few;
  int64_t rows, parts;      // of the matrices of one outer item
  bool copies;              // the vectors
  int64_t stride, x_vector; // between their numbers, and between them, when copied
  const int64_t *x_items;
  int64_t x_outer;                           // vectors' numbers of an outer item, when copied
  bool shared, sums_shared;                  // over threads
  int64_t x_offset, sums_offset, out_offset; // in scratch; out: in f32, before it is rounded
} gemv;

// Where an outer item's vectors, matrices and results begin.
static vt_few_item outer_item(const gemv *g, int64_t index) {
  vt_few_item at = {.x = g->copies ? index * g->x_outer : 0};
  for (int32_t d = g->outer.count; d-- > 0;) {
    const vt_dim *dim = &g->outer.at[d];
    int64_t i = index % dim->size;
    index /= dim->size;
    if (!g->copies) at.x += i * dim->lhs;
    at.matrix += i * dim->rhs;
    at.out += i * dim->out;
  }
  return at;
}

// The sums of a task whose rows run along N.
static int64_t sums_of(const gemv *g) {
  return g->few.item_count * g->few.vectors * g->n;
}

typedef struct run {
  const gemv *g;
  const float *x;
  const char *matrix;
  float *sums, *out;
} run;

static void run_task(const run *r, int64_t task) {
  const gemv *g = r->g;
  const vt_product_code *code = vt_product_code_of();
  int64_t part = task % g->parts, unit = g->along_k ? ALIGNED : 1,
          units = (g->rows + unit - 1) / unit;
  int64_t lo = part * units / g->parts * unit, hi = (part + 1) * units / g->parts * unit;
  if (hi > g->rows) hi = g->rows;
  vt_few_item at = outer_item(g, task / g->parts);
  const char *from = r->matrix + (at.matrix + lo * g->few.row) * (int64_t)vt_dtype_bytes(g->matrix);
  const float *wide = (const void *)from;
  const uint16_t *narrow = (const void *)from;
  if (g->along_k) {
    float *to = r->out + at.out + lo * g->few.out_step;
    if (g->matrix == VT_F32)
      code->few_dots_f32(&g->few, r->x + at.x, wide, to, hi - lo);
    else
      code->few_dots_bf16(&g->few, r->x + at.x, narrow, to, hi - lo);
    return;
  }
  float *to = r->sums + task * sums_of(g);
  if (g->matrix == VT_F32)
    code->few_sums_f32(&g->few, r->x + at.x + lo, wide, to, hi - lo);
  else
    code->few_sums_bf16(&g->few, r->x + at.x + lo, narrow, to, hi - lo);
}

VT_ANY_CPU static void add_up(float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

// Adds up the sums of an outer item's parts, and puts them where they belong.
static void finish_sums(const run *r, int64_t index) {
  const gemv *g = r->g;
  int64_t size = sums_of(g);
  float *sums = r->sums + index * g->parts * size, *out = r->out + outer_item(g, index).out;
  const float *from = sums;
  for (int64_t part = 1; part < g->parts; part++) add_up(sums, sums + part * size, size);
  for (int64_t i = 0; i < g->few.item_count; i++)
    for (int64_t v = 0; v < g->few.vectors; v++, from += g->n) {
      float *to = out + g->few.items[i].out + v * g->few.out_vector;
      if (g->matrix == VT_F32 && g->few.out_step == 1)
        memcpy(to, from, sizeof *to * (size_t)g->n);
      else
        for (int64_t n = 0; n < g->n; n++)
          to[n * g->few.out_step] = from[g->matrix == VT_F32 ? n : vt_dealt(n, g->n)];
    }
}

VT_ANY_CPU static void widen(const uint16_t *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; i++) to[i] = vt_f32_from_bf16(from[i]);
}

// To where vt_dealt says.
VT_ANY_CPU static void widen_dealt(const uint16_t *from, int64_t count, float *to) {
  enum { HALF = VT_PRODUCT_LANES };
  int64_t i = 0;
  for (; i + 2 * HALF <= count; i += 2 * HALF)
    for (int64_t l = 0; l < HALF; l++) {
      to[i + l] = vt_f32_from_bf16(from[i + 2 * l]);
      to[i + HALF + l] = vt_f32_from_bf16(from[i + 2 * l + 1]);
    }
  for (; i < count; i++) to[i] = vt_f32_from_bf16(from[i]);
}

VT_ANY_CPU static void narrow(const float *from, int64_t count, uint16_t *to) {
  for (int64_t i = 0; i < count; i++) to[i] = vt_bf16_from_f32(from[i]);
}

// One vector's numbers side by side in f32, in the order that the matrix asks for.
static void copy_vector(const gemv *g, const char *x, int64_t at, float *to) {
  bool deals = g->along_k && g->matrix == VT_BF16;
  const float *whole = (const float *)(const void *)x + at;
  const uint16_t *half = (const uint16_t *)(const void *)x + at;
  if (g->vector == VT_BF16 && g->stride == 1) {
    (deals ? widen_dealt : widen)(half, g->k, to);
    return;
  }
  for (int64_t i = 0; i < g->k; i++)
    to[deals ? vt_dealt(i, g->k) : i] =
        g->vector == VT_F32 ? whole[i * g->stride] : vt_f32_from_bf16(half[i * g->stride]);
}

static const float *copy_vectors(const gemv *g, const char *x, float *copy) {
  float *to = copy;
  for (int64_t o = 0; o < g->outer_count; o++) {
    int64_t at = 0, index = o;
    for (int32_t d = g->outer.count; d-- > 0; index /= g->outer.at[d].size)
      at += index % g->outer.at[d].size * g->outer.at[d].lhs;
    for (int64_t i = 0; i < g->few.item_count; i++)
      for (int64_t v = 0; v < g->few.vectors; v++, to += g->k)
        copy_vector(g, x, at + g->x_items[i] + v * g->x_vector, to);
  }
  return copy;
}

static vt_status run_gemv(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  (void)exec;
  const gemv *g = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots, *scratch = NULL;
    if (step->scratch_bytes) scratch = slots[step->scratch_slot];
    const char *matrix = slots[step->input_slots[g->vector_first ? 1 : 0]];
    const char *vectors = slots[step->input_slots[g->vector_first ? 0 : 1]];
    const float *x = g->copies ? copy_vectors(g, vectors, (void *)(scratch + g->x_offset))
                               : (const void *)vectors;
    char *result = slots[step->output_slots[0]];
    float *out = (void *)(g->out == VT_F32 ? result : scratch + g->out_offset);
    float *sums = (void *)(scratch + g->sums_offset);
    run r = {.g = g, .x = x, .matrix = matrix, .sums = sums, .out = out};
#pragma omp parallel for schedule(dynamic) if (g->shared)
    for (int64_t task = 0; task < g->outer_count * g->parts; task++) run_task(&r, task);
    int64_t sums_count = g->along_k ? 0 : g->outer_count;
#pragma omp parallel for schedule(dynamic) if (g->sums_shared)
    for (int64_t o = 0; o < sums_count; o++) finish_sums(&r, o);
    if (step->input_count == 3) add_up(out, (const void *)slots[step->input_slots[2]], g->n);
    if (g->out == VT_BF16) narrow(out, vt_type_elements(step->outputs[0]->type), (void *)result);
  }
  return VT_OK;
}

static bool takes(vt_dtype dtype) {
  return dtype == VT_F32 || dtype == VT_BF16;
}

// A list's only dimension as seen from a side; false when there are several.
typedef struct line {
  int64_t size, vector, matrix, out; // strides
} line;
static vt_dim of_sides(const vt_dim *dim, bool swap) {
  return swap ? (vt_dim){dim->size, dim->rhs, dim->lhs, dim->out} : *dim;
}
static bool only(const vt_dims *list, bool swap, line *out) {
  vt_dim dim = {.size = 1, .lhs = 1, .rhs = 1, .out = 1};
  if (list->count > 1) return false;
  if (list->count) dim = of_sides(&list->at[0], swap);
  *out = (line){dim.size, dim.lhs, dim.rhs, dim.out};
  return true;
}

static int64_t size_of(const vt_dims *list) {
  int64_t size = 1;
  for (int32_t i = 0; i < list->count; i++) size *= list->at[i].size;
  return size;
}

// Deals the batch, from the matrix's outermost dimension to its innermost: what it moves by less
// than a row lies side by side.
static bool split_batch(vt_arena *arena, const vt_dims *batch, bool swap, gemv *g) {
  vt_dims sorted = {0}, inner = {0};
  for (int32_t i = 0; i < batch->count; i++) {
    int32_t at = sorted.count++;
    vt_dim dim = of_sides(&batch->at[i], swap);
    for (; at > 0 && sorted.at[at - 1].rhs < dim.rhs; at--) sorted.at[at] = sorted.at[at - 1];
    sorted.at[at] = dim;
  }
  for (int32_t i = 0; i < sorted.count; i++) {
    vt_dims *list = sorted.at[i].rhs < g->few.row ? &inner : &g->outer;
    list->at[list->count++] = sorted.at[i];
  }
  int64_t count = size_of(&inner);
  if (count > MAX_ITEMS) return false;
  vt_few_item *items = VT_NEW_ARRAY(arena, vt_few_item, count);
  for (int64_t i = 0; i < count; i++) {
    int64_t index = i;
    for (int32_t d = inner.count; d-- > 0; index /= inner.at[d].size) {
      int64_t along = index % inner.at[d].size;
      items[i].x += along * inner.at[d].lhs;
      items[i].matrix += along * inner.at[d].rhs;
      items[i].out += along * inner.at[d].out;
    }
  }
  g->few.items = items;
  g->few.item_count = count;
  g->outer_count = size_of(&g->outer);
  return true;
}

// The vectors are copied densely: the kernel's view of them changes.
static void copy_first(vt_arena *arena, gemv *g) {
  vt_few_item *items = VT_NEW_ARRAY(arena, vt_few_item, g->few.item_count);
  int64_t *from = VT_NEW_ARRAY(arena, int64_t, g->few.item_count);
  for (int64_t i = 0; i < g->few.item_count; i++) {
    items[i] = g->few.items[i];
    from[i] = items[i].x;
    items[i].x = i * g->few.vectors * g->k;
  }
  g->x_items = from;
  g->x_vector = g->few.x_vector;
  g->few.items = items;
  g->few.x_vector = g->k;
  g->x_outer = g->few.item_count * g->few.vectors * g->k;
}

// How many tasks an outer item is: a function of sizes alone.
static void split_rows(gemv *g) {
  int64_t bytes = g->few.item_count * g->few.length * (int64_t)vt_dtype_bytes(g->matrix);
  int64_t least = g->along_k ? ALIGNED : MIN_ROWS, most = g->rows / least;
  if (!g->along_k && most > MAX_PARTS) most = MAX_PARTS;
  g->parts = bytes * g->rows / PART_BYTES;
  if (g->parts > most) g->parts = most;
  if (g->parts < 1) g->parts = 1;
  g->shared = bytes * g->rows * g->outer_count >= MIN_SHARED_BYTES;
  g->sums_shared = g->outer_count > 1 && g->parts * sums_of(g) * g->outer_count >= MIN_SHARED_SUMS;
}

static bool make_gemv(vt_arena *arena, const vt_contraction *c, gemv *g) {
  line k, n, v;
  bool swap = !g->vector_first;
  if (!only(&c->k, swap, &k) || !only(swap ? &c->m : &c->n, swap, &n) ||
      !only(swap ? &c->n : &c->m, swap, &v))
    return false;
  g->k = k.size, g->n = n.size, g->stride = k.vector;
  g->along_k = k.matrix == 1;
  if (!g->along_k && n.matrix != 1) return false;
  g->rows = g->along_k ? g->n : g->k;
  g->few = (vt_few){.row = g->along_k ? n.matrix : k.matrix,
                    .length = g->along_k ? g->k : g->n,
                    .out_step = n.out,
                    .vectors = v.size,
                    .x_vector = v.vector,
                    .out_vector = v.out};
  if (!split_batch(arena, &c->batch, swap, g)) return false;
  g->copies = g->vector == VT_BF16 || g->stride != 1 || (g->along_k && g->matrix == VT_BF16);
  if (g->copies) copy_first(arena, g);
  split_rows(g);
  return true;
}

bool vt_step_gemv(vt_plan *plan, vt_step *step, const vt_contraction *c) {
  int64_t m = size_of(&c->m), n = size_of(&c->n), k = size_of(&c->k), items = size_of(&c->batch);
  bool vector_first = m < n; // else the vectors are on the right
  int64_t vectors = vector_first ? m : n, bias = step->input_count == 3 ? m * n : 0;
  gemv g = {.vector_first = vector_first,
            .vector = step->inputs[vector_first ? 0 : 1]->type.dtype,
            .matrix = step->inputs[vector_first ? 1 : 0]->type.dtype,
            .out = step->outputs[0]->type.dtype};
  if (m * n == 1 || !takes(g.vector) || !takes(g.matrix) || !takes(g.out)) return false;
  if (vectors > 1 && (items == 1 || vectors > MAX_VECTORS || k == 1)) return false;
  if (bias && (items > 1 || vt_type_elements(step->inputs[2]->type) != bias)) return false;
  vt_arena *arena = &plan->program->arena;
  if (!make_gemv(arena, c, &g)) return false;
  int64_t word = (int64_t)sizeof(float), outer = g.outer_count;
  if (g.copies) g.x_offset = vt_step_reserve(step, outer * g.few.item_count * vectors * k * word);
  if (g.out == VT_BF16)
    g.out_offset = vt_step_reserve(step, vt_type_elements(step->outputs[0]->type) * word);
  if (!g.along_k) g.sums_offset = vt_step_reserve(step, outer * g.parts * sums_of(&g) * word);
  gemv *body = VT_NEW(arena, gemv);
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
