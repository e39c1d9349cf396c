// SPDX-License-Identifier: Apache-2.0
// sharding.h - how a tensor lies on the devices, as the program says it. Plain data in the module's arena;
// src/spmd gives it meaning (parsing of text forms, propagation, tiles per device).
#ifndef VT_IR_SHARDING_H
#define VT_IR_SHARDING_H

#include "ir/module.h"

// An axis of a mesh, or a part of one: the mesh axis seen as [pre_size, size, rest] and the middle taken.
typedef struct vt_axis_ref {
  uint32_t axis;                // index into the mesh's axes
  int64_t pre_size, size;       // 1 and the axis size for a whole axis
} vt_axis_ref;

typedef struct vt_dim_sharding {
  uint32_t axis_count;
  const vt_axis_ref *axes;      // major to minor
  bool closed;                  // propagation may not add axes
  int64_t priority;             // -1 = none
} vt_dim_sharding;

struct vt_sharding {
  enum {
    VT_SHARDING_MESH,           // Shardy: mesh + one vt_dim_sharding per dimension
    VT_SHARDING_TILED,          // GSPMD: tile dimensions + devices in tile order
    VT_SHARDING_REPLICATED,     // GSPMD {replicated}
    VT_SHARDING_MAXIMAL,        // one device holds all
    VT_SHARDING_MANUAL,         // GSPMD {manual}
    VT_SHARDING_UNKNOWN,
  } kind;
  // MESH
  const vt_mesh *mesh;
  int32_t rank;
  const vt_dim_sharding *dims;
  uint32_t replicated_count, unreduced_count;
  const vt_axis_ref *replicated, *unreduced;
  int32_t reduction;            // of the unreduced axes: 0 sum, 1 max, 2 min
  // TILED: the first `rank` of `tile_rank` tile dimensions belong to the tensor; a further one is replication
  // when `last_tile_replicated`.
  int32_t tile_rank;
  const int64_t *tile_dims;
  uint32_t device_count;
  const int64_t *devices;       // row-major over tile_dims
  bool last_tile_replicated;
  // MAXIMAL
  int64_t device;
};

#endif
