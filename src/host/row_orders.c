// SPDX-License-Identifier: Apache-2.0
// row_orders.c - see row_orders.h.
//
// A scan wants its steps first, what is around it its examples. So the rows of products before and
// after it are in one order and are read in another. They are put into another order where they are
// smallest, and once.
//
//   transpose(f(dot(x, w)))         -> f(dot(transpose(x), w))         x is half as large, or less
//   dot(transpose(x), w)            -> transpose(dot(x, w))            the product is
//   dot(x, y), over [0, 1] x [1, 0] -> dot(x, transpose(y)), over [0, 1] x [0, 1]
//   reduce(transpose(x))            -> reduce(x)                       only sums have moved
//
// f: elementwise operators that nothing else reads, with numbers that are the same for many
// elements. Transposes go through conversions, and two that meet become one or none.
#include "host/row_orders.h"

#include <string.h>

#include "passes/rewrite.h"

enum { MOST_DEPTH = 8 }; // of f

typedef struct orders {
  vt_func *func;
  vt_op *before;        // new ops go there
  const uint32_t *uses; // by id of what was there when the walk began
  bool *changed;
} orders;

static bool is_identity(const int64_t *order, int32_t rank) {
  for (int32_t d = 0; d < rank; d++)
    if (order[d] != d) return false;
  return true;
}

static vt_type type_in(vt_arena *arena, vt_type type, const int64_t *order) {
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < type.rank; d++) dims[d] = type.dims[order[d]];
  return vt_type_make(arena, type.dtype, type.rank, dims);
}

static vt_op *copy(const orders *o, const vt_op *op, vt_value *const *operands, vt_type type) {
  vt_op *made =
      vt_build(o->func, o->before, op->code, op->loc, type, op->operand_count, operands)->op;
  for (uint32_t i = 0; i < op->attr_count; i++) vt_op_set_attr(made, op->attrs[i]);
  return made;
}

static vt_value *converted_from(const vt_value *value) {
  const vt_op *op = value->op;
  return op && op->code == VT_OP_CONVERT ? vt_rewrite_resolve(op->operands[0]) : NULL;
}

// The transpose that the value is, up to conversions; NULL: none.
static const vt_op *transpose_under(const vt_value *value) {
  while (converted_from(value)) value = converted_from(value);
  return value->op && value->op->code == VT_OP_TRANSPOSE ? value->op : NULL;
}

// transpose(value, order)
static vt_value *turned(const orders *o, vt_value *value, const int64_t *order) {
  int32_t rank = value->type.rank;
  int64_t both[VT_MAX_RANK];
  if (value->op && value->op->code == VT_OP_TRANSPOSE) {
    const int64_t *inner = vt_attr_ints(value->op, VT_ATTR_PERMUTATION, NULL);
    for (int32_t d = 0; d < rank; d++) both[d] = inner[order[d]];
    order = both;
    value = vt_rewrite_resolve(value->op->operands[0]);
  }
  if (is_identity(order, rank)) return value;
  vt_type type = type_in(&o->func->module->arena, value->type, order);
  if (transpose_under(value)) {
    vt_value *from = turned(o, converted_from(value), order);
    return vt_build(o->func, o->before, VT_OP_CONVERT, value->op->loc, type, 1, &from);
  }
  const vt_loc *loc = value->op ? value->op->loc : &vt_loc_unknown;
  vt_op *op = vt_build(o->func, o->before, VT_OP_TRANSPOSE, loc, type, 1, &value)->op;
  vt_op_set_ints(op, VT_ATTR_PERMUTATION, (uint32_t)rank, order);
  return &op->results[0];
}

// Of a product without batches: how many dimensions of an operand are contracted; 0: others than
// the last of the left side.
static uint32_t rows_before(const vt_op *dot) {
  uint32_t batches, sums;
  vt_attr_ints(dot, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batches);
  const int64_t *k = vt_attr_ints(dot, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &sums);
  uint32_t rows = (uint32_t)dot->operands[0]->type.rank - sums;
  if (batches || vt_op_attr(dot, VT_ATTR_RAGGED)) return 0;
  for (uint32_t i = 0; i < sums; i++)
    if (k[i] < rows) return 0;
  return rows;
}

// Whether only the first dimensions change places.
static bool moves_only(const int64_t *order, int32_t rank, uint32_t first) {
  for (int32_t d = (int32_t)first; d < rank; d++)
    if (order[d] != d) return false;
  return true;
}

// order[0, count) in a list of `rank`.
static void widen(const int64_t *order, uint32_t count, int32_t rank, int64_t *out) {
  for (int32_t d = 0; d < rank; d++) out[d] = d < (int32_t)count ? order[d] : d;
}

// ---- transpose(f(dot(x, w)))

// One number for many elements.
static bool is_spread(const vt_value *value) {
  if (!value->op) return false;
  if (value->op->code == VT_OP_CONSTANT) return vt_attr_literal(value->op, VT_ATTR_VALUE)->splat;
  return value->op->code == VT_OP_BROADCAST_IN_DIM &&
         2 * vt_type_bytes(value->op->operands[0]->type) <= vt_type_bytes(value->type);
}

static bool read_once(const orders *o, const vt_value *value) {
  return value->id >= 0 && o->uses[value->id] == 1;
}

// The product that a chain begins with; NULL: it has none, or more.
static vt_op *product_under(const orders *o, const vt_value *value, int depth) {
  vt_op *op = value->op, *found = NULL;
  if (!op || depth == MOST_DEPTH || op->result_count != 1 || op->region_count ||
      !read_once(o, value))
    return NULL;
  if (op->code == VT_OP_DOT_GENERAL) return op;
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE)) return NULL;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_value *operand = vt_rewrite_resolve(op->operands[i]);
    if (!vt_type_same_dims(operand->type, value->type)) return NULL;
    if (is_spread(operand)) continue;
    vt_op *below = found ? NULL : product_under(o, operand, depth + 1);
    if (!below) return NULL;
    found = below;
  }
  return found;
}

static vt_value *spread_in(const orders *o, const vt_value *value, const int64_t *order) {
  vt_type type = type_in(&o->func->module->arena, value->type, order);
  if (value->op->code == VT_OP_CONSTANT) {
    vt_literal *literal = VT_NEW(&o->func->module->arena, vt_literal);
    *literal = *vt_attr_literal(value->op, VT_ATTR_VALUE);
    literal->type = type;
    return vt_build_constant(o->func, o->before, value->op->loc, literal);
  }
  uint32_t count;
  const int64_t *dims = vt_attr_ints(value->op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  int64_t places[VT_MAX_RANK], now[VT_MAX_RANK];
  for (int32_t d = 0; d < type.rank; d++) places[order[d]] = d;
  for (uint32_t i = 0; i < count; i++) now[i] = places[dims[i]];
  vt_value *from = vt_rewrite_resolve(value->op->operands[0]);
  vt_op *op =
      vt_build(o->func, o->before, VT_OP_BROADCAST_IN_DIM, value->op->loc, type, 1, &from)->op;
  vt_op_set_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, count, now);
  return &op->results[0];
}

static vt_value *chain_in(const orders *o, const vt_value *value, const int64_t *order) {
  const vt_op *op = value->op;
  if (is_spread(value)) return spread_in(o, value, order);
  vt_value *operands[VT_MAX_RANK];
  if (op->code == VT_OP_DOT_GENERAL) {
    vt_value *lhs = vt_rewrite_resolve(op->operands[0]);
    int64_t rows[VT_MAX_RANK];
    widen(order, rows_before(op), lhs->type.rank, rows);
    operands[0] = turned(o, lhs, rows);
    operands[1] = vt_rewrite_resolve(op->operands[1]);
  } else {
    for (uint32_t i = 0; i < op->operand_count; i++)
      operands[i] = chain_in(o, vt_rewrite_resolve(op->operands[i]), order);
  }
  return &copy(o, op, operands, type_in(&o->func->module->arena, value->type, order))->results[0];
}

static bool enter_product(const orders *o, vt_op *op) {
  const int64_t *order = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
  vt_value *value = op->operands[0];
  if (value->op && value->op->code == VT_OP_TRANSPOSE) {
    vt_rewrite_value(&op->results[0], turned(o, value, order));
    return true;
  }
  const vt_op *dot = product_under(o, value, 0);
  uint32_t rows = dot ? rows_before(dot) : 0;
  if (rows < 2 || !moves_only(order, value->type.rank, rows) ||
      2 * vt_type_bytes(dot->operands[0]->type) > vt_type_bytes(value->type))
    return false;
  vt_rewrite_value(&op->results[0], chain_in(o, value, order));
  return true;
}

// ---- dot(transpose(x), w)

static bool leave_product(const orders *o, vt_op *dot) {
  vt_value *lhs = dot->operands[0];
  const vt_op *transpose = transpose_under(lhs);
  uint32_t rows = transpose ? rows_before(dot) : 0;
  if (rows < 2) return false;
  const int64_t *order = vt_attr_ints(transpose, VT_ATTR_PERMUTATION, NULL);
  vt_type type = dot->results[0].type;
  if (is_identity(order, lhs->type.rank) || !moves_only(order, lhs->type.rank, rows) ||
      2 * vt_type_bytes(type) > vt_type_bytes(lhs->type))
    return false;
  int64_t back[VT_MAX_RANK], there[VT_MAX_RANK], backwards[VT_MAX_RANK];
  for (int32_t d = 0; d < lhs->type.rank; d++) back[order[d]] = d;
  widen(order, rows, type.rank, there);
  widen(back, rows, type.rank, backwards);
  vt_value *operands[2] = {turned(o, lhs, back), dot->operands[1]};
  vt_op *made = copy(o, dot, operands, type_in(&o->func->module->arena, type, backwards));
  vt_rewrite_value(&dot->results[0], turned(o, &made->results[0], there));
  return true;
}

// ---- Sums over rows.

// The sides of a product over the same rows, in the same order.
static bool align_sums(const orders *o, vt_op *dot) {
  uint32_t batches, sums;
  vt_attr_ints(dot, VT_ATTR_LHS_BATCHING_DIMENSIONS, &batches);
  const int64_t *lhs = vt_attr_ints(dot, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, &sums),
                *rhs = vt_attr_ints(dot, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, NULL);
  if (batches || sums < 2 || vt_op_attr(dot, VT_ATTR_RAGGED)) return false;
  int64_t of[VT_MAX_RANK], first[VT_MAX_RANK]; // the dimension of the right side for each
  for (uint32_t i = 0; i < sums; i++) {
    if (lhs[i] >= sums || rhs[i] >= sums) return false;
    of[lhs[i]] = rhs[i];
    first[i] = i;
  }
  bool aligned = is_identity(of, (int32_t)sums);
  if (aligned && is_identity(lhs, (int32_t)sums)) return false;
  int side = vt_type_bytes(dot->operands[1]->type) <= vt_type_bytes(dot->operands[0]->type);
  int64_t order[VT_MAX_RANK], back[VT_MAX_RANK];
  for (uint32_t i = 0; i < sums; i++) back[of[i]] = i;
  vt_value *operands[2] = {dot->operands[0], dot->operands[1]};
  widen(side ? of : back, sums, operands[side]->type.rank, order);
  operands[side] = turned(o, operands[side], order);
  vt_op *made = copy(o, dot, operands, dot->results[0].type);
  vt_op_set_ints(made, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, sums, first);
  vt_op_set_ints(made, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, sums, first);
  vt_rewrite_value(&dot->results[0], &made->results[0]);
  return true;
}

static bool sum_as_it_lies(vt_op *op) {
  if (op->result_count != 1 || op->operand_count != 2) return false;
  const vt_op *transpose = op->operands[0]->op;
  if (!transpose || transpose->code != VT_OP_TRANSPOSE) return false;
  const int64_t *order = vt_attr_ints(transpose, VT_ATTR_PERMUTATION, NULL);
  uint32_t count, found = 0;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
  bool sums[VT_MAX_RANK] = {0}, moved[VT_MAX_RANK] = {0};
  int64_t now[VT_MAX_RANK], last = -1;
  for (uint32_t i = 0; i < count; i++) sums[dims[i]] = moved[order[dims[i]]] = true;
  for (int32_t d = 0; d < transpose->results[0].type.rank; d++) {
    if (moved[d]) now[found++] = d;
    if (sums[d]) continue;
    if (order[d] < last) return false;
    last = order[d];
  }
  op->operands[0] = vt_rewrite_resolve(transpose->operands[0]);
  vt_op_set_ints(op, VT_ATTR_DIMENSIONS, count, now);
  return true;
}

static vt_status visit(vt_func *func, void *user) {
  vt_arena scratch = {.brief = true};
  orders o = {func, NULL, vt_func_use_counts(func, &scratch), user};
  for (vt_op *op = func->first; op; op = op->next) {
    vt_rewrite_operands(op);
    o.before = op;
    if (op->code == VT_OP_TRANSPOSE) *o.changed |= enter_product(&o, op);
    if (op->code == VT_OP_DOT_GENERAL) *o.changed |= leave_product(&o, op) || align_sums(&o, op);
    if (op->code == VT_OP_REDUCE) *o.changed |= sum_as_it_lies(op);
  }
  vt_rewrite_returns(func);
  vt_arena_free(&scratch);
  return VT_OK;
}

vt_status vt_row_orders(vt_module *module, bool *out_changed) {
  *out_changed = false;
  if (!module->made[VT_OP_TRANSPOSE] || !module->made[VT_OP_DOT_GENERAL]) return VT_OK;
  return vt_rewrite_and_drop(module, visit, out_changed);
}
