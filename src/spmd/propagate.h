// SPDX-License-Identifier: Apache-2.0
// propagate.h - shardings for values that the program leaves open.
#ifndef VT_SPMD_PROPAGATE_H
#define VT_SPMD_PROPAGATE_H

#include "base/array.h"
#include "spmd/spmd.h"

// out_params and out_results (entries of main) get the program's shardings, and for open results
// the propagated ones; NULL = replicated. Shardings are in `arena` or the module's.
void vt_spmd_propagate(const vt_module *module, int32_t device_count, vt_arena *arena,
                       const vt_sharding **out_params, const vt_sharding **out_results);

// The custom calls @InspectSharding of the program and their propagated shardings.
typedef struct vt_look {
  const vt_op *op;
  uint32_t node;
  bool manual;
  const vt_sharding *sharding; // NULL = replicated
} vt_look;
typedef VT_ARRAY(vt_look) vt_looks;
// The list is on the heap, its shardings in `arena`.
void vt_spmd_look(const vt_module *module, int32_t device_count, vt_arena *arena,
                  vt_looks *out_looks);

#endif
