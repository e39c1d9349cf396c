// SPDX-License-Identifier: Apache-2.0
// emit_op.c - one elementwise op on vectors: the emitters named in ops.def, except those in
// emit_math.c. Corner cases (integer division by zero, shifts past the width, float to integer)
// behave as in the evaluator.
#include <math.h>

#include "eval/vec.h"
#include "host/emit.h"

static vt_dtype type_of(const vt_op *op) {
  return op->operands[0]->type.dtype;
}

static bool is_float(const vt_emit_call *c) {
  return vt_dtype_is_float(type_of(c->op));
}

static LLVMValueRef call1(vt_emitter *e, const char *name, LLVMValueRef x) {
  LLVMTypeRef type = LLVMTypeOf(x);
  return vt_emit_intrinsic(e, name, 1, &type, 1, &x);
}

// ---- Arithmetic.

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
  } else { // exact in f64: non-integer quotients of 32-bit integers are at least 2^-32 from
           // an integer
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

// `amount` limited to valid shifts; *inside is false where it is the width or more.
static LLVMValueRef limit_shift(const vt_emit_call *c, LLVMValueRef *inside) {
  vt_dtype dtype = type_of(c->op);
  unsigned bits = vt_dtype_get(dtype)->bits;
  LLVMBuilderRef b = c->e->builder;
  LLVMValueRef amount = c->in[1];
  *inside = LLVMBuildICmp(b, LLVMIntULT, amount, vt_emit_splat_i(c->e, dtype, bits), "");
  return LLVMBuildSelect(b, *inside, amount, vt_emit_splat_i(c->e, dtype, bits - 1), "");
}

LLVMValueRef vt_emit_op_shift_left(const vt_emit_call *c) {
  LLVMValueRef inside, amount = limit_shift(c, &inside);
  LLVMValueRef shifted = LLVMBuildShl(c->e->builder, c->in[0], amount, "");
  return LLVMBuildSelect(c->e->builder, inside, shifted, vt_emit_splat_i(c->e, type_of(c->op), 0),
                         "");
}

LLVMValueRef vt_emit_op_shift_logical(const vt_emit_call *c) {
  LLVMValueRef inside, amount = limit_shift(c, &inside);
  LLVMValueRef shifted = LLVMBuildLShr(c->e->builder, c->in[0], amount, "");
  return LLVMBuildSelect(c->e->builder, inside, shifted, vt_emit_splat_i(c->e, type_of(c->op), 0),
                         "");
}

LLVMValueRef vt_emit_op_shift_arithmetic(const vt_emit_call *c) {
  LLVMValueRef inside, amount = limit_shift(c, &inside);
  return LLVMBuildAShr(c->e->builder, c->in[0], amount, "");
}

static bool is_total_order(const vt_op *op) {
  return vt_dtype_is_float(type_of(op)) &&
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

LLVMValueRef vt_emit_op_compare(const vt_emit_call *c) {
  static const LLVMRealPredicate real[] = {LLVMRealOEQ, LLVMRealUNE, LLVMRealOGE,
                                           LLVMRealOGT, LLVMRealOLE, LLVMRealOLT};
  static const LLVMIntPredicate sint[] = {LLVMIntEQ,  LLVMIntNE,  LLVMIntSGE,
                                          LLVMIntSGT, LLVMIntSLE, LLVMIntSLT};
  static const LLVMIntPredicate uint[] = {LLVMIntEQ,  LLVMIntNE,  LLVMIntUGE,
                                          LLVMIntUGT, LLVMIntULE, LLVMIntULT};
  LLVMBuilderRef b = c->e->builder;
  LLVMValueRef x = c->in[0], y = c->in[1];
  int64_t direction = vt_attr_i64(c->op, VT_ATTR_COMPARISON_DIRECTION);
  vt_dtype dtype = type_of(c->op);
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  if (is_total_order(c->op)) {
    x = order_bits(c->e, dtype, x);
    y = order_bits(c->e, dtype, y);
    return LLVMBuildICmp(b, sint[direction], x, y, "");
  }
  if (kind == VT_KIND_FLOAT) return LLVMBuildFCmp(b, real[direction], x, y, "");
  return LLVMBuildICmp(b, kind == VT_KIND_SIGNED ? sint[direction] : uint[direction], x, y, "");
}

static LLVMValueRef float_to_int(vt_emitter *e, vt_dtype to, LLVMValueRef x) {
  LLVMTypeRef types[2] = {vt_emit_type(e, to), LLVMTypeOf(x)};
  bool is_signed = vt_dtype_kind_of(to) == VT_KIND_SIGNED;
  return vt_emit_intrinsic(e, is_signed ? "llvm.fptosi.sat" : "llvm.fptoui.sat", 2, types, 1, &x);
}

LLVMValueRef vt_emit_op_convert(const vt_emit_call *c) {
  vt_emitter *e = c->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef x = c->in[0];
  vt_dtype from = type_of(c->op), to = c->op->results[0].type.dtype;
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
// overflow to infinity, underflow of the smaller exponent range to zero of the same sign.
LLVMValueRef vt_emit_op_reduce_precision(const vt_emit_call *c) {
  vt_emitter *e = c->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef x = c->in[0];
  LLVMTypeRef i32 = vt_emit_type(e, VT_U32), f32 = LLVMTypeOf(x);
  int64_t exponent = vt_attr_i64(c->op, VT_ATTR_EXPONENT_BITS),
          mantissa = vt_attr_i64(c->op, VT_ATTR_MANTISSA_BITS);
  LLVMValueRef bits = LLVMBuildBitCast(b, x, i32, "");
  if (mantissa < 23) {
    unsigned drop = (unsigned)(23 - mantissa);
    uint64_t half = (1u << (drop - 1)) - 1;
    LLVMValueRef odd = LLVMBuildAnd(b, LLVMBuildLShr(b, bits, vt_emit_splat_i(e, VT_U32, drop), ""),
                                    vt_emit_splat_i(e, VT_U32, 1), "");
    LLVMValueRef sum =
        LLVMBuildAdd(b, bits, LLVMBuildAdd(b, odd, vt_emit_splat_i(e, VT_U32, half), ""), "");
    bits = LLVMBuildAnd(b, sum, vt_emit_splat_i(e, VT_U32, ~((1u << drop) - 1)), "");
  }
  if (exponent < 8) {
    uint64_t bias = (1u << (exponent - 1)) - 1;
    LLVMValueRef sign = LLVMBuildAnd(b, bits, vt_emit_splat_i(e, VT_U32, 0x80000000u), "");
    LLVMValueRef power = LLVMBuildAnd(b, bits, vt_emit_splat_i(e, VT_U32, 0x7f800000u), "");
    LLVMValueRef over =
        LLVMBuildICmp(b, LLVMIntUGT, power, vt_emit_splat_i(e, VT_U32, (127 + bias) << 23), "");
    LLVMValueRef under =
        LLVMBuildICmp(b, LLVMIntULT, power, vt_emit_splat_i(e, VT_U32, (128 - bias) << 23), "");
    bits = LLVMBuildSelect(
        b, over, LLVMBuildOr(b, sign, vt_emit_splat_i(e, VT_U32, 0x7f800000u), ""), bits, "");
    bits = LLVMBuildSelect(b, under, sign, bits, "");
  }
  LLVMValueRef nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
  return LLVMBuildSelect(b, nan, x, LLVMBuildBitCast(b, bits, f32, ""), "");
}

LLVMValueRef vt_emit_op_sign(const vt_emit_call *c) {
  vt_emitter *e = c->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef x = c->in[0];
  vt_dtype dtype = type_of(c->op);
  if (vt_dtype_is_float(dtype)) {
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef args[2] = {vt_emit_splat_f(e, dtype, 1), x};
    LLVMValueRef one = vt_emit_intrinsic(e, "llvm.copysign", 1, &type, 2, args);
    LLVMValueRef zero = vt_emit_splat_f(e, dtype, 0);
    LLVMValueRef none = LLVMBuildFMul(b, x, zero, ""); // of zeros, subnormals and NaN
    return LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealUEQ, x, zero, ""), none, one, "");
  }
  LLVMValueRef zero = vt_emit_splat_i(e, dtype, 0), one = vt_emit_splat_i(e, dtype, 1);
  LLVMValueRef positive =
      LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntEQ, x, zero, ""), zero, one, "");
  if (vt_dtype_kind_of(dtype) != VT_KIND_SIGNED) return positive;
  LLVMValueRef below = LLVMBuildICmp(b, LLVMIntSLT, x, zero, "");
  return LLVMBuildSelect(b, below, vt_emit_splat_i(e, dtype, -1), positive, "");
}

LLVMValueRef vt_emit_op_abs(const vt_emit_call *c) {
  vt_emitter *e = c->e;
  LLVMValueRef x = c->in[0];
  vt_dtype dtype = type_of(c->op);
  if (vt_dtype_is_float(dtype)) return call1(e, "llvm.fabs", x);
  if (vt_dtype_kind_of(dtype) != VT_KIND_SIGNED) return x;
  LLVMValueRef below = LLVMBuildICmp(e->builder, LLVMIntSLT, x, vt_emit_splat_i(e, dtype, 0), "");
  return LLVMBuildSelect(e->builder, below, LLVMBuildNeg(e->builder, x, ""), x, "");
}

// Emitters of one line each.
#define EMIT(name, expression)                                                                     \
  LLVMValueRef vt_emit_op_##name(const vt_emit_call *c) {                                          \
    return expression;                                                                             \
  }
#define BUILD(how, ...) LLVMBuild##how(c->e->builder, __VA_ARGS__, "")
#define X               c->in[0]
#define Y               c->in[1]

EMIT(ceil, call1(c->e, "llvm.ceil", X))
EMIT(floor, call1(c->e, "llvm.floor", X))
EMIT(round_even, call1(c->e, "llvm.roundeven", X))
EMIT(round_afz, call1(c->e, "llvm.round", X))
EMIT(sqrt, call1(c->e, "llvm.sqrt", X))
EMIT(popcnt, call1(c->e, "llvm.ctpop", X))
EMIT(negate, is_float(c) ? BUILD(FNeg, X) : BUILD(Neg, X))
EMIT(not, BUILD(Not, X))
EMIT(and, BUILD(And, X, Y))
EMIT(or, BUILD(Or, X, Y))
EMIT(xor, BUILD(Xor, X, Y))
EMIT(add, vt_emit_combine(c->e, VT_REDUCE_ADD, type_of(c->op), X, Y))
EMIT(multiply, vt_emit_combine(c->e, VT_REDUCE_MUL, type_of(c->op), X, Y))
EMIT(maximum, vt_emit_combine(c->e, VT_REDUCE_MAX, type_of(c->op), X, Y))
EMIT(minimum, vt_emit_combine(c->e, VT_REDUCE_MIN, type_of(c->op), X, Y))
EMIT(subtract, is_float(c) ? BUILD(FSub, X, Y) : BUILD(Sub, X, Y))
EMIT(divide, is_float(c) ? BUILD(FDiv, X, Y) : int_divide(c->e, type_of(c->op), false, X, Y))
EMIT(remainder,
     is_float(c) ? vt_emit_float_remainder(c) : int_divide(c->e, type_of(c->op), true, X, Y))
EMIT(select, BUILD(Select, X, Y, c->in[2]))
EMIT(bitcast, BUILD(BitCast, X, vt_emit_type(c->e, c->op->results[0].type.dtype)))

LLVMValueRef vt_emit_op_leading_zeros(const vt_emit_call *c) {
  LLVMTypeRef type = LLVMTypeOf(X);
  LLVMValueRef args[2] = {X, LLVMConstInt(LLVMInt1TypeInContext(c->e->context), 0, false)};
  return vt_emit_intrinsic(c->e, "llvm.ctlz", 1, &type, 2, args);
}

LLVMValueRef vt_emit_op_is_finite(const vt_emit_call *c) {
  LLVMValueRef infinity = vt_emit_splat_f(c->e, type_of(c->op), INFINITY);
  return BUILD(FCmp, LLVMRealOLT, call1(c->e, "llvm.fabs", X), infinity);
}

LLVMValueRef vt_emit_op_clamp(const vt_emit_call *c) {
  vt_dtype dtype = c->op->results[0].type.dtype;
  LLVMValueRef low = vt_emit_combine(c->e, VT_REDUCE_MAX, dtype, Y, X);
  return vt_emit_combine(c->e, VT_REDUCE_MIN, dtype, low, c->in[2]);
}

// ---- The table.

#define vt_emit_op_none NULL
static vt_emit_fn *const emitters[VT_OP_COUNT] = {
#define OP(name, text, operands, results, regions, kinds, rule, element, class, kernel, emitter,   \
           ...)                                                                                    \
  [VT_OP_##name] = vt_emit_op_##emitter,
#include "ir/ops.def"
#undef OP
};

LLVMValueRef vt_emit_op(vt_emitter *e, const vt_op *op, const LLVMValueRef *operands) {
  if (vt_emit_supports_complex(op)) return vt_emit_complex(e, op, operands);
  LLVMValueRef value = emitters[op->code](&(vt_emit_call){e, op, operands});
  bool exact = vt_op_info_get(op->code)->flags & VT_OPF_EXACT;
  return exact ? value : vt_emit_round(e, op->results[0].type.dtype, value);
}

// ---- Support.

bool vt_emit_calls_evaluator(const vt_op *op) {
  bool function = vt_op_info_get(op->code)->cost > VT_COST_CHEAP && op->code != VT_OP_DIVIDE &&
                  op->code != VT_OP_SQRT && op->code != VT_OP_RSQRT;
  return emitters[op->code] == vt_emit_op_lanes || (type_of(op) == VT_F64 && function);
}

bool vt_emit_has_type(vt_dtype dtype) {
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

bool vt_emit_has_types(const vt_op *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!vt_emit_has_type(op->operands[i]->type.dtype)) return false;
  for (uint32_t i = 0; i < op->result_count; i++)
    if (!vt_emit_has_type(op->results[i].type.dtype)) return false;
  return true;
}

bool vt_emit_supports(const vt_op *op) {
  vt_emit_fn *emitter = emitters[op->code];
  if (!emitter || !vt_emit_has_types(op)) return false;
  if (emitter == vt_emit_op_lanes) return vt_emit_has_lanes(op);
  vt_dtype from = type_of(op), to = op->results[0].type.dtype;
  switch (op->code) {
  case VT_OP_COMPARE:
    // Smaller floats are wider in registers, and a conversion may change a NaN.
    return !is_total_order(op) || from == VT_F32 || from == VT_F64;
  case VT_OP_REDUCE_PRECISION:
    return to == VT_F32 && vt_attr_i64(op, VT_ATTR_EXPONENT_BITS) >= 2 &&
           vt_attr_i64(op, VT_ATTR_EXPONENT_BITS) <= 8;
  case VT_OP_BITCAST_CONVERT: { // same size, and the same form in registers and memory
    bool plain = to != VT_PRED && from != VT_PRED && vt_emit_compute_dtype(to) == to &&
                 vt_emit_compute_dtype(from) == from;
    return plain && vt_dtype_bytes(to) == vt_dtype_bytes(from);
  }
  default:
    return true;
  }
}
