// SPDX-License-Identifier: Apache-2.0
// vec_float.c - elementwise loops of f32 and f64. Built once per instruction set.
// f32 transcendentals go through vec_math.h, f64 ones through libm.
#include "eval/vec.h"

#include <math.h>

#include "eval/vec_math.h"
#include "ir/module.h"

// Helpers in both precisions, so that one row of vec_float.def serves both.
static inline float exp_f32(float x) {
  return (float)vt_math_exp(x);
}
static inline float expm1_f32(float x) {
  return x == 0 ? x : (float)vt_math_expm1(x);
}
static inline float log_f32(float x) {
  return (float)vt_math_log(x);
}
static inline float log1p_f32(float x) {
  return (float)vt_math_log1p(x);
}
static inline float tanh_f32(float x) {
  return copysignf((float)vt_math_tanh_abs(x), x);
}
static inline float logistic_f32(float x) {
  return (float)vt_math_logistic(x);
}
static inline float rsqrt_f32(float x) {
  return (float)(1.0 / sqrt((double)x));
}
// A subnormal is the zero of its sign, for functions of libm that work on bits.
static inline float flushed_f32(float x) {
  return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
static inline double flushed_f64(double x) {
  return fabs(x) < 0x1p-1022 ? copysign(0, x) : x;
}
static inline float cbrt_f32(float x) {
  return cbrtf(flushed_f32(x));
}
static inline double cbrt_f64(double x) {
  return cbrt(flushed_f64(x));
}
static inline float remainder_f32(float x, float y) {
  return flushed_f32(fmodf(flushed_f32(x), flushed_f32(y)));
}
static inline double remainder_f64(double x, double y) {
  return flushed_f64(fmod(flushed_f64(x), flushed_f64(y)));
}
static inline double exp_f64(double x) {
  return exp(x);
}
static inline double expm1_f64(double x) {
  return expm1(x);
}
static inline double log_f64(double x) {
  return log(x);
}
static inline double log1p_f64(double x) {
  return log1p(x);
}
static inline double tanh_f64(double x) {
  return tanh(x);
}
static inline double logistic_f64(double x) {
  return 1.0 / (1.0 + exp(-x));
}
static inline double rsqrt_f64(double x) {
  return 1.0 / sqrt(x);
}

#define TRUNC_f32    truncf
#define TRUNC_f64    trunc
#define FABS_f32     fabsf
#define FABS_f64     fabs
#define COPYSIGN_f32 copysignf
#define COPYSIGN_f64 copysign

// max(-0, +0) is +0 and min is -0 in either order: the bits decide between operands that compare
// equal.
#define MAX_MIN(T, I, U, bits, from_bits, suffix)                                                  \
  static inline T max_##suffix(T a, T b) {                                                         \
    T equal = from_bits(bits(a) & bits(b));                                                        \
    T r = a > b ? a : equal;                                                                       \
    r = a < b ? b : r;                                                                             \
    r = b == b ? r : b;                                                                            \
    return a == a ? r : a;                                                                         \
  }                                                                                                \
  static inline T min_##suffix(T a, T b) {                                                         \
    T equal = from_bits(bits(a) | bits(b));                                                        \
    T r = a < b ? a : equal;                                                                       \
    r = a > b ? b : r;                                                                             \
    r = b == b ? r : b;                                                                            \
    return a == a ? r : a;                                                                         \
  }                                                                                                \
  static inline T sign_##suffix(T a) {                                                             \
    T size = a > 0 || a < 0 ? (T)1 : (T)0;                                                         \
    return a == a ? COPYSIGN_##suffix(size, a) : a;                                                \
  }                                                                                                \
  /* Ties away from zero; a - trunc(a) is exact, so 0.49999997 stays below the tie. */             \
  static inline T round_afz_##suffix(T a) {                                                        \
    T whole = TRUNC_##suffix(a), rest = a - whole;                                                 \
    T up = rest >= (T)0.5 || rest <= (T) - 0.5 ? (T)1 : (T)0;                                      \
    return COPYSIGN_##suffix(FABS_##suffix(whole) + up, a);                                        \
  }                                                                                                \
  /* Sign-magnitude bits as a number that orders like the total order. */                          \
  static inline I order_##suffix(T a) {                                                            \
    I x = (I)bits(a);                                                                              \
    return x ^ (I)((U)(x >> (sizeof(I) * 8 - 1)) >> 1);                                            \
  }
MAX_MIN(float, int32_t, uint32_t, vt_f32_bits, vt_f32_from_bits, f32)
MAX_MIN(double, int64_t, uint64_t, vt_f64_bits, vt_f64_from_bits, f64)

_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "IEEE formats");

#define LOOP1(NAME, suffix, T, R, formula)                                                         \
  static void NAME##_##suffix(int64_t n, const void *a_, const void *b_, const void *c_,           \
                              void *out_, int32_t width) {                                         \
    (void)b_, (void)c_, (void)width;                                                               \
    const T *x = a_;                                                                               \
    R *out = out_;                                                                                 \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) {                                                  \
      T a = x[i];                                                                                  \
      out[i] = (R)(formula);                                                                       \
    }                                                                                              \
  }
#define LOOP2(NAME, suffix, T, R, formula)                                                         \
  static void NAME##_##suffix(int64_t n, const void *a_, const void *b_, const void *c_,           \
                              void *out_, int32_t width) {                                         \
    (void)c_, (void)width;                                                                         \
    const T *x = a_, *y = b_;                                                                      \
    R *out = out_;                                                                                 \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) {                                                  \
      T a = x[i], b = y[i];                                                                        \
      out[i] = (R)(formula);                                                                       \
    }                                                                                              \
  }
#define LOOP3(NAME, suffix, T, formula)                                                            \
  static void NAME##_##suffix(int64_t n, const void *a_, const void *b_, const void *c_,           \
                              void *out_, int32_t width) {                                         \
    (void)width;                                                                                   \
    const T *x = a_, *y = b_, *z = c_;                                                             \
    T *out = out_;                                                                                 \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) {                                                  \
      T a = x[i], b = y[i], c = z[i];                                                              \
      out[i] = (formula);                                                                          \
    }                                                                                              \
  }

// Angles beyond the range of vec_math.h go through libm, one by one: the bits of the others do not
// depend on whether there are any.
#define ANGLE_LOOP(NAME, fast, exact)                                                              \
  static inline float NAME##_in_range(float a) {                                                   \
    float y = (float)fast((double)a);                                                              \
    return a == 0 && fast != vt_math_cos ? a : y;                                                  \
  }                                                                                                \
  static void NAME##_f32(int64_t n, const void *a_, const void *b_, const void *c_, void *out_,    \
                         int32_t width) {                                                          \
    (void)b_, (void)c_, (void)width;                                                               \
    const float *x = a_;                                                                           \
    float *out = out_;                                                                             \
    enum { BLOCK = 256 };                                                                          \
    for (int64_t at = 0; at < n; at += BLOCK) {                                                    \
      int64_t end = n - at < BLOCK ? n : at + BLOCK;                                               \
      int large = 0;                                                                               \
      for (int64_t i = at; i < end; i++) large |= !(fabsf(x[i]) < VT_MATH_ANGLE_LIMIT);            \
      if (large) {                                                                                 \
        for (int64_t i = at; i < end; i++)                                                         \
          out[i] = fabsf(x[i]) < VT_MATH_ANGLE_LIMIT ? NAME##_in_range(x[i])                       \
                                                     : (float)exact((double)x[i]);                 \
      } else {                                                                                     \
        VT_VEC_LOOP for (int64_t i = at; i < end; i++) out[i] = NAME##_in_range(x[i]);             \
      }                                                                                            \
    }                                                                                              \
  }
ANGLE_LOOP(SINE, vt_math_sin, sin)
ANGLE_LOOP(COSINE, vt_math_cos, cos)
ANGLE_LOOP(TAN, vt_math_tan, tan)
LOOP1(SINE, f64, double, double, sin(a))
LOOP1(COSINE, f64, double, double, cos(a))
LOOP1(TAN, f64, double, double, tan(a))

#define CAT(a, b)  a##_##b
#define FN(name)   CAT_(name, SUFFIX)
#define CAT_(a, b) CAT(a, b)

// The rows of vec_float.def as functions, then as table entries.
#define F1(op, formula)          LOOP1(op, f32, float, float, formula)
#define F1_BOOL(op, formula)     LOOP1(op, f32, float, uint8_t, formula)
#define F2(op, formula)          LOOP2(op, f32, float, float, formula)
#define F3(op, formula)          LOOP3(op, f32, float, formula)
#define CMP(name, at, formula)   LOOP2(CMP_##name, f32, float, uint8_t, formula)
#define ORDER(name, at, formula) LOOP2(ORDER_##name, f32, float, uint8_t, formula)
#define SUFFIX                   f32
#define M(name)                  name##f
#include "eval/vec_float.def"
#undef F1
#undef F1_BOOL
#undef F2
#undef F3
#undef CMP
#undef ORDER
#undef SUFFIX
#undef M
#define F1(op, formula)          LOOP1(op, f64, double, double, formula)
#define F1_BOOL(op, formula)     LOOP1(op, f64, double, uint8_t, formula)
#define F2(op, formula)          LOOP2(op, f64, double, double, formula)
#define F3(op, formula)          LOOP3(op, f64, double, formula)
#define CMP(name, at, formula)   LOOP2(CMP_##name, f64, double, uint8_t, formula)
#define ORDER(name, at, formula) LOOP2(ORDER_##name, f64, double, uint8_t, formula)
#define SUFFIX                   f64
#define M(name)                  name
#include "eval/vec_float.def"
#undef F1
#undef F1_BOOL
#undef F2
#undef F3
#undef CMP
#undef ORDER
#undef SUFFIX
#undef M

// Two planes to interleaved complex numbers.
#define COMPLEX_LOOP(suffix, T)                                                                    \
  static void COMPLEX_##suffix(int64_t n, const void *a_, const void *b_, const void *c_,          \
                               void *out_, int32_t width) {                                        \
    (void)c_, (void)width;                                                                         \
    const T *re = a_, *im = b_;                                                                    \
    T *out = out_;                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                              \
      out[2 * i] = re[i];                                                                          \
      out[2 * i + 1] = im[i];                                                                      \
    }                                                                                              \
  }
COMPLEX_LOOP(f32, float)
COMPLEX_LOOP(f64, double)

static void widen_bf16(int64_t n, const void *a, const void *b, const void *c, void *out_,
                       int32_t w) {
  (void)b, (void)c, (void)w;
  const uint16_t *x = a;
  float *out = out_;
  VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] = vt_f32_from_bf16(x[i]);
}
static void narrow_bf16(int64_t n, const void *a, const void *b, const void *c, void *out_,
                        int32_t w) {
  (void)b, (void)c, (void)w;
  const float *x = a;
  uint16_t *out = out_;
  VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] = vt_bf16_from_f32(x[i]);
}
static void round_bf16(int64_t n, const void *a, const void *b, const void *c, void *out_,
                       int32_t w) {
  (void)b, (void)c, (void)w;
  const float *x = a;
  float *out = out_;
  VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] = vt_f32_from_bf16(vt_bf16_from_f32(x[i]));
}
static void widen_f16(int64_t n, const void *a, const void *b, const void *c, void *out_,
                      int32_t w) {
  (void)b, (void)c, (void)w;
  const uint16_t *x = a;
  float *out = out_;
  VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] = vt_f32_from_f16(x[i]);
}
static void narrow_f16(int64_t n, const void *a, const void *b, const void *c, void *out_,
                       int32_t w) {
  (void)b, (void)c, (void)w;
  const float *x = a;
  uint16_t *out = out_;
  VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] = vt_f16_from_f32(x[i]);
}

// clang-format off
#define SELECT_LOOP(bytes, T)                                                                      \
  static void select_##bytes(int64_t n, const void *a_, const void *b_, const void *c_, void *out_, \
                             int32_t width) {                                                      \
    (void)width;                                                                                   \
    const uint8_t *p = a_;                                                                         \
    const T *x = b_, *y = c_;                                                                      \
    T *out = out_;                                                                                 \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) {                                                  \
      T on = x[i], off = y[i];                                                                     \
      out[i] = p[i] ? on : off;                                                                    \
    }                                                                                              \
  }
SELECT_LOOP(1, uint8_t)
SELECT_LOOP(2, uint16_t)
SELECT_LOOP(4, uint32_t)
SELECT_LOOP(8, uint64_t)
typedef struct wide { uint64_t low, high; } wide;
SELECT_LOOP(16, wide)
// clang-format on

vt_vec_fn VT_VEC_NAME(vt_vec_float_op)(vt_vec_class klass, vt_opcode code) {
#define F1(o, formula)                                                                             \
  VT_VEC_CASE(VT_VEC_F32, VT_OP_##o, o##_f32) VT_VEC_CASE(VT_VEC_F64, VT_OP_##o, o##_f64)
#define F1_BOOL(o, formula) F1(o, formula)
#define F2(o, formula)      F1(o, formula)
#define F3(o, formula)      F1(o, formula)
#define CMP(name, at, formula)
#define ORDER(name, at, formula)
  switch (VT_VEC_KEY(klass, code)) {
#include "eval/vec_float.def"
    F1(SINE, )
    F1(COSINE, )
    F1(TAN, )
    F1(COMPLEX, )
  default:
    return NULL;
  }
#undef F1
#undef F1_BOOL
#undef F2
#undef F3
#undef CMP
#undef ORDER
}

vt_vec_fn VT_VEC_NAME(vt_vec_float_compare)(vt_vec_class klass, bool total, int64_t direction) {
#define F1(o, formula)
#define F1_BOOL(o, formula)
#define F2(o, formula)
#define F3(o, formula)
#define ROW(total, at, loop)                                                                       \
  VT_VEC_CASE(VT_VEC_F32 * 2 + total, at, loop##_f32)                                              \
  VT_VEC_CASE(VT_VEC_F64 * 2 + total, at, loop##_f64)
#define CMP(name, at, formula)   ROW(0, at, CMP_##name)
#define ORDER(name, at, formula) ROW(1, at, ORDER_##name)
  switch (VT_VEC_KEY(klass * 2 + total, direction)) {
#include "eval/vec_float.def"
  default:
    return NULL;
  }
}

const vt_vec_table VT_VEC_NAME(vt_vec_loops) = {
    .select = {select_1, select_2, select_4, select_8, select_16},
    .widen_bf16 = widen_bf16,
    .narrow_bf16 = narrow_bf16,
    .round_bf16 = round_bf16,
    .widen_f16 = widen_f16,
    .narrow_f16 = narrow_f16,
};
