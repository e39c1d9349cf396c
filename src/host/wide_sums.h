// SPDX-License-Identifier: Apache-2.0
// wide_sums.h - contractions of bf16 give sums in f32, which a conversion rounds.
#ifndef VT_HOST_WIDE_SUMS_H
#define VT_HOST_WIDE_SUMS_H

#include "ir/module.h"

// A dot or convolution of bf16 with a result of bf16.
bool vt_is_narrow_product(const vt_op *op);
// Those of them that run in strips without the matrix unit, too, with what follows them (strip.h).
bool vt_is_narrow_pairs(const vt_op *op);
// `which`: a filter of products.
vt_status vt_wide_sums(vt_module *module, bool (*which)(const vt_op *),
                       bool *out_changed) VT_CHECKED;

#endif
