// SPDX-License-Identifier: Apache-2.0
// time.h - how long the real chip takes for the program of one device, and what limits it.
//
// The program becomes kernels, as XLA:TPU fuses them (fuse.c); each kernel gets the work of each
// unit (work.c, product.c, network.c); a timeline runs them in order with one HBM, one VMEM and one
// interconnect (timeline.c). Constants: rates.def.
// Threads: the module belongs to one thread: values get ids, operators notes.
#ifndef VT_CHIP_TIME_TIME_H
#define VT_CHIP_TIME_TIME_H

#include "chip/chip.h"
#include "ir/kernel_cost.h"
#include "ir/module.h"

// What a kernel, or a program, waits for most.
typedef enum vt_bound {
  VT_BOUND_MXU,
  VT_BOUND_VPU,
  VT_BOUND_HBM,
  VT_BOUND_ICI,
  VT_BOUND_LAUNCH,
  VT_BOUND_COUNT
} vt_bound;
const char *vt_bound_name(vt_bound bound); // "MXU", ...

// One kernel, or one loop, on the timeline. Kernels in a loop are those of one trip.
typedef struct vt_span {
  const vt_op *op;  // that names it: the matrix product of a fusion, else its last operator
  const char *kind; // "product", "loop fusion", "reduction", "copy", "all-reduce", "while", ...
  int32_t depth;    // of loops around it
  double trips;     // how often it runs in all
  double start;     // of its first run
  double seconds;   // of one run; a loop's: of all its trips
  double busy[VT_BOUND_COUNT]; // seconds that each unit works in one run; kernels only
  double flops, hbm_bytes;     // of one run
  int32_t cores;               // of the device that share it; 0: it runs on none
  vt_bound bound;
} vt_span;

typedef struct vt_timing {
  double seconds;              // of one run of the program, without the host's call
  double busy[VT_BOUND_COUNT]; // seconds that each unit works
  double exposed;              // seconds that collectives add
  double flops;                // of matrix products on this device
  double hbm_bytes;            // that this device moves
  double joules;               // of the device's share of its chip
  vt_bound bound;
  bool exact_trips; // false: a loop whose trips are unknown counts once
  uint32_t count;
  vt_span *spans; // in the order in which they start, in the arena
} vt_timing;

// `module`: what one device runs, without calls. `devices`: how many run it. `cost_of`: counts
// kernels in custom calls; NULL: they are timed by what they read and write.
void vt_chip_time(const vt_slice *slice, int32_t devices, vt_module *module,
                  vt_kernel_cost_of *cost_of, vt_arena *arena, vt_timing *out_timing);

#endif
