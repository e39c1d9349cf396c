// SPDX-License-Identifier: Apache-2.0
// elementwise.c - see elementwise.h.
#include "spmd/elementwise.h"

enum { LONG = 32 };

static bool is_long(const vt_func *func) {
  int32_t count = 0;
  for (const vt_op *op = func->first; op && count < LONG; op = op->next) count++;
  return count == LONG;
}

static bool is_mapped(const vt_op *op) {
  if (vt_op_attr(op, VT_ATTR_SHARDING) || vt_op_attr(op, VT_ATTR_MHLO_SHARDING)) return false;
  if (op->code == VT_OP_CONSTANT) return !op->results[0].type.rank;
  if (op->code == VT_OP_BROADCAST_IN_DIM) return !op->operands[0]->type.rank;
  return vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE;
}

// Arrays that ops tie together are in one set; a set is known by the id at which its links end.
typedef struct sets {
  int32_t *link; // by the ids of values
  int32_t count; // of sets
  vt_type shape; // of all arrays; rank 0: there was none yet
} sets;

static int32_t find(sets *s, int32_t id) {
  while (s->link[id] != id) id = s->link[id] = s->link[s->link[id]];
  return id;
}

static bool add_value(sets *s, const vt_value *value) {
  if (!value->type.rank) return true;
  if (s->shape.rank && !vt_type_same_dims(s->shape, value->type)) return false;
  s->shape = value->type;
  s->link[value->id] = value->id;
  s->count++;
  return true;
}

static void tie(sets *s, const vt_value *a, const vt_value *b) {
  if (!a->type.rank || !b->type.rank) return;
  int32_t from = find(s, a->id), to = find(s, b->id);
  s->link[from] = to;
  s->count -= from != to;
}

static bool maps_elements(const vt_func *func, sets *s) {
  for (uint32_t i = 0; i < func->param_count; i++)
    if (!add_value(s, func->params[i])) return false;
  for (const vt_op *op = func->first; op; op = op->next) {
    if (!is_mapped(op) || !add_value(s, &op->results[0])) return false;
    for (uint32_t i = 0; i < op->operand_count; i++) tie(s, op->operands[i], &op->results[0]);
  }
  for (uint32_t i = 0; i < func->return_count; i++)
    if (func->returns[i]->type.rank != s->shape.rank) return false;
  return func->return_count && s->count == 1;
}

bool vt_spmd_is_elementwise(vt_func *func) {
  if (!is_long(func)) return false;
  vt_arena scratch = {0};
  vt_func_number(func);
  sets s = {.link = VT_NEW_ARRAY(&scratch, int32_t, func->value_count)};
  bool found = maps_elements(func, &s);
  vt_arena_free(&scratch);
  return found;
}

void vt_spmd_merge_equal(vt_func *func) {
  typedef struct seen {
    uint64_t hash;
    vt_op *op;
  } seen;
  vt_arena scratch = {.brief = true};
  size_t count = 2 * LONG;
  while (count < 2 * (size_t)func->value_room) count *= 2;
  seen *table = VT_NEW_ARRAY(&scratch, seen, count); // at most half full
  for (vt_op *op = func->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->operand_count; i++)
      if (op->operands[i]->replaced_by) op->operands[i] = op->operands[i]->replaced_by;
    uint64_t hash = vt_op_hash(op, op->operands);
    size_t at = hash & (count - 1);
    while (table[at].op && table[at].hash != hash) at = (at + 1) & (count - 1);
    if (!table[at].op) {
      table[at] = (seen){hash, op};
    } else if (vt_op_equal(table[at].op, op, op->operands)) {
      op->results[0].replaced_by = &table[at].op->results[0];
      vt_op_remove(op);
    }
  }
  for (uint32_t i = 0; i < func->return_count; i++)
    if (func->returns[i]->replaced_by) func->returns[i] = func->returns[i]->replaced_by;
  vt_arena_free(&scratch);
}

void vt_spmd_elementwise_on(vt_func *func, vt_type like) {
  for (uint32_t i = 0; i < func->param_count; i++)
    if (func->params[i]->type.rank) func->params[i]->type.dims = like.dims;
  for (vt_op *op = func->first; op; op = op->next)
    if (op->results[0].type.rank) op->results[0].type.dims = like.dims;
}
