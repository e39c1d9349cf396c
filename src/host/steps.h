// SPDX-License-Identifier: Apache-2.0
// steps.h - steps that libraries run. Each constructor looks at a step whose op, inputs and outputs are set and
// returns false when the op is not for its library (too small, element type, a form it would run slowly); then the
// step is as before and the evaluator takes it.
#ifndef VT_HOST_STEPS_H
#define VT_HOST_STEPS_H

#include "host/plan.h"

bool vt_step_dot(vt_plan *plan, vt_step *step);          // dnnl_dot.c
bool vt_step_convolution(vt_plan *plan, vt_step *step);  // dnnl_conv.c

#endif
