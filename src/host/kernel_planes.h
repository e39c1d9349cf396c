// SPDX-License-Identifier: Apache-2.0
// kernel_planes.h - windows over the last two dimensions of f32 and bf16 arrays, as NCHW has them:
// pooling and its gradient. Internal to kernel_window.c.
#ifndef VT_HOST_KERNEL_PLANES_H
#define VT_HOST_KERNEL_PLANES_H

#include "host/kernel_native.h"
#include "host/nest.h"

// By dimension: rows, columns. Windows have all their elements next to each other.
typedef struct vt_plane_windows {
  int64_t planes;
  int64_t in[2], out[2], size[2], stride[2], low[2];
  vt_reducer reducer; // ADD, MUL, MAX or MIN; a gradient adds where the maximum is
  bool bf16;          // else f32
} vt_plane_windows;

// NULL: planes are too large for it.
const vt_native *vt_planes_create(vt_arena *arena, const vt_plane_windows *windows, bool gradient);

// a[i] = a[i] reduced with b[i].
void vt_window_fold(vt_reducer reducer, float *restrict a, const float *restrict b, int64_t n);
// Where x[i] is chosen over best[i], it takes its place, and which[i] becomes k.
void vt_window_pick(float *restrict best, int32_t *restrict which, const float *restrict x,
                    int32_t k, int64_t n);
void vt_window_add_where(float *restrict out, const float *restrict source,
                         const int32_t *restrict which, int32_t k, int64_t n);
// Between bf16 and f32.
void vt_window_widen(float *restrict to, const uint16_t *restrict from, int64_t n);
void vt_window_narrow(uint16_t *restrict to, const float *restrict from, int64_t n);

#endif
