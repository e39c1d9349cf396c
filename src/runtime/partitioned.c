// SPDX-License-Identifier: Apache-2.0
// partitioned.c - the program of one device as text, and what it says about collectives and memory.
#include <inttypes.h>

#include "hlo/hlo.h"
#include "import/import.h"
#include "ir/loop.h"
#include "passes/collectives.h"
#include "runtime/runtime_internal.h"
#include "spmd/spmd.h"

static void put_types(vt_text *out, const char *name, uint32_t count, vt_value *const *values) {
  vt_text_printf(out, "\"%s\": [", name);
  for (uint32_t i = 0; i < count; i++) {
    vt_text_put(out, i ? ", \"" : "\"");
    vt_hlo_put_type(out, values[i]->type);
    vt_text_put(out, "\"");
  }
  vt_text_put(out, "]");
}

// ---- collectives --------------------------------------------------------------------------------

static void put_groups(vt_text *out, const vt_op *op) {
  bool pairs = op->code == VT_OP_COLLECTIVE_PERMUTE;
  const vt_literal *rows =
      vt_attr_literal(op, pairs ? VT_ATTR_SOURCE_TARGET_PAIRS : VT_ATTR_REPLICA_GROUPS);
  if (!rows || rows->type.rank != 2) return;
  const int64_t *ids = rows->data;
  vt_text_printf(out, "\"%s\": [", pairs ? "pairs" : "groups");
  for (int64_t g = 0; g < rows->type.dims[0]; g++) {
    vt_text_put(out, g ? ", [" : "[");
    for (int64_t i = 0; i < rows->type.dims[1]; i++) {
      int64_t id = rows->splat ? *ids : ids[g * rows->type.dims[1] + i];
      vt_text_printf(out, "%s%" PRId64, i ? ", " : "", id);
    }
    vt_text_put(out, "]");
  }
  vt_text_put(out, "], ");
}

static void put_collective(vt_text *out, const vt_op *op, double times, bool *first) {
  int64_t bytes = 0;
  vt_text_printf(out, "%s\n  {\"kind\": \"", *first ? "" : ",");
  *first = false;
  for (const char *c = vt_op_short_name(op->code); *c; c++)
    vt_text_printf(out, "%c", *c == '_' ? '-' : *c);
  vt_text_put(out, "\", ");
  put_types(out, "operand_shapes", op->operand_count, op->operands);
  vt_text_put(out, ", ");
  put_groups(out, op);
  for (uint32_t i = 0; i < op->operand_count; i++)
    bytes += vt_chip_dense_bytes(op->operands[i]->type);
  vt_text_printf(out, "\"bytes\": %" PRId64 ", \"times\": %.0f}", bytes, times);
}

static void put_collectives(vt_text *out, const vt_scope *scope, const vt_func *func, double times,
                            bool *first) {
  for (const vt_op *op = func->first; op; op = op->next) {
    vt_opcode code = op->code;
    if (vt_op_info_get(code)->flags & VT_OPF_COLLECTIVE) put_collective(out, op, times, first);
    if (code != VT_OP_WHILE && code != VT_OP_IF && code != VT_OP_CASE) continue;
    int64_t trips = 1;
    if (code == VT_OP_WHILE && !vt_loop_trips(scope, op, &trips)) trips = 1;
    for (uint32_t r = 0; r < op->region_count; r++) {
      vt_scope inner = {scope, op, op->regions[r]};
      bool body = code != VT_OP_WHILE || r == 1; // a condition runs once more
      put_collectives(out, &inner, op->regions[r], times * (double)(body ? trips : trips + 1),
                      first);
    }
  }
}

// ---- memory -------------------------------------------------------------------------------------

// What each parameter and result of the program of one device takes is said there as in any
// program.
static vt_status put_memory(vt_text *out, const vt_slice *slice, const vt_module *module) {
  vt_executable executable = {.slice = *slice, .info = {.partitions = 1, .replicas = 1}};
  vt_hbm_use use;
  vt_status st = vt_executable_signature(&executable, module);
  if (!st) {
    vt_executable_sums(&executable.info);
    vt_hbm_use_of(&executable, module->main, &executable.arena, &use);
    vt_hbm_put_json(out, slice->chip, &use);
  }
  vt_arena_free(&executable.arena);
  return st;
}

static vt_status put_json(vt_text *out, const vt_slice *slice, const vt_module *module) {
  bool first = true;
  vt_text_put(out, "{\"collectives\": [");
  put_collectives(out, NULL, module->main, 1, &first);
  vt_text_put(out, "],\n ");
  put_types(out, "params", module->main->param_count, module->main->params);
  vt_text_put(out, ",\n ");
  put_types(out, "results", module->main->return_count, module->main->returns);
  vt_text_put(out, ",\n ");
  VT_TRY(put_memory(out, slice, module));
  vt_text_put(out, "}\n");
  return VT_OK;
}

vt_status vt_partition_for(vt_module *module, int32_t devices,
                           const vt_partition_options *options) {
  vt_spmd_inline(module, true);
  VT_TRY(vt_spmd_annotate(module, devices));
  return vt_spmd_partition(module, devices, options);
}

vt_status vt_partition_module(vt_module *module, const vt_partition_options *options) {
  int32_t devices = module->num_partitions * module->num_replicas;
  VT_TRY(vt_spmd_from_replicas(module, false));
  VT_TRY(vt_spmd_whole_tiles(module));
  return vt_partition_for(module, devices, options);
}

static vt_status put_hlo(vt_text *out, const vt_module *module) {
  vt_hlo *hlo = NULL;
  vt_hlo_options options = {0};
  vt_status st = vt_hlo_build(module, &options, &hlo);
  if (!st) vt_hlo_print(hlo, VT_HLO_SHORT, out);
  vt_hlo_destroy(hlo);
  return st;
}

static vt_status run_passes(vt_module *module, const char *names) {
  vt_collective_options options = vt_collectives_default();
  VT_TRY(vt_collectives_only(&options, names));
  return vt_collectives_run(module, &options);
}

vt_status vt_partitioned_text(vt_bytes program, const vt_slice *slice, bool json,
                              const char *passes, vt_text *out_text) {
  vt_module *module = NULL;
  VT_TRY(vt_import(program, &module));
  int32_t devices = vt_slice_devices(slice);
  int32_t wanted = module->num_partitions * module->num_replicas;
  vt_status st = VT_OK;
  if (wanted > devices)
    st = vt_error(VT_INVALID_ARGUMENT,
                  "the program runs on %d devices, the slice has %d: name a larger one", wanted,
                  devices);
  if (!st) st = vt_partition_module(module, NULL);
  if (!st && passes) st = run_passes(module, passes);
  if (!st && json) st = put_json(out_text, slice, module);
  if (!st && !json) st = put_hlo(out_text, module);
  vt_module_destroy(module);
  return st;
}
