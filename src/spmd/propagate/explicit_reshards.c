// SPDX-License-Identifier: Apache-2.0
// explicit_reshards.c - reshards that Shardy writes down where a partitioner would choose badly.
//
// A dot whose operands agree, and whose result is cut by exactly the contracted axes in one
// dimension that an operand cuts by others, is done as the operands are cut: a smaller block is
// reduced and then moved, instead of an operand gathered. A concatenation is done under one
// sharding, the one that most elements have; axes of the joined dimension go to other dimensions
// where they fit, unless it is a roll.
#include <string.h>

#include "base/check.h"
#include "spmd/propagate/propagate.h"

typedef struct tensor {
  vt_value *value;
  const vt_sharding *sharding;
} tensor;

static vt_axes axes_of(const vt_sharding *s, int32_t dim) {
  return (vt_axes){s->dims[dim].axis_count, s->dims[dim].axes};
}

static bool same_dims(const vt_sharding *a, const vt_sharding *b) {
  for (int32_t d = 0; d < a->rank; d++)
    if (!vt_axes_equal(axes_of(a, d), axes_of(b, d))) return false;
  return true;
}

// Whether a dimension is cut by axes along which the value is unreduced: it cannot be both.
static bool cuts_unreduced(const vt_sharding *s) {
  for (int32_t d = 0; d < s->rank; d++)
    for (uint32_t i = 0; i < s->dims[d].axis_count; i++)
      for (uint32_t k = 0; k < s->unreduced_count; k++)
        if (vt_axis_overlaps(s->dims[d].axes[i], s->unreduced[k])) return true;
  return false;
}

// The sharding with other axes in its dimensions.
static const vt_sharding *with_dims(vt_arena *arena, const vt_sharding *s,
                                    const vt_axis_list *dims) {
  vt_sharding *copy = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *list = VT_NEW_ARRAY(arena, vt_dim_sharding, s->rank);
  for (int32_t d = 0; d < s->rank; d++) {
    vt_axes axes = vt_axes_copy(arena, vt_axes_of(&dims[d]));
    list[d] = (vt_dim_sharding){axes.count, axes.refs, true, -1};
  }
  *copy = *s;
  copy->dims = list;
  if (cuts_unreduced(copy)) copy->unreduced_count = 0;
  return copy;
}

static const vt_sharding *uncut(vt_arena *arena, const vt_mesh *mesh, int32_t rank) {
  vt_sharding *s = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, rank);
  for (int32_t d = 0; d < rank; d++) dims[d] = (vt_dim_sharding){.closed = true, .priority = -1};
  *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = mesh, .rank = rank, .dims = dims};
  return s;
}

static void set_sharding(vt_op *op, const vt_sharding *sharding) {
  const vt_sharding **list = VT_NEW_ARRAY(&op->func->module->arena, const vt_sharding *, 1);
  list[0] = sharding;
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_SHARDING, .count = 1, .shardings = list});
}

static vt_op *new_reshard(vt_op *before, vt_value *value, const vt_sharding *sharding) {
  vt_value *made = vt_build(value->func, before, VT_OP_SHARDING_CONSTRAINT,
                            value->op ? value->op->loc : NULL, value->type, 1, &value);
  set_sharding(made->op, sharding);
  return made->op;
}

// The op computes under `sharding`; its users get what they had.
static void reshard_result(vt_op *op, const vt_sharding *from, const vt_sharding *sharding) {
  vt_op *reshard = new_reshard(op->next, &op->results[0], from);
  vt_value_replace(&op->results[0], &reshard->results[0]);
  reshard->operands[0] = &op->results[0];
  set_sharding(op, sharding);
}

// ---- dots ---------------------------------------------------------------------------------------

// A factor of the dot: its dimension in each tensor, -1 = none.
typedef struct dot_factor {
  int32_t dims[3];
  bool contracted;
} dot_factor;

static uint32_t dot_factors(const vt_rule *rule, dot_factor *factors) {
  for (uint32_t f = 0; f < rule->factor_count; f++)
    factors[f] = (dot_factor){{-1, -1, -1}, rule->factors[f].kind == VT_FACTOR_REDUCE};
  for (uint32_t t = 0; t < 3; t++)
    for (uint32_t e = rule->starts[t]; e < rule->starts[t + 1]; e++)
      factors[rule->entries[e].factor].dims[t] = rule->entries[e].dim;
  return rule->factor_count;
}

static bool overlaps_any(vt_axes axes, const vt_axis_list *seen) {
  for (uint32_t i = 0; i < axes.count; i++)
    for (uint32_t k = 0; k < seen->count; k++)
      if (vt_axis_overlaps(axes.refs[i], seen->refs[k])) return true;
  return false;
}

static void push_all(vt_axis_list *list, vt_axes axes) {
  for (uint32_t i = 0; i < axes.count && list->count < VT_MAX_AXES; i++)
    list->refs[list->count++] = axes.refs[i];
}

// The factor along which only the result differs; NULL = none, or more than that differs.
static const dot_factor *conflict(const dot_factor *factors, uint32_t count, const tensor *t,
                                  vt_axis_list *contracted) {
  const dot_factor *found = NULL;
  vt_axis_list seen = {0};
  for (uint32_t f = 0; f < count; f++) {
    const int32_t *dims = factors[f].dims;
    int first = dims[0] >= 0 ? 0 : 1;
    if (dims[first] < 0) continue;
    vt_axes axes = axes_of(t[first].sharding, dims[first]);
    int64_t size = vt_type_elements(t[first].value->type);
    if (dims[0] >= 0 && dims[1] >= 0) {
      int64_t other = vt_type_elements(t[1].value->type);
      if (other > size) size = other;
      if (!vt_axes_equal(axes, axes_of(t[1].sharding, dims[1]))) return NULL;
      if (factors[f].contracted) push_all(contracted, axes);
    } else {
      if (overlaps_any(axes, &seen)) return NULL;
      push_all(&seen, axes);
    }
    if (factors[f].contracted || vt_axes_equal(axes_of(t[2].sharding, dims[2]), axes)) continue;
    if (!axes.count || found || vt_type_elements(t[2].value->type) > size) return NULL;
    found = &factors[f];
  }
  return found;
}

static void settle_dot(vt_graph *graph, vt_op *op, const tensor *t) {
  dot_factor factors[3 * VT_MAX_RANK];
  vt_axis_list contracted = {0};
  const vt_rule *rule = vt_rule_of_op(graph, op, 0);
  if (!rule) return;
  const dot_factor *at = conflict(factors, dot_factors(rule, factors), t, &contracted);
  if (!at) return;
  vt_axes cut = axes_of(t[2].sharding, at->dims[2]);
  int first = at->dims[0] >= 0 ? 0 : 1;
  if (!cut.count || !vt_axes_equal(cut, vt_axes_of(&contracted))) return;
  vt_axis_list dims[VT_MAX_RANK] = {0};
  for (int32_t d = 0; d < t[2].sharding->rank; d++)
    push_all(&dims[d], d == at->dims[2] ? axes_of(t[first].sharding, at->dims[first])
                                        : axes_of(t[2].sharding, d));
  reshard_result(op, t[2].sharding, with_dims(&op->func->module->arena, t[2].sharding, dims));
}

// ---- concatenations -----------------------------------------------------------------------------

// A list of axes for one dimension, and how much speaks for it.
typedef struct candidate {
  int32_t dim, precedence;
  vt_axis_list axes;
  int64_t elements; // of the tensors that are cut so, or further
  int64_t grown;    // devices that it adds to those already taken
} candidate;

typedef struct candidates {
  VT_ARRAY(candidate) list;
} candidates;

static bool same_list(const candidate *c, int32_t dim, vt_axes axes) {
  return c->dim == dim && vt_axes_equal(vt_axes_of(&c->axes), axes);
}

// Every list of axes of a dimension, and each list that it begins with.
static void find_candidates(candidates *all, const tensor *t, uint32_t count, int32_t joined,
                            int32_t joined_precedence) {
  for (uint32_t i = 0; i < count; i++)
    for (int32_t d = 0; d < t[i].sharding->rank; d++)
      for (vt_axes axes = axes_of(t[i].sharding, d); axes.count; axes.count--) {
        bool known = false;
        for (size_t k = 0; k < all->list.size; k++)
          known = known || same_list(&all->list.data[k], d, axes);
        candidate c = {.dim = d, .precedence = d == joined ? joined_precedence : 3};
        push_all(&c.axes, axes);
        c.grown = vt_axes_size(axes);
        if (!known) vt_array_push(&all->list, c);
      }
  for (size_t k = 0; k < all->list.size; k++) {
    candidate *c = &all->list.data[k];
    for (uint32_t i = 0; i < count; i++) {
      vt_axes axes = axes_of(t[i].sharding, c->dim);
      if (vt_axes_equal(axes, vt_axes_of(&c->axes)) ||
          vt_axes_strict_prefix(vt_axes_of(&c->axes), axes))
        c->elements += vt_type_elements(t[i].value->type);
    }
  }
}

static bool is_better(const candidate *a, const candidate *b) {
  if (a->elements != b->elements) return a->elements > b->elements;
  if (a->precedence != b->precedence) return a->precedence > b->precedence;
  if (a->grown != b->grown) return a->grown > b->grown;
  if (a->dim != b->dim) return a->dim > b->dim;
  return vt_axes_strict_prefix(vt_axes_of(&b->axes), vt_axes_of(&a->axes));
}

// Cuts the list before the first axis that overlaps; false: none does.
static bool cut_overlap(vt_axis_list *list, const vt_axis_list *taken) {
  for (uint32_t i = 0; i < list->count; i++) {
    vt_axis_ref axis = list->refs[i];
    bool some = vt_axis_before_all(&axis, vt_axes_of(taken));
    if (some && vt_axis_equal(axis, list->refs[i])) continue;
    if (some) list->refs[i] = axis;
    list->count = some ? i + 1 : i;
    return true;
  }
  return false;
}

// Takes the best candidate, and from the others what contradicts it, until none is left.
static void choose(candidates *all, vt_axis_list *dims) {
  while (all->list.size) {
    candidate best = all->list.data[0];
    size_t kept = 0;
    for (size_t k = 1; k < all->list.size; k++)
      if (is_better(&all->list.data[k], &best)) best = all->list.data[k];
    dims[best.dim] = best.axes;
    for (size_t k = 0; k < all->list.size; k++) {
      candidate c = all->list.data[k];
      vt_axes taken = vt_axes_of(&dims[c.dim]);
      if (c.dim == best.dim) {
        if (!vt_axes_strict_prefix(taken, vt_axes_of(&c.axes))) continue;
      } else if (cut_overlap(&c.axes, &best.axes) && vt_axes_equal(taken, vt_axes_of(&c.axes))) {
        continue;
      }
      c.grown = vt_axes_size(vt_axes_of(&c.axes)) / vt_axes_size(taken);
      all->list.data[kept++] = c;
    }
    all->list.size = kept;
  }
}

// Moves the axes of the joined dimension to others that have room for them.
static void spread_joined(const vt_type type, int32_t joined, vt_axis_list *dims) {
  vt_axis_list rest = dims[joined];
  uint32_t at = 0;
  dims[joined].count = 0;
  for (int32_t d = 0; d < type.rank; d++) {
    int64_t cut = vt_axes_size(vt_axes_of(&dims[d]));
    if (d == joined || !type.dims[d] || type.dims[d] % cut) continue;
    for (int64_t room = type.dims[d] / cut; at < rest.count && room % rest.refs[at].size == 0;
         at++) {
      room /= rest.refs[at].size;
      vt_axis_list_push(&dims[d], rest.refs[at]);
    }
  }
}

static void settle_concatenate(vt_graph *graph, vt_op *op, const tensor *t) {
  uint32_t count = op->operand_count + 1;
  const tensor *result = &t[op->operand_count];
  int32_t joined = (int32_t)vt_attr_i64(op, VT_ATTR_DIMENSION);
  const vt_rule *rule = vt_rule_of_op(graph, op, 0);
  candidates all = {0};
  bool alike = true;
  for (uint32_t i = 0; i + 1 < count; i++)
    alike = alike && same_dims(t[i].sharding, result->sharding);
  if (alike || !rule || count < 3) return;
  vt_axis_list dims[VT_MAX_RANK] = {0};
  bool roll = rule->factors[joined].kind == VT_FACTOR_PERMUTE;
  find_candidates(&all, t, count, joined, roll ? 1 : 0);
  choose(&all, dims);
  vt_array_free(&all.list);
  if (!roll) spread_joined(result->value->type, joined, dims);
  const vt_sharding *common = with_dims(&op->func->module->arena, result->sharding, dims);
  for (uint32_t i = 0; i + 1 < count; i++)
    if (!same_dims(t[i].sharding, common))
      op->operands[i] = &new_reshard(op, op->operands[i], common)->results[0];
  if (!same_dims(result->sharding, common)) reshard_result(op, result->sharding, common);
}

// ---- all ops ------------------------------------------------------------------------------------

// The shardings of the op's operands and result; false unless all are over one mesh.
static bool find_tensors(vt_record *record, const vt_op *op, vt_arena *arena, tensor *tensors) {
  const vt_mesh *mesh = NULL;
  for (uint32_t i = 0; i <= op->operand_count; i++) {
    vt_value *value = i < op->operand_count ? op->operands[i] : &op->results[0];
    uint32_t node = vt_record_node(record, value);
    if (!node) return false;
    const vt_mesh *own = record->graph.nodes.data[node - 1].mesh;
    if (own && mesh && own != mesh) return false;
    if (own) mesh = own;
    tensors[i] = (tensor){value, vt_record_sharding(record, node - 1, arena)};
  }
  if (!mesh || !mesh->axis_count) return false;
  for (uint32_t i = 0; i <= op->operand_count; i++)
    if (!tensors[i].sharding) tensors[i].sharding = uncut(arena, mesh, tensors[i].value->type.rank);
  return true;
}

static void settle_func(vt_record *record, vt_func *func) {
  vt_op *next;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    bool control = vt_op_info_get(op->code)->class == VT_CLASS_CONTROL;
    for (uint32_t r = 0; control && r < op->region_count; r++) settle_func(record, op->regions[r]);
    bool dot = op->code == VT_OP_DOT_GENERAL || op->code == VT_OP_DOT;
    if (!dot && op->code != VT_OP_CONCATENATE) continue;
    vt_arena *arena = &func->module->arena;
    tensor *tensors = VT_NEW_ARRAY(record->graph.arena, tensor, op->operand_count + 1);
    if (!find_tensors(record, op, arena, tensors)) continue;
    if (dot)
      settle_dot(&record->graph, op, tensors);
    else
      settle_concatenate(&record->graph, op, tensors);
  }
}

void vt_record_reshard(vt_record *record, vt_module *module) {
  settle_func(record, module->main);
}
