// SPDX-License-Identifier: Apache-2.0
// varying.h - which results of a manual computation differ between devices.
#ifndef VT_SPMD_VARYING_H
#define VT_SPMD_VARYING_H

#include "ir/sharding.h"

// A bit per axis of a mesh.
typedef uint32_t vt_axis_set;

bool vt_is_manual_axis(const vt_op *manual, const vt_mesh *mesh, uint32_t axis);
// For each returned value the axes along which devices may return different values (`out` has
// result_count entries). Axes not in the set are proven equal: the value depends only on replicated
// operands, constants and results of collectives that are equal on all devices along the axis.
void vt_varying_axes(const vt_op *manual, vt_axis_set *out);

#endif
