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

// A product of two matrices step by step, for code that has its own threads: out[m, n] (+)=
// lhs[m, k] * rhs[k, n]. A side lies in f32, which is rounded to bf16, or bf16; one of its strides
// is 1.
typedef struct vt_amx_side {
  vt_dtype dtype;
  int64_t across, along; // over M or N, and over K
} vt_amx_side;

// Bytes of `free` rows (columns) of a side, laid out: 64 to a row and pair of rows of K.
int64_t vt_amx_side_bytes(int64_t free, int64_t k);
// Lays out `free` rows of the left, or columns of the right side. `free` may be a part from a
// multiple of 16 on. `to` is aligned to 64 bytes.
void vt_amx_lay(const vt_amx_side *side, const void *from, int64_t free, int64_t k, bool right,
                void *to);
// From sides laid out. `sums`: VT_AMX_SUMS(n) bytes, aligned to 64. Each element is summed along K
// in order, from what `out` holds when it is added to.
#define VT_AMX_SUMS(n) (((n) + 15) / 16 * 2048)
void vt_amx_multiply(const void *lhs, const void *rhs, int64_t m, int64_t n, int64_t k, bool adds,
                     float *out, int64_t out_row, void *sums);

#endif
