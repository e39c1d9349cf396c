// SPDX-License-Identifier: Apache-2.0
// window.h - the arithmetic of one window dimension, for convolution, reduce_window and pooling.
#ifndef VT_IR_WINDOW_H
#define VT_IR_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct vt_window {
  int64_t size; // elements of the window
  int64_t stride;
  int64_t low, high;       // padding, may be negative
  int64_t base_dilation;   // spacing of the input's elements
  int64_t window_dilation; // spacing of the window's elements
} vt_window;

// Positions from the first to the last of n elements that are `dilation` apart.
static inline bool vt_window_spread(int64_t n, int64_t dilation, int64_t *out_size) {
  if (n == 0) {
    *out_size = 0;
    return true;
  }
  return !__builtin_mul_overflow(n - 1, dilation, out_size) &&
         !__builtin_add_overflow(*out_size, 1, out_size);
}

// The number of window positions over `input` elements. false: a field is out of range or a size
// overflows
static inline bool vt_window_output(int64_t input, vt_window w, int64_t *out_size) {
  int64_t base, reach;
  if (input < 0 || w.size < 0 || w.stride < 1 || w.base_dilation < 1 || w.window_dilation < 1)
    return false;
  if (!vt_window_spread(input, w.base_dilation, &base) ||
      !vt_window_spread(w.size, w.window_dilation, &reach))
    return false;
  if (__builtin_add_overflow(base, w.low, &base) || __builtin_add_overflow(base, w.high, &base))
    return false;
  *out_size = base < reach || base <= 0 ? 0 : (base - reach) / w.stride + 1;
  return true;
}

#endif
