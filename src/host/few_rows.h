// SPDX-License-Identifier: Apache-2.0
// few_rows.h - products of a few rows of bf16 with weights that are kept, on Intel's matrix unit:
// what a model does that makes the next token of a few texts at a time.
#ifndef VT_HOST_FEW_ROWS_H
#define VT_HOST_FEW_ROWS_H

#include "ir/type.h"

// out[m, n] = sum over k of lhs[m, k] * rhs[k, n] (+ bias[n]). Strides in elements; for each side
// one of its strides is 1; `out` is dense along n.
typedef struct vt_few_rows {
  int64_t m, n, k;
  int64_t lhs_row, lhs_column, rhs_row, rhs_column, out_row;
  vt_dtype out; // f32 or bf16
  bool bias;    // f32
  // Set by vt_few_rows_prepare.
  int64_t rhs_bytes; // of the right side, laid out
  int64_t lhs_bytes; // of scratch
} vt_few_rows;

// False when the processor has no such unit, or the rows are more than a few.
bool vt_few_rows_prepare(vt_few_rows *product);
// Lays out the right side.
void vt_few_rows_lay(const vt_few_rows *product, const void *rhs, void *laid);
// `laid` and `scratch` are aligned to 64 bytes. Results are bit-identical for any number of
// threads.
void vt_few_rows_run(const vt_few_rows *product, const void *lhs, const void *laid,
                     const float *bias, void *out, void *scratch);

#endif
