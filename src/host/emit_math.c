// SPDX-License-Identifier: Apache-2.0
// emit_math.c - exp, log and their kin on f32 vectors as polynomials, everything else lane by lane
// through libm.
//
// Worst error on normal results against f64, held by emit_math_test over all exponents (measured,
// ulp): exp 0.95, expm1 1.3, log 0.75, log1p 1.5, logistic 2, tanh 2.4, sin and cos 1.5 (of the
// larger of the result and 2^-24), rsqrt 1.4 (1 with AVX-512), others libm's.
// Subnormal inputs count as zero and subnormal results are zero, as everywhere in compiled code.
// Polynomials are least-squares fits on Chebyshev nodes, reweighted towards the smallest worst
// relative error. f64 goes to libm: rare, and exact enough only there.
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "host/emit.h"

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

static value polynomial(vt_emitter *e, value x, int count, const double *c) {
  value y = constant(e, c[0]);
  for (int i = 1; i < count; i++) y = fma3(e, y, x, constant(e, c[i]));
  return y;
}

static LLVMTypeRef int_type(vt_emitter *e) {
  return vt_emit_type(e, VT_S32);
}
static value int_constant(vt_emitter *e, int64_t x) {
  return vt_emit_splat_i(e, VT_S32, x);
}

// 2^n for whole n in [-126, 127], from a float that holds it.
static value power_of_two(vt_emitter *e, value n) {
  LLVMBuilderRef b = e->builder;
  value i = LLVMBuildFPToSI(b, n, int_type(e), "");
  value bits =
      LLVMBuildShl(b, LLVMBuildAdd(b, i, int_constant(e, 127), ""), int_constant(e, 23), "");
  return LLVMBuildBitCast(b, bits, LLVMTypeOf(n), "");
}

// x within [low, high]; NaN stays.
static value clamp(vt_emitter *e, value x, double low, double high) {
  x = choose(e, test(e, LLVMRealOLT, x, constant(e, low)), constant(e, low), x);
  return choose(e, test(e, LLVMRealOGT, x, constant(e, high)), constant(e, high), x);
}

// x = n ln 2 + r with |r| <= ln 2 / 2.
static value reduce_exp(vt_emitter *e, value x, value *out_n) {
  value scaled = mul(e, x, constant(e, 1.4426950408889634));
  value n = call(e, "llvm.rint", 1, &scaled);
  value r = fma3(e, n, constant(e, -0x1.62e4p-1), x);
  *out_n = n;
  return fma3(e, n, constant(e, -0x1.7f7d1cp-20), r);
}

static value emit_exp(vt_emitter *e, value x) {
  static const double c[] = {1.979014050e-04, 1.394486870e-03, 8.333498612e-03,
                             4.166629165e-02, 1.666666567e-01, 0.5};
  value n, r = reduce_exp(e, clamp(e, x, -104, 89), &n);
  value p = polynomial(e, r, 6, c);
  p = add(e, fma3(e, p, mul(e, r, r), r), constant(e, 1));
  if (e->target.avx512) {
    value args[5] = {p, n, p, LLVMConstInt(LLVMInt16TypeInContext(e->context), 0xffff, false),
                     LLVMConstInt(LLVMInt32TypeInContext(e->context), 4, false)}; // rounding as set
    return vt_emit_intrinsic(e, "llvm.x86.avx512.mask.scalef.ps.512", 0, NULL, 5, args);
  }
  // 2^n in two halves: n reaches -150 and 128.
  value half = mul(e, n, constant(e, 0.5));
  value first = call(e, "llvm.floor", 1, &half);
  value y = mul(e, mul(e, p, power_of_two(e, first)), power_of_two(e, sub(e, n, first)));
  return y;
}

static value emit_expm1(vt_emitter *e, value x) {
  static const double c[] = {1.984589180e-04, 1.394082326e-03, 8.333389647e-03,
                             4.166635871e-02, 1.666666567e-01, 0.5};
  value n, r = reduce_exp(e, clamp(e, x, -18, 89), &n);
  value p = fma3(e, polynomial(e, r, 6, c), mul(e, r, r), r);
  // 2^n p + (2^n - 1), at half the size so that 2^128 does not overflow early.
  value scale = power_of_two(e, sub(e, n, constant(e, 1)));
  value y = fma3(e, scale, p, sub(e, scale, constant(e, 0.5)));
  y = add(e, y, y);
  value tiny = test(e, LLVMRealOLT, absolute(e, x), constant(e, 0x1p-24));
  return choose(e, tiny, x, y); // keeps -0
}

// log of a positive normal number, or of +inf and NaN; other inputs give anything.
static value log_positive(vt_emitter *e, value x) {
  static const double c[] = {6.746601313e-02,  -1.167564094e-01, 1.188817471e-01,
                             -1.240559146e-01, 1.421955079e-01,  -1.666799635e-01,
                             2.000211924e-01,  -2.500000894e-01, 3.333331347e-01};
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef f32 = LLVMTypeOf(x);
  value bits = LLVMBuildBitCast(b, x, int_type(e), "");
  // Exponent so that the mantissa lies in [sqrt(1/2), sqrt(2)).
  value shifted = LLVMBuildSub(b, bits, int_constant(e, 0x3f3504f3), "");
  value exponent = LLVMBuildAShr(b, shifted, int_constant(e, 23), "");
  value mantissa = LLVMBuildSub(b, bits, LLVMBuildShl(b, exponent, int_constant(e, 23), ""), "");
  value m = sub(e, LLVMBuildBitCast(b, mantissa, f32, ""), constant(e, 1));
  value n = LLVMBuildSIToFP(b, exponent, f32, "");
  value m2 = mul(e, m, m);
  value tail = mul(e, mul(e, m2, m), polynomial(e, m, 9, c));
  tail = fma3(e, n, constant(e, -0x1.bd0106p-13), tail); // ln 2 = 0x1.63p-1 - that
  tail = fma3(e, m2, constant(e, -0.5), tail);
  value y = fma3(e, n, constant(e, 0x1.63p-1), add(e, m, tail));
  value special = LLVMBuildNot(b, test(e, LLVMRealOLT, x, constant(e, INFINITY)), "");
  return choose(e, special, x, y);
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
  value args[3] = {y, y, LLVMConstInt(LLVMInt16TypeInContext(e->context), 0xffff, false)};
  value near = vt_emit_intrinsic(e, "llvm.x86.avx512.rcp14.ps.512", 0, NULL, 3, args);
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

// y / (y + 1) with y = expm1(2|x|) / 2: exactly 1 from where tanh rounds to it. 2|x| = n ln 2 + 2r
// with n + 127 in the last bits of a float.
static value emit_tanh(vt_emitter *e, value x) {
  static const double c[] = {4.442405243e-02, 1.338647541e-01, 3.333376057e-01, 6.666617370e-01,
                             9.999999630e-01};
  LLVMBuilderRef b = e->builder;
  value a = absolute(e, x), most = constant(e, 9.02), bias = constant(e, 0x1.8p23 + 127);
  a = choose(e, test(e, LLVMRealOGT, a, most), most, a); // NaN stays
  value shifted = fma3(e, a, constant(e, 2 * 1.4426950408889634), bias);
  value r = fma3(e, sub(e, shifted, bias), constant(e, -0.34657359027997264), a);
  value p = fma3(e, polynomial(e, r, 5, c), mul(e, r, r), r);
  value bits =
      LLVMBuildShl(b, LLVMBuildBitCast(b, shifted, int_type(e), ""), int_constant(e, 23), "");
  value scale = LLVMBuildBitCast(b, bits, LLVMTypeOf(x), "");
  value y = fma3(e, scale, p, fma3(e, scale, constant(e, 0.5), constant(e, -0.5)));
  return copysign2(e, quotient(e, y, add(e, y, constant(e, 1))), x);
}

// An estimate and a step of Newton, which leaves 0, inf and NaN to the estimate.
static value emit_rsqrt(vt_emitter *e, value x) {
  if (!e->target.avx512) return divide(e, constant(e, 1), call(e, "llvm.sqrt", 1, &x));
  value args[3] = {x, x, LLVMConstInt(LLVMInt16TypeInContext(e->context), 0xffff, false)};
  value near = vt_emit_intrinsic(e, "llvm.x86.avx512.rsqrt14.ps.512", 0, NULL, 3, args);
  value off = fma3(e, negative(e, mul(e, x, near)), near, constant(e, 1));
  value y = fma3(e, mul(e, near, constant(e, 0.5)), off, near);
  return choose(e, test(e, LLVMRealUNO, y, y), near, y);
}

// Calls `name`(out, a, b, lanes) with the vectors in memory.
static value through_memory(vt_emitter *e, const char *name, uint32_t count, const value *args) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef vector = LLVMTypeOf(args[0]), pointer = LLVMPointerTypeInContext(e->context, 0);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMBasicBlockRef here = LLVMGetInsertBlock(b), entry = LLVMGetEntryBasicBlock(e->function);
  LLVMPositionBuilderBefore(b, LLVMGetFirstInstruction(entry));
  value slots[3];
  for (uint32_t i = 0; i < 3; i++)
    slots[i] = i <= count ? LLVMBuildAlloca(b, vector, "") : slots[0];
  LLVMPositionBuilderAtEnd(b, here);
  for (uint32_t i = 0; i < count; i++) LLVMBuildStore(b, args[i], slots[i + 1]);
  LLVMTypeRef params[4] = {pointer, pointer, pointer, i32};
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), params, 4, false);
  value function = LLVMGetNamedFunction(e->module, name);
  if (!function) function = LLVMAddFunction(e->module, name, type);
  value call_args[4] = {slots[0], slots[1], slots[2],
                        LLVMConstInt(i32, (unsigned)e->target.lanes, false)};
  LLVMBuildCall2(b, type, function, call_args, 4, "");
  return LLVMBuildLoad2(b, vector, slots[0], "");
}

// sin (or cos) of |x| <= 2^13 by three-part reduction; one lane beyond sends the vector through
// libm.
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
  // The rare branch.
  LLVMTypeRef mask_type = LLVMTypeOf(inside);
  value all = vt_emit_intrinsic(e, "llvm.vector.reduce.and", 1, &mask_type, 1, &inside);
  LLVMBasicBlockRef from = LLVMGetInsertBlock(b);
  LLVMBasicBlockRef rare = LLVMAppendBasicBlockInContext(e->context, e->function, "large");
  LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->context, e->function, "sine");
  LLVMBuildCondBr(b, all, done, rare);
  LLVMPositionBuilderAtEnd(b, rare);
  value slow = through_memory(e, cosine ? "vt_lanes_cos_f32" : "vt_lanes_sin_f32", 1, &x);
  LLVMBuildBr(b, done);
  LLVMPositionBuilderAtEnd(b, done);
  value phi = LLVMBuildPhi(b, f32, "");
  LLVMAddIncoming(phi, (value[]){y, slow}, (LLVMBasicBlockRef[]){from, rare}, 2);
  return phi;
}

// name in C, opcode, operands
// clang-format off
#define LANE_FUNCTIONS(X)                                                                          \
  X(exp, EXPONENTIAL, 1) X(expm1, EXPONENTIAL_MINUS_ONE, 1) X(log, LOG, 1) X(log1p, LOG_PLUS_ONE, 1)                   \
  X(tanh, TANH, 1) X(cos, COSINE, 1) X(sin, SINE, 1) X(tan, TAN, 1) X(cbrt, CBRT, 1) X(round, ROUND_NEAREST_AFZ, 1)   \
  X(pow, POWER, 2) X(atan2, ATAN2, 2)
// clang-format on

#define LANES(name, opcode, count)                                                                 \
  static void lanes_##name##_f32(float *out, const float *a, const float *b, int n) {              \
    (void)b;                                                                                       \
    for (int i = 0; i < n; i++) out[i] = LANE_CALL_##count(name##f, a, b);                         \
  }                                                                                                \
  static void lanes_##name##_f64(double *out, const double *a, const double *b, int n) {           \
    (void)b;                                                                                       \
    for (int i = 0; i < n; i++) out[i] = LANE_CALL_##count(name, a, b);                            \
  }
#define LANE_CALL_1(f, a, b) f(a[i])
#define LANE_CALL_2(f, a, b) f(a[i], b[i])
LANE_FUNCTIONS(LANES)

static void lanes_logistic_f64(double *out, const double *a, const double *b, int n) {
  (void)b;
  for (int i = 0; i < n; i++) out[i] = 1 / (1 + exp(-a[i]));
}

const vt_runtime_symbol vt_runtime_symbols[] = {
#define SYMBOL(name, opcode, count)                                                                \
  {"vt_lanes_" #name "_f32", (void *)(uintptr_t)lanes_##name##_f32},                               \
      {"vt_lanes_" #name "_f64", (void *)(uintptr_t)lanes_##name##_f64},
    LANE_FUNCTIONS(SYMBOL){"vt_lanes_logistic_f64", (void *)(uintptr_t)lanes_logistic_f64},
    {NULL, NULL},
};

static const char *lane_function(vt_opcode code, uint32_t *out_count) {
  switch (code) {
#define NAME(name, opcode, count)                                                                  \
  case VT_OP_##opcode:                                                                             \
    *out_count = count;                                                                            \
    return #name;
    LANE_FUNCTIONS(NAME)
  case VT_OP_LOGISTIC:
    *out_count = 1;
    return "logistic";
  default:
    return NULL;
  }
}

bool vt_emit_is_math(vt_opcode code) {
  uint32_t count;
  return code == VT_OP_RSQRT || lane_function(code, &count);
}

static value emit_f32(vt_emitter *e, vt_opcode code, value x) {
  switch (code) {
  case VT_OP_EXPONENTIAL:
    return emit_exp(e, x);
  case VT_OP_EXPONENTIAL_MINUS_ONE:
    return emit_expm1(e, x);
  case VT_OP_LOG:
    return emit_log(e, x);
  case VT_OP_LOG_PLUS_ONE:
    return emit_log1p(e, x);
  case VT_OP_LOGISTIC:
    return emit_logistic(e, x);
  case VT_OP_TANH:
    return emit_tanh(e, x);
  case VT_OP_SINE:
    return emit_sine(e, x, false);
  case VT_OP_COSINE:
    return emit_sine(e, x, true);
  case VT_OP_RSQRT:
    return emit_rsqrt(e, x);
  default:
    return NULL;
  }
}

LLVMValueRef vt_emit_math(vt_emitter *e, vt_opcode code, vt_dtype dtype,
                          const LLVMValueRef *operands) {
  if (!vt_dtype_is_float(dtype) || !vt_emit_is_math(code)) return NULL;
  if (dtype == VT_F32) {
    value fast = emit_f32(e, code, operands[0]);
    if (fast) return fast;
  }
  if (code == VT_OP_RSQRT) {
    value root = operands[0];
    root = call(e, "llvm.sqrt", 1, &root);
    return LLVMBuildFDiv(e->builder, vt_emit_splat_f(e, dtype, 1), root, "");
  }
  uint32_t count = 1;
  char name[64];
  snprintf(name, sizeof name, "vt_lanes_%s_%s", lane_function(code, &count),
           dtype == VT_F32 ? "f32" : "f64");
  return through_memory(e, name, count, operands);
}
