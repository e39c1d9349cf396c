// SPDX-License-Identifier: Apache-2.0
// mesh.c - devices on a mesh: sizes, places, coordinates along axes and parts of axes.
#include "ir/sharding.h"

int64_t vt_mesh_size(const vt_mesh *mesh) {
  int64_t n = 1;
  for (uint32_t i = 0; i < mesh->axis_count; i++) n *= mesh->axes[i].size;
  return n;
}

int64_t vt_mesh_place(const vt_mesh *mesh, int64_t device) {
  for (uint32_t i = 0; i < mesh->device_count; i++)
    if (mesh->device_ids[i] == device) return i;
  return device;
}

int64_t vt_mesh_coordinate(const vt_mesh *mesh, int64_t place, vt_axis_ref ref,
                           int64_t *out_stride) {
  int64_t below = 1, size = mesh->axes[ref.axis].size;
  for (uint32_t i = ref.axis + 1; i < mesh->axis_count; i++) below *= mesh->axes[i].size;
  int64_t part = size / (ref.pre_size * ref.size);
  if (part < 1) part = 1;
  if (out_stride) *out_stride = below * part;
  return place / below % size / part % ref.size;
}
