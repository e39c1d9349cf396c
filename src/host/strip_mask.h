// SPDX-License-Identifier: Apache-2.0
// strip_mask.h - which sums of a product are not used: those that a mask replaces, as a causal one
// does with half of attention's scores. Internal to exec_strip.c.
#ifndef VT_HOST_STRIP_MASK_H
#define VT_HOST_STRIP_MASK_H

#include "base/arena.h"
#include "host/fuse.h"

typedef struct vt_strip_mask vt_strip_mask;

// How the group computes a mask outside of which it does not use its input `port`, a matrix of so
// many columns; NULL when there is none, or one that nothing is known of.
const vt_strip_mask *vt_strip_find_mask(vt_arena *arena, const vt_group *group, uint32_t port,
                                        int64_t columns);
// Sets bits of groups of VT_STRIP_GROUP columns (strip.h) of which no sum in these rows is used;
// some more may not be. `inputs`: the group's.
void vt_strip_unused(const vt_strip_mask *mask, void *const *inputs, int64_t row, int64_t rows,
                     uint64_t *bits);

#endif
