// SPDX-License-Identifier: Apache-2.0
// qeval.c - the int8 reference evaluator: a quantised network in plain loops. The chip must
// reproduce it bit by bit. In: integers of the input nodes. Out: integers of every node. Shares
// with the simulator only the arithmetic of the activation unit (activate.h), not tiling, layout,
// buffers or order.
#include <stdlib.h>
#include <string.h>

#include "tpu1/activate.h"
#include "tpu1/quant.h"

static vt_tpu1_scaling scaling_of(const vt_tpu1_qnode *n) {
  return (vt_tpu1_scaling){.fn = n->fn,
                           .wide_out = n->wide,
                           .scale = n->mult,
                           .scale_b = n->mult_b,
                           .offset = n->offset,
                           .shift = n->shift};
}

// Adds one term for the output position (b, oy, ox) to sums[channels].
static void term_add(const vt_tpu1_network *net, const vt_tpu1_qnode *n, const vt_tpu1_qterm *term,
                     const int32_t *in, int64_t b, int64_t oy, int64_t ox, int32_t *sums) {
  const vt_tpu1_qnode *from = &net->nodes.data[term->in.node];
  const vt_tpu1_conv *c = &term->conv;
  int64_t dy = c->dilation_y ? c->dilation_y : 1, dx = c->dilation_x ? c->dilation_x : 1;
  for (int64_t ky = 0; ky < c->kh; ky++)
    for (int64_t kx = 0; kx < c->kw; kx++) {
      int64_t y = oy * c->sy - c->py + ky * dy, x = ox * c->sx - c->px + kx * dx;
      if (y < 0 || x < 0 || y >= from->h || x >= from->w) continue;
      const int32_t *a = in + ((b * from->h + y) * from->w + x) * term->in_channels;
      const int8_t *w = term->q + (ky * c->kw + kx) * term->in_channels * n->channels;
      for (int64_t k = 0; k < term->in_channels; k++) {
        if (a[k] == 0) continue;
        for (int64_t o = 0; o < n->channels; o++) sums[o] += a[k] * w[k * n->channels + o];
      }
    }
}

static vt_status layer_evaluate(const vt_tpu1_network *net, const vt_tpu1_qnode *n,
                                int32_t *const *values, int32_t *out) {
  vt_tpu1_scaling s = scaling_of(n);
  int32_t *sums = malloc(sizeof *sums * (size_t)(n->channels + 1));
  if (!sums) return vt_error_no_memory();
  for (int64_t b = 0; b < n->images; b++)
    for (int64_t y = 0; y < n->h; y++)
      for (int64_t x = 0; x < n->w; x++) {
        for (int64_t o = 0; o < n->channels; o++) sums[o] = n->qbias ? n->qbias[o] : 0;
        for (int t = 0; t < n->term_count; t++)
          term_add(net, n, &n->terms[t], values[n->terms[t].in.node], b, y, x, sums);
        vt_tpu1_activate_lanes(sums, n->channels, &s,
                               out + ((b * n->h + y) * n->w + x) * n->channels);
      }
  free(sums);
  return VT_OK;
}

static void vector_evaluate(const vt_tpu1_qnode *n, const int32_t *a, const int32_t *b,
                            int32_t *out) {
  vt_tpu1_scaling s = scaling_of(n);
  int64_t count = vt_tpu1_qnode_size(n);
  if (n->vop == VT_TPU1_VOP_ADD) {
    vt_tpu1_add_lanes(a, b, count, &s, out);
    return;
  }
  for (int64_t i = 0; i < count; i++) out[i] = n->vop == VT_TPU1_VOP_MUL ? a[i] * b[i] : a[i];
  vt_tpu1_activate_lanes(out, count, &s, out);
}

static void pool_evaluate(const vt_tpu1_network *net, const vt_tpu1_qnode *n, const int32_t *in,
                          int32_t *out) {
  const vt_tpu1_qnode *from = &net->nodes.data[n->a.node];
  const vt_tpu1_pooling *p = &n->pooling;
  for (int64_t i = 0, count = vt_tpu1_qnode_size(n); i < count; i++) {
    int64_t c = i % n->channels, ox = i / n->channels % n->w, oy = i / n->channels / n->w % n->h,
            b = i / n->channels / n->w / n->h;
    int64_t best = INT32_MIN, sum = 0;
    for (int64_t k = 0; k < p->kh * p->kw; k++) {
      int64_t y = oy * p->sy - p->py + k / p->kw, x = ox * p->sx - p->px + k % p->kw;
      if (y < 0 || x < 0 || y >= from->h || x >= from->w) continue;
      int32_t v = in[((b * from->h + y) * from->w + x) * n->channels + c];
      best = v > best ? v : best;
      sum += v;
    }
    int64_t v = p->kind == VT_TPU1_POOL_MAX ? best : vt_tpu1_scaled(sum, p->scale, p->shift);
    int64_t low = n->wide ? INT16_MIN : INT8_MIN, high = n->wide ? INT16_MAX : INT8_MAX;
    out[i] = (int32_t)(v < low ? low : v > high ? high : v);
  }
}

static void view_evaluate(const vt_tpu1_network *net, const vt_tpu1_qnode *n,
                          int32_t *const *values, int32_t *out) {
  int64_t positions = n->images * n->h * n->w;
  if (n->kind == VT_TPU1_Q_SLICE) {
    int64_t wide = net->nodes.data[n->a.node].channels;
    for (int64_t i = 0; i < positions; i++)
      memcpy(out + i * n->channels, values[n->a.node] + i * wide + n->first,
             sizeof *out * (size_t)n->channels);
    return;
  }
  int64_t at = 0;
  for (int p = 0; p < n->part_count; p++) {
    int64_t channels = net->nodes.data[n->parts[p].node].channels;
    for (int64_t i = 0; i < positions; i++)
      memcpy(out + i * n->channels + at, values[n->parts[p].node] + i * channels,
             sizeof *out * (size_t)channels);
    at += channels;
  }
}

vt_status vt_tpu1_network_evaluate(const vt_tpu1_network *net, int32_t **values) {
  for (size_t i = 0; i < net->nodes.size; i++) {
    const vt_tpu1_qnode *n = &net->nodes.data[i];
    if (n->kind == VT_TPU1_Q_INPUT) continue;
    values[i] = malloc(sizeof **values * (size_t)(vt_tpu1_qnode_size(n) + 1));
    if (!values[i]) return vt_error_no_memory();
    switch (n->kind) {
    case VT_TPU1_Q_LAYER:
      VT_TRY(layer_evaluate(net, n, values, values[i]));
      break;
    case VT_TPU1_Q_VECTOR:
      vector_evaluate(n, values[n->a.node], n->b.node >= 0 ? values[n->b.node] : NULL, values[i]);
      break;
    case VT_TPU1_Q_POOL:
      pool_evaluate(net, n, values[n->a.node], values[i]);
      break;
    case VT_TPU1_Q_SLICE:
    case VT_TPU1_Q_CONCAT:
      view_evaluate(net, n, values, values[i]);
      break;
    case VT_TPU1_Q_INPUT:
      break;
    }
  }
  return VT_OK;
}
