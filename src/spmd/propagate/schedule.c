// SPDX-License-Identifier: Apache-2.0
// schedule.c - applies steps until nothing changes, in Shardy's order.
//
// Priorities that the program gives to dimensions come first: those of priority 1 start to
// propagate when those of priority 0 have settled. Within one, five rounds, each of which allows
// more: ops that only pass shardings through, if their operands have no other use; all such ops;
// everything but what needs communication, into broadcasts only backwards; everything but
// broadcasts forwards; everything. Within a round each step runs once from first to last, but one
// whose values change runs again at once if it had its turn: what a step finds spreads backwards
// before the next step can contradict it.
#include <string.h>

#include "spmd/propagate/graph.h"

enum { ROUNDS = 5 };

typedef struct scheduler {
  vt_graph *graph;
  vt_arena scratch;
  VT_ARRAY(uint32_t) stack; // the next step is last
  bool *waiting;            // per step: on the stack
  vt_numbers changed;
} scheduler;

// ---- in which direction -------------------------------------------------------------------------

static bool moves_device(const vt_op *op) {
  vt_string name = op->code == VT_OP_CUSTOM_CALL ? vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME)
                                                 : (vt_string){"", 0};
  return name.size && (!strcmp(name.data, "MoveToDevice") || !strcmp(name.data, "MoveToHost"));
}

static bool passes_through(const vt_step *step) {
  if (step->kind == VT_STEP_EDGE || step->elementwise) return true;
  return vt_spmd_is_view(step->op) || moves_device(step->op);
}

static bool has_one_user(const vt_graph *graph, const vt_step *step) {
  for (uint32_t i = 0; i < step->operand_count; i++)
    if (vt_node_of(graph, step->operands[i])->type.rank &&
        graph->values.data[step->operands[i]].uses.size != 1)
      return false;
  return true;
}

static vt_direction direction_in_round(const vt_graph *graph, const vt_step *step, uint32_t factor,
                                       int round) {
  vt_opcode code = step->kind == VT_STEP_OP ? step->op->code : VT_OP_INVALID;
  bool grows = code == VT_OP_BROADCAST_IN_DIM && !vt_spmd_is_view(step->op);
  int direction = VT_TOWARDS_NONE;
  bool users = round > 0 || step->kind == VT_STEP_EDGE || has_one_user(graph, step);
  if (users && passes_through(step)) direction |= VT_TOWARDS_BOTH;
  if (users && (code == VT_OP_DYNAMIC_SLICE || code == VT_OP_DYNAMIC_UPDATE_SLICE))
    direction |= VT_TOWARDS_RESULTS;
  bool passes = step->kind == VT_STEP_EDGE || step->rule->factors[factor].kind == VT_FACTOR_PASS;
  if ((round == 2 && passes) || round > 2)
    direction |= grows ? VT_TOWARDS_OPERANDS : VT_TOWARDS_BOTH;
  if (round > 3) direction |= VT_TOWARDS_BOTH;
  return (vt_direction)direction;
}

static bool any_sharding(const vt_graph *graph, const vt_step *step) {
  for (uint32_t i = 0; i < step->operand_count; i++)
    if (vt_node_of(graph, step->operands[i])->mesh) return true;
  for (uint32_t i = 0; i < step->result_count; i++)
    if (vt_node_of(graph, step->results[i])->mesh) return true;
  return false;
}

// ---- the stack of steps -------------------------------------------------------------------------

static void wake(scheduler *s, uint32_t step) {
  if (step == VT_NONE || s->waiting[step] || !s->graph->steps.data[step].rule ||
      s->graph->steps.data[step].kind == VT_STEP_RETURN)
    return;
  s->waiting[step] = true;
  vt_array_push(&s->stack, step);
}

// Wakes the users of a value so that the first of them runs first.
static void wake_users(scheduler *s, uint32_t value) {
  const vt_graph_value *v = &s->graph->values.data[value];
  for (size_t i = v->uses.size; i-- > 0;) wake(s, v->uses.data[i].step);
}

static void wake_around(scheduler *s, uint32_t node) {
  uint32_t first = s->graph->nodes.data[node].first_value;
  for (uint32_t v = first; v != VT_NONE; v = s->graph->values.data[v].next_of_node)
    if (s->graph->values.data[v].next_of_node != VT_NONE) wake_users(s, v);
  wake(s, s->graph->nodes.data[node].step);
  for (uint32_t v = first; v != VT_NONE; v = s->graph->values.data[v].next_of_node)
    if (s->graph->values.data[v].next_of_node == VT_NONE) wake_users(s, v);
}

static void copy_sharding(vt_node *to, const vt_node *from) {
  to->mesh = from->mesh;
  to->closed = from->closed;
  to->replicated = from->replicated;
  to->unreduced = from->unreduced;
  to->reduction = from->reduction;
  if (to->type.rank == from->type.rank)
    memcpy(to->dims, from->dims, sizeof *to->dims * (size_t)to->type.rank);
}

// Members of a sharding group have one sharding.
static void copy_to_group(scheduler *s, uint32_t node) {
  const vt_node *from = &s->graph->nodes.data[node];
  for (uint32_t i = 0; from->group && i < s->graph->nodes.size; i++) {
    vt_node *to = &s->graph->nodes.data[i];
    if (i == node || to->group != from->group) continue;
    copy_sharding(to, from);
    wake_around(s, i);
  }
}

static void run(scheduler *s, uint32_t index, int round) {
  vt_step *step = &s->graph->steps.data[index];
  uint8_t directions[256];
  uint8_t all = 0;
  if (!step->rule || !any_sharding(s->graph, step)) return;
  for (uint32_t f = 0; f < step->rule->factor_count; f++) {
    int direction =
        step->any_round ? VT_TOWARDS_BOTH : (int)direction_in_round(s->graph, step, f, round);
    directions[f] = (uint8_t)(direction & step->allowed);
    all |= directions[f];
  }
  if (!all) return;
  vt_arena_reset(&s->scratch);
  s->changed.size = 0;
  vt_step_apply(s->graph, step, directions, &s->scratch, &s->changed);
  bool was_waiting = s->waiting[index];
  s->waiting[index] = true; // what it did cannot change what it does
  for (size_t i = 0; i < s->changed.size; i++) {
    uint32_t node = s->graph->values.data[s->changed.data[i]].node;
    wake_around(s, node);
    copy_to_group(s, node);
  }
  s->waiting[index] = was_waiting;
}

static void run_returns(scheduler *s) {
  for (size_t i = 0; i < s->graph->returns.size; i++) run(s, s->graph->returns.data[i], 0);
  for (; s->stack.size; s->stack.size--) s->waiting[s->stack.data[s->stack.size - 1]] = false;
}

static void run_round(scheduler *s, int round) {
  run_returns(s);
  for (size_t i = s->graph->order.size; i-- > 0;) wake(s, s->graph->order.data[i]);
  while (s->stack.size) {
    uint32_t step = s->stack.data[--s->stack.size];
    s->waiting[step] = false;
    run(s, step, round);
  }
  run_returns(s);
}

// ---- priorities of dimensions -------------------------------------------------------------------

// Lets the dimensions of the next priority above `last` propagate; false: there are none.
static bool start_next(vt_graph *graph, int64_t *last) {
  int64_t next = INT64_MAX;
  for (size_t i = 0; i < graph->later.size; i++)
    if (graph->later.data[i].priority > *last && graph->later.data[i].priority < next)
      next = graph->later.data[i].priority;
  for (size_t i = 0; i < graph->later.size; i++) {
    const vt_later *later = &graph->later.data[i];
    vt_node *node = &graph->nodes.data[later->node];
    vt_axis_list rest = {0};
    if (later->priority != next) continue;
    node->dims[later->dim] = later->axes;
    if (!later->closed) node->closed &= ~(1u << later->dim);
    for (uint32_t k = 0; k < node->replicated.count; k++) {
      bool taken = false;
      for (uint32_t j = 0; j < later->axes.count; j++)
        taken = taken || vt_axis_equal(later->axes.refs[j], node->replicated.refs[k]);
      if (!taken) vt_axis_list_push(&rest, node->replicated.refs[k]);
    }
    node->replicated = vt_axes_copy(graph->arena, vt_axes_of(&rest));
  }
  *last = next;
  return next != INT64_MAX;
}

// Groups start with the sharding that their members agree on: the first that has axes.
static void join_groups(scheduler *s) {
  for (uint32_t i = 0; i < s->graph->nodes.size; i++) {
    const vt_node *node = &s->graph->nodes.data[i];
    bool first = node->group && node->mesh;
    for (uint32_t k = 0; first && k < i; k++)
      first = s->graph->nodes.data[k].group != node->group || !s->graph->nodes.data[k].mesh;
    if (first) copy_to_group(s, i);
  }
  for (; s->stack.size; s->stack.size--) s->waiting[s->stack.data[s->stack.size - 1]] = false;
}

void vt_graph_propagate(vt_graph *graph) {
  scheduler s = {.graph = graph};
  vt_arena own = {0};
  int64_t priority = 0;
  s.waiting = VT_NEW_ARRAY(&own, bool, graph->steps.size);
  join_groups(&s);
  do
    for (int round = 0; round < ROUNDS; round++) run_round(&s, round);
  while (start_next(graph, &priority));
  vt_array_free(&s.stack);
  vt_array_free(&s.changed);
  vt_arena_free(&s.scratch);
  vt_arena_free(&own);
}
