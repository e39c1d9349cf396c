// SPDX-License-Identifier: Apache-2.0
// manual.c - manual computations: the body is the program of one device already, along its
// axes. Axes that are not manual are partitioned within the groups of devices that the manual axes
// leave together.
#include <string.h>

#include "base/check.h"
#include "spmd/axes.h"
#include "spmd/partition/partition.h"

static const vt_sharding *sharding_at(const vt_op *op, vt_attr_key key, uint32_t i) {
  const vt_attr *list = vt_op_attr(op, key);
  return list && i < list->count ? list->shardings[i] : NULL;
}

// The sharding of an operand or result of type `type` at the border. What is one tile of the manual
// axes inside is several tiles outside, of the same elements only if all are full: as in XLA, axes
// that would cut a dimension unevenly do not cut it.
static const vt_sharding *at_border(vt_parter *p, const vt_op *op, vt_attr_key key, uint32_t i,
                                    vt_type type) {
  const vt_sharding *s = sharding_at(op, key, i);
  bool even = true;
  if (!s || s->rank != type.rank) return s;
  for (int32_t d = 0; d < s->rank; d++) {
    int64_t size = vt_axes_size((vt_axes){s->dims[d].axis_count, s->dims[d].axes});
    even = even && type.dims[d] % size == 0;
  }
  if (even) return s;
  vt_sharding *out = VT_NEW(&p->module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&p->module->arena, vt_dim_sharding, s->rank);
  for (int32_t d = 0; d < s->rank; d++) {
    vt_axis_list list =
        vt_axes_dividing((vt_axes){s->dims[d].axis_count, s->dims[d].axes}, type.dims[d]);
    vt_axes axes = vt_axes_copy(&p->module->arena, vt_axes_of(&list));
    dims[d] = (vt_dim_sharding){axes.count, axes.refs, true, -1};
  }
  *out = *s;
  out->dims = dims;
  return out;
}

static bool has_axis(const vt_attr *axes, const char *name) {
  for (uint32_t i = 0; i < axes->count; i++)
    if (!strcmp(axes->strings[i].data, name)) return true;
  return false;
}

// Groups of places in the current group that agree along the manual axes of this op, in mesh order.
static const vt_groups *manual_groups(vt_parter *p, const vt_mesh *mesh, const vt_attr *axes) {
  int32_t count = 1;
  for (uint32_t a = 0; a < mesh->axis_count; a++)
    if (has_axis(axes, mesh->axes[a].name)) count *= (int32_t)mesh->axes[a].size;
  int32_t size = p->device_count / count;
  vt_group_lists now = vt_groups_listed(&p->assigns, p->groups);
  vt_arena scratch = {0};
  int32_t *ids = VT_NEW_ARRAY(&scratch, int32_t, p->device_count);
  int32_t *filled = VT_NEW_ARRAY(&scratch, int32_t, count);
  for (int64_t place = 0; place < vt_mesh_size(mesh); place++) {
    int64_t device = mesh->device_count ? mesh->device_ids[place] : place, group = 0;
    if (now.group_of[device]) continue;
    for (uint32_t a = 0; a < mesh->axis_count; a++) {
      vt_axis_ref ref = {a, 1, mesh->axes[a].size};
      if (has_axis(axes, mesh->axes[a].name))
        group = group * ref.size + vt_mesh_coordinate(mesh, place, ref, NULL);
    }
    ids[group * size + filled[group]++] = now.place_of[device];
  }
  const vt_groups *out = vt_groups_make(&p->assigns, count, size, ids);
  vt_arena_free(&scratch);
  return out;
}

// What is different inside: groups of devices, and the axes that are manual.
typedef struct inside {
  const vt_groups *groups;
  uint32_t count;
  const vt_string *axes;
} inside;

static const inside *make_inside(vt_parter *p, const vt_mesh *mesh, const vt_attr *axes) {
  inside *in = VT_NEW(&p->module->arena, inside);
  vt_string *all = VT_NEW_ARRAY(&p->module->arena, vt_string, p->manual_count + axes->count);
  if (p->manual_count) memcpy(all, p->manual, sizeof *all * p->manual_count);
  memcpy(all + p->manual_count, axes->strings, sizeof *all * axes->count);
  *in = (inside){manual_groups(p, mesh, axes), p->manual_count + axes->count, all};
  return in;
}

// Made once for all manual computations over the same axes.
static const inside *inside_of(vt_parter *p, const vt_mesh *mesh, const vt_attr *axes) {
  p->key.size = 0;
  vt_array_push(&p->key, (uintptr_t)p->groups);
  vt_array_push(&p->key, (uintptr_t)p->manual);
  vt_array_push(&p->key, (uintptr_t)mesh);
  for (uint32_t a = 0; a < mesh->axis_count; a++)
    vt_array_push(&p->key, has_axis(axes, mesh->axes[a].name));
  void **place = vt_map_at(&p->manuals, p->key.data, p->key.size * sizeof *p->key.data);
  if (!*place) *place = (void *)(uintptr_t)make_inside(p, mesh, axes);
  return *place;
}

static vt_status walk_body(vt_parter *p, const vt_op *op, const vt_part *outer, vt_value **out) {
  const vt_func *body = op->regions[0];
  for (uint32_t i = 0; i < body->param_count; i++) {
    vt_type type = body->params[i]->type;
    const vt_sharding *s = at_border(p, op, VT_ATTR_IN_SHARDINGS, i, op->operands[i]->type);
    vt_part_record(p, body->params[i],
                   (vt_part){type, outer[i].local, vt_assign_of(p, s, type.rank)});
    vt_part_note(p, body->params[i], s);
  }
  VT_TRY(vt_partition_func(p, body));
  for (uint32_t i = 0; i < body->return_count; i++) {
    const vt_sharding *s = at_border(p, op, VT_ATTR_OUT_SHARDINGS, i, op->results[i].type);
    vt_part part = vt_part_reduced(p, body->returns[i], s);
    out[i] = vt_reshard(p, part, vt_assign_of(p, s, part.global.rank)).local;
  }
  return VT_OK;
}

vt_status vt_partition_manual(vt_parter *p, const vt_op *op) {
  const vt_attr *axes = vt_op_attr(op, VT_ATTR_MANUAL_AXES);
  const vt_mesh *mesh = vt_manual_mesh(op);
  vt_arena scratch = {0};
  vt_part *outer = VT_NEW_ARRAY(&scratch, vt_part, op->operand_count + 1);
  vt_value **results = VT_NEW_ARRAY(&scratch, vt_value *, op->result_count + 1);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    const vt_sharding *s = at_border(p, op, VT_ATTR_IN_SHARDINGS, i, op->operands[i]->type);
    outer[i] = vt_part_reduced(p, op->operands[i], s);
    outer[i] = vt_reshard(p, outer[i], vt_assign_of(p, s, outer[i].global.rank));
  }
  vt_status st;
  if (mesh && axes && axes->count) {
    const vt_string *manual = p->manual;
    uint32_t manual_count = p->manual_count;
    const inside *in = inside_of(p, mesh, axes);
    const vt_groups *before = vt_enter(p, in->groups);
    p->manual = in->axes;
    p->manual_count = in->count;
    st = walk_body(p, op, outer, results);
    p->manual = manual;
    p->manual_count = manual_count;
    vt_leave(p, before);
  } else {
    st = walk_body(p, op, outer, results);
  }
  for (uint32_t i = 0; i < op->result_count && !st; i++) {
    vt_type type = op->results[i].type;
    const vt_sharding *s = at_border(p, op, VT_ATTR_OUT_SHARDINGS, i, type);
    vt_part_distrust(p, results[i]);
    vt_part_record(p, &op->results[i], (vt_part){type, results[i], vt_assign_of(p, s, type.rank)});
    vt_part_note(p, &op->results[i], s);
  }
  vt_arena_free(&scratch);
  return st;
}

// A collective of a manual computation, along its axes: it stays. Of the other axes, none may cut a
// dimension whose elements it moves.
vt_status vt_partition_collective(vt_parter *p, const vt_op *op) {
  static const vt_attr_key keys[] = {VT_ATTR_ALL_GATHER_DIM, VT_ATTR_SCATTER_DIMENSION,
                                     VT_ATTR_SPLIT_DIMENSION, VT_ATTR_CONCAT_DIMENSION};
  uint32_t moved = 0;
  if (op->operand_count != op->result_count) return vt_partition_whole(p, op);
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    if (vt_op_attr(op, keys[k])) moved |= 1u << vt_attr_i64(op, keys[k]);
  vt_arena scratch = {0};
  vt_value **operands = VT_NEW_ARRAY(&scratch, vt_value *, op->operand_count + 1);
  vt_type *types = VT_NEW_ARRAY(&scratch, vt_type, op->operand_count + 1);
  const vt_assign **at = VT_NEW_ARRAY(&scratch, const vt_assign *, op->operand_count + 1);
  for (uint32_t i = 0; i < op->operand_count; i++) {
    at[i] = vt_assign_replicate(&p->assigns, vt_part_wanted(p, op, i), moved);
    operands[i] = vt_reshard(p, vt_part_of(p, op->operands[i]), at[i]).local;
    types[i] = vt_local_type(p, op->results[i].type, at[i]);
  }
  vt_op *copy = vt_emit_copies(p, op, types, op->operand_count, operands);
  for (uint32_t i = 0; i < op->result_count; i++)
    vt_part_set(p, &op->results[i], (vt_part){op->results[i].type, &copy->results[i], at[i]});
  vt_arena_free(&scratch);
  return VT_OK;
}
