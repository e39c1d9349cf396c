// SPDX-License-Identifier: Apache-2.0
// run.c - runs functions: plans, frames of slots, shared buffers.
//
// A value is a reference-counted buffer in a slot. Steps release their last uses before they run,
// so an op that can work in place may overwrite a buffer with one reference; loop state and
// captures are moved, not copied.
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "eval/plan.h"

enum { SPARE_UNIT = 64, SPARE_CLASSES = 26, MOST_DEPTH = 300, FEW = 12 };
static const int64_t most_spare_bytes = (int64_t)256 << 20;

static int spare_class(int64_t bytes) {
  int c = 0;
  while (c < SPARE_CLASSES && (int64_t)SPARE_UNIT << c < bytes) c++;
  return c;
}

// The header and its data in one allocation; data 64-byte aligned, with room for a full vector
// after the end.
static vt_eval_buffer *allocate(int64_t bytes) {
  if (bytes < 0 || bytes > (int64_t)1 << 46) return NULL;
  size_t size = ((size_t)bytes + 64 + 128 + 63) & ~(size_t)63;
  return aligned_alloc(64, size);
}

vt_status vt_eval_buffer_new(vt_eval_state *state, int64_t bytes, vt_eval_buffer **out) {
  int c = spare_class(bytes);
  vt_eval_buffer *b = c < SPARE_CLASSES ? state->spare[c] : NULL;
  if (b) {
    state->spare[c] = b->next;
    state->spare_bytes -= (int64_t)SPARE_UNIT << c;
  } else {
    b = allocate(c < SPARE_CLASSES ? (int64_t)SPARE_UNIT << c : bytes);
    if (!b)
      return vt_error(VT_RESOURCE_EXHAUSTED, "out of host memory: %lld bytes", (long long)bytes);
  }
  *b = (vt_eval_buffer){.data = (char *)b + 64, .bytes = bytes, .refs = 1};
  *out = b;
  return VT_OK;
}
_Static_assert(sizeof(vt_eval_buffer) <= 64, "the header fits in front of the data");

vt_status vt_eval_buffer_borrow(vt_eval_state *state, void *data, int64_t bytes,
                                vt_eval_buffer **out) {
  VT_TRY(vt_eval_buffer_new(state, 0, out));
  **out = (vt_eval_buffer){.data = data, .bytes = bytes, .refs = 1, .borrowed = true};
  return VT_OK;
}

void vt_eval_buffer_release(vt_eval_state *state, vt_eval_buffer *b) {
  vt_assert(!b || b->refs > 0);
  if (!b || --b->refs > 0) return;
  int c = b->borrowed ? 0 : spare_class(b->bytes);
  int64_t size = (int64_t)SPARE_UNIT << c;
  if (c < SPARE_CLASSES && state->spare_bytes + size <= most_spare_bytes) {
    b->next = state->spare[c];
    state->spare[c] = b;
    state->spare_bytes += size;
  } else {
    free(b);
  }
}

void vt_eval_state_fini(vt_eval_state *state) {
  for (size_t i = 0; i < state->plans.size; i++) {
    vt_eval_plan *plan = state->plans.entries[i].value;
    for (uint32_t s = 0; plan && s < plan->step_count; s++)
      vt_eval_buffer_release(state, plan->steps[s].constant);
  }
  for (int c = 0; c < SPARE_CLASSES; c++)
    while (state->spare[c]) {
      vt_eval_buffer *b = state->spare[c];
      state->spare[c] = b->next;
      free(b);
    }
  vt_map_free(&state->plans);
  vt_arena_free(&state->arena);
}

// Slots of values: their ids where vt_func_number has set them, otherwise our own numbers.
typedef struct slot_map {
  bool numbered;
  vt_map map;
} slot_map;

static int32_t slot_of(const slot_map *slots, const vt_value *value) {
  if (slots->numbered) return value->id;
  return (int32_t)((intptr_t)vt_map_find_ptr(&slots->map, value) - 1);
}

static void mark(vt_eval_state *state, vt_eval_step *step, int32_t slot, bool *seen) {
  vt_assert(slot >= 0 && step->dead_count <= step->op->operand_count + step->op->result_count);
  if (seen[slot]) return;
  seen[slot] = true;
  if (!step->dead) {
    size_t most = step->op->operand_count + step->op->result_count;
    step->dead = VT_NEW_ARRAY(&state->arena, int32_t, most);
  }
  step->dead[step->dead_count++] = slot;
}

// Walks backwards: the first use found is the last in time.
static void find_deaths(vt_eval_state *state, vt_eval_plan *plan) {
  bool *seen = VT_NEW_ARRAY(&state->arena, bool, plan->slot_count + 1);
  for (uint32_t i = 0; i < plan->func->return_count; i++) seen[plan->returns[i]] = true;
  for (uint32_t s = plan->step_count; s-- > 0;) {
    vt_eval_step *step = &plan->steps[s];
    for (uint32_t i = 0; i < step->op->result_count; i++)
      mark(state, step, step->first_result + (int32_t)i, seen);
    for (uint32_t i = 0; i < step->op->operand_count; i++)
      mark(state, step, step->operands[i], seen);
  }
}

static vt_status open_error(const vt_func *func) {
  return vt_error(VT_INTERNAL, "function '%s' uses a value from outside",
                  func->name ? func->name : "");
}

// A manual computation inside another gathers its results from several devices.
static bool needs_all_devices(const vt_op *op) {
  return vt_eval_meets_devices(op) || op->code == VT_OP_MANUAL_COMPUTATION;
}

typedef struct planning {
  vt_eval_state *state;
  const vt_func *func;
  slot_map slots;
  vt_eval_plan *plan;
} planning;

static vt_status build(void *user) {
  planning *p = user;
  vt_eval_state *state = p->state;
  const vt_func *func = p->func;
  slot_map *slots = &p->slots;
  vt_eval_plan *plan = p->plan = VT_NEW(&state->arena, vt_eval_plan);
  int32_t next = 0;
  uint32_t steps = 0;
  for (const vt_op *op = func->first; op; op = op->next) steps++;
  plan->func = func;
  plan->steps = VT_NEW_ARRAY(&state->arena, vt_eval_step, steps);
  for (uint32_t i = 0; i < func->param_count; i++, next++)
    if (!slots->numbered)
      *vt_map_at_ptr(&slots->map, func->params[i]) = (void *)(intptr_t)(next + 1);
  for (const vt_op *op = func->first; op; op = op->next) {
    vt_eval_step *step = &plan->steps[plan->step_count++];
    step->op = op;
    step->operands = VT_NEW_ARRAY(&state->arena, int32_t, op->operand_count);
    for (uint32_t i = 0; i < op->operand_count; i++) {
      step->operands[i] = op->operands[i]->func == func ? slot_of(slots, op->operands[i]) : -1;
      if (step->operands[i] < 0 || step->operands[i] >= next) return open_error(func);
    }
    step->first_result = next;
    step->collective = needs_all_devices(op);
    if (vt_eval_is_control(op->code)) {
      for (uint32_t i = 0; i < op->region_count; i++)
        step->collective = step->collective || vt_eval_has_collective(op->regions[i]);
      const vt_func *callee = vt_op_callee(op);
      if (callee) step->collective = vt_eval_has_collective(callee);
    }
    for (uint32_t i = 0; i < op->result_count; i++, next++)
      if (!slots->numbered)
        *vt_map_at_ptr(&slots->map, &op->results[i]) = (void *)(intptr_t)(next + 1);
  }
  plan->slot_count = next;
  plan->returns = VT_NEW_ARRAY(&state->arena, int32_t, func->return_count);
  for (uint32_t i = 0; i < func->return_count; i++) {
    plan->returns[i] = func->returns[i]->func == func ? slot_of(slots, func->returns[i]) : -1;
    if (plan->returns[i] < 0 || plan->returns[i] >= next) return open_error(func);
  }
  find_deaths(state, plan);
  *vt_map_at_ptr(&state->plans, func) = plan;
  return VT_OK;
}

vt_status vt_eval_plan_of(vt_eval_state *state, const vt_func *func, const vt_eval_plan **out) {
  vt_eval_plan *plan = vt_map_find_ptr(&state->plans, func);
  *out = plan;
  if (plan) return VT_OK;
  planning p = {.state = state, .func = func, .slots = {.numbered = vt_func_is_numbered(func)}};
  vt_status st = vt_attempt_keep(build, &p); // the state keeps it
  vt_map_free(&p.slots.map);
  if (!st) *out = p.plan;
  return st;
}

static bool func_has_collective(const vt_func *func, int32_t depth) {
  if (depth > MOST_DEPTH) return false;
  for (const vt_op *op = func->first; op; op = op->next) {
    if (needs_all_devices(op)) return true;
    if (!vt_eval_is_control(op->code)) continue;
    for (uint32_t i = 0; i < op->region_count; i++)
      if (func_has_collective(op->regions[i], depth + 1)) return true;
    const vt_func *callee = vt_op_callee(op);
    if (callee && func_has_collective(callee, depth + 1)) return true;
  }
  return false;
}
bool vt_eval_has_collective(const vt_func *func) {
  return func_has_collective(func, 0);
}

vt_eval_buffer **vt_eval_frame_new(const vt_eval_plan *plan, vt_eval_buffer **args) {
  vt_assert_each(i, plan->func->param_count, args[i] && args[i]->refs > 0);
  vt_eval_buffer **slots = calloc((size_t)plan->slot_count + 1, sizeof *slots);
  if (slots)
    for (uint32_t i = 0; i < plan->func->param_count; i++) slots[i] = args[i];
  return slots;
}

void vt_eval_frame_free(vt_eval_state *state, const vt_eval_plan *plan, vt_eval_buffer **slots) {
  if (!slots) return;
  for (int32_t i = 0; i < plan->slot_count; i++) vt_eval_buffer_release(state, slots[i]);
  free(slots);
}

static bool dies(const vt_eval_step *step, int32_t slot) {
  for (uint32_t i = 0; i < step->dead_count; i++)
    if (step->dead[i] == slot) return true;
  return false;
}

static void bury(vt_eval_state *state, const vt_eval_step *step, vt_eval_buffer **slots) {
  for (uint32_t i = 0; i < step->dead_count; i++) {
    vt_eval_buffer_release(state, slots[step->dead[i]]);
    slots[step->dead[i]] = NULL;
  }
}

// Whether the result may be written over this buffer. Each operand in it counts: a scatter of an
// array into itself also reads its updates there.
static bool may_overwrite(const vt_eval_step *step, vt_eval_buffer *const *slots,
                          const vt_eval_buffer *b, uint32_t result) {
  for (uint32_t i = 0; i < step->op->operand_count; i++)
    if (slots[step->operands[i]] == b && !vt_eval_in_place_ok(step->op, i, result)) return false;
  return true;
}

// A buffer for a result: a dying operand's when the op can work in place, otherwise a new one.
static vt_status place_result(vt_eval_state *state, const vt_eval_step *step,
                              vt_eval_buffer **slots, uint32_t result) {
  const vt_op *op = step->op;
  int64_t bytes = vt_type_bytes(op->results[result].type);
  vt_eval_buffer **place = &slots[step->first_result + (int32_t)result];
  vt_assert(!*place && result < op->result_count);
  for (uint32_t i = 0; i < op->operand_count && bytes > 0; i++) {
    vt_eval_buffer *b = slots[step->operands[i]];
    if (b->refs == 1 && !b->borrowed && b->bytes == bytes && dies(step, step->operands[i]) &&
        may_overwrite(step, slots, b, result)) {
      *place = vt_eval_buffer_retain(b);
      return VT_OK;
    }
  }
  return vt_eval_buffer_new(state, bytes, place);
}

static vt_status run_kernel(vt_eval_state *state, const vt_eval_env *env, const vt_eval_step *step,
                            vt_eval_buffer **slots) {
  const vt_op *op = step->op;
  vt_tensor few[FEW], *in = few;
  uint32_t count = op->operand_count + op->result_count;
  if (count > FEW && !(in = malloc(sizeof *in * count))) return vt_error_no_memory();
  vt_tensor *out = in + op->operand_count;
  vt_assert_each(i, op->operand_count,
                 slots[step->operands[i]]->refs > 0 &&
                     slots[step->operands[i]]->bytes == vt_type_bytes(op->operands[i]->type));
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < op->operand_count; i++)
    in[i] = (vt_tensor){op->operands[i]->type, slots[step->operands[i]]->data};
  for (uint32_t i = 0; i < op->result_count; i++) {
    VT_TRY_OUT(place_result(state, step, slots, i));
    out[i] = (vt_tensor){op->results[i].type, slots[step->first_result + (int32_t)i]->data};
  }
  vt_eval_call call = {op, env, state, in, out};
  st = vt_eval_kernel_of(op->code)(&call);
out:
  if (in != few) free(in);
  return st;
}

static vt_status run_control(vt_eval_state *state, const vt_eval_env *env, const vt_eval_step *step,
                             vt_eval_buffer **slots) {
  const vt_op *op = step->op;
  vt_eval_buffer **in = malloc(sizeof *in * (op->operand_count + 1));
  if (!in) return vt_error_no_memory();
  for (uint32_t i = 0; i < op->operand_count; i++)
    in[i] = vt_eval_buffer_retain(slots[step->operands[i]]);
  for (uint32_t i = 0; i < step->dead_count; i++) {
    if (step->dead[i] >= step->first_result) continue;
    vt_eval_buffer_release(state, slots[step->dead[i]]);
    slots[step->dead[i]] = NULL;
  }
  vt_status st = vt_eval_control(state, env, op, in, slots + step->first_result);
  free(in);
  return st;
}

vt_status vt_eval_step_run(vt_eval_state *state, const vt_eval_env *env, const vt_eval_step *step,
                           vt_eval_buffer **slots) {
  const vt_op *op = step->op;
  if (op->code == VT_OP_CONSTANT && step->constant) {
    slots[step->first_result] = vt_eval_buffer_retain(step->constant);
  } else if (vt_eval_is_identity(op)) {
    for (uint32_t i = 0; i < op->result_count; i++)
      slots[step->first_result + (int32_t)i] = vt_eval_buffer_retain(slots[step->operands[i]]);
  } else if (vt_eval_is_control(op->code)) {
    VT_TRY(run_control(state, env, step, slots));
  } else {
    VT_TRY(run_kernel(state, env, step, slots));
    if (op->code == VT_OP_CONSTANT)
      ((vt_eval_step *)step)->constant = vt_eval_buffer_retain(slots[step->first_result]);
  }
  bury(state, step, slots);
  return VT_OK;
}

vt_status vt_eval_run(vt_eval_state *state, const vt_eval_env *env, const vt_func *func,
                      vt_eval_buffer **args, vt_eval_buffer **results) {
  vt_status st = VT_OK;
  const vt_eval_plan *plan = NULL;
  vt_eval_buffer **slots = NULL;
  if (state->depth >= MOST_DEPTH)
    st = vt_error(VT_INVALID_ARGUMENT, "calls nest deeper than %d: recursion is not supported",
                  MOST_DEPTH);
  else
    st = vt_eval_plan_of(state, func, &plan);
  if (!st && !(slots = vt_eval_frame_new(plan, args))) st = vt_error_no_memory();
  if (st) {
    for (uint32_t i = 0; i < func->param_count; i++) vt_eval_buffer_release(state, args[i]);
    return st;
  }
  state->depth++;
  for (uint32_t s = 0; s < plan->step_count; s++)
    VT_TRY_OUT(vt_eval_step_run(state, env, &plan->steps[s], slots));
  for (uint32_t i = 0; i < func->return_count; i++)
    results[i] = vt_eval_buffer_retain(slots[plan->returns[i]]);
out:
  state->depth--;
  vt_eval_frame_free(state, plan, slots);
  return st;
}
