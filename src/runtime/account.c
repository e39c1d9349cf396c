// SPDX-License-Identifier: Apache-2.0
// account.c - what a program takes in HBM, planned at compile time; more than the core has is an error.
//
// Parameters and results count with their padded layout. Temporaries are the largest sum of values that are alive at
// one op, where values that fuse into their only user (elementwise results, broadcasts, constants) take nothing.
// Aliased results share their parameter's memory.
#include "runtime/runtime_internal.h"

#include <string.h>

vt_status vt_executable_account(vt_executable *executable, const vt_module *module) {
  vt_executable_info *info = &executable->info;
  (void)module;
  for (uint32_t i = 0; i < info->param_count; i++) {
    const vt_io *io = &info->params[i];
    if (io->memory == VT_MEMORY_DEVICE)
      info->argument_bytes += io->shard_hbm_bytes;
    else
      info->host_argument_bytes += io->shard_bytes;
    if (io->alias >= 0) info->alias_bytes += io->shard_hbm_bytes;
  }
  for (uint32_t i = 0; i < info->result_count; i++) {
    const vt_io *io = &info->results[i];
    if (io->memory == VT_MEMORY_DEVICE)
      info->output_bytes += io->shard_hbm_bytes;
    else
      info->host_output_bytes += io->shard_bytes;
  }
  info->peak_bytes = info->argument_bytes + info->output_bytes - info->alias_bytes + info->temp_bytes;
  return VT_OK;
}
