// SPDX-License-Identifier: Apache-2.0
// placement.c - which part of each parameter and result is on which device, as src/spmd plans it.
#include "runtime/runtime_internal.h"

#include <string.h>

#include "base/check.h"
#include "spmd/spmd.h"

static void io_place(vt_executable *executable, const vt_tiling *tiling, vt_io *io) {
  vt_arena *arena = &executable->arena;
  int32_t rank = io->type.rank, partitions = executable->info.partitions;
  if (vt_tiling_is_replicated(tiling)) return;
  io->sharding = (vt_bytes){tiling->proto, tiling->proto_size};
  bool whole = tiling->partials == 1, several = false;
  for (int32_t i = 0; i < rank; i++) whole = whole && tiling->counts[i] == 1;
  for (int32_t d = 0; d < partitions; d++) several = several || tiling->tile_of_device[d] < 0;
  for (int32_t d = 0; d < partitions && several; d++)
    if (tiling->tile_of_device[d] >= 0) io->owner = d; // the others' are not read
  if (whole) return;
  io->unreduced = tiling->partials > 1 && executable->info.replicas == 1;
  io->replicated = false;
  io->shard = vt_type_make(arena, io->type.dtype, rank, tiling->shard.dims);
  int64_t *offsets = VT_NEW_ARRAY(arena, int64_t, (size_t)partitions *(size_t)rank + 1);
  int64_t sizes[VT_MAX_RANK];
  for (int32_t d = 0; d < partitions; d++) {
    vt_tiling_range(tiling, d, offsets + (ptrdiff_t)d * rank, sizes);
    vt_assert_each(i, rank, sizes[i] == tiling->shard.dims[i]); // vt_spmd_whole_tiles
  }
  io->offsets = offsets;
}

static vt_status inspect(vt_executable *executable, const vt_module *module) {
  static const uint8_t manual[] = {1 << 3, 4}; // {1: type MANUAL}
  vt_executable_info *info = &executable->info;
  vt_arena *arena = &executable->arena, scratch = {0};
  vt_sightings seen = {0};
  vt_status st = vt_spmd_inspect(module, info->partitions, &scratch, &seen);
  vt_inspection *list = VT_NEW_ARRAY(arena, vt_inspection, seen.size);
  for (size_t i = 0; i < seen.size && !st; i++) {
    const vt_tiling *tiling = &seen.data[i].tiling;
    vt_string config = vt_attr_string(seen.data[i].op, VT_ATTR_BACKEND_CONFIG);
    list[i].config =
        (vt_bytes){(const uint8_t *)vt_arena_copy(arena, config.data, config.size), config.size};
    list[i].sharding =
        seen.data[i].manual
            ? (vt_bytes){manual, sizeof manual}
            : (vt_bytes){(const uint8_t *)vt_arena_copy(arena, tiling->proto, tiling->proto_size),
                         tiling->proto_size};
  }
  info->inspections = list;
  info->inspection_count = st ? 0 : seen.size;
  vt_arena_free(&scratch);
  return st;
}

vt_status vt_io_partition(vt_executable *executable, const vt_module *module, vt_io *params,
                          vt_io *results) {
  const vt_executable_info *info = &executable->info;
  VT_TRY(vt_spmd_plan(module, info->partitions, &executable->arena, &executable->param_tilings,
                      &executable->result_tilings));
  for (uint32_t i = 0; i < info->param_count; i++)
    io_place(executable, &executable->param_tilings[i], &params[i]);
  for (uint32_t i = 0; i < info->result_count; i++)
    io_place(executable, &executable->result_tilings[i], &results[i]);
  return inspect(executable, module);
}

static void io_partials(vt_executable *executable, const vt_tiling *tiling, vt_io *io) {
  size_t cells = (size_t)executable->info.partitions * (size_t)io->type.rank;
  io->partials = tiling->partials;
  io->partial_of = tiling->partial_of_device;
  if (io->partials == 1 || !io->replicated) return;
  io->replicated = false; // every device holds its whole partial
  io->offsets = VT_NEW_ARRAY(&executable->arena, int64_t, cells + 1);
}

vt_status vt_io_expand_partials(vt_executable *executable, vt_module *module) {
  const vt_executable_info *info = &executable->info;
  if (info->partitions == 1) return VT_OK;
  vt_io *params = (vt_io *)(uintptr_t)info->params, *results = (vt_io *)(uintptr_t)info->results;
  for (uint32_t i = 0; executable->own && i < info->param_count; i++)
    if (executable->own[i])
      (void)vt_spmd_own_partials(module, i, info->partitions, &executable->arena,
                                 &executable->param_tilings[i]);
  VT_TRY(vt_spmd_expand_partials(module, info->partitions, &executable->arena,
                                 executable->param_tilings, executable->result_tilings));
  for (uint32_t i = 0; i < info->param_count; i++)
    io_partials(executable, &executable->param_tilings[i], &params[i]);
  for (uint32_t i = 0; i < info->result_count; i++)
    io_partials(executable, &executable->result_tilings[i], &results[i]);
  return VT_OK;
}
