// SPDX-License-Identifier: Apache-2.0
// conv_wide.c - see weight_gradient.h. How: weights[tap and channel, feature] is the product of the
// input under each tap, a row for each tap and channel and a column for each pixel of the gradient,
// with the gradient, a row for each of its pixels. The left side exists only in the tiles that
// amx.c packs.
#include "host/amx.h"
#include "host/contraction.h"
#include "host/weight_gradient.h"

static vt_status run_wide(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                          uint32_t count) {
  (void)exec;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    vt_amx_run(step->body, slots[step->input_slots[0]], slots[step->input_slots[1]], NULL,
               slots[step->output_slots[0]], slots[step->scratch_slot]);
  }
  return VT_OK;
}

bool vt_step_wide(vt_plan *plan, vt_step *step, const vt_weight_gradient *g) {
  const int64_t *weights = g->weight_strides, *input = g->input_strides;
  bool typed =
      g->dtype == VT_BF16 && step->inputs[1]->type.dtype == VT_BF16 && step->input_count == 2;
  bool rows = weights[3] == 1 && weights[1] == g->channels * weights[2] &&
              weights[0] == g->kernel[1] * weights[1];
  if (!typed || !rows || input[3] != 1) return false;
  vt_amx_product *p = VT_NEW(&plan->program->arena, vt_amx_product);
  *p = (vt_amx_product){.m = g->kernel[0] * g->kernel[1] * g->channels,
                        .n = g->features,
                        .k = g->batch * g->output[0] * g->output[1],
                        .rhs_row = g->features,
                        .rhs_column = 1,
                        .out_row = weights[2],
                        .out = step->outputs[0]->type.dtype,
                        .windowed = true,
                        .window = {.channels = g->channels, .batch_stride = input[0]}};
  for (int d = 0; d < 2; d++) {
    vt_amx_window *w = &p->window;
    w->kernel[d] = g->kernel[d], w->input[d] = g->input[d], w->output[d] = g->output[d];
    w->stride[d] = g->stride[d], w->dilation[d] = g->dilation[d], w->low[d] = g->low[d];
    w->input_strides[d] = input[1 + d];
  }
  if (!vt_amx_prepare(p, plan->program->options.compile_all)) return false;
  vt_step_reserve(step, p->scratch_bytes);
  step->body = p;
  step->run = run_wide;
  step->runner = "amx";
  return true;
}
