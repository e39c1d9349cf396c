// SPDX-License-Identifier: Apache-2.0
// moves.c - ops that move elements along dimensions that may be cut: slice, pad, reverse,
// concatenate.
#include <string.h>

#include "base/check.h"
#include "spmd/partition/halo.h"

static const vt_window trivial = {1, 1, 0, 0, 1, 1};

// ---- slice --------------------------------------------------------------------------------------

static bool slice_at(vt_parter *p, const vt_op *op, const vt_assign *at, vt_part *out) {
  const int64_t *starts = vt_attr_ints(op, VT_ATTR_START_INDICES, NULL);
  const int64_t *limits = vt_attr_ints(op, VT_ATTR_LIMIT_INDICES, NULL);
  const int64_t *strides = vt_attr_ints(op, VT_ATTR_STRIDES, NULL);
  if (!vt_assign_is_cut(at)) return false;
  vt_part part = vt_reshard(p, vt_part_of(p, op->operands[0]), at);
  vt_window windows[VT_MAX_RANK];
  vt_windowed w;
  for (int32_t d = 0; d < part.global.rank; d++)
    windows[d] = (vt_window){1, strides[d], -starts[d], limits[d] - part.global.dims[d], 1, 1};
  if (!vt_reshard_windowed(p, part, windows, at, NULL, &w)) return false;
  vt_type type = op->results[0].type;
  vt_type local = vt_local_type(p, type, at);
  int64_t first[VT_MAX_RANK], last[VT_MAX_RANK];
  bool all = true;
  for (int32_t d = 0; d < type.rank; d++) {
    first[d] = -w.windows[d].low;
    last[d] = w.local->type.dims[d] + w.windows[d].high;
    all = all && !first[d] && last[d] == local.dims[d] && last[d] == w.local->type.dims[d];
  }
  if (!all) {
    vt_op *copy = vt_copy_op(p, op, &local, 1, &w.local);
    vt_op_set_ints(copy, VT_ATTR_START_INDICES, (uint32_t)type.rank, first);
    vt_op_set_ints(copy, VT_ATTR_LIMIT_INDICES, (uint32_t)type.rank, last);
    w.local = &vt_emit_finished(p, copy)->results[0];
  }
  *out = (vt_part){type, w.local, at};
  return true;
}

static bool pad_to(vt_parter *p, vt_part part, vt_value *value, const vt_window *windows,
                   vt_type type, const vt_assign *at, vt_part *out);

// A slice of a padded array is a padded array: one exchange instead of two.
static bool slice_of_pad(vt_parter *p, const vt_op *op, vt_part *out) {
  const vt_op *pad = op->operands[0]->op;
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  if (!pad || pad->code != VT_OP_PAD || vt_part_of(p, op->operands[0]).assign != wanted)
    return false;
  const int64_t *starts = vt_attr_ints(op, VT_ATTR_START_INDICES, NULL);
  const int64_t *limits = vt_attr_ints(op, VT_ATTR_LIMIT_INDICES, NULL);
  const int64_t *strides = vt_attr_ints(op, VT_ATTR_STRIDES, NULL);
  const int64_t *lows = vt_attr_ints(pad, VT_ATTR_EDGE_PADDING_LOW, NULL);
  const int64_t *highs = vt_attr_ints(pad, VT_ATTR_EDGE_PADDING_HIGH, NULL);
  const int64_t *inside = vt_attr_ints(pad, VT_ATTR_INTERIOR_PADDING, NULL);
  vt_type type = op->results[0].type, padded = pad->results[0].type;
  vt_window windows[VT_MAX_RANK];
  bool twice = false;
  for (int32_t d = 0; d < type.rank; d++) {
    if (inside[d] || strides[d] != 1) return false;
    windows[d] = trivial;
    windows[d].low = lows[d] - starts[d];
    windows[d].high = limits[d] - padded.dims[d] + highs[d];
    twice =
        twice || (wanted->dims[d] > 1 && (lows[d] || highs[d]) && type.dims[d] != padded.dims[d]);
  }
  const vt_assign *scalar = vt_assign_whole(&p->assigns, 0, p->device_count);
  vt_value *value = vt_reshard(p, vt_part_of(p, pad->operands[1]), scalar).local;
  return twice && pad_to(p, vt_part_of(p, pad->operands[0]), value, windows, type, wanted, out);
}

vt_status vt_partition_slice(vt_parter *p, const vt_op *op) {
  const vt_assign *from = vt_part_of(p, op->operands[0]).assign;
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  vt_part out;
  if (!slice_of_pad(p, op, &out) && !(from->tiles > wanted->tiles && slice_at(p, op, from, &out)) &&
      !slice_at(p, op, wanted, &out))
    return vt_partition_whole(p, op);
  vt_part_set(p, &op->results[0], out);
  return VT_OK;
}

// ---- pad ----------------------------------------------------------------------------------------

// Padding is a window of one element over a padded array; what is left to the window is padded
// here.
static bool pad_to(vt_parter *p, vt_part part, vt_value *value, const vt_window *windows,
                   vt_type type, const vt_assign *at, vt_part *out) {
  vt_windowed w;
  if (!vt_reshard_windowed(p, part, windows, at, value, &w)) return false;
  int64_t lows[VT_MAX_RANK], highs[VT_MAX_RANK], inside[VT_MAX_RANK];
  bool none = true;
  for (int32_t d = 0; d < type.rank; d++) {
    lows[d] = w.windows[d].low;
    highs[d] = w.windows[d].high;
    inside[d] = w.windows[d].base_dilation - 1;
    none = none && !lows[d] && !highs[d] && !inside[d];
  }
  vt_value *padded = w.local;
  if (!none) {
    vt_type grown = vt_windowed_type(p, &w, type.dtype);
    vt_op *op =
        vt_op_create(p->func, VT_OP_PAD, p->loc, 2, (vt_value *[]){w.local, value}, 1, &grown, 0);
    vt_op_set_ints(op, VT_ATTR_EDGE_PADDING_LOW, (uint32_t)type.rank, lows);
    vt_op_set_ints(op, VT_ATTR_EDGE_PADDING_HIGH, (uint32_t)type.rank, highs);
    vt_op_set_ints(op, VT_ATTR_INTERIOR_PADDING, (uint32_t)type.rank, inside);
    padded = &vt_emit_finished(p, op)->results[0];
  }
  *out = (vt_part){type, vt_windowed_result(p, &w, padded, vt_local_type(p, type, at)), at};
  return true;
}

vt_status vt_partition_pad(vt_parter *p, const vt_op *op) {
  const int64_t *lows = vt_attr_ints(op, VT_ATTR_EDGE_PADDING_LOW, NULL);
  const int64_t *highs = vt_attr_ints(op, VT_ATTR_EDGE_PADDING_HIGH, NULL);
  const int64_t *inside = vt_attr_ints(op, VT_ATTR_INTERIOR_PADDING, NULL);
  vt_type type = op->results[0].type;
  vt_window windows[VT_MAX_RANK];
  for (int32_t d = 0; d < type.rank; d++)
    windows[d] = (vt_window){1, 1, lows[d], highs[d], inside[d] + 1, 1};
  const vt_assign *scalar = vt_assign_whole(&p->assigns, 0, p->device_count);
  vt_value *value = vt_reshard(p, vt_part_of(p, op->operands[1]), scalar).local;
  vt_part out;
  if (!pad_to(p, vt_part_of(p, op->operands[0]), value, windows, type, vt_part_wanted(p, op, 0),
              &out))
    return vt_partition_whole(p, op);
  vt_part_set(p, &op->results[0], out);
  return VT_OK;
}

// ---- reverse ------------------------------------------------------------------------------------

// Tiles trade places whole and are reversed where they are. If the last one is not full, elements
// first move up, so that it is the first one that is not.
vt_status vt_partition_reverse(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  if (!vt_assign_is_cut(wanted)) return vt_partition_whole(p, op);
  uint32_t count, mask = 0;
  const int64_t *dims = vt_attr_ints(op, VT_ATTR_DIMENSIONS, &count);
  vt_window windows[VT_MAX_RANK];
  for (int32_t d = 0; d < type.rank; d++) windows[d] = trivial;
  for (uint32_t i = 0; i < count; i++) {
    int64_t size = type.dims[dims[i]], tiles = wanted->dims[dims[i]];
    mask |= 1u << dims[i];
    windows[dims[i]].low = vt_ceil(size, tiles) * tiles - size;
  }
  const vt_assign *reversed = vt_assign_reverse(&p->assigns, wanted, mask);
  vt_part part = vt_reshard(p, vt_part_of(p, op->operands[0]), reversed);
  vt_windowed w;
  if (!vt_reshard_windowed(p, part, windows, reversed, NULL, &w)) return vt_partition_whole(p, op);
  vt_value *local = vt_emit_copy(p, op, w.local->type, 1, &w.local);
  vt_part_set(p, &op->results[0], (vt_part){type, local, wanted});
  return VT_OK;
}

// ---- rotation -----------------------------------------------------------------------------------

// Each tile gets its elements from the tiles that lie `amount` elements to the left, around the
// end. The last tile counts as full.
static vt_value *rotate_padded(vt_parter *p, vt_part part, int32_t dim, int32_t tiles,
                               int64_t amount) {
  int64_t shard = part.local->type.dims[dim], done = 0;
  vt_value *pieces[2];
  uint32_t count = 0;
  vt_arena scratch = {0};
  int32_t *source = VT_NEW_ARRAY(&scratch, int32_t, part.assign->dims[dim]);
  while (done < shard) {
    int64_t distance = vt_ceil(amount - done + shard, shard) - 1; // rounded up, also below 0
    int64_t low = distance * shard - amount + done, size = shard - low;
    if (size > shard - done) size = shard - done;
    vt_value *piece = vt_emit_slice(p, part.local, dim, low, low + size);
    for (int32_t t = 0; t < part.assign->dims[dim]; t++)
      source[t] = t < tiles ? (int32_t)((t - distance % tiles + tiles) % tiles) : -1;
    vt_assert(count < 2);
    pieces[count++] =
        distance % tiles ? vt_emit_permute_tiles(p, piece, part.assign, dim, source) : piece;
    done += size;
  }
  vt_arena_free(&scratch);
  return vt_emit_concat(p, count, pieces, dim);
}

// The part with elements moved to the right by `amount` along a cut dimension, and around. If the
// last tile is not full, elements that go around the end come from a second rotation.
static vt_part rotate(vt_parter *p, vt_part part, int32_t dim, int64_t amount) {
  int64_t size = part.global.dims[dim], shard = part.local->type.dims[dim];
  int32_t tiles = (int32_t)vt_ceil(size, shard);
  int64_t missing = tiles * shard - size;
  amount %= size;
  if (!amount) return part;
  vt_part out = part;
  out.local = rotate_padded(p, part, dim, tiles, amount);
  if (!missing) return out;
  vt_value *around = rotate_padded(p, part, dim, tiles, (amount + missing) % (shard * tiles));
  vt_value *at = vt_emit_positions(p, part, dim);
  vt_value *limit = vt_emit_splat(p, at->type, vt_emit_s32(p, amount));
  out.local = vt_emit_select(p, vt_emit_compare(p, VT_CMP_LT, at, limit), around, out.local);
  return out;
}

static bool is_part_of(const vt_value *v, const vt_value *whole, int32_t dim) {
  return v->op && v->op->code == VT_OP_SLICE && v->op->operands[0] == whole &&
         vt_attr_ints(v->op, VT_ATTR_STRIDES, NULL)[dim] == 1;
}

// Two slices of one array that trade places.
static bool rotate_slices(vt_parter *p, const vt_op *op, int32_t dim, vt_part *out) {
  const vt_value *a = op->operands[0], *b = op->operands[op->operand_count - 1];
  if (op->operand_count != 2 || !a->op || a->op->code != VT_OP_SLICE) return false;
  const vt_value *whole = a->op->operands[0];
  if (!is_part_of(a, whole, dim) || !is_part_of(b, whole, dim)) return false;
  vt_part part = vt_part_of(p, whole);
  if (!vt_type_equal(whole->type, op->results[0].type) || part.assign != vt_part_wanted(p, op, 0) ||
      vt_attr_ints(a->op, VT_ATTR_START_INDICES, NULL)[dim] !=
          vt_attr_ints(b->op, VT_ATTR_LIMIT_INDICES, NULL)[dim])
    return false;
  *out = rotate(p, part, dim, a->type.dims[dim]);
  return true;
}

static vt_value *select_below(vt_parter *p, vt_value *at, int64_t limit, vt_value *below,
                              vt_value *other) {
  vt_value *bound = vt_emit_splat(p, at->type, vt_emit_s32(p, limit));
  return vt_emit_select(p, vt_emit_compare(p, VT_CMP_LT, at, bound), below, other);
}

// An array between two slices of itself: padded, with the padding taken from rotations.
static bool wrap_around(vt_parter *p, const vt_op *op, int32_t dim, vt_part *out) {
  if (op->operand_count != 3) return false;
  const vt_value *low = op->operands[0], *middle = op->operands[1], *high = op->operands[2];
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  if (!is_part_of(low, middle, dim) || !is_part_of(high, middle, dim) ||
      vt_part_of(p, middle).assign != wanted || vt_part_of(p, low).assign != wanted ||
      vt_part_of(p, high).assign != wanted)
    return false;
  vt_type type = op->results[0].type;
  int64_t size = type.dims[dim], lows = low->type.dims[dim], highs = high->type.dims[dim];
  int64_t low_start = vt_attr_ints(low->op, VT_ATTR_START_INDICES, NULL)[dim];
  int64_t high_start = vt_attr_ints(high->op, VT_ATTR_START_INDICES, NULL)[dim];
  vt_window windows[VT_MAX_RANK];
  for (int32_t d = 0; d < type.rank; d++) windows[d] = trivial;
  windows[dim].low = lows;
  windows[dim].high = highs;
  vt_part padded;
  vt_value *zero = vt_emit_zero(p, type.dtype);
  if (!pad_to(p, vt_part_of(p, middle), zero, windows, type, wanted, &padded)) return false;
  vt_part first = rotate(p, padded, dim, size - low_start - lows);
  vt_part last = rotate(p, padded, dim, size - high_start - lows - highs);
  vt_value *at = vt_emit_positions(p, padded, dim);
  *out = padded;
  out->local = select_below(p, at, lows, first.local,
                            select_below(p, at, size - highs, padded.local, last.local));
  return true;
}

// ---- concatenate --------------------------------------------------------------------------------

// The one operand that has elements; NULL: several have.
static const vt_value *only_part(const vt_op *op, int32_t dim) {
  const vt_value *only = NULL;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    if (!op->operands[i]->type.dims[dim]) continue;
    if (only) return NULL;
    only = op->operands[i];
  }
  return only;
}

// Along the dimension that grows nothing may be cut.
vt_status vt_partition_concatenate(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  int32_t dim = (int32_t)vt_attr_i64(op, VT_ATTR_DIMENSION);
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  vt_part out;
  if (wanted->only >= 0) return vt_partition_whole(p, op);
  const vt_value *only = only_part(op, dim);
  if (only) {
    vt_part_set(p, &op->results[0], vt_part_of(p, only));
    return VT_OK;
  }
  if (wanted->dims[dim] > 1 && (rotate_slices(p, op, dim, &out) || wrap_around(p, op, dim, &out))) {
    vt_part_set(p, &op->results[0], out);
    return VT_OK;
  }
  const vt_assign *at = vt_assign_clear(p, type, wanted, 1u << dim);
  vt_arena scratch = {0};
  vt_value **parts = VT_NEW_ARRAY(&scratch, vt_value *, op->operand_count);
  uint32_t count = 0;
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (op->operands[i]->type.dims[dim])
      parts[count++] = vt_reshard(p, vt_part_of(p, op->operands[i]), at).local;
  vt_value *local = vt_emit_concat(p, count, parts, dim);
  vt_arena_free(&scratch);
  vt_part_set(p, &op->results[0], (vt_part){type, local, at});
  return VT_OK;
}
