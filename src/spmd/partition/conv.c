// SPDX-License-Identifier: Apache-2.0
// conv.c - convolutions.
//
// A convolution is a contraction: input features are contracted, the batch is free on the left, the
// kernel's output features on the right; a window of one element leaves its dimension free, one
// over all of it contracts it. So the rules for dots apply (dot.c), with these before them
// where windows lie over cut dimensions or features fall into groups:
// - groups: each device has some groups of features;
// - both arrays cut along windows, as for the gradient of a kernel: each device has a part of the
//   kernel and fetches the input that it meets, and the results are added up;
// - result cut along windows: each device fetches the input of its windows; the kernel is whole.
#include <string.h>

#include "base/check.h"
#include "spmd/partition/dot.h"
#include "spmd/partition/halo.h"

typedef struct conv {
  const vt_op *op;
  int32_t lhs_batch, lhs_feature, rhs_in, rhs_out, out_batch, out_feature;
  int32_t count; // of spatial dimensions
  int32_t lhs[VT_MAX_RANK], rhs[VT_MAX_RANK], out[VT_MAX_RANK];
  vt_window windows[VT_MAX_RANK];
  bool is_window[VT_MAX_RANK]; // neither free nor contracted
  bool reversed;
  int64_t feature_groups, batch_groups, batch;
} conv;

// One in the current group.
typedef struct conv_in {
  vt_parter *p;
  const vt_contraction *c;
  const conv *v;
  vt_part lhs, rhs;
  vt_type type;
  const vt_assign *out;
} conv_in;

// ---- the local op -------------------------------------------------------------------------------

static vt_value *emit_windows(vt_parter *p, const vt_contraction *c, vt_value *lhs, vt_value *rhs,
                              const vt_window *windows) {
  const conv *v = c->conv;
  int64_t dims[VT_MAX_RANK], padding[2 * VT_MAX_RANK];
  int64_t features = v->feature_groups, batches = v->batch_groups;
  if (features > 1) features = lhs->type.dims[v->lhs_feature] / rhs->type.dims[v->rhs_in];
  if (batches > 1) batches = batches * lhs->type.dims[v->lhs_batch] / v->batch;
  dims[v->out_batch] = lhs->type.dims[v->lhs_batch] / batches;
  dims[v->out_feature] = rhs->type.dims[v->rhs_out];
  for (int32_t i = 0; i < v->count; i++) {
    vt_window w = windows[i];
    w.size = rhs->type.dims[v->rhs[i]];
    bool fits = vt_window_output(lhs->type.dims[v->lhs[i]], w, &dims[v->out[i]]);
    vt_assert(fits);
    (void)fits;
    padding[2 * i] = w.low;
    padding[2 * i + 1] = w.high;
  }
  vt_type result = v->op->results[0].type;
  vt_type type = vt_type_of_dims(p, result.dtype, result.rank, dims);
  vt_op *copy = vt_copy_op(p, v->op, &type, 2, (vt_value *[]){lhs, rhs});
  vt_op_set_ints(copy, VT_ATTR_PADDING, 2 * (uint32_t)v->count, padding);
  vt_op_set_i64(copy, VT_ATTR_FEATURE_GROUP_COUNT, features);
  vt_op_set_i64(copy, VT_ATTR_BATCH_GROUP_COUNT, batches);
  return &vt_emit_finished(p, copy)->results[0];
}

static vt_value *emit_conv(vt_parter *p, const vt_contraction *c, vt_part lhs, vt_part rhs) {
  const conv *v = c->conv;
  return emit_windows(p, c, lhs.local, rhs.local, v->windows);
}

static vt_value *to_out(const conv_in *in, vt_value *local, const vt_assign *assign) {
  return vt_reshard(in->p, (vt_part){in->type, local, assign}, in->out).local;
}

// ---- groups of features -------------------------------------------------------------------------

static const vt_assign *one_dim(const conv_in *in, const vt_assign *a, int32_t rank, int32_t to,
                                int32_t from) {
  int32_t map[VT_MAX_RANK];
  for (int32_t d = 0; d < rank; d++) map[d] = d == to ? from : -1;
  return vt_assign_project(&in->p->assigns, a, rank, map);
}

// Groups are dealt to the devices; `dim` of the left operand holds them.
static vt_value *deal_groups(conv_in *in, int32_t dim, int64_t groups) {
  const conv *v = in->v;
  int32_t n = in->p->device_count, rank = in->lhs.global.rank;
  if (groups % n) return NULL;
  if (in->lhs.assign->dims[dim] == n)
    in->rhs = vt_reshard(in->p, in->rhs, one_dim(in, in->lhs.assign, rank, v->rhs_out, dim));
  else if (in->rhs.assign->dims[v->rhs_out] == n)
    in->lhs = vt_reshard(in->p, in->lhs, one_dim(in, in->rhs.assign, rank, dim, v->rhs_out));
  else
    return NULL;
  vt_value *local = emit_windows(in->p, in->c, in->lhs.local, in->rhs.local, v->windows);
  local = vt_contract_sum(in->p, in->c, local);
  return to_out(in, local, one_dim(in, in->lhs.assign, rank, v->out_feature, dim));
}

static vt_value *by_groups(conv_in *in) {
  const conv *v = in->v;
  if (v->batch_groups > 1 && v->batch == v->batch_groups)
    return deal_groups(in, v->lhs_batch, v->batch_groups);
  return v->feature_groups > 1 ? deal_groups(in, v->lhs_feature, v->feature_groups) : NULL;
}

// Whether features are cut that fall into groups.
static bool cuts_groups(const conv_in *in) {
  const conv *v = in->v;
  bool rhs = in->rhs.assign->dims[v->rhs_out] > 1;
  return (v->feature_groups > 1 && (rhs || in->lhs.assign->dims[v->lhs_feature] > 1)) ||
         (v->batch_groups > 1 && (rhs || in->lhs.assign->dims[v->lhs_batch] > 1));
}

// ---- both arrays cut ----------------------------------------------------------------------------

// The kernel's dimensions that match those of the input, or the other way round.
static const vt_assign *match_sides(const conv_in *in, const vt_assign *a, bool to_rhs) {
  const conv *v = in->v;
  int32_t map[VT_MAX_RANK];
  map[to_rhs ? v->rhs_out : v->lhs_batch] = to_rhs ? v->lhs_batch : v->rhs_out;
  map[to_rhs ? v->rhs_in : v->lhs_feature] = to_rhs ? v->lhs_feature : v->rhs_in;
  for (int32_t i = 0; i < v->count; i++)
    map[to_rhs ? v->rhs[i] : v->lhs[i]] = to_rhs ? v->lhs[i] : v->rhs[i];
  return vt_assign_project(&in->p->assigns, a, a->rank, map);
}

static bool align_sides(conv_in *in) {
  bool lhs_follows = vt_type_bytes(in->lhs.global) < vt_type_bytes(in->rhs.global);
  if (lhs_follows)
    in->lhs = vt_reshard(in->p, in->lhs, match_sides(in, in->rhs.assign, false));
  else
    in->rhs = vt_reshard(in->p, in->rhs, match_sides(in, in->lhs.assign, true));
  return in->lhs.assign->dims[in->v->lhs_batch] == 1 && in->rhs.assign->dims[in->v->rhs_out] == 1 &&
         !cuts_groups(in);
}

// The input that the kernel of each tile along spatial dimension i meets, over all its places.
static bool fetch_for_kernel(const conv_in *in, int32_t i, vt_value *zero, vt_value **local,
                             vt_window *window) {
  int32_t dim = in->v->lhs[i], n = in->lhs.assign->dims[dim];
  int64_t size = in->rhs.local->type.dims[in->v->rhs[i]], windows, reach;
  vt_window w = in->v->windows[i];
  if (n == 1) return true;
  if (!vt_window_output(in->lhs.global.dims[dim], w, &windows) || !windows ||
      !vt_window_spread(size, w.window_dilation, &reach))
    return false;
  vt_arena scratch = {0};
  int64_t *start = VT_NEW_ARRAY(&scratch, int64_t, n), *limit = VT_NEW_ARRAY(&scratch, int64_t, n);
  vt_halo halo = {.dim = dim,
                  .tiles = n,
                  .valid = in->lhs.global.dims[dim],
                  .size = w.stride * (windows - 1) + reach,
                  .start = start,
                  .limit = limit};
  for (int32_t t = 0; t < n; t++) {
    start[t] = size * w.window_dilation * t - w.low;
    limit[t] = start[t] + halo.size;
  }
  bool done = vt_exchange_halo(in->p, in->lhs.assign, *local, &halo, zero, local);
  vt_arena_free(&scratch);
  window->low = window->high = 0;
  return done;
}

static vt_value *add_kernel_parts(conv_in *in) {
  const conv *v = in->v;
  vt_parter *p = in->p;
  vt_window windows[VT_MAX_RANK];
  if (v->reversed || !align_sides(in)) return NULL;
  for (int32_t i = 0; i < v->count; i++)
    if (v->windows[i].base_dilation != 1) return NULL;
  memcpy(windows, v->windows, sizeof windows);
  vt_value *zero = vt_emit_zero(p, in->lhs.global.dtype);
  vt_value *lhs = vt_mask(p, in->lhs, ~0u, zero);
  vt_value *rhs = vt_mask(p, in->rhs, ~0u, vt_emit_zero(p, in->rhs.global.dtype));
  for (int32_t i = 0; i < v->count; i++)
    if (!fetch_for_kernel(in, i, zero, &lhs, &windows[i])) return NULL;
  vt_value *sum = emit_windows(p, in->c, lhs, rhs, windows);
  sum = vt_contract_sum(p, in->c, sum);
  int32_t dims[VT_MAX_RANK], count = 0;
  for (int32_t d = 0; d < in->lhs.assign->rank; d++)
    if (in->lhs.assign->dims[d] > 1) dims[count++] = d;
  const vt_groups *groups = vt_groups_along(&p->assigns, in->lhs.assign, count, dims);
  sum = vt_emit_reduction(p, sum, NULL, groups);
  return to_out(in, sum, vt_assign_whole(&p->assigns, in->type.rank, p->device_count));
}

// ---- the result cut -----------------------------------------------------------------------------

static vt_value *fetch_for_result(conv_in *in) {
  const conv *v = in->v;
  vt_parter *p = in->p;
  vt_windowed w;
  vt_window over[VT_MAX_RANK], windows[VT_MAX_RANK];
  int32_t map[VT_MAX_RANK];
  if (in->out->dims[v->out_feature] > 1 || cuts_groups(in) ||
      (v->batch_groups > 1 && in->out->dims[v->out_batch] > 1))
    return NULL;
  over[v->lhs_batch] = over[v->lhs_feature] = (vt_window){1, 1, 0, 0, 1, 1};
  map[v->lhs_batch] = v->out_batch;
  map[v->lhs_feature] = -1;
  for (int32_t i = 0; i < v->count; i++) {
    over[v->lhs[i]] = v->windows[i];
    map[v->lhs[i]] = v->out[i];
  }
  const vt_assign *target = vt_assign_project(&p->assigns, in->out, in->type.rank, map);
  const vt_assign *whole = vt_assign_whole(&p->assigns, in->rhs.global.rank, p->device_count);
  vt_part lhs = vt_reshard(p, in->lhs, target), rhs = vt_reshard(p, in->rhs, whole);
  vt_value *zero = vt_emit_zero(p, lhs.global.dtype), *offsets[VT_MAX_RANK] = {0};
  if (!vt_reshard_windowed(p, lhs, over, target, zero, &w)) return NULL;
  for (int32_t i = 0; i < v->count; i++) {
    windows[i] = w.windows[v->lhs[i]];
    offsets[v->out[i]] = w.offsets[v->lhs[i]];
  }
  vt_value *local = emit_windows(p, in->c, w.local, rhs.local, windows);
  local = vt_contract_sum(p, in->c, local);
  return vt_emit_dynamic_slice(p, local, offsets, vt_local_type(p, in->type, in->out));
}

// ---- which of these -----------------------------------------------------------------------------

static int32_t tiles_along(const vt_assign *a, const vt_dot_dims *dims, int side) {
  int32_t tiles = 1;
  for (int32_t i = 0; i < dims->count; i++) tiles *= a->dims[dims->dims[i].at[side]];
  return tiles;
}

static bool is_special(const conv_in *in) {
  const conv *v = in->v;
  const vt_dot_dims *batch = &in->c->batch, *contracted = &in->c->contracted;
  if (v->feature_groups > 1 || v->batch_groups > 1) return true;
  bool cut = false;
  for (int32_t i = 0; i < v->count; i++)
    cut = cut || (v->is_window[i] &&
                  (in->lhs.assign->dims[v->lhs[i]] > 1 || in->rhs.assign->dims[v->rhs[i]] > 1 ||
                   in->out->dims[v->out[i]] > 1));
  if (!cut) return false;
  return tiles_along(in->lhs.assign, batch, VT_SIDE_LHS) == 1 &&
         tiles_along(in->rhs.assign, batch, VT_SIDE_RHS) == 1 &&
         tiles_along(in->out, batch, VT_SIDE_OUT) == 1 &&
         (tiles_along(in->lhs.assign, contracted, VT_SIDE_LHS) == 1 ||
          tiles_along(in->rhs.assign, contracted, VT_SIDE_RHS) == 1);
}

static vt_value *special(vt_parter *p, const vt_contraction *c, vt_part lhs, vt_part rhs,
                         vt_type type, const vt_assign *out) {
  const conv_in in = {p, c, c->conv, lhs, rhs, type, out};
  conv_in trial = in;
  if (!is_special(&in)) return NULL;
  vt_value *v = by_groups(&trial);
  trial = in;
  if (!v && vt_assign_is_cut(lhs.assign) && vt_assign_is_cut(rhs.assign))
    v = add_kernel_parts(&trial);
  trial = in;
  if (!v && vt_assign_is_cut(out)) v = fetch_for_result(&trial);
  return v;
}

// ---- convolution --------------------------------------------------------------------------------

static int32_t dim_of(const vt_op *op, vt_attr_key key) {
  return (int32_t)vt_attr_i64(op, key);
}

static void read_spatial(const vt_op *op, conv *v) {
  uint32_t count;
  const int64_t *lhs = vt_attr_ints(op, VT_ATTR_INPUT_SPATIAL_DIMENSIONS, &count);
  const int64_t *rhs = vt_attr_ints(op, VT_ATTR_KERNEL_SPATIAL_DIMENSIONS, NULL);
  const int64_t *out = vt_attr_ints(op, VT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, NULL);
  const int64_t *stride = vt_attr_ints(op, VT_ATTR_WINDOW_STRIDES, NULL);
  const int64_t *padding = vt_attr_ints(op, VT_ATTR_PADDING, NULL);
  const int64_t *base = vt_attr_ints(op, VT_ATTR_LHS_DILATION, NULL);
  const int64_t *window = vt_attr_ints(op, VT_ATTR_RHS_DILATION, NULL);
  const int64_t *reversal = vt_attr_ints(op, VT_ATTR_WINDOW_REVERSAL, NULL);
  v->count = (int32_t)count;
  for (int32_t i = 0; i < v->count; i++) {
    v->lhs[i] = (int32_t)lhs[i];
    v->rhs[i] = (int32_t)rhs[i];
    v->out[i] = (int32_t)out[i];
    v->windows[i] = (vt_window){op->operands[1]->type.dims[rhs[i]],
                                stride[i],
                                padding[2 * i],
                                padding[2 * i + 1],
                                base[i],
                                window[i]};
    v->reversed = v->reversed || reversal[i];
  }
}

static void read_conv(const vt_op *op, conv *v) {
  *v = (conv){.op = op,
              .lhs_batch = dim_of(op, VT_ATTR_INPUT_BATCH_DIMENSION),
              .lhs_feature = dim_of(op, VT_ATTR_INPUT_FEATURE_DIMENSION),
              .rhs_in = dim_of(op, VT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION),
              .rhs_out = dim_of(op, VT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION),
              .out_batch = dim_of(op, VT_ATTR_OUTPUT_BATCH_DIMENSION),
              .out_feature = dim_of(op, VT_ATTR_OUTPUT_FEATURE_DIMENSION),
              .feature_groups = vt_attr_i64(op, VT_ATTR_FEATURE_GROUP_COUNT),
              .batch_groups = vt_attr_i64(op, VT_ATTR_BATCH_GROUP_COUNT)};
  v->batch = op->operands[0]->type.dims[v->lhs_batch];
  read_spatial(op, v);
}

static void add_dim(vt_dot_dims *dims, int32_t lhs, int32_t rhs, int32_t out) {
  dims->dims[dims->count++] = (vt_dot_dim){{lhs, rhs, out}};
}

// Groups are a batch dimension where tiles hold whole groups; elsewhere they must not be cut.
static void add_features(const conv *v, vt_contraction *c, const vt_assign *lhs,
                         const vt_assign *rhs, const vt_assign *out) {
  int64_t groups = v->feature_groups > 1 ? v->feature_groups : v->batch_groups;
  int32_t dim = v->feature_groups > 1 ? v->lhs_feature : v->lhs_batch;
  bool whole_groups = groups % lhs->dims[dim] == 0 && groups % rhs->dims[v->rhs_out] == 0 &&
                      groups % out->dims[v->out_feature] == 0;
  if (groups > 1 && whole_groups) add_dim(&c->batch, dim, v->rhs_out, v->out_feature);
  if (groups == 1) add_dim(&c->rhs_free, -1, v->rhs_out, v->out_feature);
  if (v->feature_groups == 1) add_dim(&c->contracted, v->lhs_feature, v->rhs_in, -1);
  if (v->batch_groups == 1) add_dim(&c->lhs_free, v->lhs_batch, -1, v->out_batch);
}

static void add_spatial(conv *v, vt_contraction *c) {
  vt_type in = v->op->operands[0]->type, out = v->op->results[0].type;
  for (int32_t i = 0; i < v->count; i++) {
    vt_window w = v->windows[i];
    bool plain = !w.low && !w.high && w.base_dilation == 1 && !v->reversed;
    if (plain && w.size == 1 && w.stride == 1)
      add_dim(&c->lhs_free, v->lhs[i], -1, v->out[i]);
    else if (plain && w.size == in.dims[v->lhs[i]] && w.window_dilation == 1 &&
             out.dims[v->out[i]] == 1)
      add_dim(&c->contracted, v->lhs[i], v->rhs[i], -1);
    else
      v->is_window[i] = true;
  }
}

// Dimensions of the kernel that match none of the other arrays: those of one element, and the input
// features of groups.
static uint32_t alone_in_kernel(const conv *v) {
  vt_type kernel = v->op->operands[1]->type;
  uint32_t mask = v->feature_groups > 1 ? 1u << v->rhs_in : 0;
  for (int32_t i = 0; i < v->count; i++)
    if (kernel.dims[v->rhs[i]] == 1) mask |= 1u << v->rhs[i];
  return mask;
}

vt_status vt_partition_convolution(vt_parter *p, const vt_op *op) {
  vt_part lhs = vt_part_of(p, op->operands[0]), rhs = vt_part_of(p, op->operands[1]);
  vt_type type = op->results[0].type;
  const vt_assign *out = vt_part_wanted(p, op, 0);
  if (out->only >= 0 || lhs.assign->only >= 0 || rhs.assign->only >= 0 || !vt_type_elements(type) ||
      !vt_type_elements(lhs.global) || !vt_type_elements(rhs.global))
    return vt_partition_whole(p, op);
  conv v;
  read_conv(op, &v);
  vt_contraction c = {.op = op, .emit = emit_conv, .special = special, .conv = &v};
  c.ranks[VT_SIDE_LHS] = c.ranks[VT_SIDE_RHS] = c.ranks[VT_SIDE_OUT] = type.rank;
  add_spatial(&v, &c);
  rhs = vt_reshard(p, rhs, vt_assign_replicate(&p->assigns, rhs.assign, alone_in_kernel(&v)));
  add_features(&v, &c, lhs.assign, rhs.assign, out);
  vt_part_set(p, &op->results[0], (vt_part){type, vt_contract(p, &c, lhs, rhs, type, out), out});
  return VT_OK;
}
