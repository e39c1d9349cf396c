// SPDX-License-Identifier: Apache-2.0
// calibrate.c - ranges from example inputs, and the scales and integers that follow from them.
// In: a module or network, arrays. Out: ranges by value, quantised weights, multipliers. quant.h
// describes the scheme.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tpu1/quant.h"

// ---- ranges ----

static double largest(const vt_tensor *t) {
  int64_t n = vt_type_elements(t->type);
  double most = 0;
  if (t->type.dtype == VT_F32) {
    const float *v = t->data;
    for (int64_t i = 0; i < n; i++) {
      double m = fabs((double)v[i]);
      if (m > most && isfinite(m)) most = m;
    }
  }
  return most;
}

static vt_status calibrate_part(const vt_module *module, const vt_tensor *inputs, int64_t part,
                                double *ranges) {
  const vt_func *main = module->main;
  vt_arena arena = {0};
  vt_status st = VT_OK;
  vt_tensor *values = VT_NEW_ARRAY(&arena, vt_tensor, main->value_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) {
    vt_type type = main->params[i]->type;
    values[main->params[i]->id] =
        (vt_tensor){type, (char *)inputs[i].data + part * vt_type_bytes(type)};
  }
  for (const vt_op *op = main->first; op; op = op->next) {
    vt_tensor *operands = VT_NEW_ARRAY(&arena, vt_tensor, op->operand_count + 1);
    vt_tensor *results = VT_NEW_ARRAY(&arena, vt_tensor, op->result_count + 1);
    for (uint32_t i = 0; i < op->operand_count; i++) operands[i] = values[op->operands[i]->id];
    for (uint32_t i = 0; i < op->result_count; i++) {
      vt_type type = op->results[i].type;
      results[i] =
          (vt_tensor){type, vt_arena_push_aligned(&arena, (size_t)vt_type_bytes(type) + 64, 64)};
      values[op->results[i].id] = results[i];
    }
    vt_eval_env env = {.exact_dots = true};
    VT_TRY_OUT(vt_eval_op(op, &env, operands, results));
    for (uint32_t i = 0; i < op->result_count; i++) {
      double most = largest(&results[i]), *range = &ranges[op->results[i].id];
      if (most > *range) *range = most;
    }
  }
  for (uint32_t i = 0; i < main->param_count; i++) {
    double most = largest(&values[main->params[i]->id]), *range = &ranges[main->params[i]->id];
    if (most > *range) *range = most;
  }
out:
  vt_arena_free(&arena);
  return st;
}

vt_status vt_tpu1_calibrate(const vt_module *module, const vt_tensor *inputs, double *ranges) {
  const vt_func *main = module->main;
  int64_t parts = 1;
  for (uint32_t i = 0; i < main->param_count; i++) {
    int64_t have = vt_type_elements(inputs[i].type), want = vt_type_elements(main->params[i]->type);
    if (inputs[i].type.dtype != main->params[i]->type.dtype || want == 0 || have < want)
      return vt_error(VT_INVALID_ARGUMENT,
                      "calibration array %u does not fit parameter %u of the program", (unsigned)i,
                      (unsigned)i);
    if (i == 0 || have / want < parts) parts = have / want;
  }
  for (int64_t part = 0; part < parts; part++) VT_TRY(calibrate_part(module, inputs, part, ranges));
  return VT_OK;
}

// ---- scales ----

static bool is_table(vt_tpu1_fn fn) {
  return fn == VT_TPU1_FN_SIGMOID || fn == VT_TPU1_FN_TANH;
}

// factor = mult / 2^shift with 31 bits of precision.
static void multiplier(double factor, int32_t *mult, int *shift) {
  int exponent;
  double fraction = frexp(fabs(factor), &exponent); // fraction in [0.5, 1)
  int s = 31 - exponent;
  if (s > 62) {
    fraction = ldexp(fraction, 62 - s);
    s = 62;
  }
  double m = floor(ldexp(fraction, 31) + 0.5);
  if (s < 0 || factor == 0) {
    s = 0;
    m = factor == 0 ? 0 : INT32_MAX;
  }
  if (m > INT32_MAX) m = INT32_MAX;
  *mult = (int32_t)(factor < 0 ? -m : m);
  *shift = s;
}

static void ranges_of(vt_tpu1_network *net, const double *ranges, double *r) {
  for (size_t i = 0; i < net->nodes.size; i++) {
    const vt_tpu1_qnode *n = &net->nodes.data[i];
    r[i] = ranges[n->value_id] / fabs(n->range_factor);
    if (n->range > 0) r[i] = n->range;
  }
  for (int round = 0; round < 2; round++) // the parts of a concatenation share their scale
    for (size_t i = 0; i < net->nodes.size; i++) {
      const vt_tpu1_qnode *n = &net->nodes.data[i];
      for (int p = 0; p < n->part_count; p++)
        if (r[n->parts[p].node] > r[i]) r[i] = r[n->parts[p].node];
      for (int p = 0; p < n->part_count; p++) r[n->parts[p].node] = r[i];
    }
}

static double scale_of(const vt_tpu1_qnode *n, double range) {
  if (is_table(n->fn)) return n->wide ? 1.0 / 32768 : 1.0 / 128;
  return range > 0 ? range / (n->wide ? 32767 : 127) : 1;
}

static void layer_quantise(vt_tpu1_network *net, vt_tpu1_qnode *n) {
  double most = 0, real[VT_TPU1_MAX_TERMS];
  int64_t count[VT_TPU1_MAX_TERMS];
  for (int t = 0; t < n->term_count; t++) {
    vt_tpu1_qterm *term = &n->terms[t];
    real[t] = net->nodes.data[term->in.node].scale * term->in.factor; // of one step of the input
    count[t] = term->conv.kh * term->conv.kw * term->in_channels * n->channels;
    for (int64_t i = 0; i < count[t]; i++) most = fmax(most, fabs(term->weights[i] * real[t]));
  }
  double unit = most > 0 ? most / 127 : 1; // of the accumulators
  // No sum of this layer may exceed 32 bits, whatever the inputs: coarser weights if necessary.
  double *column = calloc((size_t)n->channels, sizeof *column), worst = 0;
  for (int t = 0; column && t < n->term_count; t++) {
    double input = net->nodes.data[n->terms[t].in.node].wide ? 32768 : 128;
    for (int64_t i = 0; i < count[t]; i++)
      column[i % n->channels] += fabs(n->terms[t].weights[i] * real[t]) / unit * input;
  }
  for (int64_t c = 0; column && c < n->channels; c++)
    worst = fmax(worst, column[c] + (n->bias ? fabs(n->bias[c]) / unit : 0));
  free(column);
  if (worst > 2.0e9) unit *= worst / 2.0e9;
  for (int t = 0; t < n->term_count; t++) {
    n->terms[t].q = VT_NEW_ARRAY(&net->arena, int8_t, count[t]);
    for (int64_t i = 0; i < count[t]; i++) {
      double q = nearbyint(n->terms[t].weights[i] * real[t] / unit);
      n->terms[t].q[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
    }
  }
  if (n->bias) {
    n->qbias = VT_NEW_ARRAY(&net->arena, int32_t, n->channels);
    for (int64_t c = 0; c < n->channels; c++)
      n->qbias[c] = (int32_t)fmax(-2e9, fmin(2e9, nearbyint(n->bias[c] / unit)));
  }
  multiplier(is_table(n->fn) ? unit * 4096 : unit / n->scale, &n->mult, &n->shift);
}

static void vector_quantise(vt_tpu1_network *net, vt_tpu1_qnode *n) {
  double out = is_table(n->fn) ? 1.0 / 4096 : n->scale;
  double a = net->nodes.data[n->a.node].scale * n->a.factor;
  double b = n->b.node >= 0 ? net->nodes.data[n->b.node].scale * n->b.factor : 0;
  n->offset = (int32_t)fmax(-2e9, fmin(2e9, nearbyint(n->constant / out)));
  if (n->vop == VT_TPU1_VOP_MUL) {
    multiplier(a * b / out, &n->mult, &n->shift);
  } else if (n->vop == VT_TPU1_VOP_ADD) { // one shift for both: that of the larger
    int32_t larger;
    multiplier(fmax(fabs(a), fabs(b)) / out, &larger, &n->shift);
    n->mult =
        (int32_t)fmax(-(double)INT32_MAX, fmin(INT32_MAX, nearbyint(ldexp(a / out, n->shift))));
    n->mult_b =
        (int32_t)fmax(-(double)INT32_MAX, fmin(INT32_MAX, nearbyint(ldexp(b / out, n->shift))));
  } else {
    multiplier(a / out, &n->mult, &n->shift);
  }
}

vt_status vt_tpu1_network_quantise(vt_tpu1_network *net, const double *ranges) {
  double *r = calloc(net->nodes.size + 1, sizeof *r);
  if (!r) return vt_error_no_memory();
  ranges_of(net, ranges, r);
  vt_status st = VT_OK;
  for (size_t i = 0; i < net->nodes.size && !st; i++) {
    vt_tpu1_qnode *n = &net->nodes.data[i];
    const vt_tpu1_qnode *a = n->kind >= VT_TPU1_Q_VECTOR && n->kind <= VT_TPU1_Q_SLICE
                                 ? &net->nodes.data[n->a.node]
                                 : NULL;
    if (n->kind == VT_TPU1_Q_SLICE) n->wide = a->wide;
    if (n->kind == VT_TPU1_Q_CONCAT) n->wide = net->nodes.data[n->parts[0].node].wide;
    if (n->kind == VT_TPU1_Q_POOL) n->wide = a->wide;
    n->scale = scale_of(n, r[i]);
    if (n->kind == VT_TPU1_Q_SLICE ||
        (n->kind == VT_TPU1_Q_POOL && n->pooling.kind == VT_TPU1_POOL_MAX))
      n->scale = a->scale;
    if (n->kind == VT_TPU1_Q_CONCAT) n->scale = net->nodes.data[n->parts[0].node].scale;
    for (int p = 0; p < n->part_count && !st; p++)
      if (net->nodes.data[n->parts[p].node].scale != n->scale ||
          net->nodes.data[n->parts[p].node].wide != n->wide)
        st = vt_error(VT_UNIMPLEMENTED, "%s: TPU v1 cannot run it: the parts have different scales",
                      vt_op_describe(n->op, &net->arena));
    if (n->kind == VT_TPU1_Q_LAYER) layer_quantise(net, n);
    if (n->kind == VT_TPU1_Q_VECTOR) vector_quantise(net, n);
    if (n->kind == VT_TPU1_Q_POOL && n->pooling.kind == VT_TPU1_POOL_AVG)
      multiplier(a->scale / n->scale, &n->pooling.scale, &n->pooling.shift);
  }
  free(r);
  return st;
}

// ---- the host's side ----

// Position [image, y, x, channel] of element `i` of an IR value.
static void coordinates(const vt_type *type, const int8_t *role, bool flat,
                        const int8_t *flat_order, const vt_tpu1_qnode *n, int64_t i,
                        int64_t at[5]) {
  at[VT_TPU1_ROLE_B] = at[VT_TPU1_ROLE_Y] = at[VT_TPU1_ROLE_X] = at[VT_TPU1_ROLE_C] = 0;
  for (int d = type->rank - 1; d >= 0; d--) {
    if (type->dims[d] != 1) at[role[d]] = i % type->dims[d];
    i /= type->dims[d];
  }
  if (!flat) return;
  const int64_t sizes[5] = {1, 1, n->h, n->w, n->channels};
  int64_t composite = at[VT_TPU1_ROLE_C];
  for (int k = 2; k >= 0; k--) {
    at[flat_order[k]] = composite % sizes[flat_order[k]];
    composite /= sizes[flat_order[k]];
  }
}

static int32_t quantised(double value, const vt_tpu1_qnode *n) {
  double most = n->wide ? 32767 : 127, q = nearbyint(value / n->scale);
  return (int32_t)(q > most ? most : q < -most ? -most : q == q ? q : 0);
}

static void input_pack(const vt_tpu1_qnode *n, const int32_t *raw, int32_t *out) {
  const vt_tpu1_conv *c = &n->window;
  for (int64_t b = 0; b < n->images; b++)
    for (int64_t oy = 0; oy < n->h; oy++)
      for (int64_t ox = 0; ox < n->w; ox++)
        for (int64_t tap = 0; tap < c->kh * c->kw; tap++) {
          int64_t y = oy * c->sy - c->py + tap / c->kw * c->dilation_y,
                  x = ox * c->sx - c->px + tap % c->kw * c->dilation_x;
          bool inside = y >= 0 && x >= 0 && y < n->raw_h && x < n->raw_w;
          for (int64_t k = 0; k < n->raw_channels; k++)
            *out++ = inside ? raw[((b * n->raw_h + y) * n->raw_w + x) * n->raw_channels + k] : 0;
        }
}

static vt_status input_quantise(const vt_tpu1_qnode *n, const vt_tensor *value, int32_t **out) {
  int64_t h = n->packed ? n->raw_h : n->h, w = n->packed ? n->raw_w : n->w,
          channels = n->packed ? n->raw_channels : n->channels;
  int64_t count = n->images * h * w * channels, at[5];
  int32_t *raw = malloc(sizeof *raw * (size_t)(count + 1)), *packed = NULL;
  if (!raw) return vt_error_no_memory();
  if (value->type.dtype != VT_F32 || vt_type_elements(value->type) != count) {
    free(raw);
    return vt_error(VT_UNIMPLEMENTED, "an input of the chip is not f32");
  }
  bool in_order = true; // roles ascend: B, Y, X, C
  for (int d = 0, last = 0; d < value->type.rank; d++) {
    if (value->type.dims[d] == 1) continue;
    in_order = in_order && n->role[d] > last;
    last = n->role[d];
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t to = i;
    if (!in_order) {
      coordinates(&value->type, n->role, false, NULL, n, i, at);
      to = ((at[VT_TPU1_ROLE_B] * h + at[VT_TPU1_ROLE_Y]) * w + at[VT_TPU1_ROLE_X]) * channels +
           at[VT_TPU1_ROLE_C];
    }
    raw[to] = quantised((double)((const float *)value->data)[i], n);
  }
  *out = raw;
  if (!n->packed) return VT_OK;
  packed = malloc(sizeof *packed * (size_t)(vt_tpu1_qnode_size(n) + 1));
  if (packed) input_pack(n, raw, packed);
  free(raw);
  *out = packed;
  return packed ? VT_OK : vt_error_no_memory();
}

vt_status vt_tpu1_network_inputs(const vt_tpu1_network *net, const vt_tensor *args, vt_arena *arena,
                                 vt_tensor *values, int32_t **inputs) {
  const vt_func *main = net->module->main;
  for (int32_t i = 0; i < main->value_count; i++) values[i] = net->constants[i];
  for (uint32_t i = 0; i < main->param_count; i++) values[main->params[i]->id] = args[i];
  for (size_t k = 0; k < net->host_ops.size; k++) {
    const vt_op *op = net->host_ops.data[k];
    vt_tensor operands[16], results[16];
    if (op->operand_count > 16 || op->result_count > 16)
      return vt_error(VT_UNIMPLEMENTED, "a host op of more than 16 operands");
    for (uint32_t i = 0; i < op->operand_count; i++) operands[i] = values[op->operands[i]->id];
    for (uint32_t i = 0; i < op->result_count; i++) {
      vt_type type = op->results[i].type;
      results[i] = values[op->results[i].id] =
          (vt_tensor){type, vt_arena_push_aligned(arena, (size_t)vt_type_bytes(type) + 64, 64)};
    }
    vt_eval_env env = {.exact_dots = true};
    VT_TRY(vt_eval_op(op, &env, operands, results));
  }
  for (size_t i = 0; i < net->nodes.size; i++)
    if (net->nodes.data[i].kind == VT_TPU1_Q_INPUT)
      VT_TRY(
          input_quantise(&net->nodes.data[i], &values[net->nodes.data[i].source->id], &inputs[i]));
  return VT_OK;
}

vt_status vt_tpu1_network_output(const vt_tpu1_network *net, int output, const int32_t *integers,
                                 const vt_tensor *values, vt_tensor *out) {
  const vt_tpu1_qoutput *o = &net->outputs.data[output];
  int64_t bytes = vt_type_bytes(out->type), at[5];
  if (o->on_host) {
    memcpy(out->data, values[o->value->id].data, (size_t)bytes);
    return VT_OK;
  }
  const vt_tpu1_qnode *n = &net->nodes.data[o->ref.node];
  double unit = n->scale * o->ref.factor;
  for (int64_t i = 0, count = vt_type_elements(out->type); i < count; i++) {
    coordinates(&out->type, o->role, o->flat, o->flat_order, n, i, at);
    int64_t from = ((at[VT_TPU1_ROLE_B] * n->h + at[VT_TPU1_ROLE_Y]) * n->w + at[VT_TPU1_ROLE_X]) *
                       n->channels +
                   at[VT_TPU1_ROLE_C];
    ((float *)out->data)[i] = (float)(integers[from] * unit);
  }
  return VT_OK;
}
