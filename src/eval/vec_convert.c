// SPDX-License-Identifier: Apache-2.0
// vec_convert.c - loops between the real classes. Built once per instruction set.
// Float to integer truncates and saturates, NaN gives 0; integer to integer keeps the low bits; to
// bool is x != 0.
#include "eval/vec.h"
#include "ir/module.h"

// Clamps x to T's range before the conversion, so that none is undefined. `least` and `beyond` are
// f64: the smallest value and the one after the largest.
#define SATURATE(T, is_signed, suffix)                                                             \
  static inline T saturate_##suffix(double x, double least, double beyond, T most) {               \
    double c = x < least ? least : x;                                                              \
    c = c < beyond ? c : 0;                                                                        \
    T r = (T)c;                                                                                    \
    return x >= beyond ? most : r;                                                                 \
  }
#define SATURATES(T, U, is_signed, suffix)                                                         \
  SATURATE(T, is_signed, suffix)                                                                   \
  static inline T wrap_##suffix(U x, int32_t width) {                                              \
    int32_t spare = (int32_t)sizeof(T) * 8 - width;                                                \
    return (T)((T)(U)(x << spare) >> spare);                                                       \
  }

#define SIGNATURE                                                                                  \
  (int64_t n, const void *a_, const void *b_, const void *c_, void *out_, int32_t width)
#define START(T, R)                                                                                \
  (void)b_, (void)c_, (void)width;                                                                 \
  const T *x = a_;                                                                                 \
  R *out = out_;
#define FROM_FLOAT(F, f, T, U, is_signed, t)                                                       \
  static void f##_to_##t SIGNATURE {                                                               \
    START(F, T)                                                                                    \
    double half = (double)((uint64_t)1 << (width - 1));                                            \
    double least = is_signed ? -half : 0, beyond = is_signed ? half : 2 * half;                    \
    T most = (T)((U) ~(U)0 >> ((int32_t)sizeof(U) * 8 - width + is_signed));                       \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] =                                           \
        saturate_##t((double)x[i], least, beyond, most);                                           \
  }
#define PLAIN(A, a, B, b)                                                                          \
  static void a##_to_##b SIGNATURE {                                                               \
    START(A, B)                                                                                    \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] = (B)x[i];                                  \
  }
#define TO_PRED(A, a)                                                                              \
  static void a##_to_pred SIGNATURE {                                                              \
    START(A, uint8_t)                                                                              \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] = x[i] != 0;                                \
  }
#define INT_TO_INT(A, a, B, U, b)                                                                  \
  static void a##_to_##b SIGNATURE {                                                               \
    START(A, B)                                                                                    \
    VT_VEC_LOOP for (int64_t i = 0; i < n; i++) out[i] = wrap_##b((U)x[i], width);                 \
  }
SATURATES(int8_t, uint8_t, 1, s8)
SATURATES(int16_t, uint16_t, 1, s16)
SATURATES(int32_t, uint32_t, 1, s32)
SATURATES(int64_t, uint64_t, 1, s64)
SATURATES(uint8_t, uint8_t, 0, u8)
SATURATES(uint16_t, uint16_t, 0, u16)
SATURATES(uint32_t, uint32_t, 0, u32)
SATURATES(uint64_t, uint64_t, 0, u64)

FROM_FLOAT(float, f32, int8_t, uint8_t, 1, s8)
FROM_FLOAT(double, f64, int8_t, uint8_t, 1, s8)
PLAIN(int8_t, s8, float, f32)
PLAIN(int8_t, s8, double, f64)
TO_PRED(int8_t, s8)
PLAIN(uint8_t, pred, int8_t, s8)
INT_TO_INT(int8_t, s8, int8_t, uint8_t, s8)
INT_TO_INT(int16_t, s16, int8_t, uint8_t, s8)
INT_TO_INT(int32_t, s32, int8_t, uint8_t, s8)
INT_TO_INT(int64_t, s64, int8_t, uint8_t, s8)
INT_TO_INT(uint8_t, u8, int8_t, uint8_t, s8)
INT_TO_INT(uint16_t, u16, int8_t, uint8_t, s8)
INT_TO_INT(uint32_t, u32, int8_t, uint8_t, s8)
INT_TO_INT(uint64_t, u64, int8_t, uint8_t, s8)

FROM_FLOAT(float, f32, int16_t, uint16_t, 1, s16)
FROM_FLOAT(double, f64, int16_t, uint16_t, 1, s16)
PLAIN(int16_t, s16, float, f32)
PLAIN(int16_t, s16, double, f64)
TO_PRED(int16_t, s16)
PLAIN(uint8_t, pred, int16_t, s16)
INT_TO_INT(int8_t, s8, int16_t, uint16_t, s16)
INT_TO_INT(int16_t, s16, int16_t, uint16_t, s16)
INT_TO_INT(int32_t, s32, int16_t, uint16_t, s16)
INT_TO_INT(int64_t, s64, int16_t, uint16_t, s16)
INT_TO_INT(uint8_t, u8, int16_t, uint16_t, s16)
INT_TO_INT(uint16_t, u16, int16_t, uint16_t, s16)
INT_TO_INT(uint32_t, u32, int16_t, uint16_t, s16)
INT_TO_INT(uint64_t, u64, int16_t, uint16_t, s16)

FROM_FLOAT(float, f32, int32_t, uint32_t, 1, s32)
FROM_FLOAT(double, f64, int32_t, uint32_t, 1, s32)
PLAIN(int32_t, s32, float, f32)
PLAIN(int32_t, s32, double, f64)
TO_PRED(int32_t, s32)
PLAIN(uint8_t, pred, int32_t, s32)
INT_TO_INT(int8_t, s8, int32_t, uint32_t, s32)
INT_TO_INT(int16_t, s16, int32_t, uint32_t, s32)
INT_TO_INT(int32_t, s32, int32_t, uint32_t, s32)
INT_TO_INT(int64_t, s64, int32_t, uint32_t, s32)
INT_TO_INT(uint8_t, u8, int32_t, uint32_t, s32)
INT_TO_INT(uint16_t, u16, int32_t, uint32_t, s32)
INT_TO_INT(uint32_t, u32, int32_t, uint32_t, s32)
INT_TO_INT(uint64_t, u64, int32_t, uint32_t, s32)

FROM_FLOAT(float, f32, int64_t, uint64_t, 1, s64)
FROM_FLOAT(double, f64, int64_t, uint64_t, 1, s64)
PLAIN(int64_t, s64, float, f32)
PLAIN(int64_t, s64, double, f64)
TO_PRED(int64_t, s64)
PLAIN(uint8_t, pred, int64_t, s64)
INT_TO_INT(int8_t, s8, int64_t, uint64_t, s64)
INT_TO_INT(int16_t, s16, int64_t, uint64_t, s64)
INT_TO_INT(int32_t, s32, int64_t, uint64_t, s64)
INT_TO_INT(int64_t, s64, int64_t, uint64_t, s64)
INT_TO_INT(uint8_t, u8, int64_t, uint64_t, s64)
INT_TO_INT(uint16_t, u16, int64_t, uint64_t, s64)
INT_TO_INT(uint32_t, u32, int64_t, uint64_t, s64)
INT_TO_INT(uint64_t, u64, int64_t, uint64_t, s64)

FROM_FLOAT(float, f32, uint8_t, uint8_t, 0, u8)
FROM_FLOAT(double, f64, uint8_t, uint8_t, 0, u8)
PLAIN(uint8_t, u8, float, f32)
PLAIN(uint8_t, u8, double, f64)
TO_PRED(uint8_t, u8)
PLAIN(uint8_t, pred, uint8_t, u8)
INT_TO_INT(int8_t, s8, uint8_t, uint8_t, u8)
INT_TO_INT(int16_t, s16, uint8_t, uint8_t, u8)
INT_TO_INT(int32_t, s32, uint8_t, uint8_t, u8)
INT_TO_INT(int64_t, s64, uint8_t, uint8_t, u8)
INT_TO_INT(uint8_t, u8, uint8_t, uint8_t, u8)
INT_TO_INT(uint16_t, u16, uint8_t, uint8_t, u8)
INT_TO_INT(uint32_t, u32, uint8_t, uint8_t, u8)
INT_TO_INT(uint64_t, u64, uint8_t, uint8_t, u8)

FROM_FLOAT(float, f32, uint16_t, uint16_t, 0, u16)
FROM_FLOAT(double, f64, uint16_t, uint16_t, 0, u16)
PLAIN(uint16_t, u16, float, f32)
PLAIN(uint16_t, u16, double, f64)
TO_PRED(uint16_t, u16)
PLAIN(uint8_t, pred, uint16_t, u16)
INT_TO_INT(int8_t, s8, uint16_t, uint16_t, u16)
INT_TO_INT(int16_t, s16, uint16_t, uint16_t, u16)
INT_TO_INT(int32_t, s32, uint16_t, uint16_t, u16)
INT_TO_INT(int64_t, s64, uint16_t, uint16_t, u16)
INT_TO_INT(uint8_t, u8, uint16_t, uint16_t, u16)
INT_TO_INT(uint16_t, u16, uint16_t, uint16_t, u16)
INT_TO_INT(uint32_t, u32, uint16_t, uint16_t, u16)
INT_TO_INT(uint64_t, u64, uint16_t, uint16_t, u16)

FROM_FLOAT(float, f32, uint32_t, uint32_t, 0, u32)
FROM_FLOAT(double, f64, uint32_t, uint32_t, 0, u32)
PLAIN(uint32_t, u32, float, f32)
PLAIN(uint32_t, u32, double, f64)
TO_PRED(uint32_t, u32)
PLAIN(uint8_t, pred, uint32_t, u32)
INT_TO_INT(int8_t, s8, uint32_t, uint32_t, u32)
INT_TO_INT(int16_t, s16, uint32_t, uint32_t, u32)
INT_TO_INT(int32_t, s32, uint32_t, uint32_t, u32)
INT_TO_INT(int64_t, s64, uint32_t, uint32_t, u32)
INT_TO_INT(uint8_t, u8, uint32_t, uint32_t, u32)
INT_TO_INT(uint16_t, u16, uint32_t, uint32_t, u32)
INT_TO_INT(uint32_t, u32, uint32_t, uint32_t, u32)
INT_TO_INT(uint64_t, u64, uint32_t, uint32_t, u32)

FROM_FLOAT(float, f32, uint64_t, uint64_t, 0, u64)
FROM_FLOAT(double, f64, uint64_t, uint64_t, 0, u64)
PLAIN(uint64_t, u64, float, f32)
PLAIN(uint64_t, u64, double, f64)
TO_PRED(uint64_t, u64)
PLAIN(uint8_t, pred, uint64_t, u64)
INT_TO_INT(int8_t, s8, uint64_t, uint64_t, u64)
INT_TO_INT(int16_t, s16, uint64_t, uint64_t, u64)
INT_TO_INT(int32_t, s32, uint64_t, uint64_t, u64)
INT_TO_INT(int64_t, s64, uint64_t, uint64_t, u64)
INT_TO_INT(uint8_t, u8, uint64_t, uint64_t, u64)
INT_TO_INT(uint16_t, u16, uint64_t, uint64_t, u64)
INT_TO_INT(uint32_t, u32, uint64_t, uint64_t, u64)
INT_TO_INT(uint64_t, u64, uint64_t, uint64_t, u64)

PLAIN(float, f32, double, f64)
PLAIN(double, f64, float, f32)
TO_PRED(float, f32)
TO_PRED(double, f64)
PLAIN(uint8_t, pred, float, f32)
PLAIN(uint8_t, pred, double, f64)
// The caller handles identical types as a copy.
_Static_assert(VT_VEC_F64 - VT_VEC_PRED == 10, "eleven real classes convert");

#define TO_ALL_INTS(klass, a)                                                                      \
  VT_VEC_CASE(klass, VT_VEC_S8, a##_to_s8)                                                         \
  VT_VEC_CASE(klass, VT_VEC_S16, a##_to_s16)                                                       \
  VT_VEC_CASE(klass, VT_VEC_S32, a##_to_s32)                                                       \
  VT_VEC_CASE(klass, VT_VEC_S64, a##_to_s64)                                                       \
  VT_VEC_CASE(klass, VT_VEC_U8, a##_to_u8)                                                         \
  VT_VEC_CASE(klass, VT_VEC_U16, a##_to_u16)                                                       \
  VT_VEC_CASE(klass, VT_VEC_U32, a##_to_u32)                                                       \
  VT_VEC_CASE(klass, VT_VEC_U64, a##_to_u64)
#define FROM_INT(klass, a)                                                                         \
  TO_ALL_INTS(klass, a)                                                                            \
  VT_VEC_CASE(klass, VT_VEC_PRED, a##_to_pred)                                                     \
  VT_VEC_CASE(klass, VT_VEC_F32, a##_to_f32)                                                       \
  VT_VEC_CASE(klass, VT_VEC_F64, a##_to_f64)

vt_vec_fn VT_VEC_NAME(vt_vec_convert)(vt_vec_class from, vt_vec_class to) {
  switch (VT_VEC_KEY(from, to)) {
    FROM_INT(VT_VEC_S8, s8)
    FROM_INT(VT_VEC_S16, s16)
    FROM_INT(VT_VEC_S32, s32)
    FROM_INT(VT_VEC_S64, s64)
    FROM_INT(VT_VEC_U8, u8)
    FROM_INT(VT_VEC_U16, u16)
    FROM_INT(VT_VEC_U32, u32)
    FROM_INT(VT_VEC_U64, u64)
    TO_ALL_INTS(VT_VEC_PRED, pred)
    TO_ALL_INTS(VT_VEC_F32, f32)
    TO_ALL_INTS(VT_VEC_F64, f64)
    VT_VEC_CASE(VT_VEC_PRED, VT_VEC_F32, pred_to_f32)
    VT_VEC_CASE(VT_VEC_PRED, VT_VEC_F64, pred_to_f64)
    VT_VEC_CASE(VT_VEC_F32, VT_VEC_F64, f32_to_f64)
    VT_VEC_CASE(VT_VEC_F64, VT_VEC_F32, f64_to_f32)
    VT_VEC_CASE(VT_VEC_F32, VT_VEC_PRED, f32_to_pred)
    VT_VEC_CASE(VT_VEC_F64, VT_VEC_PRED, f64_to_pred)
  default:
    return NULL;
  }
}
