// SPDX-License-Identifier: Apache-2.0
// gather.c - gather and torch_index_select: windows of the operand at computed places.
//
// The result is seen as [batch dims][window dims] in result order. Per batch index the start is
// read and clamped, then one strided copy moves the window.
#include <string.h>

#include "eval/kernel.h"
#include "eval/number.h"

typedef struct gather_plan {
  int32_t batch_rank, window_rank;
  int64_t batch_dims[VT_MAX_RANK], batch_strides[VT_MAX_RANK]; // of the result
  int64_t window_dims[VT_MAX_RANK], window_to[VT_MAX_RANK], window_from[VT_MAX_RANK];
  int64_t index_strides[VT_MAX_RANK]; // of the indices, by batch dimension
  int64_t component_stride;           // between the parts of one index
  const int64_t *index_map;           // operand dimension of each part
  uint32_t components;
  int64_t limits[VT_MAX_RANK]; // largest start by operand dimension
  int64_t operand_strides[VT_MAX_RANK];
  int32_t batching_count; // operand dims that follow a batch dim
  int64_t batching_dim[VT_MAX_RANK], batching_at[VT_MAX_RANK]; // operand dim, batch dimension
} gather_plan;

static bool contains(const int64_t *list, uint32_t count, int64_t x) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == x) return true;
  return false;
}

static vt_status plan_gather(const vt_eval_call *call, const int64_t *sizes, gather_plan *g) {
  const vt_op *op = call->op;
  vt_type operand = call->in[0].type, indices = call->in[1].type, result = call->out[0].type;
  uint32_t offset_count, collapsed_count, ob_count, ib_count;
  const int64_t *offset = vt_attr_ints(op, VT_ATTR_OFFSET_DIMS, &offset_count);
  const int64_t *collapsed = vt_attr_ints(op, VT_ATTR_COLLAPSED_SLICE_DIMS, &collapsed_count);
  const int64_t *ob = vt_attr_ints(op, VT_ATTR_OPERAND_BATCHING_DIMS, &ob_count);
  const int64_t *ib = vt_attr_ints(op, VT_ATTR_START_INDICES_BATCHING_DIMS, &ib_count);
  int64_t vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM), result_strides[VT_MAX_RANK];
  int64_t index_strides[VT_MAX_RANK];
  *g = (gather_plan){0};
  g->index_map = vt_attr_ints(op, VT_ATTR_START_INDEX_MAP, &g->components);
  vt_type_strides(operand, g->operand_strides);
  vt_type_strides(indices, index_strides);
  vt_type_strides(result, result_strides);
  g->component_stride = vector_dim < indices.rank ? index_strides[vector_dim] : 1;
  int64_t components = vector_dim < indices.rank ? indices.dims[vector_dim] : 1;
  if ((int64_t)g->components != components || ob_count != ib_count)
    return vt_eval_invalid(op, "index dimensions");
  int32_t at = 0;
  for (int32_t d = 0; d < result.rank; d++) {
    if (contains(offset, offset_count, d)) continue;
    g->batch_dims[at] = result.dims[d];
    g->batch_strides[at++] = result_strides[d];
  }
  g->batch_rank = at;
  at = 0;
  for (int32_t d = 0; d < indices.rank; d++) {
    if (d == vector_dim) continue;
    if (at >= g->batch_rank || g->batch_dims[at] != indices.dims[d])
      return vt_eval_invalid(op, "shapes");
    for (uint32_t i = 0; i < ib_count; i++)
      if (ib[i] == d) {
        g->batching_dim[g->batching_count] = ob[i];
        g->batching_at[g->batching_count++] = at;
      }
    g->index_strides[at++] = index_strides[d];
  }
  if (at != g->batch_rank || g->batching_count != (int32_t)ob_count)
    return vt_eval_invalid(op, "shapes");
  at = 0;
  for (int32_t d = 0; d < operand.rank; d++) {
    g->limits[d] = operand.dims[d] - sizes[d];
    if (sizes[d] < 0 || g->limits[d] < 0) return vt_eval_invalid(op, "slice_sizes");
    if (contains(collapsed, collapsed_count, d) || contains(ob, ob_count, d)) continue;
    if (at >= (int32_t)offset_count || offset[at] < 0 || offset[at] >= result.rank ||
        result.dims[offset[at]] != sizes[d])
      return vt_eval_invalid(op, "offset_dims");
    g->window_dims[at] = sizes[d];
    g->window_from[at] = g->operand_strides[d];
    g->window_to[at] = result_strides[offset[at]];
    at++;
  }
  g->window_rank = at;
  for (uint32_t i = 0; i < g->components; i++)
    if (g->index_map[i] < 0 || g->index_map[i] >= operand.rank)
      return vt_eval_invalid(op, "start_index_map");
  for (int32_t i = 0; i < g->batching_count; i++) {
    int64_t d = g->batching_dim[i];
    if (d < 0 || d >= operand.rank || g->batch_dims[g->batching_at[i]] > operand.dims[d])
      return vt_eval_invalid(op, "operand_batching_dims");
  }
  return VT_OK;
}

vt_status vt_eval_gather_sized(const vt_eval_call *call, const int64_t *sizes) {
  gather_plan g;
  vt_tensor in = call->in[0], indices = call->in[1], *out = &call->out[0];
  if (!vt_type_elements(out->type)) return VT_OK;
  VT_TRY(plan_gather(call, sizes, &g));
  size_t bytes = vt_dtype_bytes(out->type.dtype);
  vt_dtype index_type = indices.type.dtype;
  int64_t at[VT_MAX_RANK] = {0};
  do {
    int64_t from = 0, to = 0, place = 0;
    for (int32_t d = 0; d < g.batch_rank; d++) {
      to += at[d] * g.batch_strides[d];
      place += at[d] * g.index_strides[d];
    }
    for (uint32_t i = 0; i < g.components; i++) {
      int64_t d = g.index_map[i];
      int64_t start =
          vt_int_load(index_type, indices.data, place + (int64_t)i * g.component_stride);
      if (index_type == VT_U64 && start < 0) start = g.limits[d];
      from += (start < 0 ? 0 : start > g.limits[d] ? g.limits[d] : start) * g.operand_strides[d];
    }
    for (int32_t i = 0; i < g.batching_count; i++)
      from += at[g.batching_at[i]] * g.operand_strides[g.batching_dim[i]];
    vt_eval_move(bytes, g.window_rank, g.window_dims, (const char *)in.data + from * (int64_t)bytes,
                 g.window_from, (char *)out->data + to * (int64_t)bytes, g.window_to);
  } while (vt_eval_next(g.batch_rank, g.batch_dims, at));
  return VT_OK;
}

vt_status vt_eval_gather(const vt_eval_call *call) {
  return vt_eval_gather_sized(call, vt_attr_ints(call->op, VT_ATTR_SLICE_SIZES, NULL));
}

// result[b..., i..., o...] = operand[b..., index[b..., i...], o...], the indexed dimension at
// `dim`: result dims are operand dims before dim, index dims after batch_dims, operand dims after
// dim.
vt_status vt_eval_torch_index_select(const vt_eval_call *call) {
  vt_tensor in = call->in[0], index = call->in[1], *out = &call->out[0];
  int64_t dim = vt_attr_i64(call->op, VT_ATTR_DIM),
          batch = vt_attr_i64(call->op, VT_ATTR_BATCH_DIMS);
  int32_t rank = in.type.rank;
  if (dim < 0 || dim >= rank || batch < 0 || batch > dim || batch > index.type.rank)
    return vt_eval_invalid(call->op, "dim or batch_dims");
  if (!vt_type_elements(out->type)) return VT_OK;
  int64_t batches = 1, outer = 1, inner = 1, picks = 1, size = in.type.dims[dim];
  for (int64_t d = 0; d < batch; d++) batches *= in.type.dims[d];
  for (int64_t d = batch; d < dim; d++) outer *= in.type.dims[d];
  for (int64_t d = dim + 1; d < rank; d++) inner *= in.type.dims[d];
  for (int64_t d = batch; d < index.type.rank; d++) picks *= index.type.dims[d];
  if (batches * outer * picks * inner != vt_type_elements(out->type) ||
      batches * picks != vt_type_elements(index.type) || size < 1)
    return vt_eval_invalid(call->op, "shapes");
  size_t row = vt_dtype_bytes(in.type.dtype) * (size_t)inner;
  for (int64_t b = 0; b < batches; b++)
    for (int64_t o = 0; o < outer; o++)
      for (int64_t i = 0; i < picks; i++) {
        int64_t at = vt_int_load(index.type.dtype, index.data, b * picks + i);
        at = at < 0 ? 0 : at >= size ? size - 1 : at;
        memcpy((char *)out->data + (size_t)((b * outer + o) * picks + i) * row,
               (const char *)in.data + (size_t)((b * outer + o) * size + at) * row, row);
      }
  return VT_OK;
}
