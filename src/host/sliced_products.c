// SPDX-License-Identifier: Apache-2.0
// sliced_products.c - see sliced_products.h.
//
// In attention one product gives queries, keys and values side by side. As one, its result is
// written in f32 and read again to be cut up, scaled and rounded; as three, each goes on while it
// is in the cache (strip.h). Between the product and its slices there may be elementwise ops, such
// as a bias, each the only reader of the one before.
//
//   slice(x y + b, columns)  ->  x slice(y, columns) + slice(b, columns)
#include "host/sliced_products.h"

#include <string.h>

#include "base/array.h"
#include "passes/rewrite.h"

// Rows and columns of each product from which they run in strips.
enum { MIN_ROWS = 64, MIN_COLUMNS = 64, CHAIN = 8 };

// Of each value.
typedef struct readers {
  vt_op ***ops;
  uint32_t *count;
  bool *sliced; // all of them take some columns at all rows, none twice; nor is it returned
} readers;

// The product, the ops behind it, and the value of which slices are read.
typedef struct chain {
  vt_op *ops[CHAIN];
  uint32_t count;
  const vt_value *end;
} chain;

// Where the columns of a slice begin; false if it takes anything else than some columns.
static bool read_slice(const vt_op *op, int64_t *out_low) {
  if (op->code != VT_OP_SLICE) return false;
  uint32_t rank;
  const int64_t *low = vt_attr_ints(op, VT_ATTR_START_INDICES, &rank);
  const int64_t *step = vt_attr_ints(op, VT_ATTR_STRIDES, NULL);
  const int64_t *from = op->operands[0]->type.dims, *to = op->results[0].type.dims;
  for (uint32_t d = 0; d + 1 < rank; d++)
    if (from[d] != to[d]) return false;
  if (!rank || step[rank - 1] != 1 || to[rank - 1] < MIN_COLUMNS) return false;
  *out_low = low[rank - 1];
  return true;
}

static bool all_are_slices(const vt_value *value, vt_op *const *ops, uint32_t count) {
  int64_t total = 0, low;
  for (uint32_t i = 0; i < count; i++) {
    if (!read_slice(ops[i], &low)) return false;
    total += ops[i]->results[0].type.dims[value->type.rank - 1];
  }
  return count > 1 && total <= value->type.dims[value->type.rank - 1];
}

static readers find_readers(vt_func *func, vt_arena *arena) {
  vt_func_number(func);
  size_t values = (size_t)func->value_count;
  readers r = {VT_NEW_ARRAY(arena, vt_op **, values), VT_NEW_ARRAY(arena, uint32_t, values),
               VT_NEW_ARRAY(arena, bool, values)};
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) r.count[op->operands[i]->id]++;
  for (size_t v = 0; v < values; v++) r.ops[v] = VT_NEW_ARRAY(arena, vt_op *, r.count[v] + 1);
  memset(r.count, 0, sizeof *r.count * values);
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) {
      int32_t id = op->operands[i]->id;
      r.ops[id][r.count[id]++] = op;
    }
  for (vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->result_count; i++) {
      const vt_value *value = &op->results[i];
      r.sliced[value->id] = all_are_slices(value, r.ops[value->id], r.count[value->id]);
    }
  for (uint32_t i = 0; i < func->return_count; i++) {
    r.sliced[func->returns[i]->id] = false;
    r.count[func->returns[i]->id] = 0;
  }
  return r;
}

// A matrix on the right side, whose columns come last; many rows.
static bool is_product(const vt_op *op) {
  if (op->code != VT_OP_DOT_GENERAL) return false;
  uint32_t batches, sums;
  vt_attr_ints(op, VT_ATTR_RHS_BATCHING_DIMENSIONS, &batches);
  const int64_t *k = vt_attr_ints(op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, &sums);
  vt_type rhs = op->operands[1]->type, to = op->results[0].type;
  if (batches || sums != 1 || rhs.rank != 2 || to.rank < 2) return false;
  int64_t columns = to.dims[to.rank - 1];
  return rhs.dims[1 - k[0]] == columns && columns && vt_type_elements(to) / columns >= MIN_ROWS;
}

static bool follow(const readers *r, vt_op *product, chain *c) {
  *c = (chain){.ops = {product}, .count = 1, .end = &product->results[0]};
  while (!r->sliced[c->end->id]) {
    if (r->count[c->end->id] != 1 || c->count == CHAIN) return false;
    vt_op *next = r->ops[c->end->id][0];
    const vt_op_info *info = vt_op_info_get(next->code);
    if (!(info->flags & VT_OPF_ELTWISE) || next->region_count || next->result_count != 1 ||
        !vt_type_same_dims(next->results[0].type, c->end->type))
      return false;
    c->ops[c->count++] = next;
    c->end = &next->results[0];
  }
  return true;
}

typedef struct cut {
  vt_op *slice; // what is made comes before it
  int64_t low, columns;
} cut;

static vt_type narrowed(vt_func *func, vt_type type, uint32_t dim, int64_t columns) {
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < type.rank; d++) dims[d] = d == (int32_t)dim ? columns : type.dims[d];
  return vt_type_make(&func->module->arena, type.dtype, type.rank, dims);
}

static vt_op *copy(const cut *c, const vt_op *op, vt_value **operands, vt_type type) {
  vt_func *func = c->slice->func;
  vt_op *made = vt_op_create(func, op->code, op->loc, op->operand_count, operands, 1, &type, 0);
  for (uint32_t i = 0; i < op->operand_count; i++)
    made->operands[i] = vt_rewrite_resolve(operands[i]);
  made->attrs = op->attrs;
  made->attr_count = op->attr_count;
  vt_op_insert(c->slice, made);
  return made;
}

// Some of a value along one dimension: of a broadcast or a conversion before it is done.
static vt_value *part_of(const cut *c, vt_value *value, uint32_t dim) {
  vt_func *func = c->slice->func;
  const vt_op *op = value->op;
  vt_type type = narrowed(func, value->type, dim, c->columns);
  if (op && op->code == VT_OP_CONVERT) {
    vt_value *part = part_of(c, op->operands[0], dim);
    return copy(c, op, &part, type)->results;
  }
  if (op && op->code == VT_OP_BROADCAST_IN_DIM) {
    uint32_t count;
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    vt_value *part = op->operands[0];
    for (uint32_t d = 0; d < count; d++)
      if (dims[d] == dim && part->type.dims[d] > 1) part = part_of(c, part, d);
    return copy(c, op, &part, type)->results;
  }
  int64_t low[VT_MAX_RANK] = {0}, high[VT_MAX_RANK], step[VT_MAX_RANK];
  for (int32_t d = 0; d < value->type.rank; d++) high[d] = value->type.dims[d], step[d] = 1;
  low[dim] = c->low, high[dim] = c->low + c->columns;
  vt_op *slice = vt_op_create(func, VT_OP_SLICE, c->slice->loc, 1, &value, 1, &type, 0);
  slice->operands[0] = vt_rewrite_resolve(value);
  vt_op_set_ints(slice, VT_ATTR_START_INDICES, (uint32_t)value->type.rank, low);
  vt_op_set_ints(slice, VT_ATTR_LIMIT_INDICES, (uint32_t)value->type.rank, high);
  vt_op_set_ints(slice, VT_ATTR_STRIDES, (uint32_t)value->type.rank, step);
  vt_op_insert(c->slice, slice);
  return slice->results;
}

static vt_value *compute(const cut *c, const chain *from) {
  const vt_op *product = from->ops[0];
  vt_func *func = c->slice->func;
  const int64_t *k = vt_attr_ints(product, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, NULL);
  uint32_t last = (uint32_t)product->results[0].type.rank - 1;
  vt_value *sides[2] = {product->operands[0],
                        part_of(c, product->operands[1], (uint32_t)(1 - k[0]))};
  vt_type type = narrowed(func, product->results[0].type, last, c->columns);
  const vt_value *whole = &product->results[0];
  vt_value *value = copy(c, product, sides, type)->results;
  for (uint32_t i = 1; i < from->count; i++) {
    const vt_op *op = from->ops[i];
    vt_value *operands[4];
    for (uint32_t o = 0; o < op->operand_count; o++)
      operands[o] = op->operands[o] == whole     ? value
                    : op->operands[o]->type.rank ? part_of(c, op->operands[o], last)
                                                 : op->operands[o];
    whole = &op->results[0];
    value = copy(c, op, operands, narrowed(func, whole->type, last, c->columns))->results;
  }
  return value;
}

static void cut_product(const readers *r, const chain *c) {
  for (uint32_t i = 0; i < r->count[c->end->id]; i++) {
    vt_op *slice = r->ops[c->end->id][i];
    cut part = {.slice = slice, .columns = slice->results[0].type.dims[c->end->type.rank - 1]};
    if (read_slice(slice, &part.low)) vt_rewrite_value(&slice->results[0], compute(&part, c));
  }
}

static vt_status visit(vt_func *func, void *user) {
  bool *changed = user, any = false;
  for (const vt_op *op = func->first; op && !any; op = op->next) any = is_product(op);
  if (!any) return VT_OK;
  vt_arena arena = {.brief = true};
  readers r = find_readers(func, &arena);
  VT_ARRAY(chain) chains = {0};
  chain c;
  for (vt_op *op = func->first; op; op = op->next)
    if (is_product(op) && follow(&r, op, &c)) vt_array_push(&chains, c);
  for (size_t i = 0; i < chains.size; i++) cut_product(&r, &chains.data[i]);
  if (chains.size) {
    for (vt_op *op = func->first; op; op = op->next) vt_rewrite_operands(op);
    vt_rewrite_returns(func);
    *changed = true;
  }
  vt_array_free(&chains);
  vt_arena_free(&arena);
  return VT_OK;
}

vt_status vt_sliced_products(vt_module *module, bool *out_changed) {
  *out_changed = false;
  if (!module->made[VT_OP_SLICE] || !module->made[VT_OP_DOT_GENERAL]) return VT_OK;
  return vt_rewrite_and_drop(module, visit, out_changed);
}
