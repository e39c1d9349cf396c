// SPDX-License-Identifier: Apache-2.0
// plan.c - tilings of the parameters and results of main.
#include <inttypes.h>

#include "spmd/propagate/propagate.h"

static vt_status tile_all(const char *what, uint32_t count, vt_value *const *values,
                          const vt_sharding *const *shardings, int32_t device_count,
                          vt_arena *arena, vt_tiling **out) {
  *out = VT_NEW_ARRAY(arena, vt_tiling, count);
  for (uint32_t i = 0; i < count; i++) {
    vt_status st =
        vt_tiling_make(shardings[i], NULL, 0, values[i]->type, device_count, arena, &(*out)[i]);
    if (st) return vt_status_wrap(st, "%s %" PRIu32, what, i);
  }
  return VT_OK;
}

vt_status vt_spmd_plan(const vt_module *module, int32_t device_count, vt_arena *arena,
                       vt_tiling **out_params, vt_tiling **out_results) {
  const vt_func *main = module->main;
  const vt_sharding **params = VT_NEW_ARRAY(arena, const vt_sharding *, main->param_count);
  const vt_sharding **results = VT_NEW_ARRAY(arena, const vt_sharding *, main->return_count);
  vt_spmd_propagate(module, device_count, arena, params, results);
  VT_TRY(tile_all("parameter", main->param_count, main->params, params, device_count, arena,
                  out_params));
  return tile_all("result", main->return_count, main->returns, results, device_count, arena,
                  out_results);
}

vt_status vt_spmd_inspect(const vt_module *module, int32_t device_count, vt_arena *arena,
                          vt_sightings *out_sightings) {
  vt_looks looks = {0};
  vt_spmd_look(module, device_count, arena, &looks);
  out_sightings->data = VT_NEW_ARRAY(arena, vt_sighting, looks.size);
  out_sightings->size = looks.size;
  vt_status st = VT_OK;
  for (size_t i = 0; i < looks.size && !st; i++) {
    vt_sighting *seen = &out_sightings->data[i];
    seen->op = looks.data[i].op;
    seen->manual = looks.data[i].manual;
    st = vt_tiling_make(seen->manual ? NULL : looks.data[i].sharding, NULL, 0,
                        seen->op->operands[0]->type, device_count, arena, &seen->tiling);
  }
  vt_array_free(&looks);
  return st;
}
