// SPDX-License-Identifier: Apache-2.0
// lower.c - StableHLO to the integer network: which op becomes which layer.
// In: a verified module with calls inlined. Out: nodes in execution order, or UNIMPLEMENTED with op
// and source line.
//
// Each value of main is bound to one of: a constant (evaluated here), a host value (computed from
// the inputs before the chip starts: conversions, normalisation), or a node of the chip times a
// factor. Multiplying by a constant only changes the factor. A layer or vector operation stays open
// while its value has one use, so that bias, per-channel scale, a second product (accumulated in
// place) and the nonlinearity fuse into it.

#include <math.h>
#include <string.h>

#include "tpu1/lower.h"

vt_status vt_tpu1_lower_refuse(vt_tpu1_lowerer *l, const vt_op *op, const char *why) {
  return vt_error(VT_UNIMPLEMENTED, "%s: TPU v1 cannot run it: %s", vt_op_describe(op, l->arena),
                  why);
}

// ---- constants ----

double vt_tpu1_lower_element(const vt_tensor *t, int64_t i) {
  switch (t->type.dtype) {
  case VT_F32:
    return ((const float *)t->data)[i];
  case VT_F64:
    return ((const double *)t->data)[i];
  case VT_BF16: {
    uint32_t bits = (uint32_t)((const uint16_t *)t->data)[i] << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
  }
  default:
    return NAN;
  }
}

const vt_tensor *vt_tpu1_lower_constant(vt_tpu1_lowerer *l, const vt_value *v) {
  return vt_tpu1_bind_of(l, v)->kind == VT_TPU1_BIND_CONST ? &l->net->constants[v->id] : NULL;
}

bool vt_tpu1_lower_splat(vt_tpu1_lowerer *l, const vt_value *v, double *out) {
  const vt_tensor *t = vt_tpu1_lower_constant(l, v);
  int64_t n = t ? vt_type_elements(t->type) : 0;
  if (n == 0) return false;
  *out = vt_tpu1_lower_element(t, 0);
  for (int64_t i = 1; i < n; i++)
    if (vt_tpu1_lower_element(t, i) != *out) return false;
  return !isnan(*out);
}

// The values of a constant along the channels of `like`, when it varies along nothing else;
// otherwise NULL.
double *vt_tpu1_lower_per_channel(vt_tpu1_lowerer *l, const vt_value *v,
                                  const vt_tpu1_binding *like, int64_t channels) {
  const vt_tensor *t = vt_tpu1_lower_constant(l, v);
  if (!t || like->flat) return NULL;
  int64_t strides[VT_MAX_RANK], n = vt_type_elements(t->type), stride = 0;
  vt_type_strides(t->type, strides);
  for (int d = 0; d < t->type.rank; d++)
    if (like->role[d] == VT_TPU1_ROLE_C && t->type.dims[d] == channels) stride = strides[d];
  if (stride == 0 && channels != 1) return NULL;
  double *values = VT_NEW_ARRAY(l->arena, double, channels);
  for (int64_t c = 0; c < channels; c++) values[c] = vt_tpu1_lower_element(t, c * stride);
  for (int64_t i = 0; i < n; i++) {
    double x = vt_tpu1_lower_element(t, i);
    if (isnan(x) || x != values[stride ? i / stride % channels : 0]) return NULL;
  }
  return values;
}

static vt_status evaluate_constant(vt_tpu1_lowerer *l, const vt_op *op) {
  vt_tensor operands[8], results[8];
  if (op->operand_count > 8 || op->result_count > 8)
    return vt_tpu1_lower_refuse(l, op, "a constant of many parts");
  for (uint32_t i = 0; i < op->operand_count; i++)
    operands[i] = l->net->constants[op->operands[i]->id];
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_tensor *t = &l->net->constants[op->results[i].id];
    *t = (vt_tensor){
        op->results[i].type,
        vt_arena_push_aligned(l->arena, (size_t)vt_type_bytes(op->results[i].type) + 64, 64)};
    results[i] = *t;
    vt_tpu1_bind_of(l, &op->results[i])->kind = VT_TPU1_BIND_CONST;
  }
  vt_eval_env env = {.exact_dots = true};
  return vt_eval_op(op, &env, operands, results);
}

// ---- nodes ----

int vt_tpu1_lower_node(vt_tpu1_lowerer *l, vt_tpu1_qkind kind, const vt_op *op,
                       const vt_value *value) {
  vt_tpu1_qnode node = {
      .kind = kind, .op = op, .value_id = value->id, .range_factor = 1, .wide = l->net->wide};
  vt_array_push(&l->net->nodes, node);
  return (int)l->net->nodes.size - 1;
}

void vt_tpu1_lower_bind(vt_tpu1_lowerer *l, const vt_value *v, int node,
                        const vt_tpu1_binding *like) {
  vt_tpu1_binding *b = vt_tpu1_bind_of(l, v);
  if (like) *b = *like;
  b->kind = VT_TPU1_BIND_CHIP;
  b->ref = (vt_tpu1_qref){node, 1};
  b->open = l->uses[v->id] == 1;
}

// The same node under another name, possibly scaled.
void vt_tpu1_lower_alias(vt_tpu1_lowerer *l, const vt_value *to, const vt_value *from,
                         double factor) {
  vt_tpu1_binding b = *vt_tpu1_bind_of(l, from);
  b.ref.factor *= factor;
  b.open = b.open && l->uses[to->id] == 1;
  *vt_tpu1_bind_of(l, to) = b;
}

static int64_t role_size(const vt_type *type, const int8_t *role, vt_tpu1_role want) {
  int64_t size = 1;
  for (int d = 0; d < type->rank; d++)
    if (role[d] == (int8_t)want) size *= type->dims[d];
  return size;
}

static bool same_roles(const vt_type *type, const int8_t *a, const int8_t *b) {
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d] != 1 && a[d] != b[d]) return false;
  return true;
}

// A host value becomes a node that the host fills. The first use determines what its dimensions
// mean.
vt_status vt_tpu1_lower_need_chip(vt_tpu1_lowerer *l, const vt_op *op, const vt_value *v,
                                  const int8_t *role) {
  vt_tpu1_binding *b = vt_tpu1_bind_of(l, v);
  if (b->kind == VT_TPU1_BIND_CHIP) {
    if (!b->flat && !same_roles(&v->type, b->role, role))
      return vt_tpu1_lower_refuse(l, op, "an operand is used in two layouts");
    return VT_OK;
  }
  if (b->kind != VT_TPU1_BIND_HOST)
    return vt_tpu1_lower_refuse(l, op, "a constant is used as a tensor");
  if (!vt_dtype_is_float(v->type.dtype))
    return vt_tpu1_lower_refuse(l, op, "its operand is not a float");
  int node = vt_tpu1_lower_node(l, VT_TPU1_Q_INPUT, v->op, v);
  vt_tpu1_qnode *n = &l->net->nodes.data[node];
  n->source = v;
  memcpy(n->role, role, sizeof n->role);
  n->images = role_size(&v->type, role, VT_TPU1_ROLE_B);
  n->h = role_size(&v->type, role, VT_TPU1_ROLE_Y);
  n->w = role_size(&v->type, role, VT_TPU1_ROLE_X);
  n->channels = role_size(&v->type, role, VT_TPU1_ROLE_C);
  memcpy(b->role, role, sizeof b->role);
  vt_tpu1_lower_bind(l, v, node, b);
  b->open = false;
  return VT_OK;
}

static vt_status lower_chip_op(vt_tpu1_lowerer *l, const vt_op *op) {
  bool done = false;
  VT_TRY(vt_tpu1_lower_logistic_step(l, op, &done));
  if (done) return VT_OK;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (vt_tpu1_bind_of(l, op->operands[i])->step != VT_TPU1_STEP_NONE)
      return vt_tpu1_lower_refuse(l, vt_tpu1_bind_of(l, op->operands[i])->step_op,
                                  "no unit computes this operation");
  switch (op->code) {
  case VT_OP_EXPONENTIAL:
    return vt_tpu1_lower_exponential(l, op);
  case VT_OP_MINIMUM:
    return vt_tpu1_lower_minimum(l, op);
  case VT_OP_DOT_GENERAL:
    return vt_tpu1_lower_dot(l, op);
  case VT_OP_CONVOLUTION:
    return vt_tpu1_lower_convolution(l, op);
  case VT_OP_ADD:
    return vt_tpu1_lower_add(l, op, 1);
  case VT_OP_SUBTRACT:
    return vt_tpu1_lower_add(l, op, -1);
  case VT_OP_MULTIPLY:
    return vt_tpu1_lower_multiply(l, op, false);
  case VT_OP_DIVIDE:
    return vt_tpu1_lower_multiply(l, op, true);
  case VT_OP_NEGATE:
    vt_tpu1_lower_alias(l, &op->results[0], op->operands[0], -1);
    return VT_OK;
  case VT_OP_MAXIMUM:
    return vt_tpu1_lower_maximum(l, op);
  case VT_OP_CLAMP:
    return vt_tpu1_lower_clamp(l, op);
  case VT_OP_TANH:
    return vt_tpu1_lower_function(l, op, op->operands[0], VT_TPU1_FN_TANH, 0);
  case VT_OP_LOGISTIC:
    return vt_tpu1_lower_function(l, op, op->operands[0], VT_TPU1_FN_SIGMOID, 0);
  case VT_OP_REDUCE_WINDOW:
    return vt_tpu1_lower_reduce_window(l, op);
  case VT_OP_REDUCE:
    return vt_tpu1_lower_reduce(l, op);
  case VT_OP_RESHAPE:
    return vt_tpu1_lower_reshape(l, op);
  case VT_OP_TRANSPOSE:
    return vt_tpu1_lower_transpose(l, op);
  case VT_OP_SLICE:
    return vt_tpu1_lower_slice(l, op);
  case VT_OP_CONCATENATE:
    return vt_tpu1_lower_concatenate(l, op);
  case VT_OP_CONVERT:
  case VT_OP_REDUCE_PRECISION:
    return vt_tpu1_lower_convert(l, op);
  case VT_OP_BROADCAST_IN_DIM:
    return vt_tpu1_lower_broadcast(l, op);
  case VT_OP_OPTIMIZATION_BARRIER:
    for (uint32_t i = 0; i < op->operand_count; i++)
      vt_tpu1_lower_alias(l, &op->results[i], op->operands[i], 1);
    return VT_OK;
  default:
    return vt_tpu1_lower_refuse(l, op, "no unit computes this operation");
  }
}

static vt_status lower_op(vt_tpu1_lowerer *l, const vt_op *op) {
  bool all_const = true, any_chip = false;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    all_const = all_const && vt_tpu1_bind_of(l, op->operands[i])->kind == VT_TPU1_BIND_CONST;
    any_chip = any_chip || vt_tpu1_bind_of(l, op->operands[i])->kind == VT_TPU1_BIND_CHIP;
  }
  if (all_const && vt_eval_supports(op)) return evaluate_constant(l, op);
  if (any_chip || op->code == VT_OP_DOT_GENERAL || op->code == VT_OP_CONVOLUTION)
    return lower_chip_op(l, op);
  if (op->region_count || !vt_eval_supports(op))
    return vt_tpu1_lower_refuse(l, op, "no unit computes this operation");
  vt_array_push(&l->net->host_ops, op);
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_tpu1_bind_of(l, &op->results[i])->kind = VT_TPU1_BIND_HOST;
  return VT_OK;
}

// A convolution that reads a program input over several positions, with few channels: the host puts
// the positions side by side, so that one pass serves the whole window.
static void pack_inputs(vt_tpu1_lowerer *l) {
  VT_ARRAY(int) users = {0};
  for (size_t i = 0; i < l->net->nodes.size; i++) vt_array_push(&users, 0);
  for (size_t i = 0; i < l->net->nodes.size; i++) {
    const vt_tpu1_qnode *n = &l->net->nodes.data[i];
    for (int t = 0; t < n->term_count; t++) users.data[n->terms[t].in.node]++;
    if (n->kind == VT_TPU1_Q_VECTOR || n->kind == VT_TPU1_Q_POOL || n->kind == VT_TPU1_Q_SLICE)
      users.data[n->a.node] += 2;
    if (n->kind == VT_TPU1_Q_VECTOR && n->b.node >= 0) users.data[n->b.node] += 2;
    for (int p = 0; p < n->part_count; p++) users.data[n->parts[p].node] += 2;
  }
  for (size_t i = 0; i < l->net->nodes.size; i++) {
    vt_tpu1_qnode *n = &l->net->nodes.data[i];
    for (int t = 0; t < n->term_count; t++) {
      vt_tpu1_qterm *term = &n->terms[t];
      vt_tpu1_qnode *in = &l->net->nodes.data[term->in.node];
      int64_t lanes = term->conv.kh * term->conv.kw * term->in_channels;
      if (in->kind != VT_TPU1_Q_INPUT || users.data[term->in.node] != 1 || lanes > 256 ||
          term->conv.kh * term->conv.kw == 1)
        continue;
      in->packed = true;
      in->window = term->conv;
      in->raw_h = in->h;
      in->raw_w = in->w;
      in->raw_channels = in->channels;
      in->h = n->h;
      in->w = n->w;
      in->channels = term->in_channels = lanes;
      term->conv = (vt_tpu1_conv){.kh = 1, .kw = 1, .sy = 1, .sx = 1};
    }
  }
  vt_array_free(&users);
}

static vt_status lower_outputs(vt_tpu1_lowerer *l, const vt_func *main) {
  for (uint32_t i = 0; i < main->return_count; i++) {
    const vt_value *v = main->returns[i];
    const vt_tpu1_binding *b = vt_tpu1_bind_of(l, v);
    vt_tpu1_qoutput out = {
        .value = v, .ref = b->ref, .flat = b->flat, .on_host = b->kind != VT_TPU1_BIND_CHIP};
    memcpy(out.role, b->role, sizeof out.role);
    memcpy(out.flat_order, b->flat_order, sizeof out.flat_order);
    if (!out.on_host && v->type.dtype != VT_F32)
      return vt_error(VT_UNIMPLEMENTED, "result %u of the program is not f32", (unsigned)i);
    if (!out.on_host && l->net->nodes.data[b->ref.node].kind == VT_TPU1_Q_INPUT) out.on_host = true;
    vt_array_push(&l->net->outputs, out);
  }
  // A result that only the host reads keeps 16 bits.
  VT_ARRAY(int) reads = {0};
  for (size_t i = 0; i < l->net->nodes.size; i++) vt_array_push(&reads, 0);
  for (size_t i = 0; i < l->net->nodes.size; i++) {
    const vt_tpu1_qnode *n = &l->net->nodes.data[i];
    for (int t = 0; t < n->term_count; t++) reads.data[n->terms[t].in.node]++;
    if (n->kind >= VT_TPU1_Q_VECTOR && n->kind <= VT_TPU1_Q_SLICE) reads.data[n->a.node]++;
    if (n->kind == VT_TPU1_Q_VECTOR && n->b.node >= 0) reads.data[n->b.node]++;
    for (int p = 0; p < n->part_count; p++) reads.data[n->parts[p].node]++;
  }
  for (size_t i = 0; i < l->net->outputs.size; i++) {
    if (l->net->outputs.data[i].on_host) continue;
    vt_tpu1_qnode *n = &l->net->nodes.data[l->net->outputs.data[i].ref.node];
    if (n->kind <= VT_TPU1_Q_VECTOR && reads.data[l->net->outputs.data[i].ref.node] == 0)
      n->wide = true;
  }
  vt_array_free(&reads);
  return VT_OK;
}

vt_status vt_tpu1_network_make(vt_module *module, bool wide, vt_tpu1_network *out) {
  memset(out, 0, sizeof *out);
  out->module = module;
  out->wide = wide;
  vt_func *main = module->main;
  vt_tpu1_lowerer l = {.net = out, .arena = &out->arena};
  l.uses = vt_func_use_counts(main, l.arena);
  l.bindings = VT_NEW_ARRAY(l.arena, vt_tpu1_binding, main->value_count + 1);
  out->constants = VT_NEW_ARRAY(l.arena, vt_tensor, main->value_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++)
    vt_tpu1_bind_of(&l, main->params[i])->kind = VT_TPU1_BIND_HOST;
  for (const vt_op *op = main->first; op; op = op->next) VT_TRY(lower_op(&l, op));
  pack_inputs(&l);
  return lower_outputs(&l, main);
}

void vt_tpu1_network_free(vt_tpu1_network *network) {
  vt_array_free(&network->nodes);
  vt_array_free(&network->host_ops);
  vt_array_free(&network->outputs);
  vt_arena_free(&network->arena);
}
