// SPDX-License-Identifier: Apache-2.0
// bench.h - the workloads on a chip, measured and reported: `vtpu v1 bench`.
#ifndef VT_TPU1_BENCH_H
#define VT_TPU1_BENCH_H

#include "base/command.h"
#include "tpu1/workload.h"
#include "tpu1/timing.h"

typedef struct vt_tpu1_result {
  vt_tpu1_workload workload;
  vt_tpu1_workload_built built;
  vt_tpu1_counters counters;
  double chip_s;  // one batch, doorbell to interrupt
  double batch_s; // with the host's turnaround
  double tops;
  double useful_tops;   // over all cycles
  double macs_per_byte; // of weight traffic
} vt_tpu1_result;

// Builds, plans and times one batch (0: the published size).
vt_status vt_tpu1_measure(vt_tpu1_workload workload, int64_t batch, const vt_tpu1_chip *chip,
                          vt_tpu1_result *out) VT_CHECKED;

// Charts (SVG) and the data of the second. Sensitivity: every parameter at 1/4 to 4,
// performance relative to 1, weighted over the workloads by their share of the fleet.
vt_status vt_tpu1_plot_roofline(const vt_tpu1_chip *chip, vt_text *svg) VT_CHECKED;
vt_status vt_tpu1_plot_sensitivity(vt_text *svg, vt_text *table) VT_CHECKED;

// The pipeline of a traced run between two cycles (to 0: the end), `width` columns; and all of it
// as one HTML page.
typedef struct vt_tpu1_view {
  const char *title;
  const vt_tpu1_plan *plan;
  const vt_tpu1_timing *timing; // with segments
  const vt_tpu1_chip *chip;
} vt_tpu1_view;
void vt_tpu1_view_text(const vt_tpu1_view *view, int64_t from, int64_t to, int width,
                       vt_text *text);
void vt_tpu1_view_html(const vt_tpu1_view *view, vt_text *html);

int vt_tpu1_bench_main(const vt_args *args);

#endif
