// SPDX-License-Identifier: Apache-2.0
// fuse.c - greedy grouping of a function's ops. See fuse.h for the result, nest.h for what one
// group may be. How: ops are visited in order. A fusable op joins the groups of its operands, one
// after the other, whenever the union is still one nest and no path leaves and re-enters it; then
// groups that read the same values are joined. Views (reshape, broadcast, slice, transposes that
// keep rows) and splat constants cost nothing to repeat, so they are not grouped but copied into
// every group that looks through them.
#include "host/fuse.h"

#include <assert.h>
#include <string.h>

#include "base/array.h"
#include "host/kernel_native.h"
#include "host/nest.h"

enum { MAX_GROUP_OPS = 400, MAX_GROUP_PORTS = 96, SIBLING_TRIES = 32 };
// Element-ops below which the evaluator is the better choice, unless it would have to run many ops:
// each costs it some 0.3 us however small, and code for a nest about 1 ms once (none when a larger
// array has the same nest).
static const int64_t DEFAULT_MIN_WORK = 8 << 10;
enum { MANY_OPS = 6, MANY_SCALAR_OPS = 12 };

enum { KIND_SINGLE, KIND_VIEW, KIND_FUSE };

typedef VT_ARRAY(uint32_t) index_list;

typedef struct op_state {
  vt_op *op;
  uint8_t kind;
  bool emitted;
  bool blocked;   // VIEW that no nest could look through: read from memory
  int32_t group;  // FUSE: index into fuser.groups, -1
  uint32_t stamp; // == fuser.stamp: member of the set under trial
  uint32_t visit; // == fuser.visit: seen by the search for paths
} op_state;

typedef struct work_group {
  uint32_t count;
  uint32_t *ops; // indices, ascending; views included
  bool dead;     // merged into another, or fallen apart
} work_group;

typedef struct fuser {
  vt_func *func;
  vt_arena scratch; // lives as long as the fuser
  vt_arena trial;   // one attempt
  uint32_t op_count;
  op_state *ops;
  uint32_t *user_start, *users; // by value id: indices of ops
  bool *returned;               // by value id
  VT_ARRAY(work_group) groups;
  uint32_t *span_from; // by op index i: the least index of a group that has ops before i and at i
                       // or later; i if none
  uint32_t stamp, visit;
  index_list stack; // of the search for paths
  int64_t min_work;
  bool exact_limit; // the caller's min_work, nothing else, decides
} fuser;

static uint32_t index_of(const vt_op *op) {
  return (uint32_t)(uintptr_t)op->note;
}
static op_state *state_of(fuser *f, const vt_op *op) {
  return &f->ops[index_of(op)];
}

// ---- What an op is.

static bool is_splat(const vt_op *op) {
  return op->code == VT_OP_CONSTANT &&
         (vt_attr_literal(op, VT_ATTR_VALUE)->splat || vt_type_elements(op->results[0].type) == 1);
}

// A view whose rows stay rows: the last real dimension keeps its stride.
static bool keeps_rows(const vt_op *op) {
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
    if (vt_type_elements(op->results[i].type) == 0) return KIND_SINGLE;
  switch (op->code) {
  case VT_OP_CONSTANT:
    return is_splat(op) ? KIND_VIEW : KIND_SINGLE;
  case VT_OP_IOTA:
    return vt_emit_supports(op) ? KIND_VIEW : KIND_SINGLE;
  case VT_OP_RESHAPE:
  case VT_OP_BROADCAST_IN_DIM:
    return KIND_VIEW;
  case VT_OP_SLICE:
  case VT_OP_TRANSPOSE:
    return keeps_rows(op) ? KIND_VIEW : KIND_SINGLE;
  case VT_OP_REDUCE:
    if (vt_type_elements(op->operands[0]->type) < 2) return KIND_SINGLE;
    return vt_emit_supports(op) && vt_reducer_of(op) != VT_REDUCE_NONE ? KIND_FUSE : KIND_SINGLE;
  case VT_OP_BITCAST_CONVERT:
    return vt_emit_supports(op) ? KIND_FUSE : KIND_SINGLE;
  default:
    return (vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE) && vt_emit_supports(op) ? KIND_FUSE
                                                                                      : KIND_SINGLE;
  }
}

// ---- Uses.

static void count_uses(fuser *f) {
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

// Whether anything outside the stamped set needs `value` in memory, looking through views.
static bool needed_outside(fuser *f, const vt_value *value) {
  if (f->returned[value->id]) return true;
  for (uint32_t u = f->user_start[value->id]; u < f->user_start[value->id + 1]; u++) {
    op_state *user = &f->ops[f->users[u]];
    if (user->kind == KIND_VIEW) {
      if (needed_outside(f, &user->op->results[0])) return true;
    } else if (user->stamp != f->stamp) {
      return true;
    }
  }
  return false;
}

// ---- Sets of ops under trial.

typedef struct trial {
  uint32_t count;
  uint32_t *ops;
  vt_op **list;
  uint32_t input_count, output_count;
  vt_value **inputs, **outputs;
  vt_nest *nest;
} trial;

static void stamp_ops(fuser *f, const trial *t) {
  f->stamp++;
  for (uint32_t i = 0; i < t->count; i++) f->ops[t->ops[i]].stamp = f->stamp;
}

// Fills list, inputs and outputs of t from its ops, which are stamped.
static bool find_ports(fuser *f, vt_arena *arena, trial *t) {
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
      if (value->op && state_of(f, value->op)->stamp == f->stamp) continue;
      bool seen = false;
      for (uint32_t j = 0; j < t->input_count && !seen; j++) seen = t->inputs[j] == value;
      if (!seen) t->inputs[t->input_count++] = value;
    }
    if (state_of(f, op)->kind == KIND_VIEW) continue;
    for (uint32_t r = 0; r < op->result_count; r++)
      if (needed_outside(f, &op->results[r])) t->outputs[t->output_count++] = &op->results[r];
  }
  return t->input_count + t->output_count <= MAX_GROUP_PORTS && t->output_count > 0;
}

static bool try_nest(fuser *f, vt_arena *arena, trial *t) {
  if (t->count > MAX_GROUP_OPS) return false;
  stamp_ops(f, t);
  if (!find_ports(f, arena, t)) return false;
  t->nest = vt_nest_build(arena, t->count, t->list, t->input_count, t->inputs, t->output_count,
                          t->outputs);
  return t->nest != NULL;
}

static void push_operands(fuser *f, const vt_op *op, bool from_set) {
  for (uint32_t k = 0; k < op->operand_count; k++) {
    const vt_op *from = op->operands[k]->op;
    if (!from || (from_set && state_of(f, from)->stamp == f->stamp)) continue;
    vt_array_push_in(&f->trial, &f->stack, index_of(from));
  }
}

// No op before this index needs an op at it or later, however groups hold ops together: the start
// of the set, moved back over every group that spans it.
static uint32_t search_floor(const fuser *f, const trial *t) {
  uint32_t floor = f->op_count;
  for (uint32_t i = 0; i < t->count; i++)
    if (f->ops[t->ops[i]].kind != KIND_VIEW && t->ops[i] < floor) floor = t->ops[i];
  while (floor < f->op_count && f->span_from[floor] < floor) floor = f->span_from[floor];
  return floor;
}

// Whether a path leaves the stamped set of t and comes back: backwards from what the set reads; all
// ops of a group run together, so one member waits for what any of them reads.
static bool has_cycle(fuser *f, const trial *t) {
  uint32_t floor = search_floor(f, t);
  f->visit++;
  f->stack = (index_list){0};
  for (uint32_t i = 0; i < t->count; i++) push_operands(f, f->ops[t->ops[i]].op, true);
  while (f->stack.size) {
    uint32_t index = f->stack.data[--f->stack.size];
    op_state *s = &f->ops[index];
    if (index < floor) continue;
    if (s->stamp == f->stamp && s->kind != KIND_VIEW) return true;
    if (s->visit == f->visit) continue;
    s->visit = f->visit;
    if (s->group < 0) {
      push_operands(f, s->op, false);
      continue;
    }
    const work_group *g = &f->groups.data[s->group];
    for (uint32_t i = 0; i < g->count; i++) {
      op_state *member = &f->ops[g->ops[i]];
      member->visit = f->visit;
      push_operands(f, member->op, false);
    }
  }
  return false;
}

// The union of two ascending lists.
static void merge_lists(vt_arena *arena, trial *t, uint32_t count, const uint32_t *more) {
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

static bool try_merge(fuser *f, trial *t, const work_group *g) {
  trial next = *t;
  merge_lists(&f->trial, &next, g->count, g->ops);
  if (next.count > MAX_GROUP_OPS) return false;
  stamp_ops(f, &next);
  if (has_cycle(f, &next) || !try_nest(f, &f->trial, &next)) return false;
  *t = next;
  return true;
}

static void keep_group(fuser *f, const trial *t) {
  work_group g = {.count = t->count, .ops = VT_NEW_ARRAY(&f->scratch, uint32_t, t->count)};
  memcpy(g.ops, t->ops, sizeof *t->ops * t->count);
  uint32_t low = f->op_count, high = 0;
  for (uint32_t i = 0; i < t->count; i++) {
    if (f->ops[t->ops[i]].kind == KIND_VIEW) continue;
    if (t->ops[i] < low) low = t->ops[i];
    if (t->ops[i] > high) high = t->ops[i];
  }
  for (uint32_t i = low + 1; i <= high; i++)
    if (low < f->span_from[i]) f->span_from[i] = low;
  for (uint32_t i = 0; i < t->count; i++) {
    op_state *s = &f->ops[t->ops[i]];
    if (s->kind == KIND_VIEW) continue;
    if (s->group >= 0) f->groups.data[s->group].dead = true;
    s->group = (int32_t)f->groups.size;
  }
  vt_array_push(&f->groups, g);
}

// ---- Growing groups.

// The views in front of `op`, as an ascending list with op itself at the end.
static void add_views(fuser *f, vt_op *op, index_list *list) {
  op_state *s = state_of(f, op);
  if (s->visit == f->visit) return;
  s->visit = f->visit;
  for (uint32_t k = 0; k < op->operand_count; k++) {
    vt_op *from = op->operands[k]->op;
    if (from && state_of(f, from)->kind == KIND_VIEW && !state_of(f, from)->blocked)
      add_views(f, from, list);
  }
  vt_array_push_in(&f->trial, list, index_of(op));
}

static int compare_index(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static trial start_trial(fuser *f, uint32_t index) {
  index_list list = {0};
  f->visit++;
  add_views(f, f->ops[index].op, &list);
  qsort(list.data, list.size, sizeof *list.data, compare_index);
  return (trial){.count = (uint32_t)list.size, .ops = list.data};
}

static void place_op(fuser *f, uint32_t index) {
  trial t = start_trial(f, index);
  if (!try_nest(f, &f->trial, &t)) {
    for (uint32_t i = 0; i < t.count; i++) { // again with the views in memory
      op_state *s = &f->ops[t.ops[i]];
      if (s->kind == KIND_VIEW && s->op->operand_count) s->blocked = true;
    }
    t = start_trial(f, index);
    if (!try_nest(f, &f->trial, &t)) {
      f->ops[index].kind = KIND_SINGLE;
      return;
    }
  }
  uint32_t first_count = t.count;
  uint32_t *first_ops = t.ops;
  for (uint32_t i = first_count; i-- > 0;) {
    const vt_op *op = f->ops[first_ops[i]].op;
    for (uint32_t k = 0; k < op->operand_count; k++) {
      const vt_op *from = op->operands[k]->op;
      if (!from || state_of(f, from)->kind != KIND_FUSE) continue;
      int32_t g = state_of(f, from)->group;
      bool inside = false;
      for (uint32_t j = 0; j < t.count && !inside; j++) inside = t.ops[j] == index_of(from);
      if (g >= 0 && !inside) try_merge(f, &t, &f->groups.data[g]);
    }
  }
  keep_group(f, &t);
  vt_arena_reset(&f->trial);
}

// Joins groups that read the same value (looking through views).
static void merge_siblings(fuser *f, const vt_value *value, int *tries, int32_t *last) {
  for (uint32_t u = f->user_start[value->id]; u < f->user_start[value->id + 1]; u++) {
    op_state *user = &f->ops[f->users[u]];
    if (user->kind == KIND_VIEW && user->op->code == VT_OP_RESHAPE) {
      merge_siblings(f, &user->op->results[0], tries, last);
      continue;
    }
    int32_t g = user->group;
    if (g < 0 || g == *last || user->kind != KIND_FUSE) continue;
    if (*last >= 0 && (*tries)-- > 0) {
      const work_group *mine = &f->groups.data[*last];
      trial t = {.count = mine->count, .ops = mine->ops};
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
    const vt_node *n = &nest->nodes[i];
    if (!vt_nest_is_full(nest, n) && n->kind != VT_NODE_REDUCE) continue;
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

static void emit_value(fuser *f, output_list *out, const vt_value *value);

static void emit_loop(fuser *f, output_list *out, const work_group *g) {
  trial t = {.count = g->count, .ops = g->ops};
  bool good = try_nest(f, out->arena, &t);
  assert(good);
  (void)good;
  for (uint32_t i = 0; i < t.count; i++)
    if (f->ops[t.ops[i]].kind == KIND_FUSE) f->ops[t.ops[i]].emitted = true;
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

static void emit_single(output_list *out, vt_op *op) {
  vt_group *g = &out->groups[out->count++];
  *g = (vt_group){.op_count = 1,
                  .ops = VT_NEW_ARRAY(out->arena, vt_op *, 1),
                  .inputs = VT_NEW_ARRAY(out->arena, vt_value *, op->operand_count),
                  .outputs = VT_NEW_ARRAY(out->arena, vt_value *, op->result_count)};
  g->ops[0] = op;
  for (uint32_t k = 0; k < op->operand_count; k++) {
    bool seen = false;
    for (uint32_t j = 0; j < g->input_count && !seen; j++) seen = g->inputs[j] == op->operands[k];
    if (!seen) g->inputs[g->input_count++] = op->operands[k];
    g->work += vt_type_elements(op->operands[k]->type);
  }
  for (uint32_t r = 0; r < op->result_count; r++) {
    g->outputs[g->output_count++] = &op->results[r];
    g->work += vt_type_elements(op->results[r].type);
  }
  g->fused = vt_native_supports(op);
}

// The group that puts `value` into memory, after the groups it needs. Views get one only through
// this.
static void emit_value(fuser *f, output_list *out, const vt_value *value) {
  if (!value->op) return;
  op_state *s = state_of(f, value->op);
  if (s->emitted) return;
  if (s->group >= 0) {
    emit_loop(f, out, &f->groups.data[s->group]);
    return;
  }
  s->emitted = true;
  if (vt_op_info_get(s->op->code)->flags & VT_OPF_EFFECT) { // effects keep their order
    const vt_op *before = s->op->prev;
    while (before && !(vt_op_info_get(before->code)->flags & VT_OPF_EFFECT)) before = before->prev;
    if (before && before->result_count) emit_value(f, out, &before->results[0]);
  }
  for (uint32_t k = 0; k < s->op->operand_count; k++) emit_value(f, out, s->op->operands[k]);
  emit_single(out, s->op);
}

// Which views some single op or the caller needs in memory; which loops are too small to keep.
static void emit_all(fuser *f, output_list *out) {
  for (size_t i = 0; i < f->groups.size; i++) {
    work_group *g = &f->groups.data[i];
    if (g->dead) continue;
    trial t = {.count = g->count, .ops = g->ops};
    bool good = try_nest(f, &f->trial, &t);
    int fused = 0;
    for (uint32_t k = 0; k < g->count; k++) fused += f->ops[g->ops[k]].kind == KIND_FUSE;
    bool scalar = good && t.nest->atom_count == 1 && t.nest->atoms[0] == 1;
    bool many = !f->exact_limit && fused >= (scalar ? MANY_SCALAR_OPS : MANY_OPS);
    bool keep = good && (work_of(t.nest) >= f->min_work || many);
    vt_arena_reset(&f->trial);
    if (keep) continue;
    for (uint32_t k = 0; k < g->count; k++) {
      op_state *s = &f->ops[g->ops[k]];
      if (s->kind == KIND_FUSE) s->kind = KIND_SINGLE, s->group = -1;
    }
    g->dead = true;
  }
  for (uint32_t i = 0; i < f->op_count; i++) {
    op_state *s = &f->ops[i];
    if (s->kind == KIND_VIEW || s->emitted) continue;
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

vt_status vt_host_fuse(vt_func *func, const vt_fuse_options *options, vt_arena *arena,
                       vt_group **out_groups, uint32_t *out_count) {
  static const vt_fuse_options defaults;
  if (!options) options = &defaults;
  fuser f = {.func = func, .min_work = options->min_work ? options->min_work : DEFAULT_MIN_WORK};
  f.exact_limit = options->min_work != 0;
  vt_func_number(func);
  for (vt_op *op = func->first; op; op = op->next) f.op_count++;
  f.ops = VT_NEW_ARRAY(&f.scratch, op_state, f.op_count);
  f.span_from = VT_NEW_ARRAY(&f.scratch, uint32_t, f.op_count);
  uint32_t i = 0;
  for (vt_op *op = func->first; op; op = op->next, i++) {
    f.span_from[i] = i;
    uint8_t kind =
        options->keep_out && options->keep_out(options->user, op) ? KIND_SINGLE : kind_of(op);
    f.ops[i] = (op_state){.op = op, .kind = kind, .group = -1};
    op->note = (void *)(uintptr_t)i;
  }
  count_uses(&f);
  for (i = 0; i < f.op_count; i++)
    if (f.ops[i].kind == KIND_FUSE) place_op(&f, i);
  for (i = 0; i < f.func->param_count; i++)
    merge_siblings(&f, func->params[i], &(int){SIBLING_TRIES}, &(int32_t){-1});
  for (i = 0; i < f.op_count; i++)
    if (f.ops[i].kind != KIND_VIEW)
      for (uint32_t r = 0; r < f.ops[i].op->result_count; r++)
        merge_siblings(&f, &f.ops[i].op->results[r], &(int){SIBLING_TRIES}, &(int32_t){-1});
  output_list out = {.arena = arena, .groups = VT_NEW_ARRAY(arena, vt_group, f.op_count)};
  emit_all(&f, &out);
  *out_groups = out.groups;
  *out_count = out.count;
  for (vt_op *op = func->first; op; op = op->next) op->note = NULL;
  vt_array_free(&f.groups);
  vt_arena_free(&f.trial);
  vt_arena_free(&f.scratch);
  return VT_OK;
}
