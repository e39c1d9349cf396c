// SPDX-License-Identifier: Apache-2.0
// tiling.c - turns a sharding and a shape into the tile that each device holds.
//
// The sharding is first written as GSPMD's tile assignment: an array of devices, one dimension per
// tensor dimension and a last one for devices that hold the same tile. It follows mesh order, since
// clients compare shardings by this array.
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/array.h"
#include "spmd/spmd.h"

typedef VT_ARRAY(uint8_t) byte_array;

static void put_varint(vt_arena *arena, byte_array *out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) vt_array_push_in(arena, out, (uint8_t)(value | 0x80));
  vt_array_push_in(arena, out, (uint8_t)value);
}

static void put_packed(vt_arena *arena, byte_array *out, uint8_t tag, const int64_t *values,
                       int64_t count) {
  byte_array packed = {0};
  for (int64_t i = 0; i < count; i++) put_varint(arena, &packed, (uint64_t)values[i]);
  vt_array_push_in(arena, out, tag);
  put_varint(arena, out, packed.size);
  for (size_t i = 0; i < packed.size; i++) vt_array_push_in(arena, out, packed.data[i]);
}

// xla.OpSharding: 1 type, 3 tile dimensions, 4 devices, 6 replicate on last dimension, 8 types of
// the last dimensions if not all are replicated.
enum { TYPE_REPLICATED = 0, TYPE_MAXIMAL = 1, TYPE_OTHER = 3, TYPE_UNREDUCED = 6 };

static void put_proto(vt_arena *arena, vt_tiling *tiling, uint8_t type, const int64_t *dims,
                      int32_t rank, const int64_t *devices, int64_t device_count, int64_t copies,
                      int64_t partials) {
  byte_array out = {0};
  vt_array_push_in(arena, &out, 0x08);
  vt_array_push_in(arena, &out, type);
  put_packed(arena, &out, 0x1A, dims, rank);
  put_packed(arena, &out, 0x22, devices, device_count);
  if (partials > 1) {
    int64_t last[2] = {TYPE_REPLICATED, TYPE_UNREDUCED};
    put_packed(arena, &out, 0x42, copies > 1 ? last : last + 1, copies > 1 ? 2 : 1);
  } else if (copies > 1) {
    vt_array_push_in(arena, &out, 0x30);
    vt_array_push_in(arena, &out, 0x01);
  }
  tiling->proto = out.data;
  tiling->proto_size = out.size;
}

// `device_count` 0: without what each device holds.
static void set_replicated(vt_arena *arena, vt_type global, int32_t device_count, vt_tiling *out) {
  int64_t *counts = VT_NEW_ARRAY(arena, int64_t, global.rank);
  for (int32_t d = 0; d < global.rank; d++) counts[d] = 1;
  *out = (vt_tiling){.global = global,
                     .shard = global,
                     .counts = counts,
                     .device_count = device_count,
                     .partials = 1};
  out->tile_of_device = VT_NEW_ARRAY(arena, int32_t, device_count);
}

static vt_status set_maximal(vt_arena *arena, vt_type global, int32_t device_count, int64_t device,
                             vt_tiling *out) {
  if (device < 0 || device >= device_count)
    return vt_error(VT_INVALID_ARGUMENT, "sharding: device %" PRId64 " of %" PRId32, device,
                    device_count);
  set_replicated(arena, global, device_count, out);
  int32_t *tiles = VT_NEW_ARRAY(arena, int32_t, device_count);
  for (int32_t i = 0; i < device_count; i++) tiles[i] = i == device ? 0 : -1;
  out->tile_of_device = tiles;
  if (device_count > 1) put_proto(arena, out, TYPE_MAXIMAL, (int64_t[]){1}, 1, &device, 1, 1, 1);
  return VT_OK;
}

static vt_status no_such_place(int64_t device) {
  return vt_error(VT_INVALID_ARGUMENT,
                  "sharding: device %" PRId64 " does not exist or holds two tiles", device);
}

// `devices` is row-major over counts[rank] x copies x partials.
static vt_status set_tiled(vt_arena *arena, vt_type global, int32_t device_count,
                           const int64_t *counts, int64_t partials, const int64_t *devices,
                           vt_tiling *out) {
  int64_t tiles = 1, dims[VT_MAX_RANK + 2], *shard = VT_NEW_ARRAY(arena, int64_t, global.rank);
  set_replicated(arena, global, device_count, out);
  for (int32_t d = 0; d < global.rank; d++) {
    dims[d] = ((int64_t *)out->counts)[d] = counts[d];
    tiles *= counts[d];
    shard[d] = (global.dims[d] + counts[d] - 1) / counts[d];
  }
  if (tiles == 1 && partials == 1) return VT_OK;
  vt_assert(partials >= 1 && device_count % (tiles * partials) == 0);
  vt_assert_each(d, global.rank, shard[d] * counts[d] >= global.dims[d]); // the tiles cover it
  int32_t rank = global.rank;
  int64_t copies = device_count / tiles / partials;
  if (copies > 1) dims[rank++] = copies;
  if (partials > 1) dims[rank++] = partials;
  int32_t *tile_of_device = VT_NEW_ARRAY(arena, int32_t, device_count);
  int32_t *partial_of_device = VT_NEW_ARRAY(arena, int32_t, device_count);
  for (int32_t i = 0; i < device_count; i++) tile_of_device[i] = -1;
  for (int64_t i = 0; i < tiles * copies * partials; i++) {
    if (devices[i] < 0 || devices[i] >= device_count || tile_of_device[devices[i]] >= 0)
      return no_such_place(devices[i]);
    tile_of_device[devices[i]] = (int32_t)(i / (copies * partials));
    partial_of_device[devices[i]] = (int32_t)(i % partials);
  }
  vt_assert_each(i, device_count, tile_of_device[i] >= 0 && tile_of_device[i] < tiles);
  vt_assert_each(i, device_count, partial_of_device[i] < partials);
  out->tile_of_device = tile_of_device;
  out->shard.dims = shard;
  out->partials = partials;
  out->partial_of_device = partials > 1 ? partial_of_device : NULL;
  put_proto(arena, out, TYPE_OTHER, dims, rank, devices, device_count, copies, partials);
  return VT_OK;
}

// ---- meshes -------------------------------------------------------------------------------------

// One factor of a mesh: a whole axis or a part of one. Its index in a device's position is position
// / stride % size.
typedef struct factor {
  int64_t size, stride;
  bool used;
  vt_axis_ref ref;
} factor;

enum { MAX_FACTORS = 256 };

static int64_t axis_stride(const vt_mesh *mesh, uint32_t axis) {
  int64_t stride = 1;
  for (uint32_t i = axis + 1; i < mesh->axis_count; i++) stride *= mesh->axes[i].size;
  return stride;
}

static int64_t ref_stride(const vt_mesh *mesh, vt_axis_ref ref) {
  return axis_stride(mesh, ref.axis) * (mesh->axes[ref.axis].size / (ref.pre_size * ref.size));
}

static bool is_selected(const vt_mesh *mesh, vt_axis_ref ref, const vt_string *names,
                        uint32_t count) {
  if (!names) return true;
  for (uint32_t i = 0; i < count; i++)
    if (!strcmp(names[i].data, mesh->axes[ref.axis].name)) return true;
  return false;
}

static int compare_refs(vt_axis_ref a, vt_axis_ref b) {
  if (a.axis != b.axis) return a.axis < b.axis ? -1 : 1;
  return a.pre_size < b.pre_size ? -1 : a.pre_size > b.pre_size;
}

// Appends the parts of the mesh not in `used`, major to minor.
static uint32_t add_rest(const vt_mesh *mesh, factor *factors, uint32_t used) {
  uint32_t count = used;
  for (uint32_t a = 0; a < mesh->axis_count; a++) {
    int64_t at = 1; // product of the parts seen so far
    while (at < mesh->axes[a].size && count < MAX_FACTORS) {
      const factor *next = NULL;
      for (uint32_t i = 0; i < used; i++)
        if (factors[i].ref.axis == a && factors[i].ref.pre_size >= at && factors[i].size > 1 &&
            (!next || compare_refs(factors[i].ref, next->ref) < 0))
          next = &factors[i];
      int64_t end = next ? next->ref.pre_size : mesh->axes[a].size;
      if (end % at)
        break; // parts that do not nest; vt_tiling_make rejects them by the device count
      if (end > at) {
        vt_axis_ref ref = {a, at, end / at};
        factors[count++] = (factor){ref.size, ref_stride(mesh, ref), false, ref};
      }
      at = next ? next->ref.pre_size * next->size : end;
    }
  }
  return count;
}

// Whether each position of the mesh has one place among the factors.
static bool covers(const factor *factors, uint32_t count, int64_t positions) {
  int64_t below = 1;
  for (uint32_t i = 0; i < count; i++) {
    if (factors[i].size == 1 || factors[i].stride != below) continue;
    below *= factors[i].size;
    i = UINT32_MAX; // from the first one again
  }
  return below == positions;
}

static vt_status check_ids(const vt_mesh *mesh, int32_t device_count, vt_arena *arena) {
  bool *seen = VT_NEW_ARRAY(arena, bool, device_count);
  for (uint32_t i = 0; i < mesh->device_count; i++) {
    int64_t device = mesh->device_ids[i];
    if (device < 0 || device >= device_count || seen[device]) return no_such_place(device);
    seen[device] = true;
  }
  return VT_OK;
}

static vt_status set_from_mesh(const vt_sharding *s, const vt_string *names, uint32_t name_count,
                               vt_type global, int32_t device_count, bool lists, vt_arena *arena,
                               vt_tiling *out) {
  const vt_mesh *mesh = s->mesh;
  factor factors[MAX_FACTORS];
  uint32_t used = 0;
  int64_t mesh_size = 1, counts[VT_MAX_RANK];
  for (uint32_t a = 0; a < mesh->axis_count; a++) mesh_size *= mesh->axes[a].size;
  for (int32_t d = 0; d < global.rank; d++) {
    counts[d] = 1;
    for (uint32_t i = 0; i < s->dims[d].axis_count; i++) {
      vt_axis_ref ref = s->dims[d].axes[i];
      if (!is_selected(mesh, ref, names, name_count) || used == MAX_FACTORS / 2) continue;
      factors[used++] = (factor){ref.size, ref_stride(mesh, ref), true, ref};
      counts[d] *= ref.size;
    }
  }
  if (mesh_size != device_count) {
    set_replicated(arena, global, lists ? device_count : 0, out);
    if (!used || mesh_size == 1) return VT_OK;
    return vt_error(VT_INVALID_ARGUMENT,
                    "sharding: mesh '%s' has %" PRId64 " devices, the program %" PRId32, mesh->name,
                    mesh_size, device_count);
  }
  // Unreduced axes come last, in the order of the mesh.
  uint32_t tiled = used, unreduced = 0;
  factor last[MAX_FACTORS / 2];
  int64_t partials = 1;
  for (uint32_t i = 0; i < s->unreduced_count && !names && used < MAX_FACTORS / 2; i++) {
    vt_axis_ref ref = s->unreduced[i];
    if (ref.size == 1) continue;
    uint32_t at = unreduced++;
    for (; at > 0 && compare_refs(last[at - 1].ref, ref) > 0; at--) last[at] = last[at - 1];
    last[at] = factors[used++] = (factor){ref.size, ref_stride(mesh, ref), true, ref};
    partials *= ref.size;
  }
  uint32_t count = add_rest(mesh, factors, used);
  memmove(factors + tiled, factors + used, sizeof *factors * (count - used));
  memcpy(factors + tiled + (count - used), last, sizeof *last * unreduced);
  int64_t product = 1;
  for (uint32_t i = 0; i < count; i++) product *= factors[i].size;
  if (product != device_count)
    return vt_error(VT_INVALID_ARGUMENT, "sharding: sub-axes do not fit each other");
  if (!lists && covers(factors, count, device_count)) {
    set_replicated(arena, global, 0, out);
    if (global.rank) memcpy((int64_t *)out->counts, counts, sizeof *counts * (size_t)global.rank);
    return check_ids(mesh, device_count, arena);
  }
  int64_t *devices = VT_NEW_ARRAY(arena, int64_t, device_count);
  for (int64_t i = 0; i < device_count; i++) {
    int64_t rest = i, position = 0;
    for (uint32_t f = count; f-- > 0;) {
      position += rest % factors[f].size * factors[f].stride;
      rest /= factors[f].size;
    }
    devices[i] = mesh->device_count ? mesh->device_ids[position] : position;
  }
  return set_tiled(arena, global, device_count, counts, partials, devices, out);
}

static vt_status make(const vt_sharding *sharding, const vt_string *manual_axes,
                      uint32_t manual_count, vt_type global, int32_t device_count, bool lists,
                      vt_arena *arena, vt_tiling *out) {
  assert(device_count >= 1);
  if (!sharding || global.dtype == VT_TOKEN || device_count == 1) {
    set_replicated(arena, global, lists ? device_count : 0, out);
    return VT_OK;
  }
  if (vt_sharding_is_maximal(sharding))
    return set_maximal(arena, global, device_count, sharding->mesh->device_ids[0], out);
  if (sharding->rank != global.rank)
    return vt_error(VT_INVALID_ARGUMENT,
                    "sharding of %" PRId32 " dimensions for an array of %" PRId32, sharding->rank,
                    global.rank);
  return set_from_mesh(sharding, manual_axes, manual_count, global, device_count, lists, arena,
                       out);
}

vt_status vt_tiling_make(const vt_sharding *sharding, const vt_string *manual_axes,
                         uint32_t manual_count, vt_type global, int32_t device_count,
                         vt_arena *arena, vt_tiling *out) {
  return make(sharding, manual_axes, manual_count, global, device_count, true, arena, out);
}

vt_status vt_tiling_counts(const vt_sharding *sharding, vt_type global, int32_t device_count,
                           vt_arena *arena, const int64_t **out_counts) {
  vt_tiling tiling;
  VT_TRY(make(sharding, NULL, 0, global, device_count, false, arena, &tiling));
  *out_counts = tiling.counts;
  return VT_OK;
}

void vt_tiling_range(const vt_tiling *tiling, int32_t device, int64_t *offsets, int64_t *sizes) {
  assert(device >= 0 && device < tiling->device_count && tiling->tile_of_device[device] >= 0);
  int64_t tile = tiling->tile_of_device[device];
  for (int32_t d = tiling->global.rank; d-- > 0;) {
    int64_t whole = tiling->global.dims[d], size = tiling->shard.dims[d];
    int64_t start = tile % tiling->counts[d] * size;
    tile /= tiling->counts[d];
    offsets[d] = start < whole ? start : whole;
    sizes[d] = whole - offsets[d] < size ? whole - offsets[d] : size;
    vt_assert(sizes[d] >= 0 && offsets[d] + sizes[d] <= whole);
  }
}
