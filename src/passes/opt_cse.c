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

// The ops that others may equal: at most half of the places are taken, a hash is found at its own
// place or behind.
typedef struct seen {
  uint64_t hash;
  vt_op *op;
} seen;
typedef struct table {
  vt_arena arena;
  uint32_t *places; // numbers in `ops`, from 1
  size_t count;
  seen *ops;
  uint32_t op_count;
} table;

typedef struct merging {
  bool partitioned; // the program of one device
  bool *changed;
} merging;

static bool may_merge(const merging *with, const vt_op *op) {
  uint16_t flags = vt_op_info_get(op->code)->flags;
  if (flags & VT_OPF_ELTWISE) return true;
  if (vt_op_has_effect(op) || !op->result_count || op->code == VT_OP_OPTIMIZATION_BARRIER)
    return false;
  if (flags & VT_OPF_COLLECTIVE) return with->partitioned;
  return op->code != VT_OP_CUSTOM_CALL;
}

// Room for all ops of a function that have results.
static table make_table(const vt_func *func) {
  size_t ops = func->value_room, count = 32;
  while (count < 2 * ops) count *= 2;
  table t = {.arena = {.brief = true}, .count = count};
  t.places = VT_NEW_ARRAY(&t.arena, uint32_t, count);
  t.ops = vt_arena_push_raw(&t.arena, sizeof(seen) * (ops + 1));
  return t;
}

// The op that this one equals; NULL: none, and later ones may equal it.
static const vt_op *find_equal(table *t, vt_op *op) {
  uint64_t hash = vt_op_hash(op, op->operands);
  size_t at = hash & (t->count - 1);
  for (; t->places[at]; at = (at + 1) & (t->count - 1)) {
    const seen *other = &t->ops[t->places[at] - 1];
    if (other->hash == hash && vt_op_equal(other->op, op, op->operands)) return other->op;
  }
  t->ops[t->op_count++] = (seen){hash, op};
  t->places[at] = t->op_count;
  return NULL;
}

static vt_status merge(vt_func *func, void *user) {
  const merging *with = user;
  bool alone = func->first == func->last;
  table known = alone ? (table){0} : make_table(func);
  bool any = false;
  vt_op *next;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    if (any) vt_rewrite_operands(op);
    if (op->code == VT_OP_OPTIMIZATION_BARRIER && !with->partitioned) {
      vt_assert(op->result_count <= op->operand_count);
      for (uint32_t i = 0; i < op->result_count; i++)
        vt_rewrite_value(&op->results[i], op->operands[i]);
      vt_op_remove(op);
      any = *with->changed = true;
      continue;
    }
    const vt_op *equal = alone || !may_merge(with, op) ? NULL : find_equal(&known, op);
    if (!equal) continue;
    for (uint32_t i = 0; i < op->result_count; i++)
      vt_rewrite_value(&op->results[i], &equal->results[i]);
    vt_op_remove(op);
    any = *with->changed = true;
  }
  vt_rewrite_returns(func);
  vt_arena_free(&known.arena);
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
