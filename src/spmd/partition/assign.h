// SPDX-License-Identifier: Apache-2.0
// assign.h - tile assignments: which device holds which tile of an array.
//
// A tile assignment is an array of devices with one dimension per dimension of the array, and a
// last one for devices that hold the same tile. Axes of a mesh are not enough for a partitioner: on
// the way from one sharding to another, devices come in orders that no list of axes describes.
//
// Assignments and groups are interned: two are equal exactly when their pointers are. What is
// derived from them is remembered by pointer, so a program pays once for each distinct assignment,
// and their devices are orders (order.h), so that it hardly ever pays for each device.
// A device here is a position in the group that is being partitioned, 0 .. device_count - 1: the
// whole machine, or one of several equal parts of it (vt_groups).
#ifndef VT_SPMD_ASSIGN_H
#define VT_SPMD_ASSIGN_H

#include "base/map.h"
#include "ir/sharding.h"
#include "spmd/partition/order.h"

typedef struct vt_assign {
  int32_t rank;         // dimensions of the array
  int32_t device_count; // tiles * copies, but for a single holder
  int32_t tiles;        // product of dims
  int32_t copies;       // devices that hold the same tile
  int32_t only;         // the one device that holds the array, -1 = all of them hold a tile
  const int32_t *dims;  // tiles along each dimension
  vt_order order;       // row-major over dims and copies, the holders of a tile ascending
} vt_assign;

// Equal parts of the devices, in the order in which collectives take them.
typedef struct vt_groups {
  int32_t count, size;
  vt_order order; // [count][size]
} vt_groups;

// The same device by device.
typedef struct vt_group_lists {
  const int32_t *ids;      // [count][size]
  const int32_t *group_of; // by device
  const int32_t *place_of; // by device: its place in its group
} vt_group_lists;

typedef struct vt_assigns {
  vt_arena *arena; // of the module: group lists become attributes
  vt_map interned, memo;
  const vt_assign *whole[VT_MAX_RANK + 1]; // the last of each rank, over any number of devices
} vt_assigns;

void vt_assigns_free(vt_assigns *t);

// The assignment with tiles `dims` and these devices (NULL: counting up), row-major over dims and
// copies.
const vt_assign *vt_assign_make(vt_assigns *t, int32_t rank, const int32_t *dims, int32_t copies,
                                const int32_t *devices);
const vt_assign *vt_assign_ordered(vt_assigns *t, int32_t rank, const int32_t *dims, int32_t copies,
                                   const vt_order *order);
// Every device holds the whole array; one device does.
const vt_assign *vt_assign_whole(vt_assigns *t, int32_t rank, int32_t device_count);
const vt_assign *vt_assign_only(vt_assigns *t, int32_t rank, int32_t device_count, int32_t device);

// Each device holds all of the array: it is not cut.
static inline bool vt_assign_is_whole(const vt_assign *a) {
  return a->tiles == 1 && a->only < 0;
}
static inline bool vt_assign_is_cut(const vt_assign *a) {
  return a->tiles > 1;
}

// ---- derived assignments ------------------------------------------------------------------------

// The devices seen as an array `shape` of `count` dimensions, its dimensions permuted, and then
// seen as tiles dims[rank] and copies. All of the functions below are this one.
const vt_assign *vt_assign_view(vt_assigns *t, const vt_assign *a, int32_t count,
                                const int32_t *shape, const int32_t *permutation, int32_t rank,
                                const int32_t *dims, int32_t copies);
// An array of `rank` dimensions whose dimension i is cut as dimension from[i] of `a`, or not cut
// where that is -1. Tiles along dimensions that are not taken become copies. Covers transposing,
// dropping, inserting and replicating dimensions.
const vt_assign *vt_assign_project(vt_assigns *t, const vt_assign *a, int32_t rank,
                                   const int32_t *from);
// Only dimensions of `mask` stay cut; dimensions of `mask` no longer are.
const vt_assign *vt_assign_keep(vt_assigns *t, const vt_assign *a, uint32_t mask);
const vt_assign *vt_assign_replicate(vt_assigns *t, const vt_assign *a, uint32_t mask);
// result.dims[i] = a.dims[permutation[i]]
const vt_assign *vt_assign_transpose(vt_assigns *t, const vt_assign *a, const int32_t *permutation);
// Copies and the tiles of an uncut dimension change places.
const vt_assign *vt_assign_swap_copies(vt_assigns *t, const vt_assign *a, int32_t dim);
// Dimension `dim` becomes two, the first with `outer` tiles; two become one again.
const vt_assign *vt_assign_split(vt_assigns *t, const vt_assign *a, int32_t dim, int32_t outer);
const vt_assign *vt_assign_merge(vt_assigns *t, const vt_assign *a, int32_t dim);
// The tiles of dimension `from` cut dimension `to` further, within its tiles.
const vt_assign *vt_assign_move(vt_assigns *t, const vt_assign *a, int32_t from, int32_t to);
// The same devices in the same order under other tiles.
const vt_assign *vt_assign_reshape(vt_assigns *t, const vt_assign *a, int32_t rank,
                                   const int32_t *dims, int32_t copies);
// The tiles along the dimensions of `mask` in the other order.
const vt_assign *vt_assign_reverse(vt_assigns *t, const vt_assign *a, uint32_t mask);
// Cut as both are, where each dimension is cut by one of them, or alike. NULL: they do not fit, or
// that is `a`.
const vt_assign *vt_assign_join(vt_assigns *t, const vt_assign *a, const vt_assign *by);
// The tile along `dim` that each device holds.
const int32_t *vt_assign_places(vt_assigns *t, const vt_assign *a, int32_t dim);
// The devices as a list.
const int32_t *vt_assign_devices(vt_assigns *t, const vt_assign *a);

// ---- groups -------------------------------------------------------------------------------------

const vt_groups *vt_groups_make(vt_assigns *t, int32_t count, int32_t size, const int32_t *ids);
const vt_groups *vt_groups_of(vt_assigns *t, int32_t count, int32_t size, const vt_order *order);
vt_group_lists vt_groups_listed(vt_assigns *t, const vt_groups *groups);
const vt_literal *vt_groups_rows(vt_assigns *t, const vt_groups *groups); // as replica_groups
const vt_groups *vt_groups_all(vt_assigns *t, int32_t device_count);      // one group of all
// Devices that differ only along the dimensions `dims` (index a->rank: the copies), in row-major
// order of these.
const vt_groups *vt_groups_along(vt_assigns *t, const vt_assign *a, int32_t count,
                                 const int32_t *dims);
// `inner` groups the places within each group of `outer`: the groups of the whole.
const vt_groups *vt_groups_within(vt_assigns *t, const vt_groups *outer, const vt_groups *inner);

// An assignment taken apart: devices in groups, and how each group holds its part of the array.
typedef struct vt_grouping {
  const vt_groups *groups;
  const vt_assign *inner; // over groups->size devices
  int32_t count;
  int32_t dims[VT_MAX_RANK + 1]; // the dimensions that count the groups, major first;
                                 // inner->rank: the copies
  int32_t sizes[VT_MAX_RANK + 1];
} vt_grouping;

// Groups by tiles along `dims` (index a->rank: the copies). shards[i] tiles of dims[i] stay within
// each group; NULL: one.
vt_grouping vt_group_on(vt_assigns *t, const vt_assign *a, int32_t count, const int32_t *dims,
                        const int32_t *shards);
const vt_assign *vt_ungroup(vt_assigns *t, const vt_grouping *g);
// The grouping with the groups of `reference`, of equal number and size. Where both have the same
// devices in each group (in any order of groups, with `any_order`), its devices keep their tiles;
// otherwise they trade places.
vt_grouping vt_align(vt_assigns *t, vt_grouping g, const vt_groups *reference, bool any_order);
// The same, only if no device has to trade places. false: some would
bool vt_align_if_same(vt_assigns *t, vt_grouping *g, const vt_groups *reference, bool any_order);
// A grouping of `a` on its copies with just these groups, each of which holds every tile as often
// and alike. false: they do not
bool vt_group_copies(vt_assigns *t, const vt_assign *a, const vt_groups *groups, vt_grouping *out);
// Every device's tile of `fine` lies within its tile of `coarse`, for an array that divides evenly.
bool vt_assign_refines(vt_assigns *t, const vt_assign *fine, const vt_assign *coarse);
// The dimensions (index a->rank: the copies) by which `a` falls into just these groups; false:
// none.
bool vt_group_dims(vt_assigns *t, const vt_assign *a, const vt_groups *groups, int32_t *out_count,
                   int32_t *out_dims);

#endif
