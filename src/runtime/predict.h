// SPDX-License-Identifier: Apache-2.0
// predict.h - what a real slice would do with a program: time, memory, energy, cost.
#ifndef VT_RUNTIME_PREDICT_H
#define VT_RUNTIME_PREDICT_H

#include "base/status.h"
#include "base/file.h"
#include "chip/time/time.h"
#include "runtime/runtime.h"

typedef struct vt_prediction {
  vt_module *module;      // the program of one device; the spans name its operators
  vt_timing timing;       // of one device, for one run
  int32_t devices;        // that run it
  double flops;           // of all devices
  double mfu;             // share of the peak that its matrix products use
  double joules;          // of all devices
  double usd;             // of the whole slice, on demand; 0 = no public price
  int64_t hbm_peak_bytes; // of one device
  vt_hbm_use hbm;         // what lies in it then
  vt_arena io;            // of the arguments and results in `hbm`
} vt_prediction;

// The program is not compiled for this machine, and the slice may be of any size. The spans are in
// `arena`. Free with vt_prediction_free.
// errors of import and partitioning; INVALID_ARGUMENT: more devices than the slice has;
// RESOURCE_EXHAUSTED: does not fit into HBM, with what is largest
vt_status vt_predict(vt_bytes program, const vt_slice *slice, vt_arena *arena,
                     vt_prediction *out_prediction) VT_CHECKED;
// The same for a module as imported, out_prediction->module, which it changes.
vt_status vt_predict_module(const vt_slice *slice, vt_arena *arena,
                            vt_prediction *out_prediction) VT_CHECKED;
void vt_prediction_free(vt_prediction *prediction); // accepts a zeroed one
// Of a compiled program. Borrowed, made at the first call. errors as above
vt_status vt_executable_predict(vt_executable *executable,
                                const vt_prediction **out_prediction) VT_CHECKED;

// Where a kernel is drawn: trips follow each other, so what runs in a loop is drawn once, as long
// as all of its runs.
typedef struct vt_view_span {
  const vt_span *span;
  double start, seconds; // of all its runs, within the time of the loops around it
  bool loop, collective;
} vt_view_span;
// One for each span, in order. (view.c)
vt_view_span *vt_view_of(const vt_timing *timing, vt_arena *arena);
// When each operator of main begins to run, as shares of the program's time; last, the end.
double *vt_view_times(const vt_prediction *prediction, vt_arena *arena);

// A size of matrix products that takes less time when it is larger.
typedef struct vt_padding {
  int64_t from, to;
  double seconds, saves;   // of a run then; the share that it saves
  const char *name, *file; // of the largest such product
  int32_t line;
} vt_padding;
typedef struct vt_padding_advice {
  uint32_t count;
  vt_padding *items; // in the arena
} vt_padding_advice;
// Takes as long as some more predictions. (advise.c)
void vt_predict_advise(vt_bytes program, const vt_slice *slice, const vt_prediction *prediction,
                       vt_arena *arena, vt_padding_advice *out_advice);

#endif
