// SPDX-License-Identifier: Apache-2.0
// predict_xspace.c - a prediction as an XSpace, the profile that jax.profiler writes and that XProf
// and TensorBoard show: one plane for the device, with its modules, ops, loops and collectives.
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/wire.h"
#include "cli/cli.h"
#include "cli/predict_view.h"

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
enum { STAT_METADATA_ID = 1, STAT_DOUBLE, STAT_UINT64, STAT_INT64, STAT_STRING };
enum { METADATA_ID = 1, METADATA_NAME, METADATA_DISPLAY_NAME = 4, METADATA_STATS };
enum { MAP_KEY = 1, MAP_VALUE };

// Statistics, by the names that XProf looks for.
typedef enum stat {
  STAT_CATEGORY = 1,
  STAT_FLOPS,
  STAT_BYTES,
  STAT_OP_NAME,
  STAT_SOURCE,
  STAT_PROGRAM,
  STAT_SYMBOL,
  STAT_TIMES,
  STAT_BOUND,
  STAT_PEAK_FLOPS,
  STAT_PEAK_HBM,
  STAT_DEVICE,
  STAT_END
} stat;

static const char *const stat_names[STAT_END] = {
    [STAT_CATEGORY] = "hlo_category",
    [STAT_FLOPS] = "flops",
    [STAT_BYTES] = "bytes_accessed",
    [STAT_OP_NAME] = "tf_op",
    [STAT_SOURCE] = "source",
    [STAT_PROGRAM] = "program_id",
    [STAT_SYMBOL] = "symbol_id",
    [STAT_TIMES] = "times",
    [STAT_BOUND] = "bound_by",
    [STAT_PEAK_FLOPS] = "peak_teraflops_per_second",
    [STAT_PEAK_HBM] = "peak_hbm_bw_gigabytes_per_second",
    [STAT_DEVICE] = "device_type_string",
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

static void put_count_stat(vt_text *out, uint32_t field, stat which, double count) {
  vt_text s = {0};
  vt_wire_put_uint(&s, STAT_METADATA_ID, which);
  vt_wire_put_uint(&s, STAT_INT64, (uint64_t)fmin(fmax(count, 0), 9e18));
  put_message(out, field, &s);
}

static void put_id_stat(vt_text *out, uint32_t field, stat which, uint64_t id) {
  vt_text s = {0};
  vt_wire_put_uint(&s, STAT_METADATA_ID, which);
  vt_wire_put_uint(&s, STAT_UINT64, id);
  put_message(out, field, &s);
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

static uint64_t picoseconds(double seconds) {
  return (uint64_t)fmin(fmax(seconds * 1e12, 0), 9e18);
}

static void put_map_entry(vt_text *plane, uint32_t field, uint64_t key, vt_text *value) {
  vt_text entry = {0};
  vt_wire_put_uint(&entry, MAP_KEY, key);
  put_message(&entry, MAP_VALUE, value);
  put_message(plane, field, &entry);
}

// What is the same each time that an op runs. `id` is from 1.
static void put_op(vt_text *plane, const vt_span *s, uint32_t id) {
  vt_text m = {0};
  char name[64], source[512];
  snprintf(name, sizeof name, "%%%s.%u", s->kind, id);
  for (char *at = name; *at; at++)
    if (*at == ' ') *at = '_';
  vt_wire_put_uint(&m, METADATA_ID, id);
  put_string(&m, METADATA_NAME, name);
  put_string(&m, METADATA_DISPLAY_NAME, name + 1);
  put_text_stat(&m, METADATA_STATS, STAT_CATEGORY, s->kind);
  put_count_stat(&m, METADATA_STATS, STAT_FLOPS, s->flops);
  put_count_stat(&m, METADATA_STATS, STAT_BYTES, s->hbm_bytes);
  put_id_stat(&m, METADATA_STATS, STAT_PROGRAM, 1);
  put_id_stat(&m, METADATA_STATS, STAT_SYMBOL, id);
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

typedef enum track { MODULES = 1, OPS, LOOPS, COLLECTIVES, TRACKS } track;
static const char *const track_names[TRACKS] = {[MODULES] = "XLA Modules",
                                                [OPS] = "XLA Ops",
                                                [LOOPS] = "Loops",
                                                [COLLECTIVES] = "Async XLA Ops"};

static void put_ops(vt_text *line, track which, const vt_prediction *p, const vt_view_span *view) {
  for (uint32_t i = 0; i < p->timing.count; i++) {
    const vt_view_span *v = &view[i];
    track on = v->collective ? COLLECTIVES : v->loop ? LOOPS : OPS;
    if (on != which) continue;
    vt_text stats = {0};
    put_count_stat(&stats, EVENT_STATS, STAT_TIMES, v->span->trips);
    put_text_stat(&stats, EVENT_STATS, STAT_BOUND, vt_bound_name(v->span->bound));
    put_event(line, i + 1, v->start, v->seconds, &stats);
    vt_text_free(&stats);
  }
}

static void put_plane(vt_text *space, const vt_prediction *p, const vt_slice *slice,
                      const char *program) {
  vt_arena arena = {0};
  vt_text plane = {0};
  const vt_chip *chip = slice->chip;
  const vt_view_span *view = vt_view_of(&p->timing, &arena);
  uint64_t module = (uint64_t)p->timing.count + 1;
  vt_wire_put_uint(&plane, PLANE_ID, 1);
  put_string(&plane, PLANE_NAME, "/device:TPU:0");
  for (int which = MODULES; which < TRACKS; which++) {
    vt_text line = {0};
    vt_wire_put_uint(&line, LINE_ID, (uint64_t)which);
    put_string(&line, LINE_NAME, track_names[which]);
    vt_wire_put_uint(&line, LINE_DURATION_PS, picoseconds(p->timing.seconds));
    if (which == MODULES)
      put_event(&line, module, 0, p->timing.seconds, NULL);
    else
      put_ops(&line, (track)which, p, view);
    put_message(&plane, PLANE_LINES, &line);
  }
  for (uint32_t i = 0; i < p->timing.count; i++) put_op(&plane, p->timing.spans + i, i + 1);
  vt_text m = {0};
  vt_wire_put_uint(&m, METADATA_ID, module);
  put_string(&m, METADATA_NAME, program);
  put_map_entry(&plane, PLANE_EVENT_METADATA, module, &m);
  for (uint64_t i = 1; i < STAT_END; i++) {
    vt_wire_put_uint(&m, METADATA_ID, i);
    put_string(&m, METADATA_NAME, stat_names[i]);
    put_map_entry(&plane, PLANE_STAT_METADATA, i, &m);
  }
  put_double_stat(&plane, PLANE_STATS, STAT_PEAK_FLOPS,
                  chip->bf16_flops_per_s / chip->devices / 1e12);
  put_double_stat(&plane, PLANE_STATS, STAT_PEAK_HBM, chip->hbm_bytes_per_s / chip->devices / 1e9);
  put_text_stat(&plane, PLANE_STATS, STAT_DEVICE, chip->kind);
  put_message(space, SPACE_PLANES, &plane);
  vt_arena_free(&arena);
}

vt_status vt_cli_write_xspace(const vt_prediction *prediction, const vt_slice *slice,
                              const char *program, const char *path) {
  vt_text space = {0};
  put_plane(&space, prediction, slice, program);
  put_string(&space, SPACE_HOSTNAMES, slice->name);
  vt_status st = vt_file_write(path, space.data, space.size);
  vt_text_free(&space);
  return st;
}
