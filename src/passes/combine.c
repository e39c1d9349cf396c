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

#include "base/array.h"
#include "passes/rewrite.h"

// What a walk knows of an op: its note.
typedef struct mark {
  uint32_t kind; // of a candidate, from 1
  uint32_t set;  // the last one that it belongs to or depends on, from 1
  vt_op *before; // of an op with effects: the one before, which it must stay behind
  uint32_t at;   // its place in the function
  uint32_t seen; // the last order that it is in
} mark;

typedef struct combiner {
  vt_opcode code;
  vt_combine_limits limits;
  vt_arena *scratch;
  bool *changed;
} combiner;

// Ops with what they depend on before them.
typedef struct order {
  vt_op **ops, **stack;
  uint32_t *next; // of those in the stack: the operand to look at
  uint32_t count, number;
} order;

// A walk over a function for the candidates of one kind.
typedef struct walk {
  const combiner *with;
  uint32_t kind;   // of its candidates
  uint32_t open;   // the set that is being filled
  vt_op **members; // of it
  uint32_t count;
  int64_t bytes;
  bool joined;
} walk;

static mark *mark_of(const vt_op *op) {
  return op->note;
}

static bool is_candidate(const combiner *with, const vt_op *op) {
  return op->code == with->code && op->operand_count == 1 && op->result_count == 1 &&
         vt_type_bytes(op->results[0].type) <= with->limits.bytes;
}

// ---- order --------------------------------------------------------------------------------------

static void mark_ops(vt_func *func, uint32_t count, vt_arena *scratch) {
  vt_op *effect = NULL;
  uint32_t at = 0;
  mark *marks = VT_NEW_ARRAY(scratch, mark, count + 1);
  for (vt_op *op = func->first; op; op = op->next, at++) {
    op->note = &marks[at];
    marks[at].at = at;
    if (!vt_op_has_effect(op)) continue;
    marks[at].before = effect;
    effect = op;
  }
}

// Appends the op and what it depends on, operands in their order, but for what was seen.
static void visit(order *o, vt_op *root) {
  uint32_t depth = 0;
  if (mark_of(root)->seen == o->number) return;
  mark_of(root)->seen = o->number;
  o->stack[0] = root;
  o->next[0] = 0;
  for (;;) {
    vt_op *op = o->stack[depth];
    uint32_t i = o->next[depth]++;
    if (i > op->operand_count) {
      o->ops[o->count++] = op;
      if (!depth--) return;
      continue;
    }
    vt_op *needs = i < op->operand_count ? op->operands[i]->op : mark_of(op)->before;
    if (!needs || mark_of(needs)->seen == o->number) continue;
    mark_of(needs)->seen = o->number;
    o->stack[++depth] = needs;
    o->next[depth] = 0;
  }
}

static void order_from_results(const vt_func *func, order *o) {
  o->count = 0;
  o->number++;
  for (uint32_t i = 0; i < func->return_count; i++)
    if (func->returns[i]->op) visit(o, func->returns[i]->op);
  for (vt_op *op = func->first; op; op = op->next) visit(o, op);
}

// Uses of what was combined follow. Whether one of them now stands before what it depends on.
static bool move_uses(vt_func *func) {
  bool before = false;
  for (vt_op *op = func->first; op; op = op->next) {
    vt_rewrite_operands(op);
    for (uint32_t i = 0, at = mark_of(op)->at; i < op->operand_count; i++)
      before = before || (op->operands[i]->op && mark_of(op->operands[i]->op)->at > at);
  }
  vt_rewrite_returns(func);
  return before;
}

static void put_in_order(vt_func *func, order *o) {
  o->count = 0;
  o->number++;
  for (vt_op *op = func->first; op; op = op->next) visit(o, op);
  for (uint32_t i = 0; i < o->count; i++) mark_of(o->ops[i])->at = i;
  vt_func_reorder(func, o->count, o->ops);
}

// ---- kinds --------------------------------------------------------------------------------------

typedef VT_ARRAY(vt_op *) ops;

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

static void join(walk *w) {
  vt_op *like = w->members[0], *last = like;
  vt_value **operands = VT_NEW_ARRAY(w->with->scratch, vt_value *, w->count);
  vt_type *types = VT_NEW_ARRAY(w->with->scratch, vt_type, w->count);
  for (uint32_t i = 0; i < w->count; i++) {
    operands[i] = w->members[i]->operands[0];
    types[i] = w->members[i]->results[0].type;
    if (mark_of(w->members[i])->at > mark_of(last)->at) last = w->members[i];
  }
  vt_op *all = vt_op_create(like->func, like->code, like->loc, w->count, operands, w->count, types,
                            like->region_count);
  for (uint32_t i = 0; i < like->region_count; i++) all->regions[i] = like->regions[i];
  all->attrs = like->attrs;
  all->attr_count = like->attr_count;
  all->note = VT_NEW(w->with->scratch, mark);
  mark_of(all)->set = w->open;
  mark_of(all)->at = mark_of(last)->at;
  vt_op_insert(last, all);
  for (uint32_t i = 0; i < w->count; i++) {
    vt_rewrite_value(&w->members[i]->results[0], &all->results[i]);
    vt_op_remove(w->members[i]);
  }
  w->joined = true;
}

static void close_set(walk *w) {
  if (w->count > 1) join(w);
  w->open++;
  w->count = 0;
  w->bytes = 0;
}

static uint32_t depends_on(const vt_op *op) {
  const vt_op *before = mark_of(op)->before;
  uint32_t set = before ? mark_of(before)->set : 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_op *maker = op->operands[i]->op;
    if (maker && mark_of(maker)->set > set) set = mark_of(maker)->set;
  }
  return set;
}

static void add(walk *w, vt_op *op, uint32_t set) {
  int64_t bytes = vt_type_bytes(op->results[0].type);
  if (w->count && (set == w->open || w->bytes + bytes > w->with->limits.bytes ||
                   w->count >= w->with->limits.count))
    close_set(w);
  w->members[w->count++] = op;
  w->bytes += bytes;
}

static void combine_kind(vt_func *func, walk *w, order *o) {
  order_from_results(func, o);
  for (uint32_t i = 0; i < o->count; i++) {
    uint32_t set = depends_on(o->ops[i]);
    bool member = mark_of(o->ops[i])->kind == w->kind;
    if (member) add(w, o->ops[i], set);
    mark_of(o->ops[i])->set = member ? w->open : set;
  }
  close_set(w);
  if (w->joined && move_uses(func)) put_in_order(func, o);
}

static vt_status combine(vt_func *func, void *user) {
  const combiner *with = user;
  ops candidates = {0};
  uint32_t count = 0, kinds;
  for (vt_op *op = func->first; op; op = op->next, count++)
    if (is_candidate(with, op)) vt_array_push_in(with->scratch, &candidates, op);
  if (candidates.size < 2) return VT_OK;
  mark_ops(func, count, with->scratch);
  const uint32_t *sizes = find_kinds(&candidates, with, &kinds);
  vt_op **members = VT_NEW_ARRAY(with->scratch, vt_op *, candidates.size + 1);
  order o = {.ops = vt_arena_push_raw(with->scratch, sizeof(vt_op *) * (count + 1)),
             .stack = vt_arena_push_raw(with->scratch, sizeof(vt_op *) * (count + 1)),
             .next = vt_arena_push_raw(with->scratch, sizeof(uint32_t) * (count + 1))};
  for (uint32_t k = 1; k <= kinds; k++) {
    walk w = {.with = with, .kind = k, .open = 1, .members = members};
    if (sizes[k] > 1) combine_kind(func, &w, &o);
    *with->changed |= w.joined;
  }
  for (vt_op *op = func->first; op; op = op->next) op->note = NULL;
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
