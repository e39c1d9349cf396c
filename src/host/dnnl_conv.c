// SPDX-License-Identifier: Apache-2.0
// dnnl_conv.c - convolution as one of oneDNN's three: forward, gradient of the input, gradient of
// the weights.
//
// StableHLO has one convolution with free dimension numbers; its geometry tells which of the three
// it is:
//   forward           window strides, dilated kernel
//   input gradient    dilated input (the forward stride), or a reversed kernel: the transposed
//                     convolution. The kernel's feature dimensions change roles; an unreversed
//                     kernel is flipped while packing.
//   weight gradient   the kernel is larger than the result: the result is the gradient of a small
//                     kernel, the "batch" of the input its features, the kernel's dilation the
//                     forward stride. Groups appear as batch_group_count.
// Activations must be dense in the order N, spatial, C; other orders are packed on the way in and
// out. Weights are reordered each time into the blocked layout the primitive prefers: plain weights
// cost 3 to 70 times more.
#include <string.h>

#include "host/contraction.h"
#include "host/conv_lines.h"
#include "host/cpu.h"
#include "host/dnnl_util.h"
#include "host/pack.h"
#include "host/steps.h"
#include "host/strip.h"
#include "host/weight_gradient.h"

enum { MAX_SPATIAL = 3 };
enum { LHS, RHS, OUT };

typedef enum conv_kind { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT } conv_kind;

// The op, dimension numbers resolved: [tensor] of LHS, RHS, OUT. `a` is the batch (kernel: input
// feature) dimension, `b` the feature (kernel: output feature) dimension.
typedef struct conv {
  const vt_op *op;
  int32_t spatial;
  int64_t a_size[3], b_size[3], a_stride[3], b_stride[3];
  int64_t size[3][MAX_SPATIAL], stride[3][MAX_SPATIAL];
  const int64_t *window_strides, *padding, *lhs_dilation, *rhs_dilation, *reversal;
  int64_t feature_groups, batch_groups;
} conv;

// One tensor as oneDNN sees it: dims [G], A, B, spatial and the strides of the array it comes from.
typedef struct view {
  int32_t array; // LHS, RHS, OUT
  int32_t rank;
  bool weights;
  dnnl_dims_t dims, strides;
  vt_dtype array_dtype, dtype;
} view;

typedef struct problem {
  conv_kind kind;
  bool flip;    // the kernel's spatial dimensions are reversed
  bool by_gemm; // groups may run as one matmul after another
  int32_t spatial;
  int64_t groups;
  view source, weights, target; // source and target in the forward sense
  dnnl_dims_t strides, dilates, pad_low, pad_high;
} problem;

// One operand or the result, between its array and the primitive.
typedef struct port {
  int32_t array;
  bool packed, reordered;
  vt_pack pack;
  vt_dnnl_call reorder;
  int64_t pack_offset, reorder_offset, pad_offset;
} port;

typedef struct conv_body {
  vt_dnnl_call call;
  port ports[3]; // in the order of the primitive's arguments; the last is written
  int64_t scratchpad_offset;
} conv_body;

static bool read_conv(const vt_op *op, conv *c) {
  *c = (conv){.op = op, .spatial = op->results[0].type.rank - 2};
  if (c->spatial < 1 || c->spatial > MAX_SPATIAL) return false;
  for (int t = 0; t < 3; t++) {
    vt_type type = t == OUT ? op->results[0].type : op->operands[t]->type;
    int64_t strides[VT_MAX_RANK];
    if (vt_type_elements(type) == 0) return false;
    vt_type_strides(type, strides);
    int64_t a = vt_attr_i64(op, vt_conv_dim_keys[t][0]),
            b = vt_attr_i64(op, vt_conv_dim_keys[t][1]);
    const int64_t *spatial = vt_attr_ints(op, vt_conv_dim_keys[t][2], NULL);
    c->a_size[t] = type.dims[a], c->a_stride[t] = strides[a];
    c->b_size[t] = type.dims[b], c->b_stride[t] = strides[b];
    for (int32_t i = 0; i < c->spatial; i++) {
      c->size[t][i] = type.dims[spatial[i]];
      c->stride[t][i] = strides[spatial[i]];
    }
  }
  c->window_strides = vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, NULL);
  c->padding = vt_attr_ints(op, VT_ATTR_PADDING, NULL);
  c->lhs_dilation = vt_attr_ints(op, VT_ATTR_LHS_DILATION, NULL);
  c->rhs_dilation = vt_attr_ints(op, VT_ATTR_RHS_DILATION, NULL);
  c->reversal = vt_attr_ints(op, VT_ATTR_WINDOW_REVERSAL, NULL);
  c->feature_groups = vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT);
  c->batch_groups = vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT);
  return true;
}

static bool all(const int64_t *numbers, int32_t count, int64_t value) {
  for (int32_t i = 0; i < count; i++)
    if (numbers[i] != value) return false;
  return true;
}

// Reversal counts only where the kernel is larger than 1. 1 all reversed, 0 none, -1 mixed;
// `any_size` when all 1.
static int reversal_of(const conv *c, bool *out_any) {
  int seen = -2;
  for (int32_t i = 0; i < c->spatial; i++) {
    if (c->size[RHS][i] == 1) continue;
    int r = c->reversal[i] != 0;
    seen = seen == -2 || seen == r ? r : -1;
  }
  *out_any = seen == -2;
  return seen == -2 ? 0 : seen;
}

static void set_activation(view *v, const conv *c, int32_t array, bool swapped) {
  *v = (view){.array = array, .rank = c->spatial + 2};
  v->dims[0] = swapped ? c->b_size[array] : c->a_size[array];
  v->dims[1] = swapped ? c->a_size[array] : c->b_size[array];
  v->strides[0] = swapped ? c->b_stride[array] : c->a_stride[array];
  v->strides[1] = swapped ? c->a_stride[array] : c->b_stride[array];
  for (int32_t i = 0; i < c->spatial; i++) {
    v->dims[2 + i] = c->size[array][i];
    v->strides[2 + i] = c->stride[array][i];
  }
}

// dims [G], O, I, spatial. `grouped` is the array's dimension that runs over all groups: O or I of
// the result.
static void set_weights(view *v, const conv *c, int32_t array, int64_t groups, int64_t o_size,
                        int64_t o_stride, int64_t i_size, int64_t i_stride, int64_t group_stride) {
  *v = (view){.array = array, .weights = true};
  if (groups > 1) {
    v->dims[v->rank] = groups;
    v->strides[v->rank++] = group_stride;
  }
  v->dims[v->rank] = o_size;
  v->strides[v->rank++] = o_stride;
  v->dims[v->rank] = i_size;
  v->strides[v->rank++] = i_stride;
  for (int32_t i = 0; i < c->spatial; i++) {
    v->dims[v->rank] = c->size[array][i];
    v->strides[v->rank++] = c->stride[array][i];
  }
}

// Paddings of the forward convolution from its sizes; false when it would leave out more than a
// stride of input, or crop at the low end.
static bool set_geometry(problem *p, int32_t i, int64_t in, int64_t out, int64_t kernel,
                         int64_t stride, int64_t dilation, int64_t low) {
  int64_t high = (out - 1) * stride + (kernel - 1) * dilation + 1 - in - low;
  if (low < 0 || high <= -stride) return false;
  p->strides[i] = stride;
  p->dilates[i] = dilation - 1;
  p->pad_low[i] = low;
  p->pad_high[i] = high < 0 ? 0 : high;
  return true;
}

static bool as_forward(const conv *c, problem *p) {
  bool any;
  int reversed = reversal_of(c, &any);
  if (c->batch_groups != 1 || !all(c->lhs_dilation, c->spatial, 1) || reversed < 0) return false;
  int64_t g = c->feature_groups, o = c->b_size[RHS] / g;
  *p = (problem){.kind = FORWARD, .flip = reversed, .spatial = c->spatial, .groups = g};
  set_activation(&p->source, c, LHS, false);
  set_activation(&p->target, c, OUT, false);
  set_weights(&p->weights, c, RHS, g, o, c->b_stride[RHS], c->a_size[RHS], c->a_stride[RHS],
              o * c->b_stride[RHS]);
  for (int32_t i = 0; i < c->spatial; i++) {
    int64_t reach = (c->size[RHS][i] - 1) * c->rhs_dilation[i] + 1;
    if (!set_geometry(p, i, c->size[LHS][i], c->size[OUT][i], c->size[RHS][i], c->window_strides[i],
                      c->rhs_dilation[i], c->padding[2 * i]))
      return false;
    // oneDNN 2.6.3 crashes where a whole window lies in the padding.
    if (p->pad_low[i] >= reach || p->pad_high[i] >= reach) return false;
  }
  return true;
}

static bool as_input_gradient(const conv *c, problem *p) {
  bool any;
  int reversed = reversal_of(c, &any);
  if (c->batch_groups != 1 || !all(c->window_strides, c->spatial, 1) || reversed < 0) return false;
  int64_t g = c->feature_groups, in = c->b_size[RHS] / g;
  *p = (problem){
      .kind = INPUT_GRADIENT, .flip = !reversed && !any, .spatial = c->spatial, .groups = g};
  set_activation(&p->target, c, LHS, false);
  set_activation(&p->source, c, OUT, false);
  set_weights(&p->weights, c, RHS, g, c->a_size[RHS], c->a_stride[RHS], in, c->b_stride[RHS],
              in * c->b_stride[RHS]);
  for (int32_t i = 0; i < c->spatial; i++) {
    int64_t reach = (c->size[RHS][i] - 1) * c->rhs_dilation[i];
    if (!set_geometry(p, i, c->size[OUT][i], c->size[LHS][i], c->size[RHS][i], c->lhs_dilation[i],
                      c->rhs_dilation[i], reach - c->padding[2 * i]))
      return false;
  }
  return true;
}

// True when each kernel element meets the source somewhere: oneDNN does not write the gradient of
// an element that only ever meets padding.
static bool meets_source(const problem *p, int32_t i, int64_t in, int64_t out, int64_t kernel) {
  int64_t stride = p->strides[i];
  for (int64_t k = 0; k < kernel; k++) {
    int64_t at = k * (p->dilates[i] + 1) - p->pad_low[i], last = at + (out - 1) * stride;
    if (at < 0) at += (-at + stride - 1) / stride * stride; // the first place inside
    if (at >= in || at > last) return false;
  }
  return true;
}

static bool as_weight_gradient(const conv *c, problem *p) {
  bool any;
  if (c->feature_groups != 1 || !all(c->lhs_dilation, c->spatial, 1) || reversal_of(c, &any) != 0)
    return false;
  int64_t g = c->batch_groups, o = c->b_size[OUT] / g;
  *p = (problem){.kind = WEIGHT_GRADIENT, .spatial = c->spatial, .groups = g};
  set_activation(&p->source, c, LHS, true);
  set_activation(&p->target, c, RHS, false);
  set_weights(&p->weights, c, OUT, g, o, c->b_stride[OUT], c->a_size[OUT], c->a_stride[OUT],
              o * c->b_stride[OUT]);
  for (int32_t i = 0; i < c->spatial; i++)
    if (!set_geometry(p, i, c->size[LHS][i], c->size[RHS][i], c->size[OUT][i], c->rhs_dilation[i],
                      c->window_strides[i], c->padding[2 * i]) ||
        !meets_source(p, i, c->size[LHS][i], c->size[RHS][i], c->size[OUT][i]))
      return false;
  return true;
}

// The forms in the order in which they are tried. For groups of a few channels oneDNN has no code
// for AVX2 but in gradients of the input, and a convolution of stride 1 is one. Where it has none,
// groups run `by_gemm`, one matmul after another: slower as a gradient of the input than forward.
static int forms_of(const conv *c, bool by_gemm, bool (*forms[4])(const conv *, problem *)) {
  bool any;
  int count = 0;
  int64_t kernel = 1, result = 1;
  for (int32_t i = 0; i < c->spatial; i++) kernel *= c->size[RHS][i], result *= c->size[OUT][i];
  bool gradient_of_input = !all(c->lhs_dilation, c->spatial, 1) || reversal_of(c, &any) == 1;
  bool gradient_of_weights =
      c->batch_groups > 1 || kernel > result || (kernel == result && c->a_stride[LHS] == 1);
  if (gradient_of_input && !by_gemm) forms[count++] = as_input_gradient;
  if (gradient_of_weights) forms[count++] = as_weight_gradient;
  forms[count++] = as_forward;
  if (by_gemm ? gradient_of_input : c->feature_groups > 1) forms[count++] = as_input_gradient;
  return count;
}

// The matrix unit's gradient of dilated weights in oneDNN 2.6.3 is wrong from 33 channels on that
// do not fill groups of 16, in any of them.
static bool wrong_in_bf16(const problem *p) {
  bool dilated = false;
  for (int32_t i = 0; i < p->spatial; i++) dilated |= p->dilates[i] > 0;
  return p->kind == WEIGHT_GRADIENT && dilated && vt_host_has_amx() &&
         p->source.dims[1] / p->groups % 16 != 0;
}

// Element types: bf16 inputs if both are bf16 and the CPU is fast at it, else f32; the result has
// the op's type when the inputs are bf16, else it is f32 first.
static bool choose_types(const vt_step *step, problem *p) {
  vt_dtype types[3] = {step->inputs[0]->type.dtype, step->inputs[1]->type.dtype,
                       step->outputs[0]->type.dtype};
  if (!vt_dnnl_takes(types[LHS]) || !vt_dnnl_takes(types[RHS]) || !vt_dnnl_takes(types[OUT]))
    return false;
  bool bf16 =
      types[LHS] == VT_BF16 && types[RHS] == VT_BF16 && vt_host_fast_bf16() && !wrong_in_bf16(p);
  view *views[] = {&p->source, &p->weights, &p->target};
  for (int i = 0; i < 3; i++) {
    views[i]->array_dtype = types[views[i]->array];
    views[i]->dtype = !bf16 ? VT_F32 : views[i]->array == OUT ? types[OUT] : VT_BF16;
  }
  return true;
}

// Dense order N, spatial, C for activations; the order of the dimensions for weights. Returns
// elements.
static int64_t dense_strides(const view *v, int64_t *strides) {
  int32_t order[MAX_SPATIAL + 3], count = 0;
  order[count++] = 0;
  if (v->weights) order[count++] = 1;
  for (int32_t d = 2; d < v->rank; d++) order[count++] = d;
  if (!v->weights) order[count++] = 1;
  int64_t stride = 1;
  while (count-- > 0) {
    strides[order[count]] = stride;
    stride *= v->dims[order[count]];
  }
  return stride;
}

static bool strides_equal(const view *v, const int64_t *strides) {
  for (int32_t d = 0; d < v->rank; d++)
    if (v->dims[d] > 1 && v->strides[d] != strides[d]) return false;
  return true;
}

// Activations by tag, weights as "any".
static bool primitive_desc_of(const view *v, dnnl_memory_desc_t *out) {
  static const dnnl_format_tag_t tags[] = {dnnl_nwc, dnnl_nhwc, dnnl_ndhwc};
  dnnl_format_tag_t tag = v->weights ? dnnl_format_tag_any : tags[v->rank - 3];
  return dnnl_memory_desc_init_by_tag(out, v->rank, v->dims, vt_dnnl_dtype(v->dtype), tag) ==
         dnnl_success;
}

static double products_of(const problem *p) {
  double products = 1;
  for (int32_t d = 0; d < p->target.rank; d++) products *= (double)p->target.dims[d];
  for (int32_t d = p->weights.rank - p->spatial - 1; d < p->weights.rank; d++)
    products *= (double)p->weights.dims[d];
  return products;
}

static bool make_primitive(vt_plan *plan, const problem *p, bool bias, vt_dnnl_call *call) {
  static const int ids[3][4] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
                                {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
                                {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS}};
  dnnl_memory_desc_t src, wei, dst, hint_src, hint_wei, hint_dst;
  if (!primitive_desc_of(&p->source, &src) || !primitive_desc_of(&p->weights, &wei) ||
      !primitive_desc_of(&p->target, &dst))
    return false;
  dnnl_convolution_desc_t desc, forward;
  dnnl_primitive_desc_t hint = NULL;
  bool reject_gemm = p->groups > 1 && !p->by_gemm;
  if (p->kind == FORWARD) {
    dnnl_memory_desc_t bias_md;
    dnnl_dims_t channels = {p->target.dims[1]};
    if (dnnl_memory_desc_init_by_tag(&bias_md, 1, channels, dnnl_f32, dnnl_a) ||
        dnnl_dilated_convolution_forward_desc_init(
            &desc, dnnl_forward_training, dnnl_convolution_direct, &src, &wei,
            bias ? &bias_md : NULL, &dst, p->strides, p->dilates, p->pad_low, p->pad_high))
      return false;
    return vt_dnnl_make(plan->program, &desc, NULL, NULL, reject_gemm, products_of(p), bias ? 4 : 3,
                        ids[FORWARD], call);
  }
  if (bias) return false;
  // The hint is the forward convolution in the types of the inputs: f32 or all bf16.
  dnnl_data_type_t in = vt_dnnl_dtype(p->target.dtype);
  hint_src = src, hint_wei = wei, hint_dst = dst;
  hint_src.data_type = hint_wei.data_type = hint_dst.data_type = in;
  if (dnnl_dilated_convolution_forward_desc_init(
          &forward, dnnl_forward_training, dnnl_convolution_direct, &hint_src, &hint_wei, NULL,
          &hint_dst, p->strides, p->dilates, p->pad_low, p->pad_high) ||
      dnnl_primitive_desc_create(&hint, &forward, NULL, vt_dnnl_engine(), NULL))
    return false;
  dnnl_status_t made = p->kind == INPUT_GRADIENT
                           ? dnnl_dilated_convolution_backward_data_desc_init(
                                 &desc, dnnl_convolution_direct, &src, &wei, &dst, p->strides,
                                 p->dilates, p->pad_low, p->pad_high)
                           : dnnl_dilated_convolution_backward_weights_desc_init(
                                 &desc, dnnl_convolution_direct, &src, &wei, NULL, &dst, p->strides,
                                 p->dilates, p->pad_low, p->pad_high);
  bool ok = made == dnnl_success && vt_dnnl_make(plan->program, &desc, NULL, hint, reject_gemm,
                                                 products_of(p), 3, ids[p->kind], call);
  dnnl_primitive_desc_destroy(hint);
  return ok;
}

// Sets up the path of one tensor between its array and the primitive's argument.
static bool make_port(vt_plan *plan, vt_step *step, const problem *p, const view *v, bool round,
                      const dnnl_memory_desc_t *wanted, port *out) {
  dnnl_dims_t dense;
  bool written = v->array == OUT;
  int64_t elements = dense_strides(v, dense);
  bool flip = p->flip && v->weights;
  *out = (port){.array = v->array};
  out->packed = flip || v->array_dtype != v->dtype || (round && !written) ||
                (!v->weights && !strides_equal(v, dense));
  view plain = *v;
  if (out->packed) {
    vt_pack *pack = &out->pack;
    *pack = (vt_pack){.from = written ? v->dtype : v->array_dtype,
                      .to = written ? v->array_dtype : v->dtype};
    pack->round = round && !written && v->dtype == VT_F32;
    for (int32_t d = 0; d < v->rank; d++) {
      int64_t at_array = v->strides[d];
      if (flip && d >= v->rank - p->spatial) {
        pack->from_offset += (v->dims[d] - 1) * at_array;
        at_array = -at_array;
      }
      vt_pack_add(pack, v->dims[d], written ? dense[d] : at_array, written ? at_array : dense[d]);
      plain.strides[d] = dense[d];
    }
    vt_pack_finish(pack);
    out->pack_offset = vt_step_reserve(step, elements * (int64_t)vt_dtype_bytes(v->dtype));
  }
  if (!v->weights) return true;
  dnnl_memory_desc_t md;
  if (dnnl_memory_desc_init_by_strides(&md, v->rank, plain.dims, vt_dnnl_dtype(v->dtype),
                                       plain.strides))
    return false;
  if (dnnl_memory_desc_equal(&md, wanted)) return true;
  out->reordered = true;
  if (!vt_dnnl_make_reorder(plan->program, written ? wanted : &md, written ? &md : wanted,
                            &out->reorder))
    return false;
  out->reorder_offset = vt_step_reserve(step, (int64_t)dnnl_memory_desc_get_size(wanted));
  if (!written) {
    step->weights_input = v->array;
    step->weights_bytes = (int64_t)dnnl_memory_desc_get_size(wanted);
  }
  if (out->reorder.scratchpad_bytes)
    out->pad_offset = vt_step_reserve(step, out->reorder.scratchpad_bytes);
  return true;
}

// `kept`: where packed weights are kept, or NULL.
static vt_status enter_port(const port *p, char *data, char *scratch, const vt_kept *kept,
                            void **out_data) {
  char *reordered = kept && kept->memory ? kept->memory : scratch + p->reorder_offset;
  if (kept && kept->ready) {
    *out_data = reordered;
    return VT_OK;
  }
  if (p->packed) {
    vt_pack_run(&p->pack, data, scratch + p->pack_offset);
    data = scratch + p->pack_offset;
  }
  if (p->reordered) {
    void *ways[2] = {data, reordered};
    VT_TRY(vt_dnnl_execute(&p->reorder, ways, scratch + p->pad_offset));
    data = reordered;
  }
  *out_data = data;
  return VT_OK;
}

static vt_status leave_port(const port *p, char *data, char *scratch) {
  char *plain = p->packed ? scratch + p->pack_offset : data;
  if (p->reordered) {
    void *ways[2] = {scratch + p->reorder_offset, plain};
    VT_TRY(vt_dnnl_execute(&p->reorder, ways, scratch + p->pad_offset));
  }
  if (p->packed) vt_pack_run(&p->pack, plain, data);
  return VT_OK;
}

static vt_status run_convolution(const vt_step *step, vt_exec *exec, vt_frame *const *frames,
                                 uint32_t count) {
  (void)exec;
  const conv_body *body = step->body;
  for (uint32_t f = 0; f < count; f++) {
    char **slots = frames[f]->slots;
    char *scratch = step->scratch_bytes ? slots[step->scratch_slot] : NULL;
    void *data[4];
    for (int i = 0; i < 2; i++)
      VT_TRY(enter_port(&body->ports[i], slots[step->input_slots[body->ports[i].array]], scratch,
                        body->ports[i].reordered ? step->kept : NULL, &data[i]));
    const port *out = &body->ports[2];
    char *result = slots[step->output_slots[0]];
    data[2] = out->reordered ? scratch + out->reorder_offset
              : out->packed  ? scratch + out->pack_offset
                             : result;
    if (step->input_count == 3) data[3] = slots[step->input_slots[2]];
    VT_TRY(vt_step_wrap(step, vt_dnnl_execute(&body->call, data,
                                              scratch ? scratch + body->scratchpad_offset : NULL)));
    VT_TRY(leave_port(out, result, scratch));
  }
  return VT_OK;
}

static bool prepare_form(vt_plan *plan, vt_step *step, problem *p, bool round, conv_body *body) {
  const view *order[3][3] = {{&p->source, &p->weights, &p->target},
                             {&p->target, &p->weights, &p->source},
                             {&p->source, &p->target, &p->weights}};
  if (!make_primitive(plan, p, step->input_count == 3, &body->call)) return false;
  for (int i = 0; i < 3; i++)
    if (!make_port(plan, step, p, order[p->kind][i], round, vt_dnnl_arg_desc(&body->call, i),
                   &body->ports[i]))
      return false;
  if (body->call.scratchpad_bytes)
    body->scratchpad_offset = vt_step_reserve(step, body->call.scratchpad_bytes);
  return true;
}

// A kernel of one pixel: every pixel of the result is a row of a matmul.
static bool as_pointwise(const conv *c, vt_contraction *out) {
  if (c->feature_groups != 1 || c->batch_groups != 1 || c->b_stride[OUT] != 1) return false;
  *out = (vt_contraction){0};
  vt_dims_push(&out->m, c->a_size[LHS], c->a_stride[LHS], 0, c->a_stride[OUT]);
  for (int32_t i = 0; i < c->spatial; i++) {
    if (c->size[RHS][i] != 1 || c->size[OUT][i] != c->size[LHS][i] || c->window_strides[i] != 1 ||
        c->padding[2 * i] != 0)
      return false; // also one that shifts the image
    vt_dims_push(&out->m, c->size[OUT][i], c->stride[LHS][i], 0, c->stride[OUT][i]);
  }
  vt_dims_push(&out->n, c->b_size[RHS], 0, c->b_stride[RHS], 1);
  vt_dims_push(&out->k, c->b_size[LHS], c->b_stride[LHS], c->a_stride[RHS], 0);
  return true;
}

// The weight gradient of one: a result of one pixel, summed over all pixels of the kernel.
static bool as_pointwise_gradient(const conv *c, vt_contraction *out) {
  if (c->feature_groups != 1 || c->batch_groups != 1 || c->b_stride[OUT] != 1) return false;
  *out = (vt_contraction){0};
  vt_dims_push(&out->k, c->b_size[LHS], c->b_stride[LHS], c->a_stride[RHS], 0);
  for (int32_t i = 0; i < c->spatial; i++) {
    if (c->size[OUT][i] != 1 || c->padding[2 * i] != 0 || c->lhs_dilation[i] != 1) return false;
    if (c->reversal[i] && c->size[RHS][i] != 1) return false;
    // A small image at its high end: the kernel reaches into the padding.
    if ((c->size[RHS][i] - 1) * c->rhs_dilation[i] >= c->size[LHS][i]) return false;
    vt_dims_push(&out->k, c->size[RHS][i], c->stride[LHS][i] * c->rhs_dilation[i],
                 c->stride[RHS][i], 0);
  }
  vt_dims_push(&out->m, c->a_size[LHS], c->a_stride[LHS], 0, c->a_stride[OUT]);
  vt_dims_push(&out->n, c->b_size[RHS], 0, c->b_stride[RHS], 1);
  return true;
}

enum { MATMUL_CHANNELS = 512 };

// Measured: gradients of 1x1 weights are faster as matmuls everywhere (2 to 6 times with AMX); the
// other two only with AMX, the gradient of the input (whose kernel has its input features
// innermost) at any size, forward from 512 channels on.
static bool step_matmul(vt_plan *plan, vt_step *step, const conv *c) {
  vt_contraction product;
  if (as_pointwise_gradient(c, &product) && c->a_size[RHS] * c->size[RHS][0] > 1)
    return vt_step_contraction(plan, step, &product);
  bool wide = c->b_size[LHS] >= MATMUL_CHANNELS || c->a_stride[RHS] == 1;
  return vt_host_has_amx() && wide && as_pointwise(c, &product) &&
         vt_step_contraction(plan, step, &product);
}

// A small weight gradient over images in dense order.
static bool as_small_gradient(const vt_plan *plan, const vt_step *step, const conv *c,
                              vt_weight_gradient *out) {
  problem p;
  if (c->spatial != 2 || c->batch_groups != 1 || !as_weight_gradient(c, &p) ||
      c->size[OUT][0] * c->size[OUT][1] >= c->size[RHS][0] * c->size[RHS][1] ||
      vt_rounds_operands(plan, step->op))
    return false;
  int64_t dense[VT_MAX_RANK];
  dense_strides(&p.target, dense);
  if (!strides_equal(&p.target, dense)) return false;
  *out = (vt_weight_gradient){
      .batch = c->b_size[LHS],
      .channels = c->a_size[LHS],
      .features = c->b_size[OUT],
      .input_strides = {c->b_stride[LHS], c->stride[LHS][0], c->stride[LHS][1], c->a_stride[LHS]},
      .weight_strides = {c->stride[OUT][0], c->stride[OUT][1], c->a_stride[OUT], c->b_stride[OUT]},
      .dtype = step->inputs[0]->type.dtype};
  for (int d = 0; d < 2; d++) {
    out->input[d] = c->size[LHS][d], out->output[d] = c->size[RHS][d];
    out->kernel[d] = c->size[OUT][d], out->low[d] = c->padding[2 * d];
    out->stride[d] = c->rhs_dilation[d], out->dilation[d] = c->window_strides[d];
  }
  return true;
}

// Weight gradients that oneDNN is slow at. A strided 1x1 gradient as a matmul would copy its left
// side first.
static bool step_gradient(vt_plan *plan, vt_step *step, const conv *c) {
  vt_weight_gradient g;
  if (!as_small_gradient(plan, step, c, &g)) return step_matmul(plan, step, c);
  if (vt_step_pairs(plan, step, &g)) return true;
  bool strided = !all(c->rhs_dilation, c->spatial, 1);
  if (!strided && step_matmul(plan, step, c)) return true;
  if (vt_step_narrow(plan, step, &g) || vt_step_wide(plan, step, &g)) return true;
  return strided && step_matmul(plan, step, c);
}

// Few features over long lines.
static bool step_lines(vt_plan *plan, vt_step *step, const conv *c) {
  if (c->batch_groups != 1 || !all(c->lhs_dilation, c->spatial, 1)) return false;
  vt_line_conv lines = {.batch = c->a_size[LHS],
                        .groups = c->feature_groups,
                        .channels = c->a_size[RHS],
                        .features = c->b_size[RHS],
                        .input_strides = {c->a_stride[LHS], c->b_stride[LHS]},
                        .kernel_strides = {c->a_stride[RHS], c->b_stride[RHS]},
                        .output_strides = {c->a_stride[OUT], c->b_stride[OUT]},
                        .round = vt_rounds_operands(plan, step->op)};
  for (int i = 0; i < VT_LINE_SPATIAL; i++) {
    int d = i - (VT_LINE_SPATIAL - c->spatial);
    lines.input[i] = d < 0 ? 1 : c->size[LHS][d];
    lines.kernel[i] = d < 0 ? 1 : c->size[RHS][d];
    lines.output[i] = d < 0 ? 1 : c->size[OUT][d];
    lines.stride[i] = d < 0 ? 1 : c->window_strides[d];
    lines.dilation[i] = d < 0 ? 1 : c->rhs_dilation[d];
    lines.low[i] = d < 0 ? 0 : c->padding[2 * d];
    lines.reversed[i] = d >= 0 && c->reversal[d];
    lines.input_strides[2 + i] = d < 0 ? 0 : c->stride[LHS][d];
    lines.kernel_strides[2 + i] = d < 0 ? 0 : c->stride[RHS][d];
    lines.output_strides[2 + i] = d < 0 ? 0 : c->stride[OUT][d];
  }
  return vt_step_line_conv(plan, step, &lines);
}

// In strips, with AMX: the image's features are innermost, and no dimension is dilated but the
// kernel's.
static bool step_strip(vt_plan *plan, vt_step *step, const conv *c) {
  vt_contraction product;
  if (c->feature_groups != 1 || c->batch_groups != 1 || c->b_stride[OUT] != 1 ||
      c->b_stride[LHS] != 1 || !all(c->lhs_dilation, c->spatial, 1) || c->spatial > 2 ||
      vt_rounds_operands(plan, step->op))
    return false;
  if (as_pointwise(c, &product)) return vt_step_contraction(plan, step, &product);
  vt_strip strip = {.batch_rank = 1,
                    .batch_sizes = {c->a_size[LHS]},
                    .batch_strides = {{c->a_stride[LHS]}, {0}},
                    .m = 1,
                    .n = c->b_size[OUT],
                    .k = c->b_size[LHS],
                    .rhs_row = c->a_stride[RHS],
                    .rhs_column = c->b_stride[RHS],
                    .windowed = true};
  vt_strip_window *w = &strip.window;
  w->channels = c->b_size[LHS];
  int64_t dense = c->b_size[OUT];
  for (int i = 1; i >= 0; i--) {
    int d = i - (2 - c->spatial); // of one dimension: a line
    w->input[i] = w->output[i] = w->kernel[i] = w->stride[i] = w->dilation[i] = 1;
    if (d < 0) continue;
    if (c->stride[OUT][d] != dense) return false;
    w->input[i] = c->size[LHS][d], w->output[i] = c->size[OUT][d];
    w->kernel[i] = c->size[RHS][d];
    w->stride[i] = c->window_strides[d], w->dilation[i] = c->rhs_dilation[d];
    w->low[i] = c->padding[2 * d];
    w->input_strides[i] = c->stride[LHS][d], w->rhs_taps[i] = c->stride[RHS][d];
    if (c->reversal[d]) {
      w->rhs_start += (w->kernel[i] - 1) * w->rhs_taps[i];
      w->rhs_taps[i] = -w->rhs_taps[i];
    }
    bool inside = w->low[i] == 0 && (w->output[i] - 1) * w->stride[i] < w->input[i];
    if (w->kernel[i] == 1 && inside) { // a stride leaves pixels out
      w->input[i] = w->output[i], w->input_strides[i] *= w->stride[i];
      w->stride[i] = 1;
    }
    dense *= w->output[i];
    strip.m *= w->output[i], strip.k *= w->kernel[i];
  }
  return c->a_stride[OUT] == dense && vt_step_strip(plan, step, &strip);
}

static bool step_form(vt_plan *plan, vt_step *step, const conv *c, bool by_gemm) {
  problem p;
  bool (*forms[4])(const conv *, problem *);
  bool round = vt_rounds_operands(plan, step->op);
  int count = forms_of(c, by_gemm, forms);
  conv_body *body = VT_NEW(&plan->program->arena, conv_body);
  for (int i = 0; i < count; i++) {
    step->scratch_bytes = step->weights_bytes = 0;
    if (!forms[i](c, &p)) continue;
    p.by_gemm = by_gemm;
    if (!choose_types(step, &p) || !prepare_form(plan, step, &p, round, body)) continue;
    step->body = body;
    step->run = run_convolution;
    step->runner = "onednn";
    return true;
  }
  step->scratch_bytes = step->weights_bytes = 0;
  return false;
}

bool vt_step_convolution(vt_plan *plan, vt_step *step) {
  conv c;
  if (!read_conv(step->op, &c)) return false;
  // A bias runs along the result's last dimension, which must be the feature dimension.
  if (step->input_count == 3 &&
      (c.b_stride[OUT] != 1 || vt_type_elements(step->inputs[2]->type) != c.b_size[OUT]))
    return false;
  if (step_lines(plan, step, &c) || step_strip(plan, step, &c)) return true;
  if (step_gradient(plan, step, &c)) return true;
  if (step_form(plan, step, &c, false)) return true;
  // A bias can wait: without it another form may do.
  bool grouped = c.feature_groups * c.batch_groups > 1;
  return grouped && step->input_count == 2 && step_form(plan, step, &c, true);
}
