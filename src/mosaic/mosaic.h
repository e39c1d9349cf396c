// SPDX-License-Identifier: Apache-2.0
// mosaic.h - TPU kernels: custom calls `tpu_custom_call` that carry a program of their own, in the
// stable form of the Mosaic dialects.
//
// In: a call's backend_config. Out: a verified kernel, or an error that names the op and the line
// of the user's source. Nothing read is trusted.
// Threads: a kernel is only read once it is made.
#ifndef VT_MOSAIC_MOSAIC_H
#define VT_MOSAIC_MOSAIC_H

#include "base/file.h"
#include "ir/kernel_cost.h"
#include "ir/module.h"

typedef struct vt_mosaic vt_mosaic; // a kernel as read

// Reads the kernel of a backend_config. It lives in `arena`, which must outlive it.
// errors INVALID_ARGUMENT, UNIMPLEMENTED
vt_status vt_mosaic_read(vt_string config, vt_arena *arena, vt_mosaic **out_kernel) VT_CHECKED;
// The kernel as text, one op a line, in MLIR's generic form.
void vt_mosaic_print(const vt_mosaic *kernel, vt_text *out_text);
typedef struct vt_mosaic_options {
  const char *chip;    // whose limits hold: its topology name; NULL: none
  int32_t cores;       // of a device; more than one share parallel dimensions of a grid
  uint64_t check_seed; // not 0: runs are checked (mosaic_check.h), which is slow
} vt_mosaic_options;

// Reads the kernels of all calls of the module, equal ones once, and attaches them (attribute
// KERNEL): src/eval then runs the calls.
// errors as of vt_mosaic_read; INVALID_ARGUMENT: a call does not fit its kernel's signature;
// INTERNAL, RESOURCE_EXHAUSTED: the chip's compiler would refuse the kernel
vt_status vt_mosaic_attach(vt_module *module, const vt_mosaic_options *options) VT_CHECKED;
// Whether the op is a call that holds a kernel.
bool vt_mosaic_is_call(const vt_op *op);
// What the kernel of a call asks of the chip (mosaic_cost.c).
vt_kernel_cost_of vt_mosaic_cost;
// Its cost_estimate.
vt_kernel_said_of vt_mosaic_said;
// The text of each different kernel of the module's calls.
vt_status vt_mosaic_dump(const vt_module *module, vt_text *out_text) VT_CHECKED;

#endif
