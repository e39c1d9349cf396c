// SPDX-License-Identifier: Apache-2.0
// loop_places.c - where the elements of small values come from (loop.h).
// In: ops that have code in a loop, from loop.c. Out: element numbers in row-major order.
#include "base/check.h"
#include "host/loop.h"

#include <string.h>

static void coordinates(vt_type type, int64_t at, int64_t *out) {
  vt_assert(at >= 0 && at < vt_type_elements(type));
  for (int32_t d = type.rank; d-- > 0;) {
    out[d] = at % type.dims[d];
    at /= type.dims[d];
  }
}

static int64_t element_at(vt_type type, const int64_t *index) {
  vt_assert_each(d, type.rank, index[d] >= 0 && index[d] < type.dims[d]);
  int64_t at = 0;
  for (int32_t d = 0; d < type.rank; d++) at = at * type.dims[d] + index[d];
  return at;
}

vt_loop_place vt_loop_source(const vt_op *op, int64_t at) {
  int64_t to[VT_MAX_RANK], from[VT_MAX_RANK] = {0};
  uint32_t count, operand = 0;
  coordinates(op->results[0].type, at, to);
  vt_type type = op->operands[0]->type;
  switch (op->code) {
  case VT_OP_BROADCAST_IN_DIM: {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    for (int32_t d = 0; d < type.rank; d++) from[d] = type.dims[d] == 1 ? 0 : to[dims[d]];
    break;
  }
  case VT_OP_TRANSPOSE: {
    const int64_t *order = vt_attr_ints(op, VT_ATTR_PERMUTATION, &count);
    for (int32_t d = 0; d < type.rank; d++) from[order[d]] = to[d];
    break;
  }
  case VT_OP_SLICE: {
    const int64_t *start = vt_attr_ints(op, VT_ATTR_START_INDICES, &count);
    const int64_t *stride = vt_attr_ints(op, VT_ATTR_STRIDES, &count);
    for (int32_t d = 0; d < type.rank; d++) from[d] = start[d] + stride[d] * to[d];
    break;
  }
  case VT_OP_REVERSE: {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
    memcpy(from, to, sizeof from);
    for (uint32_t i = 0; i < count; i++) from[dims[i]] = type.dims[dims[i]] - 1 - to[dims[i]];
    break;
  }
  case VT_OP_PAD: {
    const int64_t *low = vt_attr_ints(op, VT_ATTR_EDGE_PADDING_LOW, &count);
    const int64_t *gaps = vt_attr_ints(op, VT_ATTR_INTERIOR_PADDING, &count);
    for (int32_t d = 0; d < type.rank; d++) {
      int64_t place = to[d] - low[d], step = gaps[d] + 1;
      if (place < 0 || place % step || place / step >= type.dims[d]) return (vt_loop_place){1, 0};
      from[d] = place / step;
    }
    break;
  }
  default: { // concatenate
    int64_t d = vt_attr_i64(op, VT_ATTR_DIMENSION);
    memcpy(from, to, sizeof from);
    while (from[d] >= op->operands[operand]->type.dims[d])
      from[d] -= op->operands[operand++]->type.dims[d];
    type = op->operands[operand]->type;
  }
  }
  return (vt_loop_place){operand, element_at(type, from)};
}

static bool is_in(const int64_t *list, uint32_t count, int64_t d, uint32_t *out_at) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == d) {
      *out_at = i;
      return true;
    }
  return false;
}

int64_t vt_loop_terms(const vt_op *op) {
  uint32_t count;
  vt_type type = op->operands[0]->type;
  const int64_t *dims = vt_attr_ints(
      op, op->code == VT_OP_REDUCE ? VT_ATTR_DIMENSIONS : VT_ATTR_LHS_CONTRACTING_DIMENSIONS,
      &count);
  int64_t terms = 1;
  for (uint32_t i = 0; i < count; i++) terms *= type.dims[dims[i]];
  return terms;
}

int64_t vt_loop_term(const vt_op *op, uint32_t operand, int64_t at, int64_t k) {
  vt_assert(operand < op->operand_count && k >= 0 && k < vt_loop_terms(op));
  static const vt_attr_key batching[] = {VT_ATTR_LHS_BATCHING_DIMENSIONS,
                                         VT_ATTR_RHS_BATCHING_DIMENSIONS},
                           contracting[] = {VT_ATTR_LHS_CONTRACTING_DIMENSIONS,
                                            VT_ATTR_RHS_CONTRACTING_DIMENSIONS};
  bool reduce = op->code == VT_OP_REDUCE;
  vt_type type = op->operands[operand]->type;
  uint32_t batch_count = 0, count, place;
  const int64_t *batch = reduce ? NULL : vt_attr_ints(op, batching[operand], &batch_count);
  const int64_t *sum = vt_attr_ints(op, reduce ? VT_ATTR_DIMENSIONS : contracting[operand], &count);
  int64_t to[VT_MAX_RANK], from[VT_MAX_RANK] = {0};
  coordinates(op->results[0].type, at, to);
  for (uint32_t i = count; i-- > 0;) {
    from[sum[i]] = k % type.dims[sum[i]];
    k /= type.dims[sum[i]];
  }
  // Result dimensions: batch, free ones of the left side, free ones of the right.
  int32_t next = (int32_t)batch_count;
  if (operand == 1) next += op->operands[0]->type.rank - (int32_t)batch_count - (int32_t)count;
  for (int32_t d = 0; d < type.rank; d++) {
    if (is_in(sum, count, d, &place)) continue;
    from[d] = batch && is_in(batch, batch_count, d, &place) ? to[place] : to[next++];
  }
  return element_at(type, from);
}

int64_t vt_loop_in_window(vt_type whole, const int64_t *sizes, int64_t at) {
  int64_t place = 0, stride = 1;
  for (int32_t d = whole.rank; d-- > 0; stride *= whole.dims[d]) {
    place += at % sizes[d] * stride;
    at /= sizes[d];
  }
  vt_assert(!at);
  return place;
}
