// SPDX-License-Identifier: Apache-2.0
// eltwise_test.c - elementwise ops and conversions as rows. Each row runs alone and, repeated to a
// length that fills vectors and leaves a remainder, in bulk: loops and their tails must agree.
#include "eval/eval_support.h"
#include "eval/vec.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
static unsigned flush_subnormals(void) {
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040); // as in a running program
  return before;
}
#else
static unsigned flush_subnormals(void) {
  return 0;
}
#define _mm_setcsr(flags) (void)(flags)
#endif

#define INF ((double)INFINITY)
static const double NaN = (double)NAN;
enum { I32_MIN = INT32_MIN };

typedef struct row {
  vt_opcode code;
  vt_dtype in, out;
  numbers a, b, c, want;
  double ulp;
  int attr[2]; // compare: direction and type; reduce_precision: exponent and mantissa bits
  const char *why;
} row;

static void run_row(const row *r, int64_t repeat) {
  bench b = bench_new();
  const numbers *in[3] = {&r->a, &r->b, &r->c};
  int64_t n = r->want.count, total = n * repeat;
  double *big = malloc(sizeof *big * (size_t)(total + 1));
  for (int i = 0; i < 3 && in[i]->count; i++) {
    vt_dtype dtype = r->code == VT_OP_SELECT && i == 0 ? VT_PRED : r->in;
    for (int64_t k = 0; k < total; k++) big[k] = in[i]->data[k % n];
    operand(&b, dtype, 1, &total, (numbers){total, big});
  }
  vt_op *op = make_one(&b, r->code, r->out, 1, &total, 0);
  if (r->code == VT_OP_COMPARE) {
    vt_op_set_i64(op, VT_ATTR_COMPARISON_DIRECTION, r->attr[0]);
    vt_op_set_i64(op, VT_ATTR_COMPARE_TYPE, r->attr[1]);
  } else if (r->code == VT_OP_REDUCE_PRECISION) {
    vt_op_set_i64(op, VT_ATTR_EXPONENT_BITS, r->attr[0]);
    vt_op_set_i64(op, VT_ATTR_MANTISSA_BITS, r->attr[1]);
  }
  run_op(&b);
  for (int64_t k = 0; k < total; k++) big[k] = r->want.data[k % n];
  char what[160];
  snprintf(what, sizeof what, "%s of %s (%s)", vt_op_short_name(r->code), vt_dtype_get(r->in)->text,
           r->why);
  expect_numbers(b.out[0], (numbers){total, big}, r->ulp, what);
  free(big);
  bench_free(&b);
}

#define ROW1(code, type, a, want, ulp, why)                                                        \
  {VT_OP_##code, VT_##type, VT_##type, a, NONE, NONE, want, ulp, {0}, why}
#define ROW2(code, type, a, b, want, ulp, why)                                                     \
  {VT_OP_##code, VT_##type, VT_##type, a, b, NONE, want, ulp, {0}, why}
#define ROW3(code, type, a, b, c, want, why)                                                       \
  {VT_OP_##code, VT_##type, VT_##type, a, b, c, want, 0, {0}, why}
#define CMP(dir, kind, type, a, b, want, why)                                                      \
  {VT_OP_COMPARE, VT_##type, VT_PRED, a, b, NONE, want, 0, {VT_CMP_##dir, VT_CMPTYPE_##kind}, why}
#define CONV(from, to, a, want, why)                                                               \
  {VT_OP_CONVERT, VT_##from, VT_##to, a, NONE, NONE, want, 0, {0}, why}
#define PREC(type, e, m, a, want, why)                                                             \
  {VT_OP_REDUCE_PRECISION, VT_##type, VT_##type, a, NONE, NONE, want, 0, {e, m}, why}

static void floats(void **state) {
  (void)state;
  const row rows[] = {
      ROW2(MAXIMUM, F32, N(-0.0, 0.0, NaN, 1, 2), N(0.0, -0.0, 1, NaN, 1), N(0.0, 0.0, NaN, NaN, 2),
           0, "zeros, NaN"),
      ROW2(MINIMUM, F32, N(-0.0, 0.0, NaN, 1, 2), N(0.0, -0.0, 1, NaN, 1),
           N(-0.0, -0.0, NaN, NaN, 1), 0, "zeros, NaN"),
      ROW2(MAXIMUM, F64, N(-0.0, 0.0, NaN), N(0.0, -0.0, 1), N(0.0, 0.0, NaN), 0, "zeros, NaN"),
      ROW2(MAXIMUM, BF16, N(-0.0, 3, NaN), N(0.0, -4, 1), N(0.0, 3, NaN), 0, "through f32"),
      ROW2(ADD, BF16, N(1, 256), N(1, 1), N(2, 256), 0, "257 rounds to even"),
      ROW2(ADD, F16, N(2048, 65504), N(1, 65504), N(2048, INF), 0, "rounds, overflows"),
      ROW2(ADD, F8E4M3FN, N(448, 1), N(448, 1), N(NaN, 2), 0, "no infinity"),
      ROW2(ADD, F4E2M1FN, N(6, 0.5), N(6, 1), N(6, 1.5), 0, "saturates"),
      ROW2(ADD, F32, N(1e-40, 1), N(1e-40, 1e-40), N(0.0, 1), 0, "subnormals are flushed"),
      ROW1(NEGATE, F32, N(1e-40, 0.0, -1), N(-(double)1e-40f, -0.0, 1), 0,
           "a bit operation keeps subnormals"),
      ROW1(ABS, F32, N(-0.0, -INF, -2), N(0.0, INF, 2), 0, ""),
      ROW1(SIGN, F32, N(-0.0, 0.0, NaN, -5, 7), N(-0.0, 0.0, NaN, -1, 1), 0, "keeps zeros and NaN"),
      ROW1(SIGN, F32, N(1e-40, -1e-40), N(0.0, -0.0), 0, "subnormals count as zeros"),
      ROW1(SIGN, F64, N(1e-310, -1e-310, NaN), N(0.0, -0.0, NaN), 0, "subnormals count as zeros"),
      ROW1(ROUND_NEAREST_EVEN, F32, N(0.5, 1.5, 2.5, -0.5, 0.49999997), N(0.0, 2, 2, -0.0, 0.0), 0,
           "ties to even"),
      ROW1(ROUND_NEAREST_AFZ, F32, N(0.5, 2.5, -0.5, 0.49999997, 8388609, -0.25, INF, NaN),
           N(1, 3, -1, 0.0, 8388609, -0.0, INF, NaN), 0, "ties away from zero"),
      ROW1(ROUND_NEAREST_AFZ, F64, N(0.49999999999999994, -2.5), N(0.0, -3), 0,
           "ties away from zero"),
      ROW1(CEIL, F32, N(-0.5, 0.5), N(-0.0, 1), 0, ""),
      ROW1(FLOOR, F32, N(-0.5, 0.5), N(-1, 0.0), 0, ""),
      ROW2(REMAINDER, F32, N(5, -5, 5.5, INF, 1, -0.0), N(3, 3, INF, 2, 0.0, 3),
           N(2, -2, 5.5, NaN, NaN, -0.0), 0, "fmod"),
      ROW2(REMAINDER, F32, N(0x1.8p-124, -0x1.8p-124, -1e-40, 1e-40, 1),
           N(0x1.7p-124, 0x1.7p-124, 3, INF, 1e-40), N(0.0, -0.0, -0.0, 0.0, NaN), 0,
           "subnormals count as zeros, in and out"),
      ROW2(REMAINDER, F64, N(-0x1.8p-1020, 1e-310), N(0x1.7p-1020, 3), N(-0.0, 0.0), 0,
           "subnormals count as zeros, in and out"),
      ROW2(POWER, F32, N(1, 5, -1, 2, -8, 0.0), N(NaN, 0.0, INF, 10, 3, -1),
           N(1, 1, 1, 1024, -512, INF), 1, "IEEE pow"),
      ROW2(ATAN2, F32, N(0.0, -0.0, 1), N(-1, -1, 0.0), N(M_PI, -M_PI, M_PI / 2), 1,
           "signed zeros"),
      ROW2(DIVIDE, F32, N(1, -1, 0.0), N(0.0, 0.0, 0.0), N(INF, -INF, NaN), 0, ""),
      ROW1(RSQRT, F32, N(0.0, -0.0, 4, -1, INF), N(INF, -INF, 0.5, NaN, 0.0), 0, ""),
      ROW1(SQRT, F32, N(-0.0, 2, -1), N(-0.0, 1.4142135, NaN), 1, ""),
      ROW1(CBRT, F32, N(-8, 27), N(-2, 3), 1, ""),
      ROW1(CBRT, F32, N(-1e-40, 1e-40), N(-0.0, 0.0), 0, "subnormals count as zeros"),
      ROW1(EXPONENTIAL, F32, N(0.0, 1, 88.72283, 88.73, -87, -104, -INF, INF, NaN),
           N(1, 2.718281828, exp((double)88.72283f), INF, exp(-87), 0.0, 0.0, INF, NaN), 1, "ends"),
      ROW1(EXPONENTIAL_MINUS_ONE, F32, N(1e-10, -0.0, 1, -50, INF),
           N(1e-10, -0.0, 1.718281828, -1, INF), 1, "near 0"),
      ROW1(LOG, F32, N(1, 2.718281828, 0.0, -0.0, -1, INF, NaN, 1.1754944e-38),
           N(0.0, 1, -INF, -INF, NaN, INF, NaN, -87.33655), 1, "ends"),
      ROW1(LOG_PLUS_ONE, F32, N(1e-10, -1, -2, 1, -0.0, INF),
           N(1e-10, -INF, NaN, 0.69314718, -0.0, INF), 1, "near 0"),
      ROW1(LOGISTIC, F32, N(0.0, 100, -100, -INF, INF, NaN, 1),
           N(0.5, 1, 0.0, 0.0, 1, NaN, 0.73105858), 1, "ends"),
      ROW1(TANH, F32, N(-0.0, 100, -100, 1e-5, NaN, 0.5), N(-0.0, 1, -1, 1e-5, NaN, 0.46211716), 1,
           "ends"),
      ROW1(SINE, F32, N(-0.0, 1, 1e6, 1e30, INF),
           N(-0.0, 0.84147098, -0.34999350, sin((double)1e30f), NaN), 1, "large"),
      ROW1(COSINE, F32, N(0.0, 1, 1e6, 1e30, INF),
           N(1, 0.54030231, 0.93675213, cos((double)1e30f), NaN), 1, "large"),
      ROW1(TAN, F32, N(-0.0, 1, 1.5707964), N(-0.0, 1.5574077, tan((double)1.5707964f)), 1, ""),
      ROW3(CLAMP, F32, N(5, 0, 1, NaN), N(7, 2, NaN, 1), N(3, 1, 2, 2), N(3, 1, NaN, NaN),
           "min > max gives max"),
      {VT_OP_IS_FINITE, VT_F32, VT_PRED, N(1, INF, NaN), NONE, NONE, N(1, 0, 0), 0, {0}, ""},
      {VT_OP_IS_FINITE,
       VT_F8E4M3FN,
       VT_PRED,
       N(448, NaN),
       NONE,
       NONE,
       N(1, 0),
       0,
       {0},
       "NaN without infinity"},
      {VT_OP_SELECT, VT_F32, VT_F32, N(1, 0), N(1, 2), N(3, 4), N(1, 4), 0, {0}, ""},
      CMP(EQ, FLOAT, F32, N(NaN, 0.0, 1), N(NaN, -0.0, 2), N(0, 1, 0), "NaN"),
      CMP(NE, FLOAT, F32, N(NaN, 0.0), N(NaN, -0.0), N(1, 0), "NaN"),
      CMP(GE, FLOAT, F16, N(NaN, 2), N(1, 2), N(0, 1), "NaN"),
      CMP(LT, TOTALORDER, F32, N(-0.0, 0.0, 1, INF, -INF), N(0.0, -0.0, NaN, NaN, -1),
          N(1, 0, 1, 1, 1), "total order"),
      CMP(EQ, TOTALORDER, F32, N(NaN, 0.0), N(NaN, -0.0), N(1, 0), "total order"),
      CMP(LT, TOTALORDER, BF16, N(-0.0, 1), N(0.0, NaN), N(1, 1), "total order"),
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    run_row(&rows[i], 1);
    run_row(&rows[i], 301);
  }
}

static void integers(void **state) {
  (void)state;
  const row rows[] = {
      ROW2(ADD, S32, N(INT32_MAX, 1), N(1, 2), N(I32_MIN, 3), 0, "wraps"),
      ROW2(ADD, S4, N(7, -8), N(1, -1), N(-8, 7), 0, "wraps at its width"),
      ROW2(MULTIPLY, U2, N(3, 2), N(3, 2), N(1, 0), 0, "wraps at its width"),
      ROW2(MULTIPLY, U16, N(65535), N(65535), N(1), 0, "no signed overflow"),
      ROW2(SUBTRACT, U4, N(0, 5), N(1, 2), N(15, 3), 0, "wraps at its width"),
      ROW2(DIVIDE, S32, N(7, -7, 5, 0, I32_MIN), N(-2, 2, 0, 0, -1), N(-3, -3, -1, -1, I32_MIN), 0,
           "no trap"),
      ROW2(DIVIDE, U8, N(7, 5, 0), N(2, 0, 0), N(3, 255, 255), 0, "by zero"),
      ROW2(DIVIDE, S4, N(-8, 3), N(-1, 0), N(-8, -1), 0, "MIN / -1"),
      ROW2(DIVIDE, S64, N(10, -10), N(3, 0), N(3, -1), 0, ""),
      ROW2(REMAINDER, S32, N(7, -7, 5, I32_MIN), N(-2, 2, 0, -1), N(1, -1, 5, 0), 0,
           "sign of the dividend"),
      ROW2(POWER, S32, N(3, 0, 1, -1, -1, 2, 2), N(4, -1, -5, -3, -4, -1, 33),
           N(81, 0, 1, -1, 1, 0, 0), 0, "negative exponents"),
      ROW2(POWER, U8, N(3, 2), N(5, 8), N(243, 0), 0, "wraps"),
      ROW1(NEGATE, U8, N(1, 0), N(255, 0), 0, "two's complement"),
      ROW1(NEGATE, S8, N(-128, 5), N(-128, -5), 0, "MIN stays"),
      ROW1(ABS, S8, N(-128, -5), N(-128, 5), 0, "MIN stays"),
      ROW1(SIGN, S32, N(-7, 0, 7), N(-1, 0, 1), 0, ""),
      ROW1(SIGN, U32, N(0, 4294967295.0), N(0, 1), 0, ""),
      ROW1(NOT, S4, N(0, 7), N(-1, -8), 0, ""),
      ROW1(NOT, U4, N(0, 7), N(15, 8), 0, ""),
      ROW1(POPCNT, S8, N(-1, 3), N(8, 2), 0, "own width"),
      ROW1(POPCNT, S4, N(-1, 3), N(4, 2), 0, "own width"),
      ROW1(POPCNT, S2, N(-1, 1, -2), N(-2, 1, 1), 0, "wraps"),
      ROW1(COUNT_LEADING_ZEROS, S2, N(0, 1, -1), N(-2, 1, 0), 0, "wraps"),
      ROW1(COUNT_LEADING_ZEROS, S32, N(0, 1, -1), N(32, 31, 0), 0, "own width"),
      ROW1(COUNT_LEADING_ZEROS, S8, N(0, 1), N(8, 7), 0, "own width"),
      ROW1(COUNT_LEADING_ZEROS, U4, N(0, 1), N(4, 3), 0, "own width"),
      ROW2(SHIFT_LEFT, S32, N(1, 1, 1, 1), N(31, 32, -1, 40), N(I32_MIN, 0, 0, 0), 0,
           "past the width"),
      ROW2(SHIFT_LEFT, S4, N(1, 1), N(3, 4), N(-8, 0), 0, "past the width"),
      ROW2(SHIFT_RIGHT_LOGICAL, S32, N(-1, -1, -1), N(28, 32, -1), N(15, 0, 0), 0,
           "past the width"),
      ROW2(SHIFT_RIGHT_LOGICAL, S4, N(-1), N(1), N(7), 0, "its own bits"),
      ROW2(SHIFT_RIGHT_ARITHMETIC, S32, N(-8, 8, -8, 8, -8), N(1, 1, 32, 32, -1),
           N(-4, 4, -1, 0, -1), 0, "past the width"),
      ROW2(SHIFT_RIGHT_ARITHMETIC, U8, N(128, 128), N(1, 9), N(192, 255), 0, "top bit is the sign"),
      ROW2(MAXIMUM, U32, N(4294967295.0), N(1), N(4294967295.0), 0, "unsigned"),
      ROW3(CLAMP, S32, N(5, 0), N(7, 2), N(3, 1), N(3, 1), ""),
      CMP(LT, UNSIGNED, U32, N(1), N(4294967295.0), N(1), "unsigned"),
      CMP(LT, SIGNED, S32, N(1), N(-1), N(0), "signed"),
      CMP(GT, UNSIGNED, PRED, N(1, 0, 1), N(0, 1, 1), N(1, 0, 0), "bool"),
      ROW2(ADD, PRED, N(1, 1, 0), N(1, 0, 0), N(1, 1, 0), 0, "or"),
      ROW2(MULTIPLY, PRED, N(1, 1, 0), N(1, 0, 0), N(1, 0, 0), 0, "and"),
      ROW2(MAXIMUM, PRED, N(1, 0), N(0, 0), N(1, 0), 0, "or"),
      ROW2(XOR, PRED, N(1, 0), N(1, 1), N(0, 1), 0, ""),
      ROW1(NOT, PRED, N(1, 0), N(0, 1), 0, ""),
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    run_row(&rows[i], 1);
    run_row(&rows[i], 301);
  }
}

static void conversions(void **state) {
  (void)state;
  const row rows[] = {
      CONV(F32, S32, N(1.9, -1.9, 3e9, -3e9, NaN, INF), N(1, -1, INT32_MAX, I32_MIN, 0, INT32_MAX),
           "saturates"),
      CONV(F32, U8, N(-1, 300, 1.5, NaN), N(0, 255, 1, 0), "saturates"),
      CONV(F32, S4, N(9, -9, 3.7), N(7, -8, 3), "saturates"),
      CONV(F32, U2, N(9, -9, 2.7), N(3, 0, 2), "saturates"),
      CONV(F64, S64, N(1e30, -1e30, -2.5), N(9223372036854775807.0, -9223372036854775808.0, -2),
           "saturates"),
      CONV(F64, U64, N(1e30, -1, 2.5), N(18446744073709551615.0, 0, 2), "saturates"),
      CONV(BF16, S8, N(200, -200, 1.5), N(127, -128, 1), "saturates"),
      CONV(F8E4M3FN, S32, N(448, NaN), N(448, 0), "NaN"),
      CONV(S32, S8, N(300, -129), N(44, 127), "low bits"),
      CONV(S32, U4, N(-1, 17), N(15, 1), "low bits"),
      CONV(S8, S4, N(9, -9), N(-7, 7), "low bits"),
      CONV(S4, S8, N(-8, 7), N(-8, 7), "sign extends"),
      CONV(S8, U32, N(-1), N(4294967295.0), "sign extends"),
      CONV(F32, PRED, N(NaN, -0.0, 0.5), N(1, 0, 1), "x != 0"),
      CONV(S32, PRED, N(256, 0), N(1, 0), "x != 0"),
      CONV(PRED, F32, N(1, 0), N(1, 0.0), ""),
      CONV(F32, BF16, N(257, 3.4e38, NaN, 1e-40), N(256, INF, NaN, 0x1p-133), "to even"),
      CONV(F32, F16, N(65519, 65520, 1e-8, 6e-8, 0x1.ff8p-15),
           N(65504, INF, 0.0, 0x1p-24, 0x1.ff8p-15), "ends"),
      CONV(F16, F32, N(0x1p-24, 65504, INF), N(0x1p-24, 65504, INF), "exact"),
      CONV(F64, F16, N(1 + 0x1p-11 + 0x1p-40), N(1), "through f32, as XLA"),
      CONV(F32, F8E5M2, N(1.125 + 0x1p-20, 61440, 1e9), N(1.25, INF, INF), "rounds once"),
      CONV(F32, F8E4M3FN, N(464, 465, -1e9, 1e-9, -1e-9), N(448, NaN, NaN, 0.0, -0.0),
           "464 still rounds to 448"),
      CONV(F64, F8E4M3FN, N(1 + 0x1p-4 + 0x1p-40), N(1.125), "rounds once"),
      CONV(F32, F8E4M3, N(1e9, 240, 0x1p-9), N(INF, 240, 0x1p-9), "has infinity"),
      CONV(F32, F8E3M4, N(15.5, 1e9), N(15.5, INF), "has infinity"),
      CONV(F32, F8E4M3FNUZ, N(-0.0, 240, 1e9, NaN), N(0.0, 240, NaN, NaN), "no -0"),
      CONV(F32, F8E5M2FNUZ, N(-0.0, 57344, 1e9), N(0.0, 57344, NaN), "no -0"),
      CONV(F32, F8E4M3B11FNUZ, N(-0.0, 30, 1e9), N(0.0, 30, NaN), "no -0"),
      CONV(F32, F8E8M0FNU, N(0.0, -3, 3, 0.75, 6.5, NaN), N(NaN, NaN, 4, 1, 8, NaN),
           "powers of two"),
      CONV(F32, F8E8M0FNU, N(1e-40, -1e-40, 0x1p-127), N(0x1p-127, NaN, 0x1p-127),
           "keeps subnormals, as XLA"),
      CONV(F32, F4E2M1FN, N(5, 6.5, 1e9, NaN, -INF, 0.25, 0.75), N(4, 6, 6, -0.0, -6, 0.0, 1),
           "saturates"),
      CONV(F32, F6E2M3FN, N(7.5, 100, 0.0625), N(7.5, 7.5, 0.0), "saturates"),
      CONV(F32, F6E3M2FN, N(28, 100, 0.0625), N(28, 28, 0.0625), "saturates"),
      CONV(S32, BF16, N(16842753), N(16777216), "through f32, as XLA"),
      PREC(F32, 5, 10, N(65519, 65520, 6.2e-5, 6e-5, -6e-5, NaN),
           N(65504, INF, 0x1.04p-14, 0.0, -0.0, NaN), "below the smallest normal: zero"),
      PREC(F32, 8, 7, N(257, 1e-40), N(256, 0x1p-133), "keeps subnormals"),
      PREC(F32, 8, 3, N(1.0625, 1.1875, 3.4e38), N(1, 1.25, INF), "to even"),
      PREC(F64, 8, 23, N(1e300, 1 + 0x1p-30), N(INF, 1), ""),
      PREC(BF16, 5, 2, N(1.125, 1e6), N(1, INF), ""),
      PREC(F16, 5, 3, N(1.0625), N(1), ""),
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    run_row(&rows[i], 1);
    run_row(&rows[i], 301);
  }
}

// Every code of every small format survives the round trip through f32.
static void small_floats_round_trip(void **state) {
  (void)state;
  static const vt_dtype types[] = {VT_F8E5M2,     VT_F8E4M3FN, VT_F8E4M3B11FNUZ, VT_F8E5M2FNUZ,
                                   VT_F8E4M3FNUZ, VT_F8E4M3,   VT_F8E3M4,        VT_F8E8M0FNU,
                                   VT_F4E2M1FN,   VT_F6E2M3FN, VT_F6E3M2FN,      VT_F16,
                                   VT_BF16};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    int bits = vt_dtype_get(types[t])->bits;
    for (uint32_t code = 0; code < 1u << bits; code++) {
      uint16_t in = (uint16_t)code, out = 0;
      float wide;
      vt_float_widen(types[t], 1, &in, &wide);
      vt_float_narrow(types[t], 1, &wide, &out);
      if (isnan(wide)) {
        float again;
        vt_float_widen(types[t], 1, &out, &again);
        if (bits > 4 && bits != 6) assert_true(isnan(again));
      } else {
        assert_int_equal(in, out);
      }
    }
  }
}

static void complex_numbers(void **state) {
  (void)state;
  const struct {
    vt_opcode code;
    numbers a, b, want;
    bool real_result;
  } rows[] = {
      {VT_OP_MULTIPLY, N(1, 2, 0, 1), N(3, 4, 0, 1), N(-5, 10, -1, 0.0), false},
      {VT_OP_DIVIDE, N(1, 1, 4, 2), N(0.0, 0.0, 1, 1), N(INF, INF, 3, -1), false},
      {VT_OP_ABS, N(3, 4, -5, 12), NONE, N(5, 13), true},
      {VT_OP_REAL, N(3, 4, -5, 12), NONE, N(3, -5), true},
      {VT_OP_IMAG, N(3, 4, -5, 12), NONE, N(4, 12), true},
      {VT_OP_SIGN, N(3, 4, 0.0, 0.0), NONE, N(0.6, 0.8, 0.0, 0.0), false},
      {VT_OP_MAXIMUM, N(1, 2, 2, 0.0), N(1, 3, 1, 9), N(1, 3, 2, 0.0), false},
      {VT_OP_SQRT, N(-4, 0.0, 3, 4), NONE, N(0.0, 2, 2, 1), false},
      {VT_OP_EXPONENTIAL, N(0.0, 0.0, 1, 0.0), NONE, N(1, 0.0, 2.718281828, 0.0), false},
      {VT_OP_LOG_PLUS_ONE, N(1e-10, 1e-10), NONE, N(1e-10, 1e-10), false},
      {VT_OP_EXPONENTIAL_MINUS_ONE, N(1e-10, 1e-10), NONE, N(1e-10, 1e-10), false},
      {VT_OP_POWER, N(0.0, 0.0, 0.0, 0.0, 2, 1), N(0.0, 0.0, 1, 0.0, 2, 3),
       N(1, 0.0, 0.0, 0.0, -1.2194365, -0.2470136), false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int wide = 0; wide < 2; wide++) {
      bench b = bench_new();
      int64_t n = rows[i].a.count / 2;
      vt_dtype type = wide ? VT_C128 : VT_C64, part = wide ? VT_F64 : VT_F32;
      operand(&b, type, 1, &n, rows[i].a);
      if (rows[i].b.count) operand(&b, type, 1, &n, rows[i].b);
      make_one(&b, rows[i].code, rows[i].real_result ? part : type, 1, &n, 0);
      run_op(&b);
      double loose = rows[i].code == VT_OP_POWER ? 1e3 : 8;
      expect_numbers(b.out[0], rows[i].want, wide ? ldexp(loose, 29) : loose,
                     vt_op_short_name(rows[i].code));
      bench_free(&b);
    }
}

static void scalars_spread(void **state) {
  (void)state;
  bench b = bench_new();
  operand(&b, VT_BF16, SCALAR, N(-1));
  operand(&b, VT_BF16, DIMS(3), N(-5, 0.5, 5));
  operand(&b, VT_BF16, SCALAR, N(1));
  make_one(&b, VT_OP_CLAMP, VT_BF16, DIMS(3), 0);
  run_op(&b);
  expect_numbers(b.out[0], N(-1, 0.5, 1), 0, "clamp by scalars");
  assert_true(vt_eval_in_place_ok(b.op, 1, 0));
  assert_false(vt_eval_in_place_ok(b.op, 0, 0));
  bench_free(&b);
  b = bench_new();
  operand(&b, VT_PRED, SCALAR, N(0));
  operand(&b, VT_C64, DIMS(2), N(1, 2, 3, 4));
  operand(&b, VT_C64, DIMS(2), N(5, 6, 7, 8));
  make_one(&b, VT_OP_SELECT, VT_C64, DIMS(2), 0);
  run_op(&b);
  expect_numbers(b.out[0], N(5, 6, 7, 8), 0, "select by a scalar");
  bench_free(&b);
}

static void bitcasts(void **state) {
  (void)state;
  const struct {
    vt_dtype from, to;
    int32_t from_rank, to_rank;
    int64_t from_dims[2], to_dims[2];
    numbers in, want;
  } rows[] = {
      {VT_F32, VT_U32, 1, 1, {2}, {2}, N(1, -0.0), N(1065353216, 2147483648.0)},
      {VT_U32, VT_U8, 1, 2, {1}, {1, 4}, N(67305985), N(1, 2, 3, 4)},
      {VT_U8, VT_U32, 2, 1, {1, 4}, {1}, N(1, 2, 3, 4), N(67305985)},
      {VT_U8, VT_U4, 1, 2, {1}, {1, 2}, N(33), N(1, 2)},
      {VT_S4, VT_U8, 2, 1, {1, 2}, {1}, N(1, -2), N(225)},
      {VT_U8, VT_S4, 1, 2, {1}, {1, 2}, N(225), N(1, -2)},
      {VT_U4, VT_S4, 1, 1, {1}, {1}, N(15), N(-1)},
      {VT_U16, VT_U4, 1, 2, {1}, {1, 4}, N(0x4321), N(1, 2, 3, 4)},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bench b = bench_new();
    operand(&b, rows[i].from, rows[i].from_rank, rows[i].from_dims, rows[i].in);
    make_one(&b, VT_OP_BITCAST_CONVERT, rows[i].to, rows[i].to_rank, rows[i].to_dims, 0);
    run_op(&b);
    expect_numbers(b.out[0], rows[i].want, 0, vt_dtype_get(rows[i].from)->text);
    bench_free(&b);
  }
}

// Among angles that libm takes, the others have the bits that they have by themselves.
static void angles_do_not_depend_on_others(void **state) {
  (void)state;
  static const vt_opcode codes[] = {VT_OP_SINE, VT_OP_COSINE, VT_OP_TAN};
  enum { COUNT = 300 };
  for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
    float x[COUNT], alone[COUNT], among[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = 1e-40f + 0.37f * (float)(i % 50) * (float)(i % 7);
    vt_vec_fn run = vt_vec_op(VT_VEC_F32, codes[k]);
    unsigned csr = flush_subnormals();
    run(COUNT, x, NULL, NULL, alone, 32);
    x[3] = 1e30f;
    x[290] = NAN;
    run(COUNT, x, NULL, NULL, among, 32);
    _mm_setcsr(csr);
    for (int i = 0; i < COUNT; i++)
      if (i != 3 && i != 290) assert_memory_equal(&alone[i], &among[i], sizeof alone[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(floats),
      cmocka_unit_test(integers),
      cmocka_unit_test(conversions),
      cmocka_unit_test(complex_numbers),
      cmocka_unit_test(scalars_spread),
      cmocka_unit_test(bitcasts),
      cmocka_unit_test(small_floats_round_trip),
      cmocka_unit_test(angles_do_not_depend_on_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
