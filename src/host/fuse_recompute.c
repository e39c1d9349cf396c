// SPDX-License-Identifier: Apache-2.0
// fuse_recompute.c - values that a later group recomputes instead of reading.
//
// The forward pass of a training step saves values for the backward pass: x - mean, tanh(x), the
// mask of a relu. Most are a few cheap ops away from something that stays in memory anyway, and an
// array larger than the caches costs more to write and read back than those ops do. So, from the
// last value to the first: if every group that reads a value can compute it from what it already
// reads, or from one other array of no more bytes, each gets its own copy of the ops and the value
// is not written. Bits do not change: the same ops run on the same inputs. What the value's group
// writes anyway is such an array: it is read where repeating what makes it does not pay. Where a
// group writes several arrays that are a few ops from one of its values, it writes that one.
#include <string.h>

#include "base/check.h"
#include "host/fuser.h"

enum { MIN_BYTES = 512 << 10, MAX_READERS = 3, SMALL_SHARE = 8 };
// Cost of one byte per element, in cycles per vector of elements: written (the line is fetched
// first) and read once. The ops' cost classes use the same unit.
enum { CYCLES_PER_BYTE = 6, MEDIUM_CYCLES = 8, EXPENSIVE_CYCLES = 16 };

typedef struct reader {
  vt_trial now, then; // the group as it is, and with the copies
  vt_index_list added;
} reader;

typedef struct search {
  vt_fuser *f;
  const vt_value *target;
  int32_t from;           // the group that writes target
  bool reads;             // what that group writes anyway, rather than repeat how it is made
  const vt_value *source; // that it will write; NULL: none
  vt_trial writer;        // the same group unchanged
  uint32_t reader_count;
  reader readers[MAX_READERS];
} search;

static bool has_index(uint32_t count, const uint32_t *list, uint32_t index) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == index) return true;
  return false;
}

static bool has_value(uint32_t count, vt_value *const *list, const vt_value *value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value) return true;
  return false;
}

static vt_trial trial_of(vt_fuser *f, int32_t group) {
  vt_assert(group >= 0 && (size_t)group < f->groups.size);
  const vt_work_group *g = &f->groups.data[group];
  return (vt_trial){.home = group, .count = g->count, .ops = g->ops};
}

static int64_t bytes_of(const vt_value *value) {
  return vt_type_bytes(value->type);
}

// ---- Who reads the value.

static bool add_reader(search *s, int32_t group) {
  if (group == VT_GONE || group == s->from) return true;
  if (group == VT_NO_GROUP) return false;
  for (uint32_t i = 0; i < s->reader_count; i++)
    if (s->readers[i].now.home == group) return true;
  const vt_work_group *g = &s->f->groups.data[group];
  if (has_index(g->count, g->ops, vt_fuse_index(s->target->op))) return true; // its own copy
  if (s->reader_count == MAX_READERS) return false;
  s->readers[s->reader_count++] = (reader){.now = trial_of(s->f, group)};
  return true;
}

// False when something other than a few loop groups reads the value, directly or through views.
static bool find_readers(search *s, const vt_value *value) {
  vt_fuser *f = s->f;
  if (f->returned[value->id]) return false;
  for (uint32_t u = f->user_start[value->id]; u < f->user_start[value->id + 1]; u++) {
    vt_fuse_op *user = &f->ops[f->users[u]];
    if (user->kind == VT_FUSE_VIEW) {
      if (user->blocked || !find_readers(s, &user->op->results[0])) return false;
      continue;
    }
    if (!add_reader(s, user->group)) return false;
    for (size_t i = 0; i < user->copies.size; i++)
      if (!add_reader(s, user->copies.data[i])) return false;
  }
  return true;
}

// ---- The ops that compute it.

static int64_t cycles_of(const search *s, const vt_op *op) {
  if (vt_type_elements(op->results[0].type) * SMALL_SHARE <= vt_type_elements(s->target->type))
    return 0;
  switch (vt_op_info_get(op->code)->cost) {
  case VT_COST_FREE:
  case VT_COST_CHEAP:
    return 1;
  case VT_COST_MEDIUM:
    return MEDIUM_CYCLES;
  default:
    return EXPENSIVE_CYCLES;
  }
}

static bool may_repeat(const vt_op *op) {
  return op->code != VT_OP_REDUCE && op->code != VT_OP_GATHER && op->code != VT_OP_SCATTER;
}

// Lists the ops between `value` and what the reader can load; false when recomputing does not pay.
static bool walk(search *s, reader *r, const vt_value *value, int64_t *cycles, int64_t *bytes) {
  vt_fuser *f = s->f;
  if (value != s->target && has_value(r->now.input_count, r->now.inputs, value)) return true;
  if (value == s->source) {
    *bytes += bytes_of(value);
    return *bytes <= bytes_of(s->target);
  }
  vt_fuse_op *state = value->op ? vt_fuse_state(f, value->op) : NULL;
  bool small = bytes_of(value) * SMALL_SHARE <= bytes_of(s->target);
  bool inside =
      state && state->kind == VT_FUSE_LOOP && state->group == s->from && may_repeat(value->op);
  bool view = state && state->kind == VT_FUSE_VIEW;
  // A narrower form of the target that is written anyway: bf16 of f32.
  if (inside && value != s->target && (s->reads || 2 * bytes_of(value) <= bytes_of(s->target)) &&
      has_value(s->writer.output_count, s->writer.outputs, value))
    inside = false;
  if (!inside && !view) {
    // In memory: what the group itself reads, or a small result of it.
    if (!state) return small; // a large parameter may be about to be overwritten
    if (state->group == s->from && !has_value(s->writer.output_count, s->writer.outputs, value))
      return false;
    if (state->group == VT_GONE) return false;
    *bytes += small ? 0 : bytes_of(value);
    return small || *bytes <= bytes_of(s->target);
  }
  uint32_t index = vt_fuse_index(value->op);
  if (view ? state->blocked : value->op->result_count != 1) return false;
  if (has_index((uint32_t)r->added.size, r->added.data, index)) return true;
  if (!view) {
    if (has_index(r->now.count, r->now.ops, index)) return true;
    *cycles += cycles_of(s, value->op);
    if (*cycles > bytes_of(s->target) * CYCLES_PER_BYTE / vt_type_elements(s->target->type))
      return false;
  }
  vt_array_push_in(&f->trial, &r->added, index);
  for (uint32_t k = 0; k < value->op->operand_count; k++)
    if (!walk(s, r, value->op->operands[k], cycles, bytes)) return false;
  return true;
}

static bool is_view_of(const vt_fuser *f, const vt_value *value, const vt_value *target) {
  if (value == target) return true;
  if (!value->op || f->ops[vt_fuse_index(value->op)].kind != VT_FUSE_VIEW) return false;
  for (uint32_t i = 0; i < value->op->operand_count; i++)
    if (is_view_of(f, value->op->operands[i], target)) return true;
  return false;
}

// Whether some input of the set is the target or a view of it.
static bool still_reads(const vt_fuser *f, const vt_trial *t, const vt_value *target) {
  for (uint32_t i = 0; i < t->input_count; i++)
    if (is_view_of(f, t->inputs[i], target)) return true;
  return false;
}

static bool try_reader(search *s, reader *r) {
  vt_fuser *f = s->f;
  int64_t cycles = 0, bytes = 0;
  if (!vt_fuse_try(f, &f->trial, &r->now)) return false;
  if (!walk(s, r, s->target, &cycles, &bytes)) return false;
  // The write is saved once, the ops are repeated by each reader and in each pass over its rows.
  int64_t repeats = (int64_t)s->reader_count * r->now.nest->stage_count;
  int64_t worth = bytes_of(s->target) * CYCLES_PER_BYTE / vt_type_elements(s->target->type);
  if (cycles * 3 * repeats > worth * (2 + (int64_t)s->reader_count)) return false;
  vt_fuse_sort(&r->added);
  r->then = r->now;
  vt_fuse_merge_lists(&f->trial, &r->then, (uint32_t)r->added.size, r->added.data);
  return vt_fuse_try(f, &f->trial, &r->then) && !still_reads(f, &r->then, s->target);
}

// ---- The change.

static void set_ops(vt_fuser *f, int32_t group, uint32_t count, const uint32_t *ops) {
  vt_assert_each(i, count ? count - 1 : 0, ops[i] < ops[i + 1]);
  vt_work_group *g = &f->groups.data[group];
  g->ops = VT_NEW_ARRAY(&f->scratch, uint32_t, count);
  g->count = count;
  memcpy(g->ops, ops, sizeof *ops * count);
}

static void add_copies(search *s, const reader *r) {
  for (size_t i = 0; i < r->added.size; i++) {
    vt_fuse_op *state = &s->f->ops[r->added.data[i]];
    if (state->kind == VT_FUSE_LOOP)
      vt_array_push_in(&s->f->scratch, &state->copies, (uint32_t)r->now.home);
  }
  set_ops(s->f, r->now.home, r->then.count, r->then.ops);
}

static void take_back(search *s, const reader *r) {
  for (size_t i = 0; i < r->added.size; i++) {
    vt_fuse_op *state = &s->f->ops[r->added.data[i]];
    if (state->kind == VT_FUSE_LOOP) state->copies.size--;
  }
  set_ops(s->f, r->now.home, r->now.count, r->now.ops);
}

static void forget_copy(vt_fuse_op *state, uint32_t group) {
  for (size_t i = 0; i < state->copies.size; i++)
    if (state->copies.data[i] == group)
      state->copies.data[i--] = state->copies.data[--state->copies.size];
}

// Removes ops from a group that only served values it no longer writes.
static void prune(vt_fuser *f, vt_trial *t) {
  uint32_t kept = t->count;
  uint32_t *ops = VT_NEW_ARRAY(&f->trial, uint32_t, t->count);
  f->visit++; // marks what is used
  for (uint32_t i = 0; i < t->output_count; i++)
    vt_fuse_state(f, t->outputs[i]->op)->visit = f->visit;
  for (uint32_t i = t->count; i-- > 0;) {
    vt_fuse_op *state = &f->ops[t->ops[i]];
    if (state->visit != f->visit) {
      if (state->group == t->home)
        state->group = VT_GONE, state->emitted = true;
      else
        forget_copy(state, (uint32_t)t->home);
      continue;
    }
    ops[--kept] = t->ops[i];
    for (uint32_t k = 0; k < state->op->operand_count; k++)
      if (state->op->operands[k]->op)
        vt_fuse_state(f, state->op->operands[k]->op)->visit = f->visit;
  }
  set_ops(f, t->home, t->count - kept, ops + kept);
  f->groups.data[t->home].dead = kept == t->count;
}

static bool try_readers(search *s, bool reads) {
  s->reads = reads;
  for (uint32_t i = 0; i < s->reader_count; i++) {
    s->readers[i] = (reader){.now = trial_of(s->f, s->readers[i].now.home)};
    if (!try_reader(s, &s->readers[i])) return false;
  }
  return true;
}

static void recompute(vt_fuser *f, uint32_t index) {
  vt_assert(f->groups.data[f->ops[index].group].count);
  vt_fuse_op *state = &f->ops[index];
  search s = {.f = f, .target = &state->op->results[0], .from = state->group};
  if (!find_readers(&s, s.target) || !s.reader_count) return;
  s.writer = trial_of(f, s.from);
  if (!vt_fuse_try(f, &f->trial, &s.writer)) return;
  if (!try_readers(&s, false) && !try_readers(&s, true)) return;
  for (uint32_t i = 0; i < s.reader_count; i++) add_copies(&s, &s.readers[i]);
  vt_trial rest = trial_of(f, s.from);
  if (vt_fuse_try(f, &f->trial, &rest) || rest.output_count == 0)
    prune(f, &rest);
  else
    for (uint32_t i = 0; i < s.reader_count; i++) take_back(&s, &s.readers[i]);
}

// Makes the readers of an output of the source's group read the source instead.
static bool read_source(search *s) {
  if (!find_readers(s, s->target) || !s->reader_count || !try_readers(s, false)) return false;
  for (uint32_t i = 0; i < s->reader_count; i++) add_copies(s, &s->readers[i]);
  return true;
}

// The source of several outputs of a group is written in their place.
static void share(vt_fuser *f, uint32_t index) {
  enum { MOST = 4 };
  search done[MOST];
  uint32_t count = 0;
  const vt_value *source = &f->ops[index].op->results[0];
  int32_t home = f->ops[index].group;
  vt_trial writer = trial_of(f, home);
  if (!vt_fuse_try(f, &f->trial, &writer) || has_value(writer.output_count, writer.outputs, source))
    return;
  for (uint32_t u = f->user_start[source->id]; u < f->user_start[source->id + 1]; u++) {
    const vt_fuse_op *user = &f->ops[f->users[u]];
    const vt_value *target = &user->op->results[0];
    if (count == MOST || user->kind != VT_FUSE_LOOP || user->group != home ||
        !may_repeat(user->op) || !has_value(writer.output_count, writer.outputs, target) ||
        (count && done[count - 1].target == target))
      continue;
    done[count] =
        (search){.f = f, .target = target, .from = home, .source = source, .writer = writer};
    count += read_source(&done[count]);
  }
  vt_trial rest = trial_of(f, home);
  if (count > 1 && vt_fuse_try(f, &f->trial, &rest)) {
    prune(f, &rest);
    return;
  }
  while (count-- > 0)
    for (uint32_t i = done[count].reader_count; i-- > 0;)
      take_back(&done[count], &done[count].readers[i]);
}

static void for_large_values(vt_fuser *f, void (*change)(vt_fuser *f, uint32_t index)) {
  for (uint32_t i = f->op_count; i-- > 0;) {
    const vt_fuse_op *state = &f->ops[i];
    if (state->kind != VT_FUSE_LOOP || state->group < 0 || !may_repeat(state->op) ||
        state->op->result_count != 1 || bytes_of(&state->op->results[0]) < MIN_BYTES)
      continue;
    change(f, i);
    vt_arena_reset(&f->trial);
  }
}

void vt_fuse_recompute(vt_fuser *f) {
  for_large_values(f, recompute);
  for_large_values(f, share);
}
