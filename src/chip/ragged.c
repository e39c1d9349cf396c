// SPDX-License-Identifier: Apache-2.0
// ragged.c - products of rows in groups: what import's form of them says.
#include "chip/ragged.h"

#include <math.h>

enum { GROUPS, KIND, COUNT }; // of the mark

static double dims_product(vt_type type, const int64_t *dims, uint32_t count) {
  double product = 1;
  for (uint32_t i = 0; i < count; i++) product *= (double)type.dims[dims[i]];
  return product;
}

static bool holds(const int64_t *list, uint32_t count, int64_t dim) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == dim) return true;
  return false;
}

bool vt_ragged_splits(const vt_op *op) {
  return op->code != VT_OP_DOT_GENERAL && vt_op_attr(op, VT_ATTR_RAGGED);
}

bool vt_ragged_of(const vt_op *dot, vt_ragged *out) {
  const vt_attr *mark = dot->code == VT_OP_DOT_GENERAL ? vt_op_attr(dot, VT_ATTR_RAGGED) : NULL;
  if (!mark || mark->count != COUNT) return false;
  vt_type lhs = dot->operands[0]->type;
  uint32_t batches = 0, depths = 0;
  const int64_t *batch = vt_attr_ints(dot, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batches);
  const int64_t *depth = vt_attr_ints(dot, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &depths);
  int64_t dim = 0;
  bool each = mark->ints[KIND] == VT_RAGGED_EACH, one = mark->ints[KIND] == VT_RAGGED_ONE;
  while (each && dim + 1 < lhs.rank && (holds(batch, batches, dim) || holds(depth, depths, dim)))
    dim++;
  if (!each) dim = depths ? depth[depths - 1] : 0;
  if (dim >= lhs.rank) return false;
  double depth_size = dims_product(lhs, depth, depths), groups = one ? 1 : (double)lhs.dims[dim];
  double own = (double)vt_type_elements(lhs) / fmax(dims_product(lhs, batch, batches), 1);
  double share = groups / (double)mark->ints[GROUPS];
  if (!(groups >= 1) || !(share <= 1) || !(depth_size >= 1)) return false;
  double rows = (each ? depth_size : own / depth_size) * share;
  *out = (vt_ragged){.groups = groups,
                     .used = fmin(groups, fmax(rows, 1)),
                     .rows = rows,
                     .part = share / groups,
                     .each = each};
  return true;
}

const vt_value *vt_ragged_operand(const vt_op *product, uint32_t side) {
  const vt_value *value = product->operands[side];
  while (value->op && vt_ragged_splits(value->op)) {
    uint32_t array = value->op->code == VT_OP_SELECT ? 1 : 0;
    if (value->op->operand_count <= array) break;
    value = value->op->operands[array];
  }
  return value;
}
