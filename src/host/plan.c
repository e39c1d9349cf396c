// SPDX-License-Identifier: Apache-2.0
// plan.c - from the ops of a function to its list of steps.
// In: a verified function. Out: steps in execution order with values as operands; plan_memory.c
// gives them slots. Ops that only rename bytes (reshape, barriers, sharding marks) make no step:
// their results are named by `roots`.
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "host/loop_stack.h"
#include "host/plan.h"
#include "host/steps.h"

// Constants up to this size are kept; larger splats are written where they are used, often instead
// of a copy.
enum { KEPT_SPLAT_BYTES = 64 << 10 };

int64_t vt_padded_bytes(int64_t bytes) {
  vt_assert(bytes >= 0);
  return (bytes + 128 + 63) & ~(int64_t)63;
}

vt_status vt_step_wrap(const vt_step *step, vt_status st) {
  if (!st) return VT_OK;
  vt_arena scratch = {0};
  st = vt_status_wrap(st, "%s", vt_op_describe(step->op, &scratch));
  vt_arena_free(&scratch);
  return st;
}

int64_t vt_step_reserve(vt_step *step, int64_t bytes) {
  int64_t at = step->scratch_bytes;
  vt_assert(bytes >= 0 && at % 64 == 0);
  step->scratch_bytes += vt_padded_bytes(bytes);
  return at;
}

typedef struct owning {
  vt_program *program;
  vt_owned owned;
} owning;

static vt_status add_owned(void *user) {
  const owning *o = user;
  vt_array_push(&o->program->owned, o->owned);
  return VT_OK;
}

bool vt_program_own(vt_program *program, void (*destroy)(void *), void *object) {
  owning o = {program, {destroy, object}};
  vt_status st = vt_attempt_keep(add_owned, &o); // callers hold objects of libraries
  if (!st) return true;
  vt_status_free(st);
  destroy(object);
  program->no_memory = true;
  return false;
}

vt_status vt_step_refuse(const vt_step *step, const char *what) {
  vt_arena scratch = {0};
  vt_status st = vt_error(VT_UNIMPLEMENTED, "%s: %s", vt_op_describe(step->op, &scratch), what);
  vt_arena_free(&scratch);
  return st;
}

// True when the dimensions larger than 1 keep their order under `permutation`.
static bool keeps_order(vt_type type, const int64_t *permutation) {
  vt_assert_each(i, type.rank, permutation[i] >= 0 && permutation[i] < type.rank);
  int64_t last = -1;
  for (int32_t i = 0; i < type.rank; i++) {
    int64_t d = permutation[i];
    if (type.dims[d] == 1) continue;
    if (d < last) return false;
    last = d;
  }
  return true;
}

static bool ascending(const int64_t *numbers, uint32_t count) {
  for (uint32_t i = 1; i < count; i++)
    if (numbers[i] < numbers[i - 1]) return false;
  return true;
}

bool vt_op_is_alias(const vt_op *op) {
  if (op->code == VT_OP_OPTIMIZATION_BARRIER) return true;
  if (op->operand_count == 0 || op->result_count != 1) return false;
  vt_type from = op->operands[0]->type, to = op->results[0].type;
  switch (op->code) {
  case VT_OP_RESHAPE:
  case VT_OP_SHARDING_CONSTRAINT:
  case VT_OP_RESHARD:
  case VT_OP_PROPAGATION_BARRIER:
  case VT_OP_DATA_FLOW_EDGE:
    return true;
  case VT_OP_CONVERT:
    return from.dtype == to.dtype;
  case VT_OP_BITCAST_CONVERT: {
    const vt_dtype_info *a = vt_dtype_get(from.dtype), *b = vt_dtype_get(to.dtype);
    return a->bits == a->bytes * 8 && b->bits == b->bytes * 8 && a->kind != VT_KIND_BOOL &&
           b->kind != VT_KIND_BOOL;
  }
  case VT_OP_TRANSPOSE:
    return keeps_order(from, vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL));
  case VT_OP_BROADCAST_IN_DIM: {
    uint32_t count = 0;
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    return vt_type_elements(from) == vt_type_elements(to) && ascending(dims, count);
  }
  case VT_OP_CUSTOM_CALL: {
    const char *target = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME).data;
    return op->operand_count == 1 && vt_type_equal(from, to) &&
           (!strcmp(target, "Sharding") || !strcmp(target, "xla.sdy.FuncResultSharding"));
  }
  default:
    return false;
  }
}

static vt_step *add_step(vt_plan *plan) {
  if (plan->step_count == plan->step_capacity) {
    size_t capacity = plan->step_capacity;
    plan->steps = vt_array_grow(&plan->program->arena, plan->steps, plan->step_count, &capacity,
                                sizeof *plan->steps);
    plan->step_capacity = (uint32_t)capacity;
  }
  vt_step *step = &plan->steps[plan->step_count++];
  *step = (vt_step){0};
  return step;
}

void vt_step_set_values(vt_plan *plan, vt_step *step, uint32_t input_count, vt_value **inputs,
                        uint32_t output_count, vt_value **outputs) {
  vt_assert_each(i, input_count, inputs[i]->func == plan->func);
  vt_assert_each(i, output_count, outputs[i]->func == plan->func);
  step->input_count = input_count;
  step->output_count = output_count;
  step->inputs = inputs;
  step->outputs = outputs;
  step->tensors = VT_NEW_ARRAY(&plan->program->arena, vt_tensor, input_count + output_count);
  for (uint32_t i = 0; i < input_count; i++) step->tensors[i].type = inputs[i]->type;
  for (uint32_t i = 0; i < output_count; i++)
    step->tensors[input_count + i].type = outputs[i]->type;
}

static void set_values_of_op(vt_plan *plan, vt_step *step, vt_op *op) {
  vt_value **outputs = VT_NEW_ARRAY(&plan->program->arena, vt_value *, op->result_count);
  for (uint32_t i = 0; i < op->result_count; i++) outputs[i] = &op->results[i];
  step->op = op;
  vt_step_set_values(plan, step, op->operand_count, op->operands, op->result_count, outputs);
}

// A value that exists in the plan only: the result of an added copy, or room.
static vt_value *add_value(vt_plan *plan, vt_type type) {
  vt_assert(plan->value_count < plan->value_room);
  vt_value *value = VT_NEW(&plan->program->arena, vt_value);
  *value =
      (vt_value){.type = type, .func = plan->func, .index = -1, .id = (int32_t)plan->value_count};
  plan->roots[plan->value_count++] = value;
  return value;
}

static bool token_only(const vt_op *op) {
  return op->code == VT_OP_AFTER_ALL || op->code == VT_OP_CREATE_TOKEN ||
         op->code == VT_OP_SHARDING_GROUP;
}

// A while whose body returns a parameter unchanged: the result is the operand.
static void alias_invariants(vt_plan *plan, const vt_op *op, const bool *invariant) {
  vt_assert(op->result_count <= op->operand_count);
  for (uint32_t i = 0; i < op->result_count; i++)
    if (invariant[i]) plan->roots[op->results[i].id] = plan->roots[op->operands[i]->id];
}

static vt_status run_nothing(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                             uint32_t count) {
  (void)step, (void)exec, (void)frames, (void)count;
  return VT_OK;
}

// A stack of which a loop writes every element before anything reads it begins as room for it: what
// it was made of, often zeros, needs neither be there nor be copied. NULL: the loop has none.
static vt_value **make_room(vt_plan *plan, const vt_op *loop) {
  vt_arena *arena = &plan->program->arena;
  const bool *fills = vt_loop_fills(arena, loop);
  vt_value **inputs = NULL;
  for (uint32_t i = 0; i < loop->result_count; i++) {
    vt_type type = loop->results[i].type;
    if (!fills[i] || vt_type_bytes(type) <= KEPT_SPLAT_BYTES) continue;
    if (!inputs) {
      inputs = VT_NEW_ARRAY(arena, vt_value *, loop->operand_count);
      memcpy(inputs, loop->operands, sizeof *inputs * loop->operand_count);
    }
    vt_value **out = VT_NEW(arena, vt_value *);
    *out = inputs[i] = add_value(plan, type);
    vt_step *step = add_step(plan);
    vt_step_set_values(plan, step, 0, NULL, 1, out);
    step->run = run_nothing;
    step->runner = "room";
  }
  return inputs;
}

static vt_status add_op(vt_plan *plan, vt_op *op) {
  if (token_only(op)) return VT_OK;
  if (vt_op_is_alias(op)) {
    vt_assert(op->result_count <= op->operand_count);
    vt_assert_each(i, op->result_count,
                   vt_type_bytes(op->results[i].type) == vt_type_bytes(op->operands[i]->type));
    for (uint32_t i = 0; i < op->result_count; i++)
      plan->roots[op->results[i].id] = plan->roots[op->operands[i]->id];
    return VT_OK;
  }
  if (op->code == VT_OP_CONSTANT) {
    const vt_literal *literal = vt_attr_literal(op, VT_ATTR_VALUE);
    if (!literal->splat || vt_type_bytes(literal->type) <= KEPT_SPLAT_BYTES) return VT_OK;
  }
  vt_value **inputs = op->code == VT_OP_WHILE ? make_room(plan, op) : NULL;
  vt_step *step = add_step(plan);
  set_values_of_op(plan, step, op);
  if (inputs) step->inputs = inputs;
  switch (op->code) {
  case VT_OP_WHILE: {
    const bool *invariant = vt_step_loop(plan, step);
    if (!invariant) {
      VT_TRY(vt_step_control(plan, step));
      invariant = vt_step_invariant(step);
    }
    alias_invariants(plan, op, invariant);
    return VT_OK;
  }
  case VT_OP_IF:
  case VT_OP_CASE:
  case VT_OP_CALL:
  case VT_OP_COMPOSITE:
    return vt_step_control(plan, step);
  case VT_OP_MANUAL_COMPUTATION:
    return vt_step_manual(plan, step);
  default:
    break;
  }
  if (vt_eval_meets_devices(op)) return vt_step_collective(plan, step);
  if (!plan->program->small && !plan->program->options.evaluator_only) {
    if (op->code == VT_OP_DOT_GENERAL && vt_step_dot(plan, step, NULL)) return VT_OK;
    if (op->code == VT_OP_CONVOLUTION && vt_step_convolution(plan, step)) return VT_OK;
  }
  return vt_step_eval(plan, step);
}

// Results that cannot be written in place get a copy at the end: parameters and constants that are
// returned, and values returned twice.
static void add_return_copies(vt_plan *plan) {
  vt_func *func = plan->func;
  vt_arena *arena = &plan->program->arena;
  bool *taken = VT_NEW_ARRAY(arena, bool, plan->value_count + plan->result_count);
  plan->returns = VT_NEW_ARRAY(arena, vt_value *, plan->result_count);
  plan->invariant = VT_NEW_ARRAY(arena, bool, plan->result_count);
  for (uint32_t r = 0; r < plan->result_count; r++) {
    vt_value *root = plan->roots[func->returns[r]->id];
    plan->returns[r] = root;
    bool parameter = !root->op && root->index >= 0;
    if (plan->kind == VT_PLAN_LOOP && parameter && root->index == (int32_t)r) {
      plan->invariant[r] = true;
      continue;
    }
    if (root->type.dtype == VT_TOKEN) continue;
    bool constant = root->op && root->op->code == VT_OP_CONSTANT;
    if (!parameter && !constant && !taken[root->id]) {
      taken[root->id] = true;
      continue;
    }
    vt_value **in = VT_NEW(arena, vt_value *), **out = VT_NEW(arena, vt_value *);
    *in = root;
    *out = plan->returns[r] = add_value(plan, root->type);
    vt_step *step = add_step(plan);
    vt_step_set_values(plan, step, 1, in, 1, out);
    vt_step_copy(step);
  }
}

// Removes steps whose results are unused: fused groups may compute them instead.
static void drop_dead_steps(vt_plan *plan) {
  bool *needed = VT_NEW_ARRAY(&plan->program->arena, bool, plan->value_count);
  bool *keep = VT_NEW_ARRAY(&plan->program->arena, bool, plan->step_count);
  for (uint32_t r = 0; r < plan->result_count; r++) needed[plan->returns[r]->id] = true;
  for (uint32_t s = plan->step_count; s-- > 0;) {
    const vt_step *step = &plan->steps[s];
    keep[s] = step->op && vt_op_has_effect(step->op);
    for (uint32_t i = 0; i < step->output_count; i++) keep[s] |= needed[step->outputs[i]->id];
    for (uint32_t i = 0; keep[s] && i < step->input_count; i++)
      needed[plan->roots[step->inputs[i]->id]->id] = true;
  }
  uint32_t kept = 0;
  for (uint32_t s = 0; s < plan->step_count; s++)
    if (keep[s]) plan->steps[kept++] = plan->steps[s];
  plan->step_count = kept;
}

static vt_plan *new_plan(vt_program *program, vt_func *func, vt_plan_kind kind,
                         uint32_t frame_count) {
  vt_plan *plan = VT_NEW(&program->arena, vt_plan);
  vt_func_number(func);
  *plan = (vt_plan){.program = program,
                    .func = func,
                    .kind = kind,
                    .param_count = func->param_count,
                    .result_count = func->return_count,
                    .carried = kind == VT_PLAN_LOOP ? func->return_count : 0,
                    .frame_count = frame_count,
                    .value_count = (uint32_t)func->value_count};
  plan->value_room = plan->value_count + func->return_count;
  for (const vt_op *op = func->first; op; op = op->next)
    if (op->code == VT_OP_WHILE) plan->value_room += op->result_count;
  plan->roots = VT_NEW_ARRAY(&program->arena, vt_value *, plan->value_room);
  for (uint32_t i = 0; i < func->param_count; i++)
    plan->roots[func->params[i]->id] = func->params[i];
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->result_count; i++)
      plan->roots[op->results[i].id] = &op->results[i];
  return plan;
}

static vt_status add_kernel(vt_plan *plan, vt_group *group) {
  vt_assert(group->output_count >= 1);
  vt_step *step = add_step(plan);
  step->op = group->ops[group->op_count - 1];
  vt_step_set_values(plan, step, group->input_count, group->inputs, group->output_count,
                     group->outputs);
  return vt_step_kernel(plan, step, group);
}

// An op of a small program. The evaluator takes 30 to 80 ns for each place that a gather or scatter
// names, and for each element of a window; their kernels are there without the code generator, and
// give the same bits.
static vt_status add_small_op(vt_plan *plan, vt_op *op) {
  if (op->code != VT_OP_GATHER && op->code != VT_OP_SCATTER && op->code != VT_OP_REDUCE_WINDOW)
    return add_op(plan, op);
  vt_group *group = VT_NEW(&plan->program->arena, vt_group);
  *group = vt_host_single(&plan->program->arena, op);
  return group->fused ? add_kernel(plan, group) : add_op(plan, op);
}

static vt_status add_group(vt_plan *plan, const vt_epilogues *epilogues, vt_group *group) {
  const vt_op *first = group->ops[0];
  if (group->op_count == 1 && vt_map_find_ptr(&epilogues->taken, first)) {
    const vt_step *step = vt_map_find_ptr(&epilogues->steps, first);
    if (step) *add_step(plan) = *step;
    return VT_OK;
  }
  return group->fused ? add_kernel(plan, group) : add_op(plan, group->ops[0]);
}

static bool keep_out(void *user, const vt_op *op) {
  const vt_epilogues *epilogues = user;
  return vt_map_find_ptr(&epilogues->taken, op) != NULL;
}

static vt_status add_steps(vt_plan *plan) {
  vt_program *program = plan->program;
  bool evaluated = program->options.evaluator_only || program->without_kernels;
  if (program->small || evaluated) {
    for (vt_op *op = plan->func->first; op; op = op->next)
      VT_TRY(evaluated ? add_op(plan, op) : add_small_op(plan, op));
    return VT_OK;
  }
  vt_epilogues epilogues;
  vt_epilogues_find(plan, &epilogues);
  vt_fuse_options options = {
      .keep_out = keep_out, .user = &epilogues, .repeated = plan->kind == VT_PLAN_LOOP};
  if (program->options.compile_all) options.min_work = -1;
  vt_group *groups = NULL;
  uint32_t count = 0;
  vt_status st = vt_host_fuse(plan->func, &options, &program->arena, &groups, &count);
  for (uint32_t g = 0; !st && g < count; g++) st = add_group(plan, &epilogues, &groups[g]);
  vt_epilogues_free(&epilogues);
  return st;
}

// Each step reads parameters, constants and what earlier steps wrote, and each value is written
// once.
static bool steps_are_in_order(const vt_plan *plan) {
  vt_arena scratch = {0};
  bool *written = VT_NEW_ARRAY(&scratch, bool, plan->value_count), sound = true;
  for (uint32_t i = 0; i < plan->param_count; i++) written[plan->func->params[i]->id] = true;
  for (uint32_t s = 0; s < plan->step_count; s++) {
    const vt_step *step = &plan->steps[s];
    for (uint32_t i = 0; i < step->input_count; i++) {
      const vt_value *root = plan->roots[step->inputs[i]->id];
      bool constant = root->op && root->op->code == VT_OP_CONSTANT;
      if (i >= step->input_count - step->ends) written[root->id] = true;
      sound &= constant || root->type.dtype == VT_TOKEN || written[root->id];
    }
    for (uint32_t i = 0; i < step->output_count; i++) {
      sound &= !written[step->outputs[i]->id];
      written[step->outputs[i]->id] = !step->begins;
    }
  }
  vt_arena_free(&scratch);
  return sound;
}

vt_status vt_plan_build(vt_program *program, vt_func *func, vt_plan_kind kind, uint32_t frame_count,
                        vt_plan **out_plan) {
  struct {
    const vt_func *func;
    uint64_t frames, kind;
  } key = {func, frame_count, kind};
  *out_plan = vt_map_find(&program->plans, &key, sizeof key);
  if (*out_plan) return VT_OK;
  vt_plan *plan = new_plan(program, func, kind, frame_count);
  VT_TRY(add_steps(plan));
  add_return_copies(plan);
  drop_dead_steps(plan);
  vt_plan_strips(plan);
  vt_plan_overlap(plan);
  vt_assert(steps_are_in_order(plan));
  *vt_map_at(&program->plans, &key, sizeof key) = plan;
  vt_array_push(&program->plan_order, plan);
  *out_plan = plan;
  return VT_OK;
}
