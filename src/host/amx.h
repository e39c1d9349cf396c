// SPDX-License-Identifier: Apache-2.0
// amx.h - products of bf16 matrices on Intel's matrix unit.
#ifndef VT_HOST_AMX_H
#define VT_HOST_AMX_H

#include "ir/type.h"

enum { VT_AMX_BATCH = 6 };

// A left side read through a window: row m is tap m / channels, channel m % channels; column k is
// pixel (n, y, x) of the output. It holds input[n, y * stride + tap * dilation - low, ...,
// channel], or zero outside. Strides in elements; channels are contiguous.
typedef struct vt_amx_window {
  int64_t channels, batch_stride;
  int64_t kernel[2], input[2], output[2]; // sizes
  int64_t stride[2], dilation[2], low[2], input_strides[2];
} vt_amx_window;

// out[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, k, n] (+ bias[n]). Strides in
// elements; 0 where a batch dimension broadcasts a side. For each side either `row` or `column` is
// 1; `out` is dense along n.
typedef struct vt_amx_product {
  int32_t batch_rank;
  int64_t batch_sizes[VT_AMX_BATCH], batch_strides[3][VT_AMX_BATCH]; // lhs, rhs, out
  int64_t m, n, k;
  int64_t lhs_row, lhs_column, rhs_row, rhs_column, out_row;
  vt_dtype out;  // f32 or bf16
  bool bias;     // f32
  bool windowed; // then no batch, lhs_row or lhs_column
  vt_amx_window window;
  // Set by vt_amx_prepare.
  int32_t threads;
  int64_t items;            // of the batch
  int64_t depth, parts;     // K in tiles; tasks along K, else tasks are blocks of the result
  int64_t block_m, block_n; // of a task
  int64_t lhs_bytes, rhs_bytes, sums_bytes; // packed operands, sums; of a task or of all
  int64_t scratch_bytes;
} vt_amx_product;

// False when the processor has no such unit, the product is too small to beat oneDNN (unless
// `any_size`), or its form is not supported.
bool vt_amx_prepare(vt_amx_product *product, bool any_size);

// `scratch` is aligned to 64 bytes. Results are bit-identical for any number of threads.
void vt_amx_run(const vt_amx_product *product, const void *lhs, const void *rhs, const float *bias,
                void *out, void *scratch);

#endif
