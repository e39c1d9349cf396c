// SPDX-License-Identifier: Apache-2.0
// replicas.c - turns a program of several replicas, or of partitions with their own arrays, into
// one manual computation over all devices.
//
// Devices form a grid: device = replica * partitions + partition. Replicas run the same function on
// their own arrays: a manual computation along the replica axis, whose operands and results are
// unreduced along it, so that every replica holds its partial and nothing is ever reduced. What the
// program says about its partitions keeps its meaning within each replica: its meshes get a leading
// replica axis. Ids of replicas, partitions and groups stay as they are: the evaluator knows the
// grid.
#include <string.h>

#include "base/check.h"
#include "spmd/spmd.h"

// A name that no program uses for its axes.
static const char replica_axis[] = "vtpu.replica", partition_axis[] = "vtpu.partition";
static const char line_mesh[] = "vtpu.grid"; // nor a mesh

typedef struct grid {
  vt_module *module;
  int32_t replicas, partitions;
  const vt_mesh *mesh;   // for values that name none
  vt_map meshes, walked; // a mesh and its grid; functions seen outside manual computations
} grid;

static vt_status refuse(const vt_op *op) {
  vt_arena scratch = {0};
  vt_status st = vt_error(VT_UNIMPLEMENTED, "%s: between partitions, outside of a manual region",
                          vt_op_describe(op, &scratch));
  vt_arena_free(&scratch);
  return st;
}

// A collective between partitions needs a value per partition, which a program on whole arrays has
// only in manual computations.
static vt_status check_collectives(grid *g, const vt_func *func) {
  void **seen = vt_map_at_ptr(&g->walked, func);
  if (*seen) return VT_OK;
  *seen = (void *)(uintptr_t)func;
  for (const vt_op *op = func->first; op; op = op->next) {
    if (op->code == VT_OP_MANUAL_COMPUTATION) continue;
    if (vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE &&
        vt_attr_i64_or(op, VT_ATTR_CHANNEL_ID, 0) > 0)
      return refuse(op);
    for (uint32_t r = 0; r < op->region_count; r++) VT_TRY(check_collectives(g, op->regions[r]));
    if (vt_op_callee(op)) VT_TRY(check_collectives(g, vt_op_callee(op)));
  }
  return VT_OK;
}

// The mesh of one replica's partitions, once for each replica. A mesh without axes, or of another
// size, is left as it is.
static const vt_mesh *grid_mesh(grid *g, const vt_mesh *mesh) {
  if (!mesh->axis_count || vt_mesh_size(mesh) != g->partitions) return mesh;
  void **place = vt_map_at_ptr(&g->meshes, mesh);
  if (*place) return *place;
  vt_arena *arena = &g->module->arena;
  vt_mesh *out = VT_NEW(arena, vt_mesh);
  vt_mesh_axis *axes = VT_NEW_ARRAY(arena, vt_mesh_axis, mesh->axis_count + 1);
  axes[0] = (vt_mesh_axis){replica_axis, g->replicas};
  memcpy(axes + 1, mesh->axes, mesh->axis_count * sizeof *axes);
  *out = (vt_mesh){.name = mesh->name, .axis_count = mesh->axis_count + 1, .axes = axes};
  if (mesh->device_count) {
    int64_t *ids = VT_NEW_ARRAY(arena, int64_t, (size_t)g->replicas * mesh->device_count);
    out->device_count = (uint32_t)g->replicas * mesh->device_count;
    for (uint32_t i = 0; i < out->device_count; i++)
      ids[i] = (int64_t)(i / mesh->device_count) * g->partitions +
               mesh->device_ids[i % mesh->device_count];
    out->device_ids = ids;
  }
  *place = out;
  return out;
}

// `count` references, shifted by one axis; `own` prepends one to the replica axis.
static const vt_axis_ref *shift(grid *g, bool own, uint32_t count, const vt_axis_ref *refs) {
  vt_assert(g->replicas > 1);
  vt_axis_ref *out = VT_NEW_ARRAY(&g->module->arena, vt_axis_ref, count + 1);
  if (own) out[0] = (vt_axis_ref){0, 1, g->replicas};
  for (uint32_t i = 0; i < count; i++) {
    out[own + i] = refs[i];
    out[own + i].axis++;
  }
  return out;
}

static const vt_sharding *grid_sharding(grid *g, const vt_sharding *s, bool own) {
  const vt_mesh *mesh = s ? grid_mesh(g, s->mesh) : NULL;
  if (!s || mesh == s->mesh) return s;
  vt_sharding *out = VT_NEW(&g->module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&g->module->arena, vt_dim_sharding, (size_t)s->rank + 1);
  for (int32_t d = 0; d < s->rank; d++) {
    dims[d] = s->dims[d];
    dims[d].axes = shift(g, false, dims[d].axis_count, dims[d].axes);
  }
  *out = *s;
  out->mesh = mesh;
  out->dims = dims;
  out->replicated = shift(g, false, s->replicated_count, s->replicated);
  out->unreduced = shift(g, own, s->unreduced_count, s->unreduced);
  out->unreduced_count += own;
  return out;
}

// A replica's sharding of a value of main, plus one value per replica. An unannotated value is
// whole; propagation may still shard a result.
static vt_status partial_each(grid *g, const vt_sharding *s, vt_type type, bool closed,
                              const vt_sharding **out) {
  bool own = type.dtype != VT_TOKEN;
  if (s && vt_sharding_is_maximal(s) && g->partitions > 1)
    return vt_error(VT_UNIMPLEMENTED, "a value on one device, in a program of %d replicas",
                    g->replicas);
  if (s && grid_mesh(g, s->mesh) != s->mesh) {
    *out = grid_sharding(g, s, own);
    return VT_OK;
  }
  vt_sharding *whole = VT_NEW(&g->module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&g->module->arena, vt_dim_sharding, (size_t)type.rank + 1);
  for (int32_t d = 0; d < type.rank; d++) dims[d] = (vt_dim_sharding){0, NULL, closed, -1};
  *whole = (vt_sharding){.kind = VT_SHARDING_MESH,
                         .mesh = g->mesh,
                         .rank = type.rank,
                         .dims = dims,
                         .unreduced_count = own,
                         .unreduced = shift(g, own, 0, NULL)};
  *out = whole;
  return VT_OK;
}

static void shift_func(grid *g, vt_func *func) {
  for (uint32_t i = 0; func->param_info && i < func->param_count; i++)
    func->param_info[i].sharding = grid_sharding(g, func->param_info[i].sharding, false);
  for (uint32_t i = 0; func->return_info && i < func->return_count; i++)
    func->return_info[i].sharding = grid_sharding(g, func->return_info[i].sharding, false);
  for (vt_op *op = func->first; op; op = op->next) {
    for (uint32_t a = 0; a < op->attr_count; a++) {
      vt_attr *attr = &op->attrs[a];
      if (vt_attr_kind_of(attr->key) != VT_ATTR_KIND_SHARDINGS) continue;
      const vt_sharding **list =
          VT_NEW_ARRAY(&g->module->arena, const vt_sharding *, attr->count + 1);
      for (uint32_t i = 0; i < attr->count; i++)
        list[i] = grid_sharding(g, attr->shardings[i], false);
      attr->shardings = list;
    }
    for (uint32_t r = 0; r < op->region_count; r++) shift_func(g, op->regions[r]);
  }
}

// The first mesh of the program that has all partitions, or a line of them.
static void choose_mesh(grid *g) {
  vt_module *module = g->module;
  for (uint32_t i = 0; i < module->mesh_count && !g->mesh; i++)
    if (grid_mesh(g, module->meshes[i]) != module->meshes[i])
      g->mesh = grid_mesh(g, module->meshes[i]);
  if (g->mesh) return;
  vt_mesh *mesh = VT_NEW(&module->arena, vt_mesh);
  vt_mesh_axis *axes = VT_NEW_ARRAY(&module->arena, vt_mesh_axis, 2);
  *mesh = (vt_mesh){.name = line_mesh, .axes = axes};
  axes[mesh->axis_count++] = (vt_mesh_axis){replica_axis, g->replicas};
  if (g->partitions > 1) axes[mesh->axis_count++] = (vt_mesh_axis){partition_axis, g->partitions};
  g->mesh = mesh;
}

static vt_status build(grid *g) {
  vt_assert(g->mesh && vt_mesh_size(g->mesh) == (int64_t)g->replicas * g->partitions);
  vt_module *module = g->module;
  vt_arena *arena = &module->arena;
  vt_func *main = module->main;
  if (!main->param_info) main->param_info = VT_NEW_ARRAY(arena, vt_io_info, main->param_count + 1);
  if (!main->return_info)
    main->return_info = VT_NEW_ARRAY(arena, vt_io_info, main->return_count + 1);
  const vt_sharding **in = VT_NEW_ARRAY(arena, const vt_sharding *, main->param_count + 1),
                    **out = VT_NEW_ARRAY(arena, const vt_sharding *, main->return_count + 1);
  vt_type *types = VT_NEW_ARRAY(arena, vt_type, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++)
    VT_TRY(partial_each(g, main->param_info[i].sharding, main->params[i]->type, true, &in[i]));
  for (uint32_t i = 0; i < main->return_count; i++) {
    types[i] = main->returns[i]->type;
    VT_TRY(partial_each(g, main->return_info[i].sharding, types[i], false, &out[i]));
  }
  for (uint32_t i = 0; i < module->func_count; i++) shift_func(g, module->funcs[i]);
  vt_func *body = vt_func_clone(module, main);
  main->first = main->last = NULL; // the clone has them
  main->numbered = false;
  vt_op *manual = vt_op_create(main, VT_OP_MANUAL_COMPUTATION, &vt_loc_unknown, main->param_count,
                               main->params, main->return_count, types, 1);
  manual->regions[0] = body;
  vt_op_append(main, manual);
  vt_value **returns = VT_NEW_ARRAY(arena, vt_value *, main->return_count + 1);
  for (uint32_t i = 0; i < main->param_count; i++) main->param_info[i].sharding = in[i];
  for (uint32_t i = 0; i < main->return_count; i++) {
    main->return_info[i].sharding = out[i];
    returns[i] = &manual->results[i];
  }
  vt_func_set_returns(main, main->return_count, returns);
  vt_string *axes = VT_NEW(arena, vt_string);
  *axes = (vt_string){replica_axis, sizeof replica_axis - 1};
  vt_op_set_attr(
      manual, (vt_attr){.key = VT_ATTR_IN_SHARDINGS, .count = main->param_count, .shardings = in});
  vt_op_set_attr(
      manual,
      (vt_attr){.key = VT_ATTR_OUT_SHARDINGS, .count = main->return_count, .shardings = out});
  vt_op_set_attr(manual, (vt_attr){.key = VT_ATTR_MANUAL_AXES, .count = 1, .strings = axes});
  const vt_mesh **meshes = VT_NEW_ARRAY(arena, const vt_mesh *, module->mesh_count + 1);
  uint32_t own = g->mesh->name == line_mesh; // otherwise it is one of the program's
  if (own) meshes[0] = g->mesh;
  for (uint32_t i = 0; i < module->mesh_count; i++)
    meshes[own + i] = grid_mesh(g, module->meshes[i]);
  module->meshes = meshes;
  module->mesh_count += own;
  return vt_module_verify(module);
}

vt_status vt_spmd_from_replicas(vt_module *module, bool own_arrays) {
  grid g = {
      .module = module, .replicas = module->num_replicas, .partitions = module->num_partitions};
  if (own_arrays) { // then partitions are like replicas, except for their ids
    g.replicas *= g.partitions;
    g.partitions = 1;
  }
  if (g.replicas <= 1) return VT_OK;
  choose_mesh(&g);
  vt_status st = g.partitions > 1 ? check_collectives(&g, module->main) : VT_OK;
  if (!st) st = build(&g);
  vt_map_free(&g.meshes);
  vt_map_free(&g.walked);
  return st;
}
