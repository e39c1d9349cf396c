// SPDX-License-Identifier: Apache-2.0
// lower_gspmd.c - GSPMD's tile assignments as shardings over a mesh.
//
// A tile assignment made from a mesh is a mixed-radix permutation of the devices: split into prime
// factors, each digit of a tile number moves the device by a fixed stride. The first assignment
// that names all devices determines the module's mesh "gspmd", one axis per prime factor in order
// of stride; the others are expressed over its axes. An assignment that is not such a permutation
// gets its own mesh with a list of devices.
#include <inttypes.h>
#include <string.h>

#include "import/lower.h"
#include "import/sharding_text.h"

enum { MAX_DIGITS = 24 }; // prime factors of 2^20 devices plus a few ones

typedef struct digit {
  int64_t size, stride;
  int32_t dim; // of the tile assignment
} digit;

static uint32_t cut_to_primes(const vt_tile_assignment *t, digit *digits) {
  uint32_t count = 0;
  for (int32_t d = 0; d < t->tile_rank; d++) {
    int64_t rest = t->tile_dims[d];
    for (int64_t p = 2; rest > 1; p++) {
      if (p * p > rest) p = rest;
      for (; rest % p == 0; rest /= p) {
        if (count == MAX_DIGITS) return 0;
        digits[count++] = (digit){p, 0, d};
      }
    }
  }
  return count;
}

// Fills the strides; false when the devices are not a mixed-radix permutation of 0 .. n-1.
static bool find_strides(const vt_tile_assignment *t, digit *digits, uint32_t count) {
  int64_t place = 1;
  if (t->devices[0]) return false;
  for (uint32_t i = count; i-- > 0; place *= digits[i].size) {
    digits[i].stride = t->devices[place];
    if (digits[i].stride < 1) return false;
  }
  for (int64_t i = 0; i < t->device_count; i++) {
    int64_t rest = i, device = 0;
    for (uint32_t k = count; k-- > 0; rest /= digits[k].size)
      device += rest % digits[k].size * digits[k].stride;
    if (device != t->devices[i]) return false;
  }
  return true;
}

static const vt_mesh *add_mesh(vt_lower *lo, const char *name, uint32_t axis_count,
                               const int64_t *sizes, uint32_t device_count,
                               const int64_t *devices) {
  vt_module *module = lo->module;
  vt_mesh *mesh = VT_NEW(&module->arena, vt_mesh);
  vt_mesh_axis *axes = VT_NEW_ARRAY(&module->arena, vt_mesh_axis, axis_count);
  for (uint32_t i = 0; i < axis_count; i++)
    axes[i] = (vt_mesh_axis){vt_arena_printf(&module->arena, "_%" PRIu32, i), sizes[i]};
  *mesh = (vt_mesh){name, axis_count, axes, device_count, devices};
  if (!name[0]) return mesh;
  const vt_mesh **grown = VT_NEW_ARRAY(&module->arena, const vt_mesh *, module->mesh_count + 1);
  if (module->mesh_count) memcpy(grown, module->meshes, module->mesh_count * sizeof *grown);
  grown[module->mesh_count++] = mesh;
  module->meshes = grown;
  return mesh;
}

const vt_mesh *vt_lower_tile_mesh(vt_lower *lo) {
  int64_t devices = lo->module->num_partitions > 1 ? lo->module->num_partitions : 1;
  return add_mesh(lo, "", 1, &devices, 0, NULL);
}

static void decide_mesh(vt_lower *lo, const digit *digits, uint32_t count) {
  int64_t sizes[MAX_DIGITS], strides[MAX_DIGITS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t at = n++;
    for (; at > 0 && strides[at - 1] < digits[i].stride; at--) {
      strides[at] = strides[at - 1];
      sizes[at] = sizes[at - 1];
    }
    strides[at] = digits[i].stride;
    sizes[at] = digits[i].size;
  }
  lo->tile_mesh = add_mesh(lo, "gspmd", n, sizes, 0, NULL);
}

// The axis of the module's mesh that moves devices by this stride; -1 when there is none of this
// size.
static int32_t find_axis(const vt_mesh *mesh, const digit *d) {
  int64_t stride = 1;
  for (uint32_t a = mesh->axis_count; a-- > 0; stride *= mesh->axes[a].size)
    if (stride == d->stride) return mesh->axes[a].size == d->size ? (int32_t)a : -1;
  return -1;
}

static vt_sharding *new_sharding(vt_lower *lo, const vt_mesh *mesh, int32_t rank,
                                 vt_dim_sharding **out_dims) {
  vt_sharding *sharding = VT_NEW(&lo->module->arena, vt_sharding);
  vt_dim_sharding *dims = VT_NEW_ARRAY(&lo->module->arena, vt_dim_sharding, rank);
  for (int32_t d = 0; d < rank; d++) dims[d] = (vt_dim_sharding){.closed = true, .priority = -1};
  *sharding = (vt_sharding){.kind = VT_SHARDING_MESH, .mesh = mesh, .rank = rank, .dims = dims};
  *out_dims = dims;
  return sharding;
}

static void push_axis(vt_lower *lo, vt_dim_sharding *dim, uint32_t axis, int64_t size) {
  vt_axis_ref *axes = VT_NEW_ARRAY(&lo->module->arena, vt_axis_ref, dim->axis_count + 1);
  if (dim->axis_count) memcpy(axes, dim->axes, dim->axis_count * sizeof *axes);
  axes[dim->axis_count++] = (vt_axis_ref){axis, 1, size};
  dim->axes = axes;
}

vt_status vt_lower_manual_tiles(vt_lower *lo, const vt_raw_op *op, vt_string text, int32_t rank,
                                uint64_t *out_axes) {
  vt_tile_assignment tiles;
  digit digits[MAX_DIGITS];
  *out_axes = 0;
  VT_TRY(vt_tiles_parse(lo->arena, text, rank, &tiles));
  if (tiles.kind == VT_TILES_MANUAL) *out_axes = UINT64_MAX;
  if (tiles.kind != VT_TILES_LIST || !tiles.manual) return VT_OK;
  uint32_t count = cut_to_primes(&tiles, digits);
  bool fits = find_strides(&tiles, digits, count);
  if (fits && !lo->tile_mesh) decide_mesh(lo, digits, count);
  for (uint32_t i = 0; i < count && fits; i++) {
    int32_t from_last = tiles.tile_rank - 1 - digits[i].dim;
    if (digits[i].dim < rank || from_last > 31 || !(tiles.manual >> from_last & 1)) continue;
    int32_t axis = find_axis(lo->tile_mesh, &digits[i]);
    fits = axis >= 0;
    if (fits) *out_axes |= (uint64_t)1 << axis;
  }
  if (fits) return VT_OK;
  return vt_lower_error(lo, op, VT_UNIMPLEMENTED,
                        "sharding: manual devices are not axes of the module's mesh");
}

// Over the module's mesh; NULL when the assignment does not fit it.
static const vt_sharding *over_common_mesh(vt_lower *lo, const vt_tile_assignment *t,
                                           int32_t rank) {
  digit digits[MAX_DIGITS];
  uint32_t count = cut_to_primes(t, digits);
  vt_dim_sharding *dims;
  if (!find_strides(t, digits, count)) return NULL;
  if (!lo->tile_mesh) decide_mesh(lo, digits, count);
  vt_sharding *sharding = new_sharding(lo, lo->tile_mesh, rank, &dims);
  for (uint32_t i = 0; i < count; i++) {
    int32_t axis = find_axis(lo->tile_mesh, &digits[i]);
    if (axis < 0) return NULL;
    if (digits[i].dim < rank) push_axis(lo, &dims[digits[i].dim], (uint32_t)axis, digits[i].size);
  }
  return sharding;
}

static vt_status over_own_mesh(vt_lower *lo, const vt_raw_op *op, const vt_tile_assignment *t,
                               int32_t rank, const vt_sharding **out_sharding) {
  uint8_t *seen = VT_NEW_ARRAY(lo->arena, uint8_t, t->device_count);
  for (int64_t i = 0; i < t->device_count; i++) {
    if (t->devices[i] >= t->device_count || seen[t->devices[i]])
      return vt_lower_error(lo, op, VT_INVALID_ARGUMENT,
                            "sharding: the devices are not a permutation");
    seen[t->devices[i]] = 1;
  }
  int64_t *devices = VT_NEW_ARRAY(&lo->module->arena, int64_t, t->device_count);
  memcpy(devices, t->devices, sizeof *devices * (size_t)t->device_count);
  const vt_mesh *mesh =
      add_mesh(lo, "", (uint32_t)t->tile_rank, t->tile_dims, (uint32_t)t->device_count, devices);
  vt_dim_sharding *dims;
  *out_sharding = new_sharding(lo, mesh, rank, &dims);
  for (int32_t d = 0; d < rank; d++)
    if (t->tile_dims[d] > 1) push_axis(lo, &dims[d], (uint32_t)d, t->tile_dims[d]);
  return VT_OK;
}

static vt_status convert(vt_lower *lo, const vt_raw_op *op, vt_string text, int32_t rank,
                         const vt_sharding **out_sharding) {
  vt_tile_assignment tiles;
  vt_dim_sharding *dims;
  int64_t *device;
  VT_TRY(vt_tiles_parse(lo->arena, text, rank, &tiles));
  switch (tiles.kind) {
  case VT_TILES_MANUAL:
  case VT_TILES_UNKNOWN:
    return VT_OK;
  case VT_TILES_REPLICATED:
    *out_sharding = new_sharding(
        lo, lo->tile_mesh ? lo->tile_mesh : add_mesh(lo, "", 0, NULL, 0, NULL), rank, &dims);
    return VT_OK;
  case VT_TILES_MAXIMAL:
    device = VT_NEW(&lo->module->arena, int64_t);
    *device = tiles.device;
    *out_sharding = new_sharding(lo, add_mesh(lo, "", 0, NULL, 1, device), 0, &dims);
    return VT_OK;
  case VT_TILES_LIST:
    break;
  }
  lo->budget -= tiles.device_count; // a short text may stand for a long list
  if (lo->budget < 0)
    return vt_lower_error(lo, op, VT_RESOURCE_EXHAUSTED, "too many devices in shardings");
  *out_sharding = over_common_mesh(lo, &tiles, rank);
  return *out_sharding ? VT_OK : over_own_mesh(lo, op, &tiles, rank, out_sharding);
}

vt_status vt_lower_tiles(vt_lower *lo, const vt_raw_op *op, vt_string text, int32_t rank,
                         const vt_sharding **out_sharding) {
  char *key = vt_arena_push(lo->arena, text.size + sizeof rank);
  memcpy(key, &rank, sizeof rank);
  memcpy(key + sizeof rank, text.data, text.size);
  *out_sharding = vt_map_find(&lo->tiles, key, text.size + sizeof rank);
  if (*out_sharding) return VT_OK;
  VT_TRY(convert(lo, op, text, rank, out_sharding));
  *vt_map_at(&lo->tiles, key, text.size + sizeof rank) = (void *)(uintptr_t)*out_sharding;
  return VT_OK;
}

vt_status vt_lower_tile_group(vt_lower *lo, vt_string text, int32_t rank, bool *out_grouped,
                              int64_t *out_group) {
  vt_tile_assignment tiles;
  *out_grouped = false;
  if (!memmem(text.data, text.size, " shard_", 7)) return VT_OK;
  VT_TRY(vt_tiles_parse(lo->arena, text, rank, &tiles));
  *out_grouped = tiles.grouped;
  *out_group = tiles.group;
  return VT_OK;
}
