// SPDX-License-Identifier: Apache-2.0
// graph.c - nodes, and the application of rules until nothing changes.
//
// One rule: each dimension's axes are split into the axes of its factors. For each factor the
// tensors agree on the longest list of axes that none of them contradicts. Every tensor then takes
// as many of them as it can, factors with the larger source tensor first (then the earlier source,
// then the earlier factor), up to the first axis that it already uses. This is Shardy's aggressive
// strategy; pass-through rules are applied first.
#include "base/check.h"
#include "spmd/graph.h"

#include <string.h>

enum { MAX_NODES = 1 << 20 };

uint32_t vt_graph_add_node(vt_graph *graph, vt_type type) {
  if (graph->nodes.size >= MAX_NODES) {
    graph->too_large = true;
    return 0;
  }
  vt_graph_tensor node = {.type = type,
                          .dims = VT_NEW_ARRAY(graph->arena, vt_atom_list, type.rank)};
  vt_array_push_in(graph->arena, &graph->nodes, node);
  return (uint32_t)graph->nodes.size - 1;
}

static int64_t stride_of(const vt_mesh *mesh, vt_axis_ref ref) {
  int64_t stride;
  (void)vt_mesh_coordinate(mesh, 0, ref, &stride);
  return stride;
}

// Appends the atoms of an axis or sub-axis: those that move between the same devices, so that it
// may be an axis of another mesh over the devices in the same order. False when the sub-axis does
// not fall on atom boundaries.
static bool push_atoms(const vt_graph *graph, const vt_mesh *mesh, vt_axis_ref ref,
                       vt_atom_list *list, uint32_t *used) {
  vt_assert(graph->atom_count <= VT_MAX_ATOMS && ref.axis < mesh->axis_count);
  int64_t first = stride_of(mesh, ref), product = 1;
  for (uint8_t i = 0; i < graph->atom_count; i++) {
    vt_atom atom = graph->atoms[i];
    int64_t stride = stride_of(graph->mesh, (vt_axis_ref){atom.axis, atom.pre_size, atom.size});
    if (stride < first || stride >= first * ref.size) continue;
    if (list && list->count < VT_MAX_ATOMS) list->atoms[list->count++] = i;
    *used |= 1u << i;
    product *= atom.size;
  }
  return product == ref.size;
}

static bool same_devices(const vt_mesh *a, const vt_mesh *b) {
  if (a == b) return true;
  if (!a || !b || vt_mesh_size(a) != vt_mesh_size(b) || a->device_count != b->device_count)
    return false;
  return !a->device_count ||
         !memcmp(a->device_ids, b->device_ids, sizeof *a->device_ids * a->device_count);
}

void vt_graph_seed(vt_graph *graph, uint32_t id, const vt_sharding *s) {
  vt_assert(id < graph->nodes.size);
  vt_graph_tensor *node = &graph->nodes.data[id];
  if (!s || s->rank != node->type.rank) return;
  bool ours = same_devices(s->mesh, graph->mesh);
  for (int32_t d = 0; d < s->rank; d++) {
    bool whole = ours || !s->dims[d].axis_count; // a mesh without axes only says open or closed
    for (uint32_t i = 0; whole && i < s->dims[d].axis_count; i++)
      whole = push_atoms(graph, s->mesh, s->dims[d].axes[i], &node->dims[d], &node->used);
    if (s->dims[d].closed || !whole) node->closed |= 1u << d;
  }
  for (uint32_t i = 0; ours && i < s->replicated_count; i++)
    (void)push_atoms(graph, s->mesh, s->replicated[i], NULL, &node->used);
  for (uint32_t i = 0; ours && i < s->unreduced_count; i++)
    (void)push_atoms(graph, s->mesh, s->unreduced[i], NULL, &node->used);
}

static int64_t atom_size(const vt_graph *graph, uint8_t atom) {
  return graph->atoms[atom].size;
}

// Where the axis of atom `at` of the list ends: axes are not split over factors. out_size gets the
// product of its atoms.
static uint32_t end_of_axis(const vt_graph *graph, const vt_atom_list *list, uint32_t at,
                            int64_t *out_size) {
  vt_assert(at < list->count && list->count <= VT_MAX_ATOMS);
  uint32_t axis = graph->atoms[list->atoms[at]].axis;
  *out_size = 1;
  for (; at < list->count && graph->atoms[list->atoms[at]].axis == axis; at++)
    *out_size *= atom_size(graph, list->atoms[at]);
  return at;
}

// The number of leading atoms, in whole axes, whose product divides the size.
static uint32_t divisible(const vt_graph *graph, const vt_atom_list *list, int64_t size) {
  vt_assert(list->count <= VT_MAX_ATOMS && size >= 0);
  int64_t whole = 1, axis;
  for (uint32_t at = 0, end; at < list->count; at = end) {
    end = end_of_axis(graph, list, at, &axis);
    whole *= axis;
    if (size % whole) return at;
  }
  return list->count;
}

const vt_sharding *vt_graph_sharding(const vt_graph *graph, uint32_t id, vt_arena *arena) {
  vt_assert(id < graph->nodes.size);
  const vt_graph_tensor *node = &graph->nodes.data[id];
  vt_sharding *s = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, node->type.rank);
  bool any = false;
  for (int32_t d = 0; d < node->type.rank; d++) {
    vt_axis_ref *refs = VT_NEW_ARRAY(arena, vt_axis_ref, node->dims[d].count);
    uint32_t n = 0;
    for (uint32_t i = 0; i < divisible(graph, &node->dims[d], node->type.dims[d]); i++) {
      vt_atom atom = graph->atoms[node->dims[d].atoms[i]];
      vt_axis_ref *last = n ? &refs[n - 1] : NULL;
      if (last && last->axis == atom.axis && last->pre_size * last->size == atom.pre_size)
        last->size *= atom.size;
      else
        refs[n++] = (vt_axis_ref){atom.axis, atom.pre_size, atom.size};
    }
    dims[d] = (vt_dim_sharding){n, refs, true, -1};
    any = any || n;
  }
  *s = (vt_sharding){
      .kind = VT_SHARDING_MESH, .mesh = graph->mesh, .rank = node->type.rank, .dims = dims};
  return any ? s : NULL;
}

// ---- one rule -----------------------------------------------------------------------------------

typedef struct candidate {
  vt_atom_list axes;
  bool final;      // tensors contradict each other after it
  uint32_t source; // tensor that holds it
} candidate;

// The part of a dimension's axes that belongs to entry `which` of the dimension's `n` entries.
// `out_room` is false when axes of the dimension follow the part, or an earlier part is not filled.
static vt_atom_list part_of_dim(const vt_graph *graph, const vt_rule *rule, const vt_atom_list *dim,
                                const vt_dim_factor *entries, uint32_t n, uint32_t which,
                                uint32_t ignored, bool *out_room) {
  vt_atom_list part = {0};
  uint32_t at = 0;
  *out_room = false;
  while (at < dim->count && ignored >> dim->atoms[at] & 1) at++;
  for (uint32_t e = 0; e < n; e++) {
    int64_t left = n == 1 ? INT64_MAX : rule->sizes[entries[e].factor];
    part.count = 0;
    while (at < dim->count) {
      int64_t size;
      uint32_t end = end_of_axis(graph, dim, at, &size);
      if (n > 1 && (left == 1 || left % size)) break;
      if (n > 1) left /= size;
      while (at < end) part.atoms[part.count++] = dim->atoms[at++];
    }
    if (e == which) {
      *out_room = at == dim->count;
      return part;
    }
    if (left > 1) break;
  }
  part.count = 0;
  return part;
}

// The entries of the dimension that holds entry `i`, and the position of `i` among them.
static const vt_dim_factor *dim_entries(const vt_dim_factor *entries, uint32_t count, uint32_t i,
                                        uint32_t *out_n, uint32_t *out_which) {
  uint32_t first = i, end = i + 1;
  while (first > 0 && entries[first - 1].dim == entries[i].dim) first--;
  while (end < count && entries[end].dim == entries[i].dim) end++;
  *out_n = end - first;
  *out_which = i - first;
  return entries + first;
}

static void agree(candidate *c, const vt_atom_list *list, uint32_t tensor) {
  uint32_t same = 0;
  while (same < c->axes.count && same < list->count && c->axes.atoms[same] == list->atoms[same])
    same++;
  if (same == list->count) return; // nothing new
  if (same < c->axes.count) {
    c->axes.count = (uint8_t)same;
    c->final = true;
  } else if (!c->final) {
    c->axes = *list;
    c->source = tensor;
  }
}

static void find_candidates(const vt_graph *graph, const vt_rule *rule, candidate *candidates) {
  const vt_dim_factor *entries = rule->entries;
  for (uint32_t t = 0; t < rule->tensor_count; entries += rule->counts[t++]) {
    const vt_graph_tensor *node = &graph->nodes.data[rule->nodes[t]];
    for (uint32_t i = 0; i < rule->counts[t]; i++) {
      uint32_t n, which;
      bool room;
      const vt_dim_factor *dim = dim_entries(entries, rule->counts[t], i, &n, &which);
      vt_atom_list part = part_of_dim(graph, rule, &node->dims[entries[i].dim], dim, n, which,
                                      t ? 0 : rule->ignored, &room);
      agree(&candidates[entries[i].factor], &part, t);
    }
  }
}

// Larger source tensor first, then the earlier source, then the earlier factor.
static bool goes_before(const vt_graph *graph, const vt_rule *rule, const candidate *c, uint8_t a,
                        uint8_t b) {
  int64_t x = vt_type_elements(graph->nodes.data[rule->nodes[c[a].source]].type);
  int64_t y = vt_type_elements(graph->nodes.data[rule->nodes[c[b].source]].type);
  if (x != y) return x > y;
  if (c[a].source != c[b].source) return c[a].source < c[b].source;
  return a < b;
}

static bool extend(vt_graph *graph, const vt_rule *rule, uint32_t t, const vt_dim_factor *entries,
                   uint32_t i, const vt_atom_list *axes) {
  vt_graph_tensor *node = &graph->nodes.data[rule->nodes[t]];
  uint8_t d = entries[i].dim;
  uint32_t n, which;
  bool room;
  const vt_dim_factor *of_dim = dim_entries(entries, rule->counts[t], i, &n, &which);
  vt_atom_list *dim = &node->dims[d];
  if (node->closed >> d & 1) return false;
  vt_atom_list part = part_of_dim(graph, rule, dim, of_dim, n, which, t ? 0 : rule->ignored, &room);
  if (!room || part.count >= axes->count || memcmp(part.atoms, axes->atoms, part.count))
    return false;
  int64_t whole = 1, factor = 1;
  for (uint32_t k = 0; k < dim->count; k++) whole *= atom_size(graph, dim->atoms[k]);
  for (uint32_t k = 0; k < part.count; k++) factor *= atom_size(graph, part.atoms[k]);
  bool changed = false;
  for (uint32_t k = part.count; k < axes->count;) {
    int64_t size;
    uint32_t end = end_of_axis(graph, axes, k, &size), mask = 0;
    for (uint32_t a = k; a < end; a++) mask |= 1u << axes->atoms[a];
    whole *= size;
    factor *= size;
    if ((node->used | rule->ignored) & mask || dim->count + (end - k) > VT_MAX_ATOMS) break;
    if (whole > node->type.dims[d] || (n > 1 && rule->sizes[entries[i].factor] % factor)) break;
    for (; k < end; k++) dim->atoms[dim->count++] = axes->atoms[k];
    node->used |= mask;
    changed = true;
  }
  return changed;
}

static bool apply(vt_graph *graph, const vt_rule *rule, candidate *candidates, uint8_t *order) {
  bool any = false, changed = false;
  memset(candidates, 0, sizeof *candidates * rule->factor_count);
  find_candidates(graph, rule, candidates);
  uint32_t live = 0;
  for (uint32_t f = 0; f < rule->factor_count; f++) {
    if (!candidates[f].axes.count) continue;
    uint32_t at = live++;
    for (; at > 0 && goes_before(graph, rule, candidates, (uint8_t)f, order[at - 1]); at--)
      order[at] = order[at - 1];
    order[at] = (uint8_t)f;
    any = true;
  }
  const vt_dim_factor *entries = rule->entries;
  for (uint32_t t = 0; any && t < rule->tensor_count; entries += rule->counts[t++])
    for (uint32_t k = 0; k < live; k++)
      for (uint32_t i = 0; i < rule->counts[t]; i++)
        if (entries[i].factor == order[k] &&
            extend(graph, rule, t, entries, i, &candidates[order[k]].axes))
          changed = true;
  return changed;
}

void vt_graph_propagate(vt_graph *graph) {
  candidate candidates[256];
  uint8_t order[256];
  for (int pass = 0; pass < 2; pass++) {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < graph->rules.size; i++)
        if (pass || graph->rules.data[i].pass_through)
          changed = apply(graph, &graph->rules.data[i], candidates, order) || changed;
      for (size_t i = graph->rules.size; i-- > 0;)
        if (pass || graph->rules.data[i].pass_through)
          changed = apply(graph, &graph->rules.data[i], candidates, order) || changed;
    }
  }
}
