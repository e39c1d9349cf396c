// SPDX-License-Identifier: Apache-2.0
// metrics.h - counters of the daemon in Prometheus text form. Under the cloud's lock, except
// vt_metrics_clock.
#ifndef VT_CLOUD_METRICS_H
#define VT_CLOUD_METRICS_H

#include <stdint.h>
#include <time.h>

#include "cloud/api/call.h"

// Monotonic nanoseconds. Here, since the client asks too, and shall not bring the daemon's store.
static inline int64_t vt_metrics_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * VT_SECOND + now.tv_nsec;
}

vt_status vt_metrics_create(struct vt_metrics **out_metrics) VT_CHECKED;
void vt_metrics_destroy(struct vt_metrics *metrics);
// One answered call: its route, status and time.
void vt_metrics_call(vt_cloud *cloud, const vt_call *call, int64_t took_ns);
// Counts of calls and state gauges, as text/plain; version=0.0.4. The chips' part is
// vt_use_metrics.
vt_status vt_metrics_write(vt_cloud *cloud, vt_text *out_text) VT_CHECKED;

#endif
