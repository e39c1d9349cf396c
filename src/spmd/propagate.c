// SPDX-License-Identifier: Apache-2.0
// propagate.c - turns a module into a graph of tensors and rules; results that the program leaves
// open get the graph's shardings.
//
// Calls are entered once per call site, so that a function used twice may be sharded in two ways.
// Each carried value of a loop is one tensor. Tensors and calls beyond a limit are left out,
// because call trees can be exponential.
#include "spmd/propagate.h"

#include <string.h>

#include "spmd/graph.h"

enum { MAX_DEPTH = 200, MAX_STEPS = 1 << 22 };

typedef struct walker {
  vt_graph graph;
  vt_map groups; // sharding_group id -> node + 1
  int depth, steps, manual;
  vt_looks *looks; // NULL = not recorded
} walker;

static void walk_func(walker *w, const vt_func *func, const uint32_t *params, uint32_t *returns);

static uint32_t node_of(const vt_map *nodes, const vt_value *value) {
  void *found = vt_map_find_ptr(nodes, value); // absent only after the walk was cut short
  return found ? (uint32_t)((uintptr_t)found - 1) : 0;
}

// Constants and values computed only from them are separate nodes for each use, as uses are
// independent.
static bool is_constant_op(const vt_op *op, const vt_map *constants) {
  if (op->code == VT_OP_CONSTANT || op->code == VT_OP_IOTA) return true;
  bool moves = op->code == VT_OP_BROADCAST_IN_DIM || op->code == VT_OP_BROADCAST ||
               op->code == VT_OP_RESHAPE || op->code == VT_OP_SLICE ||
               vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE;
  for (uint32_t i = 0; moves && i < op->operand_count; i++)
    moves = vt_map_find_ptr(constants, op->operands[i]) != NULL;
  return moves && !vt_op_attr(op, VT_ATTR_SHARDING);
}

static void tie_two(walker *w, uint32_t a, uint32_t b) {
  if (a != b) vt_graph_tie(&w->graph, 2, (uint32_t[]){a, b});
}

static const vt_sharding *op_sharding(const vt_op *op, vt_attr_key key, uint32_t i) {
  const vt_attr *attr = vt_op_attr(op, key);
  return attr && i < attr->count ? attr->shardings[i] : NULL;
}

// Carried values: operands, loop parameters, the body's results. The condition only reads.
static void walk_while(walker *w, const vt_op *op, uint32_t *operands, const uint32_t *results) {
  uint32_t own = vt_op_own_operands(op);
  uint32_t *returns = VT_NEW_ARRAY(w->graph.arena, uint32_t, own + 1);
  for (uint32_t i = 0; i < own; i++) {
    tie_two(w, operands[i], results[i]);
    operands[i] = results[i]; // parameters of both regions
  }
  walk_func(w, op->regions[0], operands, returns);
  walk_func(w, op->regions[1], operands, returns);
  for (uint32_t i = 0; i < own; i++) tie_two(w, returns[i], results[i]);
}

static void walk_branches(walker *w, const vt_op *op, const uint32_t *operands,
                          const uint32_t *results) {
  uint32_t *returns = VT_NEW_ARRAY(w->graph.arena, uint32_t, op->result_count);
  for (uint32_t r = 0; r < op->region_count; r++) {
    walk_func(w, op->regions[r], operands + vt_op_own_operands(op), returns);
    for (uint32_t i = 0; i < op->result_count; i++) tie_two(w, returns[i], results[i]);
  }
}

static uint32_t manual_atoms(const walker *w, const vt_op *op) {
  const vt_attr *names = vt_op_attr(op, VT_ATTR_MANUAL_AXES);
  uint32_t atoms = 0;
  for (uint8_t a = 0; a < w->graph.atom_count; a++)
    for (uint32_t i = 0; i < names->count; i++)
      if (!strcmp(names->strings[i].data, w->graph.mesh->axes[w->graph.atoms[a].axis].name))
        atoms |= 1u << a;
  return atoms;
}

// Global and local view of a value: the same dimensions, without the manual axes in the local one.
static void tie_manual(walker *w, uint32_t global, uint32_t local, uint32_t ignored) {
  size_t before = w->graph.rules.size;
  w->graph.nodes.data[local].used |= ignored;
  vt_graph_tie(&w->graph, 2, (uint32_t[]){global, local});
  if (w->graph.rules.size > before) w->graph.rules.data[before].ignored = ignored;
}

// Each operand and result passes through an edge with the given sharding.
static void walk_manual(walker *w, const vt_op *op, uint32_t *operands, const uint32_t *results) {
  vt_arena *arena = w->graph.arena;
  const vt_func *body = op->regions[0];
  uint32_t own = vt_op_own_operands(op), ignored = manual_atoms(w, op);
  uint32_t *returns = VT_NEW_ARRAY(arena, uint32_t, op->result_count);
  for (uint32_t i = 0; i < own; i++) {
    uint32_t edge = vt_graph_add_node(&w->graph, op->operands[i]->type);
    uint32_t local = vt_graph_add_node(&w->graph, body->params[i]->type);
    vt_graph_seed(&w->graph, edge, op_sharding(op, VT_ATTR_IN_SHARDINGS, i));
    tie_two(w, operands[i], edge);
    tie_manual(w, edge, local, ignored);
    operands[i] = local;
  }
  w->manual++;
  walk_func(w, body, operands, returns);
  w->manual--;
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_graph_seed(&w->graph, results[i], op_sharding(op, VT_ATTR_OUT_SHARDINGS, i));
    tie_manual(w, results[i], returns[i], ignored);
  }
}

static void walk_group(walker *w, const vt_op *op, uint32_t node) {
  int64_t id = vt_attr_i64(op, VT_ATTR_GROUP_ID);
  void **first = vt_map_at(&w->groups, &id, sizeof id);
  if (*first)
    tie_two(w, (uint32_t)((uintptr_t)*first - 1), node);
  else
    *first = (void *)((uintptr_t)node + 1);
}

static bool looks_at(const vt_op *op) {
  static const char target[] = "InspectSharding";
  vt_string name = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME);
  return op->code == VT_OP_CUSTOM_CALL && vt_op_own_operands(op) == 1 &&
         name.size == sizeof target - 1 && !memcmp(name.data, target, name.size);
}

static void walk_op(walker *w, const vt_op *op, uint32_t *nodes, uint32_t *results) {
  bool enter = w->depth < MAX_DEPTH && !w->graph.too_large;
  if (vt_op_callee(op) && enter) {
    walk_func(w, vt_op_callee(op), nodes, results);
    return;
  }
  for (uint32_t i = 0; i < op->result_count; i++) {
    results[i] = vt_graph_add_node(&w->graph, op->results[i].type);
    if (op->code != VT_OP_MANUAL_COMPUTATION)
      vt_graph_seed(&w->graph, results[i], op_sharding(op, VT_ATTR_SHARDING, i));
  }
  if (!enter) return;
  switch (op->code) {
  case VT_OP_WHILE:
    walk_while(w, op, nodes, results);
    break;
  case VT_OP_IF:
  case VT_OP_CASE:
    walk_branches(w, op, nodes, results);
    break;
  case VT_OP_MANUAL_COMPUTATION:
    walk_manual(w, op, nodes, results);
    break;
  case VT_OP_SHARDING_GROUP:
    walk_group(w, op, nodes[0]);
    break;
  case VT_OP_OPTIMIZATION_BARRIER:
    for (uint32_t i = 0; i < op->result_count; i++) tie_two(w, nodes[i], results[i]);
    break;
  default: {
    uint32_t own = vt_op_own_operands(op);
    uint32_t *both = VT_NEW_ARRAY(w->graph.arena, uint32_t, own + op->result_count);
    memcpy(both, nodes, own * sizeof *both);
    memcpy(both + own, results, op->result_count * sizeof *both);
    vt_graph_add_op(&w->graph, op, both);
    if (w->looks && looks_at(op)) {
      vt_look look = {.op = op, .node = both[0], .manual = w->manual > 0};
      vt_array_push(w->looks, look);
    }
  }
  }
}

static void walk_func(walker *w, const vt_func *func, const uint32_t *params, uint32_t *returns) {
  vt_map nodes = {0}, constants = {0}, grouped = {0};
  w->depth++;
  // A constant in a sharding group is one array for all its uses: the group decides for it.
  for (const vt_op *op = func->first; op; op = op->next)
    if (op->code == VT_OP_SHARDING_GROUP) *vt_map_at_ptr(&grouped, op->operands[0]) = w;
  if (++w->steps > MAX_STEPS) w->graph.too_large = true;
  for (uint32_t i = 0; i < func->param_count; i++)
    *vt_map_at_ptr(&nodes, func->params[i]) = (void *)((uintptr_t)params[i] + 1);
  for (const vt_op *op = func->first; op && !w->graph.too_large; op = op->next) {
    if (++w->steps > MAX_STEPS) w->graph.too_large = true;
    uint32_t *operands = VT_NEW_ARRAY(w->graph.arena, uint32_t, op->operand_count);
    uint32_t *results = VT_NEW_ARRAY(w->graph.arena, uint32_t, op->result_count);
    if (is_constant_op(op, &constants) && !vt_map_find_ptr(&grouped, &op->results[0]))
      *vt_map_at_ptr(&constants, &op->results[0]) = w;
    for (uint32_t i = 0; i < op->operand_count; i++) {
      bool constant = vt_map_find_ptr(&constants, op->operands[i]) != NULL;
      operands[i] = constant ? vt_graph_add_node(&w->graph, op->operands[i]->type)
                             : node_of(&nodes, op->operands[i]);
    }
    walk_op(w, op, operands, results);
    for (uint32_t i = 0; i < op->result_count; i++)
      *vt_map_at_ptr(&nodes, &op->results[i]) = (void *)((uintptr_t)results[i] + 1);
  }
  for (uint32_t i = 0; i < func->return_count; i++) returns[i] = node_of(&nodes, func->returns[i]);
  w->depth--;
  vt_map_free(&nodes);
  vt_map_free(&grouped);
  vt_map_free(&constants);
}

// ---- the mesh -----------------------------------------------------------------------------------

// The mesh used for propagation: the module's first with axes over all devices.
static const vt_mesh *find_mesh(const vt_module *module, int32_t device_count) {
  for (uint32_t i = 0; i < module->mesh_count; i++) {
    int64_t size = 1;
    for (uint32_t a = 0; a < module->meshes[i]->axis_count; a++)
      size *= module->meshes[i]->axes[a].size;
    if (size == device_count) return module->meshes[i];
  }
  return NULL;
}

static bool cut_mesh(vt_graph *graph) {
  for (uint32_t a = 0; a < graph->mesh->axis_count; a++) {
    int64_t rest = graph->mesh->axes[a].size, pre = 1;
    for (int64_t p = 2; rest > 1; p++) {
      if (p * p > rest) p = rest;
      for (; rest % p == 0; rest /= p, pre *= p) {
        if (graph->atom_count == VT_MAX_ATOMS) return false;
        graph->atoms[graph->atom_count++] = (vt_atom){a, pre, p};
      }
    }
  }
  return true;
}

static bool is_closed(const vt_sharding *s) {
  for (int32_t d = 0; s && d < s->rank; d++)
    if (!s->dims[d].closed) return false;
  return s != NULL;
}

// Fills in the open entries of `results`.
// The propagated sharding of a result, with the program's unreduced axes.
static const vt_sharding *found_sharding(walker *w, uint32_t node, const vt_sharding *said,
                                         vt_arena *arena) {
  const vt_sharding *found = vt_graph_sharding(&w->graph, node, arena);
  if (!said || !said->unreduced_count) return found;
  if (!found) return said;
  vt_sharding *both = VT_NEW(arena, vt_sharding);
  *both = *found;
  both->unreduced_count = said->unreduced_count;
  both->unreduced = said->unreduced;
  both->reduction = said->reduction;
  return both;
}

static void propagate_main(walker *w, const vt_func *main, vt_arena *arena,
                           const vt_sharding **results) {
  uint32_t *params = VT_NEW_ARRAY(w->graph.arena, uint32_t, main->param_count);
  uint32_t *returns = VT_NEW_ARRAY(w->graph.arena, uint32_t, main->return_count);
  uint32_t *outputs = VT_NEW_ARRAY(w->graph.arena, uint32_t, main->return_count);
  for (uint32_t i = 0; i < main->param_count; i++) {
    params[i] = vt_graph_add_node(&w->graph, main->params[i]->type);
    if (main->param_info) vt_graph_seed(&w->graph, params[i], main->param_info[i].sharding);
  }
  walk_func(w, main, params, returns);
  for (uint32_t i = 0; i < main->return_count; i++) {
    outputs[i] = vt_graph_add_node(&w->graph, main->returns[i]->type);
    if (main->return_info) vt_graph_seed(&w->graph, outputs[i], main->return_info[i].sharding);
    tie_two(w, returns[i], outputs[i]);
  }
  if (w->graph.too_large) return;
  vt_graph_propagate(&w->graph);
  for (uint32_t i = 0; i < main->return_count; i++)
    if (!is_closed(results[i]) && (!results[i] || results[i]->mesh == w->graph.mesh))
      results[i] = found_sharding(w, outputs[i], results[i], arena);
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
  walker w = {.graph = {.arena = &scratch, .mesh = find_mesh(module, device_count)},
              .looks = out_looks};
  const vt_sharding **results =
      VT_NEW_ARRAY(&scratch, const vt_sharding *, module->main->return_count);
  bool cut = w.graph.mesh && cut_mesh(&w.graph);
  propagate_main(&w, module->main, arena, results);
  for (size_t i = 0; cut && !w.graph.too_large && i < out_looks->size; i++)
    out_looks->data[i].sharding = vt_graph_sharding(&w.graph, out_looks->data[i].node, arena);
  vt_map_free(&w.groups);
  vt_arena_free(&scratch);
}

void vt_spmd_propagate(const vt_module *module, int32_t device_count, vt_arena *arena,
                       const vt_sharding **out_params, const vt_sharding **out_results) {
  const vt_func *main = module->main;
  bool open = false;
  for (uint32_t i = 0; i < main->param_count; i++)
    out_params[i] = main->param_info ? main->param_info[i].sharding : NULL;
  for (uint32_t i = 0; i < main->return_count; i++) {
    out_results[i] = main->return_info ? main->return_info[i].sharding : NULL;
    open = open || !is_closed(out_results[i]);
  }
  vt_arena scratch = {0};
  walker w = {.graph = {.arena = &scratch, .mesh = find_mesh(module, device_count)}};
  if (device_count > 1 && open && w.graph.mesh && cut_mesh(&w.graph))
    propagate_main(&w, main, arena, out_results);
  vt_map_free(&w.groups);
  vt_arena_free(&scratch);
}
