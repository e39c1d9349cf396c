// SPDX-License-Identifier: Apache-2.0
// exec_loop.c - the step of a while that is one function of generated code (loop.h).
#include <string.h>

#include "host/loop.h"
#include "host/plan.h"

typedef void loop_fn(void *const *arguments);

typedef struct loop_body {
  const vt_loop *loop;
  const vt_kernel *const *kernel; // filled in when code is made
  void **arguments;               // operands, then results, per execution
  bool *invariant;                // by carried value
} loop_body;

static vt_status run_loop(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  (void)exec;
  const loop_body *body = step->body;
  loop_fn *code = (loop_fn *)(uintptr_t)vt_kernel_code(*body->kernel);
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    for (uint32_t i = 0; i < step->input_count; i++)
      body->arguments[i] = slots[step->input_slots[i]];
    for (uint32_t i = 0; i < step->output_count; i++) {
      if (body->invariant[i]) continue;
      char *in = body->arguments[i], *out = slots[step->output_slots[i]];
      body->arguments[step->input_count + i] = out;
      if (body->loop->homes[i] == VT_LOOP_GROWING && in != out)
        memcpy(out, in, (size_t)vt_type_bytes(step->inputs[i]->type));
    }
    code(body->arguments);
  }
  return VT_OK;
}

// State is read before the first iteration and written after the last.
static bool loop_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  const loop_body *body = step->body;
  return output == input && !body->invariant[output];
}

const bool *vt_step_loop(vt_plan *plan, vt_step *step) {
  vt_program *program = plan->program;
  if (program->without_kernels || program->options.evaluator_only) return NULL;
  vt_arena *arena = &program->arena;
  const vt_loop *loop = vt_loop_find(arena, step->op);
  if (!loop) return NULL;
  loop_body *body = step->body = VT_NEW(arena, loop_body);
  vt_group *group = VT_NEW(arena, vt_group);
  *group = (vt_group){.fused = true, .loop = loop};
  body->loop = loop;
  body->kernel = vt_kernel_wanted(program, group);
  body->arguments = VT_NEW_ARRAY(arena, void *, step->input_count + step->output_count);
  body->invariant = VT_NEW_ARRAY(arena, bool, loop->carried);
  for (uint32_t i = 0; i < loop->carried; i++) body->invariant[i] = loop->homes[i] == VT_LOOP_FIXED;
  step->run = run_loop;
  step->runner = "loop";
  step->in_place_ok = loop_in_place_ok;
  return body->invariant;
}
