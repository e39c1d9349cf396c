// SPDX-License-Identifier: Apache-2.0
// index.c - gather and scatter.
//
// There are five ways to take cut dimensions away, each of which enters groups of devices and
// leaves the rest to be cut again there:
//   batch, parallel  operand, indices and windows are cut alike along batching dimensions, or
//                    dimensions along which the index counts
//   covered          windows are as large as the operand along the dimension: both are cut
//   single           windows are single elements along indexed dimensions: each device looks up
//                    what falls into its tile; what it has not is zero, and the results are added.
//                    A scatter drops what falls outside by itself
//   positions        the indices are cut: each device looks up some. A scatter puts some into
//                    an operand that holds the neutral element, and the results are reduced
// Of those that apply, the first two go before all others; the others by what they would cost:
// each is tried in a function of its own, and the largest gather or collective counts, then what is
// communicated. These are the choices of XLA's partitioner.
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "spmd/partition/index.h"

enum { MAX_OPERANDS = 8 }; // scatters of more arrays at once run whole

// What is still to be partitioned, as the current group sees it. The windows of a gather have no
// value: they say how the result should be cut.
typedef struct index_case {
  const vt_indexing *x;
  bool last;    // nothing may be cut any more: to learn what one step costs
  bool shifted; // indices are those within a tile: they do not count along a dimension any more
  vt_part operands[MAX_OPERANDS], indices, windows[MAX_OPERANDS];
  const vt_assign *wanted; // of the results
} index_case;

typedef bool index_method(vt_parter *p, index_case c, vt_part *out);
static void partition_case(vt_parter *p, const index_case *c, vt_part *out);

// ---- assignments --------------------------------------------------------------------------------

static uint32_t mask_of(int32_t count, const int32_t *dims) {
  uint32_t mask = 0;
  for (int32_t i = 0; i < count; i++) mask |= 1u << dims[i];
  return mask;
}

static int32_t tiles_along(const vt_assign *a, int32_t count, const int32_t *dims) {
  int32_t tiles = 1;
  for (int32_t i = 0; i < count; i++) tiles *= a->dims[dims[i]];
  return tiles;
}

// Cuts `into` further as `by` is cut. false, and nothing changed: they do not fit, or nothing is
// gained.
static bool refine(vt_parter *p, const vt_assign *by, const vt_assign **into) {
  const vt_assign *finer = vt_assign_join(&p->assigns, *into, by);
  if (finer) *into = finer;
  return finer;
}

// Takes prime factors of the tiles of `dims`, in that order, until `needed` is 1.
static int32_t borrow(int32_t needed, int32_t count, const int32_t *dims, int32_t *tiles) {
  for (int32_t i = 0; i < count; i++)
    for (int32_t left = tiles[dims[i]], factor = 2; left > 1 && needed > 1;) {
      if (left % factor) {
        factor++;
        continue;
      }
      left /= factor;
      if (needed % factor) continue;
      needed /= factor;
      tiles[dims[i]] /= factor;
    }
  return needed;
}

// Groups of devices that hold the same: from its copies if there are enough, or else by giving up
// tiles along `dims`, first ones first, or else of the whole array. The order of devices means
// nothing: it must be aligned to other groups.
static vt_grouping group_copies(vt_parter *p, const vt_assign *a, int32_t groups, int32_t count,
                                const int32_t *dims) {
  int32_t rank = a->rank, shards, tiles[VT_MAX_RANK];
  if (vt_assign_is_cut(a) && a->copies % groups == 0) {
    shards = a->copies / groups;
    return vt_group_on(&p->assigns, a, 1, &rank, &shards);
  }
  memcpy(tiles, a->dims, sizeof *tiles * (size_t)rank);
  if (vt_assign_is_cut(a) && groups % a->copies == 0 &&
      borrow(groups / a->copies, count, dims, tiles) == 1)
    a = vt_assign_make(&p->assigns, rank, tiles, groups, NULL);
  else
    a = vt_assign_whole(&p->assigns, rank, p->device_count);
  shards = a->copies / groups;
  return vt_group_on(&p->assigns, a, 1, &rank, &shards);
}

static vt_grouping align(vt_parter *p, vt_grouping g, vt_grouping to) {
  return vt_align(&p->assigns, g, to.groups, false);
}

static vt_grouping group_on(vt_parter *p, const vt_assign *a, int32_t count, const int32_t *dims) {
  return vt_group_on(&p->assigns, a, count, dims, NULL);
}

// Assignments of windows from those of indices, and back: along all positions.
static const vt_assign *windows_like_indices(vt_parter *p, const vt_indexing *x,
                                             const vt_assign *a) {
  return vt_assign_along(p, a, x->positions.count, x->positions.indices, x->positions.windows,
                         x->windows.rank);
}
static const vt_assign *indices_like_windows(vt_parter *p, const vt_indexing *x,
                                             const vt_assign *a) {
  return vt_assign_along(p, a, x->positions.count, x->positions.windows, x->positions.indices,
                         x->indices.rank);
}

// ---- what is given up first ---------------------------------------------------------------------
// Lists of dimensions for group_copies.

static int32_t add_unless(int32_t n, int32_t rank, uint32_t not_these, int32_t *out) {
  for (int32_t d = 0; d < rank; d++)
    if (!(not_these >> d & 1)) out[n++] = d;
  return n;
}

static int32_t append(int32_t n, int32_t count, const int32_t *dims, int32_t *out) {
  memcpy(out + n, dims, sizeof *dims * (size_t)count);
  return n + count;
}

// Indexed dimensions of which windows take one element.
static int32_t single_dims(const vt_indexing *x, int32_t *out) {
  int32_t count = 0;
  for (int32_t i = 0; i < x->map_count; i++)
    if (x->sizes[x->map[i]] == 1) out[count++] = x->map[i];
  return count;
}

static vt_grouping copies_of_operand(vt_parter *p, const index_case *c, int32_t groups) {
  const vt_indexing *x = c->x;
  int32_t dims[2 * VT_MAX_RANK], n = single_dims(x, dims);
  n = append(n, x->covered.count, x->covered.operand, dims);
  return group_copies(p, c->operands[0].assign, groups, n, dims);
}

static vt_grouping copies_of_indices(vt_parter *p, const vt_indexing *x, const vt_assign *a,
                                     int32_t groups) {
  int32_t dims[VT_MAX_RANK + 1], n = 0;
  uint32_t batch = mask_of(x->batch.count, x->batch.indices);
  if (x->vector_dim < x->indices.rank) {
    dims[n++] = x->vector_dim;
    batch |= 1u << x->vector_dim;
  }
  n = add_unless(n, x->indices.rank, batch, dims);
  n = append(n, x->batch.count, x->batch.indices, dims);
  return group_copies(p, a, groups, n, dims);
}

static vt_grouping copies_of_windows(vt_parter *p, const vt_indexing *x, const vt_assign *a,
                                     int32_t groups) {
  int32_t dims[VT_MAX_RANK];
  int32_t n = add_unless(0, x->windows.rank, mask_of(x->covered.count, x->covered.windows), dims);
  n = append(n, x->covered.count, x->covered.windows, dims);
  return group_copies(p, a, groups, n, dims);
}

// ---- steps --------------------------------------------------------------------------------------

static vt_value *emit_number(vt_parter *p, vt_dtype dtype, int64_t number) {
  vt_value *v = vt_emit_s32(p, number);
  return dtype == VT_S32 ? v : vt_emit1(p, VT_OP_CONVERT, (vt_type){dtype, 0, NULL}, v);
}

// Indices of a scatter that lie in padding point nowhere.
static vt_part mask_indices(vt_parter *p, const vt_indexing *x, vt_part part) {
  if (x->scatter) part.local = vt_mask(p, part, ~0u, emit_number(p, part.global.dtype, -1));
  return part;
}

static vt_part reshard_indices(vt_parter *p, const vt_indexing *x, vt_part part,
                               const vt_assign *to) {
  return part.assign == to ? part : mask_indices(p, x, vt_reshard(p, part, to));
}

static vt_part enter_part(vt_parter *p, vt_part part, const vt_grouping *g) {
  if (part.local) part = vt_reshard(p, part, vt_ungroup(&p->assigns, g));
  return vt_part_in(p, part, g);
}

// Everything comes into its groups and is partitioned there. The results are as the windows of a
// gather and as the operands of a scatter are.
static void in_groups(vt_parter *p, const index_case *c, vt_grouping operand, vt_grouping indices,
                      vt_grouping windows, vt_part *out) {
  index_case inner = *c;
  vt_grouping result = c->x->scatter ? operand : windows;
  inner.indices = reshard_indices(p, c->x, c->indices, vt_ungroup(&p->assigns, &indices));
  inner.indices = vt_part_in(p, inner.indices, &indices);
  for (uint32_t i = 0; i < c->x->count; i++) {
    inner.operands[i] = enter_part(p, c->operands[i], &operand);
    inner.windows[i] = enter_part(p, c->windows[i], &windows);
  }
  inner.wanted = result.inner;
  const vt_groups *before = vt_enter(p, result.groups);
  partition_case(p, &inner, out);
  vt_leave(p, before);
  for (uint32_t i = 0; i < c->x->count; i++)
    out[i] = vt_part_out(p, out[i], result,
                         c->x->scatter ? c->operands[i].global : c->windows[i].global);
}

static void to_wanted(vt_parter *p, const index_case *c, vt_part *out) {
  for (uint32_t i = 0; i < c->x->count; i++) out[i] = vt_reshard(p, out[i], c->wanted);
}

// One number per component, over the shape of the indices. NULL = 0.
static vt_value *per_component(vt_parter *p, const vt_indexing *x, vt_type like,
                               vt_value *const *numbers) {
  vt_value *pieces[VT_MAX_RANK];
  for (int32_t i = 0; i < x->map_count; i++) {
    pieces[i] = numbers[i] ? numbers[i] : vt_emit_s32(p, 0);
    if (like.dtype != VT_S32)
      pieces[i] = vt_emit1(p, VT_OP_CONVERT, (vt_type){like.dtype, 0, NULL}, pieces[i]);
  }
  if (x->vector_dim == x->indices.rank) return vt_emit_splat(p, like, pieces[0]);
  for (int32_t i = 0; i < x->map_count; i++)
    pieces[i] = vt_emit_reshape(p, pieces[i], 1, (int64_t[]){1});
  vt_value *row = vt_emit_concat(p, (uint32_t)x->map_count, pieces, 0);
  return vt_emit_broadcast(p, row, like, (int64_t[]){x->vector_dim});
}

// Where this device's tile begins along indexed dimensions of `mask`, per component.
static vt_value *tile_starts(vt_parter *p, const index_case *c, uint32_t mask, vt_type like) {
  vt_value *numbers[VT_MAX_RANK] = {0};
  vt_part operand = c->operands[0];
  for (int32_t i = 0; i < c->x->map_count; i++) {
    int32_t d = c->x->map[i];
    if (mask >> d & 1 && operand.assign->dims[d] > 1)
      numbers[i] = vt_emit_offset(p, operand.assign, d, operand.local->type.dims[d]);
  }
  return per_component(p, c->x, like, numbers);
}

// ---- batching and parallel dimensions -----------------------------------------------------------

// The assignment with the devices of `reference` along its dimensions `dims`: tiles there trade
// places.
static const vt_assign *align_along(vt_parter *p, const vt_assign *a, const vt_assign *reference,
                                    int32_t count, const int32_t *dims,
                                    const int32_t *reference_dims) {
  vt_grouping g = group_on(p, a, count, dims);
  g = align(p, g, group_on(p, reference, count, reference_dims));
  return vt_ungroup(&p->assigns, &g);
}

// Tiles along `dims` become as many as `to` has along its dimensions, out of the copies. NULL: they
// cannot
static const vt_assign *more_tiles(vt_parter *p, const vt_assign *a, const vt_assign *to,
                                   int32_t count, const int32_t *dims, const int32_t *to_dims) {
  int32_t tiles[VT_MAX_RANK], copies = a->copies;
  bool as_many = tiles_along(a, count, dims) == tiles_along(to, count, to_dims);
  memcpy(tiles, a->dims, sizeof *tiles * (size_t)a->rank);
  for (int32_t i = 0; i < count; i++) {
    int32_t want = to->dims[to_dims[i]];
    if (as_many) {
      tiles[dims[i]] = want;
      continue;
    }
    if (want % tiles[dims[i]] || copies % (want / tiles[dims[i]])) return NULL;
    copies /= want / tiles[dims[i]];
    tiles[dims[i]] = want;
  }
  return vt_assign_reshape(&p->assigns, a, a->rank, tiles, copies);
}

// Brings operand and indices to equal tiles along the dimensions. false: they have none, or do not
// fit
static bool match_parallel(vt_parter *p, const vt_index_dims *dims, const vt_assign **operand,
                           const vt_assign **indices) {
  int32_t n = dims->count;
  int32_t operand_tiles = tiles_along(*operand, n, dims->operand);
  int32_t index_tiles = tiles_along(*indices, n, dims->indices);
  if (operand_tiles == 1 && index_tiles == 1) return false;
  if (vt_assign_is_whole(*indices)) {
    *indices = vt_assign_along(p, *operand, n, dims->operand, dims->indices, (*indices)->rank);
    return true;
  }
  if (vt_assign_is_whole(*operand)) {
    *operand = vt_assign_along(p, *indices, n, dims->indices, dims->operand, (*operand)->rank);
    return true;
  }
  if (index_tiles < operand_tiles) {
    const vt_assign *more = more_tiles(p, *indices, *operand, n, dims->indices, dims->operand);
    if (!more) return false;
    *indices = align_along(p, more, *operand, n, dims->indices, dims->operand);
    return true;
  }
  const vt_assign *more = more_tiles(p, *operand, *indices, n, dims->operand, dims->indices);
  if (!more) return false;
  *operand = align_along(p, more, *indices, n, dims->operand, dims->indices);
  return true;
}

static bool along(vt_parter *p, index_case c, const vt_index_dims *dims, bool counts,
                  vt_part *out) {
  const vt_indexing *x = c.x;
  const vt_assign *operand = c.operands[0].assign, *indices = c.indices.assign;
  if (!dims->count || !match_parallel(p, dims, &operand, &indices)) return false;
  for (uint32_t i = 0; i < x->count; i++) c.operands[i] = vt_reshard(p, c.operands[i], operand);
  c.indices = reshard_indices(p, x, c.indices, indices);
  const vt_assign *windows = windows_like_indices(p, x, indices);
  const vt_assign *rest =
      vt_assign_replicate(&p->assigns, operand, mask_of(dims->count, dims->operand));
  rest = vt_assign_along(p, rest, x->covered.count, x->covered.operand, x->covered.windows,
                         x->windows.rank);
  refine(p, rest, &windows);
  for (uint32_t i = 0; i < x->count; i++) {
    if (x->scatter) c.windows[i] = vt_reshard(p, c.windows[i], windows);
    c.windows[i].assign = windows;
  }
  if (counts) {
    vt_type type = c.indices.local->type;
    vt_value *starts = tile_starts(p, &c, mask_of(dims->count, dims->operand), type);
    c.indices.local = vt_emit2(p, VT_OP_SUBTRACT, type, c.indices.local, starts);
  }
  vt_grouping g = group_on(p, indices, dims->count, dims->indices);
  in_groups(p, &c, align(p, group_on(p, operand, dims->count, dims->operand), g), g,
            align(p, group_on(p, windows, dims->count, dims->windows), g), out);
  to_wanted(p, &c, out);
  return true;
}

static bool along_batch(vt_parter *p, index_case c, vt_part *out) {
  return along(p, c, &c.x->batch, false, out);
}
static bool along_parallel(vt_parter *p, index_case c, vt_part *out) {
  return !c.shifted && along(p, c, &c.x->parallel, true, out);
}

// ---- windows that cover the operand -------------------------------------------------------------

static bool along_covered(vt_parter *p, index_case c, vt_part *out) {
  const vt_index_dims *dims = &c.x->covered;
  const vt_assign *operand = c.operands[0].assign;
  int32_t groups = tiles_along(operand, dims->count, dims->operand);
  if (groups == 1) return false;
  const vt_assign *windows =
      vt_assign_along(p, operand, dims->count, dims->operand, dims->windows, c.x->windows.rank);
  int32_t window_dims[VT_MAX_RANK], n = 0;
  for (int32_t d = 0; d < windows->rank; d++)
    if (windows->dims[d] > 1) window_dims[n++] = d;
  refine(p, c.windows[0].assign, &windows);
  vt_grouping g = group_on(p, windows, n, window_dims);
  in_groups(p, &c, align(p, group_on(p, operand, dims->count, dims->operand), g),
            align(p, copies_of_indices(p, c.x, c.indices.assign, groups), g), g, out);
  to_wanted(p, &c, out);
  return true;
}

// ---- single elements of indexed dimensions ------------------------------------------------------

// Where an index does not fall into this device's tile: a boolean for each position. Devices of one
// group agree, those of others do not.
static vt_value *elsewhere(vt_parter *p, const index_case *c, vt_value *low, vt_value *high,
                           const vt_grouping *indices, const vt_grouping *windows) {
  const vt_indexing *x = c->x;
  vt_part part = c->indices;
  vt_value *below = vt_emit_compare(p, VT_CMP_LT, part.local, low);
  vt_value *above = vt_emit_compare(p, VT_CMP_GT, part.local, high);
  part.local = vt_emit2(p, VT_OP_OR, below->type, below, above);
  part.global.dtype = VT_PRED;
  part = vt_part_in(p, part, indices);
  const vt_groups *before = vt_enter(p, windows->groups);
  part = vt_reshard(p, part, indices_like_windows(p, x, windows->inner));
  vt_leave(p, before);
  if (x->vector_dim == x->indices.rank) return part.local;
  int64_t dims[VT_MAX_RANK];
  int32_t rank = 0;
  for (int32_t d = 0; d < part.global.rank; d++)
    if (d != x->vector_dim) dims[rank++] = part.local->type.dims[d];
  vt_value *any = NULL;
  for (int32_t i = 0; i < x->map_count; i++) {
    vt_value *one = vt_emit_slice(p, part.local, x->vector_dim, i, i + 1);
    one = vt_emit_reshape(p, one, rank, dims);
    any = any ? vt_emit2(p, VT_OP_OR, one->type, any, one) : one;
  }
  return any;
}

static vt_value *clamp(vt_parter *p, vt_value *v, vt_value *low, vt_value *high) {
  return vt_emit(p, VT_OP_CLAMP, v->type, 3, (vt_value *[]){low, v, high});
}

// The last elements of the array, or of this device's tile, per component.
static vt_value *last_elements(vt_parter *p, const index_case *c, bool of_tile, uint32_t mask) {
  vt_value *numbers[VT_MAX_RANK];
  vt_part operand = c->operands[0];
  for (int32_t i = 0; i < c->x->map_count; i++) {
    int32_t d = c->x->map[i];
    bool cut = of_tile && mask >> d & 1;
    numbers[i] = vt_emit_s32(p, (cut ? operand.local->type.dims[d] : operand.global.dims[d]) - 1);
  }
  return per_component(p, c->x, c->indices.local->type, numbers);
}

static void gather_single(vt_parter *p, index_case c, uint32_t mask, vt_grouping operand,
                          vt_grouping indices, vt_grouping windows, vt_part *out) {
  vt_type type = c.indices.local->type;
  vt_value *zero = vt_emit_splat(p, type, vt_emit_zero(p, type.dtype));
  c.indices.local = clamp(p, c.indices.local, zero, last_elements(p, &c, false, mask));
  vt_value *low = tile_starts(p, &c, mask, type), *own = last_elements(p, &c, true, mask);
  vt_value *high = vt_emit2(p, VT_OP_ADD, type, low, own);
  index_case shifted = c;
  shifted.indices.local =
      vt_emit2(p, VT_OP_SUBTRACT, type, clamp(p, c.indices.local, low, high), low);
  in_groups(p, &shifted, operand, indices, windows, out);
  vt_value *away = elsewhere(p, &c, low, high, &indices, &windows);
  int64_t dims[VT_MAX_RANK];
  for (int32_t i = 0; i < c.x->positions.count; i++) dims[i] = c.x->positions.windows[i];
  vt_type result = out->local->type, pred = result;
  pred.dtype = VT_PRED;
  away = vt_emit_broadcast(p, away, pred, dims);
  vt_value *nothing = vt_emit_splat(p, result, vt_emit_nothing(p, result.dtype));
  vt_value *mine = vt_emit_select(p, away, nothing, out->local);
  out->local = vt_emit_reduce_along(p, mine, NULL, c.operands[0].assign, mask);
}

static bool along_single(vt_parter *p, index_case c, vt_part *out) {
  const vt_indexing *x = c.x;
  const vt_assign *operand_at = c.operands[0].assign;
  int32_t dims[VT_MAX_RANK], count = single_dims(x, dims);
  int32_t groups = tiles_along(operand_at, count, dims);
  if (groups == 1) return false;
  uint32_t mask = mask_of(count, dims);
  vt_grouping operand = group_on(p, operand_at, count, dims);
  vt_grouping indices = align(p, copies_of_indices(p, x, c.indices.assign, groups), operand);
  vt_grouping windows = align(p, copies_of_windows(p, x, c.windows[0].assign, groups), operand);
  // If only one of both stays cut within the groups, the other follows.
  bool indices_whole = vt_assign_is_whole(indices.inner);
  bool windows_whole = vt_assign_is_whole(windows.inner);
  if (!indices_whole && windows_whole)
    windows = align(
        p, copies_of_windows(p, x, windows_like_indices(p, x, c.indices.assign), groups), operand);
  if (indices_whole && !windows_whole)
    indices =
        align(p, copies_of_indices(p, x, indices_like_windows(p, x, c.windows[0].assign), groups),
              operand);
  c.indices = reshard_indices(p, x, c.indices, vt_ungroup(&p->assigns, &indices));
  c.shifted = true;
  if (x->scatter) {
    vt_type type = c.indices.local->type;
    c.indices.local =
        vt_emit2(p, VT_OP_SUBTRACT, type, c.indices.local, tile_starts(p, &c, mask, type));
    in_groups(p, &c, operand, indices, windows, out);
  } else {
    gather_single(p, c, mask, operand, indices, windows, out);
  }
  to_wanted(p, &c, out);
  return true;
}

// ---- indices in pieces --------------------------------------------------------------------------

static vt_value *emit_scalar(vt_parter *p, vt_dtype dtype, uint8_t fill, uint8_t top) {
  vt_literal *literal = VT_NEW(&p->module->arena, vt_literal);
  uint8_t *data = vt_arena_push(&p->module->arena, 16);
  memset(data, fill, 16);
  data[vt_dtype_bytes(dtype) - 1] = top;
  *literal = (vt_literal){{dtype, 0, NULL}, data, true};
  return vt_emit_literal(p, literal);
}

static vt_value *infinity(vt_parter *p, vt_dtype dtype, bool negative) {
  vt_literal *literal = VT_NEW(&p->module->arena, vt_literal);
  float *data = VT_NEW(&p->module->arena, float);
  *data = negative ? -INFINITY : INFINITY;
  *literal = (vt_literal){{VT_F32, 0, NULL}, data, true};
  vt_value *v = vt_emit_literal(p, literal);
  return dtype == VT_F32 ? v : vt_emit1(p, VT_OP_CONVERT, (vt_type){dtype, 0, NULL}, v);
}

// What changes nothing in a maximum or minimum. NULL: the type has no such number
static vt_value *extreme(vt_parter *p, vt_dtype dtype, bool lowest) {
  vt_dtype_kind kind = vt_dtype_kind_of(dtype);
  if (kind == VT_KIND_BOOL) return emit_scalar(p, dtype, 0, !lowest);
  if (kind == VT_KIND_FLOAT)
    return vt_dtype_get(dtype)->bits >= 16 ? infinity(p, dtype, lowest) : NULL;
  if (vt_dtype_get(dtype)->bits < 8 || !vt_dtype_is_integer(dtype)) return NULL;
  if (kind == VT_KIND_UNSIGNED) return emit_scalar(p, dtype, lowest ? 0 : 0xff, lowest ? 0 : 0xff);
  return emit_scalar(p, dtype, lowest ? 0 : 0xff, lowest ? 0x80 : 0x7f);
}

// What changes nothing in a reduction by the op. NULL: nothing does, or it is not known
static vt_value *neutral_element(vt_parter *p, vt_opcode code, vt_dtype dtype) {
  switch (code) {
  case VT_OP_ADD:
  case VT_OP_OR:
    return vt_emit_nothing(p, dtype);
  case VT_OP_MULTIPLY:
    return emit_number(p, dtype, 1);
  case VT_OP_AND:
    return dtype == VT_PRED ? emit_scalar(p, dtype, 0, 1) : emit_number(p, dtype, -1);
  case VT_OP_MAXIMUM:
  case VT_OP_MINIMUM:
    return extreme(p, dtype, code == VT_OP_MAXIMUM);
  default:
    return NULL;
  }
}

// The operand on the first device along the cut dimensions of the indices, the neutral element on
// the others.
static bool operand_once(vt_parter *p, const index_case *c, vt_part *operand) {
  if (c->x->count != 1) return false;
  vt_opcode code = vt_plain_reducer(c->x->op->regions[0]);
  vt_value *neutral = neutral_element(p, code, operand->global.dtype);
  if (!neutral) return false;
  const vt_index_dims *dims = &c->x->free;
  vt_value *place = vt_emit_s32(p, 0);
  for (int32_t i = 0; i < dims->count; i++)
    if (c->indices.assign->dims[dims->indices[i]] > 1)
      place = vt_emit2(p, VT_OP_ADD, place->type, place,
                       vt_emit_offset(p, c->indices.assign, dims->indices[i], 1));
  vt_type pred = operand->local->type;
  pred.dtype = VT_PRED;
  vt_value *first = vt_emit_compare(p, VT_CMP_EQ, place, vt_emit_s32(p, 0));
  operand->local = vt_emit_select(p, vt_emit_splat(p, pred, first), operand->local,
                                  vt_emit_splat(p, operand->local->type, neutral));
  return true;
}

static bool along_positions(vt_parter *p, index_case c, vt_part *out) {
  const vt_indexing *x = c.x;
  const vt_index_dims *dims = &x->free;
  const vt_assign *at = c.indices.assign;
  if (vt_assign_is_whole(at)) return false;
  const vt_assign *finer = vt_assign_along(p, c.windows[0].assign, dims->count, dims->windows,
                                           dims->indices, x->indices.rank);
  if (refine(p, finer, &at)) c.indices = reshard_indices(p, x, c.indices, at);
  int32_t groups = tiles_along(at, dims->count, dims->indices);
  if (groups == 1) return false;
  const vt_assign *windows =
      vt_assign_along(p, at, dims->count, dims->indices, dims->windows, x->windows.rank);
  const vt_assign *refined = windows; // along the windows' own dimensions
  refine(p, c.windows[0].assign, &refined);
  if (tiles_along(refined, dims->count, dims->windows) == groups) windows = refined;
  vt_grouping g = group_on(p, windows, dims->count, dims->windows);
  vt_grouping operand = align(p, copies_of_operand(p, &c, groups), g);
  if (x->scatter) {
    c.operands[0] = vt_reshard(p, c.operands[0], vt_ungroup(&p->assigns, &operand));
    if (!operand_once(p, &c, &c.operands[0])) return false;
  }
  in_groups(p, &c, operand, align(p, group_on(p, at, dims->count, dims->indices), g), g, out);
  if (x->scatter)
    out->local = vt_emit_reduce_along(p, out->local, x->op->regions[0], windows,
                                      mask_of(dims->count, dims->windows));
  to_wanted(p, &c, out);
  return true;
}

// ---- choosing -----------------------------------------------------------------------------------

static index_method *const methods[] = {along_batch, along_parallel, along_covered, along_single,
                                        along_positions};
enum { METHODS = sizeof methods / sizeof *methods, FREE_METHODS = 2 };

// The op on whole arrays of the group; windows that cover a dimension cover what the group has of
// it.
static void emit_case(vt_parter *p, const index_case *c, vt_part *out) {
  const vt_indexing *x = c->x;
  vt_value *operands[2 * MAX_OPERANDS + 1];
  vt_type types[MAX_OPERANDS];
  vt_part indices = c->indices;
  indices = vt_reshard(p, indices, vt_assign_whole(&p->assigns, x->indices.rank, p->device_count));
  operands[x->count] = indices.local;
  int64_t sizes[VT_MAX_RANK];
  memcpy(sizes, x->sizes, sizeof sizes);
  for (int32_t i = 0; i < x->covered.count; i++)
    sizes[x->covered.operand[i]] = c->operands[0].global.dims[x->covered.operand[i]];
  const vt_assign *operand_at = vt_assign_whole(&p->assigns, x->operand.rank, p->device_count);
  const vt_assign *windows_at = vt_assign_whole(&p->assigns, x->windows.rank, p->device_count);
  for (uint32_t i = 0; i < x->count; i++) {
    operands[i] = vt_reshard(p, c->operands[i], operand_at).local;
    if (x->scatter) operands[x->count + 1 + i] = vt_reshard(p, c->windows[i], windows_at).local;
    types[i] = x->scatter ? c->operands[i].global : c->windows[i].global;
  }
  vt_arena scratch = {0};
  vt_op op = *x->op;
  op.attrs = VT_NEW_ARRAY(&scratch, vt_attr, op.attr_count + 1);
  memcpy(op.attrs, x->op->attrs, sizeof *op.attrs * op.attr_count);
  for (uint32_t i = 0; i < op.attr_count; i++) { // indices have been shifted and masked
    if (op.attrs[i].key == VT_ATTR_INDICES_ARE_SORTED) op.attrs[i].i64 = 0;
    if (op.attrs[i].key == VT_ATTR_SLICE_SIZES)
      op.attrs[i].ints = (const int64_t *)vt_arena_copy(&p->module->arena, sizes,
                                                        sizeof *sizes * (size_t)x->operand.rank);
  }
  vt_op *local = vt_emit_copies(p, &op, types, x->scatter ? 2 * x->count + 1 : 2, operands);
  vt_arena_free(&scratch);
  for (uint32_t i = 0; i < x->count; i++)
    out[i] =
        vt_reshard(p, (vt_part){types[i], &local->results[i], x->scatter ? operand_at : windows_at},
                   c->wanted);
}

typedef struct index_cost {
  int64_t memory, communication;
} index_cost;

// Results that may take their operand's memory cost none.
static bool is_in_place(vt_opcode code) {
  return code == VT_OP_SCATTER || code == VT_OP_ALL_REDUCE;
}

static int64_t bytes_sent(const vt_op *op, int64_t results) {
  if (op->code == VT_OP_ALL_REDUCE) return 2 * results;
  if (op->code == VT_OP_COLLECTIVE_PERMUTE) return results;
  int64_t size = vt_attr_literal(op, VT_ATTR_REPLICA_GROUPS)->type.dims[1];
  return results * (size - 1) / size;
}

// Bytes of operands and results of the largest gather, scatter or collective; bytes sent.
static index_cost cost_of_func(vt_func *func, vt_opcode code) {
  index_cost cost = {0};
  vt_arena scratch = {0};
  uint32_t *uses = vt_func_use_counts(func, &scratch);
  for (const vt_op *op = func->last; op; op = op->prev) {
    bool used = false, collective = vt_op_info_get(op->code)->flags & VT_OPF_COLLECTIVE;
    int64_t results = 0, memory = 0;
    for (uint32_t i = 0; i < op->result_count; i++) {
      used = used || uses[op->results[i].id];
      results += vt_type_bytes(op->results[i].type);
    }
    for (uint32_t i = 0; i < op->operand_count; i++) {
      if (!used) uses[op->operands[i]->id]--;
      memory += vt_type_bytes(op->operands[i]->type);
    }
    if (!used || !(collective || op->code == code)) continue;
    if (!is_in_place(op->code)) memory += results;
    if (memory > cost.memory) cost.memory = memory;
    if (collective) cost.communication += bytes_sent(op, results);
  }
  vt_arena_free(&scratch);
  return cost;
}

static void to_param(vt_parter *p, vt_part *part) {
  if (part->local) part->local = vt_func_add_param(p->func, part->local->type);
}

static index_cost cost_of(vt_parter *p, const index_case *c, index_method *method) {
  static const index_cost never = {INT64_MAX, INT64_MAX};
  index_case trial = *c;
  vt_part out[MAX_OPERANDS];
  vt_value *returns[MAX_OPERANDS];
  vt_func *before = p->func;
  p->func = vt_func_create(p->module, "");
  trial.last = true;
  to_param(p, &trial.indices);
  for (uint32_t i = 0; i < c->x->count; i++) {
    to_param(p, &trial.operands[i]);
    to_param(p, &trial.windows[i]);
  }
  bool done = method(p, trial, out);
  for (uint32_t i = 0; i < c->x->count && done; i++) returns[i] = out[i].local;
  if (done) vt_func_set_returns(p->func, c->x->count, returns);
  index_cost cost = done ? cost_of_func(p->func, c->x->op->code) : never;
  p->func = before;
  return done && cost.memory ? cost : never;
}

static bool is_cheaper(index_cost a, index_cost b) {
  return a.memory != b.memory ? a.memory < b.memory : a.communication < b.communication;
}

static void partition_case(vt_parter *p, const index_case *c, vt_part *out) {
  index_method *order[METHODS];
  index_cost costs[METHODS];
  if (c->last || p->device_count == 1) {
    emit_case(p, c, out);
    return;
  }
  for (int32_t i = 0; i < METHODS; i++) {
    index_cost cost = i < FREE_METHODS ? (index_cost){0} : cost_of(p, c, methods[i]);
    int32_t at = i;
    for (; at > 0 && is_cheaper(cost, costs[at - 1]); at--) {
      order[at] = order[at - 1];
      costs[at] = costs[at - 1];
    }
    order[at] = methods[i];
    costs[at] = cost;
  }
  for (int32_t i = 0; i < METHODS; i++)
    if (costs[i].memory < INT64_MAX && order[i](p, *c, out)) return;
  emit_case(p, c, out);
}

// ---- handlers -----------------------------------------------------------------------------------

static vt_part one_of_all(vt_parter *p, const vt_value *value) {
  vt_part part = vt_part_of(p, value);
  if (part.assign->only < 0) return part;
  return vt_reshard(p, part, vt_assign_whole(&p->assigns, part.global.rank, p->device_count));
}

// Several arrays come to one assignment: of the first that is cut.
static void to_one(vt_parter *p, uint32_t count, vt_part *parts) {
  const vt_assign *common = parts[0].assign;
  for (uint32_t i = 1; i < count && vt_assign_is_whole(common); i++) common = parts[i].assign;
  for (uint32_t i = 0; i < count; i++) parts[i] = vt_reshard(p, parts[i], common);
}

static bool partition_indexing(vt_parter *p, const vt_op *op) {
  vt_indexing x;
  index_case c = {.x = &x};
  vt_part out[MAX_OPERANDS];
  vt_indexing_read(op, &x);
  c.wanted = vt_part_wanted(p, op, 0);
  if (x.count > MAX_OPERANDS || op->capture_count || c.wanted->only >= 0 || !x.map_count ||
      vt_dtype_get(x.indices.dtype)->bits < 32)
    return false;
  for (uint32_t i = 0; i < x.count; i++) {
    c.operands[i] = one_of_all(p, op->operands[i]);
    if (x.scatter)
      c.windows[i] = one_of_all(p, op->operands[x.count + 1 + i]);
    else
      c.windows[i] = (vt_part){x.windows, NULL, c.wanted};
  }
  if (x.scatter) {
    to_one(p, x.count, c.operands);
    to_one(p, x.count, c.windows);
  }
  c.indices = one_of_all(p, op->operands[x.count]);
  const vt_assign *at = c.indices.assign;
  if (x.vector_dim < x.indices.rank) at = vt_assign_replicate(&p->assigns, at, 1u << x.vector_dim);
  c.indices = mask_indices(p, &x, vt_reshard(p, c.indices, at));
  partition_case(p, &c, out);
  for (uint32_t i = 0; i < x.count; i++) vt_part_set(p, &op->results[i], out[i]);
  return true;
}

vt_status vt_partition_gather(vt_parter *p, const vt_op *op) {
  return partition_indexing(p, op) ? VT_OK : vt_partition_whole(p, op);
}

vt_status vt_partition_scatter(vt_parter *p, const vt_op *op) {
  return partition_indexing(p, op) ? VT_OK : vt_partition_whole(p, op);
}
