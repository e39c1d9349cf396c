// SPDX-License-Identifier: Apache-2.0
// codegen.c - turns a quantised network into v1 code, weight image and constants.
// In: network, chip. Out: two programs (constants once, then one batch), weights in order of use.
// use.
//
// Channels of a tensor are split into blocks of at most `dim` lanes. Slices and concatenations cost
// nothing because the block boundaries are chosen for them: every boundary of a view is a boundary
// of its source, and elementwise neighbours share their boundaries (a fixed point over the
// network). Tensors occupy unified-buffer rows from their node to their last use.
#include <stdlib.h>
#include <string.h>

#include "tpu1/quant.h"

enum { MATRIX = 1 << VT_TPU1_UNIT_MATRIX, ACTIVATE = 1 << VT_TPU1_UNIT_ACTIVATE };

typedef struct coder {
  const vt_tpu1_network *net;
  const vt_tpu1_chip *chip;
  vt_tpu1_compiled *out;
  bool **cuts;      // by node: channels + 1 flags
  int *reads;       // by node: how often its storage is read
  int *last_use;    // by node: the node that reads its storage last; INT32_MAX for outputs
  int64_t *bias_ub; // by node
  int *pooled_by;   // by node: the pooling node that a layer's activation also does; -1 = none
  vt_arena arena;
} coder;

static bool is_view(const vt_tpu1_qnode *n) {
  return n->kind == VT_TPU1_Q_SLICE || n->kind == VT_TPU1_Q_CONCAT;
}
static bool is_dropped(const vt_tpu1_qnode *n) {
  return n->kind == VT_TPU1_Q_LAYER && n->term_count == 0;
}

// ---- cuts ----

// Makes a[from_a + i] and b[from_b + i] agree for i in 0..count.
static bool join(bool *a, int64_t from_a, bool *b, int64_t from_b, int64_t count) {
  bool changed = false;
  for (int64_t i = 0; i <= count; i++) {
    bool either = a[from_a + i] || b[from_b + i];
    changed = changed || a[from_a + i] != either || b[from_b + i] != either;
    a[from_a + i] = b[from_b + i] = either;
  }
  return changed;
}

static void choose_cuts(coder *c) {
  const vt_tpu1_network *net = c->net;
  c->cuts = VT_NEW_ARRAY(&c->arena, bool *, net->nodes.size + 1);
  for (size_t i = 0; i < net->nodes.size; i++) {
    c->cuts[i] = VT_NEW_ARRAY(&c->arena, bool, net->nodes.data[i].channels + 1);
    c->cuts[i][0] = c->cuts[i][net->nodes.data[i].channels] = true;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < net->nodes.size; i++) {
      const vt_tpu1_qnode *n = &net->nodes.data[i];
      bool *own = c->cuts[i];
      if (n->kind == VT_TPU1_Q_SLICE)
        changed |= join(own, 0, c->cuts[n->a.node], n->first, n->channels);
      if (n->kind == VT_TPU1_Q_VECTOR || n->kind == VT_TPU1_Q_POOL)
        changed |= join(own, 0, c->cuts[n->a.node], 0, n->channels);
      if (n->kind == VT_TPU1_Q_VECTOR && n->b.node >= 0)
        changed |= join(own, 0, c->cuts[n->b.node], 0, n->channels);
      int64_t at = 0;
      for (int p = 0; p < n->part_count; p++) {
        int64_t channels = net->nodes.data[n->parts[p].node].channels;
        changed |= join(own, at, c->cuts[n->parts[p].node], 0, channels);
        at += channels;
      }
    }
    // Long runs are split at the width of the chip, which must also agree between neighbours: as
    // separate cuts.
    for (size_t i = 0; i < net->nodes.size; i++) {
      int64_t run = 0;
      for (int64_t k = 1; k <= net->nodes.data[i].channels; k++) {
        run++;
        if (c->cuts[i][k]) {
          run = 0;
        } else if (run == vt_tpu1_chip_dim(c->chip)) {
          c->cuts[i][k] = changed = true;
          run = 0;
        }
      }
    }
  }
}

// ---- storage ----

// The storage nodes behind a node: itself, or the sources of a view.
static void storage_mark(const coder *c, int node, int user) {
  const vt_tpu1_qnode *n = &c->net->nodes.data[node];
  if (user > c->last_use[node]) c->last_use[node] = user;
  c->reads[node]++;
  if (n->kind == VT_TPU1_Q_SLICE) storage_mark(c, n->a.node, user);
  for (int p = 0; p < n->part_count; p++) storage_mark(c, n->parts[p].node, user);
}

static void choose_lifetimes(coder *c) {
  const vt_tpu1_network *net = c->net;
  c->last_use = VT_NEW_ARRAY(&c->arena, int, net->nodes.size + 1);
  c->reads = VT_NEW_ARRAY(&c->arena, int, net->nodes.size + 1);
  for (size_t i = 0; i < net->nodes.size; i++) {
    const vt_tpu1_qnode *n = &net->nodes.data[i];
    if (is_view(n)) continue;
    for (int t = 0; t < n->term_count; t++) storage_mark(c, n->terms[t].in.node, (int)i);
    if (n->kind == VT_TPU1_Q_VECTOR || n->kind == VT_TPU1_Q_POOL)
      storage_mark(c, n->a.node, (int)i);
    if (n->kind == VT_TPU1_Q_VECTOR && n->b.node >= 0) storage_mark(c, n->b.node, (int)i);
  }
  for (size_t i = 0; i < net->outputs.size; i++)
    if (!net->outputs.data[i].on_host) storage_mark(c, net->outputs.data[i].ref.node, INT32_MAX);
}

// Pooling in the activation unit on the way from the accumulators: for layers whose only use is a
// pooling node and whose images fit the accumulators.
static void choose_pooling(coder *c) {
  const vt_tpu1_network *net = c->net;
  c->pooled_by = VT_NEW_ARRAY(&c->arena, int, net->nodes.size + 1);
  for (size_t i = 0; i < net->nodes.size; i++) c->pooled_by[i] = -1;
  for (size_t i = 0; i < net->nodes.size; i++) {
    const vt_tpu1_qnode *n = &net->nodes.data[i], *in = &net->nodes.data[n->a.node];
    if (n->kind != VT_TPU1_Q_POOL || in->kind != VT_TPU1_Q_LAYER ||
        c->last_use[n->a.node] != (int)i)
      continue;
    if (in->h * in->w > (int64_t)c->chip->acc_rows || c->reads[n->a.node] != 1) continue;
    c->pooled_by[n->a.node] = (int)i;
  }
}

static vt_status tensor_make(coder *c, int node) {
  const vt_tpu1_qnode *n = &c->net->nodes.data[node];
  vt_tpu1_build *b = &c->out->run;
  vt_tpu1_tensor t = {.images = n->images, .h = n->h, .w = n->w, .wide = n->wide};
  int64_t from = 0;
  for (int64_t k = 1; k <= n->channels; k++) {
    if (!c->cuts[node][k]) continue;
    if (t.block_count == VT_TPU1_MAX_BLOCKS)
      return vt_error(VT_UNIMPLEMENTED, "a tensor of %lld channels needs more than %d blocks",
                      (long long)n->channels, VT_TPU1_MAX_BLOCKS);
    t.blocks[t.block_count++].lanes = k - from;
    from = k;
  }
  int64_t rows = vt_tpu1_tensor_rows(&t), at = vt_tpu1_build_rows(b, rows * t.block_count);
  for (int i = 0; i < t.block_count; i++) t.blocks[i].ub = at + i * rows;
  c->out->tensors[node] = t;
  return VT_OK;
}

static void view_make(coder *c, int node) {
  const vt_tpu1_qnode *n = &c->net->nodes.data[node];
  vt_tpu1_tensor *out = &c->out->tensors[node];
  if (n->kind == VT_TPU1_Q_SLICE) {
    const vt_tpu1_tensor *in = &c->out->tensors[n->a.node];
    *out = *in;
    out->block_count = 0;
    int64_t at = 0;
    for (int i = 0; i < in->block_count; at += in->blocks[i++].lanes)
      if (at >= n->first && at < n->first + n->channels)
        out->blocks[out->block_count++] = in->blocks[i];
    return;
  }
  *out = c->out->tensors[n->parts[0].node];
  out->block_count = 0;
  for (int p = 0; p < n->part_count; p++) {
    const vt_tpu1_tensor *in = &c->out->tensors[n->parts[p].node];
    for (int i = 0; i < in->block_count && out->block_count < VT_TPU1_MAX_BLOCKS; i++)
      out->blocks[out->block_count++] = in->blocks[i];
  }
}

static void drop_dead(coder *c, int node) {
  for (int i = 0; i <= node; i++) {
    const vt_tpu1_qnode *n = &c->net->nodes.data[i];
    if (is_view(n) || is_dropped(n) || c->last_use[i] != node || c->pooled_by[i] >= 0) continue;
    vt_tpu1_build_drop(&c->out->run, &c->out->tensors[i]);
  }
}

// ---- constants ----

// Bias rows of all layers stay in the unified buffer from the first run on: `init` reads them.
static void bias_place(coder *c) {
  const vt_tpu1_network *net = c->net;
  int64_t dim = vt_tpu1_chip_dim(c->chip), rows = 0;
  c->bias_ub = VT_NEW_ARRAY(&c->arena, int64_t, net->nodes.size + 1);
  for (size_t i = 0; i < net->nodes.size; i++) {
    const vt_tpu1_qnode *n = &net->nodes.data[i];
    if (n->kind != VT_TPU1_Q_LAYER || !n->qbias || is_dropped(n)) continue;
    c->bias_ub[i] = rows;
    for (int64_t k = 1, from = 0; k <= n->channels; k++) {
      if (!c->cuts[i][k]) continue;
      for (int64_t lane = 0; lane < dim; lane++) {
        int32_t value = lane < k - from ? n->qbias[from + lane] : 0;
        for (int byte = 0; byte < 4; byte++)
          vt_array_push(&c->out->constants, (uint8_t)((uint32_t)value >> (8 * byte)));
      }
      rows += 4;
      from = k;
    }
  }
  int64_t at = vt_tpu1_build_rows(&c->out->run, rows);
  for (size_t i = 0; i < net->nodes.size; i++) c->bias_ub[i] += at;
  vt_tpu1_build *init = &c->out->init;
  init->host_in_bytes = (int64_t)c->out->constants.size;
  for (int64_t row = 0; row < rows; row += 65535) {
    int64_t count = rows - row < 65535 ? rows - row : 65535;
    vt_tpu1_build_emit(
        init,
        &(vt_tpu1_insn){.op = VT_TPU1_READ_HOST, .ub = at + row, .rows = count, .host = row * dim});
  }
  vt_tpu1_build_finish(init);
}

// ---- code ----

// First channel of block `block` of a tensor, counted over its blocks.
static int64_t block_first(const vt_tpu1_tensor *t, int block) {
  int64_t at = 0;
  for (int i = 0; i < block; i++) at += t->blocks[i].lanes;
  return at;
}

static vt_status weights_fill(coder *c, const vt_tpu1_qnode *n, const vt_tpu1_tensor *out,
                              size_t first) {
  const vt_tpu1_build *b = &c->out->run;
  int64_t dim = vt_tpu1_chip_dim(c->chip);
  uint8_t *grown = realloc(c->out->weights, b->tiles.size * (size_t)(dim * dim) + 1);
  if (!grown) return vt_error_no_memory();
  c->out->weights = grown;
  memset(grown + first * (size_t)(dim * dim), 0, (b->tiles.size - first) * (size_t)(dim * dim));
  for (size_t i = first; i < b->tiles.size; i++) {
    vt_tpu1_tile_source s = b->sources.data[i];
    const vt_tpu1_qterm *term = &n->terms[s.term];
    int64_t k0 = block_first(&c->out->tensors[term->in.node], s.block),
            n0 = block_first(out, s.column);
    for (int64_t k = 0; k < b->tiles.data[i].k; k++)
      memcpy(grown + (i * (size_t)dim + (size_t)k) * (size_t)dim,
             term->q + ((s.tap * term->in_channels) + k0 + k) * n->channels + n0,
             b->tiles.data[i].n);
  }
  return VT_OK;
}

static vt_status layer_code(coder *c, int node) {
  const vt_tpu1_qnode *n = &c->net->nodes.data[node];
  vt_tpu1_term terms[VT_TPU1_MAX_TERMS];
  vt_tpu1_build *b = &c->out->run;
  size_t first = b->tiles.size;
  int pool = c->pooled_by[node], to = pool >= 0 ? pool : node;
  for (int t = 0; t < n->term_count; t++)
    terms[t] = (vt_tpu1_term){&c->out->tensors[n->terms[t].in.node], n->terms[t].conv};
  vt_tpu1_epilogue e = {.fn = n->fn,
                        .wide_out = n->wide,
                        .scale = n->mult,
                        .shift = n->shift,
                        .bias = n->qbias != NULL,
                        .bias_ub = c->bias_ub[node]};
  if (pool >= 0) {
    VT_TRY(tensor_make(c, pool));
    e.pooling = &c->net->nodes.data[pool].pooling;
    e.h = n->h;
    e.w = n->w;
  }
  vt_tpu1_build_layer(b, terms, n->term_count, &e, &c->out->tensors[to]);
  return weights_fill(c, n, &c->out->tensors[to], first);
}

static void vector_code(coder *c, int node) {
  const vt_tpu1_qnode *n = &c->net->nodes.data[node];
  vt_tpu1_build *b = &c->out->run;
  vt_tpu1_build_set(b, VT_TPU1_REG_SCALE, n->mult);
  vt_tpu1_build_set(b, VT_TPU1_REG_SHIFT, n->shift);
  vt_tpu1_build_set(b, VT_TPU1_REG_OFFSET, n->offset);
  if (n->vop == VT_TPU1_VOP_ADD) vt_tpu1_build_set(b, VT_TPU1_REG_SCALE_B, n->mult_b);
  vt_tpu1_build_vector(b, n->vop, n->fn, &c->out->tensors[n->a.node],
                       n->b.node >= 0 ? &c->out->tensors[n->b.node] : NULL, &c->out->tensors[node]);
}

static vt_status node_code(coder *c, int node) {
  const vt_tpu1_qnode *n = &c->net->nodes.data[node];
  if (is_dropped(n)) return VT_OK;
  if (is_view(n)) {
    view_make(c, node);
    return VT_OK;
  }
  bool pooled = n->kind == VT_TPU1_Q_POOL && c->pooled_by[n->a.node] == node; // by the layer before
  if (n->kind != VT_TPU1_Q_INPUT && c->pooled_by[node] < 0 && !pooled) VT_TRY(tensor_make(c, node));
  switch (n->kind) {
  case VT_TPU1_Q_LAYER:
    VT_TRY(layer_code(c, node));
    break;
  case VT_TPU1_Q_VECTOR:
    vector_code(c, node);
    break;
  case VT_TPU1_Q_POOL:
    if (!pooled)
      vt_tpu1_build_pool(&c->out->run, &c->out->tensors[n->a.node], &n->pooling,
                         &c->out->tensors[node]);
    break;
  default:
    break;
  }
  drop_dead(c, node);
  return c->out->run.st ? vt_status_wrap(vt_status_copy(c->out->run.st), "%s",
                                         n->op ? vt_op_describe(n->op, &c->arena) : "input")
                        : VT_OK;
}

static vt_status network_code(coder *c) {
  const vt_tpu1_network *net = c->net;
  vt_tpu1_build *b = &c->out->run;
  bias_place(c);
  for (size_t i = 0; i < net->nodes.size; i++) { // all inputs first, back to back on the host link
    if (net->nodes.data[i].kind != VT_TPU1_Q_INPUT) continue;
    VT_TRY(tensor_make(c, (int)i));
    vt_tpu1_build_read(b, &c->out->tensors[i], 0, 0);
  }
  vt_tpu1_build_sync(b, VT_TPU1_UNIT_MATRIX, 1 << VT_TPU1_UNIT_READ);
  vt_tpu1_build_sync(b, VT_TPU1_UNIT_ACTIVATE, 1 << VT_TPU1_UNIT_READ);
  for (size_t i = 0; i < net->nodes.size; i++) VT_TRY(node_code(c, (int)i));
  for (size_t i = 0; i < net->outputs.size; i++)
    if (!net->outputs.data[i].on_host)
      vt_tpu1_build_write(b, &c->out->tensors[net->outputs.data[i].ref.node]);
  vt_tpu1_build_finish(b);
  return b->st ? vt_status_copy(b->st) : VT_OK;
}

vt_status vt_tpu1_network_compile(const vt_tpu1_network *network, const vt_tpu1_chip *chip,
                                  vt_tpu1_compiled *out) {
  memset(out, 0, sizeof *out);
  coder c = {.net = network, .chip = chip, .out = out};
  vt_tpu1_build_init(&out->init, chip);
  vt_tpu1_build_init(&out->run, chip);
  out->tensors = calloc(network->nodes.size + 1, sizeof *out->tensors);
  vt_status st = vt_error_no_memory();
  if (out->tensors) {
    vt_status_free(st);
    choose_cuts(&c);
    choose_lifetimes(&c);
    choose_pooling(&c);
    st = network_code(&c);
  }
  vt_arena_free(&c.arena);
  return st;
}

void vt_tpu1_compiled_free(vt_tpu1_compiled *compiled) {
  vt_tpu1_build_free(&compiled->init);
  vt_tpu1_build_free(&compiled->run);
  free(compiled->weights);
  free(compiled->tensors);
  vt_array_free(&compiled->constants);
  compiled->weights = NULL;
  compiled->tensors = NULL;
}

// Host bytes of a tensor: block by block, row by row, a row's lanes; wide rows low bytes first.
int64_t vt_tpu1_tensor_pack(const vt_tpu1_tensor *t, const int32_t *integers, uint8_t *bytes) {
  int64_t positions = t->images * t->h * t->w, channels = 0, at = 0, from = 0;
  for (int i = 0; i < t->block_count; i++) channels += t->blocks[i].lanes;
  for (int i = 0; i < t->block_count; from += t->blocks[i++].lanes)
    for (int64_t p = 0; p < positions; p++)
      for (int byte = 0; byte < (t->wide ? 2 : 1); byte++)
        for (int64_t k = 0; k < t->blocks[i].lanes; k++)
          bytes[at++] = (uint8_t)((uint32_t)integers[p * channels + from + k] >> (8 * byte));
  return at;
}

int64_t vt_tpu1_tensor_unpack(const vt_tpu1_tensor *t, const uint8_t *bytes, int32_t *integers) {
  int64_t positions = t->images * t->h * t->w, channels = 0, at = 0, from = 0;
  for (int i = 0; i < t->block_count; i++) channels += t->blocks[i].lanes;
  for (int i = 0; i < t->block_count; from += t->blocks[i++].lanes)
    for (int64_t p = 0; p < positions; p++, at += t->blocks[i].lanes * (t->wide ? 2 : 1))
      for (int64_t k = 0; k < t->blocks[i].lanes; k++)
        integers[p * channels + from + k] =
            t->wide ? (int16_t)(bytes[at + k] | bytes[at + t->blocks[i].lanes + k] << 8)
                    : (int8_t)bytes[at + k];
  return at;
}
