// SPDX-License-Identifier: Apache-2.0
// mosaic_load.c - from the text of a backend_config to a verified kernel; the kernels of a module.
#include <string.h>

#include "base/map.h"
#include "mosaic/mosaic_ir.h"

static vt_status load(vt_string config, vt_arena *scratch, vt_arena *arena, vt_mosaic *kernel) {
  vt_bytes body;
  VT_TRY(vt_mosaic_config(config, scratch, &kernel->config, &body));
  VT_TRY(vt_mosaic_lower(body, scratch, arena, kernel));
  VT_TRY(vt_mosaic_verify(kernel));
  vt_mosaic_find_deaths(kernel, arena);
  vt_mosaic_number(kernel, arena);
  for (uint64_t i = 0; i < 2; i++) kernel->hash[i] = vt_hash_bytes(config.data, config.size, i + 1);
  return VT_OK;
}

vt_status vt_mosaic_read(vt_string config, vt_arena *arena, vt_mosaic **out_kernel) {
  vt_arena scratch = {0};
  vt_mosaic *kernel = *out_kernel = VT_NEW(arena, vt_mosaic);
  vt_status st = load(config, &scratch, arena, kernel);
  vt_arena_free(&scratch);
  if (st) *out_kernel = NULL;
  return st;
}

bool vt_mosaic_is_call(const vt_op *op) {
  if (op->code != VT_OP_CUSTOM_CALL) return false;
  vt_string target = vt_attr_string(op, VT_ATTR_CALL_TARGET_NAME);
  return target.size == 15 && !memcmp(target.data, "tpu_custom_call", 15);
}

typedef struct dumper {
  vt_arena arena;
  vt_map seen; // texts of configs
  vt_text *out;
} dumper;

static vt_status dump_func(dumper *d, const vt_func *func) {
  for (const vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->region_count; i++) VT_TRY(dump_func(d, op->regions[i]));
    if (!vt_mosaic_is_call(op)) continue;
    vt_string config = vt_attr_string(op, VT_ATTR_BACKEND_CONFIG);
    vt_mosaic *kernel;
    if (vt_map_has(&d->seen, config.data, config.size)) continue;
    *vt_map_at(&d->seen, config.data, config.size) = d;
    vt_status st = vt_mosaic_read(config, &d->arena, &kernel);
    if (st) return vt_status_wrap(st, "%s", vt_op_describe(op, &d->arena));
    vt_mosaic_print(kernel, d->out);
  }
  return VT_OK;
}

vt_status vt_mosaic_dump(const vt_module *module, vt_text *out_text) {
  dumper d = {.out = out_text};
  vt_status st = VT_OK;
  for (uint32_t i = 0; i < module->func_count && !st; i++) st = dump_func(&d, module->funcs[i]);
  vt_map_free(&d.seen);
  vt_arena_free(&d.arena);
  return st;
}
