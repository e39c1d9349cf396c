// SPDX-License-Identifier: Apache-2.0
// partial.h - values of which each device holds a partial of its own, as seen by the passes that
// give them a place in the program.
//
// A value with partials along axes of the mesh is a tensor with one more dimension for each of
// these axes, in the order of the mesh, in front of its own: the first is cut by the first axis,
// and so on. Its plain form is what the partials mean together: their sum (unreduced axes), their
// maximum or minimum, or the first of them where nothing is said (results of manual computations
// that differ from device to device under a sharding that says they do not).
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
  const vt_sharding *sharding; // of the value where it came from; NULL = not known
} vt_spread;

typedef struct vt_spreader {
  vt_module *module;
  vt_arena *arena;   // scratch
  vt_func *func;     // the one that is walked
  vt_op *before;     // where new ops go; NULL = at its end
  vt_map stands_for; // plain value -> vt_partial: it stands for partials
  vt_map spreads;    // plain value -> vt_spread: they are there
} vt_spreader;

void vt_partial_add(vt_partial *partial, const vt_mesh *mesh,
                    vt_axis_ref axis); // ignores axes of size 1
bool vt_partial_equal(const vt_partial *a, const vt_partial *b);
bool vt_partial_has(const vt_partial *partial, vt_axis_ref axis);
int64_t vt_partial_size(const vt_partial *partial);
// The unreduced axes of a sharding; none for NULL.
vt_partial vt_partial_of(const vt_sharding *sharding);
// True when arrays of this sharding are cut along an axis of the partial.
bool vt_is_cut_along(const vt_sharding *sharding, const vt_partial *partial);
bool vt_mesh_same(const vt_mesh *a, const vt_mesh *b);

// What a value of the function stands for; count 0 = nothing but itself.
vt_partial vt_value_partial(const vt_spreader *s, const vt_value *value);
// Notes what the results of an op stand for, by what its operands do. Call it in program order.
void vt_note_op(vt_spreader *s, const vt_op *op);
// The value's partials along `partial`, made before s->before where they are not there yet.
vt_value *vt_spread_value(vt_spreader *s, vt_value *value, const vt_partial *partial);
// The plain form of partials, made before s->before, and noted with how the array lies.
vt_value *vt_join_value(vt_spreader *s, vt_value *partials, const vt_partial *partial,
                        const vt_sharding *sharding);
vt_value *vt_build_reshape(vt_spreader *s, vt_value *value, vt_type type);

#endif
