// SPDX-License-Identifier: Apache-2.0
// flops.h - the arithmetic of matrix products, and a logarithm. (roofline.c)
#ifndef VT_CHIP_FLOPS_H
#define VT_CHIP_FLOPS_H

#include "chip/chip.h"

// Of a dot or a convolution; a multiply-add counts as two, products with padding do not count.
double vt_flops_of_product(const vt_op *op);
// Matrix units of a chip; how fast they load weights is not known here.
vt_matrix_units vt_units_of(const vt_chip *chip);
// How many products of its element types the matrix units make in the time of one in bf16.
double vt_flops_at_once(const vt_chip *chip, const vt_op *op);

// The same on every machine, which those of the C library are not; exact for powers of two.
double vt_log2(double x);

#endif
