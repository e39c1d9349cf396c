// SPDX-License-Identifier: Apache-2.0
// kernel_fold.c - what is known of values and types when a kernel is planned: constants, and which
// dimensions of a cast are which.
#include "mosaic_host/kernel.h"

enum { MOST_FOLDED = 200 };

static bool fold_binary(vt_mopcode code, int64_t predicate, int64_t x, int64_t y, int64_t *out) {
  switch (code) {
  case VT_MOP_ADDI:
    return !__builtin_add_overflow(x, y, out);
  case VT_MOP_SUBI:
    return !__builtin_sub_overflow(x, y, out);
  case VT_MOP_MULI:
    return !__builtin_mul_overflow(x, y, out);
  case VT_MOP_ANDI:
    *out = x & y;
    return true;
  case VT_MOP_ORI:
    *out = x | y;
    return true;
  case VT_MOP_CMPI: {
    const bool results[6] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
    *out = predicate < 6 && results[predicate];
    return predicate < 6;
  }
  default:
    return false;
  }
}

// The points of the grid at which values are folded: their indices from `first` on are known.
typedef struct points {
  const vt_mosaic *k; // NULL: no index is known
  uint32_t first;
  bool last; // the known ones are the last, not 0
} points;

static bool fold_index(const points *p, const vt_mvalue *v, int64_t *out) {
  uint32_t number = (uint32_t)(v - v->block->args);
  if (!p->k || v->block->owner || number >= p->k->grid_rank || number < p->first) return false;
  *out = p->last ? p->k->grid[number] - 1 : 0;
  return !p->last || p->k->grid[number] > 0;
}

// Visits at most `left` values: operands may be shared.
static bool fold(const points *p, const vt_mvalue *v, int32_t *left, int64_t *out) {
  const vt_mop *op = v->op;
  int64_t in[3];
  if (--*left < 0) return false;
  if (v->type.kind != VT_MSCALAR || !vt_dtype_is_integer(v->type.dtype)) {
    if (v->type.kind != VT_MSCALAR || v->type.dtype != VT_PRED) return false;
  }
  if (!op) return fold_index(p, v, out);
  if (op->code == VT_MOP_CONSTANT) {
    const vt_literal *literal = vt_mop_attr(op, VT_MATTR_VALUE)->literal;
    *out = vt_int_load(literal->type.dtype, literal->data, 0);
    return true;
  }
  if (op->operand_count < 1 || op->operand_count > 2 || op->block_count) return false;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!fold(p, op->operands[i], left, &in[i])) return false;
  switch (op->code) {
  case VT_MOP_EXTUI:
  case VT_MOP_EXTSI:
    *out = in[0];
    return in[0] >= 0;
  case VT_MOP_INDEX_CAST:
  case VT_MOP_ASSUME_MULTIPLE:
    *out = in[0];
    return true;
  default:
    break;
  }
  if (op->operand_count != 2) return false;
  bool good = fold_binary(op->code, vt_mop_i64(op, VT_MATTR_PREDICATE, 0), in[0], in[1], out);
  return good && *out >= INT32_MIN && *out <= INT32_MAX;
}

bool vt_kplan_fold(const vt_mosaic *k, const vt_mvalue *v, uint32_t unknown, int64_t *out) {
  int32_t left = MOST_FOLDED;
  return fold(&(points){k, unknown, false}, v, &left, out);
}

bool vt_kplan_fold_last(const vt_mosaic *k, const vt_mvalue *v, uint32_t unknown, int64_t *out) {
  int32_t left = MOST_FOLDED;
  return fold(&(points){k, unknown, true}, v, &left, out);
}

bool vt_kplan_constant(const vt_mvalue *v, int64_t *out) {
  return vt_kplan_fold(NULL, v, 0, out);
}

bool vt_kplan_is_splat(const vt_mvalue *v) {
  if (!v->op || v->op->code != VT_MOP_CONSTANT) return false;
  const vt_literal *literal = vt_mop_attr(v->op, VT_MATTR_VALUE)->literal;
  return literal->splat || vt_type_elements(literal->type) == 1;
}

bool vt_kplan_is_zero(const vt_mvalue *v) {
  if (v->op && v->op->code == VT_MOP_BROADCAST) v = v->op->operands[0];
  if (!v->op || v->op->code != VT_MOP_CONSTANT || !vt_kplan_is_splat(v)) return false;
  const vt_literal *literal = vt_mop_attr(v->op, VT_MATTR_VALUE)->literal;
  const char *bytes = literal->data;
  for (size_t i = 0; i < vt_dtype_bytes(literal->type.dtype); i++)
    if (bytes[i]) return false;
  return true;
}

bool vt_kplan_unit_cast(vt_mtype from, vt_mtype to, int32_t *map) {
  int32_t i = 0;
  for (int32_t d = 0; d < to.rank; d++) {
    map[d] = -1;
    while (i < from.rank && from.dims[i] == 1 && to.dims[d] != 1) i++;
    if (to.dims[d] == 1) continue;
    if (i == from.rank || from.dims[i] != to.dims[d]) return false;
    map[d] = i++;
  }
  for (; i < from.rank; i++)
    if (from.dims[i] != 1) return false;
  return true;
}
