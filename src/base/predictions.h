// SPDX-License-Identifier: Apache-2.0
// predictions.h - the programs that a process compiled, what a real slice would do with each, and
// how often each ran: a file of shared memory named "programs-PID" in the folder that VTPU_PREDICT
// names. The runtime writes it (src/runtime/predicted.c), `vtpu run --predict` adds them up. Plain
// C, no functions: both sides use it without linking each other.
//
// Rows are filled in before `count` covers them; only their runs change afterwards. The clock is
// that of src/runtime/clock.c; its counters only grow.
#ifndef VT_BASE_PREDICTIONS_H
#define VT_BASE_PREDICTIONS_H

#include <stdatomic.h>
#include <stdint.h>

#define VT_PREDICTIONS_MAGIC UINT64_C(0x3244455250555456) // "VTUPRED2" in memory

enum { VT_PREDICTIONS_NAME = 88, VT_PREDICTIONS_BOUND = 16, VT_PREDICTIONS_MOST = 8192 };

typedef struct vt_predicted_program {
  _Atomic uint64_t runs;            // that ended
  double seconds;                   // of one run
  double exposed;                   // of these, waiting for collectives
  double flops, mfu, joules;        // of one run: all devices; share of the peak; all devices
  int64_t hbm_peak_bytes;           // of one device
  int64_t devices;                  // that run it
  char bound[VT_PREDICTIONS_BOUND]; // "MXU"; "" = there is no prediction
  char name[VT_PREDICTIONS_NAME];   // "jit_step"
} vt_predicted_program;

// One run after the other as on the slice: device time is predicted, the host's is measured.
typedef struct vt_virtual_clock {
  _Atomic uint64_t launches;
  _Atomic uint64_t device_ps;  // that the programs take there
  _Atomic uint64_t starved_ps; // in which the device waits for the host
  _Atomic uint64_t host_ns;    // that the host works between two launches
  _Atomic uint64_t setup_ns;   // of tracing and compiling here, in none of the others
} vt_virtual_clock;

typedef struct vt_predictions {
  uint64_t magic;
  vt_virtual_clock clock;
  _Atomic uint64_t count;
  vt_predicted_program programs[VT_PREDICTIONS_MOST];
} vt_predictions;

#endif
