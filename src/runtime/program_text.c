// SPDX-License-Identifier: Apache-2.0
// program_text.c - the compiled program as StableHLO text that other tools read.
//
// Usually the optimised module. Readers of the text do not know manual regions (shard_map), so a
// program that has some is shown as it arrived, each region in the older form: a pair of custom
// calls shards the arrays, the region's operations follow, and another pair reassembles its
// results.
#include <string.h>

#include "import/import.h"
#include "runtime/runtime_internal.h"
#include "spmd/spmd.h"

static bool has_manual(const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (op->code == VT_OP_MANUAL_COMPUTATION) return true;
    for (uint32_t i = 0; i < op->region_count; i++)
      if (has_manual(op->regions[i])) return true;
  }
  return false;
}

static bool module_has_manual(const vt_module *module) {
  if (has_manual(module->main)) return true;
  for (uint32_t i = 0; i < module->func_count; i++)
    if (has_manual(module->funcs[i])) return true;
  return false;
}

// "{devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"
static const char *tiling_text(const vt_tiling *tiling, vt_arena *arena) {
  if (vt_tiling_is_replicated(tiling)) return "{replicated}";
  int64_t tiles = 1;
  vt_text text = {0};
  vt_text_put(&text, "{devices=[");
  for (int32_t i = 0; i < tiling->global.rank; i++) {
    vt_text_printf(&text, "%s%lld", i ? "," : "", (long long)tiling->counts[i]);
    tiles *= tiling->counts[i];
  }
  bool replicated = tiles < tiling->device_count;
  if (replicated) vt_text_printf(&text, ",%lld", (long long)(tiling->device_count / tiles));
  vt_text_put(&text, "]");
  bool first = true;
  for (int64_t tile = 0; tile < tiles; tile++)
    for (int32_t d = 0; d < tiling->device_count; d++) {
      if (tiling->tile_of_device[d] != tile) continue;
      vt_text_printf(&text, "%s%d", first ? "" : ",", d);
      first = false;
    }
  if (replicated) vt_text_put(&text, " last_tile_dim_replicate");
  vt_text_put(&text, "}");
  const char *copy = vt_arena_copy(arena, text.data, text.size);
  vt_text_free(&text);
  return copy;
}

static vt_value *mark(vt_op *before, const char *target, vt_value *value, vt_type type,
                      const char *sharding) {
  vt_value *result =
      vt_build(before->func, before, VT_OP_CUSTOM_CALL, before->loc, type, 1, &value);
  vt_op_set_string(result->op, VT_ATTR_CALL_TARGET_NAME, target);
  vt_op_set_string(result->op, VT_ATTR_MHLO_SHARDING, sharding);
  return result;
}

static const vt_sharding *sharding_at(const vt_op *op, vt_attr_key key, uint32_t index) {
  const vt_attr *attr = vt_op_attr(op, key);
  return attr && index < attr->count ? attr->shardings[index] : NULL;
}

static vt_status write_out(vt_module *module, vt_op *op, int32_t devices) {
  vt_arena *arena = &module->arena;
  vt_func *region = op->regions[0];
  vt_value **args = VT_NEW_ARRAY(arena, vt_value *, region->param_count + 1);
  vt_value **returns = VT_NEW_ARRAY(arena, vt_value *, region->return_count + 1);
  vt_tiling tiling;
  for (uint32_t i = 0; i < region->param_count; i++) {
    args[i] = op->operands[i];
    if (i >= vt_op_own_operands(op)) continue;
    vt_type global = op->operands[i]->type;
    VT_TRY(vt_tiling_make(sharding_at(op, VT_ATTR_IN_SHARDINGS, i), NULL, 0, global, devices, arena,
                          &tiling));
    args[i] = mark(op, "Sharding", args[i], global, tiling_text(&tiling, arena));
    args[i] = mark(op, "SPMDFullToShardShape", args[i], region->params[i]->type, "{manual}");
  }
  vt_func_inline(region, op, args, returns);
  for (uint32_t i = 0; i < op->result_count; i++) {
    vt_type global = op->results[i].type;
    VT_TRY(vt_tiling_make(sharding_at(op, VT_ATTR_OUT_SHARDINGS, i), NULL, 0, global, devices,
                          arena, &tiling));
    vt_value *value = mark(op, "Sharding", returns[i], returns[i]->type, "{manual}");
    value = mark(op, "SPMDShardToFullShape", value, global, tiling_text(&tiling, arena));
    vt_value_replace(&op->results[i], value);
  }
  vt_op_remove(op);
  return VT_OK;
}

static vt_status write_out_all(vt_module *module, vt_func *func, int32_t devices) {
  for (vt_op *op = func->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->region_count; i++)
      VT_TRY(write_out_all(module, op->regions[i], devices));
    if (op->code == VT_OP_MANUAL_COMPUTATION) VT_TRY(write_out(module, op, devices));
  }
  return VT_OK;
}

vt_status vt_executable_text(const vt_executable *executable, vt_text *out_text) {
  const vt_module *optimised = vt_program_module(executable->program);
  if (!module_has_manual(optimised)) {
    vt_module_print(optimised, true, out_text);
    return VT_OK;
  }
  vt_module *module = NULL;
  VT_TRY(vt_import(executable->info.program, &module));
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < module->func_count && !st; i++)
    st = write_out_all(module, module->funcs[i], executable->info.partitions);
  if (!st) vt_module_print(module, true, out_text);
  vt_module_destroy(module);
  return st;
}
