// SPDX-License-Identifier: Apache-2.0
// step.c - one step of propagation.
//
// The axes of each dimension are split into the axes of its factors. For each factor the tensors
// agree on the longest list of axes that none of them contradicts. Then every tensor, results
// first, takes as many of them as it can, factors with the larger source tensor first (then, for
// elementwise ops, the more sharded factor; the earlier source; the earlier factor), up to the
// first axis that it already uses. This is Shardy's aggressive strategy.
#include <string.h>

#include "base/check.h"
#include "spmd/propagate/graph.h"

// A factor in one tensor. Lists are a node's own, or in the scratch arena.
typedef struct part {
  vt_axes axes;
  vt_axes overflow;   // axes of the dimension that do not fit this factor nor those after it
  bool closed, minor; // minor: last of its dimension, so it need not divide
} part;

typedef struct agreement {
  vt_axes axes;
  bool can_grow, some; // some: a tensor has axes of the factor
  int32_t source;      // the tensor that holds all of them; -1 none
  int64_t source_size;
} agreement;

typedef struct state {
  vt_graph *graph;
  vt_arena *scratch;
  const vt_step *step;
  const vt_rule *rule;
  const vt_mesh *mesh;
  uint32_t tensors;
  part *parts;        // one per entry of the rule
  uint32_t *entry_of; // [tensor][factor] -> entry, VT_NONE
  agreement *agreed;  // per factor
  uint32_t *order;    // of factors whose tensors agree on axes
  uint32_t order_count;
} state;

static uint32_t value_of(const vt_step *step, uint32_t tensor) {
  return tensor < step->operand_count ? step->operands[tensor]
                                      : step->results[tensor - step->operand_count];
}

// ---- from shardings to factors ------------------------------------------------------------------

// The axes of a dimension as the step sees them: the outer side of a manual computation is compared
// with the inner one plus its manual axes, and the other way round.
static vt_axes seen_axes(const state *s, uint32_t tensor, const vt_node *node, int32_t dim) {
  const vt_axes *manual = tensor >= s->step->operand_count ? s->step->manual : NULL;
  vt_axes own = node->mesh ? node->dims[dim] : (vt_axes){0};
  if (!manual) return own;
  uint32_t skip = s->step->inward ? 0 : manual[dim].count;
  vt_axis_list *list = VT_NEW(s->scratch, vt_axis_list);
  for (uint32_t i = 0; s->step->inward && i < manual[dim].count; i++)
    vt_axis_list_push(list, manual[dim].refs[i]);
  for (uint32_t i = skip; i < own.count; i++) vt_axis_list_push(list, own.refs[i]);
  return vt_axes_of(list);
}

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

// Deals the axes of one dimension out to its factors, from the major end: each takes what divides
// it, the last takes the rest.
static void split_dim(const state *s, vt_axes axes, bool closed, uint32_t first, uint32_t end) {
  uint32_t at = 0;
  vt_axis_ref axis = axes.count ? axes.refs[0] : (vt_axis_ref){0}; // what is left of number `at`
  bool overflown = false;
  for (uint32_t e = first; e < end; e++)
    s->parts[e] = (part){.closed = closed, .minor = e + 1 == end};
  if (first + 1 == end) s->parts[first].axes = axes; // all of them
  if (first + 1 == end || !axes.count) return;
  for (uint32_t e = first; e < end; e++) {
    part *p = &s->parts[e];
    p->closed = closed || overflown;
    if (overflown) continue;
    vt_axis_list *own = VT_NEW(s->scratch, vt_axis_list), *rest = p->minor ? own : NULL;
    int64_t left = s->rule->factors[s->rule->entries[e].factor].size, common;
    while (!rest && at < axes.count && (common = gcd(left, axis.size)) > 1) {
      own->refs[own->count++] = (vt_axis_ref){axis.axis, axis.pre_size, common};
      left /= common;
      axis.pre_size *= common;
      axis.size /= common;
      if (axis.size == 1 && ++at < axes.count) axis = axes.refs[at];
    }
    overflown = !rest && left > 1 && at < axes.count;
    if (overflown) rest = VT_NEW(s->scratch, vt_axis_list);
    for (; rest && at < axes.count; axis = ++at < axes.count ? axes.refs[at] : axis)
      vt_axis_list_push(rest, axis);
    p->axes = vt_axes_of(own);
    if (overflown) p->overflow = vt_axes_of(rest);
  }
}

static uint32_t dim_end(const vt_rule *rule, uint32_t tensor, uint32_t first) {
  uint32_t end = first + 1;
  while (end < rule->starts[tensor + 1] && rule->entries[end].dim == rule->entries[first].dim)
    end++;
  return end;
}

static void project(const state *s) {
  for (uint32_t t = 0; t < s->tensors; t++) {
    const vt_node *node = vt_node_of(s->graph, value_of(s->step, t));
    for (uint32_t e = s->rule->starts[t], end; e < s->rule->starts[t + 1]; e = end) {
      int32_t dim = s->rule->entries[e].dim;
      end = dim_end(s->rule, t, e);
      vt_axes axes = seen_axes(s, t, node, dim);
      split_dim(s, axes, node->mesh && node->closed >> dim & 1, e, end);
      for (uint32_t i = e; i < end; i++) {
        uint32_t factor = s->rule->entries[i].factor;
        s->entry_of[t * s->rule->factor_count + factor] = i;
        s->agreed[factor].some = s->agreed[factor].some || s->parts[i].axes.count;
      }
    }
  }
}

// ---- what the tensors agree on ------------------------------------------------------------------

// Joins the list so far with another tensor's. Without `can_grow` only contradictions count.
static void agree(const state *s, agreement *a, vt_axes list) {
  vt_axes *old = &a->axes;
  uint32_t same = 0;
  while (same < old->count && same < list.count && vt_axis_equal(old->refs[same], list.refs[same]))
    same++;
  if (same < old->count && same < list.count) {
    vt_axis_ref x = old->refs[same], y = list.refs[same];
    bool shorter = vt_axis_is_prefix(y, x), longer = vt_axis_is_prefix(x, y);
    if (shorter && same + 1 == list.count) return;
    if (longer && a->can_grow && same + 1 == old->count) {
      *old = list; // up to here they are the same
      return;
    }
    vt_axis_list *cut = VT_NEW(s->scratch, vt_axis_list);
    memcpy(cut->refs, old->refs, sizeof *cut->refs * same);
    cut->refs[same] = shorter ? y : x;
    cut->count = shorter || longer ? same + 1 : same;
    *old = vt_axes_of(cut);
    a->can_grow = false;
  } else if (a->can_grow && list.count > old->count) {
    *old = list;
  }
}

static void agree_range(const state *s, uint32_t factor, uint32_t first, uint32_t end) {
  for (uint32_t t = first; t < end; t++) {
    uint32_t entry = s->entry_of[t * s->rule->factor_count + factor];
    if (entry != VT_NONE) agree(s, &s->agreed[factor], s->parts[entry].axes);
  }
}

static void agree_on_factor(const state *s, uint32_t factor, vt_direction direction) {
  uint32_t operands = s->step->operand_count;
  agreement *a = &s->agreed[factor];
  a->axes = (vt_axes){0};
  a->can_grow = true;
  a->source = -1;
  a->source_size = -1;
  if (direction == VT_TOWARDS_NONE || !a->some) return;
  if (direction == VT_TOWARDS_OPERANDS)
    agree_range(s, factor, operands, s->tensors);
  else
    agree_range(s, factor, 0, operands);
  if (direction != VT_TOWARDS_BOTH) a->can_grow = false;
  if (direction == VT_TOWARDS_OPERANDS)
    agree_range(s, factor, 0, operands);
  else
    agree_range(s, factor, operands, s->tensors);
}

// The source of a factor's axes: the largest tensor that holds all of them.
static void find_sources(const state *s) {
  for (uint32_t t = 0; t < s->tensors; t++) {
    int64_t size = 1;
    for (uint32_t e = s->rule->starts[t]; e < s->rule->starts[t + 1]; e++)
      size *= s->rule->factors[s->rule->entries[e].factor].size;
    for (uint32_t e = s->rule->starts[t]; e < s->rule->starts[t + 1]; e++) {
      agreement *a = &s->agreed[s->rule->entries[e].factor];
      if (!a->axes.count) continue;
      vt_axes here = s->parts[e].axes;
      bool holds = vt_axes_equal(a->axes, here) || vt_axes_strict_prefix(a->axes, here);
      if (holds && size > a->source_size) {
        a->source_size = size;
        a->source = (int32_t)t;
      }
    }
  }
}

static bool goes_before(const state *s, uint32_t a, uint32_t b) {
  const agreement *x = &s->agreed[a], *y = &s->agreed[b];
  if (x->source_size != y->source_size) return x->source_size > y->source_size;
  if (s->step->elementwise) {
    int64_t m = vt_axes_size(x->axes), n = vt_axes_size(y->axes);
    if (m != n) return m > n;
  }
  if (x->source != y->source) return x->source < y->source;
  return a < b;
}

static void sort_factors(state *s) {
  s->order_count = 0;
  for (uint32_t f = 0; f < s->rule->factor_count; f++) {
    uint32_t at = s->order_count;
    if (!s->agreed[f].axes.count) continue;
    s->order_count++;
    for (; at > 0 && goes_before(s, f, s->order[at - 1]); at--) s->order[at] = s->order[at - 1];
    s->order[at] = f;
  }
}

// ---- what a tensor takes ------------------------------------------------------------------------

// As much of `axis` as the factor may have after axes of `before` devices.
static bool fits_factor(const vt_node *node, const part *p, int64_t factor_size, int64_t before,
                        vt_axis_ref *axis) {
  for (uint32_t i = 0; i < p->axes.count; i++) // manual axes too, as seen from inside
    if (vt_axis_contains(p->axes.refs[i], *axis)) return true;
  if (node->mesh &&
      (!vt_axis_before_all(axis, node->replicated) || !vt_axis_before_all(axis, node->unreduced)))
    return false;
  if (!p->closed && !p->overflow.count) {
    if (p->minor) return true;
    if (factor_size % before == 0) {
      int64_t common = gcd(factor_size / before, axis->size);
      if (common > 1) {
        axis->size = common;
        return true;
      }
    }
  }
  vt_axis_ref last = p->axes.count ? p->axes.refs[p->axes.count - 1] : (vt_axis_ref){0};
  if (!p->axes.count || !vt_axis_is_prefix(last, *axis)) return false;
  *axis = last;
  return true;
}

// As much of `axis` as no other factor of the tensor uses.
static bool is_unused(const state *s, uint32_t tensor, uint32_t factor, vt_axis_ref *axis) {
  for (uint32_t e = s->rule->starts[tensor]; e < s->rule->starts[tensor + 1]; e++)
    if (s->rule->entries[e].factor != factor && (!vt_axis_before_all(axis, s->parts[e].overflow) ||
                                                 !vt_axis_before_all(axis, s->parts[e].axes)))
      return false;
  return true;
}

static void set_list(vt_axis_list *list, vt_axes axes) {
  list->count = axes.count;
  if (axes.count) memcpy(list->refs, axes.refs, sizeof *list->refs * axes.count);
}

// Cuts the list at the first axis that the tensor cannot take whole.
static void keep_possible(const state *s, uint32_t tensor, uint32_t entry, bool within,
                          vt_axis_list *axes) {
  const vt_node *node = vt_node_of(s->graph, value_of(s->step, tensor));
  uint32_t factor = s->rule->entries[entry].factor;
  int64_t before = 1;
  for (uint32_t i = 0; i < axes->count; i++) {
    vt_axis_ref axis = axes->refs[i];
    bool some =
        within ? fits_factor(node, &s->parts[entry], s->rule->factors[factor].size, before, &axis)
               : is_unused(s, tensor, factor, &axis);
    bool whole = some && vt_axis_equal(axis, axes->refs[i]);
    if (!whole) {
      if (some) axes->refs[i] = axis;
      axes->count = some ? i + 1 : i;
      return;
    }
    before *= axis.size;
  }
}

// An operand of an elementwise op takes no more than the results do, so that it does not follow its
// neighbour where the result cannot.
static void limit_to_results(const state *s, uint32_t factor, vt_axis_list *axes) {
  for (uint32_t t = s->step->operand_count; t < s->tensors; t++) {
    uint32_t entry = s->entry_of[t * s->rule->factor_count + factor];
    if (entry == VT_NONE || !vt_axes_strict_prefix(s->parts[entry].axes, vt_axes_of(axes)))
      continue;
    set_list(axes, s->parts[entry].axes);
  }
}

static bool extend(const state *s, uint32_t tensor) {
  bool changed = false;
  for (uint32_t k = 0; k < s->order_count; k++) {
    uint32_t factor = s->order[k], entry = s->entry_of[tensor * s->rule->factor_count + factor];
    if (entry == VT_NONE) continue;
    part *p = &s->parts[entry];
    if (!vt_axes_strict_prefix(p->axes, s->agreed[factor].axes)) continue;
    vt_axis_list axes;
    set_list(&axes, s->agreed[factor].axes);
    keep_possible(s, tensor, entry, true, &axes);
    if (!vt_axes_strict_prefix(p->axes, vt_axes_of(&axes))) continue;
    keep_possible(s, tensor, entry, false, &axes);
    if (s->step->elementwise && tensor < s->step->operand_count) limit_to_results(s, factor, &axes);
    if (!vt_axes_strict_prefix(p->axes, vt_axes_of(&axes))) continue;
    p->axes = vt_axes_copy(s->scratch, vt_axes_of(&axes));
    changed = true;
  }
  return changed;
}

// ---- and back to shardings ----------------------------------------------------------------------

static void join_dim(const state *s, uint32_t first, uint32_t end, vt_axis_list *axes) {
  for (uint32_t e = first; e < end; e++) {
    const part *p = &s->parts[e];
    for (uint32_t i = 0; i < p->axes.count; i++) vt_axis_list_push(axes, p->axes.refs[i]);
    for (uint32_t i = 0; i < p->overflow.count; i++) vt_axis_list_push(axes, p->overflow.refs[i]);
    int64_t size = s->rule->factors[s->rule->entries[e].factor].size;
    if (p->overflow.count || vt_axes_size(p->axes) < size) return; // no strides
  }
}

// A mesh without axes to cut along: it only says which dimensions are open.
static bool is_empty(const vt_mesh *mesh) {
  return !mesh->device_count && vt_mesh_size(mesh) == 1;
}

// Writes the tensor's factors into its node; false: that changed nothing.
static bool write_back(const state *s, uint32_t tensor) {
  vt_node *node = vt_node_of(s->graph, value_of(s->step, tensor));
  bool changed = false, is_result = tensor >= s->step->operand_count;
  const vt_axes *manual = is_result ? s->step->manual : NULL;
  for (uint32_t e = s->rule->starts[tensor], end; e < s->rule->starts[tensor + 1]; e = end) {
    int32_t dim = s->rule->entries[e].dim;
    vt_axis_list axes, mine;
    axes.count = mine.count = 0;
    end = dim_end(s->rule, tensor, e);
    join_dim(s, e, end, &axes);
    uint32_t skip = manual && s->step->inward ? manual[dim].count : 0;
    for (uint32_t i = 0; manual && !s->step->inward && i < manual[dim].count; i++)
      vt_axis_list_push(&mine, manual[dim].refs[i]);
    for (uint32_t i = skip; i < axes.count; i++) vt_axis_list_push(&mine, axes.refs[i]);
    if (vt_axes_equal(vt_axes_of(&mine), node->mesh ? node->dims[dim] : (vt_axes){0})) continue;
    node->dims[dim] = vt_axes_copy(s->graph->arena, vt_axes_of(&mine));
    changed = true;
  }
  if (changed && (!node->mesh || is_empty(node->mesh))) node->mesh = s->mesh;
  return changed;
}

// The mesh that the step's shardings share; NULL: they have none, or several.
static const vt_mesh *common_mesh(const vt_graph *graph, const vt_step *step) {
  const vt_mesh *mesh = NULL;
  for (uint32_t t = 0; t < step->operand_count + step->result_count; t++) {
    const vt_mesh *other = vt_node_of(graph, value_of(step, t))->mesh;
    if (!other) continue;
    if (!other->axis_count && other->device_count) return NULL; // on one device
    if (!mesh || is_empty(mesh))
      mesh = other;
    else if (!is_empty(other) && other != mesh)
      return NULL;
  }
  return mesh && !is_empty(mesh) ? mesh : NULL;
}

// Tensors that agree on the axes of every factor have nothing to take from each other. `out_all`:
// also of those factors that have no direction now.
static bool is_settled(const vt_graph *graph, const vt_step *step, const uint8_t *directions,
                       bool *out_all) {
  const vt_rule *rule = step->rule;
  vt_axes seen[256];
  bool known[256];
  if (!rule->plain || step->manual) return false;
  memset(known, 0, rule->factor_count);
  *out_all = true;
  for (uint32_t t = 0; t < step->operand_count + step->result_count; t++) {
    const vt_node *node = vt_node_of(graph, value_of(step, t));
    for (uint32_t e = rule->starts[t]; e < rule->starts[t + 1]; e++) {
      uint8_t factor = rule->entries[e].factor;
      vt_axes axes = node->mesh ? node->dims[rule->entries[e].dim] : (vt_axes){0};
      if (rule->factors[factor].blocked) continue;
      if (known[factor] && !vt_axes_equal(seen[factor], axes)) {
        *out_all = false;
        if (directions[factor]) return false;
      }
      known[factor] = true;
      seen[factor] = axes;
    }
  }
  return true;
}

// ---- the step that most are ---------------------------------------------------------------------

static vt_axes axes_at(const vt_node *node, int32_t dim) {
  return node->mesh ? node->dims[dim] : (vt_axes){0};
}

// The factors of a simple rule as the tensors have them now, bit by bit.
typedef struct survey {
  vt_axes axes[VT_SIMPLE_FACTORS]; // of those in `cut`
  uint64_t cut, uncut;             // some tensor has axes of it, has it without axes
  uint64_t clash;                  // two have different axes
  uint64_t most;                   // that one tensor has axes of
} survey;

static void look(const vt_graph *graph, const vt_step *step, survey *s) {
  const vt_rule *rule = step->rule;
  s->cut = s->uncut = s->clash = s->most = 0;
  for (uint32_t t = 0; t < step->operand_count + step->result_count; t++) {
    const vt_node *node = vt_node_of(graph, value_of(step, t));
    uint64_t cut = 0;
    for (uint32_t e = rule->starts[t]; e < rule->starts[t + 1]; e++) {
      uint8_t factor = rule->entries[e].factor;
      uint64_t bit = (uint64_t)1 << factor;
      vt_axes axes = axes_at(node, rule->entries[e].dim);
      if (!axes.count) {
        s->uncut |= bit;
        continue;
      }
      if (!(s->cut & bit))
        s->axes[factor] = axes;
      else if (!vt_axes_equal(s->axes[factor], axes))
        s->clash |= bit;
      cut |= bit;
    }
    s->cut |= cut;
    if ((cut & s->most) == s->most) s->most = cut;
  }
}

static uint64_t factors_towards(const vt_rule *rule, const uint8_t *directions,
                                vt_direction least) {
  uint64_t factors = 0;
  for (uint32_t f = 0; f < rule->factor_count; f++)
    if ((directions[f] & least) == least && directions[f]) factors |= (uint64_t)1 << f;
  return factors;
}

// One tensor has all axes that there are, and no other has different ones: the others take them, if
// nothing that they state forbids it. False: it is not so simple.
static bool take_all(vt_graph *graph, const vt_step *step, const survey *s,
                     const uint8_t *directions, const vt_mesh *mesh, vt_numbers *changed) {
  const vt_rule *rule = step->rule;
  uint32_t tensors = step->operand_count + step->result_count;
  if (s->clash || s->most != s->cut) return false;
  if (s->cut & ~factors_towards(rule, directions, VT_TOWARDS_BOTH)) return false;
  for (uint32_t t = 0; t < tensors; t++) {
    const vt_node *node = vt_node_of(graph, value_of(step, t));
    if (node->mesh && (node->closed || node->replicated.count || node->unreduced.count))
      for (uint32_t e = rule->starts[t]; e < rule->starts[t + 1]; e++)
        if (s->cut >> rule->entries[e].factor & 1 && !node->dims[rule->entries[e].dim].count)
          return false;
  }
  for (uint32_t t = 0; t < tensors; t++) {
    vt_node *node = vt_node_of(graph, value_of(step, t));
    bool takes = false;
    for (uint32_t e = rule->starts[t]; e < rule->starts[t + 1]; e++) {
      vt_dim_factor entry = rule->entries[e];
      if (!(s->cut >> entry.factor & 1) || axes_at(node, entry.dim).count) continue;
      node->dims[entry.dim] = s->axes[entry.factor];
      takes = true;
    }
    if (takes && (!node->mesh || is_empty(node->mesh))) node->mesh = mesh;
    if (takes) vt_array_push(changed, value_of(step, t));
  }
  return true;
}

// Whether a step with a simple rule is done; out_settled: it changes nothing in any direction.
static bool apply_simple(vt_graph *graph, const vt_step *step, const uint8_t *directions,
                         int32_t which, const vt_mesh *mesh, vt_numbers *changed,
                         bool *out_settled) {
  survey s;
  look(graph, step, &s);
  uint64_t wanting = s.clash | (s.cut & s.uncut);
  *out_settled = !wanting;
  if (!(wanting & factors_towards(step->rule, directions, VT_TOWARDS_NONE))) return true;
  return which == VT_ALL_TENSORS && take_all(graph, step, &s, directions, mesh, changed);
}

// ---- any step -----------------------------------------------------------------------------------

// Room for most steps, not cleared.
enum { FEW_ENTRIES = 32, FEW_FACTORS = 24, FEW_PLACES = 96 };
typedef struct room {
  part parts[FEW_ENTRIES];
  agreement agreed[FEW_FACTORS];
  uint32_t order[FEW_FACTORS], entry_of[FEW_PLACES];
} room;

static void make_room(state *s, room *few) {
  vt_arena *scratch = s->scratch;
  uint32_t entries = s->rule->starts[s->tensors], factors = s->rule->factor_count;
  bool fits =
      entries <= FEW_ENTRIES && factors <= FEW_FACTORS && s->tensors * factors <= FEW_PLACES;
  s->parts = fits ? few->parts : VT_NEW_ARRAY(scratch, part, entries);
  s->agreed = fits ? few->agreed : VT_NEW_ARRAY(scratch, agreement, factors);
  s->order = fits ? few->order : VT_NEW_ARRAY(scratch, uint32_t, factors);
  s->entry_of = fits ? few->entry_of : VT_NEW_ARRAY(scratch, uint32_t, s->tensors *factors);
}

static bool prepare(state *s, const uint8_t *directions) {
  const vt_rule *rule = s->rule;
  bool any = false;
  memset(s->entry_of, 0xff, sizeof *s->entry_of * s->tensors * rule->factor_count);
  for (uint32_t f = 0; f < rule->factor_count; f++) s->agreed[f].some = false;
  project(s);
  for (uint32_t f = 0; f < rule->factor_count; f++) {
    agree_on_factor(s, f, rule->factors[f].blocked ? VT_TOWARDS_NONE : directions[f]);
    any = any || s->agreed[f].axes.count;
  }
  return any;
}

bool vt_step_apply(vt_graph *graph, const vt_step *step, const uint8_t *directions, int32_t which,
                   vt_arena *scratch, vt_numbers *changed) {
  state s = {.graph = graph,
             .scratch = scratch,
             .step = step,
             .rule = step->rule,
             .mesh = common_mesh(graph, step)};
  uint32_t operands = step->operand_count;
  room few;
  bool settled = !s.mesh;
  if (settled) return true;
  bool simple = step->rule->simple && !step->manual;
  if (simple ? apply_simple(graph, step, directions, which, s.mesh, changed, &settled)
             : is_settled(graph, step, directions, &settled))
    return settled;
  s.tensors = operands + step->result_count;
  make_room(&s, &few);
  if (!prepare(&s, directions)) return false;
  find_sources(&s);
  sort_factors(&s);
  bool *extended = VT_NEW_ARRAY(scratch, bool, s.tensors);
  for (uint32_t t = operands; t < s.tensors && which < 0; t++) extended[t] = extend(&s, t);
  for (uint32_t t = 0; t < operands; t++)
    if (which == VT_ALL_TENSORS || which == (int32_t)t) extended[t] = extend(&s, t);
  for (uint32_t t = 0; t < s.tensors; t++)
    if (extended[t] && write_back(&s, t)) vt_array_push(changed, value_of(step, t));
  return false;
}
