// SPDX-License-Identifier: Apache-2.0
// plan.h - a function prepared to run: values become slots, and each step knows which slots it
// reads last.
#ifndef VT_EVAL_PLAN_H
#define VT_EVAL_PLAN_H

#include "eval/kernel.h"

typedef struct vt_eval_step {
  const vt_op *op;
  int32_t *operands;    // slots, op->operand_count
  int32_t first_result; // slot of result 0
  uint32_t dead_count;  // slots released after the step: last uses, and unused results
  int32_t *dead;
  vt_eval_buffer *constant; // of CONSTANT ops, created on first use
  bool collective;          // a collective, or control flow that contains one
} vt_eval_step;

typedef struct vt_eval_plan {
  const vt_func *func;
  int32_t slot_count; // parameters come first
  uint32_t step_count;
  vt_eval_step *steps;
  int32_t *returns;
} vt_eval_plan;

// The plan of a function, built once per state. errors INTERNAL when the function is not closed
vt_status vt_eval_plan_of(vt_eval_state *state, const vt_func *func,
                          const vt_eval_plan **out) VT_CHECKED;
// Runs one step on a frame of slots. Reads of dead slots give up their references.
vt_status vt_eval_step_run(vt_eval_state *state, const vt_eval_env *env, const vt_eval_step *step,
                           vt_eval_buffer **slots) VT_CHECKED;
// A frame with the arguments (references taken) in its first slots; NULL when out of memory.
vt_eval_buffer **vt_eval_frame_new(const vt_eval_plan *plan, vt_eval_buffer **args);
void vt_eval_frame_free(vt_eval_state *state, const vt_eval_plan *plan, vt_eval_buffer **slots);

#endif
