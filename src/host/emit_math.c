// SPDX-License-Identifier: Apache-2.0
// emit_math.c - exp, log and similar functions as polynomials on f32 vectors, the rest by the
// evaluator's loops.
//
// Worst error on normal results against f64, checked by emit_math_test over all exponents
// (measured, ulp): exp 0.95, expm1 1.3, log 0.75, log1p 1.5, logistic 2, tanh 2.4, sin and cos 1.5
// (of the larger of the result and 2^-24), rsqrt 1.4 (1 with AVX-512), others the evaluator's.
// Subnormal inputs count as zero and subnormal results are zero, as everywhere in compiled code.
// Polynomials are least-squares fits on Chebyshev nodes, reweighted to minimize the worst relative
// error. f64 goes to the evaluator, which calls libm: f64 is rare, and only libm is accurate
// enough.
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/vec.h"
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

// 2^n for integer n in [-126, 127], given as a float.
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

// log of a positive normal number, or of +inf and NaN; other inputs give arbitrary results.
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

// An estimate and one Newton step; 0, inf and NaN keep the estimate.
static value emit_rsqrt(vt_emitter *e, value x) {
  if (!e->target.avx512) return divide(e, constant(e, 1), call(e, "llvm.sqrt", 1, &x));
  value args[3] = {x, x, LLVMConstInt(LLVMInt16TypeInContext(e->context), 0xffff, false)};
  value near = vt_emit_intrinsic(e, "llvm.x86.avx512.rsqrt14.ps.512", 0, NULL, 3, args);
  value off = fma3(e, negative(e, mul(e, x, near)), near, constant(e, 1));
  value y = fma3(e, mul(e, near, constant(e, 0.5)), off, near);
  return choose(e, test(e, LLVMRealUNO, y, y), near, y);
}

// ---- Lane by lane, by the evaluator's loops.

static vt_vec_fn lanes_of(vt_opcode code, vt_dtype dtype) {
  return vt_vec()->op[vt_vec_class_of(dtype)][code];
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
  return count;
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

// ---- Sine and cosine.

// sin (or cos) of |x| <= 2^13 by three-part reduction; one lane out of range sends the whole vector
// through the evaluator's loop.
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
  value slow = through_memory(e, cosine ? VT_OP_COSINE : VT_OP_SINE, VT_F32, 1, &x);
  LLVMBuildBr(b, done);
  LLVMPositionBuilderAtEnd(b, done);
  value phi = LLVMBuildPhi(b, f32, "");
  LLVMAddIncoming(phi, (value[]){y, slow}, (LLVMBasicBlockRef[]){from, rare}, 2);
  return phi;
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
FUNCTION(sine, emit_sine(c->e, c->in[0], false))
FUNCTION(cosine, emit_sine(c->e, c->in[0], true))

LLVMValueRef vt_emit_op_rsqrt(const vt_emit_call *c) {
  if (in_f32(c)) return emit_rsqrt(c->e, c->in[0]);
  value root = c->in[0];
  root = call(c->e, "llvm.sqrt", 1, &root);
  return LLVMBuildFDiv(c->e->builder, vt_emit_splat_f(c->e, VT_F64, 1), root, "");
}
