// SPDX-License-Identifier: Apache-2.0
// kernel_planes.c - pooling of planes (NCHW) and its gradient, in vectors even of narrow planes.
//
// Elements of a plane are divided into phases, by their row and column modulo the strides: element
// (y, x) of the window at (i, j) is number (i + y / stride, j + x / stride) of phase (y % stride,
// x % stride). All phases have the same pitch, so what consecutive windows have as their element
// (y, x) is consecutive too, over the ends of rows and of planes. Places that stand for no window
// compute something that nobody reads.
#include "host/kernel_planes.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "host/cpu.h"
#include "ir/number.h"

enum {
  GROUP = 2048,         // window places processed together, at least
  RUN = 256,            // of which at once
  MOST_PLACES = 1 << 22 // in the phases of one group
};

typedef struct planes_plan {
  vt_plane_windows w;
  int64_t rows, pitch;  // of a plane in a phase
  int64_t phases, size; // number, and floats of each
  int64_t group;        // planes
  int32_t elements;     // of a window
  const int64_t *at;    // of each: where its place is, from the window's in the first phase
  bool whole;           // all places are windows
  bool covers;          // all elements are in phases
  int64_t lo[2], hi[2]; // windows in [lo, hi) of each dimension are inside
  int32_t threads;
  int64_t wide_at, thread_floats; // of bf16: where the wide part of a thread's room begins
} planes_plan;

// Of one thread. In a gradient, elements and sums have the layout of phases. Of bf16, in f32: a
// group's planes, what its windows have, and in a gradient what its planes get.
typedef struct planes_room {
  float *elements, *results, *sums, *wide_in, *wide_windows, *wide_out;
  int32_t *which;
} planes_room;

static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static int64_t up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The places of a phase along a dimension whose elements exist: [*lo, *hi).
static void phase_span(const planes_plan *p, int d, int64_t phase, int64_t *lo, int64_t *hi) {
  int64_t places = d ? p->pitch : p->rows, first = phase - p->w.low[d], s = p->w.stride[d];
  *lo = first < 0 ? min64(up(-first, s), places) : 0;
  *hi = first < p->w.in[d] ? max64(*lo, min64(up(p->w.in[d] - first, s), places)) : *lo;
}

static inline void split_row(const planes_plan *p, float *to, const float *row) {
  int64_t s = p->w.stride[1];
  for (int64_t q = 0; q < s; q++) {
    int64_t lo, hi;
    phase_span(p, 1, q, &lo, &hi);
    float *restrict a = to + q * p->size + lo;
    const float *restrict x = row + lo * s + q - p->w.low[1];
    int64_t n = hi - lo;
    if (s == 1)
      for (int64_t j = 0; j < n; j++) a[j] = x[j];
    else if (s == 2)
      for (int64_t j = 0; j < n; j++) a[j] = x[2 * j];
    else
      for (int64_t j = 0; j < n; j++) a[j] = x[s * j];
  }
}

static inline void join_row(const planes_plan *p, float *row, const float *from) {
  int64_t s = p->w.stride[1], lo[2], hi[2];
  int64_t q = 0;
  if (s == 2) { // both phases in one pass
    for (int i = 0; i < 2; i++) phase_span(p, 1, i, &lo[i], &hi[i]);
    int64_t first = max64(lo[0], lo[1]), n = min64(hi[0], hi[1]) - first;
    float *restrict x = row + 2 * first - p->w.low[1];
    const float *restrict a = from + first, *restrict b = from + p->size + first;
    for (int64_t j = 0; j < n; j++) x[2 * j] = a[j], x[2 * j + 1] = b[j];
    for (int i = 0; i < 2; i++) {
      for (int64_t j = lo[i]; j < min64(hi[i], first); j++)
        row[2 * j + i - p->w.low[1]] = from[i * p->size + j];
      for (int64_t j = max64(lo[i], first + n); j < hi[i]; j++)
        row[2 * j + i - p->w.low[1]] = from[i * p->size + j];
    }
    return;
  }
  for (; q < s; q++) {
    phase_span(p, 1, q, &lo[0], &hi[0]);
    for (int64_t j = lo[0]; j < hi[0]; j++) row[s * j + q - p->w.low[1]] = from[q * p->size + j];
  }
}

// Elements of `planes` to phases, or back.
VT_ANY_CPU static void split(const planes_plan *p, float *to, const float *in, int64_t planes) {
  for (int64_t n = 0; n < planes; n++)
    for (int64_t q = 0; q < p->w.stride[0]; q++) {
      int64_t lo, hi;
      phase_span(p, 0, q, &lo, &hi);
      for (int64_t i = lo; i < hi; i++) {
        int64_t y = i * p->w.stride[0] + q - p->w.low[0];
        split_row(p, to + q * p->w.stride[1] * p->size + (n * p->rows + i) * p->pitch,
                  in + (n * p->w.in[0] + y) * p->w.in[1]);
      }
    }
}

VT_ANY_CPU static void join(const planes_plan *p, float *out, const float *from, int64_t planes) {
  for (int64_t n = 0; n < planes; n++)
    for (int64_t q = 0; q < p->w.stride[0]; q++) {
      int64_t lo, hi;
      phase_span(p, 0, q, &lo, &hi);
      for (int64_t i = lo; i < hi; i++) {
        int64_t y = i * p->w.stride[0] + q - p->w.low[0];
        join_row(p, out + (n * p->w.in[0] + y) * p->w.in[1],
                 from + q * p->w.stride[1] * p->size + (n * p->rows + i) * p->pitch);
      }
    }
}

static inline void copy_row(float *restrict to, const float *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

// What windows have, from places to the array, or back.
VT_ANY_CPU static void from_places(const planes_plan *p, float *to, const float *places,
                                   int64_t planes) {
  for (int64_t n = 0; n < planes; n++)
    for (int64_t i = 0; i < p->w.out[0]; i++)
      copy_row(to + (n * p->w.out[0] + i) * p->w.out[1], places + (n * p->rows + i) * p->pitch,
               p->w.out[1]);
}

VT_ANY_CPU static void to_places(const planes_plan *p, float *places, const float *from,
                                 int64_t planes) {
  for (int64_t n = 0; n < planes; n++)
    for (int64_t i = 0; i < p->w.out[0]; i++)
      copy_row(places + (n * p->rows + i) * p->pitch, from + (n * p->w.out[0] + i) * p->w.out[1],
               p->w.out[1]);
}

static void fill(float *to, float x, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = x;
}

// What changes nothing: padding is that.
static float neutral(vt_reducer reducer) {
  switch (reducer) {
  case VT_REDUCE_ADD:
    return -0.0f;
  case VT_REDUCE_MUL:
    return 1;
  case VT_REDUCE_MAX:
    return -INFINITY;
  default:
    return INFINITY;
  }
}

static planes_room room_of(const planes_plan *p, const vt_native_call *call) {
  float *mine = (float *)call->scratch + omp_get_thread_num() * p->thread_floats;
  int64_t in = p->group * p->w.in[0] * p->w.in[1], out = p->group * p->w.out[0] * p->w.out[1];
  float *sums = mine + (p->phases + 1) * p->size, *wide = mine + p->wide_at;
  return (planes_room){.elements = mine,
                       .results = mine + p->phases * p->size,
                       .sums = sums,
                       .which = (int32_t *)(void *)(sums + p->phases * p->size),
                       .wide_in = wide,
                       .wide_windows = wide + in,
                       .wide_out = wide + in + out};
}

static void pool_group(const planes_plan *p, const planes_room *room, const float *in, float *out,
                       float start, int64_t planes) {
  split(p, room->elements, in, planes);
  float *results = p->whole ? out : room->results;
  int64_t places = planes * p->rows * p->pitch;
  for (int64_t t = 0; t < places; t += RUN) {
    int64_t n = min64(places - t, RUN);
    fill(results + t, start, n);
    for (int32_t k = 0; k < p->elements; k++)
      vt_window_fold(p->w.reducer, results + t, room->elements + p->at[k] + t, n);
  }
  if (!p->whole) from_places(p, out, results, planes);
}

// Which element the window at place (i, j) of plane `n` picks, of those that exist; -1 for none.
static int32_t pick_inside(const planes_plan *p, const float *in, int64_t n, int64_t i, int64_t j) {
  const vt_plane_windows *w = &p->w;
  int32_t which = -1;
  float best = 0;
  for (int64_t k = 0; k < p->elements; k++) {
    int64_t y = i * w->stride[0] - w->low[0] + k / w->size[1],
            x = j * w->stride[1] - w->low[1] + k % w->size[1];
    if (y < 0 || y >= w->in[0] || x < 0 || x >= w->in[1]) continue;
    float value = in[(n * w->in[0] + y) * w->in[1] + x];
    if (which >= 0 && best >= value) continue;
    which = (int32_t)k, best = value;
  }
  return which;
}

static void pick_at_borders(const planes_plan *p, int32_t *which, const float *in, int64_t planes) {
  for (int64_t n = 0; n < planes; n++)
    for (int64_t i = 0; i < p->w.out[0]; i++) {
      bool row_inside = i >= p->lo[0] && i < p->hi[0];
      for (int64_t j = 0; j < p->w.out[1]; j++) {
        if (row_inside && j == p->lo[1]) j = p->hi[1];
        if (j < p->w.out[1]) which[(n * p->rows + i) * p->pitch + j] = pick_inside(p, in, n, i, j);
      }
    }
}

// An element that several windows have picked gets what they have in the order of the windows:
// places go up and, of the windows of a run of places, those that have it as a later element.
static void unpool_group(const planes_plan *p, const planes_room *room, const float *in,
                         const float *source, float *out, float start, int64_t planes) {
  int64_t places = planes * p->rows * p->pitch;
  split(p, room->elements, in, planes);
  for (int64_t t = 0; t < places; t += RUN) {
    int64_t n = min64(places - t, RUN);
    float best[RUN];
    memcpy(best, room->elements + p->at[0] + t, (size_t)n * sizeof *best);
    memset(room->which + t, 0, (size_t)n * sizeof *room->which);
    for (int32_t k = 1; k < p->elements; k++)
      vt_window_pick(best, room->which + t, room->elements + p->at[k] + t, k, n);
  }
  pick_at_borders(p, room->which, in, planes);
  if (!p->whole) to_places(p, room->results, source, planes);
  const float *sources = p->whole ? source : room->results;
  for (int64_t q = 0; q < p->phases; q++) fill(room->sums + q * p->size, start, places);
  for (int64_t t = 0; t < places; t += RUN)
    for (int32_t k = p->elements - 1; k >= 0; k--)
      vt_window_add_where(room->sums + p->at[k] + t, sources + t, room->which + t, k,
                          min64(places - t, RUN));
  if (!p->covers) fill(out, start, planes * p->w.in[0] * p->w.in[1]);
  join(p, out, room->sums, planes);
}

static void run_group(const planes_plan *p, const planes_room *room, const float *in,
                      const float *source, float *out, float start, int64_t planes) {
  if (source)
    unpool_group(p, room, in, source, out, start, planes);
  else
    pool_group(p, room, in, out, start, planes);
}

// Sums are rounded when all is in.
static void run_group_bf16(const planes_plan *p, const planes_room *room, const uint16_t *in,
                           const uint16_t *source, uint16_t *out, float start, int64_t planes) {
  int64_t elements = planes * p->w.in[0] * p->w.in[1], windows = planes * p->w.out[0] * p->w.out[1];
  float *to = source ? room->wide_out : room->wide_windows;
  vt_window_widen(room->wide_in, in, elements);
  if (source) vt_window_widen(room->wide_windows, source, windows);
  run_group(p, room, room->wide_in, source ? room->wide_windows : NULL, to, start, planes);
  vt_window_narrow(out, to, source ? elements : windows);
}

static void run_planes(const vt_native_call *call, bool gradient) {
  const planes_plan *p = call->native->plan;
  const vt_plane_windows *w = &p->w;
  int64_t groups = up(w->planes, p->group), in_plane = w->in[0] * w->in[1],
          out_plane = w->out[0] * w->out[1];
  size_t bytes = w->bf16 ? sizeof(uint16_t) : sizeof(float);
  const char *in = call->operands[0], *source = gradient ? call->operands[1] : NULL;
  const void *init = call->operands[gradient ? 2 : 1];
  float start = w->bf16 ? vt_f32_from_bf16(*(const uint16_t *)init) : *(const float *)init;
  char *out = call->outputs[0];
  bool shared = w->planes * max64(in_plane, out_plane * p->elements) > (16 << 10);
#pragma omp parallel num_threads(p->threads) if (shared && p -> threads > 1)
  {
    planes_room room = room_of(p, call);
    fill(room.elements, neutral(gradient ? VT_REDUCE_MAX : w->reducer), p->phases * p->size);
    if (gradient) fill(room.results, -0.0f, p->size);
#pragma omp for schedule(dynamic, vt_host_share(groups))
    for (int64_t g = 0; g < groups; g++) {
      int64_t first = g * p->group, planes = min64(p->group, w->planes - first);
      size_t at_in = (size_t)(first * in_plane) * bytes,
             at_out = (size_t)(first * out_plane) * bytes;
      const void *from = in + at_in, *add = gradient ? source + at_out : NULL;
      void *to = out + (gradient ? at_in : at_out);
      if (w->bf16)
        run_group_bf16(p, &room, from, add, to, start, planes);
      else
        run_group(p, &room, from, add, to, start, planes);
    }
  }
}

static void run_pool(const vt_native_call *call) {
  run_planes(call, false);
}
static void run_unpool(const vt_native_call *call) {
  run_planes(call, true);
}

// Places, phases and what lies inside along one dimension.
static int64_t plan_dimension(planes_plan *p, int d) {
  const vt_plane_windows *w = &p->w;
  int64_t places = w->out[d] + (w->size[d] - 1) / w->stride[d];
  p->covers &= w->low[d] >= 0 && w->in[d] + w->low[d] <= places * w->stride[d];
  p->whole &= places == w->out[d];
  p->lo[d] = min64(w->low[d] > 0 ? up(w->low[d], w->stride[d]) : 0, w->out[d]);
  int64_t room = w->in[d] + w->low[d] - w->size[d];
  p->hi[d] = room < 0 ? p->lo[d] : max64(p->lo[d], min64(room / w->stride[d] + 1, w->out[d]));
  return places;
}

const vt_native *vt_planes_create(vt_arena *arena, const vt_plane_windows *windows, bool gradient) {
  planes_plan *p = VT_NEW(arena, planes_plan);
  *p = (planes_plan){.w = *windows, .whole = true, .covers = true};
  const vt_plane_windows *w = &p->w;
  p->rows = plan_dimension(p, 0);
  p->pitch = plan_dimension(p, 1);
  if (w->stride[0] > MOST_PLACES || w->stride[1] > MOST_PLACES / w->stride[0]) return NULL;
  p->phases = w->stride[0] * w->stride[1];
  if (p->rows > MOST_PLACES || p->pitch > MOST_PLACES / p->rows / p->phases) return NULL;
  p->group = min64(up(GROUP, p->rows * p->pitch), w->planes);
  int64_t beyond = (p->rows - w->out[0]) * p->pitch + p->pitch - w->out[1];
  p->size = up(p->group * p->rows * p->pitch + beyond, 16) * 16;
  p->elements = (int32_t)(w->size[0] * w->size[1]);
  int64_t *at = VT_NEW_ARRAY(arena, int64_t, p->elements);
  for (int64_t k = 0; k < p->elements; k++) {
    int64_t y = k / w->size[1], x = k % w->size[1];
    int64_t phase = y % w->stride[0] * w->stride[1] + x % w->stride[1];
    at[k] = phase * p->size + y / w->stride[0] * p->pitch + x / w->stride[1];
  }
  p->at = at;
  p->threads = w->planes > p->group ? vt_host_threads() : 1;
  int64_t in_plane = w->in[0] * w->in[1], out_plane = w->out[0] * w->out[1];
  p->wide_at = (gradient ? 2 * p->phases + 2 : p->phases + 1) * p->size;
  p->thread_floats = p->wide_at;
  if (w->bf16) p->thread_floats += p->group * ((gradient ? 2 : 1) * in_plane + out_plane);
  vt_native *native = VT_NEW(arena, vt_native);
  *native = (vt_native){.run = gradient ? run_unpool : run_pool,
                        .plan = p,
                        .scratch_bytes = p->threads * p->thread_floats * (int64_t)sizeof(float)};
  return native;
}
