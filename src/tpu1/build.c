// SPDX-License-Identifier: Apache-2.0
// build.c - layers to instructions (build.h states the scheme).
// In: tensors and layer shapes. Out: code and tile list in order of use. Owns: the arrays in
// vt_tpu1_build.
#include "tpu1/build.h"

#include <string.h>

enum {
  READ = 1 << VT_TPU1_UNIT_READ,
  MATRIX = 1 << VT_TPU1_UNIT_MATRIX,
  ACTIVATE = 1 << VT_TPU1_UNIT_ACTIVATE,
  WRITE = 1 << VT_TPU1_UNIT_WRITE
};
#define MAX_TRANSFER_ROWS 65535

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

void vt_tpu1_build_init(vt_tpu1_build *b, const vt_tpu1_chip *chip) {
  memset(b, 0, sizeof *b);
  b->chip = chip;
  for (int i = 0; i < VT_TPU1_REGS; i++) b->regs[i] = vt_tpu1_reg_get(i)->reset;
  vt_tpu1_range all = {0, vt_tpu1_chip_ub_rows(chip)};
  vt_array_push(&b->free_rows, all);
}

void vt_tpu1_build_free(vt_tpu1_build *b) {
  vt_array_free(&b->code);
  vt_array_free(&b->tiles);
  vt_array_free(&b->sources);
  vt_array_free(&b->free_rows);
  vt_status_free(b->st);
  b->st = VT_OK;
}

static void fail(vt_tpu1_build *b, vt_status st) {
  if (b->st)
    vt_status_free(st);
  else
    b->st = st;
}

void vt_tpu1_build_emit(vt_tpu1_build *b, const vt_tpu1_insn *insn) {
  vt_array_push(&b->code, *insn);
}

void vt_tpu1_build_set(vt_tpu1_build *b, vt_tpu1_reg reg, int64_t value) {
  if (b->regs[reg] == value) return;
  b->regs[reg] = value;
  vt_tpu1_build_emit(b, &(vt_tpu1_insn){.op = VT_TPU1_SET, .reg = (int32_t)reg, .value = value});
}

void vt_tpu1_build_sync(vt_tpu1_build *b, vt_tpu1_unit unit, int units_on) {
  vt_tpu1_build_emit(b, &(vt_tpu1_insn){.op = VT_TPU1_SYNC, .unit = 1 << unit, .on = units_on});
}

int64_t vt_tpu1_build_rows(vt_tpu1_build *b, int64_t rows) {
  for (size_t i = 0; i < b->free_rows.size; i++) {
    vt_tpu1_range *r = &b->free_rows.data[i];
    if (r->count < rows) continue;
    int64_t first = r->first;
    r->first += rows;
    r->count -= rows;
    return first;
  }
  fail(b, vt_error(VT_RESOURCE_EXHAUSTED, "unified buffer: no %lld adjacent rows of %lld left",
                   (long long)rows, (long long)vt_tpu1_chip_ub_rows(b->chip)));
  return 0;
}

void vt_tpu1_build_release(vt_tpu1_build *b, int64_t first, int64_t rows) {
  if (b->st || rows == 0) return;
  vt_tpu1_range freed = {first, rows};
  vt_array_push(&b->free_rows, freed);
  size_t i = b->free_rows.size - 1;
  for (; i > 0 && b->free_rows.data[i - 1].first > first; i--)
    b->free_rows.data[i] = b->free_rows.data[i - 1];
  b->free_rows.data[i] = freed;
  size_t kept = 0;
  for (size_t j = 1; j < b->free_rows.size; j++) { // join neighbours
    vt_tpu1_range *last = &b->free_rows.data[kept], *r = &b->free_rows.data[j];
    if (last->first + last->count == r->first)
      last->count += r->count;
    else
      b->free_rows.data[++kept] = *r;
  }
  b->free_rows.size = kept + 1;
}

int64_t vt_tpu1_tensor_rows(const vt_tpu1_tensor *t) {
  return t->images * t->h * t->w * (t->wide ? 2 : 1);
}

vt_tpu1_tensor vt_tpu1_build_tensor(vt_tpu1_build *b, int64_t images, int64_t h, int64_t w,
                                    int64_t channels, bool wide) {
  vt_tpu1_tensor t = {.images = images, .h = h, .w = w, .wide = wide};
  int64_t dim = vt_tpu1_chip_dim(b->chip), blocks = ceil_div(channels, dim);
  if (blocks > VT_TPU1_MAX_BLOCKS) {
    fail(b, vt_error(VT_UNIMPLEMENTED, "%lld channels: more than %d blocks", (long long)channels,
                     VT_TPU1_MAX_BLOCKS));
    return t;
  }
  int64_t rows = vt_tpu1_tensor_rows(&t), at = vt_tpu1_build_rows(b, rows * blocks);
  t.block_count = (int)blocks;
  for (int i = 0; i < t.block_count; i++) {
    t.blocks[i].ub = at + i * rows;
    t.blocks[i].lanes = min64(dim, channels - i * dim);
  }
  return t;
}

void vt_tpu1_build_drop(vt_tpu1_build *b, const vt_tpu1_tensor *t) {
  for (int i = 0; i < t->block_count; i++)
    vt_tpu1_build_release(b, t->blocks[i].ub, vt_tpu1_tensor_rows(t));
}

// The number of adjacent blocks from `first` on.
static int adjacent_blocks(const vt_tpu1_tensor *t, int first) {
  int n = 1;
  while (first + n < t->block_count &&
         t->blocks[first + n].ub == t->blocks[first].ub + n * vt_tpu1_tensor_rows(t))
    n++;
  return n;
}

static void transfer(vt_tpu1_build *b, vt_tpu1_op op, const vt_tpu1_tensor *t,
                     int64_t bytes_per_row) {
  int64_t *host = op == VT_TPU1_READ_HOST ? &b->host_in_bytes : &b->host_out_bytes;
  for (int i = 0; i < t->block_count;) {
    int n = adjacent_blocks(t, i);
    int64_t bytes = bytes_per_row ? bytes_per_row : vt_tpu1_chip_dim(b->chip);
    while (n > 1 && t->blocks[i + n - 1].lanes != t->blocks[i].lanes)
      n--; // a narrower last block goes alone
    if (!bytes_per_row) bytes = t->blocks[i].lanes;
    vt_tpu1_build_set(b, VT_TPU1_REG_HOST_ROW, bytes);
    for (int64_t row = 0, rows = n * vt_tpu1_tensor_rows(t); row < rows; row += MAX_TRANSFER_ROWS) {
      int64_t count = min64(rows - row, MAX_TRANSFER_ROWS);
      vt_tpu1_build_emit(
          b, &(vt_tpu1_insn){.op = op, .ub = t->blocks[i].ub + row, .rows = count, .host = *host});
      *host += count * bytes;
    }
    i += n;
  }
}

void vt_tpu1_build_read(vt_tpu1_build *b, const vt_tpu1_tensor *t, int64_t bytes_per_row,
                        int users) {
  if (b->code.size) vt_tpu1_build_sync(b, VT_TPU1_UNIT_READ, MATRIX | ACTIVATE | WRITE);
  transfer(b, VT_TPU1_READ_HOST, t, bytes_per_row);
  for (int u = 0; u < VT_TPU1_UNITS; u++)
    if (users >> u & 1) vt_tpu1_build_sync(b, (vt_tpu1_unit)u, READ);
}

void vt_tpu1_build_write(vt_tpu1_build *b, const vt_tpu1_tensor *t) {
  vt_tpu1_build_sync(b, VT_TPU1_UNIT_WRITE, ACTIVATE | READ);
  transfer(b, VT_TPU1_WRITE_HOST, t, 0);
}

void vt_tpu1_build_finish(vt_tpu1_build *b) {
  vt_tpu1_build_emit(b, &(vt_tpu1_insn){.op = VT_TPU1_INTERRUPT});
  vt_tpu1_build_emit(b, &(vt_tpu1_insn){.op = VT_TPU1_HALT});
}

// A part of a layer that goes through the accumulators at once: some column blocks of some output
// positions.
typedef struct group {
  int64_t image, images, y, oh, ow; // oh < the layer's only when an image is split
  int column, columns;
  int64_t acc;
} group;

static void set_epilogue(vt_tpu1_build *b, const vt_tpu1_epilogue *e) {
  vt_tpu1_build_set(b, VT_TPU1_REG_SCALE, e->scale);
  vt_tpu1_build_set(b, VT_TPU1_REG_SHIFT, e->shift);
  vt_tpu1_build_set(b, VT_TPU1_REG_OFFSET, 0);
}

static vt_tpu1_insn pass_insn(vt_tpu1_build *b, const vt_tpu1_term *term, const group *g,
                              int64_t tap) {
  const vt_tpu1_tensor *in = term->in;
  const vt_tpu1_conv *conv = &term->conv;
  bool dense = in->h * in->w == 1 && conv->kh * conv->kw == 1;
  vt_tpu1_insn insn = {.op = dense ? VT_TPU1_MATMUL : VT_TPU1_CONVOLVE,
                       .switch_tile = 1,
                       .wide_in = in->wide,
                       .unsigned_in = in->is_unsigned};
  if (dense) {
    insn.rows = g->images;
    return insn;
  }
  int64_t dy =
      tap / conv->kw * (conv->dilation_y ? conv->dilation_y : 1) - conv->py + g->y * conv->sy;
  int64_t dx = tap % conv->kw * (conv->dilation_x ? conv->dilation_x : 1) - conv->px;
  insn.images = (int32_t)g->images;
  insn.dy = (int32_t)dy;
  insn.dx = (int32_t)dx;
  if (dy > 2047 || dy < -2048 || dx > 127 || dx < -128 || g->images > 4095)
    fail(b, vt_error(VT_UNIMPLEMENTED,
                     "convolution over %lld images of %lld x %lld: offsets beyond the instruction",
                     (long long)g->images, (long long)in->h, (long long)in->w));
  return insn;
}

static void set_window(vt_tpu1_build *b, const vt_tpu1_term *term, const group *g) {
  vt_tpu1_build_set(b, VT_TPU1_REG_CONV_IN_H, term->in->h);
  vt_tpu1_build_set(b, VT_TPU1_REG_CONV_IN_W, term->in->w);
  vt_tpu1_build_set(b, VT_TPU1_REG_CONV_OUT_H, g->oh);
  vt_tpu1_build_set(b, VT_TPU1_REG_CONV_OUT_W, g->ow);
  vt_tpu1_build_set(b, VT_TPU1_REG_CONV_SY, term->conv.sy);
  vt_tpu1_build_set(b, VT_TPU1_REG_CONV_SX, term->conv.sx);
}

// The passes of one term into one column block. Adjacent input blocks become repeats of one
// instruction.
static void term_passes(vt_tpu1_build *b, const vt_tpu1_term *term, int term_index, const group *g,
                        int column, int64_t acc, bool first, bool new_tiles,
                        const vt_tpu1_tensor *out) {
  const vt_tpu1_tensor *in = term->in;
  int64_t image_rows = in->h * in->w * (in->wide ? 2 : 1);
  bool whole = g->images == in->images;
  set_window(b, term, g);
  for (int tap = 0; tap < term->conv.kh * term->conv.kw; tap++)
    for (int i = 0; i < in->block_count;) {
      int n = whole ? adjacent_blocks(in, i) : 1;
      if (n > 256) n = 256;
      vt_tpu1_insn insn = pass_insn(b, term, g, tap);
      insn.accumulate = !first;
      insn.repeat = n - 1;
      insn.ub = in->blocks[i].ub + g->image * image_rows;
      insn.acc = acc;
      vt_tpu1_build_emit(b, &insn);
      for (int k = 0; k < n && new_tiles; k++) {
        vt_tpu1_tile tile = {(uint16_t)in->blocks[i + k].lanes,
                             (uint16_t)out->blocks[column].lanes};
        vt_tpu1_tile_source source = {term_index, tap, i + k, column};
        vt_array_push(&b->tiles, tile);
        vt_array_push(&b->sources, source);
      }
      first = false;
      i += n;
    }
}

static void group_activate(vt_tpu1_build *b, const vt_tpu1_epilogue *e, const group *g,
                           const vt_tpu1_tensor *out) {
  int64_t rows = g->images * g->oh * g->ow, width = e->wide_out ? 2 : 1;
  int64_t out_rows = e->pooling ? g->images * out->h * out->w : rows;
  int64_t offset = ((g->image * out->h + g->y) * out->w) * width;
  bool whole = out_rows * width == vt_tpu1_tensor_rows(out);
  for (int i = 0; i < g->columns;) {
    // Column blocks whose rows are also adjacent in the unified buffer take one instruction.
    int n = 1;
    if (whole)
      while (i + n < g->columns && out->blocks[g->column + i + n].ub ==
                                       out->blocks[g->column + i].ub + n * out_rows * width)
        n++;
    vt_tpu1_insn insn = {.op = VT_TPU1_ACTIVATE,
                         .fn = (int32_t)e->fn,
                         .wide_out = e->wide_out,
                         .unsigned_out = e->unsigned_out,
                         .bias = e->bias,
                         .pool = e->pooling ? (int32_t)e->pooling->kind : VT_TPU1_POOL_NONE,
                         .ub = out->blocks[g->column + i].ub + offset,
                         .acc = g->acc + i * rows,
                         .rows = n * rows};
    if (e->bias) {
      vt_tpu1_build_set(b, VT_TPU1_REG_BIAS, e->bias_ub + 4 * (g->column + i));
      vt_tpu1_build_set(b, VT_TPU1_REG_BLOCK, rows);
    }
    vt_tpu1_build_emit(b, &insn);
    i += n;
  }
}

// Pooling of images of h x w to those of `out`.
static void set_pooling(vt_tpu1_build *b, const vt_tpu1_pooling *p, int64_t h, int64_t w,
                        const vt_tpu1_tensor *out) {
  const struct {
    vt_tpu1_reg reg;
    int64_t value;
  } sets[] = {{VT_TPU1_REG_POOL_IN_H, h},       {VT_TPU1_REG_POOL_IN_W, w},
              {VT_TPU1_REG_POOL_OUT_H, out->h}, {VT_TPU1_REG_POOL_OUT_W, out->w},
              {VT_TPU1_REG_POOL_KH, p->kh},     {VT_TPU1_REG_POOL_KW, p->kw},
              {VT_TPU1_REG_POOL_SY, p->sy},     {VT_TPU1_REG_POOL_SX, p->sx},
              {VT_TPU1_REG_POOL_PY, p->py},     {VT_TPU1_REG_POOL_PX, p->px}};
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
    vt_tpu1_build_set(b, sets[i].reg, sets[i].value);
  if (p->kind != VT_TPU1_POOL_AVG) return;
  vt_tpu1_build_set(b, VT_TPU1_REG_POOL_SCALE, p->scale);
  vt_tpu1_build_set(b, VT_TPU1_REG_POOL_SHIFT, p->shift);
}

typedef struct layer {
  const vt_tpu1_term *terms;
  int term_count;
  const vt_tpu1_epilogue *epilogue;
  const vt_tpu1_tensor *out;
  bool halves; // groups alternate between the halves of the accumulators
} layer;

// `tiles`: the range the group reads; empty: it creates its own. `last`: of its layer.
static vt_tpu1_range group_emit(vt_tpu1_build *b, const layer *l, const group *g,
                                vt_tpu1_range tiles, bool last) {
  int64_t rows = g->images * g->oh * g->ow;
  bool new_tiles = tiles.count == 0;
  size_t weights_at = b->code.size;
  if (new_tiles) tiles.first = (int64_t)b->tiles.size;
  vt_tpu1_build_emit(b, &(vt_tpu1_insn){.op = VT_TPU1_NOP}); // becomes read_weights
  for (int c = 0; c < g->columns; c++)
    for (int t = 0; t < l->term_count; t++)
      term_passes(b, &l->terms[t], t, g, g->column + c, g->acc + c * rows, t == 0, new_tiles,
                  l->out);
  if (new_tiles) tiles.count = (int64_t)b->tiles.size - tiles.first;
  b->code.data[weights_at] =
      (vt_tpu1_insn){.op = VT_TPU1_READ_WEIGHTS, .tile = tiles.first, .count = tiles.count};
  if (tiles.count > 65535)
    fail(b, vt_error(VT_UNIMPLEMENTED, "a layer of %lld tiles", (long long)tiles.count));
  // The matrix unit may run the next group while this one is activated, but not into the half of
  // the previous one.
  if (!last && l->halves) vt_tpu1_build_sync(b, VT_TPU1_UNIT_MATRIX, ACTIVATE);
  vt_tpu1_build_sync(b, VT_TPU1_UNIT_ACTIVATE, MATRIX);
  group_activate(b, l->epilogue, g, l->out);
  if (!last && !l->halves) vt_tpu1_build_sync(b, VT_TPU1_UNIT_MATRIX, ACTIVATE);
  return tiles;
}

// The largest group: how many images (or rows of one) and columns go through the accumulators
// together.
static vt_status choose_group(const vt_tpu1_build *b, layer *l, group *g) {
  const vt_tpu1_tensor *out = l->out;
  int64_t acc_rows = (int64_t)b->chip->acc_rows;
  int64_t h = l->epilogue->pooling ? l->epilogue->h : out->h;
  int64_t w = l->epilogue->pooling ? l->epilogue->w : out->w, image = h * w;
  *g = (group){.images = out->images, .oh = h, .ow = w, .columns = out->block_count};
  if (out->images * image > acc_rows) {
    g->images = acc_rows / 2 / image > 1 ? acc_rows / 2 / image : 1;
    if (image > acc_rows) g->oh = acc_rows / 2 / w;
    if (g->oh == 0)
      return vt_error(VT_UNIMPLEMENTED, "one row of %lld positions exceeds the accumulators",
                      (long long)w);
  }
  int64_t rows = g->images * g->oh * w;
  l->halves = rows <= acc_rows / 2;
  int64_t room = l->halves ? acc_rows / 2 : acc_rows;
  if (rows * g->columns > room) g->columns = (int)(room / rows);
  return VT_OK;
}

void vt_tpu1_build_layer(vt_tpu1_build *b, const vt_tpu1_term *terms, int term_count,
                         const vt_tpu1_epilogue *e, const vt_tpu1_tensor *out) {
  layer l = {terms, term_count, e, out, false};
  group most;
  vt_tpu1_range tiles[VT_TPU1_MAX_BLOCKS] = {
      {0, 0}}; // per first column: read again for the next images
  if (b->st) return;
  vt_status st = choose_group(b, &l, &most);
  if (st) {
    fail(b, st);
    return;
  }
  int64_t h = e->pooling ? e->h : out->h;
  set_epilogue(b, e);
  if (e->pooling) set_pooling(b, e->pooling, e->h, e->w, out);
  vt_tpu1_build_sync(b, VT_TPU1_UNIT_MATRIX,
                     ACTIVATE); // the layer's inputs are another layer's results
  for (int64_t image = 0; image < out->images; image += most.images)
    for (int64_t y = 0; y < h; y += most.oh)
      for (int column = 0; column < out->block_count; column += most.columns) {
        group g = {.image = image, .y = y, .ow = most.ow, .column = column};
        g.images = min64(most.images, out->images - image);
        g.oh = min64(most.oh, h - y);
        g.columns = (int)min64(most.columns, out->block_count - column);
        g.acc = l.halves ? b->half * ((int64_t)b->chip->acc_rows / 2) : 0;
        bool last = image + most.images >= out->images && y + most.oh >= h &&
                    column + most.columns >= out->block_count;
        tiles[column] = group_emit(b, &l, &g, tiles[column], last);
        b->half ^= l.halves;
      }
}

void vt_tpu1_build_vector(vt_tpu1_build *b, vt_tpu1_vop op, vt_tpu1_fn fn, const vt_tpu1_tensor *a,
                          const vt_tpu1_tensor *second, const vt_tpu1_tensor *out) {
  int64_t rows = a->images * a->h * a->w;
  // Matrix passes that read what this overwrites are done only if the unit waits: make it wait.
  vt_tpu1_build_sync(b, VT_TPU1_UNIT_ACTIVATE, MATRIX | READ | WRITE);
  bool adjacent = adjacent_blocks(a, 0) == a->block_count &&
                  adjacent_blocks(out, 0) == a->block_count &&
                  (!second || adjacent_blocks(second, 0) == a->block_count);
  int step = adjacent ? a->block_count : 1;
  vt_tpu1_build_set(b, VT_TPU1_REG_VECTOR_ROWS, rows * step);
  for (int i = 0; i < a->block_count; i += step)
    vt_tpu1_build_emit(b, &(vt_tpu1_insn){.op = VT_TPU1_VECTOR,
                                          .vop = (int32_t)op,
                                          .fn = (int32_t)fn,
                                          .wide_in = a->wide,
                                          .unsigned_in = a->is_unsigned,
                                          .wide_b = second && second->wide,
                                          .wide_out = out->wide,
                                          .unsigned_out = out->is_unsigned,
                                          .ub = out->blocks[i].ub,
                                          .a = a->blocks[i].ub,
                                          .b = second ? second->blocks[i].ub : 0});
}

void vt_tpu1_build_pool(vt_tpu1_build *b, const vt_tpu1_tensor *in, const vt_tpu1_pooling *p,
                        const vt_tpu1_tensor *out) {
  vt_tpu1_build_sync(b, VT_TPU1_UNIT_ACTIVATE, MATRIX | READ | WRITE);
  set_pooling(b, p, in->h, in->w, out);
  vt_tpu1_build_set(b, VT_TPU1_REG_SCALE, 1);
  vt_tpu1_build_set(b, VT_TPU1_REG_SHIFT, 0);
  vt_tpu1_build_set(b, VT_TPU1_REG_OFFSET, 0);
  vt_tpu1_build_set(b, VT_TPU1_REG_VECTOR_ROWS, in->images * in->h * in->w);
  for (int i = 0; i < in->block_count; i++)
    vt_tpu1_build_emit(b, &(vt_tpu1_insn){.op = VT_TPU1_VECTOR,
                                          .vop = VT_TPU1_VOP_COPY,
                                          .pool = (int32_t)p->kind,
                                          .wide_in = in->wide,
                                          .wide_out = out->wide,
                                          .unsigned_in = in->is_unsigned,
                                          .unsigned_out = out->is_unsigned,
                                          .ub = out->blocks[i].ub,
                                          .a = in->blocks[i].ub});
}

vt_tpu1_program vt_tpu1_build_program(const vt_tpu1_build *b) {
  return (vt_tpu1_program){.code = b->code.data,
                           .code_size = b->code.size,
                           .tiles = b->tiles.data,
                           .tile_count = (int64_t)b->tiles.size,
                           .host_in_bytes = b->host_in_bytes,
                           .host_out_bytes = b->host_out_bytes};
}
