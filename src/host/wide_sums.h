// SPDX-License-Identifier: Apache-2.0
// wide_sums.h - contractions of bf16 give sums in f32, which a conversion rounds.
#ifndef VT_HOST_WIDE_SUMS_H
#define VT_HOST_WIDE_SUMS_H

#include "ir/module.h"

// A dot or convolution of bf16 with a result of bf16.
bool vt_is_narrow_product(const vt_op *op);
vt_status vt_wide_sums(vt_module *module, bool *out_changed) VT_CHECKED;

#endif
