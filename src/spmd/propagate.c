// SPDX-License-Identifier: Apache-2.0
// propagate.c - shardings for what the program leaves open.
#include "spmd/propagate.h"

void vt_spmd_propagate(const vt_module *module, int32_t device_count, vt_arena *arena, const vt_sharding **out_params,
                       const vt_sharding **out_results) {
  (void)device_count;
  (void)arena;
  const vt_func *main = module->main;
  for (uint32_t i = 0; i < main->param_count; i++)
    out_params[i] = main->param_info ? main->param_info[i].sharding : NULL;
  for (uint32_t i = 0; i < main->return_count; i++)
    out_results[i] = main->return_info ? main->return_info[i].sharding : NULL;
}
