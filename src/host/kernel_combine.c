// SPDX-License-Identifier: Apache-2.0
// kernel_combine.c - see kernel_scatter.h. The formulas are those of src/eval/vec_float.def and
// vec_int.def.
#include <string.h>

#include "ir/number.h"
#include "host/cpu.h"
#include "host/kernel_scatter.h"

// LOAD and STORE go between an element of type T and what the formula computes in.
#define ELEMENT(T, C, LOAD, STORE, formula, to, from)                                              \
  C a = LOAD(to), b = LOAD(from);                                                                  \
  (void)a;                                                                                         \
  (to) = STORE(formula);

#define SINGLES(T, C, LOAD, STORE, formula, FETCH)                                                 \
  _Pragma("GCC unroll 4") for (int64_t i = 0; i < n; i++) {                                        \
    FETCH(i, 1);                                                                                   \
    T *to = (T *)(out + place[i]);                                                                 \
    ELEMENT(T, C, LOAD, STORE, formula, *to, *(const T *)(updates + i * next))                     \
  }

// Four elements are read before the first is written: they become one vector.
#define SHORT_RUNS(T, C, LOAD, STORE, formula)                                                     \
  for (int64_t i = 0; i < n; i++) {                                                                \
    if (far) FETCH_LINE(i, 1);                                                                     \
    T *to = (T *)(out + place[i]);                                                                 \
    const T *from = (const T *)(updates + i * next);                                               \
    int64_t j = 0;                                                                                 \
    for (; j + 4 <= width; j += 4) {                                                               \
      T four[4], with[4];                                                                          \
      memcpy(four, to + j, sizeof four);                                                           \
      memcpy(with, from + j, sizeof with);                                                         \
      for (int k = 0; k < 4; k++) {                                                                \
        ELEMENT(T, C, LOAD, STORE, formula, four[k], with[k])                                      \
      }                                                                                            \
      memcpy(to + j, four, sizeof four);                                                           \
    }                                                                                              \
    for (; j < width; j++) {                                                                       \
      ELEMENT(T, C, LOAD, STORE, formula, to[j], from[j])                                          \
    }                                                                                              \
  }

#define WINDOWS(T, C, LOAD, STORE, formula, FETCH)                                                 \
  for (int64_t i = 0; i < n; i++) {                                                                \
    if (far) FETCH(i, width *out_step);                                                            \
    if (place[i] < 0) continue;                                                                    \
    for (int64_t j = 0; j < width; j++) {                                                          \
      T *to = (T *)(out + place[i] + j * out_step);                                                \
      ELEMENT(T, C, LOAD, STORE, formula, *to, *(const T *)(updates + i * next + j * step))        \
    }                                                                                              \
  }

// Prefetches what is in no nearby cache. The address of a negative place is invalid, which a
// prefetch ignores.
#define FETCH_NONE(i, bytes) (void)0
#define FETCH_LINE(i, bytes) __builtin_prefetch(out + place[(i) + VT_COMBINE_AHEAD], 1)
#define FETCH_LINES(i, bytes)                                                                      \
  for (int64_t at = 0; at < (bytes) && at < MOST_FETCHED; at += 64)                                \
  __builtin_prefetch(out + place[(i) + VT_COMBINE_AHEAD] + at, 1)

enum { MOST_FETCHED = 512 };

// One loop each for single elements, short runs, long runs and everything else; single elements
// have a formula of their own.
#define COMBINE_BY(name, T, C, LOAD, STORE, formula, single)                                       \
  VT_ANY_CPU static void name(int64_t n, const int64_t *place, bool far, char *restrict out,       \
                              int64_t given_out_step, const char *restrict updates,                \
                              int64_t given_next, int64_t given_step, int64_t given_width) {       \
    bool runs = given_out_step == (int64_t)sizeof(T) && given_step == (int64_t)sizeof(T);          \
    if (given_width == 1 && given_next == (int64_t)sizeof(T)) {                                    \
      enum { next = sizeof(T) };                                                                   \
      if (far) {                                                                                   \
        SINGLES(T, C, LOAD, STORE, single, FETCH_LINE)                                             \
      } else {                                                                                     \
        SINGLES(T, C, LOAD, STORE, single, FETCH_NONE)                                             \
      }                                                                                            \
      return;                                                                                      \
    }                                                                                              \
    const int64_t next = given_next;                                                               \
    if (given_width == 1) {                                                                        \
      SINGLES(T, C, LOAD, STORE, single, FETCH_LINE)                                               \
    } else if (runs && given_width == 4) {                                                         \
      enum { width = 4 };                                                                          \
      SHORT_RUNS(T, C, LOAD, STORE, formula)                                                       \
    } else if (runs && given_width * (int64_t)sizeof(T) <= VT_COMBINE_SHORT) {                     \
      const int64_t width = given_width;                                                           \
      SHORT_RUNS(T, C, LOAD, STORE, formula)                                                       \
    } else if (runs) {                                                                             \
      enum { out_step = sizeof(T), step = sizeof(T) };                                             \
      const int64_t width = given_width;                                                           \
      WINDOWS(T, C, LOAD, STORE, formula, FETCH_LINES)                                             \
    } else {                                                                                       \
      const int64_t width = given_width, out_step = given_out_step, step = given_step;             \
      WINDOWS(T, C, LOAD, STORE, formula, FETCH_LINE)                                              \
    }                                                                                              \
  }
#define COMBINE(name, T, C, LOAD, STORE, formula)                                                  \
  COMBINE_BY(name, T, C, LOAD, STORE, formula, formula)

#define SAME(x) (x)

// Maximum and minimum as the evaluator has them: the first NaN wins; where the operands compare
// equal their bits decide, which orders +0 and -0.
#define MAX_MIN(T, bits, from_bits, suffix)                                                        \
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
  }
MAX_MIN(float, vt_f32_bits, vt_f32_from_bits, f32)
MAX_MIN(double, vt_f64_bits, vt_f64_from_bits, f64)

// The same where many updates meet in one place and each waits for the last: one instruction, and
// the rare cases behind a branch.
#define ONE_MAX_MIN(T, suffix)                                                                     \
  static inline T one_max_##suffix(T a, T b) {                                                     \
    if (__builtin_expect(!__builtin_islessgreater(a, b), 0)) return max_##suffix(a, b);            \
    return a > b ? a : b;                                                                          \
  }                                                                                                \
  static inline T one_min_##suffix(T a, T b) {                                                     \
    if (__builtin_expect(!__builtin_islessgreater(a, b), 0)) return min_##suffix(a, b);            \
    return a < b ? a : b;                                                                          \
  }
ONE_MAX_MIN(float, f32)
ONE_MAX_MIN(double, f64)

#define FLOAT(suffix, T, C, LOAD, STORE, kind)                                                     \
  COMBINE(add_##suffix, T, C, LOAD, STORE, a + b)                                                  \
  COMBINE(subtract_##suffix, T, C, LOAD, STORE, a - b)                                             \
  COMBINE(multiply_##suffix, T, C, LOAD, STORE, a *b)                                              \
  COMBINE_BY(maximum_##suffix, T, C, LOAD, STORE, max_##kind(a, b), one_max_##kind(a, b))          \
  COMBINE_BY(minimum_##suffix, T, C, LOAD, STORE, min_##kind(a, b), one_min_##kind(a, b))
FLOAT(f32, float, float, SAME, SAME, f32)
FLOAT(f64, double, double, SAME, SAME, f64)
FLOAT(bf16, uint16_t, float, vt_f32_from_bf16, vt_bf16_from_f32, f32)
FLOAT(f16, uint16_t, float, vt_f32_from_f16, vt_f16_from_f32, f32)

// Sums, products and bits wrap alike for either sign.
#define WRAPPING(bits, T)                                                                          \
  COMBINE(assign_##bits, T, T, SAME, SAME, b)                                                      \
  COMBINE(add_##bits, T, T, SAME, (T), a + b)                                                      \
  COMBINE(subtract_##bits, T, T, SAME, (T), a - b)                                                 \
  COMBINE(multiply_##bits, T, T, SAME, (T), (uint64_t)a *b)                                        \
  COMBINE(and_##bits, T, T, SAME, (T), a &b)                                                       \
  COMBINE(or_##bits, T, T, SAME, (T), a | b)                                                       \
  COMBINE(xor_##bits, T, T, SAME, (T), a ^ b)
WRAPPING(8, uint8_t)
WRAPPING(16, uint16_t)
WRAPPING(32, uint32_t)
WRAPPING(64, uint64_t)

typedef struct pair {
  uint64_t halves[2];
} pair;
COMBINE(assign_128, pair, pair, SAME, SAME, b)

#define ORDERED(suffix, T)                                                                         \
  COMBINE(maximum_##suffix, T, T, SAME, SAME, a > b ? a : b)                                       \
  COMBINE(minimum_##suffix, T, T, SAME, SAME, a < b ? a : b)
ORDERED(s8, int8_t)
ORDERED(s16, int16_t)
ORDERED(s32, int32_t)
ORDERED(s64, int64_t)
ORDERED(u8, uint8_t)
ORDERED(u16, uint16_t)
ORDERED(u32, uint32_t)
ORDERED(u64, uint64_t)

#define PICK_FLOAT(suffix)                                                                         \
  return code == VT_OP_ADD        ? add_##suffix                                                   \
         : code == VT_OP_SUBTRACT ? subtract_##suffix                                              \
         : code == VT_OP_MULTIPLY ? multiply_##suffix                                              \
         : code == VT_OP_MAXIMUM  ? maximum_##suffix                                               \
         : code == VT_OP_MINIMUM  ? minimum_##suffix                                               \
                                  : NULL

#define PICK_WRAPPING(bits)                                                                        \
  return code == VT_OP_ADD        ? add_##bits                                                     \
         : code == VT_OP_SUBTRACT ? subtract_##bits                                                \
         : code == VT_OP_MULTIPLY ? multiply_##bits                                                \
         : code == VT_OP_AND      ? and_##bits                                                     \
         : code == VT_OP_OR       ? or_##bits                                                      \
         : code == VT_OP_XOR      ? xor_##bits                                                     \
                                  : NULL

#define PICK_INTEGER(suffix, bits)                                                                 \
  if (code == VT_OP_MAXIMUM) return maximum_##suffix;                                              \
  if (code == VT_OP_MINIMUM) return minimum_##suffix;                                              \
  PICK_WRAPPING(bits)

static vt_combine_fn assignment_of(size_t bytes) {
  switch (bytes) {
  case 1:
    return assign_8;
  case 2:
    return assign_16;
  case 4:
    return assign_32;
  case 8:
    return assign_64;
  default:
    return bytes == sizeof(pair) ? assign_128 : NULL;
  }
}

vt_combine_fn vt_combine_of(vt_opcode code, vt_dtype dtype) {
  if (code == VT_OP_INVALID) return assignment_of(vt_dtype_bytes(dtype));
  switch (dtype) {
  case VT_F32:
    PICK_FLOAT(f32);
  case VT_F64:
    PICK_FLOAT(f64);
  case VT_BF16:
    PICK_FLOAT(bf16);
  case VT_F16:
    PICK_FLOAT(f16);
  case VT_S8:
    PICK_INTEGER(s8, 8);
  case VT_U8:
    PICK_INTEGER(u8, 8);
  case VT_S16:
    PICK_INTEGER(s16, 16);
  case VT_U16:
    PICK_INTEGER(u16, 16);
  case VT_S32:
    PICK_INTEGER(s32, 32);
  case VT_U32:
    PICK_INTEGER(u32, 32);
  case VT_S64:
    PICK_INTEGER(s64, 64);
  case VT_U64:
    PICK_INTEGER(u64, 64);
  case VT_PRED: // a sum is or, a product and
    return code == VT_OP_ADD || code == VT_OP_MAXIMUM || code == VT_OP_OR         ? or_8
           : code == VT_OP_MULTIPLY || code == VT_OP_MINIMUM || code == VT_OP_AND ? and_8
           : code == VT_OP_XOR                                                    ? xor_8
                                                                                  : NULL;
  default:
    return NULL;
  }
}
