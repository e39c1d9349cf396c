// SPDX-License-Identifier: Apache-2.0
// mesh.c - devices on a mesh: sizes, positions, coordinates along axes and sub-axes.
#include "base/check.h"
#include "ir/sharding.h"

#include <string.h>

int64_t vt_mesh_size(const vt_mesh *mesh) {
  vt_assert_each(i, mesh->axis_count, mesh->axes[i].size >= 1);
  int64_t n = 1;
  for (uint32_t i = 0; i < mesh->axis_count; i++) n *= mesh->axes[i].size;
  return n;
}

bool vt_mesh_same(const vt_mesh *a, const vt_mesh *b) {
  if (a == b) return true;
  if (!a || !b || a->axis_count != b->axis_count || a->device_count != b->device_count)
    return false;
  for (uint32_t i = 0; i < a->axis_count; i++)
    if (strcmp(a->axes[i].name, b->axes[i].name) || a->axes[i].size != b->axes[i].size)
      return false;
  return !a->device_count ||
         !memcmp(a->device_ids, b->device_ids, sizeof *a->device_ids * a->device_count);
}

int64_t vt_mesh_place(const vt_mesh *mesh, int64_t device) {
  for (uint32_t i = 0; i < mesh->device_count; i++)
    if (mesh->device_ids[i] == device) return i;
  return device;
}

int64_t vt_mesh_coordinate(const vt_mesh *mesh, int64_t place, vt_axis_ref ref,
                           int64_t *out_stride) {
  vt_assert(ref.axis < mesh->axis_count && ref.size >= 1 && ref.pre_size >= 1);
  vt_assert(place >= 0);
  int64_t below = 1, size = mesh->axes[ref.axis].size;
  for (uint32_t i = ref.axis + 1; i < mesh->axis_count; i++) below *= mesh->axes[i].size;
  int64_t part = size / (ref.pre_size * ref.size);
  if (part < 1) part = 1;
  if (out_stride) *out_stride = below * part;
  return place / below % size / part % ref.size;
}

bool vt_axis_fits(const vt_mesh *mesh, vt_axis_ref ref) {
  if (ref.axis >= mesh->axis_count || ref.pre_size < 1 || ref.size < 1) return false;
  int64_t full = mesh->axes[ref.axis].size;
  return ref.pre_size <= full && ref.size <= full && full % (ref.pre_size * ref.size) == 0;
}

bool vt_axes_overlap(vt_axis_ref a, vt_axis_ref b) {
  return a.axis == b.axis && a.pre_size < b.pre_size * b.size && b.pre_size < a.pre_size * a.size;
}

void vt_mesh_groups(const vt_mesh *mesh, uint32_t count, const vt_axis_ref *axes, int64_t *out_ids,
                    int64_t *out_width) {
  int64_t devices = vt_mesh_size(mesh), width = 1, n = 0;
  for (uint32_t a = 0; a < count; a++) width *= axes[a].size;
  for (int64_t place = 0; place < devices; place++) {
    int64_t from_first = 0;
    for (uint32_t a = 0; a < count; a++)
      from_first += vt_mesh_coordinate(mesh, place, axes[a], NULL);
    for (int64_t k = 0; k < width && !from_first; k++) {
      int64_t member = place, rest = k, stride;
      for (uint32_t a = count; a-- > 0; rest /= axes[a].size) {
        vt_mesh_coordinate(mesh, place, axes[a], &stride);
        member += rest % axes[a].size * stride;
      }
      out_ids[n++] = mesh->device_count ? mesh->device_ids[member] : member;
    }
  }
  vt_assert(n == devices);
  *out_width = width;
}

const vt_mesh *vt_manual_mesh(const vt_op *op) {
  static const vt_attr_key keys[2] = {VT_ATTR_IN_SHARDINGS, VT_ATTR_OUT_SHARDINGS};
  for (int k = 0; k < 2; k++) {
    const vt_attr *list = vt_op_attr(op, keys[k]);
    for (uint32_t i = 0; list && i < list->count; i++)
      if (list->shardings[i] && list->shardings[i]->mesh->axis_count)
        return list->shardings[i]->mesh;
  }
  return NULL;
}

static const vt_mesh *find_axis(const vt_op *op, vt_string name, uint32_t *out_axis) {
  static const vt_attr_key keys[2] = {VT_ATTR_IN_SHARDINGS, VT_ATTR_OUT_SHARDINGS};
  for (int k = 0; k < 2; k++) {
    const vt_attr *list = vt_op_attr(op, keys[k]);
    for (uint32_t i = 0; list && i < list->count; i++) {
      const vt_mesh *mesh = list->shardings[i] ? list->shardings[i]->mesh : NULL;
      for (uint32_t a = 0; mesh && a < mesh->axis_count; a++)
        if (!strcmp(mesh->axes[a].name, name.data)) {
          *out_axis = a;
          return mesh;
        }
    }
  }
  const vt_module *module = op->func->module;
  for (uint32_t m = 0; m < module->mesh_count; m++)
    for (uint32_t a = 0; a < module->meshes[m]->axis_count; a++)
      if (!strcmp(module->meshes[m]->axes[a].name, name.data)) {
        *out_axis = a;
        return module->meshes[m];
      }
  return NULL;
}

double vt_op_manual_devices(const vt_op *manual) {
  const vt_attr *axes = vt_op_attr(manual, VT_ATTR_MANUAL_AXES);
  double devices = 1;
  for (uint32_t i = 0; axes && i < axes->count; i++) {
    uint32_t axis = 0;
    const vt_mesh *mesh = find_axis(manual, axes->strings[i], &axis);
    if (mesh) devices *= (double)mesh->axes[axis].size;
  }
  return devices;
}
