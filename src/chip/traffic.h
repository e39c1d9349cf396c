// SPDX-License-Identifier: Apache-2.0
// traffic.h - unavoidable HBM traffic of a module, for the roofline.
#ifndef VT_CHIP_TRAFFIC_H
#define VT_CHIP_TRAFFIC_H

#include "ir/kernel_cost.h"

// Bytes that all devices together read and write at least. `on_chip_bytes` is what all their chips
// together can keep from one trip of a loop to the next. Of what `said` (may be NULL) knows it is
// that, in place of what kernels write.
double vt_chip_traffic(const vt_module *module, double on_chip_bytes, vt_kernel_said_of *said);

#endif
