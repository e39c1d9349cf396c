// SPDX-License-Identifier: Apache-2.0
// lockstep.c - the program of one device as a program on whole arrays: one manual computation over
// all devices, which is what runs in lockstep on one machine.
//
// Its mesh is the one that parameters and results are cut over. Where these are several, or one
// with other devices than the program counts, it is a line of all devices: an axis of a mesh is a
// part of the line, and where the mesh has its devices in another order, tiles move by permutes to
// the devices that have them. What lies on one device is whole everywhere, as that device has it.
#include <string.h>

#include "base/check.h"
#include "ir/sharding.h"
#include "spmd/spmd.h"

typedef struct wrapper {
  vt_module *module;
  int32_t device_count;
  const vt_mesh *mesh; // of everything at the border
  bool line;           // shardings are over other meshes
} wrapper;

static bool names_mesh(const vt_sharding *s) {
  return s && s->mesh->axis_count;
}

static const vt_sharding *sharding_of(const vt_io_info *info, uint32_t i) {
  return info ? info[i].sharding : NULL;
}

static void join_meshes(wrapper *w, const vt_io_info *info, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const vt_sharding *s = sharding_of(info, i);
    if (!names_mesh(s)) continue;
    if (!w->mesh) w->mesh = s->mesh;
    w->line = w->line || !vt_mesh_same(w->mesh, s->mesh);
  }
}

static void choose_mesh(wrapper *w, const vt_func *whole) {
  join_meshes(w, whole->param_info, whole->param_count);
  join_meshes(w, whole->return_info, whole->return_count);
  if (w->mesh && !w->line) return;
  vt_mesh *line = VT_NEW(&w->module->arena, vt_mesh);
  vt_mesh_axis *axis = VT_NEW(&w->module->arena, vt_mesh_axis);
  *axis = (vt_mesh_axis){"vtpu.device", w->device_count};
  *line = (vt_mesh){.name = "vtpu.devices", .axis_count = 1, .axes = axis};
  w->mesh = line;
}

// Axes of a mesh as parts of the line.
static const vt_axis_ref *on_line(const wrapper *w, const vt_mesh *mesh, uint32_t count,
                                  const vt_axis_ref *axes) {
  vt_axis_ref *out = VT_NEW_ARRAY(&w->module->arena, vt_axis_ref, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    int64_t before = 1;
    for (uint32_t a = 0; a < axes[i].axis; a++) before *= mesh->axes[a].size;
    out[i] = (vt_axis_ref){0, before * axes[i].pre_size, axes[i].size};
  }
  return out;
}

static const vt_sharding *sharding_on_line(const wrapper *w, const vt_sharding *s) {
  vt_arena *arena = &w->module->arena;
  vt_sharding *out = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, (size_t)s->rank + 1);
  *out = *s;
  for (int32_t d = 0; d < s->rank; d++) {
    dims[d] = s->dims[d];
    dims[d].axes = on_line(w, s->mesh, s->dims[d].axis_count, s->dims[d].axes);
  }
  out->mesh = w->mesh;
  out->dims = dims;
  out->replicated_count = 0;
  out->unreduced = on_line(w, s->mesh, s->unreduced_count, s->unreduced);
  return out;
}

static const vt_sharding *whole_sharding(const wrapper *w, int32_t rank) {
  vt_sharding *whole = VT_NEW(&w->module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&w->module->arena, vt_dim_sharding, (size_t)rank + 1);
  for (int32_t d = 0; d < rank; d++) dims[d] = (vt_dim_sharding){0, NULL, true, -1};
  *whole = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = w->mesh, .rank = rank, .dims = dims};
  return whole;
}

// What the program of one device holds of each value at the border.
static const vt_sharding **border(const wrapper *w, const vt_io_info *info, uint32_t count,
                                  vt_value *const *values) {
  const vt_sharding **list = VT_NEW_ARRAY(&w->module->arena, const vt_sharding *, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    const vt_sharding *s = sharding_of(info, i);
    list[i] = !names_mesh(s) ? whole_sharding(w, values[i]->type.rank)
              : w->line      ? sharding_on_line(w, s)
                             : s;
  }
  return list;
}

// ---- tiles to their devices ---------------------------------------------------------------------

static vt_literal *table(const wrapper *w, int64_t rows, int64_t width, int64_t **out_ids) {
  vt_arena *arena = &w->module->arena;
  vt_literal *literal = VT_NEW(arena, vt_literal);
  int64_t dims[2] = {rows, width};
  *out_ids = VT_NEW_ARRAY(arena, int64_t, (size_t)(rows * width) + 1);
  *literal = (vt_literal){vt_type_make(arena, VT_S64, 2, dims), *out_ids, false};
  return literal;
}

static vt_op *collective(const wrapper *w, vt_opcode code, vt_value *v, vt_attr_key key,
                         const vt_literal *rows) {
  vt_op *op = vt_op_create(w->module->main, code, &vt_loc_unknown, 1, &v, 1, &v->type, 0);
  vt_op_set_attr(op, (vt_attr){.key = key, .count = 1, .literal = rows});
  vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
  return op;
}

// From places of the line to the devices that a mesh has there, or back. NULL: they are the same.
static vt_op *permute(const wrapper *w, const vt_sharding *s, vt_value *v, bool back) {
  if (!w->line || !names_mesh(s) || !s->mesh->device_count) return NULL;
  int64_t *ids;
  const vt_literal *pairs = table(w, w->device_count, 2, &ids);
  for (int32_t place = 0; place < w->device_count; place++) {
    ids[2 * place + back] = place;
    ids[2 * place + !back] = s->mesh->device_ids[place];
  }
  return collective(w, VT_OP_COLLECTIVE_PERMUTE, v, VT_ATTR_SOURCE_TARGET_PAIRS, pairs);
}

static vt_op *send_to_all(const wrapper *w, int64_t device, vt_value *v) {
  int64_t *ids, count = 0;
  const vt_literal *row = table(w, 1, w->device_count, &ids);
  ids[count++] = device;
  for (int64_t i = 0; i < w->device_count; i++)
    if (i != device) ids[count++] = i;
  return collective(w, VT_OP_COLLECTIVE_BROADCAST, v, VT_ATTR_REPLICA_GROUPS, row);
}

static void place_params(const wrapper *w, const vt_func *whole) {
  vt_func *local = w->module->main;
  vt_op *first = local->first;
  for (uint32_t i = 0; i < whole->param_count; i++) {
    vt_op *op = permute(w, sharding_of(whole->param_info, i), local->params[i], false);
    if (!op) continue;
    vt_value_replace(local->params[i], &op->results[0]);
    if (first)
      vt_op_insert(first, op);
    else
      vt_op_append(local, op);
  }
}

static void place_results(const wrapper *w, const vt_func *whole) {
  vt_func *local = w->module->main;
  for (uint32_t i = 0; i < whole->return_count; i++) {
    const vt_sharding *s = sharding_of(whole->return_info, i);
    bool one = s && vt_sharding_is_maximal(s) && w->device_count > 1;
    if (local->returns[i]->type.dtype == VT_TOKEN) continue;
    vt_op *op = one ? send_to_all(w, s->mesh->device_ids[0], local->returns[i])
                    : permute(w, s, local->returns[i], true);
    if (!op) continue;
    vt_op_append(local, op);
    local->returns[i] = &op->results[0];
  }
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
  choose_mesh(&w, whole);
  place_params(&w, whole);
  place_results(&w, whole);
  wrap(&w, whole);
  return vt_module_verify(module);
}
