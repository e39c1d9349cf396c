// SPDX-License-Identifier: Apache-2.0
// workload.h - the six workloads as programs. The shapes are in workload.c, the reasons in
// models/tpu1/README.md.
#ifndef VT_TPU1_WORKLOAD_H
#define VT_TPU1_WORKLOAD_H

#include "tpu1/build.h"

typedef enum vt_tpu1_workload {
#define WORKLOAD(NAME, fc, conv, vector, pool, weights, batch, intensity, share) VT_TPU1_##NAME,
#include "tpu1/workloads.def"
  VT_TPU1_WORKLOADS
} vt_tpu1_workload;

typedef struct vt_tpu1_workload_info {
  const char *name;
  int64_t fc, conv, vector, pool; // layers
  double weights_millions;
  int64_t batch, macs_per_weight_byte;
} vt_tpu1_workload_info;

// What was built: the layers counted, for comparison with the description.
typedef struct vt_tpu1_workload_built {
  int64_t fc, conv, vector, pool, weights, macs, batch;
} vt_tpu1_workload_built;

const vt_tpu1_workload_info *vt_tpu1_workload_get(vt_tpu1_workload workload);
// The program for one batch on this chip. batch 0: the published one. `b` is the caller's, freed
// with vt_tpu1_build_free. errors: anything that does not fit a scaled chip.
vt_status vt_tpu1_workload_build(vt_tpu1_workload workload, int64_t batch, const vt_tpu1_chip *chip,
                                 vt_tpu1_build *b, vt_tpu1_workload_built *out_built) VT_CHECKED;

#endif
