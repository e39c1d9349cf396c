// SPDX-License-Identifier: Apache-2.0
// propagate.c - turns a module into the values and steps of a graph.
//
// Calls are entered once per call site, so that a function used twice may be sharded in two ways.
// Each carried value of a loop is one node; one that the loop does not change is no carried value:
// its users take it from outside, through an open constraint if the program states a sharding.
// Constants and what is computed from them alone, and scalars that are broadcast, have a copy for
// each use, unless there is only one, so that uses are independent. A number that is spread over an
// array for one elementwise op alone is not in the graph: it is cut as what the op makes is. What
// nothing uses does not propagate. Values and calls beyond a limit are left out, because call trees
// can be exponential.
#include "spmd/propagate/propagate.h"

#include <string.h>

#include "spmd/elementwise.h"
#include "spmd/propagate/graph.h"

enum { MAX_DEPTH = 200, MAX_STEPS = 1 << 22, MAX_NODES = 1 << 21, FEW_OPERANDS = 8 };
// Places of a position: of a step, and of a constraint that moves behind it.
enum { PLACES = 2 };

// A number spread over an array, which is no value of the graph unless its use needs one.
typedef struct spread {
  uint32_t block;
  uint64_t place;
} spread;

// What a value of the module is in one walk of its function.
typedef struct named {
  uint32_t value; // VT_NONE = `spread`
  union {
    vt_value **slot; // a captured value: where the op with the region names it
    const spread *spread;
  };
} named;

typedef struct walker {
  vt_graph *graph;
  named *names;    // by the ids of values, unique in the module: in the last walk of their function
  vt_map groups;   // sharding_group id -> number + 1
  bool grouped;    // there are sharding groups
  vt_numbers uses; // by the ids of values: operands and returns that name them
  uint32_t group_count, block_count;
  uint64_t position;
  int depth, steps, manual;
  vt_looks *looks;   // NULL = not recorded
  vt_record *record; // NULL = not recorded
} walker;

typedef struct scope {
  uint32_t block;
  vt_map grouped; // vt_value -> number of its sharding group + 1
} scope;

static void walk_func(walker *w, vt_func *func, const named *params, uint32_t block,
                      named *returns);
static void add_op(walker *w, scope *s, vt_op *op, uint64_t place);

static void note_node(walker *w, const vt_value *value, uint32_t node) {
  if (w->record) w->record->nodes.data[value->id] = node + 1;
}

static void note_slot(walker *w, vt_value *const *slot, uint32_t node) {
  if (w->record) *vt_map_at_ptr(&w->record->slots, slot) = (void *)((uintptr_t)node + 1);
}

static void set_name(walker *w, const vt_value *value, named name) {
  w->names[value->id] = name;
}

// Value 0 after the walk was cut short.
static named name_of(walker *w, const vt_value *value) {
  named name = w->names[value->id];
  if (name.value != VT_NONE) return name;
  scope s = {.block = name.spread->block};
  add_op(w, &s, value->op, name.spread->place);
  return w->names[value->id];
}

static bool is_spread(const walker *w, const vt_value *value) {
  return w->names[value->id].value == VT_NONE;
}

static bool is_constant(const walker *w, const vt_value *value) {
  return is_spread(w, value) || w->graph->values.data[w->names[value->id].value].constant;
}

static uint64_t next_place(walker *w) {
  return ++w->position * PLACES;
}

static const vt_sharding *op_sharding(const vt_op *op, vt_attr_key key, uint32_t i) {
  const vt_attr *attr = vt_op_attr(op, key);
  return attr && i < attr->count ? attr->shardings[i] : NULL;
}

// A value on a node of its own.
static uint32_t new_value(walker *w, scope *s, vt_value *home) {
  uint32_t node = vt_graph_add_node(w->graph, home->type);
  uint32_t value = vt_graph_add_value(w->graph, node, s->block, home);
  w->graph->nodes.data[node].group = (uint32_t)(uintptr_t)vt_map_find_ptr(&s->grouped, home);
  note_node(w, home, node);
  return value;
}

static void unite_groups(walker *w, uint32_t a, uint32_t b) {
  for (size_t i = 0; i < w->graph->nodes.size && a != b; i++)
    if (w->graph->nodes.data[i].group == b) w->graph->nodes.data[i].group = a;
}

// ---- constants ----------------------------------------------------------------------------------

bool vt_spmd_copies_op(const vt_op *op) {
  return op->code == VT_OP_CONSTANT || op->code == VT_OP_IOTA ||
         op->code == VT_OP_BROADCAST_IN_DIM || op->code == VT_OP_RESHAPE ||
         op->code == VT_OP_SLICE || vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE;
}

bool vt_graph_is_copied(const vt_graph *graph, uint32_t value) {
  const vt_graph_value *v = &graph->values.data[value];
  return (v->constant || v->expansion) && v->step != VT_NONE &&
         graph->nodes.data[v->node].type.rank;
}

static bool is_copied(const walker *w, uint32_t value) {
  return vt_graph_is_copied(w->graph, value);
}

// Whether `use` is the only use of a value that is copied for each, and what it is computed from is
// used by it alone. Other names of a value, such as in a region, count as other values.
static bool is_only_use(const walker *w, uint32_t value, const vt_value *use) {
  const vt_graph_value *v = &w->graph->values.data[value];
  if (v->home != use || w->uses.data[use->id] != 1) return false;
  const vt_step *step = &w->graph->steps.data[v->step];
  for (uint32_t i = 0; i < step->operand_count; i++) {
    const vt_value *operand = step->op->operands[i];
    if (w->graph->values.data[step->operands[i]].home != operand) return false;
    if (is_copied(w, step->operands[i]) && !is_only_use(w, step->operands[i], operand))
      return false;
  }
  return true;
}

// The value that a use gets: constants' own copy.
static uint32_t value_for_use(walker *w, named name, vt_value **where, vt_func *func) {
  if (!is_copied(w, name.value) || is_only_use(w, name.value, *where)) return name.value;
  uint32_t copy = vt_graph_add_copy(w->graph, name.value);
  // The scalar that it is made of is used.
  w->graph->values.data[name.value].use_count += !w->graph->values.data[name.value].constant;
  if (w->record) {
    vt_copy_use use = {where, func, copy};
    vt_array_push_in(w->graph->arena, &w->record->copies, use);
  }
  return copy;
}

// ---- steps --------------------------------------------------------------------------------------

static uint32_t *numbers(walker *w, size_t count) {
  return VT_NEW_ARRAY(w->graph->arena, uint32_t, count ? count : 1);
}

// An edge from `count` sources to a value that exists.
static void add_edge(walker *w, const vt_op *op, uint32_t block, uint32_t count,
                     const uint32_t *sources, vt_value **const *where, uint32_t target,
                     uint64_t place) {
  vt_step step = {.kind = VT_STEP_EDGE,
                  .allowed = VT_TOWARDS_BOTH,
                  .op = op,
                  .place = place,
                  .block = block,
                  .operand_count = count,
                  .result_count = 1,
                  .operands = numbers(w, count),
                  .results = numbers(w, 1)};
  memcpy(step.operands, sources, count * sizeof *sources);
  step.results[0] = target;
  vt_node *node = vt_node_of(w->graph, target);
  node->is_edge = true;
  if (node->type.rank) step.rule = vt_rule_of_equals(w->graph, count + 1, node->type);
  vt_graph_add_step(w->graph, &step, where);
}

// Whether an operand is cut as the op's results are, and left out.
static bool follows(const walker *w, const vt_op *op, uint32_t operand) {
  const vt_value *value = op->operands[operand];
  bool elementwise = vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE || op->code == VT_OP_CALL;
  return elementwise && is_spread(w, value) && operand < VT_MAX_LEFT_OUT &&
         vt_type_same_dims(value->type, op->results[0].type);
}

// The values of an op's own operands, and the slots to rewrite if they are replaced.
static void use_operands(walker *w, vt_op *op, vt_step *step, vt_value ***where) {
  uint32_t own = step->operand_count, count = 0;
  for (uint32_t i = 0; i < own; i++) {
    if (step->elementwise && follows(w, op, i)) {
      note_node(w, op->operands[i], w->graph->values.data[step->results[0]].node);
      step->left_out |= (uint8_t)(1u << i);
      continue;
    }
    named name = name_of(w, op->operands[i]);
    where[count] = name.slot ? name.slot : &op->operands[i];
    step->operands[count++] = value_for_use(w, name, &op->operands[i], op->func);
  }
  step->operand_count = count;
}

// Of constants alone there are copies of its operations. A record has no names for those: what
// vt_spmd_inline has left is one op, also where it took less for constant than is found here.
static bool is_elementwise_call(const walker *w, const vt_op *op) {
  if (!vt_op_is_elementwise_call(op)) return false;
  if (w->record) return true;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!is_constant(w, op->operands[i])) return true;
  return false;
}

static bool is_elementwise(const walker *w, const vt_op *op) {
  if (op->code == VT_OP_BITCAST_CONVERT)
    return vt_type_same_dims(op->operands[0]->type, op->results[0].type);
  return vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE ||
         op->code == VT_OP_SHARDING_CONSTRAINT || op->code == VT_OP_RESHARD ||
         op->code == VT_OP_PROPAGATION_BARRIER || is_elementwise_call(w, op);
}

static bool looks_at(const vt_op *op) {
  static const char target[] = "InspectSharding";
  vt_string name = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME);
  return op->code == VT_OP_CUSTOM_CALL && vt_op_own_operands(op) == 1 &&
         name.size == sizeof target - 1 && !memcmp(name.data, target, name.size);
}

// Sets the flags of an op's result for its users.
static void classify(walker *w, const vt_op *op, uint32_t result) {
  bool stated = vt_op_attr(op, VT_ATTR_SHARDING);
  bool constant = vt_spmd_copies_op(op) && op->operand_count;
  for (uint32_t i = 0; constant && i < op->operand_count; i++)
    constant = is_constant(w, op->operands[i]);
  vt_graph_value *v = &w->graph->values.data[result];
  constant = constant || op->code == VT_OP_CONSTANT || op->code == VT_OP_IOTA;
  v->constant = constant && !stated;
  v->expansion = !stated && op->code == VT_OP_BROADCAST_IN_DIM && !op->operands[0]->type.rank;
}

static void add_op(walker *w, scope *s, vt_op *op, uint64_t place) {
  uint32_t own = vt_op_own_operands(op);
  vt_step step = {.kind = op->code == VT_OP_SHARDING_CONSTRAINT ? VT_STEP_CONSTRAINT : VT_STEP_OP,
                  .allowed = VT_TOWARDS_BOTH,
                  .elementwise = is_elementwise(w, op),
                  .op = op,
                  .block = s->block,
                  .place = place,
                  .operand_count = own,
                  .result_count = op->result_count,
                  .operands = numbers(w, own + op->result_count)};
  step.results = step.operands + own;
  vt_value **few[FEW_OPERANDS], ***where = few;
  if (own > FEW_OPERANDS) where = VT_NEW_ARRAY(w->graph->arena, vt_value **, own);
  bool constant = false;
  for (uint32_t i = 0; i < op->result_count; i++) {
    step.results[i] = new_value(w, s, &op->results[i]);
    classify(w, op, step.results[i]);
    constant = constant || w->graph->values.data[step.results[i]].constant;
    vt_graph_seed(w->graph, w->graph->values.data[step.results[i]].node,
                  op_sharding(op, VT_ATTR_SHARDING, i));
    set_name(w, &op->results[i], (named){.value = step.results[i]});
  }
  for (uint32_t i = 0; constant && i < own; i++)
    step.operands[i] = name_of(w, op->operands[i]).value;
  if (!constant) use_operands(w, op, &step, where);
  bool ruled = op->code != VT_OP_CALL || step.elementwise;
  step.rule = ruled ? vt_rule_of_op(w->graph, op, step.left_out) : NULL;
  step.sharding = op_sharding(op, VT_ATTR_SHARDING, 0);
  if (op->code == VT_OP_PROPAGATION_BARRIER) {
    step.allowed = (uint8_t)vt_attr_i64(op, VT_ATTR_ALLOWED_DIRECTION);
    step.any_round = true;
  }
  vt_graph_add_step(w->graph, &step, constant ? NULL : where);
  if (w->looks && looks_at(op)) {
    vt_look look = {
        .op = op, .node = w->graph->values.data[step.operands[0]].node, .manual = w->manual > 0};
    vt_array_push(w->looks, look);
  }
}

// The one use of a number that is spread over an array will say whether it is a value of its own.
static bool waits_for_use(const walker *w, const vt_op *op) {
  const vt_value *number = op->operand_count ? op->operands[0] : NULL;
  return op->code == VT_OP_BROADCAST_IN_DIM && !number->type.rank && is_constant(w, number) &&
         w->uses.data[op->results[0].id] == 1 && !w->grouped && !vt_op_attr(op, VT_ATTR_SHARDING);
}

static void walk_plain(walker *w, scope *s, vt_op *op) {
  uint64_t place = next_place(w);
  if (vt_spmd_copies_op(op) && !w->uses.data[op->results[0].id]) {
    if (w->record) vt_array_push_in(w->graph->arena, &w->record->unused, op);
    return;
  }
  if (!waits_for_use(w, op)) {
    add_op(w, s, op, place);
    return;
  }
  spread *number = VT_NEW(w->graph->arena, spread);
  *number = (spread){s->block, place};
  set_name(w, &op->results[0], (named){VT_NONE, {.spread = number}});
}

// ---- control flow -------------------------------------------------------------------------------

// A value that regions of an op see through its operand. Copies of a constant are computed in them;
// what a scalar is expanded to has its copy outside, where the scalar is.
static named seen_within(walker *w, vt_op *op, uint32_t operand) {
  vt_value **slot = &op->operands[operand];
  named name = name_of(w, *slot);
  if (is_copied(w, name.value) && !w->graph->values.data[name.value].constant)
    name.value = value_for_use(w, name, slot, op->func);
  if (!name.slot) name.slot = slot;
  return name;
}

// The captured operands of an op as parameters of its regions.
static void capture(walker *w, vt_op *op, named *params) {
  uint32_t own = vt_op_own_operands(op);
  for (uint32_t i = 0; i < op->capture_count; i++) params[i] = seen_within(w, op, own + i);
}

// Opens the sharding of a value that a loop reads: within the loop it may be cut further.
static named open_for_loop(walker *w, scope *s, vt_op *op, vt_value **slot, named name) {
  const vt_node *node = vt_node_of(w->graph, name.value);
  vt_type type = node->type;
  bool stated = node->mesh && node->mesh->axis_count && type.rank, open = !node->closed;
  for (int32_t d = 0; d < type.rank && open; d++) open = !node->dims[d].count;
  if (!stated || open || is_copied(w, name.value)) return name;
  const vt_mesh *mesh = node->mesh;
  uint32_t made = vt_graph_add_node(w->graph, type);
  uint32_t value = vt_graph_add_value(w->graph, made, s->block, NULL);
  w->graph->nodes.data[made].mesh = mesh;
  vt_step step = {.kind = VT_STEP_CONSTRAINT,
                  .allowed = VT_TOWARDS_BOTH,
                  .elementwise = true,
                  .place = next_place(w),
                  .block = s->block,
                  .operand_count = 1,
                  .result_count = 1,
                  .operands = numbers(w, 1),
                  .results = numbers(w, 1),
                  .rule = vt_rule_of_equals(w->graph, 2, type)};
  step.operands[0] = name.value;
  step.results[0] = value;
  vt_graph_add_step(w->graph, &step, (vt_value * *const[]){name.slot ? name.slot : slot});
  vt_rewrite rewrite = {VT_REWRITE_CONSTRAIN, slot, value, op};
  vt_array_push_in(w->graph->arena, &w->graph->rewrites, rewrite);
  return (named){.value = value, .slot = slot};
}

// Carried values: operands, loop parameters, the body's results. The condition only reads.
static void walk_while(walker *w, scope *s, vt_op *op) {
  vt_func *cond = op->regions[0], *body = op->regions[1];
  uint32_t own = vt_op_own_operands(op), count = op->operand_count;
  named *in_cond = VT_NEW_ARRAY(w->graph->arena, named, count + 1);
  named *in_body = VT_NEW_ARRAY(w->graph->arena, named, count + 1);
  named *returns = VT_NEW_ARRAY(w->graph->arena, named, own + 1);
  named *results = VT_NEW_ARRAY(w->graph->arena, named, own + 1);
  if (w->record) w->record->loops = true;
  (void)next_place(w);
  for (uint32_t i = 0; i < own; i++) {
    named outer = name_of(w, op->operands[i]);
    if (body->returns[i] == body->params[i]) { // not changed
      named within = seen_within(w, op, i);
      in_cond[i] = in_body[i] = open_for_loop(w, s, op, &op->operands[i], within);
      results[i] = outer;
      note_node(w, &op->results[i], w->graph->values.data[in_body[i].value].node);
      set_name(w, &op->results[i], outer);
      continue;
    }
    uint32_t result = new_value(w, s, &op->results[i]), node = w->graph->values.data[result].node;
    vt_graph_seed(w->graph, node, op_sharding(op, VT_ATTR_SHARDING, i));
    results[i] = (named){.value = result};
    in_cond[i] =
        (named){.value = vt_graph_add_value(w->graph, node, w->block_count + 1, cond->params[i])};
    in_body[i] =
        (named){.value = vt_graph_add_value(w->graph, node, w->block_count + 2, body->params[i])};
    set_name(w, &op->results[i], results[i]);
  }
  capture(w, op, in_body + own);
  for (uint32_t i = own; i < count; i++)
    in_body[i] = open_for_loop(w, s, op, &op->operands[i], in_body[i]);
  memcpy(in_cond + own, in_body + own, sizeof *in_cond * op->capture_count);
  uint32_t first_block = w->block_count;
  w->block_count += 2;
  walk_func(w, cond, in_cond, first_block + 1, VT_NEW_ARRAY(w->graph->arena, named, 1));
  walk_func(w, body, in_body, first_block + 2, returns);
  for (uint32_t i = 0; i < own && !w->graph->too_large; i++) {
    if (body->returns[i] == body->params[i]) continue;
    named start = name_of(w, op->operands[i]);
    vt_value **where[2] = {start.slot ? start.slot : &op->operands[i],
                           returns[i].slot ? returns[i].slot : &body->returns[i]};
    uint32_t sources[2] = {value_for_use(w, start, &op->operands[i], op->func),
                           value_for_use(w, returns[i], &body->returns[i], body)};
    add_edge(w, op, s->block, 2, sources, where, results[i].value, next_place(w));
  }
}

static void walk_branches(walker *w, scope *s, vt_op *op) {
  vt_arena *arena = w->graph->arena;
  named *params = VT_NEW_ARRAY(arena, named, op->capture_count + 1);
  named **returns = VT_NEW_ARRAY(arena, named *, op->region_count);
  uint32_t *sources = numbers(w, op->region_count);
  vt_value ***where = VT_NEW_ARRAY(arena, vt_value **, op->region_count);
  (void)next_place(w);
  capture(w, op, params);
  for (uint32_t r = 0; r < op->region_count; r++) {
    returns[r] = VT_NEW_ARRAY(arena, named, op->result_count + 1);
    walk_func(w, op->regions[r], params, ++w->block_count, returns[r]);
  }
  for (uint32_t i = 0; i < op->result_count && !w->graph->too_large; i++) {
    uint32_t result = new_value(w, s, &op->results[i]);
    vt_graph_seed(w->graph, w->graph->values.data[result].node,
                  op_sharding(op, VT_ATTR_SHARDING, i));
    for (uint32_t r = 0; r < op->region_count; r++) {
      where[r] = returns[r][i].slot ? returns[r][i].slot : &op->regions[r]->returns[i];
      sources[r] = value_for_use(w, returns[r][i], &op->regions[r]->returns[i], op->regions[r]);
    }
    add_edge(w, op, s->block, op->region_count, sources, where, result, next_place(w));
    set_name(w, &op->results[i], (named){.value = result});
  }
}

static void walk_barrier(walker *w, scope *s, vt_op *op) {
  (void)next_place(w);
  for (uint32_t i = 0; i < op->result_count; i++) {
    uint32_t source, result = new_value(w, s, &op->results[i]);
    named name = name_of(w, op->operands[i]);
    vt_value **where = name.slot ? name.slot : &op->operands[i];
    vt_graph_seed(w->graph, w->graph->values.data[result].node,
                  op_sharding(op, VT_ATTR_SHARDING, i));
    source = value_for_use(w, name, &op->operands[i], op->func);
    add_edge(w, op, s->block, 1, &source, &where, result, next_place(w));
    set_name(w, &op->results[i], (named){.value = result});
  }
}

// ---- manual computations ------------------------------------------------------------------------

static bool is_manual(const vt_op *op, const vt_mesh *mesh, vt_axis_ref axis) {
  const vt_attr *names = vt_op_attr(op, VT_ATTR_MANUAL_AXES);
  for (uint32_t i = 0; i < names->count; i++)
    if (!strcmp(names->strings[i].data, mesh->axes[axis.axis].name)) return true;
  return false;
}

// Splits a sharding at the border of a manual computation: its manual axes come first in each
// dimension. The inner sharding has the others, and may not use the manual ones.
static const vt_sharding *split_manual(walker *w, const vt_op *op, const vt_sharding *s,
                                       vt_axes **out_manual) {
  vt_arena *arena = w->graph->arena;
  vt_sharding *inner = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, s->rank);
  uint32_t count = s->replicated_count;
  vt_axis_ref *replicated = VT_NEW_ARRAY(arena, vt_axis_ref, count + s->mesh->axis_count);
  *out_manual = VT_NEW_ARRAY(arena, vt_axes, s->rank);
  if (count) memcpy(replicated, s->replicated, sizeof *replicated * count);
  for (uint32_t a = 0; a < s->mesh->axis_count; a++) {
    vt_axis_ref axis = {a, 1, s->mesh->axes[a].size};
    if (is_manual(op, s->mesh, axis)) replicated[count++] = axis;
  }
  for (int32_t d = 0; d < s->rank; d++) {
    uint32_t outer = 0;
    dims[d] = s->dims[d];
    while (outer < dims[d].axis_count && is_manual(op, s->mesh, dims[d].axes[outer])) outer++;
    (*out_manual)[d] = vt_graph_axes(w->graph, s->mesh, outer, dims[d].axes);
    if (outer) dims[d].axes += outer; // no axes: NULL
    dims[d].axis_count -= outer;
  }
  *inner = *s;
  inner->dims = dims;
  inner->replicated = replicated;
  inner->replicated_count = count;
  return inner;
}

static void mark_manual(walker *w, const vt_axes *manual, bool inward) {
  vt_step *edge = &w->graph->steps.data[w->graph->steps.size - 1];
  edge->manual = manual;
  edge->inward = inward;
}

// Operands pass through an edge to the body's parameters, its returns to the results.
static void walk_manual(walker *w, scope *s, vt_op *op) {
  vt_func *body = op->regions[0];
  uint32_t own = vt_op_own_operands(op), block = ++w->block_count;
  named *params = VT_NEW_ARRAY(w->graph->arena, named, op->operand_count + 1);
  named *returns = VT_NEW_ARRAY(w->graph->arena, named, op->result_count + 1);
  scope inside = {.block = block};
  (void)next_place(w);
  for (uint32_t i = 0; i < own; i++) {
    const vt_sharding *stated = op_sharding(op, VT_ATTR_IN_SHARDINGS, i);
    named name = name_of(w, op->operands[i]);
    vt_value **where = name.slot ? name.slot : &op->operands[i];
    vt_axes *manual = NULL;
    params[i] = (named){.value = new_value(w, &inside, body->params[i])};
    uint32_t node = w->graph->values.data[params[i].value].node;
    bool cut = stated && stated->rank == body->params[i]->type.rank;
    if (cut) vt_graph_seed(w->graph, node, split_manual(w, op, stated, &manual));
    uint32_t source = value_for_use(w, name, &op->operands[i], op->func);
    add_edge(w, op, s->block, 1, &source, &where, params[i].value, next_place(w));
    mark_manual(w, manual, true);
    w->graph->steps.data[w->graph->steps.size - 1].sharding = stated;
    note_slot(w, &op->operands[i], node);
  }
  capture(w, op, params + own);
  w->manual++;
  walk_func(w, body, params, block, returns);
  w->manual--;
  for (uint32_t i = 0; i < op->result_count && !w->graph->too_large; i++) {
    const vt_sharding *stated = op_sharding(op, VT_ATTR_OUT_SHARDINGS, i);
    uint32_t result = new_value(w, s, &op->results[i]);
    vt_value **where = returns[i].slot ? returns[i].slot : &body->returns[i];
    vt_axes *manual = NULL;
    vt_graph_seed(w->graph, w->graph->values.data[result].node, stated);
    if (stated && stated->rank == op->results[i].type.rank)
      (void)split_manual(w, op, stated, &manual);
    uint32_t source = value_for_use(w, returns[i], &body->returns[i], body);
    add_edge(w, op, s->block, 1, &source, &where, result, next_place(w));
    mark_manual(w, manual, false);
    set_name(w, &op->results[i], (named){.value = result});
  }
}

// ---- functions ----------------------------------------------------------------------------------

static void walk_call(walker *w, scope *s, vt_op *op) {
  named *args = VT_NEW_ARRAY(w->graph->arena, named, op->operand_count + 1);
  named *returns = VT_NEW_ARRAY(w->graph->arena, named, op->result_count + 1);
  for (uint32_t i = 0; i < op->operand_count; i++) args[i] = name_of(w, op->operands[i]);
  walk_func(w, vt_op_callee(op), args, s->block, returns);
  for (uint32_t i = 0; i < op->result_count; i++) set_name(w, &op->results[i], returns[i]);
}

static void walk_op(walker *w, scope *s, vt_op *op) {
  bool enter = w->depth < MAX_DEPTH;
  if (vt_op_callee(op) && enter && !is_elementwise_call(w, op))
    walk_call(w, s, op);
  else if (op->code == VT_OP_WHILE && enter)
    walk_while(w, s, op);
  else if ((op->code == VT_OP_IF || op->code == VT_OP_CASE) && enter)
    walk_branches(w, s, op);
  else if (op->code == VT_OP_MANUAL_COMPUTATION && enter)
    walk_manual(w, s, op);
  else if (op->code == VT_OP_OPTIMIZATION_BARRIER)
    walk_barrier(w, s, op);
  else
    walk_plain(w, s, op);
}

// Numbers of the sharding groups of the function's values; groups that share a value are one.
static void find_groups(walker *w, scope *s, const vt_func *func) {
  for (const vt_op *op = func->first; op && w->grouped; op = op->next) {
    if (op->code != VT_OP_SHARDING_GROUP) continue;
    int64_t id = vt_attr_i64(op, VT_ATTR_GROUP_ID);
    void **group = vt_map_at(&w->groups, &id, sizeof id);
    void **of_value = vt_map_at_ptr(&s->grouped, op->operands[0]);
    if (!*group) *group = *of_value ? *of_value : (void *)(uintptr_t)++w->group_count;
    if (*of_value && *of_value != *group)
      unite_groups(w, (uint32_t)(uintptr_t)*group, (uint32_t)(uintptr_t)*of_value);
    *of_value = *group;
  }
}

static void walk_func(walker *w, vt_func *func, const named *params, uint32_t block,
                      named *returns) {
  scope s = {.block = block};
  w->depth++;
  find_groups(w, &s, func);
  for (uint32_t i = 0; i < func->param_count; i++) {
    uint32_t node = w->graph->values.data[params[i].value].node;
    uint32_t group = (uint32_t)(uintptr_t)vt_map_find_ptr(&s.grouped, func->params[i]);
    if (group && !w->graph->nodes.data[node].group) w->graph->nodes.data[node].group = group;
    set_name(w, func->params[i], params[i]);
    note_node(w, func->params[i], node);
  }
  for (vt_op *op = func->first; op && !w->graph->too_large; op = op->next) {
    if (++w->steps > MAX_STEPS || w->graph->nodes.size > MAX_NODES) w->graph->too_large = true;
    walk_op(w, &s, op);
  }
  for (uint32_t i = 0; i < func->return_count; i++) returns[i] = name_of(w, func->returns[i]);
  w->depth--;
  vt_map_free(&s.grouped);
}

// ---- the graph of a program ---------------------------------------------------------------------

// Steps whose results nothing uses, from the last on; their uses of others no longer count.
static void drop_dead(vt_graph *graph) {
  for (size_t i = graph->steps.size; i-- > 0;) {
    vt_step *step = &graph->steps.data[i];
    bool used = step->kind == VT_STEP_EDGE || step->kind == VT_STEP_RETURN;
    for (uint32_t k = 0; k < step->result_count; k++)
      used = used || graph->values.data[step->results[k]].use_count;
    if (used || (step->op && vt_op_has_effect(step->op))) continue;
    step->dead = true;
    for (uint32_t k = 0; k < step->operand_count; k++)
      vt_graph_unlink_use(graph, step->first_use + k);
  }
}

static bool is_ordered(const vt_step *step) {
  return !step->dead && step->kind != VT_STEP_RETURN;
}

// By positions first, which are counted; few steps share one.
static void order_steps(vt_graph *graph, uint64_t positions) {
  const vt_step *steps = graph->steps.data;
  uint32_t *ends = VT_NEW_ARRAY(graph->arena, uint32_t, positions + 2), *order;
  for (size_t i = 0; i < graph->steps.size; i++)
    if (is_ordered(&steps[i])) ends[(steps[i].place / PLACES) + 1]++;
  for (size_t i = 0; i <= positions; i++) ends[i + 1] += ends[i];
  graph->order_count = ends[positions + 1];
  graph->order = order = VT_NEW_ARRAY(graph->arena, uint32_t, graph->order_count + 1);
  for (size_t i = 0; i < graph->steps.size; i++)
    if (is_ordered(&steps[i])) order[ends[steps[i].place / PLACES]++] = (uint32_t)i;
  for (uint32_t i = 1, at; i < graph->order_count; i++) {
    uint32_t step = order[i];
    for (at = i; at && steps[order[at - 1]].place > steps[step].place; at--)
      order[at] = order[at - 1];
    order[at] = step;
  }
}

static void add_return(walker *w, named value, vt_value **slot, uint32_t output) {
  vt_type type = vt_node_of(w->graph, output)->type;
  vt_value **where = value.slot ? value.slot : slot;
  vt_step step = {.kind = VT_STEP_RETURN,
                  .allowed = VT_TOWARDS_BOTH,
                  .any_round = true,
                  .operand_count = 1,
                  .result_count = 1,
                  .operands = numbers(w, 1),
                  .results = numbers(w, 1),
                  .rule = type.rank ? vt_rule_of_equals(w->graph, 2, type) : NULL};
  step.operands[0] = value_for_use(w, value, slot, w->graph->module->main);
  step.results[0] = output;
  uint32_t made = vt_graph_add_step(w->graph, &step, (vt_value * *const[]){where});
  vt_array_push_in(w->graph->arena, &w->graph->returns, made);
}

static void number_value(walker *w, vt_value *value) {
  value->id = (int32_t)w->uses.size;
  vt_array_push_in(w->graph->arena, &w->uses, 0);
}

// Numbers values, no two of the module alike, and finds how often they are used, and whether there
// are sharding groups.
static void number_func(walker *w, vt_func *func) {
  func->numbered = false;
  for (uint32_t i = 0; i < func->param_count; i++) number_value(w, func->params[i]);
  for (vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->operand_count; i++) w->uses.data[op->operands[i]->id]++;
    for (uint32_t i = 0; i < op->result_count; i++) number_value(w, &op->results[i]);
    for (uint32_t i = 0; i < op->region_count; i++) number_func(w, op->regions[i]);
    w->grouped = w->grouped || op->code == VT_OP_SHARDING_GROUP;
  }
  for (uint32_t i = 0; i < func->return_count; i++) w->uses.data[func->returns[i]->id]++;
}

static void number_values(walker *w) {
  const vt_module *module = w->graph->module;
  // For a record, vt_spmd_inline has left elementwise functions alone, which are not entered.
  vt_func *const *entered = w->record ? &module->main : module->funcs;
  uint32_t entered_count = w->record ? 1 : module->func_count;
  for (uint32_t i = 0; i < module->func_count; i++) {
    vt_func *func = module->funcs[i];
    if (func != module->main && !w->record) func->elementwise = vt_spmd_is_elementwise(func);
  }
  for (uint32_t i = 0; i < entered_count; i++) number_func(w, entered[i]);
  size_t count = w->uses.size;
  vt_array_reserve_in(w->graph->arena, &w->graph->nodes, count + count / 4);
  vt_array_reserve_in(w->graph->arena, &w->graph->values, count + count / 4);
  vt_array_reserve_in(w->graph->arena, &w->graph->steps, count + count / 4);
  vt_array_reserve_in(w->graph->arena, &w->graph->uses, 2 * count);
  w->names = VT_NEW_ARRAY(w->graph->arena, named, count + 1);
  for (size_t i = 0; w->record && i < count; i++) vt_array_push(&w->record->nodes, 0);
}

// Builds and propagates the whole graph; outputs gets the node of each result of main.
static void propagate_main(walker *w, vt_func *main, uint32_t *params, uint32_t *outputs) {
  vt_arena *arena = w->graph->arena;
  number_values(w);
  named *args = VT_NEW_ARRAY(arena, named, main->param_count + 1);
  named *returns = VT_NEW_ARRAY(arena, named, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) {
    params[i] = vt_graph_add_node(w->graph, main->params[i]->type);
    args[i] = (named){.value = vt_graph_add_value(w->graph, params[i], 0, main->params[i])};
    if (main->param_info) vt_graph_seed(w->graph, params[i], main->param_info[i].sharding);
  }
  walk_func(w, main, args, 0, returns);
  for (uint32_t i = 0; i < main->return_count && !w->graph->too_large; i++) {
    outputs[i] = vt_graph_add_node(w->graph, main->returns[i]->type);
    uint32_t output = vt_graph_add_value(w->graph, outputs[i], 0, NULL);
    if (main->return_info) vt_graph_seed(w->graph, outputs[i], main->return_info[i].sharding);
    note_slot(w, &main->returns[i], outputs[i]);
    add_return(w, returns[i], &main->returns[i], output);
  }
  if (w->graph->too_large) return;
  drop_dead(w->graph);
  vt_graph_apply_constraints(w->graph);
  order_steps(w->graph, w->position);
  if (vt_graph_is_gspmd(w->graph))
    vt_graph_propagate_gspmd(w->graph);
  else
    vt_graph_propagate(w->graph);
}

// Whether any mesh is over all devices.
static bool has_mesh(const vt_module *module, int32_t device_count) {
  for (uint32_t i = 0; i < module->mesh_count; i++)
    if (module->meshes[i]->axis_count && vt_mesh_size(module->meshes[i]) == device_count)
      return true;
  return false;
}

static bool is_closed(const vt_sharding *s) {
  for (int32_t d = 0; s && d < s->rank; d++)
    if (!s->dims[d].closed) return false;
  return s != NULL;
}

// What leaves the program has the sharding that the program states, if that is complete.
static const vt_sharding *border(const vt_graph *graph, uint32_t node, const vt_sharding *stated,
                                 vt_arena *arena) {
  const vt_mesh *mesh = graph->nodes.data[node].mesh;
  bool other = stated && (!mesh || vt_mesh_size(mesh) != graph->device_count);
  if (is_closed(stated) || other || graph->too_large) return stated;
  return vt_graph_sharding(graph, node, VT_AT_MAIN, arena);
}

void vt_spmd_propagate(const vt_module *module, int32_t device_count, vt_arena *arena,
                       const vt_sharding **out_params, const vt_sharding **out_results) {
  vt_func *main = module->main;
  bool open = false;
  for (uint32_t i = 0; i < main->param_count; i++)
    out_params[i] = main->param_info ? main->param_info[i].sharding : NULL;
  for (uint32_t i = 0; i < main->return_count; i++) {
    out_results[i] = main->return_info ? main->return_info[i].sharding : NULL;
    open = open || !is_closed(out_results[i]);
  }
  if (device_count < 2 || !open || !has_mesh(module, device_count)) return;
  vt_arena scratch = {0};
  vt_graph graph;
  walker w = {.graph = &graph};
  vt_graph_init(&graph, module, device_count, &scratch);
  uint32_t *params = numbers(&w, main->param_count), *outputs = numbers(&w, main->return_count);
  propagate_main(&w, main, params, outputs);
  for (uint32_t i = 0; i < main->return_count; i++)
    out_results[i] = border(&graph, outputs[i], out_results[i], arena);
  vt_map_free(&w.groups);
  vt_graph_free(&graph);
  vt_arena_free(&scratch);
}

static bool anything_looks(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (looks_at(op)) return true;
    for (uint32_t i = 0; i < op->region_count; i++)
      if (anything_looks(op->regions[i])) return true;
  }
  return false;
}

void vt_spmd_look(const vt_module *module, int32_t device_count, vt_arena *arena,
                  vt_looks *out_looks) {
  bool any = false;
  for (uint32_t i = 0; i < module->func_count; i++) any = any || anything_looks(module->funcs[i]);
  if (!any) return;
  vt_arena scratch = {0};
  vt_graph graph;
  walker w = {.graph = &graph, .looks = out_looks};
  vt_graph_init(&graph, module, device_count, &scratch);
  uint32_t *params = numbers(&w, module->main->param_count);
  uint32_t *outputs = numbers(&w, module->main->return_count);
  propagate_main(&w, module->main, params, outputs);
  bool cut = has_mesh(module, device_count) && !graph.too_large;
  for (size_t i = 0; cut && i < out_looks->size; i++)
    out_looks->data[i].sharding =
        vt_graph_sharding(&graph, out_looks->data[i].node, VT_AT_MAIN, arena);
  vt_map_free(&w.groups);
  vt_graph_free(&graph);
  vt_arena_free(&scratch);
}

bool vt_spmd_record(vt_module *module, int32_t device_count, vt_arena *scratch,
                    vt_record *out_record) {
  vt_graph *graph = &out_record->graph;
  walker w = {.graph = graph, .record = out_record};
  *out_record = (vt_record){0};
  vt_graph_init(graph, module, device_count, scratch);
  if (device_count < 2 || !has_mesh(module, device_count)) return false;
  uint32_t *params = numbers(&w, module->main->param_count);
  uint32_t *outputs = numbers(&w, module->main->return_count);
  propagate_main(&w, module->main, params, outputs);
  vt_map_free(&w.groups);
  out_record->uses = w.uses;
  return !graph->too_large;
}

const vt_sharding *vt_record_sharding(vt_record *record, uint32_t id, vt_arena *arena) {
  enum { MOST = 64 };
  const vt_node *node = &record->graph.nodes.data[id];
  uint64_t key[MOST];
  size_t size = 1;
  if (!node->mesh) return NULL;
  key[0] = (uintptr_t)node->mesh;
  bool fits = !node->unreduced.count;
  for (int32_t d = 0; d < node->type.rank && fits; d++) {
    vt_axes axes = node->dims[d];
    fits = size + 1 + 3 * axes.count <= MOST;
    if (!fits) break;
    key[size++] = axes.count;
    for (uint32_t i = 0; i < axes.count; i++) {
      key[size++] = axes.refs[i].axis;
      key[size++] = (uint64_t)axes.refs[i].pre_size;
      key[size++] = (uint64_t)axes.refs[i].size;
    }
  }
  if (fits && size == 1 + (size_t)node->type.rank) return NULL; // no axes
  if (!fits) return vt_graph_sharding(&record->graph, id, VT_INSIDE, arena);
  void **place = vt_map_at(&record->shardings, key, size * sizeof *key);
  if (!*place) *place = (void *)(uintptr_t)vt_graph_sharding(&record->graph, id, VT_INSIDE, arena);
  return *place;
}

void vt_record_free(vt_record *record) {
  vt_map_free(&record->shardings);
  vt_array_free(&record->nodes);
  vt_map_free(&record->slots);
  vt_graph_free(&record->graph);
}
