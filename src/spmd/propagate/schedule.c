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

// A step that changed nothing does not run again before one of its values has changed or it may do
// something else. The directions of its factors, two bits each, are at most 32.
enum { MAX_RESTING = 32 };
#define NOT_AT_REST  0
#define WHATEVER_MAY UINT64_MAX // at rest whatever it may do

typedef struct scheduler {
  vt_graph *graph;
  vt_arena scratch;
  VT_ARRAY(uint32_t) stack; // steps that run before the next in order; the next of them is last
  bool *waiting;            // per step: on the stack, or its turn in order comes later
  vt_numbers changed;
  uint64_t *rests; // per step: directions in which it changes nothing as its values are now
  uint32_t *first_member, *next_member; // of a sharding group, after a node; VT_NONE at the end
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
        graph->values.data[step->operands[i]].use_count != 1)
      return false;
  return true;
}

// What a round allows along every factor, and along those that each device works on alone.
typedef struct allowance {
  int any, passing;
} allowance;

static allowance allowance_in_round(const vt_graph *graph, const vt_step *step, int round) {
  vt_opcode code = step->kind == VT_STEP_OP ? step->op->code : VT_OP_INVALID;
  if (step->any_round || round > 3) return (allowance){VT_TOWARDS_BOTH, VT_TOWARDS_BOTH};
  bool grows = code == VT_OP_BROADCAST_IN_DIM && !vt_spmd_is_view(step->op);
  int most = grows ? VT_TOWARDS_OPERANDS : VT_TOWARDS_BOTH, any = VT_TOWARDS_NONE;
  bool users = round > 0 || step->kind == VT_STEP_EDGE || has_one_user(graph, step);
  if (users && passes_through(step)) any |= VT_TOWARDS_BOTH;
  if (users && (code == VT_OP_DYNAMIC_SLICE || code == VT_OP_DYNAMIC_UPDATE_SLICE))
    any |= VT_TOWARDS_RESULTS;
  if (round > 2 || (round == 2 && step->kind == VT_STEP_EDGE)) any |= most;
  return (allowance){any, round == 2 ? any | most : any};
}

static bool any_sharding(const vt_graph *graph, const vt_step *step) {
  for (uint32_t i = 0; i < step->operand_count; i++)
    if (vt_node_of(graph, step->operands[i])->mesh) return true;
  for (uint32_t i = 0; i < step->result_count; i++)
    if (vt_node_of(graph, step->results[i])->mesh) return true;
  return false;
}

// ---- the stack of steps -------------------------------------------------------------------------

// One of the step's values has changed.
static void wake(scheduler *s, uint32_t step) {
  if (step == VT_NONE) return;
  s->rests[step] = NOT_AT_REST;
  if (s->waiting[step] || !s->graph->steps.data[step].rule ||
      s->graph->steps.data[step].kind == VT_STEP_RETURN)
    return;
  s->waiting[step] = true;
  vt_array_push(&s->stack, step);
}

// Wakes the users of a value so that the first of them runs first.
static void wake_users(scheduler *s, uint32_t value) {
  const vt_use *uses = s->graph->uses.data;
  for (uint32_t i = s->graph->values.data[value].last_use; i != VT_NONE; i = uses[i].before)
    wake(s, uses[i].step);
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
  uint32_t group = s->graph->nodes.data[node].group;
  if (!group) return;
  for (uint32_t i = s->first_member[group]; i != VT_NONE; i = s->next_member[i]) {
    if (i == node) continue;
    copy_sharding(&s->graph->nodes.data[i], &s->graph->nodes.data[node]);
    wake_around(s, i);
  }
}

static void run(scheduler *s, uint32_t index, int round) {
  vt_step *step = &s->graph->steps.data[index];
  uint8_t directions[256];
  uint64_t all = 0;
  if (s->rests[index] == WHATEVER_MAY) return;
  if (!step->rule || !any_sharding(s->graph, step)) {
    s->rests[index] = WHATEVER_MAY;
    return;
  }
  allowance allowed = allowance_in_round(s->graph, step, round);
  for (uint32_t f = 0; f < step->rule->factor_count; f++) {
    int direction = step->rule->factors[f].kind == VT_FACTOR_PASS ? allowed.passing : allowed.any;
    directions[f] = (uint8_t)(direction & step->allowed);
    all = all << 2 | directions[f];
  }
  bool may_rest = step->rule->factor_count <= MAX_RESTING;
  if (may_rest && s->rests[index] == all) return; // or nothing is allowed
  vt_arena_reset(&s->scratch);
  s->changed.size = 0;
  bool settled =
      vt_step_apply(s->graph, step, directions, VT_ALL_TENSORS, &s->scratch, &s->changed);
  s->rests[index] = settled ? WHATEVER_MAY : may_rest && !s->changed.size ? all : NOT_AT_REST;
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
  const uint32_t *order = s->graph->order, count = s->graph->order_count;
  for (uint32_t i = 0; i < count; i++) s->waiting[order[i]] = true;
  for (uint32_t i = 0; i < count; i++) {
    s->waiting[order[i]] = false;
    if (s->rests[order[i]] == WHATEVER_MAY) continue;
    run(s, order[i], round);
    while (s->stack.size) {
      uint32_t step = s->stack.data[--s->stack.size];
      s->waiting[step] = false;
      run(s, step, round);
    }
  }
  run_returns(s);
}

// ---- priorities of dimensions -------------------------------------------------------------------

// Lets the dimensions of the next priority above `last` propagate; false: there are none.
static bool start_next(scheduler *s, int64_t *last) {
  vt_graph *graph = s->graph;
  int64_t next = INT64_MAX;
  for (size_t i = 0; i < graph->later.size; i++)
    if (graph->later.data[i].priority > *last && graph->later.data[i].priority < next)
      next = graph->later.data[i].priority;
  for (size_t i = 0; i < graph->later.size; i++) {
    const vt_later *later = &graph->later.data[i];
    vt_node *node = &graph->nodes.data[later->node];
    vt_axis_list left = {0};
    if (later->priority != next) continue;
    node->dims[later->dim] = later->axes;
    if (!later->closed) node->closed &= ~(1u << later->dim);
    for (uint32_t k = 0; k < node->replicated.count; k++) {
      bool taken = false;
      for (uint32_t j = 0; j < later->axes.count; j++)
        taken = taken || vt_axis_equal(later->axes.refs[j], node->replicated.refs[k]);
      if (!taken) vt_axis_list_push(&left, node->replicated.refs[k]);
    }
    node->replicated = vt_axes_copy(graph->arena, vt_axes_of(&left));
  }
  memset(s->rests, 0, sizeof *s->rests * graph->steps.size);
  *last = next;
  return next != INT64_MAX;
}

// ---- sharding groups ----------------------------------------------------------------------------

// Groups start with the sharding that their members agree on: the first that has axes.
static void join_groups(scheduler *s, vt_arena *arena) {
  vt_graph *graph = s->graph;
  uint32_t count = (uint32_t)graph->nodes.size, groups = 0;
  for (uint32_t i = 0; i < count; i++)
    if (graph->nodes.data[i].group > groups) groups = graph->nodes.data[i].group;
  if (!groups) return;
  bool *stated = VT_NEW_ARRAY(arena, bool, groups + 1);
  s->first_member = VT_NEW_ARRAY(arena, uint32_t, groups + 1);
  s->next_member = VT_NEW_ARRAY(arena, uint32_t, count);
  for (uint32_t i = 0; i <= groups; i++) s->first_member[i] = VT_NONE;
  for (uint32_t i = count; i-- > 0;) {
    uint32_t group = graph->nodes.data[i].group;
    s->next_member[i] = s->first_member[group];
    s->first_member[group] = i;
  }
  for (uint32_t i = 0; i < count; i++) {
    const vt_node *node = &graph->nodes.data[i];
    if (!node->group || !node->mesh || stated[node->group]) continue;
    stated[node->group] = true;
    copy_to_group(s, i);
  }
  for (; s->stack.size; s->stack.size--) s->waiting[s->stack.data[s->stack.size - 1]] = false;
}

void vt_graph_propagate(vt_graph *graph) {
  scheduler s = {.graph = graph};
  vt_arena own = {.brief = true};
  int64_t priority = 0;
  s.waiting = VT_NEW_ARRAY(&own, bool, graph->steps.size);
  s.rests = VT_NEW_ARRAY(&own, uint64_t, graph->steps.size);
  join_groups(&s, &own);
  do
    for (int round = 0; round < ROUNDS; round++) run_round(&s, round);
  while (start_next(&s, &priority));
  vt_array_free(&s.stack);
  vt_array_free(&s.changed);
  vt_arena_free(&s.scratch);
  vt_arena_free(&own);
}
