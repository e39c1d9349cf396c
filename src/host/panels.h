// SPDX-License-Identifier: Apache-2.0
// panels.h - products of f32 matrices on CPUs with AVX2 and FMA, without AVX-512. Why not oneDNN:
// docs/decisions/015-own-products-on-avx2.md.
#ifndef VT_HOST_PANELS_H
#define VT_HOST_PANELS_H

#include "ir/type.h"

// out[m, n] = sum over k of lhs[m, k] * rhs[k, n] (+ bias[n]). Strides in elements; `out` is dense
// along n.
typedef struct vt_panels {
  int64_t m, n, k;
  int64_t lhs_row, lhs_column, rhs_row, rhs_column, out_row;
  bool bias;
  bool adds;        // to what `out` holds
  bool kept;        // the right side is laid out once for many runs
  bool bf16;        // the right side holds numbers of bf16
  vt_dtype from[2]; // what the left and the right side lie in, F32 (as 0 is) or BF16
  // Set by vt_panels_prepare.
  vt_dtype panel;    // type of the right side's panels
  int64_t rhs_bytes; // of its panels
  int32_t threads;   // that each lay out rows of their own; 0: all are laid out first
  int64_t lhs_bytes; // of scratch
} vt_panels;

// False when the processor is another, or the product too small to beat oneDNN (unless `any_size`).
bool vt_panels_prepare(vt_panels *product, bool any_size);
// Lays out the right side.
void vt_panels_lay(const vt_panels *product, const void *rhs, void *panels);
// `scratch` is for the left side, aligned to 64 bytes as `panels` is. Results are bit-identical for
// any number of threads.
void vt_panels_run(const vt_panels *product, const void *lhs, const void *panels, const float *bias,
                   float *out, void *scratch);

#endif
