// SPDX-License-Identifier: Apache-2.0
// lower_eltwise.c - elementwise ops: fused into the preceding layer if that has one use, otherwise
// vector operations. In: an op. Out: a changed layer, a factor, or a vector node; errors name op
// and line.

#include <math.h>
#include <string.h>

#include "tpu1/lower.h"

// ---- elementwise ----

static bool open_layer(vt_tpu1_lowerer *l, const vt_value *v) {
  vt_tpu1_binding *b = vt_tpu1_bind_of(l, v);
  return b->kind == VT_TPU1_BIND_CHIP && b->open &&
         vt_tpu1_node_of(l, b)->kind == VT_TPU1_Q_LAYER &&
         vt_tpu1_node_of(l, b)->fn == VT_TPU1_FN_NONE && vt_tpu1_node_of(l, b)->range == 0;
}

// The layer's result is now `value`, whose range sets the scale.
static void layer_becomes(vt_tpu1_lowerer *l, const vt_value *from, const vt_value *value) {
  vt_tpu1_qnode *n = vt_tpu1_node_of(l, vt_tpu1_bind_of(l, from));
  n->value_id = value->id;
  vt_tpu1_lower_alias(l, value, from, 1);
}

// Moves the factor of an open layer's vt_tpu1_binding into its weights and bias.
static void absorb_factor(vt_tpu1_lowerer *l, const vt_value *v, const double *channel_factor) {
  vt_tpu1_binding *b = vt_tpu1_bind_of(l, v);
  vt_tpu1_qnode *n = vt_tpu1_node_of(l, b);
  for (int64_t c = 0; c < n->channels; c++) {
    double f = b->ref.factor * (channel_factor ? channel_factor[c] : 1);
    for (int t = 0; t < n->term_count; t++) {
      int64_t rows = n->terms[t].conv.kh * n->terms[t].conv.kw * n->terms[t].in_channels;
      for (int64_t k = 0; k < rows; k++) n->terms[t].weights[k * n->channels + c] *= f;
    }
    if (n->bias) n->bias[c] *= f;
  }
  b->ref.factor = 1;
}

static void layer_add_bias(vt_tpu1_lowerer *l, const vt_value *v, const double *bias, double sign) {
  absorb_factor(l, v, NULL);
  vt_tpu1_qnode *n = vt_tpu1_node_of(l, vt_tpu1_bind_of(l, v));
  if (!n->bias) n->bias = VT_NEW_ARRAY(l->arena, double, n->channels);
  for (int64_t c = 0; c < n->channels; c++) n->bias[c] += sign * bias[c];
}

static vt_status vector_to(vt_tpu1_lowerer *l, const vt_op *op, const vt_value *result,
                           vt_tpu1_vop vop, const vt_value *a, const vt_value *b, double sign_b,
                           double constant) {
  const vt_tpu1_binding *x = vt_tpu1_bind_of(l, a);
  const vt_tpu1_qnode like = *vt_tpu1_node_of(l, x);
  int node = vt_tpu1_lower_node(l, VT_TPU1_Q_VECTOR, op, result);
  vt_tpu1_qnode *n = &l->net->nodes.data[node];
  n->images = like.images;
  n->h = like.h;
  n->w = like.w;
  n->channels = like.channels;
  n->vop = vop;
  n->a = x->ref;
  n->constant = constant;
  if (b) {
    n->b = vt_tpu1_bind_of(l, b)->ref;
    n->b.factor *= sign_b;
  } else {
    n->b.node = -1;
  }
  vt_tpu1_lower_bind(l, result, node, x);
  return VT_OK;
}

static vt_status vector_add(vt_tpu1_lowerer *l, const vt_op *op, vt_tpu1_vop vop, const vt_value *a,
                            const vt_value *b, double sign_b, double constant) {
  return vector_to(l, op, &op->results[0], vop, a, b, sign_b, constant);
}

// Makes a value that is a node times a factor a separate node.
vt_status vt_tpu1_lower_materialise(vt_tpu1_lowerer *l, const vt_op *op, const vt_value *v) {
  return vector_to(l, op, v, VT_TPU1_VOP_COPY, v, NULL, 1, 0);
}

// Both operands on the chip, in one layout.
static vt_status need_pair(vt_tpu1_lowerer *l, const vt_op *op) {
  const vt_value *a = op->operands[0], *b = op->operands[1];
  vt_tpu1_binding *x = vt_tpu1_bind_of(l, a), *y = vt_tpu1_bind_of(l, b);
  if (x->kind != VT_TPU1_BIND_CHIP) {
    VT_TRY(vt_tpu1_lower_need_chip(l, op, a, y->role));
  } else {
    VT_TRY(vt_tpu1_lower_need_chip(l, op, b, x->role));
  }
  if (x->flat != y->flat || (x->flat && memcmp(x->flat_order, y->flat_order, sizeof x->flat_order)))
    return vt_tpu1_lower_refuse(l, op, "its operands are flattened differently");
  return VT_OK;
}

// Two open layers of one shape with one use each: the second's products go into the first's
// accumulators.
static bool merge_layers(vt_tpu1_lowerer *l, const vt_op *op, double sign_b) {
  const vt_value *a = op->operands[0], *b = op->operands[1];
  if (a == b || !open_layer(l, a) || !open_layer(l, b)) return false;
  absorb_factor(l, a, NULL);
  vt_tpu1_bind_of(l, b)->ref.factor *= sign_b;
  absorb_factor(l, b, NULL);
  vt_tpu1_qnode *x = vt_tpu1_node_of(l, vt_tpu1_bind_of(l, a)),
                *y = vt_tpu1_node_of(l, vt_tpu1_bind_of(l, b));
  if (x == y || x->term_count + y->term_count > VT_TPU1_MAX_TERMS) return false;
  // The sum runs at the position of the later of the two, when the inputs of both are available.
  vt_tpu1_qnode *later = x > y ? x : y, *earlier = x > y ? y : x;
  for (int t = 0; t < earlier->term_count; t++)
    later->terms[later->term_count++] = earlier->terms[t];
  if (earlier->bias && later->bias)
    for (int64_t c = 0; c < later->channels; c++) later->bias[c] += earlier->bias[c];
  else if (earlier->bias)
    later->bias = earlier->bias;
  earlier->term_count = 0; // an empty layer: dropped
  layer_becomes(l, later == x ? a : b, &op->results[0]);
  return true;
}

vt_status vt_tpu1_lower_add(vt_tpu1_lowerer *l, const vt_op *op, double sign_b) {
  const vt_value *a = op->operands[0], *b = op->operands[1];
  bool a_const = vt_tpu1_bind_of(l, a)->kind == VT_TPU1_BIND_CONST,
       b_const = vt_tpu1_bind_of(l, b)->kind == VT_TPU1_BIND_CONST;
  if (a_const || b_const) {
    const vt_value *x = a_const ? b : a, *k = a_const ? a : b;
    if (a_const && sign_b < 0)
      vt_tpu1_bind_of(l, x)->ref.factor *= -1; // k - x; x has one use or gets it back below
    double sign_k = b_const ? sign_b : 1, splat;
    double *bias = vt_tpu1_lower_per_channel(l, k, vt_tpu1_bind_of(l, x),
                                             vt_tpu1_node_of(l, vt_tpu1_bind_of(l, x))->channels);
    vt_status st = VT_OK;
    if (bias && open_layer(l, x)) {
      layer_add_bias(l, x, bias, sign_k);
      layer_becomes(l, x, &op->results[0]);
      return VT_OK;
    }
    if (vt_tpu1_lower_splat(l, k, &splat))
      st = splat == 0 ? (vt_tpu1_lower_alias(l, &op->results[0], x, 1), VT_OK)
                      : vector_add(l, op, VT_TPU1_VOP_COPY, x, NULL, 1, sign_k * splat);
    else
      st = vt_tpu1_lower_refuse(l, op,
                                "a constant tensor is added to something that is not a layer");
    if (a_const && sign_b < 0) vt_tpu1_bind_of(l, x)->ref.factor *= -1;
    return st;
  }
  if (vt_tpu1_bind_of(l, a)->kind == VT_TPU1_BIND_CHIP &&
      vt_tpu1_bind_of(l, b)->kind == VT_TPU1_BIND_CHIP && merge_layers(l, op, sign_b))
    return VT_OK;
  VT_TRY(need_pair(l, op));
  return vector_add(l, op, VT_TPU1_VOP_ADD, a, b, sign_b, 0);
}

vt_status vt_tpu1_lower_multiply(vt_tpu1_lowerer *l, const vt_op *op, bool divide) {
  const vt_value *a = op->operands[0], *b = op->operands[1];
  bool a_const = vt_tpu1_bind_of(l, a)->kind == VT_TPU1_BIND_CONST,
       b_const = vt_tpu1_bind_of(l, b)->kind == VT_TPU1_BIND_CONST;
  if (divide && !b_const)
    return vt_tpu1_lower_refuse(l, op, "division by something that is not a constant");
  if (!a_const && !b_const) {
    VT_TRY(need_pair(l, op));
    return vector_add(l, op, VT_TPU1_VOP_MUL, a, b, 1, 0);
  }
  const vt_value *x = a_const ? b : a, *k = a_const ? a : b;
  double splat;
  if (vt_tpu1_lower_splat(l, k, &splat) && splat != 0) {
    vt_tpu1_lower_alias(l, &op->results[0], x, divide ? 1 / splat : splat);
    return VT_OK;
  }
  int64_t channels = vt_tpu1_node_of(l, vt_tpu1_bind_of(l, x))->channels;
  double *factors = vt_tpu1_lower_per_channel(l, k, vt_tpu1_bind_of(l, x), channels);
  if (!factors || !open_layer(l, x))
    return vt_tpu1_lower_refuse(l, op,
                                "a constant tensor multiplies something that is not a layer");
  for (int64_t c = 0; c < channels; c++) factors[c] = divide ? 1 / factors[c] : factors[c];
  absorb_factor(l, x, factors);
  layer_becomes(l, x, &op->results[0]);
  return VT_OK;
}

// A nonlinearity: fused into the open layer or vector operation before it, or a separate vector
// operation. `range`: upper limit of a clamp, 0 = none.
vt_status vt_tpu1_lower_function(vt_tpu1_lowerer *l, const vt_op *op, const vt_value *x,
                                 vt_tpu1_fn fn, double range) {
  vt_tpu1_binding *b = vt_tpu1_bind_of(l, x);
  vt_tpu1_qnode *n = vt_tpu1_node_of(l, b);
  bool fusible =
      b->open && n->fn == VT_TPU1_FN_NONE && n->range == 0 &&
      (n->kind == VT_TPU1_Q_LAYER || (n->kind == VT_TPU1_Q_VECTOR && b->ref.factor == 1));
  if (fusible && n->kind == VT_TPU1_Q_LAYER) absorb_factor(l, x, NULL);
  if (!fusible) {
    VT_TRY(vector_add(l, op, VT_TPU1_VOP_COPY, x, NULL, 1, 0));
    n = vt_tpu1_node_of(l, vt_tpu1_bind_of(l, &op->results[0]));
  } else {
    layer_becomes(l, x, &op->results[0]);
  }
  n->fn = fn;
  n->range = range;
  vt_tpu1_bind_of(l, &op->results[0])->open = false;
  return VT_OK;
}

vt_status vt_tpu1_lower_maximum(vt_tpu1_lowerer *l, const vt_op *op) {
  double splat;
  for (int i = 0; i < 2; i++)
    if (vt_tpu1_lower_splat(l, op->operands[i], &splat) && splat == 0)
      return vt_tpu1_lower_function(l, op, op->operands[1 - i], VT_TPU1_FN_RELU, 0);
  return vt_tpu1_lower_refuse(l, op, "maximum with something other than zero");
}

vt_status vt_tpu1_lower_clamp(vt_tpu1_lowerer *l, const vt_op *op) {
  double low, high;
  if (!vt_tpu1_lower_splat(l, op->operands[0], &low) ||
      !vt_tpu1_lower_splat(l, op->operands[2], &high) || low != 0 || !(high > 0))
    return vt_tpu1_lower_refuse(l, op, "clamp between bounds other than 0 and a constant");
  return vt_tpu1_lower_function(l, op, op->operands[1], VT_TPU1_FN_RELU, high);
}

// exp(x), 1 + exp(x) and 1 / (1 + exp(x)): the first two only remember, the third is a sigmoid of
// -x.
vt_status vt_tpu1_lower_exponential(vt_tpu1_lowerer *l, const vt_op *op) {
  vt_tpu1_lower_alias(l, &op->results[0], op->operands[0], 1);
  vt_tpu1_binding *b = vt_tpu1_bind_of(l, &op->results[0]);
  b->open = false;
  b->step = VT_TPU1_STEP_EXP;
  b->inner = op->operands[0];
  b->step_op = op;
  return VT_OK;
}

static bool is_one(vt_tpu1_lowerer *l, const vt_value *v) {
  double splat;
  return vt_tpu1_lower_splat(l, v, &splat) && splat == 1;
}

// Whether the op continues the chain; the result is bound then.
vt_status vt_tpu1_lower_logistic_step(vt_tpu1_lowerer *l, const vt_op *op, bool *out_done) {
  *out_done = false;
  for (int i = 0; i < 2 && op->operand_count == 2; i++) {
    const vt_tpu1_binding b = *vt_tpu1_bind_of(l, op->operands[i]);
    if (b.step == VT_TPU1_STEP_NONE || !is_one(l, op->operands[1 - i])) continue;
    if (op->code == VT_OP_ADD && b.step == VT_TPU1_STEP_EXP) {
      vt_tpu1_binding *to = vt_tpu1_bind_of(l, &op->results[0]);
      *to = b;
      to->step = VT_TPU1_STEP_ONE_PLUS_EXP;
      *out_done = true;
    } else if (op->code == VT_OP_DIVIDE && b.step == VT_TPU1_STEP_ONE_PLUS_EXP && i == 1) {
      vt_tpu1_binding *inner = vt_tpu1_bind_of(l, b.inner);
      bool fused = inner->open;
      inner->ref.factor *= -1;
      VT_TRY(vt_tpu1_lower_function(l, op, b.inner, VT_TPU1_FN_SIGMOID, 0));
      if (!fused) inner->ref.factor *= -1;
      *out_done = true;
    }
  }
  return VT_OK;
}

// minimum(relu(x), c) is a ReLU that saturates at c.
vt_status vt_tpu1_lower_minimum(vt_tpu1_lowerer *l, const vt_op *op) {
  for (int i = 0; i < 2; i++) {
    const vt_value *x = op->operands[i];
    double limit;
    if (vt_tpu1_bind_of(l, x)->kind != VT_TPU1_BIND_CHIP ||
        !vt_tpu1_lower_splat(l, op->operands[1 - i], &limit))
      continue;
    vt_tpu1_qnode *n = vt_tpu1_node_of(l, vt_tpu1_bind_of(l, x));
    if (n->fn != VT_TPU1_FN_RELU || n->range > 0 || l->uses[x->id] != 1 ||
        !(limit / vt_tpu1_bind_of(l, x)->ref.factor > 0))
      continue;
    n->range = limit / vt_tpu1_bind_of(l, x)->ref.factor;
    vt_tpu1_lower_alias(l, &op->results[0], x, 1);
    return VT_OK;
  }
  return vt_tpu1_lower_refuse(l, op,
                              "minimum of something other than a ReLU and a positive constant");
}
