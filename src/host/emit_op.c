// SPDX-License-Identifier: Apache-2.0
// emit_op.c - one elementwise op on vectors: types, loads and stores of each dtype, rounding,
// arithmetic. Meaning of corner cases (integer division by zero, shifts past the width, float to
// integer) is the evaluator's.
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "host/emit.h"

static bool is_small_float(vt_dtype dtype) {
  return dtype == VT_BF16 || dtype == VT_F16;
}

vt_dtype vt_emit_compute_dtype(vt_dtype dtype) {
  return is_small_float(dtype) ? VT_F32 : dtype;
}

static LLVMTypeRef scalar_type(vt_emitter *e, vt_dtype dtype) {
  switch (dtype) {
  case VT_BF16:
  case VT_F16:
  case VT_F32:
    return LLVMFloatTypeInContext(e->context);
  case VT_F64:
    return LLVMDoubleTypeInContext(e->context);
  default:
    return LLVMIntTypeInContext(e->context, vt_dtype_get(dtype)->bits);
  }
}

static LLVMTypeRef vector_of(vt_emitter *e, LLVMTypeRef type) {
  return LLVMVectorType(type, (unsigned)e->target.lanes);
}
static LLVMTypeRef int_vector(vt_emitter *e, unsigned bits) {
  return vector_of(e, LLVMIntTypeInContext(e->context, bits));
}

LLVMTypeRef vt_emit_type(vt_emitter *e, vt_dtype dtype) {
  return vector_of(e, scalar_type(e, dtype));
}

LLVMTypeRef vt_emit_memory_type(vt_emitter *e, vt_dtype dtype) {
  if (is_small_float(dtype)) return LLVMInt16TypeInContext(e->context);
  if (dtype == VT_PRED) return LLVMInt8TypeInContext(e->context);
  return scalar_type(e, dtype);
}

static LLVMValueRef splat(vt_emitter *e, LLVMValueRef scalar) {
  LLVMValueRef lanes[64];
  for (int i = 0; i < e->target.lanes; i++) lanes[i] = scalar;
  return LLVMConstVector(lanes, (unsigned)e->target.lanes);
}

LLVMValueRef vt_emit_splat_f(vt_emitter *e, vt_dtype dtype, double value) {
  return splat(e, LLVMConstReal(scalar_type(e, dtype), value));
}

LLVMValueRef vt_emit_splat_i(vt_emitter *e, vt_dtype dtype, int64_t value) {
  return splat(e, LLVMConstInt(scalar_type(e, dtype), (uint64_t)value, true));
}

static LLVMValueRef int_splat(vt_emitter *e, unsigned bits, uint64_t value) {
  return splat(e, LLVMConstInt(LLVMIntTypeInContext(e->context, bits), value, false));
}

LLVMValueRef vt_emit_intrinsic(vt_emitter *e, const char *name, uint32_t type_count,
                               LLVMTypeRef *types, uint32_t count, LLVMValueRef *args) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  assert(id);
  LLVMValueRef function = LLVMGetIntrinsicDeclaration(e->module, id, types, type_count);
  LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, types, type_count);
  return LLVMBuildCall2(e->builder, type, function, args, count, "");
}

static LLVMValueRef call1(vt_emitter *e, const char *name, LLVMValueRef x) {
  LLVMTypeRef type = LLVMTypeOf(x);
  return vt_emit_intrinsic(e, name, 1, &type, 1, &x);
}

// ---- Memory and rounding.

// bf16 in the low half of an i32, rounded to nearest even; NaN stays NaN.
static LLVMValueRef round_bf16_bits(vt_emitter *e, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef i32 = int_vector(e, 32);
  LLVMValueRef bits = LLVMBuildBitCast(b, x, i32, "");
  LLVMValueRef odd =
      LLVMBuildAnd(b, LLVMBuildLShr(b, bits, int_splat(e, 32, 16), ""), int_splat(e, 32, 1), "");
  LLVMValueRef sum = LLVMBuildAdd(b, bits, LLVMBuildAdd(b, odd, int_splat(e, 32, 0x7fff), ""), "");
  LLVMValueRef nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
  LLVMValueRef quiet = LLVMBuildOr(b, bits, int_splat(e, 32, 0x400000), "");
  return LLVMBuildSelect(b, nan, quiet, sum, "");
}

LLVMValueRef vt_emit_round(vt_emitter *e, vt_dtype dtype, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  if (dtype == VT_BF16) {
    LLVMValueRef bits = LLVMBuildAnd(b, round_bf16_bits(e, x), int_splat(e, 32, 0xffff0000u), "");
    return LLVMBuildBitCast(b, bits, LLVMTypeOf(x), "");
  }
  if (dtype == VT_F16) {
    LLVMValueRef half = LLVMBuildFPTrunc(b, x, vector_of(e, LLVMHalfTypeInContext(e->context)), "");
    return LLVMBuildFPExt(b, half, LLVMTypeOf(x), "");
  }
  return x;
}

LLVMValueRef vt_emit_from_memory(vt_emitter *e, vt_dtype dtype, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef f32 = vt_emit_type(e, VT_F32);
  switch (dtype) {
  case VT_BF16: {
    LLVMValueRef wide = LLVMBuildZExt(b, x, int_vector(e, 32), "");
    return LLVMBuildBitCast(b, LLVMBuildShl(b, wide, int_splat(e, 32, 16), ""), f32, "");
  }
  case VT_F16:
    return LLVMBuildFPExt(
        b, LLVMBuildBitCast(b, x, vector_of(e, LLVMHalfTypeInContext(e->context)), ""), f32, "");
  case VT_PRED:
    return LLVMBuildICmp(b, LLVMIntNE, x, int_splat(e, 8, 0), "");
  default:
    return x;
  }
}

LLVMValueRef vt_emit_to_memory(vt_emitter *e, vt_dtype dtype, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  switch (dtype) {
  case VT_BF16: {
    LLVMTypeRef i16 = int_vector(e, 16); // x lies on the grid already: its upper half is the number
    LLVMValueRef bits = LLVMBuildBitCast(b, x, int_vector(e, 32), "");
    return LLVMBuildTrunc(b, LLVMBuildLShr(b, bits, int_splat(e, 32, 16), ""), i16, "");
  }
  case VT_F16: {
    LLVMValueRef half = LLVMBuildFPTrunc(b, x, vector_of(e, LLVMHalfTypeInContext(e->context)), "");
    return LLVMBuildBitCast(b, half, int_vector(e, 16), "");
  }
  case VT_PRED:
    return LLVMBuildZExt(b, x, int_vector(e, 8), "");
  default:
    return x;
  }
}

static double half_value(uint16_t bits) {
  int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                : ldexp(mantissa, -24);
  return bits & 0x8000 ? -value : value;
}

LLVMValueRef vt_emit_constant(vt_emitter *e, const vt_literal *literal) {
  vt_dtype dtype = literal->type.dtype;
  uint64_t bits = 0;
  memcpy(&bits, literal->data, vt_dtype_bytes(dtype));
  switch (dtype) {
  case VT_F16:
    return vt_emit_splat_f(e, dtype, half_value((uint16_t)bits));
  case VT_BF16:
    bits <<= 16; // fall through
  case VT_F32: {
    LLVMValueRef as_int = LLVMConstInt(LLVMInt32TypeInContext(e->context), bits, false);
    return splat(e, LLVMConstBitCast(as_int, scalar_type(e, VT_F32)));
  }
  case VT_F64: {
    LLVMValueRef as_int = LLVMConstInt(LLVMInt64TypeInContext(e->context), bits, false);
    return splat(e, LLVMConstBitCast(as_int, scalar_type(e, VT_F64)));
  }
  case VT_PRED:
    return splat(e, LLVMConstInt(LLVMInt1TypeInContext(e->context), bits != 0, false));
  default:
    return splat(e, LLVMConstInt(scalar_type(e, dtype), bits, false));
  }
}

// ---- Arithmetic.

// NaN passes from either side. Of equal zeros the second is taken, as a > b ? a : b does.
static LLVMValueRef float_extreme(vt_emitter *e, bool max, LLVMValueRef x, LLVMValueRef y) {
  LLVMBuilderRef b = e->builder;
  LLVMValueRef better = LLVMBuildFCmp(b, max ? LLVMRealOGT : LLVMRealOLT, x, y, "");
  LLVMValueRef nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
  return LLVMBuildSelect(b, LLVMBuildOr(b, better, nan, ""), x, y, "");
}

static LLVMValueRef extreme(vt_emitter *e, vt_dtype dtype, bool max, LLVMValueRef x,
                            LLVMValueRef y) {
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  if (kind == VT_KIND_FLOAT) return float_extreme(e, max, x, y);
  if (kind == VT_KIND_BOOL)
    return max ? LLVMBuildOr(e->builder, x, y, "") : LLVMBuildAnd(e->builder, x, y, "");
  LLVMIntPredicate p =
      kind == VT_KIND_SIGNED ? (max ? LLVMIntSGT : LLVMIntSLT) : (max ? LLVMIntUGT : LLVMIntULT);
  return LLVMBuildSelect(e->builder, LLVMBuildICmp(e->builder, p, x, y, ""), x, y, "");
}

LLVMValueRef vt_emit_combine(vt_emitter *e, vt_reducer reducer, vt_dtype dtype, LLVMValueRef x,
                             LLVMValueRef y) {
  LLVMBuilderRef b = e->builder;
  bool is_float = vt_dtype_is_float(dtype);
  switch (reducer) {
  case VT_REDUCE_ADD:
    if (dtype == VT_PRED) return LLVMBuildOr(b, x, y, "");
    return is_float ? LLVMBuildFAdd(b, x, y, "") : LLVMBuildAdd(b, x, y, "");
  case VT_REDUCE_MUL:
    if (dtype == VT_PRED) return LLVMBuildAnd(b, x, y, "");
    return is_float ? LLVMBuildFMul(b, x, y, "") : LLVMBuildMul(b, x, y, "");
  case VT_REDUCE_MAX:
    return extreme(e, dtype, true, x, y);
  case VT_REDUCE_MIN:
    return extreme(e, dtype, false, x, y);
  case VT_REDUCE_AND:
    return LLVMBuildAnd(b, x, y, "");
  default:
    return LLVMBuildOr(b, x, y, "");
  }
}

LLVMValueRef vt_emit_neutral(vt_emitter *e, vt_reducer reducer, vt_dtype dtype) {
  bool is_float = vt_dtype_is_float(dtype), is_signed = vt_dtype_kind_of(dtype) == VT_KIND_SIGNED;
  unsigned bits = vt_dtype_get(dtype)->bits;
  switch (reducer) {
  case VT_REDUCE_ADD:
    return is_float ? vt_emit_splat_f(e, dtype, -0.0) : vt_emit_splat_i(e, dtype, 0);
  case VT_REDUCE_MUL:
    return is_float ? vt_emit_splat_f(e, dtype, 1) : vt_emit_splat_i(e, dtype, 1);
  case VT_REDUCE_MAX:
  case VT_REDUCE_ARGMAX:
    if (is_float) return vt_emit_splat_f(e, dtype, -INFINITY);
    return vt_emit_splat_i(e, dtype, is_signed ? (int64_t)(~0ull << (bits - 1)) : 0);
  case VT_REDUCE_MIN:
  case VT_REDUCE_ARGMIN:
    if (is_float) return vt_emit_splat_f(e, dtype, INFINITY);
    return vt_emit_splat_i(e, dtype, is_signed ? (int64_t)((1ull << (bits - 1)) - 1) : -1);
  case VT_REDUCE_AND:
    return vt_emit_splat_i(e, dtype, -1);
  default:
    return vt_emit_splat_i(e, dtype, 0);
  }
}

// x / y and x % y on integers: a zero divisor gives -1 (all ones) and x; the one signed overflow
// gives x and 0.
static LLVMValueRef int_divide(vt_emitter *e, vt_dtype dtype, bool remainder, LLVMValueRef x,
                               LLVMValueRef y) {
  LLVMBuilderRef b = e->builder;
  bool is_signed = vt_dtype_kind_of(dtype) == VT_KIND_SIGNED;
  LLVMTypeRef type = LLVMTypeOf(x);
  unsigned bits = vt_dtype_get(dtype)->bits;
  LLVMValueRef one = vt_emit_splat_i(e, dtype, 1), zero = vt_emit_splat_i(e, dtype, 0);
  LLVMValueRef ones = vt_emit_splat_i(e, dtype, -1);
  LLVMValueRef none = LLVMBuildICmp(b, LLVMIntEQ, y, zero, ""), over = NULL;
  LLVMValueRef safe = LLVMBuildSelect(b, none, one, y, "");
  if (is_signed) {
    LLVMValueRef least = vt_emit_splat_i(e, dtype, (int64_t)(~0ull << (bits - 1)));
    over = LLVMBuildAnd(b, LLVMBuildICmp(b, LLVMIntEQ, x, least, ""),
                        LLVMBuildICmp(b, LLVMIntEQ, y, ones, ""), "");
    safe = LLVMBuildSelect(b, over, one, safe, "");
  }
  LLVMValueRef quotient;
  if (bits > 32 || LLVMIsConstant(y)) {
    quotient = is_signed ? LLVMBuildSDiv(b, x, safe, "") : LLVMBuildUDiv(b, x, safe, "");
  } else { // exact in f64: quotients of 32-bit integers that are not whole stay 2^-32 away from
           // whole numbers
    LLVMTypeRef f64 = vt_emit_type(e, VT_F64);
    LLVMValueRef fx = is_signed ? LLVMBuildSIToFP(b, x, f64, "") : LLVMBuildUIToFP(b, x, f64, "");
    LLVMValueRef fy =
        is_signed ? LLVMBuildSIToFP(b, safe, f64, "") : LLVMBuildUIToFP(b, safe, f64, "");
    LLVMValueRef q = LLVMBuildFDiv(b, fx, fy, "");
    quotient = is_signed ? LLVMBuildFPToSI(b, q, type, "") : LLVMBuildFPToUI(b, q, type, "");
  }
  if (!remainder) return LLVMBuildSelect(b, none, ones, quotient, ""); // overflow: x / 1
  LLVMValueRef rest = LLVMBuildSub(b, x, LLVMBuildMul(b, quotient, safe, ""), "");
  return LLVMBuildSelect(b, none, x, rest, "");
}

static LLVMValueRef shift(vt_emitter *e, const vt_op *op, vt_dtype dtype, LLVMValueRef x,
                          LLVMValueRef y) {
  LLVMBuilderRef b = e->builder;
  unsigned bits = vt_dtype_get(dtype)->bits;
  LLVMValueRef width = vt_emit_splat_i(e, dtype, bits);
  LLVMValueRef inside = LLVMBuildICmp(b, LLVMIntULT, y, width, "");
  LLVMValueRef amount = LLVMBuildSelect(b, inside, y, vt_emit_splat_i(e, dtype, bits - 1), "");
  if (op->code == VT_OP_SHIFT_RIGHT_ARITHMETIC) return LLVMBuildAShr(b, x, amount, "");
  LLVMValueRef shifted = op->code == VT_OP_SHIFT_LEFT ? LLVMBuildShl(b, x, amount, "")
                                                      : LLVMBuildLShr(b, x, amount, "");
  return LLVMBuildSelect(b, inside, shifted, vt_emit_splat_i(e, dtype, 0), "");
}

static bool is_total_order(const vt_op *op) {
  return vt_dtype_is_float(op->operands[0]->type.dtype) &&
         vt_attr_i64_or(op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_NOTYPE) == VT_CMPTYPE_TOTALORDER;
}

// The bits of a float as a signed integer that orders like the total order.
static LLVMValueRef order_bits(vt_emitter *e, vt_dtype dtype, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  vt_dtype as = dtype == VT_F64 ? VT_S64 : VT_S32;
  x = LLVMBuildBitCast(b, x, vt_emit_type(e, as), "");
  unsigned bits = vt_dtype_get(as)->bits;
  LLVMValueRef sign = LLVMBuildAShr(b, x, vt_emit_splat_i(e, as, bits - 1), "");
  return LLVMBuildXor(b, x, LLVMBuildLShr(b, sign, vt_emit_splat_i(e, as, 1), ""), "");
}

static LLVMValueRef compare(vt_emitter *e, const vt_op *op, LLVMValueRef x, LLVMValueRef y) {
  static const LLVMRealPredicate real[] = {LLVMRealOEQ, LLVMRealUNE, LLVMRealOGE,
                                           LLVMRealOGT, LLVMRealOLE, LLVMRealOLT};
  static const LLVMIntPredicate sint[] = {LLVMIntEQ,  LLVMIntNE,  LLVMIntSGE,
                                          LLVMIntSGT, LLVMIntSLE, LLVMIntSLT};
  static const LLVMIntPredicate uint[] = {LLVMIntEQ,  LLVMIntNE,  LLVMIntUGE,
                                          LLVMIntUGT, LLVMIntULE, LLVMIntULT};
  int64_t direction = vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION);
  vt_dtype dtype = op->operands[0]->type.dtype;
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  if (is_total_order(op)) {
    x = order_bits(e, dtype, x);
    y = order_bits(e, dtype, y);
    return LLVMBuildICmp(e->builder, sint[direction], x, y, "");
  }
  if (kind == VT_KIND_FLOAT) return LLVMBuildFCmp(e->builder, real[direction], x, y, "");
  return LLVMBuildICmp(e->builder, kind == VT_KIND_SIGNED ? sint[direction] : uint[direction], x, y,
                       "");
}

static LLVMValueRef float_to_int(vt_emitter *e, vt_dtype to, LLVMValueRef x) {
  LLVMTypeRef types[2] = {vt_emit_type(e, to), LLVMTypeOf(x)};
  bool is_signed = vt_dtype_kind_of(to) == VT_KIND_SIGNED;
  return vt_emit_intrinsic(e, is_signed ? "llvm.fptosi.sat" : "llvm.fptoui.sat", 2, types, 1, &x);
}

static LLVMValueRef convert(vt_emitter *e, vt_dtype from, vt_dtype to, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef type = vt_emit_type(e, to);
  vt_dtype_kind from_kind = vt_dtype_kind_of(from), to_kind = vt_dtype_kind_of(to);
  if (from == to) return x;
  if (to_kind == VT_KIND_BOOL)
    return from_kind == VT_KIND_FLOAT
               ? LLVMBuildFCmp(b, LLVMRealUNE, x, vt_emit_splat_f(e, from, 0), "")
               : LLVMBuildICmp(b, LLVMIntNE, x, vt_emit_splat_i(e, from, 0), "");
  if (from_kind == VT_KIND_FLOAT && to_kind == VT_KIND_FLOAT) {
    bool wide = from == VT_F64, to_wide = to == VT_F64;
    if (wide && !to_wide) x = LLVMBuildFPTrunc(b, x, type, "");
    if (!wide && to_wide) return LLVMBuildFPExt(b, x, type, "");
    return vt_emit_round(e, to, x);
  }
  if (from_kind == VT_KIND_FLOAT) return float_to_int(e, to, x);
  if (to_kind == VT_KIND_FLOAT) {
    x = from_kind == VT_KIND_SIGNED ? LLVMBuildSIToFP(b, x, type, "")
                                    : LLVMBuildUIToFP(b, x, type, "");
    return vt_emit_round(e, to, x);
  }
  unsigned have = vt_dtype_get(from)->bits, want = vt_dtype_get(to)->bits;
  if (want == have) return x;
  if (want < have) return LLVMBuildTrunc(b, x, type, "");
  return from_kind == VT_KIND_SIGNED ? LLVMBuildSExt(b, x, type, "")
                                     : LLVMBuildZExt(b, x, type, "");
}

// f32 rounded to a format of fewer exponent or mantissa bits, as the op says: nearest even,
// overflow to infinity, what lies under the smaller exponent range to zero of the same sign.
static LLVMValueRef reduce_precision(vt_emitter *e, const vt_op *op, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef i32 = int_vector(e, 32), f32 = LLVMTypeOf(x);
  int64_t exponent = vt_attr_i64(op, VT_ATTR_EXPONENT_BITS),
          mantissa = vt_attr_i64(op, VT_ATTR_MANTISSA_BITS);
  LLVMValueRef bits = LLVMBuildBitCast(b, x, i32, "");
  if (mantissa < 23) {
    unsigned drop = (unsigned)(23 - mantissa);
    uint64_t half = (1u << (drop - 1)) - 1;
    LLVMValueRef odd = LLVMBuildAnd(b, LLVMBuildLShr(b, bits, int_splat(e, 32, drop), ""),
                                    int_splat(e, 32, 1), "");
    LLVMValueRef sum = LLVMBuildAdd(b, bits, LLVMBuildAdd(b, odd, int_splat(e, 32, half), ""), "");
    bits = LLVMBuildAnd(b, sum, int_splat(e, 32, ~((1u << drop) - 1)), "");
  }
  if (exponent < 8) {
    uint64_t bias = (1u << (exponent - 1)) - 1;
    LLVMValueRef sign = LLVMBuildAnd(b, bits, int_splat(e, 32, 0x80000000u), "");
    LLVMValueRef power = LLVMBuildAnd(b, bits, int_splat(e, 32, 0x7f800000u), "");
    LLVMValueRef over =
        LLVMBuildICmp(b, LLVMIntUGT, power, int_splat(e, 32, (127 + bias) << 23), "");
    LLVMValueRef under =
        LLVMBuildICmp(b, LLVMIntULT, power, int_splat(e, 32, (128 - bias) << 23), "");
    bits =
        LLVMBuildSelect(b, over, LLVMBuildOr(b, sign, int_splat(e, 32, 0x7f800000u), ""), bits, "");
    bits = LLVMBuildSelect(b, under, sign, bits, "");
  }
  LLVMValueRef nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
  return LLVMBuildSelect(b, nan, x, LLVMBuildBitCast(b, bits, f32, ""), "");
}

static LLVMValueRef sign_of(vt_emitter *e, vt_dtype dtype, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  if (vt_dtype_is_float(dtype)) {
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef args[2] = {vt_emit_splat_f(e, dtype, 1), x};
    LLVMValueRef one = vt_emit_intrinsic(e, "llvm.copysign", 1, &type, 2, args);
    LLVMValueRef same =
        LLVMBuildFCmp(b, LLVMRealUEQ, x, vt_emit_splat_f(e, dtype, 0), ""); // zero or NaN
    return LLVMBuildSelect(b, same, x, one, "");
  }
  LLVMValueRef zero = vt_emit_splat_i(e, dtype, 0), one = vt_emit_splat_i(e, dtype, 1);
  LLVMValueRef positive =
      LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntEQ, x, zero, ""), zero, one, "");
  if (vt_dtype_kind_of(dtype) != VT_KIND_SIGNED) return positive;
  LLVMValueRef below = LLVMBuildICmp(b, LLVMIntSLT, x, zero, "");
  return LLVMBuildSelect(b, below, vt_emit_splat_i(e, dtype, -1), positive, "");
}

static LLVMValueRef absolute(vt_emitter *e, vt_dtype dtype, LLVMValueRef x) {
  if (vt_dtype_is_float(dtype)) return call1(e, "llvm.fabs", x);
  if (vt_dtype_kind_of(dtype) != VT_KIND_SIGNED) return x;
  LLVMValueRef below = LLVMBuildICmp(e->builder, LLVMIntSLT, x, vt_emit_splat_i(e, dtype, 0), "");
  return LLVMBuildSelect(e->builder, below, LLVMBuildNeg(e->builder, x, ""), x, "");
}

static LLVMValueRef unary(vt_emitter *e, const vt_op *op, vt_dtype dtype, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef type = LLVMTypeOf(x);
  bool is_float = vt_dtype_is_float(dtype);
  switch (op->code) {
  case VT_OP_ABS:
    return absolute(e, dtype, x);
  case VT_OP_CEIL:
    return call1(e, "llvm.ceil", x);
  case VT_OP_FLOOR:
    return call1(e, "llvm.floor", x);
  case VT_OP_ROUND_NEAREST_EVEN:
    return call1(e, "llvm.roundeven", x);
  case VT_OP_NEGATE:
    return is_float ? LLVMBuildFNeg(b, x, "") : LLVMBuildNeg(b, x, "");
  case VT_OP_NOT:
    return LLVMBuildNot(b, x, "");
  case VT_OP_SIGN:
    return sign_of(e, dtype, x);
  case VT_OP_POPCNT:
    return call1(e, "llvm.ctpop", x);
  case VT_OP_COUNT_LEADING_ZEROS: {
    LLVMValueRef args[2] = {x, LLVMConstInt(LLVMInt1TypeInContext(e->context), 0, false)};
    return vt_emit_intrinsic(e, "llvm.ctlz", 1, &type, 2, args);
  }
  case VT_OP_IS_FINITE:
    return LLVMBuildFCmp(b, LLVMRealOLT, call1(e, "llvm.fabs", x),
                         vt_emit_splat_f(e, dtype, INFINITY), "");
  case VT_OP_CONVERT:
    return convert(e, dtype, op->results[0].type.dtype, x);
  case VT_OP_BITCAST_CONVERT:
    return LLVMBuildBitCast(b, x, vt_emit_type(e, op->results[0].type.dtype), "");
  case VT_OP_REDUCE_PRECISION:
    return reduce_precision(e, op, x);
  case VT_OP_SQRT:
    return call1(e, "llvm.sqrt", x);
  default:
    return NULL;
  }
}

static LLVMValueRef binary(vt_emitter *e, const vt_op *op, vt_dtype dtype, LLVMValueRef x,
                           LLVMValueRef y) {
  LLVMBuilderRef b = e->builder;
  bool is_float = vt_dtype_is_float(dtype);
  switch (op->code) {
  case VT_OP_ADD:
    return vt_emit_combine(e, VT_REDUCE_ADD, dtype, x, y);
  case VT_OP_MULTIPLY:
    return vt_emit_combine(e, VT_REDUCE_MUL, dtype, x, y);
  case VT_OP_MAXIMUM:
    return extreme(e, dtype, true, x, y);
  case VT_OP_MINIMUM:
    return extreme(e, dtype, false, x, y);
  case VT_OP_AND:
    return LLVMBuildAnd(b, x, y, "");
  case VT_OP_OR:
    return LLVMBuildOr(b, x, y, "");
  case VT_OP_XOR:
    return LLVMBuildXor(b, x, y, "");
  case VT_OP_SUBTRACT:
    return is_float ? LLVMBuildFSub(b, x, y, "") : LLVMBuildSub(b, x, y, "");
  case VT_OP_DIVIDE:
    return is_float ? LLVMBuildFDiv(b, x, y, "") : int_divide(e, dtype, false, x, y);
  case VT_OP_REMAINDER:
    return int_divide(e, dtype, true, x, y);
  case VT_OP_SHIFT_LEFT:
  case VT_OP_SHIFT_RIGHT_ARITHMETIC:
  case VT_OP_SHIFT_RIGHT_LOGICAL:
    return shift(e, op, dtype, x, y);
  case VT_OP_COMPARE:
    return compare(e, op, x, y);
  default:
    return NULL;
  }
}

LLVMValueRef vt_emit_op(vt_emitter *e, const vt_op *op, const LLVMValueRef *operands) {
  vt_dtype dtype = op->operands[0]->type.dtype, to = op->results[0].type.dtype;
  LLVMValueRef value;
  if (op->code == VT_OP_SELECT)
    return LLVMBuildSelect(e->builder, operands[0], operands[1], operands[2], "");
  if (op->code == VT_OP_CLAMP)
    return extreme(e, to, false, extreme(e, to, true, operands[1], operands[0]), operands[2]);
  value = vt_emit_math(e, op->code, vt_emit_compute_dtype(dtype), operands);
  if (!value)
    value = op->operand_count == 1 ? unary(e, op, dtype, operands[0])
                                   : binary(e, op, dtype, operands[0], operands[1]);
  assert(value);
  bool exact = op->code == VT_OP_CONVERT || op->code == VT_OP_ABS || op->code == VT_OP_NEGATE ||
               op->code == VT_OP_MAXIMUM || op->code == VT_OP_MINIMUM;
  return exact ? value : vt_emit_round(e, to, value);
}

// ---- Support.

static bool has_code(vt_dtype dtype) {
  switch (dtype) {
  case VT_PRED:
  case VT_S8:
  case VT_S16:
  case VT_S32:
  case VT_S64:
  case VT_U8:
  case VT_U16:
  case VT_U32:
  case VT_U64:
  case VT_F16:
  case VT_BF16:
  case VT_F32:
  case VT_F64:
    return true;
  default:
    return false;
  }
}

bool vt_emit_supports(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!has_code(op->operands[i]->type.dtype)) return false;
  for (uint32_t i = 0; i < op->result_count; i++)
    if (!has_code(op->results[i].type.dtype)) return false;
  vt_dtype dtype = op->result_count ? op->results[0].type.dtype : VT_DTYPE_INVALID;
  bool is_float = vt_dtype_is_float(dtype), is_pred = dtype == VT_PRED;
  switch (op->code) {
  case VT_OP_ABS:
  case VT_OP_NEGATE:
  case VT_OP_SIGN:
    return !is_pred;
  case VT_OP_CEIL:
  case VT_OP_FLOOR:
  case VT_OP_ROUND_NEAREST_EVEN:
  case VT_OP_SQRT:
    return is_float;
  case VT_OP_NOT:
  case VT_OP_AND:
  case VT_OP_OR:
  case VT_OP_XOR:
    return !is_float;
  case VT_OP_POPCNT:
  case VT_OP_COUNT_LEADING_ZEROS:
  case VT_OP_SHIFT_LEFT:
  case VT_OP_SHIFT_RIGHT_ARITHMETIC:
  case VT_OP_SHIFT_RIGHT_LOGICAL:
    return vt_dtype_is_integer(dtype);
  case VT_OP_IS_FINITE:
  case VT_OP_CONVERT:
  case VT_OP_SELECT:
    return true;
  case VT_OP_CLAMP:
  case VT_OP_ADD:
  case VT_OP_MULTIPLY:
  case VT_OP_MAXIMUM:
  case VT_OP_MINIMUM:
    return true;
  case VT_OP_SUBTRACT:
  case VT_OP_DIVIDE:
    return !is_pred;
  case VT_OP_REMAINDER:
    return vt_dtype_is_integer(dtype);
  case VT_OP_COMPARE:
    // Smaller floats are wider in registers, and a conversion may change a NaN.
    return !is_total_order(op) || op->operands[0]->type.dtype == VT_F32 ||
           op->operands[0]->type.dtype == VT_F64;
  case VT_OP_REDUCE_PRECISION:
    return dtype == VT_F32 && vt_attr_i64(op, VT_ATTR_EXPONENT_BITS) >= 2 &&
           vt_attr_i64(op, VT_ATTR_EXPONENT_BITS) <= 8;
  case VT_OP_BITCAST_CONVERT: { // of one size, and held in registers as in memory
    vt_dtype from = op->operands[0]->type.dtype;
    bool plain = dtype != VT_PRED && from != VT_PRED && vt_emit_compute_dtype(dtype) == dtype &&
                 vt_emit_compute_dtype(from) == from;
    return plain && vt_dtype_bytes(dtype) == vt_dtype_bytes(from);
  }
  case VT_OP_IOTA:
    return dtype != VT_PRED;
  case VT_OP_REDUCE:
    return true;
  default:
    return is_float && vt_emit_is_math(op->code);
  }
}
