// SPDX-License-Identifier: Apache-2.0
// indexed.c - shared by gather and scatter.
#include "base/check.h"
#include "eval/indexed.h"

#include "ir/number.h"

const vt_indexed_keys vt_gather_keys = {
    VT_ATTR_OFFSET_DIMS, VT_ATTR_COLLAPSED_SLICE_DIMS, VT_ATTR_OPERAND_BATCHING_DIMS,
    VT_ATTR_START_INDICES_BATCHING_DIMS, VT_ATTR_START_INDEX_MAP};
const vt_indexed_keys vt_scatter_keys = {
    VT_ATTR_UPDATE_WINDOW_DIMS, VT_ATTR_INSERTED_WINDOW_DIMS, VT_ATTR_INPUT_BATCHING_DIMS,
    VT_ATTR_SCATTER_INDICES_BATCHING_DIMS, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS};

static bool contains(const int64_t *list, uint32_t count, int64_t x) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == x) return true;
  return false;
}

static vt_status invalid(const vt_op *op, vt_attr_key key) {
  return vt_eval_invalid(op, vt_attr_text(key));
}

// Batch dimensions: the other array's non-window dimensions, those of the indices in order.
static vt_status plan_batch(const vt_op *op, const vt_indexed_keys *keys, vt_type indices,
                            vt_type other, vt_indexed *p) {
  uint32_t window_count, ob_count, ib_count;
  const int64_t *window = vt_attr_ints(op, keys->window_dims, &window_count);
  const int64_t *ob = vt_attr_ints(op, keys->operand_batching_dims, &ob_count);
  const int64_t *ib = vt_attr_ints(op, keys->indices_batching_dims, &ib_count);
  int64_t vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM);
  int64_t other_strides[VT_MAX_RANK], index_strides[VT_MAX_RANK];
  vt_type_strides(indices, index_strides);
  vt_type_strides(other, other_strides);
  p->component_stride = vector_dim < indices.rank ? index_strides[vector_dim] : 1;
  int64_t components = vector_dim < indices.rank ? indices.dims[vector_dim] : 1;
  if ((int64_t)p->components != components || ob_count != ib_count)
    return vt_eval_invalid(op, "index dimensions");
  for (int32_t d = 0; d < other.rank; d++) {
    if (contains(window, window_count, d)) continue;
    p->batch_dims[p->batch_rank] = other.dims[d];
    p->batch_strides[p->batch_rank++] = other_strides[d];
  }
  int32_t at = 0;
  for (int32_t d = 0; d < indices.rank; d++) {
    if (d == vector_dim) continue;
    if (at >= p->batch_rank || p->batch_dims[at] != indices.dims[d])
      return vt_eval_invalid(op, "shapes");
    for (uint32_t i = 0; i < ib_count; i++)
      if (ib[i] == d) {
        p->batching_dim[p->batching_count] = ob[i];
        p->batching_at[p->batching_count++] = at;
      }
    p->index_strides[at++] = index_strides[d];
  }
  if (at != p->batch_rank || p->batching_count != (int32_t)ob_count)
    return vt_eval_invalid(op, "shapes");
  return VT_OK;
}

// Window dimensions, in the operand's order.
static vt_status plan_window(const vt_op *op, const vt_indexed_keys *keys, vt_type operand,
                             vt_type other, const int64_t *sizes, vt_indexed *p) {
  uint32_t window_count, dropped_count, ob_count;
  const int64_t *window = vt_attr_ints(op, keys->window_dims, &window_count);
  const int64_t *dropped = vt_attr_ints(op, keys->dropped_dims, &dropped_count);
  const int64_t *ob = vt_attr_ints(op, keys->operand_batching_dims, &ob_count);
  int64_t other_strides[VT_MAX_RANK];
  int32_t at = 0;
  vt_type_strides(other, other_strides);
  for (int32_t d = 0; d < operand.rank; d++) {
    int64_t size = sizes ? sizes[d] : 1;
    if (!contains(dropped, dropped_count, d) && !contains(ob, ob_count, d)) {
      if (at >= (int32_t)window_count || window[at] < 0 || window[at] >= other.rank)
        return invalid(op, keys->window_dims);
      int64_t held = other.dims[window[at]];
      if (sizes && held != size) return invalid(op, keys->window_dims);
      size = p->window_dims[at] = held;
      p->window_strides[at] = other_strides[window[at]];
      p->place_strides[at++] = p->operand_strides[d];
    }
    p->limits[d] = operand.dims[d] - size;
    if (sizes && (size < 0 || p->limits[d] < 0)) return vt_eval_invalid(op, "slice_sizes");
  }
  p->window_rank = at;
  return at == (int32_t)window_count ? VT_OK : invalid(op, keys->window_dims);
}

vt_status vt_indexed_plan(const vt_op *op, const vt_indexed_keys *keys, vt_type operand,
                          vt_type indices, vt_type other, const int64_t *sizes,
                          vt_indexed *out_plan) {
  vt_indexed *p = out_plan;
  *p = (vt_indexed){0};
  p->index_map = vt_attr_ints(op, keys->index_map, &p->components);
  vt_type_strides(operand, p->operand_strides);
  VT_TRY(plan_batch(op, keys, indices, other, p));
  VT_TRY(plan_window(op, keys, operand, other, sizes, p));
  for (uint32_t i = 0; i < p->components; i++)
    if (p->index_map[i] < 0 || p->index_map[i] >= operand.rank) return invalid(op, keys->index_map);
  for (int32_t i = 0; i < p->batching_count; i++)
    if (p->batching_dim[i] < 0 || p->batching_dim[i] >= operand.rank)
      return invalid(op, keys->operand_batching_dims);
  return VT_OK;
}

bool vt_indexed_find(const vt_indexed *plan, vt_tensor indices, const int64_t *at, bool clamp,
                     int64_t *out_place) {
  vt_assert_each(d, plan->batch_rank, at[d] >= 0 && at[d] < plan->batch_dims[d]);
  vt_dtype type = indices.type.dtype;
  int64_t from = 0;
  *out_place = 0;
  for (int32_t d = 0; d < plan->batch_rank; d++) from += at[d] * plan->index_strides[d];
  for (int64_t i = 0; i < (int64_t)plan->components + plan->batching_count; i++) {
    int64_t b = i - plan->components;
    int64_t d = b < 0 ? plan->index_map[i] : plan->batching_dim[b];
    vt_assert(d >= 0 && d < VT_MAX_RANK);
    int64_t start = b < 0 ? vt_int_load(type, indices.data, from + i * plan->component_stride)
                          : at[plan->batching_at[b]];
    bool beyond = start > plan->limits[d] || (start < 0 && type == VT_U64);
    if (!clamp && (start < 0 || beyond)) return false;
    *out_place += (beyond ? plan->limits[d] : start < 0 ? 0 : start) * plan->operand_strides[d];
  }
  for (int32_t d = 0; d < VT_MAX_RANK; d++)
    if (plan->limits[d] < 0) return false; // the window is larger than the operand
  return true;
}
