// SPDX-License-Identifier: Apache-2.0
// chlo.h - what lower_chlo.c and chlo_math.c share: building StableHLO ops as formulas.
#ifndef VT_IMPORT_CHLO_H
#define VT_IMPORT_CHLO_H

#include "import/lower.h"

// Where ops are built, and the arithmetic type there: f32 or f64.
typedef struct vt_chlo {
  vt_func *func;
  const vt_loc *loc;
  vt_type type;
} vt_chlo;

typedef struct vt_chlo_pair {
  vt_value *re, *im;
} vt_chlo_pair;

// One op on one value (y is NULL) or two; the result has the arithmetic type.
vt_value *vt_chlo_op(vt_chlo *c, vt_opcode code, vt_value *x, vt_value *y);
vt_value *vt_chlo_number(vt_chlo *c, double value);
// Bits of an integer or floating type, the same for all elements.
vt_value *vt_chlo_bits(vt_chlo *c, vt_type type, uint64_t bits);
vt_value *vt_chlo_compare(vt_chlo *c, int direction, vt_value *x, vt_value *y);
vt_value *vt_chlo_select(vt_chlo *c, vt_value *truth, vt_value *yes, vt_value *no);
// One operand, another element type: CONVERT, BITCAST_CONVERT, REAL, IMAG, IS_FINITE.
vt_value *vt_chlo_to(vt_chlo *c, vt_opcode code, vt_dtype dtype, vt_value *x);

// A function of real or complex numbers (chlo_math.c).
typedef struct vt_chlo_function {
  const char *name;
  int operands;
  vt_value *(*real)(vt_chlo *c, vt_value *x, vt_value *y);
  vt_chlo_pair (*complex)(vt_chlo *c, vt_chlo_pair z); // NULL = not for complex numbers
  vt_opcode like;                                      // takes about as long on a TPU
} vt_chlo_function;
const vt_chlo_function *vt_chlo_find_function(vt_string name); // NULL when unknown

#endif
