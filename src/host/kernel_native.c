// SPDX-License-Identifier: Apache-2.0
// kernel_native.c - which ops have a precompiled kernel. See kernel_native.h.
#include "host/kernel_native.h"

#include <assert.h>

bool vt_native_supports(const vt_op *op) {
  (void)op;
  return false;
}

const vt_native *vt_native_create(vt_arena *arena, const vt_op *op) {
  (void)arena;
  (void)op;
  assert(!"no native kernel");
  return NULL;
}
