// SPDX-License-Identifier: Apache-2.0
// gspmd.c - propagation of a program that states GSPMD's shardings, in the order of XLA's own pass.
//
// Four levels, each of which allows more: ops that pass shardings through; all ops but broadcasts;
// broadcasts backwards; broadcasts forwards. At each, until nothing changes: all ops in order take
// what their operands have, then members of a sharding group (shard_as) from one another what does
// not contradict their own, then all values in reverse what their users have, the first user first.
// A value that is a broadcast waits for the third level: anything may use it.
#include "spmd/propagate/graph.h"

#include <string.h>

enum { LEVELS = 4 };

bool vt_graph_is_gspmd(const vt_graph *graph) {
  const vt_module *module = graph->module;
  return module->mesh_count == 1 && !strcmp(module->meshes[0]->name, "gspmd");
}

typedef struct pass {
  vt_graph *graph;
  int level;
  bool changed;
  vt_arena scratch;
  vt_numbers changes;
  uint32_t *next_member; // of a node's sharding group, in a ring; NULL = there are no groups
} pass;

static bool is_broadcast(const vt_step *step) {
  return step->kind == VT_STEP_OP && step->op->code == VT_OP_BROADCAST_IN_DIM &&
         !vt_spmd_is_view(step->op);
}

static int allowed_at_level(const vt_step *step, int level) {
  if (step->kind == VT_STEP_EDGE || step->kind == VT_STEP_RETURN || step->elementwise)
    return VT_TOWARDS_BOTH;
  if (is_broadcast(step))
    return level > 2 ? VT_TOWARDS_BOTH : level == 2 ? VT_TOWARDS_OPERANDS : VT_TOWARDS_NONE;
  if (level > 0 || vt_spmd_is_view(step->op)) return VT_TOWARDS_BOTH;
  return step->op->code == VT_OP_DYNAMIC_SLICE ? VT_TOWARDS_RESULTS : VT_TOWARDS_NONE;
}

// ---- sharding groups ----------------------------------------------------------------------------

static void find_groups(pass *p, vt_arena *arena) {
  const vt_graph *graph = p->graph;
  uint32_t count = (uint32_t)graph->nodes.size, groups = 0;
  for (uint32_t i = 0; i < count; i++)
    if (graph->nodes.data[i].group > groups) groups = graph->nodes.data[i].group;
  if (!groups) return;
  uint32_t *first = VT_NEW_ARRAY(arena, uint32_t, groups + 1);
  p->next_member = VT_NEW_ARRAY(arena, uint32_t, count);
  for (uint32_t i = 0; i <= groups; i++) first[i] = VT_NONE;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t *member = &first[graph->nodes.data[i].group];
    p->next_member[i] = *member == VT_NONE ? i : p->next_member[*member];
    if (*member != VT_NONE) p->next_member[*member] = i;
    *member = i;
  }
}

// Gives a node's sharding to the next member of its group, as an elementwise op would.
static void give_to_next(pass *p, uint32_t node) {
  const vt_node *nodes = p->graph->nodes.data;
  uint32_t next = p->next_member[node];
  if (next == node || !nodes[node].mesh || !nodes[node].group || !nodes[node].type.rank) return;
  if (!vt_type_same_dims(nodes[next].type, nodes[node].type)) return;
  uint32_t from = nodes[node].first_value, to = nodes[next].first_value;
  uint8_t directions[VT_MAX_RANK];
  vt_step step = {.kind = VT_STEP_OP,
                  .elementwise = true,
                  .operand_count = 1,
                  .result_count = 1,
                  .operands = &from,
                  .results = &to,
                  .rule = vt_rule_of_equals(p->graph, 2, nodes[next].type)};
  memset(directions, VT_TOWARDS_RESULTS, sizeof directions);
  vt_arena_reset(&p->scratch);
  (void)vt_step_apply(p->graph, &step, directions, VT_RESULTS, &p->scratch, &p->changes);
}

// Members are in the order of their numbers, the last one before the first: after two walks each
// has what any of them had.
static void share_with_groups(pass *p) {
  for (int walk = 0; walk < 2; walk++)
    for (uint32_t i = 0; p->next_member && i < p->graph->nodes.size; i++) give_to_next(p, i);
  p->changed = p->changed || p->changes.size;
  p->changes.size = 0;
}

// ---- steps --------------------------------------------------------------------------------------

static void apply(pass *p, uint32_t index, vt_direction direction, int32_t which) {
  const vt_step *step = &p->graph->steps.data[index];
  uint8_t directions[256];
  if (!step->rule || step->dead) return;
  int allowed = allowed_at_level(step, p->level) & step->allowed & (int)direction;
  if (!allowed) return;
  memset(directions, allowed, step->rule->factor_count);
  vt_arena_reset(&p->scratch);
  (void)vt_step_apply(p->graph, step, directions, which, &p->scratch, &p->changes);
  p->changed = p->changed || p->changes.size;
  p->changes.size = 0;
}

static void from_users(pass *p, uint32_t value) {
  const vt_graph_value *v = &p->graph->values.data[value];
  uint32_t maker = v->copy_of == VT_NONE ? v->step : p->graph->values.data[v->copy_of].step;
  bool broadcast = maker != VT_NONE && is_broadcast(&p->graph->steps.data[maker]);
  if (broadcast && p->level < 2) return;
  for (uint32_t i = v->first_use; i != VT_NONE; i = p->graph->uses.data[i].after)
    apply(p, p->graph->uses.data[i].step, VT_TOWARDS_OPERANDS,
          (int32_t)p->graph->uses.data[i].slot);
}

static void run_level(pass *p) {
  const vt_graph *graph = p->graph;
  do {
    p->changed = false;
    for (uint32_t i = 0; i < graph->order_count; i++)
      apply(p, graph->order[i], VT_TOWARDS_RESULTS, VT_RESULTS);
    share_with_groups(p);
    for (size_t i = 0; i < graph->returns.size; i++)
      apply(p, graph->returns.data[i], VT_TOWARDS_BOTH, VT_ALL_TENSORS);
    for (uint32_t i = graph->order_count; i-- > 0;) {
      const vt_step *step = &graph->steps.data[graph->order[i]];
      for (uint32_t k = 0; k < step->result_count; k++) from_users(p, step->results[k]);
    }
    for (uint32_t v = (uint32_t)graph->values.size; v-- > 0;)
      if (graph->values.data[v].step == VT_NONE) from_users(p, v);
  } while (p->changed);
}

void vt_graph_propagate_gspmd(vt_graph *graph) {
  pass p = {.graph = graph};
  vt_arena own = {0};
  find_groups(&p, &own);
  for (; p.level < LEVELS; p.level++) run_level(&p);
  vt_array_free(&p.changes);
  vt_arena_free(&p.scratch);
  vt_arena_free(&own);
}
