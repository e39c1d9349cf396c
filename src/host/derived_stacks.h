// SPDX-License-Identifier: Apache-2.0
// derived_stacks.h - stacks of a loop that are a few operators away from others.
#ifndef VT_HOST_DERIVED_STACKS_H
#define VT_HOST_DERIVED_STACKS_H

#include "ir/module.h"

vt_status vt_derived_stacks(vt_module *module, bool *out_changed) VT_CHECKED;

#endif
