// SPDX-License-Identifier: Apache-2.0
// fuse_reducer.c - recognises what the body of a reduction computes.
// In:  a reduce op. Out: one of vt_reducer, or NONE: any other body, or a start value that is not
// the neutral one.
#include <math.h>
#include <string.h>

#include "host/nest.h"

static double half_to_double(uint16_t bits) {
  int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                : ldexp(mantissa, -24);
  return bits & 0x8000 ? -value : value;
}

// The first element of a literal as a double; 64-bit integers need only be exact at the ends of
// their range.
static double literal_value(const vt_literal *literal) {
  const void *p = literal->data;
  uint16_t h;
  switch (literal->type.dtype) {
  case VT_PRED:
  case VT_U8:
    return *(const uint8_t *)p;
  case VT_S8:
    return *(const int8_t *)p;
  case VT_S16:
    return *(const int16_t *)p;
  case VT_U16:
    return *(const uint16_t *)p;
  case VT_S32:
    return *(const int32_t *)p;
  case VT_U32:
    return *(const uint32_t *)p;
  case VT_S64:
    return (double)*(const int64_t *)p;
  case VT_U64:
    return (double)*(const uint64_t *)p;
  case VT_F32:
    return *(const float *)p;
  case VT_F64:
    return *(const double *)p;
  case VT_F16:
    return half_to_double(*(const uint16_t *)p);
  case VT_BF16: {
    memcpy(&h, p, 2);
    uint32_t wide = (uint32_t)h << 16;
    float f;
    memcpy(&f, &wide, 4);
    return f;
  }
  default:
    return NAN;
  }
}

static double lowest(vt_dtype dtype) {
  switch (vt_dtype_kind_of(dtype)) {
  case VT_KIND_FLOAT:
    return -INFINITY;
  case VT_KIND_SIGNED:
    return -ldexp(1, vt_dtype_get(dtype)->bits - 1);
  default:
    return 0;
  }
}

static double highest(vt_dtype dtype) {
  switch (vt_dtype_kind_of(dtype)) {
  case VT_KIND_FLOAT:
    return INFINITY;
  case VT_KIND_SIGNED:
    return ldexp(1, vt_dtype_get(dtype)->bits - 1) - 1;
  case VT_KIND_BOOL:
    return 1;
  default:
    return ldexp(1, vt_dtype_get(dtype)->bits) - 1;
  }
}

// The constant behind a value, through broadcasts and reshapes; NULL when it is computed.
static const vt_literal *constant_of(const vt_value *value) {
  while (value->op &&
         (value->op->code == VT_OP_BROADCAST_IN_DIM || value->op->code == VT_OP_RESHAPE))
    value = value->op->operands[0];
  if (!value->op || value->op->code != VT_OP_CONSTANT) return NULL;
  return vt_attr_literal(value->op, VT_ATTR_VALUE);
}

static bool is_param(const vt_value *value, int32_t index) {
  return !value->op && value->index == index;
}

vt_reducer vt_reducer_of_body(const vt_func *body) {
  if (body->return_count != 1) return VT_REDUCE_NONE;
  const vt_op *op = body->returns[0]->op;
  if (!op || op->operand_count != 2) return VT_REDUCE_NONE;
  bool straight = is_param(op->operands[0], 0) && is_param(op->operands[1], 1);
  bool swapped = is_param(op->operands[0], 1) && is_param(op->operands[1], 0);
  if (!straight && !swapped) return VT_REDUCE_NONE;
  switch (op->code) {
  case VT_OP_ADD:
    return VT_REDUCE_ADD;
  case VT_OP_MULTIPLY:
    return VT_REDUCE_MUL;
  case VT_OP_MAXIMUM:
    return VT_REDUCE_MAX;
  case VT_OP_MINIMUM:
    return VT_REDUCE_MIN;
  case VT_OP_AND:
    return VT_REDUCE_AND;
  case VT_OP_OR:
    return VT_REDUCE_OR;
  default:
    return VT_REDUCE_NONE;
  }
}

// A 64-bit value that a double cannot distinguish from the range's ends is not taken as neutral.
static bool is_inexact(const vt_literal *literal) {
  vt_dtype dtype = literal->type.dtype;
  if (!vt_dtype_is_integer(dtype) || vt_dtype_bytes(dtype) < 8) return false;
  int64_t bits;
  memcpy(&bits, literal->data, sizeof bits);
  int64_t near = dtype == VT_S64 ? (bits < 0 ? bits - INT64_MIN : INT64_MAX - bits) : ~bits;
  return near > 0 && near < 1 << 12;
}

static bool is_neutral(vt_reducer reducer, vt_dtype dtype, const vt_value *start) {
  const vt_literal *literal = constant_of(start);
  if (!literal || is_inexact(literal)) return false;
  double value = literal_value(literal);
  switch (reducer) {
  case VT_REDUCE_ADD:
    return value == 0;
  case VT_REDUCE_MUL:
    return value == 1;
  case VT_REDUCE_MAX:
    return value == lowest(dtype);
  case VT_REDUCE_MIN:
    return value == highest(dtype);
  case VT_REDUCE_OR:
    return value == 0;
  case VT_REDUCE_AND:
    if (vt_dtype_kind_of(dtype) == VT_KIND_SIGNED) return value == -1;
    return value == highest(dtype);
  default:
    return false;
  }
}

// A body of compares and selects over (value, index, value, index) that keeps the larger (smaller)
// value, NaN first, and the first index among equals: recognised by running it on sample values
// rather than by its form.
static bool truth(const vt_value *value, const double *args, double *out) {
  if (!value->op) {
    *out = args[value->index];
    return true;
  }
  const vt_op *op = value->op;
  double x[3];
  if (op->operand_count > 3 || op->result_count != 1) return false;
  if (op->code == VT_OP_CONSTANT) {
    *out = literal_value(vt_attr_literal(op, VT_ATTR_VALUE));
    return true;
  }
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (!truth(op->operands[i], args, &x[i])) return false;
  switch (op->code) {
  case VT_OP_SELECT:
    *out = x[0] != 0 ? x[1] : x[2];
    return true;
  case VT_OP_AND:
    *out = x[0] != 0 && x[1] != 0;
    return true;
  case VT_OP_OR:
    *out = x[0] != 0 || x[1] != 0;
    return true;
  case VT_OP_NOT:
    *out = x[0] == 0;
    return true;
  case VT_OP_MAXIMUM:
    *out = x[0] != x[0] || x[1] != x[1] ? NAN : fmax(x[0], x[1]);
    return true;
  case VT_OP_MINIMUM:
    *out = x[0] != x[0] || x[1] != x[1] ? NAN : fmin(x[0], x[1]);
    return true;
  case VT_OP_COMPARE:
    switch (vt_attr_i64(op, VT_ATTR_COMPARISON_DIRECTION)) {
    case VT_CMP_EQ:
      *out = x[0] == x[1];
      return true;
    case VT_CMP_NE:
      *out = x[0] != x[1];
      return true;
    case VT_CMP_GE:
      *out = x[0] >= x[1];
      return true;
    case VT_CMP_GT:
      *out = x[0] > x[1];
      return true;
    case VT_CMP_LE:
      *out = x[0] <= x[1];
      return true;
    default:
      *out = x[0] < x[1];
      return true;
    }
  default:
    return false;
  }
}

static bool keeps(const vt_func *body, vt_dtype dtype, double sign) {
  static const double all[] = {0, 1, 2, -1, NAN, INFINITY, -INFINITY};
  static const int of_kind[] = {
      [VT_KIND_BOOL] = 2, [VT_KIND_UNSIGNED] = 3, [VT_KIND_SIGNED] = 4, [VT_KIND_FLOAT] = 7};
  int count = of_kind[vt_dtype_kind_of(dtype)];
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++)
      for (int order = -1; order <= 1; order += 2) {
        double a = all[i], b = all[j], ia = 5, ib = 5 + order, got[2];
        double args[4] = {a, ia, b, ib};
        for (uint32_t r = 0; r < 2; r++)
          if (!truth(body->returns[r], args, &got[r])) return false;
        bool nan_a = a != a, nan_b = b != b;
        bool first = nan_a || nan_b ? nan_a && (!nan_b || ia < ib)
                                    : a * sign > b * sign || (a == b && ia < ib);
        if (nan_a && nan_b) continue; // which of two NaNs is unspecified
        double want = first ? a : b;
        if (!(got[0] == want || (want != want && got[0] != got[0])) || got[1] != (first ? ia : ib))
          return false;
      }
  return true;
}

static vt_reducer pair_reducer(const vt_op *reduce, const vt_func *body) {
  vt_type value = reduce->operands[0]->type, index = reduce->operands[1]->type;
  vt_dtype dtype = value.dtype;
  if (!vt_emit_has_type(dtype) || vt_dtype_get(dtype)->bits > 32 || index.dtype != VT_S32 ||
      body->return_count != 2)
    return VT_REDUCE_NONE;
  const vt_literal *start = constant_of(reduce->operands[2]),
                   *first = constant_of(reduce->operands[3]);
  if (!start || !first || literal_value(first) != 0) return VT_REDUCE_NONE;
  double from = literal_value(start);
  if (from == lowest(dtype) && keeps(body, dtype, 1)) return VT_REDUCE_ARGMAX;
  if (from == highest(dtype) && keeps(body, dtype, -1)) return VT_REDUCE_ARGMIN;
  return VT_REDUCE_NONE;
}

vt_reducer vt_reducer_of(const vt_op *reduce) {
  const vt_func *body = reduce->regions[0];
  uint32_t count = vt_op_own_operands(reduce) / 2;
  if (reduce->capture_count) return VT_REDUCE_NONE;
  if (count == 2) return pair_reducer(reduce, body);
  if (count != 1 || body->return_count != 1) return VT_REDUCE_NONE;
  vt_reducer reducer = vt_reducer_of_body(body);
  return is_neutral(reducer, reduce->operands[0]->type.dtype, reduce->operands[1]) ? reducer
                                                                                   : VT_REDUCE_NONE;
}
