// SPDX-License-Identifier: Apache-2.0
// dot_sparse.c - a product with a matrix that is nearly all zeros, as index arithmetic produces:
// resizing (a few taps a row), one-hot rows, filter banks.
//
// The program shows which matrices are candidates: those computed from an iota or a table of
// constants. Each run checks the values: entries are collected line by line, and a line with too
// many (usually the first) stops the scan; the product then runs dense as before. It also runs
// dense if the other side holds an infinity or a NaN, because these times zero are NaN. Both checks
// depend on values alone: equal inputs give equal bits.
//
// Two ways to multiply. Where the other side and the result have a long innermost dimension in
// common, a line of the result is a weighted sum of lines. Otherwise (image channels, or no such
// dimension) each result element gathers its terms: tables give the sources of LANES elements at a
// time and serve all rows.
#include <string.h>

#include "host/contraction.h"
#include "host/cpu.h"
#include "host/products.h"

enum { LANES = VT_PRODUCT_LANES, ROWS = 4 };
enum { SPARSE = 8, MAX_TAPS = 64 }; // entries of a line: at most one in SPARSE, and so many
enum { MAX_LOOKS = 200 };           // values that are looked at for an iota
static const double MIN_PRODUCTS = 4 << 20;
static const int64_t PARALLEL_ELEMENTS = 16 << 10;

typedef struct sparse {
  vt_step_run dense;
  void *dense_body;
  int32_t side;       // input that is the matrix
  int64_t k, n, taps; // a line of the matrix for each of n; at most so many taps
  int64_t matrix_k, matrix_n, in_k, out_n; // strides
  int32_t outer_count;
  vt_dim outer[VT_MAX_RANK]; // lhs: stride of the other side; out
  int64_t rows;              // product of the outer dimensions
  bool gathers;
  int64_t inner;    // size of the innermost dimension of the other side and the result
  int64_t inner_in; // its stride on the other side; 1 unless gathering
  int64_t elements; // of the other side
  int64_t counts_at, index_at, weight_at, lane_index_at, lane_weight_at; // in scratch
} sparse;

// The entries of the matrix: of line n, counts[n] from n * taps on. For gathering, blocks of LANES
// results: of block b, tap t from (b * taps + t) * LANES on.
typedef struct table {
  int32_t *counts, *index, *lane_index;
  float *weight, *lane_weight;
} table;

static table table_of(const sparse *p, char *scratch) {
  return (table){.counts = (void *)(scratch + p->counts_at),
                 .index = (void *)(scratch + p->index_at),
                 .weight = (void *)(scratch + p->weight_at),
                 .lane_index = (void *)(scratch + p->lane_index_at),
                 .lane_weight = (void *)(scratch + p->lane_weight_at)};
}

// ---- Collecting entries.

static bool add_entry(const sparse *p, const table *t, int64_t n, int64_t k, float x) {
  if (x == 0) return true;
  if (t->counts[n] == p->taps) return false;
  int64_t at = n * p->taps + t->counts[n]++;
  t->index[at] = (int32_t)k;
  t->weight[at] = x;
  return true;
}

// True when all of LANES neighbours are zero.
VT_ANY_CPU static bool all_zero(const float *x) {
  uint32_t bits[LANES], any = 0;
  memcpy(bits, x, sizeof bits);
  for (int i = 0; i < LANES; i++) any |= bits[i] & 0x7fffffff;
  return any == 0;
}

// Collects the entries in the order of the matrix's memory; those of a line come in the order of k.
// False: too many.
static bool collect(const sparse *p, const float *matrix, const table *t) {
  bool by_k = p->matrix_k >= p->matrix_n;
  int64_t rows = by_k ? p->k : p->n, columns = by_k ? p->n : p->k;
  int64_t row = by_k ? p->matrix_k : p->matrix_n, column = by_k ? p->matrix_n : p->matrix_k;
  memset(t->counts, 0, sizeof *t->counts * (size_t)p->n);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c += LANES) {
      const float *from = matrix + r * row + c * column;
      int64_t count = columns - c < LANES ? columns - c : LANES;
      if (column == 1 && count == LANES && all_zero(from)) continue;
      for (int64_t i = 0; i < count; i++)
        if (!add_entry(p, t, by_k ? c + i : r, by_k ? r : c + i, from[i * column])) return false;
    }
  return true;
}

// The most taps of a block of results, from number `e` on.
static int64_t block_taps(const sparse *p, const table *t, int64_t e) {
  int64_t results = p->n * p->inner, last = (e + LANES < results ? e + LANES : results) - 1;
  int64_t taps = 0;
  for (int64_t n = e / p->inner; n <= last / p->inner; n++)
    if (t->counts[n] > taps) taps = t->counts[n];
  return taps;
}

// What each lane of a block of results gathers. Lanes with fewer taps than the block add zero times
// an arbitrary number.
static void spread(const sparse *p, const table *t) {
  int64_t results = p->n * p->inner;
  for (int64_t e = 0; e < results; e += LANES) {
    int64_t taps = block_taps(p, t, e);
    for (int64_t l = 0; l < LANES; l++) {
      int64_t n = (e + l) / p->inner, from = n * p->taps, to = e * p->taps + l;
      int64_t count = n < p->n ? t->counts[n] : 0;
      for (int64_t k = 0; k < taps; k++, to += LANES) {
        int64_t at =
            k < count ? t->index[from + k] * p->in_k + (e + l) % p->inner * p->inner_in : 0;
        t->lane_index[to] = (int32_t)at;
        t->lane_weight[to] = k < count ? t->weight[from + k] : 0;
      }
    }
  }
}

VT_ANY_CPU static bool piece_is_finite(const uint32_t *x, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits = x[i] & 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return most < 0x7f800000;
}

static bool is_finite(const float *x, int64_t count) {
  int64_t pieces = (count + PARALLEL_ELEMENTS - 1) / PARALLEL_ELEMENTS;
  bool finite = true;
#pragma omp parallel for schedule(dynamic, vt_host_share(pieces)) reduction(&& : finite)
  for (int64_t i = 0; i < pieces; i++) {
    int64_t at = i * PARALLEL_ELEMENTS;
    int64_t n = count - at < PARALLEL_ELEMENTS ? count - at : PARALLEL_ELEMENTS;
    finite = finite && piece_is_finite((const uint32_t *)(const void *)(x + at), n);
  }
  return finite;
}

// ---- Products.

static void place_of(const sparse *p, int64_t row, int64_t *in, int64_t *out) {
  *in = *out = 0;
  for (int32_t d = p->outer_count; d-- > 0;) {
    *in += row % p->outer[d].size * p->outer[d].lhs;
    *out += row % p->outer[d].size * p->outer[d].out;
    row /= p->outer[d].size;
  }
}

static void run_lines(const sparse *p, const table *t, const float *in, float *out) {
  int64_t items = p->rows * p->n;
  const vt_product_code *code = vt_product_code_of();
#pragma omp parallel for schedule(dynamic, vt_host_share(items))
  for (int64_t item = 0; item < items; item++) {
    int64_t from, to, n = item % p->n;
    place_of(p, item / p->n, &from, &to);
    code->sum_of_lines(in + from, p->in_k, t->index + n * p->taps, t->weight + n * p->taps,
                       t->counts[n], out + to + n * p->out_n, p->inner);
  }
}

static void run_gathers(const sparse *p, const table *t, const float *in, float *out) {
  int64_t groups = (p->rows + ROWS - 1) / ROWS, results = p->n * p->inner;
  const vt_product_code *code = vt_product_code_of();
#pragma omp parallel for schedule(dynamic, vt_host_share(groups))
  for (int64_t group = 0; group < groups; group++) {
    int64_t first = group * ROWS, rows = p->rows - first < ROWS ? p->rows - first : ROWS;
    const float *from[ROWS];
    float *to[ROWS];
    for (int64_t r = 0; r < rows; r++) {
      int64_t in_at, out_at;
      place_of(p, first + r, &in_at, &out_at);
      from[r] = in + in_at, to[r] = out + out_at;
    }
    for (int64_t e = 0; e < results; e += LANES) {
      int64_t count = results - e < LANES ? results - e : LANES, at = e * p->taps;
      float sums[ROWS][LANES];
      code->gather_sums(from, rows, t->lane_index + at, t->lane_weight + at, block_taps(p, t, e),
                        sums);
      for (int64_t r = 0; r < rows; r++) memcpy(to[r] + e, sums[r], sizeof(float) * (size_t)count);
    }
  }
}

static vt_status run_sparse(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                            uint32_t count) {
  const sparse *p = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    const float *matrix = (const void *)slots[step->input_slots[p->side]];
    const float *in = (const void *)slots[step->input_slots[1 - p->side]];
    float *out = (void *)slots[step->output_slots[0]];
    table t = table_of(p, slots[step->scratch_slot]);
    if (!collect(p, matrix, &t) || !is_finite(in, p->elements)) {
      vt_step dense = *step;
      dense.body = p->dense_body;
      VT_TRY(p->dense(&dense, exec, &frames[f], 1));
      continue;
    }
    if (p->gathers) {
      spread(p, &t);
      run_gathers(p, &t, in, out);
    } else {
      run_lines(p, &t, in, out);
    }
  }
  return VT_OK;
}

// ---- Preparing.

// True when `value` is computed from an iota or a table of constants, looking at most at `looks`
// values.
static bool is_drawn(const vt_value *value, int *looks) {
  const vt_op *op = value->op;
  if (!op || --*looks < 0) return false;
  if (op->code == VT_OP_IOTA) return true;
  if (op->code == VT_OP_CONSTANT) return !vt_attr_literal(op, VT_ATTR_VALUE)->splat;
  if (op->region_count && op->code != VT_OP_REDUCE) return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (is_drawn(op->operands[i], looks)) return true;
  return false;
}

// Sorts the other side's dimensions into the innermost one and outer ones; false when the result's
// lines are not dense.
static bool order_dims(sparse *p, const vt_dims *free, bool other_is_lhs) {
  int32_t innermost = -1;
  p->inner = p->inner_in = 1;
  for (int32_t i = 0; i < free->count; i++)
    if (free->at[i].out == 1) innermost = i;
  for (int32_t i = 0; i < free->count; i++) {
    const vt_dim *d = &free->at[i];
    int64_t in = other_is_lhs ? d->lhs : d->rhs;
    p->rows *= i == innermost ? 1 : d->size;
    if (i == innermost)
      p->inner = d->size, p->inner_in = in;
    else
      p->outer[p->outer_count++] = (vt_dim){.size = d->size, .lhs = in, .out = d->out};
  }
  for (int32_t i = 1; i < p->outer_count; i++) // results in the order of their memory
    for (int32_t j = i; j > 0 && p->outer[j - 1].out < p->outer[j].out; j--) {
      vt_dim d = p->outer[j];
      p->outer[j] = p->outer[j - 1];
      p->outer[j - 1] = d;
    }
  p->gathers = p->inner < LANES || p->inner_in != 1;
  return !p->gathers || p->out_n == p->inner;
}

// Room for the table, after the dense product's scratch.
static void reserve(sparse *p, vt_step *step) {
  int64_t entries = p->n * p->taps, bytes = sizeof(float);
  int64_t lane_entries = p->gathers ? (p->n * p->inner + LANES) * p->taps : 0;
  p->counts_at = vt_step_reserve(step, p->n * bytes);
  p->index_at = vt_step_reserve(step, entries * bytes);
  p->weight_at = vt_step_reserve(step, entries * bytes);
  p->lane_index_at = vt_step_reserve(step, lane_entries * bytes);
  p->lane_weight_at = vt_step_reserve(step, lane_entries * bytes);
}

void vt_step_sparse(vt_plan *plan, vt_step *step, const vt_contraction *c, bool any_size) {
  const vt_dims *sides[] = {&c->m, &c->n};
  if (c->batch.count || c->k.count != 1 || step->input_count != 2) return;
  for (uint32_t i = 0; i < 2; i++)
    if (step->inputs[i]->type.dtype != VT_F32) return;
  if (step->outputs[0]->type.dtype != VT_F32) return;
  const vt_dim *k = &c->k.at[0];
  for (int32_t s = 0; s < 2; s++) {
    int looks = MAX_LOOKS;
    const vt_dims *line = sides[s], *free = sides[1 - s];
    if (line->count != 1 || !is_drawn(step->inputs[s], &looks)) continue;
    sparse p = {.dense = step->run, .dense_body = step->body, .side = s, .k = k->size, .rows = 1};
    p.n = line->at[0].size, p.out_n = line->at[0].out;
    p.matrix_k = s ? k->rhs : k->lhs, p.matrix_n = s ? line->at[0].rhs : line->at[0].lhs;
    p.in_k = s ? k->lhs : k->rhs;
    p.taps = p.k / SPARSE < MAX_TAPS ? p.k / SPARSE : MAX_TAPS;
    p.elements = vt_type_elements(step->inputs[1 - s]->type);
    if (!order_dims(&p, free, s == 1) || p.taps < 1 || p.elements > INT32_MAX) continue;
    double products = (double)p.k * (double)p.n * (double)(p.rows * p.inner);
    if (products < MIN_PRODUCTS && !any_size) continue;
    sparse *body = VT_NEW(&plan->program->arena, sparse);
    reserve(&p, step);
    *body = p;
    step->body = body;
    step->run = run_sparse;
    step->runner = "sparse";
    return;
  }
}
