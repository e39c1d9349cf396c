// SPDX-License-Identifier: Apache-2.0
// wide_chains.h - what elementwise operators of bf16 give to one other stays f32.
#ifndef VT_HOST_WIDE_CHAINS_H
#define VT_HOST_WIDE_CHAINS_H

#include "ir/module.h"

// Whether the result may go on as it was before rounding to bf16. For tests.
bool vt_wide_chains_keep(const vt_op *op);
// `sums`: of which products they go on too; NULL: of none.
vt_status vt_wide_chains(vt_module *module, bool (*sums)(const vt_op *),
                         bool *out_changed) VT_CHECKED;

#endif
