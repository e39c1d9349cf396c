// SPDX-License-Identifier: Apache-2.0
// verify_elementwise.c - element types and equal shapes of elementwise ops.
#include "ir/verify.h"

// Bits of the kinds that an op takes.
enum {
  B = 1 << VT_KIND_BOOL,
  S = 1 << VT_KIND_SIGNED,
  U = 1 << VT_KIND_UNSIGNED,
  F = 1 << VT_KIND_FLOAT,
  C = 1 << VT_KIND_COMPLEX,
  I = S | U,
  N = I | F | C
};

static int kinds_taken(vt_opcode code) {
  switch (code) {
  case VT_OP_ADD:
  case VT_OP_MULTIPLY:
  case VT_OP_MAXIMUM:
  case VT_OP_MINIMUM:
    return B | N;
  case VT_OP_SUBTRACT:
  case VT_OP_DIVIDE:
  case VT_OP_REMAINDER:
  case VT_OP_POWER:
  case VT_OP_NEGATE:
  case VT_OP_ABS:
  case VT_OP_SIGN:
    return N;
  case VT_OP_AND:
  case VT_OP_OR:
  case VT_OP_XOR:
  case VT_OP_NOT:
    return B | I;
  case VT_OP_POPCNT:
  case VT_OP_COUNT_LEADING_ZEROS:
  case VT_OP_SHIFT_LEFT:
  case VT_OP_SHIFT_RIGHT_ARITHMETIC:
  case VT_OP_SHIFT_RIGHT_LOGICAL:
    return I;
  case VT_OP_CEIL:
  case VT_OP_FLOOR:
  case VT_OP_ROUND_NEAREST_AFZ:
  case VT_OP_ROUND_NEAREST_EVEN:
  case VT_OP_REDUCE_PRECISION:
  case VT_OP_IS_FINITE:
    return F;
  case VT_OP_CBRT:
  case VT_OP_EXPONENTIAL:
  case VT_OP_EXPONENTIAL_MINUS_ONE:
  case VT_OP_LOG:
  case VT_OP_LOG_PLUS_ONE:
  case VT_OP_LOGISTIC:
  case VT_OP_RSQRT:
  case VT_OP_SQRT:
  case VT_OP_TANH:
  case VT_OP_COSINE:
  case VT_OP_SINE:
  case VT_OP_TAN:
  case VT_OP_ATAN2:
    return F | C;
  case VT_OP_REAL:
  case VT_OP_IMAG:
    return F | C;
  default:
    return B | N;
  }
}

// The real type of the parts of a complex type; other types stay.
static vt_dtype part_type(vt_dtype dtype) {
  return dtype == VT_C64 ? VT_F32 : dtype == VT_C128 ? VT_F64 : dtype;
}

static vt_status verify_ternary(const vt_op *op) {
  vt_type result = vt_result_type(op, 0);
  if (op->code == VT_OP_SELECT) {
    vt_type predicate = vt_operand_type(op, 0);
    CHECK(op, predicate.dtype == VT_PRED, "the predicate is not bool");
    CHECK(op, !predicate.rank || vt_type_same_dims(predicate, result),
          "the predicate has another shape");
    for (uint32_t i = 1; i < 3; i++)
      CHECK(op, vt_type_equal(vt_operand_type(op, i), result),
            "operand %u has another type than the result", i);
    return VT_OK;
  }
  for (uint32_t i = 0; i < 3; i++) {
    vt_type type = vt_operand_type(op, i);
    CHECK(op,
          type.dtype == result.dtype && ((i != 1 && !type.rank) || vt_type_same_dims(type, result)),
          "operand %u has another type than the result", i);
  }
  return VT_OK;
}

vt_status vt_verify_elementwise(const vt_op *op) {
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE)) return VT_OK;
  if (op->code == VT_OP_SELECT || op->code == VT_OP_CLAMP) return verify_ternary(op);
  vt_type result = vt_result_type(op, 0), first = vt_operand_type(op, 0);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_type type = vt_operand_type(op, i);
    CHECK(op, vt_type_same_dims(type, result), "operand %u has another shape than the result", i);
    CHECK(op, type.dtype == first.dtype, "operands have different element types %s and %s",
          vt_dtype_get(first.dtype)->text, vt_dtype_get(type.dtype)->text);
  }
  CHECK(op, kinds_taken(op->code) >> vt_dtype_kind_of(first.dtype) & 1,
        "not defined for element type %s", vt_dtype_get(first.dtype)->text);
  vt_dtype want = first.dtype;
  int64_t value;
  switch (op->code) {
  case VT_OP_IS_FINITE:
    want = VT_PRED;
    break;
  case VT_OP_ABS:
  case VT_OP_REAL:
  case VT_OP_IMAG:
    want = part_type(first.dtype);
    break;
  case VT_OP_CONVERT:
  case VT_OP_UNIFORM_QUANTIZE:
  case VT_OP_UNIFORM_DEQUANTIZE:
    want = result.dtype;
    break;
  case VT_OP_COMPLEX:
    CHECK(op, first.dtype == VT_F32 || first.dtype == VT_F64, "parts must be f32 or f64");
    want = first.dtype == VT_F32 ? VT_C64 : VT_C128;
    break;
  case VT_OP_COMPARE:
    want = VT_PRED;
    VT_TRY(vt_verify_i64(op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_EQ, VT_CMP_LT, &value));
    VT_TRY(vt_verify_i64(op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_NOTYPE, VT_CMPTYPE_UNSIGNED, &value));
    break;
  case VT_OP_REDUCE_PRECISION:
    VT_TRY(vt_verify_i64(op, VT_ATTR_EXPONENT_BITS, 1, 64, &value));
    VT_TRY(vt_verify_i64(op, VT_ATTR_MANTISSA_BITS, 0, 64, &value));
    break;
  default:
    break;
  }
  CHECK(op, result.dtype == want && result.dtype != VT_TOKEN,
        "result has element type %s, expected %s", vt_dtype_get(result.dtype)->text,
        vt_dtype_get(want)->text);
  return VT_OK;
}
