// SPDX-License-Identifier: Apache-2.0
// steps.h - steps that libraries run. Each constructor takes a step whose op, inputs and outputs
// are set and returns false when its library should not run the op (too small, element type, a form
// it would run slowly); the step is then unchanged and the evaluator runs it.
#ifndef VT_HOST_STEPS_H
#define VT_HOST_STEPS_H

#include "host/plan.h"

// The step's output is the op's result, or that rounded to bf16; a third input is a bias added
// first to each vector along the result's last dimensions.
// A dot may be followed by a transpose (else NULL), which says in which order the result is
// written.
bool vt_step_dot(vt_plan *plan, vt_step *step, const vt_op *transpose); // dnnl_dot.c
bool vt_step_convolution(vt_plan *plan, vt_step *step);                 // dnnl_conv.c

// Products and convolutions of bf16 that run in strips. (exec_strip.c)
struct vt_strip;
struct vt_contraction;
bool vt_step_strip(vt_plan *plan, vt_step *step, const struct vt_strip *strip);
// `swapped`: the left side is the second input.
bool vt_step_strip_matmul(vt_plan *plan, vt_step *step, const struct vt_contraction *contraction,
                          bool swapped);
bool vt_step_is_strip(const vt_step *step);
// Joins them with what reads their results; between the steps and their memory.
void vt_plan_strips(vt_plan *plan);

// Contractions that absorb the ops after them: which ops, and at which of them the step runs.
typedef struct vt_epilogues {
  vt_map taken; // op -> step
  vt_map steps; // last op of the chain -> step
} vt_epilogues;
void vt_epilogues_find(vt_plan *plan, vt_epilogues *out); // plan_epilogue.c
void vt_epilogues_free(vt_epilogues *epilogues);

#endif
