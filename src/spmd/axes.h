// SPDX-License-Identifier: Apache-2.0
// axes.h - lists of mesh axes and parts of axes (vt_axis_ref), major to minor.
#ifndef VT_SPMD_AXES_H
#define VT_SPMD_AXES_H

#include "base/arena.h"
#include "ir/sharding.h"

enum { VT_MAX_AXES = 16 }; // of one dimension: axes are at least 2 wide

// The axes of one dimension; a list is never changed in place. Neighbouring parts of one axis are
// one entry.
typedef struct vt_axes {
  uint32_t count;
  const vt_axis_ref *refs;
} vt_axes;

// One under construction.
typedef struct vt_axis_list {
  uint32_t count;
  vt_axis_ref refs[VT_MAX_AXES];
} vt_axis_list;

static inline vt_axes vt_axes_of(const vt_axis_list *list) {
  return (vt_axes){list->count, list->refs};
}
// Appends, merging with the last entry where that is the part just before it.
void vt_axis_list_push(vt_axis_list *list, vt_axis_ref axis);

static inline bool vt_axis_equal(vt_axis_ref a, vt_axis_ref b) {
  return a.axis == b.axis && a.pre_size == b.pre_size && a.size == b.size;
}
bool vt_axis_overlaps(vt_axis_ref a, vt_axis_ref b);
bool vt_axis_contains(vt_axis_ref a, vt_axis_ref b);  // b is a part of a
bool vt_axis_is_prefix(vt_axis_ref a, vt_axis_ref b); // a is b or a major part of it
// Shortens the axis to what comes before `other`; false when nothing is left.
bool vt_axis_before(vt_axis_ref *axis, vt_axis_ref other);
bool vt_axis_before_all(vt_axis_ref *axis, vt_axes others);

static inline bool vt_axes_equal(vt_axes a, vt_axes b) {
  if (a.count != b.count) return false;
  for (uint32_t i = 0; i < a.count; i++)
    if (!vt_axis_equal(a.refs[i], b.refs[i])) return false;
  return true;
}
int64_t vt_axes_size(vt_axes axes);
// The major part of the axes whose product divides `size`.
vt_axis_list vt_axes_dividing(vt_axes axes, int64_t size);
vt_axes vt_axes_copy(vt_arena *arena, vt_axes axes);
// b begins with a and goes on (its next part may belong to a's last axis).
bool vt_axes_strict_prefix(vt_axes a, vt_axes b);

// The same in all that a program says of them, on the same mesh. NULL is the same as NULL only.
bool vt_sharding_same(const vt_sharding *a, const vt_sharding *b);

#endif
