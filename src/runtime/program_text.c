// SPDX-License-Identifier: Apache-2.0
// program_text.c - the compiled program as HLO.
//
// Of one device it is the optimised module. Of several it is the program that each of them would
// run on a real slice. This machine runs such a program once, on whole arrays, so it is partitioned
// only when somebody asks.
#include "hlo/hlo.h"
#include "import/import.h"
#include "runtime/runtime_internal.h"
#include "spmd/spmd.h"

static const vt_hlo_io *ios_of(vt_arena *arena, const vt_io *ios, uint32_t count,
                               bool partitioned) {
  vt_hlo_io *out = VT_NEW_ARRAY(arena, vt_hlo_io, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    out[i] = (vt_hlo_io){.host = ios[i].memory != VT_MEMORY_DEVICE,
                         .alias_output = ios[i].alias,
                         .donated = ios[i].donated};
    // Partials have a dimension more, which neither layouts nor shardings know.
    if (ios[i].partials <= 1) out[i].layout = ios[i].layout;
    if (partitioned && ios[i].partials <= 1)
      out[i].sharding = (vt_string){(const char *)ios[i].sharding.data, ios[i].sharding.size};
  }
  return out;
}

// `module` has the parameters and results of the executable.
static vt_status put_hlo(const vt_executable *executable, const vt_module *module, bool message,
                         vt_text *out) {
  const vt_executable_info *info = &executable->info;
  vt_arena scratch = {0};
  vt_hlo *hlo = NULL;
  int32_t partitions = info->partitions / info->replicas;
  vt_hlo_options options = {
      .partitions = partitions,
      .replicas = info->replicas,
      .params = ios_of(&scratch, info->params, info->param_count, partitions > 1),
      .results = ios_of(&scratch, info->results, info->result_count, partitions > 1)};
  vt_status st = vt_hlo_build(module, &options, &hlo);
  if (!st && message) vt_hlo_write(hlo, out);
  if (!st && !message) vt_hlo_print(hlo, out);
  vt_hlo_destroy(hlo);
  vt_arena_free(&scratch);
  return st;
}

vt_status vt_executable_hlo(const vt_executable *executable, bool message, vt_text *out) {
  const vt_executable_info *info = &executable->info;
  if (info->partitions == info->replicas && !executable->manual)
    return put_hlo(executable, vt_program_module(executable->program), message, out);
  vt_module *module = NULL;
  VT_TRY(vt_import(info->program, &module));
  module->num_replicas = info->replicas;
  module->num_partitions = info->partitions / info->replicas;
  vt_status st = vt_partition_module(module);
  if (!st) st = put_hlo(executable, module, message, out);
  vt_module_destroy(module);
  return st;
}
