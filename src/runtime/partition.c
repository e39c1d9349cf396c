// SPDX-License-Identifier: Apache-2.0
// partition.c - which part of each parameter and result lies on which device, as src/spmd plans it.
#include "runtime/runtime_internal.h"

#include <string.h>

#include "spmd/spmd.h"

static vt_status io_place(vt_executable *executable, const vt_tiling *tiling, const char *what,
                          uint32_t index, vt_io *io) {
  vt_arena *arena = &executable->arena;
  int32_t rank = io->type.rank, partitions = executable->info.partitions;
  if (vt_tiling_is_replicated(tiling)) return VT_OK;
  io->sharding = (vt_bytes){
      (const uint8_t *)vt_arena_copy(arena, tiling->proto, tiling->proto_size), tiling->proto_size};
  bool whole = true;
  for (int32_t i = 0; i < rank; i++) whole = whole && tiling->counts[i] == 1;
  for (int32_t d = 0; d < partitions; d++) whole = whole && tiling->tile_of_device[d] >= 0;
  if (whole) return VT_OK;
  io->replicated = false;
  io->shard = vt_type_make(arena, io->type.dtype, rank, tiling->shard.dims);
  int64_t *offsets = VT_NEW_ARRAY(arena, int64_t, (size_t)partitions *(size_t)rank + 1);
  int64_t sizes[VT_MAX_RANK];
  for (int32_t d = 0; d < partitions; d++) {
    if (tiling->tile_of_device[d] < 0)
      return vt_error(VT_UNIMPLEMENTED, "%s %u lies on one device of %d", what, index, partitions);
    vt_tiling_range(tiling, d, offsets + (ptrdiff_t)d * rank, sizes);
    for (int32_t i = 0; i < rank; i++)
      if (sizes[i] != tiling->shard.dims[i])
        return vt_error(VT_UNIMPLEMENTED,
                        "%s %u: dimension %d of %lld does not divide into %lld parts", what, index,
                        i, (long long)io->type.dims[i], (long long)tiling->counts[i]);
  }
  io->offsets = offsets;
  return VT_OK;
}

vt_status vt_io_partition(vt_executable *executable, const vt_module *module, vt_io *params,
                          vt_io *results) {
  vt_arena scratch = {0};
  vt_tiling *param_tilings = NULL, *result_tilings = NULL;
  vt_status st =
      vt_spmd_plan(module, executable->info.partitions, &scratch, &param_tilings, &result_tilings);
  for (uint32_t i = 0; !st && i < executable->info.param_count; i++)
    st = io_place(executable, &param_tilings[i], "parameter", i, &params[i]);
  for (uint32_t i = 0; !st && i < executable->info.result_count; i++)
    st = io_place(executable, &result_tilings[i], "result", i, &results[i]);
  vt_arena_free(&scratch);
  return st;
}
