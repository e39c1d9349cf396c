// SPDX-License-Identifier: Apache-2.0
// halo.h - elements that cross from tile to tile along a dimension, and inputs of windows.
#ifndef VT_SPMD_HALO_H
#define VT_SPMD_HALO_H

#include "ir/window.h"
#include "spmd/partition/partition.h"

// From neighbours to all, or only what each needs: where halos reach far, always, never.
typedef enum vt_halo_way { VT_HALO_ANY, VT_HALO_COMPACT, VT_HALO_NEAR } vt_halo_way;

// What each tile along a dimension needs, in positions of the array. Positions before 0 and from
// `valid` on are padding.
typedef struct vt_halo {
  int32_t dim;
  int32_t tiles;                // that take part: the first ones, but for
  int32_t front, skip;          // `skip` tiles after the first `front`
  int64_t valid;                // elements of the array
  int64_t size;                 // that each tile gets, from start on: at least limit - start
  const int64_t *start, *limit; // by tile that takes part
  vt_halo_way way;
} vt_halo;

// Each device gets its elements; `pad` (a scalar) stands where there are none, NULL: anything does.
// Elements from limit on are undefined. false: halos would reach over most of the array
bool vt_exchange_halo(vt_parter *p, const vt_assign *assign, vt_value *local, const vt_halo *halo,
                      vt_value *pad, vt_value **out);

// The input of windows whose results are cut as `target`.
typedef struct vt_windowed {
  vt_value *local;                // what this device's windows lie over
  vt_window windows[VT_MAX_RANK]; // as they lie over local
  vt_value *offsets[VT_MAX_RANK]; // of this device's results among those of local; NULL = 0
} vt_windowed;

// windows: one per dimension, over the whole array. false: only whole arrays will do
bool vt_reshard_windowed(vt_parter *p, vt_part part, const vt_window *windows,
                         const vt_assign *target, vt_value *pad, vt_windowed *out);
// A window that takes each element for itself.
bool vt_window_is_trivial(vt_window w);
// The shape that an op gives over local, and the part of its result that belongs to this device.
vt_type vt_windowed_type(vt_parter *p, const vt_windowed *w, vt_dtype dtype);
vt_value *vt_windowed_result(vt_parter *p, const vt_windowed *w, vt_value *result, vt_type type);

#endif
