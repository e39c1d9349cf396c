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

// The ops so far, in a table that is kept at most half full.
typedef struct seen {
  uint64_t hash;
  vt_op *op; // NULL = free
} seen;
typedef struct table {
  vt_arena *scratch;
  seen *slots;
  size_t slot_count, used;
} table;

typedef struct merging {
  bool partitioned; // the program of one device
  vt_arena *scratch;
  bool *changed;
} merging;

static bool may_merge(const merging *with, const vt_op *op) {
  if (vt_op_has_effect(op) || !op->result_count || op->code == VT_OP_OPTIMIZATION_BARRIER)
    return false;
  if (vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE) return with->partitioned;
  return op->code != VT_OP_CUSTOM_CALL;
}

static seen *slot_for(const table *t, uint64_t hash, const vt_op *op) {
  size_t i = (size_t)hash & (t->slot_count - 1);
  for (; t->slots[i].op; i = (i + 1) & (t->slot_count - 1))
    if (t->slots[i].hash == hash && vt_op_equal(t->slots[i].op, op, op->operands)) break;
  return &t->slots[i];
}

static void grow(table *t) {
  table old = *t;
  t->slot_count = old.slot_count ? old.slot_count * 4 : 16;
  t->slots = VT_NEW_ARRAY(t->scratch, seen, t->slot_count);
  for (size_t i = 0; i < old.slot_count; i++) {
    if (!old.slots[i].op) continue;
    size_t at = (size_t)old.slots[i].hash & (t->slot_count - 1);
    while (t->slots[at].op) at = (at + 1) & (t->slot_count - 1);
    t->slots[at] = old.slots[i];
  }
}

// The equal op before this one; NULL: there is none, and it is added.
static vt_op *equal_before(table *t, vt_op *op) {
  if (2 * (t->used + 1) > t->slot_count) grow(t);
  uint64_t hash = vt_op_hash(op, op->operands);
  seen *slot = slot_for(t, hash, op);
  if (slot->op) return slot->op;
  *slot = (seen){hash, op};
  t->used++;
  return NULL;
}

static vt_status merge(vt_func *func, void *user) {
  const merging *with = user;
  table t = {.scratch = with->scratch};
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
    vt_op *before = func->first->next ? equal_before(&t, op) : NULL;
    if (!before) continue;
    for (uint32_t i = 0; i < op->result_count; i++)
      vt_rewrite_value(&op->results[i], &before->results[i]);
    vt_op_remove(op);
    *with->changed = true;
  }
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_opt_cse(vt_module *module, const vt_pass_options *options, vt_arena *scratch,
                     bool *out_changed) {
  (void)options;
  return vt_rewrite_each_func(module, merge, &(merging){false, scratch, out_changed});
}

vt_status vt_opt_schedule_aware_collective_cse(vt_module *module,
                                               const vt_collective_options *options,
                                               vt_arena *scratch, bool *out_changed) {
  (void)options;
  return vt_rewrite_each_func(module, merge, &(merging){true, scratch, out_changed});
}
