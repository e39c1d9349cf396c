// SPDX-License-Identifier: Apache-2.0
// lower_view.c - pooling, and ops that only rename, slice or join tensors.
// In: an op. Out: a pooling node, a view, or another name for a node; errors name op and line.

#include <float.h>
#include <string.h>

#include "tpu1/lower.h"

// ---- pooling ----

// The op of a reduction's body when it only applies it to its two parameters; VT_OP_... or -1.
static int body_code(const vt_op *op) {
  const vt_func *body = op->regions[0];
  if (body->return_count != 1 || !body->first || body->first != body->last) return -1;
  return body->returns[0] == &body->first->results[0] ? (int)body->first->code : -1;
}

static vt_status pool_add(vt_tpu1_lowerer *l, const vt_op *op, const vt_tpu1_pooling *pooling,
                          int64_t h, int64_t w, const vt_tpu1_binding *out) {
  const vt_tpu1_binding b = *vt_tpu1_bind_of(l, op->operands[0]);
  const vt_tpu1_qnode in = *vt_tpu1_node_of(l, &b);
  int code = body_code(op);
  double init;
  bool has_init = vt_tpu1_lower_splat(l, op->operands[1], &init);
  if (b.flat) return vt_tpu1_lower_refuse(l, op, "its input is flattened");
  int node = vt_tpu1_lower_node(l, VT_TPU1_Q_POOL, op, &op->results[0]);
  vt_tpu1_qnode *n = &l->net->nodes.data[node];
  n->pooling = *pooling;
  if (code == VT_OP_MAXIMUM && has_init && init <= -FLT_MAX && b.ref.factor > 0)
    n->pooling.kind = VT_TPU1_POOL_MAX;
  else if (code == VT_OP_ADD && has_init && init == 0)
    n->pooling.kind = VT_TPU1_POOL_AVG;
  else
    return vt_tpu1_lower_refuse(l, op, "a reduction other than the maximum or the sum");
  n->a = (vt_tpu1_qref){b.ref.node, 1};
  n->images = in.images;
  n->channels = in.channels;
  n->h = h;
  n->w = w;
  n->range_factor = b.ref.factor;
  vt_tpu1_lower_bind(l, &op->results[0], node, out);
  vt_tpu1_bind_of(l, &op->results[0])->ref.factor = b.ref.factor;
  vt_tpu1_bind_of(l, &op->results[0])->open = false;
  return VT_OK;
}

vt_status vt_tpu1_lower_reduce_window(vt_tpu1_lowerer *l, const vt_op *op) {
  const vt_tpu1_binding b = *vt_tpu1_bind_of(l, op->operands[0]);
  const vt_type *type = &op->operands[0]->type, *result = &op->results[0].type;
  const int64_t *window = vt_attr_ints(op, VT_ATTR_WINDOW_DIMENSIONS, NULL);
  const vt_attr *strides = vt_op_attr(op, VT_ATTR_WINDOW_STRIDES),
                *padding = vt_op_attr(op, VT_ATTR_PADDING);
  if (op->result_count != 1 || b.kind != VT_TPU1_BIND_CHIP)
    return vt_tpu1_lower_refuse(l, op, "not a pooling of one chip value");
  if (!vt_tpu1_lower_all_ones(op, VT_ATTR_BASE_DILATIONS) ||
      !vt_tpu1_lower_all_ones(op, VT_ATTR_WINDOW_DILATIONS))
    return vt_tpu1_lower_refuse(l, op, "dilated pooling");
  vt_tpu1_pooling p = {.kh = 1, .kw = 1, .sy = 1, .sx = 1};
  int64_t h = 1, w = 1;
  for (int d = 0; d < type->rank; d++) {
    int64_t stride = strides ? strides->ints[d] : 1,
            pad = padding ? vt_attr_ints(op, VT_ATTR_PADDING, NULL)[2 * d] : 0;
    if (b.role[d] == VT_TPU1_ROLE_Y) {
      p.kh = window[d];
      p.sy = stride;
      p.py = pad;
      h = result->dims[d];
    } else if (b.role[d] == VT_TPU1_ROLE_X) {
      p.kw = window[d];
      p.sx = stride;
      p.px = pad;
      w = result->dims[d];
    } else if (window[d] != 1 || stride != 1 || pad != 0) {
      return vt_tpu1_lower_refuse(l, op, "pooling over channels or images");
    }
  }
  return pool_add(l, op, &p, h, w, &b);
}

vt_status vt_tpu1_lower_reduce(vt_tpu1_lowerer *l, const vt_op *op) {
  const vt_tpu1_binding b = *vt_tpu1_bind_of(l, op->operands[0]);
  const vt_type *type = &op->operands[0]->type;
  uint32_t count;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
  if (op->result_count != 1 || b.kind != VT_TPU1_BIND_CHIP)
    return vt_tpu1_lower_refuse(l, op, "not a pooling of one chip value");
  const vt_tpu1_qnode in = *vt_tpu1_node_of(l, &b);
  vt_tpu1_pooling p = {.kh = 1, .kw = 1, .sy = 1, .sx = 1};
  vt_tpu1_binding out = b;
  int at = 0;
  for (int d = 0; d < type->rank; d++) {
    bool reduced = false;
    for (uint32_t i = 0; i < count; i++) reduced = reduced || dims[i] == d;
    if (!reduced)
      out.role[at++] = b.role[d];
    else if (b.role[d] == VT_TPU1_ROLE_Y)
      p.kh = in.h;
    else if (b.role[d] == VT_TPU1_ROLE_X)
      p.kw = in.w;
    else if (type->dims[d] != 1)
      return vt_tpu1_lower_refuse(l, op, "a reduction over channels or images");
  }
  if (p.kh > 255 || p.kw > 255) return vt_tpu1_lower_refuse(l, op, "a pooling window beyond 255");
  return pool_add(l, op, &p, in.h / p.kh, in.w / p.kw, &out);
}

// ---- views ----

vt_status vt_tpu1_lower_reshape(vt_tpu1_lowerer *l, const vt_op *op) {
  const vt_type *from = &op->operands[0]->type, *to = &op->results[0].type;
  vt_tpu1_binding b = *vt_tpu1_bind_of(l, op->operands[0]), out = b;
  int i = 0;
  bool matched = true;
  memset(out.role, 0, sizeof out.role);
  for (int d = 0; d < to->rank && matched; d++) {
    if (to->dims[d] == 1) continue;
    while (i < from->rank && from->dims[i] == 1) i++;
    matched = i < from->rank && from->dims[i] == to->dims[d];
    if (matched) out.role[d] = b.role[i++];
  }
  if (!matched) { // [b, y, x, c] to [b, y * x * c]
    const vt_tpu1_qnode *n = vt_tpu1_node_of(l, &b);
    int last = to->rank - 1, k = 0;
    bool images_first = to->rank >= 1 && n->images * n->h * n->w * n->channels ==
                                             (n->images == 1 ? 1 : to->dims[0]) * to->dims[last];
    for (int d = 0; d < from->rank; d++) {
      if (b.role[d] == VT_TPU1_ROLE_B || from->dims[d] == 1) {
        images_first = images_first && (k == 0 || from->dims[d] == 1);
        continue;
      }
      if (k < 3) out.flat_order[k] = b.role[d];
      k++;
    }
    if (b.flat || !images_first || k > 3)
      return vt_tpu1_lower_refuse(l, op, "a reshape other than flattening images");
    // Roles of size 1 are missing: they go first, where they do not matter.
    for (int r = VT_TPU1_ROLE_Y; r <= VT_TPU1_ROLE_C && k < 3; r++) {
      bool seen = false;
      for (int j = 0; j < k; j++) seen = seen || out.flat_order[j] == r;
      if (seen) continue;
      memmove(out.flat_order + 1, out.flat_order, (size_t)k);
      out.flat_order[0] = (int8_t)r;
      k++;
    }
    memset(out.role, 0, sizeof out.role);
    out.role[last] = VT_TPU1_ROLE_C;
    if (last > 0) out.role[0] = VT_TPU1_ROLE_B;
    out.flat = true;
  }
  out.open = out.open && l->uses[op->results[0].id] == 1 && !out.flat;
  *vt_tpu1_bind_of(l, &op->results[0]) = out;
  return VT_OK;
}

vt_status vt_tpu1_lower_transpose(vt_tpu1_lowerer *l, const vt_op *op) {
  vt_tpu1_binding b = *vt_tpu1_bind_of(l, op->operands[0]), out = b;
  const int64_t *permutation = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  for (int d = 0; d < op->results[0].type.rank; d++) out.role[d] = b.role[permutation[d]];
  out.open = out.open && l->uses[op->results[0].id] == 1;
  *vt_tpu1_bind_of(l, &op->results[0]) = out;
  return VT_OK;
}

vt_status vt_tpu1_lower_slice(vt_tpu1_lowerer *l, const vt_op *op) {
  const vt_tpu1_binding b = *vt_tpu1_bind_of(l, op->operands[0]);
  const vt_type *from = &op->operands[0]->type;
  const int64_t *start = vt_attr_ints(op, VT_ATTR_START_INDICES, NULL),
                *limit = vt_attr_ints(op, VT_ATTR_LIMIT_INDICES, NULL);
  const int64_t *strides = vt_attr_ints(op, VT_ATTR_STRIDES, NULL);
  int64_t first = 0, channels = vt_tpu1_node_of(l, &b)->channels;
  for (int d = 0; d < from->rank; d++) {
    if (start[d] == 0 && limit[d] == from->dims[d] && strides[d] == 1) continue;
    if (b.role[d] != VT_TPU1_ROLE_C || strides[d] != 1 || b.flat)
      return vt_tpu1_lower_refuse(l, op, "a slice of something other than channels");
    first = start[d];
    channels = limit[d] - start[d];
  }
  int node = vt_tpu1_lower_node(l, VT_TPU1_Q_SLICE, op, &op->results[0]);
  vt_tpu1_qnode *n = &l->net->nodes.data[node], *in = &l->net->nodes.data[b.ref.node];
  n->a = (vt_tpu1_qref){b.ref.node, 1};
  n->first = first;
  n->images = in->images;
  n->h = in->h;
  n->w = in->w;
  n->channels = channels;
  vt_tpu1_lower_bind(l, &op->results[0], node, &b);
  vt_tpu1_bind_of(l, &op->results[0])->ref.factor = b.ref.factor;
  vt_tpu1_bind_of(l, &op->results[0])->open = false;
  return VT_OK;
}

vt_status vt_tpu1_lower_concatenate(vt_tpu1_lowerer *l, const vt_op *op) {
  int64_t dimension = vt_attr_i64(op, VT_ATTR_DIMENSION);
  const vt_tpu1_binding *like = NULL;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (vt_tpu1_bind_of(l, op->operands[i])->kind == VT_TPU1_BIND_CHIP)
      like = vt_tpu1_bind_of(l, op->operands[i]);
  const vt_tpu1_binding roles = *like;
  if (roles.role[dimension] != VT_TPU1_ROLE_C || roles.flat)
    return vt_tpu1_lower_refuse(l, op, "a concatenation of something other than channels");
  vt_tpu1_qref *parts = VT_NEW_ARRAY(l->arena, vt_tpu1_qref, op->operand_count);
  int64_t channels = 0;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    VT_TRY(vt_tpu1_lower_need_chip(l, op, op->operands[i], roles.role));
    if (vt_tpu1_bind_of(l, op->operands[i])->ref.factor != 1)
      VT_TRY(vt_tpu1_lower_materialise(l, op, op->operands[i]));
    parts[i] = vt_tpu1_bind_of(l, op->operands[i])->ref;
    channels += l->net->nodes.data[parts[i].node].channels;
  }
  int node = vt_tpu1_lower_node(l, VT_TPU1_Q_CONCAT, op, &op->results[0]);
  vt_tpu1_qnode *n = &l->net->nodes.data[node], *in = &l->net->nodes.data[parts[0].node];
  n->images = in->images;
  n->h = in->h;
  n->w = in->w;
  n->channels = channels;
  n->parts = parts;
  n->part_count = (int)op->operand_count;
  vt_tpu1_lower_bind(l, &op->results[0], node, &roles);
  vt_tpu1_bind_of(l, &op->results[0])->open = false;
  return VT_OK;
}

vt_status vt_tpu1_lower_convert(vt_tpu1_lowerer *l, const vt_op *op) {
  if (!vt_dtype_is_float(op->results[0].type.dtype))
    return vt_tpu1_lower_refuse(l, op, "a conversion to an integer");
  vt_tpu1_lower_alias(l, &op->results[0], op->operands[0], 1);
  return VT_OK;
}

vt_status vt_tpu1_lower_broadcast(vt_tpu1_lowerer *l, const vt_op *op) {
  if (!vt_type_same_dims(op->operands[0]->type, op->results[0].type))
    return vt_tpu1_lower_refuse(l, op, "it repeats a computed value");
  vt_tpu1_lower_alias(l, &op->results[0], op->operands[0], 1);
  return VT_OK;
}
