// SPDX-License-Identifier: Apache-2.0
// exec.h - what a plan computes: the state of a TPU v1 and the effect of each step on it, bit by
// bit.
//
// Accumulators wrap at 32 bits. Scaling is (value * scale) >> shift with rounding half up, then
// saturation. sigmoid and tanh read the scaled value as a fixed-point number with 12 fraction bits
// and give the correctly rounded result with 15 fraction bits (16-bit results) or its upper 8 bits,
// rounded half up (8-bit results).
#ifndef VT_TPU1_EXEC_H
#define VT_TPU1_EXEC_H

#include "tpu1/timing.h"

typedef struct vt_tpu1_machine vt_tpu1_machine;

typedef struct vt_tpu1_host {
  const uint8_t *in; // program->host_in_bytes
  uint8_t *out;      // program->host_out_bytes
} vt_tpu1_host;

// Cleared storage for this chip. errors RESOURCE_EXHAUSTED: no host memory. The caller destroys it.
vt_status vt_tpu1_machine_create(const vt_tpu1_chip *chip,
                                 vt_tpu1_machine **out_machine) VT_CHECKED;
void vt_tpu1_machine_destroy(vt_tpu1_machine *machine);            // accepts NULL
const uint8_t *vt_tpu1_machine_ub(const vt_tpu1_machine *machine); // borrowed; rows * dim bytes
// borrowed; acc_rows * dim values
const int32_t *vt_tpu1_machine_acc(const vt_tpu1_machine *machine);

// Runs the steps in program order. The unified buffer keeps its content between runs. The program
// must have weights.
vt_status vt_tpu1_run_serial(vt_tpu1_machine *machine, const vt_tpu1_plan *plan,
                             vt_tpu1_host host) VT_CHECKED;
// Runs them in the order in which they finish by `timing`: the same result for a legal plan.
vt_status vt_tpu1_run_pipelined(vt_tpu1_machine *machine, const vt_tpu1_plan *plan,
                                const vt_tpu1_timing *timing, vt_tpu1_host host) VT_CHECKED;

// One pass: acc[r][j] (+)= sum over i < k of in[r][i] * weights[i][j] << shift, wrapping, for j <
// n; the other columns of a row (dim wide) become zero unless accumulating. in and weights hold
// bytes widened to float: sums stay below 2^24 for dim <= 256, so float arithmetic is exact; larger
// k is split into such pieces.
typedef struct vt_tpu1_pass {
  const float *in;      // [rows][k_stride]
  const float *weights; // [k][n_stride], n_stride a multiple of 32, zero after n
  int32_t *acc;         // [rows][dim]
  int64_t rows, k, k_stride, n, n_stride, dim;
  int shift;
  bool accumulate;
} vt_tpu1_pass;
void vt_tpu1_mac(const vt_tpu1_pass *pass);

#endif
