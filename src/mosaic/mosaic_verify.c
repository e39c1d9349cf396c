// SPDX-License-Identifier: Apache-2.0
// mosaic_verify.c - the rules of structure, control flow, arithmetic and vectors; and the walk that
// applies the rule of each row. References, copies and semaphores: mosaic_verify_ref.c.
#include <inttypes.h>
#include <string.h>

#include "mosaic/mosaic_rules.h"

static bool kinds_fit(const vt_mop *op, vt_mtype type) {
  uint32_t kinds = vt_mop_info_get(op->code)->kinds;
  return type.kind != VT_MREF && kinds >> vt_dtype_kind_of(type.dtype) & 1;
}

static vt_status same_types(const vt_mop *op, vt_mtype a, vt_mtype b) {
  if (vt_mtype_equal(a, b)) return VT_OK;
  vt_text text = {0};
  vt_mtype_print(&text, a);
  vt_text_put(&text, " and ");
  vt_mtype_print(&text, b);
  vt_status st =
      vt_mop_error(op, VT_INVALID_ARGUMENT, "types %s do not fit", vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

// Both scalars, or vectors of the same dimensions.
static bool same_shape(vt_mtype a, vt_mtype b) {
  return a.kind != VT_MREF && a.kind == b.kind && vt_mtype_same_dims(a, b);
}

static vt_status is_vector(const vt_mop *op, vt_mtype type) {
  MCHECK(op, type.kind == VT_MVECTOR, "a vector was expected");
  return VT_OK;
}

vt_status vt_mosaic_rule_nothing(const vt_mop *op) {
  (void)op;
  return VT_OK;
}

vt_status vt_mosaic_rule_func(const vt_mop *op) {
  return vt_mop_error(op, VT_INVALID_ARGUMENT, "a function inside a function");
}

vt_status vt_mosaic_rule_result(const vt_mop *op) {
  MCHECK(op, kinds_fit(op, vt_mresult(op)) && vt_mresult(op).kind == VT_MSCALAR,
         "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_constant(const vt_mop *op) {
  const vt_literal *value = vt_mop_attr(op, VT_MATTR_VALUE)->literal;
  vt_mtype type = vt_mresult(op);
  MCHECK(op,
         type.kind != VT_MREF && type.dtype == value->type.dtype && type.rank == value->type.rank,
         "the value does not fit the type");
  for (int32_t d = 0; d < type.rank; d++)
    MCHECK(op, type.dims[d] == value->type.dims[d], "the value does not fit the type");
  return VT_OK;
}

// ---- elementwise ------------------------------------------------------------------------------

vt_status vt_mosaic_rule_elementwise(const vt_mop *op) {
  MCHECK(op, kinds_fit(op, vt_mresult(op)), "not defined for this element type");
  for (uint32_t i = 0; i < op->operand_count; i++)
    VT_TRY(same_types(op, vt_moperand(op, i), vt_mresult(op)));
  return VT_OK;
}

vt_status vt_mosaic_rule_reduce_precision(const vt_mop *op) {
  int64_t exponent = vt_mop_i64(op, VT_MATTR_EXPONENT_BITS, 0),
          mantissa = vt_mop_i64(op, VT_MATTR_MANTISSA_BITS, -1);
  MCHECK(op, exponent >= 1 && exponent <= 64, "exponent_bits %" PRId64, exponent);
  MCHECK(op, mantissa >= 0 && mantissa <= 64, "mantissa_bits %" PRId64, mantissa);
  return vt_mosaic_rule_elementwise(op);
}

vt_status vt_mosaic_rule_compare(const vt_mop *op) {
  int64_t most = op->code == VT_MOP_CMPI ? 9 : 15,
          predicate = vt_mop_i64(op, VT_MATTR_PREDICATE, 0);
  MCHECK(op, predicate >= 0 && predicate <= most, "predicate %" PRId64, predicate);
  MCHECK(op, kinds_fit(op, vt_moperand(op, 0)), "not defined for this element type");
  VT_TRY(same_types(op, vt_moperand(op, 0), vt_moperand(op, 1)));
  MCHECK(op, same_shape(vt_moperand(op, 0), vt_mresult(op)) && vt_mresult(op).dtype == VT_PRED,
         "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_compare_one(const vt_mop *op) {
  MCHECK(op, kinds_fit(op, vt_moperand(op, 0)), "not defined for this element type");
  MCHECK(op, same_shape(vt_moperand(op, 0), vt_mresult(op)) && vt_mresult(op).dtype == VT_PRED,
         "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_select(const vt_mop *op) {
  vt_mtype condition = vt_moperand(op, 0);
  MCHECK(op, vt_mresult(op).kind != VT_MREF, "a choice between references");
  MCHECK(op, condition.dtype == VT_PRED, "the condition is not i1");
  MCHECK(op, condition.kind == VT_MSCALAR || same_shape(condition, vt_mresult(op)),
         "the condition does not fit the values");
  VT_TRY(same_types(op, vt_moperand(op, 1), vt_mresult(op)));
  return same_types(op, vt_moperand(op, 2), vt_mresult(op));
}

vt_status vt_mosaic_rule_cast(const vt_mop *op) {
  MCHECK(op, kinds_fit(op, vt_moperand(op, 0)) && kinds_fit(op, vt_mresult(op)),
         "not defined for these element types");
  MCHECK(op, same_shape(vt_moperand(op, 0), vt_mresult(op)), "the shape changes");
  return VT_OK;
}

vt_status vt_mosaic_rule_bitcast(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  MCHECK(op, same_shape(from, to), "the shape changes");
  MCHECK(op, vt_dtype_get(from.dtype)->bits == vt_dtype_get(to.dtype)->bits, "the width changes");
  return VT_OK;
}

// ---- vectors ----------------------------------------------------------------------------------

vt_status vt_mosaic_rule_broadcast(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  VT_TRY(is_vector(op, to));
  MCHECK(op, from.kind != VT_MREF && from.dtype == to.dtype && from.rank <= to.rank,
         "the operand does not fit the result");
  for (int32_t d = 0; d < from.rank; d++) {
    int64_t size = from.dims[d];
    MCHECK(op, size == 1 || size == to.dims[to.rank - from.rank + d],
           "dimension %d does not fit the result", d);
  }
  return VT_OK;
}

vt_status vt_mosaic_rule_reshape(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  MCHECK(op,
         from.kind == VT_MVECTOR && to.kind == VT_MVECTOR && from.dtype == to.dtype &&
             vt_mtype_elements(from) == vt_mtype_elements(to),
         "the number of elements changes");
  return VT_OK;
}

vt_status vt_mosaic_rule_extract(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  const vt_mattr *at = vt_mop_attr(op, VT_MATTR_STATIC_POSITION);
  VT_TRY(is_vector(op, from));
  MCHECK(op, at && (int32_t)at->count <= from.rank && to.kind != VT_MREF && to.dtype == from.dtype,
         "the position does not fit the vector");
  for (uint32_t i = 0; i < at->count; i++)
    MCHECK(op, at->ints[i] >= 0 && at->ints[i] < from.dims[i], "position %" PRId64 " is outside",
           at->ints[i]);
  MCHECK(op, to.rank == from.rank - (int32_t)at->count && (to.kind == VT_MVECTOR || to.rank == 0),
         "a wrong result type");
  for (int32_t d = 0; d < to.rank; d++)
    MCHECK(op, to.dims[d] == from.dims[d + (int32_t)at->count], "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_extract_slice(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  const vt_mattr *offsets = vt_mop_attr(op, VT_MATTR_OFFSETS),
                 *sizes = vt_mop_attr(op, VT_MATTR_SIZES),
                 *strides = vt_mop_attr(op, VT_MATTR_STRIDES);
  VT_TRY(is_vector(op, from));
  MCHECK(op, to.kind == VT_MVECTOR && to.dtype == from.dtype && to.rank == from.rank,
         "a wrong result type");
  MCHECK(op,
         strides && (int32_t)offsets->count <= from.rank && sizes->count == offsets->count &&
             strides->count == offsets->count,
         "offsets, sizes and strides do not fit the vector");
  for (int32_t d = 0; d < from.rank; d++) {
    bool cut = d < (int32_t)offsets->count;
    int64_t offset = cut ? offsets->ints[d] : 0, size = cut ? sizes->ints[d] : from.dims[d];
    MCHECK(op, !cut || strides->ints[d] == 1, "a stride of %" PRId64, strides->ints[d]);
    MCHECK(op, size == to.dims[d] && offset >= 0 && offset <= from.dims[d] - size,
           "dimension %d is outside of the vector", d);
  }
  return VT_OK;
}

// The dimensions that `dims` names, once each.
static vt_status dims_of(const vt_mop *op, const vt_mattr *dims, int32_t rank, bool *out_named) {
  memset(out_named, 0, VT_MOSAIC_RANK * sizeof *out_named);
  for (uint32_t i = 0; i < dims->count; i++) {
    MCHECK(op, dims->ints[i] >= 0 && dims->ints[i] < rank && !out_named[dims->ints[i]],
           "dimension %" PRId64 " is out of range or named twice", dims->ints[i]);
    out_named[dims->ints[i]] = true;
  }
  return VT_OK;
}

vt_status vt_mosaic_rule_reduction(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  bool reduced[VT_MOSAIC_RANK];
  int32_t kept = 0;
  vt_mword kind = (vt_mword)vt_mop_i64(op, VT_MATTR_KIND, 0);
  VT_TRY(is_vector(op, from));
  VT_TRY(same_types(op, vt_moperand(op, 1), to));
  VT_TRY(dims_of(op, vt_mop_attr(op, VT_MATTR_REDUCTION_DIMS), from.rank, reduced));
  MCHECK(op, to.dtype == from.dtype && to.kind != VT_MREF, "a wrong result type");
  bool integer = vt_dtype_is_integer(from.dtype);
  MCHECK(op,
         kind == VT_MWORD_ADD || (integer ? kind >= VT_MWORD_MAXSI && kind <= VT_MWORD_MINUI
                                          : kind == VT_MWORD_MAXIMUMF || kind == VT_MWORD_MINIMUMF),
         "this kind of reduction is not defined for the element type");
  MCHECK(op, from.dtype != VT_PRED, "not defined for i1");
  for (int32_t d = 0; d < from.rank; d++) {
    if (reduced[d]) continue;
    MCHECK(op, kept < to.rank && to.dims[kept] == from.dims[d], "a wrong result type");
    kept++;
  }
  MCHECK(op, kept == to.rank, "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_matmul(const vt_mop *op) {
  vt_mtype a = vt_moperand(op, 0), b = vt_moperand(op, 1), to = vt_mresult(op);
  const vt_mattr *numbers = vt_mop_attr(op, VT_MATTR_DIMENSION_NUMBERS);
  VT_TRY(same_types(op, vt_moperand(op, 2), to));
  VT_TRY(is_vector(op, to));
  bool floats = vt_dtype_is_float(a.dtype);
  MCHECK(op,
         a.kind == VT_MVECTOR && b.kind == VT_MVECTOR && vt_dtype_is_float(b.dtype) == floats &&
             a.dtype != VT_PRED && b.dtype != VT_PRED &&
             (floats ? vt_dtype_is_float(to.dtype) : to.dtype == VT_S32),
         "not defined for these element types");
  if (!numbers) {
    MCHECK(op, a.rank == 2 && b.rank == 2 && to.rank == 2, "dimension_numbers is missing");
    bool ta = vt_mop_i64(op, VT_MATTR_TRANSPOSE_LHS, 0),
         tb = vt_mop_i64(op, VT_MATTR_TRANSPOSE_RHS, 0);
    MCHECK(op,
           a.dims[ta ? 0 : 1] == b.dims[tb ? 1 : 0] && to.dims[0] == a.dims[ta ? 1 : 0] &&
               to.dims[1] == b.dims[tb ? 0 : 1],
           "the sizes do not fit");
    return VT_OK;
  }
  uint32_t counts[7];
  const int64_t *lists[7];
  for (uint32_t i = 0; i < 7; i++) lists[i] = vt_mattr_list(numbers, i, &counts[i]);
  const vt_mtype sides[2] = {a, b};
  static const int contracting[2] = {0, 1}, free_dims[2] = {2, 3}, batch[2] = {5, 6};
  for (int s = 0; s < 2; s++) {
    bool seen[VT_MOSAIC_RANK] = {false};
    uint32_t total = 0;
    for (int k = 0; k < 3; k++) {
      int l = k == 0 ? contracting[s] : k == 1 ? free_dims[s] : batch[s];
      for (uint32_t i = 0; i < counts[l]; i++, total++) {
        MCHECK(op, lists[l][i] >= 0 && lists[l][i] < sides[s].rank && !seen[lists[l][i]],
               "dimension_numbers names a dimension twice or one that does not exist");
        seen[lists[l][i]] = true;
      }
    }
    MCHECK(op, (int32_t)total == sides[s].rank, "dimension_numbers leaves dimensions out");
  }
  MCHECK(op, counts[0] == counts[1] && counts[5] == counts[6], "dimension_numbers does not fit");
  for (uint32_t i = 0; i < counts[0]; i++)
    MCHECK(op, a.dims[lists[0][i]] == b.dims[lists[1][i]], "contracted sizes differ");
  for (uint32_t i = 0; i < counts[5]; i++)
    MCHECK(op, a.dims[lists[5][i]] == b.dims[lists[6][i]], "batch sizes differ");
  int32_t d = 0;
  uint32_t want = counts[5] + counts[2] + counts[3];
  MCHECK(op, to.rank == (int32_t)want && counts[4] == 2 * want, "a wrong result type");
  for (int k = 0; k < 3; k++) {
    int l = k == 0 ? 5 : k == 1 ? 2 : 3, side = k == 2;
    for (uint32_t i = 0; i < counts[l]; i++, d++) {
      MCHECK(op, lists[4][2 * d] == side && lists[4][2 * d + 1] == lists[l][i],
             "an order of the output's dimensions other than batch, left, right");
      MCHECK(op, to.dims[d] == sides[side].dims[lists[l][i]], "a wrong result type");
    }
  }
  return VT_OK;
}

vt_status vt_mosaic_rule_bitcast_rows(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  VT_TRY(is_vector(op, from));
  MCHECK(op, to.kind == VT_MVECTOR && to.rank == from.rank, "a wrong result type");
  int64_t a = vt_dtype_get(from.dtype)->bits, b = vt_dtype_get(to.dtype)->bits;
  MCHECK(op, a > 1 && b > 1 && (a == b || from.rank >= 2), "not defined for these types");
  for (int32_t d = 0; d < from.rank; d++) {
    bool rows = d == from.rank - 2;
    MCHECK(op, from.dims[d] * (rows ? a : 1) == to.dims[d] * (rows ? b : 1), "a wrong result type");
  }
  return VT_OK;
}

vt_status vt_mosaic_rule_iota(const vt_mop *op) {
  bool named[VT_MOSAIC_RANK];
  const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_DIMENSIONS),
                 *dim = vt_mop_attr(op, VT_MATTR_DIMENSION);
  VT_TRY(is_vector(op, vt_mresult(op)));
  MCHECK(op, dims || dim, "dimensions is missing");
  MCHECK(op, vt_dtype_is_integer(vt_mresult(op).dtype), "a wrong result type");
  if (dims) return dims_of(op, dims, vt_mresult(op).rank, named);
  MCHECK(op, dim->i64 >= 0 && dim->i64 < vt_mresult(op).rank, "dimension %" PRId64, dim->i64);
  return VT_OK;
}

vt_status vt_mosaic_rule_transpose(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  const vt_mattr *permutation = vt_mop_attr(op, VT_MATTR_PERMUTATION);
  bool named[VT_MOSAIC_RANK];
  VT_TRY(is_vector(op, from));
  MCHECK(op,
         to.kind == VT_MVECTOR && to.dtype == from.dtype && to.rank == from.rank &&
             (int32_t)permutation->count == from.rank,
         "a wrong result type");
  VT_TRY(dims_of(op, permutation, from.rank, named));
  for (int32_t d = 0; d < to.rank; d++)
    MCHECK(op, to.dims[d] == from.dims[permutation->ints[d]], "a wrong result type");
  return VT_OK;
}

// The attribute `dimension` is one of the type's.
static vt_status dimension_in(const vt_mop *op, vt_mtype type, int64_t *out) {
  *out = vt_mop_i64(op, VT_MATTR_DIMENSION, -1);
  MCHECK(op, *out >= 0 && *out < type.rank, "dimension %" PRId64 " does not exist", *out);
  return VT_OK;
}

vt_status vt_mosaic_rule_concatenate(const vt_mop *op) {
  vt_mtype to = vt_mresult(op);
  int64_t dim, size = 0;
  VT_TRY(is_vector(op, to));
  VT_TRY(dimension_in(op, to, &dim));
  for (uint32_t i = 0; i < op->operand_count; i++) {
    vt_mtype part = vt_moperand(op, i);
    MCHECK(op, part.kind == VT_MVECTOR && part.dtype == to.dtype && part.rank == to.rank,
           "operand %" PRIu32 " does not fit the result", i);
    for (int32_t d = 0; d < to.rank; d++)
      MCHECK(op, d == dim || part.dims[d] == to.dims[d], "operand %" PRIu32 " does not fit", i);
    size += part.dims[dim];
  }
  MCHECK(op, size == to.dims[dim], "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_repeat(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  int64_t dim, times = vt_mop_i64(op, VT_MATTR_TIMES, 0);
  VT_TRY(is_vector(op, from));
  MCHECK(op, to.kind == VT_MVECTOR && to.dtype == from.dtype && to.rank == from.rank,
         "a wrong result type");
  VT_TRY(dimension_in(op, to, &dim));
  MCHECK(op, times > 0 && times <= INT32_MAX, "repeated %" PRId64 " times", times);
  for (int32_t d = 0; d < to.rank; d++)
    MCHECK(op, to.dims[d] == from.dims[d] * (d == dim ? times : 1), "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_rotate(const vt_mop *op) {
  int64_t dim, other = vt_mop_i64(op, VT_MATTR_STRIDE_DIMENSION, -1);
  VT_TRY(is_vector(op, vt_moperand(op, 0)));
  VT_TRY(same_types(op, vt_moperand(op, 0), vt_mresult(op)));
  VT_TRY(dimension_in(op, vt_mresult(op), &dim));
  MCHECK(op, vt_mtype_is_index(vt_moperand(op, 1)), "the amount is not i32");
  bool strided = vt_mop_attr(op, VT_MATTR_STRIDE) != NULL;
  MCHECK(op, !strided || (other >= 0 && other < vt_mresult(op).rank && other != dim),
         "stride_dimension %" PRId64, other);
  return VT_OK;
}

vt_status vt_mosaic_rule_gather(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), at = vt_moperand(op, 1), to = vt_mresult(op);
  const vt_mattr *dims = vt_mop_attr(op, VT_MATTR_DIMENSIONS);
  bool named[VT_MOSAIC_RANK] = {false};
  int64_t dim = 0;
  VT_TRY(is_vector(op, from));
  MCHECK(op,
         at.kind == VT_MVECTOR && vt_dtype_is_integer(at.dtype) && vt_mtype_same_dims(at, to) &&
             to.kind == VT_MVECTOR && to.dtype == from.dtype && to.rank == from.rank,
         "a wrong result type");
  if (dims) {
    VT_TRY(dims_of(op, dims, from.rank, named));
  } else {
    VT_TRY(dimension_in(op, from, &dim));
    named[dim] = true;
  }
  for (int32_t d = 0; d < from.rank; d++)
    MCHECK(op, named[d] || from.dims[d] == to.dims[d], "dimension %d does not fit", d);
  return VT_OK;
}

vt_status vt_mosaic_rule_reduce_index(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), to = vt_mresult(op);
  int64_t axis = vt_mop_i64(op, VT_MATTR_AXIS, -1), kind = vt_mop_i64(op, VT_MATTR_KIND, 0);
  VT_TRY(is_vector(op, from));
  MCHECK(op, kind == VT_MWORD_ARG_MAX || kind == VT_MWORD_ARG_MIN, "an unknown kind");
  MCHECK(op,
         axis >= 0 && axis < from.rank && to.kind == VT_MVECTOR &&
             (to.dtype == VT_S32 || (to.dtype == VT_S16 && from.dims[axis] <= INT16_MAX + 1)) &&
             to.rank == from.rank - 1,
         "a wrong result type");
  for (int32_t d = 0; d < to.rank; d++)
    MCHECK(op, to.dims[d] == from.dims[d + (d >= axis)], "a wrong result type");
  return VT_OK;
}

vt_status vt_mosaic_rule_stochastic(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), bits = vt_moperand(op, 1), to = vt_mresult(op);
  VT_TRY(is_vector(op, from));
  MCHECK(op,
         same_shape(from, to) && same_shape(from, bits) && from.dtype == VT_F32 &&
             bits.dtype == VT_S32 && vt_dtype_is_float(to.dtype) &&
             vt_dtype_get(to.dtype)->bits < 32,
         "not defined for these types");
  return VT_OK;
}

vt_status vt_mosaic_rule_stochastic_each(const vt_mop *op) {
  vt_mtype from = vt_moperand(op, 0), bits = vt_moperand(op, 1), to = vt_mresult(op);
  vt_dtype target = (vt_dtype)vt_mop_i64(op, VT_MATTR_DST_TYPE, 0);
  VT_TRY(is_vector(op, from));
  MCHECK(op,
         same_shape(from, to) && same_shape(from, bits) && from.dtype == VT_F32 &&
             bits.dtype == VT_S32 && to.dtype == VT_S32 && vt_dtype_is_float(target) &&
             vt_dtype_get(target)->bits < 32,
         "not defined for these types");
  return VT_OK;
}

// `narrow` fits into words of `word` a whole number of times; outside of words it is `single`: an
// integer as wide as the word, or f32.
static bool packs(vt_dtype narrow, vt_dtype word, vt_dtype single) {
  int32_t bits = vt_dtype_get(narrow)->bits, width = vt_dtype_get(word)->bits;
  return vt_dtype_is_integer(word) && width <= 32 && bits >= 2 && bits < width &&
         width % bits == 0 &&
         (vt_dtype_is_float(narrow) ? single == VT_F32 && width == 32 : single == word);
}

vt_status vt_mosaic_rule_pack(const vt_mop *op) {
  vt_dtype target = (vt_dtype)vt_mop_i64(op, VT_MATTR_TARGET_TYPE, 0);
  vt_mtype to = vt_mresult(op), from = vt_moperand(op, 0);
  VT_TRY(is_vector(op, from));
  MCHECK(op,
         same_shape(from, to) && packs(target, to.dtype, from.dtype) &&
             op->operand_count * vt_dtype_get(target)->bits <= vt_dtype_get(to.dtype)->bits,
         "not defined for these types");
  for (uint32_t i = 1; i < op->operand_count; i++) VT_TRY(same_types(op, from, vt_moperand(op, i)));
  return VT_OK;
}

vt_status vt_mosaic_rule_unpack(const vt_mop *op) {
  vt_dtype source = (vt_dtype)vt_mop_i64(op, VT_MATTR_SOURCE_TYPE, 0);
  int64_t index = vt_mop_i64(op, VT_MATTR_INDEX, 0);
  vt_mtype to = vt_mresult(op), from = vt_moperand(op, 0);
  VT_TRY(is_vector(op, from));
  MCHECK(op,
         same_shape(from, to) && packs(source, from.dtype, to.dtype) && index >= 0 &&
             index < vt_dtype_get(from.dtype)->bits / vt_dtype_get(source)->bits,
         "not defined for these types");
  return VT_OK;
}

vt_status vt_mosaic_rule_seed(const vt_mop *op) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    MCHECK(op, vt_mtype_is_index(vt_moperand(op, i)), "a seed is not i32");
  return VT_OK;
}

vt_status vt_mosaic_rule_random(const vt_mop *op) {
  MCHECK(op, vt_mresult(op).kind != VT_MREF && vt_mresult(op).dtype == VT_S32,
         "a wrong result type");
  return VT_OK;
}

// ---- control flow -----------------------------------------------------------------------------

static bool is_terminator(const vt_mop *op) {
  return op->code == VT_MOP_YIELD || op->code == VT_MOP_CONDITION || op->code == VT_MOP_RETURN ||
         op->code == VT_MOP_TPU_YIELD;
}

// The block ends with `code`, whose operands from `first` on have the types of these values.
static vt_status ends_with(const vt_mop *op, const vt_mblock *block, vt_mopcode code,
                           uint32_t first, uint32_t count, const vt_mvalue *values) {
  const vt_mop *last = block->last;
  if (!last && !count && code == VT_MOP_YIELD) return VT_OK;
  MCHECK(op, last && last->code == code && last->operand_count == first + count,
         "a region does not end with the values that are expected");
  for (uint32_t i = 0; i < count; i++)
    VT_TRY(same_types(op, last->operands[first + i]->type, values[i].type));
  return VT_OK;
}

static vt_status no_refs(const vt_mop *op, uint32_t count, const vt_mvalue *values) {
  for (uint32_t i = 0; i < count; i++)
    MCHECK(op, values[i].type.kind != VT_MREF, "a reference as a result of control flow");
  return VT_OK;
}

vt_status vt_mosaic_rule_for(const vt_mop *op) {
  const vt_mblock *block = op->blocks[0];
  VT_TRY(no_refs(op, op->result_count, op->results));
  MCHECK(op, op->operand_count == op->result_count + 3 && block->arg_count == op->result_count + 1,
         "a wrong number of carried values");
  for (uint32_t i = 0; i < 3; i++)
    MCHECK(op,
           vt_mtype_is_index(vt_moperand(op, i)) &&
               vt_mtype_equal(vt_moperand(op, i), block->args[0].type),
           "bounds and step are not integers of one type");
  for (uint32_t i = 0; i < op->result_count; i++) {
    VT_TRY(same_types(op, vt_moperand(op, 3 + i), op->results[i].type));
    VT_TRY(same_types(op, block->args[1 + i].type, op->results[i].type));
  }
  return ends_with(op, block, VT_MOP_YIELD, 0, op->result_count, op->results);
}

vt_status vt_mosaic_rule_while(const vt_mop *op) {
  const vt_mblock *before = op->blocks[0], *after = op->blocks[1];
  VT_TRY(no_refs(op, op->result_count, op->results));
  VT_TRY(no_refs(op, before->arg_count, before->args));
  MCHECK(op, before->arg_count == op->operand_count && after->arg_count == op->result_count,
         "a wrong number of carried values");
  for (uint32_t i = 0; i < op->operand_count; i++)
    VT_TRY(same_types(op, vt_moperand(op, i), before->args[i].type));
  for (uint32_t i = 0; i < op->result_count; i++)
    VT_TRY(same_types(op, after->args[i].type, op->results[i].type));
  VT_TRY(ends_with(op, before, VT_MOP_CONDITION, 1, op->result_count, op->results));
  MCHECK(op,
         before->last->operands[0]->type.kind == VT_MSCALAR &&
             before->last->operands[0]->type.dtype == VT_PRED,
         "the condition is not i1");
  MCHECK(op, after->last, "a region is empty");
  return ends_with(op, after, VT_MOP_YIELD, 0, before->arg_count, before->args);
}

vt_status vt_mosaic_rule_if(const vt_mop *op) {
  VT_TRY(no_refs(op, op->result_count, op->results));
  MCHECK(op, vt_moperand(op, 0).kind == VT_MSCALAR && vt_moperand(op, 0).dtype == VT_PRED,
         "the condition is not i1");
  for (uint32_t b = 0; b < 2; b++) {
    MCHECK(op, !op->blocks[b]->arg_count, "a branch has arguments");
    VT_TRY(ends_with(op, op->blocks[b], VT_MOP_YIELD, 0, op->result_count, op->results));
  }
  return VT_OK;
}

vt_status vt_mosaic_rule_region(const vt_mop *op) {
  VT_TRY(no_refs(op, op->result_count, op->results));
  MCHECK(op, !op->blocks[0]->arg_count, "the region has arguments");
  return ends_with(op, op->blocks[0], VT_MOP_TPU_YIELD, 0, op->result_count, op->results);
}

vt_status vt_mosaic_rule_terminator(const vt_mop *op) {
  MCHECK(op, !op->next, "ops follow the end of a block");
  const vt_mop *owner = op->block->owner;
  bool fits = op->code == VT_MOP_RETURN ? !owner
              : !owner                  ? false
              : op->code == VT_MOP_CONDITION
                  ? owner->code == VT_MOP_WHILE && op->block == owner->blocks[0]
              : op->code == VT_MOP_TPU_YIELD
                  ? owner->code == VT_MOP_REGION || owner->code == VT_MOP_TRACE
                  : owner->code == VT_MOP_FOR || owner->code == VT_MOP_IF ||
                        (owner->code == VT_MOP_WHILE && op->block == owner->blocks[1]);
  MCHECK(op, fits, "not allowed here");
  return VT_OK;
}

vt_status vt_mosaic_rule_assert(const vt_mop *op) {
  MCHECK(op, vt_moperand(op, 0).kind == VT_MSCALAR && vt_moperand(op, 0).dtype == VT_PRED,
         "the condition is not i1");
  return VT_OK;
}

// ---- the walk ---------------------------------------------------------------------------------

static vt_status verify_block(const vt_mblock *block) {
  for (const vt_mop *op = block->first; op; op = op->next) {
    for (uint32_t b = 0; b < op->block_count; b++) VT_TRY(verify_block(op->blocks[b]));
    VT_TRY(vt_mop_info_get(op->code)->verify(op));
    if (!op->next && block->owner) MCHECK(op, is_terminator(op), "the block does not end here");
  }
  return VT_OK;
}

static vt_status verify_transform(const vt_mosaic *k, const vt_mwindow *window, int32_t rank) {
  const vt_mblock *block = window->transform->block;
  bool good = block->arg_count == k->grid_rank + k->prefetch_count && block->last &&
              block->last->code == VT_MOP_RETURN && (int32_t)block->last->operand_count == rank;
  for (uint32_t i = 0; good && i < block->arg_count; i++)
    good = vt_mtype_equal(block->args[i].type, k->body->block->args[i].type);
  for (int32_t d = 0; good && d < rank; d++)
    good = vt_mtype_is_index(block->last->operands[d]->type);
  return good ? VT_OK
              : vt_error(VT_INVALID_ARGUMENT,
                         "kernel %s: the transform of a window does not fit it", k->name);
}

static vt_status signature_error(const vt_mosaic *k, uint32_t arg) {
  return vt_error(VT_INVALID_ARGUMENT, "kernel %s: argument %" PRIu32 " has a wrong type", k->name,
                  arg);
}

static vt_status verify_signature(const vt_mosaic *k) {
  const vt_mblock *block = k->body->block;
  for (uint32_t i = 0; i < block->arg_count; i++) {
    vt_mtype type = block->args[i].type;
    uint32_t window = i - k->grid_rank - k->prefetch_count;
    if (i < k->grid_rank) {
      if (type.kind != VT_MSCALAR || type.dtype != VT_S32) return signature_error(k, i);
      continue;
    }
    if (type.kind != VT_MREF || vt_mtype_elements(type) < 0) return signature_error(k, i);
    if (i < k->grid_rank + k->prefetch_count) {
      if (type.semaphore) return signature_error(k, i);
    } else if (window < k->window_count) {
      const vt_mwindow *w = &k->windows[window];
      if (!w->whole) VT_TRY(verify_transform(k, w, type.rank));
    }
  }
  const vt_mop *last = block->last;
  return last && last->code == VT_MOP_RETURN && !last->operand_count
             ? VT_OK
             : vt_error(VT_INVALID_ARGUMENT, "kernel %s: the body does not end with a return",
                        k->name);
}

vt_status vt_mosaic_verify(const vt_mosaic *kernel) {
  for (uint32_t i = 0; i < kernel->func_count; i++) {
    const vt_mblock *block = kernel->funcs[i].block;
    VT_TRY(verify_block(block));
    if (!block->last || block->last->code != VT_MOP_RETURN)
      return vt_error(VT_INVALID_ARGUMENT, "kernel %s: a function does not end with a return",
                      kernel->name);
  }
  return verify_signature(kernel);
}
