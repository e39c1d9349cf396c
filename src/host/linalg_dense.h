// SPDX-License-Identifier: Apache-2.0
// linalg_dense.h - the body of linalg_dense.c for one element type. No include guard: included once
// for each, with T, REAL, COMPLEX (0 or 1), LAPACK(name) and BLAS(name), and NAME to make names.
//
// LAPACK's matrices are column-major: our a is its transpose. Where the transposed problem is of
// the same kind (Cholesky, triangular systems, singular values) nothing moves; elsewhere the matrix
// is transposed before and after.

static bool NAME(finite)(int64_t n, const T *x) {
  const REAL *parts = (const REAL *)x;
  int bad = 0;
  for (int64_t i = 0; i < n * (1 + COMPLEX); i++) bad |= !isfinite(parts[i]);
  return !bad;
}

static void NAME(fill_nan)(int64_t n, T *x) {
  REAL *parts = (REAL *)x;
  for (int64_t i = 0; i < n * (1 + COMPLEX); i++) parts[i] = (REAL)NAN;
}

// to[j][i] = from[i][j]
static void NAME(turn)(int64_t rows, int64_t cols, const T *from, T *to) {
  for (int64_t i = 0; i < rows; i += TURN_BLOCK)
    for (int64_t j = 0; j < cols; j += TURN_BLOCK)
      for (int64_t c = j; c < cols && c < j + TURN_BLOCK; c++)
        for (int64_t r = i; r < rows && r < i + TURN_BLOCK; r++)
          to[c * rows + r] = from[r * cols + c];
}

// to = the conjugate of from', as needed for vectors of a transposed matrix
static void NAME(turn_vectors)(int64_t rows, int64_t cols, const T *from, T *to) {
  NAME(turn)(rows, cols, from, to);
  REAL *parts = (REAL *)to;
  for (int64_t i = 0; COMPLEX && i < rows * cols; i++) parts[2 * i + 1] = -parts[2 * i + 1];
}

// LAPACK's workspace, in elements; extra reals and integers count as elements too.
static int64_t NAME(dense_work)(vt_linalg_kind kind, const vt_linalg_group *g) {
  int64_t m = g->rows, n = g->cols, few = m < n ? m : n, most = m > n ? m : n;
  switch ((int)kind) {
  case VT_LINALG_EIGH:
    return 2 * n * n + 6 * n + 1;
  case VT_LINALG_SVD:
    return 4 * few * few + 7 * few + (few + most) * LAPACK_BLOCK;
  default:
    return n * LAPACK_BLOCK;
  }
}

static int64_t NAME(dense_scratch)(vt_linalg_kind kind, const vt_linalg_group *g) {
  int64_t m = g->rows, n = g->cols, few = m < n ? m : n, most = m > n ? m : n;
  int64_t elements = m * n + NAME(dense_work)(kind, g), reals = 0, ints = 0;
  if (kind == VT_LINALG_CHOLESKY || kind == VT_LINALG_TRIANGULAR) return 0;
  if (kind == VT_LINALG_EIGH) {
    reals = 2 * n * n + 5 * n + 1;
    ints = 5 * n + 3;
  } else if (kind == VT_LINALG_SVD) {
    elements += n * few;
    reals = 5 * few * few + 5 * few + 2 * most * few + 2 * few * few;
    ints = 8 * few;
  }
  return elements * (int64_t)sizeof(T) + reals * COMPLEX * (int64_t)sizeof(REAL) +
         ints * (int64_t)sizeof(int);
}

#if !COMPLEX
// Does what syevd does, except that the last step, the product of two orthogonal matrices, is split
// by columns into halves for two threads. Leaves the vectors in `vectors`.
static int NAME(halved_eigh)(char triangle, int n, T *a, T *values, T *vectors, int *ints,
                             int int_room) {
  const T small = (T)sqrt(sizeof(T) == 4 ? FLT_MIN / FLT_EPSILON : DBL_MIN / DBL_EPSILON);
  int64_t size = (int64_t)n * n;
  int info = 0, failed = 0, room = n * n + 4 * n + 1, half = n / 2;
  T *off = vectors + size, *scales = off + n, *work = scales + n, largest = 0, scale = 1;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = triangle == 'U' ? 0 : i; j < (triangle == 'U' ? i + 1 : n); j++)
      largest = (T)fmax(largest, fabs(a[i * n + j]));
  if (largest > 0 && largest < small) scale = small / largest;
  if (largest > 1 / small) scale = 1 / small / largest;
  for (int64_t i = 0; i < size && scale != 1; i++) a[i] *= scale;
  LAPACK(sytrd)(&triangle, &n, a, &n, values, off, scales, work, &room, &info);
  LAPACK(stedc)("I", &n, values, off, vectors, &n, work, &room, ints, &int_room, &failed);
  if (info || failed) return info ? info : failed;
#pragma omp parallel for schedule(static, 1)
  for (int part = 0; part < 2; part++) {
    int count = part ? n - half : half, some = room / 2, bad = 0;
    LAPACK(ormtr)
    ("L", &triangle, "N", &n, &count, a, &n, scales, vectors + (int64_t)part * half * n, &n,
     work + part * some, &some, &bad);
  }
  for (int64_t i = 0; i < n && scale != 1; i++) values[i] /= scale;
  return 0;
}
#endif

static void NAME(dense_eigh)(const vt_linalg_group *g, void *scratch) {
  int64_t size = g->rows * g->rows;
  int n = (int)g->rows, info = 0, room = (int)NAME(dense_work)(VT_LINALG_EIGH, g), ints = 3 + 5 * n;
  REAL *values = g->out_more;
  T *a = scratch, *work = a + size;
  memcpy(a, g->in, (size_t)size * sizeof *a);
  bool fine = true; // else LAPACK may not terminate
  for (int64_t i = 0; i < n; i++)
    fine &= NAME(finite)(g->lower ? i + 1 : n - i, g->lower ? a + i * n : a + i * n + i);
  char triangle = g->lower ? 'U' : 'L';
#if COMPLEX
  REAL *real_work = (REAL *)(work + room);
  int reals = 2 * n * n + 5 * n + 1;
  int *int_work = (int *)(real_work + reals);
  if (fine) LAPACK(heevd)
  ("V", &triangle, &n, a, &n, values, work, &room, real_work, &reals, int_work, &ints, &info);
#else
  int *int_work = (int *)(work + room);
  bool halved = g->alone && n >= LEAST_HALVED && n <= MOST_HALVED;
  if (fine && halved) info = NAME(halved_eigh)(triangle, n, a, values, work, int_work, ints);
  if (fine && !halved)
    LAPACK(syevd)("V", &triangle, &n, a, &n, values, work, &room, int_work, &ints, &info);
  if (halved) a = work;
#endif
  if (fine && !info) {
    NAME(turn_vectors)(n, n, a, g->out);
    return;
  }
  NAME(fill_nan)(size, g->out);
  for (int i = 0; i < n; i++) values[i] = (REAL)NAN;
}

// a' = conj(v) s u': LAPACK's right vectors are our left ones in memory. Without out_last, the
// values alone.
static void NAME(dense_svd)(const vt_linalg_group *g, void *scratch) {
  int m = (int)g->rows, n = (int)g->cols, few = m < n ? m : n, info = 0;
  int room = (int)NAME(dense_work)(VT_LINALG_SVD, g);
  T *a = scratch, *right = a + g->rows * g->cols, *work = right + (int64_t)n * few;
  memcpy(a, g->in, (size_t)(g->rows * g->cols) * sizeof *a);
  bool fine = NAME(finite)(g->rows * g->cols, a), vectors = g->out_last;
  const char *job = vectors ? "S" : "N";
  REAL *values = vectors ? g->out_more : g->out;
#if COMPLEX
  REAL *real_work = (REAL *)(work + room);
  int64_t k = few, reals = 7 * k * k + 5 * k + 2 * (m > n ? m : n) * k;
  int *int_work = (int *)(real_work + reals);
  if (fine) LAPACK(gesdd)
  (job, &n, &m, a, &n, values, right, &n, g->out, &few, work, &room, real_work, int_work, &info);
#else
  int *int_work = (int *)(work + room);
  if (fine) LAPACK(gesdd)
  (job, &n, &m, a, &n, values, right, &n, g->out, &few, work, &room, int_work, &info);
#endif
  bool found = fine && !info;
  if (vectors && found) NAME(turn_vectors)(few, n, right, g->out_last);
  if (vectors && !found) NAME(fill_nan)((int64_t)m * few, g->out);
  if (vectors && !found) NAME(fill_nan)((int64_t)n * few, g->out_last);
  for (int i = 0; i < few && !found; i++) values[i] = (REAL)NAN;
}

static void NAME(dense_qr)(const vt_linalg_group *g, void *scratch) {
  int m = (int)g->rows, n = (int)g->cols, info = 0, room = (int)NAME(dense_work)(VT_LINALG_QR, g);
  T *a = scratch, *work = a + g->rows * g->cols;
  NAME(turn)(m, n, g->in, a);
  LAPACK(geqrf)(&m, &n, a, &m, g->out_more, work, &room, &info);
  NAME(turn)(n, m, a, g->out);
}

static void NAME(dense_q)(const vt_linalg_group *g, void *scratch) {
  int m = (int)g->rows, n = (int)g->cols, k = (int)g->side, info = 0;
  int room = (int)NAME(dense_work)(VT_LINALG_Q, g);
  T *a = scratch, *work = a + g->rows * g->cols;
  NAME(turn)(m, n, g->in, a);
#if COMPLEX
  LAPACK(ungqr)(&m, &n, &k, a, &m, g->in_more, work, &room, &info);
#else
  LAPACK(orgqr)(&m, &n, &k, a, &m, g->in_more, work, &room, &info);
#endif
  NAME(turn)(n, m, a, g->out);
}

static void NAME(dense_lu)(const vt_linalg_group *g, void *scratch) {
  int m = (int)g->rows, n = (int)g->cols, few = m < n ? m : n, info = 0;
  int32_t *pivots = g->out_more, *order = g->out_last;
  NAME(turn)(m, n, g->in, scratch);
  LAPACK(getrf)(&m, &n, scratch, &m, pivots, &info);
  NAME(turn)(n, m, scratch, g->out);
  for (int i = 0; i < few; i++) pivots[i]--;
  vt_linalg_order(few, m, pivots, order);
}

// The upper factor of the transpose is the transpose of the lower one.
static void NAME(dense_cholesky)(const vt_linalg_group *g, void *scratch) {
  (void)scratch;
  int n = (int)g->rows, info = 0;
  T *a = g->out;
  for (int64_t i = 0; i < n; i++) {
    const T *from = (const T *)g->in + i * n;
    int64_t before = g->lower ? i + 1 : i;
    T *kept = g->lower ? a + i * n : a + i * n + i,
      *zero = g->lower ? a + i * n + before : a + i * n;
    memcpy(kept, g->lower ? from : from + i, (size_t)(g->lower ? i + 1 : n - i) * sizeof *a);
    memset(zero, 0, (size_t)(g->lower ? n - before : before) * sizeof *a);
  }
  LAPACK(potrf)(g->lower ? "U" : "L", &n, a, &n, &info);
  bool fine = !info;
  for (int64_t i = 0; i < n && fine; i++) fine = NAME(finite)(1, a + i * (n + 1));
  if (!fine) NAME(fill_nan)((int64_t)n * n, a);
}

// The unknowns [from, from + n), as if there were no others.
static void NAME(solve_part)(const vt_linalg_group *g, int64_t from, int64_t n) {
  T one = 1;
  int64_t rows = g->left ? n : g->rows, cols = g->left ? g->cols : n;
  int64_t at = g->left ? from * g->stride : from;
  for (int64_t i = 0; i < rows; i++)
    memcpy((T *)g->out + at + i * g->stride, (const T *)g->in_more + at + i * g->stride,
           (size_t)cols * sizeof(T));
  BLAS(trsm)
  (CblasRowMajor, g->left ? CblasLeft : CblasRight, g->lower ? CblasLower : CblasUpper,
   g->conjugated ? CblasConjTrans
   : g->turned   ? CblasTrans
                 : CblasNoTrans,
   g->unit ? CblasUnit : CblasNonUnit, (int)rows, (int)cols, SCALAR(one),
   (const T *)g->in + from * (g->side + 1), (int)g->side, (T *)g->out + at, (int)g->stride);
}

// OpenBLAS divides by several pivots at once: on some CPUs a zero among them spoils the unknowns
// before it too, which are solved again without it.
static void NAME(dense_triangular)(const vt_linalg_group *g, void *scratch) {
  (void)scratch;
  int64_t n = g->side, before = 0;
  bool upwards = g->lower == (g->turned == g->left); // the last unknown comes first
  const T *a = g->in;
  while (before < n && a[(upwards ? n - 1 - before : before) * (n + 1)] != 0) before++;
  NAME(solve_part)(g, 0, n);
  if (!g->unit && before && before < n) NAME(solve_part)(g, upwards ? n - before : 0, before);
}

static vt_linalg_function *const NAME(dense)[VT_LINALG_KINDS] = {
    [VT_LINALG_EIGH] = NAME(dense_eigh),
    [VT_LINALG_SVD] = NAME(dense_svd),
    [VT_LINALG_QR] = NAME(dense_qr),
    [VT_LINALG_Q] = NAME(dense_q),
    [VT_LINALG_LU] = NAME(dense_lu),
    [VT_LINALG_CHOLESKY] = NAME(dense_cholesky),
    [VT_LINALG_TRIANGULAR] = NAME(dense_triangular),
};
