// SPDX-License-Identifier: Apache-2.0
// conv_narrow.h - the gradient of the weights of a convolution over few channels: the first layer
// of most vision models. A matrix unit is nearly empty there (9 taps of one channel); vectors run
// along the features instead.
#ifndef VT_HOST_CONV_NARROW_H
#define VT_HOST_CONV_NARROW_H

#include "host/plan.h"

// weights[h, w, i, o] = sum over n, y, x of input[n, y * stride + h * dilation - low, ..., i] *
// gradient[n, y, x, o]. Strides in elements; the gradient is dense in that order.
typedef struct vt_narrow_conv {
  int64_t batch, channels, features;
  int64_t input[2], kernel[2], output[2]; // sizes; output: of the gradient
  int64_t stride[2], dilation[2], low[2];
  int64_t input_strides[4];  // n, y, x, i
  int64_t weight_strides[4]; // h, w, i, o
  vt_dtype dtype;            // of both operands: f32 or bf16
} vt_narrow_conv;

// False when it is not narrow. `input` and `gradient` are operands of the step.
bool vt_step_narrow(vt_plan *plan, vt_step *step, const vt_narrow_conv *conv);

#endif
