// SPDX-License-Identifier: Apache-2.0
// ragged.h - products of rows in groups, as in a mixture of experts. (ragged.c)
#ifndef VT_CHIP_RAGGED_H
#define VT_CHIP_RAGGED_H

#include "ir/module.h"

// Import writes ragged_dot as a product of all rows with all groups, whose left operand has zeros
// for rows of other groups, and marks it (VT_ATTR_RAGGED). The chip does the work of the rows: each
// meets the matrix of its group, or each group makes a product of its own rows. Sizes of groups are
// not known; rows are taken to be spread evenly over those that the devices share.
typedef struct vt_ragged {
  double groups; // that this product has: a device's part of all
  double used;   // of them, that have rows
  double rows;   // of them together
  double part;   // of the work that the program writes down
  bool each;     // a product for each group, summed over its rows
} vt_ragged;
// false: it is an ordinary product
bool vt_ragged_of(const vt_op *dot, vt_ragged *out);
// Whether the operator only splits an operand of such a product.
bool vt_ragged_splits(const vt_op *op);
// The array in memory that a product takes as operand `side`.
const vt_value *vt_ragged_operand(const vt_op *product, uint32_t side);

#endif
