// SPDX-License-Identifier: Apache-2.0
// kernel_lanes.c - elementwise ops of kernels by the emitters of src/host: an op of a kernel is
// given the form of the op of ir/ops.def that computes it (mosaic.def), as in mosaic_lanes.c.
#include "mosaic_host/kernel.h"

bool vt_klanes_type(vt_dtype dtype) {
  switch ((int)dtype) {
  case VT_PRED:
  case VT_S8:
  case VT_S16:
  case VT_S32:
  case VT_S64:
  case VT_F16:
  case VT_BF16:
  case VT_F32:
    return true;
  default:
    return false;
  }
}

// Narrow integers are kept sign-extended, a byte each.
vt_dtype vt_klanes_memory(vt_dtype dtype) {
  return dtype == VT_S4 || dtype == VT_S2 ? VT_S8 : dtype;
}

typedef struct shape {
  vt_opcode code;
  uint32_t count;
  vt_dtype in[3], out;
} shape;

static vt_opcode bool_code(vt_opcode code) {
  switch ((int)code) {
  case VT_OP_ADD:
  case VT_OP_SUBTRACT:
    return VT_OP_XOR;
  case VT_OP_MULTIPLY:
  case VT_OP_MINIMUM:
    return VT_OP_AND;
  case VT_OP_MAXIMUM:
    return VT_OP_OR;
  default:
    return code;
  }
}

// `from`: the kernel's op, of whose attributes those that count are kept; or NULL.
static vt_op *make_op(vt_arena *arena, shape s, const vt_mop *from) {
  vt_op *op = VT_NEW(arena, vt_op);
  vt_value *values = VT_NEW_ARRAY(arena, vt_value, s.count + 1);
  op->code = s.code;
  op->operand_count = s.count;
  op->operands = VT_NEW_ARRAY(arena, vt_value *, s.count);
  for (uint32_t i = 0; i < s.count; i++) {
    values[i].type.dtype = s.in[i];
    op->operands[i] = &values[i];
  }
  values[s.count].type.dtype = s.out;
  op->results = &values[s.count];
  op->result_count = 1;
  if (s.code != VT_OP_REDUCE_PRECISION) return op;
  op->attr_count = 2;
  op->attrs = VT_NEW_ARRAY(arena, vt_attr, 2);
  op->attrs[0] = vt_mosaic_bits_attr(from, VT_MATTR_EXPONENT_BITS, VT_ATTR_EXPONENT_BITS);
  op->attrs[1] = vt_mosaic_bits_attr(from, VT_MATTR_MANTISSA_BITS, VT_ATTR_MANTISSA_BITS);
  return op;
}

// The op's row by its function in mosaic.def.
typedef enum how {
  OTHER,
  LANES,
  COMPARE_INT,
  COMPARE_FLOAT,
  SELECT,
  CAST,
  CAST_UNSIGNED,
  TRUNCATE,
  ROUND_CAST,
  SAME_BITS,
  IS_WEIRD,
  POWER_OF_2,
  LOG_OF_2,
  ONE_OVER
} how;

static how how_of(const vt_mop *op) {
  switch (op->code) {
  case VT_MOP_CMPI:
    return COMPARE_INT;
  case VT_MOP_CMPF:
    return COMPARE_FLOAT;
  case VT_MOP_SELECT:
    return SELECT;
  case VT_MOP_TRUNCI:
    return op->results[0].type.dtype == VT_PRED ? TRUNCATE : CAST;
  case VT_MOP_FPTOUI:
    return CAST_UNSIGNED;
  case VT_MOP_TPU_FPTOSI:
  case VT_MOP_TPU_FPTOUI:
    return ROUND_CAST;
  case VT_MOP_BITCAST:
    return SAME_BITS;
  case VT_MOP_WEIRD:
    return IS_WEIRD;
  case VT_MOP_EXP2:
    return POWER_OF_2;
  case VT_MOP_LOG2:
    return LOG_OF_2;
  case VT_MOP_RECIPROCAL:
    return ONE_OVER;
  default:
    break;
  }
  vt_opcode loop = vt_mop_info_get(op->code)->loop;
  if (loop == VT_OP_INVALID) return OTHER;
  return loop == VT_OP_CONVERT ? CAST : LANES;
}

static shape shape_of(const vt_mop *op) {
  const vt_mop_info *info = vt_mop_info_get(op->code);
  vt_dtype from = vt_klanes_memory(op->operands[0]->type.dtype), to = op->results[0].type.dtype;
  bool is_unsigned = info->is_unsigned;
  switch (how_of(op)) {
  case LANES: {
    vt_dtype dtype = is_unsigned ? vt_dtype_unsigned(to) : to;
    return (shape){dtype == VT_PRED ? bool_code(info->loop) : info->loop,
                   op->operand_count,
                   {dtype, dtype, dtype},
                   dtype};
  }
  case POWER_OF_2:
    return (shape){VT_OP_POWER, 2, {to, to}, to};
  case LOG_OF_2:
    return (shape){VT_OP_LOG, 1, {VT_F32}, VT_F32};
  case ONE_OVER:
    return (shape){VT_OP_DIVIDE, 2, {to, to}, to};
  case IS_WEIRD:
    return (shape){VT_OP_IS_FINITE, 1, {from}, VT_PRED};
  case CAST:
    if (from == VT_PRED && !is_unsigned) from = VT_S8; // true is -1
    return (shape){VT_OP_CONVERT, 1, {is_unsigned ? vt_dtype_unsigned(from) : from}, to};
  case CAST_UNSIGNED:
    return (shape){VT_OP_CONVERT, 1, {from}, vt_dtype_unsigned(to)};
  case ROUND_CAST:
    return (shape){VT_OP_CONVERT, 1, {from}, is_unsigned ? vt_dtype_unsigned(to) : to};
  default:
    return (shape){.code = VT_OP_INVALID};
  }
}

bool vt_klanes_has(const vt_mop *op) {
  how h = how_of(op);
  if (h == OTHER || op->result_count != 1) return false;
  if (!vt_klanes_type(op->results[0].type.dtype)) return false;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_dtype dtype = op->operands[i]->type.dtype;
    bool narrow = vt_klanes_memory(dtype) != dtype; // read sign-extended
    if (narrow && (h != CAST || vt_mop_info_get(op->code)->is_unsigned)) return false;
    if (!vt_klanes_type(vt_klanes_memory(dtype))) return false;
  }
  vt_dtype from = op->operands[0]->type.dtype, to = op->results[0].type.dtype;
  if (h == SAME_BITS)
    return from != VT_PRED && to != VT_PRED && vt_dtype_bytes(from) == vt_dtype_bytes(to);
  shape s = shape_of(op);
  if (s.code == VT_OP_INVALID) return true;
  vt_arena arena = {0};
  bool has = vt_emit_supports(make_op(&arena, s, op));
  vt_arena_free(&arena);
  return has;
}

bool vt_klanes_cheap(const vt_mop *op) {
  how h = how_of(op);
  if (h == POWER_OF_2 || h == LOG_OF_2 || h == ONE_OVER || h == OTHER) return false;
  vt_opcode loop = vt_mop_info_get(op->code)->loop;
  return loop == VT_OP_INVALID || (vt_op_info_get(loop)->cost != VT_COST_EXPENSIVE &&
                                   vt_op_info_get(loop)->cost != VT_COST_MEDIUM &&
                                   loop != VT_OP_DIVIDE && loop != VT_OP_REMAINDER);
}

static LLVMValueRef by_shape(vt_emitter *e, vt_arena *arena, shape s, const vt_mop *op,
                             const LLVMValueRef *in) {
  return vt_emit_op(e, make_op(arena, s, op), in);
}

LLVMValueRef vt_klanes_convert(vt_emitter *e, vt_arena *arena, vt_dtype from, vt_dtype to,
                               LLVMValueRef x) {
  if (from == to) return x;
  return by_shape(e, arena, (shape){VT_OP_CONVERT, 1, {from}, to}, NULL, &x);
}

// A NaN differs from everything where JAX writes `one` (mosaic_lanes.c).
static LLVMValueRef compare_floats(vt_emitter *e, int64_t predicate, LLVMValueRef x,
                                   LLVMValueRef y) {
  static const LLVMRealPredicate real[16] = {LLVMRealPredicateFalse,
                                             LLVMRealOEQ,
                                             LLVMRealOGT,
                                             LLVMRealOGE,
                                             LLVMRealOLT,
                                             LLVMRealOLE,
                                             LLVMRealUNE,
                                             LLVMRealORD,
                                             LLVMRealUEQ,
                                             LLVMRealUGT,
                                             LLVMRealUGE,
                                             LLVMRealULT,
                                             LLVMRealULE,
                                             LLVMRealUNE,
                                             LLVMRealUNO,
                                             LLVMRealPredicateTrue};
  return LLVMBuildFCmp(e->builder, real[predicate & 15], x, y, "");
}

static LLVMValueRef compare_ints(vt_emitter *e, int64_t predicate, LLVMValueRef x, LLVMValueRef y) {
  static const LLVMIntPredicate ints[10] = {LLVMIntEQ,  LLVMIntNE,  LLVMIntSLT, LLVMIntSLE,
                                            LLVMIntSGT, LLVMIntSGE, LLVMIntULT, LLVMIntULE,
                                            LLVMIntUGT, LLVMIntUGE};
  return LLVMBuildICmp(e->builder, ints[predicate % 10], x, y, "");
}

static LLVMValueRef same_bits(vt_emitter *e, vt_dtype from, vt_dtype to, LLVMValueRef x) {
  x = vt_emit_to_memory(e, from, x);
  LLVMTypeRef type = LLVMVectorType(vt_emit_memory_type(e, to), (unsigned)e->target.lanes);
  return vt_emit_from_memory(e, to, LLVMBuildBitCast(e->builder, x, type, ""));
}

LLVMValueRef vt_klanes_emit(vt_emitter *e, vt_arena *arena, const vt_mop *op,
                            const LLVMValueRef *in) {
  LLVMBuilderRef b = e->builder;
  vt_dtype from = vt_klanes_memory(op->operands[0]->type.dtype), to = op->results[0].type.dtype;
  LLVMValueRef args[3] = {in[0], op->operand_count > 1 ? in[1] : NULL,
                          op->operand_count > 2 ? in[2] : NULL};
  switch (how_of(op)) {
  case COMPARE_INT:
    return compare_ints(e, vt_mop_i64(op, VT_MATTR_PREDICATE, 0), in[0], in[1]);
  case COMPARE_FLOAT:
    return compare_floats(e, vt_mop_i64(op, VT_MATTR_PREDICATE, 0), in[0], in[1]);
  case SELECT:
    return LLVMBuildSelect(b, in[0], in[1], in[2], "");
  case SAME_BITS:
    return same_bits(e, from, to, in[0]);
  case TRUNCATE:
    return LLVMBuildTrunc(b, in[0], vt_emit_type(e, VT_PRED), "");
  case IS_WEIRD:
    return LLVMBuildNot(b, by_shape(e, arena, shape_of(op), op, in), "");
  case POWER_OF_2:
    args[1] = in[0];
    args[0] = vt_emit_splat_f(e, vt_emit_compute_dtype(to), 2);
    break;
  case LOG_OF_2:
    args[0] = vt_klanes_convert(e, arena, from, VT_F32, in[0]);
    args[0] = by_shape(e, arena, shape_of(op), op, args);
    args[0] = LLVMBuildFMul(b, args[0], vt_emit_splat_f(e, VT_F32, (double)vt_mosaic_log2_e), "");
    return vt_klanes_convert(e, arena, VT_F32, to, args[0]);
  case ONE_OVER:
    args[1] = in[0];
    args[0] = vt_emit_splat_f(e, vt_emit_compute_dtype(to), 1);
    break;
  case CAST:
    if (from == VT_PRED && !vt_mop_info_get(op->code)->is_unsigned)
      args[0] = LLVMBuildSExt(b, in[0], vt_emit_type(e, VT_S8), "");
    break;
  case ROUND_CAST:
    if (vt_mop_i64(op, VT_MATTR_ROUNDING_MODE, 0) == VT_MWORD_TO_NEAREST_EVEN) {
      LLVMTypeRef type = LLVMTypeOf(in[0]);
      args[0] = vt_emit_intrinsic(e, "llvm.roundeven", 1, &type, 1, args);
    }
    break;
  default:
    break;
  }
  return by_shape(e, arena, shape_of(op), op, args);
}
