// SPDX-License-Identifier: Apache-2.0
// constraints.c - what import makes of constraints before anything propagates, as Shardy does it.
//
// A constraint whose sharding is closed is copied onto the value that it constrains if that has no
// sharding yet and no other constraint or manual computation wants another one. Where the value is
// the target of a data flow edge, whose sharding is everybody's, its other users are given the
// constraint's result instead. Operands of manual computations are constrained likewise. A chain of
// constraints stands for its last one: later users of the value get that.
#include "base/check.h"
#include "spmd/propagate/graph.h"

static const vt_step *step_of(const vt_graph *graph, uint32_t use) {
  return &graph->steps.data[graph->uses.data[use].step];
}

// A use that states which sharding it wants.
static bool wants_sharding(const vt_step *step) {
  return step->kind == VT_STEP_CONSTRAINT || (step->kind == VT_STEP_EDGE && step->sharding);
}

static bool is_closed(const vt_sharding *s) {
  for (int32_t d = 0; d < s->rank; d++)
    if (!s->dims[d].closed) return false;
  return true;
}

static bool should_apply(const vt_graph *graph, uint32_t value, const vt_sharding *sharding) {
  const vt_graph_value *v = &graph->values.data[value];
  if (!sharding || vt_node_of(graph, value)->mesh || !is_closed(sharding)) return false;
  for (uint32_t i = v->first_use; i != VT_NONE; i = graph->uses.data[i].after) {
    const vt_step *user = step_of(graph, i);
    if (wants_sharding(user) && !vt_sharding_same(user->sharding, sharding)) return false;
  }
  return true;
}

static void note(vt_graph *graph, int kind, vt_value **where, uint32_t value, const vt_op *op) {
  vt_rewrite rewrite = {.where = where, .value = value, .op = (vt_op *)(uintptr_t)op};
  rewrite.kind = kind;
  vt_array_push_in(graph->arena, &graph->rewrites, rewrite);
}

// Where a use names the value in its own region, which may capture it; NULL: not known.
static vt_value **named_within(const vt_graph *graph, uint32_t use, uint32_t value) {
  const vt_use *u = &graph->uses.data[use];
  const vt_step *user = step_of(graph, use);
  if (user->block == graph->values.data[value].block) return u->where;
  bool plain = user->op && (user->kind == VT_STEP_OP || user->kind == VT_STEP_CONSTRAINT);
  uint32_t operand = u->slot;
  for (uint32_t i = 0; i <= operand && i < VT_MAX_LEFT_OUT; i++) operand += user->left_out >> i & 1;
  return plain ? &user->op->operands[operand] : NULL;
}

// Gives the uses of a value that `wanted` accepts to another one: one in the region of the uses
// (`within`), or in that of the value.
typedef bool chooses(const vt_graph *graph, uint32_t use, uint32_t keep);
static void move_uses(vt_graph *graph, uint32_t from, uint32_t to, uint32_t keep, chooses *wanted,
                      bool within) {
  for (uint32_t use = graph->values.data[from].first_use, next; use != VT_NONE; use = next) {
    next = graph->uses.data[use].after;
    if (!wanted(graph, use, keep)) continue;
    vt_value **where = graph->uses.data[use].where;
    if (where && within && !(where = named_within(graph, use, from))) continue;
    vt_graph_unlink_use(graph, use);
    vt_graph_link_use(graph, use, to);
    if (where) note(graph, VT_REWRITE_USE, where, to, NULL);
  }
}

static bool is_other(const vt_graph *graph, uint32_t use, uint32_t keep) {
  return graph->uses.data[use].step != keep;
}

// A new constraint of the operand of a manual computation.
static uint32_t insert_constraint(vt_graph *graph, uint32_t value, const vt_sharding *sharding,
                                  vt_value **where) {
  const vt_graph_value *v = &graph->values.data[value];
  vt_type type = graph->nodes.data[v->node].type;
  uint64_t place = v->step == VT_NONE ? 1 : graph->steps.data[v->step].place + 1;
  uint32_t block = v->block, node = vt_graph_add_node(graph, type);
  uint32_t result = vt_graph_add_value(graph, node, block, NULL);
  vt_graph_seed(graph, node, sharding);
  uint32_t *numbers = VT_NEW_ARRAY(graph->arena, uint32_t, 2);
  numbers[0] = value;
  numbers[1] = result;
  vt_step step = {.kind = VT_STEP_CONSTRAINT,
                  .allowed = VT_TOWARDS_BOTH,
                  .elementwise = true,
                  .place = place,
                  .block = block,
                  .operand_count = 1,
                  .result_count = 1,
                  .operands = numbers,
                  .results = numbers + 1,
                  .rule = vt_rule_of_equals(graph, 2, type),
                  .sharding = sharding};
  note(graph, VT_REWRITE_INSERT, where, result, NULL);
  return vt_graph_add_step(graph, &step, NULL);
}

// Whoever calls main passes values, not terms, where the program does not ask for these.
static const vt_sharding *without_terms(vt_graph *graph, const vt_sharding *sharding) {
  if (!sharding->unreduced_count) return sharding;
  vt_sharding *copy = VT_NEW(graph->arena, vt_sharding);
  *copy = *sharding;
  copy->unreduced_count = 0;
  copy->reduction = 0;
  return copy;
}

static void apply_constraint(vt_graph *graph, uint32_t index, uint32_t value,
                             const vt_sharding *sharding, vt_value **where) {
  vt_node *node = vt_node_of(graph, value);
  if (!should_apply(graph, value, sharding)) return;
  if (!node->is_edge) {
    const vt_graph_value *v = &graph->values.data[value];
    bool given = v->step == VT_NONE && v->copy_of == VT_NONE;
    vt_graph_seed(graph, graph->values.data[value].node,
                  given ? without_terms(graph, sharding) : sharding);
    return;
  }
  bool own = graph->steps.data[index].kind == VT_STEP_CONSTRAINT;
  uint32_t constraint = own ? index : insert_constraint(graph, value, sharding, where);
  vt_step *step = &graph->steps.data[constraint];
  const vt_graph_value *v = &graph->values.data[value];
  if (own) {
    step->place = v->step == VT_NONE ? 1 : graph->steps.data[v->step].place + 1;
    note(graph, VT_REWRITE_MOVE, where, step->results[0], step->op);
  }
  move_uses(graph, value, step->results[0], constraint, is_other, false);
}

// ---- chains -------------------------------------------------------------------------------------

static bool is_constrained(const vt_graph *graph, uint32_t value, uint32_t except) {
  const vt_graph_value *v = &graph->values.data[value];
  for (uint32_t i = v->first_use; i != VT_NONE; i = graph->uses.data[i].after)
    if (graph->uses.data[i].step != except && wants_sharding(step_of(graph, i))) return true;
  return false;
}

// The last constraint of a chain that starts at `head`, VT_NONE if there is no chain, or not one
// that stands for its last constraint.
static uint32_t tail_of_chain(const vt_graph *graph, uint32_t head) {
  const vt_step *first = &graph->steps.data[head];
  uint32_t input = first->operands[0], before = graph->values.data[input].step, tail = head;
  if (before != VT_NONE && graph->steps.data[before].kind == VT_STEP_CONSTRAINT) return VT_NONE;
  if (vt_node_of(graph, input)->mesh || is_constrained(graph, input, head)) return VT_NONE;
  for (;;) {
    const vt_graph_value *result = &graph->values.data[graph->steps.data[tail].results[0]];
    if (result->use_count != 1 || step_of(graph, result->first_use)->kind != VT_STEP_CONSTRAINT)
      break;
    tail = graph->uses.data[result->first_use].step;
  }
  if (tail == head || is_constrained(graph, graph->steps.data[tail].results[0], VT_NONE))
    return VT_NONE;
  return tail;
}

// Later users in the block of the chain's end, but not returns of the program.
static bool comes_later(const vt_graph *graph, uint32_t use, uint32_t tail) {
  const vt_step *user = step_of(graph, use), *last = &graph->steps.data[tail];
  return user->kind != VT_STEP_RETURN && user->block == last->block && user->place > last->place;
}

void vt_graph_apply_constraints(vt_graph *graph) {
  size_t count = graph->steps.size;
  for (size_t i = 0; i < count; i++) {
    const vt_step *step = &graph->steps.data[i];
    if (step->dead || !wants_sharding(step)) continue;
    uint32_t tail = step->kind == VT_STEP_CONSTRAINT ? tail_of_chain(graph, (uint32_t)i) : VT_NONE;
    uint32_t value = step->operands[0];
    if (tail != VT_NONE)
      move_uses(graph, value, graph->steps.data[tail].results[0], tail, comes_later, true);
    bool kept = step->operands[0] == value;
    apply_constraint(graph, (uint32_t)i, value, step->sharding,
                     kept ? graph->uses.data[step->first_use].where : NULL);
  }
}
