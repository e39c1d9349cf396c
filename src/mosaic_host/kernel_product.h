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
  // The block of this window (-1: none) as a whole, which says its strides when it runs: those of
  // these dimensions; -1: of size 1.
  int32_t window, window_dims[2];
} vt_kside;

typedef struct vt_kproduct {
  uint32_t op;                  // its number
  const vt_mvalue *operands[2]; // of the op, or what they are widened from
  bool adds;                    // to what its place holds
  bool there;                   // and nothing has to be brought there first
  int64_t batch, m, n, k;
  int64_t row; // elements from a row of the result to the next
  vt_kside sides[2];
  bool tiled;      // by kernel_tiles.c
  bool laid;       // and in a strip its left side is made in the order that vt_amx_lay gives it
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
// The same in parts, of a tiled product: its right side, then rows from `row` on.
int32_t vt_kproduct_lay(vt_mmachine *m, uint32_t number, const void *b);
int32_t vt_kproduct_rows(vt_mmachine *m, uint32_t number, const void *a, int64_t row, int64_t rows,
                         void *out);

// kernel_tiles.c: products of matrices of bf16, or of f32 rounded to it, on AMX.
int64_t vt_ktiles_pad_bytes(const vt_kproduct *p);
// The product with the strides that the blocks of its windows have.
vt_kproduct vt_ktiles_at(const vt_mmachine *m, const vt_kproduct *p);
void vt_ktiles_run(const vt_kproduct *p, const void *a, const void *b, void *out, void *pad);

void vt_ktiles_lay(const vt_kproduct *p, const void *b, void *pad);
void vt_ktiles_rows(const vt_kproduct *p, const void *a, int64_t row, int64_t rows, void *out,
                    void *pad);

// kernel_dot.c: products of bf16 matrices for processors with AVX512-BF16. The sum of each element
// goes on from what its place holds, one pair of products after the other.
bool vt_kdot_here(void);
int64_t vt_kdot_pad_bytes(const vt_kproduct *p);
void vt_kdot_run(const vt_kproduct *p, const void *a, const void *b, void *out, void *pad);

#endif
