// SPDX-License-Identifier: Apache-2.0
// xspace.c - predicted runs in an XSpace, the profile that jax.profiler writes and that XProf and
// TensorBoard show: one plane for each device, with its steps, modules, ops, loops and collectives.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "base/wire.h"
#include "runtime/xspace.h"

// Fields of the messages of xplane.proto.
enum { SPACE_PLANES = 1, SPACE_HOSTNAMES = 4 };
enum {
  PLANE_ID = 1,
  PLANE_NAME,
  PLANE_LINES,
  PLANE_EVENT_METADATA,
  PLANE_STAT_METADATA,
  PLANE_STATS
};
enum { LINE_ID = 1, LINE_NAME, LINE_TIMESTAMP_NS, LINE_EVENTS, LINE_DURATION_PS = 9 };
enum { EVENT_METADATA_ID = 1, EVENT_OFFSET_PS, EVENT_DURATION_PS, EVENT_STATS };
enum { STAT_METADATA_ID = 1, STAT_DOUBLE, STAT_UINT64, STAT_INT64, STAT_STRING, STAT_BYTES_VALUE };
// A MemoryAccessBreakdown of op_metrics.proto.
enum { BREAKDOWN_ACCESSED = 1 };
enum { ACCESSED_OPERATION = 1, ACCESSED_SPACE, ACCESSED_BYTES };
enum { OPERATION_READ = 1, SPACE_HBM = 1 };
enum { METADATA_ID = 1, METADATA_NAME, METADATA_DISPLAY_NAME = 4, METADATA_STATS };
enum { MAP_KEY = 1, MAP_VALUE };

enum { MOST_EVENTS = 1000000 }; // of ops in one line: a profile that nobody could open helps nobody

// Statistics, by the names that XProf looks for.
typedef enum stat {
  STAT_CATEGORY = 1,
  STAT_FLOPS,
  STAT_BYTES,
  STAT_BREAKDOWN,
  STAT_OP_NAME,
  STAT_SOURCE,
  STAT_PROGRAM,
  STAT_SYMBOL,
  STAT_TIMES,
  STAT_BOUND,
  STAT_PEAK_FLOPS,
  STAT_PEAK_HBM,
  STAT_DEVICE,
  STAT_STEP,
  STAT_END
} stat;

static const char *const stat_names[STAT_END] = {
    [STAT_CATEGORY] = "hlo_category",
    [STAT_FLOPS] = "flops",
    [STAT_BYTES] = "bytes_accessed",
    [STAT_BREAKDOWN] = "memory_access_breakdown",
    [STAT_OP_NAME] = "tf_op",
    [STAT_SOURCE] = "source",
    [STAT_PROGRAM] = "program_id",
    [STAT_SYMBOL] = "symbol_id",
    [STAT_TIMES] = "times",
    [STAT_BOUND] = "bound_by",
    [STAT_PEAK_FLOPS] = "peak_teraflops_per_second",
    [STAT_PEAK_HBM] = "peak_hbm_bw_gigabytes_per_second",
    [STAT_DEVICE] = "device_type_string",
    [STAT_STEP] = "group_id",
};

static void put_message(vt_text *out, uint32_t number, vt_text *message) {
  vt_wire_put_bytes(out, number, message->data, message->size);
  vt_text_free(message);
  *message = (vt_text){0};
}

static void put_string(vt_text *out, uint32_t number, const char *text) {
  vt_wire_put_bytes(out, number, text, strlen(text));
}

static void put_text_stat(vt_text *out, uint32_t field, stat which, const char *text) {
  vt_text s = {0};
  vt_wire_put_uint(&s, STAT_METADATA_ID, which);
  put_string(&s, STAT_STRING, text);
  put_message(out, field, &s);
}

static void put_integer_stat(vt_text *out, uint32_t field, stat which, uint32_t kind,
                             uint64_t value) {
  vt_text s = {0};
  vt_wire_put_uint(&s, STAT_METADATA_ID, which);
  vt_wire_put_uint(&s, kind, value);
  put_message(out, field, &s);
}

static void put_count_stat(vt_text *out, uint32_t field, stat which, double count) {
  put_integer_stat(out, field, which, STAT_INT64, (uint64_t)fmin(fmax(count, 0), 9e18));
}

static void put_double_stat(vt_text *out, uint32_t field, stat which, double value) {
  vt_text s = {0};
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  vt_wire_put_uint(&s, STAT_METADATA_ID, which);
  vt_wire_put_varint(&s, STAT_DOUBLE << 3 | 1);
  for (int i = 0; i < 64; i += 8) {
    char byte = (char)(bits >> i & 255);
    vt_text_put_n(&s, &byte, 1);
  }
  put_message(out, field, &s);
}

// All bytes as one access to HBM: XProf derives its bandwidth from their sum.
static void put_hbm_stat(vt_text *out, uint32_t field, double bytes) {
  vt_text accessed = {0}, breakdown = {0}, s = {0};
  vt_wire_put_uint(&accessed, ACCESSED_OPERATION, OPERATION_READ);
  vt_wire_put_uint(&accessed, ACCESSED_SPACE, SPACE_HBM);
  vt_wire_put_uint(&accessed, ACCESSED_BYTES, (uint64_t)fmin(fmax(bytes, 0), 9e18));
  put_message(&breakdown, BREAKDOWN_ACCESSED, &accessed);
  vt_wire_put_uint(&s, STAT_METADATA_ID, STAT_BREAKDOWN);
  put_message(&s, STAT_BYTES_VALUE, &breakdown);
  put_message(out, field, &s);
}

static uint64_t picoseconds(double seconds) {
  return (uint64_t)fmin(fmax(seconds * 1e12, 0), 9e18);
}

static void put_map_entry(vt_text *plane, uint32_t field, uint64_t key, vt_text *value) {
  vt_text entry = {0};
  vt_wire_put_uint(&entry, MAP_KEY, key);
  put_message(&entry, MAP_VALUE, value);
  put_message(plane, field, &entry);
}

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
  put_string(&m, METADATA_NAME, name);
  put_string(&m, METADATA_DISPLAY_NAME, name + 1);
  put_text_stat(&m, METADATA_STATS, STAT_CATEGORY, s->kind);
  put_count_stat(&m, METADATA_STATS, STAT_FLOPS, s->flops);
  put_count_stat(&m, METADATA_STATS, STAT_BYTES, s->hbm_bytes);
  put_hbm_stat(&m, METADATA_STATS, s->hbm_bytes);
  put_integer_stat(&m, METADATA_STATS, STAT_PROGRAM, STAT_UINT64, of->number);
  put_integer_stat(&m, METADATA_STATS, STAT_SYMBOL, STAT_UINT64, id);
  if (s->op->loc->name[0]) put_text_stat(&m, METADATA_STATS, STAT_OP_NAME, s->op->loc->name);
  if (s->op->loc->file[0]) {
    snprintf(source, sizeof source, "%s:%d", s->op->loc->file, s->op->loc->line);
    put_text_stat(&m, METADATA_STATS, STAT_SOURCE, source);
  }
  put_map_entry(plane, PLANE_EVENT_METADATA, id, &m);
}

static void put_event(vt_text *line, uint64_t id, double start, double seconds, vt_text *stats) {
  vt_text e = {0};
  vt_wire_put_uint(&e, EVENT_METADATA_ID, id);
  vt_wire_put_uint(&e, EVENT_OFFSET_PS, picoseconds(start));
  vt_wire_put_uint(&e, EVENT_DURATION_PS, picoseconds(seconds));
  if (stats && stats->size) vt_text_put_n(&e, stats->data, stats->size);
  put_message(line, LINE_EVENTS, &e);
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
    put_integer_stat(&stats, EVENT_STATS, STAT_STEP, STAT_INT64, s->of[i]);
    put_event(line, s->names + s->of[i], runs[i].start, end - runs[i].start, &stats);
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
    put_integer_stat(&stats, EVENT_STATS, STAT_STEP, STAT_INT64, step);
    put_count_stat(&stats, EVENT_STATS, STAT_TIMES, v->span->trips);
    put_text_stat(&stats, EVENT_STATS, STAT_BOUND, vt_bound_name(v->span->bound));
    put_event(line, of->first + 1 + i, start + v->start, v->seconds, &stats);
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
  put_integer_stat(&stats, EVENT_STATS, STAT_STEP, STAT_INT64, step);
  put_event(line, of->first, run->start, run->seconds, &stats);
  vt_text_free(&stats);
}

static void put_lines(vt_text *plane, const vt_xspace_run *runs, size_t count, int64_t origin_ns,
                      const program_list *programs, const vt_map *index, const steps *s) {
  for (int which = STEPS; which < TRACKS; which++) {
    vt_text line = {0};
    double end = 0;
    size_t events = 0;
    vt_wire_put_uint(&line, LINE_ID, (uint64_t)which);
    put_string(&line, LINE_NAME, track_names[which]);
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
    vt_wire_put_uint(&line, LINE_DURATION_PS, picoseconds(end));
    put_message(plane, PLANE_LINES, &line);
  }
}

static void put_names(vt_text *plane, const program_list *programs, const steps *s) {
  for (uint64_t i = 0; i < s->count; i++) {
    char name[24];
    vt_text m = {0};
    snprintf(name, sizeof name, "%" PRIu64, i);
    vt_wire_put_uint(&m, METADATA_ID, s->names + i);
    put_string(&m, METADATA_NAME, name);
    put_map_entry(plane, PLANE_EVENT_METADATA, s->names + i, &m);
  }
  for (size_t k = 0; k < programs->size; k++) {
    const program *of = &programs->data[k];
    for (uint32_t i = 0; of->view && i < of->run->prediction->timing.count; i++)
      put_op(plane, of, i);
    vt_text m = {0};
    vt_wire_put_uint(&m, METADATA_ID, of->first);
    put_string(&m, METADATA_NAME, of->run->program);
    put_integer_stat(&m, METADATA_STATS, STAT_PROGRAM, STAT_UINT64, of->number);
    put_map_entry(plane, PLANE_EVENT_METADATA, of->first, &m);
  }
  for (uint64_t i = 1; i < STAT_END; i++) {
    vt_text m = {0};
    vt_wire_put_uint(&m, METADATA_ID, i);
    put_string(&m, METADATA_NAME, stat_names[i]);
    put_map_entry(plane, PLANE_STAT_METADATA, i, &m);
  }
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
  put_string(&plane, PLANE_NAME, name);
  put_lines(&plane, runs, count, origin_ns, &programs, &index, &s);
  put_names(&plane, &programs, &s);
  put_double_stat(&plane, PLANE_STATS, STAT_PEAK_FLOPS,
                  chip->bf16_flops_per_s / chip->devices / 1e12);
  put_double_stat(&plane, PLANE_STATS, STAT_PEAK_HBM, chip->hbm_bytes_per_s / chip->devices / 1e9);
  put_text_stat(&plane, PLANE_STATS, STAT_DEVICE, chip->kind);
  put_message(space, SPACE_PLANES, &plane);
  vt_map_free(&index);
  vt_arena_free(&arena);
}

void vt_xspace_put_host(vt_text *space, const char *name) {
  put_string(space, SPACE_HOSTNAMES, name);
}
