// SPDX-License-Identifier: Apache-2.0
// weight_gradient.h - alternatives to oneDNN for the weight gradient of a two-dimensional
// convolution.
#ifndef VT_HOST_WEIGHT_GRADIENT_H
#define VT_HOST_WEIGHT_GRADIENT_H

#include "host/plan.h"

// weights[h, w, i, o] = sum over n, y, x of input[n, y * stride + h * dilation - low, ..., i] *
// gradient[n, y, x, o]. Strides in elements; the gradient is dense in that order.
typedef struct vt_weight_gradient {
  int64_t batch, channels, features;
  int64_t input[2], kernel[2], output[2]; // sizes; output: of the gradient
  int64_t stride[2], dilation[2], low[2];
  int64_t input_strides[4];  // n, y, x, i
  int64_t weight_strides[4]; // h, w, i, o
  vt_dtype dtype;            // of both operands: f32 or bf16
} vt_weight_gradient;

// All take `input` and `gradient` from the step's operands; false when they do not apply.
//
// Few channels, as in the first layer of most vision models: a matrix unit would be nearly empty (9
// taps of one channel), so vectors run along the features. (conv_narrow.c)
bool vt_step_narrow(vt_plan *plan, vt_step *step, const vt_weight_gradient *gradient);
// Many channels, in bf16 with AMX: one product whose left side has a row for each tap and channel.
// (conv_wide.c)
bool vt_step_wide(vt_plan *plan, vt_step *step, const vt_weight_gradient *gradient);
// Many channels, or a few and a large window, in bf16 with AVX512-BF16 and without AMX.
// (conv_pairs.c)
bool vt_step_pairs(vt_plan *plan, vt_step *step, const vt_weight_gradient *gradient);

#endif
