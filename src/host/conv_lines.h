// SPDX-License-Identifier: Apache-2.0
// conv_lines.h - convolutions with few features on both sides and contiguous lines: signals and
// single planes, as from convolve, correlate and single-channel filters.
#ifndef VT_HOST_CONV_LINES_H
#define VT_HOST_CONV_LINES_H

#include "host/plan.h"

enum { VT_LINE_SPATIAL = 3 };

// A convolution without dilated input or batch groups. With fewer than three spatial dimensions,
// the leading ones have size 1. Strides in elements.
typedef struct vt_line_conv {
  int64_t batch, groups, channels, features; // channels: of one group; features: of all
  int64_t input[VT_LINE_SPATIAL], kernel[VT_LINE_SPATIAL], output[VT_LINE_SPATIAL]; // sizes
  int64_t stride[VT_LINE_SPATIAL], dilation[VT_LINE_SPATIAL], low[VT_LINE_SPATIAL];
  bool reversed[VT_LINE_SPATIAL];
  int64_t input_strides[2 + VT_LINE_SPATIAL];  // batch, channel, spatial
  int64_t kernel_strides[2 + VT_LINE_SPATIAL]; // channel, feature, spatial
  int64_t output_strides[2 + VT_LINE_SPATIAL]; // batch, feature, spatial
  bool round;                                  // f32 operands to bf16
} vt_line_conv;

// False when it does not qualify: many features, short or strided lines, other element types.
bool vt_step_line_conv(vt_plan *plan, vt_step *step, const vt_line_conv *conv);

#endif
