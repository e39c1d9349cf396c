// SPDX-License-Identifier: Apache-2.0
// opt_cse.c - merges equal pure ops of one function. Op order is kept for the survivors.
// Optimization barriers are removed first: the host gains nothing by computing a value twice, so
// values rematerialised for the chip are computed once here. (HBM is accounted from the module
// before the passes.) In the program of one device barriers stay, and equal collectives become one,
// whatever their channels. Equal regions are found by structure. Cost: O(ops), one hash per op.
#include <string.h>

#include "base/check.h"
#include "passes/collectives.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

static bool same_func(const vt_func *a, const vt_func *b);

// A channel only names a collective; whether it has one says who takes part.
static bool same_attr(const vt_attr *a, const vt_attr *b) {
  return a->key == VT_ATTR_CHANNEL_ID ? (a->i64 > 0) == (b->i64 > 0) : vt_attr_equal(a, b);
}

bool vt_op_alike(const vt_op *a, const vt_op *b) {
  if (a->code != b->code || a->region_count != b->region_count || a->attr_count != b->attr_count)
    return false;
  for (uint32_t i = 0; i < a->attr_count; i++) {
    const vt_attr *other = vt_op_attr(b, a->attrs[i].key);
    if (!other || !same_attr(&a->attrs[i], other)) return false;
  }
  for (uint32_t i = 0; i < a->region_count; i++)
    if (!same_func(a->regions[i], b->regions[i])) return false;
  return true;
}

// Equal except for the operands.
static bool same_shape_of_op(const vt_op *a, const vt_op *b) {
  if (a->operand_count != b->operand_count || a->capture_count != b->capture_count ||
      a->result_count != b->result_count)
    return false;
  for (uint32_t i = 0; i < a->result_count; i++)
    if (!vt_type_equal(a->results[i].type, b->results[i].type)) return false;
  return vt_op_alike(a, b);
}

static bool same_func(const vt_func *a, const vt_func *b) {
  if (a == b) return true;
  if (a->param_count != b->param_count || a->return_count != b->return_count) return false;
  vt_func_number((vt_func *)(uintptr_t)a);
  vt_func_number((vt_func *)(uintptr_t)b);
  if (a->value_count != b->value_count) return false;
  for (uint32_t i = 0; i < a->param_count; i++)
    if (!vt_type_equal(a->params[i]->type, b->params[i]->type)) return false;
  const vt_op *x = a->first, *y = b->first;
  for (; x && y; x = x->next, y = y->next) {
    if (!same_shape_of_op(x, y)) return false;
    for (uint32_t i = 0; i < x->operand_count; i++)
      if (x->operands[i]->id != y->operands[i]->id) return false;
  }
  if (x || y) return false;
  for (uint32_t i = 0; i < a->return_count; i++)
    if (a->returns[i]->id != b->returns[i]->id) return false;
  return true;
}

static uint64_t hash_op(const vt_op *op) {
  uint64_t h = vt_hash_u64(op->code, op->attr_count);
  for (uint32_t i = 0; i < op->operand_count; i++)
    h = vt_hash_u64((uint64_t)(uintptr_t)op->operands[i], h);
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_type type = op->results[i].type;
    h = vt_hash_u64((uint64_t)type.dtype, h);
    if (type.rank) h = vt_hash_bytes(type.dims, sizeof *type.dims * (size_t)type.rank, h);
  }
  for (uint32_t i = 0; i < op->attr_count; i++) {
    // The order of attributes may differ between equal ops: combine them without order.
    const vt_attr *attr = &op->attrs[i];
    uint64_t one = vt_hash_u64(attr->key, attr->count);
    if (vt_attr_kind_of(attr->key) == VT_ATTR_KIND_I64 && attr->key != VT_ATTR_CHANNEL_ID)
      one = vt_hash_u64((uint64_t)attr->i64, one);
    if (vt_attr_kind_of(attr->key) == VT_ATTR_KIND_INTS && attr->count)
      one = vt_hash_bytes(attr->ints, sizeof *attr->ints * attr->count, one);
    if (attr->key == VT_ATTR_VALUE && attr->literal->splat)
      one = vt_hash_bytes(attr->literal->data, vt_dtype_bytes(attr->literal->type.dtype), one);
    h += one;
  }
  return h;
}

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
    uint64_t hash = hash_op(op);
    seen **bucket = (seen **)vt_map_at(&table, &hash, sizeof hash);
    const seen *found = *bucket;
    for (; found; found = found->next)
      if (found->op->operand_count == op->operand_count &&
          !memcmp(found->op->operands, op->operands, sizeof *op->operands * op->operand_count) &&
          same_shape_of_op(found->op, op))
        break;
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
