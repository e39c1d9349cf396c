// SPDX-License-Identifier: Apache-2.0
// index_dims.c - which dimensions of a gather or scatter belong together.
#include "spmd/partition/index.h"

#include <string.h>

typedef struct dim_list {
  uint32_t count;
  const int64_t *dims;
} dim_list;

static dim_list list_of(const vt_op *op, vt_attr_key key) {
  dim_list out;
  out.dims = vt_attr_ints(op, key, &out.count);
  return out;
}

static bool holds(dim_list list, int64_t dim) {
  for (uint32_t i = 0; i < list.count; i++)
    if (list.dims[i] == dim) return true;
  return false;
}

static void add(vt_index_dims *out, int32_t operand, int32_t indices, int32_t windows) {
  out->operand[out->count] = operand;
  out->indices[out->count] = indices;
  out->windows[out->count++] = windows;
}

static int32_t window_of(const vt_indexing *x, int32_t indices_dim) {
  for (int32_t i = 0; i < x->positions.count; i++)
    if (x->positions.indices[i] == indices_dim) return x->positions.windows[i];
  return -1;
}

// ---- indices that count -------------------------------------------------------------------------

static const vt_op *behind_names(const vt_value *v) {
  while (v->op && vt_op_info_get(v->op->code)->class == VT_CLASS_NAME && v->op->operand_count == 1)
    v = v->op->operands[0];
  return v->op;
}

static int32_t counting_dim_of_literal(const vt_literal *literal) {
  const int32_t *data = literal->data;
  vt_type type = literal->type;
  if (literal->splat) return -1;
  for (int32_t d = 0; d < type.rank; d++) {
    int64_t inner = 1, elements = vt_type_elements(type);
    bool counts = type.dims[d] > 1;
    for (int32_t e = d + 1; e < type.rank; e++) inner *= type.dims[e];
    for (int64_t i = 0; i < elements && counts; i++) counts = data[i] == i / inner % type.dims[d];
    if (counts) return d;
  }
  return -1;
}

// The dimension along which the value is 0, 1, 2, ... and along no other changes; -1: none.
static int32_t counting_dim(const vt_value *v) {
  const vt_op *op = behind_names(v);
  if (!op) return -1;
  vt_type type = op->results[0].type;
  if (op->code == VT_OP_IOTA) return (int32_t)vt_attr_i64(op, VT_ATTR_IOTA_DIMENSION);
  if (type.dtype != VT_S32) return -1;
  if (op->code == VT_OP_CONSTANT)
    return counting_dim_of_literal(vt_attr_literal(op, VT_ATTR_VALUE));
  if (op->code != VT_OP_BROADCAST_IN_DIM) return -1;
  int32_t d = counting_dim(op->operands[0]);
  if (d < 0) return -1;
  int64_t to = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, NULL)[d];
  return op->operands[0]->type.dims[d] == type.dims[to] ? (int32_t)to : -1;
}

// Component `i` of the index counts along a dimension of the indices as large as the operand's, and
// takes one element there: both may be cut alike. false: dimensions that do not fit
static bool add_parallel(vt_indexing *x, int32_t i, int32_t dim) {
  int32_t operand = x->map[i];
  for (int32_t k = 0; k < x->parallel.count; k++)
    if (x->parallel.indices[k] == dim) return false;
  for (int32_t k = 0; k < x->batch.count; k++)
    if (x->batch.indices[k] == dim) return true;
  if (x->sizes[operand] != 1) return true;
  if (x->operand.dims[operand] != x->indices.dims[dim]) return false;
  add(&x->parallel, operand, dim, window_of(x, dim));
  return true;
}

static void find_parallel(vt_indexing *x, const vt_value *indices) {
  const vt_op *op = behind_names(indices);
  bool joined =
      op && op->code == VT_OP_CONCATENATE && vt_attr_i64(op, VT_ATTR_DIMENSION) == x->vector_dim;
  bool fits = true;
  int32_t at = 0;
  for (uint32_t k = 0; k < (joined ? op->operand_count : 1) && fits; k++) {
    const vt_value *piece = joined ? op->operands[k] : indices;
    int32_t dim = counting_dim(piece), count = 1;
    if (x->vector_dim < piece->type.rank) count = (int32_t)piece->type.dims[x->vector_dim];
    for (int32_t i = 0; i < count && fits; i++)
      if (dim >= 0 && dim != x->vector_dim) fits = add_parallel(x, at + i, dim);
    at += count;
  }
  if (!fits) x->parallel.count = 0;
}

// ---- reading ------------------------------------------------------------------------------------

static void read_windows(vt_indexing *x, dim_list offset, dim_list left_out, dim_list batching) {
  int32_t at = 0;
  uint32_t next = 0;
  for (int32_t w = 0; w < x->windows.rank; w++) {
    if (holds(offset, w)) continue;
    if (at == x->vector_dim) at++;
    add(&x->positions, -1, at++, w);
  }
  for (int32_t d = 0; d < x->operand.rank; d++) {
    if (holds(left_out, d) || holds(batching, d)) {
      if (x->scatter) x->sizes[d] = 1;
      continue;
    }
    int32_t w = (int32_t)offset.dims[next++];
    if (x->scatter) x->sizes[d] = x->windows.dims[w];
    if (x->sizes[d] == x->operand.dims[d]) add(&x->covered, d, -1, w);
  }
}

static void find_free(vt_indexing *x) {
  for (int32_t i = 0; i < x->positions.count; i++) {
    bool taken = false;
    for (int32_t k = 0; k < x->batch.count; k++)
      taken = taken || x->batch.indices[k] == x->positions.indices[i];
    for (int32_t k = 0; k < x->parallel.count; k++)
      taken = taken || x->parallel.indices[k] == x->positions.indices[i];
    if (!taken) add(&x->free, -1, x->positions.indices[i], x->positions.windows[i]);
  }
}

void vt_indexing_read(const vt_op *op, vt_indexing *x) {
  bool scatter = op->code == VT_OP_SCATTER;
  uint32_t count = scatter ? op->result_count : 1;
  *x = (vt_indexing){.op = op, .scatter = scatter, .count = count};
  x->operand = op->operands[0]->type;
  x->indices = op->operands[count]->type;
  x->windows = scatter ? op->operands[count + 1]->type : op->results[0].type;
  x->vector_dim = (int32_t)vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM);
  dim_list offset = list_of(op, scatter ? VT_ATTR_UPDATE_WINDOW_DIMS : VT_ATTR_OFFSET_DIMS);
  dim_list left_out =
      list_of(op, scatter ? VT_ATTR_INSERTED_WINDOW_DIMS : VT_ATTR_COLLAPSED_SLICE_DIMS);
  dim_list batching =
      list_of(op, scatter ? VT_ATTR_INPUT_BATCHING_DIMS : VT_ATTR_OPERAND_BATCHING_DIMS);
  dim_list along = list_of(op, scatter ? VT_ATTR_SCATTER_INDICES_BATCHING_DIMS
                                       : VT_ATTR_START_INDICES_BATCHING_DIMS);
  dim_list map =
      list_of(op, scatter ? VT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS : VT_ATTR_START_INDEX_MAP);
  x->map_count = (int32_t)map.count;
  for (uint32_t i = 0; i < map.count; i++) x->map[i] = (int32_t)map.dims[i];
  if (!scatter)
    memcpy(x->sizes, vt_attr_ints(op, VT_ATTR_SLICE_SIZES, NULL),
           sizeof *x->sizes * (size_t)x->operand.rank);
  read_windows(x, offset, left_out, batching);
  for (uint32_t i = 0; i < batching.count; i++)
    add(&x->batch, (int32_t)batching.dims[i], (int32_t)along.dims[i],
        window_of(x, (int32_t)along.dims[i]));
  find_parallel(x, op->operands[count]);
  find_free(x);
}

const vt_assign *vt_assign_along(vt_parter *p, const vt_assign *a, int32_t count,
                                 const int32_t *from, const int32_t *to, int32_t rank) {
  int32_t source[VT_MAX_RANK];
  for (int32_t d = 0; d < rank; d++) source[d] = -1;
  for (int32_t i = 0; i < count; i++) source[to[i]] = from[i];
  return vt_assign_project(&p->assigns, a, rank, source);
}
