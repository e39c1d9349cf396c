// SPDX-License-Identifier: Apache-2.0
// conv_narrow.c - see weight_gradient.h. How: images are split into blocks, one task each. A task
// copies an image with its padding as f32, so that every tap is in bounds, then walks the gradient
// once per LANES features and TAPS taps, whose sums stay in registers. Partial sums of blocks are
// added in order: results are bit-identical for any number of threads.
#include "host/weight_gradient.h"

#include <string.h>

#include "host/products.h"

enum { LANES = VT_PRODUCT_LANES, TAPS = VT_WALK_TAPS, MAX_TAPS = 4 * TAPS, BLOCKS = 32 };

typedef struct narrow {
  vt_weight_gradient conv;
  int64_t taps, tap_groups;        // channels * kernel, and in groups of TAPS
  int64_t tap_offsets[MAX_TAPS];   // in the padded image
  int64_t padded[2], image_floats; // of the padded image
  int64_t blocks, block_floats;    // sums of one block, then its image
  int64_t sums_floats;
} narrow;

static inline float widen(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

// The image in the middle of its padding, as f32.
static void copy_image(const narrow *p, const char *from, float *image) {
  const vt_weight_gradient *c = &p->conv;
  const int64_t *strides = c->input_strides;
  memset(image, 0, sizeof *image * (size_t)p->image_floats);
  for (int64_t y = 0; y < c->input[0]; y++) {
    if (y + c->low[0] < 0 || y + c->low[0] >= p->padded[0]) continue;
    for (int64_t x = 0; x < c->input[1]; x++) {
      if (x + c->low[1] < 0 || x + c->low[1] >= p->padded[1]) continue;
      float *to = image + ((y + c->low[0]) * p->padded[1] + x + c->low[1]) * c->channels;
      int64_t at = y * strides[1] + x * strides[2];
      for (int64_t i = 0; i < c->channels; i++, at += strides[3])
        to[i] =
            c->dtype == VT_F32 ? ((const float *)from)[at] : widen(((const uint16_t *)from)[at]);
    }
  }
}

static void run_block(const narrow *p, const char *input, const char *gradient, float *sums,
                      int64_t block) {
  const vt_weight_gradient *c = &p->conv;
  size_t bytes = vt_dtype_bytes(c->dtype);
  float *image = sums + p->sums_floats;
  const vt_product_code *code = vt_product_code_of();
  vt_walk walk = {.rows = c->output[0],
                  .columns = c->output[1],
                  .image_row = c->stride[0] * p->padded[1] * c->channels,
                  .image_column = c->stride[1] * c->channels,
                  .gradient_column = c->features};
  memset(sums, 0, sizeof *sums * (size_t)p->sums_floats);
  for (int64_t n = block * c->batch / p->blocks; n < (block + 1) * c->batch / p->blocks; n++) {
    copy_image(p, input + (size_t)(n * c->input_strides[0]) * bytes, image);
    const char *from = gradient + (size_t)(n * c->output[0] * c->output[1] * c->features) * bytes;
    float *to = sums;
    for (int64_t o = 0; o < c->features; o += LANES)
      for (int64_t g = 0; g < p->tap_groups; g++, to += TAPS * LANES) {
        const int64_t *offsets = p->tap_offsets + g * TAPS;
        const char *lane = from + (size_t)o * bytes;
        if (c->dtype == VT_F32)
          code->walk_f32(&walk, image, (const float *)lane, offsets, (float(*)[LANES])to);
        else
          code->walk_bf16(&walk, image, (const uint16_t *)lane, offsets, (float(*)[LANES])to);
      }
  }
}

// Adds up the blocks and puts each sum in its place.
static void store(const narrow *p, float *sums, float *weights) {
  const vt_weight_gradient *c = &p->conv;
  for (int64_t b = 1; b < p->blocks; b++)
    for (int64_t i = 0; i < p->sums_floats; i++) sums[i] += sums[b * p->block_floats + i];
  for (int64_t o = 0; o < c->features; o++)
    for (int64_t t = 0; t < p->taps; t++) {
      int64_t group = o / LANES * p->tap_groups + t / TAPS;
      int64_t i = t % c->channels, w = t / c->channels % c->kernel[1],
              h = t / c->channels / c->kernel[1];
      weights[h * c->weight_strides[0] + w * c->weight_strides[1] + i * c->weight_strides[2] +
              o * c->weight_strides[3]] = sums[(group * TAPS + t % TAPS) * LANES + o % LANES];
    }
}

static vt_status run_narrow(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                            uint32_t count) {
  (void)exec;
  const narrow *p = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    const char *input = slots[step->input_slots[0]], *gradient = slots[step->input_slots[1]];
    float *sums = (float *)(void *)slots[step->scratch_slot];
#pragma omp parallel for schedule(dynamic)
    for (int64_t b = 0; b < p->blocks; b++)
      run_block(p, input, gradient, sums + b * p->block_floats, b);
    store(p, sums, (float *)(void *)slots[step->output_slots[0]]);
  }
  return VT_OK;
}

bool vt_step_narrow(vt_plan *plan, vt_step *step, const vt_weight_gradient *conv) {
  int64_t taps = conv->channels * conv->kernel[0] * conv->kernel[1];
  bool typed = (conv->dtype == VT_F32 || conv->dtype == VT_BF16) &&
               step->inputs[0]->type.dtype == conv->dtype &&
               step->inputs[1]->type.dtype == conv->dtype && step->outputs[0]->type.dtype == VT_F32;
  if (taps > MAX_TAPS || conv->features % LANES || !typed || step->input_count != 2) return false;
  narrow *p = VT_NEW(&plan->program->arena, narrow);
  p->conv = *conv;
  p->taps = taps;
  p->tap_groups = (taps + TAPS - 1) / TAPS;
  for (int d = 0; d < 2; d++)
    p->padded[d] =
        (conv->output[d] - 1) * conv->stride[d] + (conv->kernel[d] - 1) * conv->dilation[d] + 1;
  p->image_floats = p->padded[0] * p->padded[1] * conv->channels;
  // Taps past the last read an arbitrary pixel; their sums are not stored.
  for (int64_t t = 0; t < taps; t++) {
    int64_t i = t % conv->channels, w = t / conv->channels % conv->kernel[1],
            h = t / conv->channels / conv->kernel[1];
    p->tap_offsets[t] =
        (h * conv->dilation[0] * p->padded[1] + w * conv->dilation[1]) * conv->channels + i;
  }
  p->blocks = conv->batch < BLOCKS ? conv->batch : BLOCKS;
  p->sums_floats = conv->features / LANES * p->tap_groups * TAPS * LANES;
  p->block_floats = (p->sums_floats + p->image_floats + 15) / 16 * 16;
  vt_step_reserve(step, p->blocks * p->block_floats * (int64_t)sizeof(float));
  step->body = p;
  step->run = run_narrow;
  step->runner = "narrow";
  return true;
}
