// SPDX-License-Identifier: Apache-2.0
// materialize.c - writes into the module what propagation assumed about it.
//
// Uses of a constant that are sharded alike share one copy. The first copy is the constant itself;
// copies in a region are computed there, from constants alone.
#include "spmd/propagate/propagate.h"

#include <string.h>

#include "base/text.h"

typedef struct maker {
  vt_record *record;
  vt_module *module;
  vt_map copies;  // function, op and sharding -> vt_value
  bool *claimed;  // by the id of an op's result: the op is a copy itself
  vt_map anchors; // function -> op before which it gets its copies, or the maker: at the end
  vt_text key;    // of `copies`, under construction
  vt_arena scratch;
  vt_numbers changed;
} maker;

// A value that has no id yet gets the next.
static void note_node(maker *m, vt_value *value, uint32_t graph_value) {
  vt_record *record = m->record;
  if (value->id < 0) {
    value->id = (int32_t)record->nodes.size;
    value->func->numbered = false;
    vt_array_push(&record->nodes, 0);
  }
  record->nodes.data[value->id] = record->graph.values.data[graph_value].node + 1;
}

static void add_use(maker *m, const vt_value *value) {
  if ((size_t)value->id < m->record->uses.size) m->record->uses.data[value->id]++;
}

static void drop_use(maker *m, const vt_value *value) {
  bool known = (size_t)value->id < m->record->uses.size;
  if (known && !--m->record->uses.data[value->id] && value->op && vt_spmd_copies_op(value->op))
    vt_array_push_in(m->record->graph.arena, &m->record->unused, value->op);
}

static void replace_use(maker *m, vt_value **where, vt_value *value) {
  add_use(m, value);
  drop_use(m, *where);
  *where = value;
}

// ---- loops and constraints ----------------------------------------------------------------------

static vt_value *resolve(vt_value *value) {
  while (value->replaced_by) value = value->replaced_by;
  return value;
}

static void bypass_loops(vt_func *func) {
  for (vt_op *op = func->first; op; op = op->next) {
    bool control = vt_op_info_get(op->code)->class == VT_CLASS_CONTROL;
    for (uint32_t i = 0; i < op->operand_count; i++) op->operands[i] = resolve(op->operands[i]);
    for (uint32_t r = 0; control && r < op->region_count; r++) bypass_loops(op->regions[r]);
    if (op->code != VT_OP_WHILE) continue;
    const vt_func *body = op->regions[1];
    for (uint32_t i = 0; i < op->result_count; i++)
      if (body->returns[i] == body->params[i]) op->results[i].replaced_by = op->operands[i];
  }
  for (uint32_t i = 0; i < func->return_count; i++) func->returns[i] = resolve(func->returns[i]);
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; op->code == VT_OP_WHILE && i < op->result_count; i++)
      op->results[i].replaced_by = NULL;
}

static void insert_after(vt_value *value, vt_op *op) {
  vt_op *next = value->op ? value->op->next : value->func->first;
  if (next)
    vt_op_insert(next, op);
  else
    vt_op_append(value->func, op);
}

// A constraint of `value`; annotate gives it its sharding.
static vt_op *new_constraint(maker *m, vt_value *value, uint32_t graph_value) {
  vt_op *op =
      vt_op_create(value->func, VT_OP_SHARDING_CONSTRAINT,
                   value->op ? value->op->loc : &vt_loc_unknown, 1, &value, 1, &value->type, 0);
  m->record->graph.values.data[graph_value].home = &op->results[0];
  note_node(m, &op->results[0], graph_value);
  return op;
}

// A constraint in a region moves out to the value that the region captures: within, that is its
// result.
static void move_out(maker *m, const vt_rewrite *r) {
  vt_value *within = r->op->operands[0];
  vt_op *made = new_constraint(m, *r->where, r->value);
  insert_after(made->operands[0], made);
  vt_value_replace(&r->op->results[0], within);
  vt_op_remove(r->op);
  note_node(m, within, r->value);
  *r->where = &made->results[0];
}

static void rewrite(maker *m, const vt_rewrite *r) {
  vt_op *made;
  switch (r->kind) {
  case VT_REWRITE_USE:
    replace_use(m, r->where, m->record->graph.values.data[r->value].home);
    break;
  case VT_REWRITE_CONSTRAIN:
    made = new_constraint(m, *r->where, r->value);
    vt_op_insert(r->op, made);
    *r->where = &made->results[0];
    break;
  case VT_REWRITE_MOVE:
    if (r->where && r->where != r->op->operands) {
      move_out(m, r);
      break;
    }
    vt_op_remove(r->op);
    insert_after(r->op->operands[0], r->op);
    break;
  case VT_REWRITE_INSERT:
    made = new_constraint(m, *r->where, r->value);
    insert_after(made->operands[0], made);
    break;
  }
}

// ---- constants ----------------------------------------------------------------------------------

static void put_key(vt_text *key, const void *bytes, size_t size) {
  vt_text_put_n(key, bytes, size);
}

static void make_key(vt_text *key, vt_func *func, const vt_op *op, const vt_node *node) {
  put_key(key, &func, sizeof(vt_func *));
  put_key(key, &op, sizeof(vt_op *));
  put_key(key, (const char *)&node->mesh, sizeof(vt_mesh *));
  for (int32_t d = 0; node->mesh && d < node->type.rank; d++) {
    put_key(key, &node->dims[d].count, sizeof node->dims[d].count);
    if (node->dims[d].count)
      put_key(key, node->dims[d].refs, sizeof *node->dims[d].refs * node->dims[d].count);
  }
}

// The op itself, or a copy of it in `func`.
static vt_op *claim(maker *m, vt_op *op, vt_func *func, vt_value *const *operands) {
  bool *claimed = &m->claimed[op->results[0].id];
  if (op->func == func && !*claimed) {
    *claimed = true;
    for (uint32_t i = 0; i < op->operand_count; i++) replace_use(m, &op->operands[i], operands[i]);
    return op;
  }
  vt_op *copy = vt_op_create(func, op->code, op->loc, op->operand_count, operands, 1,
                             &op->results[0].type, 0);
  for (uint32_t i = 0; i < op->attr_count; i++) vt_op_set_attr(copy, op->attrs[i]);
  for (uint32_t i = 0; i < op->operand_count; i++) add_use(m, operands[i]);
  void **anchor = vt_map_at_ptr(&m->anchors, func);
  if (!*anchor) *anchor = func->first ? (void *)func->first : m; // m: it had no ops
  vt_op *before = op->func == func ? op->next : *anchor == m ? NULL : *anchor;
  if (before)
    vt_op_insert(before, copy);
  else
    vt_op_append(func, copy);
  return copy;
}

// The step that makes a copy, of copies that are cut as it asks for.
static vt_step step_of_copy(maker *m, uint32_t value, uint32_t source) {
  vt_graph *graph = &m->record->graph;
  vt_step step = graph->steps.data[graph->values.data[source].step];
  uint32_t *operands = VT_NEW_ARRAY(graph->arena, uint32_t, step.operand_count + 1);
  uint8_t directions[256];
  for (uint32_t i = 0; i < step.operand_count; i++) {
    uint32_t from = step.operands[i];
    operands[i] = vt_graph_is_copied(graph, from) ? vt_graph_add_copy(graph, from) : from;
  }
  operands[step.operand_count] = value;
  step.operands = operands;
  step.results = operands + step.operand_count;
  memset(directions, VT_TOWARDS_OPERANDS, sizeof directions);
  vt_arena_reset(&m->scratch);
  m->changed.size = 0;
  if (step.rule)
    (void)vt_step_apply(graph, &step, directions, VT_ALL_TENSORS, &m->scratch, &m->changed);
  return step;
}

static vt_value *copy_in(maker *m, uint32_t value, vt_func *func) {
  const vt_graph *graph = &m->record->graph;
  const vt_graph_value *v = &graph->values.data[value];
  uint32_t source = v->copy_of == VT_NONE ? value : v->copy_of;
  if (v->home && (v->home->func == func || v->step == VT_NONE || !v->constant)) return v->home;
  const vt_op *op = graph->steps.data[graph->values.data[source].step].op;
  m->key.size = 0;
  make_key(&m->key, func, op, &graph->nodes.data[v->node]);
  vt_string key = {vt_text_string(&m->key), m->key.size};
  vt_value *known = vt_map_find(&m->copies, key.data, key.size);
  if (known) return known;
  key.data = vt_arena_copy(graph->arena, key.data, key.size);
  vt_step step = step_of_copy(m, value, source);
  vt_value **operands = VT_NEW_ARRAY(graph->arena, vt_value *, step.operand_count + 1);
  for (uint32_t i = 0; i < step.operand_count; i++) {
    operands[i] = copy_in(m, step.operands[i], func);
    // A captured value is read as the op reads it: from the region's parameter.
    if (operands[i]->func != func && op->func == func) operands[i] = op->operands[i];
  }
  vt_op *made = claim(m, (vt_op *)(uintptr_t)op, func, operands);
  note_node(m, &made->results[0], value);
  *vt_map_at(&m->copies, key.data, key.size) = &made->results[0];
  return &made->results[0];
}

static void count_uses(maker *m, const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->operand_count; i++) add_use(m, op->operands[i]);
    for (uint32_t r = 0; r < op->region_count; r++) count_uses(m, op->regions[r]);
  }
  for (uint32_t i = 0; i < func->return_count; i++) add_use(m, func->returns[i]);
}

// What loops do not change is used elsewhere now.
static void count_again(maker *m) {
  vt_numbers *uses = &m->record->uses;
  memset(uses->data, 0, uses->size * sizeof *uses->data);
  count_uses(m, m->module->main);
}

// Constants that only had copies, and what they were made of.
static void drop_unused(maker *m) {
  vt_record *record = m->record;
  while (record->unused.size) {
    vt_op *op = record->unused.data[--record->unused.size];
    uint32_t *uses = &record->uses.data[op->results[0].id];
    if (*uses) continue; // it has got others, or is gone
    for (uint32_t i = 0; i < op->operand_count; i++) drop_use(m, op->operands[i]);
    vt_op_remove(op);
    *uses = 1;
  }
}

void vt_record_materialize(vt_record *record, vt_module *module) {
  maker m = {.record = record, .module = module};
  m.claimed = VT_NEW_ARRAY(record->graph.arena, bool, record->nodes.size + 1);
  if (record->loops) {
    bypass_loops(module->main);
    count_again(&m);
  }
  for (size_t i = 0; i < record->graph.rewrites.size; i++)
    rewrite(&m, &record->graph.rewrites.data[i]);
  for (size_t i = 0; i < record->copies.size; i++) {
    const vt_copy_use *use = &record->copies.data[i];
    replace_use(&m, use->where, copy_in(&m, use->value, use->func));
  }
  drop_unused(&m);
  vt_map_free(&m.copies);
  vt_map_free(&m.anchors);
  vt_text_free(&m.key);
  vt_array_free(&m.changed);
  vt_arena_free(&m.scratch);
}
