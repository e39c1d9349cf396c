// SPDX-License-Identifier: Apache-2.0
// activate.h - the activation unit's arithmetic on one row of lanes (defined in exec.h's opening
// comment).
#ifndef VT_TPU1_ACTIVATE_H
#define VT_TPU1_ACTIVATE_H

#include "tpu1/isa.h"

typedef struct vt_tpu1_scaling {
  vt_tpu1_fn fn;
  bool wide_out, unsigned_out;
  int32_t scale, scale_b, offset;
  int shift;
} vt_tpu1_scaling;

// (value * scale) >> shift, rounding half up; shift 0..62.
static inline int64_t vt_tpu1_scaled(int64_t value, int32_t scale, int shift) {
  int64_t half = shift ? (int64_t)1 << (shift - 1) : 0;
  return (value * scale + half) >> shift;
}

// out[i] = the result for values[i], n lanes; results are in the range of the output type.
void vt_tpu1_activate_lanes(const int32_t *values, int64_t n, const vt_tpu1_scaling *s,
                            int32_t *out);
// The same for a[i] * scale + b[i] * scale_b.
void vt_tpu1_add_lanes(const int32_t *a, const int32_t *b, int64_t n, const vt_tpu1_scaling *s,
                       int32_t *out);

#endif
