// SPDX-License-Identifier: Apache-2.0
// kernel_impl.h - what jit.c and kernel.c share: making kernels from groups and code.
#ifndef VT_HOST_KERNEL_IMPL_H
#define VT_HOST_KERNEL_IMPL_H

#include "host/emit.h"
#include "host/kernel.h"

// A kernel in `arena` for a fused group: `code` is the nest's function, unused for native groups.
vt_kernel *vt_kernel_create(vt_arena *arena, const vt_group *group, const vt_target *target,
                            vt_nest_fn *code);

#endif
