// SPDX-License-Identifier: Apache-2.0
// view.c - where the kernels of a prediction are drawn.
#include "runtime/predict.h"

enum { MOST_DEPTH = 32 };

// Trips follow each other: what runs in a loop is drawn once, as long as all of its runs.
vt_view_span *vt_view_of(const vt_timing *timing, vt_arena *arena) {
  vt_view_span *view = VT_NEW_ARRAY(arena, vt_view_span, timing->count + 1);
  const vt_view_span *around[MOST_DEPTH] = {0};
  for (uint32_t i = 0; i < timing->count; i++) {
    const vt_span *s = &timing->spans[i];
    vt_view_span *v = &view[i];
    int32_t depth = s->depth < MOST_DEPTH ? s->depth : MOST_DEPTH - 1;
    const vt_view_span *outer = depth ? around[depth - 1] : NULL;
    double idle = 0;
    for (int b = 0; b < VT_BOUND_COUNT; b++) idle += s->busy[b];
    *v = (vt_view_span){.span = s, .start = s->start, .seconds = s->seconds, .loop = idle <= 0};
    v->collective = s->busy[VT_BOUND_ICI] > 0;
    if (outer) {
      double trips = s->trips / outer->span->trips, scale = outer->seconds / outer->span->seconds;
      v->start = outer->start + (s->start - outer->span->start) * trips * scale;
      v->seconds = s->seconds * trips * scale;
    }
    if (v->loop) around[depth] = v;
  }
  return view;
}
