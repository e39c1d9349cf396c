// SPDX-License-Identifier: Apache-2.0
// norm_sums.h - the sums of a normalisation's gradient in fewer walks over its arrays.
#ifndef VT_HOST_NORM_SUMS_H
#define VT_HOST_NORM_SUMS_H

#include "ir/module.h"

vt_status vt_norm_sums(vt_module *module, bool *out_changed) VT_CHECKED;

#endif
