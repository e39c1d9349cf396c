// SPDX-License-Identifier: Apache-2.0
// replicas.c - a program of several replicas becomes one of several partitions.
//
// Replicas run the same function on arguments of their own. That is a manual computation along one
// axis whose operands and results are unreduced along it: every device holds its version and
// nothing is ever added up. Ids of replicas become ids of partitions; with one partition per
// replica both are positions in the device assignment.
#include <string.h>

#include "spmd/spmd.h"

static vt_status refuse(const vt_op *op) {
  vt_arena scratch = {0};
  vt_status st = vt_error(VT_UNIMPLEMENTED, "%s: between the partitions of one replica",
                          vt_op_describe(op, &scratch));
  vt_arena_free(&scratch);
  return st;
}

// cross-replica-sum has no computation of its own.
static void sum_by_all_reduce(vt_op *op) {
  vt_module *module = op->func->module;
  vt_type type = op->results[0].type, scalar = {type.dtype, 0, NULL};
  vt_op *sum = vt_op_create(op->func, VT_OP_ALL_REDUCE, op->loc, 1, op->operands, 1, &type, 1);
  vt_func *body = sum->regions[0] = vt_func_create(module, "");
  for (int i = 0; i < 2; i++) vt_func_add_param(body, scalar);
  vt_value *result = vt_build(body, NULL, VT_OP_ADD, op->loc, scalar, 2, body->params);
  vt_func_set_returns(body, 1, &result);
  const vt_attr *groups = vt_op_attr(op, VT_ATTR_REPLICA_GROUPS);
  if (groups) vt_op_set_attr(sum, *groups);
  vt_op_set_i64(sum, VT_ATTR_CHANNEL_ID, 1);
  vt_op_set_i64(sum, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
  vt_op_insert(op, sum);
  vt_value_replace(&op->results[0], &sum->results[0]);
  vt_op_remove(op);
}

// The only partition of its replica.
static void partition_zero(vt_op *op) {
  static const uint32_t zero = 0;
  vt_literal *literal = VT_NEW(&op->func->module->arena, vt_literal);
  *literal = (vt_literal){op->results[0].type, &zero, false};
  vt_value_replace(&op->results[0], vt_build_constant(op->func, op, op->loc, literal));
  vt_op_remove(op);
}

static vt_status renumber_op(vt_op *op) {
  switch ((int)op->code) {
  case VT_OP_REPLICA_ID:
    op->code = VT_OP_PARTITION_ID;
    return VT_OK;
  case VT_OP_PARTITION_ID:
    partition_zero(op);
    return VT_OK;
  case VT_OP_CROSS_REPLICA_SUM:
    sum_by_all_reduce(op);
    return VT_OK;
  case VT_OP_ALL_TO_ALL:
  case VT_OP_COLLECTIVE_PERMUTE:
  case VT_OP_COLLECTIVE_BROADCAST:
    if (vt_attr_i64_or(op, VT_ATTR_CHANNEL_ID, 0) > 0) return refuse(op);
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
    return VT_OK;
  default:
    if (!(vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE)) return VT_OK;
    vt_op_set_i64(op, VT_ATTR_CHANNEL_ID, 1);
    vt_op_set_i64(op, VT_ATTR_USE_GLOBAL_DEVICE_IDS, 1);
    return VT_OK;
  }
}

static vt_status renumber(vt_func *func) {
  for (vt_op *op = func->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t r = 0; r < op->region_count; r++) VT_TRY(renumber(op->regions[r]));
    VT_TRY(renumber_op(op));
  }
  return VT_OK;
}

// Every device has its own version of the whole array.
static const vt_sharding *version_each(vt_module *module, const vt_mesh *mesh, vt_type type) {
  vt_sharding *s = VT_NEW(&module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&module->arena, vt_dim_sharding, (size_t)type.rank + 1);
  vt_axis_ref *axis = VT_NEW(&module->arena, vt_axis_ref);
  for (int32_t d = 0; d < type.rank; d++) dims[d] = (vt_dim_sharding){0, NULL, true, -1};
  *axis = (vt_axis_ref){0, 1, mesh->axes[0].size};
  *s = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = mesh, .rank = type.rank, .dims = dims};
  if (type.dtype == VT_TOKEN) return s;
  s->unreduced_count = 1;
  s->unreduced = axis;
  return s;
}

static const vt_mesh *line_of(vt_module *module, int32_t replicas) {
  vt_mesh *mesh = VT_NEW(&module->arena, vt_mesh);
  vt_mesh_axis *axis = VT_NEW(&module->arena, vt_mesh_axis);
  *axis = (vt_mesh_axis){"replica", replicas};
  *mesh = (vt_mesh){.name = "replicas", .axis_count = 1, .axes = axis};
  return mesh;
}

vt_status vt_spmd_from_replicas(vt_module *module) {
  int32_t replicas = module->num_replicas;
  if (replicas <= 1) return VT_OK;
  if (module->num_partitions > 1)
    return vt_error(VT_UNIMPLEMENTED, "a program of %d replicas of %d partitions", replicas,
                    module->num_partitions);
  for (uint32_t i = 0; i < module->func_count; i++) VT_TRY(renumber(module->funcs[i]));
  vt_arena *arena = &module->arena;
  vt_func *main = module->main, *body = vt_func_clone(module, main);
  const vt_mesh *mesh = line_of(module, replicas);
  vt_type *types = VT_NEW_ARRAY(arena, vt_type, main->return_count + 1);
  for (uint32_t i = 0; i < main->return_count; i++) types[i] = main->returns[i]->type;
  main->first = main->last = NULL; // the clone has them
  vt_op *manual = vt_op_create(main, VT_OP_MANUAL_COMPUTATION, &vt_loc_unknown, main->param_count,
                               main->params, main->return_count, types, 1);
  manual->regions[0] = body;
  vt_op_append(main, manual);
  if (!main->param_info) main->param_info = VT_NEW_ARRAY(arena, vt_io_info, main->param_count + 1);
  if (!main->return_info)
    main->return_info = VT_NEW_ARRAY(arena, vt_io_info, main->return_count + 1);
  const vt_sharding **in = VT_NEW_ARRAY(arena, const vt_sharding *, main->param_count + 1),
                    **out = VT_NEW_ARRAY(arena, const vt_sharding *, main->return_count + 1);
  vt_value **returns = VT_NEW_ARRAY(arena, vt_value *, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++)
    main->param_info[i].sharding = in[i] = version_each(module, mesh, main->params[i]->type);
  for (uint32_t i = 0; i < main->return_count; i++) {
    main->return_info[i].sharding = out[i] = version_each(module, mesh, types[i]);
    returns[i] = &manual->results[i];
  }
  vt_func_set_returns(main, main->return_count, returns);
  vt_string *axes = VT_NEW(arena, vt_string);
  *axes = (vt_string){mesh->axes[0].name, strlen(mesh->axes[0].name)};
  vt_op_set_attr(
      manual, (vt_attr){.key = VT_ATTR_IN_SHARDINGS, .count = main->param_count, .shardings = in});
  vt_op_set_attr(
      manual,
      (vt_attr){.key = VT_ATTR_OUT_SHARDINGS, .count = main->return_count, .shardings = out});
  vt_op_set_attr(manual, (vt_attr){.key = VT_ATTR_MANUAL_AXES, .count = 1, .strings = axes});
  module->num_partitions = replicas;
  module->num_replicas = 1;
  return vt_module_verify(module);
}
