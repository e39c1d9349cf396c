// SPDX-License-Identifier: Apache-2.0
// lower_chlo.c - CHLO ops, which StableHLO's text contains until a client legalizes it, and custom
// calls "mhlo.NAME" become StableHLO ops. Mathematical functions are in chlo_math.c.
#include <math.h>
#include <string.h>

#include "import/chlo.h"

vt_value *vt_chlo_op(vt_chlo *c, vt_opcode code, vt_value *x, vt_value *y) {
  return vt_build(c->func, NULL, code, c->loc, c->type, y ? 2 : 1, (vt_value *[]){x, y});
}

vt_value *vt_chlo_bits(vt_chlo *c, vt_type type, uint64_t bits) {
  vt_arena *arena = &c->func->module->arena;
  vt_literal *literal = VT_NEW(arena, vt_literal);
  *literal =
      (vt_literal){type, vt_arena_copy(arena, &bits, sizeof bits), vt_type_elements(type) != 1};
  return vt_build_constant(c->func, NULL, c->loc, literal);
}

vt_value *vt_chlo_number(vt_chlo *c, double value) {
  uint64_t bits = 0;
  float narrow = (float)value;
  if (c->type.dtype == VT_F64)
    memcpy(&bits, &value, sizeof value);
  else
    memcpy(&bits, &narrow, sizeof narrow);
  return vt_chlo_bits(c, c->type, bits);
}

static vt_value *compare_as(vt_chlo *c, int direction, int compare_type, vt_value *x, vt_value *y) {
  vt_type truth = x->type;
  truth.dtype = VT_PRED;
  vt_value *result = vt_build(c->func, NULL, VT_OP_COMPARE, c->loc, truth, 2, (vt_value *[]){x, y});
  vt_op_set_i64(result->op, VT_ATTR_COMPARISON_DIRECTION, direction);
  vt_op_set_i64(result->op, VT_ATTR_COMPARE_TYPE, compare_type);
  return result;
}

static int compare_type_of(vt_dtype dtype) {
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  return kind == VT_KIND_FLOAT || kind == VT_KIND_COMPLEX ? VT_CMPTYPE_FLOAT
         : kind == VT_KIND_SIGNED                         ? VT_CMPTYPE_SIGNED
                                                          : VT_CMPTYPE_UNSIGNED;
}

vt_value *vt_chlo_compare(vt_chlo *c, int direction, vt_value *x, vt_value *y) {
  return compare_as(c, direction, compare_type_of(x->type.dtype), x, y);
}

vt_value *vt_chlo_select(vt_chlo *c, vt_value *truth, vt_value *yes, vt_value *no) {
  return vt_build(c->func, NULL, VT_OP_SELECT, c->loc, yes->type, 3,
                  (vt_value *[]){truth, yes, no});
}

vt_value *vt_chlo_to(vt_chlo *c, vt_opcode code, vt_dtype dtype, vt_value *x) {
  vt_type type = x->type;
  type.dtype = dtype;
  return vt_build(c->func, NULL, code, c->loc, type, 1, &x);
}

// ---- elementwise ----

// Types below f32 are computed in f32.
static vt_value *build_function(vt_chlo *c, const vt_chlo_function *f, vt_value *const *operands) {
  vt_type type = operands[0]->type;
  c->type = type;
  if (c->func->module->outline && !vt_dtype_is_complex(type.dtype))
    return vt_chlo_op(c, f->like, operands[0], f->operands > 1 ? operands[1] : NULL);
  if (vt_dtype_is_complex(type.dtype)) {
    c->type.dtype = type.dtype == VT_C128 ? VT_F64 : VT_F32;
    vt_chlo_pair z = {vt_chlo_to(c, VT_OP_REAL, c->type.dtype, operands[0]),
                      vt_chlo_to(c, VT_OP_IMAG, c->type.dtype, operands[0])};
    vt_chlo_pair w = f->complex(c, z);
    return vt_build(c->func, NULL, VT_OP_COMPLEX, c->loc, type, 2, (vt_value *[]){w.re, w.im});
  }
  bool narrow = type.dtype != VT_F32 && type.dtype != VT_F64;
  vt_value *x[2] = {operands[0], f->operands > 1 ? operands[1] : NULL};
  if (narrow) c->type.dtype = VT_F32;
  for (int i = 0; i < f->operands && narrow; i++) x[i] = vt_chlo_to(c, VT_OP_CONVERT, VT_F32, x[i]);
  vt_value *result = f->real(c, x[0], x[1]);
  return narrow ? vt_chlo_to(c, VT_OP_CONVERT, type.dtype, result) : result;
}

static vt_value *is_inf_of(vt_chlo *c, vt_value *x, bool positive, bool negative) {
  if (x->type.dtype != VT_F64) x = vt_chlo_to(c, VT_OP_CONVERT, VT_F32, x);
  c->type = x->type;
  if (positive && negative) x = vt_chlo_op(c, VT_OP_ABS, x, NULL);
  return vt_chlo_compare(c, VT_CMP_EQ, x, vt_chlo_number(c, positive ? INFINITY : -INFINITY));
}

static vt_value *conj_of(vt_chlo *c, vt_value *z) {
  if (!vt_dtype_is_complex(z->type.dtype)) return z;
  vt_dtype part = z->type.dtype == VT_C128 ? VT_F64 : VT_F32;
  vt_value *re = vt_chlo_to(c, VT_OP_REAL, part, z), *im = vt_chlo_to(c, VT_OP_IMAG, part, z);
  im = vt_chlo_to(c, VT_OP_NEGATE, part, im);
  return vt_build(c->func, NULL, VT_OP_COMPLEX, c->loc, z->type, 2, (vt_value *[]){re, im});
}

// The neighbour of x in the direction of y: its bits, as sign and magnitude, plus or minus one.
static vt_value *next_after_of(vt_chlo *c, vt_value *x, vt_value *y) {
  const vt_dtype_info *info = vt_dtype_get(x->type.dtype);
  vt_dtype whole = info->bits == 64 ? VT_U64 : info->bits == 32 ? VT_U32 : VT_U16;
  uint64_t sign = UINT64_C(1) << (info->bits - 1);
  vt_type bits = x->type;
  bits.dtype = c->type.dtype = whole;
  c->type.rank = bits.rank;
  c->type.dims = bits.dims;
  vt_value *a = vt_chlo_to(c, VT_OP_BITCAST_CONVERT, whole, x);
  vt_value *b = vt_chlo_to(c, VT_OP_BITCAST_CONVERT, whole, y);
  vt_value *top = vt_chlo_bits(c, bits, sign), *rest = vt_chlo_bits(c, bits, sign - 1);
  vt_value *one = vt_chlo_bits(c, bits, 1), *zero = vt_chlo_bits(c, bits, 0);
  vt_value *size_a = vt_chlo_op(c, VT_OP_AND, a, rest), *size_b = vt_chlo_op(c, VT_OP_AND, b, rest);
  vt_value *sign_a = vt_chlo_op(c, VT_OP_AND, a, top), *sign_b = vt_chlo_op(c, VT_OP_AND, b, top);
  // From zero to the least number with the sign of y; otherwise towards zero when y is smaller or
  // on the other side.
  vt_value *from_zero = vt_chlo_op(c, VT_OP_OR, sign_b, one);
  vt_value *other_side = vt_chlo_compare(c, VT_CMP_NE, sign_a, sign_b);
  vt_value *smaller = vt_chlo_compare(c, VT_CMP_GT, size_a, size_b);
  vt_value *down = vt_chlo_select(c, other_side, other_side, smaller);
  vt_value *moved = vt_chlo_select(c, down, vt_chlo_op(c, VT_OP_SUBTRACT, a, one),
                                   vt_chlo_op(c, VT_OP_ADD, a, one));
  moved = vt_chlo_select(c, vt_chlo_compare(c, VT_CMP_EQ, size_a, zero), from_zero, moved);
  vt_value *result = vt_chlo_to(c, VT_OP_BITCAST_CONVERT, x->type.dtype, moved);
  result = vt_chlo_select(c, vt_chlo_compare(c, VT_CMP_EQ, x, y), y, result);
  result = vt_chlo_select(c, vt_chlo_compare(c, VT_CMP_NE, y, y), y, result);
  return vt_chlo_select(c, vt_chlo_compare(c, VT_CMP_NE, x, x), x, result);
}

// The high half of the product of 64-bit numbers: from the cross products of their halves.
static vt_value *high_half_64(vt_chlo *c, vt_value *x, vt_value *y, bool is_signed) {
  vt_type type = x->type;
  type.dtype = c->type.dtype = VT_U64;
  vt_value *v[2] = {x, y}, *low[2], *high[2];
  vt_value *mask = vt_chlo_bits(c, type, UINT32_MAX), *shift = vt_chlo_bits(c, type, 32);
  vt_value *zero = vt_chlo_bits(c, type, 0);
  for (int i = 0; i < 2; i++) {
    if (is_signed) v[i] = vt_chlo_to(c, VT_OP_BITCAST_CONVERT, VT_U64, v[i]);
    low[i] = vt_chlo_op(c, VT_OP_AND, v[i], mask);
    high[i] = vt_chlo_op(c, VT_OP_SHIFT_RIGHT_LOGICAL, v[i], shift);
  }
#define MULTIPLY(a, b) vt_chlo_op(c, VT_OP_MULTIPLY, a, b)
#define ADD(a, b)      vt_chlo_op(c, VT_OP_ADD, a, b)
#define HIGH(a)        vt_chlo_op(c, VT_OP_SHIFT_RIGHT_LOGICAL, a, shift)
  vt_value *middle = ADD(MULTIPLY(high[0], low[1]), HIGH(MULTIPLY(low[0], low[1])));
  vt_value *carry = ADD(MULTIPLY(low[0], high[1]), vt_chlo_op(c, VT_OP_AND, middle, mask));
  vt_value *result = ADD(MULTIPLY(high[0], high[1]), ADD(HIGH(middle), HIGH(carry)));
#undef MULTIPLY
#undef ADD
#undef HIGH
  if (!is_signed) return result;
  // Read as unsigned, negative numbers are 2^64 too large.
  vt_type whole = type;
  whole.dtype = VT_S64;
  for (int i = 0; i < 2; i++) {
    vt_value *negative = vt_chlo_compare(c, VT_CMP_LT, i ? y : x, vt_chlo_bits(c, whole, 0));
    result = vt_chlo_op(c, VT_OP_SUBTRACT, result, vt_chlo_select(c, negative, v[1 - i], zero));
  }
  return vt_chlo_to(c, VT_OP_BITCAST_CONVERT, VT_S64, result);
}

static vt_value *mulhi_of(vt_chlo *c, vt_value *x, vt_value *y) {
  vt_dtype dtype = x->type.dtype;
  bool is_signed = vt_dtype_kind_of(dtype) == VT_KIND_SIGNED;
  c->type = x->type;
  if (vt_dtype_get(dtype)->bits == 64) return high_half_64(c, x, y, is_signed);
  c->type.dtype = is_signed ? VT_S64 : VT_U64;
  x = vt_chlo_to(c, VT_OP_CONVERT, c->type.dtype, x);
  y = vt_chlo_to(c, VT_OP_CONVERT, c->type.dtype, y);
  vt_value *high = vt_chlo_op(c, VT_OP_SHIFT_RIGHT_LOGICAL, vt_chlo_op(c, VT_OP_MULTIPLY, x, y),
                              vt_chlo_bits(c, c->type, vt_dtype_get(dtype)->bits));
  return vt_chlo_to(c, VT_OP_CONVERT, dtype, high);
}

// ---- broadcasting forms -------------------------------------------------------------------------

static const struct {
  const char *name;
  vt_opcode code;
} broadcasting[] = {{"add", VT_OP_ADD},
                    {"and", VT_OP_AND},
                    {"atan2", VT_OP_ATAN2},
                    {"compare", VT_OP_COMPARE},
                    {"complex", VT_OP_COMPLEX},
                    {"divide", VT_OP_DIVIDE},
                    {"maximum", VT_OP_MAXIMUM},
                    {"minimum", VT_OP_MINIMUM},
                    {"multiply", VT_OP_MULTIPLY},
                    {"or", VT_OP_OR},
                    {"power", VT_OP_POWER},
                    {"remainder", VT_OP_REMAINDER},
                    {"shift_left", VT_OP_SHIFT_LEFT},
                    {"shift_right_arithmetic", VT_OP_SHIFT_RIGHT_ARITHMETIC},
                    {"shift_right_logical", VT_OP_SHIFT_RIGHT_LOGICAL},
                    {"subtract", VT_OP_SUBTRACT},
                    {"xor", VT_OP_XOR}};

// x with the dimensions of the result: broadcast_dimensions says where the dimensions of a
// lower-rank operand go, by default the last ones. NULL when it does not fit.
static vt_value *broadcast_to(vt_chlo *c, const vt_raw_op *raw, vt_lower *lo, vt_value *x,
                              vt_type to) {
  const vt_raw_attr *given = vt_raw_find(raw, "broadcast_dimensions");
  int32_t rank = x->type.rank;
  int64_t dims[VT_MAX_RANK];
  uint32_t count = 0;
  const int64_t *list = NULL;
  if (rank > to.rank) return NULL;
  bool use = given && rank < to.rank;
  if (use && (!vt_raw_ints(lo->arena, given, &count, &list) || count != (uint32_t)rank))
    return NULL;
  for (int32_t i = 0; i < rank; i++) {
    dims[i] = use ? list[i] : i + to.rank - rank;
    if (dims[i] < 0 || dims[i] >= to.rank) return NULL;
    if (x->type.dims[i] != 1 && x->type.dims[i] != to.dims[dims[i]]) return NULL;
  }
  vt_type type = {x->type.dtype, to.rank, to.dims};
  vt_value *result = vt_build(c->func, NULL, VT_OP_BROADCAST_IN_DIM, c->loc, type, 1, &x);
  vt_op_set_ints(result->op, VT_ATTR_BROADCAST_DIMENSIONS, (uint32_t)rank, dims);
  return result;
}

// ---- top_k, ragged_dot --------------------------------------------------------------------------

static vt_value *iota(vt_chlo *c, vt_type type, int64_t dim) {
  vt_value *result = vt_build(c->func, NULL, VT_OP_IOTA, c->loc, type, 0, NULL);
  vt_op_set_i64(result->op, VT_ATTR_IOTA_DIMENSION, dim);
  return result;
}

static vt_value *first_of(vt_chlo *c, vt_value *x, vt_type to) {
  int64_t starts[VT_MAX_RANK] = {0}, strides[VT_MAX_RANK];
  uint32_t rank = (uint32_t)to.rank;
  for (uint32_t i = 0; i < rank; i++) strides[i] = 1;
  vt_value *result = vt_build(c->func, NULL, VT_OP_SLICE, c->loc, to, 1, &x);
  vt_op_set_ints(result->op, VT_ATTR_START_INDICES, rank, starts);
  vt_op_set_ints(result->op, VT_ATTR_LIMIT_INDICES, rank, to.dims);
  vt_op_set_ints(result->op, VT_ATTR_STRIDES, rank, strides);
  return result;
}

// The last dimension sorted with its indices, ties in their original order; floats in total order.
static bool build_top_k(vt_chlo *c, const vt_raw_op *raw, vt_value *x, const vt_type_list *types,
                        vt_value **results) {
  const vt_raw_attr *k = vt_raw_find(raw, "k"), *largest = vt_raw_find(raw, "largest");
  int32_t last = x->type.rank - 1;
  if (types->size != 2 || last < 0 || !k || k->kind != VT_RAW_INT || k->i64 < 0 ||
      k->i64 > x->type.dims[last] || vt_dtype_is_complex(x->type.dtype))
    return false;
  vt_type values = types->data[0], indices = types->data[1];
  bool fits = values.dtype == x->type.dtype && indices.dtype == VT_S32 && values.rank == last + 1 &&
              vt_type_same_dims(values, indices);
  for (int32_t i = 0; fits && i <= last; i++)
    fits = values.dims[i] == (i < last ? x->type.dims[i] : k->i64);
  if (!fits) return false;
  vt_type whole = x->type;
  whole.dtype = VT_S32;
  vt_value *operands[2] = {x, iota(c, whole, last)};
  vt_op *sort =
      vt_op_create(c->func, VT_OP_SORT, c->loc, 2, operands, 2, (vt_type[]){x->type, whole}, 1);
  vt_func *body = sort->regions[0] = vt_func_create(c->func->module, "");
  for (int i = 0; i < 4; i++)
    vt_func_add_param(body, (vt_type){i < 2 ? x->type.dtype : VT_S32, 0, NULL});
  vt_chlo inside = {body, c->loc, c->type};
  int kind =
      vt_dtype_is_float(x->type.dtype) ? VT_CMPTYPE_TOTALORDER : compare_type_of(x->type.dtype);
  int direction = largest && !largest->i64 ? VT_CMP_LT : VT_CMP_GT;
  vt_value *order = compare_as(&inside, direction, kind, body->params[0], body->params[1]);
  vt_func_set_returns(body, 1, &order);
  vt_op_set_i64(sort, VT_ATTR_DIMENSION, last);
  vt_op_set_i64(sort, VT_ATTR_IS_STABLE, 1);
  vt_op_append(c->func, sort);
  results[0] = first_of(c, &sort->results[0], values);
  results[1] = first_of(c, &sort->results[1], indices);
  return true;
}

typedef struct dim_list {
  uint32_t count;
  int64_t dims[VT_MAX_RANK];
} dim_list;

static bool read_dims(vt_lower *lo, const vt_raw_attr *value, int32_t rank, dim_list *out) {
  const int64_t *list = NULL;
  *out = (dim_list){0};
  if (!value) return true;
  if (!vt_raw_ints(lo->arena, value, &out->count, &list) || out->count > (uint32_t)rank)
    return false;
  for (uint32_t i = 0; i < out->count; i++) {
    if (list[i] < 0 || list[i] >= rank) return false;
    out->dims[i] = list[i];
  }
  return true;
}

static bool holds(const dim_list *list, int64_t dim) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->dims[i] == dim) return true;
  return false;
}

// What only splits the operand of a ragged product: a TPU picks the rows as it multiplies.
static vt_value *splits(vt_value *value) {
  vt_op_set_ints(value->op, VT_ATTR_RAGGED, 0, NULL);
  return value;
}

// `x` as an array of `type`; its dimension i becomes to[i].
static vt_value *spread(vt_chlo *c, vt_value *x, vt_type type, const int64_t *to) {
  vt_value *result = vt_build(c->func, NULL, VT_OP_BROADCAST_IN_DIM, c->loc, type, 1, &x);
  vt_op_set_ints(result->op, VT_ATTR_BROADCAST_DIMENSIONS, (uint32_t)x->type.rank, to);
  return result;
}

// The end of each group: the sum of the sizes up to it, along their last dimension.
static vt_value *ends_of(vt_chlo *c, vt_value *sizes) {
  int32_t last = sizes->type.rank - 1;
  int64_t dims[VT_MAX_RANK], to[VT_MAX_RANK], groups = sizes->type.dims[last];
  for (int32_t i = 0; i < last; i++) dims[i] = sizes->type.dims[i], to[i] = i;
  dims[last] = dims[last + 1] = groups;
  to[last] = last + 1;
  vt_type square = vt_type_make(&c->func->module->arena, VT_S32, last + 2, dims);
  vt_value *each = spread(c, sizes, square, to);
  vt_value *upto = vt_chlo_compare(c, VT_CMP_GE, iota(c, square, last), iota(c, square, last + 1));
  vt_value *counted = vt_chlo_select(c, upto, each, vt_chlo_bits(c, square, 0));
  vt_type scalar = {VT_S32, 0, NULL};
  vt_op *sum =
      vt_op_create(c->func, VT_OP_REDUCE, c->loc, 2,
                   (vt_value *[]){counted, vt_chlo_bits(c, scalar, 0)}, 1, &sizes->type, 1);
  vt_func *body = sum->regions[0] = vt_func_create(c->func->module, "");
  for (int i = 0; i < 2; i++) vt_func_add_param(body, scalar);
  vt_value *total = vt_build(body, NULL, VT_OP_ADD, c->loc, scalar, 2, body->params);
  vt_func_set_returns(body, 1, &total);
  vt_op_set_ints(sum, VT_ATTR_DIMENSIONS, 1, (int64_t[]){last + 1});
  vt_op_append(c->func, sum);
  return &sum->results[0];
}

// One copy of lhs for each group, in which the rows of other groups are zero: [groups, ...lhs].
// `outer`: dimensions of lhs for each of which the groups have sizes of their own.
static vt_value *split_groups(vt_chlo *c, vt_value *lhs, vt_value *sizes, int64_t ragged,
                              const dim_list *outer) {
  vt_arena *arena = &c->func->module->arena;
  int64_t dims[VT_MAX_RANK], where[VT_MAX_RANK], edge[VT_MAX_RANK];
  sizes = vt_chlo_to(c, VT_OP_CONVERT, VT_S32, sizes);
  vt_value *ends = ends_of(c, sizes);
  c->type = sizes->type;
  vt_value *starts = vt_chlo_op(c, VT_OP_SUBTRACT, ends, sizes);

  dims[0] = sizes->type.dims[sizes->type.rank - 1];
  for (int32_t i = 0; i < lhs->type.rank; i++) {
    dims[i + 1] = lhs->type.dims[i];
    where[i] = i + 1;
  }
  for (uint32_t i = 0; i < outer->count; i++) edge[i] = outer->dims[i] + 1;
  edge[outer->count] = 0;
  vt_type counts = vt_type_make(arena, VT_S32, lhs->type.rank + 1, dims), all = counts;
  all.dtype = lhs->type.dtype;
  vt_value *at = splits(iota(c, counts, ragged + 1));
  vt_value *behind =
      splits(vt_chlo_compare(c, VT_CMP_GE, at, splits(spread(c, starts, counts, edge))));
  vt_value *before =
      splits(vt_chlo_compare(c, VT_CMP_LT, at, splits(spread(c, ends, counts, edge))));
  vt_value *inside = splits(
      vt_build(c->func, NULL, VT_OP_AND, c->loc, behind->type, 2, (vt_value *[]){behind, before}));
  vt_value *copies = splits(spread(c, lhs, all, where));
  return splits(vt_chlo_select(c, inside, copies, vt_chlo_bits(c, all, 0)));
}

typedef struct ragged {
  dim_list lhs_batch, rhs_batch, lhs_contract, rhs_contract, lhs_ragged, rhs_group;
} ragged;

// An attribute of the op, or of the composite that stands for it.
static const vt_raw_attr *attr_of(const vt_raw_op *raw, const char *name) {
  const vt_raw_attr *composite = vt_raw_find(raw, "composite_attributes");
  return composite ? vt_raw_dict_find(composite, name) : vt_raw_find(raw, name);
}

static bool read_ragged(vt_lower *lo, const vt_raw_op *raw, int32_t lhs, int32_t rhs, ragged *out) {
  const vt_raw_attr *numbers = attr_of(raw, "ragged_dot_dimension_numbers");
  const struct {
    const char *name; // in a dictionary; a composite has them in this order
    int32_t rank;
    dim_list *to;
  } lists[] = {{"lhs_batching_dimensions", lhs, &out->lhs_batch},
               {"rhs_batching_dimensions", rhs, &out->rhs_batch},
               {"lhs_contracting_dimensions", lhs, &out->lhs_contract},
               {"rhs_contracting_dimensions", rhs, &out->rhs_contract},
               {"lhs_ragged_dimensions", lhs, &out->lhs_ragged},
               {"rhs_group_dimensions", rhs, &out->rhs_group}};
  enum { LISTS = sizeof lists / sizeof *lists };
  bool ordered = numbers && numbers->kind == VT_RAW_ARRAY && numbers->count == LISTS;
  if (!ordered && !(numbers && numbers->kind == VT_RAW_DICT)) return false;
  for (int i = 0; i < LISTS; i++) {
    const vt_raw_attr *list =
        ordered ? numbers->items[i] : vt_raw_dict_find(numbers, lists[i].name);
    if (!read_dims(lo, list, lists[i].rank, lists[i].to)) return false;
  }
  return out->lhs_batch.count == out->rhs_batch.count &&
         out->lhs_contract.count == out->rhs_contract.count && out->lhs_ragged.count == 1 &&
         out->rhs_group.count <= 1;
}

static int64_t precision_of(const vt_raw_attr *given) {
  if (given->kind == VT_RAW_ENUM) return given->i64;
  if (given->kind == VT_RAW_STRING && vt_string_is(given->string, "HIGH")) return VT_PRECISION_HIGH;
  if (given->kind == VT_RAW_STRING && vt_string_is(given->string, "HIGHEST"))
    return VT_PRECISION_HIGHEST;
  return VT_PRECISION_DEFAULT;
}

static vt_value *build_dot(vt_chlo *c, const vt_raw_op *raw, vt_value *lhs, vt_value *rhs,
                           const ragged *r, vt_dtype dtype) {
  int64_t dims[2 * VT_MAX_RANK], precision[2] = {VT_PRECISION_DEFAULT, VT_PRECISION_DEFAULT};
  int32_t rank = 0;
  for (uint32_t i = 0; i < r->lhs_batch.count; i++)
    dims[rank++] = lhs->type.dims[r->lhs_batch.dims[i]];
  for (int32_t i = 0; i < lhs->type.rank; i++)
    if (!holds(&r->lhs_batch, i) && !holds(&r->lhs_contract, i)) dims[rank++] = lhs->type.dims[i];
  for (int32_t i = 0; i < rhs->type.rank; i++)
    if (!holds(&r->rhs_batch, i) && !holds(&r->rhs_contract, i)) dims[rank++] = rhs->type.dims[i];
  if (rank > VT_MAX_RANK) return NULL;
  vt_type type = vt_type_make(&c->func->module->arena, dtype, rank, dims);
  vt_value *dot =
      vt_build(c->func, NULL, VT_OP_DOT_GENERAL, c->loc, type, 2, (vt_value *[]){lhs, rhs});
  const vt_raw_attr *given = attr_of(raw, "precision_config");
  for (uint32_t i = 0; given && given->kind == VT_RAW_ARRAY && i < given->count && i < 2; i++)
    precision[i] = precision_of(given->items[i]);
  vt_op_set_ints(dot->op, VT_ATTR_LHS_BATCHING_DIMENSIONS, r->lhs_batch.count, r->lhs_batch.dims);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_BATCHING_DIMENSIONS, r->rhs_batch.count, r->rhs_batch.dims);
  vt_op_set_ints(dot->op, VT_ATTR_LHS_CONTRACTING_DIMENSIONS, r->lhs_contract.count,
                 r->lhs_contract.dims);
  vt_op_set_ints(dot->op, VT_ATTR_RHS_CONTRACTING_DIMENSIONS, r->rhs_contract.count,
                 r->rhs_contract.dims);
  vt_op_set_ints(dot->op, VT_ATTR_PRECISION_CONFIG, 2, precision);
  return dot;
}

static bool add_dim(dim_list *list, int64_t dim) {
  if (list->count + 1 >= VT_MAX_RANK) return false;
  list->dims[list->count++] = dim;
  return true;
}

// The dimensions of lhs for each of which `sizes` has those of all groups, in its last dimension:
// none, or all batches and what stands before the ragged dimension among those of its kind.
static bool read_outer(const ragged *r, vt_type lhs, vt_type sizes, dim_list *out) {
  int64_t at = r->lhs_ragged.dims[0];
  bool contracts = holds(&r->lhs_contract, at), fits = true;
  *out = (dim_list){0};
  if (sizes.rank == 1) return true;
  for (uint32_t i = 0; i < r->lhs_batch.count; i++) fits &= add_dim(out, r->lhs_batch.dims[i]);
  for (uint32_t i = 0; contracts && r->lhs_contract.dims[i] != at; i++)
    fits &= add_dim(out, r->lhs_contract.dims[i]);
  for (int64_t i = 0; !contracts && i < at; i++)
    if (!holds(&r->lhs_batch, i) && !holds(&r->lhs_contract, i)) fits &= add_dim(out, i);
  fits &= (uint32_t)sizes.rank == out->count + 1;
  for (uint32_t i = 0; fits && i < out->count; i++) fits = sizes.dims[i] == lhs.dims[out->dims[i]];
  return fits;
}

static void shift_dims(dim_list *list) {
  for (uint32_t i = 0; i < list->count; i++) list->dims[i]++;
}

// XLA documents three kinds: ragged rows are multiplied by their group's matrix; ragged contracting
// dimensions give one product per group; a ragged batch is like any other.
static vt_value *ragged_dot(vt_chlo *c, vt_lower *lo, const vt_raw_op *raw,
                            const vt_value_list *operands, const vt_type_list *types) {
  ragged r;
  if (operands->size != 3 || types->size != 1) return NULL;
  vt_value *lhs = operands->data[0], *rhs = operands->data[1], *sizes = operands->data[2];
  vt_dtype dtype = types->data[0].dtype;
  if (lhs->type.rank >= VT_MAX_RANK || !sizes->type.rank || sizes->type.rank >= VT_MAX_RANK ||
      !vt_dtype_is_integer(sizes->type.dtype) ||
      !read_ragged(lo, raw, lhs->type.rank, rhs->type.rank, &r))
    return NULL;
  int64_t at = r.lhs_ragged.dims[0], batch = r.lhs_batch.count;
  if (holds(&r.lhs_batch, at)) return build_dot(c, raw, lhs, rhs, &r, dtype);
  bool product_each = holds(&r.lhs_contract, at);
  if (product_each != !r.rhs_group.count) return NULL;
  dim_list outer;
  if (!read_outer(&r, lhs->type, sizes->type, &outer)) return NULL;
  lhs = split_groups(c, lhs, sizes, at, &outer);
  shift_dims(&r.lhs_batch);
  shift_dims(&r.lhs_contract);
  if (!product_each) {
    if (r.lhs_contract.count == VT_MAX_RANK) return NULL;
    r.lhs_contract.dims[r.lhs_contract.count++] = 0;
    r.rhs_contract.dims[r.rhs_contract.count++] = r.rhs_group.dims[0];
  }
  vt_value *dot = build_dot(c, raw, lhs, rhs, &r, dtype);
  if (dot)
    vt_op_set_ints(dot->op, VT_ATTR_RAGGED, 2,
                   (int64_t[]){sizes->type.dims[sizes->type.rank - 1],
                               product_each ? VT_RAGGED_EACH : VT_RAGGED_ROWS});
  if (!dot || !product_each || !batch) return dot;
  int64_t order[VT_MAX_RANK], dims[VT_MAX_RANK]; // the groups come first
  for (int32_t i = 0; i < dot->type.rank; i++) {
    order[i] = i ? i - (i <= batch) : batch;
    dims[i] = dot->type.dims[order[i]];
  }
  vt_type type = vt_type_make(&c->func->module->arena, dtype, dot->type.rank, dims);
  vt_value *turned = vt_build(c->func, NULL, VT_OP_TRANSPOSE, c->loc, type, 1, &dot);
  vt_op_set_ints(turned->op, VT_ATTR_PERMUTATION, (uint32_t)type.rank, order);
  return turned;
}

// ---- by name ------------------------------------------------------------------------------------

static bool is(vt_string name, const char *text) {
  return name.size == strlen(text) && !memcmp(name.data, text, name.size);
}

// NULL when the operands do not fit.
static vt_value *build_one(vt_chlo *c, vt_string name, vt_value *const *in, uint32_t count) {
  vt_dtype dtype = in[0]->type.dtype;
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  const vt_chlo_function *f = vt_chlo_find_function(name);
  for (uint32_t i = 1; i < count; i++)
    if (!vt_type_equal(in[i]->type, in[0]->type)) return NULL;
  if (f) {
    bool good = kind == VT_KIND_FLOAT || (kind == VT_KIND_COMPLEX && f->complex);
    return good && count == (uint32_t)f->operands ? build_function(c, f, in) : NULL;
  }
  c->type = in[0]->type;
  if (count == 1) {
    if (is(name, "square")) return vt_chlo_op(c, VT_OP_MULTIPLY, in[0], in[0]);
    if (is(name, "conj")) return conj_of(c, in[0]);
    if (kind != VT_KIND_FLOAT) return NULL;
    if (is(name, "is_inf")) return is_inf_of(c, in[0], true, true);
    if (is(name, "is_pos_inf")) return is_inf_of(c, in[0], true, false);
    if (is(name, "is_neg_inf")) return is_inf_of(c, in[0], false, true);
  }
  if (count == 2) {
    if (is(name, "mulhi") && vt_dtype_is_integer(dtype)) return mulhi_of(c, in[0], in[1]);
    if (is(name, "next_after") && kind == VT_KIND_FLOAT && vt_dtype_get(dtype)->bits >= 16)
      return next_after_of(c, in[0], in[1]);
  }
  return NULL;
}

// broadcast_NAME: both operands with the dimensions of the result, then the op.
static vt_status build_broadcast(vt_lower *lo, const vt_raw_op *raw, vt_chlo *c, vt_string name,
                                 vt_value *const *operands, vt_type to, vt_value **out) {
  vt_value *in[2];
  *out = NULL;
  for (int i = 0; i < 2; i++)
    if (!(in[i] = broadcast_to(c, raw, lo, operands[i], to))) return VT_OK;
  for (size_t i = 0; i < sizeof broadcasting / sizeof *broadcasting; i++) {
    if (!is(name, broadcasting[i].name)) continue;
    *out = vt_build(c->func, NULL, broadcasting[i].code, c->loc, to, 2, in);
    return vt_lower_attrs(lo, raw, (*out)->op);
  }
  *out = build_one(c, name, in, 2);
  return VT_OK;
}

vt_value *vt_lower_ragged_dot(vt_lower *lo, const vt_raw_op *raw, const vt_value_list *operands,
                              const vt_type_list *types) {
  vt_chlo c = {lo->func, vt_lower_loc(lo, raw->loc), {0}};
  vt_value *built = ragged_dot(&c, lo, raw, operands, types);
  return built && vt_type_equal(built->type, types->data[0]) ? built : NULL;
}

void vt_lower_mark_ragged(vt_func *func) {
  int64_t products = 0;
  for (const vt_op *op = func->first; op; op = op->next) products += op->code == VT_OP_DOT_GENERAL;
  for (vt_op *op = func->first; op; op = op->next)
    vt_op_set_ints(op, VT_ATTR_RAGGED, op->code == VT_OP_DOT_GENERAL ? 2 : 0,
                   (int64_t[]){products, VT_RAGGED_ONE});
}

vt_status vt_lower_chlo(vt_lower *lo, const vt_raw_op *raw, const vt_value_list *operands,
                        const vt_type_list *types, vt_value_list *results) {
  static const char broadcast[] = "broadcast_";
  vt_chlo c = {lo->func, vt_lower_loc(lo, raw->loc), {0}};
  vt_string name = {raw->row->name + 5, strlen(raw->row->name) - 5}; // after "chlo."
  vt_value *built[2] = {NULL, NULL};
  uint32_t count = (uint32_t)operands->size;
  if (count && types->size == 1 && is(name, "ragged_dot")) {
    built[0] = ragged_dot(&c, lo, raw, operands, types);
  } else if (count == 2 && types->size == 1 && name.size > 10 &&
             !memcmp(name.data, broadcast, 10)) {
    name = (vt_string){name.data + 10, name.size - 10};
    VT_TRY(build_broadcast(lo, raw, &c, name, operands->data, types->data[0], &built[0]));
  } else if (count == 1 && is(name, "top_k")) {
    if (!build_top_k(&c, raw, operands->data[0], types, built)) built[0] = NULL;
  } else if (count && types->size == 1) {
    built[0] = build_one(&c, name, operands->data, count);
  }
  bool good = built[0] != NULL;
  for (size_t i = 0; good && i < types->size; i++) {
    good = built[i] && vt_type_equal(built[i]->type, types->data[i]);
    if (good) vt_array_push_in(lo->arena, results, built[i]);
  }
  if (!good)
    return vt_lower_error(lo, raw, VT_INVALID_ARGUMENT,
                          "not defined for these operands, attributes and results");
  return VT_OK;
}
