// SPDX-License-Identifier: Apache-2.0
// linalg.h - factorisations of small matrices, one in each lane of vectors. Internal to
// kernel_linalg.c.
#ifndef VT_HOST_LINALG_H
#define VT_HOST_LINALG_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_LINALG_MOST = 64 }; // columns of a matrix

// Up to as many matrices as there are lanes, row-major and next to each other.
typedef struct vt_linalg_group {
  int32_t count;
  int64_t rows, cols; // of a matrix
  int64_t reflectors; // QR: the smaller of them; Q: the number of taus
  bool lower, sort;   // EIGH: the triangle that is read; values ascending
  const void *in, *in_taus;
  void *out, *out_more; // EIGH: vectors, values; QR: R with reflectors, taus; Q: the columns
} vt_linalg_group;

typedef struct vt_linalg_code {
  int32_t lanes;
  // Jacobi's method: rotations that make one element zero at a time, never by an element that is.
  void (*eigh)(const vt_linalg_group *group, void *scratch);
  void (*qr)(const vt_linalg_group *group, void *scratch);
  void (*q)(const vt_linalg_group *group, void *scratch); // of reflectors
} vt_linalg_code;

const vt_linalg_code *vt_linalg_code_of(bool wide); // for this processor
// Of a group, 64-byte aligned.
int64_t vt_linalg_scratch(int64_t rows, int64_t cols);

#endif
