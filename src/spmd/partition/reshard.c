// SPDX-License-Identifier: Apache-2.0
// reshard.c - the same array under another assignment, by the collectives that XLA's
// partitioner would choose.
//
// In this order: devices trade whole tiles (collective-permute); tiles move between dimensions
// (all-to-all); each device keeps a part of what it has (no communication); copies are made along
// some dimensions (all-gather). Where none fits alone, a dimension is seen as two, or copies are
// made or moved first, or dimensions that do not change are set aside; failing that the array
// becomes whole on every device and is cut again.
#include <string.h>

#include "base/check.h"
#include "spmd/partition/halo.h"

static bool step_by_step(vt_parter *p, vt_part part, const vt_assign *target, bool may_be_whole,
                         vt_part *out);

static bool has_copies(const vt_assign *a) {
  return vt_assign_is_cut(a) && a->copies > 1;
}

static bool same_dims(const vt_assign *a, const vt_assign *b) {
  return a->rank == b->rank && a->copies == b->copies &&
         !memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->rank);
}

bool vt_resize_shards(vt_parter *p, vt_part part, int32_t dim, int64_t size, vt_value **out) {
  int64_t now = part.local->type.dims[dim];
  *out = part.local;
  if (now == size) return true;
  if (part.assign->dims[dim] > 1) {
    vt_window windows[VT_MAX_RANK];
    vt_windowed w;
    for (int32_t d = 0; d < part.global.rank; d++) windows[d] = (vt_window){1, 1, 0, 0, 1, 1};
    windows[dim].high = (size - now) * part.assign->dims[dim];
    part.global = vt_type_with(p, part.global, dim, now * part.assign->dims[dim]);
    if (!vt_reshard_windowed(p, part, windows, part.assign, NULL, &w)) return false;
    *out = w.local;
    return true;
  }
  *out = size < now ? vt_emit_slice(p, part.local, dim, 0, size)
                    : vt_emit_pad(p, part.local, vt_emit_padding(p, part.global.dtype), dim, 0,
                                  size - now);
  return true;
}

// ---- devices trade tiles ------------------------------------------------------------------------

bool vt_is_permute(const vt_assign *from, const vt_assign *to) {
  return from != to && vt_assign_is_cut(from) && vt_assign_is_cut(to) && same_dims(from, to);
}

static uint32_t repeats_of(vt_parter *p, const vt_value *value, int depth);

static uint32_t repeats_of_op(vt_parter *p, const vt_op *op, int depth) {
  uint32_t all = op->results[0].type.rank < 32 ? (1u << op->results[0].type.rank) - 1 : ~0u;
  uint32_t mask = 0, inner;
  if (op->code == VT_OP_BROADCAST_IN_DIM) {
    const int64_t *dims = vt_attr_ints(op, VT_ATTR_BROADCAST_DIMENSIONS, NULL);
    inner = repeats_of(p, op->operands[0], depth);
    mask = all;
    for (int32_t d = 0; d < op->operands[0]->type.rank; d++)
      if (!(inner >> d & 1)) mask &= ~(1u << dims[d]);
  } else if (op->code == VT_OP_TRANSPOSE) {
    const int64_t *order = vt_attr_ints(op, VT_ATTR_PERMUTATION, NULL);
    inner = repeats_of(p, op->operands[0], depth);
    for (int32_t d = 0; d < op->results[0].type.rank; d++)
      if (inner >> order[d] & 1) mask |= 1u << d;
  } else if (op->code == VT_OP_CONSTANT) {
    mask = vt_attr_literal(op, VT_ATTR_VALUE)->splat ? all : 0;
  } else if (vt_op_info_get(op->code)->flags & (VT_OPF_ELTWISE | VT_OPF_SHARDY)) {
    mask = all;
    for (uint32_t i = 0; i < op->operand_count && mask; i++)
      mask &= op->operands[i]->type.rank ? repeats_of(p, op->operands[i], depth) : all;
  }
  return mask;
}

// The dimensions along which all elements of a local value are the same.
static uint32_t repeats_of(vt_parter *p, const vt_value *value, int depth) {
  if (!value->op || depth > 64) return 0;
  void **place = vt_map_at_ptr(&p->repeats, value);
  if (*place) return (uint32_t)(uintptr_t)*place - 1;
  uint32_t mask = repeats_of_op(p, value->op, depth + 1);
  *vt_map_at_ptr(&p->repeats, value) = (void *)((uintptr_t)mask + 1);
  return mask;
}

void vt_part_distrust(vt_parter *p, const vt_value *local) {
  *vt_map_at_ptr(&p->repeats, local) = (void *)(uintptr_t)1; // along no dimension
}

static vt_part permute(vt_parter *p, vt_part part, const vt_assign *target) {
  vt_assert(vt_is_permute(part.assign, target));
  uint32_t repeats = repeats_of(p, part.local, 0);
  vt_part out = {part.global, part.local, target};
  if (repeats && vt_assign_replicate(&p->assigns, part.assign, repeats) ==
                     vt_assign_replicate(&p->assigns, target, repeats))
    return out;
  out.local = vt_emit_permute(p, part.local, part.assign, target);
  return out;
}

// ---- tiles move between dimensions --------------------------------------------------------------

typedef struct dim_pair {
  int32_t from, to;
} dim_pair;

// Dimensions (the copies count as one) by their number of tiles.
typedef struct size_list {
  int32_t size, count, dims[VT_MAX_RANK + 1];
} size_list;
typedef struct size_lists {
  int32_t count;
  size_list lists[VT_MAX_RANK + 1]; // by size, smallest first
} size_lists;

static int32_t tiles_of(const vt_assign *a, int32_t dim) {
  return dim == a->rank ? a->copies : a->dims[dim];
}

static size_list *list_of(size_lists *l, int32_t size) {
  for (int32_t i = 0; i < l->count; i++)
    if (l->lists[i].size == size) return &l->lists[i];
  return NULL;
}

static void add_dim(size_lists *l, int32_t size, int32_t dim) {
  size_list *list = list_of(l, size);
  if (!list) {
    int32_t i = l->count++;
    for (; i > 0 && l->lists[i - 1].size > size; i--) l->lists[i] = l->lists[i - 1];
    list = &l->lists[i];
    *list = (size_list){.size = size};
  }
  list->dims[list->count++] = dim;
}

static void remove_dim(size_lists *l, int32_t size, int32_t dim) {
  size_list *list = list_of(l, size);
  if (!list) return;
  int32_t kept = 0;
  for (int32_t i = 0; i < list->count; i++)
    if (list->dims[i] != dim) list->dims[kept++] = list->dims[i];
  list->count = kept;
  if (kept) return;
  int32_t at = (int32_t)(list - l->lists);
  l->count--;
  for (int32_t i = at; i < l->count; i++) l->lists[i] = l->lists[i + 1];
}

// The dimension whose tiles go to `to`: one that finds its place by this move, if there is one.
static int32_t choose_source(const size_list *list, const vt_assign *target, int32_t size) {
  int32_t chosen = list->dims[0];
  for (int32_t i = 0; i < list->count; i++) {
    chosen = list->dims[i];
    if (size == 1 ? tiles_of(target, chosen) != 1 : tiles_of(target, chosen) == size) break;
  }
  return chosen;
}

// Pairs of dimensions that change their numbers of tiles one after the other; -1: moves do not
// suffice.
static int32_t exchange_pairs(const vt_assign *from, const vt_assign *to, dim_pair *out) {
  if (!vt_assign_is_cut(from) || !vt_assign_is_cut(to) || from->rank != to->rank ||
      from->tiles != to->tiles || has_copies(from) != has_copies(to))
    return -1;
  size_lists sources = {0}, targets = {0};
  for (int32_t d = 0; d <= from->rank; d++) {
    if (tiles_of(from, d) == tiles_of(to, d)) continue;
    add_dim(&sources, tiles_of(from, d), d);
    add_dim(&targets, tiles_of(to, d), d);
  }
  if (!sources.count || sources.count != targets.count) return -1;
  for (int32_t i = 0; i < sources.count; i++)
    if (sources.lists[i].size != targets.lists[i].size ||
        sources.lists[i].count != targets.lists[i].count)
      return -1;
  int32_t pairs = 0;
  while (sources.count) {
    int32_t size = sources.lists[0].size;
    int32_t d = sources.lists[0].dims[sources.lists[0].count - 1], wanted = tiles_of(to, d);
    if (wanted == size) {
      remove_dim(&sources, size, d);
      remove_dim(&targets, size, d);
      continue;
    }
    size_list *list = list_of(&sources, wanted);
    if (!list || (size != 1 && wanted % size)) return -1;
    int32_t source = choose_source(list, to, size);
    out[pairs++] = (dim_pair){source, d};
    remove_dim(&targets, wanted, d);
    sources.lists[0].dims[sources.lists[0].count - 1] = source;
    remove_dim(&sources, wanted, source);
  }
  return pairs;
}

bool vt_is_exchange(const vt_assign *from, const vt_assign *to) {
  dim_pair pairs[4 * VT_MAX_RANK];
  return exchange_pairs(from, to, pairs) >= 0;
}

// The assignment after the tiles of pair.from have gone to pair.to.
static const vt_assign *moved(vt_parter *p, const vt_assign *a, dim_pair pair) {
  int32_t shape[VT_MAX_RANK + 3], order[VT_MAX_RANK + 3], dims[VT_MAX_RANK + 1], n = 0;
  int32_t source_at = 0, target_at = 0, tiles = tiles_of(a, pair.to);
  for (int32_t d = 0; d <= a->rank; d++) {
    dims[d] = tiles_of(a, d == pair.from ? pair.to : d == pair.to ? pair.from : d);
    shape[n++] = d == pair.from ? tiles : tiles_of(a, d);
    if (d == pair.from) {
      source_at = n;
      shape[n++] = tiles_of(a, d) / tiles;
    } else if (d == pair.to) {
      target_at = n;
      shape[n++] = 1;
    }
  }
  for (int32_t i = 0; i < n; i++) order[i] = i;
  order[source_at] = target_at;
  order[target_at] = source_at;
  return vt_assign_view(&p->assigns, a, n, shape, order, a->rank, dims, dims[a->rank]);
}

// Groups of devices that exchange parts along dimensions `dims`, sizes[i] each, in the order of the
// assignment after the exchange.
static const vt_groups *exchange_groups(vt_parter *p, const vt_assign *after, int32_t count,
                                        const int32_t *dims, const int32_t *sizes) {
  int32_t all[VT_MAX_RANK + 1], shards[VT_MAX_RANK + 1];
  for (int32_t d = 0; d <= after->rank; d++) {
    all[d] = d;
    shards[d] = 1;
  }
  for (int32_t i = 0; i < count; i++) shards[dims[i]] = sizes[i];
  return vt_group_on(&p->assigns, after, after->rank + 1, all, shards).groups;
}

// One all-to-all for one pair. false: sizes do not divide, and halos do not help
static bool exchange_pair(vt_parter *p, vt_part part, dim_pair pair, vt_part *out) {
  const vt_assign *after = moved(p, part.assign, pair);
  int32_t to = pair.to, from = pair.from;
  int32_t size = part.assign->dims[from] / part.assign->dims[to];
  int64_t whole = vt_ceil(part.global.dims[to], after->dims[to]) * after->dims[to];
  vt_part now = part;
  if (!vt_resize_shards(p, part, to, whole / part.assign->dims[to], &now.local)) return false;
  const vt_groups *groups = exchange_groups(p, after, 1, &to, &size);
  now.local = vt_emit_all_to_all(p, now.local, to, from, groups);
  now.assign = after;
  return vt_resize_shards(p, now, from, vt_ceil(part.global.dims[from], after->dims[from]),
                          &now.local)
             ? (*out = now, true)
             : false;
}

// Several pairs at once, whose dimensions are all different and divide: one all-to-all over the
// product of their groups.
static vt_part exchange_many(vt_parter *p, vt_part part, int32_t count, const dim_pair *pairs) {
  const vt_assign *after = part.assign;
  int32_t rank = part.global.rank, n = 0, total = 1, order[2 * VT_MAX_RANK], fronts = 0;
  int32_t targets[VT_MAX_RANK], sizes[VT_MAX_RANK], place[VT_MAX_RANK];
  int64_t dims[2 * VT_MAX_RANK], moved_dims[2 * VT_MAX_RANK];
  for (int32_t i = 0; i < count; i++) {
    targets[i] = pairs[i].to;
    sizes[i] = part.assign->dims[pairs[i].from] / part.assign->dims[pairs[i].to];
    total *= sizes[i];
    after = moved(p, after, pairs[i]);
  }
  for (int32_t d = 0; d < rank; d++) {
    int64_t size = part.local->type.dims[d];
    for (int32_t i = 0; i < count; i++)
      if (targets[i] == d) {
        order[fronts++] = n;
        dims[n++] = sizes[i];
        size /= sizes[i];
      }
    place[d] = n;
    dims[n++] = size;
  }
  for (int32_t d = 0; d < rank; d++) order[fronts + d] = place[d];
  vt_value *v = vt_emit_transpose(p, vt_emit_reshape(p, part.local, n, dims), order);
  memcpy(moved_dims, v->type.dims, sizeof *moved_dims * (size_t)n);
  dims[0] = total;
  memcpy(dims + 1, moved_dims + count, sizeof *dims * (size_t)rank);
  v = vt_emit_reshape(p, v, rank + 1, dims);
  v = vt_emit_all_to_all(p, v, 0, 0, exchange_groups(p, after, count, targets, sizes));
  v = vt_emit_reshape(p, v, n, moved_dims);
  n = 0;
  for (int32_t d = 0; d < rank; d++) {
    dims[d] = moved_dims[count + d];
    for (int32_t i = 0; i < count; i++)
      if (pairs[i].from == d) {
        order[n++] = i;
        dims[d] *= sizes[i];
      }
    order[n++] = count + d;
  }
  v = vt_emit_reshape(p, vt_emit_transpose(p, v, order), rank, dims);
  return (vt_part){part.global, v, after};
}

// Whether a pair before `i` that is not among the chosen ones has a dimension in common with it.
static bool must_wait(const dim_pair *pairs, int32_t i, uint64_t chosen) {
  for (int32_t k = 0; k < i; k++)
    if (!(chosen >> k & 1) && (pairs[k].from == pairs[i].from || pairs[k].from == pairs[i].to ||
                               pairs[k].to == pairs[i].from || pairs[k].to == pairs[i].to))
      return true;
  return false;
}

// Pairs that can go together, by target; the others keep their order.
static int32_t split_pairs(vt_part part, const vt_assign *target, int32_t count, dim_pair *pairs,
                           dim_pair *together) {
  int32_t order[4 * VT_MAX_RANK], many = 0, left = 0;
  uint64_t seen = 0, chosen = 0;
  for (int32_t i = 0; i < count; i++) {
    int32_t at = i;
    for (; at > 0 && pairs[order[at - 1]].to > pairs[i].to; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  for (int32_t i = 0; i < count; i++) {
    dim_pair q = pairs[order[i]];
    uint64_t both = (uint64_t)1 << q.from | (uint64_t)1 << q.to;
    if (seen & both || part.global.dims[q.from] % part.assign->dims[q.from] ||
        part.global.dims[q.to] % target->dims[q.to] || must_wait(pairs, order[i], chosen))
      continue;
    seen |= both;
    chosen |= (uint64_t)1 << order[i];
    together[many++] = q;
  }
  if (many < 2) return 0;
  for (int32_t i = 0; i < count; i++)
    if (!(chosen >> i & 1)) pairs[left++] = pairs[i];
  return many;
}

static bool exchange(vt_parter *p, vt_part part, const vt_assign *target, vt_part *out) {
  dim_pair pairs[4 * VT_MAX_RANK], together[VT_MAX_RANK];
  int32_t count = exchange_pairs(part.assign, target, pairs);
  if (count < 0) return false;
  for (int32_t i = 0; i < count; i++) // copies never move here: their number is the same
    if (pairs[i].from == part.global.rank || pairs[i].to == part.global.rank) return false;
  int32_t many = split_pairs(part, target, count, pairs, together);
  if (many) {
    part = exchange_many(p, part, many, together);
    count -= many;
  }
  for (int32_t i = 0; i < count; i++)
    if (!exchange_pair(p, part, pairs[i], &part)) return false;
  *out = part.assign == target ? part : permute(p, part, target);
  return true;
}

// ---- each device keeps a part of what it has ----------------------------------------------------

// The assignment with the tiles of `cut` that comes from `copied` by cutting each tile among its
// copies: `cut` itself, if it does. NULL: their tiles do not divide.
static const vt_assign *cut_copies(vt_parter *p, const vt_assign *copied, const vt_assign *cut) {
  int32_t shape[2 * VT_MAX_RANK + 2], order[2 * VT_MAX_RANK + 2], n = copied->rank, more = 1;
  if (copied->copies == 1 || copied->only >= 0 || cut->only >= 0 || copied->rank != cut->rank ||
      copied->device_count != cut->device_count)
    return NULL;
  int32_t at[VT_MAX_RANK];
  for (int32_t d = 0; d < copied->rank; d++) {
    shape[d] = copied->dims[d];
    if (cut->dims[d] % copied->dims[d]) return NULL;
    at[d] = -1;
    if (cut->dims[d] == copied->dims[d]) continue;
    at[d] = n;
    shape[n++] = cut->dims[d] / copied->dims[d];
    more *= cut->dims[d] / copied->dims[d];
  }
  if (copied->copies % cut->copies || copied->copies / cut->copies != more) return NULL;
  if (vt_assign_refines(&p->assigns, cut, copied)) return cut;
  shape[n] = cut->copies;
  int32_t count = 0;
  for (int32_t d = 0; d < copied->rank; d++) {
    order[count++] = d;
    if (at[d] >= 0) order[count++] = at[d];
  }
  order[count] = n;
  return vt_assign_view(&p->assigns, copied, n + 1, shape, order, cut->rank, cut->dims,
                        cut->copies);
}

static bool slice_copies(vt_parter *p, vt_part part, const vt_assign *target, vt_part *out) {
  const vt_assign *cut = cut_copies(p, part.assign, target);
  if (!cut) return false;
  vt_part now = part;
  vt_value *offsets[VT_MAX_RANK] = {0};
  for (int32_t d = 0; d < part.global.rank; d++) {
    int32_t parts = cut->dims[d] / part.assign->dims[d];
    int64_t size = vt_ceil(part.global.dims[d], cut->dims[d]);
    if (parts > 1 && !vt_resize_shards(p, now, d, size * parts, &now.local)) return false;
  }
  for (int32_t d = 0; d < part.global.rank; d++) {
    int32_t parts = cut->dims[d] / part.assign->dims[d];
    int64_t size = vt_ceil(part.global.dims[d], cut->dims[d]);
    if (parts > 1) offsets[d] = vt_emit_offset_within(p, cut, d, parts, size);
  }
  now.assign = cut;
  now.local = vt_emit_dynamic_slice(p, now.local, offsets, vt_local_type(p, part.global, cut));
  *out = cut == target ? now : permute(p, now, target);
  return true;
}

// ---- copies are made ----------------------------------------------------------------------------

// One device of each group, which `owns` its value, sends it to the others.
static vt_value *send_to_all(vt_parter *p, vt_value *v, const vt_groups *groups, vt_value *owns) {
  vt_type pred = v->type;
  pred.dtype = VT_PRED;
  vt_value *nothing = vt_emit_splat(p, v->type, vt_emit_nothing(p, v->type.dtype));
  v = vt_emit_select(p, vt_emit_splat(p, pred, owns), v, nothing);
  return vt_emit_all_reduce(p, v, NULL, groups);
}

// Shards of one element that few tiles hold.
static vt_value *send_single(vt_parter *p, vt_part part, uint32_t mask) {
  int32_t dims[VT_MAX_RANK], count = 0;
  for (int32_t d = 0; d < part.global.rank; d++)
    if (mask >> d & 1) dims[count++] = d;
  return send_to_all(p, part.local, vt_groups_along(&p->assigns, part.assign, count, dims),
                     vt_emit_is_first(p, part.assign, mask));
}

// Each device puts what it has into an array of nothing.
vt_part vt_spread_tiles(vt_parter *p, vt_part part, uint32_t mask) {
  vt_value *nothing = vt_emit_nothing(p, part.global.dtype), *offsets[VT_MAX_RANK] = {0};
  vt_value *shard = vt_mask(p, part, mask, nothing);
  vt_type padded = shard->type, type = shard->type;
  for (int32_t d = 0; d < part.global.rank; d++) {
    if (!(mask >> d & 1)) continue;
    int64_t size = shard->type.dims[d];
    offsets[d] = vt_emit_offset(p, part.assign, d, size);
    padded = vt_type_with(p, padded, d, size * part.assign->dims[d]);
    type = vt_type_with(p, type, d, part.global.dims[d]);
  }
  vt_value *sum = vt_emit_dynamic_update(p, vt_emit_splat(p, padded, nothing), shard, offsets);
  for (int32_t d = 0; d < part.global.rank; d++) sum = vt_emit_slice(p, sum, d, 0, type.dims[d]);
  return (vt_part){part.global, sum, vt_assign_replicate(&p->assigns, part.assign, mask)};
}

// Far more tiles than elements.
static vt_value *add_up(vt_parter *p, vt_part part, uint32_t mask) {
  vt_value *sum = vt_spread_tiles(p, part, mask).local;
  bool kept = p->keep_partial;
  p->keep_partial = false;
  sum = vt_emit_reduce_along(p, sum, NULL, part.assign, mask);
  p->keep_partial = kept;
  return sum;
}

vt_part vt_gather_dims(vt_parter *p, vt_part part, uint32_t mask) {
  uint32_t single = 0, few = 0;
  vt_part out = part;
  for (int32_t d = 0; d < part.global.rank; d++) {
    int32_t tiles = part.assign->dims[d];
    if (tiles == 1 || !(mask >> d & 1)) continue;
    if (part.global.dims[d] == part.local->type.dims[d])
      single |= 1u << d;
    else if (part.global.dims[d] <= tiles / 2)
      few |= 1u << d;
  }
  if (single) out.local = send_single(p, part, single);
  for (int32_t d = part.global.rank; d-- > 0;) {
    if (part.assign->dims[d] == 1 || !(mask & ~single & ~few) ||
        !((mask & ~single & ~few) >> d & 1))
      continue;
    const vt_groups *groups = vt_groups_along(&p->assigns, part.assign, 1, &d);
    out.local = vt_emit_all_gather(p, out.local, d, groups);
  }
  for (int32_t d = 0; d < part.global.rank; d++)
    if ((mask & ~single & ~few) >> d & 1 && part.assign->dims[d] > 1)
      out.local = vt_emit_slice(p, out.local, d, 0, part.global.dims[d]);
  if (few) out.local = add_up(p, out, few);
  out.assign = vt_assign_replicate(&p->assigns, part.assign, mask);
  return out;
}

// Tiles that will be gathered by `factor` move to where the wider tiles of `wide` elements have
// them.
static bool align_to_wide(vt_parter *p, vt_part *part, int32_t dim, int32_t factor, int64_t wide) {
  int32_t tiles = part->assign->dims[dim];
  int64_t shard = part->local->type.dims[dim];
  vt_arena scratch = {0};
  int64_t *start = VT_NEW_ARRAY(&scratch, int64_t, tiles);
  int64_t *limit = VT_NEW_ARRAY(&scratch, int64_t, tiles);
  for (int32_t i = 0; i < tiles; i++) {
    start[i] = i / factor * wide + i % factor * shard;
    limit[i] = start[i] + shard;
  }
  vt_halo halo = {dim, tiles, 0, 0, part->global.dims[dim], shard, start, limit, VT_HALO_COMPACT};
  bool done = vt_exchange_halo(p, part->assign, part->local, &halo, NULL, &part->local);
  vt_arena_free(&scratch);
  return done;
}

static bool gather_copies(vt_parter *p, vt_part part, const vt_assign *target, vt_part *out) {
  const vt_assign *cut = cut_copies(p, target, part.assign);
  if (!cut || !has_copies(target)) return false;
  int32_t dims[VT_MAX_RANK], factors[VT_MAX_RANK], count = 0;
  uint32_t mask = 0;
  for (int32_t d = 0; d < part.global.rank; d++) {
    int32_t factor = cut->dims[d] / target->dims[d];
    if (factor == 1) continue;
    mask |= 1u << d;
    factors[count] = factor;
    dims[count++] = d;
  }
  if (cut != part.assign) part = permute(p, part, cut);
  for (int32_t i = 0; i < count; i++) {
    int64_t wide = vt_ceil(part.global.dims[dims[i]], target->dims[dims[i]]);
    if (target->dims[dims[i]] > 1 && part.local->type.dims[dims[i]] * factors[i] > wide &&
        !align_to_wide(p, &part, dims[i], factors[i], wide))
      return false;
  }
  vt_grouping g = vt_group_on(&p->assigns, cut, count, dims, factors);
  const vt_groups *before = vt_enter(p, g.groups);
  vt_part inner = {vt_local_type(p, part.global, target), part.local, g.inner};
  // A dimension that is only partly gathered is even; its last tile may still be short.
  inner = vt_gather_dims(p, inner, mask);
  vt_leave(p, before);
  *out = (vt_part){part.global, inner.local, target};
  return true;
}

// ---- copies and tiles shifted by one dimension --------------------------------------------------

// [a, b] to [1, a, b] with b copied, or back: the tiles keep their devices in order, so that b
// becomes the copies (or comes from them) and the others move by all-to-alls.
static bool shift_copies(vt_parter *p, vt_part part, const vt_assign *target, vt_part *out) {
  bool from_copies = has_copies(part.assign);
  const vt_assign *copied = from_copies ? part.assign : target;
  const vt_assign *tiled = from_copies ? target : part.assign;
  int32_t last = -1, rank = copied->rank, dims[VT_MAX_RANK + 1];
  if (!has_copies(copied) || has_copies(tiled) || !vt_assign_is_cut(tiled) || tiled->rank != rank ||
      copied->dims[0] != 1)
    return false;
  for (int32_t d = rank; d-- > 0;) {
    if (tiled->dims[d] > 1 && last < 0) {
      if (tiled->dims[d] != copied->copies) return false;
      last = d;
    }
    if (tiled->dims[d] != tiles_of(copied, d + 1)) return false;
  }
  if (last < 0 || vt_assign_reshape(&p->assigns, copied, rank, tiled->dims, 1) != tiled)
    return false;
  memcpy(dims, tiled->dims, sizeof *dims * (size_t)rank);
  dims[last] = 1;
  const vt_assign *middle = vt_assign_reshape(&p->assigns, tiled, rank, dims, copied->copies);
  if (!from_copies) return exchange(p, vt_reshard(p, part, middle), target, out);
  if (!exchange(p, part, middle, &part)) return false;
  *out = vt_reshard(p, part, target);
  return true;
}

// ---- several steps ------------------------------------------------------------------------------

// A dimension whose tiles split or merge: seen as two dimensions it is a plain case.
typedef struct split_plan {
  int32_t dim, outer;
} split_plan;

static bool find_split(vt_part part, const vt_assign *target, split_plan *out) {
  const vt_assign *source = part.assign;
  int32_t with_one[VT_MAX_RANK], ones = 0, others[VT_MAX_RANK], count = 0;
  if (source->copies != target->copies) return false;
  for (int32_t d = 0; d < source->rank; d++) {
    int32_t s = source->dims[d], t = target->dims[d], low = s < t ? s : t, high = s < t ? t : s;
    if (s == t) continue;
    if (low == 1)
      with_one[ones++] = d;
    else if (high % low == 0 && vt_ceil(part.global.dims[d], low) * low % high == 0)
      others[count++] = d;
  }
  for (int32_t i = 0; i < count; i++)
    for (int32_t j = 0; j < ones; j++) {
      int32_t d = others[i], e = with_one[j];
      if (source->dims[d] * source->dims[e] != target->dims[d] * target->dims[e]) continue;
      *out = (split_plan){d, source->dims[d] < target->dims[d] ? source->dims[d] : target->dims[d]};
      return true;
    }
  for (int32_t i = 0; i < count; i++)
    if (source->dims[others[i]] > target->dims[others[i]]) {
      *out = (split_plan){others[i], target->dims[others[i]]};
      return true;
    }
  return false;
}

static bool by_split(vt_parter *p, vt_part part, const vt_assign *target, split_plan plan,
                     vt_part *out) {
  int32_t d = plan.dim, rank = part.global.rank;
  const vt_assign *from = vt_assign_split(&p->assigns, part.assign, d, plan.outer);
  const vt_assign *to = vt_assign_split(&p->assigns, target, d, plan.outer);
  int64_t local[VT_MAX_RANK + 1], global[VT_MAX_RANK + 1], shard = part.local->type.dims[d];
  if (rank >= VT_MAX_RANK) return false;
  for (int32_t i = 0; i <= rank; i++) {
    int32_t old = i <= d ? i : i - 1;
    local[i] = i == d ? 1 : i == d + 1 ? shard : part.local->type.dims[old];
    global[i] = i == d       ? from->dims[d]
                : i == d + 1 ? shard * from->dims[d + 1]
                             : part.global.dims[old];
  }
  vt_part two = {vt_type_of_dims(p, part.global.dtype, rank + 1, global),
                 vt_emit_reshape(p, part.local, rank + 1, local), from};
  if (!step_by_step(p, two, to, false, &two)) return false;
  for (int32_t i = 0; i < rank; i++)
    local[i] = i < d    ? two.local->type.dims[i]
               : i == d ? two.local->type.dims[d] * two.local->type.dims[d + 1]
                        : two.local->type.dims[i + 1];
  vt_part one = {part.global, vt_emit_reshape(p, two.local, rank, local),
                 vt_assign_merge(&p->assigns, two.assign, d)};
  if (!vt_type_equal(one.local->type, vt_local_type(p, one.global, one.assign))) return false;
  return step_by_step(p, one, target, false, out);
}

static bool in_steps(vt_parter *p, vt_part part, const vt_assign *target, vt_part *out) {
  split_plan plan;
  if (find_split(part, target, &plan)) return by_split(p, part, target, plan, out);
  if (has_copies(target))
    for (int32_t d = 0; d < part.global.rank; d++) {
      if (part.assign->dims[d] == 1 || part.assign->dims[d] * part.assign->copies != target->copies)
        continue;
      const vt_assign *middle = vt_assign_replicate(&p->assigns, part.assign, 1u << d);
      return step_by_step(p, vt_reshard(p, part, middle), target, false, out);
    }
  if (!has_copies(part.assign) || has_copies(target)) return false;
  for (int32_t d = 0; d < part.global.rank; d++) {
    if (part.assign->dims[d] != 1 || target->dims[d] == 1 || target->dims[d] % part.assign->copies)
      continue;
    const vt_assign *middle = vt_assign_swap_copies(&p->assigns, part.assign, d);
    return step_by_step(p, vt_reshard(p, part, middle), target, false, out);
  }
  return false;
}

// Dimensions with as many tiles before and after are set aside: the rest is done in groups. There
// it may become whole even where the array may not.
static bool in_groups(vt_parter *p, vt_part part, const vt_assign *target, vt_part *out) {
  int32_t dims[VT_MAX_RANK], count = 0;
  for (int32_t d = 0; d < part.global.rank; d++)
    if (part.assign->dims[d] > 1 && part.assign->dims[d] == target->dims[d]) dims[count++] = d;
  if (!count) return false;
  vt_grouping g = vt_group_on(&p->assigns, part.assign, count, dims, NULL);
  vt_grouping to = vt_group_on(&p->assigns, target, count, dims, NULL);
  to = vt_align(&p->assigns, to, g.groups, false);
  const vt_groups *before = vt_enter(p, g.groups);
  vt_part inner = vt_part_in(p, part, &g);
  bool done = step_by_step(p, inner, to.inner, true, &inner);
  vt_leave(p, before);
  return done && step_by_step(p, vt_part_out(p, inner, to, part.global), target, true, out);
}

static vt_part make_whole(vt_parter *p, vt_part part) {
  if (part.assign->only < 0) return vt_gather_dims(p, part, ~0u);
  vt_value *v = send_to_all(p, part.local, vt_groups_all(&p->assigns, p->device_count),
                            vt_emit_is_first(p, part.assign, 0));
  return (vt_part){part.global, v, vt_assign_whole(&p->assigns, part.global.rank, p->device_count)};
}

static vt_part cut_whole(vt_parter *p, vt_part part, const vt_assign *target) {
  vt_part out = {part.global, part.local, target};
  if (target->only >= 0) return out;
  vt_value *offsets[VT_MAX_RANK] = {0};
  for (int32_t d = 0; d < part.global.rank; d++) {
    if (target->dims[d] == 1) continue;
    int64_t size = vt_ceil(part.global.dims[d], target->dims[d]);
    out.local = vt_emit_pad(p, out.local, vt_emit_padding(p, part.global.dtype), d, 0,
                            size * target->dims[d] - part.global.dims[d]);
    offsets[d] = vt_emit_offset(p, target, d, size);
  }
  out.local = vt_emit_dynamic_slice(p, out.local, offsets, vt_local_type(p, part.global, target));
  return out;
}

// One number everywhere: it is made where it is needed.
static bool is_splat(vt_parter *p, const vt_value *v) {
  const vt_op *op = v->op;
  if (!op || !v->type.rank || !repeats_of(p, v, 0)) return false;
  if (op->code == VT_OP_CONSTANT) return vt_attr_literal(op, VT_ATTR_VALUE)->splat;
  return op->code == VT_OP_BROADCAST_IN_DIM && !op->operands[0]->type.rank;
}

static vt_value *splat_again(vt_parter *p, const vt_value *v, vt_type type) {
  if (v->op->code == VT_OP_BROADCAST_IN_DIM) return vt_emit_splat(p, type, v->op->operands[0]);
  vt_literal *literal = VT_NEW(&p->module->arena, vt_literal);
  *literal = (vt_literal){type, vt_attr_literal(v->op, VT_ATTR_VALUE)->data, true};
  return vt_emit_literal(p, literal);
}

static bool step_by_step(vt_parter *p, vt_part part, const vt_assign *target, bool may_be_whole,
                         vt_part *out) {
  const vt_assign *source = part.assign;
  vt_assert(source->rank == target->rank && source->device_count == target->device_count);
  *out = part;
  if (source == target) return true;
  if (part.global.dtype == VT_TOKEN) {
    out->assign = target;
    return true;
  }
  if (is_splat(p, part.local)) {
    *out = (vt_part){part.global, splat_again(p, part.local, vt_local_type(p, part.global, target)),
                     target};
    return true;
  }
  if (vt_is_permute(source, target)) {
    *out = permute(p, part, target);
    return true;
  }
  if (exchange(p, part, target, out)) return true;
  if (vt_assign_is_cut(target) && has_copies(source) &&
      (slice_copies(p, part, target, out) || shift_copies(p, part, target, out)))
    return true;
  if (vt_assign_is_cut(source) && has_copies(target) &&
      (gather_copies(p, part, target, out) || shift_copies(p, part, target, out)))
    return true;
  if (!vt_assign_is_whole(source)) {
    if (vt_assign_is_cut(source) && vt_assign_is_cut(target)) {
      if (in_steps(p, part, target, out)) return true;
      if (in_groups(p, part, target, out)) return true;
    }
    if (!may_be_whole && !vt_assign_is_whole(target)) return false;
    if (vt_assign_is_whole(target))
      *out = make_whole(p, part);
    else
      *out = vt_reshard(
          p, vt_reshard(p, part, vt_assign_whole(&p->assigns, part.global.rank, p->device_count)),
          target);
    return true;
  }
  *out = cut_whole(p, part, target);
  return true;
}

// ---- remembered ---------------------------------------------------------------------------------

static const vt_reshards_of *reshards_of(const vt_parter *p, const vt_value *value) {
  if (value->id < 0 || (size_t)value->id >= p->reshards.size) return NULL;
  const vt_reshards_of *found = &p->reshards.data[value->id];
  return found->value == value ? found : NULL;
}

static const vt_part *remembered(const vt_parter *p, vt_part part, const vt_assign *target) {
  const vt_reshards_of *all = reshards_of(p, part.local);
  for (const vt_known_reshard *k = all ? all->last : NULL; k; k = k->before)
    if (k->groups == p->groups && k->from == part.assign && k->to == target &&
        vt_type_same_dims(k->global, part.global))
      return &k->out;
  return NULL;
}

static void remember(vt_parter *p, vt_part part, vt_part as) {
  vt_value *value = part.local;
  if (!reshards_of(p, value)) {
    value->id = (int32_t)p->reshards.size;
    value->func->numbered = false;
    vt_array_push(&p->reshards, ((vt_reshards_of){value, NULL}));
  }
  vt_known_reshard *known = VT_NEW(&p->module->arena, vt_known_reshard);
  *known = (vt_known_reshard){p->groups, part.global, part.assign,
                              as.assign, as,          p->reshards.data[value->id].last};
  p->reshards.data[value->id].last = known;
}

vt_part vt_reshard(vt_parter *p, vt_part part, const vt_assign *target) {
  if (part.assign == target) return part;
  uint32_t terms = vt_terms_of(p, part.local);
  if (terms) return vt_reshard_terms(p, part, target, terms);
  const vt_part *known = remembered(p, part, target);
  if (known) return *known;
  vt_part out;
  bool done = step_by_step(p, part, target, true, &out);
  vt_assert(done && out.assign == target);
  vt_assert(vt_type_equal(out.local->type, vt_local_type(p, out.global, target)));
  (void)done;
  remember(p, out, part);
  remember(p, part, out);
  return out;
}

const vt_assign *vt_assign_clear(vt_parter *p, vt_type type, const vt_assign *assign,
                                 uint32_t mask) {
  for (int32_t d = 0; d < type.rank; d++) {
    if (!(mask >> d & 1) || assign->dims[d] == 1) continue;
    int32_t to = 0;
    while (to < type.rank && (mask >> to & 1 || !type.dims[to] ||
                              type.dims[to] % ((int64_t)assign->dims[to] * assign->dims[d])))
      to++;
    assign = to < type.rank ? vt_assign_move(&p->assigns, assign, d, to)
                            : vt_assign_replicate(&p->assigns, assign, 1u << d);
  }
  return assign;
}
