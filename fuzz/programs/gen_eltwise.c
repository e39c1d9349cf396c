// SPDX-License-Identifier: Apache-2.0
// gen_eltwise.c - elementwise ops.
#include "gen_makers.h"

static int flags_of(const gen_row *row) {
  return row->steady ? 0 : PICK_EXACT;
}

// Branch cuts of complex functions differ between implementations, and parts cancel: use tame
// operands and a result that rounds freely.
static bool complex_function(gen *g, const gen_row *row, vt_type type, uint32_t count) {
  vt_value *x[2];
  for (uint32_t i = 0; i < count; i++) x[i] = gen_leaf(g, type, VALUE_SMOOTH);
  if (row->code == VT_OP_ABS) type.dtype = type.dtype == VT_C64 ? VT_F32 : VT_F64;
  gen_emit(g, row->code, type, count, x, true);
  return true;
}

bool gen_unary(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, flags_of(row));
  if (vt_dtype_is_complex(x->type.dtype) && row->code != VT_OP_NEGATE)
    return complex_function(g, row, x->type, 1);
  vt_type type = row->code == VT_OP_IS_FINITE ? gen_retyped(g, x->type, VT_PRED) : x->type;
  gen_emit(g, row->code, type, 1, &x, row->loose);
  return true;
}

bool gen_binary(gen *g, const gen_row *row) {
  vt_value *pair[2];
  pair[0] = gen_any(g, row->dtypes, flags_of(row));
  if (vt_dtype_is_complex(pair[0]->type.dtype) && row->code == VT_OP_DIVIDE)
    return complex_function(g, row, pair[0]->type, 2);
  // Arithmetic of complex numbers is exact only for exact operands: hard to bound otherwise.
  int flags = vt_dtype_is_complex(pair[0]->type.dtype) ? PICK_EXACT : flags_of(row);
  if (flags && gen_is_inexact(g, pair[0])) return false;
  pair[1] = gen_of(g, pair[0]->type, flags);
  gen_emit(g, row->code, pair[0]->type, 2, pair,
           row->loose || (vt_dtype_is_complex(pair[0]->type.dtype) && row->code == VT_OP_MULTIPLY));
  return true;
}

bool gen_power(gen *g, const gen_row *row) {
  vt_value *pair[2];
  pair[0] = gen_any(g, row->dtypes, PICK_EXACT);
  vt_dtype_kind kind = vt_dtype_kind_of(pair[0]->type.dtype);
  if (kind == VT_KIND_COMPLEX) return complex_function(g, row, pair[0]->type, 2);
  // XLA:CPU takes only the low six bits of an integer exponent.
  pair[1] = kind == VT_KIND_FLOAT
                ? gen_of(g, pair[0]->type, PICK_EXACT)
                : gen_leaf_range(g, pair[0]->type, kind == VT_KIND_SIGNED ? -3 : 0,
                                 vt_dtype_get(pair[0]->type.dtype)->bits < 8 ? 1 : 40);
  gen_emit(g, row->code, pair[0]->type, 2, pair, true);
  return true;
}

bool gen_part(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  vt_type type = gen_retyped(g, x->type, x->type.dtype == VT_C64 ? VT_F32 : VT_F64);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &type, 0);
  gen_done(g, op, false, true);
  return true;
}

bool gen_complex(gen *g, const gen_row *row) {
  vt_value *pair[2];
  pair[0] = gen_any(g, row->dtypes, 0);
  pair[1] = gen_of(g, pair[0]->type, 0);
  vt_type type = gen_retyped(g, pair[0]->type, pair[0]->type.dtype == VT_F32 ? VT_C64 : VT_C128);
  vt_op *op = gen_op(g, row->code, 2, pair, 1, &type, 0);
  gen_done(g, op, false, true);
  return true;
}

bool gen_convert(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, 0);
  uint64_t to = row->dtypes;
  if (gen_is_inexact(g, x)) to &= vt_dtype_is_complex(x->type.dtype) ? T_COMPLEX : T_WIDE;
  gen_emit(g, row->code, gen_retyped(g, x->type, gen_dtype(g, to)), 1, &x, false);
  return true;
}

bool gen_reduce_precision(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, PICK_EXACT);
  vt_op *op = gen_op(g, row->code, 1, &x, 1, &x->type, 0);
  vt_op_set_i64(op, VT_ATTR_EXPONENT_BITS, gen_between(g, 2, 11));
  vt_op_set_i64(op, VT_ATTR_MANTISSA_BITS, gen_between(g, 0, gen_chance(g, 80) ? 12 : 52));
  gen_done(g, op, false, false);
  return true;
}

bool gen_compare(gen *g, const gen_row *row) {
  vt_value *pair[2];
  bool total = gen_chance(g, 30);
  pair[0] = gen_any(g, row->dtypes, PICK_EXACT | (total ? PICK_RAW : 0));
  pair[1] = gen_of(g, pair[0]->type, PICK_EXACT | (total ? PICK_RAW : 0));
  vt_dtype_kind kind = vt_dtype_kind_of(pair[0]->type.dtype);
  vt_type type = gen_retyped(g, pair[0]->type, VT_PRED);
  vt_op *op = gen_op(g, row->code, 2, pair, 1, &type, 0);
  bool complex = kind == VT_KIND_COMPLEX;
  vt_op_set_i64(op, VT_ATTR_COMPARISON_DIRECTION, gen_below(g, complex ? 2 : 6));
  vt_op_set_i64(op, VT_ATTR_COMPARE_TYPE,
                kind == VT_KIND_FLOAT    ? (total ? VT_CMPTYPE_TOTALORDER : VT_CMPTYPE_FLOAT)
                : complex                ? VT_CMPTYPE_FLOAT
                : kind == VT_KIND_SIGNED ? VT_CMPTYPE_SIGNED
                                         : VT_CMPTYPE_UNSIGNED);
  gen_done(g, op, false, false);
  return true;
}

bool gen_select(gen *g, const gen_row *row) {
  vt_value *x[3];
  x[1] = gen_any(g, row->dtypes, 0);
  x[2] = gen_of(g, x[1]->type, 0);
  vt_type predicate = gen_retyped(g, x[1]->type, VT_PRED);
  x[0] = gen_of(g, gen_chance(g, 25) ? (vt_type){VT_PRED, 0, NULL} : predicate, 0);
  vt_op *op = gen_op(g, row->code, 3, x, 1, &x[1]->type, 0);
  gen_done(g, op, false, true);
  return true;
}

bool gen_clamp(gen *g, const gen_row *row) {
  vt_value *x[3];
  x[1] = gen_any(g, row->dtypes, 0);
  vt_type scalar = {x[1]->type.dtype, 0, NULL};
  x[0] = gen_of(g, gen_chance(g, 60) ? scalar : x[1]->type, 0);
  x[2] = gen_of(g, gen_chance(g, 60) ? scalar : x[1]->type, 0);
  gen_emit(g, row->code, x[1]->type, 3, x, false);
  return true;
}

// To a type of equal width, or of a different width with a last dimension that compensates.
bool gen_bitcast(gen *g, const gen_row *row) {
  vt_value *x = gen_any(g, row->dtypes, PICK_EXACT | PICK_RAW);
  vt_dtype from = x->type.dtype, to = gen_dtype(g, row->dtypes);
  int in = vt_dtype_get(from)->bits, out = vt_dtype_get(to)->bits;
  int64_t dims[VT_MAX_RANK];
  int32_t rank = x->type.rank;
  for (int32_t d = 0; d < rank; d++) dims[d] = x->type.dims[d];
  if (rank > 5) return false;
  if (out < in) {
    dims[rank++] = in / out;
  } else if (out > in) {
    if (!rank || dims[rank - 1] != out / in) {
      dims[rank++] = out / in;
      if (rank > 3) return false;
      x = gen_of(g, gen_type(g, from, rank, dims), PICK_EXACT | PICK_RAW);
    }
    rank--;
  }
  gen_emit(g, row->code, gen_type(g, to, rank, dims), 1, &x, false);
  return true;
}
