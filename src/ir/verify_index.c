// SPDX-License-Identifier: Apache-2.0
// verify_index.c - ops that read or write at computed indices: dynamic slices, gather, scatter.
#include <inttypes.h>

#include "ir/verify.h"

static vt_status verify_starts(const vt_op *op, uint32_t first, int32_t rank) {
  CHECK(op, op->operand_count == first + (uint32_t)rank, "has %u start indices for rank %d",
        op->operand_count - first, rank);
  for (uint32_t i = first; i < op->operand_count; i++) {
    vt_type type = vt_operand_type(op, i);
    CHECK(op, !type.rank && vt_dtype_is_integer(type.dtype),
          "start index %u is not a scalar integer", i - first);
  }
  return VT_OK;
}

vt_status vt_verify_dynamic_slice(const vt_op *op) {
  CHECK(op, op->operand_count >= 1, "has no operand");
  vt_type in = vt_operand_type(op, 0);
  const int64_t *sizes;
  VT_TRY(vt_verify_ints(op, VT_ATTR_SLICE_SIZES, (uint32_t)in.rank, &sizes));
  for (int32_t d = 0; d < in.rank; d++)
    CHECK(op, sizes[d] >= 0 && sizes[d] <= in.dims[d],
          "slice size %" PRId64 " exceeds dimension %d", sizes[d], d);
  VT_TRY(verify_starts(op, 1, in.rank));
  return vt_verify_result(op, 0, in.dtype, in.rank, sizes);
}

vt_status vt_verify_dynamic_update_slice(const vt_op *op) {
  CHECK(op, op->operand_count >= 2, "has %u operands", op->operand_count);
  vt_type in = vt_operand_type(op, 0), update = vt_operand_type(op, 1);
  CHECK(op, update.rank == in.rank && update.dtype == in.dtype,
        "the update has a different rank or type");
  for (int32_t d = 0; d < in.rank; d++)
    CHECK(op, update.dims[d] <= in.dims[d], "the update is larger than dimension %d", d);
  VT_TRY(verify_starts(op, 2, in.rank));
  return vt_verify_result(op, 0, in.dtype, in.rank, in.dims);
}

static bool holds(const int64_t *list, uint32_t count, int64_t value) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == value) return true;
  return false;
}

// Dimension numbers shared by gather and scatter, in gather's terms. `operand` is the indexed
// tensor, `window_rank` the rank of result (gather) or update (scatter).
typedef struct index_dims {
  const int64_t *offset, *collapsed, *operand_batching, *start_batching, *map;
  uint32_t offset_count, collapsed_count, operand_batching_count, start_batching_count, map_count;
  int64_t vector_dim;
} index_dims;

static vt_status read_index_dims(const vt_op *op, const vt_attr_key keys[5], vt_type operand,
                                 vt_type starts, int32_t window_rank, index_dims *out) {
  VT_TRY(vt_verify_i64(op, VT_ATTR_INDEX_VECTOR_DIM, 0, starts.rank, &out->vector_dim));
  VT_TRY(vt_verify_dims(op, keys[0], window_rank, true, &out->offset, &out->offset_count));
  VT_TRY(vt_verify_dims(op, keys[1], operand.rank, true, &out->collapsed, &out->collapsed_count));
  VT_TRY(vt_verify_dims(op, keys[2], operand.rank, true, &out->operand_batching,
                        &out->operand_batching_count));
  VT_TRY(vt_verify_dims(op, keys[3], starts.rank, false, &out->start_batching,
                        &out->start_batching_count));
  VT_TRY(vt_verify_dims(op, keys[4], operand.rank, false, &out->map, &out->map_count));
  CHECK(op, vt_dtype_is_integer(starts.dtype), "indices are not integers");
  CHECK(op, out->operand_batching_count == out->start_batching_count,
        "batching dimension lists differ in length");
  int64_t components = out->vector_dim < starts.rank ? starts.dims[out->vector_dim] : 1;
  CHECK(op, components == (int64_t)out->map_count,
        "index vectors have %" PRId64 " components, the map %u", components, out->map_count);
  for (uint32_t i = 0; i < out->operand_batching_count; i++) {
    CHECK(op,
          !holds(out->collapsed, out->collapsed_count, out->operand_batching[i]) &&
              !holds(out->map, out->map_count, out->operand_batching[i]),
          "dimension %" PRId64 " is both batching and indexed or collapsed",
          out->operand_batching[i]);
    CHECK(op, out->start_batching[i] != out->vector_dim,
          "the index vector dimension is a batching dimension");
    CHECK(op, operand.dims[out->operand_batching[i]] == starts.dims[out->start_batching[i]],
          "batching dimensions differ in size");
  }
  CHECK(op,
        (uint32_t)operand.rank ==
            out->offset_count + out->collapsed_count + out->operand_batching_count,
        "window, collapsed and batching dimensions do not make up the rank %d", operand.rank);
  int32_t batch_rank = starts.rank - (out->vector_dim < starts.rank);
  CHECK(op, window_rank == batch_rank + (int32_t)out->offset_count, "rank %d, expected %d",
        window_rank, batch_rank + (int32_t)out->offset_count);
  return VT_OK;
}

// The dimensions of gather's result or scatter's update: batch dimensions in order, slices at the
// offset dimensions. `slice` gives the sizes of the remaining slice dimensions of the operand, in
// order.
static void window_dims(const index_dims *n, vt_type starts, int32_t rank, const int64_t *slice,
                        int64_t *dims) {
  int32_t batch = 0;
  uint32_t next = 0;
  for (int32_t d = 0; d < rank; d++) {
    if (holds(n->offset, n->offset_count, d)) {
      dims[d] = slice[next++];
    } else {
      if (batch == n->vector_dim) batch++;
      dims[d] = starts.dims[batch++];
    }
  }
}

vt_status vt_verify_gather(const vt_op *op) {
  static const vt_attr_key keys[5] = {VT_ATTR_OFFSET_DIMS, VT_ATTR_COLLAPSED_SLICE_DIMS,
                                      VT_ATTR_OPERAND_BATCHING_DIMS,
                                      VT_ATTR_START_INDICES_BATCHING_DIMS, VT_ATTR_START_INDEX_MAP};
  vt_type in = vt_operand_type(op, 0), starts = vt_operand_type(op, 1), out = vt_result_type(op, 0);
  index_dims n;
  const int64_t *sizes;
  VT_TRY(read_index_dims(op, keys, in, starts, out.rank, &n));
  VT_TRY(vt_verify_ints(op, VT_ATTR_SLICE_SIZES, (uint32_t)in.rank, &sizes));
  int64_t slice[VT_MAX_RANK], dims[VT_MAX_RANK];
  uint32_t kept = 0;
  for (int32_t d = 0; d < in.rank; d++) {
    CHECK(op, sizes[d] >= 0 && sizes[d] <= in.dims[d],
          "slice size %" PRId64 " exceeds dimension %d of size %" PRId64, sizes[d], d, in.dims[d]);
    if (holds(n.collapsed, n.collapsed_count, d) ||
        holds(n.operand_batching, n.operand_batching_count, d))
      CHECK(op, sizes[d] <= 1, "slice size of collapsed dimension %d is %" PRId64, d, sizes[d]);
    else
      slice[kept++] = sizes[d];
  }
  window_dims(&n, starts, out.rank, slice, dims);
  return vt_verify_result(op, 0, in.dtype, out.rank, dims);
}

vt_status vt_verify_scatter(const vt_op *op) {
  static const vt_attr_key keys[5] = {
      VT_ATTR_UPDATE_WINDOW_DIMS, VT_ATTR_INSERTED_WINDOW_DIMS, VT_ATTR_INPUT_BATCHING_DIMS,
      VT_ATTR_SCATTER_INDICES_BATCHING_DIMS, VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS};
  uint32_t inputs = op->result_count;
  CHECK(op, inputs >= 1 && vt_op_own_operands(op) == 2 * inputs + 1,
        "has %u operands for %u results", vt_op_own_operands(op), inputs);
  vt_type in = vt_operand_type(op, 0), starts = vt_operand_type(op, inputs),
          update = vt_operand_type(op, inputs + 1);
  index_dims n;
  VT_TRY(read_index_dims(op, keys, in, starts, update.rank, &n));
  int64_t slice[VT_MAX_RANK], dims[VT_MAX_RANK];
  uint32_t kept = 0;
  for (int32_t d = 0; d < in.rank; d++) {
    if (holds(n.collapsed, n.collapsed_count, d) ||
        holds(n.operand_batching, n.operand_batching_count, d))
      continue;
    slice[kept] = update.dims[n.offset[kept]];
    CHECK(op, slice[kept] <= in.dims[d], "the update window exceeds dimension %d", d);
    kept++;
  }
  window_dims(&n, starts, update.rank, slice, dims);
  vt_type params[2 * 64], returns[64];
  CHECK(op, inputs <= 64, "more than 64 inputs");
  for (uint32_t i = 0; i < inputs; i++) {
    vt_type input = vt_operand_type(op, i), one = vt_operand_type(op, inputs + 1 + i);
    CHECK(op, vt_type_same_dims(input, in), "inputs have different shapes");
    CHECK(op, vt_type_equal(one, (vt_type){one.dtype, update.rank, dims}),
          "update %u has the wrong shape", i);
    vt_dtype dtype = vt_result_type(op, i).dtype; // may be wider than the input: the body decides
    params[i] = params[inputs + i] = returns[i] = (vt_type){dtype, 0, NULL};
    VT_TRY(vt_verify_result(op, i, dtype, in.rank, in.dims));
    CHECK(op, input.dtype == dtype && one.dtype == dtype,
          "input, update and result %u differ in element type", i);
  }
  return vt_verify_region(op, 0, 2 * inputs, params, inputs, returns);
}

vt_status vt_verify_torch_index_select(const vt_op *op) {
  vt_type in = vt_operand_type(op, 0), index = vt_operand_type(op, 1);
  int64_t dim, batch, dims[2 * VT_MAX_RANK];
  VT_TRY(vt_verify_i64(op, VT_ATTR_DIM, 0, in.rank - 1, &dim));
  VT_TRY(vt_verify_i64(op, VT_ATTR_BATCH_DIMS, 0, index.rank < dim ? index.rank : dim, &batch));
  CHECK(op, vt_dtype_is_integer(index.dtype), "indices are not integers");
  int32_t rank = 0;
  for (int32_t d = 0; d < dim; d++) dims[rank++] = in.dims[d];
  for (int32_t d = (int32_t)batch; d < index.rank; d++) dims[rank++] = index.dims[d];
  for (int32_t d = (int32_t)dim + 1; d < in.rank; d++) dims[rank++] = in.dims[d];
  for (int32_t d = 0; d < batch; d++)
    CHECK(op, in.dims[d] == index.dims[d], "batch dimension %d differs", d);
  return vt_verify_result(op, 0, in.dtype, rank, dims);
}
