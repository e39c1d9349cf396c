// SPDX-License-Identifier: Apache-2.0
// update.c - operators that change a part of an array: in place where the array is theirs to
// change, in a copy where it is not.
#include "chip/time/kernels.h"

uint32_t vt_updated_by(const vt_op *op) {
  if (op->code == VT_OP_DYNAMIC_UPDATE_SLICE) return 1;
  return op->code == VT_OP_SCATTER ? (vt_op_own_operands(op) - 1) / 2 : 0;
}

// A parameter of the program that is not donated stays as it is, and so does a constant. Other
// arrays are taken to have no reader that runs later.
bool vt_update_copies(const vt_value *array) {
  const vt_func *main = array->func->module->main;
  if (array->op) return array->op->code == VT_OP_CONSTANT;
  if (array->func != main) return false;
  const vt_io_info *info = main->param_info ? &main->param_info[array->index] : NULL;
  return !info || (!info->donor && info->alias_output < 0);
}

bool vt_update_reads(const vt_op *op, const vt_value *array) {
  return op->code == VT_OP_SCATTER || vt_update_copies(array);
}
