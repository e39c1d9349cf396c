// SPDX-License-Identifier: Apache-2.0
// loop.h - how often a loop runs, where the program alone says it.
#ifndef VT_IR_LOOP_H
#define VT_IR_LOOP_H

#include "ir/module.h"

// Where a function is run from: the op that runs it, in the function that `outer` is about.
// NULL stands for main.
typedef struct vt_scope {
  const struct vt_scope *outer;
  const vt_op *op;
  const vt_func *func;
} vt_scope;

// The value that `value`, of the scope's function, is whenever the function runs: parameters that
// loops hand on unchanged and what calls, branches and manual regions take in are followed
// outwards. out_scope (may be NULL) gets the scope of the value returned.
const vt_value *vt_scope_resolve(const vt_scope *scope, const vt_value *value,
                                 const vt_scope **out_scope);

// Trips of a while: a counter that starts at a constant, moves by a constant, and is compared with
// a constant. False when it is not that, or when the counter would pass the end of its type.
bool vt_loop_trips(const vt_scope *scope, const vt_op *loop, int64_t *out_trips);

#endif
