// SPDX-License-Identifier: Apache-2.0
// partitioned.c - the program of one device as text, and what it says about collectives and memory.
#include <inttypes.h>

#include "hlo/hlo.h"
#include "import/import.h"
#include "ir/loop.h"
#include "runtime/runtime_internal.h"
#include "spmd/spmd.h"

static int64_t bytes_of(vt_type type) {
  int64_t bits = vt_dtype_get(type.dtype)->bits;
  if (vt_dtype_kind_of(type.dtype) == VT_KIND_BOOL) bits = 8;
  return (vt_type_elements(type) * bits + 7) / 8;
}

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
  for (uint32_t i = 0; i < op->operand_count; i++) bytes += bytes_of(op->operands[i]->type);
  vt_text_printf(out, "\"bytes\": %" PRId64 ", \"times\": %.0f}", bytes, times);
}

static void put_collectives(vt_text *out, const vt_scope *scope, double times, bool *first) {
  for (const vt_op *op = scope->func->first; op; op = op->next) {
    vt_opcode code = op->code;
    if (vt_op_info_get(code)->flags & VT_OPF_COLLECTIVE) put_collective(out, op, times, first);
    if (code != VT_OP_WHILE && code != VT_OP_IF && code != VT_OP_CASE) continue;
    int64_t trips = 1;
    if (code == VT_OP_WHILE && !vt_loop_trips(scope, op, &trips)) trips = 1;
    for (uint32_t r = 0; r < op->region_count; r++) {
      vt_scope inner = {scope, op, op->regions[r]};
      bool body = code != VT_OP_WHILE || r == 1; // a condition runs once more
      put_collectives(out, &inner, times * (double)(body ? trips : trips + 1), first);
    }
  }
}

// ---- memory -------------------------------------------------------------------------------------

// The most bytes live at once while the function runs, parameters and results included: each value
// from its op to its last use.
static int64_t peak_bytes(vt_func *func) {
  vt_arena scratch = {0};
  vt_func_number(func);
  const vt_op **last = VT_NEW_ARRAY(&scratch, const vt_op *, func->value_count + 1);
  bool *kept = VT_NEW_ARRAY(&scratch, bool, func->value_count + 1);
  int64_t live = 0, peak;
  for (uint32_t i = 0; i < func->param_count; i++) {
    live += bytes_of(func->params[i]->type);
    kept[func->params[i]->id] = true;
  }
  for (uint32_t i = 0; i < func->return_count; i++) kept[func->returns[i]->id] = true;
  for (const vt_op *op = func->first; op; op = op->next)
    for (uint32_t i = 0; i < op->operand_count; i++) last[op->operands[i]->id] = op;
  peak = live;
  for (const vt_op *op = func->first; op; op = op->next) {
    int64_t inside = 0;
    for (uint32_t r = 0; r < op->region_count; r++) {
      int64_t own = 0, whole = peak_bytes(op->regions[r]);
      for (uint32_t i = 0; i < op->regions[r]->param_count; i++)
        own += bytes_of(op->regions[r]->params[i]->type);
      if (whole - own > inside) inside = whole - own;
    }
    if (live + inside > peak) peak = live + inside;
    for (uint32_t i = 0; i < op->result_count; i++) live += bytes_of(op->results[i].type);
    if (live > peak) peak = live;
    for (uint32_t i = 0; i < op->operand_count; i++) {
      int32_t id = op->operands[i]->id;
      if (last[id] != op || kept[id]) continue;
      live -= bytes_of(op->operands[i]->type);
      kept[id] = true; // counted once
    }
  }
  vt_arena_free(&scratch);
  return peak;
}

static void put_json(vt_text *out, const vt_module *module) {
  bool first = true;
  vt_scope scope = {NULL, NULL, module->main};
  vt_text_put(out, "{\"collectives\": [");
  put_collectives(out, &scope, 1, &first);
  vt_text_put(out, "],\n ");
  put_types(out, "params", module->main->param_count, module->main->params);
  vt_text_put(out, ",\n ");
  put_types(out, "results", module->main->return_count, module->main->returns);
  vt_text_printf(out, ",\n \"peak_bytes_per_device\": %" PRId64 "}\n", peak_bytes(module->main));
}

vt_status vt_partition_module(vt_module *module) {
  int32_t devices = module->num_partitions * module->num_replicas;
  VT_TRY(vt_spmd_from_replicas(module, false));
  vt_spmd_inline(module);
  VT_TRY(vt_spmd_annotate(module, devices));
  return vt_spmd_partition(module, devices, NULL);
}

static vt_status put_hlo(vt_text *out, const vt_module *module) {
  vt_hlo *hlo = NULL;
  vt_hlo_options options = {0};
  vt_status st = vt_hlo_build(module, &options, &hlo);
  if (!st) vt_hlo_print(hlo, out);
  vt_hlo_destroy(hlo);
  return st;
}

vt_status vt_partitioned_text(vt_bytes program, int32_t devices, bool json, vt_text *out_text) {
  vt_module *module = NULL;
  VT_TRY(vt_import(program, &module));
  int32_t wanted = module->num_partitions * module->num_replicas;
  vt_status st = VT_OK;
  if (wanted > devices)
    st = vt_error(VT_INVALID_ARGUMENT,
                  "the program runs on %d devices, the slice has %d: name a larger one", wanted,
                  devices);
  if (!st) st = vt_partition_module(module);
  if (!st && json) put_json(out_text, module);
  if (!st && !json) st = put_hlo(out_text, module);
  vt_module_destroy(module);
  return st;
}
