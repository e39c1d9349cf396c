// SPDX-License-Identifier: Apache-2.0
// number.h - small floating formats (2 to 16 bits of storage) to and from f32 and f64, independent
// of MXCSR.
//
// Decoding is exact. Encoding rounds once, to nearest even; overflow gives infinity where the
// format has one, otherwise NaN (...FN and FNUZ 8-bit types, f8E8M0FNU) or the largest value (f4
// and f6 types, whose NaN is -0). f8E8M0FNU has neither sign nor zero: both give NaN, and ties
// round up (as in XLA).
#ifndef VT_IR_NUMBER_H
#define VT_IR_NUMBER_H

#include <string.h>

#include "ir/type.h"

static inline uint32_t vt_f32_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline float vt_f32_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline uint64_t vt_f64_bits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline double vt_f64_from_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// f32 to bf16: nearest even; NaN keeps its sign and stays NaN.
static inline uint16_t vt_bf16_from_f32(float x) {
  uint32_t bits = vt_f32_bits(x);
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
}
static inline float vt_f32_from_bf16(uint16_t x) {
  return vt_f32_from_bits((uint32_t)x << 16);
}

// f32 to f16. Values below the normal range are rounded by an addition whose last place is f16's.
static inline uint16_t vt_f16_from_f32(float x) {
  uint32_t bits = vt_f32_bits(x), sign = bits >> 16 & 0x8000u, a = bits & 0x7fffffffu;
  uint32_t normal = (a + 0xc8000fffu + (a >> 13 & 1)) >> 13;
  uint32_t tiny = vt_f32_bits(vt_f32_from_bits(a < 0x38800000u ? a : 0) + 0.5f) - 0x3f000000u;
  uint32_t huge = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (uint16_t)(sign | (a < 0x38800000u ? tiny : a >= 0x477ff000u ? huge : normal));
}
static inline float vt_f32_from_f16(uint16_t x) {
  uint32_t a = x & 0x7fffu, sign = (uint32_t)(x & 0x8000u) << 16;
  uint32_t normal = (a << 13) + 0x38000000u;
  uint32_t huge = (a << 13) | 0x7f800000u;
  uint32_t tiny = vt_f32_bits((float)(int32_t)a * 0x1p-24f);
  return vt_f32_from_bits(sign | (a < 0x400u ? tiny : a >= 0x7c00u ? huge : normal));
}

// f32 to f64 without flushing subnormals, regardless of MXCSR.
double vt_f64_from_f32_exact(float x);

// The element at `index` of an array of any real type, as f64 (64-bit integers round); complex: the
// real part.
double vt_number_load(vt_dtype dtype, const void *data, int64_t index);
// Stores with one rounding (integers: truncation and saturation; bool: x != 0; complex: imaginary
// part 0).
void vt_number_store(vt_dtype dtype, void *data, int64_t index, double x);
// The code of x in a format of at most 16 bits.
uint16_t vt_float_encode(vt_dtype dtype, double x);

// Arrays of a float type of at most 16 bits to f32 (exact) and back (one rounding).
void vt_float_widen(vt_dtype dtype, int64_t n, const void *from, float *to);
void vt_float_narrow(vt_dtype dtype, int64_t n, const float *from, void *to);

// An integer element, sign- or zero-extended; bool counts as 0 and 1. U64 keeps its bits.
static inline int64_t vt_int_load(vt_dtype dtype, const void *data, int64_t index) {
  switch ((int)dtype) {
  case VT_PRED:
  case VT_U2:
  case VT_U4:
  case VT_U8:
    return ((const uint8_t *)data)[index];
  case VT_S2:
  case VT_S4:
  case VT_S8:
    return ((const int8_t *)data)[index];
  case VT_S16:
    return ((const int16_t *)data)[index];
  case VT_U16:
    return ((const uint16_t *)data)[index];
  case VT_S32:
    return ((const int32_t *)data)[index];
  case VT_U32:
    return ((const uint32_t *)data)[index];
  default:
    return ((const int64_t *)data)[index];
  }
}

#endif
