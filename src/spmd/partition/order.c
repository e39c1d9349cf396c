// SPDX-License-Identifier: Apache-2.0
// order.c - see order.h.
#include "spmd/partition/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { MAX_SHAPE = 2 * 32 + 8 };

vt_order vt_order_counting(int32_t total) {
  vt_order o = {.total = total};
  if (total > 1) o.digits[o.count++] = (vt_digit){total, 1};
  return o;
}

// From the fastest digit on: each block is the one before it, further by the digit's stride.
static void expand_digits(int32_t count, const vt_digit *digits, int32_t *out) {
  int32_t done = 1;
  out[0] = 0;
  for (int32_t i = count; i-- > 0;) {
    int32_t stride = digits[i].stride, size = digits[i].size;
    for (int32_t n = done; n < done * size; n++) out[n] = out[n - done] + stride;
    done *= size;
  }
}

void vt_order_expand(const vt_order *order, int32_t *out) {
  if (vt_order_is_list(order))
    memcpy(out, order->list, sizeof *out * (size_t)order->total);
  else
    expand_digits(order->count, order->digits, out);
}

static bool add_digit(vt_order *o, vt_digit digit) {
  if (o->count < 0 || o->count == VT_MAX_DIGITS) {
    o->count = -1;
    return false;
  }
  o->digits[o->count++] = digit;
  return true;
}

void vt_order_merge(vt_order *order) {
  int32_t kept = 0;
  for (int32_t i = 0; i < order->count; i++) {
    vt_digit d = order->digits[i];
    if (d.size == 1) continue;
    vt_digit *last = kept ? &order->digits[kept - 1] : NULL;
    if (last && last->stride == d.size * d.stride)
      *last = (vt_digit){last->size * d.size, d.stride};
    else
      order->digits[kept++] = d;
  }
  if (order->count > 0) order->count = kept;
}

static int by_stride(const void *a, const void *b) {
  const vt_digit *x = a, *y = b;
  return (x->stride < y->stride) - (x->stride > y->stride);
}

// Whether the digits name each device once: each counts what the finer ones leave out.
static bool covers(const vt_order *o) {
  vt_digit sorted[VT_MAX_DIGITS];
  int32_t below = 1;
  memcpy(sorted, o->digits, sizeof sorted);
  qsort(sorted, (size_t)o->count, sizeof *sorted, by_stride);
  for (int32_t i = o->count; i-- > 0; below *= sorted[i].size)
    if (sorted[i].stride != below) return false;
  return below == o->total;
}

static bool is_counted(const vt_order *o, const int32_t *list) {
  int32_t at[VT_MAX_DIGITS] = {0};
  for (int32_t n = 0, device = 0; n < o->total; n++) {
    if (list[n] != device) return false;
    for (int32_t i = o->count; i-- > 0;) {
      device += o->digits[i].stride;
      if (++at[i] < o->digits[i].size) break;
      device -= o->digits[i].stride * o->digits[i].size;
      at[i] = 0;
    }
  }
  return true;
}

vt_order vt_order_of_list(int32_t total, const int32_t *list) {
  vt_order o = {.total = total, .list = list};
  vt_digit found[VT_MAX_DIGITS];
  int32_t count = 0, done = 1;
  const vt_order plain = {.total = total, .count = -1, .list = list};
  if (list[0]) return plain;
  while (done < total) { // from the fastest digit on
    int32_t stride = list[done], size = 1;
    while ((size + 1) * done <= total && list[size * done] == size * stride) size++;
    if (count == VT_MAX_DIGITS || size == 1 || total % (done * size)) return plain;
    found[count++] = (vt_digit){size, stride};
    done *= size;
  }
  while (count) o.digits[o.count++] = found[--count];
  if (!covers(&o) || !is_counted(&o, list)) return plain;
  o.list = NULL;
  return o;
}

static void split_digit(vt_order *order, int32_t i, int32_t fine) {
  vt_digit d = order->digits[i];
  memmove(&order->digits[i + 1], &order->digits[i], sizeof d * (size_t)(order->count++ - i));
  order->digits[i] = (vt_digit){d.size / fine, d.stride * fine};
  order->digits[i + 1] = (vt_digit){fine, d.stride};
}

int32_t vt_order_cut(vt_order *order, int32_t place) {
  int32_t below = 1;
  for (int32_t i = order->count; i-- > 0; below *= order->digits[i].size) {
    if (below == place) return order->count - 1 - i;
    int32_t size = order->digits[i].size;
    if (below * size <= place) continue;
    int32_t fine = place / below;
    if (place % below || size % fine || order->count == VT_MAX_DIGITS) return -1;
    split_digit(order, i, fine);
    return order->count - 1 - i;
  }
  return below == place && !vt_order_is_list(order) ? order->count : -1;
}

bool vt_order_part(vt_order *order, int32_t device) {
  for (int32_t i = 0; i < order->count; i++) {
    vt_digit d = order->digits[i];
    if (d.stride >= device || d.stride * d.size <= device) continue;
    int32_t fine = device / d.stride;
    if (device % d.stride || d.size % fine || order->count == VT_MAX_DIGITS) return false;
    split_digit(order, i, fine);
  }
  return !vt_order_is_list(order);
}

// ---- made of others -----------------------------------------------------------------------------

static int32_t *expanded(const vt_order *order, vt_arena *arena) {
  int32_t *list = VT_NEW_ARRAY(arena, int32_t, order->total);
  vt_order_expand(order, list);
  return list;
}

static bool permute_digits(const vt_order *order, int32_t count, const int32_t *shape,
                           const int32_t *permutation, vt_order *out) {
  vt_order cut = *order;
  int32_t ends[MAX_SHAPE + 1], below = 1; // of the last dimensions: how many digits they have
  ends[count] = 0;
  for (int32_t i = count; i-- > 0;) {
    below *= shape[i];
    ends[i] = vt_order_cut(&cut, below);
    if (ends[i] < 0) return false;
  }
  *out = (vt_order){.total = order->total};
  for (int32_t i = 0; i < count; i++)
    for (int32_t k = ends[permutation[i]]; k > ends[permutation[i] + 1]; k--)
      if (!add_digit(out, cut.digits[cut.count - k])) return false;
  vt_order_merge(out);
  return true;
}

vt_order vt_order_permute(const vt_order *order, int32_t count, const int32_t *shape,
                          const int32_t *permutation, vt_arena *arena) {
  vt_order out;
  vt_assert(count <= MAX_SHAPE);
  if (permute_digits(order, count, shape, permutation, &out)) return out;
  int32_t steps[MAX_SHAPE], sizes[MAX_SHAPE], at[MAX_SHAPE] = {0}, strides[MAX_SHAPE], below = 1;
  const int32_t *from = expanded(order, arena);
  int32_t *list = VT_NEW_ARRAY(arena, int32_t, order->total);
  for (int32_t i = count; i-- > 0; below *= shape[i]) strides[i] = below;
  for (int32_t i = 0; i < count; i++) {
    sizes[i] = shape[permutation[i]];
    steps[i] = strides[permutation[i]];
  }
  for (int32_t n = 0, place = 0; n < order->total; n++) {
    list[n] = from[place];
    for (int32_t i = count; i-- > 0;) {
      place += steps[i];
      if (++at[i] < sizes[i]) break;
      place -= steps[i] * sizes[i];
      at[i] = 0;
    }
  }
  return vt_order_of_list(order->total, list);
}

bool vt_order_composed(const vt_order *outer, const vt_order *inner, vt_order *out) {
  vt_order cut = *outer;
  if (vt_order_is_list(outer) || vt_order_is_list(inner)) return false;
  for (int32_t i = 0; i < inner->count; i++) {
    vt_digit d = inner->digits[i];
    if (vt_order_cut(&cut, d.stride) < 0 || vt_order_cut(&cut, d.stride * d.size) < 0) return false;
  }
  *out = (vt_order){.total = inner->total};
  for (int32_t i = 0; i < inner->count; i++) {
    vt_digit d = inner->digits[i];
    int32_t from = vt_order_cut(&cut, d.stride * d.size), to = vt_order_cut(&cut, d.stride);
    for (int32_t k = from; k > to; k--)
      if (!add_digit(out, cut.digits[cut.count - k])) return false;
  }
  vt_order_merge(out);
  return true;
}

vt_order vt_order_compose(const vt_order *outer, const vt_order *inner, vt_arena *arena) {
  vt_order out;
  if (vt_order_composed(outer, inner, &out)) return out;
  const int32_t *of = expanded(outer, arena), *at = expanded(inner, arena);
  int32_t *list = VT_NEW_ARRAY(arena, int32_t, inner->total);
  for (int32_t n = 0; n < inner->total; n++) list[n] = of[at[n]];
  return vt_order_of_list(inner->total, list);
}

vt_order vt_order_repeat(const vt_order *order, int32_t times, vt_arena *arena) {
  vt_order out = {.total = order->total * times};
  add_digit(&out, (vt_digit){times, order->total});
  for (int32_t i = 0; i < order->count && out.count >= 0; i++) add_digit(&out, order->digits[i]);
  vt_order_merge(&out);
  if (!vt_order_is_list(order) && out.count >= 0) return out;
  int32_t *list = VT_NEW_ARRAY(arena, int32_t, out.total);
  vt_order_expand(order, list);
  for (int32_t n = order->total; n < out.total; n++)
    list[n] = list[n - order->total] + order->total;
  return vt_order_of_list(out.total, list);
}

vt_order vt_order_last(const vt_order *order, int32_t digits, int32_t total) {
  vt_order out = {.total = total, .count = digits};
  memcpy(out.digits, &order->digits[order->count - digits], sizeof *out.digits * (size_t)digits);
  vt_order_merge(&out);
  return out;
}

vt_order vt_order_inverse(const vt_order *order, vt_arena *arena) {
  struct {
    vt_digit digit; // by which it is sorted
    int32_t below;
  } sorted[VT_MAX_DIGITS];
  int32_t below = 1;
  if (vt_order_is_list(order)) {
    int32_t *list = VT_NEW_ARRAY(arena, int32_t, order->total);
    for (int32_t n = 0; n < order->total; n++) list[order->list[n]] = n;
    return vt_order_of_list(order->total, list);
  }
  for (int32_t i = order->count; i-- > 0; below *= order->digits[i].size) {
    sorted[i].digit = order->digits[i];
    sorted[i].below = below;
  }
  qsort(sorted, (size_t)order->count, sizeof *sorted, by_stride);
  vt_order out = {.total = order->total};
  for (int32_t i = 0; i < order->count; i++)
    out.digits[out.count++] = (vt_digit){sorted[i].digit.size, sorted[i].below};
  vt_order_merge(&out);
  return out;
}

static int compare_ids(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

vt_order vt_order_ascending(const vt_order *order, int32_t copies, vt_arena *arena) {
  vt_order out = *order;
  if (copies == 1) return out;
  int32_t digits = vt_order_cut(&out, copies);
  if (digits >= 0) {
    qsort(&out.digits[out.count - digits], (size_t)digits, sizeof *out.digits, by_stride);
    vt_order_merge(&out);
    return out;
  }
  int32_t *list = expanded(order, arena);
  for (int32_t n = 0; n < order->total; n += copies)
    qsort(list + n, (size_t)copies, sizeof *list, compare_ids);
  return vt_order_of_list(order->total, list);
}
