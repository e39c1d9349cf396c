// SPDX-License-Identifier: Apache-2.0
// combine.c - small collectives of one kind become one with several operands, as XLA's combiners do
// it: many messages cost more than one of their size.
//
// Candidates have one operand and agree in groups, reduction and dimension. They are taken in XLA's
// order: from the results down, operands first. A set ends where the next candidate depends on one
// of it, or its results would exceed a size or a number. Candidates above the size stay alone.
// The combined op stands where the last of the set stood, or before its first use with all that it
// needs; the others stand as they stood.
// Cost: O(ops) for each kind.
#include "passes/collectives.h"

#include <stdlib.h>

#include "base/array.h"
#include "passes/rewrite.h"

// What is known of an op: its note. Of an op that depends on no candidate that is only its place in
// the function, an odd number.
typedef struct mark {
  vt_op *op;
  struct mark *next;
  vt_op *before; // of an op with effects: the one before, which it must stay behind
  uint32_t kind; // of a candidate, from 1
  uint32_t set;  // the last one that it belongs to or depends on, from 1
  uint32_t at;   // its place
  uint32_t seen; // the last walk that was there
} mark;

typedef struct combiner {
  vt_opcode code;
  vt_combine_limits limits;
  vt_arena *scratch;
  bool *changed;
} combiner;

typedef VT_ARRAY(vt_op *) ops;

// The marks of a function.
typedef struct marking {
  const combiner *with;
  mark *first, *last; // as their ops stood
  uint32_t count, ops;
  bool moved; // ops, since
} marking;

// A walk over a function for the candidates of one kind.
typedef struct walk {
  const combiner *with;
  marking *marks;
  uint32_t kind;   // of its candidates
  uint32_t open;   // the set that is being filled, from 1
  vt_op **members; // of all sets, one after the other
  uint32_t *ends;  // of the sets in `members`, by their numbers
  uint32_t count;  // of all members
  int64_t bytes;   // of the set that is being filled
  vt_op **stack;   // what depends on each other, down to what is looked at
  uint32_t *next;  // of each: the operand to look at
  ops users;       // of members
} walk;

static mark *mark_of(const vt_op *op) {
  return (uintptr_t)op->note & 1 ? NULL : op->note;
}

static uint32_t place_of(const vt_op *op) {
  const mark *m = mark_of(op);
  return m ? m->at : (uint32_t)((uintptr_t)op->note >> 1);
}

static void set_place(vt_op *op, uint32_t at) {
  if (mark_of(op))
    mark_of(op)->at = at;
  else
    op->note = (void *)((uintptr_t)at << 1 | 1);
}

static bool is_candidate(const combiner *with, const vt_op *op) {
  return op->code == with->code && op->operand_count == 1 && op->result_count == 1 &&
         vt_type_bytes(op->results[0].type) <= with->limits.bytes;
}

// ---- marks --------------------------------------------------------------------------------------

static mark *mark_op(marking *all, vt_op *op, uint32_t at) {
  mark *m = op->note = VT_NEW(all->with->scratch, mark);
  m->op = op;
  m->at = at;
  if (all->last)
    all->last->next = m;
  else
    all->first = m;
  all->last = m;
  all->count++;
  return m;
}

static bool needs_marked(const vt_op *op, const vt_op *before) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i]->op && mark_of(op->operands[i]->op)) return true;
  return before && mark_of(before);
}

// Finds the candidates and marks them and what depends on them: nothing else can depend on a set.
static void mark_candidates(vt_func *func, marking *all, ops *candidates) {
  vt_op *effect = NULL;
  uint32_t at = 0;
  bool effects = func->module->effects;
  for (vt_op *op = func->first; op; op = op->next, at++) {
    bool candidate = is_candidate(all->with, op), fixed = effects && vt_op_has_effect(op);
    if (candidate) vt_array_push_in(all->with->scratch, candidates, op);
    if (candidate || (candidates->size && needs_marked(op, fixed ? effect : NULL)))
      mark_op(all, op, at)->before = fixed ? effect : NULL;
    else
      op->note = (void *)((uintptr_t)at << 1 | 1);
    if (fixed) effect = op;
  }
  all->ops = at;
}

// Marks all ops, for their effects.
static void mark_all(vt_func *func, marking *all) {
  vt_op *effect = NULL;
  for (vt_op *op = func->first; op; op = op->next) {
    mark *m = mark_of(op) ? mark_of(op) : mark_op(all, op, place_of(op));
    if (!vt_op_has_effect(op)) continue;
    m->before = effect;
    effect = op;
  }
}

// ---- kinds --------------------------------------------------------------------------------------

// Numbers the kinds of candidates; returns how many each has.
static uint32_t *find_kinds(const ops *candidates, const combiner *with, uint32_t *out_kinds) {
  const vt_op **first = VT_NEW_ARRAY(with->scratch, const vt_op *, candidates->size + 1);
  uint32_t *sizes = VT_NEW_ARRAY(with->scratch, uint32_t, candidates->size + 1), kinds = 0;
  for (size_t i = 0; i < candidates->size; i++) {
    vt_op *op = candidates->data[i];
    uint32_t k = 1;
    while (k <= kinds && !vt_op_alike(first[k], op)) k++;
    if (k > kinds) first[++kinds] = op;
    mark_of(op)->kind = k;
    sizes[k]++;
  }
  *out_kinds = kinds;
  return sizes;
}

// ---- sets ---------------------------------------------------------------------------------------

static uint32_t depends_on(const vt_op *op, uint32_t kind, bool *out_uses) {
  const mark *before = mark_of(op)->before ? mark_of(mark_of(op)->before) : NULL;
  uint32_t set = before ? before->set : 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const mark *maker = op->operands[i]->op ? mark_of(op->operands[i]->op) : NULL;
    if (maker && maker->set > set) set = maker->set;
    if (maker && maker->kind == kind) *out_uses = true;
  }
  return set;
}

static void close_set(walk *w) {
  w->ends[w->open++] = w->count;
  w->bytes = 0;
}

static void add(walk *w, vt_op *op, uint32_t set) {
  int64_t bytes = vt_type_bytes(op->results[0].type);
  uint32_t count = w->count - w->ends[w->open - 1];
  if (count && (set == w->open || w->bytes + bytes > w->with->limits.bytes ||
                count >= w->with->limits.count))
    close_set(w);
  w->members[w->count++] = op;
  w->bytes += bytes;
}

// After all that it depends on.
static void take(walk *w, vt_op *op) {
  bool member = mark_of(op)->kind == w->kind, uses = false;
  uint32_t set = depends_on(op, w->kind, &uses);
  if (uses) vt_array_push_in(w->with->scratch, &w->users, op);
  if (member) add(w, op, set);
  mark_of(op)->set = member ? w->open : set;
}

static bool is_next(const walk *w, const vt_op *op) {
  return op && mark_of(op) && mark_of(op)->seen != w->kind;
}

// Takes the op and what it depends on, operands in their order, but for what was taken.
static void take_all(walk *w, vt_op *root) {
  uint32_t depth = 0;
  if (!is_next(w, root)) return;
  mark_of(root)->seen = w->kind;
  w->stack[0] = root;
  w->next[0] = 0;
  for (;;) {
    vt_op *op = w->stack[depth], *needs = NULL;
    uint32_t i = w->next[depth];
    while (i < op->operand_count && !needs) {
      vt_op *maker = op->operands[i++]->op;
      if (is_next(w, maker)) needs = maker;
    }
    if (!needs && is_next(w, mark_of(op)->before)) needs = mark_of(op)->before;
    if (!needs) {
      take(w, op);
      if (!depth--) return;
      continue;
    }
    w->next[depth] = i;
    mark_of(needs)->seen = w->kind;
    w->stack[++depth] = needs;
    w->next[depth] = 0;
  }
}

static void join(walk *w, uint32_t count, vt_op **members) {
  vt_op *like = members[0], *last = like;
  vt_value **operands = VT_NEW_ARRAY(w->with->scratch, vt_value *, count);
  vt_type *types = VT_NEW_ARRAY(w->with->scratch, vt_type, count);
  for (uint32_t i = 0; i < count; i++) {
    operands[i] = members[i]->operands[0];
    types[i] = members[i]->results[0].type;
    if (mark_of(members[i])->at > mark_of(last)->at) last = members[i];
  }
  vt_op *all = vt_op_create(like->func, like->code, like->loc, count, operands, count, types,
                            like->region_count);
  for (uint32_t i = 0; i < like->region_count; i++) all->regions[i] = like->regions[i];
  all->attrs = like->attrs;
  all->attr_count = like->attr_count;
  mark_op(w->marks, all, mark_of(last)->at);
  vt_array_push_in(w->with->scratch, &w->users, all);
  vt_op_insert(last, all);
  for (uint32_t i = 0; i < count; i++) {
    vt_rewrite_value(&members[i]->results[0], &all->results[i]);
    vt_op_remove(members[i]);
  }
}

// Returns whether any set has several members.
static bool join_sets(walk *w) {
  bool any = false;
  for (uint32_t set = 1; set < w->open; set++) {
    uint32_t count = w->ends[set] - w->ends[set - 1];
    if (count < 2) continue;
    join(w, count, w->members + w->ends[set - 1]);
    any = true;
  }
  return any;
}

// ---- order --------------------------------------------------------------------------------------

static int by_place(const void *a, const void *b) {
  uint32_t x = place_of(*(vt_op *const *)a), y = place_of(*(vt_op *const *)b);
  return (x > y) - (x < y);
}

// Uses of what was combined follow. Finds the ops that now stand before what they depend on, from
// first to last.
static void move_uses(const walk *w, ops *early) {
  for (size_t k = 0; k < w->users.size; k++) {
    vt_op *op = w->users.data[k];
    bool before = false;
    if (op->result_count && op->results[0].replaced_by) continue; // it was combined itself
    vt_rewrite_operands(op);
    for (uint32_t i = 0, at = place_of(op); i < op->operand_count; i++)
      before = before || (op->operands[i]->op && place_of(op->operands[i]->op) > at);
    if (before) vt_array_push_in(w->with->scratch, early, op);
  }
  if (early->size) qsort(early->data, early->size, sizeof *early->data, by_place);
}

// Moves to before an op what it depends on, operands in their order, and stands behind it.
static void move_needs(const walk *w, vt_op *early) {
  uint32_t depth = 0, at = place_of(early);
  w->stack[0] = early;
  w->next[0] = 0;
  for (;;) {
    vt_op *op = w->stack[depth], *needs = NULL;
    uint32_t i = w->next[depth]++;
    if (i < op->operand_count)
      needs = op->operands[i]->op;
    else if (i == op->operand_count && mark_of(op))
      needs = mark_of(op)->before;
    if (needs && place_of(needs) > at) {
      set_place(needs, at);
      w->stack[++depth] = needs;
      w->next[depth] = 0;
    } else if (i >= op->operand_count) {
      if (!depth--) return;
      vt_op_remove(op);
      vt_op_insert(early, op);
    }
  }
}

static void make_stack(walk *w, uint32_t count) {
  w->stack = vt_arena_push_raw(w->with->scratch, sizeof *w->stack * count);
  w->next = vt_arena_push_raw(w->with->scratch, sizeof *w->next * count);
}

// After others were combined, which leaves several ops at one place.
static void take_in_order(vt_func *func, walk *w) {
  uint32_t at = 0;
  for (vt_op *op = func->first; op; op = op->next) {
    set_place(op, at++);
    take_all(w, op);
  }
}

static void combine_kind(vt_func *func, walk *w) {
  ops early = {0};
  make_stack(w, w->marks->count);
  for (uint32_t i = 0; i < func->return_count; i++) take_all(w, func->returns[i]->op);
  if (w->marks->moved)
    take_in_order(func, w);
  else
    for (const mark *m = w->marks->first; m; m = m->next) take_all(w, m->op);
  close_set(w);
  if (!join_sets(w)) return;
  *w->with->changed = w->marks->moved = true;
  move_uses(w, &early);
  vt_rewrite_returns(func);
  if (!early.size) return;
  if (func->module->effects) mark_all(func, w->marks);
  make_stack(w, w->marks->ops);
  for (size_t i = 0; i < early.size; i++) move_needs(w, early.data[i]);
}

static vt_status combine(vt_func *func, void *user) {
  const combiner *with = user;
  ops candidates = {0};
  marking marks = {.with = with};
  uint32_t kinds = 0;
  if (with->code != VT_OP_ALL_GATHER && !vt_func_holds(func, with->code)) return VT_OK;
  mark_candidates(func, &marks, &candidates);
  const uint32_t *sizes = candidates.size > 1 ? find_kinds(&candidates, with, &kinds) : NULL;
  for (uint32_t k = 1; k <= kinds; k++) {
    walk w = {.with = with, .marks = &marks, .kind = k, .open = 1};
    if (sizes[k] < 2) continue;
    w.members = VT_NEW_ARRAY(with->scratch, vt_op *, sizes[k]);
    w.ends = VT_NEW_ARRAY(with->scratch, uint32_t, sizes[k] + 2);
    combine_kind(func, &w);
  }
  return VT_OK;
}

static vt_status run(vt_module *module, vt_opcode code, vt_combine_limits limits, vt_arena *scratch,
                     bool *out_changed) {
  combiner with = {code, limits, scratch, out_changed};
  if (limits.bytes <= 0 || limits.count <= 1 || !module->made[code]) return VT_OK;
  return vt_rewrite_each_func(module, combine, &with);
}

vt_status vt_opt_all_gather_combiner(vt_module *module, const vt_collective_options *options,
                                     vt_arena *scratch, bool *out_changed) {
  return run(module, VT_OP_ALL_GATHER, options->others, scratch, out_changed);
}

vt_status vt_opt_all_reduce_combiner(vt_module *module, const vt_collective_options *options,
                                     vt_arena *scratch, bool *out_changed) {
  return run(module, VT_OP_ALL_REDUCE, options->all_reduce, scratch, out_changed);
}

vt_status vt_opt_reduce_scatter_combiner(vt_module *module, const vt_collective_options *options,
                                         vt_arena *scratch, bool *out_changed) {
  return run(module, VT_OP_REDUCE_SCATTER, options->others, scratch, out_changed);
}
