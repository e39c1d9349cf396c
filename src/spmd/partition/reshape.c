// SPDX-License-Identifier: Apache-2.0
// reshape.c - reshapes: tiles of the operand that are tiles of the result.
//
// Dimensions fall into blocks: the fewest neighbours of the operand with as many elements as some
// neighbours of the result. Within a block a cut dimension may split, and may merge with the
// dimensions below it as long as each device's elements stay together.
#include <string.h>

#include "spmd/partition/partition.h"

// Dimensions of one side that are not used up, the next one last, with their tiles.
typedef struct dim_stack {
  int32_t count;
  int64_t sizes[VT_MAX_RANK];
  int32_t tiles[VT_MAX_RANK];
} dim_stack;

static void push(dim_stack *s, int64_t size, int32_t tiles) {
  s->sizes[s->count] = size;
  s->tiles[s->count++] = tiles;
}

static bool none_cut(const dim_stack *s) {
  for (int32_t i = 0; i < s->count; i++)
    if (s->tiles[i] > 1) return false;
  return true;
}

// The tiles of dimensions [to, to_end) of the result for the block [from, from_end).
static bool convert_block(vt_type source, const int32_t *cut, int32_t from, int32_t from_end,
                          vt_type target, int32_t to, int32_t to_end, int32_t *out) {
  dim_stack s = {0}, t = {0};
  int32_t n = to;
  for (int32_t d = from_end; d-- > from;) push(&s, source.dims[d], cut[d]);
  for (int32_t d = to_end; d-- > to;) push(&t, target.dims[d], 1);
  for (int32_t d = to; d < to_end; d++) out[d] = 1;
  while (!none_cut(&s)) {
    int64_t size = s.sizes[--s.count], wanted = t.count ? t.sizes[--t.count] : 1;
    int32_t tiles = s.tiles[s.count];
    if (n == to_end) return false;
    if (size == wanted) {
      out[n++] *= tiles;
    } else if (wanted == 1) {
      n++;
      push(&s, size, tiles);
    } else if (size == 1) {
      if (tiles > 1) return false;
      push(&t, wanted, 1);
    } else if (size > wanted) {
      if (size % wanted || size % tiles) return false;
      if (wanted % tiles == 0) {
        out[n++] *= tiles;
        push(&s, size / wanted, 1);
      } else if (tiles % wanted == 0) {
        out[n++] *= (int32_t)wanted;
        push(&s, size / wanted, (int32_t)(tiles / wanted));
      } else {
        return false;
      }
    } else {
      if (size % tiles || !s.count) return false;
      if (s.tiles[s.count - 1] != 1 && size != tiles) return false;
      if (s.sizes[s.count - 1] % s.tiles[s.count - 1]) return false; // padding between rows
      s.sizes[s.count - 1] *= size;
      s.tiles[s.count - 1] *= tiles;
      push(&t, wanted, 1);
    }
  }
  return true;
}

// The assignment of an array of type `target` that has the elements of one of type `source` where
// `a` has them; dimensions of `out_lost` (of the source) had to be given up.
static const vt_assign *reshaped(vt_parter *p, vt_type source, vt_type target, const vt_assign *a,
                                 uint32_t *out_lost) {
  int32_t dims[VT_MAX_RANK], cut[VT_MAX_RANK], s = 0, t = 0;
  *out_lost = 0;
  if (source.rank) memcpy(cut, a->dims, sizeof *cut * (size_t)source.rank);
  while (s < source.rank || t < target.rank) {
    int32_t from = s, to = t;
    int64_t x = s < source.rank ? source.dims[s++] : 1, y = t < target.rank ? target.dims[t++] : 1;
    while (x != y && (x < y ? s < source.rank : t < target.rank)) {
      if (x < y)
        x *= source.dims[s++];
      else
        y *= target.dims[t++];
    }
    while (s < source.rank && source.dims[s] == 1 && t == target.rank) s++;
    for (int32_t d = s; !convert_block(source, cut, from, s, target, to, t, dims);) {
      do d--;
      while (cut[d] == 1); // give up the last one that is cut, and try again
      cut[d] = 1;
      *out_lost |= 1u << d;
    }
  }
  const vt_assign *kept = vt_assign_replicate(&p->assigns, a, *out_lost);
  return vt_assign_reshape(&p->assigns, kept, target.rank, dims, kept->copies);
}

static void set_reshaped(vt_parter *p, const vt_op *op, vt_part part, const vt_assign *assign) {
  vt_type type = op->results[0].type, local = vt_local_type(p, type, assign);
  vt_value *value = vt_emit_reshape(p, part.local, local.rank, local.dims);
  vt_part_set(p, &op->results[0], (vt_part){type, value, assign});
}

vt_status vt_partition_reshape(vt_parter *p, const vt_op *op) {
  vt_type type = op->results[0].type;
  vt_part part = vt_part_of(p, op->operands[0]);
  const vt_assign *wanted = vt_part_wanted(p, op, 0);
  uint32_t lost;
  if (wanted->only >= 0 || part.assign->only >= 0 || vt_type_elements(type) == 0)
    return vt_partition_whole(p, op);
  if (vt_assign_is_whole(wanted)) return vt_partition_whole(p, op);
  const vt_assign *before = reshaped(p, type, part.global, wanted, &lost);
  if (!lost) {
    set_reshaped(p, op, vt_reshard(p, part, before), wanted);
    return VT_OK;
  }
  const vt_assign *after = reshaped(p, part.global, type, part.assign, &lost);
  if (lost) part = vt_reshard(p, part, vt_assign_replicate(&p->assigns, part.assign, lost));
  set_reshaped(p, op, part, after);
  return VT_OK;
}
