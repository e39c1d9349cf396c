// SPDX-License-Identifier: Apache-2.0
// mosaic_host.h - code for this machine of the TPU kernels in a module.
#ifndef VT_MOSAIC_HOST_MOSAIC_HOST_H
#define VT_MOSAIC_HOST_MOSAIC_HOST_H

#include "ir/module.h"

typedef struct vt_mkernels vt_mkernels; // the code of a module's kernels

// Gives each kernel that vt_mosaic_attach attached its code, which must be freed after the module's
// last run. Small ones, whose code would cost more than many runs of them, are interpreted unless
// `all` is set.
//   exact_dots  as in vt_host_options
vt_status vt_mkernels_compile(const vt_module *module, bool exact_dots, bool all,
                              vt_mkernels **out_kernels) VT_CHECKED;
void vt_mkernels_destroy(vt_mkernels *kernels);             // accepts NULL
int64_t vt_mkernels_code_bytes(const vt_mkernels *kernels); // accepts NULL

#endif
