// SPDX-License-Identifier: Apache-2.0
// opt_cse.c - merges equal pure ops of one function. Op order is kept for the survivors.
// Optimization barriers are removed first: the host gains nothing by computing a value twice, so
// values rematerialised for the chip are computed once here. (HBM is accounted from the module
// before the passes.) In the program of one device barriers stay, and equal collectives become one,
// whatever their channels. Equal regions are found by structure. Cost: O(ops), one hash per op.
#include "base/check.h"
#include "passes/collectives.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

typedef struct seen {
  vt_op *op;
  struct seen *next; // same hash
} seen;

typedef struct merging {
  bool partitioned; // the program of one device
  bool *changed;
} merging;

static bool may_merge(const merging *with, const vt_op *op) {
  if (vt_op_has_effect(op) || !op->result_count || op->code == VT_OP_OPTIMIZATION_BARRIER)
    return false;
  if (vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE) return with->partitioned;
  return op->code != VT_OP_CUSTOM_CALL;
}

static vt_status merge(vt_func *func, void *user) {
  const merging *with = user;
  vt_map table = {0};
  vt_arena scratch = {0};
  vt_op *next;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    vt_rewrite_operands(op);
    if (op->code == VT_OP_OPTIMIZATION_BARRIER && !with->partitioned) {
      vt_assert(op->result_count <= op->operand_count);
      for (uint32_t i = 0; i < op->result_count; i++)
        vt_rewrite_value(&op->results[i], op->operands[i]);
      vt_op_remove(op);
      *with->changed = true;
      continue;
    }
    if (!may_merge(with, op)) continue;
    uint64_t hash = vt_op_hash(op, op->operands);
    seen **bucket = (seen **)vt_map_at(&table, &hash, sizeof hash);
    const seen *found = *bucket;
    for (; found; found = found->next)
      if (vt_op_equal(found->op, op, op->operands)) break;
    if (found) {
      for (uint32_t i = 0; i < op->result_count; i++)
        vt_rewrite_value(&op->results[i], &found->op->results[i]);
      vt_op_remove(op);
      *with->changed = true;
    } else {
      seen *entry = VT_NEW(&scratch, seen);
      *entry = (seen){op, *bucket};
      *bucket = entry;
    }
  }
  vt_rewrite_returns(func);
  vt_map_free(&table);
  vt_arena_free(&scratch);
  return VT_OK;
}

vt_status vt_opt_cse(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                     bool *out_changed) {
  (void)options, (void)scratch;
  return vt_rewrite_each_func(module, merge, &(merging){.changed = out_changed});
}

vt_status vt_opt_schedule_aware_collective_cse(vt_module *module,
                                               const vt_collective_options *options,
                                               vt_arena *scratch, bool *out_changed) {
  (void)options, (void)scratch;
  return vt_rewrite_each_func(module, merge, &(merging){true, out_changed});
}
