// SPDX-License-Identifier: Apache-2.0
// kernel_reduce.c - see kernel_reduce.h. One loop per reducer and type, which the C compiler
// vectorises.
#include "base/check.h"
#include "host/kernel_reduce.h"

#include <math.h>
#include <string.h>

// dtype, C type, lowest, highest
// clang-format off
#define INTEGERS(X)                                                                                \
  X(S8, int8_t, INT8_MIN, INT8_MAX) X(S16, int16_t, INT16_MIN, INT16_MAX)                          \
  X(S32, int32_t, INT32_MIN, INT32_MAX) X(S64, int64_t, INT64_MIN, INT64_MAX)                      \
  X(U8, uint8_t, 0, UINT8_MAX) X(U16, uint16_t, 0, UINT16_MAX) X(U32, uint32_t, 0, UINT32_MAX)     \
  X(U64, uint64_t, 0, UINT64_MAX)
// clang-format on
#define FLOATS(X) X(F32, float, -INFINITY, INFINITY) X(F64, double, -INFINITY, INFINITY)

#define EACH(expression)                                                                           \
  for (int64_t i = 0; i < count; i++) {                                                            \
    a[i] = (expression);                                                                           \
  }                                                                                                \
  return

#define INTEGER_KERNELS(dtype, type, low, high)                                                    \
  static void fill_##dtype(vt_reducer reducer, type *a, int64_t count) {                           \
    type x = 0;                                                                                    \
    if (reducer == VT_REDUCE_MUL) x = 1;                                                           \
    if (reducer == VT_REDUCE_MAX) x = low;                                                         \
    if (reducer == VT_REDUCE_MIN) x = high;                                                        \
    if (reducer == VT_REDUCE_AND) x = (type) - 1;                                                  \
    for (int64_t i = 0; i < count; i++) a[i] = x;                                                  \
  }                                                                                                \
  static void combine_##dtype(vt_reducer reducer, type *a, const type *b, int64_t count) {         \
    switch (reducer) {                                                                             \
    case VT_REDUCE_ADD:                                                                            \
      EACH((type)((uint64_t)a[i] + (uint64_t)b[i]));                                               \
    case VT_REDUCE_MUL:                                                                            \
      EACH((type)((uint64_t)a[i] * (uint64_t)b[i]));                                               \
    case VT_REDUCE_MAX:                                                                            \
      EACH(a[i] > b[i] ? a[i] : b[i]);                                                             \
    case VT_REDUCE_MIN:                                                                            \
      EACH(a[i] < b[i] ? a[i] : b[i]);                                                             \
    case VT_REDUCE_AND:                                                                            \
      EACH(a[i] & b[i]);                                                                           \
    default:                                                                                       \
      EACH(a[i] | b[i]);                                                                           \
    }                                                                                              \
  }
#define FLOAT_KERNELS(dtype, type, low, high)                                                      \
  static void fill_##dtype(vt_reducer reducer, type *a, int64_t count) {                           \
    type x = (type) - 0.0;                                                                         \
    if (reducer == VT_REDUCE_MUL) x = 1;                                                           \
    if (reducer == VT_REDUCE_MAX) x = low;                                                         \
    if (reducer == VT_REDUCE_MIN) x = high;                                                        \
    for (int64_t i = 0; i < count; i++) a[i] = x;                                                  \
  }                                                                                                \
  static void combine_##dtype(vt_reducer reducer, type *a, const type *b, int64_t count) {         \
    switch (reducer) {                                                                             \
    case VT_REDUCE_ADD:                                                                            \
      EACH(a[i] + b[i]);                                                                           \
    case VT_REDUCE_MUL:                                                                            \
      EACH(a[i] * b[i]);                                                                           \
    case VT_REDUCE_MAX:                                                                            \
      EACH(a[i] > b[i] || a[i] != a[i] ? a[i] : b[i]);                                             \
    default:                                                                                       \
      EACH(a[i] < b[i] || a[i] != a[i] ? a[i] : b[i]);                                             \
    }                                                                                              \
  }
INTEGERS(INTEGER_KERNELS)
FLOATS(FLOAT_KERNELS)

// pred as bytes: sum and maximum are "or", product and minimum "and".
static vt_reducer bool_reducer(vt_reducer reducer) {
  bool any = reducer == VT_REDUCE_ADD || reducer == VT_REDUCE_MAX || reducer == VT_REDUCE_OR;
  return any ? VT_REDUCE_OR : VT_REDUCE_AND;
}

void vt_reduce_fill(vt_reducer reducer, vt_dtype dtype, void *out, int64_t count) {
  switch (dtype) {
#define CASE(name, type, low, high)                                                                \
  case VT_##name:                                                                                  \
    fill_##name(reducer, out, count);                                                              \
    return;
    INTEGERS(CASE)
    FLOATS(CASE)
#undef CASE
  default:
    vt_assert(dtype == VT_PRED);
    memset(out, bool_reducer(reducer) == VT_REDUCE_AND, (size_t)count);
  }
}

void vt_reduce_combine(vt_reducer reducer, vt_dtype dtype, void *into, const void *from,
                       int64_t count) {
  switch (dtype) {
#define CASE(name, type, low, high)                                                                \
  case VT_##name:                                                                                  \
    combine_##name(reducer, into, from, count);                                                    \
    return;
    INTEGERS(CASE)
    FLOATS(CASE)
#undef CASE
  default:
    combine_U8(bool_reducer(reducer), into, from, count);
  }
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // rounds past the largest finite number
  if (bits >= 0x38800000)
    return (uint16_t)(sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13);
  float magic, y; // subnormal: adding 0.5 leaves the right number of bits
  memcpy(&y, &bits, 4);
  magic = y + 0.5f;
  memcpy(&bits, &magic, 4);
  return (uint16_t)(sign | (bits - 0x3f000000));
}

void vt_reduce_store(vt_dtype dtype, void *out, const void *from, int64_t count) {
  if (dtype == VT_BF16 || dtype == VT_F16) {
    uint16_t *to = out;
    const float *x = from;
    for (int64_t i = 0; i < count; i++) to[i] = dtype == VT_BF16 ? to_bf16(x[i]) : to_f16(x[i]);
    return;
  }
  memcpy(out, from, (size_t)count * vt_dtype_bytes(dtype));
}
