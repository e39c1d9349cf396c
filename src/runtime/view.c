// SPDX-License-Identifier: Apache-2.0
// view.c - where the kernels of a prediction are drawn.
#include <math.h>

#include "base/map.h"
#include "chip/memory.h"
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

// One that is part of a later kernel counts as running with those before it.
double *vt_view_times(const vt_prediction *p, vt_arena *arena) {
  const vt_hbm_use *use = &p->hbm;
  const vt_timing *t = &p->timing;
  double *times = VT_NEW_ARRAY(arena, double, use->point_count + 1), now = 0;
  vt_map starts = {0};
  for (uint32_t i = 0; i < t->count; i++) {
    void **slot = vt_map_at_ptr(&starts, t->spans[i].op);
    if (!t->spans[i].depth && !*slot) *slot = (void *)(uintptr_t)&t->spans[i];
  }
  for (uint32_t i = 0; i < use->point_count; i++) {
    const vt_span *s = vt_map_find_ptr(&starts, use->points[i].op);
    if (s) now = fmax(now, fmin(1, s->start / t->seconds));
    times[i] = now;
  }
  times[use->point_count] = 1;
  vt_map_free(&starts);
  return times;
}
