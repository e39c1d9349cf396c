// SPDX-License-Identifier: Apache-2.0
// lower_contract.c - dots and convolutions to layers of the integer network.
// In: an op. Out: a layer node with its weights in the order [window][input channel][channel];
// errors name op and line.

#include <string.h>

#include "tpu1/lower.h"

// ---- contractions ----

static int layer_add(vt_tpu1_lowerer *l, const vt_op *op, const vt_value *result,
                     const vt_tpu1_qterm *term, int64_t images, int64_t h, int64_t w,
                     int64_t channels) {
  int node = vt_tpu1_lower_node(l, VT_TPU1_Q_LAYER, op, result);
  vt_tpu1_qnode *n = &l->net->nodes.data[node];
  n->images = images;
  n->h = h;
  n->w = w;
  n->channels = channels;
  n->terms[0] = *term;
  n->term_count = 1;
  return node;
}

// Weights [k][n] of a dot in the order of the chip: window positions of a flattened image, then
// channels.
static double *dot_weights(vt_tpu1_lowerer *l, const vt_tensor *w, int64_t k_stride,
                           int64_t n_stride, int64_t channels_out, const vt_tpu1_binding *x,
                           const vt_tpu1_qnode *in) {
  int64_t sizes[5] = {1, 1, in->h, in->w, in->channels}, step[5] = {0};
  if (x->flat) {
    int64_t s = 1;
    for (int i = 2; i >= 0; i--) {
      step[x->flat_order[i]] = s;
      s *= sizes[x->flat_order[i]];
    }
  } else {
    sizes[VT_TPU1_ROLE_Y] = sizes[VT_TPU1_ROLE_X] = 1;
    step[VT_TPU1_ROLE_C] = 1;
  }
  int64_t h = sizes[VT_TPU1_ROLE_Y], width = sizes[VT_TPU1_ROLE_X], c = sizes[VT_TPU1_ROLE_C],
          at = 0;
  double *out = VT_NEW_ARRAY(l->arena, double, h *width *c *channels_out);
  for (int64_t y = 0; y < h; y++)
    for (int64_t i = 0; i < width; i++)
      for (int64_t j = 0; j < c; j++)
        for (int64_t n = 0; n < channels_out; n++) {
          int64_t k =
              y * step[VT_TPU1_ROLE_Y] + i * step[VT_TPU1_ROLE_X] + j * step[VT_TPU1_ROLE_C];
          out[at++] = vt_tpu1_lower_element(w, k * k_stride + n * n_stride);
        }
  return out;
}

vt_status vt_tpu1_lower_dot(vt_tpu1_lowerer *l, const vt_op *op) {
  uint32_t lhs_count, rhs_count, batch_count;
  const int64_t *lhs_dims = vt_attr_ints(op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &lhs_count);
  const int64_t *rhs_dims = vt_attr_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, &rhs_count);
  vt_attr_ints(op, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batch_count);
  const vt_tensor *w = vt_tpu1_lower_constant(l, op->operands[1]);
  bool swapped = !w;
  if (swapped) w = vt_tpu1_lower_constant(l, op->operands[0]);
  const vt_value *x = op->operands[swapped ? 1 : 0];
  if (!w) return vt_tpu1_lower_refuse(l, op, "neither operand is a constant weight matrix");
  if (lhs_count != 1 || batch_count || w->type.rank != 2)
    return vt_tpu1_lower_refuse(l, op, "not a plain matrix product");
  int64_t x_dim = swapped ? rhs_dims[0] : lhs_dims[0], w_dim = swapped ? lhs_dims[0] : rhs_dims[0];
  int64_t channels = w->type.dims[1 - w_dim];
  int8_t role[VT_MAX_RANK] = {0};
  if (vt_tpu1_bind_of(l, x)->kind == VT_TPU1_BIND_CHIP) {
    memcpy(role, vt_tpu1_bind_of(l, x)->role, sizeof role);
  } else {
    bool batch_given = false;
    for (int d = 0; d < x->type.rank; d++) {
      role[d] = d == x_dim                            ? VT_TPU1_ROLE_C
                : x->type.dims[d] == 1 || batch_given ? VT_TPU1_ROLE_ONE
                                                      : VT_TPU1_ROLE_B;
      if (role[d] == VT_TPU1_ROLE_ONE && x->type.dims[d] != 1)
        return vt_tpu1_lower_refuse(l, op, "more than one batch dimension");
      batch_given = batch_given || role[d] == VT_TPU1_ROLE_B;
    }
  }
  VT_TRY(vt_tpu1_lower_need_chip(l, op, x, role));
  const vt_tpu1_binding b = *vt_tpu1_bind_of(l, x);
  const vt_tpu1_qnode in = *vt_tpu1_node_of(l, &b);
  if (b.role[x_dim] != VT_TPU1_ROLE_C && in.channels != 1)
    return vt_tpu1_lower_refuse(l, op, "it does not sum over channels");
  vt_tpu1_qterm term = {
      .in = b.ref, .in_channels = in.channels, .conv = {.kh = 1, .kw = 1, .sy = 1, .sx = 1}};
  if (b.flat) {
    term.conv.kh = in.h;
    term.conv.kw = in.w;
  }
  term.weights = dot_weights(l, w, w_dim == 0 ? channels : 1, w_dim == 0 ? 1 : w->type.dims[1],
                             channels, &b, &in);
  int node = layer_add(l, op, &op->results[0], &term, in.images, b.flat ? 1 : in.h,
                       b.flat ? 1 : in.w, channels);
  vt_tpu1_binding out = {0};
  int d = 0;
  if (swapped) out.role[d++] = VT_TPU1_ROLE_C;
  for (int i = 0; i < x->type.rank; i++)
    if (i != x_dim) out.role[d++] = b.role[i];
  if (!swapped) out.role[d++] = VT_TPU1_ROLE_C;
  vt_tpu1_lower_bind(l, &op->results[0], node, &out);
  return VT_OK;
}

typedef struct conv_dims {
  int64_t b, f, spatial[2];
} conv_dims;

static conv_dims dims_of(const vt_op *op, vt_attr_key b, vt_attr_key f, vt_attr_key s,
                         uint32_t *count) {
  const int64_t *spatial = vt_attr_ints(op, s, count);
  conv_dims d = {vt_attr_i64(op, b), vt_attr_i64(op, f), {-1, -1}};
  for (uint32_t i = 0; i < *count && i < 2; i++)
    d.spatial[2 - *count + i < 2 ? 2 - *count + i : 1] = spatial[i];
  return d;
}

static void dims_roles(const conv_dims *d, int8_t *role) {
  memset(role, 0, sizeof(int8_t) * VT_MAX_RANK);
  role[d->b] = VT_TPU1_ROLE_B;
  role[d->f] = VT_TPU1_ROLE_C;
  if (d->spatial[0] >= 0) role[d->spatial[0]] = VT_TPU1_ROLE_Y;
  if (d->spatial[1] >= 0) role[d->spatial[1]] = VT_TPU1_ROLE_X;
}

bool vt_tpu1_lower_all_ones(const vt_op *op, vt_attr_key key) {
  uint32_t count = 0;
  const vt_attr *attr = vt_op_attr(op, key);
  const int64_t *values = attr ? vt_attr_ints(op, key, &count) : NULL;
  for (uint32_t i = 0; i < count; i++)
    if (values[i] != 1) return false;
  return true;
}

static bool any_nonzero(const vt_op *op, vt_attr_key key) {
  uint32_t count = 0;
  const vt_attr *attr = vt_op_attr(op, key);
  const int64_t *values = attr ? vt_attr_ints(op, key, &count) : NULL;
  for (uint32_t i = 0; i < count; i++)
    if (values[i]) return true;
  return false;
}

// Stride, dilation and leading padding of spatial axis i (0 = y, 1 = x) of an op with `count`
// spatial axes.
static int64_t axis_value(const vt_op *op, vt_attr_key key, uint32_t count, int axis, int64_t step,
                          int64_t otherwise) {
  int i = axis - (2 - (int)count);
  const vt_attr *attr = vt_op_attr(op, key);
  if (i < 0 || !attr) return otherwise;
  return vt_attr_ints(op, key, NULL)[i * step];
}

vt_status vt_tpu1_lower_convolution(vt_tpu1_lowerer *l, const vt_op *op) {
  uint32_t count, ignored;
  conv_dims in_dims = dims_of(op, VT_ATTR_INPUT_BATCH_DIMENSION, VT_ATTR_INPUT_FEATURE_DIMENSION,
                              VT_ATTR_INPUT_SPATIAL_DIMENSIONS, &count);
  conv_dims k_dims =
      dims_of(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION,
              VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, &ignored);
  conv_dims out_dims = dims_of(op, VT_ATTR_OUTPUT_BATCH_DIMENSION, VT_ATTR_OUTPUT_FEATURE_DIMENSION,
                               VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, &ignored);
  const vt_tensor *k = vt_tpu1_lower_constant(l, op->operands[1]);
  const vt_value *x = op->operands[0];
  const vt_type *result = &op->results[0].type;
  if (!k) return vt_tpu1_lower_refuse(l, op, "the kernel is not a constant");
  if (count > 2) return vt_tpu1_lower_refuse(l, op, "more than two spatial dimensions");
  if (vt_attr_i64_or(op, VT_ATTR_FEATURE_GROUP_COUNT, 1) != 1 ||
      vt_attr_i64_or(op, VT_ATTR_BATCH_GROUP_COUNT, 1) != 1)
    return vt_tpu1_lower_refuse(l, op, "grouped convolution");
  if (!vt_tpu1_lower_all_ones(op, VT_ATTR_LHS_DILATION))
    return vt_tpu1_lower_refuse(l, op, "input dilation");
  if (any_nonzero(op, VT_ATTR_WINDOW_REVERSAL))
    return vt_tpu1_lower_refuse(l, op, "reversed kernel");
  int8_t role[VT_MAX_RANK];
  dims_roles(&in_dims, role);
  VT_TRY(vt_tpu1_lower_need_chip(l, op, x, role));
  const vt_tpu1_binding b = *vt_tpu1_bind_of(l, x);
  const vt_tpu1_qnode in = *vt_tpu1_node_of(l, &b);
  if (b.flat) return vt_tpu1_lower_refuse(l, op, "its input is flattened");
  int64_t strides[VT_MAX_RANK], size[2] = {1, 1}, step[2] = {0, 0}, oc = k->type.dims[k_dims.f],
                                ic = k->type.dims[k_dims.b];
  vt_type_strides(k->type, strides);
  for (int a = 0; a < 2; a++)
    if (k_dims.spatial[a] >= 0) {
      size[a] = k->type.dims[k_dims.spatial[a]];
      step[a] = strides[k_dims.spatial[a]];
    }
  vt_tpu1_qterm term = {.in = b.ref, .in_channels = ic};
  term.conv = (vt_tpu1_conv){.kh = size[0],
                             .kw = size[1],
                             .sy = axis_value(op, VT_ATTR_WINDOW_STRIDES, count, 0, 1, 1),
                             .sx = axis_value(op, VT_ATTR_WINDOW_STRIDES, count, 1, 1, 1),
                             .py = axis_value(op, VT_ATTR_PADDING, count, 0, 2, 0),
                             .px = axis_value(op, VT_ATTR_PADDING, count, 1, 2, 0),
                             .dilation_y = axis_value(op, VT_ATTR_RHS_DILATION, count, 0, 1, 1),
                             .dilation_x = axis_value(op, VT_ATTR_RHS_DILATION, count, 1, 1, 1)};
  term.weights = VT_NEW_ARRAY(l->arena, double, size[0] * size[1] * ic * oc);
  int64_t at = 0;
  for (int64_t y = 0; y < size[0]; y++)
    for (int64_t i = 0; i < size[1]; i++)
      for (int64_t c = 0; c < ic; c++)
        for (int64_t n = 0; n < oc; n++)
          term.weights[at++] = vt_tpu1_lower_element(
              k, y * step[0] + i * step[1] + c * strides[k_dims.b] + n * strides[k_dims.f]);
  int64_t oh = out_dims.spatial[0] >= 0 ? result->dims[out_dims.spatial[0]] : 1;
  int64_t ow = out_dims.spatial[1] >= 0 ? result->dims[out_dims.spatial[1]] : 1;
  int node = layer_add(l, op, &op->results[0], &term, in.images, oh, ow, oc);
  vt_tpu1_binding out = {0};
  dims_roles(&out_dims, out.role);
  vt_tpu1_lower_bind(l, &op->results[0], node, &out);
  return VT_OK;
}
