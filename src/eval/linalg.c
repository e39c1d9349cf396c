// SPDX-License-Identifier: Apache-2.0
// linalg.c - cholesky and triangular_solve, in f64 or complex f64, rounded once.
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/kernel.h"

typedef double complex zdouble;

// Row-major n x n. Factor of the lower triangle in place; false when not positive definite.
#define LINALG(T, suffix, CONJ, REAL)                                                              \
  static T inner_##suffix(int64_t n, const T *x, const T *y) {                                     \
    T s[4] = {0};                                                                                  \
    int64_t i = 0;                                                                                 \
    for (; i + 4 <= n; i += 4)                                                                     \
      for (int j = 0; j < 4; j++) s[j] += x[i + j] * CONJ(y[i + j]);                               \
    for (; i < n; i++) s[0] += x[i] * CONJ(y[i]);                                                  \
    return (s[0] + s[1]) + (s[2] + s[3]);                                                          \
  }                                                                                                \
  static bool factor_##suffix(int64_t n, T *a) {                                                   \
    for (int64_t i = 0; i < n; i++)                                                                \
      for (int64_t j = 0; j <= i; j++) {                                                           \
        T s = a[i * n + j] - inner_##suffix(j, a + i * n, a + j * n);                              \
        if (i == j) {                                                                              \
          if (!(REAL(s) > 0)) return false;                                                        \
          a[i * n + i] = sqrt(REAL(s));                                                            \
        } else {                                                                                   \
          a[i * n + j] = s / a[j * n + j];                                                         \
        }                                                                                          \
      }                                                                                            \
    return true;                                                                                   \
  }                                                                                                \
  static void cholesky_##suffix(int64_t n, bool lower, T *a) {                                     \
    if (!lower) /* U^H U = a from the upper triangle: L of its adjoint */                          \
      for (int64_t i = 0; i < n; i++)                                                              \
        for (int64_t j = 0; j < i; j++) a[i * n + j] = CONJ(a[j * n + i]);                         \
    bool fine = factor_##suffix(n, a);                                                             \
    for (int64_t i = 0; i < n; i++)                                                                \
      for (int64_t j = 0; j <= i; j++) {                                                           \
        T x = fine ? a[i * n + j] : (T)NAN;                                                        \
        T other = fine ? (T)0 : (T)NAN;                                                            \
        if (i == j)                                                                                \
          a[i * n + i] = x;                                                                        \
        else if (lower)                                                                            \
          a[i * n + j] = x, a[j * n + i] = other;                                                  \
        else                                                                                       \
          a[j * n + i] = CONJ(x), a[i * n + j] = other;                                            \
      }                                                                                            \
  }                                                                                                \
  /* a x = b for b [n][m] in place; `lower` is the triangle of the a given here. */                \
  static void solve_##suffix(int64_t n, int64_t m, bool lower, bool unit, const T *a, T *b) {      \
    for (int64_t step = 0; step < n; step++) {                                                     \
      int64_t i = lower ? step : n - 1 - step, from = lower ? 0 : i + 1, to = lower ? i : n;       \
      for (int64_t k = from; k < to; k++) {                                                        \
        T factor = a[i * n + k];                                                                   \
        for (int64_t c = 0; c < m; c++) b[i * m + c] -= factor * b[k * m + c];                     \
      }                                                                                            \
      if (!unit)                                                                                   \
        for (int64_t c = 0; c < m; c++) b[i * m + c] /= a[i * n + i];                              \
    }                                                                                              \
  }                                                                                                \
  static void transpose_##suffix(int64_t rows, int64_t cols, bool conjugate, const T *from,        \
                                 T *to) {                                                          \
    for (int64_t i = 0; i < rows; i++)                                                             \
      for (int64_t j = 0; j < cols; j++)                                                           \
        to[j * rows + i] = conjugate ? CONJ(from[i * cols + j]) : from[i * cols + j];              \
  }                                                                                                \
  /* op(a) x = b, or x op(a) = b by way of the transposed system. w has room for a and b. */       \
  static void triangular_##suffix(int64_t n, int64_t m, bool left, bool lower, bool unit,          \
                                  int64_t form, const T *a, T *b, T *w) {                          \
    bool turn = form != VT_NO_TRANSPOSE, conjugate = form == VT_ADJOINT;                           \
    T *ta = w, *tb = w + n * n;                                                                    \
    if (left) {                                                                                    \
      if (turn) transpose_##suffix(n, n, conjugate, a, ta);                                        \
      solve_##suffix(n, m, lower != turn, unit, turn ? ta : a, b);                                 \
      return;                                                                                      \
    }                                                                                              \
    /* x op(a) = b is op(a)^T x^T = b^T; op(a)^T is a^T, a, or the conjugate of a. */              \
    transpose_##suffix(m, n, false, b, tb);                                                        \
    if (!turn)                                                                                     \
      transpose_##suffix(n, n, false, a, ta);                                                      \
    else                                                                                           \
      for (int64_t i = 0; i < n * n; i++) ta[i] = conjugate ? CONJ(a[i]) : a[i];                   \
    solve_##suffix(n, m, lower == turn, unit, ta, tb);                                             \
    transpose_##suffix(n, m, false, tb, b);                                                        \
  }
#define SAME(x) (x)
LINALG(double, real, SAME, SAME)
LINALG(zdouble, complex, conj, creal)

static vt_dtype wide_of(vt_dtype d) {
  return vt_dtype_is_complex(d) ? VT_C128 : VT_F64;
}

static vt_status check_matrix(const vt_op *op, vt_type t) {
  if (t.rank < 2) return vt_eval_invalid(op, "shapes");
  if (!vt_dtype_is_float(t.dtype) && !vt_dtype_is_complex(t.dtype))
    return vt_eval_refuse(op, "this element type");
  return VT_OK;
}

vt_status vt_eval_cholesky(const vt_eval_call *call) {
  vt_type t = call->in[0].type;
  VT_TRY(check_matrix(call->op, t));
  int64_t n = t.dims[t.rank - 1], total = vt_type_elements(t);
  vt_dtype wide = wide_of(t.dtype);
  if (t.dims[t.rank - 2] != n) return vt_eval_invalid(call->op, "shapes");
  if (!total) return VT_OK;
  bool lower = vt_attr_i64(call->op, VT_ATTR_LOWER);
  char *a;
  VT_TRY(vt_eval_scratch(total * (int64_t)vt_dtype_bytes(wide), &a));
  vt_status st = vt_eval_convert_array(t.dtype, wide, total, call->in[0].data, a);
  for (int64_t m = 0; m < total / (n * n) && !st; m++) {
    if (wide == VT_F64)
      cholesky_real(n, lower, (double *)(void *)a + m * n * n);
    else
      cholesky_complex(n, lower, (zdouble *)(void *)a + m * n * n);
  }
  if (!st) st = vt_eval_convert_array(wide, t.dtype, total, a, call->out[0].data);
  free(a);
  return st;
}

vt_status vt_eval_triangular_solve(const vt_eval_call *call) {
  const vt_op *op = call->op;
  vt_type ta = call->in[0].type, tb = call->in[1].type;
  VT_TRY(check_matrix(op, ta));
  VT_TRY(check_matrix(op, tb));
  bool left = vt_attr_i64(op, VT_ATTR_LEFT_SIDE), lower = vt_attr_i64(op, VT_ATTR_LOWER);
  bool unit = vt_attr_i64(op, VT_ATTR_UNIT_DIAGONAL);
  int64_t form = vt_attr_i64(op, VT_ATTR_TRANSPOSE_A);
  int64_t n = ta.dims[ta.rank - 1], rows = tb.dims[tb.rank - 2], cols = tb.dims[tb.rank - 1];
  int64_t m = left ? cols : rows, na = vt_type_elements(ta), nb = vt_type_elements(tb);
  if (ta.dims[ta.rank - 2] != n || (left ? rows : cols) != n ||
      (nb && na / (n * n) != nb / (rows * cols)))
    return vt_eval_invalid(op, "shapes");
  if (!nb) return VT_OK;
  vt_dtype wide = wide_of(ta.dtype);
  int64_t bytes = (int64_t)vt_dtype_bytes(wide);
  char *a = NULL, *b = NULL, *w = NULL;
  vt_status st = VT_OK;
  VT_TRY_OUT(vt_eval_scratch(na * bytes, &a));
  VT_TRY_OUT(vt_eval_scratch(nb * bytes, &b));
  VT_TRY_OUT(vt_eval_scratch((n * n + n * m) * bytes, &w));
  VT_TRY_OUT(vt_eval_convert_array(ta.dtype, wide, na, call->in[0].data, a));
  VT_TRY_OUT(vt_eval_convert_array(tb.dtype, wide, nb, call->in[1].data, b));
  for (int64_t i = 0; i < nb / (n * m); i++) {
    void *ai = a + i * n * n * bytes, *bi = b + i * n * m * bytes, *wi = w;
    if (wide == VT_F64)
      triangular_real(n, m, left, lower, unit, form, ai, bi, wi);
    else
      triangular_complex(n, m, left, lower, unit, form, ai, bi, wi);
  }
  VT_TRY_OUT(vt_eval_convert_array(wide, tb.dtype, nb, b, call->out[0].data));
out:
  free(a);
  free(b);
  free(w);
  return st;
}
