// SPDX-License-Identifier: Apache-2.0
// emit_complex.c - elementwise ops on c64. In registers a complex number is 64 bits, like an
// integer: what only moves it needs no code of its own. Here vectors of n are taken as vectors of
// 2 n floats, with the real parts in the even lanes.
// Products are rounded before they are added, as in the evaluator.
#include <math.h>

#include "host/emit.h"

typedef LLVMValueRef value;

bool vt_emit_supports_complex(const vt_op *op) {
  vt_dtype from = op->operand_count ? op->operands[0]->type.dtype : VT_F32;
  vt_dtype to = op->results[0].type.dtype;
  switch (op->code) {
  case VT_OP_COMPLEX:
    return to == VT_C64;
  case VT_OP_CONVERT:
    return (from == VT_F32 && to == VT_C64) || (from == VT_C64 && to == VT_F32);
  case VT_OP_SELECT:
    return to == VT_C64;
  case VT_OP_COMPARE: {
    int64_t direction = vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION);
    return from == VT_C64 && (direction == VT_CMP_EQ || direction == VT_CMP_NE);
  }
  case VT_OP_REAL:
  case VT_OP_IMAG:
  case VT_OP_ABS:
  case VT_OP_SIGN:
  case VT_OP_NEGATE:
  case VT_OP_ADD:
  case VT_OP_SUBTRACT:
  case VT_OP_MULTIPLY:
    return from == VT_C64;
  default:
    return false;
  }
}

// A vector of lanes from[i] of x, then y.
static value shuffle(vt_emitter *e, value x, value y, int count, const int *from) {
  value lanes[64];
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  for (int i = 0; i < count; i++) lanes[i] = LLVMConstInt(i32, (unsigned)from[i], false);
  return LLVMBuildShuffleVector(e->builder, x, y, LLVMConstVector(lanes, (unsigned)count), "");
}

static value floats_of(vt_emitter *e, value x) {
  LLVMTypeRef type =
      LLVMVectorType(LLVMFloatTypeInContext(e->context), 2 * (unsigned)e->target.lanes);
  return LLVMBuildBitCast(e->builder, x, type, "");
}
static value of_floats(vt_emitter *e, value x) {
  return LLVMBuildBitCast(e->builder, x, vt_emit_type(e, VT_C64), "");
}

// The real parts (0) or the imaginary ones (1).
static value part(vt_emitter *e, value x, int which) {
  int from[64];
  for (int i = 0; i < e->target.lanes; i++) from[i] = 2 * i + which;
  x = floats_of(e, x);
  return shuffle(e, x, x, e->target.lanes, from);
}

static value join(vt_emitter *e, value re, value im) {
  int from[64], lanes = e->target.lanes;
  for (int i = 0; i < 2 * lanes; i++) from[i] = i / 2 + i % 2 * lanes;
  return of_floats(e, shuffle(e, re, im, 2 * lanes, from));
}

// With x = (a, b) and y = (c, d): (a c, b c) and (b d, a d), of which real parts are subtracted and
// imaginary ones added.
static value multiply(vt_emitter *e, value x, value y) {
  LLVMBuilderRef b = e->builder;
  int real[64], imaginary[64], swapped[64], either[64], count = 2 * e->target.lanes;
  for (int i = 0; i < count; i++) {
    real[i] = i & ~1;
    imaginary[i] = i | 1;
    swapped[i] = i ^ 1;
    either[i] = i % 2 ? count + i : i;
  }
  x = floats_of(e, x), y = floats_of(e, y);
  value straight = LLVMBuildFMul(b, x, shuffle(e, y, y, count, real), "");
  value crossed =
      LLVMBuildFMul(b, shuffle(e, x, x, count, swapped), shuffle(e, y, y, count, imaginary), "");
  value difference = LLVMBuildFSub(b, straight, crossed, ""),
        sum = LLVMBuildFAdd(b, straight, crossed, "");
  return of_floats(e, shuffle(e, difference, sum, count, either));
}

static value unary(vt_emitter *e, const char *name, value x) {
  LLVMTypeRef type = LLVMTypeOf(x);
  return vt_emit_intrinsic(e, name, 1, &type, 1, &x);
}

// abs_c64 of the evaluator.
static value magnitude(vt_emitter *e, value z) {
  LLVMBuilderRef b = e->builder;
  value x = unary(e, "llvm.fabs", part(e, z, 0)), y = unary(e, "llvm.fabs", part(e, z, 1));
  value most = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGT, x, y, ""), x, y, "");
  value large = LLVMBuildFCmp(b, LLVMRealOGT, most, vt_emit_splat_f(e, VT_F32, 0x1p62), "");
  value small = LLVMBuildFCmp(b, LLVMRealOLT, most, vt_emit_splat_f(e, VT_F32, 0x1p-40), "");
  value factors[2];
  for (int i = 0; i < 2; i++) {
    value up = vt_emit_splat_f(e, VT_F32, i ? 0x1p-86 : 0x1p86),
          down = vt_emit_splat_f(e, VT_F32, i ? 0x1p66 : 0x1p-66);
    value factor = LLVMBuildSelect(b, small, up, vt_emit_splat_f(e, VT_F32, 1), "");
    factors[i] = LLVMBuildSelect(b, large, down, factor, "");
  }
  value infinity = vt_emit_splat_f(e, VT_F32, INFINITY);
  value infinite = LLVMBuildOr(b, LLVMBuildFCmp(b, LLVMRealOEQ, x, infinity, ""),
                               LLVMBuildFCmp(b, LLVMRealOEQ, y, infinity, ""), "");
  x = LLVMBuildFMul(b, x, factors[0], ""), y = LLVMBuildFMul(b, y, factors[0], "");
  value size = LLVMBuildFAdd(b, LLVMBuildFMul(b, x, x, ""), LLVMBuildFMul(b, y, y, ""), "");
  size = LLVMBuildFMul(b, unary(e, "llvm.sqrt", size), factors[1], "");
  return LLVMBuildSelect(b, infinite, infinity, size, "");
}

static value direction(vt_emitter *e, value z) {
  LLVMBuilderRef b = e->builder;
  value size = magnitude(e, z), zero = vt_emit_splat_f(e, VT_F32, 0), parts[2];
  value none = LLVMBuildFCmp(b, LLVMRealOEQ, size, zero, "");
  for (int i = 0; i < 2; i++)
    parts[i] = LLVMBuildSelect(b, none, zero, LLVMBuildFDiv(b, part(e, z, i), size, ""), "");
  return join(e, parts[0], parts[1]);
}

static value compare(vt_emitter *e, const vt_op *op, value x, value y) {
  LLVMBuilderRef b = e->builder;
  bool equal = vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION) == VT_CMP_EQ;
  LLVMRealPredicate p = equal ? LLVMRealOEQ : LLVMRealUNE;
  value re = LLVMBuildFCmp(b, p, part(e, x, 0), part(e, y, 0), "");
  value im = LLVMBuildFCmp(b, p, part(e, x, 1), part(e, y, 1), "");
  return equal ? LLVMBuildAnd(b, re, im, "") : LLVMBuildOr(b, re, im, "");
}

LLVMValueRef vt_emit_complex(vt_emitter *e, const vt_op *op, const LLVMValueRef *in) {
  LLVMBuilderRef b = e->builder;
  switch (op->code) {
  case VT_OP_COMPLEX:
    return join(e, in[0], in[1]);
  case VT_OP_CONVERT:
    if (op->results[0].type.dtype == VT_C64) return join(e, in[0], vt_emit_splat_f(e, VT_F32, 0));
    return part(e, in[0], 0);
  case VT_OP_SELECT:
    return LLVMBuildSelect(b, in[0], in[1], in[2], "");
  case VT_OP_COMPARE:
    return compare(e, op, in[0], in[1]);
  case VT_OP_REAL:
    return part(e, in[0], 0);
  case VT_OP_IMAG:
    return part(e, in[0], 1);
  case VT_OP_ABS:
    return magnitude(e, in[0]);
  case VT_OP_SIGN:
    return direction(e, in[0]);
  case VT_OP_NEGATE:
    return of_floats(e, LLVMBuildFNeg(b, floats_of(e, in[0]), ""));
  case VT_OP_ADD:
    return of_floats(e, LLVMBuildFAdd(b, floats_of(e, in[0]), floats_of(e, in[1]), ""));
  case VT_OP_SUBTRACT:
    return of_floats(e, LLVMBuildFSub(b, floats_of(e, in[0]), floats_of(e, in[1]), ""));
  default:
    return multiply(e, in[0], in[1]);
  }
}
