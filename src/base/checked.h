// SPDX-License-Identifier: Apache-2.0
// checked.h - arithmetic on untrusted 64-bit numbers: money, times, durations, sums of quota.
// Nothing here wraps: a result that does not fit is an error (vt_add, vt_mul) or the nearest number
// that does (vt_add_clamped, vt_mul_clamped, vt_clamp).
#ifndef VT_BASE_CHECKED_H
#define VT_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef __int128 vt_int128;

// False, with *out unusable, when the result does not fit.
static inline bool vt_add(int64_t a, int64_t b, int64_t *out) {
  return !__builtin_add_overflow(a, b, out);
}
static inline bool vt_mul(int64_t a, int64_t b, int64_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}

static inline int64_t vt_clamp(vt_int128 value) {
  return value > INT64_MAX ? INT64_MAX : value < INT64_MIN ? INT64_MIN : (int64_t)value;
}
static inline int64_t vt_add_clamped(int64_t a, int64_t b) {
  return vt_clamp((vt_int128)a + b);
}
static inline int64_t vt_mul_clamped(int64_t a, int64_t b) {
  return vt_clamp((vt_int128)a * b);
}

#endif
