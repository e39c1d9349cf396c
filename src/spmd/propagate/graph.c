// SPDX-License-Identifier: Apache-2.0
// graph.c - nodes and values of propagation, and shardings into and out of it.
//
// Meshes over the same devices in the same order are one: shardings are expressed in the axes of
// the mesh with the most axes among them, if all axes correspond to axes or parts of axes of it.
#include "spmd/propagate/graph.h"

#include <string.h>

#include "base/check.h"

uint32_t vt_graph_add_node(vt_graph *graph, vt_type type) {
  vt_node node = {.type = type,
                  .dims = VT_NEW_ARRAY(graph->arena, vt_axes, type.rank),
                  .step = VT_NONE,
                  .first_value = VT_NONE};
  vt_array_push_in(graph->arena, &graph->nodes, node);
  return (uint32_t)graph->nodes.size - 1;
}

uint32_t vt_graph_add_value(vt_graph *graph, uint32_t node, uint32_t block, vt_value *home) {
  vt_graph_value value = {.node = node,
                          .next_of_node = graph->nodes.data[node].first_value,
                          .step = VT_NONE,
                          .copy_of = VT_NONE,
                          .block = block,
                          .home = home,
                          .first_use = VT_NONE,
                          .last_use = VT_NONE};
  graph->nodes.data[node].first_value = (uint32_t)graph->values.size;
  vt_array_push_in(graph->arena, &graph->values, value);
  return (uint32_t)graph->values.size - 1;
}

uint32_t vt_graph_add_copy(vt_graph *graph, uint32_t value) {
  const vt_graph_value *v = &graph->values.data[value];
  uint32_t old = v->node, block = v->block;
  uint32_t node = vt_graph_add_node(graph, graph->nodes.data[old].type);
  uint32_t copy = vt_graph_add_value(graph, node, block, NULL);
  graph->nodes.data[node].group = graph->nodes.data[old].group;
  graph->values.data[copy].copy_of = value;
  return copy;
}

uint32_t vt_graph_add_step(vt_graph *graph, const vt_step *step, vt_value **const *where) {
  uint32_t index = (uint32_t)graph->steps.size, first_use = (uint32_t)graph->uses.size;
  vt_array_push_in(graph->arena, &graph->steps, *step);
  graph->steps.data[index].first_use = first_use;
  for (uint32_t i = 0; i < step->operand_count; i++) {
    vt_use use = {.step = index, .slot = i, .where = where ? where[i] : NULL};
    vt_array_push_in(graph->arena, &graph->uses, use);
    vt_graph_link_use(graph, first_use + i, step->operands[i]);
  }
  for (uint32_t i = 0; i < step->result_count; i++) {
    vt_graph_value *result = &graph->values.data[step->results[i]];
    result->step = index;
    graph->nodes.data[result->node].step = index;
  }
  return index;
}

void vt_graph_unlink_use(vt_graph *graph, uint32_t index) {
  const vt_use *use = &graph->uses.data[index];
  vt_graph_value *value = &graph->values.data[graph->steps.data[use->step].operands[use->slot]];
  *(use->before == VT_NONE ? &value->first_use : &graph->uses.data[use->before].after) = use->after;
  *(use->after == VT_NONE ? &value->last_use : &graph->uses.data[use->after].before) = use->before;
  value->use_count--;
}

void vt_graph_link_use(vt_graph *graph, uint32_t index, uint32_t to) {
  vt_use *use = &graph->uses.data[index];
  vt_graph_value *value = &graph->values.data[to];
  graph->steps.data[use->step].operands[use->slot] = to;
  use->before = value->last_use;
  use->after = VT_NONE;
  *(use->before == VT_NONE ? &value->first_use : &graph->uses.data[use->before].after) = index;
  value->last_use = index;
  value->use_count++;
}

// ---- meshes -------------------------------------------------------------------------------------

static bool same_devices(const vt_mesh *a, const vt_mesh *b) {
  if (!a->axis_count || !b->axis_count || vt_mesh_size(a) != vt_mesh_size(b) ||
      a->device_count != b->device_count)
    return false;
  return !a->device_count ||
         !memcmp(a->device_ids, b->device_ids, sizeof *a->device_ids * a->device_count);
}

// Appends the axes of `to` that move between the same devices as `ref` of `from`: their distances
// are those from ref's up to, but not including, its size times that. False: no axis or part of one
// begins or ends there.
static bool push_same(const vt_mesh *from, vt_axis_ref ref, const vt_mesh *to, vt_axis_list *list) {
  int64_t first, axis_first;
  (void)vt_mesh_coordinate(from, 0, ref, &first);
  int64_t limit = first * ref.size;
  for (uint32_t a = 0; a < to->axis_count; a++) {
    int64_t size = to->axes[a].size;
    (void)vt_mesh_coordinate(to, 0, (vt_axis_ref){a, 1, size}, &axis_first);
    int64_t axis_limit = axis_first * size;
    int64_t low = axis_first > first ? axis_first : first;
    int64_t high = axis_limit < limit ? axis_limit : limit;
    if (low >= high) continue;
    if (axis_limit % high || low % axis_first || high % low) return false;
    vt_axis_list_push(list, (vt_axis_ref){a, axis_limit / high, high / low});
  }
  return true;
}

static bool is_expressible(const vt_mesh *from, const vt_mesh *to) {
  for (uint32_t a = 0; a < from->axis_count; a++) {
    vt_axis_list list = {0};
    vt_axis_ref ref = {a, 1, from->axes[a].size};
    if (!push_same(from, ref, to, &list) || vt_axes_size(vt_axes_of(&list)) != ref.size)
      return false;
  }
  return true;
}

static uint32_t real_axes(const vt_mesh *mesh) {
  uint32_t count = 0;
  for (uint32_t a = 0; a < mesh->axis_count; a++) count += mesh->axes[a].size > 1;
  return count;
}

static const vt_mesh *main_mesh(const vt_graph *graph, const vt_mesh *mesh) {
  const vt_mesh *found = vt_map_find_ptr(&graph->main_meshes, mesh);
  return found ? found : mesh;
}

void vt_graph_init(vt_graph *graph, const vt_module *module, int32_t device_count,
                   vt_arena *arena) {
  *graph = (vt_graph){.arena = arena, .module = module, .device_count = device_count};
  for (uint32_t i = 0; i < module->mesh_count; i++) {
    const vt_mesh *mesh = module->meshes[i], *best = mesh;
    for (uint32_t k = 0; k < module->mesh_count; k++) {
      const vt_mesh *other = module->meshes[k];
      bool earlier = real_axes(other) == real_axes(best) && k < i && best == mesh;
      if (same_devices(mesh, other) && (real_axes(other) > real_axes(best) || earlier))
        best = other;
    }
    *vt_map_at_ptr(&graph->main_meshes, mesh) =
        (void *)(uintptr_t)(is_expressible(mesh, best) ? best : mesh);
  }
}

void vt_graph_free(vt_graph *graph) {
  vt_map_free(&graph->rules);
  vt_map_free(&graph->main_meshes);
  vt_arena_free(&graph->building);
}

vt_axes vt_graph_axes(vt_graph *graph, const vt_mesh *mesh, uint32_t count,
                      const vt_axis_ref *refs) {
  vt_axis_list list = {0};
  const vt_mesh *to = main_mesh(graph, mesh);
  for (uint32_t i = 0; i < count; i++) {
    if (refs[i].size == 1) continue;
    if (to == mesh)
      vt_axis_list_push(&list, refs[i]);
    else
      (void)push_same(mesh, refs[i], to, &list);
  }
  return vt_axes_copy(graph->arena, vt_axes_of(&list));
}

// ---- shardings in and out -----------------------------------------------------------------------

// Axes of a dimension with a priority above 0 wait; until then they may not be used elsewhere.
static void postpone(vt_graph *graph, uint32_t id, int32_t d, int64_t priority, vt_axes axes,
                     bool closed) {
  vt_node *node = &graph->nodes.data[id];
  vt_axis_list all = {0};
  vt_later later = {priority, id, d, axes, closed};
  vt_array_push_in(graph->arena, &graph->later, later);
  for (uint32_t i = 0; i < node->replicated.count; i++)
    vt_axis_list_push(&all, node->replicated.refs[i]);
  for (uint32_t i = 0; i < axes.count; i++) vt_axis_list_push(&all, axes.refs[i]);
  node->replicated = vt_axes_copy(graph->arena, vt_axes_of(&all));
  node->closed |= 1u << d;
}

void vt_graph_seed(vt_graph *graph, uint32_t id, const vt_sharding *s) {
  vt_assert(id < graph->nodes.size);
  vt_node *node = &graph->nodes.data[id];
  if (!s) return;
  node->mesh = main_mesh(graph, s->mesh);
  node->reduction = s->reduction;
  if (s->rank != node->type.rank) { // on one device
    node->closed = 0xffffffff;
    return;
  }
  node->replicated = vt_graph_axes(graph, s->mesh, s->replicated_count, s->replicated);
  node->unreduced = vt_graph_axes(graph, s->mesh, s->unreduced_count, s->unreduced);
  for (int32_t d = 0; d < s->rank; d++) {
    const vt_dim_sharding *dim = &s->dims[d];
    vt_axes axes = vt_graph_axes(graph, s->mesh, dim->axis_count, dim->axes);
    node->dims[d] = (vt_axes){0};
    if (dim->priority > 0) {
      postpone(graph, id, d, dim->priority, axes, dim->closed);
    } else {
      node->dims[d] = axes;
      if (dim->closed) node->closed |= 1u << d;
    }
  }
}

static vt_axes axes_at(const vt_node *node, int32_t d, vt_place place, vt_axis_list *list) {
  int64_t size = node->type.dims[d];
  if (place == VT_INSIDE) return node->dims[d];
  if (size % vt_axes_size(node->dims[d]))
    *list = vt_axes_dividing(node->dims[d], size);
  else
    for (uint32_t i = 0; i < node->dims[d].count; i++)
      vt_axis_list_push(list, node->dims[d].refs[i]);
  if (place == VT_AT_MAIN && !(node->closed >> d & 1))
    for (uint32_t i = 0; i < list->count; i++)
      if (list->refs[i].size != node->mesh->axes[list->refs[i].axis].size) list->count = i;
  return vt_axes_of(list);
}

static bool is_uncut(const vt_node *node) {
  for (int32_t d = 0; d < node->type.rank; d++)
    if (node->dims[d].count) return false;
  return !node->unreduced.count;
}

const vt_sharding *vt_graph_sharding(const vt_graph *graph, uint32_t id, vt_place place,
                                     vt_arena *arena) {
  vt_assert(id < graph->nodes.size);
  const vt_node *node = &graph->nodes.data[id];
  if (!node->mesh || !node->mesh->axis_count || is_uncut(node)) return NULL;
  vt_sharding *s = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, node->type.rank);
  bool any = false;
  for (int32_t d = 0; d < node->type.rank; d++) {
    vt_axis_list list;
    list.count = 0;
    vt_axes axes = vt_axes_copy(arena, axes_at(node, d, place, &list));
    dims[d] = (vt_dim_sharding){axes.count, axes.refs, true, -1};
    any = any || axes.count;
  }
  *s = (vt_sharding){
      .kind = VT_SHARDING_MESH, .mesh = node->mesh, .rank = node->type.rank, .dims = dims};
  vt_axes unreduced = vt_axes_copy(arena, node->unreduced);
  s->unreduced_count = unreduced.count;
  s->unreduced = unreduced.refs;
  s->reduction = node->reduction;
  return any || unreduced.count ? s : NULL;
}

const vt_sharding *vt_graph_outer_sharding(const vt_graph *graph, uint32_t id, vt_type type,
                                           vt_arena *arena) {
  vt_node outer = graph->nodes.data[id];
  const vt_axes *manual = graph->steps.data[outer.step].manual;
  outer.type = type;
  outer.dims = VT_NEW_ARRAY(arena, vt_axes, type.rank);
  vt_sharding *s = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, type.rank);
  for (int32_t d = 0; d < type.rank; d++) {
    vt_axis_list all = {0}, list = {0};
    const vt_axes *inner = &graph->nodes.data[id].dims[d];
    for (uint32_t i = 0; manual && i < manual[d].count; i++)
      vt_axis_list_push(&all, manual[d].refs[i]);
    for (uint32_t i = 0; i < inner->count; i++) vt_axis_list_push(&all, inner->refs[i]);
    outer.dims[d] = vt_axes_of(&all);
    vt_axes axes = vt_axes_copy(arena, axes_at(&outer, d, VT_AT_REGION, &list));
    dims[d] = (vt_dim_sharding){axes.count, axes.refs, true, -1};
  }
  vt_axes unreduced = vt_axes_copy(arena, outer.unreduced);
  *s = (vt_sharding){.kind = VT_SHARDING_MESH,
                     .mesh = outer.mesh,
                     .rank = type.rank,
                     .dims = dims,
                     .unreduced_count = unreduced.count,
                     .unreduced = unreduced.refs,
                     .reduction = outer.reduction};
  return s;
}
