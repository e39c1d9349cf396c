// SPDX-License-Identifier: Apache-2.0
// loop.h - loops: trip counts where the program alone determines them, captures.
#ifndef VT_IR_LOOP_H
#define VT_IR_LOOP_H

#include "ir/module.h"

// Where a function runs from: the op that runs it, inside the function of scope `outer`. NULL
// stands for main.
typedef struct vt_scope {
  const struct vt_scope *outer;
  const vt_op *op;
  const vt_func *func;
} vt_scope;

// What `value`, of the scope's function, is whenever the function runs: follows parameters that
// loops pass on unchanged, and arguments of calls, branches and manual regions, outwards. out_scope
// (may be NULL) gets the scope of the value returned.
const vt_value *vt_scope_resolve(const vt_scope *scope, const vt_value *value,
                                 const vt_scope **out_scope);

// Whether operand i of a while is the same on every trip: a capture, or carried and not changed.
bool vt_loop_keeps(const vt_op *loop, uint32_t i);

// Trips of a while: a counter that starts at a constant, moves by a constant, and is compared with
// a constant. False for any other loop, or when the counter would overflow its type.
bool vt_loop_trips(const vt_scope *scope, const vt_op *loop, int64_t *out_trips);

// Whether operand i of a while is a counter that starts at a constant and moves by a constant.
bool vt_loop_counts(const vt_scope *scope, const vt_op *loop, uint32_t i, int64_t *out_first,
                    int64_t *out_step);

// Whether the integer of the body is a counter, a constant, or a sum or difference of a few such:
// first + step * t on trip t, in the arithmetic of its type.
bool vt_loop_steps(const vt_op *loop, const vt_value *value, int64_t *out_first, int64_t *out_step);

// Appends the value, of the loop's function, to the captures of a while; its parameter in the body.
vt_value *vt_loop_add_capture(vt_op *loop, vt_value *value);

#endif
