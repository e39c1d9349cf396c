// SPDX-License-Identifier: Apache-2.0
// strip.h - products of bf16 matrices and convolutions on Intel's matrix unit, some rows at a time.
//
// The rows of the left side are read where they lie; of an image that is padded, or whose window
// moves by more than a pixel, a copy is read. The right side is laid out in tiles, once where it is
// kept. What comes after the product is done for a strip of rows while its sums are in the cache:
// `finish` gets them.
#ifndef VT_HOST_STRIP_H
#define VT_HOST_STRIP_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_STRIP_BATCH = 4, VT_STRIP_RUNS = 64 };
// Columns that are left out together, and words of bits for them: those behind are all computed.
enum { VT_STRIP_GROUP = 64, VT_STRIP_WORDS = 4 };

// The left side of a convolution: pixels of `channels` contiguous numbers. Strides in elements.
typedef struct vt_strip_window {
  int64_t channels;
  int64_t input[2], output[2], kernel[2]; // sizes: rows, columns
  int64_t stride[2], dilation[2], low[2];
  int64_t input_strides[2];
  int64_t rhs_taps[2]; // of the right side; negative where it is reversed
  int64_t rhs_start;   // of its first tap
} vt_strip_window;

// sums[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, k, n]; of a convolution the batch
// are images, a row is a pixel of the result.
typedef struct vt_strip {
  int32_t batch_rank;
  int64_t batch_sizes[VT_STRIP_BATCH], batch_strides[2][VT_STRIP_BATCH]; // lhs, rhs
  int64_t m, n, k;
  int64_t lhs_row; // K is contiguous; not of a convolution
  int64_t rhs_row, rhs_column;
  bool windowed;
  vt_strip_window window;
  bool whole_rows; // `finish` wants all columns at once
  int64_t rows;    // of a task; 0: to be chosen
  // Set by vt_strip_prepare.
  bool tiles; // on the matrix unit
  int32_t threads;
  int64_t items;
  int64_t channels; // of a copied pixel: an even number
  int64_t pitch;    // pixels of a copied line
  int64_t lines;    // of a copied image (piece), for each row under the window's stride
  bool shared;      // images are copied once for all
  bool gathers;     // no longer windowed: a matrix of pixels of all images, which lie apart
  int64_t image_stride;
  int64_t runs, length;          // K: contiguous pieces of the left side
  int64_t starts[VT_STRIP_RUNS]; // bytes
  int64_t full, tail;            // tiles of a run, numbers behind them
  int64_t depth;                 // tiles of K
  int64_t piece;                 // numbers of K that are multiplied with all columns; 0: all
  bool alone;                    // a task has all rows
  int64_t block_m, block_n;      // rows (of images: lines) and columns of a task
  int64_t part;                  // of those rows, whose sums are finished together
  int64_t pixels;                // of an image, whose sums are; 0: all
  int64_t sums_row;              // elements between rows of sums; whole tiles of columns
  int64_t rhs_bytes;             // laid out; of an item where each has its own
  int64_t lhs_bytes, sums_bytes;
  int64_t middle_bytes, second_bytes; // with a second product: its left side, all else of it
  int64_t scratch_bytes;
} vt_strip;

// Rows [row, row + rows) of the result over all items, columns [column, column + columns); `sums`
// is where the element at (row, 0) would be, rows lie `sums_row` elements apart. `middle`: where
// the left side of the product that follows is expected from (row, 0) on, dense; NULL if none does.
typedef void vt_strip_finish(void *user, float *sums, int64_t row, int64_t rows, int64_t column,
                             int64_t columns, void *middle);

// Sets bits of groups of columns of which `finish` uses no sum in these rows.
typedef void vt_strip_unread(void *user, int64_t row, int64_t rows, uint64_t *bits);

// False when the processor has no such unit, or the form is not supported. To be called again when
// `whole_rows` changes.
bool vt_strip_prepare(vt_strip *strip);
// Rows of a task that do not depend on the number of threads, to be set before.
void vt_strip_fix_rows(vt_strip *strip);
// Tasks of the same columns; the rows of each are those of one call of `finish`, in pairs.
int64_t vt_strip_tasks(const vt_strip *strip);
// Of those, which one has this row; how many it has.
int64_t vt_strip_task(const vt_strip *strip, int64_t row);
int64_t vt_strip_task_rows(const vt_strip *strip, int64_t task);
// True when it is large enough to be worth it. `kept`: the right side is laid out once.
bool vt_strip_pays(const vt_strip *strip, bool kept);
// Whether a product with a right side of each item's own is, with one before and one behind it.
bool vt_strip_pays_joined(const vt_strip *strip);
// Whether a convolution of a picture is, one of so few channels.
bool vt_strip_pays_picture(int64_t channels, int64_t columns, int64_t depth);
// Whether a product of pixels is that has far fewer numbers than these.
bool vt_strip_pays_narrowing(int64_t rows, int64_t columns, int64_t depth);
// Whether a convolution of so few rows is worth it without the matrix unit: the same for any number
// of threads.
bool vt_strip_pays_few(int64_t rows, int64_t columns);
// For a product of what `finish` makes of the sums with a right side of each item's own: they are
// run together. `second` is like `first`, with its N as K. False when one of the two is not so.
bool vt_strip_prepare_second(vt_strip *first, vt_strip *second);

typedef struct vt_strip_run {
  const vt_strip *strip;
  const void *lhs, *rhs;
  void *laid;              // `rhs` laid out, the same for all items; NULL: each item has its own
  bool lay;                // which is to be done now
  vt_strip_finish *finish; // NULL: none
  vt_strip_unread *unread; // NULL: it uses all; of tasks with all columns
  float *result;           // dense, sums are written there; NULL: they are `finish`'s alone
  const vt_strip *second;  // NULL: none
  const void *second_rhs;
  vt_strip_finish *second_finish;
  void *user;
  void *scratch; // aligned to 64 bytes
} vt_strip_run;

// Sums are the same for any number of threads.
void vt_strip_multiply(const vt_strip_run *run);

#endif
