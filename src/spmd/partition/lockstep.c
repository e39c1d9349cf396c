// SPDX-License-Identifier: Apache-2.0
// lockstep.c - the program of one device as a program on whole arrays: one manual computation over
// all devices, which is what runs in lockstep on one machine.
#include <string.h>

#include "base/check.h"
#include "ir/sharding.h"
#include "spmd/spmd.h"

typedef struct wrapper {
  vt_module *module;
  int32_t device_count;
  const vt_mesh *mesh; // of everything at the border
} wrapper;

static bool names_mesh(const vt_sharding *s) {
  return s && s->mesh->axis_count;
}

static vt_status join_mesh(wrapper *w, const vt_sharding *s, const char *what, uint32_t i) {
  if (s && vt_sharding_is_maximal(s) && w->device_count > 1)
    return vt_error(VT_UNIMPLEMENTED, "%s %u lies on one device of %d", what, i, w->device_count);
  if (!names_mesh(s)) return VT_OK;
  if (!w->mesh) w->mesh = s->mesh;
  if (vt_mesh_same(w->mesh, s->mesh)) return VT_OK;
  return vt_error(VT_UNIMPLEMENTED,
                  "%s %u is cut over mesh @%s, others over @%s: their devices must have one order",
                  what, i, s->mesh->name, w->mesh->name);
}

static const vt_sharding *sharding_of(const vt_io_info *info, uint32_t i) {
  return info ? info[i].sharding : NULL;
}

static vt_status choose_mesh(wrapper *w, const vt_func *whole) {
  for (uint32_t i = 0; i < whole->param_count; i++)
    VT_TRY(join_mesh(w, sharding_of(whole->param_info, i), "parameter", i));
  for (uint32_t i = 0; i < whole->return_count; i++)
    VT_TRY(join_mesh(w, sharding_of(whole->return_info, i), "result", i));
  if (w->mesh) return VT_OK;
  vt_mesh *line = VT_NEW(&w->module->arena, vt_mesh);
  vt_mesh_axis *axis = VT_NEW(&w->module->arena, vt_mesh_axis);
  *axis = (vt_mesh_axis){"vtpu.device", w->device_count};
  *line = (vt_mesh){.name = "vtpu.devices", .axis_count = 1, .axes = axis};
  w->mesh = line;
  return VT_OK;
}

// What the program of one device holds of each value at the border.
static const vt_sharding **border(const wrapper *w, const vt_io_info *info, uint32_t count,
                                  vt_value *const *values) {
  vt_arena *arena = &w->module->arena;
  const vt_sharding **list = VT_NEW_ARRAY(arena, const vt_sharding *, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    list[i] = sharding_of(info, i);
    if (names_mesh(list[i])) continue;
    int32_t rank = values[i]->type.rank;
    vt_sharding *whole = VT_NEW(arena, vt_sharding);
    vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, (size_t)rank + 1);
    for (int32_t d = 0; d < rank; d++) dims[d] = (vt_dim_sharding){0, NULL, true, -1};
    *whole = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = w->mesh, .rank = rank, .dims = dims};
    list[i] = whole;
  }
  return list;
}

static void wrap(const wrapper *w, const vt_func *whole) {
  vt_module *module = w->module;
  vt_arena *arena = &module->arena;
  vt_func *local = module->main, *func = vt_func_create(module, local->name);
  vt_type *types = VT_NEW_ARRAY(arena, vt_type, whole->return_count + 1);
  vt_value **returns = VT_NEW_ARRAY(arena, vt_value *, whole->return_count + 1);
  vt_string *axes = VT_NEW_ARRAY(arena, vt_string, w->mesh->axis_count);
  for (uint32_t i = 0; i < whole->param_count; i++) vt_func_add_param(func, whole->params[i]->type);
  for (uint32_t i = 0; i < whole->return_count; i++) types[i] = whole->returns[i]->type;
  vt_op *op = vt_op_create(func, VT_OP_MANUAL_COMPUTATION, &vt_loc_unknown, func->param_count,
                           func->params, whole->return_count, types, 1);
  op->regions[0] = local;
  local->name = "";
  local->param_info = local->return_info = NULL;
  vt_op_append(func, op);
  for (uint32_t a = 0; a < w->mesh->axis_count; a++)
    axes[a] = (vt_string){w->mesh->axes[a].name, strlen(w->mesh->axes[a].name)};
  vt_op_set_attr(
      op, (vt_attr){.key = VT_ATTR_IN_SHARDINGS,
                    .count = whole->param_count,
                    .shardings = border(w, whole->param_info, whole->param_count, whole->params)});
  vt_op_set_attr(op, (vt_attr){.key = VT_ATTR_OUT_SHARDINGS,
                               .count = whole->return_count,
                               .shardings = border(w, whole->return_info, whole->return_count,
                                                   whole->returns)});
  vt_op_set_attr(
      op, (vt_attr){.key = VT_ATTR_MANUAL_AXES, .count = w->mesh->axis_count, .strings = axes});
  for (uint32_t i = 0; i < whole->return_count; i++) returns[i] = &op->results[i];
  vt_func_set_returns(func, whole->return_count, returns);
  func->param_info = whole->param_info;
  func->return_info = whole->return_info;
  module->main = module->funcs[0] = func;
}

vt_status vt_spmd_lockstep(vt_module *module, const vt_func *whole, int32_t device_count) {
  wrapper w = {.module = module, .device_count = device_count};
  VT_TRY(choose_mesh(&w, whole));
  wrap(&w, whole);
  return vt_module_verify(module);
}
