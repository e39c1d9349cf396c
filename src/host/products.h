// SPDX-License-Identifier: Apache-2.0
// products.h - inner loops of products in f32 (products_lanes.c), for the vectors of each x86
// level.
#ifndef VT_HOST_PRODUCTS_H
#define VT_HOST_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

// Sums are added up in this many lanes whatever the vectors' size, for equal bits everywhere.
enum { VT_PRODUCT_LANES = 16 };
// Taps whose sums a walk keeps in registers.
enum { VT_WALK_TAPS = 9 };

// Rows of the left side that a panel of the right one is multiplied with at once.
enum { VT_PANEL_ROWS = 6 };
// Terms that are added up one after the other; then such sums are.
enum { VT_PANEL_TERMS = 128 };
// What of those in the result's place: nothing, more of their own parts, or they are added at last.
typedef enum vt_panel_sums { VT_PANEL_FRESH, VT_PANEL_GOES_ON, VT_PANEL_ADDS } vt_panel_sums;

// Where number i of n is, if of each whole block of two vectors first the even numbers lie in
// order, then the odd ones.
static inline int64_t vt_dealt(int64_t i, int64_t n) {
  enum { BLOCK = 2 * VT_PRODUCT_LANES };
  int64_t block = i / BLOCK * BLOCK, at = i % BLOCK;
  return block + BLOCK > n ? i : block + at / 2 + at % 2 * VT_PRODUCT_LANES;
}

// Where a walk goes in one image: `rows` x `columns` pixels of the result, and what lies between
// them in the padded image and in the gradient.
typedef struct vt_walk {
  int64_t rows, columns;
  int64_t image_row, image_column, gradient_column; // in elements; gradient rows are dense
} vt_walk;

// Matrices whose rows lie side by side (the heads of keys or values), each times a few vectors. All
// in elements; x is in f32, and dense along K.
typedef struct vt_few_item {
  int64_t x, matrix, out; // where its vectors, its matrix and its results begin
} vt_few_item;
typedef struct vt_few {
  int64_t row, length;                   // of a matrix: from one row to the next, numbers of a row
  int64_t out_step;                      // from one result to the next
  int64_t vectors, x_vector, out_vector; // how many for each matrix; from one to the next
  int64_t item_count;
  const vt_few_item *items;
} vt_few;

typedef struct vt_product_code {
  // out[i] = start + sum over t of weights[t] * in[i + offsets[t]], for `count` numbers. May read
  // VT_PRODUCT_LANES - 1 numbers past the end of the line.
  void (*convolve_line)(const float *in, const int64_t *offsets, const float *weights, int64_t taps,
                        float start, float *out, int64_t count);
  // `rows` rows of each item's matrix, whose numbers run along K: out[r] = x . matrix[r]. If the
  // matrix is in bf16, its numbers are widened two by two, and x lies where vt_dealt says.
  void (*few_dots_f32)(const vt_few *few, const float *x, const float *matrix, float *out,
                       int64_t rows);
  void (*few_dots_bf16)(const vt_few *few, const float *x, const uint16_t *matrix, float *out,
                        int64_t rows);
  // Rows whose numbers run along N: sums[i] = sum over the rows of x[r] * matrix[r][i], for each
  // item and vector in turn, densely. Of a matrix in bf16 the sums lie where vt_dealt says.
  void (*few_sums_f32)(const vt_few *few, const float *x, const float *matrix, float *sums,
                       int64_t rows);
  void (*few_sums_bf16)(const vt_few *few, const float *x, const uint16_t *matrix, float *sums,
                        int64_t rows);
  // out[r][0..VT_PRODUCT_LANES) = sum over k of lhs[k][r] * panel[k] for `rows` rows (at most
  // VT_PANEL_ROWS; lhs is dense), in parts of VT_PANEL_TERMS terms that are added up in turn. In
  // the end the bias (may be NULL) is added. The panel in f32 or in bf16.
  void (*panel_f32)(int64_t rows, int64_t k, const float *lhs, const float *panel,
                    const float *bias, vt_panel_sums kind, float *out, int64_t out_row);
  void (*panel_bf16)(int64_t rows, int64_t k, const float *lhs, const uint16_t *panel,
                     const float *bias, vt_panel_sums kind, float *out, int64_t out_row);
  // out[i] = sum of weight[t] * in[index[t] * stride + i]. Reads as convolve_line does.
  void (*sum_of_lines)(const float *in, int64_t stride, const int32_t *index, const float *weight,
                       int64_t taps, float *out, int64_t count);
  // out[r][l] = sum of weight[t][l] * in[r][index[t][l]].
  void (*gather_sums)(const float *const *in, int64_t rows, const int32_t *index,
                      const float *weight, int64_t taps, float (*out)[VT_PRODUCT_LANES]);
  // sums[t][l] += image[pixel + offsets[t]] * gradient[pixel][l] over one image, of VT_WALK_TAPS
  // taps and VT_PRODUCT_LANES features; the gradient in f32 or bf16.
  void (*walk_f32)(const vt_walk *walk, const float *image, const float *gradient,
                   const int64_t *offsets, float (*sums)[VT_PRODUCT_LANES]);
  void (*walk_bf16)(const vt_walk *walk, const float *image, const uint16_t *gradient,
                    const int64_t *offsets, float (*sums)[VT_PRODUCT_LANES]);
} vt_product_code;

const vt_product_code *vt_product_code_of(void); // for this processor

#endif
