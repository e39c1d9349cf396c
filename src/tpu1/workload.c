// SPDX-License-Identifier: Apache-2.0
// workload.c - generates the six workloads from their shapes.
// In: a workload, a batch, a chip. Out: a program. One scheme for all: read the input, wait for it,
// run the layers one at a time, write each result when it is final, interrupt. Nothing here depends
// on a measured figure.
#include "tpu1/workload.h"

#include <string.h>

enum { MATRIX = 1 << VT_TPU1_UNIT_MATRIX, ACTIVATE = 1 << VT_TPU1_UNIT_ACTIVATE };

typedef struct gen {
  vt_tpu1_build *b;
  vt_tpu1_workload_built *built;
  bool counting; // false while a layer repeats for another part of the batch
} gen;

static const vt_tpu1_workload_info infos[] = {
#define WORKLOAD(NAME, fc, conv, vector, pool, weights, batch, intensity, share)                   \
  {#NAME, fc, conv, vector, pool, weights, batch, intensity},
#include "tpu1/workloads.def"
};

const vt_tpu1_workload_info *vt_tpu1_workload_get(vt_tpu1_workload workload) {
  return &infos[workload];
}

static int64_t channels_of(const vt_tpu1_tensor *t) {
  int64_t n = 0;
  for (int i = 0; i < t->block_count; i++) n += t->blocks[i].lanes;
  return n;
}

static void count_layer(gen *g, bool fc, int64_t weights, int64_t macs) {
  g->built->macs += macs;
  if (!g->counting) return;
  *(fc ? &g->built->fc : &g->built->conv) += 1;
  g->built->weights += weights;
}

// 16-bit results keep the same scale everywhere: only the shapes matter here, not the values.
static vt_tpu1_epilogue epilogue(vt_tpu1_fn fn, bool wide) {
  return (vt_tpu1_epilogue){.fn = fn, .wide_out = wide, .scale = 1, .shift = 8};
}

static void dense_into(gen *g, const vt_tpu1_tensor *in, const vt_tpu1_tensor *out, vt_tpu1_fn fn) {
  int64_t n = channels_of(out), k = channels_of(in) * in->h * in->w;
  vt_tpu1_term term = {in, {.kh = in->h, .kw = in->w, .sy = 1, .sx = 1}};
  vt_tpu1_epilogue e = epilogue(fn, out->wide);
  vt_tpu1_build_layer(g->b, &term, 1, &e, out);
  count_layer(g, true, k * n, in->images * k * n);
}

static vt_tpu1_tensor dense(gen *g, const vt_tpu1_tensor *in, int64_t n, vt_tpu1_fn fn) {
  vt_tpu1_tensor out = vt_tpu1_build_tensor(g->b, in->images, 1, 1, n, in->wide);
  dense_into(g, in, &out, fn);
  return out;
}

static void vector(gen *g, vt_tpu1_vop op, vt_tpu1_fn fn, const vt_tpu1_tensor *a,
                   const vt_tpu1_tensor *b, const vt_tpu1_tensor *out) {
  vt_tpu1_build_vector(g->b, op, fn, a, b, out);
}

// ---- multi-layer perceptrons ----

static void mlp(gen *g, int64_t batch, const int64_t *widths, int layers) {
  vt_tpu1_tensor x = vt_tpu1_build_tensor(g->b, batch, 1, 1, widths[0], false);
  vt_tpu1_build_read(g->b, &x, 0, MATRIX);
  for (int i = 0; i < layers; i++) {
    vt_tpu1_tensor y = dense(g, &x, widths[i + 1], VT_TPU1_FN_RELU);
    vt_tpu1_build_drop(g->b, &x);
    x = y;
  }
  vt_tpu1_build_write(g->b, &x);
}

static void mlp0(gen *g, int64_t batch) {
  static const int64_t widths[] = {2304, 2000, 2048, 2000, 2304, 1250};
  mlp(g, batch, widths, 5);
}

static void mlp1(gen *g, int64_t batch) {
  static const int64_t widths[] = {1280, 1000, 1280, 1000, 1280};
  mlp(g, batch, widths, 4);
}

// ---- LSTMs ----

// A tensor over the blocks of two others: a free concatenation.
static vt_tpu1_tensor concat(const vt_tpu1_tensor *a, const vt_tpu1_tensor *b) {
  vt_tpu1_tensor t = *a;
  for (int i = 0; i < b->block_count; i++) t.blocks[t.block_count++] = b->blocks[i];
  return t;
}

// One cell: four gates over [x, h], then c = f c + i g, h = o tanh(c). h and c are overwritten.
// `gates` holds i, f, g, o.
static void lstm_cell(gen *g, const vt_tpu1_tensor *x, vt_tpu1_tensor *h, vt_tpu1_tensor *c,
                      vt_tpu1_tensor gates[4]) {
  static const vt_tpu1_fn fns[4] = {VT_TPU1_FN_SIGMOID, VT_TPU1_FN_SIGMOID, VT_TPU1_FN_TANH,
                                    VT_TPU1_FN_SIGMOID};
  vt_tpu1_tensor xh = concat(x, h);
  for (int i = 0; i < 4; i++) dense_into(g, &xh, &gates[i], fns[i]);
  vt_tpu1_build_set(g->b, VT_TPU1_REG_SHIFT, 15);
  vector(g, VT_TPU1_VOP_MUL, VT_TPU1_FN_NONE, &gates[0], &gates[2], &gates[0]);
  vector(g, VT_TPU1_VOP_MUL, VT_TPU1_FN_NONE, &gates[1], c, c);
  vt_tpu1_build_set(g->b, VT_TPU1_REG_SHIFT, 0);
  vector(g, VT_TPU1_VOP_ADD, VT_TPU1_FN_NONE, c, &gates[0], c);
  vector(g, VT_TPU1_VOP_COPY, VT_TPU1_FN_TANH, c, NULL, &gates[1]);
  vt_tpu1_build_set(g->b, VT_TPU1_REG_SHIFT, 15);
  vector(g, VT_TPU1_VOP_MUL, VT_TPU1_FN_NONE, &gates[3], &gates[1], h);
}

enum { MAX_CELLS = 9 };

typedef struct lstm_shape {
  int64_t cells, input, hidden, residual_from, vector_layers, output;
} lstm_shape;

static void lstm(gen *g, int64_t batch, const lstm_shape *s) {
  vt_tpu1_tensor h[MAX_CELLS], c[MAX_CELLS], gates[4],
      x = vt_tpu1_build_tensor(g->b, batch, 1, 1, s->input, true);
  vt_tpu1_build_read(g->b, &x, 0, 0);
  for (int64_t i = 0; i < s->cells; i++) {
    h[i] = vt_tpu1_build_tensor(g->b, batch, 1, 1, s->hidden, true);
    c[i] = vt_tpu1_build_tensor(g->b, batch, 1, 1, s->hidden, true);
    vt_tpu1_build_read(g->b, &h[i], 0, 0);
    vt_tpu1_build_read(g->b, &c[i], 0, i + 1 == s->cells ? MATRIX | ACTIVATE : 0);
  }
  for (int i = 0; i < 4; i++) gates[i] = vt_tpu1_build_tensor(g->b, batch, 1, 1, s->hidden, true);
  for (int64_t i = 0; i < s->cells; i++) {
    lstm_cell(g, &x, &h[i], &c[i], gates);
    g->built->vector += s->vector_layers;
    vt_tpu1_build_write(g->b, &c[i]);
    vt_tpu1_build_write(g->b, &h[i]);
    if (i >= s->residual_from) {
      vt_tpu1_tensor y = vt_tpu1_build_tensor(g->b, batch, 1, 1, s->hidden, true);
      vt_tpu1_build_set(g->b, VT_TPU1_REG_SHIFT, 0);
      vector(g, VT_TPU1_VOP_ADD, VT_TPU1_FN_NONE, &h[i], &x, &y);
      g->built->vector++;
      if (i > s->residual_from) vt_tpu1_build_drop(g->b, &x);
      x = y;
    } else {
      x = h[i];
    }
  }
  if (!s->output) return;
  vt_tpu1_tensor y = dense(g, &x, s->output, VT_TPU1_FN_NONE);
  vt_tpu1_build_set(g->b, VT_TPU1_REG_SHIFT, 0);
  vector(g, VT_TPU1_VOP_COPY, VT_TPU1_FN_SIGMOID, &y, NULL, &y);
  g->built->vector++;
  vt_tpu1_build_write(g->b, &y);
}

static void lstm0(gen *g, int64_t batch) {
  lstm(g, batch,
       &(lstm_shape){
           .cells = 6, .input = 1280, .hidden = 1024, .residual_from = 2, .vector_layers = 5});
}

static void lstm1(gen *g, int64_t batch) {
  lstm(g, batch,
       &(lstm_shape){.cells = 9,
                     .input = 600,
                     .hidden = 600,
                     .residual_from = 9,
                     .vector_layers = 2,
                     .output = 13500});
}

// ---- convolutional networks ----

static void conv_into(gen *g, const vt_tpu1_tensor *in, int64_t kernel, int64_t stride, int64_t pad,
                      int64_t out_channels, const vt_tpu1_tensor *out) {
  int64_t weights = kernel * kernel * channels_of(in) * out_channels;
  vt_tpu1_term term = {
      in, {.kh = kernel, .kw = kernel, .sy = stride, .sx = stride, .py = pad, .px = pad}};
  vt_tpu1_epilogue e = epilogue(VT_TPU1_FN_RELU, false);
  vt_tpu1_build_layer(g->b, &term, 1, &e, out);
  count_layer(g, false, weights, in->images * out->h * out->w * weights);
}

static vt_tpu1_tensor conv_layer(gen *g, const vt_tpu1_tensor *in, int64_t kernel, int64_t stride,
                                 int64_t pad, int64_t out_channels) {
  int64_t oh = (in->h + 2 * pad - kernel) / stride + 1,
          ow = (in->w + 2 * pad - kernel) / stride + 1;
  vt_tpu1_tensor out = vt_tpu1_build_tensor(g->b, in->images, oh, ow, out_channels, false);
  conv_into(g, in, kernel, stride, pad, out_channels, &out);
  return out;
}

// Go player: 19 x 19 positions, 48 input planes, 5 x 5 then 3 x 3 kernels with 256 channels, a 1 x
// 1 move layer. The host packs the five horizontal positions of the first kernel side by side into
// 240 lanes.
static void cnn0(gen *g, int64_t batch) {
  vt_tpu1_tensor x = vt_tpu1_build_tensor(g->b, batch, 19, 19, 48 * 5, false);
  vt_tpu1_build_read(g->b, &x, 0, MATRIX);
  vt_tpu1_tensor y = vt_tpu1_build_tensor(g->b, batch, 19, 19, 256, false);
  vt_tpu1_term first = {&x, {.kh = 5, .kw = 1, .sy = 1, .sx = 1, .py = 2}};
  vt_tpu1_epilogue e = epilogue(VT_TPU1_FN_RELU, false);
  vt_tpu1_build_layer(g->b, &first, 1, &e, &y);
  count_layer(g, false, 25 * 48 * 256, batch * 361 * 25 * 48 * 256);
  for (int i = 0; i < 14; i++) {
    vt_tpu1_build_drop(g->b, &x);
    x = y;
    y = conv_layer(g, &x, 3, 1, 1, 256);
  }
  vt_tpu1_build_drop(g->b, &x);
  x = conv_layer(g, &y, 1, 1, 0, 1);
  vt_tpu1_build_write(g->b, &x);
}

// An inception module: channels of each branch, 0 = the branch is absent. Reductions have stride 2
// and pass the pooled input through.
typedef struct module {
  int64_t one, three_in, three, twice_in, twice, project;
} module;

// `parts` tensors side by side are one tensor: its blocks are the parts' blocks, so channels of a
// part that do not fill a block leave lanes unused.
static void append(vt_tpu1_tensor *t, const vt_tpu1_tensor *part) {
  if (t->block_count + part->block_count > VT_TPU1_MAX_BLOCKS) return;
  for (int i = 0; i < part->block_count; i++) t->blocks[t->block_count++] = part->blocks[i];
}

// The part of `t` that holds images first..first+count, with its channels.
static vt_tpu1_tensor images_of(const vt_tpu1_tensor *t, int64_t first, int64_t count) {
  vt_tpu1_tensor part = *t;
  part.images = count;
  for (int i = 0; i < t->block_count; i++)
    part.blocks[i].ub += first * t->h * t->w * (t->wide ? 2 : 1);
  return part;
}

static int64_t widened(int64_t channels) {
  return channels * 4 / 3 / 4 * 4;
}

static int64_t module_parts(const module *m, int64_t parts[4]) {
  int n = 0;
  if (m->one) parts[n++] = widened(m->one);
  parts[n++] = widened(m->three);
  parts[n++] = widened(m->twice);
  if (m->project) parts[n++] = widened(m->project);
  return n;
}

// The result of a module over `images` images; only reserves space.
static vt_tpu1_tensor module_tensor(gen *g, const vt_tpu1_tensor *in, const module *m,
                                    int64_t images) {
  int64_t stride = m->project ? 1 : 2, parts[4], n = module_parts(m, parts);
  int64_t h = stride == 1 ? in->h : (in->h - 3) / 2 + 1;
  vt_tpu1_tensor out = {.images = images, .h = h, .w = h};
  for (int64_t i = 0; i < n; i++) {
    vt_tpu1_tensor part = vt_tpu1_build_tensor(g->b, images, h, h, parts[i], false);
    append(&out, &part);
  }
  for (int i = 0; stride == 2 && i < in->block_count; i++) {
    vt_tpu1_tensor part = vt_tpu1_build_tensor(g->b, images, h, h, in->blocks[i].lanes, false);
    append(&out, &part);
  }
  return out;
}

// The next `channels` of a module's result.
static vt_tpu1_tensor take(gen *g, const vt_tpu1_tensor *out, int *next, int64_t channels) {
  vt_tpu1_tensor part = *out;
  int64_t dim = vt_tpu1_chip_dim(g->b->chip), blocks = (channels + dim - 1) / dim;
  for (int64_t i = 0; i < blocks; i++) part.blocks[i] = out->blocks[*next + i];
  part.block_count = (int)blocks;
  *next += (int)blocks;
  return part;
}

static void inception(gen *g, const vt_tpu1_tensor *in, const module *m,
                      const vt_tpu1_tensor *out) {
  int64_t stride = m->project ? 1 : 2, pad = stride == 1;
  int next = 0;
  if (m->one) {
    vt_tpu1_tensor part = take(g, out, &next, widened(m->one));
    conv_into(g, in, 1, 1, 0, widened(m->one), &part);
  }
  vt_tpu1_tensor a = conv_layer(g, in, 1, 1, 0, widened(m->three_in)),
                 part = take(g, out, &next, widened(m->three));
  conv_into(g, &a, 3, stride, pad, widened(m->three), &part);
  vt_tpu1_build_drop(g->b, &a);
  a = conv_layer(g, in, 1, 1, 0, widened(m->twice_in));
  vt_tpu1_tensor b = conv_layer(g, &a, 3, 1, 1, widened(m->twice));
  part = take(g, out, &next, widened(m->twice));
  conv_into(g, &b, 3, stride, pad, widened(m->twice), &part);
  vt_tpu1_build_drop(g->b, &a);
  vt_tpu1_build_drop(g->b, &b);
  if (g->counting) g->built->pool++;
  vt_tpu1_pooling pooling = {
      .kind = VT_TPU1_POOL_MAX, .kh = 3, .kw = 3, .sy = stride, .sx = stride, .py = pad, .px = pad};
  if (!m->project) {
    part = *out;
    part.block_count = out->block_count - next;
    for (int i = 0; i < part.block_count; i++) part.blocks[i] = out->blocks[next + i];
    vt_tpu1_build_pool(g->b, in, &pooling, &part);
    return;
  }
  vt_tpu1_tensor pooled = *in;
  for (int i = 0; i < in->block_count; i++)
    pooled.blocks[i].ub = vt_tpu1_build_rows(g->b, vt_tpu1_tensor_rows(in));
  vt_tpu1_build_pool(g->b, in, &pooling, &pooled);
  part = take(g, out, &next, widened(m->project));
  conv_into(g, &pooled, 1, 1, 0, widened(m->project), &part);
  vt_tpu1_build_drop(g->b, &pooled);
}

// A stage over `in`: a 3 x 3 convolution that keeps the channels, then `count` modules; the last
// writes to `out`.
static void stage(gen *g, const vt_tpu1_tensor *in, const module *m, int count,
                  const vt_tpu1_tensor *out) {
  vt_tpu1_tensor x = conv_layer(g, in, 3, 1, 1, channels_of(in));
  for (int i = 0; i < count; i++) {
    vt_tpu1_tensor y = i + 1 < count ? module_tensor(g, &x, &m[i], x.images) : *out;
    inception(g, &x, &m[i], &y);
    vt_tpu1_build_drop(g->b, &x);
    x = y;
  }
}

static const module modules[] = {
    {64, 64, 64, 64, 96, 32},       {64, 64, 96, 64, 96, 64},
    {0, 128, 160, 64, 96, 0}, // 28 x 28
    {224, 64, 96, 96, 128, 128},    {192, 96, 128, 96, 128, 128},
    {160, 128, 160, 128, 160, 128}, {96, 128, 192, 160, 192, 128},
    {0, 128, 192, 192, 256, 0},                                      // 14 x 14
    {352, 192, 320, 160, 224, 128}, {352, 192, 320, 192, 224, 128}}; // 7 x 7
enum { FIRST_14 = 3, FIRST_7 = 8, MODULES = 10 };
// Images that go through a stage together: as many as the unified buffer holds.
enum { PART_28 = 4, PART_14 = 16 };

static void max_pool(gen *g, const vt_tpu1_tensor *in, const vt_tpu1_tensor *out) {
  vt_tpu1_pooling pooling = {.kind = VT_TPU1_POOL_MAX, .kh = 3, .kw = 3, .sy = 2, .sx = 2};
  if (g->counting) g->built->pool++;
  vt_tpu1_build_pool(g->b, in, &pooling, out);
}

// The next image: 224 x 224 x 3. The host turns 2 x 2 pixels into 12 channels and packs the four
// horizontal positions of the first window side by side: a 7 x 7 window with stride 2 becomes 4 x 1
// over 48 lanes.
static vt_tpu1_tensor cnn1_image(gen *g) {
  vt_tpu1_tensor input = vt_tpu1_build_tensor(g->b, 1, 112, 112, 48, false);
  vt_tpu1_build_read(g->b, &input, 0, 0);
  return input;
}

// One image to 28 x 28. The next one is read into `input` as soon as the large tensors are gone.
static void cnn1_stem(gen *g, vt_tpu1_tensor *input, bool more, const vt_tpu1_tensor *out) {
  vt_tpu1_build_sync(g->b, VT_TPU1_UNIT_MATRIX, 1 << VT_TPU1_UNIT_READ);
  vt_tpu1_tensor a = vt_tpu1_build_tensor(g->b, 1, 112, 112, widened(64), false);
  vt_tpu1_term first = {input, {.kh = 4, .kw = 1, .sy = 1, .sx = 1, .py = 1}};
  vt_tpu1_epilogue e = epilogue(VT_TPU1_FN_RELU, false);
  vt_tpu1_build_layer(g->b, &first, 1, &e, &a);
  count_layer(g, false, 49 * 3 * widened(64), 112 * 112 * 49 * 3 * widened(64));
  vt_tpu1_build_drop(g->b, input);
  vt_tpu1_tensor b = vt_tpu1_build_tensor(g->b, 1, 56, 56, widened(64), false);
  max_pool(g, &a, &b);
  vt_tpu1_build_drop(g->b, &a);
  if (more) *input = cnn1_image(g);
  a = conv_layer(g, &b, 1, 1, 0, widened(64));
  vt_tpu1_build_drop(g->b, &b);
  b = conv_layer(g, &a, 3, 1, 1, widened(192));
  vt_tpu1_build_drop(g->b, &a);
  max_pool(g, &b, out);
  vt_tpu1_build_drop(g->b, &b);
}

static void cnn1_part(gen *g, int64_t images, const vt_tpu1_tensor *x28,
                      const vt_tpu1_tensor *x14) {
  bool counting = g->counting;
  vt_tpu1_tensor input = cnn1_image(g);
  for (int64_t j = 0; j < images; j += PART_28) {
    int64_t n = images - j < PART_28 ? images - j : PART_28;
    for (int64_t k = 0; k < n; k++) {
      vt_tpu1_tensor one = images_of(x28, k, 1);
      g->counting = counting && j + k == 0;
      cnn1_stem(g, &input, j + k + 1 < images, &one);
    }
    g->counting = counting && j == 0;
    vt_tpu1_tensor part = images_of(x28, 0, n), out = images_of(x14, j, n);
    stage(g, &part, modules, FIRST_14, &out);
  }
  g->counting = counting;
}

static void cnn1_head(gen *g, const vt_tpu1_tensor *x) {
  vt_tpu1_tensor pooled = *x;
  pooled.h = pooled.w = 1;
  for (int i = 0; i < x->block_count; i++)
    pooled.blocks[i].ub = vt_tpu1_build_rows(g->b, x->images);
  vt_tpu1_pooling mean = {
      .kind = VT_TPU1_POOL_AVG, .kh = x->h, .kw = x->w, .sy = 1, .sx = 1, .scale = 21, .shift = 10};
  vt_tpu1_build_pool(g->b, x, &mean, &pooled);
  g->built->pool++;
  vt_tpu1_tensor y = dense(g, &pooled, 4864, VT_TPU1_FN_RELU);
  y = dense(g, &y, 4864, VT_TPU1_FN_RELU);
  y = dense(g, &y, 4864, VT_TPU1_FN_RELU);
  y = dense(g, &y, 1000, VT_TPU1_FN_NONE);
  vt_tpu1_build_write(g->b, &y);
}

// Inception v2 widened by a third.
static void cnn1(gen *g, int64_t batch) {
  vt_tpu1_tensor x28 = vt_tpu1_build_tensor(g->b, PART_28, 28, 28, widened(192), false);
  // The results of the two reductions collect the parts of the batch; their blocks follow from the
  // previous module.
  vt_tpu1_tensor shape = module_tensor(g, &x28, &modules[FIRST_14 - 2], 1);
  vt_tpu1_tensor x14 = module_tensor(g, &shape, &modules[FIRST_14 - 1], PART_14);
  vt_tpu1_build_drop(g->b, &shape);
  shape = module_tensor(g, &x14, &modules[FIRST_7 - 2], 1);
  vt_tpu1_tensor x7 = module_tensor(g, &shape, &modules[FIRST_7 - 1], batch);
  vt_tpu1_build_drop(g->b, &shape);
  for (int64_t i = 0; i < batch; i += PART_14) {
    int64_t n = batch - i < PART_14 ? batch - i : PART_14;
    g->counting = i == 0;
    cnn1_part(g, n, &x28, &x14);
    vt_tpu1_tensor part = images_of(&x14, 0, n), out = images_of(&x7, i, n);
    stage(g, &part, modules + FIRST_14, FIRST_7 - FIRST_14, &out);
  }
  g->counting = true;
  vt_tpu1_build_drop(g->b, &x28);
  vt_tpu1_build_drop(g->b, &x14);
  vt_tpu1_tensor last = module_tensor(g, &x7, &modules[MODULES - 1], batch);
  stage(g, &x7, modules + FIRST_7, MODULES - FIRST_7, &last);
  cnn1_head(g, &last);
}

vt_status vt_tpu1_workload_build(vt_tpu1_workload workload, int64_t batch, const vt_tpu1_chip *chip,
                                 vt_tpu1_build *b, vt_tpu1_workload_built *out_built) {
  static void (*const makers[])(gen *, int64_t) = {mlp0, mlp1, lstm0, lstm1, cnn0, cnn1};
  _Static_assert(sizeof makers / sizeof makers[0] == VT_TPU1_WORKLOADS,
                 "one generator per row of workloads.def");
  memset(out_built, 0, sizeof *out_built);
  out_built->batch = batch ? batch : infos[workload].batch;
  vt_tpu1_build_init(b, chip);
  gen g = {.b = b, .built = out_built, .counting = true};
  makers[workload](&g, out_built->batch);
  vt_tpu1_build_finish(b);
  vt_status st = b->st;
  b->st = VT_OK;
  return vt_status_wrap(st, "%s", infos[workload].name);
}
