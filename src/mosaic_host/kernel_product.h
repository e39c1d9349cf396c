// SPDX-License-Identifier: Apache-2.0
// kernel_product.h - matrix products of kernels; internal to this folder.
#ifndef VT_MOSAIC_HOST_KERNEL_PRODUCT_H
#define VT_MOSAIC_HOST_KERNEL_PRODUCT_H

#include "mosaic/mosaic_code.h"

// An operand of a product: dense where it is, or brought into memory first.
typedef struct vt_kside {
  vt_dtype dtype; // f32 or bf16
  bool moved;
  bool rounds;                  // to bf16, kept as f32
  int64_t at, bytes;            // when moved
  int64_t batch, rows, columns; // strides in elements
} vt_kside;

typedef struct vt_kproduct {
  uint32_t op; // its number
  bool adds;   // to what its place holds
  bool there;  // and nothing has to be brought there first
  int64_t batch, m, n, k;
  int64_t row; // elements from a row of the result to the next
  vt_kside sides[2];
  bool own;        // by kernel_dot.c
  bool paneled;    // by src/host/panels.c, else by oneDNN
  void *primitive; // kernel_product.c
} vt_kproduct;

// kernel_product.c
bool vt_kproduct_make(vt_kproduct *p);
void vt_kproduct_free(vt_kproduct *p);
vt_status vt_kproducts_open(const vt_kproduct *products, uint32_t count, void **out_state);
void vt_kproducts_close(void *state);
int32_t vt_kproduct_run(vt_mmachine *m, uint32_t number, const void *a, const void *b, void *out);

// kernel_dot.c: products of bf16 matrices for processors with AVX512-BF16. The sum of each element
// goes on from what its place holds, one pair of products after the other.
bool vt_kdot_here(void);
int64_t vt_kdot_pad_bytes(const vt_kproduct *p);
void vt_kdot_run(const vt_kproduct *p, const void *a, const void *b, void *out, void *pad);

#endif
