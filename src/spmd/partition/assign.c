// SPDX-License-Identifier: Apache-2.0
// assign.c - interned tile assignments, what is derived from them, and groups of devices.
#include "spmd/partition/assign.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/check.h"

enum { MAX_VIEW = 2 * VT_MAX_RANK + 4 }; // dimensions of an intermediate view

void vt_assigns_free(vt_assigns *t) {
  vt_map_free(&t->interned);
  vt_map_free(&t->memo);
}

// ---- keys ---------------------------------------------------------------------------------------

enum {
  KEY_ASSIGN,
  KEY_ONLY,
  KEY_VIEW,
  KEY_PLACES,
  KEY_GROUPS,
  KEY_ALONG,
  KEY_WITHIN,
  KEY_GROUP_ON,
  KEY_UNGROUP,
  KEY_ALIGN,
  KEY_GROUP_DIMS,
  KEY_GROUP_COPIES,
  KEY_REFINES,
  KEY_REVERSE,
  KEY_JOIN,
  KEY_DEVICES,
  KEY_LISTS,
  KEY_ROWS
};

// What a derived thing is remembered by: pointers and small numbers.
typedef struct memo_key {
  size_t size;
  uint64_t words[4 * (VT_MAX_RANK + 4) + 8];
} memo_key;

static void key_put(memo_key *key, uint64_t word) {
  vt_assert(key->size < sizeof key->words / sizeof *key->words);
  key->words[key->size++] = word;
}
static void key_begin(memo_key *key, uint64_t kind) {
  key->size = 0;
  key_put(key, kind);
}
static void key_put_ptr(memo_key *key, const void *pointer) {
  key_put(key, (uintptr_t)pointer);
}
static void key_put_all(memo_key *key, int32_t count, const int32_t *numbers) {
  key_put(key, (uint64_t)count);
  for (int32_t i = 0; i < count; i++) key_put(key, (uint64_t)(int64_t)numbers[i]);
}
// What was found out about two things that may or may not fit each other.
typedef struct alignment {
  bool match, alike;
  const vt_assign *inner; // if they match
} alignment;

static void **memo_at(vt_assigns *t, const memo_key *key) {
  return vt_map_at(&t->memo, key->words, key->size * sizeof *key->words);
}

// ---- assignments --------------------------------------------------------------------------------

// The interned thing of these numbers and this order; NULL where it is new.
static void **interned_at(vt_assigns *t, int32_t count, const int32_t *numbers,
                          const vt_order *order) {
  vt_arena scratch = {0};
  int32_t digits = vt_order_is_list(order) ? 0 : 2 * order->count;
  int32_t size = count + (vt_order_is_list(order) ? order->total : digits);
  int32_t *key = VT_NEW_ARRAY(&scratch, int32_t, size + 1);
  memcpy(key, numbers, sizeof *key * (size_t)count);
  for (int32_t i = 0; i < digits / 2; i++) {
    key[count + 2 * i] = order->digits[i].size;
    key[count + 2 * i + 1] = order->digits[i].stride;
  }
  if (vt_order_is_list(order)) vt_order_expand(order, key + count);
  key[size] = order->count;
  void **place = vt_map_at(&t->interned, key, sizeof *key * (size_t)(size + 1));
  vt_arena_free(&scratch);
  return place;
}

static vt_order kept_order(vt_assigns *t, const vt_order *order) {
  vt_order kept = *order;
  if (!vt_order_is_list(order)) return kept;
  int32_t *list = VT_NEW_ARRAY(t->arena, int32_t, order->total);
  vt_order_expand(order, list);
  kept.list = list;
  return kept;
}

const vt_assign *vt_assign_ordered(vt_assigns *t, int32_t rank, const int32_t *dims, int32_t copies,
                                   const vt_order *devices) {
  vt_arena scratch = {0};
  int32_t numbers[3 + VT_MAX_RANK + 1] = {KEY_ASSIGN, rank, copies}, tiles = 1;
  for (int32_t d = 0; d < rank; d++) {
    numbers[3 + d] = dims[d];
    tiles *= dims[d];
  }
  vt_assert(tiles * copies == devices->total);
  vt_order order = vt_order_ascending(devices, copies, &scratch);
  void **place = interned_at(t, 3 + rank, numbers, &order);
  if (!*place) {
    vt_assign *a = VT_NEW(t->arena, vt_assign);
    int32_t *kept = VT_NEW_ARRAY(t->arena, int32_t, rank);
    if (rank) memcpy(kept, dims, sizeof *kept * (size_t)rank);
    *a = (vt_assign){.rank = rank,
                     .device_count = tiles * copies,
                     .tiles = tiles,
                     .copies = copies,
                     .only = -1,
                     .dims = kept,
                     .order = kept_order(t, &order)};
    *place = a;
  }
  const vt_assign *a = *place;
  vt_arena_free(&scratch);
  return a;
}

const vt_assign *vt_assign_make(vt_assigns *t, int32_t rank, const int32_t *dims, int32_t copies,
                                const int32_t *devices) {
  int32_t count = copies;
  for (int32_t d = 0; d < rank; d++) count *= dims[d];
  if (devices) vt_assert_each(i, count, devices[i] >= 0 && devices[i] < count);
  vt_order order = devices ? vt_order_of_list(count, devices) : vt_order_counting(count);
  return vt_assign_ordered(t, rank, dims, copies, &order);
}

static void fill_ones(int32_t count, int32_t *out) {
  for (int32_t i = 0; i < count; i++) out[i] = 1;
}

const vt_assign *vt_assign_whole(vt_assigns *t, int32_t rank, int32_t device_count) {
  const vt_assign **last = &t->whole[rank];
  if (*last && (*last)->device_count == device_count) return *last;
  int32_t ones[VT_MAX_RANK] = {0};
  fill_ones(rank, ones);
  return *last = vt_assign_make(t, rank, ones, device_count, NULL);
}

const vt_assign *vt_assign_only(vt_assigns *t, int32_t rank, int32_t device_count, int32_t device) {
  if (device_count == 1) return vt_assign_whole(t, rank, 1);
  memo_key key;
  key_begin(&key, KEY_ONLY);
  key_put(&key, (uint64_t)rank);
  key_put(&key, (uint64_t)device_count);
  key_put(&key, (uint64_t)device);
  void **place = memo_at(t, &key);
  if (!*place) {
    vt_assign *a = VT_NEW(t->arena, vt_assign);
    int32_t *dims = VT_NEW_ARRAY(t->arena, int32_t, rank + 1);
    fill_ones(rank, dims);
    *a = (vt_assign){rank, device_count, 1, 1, device, dims, {.total = 0}};
    *place = a;
  }
  return *place;
}

const vt_assign *vt_assign_view(vt_assigns *t, const vt_assign *a, int32_t count,
                                const int32_t *shape, const int32_t *permutation, int32_t rank,
                                const int32_t *dims, int32_t copies) {
  vt_assert(a->only < 0 && count <= MAX_VIEW);
  memo_key key;
  key_begin(&key, KEY_VIEW);
  key_put_ptr(&key, a);
  key_put_all(&key, count, shape);
  for (int32_t i = 0; i < count; i++) key_put(&key, (uint64_t)(permutation ? permutation[i] : i));
  key_put_all(&key, rank, dims);
  key_put(&key, (uint64_t)copies);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  vt_arena scratch = {0};
  vt_order order = a->order;
  if (permutation) order = vt_order_permute(&a->order, count, shape, permutation, &scratch);
  const vt_assign *out = vt_assign_ordered(t, rank, dims, copies, &order);
  vt_arena_free(&scratch);
  vt_assert(out->device_count == a->device_count);
  *memo_at(t, &key) = (void *)(uintptr_t)out;
  return out;
}

// The dimensions of `a` and its copies as one shape.
static int32_t full_shape(const vt_assign *a, int32_t *out) {
  memcpy(out, a->dims, sizeof *out * (size_t)a->rank);
  out[a->rank] = a->copies;
  return a->rank + 1;
}

const vt_assign *vt_assign_project(vt_assigns *t, const vt_assign *a, int32_t rank,
                                   const int32_t *from) {
  if (a->only >= 0) return vt_assign_only(t, rank, a->device_count, a->only);
  if (vt_assign_is_whole(a)) return vt_assign_whole(t, rank, a->device_count);
  int32_t shape[VT_MAX_RANK + 1], permutation[VT_MAX_RANK + 1], dims[VT_MAX_RANK], n = 0;
  bool taken[VT_MAX_RANK] = {0};
  int32_t count = full_shape(a, shape), tiles = 1;
  for (int32_t d = 0; d < rank; d++) {
    dims[d] = from[d] < 0 ? 1 : a->dims[from[d]];
    tiles *= dims[d];
    if (from[d] < 0) continue;
    vt_assert(!taken[from[d]]);
    taken[from[d]] = true;
    permutation[n++] = from[d];
  }
  if (tiles == 1) return vt_assign_whole(t, rank, a->device_count);
  for (int32_t d = 0; d < a->rank; d++)
    if (!taken[d]) permutation[n++] = d;
  permutation[n++] = a->rank;
  vt_assert(n == count);
  return vt_assign_view(t, a, count, shape, permutation, rank, dims, a->device_count / tiles);
}

const vt_assign *vt_assign_keep(vt_assigns *t, const vt_assign *a, uint32_t mask) {
  int32_t from[VT_MAX_RANK];
  for (int32_t d = 0; d < a->rank; d++) from[d] = mask >> d & 1 ? d : -1;
  return vt_assign_project(t, a, a->rank, from);
}

const vt_assign *vt_assign_replicate(vt_assigns *t, const vt_assign *a, uint32_t mask) {
  return vt_assign_keep(t, a, ~mask);
}

const vt_assign *vt_assign_transpose(vt_assigns *t, const vt_assign *a,
                                     const int32_t *permutation) {
  return vt_assign_project(t, a, a->rank, permutation);
}

const vt_assign *vt_assign_swap_copies(vt_assigns *t, const vt_assign *a, int32_t dim) {
  int32_t shape[VT_MAX_RANK + 1], permutation[VT_MAX_RANK + 1], dims[VT_MAX_RANK + 1];
  int32_t count = full_shape(a, shape);
  for (int32_t i = 0; i < count; i++) permutation[i] = i;
  permutation[dim] = a->rank;
  permutation[a->rank] = dim;
  for (int32_t i = 0; i < count; i++) dims[i] = shape[permutation[i]];
  return vt_assign_view(t, a, count, shape, permutation, a->rank, dims, dims[a->rank]);
}

const vt_assign *vt_assign_reshape(vt_assigns *t, const vt_assign *a, int32_t rank,
                                   const int32_t *dims, int32_t copies) {
  if (a->only >= 0) return vt_assign_only(t, rank, a->device_count, a->only);
  int32_t shape[VT_MAX_RANK + 1];
  int32_t count = full_shape(a, shape);
  return vt_assign_view(t, a, count, shape, NULL, rank, dims, copies);
}

const vt_assign *vt_assign_split(vt_assigns *t, const vt_assign *a, int32_t dim, int32_t outer) {
  int32_t dims[VT_MAX_RANK + 1];
  vt_assert(a->dims[dim] % outer == 0);
  for (int32_t d = 0; d <= a->rank; d++)
    dims[d] = d < dim        ? a->dims[d]
              : d == dim     ? outer
              : d == dim + 1 ? a->dims[dim] / outer
                             : a->dims[d - 1];
  return vt_assign_reshape(t, a, a->rank + 1, dims, a->copies);
}

const vt_assign *vt_assign_merge(vt_assigns *t, const vt_assign *a, int32_t dim) {
  int32_t dims[VT_MAX_RANK];
  for (int32_t d = 0; d < a->rank - 1; d++)
    dims[d] = d < dim ? a->dims[d] : d == dim ? a->dims[d] * a->dims[d + 1] : a->dims[d + 1];
  return vt_assign_reshape(t, a, a->rank - 1, dims, a->copies);
}

const vt_assign *vt_assign_move(vt_assigns *t, const vt_assign *a, int32_t from, int32_t to) {
  int32_t shape[VT_MAX_RANK + 1], permutation[VT_MAX_RANK + 1], dims[VT_MAX_RANK], n = 0;
  int32_t count = full_shape(a, shape);
  vt_assert(from != to);
  for (int32_t d = 0; d < a->rank; d++) {
    dims[d] = d == from ? 1 : d == to ? a->dims[to] * a->dims[from] : a->dims[d];
    if (d != from) permutation[n++] = d;
    if (d == to) permutation[n++] = from;
  }
  permutation[n++] = a->rank;
  vt_assert(n == count);
  return vt_assign_view(t, a, count, shape, permutation, a->rank, dims, a->copies);
}

// Row-major strides of the dimensions and the copies.
static void strides_of(const vt_assign *a, int32_t *out) {
  int32_t stride = a->copies;
  out[a->rank] = 1;
  for (int32_t d = a->rank; d-- > 0;) {
    out[d] = stride;
    stride *= a->dims[d];
  }
}

static int32_t size_along(const vt_assign *a, int32_t dim) {
  return dim == a->rank ? a->copies : a->dims[dim];
}

// By digits: of the place of a device, those along `dim`.
static bool fill_by_digits(const vt_assign *a, int32_t stride, int32_t size, int32_t *out) {
  vt_order places = vt_order_inverse(&a->order, NULL);
  if (!vt_order_part(&places, stride) || !vt_order_part(&places, stride * size)) return false;
  for (int32_t i = 0; i < places.count; i++) {
    vt_digit *d = &places.digits[i];
    d->stride = d->stride < stride || d->stride >= stride * size ? 0 : d->stride / stride;
  }
  vt_order_expand(&places, out);
  return true;
}

static void fill_places(const vt_assign *a, int32_t dim, int32_t *out) {
  int32_t strides[VT_MAX_RANK + 1], stride, size = size_along(a, dim);
  strides_of(a, strides);
  stride = strides[dim];
  if (!vt_order_is_list(&a->order) && fill_by_digits(a, stride, size, out)) return;
  vt_arena scratch = {0};
  int32_t *devices = VT_NEW_ARRAY(&scratch, int32_t, a->device_count);
  vt_order_expand(&a->order, devices);
  for (int32_t i = 0; i < a->device_count; i++) out[devices[i]] = i / stride % size;
  vt_arena_free(&scratch);
}

const int32_t *vt_assign_devices(vt_assigns *t, const vt_assign *a) {
  vt_assert(a->only < 0);
  if (vt_order_is_list(&a->order)) return a->order.list;
  memo_key key;
  key_begin(&key, KEY_DEVICES);
  key_put_ptr(&key, a);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  int32_t *list = VT_NEW_ARRAY(t->arena, int32_t, a->device_count);
  vt_order_expand(&a->order, list);
  *place = list;
  return list;
}

const int32_t *vt_assign_places(vt_assigns *t, const vt_assign *a, int32_t dim) {
  memo_key key;
  key_begin(&key, KEY_PLACES);
  key_put_ptr(&key, a);
  key_put(&key, (uint64_t)dim);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  int32_t *out = VT_NEW_ARRAY(t->arena, int32_t, a->device_count);
  if (a->only < 0) fill_places(a, dim, out);
  *place = out;
  return out;
}

const vt_assign *vt_assign_reverse(vt_assigns *t, const vt_assign *a, uint32_t mask) {
  memo_key key;
  key_begin(&key, KEY_REVERSE);
  key_put_ptr(&key, a);
  key_put(&key, mask);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  vt_arena scratch = {0};
  const int32_t *from_devices = vt_assign_devices(t, a);
  int32_t *devices = VT_NEW_ARRAY(&scratch, int32_t, a->device_count);
  for (int32_t n = 0; n < a->device_count; n++) {
    int32_t from = n, stride = a->copies;
    for (int32_t d = a->rank; d-- > 0; stride *= a->dims[d]) {
      int32_t at = n / stride % a->dims[d];
      if (mask >> d & 1) from += (a->dims[d] - 1 - 2 * at) * stride;
    }
    devices[n] = from_devices[from];
  }
  const vt_assign *out = vt_assign_make(t, a->rank, a->dims, a->copies, devices);
  vt_arena_free(&scratch);
  *memo_at(t, &key) = (void *)(uintptr_t)out;
  return out;
}

// Each device in the tile that it holds of both; NULL: tiles would differ in size.
static const vt_assign *join(vt_assigns *t, const vt_assign *a, const vt_assign *by,
                             const int32_t *dims, int32_t tiles) {
  int32_t copies = a->device_count / tiles;
  vt_arena scratch = {0};
  int32_t *devices = VT_NEW_ARRAY(&scratch, int32_t, a->device_count);
  int32_t *filled = VT_NEW_ARRAY(&scratch, int32_t, tiles);
  const int32_t *places[VT_MAX_RANK], *others[VT_MAX_RANK];
  bool fits = true;
  for (int32_t d = 0; d < a->rank; d++) {
    others[d] = vt_assign_places(t, by, d);
    places[d] = a->dims[d] > 1 ? vt_assign_places(t, a, d) : others[d];
  }
  for (int32_t i = 0; i < a->device_count && fits; i++) {
    int32_t tile = 0;
    for (int32_t d = 0; d < a->rank; d++) {
      fits = fits && (by->dims[d] == 1 || others[d][i] == places[d][i]);
      tile = tile * dims[d] + places[d][i];
    }
    fits = fits && filled[tile] < copies;
    if (fits) devices[tile * copies + filled[tile]++] = i;
  }
  const vt_assign *out = fits ? vt_assign_make(t, a->rank, dims, copies, devices) : NULL;
  vt_arena_free(&scratch);
  return out;
}

const vt_assign *vt_assign_join(vt_assigns *t, const vt_assign *a, const vt_assign *by) {
  int32_t dims[VT_MAX_RANK], tiles = 1;
  if (vt_assign_is_whole(by)) return NULL;
  if (vt_assign_is_whole(a)) return by;
  for (int32_t d = 0; d < a->rank; d++) {
    if (a->dims[d] > 1 && by->dims[d] > 1 && a->dims[d] != by->dims[d]) return NULL;
    dims[d] = a->dims[d] > 1 ? a->dims[d] : by->dims[d];
    tiles *= dims[d];
  }
  if (tiles <= a->tiles || a->device_count % tiles) return NULL;
  memo_key key;
  key_begin(&key, KEY_JOIN);
  key_put_ptr(&key, a);
  key_put_ptr(&key, by);
  const alignment *known = *memo_at(t, &key);
  if (!known) {
    alignment *found = VT_NEW(t->arena, alignment);
    found->inner = join(t, a, by, dims, tiles);
    *memo_at(t, &key) = found;
    known = found;
  }
  return known->inner;
}

// ---- groups -------------------------------------------------------------------------------------

const vt_groups *vt_groups_of(vt_assigns *t, int32_t count, int32_t size, const vt_order *order) {
  const int32_t numbers[2] = {KEY_GROUPS, size};
  void **place = interned_at(t, 2, numbers, order);
  vt_assert(order->total == count * size);
  if (!*place) {
    vt_groups *g = VT_NEW(t->arena, vt_groups);
    *g = (vt_groups){count, size, kept_order(t, order)};
    *place = g;
  }
  return *place;
}

const vt_groups *vt_groups_make(vt_assigns *t, int32_t count, int32_t size, const int32_t *ids) {
  vt_order order = vt_order_of_list(count * size, ids);
  return vt_groups_of(t, count, size, &order);
}

vt_group_lists vt_groups_listed(vt_assigns *t, const vt_groups *g) {
  memo_key key;
  key_begin(&key, KEY_LISTS);
  key_put_ptr(&key, g);
  void **place = memo_at(t, &key);
  int32_t total = g->count * g->size, *ids = *place;
  if (!ids) {
    *place = ids = VT_NEW_ARRAY(t->arena, int32_t, 3 * total);
    vt_order_expand(&g->order, ids);
    for (int32_t group = 0, n = 0; group < g->count; group++)
      for (int32_t i = 0; i < g->size; i++, n++) {
        ids[total + ids[n]] = group;
        ids[2 * total + ids[n]] = i;
      }
  }
  return (vt_group_lists){ids, ids + total, ids + 2 * (size_t)total};
}

const vt_literal *vt_groups_rows(vt_assigns *t, const vt_groups *g) {
  memo_key key;
  key_begin(&key, KEY_ROWS);
  key_put_ptr(&key, g);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  int32_t total = g->count * g->size;
  vt_arena scratch = {0};
  int32_t *ids = VT_NEW_ARRAY(&scratch, int32_t, total);
  vt_order_expand(&g->order, ids);
  vt_literal *rows = VT_NEW(t->arena, vt_literal);
  int64_t *data = VT_NEW_ARRAY(t->arena, int64_t, total);
  for (int32_t i = 0; i < total; i++) data[i] = ids[i];
  rows->type = vt_type_make(t->arena, VT_S64, 2, (int64_t[]){g->count, g->size});
  rows->data = data;
  vt_arena_free(&scratch);
  *place = rows;
  return rows;
}

const vt_groups *vt_groups_all(vt_assigns *t, int32_t device_count) {
  const int32_t copies = 0; // the only dimension of a whole scalar
  return vt_groups_along(t, vt_assign_whole(t, 0, device_count), 1, &copies);
}

const vt_groups *vt_groups_along(vt_assigns *t, const vt_assign *a, int32_t count,
                                 const int32_t *dims) {
  memo_key key;
  key_begin(&key, KEY_ALONG);
  key_put_ptr(&key, a);
  key_put_all(&key, count, dims);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  int32_t shape[VT_MAX_RANK + 1], permutation[VT_MAX_RANK + 1], n = 0, size = 1;
  bool along[VT_MAX_RANK + 1] = {0};
  int32_t total = full_shape(a, shape);
  for (int32_t i = 0; i < count; i++) {
    along[dims[i]] = true;
    size *= shape[dims[i]];
  }
  for (int32_t d = 0; d < total; d++)
    if (!along[d]) permutation[n++] = d;
  for (int32_t i = 0; i < count; i++) permutation[n++] = dims[i];
  vt_arena scratch = {0};
  vt_order order = vt_order_permute(&a->order, total, shape, permutation, &scratch);
  const vt_groups *g = vt_groups_of(t, a->device_count / size, size, &order);
  vt_arena_free(&scratch);
  *memo_at(t, &key) = (void *)(uintptr_t)g;
  return g;
}

// `inner` orders the places within each group of `outer`: the order of the whole.
static vt_order order_within(const vt_groups *outer, const vt_order *inner, vt_arena *arena) {
  vt_order each = vt_order_repeat(inner, outer->count, arena);
  return vt_order_compose(&outer->order, &each, arena);
}

const vt_groups *vt_groups_within(vt_assigns *t, const vt_groups *outer, const vt_groups *inner) {
  vt_assert(inner->count * inner->size == outer->size);
  memo_key key;
  key_begin(&key, KEY_WITHIN);
  key_put_ptr(&key, outer);
  key_put_ptr(&key, inner);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  vt_arena scratch = {0};
  vt_order order = order_within(outer, &inner->order, &scratch);
  const vt_groups *out = vt_groups_of(t, outer->count * inner->count, inner->size, &order);
  vt_arena_free(&scratch);
  *memo_at(t, &key) = (void *)(uintptr_t)out;
  return out;
}

// ---- taking assignments apart -------------------------------------------------------------------

static bool is_among(int32_t dim, int32_t count, const int32_t *dims) {
  for (int32_t i = 0; i < count; i++)
    if (dims[i] == dim) return true;
  return false;
}

// Dimensions fall into the tiles that count the groups and those that stay within each.
static const vt_groups *groups_on(vt_assigns *t, const vt_assign *a, const vt_grouping *g,
                                  const int32_t *inner) {
  int32_t shape[MAX_VIEW], permutation[MAX_VIEW], sizes[VT_MAX_RANK + 1], groups = 1, n = 0;
  for (int32_t d = 0; d <= a->rank; d++) sizes[d] = 1;
  for (int32_t i = 0; i < g->count; i++) {
    permutation[n++] = 2 * g->dims[i];
    sizes[g->dims[i]] = g->sizes[i];
    groups *= g->sizes[i];
  }
  for (int32_t d = 0; d <= a->rank; d++) {
    shape[2 * d] = sizes[d];
    shape[2 * d + 1] = inner[d];
    if (!is_among(d, g->count, g->dims)) permutation[n++] = 2 * d; // of size 1
    permutation[n++] = 2 * d + 1;
  }
  vt_arena scratch = {0};
  vt_order order = vt_order_permute(&a->order, n, shape, permutation, &scratch);
  const vt_groups *out = vt_groups_of(t, groups, a->device_count / groups, &order);
  vt_arena_free(&scratch);
  return out;
}

vt_grouping vt_group_on(vt_assigns *t, const vt_assign *a, int32_t count, const int32_t *dims,
                        const int32_t *shards) {
  vt_assert(a->only < 0);
  memo_key key;
  key_begin(&key, KEY_GROUP_ON);
  key_put_ptr(&key, a);
  key_put_all(&key, count, dims);
  for (int32_t i = 0; shards && i < count; i++) key_put(&key, (uint64_t)shards[i]);
  void **place = memo_at(t, &key);
  if (*place) return *(vt_grouping *)*place;
  vt_grouping *g = VT_NEW(t->arena, vt_grouping);
  int32_t inner[VT_MAX_RANK + 1];
  full_shape(a, inner);
  g->count = count;
  for (int32_t i = 0; i < count; i++) {
    int32_t kept = shards ? shards[i] : 1;
    vt_assert(size_along(a, dims[i]) % kept == 0);
    g->dims[i] = dims[i];
    g->sizes[i] = size_along(a, dims[i]) / kept;
    inner[dims[i]] = kept;
  }
  g->groups = groups_on(t, a, g, inner);
  g->inner = vt_assign_make(t, a->rank, inner, inner[a->rank], NULL);
  *memo_at(t, &key) = g;
  return *g;
}

// First all groups, in each the inner tiles; then the groups' tiles before the inner ones of their
// dimensions.
static const vt_assign *ungroup(vt_assigns *t, const vt_grouping *g) {
  const vt_assign *inner = g->inner;
  int32_t shape[MAX_VIEW], permutation[MAX_VIEW], dims[VT_MAX_RANK + 1], n = 0;
  full_shape(inner, dims);
  for (int32_t i = 0; i < g->count; i++) shape[i] = g->sizes[i];
  for (int32_t d = 0; d <= inner->rank; d++) shape[g->count + d] = dims[d];
  for (int32_t d = 0; d <= inner->rank; d++) {
    for (int32_t i = 0; i < g->count; i++) {
      if (g->dims[i] != d) continue;
      permutation[n++] = i;
      dims[d] *= g->sizes[i];
    }
    permutation[n++] = g->count + d;
  }
  vt_arena scratch = {0};
  vt_order order = order_within(g->groups, &inner->order, &scratch);
  order = vt_order_permute(&order, n, shape, permutation, &scratch);
  const vt_assign *out = vt_assign_ordered(t, inner->rank, dims, dims[inner->rank], &order);
  vt_arena_free(&scratch);
  return out;
}

const vt_assign *vt_ungroup(vt_assigns *t, const vt_grouping *g) {
  memo_key key;
  key_begin(&key, KEY_UNGROUP);
  key_put_ptr(&key, g->groups);
  key_put_ptr(&key, g->inner);
  key_put_all(&key, g->count, g->dims);
  key_put_all(&key, g->count, g->sizes);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  const vt_assign *out = ungroup(t, g);
  *memo_at(t, &key) = (void *)(uintptr_t)out;
  return out;
}

// The group of `reference` that has just the devices of group `index`, -1 = none.
static int32_t same_group(const int32_t *ids, int32_t size, vt_group_lists reference) {
  for (int32_t i = 1; i < size; i++)
    if (reference.group_of[ids[i]] != reference.group_of[ids[0]]) return -1;
  return reference.group_of[ids[0]];
}

// Whether the groups have the same devices; with `alike`, the devices of every group are also in
// the same order with respect to the other's.
static bool groups_match(const vt_groups *groups, const int32_t *ids, vt_group_lists reference,
                         bool any_order, bool alike) {
  for (int32_t g = 0; g < groups->count; g++) {
    int32_t other = same_group(ids + g * groups->size, groups->size, reference);
    if (other < 0 || (!any_order && other != g)) return false;
    for (int32_t i = 0; alike && i < groups->size; i++)
      if (reference.place_of[ids[g * groups->size + i]] != reference.place_of[ids[i]]) return false;
  }
  return true;
}

// The inner assignment with devices renamed from their places in the groups to those that `places`
// has for them.
static const vt_assign *rename_inner(vt_assigns *t, const vt_assign *inner,
                                     const vt_order *places) {
  vt_arena scratch = {0};
  const vt_assign *out;
  if (inner->only >= 0) {
    int32_t *list = VT_NEW_ARRAY(&scratch, int32_t, places->total);
    vt_order_expand(places, list);
    out = vt_assign_only(t, inner->rank, inner->device_count, list[inner->only]);
  } else {
    vt_order order = vt_order_compose(places, &inner->order, &scratch);
    out = vt_assign_ordered(t, inner->rank, inner->dims, inner->copies, &order);
  }
  vt_arena_free(&scratch);
  return out;
}

static void look_at_groups(vt_assigns *t, const vt_grouping *g, const vt_groups *reference,
                           bool any_order, alignment *out) {
  const vt_groups *groups = g->groups;
  const int32_t *ids = vt_groups_listed(t, groups).ids;
  vt_group_lists other = vt_groups_listed(t, reference);
  vt_arena scratch = {0};
  out->match = groups_match(groups, ids, other, any_order, false);
  out->alike = out->match && groups_match(groups, ids, other, any_order, true);
  int32_t *places = VT_NEW_ARRAY(&scratch, int32_t, groups->size);
  for (int32_t i = 0; i < groups->size; i++) places[i] = other.place_of[ids[i]];
  if (out->match) {
    vt_order order = vt_order_of_list(groups->size, places);
    out->inner = rename_inner(t, g->inner, &order);
  }
  vt_arena_free(&scratch);
}

// By digits: those within a group stay within one, and are the places there. false: not possible
static bool match_by_digits(vt_assigns *t, const vt_grouping *g, const vt_groups *reference,
                            bool any_order, alignment *out) {
  int32_t size = reference->size;
  if (vt_order_is_list(&g->groups->order) || vt_order_is_list(&reference->order)) return false;
  vt_order places = vt_order_inverse(&reference->order, NULL);
  if (!vt_order_composed(&places, &g->groups->order, &places)) return false;
  int32_t within = vt_order_cut(&places, size);
  if (within < 0 || !vt_order_part(&places, size)) return false;
  within = vt_order_cut(&places, size);
  out->match = true;
  for (int32_t i = places.count - within; i < places.count; i++)
    out->match = out->match && places.digits[i].stride < size;
  vt_order inner = vt_order_last(&places, within, size);
  vt_order outer = places;
  outer.count -= within;
  vt_order_merge(&outer);
  if (!any_order && outer.count) // the groups count up
    out->match = out->match && outer.count == 1 && outer.digits[0].stride == size;
  out->alike = out->match;
  if (out->match) out->inner = rename_inner(t, g->inner, &inner);
  return true;
}

static const alignment *alignment_of(vt_assigns *t, const vt_grouping *g,
                                     const vt_groups *reference, bool any_order) {
  vt_assert(g->groups->count == reference->count && g->groups->size == reference->size);
  memo_key key;
  key_begin(&key, KEY_ALIGN);
  key_put_ptr(&key, g->groups);
  key_put_ptr(&key, g->inner);
  key_put_ptr(&key, reference);
  key_put(&key, any_order);
  void **place = memo_at(t, &key);
  if (*place) return *place;
  alignment *a = VT_NEW(t->arena, alignment);
  if (!match_by_digits(t, g, reference, any_order, a))
    look_at_groups(t, g, reference, any_order, a);
  *memo_at(t, &key) = a;
  return a;
}

vt_grouping vt_align(vt_assigns *t, vt_grouping g, const vt_groups *reference, bool any_order) {
  const alignment *a = alignment_of(t, &g, reference, any_order);
  if (a->match) g.inner = a->inner;
  g.groups = reference;
  return g;
}

bool vt_align_if_same(vt_assigns *t, vt_grouping *g, const vt_groups *reference, bool any_order) {
  const alignment *a = alignment_of(t, g, reference, any_order);
  if (!a->alike) return false;
  g->inner = a->inner;
  g->groups = reference;
  return true;
}

typedef struct matching_dims {
  bool found;
  int32_t count, dims[VT_MAX_RANK + 1];
} matching_dims;

static void find_group_dims(vt_assigns *t, const vt_assign *a, const vt_groups *groups,
                            matching_dims *out) {
  const int32_t *ids = vt_groups_listed(t, groups).ids;
  int32_t tiles = 1;
  for (int32_t d = 0; d <= a->rank; d++) {
    const int32_t *places = vt_assign_places(t, a, d);
    if (size_along(a, d) == 1) continue;
    if (groups->size > 1 && places[ids[0]] != places[ids[1]]) continue;
    out->dims[out->count++] = d;
    tiles *= size_along(a, d);
  }
  if (groups->size > 1 && tiles != groups->count) return;
  for (int32_t i = 0; i < out->count; i++) {
    const int32_t *places = vt_assign_places(t, a, out->dims[i]);
    for (int32_t n = 0; n < groups->count * groups->size; n++)
      if (places[ids[n]] != places[ids[n - n % groups->size]]) return;
  }
  out->found = true;
}

bool vt_group_dims(vt_assigns *t, const vt_assign *a, const vt_groups *groups, int32_t *out_count,
                   int32_t *out_dims) {
  if (!vt_assign_is_cut(a) || groups->count < 2 || a->device_count != groups->count * groups->size)
    return false;
  memo_key key;
  key_begin(&key, KEY_GROUP_DIMS);
  key_put_ptr(&key, a);
  key_put_ptr(&key, groups);
  void **place = memo_at(t, &key);
  if (!*place) {
    matching_dims *m = VT_NEW(t->arena, matching_dims);
    find_group_dims(t, a, groups, m);
    place = memo_at(t, &key);
    *place = m;
  }
  const matching_dims *m = *place;
  *out_count = m->count;
  memcpy(out_dims, m->dims, sizeof *out_dims * (size_t)m->count);
  return m->found;
}

// The tile that each device holds, row-major.
static int32_t *tile_numbers(vt_assigns *t, const vt_assign *a, vt_arena *arena) {
  const int32_t *devices = vt_assign_devices(t, a);
  int32_t *out = VT_NEW_ARRAY(arena, int32_t, a->device_count);
  for (int32_t i = 0; i < a->device_count; i++) out[devices[i]] = i / a->copies;
  return out;
}

// How a group holds the tiles; NULL: some too often.
static const vt_assign *inner_of_group(vt_assigns *t, const vt_assign *a, const int32_t *ids,
                                       int32_t size, const int32_t *tile_of) {
  int32_t each = size / a->tiles;
  bool fits = true;
  vt_arena scratch = {0};
  int32_t *filled = VT_NEW_ARRAY(&scratch, int32_t, a->tiles);
  int32_t *devices = VT_NEW_ARRAY(&scratch, int32_t, size);
  for (int32_t i = 0; i < size && fits; i++) {
    int32_t tile = tile_of[ids[i]];
    fits = filled[tile] < each;
    if (fits) devices[tile * each + filled[tile]++] = i;
  }
  const vt_assign *out = fits ? vt_assign_make(t, a->rank, a->dims, each, devices) : NULL;
  vt_arena_free(&scratch);
  return out;
}

static void look_at_copies(vt_assigns *t, const vt_assign *a, const vt_groups *groups,
                           alignment *found) {
  const int32_t *ids = vt_groups_listed(t, groups).ids;
  vt_arena scratch = {0};
  const int32_t *tile_of = tile_numbers(t, a, &scratch);
  found->match = true;
  for (int32_t g = 0; g < groups->count && found->match; g++) {
    const vt_assign *inner = inner_of_group(t, a, ids + g * groups->size, groups->size, tile_of);
    if (!g) found->inner = inner;
    found->match = inner && inner == found->inner;
  }
  vt_arena_free(&scratch);
}

// By digits: those that count the groups count copies, so each group has every tile. In a group,
// the tiles come first and then those that hold the same. false: not possible
static bool copies_by_digits(vt_assigns *t, const vt_assign *a, const vt_groups *groups,
                             alignment *out) {
  if (vt_order_is_list(&a->order) || vt_order_is_list(&groups->order)) return false;
  vt_order places = vt_order_inverse(&a->order, NULL);
  if (!vt_order_composed(&places, &groups->order, &places)) return false;
  int32_t within = vt_order_cut(&places, groups->size);
  if (within < 0 || !vt_order_part(&places, a->copies)) return false;
  within = vt_order_cut(&places, groups->size);
  out->match = true;
  for (int32_t i = 0; i < places.count - within; i++)
    out->match = out->match && places.digits[i].stride < a->copies;
  if (!out->match) return true;
  vt_order inner = vt_order_last(&places, within, groups->size);
  inner = vt_order_inverse(&inner, NULL);
  out->inner = vt_assign_ordered(t, a->rank, a->dims, groups->size / a->tiles, &inner);
  return true;
}

bool vt_group_copies(vt_assigns *t, const vt_assign *a, const vt_groups *groups, vt_grouping *out) {
  if (a->only >= 0 || a->copies % groups->count) return false;
  *out = (vt_grouping){.groups = groups, .count = 1, .dims = {a->rank}, .sizes = {groups->count}};
  memo_key key;
  key_begin(&key, KEY_GROUP_COPIES);
  key_put_ptr(&key, a);
  key_put_ptr(&key, groups);
  const alignment *known = *memo_at(t, &key);
  if (!known) {
    alignment *found = VT_NEW(t->arena, alignment);
    if (!copies_by_digits(t, a, groups, found)) look_at_copies(t, a, groups, found);
    *memo_at(t, &key) = found;
    known = found;
  }
  out->inner = known->inner;
  return known->match;
}

static bool refines(vt_assigns *t, const vt_assign *fine, const vt_assign *coarse) {
  for (int32_t d = 0; d < fine->rank; d++) {
    if (fine->dims[d] % coarse->dims[d]) return false;
    int32_t ratio = fine->dims[d] / coarse->dims[d];
    const int32_t *in = vt_assign_places(t, fine, d), *of = vt_assign_places(t, coarse, d);
    for (int32_t i = 0; i < fine->device_count; i++)
      if (in[i] / ratio != of[i]) return false;
  }
  return true;
}

bool vt_assign_refines(vt_assigns *t, const vt_assign *fine, const vt_assign *coarse) {
  if (fine->rank != coarse->rank || fine->only >= 0 || coarse->only >= 0 ||
      fine->device_count != coarse->device_count)
    return false;
  memo_key key;
  key_begin(&key, KEY_REFINES);
  key_put_ptr(&key, fine);
  key_put_ptr(&key, coarse);
  const alignment *known = *memo_at(t, &key);
  if (!known) {
    alignment *found = VT_NEW(t->arena, alignment);
    found->match = refines(t, fine, coarse);
    *memo_at(t, &key) = found;
    known = found;
  }
  return known->match;
}
