// SPDX-License-Identifier: Apache-2.0
// opt_dce.c - drops pure ops with unused results, from the end to the beginning.
// Also inside regions. Parameters and results of regions stay as they are.
#include "base/check.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

static vt_status sweep(vt_func *func, void *user) {
  const vt_rewriting *pass = user;
  uint32_t *uses = vt_func_use_counts(func, pass->scratch);
  vt_op *prev;
  for (vt_op *op = func->last; op; op = prev) {
    prev = op->prev;
    bool used = false;
    for (uint32_t i = 0; i < op->result_count && !used; i++) used = uses[op->results[i].id] != 0;
    if (used || vt_op_has_effect(op)) continue;
    vt_assert_each(i, op->operand_count, uses[op->operands[i]->id]);
    for (uint32_t i = 0; i < op->operand_count; i++) uses[op->operands[i]->id]--;
    vt_op_remove(op);
    *pass->changed = true;
  }
  return VT_OK;
}

vt_status vt_opt_dce(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                     bool *out_changed) {
  (void)options;
  return vt_rewrite_each_func(module, sweep, &(vt_rewriting){scratch, out_changed});
}
