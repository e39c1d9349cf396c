// SPDX-License-Identifier: Apache-2.0
// vec_math.h - elementary functions of f32 computed in f64, branch-free so that loops over them
// vectorise.
//
// Results are those of the exact function rounded once, except for about one in 10^4 arguments
// (relative error of the f64 value below 1e-11). Polynomials are Taylor series cut where the first
// omitted term falls below that. NaN and infinities follow from the arithmetic; where they do not,
// a comment says how.
#ifndef VT_EVAL_VEC_MATH_H
#define VT_EVAL_VEC_MATH_H

#include <math.h>

#include "ir/number.h"

// Adding and subtracting this rounds to an integer, whose low bits are then those of the sum.
#define VT_ROUND_MAGIC 0x1.8p52

// x = k ln2 + r, |r| <= ln2 / 2: exp(x) = scale (1 + q), scale = 2^k and q = exp(r) - 1 to full
// relative precision. Beyond +-709 f32 results are infinite or zero anyway; the clamp keeps k in
// range and lets NaN through.
typedef struct vt_math_power {
  double scale, q;
} vt_math_power;
static inline vt_math_power vt_math_exp_parts(double x) {
  double c = x > 709.0 ? 709.0 : x;
  c = c < -708.0 ? -708.0 : c;
  double shifted = c * 0x1.71547652b82fep0 + VT_ROUND_MAGIC;
  double k = shifted - VT_ROUND_MAGIC;
  double r = c - k * 0x1.62e42fefa3800p-1;
  r = r - k * 0x1.ef35793c76730p-45;
  double p = 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  uint64_t scale = (vt_f64_bits(shifted) << 52) + 0x3ff0000000000000u;
  return (vt_math_power){vt_f64_from_bits(scale), p * r};
}

static inline double vt_math_exp(double x) {
  vt_math_power e = vt_math_exp_parts(x);
  return e.scale + e.scale * e.q;
}

// exp(x) - 1: near 0 the scale is 1 and only q is left.
static inline double vt_math_expm1(double x) {
  vt_math_power e = vt_math_exp_parts(x);
  return (e.scale - 1.0) + e.scale * e.q;
}

// log(x) for x a normal positive f64; the caller corrects other arguments.
static inline double vt_math_log_core(double x) {
  uint64_t bits = vt_f64_bits(x);
  // m in [sqrt(1/2), sqrt(2)), x = m 2^e: after subtracting the bits of sqrt(1/2), what is above
  // the fraction is e.
  uint64_t moved = bits - 0x3fe6a09e667f3bcdu;
  double e = vt_f64_from_bits(((moved >> 52) ^ 0x800u) + 0x4330000000000000u);
  e = e - (0x1p52 + 2048.0);
  e = e < -1024.0 ? e + 4096.0 : e;
  double m = vt_f64_from_bits((moved & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
  double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 2.0 / 17;
  p = p * z + 2.0 / 15;
  p = p * z + 2.0 / 13;
  p = p * z + 2.0 / 11;
  p = p * z + 2.0 / 9;
  p = p * z + 2.0 / 7;
  p = p * z + 2.0 / 5;
  p = p * z + 2.0 / 3;
  p = p * z + 2.0;
  return e * 0x1.62e42fefa39efp-1 + p * s;
}

static inline double vt_math_log(double x) {
  double r = vt_math_log_core(x);
  r = x == 0 ? -INFINITY : r;
  r = x < 0 ? NAN : r;
  return x < INFINITY ? r : x; // inf and NaN are returned unchanged
}

static inline double vt_math_log1p(double x) {
  double m = 1.0 + x;
  double r = vt_math_log_core(m) + (x - (m - 1.0)) / m;
  r = m == 0 ? -INFINITY : r;
  r = m < 0 ? NAN : r;
  r = x == 0 ? x : r; // keeps -0
  return x < INFINITY ? r : x;
}

// tanh(|x|)
static inline double vt_math_tanh_abs(double x) {
  double a = fabs(x);
  a = a > 20.0 ? 20.0 : a;
  double t = vt_math_expm1(-2.0 * a);
  return -t / (t + 2.0);
}

static inline double vt_math_logistic(double x) {
  return 1.0 / (1.0 + vt_math_exp(-x));
}

// x = q pi/2 + r with |r| <= pi/4, for |x| < 2^22: pi/2 in two parts of 31 bits, whose products
// with q are exact, and a remainder.
typedef struct vt_math_angle {
  double r;
  uint64_t quadrant;
} vt_math_angle;
static inline vt_math_angle vt_math_reduce(double x) {
  double shifted = x * 0x1.45f306dc9c883p-1 + VT_ROUND_MAGIC;
  double q = shifted - VT_ROUND_MAGIC;
  double r = x - q * 0x1.921fb544p0;
  r = r - q * 0x1.0b4611a4p-34;
  r = r - q * 0x1.13198a2e03707p-65;
  return (vt_math_angle){r, vt_f64_bits(shifted)};
}
static inline double vt_math_sin_core(double r) {
  double z = r * r, p = -1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800;
  p = p * z + 1.0 / 362880;
  p = p * z - 1.0 / 5040;
  p = p * z + 1.0 / 120;
  p = p * z - 1.0 / 6;
  return p * z * r + r;
}
static inline double vt_math_cos_core(double r) {
  double z = r * r, p = 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600;
  p = p * z - 1.0 / 3628800;
  p = p * z + 1.0 / 40320;
  p = p * z - 1.0 / 720;
  p = p * z + 1.0 / 24;
  p = p * z - 0.5;
  return p * z + 1.0;
}
// The largest argument of vt_math_sin and the other trigonometric functions.
#define VT_MATH_ANGLE_LIMIT 0x1p22f
static inline double vt_math_sin(double x) {
  vt_math_angle a = vt_math_reduce(x);
  double s = vt_math_sin_core(a.r), c = vt_math_cos_core(a.r);
  double y = a.quadrant & 1 ? c : s;
  return a.quadrant & 2 ? -y : y;
}
static inline double vt_math_cos(double x) {
  vt_math_angle a = vt_math_reduce(x);
  double s = vt_math_sin_core(a.r), c = vt_math_cos_core(a.r);
  double y = a.quadrant & 1 ? s : c;
  return (a.quadrant + 1) & 2 ? -y : y;
}
static inline double vt_math_tan(double x) {
  vt_math_angle a = vt_math_reduce(x);
  double s = vt_math_sin_core(a.r), c = vt_math_cos_core(a.r);
  return a.quadrant & 1 ? -c / s : s / c;
}

// The angle of the point (x, y), neither infinite nor both zero: the ratio of the smaller to the
// larger, moved by pi/4 to within tan(pi/8) of zero.
static inline double vt_math_atan2(double y, double x) {
  double ax = fabs(x), ay = fabs(y);
  double low = ax < ay ? ax : ay, high = ax < ay ? ay : ax;
  int near_one = low > high * 0x1.a827999fcef32p-2;
  double t = (near_one ? low - high : low) / (near_one ? low + high : high), z = t * t;
  double p = 1.0 / 29;
  p = 1.0 / 27 - p * z;
  p = 1.0 / 25 - p * z;
  p = 1.0 / 23 - p * z;
  p = 1.0 / 21 - p * z;
  p = 1.0 / 19 - p * z;
  p = 1.0 / 17 - p * z;
  p = 1.0 / 15 - p * z;
  p = 1.0 / 13 - p * z;
  p = 1.0 / 11 - p * z;
  p = 1.0 / 9 - p * z;
  p = 1.0 / 7 - p * z;
  p = 1.0 / 5 - p * z;
  p = 1.0 / 3 - p * z;
  double r = (near_one ? 0x1.921fb54442d18p-1 : 0) + (t - t * z * p);
  r = ax < ay ? 0x1.921fb54442d18p0 - r : r;
  r = x < 0 ? 0x1.921fb54442d18p1 - r : r;
  return copysign(r, y);
}

#endif
