// SPDX-License-Identifier: Apache-2.0
// propagate.h - shardings for what the program leaves open.
#ifndef VT_SPMD_PROPAGATE_H
#define VT_SPMD_PROPAGATE_H

#include "spmd/spmd.h"

// out_params and out_results (entries of main) get what the program says, and for open results what
// follows from it; NULL = replicated. Shardings are in `arena` or the module's.
void vt_spmd_propagate(const vt_module *module, int32_t device_count, vt_arena *arena,
                       const vt_sharding **out_params, const vt_sharding **out_results);

#endif
