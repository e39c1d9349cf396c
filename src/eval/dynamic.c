// SPDX-License-Identifier: Apache-2.0
// dynamic.c - dynamic-shape ops in programs whose result types are known after all: what the static
// op has as attributes arrives as operands.
#include "eval/kernel.h"
#include "ir/number.h"

static vt_status read_list(const vt_op *op, vt_tensor t, int64_t count, int64_t *out) {
  if (vt_type_elements(t.type) != count || count > 2 * VT_MAX_RANK)
    return vt_eval_invalid(op, "shapes");
  for (int64_t i = 0; i < count; i++) out[i] = vt_int_load(t.type.dtype, t.data, i);
  return VT_OK;
}

// dynamic_broadcast_in_dim and dynamic_reshape: the result type has everything.
vt_status vt_eval_dynamic_shape(const vt_eval_call *call) {
  if (call->op->code == VT_OP_DYNAMIC_BROADCAST_IN_DIM) {
    uint32_t count;
    const int64_t *places = vt_attr_ints(call->op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    return vt_eval_spread(call->op, count, places, call->in[0], &call->out[0]);
  }
  if (vt_type_bytes(call->in[0].type) != vt_type_bytes(call->out[0].type))
    return vt_eval_invalid(call->op, "shapes");
  return vt_eval_convert_array(call->in[0].type.dtype, call->out[0].type.dtype,
                               vt_type_elements(call->out[0].type), call->in[0].data,
                               call->out[0].data);
}

vt_status vt_eval_dynamic_iota(const vt_eval_call *call) {
  return vt_eval_iota(call);
}

vt_status vt_eval_dynamic_gather(const vt_eval_call *call) {
  int64_t sizes[2 * VT_MAX_RANK];
  VT_TRY(read_list(call->op, call->in[2], call->in[0].type.rank, sizes));
  return vt_eval_gather_sized(call, sizes);
}

vt_status vt_eval_dynamic_pad(const vt_eval_call *call) {
  int64_t low[2 * VT_MAX_RANK], interior[2 * VT_MAX_RANK];
  int32_t rank = call->in[0].type.rank;
  VT_TRY(read_list(call->op, call->in[2], rank, low));
  VT_TRY(read_list(call->op, call->in[4], rank, interior));
  for (int32_t d = 0; d < rank; d++)
    if (interior[d] < 0) return vt_eval_invalid(call->op, "interior padding");
  return vt_eval_pad_with(call->op, low, interior, call->in[0], call->in[1], &call->out[0]);
}

vt_status vt_eval_real_dynamic_slice(const vt_eval_call *call) {
  int64_t start[2 * VT_MAX_RANK], step[2 * VT_MAX_RANK];
  VT_TRY(read_list(call->op, call->in[1], call->in[0].type.rank, start));
  VT_TRY(read_list(call->op, call->in[3], call->in[0].type.rank, step));
  return vt_eval_cut(call->op, start, step, call->in[0], &call->out[0]);
}

vt_status vt_eval_dynamic_conv(const vt_eval_call *call) {
  int64_t padding[2 * VT_MAX_RANK];
  VT_TRY(read_list(call->op, call->in[2], 2 * (call->in[0].type.rank - 2), padding));
  return vt_eval_convolve(call, padding);
}

vt_status vt_eval_get_dimension_size(const vt_eval_call *call) {
  int64_t d = vt_attr_i64(call->op, VT_ATTR_DIMENSION);
  if (d < 0 || d >= call->in[0].type.rank) return vt_eval_invalid(call->op, "dimension");
  return vt_eval_convert_array(VT_S64, call->out[0].type.dtype, 1, &call->in[0].type.dims[d],
                               call->out[0].data);
}

// Only to the dimension's own size: sizes that vary at run time are rejected.
vt_status vt_eval_set_dimension_size(const vt_eval_call *call) {
  int64_t d = vt_attr_i64(call->op, VT_ATTR_DIMENSION);
  if (d < 0 || d >= call->in[0].type.rank) return vt_eval_invalid(call->op, "dimension");
  if (vt_int_load(call->in[1].type.dtype, call->in[1].data, 0) != call->in[0].type.dims[d])
    return vt_eval_refuse(call->op, "a dimension of varying size");
  return vt_eval_convert_array(call->in[0].type.dtype, call->out[0].type.dtype,
                               vt_type_elements(call->out[0].type), call->in[0].data,
                               call->out[0].data);
}
