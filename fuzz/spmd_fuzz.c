// SPDX-License-Identifier: Apache-2.0
// spmd_fuzz.c - any program that can be imported gets a plan or an error, and every device's range
// is inside the array; and its program of one device, which verifies, or an error.
#include <stdint.h>
#include <stdlib.h>

#include "import/import.h"
#include "spmd/spmd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const vt_tiling *tilings, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const vt_tiling *t = &tilings[i];
    for (int32_t device = 0; device < t->device_count && t->global.rank <= VT_MAX_RANK; device++) {
      int64_t offsets[VT_MAX_RANK], sizes[VT_MAX_RANK];
      if (t->tile_of_device[device] < 0) continue;
      vt_tiling_range(t, device, offsets, sizes);
      for (int32_t d = 0; d < t->global.rank; d++)
        if (offsets[d] < 0 || sizes[d] < 0 || offsets[d] + sizes[d] > t->global.dims[d]) abort();
    }
  }
}

static vt_status plan(const vt_module *module, vt_arena *arena) {
  vt_tiling *params, *results;
  VT_TRY(vt_spmd_plan(module, module->num_partitions, arena, &params, &results));
  check(params, module->main->param_count);
  check(results, module->main->return_count);
  return VT_OK;
}

static vt_status partition(vt_module *module) {
  vt_spmd_inline(module, true);
  VT_TRY(vt_spmd_annotate(module, module->num_partitions));
  return vt_spmd_partition(module, module->num_partitions, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  vt_module *module;
  vt_arena arena = {0};
  vt_status st = vt_import((vt_bytes){data, size}, &module);
  if (!st && module->num_partitions <= 64) {
    vt_status_free(plan(module, &arena));
    st = partition(module);
  }
  vt_status_free(st);
  vt_module_destroy(module);
  vt_arena_free(&arena);
  return 0;
}
