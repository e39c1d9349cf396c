// SPDX-License-Identifier: Apache-2.0
// xspace.h - predicted runs as the planes of devices in an XSpace message.
#ifndef VT_RUNTIME_XSPACE_H
#define VT_RUNTIME_XSPACE_H

#include "base/text.h"
#include "runtime/predict.h"

// One run of a program on a device.
typedef struct vt_xspace_run {
  const void *key;                 // equal for runs of one program
  const char *program;             // its name
  const vt_prediction *prediction; // NULL: its ops are not shown
  double start, seconds;           // seconds since the origin
} vt_xspace_run;

// Appends the plane of one device. `origin_ns`: what the runs' times count from, since 1970.
void vt_xspace_put_device(vt_text *space, const vt_slice *slice, int32_t device, int64_t origin_ns,
                          const vt_xspace_run *runs, size_t count);
void vt_xspace_put_host(vt_text *space, const char *name);
// Appends the plane with the programs of these runs and their buffers, numbered as by
// vt_xspace_put_device: for the memory viewer. (xspace_memory.c)
void vt_xspace_put_programs(vt_text *space, const vt_xspace_run *runs, size_t count);
// Appends a plane of the host with what one run takes of HBM over time, for the memory profile, and
// how busy the matrix units and HBM are, for the overview.
void vt_xspace_put_use(vt_text *space, const vt_slice *slice, const vt_prediction *prediction);

#endif
