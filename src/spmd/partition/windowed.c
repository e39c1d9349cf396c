// SPDX-License-Identifier: Apache-2.0
// windowed.c - the input that a device needs for its share of windows.
//
// Windows over a cut dimension: each tile computes as many as the fullest one, `count`, and needs
// the elements that these lie over, halos included. Padding at the ends becomes elements, so that
// every tile has the same window; only what base dilation leaves over stays padding of the window,
// and where tiles begin at different places between two elements, each computes a few windows more
// and takes its own out of them.
//
// Asking twice for the same costs nothing: inputs are remembered, by the value of the padding too.
#include <string.h>

#include "base/check.h"
#include "spmd/partition/halo.h"

// One dimension.
typedef struct plan {
  bool cut;      // its tiles exchange elements
  int64_t count; // windows per tile
  int32_t tiles; // that take part
  int32_t front, skip;
  int64_t shard; // elements of a tile that take part: [slice_low, slice_high) of what it has
  int64_t slice_low, slice_high;
  int64_t valid;                   // elements of all tiles that take part
  bool mask_first;                 // the array ends within a tile, and padding follows
  int64_t low;                     // padding, in whole elements
  vt_window window;                // over what a tile gets
  int64_t size;                    // of that
  int64_t *start, *limit, *offset; // by tile that takes part; offset NULL: 0
} plan;

_Static_assert(sizeof(vt_window) == 6 * sizeof(uint64_t), "part of a key");

typedef struct plans {
  vt_parter *p;
  vt_arena scratch;
  vt_part part;
  const vt_assign *target;
  vt_value *pad;
  plan dims[VT_MAX_RANK];
} plans;

bool vt_window_is_trivial(vt_window w) {
  return w.size == 1 && w.stride == 1 && !w.low && !w.high && w.base_dilation == 1 &&
         w.window_dilation == 1;
}

static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

// ---- tiles that need not take part --------------------------------------------------------------
// With fewer windows than tiles, tiles at the end, or in the middle before a start far inside, may
// hold nothing that any window needs.

static void leave_out_end(plan *d, vt_window w, int64_t size, int64_t windows) {
  int64_t useful = vt_ceil(size + w.high, d->shard);
  if (useful < windows) useful = windows;
  if (useful >= d->tiles) return;
  d->tiles = (int32_t)useful;
  d->valid = d->shard * d->tiles;
  if (d->valid > size && w.high > 0) {
    d->mask_first = true;
  } else if (d->tiles > 1 && w.high < 0 && size + w.high > 0 && size + w.high < d->shard) {
    d->shard = d->slice_high = size + w.high;
    d->valid = d->shard * d->tiles;
  }
}

static void leave_out_middle(plan *d, int64_t full, int64_t windows) {
  int64_t skip = -d->low / d->shard - windows;
  int64_t missing = d->shard * d->tiles - d->valid; // at the end
  if (skip > d->tiles - windows - 1) skip = d->tiles - windows - 1;
  if (skip <= 0) return;
  d->front = (int32_t)windows;
  d->skip = (int32_t)skip;
  d->tiles -= d->skip;
  d->low += skip * d->shard;
  int64_t unused = -d->low - d->shard * (d->tiles - 1);
  if (unused > 0 && unused < d->shard) { // all of use is on the last tile
    d->shard -= unused;
    d->low += unused * d->tiles;
    d->slice_low = unused;
    if (full < d->shard) {
      unused = d->shard - full;
      d->slice_high -= unused;
      d->low += unused * (d->tiles - 1);
      d->shard = full;
      missing = missing > unused ? missing - unused : 0;
    }
  }
  d->valid = d->shard * d->tiles - missing;
}

// ---- what each tile needs -----------------------------------------------------------------------

// Where the first element of tile i's windows lies, counted from the start of its first window.
static int64_t first_at(const plan *d, int32_t i) {
  vt_window w = d->window;
  return (d->start[i] + d->low) * w.base_dilation + w.low - w.stride * d->count * i;
}

static void find_ranges(plans *all, plan *d, int64_t reach) {
  vt_window w = d->window;
  int64_t b = w.base_dilation, step = w.stride * d->count;
  d->start = VT_NEW_ARRAY(&all->scratch, int64_t, d->tiles);
  d->limit = VT_NEW_ARRAY(&all->scratch, int64_t, d->tiles);
  for (int32_t i = 0; i < d->tiles; i++) {
    int64_t from = step * i + b - 1 - w.low;
    d->start[i] = from / b - d->low;
    d->limit[i] = (from + w.stride * (d->count - 1) + reach) / b - d->low;
    if (d->limit[i] - d->start[i] > d->size) d->size = d->limit[i] - d->start[i];
  }
}

// Padding of the window between dilated elements, and where each tile's own windows begin.
static void pad_between(plans *all, plan *d, int64_t reach) {
  int64_t most = first_at(d, 0), wanted = d->window.stride * (d->count - 1) + reach, high = 0;
  bool same = true;
  for (int32_t i = 0; i < d->tiles; i++) {
    int64_t first = first_at(d, i);
    int64_t missing = wanted - first - (d->size - 1) * d->window.base_dilation - 1;
    if (missing > high) high = missing;
    if (first > most) most = first;
    same = same && first == first_at(d, 0);
  }
  d->window.high = high;
  if (same) return;
  d->offset = VT_NEW_ARRAY(&all->scratch, int64_t, d->tiles);
  for (int32_t i = 0; i < d->tiles; i++) d->offset[i] = most - first_at(d, i);
  d->window.low = most;
}

// `whole`: each device has all of the array. false: windows do not fit, or not in the same way
static bool plan_dim(plans *all, int32_t dim, vt_window w, bool whole) {
  plan *d = &all->dims[dim];
  int64_t size = all->part.global.dims[dim], reach, base, windows;
  *d = (plan){.tiles = all->target->dims[dim], .window = w, .valid = size};
  d->shard = d->slice_high = all->part.local->type.dims[dim];
  if (d->tiles == 1 || vt_window_is_trivial(w)) return true;
  if (!size || !w.size || !vt_window_output(size, w, &windows) || !windows) return false;
  if (!vt_window_spread(w.size, w.window_dilation, &reach)) return false;
  if (!vt_window_spread(size, w.base_dilation, &base)) return false;
  d->count = vt_ceil(windows, d->tiles);
  bool may_skip = !whole && windows < d->tiles && w.window_dilation == 1 && w.base_dilation == 1;
  if (may_skip) leave_out_end(d, w, size, windows);
  if (d->tiles == 1) {
    d->window.high = size + w.high - d->shard;
    return true;
  }
  d->cut = true;
  d->low = floor_div(w.low, w.base_dilation);
  d->window.low = w.low - d->low * w.base_dilation;
  d->window.high = 0;
  if (may_skip && windows < d->tiles) leave_out_middle(d, base + w.low + w.high, windows);
  if (w.stride != 1 && w.stride * d->count % w.base_dilation) return false;
  find_ranges(all, d, reach);
  if (w.base_dilation != 1) pad_between(all, d, reach);
  return d->size > 0;
}

static bool plan_all(plans *all, const vt_window *windows, bool whole) {
  for (int32_t d = 0; d < all->part.global.rank; d++)
    if (!plan_dim(all, d, windows[d], whole)) return false;
  return true;
}

// A number for each tile that takes part, 0 for the others.
static vt_value *lookup(plans *all, int32_t dim, const int64_t *numbers) {
  const plan *d = &all->dims[dim];
  int64_t *table = VT_NEW_ARRAY(&all->scratch, int64_t, all->target->dims[dim]);
  for (int32_t i = 0; i < d->tiles; i++) table[i < d->front ? i : i + d->skip] = numbers[i];
  return vt_emit_by_tile(all->p, all->target, dim, table);
}

// ---- moving elements ----------------------------------------------------------------------------

// The dimensions are whole here: padding, and a slice.
static void slice_whole(plans *all, vt_windowed *out) {
  vt_parter *p = all->p;
  vt_value *v = all->part.local, *offsets[VT_MAX_RANK] = {0};
  vt_value *pad = all->pad ? all->pad : vt_emit_padding(p, all->part.global.dtype);
  vt_type type = v->type;
  for (int32_t dim = 0; dim < type.rank; dim++) {
    const plan *d = &all->dims[dim];
    int64_t size = all->part.global.dims[dim], tile = vt_ceil(size, all->target->dims[dim]);
    if (d->cut) {
      int64_t last = 0;
      int64_t *from = VT_NEW_ARRAY(&all->scratch, int64_t, d->tiles);
      for (int32_t i = 0; i < d->tiles; i++) {
        from[i] = d->start[i] + d->low;
        if (from[i] + d->size > last) last = from[i] + d->size;
      }
      v = vt_emit_pad(p, v, pad, dim, d->low, last - d->low - size);
      offsets[dim] = lookup(all, dim, from);
      type = vt_type_with(p, type, dim, d->size);
    } else if (type.dims[dim] != tile) { // whole, though its windows take each element for itself
      v = vt_emit_pad(p, v, vt_emit_padding(p, type.dtype), dim, 0, tile * d->tiles - size);
      offsets[dim] = vt_emit_offset(p, all->target, dim, tile);
      type = vt_type_with(p, type, dim, tile);
    }
  }
  out->local = vt_emit_dynamic_slice(p, v, offsets, type);
}

static bool exchange_all(plans *all, vt_windowed *out) {
  vt_parter *p = all->p;
  uint32_t mask = 0;
  for (int32_t dim = 0; dim < all->part.global.rank; dim++)
    if (all->dims[dim].mask_first) mask |= 1u << dim;
  vt_value *v = all->part.local;
  if (mask && all->pad) v = vt_mask(p, all->part, mask, all->pad);
  for (int32_t dim = 0; dim < all->part.global.rank; dim++)
    v = vt_emit_slice(p, v, dim, all->dims[dim].slice_low, all->dims[dim].slice_high);
  for (int32_t dim = 0; dim < all->part.global.rank; dim++) {
    const plan *d = &all->dims[dim];
    vt_halo halo = {dim,     d->tiles, d->front, d->skip,    d->valid,
                    d->size, d->start, d->limit, VT_HALO_ANY};
    if (d->cut && !vt_exchange_halo(p, all->target, v, &halo, all->pad, &v)) return false;
  }
  out->local = v;
  return true;
}

static void set_windows(plans *all, vt_windowed *out) {
  for (int32_t dim = 0; dim < all->part.global.rank; dim++) {
    const plan *d = &all->dims[dim];
    out->windows[dim] = d->window;
    out->offsets[dim] = d->offset ? lookup(all, dim, d->offset) : NULL;
  }
}

static bool reshard_windowed(vt_parter *p, vt_part part, const vt_window *windows,
                             const vt_assign *target, vt_value *pad, vt_windowed *out) {
  uint32_t windowed = 0;
  for (int32_t d = 0; d < part.global.rank; d++)
    if (!vt_window_is_trivial(windows[d])) windowed |= 1u << d;
  const vt_assign *gathered = vt_assign_replicate(&p->assigns, target, windowed);
  if (!vt_assign_is_cut(target)) return false;
  bool whole =
      vt_assign_is_whole(part.assign) || (part.assign != target && part.assign == gathered);
  if (!whole && part.assign != target) part = vt_reshard(p, part, target);
  plans all = {.p = p, .part = part, .target = target, .pad = pad};
  bool done = plan_all(&all, windows, whole);
  if (done && !whole && !exchange_all(&all, out)) {
    // Halos would reach over most of the array: the dimensions become whole.
    vt_arena_free(&all.scratch);
    return reshard_windowed(p, vt_reshard(p, part, gathered), windows, target, pad, out);
  }
  if (done && whole) slice_whole(&all, out);
  if (done) set_windows(&all, out);
  vt_arena_free(&all.scratch);
  return done;
}

bool vt_reshard_windowed(vt_parter *p, vt_part part, const vt_window *windows,
                         const vt_assign *target, vt_value *pad, vt_windowed *out) {
  uint64_t key[5 + 7 * VT_MAX_RANK] = {(uintptr_t)p->groups, (uintptr_t)part.local,
                                       (uintptr_t)part.assign, (uintptr_t)target, (uintptr_t)pad};
  size_t rank = (size_t)part.global.rank, size = (5 + 7 * rank) * sizeof *key;
  for (size_t d = 0; d < rank; d++) key[5 + d] = (uint64_t)part.global.dims[d];
  memcpy(key + 5 + rank, windows, rank * sizeof *windows);
  const vt_windowed *known = vt_map_find(&p->windowed, key, size);
  if (known) {
    *out = *known;
    return true;
  }
  if (!reshard_windowed(p, part, windows, target, pad, out)) return false;
  vt_windowed *kept = VT_NEW(&p->module->arena, vt_windowed);
  *kept = *out;
  *vt_map_at(&p->windowed, key, size) = kept;
  return true;
}

// ---- results ------------------------------------------------------------------------------------

vt_type vt_windowed_type(vt_parter *p, const vt_windowed *w, vt_dtype dtype) {
  int64_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < w->local->type.rank; d++) {
    bool fits = vt_window_output(w->local->type.dims[d], w->windows[d], &dims[d]);
    vt_assert(fits);
    (void)fits;
  }
  return vt_type_of_dims(p, dtype, w->local->type.rank, dims);
}

vt_value *vt_windowed_result(vt_parter *p, const vt_windowed *w, vt_value *result, vt_type type) {
  return vt_emit_dynamic_slice(p, result, w->offsets, type);
}
