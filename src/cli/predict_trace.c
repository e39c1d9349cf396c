// SPDX-License-Identifier: Apache-2.0
// predict_trace.c - a prediction as a profile for XProf (runtime/xspace.c), and in the trace event
// format, which Perfetto and chrome://tracing show. A loop's trips are drawn one behind the other
// as one: what runs in it takes all their time.
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cli/cli.h"
#include "runtime/predict.h"
#include "runtime/xspace.h"

enum { KERNELS = 1, LOOPS, COLLECTIVES, OTHER_CORES }; // the first core's are KERNELS

static int track_of(const vt_view_span *v) {
  return v->collective ? COLLECTIVES : v->loop ? LOOPS : KERNELS;
}

static json_t *event(const vt_view_span *v, int track) {
  const vt_span *s = v->span;
  const char *name = s->op->loc->name[0] ? s->op->loc->name : s->kind;
  json_t *args = json_pack("{s:s, s:f, s:f, s:f, s:f, s:s, s:s, s:i}", "kind", s->kind, "times",
                           s->trips, "seconds of one run", s->seconds, "flops", s->flops,
                           "HBM bytes", s->hbm_bytes, "bound", vt_bound_name(s->bound), "file",
                           s->op->loc->file, "line", s->op->loc->line);
  return json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "name", name, "ph", "X", "pid", 0, "tid",
                   track, "ts", v->start * 1e6, "dur", v->seconds * 1e6, "args", args);
}

static json_t *named(const char *what, int track, const char *name) {
  return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", 0, "tid", track,
                   "args", "name", name);
}

vt_status vt_cli_write_trace(const vt_prediction *prediction, const vt_slice *slice,
                             const char *program, const char *path) {
  vt_arena arena = {0};
  char device[128];
  snprintf(device, sizeof device, "one device of %s", slice->name);
  const vt_view_span *view = vt_view_of(&prediction->timing, &arena);
  json_t *events = json_array();
  json_array_append_new(events, named("process_name", 0, device));
  int32_t cores = slice->chip->cores / slice->chip->devices;
  json_array_append_new(events,
                        named("thread_name", KERNELS, cores > 1 ? "kernels, core 0" : "kernels"));
  for (int32_t core = 1; core < cores; core++) {
    char name[32];
    snprintf(name, sizeof name, "kernels, core %d", core);
    json_array_append_new(events, named("thread_name", OTHER_CORES + core - 1, name));
  }
  json_array_append_new(events, named("thread_name", LOOPS, "loops"));
  json_array_append_new(events, named("thread_name", COLLECTIVES, "collectives"));
  for (uint32_t i = 0; i < prediction->timing.count; i++) {
    json_array_append_new(events, event(&view[i], track_of(&view[i])));
    for (int32_t core = 1; core < view[i].span->cores; core++)
      json_array_append_new(events, event(&view[i], OTHER_CORES + core - 1));
  }
  json_t *all = json_pack("{s:s, s:{s:s, s:s}, s:o}", "displayTimeUnit", "ns", "otherData",
                          "program", program, "slice", slice->name, "traceEvents", events);
  char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(all);
  vt_arena_free(&arena);
  if (!text) return vt_error(VT_RESOURCE_EXHAUSTED, "%s: out of memory", path);
  vt_status st = vt_file_write(path, text, strlen(text));
  free(text);
  return st;
}

// XProf looks for profiles in plugins/profile/NAME of a folder: these are made if they are missing.
static void make_folders_of(const char *path) {
  char folder[PATH_MAX];
  if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder) return;
  for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
    *at = 0;
    (void)mkdir(folder, 0777); // if that fails, so does writing the file
    *at = '/';
  }
}

vt_status vt_cli_write_xspace(const vt_prediction *prediction, const vt_slice *slice,
                              const char *program, const char *path) {
  vt_text space = {0};
  const char *slash = strrchr(program, '/'), *name = prediction->module->name;
  if (!name || !*name) name = slash ? slash + 1 : program;
  vt_xspace_run run = {program, name, prediction, 0, prediction->timing.seconds};
  vt_xspace_put_device(&space, slice, 0, 0, &run, 1);
  vt_xspace_put_programs(&space, &run, 1);
  vt_xspace_put_use(&space, slice, prediction);
  vt_xspace_put_host(&space, slice->name);
  make_folders_of(path);
  vt_status st = vt_file_write(path, space.data, space.size);
  vt_text_free(&space);
  return st;
}
