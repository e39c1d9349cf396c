// SPDX-License-Identifier: Apache-2.0
// kernel_solve.c - triangular_solve, cholesky and the custom call of LU in f32: blocks of columns
// by plain loops, everything beside them by products of oneDNN. Many matrices are shared out
// between threads, the products of few large ones are.
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "host/cpu.h"
#include "host/kernel_move.h"

enum { BLOCK = 64, PANEL = 32, TILE = 256 };
static const int64_t PARALLEL_WORK = 64 << 10;

typedef enum solve_kind { SOLVE_NONE, SOLVE_TRIANGULAR, SOLVE_CHOLESKY, SOLVE_LU } solve_kind;

typedef struct solve_plan {
  solve_kind kind;
  int64_t count, rows, cols; // of the result's matrices
  bool left, lower, unit, transposed;
} solve_plan;

static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// c -= op(a) op(b), row-major.
static void subtract_product(char op_a, char op_b, int64_t m, int64_t n, int64_t k, const float *a,
                             int64_t a_row, const float *b, int64_t b_row, float *c,
                             int64_t c_row) {
  if (m > 0 && n > 0 && k > 0) dnnl_sgemm(op_a, op_b, m, n, k, -1, a, a_row, b, b_row, 1, c, c_row);
}

// ---- One block.

// Element (i, k) of the block is a[i * row + k * column]: its transpose is the same with the
// strides exchanged.
static void copy_block(int64_t n, const float *a, int64_t row, int64_t column, float *to) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < n; k++) to[i * BLOCK + k] = a[i * row + k * column];
}

// b of n rows and m columns becomes x with a x = b.
VT_ANY_CPU static void solve_rows(int64_t n, int64_t m, bool lower, bool unit, const float *a,
                                  float *b, int64_t b_row) {
  for (int64_t step = 0; step < n; step++) {
    int64_t i = lower ? step : n - 1 - step, from = lower ? 0 : i + 1, to = lower ? i : n;
    float *x = b + i * b_row;
    for (int64_t k = from; k < to; k++) {
      const float *y = b + k * b_row;
      float factor = a[i * BLOCK + k];
      for (int64_t c = 0; c < m; c++) x[c] -= factor * y[c];
    }
    for (int64_t c = 0; c < m && !unit; c++) x[c] /= a[i * BLOCK + i];
  }
}

// b of m rows and n columns becomes x with x a = b.
VT_ANY_CPU static void solve_columns(int64_t n, int64_t m, bool lower, bool unit, const float *a,
                                     float *b, int64_t b_row) {
  for (int64_t r = 0; r < m; r++) {
    float *x = b + r * b_row;
    for (int64_t step = 0; step < n; step++) {
      int64_t j = lower ? n - 1 - step : step, from = lower ? 0 : j + 1, to = lower ? j : n;
      if (!unit) x[j] /= a[j * BLOCK + j];
      float factor = x[j];
      for (int64_t c = from; c < to; c++) x[c] -= factor * a[j * BLOCK + c];
    }
  }
}

// The lower triangle of n rows becomes its Cholesky factor; false when it is not positive definite.
VT_ANY_CPU static bool factor_block(int64_t n, float *a, int64_t row) {
  float column[BLOCK];
  for (int64_t j = 0; j < n; j++) {
    float pivot = a[j * row + j];
    if (!(pivot > 0)) return false;
    pivot = sqrtf(pivot);
    a[j * row + j] = pivot;
    for (int64_t i = j + 1; i < n; i++) column[i] = a[i * row + j] /= pivot;
    for (int64_t i = j + 1; i < n; i++)
      for (int64_t c = j + 1; c <= i; c++) a[i * row + c] -= column[i] * column[c];
  }
  return true;
}

// ---- Triangular systems.

// op(a) x = b for n rows and m columns of b.
static void solve_left(const solve_plan *plan, int64_t n, int64_t m, const float *a, float *b) {
  bool turned = plan->transposed, lower = plan->lower != turned;
  float diagonal[BLOCK * BLOCK];
  for (int64_t done = 0; done < n; done += BLOCK) {
    int64_t size = min64(BLOCK, n - done), at = lower ? done : n - done - size;
    copy_block(size, a + at * n + at, turned ? 1 : n, turned ? n : 1, diagonal);
    int64_t tiles = (m + TILE - 1) / TILE;
#pragma omp parallel for if (tiles > 1 && size * size * m > PARALLEL_WORK)
    for (int64_t t = 0; t < tiles; t++)
      solve_rows(size, min64(TILE, m - t * TILE), lower, plan->unit, diagonal,
                 b + at * m + t * TILE, m);
    int64_t rest = lower ? at + size : 0, count = n - done - size;
    const float *beside = turned ? a + at * n + rest : a + rest * n + at;
    subtract_product(turned ? 'T' : 'N', 'N', count, m, size, beside, n, b + at * m, m,
                     b + rest * m, m);
  }
}

// x op(a) = b for m rows and n columns of b; the rows of b lie b_row apart, those of a a_row.
static void solve_right(bool stored_lower, bool turned, bool unit, int64_t n, int64_t m,
                        const float *a, int64_t a_row, float *b, int64_t b_row) {
  bool lower = stored_lower != turned;
  float diagonal[BLOCK * BLOCK];
  for (int64_t done = 0; done < n; done += BLOCK) {
    int64_t size = min64(BLOCK, n - done), at = lower ? n - done - size : done;
    copy_block(size, a + at * a_row + at, turned ? 1 : a_row, turned ? a_row : 1, diagonal);
    int64_t tiles = (m + BLOCK - 1) / BLOCK;
#pragma omp parallel for if (tiles > 1 && size * size * m > PARALLEL_WORK)
    for (int64_t t = 0; t < tiles; t++)
      solve_columns(size, min64(BLOCK, m - t * BLOCK), lower, unit, diagonal,
                    b + t * BLOCK * b_row + at, b_row);
    int64_t rest = lower ? 0 : at + size, count = n - done - size;
    const float *beside = turned ? a + rest * a_row + at : a + at * a_row + rest;
    subtract_product('N', turned ? 'T' : 'N', m, count, size, b + at, b_row, beside, a_row,
                     b + rest, b_row);
  }
}

// ---- Factorisations.

static bool factor(int64_t n, float *a) {
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t size = min64(BLOCK, n - at), below = at + size;
    float *diagonal = a + at * n + at;
    if (!factor_block(size, diagonal, n)) return false;
    solve_right(true, true, false, size, n - below, diagonal, n, a + below * n + at, n);
    for (int64_t j = below; j < n; j += BLOCK) // the lower half of what is left
      subtract_product('N', 'T', n - j, min64(BLOCK, n - j), size, a + j * n + at, n,
                       a + j * n + at, n, a + j * n + j, n);
  }
  return true;
}

static void cholesky(int64_t n, bool lower, const float *in, float *out) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) out[i * n + j] = lower ? in[i * n + j] : in[j * n + i];
  bool fine = factor(n, out);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) {
      float x = fine ? out[i * n + j] : NAN, other = fine ? 0 : NAN;
      out[j * n + i] = lower ? other : x;
      if (i != j || lower) out[i * n + j] = lower ? x : other;
    }
}

static void swap_rows(int64_t n, float *x, float *y) {
  for (int64_t i = 0; i < n; i++) {
    float t = x[i];
    x[i] = y[i];
    y[i] = t;
  }
}

// Columns [at, at + size) of an LU factorisation, with the rows of the whole matrix exchanged.
VT_ANY_CPU static void factor_panel(int64_t m, int64_t n, int64_t at, int64_t size, float *a,
                                    int32_t *pivots) {
  for (int64_t j = at; j < at + size; j++) {
    int64_t pivot = j;
    for (int64_t i = j + 1; i < m; i++)
      if (fabsf(a[i * n + j]) > fabsf(a[pivot * n + j])) pivot = i;
    pivots[j] = (int32_t)pivot;
    if (pivot != j) swap_rows(n, a + j * n, a + pivot * n);
    const float *line = a + j * n;
    if (line[j] == 0) continue;
    for (int64_t i = j + 1; i < m; i++) {
      float *x = a + i * n, factor = x[j] /= line[j];
      for (int64_t c = j + 1; c < at + size; c++) x[c] -= factor * line[c];
    }
  }
}

static void lu(int64_t m, int64_t n, float *a, int32_t *pivots, int32_t *permutation) {
  int64_t k = min64(m, n);
  float diagonal[BLOCK * BLOCK];
  for (int64_t at = 0; at < k; at += PANEL) {
    int64_t size = min64(PANEL, k - at), next = at + size;
    factor_panel(m, n, at, size, a, pivots);
    if (next == n) continue;
    copy_block(size, a + at * n + at, n, 1, diagonal);
    solve_rows(size, n - next, true, true, diagonal, a + at * n + next, n);
    subtract_product('N', 'N', m - next, n - next, size, a + next * n + at, n, a + at * n + next, n,
                     a + next * n + next, n);
  }
  for (int64_t i = 0; i < m; i++) permutation[i] = (int32_t)i;
  for (int64_t i = 0; i < k; i++) {
    int32_t t = permutation[i];
    permutation[i] = permutation[pivots[i]];
    permutation[pivots[i]] = t;
  }
}

// ---- The ops.

static void run_one(const solve_plan *plan, const vt_native_call *call, int64_t i) {
  int64_t rows = plan->rows, cols = plan->cols, size = rows * cols, k = min64(rows, cols);
  float *out = (float *)call->outputs[0] + i * size;
  const float *in = call->operands[0];
  if (plan->kind == SOLVE_CHOLESKY) {
    cholesky(rows, plan->lower, in + i * size, out);
    return;
  }
  if (plan->kind == SOLVE_LU) {
    memcpy(out, in + i * size, (size_t)size * sizeof *out);
    lu(rows, cols, out, (int32_t *)call->outputs[1] + i * k,
       (int32_t *)call->outputs[2] + i * rows);
    return;
  }
  int64_t n = plan->left ? rows : cols;
  const float *a = in + i * n * n;
  memcpy(out, (const float *)call->operands[1] + i * size, (size_t)size * sizeof *out);
  if (plan->left)
    solve_left(plan, n, cols, a, out);
  else
    solve_right(plan->lower, plan->transposed, plan->unit, n, rows, a, n, out, n);
}

static void run_solve(const vt_native_call *call) {
  const solve_plan *plan = call->native->plan;
  int64_t work = plan->rows * plan->cols * min64(plan->rows, plan->cols);
  bool small = plan->rows <= BLOCK || plan->count >= omp_get_max_threads();
#pragma omp parallel for schedule(                                                                 \
        dynamic, 1 + plan->count / VT_LOOP_SHARES) if (small && plan->count > 1 &&                 \
                                                           work * plan->count > PARALLEL_WORK)
  for (int64_t i = 0; i < plan->count; i++) run_one(plan, call, i);
}

static bool matrices(vt_type t, int64_t *rows, int64_t *cols) {
  if (t.dtype != VT_F32 || t.rank < 2 || !vt_type_elements(t)) return false;
  *rows = t.dims[t.rank - 2];
  *cols = t.dims[t.rank - 1];
  return true;
}

static bool plan_triangular(const vt_op *op, solve_plan *plan) {
  int64_t n, square;
  vt_type a = op->operands[0]->type, b = op->operands[1]->type;
  plan->kind = SOLVE_TRIANGULAR;
  plan->left = vt_attr_i64(op, VT_ATTR_LEFT_SIDE);
  plan->lower = vt_attr_i64(op, VT_ATTR_LOWER);
  plan->unit = vt_attr_i64(op, VT_ATTR_UNIT_DIAGONAL);
  plan->transposed = vt_attr_i64(op, VT_ATTR_TRANSPOSE_A) != VT_NO_TRANSPOSE;
  if (!matrices(a, &n, &square) || !matrices(b, &plan->rows, &plan->cols) || n != square)
    return false;
  plan->count = vt_type_elements(b) / (plan->rows * plan->cols);
  return n == (plan->left ? plan->rows : plan->cols) &&
         plan->count == vt_type_elements(a) / (n * n) && vt_type_equal(b, op->results[0].type);
}

static bool plan_lu(const vt_op *op, solve_plan *plan) {
  plan->kind = SOLVE_LU;
  const char *name = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME).data;
  if (strcmp(name, "LuDecomposition") || op->operand_count != 1 || op->result_count != 3)
    return false;
  vt_type a = op->operands[0]->type, pivots = op->results[1].type, order = op->results[2].type;
  if (!matrices(a, &plan->rows, &plan->cols) || !vt_type_equal(a, op->results[0].type))
    return false;
  plan->count = vt_type_elements(a) / (plan->rows * plan->cols);
  return pivots.dtype == VT_S32 && order.dtype == VT_S32 && plan->rows < INT32_MAX &&
         vt_type_elements(pivots) == plan->count * min64(plan->rows, plan->cols) &&
         vt_type_elements(order) == plan->count * plan->rows;
}

static bool make_plan(const vt_op *op, solve_plan *plan) {
  *plan = (solve_plan){0};
  switch ((int)op->code) {
  case VT_OP_TRIANGULAR_SOLVE:
    return plan_triangular(op, plan);
  case VT_OP_CUSTOM_CALL:
    return plan_lu(op, plan);
  case VT_OP_CHOLESKY:
    plan->kind = SOLVE_CHOLESKY;
    plan->lower = vt_attr_i64(op, VT_ATTR_LOWER);
    if (!matrices(op->operands[0]->type, &plan->rows, &plan->cols) || plan->rows != plan->cols)
      return false;
    plan->count = vt_type_elements(op->operands[0]->type) / (plan->rows * plan->cols);
    return true;
  default:
    return false;
  }
}

bool vt_solve_supports(const vt_op *op) {
  solve_plan plan;
  return make_plan(op, &plan);
}

const vt_native *vt_solve_create(vt_arena *arena, const vt_op *op) {
  solve_plan *plan = VT_NEW(arena, solve_plan);
  make_plan(op, plan); // as vt_solve_supports has seen
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_solve, .plan = plan};
  return native;
}
