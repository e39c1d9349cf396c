// SPDX-License-Identifier: Apache-2.0
// gen_shape.c - constants, and ops that move elements to fixed positions.
#include "gen_makers.h"

enum { MOST_ELEMENTS = 8000 };

static void moved(gen *g, vt_op *op) {
  gen_done(g, op, false, true);
}

bool gen_constant(gen *g, const gen_row *row) {
  vt_type type = gen_shape(g, gen_dtype(g, row->dtypes));
  vt_op *last = g->scope->func->last;
  gen_leaf(g, type, VALUE_HARD);
  return g->scope->func->last != last;
}

bool gen_iota(gen *g, const gen_row *row) {
  vt_type type = gen_shape(g, gen_dtype(g, row->dtypes));
  if (!type.rank) return false;
  vt_op *op = gen_op(g, row->code, 0, NULL, 1, &type, 0);
  vt_op_set_i64(op, VT_ATTR_IOTA_DIMENSION, gen_below(g, type.rank));
  moved(g, op);
  return true;
}

bool gen_reshape(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  int64_t dims[8], left = vt_type_elements(x->type);
  int32_t rank = 0;
  for (int64_t p = 2; left > 1 && rank < 5; p++) {
    int64_t size = 1;
    while (left % p == 0 && gen_chance(g, 60)) left /= p, size *= p;
    if (size > 1) dims[rank++] = size;
    if (p > 40) break;
  }
  if (left != 1 || !rank) dims[rank++] = left;
  if (rank == 1 && dims[0] == 1 && gen_chance(g, 50)) rank = 0;
  if (rank < 5 && gen_chance(g, 30)) dims[rank++] = 1;
  gen_shuffle(g, dims, rank);
  vt_type type = gen_type(g, x->type.dtype, rank, dims);
  moved(g, gen_op(g, row->code, 1, &x, 1, &type, 0));
  return true;
}

// Operand dimension d goes to any result dimension; a size of 1 is stretched.
bool gen_broadcast_in_dim(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  int32_t in = x->type.rank, rank = in + (int32_t)gen_below(g, in > 3 ? 2 : 3);
  int64_t dims[16], places[16], n = vt_type_elements(x->type);
  for (int32_t d = 0; d < rank; d++) places[d] = d;
  if (gen_chance(g, 25)) {
    gen_shuffle(g, places, rank);
  } else { // skip random positions, keep the order
    for (int32_t left = rank; left > in; left--)
      for (int64_t d = gen_below(g, left); d + 1 < left; d++) places[d] = places[d + 1];
  }
  for (int32_t d = 0; d < rank; d++) dims[d] = gen_size(g);
  for (int32_t d = 0; d < in; d++)
    if (x->type.dims[d] != 1 || gen_chance(g, 50)) dims[places[d]] = x->type.dims[d];
  n = 1;
  for (int32_t d = 0; d < rank; d++) n *= dims[d];
  if (n > MOST_ELEMENTS) return false;
  vt_type type = gen_type(g, x->type.dtype, rank, dims);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, (uint32_t)in, places);
  moved(g, op);
  return true;
}

bool gen_broadcast(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  int64_t dims[16], n = vt_type_elements(x->type);
  int32_t more = (int32_t)gen_below(g, 3);
  for (int32_t d = 0; d < more; d++) n *= dims[d] = gen_size(g);
  if (n > MOST_ELEMENTS || x->type.rank > 5) return false;
  for (int32_t d = 0; d < x->type.rank; d++) dims[more + d] = x->type.dims[d];
  vt_type type = gen_type(g, x->type.dtype, more + x->type.rank, dims);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_BROADCAST_SIZES, (uint32_t)more, dims);
  moved(g, op);
  return true;
}

bool gen_transpose(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  int64_t order[VT_MAX_RANK], dims[VT_MAX_RANK];
  for (int32_t d = 0; d < x->type.rank; d++) order[d] = d;
  gen_shuffle(g, order, x->type.rank);
  for (int32_t d = 0; d < x->type.rank; d++) dims[d] = x->type.dims[order[d]];
  vt_type type = gen_type(g, x->type.dtype, x->type.rank, dims);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_PERMUTATION, (uint32_t)x->type.rank, order);
  moved(g, op);
  return true;
}

bool gen_reverse(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  int64_t dims[VT_MAX_RANK];
  uint32_t count = 0;
  for (int32_t d = 0; d < x->type.rank; d++)
    if (gen_chance(g, 60)) dims[count++] = d;
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &x->type, 0);
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, count, dims);
  moved(g, op);
  return true;
}

bool gen_slice(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  int64_t start[VT_MAX_RANK], limit[VT_MAX_RANK], stride[VT_MAX_RANK], dims[VT_MAX_RANK];
  for (int32_t d = 0; d < x->type.rank; d++) {
    int64_t n = x->type.dims[d];
    start[d] = gen_chance(g, 40) ? 0 : gen_below(g, n);
    limit[d] = gen_chance(g, 40)
                   ? n
                   : gen_between(g, gen_chance(g, 95) ? start[d] + (n > 0) : start[d], n);
    stride[d] = gen_chance(g, 60) ? 1 : gen_between(g, 1, 4);
    dims[d] = (limit[d] - start[d] + stride[d] - 1) / stride[d];
  }
  vt_type type = gen_type(g, x->type.dtype, x->type.rank, dims);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_START_INDICES, (uint32_t)x->type.rank, start);
  vt_op_set_ints(op, VT_ATTR_LIMIT_INDICES, (uint32_t)x->type.rank, limit);
  vt_op_set_ints(op, VT_ATTR_STRIDES, (uint32_t)x->type.rank, stride);
  moved(g, op);
  return true;
}

bool gen_pad(gen *g, const gen_row *row) {
  vt_value *x[2];
  x[0] = gen_any(g, row->dtypes, 0);
  vt_type in = x[0]->type;
  int64_t low[VT_MAX_RANK], high[VT_MAX_RANK], inner[VT_MAX_RANK], dims[VT_MAX_RANK], n = 1;
  for (int32_t d = 0; d < in.rank; d++) {
    low[d] = gen_chance(g, 40) ? 0 : gen_between(g, -3, 4);
    high[d] = gen_chance(g, 40) ? 0 : gen_between(g, -3, 4);
    inner[d] = gen_chance(g, 65) ? 0 : gen_between(g, 1, 3);
    int64_t spread = in.dims[d] + (in.dims[d] ? in.dims[d] - 1 : 0) * inner[d];
    if (spread + low[d] + high[d] < 0) low[d] = high[d] = 0;
    n *= dims[d] = spread + low[d] + high[d];
  }
  if (n > MOST_ELEMENTS) return false;
  x[1] = gen_of(g, (vt_type){in.dtype, 0, NULL}, 0);
  vt_type type = gen_type(g, in.dtype, in.rank, dims);
  vt_op *op = gen_op(g, row->code, 2, x, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_EDGE_PADDING_LOW, (uint32_t)in.rank, low);
  vt_op_set_ints(op, VT_ATTR_EDGE_PADDING_HIGH, (uint32_t)in.rank, high);
  vt_op_set_ints(op, VT_ATTR_INTERIOR_PADDING, (uint32_t)in.rank, inner);
  moved(g, op);
  return true;
}

bool gen_concatenate(gen *g, const gen_row *row) {
  vt_value *x[4];
  x[0] = gen_any(g, row->dtypes, 0);
  vt_type type = x[0]->type;
  if (!type.rank) return false;
  int64_t along = gen_below(g, type.rank), dims[VT_MAX_RANK], total = type.dims[along];
  uint32_t count = (uint32_t)gen_between(g, 1, 4);
  for (uint32_t i = 1; i < count; i++) {
    for (int32_t d = 0; d < type.rank; d++) dims[d] = type.dims[d];
    if (gen_chance(g, 60)) dims[along] = gen_size(g);
    x[i] = gen_of(g, gen_type(g, type.dtype, type.rank, dims), 0);
    total += dims[along];
  }
  for (int32_t d = 0; d < type.rank; d++) dims[d] = d == along ? total : type.dims[d];
  vt_type result = gen_type(g, type.dtype, type.rank, dims);
  vt_op *op = gen_op(g, row->code, count, x, 1, &result, 0);
  vt_op_set_i64(op, VT_ATTR_DIMENSION, along);
  moved(g, op);
  return true;
}

// Start indices of one integer type, some out of range.
static vt_value *start_index(gen *g, vt_dtype dtype, int64_t size) {
  vt_type scalar = {dtype, 0, NULL};
  if (gen_chance(g, 15)) return gen_of(g, scalar, 0);
  bool is_signed = vt_dtype_kind_of(dtype) == VT_KIND_SIGNED;
  return gen_leaf_range(g, scalar, is_signed ? -2 : 0, size + 2 < 120 ? size + 2 : 120);
}

bool gen_dynamic_slice(gen *g, const gen_row *row) {
  vt_value *x[1 + VT_MAX_RANK];
  x[0] = gen_any(g, row->dtypes, 0);
  vt_type in = x[0]->type;
  vt_dtype index = gen_index_dtype(g);
  int64_t sizes[VT_MAX_RANK];
  for (int32_t d = 0; d < in.rank; d++) {
    sizes[d] = gen_between(g, in.dims[d] > 0, in.dims[d]);
    x[1 + d] = start_index(g, index, in.dims[d]);
  }
  vt_type type = gen_type(g, in.dtype, in.rank, sizes);
  vt_op *op = gen_op(g, row->code, 1 + (uint32_t)in.rank, x, 1, &type, 0);
  vt_op_set_ints(op, VT_ATTR_SLICE_SIZES, (uint32_t)in.rank, sizes);
  moved(g, op);
  return true;
}

bool gen_dynamic_update_slice(gen *g, const gen_row *row) {
  vt_value *x[2 + VT_MAX_RANK];
  x[0] = gen_any(g, row->dtypes, 0);
  vt_type in = x[0]->type;
  vt_dtype index = gen_index_dtype(g);
  int64_t sizes[VT_MAX_RANK];
  for (int32_t d = 0; d < in.rank; d++) sizes[d] = gen_between(g, in.dims[d] > 0, in.dims[d]);
  x[1] = gen_of(g, gen_type(g, in.dtype, in.rank, sizes), 0);
  for (int32_t d = 0; d < in.rank; d++) x[2 + d] = start_index(g, index, in.dims[d]);
  moved(g, gen_op(g, row->code, 2 + (uint32_t)in.rank, x, 1, &in, 0));
  return true;
}
