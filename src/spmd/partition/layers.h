// SPDX-License-Identifier: Apache-2.0
// layers.h - a program of any size over any number of devices, to measure what partitioning costs.
#ifndef VT_SPMD_LAYERS_H
#define VT_SPMD_LAYERS_H

#include <stdint.h>

#include "base/text.h"

enum { VT_LAYER_OPS = 20 };

// The text of a program of about `ops` operations in equal layers. Devices: 4 or more, even; from
// 64 on a multiple of that.
void vt_write_layers(vt_text *out, int64_t ops, int devices);

#endif
