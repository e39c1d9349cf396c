// SPDX-License-Identifier: Apache-2.0
// emit_value.c - vectors of each dtype: their types, loads and stores, rounding, constants, and the
// combining ops of reductions.
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "host/emit.h"

void vt_emit_function(vt_emitter *e, const char *name, LLVMTypeRef type) {
  const char *key = "prefer-vector-width", *width = e->target.avx512 ? "512" : "256";
  e->function = LLVMAddFunction(e->module, name, type);
  LLVMAddAttributeAtIndex(e->function, (unsigned)LLVMAttributeFunctionIndex,
                          LLVMCreateStringAttribute(e->context, key, (unsigned)strlen(key), width,
                                                    (unsigned)strlen(width)));
  LLVMPositionBuilderAtEnd(e->builder,
                           LLVMAppendBasicBlockInContext(e->context, e->function, "entry"));
}

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

// What a vector of the dtype looks like in registers, and as it is in memory.
static bool is_held(vt_emitter *e, vt_dtype dtype, LLVMValueRef x) {
  return LLVMTypeOf(x) == vt_emit_type(e, dtype);
}
static bool is_stored(vt_emitter *e, vt_dtype dtype, LLVMValueRef x) {
  return LLVMTypeOf(x) == vector_of(e, vt_emit_memory_type(e, dtype));
}

static LLVMValueRef splat(vt_emitter *e, LLVMValueRef scalar) {
  vt_assert(e->target.lanes >= 1 && e->target.lanes <= 64);
  LLVMValueRef lanes[64];
  for (int i = 0; i < e->target.lanes; i++) lanes[i] = scalar;
  return LLVMConstVector(lanes, (unsigned)e->target.lanes);
}

LLVMValueRef vt_emit_spread(vt_emitter *e, LLVMValueRef scalar) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context), type = vector_of(e, LLVMTypeOf(scalar));
  LLVMValueRef one = LLVMBuildInsertElement(e->builder, LLVMGetPoison(type), scalar,
                                            LLVMConstInt(i32, 0, false), "");
  return LLVMBuildShuffleVector(e->builder, one, LLVMGetPoison(type),
                                LLVMConstNull(vector_of(e, i32)), "");
}

LLVMValueRef vt_emit_lanes_down(vt_emitter *e, LLVMValueRef x, int by) {
  LLVMValueRef lanes[64];
  int count = e->target.lanes;
  for (int i = 0; i < count; i++)
    lanes[i] = LLVMConstInt(LLVMInt32TypeInContext(e->context),
                            (unsigned)(i + by < count ? i + by : i), false);
  return LLVMBuildShuffleVector(e->builder, x, LLVMGetPoison(LLVMTypeOf(x)),
                                LLVMConstVector(lanes, (unsigned)count), "");
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

void vt_emit_branch(vt_emitter *e, LLVMValueRef usual, LLVMBasicBlockRef then,
                    LLVMBasicBlockRef rare) {
  LLVMValueRef branch = LLVMBuildCondBr(e->builder, usual, then, rare);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMMetadataRef weights[3] = {LLVMMDStringInContext2(e->context, "branch_weights", 14),
                                LLVMValueAsMetadata(LLVMConstInt(i32, 2000, false)),
                                LLVMValueAsMetadata(LLVMConstInt(i32, 1, false))};
  LLVMValueRef node = LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, weights, 3));
  LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(e->context, "prof", 4), node);
}

LLVMValueRef vt_emit_intrinsic(vt_emitter *e, const char *name, uint32_t type_count,
                               LLVMTypeRef *types, uint32_t count, LLVMValueRef *args) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  vt_assert(id);
  LLVMValueRef function = LLVMGetIntrinsicDeclaration(e->module, id, types, type_count);
  LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, types, type_count);
  return LLVMBuildCall2(e->builder, type, function, args, count, "");
}

// ---- Memory and rounding.

// `count` lanes from `first` on, of two vectors one after the other.
static LLVMValueRef some_lanes(vt_emitter *e, LLVMValueRef x, LLVMValueRef y, int first,
                               int count) {
  LLVMValueRef lanes[64];
  for (int i = 0; i < count; i++)
    lanes[i] = LLVMConstInt(LLVMInt32TypeInContext(e->context), (unsigned)(first + i), false);
  return LLVMBuildShuffleVector(e->builder, x, y, LLVMConstVector(lanes, (unsigned)count), "");
}

// As bits of memory by one instruction, if there is one; else NULL. Subnormal numbers become zeros.
static LLVMValueRef narrow_bf16(vt_emitter *e, LLVMValueRef x) {
  static const char *const name = "llvm.x86.avx512bf16.cvtneps2bf16.512";
  enum { WIDTH = 16 };
  LLVMBuilderRef b = e->builder;
  int lanes = e->target.lanes;
  if (!e->target.bf16 || lanes % WIDTH) return NULL;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(e->context);
  LLVMValueRef halves[2];
  vt_assert(lanes <= 2 * WIDTH);
  for (int h = 0; h * WIDTH < lanes; h++) {
    LLVMValueRef half = lanes == WIDTH ? x : some_lanes(e, x, x, h * WIDTH, WIDTH);
    half = vt_emit_intrinsic(e, name, 0, NULL, 1, &half);
    halves[h] = LLVMBuildBitCast(b, half, LLVMVectorType(i16, WIDTH), "");
  }
  return lanes == WIDTH ? halves[0] : some_lanes(e, halves[0], halves[1], 0, lanes);
}

static LLVMValueRef widen_bf16(vt_emitter *e, LLVMValueRef x) {
  LLVMValueRef wide = LLVMBuildZExt(e->builder, x, int_vector(e, 32), "");
  wide = LLVMBuildShl(e->builder, wide, int_splat(e, 32, 16), "");
  return LLVMBuildBitCast(e->builder, wide, vt_emit_type(e, VT_F32), "");
}

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
  vt_assert(is_held(e, dtype, x));
  LLVMBuilderRef b = e->builder;
  if (dtype == VT_BF16) {
    LLVMValueRef narrow = narrow_bf16(e, x);
    if (narrow) return widen_bf16(e, narrow);
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
  vt_assert(is_stored(e, dtype, x));
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef f32 = vt_emit_type(e, VT_F32);
  switch (dtype) {
  case VT_BF16:
    return widen_bf16(e, x);
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
  vt_assert(is_held(e, dtype, x));
  LLVMBuilderRef b = e->builder;
  switch (dtype) {
  case VT_BF16: {
    LLVMTypeRef i16 = int_vector(e, 16); // x is already representable: its upper half is the value
    LLVMValueRef bits = LLVMBuildBitCast(b, x, int_vector(e, 32), "");
    return LLVMBuildTrunc(b, LLVMBuildLShr(b, bits, int_splat(e, 32, 16), ""), i16, "");
  }
  case VT_F16: {
    LLVMTypeRef type = vector_of(e, LLVMHalfTypeInContext(e->context));
    bool was_half = LLVMIsAFPExtInst(x) && LLVMTypeOf(LLVMGetOperand(x, 0)) == type;
    LLVMValueRef half = was_half ? LLVMGetOperand(x, 0) : LLVMBuildFPTrunc(b, x, type, "");
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
  vt_assert(literal->splat || vt_type_elements(literal->type) == 1);
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

// A constant that is neither zero nor NaN.
static bool is_plain_number(LLVMValueRef x) {
  LLVMValueRef first = LLVMIsConstant(x) ? LLVMGetAggregateElement(x, 0) : NULL;
  LLVMBool inexact;
  if (!first || !LLVMIsAConstantFP(first)) return false;
  double number = LLVMConstRealGetDouble(first, &inexact);
  return number == number && number != 0;
}

// x > y ? x : y (or <), which is one instruction.
static LLVMValueRef better_float(vt_emitter *e, bool max, LLVMValueRef x, LLVMValueRef y) {
  LLVMValueRef better = LLVMBuildFCmp(e->builder, max ? LLVMRealOGT : LLVMRealOLT, x, y, "");
  return LLVMBuildSelect(e->builder, better, x, y, "");
}

// NaN propagates from either side. Of equal zeros the second is taken.
static LLVMValueRef float_extreme(vt_emitter *e, bool max, LLVMValueRef x, LLVMValueRef y) {
  if (is_plain_number(y)) return better_float(e, max, y, x);
  LLVMValueRef of_numbers = better_float(e, max, x, y);
  if (is_plain_number(x)) return of_numbers;
  LLVMValueRef nan = LLVMBuildFCmp(e->builder, LLVMRealUNO, x, x, "");
  return LLVMBuildSelect(e->builder, nan, x, of_numbers, "");
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
  vt_assert(is_held(e, dtype, x) && is_held(e, dtype, y));
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

// Lane i ^ by of x in lane i.
static LLVMValueRef swap_lanes(vt_emitter *e, LLVMValueRef x, int by) {
  LLVMValueRef lanes[64];
  int count = e->target.lanes;
  for (int i = 0; i < count; i++)
    lanes[i] = LLVMConstInt(LLVMInt32TypeInContext(e->context), (unsigned)(i ^ by), false);
  return LLVMBuildShuffleVector(e->builder, x, LLVMGetPoison(LLVMTypeOf(x)),
                                LLVMConstVector(lanes, (unsigned)count), "");
}

// Whether there is a NaN is found beside the numbers' tree, not in each of its steps. Lanes may end
// with zeros of either sign: the first one counts.
static LLVMValueRef extreme_across(vt_emitter *e, vt_dtype dtype, bool max, LLVMValueRef x) {
  LLVMValueRef nan = LLVMBuildFCmp(e->builder, LLVMRealUNO, x, x, "");
  LLVMTypeRef type = LLVMTypeOf(nan);
  LLVMValueRef any = vt_emit_intrinsic(e, "llvm.vector.reduce.or", 1, &type, 1, &nan);
  for (int by = e->target.lanes / 2; by > 0; by /= 2)
    x = better_float(e, max, x, swap_lanes(e, x, by));
  x = LLVMBuildExtractElement(e->builder, x, LLVMConstInt(LLVMInt32TypeInContext(e->context), 0, 0),
                              "");
  x = vt_emit_spread(e, x);
  return LLVMBuildSelect(e->builder, vt_emit_spread(e, any), vt_emit_splat_f(e, dtype, NAN), x, "");
}

LLVMValueRef vt_emit_across(vt_emitter *e, vt_reducer reducer, vt_dtype dtype, LLVMValueRef x) {
  bool max = reducer == VT_REDUCE_MAX;
  if ((max || reducer == VT_REDUCE_MIN) && vt_dtype_is_float(dtype))
    return extreme_across(e, dtype, max, x);
  for (int by = e->target.lanes / 2; by > 0; by /= 2)
    x = vt_emit_combine(e, reducer, dtype, x, swap_lanes(e, x, by));
  return x;
}

LLVMValueRef vt_emit_goes_before(vt_emitter *e, vt_reducer reducer, vt_dtype dtype, LLVMValueRef x,
                                 LLVMValueRef y, LLVMValueRef at_x, LLVMValueRef at_y) {
  bool max = reducer == VT_REDUCE_ARGMAX;
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  LLVMBuilderRef b = e->builder;
  LLVMValueRef before, tie;
  if (kind == VT_KIND_FLOAT) {
    LLVMValueRef nan_x = LLVMBuildFCmp(b, LLVMRealUNO, x, x, ""),
                 nan_y = LLVMBuildFCmp(b, LLVMRealUNO, y, y, "");
    before = LLVMBuildFCmp(b, max ? LLVMRealOGT : LLVMRealOLT, x, y, "");
    before = LLVMBuildOr(b, before, LLVMBuildAnd(b, nan_x, LLVMBuildNot(b, nan_y, ""), ""), "");
    tie = LLVMBuildOr(b, LLVMBuildFCmp(b, LLVMRealOEQ, x, y, ""), LLVMBuildAnd(b, nan_x, nan_y, ""),
                      "");
  } else {
    bool is_signed = kind == VT_KIND_SIGNED;
    LLVMIntPredicate above = is_signed ? LLVMIntSGT : LLVMIntUGT,
                     below = is_signed ? LLVMIntSLT : LLVMIntULT;
    before = LLVMBuildICmp(b, max ? above : below, x, y, "");
    tie = LLVMBuildICmp(b, LLVMIntEQ, x, y, "");
  }
  if (!at_x) return before;
  LLVMValueRef first = LLVMBuildICmp(b, LLVMIntSLT, at_x, at_y, "");
  return LLVMBuildOr(b, before, LLVMBuildAnd(b, tie, first, ""), "");
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
