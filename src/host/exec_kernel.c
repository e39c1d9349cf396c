// SPDX-License-Identifier: Apache-2.0
// exec_kernel.c - steps that run a compiled loop kernel.
#include <string.h>

#include "base/check.h"
#include "host/plan.h"

typedef struct vt_kernel_body {
  vt_group *group;
  vt_kernel *kernel;
  void **pointers; // inputs, then outputs, filled in per execution
} kernel_body;

static vt_status run_kernel(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                            uint32_t count) {
  (void)exec;
  const kernel_body *body = step->body;
  void **outputs = body->pointers + step->input_count;
  vt_assert(body->kernel && (!step->scratch_bytes || step->scratch_slot));
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    for (uint32_t i = 0; i < step->input_count; i++)
      body->pointers[i] = slots[step->input_slots[i]];
    for (uint32_t i = 0; i < step->output_count; i++) outputs[i] = slots[step->output_slots[i]];
    void *scratch = step->scratch_bytes ? slots[step->scratch_slot] : NULL;
    VT_TRY(vt_step_wrap(step, vt_kernel_run(body->kernel, body->pointers, outputs, scratch)));
  }
  return VT_OK;
}

static bool kernel_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  vt_assert(output < step->output_count && input < step->input_count);
  const kernel_body *body = step->body;
  return vt_kernel_in_place_ok(body->kernel, output, input);
}

static vt_status prepare_kernel(vt_plan *plan, vt_step *step) {
  (void)plan;
  const kernel_body *body = step->body;
  step->scratch_bytes = vt_kernel_scratch_bytes(body->kernel);
  return VT_OK;
}

vt_status vt_step_kernel(vt_plan *plan, vt_step *step, vt_group *group) {
  vt_assert(group->fused && step->input_count == group->input_count);
  vt_assert(step->output_count == group->output_count);
  vt_program *program = plan->program;
  kernel_body *body = step->body = VT_NEW(&program->arena, kernel_body);
  body->group = group;
  body->pointers = VT_NEW_ARRAY(&program->arena, void *, step->input_count + step->output_count);
  vt_array_push(&program->kernels, body);
  step->run = run_kernel;
  step->runner = "kernel";
  step->repeatable = true;
  step->prepare = prepare_kernel;
  step->in_place_ok = kernel_in_place_ok;
  return VT_OK;
}

vt_group *vt_step_group(const vt_step *step) {
  return step->run == run_kernel ? ((const kernel_body *)step->body)->group : NULL;
}

const vt_kernel *const *vt_step_kernel_of(const vt_step *step) {
  vt_assert(step->run == run_kernel);
  const kernel_body *body = step->body;
  return (const vt_kernel *const *)&body->kernel;
}

int64_t vt_step_picoseconds(const vt_step *step) {
  if (step->run != run_kernel) return -1;
  const kernel_body *body = step->body;
  return vt_kernel_picoseconds(body->kernel);
}

const vt_kernel *const *vt_kernel_wanted(vt_program *program, vt_group *group) {
  kernel_body *body = VT_NEW(&program->arena, kernel_body);
  body->group = group;
  vt_array_push(&program->kernels, body);
  return (const vt_kernel *const *)&body->kernel;
}

static bool needs_code(const vt_group *group) {
  return group->nest || group->loop || group->source;
}

vt_status vt_kernels_compile(vt_program *program) {
  size_t count = program->kernels.size, generated = 0;
  for (size_t i = 0; i < count; i++) generated += needs_code(program->kernels.data[i]->group);
  if (!generated) { // starting the code generator would take longer than all of them
    for (size_t i = 0; i < count; i++) {
      kernel_body *body = program->kernels.data[i];
      body->kernel = vt_kernel_of_op(&program->arena, body->group);
    }
    return VT_OK;
  }
  VT_TRY(vt_jit_create(&program->jit));
  vt_arena scratch = {0};
  const vt_group **groups = VT_NEW_ARRAY(&scratch, const vt_group *, count);
  vt_kernel **kernels = VT_NEW_ARRAY(&scratch, vt_kernel *, count);
  for (size_t i = 0; i < count; i++) groups[i] = program->kernels.data[i]->group;
  vt_status st = vt_jit_compile(program->jit, groups, (uint32_t)count, kernels);
  for (size_t i = 0; !st && i < count; i++) program->kernels.data[i]->kernel = kernels[i];
  vt_assert_each(i, st ? 0 : count, kernels[i]);
  vt_arena_free(&scratch);
  return st;
}
