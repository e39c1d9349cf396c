// SPDX-License-Identifier: Apache-2.0
// unroll.h - a program with a mesh as a program of one device.
//
// Manual computations are written out: the values of every device are values of their own, tiles
// are slices, results are concatenations of tiles, and collectives are slices, concatenations and
// reductions over the devices' values. It shares nothing with what runs such programs, neither
// kernels nor the reading of shardings and groups, and its ops are those that other judges know.
#ifndef VT_FUZZ_UNROLL_H
#define VT_FUZZ_UNROLL_H

#include "program.h"

// Main has the same parameters and results. The new module borrows from `module`. errors
// INVALID_ARGUMENT for what is no program of the generator
vt_status program_unroll(const vt_module *module, vt_module **out_module) VT_CHECKED;
// The number of the tile of `device` along each dimension of an array that lies so, of how many.
void program_tile(const vt_sharding *sharding, int device, int64_t *out_index, int64_t *out_counts);
// True when a result of a manual computation may differ between devices that hold the same tile:
// the answer is that of the first then, by our own rule alone.
bool program_is_open(const vt_module *module);

#endif
