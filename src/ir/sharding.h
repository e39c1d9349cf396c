// SPDX-License-Identifier: Apache-2.0
// sharding.h - how a tensor is distributed over the devices, as the program specifies it. Plain
// data in the module's arena; src/spmd gives it meaning (parsing of text forms, propagation, tiles
// per device).
#ifndef VT_IR_SHARDING_H
#define VT_IR_SHARDING_H

#include "ir/module.h"

// An axis of a mesh, or a sub-axis: the middle dimension of the mesh axis seen as [pre_size, size,
// rest].
typedef struct vt_axis_ref {
  uint32_t axis;          // index into the mesh's axes
  int64_t pre_size, size; // 1 and the axis size for a whole axis
} vt_axis_ref;

typedef struct vt_dim_sharding {
  uint32_t axis_count;
  const vt_axis_ref *axes; // major to minor
  bool closed;             // propagation may not add axes
  int64_t priority;        // -1 = none
} vt_dim_sharding;

// Shardy's form: a mesh, and one vt_dim_sharding per dimension of the tensor. Import converts
// GSPMD's tile assignments to it. A mesh without axes but with one device id means that this device
// holds everything (rank is then 0, whatever the tensor); an empty mesh means replicated.
struct vt_sharding {
  enum { VT_SHARDING_MESH } kind;
  const vt_mesh *mesh;
  int32_t rank;
  const vt_dim_sharding *dims;
  uint32_t replicated_count, unreduced_count;
  const vt_axis_ref *replicated, *unreduced;
  int32_t reduction; // of the unreduced axes: 0 sum, 1 max, 2 min
};

enum { VT_MAX_MESH_AXES = 32 }; // import refuses more

// Number of devices in a mesh; position of a device on it (row-major); its coordinate along an axis
// or sub-axis, and the distance between neighbours there (out_stride may be NULL).
int64_t vt_mesh_size(const vt_mesh *mesh);
int64_t vt_mesh_place(const vt_mesh *mesh, int64_t device);
int64_t vt_mesh_coordinate(const vt_mesh *mesh, int64_t place, vt_axis_ref ref,
                           int64_t *out_stride);
// Whether an axis is one of the mesh's, whole or a part that divides it; whether two share a part.
bool vt_axis_fits(const vt_mesh *mesh, vt_axis_ref ref);
bool vt_axes_overlap(vt_axis_ref a, vt_axis_ref b);
// The devices of the mesh in groups that differ only in their coordinates along `axes`, counted
// major to minor: rows of *out_width. Room for all devices.
void vt_mesh_groups(const vt_mesh *mesh, uint32_t count, const vt_axis_ref *axes, int64_t *out_ids,
                    int64_t *out_width);
// The same axes over the same devices in the same order. NULL is the same as NULL only.
bool vt_mesh_same(const vt_mesh *a, const vt_mesh *b);
// The mesh of a manual computation; NULL where it names none, and for other ops.
const vt_mesh *vt_manual_mesh(const vt_op *op);

// The number of devices that share a manual computation's work: the product of its manual axes.
double vt_op_manual_devices(const vt_op *manual);

static inline bool vt_sharding_is_maximal(const vt_sharding *s) {
  return !s->mesh->axis_count && s->mesh->device_count == 1;
}

#endif
