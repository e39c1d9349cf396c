// SPDX-License-Identifier: Apache-2.0
// vec_complex.c - elementwise loops of complex numbers. Built once per instruction set.
#include "eval/vec.h"

#include <complex.h>
#include <math.h>

#include "eval/vec_math.h"
#include "ir/module.h"

#define CAT(a, b)  a##_##b
#define CAT_(a, b) CAT(a, b)
#define FN(name)   CAT_(name, SUFFIX)
#define RE(z)      ((const T *)&(z))[0]
#define IM(z)      ((const T *)&(z))[1]

typedef float complex c64_t;
static inline c64_t make_c64(float re, float im) {
  float parts[2] = {re, im};
  c64_t z;
  __builtin_memcpy(&z, parts, sizeof z);
  return z;
}
static inline c64_t times_c64(c64_t a, c64_t b) {
  float ar = crealf(a), ai = cimagf(a), br = crealf(b), bi = cimagf(b);
  return make_c64(ar * br - ai * bi, ar * bi + ai * br);
}
static inline c64_t over_c64(c64_t a, c64_t b) {
  return a / b;
}
// Parts are scaled so that their squares are normal numbers (or vanish beside each other). Infinity
// wins over NaN.
static inline float abs_c64(c64_t a) {
  float x = fabsf(crealf(a)), y = fabsf(cimagf(a)), most = x > y ? x : y;
  float scale = most > 0x1p62f ? 0x1p-66f : most < 0x1p-40f ? 0x1p86f : 1;
  float back = most > 0x1p62f ? 0x1p66f : most < 0x1p-40f ? 0x1p-86f : 1;
  int infinite = x == INFINITY || y == INFINITY;
  x *= scale, y *= scale;
  return infinite ? INFINITY : sqrtf(x * x + y * y) * back;
}
// sin, cos and exp are split where one factor is exactly zero: 0 * inf would be NaN.
static inline c64_t exp_c64(c64_t a) {
  float r = expf(crealf(a)), angle = cimagf(a);
  if (angle == 0) return make_c64(r, angle);
  if (r == 0) return make_c64(0, 0);
  return make_c64(r * cosf(angle), r * sinf(angle));
}
static inline c64_t expm1_c64(c64_t a) {
  float x = crealf(a), y = cimagf(a), half = sinf(y / 2);
  float im = y == 0 ? y : expf(x) * sinf(y);
  return make_c64(expm1f(x) * cosf(y) - 2 * half * half, im);
}
static inline c64_t log1p_c64(c64_t a) {
  float x = crealf(a), y = cimagf(a);
  float far = fabsf(x) + fabsf(y);
  float re = far < (float)0.5 ? log1pf(x * (2 + x) + y * y) / 2 : logf(hypotf(1 + x, y));
  return make_c64(re, atan2f(y, 1 + x));
}
static inline c64_t logistic_c64(c64_t a) {
  c64_t e = exp_c64(make_c64(-crealf(a), -cimagf(a)));
  return make_c64(1, 0) / make_c64(1 + crealf(e), cimagf(e));
}
static inline c64_t rsqrt_c64(c64_t a) {
  return make_c64(1, 0) / csqrtf(a);
}
// Of the sign of x + iy the part that comes of x or y.
static inline float sign_c64(float part, float x, float y) {
  float size = abs_c64(make_c64(x, y));
  return size == 0 ? 0 : part / size;
}
// XLA's corner cases: x^0 is 1 even for x = 0, 0 to a power with positive real part is 0.
static inline c64_t power_c64(c64_t a, c64_t b) {
  float br = crealf(b), bi = cimagf(b);
  if (br == 0 && bi == 0) return make_c64(1, 0);
  if (crealf(a) == 0 && cimagf(a) == 0)
    return br > 0 ? make_c64(0, 0) : make_c64((float)NAN, (float)NAN);
  float size = hypotf(crealf(a), cimagf(a)), angle = atan2f(cimagf(a), crealf(a));
  float r = powf(size, br) * (bi == 0 ? 1 : expf(-bi * angle));
  float turn = br * angle + (bi == 0 ? 0 : bi * logf(size));
  return make_c64(r * cosf(turn), r * sinf(turn));
}
// atan2(y, x) = -i log((x + i y) / sqrt(x^2 + y^2))
static inline c64_t atan2_c64(c64_t y, c64_t x) {
  c64_t iy = make_c64(-cimagf(y), crealf(y));
  c64_t up = x + iy, down = csqrtf(times_c64(x, x) + times_c64(y, y));
  c64_t w = clogf(up / down);
  return make_c64(cimagf(w), -crealf(w));
}
// Lexicographic order.
static inline int before_c64(c64_t a, c64_t b) {
  return crealf(a) < crealf(b) || (crealf(a) == crealf(b) && cimagf(a) < cimagf(b));
}
static inline c64_t clamp_c64(c64_t a, c64_t b, c64_t c) {
  c64_t r = before_c64(b, a) ? a : b;
  return before_c64(c, r) ? c : r;
}

typedef double complex c128_t;
static inline c128_t make_c128(double re, double im) {
  double parts[2] = {re, im};
  c128_t z;
  __builtin_memcpy(&z, parts, sizeof z);
  return z;
}
static inline c128_t times_c128(c128_t a, c128_t b) {
  double ar = creal(a), ai = cimag(a), br = creal(b), bi = cimag(b);
  return make_c128(ar * br - ai * bi, ar * bi + ai * br);
}
static inline c128_t over_c128(c128_t a, c128_t b) {
  return a / b;
}
static inline double abs_c128(c128_t a) {
  return hypot(creal(a), cimag(a));
}
// sin, cos and exp are split where one factor is exactly zero: 0 * inf would be NaN.
static inline c128_t exp_c128(c128_t a) {
  double r = exp(creal(a)), angle = cimag(a);
  if (angle == 0) return make_c128(r, angle);
  if (r == 0) return make_c128(0, 0);
  return make_c128(r * cos(angle), r * sin(angle));
}
static inline c128_t expm1_c128(c128_t a) {
  double x = creal(a), y = cimag(a), half = sin(y / 2);
  double im = y == 0 ? y : exp(x) * sin(y);
  return make_c128(expm1(x) * cos(y) - 2 * half * half, im);
}
static inline c128_t log1p_c128(c128_t a) {
  double x = creal(a), y = cimag(a);
  double far = fabs(x) + fabs(y);
  double re = far < (double)0.5 ? log1p(x * (2 + x) + y * y) / 2 : log(hypot(1 + x, y));
  return make_c128(re, atan2(y, 1 + x));
}
static inline c128_t logistic_c128(c128_t a) {
  c128_t e = exp_c128(make_c128(-creal(a), -cimag(a)));
  return make_c128(1, 0) / make_c128(1 + creal(e), cimag(e));
}
static inline c128_t rsqrt_c128(c128_t a) {
  return make_c128(1, 0) / csqrt(a);
}
// Of the sign of x + iy the part that comes of x or y.
static inline double sign_c128(double part, double x, double y) {
  double size = abs_c128(make_c128(x, y));
  return size == 0 ? 0 : part / size;
}
// XLA's corner cases: x^0 is 1 even for x = 0, 0 to a power with positive real part is 0.
static inline c128_t power_c128(c128_t a, c128_t b) {
  double br = creal(b), bi = cimag(b);
  if (br == 0 && bi == 0) return make_c128(1, 0);
  if (creal(a) == 0 && cimag(a) == 0)
    return br > 0 ? make_c128(0, 0) : make_c128((double)NAN, (double)NAN);
  double size = hypot(creal(a), cimag(a)), angle = atan2(cimag(a), creal(a));
  double r = pow(size, br) * (bi == 0 ? 1 : exp(-bi * angle));
  double turn = br * angle + (bi == 0 ? 0 : bi * log(size));
  return make_c128(r * cos(turn), r * sin(turn));
}
// atan2(y, x) = -i log((x + i y) / sqrt(x^2 + y^2))
static inline c128_t atan2_c128(c128_t y, c128_t x) {
  c128_t iy = make_c128(-cimag(y), creal(y));
  c128_t up = x + iy, down = csqrt(times_c128(x, x) + times_c128(y, y));
  c128_t w = clog(up / down);
  return make_c128(cimag(w), -creal(w));
}
// Lexicographic order.
static inline int before_c128(c128_t a, c128_t b) {
  return creal(a) < creal(b) || (creal(a) == creal(b) && cimag(a) < cimag(b));
}
static inline c128_t clamp_c128(c128_t a, c128_t b, c128_t c) {
  c128_t r = before_c128(b, a) ? a : b;
  return before_c128(c, r) ? c : r;
}

// ---- c64 in f64: branch-free, for loops that vectorise. NaN in both parts is no answer.

typedef struct parts {
  double re, im;
} parts;

static inline parts no_answer_unless(int fine, parts z) {
  return (parts){fine ? z.re : NAN, fine ? z.im : NAN};
}
static inline parts quick_DIVIDE(parts a, parts b) {
  double scale = 1 / (b.re * b.re + b.im * b.im);
  return (parts){(a.re * b.re + a.im * b.im) * scale, (a.im * b.re - a.re * b.im) * scale};
}
// With m = 1 - exp(-2 |x|): m (2 - m) and 4 (1 - m) sin(y) cos(y), over m^2 + 4 (1 - m) cos(y)^2.
static inline parts quick_TANH(parts a, parts unused) {
  (void)unused;
  double x = fabs(a.re), m = -vt_math_expm1(-2 * (x > 60 ? 60 : x)), turn = 4 * (1 - m);
  double s = vt_math_sin(a.im), c = vt_math_cos(a.im), size = m * m + turn * c * c;
  parts z = {copysign(m * (2 - m) / size, a.re), a.im == 0 ? a.im : turn * s * c / size};
  return no_answer_unless(x < INFINITY && fabs(a.im) < (double)VT_MATH_ANGLE_LIMIT, z);
}
// Left out are powers with parts that overflow or vanish in f32, where XLA's formula decides.
enum { LARGE = 80 };
static inline parts quick_POWER(parts a, parts b) {
  double size = vt_math_log(a.re * a.re + a.im * a.im) / 2, angle = vt_math_atan2(a.im, a.re);
  double grow = b.re * size, shrink = b.im * angle, turn = b.re * angle + b.im * size;
  double r = vt_math_exp(grow - shrink);
  double most = fabs(grow) > fabs(shrink) ? fabs(grow) : fabs(shrink);
  most = fabs(size) > most ? fabs(size) : most; // NaN shows in turn
  int fine =
      (most < LARGE) & (fabs(turn) < (double)VT_MATH_ANGLE_LIMIT) & (fabs(b.re) + fabs(b.im) != 0);
  return no_answer_unless(fine, (parts){r * vt_math_cos(turn), r * vt_math_sin(turn)});
}

#define QUICK_LOOP(NAME, LOADS, formula)                                                           \
  static void NAME##_c64(int64_t n, const void *a_, const void *b_, const void *c_, void *out_,    \
                         int32_t width) {                                                          \
    enum { BLOCK = 128 };                                                                          \
    typedef float T;                                                                               \
    (void)sizeof(T);                                                                               \
    (void)c_, (void)width;                                                                         \
    const c64_t *x = a_, *y = b_ ? b_ : a_;                                                        \
    for (int64_t at = 0; at < n; at += BLOCK) {                                                    \
      int64_t count = n - at < BLOCK ? n - at : BLOCK;                                             \
      const float *xs = (const float *)(x + at), *ys = (const float *)(y + at);                    \
      float block[2 * BLOCK];                                                                      \
      int open = 0;                                                                                \
      VT_VEC_LOOP for (int64_t i = 0; i < count; i++) {                                            \
        parts z =                                                                                  \
            quick_##NAME((parts){xs[2 * i], xs[2 * i + 1]}, (parts){ys[2 * i], ys[2 * i + 1]});    \
        block[2 * i] = (float)z.re;                                                                \
        block[2 * i + 1] = (float)z.im;                                                            \
        open |= z.re != z.re;                                                                      \
      }                                                                                            \
      for (int64_t i = at; i < at + count && open; i++) {                                          \
        float *z = block + 2 * (i - at);                                                           \
        if (z[0] == z[0] || z[1] == z[1]) continue;                                                \
        LOADS                                                                                      \
        c64_t exact = formula;                                                                     \
        __builtin_memcpy(z, &exact, sizeof exact);                                                 \
      }                                                                                            \
      __builtin_memcpy((c64_t *)out_ + at, block, (size_t)count * sizeof *x);                      \
    }                                                                                              \
  }

#define LOOP(NAME, T_, Z, R, LOADS, formula)                                                       \
  static void NAME(int64_t n, const void *a_, const void *b_, const void *c_, void *out_,          \
                   int32_t width) {                                                                \
    typedef T_ T;                                                                                  \
    (void)sizeof(T);                                                                               \
    (void)width;                                                                                   \
    const Z *x = a_, *y = b_, *z = c_;                                                             \
    (void)y, (void)z;                                                                              \
    R *out = out_;                                                                                 \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) {                                                  \
      LOADS                                                                                        \
      out[i] = (R)(formula);                                                                       \
    }                                                                                              \
  }
// Parts as elements of an array: GCC vectorises no loop that makes complex numbers.
#define PARTS_LOOP(NAME, T, re, im)                                                                \
  static void NAME(int64_t n, const void *a_, const void *b_, const void *c_, void *out_,          \
                   int32_t width) {                                                                \
    (void)c_, (void)width;                                                                         \
    const T *x = a_, *y = b_ ? b_ : a_;                                                            \
    T *out = out_;                                                                                 \
    VT_VEC_LOOP for (int64_t i = 0; i < 2 * n; i += 2) {                                           \
      T ar = x[i], ai = x[i + 1], br = y[i], bi = y[i + 1];                                        \
      (void)br, (void)bi;                                                                          \
      out[i] = re;                                                                                 \
      out[i + 1] = im;                                                                             \
    }                                                                                              \
  }
// By way of memory, for GCC 12 would fuse products and sums whatever -ffp-contract says.
#define PRODUCTS_LOOP(NAME, T, w_, x_, y_, z_)                                                     \
  static void NAME(int64_t n, const void *a_, const void *b_, const void *c_, void *out_,          \
                   int32_t width) {                                                                \
    enum { BLOCK = 128 };                                                                          \
    (void)c_, (void)width;                                                                         \
    for (int64_t at = 0; at < n; at += BLOCK) {                                                    \
      int64_t count = n - at < BLOCK ? n - at : BLOCK;                                             \
      const T *a = (const T *)a_ + 2 * at, *b = (const T *)b_ + 2 * at;                            \
      T *out = (T *)out_ + 2 * at, w[BLOCK], x[BLOCK], y[BLOCK], z[BLOCK];                         \
      VT_VEC_LOOP for (int64_t i = 0; i < count; i++) {                                            \
        T ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];                      \
        w[i] = w_, x[i] = x_, y[i] = y_, z[i] = z_;                                                \
      }                                                                                            \
      VT_VEC_LOOP for (int64_t i = 0; i < count; i++) {                                            \
        out[2 * i] = w[i] - x[i];                                                                  \
        out[2 * i + 1] = y[i] + z[i];                                                              \
      }                                                                                            \
    }                                                                                              \
  }
#define SUFFIX                  c64
#define C(name)                 name##f
#define M(name)                 name##f
#define L1                      c64_t a = x[i];
#define L2                      c64_t a = x[i], b = y[i];
#define L3                      c64_t a = x[i], b = y[i], c = z[i];
#define C1(op, formula)         LOOP(op##_c64, float, c64_t, c64_t, L1, formula)
#define C1_REAL(op, formula)    LOOP(op##_c64, float, c64_t, float, L1, formula)
#define C2(op, formula)         LOOP(op##_c64, float, c64_t, c64_t, L2, formula)
#define P1(op, re, im)          PARTS_LOOP(op##_c64, float, re, im)
#define P2(op, re, im)          PARTS_LOOP(op##_c64, float, re, im)
#define P4(op, w, x, y, z)      PRODUCTS_LOOP(op##_c64, float, w, x, y, z)
#define Q1(op, formula)         QUICK_LOOP(op, L1, formula)
#define Q2(op, formula)         QUICK_LOOP(op, L2, formula)
#define C3(op, formula)         LOOP(op##_c64, float, c64_t, c64_t, L3, formula)
#define CCMP(name, at, formula) LOOP(CMP_##name##_c64, float, c64_t, uint8_t, L2, formula)
#include "eval/vec_complex.def"
#undef SUFFIX
#undef C
#undef M
#undef L1
#undef L2
#undef L3
#undef C1
#undef C1_REAL
#undef C2
#undef P1
#undef P2
#undef P4
#undef Q1
#undef Q2
#undef C3
#undef CCMP

#define SUFFIX                  c128
#define C(name)                 name
#define M(name)                 name
#define L1                      c128_t a = x[i];
#define L2                      c128_t a = x[i], b = y[i];
#define L3                      c128_t a = x[i], b = y[i], c = z[i];
#define C1(op, formula)         LOOP(op##_c128, double, c128_t, c128_t, L1, formula)
#define C1_REAL(op, formula)    LOOP(op##_c128, double, c128_t, double, L1, formula)
#define C2(op, formula)         LOOP(op##_c128, double, c128_t, c128_t, L2, formula)
#define P1(op, re, im)          PARTS_LOOP(op##_c128, double, re, im)
#define P2(op, re, im)          PARTS_LOOP(op##_c128, double, re, im)
#define P4(op, w, x, y, z)      PRODUCTS_LOOP(op##_c128, double, w, x, y, z)
#define Q1(op, formula)         C1(op, formula)
#define Q2(op, formula)         C2(op, formula)
#define C3(op, formula)         LOOP(op##_c128, double, c128_t, c128_t, L3, formula)
#define CCMP(name, at, formula) LOOP(CMP_##name##_c128, double, c128_t, uint8_t, L2, formula)
#include "eval/vec_complex.def"
#undef SUFFIX
#undef C
#undef M
#undef L1
#undef L2
#undef L3
#undef C1
#undef C1_REAL
#undef C2
#undef P1
#undef P2
#undef P4
#undef Q1
#undef Q2
#undef C3
#undef CCMP

vt_vec_fn VT_VEC_NAME(vt_vec_complex_op)(vt_vec_class klass, vt_opcode code) {
#define C1(o, formula)                                                                             \
  VT_VEC_CASE(VT_VEC_C64, VT_OP_##o, o##_c64) VT_VEC_CASE(VT_VEC_C128, VT_OP_##o, o##_c128)
#define C1_REAL(o, formula) C1(o, formula)
#define C2(o, formula)      C1(o, formula)
#define P1(o, re, im)       C1(o, re)
#define P2(o, re, im)       C1(o, re)
#define P4(o, w, x, y, z)   C1(o, w)
#define Q1(o, formula)      C1(o, formula)
#define Q2(o, formula)      C1(o, formula)
#define C3(o, formula)      C1(o, formula)
#define CCMP(name, at, formula)
  switch (VT_VEC_KEY(klass, code)) {
#include "eval/vec_complex.def"
  default:
    return NULL;
  }
#undef C1
#undef CCMP
}

vt_vec_fn VT_VEC_NAME(vt_vec_complex_compare)(vt_vec_class klass, bool total, int64_t direction) {
#define C1(o, formula)
#define CCMP(name, at, formula)                                                                    \
  VT_VEC_CASE(VT_VEC_C64, at, CMP_##name##_c64) VT_VEC_CASE(VT_VEC_C128, at, CMP_##name##_c128)
  (void)total;
  switch (VT_VEC_KEY(klass, direction)) {
#include "eval/vec_complex.def"
  default:
    return NULL;
  }
}
