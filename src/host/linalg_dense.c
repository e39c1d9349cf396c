// SPDX-License-Identifier: Apache-2.0
// linalg_dense.c - factorisations of one matrix by LAPACK and BLAS (OpenBLAS), called directly: the
// workspace is in the caller's scratch.
//
// OpenBLAS is set to one thread, whatever its environment says: for most sizes its own threads cost
// more than they gain, they spin after each call, and their number affects the bits. Large matrices
// use all threads; then nothing else may be in OpenBLAS, as the thread count is per process.
#include <complex.h>
#include <float.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <string.h>

#define lapack_complex_float  float _Complex
#define lapack_complex_double double _Complex
#include <cblas.h>
#include <lapack.h>

#include "host/binding.h"
#include "host/linalg.h"

enum { LAPACK_BLOCK = 64, TURN_BLOCK = 16, MOST_THREADS = 64 };
enum { LEAST_HALVED = 256, MOST_HALVED = 767 }; // sizes of eigh; larger ones use OpenBLAS's threads
static const double SHARED_WORK = 768.0 * 768 * 768;

#define REAL         float
#define T            float
#define COMPLEX      0
#define LAPACK(name) LAPACK_s##name
#define BLAS(name)   cblas_s##name
#define SCALAR(x)    (x)
#define NAME(name)   name##_f32
#include "host/linalg_dense.h"
#undef REAL
#undef T
#undef LAPACK
#undef BLAS
#undef NAME

#define REAL         double
#define T            double
#define LAPACK(name) LAPACK_d##name
#define BLAS(name)   cblas_d##name
#define NAME(name)   name##_f64
#include "host/linalg_dense.h"
#undef REAL
#undef T
#undef COMPLEX
#undef LAPACK
#undef BLAS
#undef SCALAR
#undef NAME

#define REAL         float
#define T            float _Complex
#define COMPLEX      1
#define LAPACK(name) LAPACK_c##name
#define BLAS(name)   cblas_c##name
#define SCALAR(x)    (&(x))
#define NAME(name)   name##_c64
#include "host/linalg_dense.h"
#undef REAL
#undef T
#undef LAPACK
#undef BLAS
#undef NAME

#define REAL         double
#define T            double _Complex
#define LAPACK(name) LAPACK_z##name
#define BLAS(name)   cblas_z##name
#define NAME(name)   name##_c128
#include "host/linalg_dense.h"

static int of_dtype(vt_dtype dtype) {
  return dtype == VT_F32 ? 0 : dtype == VT_F64 ? 1 : dtype == VT_C64 ? 2 : 3;
}

int64_t vt_dense_scratch(vt_dtype dtype, vt_linalg_kind kind, const vt_linalg_group *group) {
  static int64_t (*const sizes[])(vt_linalg_kind, const vt_linalg_group *) = {
      dense_scratch_f32, dense_scratch_f64, dense_scratch_c64, dense_scratch_c128};
  return sizes[of_dtype(dtype)](kind, group) + 64;
}

void vt_linalg_order(int64_t pivots, int64_t rows, const int32_t *pivot, int32_t *order) {
  for (int64_t i = 0; i < rows; i++) order[i] = (int32_t)i;
  for (int64_t i = 0; i < pivots; i++) {
    int32_t t = order[i];
    order[i] = order[pivot[i]];
    order[pivot[i]] = t;
  }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static void use_one_thread(void) {
  openblas_set_num_threads(1);
}

void vt_dense_run(vt_dtype dtype, vt_linalg_kind kind, const vt_linalg_group *group,
                  void *scratch) {
  static vt_linalg_function *const *const functions[] = {dense_f32, dense_f64, dense_c64,
                                                         dense_c128};
  int threads = omp_get_max_threads() < MOST_THREADS ? omp_get_max_threads() : MOST_THREADS;
  int64_t few = group->rows < group->cols ? group->rows : group->cols;
  double work = (double)group->rows * (double)group->cols *
                (double)(kind == VT_LINALG_TRIANGULAR ? group->side : few);
  bool shared = group->alone && threads > 1 && work >= SHARED_WORK;
  pthread_once(&once, use_one_thread);
  if (shared) {
    pthread_rwlock_wrlock(&lock);
    vt_binding_lift(); // OpenBLAS may start its threads
    openblas_set_num_threads(threads);
  } else {
    pthread_rwlock_rdlock(&lock);
  }
  functions[of_dtype(dtype)][kind](group, scratch);
  if (shared) openblas_set_num_threads(1);
  pthread_rwlock_unlock(&lock);
}
