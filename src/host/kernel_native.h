// SPDX-License-Identifier: Apache-2.0
// kernel_native.h - precompiled kernels for single ops: those that move data, slide windows or
// transform lines. Internal to kernels.
#ifndef VT_HOST_KERNEL_NATIVE_H
#define VT_HOST_KERNEL_NATIVE_H

#include "ir/module.h"

typedef struct vt_native vt_native; // one op, prepared

enum { VT_NATIVE_OPERANDS = 100 };

typedef struct vt_native_call {
  const vt_native *native;
  void *const *operands; // by operand of the op
  void *const *outputs;
  void *scratch; // 64-byte aligned
} vt_native_call;

struct vt_native {
  void (*run)(const vt_native_call *call);
  bool in_place;    // result 0 may be operand 0's memory
  const void *plan; // of the run function
  int64_t scratch_bytes;
};

bool vt_native_supports(const vt_op *op);
// Prepares `op`, which vt_native_supports accepts; allocates in `arena` and keeps no reference to
// the module.
const vt_native *vt_native_create(vt_arena *arena, const vt_op *op);

#endif
