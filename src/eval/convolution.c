// SPDX-License-Identifier: Apache-2.0
// convolution.c - convolution as matrix products over patches.
//
// The input is laid out as [batch][spatial][features], the kernel as [group][window][features
// in][features out]. For a block of output positions the patches under the window become rows
// (zeros where the window sees padding or a hole) and are multiplied with the group's kernel.
// Cross-correlation unless window_reversal.
#include <stdlib.h>
#include <string.h>

#include "eval/dot.h"

enum { BLOCK_BYTES = 1 << 20 };

typedef struct conv_plan {
  int32_t spatial;
  int64_t in_size[VT_MAX_RANK], out_size[VT_MAX_RANK], window[VT_MAX_RANK];
  const int64_t *stride, *in_dilation, *window_dilation;
  int64_t pad_low[VT_MAX_RANK];
  int64_t batch, features;     // of the input
  int64_t group_in, group_out; // features per group
  int64_t feature_groups, batch_groups;
  int64_t places, window_places; // products of out_size, window
} conv_plan;

static bool bad_dim(int64_t d, int32_t rank) {
  return d < 0 || d >= rank;
}

static vt_status plan_conv(const vt_eval_call *call, const int64_t *padding, conv_plan *p) {
  const vt_op *op = call->op;
  vt_type in = call->in[0].type, kernel = call->in[1].type, out = call->out[0].type;
  uint32_t spatial;
  const int64_t *in_dims = vt_attr_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, &spatial);
  const int64_t *kernel_dims = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, NULL);
  const int64_t *out_dims = vt_attr_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  int64_t batch = vt_attr_i64(op, VT_ATTR_INPUT_BATCH_DIMENSION);
  int64_t feature = vt_attr_i64(op, VT_ATTR_INPUT_FEATURE_DIMENSION);
  int64_t kernel_in = vt_attr_i64(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION);
  int64_t kernel_out = vt_attr_i64(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION);
  *p = (conv_plan){.spatial = (int32_t)spatial, .places = 1, .window_places = 1};
  if (in.rank != (int32_t)spatial + 2 || kernel.rank != in.rank || out.rank != in.rank ||
      bad_dim(batch, in.rank) || bad_dim(feature, in.rank) || bad_dim(kernel_in, in.rank) ||
      bad_dim(kernel_out, in.rank))
    return vt_eval_invalid(op, "dimension numbers");
  p->stride = vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, NULL);
  p->in_dilation = vt_attr_ints(op, VT_ATTR_LHS_DILATION, NULL);
  p->window_dilation = vt_attr_ints(op, VT_ATTR_RHS_DILATION, NULL);
  p->feature_groups = vt_attr_i64_or(op, VT_ATTR_FEATURE_GROUP_COUNT, 1);
  p->batch_groups = vt_attr_i64_or(op, VT_ATTR_BATCH_GROUP_COUNT, 1);
  for (uint32_t i = 0; i < spatial; i++) {
    if (bad_dim(in_dims[i], in.rank) || bad_dim(kernel_dims[i], in.rank) ||
        bad_dim(out_dims[i], in.rank) || p->stride[i] < 1 || p->in_dilation[i] < 1 ||
        p->window_dilation[i] < 1)
      return vt_eval_invalid(op, "window");
    p->in_size[i] = in.dims[in_dims[i]];
    p->window[i] = kernel.dims[kernel_dims[i]];
    p->out_size[i] = out.dims[out_dims[i]];
    p->pad_low[i] = padding[2 * i];
    p->places *= p->out_size[i];
    p->window_places *= p->window[i];
  }
  p->batch = in.dims[batch];
  p->features = in.dims[feature];
  int64_t groups = p->feature_groups * p->batch_groups;
  p->group_in = kernel.dims[kernel_in];
  p->group_out = groups > 0 ? kernel.dims[kernel_out] / groups : 0;
  if (groups < 1 || (p->feature_groups > 1 && p->batch_groups > 1) ||
      p->group_in * p->feature_groups != p->features ||
      p->group_out * groups != kernel.dims[kernel_out] || p->batch % p->batch_groups)
    return vt_eval_invalid(op, "group counts");
  return VT_OK;
}

// [batch][spatial][features]
static vt_status load_input(const vt_eval_call *call, const vt_dot_mode *mode, void **out,
                            bool *owned) {
  vt_type type = call->in[0].type;
  uint32_t spatial;
  const int64_t *places = vt_attr_ints(call->op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, &spatial);
  int64_t strides[VT_MAX_RANK], dims[VT_MAX_RANK], from[VT_MAX_RANK];
  vt_type_strides(type, strides);
  for (uint32_t i = 0; i < spatial + 2; i++) {
    int64_t d = i == 0             ? vt_attr_i64(call->op, VT_ATTR_INPUT_BATCH_DIMENSION)
                : i == spatial + 1 ? vt_attr_i64(call->op, VT_ATTR_INPUT_FEATURE_DIMENSION)
                                   : places[i - 1];
    dims[i] = type.dims[d];
    from[i] = strides[d];
  }
  return vt_dot_operand(mode, 0, call->in[0], 0, type.rank, dims, from, out, owned);
}

// [group][window][features in][features out]; reversed windows are read backwards.
static vt_status load_kernel(const vt_eval_call *call, const conv_plan *p, const vt_dot_mode *mode,
                             void **out, bool *owned) {
  vt_type type = call->in[1].type;
  const int64_t *places = vt_attr_ints(call->op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, NULL);
  const vt_attr *reversal = vt_op_attr(call->op, VT_ATTR_WINDOW_REVERSAL);
  int64_t strides[VT_MAX_RANK], dims[VT_MAX_RANK + 1], from[VT_MAX_RANK + 1], offset = 0;
  vt_type_strides(type, strides);
  int64_t out_dim = vt_attr_i64(call->op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION);
  int32_t n = p->spatial;
  if (n + 3 > VT_MAX_RANK) return vt_eval_refuse(call->op, "this rank");
  dims[0] = p->feature_groups * p->batch_groups;
  from[0] = p->group_out * strides[out_dim];
  for (int32_t i = 0; i < n; i++) {
    dims[i + 1] = p->window[i];
    from[i + 1] = strides[places[i]];
    if (!reversal || !reversal->ints[i] || !p->window[i]) continue;
    offset += (p->window[i] - 1) * from[i + 1];
    from[i + 1] = -from[i + 1];
  }
  dims[n + 1] = p->group_in;
  from[n + 1] = strides[vt_attr_i64(call->op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION)];
  dims[n + 2] = p->group_out;
  from[n + 2] = strides[out_dim];
  return vt_dot_operand(mode, 1, call->in[1], offset, n + 3, dims, from, out, owned);
}

// Input position of window position `w` at output position `o`; false for padding and holes.
static bool input_place(const conv_plan *p, const int64_t *o, const int64_t *w, int64_t *out) {
  int64_t place = 0;
  for (int32_t d = 0; d < p->spatial; d++) {
    int64_t at = o[d] * p->stride[d] - p->pad_low[d] + w[d] * p->window_dilation[d];
    if (at < 0 || at % p->in_dilation[d]) return false;
    at /= p->in_dilation[d];
    if (at >= p->in_size[d]) return false;
    place = place * p->in_size[d] + at;
  }
  *out = place;
  return true;
}

static void fill_patches(const conv_plan *p, const char *image, size_t bytes, int64_t first_feature,
                         int64_t first, int64_t count, char *patches) {
  int64_t o[VT_MAX_RANK] = {0}, rest = first;
  size_t piece = (size_t)p->group_in * bytes;
  for (int32_t d = p->spatial; d-- > 0;) {
    o[d] = rest % p->out_size[d];
    rest /= p->out_size[d];
  }
  for (int64_t i = 0; i < count; i++) {
    int64_t w[VT_MAX_RANK] = {0}, place;
    do {
      if (input_place(p, o, w, &place))
        memcpy(patches, image + (size_t)(place * p->features + first_feature) * bytes, piece);
      else
        memset(patches, 0, piece);
      patches += piece;
    } while (vt_eval_next(p->spatial, p->window, w));
    vt_eval_next(p->spatial, p->out_size, o);
  }
}

// Products of one image and one group, stored as [places][all output features] at `first_out`.
static vt_status run_image(const conv_plan *p, vt_dtype type, const char *image,
                           int64_t first_feature, const char *kernel, char *patches, int64_t block,
                           char *product, char *result, int64_t out_features, int64_t first_out) {
  size_t bytes = vt_dtype_bytes(type);
  int64_t depth = p->window_places * p->group_in;
  for (int64_t at = 0; at < p->places; at += block) {
    int64_t now = p->places - at < block ? p->places - at : block;
    if (depth) fill_patches(p, image, bytes, first_feature, at, now, patches);
    VT_TRY(vt_dot_matmul(type, 1, now, p->group_out, depth, patches, kernel, product));
    for (int64_t i = 0; i < now; i++)
      memcpy(result + (size_t)((at + i) * out_features + first_out) * bytes,
             product + (size_t)(i * p->group_out) * bytes, (size_t)p->group_out * bytes);
  }
  return VT_OK;
}

// [batch][places][features] in the computation type to the result's layout and type.
static vt_status store_result(const vt_eval_call *call, const conv_plan *p, vt_dtype type,
                              char *result) {
  vt_tensor *out = &call->out[0];
  const int64_t *places = vt_attr_ints(call->op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  int64_t strides[VT_MAX_RANK], dims[VT_MAX_RANK], from[VT_MAX_RANK], to[VT_MAX_RANK];
  int64_t n = vt_type_elements(out->type);
  size_t bytes = vt_dtype_bytes(out->type.dtype);
  VT_TRY(vt_eval_convert_array(type, out->type.dtype, n, result, result));
  vt_type_strides(out->type, strides);
  for (int32_t i = 0; i < p->spatial + 2; i++) {
    int64_t d = i == 0                ? vt_attr_i64(call->op, VT_ATTR_OUTPUT_BATCH_DIMENSION)
                : i == p->spatial + 1 ? vt_attr_i64(call->op, VT_ATTR_OUTPUT_FEATURE_DIMENSION)
                                      : places[i - 1];
    if (bad_dim(d, out->type.rank)) return vt_eval_invalid(call->op, "dimension numbers");
    dims[i] = out->type.dims[d];
    to[i] = strides[d];
  }
  vt_type_strides((vt_type){type, out->type.rank, dims}, from);
  vt_eval_move(bytes, out->type.rank, dims, result, from, out->data, to);
  return VT_OK;
}

vt_status vt_eval_convolve(const vt_eval_call *call, const int64_t *padding) {
  conv_plan p;
  VT_TRY(plan_conv(call, padding, &p));
  vt_dot_mode mode = vt_dot_mode_of(call->op, call->env);
  int64_t groups = p.feature_groups * p.batch_groups, out_features = groups * p.group_out;
  int64_t out_batch = p.batch / p.batch_groups, n = out_batch * p.places * out_features;
  if (n != vt_type_elements(call->out[0].type)) return vt_eval_invalid(call->op, "shapes");
  if (!n) return VT_OK;
  int64_t bytes = (int64_t)vt_dtype_bytes(mode.type), depth = p.window_places * p.group_in;
  int64_t block = BLOCK_BYTES / (bytes * (depth ? depth : 1));
  block = block < 16 ? 16 : block > p.places ? p.places : block;
  void *input = NULL, *kernel = NULL;
  char *patches = NULL, *product = NULL, *result = NULL;
  bool own_input = false, own_kernel = false;
  vt_status st = VT_OK;
  VT_TRY_OUT(load_input(call, &mode, &input, &own_input));
  VT_TRY_OUT(load_kernel(call, &p, &mode, &kernel, &own_kernel));
  VT_TRY_OUT(vt_eval_scratch(block * depth * bytes, &patches));
  VT_TRY_OUT(vt_eval_scratch(block * p.group_out * bytes, &product));
  int64_t out_bytes = (int64_t)vt_dtype_bytes(call->out[0].type.dtype);
  VT_TRY_OUT(vt_eval_scratch(n * (bytes > out_bytes ? bytes : out_bytes), &result));
  int64_t in_places = 1;
  for (int32_t d = 0; d < p.spatial; d++) in_places *= p.in_size[d];
  for (int64_t b = 0; b < out_batch; b++)
    for (int64_t g = 0; g < groups; g++) {
      int64_t image = p.batch_groups > 1 ? g * out_batch + b : b;
      int64_t feature = p.batch_groups > 1 ? 0 : g * p.group_in;
      VT_TRY_OUT(run_image(
          &p, mode.type, (const char *)input + image * in_places * p.features * bytes, feature,
          (const char *)kernel + g * depth * p.group_out * bytes, patches, block, product,
          result + b * p.places * out_features * bytes, out_features, g * p.group_out));
    }
  VT_TRY_OUT(store_result(call, &p, mode.type, result));
out:
  if (own_input) free(input);
  if (own_kernel) free(kernel);
  free(patches);
  free(product);
  free(result);
  return st;
}

vt_status vt_eval_convolution(const vt_eval_call *call) {
  return vt_eval_convolve(call, vt_attr_ints(call->op, VT_ATTR_PADDING, NULL));
}
