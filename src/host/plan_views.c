// SPDX-License-Identifier: Apache-2.0
// plan_views.c - parts of arrays that need no copy: a scan reads and writes one row of each of its
// stacks in a turn.
//
// A dynamic_slice whose bytes lie together in a parameter that nothing changes: its step sets the
// address of its result to theirs.
// A value that a dynamic_update_slice puts in place into bytes that lie together: a step before the
// one that computes it, and writes no byte past its end, sets its address to where it goes, and the
// update finds it there. Whether the update is in place is known when memory has been laid out, in
// a loop when it is entered; where it is not, the value is in memory of its own, its home.
#include <stdlib.h>

#include "base/check.h"
#include "host/kernel_move.h"
#include "host/plan.h"

enum { LINE = 64 }; // bytes
enum { BEFORE = -1 };

typedef struct view {
  const vt_native *move;
  int32_t rank;
  uint32_t *starts;      // a slice: among the inputs of its step; else the inputs
  const vt_step *update; // that finds the value in its place; a slice has none
  uint32_t array, value; // update: its inputs
  const uint32_t *home;  // slot
} view;

// A step that sets an address, and the place before which it goes.
typedef struct placing {
  uint32_t before, update;
  vt_step step;
} placing;

typedef struct viewer {
  vt_plan *plan;
  vt_arena scratch;
  int32_t *written; // by id of a root: the step; BEFORE the first for parameters and constants
  int32_t *read;    // the last step so far that reads it
  int32_t *ends;    // the last of all; the number of steps if returned
  VT_ARRAY(placing) placings;
} viewer;

static int64_t start_of(const view *v, char *const *slots, const uint32_t *input_slots) {
  void *starts[VT_MAX_RANK];
  for (int32_t i = 0; i < v->rank; i++) starts[i] = slots[input_slots[v->starts[i]]];
  return vt_move_start(v->move, starts);
}

static vt_status run_slice(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                           uint32_t count) {
  (void)exec;
  const view *v = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    slots[step->output_slots[0]] =
        slots[step->input_slots[v->array]] + start_of(v, slots, step->input_slots);
  }
  return VT_OK;
}

static vt_status run_placing(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                             uint32_t count) {
  (void)exec;
  const view *v = step->body;
  const vt_step *update = v->update;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots, *out = slots[update->output_slots[0]];
    bool in_place = out == slots[update->input_slots[v->array]];
    slots[update->input_slots[v->value]] =
        in_place ? out + start_of(v, slots, step->input_slots) : slots[*v->home];
  }
  return VT_OK;
}

// Whether `small`, anywhere in `large`, is whole cache lines that lie together.
static bool lies_together(vt_type large, vt_type small) {
  int64_t bytes = (int64_t)vt_dtype_bytes(large.dtype);
  int32_t d = large.rank - 1;
  for (; d >= 0 && small.dims[d] == large.dims[d]; d--) bytes *= large.dims[d];
  for (int32_t i = 0; i < d; i++)
    if (small.dims[i] != 1) return false;
  return bytes % LINE == 0;
}

static const vt_op *only_op(const vt_step *step, vt_opcode code) {
  const vt_group *group = step->kept ? NULL : vt_step_group(step);
  return group && group->op_count == 1 && group->ops[0]->code == code ? group->ops[0] : NULL;
}

static uint32_t input_of(const vt_step *step, const vt_value *operand) {
  uint32_t i = 0;
  while (i < step->input_count && step->inputs[i] != operand) i++;
  vt_assert(i < step->input_count);
  return i;
}

static vt_value *root_of(const viewer *w, const vt_value *value) {
  return w->plan->roots[value->id];
}

static void view_slice(viewer *w, vt_step *step) {
  const vt_op *op = only_op(step, VT_OP_DYNAMIC_SLICE);
  if (!op) return;
  vt_plan *plan = w->plan;
  vt_arena *arena = &plan->program->arena;
  const vt_value *out = step->outputs[0], *array = root_of(w, op->operands[0]);
  if (array->op || array->index < 0 || !vt_param_stays(plan, array) ||
      w->ends[out->id] == (int32_t)plan->step_count ||
      !lies_together(op->operands[0]->type, out->type))
    return;
  view *v = step->body = VT_NEW(arena, view);
  v->move = vt_move_create(arena, op);
  v->rank = op->operands[0]->type.rank;
  v->array = input_of(step, op->operands[0]);
  v->starts = VT_NEW_ARRAY(arena, uint32_t, v->rank);
  for (int32_t i = 0; i < v->rank; i++) v->starts[i] = input_of(step, op->operands[1 + i]);
  step->run = run_slice;
  step->runner = "view";
  step->repeatable = false;
  step->prepare = NULL;
  step->in_place_ok = NULL;
  plan->moving[out->id].moves = plan->moving[out->id].elsewhere = true;
}

// The step that writes the value of update `at` may write it to its place: the array is there, is
// read by nothing in between, and the value by nothing afterwards; nothing is written past its end.
static bool can_place(const viewer *w, uint32_t at, const vt_op *op) {
  const vt_value *array = root_of(w, op->operands[0]), *value = root_of(w, op->operands[1]);
  int32_t writer = w->written[value->id];
  if (writer == BEFORE || w->ends[value->id] != (int32_t)at || value == array) return false;
  const vt_step *step = &w->plan->steps[writer];
  if (!vt_step_group(step) || step->kept || w->plan->moving[value->id].moves) return false;
  if (!vt_kernel_ends_exactly(*vt_step_kernel_of(step), vt_type_elements(value->type)))
    return false;
  if (w->written[array->id] >= writer || w->read[array->id] >= writer) return false;
  for (uint32_t i = 2; i < op->operand_count; i++)
    if (w->written[root_of(w, op->operands[i])->id] >= writer) return false;
  return lies_together(op->operands[0]->type, op->operands[1]->type);
}

static void place_update(viewer *w, uint32_t at) {
  vt_plan *plan = w->plan;
  vt_arena *arena = &plan->program->arena;
  vt_step *step = &plan->steps[at];
  const vt_op *op = only_op(step, VT_OP_DYNAMIC_UPDATE_SLICE);
  if (!op || !can_place(w, at, op)) return;
  uint32_t value = (uint32_t)root_of(w, op->operands[1])->id;
  placing p = {.before = (uint32_t)w->written[value], .update = at, .step = {.op = step->op}};
  uint32_t rank = op->operand_count - 2;
  vt_step_set_values(plan, &p.step, rank, op->operands + 2, 0, NULL);
  view *v = p.step.body = VT_NEW(arena, view);
  v->move = vt_move_create(arena, op);
  v->rank = (int32_t)rank;
  v->starts = VT_NEW_ARRAY(arena, uint32_t, rank);
  for (uint32_t i = 0; i < rank; i++) v->starts[i] = i;
  v->array = input_of(step, op->operands[0]);
  v->value = input_of(step, op->operands[1]);
  v->home = &plan->moving[value].home;
  p.step.run = run_placing;
  p.step.runner = "view";
  plan->moving[value].moves = true;
  vt_array_push_in(&w->scratch, &w->placings, p);
}

static int by_place(const void *a, const void *b) {
  const placing *x = a, *y = b;
  if (x->before != y->before) return x->before < y->before ? -1 : 1;
  return x->update < y->update ? -1 : 1;
}

static void insert_placings(viewer *w) {
  vt_plan *plan = w->plan;
  uint32_t added = (uint32_t)w->placings.size, next = 0, count = plan->step_count + added;
  if (!added) return;
  qsort(w->placings.data, added, sizeof *w->placings.data, by_place);
  vt_step *steps = VT_NEW_ARRAY(&plan->program->arena, vt_step, count), *to = steps;
  uint32_t *moved = VT_NEW_ARRAY(&w->scratch, uint32_t, plan->step_count);
  for (uint32_t s = 0; s < plan->step_count; s++) {
    for (; next < added && w->placings.data[next].before == s; next++)
      *to++ = w->placings.data[next].step;
    moved[s] = (uint32_t)(to - steps);
    *to++ = plan->steps[s];
  }
  for (uint32_t i = 0; i < added; i++) {
    view *v = w->placings.data[i].step.body;
    v->update = &steps[moved[w->placings.data[i].update]];
  }
  plan->steps = steps;
  plan->step_count = plan->step_capacity = count;
}

static void find_ends(viewer *w) {
  vt_plan *plan = w->plan;
  for (uint32_t i = 0; i < plan->value_count; i++) w->written[i] = w->read[i] = w->ends[i] = BEFORE;
  for (uint32_t s = 0; s < plan->step_count; s++)
    for (uint32_t i = 0; i < plan->steps[s].input_count; i++)
      w->ends[root_of(w, plan->steps[s].inputs[i])->id] = (int32_t)s;
  for (uint32_t r = 0; r < plan->result_count; r++)
    w->ends[plan->returns[r]->id] = (int32_t)plan->step_count;
}

void vt_plan_views(vt_plan *plan) {
  viewer w = {.plan = plan};
  w.written = VT_NEW_ARRAY(&w.scratch, int32_t, plan->value_count);
  w.read = VT_NEW_ARRAY(&w.scratch, int32_t, plan->value_count);
  w.ends = VT_NEW_ARRAY(&w.scratch, int32_t, plan->value_count);
  plan->moving = VT_NEW_ARRAY(&plan->program->arena, vt_moving, plan->value_count);
  find_ends(&w);
  for (uint32_t s = 0; s < plan->step_count; s++) {
    vt_step *step = &plan->steps[s];
    view_slice(&w, step);
    place_update(&w, s);
    for (uint32_t i = 0; i < step->input_count; i++)
      w.read[root_of(&w, step->inputs[i])->id] = (int32_t)s;
    for (uint32_t i = 0; i < step->output_count; i++) w.written[step->outputs[i]->id] = (int32_t)s;
  }
  insert_placings(&w);
  vt_arena_free(&w.scratch);
}
