// SPDX-License-Identifier: Apache-2.0
// custom.c - the custom calls in programs for a TPU: LAPACK-like factorisations, top-k, placement
// markers.
#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define lapack_complex_float  float _Complex
#define lapack_complex_double double _Complex
#include <lapacke.h>

#include "eval/kernel.h"
#include "ir/number.h"

typedef float _Complex cfloat;
typedef double _Complex cdouble;

// The type LAPACK works in for an element type; VT_DTYPE_INVALID for others.
static vt_dtype lapack_type(vt_dtype d) {
  if (d == VT_F32 || d == VT_F64 || d == VT_C64 || d == VT_C128) return d;
  return d == VT_BF16 || d == VT_F16 ? VT_F32 : VT_DTYPE_INVALID;
}

static void fill_nan(vt_dtype type, int64_t n, void *data) {
  int64_t parts = vt_dtype_is_complex(type) ? 2 * n : n;
  for (int64_t i = 0; i < parts; i++) {
    if (type == VT_F32 || type == VT_C64)
      ((float *)data)[i] = NAN;
    else
      ((double *)data)[i] = (double)NAN;
  }
}

// Matrices of one call, row-major, in LAPACK's type.
typedef struct matrices {
  vt_dtype type;
  int64_t bytes, count, rows, cols;
  char *data; // count * rows * cols
} matrices;

static vt_status load_matrices(const vt_op *op, vt_tensor in, matrices *m) {
  vt_type t = in.type;
  *m = (matrices){.type = lapack_type(t.dtype)};
  if (!m->type) return vt_eval_refuse(op, "this element type");
  if (t.rank < 2) return vt_eval_invalid(op, "shapes");
  m->bytes = (int64_t)vt_dtype_bytes(m->type);
  m->rows = t.dims[t.rank - 2];
  m->cols = t.dims[t.rank - 1];
  if (m->rows > 1 << 20 || m->cols > 1 << 20) return vt_eval_refuse(op, "a matrix of this size");
  m->count = m->rows > 0 && m->cols > 0 ? vt_type_elements(t) / (m->rows * m->cols) : 0;
  VT_TRY(vt_eval_scratch(vt_type_elements(t) * m->bytes, &m->data));
  return vt_eval_convert_array(t.dtype, m->type, vt_type_elements(t), in.data, m->data);
}

static vt_status store_array(vt_dtype type, const void *data, vt_tensor *out) {
  return vt_eval_convert_array(type, out->type.dtype, vt_type_elements(out->type), data, out->data);
}

#define BY_TYPE(type, call_f32, call_f64, call_c64, call_c128)                                     \
  ((type) == VT_F32   ? (call_f32)                                                                 \
   : (type) == VT_F64 ? (call_f64)                                                                 \
   : (type) == VT_C64 ? (call_c64)                                                                 \
                      : (call_c128))

// a -> packed R and reflectors, taus.
static vt_status call_qr(const vt_eval_call *call) {
  matrices m = {0};
  char *tau = NULL;
  vt_status st = VT_OK;
  VT_TRY_OUT(load_matrices(call->op, call->in[0], &m));
  int64_t k = m.rows < m.cols ? m.rows : m.cols;
  if (vt_type_elements(call->out[0].type) != vt_type_elements(call->in[0].type) ||
      vt_type_elements(call->out[1].type) != m.count * k) {
    st = vt_eval_invalid(call->op, "shapes");
    goto out;
  }
  VT_TRY_OUT(vt_eval_scratch(m.count * k * m.bytes, &tau));
  int rows = (int)m.rows, cols = (int)m.cols;
  for (int64_t i = 0; i < m.count; i++) {
    void *a = m.data + i * m.rows * m.cols * m.bytes, *t = tau + i * k * m.bytes;
    int info = BY_TYPE(m.type, LAPACKE_sgeqrf(LAPACK_ROW_MAJOR, rows, cols, a, cols, t),
                       LAPACKE_dgeqrf(LAPACK_ROW_MAJOR, rows, cols, a, cols, t),
                       LAPACKE_cgeqrf(LAPACK_ROW_MAJOR, rows, cols, a, cols, t),
                       LAPACKE_zgeqrf(LAPACK_ROW_MAJOR, rows, cols, a, cols, t));
    if (info) {
      fill_nan(m.type, m.rows * m.cols, a);
      fill_nan(m.type, k, t);
    }
  }
  VT_TRY_OUT(store_array(m.type, m.data, &call->out[0]));
  VT_TRY_OUT(store_array(m.type, tau, &call->out[1]));
out:
  free(m.data);
  free(tau);
  return st;
}

// Reflectors and taus -> the orthonormal columns.
static vt_status call_householder(const vt_eval_call *call) {
  matrices m = {0};
  char *tau = NULL;
  vt_status st = VT_OK;
  vt_tensor taus = call->in[1];
  VT_TRY_OUT(load_matrices(call->op, call->in[0], &m));
  int64_t k = taus.type.rank ? taus.type.dims[taus.type.rank - 1] : 0;
  if (vt_type_elements(taus.type) != m.count * k || k > m.cols || m.cols > m.rows ||
      vt_type_elements(call->out[0].type) != vt_type_elements(call->in[0].type)) {
    st = vt_eval_invalid(call->op, "shapes");
    goto out;
  }
  VT_TRY_OUT(vt_eval_scratch(m.count * k * m.bytes, &tau));
  VT_TRY_OUT(vt_eval_convert_array(taus.type.dtype, m.type, m.count * k, taus.data, tau));
  int rows = (int)m.rows, cols = (int)m.cols, ks = (int)k;
  for (int64_t i = 0; i < m.count; i++) {
    void *a = m.data + i * m.rows * m.cols * m.bytes, *t = tau + i * k * m.bytes;
    int info = BY_TYPE(m.type, LAPACKE_sorgqr(LAPACK_ROW_MAJOR, rows, cols, ks, a, cols, t),
                       LAPACKE_dorgqr(LAPACK_ROW_MAJOR, rows, cols, ks, a, cols, t),
                       LAPACKE_cungqr(LAPACK_ROW_MAJOR, rows, cols, ks, a, cols, t),
                       LAPACKE_zungqr(LAPACK_ROW_MAJOR, rows, cols, ks, a, cols, t));
    if (info) fill_nan(m.type, m.rows * m.cols, a);
  }
  VT_TRY_OUT(store_array(m.type, m.data, &call->out[0]));
out:
  free(m.data);
  free(tau);
  return st;
}

// a -> packed LU, pivots (from 0), their permutation.
static vt_status call_lu(const vt_eval_call *call) {
  matrices m = {0};
  int *pivots = NULL;
  vt_status st = VT_OK;
  VT_TRY_OUT(load_matrices(call->op, call->in[0], &m));
  int64_t k = m.rows < m.cols ? m.rows : m.cols;
  if (!m.cols) // rows of matrices without columns are permuted too
    m.count = m.rows ? vt_type_elements(call->out[2].type) / m.rows : 0;
  if (vt_type_elements(call->out[0].type) != vt_type_elements(call->in[0].type) ||
      vt_type_elements(call->out[1].type) != m.count * k ||
      vt_type_elements(call->out[2].type) != m.count * m.rows) {
    st = vt_eval_invalid(call->op, "shapes");
    goto out;
  }
  VT_TRY_OUT(vt_eval_scratch((k + m.rows) * (int64_t)sizeof *pivots, &pivots));
  int *permutation = pivots + k;
  int rows = (int)m.rows, cols = (int)m.cols;
  for (int64_t i = 0; i < m.count; i++) {
    void *a = m.data + i * m.rows * m.cols * m.bytes;
    for (int64_t j = 0; j < k; j++) pivots[j] = (int)j + 1;
    int info = k == 0
                   ? 0
                   : BY_TYPE(m.type, LAPACKE_sgetrf(LAPACK_ROW_MAJOR, rows, cols, a, cols, pivots),
                             LAPACKE_dgetrf(LAPACK_ROW_MAJOR, rows, cols, a, cols, pivots),
                             LAPACKE_cgetrf(LAPACK_ROW_MAJOR, rows, cols, a, cols, pivots),
                             LAPACKE_zgetrf(LAPACK_ROW_MAJOR, rows, cols, a, cols, pivots));
    if (info < 0) fill_nan(m.type, m.rows * m.cols, a);
    for (int64_t j = 0; j < m.rows; j++) permutation[j] = (int)j;
    for (int64_t j = 0; j < k; j++) {
      int p = pivots[j] - 1, t = permutation[j];
      permutation[j] = permutation[p];
      permutation[p] = t;
      vt_number_store(call->out[1].type.dtype, call->out[1].data, i * k + j, p);
    }
    for (int64_t j = 0; j < m.rows; j++)
      vt_number_store(call->out[2].type.dtype, call->out[2].data, i * m.rows + j, permutation[j]);
  }
  VT_TRY_OUT(store_array(m.type, m.data, &call->out[0]));
out:
  free(m.data);
  free(pivots);
  return st;
}

// One symmetric matrix, in place: vectors in columns, values ascending.
static void eigh(vt_dtype type, vt_dtype real, char uplo, int64_t size, void *a, void *w) {
  int n = (int)size;
  int info = BY_TYPE(type, LAPACKE_ssyevd(LAPACK_ROW_MAJOR, 'V', uplo, n, a, n, w),
                     LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', uplo, n, a, n, w),
                     LAPACKE_cheevd(LAPACK_ROW_MAJOR, 'V', uplo, n, a, n, w),
                     LAPACKE_zheevd(LAPACK_ROW_MAJOR, 'V', uplo, n, a, n, w));
  if (info) {
    fill_nan(type, size * size, a);
    fill_nan(real, size, w);
  }
}

static bool is_zero(vt_dtype type, const char *matrix, int64_t at) {
  switch ((int)type) {
  case VT_F32:
    return ((const float *)matrix)[at] == 0;
  case VT_F64:
    return ((const double *)matrix)[at] == 0;
  case VT_C64:
    return ((const cfloat *)matrix)[at] == 0;
  default:
    return ((const cdouble *)matrix)[at] == 0;
  }
}

static int64_t block_of(int64_t *parent, int64_t i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

// Rows that no chain of non-zero elements connects are solved separately and keep their positions,
// like in the chip's Jacobi iteration, which never rotates by a zero. JAX's divide and conquer pads
// matrices and relies on it. `block` has room for the matrix, `ints` for twice its rows.
static void eigh_in_place(const matrices *m, vt_dtype real, char uplo, char *a, char *w,
                          char *block, int64_t *ints) {
  int64_t n = m->rows, bytes = m->bytes, real_bytes = (int64_t)vt_dtype_bytes(real);
  int64_t *parent = ints, *member = ints + n;
  for (int64_t i = 0; i < n; i++) parent[i] = i;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++)
      if (!is_zero(m->type, a, uplo == 'L' ? i * n + j : j * n + i))
        parent[block_of(parent, i)] = block_of(parent, j);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      if (block_of(parent, i) != block_of(parent, j))
        memset(a + (i * n + j) * bytes, 0, (size_t)bytes);
  for (int64_t root = 0; root < n; root++) {
    int64_t size = 0;
    for (int64_t i = 0; i < n; i++)
      if (block_of(parent, i) == root) member[size++] = i;
    for (int64_t i = 0; i < size * size; i++)
      memcpy(block + i * bytes, a + (member[i / size] * n + member[i % size]) * bytes,
             (size_t)bytes);
    char *values = block + size * size * bytes;
    if (size) eigh(m->type, real, uplo, size, block, values);
    for (int64_t i = 0; i < size * size; i++)
      memcpy(a + (member[i / size] * n + member[i % size]) * bytes, block + i * bytes,
             (size_t)bytes);
    for (int64_t i = 0; i < size; i++)
      memcpy(w + member[i] * real_bytes, values + i * real_bytes, (size_t)real_bytes);
  }
}

// Symmetric eigenproblem. backend_config "lower,sort,sweeps,tolerance"; results: vectors in
// columns, values (ascending if sort is 1).
static vt_status call_eigh(const vt_eval_call *call) {
  matrices m = {0};
  char *values = NULL, *block = NULL;
  int64_t *ints = NULL;
  vt_status st = VT_OK;
  vt_string config = vt_attr_string(call->op, VT_ATTR_BACKEND_CONFIG);
  VT_TRY_OUT(load_matrices(call->op, call->in[0], &m));
  char uplo = !config.size || config.data[0] != '0' ? 'L' : 'U';
  bool sort = config.size < 3 || config.data[2] != '0';
  vt_dtype real = m.type == VT_F32 || m.type == VT_C64 ? VT_F32 : VT_F64;
  if (m.rows != m.cols || vt_type_elements(call->out[1].type) != m.count * m.rows ||
      vt_type_elements(call->out[0].type) != vt_type_elements(call->in[0].type)) {
    st = vt_eval_invalid(call->op, "shapes");
    goto out;
  }
  int64_t real_bytes = (int64_t)vt_dtype_bytes(real);
  VT_TRY_OUT(vt_eval_scratch(m.count * m.rows * real_bytes, &values));
  if (!sort) {
    VT_TRY_OUT(vt_eval_scratch((m.rows + 1) * m.rows * m.bytes, &block));
    VT_TRY_OUT(vt_eval_scratch(2 * m.rows * (int64_t)sizeof *ints, &ints));
  }
  for (int64_t i = 0; i < m.count; i++) {
    char *a = m.data + i * m.rows * m.cols * m.bytes, *w = values + i * m.rows * real_bytes;
    if (sort)
      eigh(m.type, real, uplo, m.rows, a, w);
    else
      eigh_in_place(&m, real, uplo, a, w, block, ints);
  }
  VT_TRY_OUT(store_array(m.type, m.data, &call->out[0]));
  VT_TRY_OUT(store_array(real, values, &call->out[1]));
out:
  free(m.data);
  free(values);
  free(block);
  free(ints);
  return st;
}

static bool all_finite(vt_dtype type, int64_t n, const void *data) {
  int64_t parts = vt_dtype_is_complex(type) ? 2 * n : n;
  bool narrow = type == VT_F32 || type == VT_C64;
  for (int64_t i = 0; i < parts; i++)
    if (!isfinite(narrow ? (double)((const float *)data)[i] : ((const double *)data)[i]))
      return false;
  return true;
}

// Overwrites one matrix: left vectors in columns, values descending, the adjoint of the right
// vectors. NaN for non-finite matrices, on which LAPACK may not terminate.
static void svd(const matrices *m, vt_dtype real, void *a, void *u, void *s, void *vh) {
  int rows = (int)m->rows, cols = (int)m->cols, k = rows < cols ? rows : cols, info = 1;
  if (all_finite(m->type, m->rows * m->cols, a))
    info = BY_TYPE(m->type,
                   LAPACKE_sgesdd(LAPACK_ROW_MAJOR, 'S', rows, cols, a, cols, s, u, k, vh, cols),
                   LAPACKE_dgesdd(LAPACK_ROW_MAJOR, 'S', rows, cols, a, cols, s, u, k, vh, cols),
                   LAPACKE_cgesdd(LAPACK_ROW_MAJOR, 'S', rows, cols, a, cols, s, u, k, vh, cols),
                   LAPACKE_zgesdd(LAPACK_ROW_MAJOR, 'S', rows, cols, a, cols, s, u, k, vh, cols));
  if (!info) return;
  fill_nan(m->type, m->rows * k, u);
  fill_nan(real, k, s);
  fill_nan(m->type, m->cols * k, vh);
}

// What src/passes/opt_decompose.c turns JAX's svd into: a -> left vectors in columns, values, right
// vectors in columns; or the values alone.
static vt_status call_svd(const vt_eval_call *call) {
  matrices m = {0};
  char *u = NULL, *s = NULL, *vh = NULL;
  vt_status st = VT_OK;
  bool vectors = call->op->result_count == 3;
  VT_TRY_OUT(load_matrices(call->op, call->in[0], &m));
  int64_t k = m.rows < m.cols ? m.rows : m.cols, right = m.count * m.cols * k;
  vt_dtype real = m.type == VT_F32 || m.type == VT_C64 ? VT_F32 : VT_F64;
  int64_t real_bytes = (int64_t)vt_dtype_bytes(real);
  if (vt_type_elements(call->out[vectors].type) != m.count * k ||
      (vectors && (vt_type_elements(call->out[0].type) != m.count * m.rows * k ||
                   vt_type_elements(call->out[2].type) != right))) {
    st = vt_eval_invalid(call->op, "shapes");
    goto out;
  }
  VT_TRY_OUT(vt_eval_scratch(m.count * m.rows * k * m.bytes, &u));
  VT_TRY_OUT(vt_eval_scratch(m.count * k * real_bytes, &s));
  VT_TRY_OUT(vt_eval_scratch(2 * right * m.bytes, &vh));
  char *v = vh + right * m.bytes;
  for (int64_t i = 0; i < m.count; i++) {
    char *from = vh + i * k * m.cols * m.bytes, *to = v + i * k * m.cols * m.bytes;
    svd(&m, real, m.data + i * m.rows * m.cols * m.bytes, u + i * m.rows * k * m.bytes,
        s + i * k * real_bytes, from);
    for (int64_t j = 0; j < k * m.cols; j++)
      memcpy(to + (j % m.cols * k + j / m.cols) * m.bytes, from + j * m.bytes, (size_t)m.bytes);
  }
  for (int64_t i = 0; i < right && m.type == VT_C64; i++)
    ((cfloat *)(void *)v)[i] = conjf(((cfloat *)(void *)v)[i]);
  for (int64_t i = 0; i < right && m.type == VT_C128; i++)
    ((cdouble *)(void *)v)[i] = conj(((cdouble *)(void *)v)[i]);
  VT_TRY_OUT(store_array(real, s, &call->out[vectors]));
  if (vectors) VT_TRY_OUT(store_array(m.type, u, &call->out[0]));
  if (vectors) VT_TRY_OUT(store_array(m.type, v, &call->out[2]));
out:
  free(m.data);
  free(u);
  free(s);
  free(vh);
  return st;
}

static vt_status call_identity(const vt_eval_call *call) {
  const vt_op *op = call->op;
  for (uint32_t i = 0; i < op->result_count; i++) {
    if (i >= op->operand_count || !vt_type_equal(call->in[i].type, call->out[i].type))
      return vt_eval_refuse(op, "a change of shape by this custom call here");
    size_t bytes = (size_t)vt_type_bytes(call->out[i].type);
    if (bytes && call->in[i].data != call->out[i].data)
      memcpy(call->out[i].data, call->in[i].data, bytes);
  }
  return VT_OK;
}

// AllocateBuffer: contents are unspecified.
static vt_status call_allocate(const vt_eval_call *call) {
  for (uint32_t i = 0; i < call->op->result_count; i++)
    if (call->out[i].data) memset(call->out[i].data, 0, (size_t)vt_type_bytes(call->out[i].type));
  return VT_OK;
}

static const struct {
  const char *name;
  vt_eval_kernel run;
  uint32_t operands, results; // exact counts; 0 results = any
} targets[] = {
    {"Qr", call_qr, 1, 2},
    {"ProductOfElementaryHouseholderReflectors", call_householder, 2, 1},
    {"LuDecomposition", call_lu, 1, 3},
    // What frameworks emit for the factorisation in computations offloaded to the host CPU.
    {"lapack_sgeqrf_ffi", call_qr, 1, 2},
    {"lapack_dgeqrf_ffi", call_qr, 1, 2},
    {"lapack_cgeqrf_ffi", call_qr, 1, 2},
    {"lapack_zgeqrf_ffi", call_qr, 1, 2},
    {"lapack_sorgqr_ffi", call_householder, 2, 1},
    {"lapack_dorgqr_ffi", call_householder, 2, 1},
    {"lapack_cungqr_ffi", call_householder, 2, 1},
    {"lapack_zungqr_ffi", call_householder, 2, 1},
    {"Eigh", call_eigh, 1, 2},
    {"Svd", call_svd, 1, 3},
    {"Svd", call_svd, 1, 1},
    {"ApproxTopK", vt_eval_approx_top_k, 0, 0},
    {"PartialReduce", vt_eval_approx_top_k, 0, 0},
    {"AllocateBuffer", call_allocate, 0, 0},
    {"Sharding", call_identity, 0, 0},
    {"SPMDFullToShardShape", call_identity, 0, 0},
    {"SPMDShardToFullShape", call_identity, 0, 0},
    {"xla.sdy.FuncResultSharding", call_identity, 0, 0},
    {"xla.sdy.GlobalToLocalShape", call_identity, 0, 0},
    {"xla.sdy.LocalToGlobalShape", call_identity, 0, 0},
    {"dce_sink", call_identity, 0, 0}, // an effect without a result: keeps its operands alive
};

static vt_status call_kernel(const vt_eval_call *call) {
  const vt_program_call *kernel = vt_op_attr(call->op, VT_ATTR_KERNEL)->kernel;
  return kernel->run(kernel, call->op, call->env, 1, &call->in, &call->out);
}

static vt_eval_kernel target_of(const vt_op *op) {
  if (vt_op_attr(op, VT_ATTR_KERNEL)) return call_kernel;
  if (vt_op_is_marker(op)) return call_identity;
  vt_string name = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME);
  for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
    if (strlen(targets[i].name) != name.size || memcmp(targets[i].name, name.data, name.size))
      continue;
    if (targets[i].results &&
        (op->operand_count != targets[i].operands || op->result_count != targets[i].results))
      continue;
    return targets[i].run;
  }
  return NULL;
}

bool vt_eval_custom_call_supports(const vt_op *op) {
  return target_of(op) != NULL;
}

vt_status vt_eval_custom_call(const vt_eval_call *call) {
  vt_eval_kernel run = target_of(call->op);
  if (run) return run(call);
  vt_string name = vt_attr_string(call->op, VT_ATTR_CALL_TARGET_NAME);
  char what[160];
  snprintf(what, sizeof what, "custom call '%.*s'", (int)(name.size < 120 ? name.size : 120),
           name.data);
  return vt_eval_refuse(call->op, what);
}
