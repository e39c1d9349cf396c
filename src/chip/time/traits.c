// SPDX-License-Identifier: Apache-2.0
// traits.c - what matters of an operator to the kernels it may be in, whatever is around it.
#include "chip/time/traits.h"

#include "ir/loop.h"

static bool hands_on(const vt_op *op) {
  vt_op_class class = (vt_op_class)vt_op_info_get(op->code)->class;
  bool marks = op->code == VT_OP_CUSTOM_CALL && vt_op_is_marker(op);
  return (class == VT_CLASS_NAME || marks) && op->operand_count >= op->result_count;
}

bool vt_kernel_keeps(const vt_value *value) {
  return value->op->code == VT_OP_WHILE && vt_loop_keeps(value->op, (uint32_t)value->index);
}

const vt_value *vt_kernel_source(const vt_value *value) {
  while (value->op && (hands_on(value->op) || vt_kernel_keeps(value)))
    value = value->op->operands[value->index];
  return value;
}

static bool finds_soft(const vt_op *op) {
  if (vt_op_is_elementwise_call(op)) return true;
  if (op->result_count != 1) return false;
  switch (op->code) {
  case VT_OP_RESHAPE:
  case VT_OP_BITCAST_CONVERT:
  case VT_OP_BROADCAST_IN_DIM:
  case VT_OP_BROADCAST:
  case VT_OP_TRANSPOSE:
  case VT_OP_SLICE:
  case VT_OP_DYNAMIC_SLICE:
  case VT_OP_PAD:
  case VT_OP_REVERSE:
  case VT_OP_IOTA:
  case VT_OP_RNG:
  case VT_OP_CONCATENATE:
    return true;
  default:
    return vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE;
  }
}

bool vt_kernel_is_dear(const vt_op *op) {
  vt_cost_class cost = (vt_cost_class)vt_op_info_get(op->code)->cost;
  return cost == VT_COST_MEDIUM || cost == VT_COST_EXPENSIVE;
}

uint8_t vt_kernel_traits(const vt_op *op) {
  const vt_op_info *info = vt_op_info_get(op->code);
  vt_op_class class = (vt_op_class)info->class;
  int traits = finds_soft(op) ? VT_TRAIT_SOFT : 0;
  if (info->flags & VT_OPF_ELTWISE || vt_op_is_elementwise_call(op)) traits |= VT_TRAIT_ELEMENTWISE;
  if (vt_kernel_is_dear(op)) traits |= VT_TRAIT_DEAR;
  if (hands_on(op)) traits |= VT_TRAIT_HANDING | VT_TRAIT_NOTHING;
  if (op->code == VT_OP_CONSTANT || class == VT_CLASS_DEVICE || class == VT_CLASS_TOKEN)
    traits |= VT_TRAIT_NOTHING;
  if (class == VT_CLASS_CONTRACT) traits |= VT_TRAIT_PRODUCT;
  if (class == VT_CLASS_REDUCE) traits |= VT_TRAIT_REDUCTION;
  return (uint8_t)traits;
}
