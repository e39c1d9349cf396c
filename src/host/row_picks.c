// SPDX-License-Identifier: Apache-2.0
// row_picks.c - see row_picks.h.
//
// The loss of a classifier takes one logarithm of a probability from each row of classes, and its
// gradient puts one number into each row of zeros. A gather reads an array in memory, and a
// scatter makes one: for the sake of one element in thousands, arrays of the size of the logits
// are written and read. So the few elements are computed by themselves, and the rows of zeros are
// a comparison, which goes into the loops that read them:
//
//   gather(f(x, y), i)        ->  f(gather(x, i), gather(y, i))       f elementwise
//   scatter(zeros, i, u)      ->  select(iota == i, u, zeros)
//
// What is the same for a whole row is not gathered. Rows are along any dimension; all others are
// batching dimensions, as take_along_axis has them. Bits do not change, but -0 may be put where a
// scatter adds it to 0.
#include "host/row_picks.h"

#include "eval/indexed.h"
#include "eval/kernel.h"
#include "passes/rewrite.h"

enum { MOST_DEPTH = 6 };          // of operators that are computed for the elements alone,
enum { MOST_OPERANDS = 3 };       // of each,
enum { MOST_GATHERS = 4 };        // and gathers of what they read
enum { LEAST_SHARE = 16 };        // of elements that are there, for one that is taken
enum { LEAST_BYTES = 256 << 10 }; // of an array, less stays in a cache

// A gather or scatter of one element of each row.
typedef struct pick {
  vt_op *op;
  int64_t dim;                  // of the array, along which rows are
  int64_t places[VT_MAX_RANK];  // by dimension of the array: that of the gather's result, or of
                                // the scatter's updates; -1: `dim`
  int64_t indices[VT_MAX_RANK]; // likewise, of the indices
} pick;

static bool read_pick(vt_op *op, const vt_indexed_keys *keys, pick *out) {
  vt_type array = op->operands[0]->type;
  uint32_t windows, dropped, batching, mapped;
  vt_attr_ints(op, keys->window_dims, &windows);
  const int64_t *gone = vt_attr_ints(op, keys->dropped_dims, &dropped);
  const int64_t *of_array = vt_attr_ints(op, keys->operand_batching_dims, &batching);
  const int64_t *of_indices = vt_attr_ints(op, keys->indices_batching_dims, NULL);
  const int64_t *map = vt_attr_ints(op, keys->index_map, &mapped);
  int64_t vector = vt_attr_i64(op, VT_ATTR_INDEX_VECTOR_DIM);
  if (windows || dropped != 1 || mapped != 1 || gone[0] != map[0]) return false;
  if (batching + 1 != (uint32_t)array.rank) return false;
  if (vt_type_bytes(array) < LEAST_BYTES) return false;
  *out = (pick){.op = op, .dim = map[0]};
  out->places[out->dim] = out->indices[out->dim] = -1;
  for (uint32_t i = 0; i < batching; i++) {
    out->indices[of_array[i]] = of_indices[i];
    out->places[of_array[i]] = of_indices[i] - (of_indices[i] > vector);
  }
  return true;
}

static vt_value *broadcast(vt_op *before, vt_type type, vt_value *value, uint32_t count,
                           const int64_t *dims) {
  vt_value *wide =
      vt_build(before->func, before, VT_OP_BROADCAST_IN_DIM, before->loc, type, 1, &value);
  vt_op_set_ints(wide->op, VT_ATTR_BROADCAST_DIMENSIONS, count, dims);
  return wide;
}

static vt_type with_dtype(vt_type type, vt_dtype dtype) {
  type.dtype = dtype;
  return type;
}

// ---- Gathers.

// Whether the value is a broadcast that has one number for each row.
static bool is_row_value(const pick *p, const vt_value *value) {
  const vt_op *op = value->op;
  if (!op || op->code != VT_OP_BROADCAST_IN_DIM) return false;
  uint32_t count;
  const int64_t *to = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, &count);
  for (uint32_t k = 0; k < count; k++)
    if (to[k] == p->dim) return false;
  return true;
}

static bool is_splat(const vt_value *value) {
  return value->op && value->op->code == VT_OP_CONSTANT &&
         vt_attr_literal(value->op, VT_ATTR_VALUE)->splat;
}

// The operator that computes the value where it can do so for some elements alone; NULL: none.
static vt_op *elementwise(const vt_value *value, int depth) {
  vt_op *op = value->op;
  if (!op || depth == MOST_DEPTH || op->result_count != 1 || op->region_count) return NULL;
  if (!(vt_op_info_get(op->code)->flags & VT_OPF_ELTWISE) || op->operand_count > MOST_OPERANDS)
    return NULL;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!vt_type_same_dims(op->operands[i]->type, value->type)) return NULL;
  return op;
}

// How many gathers give the elements of the value; more than MOST_GATHERS: too many.
static uint32_t gathers_of(const pick *p, const vt_value *value, int depth) {
  if (is_row_value(p, value) || is_splat(value)) return 0;
  const vt_op *op = elementwise(value, depth);
  if (!op) return 1;
  uint32_t count = 0;
  for (uint32_t i = 0; i < op->operand_count && count <= MOST_GATHERS; i++)
    count += gathers_of(p, op->operands[i], depth + 1);
  return count;
}

static vt_value *picked(const pick *p, vt_value *value, int depth) {
  vt_op *gather = p->op, *from = value->op;
  vt_type type = with_dtype(gather->results[0].type, value->type.dtype);
  if (is_row_value(p, value)) {
    uint32_t count;
    const int64_t *to = vt_attr_ints(from, VT_ATTR_BROADCAST_DIMENSIONS, &count);
    int64_t dims[VT_MAX_RANK];
    for (uint32_t k = 0; k < count; k++) dims[k] = p->places[to[k]];
    return broadcast(gather, type, from->operands[0], count, dims);
  }
  if (is_splat(value)) {
    vt_literal *literal = VT_NEW(&gather->func->module->arena, vt_literal);
    *literal = *vt_attr_literal(from, VT_ATTR_VALUE);
    literal->type = type;
    return vt_build_constant(gather->func, gather, gather->loc, literal);
  }
  const vt_op *alone = elementwise(value, depth), *like = alone ? alone : gather;
  vt_value *operands[MOST_OPERANDS] = {value, gather->operands[1]};
  for (uint32_t i = 0; alone && i < alone->operand_count; i++)
    operands[i] = picked(p, alone->operands[i], depth + 1);
  vt_value *made =
      vt_build(gather->func, gather, like->code, gather->loc, type, like->operand_count, operands);
  made->op->attrs = like->attrs;
  made->op->attr_count = like->attr_count;
  return made;
}

// Whether all slices are one element, and few of those that are there.
static bool takes_few(const vt_op *gather) {
  uint32_t count;
  const int64_t *sizes = vt_attr_ints(gather, VT_ATTR_SLICE_SIZES, &count);
  for (uint32_t i = 0; i < count; i++)
    if (sizes[i] != 1) return false;
  return vt_type_elements(gather->results[0].type) <=
         vt_type_elements(gather->operands[0]->type) / LEAST_SHARE;
}

static vt_value *pick_from(vt_op *gather) {
  pick p;
  if (!elementwise(gather->operands[0], 0) || !takes_few(gather)) return NULL;
  if (!read_pick(gather, &vt_gather_keys, &p)) return NULL;
  return gathers_of(&p, gather->operands[0], 0) <= MOST_GATHERS ? picked(&p, gather->operands[0], 0)
                                                                : NULL;
}

// ---- Scatters.

// An array with one element for each row, as a value for all elements of the rows: `at` has the
// dimension of it for each of the rows' array. Its others have one element.
static vt_value *for_rows(const pick *p, vt_value *value, const int64_t *at) {
  vt_type array = p->op->operands[0]->type;
  int64_t sizes[VT_MAX_RANK], dims[VT_MAX_RANK];
  int32_t rank = 0;
  for (int32_t d = 0; d < value->type.rank; d++)
    for (int32_t to = 0; to < array.rank; to++)
      if (at[to] == d) sizes[rank] = array.dims[to], dims[rank++] = to;
  vt_type type = vt_type_make(&p->op->func->module->arena, value->type.dtype, rank, sizes);
  value = vt_build(p->op->func, p->op, VT_OP_RESHAPE, p->op->loc, type, 1, &value);
  return broadcast(p->op, with_dtype(array, type.dtype), value, (uint32_t)rank, dims);
}

static vt_value *put_in_zeros(vt_op *scatter) {
  pick p;
  if (scatter->operand_count != 3 || scatter->result_count != 1) return NULL;
  vt_value *zeros = scatter->operands[0], *indices = scatter->operands[1];
  vt_value *updates = scatter->operands[2];
  vt_type array = zeros->type;
  if (!vt_is_splat_of(zeros, 0) || !read_pick(scatter, &vt_scatter_keys, &p)) return NULL;
  if (vt_dtype_get(indices->type.dtype)->bits < 32) return NULL; // an iota of it could wrap
  // One for each row.
  if (vt_type_elements(updates->type) * array.dims[p.dim] != vt_type_elements(array)) return NULL;
  const vt_func *body = scatter->regions[0];
  if (!vt_scatter_assigns(body, 1) && vt_region_binary(body, 0, 1) != VT_OP_ADD) return NULL;
  vt_type places = with_dtype(array, indices->type.dtype), truth = with_dtype(array, VT_PRED);
  vt_value *both[2] = {vt_build(scatter->func, scatter, VT_OP_IOTA, scatter->loc, places, 0, NULL),
                       for_rows(&p, indices, p.indices)};
  vt_op_set_i64(both[0]->op, VT_ATTR_IOTA_DIMENSION, p.dim);
  vt_value *here = vt_build(scatter->func, scatter, VT_OP_COMPARE, scatter->loc, truth, 2, both);
  bool is_unsigned = vt_dtype_kind_of(places.dtype) == VT_KIND_UNSIGNED;
  vt_op_set_i64(here->op, VT_ATTR_COMPARISON_DIRECTION, VT_CMP_EQ);
  vt_op_set_i64(here->op, VT_ATTR_COMPARE_TYPE,
                is_unsigned ? VT_CMPTYPE_UNSIGNED : VT_CMPTYPE_SIGNED);
  vt_value *choice[3] = {here, for_rows(&p, updates, p.places), zeros};
  return vt_build(scatter->func, scatter, VT_OP_SELECT, scatter->loc, array, 3, choice);
}

static vt_status visit(vt_func *func, void *user) {
  bool *changed = user;
  for (vt_op *op = func->first; op; op = op->next) {
    vt_rewrite_operands(op);
    vt_value *value = op->code == VT_OP_GATHER    ? pick_from(op)
                      : op->code == VT_OP_SCATTER ? put_in_zeros(op)
                                                  : NULL;
    if (value) vt_rewrite_value(&op->results[0], value), *changed = true;
  }
  vt_rewrite_returns(func);
  return VT_OK;
}

vt_status vt_row_picks(vt_module *module, bool *out_changed) {
  *out_changed = false;
  if (!module->made[VT_OP_GATHER] && !module->made[VT_OP_SCATTER]) return VT_OK;
  return vt_rewrite_and_drop(module, visit, out_changed);
}
