// SPDX-License-Identifier: Apache-2.0
// kernel_places.c - see kernel_places.h.
#include "host/kernel_places.h"

#include "host/cpu.h"

// Adds one component of n starts in a row of the batch: `before(i)` is the place so far. Without
// `clamp`, the place of an out-of-bounds start becomes negative and stays so.
#define COMPONENT(T, is_signed, before, BY)                                                        \
  do {                                                                                             \
    for (int64_t i = 0; i < n; i++) {                                                              \
      int64_t start = (int64_t)*(const T *)(at + i * step), so_far = before;                       \
      bool beyond = (uint64_t)start > (uint64_t)limit, below = is_signed && start < 0;             \
      if (clamp)                                                                                   \
        place[i] = so_far + BY(below ? 0 : beyond ? limit : start, stride);                        \
      else                                                                                         \
        place[i] = beyond || so_far < 0 ? -1 : so_far + BY(start, stride);                         \
    }                                                                                              \
  } while (0)

#define STARTED(T, is_signed, BY)                                                                  \
  do {                                                                                             \
    if (first)                                                                                     \
      COMPONENT(T, is_signed, base, BY);                                                           \
    else                                                                                           \
      COMPONENT(T, is_signed, place[i], BY);                                                       \
  } while (0)

// Vector code shifts 64-bit lanes in one instruction but needs several to multiply them.
#define SHIFTED(x, y) ((x) << shift)
#define TIMES(x, y)   ((x) * (y))

// The usual distances as constants, so that the loop vectorises.
#define STEPPED(T, is_signed)                                                                      \
  do {                                                                                             \
    if (given_step == (int64_t)sizeof(T) && 1ll << shift == stride) {                              \
      enum { step = sizeof(T) };                                                                   \
      STARTED(T, is_signed, SHIFTED);                                                              \
    } else if (given_step == (int64_t)sizeof(T)) {                                                 \
      enum { step = sizeof(T) };                                                                   \
      STARTED(T, is_signed, TIMES);                                                                \
    } else if (given_step == 2 * (int64_t)sizeof(T)) {                                             \
      enum { step = 2 * sizeof(T) };                                                               \
      STARTED(T, is_signed, TIMES);                                                                \
    } else {                                                                                       \
      const int64_t step = given_step;                                                             \
      STARTED(T, is_signed, TIMES);                                                                \
    }                                                                                              \
  } while (0)

VT_ANY_CPU static void add_component(vt_dtype type, int64_t n, const char *at, int64_t given_step,
                                     int64_t limit, int64_t stride, bool clamp, bool first,
                                     int64_t base, int64_t *place) {
  int shift = stride > 0 ? __builtin_ctzll((uint64_t)stride) : 0;
  switch (type) {
  case VT_S8:
    STEPPED(int8_t, true);
    break;
  case VT_U8:
    STEPPED(uint8_t, false);
    break;
  case VT_S16:
    STEPPED(int16_t, true);
    break;
  case VT_U16:
    STEPPED(uint16_t, false);
    break;
  case VT_S32:
    STEPPED(int32_t, true);
    break;
  case VT_U32:
    STEPPED(uint32_t, false);
    break;
  case VT_S64:
    STEPPED(int64_t, true);
    break;
  default:
    STEPPED(uint64_t, false);
    break;
  }
}

vt_places_run vt_places_find(const vt_places *p, const void *indices, int64_t from, int64_t most,
                             bool clamp, int64_t *places) {
  int32_t last = p->rank - 1;
  int64_t base = 0, at = 0, rest = from, left = p->dims[last] - from % p->dims[last];
  vt_places_run run = {.n = left < most ? left : most, .step = p->other[last]};
  for (int32_t d = last; d >= 0; d--) {
    int64_t i = rest % p->dims[d];
    rest /= p->dims[d];
    base += i * p->operand[d];
    run.other += i * p->other[d];
    at += i * p->index[d];
  }
  bool moves = p->operand[last] != 0 || !p->starts;
  for (int64_t i = 0; moves && i < run.n; i++) places[i] = base + i * p->operand[last];
  for (int32_t c = 0; c < p->starts; c++)
    add_component(p->index_type, run.n, (const char *)indices + at + p->start[c].at, p->index[last],
                  p->start[c].limit, p->start[c].stride, clamp, c == 0 && !moves, base, places);
  return run;
}

static void drop_dim(vt_places *p, int32_t at) {
  p->rank--;
  for (int32_t i = at; i < p->rank; i++) {
    p->dims[i] = p->dims[i + 1];
    p->other[i] = p->other[i + 1];
    p->index[i] = p->index[i + 1];
    p->operand[i] = p->operand[i + 1];
  }
}

// Drops dimensions of size 1 and merges adjacent ones that are contiguous everywhere.
static void join_dims(vt_places *p) {
  for (int32_t i = p->rank - 1; i >= 0; i--)
    if (p->dims[i] == 1 && p->rank > 1) drop_dim(p, i);
  for (int32_t i = p->rank - 2; i >= 0; i--) {
    int64_t n = p->dims[i + 1];
    if (p->other[i] != p->other[i + 1] * n || p->index[i] != p->index[i + 1] * n ||
        p->operand[i] != p->operand[i + 1] * n)
      continue;
    p->dims[i + 1] *= p->dims[i];
    drop_dim(p, i);
  }
}

vt_status vt_places_make(const vt_op *op, const vt_indexed_keys *keys, vt_type operand,
                         vt_type indices, vt_type other, const int64_t *sizes, vt_places *out) {
  vt_indexed g;
  VT_TRY(vt_indexed_plan(op, keys, operand, indices, other, sizes, &g));
  int64_t bytes = (int64_t)vt_dtype_bytes(operand.dtype),
          index_bytes = (int64_t)vt_dtype_bytes(indices.dtype);
  vt_places *p = out;
  *p = (vt_places){.count = 1, .rank = g.batch_rank, .index_type = indices.dtype, .disjoint = true};
  if (!p->rank) p->dims[p->rank++] = 1;
  for (int32_t d = 0; d < g.batch_rank; d++) {
    p->dims[d] = g.batch_dims[d];
    p->other[d] = g.batch_strides[d] * bytes;
    p->index[d] = g.index_strides[d] * index_bytes;
    p->count *= g.batch_dims[d];
  }
  for (int32_t i = 0; i < g.batching_count; i++)
    p->operand[g.batching_at[i]] += g.operand_strides[g.batching_dim[i]] * bytes;
  join_dims(p);
  for (uint32_t i = 0; i < g.components; i++) {
    int64_t d = g.index_map[i];
    p->start[i].at = (int64_t)i * g.component_stride * index_bytes;
    p->start[i].limit = g.limits[d];
    p->start[i].stride = g.operand_strides[d] * bytes;
    p->disjoint &= g.limits[d] == operand.dims[d] - 1;
    p->starts++;
  }
  for (int32_t d = 0; d < operand.rank; d++)
    if (g.limits[d] < 0) p->count = 0; // no window fits
  p->window.bytes = bytes;
  p->window.rank = g.window_rank;
  for (int32_t i = 0; i < g.window_rank; i++) {
    p->window.dims[i] = g.window_dims[i];
    p->window.to[i] = g.window_strides[i] * bytes;
    p->window.from[i] = g.place_strides[i] * bytes;
  }
  vt_box_normalise(&p->window);
  return VT_OK;
}
