// SPDX-License-Identifier: Apache-2.0
// traits.h - what matters of an operator to the kernels it may be in, whatever is around it.
#ifndef VT_CHIP_TIME_TRAITS_H
#define VT_CHIP_TIME_TRAITS_H

#include "chip/time/kernels.h"

enum {
  VT_TRAIT_SOFT = 1, // made where it is read
  VT_TRAIT_ELEMENTWISE = 2,
  VT_TRAIT_DEAR = 4,
  VT_TRAIT_NOTHING = 8, // no work
  VT_TRAIT_PRODUCT = 16,
  VT_TRAIT_REDUCTION = 32,
  VT_TRAIT_HANDING = 64 // its results are its operands under another name
};
// A call of an elementwise function is as dear as its steps: see vt_kernel_body.
uint8_t vt_kernel_traits(const vt_op *op);
bool vt_kernel_is_dear(const vt_op *op);

// Whether the value is a result of a loop that the loop does not change.
bool vt_kernel_keeps(const vt_value *value);

#endif
