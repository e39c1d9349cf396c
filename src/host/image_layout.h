// SPDX-License-Identifier: Apache-2.0
// image_layout.h - convolutions over N,C,H,W: their arrays are stored as N,H,W,C.
#ifndef VT_HOST_IMAGE_LAYOUT_H
#define VT_HOST_IMAGE_LAYOUT_H

#include "ir/module.h"

typedef struct vt_image_options {
  bool strips; // convolutions run in strips (strip.h), which read weights as they lie
  bool always; // whatever it costs (tests)
} vt_image_options;

// Rewrites the module: same parameters and results, transposes where arrays enter and leave.
vt_status vt_image_layout(vt_module *module, const vt_image_options *options,
                          bool *out_changed) VT_CHECKED;

#endif
