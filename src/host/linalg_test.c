// SPDX-License-Identifier: Apache-2.0
// linalg_test.c - the kernels of factorisations and triangular systems, in lanes and by LAPACK: the
// product of the factors must be the input; values and R are compared with the evaluator's.
#include <complex.h>

#include "host/native_bench.h"

typedef double complex number;

static const vt_dtype dtypes[] = {VT_F32, VT_F64, VT_C64, VT_C128};

static bool wide(vt_dtype d) {
  return d == VT_F64 || d == VT_C128;
}
static double epsilon(vt_dtype d) {
  return wide(d) ? 3e-15 : 1.5e-6;
}
static vt_dtype real_of(vt_dtype d) {
  return wide(d) ? VT_F64 : VT_F32;
}

static number get(vt_dtype d, const void *data, int64_t i) {
  switch ((int)d) {
  case VT_F32:
    return (double)((const float *)data)[i];
  case VT_F64:
    return ((const double *)data)[i];
  case VT_C64:
    return (number)((const float complex *)data)[i];
  default:
    return ((const number *)data)[i];
  }
}
static void set(vt_dtype d, void *data, int64_t i, number x) {
  switch ((int)d) {
  case VT_F32:
    ((float *)data)[i] = (float)creal(x);
    break;
  case VT_F64:
    ((double *)data)[i] = creal(x);
    break;
  case VT_C64:
    ((float complex *)data)[i] = (float complex)x;
    break;
  default:
    ((number *)data)[i] = x;
  }
}
static number random_number(vt_dtype d) {
  double re = (double)random_below(20001) / 10000 - 1, im = (double)random_below(20001) / 10000 - 1;
  return vt_dtype_is_complex(d) ? re + im * I : re;
}

// The same numbers in the other memory order, so that sums run over neighbours.
typedef struct matrix {
  int64_t rows, cols;
  number *x;
} matrix;

static matrix load(vt_dtype d, const void *data, int64_t at, int64_t rows, int64_t cols) {
  matrix m = {rows, cols, malloc((size_t)(rows * cols + 1) * sizeof(number))};
  for (int64_t i = 0; i < rows * cols; i++) m.x[i] = get(d, data, at + i);
  return m;
}

// |x y - z| for matrices, the conjugate of x's transpose for `adjoint`; z NULL: the identity.
static void expect_product(bool adjoint, matrix x, matrix y, const matrix *z, double most,
                           const char *what) {
  int64_t rows = adjoint ? x.cols : x.rows, inner = adjoint ? x.rows : x.cols;
  number *line = malloc((size_t)(y.cols + 1) * sizeof *line);
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < y.cols; j++) line[j] = z ? -z->x[i * z->cols + j] : -(double)(i == j);
    for (int64_t k = 0; k < inner; k++) {
      number factor = adjoint ? conj(x.x[k * x.cols + i]) : x.x[i * x.cols + k];
      for (int64_t j = 0; j < y.cols; j++) line[j] += factor * y.x[k * y.cols + j];
    }
    for (int64_t j = 0; j < y.cols; j++)
      if (!(cabs(line[j]) <= most))
        fail_msg("%s of %lld x %lld: off by %g at %lld, %lld", what, (long long)x.rows,
                 (long long)y.cols, cabs(line[j]), (long long)i, (long long)j);
  }
  free(line);
}

static void set_target(op_bench *b, const char *target, const char *config) {
  vt_op_set_string(b->op, VT_ATTR_CALL_TARGET_NAME, target);
  if (config) vt_op_set_string(b->op, VT_ATTR_BACKEND_CONFIG, config);
}

// Running the kernel again gives the same bits.
static void expect_repeatable(op_bench *b) {
  for (uint32_t i = 0; i < b->op->result_count; i++) {
    b->want[i] = b->want[i] ? b->want[i] : bench_memory(b->op->results[i].type);
    memcpy(b->want[i], b->got[i], (size_t)vt_type_bytes(b->op->results[i].type));
  }
  bench_kernel(b, 2, false);
  for (uint32_t i = 0; i < b->op->result_count; i++) bench_expect_same(b, i, "again");
}

// ---- Eigenvalues.

// Sometimes block diagonal, with equal eigenvalues, or all zero.
static number symmetric(vt_dtype d, int64_t m, int64_t i, int64_t j, int64_t n) {
  number x = random_number(d);
  if (m % 4 == 1 && i >= n / 2 && j < n / 2) x = 0;
  if (m % 4 == 2) x = i == j;
  if (m % 4 == 3 && m % 8 == 3) x = 0;
  return i == j ? creal(x) : x;
}

static void eigh_once(vt_dtype d, int64_t count, int64_t n, double scale, const char *config) {
  op_bench b = bench_begin();
  int64_t dims[] = {count, n, n};
  bool lower = config[0] == '1', sorted = config[2] == '1';
  void *a = bench_param(&b, d, 3, dims), *whole = bench_memory(bench_type(&b, d, 3, dims));
  for (int64_t m = 0; m < count; m++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j <= i; j++) {
        number x = symmetric(d, m, i, j, n) * scale;
        int64_t low = (m * n + i) * n + j, high = (m * n + j) * n + i;
        set(d, whole, high, conj(x));
        set(d, whole, low, x);
        set(d, a, high, lower ? NAN : conj(x)); // must not be read
        set(d, a, low, lower || i == j ? x : NAN);
      }
  vt_type results[] = {bench_type(&b, d, 3, dims), bench_type(&b, real_of(d), 2, dims)};
  bench_op(&b, VT_OP_CUSTOM_CALL, 2, results, 0);
  set_target(&b, "Eigh", config);
  bench_kernel(&b, 2, false);
  double close = 4 * epsilon(d) * (double)(n + 4);
  for (int64_t k = 0; k < count; k++) {
    matrix v = load(d, b.got[0], k * n * n, n, n), from = load(d, whole, k * n * n, n, n);
    matrix scaled = load(d, b.got[0], k * n * n, n, n);
    for (int64_t j = 0; j < n; j++) {
      double w = creal(get(real_of(d), b.got[1], k * n + j));
      for (int64_t i = 0; i < n; i++) scaled.x[i * n + j] *= w;
      if (sorted && j) assert_true(w >= creal(get(real_of(d), b.got[1], k * n + j - 1)));
    }
    expect_product(true, v, v, NULL, close, "vectors by vectors");
    expect_product(false, from, v, &scaled, close * scale, "a by vectors");
    free(v.x), free(from.x), free(scaled.x);
  }
  expect_repeatable(&b);
  free(whole);
  bench_end(&b);
}

static void eighs(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 2, 3, 5, 8, 13, 16, 31, 64};
  for (int i = 0; i < 9; i++)
    for (int d = 0; d < 2; d++) {
      eigh_once(dtypes[d], 37, sizes[i], 1, "1,1,100,1e-6");
      eigh_once(dtypes[d], 5, sizes[i], 1e30, "1,0,100,1e-6");
      eigh_once(dtypes[d], 6, sizes[i], 1e-30, "0,1,100,1e-6");
    }
}

static void large_eighs(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    eigh_once(dtypes[d], 1, 17, 1, "1,1,100,1e-6");
    eigh_once(dtypes[d], 5, 70, 1e-30, "0,1,100,1e-6");
    eigh_once(dtypes[d], 2, 150, 1e30, "1,1,100,1e-6");
    eigh_once(dtypes[d], 1, 257, 1e30, "1,1,100,1e-6");
    eigh_once(dtypes[d], 1, 300, 1e-30, "0,1,100,1e-6");
    eigh_once(dtypes[d], 9, 3, 1, "0,1,100,1e-6");
  }
}

// Non-finite values do not leak into other matrices.
static void eigh_of_nan_once(int64_t count, int64_t n) {
  op_bench b = bench_begin();
  float *a = bench_param(&b, VT_F32, 3, (int64_t[]){count, n, n});
  for (int64_t i = 0; i < count * n * n; i++) a[i] = i % (n * n) % (n + 1) == 0;
  a[1 * n * n + n] = NAN;
  a[2 * n * n + n] = INFINITY;
  vt_type results[] = {bench_type(&b, VT_F32, 3, (int64_t[]){count, n, n}),
                       bench_type(&b, VT_F32, 2, (int64_t[]){count, n})};
  bench_op(&b, VT_OP_CUSTOM_CALL, 2, results, 0);
  set_target(&b, "Eigh", "1,1,100,1e-6");
  bench_kernel(&b, 2, false);
  for (int64_t m = 0; m < count; m++)
    for (int64_t i = 0; i < n * n; i++)
      assert_true(isnan(((float *)b.got[0])[m * n * n + i]) == (m == 1 || m == 2));
  bench_end(&b);
}

static void eigh_of_nan(void **state) {
  (void)state;
  eigh_of_nan_once(20, 4);
  eigh_of_nan_once(3, 100);
}

// ---- QR.

// The kernel's Q and R multiply to a.
static void expect_qr(vt_dtype d, const op_bench *b, const void *a, int64_t count, int64_t m,
                      int64_t n, double scale) {
  double close = 4 * epsilon(d) * (double)(m + 4);
  int64_t dims[] = {count, m, n};
  op_bench c = bench_begin();
  memcpy(bench_param(&c, d, 3, dims), b->got[0], (size_t)vt_type_bytes(b->op->results[0].type));
  memcpy(bench_param(&c, d, 2, (int64_t[]){count, n}), b->got[1],
         (size_t)vt_type_bytes(b->op->results[1].type));
  vt_type result = bench_type(&c, d, 3, dims);
  bench_op(&c, VT_OP_CUSTOM_CALL, 1, &result, 0);
  set_target(&c, "ProductOfElementaryHouseholderReflectors", NULL);
  bench_evaluate(&c);
  bench_kernel(&c, 2, false);
  for (int64_t k = 0; k < count; k++) {
    matrix q = load(d, c.got[0], k * m * n, m, n), want = load(d, c.want[0], k * m * n, m, n);
    matrix r = load(d, b->got[0], k * m * n, n, n), from = load(d, a, k * m * n, m, n);
    for (int64_t i = 0; i < n * n; i++) r.x[i] *= i % n >= i / n;
    expect_product(false, q, r, &from, close * scale, "Q by R");
    for (int64_t i = 0; i < m * n; i++)
      if (!(cabs(q.x[i] - want.x[i]) <= close))
        fail_msg("Q is off by %g", cabs(q.x[i] - want.x[i]));
    free(q.x), free(r.x), free(from.x), free(want.x);
  }
  bench_end(&c);
}

static void qr_once(vt_dtype d, int64_t count, int64_t m, int64_t n, double scale) {
  op_bench b = bench_begin();
  int64_t few = m < n ? m : n, dims[] = {count, m, n};
  void *a = bench_param(&b, d, 3, dims);
  for (int64_t i = 0; i < count * m * n; i++)
    set(d, a, i, i / (m * n) % 5 == 3 && i % n < 2 ? 0 : random_number(d) * scale);
  vt_type results[] = {bench_type(&b, d, 3, dims), bench_type(&b, d, 2, (int64_t[]){count, few})};
  bench_op(&b, VT_OP_CUSTOM_CALL, 2, results, 0);
  set_target(&b, "Qr", NULL);
  bench_kernel(&b, 2, false);
  double close = 4 * epsilon(d) * (double)(m + 4);
  for (int64_t k = 0; k < count; k++)
    for (int64_t j = 0; j < n; j++) { // the columns of R have the norms of those of a
      double want = 0, got = 0;
      for (int64_t i = 0; i < m; i++) {
        number p = get(d, a, (k * m + i) * n + j) / scale, q = 0;
        if (i <= j) q = get(d, b.got[0], (k * m + i) * n + j) / scale;
        want += creal(p * conj(p)), got += creal(q * conj(q));
      }
      if (!(fabs(sqrt(got) - sqrt(want)) <= close))
        fail_msg("column of R: %g for %g", sqrt(got), sqrt(want));
    }
  if (n <= m) expect_qr(d, &b, a, count, m, n, scale);
  bench_end(&b);
}

static void qrs(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{1, 1},  {2, 2}, {3, 5}, {5, 3},  {8, 8},
                                      {16, 8}, {7, 1}, {1, 7}, {40, 9}, {64, 64}};
  for (int i = 0; i < 10; i++)
    for (int d = 0; d < 4; d++) {
      qr_once(dtypes[d], 37, shapes[i][0], shapes[i][1], 1);
      qr_once(dtypes[d], 4, shapes[i][0], shapes[i][1], i % 2 ? 1e30 : 1e-30);
    }
}

static void large_qrs(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    qr_once(dtypes[d], 1, 130, 130, 1);
    qr_once(dtypes[d], 3, 150, 33, 1);
    qr_once(dtypes[d], 2, 33, 150, 1);
  }
}

// ---- Triangular systems.

// Largest difference of two arrays, relative to the largest number of the second.
static double apart(vt_dtype d, int64_t n, const void *got, const void *want) {
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < n; i++) {
    number x = get(d, got, i), y = get(d, want, i);
    if (isnan(creal(x)) != isnan(creal(y))) return INFINITY;
    if (isnan(creal(x))) continue;
    worst = fmax(worst, cabs(x - y));
    largest = fmax(largest, cabs(y));
  }
  return largest > 0 ? worst / largest : worst;
}

static void triangular_once(vt_dtype d, int64_t count, int64_t n, int64_t m, int form) {
  op_bench b = bench_begin();
  bool left = form & 1, lower = form & 2, unit = form & 4;
  int64_t size[] = {count, n, n}, sides[] = {count, left ? n : m, left ? m : n};
  void *a = bench_param(&b, d, 3, size), *x = bench_param(&b, d, 3, sides);
  for (int64_t i = 0; i < count * n * n; i++) {
    int64_t r = i / n % n, c = i % n;
    number value = r == c ? 2 + random_number(d) / 2 : random_number(d) / (double)n;
    set(d, a, i, (c > r) == lower && c != r ? NAN : value); // the other triangle is never read
  }
  for (int64_t i = 0; i < count * n * m; i++) set(d, x, i, random_number(d));
  vt_type result = bench_type(&b, d, 3, sides);
  bench_op(&b, VT_OP_TRIANGULAR_SOLVE, 1, &result, 0);
  vt_op_set_i64(b.op, VT_ATTR_LEFT_SIDE, left);
  vt_op_set_i64(b.op, VT_ATTR_LOWER, lower);
  vt_op_set_i64(b.op, VT_ATTR_UNIT_DIAGONAL, unit);
  vt_op_set_i64(b.op, VT_ATTR_TRANSPOSE_A,
                (int64_t[]){VT_NO_TRANSPOSE, VT_TRANSPOSE, VT_ADJOINT}[form / 8]);
  bench_evaluate(&b);
  bench_kernel(&b, 2, false);
  double off = apart(d, count * n * m, b.got[0], b.want[0]);
  if (!(off <= 2 * epsilon(d)))
    fail_msg("triangular_solve of %lld x %lld, form %d: off by %g", (long long)n, (long long)m,
             form, off);
  expect_repeatable(&b);
  bench_end(&b);
}

static void triangular_solves(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{1, 1, 1},    {30, 8, 4},  {9, 17, 1},  {2, 64, 64},
                                      {1, 65, 300}, {5, 130, 7}, {1, 90, 513}};
  for (int s = 0; s < 7; s++)
    for (int form = 0; form < 24; form++)
      for (int d = 0; d < 4; d++)
        if (shapes[s][1] < 64 || (form + form / 4 + d) % 4 == 0) // large ones in one type each
          triangular_once(dtypes[d], shapes[s][0], shapes[s][1], shapes[s][2], form);
}

// Division by the zero affects its row and those that depend on it, no other row and no other
// matrix.
static void singular_once(vt_dtype dtype, int64_t count, int64_t n, bool lower) {
  op_bench b = bench_begin();
  int64_t zero = n / 2;
  void *a = bench_param(&b, dtype, 3, (int64_t[]){count, n, n});
  void *x = bench_param(&b, dtype, 3, (int64_t[]){count, n, 3});
  for (int64_t i = 0; i < count * n * n; i++) set(dtype, a, i, 1 + (i % n == i / n % n));
  for (int64_t i = 0; i < count * n * 3; i++) set(dtype, x, i, 1.5);
  set(dtype, a, n * n + zero * (n + 1), 0);
  vt_type result = bench_type(&b, dtype, 3, (int64_t[]){count, n, 3});
  bench_op(&b, VT_OP_TRIANGULAR_SOLVE, 1, &result, 0);
  vt_op_set_i64(b.op, VT_ATTR_LEFT_SIDE, 1);
  vt_op_set_i64(b.op, VT_ATTR_LOWER, lower);
  vt_op_set_i64(b.op, VT_ATTR_UNIT_DIAGONAL, 0);
  vt_op_set_i64(b.op, VT_ATTR_TRANSPOSE_A, VT_NO_TRANSPOSE);
  bench_kernel(&b, 2, false);
  for (int64_t i = 0; i < count * n * 3; i++) {
    int64_t row = i / 3 % n;
    bool affected = i / (n * 3) == 1 && (lower ? row >= zero : row <= zero);
    assert_true(!isfinite(creal(get(dtype, b.got[0], i))) == affected);
  }
  bench_end(&b);
}

static void singular_triangular(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{20, 8}, {2, 100}};
  for (int s = 0; s < 2; s++)
    for (int d = 0; d < 4; d++)
      for (int lower = 0; lower < 2; lower++)
        singular_once(dtypes[d], shapes[s][0], shapes[s][1], lower);
}

// ---- Cholesky.

static void cholesky_once(vt_dtype d, int64_t n, bool lower) {
  op_bench b = bench_begin();
  int64_t count = n < 20 ? 33 : n < 70 ? 5 : 3, size[] = {count, n, n};
  void *a = bench_param(&b, d, 3, size);
  for (int64_t i = 0; i < count * n * n; i++) {
    int64_t r = i / n % n, c = i % n;
    number value = r == c ? 1.5 + creal(random_number(d)) / 8 : random_number(d) / (double)n;
    set(d, a, i, (c > r) == lower && c != r ? NAN : value);
  }
  set(d, a, n * n + (n - 1) * (n + 1), -1); // the second one has no factor
  set(d, a, 2 * n * n + (n - 1) * (n + 1), NAN);
  vt_type result = bench_type(&b, d, 3, size);
  bench_op(&b, VT_OP_CHOLESKY, 1, &result, 0);
  vt_op_set_i64(b.op, VT_ATTR_LOWER, lower);
  bench_evaluate(&b);
  bench_kernel(&b, 2, false);
  for (int64_t i = 0; i < 2 * n * n; i++) assert_true(isnan(creal(get(d, b.got[0], n * n + i))));
  double off = apart(d, count * n * n, b.got[0], b.want[0]);
  if (!(off <= epsilon(d))) fail_msg("cholesky of %lld: off by %g", (long long)n, off);
  expect_repeatable(&b);
  bench_end(&b);
}

static void choleskies(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 2, 8, 17, 63, 64, 65, 150, 300};
  for (int s = 0; s < 18; s++)
    for (int d = 0; d < 4; d++) cholesky_once(dtypes[d], sizes[s / 2], s % 2);
}

// ---- LU.

static void lu_once(vt_dtype d, int64_t count, int64_t m, int64_t n) {
  op_bench b = bench_begin();
  int64_t few = m < n ? m : n, dims[] = {count, m, n};
  void *a = bench_param(&b, d, 3, dims);
  for (int64_t i = 0; i < count * m * n; i++)
    set(d, a, i, i / (m * n) == 1 || (i / (m * n) == 2 && i % n == 1) ? 0 : random_number(d));
  vt_type results[] = {bench_type(&b, d, 3, dims),
                       bench_type(&b, VT_S32, 2, (int64_t[]){count, few}),
                       bench_type(&b, VT_S32, 2, dims)};
  bench_op(&b, VT_OP_CUSTOM_CALL, 3, results, 0);
  set_target(&b, "LuDecomposition", NULL);
  bench_evaluate(&b);
  bench_kernel(&b, 2, false);
  for (int64_t k = 0; k < count; k++) { // L times U is a with its rows exchanged
    const int32_t *order = (int32_t *)b.got[2] + k * m;
    matrix l = load(d, b.got[0], 0, m, few), u = load(d, b.got[0], k * m * n, few, n);
    matrix want = load(d, a, 0, m, n);
    for (int64_t i = 0; i < m * few; i++) {
      int64_t r = i / few, c = i % few;
      l.x[i] = r == c ? 1 : r < c ? 0 : get(d, b.got[0], (k * m + r) * n + c);
      assert_true(cabs(l.x[i]) <= 1.5); // the largest of |re| + |im| is the pivot
    }
    for (int64_t i = 0; i < few * n; i++) u.x[i] *= i % n >= i / n;
    for (int64_t i = 0; i < m * n; i++) want.x[i] = get(d, a, (k * m + order[i / n]) * n + i % n);
    expect_product(false, l, u, &want, 2 * epsilon(d) * (double)(m + n), "L by U");
    free(l.x), free(u.x), free(want.x);
  }
  // The same pivots as the evaluator's: there are no ties here except among zeros.
  bench_expect_same(&b, 1, "pivots");
  bench_expect_same(&b, 2, "permutation");
  expect_repeatable(&b);
  bench_end(&b);
}

static void lus(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{1, 1, 1},   {40, 8, 8},    {5, 5, 9},     {5, 9, 5},
                                      {6, 32, 32}, {1, 100, 300}, {1, 300, 100}, {3, 130, 130}};
  for (int s = 0; s < 8; s++)
    for (int d = 0; d < 4; d++) lu_once(dtypes[d], shapes[s][0], shapes[s][1], shapes[s][2]);
}

// ---- Singular values.

static void svd_once(vt_dtype d, int64_t count, int64_t m, int64_t n, bool vectors, bool spoilt) {
  op_bench b = bench_begin();
  int64_t k = m < n ? m : n, dims[] = {count, m, n};
  void *a = bench_param(&b, d, 3, dims);
  for (int64_t i = 0; i < count * m * n; i++) // the second one has rank 1
    set(d, a, i, i / (m * n) == 1 ? 1 : random_number(d));
  if (spoilt) set(d, a, 0, INFINITY);
  vt_type values = bench_type(&b, real_of(d), 2, (int64_t[]){count, k});
  vt_type results[] = {bench_type(&b, d, 3, (int64_t[]){count, m, k}), values,
                       bench_type(&b, d, 3, (int64_t[]){count, n, k})};
  bench_op(&b, VT_OP_CUSTOM_CALL, vectors ? 3 : 1, vectors ? results : &values, 0);
  set_target(&b, "Svd", NULL);
  bench_evaluate(&b);
  bench_kernel(&b, 2, false);
  double close = 8 * epsilon(d) * (double)(m + n);
  double off = apart(real_of(d), count * k, b.got[vectors], b.want[vectors]);
  if (!(off <= close)) fail_msg("singular values are off by %g", off);
  assert_true(isnan(creal(get(real_of(d), b.got[vectors], 0))) == spoilt);
  for (int64_t i = 0; i < count && vectors && !spoilt; i++) {
    matrix u = load(d, b.got[0], i * m * k, m, k), v = load(d, b.got[2], i * n * k, n, k);
    matrix from = load(d, a, i * m * n, m, n), scaled = load(d, b.got[0], i * m * k, m, k);
    for (int64_t j = 0; j < m * k; j++) scaled.x[j] *= get(real_of(d), b.got[1], i * k + j % k);
    expect_product(true, u, u, NULL, close, "left vectors");
    expect_product(true, v, v, NULL, close, "right vectors");
    expect_product(false, from, v, &scaled, close * (double)k, "a by right vectors");
    free(u.x), free(v.x), free(from.x), free(scaled.x);
  }
  if (vectors && spoilt) {
    assert_true(isnan(creal(get(d, b.got[0], m * k - 1))));
    assert_true(isnan(creal(get(d, b.got[2], n * k - 1))));
  }
  expect_repeatable(&b);
  bench_end(&b);
}

static void svds(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{1, 1, 1},   {3, 5, 5},   {2, 40, 17},
                                      {2, 17, 40}, {2, 90, 90}, {1, 120, 30}};
  for (int s = 0; s < 6; s++)
    for (int d = 0; d < 4; d++)
      for (int form = 0; form < 4; form++)
        svd_once(dtypes[d], shapes[s][0], shapes[s][1], shapes[s][2], form & 1, form & 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eighs),
      cmocka_unit_test(large_eighs),
      cmocka_unit_test(eigh_of_nan),
      cmocka_unit_test(qrs),
      cmocka_unit_test(large_qrs),
      cmocka_unit_test(triangular_solves),
      cmocka_unit_test(singular_triangular),
      cmocka_unit_test(choleskies),
      cmocka_unit_test(lus),
      cmocka_unit_test(svds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
