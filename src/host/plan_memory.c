// SPDX-License-Identifier: Apache-2.0
// plan_memory.c - where the values of a plan live.
//
// 1. Live ranges: a value lives from the step that writes it to the last step that reads it or a
//    value that names the same bytes. Parameters live from before the first step, returned values
//    until after the last.
// 2. Classes: values merged into one piece of memory. An output joins the class of an input that
//    dies in its step when the step may work in place; a returned value lives in the memory of its
//    result. Steps are visited from the last to the first, so that chains of in-place steps grow
//    backwards from the results.
// 3. Before that, parameters are merged with results: in a loop body carried parameter i and result
//    i when their live ranges allow, so that the state is updated in place (otherwise the executor
//    alternates between two memories); in the main function a donated parameter and a result that
//    is first written when the parameter is dead, or by the step that works in place on it; in a
//    branch the same for results that some branch passes through. Merged early, no temporary of the
//    result's class can get in the parameter's way.
// 4. The remaining classes, and the scratch of steps, are placed in one block by a best-fit sweep
//    in step order.
#include <string.h>

#include "base/check.h"
#include "host/plan.h"

enum { NOWHERE = -1 };
static const uint32_t NONE = UINT32_MAX;

typedef struct range {
  uint32_t class;     // NONE: has no memory of the plan's (tokens, unused ids)
  uint32_t next;      // in its class
  int32_t start, end; // step numbers
  int64_t bytes;
  int32_t param; // index of the parameter, NOWHERE for others
} range;

typedef struct class {
  uint32_t first;     // range
  int32_t start, end; // hull
  int64_t bytes;
  int32_t result; // lives in the memory of this result
  bool fixed;     // parameter or constant: nothing may be merged into it
  bool alone;     // kept for later runs, or its address changes: likewise
  uint32_t slot;
} class;

typedef struct planner {
  vt_plan *plan;
  vt_arena scratch;
  range *ranges; // by value id
  VT_ARRAY(class) classes;
  VT_ARRAY(const void *) constants;
} planner;

static range *range_of(planner *p, const vt_value *value) {
  return &p->ranges[p->plan->roots[value->id]->id];
}

static uint32_t add_class(planner *p, uint32_t first, bool fixed) {
  range *r = &p->ranges[first];
  vt_assert(r->class == NONE && r->bytes >= 0 && r->start <= r->end);
  class c = {.first = first,
             .start = r->start,
             .end = r->end,
             .bytes = r->bytes,
             .result = NOWHERE,
             .fixed = fixed,
             .slot = NONE};
  vt_array_push_in(&p->scratch, &p->classes, c);
  r->class = (uint32_t)p->classes.size - 1;
  r->next = NONE;
  return r->class;
}

static bool is_root(const planner *p, const vt_value *value) {
  return p->plan->roots[value->id] == value;
}

static void find_ranges(planner *p) {
  vt_plan *plan = p->plan;
  int32_t steps = (int32_t)plan->step_count;
  for (uint32_t i = 0; i < plan->value_count; i++)
    p->ranges[i] =
        (range){.class = NONE, .next = NONE, .start = NOWHERE, .end = NOWHERE, .param = NOWHERE};
  for (uint32_t i = 0; i < plan->param_count; i++)
    p->ranges[plan->func->params[i]->id].param = (int32_t)i;
  for (int32_t s = 0; s < steps; s++) {
    const vt_step *step = &plan->steps[s];
    for (uint32_t i = 0; i < step->input_count; i++) range_of(p, step->inputs[i])->end = s;
    for (uint32_t i = 0; i < step->output_count; i++)
      if (is_root(p, step->outputs[i])) {
        range *r = &p->ranges[step->outputs[i]->id];
        r->start = r->end = s;
      }
  }
  for (uint32_t i = 0; i < plan->result_count; i++) p->ranges[plan->returns[i]->id].end = steps;
}

static const void *constant_data(planner *p, const vt_literal *literal);

static void make_classes(planner *p) {
  vt_plan *plan = p->plan;
  for (uint32_t i = 0; i < plan->param_count; i++) {
    vt_value *param = plan->func->params[i];
    p->ranges[param->id].bytes = vt_type_bytes(param->type);
    add_class(p, (uint32_t)param->id, true);
    p->classes.data[i].slot = i;
  }
  for (uint32_t s = 0; s < plan->step_count; s++) {
    const vt_step *step = &plan->steps[s];
    for (uint32_t i = 0; i < step->output_count; i++) {
      vt_value *out = step->outputs[i];
      if (!is_root(p, out) || out->type.dtype == VT_TOKEN) continue;
      const vt_moving *moving = &plan->moving[out->id];
      p->ranges[out->id].bytes = moving->elsewhere ? 0 : vt_type_bytes(out->type);
      uint32_t c = add_class(p, (uint32_t)out->id, false);
      p->classes.data[c].alone = moving->moves || (step->kept && step->kept->skips);
    }
  }
  for (uint32_t r = 0; r < plan->result_count; r++) {
    if (plan->invariant[r] || plan->returns[r]->type.dtype == VT_TOKEN) continue;
    class *c = &p->classes.data[p->ranges[plan->returns[r]->id].class];
    vt_assert(!c->fixed && c->result == NOWHERE);
    c->result = (int32_t)r;
    c->slot = vt_result_slot(plan, r);
  }
}

// True when step `at` may write `output` over every one of its inputs that lives in range `input`.
static bool step_in_place_ok(planner *p, int32_t at, const range *input, const range *output) {
  const vt_step *step = &p->plan->steps[at];
  if (!step->in_place_ok) return false;
  uint32_t o = 0;
  while (o < step->output_count && &p->ranges[step->outputs[o]->id] != output) o++;
  if (o == step->output_count) return false;
  for (uint32_t i = 0; i < step->input_count; i++)
    if (range_of(p, step->inputs[i]) == input && !step->in_place_ok(step, o, i)) return false;
  return true;
}

// True when `early` and `late` may have the same memory, `early` having started first.
static bool ranges_part(planner *p, const range *early, const range *late) {
  if (early->end < late->start) return true;
  return early->end == late->start && early->start < late->start &&
         late->start < (int32_t)p->plan->step_count &&
         step_in_place_ok(p, late->start, early, late);
}

static bool classes_part(planner *p, const class *a, const class *b) {
  if (a->end < b->start || b->end < a->start) return true;
  for (uint32_t i = a->first; i != NONE; i = p->ranges[i].next)
    for (uint32_t j = b->first; j != NONE; j = p->ranges[j].next) {
      const range *x = &p->ranges[i], *y = &p->ranges[j];
      if (!(x->start <= y->start ? ranges_part(p, x, y) : ranges_part(p, y, x))) return false;
    }
  return true;
}

static void merge(planner *p, uint32_t into, uint32_t from) {
  class *a = &p->classes.data[into], *b = &p->classes.data[from];
  vt_assert(into != from && a->first != NONE && b->first != NONE);
  vt_assert(a->result == NOWHERE || b->result == NOWHERE);
  uint32_t last = NONE;
  for (uint32_t i = b->first; i != NONE; i = p->ranges[i].next) {
    p->ranges[i].class = into;
    last = i;
  }
  p->ranges[last].next = a->first;
  a->first = b->first;
  if (b->start < a->start) a->start = b->start;
  if (b->end > a->end) a->end = b->end;
  if (b->result != NOWHERE) {
    a->result = b->result;
    a->slot = b->slot;
  }
  b->first = NONE;
}

static void merge_in_place(planner *p) {
  for (uint32_t s = p->plan->step_count; s-- > 0;) {
    const vt_step *step = &p->plan->steps[s];
    if (!step->in_place_ok) continue;
    for (uint32_t o = 0; o < step->output_count; o++)
      for (uint32_t i = 0; i < step->input_count; i++) {
        if (!is_root(p, step->outputs[o]) || !step->in_place_ok(step, o, i)) continue;
        uint32_t from = range_of(p, step->inputs[i])->class,
                 into = p->ranges[step->outputs[o]->id].class;
        if (from == NONE || into == NONE || from == into) continue;
        class *a = &p->classes.data[into], *b = &p->classes.data[from];
        if (a->fixed || b->fixed || a->alone || b->alone || a->bytes != b->bytes) continue;
        if (a->result != NOWHERE && b->result != NOWHERE) continue;
        if (classes_part(p, a, b)) merge(p, into, from);
      }
  }
}

static void merge_loop_state(planner *p) {
  vt_plan *plan = p->plan;
  plan->in_place_result = VT_NEW_ARRAY(&plan->program->arena, bool, plan->result_count);
  for (uint32_t r = 0; r < plan->result_count; r++) {
    uint32_t c = p->ranges[plan->returns[r]->id].class;
    if (plan->invariant[r] || c == NONE) continue;
    plan->in_place_result[r] = classes_part(p, &p->classes.data[c], &p->classes.data[r]);
    if (plan->in_place_result[r]) merge(p, c, r);
  }
}

static void merge_shared(planner *p) {
  vt_plan *plan = p->plan;
  for (uint32_t r = 0; plan->shared_param && r < plan->result_count; r++) {
    int32_t param = plan->shared_param[r];
    uint32_t c = p->ranges[plan->returns[r]->id].class;
    if (param == NOWHERE) continue;
    const class *result = c == NONE ? NULL : &p->classes.data[c], *given = &p->classes.data[param];
    if (result && !result->alone && result->bytes == given->bytes && classes_part(p, result, given))
      merge(p, c, (uint32_t)param);
    else
      plan->shared_param[r] = NOWHERE;
  }
}

static bool try_alias(planner *p, uint32_t param, uint32_t result, bool *taken) {
  uint32_t c = p->ranges[p->plan->returns[result]->id].class;
  if (taken[result] || c == NONE || p->classes.data[c].bytes != p->classes.data[param].bytes)
    return false;
  if (!classes_part(p, &p->classes.data[c], &p->classes.data[param])) return false;
  merge(p, c, param);
  taken[result] = true;
  p->plan->alias_result[param] = (int32_t)result;
  return true;
}

static void find_donations(planner *p) {
  vt_plan *plan = p->plan;
  const vt_io_info *info = plan->func->param_info;
  plan->alias_result = VT_NEW_ARRAY(&plan->program->arena, int32_t, plan->param_count);
  bool *taken = VT_NEW_ARRAY(&p->scratch, bool, plan->result_count);
  for (uint32_t i = 0; i < plan->param_count; i++) {
    plan->alias_result[i] = NOWHERE;
    if (info && info[i].alias_output >= 0 && info[i].alias_output < (int32_t)plan->result_count)
      (void)try_alias(p, i, (uint32_t)info[i].alias_output, taken);
  }
  for (uint32_t i = 0; info && i < plan->param_count; i++)
    for (uint32_t r = 0;
         info[i].donor && plan->alias_result[i] == NOWHERE && r < plan->result_count; r++)
      if (vt_type_equal(plan->func->params[i]->type, plan->returns[r]->type))
        (void)try_alias(p, i, r, taken);
}

// Copies constants into aligned, padded memory of the program. NULL when out of memory.
static const void *constant_data(planner *p, const vt_literal *literal) {
  vt_program *program = p->plan->program;
  int64_t bytes = vt_type_bytes(literal->type);
  int64_t size = (int64_t)vt_dtype_bytes(literal->type.dtype);
  char *data;
  if (bytes > 4096) {
    vt_array_push(&program->heap, NULL); // first: it may find no memory
    data = program->heap.data[program->heap.size - 1] = vt_host_alloc(bytes);
    if (!data) return NULL;
  } else {
    data = vt_arena_push_aligned(&program->arena, (size_t)vt_padded_bytes(bytes), 64);
  }
  if (!literal->splat) {
    if (bytes) memcpy(data, literal->data, (size_t)bytes);
    return data;
  }
  for (int64_t i = 0; i < bytes; i += size) memcpy(data + i, literal->data, (size_t)size);
  return data;
}

static vt_status number_constants(planner *p) {
  vt_plan *plan = p->plan;
  uint32_t base = plan->param_count + plan->result_count;
  vt_array_push_in(&p->scratch, &p->constants, NULL); // the address of tokens
  for (uint32_t s = 0; s < plan->step_count; s++)
    for (uint32_t i = 0; i < plan->steps[s].input_count; i++) {
      vt_value *root = plan->roots[plan->steps[s].inputs[i]->id];
      range *r = &p->ranges[root->id];
      if (r->class != NONE || root->type.dtype == VT_TOKEN) continue;
      vt_assert(root->op && root->op->code == VT_OP_CONSTANT);
      const void *data = constant_data(p, vt_attr_literal(root->op, VT_ATTR_VALUE));
      if (!data) return vt_error_no_memory();
      uint32_t c = add_class(p, (uint32_t)root->id, true);
      p->classes.data[c].slot = base + (uint32_t)p->constants.size;
      vt_array_push_in(&p->scratch, &p->constants, data);
    }
  plan->constant_count = (uint32_t)p->constants.size;
  plan->constants = VT_NEW_ARRAY(&plan->program->arena, const void *, plan->constant_count);
  memcpy(plan->constants, p->constants.data, sizeof *plan->constants * plan->constant_count);
  return VT_OK;
}

static uint32_t slot_of(planner *p, const vt_value *value) {
  const range *r = range_of(p, value);
  if (r->param != NOWHERE) return (uint32_t)r->param;
  if (r->class == NONE) return p->plan->param_count + p->plan->result_count;
  return p->classes.data[r->class].slot;
}

// A piece of the block; pieces cover it without gaps, in order.
typedef struct piece {
  int64_t offset, bytes;
  bool used;
} piece;
typedef VT_ARRAY(piece) pieces;

// Pieces are contiguous, and no two free ones are adjacent.
static bool pieces_are_sound(const pieces *all) {
  for (size_t i = 0; i + 1 < all->size; i++) {
    const piece *p = &all->data[i];
    if (p->bytes <= 0 || p->offset + p->bytes != p[1].offset || (!p->used && !p[1].used))
      return false;
  }
  return !all->size || !all->data[0].offset;
}

static int64_t take(vt_arena *arena, pieces *all, int64_t bytes) {
  vt_assert(bytes > 0 && bytes % 64 == 0);
  size_t best = SIZE_MAX;
  for (size_t i = 0; i < all->size; i++)
    if (!all->data[i].used && all->data[i].bytes >= bytes &&
        (best == SIZE_MAX || all->data[i].bytes < all->data[best].bytes))
      best = i;
  if (best == SIZE_MAX) { // grow the block at its end
    if (all->size && !all->data[all->size - 1].used) {
      best = all->size - 1;
      all->data[best].bytes = bytes;
    } else {
      piece *last = all->size ? &all->data[all->size - 1] : NULL;
      piece fresh = {.offset = last ? last->offset + last->bytes : 0, .bytes = bytes};
      vt_array_push_in(arena, all, fresh);
      best = all->size - 1;
    }
  }
  piece *taken = &all->data[best];
  int64_t rest = taken->bytes - bytes, offset = taken->offset;
  taken->used = true;
  taken->bytes = bytes;
  if (rest) {
    piece spare = {.offset = offset + bytes, .bytes = rest};
    vt_array_push_in(arena, all, spare);
    memmove(&all->data[best + 2], &all->data[best + 1], sizeof spare * (all->size - best - 2));
    all->data[best + 1] = spare;
  }
  vt_assert(pieces_are_sound(all));
  return offset;
}

static void give_back(pieces *all, int64_t offset) {
  size_t i = 0;
  while (all->data[i].offset != offset) i++;
  vt_assert(i < all->size && all->data[i].used);
  all->data[i].used = false;
  if (i + 1 < all->size && !all->data[i + 1].used) {
    all->data[i].bytes += all->data[i + 1].bytes;
    memmove(&all->data[i + 1], &all->data[i + 2], sizeof(piece) * (all->size - i - 2));
    all->size--;
  }
  if (i && !all->data[i - 1].used) {
    all->data[i - 1].bytes += all->data[i].bytes;
    memmove(&all->data[i], &all->data[i + 1], sizeof(piece) * (all->size - i - 1));
    all->size--;
  }
  vt_assert(pieces_are_sound(all));
}

// What needs a place: a class, or the scratch of a step.
typedef struct tenant {
  int32_t start, end;
  int64_t bytes;
  uint32_t *slot;
  uint32_t next_starting, next_ending;
} tenant;

// Tenants with overlapping live ranges share no byte.
static bool tenants_are_apart(const tenant *tenants, const int64_t *offsets, uint32_t count) {
  enum { FEW = 500 }; // quadratic
  for (uint32_t a = 0; a < count && count <= FEW; a++)
    for (uint32_t b = a + 1; b < count; b++) {
      const tenant *x = &tenants[a], *y = &tenants[b];
      if (x->end < y->start || y->end < x->start) continue;
      if (offsets[a] < offsets[b] + y->bytes && offsets[b] < offsets[a] + x->bytes) return false;
    }
  return true;
}

// Values that move get a second slot, which has their address.
static void add_moving(planner *p, uint32_t base) {
  vt_plan *plan = p->plan;
  for (uint32_t i = 0; i < plan->value_count; i++) {
    if (!plan->moving[i].moves) continue;
    class *k = &p->classes.data[p->ranges[i].class];
    plan->moving[i].home = k->slot;
    plan->temp_offsets[plan->temp_count] = plan->temp_offsets[k->slot - base];
    k->slot = base + plan->temp_count++;
  }
}

static uint32_t moving_count(const vt_plan *plan) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->value_count; i++) count += plan->moving[i].moves;
  return count;
}

static void place_temporaries(planner *p) {
  vt_plan *plan = p->plan;
  uint32_t steps = plan->step_count, count = 0;
  tenant *tenants = VT_NEW_ARRAY(&p->scratch, tenant, p->classes.size + steps);
  for (size_t c = 0; c < p->classes.size; c++) {
    class *k = &p->classes.data[c];
    if (k->fixed || k->first == NONE || k->slot != NONE) continue;
    tenants[count++] =
        (tenant){.start = k->start, .end = k->end, .bytes = k->bytes, .slot = &k->slot};
  }
  for (uint32_t s = 0; s < steps; s++)
    if (plan->steps[s].scratch_bytes)
      tenants[count++] = (tenant){.start = (int32_t)s,
                                  .end = (int32_t)s,
                                  .bytes = plan->steps[s].scratch_bytes,
                                  .slot = &plan->steps[s].scratch_slot};
  uint32_t *starting = VT_NEW_ARRAY(&p->scratch, uint32_t, steps + 1);
  uint32_t *ending = VT_NEW_ARRAY(&p->scratch, uint32_t, steps + 1);
  memset(starting, 0xff, sizeof *starting * (steps + 1));
  memset(ending, 0xff, sizeof *ending * (steps + 1));
  for (uint32_t t = count; t-- > 0;) {
    tenants[t].next_starting = starting[tenants[t].start];
    tenants[t].next_ending = ending[tenants[t].end];
    starting[tenants[t].start] = ending[tenants[t].end] = t;
  }
  uint32_t base = plan->param_count + plan->result_count + plan->constant_count;
  plan->temp_count = count;
  plan->temp_offsets = VT_NEW_ARRAY(&plan->program->arena, int64_t, count + moving_count(plan));
  pieces all = {0};
  for (uint32_t s = 0; s < steps; s++) {
    for (uint32_t t = starting[s]; t != NONE; t = tenants[t].next_starting) {
      plan->temp_offsets[t] = take(&p->scratch, &all, vt_padded_bytes(tenants[t].bytes));
      *tenants[t].slot = base + t;
    }
    for (uint32_t t = ending[s]; t != NONE; t = tenants[t].next_ending)
      give_back(&all, plan->temp_offsets[t]);
  }
  for (size_t i = 0; i < all.size; i++) plan->temp_bytes = all.data[i].offset + all.data[i].bytes;
  vt_assert_each(i, all.size, !all.data[i].used);
  vt_assert(tenants_are_apart(tenants, plan->temp_offsets, count));
  add_moving(p, base);
}

static void set_slots(planner *p) {
  vt_plan *plan = p->plan;
  uint32_t slots = plan->param_count + plan->result_count + plan->constant_count + plan->temp_count;
  vt_arena *arena = &plan->program->arena;
  for (uint32_t s = 0; s < plan->step_count; s++) {
    vt_step *step = &plan->steps[s];
    step->input_slots = VT_NEW_ARRAY(arena, uint32_t, step->input_count);
    step->output_slots = VT_NEW_ARRAY(arena, uint32_t, step->output_count);
    for (uint32_t i = 0; i < step->input_count; i++)
      step->input_slots[i] = slot_of(p, step->inputs[i]);
    for (uint32_t i = 0; i < step->output_count; i++)
      step->output_slots[i] = slot_of(p, step->outputs[i]);
    vt_assert_each(i, step->input_count, step->input_slots[i] < slots);
    vt_assert_each(i, step->output_count, step->output_slots[i] < slots);
  }
  plan->frames = VT_NEW_ARRAY(arena, vt_frame, plan->frame_count);
  const vt_program *program = plan->program;
  int32_t only = program->options.only;
  for (uint32_t f = 0; f < plan->frame_count; f++) {
    plan->frames[f].place = f;
    plan->frames[f].index = program->here ? program->here[f] : only ? only - 1 : (int32_t)f;
    plan->frames[f].slots = VT_NEW_ARRAY(arena, char *, slots);
  }
}

vt_status vt_plan_memory(vt_plan *plan) {
  planner p = {.plan = plan};
  vt_status st = VT_OK;
  p.ranges = VT_NEW_ARRAY(&p.scratch, range, plan->value_count);
  find_ranges(&p);
  make_classes(&p);
  if (plan->kind == VT_PLAN_LOOP) merge_loop_state(&p);
  if (plan->kind == VT_PLAN_REGION) merge_shared(&p);
  if (plan->kind == VT_PLAN_MAIN) find_donations(&p);
  merge_in_place(&p);
  VT_TRY_OUT(number_constants(&p));
  place_temporaries(&p);
  set_slots(&p);
out:
  vt_arena_free(&p.scratch);
  return st;
}
