// SPDX-License-Identifier: Apache-2.0
// fuse.c - greedy grouping of a function's ops. See fuse.h for the result, nest.h for what one
// group may be.
// How: ops are visited in order. A fusable op joins the groups of its operands, one by one,
// whenever the union is still one nest and no path leaves and re-enters it; then groups that read
// the same values are merged. Views (reshape, broadcast, slice, transposes that keep rows), splat
// constants and indices concatenated from columns cost nothing to repeat, so they are not grouped
// but copied into every group that looks through them.
#include "base/check.h"
#include "host/fuse.h"

#include <stdlib.h>
#include <string.h>

#include "host/fuser.h"
#include "host/kernel_native.h"

enum { MAX_GROUP_OPS = 400, MAX_GROUP_PORTS = 96, SIBLING_TRIES = 32 };
// Below this many element-ops the evaluator wins, unless it would have to run many ops: each costs
// it about 0.1 us however small, while code for a nest costs about 1 ms once (nothing when a larger
// array has the same nest). In a loop body each op runs many times.
static const int64_t DEFAULT_MIN_WORK = 8 << 10;
enum { MANY_OPS = 6, MANY_SCALAR_OPS = 12, MANY_IN_LOOP = 3 };

// ---- Classifying ops.

static bool is_splat(const vt_op *op) {
  return op->code == VT_OP_CONSTANT &&
         (vt_attr_literal(op, VT_ATTR_VALUE)->splat || vt_type_elements(op->results[0].type) == 1);
}

// A view whose rows stay rows: the last real dimension keeps its stride.
static bool keeps_rows(const vt_op *op) {
  if (op->code == VT_OP_RESHAPE || op->code == VT_OP_BROADCAST_IN_DIM) return true;
  vt_type type = op->operands[0]->type;
  int32_t last = type.rank - 1;
  while (last >= 0 && type.dims[last] == 1) last--;
  if (last < 0) return true;
  if (op->code == VT_OP_SLICE) return vt_attr_ints(op, VT_ATTR_STRIDES, NULL)[last] == 1;
  uint32_t count;
  const int64_t *order = vt_attr_ints(op, VT_ATTR_PERMUTATION, &count);
  int32_t to = (int32_t)count - 1;
  while (to >= 0 && type.dims[order[to]] == 1) to--;
  return order[to] == last;
}

static uint8_t kind_of(const vt_op *op) {
  for (uint32_t i = 0; i < op->result_count; i++)
    if (vt_type_elements(op->results[i].type) == 0) return VT_FUSE_SINGLE;
  switch (op->code) {
  case VT_OP_CONSTANT:
    return is_splat(op) ? VT_FUSE_VIEW : VT_FUSE_SINGLE;
  case VT_OP_IOTA:
    return vt_emit_has_types(op) ? VT_FUSE_VIEW : VT_FUSE_SINGLE;
  case VT_OP_CONCATENATE:
    return vt_nest_is_index(op) ? VT_FUSE_VIEW : VT_FUSE_SINGLE;
  case VT_OP_GATHER:
    return vt_nest_gathers(op) ? VT_FUSE_LOOP : VT_FUSE_SINGLE;
  case VT_OP_SCATTER:
    return vt_nest_scatters(op) ? VT_FUSE_LOOP : VT_FUSE_SINGLE;
  case VT_OP_REDUCE:
    if (vt_type_elements(op->operands[0]->type) < 2) return VT_FUSE_SINGLE;
    return vt_emit_has_types(op) && vt_reducer_of(op) != VT_REDUCE_NONE ? VT_FUSE_LOOP
                                                                        : VT_FUSE_SINGLE;
  default:
    break;
  }
  switch ((vt_op_class)vt_op_info_get(op->code)->class) {
  case VT_CLASS_VIEW:
    return keeps_rows(op) ? VT_FUSE_VIEW : VT_FUSE_SINGLE;
  case VT_CLASS_ELTWISE:
  case VT_CLASS_CAST:
    return vt_emit_supports(op) || vt_emit_supports_complex(op) ? VT_FUSE_LOOP : VT_FUSE_SINGLE;
  default:
    return VT_FUSE_SINGLE;
  }
}

// ---- Uses.

static void count_uses(vt_fuser *f) {
  uint32_t values = (uint32_t)f->func->value_count;
  f->user_start = VT_NEW_ARRAY(&f->scratch, uint32_t, values + 1);
  f->returned = VT_NEW_ARRAY(&f->scratch, bool, values);
  uint32_t total = 0;
  for (uint32_t i = 0; i < f->op_count; i++)
    for (uint32_t k = 0; k < f->ops[i].op->operand_count; k++, total++)
      f->user_start[f->ops[i].op->operands[k]->id + 1]++;
  for (uint32_t v = 0; v < values; v++) f->user_start[v + 1] += f->user_start[v];
  f->users = VT_NEW_ARRAY(&f->scratch, uint32_t, total);
  uint32_t *at = VT_NEW_ARRAY(&f->scratch, uint32_t, values);
  for (uint32_t i = 0; i < f->op_count; i++)
    for (uint32_t k = 0; k < f->ops[i].op->operand_count; k++) {
      int32_t id = f->ops[i].op->operands[k]->id;
      f->users[f->user_start[id] + at[id]++] = i;
    }
  for (uint32_t i = 0; i < f->func->return_count; i++) f->returned[f->func->returns[i]->id] = true;
}

// Whether some group that computes `user` reads the result of op `from` from memory; while groups
// grow (`home` is VT_NO_GROUP), whether `user` is outside the stamped set.
static bool reads_memory(const vt_fuser *f, const vt_fuse_op *user, int32_t home, uint32_t from) {
  if (home == VT_NO_GROUP) return user->stamp != f->stamp;
  for (size_t i = 0; i <= user->copies.size; i++) {
    int32_t group = i ? (int32_t)user->copies.data[i - 1] : user->group;
    if (group == home || group == VT_GONE) continue;
    bool copied = false;
    for (uint32_t k = 0; group >= 0 && k < f->groups.data[group].count && !copied; k++)
      copied = f->groups.data[group].ops[k] == from;
    if (!copied) return true;
  }
  return false;
}

// Whether anything outside the set needs `value`, a result of op `from` or a view of one, in
// memory.
static bool needed_outside(const vt_fuser *f, const vt_value *value, int32_t home, uint32_t from) {
  if (f->returned[value->id]) return true;
  for (uint32_t u = f->user_start[value->id]; u < f->user_start[value->id + 1]; u++) {
    const vt_fuse_op *user = &f->ops[f->users[u]];
    if (user->kind == VT_FUSE_VIEW ? needed_outside(f, &user->op->results[0], home, from)
                                   : reads_memory(f, user, home, from))
      return true;
  }
  return false;
}

// ---- Candidate sets of ops.

static void stamp_ops(vt_fuser *f, const vt_trial *t) {
  f->stamp++;
  for (uint32_t i = 0; i < t->count; i++) f->ops[t->ops[i]].stamp = f->stamp;
}

// Fills list, inputs and outputs of t from its stamped ops.
static bool find_ports(vt_fuser *f, vt_arena *arena, vt_trial *t) {
  uint32_t room = 0, results = 0;
  t->list = VT_NEW_ARRAY(arena, vt_op *, t->count);
  for (uint32_t i = 0; i < t->count; i++) {
    t->list[i] = f->ops[t->ops[i]].op;
    room += t->list[i]->operand_count;
    results += t->list[i]->result_count;
  }
  t->inputs = VT_NEW_ARRAY(arena, vt_value *, room);
  t->outputs = VT_NEW_ARRAY(arena, vt_value *, results);
  t->input_count = t->output_count = 0;
  for (uint32_t i = 0; i < t->count; i++) {
    vt_op *op = t->list[i];
    for (uint32_t k = 0; k < op->operand_count; k++) {
      vt_value *value = op->operands[k];
      if (value->op && vt_fuse_state(f, value->op)->stamp == f->stamp) continue;
      bool seen = false;
      for (uint32_t j = 0; j < t->input_count && !seen; j++) seen = t->inputs[j] == value;
      if (!seen) t->inputs[t->input_count++] = value;
    }
    const vt_fuse_op *state = vt_fuse_state(f, op);
    if (state->kind == VT_FUSE_VIEW) continue;
    if (t->home != VT_NO_GROUP && state->group != t->home) continue; // a copy
    for (uint32_t r = 0; r < op->result_count; r++)
      if (needed_outside(f, &op->results[r], t->home, t->ops[i]))
        t->outputs[t->output_count++] = &op->results[r];
  }
  return t->input_count + t->output_count <= MAX_GROUP_PORTS && t->output_count > 0;
}

bool vt_fuse_try(vt_fuser *f, vt_arena *arena, vt_trial *t) {
  if (t->count > MAX_GROUP_OPS) return false;
  stamp_ops(f, t);
  if (!find_ports(f, arena, t)) return false;
  t->nest = vt_nest_build(arena, t->count, t->list, t->input_count, t->inputs, t->output_count,
                          t->outputs);
  return t->nest != NULL;
}

static void push_operands(vt_fuser *f, const vt_op *op, bool from_set) {
  for (uint32_t k = 0; k < op->operand_count; k++) {
    const vt_op *from = op->operands[k]->op;
    if (!from || (from_set && vt_fuse_state(f, from)->stamp == f->stamp)) continue;
    vt_array_push_in(&f->trial, &f->stack, vt_fuse_index(from));
  }
}

// No op before this index depends on an op at or after it, even through groups: the start of the
// set, moved back over every group that spans it.
static uint32_t search_floor(const vt_fuser *f, const vt_trial *t) {
  uint32_t floor = f->op_count;
  for (uint32_t i = 0; i < t->count; i++)
    if (f->ops[t->ops[i]].kind != VT_FUSE_VIEW && t->ops[i] < floor) floor = t->ops[i];
  while (floor < f->op_count && f->span_from[floor] < floor) floor = f->span_from[floor];
  return floor;
}

// Whether a path leaves the stamped set of t and comes back: a backward search from what the set
// reads. All ops of a group run together, so each depends on what any of them reads.
static bool has_cycle(vt_fuser *f, const vt_trial *t) {
  uint32_t floor = search_floor(f, t);
  f->visit++;
  f->stack = (vt_index_list){0};
  for (uint32_t i = 0; i < t->count; i++) push_operands(f, f->ops[t->ops[i]].op, true);
  while (f->stack.size) {
    uint32_t index = f->stack.data[--f->stack.size];
    vt_fuse_op *s = &f->ops[index];
    if (index < floor) continue;
    if (s->stamp == f->stamp && s->kind != VT_FUSE_VIEW) return true;
    if (s->visit == f->visit) continue;
    s->visit = f->visit;
    if (s->group < 0) {
      push_operands(f, s->op, false);
      continue;
    }
    const vt_work_group *g = &f->groups.data[s->group];
    for (uint32_t i = 0; i < g->count; i++) {
      vt_fuse_op *member = &f->ops[g->ops[i]];
      member->visit = f->visit;
      push_operands(f, member->op, false);
    }
  }
  return false;
}

// The union of two ascending lists.
void vt_fuse_merge_lists(vt_arena *arena, vt_trial *t, uint32_t count, const uint32_t *more) {
  uint32_t *out = VT_NEW_ARRAY(arena, uint32_t, t->count + count), n = 0, i = 0, j = 0;
  while (i < t->count || j < count) {
    uint32_t next = j == count || (i < t->count && t->ops[i] <= more[j]) ? t->ops[i] : more[j];
    if (i < t->count && t->ops[i] == next) i++;
    if (j < count && more[j] == next) j++;
    out[n++] = next;
  }
  t->ops = out;
  t->count = n;
}

static bool try_merge(vt_fuser *f, vt_trial *t, const vt_work_group *g) {
  vt_trial next = *t;
  vt_fuse_merge_lists(&f->trial, &next, g->count, g->ops);
  if (next.count > MAX_GROUP_OPS) return false;
  stamp_ops(f, &next);
  if (has_cycle(f, &next) || !vt_fuse_try(f, &f->trial, &next)) return false;
  *t = next;
  return true;
}

static void keep_group(vt_fuser *f, const vt_trial *t) {
  vt_work_group g = {.count = t->count, .ops = VT_NEW_ARRAY(&f->scratch, uint32_t, t->count)};
  memcpy(g.ops, t->ops, sizeof *t->ops * t->count);
  uint32_t low = f->op_count, high = 0;
  for (uint32_t i = 0; i < t->count; i++) {
    if (f->ops[t->ops[i]].kind == VT_FUSE_VIEW) continue;
    if (t->ops[i] < low) low = t->ops[i];
    if (t->ops[i] > high) high = t->ops[i];
  }
  for (uint32_t i = low + 1; i <= high; i++)
    if (low < f->span_from[i]) f->span_from[i] = low;
  for (uint32_t i = 0; i < t->count; i++) {
    vt_fuse_op *s = &f->ops[t->ops[i]];
    if (s->kind == VT_FUSE_VIEW) continue;
    if (s->group >= 0) f->groups.data[s->group].dead = true;
    s->group = (int32_t)f->groups.size;
  }
  vt_array_push(&f->groups, g);
}

// ---- Growing groups.

// The views feeding `op`, as an ascending list with op itself at the end.
static void add_views(vt_fuser *f, vt_op *op, vt_index_list *list) {
  vt_fuse_op *s = vt_fuse_state(f, op);
  if (s->visit == f->visit) return;
  s->visit = f->visit;
  for (uint32_t k = 0; k < op->operand_count; k++) {
    vt_op *from = op->operands[k]->op;
    if (from && vt_fuse_state(f, from)->kind == VT_FUSE_VIEW && !vt_fuse_state(f, from)->blocked)
      add_views(f, from, list);
  }
  vt_array_push_in(&f->trial, list, vt_fuse_index(op));
}

static int compare_index(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

void vt_fuse_sort(vt_index_list *list) {
  if (list->size) qsort(list->data, list->size, sizeof *list->data, compare_index);
}

static vt_trial start_trial(vt_fuser *f, uint32_t index) {
  vt_assert(index < f->op_count);
  vt_index_list list = {0};
  f->visit++;
  add_views(f, f->ops[index].op, &list);
  vt_fuse_sort(&list);
  return (vt_trial){.home = VT_NO_GROUP, .count = (uint32_t)list.size, .ops = list.data};
}

static void place_op(vt_fuser *f, uint32_t index) {
  vt_assert(f->ops[index].group == VT_NO_GROUP);
  vt_trial t = start_trial(f, index);
  if (!vt_fuse_try(f, &f->trial, &t)) {
    for (uint32_t i = 0; i < t.count; i++) { // retry with the views in memory
      vt_fuse_op *s = &f->ops[t.ops[i]];
      if (s->kind == VT_FUSE_VIEW && s->op->operand_count) s->blocked = true;
    }
    t = start_trial(f, index);
    if (!vt_fuse_try(f, &f->trial, &t)) {
      f->ops[index].kind = VT_FUSE_SINGLE;
      return;
    }
  }
  uint32_t first_count = t.count;
  uint32_t *first_ops = t.ops;
  for (uint32_t i = first_count; i-- > 0;) {
    const vt_op *op = f->ops[first_ops[i]].op;
    for (uint32_t k = 0; k < op->operand_count; k++) {
      const vt_op *from = op->operands[k]->op;
      if (!from || vt_fuse_state(f, from)->kind != VT_FUSE_LOOP) continue;
      int32_t g = vt_fuse_state(f, from)->group;
      bool inside = false;
      for (uint32_t j = 0; j < t.count && !inside; j++) inside = t.ops[j] == vt_fuse_index(from);
      if (g >= 0 && !inside) try_merge(f, &t, &f->groups.data[g]);
    }
  }
  keep_group(f, &t);
  vt_arena_reset(&f->trial);
}

// Merges groups that read the same value (looking through views).
static void merge_siblings(vt_fuser *f, const vt_value *value, int *tries, int32_t *last) {
  for (uint32_t u = f->user_start[value->id]; u < f->user_start[value->id + 1]; u++) {
    vt_fuse_op *user = &f->ops[f->users[u]];
    if (user->kind == VT_FUSE_VIEW && user->op->code == VT_OP_RESHAPE) {
      merge_siblings(f, &user->op->results[0], tries, last);
      continue;
    }
    int32_t g = user->group;
    if (g < 0 || g == *last || user->kind != VT_FUSE_LOOP) continue;
    if (*last >= 0 && (*tries)-- > 0) {
      const vt_work_group *mine = &f->groups.data[*last];
      vt_trial t = {.home = VT_NO_GROUP, .count = mine->count, .ops = mine->ops};
      if (try_merge(f, &t, &f->groups.data[g])) {
        keep_group(f, &t);
        g = (int32_t)f->groups.size - 1;
      }
      vt_arena_reset(&f->trial);
    }
    *last = g;
  }
}

static int64_t work_of(const vt_nest *nest) {
  int64_t elements = 1, ops = 0;
  for (int32_t a = 0; a < nest->atom_count; a++) elements *= nest->atoms[a];
  for (uint32_t i = 0; i < nest->node_count; i++) {
    const vt_nest_node *n = &nest->nodes[i];
    if (!vt_nest_is_full(nest, n) && n->kind != VT_NODE_REDUCE) continue;
    if (n->kind == VT_NODE_GATHER || n->kind == VT_NODE_SCATTER) ops += 4;
    if (n->kind == VT_NODE_OP || n->kind == VT_NODE_REDUCE)
      ops += vt_op_info_get(n->op->code)->cost > VT_COST_CHEAP ? 4 : 1;
  }
  return elements * (ops ? ops : 1);
}

// ---- Results.

typedef struct output_list {
  vt_arena *arena;
  vt_group *groups;
  uint32_t count;
} output_list;

static void emit_value(vt_fuser *f, output_list *out, const vt_value *value);

static void emit_loop(vt_fuser *f, output_list *out, int32_t group) {
  const vt_work_group *g = &f->groups.data[group];
  vt_assert(!g->dead && g->count);
  vt_trial t = {.home = group, .count = g->count, .ops = g->ops};
  bool good = vt_fuse_try(f, out->arena, &t);
  vt_assert(good);
  (void)good;
  for (uint32_t i = 0; i < t.count; i++)
    if (f->ops[t.ops[i]].group == group) f->ops[t.ops[i]].emitted = true;
  for (uint32_t i = 0; i < t.input_count; i++) emit_value(f, out, t.inputs[i]);
  out->groups[out->count++] = (vt_group){.fused = true,
                                         .op_count = t.count,
                                         .ops = t.list,
                                         .input_count = t.input_count,
                                         .inputs = t.inputs,
                                         .output_count = t.output_count,
                                         .outputs = t.outputs,
                                         .work = work_of(t.nest),
                                         .nest = t.nest};
}

vt_group vt_host_single(vt_arena *arena, vt_op *op) {
  vt_group g = {.op_count = 1,
                .ops = VT_NEW_ARRAY(arena, vt_op *, 1),
                .inputs = VT_NEW_ARRAY(arena, vt_value *, op->operand_count),
                .outputs = VT_NEW_ARRAY(arena, vt_value *, op->result_count)};
  g.ops[0] = op;
  for (uint32_t k = 0; k < op->operand_count; k++) {
    bool seen = false;
    for (uint32_t j = 0; j < g.input_count && !seen; j++) seen = g.inputs[j] == op->operands[k];
    if (!seen) g.inputs[g.input_count++] = op->operands[k];
    g.work += vt_type_elements(op->operands[k]->type);
  }
  for (uint32_t r = 0; r < op->result_count; r++) {
    g.outputs[g.output_count++] = &op->results[r];
    g.work += vt_type_elements(op->results[r].type);
  }
  g.fused = vt_native_supports(op);
  return g;
}

static void emit_single(output_list *out, vt_op *op) {
  out->groups[out->count++] = vt_host_single(out->arena, op);
}

// An iota needed in memory becomes a loop of its own when it is large enough.
static bool emit_iota(vt_fuser *f, output_list *out, vt_op *op) {
  if (op->code != VT_OP_IOTA || !vt_emit_has_types(op)) return false;
  int64_t elements = vt_type_elements(op->results[0].type);
  if (!elements || elements < f->min_work) return false;
  vt_op **ops = VT_NEW_ARRAY(out->arena, vt_op *, 1);
  vt_value **outputs = VT_NEW_ARRAY(out->arena, vt_value *, 1);
  ops[0] = op;
  outputs[0] = &op->results[0];
  vt_nest *nest = vt_nest_build(out->arena, 1, ops, 0, NULL, 1, outputs);
  if (!nest) return false;
  out->groups[out->count++] = (vt_group){.fused = true,
                                         .op_count = 1,
                                         .ops = ops,
                                         .output_count = 1,
                                         .outputs = outputs,
                                         .work = work_of(nest),
                                         .nest = nest};
  return true;
}

// Emits the group that writes `value` to memory, after the groups it needs. Only this gives views a
// group.
static void emit_value(vt_fuser *f, output_list *out, const vt_value *value) {
  if (!value->op) return;
  vt_fuse_op *s = vt_fuse_state(f, value->op);
  if (s->emitted) return;
  if (s->group >= 0) {
    emit_loop(f, out, s->group);
    return;
  }
  s->emitted = true;
  if (vt_op_info_get(s->op->code)->flags & VT_OPF_EFFECT) { // effects keep their order
    const vt_op *before = s->op->prev;
    while (before && !(vt_op_info_get(before->code)->flags & VT_OPF_EFFECT)) before = before->prev;
    if (before && before->result_count) emit_value(f, out, &before->results[0]);
  }
  for (uint32_t k = 0; k < s->op->operand_count; k++) emit_value(f, out, s->op->operands[k]);
  if (!emit_iota(f, out, s->op)) emit_single(out, s->op);
}

// Loops that are too small are split into groups of one.
static void drop_small(vt_fuser *f) {
  for (size_t i = 0; i < f->groups.size; i++) {
    vt_work_group *g = &f->groups.data[i];
    if (g->dead) continue;
    vt_trial t = {.home = VT_NO_GROUP, .count = g->count, .ops = g->ops};
    bool good = vt_fuse_try(f, &f->trial, &t);
    int fused = 0;
    for (uint32_t k = 0; k < g->count; k++) fused += f->ops[g->ops[k]].kind == VT_FUSE_LOOP;
    bool scalar = good && t.nest->atom_count == 1 && t.nest->atoms[0] == 1;
    int limit = f->repeated ? MANY_IN_LOOP : scalar ? MANY_SCALAR_OPS : MANY_OPS;
    bool many = !f->exact_limit && fused >= limit;
    bool keep = good && (work_of(t.nest) >= f->min_work || many);
    vt_arena_reset(&f->trial);
    if (keep) continue;
    for (uint32_t k = 0; k < g->count; k++) {
      vt_fuse_op *s = &f->ops[g->ops[k]];
      if (s->kind == VT_FUSE_LOOP) s->kind = VT_FUSE_SINGLE, s->group = VT_NO_GROUP;
    }
    g->dead = true;
  }
}

// Views get a group only if a single op or the caller needs them in memory.
static void emit_all(vt_fuser *f, output_list *out) {
  for (uint32_t i = 0; i < f->op_count; i++) {
    vt_fuse_op *s = &f->ops[i];
    if (s->kind == VT_FUSE_VIEW || s->emitted) continue;
    if (s->op->result_count) {
      emit_value(f, out, &s->op->results[0]);
      continue;
    }
    s->emitted = true; // an op without results, such as a sharding group
    for (uint32_t k = 0; k < s->op->operand_count; k++) emit_value(f, out, s->op->operands[k]);
    emit_single(out, s->op);
  }
  for (uint32_t i = 0; i < f->func->return_count; i++) emit_value(f, out, f->func->returns[i]);
}

// Groups read parameters and what earlier groups write; each value is written once; what the
// function returns is written.
static bool groups_are_sound(vt_fuser *f, const output_list *out) {
  bool *written = VT_NEW_ARRAY(&f->scratch, bool, f->func->value_count), sound = true;
  for (uint32_t i = 0; i < f->func->param_count; i++) written[f->func->params[i]->id] = true;
  for (uint32_t g = 0; g < out->count; g++) {
    const vt_group *group = &out->groups[g];
    for (uint32_t i = 0; i < group->input_count; i++) sound &= written[group->inputs[i]->id];
    for (uint32_t i = 1; i < group->op_count; i++)
      sound &= vt_fuse_index(group->ops[i - 1]) < vt_fuse_index(group->ops[i]);
    for (uint32_t i = 0; i < group->output_count; i++) {
      sound &= !written[group->outputs[i]->id];
      written[group->outputs[i]->id] = true;
    }
  }
  for (uint32_t i = 0; i < f->func->return_count; i++) sound &= written[f->func->returns[i]->id];
  return sound;
}

vt_status vt_host_fuse(vt_func *func, const vt_fuse_options *options, vt_arena *arena,
                       vt_group **out_groups, uint32_t *out_count) {
  static const vt_fuse_options defaults;
  if (!options) options = &defaults;
  vt_fuser f = {.func = func, .min_work = options->min_work ? options->min_work : DEFAULT_MIN_WORK};
  f.exact_limit = options->min_work != 0;
  f.repeated = options->repeated;
  vt_func_number(func);
  for (vt_op *op = func->first; op; op = op->next) f.op_count++;
  f.ops = VT_NEW_ARRAY(&f.scratch, vt_fuse_op, f.op_count);
  f.span_from = VT_NEW_ARRAY(&f.scratch, uint32_t, f.op_count);
  uint32_t i = 0;
  for (vt_op *op = func->first; op; op = op->next, i++) {
    f.span_from[i] = i;
    uint8_t kind =
        options->keep_out && options->keep_out(options->user, op) ? VT_FUSE_SINGLE : kind_of(op);
    f.ops[i] = (vt_fuse_op){.op = op, .kind = kind, .group = VT_NO_GROUP};
    op->note = (void *)(uintptr_t)i;
  }
  count_uses(&f);
  for (i = 0; i < f.op_count; i++)
    if (f.ops[i].kind == VT_FUSE_LOOP) place_op(&f, i);
  for (i = 0; i < f.func->param_count; i++)
    merge_siblings(&f, func->params[i], &(int){SIBLING_TRIES}, &(int32_t){-1});
  for (i = 0; i < f.op_count; i++)
    if (f.ops[i].kind != VT_FUSE_VIEW)
      for (uint32_t r = 0; r < f.ops[i].op->result_count; r++)
        merge_siblings(&f, &f.ops[i].op->results[r], &(int){SIBLING_TRIES}, &(int32_t){-1});
  drop_small(&f);
  vt_fuse_recompute(&f);
  output_list out = {.arena = arena, .groups = VT_NEW_ARRAY(arena, vt_group, f.op_count)};
  emit_all(&f, &out);
  vt_assert(out.count <= f.op_count && groups_are_sound(&f, &out));
  *out_groups = out.groups;
  *out_count = out.count;
  for (vt_op *op = func->first; op; op = op->next) op->note = NULL;
  vt_array_free(&f.groups);
  vt_arena_free(&f.trial);
  vt_arena_free(&f.scratch);
  return VT_OK;
}
