// SPDX-License-Identifier: Apache-2.0
// lower_sharding.c - meshes and shardings of Shardy, checked, with axes by number.
#include <inttypes.h>
#include <string.h>

#include "import/lower.h"

enum { MAX_DEVICES = 1 << 20 };

static vt_status bad(vt_lower *lo, const vt_raw_op *op, const char *what) {
  return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "sharding: %s", what);
}

// Device ids of a mesh: none, or each position once; a mesh without axes names one device.
static vt_status check_device_ids(vt_lower *lo, const vt_raw_op *op, int64_t devices, uint32_t axes,
                                  int64_t count, const int64_t *ids) {
  if (!count) return VT_OK;
  if (!axes)
    return count == 1 && ids[0] >= 0 && ids[0] < MAX_DEVICES ? VT_OK
                                                             : bad(lo, op, "mesh of one device");
  if (count != devices) return bad(lo, op, "the device ids do not fit the mesh");
  uint8_t *seen = VT_NEW_ARRAY(lo->arena, uint8_t, devices);
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < 0 || ids[i] >= devices || seen[ids[i]])
      return bad(lo, op, "device ids are not a permutation");
    seen[ids[i]] = 1;
  }
  return VT_OK;
}

vt_status vt_lower_mesh(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                        const char *name, const vt_mesh **out_mesh) {
  vt_arena *arena = &lo->module->arena;
  if (attr->kind != VT_RAW_MESH || attr->count > VT_MAX_MESH_AXES)
    return bad(lo, op, "a mesh was expected");
  vt_mesh *mesh = VT_NEW(arena, vt_mesh);
  vt_mesh_axis *axes = VT_NEW_ARRAY(arena, vt_mesh_axis, attr->count);
  int64_t devices = 1;
  for (uint32_t i = 0; i < attr->count; i++) {
    const vt_raw_attr *axis = attr->items[i];
    if (axis->kind != VT_RAW_AXIS || axis->i64 < 1 || axis->i64 > MAX_DEVICES)
      return bad(lo, op, "mesh axis");
    devices *= axis->i64;
    if (devices > MAX_DEVICES) return bad(lo, op, "the mesh has too many devices");
    axes[i] = (vt_mesh_axis){vt_lower_text(lo, axis->string), axis->i64};
    for (uint32_t k = 0; k < i; k++)
      if (!strcmp(axes[k].name, axes[i].name)) return bad(lo, op, "a mesh axis occurs twice");
  }
  VT_TRY(check_device_ids(lo, op, devices, attr->count, attr->i64, attr->ints));
  int64_t *ids = VT_NEW_ARRAY(arena, int64_t, attr->i64);
  bool identity = attr->count > 0;
  for (int64_t i = 0; i < attr->i64; i++) {
    ids[i] = attr->ints[i];
    identity = identity && ids[i] == i;
  }
  *mesh = (vt_mesh){name, attr->count, axes, identity ? 0 : (uint32_t)attr->i64, ids};
  *out_mesh = mesh;
  return VT_OK;
}

static vt_status find_mesh(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                           const vt_mesh **out_mesh) {
  if (attr->kind == VT_RAW_MESH) return vt_lower_mesh(lo, op, attr, "", out_mesh);
  *out_mesh = attr->kind == VT_RAW_STRING
                  ? vt_map_find(&lo->meshes, attr->string.data, attr->string.size)
                  : NULL;
  if (*out_mesh) return VT_OK;
  return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "sharding: there is no mesh '%.*s'",
                        attr->kind == VT_RAW_STRING ? (int)attr->string.size : 1,
                        attr->kind == VT_RAW_STRING ? attr->string.data : "?");
}

// The parts of each axis that a sharding has used: they may not overlap.
typedef struct used_axes {
  uint32_t count;
  vt_axis_ref refs[4 * VT_MAX_MESH_AXES];
} used_axes;

static vt_status lower_axis(vt_lower *lo, const vt_raw_op *op, const vt_mesh *mesh,
                            const vt_raw_attr *attr, used_axes *used, vt_axis_ref *out) {
  if (attr->kind != VT_RAW_AXIS_REF) return bad(lo, op, "an axis was expected");
  uint32_t a = 0;
  while (a < mesh->axis_count && !vt_string_is(attr->string, mesh->axes[a].name)) a++;
  if (a == mesh->axis_count)
    return vt_lower_error(lo, op, VT_INVALID_ARGUMENT, "sharding: mesh '%s' has no axis '%.*s'",
                          mesh->name, (int)attr->string.size, attr->string.data);
  int64_t full = mesh->axes[a].size, pre = attr->count ? attr->ints[0] : 1,
          size = attr->count ? attr->ints[1] : full;
  *out = (vt_axis_ref){a, pre, size};
  if (!vt_axis_fits(mesh, *out)) return bad(lo, op, "sub-axis");
  for (uint32_t i = 0; i < used->count; i++)
    if (vt_axes_overlap(used->refs[i], *out)) return bad(lo, op, "an axis is used twice");
  if (used->count == sizeof used->refs / sizeof *used->refs) return bad(lo, op, "too many axes");
  used->refs[used->count++] = *out;
  return VT_OK;
}

static vt_status lower_axes(vt_lower *lo, const vt_raw_op *op, const vt_mesh *mesh,
                            const vt_raw_attr *list, used_axes *used, uint32_t *out_count,
                            const vt_axis_ref **out_axes) {
  bool is_list = list->kind == VT_RAW_ARRAY || list->kind == VT_RAW_DIM_SHARDING;
  if (!is_list || list->count > VT_MAX_MESH_AXES * 4)
    return bad(lo, op, "a list of axes was expected");
  vt_axis_ref *axes = VT_NEW_ARRAY(&lo->module->arena, vt_axis_ref, list->count);
  for (uint32_t i = 0; i < list->count; i++)
    VT_TRY(lower_axis(lo, op, mesh, list->items[i], used, &axes[i]));
  *out_count = list->count;
  *out_axes = axes;
  return VT_OK;
}

vt_status vt_lower_sharding(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                            const vt_sharding **out_sharding) {
  *out_sharding = attr->sharding;
  if (attr->sharding) return VT_OK;
  if (attr->kind != VT_RAW_SHARDING) return bad(lo, op, "a sharding was expected");
  const vt_raw_attr *dims = attr->items[1];
  if (dims->count > VT_MAX_RANK) return bad(lo, op, "too many dimensions");
  vt_arena *arena = &lo->module->arena;
  vt_sharding *sharding = VT_NEW(arena, vt_sharding);
  used_axes used = {.count = 0};
  vt_dim_sharding *out = VT_NEW_ARRAY(arena, vt_dim_sharding, dims->count);
  *sharding = (vt_sharding){.kind = VT_SHARDING_MESH,
                            .rank = (int32_t)dims->count,
                            .dims = out,
                            .reduction = (int32_t)attr->i64};
  VT_TRY(find_mesh(lo, op, attr->items[0], &sharding->mesh));
  for (uint32_t i = 0; i < dims->count; i++) {
    const vt_raw_attr *dim = dims->items[i];
    if (dim->kind != VT_RAW_DIM_SHARDING) return bad(lo, op, "a dimension's sharding was expected");
    VT_TRY(lower_axes(lo, op, sharding->mesh, dim, &used, &out[i].axis_count, &out[i].axes));
    out[i].closed = dim->ints[0] != 0;
    out[i].priority = dim->ints[1];
  }
  VT_TRY(lower_axes(lo, op, sharding->mesh, attr->items[2], &used, &sharding->replicated_count,
                    &sharding->replicated));
  VT_TRY(lower_axes(lo, op, sharding->mesh, attr->items[3], &used, &sharding->unreduced_count,
                    &sharding->unreduced));
  ((vt_raw_attr *)(uintptr_t)attr)->sharding = *out_sharding = sharding;
  return VT_OK;
}

vt_status vt_lower_shardings(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                             vt_attr *out_attr) {
  bool one = attr->kind == VT_RAW_SHARDING;
  if (!one && attr->kind != VT_RAW_ARRAY) return bad(lo, op, "a list of shardings was expected");
  uint32_t count = one ? 1 : attr->count;
  const vt_sharding **list = VT_NEW_ARRAY(&lo->module->arena, const vt_sharding *, count);
  for (uint32_t i = 0; i < count; i++)
    VT_TRY(vt_lower_sharding(lo, op, one ? attr : attr->items[i], &list[i]));
  out_attr->count = count;
  out_attr->shardings = list;
  return VT_OK;
}

// Each axes of each mesh once: there may be many devices, and as many collectives.
static vt_status mesh_groups(vt_lower *lo, const vt_raw_op *op, const vt_mesh *mesh, uint32_t count,
                             const vt_axis_ref *axes, const vt_literal **out_groups) {
  vt_arena *arena = &lo->module->arena;
  size_t size = (1 + 3 * (size_t)count) * sizeof(int64_t);
  int64_t *key = vt_arena_push(lo->arena, size), width;
  key[0] = (int64_t)(intptr_t)mesh;
  for (uint32_t a = 0; a < count; a++)
    memcpy(key + 1 + 3 * a, (int64_t[]){axes[a].axis, axes[a].pre_size, axes[a].size},
           3 * sizeof *key);
  void **known = vt_map_at(&lo->groups, key, size);
  if (!*known) {
    int64_t devices = vt_mesh_size(mesh);
    lo->budget -= devices;
    if (lo->budget < 0)
      return vt_lower_error(lo, op, VT_RESOURCE_EXHAUSTED, "too many devices in replica_groups");
    int64_t *ids = VT_NEW_ARRAY(arena, int64_t, devices);
    vt_literal *groups = VT_NEW(arena, vt_literal);
    vt_mesh_groups(mesh, count, axes, ids, &width);
    groups->type = vt_type_make(arena, VT_S64, 2, (int64_t[]){devices / width, width});
    groups->data = ids;
    *known = groups;
  }
  *out_groups = *known;
  return VT_OK;
}

vt_status vt_lower_mesh_groups(vt_lower *lo, const vt_raw_op *op, const vt_raw_attr *attr,
                               vt_attr *out_attr) {
  used_axes used = {.count = 0};
  const vt_mesh *mesh;
  const vt_axis_ref *axes;
  uint32_t count;
  VT_TRY(find_mesh(lo, op, attr->items[0], &mesh));
  VT_TRY(lower_axes(lo, op, mesh, attr->items[1], &used, &count, &axes));
  *out_attr = (vt_attr){.key = VT_ATTR_REPLICA_GROUPS, .count = 1};
  return mesh_groups(lo, op, mesh, count, axes, &out_attr->literal);
}
