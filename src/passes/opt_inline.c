// SPDX-License-Identifier: Apache-2.0
// opt_inline.c - calls and composites become their bodies; functions no longer called are dropped.
// In: calls that do not recurse. Out: no CALL and no COMPOSITE anywhere, main is the only function;
// with keep_elementwise, calls of elementwise functions stay (vt_spmd_inline has dropped others).
// Sharding ops (constraints, edges, barriers) are replaced by their operands: src/spmd has already
// used them.
#include "base/check.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

static void inline_in(vt_func *func, bool keep_elementwise, bool *changed) {
  vt_op *next;
  bool any = false;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    if (any) vt_rewrite_operands(op);
    for (uint32_t i = 0; i < op->region_count; i++)
      inline_in(op->regions[i], keep_elementwise, changed);
    vt_func *callee = vt_op_callee(op);
    if (callee && keep_elementwise && vt_op_is_elementwise_call(op)) continue;
    if (callee) {
      vt_assert(callee->return_count == op->result_count &&
                callee->param_count == op->operand_count);
      vt_value **returns = VT_NEW_ARRAY(&func->module->arena, vt_value *, op->result_count);
      vt_op *before = op->prev;
      vt_func_inline(callee, op->func, op, op->operands, returns);
      for (uint32_t i = 0; i < op->result_count; i++) vt_rewrite_value(&op->results[i], returns[i]);
      vt_op_remove(op);
      next = before ? before->next : func->first; // the body may hold calls: walk it too
      any = *changed = true;
    } else if (vt_op_info_get(op->code)->flags & VT_OPF_SHARDY) {
      vt_assert(op->result_count <= op->operand_count);
      for (uint32_t i = 0; i < op->result_count; i++)
        vt_rewrite_value(&op->results[i], op->operands[i]);
      vt_op_remove(op);
      any = *changed = true;
    }
  }
  vt_rewrite_returns(func);
}

vt_status vt_opt_inline(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                        bool *out_changed) {
  vt_assert(module->func_count >= 1);
  (void)scratch;
  inline_in(module->main, options->keep_elementwise, out_changed);
  if (options->keep_elementwise) return VT_OK;
  module->funcs[0] = module->main;
  module->func_count = 1;
  return VT_OK;
}
