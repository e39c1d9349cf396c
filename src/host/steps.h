// SPDX-License-Identifier: Apache-2.0
// steps.h - steps that libraries run. Each constructor looks at a step whose op, inputs and outputs
// are set and
// returns false when the op is not for its library (too small, element type, a form it would run
// slowly); then the step is as before and the evaluator takes it.
#ifndef VT_HOST_STEPS_H
#define VT_HOST_STEPS_H

#include "host/plan.h"

// The result is written as the step's output, which may be the op's own, or that rounded to bf16; a
// third input is a bias added to each vector along the last dimensions of the result before.
// A dot may be followed by a transpose (else NULL), which says in which order the result is
// written.
bool vt_step_dot(vt_plan *plan, vt_step *step, const vt_op *transpose); // dnnl_dot.c
bool vt_step_convolution(vt_plan *plan, vt_step *step);                 // dnnl_conv.c

// Contractions that take over ops that follow them: which ops are taken, and at which of them the
// step stands.
typedef struct vt_epilogues {
  vt_map taken; // op -> step
  vt_map steps; // last op of the chain -> step
} vt_epilogues;
void vt_epilogues_find(vt_plan *plan, vt_epilogues *out); // plan_epilogue.c
void vt_epilogues_free(vt_epilogues *epilogues);

#endif
