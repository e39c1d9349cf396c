// SPDX-License-Identifier: Apache-2.0
// strip_spread.h - the sum of squares of distances from a mean, in the strips whose sums that mean
// is made of. Internal to exec_strip.c.
#ifndef VT_HOST_STRIP_SPREAD_H
#define VT_HOST_STRIP_SPREAD_H

#include "host/fuse.h"
#include "host/kernel.h"
#include "host/strip.h"

typedef struct vt_strip_spread {
  const vt_kernel *const *kernel;
  uint32_t port, mean; // of its two inputs: the values; what it makes the mean of
  double scale;        // that input as a multiple of the mean
  int64_t each;        // bytes of a task: the kernel's block, and a mean for each column
  char *blocks;
} vt_strip_spread;

// True when the group adds up the values of a matrix over its rows, and nothing else.
bool vt_is_plain_sum(const vt_group *group);
// True when the group adds up squares of distances of `values` from the mean that is made of `sum`,
// of so many rows.
bool vt_is_spread(const vt_group *group, const vt_value *values, const vt_value *sum, int64_t rows,
                  vt_strip_spread *out);
// Of a task: `sums` are the sums of its rows, by column.
void vt_spread_add(const vt_strip_spread *spread, int64_t task, float *values, const float *sums,
                   const vt_rows *rows);
// All tasks together: `sums` of the first, those of the next lie `apart` bytes on.
void vt_spread_finish(const vt_strip_spread *spread, const vt_strip *strip, const char *sums,
                      int64_t apart, float *out);

#endif
