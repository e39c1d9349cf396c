// SPDX-License-Identifier: Apache-2.0
// partial.h - values of which each device holds its own partial, for the passes that represent them
// in the program.
//
// A value with partials along axes of the mesh is a tensor with one leading dimension for each of
// these axes, in mesh order: the first is sharded along the first axis, and so on. Its plain form
// is what the partials represent together: their sum (unreduced axes), their maximum or minimum, or
// the first of them if undeclared (results of manual computations that differ between devices under
// a sharding that says they do not).
#ifndef VT_SPMD_PARTIAL_H
#define VT_SPMD_PARTIAL_H

#include "spmd/spmd.h"

enum { VT_MAX_PARTIAL = 8 };

typedef enum vt_meaning { VT_MEANS_SUM, VT_MEANS_MAX, VT_MEANS_MIN, VT_MEANS_FIRST } vt_meaning;

typedef struct vt_partial {
  const vt_mesh *mesh;
  uint32_t count;
  vt_axis_ref axes[VT_MAX_PARTIAL]; // by axis and pre_size
  vt_meaning meaning;
} vt_partial;

typedef struct vt_spread {
  vt_partial partial;
  vt_value *value;
  const vt_sharding *sharding; // of the value it came from; NULL = unknown
} vt_spread;

typedef struct vt_spreader {
  vt_module *module;
  vt_arena *arena;   // scratch
  vt_func *func;     // the function being walked
  vt_op *before;     // where new ops go; NULL = at its end
  vt_map stands_for; // plain value -> vt_partial: it represents partials
  vt_map spreads;    // plain value -> vt_spread: already created
} vt_spreader;

void vt_partial_add(vt_partial *partial, const vt_mesh *mesh,
                    vt_axis_ref axis); // ignores axes of size 1
bool vt_partial_equal(const vt_partial *a, const vt_partial *b);
bool vt_partial_has(const vt_partial *partial, vt_axis_ref axis);
int64_t vt_partial_size(const vt_partial *partial);
// The unreduced axes of a sharding; none for NULL.
vt_partial vt_partial_of(const vt_sharding *sharding);
// True when arrays of this sharding are sharded along an axis of the partial.
bool vt_is_cut_along(const vt_sharding *sharding, const vt_partial *partial);

// The partial that a value of the function represents; count 0 = only itself.
vt_partial vt_value_partial(const vt_spreader *s, const vt_value *value);
// Derives which partials an op's results represent from its operands. Call it in program order.
void vt_note_op(vt_spreader *s, const vt_op *op);
// The value's partials along `partial`, created before s->before if needed.
vt_value *vt_spread_value(vt_spreader *s, vt_value *value, const vt_partial *partial);
// The plain form of partials, created before s->before, and recorded with the array's sharding.
vt_value *vt_join_value(vt_spreader *s, vt_value *partials, const vt_partial *partial,
                        const vt_sharding *sharding);
vt_value *vt_build_reshape(vt_spreader *s, vt_value *value, vt_type type);

#endif
