// SPDX-License-Identifier: Apache-2.0
// exec_control.c - while, if, case, call and composite as steps that run nested plans.
//
// While: the carried values live in the memory of the results. A value the body can update in place
// stays there; the others change between that memory and a second one with each iteration. Values
// that the body returns unchanged are never copied: the result aliases the operand. In a manual
// region all devices take each step together. If devices decide differently, each region runs for
// the devices that chose it, which requires it to be free of collectives; a collective that only
// some devices would reach is an error.
#include <string.h>

#include "base/check.h"
#include "host/plan.h"

typedef struct control_body {
  uint32_t plan_count;
  vt_plan **plans;         // while: condition, body; if and case: branches; call: the callee
  int64_t *memory_offsets; // per plan, in the scratch of the step
  uint32_t carried;        // while
  int64_t *second_offsets; // while: second memory per carried value, -1 none
  int64_t pred_offset;     // while
  int64_t kept_offset;     // while: of the weights that the body lays out once
  vt_frame **active;       // frame_count each
  vt_frame **nested;
} control_body;

static vt_status diverging(const vt_step *step) {
  vt_arena scratch = {0};
  vt_status st =
      vt_error(VT_FAILED_PRECONDITION,
               "%s: devices branch differently around a collective, which would wait for ever",
               vt_op_describe(step->op, &scratch));
  vt_arena_free(&scratch);
  return st;
}

static vt_frame *nested_frame(const vt_plan *plan, const vt_frame *frame) {
  return &plan->frames[plan->frame_count == 1 ? 0 : frame->place];
}

static char *scratch_of(const vt_step *step, const vt_frame *frame) {
  return step->scratch_bytes ? frame->slots[step->scratch_slot] : NULL;
}

// Points the nested frame's parameters at inputs first.. of the step and its results at the step's
// outputs.
static void bind_nested(const vt_step *step, const control_body *body, uint32_t which,
                        uint32_t first_input, bool results, const vt_frame *frame) {
  vt_assert(which < body->plan_count);
  const vt_plan *plan = body->plans[which];
  vt_frame *nested = nested_frame(plan, frame);
  vt_assert(first_input + plan->param_count <= step->input_count);
  vt_assert(!results || plan->result_count == step->output_count);
  for (uint32_t i = 0; i < plan->param_count; i++)
    nested->slots[i] = frame->slots[step->input_slots[first_input + i]];
  for (uint32_t i = 0; results && i < plan->result_count; i++)
    nested->slots[vt_result_slot(plan, i)] = frame->slots[step->output_slots[i]];
  char *scratch = scratch_of(step, frame);
  vt_frame_bind(plan, nested, scratch ? scratch + body->memory_offsets[which] : NULL);
}

static vt_status run_nested(const vt_step *step, vt_exec *exec, uint32_t which,
                            vt_frame *const *frames, uint32_t count) {
  const control_body *body = step->body;
  const vt_plan *plan = body->plans[which];
  vt_frame *one[1];
  vt_frame **nested = count == 1 ? one : body->nested;
  for (uint32_t f = 0; f < count; f++) nested[f] = nested_frame(plan, frames[f]);
  return vt_exec_plan(exec, plan, nested, count);
}

static vt_status run_call(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  for (uint32_t f = 0; f < count; f++) bind_nested(step, step->body, 0, 0, true, frames[f]);
  return run_nested(step, exec, 0, frames, count);
}

static uint32_t branch_of(const vt_step *step, const vt_frame *frame) {
  const control_body *body = step->body;
  const char *data = frame->slots[step->input_slots[0]];
  if (step->op->code == VT_OP_IF) return *data ? 0 : 1;
  int32_t index;
  memcpy(&index, data, sizeof index);
  return index < 0 || index >= (int32_t)body->plan_count ? body->plan_count - 1 : (uint32_t)index;
}

static vt_status run_branches(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                              uint32_t count) {
  const control_body *body = step->body;
  vt_frame *one[1];
  vt_frame **active = count == 1 ? one : body->active;
  uint32_t done = 0;
  for (uint32_t b = 0; b < body->plan_count && done < count; b++) {
    uint32_t taking = 0;
    for (uint32_t f = 0; f < count; f++)
      if (branch_of(step, frames[f]) == b) active[taking++] = frames[f];
    if (!taking) continue;
    if (taking < count && body->plans[b]->collective) return diverging(step);
    done += taking;
    for (uint32_t f = 0; f < taking; f++) bind_nested(step, body, b, 1, true, active[f]);
    VT_TRY(run_nested(step, exec, b, active, taking));
  }
  return VT_OK;
}

// Sets up the state of one frame: where the first iteration reads, where it writes.
static void enter_while(const vt_step *step, const control_body *body, const vt_frame *frame) {
  vt_assert(body->plan_count == 2 && body->carried <= step->output_count);
  const vt_plan *plan = body->plans[1];
  bind_nested(step, body, 0, 0, false, frame);
  bind_nested(step, body, 1, 0, false, frame);
  vt_frame *cond = nested_frame(body->plans[0], frame), *loop = nested_frame(plan, frame);
  char *scratch = scratch_of(step, frame);
  cond->slots[vt_result_slot(body->plans[0], 0)] = scratch + body->pred_offset;
  if (plan->kept_bytes) vt_keep_begin_loop(plan, scratch + body->kept_offset);
  for (uint32_t i = 0; i < body->carried; i++) {
    if (plan->invariant[i]) continue;
    char *in = loop->slots[i], *out = frame->slots[step->output_slots[i]];
    if (plan->in_place_result[i]) {
      size_t bytes = (size_t)vt_type_bytes(step->inputs[i]->type);
      if (in != out && bytes) memcpy(out, in, bytes);
      loop->slots[i] = cond->slots[i] = in = out;
    } else if (in == out) {
      out = scratch + body->second_offsets[i];
    }
    loop->slots[vt_result_slot(plan, i)] = out;
  }
}

// The results of an iteration become the parameters of the next.
static void turn_while(const vt_step *step, const control_body *body, const vt_frame *frame) {
  const vt_plan *plan = body->plans[1];
  vt_frame *cond = nested_frame(body->plans[0], frame), *loop = nested_frame(plan, frame);
  for (uint32_t i = 0; i < body->carried; i++) {
    if (plan->invariant[i] || plan->in_place_result[i]) continue;
    char **result = &loop->slots[vt_result_slot(plan, i)],
         *home = frame->slots[step->output_slots[i]];
    loop->slots[i] = cond->slots[i] = *result;
    *result = *result == home ? scratch_of(step, frame) + body->second_offsets[i] : home;
  }
}

static void leave_while(const vt_step *step, const control_body *body, const vt_frame *frame) {
  const vt_plan *plan = body->plans[1];
  const vt_frame *loop = nested_frame(plan, frame);
  for (uint32_t i = 0; i < body->carried; i++) {
    char *home = frame->slots[step->output_slots[i]];
    size_t bytes = (size_t)vt_type_bytes(step->inputs[i]->type);
    if (!plan->invariant[i] && loop->slots[i] != home && bytes) memcpy(home, loop->slots[i], bytes);
  }
}

static vt_status run_while(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                           uint32_t count) {
  const control_body *body = step->body;
  const vt_plan *cond = body->plans[0];
  bool collective = cond->collective || body->plans[1]->collective;
  vt_frame *one[1];
  vt_frame **active = count == 1 ? one : body->active;
  memcpy(active, frames, sizeof *active * count);
  for (uint32_t f = 0; f < count; f++) enter_while(step, body, frames[f]);
  for (uint32_t live = count;;) {
    VT_TRY(run_nested(step, exec, 0, active, live));
    uint32_t going = 0;
    for (uint32_t f = 0; f < live; f++)
      if (*nested_frame(cond, active[f])->slots[vt_result_slot(cond, 0)])
        active[going++] = active[f];
    if (going < live && going && collective) return diverging(step);
    live = going;
    if (!live) break;
    VT_TRY(run_nested(step, exec, 1, active, live));
    for (uint32_t f = 0; f < live; f++) turn_while(step, body, active[f]);
  }
  for (uint32_t f = 0; f < count; f++) leave_while(step, body, frames[f]);
  return VT_OK;
}

static bool while_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  return output == input && !vt_step_invariant(step)[output];
}

const bool *vt_step_invariant(const vt_step *step) {
  const control_body *body = step->body;
  return body->plans[1]->invariant;
}

// A result may share an operand's memory if every branch allows it: it then costs nothing in a
// branch that passes it through.
static bool branch_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  vt_assert(output < step->output_count && input < step->input_count);
  const control_body *body = step->body;
  if (input == 0) return false; // which branch
  for (uint32_t b = 0; b < body->plan_count; b++)
    if (body->plans[b]->shared_param[output] != (int32_t)input - 1) return false;
  return true;
}

// The parameter that a branch returns as result `r`, or -1.
static int32_t handed_through(const vt_plan *branch, uint32_t r) {
  vt_assert(r < branch->result_count);
  const vt_value *root = branch->roots[branch->func->returns[r]->id];
  return root->op ? -1 : root->index;
}

// Asks the branches to let a result that one of them passes through share its parameter's memory.
static void want_shared(vt_arena *arena, const control_body *body) {
  vt_assert_each(b, body->plan_count,
                 body->plans[b]->param_count == body->plans[0]->param_count &&
                     body->plans[b]->result_count == body->plans[0]->result_count);
  const vt_plan *first = body->plans[0];
  bool *taken = VT_NEW_ARRAY(arena, bool, first->param_count);
  int32_t *wanted = VT_NEW_ARRAY(arena, int32_t, first->result_count);
  for (uint32_t r = 0; r < first->result_count; r++) {
    wanted[r] = -1;
    for (uint32_t b = 0; b < body->plan_count && wanted[r] < 0; b++) {
      int32_t param = handed_through(body->plans[b], r);
      if (param >= 0 && !taken[param]) wanted[r] = param;
    }
    if (wanted[r] >= 0) taken[wanted[r]] = true;
  }
  for (uint32_t b = 0; b < body->plan_count; b++) {
    int32_t *own = body->plans[b]->shared_param = VT_NEW_ARRAY(arena, int32_t, first->result_count);
    if (first->result_count) memcpy(own, wanted, sizeof *own * first->result_count);
  }
}

static vt_status prepare_control(vt_plan *plan, vt_step *step) {
  control_body *body = step->body;
  for (uint32_t i = 0; i < body->plan_count; i++)
    if (body->plans[i]->temp_bytes)
      body->memory_offsets[i] = vt_step_reserve(step, body->plans[i]->temp_bytes);
  if (step->op->code != VT_OP_WHILE) return VT_OK;
  const vt_plan *loop = body->plans[1];
  body->carried = loop->result_count;
  body->second_offsets = VT_NEW_ARRAY(&plan->program->arena, int64_t, body->carried);
  body->pred_offset = vt_step_reserve(step, 1);
  if (loop->kept_bytes) body->kept_offset = vt_step_reserve(step, loop->kept_bytes);
  for (uint32_t i = 0; i < body->carried; i++)
    if (!loop->invariant[i] && !loop->in_place_result[i])
      body->second_offsets[i] = vt_step_reserve(step, vt_type_bytes(loop->func->params[i]->type));
  return VT_OK;
}

vt_status vt_step_control(vt_plan *plan, vt_step *step) {
  vt_arena *arena = &plan->program->arena;
  const vt_op *op = step->op;
  control_body *body = step->body = VT_NEW(arena, control_body);
  body->active = VT_NEW_ARRAY(arena, vt_frame *, plan->frame_count);
  body->nested = VT_NEW_ARRAY(arena, vt_frame *, plan->frame_count);
  vt_func *callee = vt_op_callee(op);
  vt_func *const *funcs = callee ? &callee : op->regions;
  body->plan_count = callee ? 1 : op->region_count;
  body->plans = VT_NEW_ARRAY(arena, vt_plan *, body->plan_count);
  body->memory_offsets = VT_NEW_ARRAY(arena, int64_t, body->plan_count);
  bool loop = op->code == VT_OP_WHILE;
  for (uint32_t i = 0; i < body->plan_count; i++) {
    vt_plan_kind kind = loop && i == 1 ? VT_PLAN_LOOP : VT_PLAN_REGION;
    VT_TRY(vt_plan_build(plan->program, funcs[i], kind, plan->frame_count, &body->plans[i]));
    plan->collective |= body->plans[i]->collective;
  }
  step->nested = true;
  step->runner = "plan";
  step->run = loop ? run_while : callee ? run_call : run_branches;
  step->in_place_ok = loop ? while_in_place_ok : callee ? NULL : branch_in_place_ok;
  if (!loop && !callee) want_shared(arena, body);
  step->prepare = prepare_control;
  return VT_OK;
}
