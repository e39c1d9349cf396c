// SPDX-License-Identifier: Apache-2.0
// axes.c - lists of mesh axes and parts of axes.
#include "spmd/axes.h"

#include <string.h>

#include "base/check.h"

int64_t vt_axes_size(vt_axes axes) {
  int64_t size = 1;
  for (uint32_t i = 0; i < axes.count; i++) size *= axes.refs[i].size;
  return size;
}

vt_axis_list vt_axes_dividing(vt_axes axes, int64_t size) {
  vt_axis_list list = {0};
  if (!size) return list;
  for (uint32_t i = 0; i < axes.count; i++) {
    vt_axis_ref axis = axes.refs[i];
    int64_t a = axis.size, b = size;
    while (b) {
      int64_t r = a % b;
      a = b;
      b = r;
    }
    if (a == 1) break;
    bool whole = a == axis.size;
    axis.size = a;
    list.refs[list.count++] = axis;
    size /= a;
    if (!whole) break;
  }
  return list;
}

vt_axes vt_axes_copy(vt_arena *arena, vt_axes axes) {
  if (!axes.count) return (vt_axes){0};
  vt_axis_ref *refs = VT_NEW_ARRAY(arena, vt_axis_ref, axes.count);
  memcpy(refs, axes.refs, sizeof *refs * axes.count);
  return (vt_axes){axes.count, refs};
}

bool vt_axis_overlaps(vt_axis_ref a, vt_axis_ref b) {
  return a.axis == b.axis && a.pre_size < b.pre_size * b.size && b.pre_size < a.pre_size * a.size;
}

bool vt_axis_contains(vt_axis_ref a, vt_axis_ref b) {
  return a.axis == b.axis && a.pre_size <= b.pre_size && b.pre_size * b.size <= a.pre_size * a.size;
}

bool vt_axis_is_prefix(vt_axis_ref a, vt_axis_ref b) {
  return a.axis == b.axis && a.pre_size == b.pre_size && a.size <= b.size;
}

bool vt_axis_before(vt_axis_ref *axis, vt_axis_ref other) {
  if (!vt_axis_overlaps(*axis, other)) return true;
  if (other.pre_size <= axis->pre_size || other.pre_size % axis->pre_size) return false;
  axis->size = other.pre_size / axis->pre_size;
  return true;
}

bool vt_axis_before_all(vt_axis_ref *axis, vt_axes others) {
  for (uint32_t i = 0; i < others.count; i++)
    if (!vt_axis_before(axis, others.refs[i])) return false;
  return true;
}

void vt_axis_list_push(vt_axis_list *list, vt_axis_ref axis) {
  vt_axis_ref *last = list->count ? &list->refs[list->count - 1] : NULL;
  if (last && last->axis == axis.axis && last->pre_size * last->size == axis.pre_size)
    last->size *= axis.size;
  else if (list->count < VT_MAX_AXES)
    list->refs[list->count++] = axis;
}

bool vt_axes_strict_prefix(vt_axes a, vt_axes b) {
  if (!a.count) return b.count > 0;
  if (a.count > b.count) return false;
  for (uint32_t i = 0; i + 1 < a.count; i++)
    if (!vt_axis_equal(a.refs[i], b.refs[i])) return false;
  vt_axis_ref last = a.refs[a.count - 1], other = b.refs[a.count - 1];
  if (a.count == b.count && vt_axis_equal(last, other)) return false;
  return vt_axis_is_prefix(last, other);
}

static bool same_dims(const vt_sharding *a, const vt_sharding *b) {
  if (a->rank != b->rank) return false;
  for (int32_t d = 0; d < a->rank; d++)
    if (a->dims[d].closed != b->dims[d].closed || a->dims[d].priority != b->dims[d].priority ||
        !vt_axes_equal((vt_axes){a->dims[d].axis_count, a->dims[d].axes},
                       (vt_axes){b->dims[d].axis_count, b->dims[d].axes}))
      return false;
  return true;
}

bool vt_sharding_same(const vt_sharding *a, const vt_sharding *b) {
  if (a == b) return true;
  return a && b && a->mesh == b->mesh && same_dims(a, b) && a->reduction == b->reduction &&
         vt_axes_equal((vt_axes){a->replicated_count, a->replicated},
                       (vt_axes){b->replicated_count, b->replicated}) &&
         vt_axes_equal((vt_axes){a->unreduced_count, a->unreduced},
                       (vt_axes){b->unreduced_count, b->unreduced});
}
