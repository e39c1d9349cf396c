// SPDX-License-Identifier: Apache-2.0
// xspace.c - predicted runs in an XSpace, the profile that jax.profiler writes and that XProf and
// TensorBoard show: one plane for each device, with its steps, modules, ops, loops and collectives.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "runtime/xplane.h"
#include "runtime/xspace.h"

enum { MOST_EVENTS = 1000000 }; // of ops in one line: a profile that nobody could open helps nobody

// A program among the runs. Its module has the number `first`, its ops those that follow.
typedef struct program {
  const vt_xspace_run *run; // the first one
  uint64_t number, first;
  const vt_view_span *view; // NULL: there is no prediction
} program;
typedef VT_ARRAY(program) program_list;

// What is the same each time that an op runs.
static void put_op(vt_text *plane, const program *of, uint32_t index) {
  vt_text m = {0};
  char name[64], source[512];
  const vt_span *s = &of->run->prediction->timing.spans[index];
  uint64_t id = of->first + 1 + index;
  snprintf(name, sizeof name, "%%%s.%u", s->kind, index + 1);
  for (char *at = name; *at; at++)
    if (*at == ' ') *at = '_';
  vt_wire_put_uint(&m, METADATA_ID, id);
  vt_xplane_put_string(&m, METADATA_NAME, name);
  vt_xplane_put_string(&m, METADATA_DISPLAY_NAME, name + 1);
  vt_xplane_put_text(&m, METADATA_STATS, STAT_CATEGORY, s->kind);
  vt_xplane_put_count(&m, METADATA_STATS, STAT_FLOPS, s->flops);
  vt_xplane_put_count(&m, METADATA_STATS, STAT_BYTES, s->hbm_bytes);
  vt_xplane_put_hbm(&m, METADATA_STATS, s->hbm_bytes);
  vt_xplane_put_integer(&m, METADATA_STATS, STAT_PROGRAM, STAT_UINT64, of->number);
  vt_xplane_put_integer(&m, METADATA_STATS, STAT_SYMBOL, STAT_UINT64, id);
  if (s->op->loc->name[0]) vt_xplane_put_text(&m, METADATA_STATS, STAT_OP_NAME, s->op->loc->name);
  if (s->op->loc->file[0]) {
    snprintf(source, sizeof source, "%s:%d", s->op->loc->file, s->op->loc->line);
    vt_xplane_put_text(&m, METADATA_STATS, STAT_SOURCE, source);
  }
  vt_xplane_put_entry(plane, PLANE_EVENT_METADATA, id, &m);
}

typedef enum track { STEPS = 1, MODULES, OPS, LOOPS, COLLECTIVES, TRACKS } track;
static const char *const track_names[TRACKS] = {[STEPS] = "Steps",
                                                [MODULES] = "XLA Modules",
                                                [OPS] = "XLA Ops",
                                                [LOOPS] = "Loops",
                                                [COLLECTIVES] = "Async XLA Ops"};

// A step begins with each run of the program that takes most of the time, the training step of a
// training; what runs before the first one belongs to it.
typedef struct steps {
  uint64_t *of; // by run
  uint64_t count;
  uint64_t names; // metadata numbers of their names begin here
} steps;

static steps find_steps(const vt_xspace_run *runs, size_t count, const program_list *programs,
                        const vt_map *index, vt_arena *arena) {
  double *seconds = VT_NEW_ARRAY(arena, double, programs->size + 1);
  size_t *program_of = VT_NEW_ARRAY(arena, size_t, count + 1), main = 0;
  steps s = {.of = VT_NEW_ARRAY(arena, uint64_t, count + 1), .names = 1};
  for (size_t i = 0; i < count; i++) {
    program_of[i] = (uintptr_t)vt_map_find(index, &runs[i].key, sizeof runs[i].key) - 1;
    seconds[program_of[i]] += runs[i].seconds;
  }
  for (size_t k = 0; k < programs->size; k++) {
    const vt_prediction *p = programs->data[k].run->prediction;
    s.names = programs->data[k].first + 1 + (p ? p->timing.count : 0);
    if (seconds[k] > seconds[main]) main = k;
  }
  for (size_t i = 0; i < count; i++) {
    s.count += program_of[i] == main;
    s.of[i] = s.count ? s.count - 1 : 0;
  }
  return s;
}

static void put_steps(vt_text *line, const vt_xspace_run *runs, size_t count, const steps *s) {
  for (size_t i = 0, next; i < count; i = next) {
    vt_text stats = {0};
    double end = 0;
    for (next = i; next < count && s->of[next] == s->of[i]; next++)
      end = fmax(end, runs[next].start + runs[next].seconds);
    vt_xplane_put_integer(&stats, EVENT_STATS, STAT_STEP, STAT_INT64, s->of[i]);
    vt_xplane_put_event(line, s->names + s->of[i], runs[i].start, end - runs[i].start, &stats);
    vt_text_free(&stats);
  }
}

static void put_ops(vt_text *line, track which, const program *of, double start, uint64_t step) {
  const vt_timing *timing = &of->run->prediction->timing;
  for (uint32_t i = 0; i < timing->count; i++) {
    const vt_view_span *v = &of->view[i];
    track on = v->collective ? COLLECTIVES : v->loop ? LOOPS : OPS;
    if (on != which) continue;
    vt_text stats = {0};
    vt_xplane_put_integer(&stats, EVENT_STATS, STAT_STEP, STAT_INT64, step);
    vt_xplane_put_count(&stats, EVENT_STATS, STAT_TIMES, v->span->trips);
    vt_xplane_put_text(&stats, EVENT_STATS, STAT_BOUND, vt_bound_name(v->span->bound));
    vt_xplane_put_event(line, of->first + 1 + i, start + v->start, v->seconds, &stats);
    vt_text_free(&stats);
  }
}

static program_list list_programs(const vt_xspace_run *runs, size_t count, vt_map *index,
                                  vt_arena *arena) {
  program_list list = {0};
  uint64_t next = 1;
  for (size_t i = 0; i < count; i++) {
    void **at = vt_map_at(index, &runs[i].key, sizeof runs[i].key);
    if (*at) continue;
    const vt_prediction *p = runs[i].prediction;
    program one = {.run = &runs[i], .number = list.size + 1, .first = next};
    if (p) one.view = vt_view_of(&p->timing, arena);
    next += 1 + (p ? p->timing.count : 0);
    vt_array_push_in(arena, &list, one);
    *at = (void *)(uintptr_t)list.size;
  }
  return list;
}

static void put_module(vt_text *line, const program *of, const vt_xspace_run *run, uint64_t step) {
  vt_text stats = {0};
  vt_xplane_put_integer(&stats, EVENT_STATS, STAT_STEP, STAT_INT64, step);
  vt_xplane_put_event(line, of->first, run->start, run->seconds, &stats);
  vt_text_free(&stats);
}

static void put_lines(vt_text *plane, const vt_xspace_run *runs, size_t count, int64_t origin_ns,
                      const program_list *programs, const vt_map *index, const steps *s) {
  for (int which = STEPS; which < TRACKS; which++) {
    vt_text line = {0};
    double end = 0;
    size_t events = 0;
    vt_wire_put_uint(&line, LINE_ID, (uint64_t)which);
    vt_xplane_put_string(&line, LINE_NAME, track_names[which]);
    vt_wire_put_uint(&line, LINE_TIMESTAMP_NS, (uint64_t)origin_ns);
    if (which == STEPS) put_steps(&line, runs, count, s);
    for (size_t i = 0; i < count; i++) {
      uintptr_t at = (uintptr_t)vt_map_find(index, &runs[i].key, sizeof runs[i].key);
      const program *of = &programs->data[at - 1];
      end = fmax(end, runs[i].start + runs[i].seconds);
      if (which == MODULES) put_module(&line, of, &runs[i], s->of[i]);
      if (which < OPS || !of->view || events >= MOST_EVENTS) continue;
      put_ops(&line, (track)which, of, runs[i].start, s->of[i]);
      events += of->run->prediction->timing.count;
    }
    vt_wire_put_uint(&line, LINE_DURATION_PS, vt_xplane_picoseconds(end));
    vt_xplane_put_message(plane, PLANE_LINES, &line);
  }
}

static void put_names(vt_text *plane, const program_list *programs, const steps *s) {
  for (uint64_t i = 0; i < s->count; i++) {
    char name[24];
    vt_text m = {0};
    snprintf(name, sizeof name, "%" PRIu64, i);
    vt_wire_put_uint(&m, METADATA_ID, s->names + i);
    vt_xplane_put_string(&m, METADATA_NAME, name);
    vt_xplane_put_entry(plane, PLANE_EVENT_METADATA, s->names + i, &m);
  }
  for (size_t k = 0; k < programs->size; k++) {
    const program *of = &programs->data[k];
    for (uint32_t i = 0; of->view && i < of->run->prediction->timing.count; i++)
      put_op(plane, of, i);
    vt_text m = {0};
    vt_wire_put_uint(&m, METADATA_ID, of->first);
    vt_xplane_put_string(&m, METADATA_NAME, of->run->program);
    vt_xplane_put_integer(&m, METADATA_STATS, STAT_PROGRAM, STAT_UINT64, of->number);
    vt_xplane_put_entry(plane, PLANE_EVENT_METADATA, of->first, &m);
  }
  vt_xplane_put_stat_names(plane);
}

void vt_xspace_put_device(vt_text *space, const vt_slice *slice, int32_t device, int64_t origin_ns,
                          const vt_xspace_run *runs, size_t count) {
  vt_arena arena = {0};
  vt_map index = {0};
  vt_text plane = {0};
  char name[64];
  const vt_chip *chip = slice->chip;
  program_list programs = list_programs(runs, count, &index, &arena);
  steps s = find_steps(runs, count, &programs, &index, &arena);
  snprintf(name, sizeof name, "/device:TPU:%d", device);
  vt_wire_put_uint(&plane, PLANE_ID, (uint64_t)device + 1);
  vt_xplane_put_string(&plane, PLANE_NAME, name);
  put_lines(&plane, runs, count, origin_ns, &programs, &index, &s);
  put_names(&plane, &programs, &s);
  vt_xplane_put_double(&plane, PLANE_STATS, STAT_PEAK_FLOPS,
                       chip->bf16_flops_per_s / chip->devices / 1e12);
  vt_xplane_put_double(&plane, PLANE_STATS, STAT_PEAK_HBM,
                       chip->hbm_bytes_per_s / chip->devices / 1e9);
  vt_xplane_put_text(&plane, PLANE_STATS, STAT_DEVICE, chip->kind);
  vt_xplane_put_message(space, SPACE_PLANES, &plane);
  vt_map_free(&index);
  vt_arena_free(&arena);
}

void vt_xspace_put_host(vt_text *space, const char *name) {
  vt_xplane_put_string(space, SPACE_HOSTNAMES, name);
}
