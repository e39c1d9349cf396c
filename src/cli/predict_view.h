// SPDX-License-Identifier: Apache-2.0
// predict_view.h - where the kernels of a prediction are drawn.
#ifndef VT_CLI_PREDICT_VIEW_H
#define VT_CLI_PREDICT_VIEW_H

#include <string.h>

#include "base/arena.h"
#include "runtime/predict.h"

typedef struct vt_view_span {
  const vt_span *span;
  double start, seconds; // of all its runs, within the time of the loops around it
  bool loop, collective;
} vt_view_span;

// One for each span, in order. (predict_page.c)
vt_view_span *vt_view_of(const vt_timing *timing, vt_arena *arena);

#endif
