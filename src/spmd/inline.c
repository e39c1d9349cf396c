// SPDX-License-Identifier: Apache-2.0
// inline.c - calls become the bodies of their functions. Manual computations stay, and so do
// sharding constraints, except on the elements of reductions and sorts, where they say nothing.
#include "spmd/spmd.h"

// What stands for a value now: the result of a call may be the result of another.
static vt_value *resolve(vt_value *value) {
  while (value->replaced_by) value = value->replaced_by;
  return value;
}

static bool is_control(const vt_op *op) {
  return vt_op_info_get(op->code)->class == VT_CLASS_CONTROL;
}

// `elements`: the function computes on elements of arrays.
static void inline_in(vt_func *func, bool elements) {
  vt_op *next;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->operand_count; i++) op->operands[i] = resolve(op->operands[i]);
    vt_func *callee = vt_op_callee(op);
    if (elements && vt_op_info_get(op->code)->flags & VT_OPF_SHARDY && op->result_count == 1) {
      op->results[0].replaced_by = op->operands[0];
      vt_op_remove(op);
      continue;
    }
    if (!callee) {
      for (uint32_t i = 0; i < op->region_count; i++)
        inline_in(op->regions[i], elements || !is_control(op));
      continue;
    }
    vt_arena scratch = {0};
    vt_value **returns = VT_NEW_ARRAY(&scratch, vt_value *, op->result_count + 1);
    vt_op *before = op->prev;
    vt_func_inline(callee, op, op->operands, returns);
    for (uint32_t i = 0; i < op->result_count; i++) op->results[i].replaced_by = returns[i];
    vt_op_remove(op);
    next = before ? before->next : func->first; // the body may contain calls: walk it too
    vt_arena_free(&scratch);
  }
  for (uint32_t i = 0; i < func->return_count; i++) func->returns[i] = resolve(func->returns[i]);
}

void vt_spmd_inline(vt_module *module) {
  inline_in(module->main, false);
  module->funcs[0] = module->main;
  module->func_count = 1;
}
