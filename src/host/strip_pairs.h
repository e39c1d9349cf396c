// SPDX-License-Identifier: Apache-2.0
// strip_pairs.h - the products of a strip (strip.h) on processors with AVX512-BF16 and without
// Intel's matrix unit. Internal to strip.c.
#ifndef VT_HOST_STRIP_PAIRS_H
#define VT_HOST_STRIP_PAIRS_H

#include "host/strip.h"

typedef struct vt_strip_pairs {
  const vt_strip *strip;
  const char *lhs;           // row 0
  int64_t lhs_row, lhs_line; // bytes from a row to the next; from a line of rows to the next
  int64_t rows, line;        // of the left side; in a line
  const char *rhs;           // laid out, the first column
  float *sums;               // row 0, the first column
  int64_t sums_row;          // elements from a row to the next
  int64_t columns;
  int64_t from, until;    // of K, in pairs: the rest is left out; a window has no rest
  const uint64_t *unread; // groups of columns that are left out
  int64_t behind;         // columns from the first on, of which those behind `columns` come next
  bool fetches;           // the right side is not in the second cache yet
} vt_strip_pairs;

// Whether a column is in such a group, of which the bits are.
static inline bool vt_strip_is_unread(const uint64_t *unread, int64_t column) {
  int64_t group = column / VT_STRIP_GROUP;
  return group < 64 * VT_STRIP_WORDS && (unread[group / 64] >> group % 64 & 1);
}

// Sums of some rows and columns; a row that is no whole vector is filled up.
void vt_strip_multiply_pairs(const vt_strip_pairs *pairs);

#endif
