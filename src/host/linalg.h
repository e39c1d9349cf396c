// SPDX-License-Identifier: Apache-2.0
// linalg.h - factorisations and triangular systems: of many small matrices, one per vector lane
// (linalg_lanes.c), and of one large matrix by LAPACK (linalg_dense.c). Internal to
// kernel_linalg.c.
#ifndef VT_HOST_LINALG_H
#define VT_HOST_LINALG_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/type.h"

typedef enum vt_linalg_kind {
  VT_LINALG_NONE,
  VT_LINALG_EIGH,       // matrix -> vectors in columns, values
  VT_LINALG_QR,         // matrix -> R with reflectors, taus
  VT_LINALG_Q,          // reflectors, taus -> the columns of Q
  VT_LINALG_LU,         // matrix -> packed LU, pivots, the permutation they make
  VT_LINALG_CHOLESKY,   // matrix -> factor; NaN where it is not positive definite
  VT_LINALG_SVD,        // matrix -> left vectors in columns, values descending, right vectors
  VT_LINALG_TRIANGULAR, // a, b -> x with op(a) x = b, or x op(a) = b
  VT_LINALG_KINDS
} vt_linalg_kind;

enum { VT_LINALG_MOST = 64 }; // rows and columns of a matrix in lanes

// Up to one matrix per lane, row-major and contiguous; one for LAPACK.
typedef struct vt_linalg_group {
  int32_t count;
  int64_t rows, cols; // of a matrix; TRIANGULAR: of b
  int64_t stride;     // TRIANGULAR: from a row of b to the next
  int64_t side;       // QR: the smaller of them; Q: the number of taus; TRIANGULAR: the rows of a
  bool lower, sort;   // the triangle that is read; EIGH: values ascending
  bool left, unit, turned, conjugated; // TRIANGULAR: a before x, 1 on its diagonal, op
  bool alone;                          // no other matrix is in progress: LAPACK may use all cores
  const void *in, *in_more;
  void *out, *out_more, *out_last;
} vt_linalg_group;

typedef void vt_linalg_function(const vt_linalg_group *group, void *scratch);

typedef struct vt_linalg_code {
  int32_t lanes;
  // EIGH is Jacobi's method: rotations that zero one element at a time, skipping elements that
  // already are.
  vt_linalg_function *run[VT_LINALG_KINDS];
} vt_linalg_code;

const vt_linalg_code *vt_linalg_code_of(bool wide); // for this processor

// One matrix by LAPACK, in f32, f64, c64 or c128. EIGH sorts. A large matrix uses all cores.
void vt_dense_run(vt_dtype dtype, vt_linalg_kind kind, const vt_linalg_group *group, void *scratch);
int64_t vt_dense_scratch(vt_dtype dtype, vt_linalg_kind kind, const vt_linalg_group *group);

// The permutation that row exchanges i <-> pivot[i], one after the other, make.
void vt_linalg_order(int64_t pivots, int64_t rows, const int32_t *pivot, int32_t *order);

#endif
