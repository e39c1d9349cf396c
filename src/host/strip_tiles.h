// SPDX-License-Identifier: Apache-2.0
// strip_tiles.h - the products of a strip (strip.h) on Intel's matrix unit. Internal to strip.c.
#ifndef VT_HOST_STRIP_TILES_H
#define VT_HOST_STRIP_TILES_H

#include "host/strip.h"

enum {
  VT_STRIP_DEPTH = 20, // tiles of K, of which two rows of tiles on the left fit the first cache
  VT_STRIP_MOST_DEPTH = 3 * VT_STRIP_DEPTH / 2 // of a piece of K
};

// Rows of a strip and what they are multiplied with.
typedef struct vt_strip_rows {
  const vt_strip *strip;
  const char *lhs;    // first row
  int64_t lhs_stride; // bytes
  const char *edge;   // the last tile of rows where it is not full, else NULL
  const char *rhs;    // laid out, column 0
  float *sums;        // row 0, the first column of the task
  int64_t sums_row;
  int64_t rows;
  int64_t behind;   // columns of the right side, from the first of the task, that follow each other
  bool fetches;     // the right side is not in the second cache yet
  bool fetched;     // the first rows are on their way
  const char *next; // rows (an image's lines) of the task that follows; NULL: not known
  int64_t next_bytes;              // of lines
  int64_t from, until;             // tiles of K, with what is behind whole ones
  uint64_t unread[VT_STRIP_WORDS]; // groups of columns that are left out
} vt_strip_rows;

// Sets the unit up for products of this strip, on the calling thread, and gives it back.
void vt_strip_take_tiles(const vt_strip *strip);
void vt_strip_release_tiles(const vt_strip *strip);
// Sums of all rows of a matrix.
void vt_strip_multiply_rows(const vt_strip_rows *rows, int64_t column, int64_t columns);
// Of an image two rows of tiles from `tile` on; where few are finished together (`strip->pixels`)
// their sums are the first.
void vt_strip_multiply_pixels(const vt_strip_rows *rows, int64_t tile, int64_t column,
                              int64_t columns);

#endif
