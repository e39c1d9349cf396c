// SPDX-License-Identifier: Apache-2.0
// conv_lines.c - see conv_lines.h. How: the input is copied into its padding as f32, so that every
// tap is in bounds (no copy if it already has that form); then each line of the result is computed
// in blocks whose sums stay in registers over all taps. oneDNN fills its vectors with features
// instead; here there is only one.
#include "host/conv_lines.h"

#include <string.h>

#include "host/cpu.h"
#include "host/pack.h"
#include "host/products.h"

// A task takes PIECE numbers of a line. More than MAX_WEIGHTS pairs of
// features go to oneDNN.
enum { PIECE = 96 * VT_PRODUCT_LANES, MAX_WEIGHTS = 16 };
static const int64_t PARALLEL_PRODUCTS = 256 << 10;

typedef struct line_conv {
  vt_line_conv conv;
  int64_t taps;
  int64_t *tap_offsets; // channel, then kernel; in the padded input
  bool copies, converts;
  vt_pack input, kernel, output;
  int64_t padded[VT_LINE_SPATIAL], planes; // planes: batch * channels of all groups
  int64_t from_strides[2 + VT_LINE_SPATIAL], to_strides[2 + VT_LINE_SPATIAL], from_offset;
  int64_t input_at, kernel_at, output_at; // in scratch
} line_conv;

static void run_lines(const line_conv *p, const float *in, const float *weights, const float *bias,
                      float *out) {
  const vt_line_conv *c = &p->conv;
  const vt_product_code *code = vt_product_code_of();
  int64_t length = c->output[2], pieces = (length + PIECE - 1) / PIECE;
  int64_t items = c->batch * c->features * c->output[0] * c->output[1] * pieces;
  int64_t group_features = c->features / c->groups;
  bool team = items > 1 && items / pieces * length * p->taps >= PARALLEL_PRODUCTS;
#pragma omp parallel for schedule(dynamic, vt_host_share(items)) if (team)
  for (int64_t item = 0; item < items; item++) {
    int64_t rest = item, x = rest % pieces * PIECE;
    rest /= pieces;
    int64_t y = rest % c->output[1];
    rest /= c->output[1];
    int64_t z = rest % c->output[0];
    rest /= c->output[0];
    int64_t o = rest % c->features, n = rest / c->features;
    const int64_t *from = p->from_strides, *to = p->to_strides;
    const float *source = in + n * from[0] + o / group_features * c->channels * from[1] +
                          z * c->stride[0] * from[2] + y * c->stride[1] * from[3] + x;
    code->convolve_line(source, p->tap_offsets, weights + o * p->taps, p->taps,
                        bias ? bias[o] : 0.0f,
                        out + n * to[0] + o * to[1] + z * to[2] + y * to[3] + x,
                        length - x < PIECE ? length - x : PIECE);
  }
}

static const float *padded_input(const line_conv *p, const void *input, char *scratch) {
  if (!p->copies) return (const float *)input + p->from_offset;
  float *to = (float *)(void *)(scratch + p->input_at);
  int64_t plane = p->padded[0] * p->padded[1] * p->padded[2];
#pragma omp parallel for if (plane * p->planes >= PARALLEL_PRODUCTS && p->planes > 1)
  for (int64_t i = 0; i < p->planes; i++) memset(to + i * plane, 0, sizeof *to * (size_t)plane);
  vt_pack_run(&p->input, input, to + p->from_offset);
  return to;
}

static vt_status run_line_conv(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                               uint32_t count) {
  (void)exec;
  const line_conv *p = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots, *scratch = slots[step->scratch_slot];
    const float *in = padded_input(p, slots[step->input_slots[0]], scratch);
    float *weights = (float *)(void *)(scratch + p->kernel_at);
    vt_pack_run(&p->kernel, slots[step->input_slots[1]], weights);
    const void *bias = step->input_count == 3 ? slots[step->input_slots[2]] : NULL;
    char *result = slots[step->output_slots[0]];
    char *out = p->converts ? scratch + p->output_at : result;
    run_lines(p, in, weights, bias, (float *)(void *)out);
    if (p->converts) vt_pack_run(&p->output, out, result);
  }
  return VT_OK;
}

static void dense_strides(const int64_t *sizes, int64_t *strides) {
  int64_t stride = 1;
  for (int d = 1 + VT_LINE_SPATIAL; d >= 0; d--) {
    strides[d] = stride;
    stride *= sizes[d];
  }
}

// Where the taps read, and the copy that puts the input there.
static void plan_input(line_conv *p, vt_step *step) {
  const vt_line_conv *c = &p->conv;
  vt_dtype dtype = step->inputs[0]->type.dtype;
  p->copies = dtype != VT_F32 || c->round;
  int64_t channels = c->channels * c->groups;
  for (int d = 0; d < VT_LINE_SPATIAL; d++) {
    p->padded[d] = (c->output[d] - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
    p->copies |= c->low[d] > 0 || p->padded[d] - c->low[d] > c->input[d];
  }
  p->copies |= c->input_strides[4] != 1 && c->input[2] > 1;
  p->planes = c->batch * channels;
  if (!p->copies) {
    memcpy(p->from_strides, c->input_strides, sizeof p->from_strides);
    p->from_strides[4] = 1;
    for (int d = 0; d < VT_LINE_SPATIAL; d++) p->from_offset -= c->low[d] * p->from_strides[2 + d];
    return;
  }
  int64_t sizes[] = {c->batch, channels, p->padded[0], p->padded[1], p->padded[2]};
  dense_strides(sizes, p->from_strides);
  p->input = (vt_pack){.from = dtype, .to = VT_F32, .round = c->round};
  for (int d = 0; d < 2; d++)
    vt_pack_add(&p->input, sizes[d], c->input_strides[d], p->from_strides[d]);
  for (int d = 0; d < VT_LINE_SPATIAL; d++) {
    int64_t stride = c->input_strides[2 + d], low = c->low[d];
    int64_t first = low < 0 ? -low : 0, end = p->padded[d] - low;
    if (end > c->input[d]) end = c->input[d];
    vt_pack_add(&p->input, end > first ? end - first : 0, stride, p->from_strides[2 + d]);
    p->input.from_offset += first * stride;
    p->from_offset += (first + low) * p->from_strides[2 + d];
  }
  vt_pack_finish(&p->input);
  p->input_at = vt_step_reserve(step, p->planes * p->padded[0] * p->padded[1] * p->padded[2] *
                                          (int64_t)sizeof(float));
}

static void plan_kernel(vt_plan *plan, line_conv *p, vt_step *step) {
  const vt_line_conv *c = &p->conv;
  const int64_t *k = c->kernel;
  p->taps = c->channels * k[0] * k[1] * k[2];
  p->tap_offsets = VT_NEW_ARRAY(&plan->program->arena, int64_t, p->taps);
  for (int64_t t = 0; t < p->taps; t++) {
    int64_t rest = t;
    for (int d = VT_LINE_SPATIAL - 1; d >= 0; d--) {
      p->tap_offsets[t] += rest % k[d] * c->dilation[d] * p->from_strides[2 + d];
      rest /= k[d];
    }
    p->tap_offsets[t] += rest * p->from_strides[1];
  }
  int64_t sizes[] = {c->features, c->channels, k[0], k[1], k[2]}, dense[2 + VT_LINE_SPATIAL];
  dense_strides(sizes, dense);
  p->kernel = (vt_pack){.from = step->inputs[1]->type.dtype, .to = VT_F32, .round = c->round};
  vt_pack_add(&p->kernel, c->features, c->kernel_strides[1], dense[0]);
  vt_pack_add(&p->kernel, c->channels, c->kernel_strides[0], dense[1]);
  for (int d = 0; d < VT_LINE_SPATIAL; d++) {
    int64_t stride = c->kernel_strides[2 + d];
    if (c->reversed[d]) p->kernel.from_offset += (k[d] - 1) * stride;
    vt_pack_add(&p->kernel, k[d], c->reversed[d] ? -stride : stride, dense[2 + d]);
  }
  vt_pack_finish(&p->kernel);
  p->kernel_at = vt_step_reserve(step, c->features * p->taps * (int64_t)sizeof(float));
}

static void plan_output(line_conv *p, vt_step *step) {
  const vt_line_conv *c = &p->conv;
  vt_dtype dtype = step->outputs[0]->type.dtype;
  p->converts = dtype != VT_F32;
  memcpy(p->to_strides, c->output_strides, sizeof p->to_strides);
  if (!p->converts) return;
  int64_t sizes[] = {c->batch, c->features, c->output[0], c->output[1], c->output[2]};
  dense_strides(sizes, p->to_strides);
  p->output = (vt_pack){.from = VT_F32, .to = dtype};
  for (int d = 0; d < 2 + VT_LINE_SPATIAL; d++)
    vt_pack_add(&p->output, sizes[d], p->to_strides[d], c->output_strides[d]);
  vt_pack_finish(&p->output);
  p->output_at = vt_step_reserve(step, sizes[0] * p->to_strides[0] * (int64_t)sizeof(float));
}

bool vt_step_line_conv(vt_plan *plan, vt_step *step, const vt_line_conv *conv) {
  for (uint32_t i = 0; i < 2; i++)
    if (step->inputs[i]->type.dtype != VT_F32 && step->inputs[i]->type.dtype != VT_BF16)
      return false;
  vt_dtype out = step->outputs[0]->type.dtype;
  int64_t skipped = conv->low[2] < 0 ? -conv->low[2] : 0;
  bool lines = conv->output_strides[4] == 1 && conv->stride[2] == 1 &&
               conv->output[2] >= VT_PRODUCT_LANES && conv->input[2] - skipped > 1;
  if ((out != VT_F32 && out != VT_BF16) || !lines ||
      conv->channels * (conv->features / conv->groups) > MAX_WEIGHTS)
    return false;
  line_conv *p = VT_NEW(&plan->program->arena, line_conv);
  p->conv = *conv;
  plan_input(p, step);
  plan_kernel(plan, p, step);
  plan_output(p, step);
  step->body = p;
  step->run = run_line_conv;
  step->runner = "lines";
  return true;
}
