// SPDX-License-Identifier: Apache-2.0
// partial.c - turns values that differ between devices into ordinary values of the program.
//
// A parameter or result of main with partials gets a first dimension that counts them. An operand
// or result of a manual computation that is unreduced inside gets one dimension per unreduced axis,
// sharded along it, so that each device reads and writes its own. Everything between works on plain
// values, or on partials where spread.c finds a way; nothing else in the compiler knows of them.
#include "spmd/partials/partial.h"

#include <string.h>

#include "spmd/partials/varying.h"

// ---- is there anything to do --------------------------------------------------------------------

// The axes of the computation that operand or result `i` is unreduced along.
static vt_partial manual_partial(const vt_op *op, vt_attr_key key, uint32_t i) {
  const vt_sharding *s = vt_op_attr(op, key)->shardings[i];
  vt_partial all = vt_partial_of(s), partial = {.mesh = all.mesh, .meaning = all.meaning};
  for (uint32_t a = 0; a < all.count; a++)
    if (vt_is_manual_axis(op, s->mesh, all.axes[a].axis))
      vt_partial_add(&partial, s->mesh, all.axes[a]);
  return partial;
}

// The axes along which result `i` differs although it is neither sharded nor unreduced along them.
static vt_partial varying_partial(const vt_op *op, uint32_t i, vt_axis_set varying) {
  const vt_sharding *s = vt_op_attr(op, VT_ATTR_OUT_SHARDINGS)->shardings[i];
  const vt_mesh *mesh = vt_manual_mesh(op);
  vt_partial partial = {.mesh = mesh, .meaning = VT_MEANS_FIRST};
  if (op->results[i].type.dtype == VT_TOKEN) return partial;
  for (int32_t d = 0; s && d < s->rank; d++)
    for (uint32_t a = 0; a < s->dims[d].axis_count; a++)
      varying &= ~(1u << s->dims[d].axes[a].axis);
  for (uint32_t a = 0; mesh && a < mesh->axis_count; a++)
    if (varying >> a & 1) vt_partial_add(&partial, mesh, (vt_axis_ref){a, 1, mesh->axes[a].size});
  return partial;
}

static bool leaves_axes_out(const vt_op *op, uint32_t i) {
  const vt_mesh *mesh = vt_manual_mesh(op);
  vt_axis_set all = 0;
  for (uint32_t a = 0; mesh && a < mesh->axis_count; a++)
    if (mesh->axes[a].size > 1 && vt_is_manual_axis(op, mesh, a)) all |= 1u << a;
  return varying_partial(op, i, all).count > 0;
}

static bool op_has_partials(const vt_op *op, bool outermost, vt_arena *arena) {
  const vt_attr *in = vt_op_attr(op, VT_ATTR_IN_SHARDINGS);
  bool open = false;
  for (uint32_t i = 0; i < in->count; i++)
    if (manual_partial(op, VT_ATTR_IN_SHARDINGS, i).count) return true;
  for (uint32_t i = 0; i < op->result_count; i++) {
    if (manual_partial(op, VT_ATTR_OUT_SHARDINGS, i).count) return true;
    open |= outermost && leaves_axes_out(op, i);
  }
  if (!open) return false;
  vt_axis_set *varying = VT_NEW_ARRAY(arena, vt_axis_set, op->result_count);
  vt_varying_axes(op, varying);
  for (uint32_t i = 0; i < op->result_count; i++)
    if (varying_partial(op, i, varying[i]).count) return true;
  return false;
}

static bool func_has_partials(const vt_func *func, bool outermost, vt_arena *arena) {
  for (const vt_op *op = func->first; op; op = op->next) {
    if (op->code == VT_OP_MANUAL_COMPUTATION && op_has_partials(op, outermost, arena)) return true;
    for (uint32_t i = 0; i < op->region_count; i++)
      if (func_has_partials(op->regions[i], false, arena)) return true;
  }
  return false;
}

static bool has_partials(const vt_module *module, const vt_tiling *params, const vt_tiling *results,
                         vt_arena *arena) {
  for (uint32_t i = 0; i < module->main->param_count; i++)
    if (params[i].partials > 1) return true;
  for (uint32_t i = 0; i < module->main->return_count; i++)
    if (results[i].partials > 1) return true;
  for (uint32_t i = 0; i < module->func_count; i++)
    if (func_has_partials(module->funcs[i], true, arena)) return true;
  return false;
}

// ---- the walk -----------------------------------------------------------------------------------

static vt_value *resolve(vt_value *value) {
  while (value->replaced_by) value = value->replaced_by;
  return value;
}

// [sizes] + dims, or ones + dims inside the manual computation.
static vt_type extended(vt_module *module, const vt_partial *partial, vt_type type, bool ones) {
  int64_t dims[VT_MAX_RANK + VT_MAX_PARTIAL];
  for (uint32_t i = 0; i < partial->count; i++) dims[i] = ones ? 1 : partial->axes[i].size;
  for (int32_t d = 0; d < type.rank; d++) dims[(int32_t)partial->count + d] = type.dims[d];
  return vt_type_make(&module->arena, type.dtype, (int32_t)partial->count + type.rank, dims);
}

// The sharding with one leading dimension per axis of the partial, and nothing unreduced.
static const vt_sharding *extended_sharding(vt_module *module, const vt_partial *partial,
                                            const vt_sharding *s) {
  vt_arena *arena = &module->arena;
  uint32_t rank = partial->count + (uint32_t)s->rank;
  vt_sharding *out = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, rank);
  for (uint32_t i = 0; i < partial->count; i++) {
    vt_axis_ref *axis = VT_NEW(arena, vt_axis_ref);
    *axis = partial->axes[i];
    dims[i] = (vt_dim_sharding){1, axis, true, -1};
  }
  if (s->rank) memcpy(dims + partial->count, s->dims, sizeof *dims * (size_t)s->rank);
  *out = (vt_sharding){
      .kind = VT_SHARDING_MESH, .mesh = partial->mesh, .rank = (int32_t)rank, .dims = dims};
  return out;
}

static void set_sharding(vt_op *op, vt_attr_key key, uint32_t i, const vt_sharding *sharding) {
  vt_attr attr = *vt_op_attr(op, key);
  const vt_sharding **list =
      VT_NEW_ARRAY(&op->func->module->arena, const vt_sharding *, attr.count);
  memcpy(list, attr.shardings, sizeof *list * attr.count);
  list[i] = sharding;
  attr.shardings = list;
  vt_op_set_attr(op, attr);
}

static vt_status check_rank(vt_type type) {
  if (type.rank + VT_MAX_PARTIAL <= VT_MAX_RANK) return VT_OK;
  return vt_error(VT_UNIMPLEMENTED, "an array of %d dimensions that differs between devices",
                  (int)type.rank);
}

static vt_status check_partial(const vt_partial *partial, const vt_tiling *tiling) {
  if (vt_partial_size(partial) == tiling->partials) return check_rank(tiling->global);
  return vt_error(VT_UNIMPLEMENTED, "an array that is unreduced along more than %d axes",
                  VT_MAX_PARTIAL);
}

// The undeclared partial axes of an operand: it is partial along them, but the manual computation
// reads it as replicated.
static vt_partial undeclared_partial(const vt_spreader *s, const vt_op *op, uint32_t i) {
  vt_partial partial = vt_value_partial(s, op->operands[i]), none = {0};
  const vt_sharding *in = vt_op_attr(op, VT_ATTR_IN_SHARDINGS)->shardings[i];
  if (!partial.count || partial.meaning != VT_MEANS_FIRST || !vt_mesh_same(partial.mesh, in->mesh))
    return none;
  for (uint32_t a = 0; a < partial.count; a++)
    if (!vt_is_manual_axis(op, in->mesh, partial.axes[a].axis)) return none;
  return vt_is_cut_along(in, &partial) ? none : partial;
}

static vt_status expand_operand(vt_spreader *s, vt_op *op, uint32_t i) {
  vt_partial partial = manual_partial(op, VT_ATTR_IN_SHARDINGS, i);
  vt_func *body = op->regions[0];
  vt_value *param = body->params[i];
  if (!partial.count) partial = undeclared_partial(s, op, i);
  if (!partial.count) return VT_OK;
  VT_TRY(check_rank(op->operands[i]->type));
  const vt_sharding *in = vt_op_attr(op, VT_ATTR_IN_SHARDINGS)->shardings[i];
  partial.mesh = in->mesh;
  op->operands[i] = vt_spread_value(s, op->operands[i], &partial);
  set_sharding(op, VT_ATTR_IN_SHARDINGS, i, extended_sharding(s->module, &partial, in));
  vt_op *mine = vt_op_create(body, VT_OP_RESHAPE, op->loc, 1, &param, 1, &param->type, 0);
  vt_value_replace(param, &mine->results[0]);
  param->type = extended(s->module, &partial, param->type, true);
  if (body->first)
    vt_op_insert(body->first, mine);
  else
    vt_op_append(body, mine);
  return VT_OK;
}

static vt_status expand_result(vt_spreader *s, vt_op *op, uint32_t i, vt_axis_set varying) {
  vt_partial partial = manual_partial(op, VT_ATTR_OUT_SHARDINGS, i);
  vt_func *body = op->regions[0];
  if (!partial.count) partial = varying_partial(op, i, varying);
  if (!partial.count) return VT_OK;
  vt_value *value = &op->results[i], *local = body->returns[i];
  VT_TRY(check_rank(value->type));
  const vt_sharding *out = vt_op_attr(op, VT_ATTR_OUT_SHARDINGS)->shardings[i];
  set_sharding(op, VT_ATTR_OUT_SHARDINGS, i, extended_sharding(s->module, &partial, out));
  vt_type type = extended(s->module, &partial, local->type, true);
  body->returns[i] = vt_build(body, NULL, VT_OP_RESHAPE, op->loc, type, 1, &local);
  value->type = extended(s->module, &partial, value->type, false);
  value->replaced_by = vt_join_value(s, value, &partial, out);
  return VT_OK;
}

static vt_status expand_manual(vt_spreader *s, vt_op *op) {
  uint32_t own = vt_op_own_operands(op);
  vt_axis_set *varying = VT_NEW_ARRAY(s->arena, vt_axis_set, op->result_count);
  bool open = false;
  s->before = op;
  for (uint32_t i = 0; i < own; i++) VT_TRY(expand_operand(s, op, i));
  for (uint32_t i = 0; i < op->result_count && s->func == s->module->main; i++)
    open |= leaves_axes_out(op, i);
  if (open) vt_varying_axes(op, varying);
  s->before = op->next;
  for (uint32_t i = 0; i < op->result_count; i++) VT_TRY(expand_result(s, op, i, varying[i]));
  return VT_OK;
}

static vt_op *inline_call(vt_op *op) {
  vt_func *func = op->func;
  vt_value **returns = VT_NEW_ARRAY(&func->module->arena, vt_value *, op->result_count);
  vt_op *before = op->prev;
  vt_func_inline(vt_attr_func(op, VT_ATTR_CALLEE), op->func, op, op->operands, returns);
  for (uint32_t i = 0; i < op->result_count; i++) op->results[i].replaced_by = returns[i];
  vt_op_remove(op);
  return before ? before->next : func->first; // the body may contain calls: walk it too
}

static vt_status walk_func(vt_spreader *s, vt_func *func, vt_op *first) {
  vt_func *outer = s->func;
  vt_op *outer_before = s->before, *next;
  s->func = func;
  for (vt_op *op = first; op; op = next) {
    for (uint32_t i = 0; i < op->operand_count; i++) op->operands[i] = resolve(op->operands[i]);
    next = op->next;
    if (op->code == VT_OP_CALL) {
      next = inline_call(op);
      continue;
    }
    for (uint32_t i = 0; i < op->region_count; i++)
      VT_TRY(walk_func(s, op->regions[i], op->regions[i]->first));
    if (op->code == VT_OP_MANUAL_COMPUTATION)
      VT_TRY(expand_manual(s, op));
    else
      vt_note_op(s, op);
  }
  for (uint32_t i = 0; i < func->return_count; i++) func->returns[i] = resolve(func->returns[i]);
  s->func = outer;
  s->before = outer_before;
  return VT_OK;
}

static void forget_replacements(vt_func *func) {
  for (uint32_t i = 0; i < func->param_count; i++) func->params[i]->replaced_by = NULL;
  for (vt_op *op = func->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->result_count; i++) op->results[i].replaced_by = NULL;
    for (uint32_t i = 0; i < op->region_count; i++) forget_replacements(op->regions[i]);
  }
}

// ---- main ---------------------------------------------------------------------------------------

static vt_type counted(vt_module *module, int64_t partials, vt_type type) {
  int64_t dims[VT_MAX_RANK + 1] = {partials};
  for (int32_t d = 0; d < type.rank; d++) dims[d + 1] = type.dims[d];
  return vt_type_make(&module->arena, type.dtype, type.rank + 1, dims);
}

// The annotation of a parameter or result with partials: its first dimension is sharded along the
// axes of the partial.
static const vt_sharding *counted_sharding(vt_module *module, const vt_partial *partial,
                                           const vt_sharding *s) {
  vt_arena *arena = &module->arena;
  if (!s) return NULL;
  vt_sharding *out = VT_NEW(arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(arena, vt_dim_sharding, (size_t)s->rank + 1);
  vt_axis_ref *axes = VT_NEW_ARRAY(arena, vt_axis_ref, partial->count);
  memcpy(axes, partial->axes, sizeof *axes * partial->count);
  dims[0] = (vt_dim_sharding){partial->count, axes, true, -1};
  if (s->rank) memcpy(dims + 1, s->dims, sizeof *dims * (size_t)s->rank);
  *out = (vt_sharding){
      .kind = VT_SHARDING_MESH, .mesh = partial->mesh, .rank = s->rank + 1, .dims = dims};
  return out;
}

// Undeclared partials: each device holds its own.
static void set_partials(vt_tiling *tiling, const vt_partial *partial, int32_t device_count,
                         vt_arena *arena) {
  int32_t *partials = VT_NEW_ARRAY(arena, int32_t, device_count);
  for (int32_t d = 0; d < device_count; d++)
    for (uint32_t i = 0; i < partial->count; i++)
      partials[d] = (int32_t)(partials[d] * partial->axes[i].size +
                              vt_mesh_coordinate(partial->mesh, vt_mesh_place(partial->mesh, d),
                                                 partial->axes[i], NULL));
  tiling->partials = vt_partial_size(partial);
  tiling->partial_of_device = partials;
}

static const vt_mesh *mesh_within(const vt_func *func) {
  const vt_mesh *mesh = NULL;
  for (const vt_op *op = func->first; op && !mesh; op = op->next) {
    if (op->code == VT_OP_MANUAL_COMPUTATION) mesh = vt_manual_mesh(op);
    for (uint32_t r = 0; r < op->region_count && !mesh; r++) mesh = mesh_within(op->regions[r]);
  }
  return mesh;
}

// The axes unused by a parameter's sharding, along which devices may hold their own values.
static vt_partial open_partial(const vt_module *module, uint32_t param) {
  const vt_io_info *info = module->main->param_info;
  const vt_sharding *s = info ? info[param].sharding : NULL;
  const vt_mesh *mesh = s && s->mesh->axis_count  ? s->mesh
                        : module->mesh_count == 1 ? module->meshes[0]
                                                  : mesh_within(module->main);
  vt_partial partial = {.mesh = mesh, .meaning = VT_MEANS_FIRST};
  for (uint32_t a = 0; mesh && a < mesh->axis_count; a++) {
    bool used = false;
    for (int32_t d = 0; s && d < s->rank; d++)
      for (uint32_t i = 0; i < s->dims[d].axis_count; i++) used |= s->dims[d].axes[i].axis == a;
    if (!used) vt_partial_add(&partial, mesh, (vt_axis_ref){a, 1, mesh->axes[a].size});
  }
  return partial;
}

bool vt_spmd_own_partials(const vt_module *module, uint32_t param, int32_t device_count,
                          vt_arena *arena, vt_tiling *tiling) {
  vt_partial partial = open_partial(module, param);
  if (!partial.count || tiling->partials > 1 || vt_mesh_size(partial.mesh) != device_count)
    return false;
  set_partials(tiling, &partial, device_count, arena);
  return true;
}

static vt_status expand_params(vt_spreader *s, const vt_tiling *tilings) {
  vt_func *main = s->module->main;
  s->func = main;
  s->before = main->first;
  for (uint32_t i = 0; i < main->param_count; i++) {
    vt_value *param = main->params[i];
    if (tilings[i].partials <= 1) continue;
    const vt_sharding *sharding = main->param_info ? main->param_info[i].sharding : NULL;
    vt_partial partial = vt_partial_of(sharding);
    if (!partial.count) partial = open_partial(s->module, i);
    VT_TRY(check_partial(&partial, &tilings[i]));
    vt_type type = extended(s->module, &partial, param->type, false);
    param->type = counted(s->module, tilings[i].partials, param->type);
    vt_value *partials = vt_build_reshape(s, param, type);
    param->replaced_by = vt_join_value(s, partials, &partial, sharding);
    if (sharding) main->param_info[i].sharding = counted_sharding(s->module, &partial, sharding);
  }
  return VT_OK;
}

static vt_status expand_returns(vt_spreader *s, int32_t device_count, vt_arena *arena,
                                vt_tiling *tilings) {
  vt_func *main = s->module->main;
  s->func = main;
  s->before = NULL;
  for (uint32_t i = 0; i < main->return_count; i++) {
    vt_value *value = main->returns[i];
    const vt_sharding *sharding = main->return_info ? main->return_info[i].sharding : NULL;
    vt_partial partial = vt_value_partial(s, value);
    if (tilings[i].partials > 1) {
      partial = vt_partial_of(sharding);
    } else {
      bool own = partial.count && partial.meaning == VT_MEANS_FIRST &&
                 !vt_is_cut_along(sharding, &partial);
      if (!own || vt_mesh_size(partial.mesh) != device_count) continue;
      set_partials(&tilings[i], &partial, device_count, arena);
    }
    VT_TRY(check_partial(&partial, &tilings[i]));
    vt_type type = counted(s->module, tilings[i].partials, value->type);
    main->returns[i] = vt_build_reshape(s, vt_spread_value(s, value, &partial), type);
    if (sharding) main->return_info[i].sharding = counted_sharding(s->module, &partial, sharding);
  }
  return VT_OK;
}

vt_status vt_spmd_expand_partials(vt_module *module, int32_t device_count, vt_arena *arena,
                                  vt_tiling *params, vt_tiling *results) {
  vt_arena scratch = {0};
  vt_status st = VT_OK;
  if (device_count == 1 || !has_partials(module, params, results, &scratch)) goto out;
  vt_spreader s = {.module = module, .arena = &scratch};
  vt_op *first = module->main->first;
  st = expand_params(&s, params);
  if (!st) st = walk_func(&s, module->main, first);
  if (!st) st = expand_returns(&s, device_count, arena, results);
  forget_replacements(module->main);
  vt_map_free(&s.stands_for);
  vt_map_free(&s.spreads);
out:
  vt_arena_free(&scratch);
  return st;
}
