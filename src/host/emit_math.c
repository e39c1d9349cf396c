// SPDX-License-Identifier: Apache-2.0
// emit_math.c - exp, log and similar functions as polynomials on f32 vectors, the rest by the
// evaluator's loops.
//
// Worst error on normal results against f64, checked by emit_math_test over all exponents
// (measured, ulp; in brackets with AVX-512): exp 0.95 (0.55), expm1 1.3, log 0.75, log1p 1.5,
// logistic 2, tanh 2.5 (1.1), erf 1.4, erfc 4.9 (2.3), sin and cos 1.5 (of the larger of the result
// and 2^-24), rsqrt 1 (1.4 without FMA), cbrt 0.5, atan2 1.6, power 0.53, others the evaluator's.
// Subnormal inputs count as zero and subnormal results are zero, as everywhere in compiled code.
// Polynomials are least-squares fits on Chebyshev nodes, reweighted to minimize the worst relative
// error. Only power needs more than f32 inside: an error of its logarithm grows by up to 2^7. f64
// goes to the evaluator, which calls libm: f64 is rare, and only libm is accurate enough.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/vec.h"
#include "host/emit.h"
#include "host/loop.h"

typedef LLVMValueRef value;

static value constant(vt_emitter *e, double x) {
  return vt_emit_splat_f(e, VT_F32, x);
}
static value add(vt_emitter *e, value x, value y) {
  return LLVMBuildFAdd(e->builder, x, y, "");
}
static value sub(vt_emitter *e, value x, value y) {
  return LLVMBuildFSub(e->builder, x, y, "");
}
static value mul(vt_emitter *e, value x, value y) {
  return LLVMBuildFMul(e->builder, x, y, "");
}
static value divide(vt_emitter *e, value x, value y) {
  return LLVMBuildFDiv(e->builder, x, y, "");
}
static value negative(vt_emitter *e, value x) {
  return LLVMBuildFNeg(e->builder, x, "");
}
static value choose(vt_emitter *e, value c, value x, value y) {
  return LLVMBuildSelect(e->builder, c, x, y, "");
}
static value test(vt_emitter *e, LLVMRealPredicate p, value x, value y) {
  return LLVMBuildFCmp(e->builder, p, x, y, "");
}

static value call(vt_emitter *e, const char *name, uint32_t count, value *args) {
  LLVMTypeRef type = LLVMTypeOf(args[0]);
  return vt_emit_intrinsic(e, name, 1, &type, count, args);
}

static value fma3(vt_emitter *e, value x, value y, value z) {
  return call(e, "llvm.fma", 3, (value[]){x, y, z});
}
static value absolute(vt_emitter *e, value x) {
  return call(e, "llvm.fabs", 1, &x);
}
static value copysign2(vt_emitter *e, value x, value y) {
  return call(e, "llvm.copysign", 2, (value[]){x, y});
}

static value polynomial_in(vt_emitter *e, vt_dtype dtype, value x, int count, const double *c) {
  value y = vt_emit_splat_f(e, dtype, c[0]);
  for (int i = 1; i < count; i++) y = fma3(e, y, x, vt_emit_splat_f(e, dtype, c[i]));
  return y;
}
static value polynomial(vt_emitter *e, value x, int count, const double *c) {
  return polynomial_in(e, VT_F32, x, count, c);
}
// The same by pairs of terms, with xx = x^2: half as long a chain, which is what a CPU waits for.
static value polynomial_by_pairs(vt_emitter *e, value x, value xx, int count, const double *c) {
  int at = count % 2;
  value y = at ? constant(e, c[0]) : NULL;
  for (; at < count; at += 2) {
    value pair = fma3(e, constant(e, c[at]), x, constant(e, c[at + 1]));
    y = y ? fma3(e, y, xx, pair) : pair;
  }
  return y;
}

// ---- What only some CPUs have.

// What the CPU has for whole registers; some read a table of sixteen numbers.
typedef value register_function(vt_emitter *e, value x, value y, const double *table);

// One for registers of `width` f32, on vectors of two, one, or the first lanes of one.
static value by_registers(vt_emitter *e, int width, register_function *function, value x, value y,
                          const double *table) {
  int lanes = e->target.lanes;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  value parts[2] = {NULL}, order[64];
  if (lanes == width) return function(e, x, y, table);
  for (int i = 0; i < 64; i++) order[i] = LLVMConstInt(i32, (unsigned)i, false);
  for (int at = 0; at < lanes; at += width) {
    value at_register[16];
    for (int i = 0; i < width; i++) at_register[i] = order[at + i < lanes ? at + i : 0];
    value some = LLVMConstVector(at_register, (unsigned)width);
    parts[at / width] = function(e, LLVMBuildShuffleVector(e->builder, x, x, some, ""),
                                 LLVMBuildShuffleVector(e->builder, y, y, some, ""), table);
  }
  return LLVMBuildShuffleVector(e->builder, parts[0], parts[1] ? parts[1] : parts[0],
                                LLVMConstVector(order, (unsigned)lanes), "");
}

static value all_lanes(vt_emitter *e) {
  return LLVMConstInt(LLVMInt16TypeInContext(e->context), 0xffff, false);
}
static value immediate(vt_emitter *e, unsigned x) {
  return LLVMConstInt(LLVMInt32TypeInContext(e->context), x, false);
}
enum { ROUND_AS_SET = 4 };

static value range16(vt_emitter *e, value x, value y, const double *table) {
  (void)table;
  enum { LEAST_SIZE = 2 };
  value args[6] = {x, y, immediate(e, LEAST_SIZE), x, all_lanes(e), immediate(e, ROUND_AS_SET)};
  return vt_emit_intrinsic(e, "llvm.x86.avx512.mask.range.ps.512", 0, NULL, 6, args);
}
// x, but no further from zero than y; NaN becomes y.
static value limit(vt_emitter *e, value x, double y) {
  return by_registers(e, 16, range16, x, constant(e, y), NULL);
}

static value scale16(vt_emitter *e, value x, value n, const double *table) {
  (void)table;
  value args[5] = {x, n, x, all_lanes(e), immediate(e, ROUND_AS_SET)};
  return vt_emit_intrinsic(e, "llvm.x86.avx512.mask.scalef.ps.512", 0, NULL, 5, args);
}
// x 2^n for n of any size, rounded down.
static value scale(vt_emitter *e, value x, value n) {
  return by_registers(e, 16, scale16, x, n, NULL);
}

static value look_up16(vt_emitter *e, value x, value y, const double *table) {
  (void)y;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  value numbers[16];
  for (int i = 0; i < 16; i++) numbers[i] = LLVMConstReal(f32, table[i]);
  LLVMTypeRef ints = LLVMVectorType(LLVMInt32TypeInContext(e->context), 16);
  value args[2] = {LLVMConstVector(numbers, 16), LLVMBuildBitCast(e->builder, x, ints, "")};
  return vt_emit_intrinsic(e, "llvm.x86.avx512.permvar.sf.512", 0, NULL, 2, args);
}
// Of the sixteen numbers of a table those that the last four bits of x say.
static value look_up(vt_emitter *e, value x, const double *table) {
  return by_registers(e, 16, look_up16, x, x, table);
}

static value reciprocal16(vt_emitter *e, value x, value y, const double *table) {
  (void)table;
  value args[3] = {x, y, all_lanes(e)};
  return vt_emit_intrinsic(e, "llvm.x86.avx512.rcp14.ps.512", 0, NULL, 3, args);
}
static value rsqrt16(vt_emitter *e, value x, value y, const double *table) {
  (void)table;
  value args[3] = {x, y, all_lanes(e)};
  return vt_emit_intrinsic(e, "llvm.x86.avx512.rsqrt14.ps.512", 0, NULL, 3, args);
}
static value rsqrt8(vt_emitter *e, value x, value y, const double *table) {
  (void)table;
  (void)y;
  return vt_emit_intrinsic(e, "llvm.x86.avx.rsqrt.ps.256", 0, NULL, 1, &x);
}

// ---- Exponentials and logarithms.

static LLVMTypeRef int_type(vt_emitter *e) {
  return vt_emit_type(e, VT_S32);
}
static value int_constant(vt_emitter *e, int64_t x) {
  return vt_emit_splat_i(e, VT_S32, x);
}

// x within [low, high]; NaN stays.
static value clamp(vt_emitter *e, value x, double low, double high) {
  x = choose(e, test(e, LLVMRealOLT, x, constant(e, low)), constant(e, low), x);
  return choose(e, test(e, LLVMRealOGT, x, constant(e, high)), constant(e, high), x);
}

// x = n ln 2 + r with |r| <= ln 2 / 2. Returns r; *out_power is n shifted to where a float has its
// exponent.
static value reduce_exp(vt_emitter *e, value x, value *out_power) {
  value magic = constant(e, 0x1.8p23); // rounds to an integer, in the low bits
  value shifted = fma3(e, x, constant(e, 1.4426950408889634), magic), n = sub(e, shifted, magic);
  value r = fma3(e, n, constant(e, -0x1.62e4p-1), x);
  value bits = LLVMBuildBitCast(e->builder, shifted, int_type(e), "");
  *out_power = LLVMBuildShl(e->builder, bits, int_constant(e, 23), "");
  return fma3(e, n, constant(e, -0x1.7f7d1cp-20), r);
}

// x 2^n by adding n to its exponent.
static value add_bits(vt_emitter *e, value x, value bits) {
  value sum = LLVMBuildAdd(e->builder, LLVMBuildBitCast(e->builder, x, int_type(e), ""), bits, "");
  return LLVMBuildBitCast(e->builder, sum, LLVMTypeOf(x), "");
}

// exp(r) 2^n for what reduce_exp gave.
static value reduced_exp(vt_emitter *e, value r, value power) {
  static const double c[] = {1.979014050e-04, 1.394486870e-03, 8.333498612e-03,
                             4.166629165e-02, 1.666666567e-01, 0.5};
  value rr = mul(e, r, r), p = fma3(e, polynomial_by_pairs(e, r, rr, 6, c), rr, r);
  return add_bits(e, add(e, p, constant(e, 1)), power);
}

// x = n ln 2 + r with n in sixteenths: 2^n is a number of the table times a power of two. Returns
// r.
static value reduce_by_table(vt_emitter *e, value x, value *out_n, value *out_shifted) {
  value magic = constant(e, 0x1.8p19); // rounds to sixteenths, in the low bits
  *out_shifted = fma3(e, x, constant(e, 1.4426950408889634), magic);
  *out_n = sub(e, *out_shifted, magic);
  value r = fma3(e, *out_n, constant(e, -0x1.62e4p-1), x);
  return fma3(e, *out_n, constant(e, -0x1.7f7d1cp-20), r);
}

// exp(r) 2^n for what reduce_by_table gave.
static value exp_by_table(vt_emitter *e, value r, value n, value shifted) {
  // 2^(i/16), and by how much of itself each is too small.
  static const double powers[16] = {1,          1.04427373, 1.09050775, 1.13878858,
                                    1.18920708, 1.24185777, 1.29683959, 1.35425556,
                                    1.41421354, 1.47682619, 1.54221082, 1.61049032,
                                    1.68179286, 1.75625217, 1.8340081,  1.91520655};
  static const double rests[16] = {0,
                                   4.62854708e-08,
                                   -1.19921571e-08,
                                   4.72978236e-08,
                                   3.19341809e-08,
                                   3.62105731e-08,
                                   -3.09907208e-08,
                                   -7.47521317e-09,
                                   1.71142713e-08,
                                   -3.04768342e-08,
                                   5.23333425e-09,
                                   6.10759162e-09,
                                   -1.47196054e-08,
                                   -5.25879512e-09,
                                   -6.12825982e-09,
                                   5.14060921e-09};
  value power = look_up(e, shifted, powers), rest = look_up(e, shifted, rests);
  value p = fma3(e, r, constant(e, 0.166670576), constant(e, 0.500016212));
  p = fma3(e, p, mul(e, r, r), add(e, r, rest));
  return scale(e, fma3(e, power, p, power), n);
}

// Where x is out of range, r may be anything. By the table it is limited, and n says what comes
// out: NaN is in n, too. Else results beyond the normal numbers are chosen at the end.
static value emit_exp(vt_emitter *e, value x) {
  if (e->target.avx512) {
    value n, shifted, r = reduce_by_table(e, x, &n, &shifted);
    return exp_by_table(e, limit(e, r, 0x1.8p-6), n, shifted);
  }
  value power, r = reduce_exp(e, x, &power), y = reduced_exp(e, r, power);
  value over = add(e, x, constant(e, INFINITY)); // NaN stays
  y = choose(e, test(e, LLVMRealOLE, x, constant(e, 0x1.62e42ep6)), y, over);
  return choose(e, test(e, LLVMRealOLT, x, constant(e, -0x1.5d589ep6)), constant(e, 0), y);
}

static value emit_expm1(vt_emitter *e, value x) {
  static const double c[] = {1.984589180e-04, 1.394082326e-03, 8.333389647e-03,
                             4.166635871e-02, 1.666666567e-01, 0.5};
  value power, r = reduce_exp(e, clamp(e, x, -18, 89), &power);
  value rr = mul(e, r, r), p = fma3(e, polynomial_by_pairs(e, r, rr, 6, c), rr, r);
  // 2^n p + (2^n - 1), at half the size so that 2^128 does not overflow early.
  value scale = add_bits(e, constant(e, 0.5), power);
  value y = fma3(e, scale, p, sub(e, scale, constant(e, 0.5)));
  y = add(e, y, y);
  value tiny = test(e, LLVMRealOLT, absolute(e, x), constant(e, 0x1p-24));
  return choose(e, tiny, x, y); // keeps -0
}

// x = m 2^n with m in [sqrt(1/2), sqrt(2)), for positive normal x; n as an integer.
static value split_exponent(vt_emitter *e, value x, value *out_n) {
  LLVMBuilderRef b = e->builder;
  value bits = LLVMBuildBitCast(b, x, int_type(e), "");
  value n = LLVMBuildAShr(b, LLVMBuildSub(b, bits, int_constant(e, 0x3f3504f3), ""),
                          int_constant(e, 23), "");
  bits = LLVMBuildSub(b, bits, LLVMBuildShl(b, n, int_constant(e, 23), ""), "");
  *out_n = n;
  return LLVMBuildBitCast(b, bits, LLVMTypeOf(x), "");
}

// log of a positive normal number, or of +inf and NaN; other inputs give arbitrary results.
static value log_positive(vt_emitter *e, value x) {
  static const double c[] = {6.746601313e-02,  -1.167564094e-01, 1.188817471e-01,
                             -1.240559146e-01, 1.421955079e-01,  -1.666799635e-01,
                             2.000211924e-01,  -2.500000894e-01, 3.333331347e-01};
  value exponent, m = sub(e, split_exponent(e, x, &exponent), constant(e, 1));
  value n = LLVMBuildSIToFP(e->builder, exponent, LLVMTypeOf(x), "");
  value m2 = mul(e, m, m);
  value tail = mul(e, mul(e, m2, m), polynomial_by_pairs(e, m, m2, 9, c));
  tail = fma3(e, n, constant(e, -0x1.bd0106p-13), tail); // ln 2 = 0x1.63p-1 - that
  tail = fma3(e, m2, constant(e, -0.5), tail);
  value y = fma3(e, n, constant(e, 0x1.63p-1), add(e, m, tail));
  return choose(e, test(e, LLVMRealOLT, x, constant(e, INFINITY)), y, x);
}

static value emit_log(vt_emitter *e, value x) {
  value y = log_positive(e, x);
  value low = test(e, LLVMRealOLT, x, constant(e, FLT_MIN));
  value below = test(e, LLVMRealOLT, x, constant(e, 0));
  return choose(e, low, choose(e, below, constant(e, NAN), constant(e, -INFINITY)), y);
}

// x / y for y whose reciprocal is normal, 1.3 ulp: a division costs as much as ten multiplications.
static value quotient(vt_emitter *e, value x, value y) {
  if (!e->target.avx512) return divide(e, x, y);
  value near = by_registers(e, 16, reciprocal16, y, y, NULL);
  value off = fma3(e, negative(e, y), near, constant(e, 1));
  return mul(e, x, fma3(e, near, off, near));
}

// log(u) + (x - (u - 1)) / u with u = 1 + x rounded.
static value emit_log1p(vt_emitter *e, value x) {
  value one = constant(e, 1), u = add(e, x, one);
  value lost = sub(e, x, sub(e, u, one));
  value y = add(e, log_positive(e, u), quotient(e, lost, u));
  y = choose(e, test(e, LLVMRealOLT, u, constant(e, INFINITY)), y, u); // inf and NaN
  value zero = test(e, LLVMRealOEQ, u, constant(e, 0));
  value below = test(e, LLVMRealOLT, u, constant(e, 0));
  y = choose(e, zero, constant(e, -INFINITY), choose(e, below, constant(e, NAN), y));
  value tiny = test(e, LLVMRealOLT, absolute(e, x), constant(e, 0x1p-24));
  return choose(e, tiny, x, y);
}

static value emit_logistic(vt_emitter *e, value x) {
  value one = constant(e, 1), y = add(e, one, emit_exp(e, negative(e, x)));
  return quotient(
      e, one, choose(e, test(e, LLVMRealOGT, y, constant(e, 0x1p127)), constant(e, 0x1p127), y));
}

// A function of x from 0 to 15 by a polynomial of sixteen: of x + 1 the exponent and two more bits
// say which; its variable is how far x lies behind where they begin. `c`: the highest power first.
enum { PIECES_DEGREE = 6 };
static value in_pieces(vt_emitter *e, value x, const double c[][16]) {
  LLVMBuilderRef b = e->builder;
  value one = constant(e, 1), bits = LLVMBuildBitCast(b, add(e, x, one), int_type(e), "");
  value index = LLVMBuildLShr(b, bits, int_constant(e, 21), "");
  index = LLVMBuildBitCast(b, index, LLVMTypeOf(x), "");
  value from = LLVMBuildAnd(b, bits, int_constant(e, -0x200000), "");
  from = sub(e, LLVMBuildBitCast(b, from, LLVMTypeOf(x), ""), one);
  value behind = sub(e, x, from), y = look_up(e, index, c[0]);
  for (int i = 1; i <= PIECES_DEGREE; i++) y = fma3(e, y, behind, look_up(e, index, c[i]));
  return y;
}

// |x|, but at most `most`; NaN stays.
static value size_to(vt_emitter *e, value x, double most) {
  value a = absolute(e, x), limit = constant(e, most);
  return choose(e, test(e, LLVMRealOGT, a, limit), limit, a);
}

// Exactly 1 from where tanh rounds to it.
static value tanh_in_pieces(vt_emitter *e, value x) {
  static const double c[PIECES_DEGREE + 1][16] = {
      {0.0179302543, 0.00397801772, -0.000259067601, -0.00201191986, -0.000102864746,
       3.58977632e-05, 3.32051786e-05, 1.94711192e-05, -2.09415504e-07, 0, 0, 0, -0.0369776934,
       -0.106818214, 0.0532742813, -0.0777758062},
      {-0.0466263629, -0.00250747055, 0.00436283741, 0.00493638963, 0.000801287999, -3.91807407e-05,
       -9.03924738e-05, -5.72099525e-05, 1.32995524e-06, 0, 0, 0, 0.143084601, 0.0984156057,
       -0.0936302841, -0.000594289624},
      {0.0286229085, -0.0242955089, -0.0175767597, -0.00924660731, -0.00283531193, -0.000222707735,
       6.55963231e-05, 5.95314232e-05, -3.37696679e-06, 0, 0, 0, -0.00118377223, 0.132519946,
       0.182110026, 0.0815271735},
      {0.10324464, 0.0875495449, 0.0420189202, 0.0173360817, 0.0063355621, 0.000781976385,
       5.62755813e-05, -1.86793495e-05, 4.68793587e-06, 0, 0, 0, -0.333270192, -0.256052166,
       -0.0963572562, 0.0441799052},
      {-0.319797456, -0.163528383, -0.0680982247, -0.0262735412, -0.0097879339, -0.00131492177,
       -0.000166471465, -1.63602872e-05, -4.51580217e-06, 0, 0, 0, -1.09727466e-06, -0.230277479,
       -0.363309979, -0.379059017},
      {0.419971734, 0.180704802, 0.0706503317, 0.026593836, 0.00986380503, 0.00133883965,
       0.000180293689, 2.38720404e-05, 3.53399014e-06, 0, 0, 0, 1, 0.940015852, 0.78644526,
       0.596588731},
      {0.761594176, 0.905148268, 0.964027584, 0.986614287, 0.995054781, 0.999329329, 0.999909222,
       0.999987721, 0.999998331, 1, 1, 1, 0, 0.244918659, 0.462117165, 0.635148942}};
  return copysign2(e, in_pieces(e, size_to(e, x, 9.02), c), x);
}

// y / (y + 1) with y = expm1(2|x|) / 2: exactly 1 from where tanh rounds to it. 2|x| = n ln 2 + 2r
// with n + 127 in the last bits of a float.
static value emit_tanh(vt_emitter *e, value x) {
  static const double c[] = {4.442405243e-02, 1.338647541e-01, 3.333376057e-01, 6.666617370e-01,
                             9.999999630e-01};
  LLVMBuilderRef b = e->builder;
  if (e->target.avx512) return tanh_in_pieces(e, x);
  value a = size_to(e, x, 9.02), bias = constant(e, 0x1.8p23 + 127);
  value shifted = fma3(e, a, constant(e, 2 * 1.4426950408889634), bias);
  value r = fma3(e, sub(e, shifted, bias), constant(e, -0.34657359027997264), a);
  value rr = mul(e, r, r), p = fma3(e, polynomial_by_pairs(e, r, rr, 5, c), rr, r);
  value bits =
      LLVMBuildShl(b, LLVMBuildBitCast(b, shifted, int_type(e), ""), int_constant(e, 23), "");
  value scale = LLVMBuildBitCast(b, bits, LLVMTypeOf(x), "");
  value y = fma3(e, scale, p, fma3(e, scale, constant(e, 0.5), constant(e, -0.5)));
  return copysign2(e, quotient(e, y, add(e, y, constant(e, 1))), x);
}

// Near zero x + x p(x^2); further out 1 - q(|x|)^4, which is exactly 1 from 4 on.
static value emit_erf(vt_emitter *e, value x) {
  static const double p[] = {7.233923857e-05, -7.822594395e-04, 5.167172536e-03, -2.684290857e-02,
                             1.128333401e-01, -3.761260500e-01, 1.283791630e-01};
  static const double q[] = {-1.756047215e-04, 1.827808521e-03, -5.370787926e-03, -5.780217626e-03,
                             4.861081005e-02,  1.932204646e-02, -4.131156062e-01, 5.883145915e-01};
  value a = size_to(e, x, 4), split = constant(e, 1.1);
  value xx = mul(e, x, x), near = fma3(e, polynomial_by_pairs(e, xx, mul(e, xx, xx), 7, p), x, x);
  value d = sub(e, a, split), far = polynomial_by_pairs(e, d, mul(e, d, d), 8, q);
  far = mul(e, far, far);
  far = copysign2(e, fma3(e, negative(e, far), far, constant(e, 1)), x);
  return choose(e, test(e, LLVMRealOLT, a, split), near, far);
}

// exp(x - y) for a small y, and x from -87 to 0.
static value exp_less(vt_emitter *e, value x, value y) {
  value n, bits;
  if (e->target.avx512) {
    value r = reduce_by_table(e, x, &n, &bits);
    return exp_by_table(e, sub(e, r, y), n, bits);
  }
  value r = reduce_exp(e, x, &bits);
  return reduced_exp(e, sub(e, r, y), bits);
}

// exp(x^2) erfc(x) for x from 0 to 9.3.
static value erfc_in_pieces(vt_emitter *e, value x) {
  static const double c[PIECES_DEGREE + 1][16] = {
      {0.00358196232, 0.00105752714, 0.000853966107, 0.000816137006, 3.81111058e-05, 9.20911134e-06,
       3.08497874e-06, -1.12434032e-06, 2.27480541e-07, -0.00319079473, 0, 0, 0.104815595,
       -0.142358437, 0.0699870437, -0.196036264},
      {-0.0146056917, -0.00464847405, -0.00244588032, -0.00171875395, -0.000273714948,
       -7.19800883e-05, -2.43967734e-05, -2.58906471e-06, -3.25508199e-06, 0.00288010226, 0, 0,
       -0.280332774, 0.015267049, -0.0979650095, 0.12540926},
      {0.036910817, 0.0132226553, 0.00582859106, 0.00303875562, 0.00119358907, 0.000366434921,
       0.000138678515, 5.26423792e-05, 2.82543551e-05, -0.000967210392, 0, 0, 0.49646908,
       0.200654358, 0.134209529, 0.0222248994},
      {-0.0791150108, -0.0329064243, -0.0155677181, -0.00815313309, -0.0044707153, -0.0016804022,
       -0.0007535076, -0.00037874293, -0.000212779909, 7.14663402e-05, 0, 0, -0.751939654,
       -0.392595261, -0.223352879, -0.12399099},
      {0.1543625, 0.0761493221, 0.0418159291, 0.0249561463, 0.0158832688, 0.00746543845,
       0.00404088059, 0.00241357926, 0.00155105686, 0.000735738548, 0, 0, 0.999987066, 0.584221542,
       0.359426737, 0.230610132},
      {-0.273211747, -0.163622886, -0.106797054, -0.0743481442, -0.0543722324, -0.0323835202,
       -0.0213328097, -0.0150602786, -0.011178392, -0.00683985557, 0, 0, -1.12837899, -0.743198812,
       -0.512690604, -0.367965072},
      {0.427583575, 0.321585417, 0.255395681, 0.21080637, 0.179001153, 0.136999458, 0.110704638,
       0.0927765667, 0.0798000544, 0.0623077229, 0, 0, 1, 0.770346522, 0.615690351, 0.506937623}};
  return in_pieces(e, x, c);
}

// The same as p(u) u with u = 1 / (x + 2).
static value erfc_by_quotient(vt_emitter *e, value x) {
  static const double p[] = {15.1983722,  -29.068415, -1.13090632, 14.3238639, -2.45093476,
                             -6.64721813, 1.09929799, 4.73175175,  3.21035378, 1.17044899};
  value u = quotient(e, constant(e, 1), add(e, x, constant(e, 2))), t = sub(e, u, constant(e, 0.3));
  return mul(e, u, polynomial_by_pairs(e, t, mul(e, t, t), 10, p));
}

// exp(-x^2) times those, and 2 - that for negative x; 0 from 9.3 on. Of x^2 the rounding error goes
// into the argument of exp.
static value emit_erfc(vt_emitter *e, value x) {
  value a = size_to(e, x, 9.3);
  value y = e->target.avx512 ? erfc_in_pieces(e, a) : erfc_by_quotient(e, a), tail = mul(e, a, a);
  value rest = fma3(e, a, a, negative(e, tail));
  y = mul(e, y, exp_less(e, negative(e, tail), rest));
  return choose(e, test(e, LLVMRealOLT, x, constant(e, 0)), sub(e, constant(e, 2), y), y);
}

// An estimate and one step: Newton's of 14 bits, the next order's of 12. What is off is less than
// 0.01, or NaN where the estimate is 0 or infinite and stays what it is.
static value emit_rsqrt(vt_emitter *e, value x) {
  bool close = e->target.avx512;
  if (!close && !e->target.fma) return divide(e, constant(e, 1), call(e, "llvm.sqrt", 1, &x));
  value near =
      close ? by_registers(e, 16, rsqrt16, x, x, NULL) : by_registers(e, 8, rsqrt8, x, x, NULL);
  value off = fma3(e, negative(e, mul(e, x, near)), near, constant(e, 1));
  off = choose(e, test(e, LLVMRealOLT, off, constant(e, 0.01)), off, constant(e, 0.01));
  value step = mul(e, near, constant(e, 0.5));
  if (!close) step = mul(e, near, fma3(e, off, constant(e, 0.375), constant(e, 0.5)));
  return fma3(e, step, off, near);
}

// ---- Roots, angles and powers.

// y = m z^2 for m = |x| / 8^k in [1, 8) and z near m^(-1/3), from a polynomial and one step of
// third order; then a Newton step on y with y^3 in two parts.
static value emit_cbrt(vt_emitter *e, value x) {
  static const double c[] = {5.852343622e-04, -1.298556148e-02, 1.084977218e-01, -4.408180159e-01,
                             1.337690644e+00};
  LLVMBuilderRef b = e->builder;
  value a = absolute(e, x), bits = LLVMBuildBitCast(b, a, int_type(e), "");
  // k + 43 is a third of the exponent + 129, which is at most 256: 171 / 512 is near enough to 1/3.
  value k =
      LLVMBuildAdd(b, LLVMBuildLShr(b, bits, int_constant(e, 23), ""), int_constant(e, 2), "");
  k = LLVMBuildLShr(b, LLVMBuildMul(b, k, int_constant(e, 171), ""), int_constant(e, 9), "");
  k = LLVMBuildShl(b, LLVMBuildSub(b, k, int_constant(e, 43), ""), int_constant(e, 23), "");
  bits = LLVMBuildSub(b, bits, LLVMBuildMul(b, k, int_constant(e, 3), ""), "");
  value m = LLVMBuildBitCast(b, bits, LLVMTypeOf(x), ""), z = polynomial(e, m, 5, c);
  value off = fma3(e, negative(e, mul(e, m, z)), mul(e, z, z), constant(e, 1));
  value step = fma3(e, off, constant(e, 2.0 / 9), constant(e, 1.0 / 3));
  z = fma3(e, mul(e, z, off), step, z);
  value zz = mul(e, z, z), y = mul(e, m, zz);
  value yy = mul(e, y, y), yy_rest = fma3(e, y, y, negative(e, yy));
  value yyy = mul(e, yy, y), yyy_rest = fma3(e, yy, y, negative(e, yyy));
  value gap = fma3(e, negative(e, yy_rest), y, sub(e, sub(e, m, yyy), yyy_rest));
  y = fma3(e, gap, mul(e, zz, constant(e, 1.0 / 3)), y);
  y = add_bits(e, y, k);
  value zero = test(e, LLVMRealOLT, a, constant(e, FLT_MIN));
  value plain = LLVMBuildAnd(b, LLVMBuildNot(b, zero, ""),
                             test(e, LLVMRealOLT, a, constant(e, INFINITY)), "");
  return choose(e, plain, copysign2(e, y, x), add(e, x, x)); // 0, inf and NaN
}

// atan(t) for t in [0, 1], the smaller of |x| and |y| over the larger, reflected into the octant.
static value emit_atan2(vt_emitter *e, value y, value x) {
  static const double c[] = {-1.793593849e-03, 1.091448082e-02,  -3.117761265e-02,
                             5.795735917e-02,  -8.403436629e-02, 1.095218109e-01,
                             -1.426424079e-01, 1.999854820e-01,  -3.333329909e-01};
  LLVMBuilderRef b = e->builder;
  value ax = absolute(e, x), ay = absolute(e, y), steep = test(e, LLVMRealOGT, ay, ax);
  value low = choose(e, steep, ax, ay), high = choose(e, steep, ay, ax);
  value t = choose(e, test(e, LLVMRealOEQ, low, high), constant(e, 1), divide(e, low, high));
  t = choose(e, test(e, LLVMRealOEQ, high, constant(e, 0)), low, t); // 0, or NaN with 0
  value z = mul(e, t, t),
        r = fma3(e, mul(e, t, z), polynomial_by_pairs(e, z, mul(e, z, z), 9, c), t);
  value left = LLVMBuildICmp(b, LLVMIntSLT, LLVMBuildBitCast(b, x, int_type(e), ""),
                             int_constant(e, 0), ""); // -0 too
  r = choose(e, LLVMBuildXor(b, steep, left, ""), negative(e, r), r);
  value half = choose(e, left, constant(e, 0x1.921fb6p1), constant(e, 0));
  value half_rest = choose(e, left, constant(e, -0x1.777a5cp-24), constant(e, 0));
  value base = choose(e, steep, constant(e, 0x1.921fb6p0), half);
  value rest = choose(e, steep, constant(e, -0x1.777a5cp-25), half_rest);
  return copysign2(e, add(e, base, add(e, r, rest)), y);
}

// log2 in f64 of an f32 that is no less than zero, or NaN.
static value log2_wide(vt_emitter *e, value x) {
  static const double c[] = {0x1.5ccf4a497d4c5p-2, 0x1.a590e44d34932p-2, 0x1.277771a4c5c9fp-1,
                             0x1.ec709d3a445c3p-1};
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef f64 = vt_emit_type(e, VT_F64);
  value exponent, m = LLVMBuildFPExt(b, split_exponent(e, x, &exponent), f64, "");
  value n = LLVMBuildSIToFP(b, exponent, f64, ""), one = vt_emit_splat_f(e, VT_F64, 1);
  value s = divide(e, sub(e, m, one), add(e, m, one)), z = mul(e, s, s);
  value p = polynomial_in(e, VT_F64, z, 4, c);
  p = fma3(e, p, z, vt_emit_splat_f(e, VT_F64, 2 * 1.4426950408889634));
  value y = fma3(e, s, p, n);
  value special = choose(e, test(e, LLVMRealOLT, x, constant(e, FLT_MIN)), constant(e, -INFINITY),
                         x); // of 0, inf and NaN
  value plain = LLVMBuildAnd(b, test(e, LLVMRealOGE, x, constant(e, FLT_MIN)),
                             test(e, LLVMRealOLT, x, constant(e, INFINITY)), "");
  return choose(e, plain, y, LLVMBuildFPExt(b, special, f64, ""));
}

// 2^x in f64 for all x whose result is an f32; more gives more than f32 holds.
static value exp2_wide(vt_emitter *e, value x) {
  static const double c[] = {0x1.41fbba205ee00p-13, 0x1.5f3e53be2c700p-10, 0x1.3b2d4cf6c61d5p-7,
                             0x1.c6aee88c8ff11p-5,  0x1.ebfbdc3c24cb6p-3,  0x1.62e430af29194p-1};
  LLVMBuilderRef b = e->builder;
  value most = vt_emit_splat_f(e, VT_F64, 200), least = vt_emit_splat_f(e, VT_F64, -200);
  x = choose(e, test(e, LLVMRealOGT, x, most), most, x); // NaN stays
  x = choose(e, test(e, LLVMRealOLT, x, least), least, x);
  value magic = vt_emit_splat_f(e, VT_F64, 0x1.8p52); // rounds to an integer, in the low bits
  value shifted = add(e, x, magic), r = sub(e, x, sub(e, shifted, magic));
  value p = polynomial_in(e, VT_F64, r, 6, c);
  p = fma3(e, p, r, vt_emit_splat_f(e, VT_F64, 1));
  value scale = LLVMBuildBitCast(b, shifted, vt_emit_type(e, VT_S64), "");
  scale = LLVMBuildAdd(b, LLVMBuildShl(b, scale, vt_emit_splat_i(e, VT_S64, 52), ""),
                       vt_emit_splat_i(e, VT_S64, 0x3ff0000000000000), "");
  return mul(e, p, LLVMBuildBitCast(b, scale, LLVMTypeOf(x), ""));
}

// |x|^y = 2^(y log2 |x|), with the sign of x where y is odd; the special cases are C's.
static value emit_power(vt_emitter *e, value x, value y) {
  LLVMBuilderRef b = e->builder;
  value a = absolute(e, x), one = constant(e, 1), zero = constant(e, 0);
  value wide = LLVMBuildFPExt(b, y, vt_emit_type(e, VT_F64), "");
  wide = exp2_wide(e, mul(e, wide, log2_wide(e, a)));
  value r = LLVMBuildFPTrunc(b, wide, LLVMTypeOf(x), "");
  r = choose(e, test(e, LLVMRealOEQ, a, one), one, r);
  value half = mul(e, y, constant(e, 0.5));
  value whole = test(e, LLVMRealOEQ, call(e, "llvm.floor", 1, &y), y); // infinities too, as even
  value odd =
      LLVMBuildAnd(b, whole, test(e, LLVMRealUNE, call(e, "llvm.floor", 1, &half), half), "");
  r = choose(e, odd, copysign2(e, r, x), r);
  value below = LLVMBuildAnd(b, test(e, LLVMRealOLT, x, zero),
                             test(e, LLVMRealUNE, a, constant(e, INFINITY)), "");
  r = choose(e, LLVMBuildAnd(b, below, LLVMBuildNot(b, whole, ""), ""), constant(e, NAN), r);
  value always_one =
      LLVMBuildOr(b, test(e, LLVMRealOEQ, y, zero), test(e, LLVMRealOEQ, x, one), "");
  return choose(e, always_one, one, r);
}

// ---- Lane by lane, by the evaluator's loops.

static vt_vec_fn lanes_of(vt_opcode code, vt_dtype dtype) {
  return vt_vec_op(vt_vec_class_of(dtype), code);
}

enum { LANES_NAME = sizeof((vt_runtime_symbol *)0)->name };

// The name by which generated code calls a loop.
static void lanes_name(vt_opcode code, vt_dtype dtype, char *out) {
  const char *op = strrchr(vt_op_info_get(code)->text, '.') + 1;
  snprintf(out, LANES_NAME, "vt_lanes_%s_%s", op, vt_dtype_get(dtype)->text);
}

static const vt_dtype lane_types[] = {VT_S8,  VT_S16, VT_S32, VT_S64, VT_U8,
                                      VT_U16, VT_U32, VT_U64, VT_F32, VT_F64};

uint32_t vt_runtime_symbols(vt_runtime_symbol *out) {
  uint32_t count = 0;
  for (int code = VT_OP_INVALID + 1; code < VT_OP_COUNT; code++)
    for (size_t i = 0; i < sizeof lane_types / sizeof *lane_types; i++) {
      vt_vec_fn loop = lanes_of((vt_opcode)code, lane_types[i]);
      if (!loop) continue;
      if (out) {
        lanes_name((vt_opcode)code, lane_types[i], out[count].name);
        out[count].address = (void *)(uintptr_t)loop;
      }
      count++;
    }
  if (out) out[count] = (vt_runtime_symbol){"vt_loop_call", (void *)(uintptr_t)vt_loop_call};
  return count + 1;
}

bool vt_emit_has_lanes(const vt_op *op) {
  vt_dtype dtype = vt_emit_compute_dtype(op->operands[0]->type.dtype);
  return dtype != VT_PRED && op->results[0].type.dtype == op->operands[0]->type.dtype &&
         lanes_of(op->code, dtype);
}

// Calls the evaluator's loop of an op with the vectors in memory.
static value through_memory(vt_emitter *e, vt_opcode code, vt_dtype dtype, uint32_t count,
                            const value *args) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef vector = LLVMTypeOf(args[0]), pointer = LLVMPointerTypeInContext(e->context, 0);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context), i64 = LLVMInt64TypeInContext(e->context);
  LLVMBasicBlockRef here = LLVMGetInsertBlock(b), entry = LLVMGetEntryBasicBlock(e->function);
  LLVMPositionBuilderBefore(b, LLVMGetFirstInstruction(entry));
  value slots[4]; // three operands and the result
  for (uint32_t i = 0; i < 4; i++)
    slots[i] = i < count || i == 3 ? LLVMBuildAlloca(b, vector, "") : LLVMConstNull(pointer);
  LLVMPositionBuilderAtEnd(b, here);
  for (uint32_t i = 0; i < count; i++) LLVMBuildStore(b, args[i], slots[i]);
  LLVMTypeRef params[6] = {i64, pointer, pointer, pointer, pointer, i32}; // of vt_vec_fn
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), params, 6, false);
  char name[LANES_NAME];
  lanes_name(code, dtype, name);
  value function = LLVMGetNamedFunction(e->module, name);
  if (!function) function = LLVMAddFunction(e->module, name, type);
  value width = LLVMConstInt(i32, (unsigned)vt_vec_width_of(dtype), false);
  value call_args[6] = {LLVMConstInt(i64, (unsigned)e->target.lanes, false),
                        slots[0],
                        slots[1],
                        slots[2],
                        slots[3],
                        width};
  LLVMBuildCall2(b, type, function, call_args, 6, "");
  return LLVMBuildLoad2(b, vector, slots[3], "");
}

LLVMValueRef vt_emit_op_lanes(const vt_emit_call *c) {
  vt_dtype dtype = vt_emit_compute_dtype(c->op->operands[0]->type.dtype);
  return through_memory(c->e, c->op->code, dtype, c->op->operand_count, c->in);
}

// y where the lane is inside, else what the evaluator's loop has, which runs if any lane is not: a
// lane's bits do not depend on its neighbours, which may be other elements on another device, or
// lie past the end of the array.
static value unless_rare(vt_emitter *e, value inside, value y, vt_opcode code, uint32_t count,
                         const value *args) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef mask_type = LLVMTypeOf(inside);
  value all = vt_emit_intrinsic(e, "llvm.vector.reduce.and", 1, &mask_type, 1, &inside);
  LLVMBasicBlockRef from = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef rare = LLVMAppendBasicBlockInContext(e->context, e->function, "rare");
  LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->context, e->function, "done");
  vt_emit_branch(e, all, done, rare);
  LLVMPositionBuilderAtEnd(b, rare);
  value slow = choose(e, inside, y, through_memory(e, code, VT_F32, count, args));
  LLVMBuildBr(b, done);
  LLVMPositionBuilderAtEnd(b, done);
  value phi = LLVMBuildPhi(b, LLVMTypeOf(y), "");
  LLVMAddIncoming(phi, (value[]){y, slow}, (LLVMBasicBlockRef[]){from, rare}, 2);
  return phi;
}

// ---- Sine and cosine.

// sin (or cos) of |x| <= 2^13 by three-part reduction; lanes out of range take the evaluator's.
static value emit_sine(vt_emitter *e, value x, bool cosine) {
  static const double s[] = {2.718237283e-06, -1.983932743e-04, 8.333329111e-03, -1.666666716e-01};
  static const double c[] = {-2.720504426e-07, 2.479945215e-05, -1.388888340e-03, 4.166666791e-02};
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef f32 = LLVMTypeOf(x);
  value scaled = mul(e, x, constant(e, 0.63661977236758134));
  value n = call(e, "llvm.rint", 1, &scaled);
  value r = fma3(e, n, constant(e, -0x1.92p0), x);
  r = fma3(e, n, constant(e, -0x1.fb5444p-12), r);
  r = fma3(e, n, constant(e, -0x1.68c234p-39), r);
  value z = mul(e, r, r);
  value sine = fma3(e, mul(e, z, r), polynomial(e, z, 4, s), r);
  value cos_tail = fma3(e, z, polynomial(e, z, 4, c), constant(e, -0.5));
  value cosi = fma3(e, cos_tail, z, constant(e, 1));
  value inside = test(e, LLVMRealOLE, absolute(e, x), constant(e, 8192));
  value i = LLVMBuildFPToSI(b, choose(e, inside, n, constant(e, 0)), int_type(e), "");
  if (cosine) i = LLVMBuildAdd(b, i, int_constant(e, 1), "");
  value odd = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildAnd(b, i, int_constant(e, 1), ""),
                            int_constant(e, 0), "");
  value flip = LLVMBuildShl(b, LLVMBuildAnd(b, i, int_constant(e, 2), ""), int_constant(e, 30), "");
  value bits = LLVMBuildBitCast(b, choose(e, odd, cosi, sine), int_type(e), "");
  value y = LLVMBuildBitCast(b, LLVMBuildXor(b, bits, flip, ""), f32, "");
  if (!cosine) y = choose(e, test(e, LLVMRealOEQ, x, constant(e, 0)), x, y);
  return unless_rare(e, inside, y, cosine ? VT_OP_COSINE : VT_OP_SINE, 1, &x);
}

// ---- Remainder.

// |x| in f64. The CPU takes a subnormal for zero there, LLVM a constant for what it is.
static value wide_size(vt_emitter *e, value x) {
  value size = absolute(e, x);
  value wide = LLVMBuildFPExt(e->builder, size, vt_emit_type(e, VT_F64), "");
  if (!LLVMIsConstant(x)) return wide;
  value zero = vt_emit_splat_f(e, VT_F64, 0);
  return choose(e, test(e, LLVMRealOLT, size, constant(e, FLT_MIN)), zero, wide);
}

// x - y trunc(x / y), exact in f64 while the quotient has 29 bits: y has 24. The quotient may be
// rounded up to the next integer, which the sign of the rest shows.
static value emit_remainder(vt_emitter *e, value x, value y) {
  LLVMBuilderRef b = e->builder;
  value wx = wide_size(e, x), wy = wide_size(e, y), ratio = divide(e, wx, wy);
  value n = call(e, "llvm.trunc", 1, &ratio), rest = fma3(e, negative(e, n), wy, wx);
  value zero = vt_emit_splat_f(e, VT_F64, 0);
  rest = choose(e, test(e, LLVMRealOLT, rest, zero), add(e, rest, wy), rest);
  rest = choose(e, test(e, LLVMRealOEQ, n, zero), wx, rest); // y may be infinite
  value r = copysign2(e, LLVMBuildFPTrunc(b, rest, LLVMTypeOf(x), ""), x);
  value inside = test(e, LLVMRealOLT, ratio, vt_emit_splat_f(e, VT_F64, 0x1p29));
  return unless_rare(e, inside, r, VT_OP_REMAINDER, 2, (value[]){x, y});
}

LLVMValueRef vt_emit_float_remainder(const vt_emit_call *c) {
  return vt_emit_compute_dtype(c->op->operands[0]->type.dtype) == VT_F32
             ? emit_remainder(c->e, c->in[0], c->in[1])
             : vt_emit_op_lanes(c);
}

// ---- The emitters: polynomials where values are f32 in registers.

static bool in_f32(const vt_emit_call *c) {
  return vt_emit_compute_dtype(c->op->operands[0]->type.dtype) == VT_F32;
}

#define FUNCTION(name, ...)                                                                        \
  LLVMValueRef vt_emit_op_##name(const vt_emit_call *c) {                                          \
    return in_f32(c) ? __VA_ARGS__ : vt_emit_op_lanes(c);                                          \
  }
FUNCTION(exp, emit_exp(c->e, c->in[0]))
FUNCTION(expm1, emit_expm1(c->e, c->in[0]))
FUNCTION(log, emit_log(c->e, c->in[0]))
FUNCTION(log1p, emit_log1p(c->e, c->in[0]))
FUNCTION(logistic, emit_logistic(c->e, c->in[0]))
FUNCTION(tanh, emit_tanh(c->e, c->in[0]))
FUNCTION(erf, emit_erf(c->e, c->in[0]))
FUNCTION(erfc, emit_erfc(c->e, c->in[0]))
FUNCTION(sine, emit_sine(c->e, c->in[0], false))
FUNCTION(cosine, emit_sine(c->e, c->in[0], true))
FUNCTION(cbrt, emit_cbrt(c->e, c->in[0]))
FUNCTION(atan2, emit_atan2(c->e, c->in[0], c->in[1]))
FUNCTION(power, emit_power(c->e, c->in[0], c->in[1]))

LLVMValueRef vt_emit_op_rsqrt(const vt_emit_call *c) {
  if (in_f32(c)) return emit_rsqrt(c->e, c->in[0]);
  value root = c->in[0];
  root = call(c->e, "llvm.sqrt", 1, &root);
  return LLVMBuildFDiv(c->e->builder, vt_emit_splat_f(c->e, VT_F64, 1), root, "");
}
