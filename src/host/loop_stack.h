// SPDX-License-Identifier: Apache-2.0
// loop_stack.h - stacks of which a loop reads or writes one element on each trip, as scans do.
#ifndef VT_HOST_LOOP_STACK_H
#define VT_HOST_LOOP_STACK_H

#include "ir/module.h"

// Whether an integer of the body of a while of so many trips has each place of a stack of `count`
// elements on one trip.
bool vt_loop_has_each_place(const vt_op *loop, int64_t trips, const vt_value *at, int64_t count);

// The result of such a while to which the op of its body, a dynamic_update_slice, writes all of a
// stack, one element on each trip; -1: it is none.
int32_t vt_loop_stack_written(const vt_op *loop, int64_t trips, const vt_op *update);

// Per result of the while whether it writes all of it and reads nothing of what was there before.
const bool *vt_loop_fills(vt_arena *arena, const vt_op *loop);

#endif
