// SPDX-License-Identifier: Apache-2.0
// combine.c - small collectives of one kind become one with several operands, as XLA's combiners do
// it: many messages cost more than one of their size.
//
// Candidates have one operand and agree in groups, reduction and dimension. They are taken in
// order, until the next one depends on one of the set, or the set's results would exceed a size or
// a number. The combined op stands where the last of the set stood; what lies between and depends
// on the others moves behind it. Candidates above the size stay alone. Cost: O(ops) for each kind.
#include "passes/collectives.h"

#include "passes/rewrite.h"

// What a walk knows of an op: its note.
typedef struct mark {
  uint32_t kind; // of a candidate, from 1
  uint32_t set;  // the last one that it belongs to or depends on, from 1
} mark;

typedef struct combiner {
  vt_opcode code;
  vt_combine_limits limits;
  vt_arena *scratch;
  bool *changed;
} combiner;

// A walk over a function for the candidates of one kind.
typedef struct walk {
  const combiner *with;
  uint32_t kind;
  uint32_t open;    // the set that is being filled
  uint32_t effects; // the set that the effects so far depend on
  vt_op **members;  // of the open set
  uint32_t count;
  int64_t bytes;
  bool joined;
} walk;

static mark *mark_of(const vt_op *op) {
  return op->note;
}

// ---- kinds --------------------------------------------------------------------------------------

static bool is_candidate(const combiner *with, const vt_op *op) {
  return op->code == with->code && op->operand_count == 1 && op->result_count == 1 &&
         vt_type_bytes(op->results[0].type) <= with->limits.bytes;
}

// Numbers the kinds; out_sizes[k] is how many candidates kind k has. Returns the number of
// candidates.
static uint32_t find_kinds(vt_func *func, const combiner *with, uint32_t *out_kinds,
                           uint32_t **out_sizes) {
  uint32_t candidates = 0, kinds = 0;
  for (vt_op *op = func->first; op; op = op->next) {
    op->note = VT_NEW(with->scratch, mark);
    candidates += is_candidate(with, op);
  }
  const vt_op **first = VT_NEW_ARRAY(with->scratch, const vt_op *, candidates + 1);
  *out_sizes = VT_NEW_ARRAY(with->scratch, uint32_t, candidates + 1);
  for (vt_op *op = func->first; op; op = op->next) {
    if (!is_candidate(with, op)) continue;
    uint32_t k = 1;
    while (k <= kinds && !vt_op_alike(first[k], op)) k++;
    if (k > kinds) first[++kinds] = op;
    mark_of(op)->kind = k;
    (*out_sizes)[k]++;
  }
  *out_kinds = kinds;
  return candidates;
}

// ---- sets ---------------------------------------------------------------------------------------

static void join(walk *w, vt_op *last) {
  const vt_op *like = w->members[0];
  vt_value **operands = VT_NEW_ARRAY(w->with->scratch, vt_value *, w->count);
  vt_type *types = VT_NEW_ARRAY(w->with->scratch, vt_type, w->count);
  for (uint32_t i = 0; i < w->count; i++) {
    operands[i] = w->members[i]->operands[0];
    types[i] = w->members[i]->results[0].type;
  }
  vt_op *all = vt_op_create(like->func, like->code, like->loc, w->count, operands, w->count, types,
                            like->region_count);
  for (uint32_t i = 0; i < like->region_count; i++) all->regions[i] = like->regions[i];
  all->attrs = like->attrs;
  all->attr_count = like->attr_count;
  all->note = VT_NEW(w->with->scratch, mark);
  mark_of(all)->set = w->open;
  vt_op_insert(last, all);
  for (uint32_t i = 0; i < w->count; i++) {
    vt_rewrite_value(&w->members[i]->results[0], &all->results[i]);
    vt_op_remove(w->members[i]);
  }
  w->joined = true;
}

static void close_set(walk *w) {
  if (w->count > 1) {
    vt_op *last = w->members[w->count - 1], *behind = last->next, *next;
    for (vt_op *op = w->members[0]; op != last; op = next) {
      next = op->next;
      if (mark_of(op)->set != w->open || mark_of(op)->kind == w->kind) continue;
      vt_op_remove(op);
      if (behind)
        vt_op_insert(behind, op);
      else
        vt_op_append(last->func, op);
    }
    join(w, last);
  }
  w->open++;
  w->count = 0;
  w->bytes = 0;
}

static uint32_t depends_on(const walk *w, const vt_op *op, bool effect) {
  uint32_t set = effect ? w->effects : 0;
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

static void combine_kind(vt_func *func, walk *w) {
  vt_op *next;
  for (vt_op *op = func->first; op; op = next) {
    next = op->next;
    bool effect = vt_op_has_effect(op), member = mark_of(op)->kind == w->kind;
    uint32_t set = depends_on(w, op, effect);
    if (member) add(w, op, set);
    mark_of(op)->set = member ? w->open : set;
    if (effect) w->effects = set;
  }
  close_set(w);
  for (vt_op *op = func->first; w->joined && op; op = op->next) vt_rewrite_operands(op);
  if (w->joined) vt_rewrite_returns(func);
}

static vt_status combine(vt_func *func, void *user) {
  const combiner *with = user;
  uint32_t kinds, *sizes, candidates = find_kinds(func, with, &kinds, &sizes);
  vt_op **members = VT_NEW_ARRAY(with->scratch, vt_op *, candidates + 1);
  for (uint32_t k = 1; k <= kinds; k++) {
    walk w = {.with = with, .kind = k, .open = 1, .members = members};
    if (sizes[k] > 1) combine_kind(func, &w);
    *with->changed |= w.joined;
  }
  for (vt_op *op = func->first; op; op = op->next) op->note = NULL;
  return VT_OK;
}

static vt_status run(vt_module *module, vt_opcode code, vt_combine_limits limits, vt_arena *scratch,
                     bool *out_changed) {
  combiner with = {code, limits, scratch, out_changed};
  if (limits.bytes <= 0 || limits.count <= 1) return VT_OK;
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
