// SPDX-License-Identifier: Apache-2.0
// precision.h - which contractions the chip multiplies in bf16.
#ifndef VT_IR_PRECISION_H
#define VT_IR_PRECISION_H

#include "ir/module.h"

// True when a dot or convolution asks for DEFAULT precision and runs on the matrix unit, which
// rounds f32 operands to bf16 and accumulates in f32. False for dots that the chip computes as sums
// of f32 products: those that contract nothing, or where one side has no dimension of its own
// (vector times vector, matrix times vector). Dimensions of size 1 do not count. Convolutions with
// a window of one element are dots in this, all others run on the matrix unit.
// docs/decisions/004-which-dots-round.md
bool vt_op_rounds_operands(const vt_op *op);
// Whether a contraction runs on the matrix unit.
bool vt_op_is_matrix_product(const vt_op *op);
// The type that the dot's algorithm first rounds this operand to; VT_DTYPE_INVALID when it does not
// round or the dot has no algorithm. Algorithms of several passes are computed without rounding.
vt_dtype vt_op_algorithm_rounds_to(const vt_op *op, uint32_t side);

#endif
