// SPDX-License-Identifier: Apache-2.0
// kernel_gather.c - gather: one box copied per index, in parallel over the indices (rows of an
// embedding table).
#include <string.h>

#include "host/kernel_move.h"

typedef struct batch_dim {
  int64_t size;
  int64_t to;      // byte stride in the result
  int64_t index;   // byte stride in the indices
  int64_t operand; // byte stride in the operand (batching dimensions), else 0
} batch_dim;

typedef struct start_dim {
  int64_t at;     // byte offset of this component behind the index's place
  int64_t most;   // largest start
  int64_t stride; // bytes in the operand
} start_dim;

typedef struct gather_plan {
  int32_t batch_rank, start_rank;
  batch_dim batch[VT_MAX_RANK];
  start_dim start[VT_MAX_RANK];
  int64_t count, index_bytes;
  bool is_signed;
  vt_box box; // of one slice
} gather_plan;

static void copy_serial(const vt_box *box, int32_t dim, char *to, const char *from) {
  if (dim == box->rank - 1 && box->to[dim] == box->bytes && box->from[dim] == box->bytes) {
    memcpy(to, from, (size_t)(box->dims[dim] * box->bytes));
    return;
  }
  for (int64_t i = 0; i < box->dims[dim]; i++, to += box->to[dim], from += box->from[dim]) {
    if (dim < box->rank - 1)
      copy_serial(box, dim + 1, to, from);
    else
      memcpy(to, from, (size_t)box->bytes);
  }
}

static void run_gather(const vt_native_call *call) {
  const gather_plan *plan = call->native->plan;
  int64_t bytes = plan->box.bytes;
  for (int32_t i = 0; i < plan->box.rank; i++) bytes *= plan->box.dims[i];
#pragma omp parallel for schedule(static) if (plan->count > 1 &&                                   \
                                                  plan->count * (bytes + 16) > (64 << 10))
  for (int64_t item = 0; item < plan->count; item++) {
    char *to = call->outputs[0];
    const char *from = call->operands[0], *index = call->operands[1];
    int64_t rest = item;
    for (int32_t i = plan->batch_rank - 1; i >= 0; i--) {
      int64_t at = rest % plan->batch[i].size;
      rest /= plan->batch[i].size;
      to += at * plan->batch[i].to;
      index += at * plan->batch[i].index;
      from += at * plan->batch[i].operand;
    }
    for (int32_t i = 0; i < plan->start_rank; i++) {
      const start_dim *s = &plan->start[i];
      int64_t start = vt_read_index(index + s->at, plan->index_bytes, plan->is_signed);
      if (start > s->most) start = s->most;
      if (start > 0) from += start * s->stride;
    }
    copy_serial(&plan->box, 0, to, from);
  }
}

static bool contains(const int64_t *list, uint32_t count, int64_t x) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == x) return true;
  return false;
}

static void byte_strides(vt_type type, int64_t *strides) {
  vt_type_strides(type, strides);
  for (int32_t i = 0; i < type.rank; i++) strides[i] *= (int64_t)vt_dtype_bytes(type.dtype);
}

const vt_native *vt_gather_create(vt_arena *arena, const vt_op *op) {
  gather_plan *plan = VT_NEW(arena, gather_plan);
  vt_type operand = op->operands[0]->type, indices = op->operands[1]->type,
          result = op->results[0].type;
  int64_t operand_strides[VT_MAX_RANK], index_strides[VT_MAX_RANK], to[VT_MAX_RANK];
  byte_strides(operand, operand_strides);
  byte_strides(indices, index_strides);
  byte_strides(result, to);
  uint32_t offsets, collapsed, batching, starts;
  const int64_t *offset_dims = vt_attr_ints(op, VT_ATTR_OFFSET_DIMS, &offsets);
  const int64_t *collapsed_dims = vt_attr_ints(op, VT_ATTR_COLLAPSED_SLICE_DIMS, &collapsed);
  const int64_t *operand_batch = vt_attr_ints(op, VT_ATTR_OPERAND_BATCHING_DIMS, &batching);
  const int64_t *index_batch = vt_attr_ints(op, VT_ATTR_START_INDICES_BATCHING_DIMS, NULL);
  const int64_t *map = vt_attr_ints(op, VT_ATTR_START_INDEX_MAP, &starts);
  const int64_t *sizes = vt_attr_ints(op, VT_ATTR_SLICE_SIZES, NULL);
  int64_t vector_dim = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM);
  plan->count = 1;
  plan->index_bytes = (int64_t)vt_dtype_bytes(indices.dtype);
  plan->is_signed = vt_dtype_kind_of(indices.dtype) == VT_KIND_SIGNED;
  int32_t index_dim = 0;
  for (int32_t i = 0; i < result.rank;
       i++) { // the result's other dimensions are those of the indices, in order
    if (contains(offset_dims, offsets, i)) continue;
    if (index_dim == vector_dim) index_dim++;
    batch_dim *dim = &plan->batch[plan->batch_rank++];
    *dim = (batch_dim){.size = result.dims[i], .to = to[i], .index = index_strides[index_dim]};
    for (uint32_t k = 0; k < batching; k++)
      if (index_batch[k] == index_dim) dim->operand = operand_strides[operand_batch[k]];
    plan->count *= dim->size;
    index_dim++;
  }
  for (uint32_t i = 0; i < starts; i++)
    plan->start[plan->start_rank++] =
        (start_dim){.at = vector_dim < indices.rank ? (int64_t)i * index_strides[vector_dim] : 0,
                    .most = operand.dims[map[i]] - sizes[map[i]],
                    .stride = operand_strides[map[i]]};
  vt_box *box = &plan->box;
  box->bytes = (int64_t)vt_dtype_bytes(result.dtype);
  for (int32_t i = 0; i < operand.rank; i++) {
    if (contains(collapsed_dims, collapsed, i) || contains(operand_batch, batching, i)) continue;
    box->dims[box->rank] = sizes[i];
    box->to[box->rank] = to[offset_dims[box->rank]];
    box->from[box->rank++] = operand_strides[i];
  }
  vt_box_normalise(box);
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = run_gather, .plan = plan};
  return native;
}

bool vt_gather_supports(const vt_op *op) {
  if (op->code != VT_OP_GATHER) return false;
  return vt_type_elements(op->operands[0]->type) > 0 && vt_type_elements(op->results[0].type) > 0 &&
         vt_dtype_is_integer(op->operands[1]->type.dtype) &&
         vt_dtype_get(op->operands[1]->type.dtype)->bits >= 8;
}
