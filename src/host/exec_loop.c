// SPDX-License-Identifier: Apache-2.0
// exec_loop.c - the step of a while that is one function of generated code (loop.h).
#include <string.h>

#include "base/check.h"
#include "host/loop.h"
#include "host/plan.h"

typedef struct loop_body {
  const vt_loop *loop;
  const uint8_t *homes;           // vt_loop_home by parameter
  const vt_kernel *const *kernel; // filled in when code is made
  void **arguments;               // operands, then results, per execution
  bool *invariant;                // by carried value
  vt_tensor **tensors;            // of the ops that the evaluator does
} loop_body;

int32_t vt_loop_call(vt_loop_context *context, int32_t number, void *const *memory) {
  vt_assert(number >= 0 && (size_t)number < context->loop->called.size);
  const vt_op *op = context->loop->called.data[number];
  vt_tensor *tensors = context->tensors[number];
  for (uint32_t i = 0; i < op->operand_count + op->result_count; i++) tensors[i].data = memory[i];
  context->status = vt_eval_op(op, context->env, tensors, tensors + op->operand_count);
  return context->status != VT_OK;
}

static vt_status run_loop(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  const loop_body *body = step->body;
  vt_loop_fn *code = (vt_loop_fn *)(uintptr_t)vt_kernel_code(*body->kernel);
  vt_loop_context context = {.loop = body->loop, .env = &exec->env, .tensors = body->tensors};
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    for (uint32_t i = 0; i < step->input_count; i++)
      body->arguments[i] = slots[step->input_slots[i]];
    for (uint32_t i = 0; i < step->output_count; i++) {
      if (body->invariant[i]) continue;
      char *in = body->arguments[i], *out = slots[step->output_slots[i]];
      body->arguments[step->input_count + i] = out;
      if (body->homes[i] == VT_LOOP_MEMORY && in != out)
        memcpy(out, in, (size_t)vt_type_bytes(step->inputs[i]->type));
    }
    exec->env.partition = frames[f]->index % exec->env.partition_count;
    exec->env.replica = frames[f]->index / exec->env.partition_count;
    if (code(body->arguments, &context)) return context.status;
  }
  return VT_OK;
}

// State is read before the first iteration and written after the last.
static bool loop_in_place_ok(const vt_step *step, uint32_t output, uint32_t input) {
  const loop_body *body = step->body;
  return output == input && !body->invariant[output];
}

static vt_tensor **make_tensors(vt_arena *arena, const vt_loop *loop) {
  vt_tensor **tensors = VT_NEW_ARRAY(arena, vt_tensor *, loop->called.size);
  for (size_t c = 0; c < loop->called.size; c++) {
    const vt_op *op = loop->called.data[c];
    tensors[c] = VT_NEW_ARRAY(arena, vt_tensor, op->operand_count + op->result_count);
    for (uint32_t i = 0; i < op->operand_count; i++) tensors[c][i].type = op->operands[i]->type;
    for (uint32_t i = 0; i < op->result_count; i++)
      tensors[c][op->operand_count + i].type = op->results[i].type;
  }
  return tensors;
}

const bool *vt_step_loop(vt_plan *plan, vt_step *step) {
  vt_program *program = plan->program;
  if (program->without_kernels || program->options.evaluator_only) return NULL;
  vt_arena *arena = &program->arena;
  const vt_loop *loop = vt_loop_find(arena, step->op);
  // Devices that run one after the other would show their effects in another order.
  if (!loop || (loop->has_effect && plan->frame_count > 1)) return NULL;
  loop_body *body = step->body = VT_NEW(arena, loop_body);
  vt_group *group = VT_NEW(arena, vt_group);
  *group = (vt_group){.fused = true, .loop = loop};
  body->loop = loop;
  body->homes = vt_loop_homes_of(loop, step->op->regions[1]);
  body->kernel = vt_kernel_wanted(program, group);
  body->arguments = VT_NEW_ARRAY(arena, void *, step->input_count + step->output_count);
  body->invariant = VT_NEW_ARRAY(arena, bool, step->output_count);
  for (uint32_t i = 0; i < step->output_count; i++)
    body->invariant[i] = body->homes[i] == VT_LOOP_FIXED;
  body->tensors = make_tensors(arena, loop);
  step->run = run_loop;
  step->runner = "loop";
  step->in_place_ok = loop_in_place_ok;
  return body->invariant;
}
