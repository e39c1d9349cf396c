// SPDX-License-Identifier: Apache-2.0
// verify_elementwise.c - element types and equal shapes of elementwise ops.
#include "ir/verify.h"

static vt_dtype result_type(vt_element_rule rule, vt_dtype operand, vt_dtype given) {
  switch (rule) {
  case VT_ELEMENT_PRED:
    return VT_PRED;
  case VT_ELEMENT_PART: // of a complex number; others have one part
    return operand == VT_C64 ? VT_F32 : operand == VT_C128 ? VT_F64 : operand;
  case VT_ELEMENT_PAIR:
    return operand == VT_F32 ? VT_C64 : VT_C128;
  case VT_ELEMENT_GIVEN:
    return given;
  default:
    return operand;
  }
}

vt_status vt_verify_elementwise(const vt_op *op) {
  vt_type result = vt_result_type(op, 0), first = vt_operand_type(op, 0);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_type type = vt_operand_type(op, i);
    CHECK(op, vt_type_same_dims(type, result), "operand %u has a different shape than the result",
          i);
    CHECK(op, type.dtype == first.dtype, "operands have different element types %s and %s",
          vt_dtype_get(first.dtype)->text, vt_dtype_get(type.dtype)->text);
  }
  const vt_op_info *info = vt_op_info_get(op->code);
  CHECK(op, info->kinds >> vt_dtype_kind_of(first.dtype) & 1, "not defined for element type %s",
        vt_dtype_get(first.dtype)->text);
  vt_dtype want = result_type((vt_element_rule)info->element, first.dtype, result.dtype);
  CHECK(op, result.dtype == want && result.dtype != VT_TOKEN,
        "result has element type %s, expected %s", vt_dtype_get(result.dtype)->text,
        vt_dtype_get(want)->text);
  return VT_OK;
}

vt_status vt_verify_complex(const vt_op *op) {
  vt_dtype part = vt_operand_type(op, 0).dtype;
  CHECK(op, part == VT_F32 || part == VT_F64, "parts must be f32 or f64");
  return vt_verify_elementwise(op);
}

vt_status vt_verify_compare(const vt_op *op) {
  int64_t value;
  VT_TRY(vt_verify_i64(op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_EQ, VT_CMP_LT, &value));
  VT_TRY(vt_verify_i64(op, VT_ATTR_COMPARE_TYPE, VT_CMPTYPE_NOTYPE, VT_CMPTYPE_UNSIGNED, &value));
  return vt_verify_elementwise(op);
}

vt_status vt_verify_reduce_precision(const vt_op *op) {
  int64_t value;
  VT_TRY(vt_verify_i64(op, VT_ATTR_EXPONENT_BITS, 1, 64, &value));
  VT_TRY(vt_verify_i64(op, VT_ATTR_MANTISSA_BITS, 0, 64, &value));
  return vt_verify_elementwise(op);
}

vt_status vt_verify_select(const vt_op *op) {
  vt_type result = vt_result_type(op, 0), predicate = vt_operand_type(op, 0);
  CHECK(op, predicate.dtype == VT_PRED, "the predicate is not bool");
  CHECK(op, !predicate.rank || vt_type_same_dims(predicate, result),
        "the predicate has a different shape");
  for (uint32_t i = 1; i < 3; i++)
    CHECK(op, vt_type_equal(vt_operand_type(op, i), result),
          "operand %u has a different type than the result", i);
  return VT_OK;
}

vt_status vt_verify_clamp(const vt_op *op) {
  vt_type result = vt_result_type(op, 0);
  for (uint32_t i = 0; i < 3; i++) {
    vt_type type = vt_operand_type(op, i);
    CHECK(op,
          type.dtype == result.dtype && ((i != 1 && !type.rank) || vt_type_same_dims(type, result)),
          "operand %u has a different type than the result", i);
  }
  return VT_OK;
}
