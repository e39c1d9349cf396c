// SPDX-License-Identifier: Apache-2.0
// pjrt_profiler.c - extension Profiler: what ran between start and stop, as an XSpace message.
//
// There is one plane per device that ran something, as the slice would have run it: a program
// begins when it began here, or when the one before it is done, and lasts as long as predicted,
// with its kernels. What took place on this machine is on a host plane: runs, compilations, and
// what clients track on devices. The framework adds the spans of its own host threads.
//
// The interface has no version other than the size of its table: 80 bytes is the form of PJRT
// 0.112.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/map.h"
#include "base/memory.h"
#include "pjrt/objects.h"
#include "pjrt/proto.h"
#include "runtime/xspace.h"

typedef struct span {
  vt_trace_span base; // name points into the arena of the recording
  int32_t name;       // number among the recording's names, from 1
} span;

typedef struct name {
  const char *text;
  double flops, bytes, seconds; // of programs
} name;

// A run of a program, on one device of it.
typedef struct device_run {
  vt_executable *executable;
  int32_t device;
  int64_t start_ns;
} device_run;

struct PLUGIN_Profiler {
  PLUGIN_Profiler *next; // of those recording
  bool recording;
  bool host_only;
  vt_arena arena;
  VT_ARRAY(span) spans;
  VT_ARRAY(name) names;
  vt_map numbers; // text -> number
  VT_ARRAY(device_run) runs;
  VT_ARRAY(vt_executable *) programs; // of the runs, retained
  vt_text message;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static PLUGIN_Profiler *recordings; // guarded by lock

int64_t vt_trace_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int32_t name_number(PLUGIN_Profiler *p, const vt_trace_span *from) {
  void **at = vt_map_at(&p->numbers, from->name, strlen(from->name));
  if (!*at) {
    name entry = {.text = vt_arena_printf(&p->arena, "%s", from->name),
                  .flops = from->flops,
                  .bytes = from->bytes,
                  .seconds = from->seconds};
    vt_array_push(&p->names, entry);
    *at = (void *)(uintptr_t)p->names.size;
  }
  return (int32_t)(uintptr_t)*at;
}

static vt_status add_span(void *user) {
  const vt_trace_span *added = user;
  for (PLUGIN_Profiler *p = recordings; p; p = p->next) {
    if (p->host_only && added->device >= 0) continue;
    span s = {.base = *added, .name = name_number(p, added)};
    vt_array_push(&p->spans, s);
  }
  return VT_OK;
}

// A span that finds no memory is dropped from the trace.
void vt_trace_add(const vt_trace_span *added) {
  vt_lock(&lock);
  vt_trace_span copy = *added;
  vt_status_free(vt_attempt_keep(add_span, &copy));
  vt_unlock(&lock);
}

typedef struct run_seen {
  vt_executable *executable;
  int32_t device;
  int64_t start_ns;
} run_seen;

static vt_status add_runs(void *user) {
  const run_seen *seen = user;
  const vt_executable_info *info = vt_executable_get(seen->executable);
  for (PLUGIN_Profiler *p = recordings; p; p = p->next) {
    if (p->host_only) continue;
    bool known = false;
    for (size_t i = 0; i < p->programs.size && !known; i++)
      known = p->programs.data[i] == seen->executable;
    if (!known) {
      vt_array_push(&p->programs, seen->executable);
      vt_executable_retain(seen->executable);
    }
    for (int32_t d = 0; d < (seen->device >= 0 ? 1 : info->partitions); d++) {
      device_run run = {seen->executable, seen->device >= 0 ? seen->device : info->device_ids[d],
                        seen->start_ns};
      vt_array_push(&p->runs, run);
    }
  }
  return VT_OK;
}

static void run_over(vt_executable *executable, int32_t device, int64_t start_ns, int64_t end_ns) {
  const vt_executable_info *info = vt_executable_get(executable);
  vt_trace_span here = {.device = -1,
                        .line = VT_TRACE_PROGRAMS,
                        .name = info->name,
                        .start_ns = start_ns,
                        .end_ns = end_ns,
                        .flops = info->roofline.flops,
                        .bytes = info->roofline.bytes,
                        .seconds = info->roofline.seconds};
  vt_trace_add(&here);
  vt_lock(&lock);
  run_seen seen = {executable, device, start_ns};
  vt_status_free(vt_attempt_keep(add_runs, &seen));
  vt_unlock(&lock);
}

// The message -------------------------------------------------------------------------------------
//
// XSpace{1: planes}. XPlane{1: id, 2: name, 3: lines, 4: names of events, 5: names of statistics}.
// XLine{1: id, 2: name, 3: start in ns, 4: events}. XEvent{1: name, 2: offset in ps, 3: duration in
// ps}. Names are maps: {1: number, 2: {1: number, 2: text, 5: statistics}}. XStat{1: name, 2:
// double}.

enum { STAT_FLOPS = 1, STAT_BYTES, STAT_SECONDS, STATS = STAT_SECONDS };
static const char *const stat_names[] = {
    [STAT_FLOPS] = "flops",
    [STAT_BYTES] = "bytes_accessed",
    [STAT_SECONDS] = "roofline_seconds",
};
static const char *const line_names[] = {
    [VT_TRACE_PROGRAMS] = "Programs",
    [VT_TRACE_TRACKED] = "Tracked",
    [VT_TRACE_COMPILES] = "Compile",
};

static void put_double(vt_text *text, uint32_t number, double value) {
  uint64_t bits;
  uint8_t bytes[8];
  memcpy(&bits, &value, sizeof bits);
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(bits >> (8 * i));
  vt_wire_put_varint(text, (uint64_t)number << 3 | 1);
  vt_text_put_n(text, bytes, sizeof bytes);
}

// Appends `part` as field `number` of `text`, and empties it.
static void put_part(vt_text *text, uint32_t number, vt_text *part) {
  vt_wire_put_bytes(text, number, part->data, part->size);
  vt_text_free(part);
}

static void put_stat(vt_text *text, uint32_t number, uint64_t stat, double value) {
  vt_text part = {0};
  if (value <= 0) return;
  vt_wire_put_uint(&part, 1, stat);
  put_double(&part, 2, value);
  put_part(text, number, &part);
}

static void put_event(vt_text *line, const span *s, int64_t origin_ns) {
  vt_text part = {0};
  vt_wire_put_uint(&part, 1, (uint64_t)s->name);
  vt_wire_put_uint(&part, 2, (uint64_t)(s->base.start_ns - origin_ns) * 1000);
  vt_wire_put_uint(&part, 3, (uint64_t)(s->base.end_ns - s->base.start_ns) * 1000);
  put_part(line, 4, &part);
}

static void put_map_entry(vt_text *plane, uint32_t number, uint64_t key, vt_text *value) {
  vt_text entry = {0};
  vt_wire_put_uint(&entry, 1, key);
  put_part(&entry, 2, value);
  put_part(plane, number, &entry);
}

static void put_names(vt_text *plane, const PLUGIN_Profiler *p) {
  for (size_t i = 0; i < p->names.size; i++) {
    const name *n = &p->names.data[i];
    vt_text value = {0};
    vt_wire_put_uint(&value, 1, i + 1);
    vt_wire_put_bytes(&value, 2, n->text, strlen(n->text));
    put_stat(&value, 5, STAT_FLOPS, n->flops);
    put_stat(&value, 5, STAT_BYTES, n->bytes);
    put_stat(&value, 5, STAT_SECONDS, n->seconds);
    put_map_entry(plane, 4, i + 1, &value);
  }
  for (uint64_t i = 1; i <= STATS; i++) {
    vt_text value = {0};
    vt_wire_put_uint(&value, 1, i);
    vt_wire_put_bytes(&value, 2, stat_names[i], strlen(stat_names[i]));
    put_map_entry(plane, 5, i, &value);
  }
}

// What took place in one line: of a kind, for programs and compilations of all devices.
static void put_line(vt_text *plane, const PLUGIN_Profiler *p, int kind, int32_t device,
                     uint64_t id) {
  vt_text line = {0}, label = {0};
  int64_t origin_ns = -1;
  for (size_t i = 0; i < p->spans.size; i++) {
    const span *s = &p->spans.data[i];
    if ((int)s->base.line != kind || s->base.device != device) continue;
    if (origin_ns < 0 || s->base.start_ns < origin_ns) origin_ns = s->base.start_ns;
  }
  if (origin_ns < 0) return;
  vt_text_put(&label, line_names[kind]);
  if (device >= 0) vt_text_printf(&label, " on device %d", device);
  vt_wire_put_uint(&line, 1, id);
  vt_wire_put_bytes(&line, 2, label.data, label.size);
  vt_wire_put_uint(&line, 3, (uint64_t)origin_ns);
  for (size_t i = 0; i < p->spans.size; i++) {
    const span *s = &p->spans.data[i];
    if ((int)s->base.line == kind && s->base.device == device) put_event(&line, s, origin_ns);
  }
  put_part(plane, 3, &line);
  vt_text_free(&label);
}

static void put_host_plane(PLUGIN_Profiler *p) {
  static const char label[] = "/host:vtpu";
  vt_text plane = {0};
  int32_t last = -1;
  uint64_t id = 0;
  for (size_t i = 0; i < p->spans.size; i++)
    if (p->spans.data[i].base.device > last) last = p->spans.data[i].base.device;
  if (!p->spans.size) return;
  vt_wire_put_bytes(&plane, 2, label, strlen(label));
  for (int kind = 0; kind < VT_TRACE_LINES; kind++)
    for (int32_t device = -1; device <= last; device++) put_line(&plane, p, kind, device, ++id);
  put_names(&plane, p);
  put_part(&p->message, 1, &plane);
}

// The runs of one device, one behind the other as on the slice.
static void put_device_plane(PLUGIN_Profiler *p, int32_t device, int64_t origin_ns,
                             vt_xspace_run *runs) {
  size_t count = 0;
  double free_at = 0;
  for (size_t i = 0; i < p->runs.size; i++) {
    const device_run *r = &p->runs.data[i];
    if (r->device != device) continue;
    const vt_executable_info *info = vt_executable_get(r->executable);
    const vt_prediction *prediction;
    vt_status_free(vt_executable_predict(r->executable, &prediction)); // or its roofline
    double start = 1e-9 * (double)(r->start_ns - origin_ns);
    double seconds = prediction ? prediction->timing.seconds : info->roofline.seconds;
    if (start < free_at) start = free_at;
    runs[count++] = (vt_xspace_run){r->executable, info->name, prediction, start, seconds};
    free_at = start + seconds;
  }
  if (!count) return;
  if (!device) vt_xspace_put_programs(&p->message, runs, count);
  vt_xspace_put_device(&p->message, vt_executable_slice(p->programs.data[0]), device, origin_ns,
                       runs, count);
}

static vt_status write_message(void *user) {
  PLUGIN_Profiler *p = user;
  int32_t last = -1;
  int64_t origin_ns = 0;
  for (size_t i = 0; i < p->runs.size; i++) {
    if (p->runs.data[i].device > last) last = p->runs.data[i].device;
    if (!i || p->runs.data[i].start_ns < origin_ns) origin_ns = p->runs.data[i].start_ns;
  }
  p->message.size = 0;
  put_host_plane(p);
  vt_xspace_run *runs = VT_NEW_ARRAY(&p->arena, vt_xspace_run, p->runs.size + 1);
  for (int32_t device = 0; device <= last; device++) put_device_plane(p, device, origin_ns, runs);
  return VT_OK;
}

// The calls ---------------------------------------------------------------------------------------

static void set_recording(PLUGIN_Profiler *p, bool on) {
  vt_lock(&lock);
  if (on && !p->recording) {
    p->next = recordings;
    recordings = p;
  }
  for (PLUGIN_Profiler **at = &recordings; !on && *at; at = &(*at)->next)
    if (*at == p) {
      *at = p->next;
      break;
    }
  p->recording = on;
  vt_run_observe(recordings ? run_over : NULL);
  vt_unlock(&lock);
}

// An entry of ProfileOptions.advanced_configuration: {1: key, 2: {1: string}}.
static vt_status entry_read(vt_bytes bytes, bool *out_host_only) {
  static const char key[] = "tpu_trace_mode", mode[] = "TRACE_ONLY_HOST";
  vt_wire entry = vt_wire_open(bytes);
  vt_wire_field field, value;
  bool more, is_mode = false;
  for (;;) {
    VT_TRY(vt_wire_next(&entry, &field, &more));
    if (!more) return VT_OK;
    if (field.wire != 2) continue;
    if (field.number == 1)
      is_mode = field.bytes.size == strlen(key) && !memcmp(field.bytes.data, key, strlen(key));
    if (field.number != 2 || !is_mode) continue;
    vt_wire inner = vt_wire_open(field.bytes);
    VT_TRY(vt_wire_next(&inner, &value, &more));
    if (more && value.number == 1 && value.wire == 2 && value.bytes.size == strlen(mode) &&
        !memcmp(value.bytes.data, mode, strlen(mode)))
      *out_host_only = true;
  }
}

// ProfileOptions{3: level of the devices' tracer, 12: advanced configuration}. Empty options are
// the default, which traces devices.
static vt_status options_read(vt_bytes bytes, bool *out_host_only) {
  vt_wire options = vt_wire_open(bytes);
  vt_wire_field field;
  uint64_t level = bytes.size == 0;
  bool more;
  for (;;) {
    VT_TRY(vt_wire_next(&options, &field, &more));
    if (!more) break;
    if (field.number == 3 && field.wire == 0) level = field.value;
    if (field.number == 12 && field.wire == 2) VT_TRY(entry_read(field.bytes, out_host_only));
  }
  *out_host_only |= level == 0;
  return VT_OK;
}

static PJRT_Error *profiler_create(PLUGIN_Profiler_Create_Args *args) {
  bool host_only = false;
  VT_TRY(options_read((vt_bytes){(const uint8_t *)args->options, args->options_size}, &host_only));
  args->profiler = calloc(1, sizeof *args->profiler);
  if (!args->profiler) return vt_error_no_memory();
  args->profiler->host_only = host_only;
  return NULL;
}

static PJRT_Error *profiler_destroy(PLUGIN_Profiler_Args *args) {
  PLUGIN_Profiler *p = args->profiler;
  if (!p) return NULL;
  set_recording(p, false);
  vt_array_free(&p->spans);
  for (size_t i = 0; i < p->programs.size; i++) vt_executable_release(p->programs.data[i]);
  vt_array_free(&p->programs);
  vt_array_free(&p->runs);
  vt_array_free(&p->names);
  vt_map_free(&p->numbers);
  vt_text_free(&p->message);
  vt_arena_free(&p->arena);
  free(p);
  return NULL;
}

static PJRT_Error *profiler_start(PLUGIN_Profiler_Args *args) {
  set_recording(args->profiler, true);
  return NULL;
}

static PJRT_Error *profiler_stop(PLUGIN_Profiler_Args *args) {
  set_recording(args->profiler, false);
  return NULL;
}

// Without a buffer the message stays ours; with one the caller has queried its size first.
static PJRT_Error *profiler_collect(PLUGIN_Profiler_CollectData_Args *args) {
  PLUGIN_Profiler *p = args->profiler;
  if (p->recording)
    return vt_error(VT_FAILED_PRECONDITION, "stop the profiler before its data is collected");
  if (!args->buffer || !p->message.size) VT_TRY(vt_attempt_keep(write_message, p));
  if (args->buffer)
    memcpy(args->buffer, p->message.data, p->message.size);
  else
    args->buffer = (uint8_t *)p->message.data;
  args->buffer_size_in_bytes = p->message.size;
  return NULL;
}

static void error_destroy(PJRT_Error_Destroy_Args *args) {
  vt_pjrt_Error_Destroy(args);
}

static void error_message(PJRT_Error_Message_Args *args) {
  vt_pjrt_Error_Message(args);
}

static PJRT_Error *error_code(PJRT_Error_GetCode_Args *args) {
  return vt_pjrt_Error_GetCode(args);
}

static PLUGIN_Profiler_Api profiler_api = {.struct_size = sizeof profiler_api,
                                           .error_destroy = error_destroy,
                                           .error_message = error_message,
                                           .error_get_code = error_code,
                                           .create = profiler_create,
                                           .destroy = profiler_destroy,
                                           .start = profiler_start,
                                           .stop = profiler_stop,
                                           .collect_data = profiler_collect};

PJRT_Profiler_Extension vt_pjrt_profiler = {
    .base = {sizeof vt_pjrt_profiler, PJRT_EXTENSION_PROFILER, NULL}, .api = &profiler_api};
