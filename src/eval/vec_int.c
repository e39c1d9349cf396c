// SPDX-License-Identifier: Apache-2.0
// vec_int.c - elementwise loops of integers and bool. Built once per instruction set.
// 2- and 4-bit types run in the 8-bit loops: `width` says where results wrap.
#include "eval/vec.h"
#include "ir/module.h"

// One formula serves signed and unsigned types.
#pragma GCC diagnostic ignored "-Wtype-limits"

#define CAT(a, b)  a##_##b
#define CAT_(a, b) CAT(a, b)
#define FN(name)   CAT_(name, SUFFIX)

// Helpers per type. Division never traps: x / 0 has all bits set, MIN / -1 is MIN; shifts and
// powers follow the behaviour measured on XLA (src/eval/README.md).
#define HELPERS(T, U, suffix, is_signed)                                                           \
  static inline T wrap_##suffix(U x, int32_t width) {                                              \
    int32_t spare = (int32_t)sizeof(T) * 8 - width;                                                \
    return (T)((T)(U)(x << spare) >> spare);                                                       \
  }                                                                                                \
  static inline U product_##suffix(U a, U b) {                                                     \
    return (U)((1u * a) * b);                                                                      \
  }                                                                                                \
  static inline int leading_zeros_##suffix(U a, int32_t width) {                                   \
    return a ? __builtin_clzll((unsigned long long)a) - 64 + width : width;                        \
  }                                                                                                \
  static inline T divide_##suffix(T a, T b, int32_t width) {                                       \
    if (b == 0) return wrap_##suffix((U) ~(U)0, width);                                            \
    if (is_signed && b == (T) - 1) return wrap_##suffix((U)(0 - (U)a), width);                     \
    return (T)(a / b);                                                                             \
  }                                                                                                \
  static inline T remainder_##suffix(T a, T b) {                                                   \
    if (b == 0) return a;                                                                          \
    if (is_signed && b == (T) - 1) return 0;                                                       \
    return (T)(a % b);                                                                             \
  }                                                                                                \
  static inline U power_##suffix(T a, T b) {                                                       \
    if (is_signed && b < 0) return a == 1 ? (U)1 : a == (T) - 1 ? (b & 1 ? (U) - 1 : (U)1) : (U)0; \
    U base = (U)a, r = 1;                                                                          \
    for (U e = (U)b; e; e = (U)(e >> 1)) {                                                         \
      if (e & 1) r = product_##suffix(r, base);                                                    \
      base = product_##suffix(base, base);                                                         \
    }                                                                                              \
    return r;                                                                                      \
  }                                                                                                \
  static inline U shift_left_##suffix(U a, U b, int32_t width) {                                   \
    return (U)(b < (U)width ? a << (b & (sizeof(U) * 8 - 1)) : 0);                                 \
  }                                                                                                \
  static inline U shift_right_##suffix(U a, U b, int32_t width) {                                  \
    return (U)(b < (U)width ? a >> (b & (sizeof(U) * 8 - 1)) : 0);                                 \
  }                                                                                                \
  static inline T shift_sign_##suffix(T a, U b, int32_t width) {                                   \
    U most = (U)(width - 1), by = b < most ? b : most;                                             \
    if (is_signed) return (T)(a >> by);                                                            \
    return wrap_##suffix((U)(CAT(signed_right, suffix)((U)a, by, width)), width);                  \
  }                                                                                                \
  static inline T max_##suffix(T a, T b) {                                                         \
    return a > b ? a : b;                                                                          \
  }                                                                                                \
  static inline T min_##suffix(T a, T b) {                                                         \
    return a < b ? a : b;                                                                          \
  }

// An arithmetic shift of an unsigned element treats its top bit as the sign.
#define SIGNED_RIGHT(U, S, suffix)                                                                 \
  static inline U signed_right_##suffix(U a, U by, int32_t width) {                                \
    int32_t spare = (int32_t)sizeof(U) * 8 - width;                                                \
    return (U)((S)((S)(U)(a << spare) >> spare) >> by);                                            \
  }
SIGNED_RIGHT(uint8_t, int8_t, s8)
SIGNED_RIGHT(uint16_t, int16_t, s16)
SIGNED_RIGHT(uint32_t, int32_t, s32)
SIGNED_RIGHT(uint64_t, int64_t, s64)
SIGNED_RIGHT(uint8_t, int8_t, u8)
SIGNED_RIGHT(uint16_t, int16_t, u16)
SIGNED_RIGHT(uint32_t, int32_t, u32)
SIGNED_RIGHT(uint64_t, int64_t, u64)
HELPERS(int8_t, uint8_t, s8, 1)
HELPERS(int16_t, uint16_t, s16, 1)
HELPERS(int32_t, uint32_t, s32, 1)
HELPERS(int64_t, uint64_t, s64, 1)
HELPERS(uint8_t, uint8_t, u8, 0)
HELPERS(uint16_t, uint16_t, u16, 0)
HELPERS(uint32_t, uint32_t, u32, 0)
HELPERS(uint64_t, uint64_t, u64, 0)

#define WRAP(x) FN(wrap)((U)(x), width)

#define LOOP(NAME, T_, U_, R, LOADS, formula)                                                      \
  static void NAME(int64_t n, const void *a_, const void *b_, const void *c_, void *out_,          \
                   int32_t width) {                                                                \
    typedef T_ T;                                                                                  \
    typedef U_ U;                                                                                  \
    (void)b_, (void)c_;                                                                            \
    const U mask = (U)((U) ~(U)0 >> ((int32_t)sizeof(U) * 8 - width));                             \
    (void)mask;                                                                                    \
    const T *x = a_, *y = b_, *z = c_;                                                             \
    (void)y, (void)z;                                                                              \
    R *out = out_;                                                                                 \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) {                                                  \
      LOADS                                                                                        \
      out[i] = (R)(formula);                                                                       \
    }                                                                                              \
  }
#define LOADS1 T a = x[i];
#define LOADS2 T a = x[i], b = y[i];
#define LOADS3 T a = x[i], b = y[i], c = z[i];
#define COMPARES(T, U, suffix)                                                                     \
  LOOP(CMP_EQ_##suffix, T, U, uint8_t, LOADS2, a == b)                                             \
  LOOP(CMP_NE_##suffix, T, U, uint8_t, LOADS2, a != b)                                             \
  LOOP(CMP_GE_##suffix, T, U, uint8_t, LOADS2, a >= b)                                             \
  LOOP(CMP_GT_##suffix, T, U, uint8_t, LOADS2, a > b)                                              \
  LOOP(CMP_LE_##suffix, T, U, uint8_t, LOADS2, a <= b)                                             \
  LOOP(CMP_LT_##suffix, T, U, uint8_t, LOADS2, a < b)

#define SUFFIX          s8
#define IS_SIGNED       1
#define I1(op, formula) LOOP(op##_s8, int8_t, uint8_t, int8_t, LOADS1, formula)
#define I2(op, formula) LOOP(op##_s8, int8_t, uint8_t, int8_t, LOADS2, formula)
#define I3(op, formula) LOOP(op##_s8, int8_t, uint8_t, int8_t, LOADS3, formula)
#include "eval/vec_int.def"
COMPARES(int8_t, uint8_t, s8)
#undef SUFFIX
#undef IS_SIGNED
#undef I1
#undef I2
#undef I3

#define SUFFIX          s16
#define IS_SIGNED       1
#define I1(op, formula) LOOP(op##_s16, int16_t, uint16_t, int16_t, LOADS1, formula)
#define I2(op, formula) LOOP(op##_s16, int16_t, uint16_t, int16_t, LOADS2, formula)
#define I3(op, formula) LOOP(op##_s16, int16_t, uint16_t, int16_t, LOADS3, formula)
#include "eval/vec_int.def"
COMPARES(int16_t, uint16_t, s16)
#undef SUFFIX
#undef IS_SIGNED
#undef I1
#undef I2
#undef I3

#define SUFFIX          s32
#define IS_SIGNED       1
#define I1(op, formula) LOOP(op##_s32, int32_t, uint32_t, int32_t, LOADS1, formula)
#define I2(op, formula) LOOP(op##_s32, int32_t, uint32_t, int32_t, LOADS2, formula)
#define I3(op, formula) LOOP(op##_s32, int32_t, uint32_t, int32_t, LOADS3, formula)
#include "eval/vec_int.def"
COMPARES(int32_t, uint32_t, s32)
#undef SUFFIX
#undef IS_SIGNED
#undef I1
#undef I2
#undef I3

#define SUFFIX          s64
#define IS_SIGNED       1
#define I1(op, formula) LOOP(op##_s64, int64_t, uint64_t, int64_t, LOADS1, formula)
#define I2(op, formula) LOOP(op##_s64, int64_t, uint64_t, int64_t, LOADS2, formula)
#define I3(op, formula) LOOP(op##_s64, int64_t, uint64_t, int64_t, LOADS3, formula)
#include "eval/vec_int.def"
COMPARES(int64_t, uint64_t, s64)
#undef SUFFIX
#undef IS_SIGNED
#undef I1
#undef I2
#undef I3

#define SUFFIX          u8
#define IS_SIGNED       0
#define I1(op, formula) LOOP(op##_u8, uint8_t, uint8_t, uint8_t, LOADS1, formula)
#define I2(op, formula) LOOP(op##_u8, uint8_t, uint8_t, uint8_t, LOADS2, formula)
#define I3(op, formula) LOOP(op##_u8, uint8_t, uint8_t, uint8_t, LOADS3, formula)
#include "eval/vec_int.def"
COMPARES(uint8_t, uint8_t, u8)
#undef SUFFIX
#undef IS_SIGNED
#undef I1
#undef I2
#undef I3

#define SUFFIX          u16
#define IS_SIGNED       0
#define I1(op, formula) LOOP(op##_u16, uint16_t, uint16_t, uint16_t, LOADS1, formula)
#define I2(op, formula) LOOP(op##_u16, uint16_t, uint16_t, uint16_t, LOADS2, formula)
#define I3(op, formula) LOOP(op##_u16, uint16_t, uint16_t, uint16_t, LOADS3, formula)
#include "eval/vec_int.def"
COMPARES(uint16_t, uint16_t, u16)
#undef SUFFIX
#undef IS_SIGNED
#undef I1
#undef I2
#undef I3

#define SUFFIX          u32
#define IS_SIGNED       0
#define I1(op, formula) LOOP(op##_u32, uint32_t, uint32_t, uint32_t, LOADS1, formula)
#define I2(op, formula) LOOP(op##_u32, uint32_t, uint32_t, uint32_t, LOADS2, formula)
#define I3(op, formula) LOOP(op##_u32, uint32_t, uint32_t, uint32_t, LOADS3, formula)
#include "eval/vec_int.def"
COMPARES(uint32_t, uint32_t, u32)
#undef SUFFIX
#undef IS_SIGNED
#undef I1
#undef I2
#undef I3

#define SUFFIX          u64
#define IS_SIGNED       0
#define I1(op, formula) LOOP(op##_u64, uint64_t, uint64_t, uint64_t, LOADS1, formula)
#define I2(op, formula) LOOP(op##_u64, uint64_t, uint64_t, uint64_t, LOADS2, formula)
#define I3(op, formula) LOOP(op##_u64, uint64_t, uint64_t, uint64_t, LOADS3, formula)
#include "eval/vec_int.def"
COMPARES(uint64_t, uint64_t, u64)
#undef SUFFIX
#undef IS_SIGNED
#undef I1
#undef I2
#undef I3

_Static_assert((int8_t)-1 >> 1 == -1, "right shifts keep the sign");

// Bool: add is or, multiply is and (as max and min); compares as unsigned.
LOOP(NOT_pred, uint8_t, uint8_t, uint8_t, LOADS1, !a)
LOOP(OR_pred, uint8_t, uint8_t, uint8_t, LOADS2, a | b)
LOOP(AND_pred, uint8_t, uint8_t, uint8_t, LOADS2, a &b)
LOOP(XOR_pred, uint8_t, uint8_t, uint8_t, LOADS2, a ^ b)
LOOP(CLAMP_pred, uint8_t, uint8_t, uint8_t, LOADS3, (a | b) & c)
COMPARES(uint8_t, uint8_t, pred)

static vt_vec_fn pred_op(vt_opcode code) {
  switch ((int)code) {
  case VT_OP_NOT:
    return NOT_pred;
  case VT_OP_OR:
  case VT_OP_ADD:
  case VT_OP_MAXIMUM:
    return OR_pred;
  case VT_OP_AND:
  case VT_OP_MULTIPLY:
  case VT_OP_MINIMUM:
    return AND_pred;
  case VT_OP_XOR:
    return XOR_pred;
  case VT_OP_CLAMP:
    return CLAMP_pred;
  default:
    return NULL;
  }
}

vt_vec_fn VT_VEC_NAME(vt_vec_int_op)(vt_vec_class klass, vt_opcode code) {
#define ROW(o)                                                                                     \
  VT_VEC_CASE(VT_VEC_S8, VT_OP_##o, o##_s8)                                                        \
  VT_VEC_CASE(VT_VEC_S16, VT_OP_##o, o##_s16)                                                      \
  VT_VEC_CASE(VT_VEC_S32, VT_OP_##o, o##_s32)                                                      \
  VT_VEC_CASE(VT_VEC_S64, VT_OP_##o, o##_s64)                                                      \
  VT_VEC_CASE(VT_VEC_U8, VT_OP_##o, o##_u8)                                                        \
  VT_VEC_CASE(VT_VEC_U16, VT_OP_##o, o##_u16)                                                      \
  VT_VEC_CASE(VT_VEC_U32, VT_OP_##o, o##_u32)                                                      \
  VT_VEC_CASE(VT_VEC_U64, VT_OP_##o, o##_u64)
#define I1(o, formula) ROW(o)
#define I2(o, formula) ROW(o)
#define I3(o, formula) ROW(o)
  if (klass == VT_VEC_PRED) return pred_op(code);
  switch (VT_VEC_KEY(klass, code)) {
#include "eval/vec_int.def"
  default:
    return NULL;
  }
}

// Integers are in total order.
vt_vec_fn VT_VEC_NAME(vt_vec_int_compare)(vt_vec_class klass, bool total, int64_t direction) {
#define COMPARE_ROW(klass, suffix)                                                                 \
  VT_VEC_CASE(klass, VT_CMP_EQ, CMP_EQ_##suffix)                                                   \
  VT_VEC_CASE(klass, VT_CMP_NE, CMP_NE_##suffix)                                                   \
  VT_VEC_CASE(klass, VT_CMP_GE, CMP_GE_##suffix)                                                   \
  VT_VEC_CASE(klass, VT_CMP_GT, CMP_GT_##suffix)                                                   \
  VT_VEC_CASE(klass, VT_CMP_LE, CMP_LE_##suffix)                                                   \
  VT_VEC_CASE(klass, VT_CMP_LT, CMP_LT_##suffix)
  (void)total;
  switch (VT_VEC_KEY(klass, direction)) {
    COMPARE_ROW(VT_VEC_PRED, pred)
    COMPARE_ROW(VT_VEC_S8, s8)
    COMPARE_ROW(VT_VEC_S16, s16)
    COMPARE_ROW(VT_VEC_S32, s32)
    COMPARE_ROW(VT_VEC_S64, s64)
    COMPARE_ROW(VT_VEC_U8, u8)
    COMPARE_ROW(VT_VEC_U16, u16)
    COMPARE_ROW(VT_VEC_U32, u32)
    COMPARE_ROW(VT_VEC_U64, u64)
  default:
    return NULL;
  }
}
