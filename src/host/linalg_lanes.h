// SPDX-License-Identifier: Apache-2.0
// linalg_lanes.h - the body of linalg_lanes.c for one precision. Macros as for lanes.h, and MASK
// (the integer type of that size), EPSILON and SQRT. No include guard.
#include "host/lanes.h"

typedef MASK NAME(mask) __attribute__((vector_size(sizeof(REAL) * LANES)));
#define VEC NAME(vec)

static inline VEC NAME(choose)(NAME(mask) which, VEC a, VEC b) {
  return (VEC)((which & (NAME(mask))a) | (~which & (NAME(mask))b));
}
static inline VEC NAME(absolute)(VEC x) {
  return (VEC)((NAME(mask))x & ((NAME(mask)){0} + MASK_MOST));
}
static inline VEC NAME(root)(VEC x) {
  REAL r[LANES]; // through memory: a loop over an array becomes one instruction
  memcpy(r, &x, sizeof r);
  for (int l = 0; l < LANES; l++) r[l] = SQRT(r[l]);
  memcpy(&x, r, sizeof r);
  return x;
}
static inline bool NAME(any)(NAME(mask) x) {
  MASK all = 0;
  for (int l = 0; l < LANES; l++) all |= x[l];
  return all != 0;
}

static void NAME(read)(const vt_linalg_group *g, const void *in, int64_t n, VEC *to) {
  int64_t at[LANES];
  for (int l = 0; l < LANES; l++) at[l] = l * n;
  NAME(turn_in)(g->count, in, at, n, to);
}

static void NAME(write)(const vt_linalg_group *g, void *out, int64_t n, const VEC *from) {
  int64_t at[LANES];
  for (int l = 0; l < LANES; l++) at[l] = l * n;
  NAME(turn_out)(g->count, out, at, n, from, 1);
}

// Divides the n numbers of each lane by a power of two near the largest and returns it: squares
// then neither overflow nor underflow. A lane that is not finite gets a NaN.
static VEC NAME(normalise)(int64_t n, VEC *x) {
  VEC most = {0}, bad = {0};
  for (int64_t i = 0; i < n; i++) {
    VEC a = NAME(absolute)(x[i]);
    most = NAME(choose)(a > most, a, most);
    bad += x[i] * 0; // NaN if any number is not finite
  }
  VEC factor;
  for (int l = 0; l < LANES; l++) {
    int exponent = 0;
    if (most[l] > 0 && bad[l] == 0) frexp((double)most[l], &exponent);
    factor[l] = (REAL)ldexp(1, exponent);
  }
  factor += bad;
  for (int64_t i = 0; i < n; i++) x[i] /= factor;
  return factor;
}

// ---- Eigenvalues and vectors of a symmetric matrix.

// One rotation of rows and columns p and q of a, and of columns p and q of v.
static inline void NAME(rotate)(int64_t n, int64_t p, int64_t q, VEC *a, VEC *v) {
  VEC app = a[p * n + p], aqq = a[q * n + q], apq = a[p * n + q], zero = {0}, one = zero + 1;
  VEC theta = (aqq - app) / (2 * apq), size = NAME(absolute)(theta);
  VEC t = one / (size + NAME(root)(theta * theta + one));
  t = NAME(choose)(theta < zero, -t, t);
  // Nothing to do where the element is zero or negligible.
  VEC least = NAME(absolute)(apq) * (REAL)(1 / EPSILON);
  NAME(mask)
  still = (apq == zero) | ((least < NAME(absolute)(app)) & (least < NAME(absolute)(aqq)));
  t = NAME(choose)(still, zero, t);
  VEC c = one / NAME(root)(t * t + one), s = t * c;
  a[p * n + p] = app - t * apq;
  a[q * n + q] = aqq + t * apq;
  a[p * n + q] = a[q * n + p] = NAME(choose)(apq == apq, zero, apq);
  for (int64_t k = 0; k < n; k++) {
    VEC vp = v[k * n + p], vq = v[k * n + q];
    v[k * n + p] = c * vp - s * vq;
    v[k * n + q] = s * vp + c * vq;
    if (k == p || k == q) continue;
    VEC ap = a[p * n + k], aq = a[q * n + k];
    a[p * n + k] = a[k * n + p] = c * ap - s * aq;
    a[q * n + k] = a[k * n + q] = s * ap + c * aq;
  }
}

// Whether any lane has an off-diagonal element that is not negligible.
static bool NAME(unfinished)(int64_t n, const VEC *a) {
  VEC off = {0}, all = {0};
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      VEC square = a[i * n + j] * a[i * n + j];
      all += square;
      if (i != j) off += square;
    }
  return NAME(any)((NAME(mask))(off > all * (REAL)(EPSILON * EPSILON / 64)));
}

static void NAME(write_eigh)(const vt_linalg_group *g, const VEC *a, const VEC *v, VEC factor) {
  int64_t n = g->cols, order[VT_LINALG_MOST];
  for (int32_t l = 0; l < g->count; l++) {
    REAL *values = (REAL *)g->out_more + l * n, *vectors = (REAL *)g->out + l * n * n;
    for (int64_t i = 0; i < n; i++) {
      REAL x = a[i * n + i][l];
      int64_t j = i;
      for (; g->sort && j > 0 && a[order[j - 1] * (n + 1)][l] > x; j--) order[j] = order[j - 1];
      order[j] = i;
    }
    for (int64_t j = 0; j < n; j++) {
      values[j] = a[order[j] * (n + 1)][l] * factor[l];
      for (int64_t i = 0; i < n; i++) {
        REAL x = v[i * n + order[j]][l];
        vectors[i * n + j] = factor[l] == factor[l] ? x : factor[l];
      }
    }
  }
}

static void NAME(eigh)(const vt_linalg_group *g, void *scratch) {
  enum { MOST_SWEEPS = 40 };
  int64_t n = g->cols;
  VEC *a = scratch, *v = a + n * n, zero = {0};
  NAME(read)(g, g->in, n * n, a);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      if (g->lower)
        a[j * n + i] = a[i * n + j];
      else
        a[i * n + j] = a[j * n + i];
    }
  VEC factor = NAME(normalise)(n * n, a);
  for (int64_t i = 0; i < n * n; i++) v[i] = zero + (REAL)(i % (n + 1) == 0);
  for (int sweep = 0; sweep < MOST_SWEEPS && NAME(unfinished)(n, a); sweep++)
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++) NAME(rotate)(n, p, q, a, v);
  NAME(write_eigh)(g, a, v, factor);
}

// ---- QR by reflections.

// Applies I - tau v v' to columns [from, to) of rows [j, m) of a, v being 1 and then column `at` of
// w below row j.
static inline void NAME(reflect)(int64_t j, int64_t m, int64_t n, int64_t from, int64_t to,
                                 const VEC *w, int64_t at, VEC tau, VEC *a) {
  for (int64_t c = from; c < to; c++) {
    VEC sum = a[j * n + c];
    for (int64_t i = j + 1; i < m; i++) sum += w[i * n + at] * a[i * n + c];
    sum *= tau;
    a[j * n + c] -= sum;
    for (int64_t i = j + 1; i < m; i++) a[i * n + c] -= w[i * n + at] * sum;
  }
}

static void NAME(qr)(const vt_linalg_group *g, void *scratch) {
  int64_t m = g->rows, n = g->cols, k = g->side;
  VEC *a = scratch, *taus = a + m * n, zero = {0};
  NAME(read)(g, g->in, m * n, a);
  VEC factor = NAME(normalise)(m * n, a);
  for (int64_t j = 0; j < k; j++) {
    VEC below = zero, alpha = a[j * n + j];
    for (int64_t i = j + 1; i < m; i++) below += a[i * n + j] * a[i * n + j];
    VEC size = NAME(root)(alpha * alpha + below), beta = NAME(choose)(alpha < zero, size, -size);
    NAME(mask) none = below == zero;
    VEC tau = NAME(choose)(none, zero, (beta - alpha) / beta);
    VEC shrink = NAME(choose)(none, zero, 1 / (alpha - beta));
    for (int64_t i = j + 1; i < m; i++) a[i * n + j] *= shrink;
    NAME(reflect)(j, m, n, j + 1, n, a, j, tau, a);
    a[j * n + j] = NAME(choose)(none, alpha, beta);
    taus[j] = tau;
  }
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = i; j < n; j++) a[i * n + j] *= factor;
  NAME(write)(g, g->out, m * n, a);
  NAME(write)(g, g->out_more, k, taus);
}

static void NAME(q)(const vt_linalg_group *g, void *scratch) {
  int64_t m = g->rows, n = g->cols, k = g->side;
  VEC *w = scratch, *a = w + m * n, *taus = a + m * n, zero = {0};
  NAME(read)(g, g->in, m * n, w);
  NAME(read)(g, g->in_more, k, taus);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) a[i * n + j] = zero + (REAL)(i == j);
  for (int64_t j = k; j-- > 0;) NAME(reflect)(j, m, n, j, n, w, j, taus[j], a);
  NAME(write)(g, g->out, m * n, a);
}

// ---- Cholesky.

static void NAME(cholesky)(const vt_linalg_group *g, void *scratch) {
  int64_t n = g->cols;
  VEC *a = scratch, zero = {0};
  NAME(mask) fine = zero == zero;
  NAME(read)(g, g->in, n * n, a);
  for (int64_t i = 0; i < n && !g->lower; i++)
    for (int64_t j = 0; j < i; j++) a[i * n + j] = a[j * n + i];
  for (int64_t j = 0; j < n; j++) {
    fine &= a[j * n + j] > zero;
    VEC pivot = NAME(root)(a[j * n + j]), column[VT_LINALG_MOST];
    a[j * n + j] = pivot;
    for (int64_t i = j + 1; i < n; i++) column[i] = a[i * n + j] /= pivot;
    for (int64_t i = j + 1; i < n; i++)
      for (int64_t c = j + 1; c <= i; c++) a[i * n + c] -= column[i] * column[c];
  }
  VEC bad = NAME(choose)(fine, zero, zero + (REAL)NAN);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) {
      VEC x = a[i * n + j] + bad;
      a[g->lower ? j * n + i : i * n + j] = bad;
      a[g->lower ? i * n + j : j * n + i] = x;
    }
  NAME(write)(g, g->out, n * n, a);
}

// ---- LU with row exchanges.

// Swaps row j with the row that has the largest number of column j, lane by lane.
static void NAME(exchange)(int64_t j, int64_t m, int64_t n, VEC *a, NAME(mask) * pivots) {
  VEC most = NAME(absolute)(a[j * n + j]);
  NAME(mask) pivot = (NAME(mask)){0} + (MASK)j;
  for (int64_t i = j + 1; i < m; i++) {
    VEC size = NAME(absolute)(a[i * n + j]);
    NAME(mask) larger = size > most;
    most = NAME(choose)(larger, size, most);
    pivot = (larger & (MASK)i) | (~larger & pivot);
  }
  pivots[j] = pivot;
  for (int l = 0; l < LANES; l++) {
    if (pivot[l] == j) continue;
    REAL *x = (REAL *)(a + j * n) + l, *y = (REAL *)(a + pivot[l] * n) + l;
    for (int64_t c = 0; c < n; c++) {
      REAL t = x[c * LANES];
      x[c * LANES] = y[c * LANES];
      y[c * LANES] = t;
    }
  }
}

static void NAME(lu)(const vt_linalg_group *g, void *scratch) {
  int64_t m = g->rows, n = g->cols, k = g->side;
  VEC *a = scratch, zero = {0};
  NAME(mask) *pivots = (NAME(mask) *)(a + m * n);
  NAME(read)(g, g->in, m * n, a);
  for (int64_t j = 0; j < k; j++) {
    NAME(exchange)(j, m, n, a, pivots);
    const VEC *line = a + j * n;
    NAME(mask) none = line[j] == zero;
    for (int64_t i = j + 1; i < m; i++) {
      VEC *x = a + i * n, factor = NAME(choose)(none, zero, x[j] / line[j]);
      x[j] = factor;
      for (int64_t c = j + 1; c < n; c++) x[c] -= factor * line[c];
    }
  }
  NAME(write)(g, g->out, m * n, a);
  for (int32_t l = 0; l < g->count; l++) {
    int32_t *to = (int32_t *)g->out_more + l * k;
    for (int64_t j = 0; j < k; j++) to[j] = (int32_t)pivots[j][l];
    vt_linalg_order(k, m, to, (int32_t *)g->out_last + l * m);
  }
}

// ---- Triangular systems.

static void NAME(triangular)(const vt_linalg_group *g, void *scratch) {
  int64_t n = g->side, count = g->left ? g->cols : g->rows;
  VEC *a = scratch, *b = a + n * n;
  NAME(read)(g, g->in, n * n, a);
  NAME(read)(g, g->in_more, g->rows * g->cols, b);
  // x op(a) = b is op(a)' x' = b': a transpose only exchanges the strides.
  bool turned = g->turned == g->left, lower = g->lower != turned;
  int64_t row = turned ? 1 : n, column = turned ? n : 1;
  int64_t b_row = g->left ? g->cols : 1, b_column = g->left ? 1 : g->cols;
  for (int64_t step = 0; step < n; step++) {
    int64_t i = lower ? step : n - 1 - step, from = lower ? 0 : i + 1, to = lower ? i : n;
    VEC *x = b + i * b_row, pivot = a[i * n + i];
    for (int64_t k = from; k < to; k++) {
      VEC factor = a[i * row + k * column];
      const VEC *y = b + k * b_row;
      for (int64_t c = 0; c < count; c++) x[c * b_column] -= factor * y[c * b_column];
    }
    for (int64_t c = 0; c < count && !g->unit; c++) x[c * b_column] /= pivot;
  }
  NAME(write)(g, g->out, g->rows * g->cols, b);
}

static const vt_linalg_code NAME(code) = {LANES,
                                          {[VT_LINALG_EIGH] = NAME(eigh),
                                           [VT_LINALG_QR] = NAME(qr),
                                           [VT_LINALG_Q] = NAME(q),
                                           [VT_LINALG_CHOLESKY] = NAME(cholesky),
                                           [VT_LINALG_LU] = NAME(lu),
                                           [VT_LINALG_TRIANGULAR] = NAME(triangular)}};

#undef VEC
