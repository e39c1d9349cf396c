// SPDX-License-Identifier: Apache-2.0
// linalg_test.c - the kernels of small factorisations: what they give must multiply to what they
// were given, as closely as the evaluator's does; values and R are compared with the evaluator's.
#include "host/native_bench.h"

static double get(bool wide, const void *data, int64_t i) {
  return wide ? ((const double *)data)[i] : (double)((const float *)data)[i];
}
static void set(bool wide, void *data, int64_t i, double x) {
  if (wide)
    ((double *)data)[i] = x;
  else
    ((float *)data)[i] = (float)x;
}
static double random_number(void) {
  return (double)random_below(20001) / 10000 - 1;
}

static void set_target(op_bench *b, const char *target, const char *config) {
  vt_op_set_string(b->op, VT_ATTR_CALL_TARGET_NAME, target);
  if (config) vt_op_set_string(b->op, VT_ATTR_BACKEND_CONFIG, config);
}

static void expect_near(double got, double want, double most, const char *what, int64_t n) {
  if (!(fabs(got - want) <= most))
    fail_msg("%s of %lld: %g, expected %g", what, (long long)n, got, want);
}

// |sum_k x[i, k] y[k, j] - want| by indices through strides.
static double product(bool wide, const void *x, int64_t xi, int64_t xk, const void *y, int64_t yk,
                      int64_t yj, int64_t i, int64_t j, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < n; k++)
    sum += get(wide, x, i * xi + k * xk) * get(wide, y, k * yk + j * yj);
  return sum;
}

static void eigh_once(bool wide, int64_t count, int64_t n, double scale, const char *config) {
  op_bench b = bench_begin();
  int64_t dims[] = {count, n, n}, bytes = wide ? 8 : 4;
  vt_dtype dtype = wide ? VT_F64 : VT_F32;
  void *a = bench_param(&b, dtype, 3, dims);
  for (int64_t m = 0; m < count; m++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j <= i; j++) {
        // Now and then a block of its own, equal values, or nothing at all.
        double x = random_number() * scale;
        if (m % 4 == 1 && i >= n / 2 && j < n / 2) x = 0;
        if (m % 4 == 2) x = i == j ? scale : 0;
        if (m % 4 == 3 && m % 8 == 3) x = 0;
        set(wide, a, (m * n + i) * n + j, x);
        set(wide, a, (m * n + j) * n + i, x);
      }
  vt_type results[] = {bench_type(&b, dtype, 3, dims), bench_type(&b, dtype, 2, dims)};
  bench_op(&b, VT_OP_CUSTOM_CALL, 2, results, 0);
  set_target(&b, "Eigh", config);
  bench_evaluate(&b);
  bench_kernel(&b, 2, false);
  double close = (wide ? 1e-14 : 5e-6) * (double)(n + 4);
  for (int64_t m = 0; m < count; m++) {
    const char *v = (char *)b.got[0] + m * n * n * bytes, *w = (char *)b.got[1] + m * n * bytes;
    const char *from = (char *)a + m * n * n * bytes;
    for (int64_t i = 0; i < n; i++) {
      if (config[2] == '1')
        expect_near(get(wide, w, i), get(wide, b.want[1], m * n + i), close * scale, "value", n);
      for (int64_t j = 0; j < n; j++) {
        double dot = product(wide, v, 1, n, v, n, 1, i, j, n);
        expect_near(dot, i == j, close, "dot of vectors", n);
        double av = product(wide, from, n, 1, v, n, 1, i, j, n);
        expect_near(av, get(wide, v, i * n + j) * get(wide, w, j), close * scale, "a times vector",
                    n);
      }
    }
  }
  bench_end(&b);
}

static void eighs(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 2, 3, 5, 8, 13, 16, 31, 64};
  for (int i = 0; i < 9; i++)
    for (int wide = 0; wide < 2; wide++) {
      eigh_once(wide, 37, sizes[i], 1, "1,1,100,1e-6");
      eigh_once(wide, 5, sizes[i], 1e30, "1,0,100,1e-6");
      eigh_once(wide, 6, sizes[i], 1e-30, "0,1,100,1e-6");
    }
}

// What is not finite stays in its matrix.
static void eigh_of_nan(void **state) {
  (void)state;
  op_bench b = bench_begin();
  float *a = bench_param(&b, VT_F32, 3, (int64_t[]){20, 4, 4});
  for (int i = 0; i < 320; i++) a[i] = i % 5 == 0;
  a[7 * 16 + 4] = NAN;
  a[9 * 16 + 4] = INFINITY;
  vt_type results[] = {bench_type(&b, VT_F32, 3, (int64_t[]){20, 4, 4}),
                       bench_type(&b, VT_F32, 2, (int64_t[]){20, 4})};
  bench_op(&b, VT_OP_CUSTOM_CALL, 2, results, 0);
  set_target(&b, "Eigh", "1,1,100,1e-6");
  bench_kernel(&b, 2, false);
  for (int m = 0; m < 20; m++)
    for (int i = 0; i < 16; i++)
      assert_true(isnan(((float *)b.got[0])[m * 16 + i]) == (m == 7 || m == 9));
  bench_end(&b);
}

static void qr_once(bool wide, int64_t count, int64_t m, int64_t n, double scale) {
  op_bench b = bench_begin();
  int64_t k = m < n ? m : n, dims[] = {count, m, n}, bytes = wide ? 8 : 4;
  vt_dtype dtype = wide ? VT_F64 : VT_F32;
  void *a = bench_param(&b, dtype, 3, dims);
  for (int64_t i = 0; i < count * m * n; i++)
    set(wide, a, i, i / (m * n) % 5 == 3 && i % n < 2 ? 0 : random_number() * scale);
  vt_type results[] = {bench_type(&b, dtype, 3, dims),
                       bench_type(&b, dtype, 2, (int64_t[]){count, k})};
  bench_op(&b, VT_OP_CUSTOM_CALL, 2, results, 0);
  set_target(&b, "Qr", NULL);
  bench_evaluate(&b);
  bench_kernel(&b, 2, false);
  double close = (wide ? 1e-14 : 5e-6) * (double)(m + 4);
  for (int64_t x = 0; x < count; x++) { // the columns of R have the lengths of those of a
    for (int64_t j = 0; j < n; j++) {
      double want = 0, got = 0;
      for (int64_t i = 0; i < m; i++) {
        double p = get(wide, a, (x * m + i) * n + j) / scale,
               q = i <= j ? get(wide, b.got[0], (x * m + i) * n + j) / scale : 0;
        want += p * p, got += q * q;
      }
      expect_near(sqrt(got), sqrt(want), close, "column of R", n);
    }
  }
  if (n > m) {
    bench_end(&b);
    return;
  }
  // Q times R is a.
  op_bench c = bench_begin();
  memcpy(bench_param(&c, dtype, 3, dims), b.got[0], (size_t)(count * m * n * bytes));
  memcpy(bench_param(&c, dtype, 2, (int64_t[]){count, k}), b.got[1], (size_t)(count * k * bytes));
  bench_op(&c, VT_OP_CUSTOM_CALL, 1, results, 0);
  set_target(&c, "ProductOfElementaryHouseholderReflectors", NULL);
  bench_evaluate(&c);
  bench_kernel(&c, 2, false);
  for (int64_t x = 0; x < count; x++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t l = 0; l <= j; l++)
          sum +=
              get(wide, c.got[0], (x * m + i) * n + l) * get(wide, b.got[0], (x * m + l) * n + j);
        int64_t at = (x * m + i) * n + j;
        expect_near(sum, get(wide, a, at), close * scale, "Q times R", n);
        expect_near(get(wide, c.got[0], at), get(wide, c.want[0], at), close, "Q", n);
      }
  bench_end(&b);
  bench_end(&c);
}

static void qrs(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{1, 1},  {2, 2}, {3, 5}, {5, 3},  {8, 8},
                                      {16, 8}, {7, 1}, {1, 7}, {40, 9}, {64, 64}};
  for (int i = 0; i < 10; i++)
    for (int wide = 0; wide < 2; wide++) {
      qr_once(wide, 37, shapes[i][0], shapes[i][1], 1);
      qr_once(wide, 4, shapes[i][0], shapes[i][1], i % 2 ? 1e30 : 1e-30);
    }
}

// Largest difference of two arrays, against the largest number of the second.
static double apart(int64_t n, const float *x, const float *y) {
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < n; i++) {
    if (isnan(x[i]) != isnan(y[i])) return INFINITY;
    if (isnan(x[i])) continue;
    worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
    largest = fmax(largest, fabs((double)y[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

static void triangular_once(int64_t count, int64_t n, int64_t m, int form) {
  op_bench b = bench_begin();
  bool left = form & 1, lower = form & 2, unit = form & 4;
  int64_t size[] = {count, n, n}, sides[] = {count, left ? n : m, left ? m : n};
  float *a = bench_param(&b, VT_F32, 3, size), *x = bench_param(&b, VT_F32, 3, sides);
  for (int64_t i = 0; i < count * n * n; i++) // the other triangle is never read
    a[i] = i % (n * n) % (n + 1) == 0 ? (float)(2 + random_number())
                                      : (float)(random_number() / (double)n);
  for (int64_t i = 0; i < count * n * n; i++)
    if ((i % n > i / n % n) == lower && i % n != i / n % n) a[i] = NAN;
  for (int64_t i = 0; i < count * n * m; i++) x[i] = (float)random_number();
  vt_type result = bench_type(&b, VT_F32, 3, sides);
  bench_op(&b, VT_OP_TRIANGULAR_SOLVE, 1, &result, 0);
  vt_op_set_i64(b.op, VT_ATTR_LEFT_SIDE, left);
  vt_op_set_i64(b.op, VT_ATTR_LOWER, lower);
  vt_op_set_i64(b.op, VT_ATTR_UNIT_DIAGONAL, unit);
  vt_op_set_i64(b.op, VT_ATTR_TRANSPOSE_A,
                form & 8 ? (form & 1 ? VT_TRANSPOSE : VT_ADJOINT) : VT_NO_TRANSPOSE);
  bench_evaluate(&b);
  bench_kernel(&b, 2, false);
  double off = apart(count * n * m, b.got[0], b.want[0]);
  if (!(off <= 3e-6))
    fail_msg("triangular_solve of %lld x %lld, form %d: off by %g", (long long)n, (long long)m,
             form, off);
  bench_end(&b);
}

static void triangular_solves(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{1, 1, 1},    {30, 8, 4},  {3, 17, 1},   {2, 64, 64},
                                      {1, 65, 300}, {5, 130, 7}, {1, 200, 513}};
  for (int s = 0; s < 7; s++)
    for (int form = 0; form < 16; form++)
      triangular_once(shapes[s][0], shapes[s][1], shapes[s][2], form);
}

static void choleskies(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 2, 8, 17, 63, 64, 65, 150, 300};
  for (int s = 0; s < 18; s++) {
    op_bench b = bench_begin();
    int64_t n = sizes[s / 2], count = n < 20 ? 33 : 3, size[] = {count, n, n};
    float *a = bench_param(&b, VT_F32, 3, size);
    for (int64_t i = 0; i < count * n * n; i++) {
      int64_t r = i / n % n, c = i % n;
      a[i] = r == c ? (float)(1.5 + random_number() / 8) : (float)(random_number() / (double)n);
    }
    a[(n * n) + (n - 1) * (n + 1)] = -1; // the second one has no factor
    vt_type result = bench_type(&b, VT_F32, 3, size);
    bench_op(&b, VT_OP_CHOLESKY, 1, &result, 0);
    vt_op_set_i64(b.op, VT_ATTR_LOWER, s % 2);
    bench_evaluate(&b);
    bench_kernel(&b, 2, false);
    assert_true(isnan(((float *)b.got[0])[n * n]));
    double off = apart(count * n * n, b.got[0], b.want[0]);
    if (!(off <= 2e-6)) fail_msg("cholesky of %lld: off by %g", (long long)n, off);
    bench_end(&b);
  }
}

static void lus(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{1, 1, 1},   {40, 8, 8},    {3, 5, 9},     {3, 9, 5},
                                      {2, 33, 33}, {1, 100, 300}, {1, 300, 100}, {2, 200, 200}};
  for (int s = 0; s < 8; s++) {
    op_bench b = bench_begin();
    int64_t count = shapes[s][0], m = shapes[s][1], n = shapes[s][2], k = m < n ? m : n;
    float *a = bench_param(&b, VT_F32, 3, shapes[s]);
    for (int64_t i = 0; i < count * m * n; i++)
      a[i] = i / (m * n) == 1 ? 0 : (float)random_number();
    vt_type results[] = {bench_type(&b, VT_F32, 3, shapes[s]),
                         bench_type(&b, VT_S32, 2, (int64_t[]){count, k}),
                         bench_type(&b, VT_S32, 2, (int64_t[]){count, m})};
    bench_op(&b, VT_OP_CUSTOM_CALL, 3, results, 0);
    set_target(&b, "LuDecomposition", NULL);
    bench_kernel(&b, 2, false);
    for (int64_t x = 0; x < count; x++) { // L times U is a with its rows exchanged
      const float *f = (float *)b.got[0] + x * m * n, *from = a + x * m * n;
      const int32_t *order = (int32_t *)b.got[2] + x * m;
      for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
          double sum = i <= j ? (double)f[i * n + j] : 0;
          for (int64_t l = 0; l < i && l <= j && l < k; l++)
            sum += (double)f[i * n + l] * (double)f[l * n + j];
          expect_near(sum, (double)from[order[i] * n + j], 2e-6 * (double)(m + n), "L times U", n);
          if (j < i && j < k) assert_true(fabsf(f[i * n + j]) <= 1);
        }
    }
    bench_end(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(eighs),      cmocka_unit_test(eigh_of_nan),
      cmocka_unit_test(qrs),        cmocka_unit_test(triangular_solves),
      cmocka_unit_test(choleskies), cmocka_unit_test(lus),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
