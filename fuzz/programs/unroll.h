// SPDX-License-Identifier: Apache-2.0
// unroll.h - rewrites a program with a mesh as a program of one device.
//
// Manual computations are written out: every device's values are separate values, tiles are slices,
// results are concatenations of tiles, and collectives are slices, concatenations and reductions
// over the devices' values. It shares nothing with the code that runs such programs, neither
// kernels nor the parsing of shardings and groups, and its ops are those that other judges know.
#ifndef VT_FUZZ_UNROLL_H
#define VT_FUZZ_UNROLL_H

#include "program.h"

// Main has the same parameters and results. The new module borrows from `module`. errors
// INVALID_ARGUMENT for programs that are not the generator's
vt_status program_unroll(const vt_module *module, vt_module **out_module) VT_CHECKED;
// The number of `device`'s tile along each dimension of an array with this sharding, and the count.
void program_tile(const vt_sharding *sharding, int device, int64_t *out_index, int64_t *out_counts);
// True when a result of a manual computation may differ between devices that hold the same tile:
// the answer is then that of the first, by our own rule alone.
bool program_is_open(const vt_module *module);

#endif
