// SPDX-License-Identifier: Apache-2.0
// timing.h - how long a plan takes on a chip, cycle by cycle, without data. docs/tpu1.md has the
// rules.
#ifndef VT_TPU1_TIMING_H
#define VT_TPU1_TIMING_H

#include "tpu1/program.h"

// What a unit does during a segment of the pipeline view.
typedef enum vt_tpu1_what {
  VT_TPU1_WHAT_WORK,  // transfers, rows, activation
  VT_TPU1_WHAT_STALL, // matrix: weight tile not in the FIFO
  VT_TPU1_WHAT_SHIFT, // matrix: weight tile being shifted
  VT_TPU1_WHAT_RAW,   // matrix: waits for the activation unit
  VT_TPU1_WHAT_INPUT, // matrix: waits for host input
  VT_TPU1_WHAT_OTHER, // matrix: any other wait
  VT_TPU1_WHATS
} vt_tpu1_what;

typedef struct vt_tpu1_segment {
  vt_tpu1_unit unit;
  vt_tpu1_what what;
  size_t pc;
  int64_t start, end; // cycles
} vt_tpu1_segment;

typedef struct vt_tpu1_timing {
  vt_tpu1_counters counters;
  VT_ARRAY(int64_t) start, finish;    // per step of the plan; finish: its results can be read
  VT_ARRAY(vt_tpu1_segment) segments; // only on request; per unit in time order
} vt_tpu1_timing;

// Deterministic; the same for functional and timing-only runs because data never influences it.
// Free with vt_tpu1_timing_free.
//   trace    also fill `segments` (one per pass of the matrix unit)
void vt_tpu1_time(const vt_tpu1_plan *plan, const vt_tpu1_chip *chip, bool trace,
                  vt_tpu1_timing *out_timing);
void vt_tpu1_timing_free(vt_tpu1_timing *timing);

// Operations per second over all cycles except those in which the chip waits for host input ("host
// excluded").
double vt_tpu1_tops(const vt_tpu1_counters *counters, const vt_tpu1_chip *chip);

#endif
