// SPDX-License-Identifier: Apache-2.0
// predict.c - `vtpu predict`: what a real slice would do with programs: time, memory, energy, cost.
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/cli.h"
#include "runtime/predict.h"

enum { SHOWN_KERNELS = 12 };

static json_t *span_as_json(const vt_span *s) {
  vt_text shape = {0};
  if (s->op->result_count) vt_type_print(&shape, s->op->results[0].type);
  json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:s, s:i}", "kind",
                           s->kind, "name", s->op->loc->name, "shape", vt_text_string(&shape),
                           "file", s->op->loc->file, "line", s->op->loc->line, "start", s->start,
                           "seconds", s->seconds, "times", s->trips, "flops", s->flops, "hbm_bytes",
                           s->hbm_bytes, "bound", vt_bound_name(s->bound), "cores", s->cores);
  vt_text_free(&shape);
  return json;
}

static json_t *spans_of(const vt_timing *timing) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < timing->count; i++)
    json_array_append_new(list, span_as_json(&timing->spans[i]));
  return list;
}

static json_t *advice_as_json(const vt_padding_advice *advice) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < advice->count; i++) {
    const vt_padding *a = &advice->items[i];
    json_array_append_new(list, json_pack("{s:I, s:I, s:f, s:f, s:s, s:s, s:i}", "from",
                                          (json_int_t)a->from, "to", (json_int_t)a->to, "seconds",
                                          a->seconds, "saves", a->saves, "name", a->name, "file",
                                          a->file, "line", a->line));
  }
  return list;
}

static json_t *as_json(const char *file, const vt_slice *slice, const vt_prediction *p,
                       int64_t steps, bool kernels, const vt_padding_advice *advice) {
  const vt_timing *t = &p->timing;
  json_t *busy = json_object();
  for (int b = 0; b < VT_BOUND_COUNT; b++)
    json_object_set_new(busy, vt_bound_name((vt_bound)b), json_real(t->busy[b] / t->seconds));
  json_t *report =
      json_pack("{s:s, s:s, s:i, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:o, s:b}",
                "file", file, "accelerator_type", slice->name, "devices", p->devices, "seconds",
                t->seconds, "hbm_peak_bytes", (json_int_t)p->hbm_peak_bytes, "flops", p->flops,
                "hbm_bytes", t->hbm_bytes * p->devices, "mfu", p->mfu, "usd", p->usd, "energy_j",
                p->joules, "bound", vt_bound_name(t->bound), "collective_seconds",
                t->busy[VT_BOUND_ICI], "exposed_collective_seconds", t->exposed, "launch_seconds",
                t->busy[VT_BOUND_LAUNCH], "busy", busy, "exact_trips", t->exact_trips);
  if (steps) {
    json_object_set_new(report, "steps", json_integer(steps));
    json_object_set_new(report, "steps_seconds", json_real(t->seconds * (double)steps));
    json_object_set_new(report, "steps_usd", json_real(p->usd * (double)steps));
    json_object_set_new(report, "steps_energy_j", json_real(p->joules * (double)steps));
  }
  if (kernels) json_object_set_new(report, "kernels", spans_of(t));
  if (advice) json_object_set_new(report, "advice", advice_as_json(advice));
  return report;
}

static int by_time(const void *a, const void *b) {
  const vt_span *const *x = a, *const *y = b;
  double left = (*x)->seconds * (*x)->trips, right = (*y)->seconds * (*y)->trips;
  if (left != right) return left < right ? 1 : -1;
  return (*x > *y) - (*x < *y);
}

static void print_kernels(const vt_timing *timing, vt_arena *arena) {
  const vt_span **order = VT_NEW_ARRAY(arena, const vt_span *, timing->count + 1);
  uint32_t count = 0;
  for (uint32_t i = 0; i < timing->count; i++)
    if (timing->spans[i].busy[VT_BOUND_LAUNCH] + timing->spans[i].busy[VT_BOUND_ICI] > 0)
      order[count++] = &timing->spans[i];
  qsort(order, count, sizeof *order, by_time);
  printf("%u kernels, the dearest first\n", count);
  for (uint32_t i = 0; i < count && i < SHOWN_KERNELS; i++) {
    const vt_span *s = order[i];
    printf("  %-10s x %-6.0f %-6s %-14s %s", vt_cli_seconds(s->seconds), s->trips,
           vt_bound_name(s->bound), s->kind, s->op->loc->name);
    if (s->op->loc->file[0]) printf(" (%s:%d)", s->op->loc->file, s->op->loc->line);
    printf("\n");
  }
}

static void print_advice(const vt_padding_advice *advice) {
  if (!advice->count) printf("advice            no size is worth padding\n");
  for (uint32_t i = 0; i < advice->count; i++) {
    const vt_padding *a = &advice->items[i];
    printf("advice            pad %" PRId64 " to %" PRId64 ": saves %.1f %% (%s", a->from, a->to,
           100 * a->saves, a->name);
    if (a->file[0]) printf(" %s:%d", a->file, a->line);
    printf(")\n");
  }
}

static void print(const char *file, const vt_slice *slice, const vt_prediction *p, int64_t steps,
                  const vt_padding_advice *advice, vt_arena *arena) {
  const vt_timing *t = &p->timing;
  printf("%s on %s, %d of %d devices\n", file, slice->name, p->devices, vt_slice_devices(slice));
  printf("time of one run   %s, bound by %s%s\n", vt_cli_seconds(t->seconds),
         vt_bound_name(t->bound),
         t->exact_trips ? "" : "; a loop of unknown trip count counts once");
  printf("work              %s, %.1f %% of the bf16 peak (MFU)\n", vt_cli_count(p->flops, "FLOP"),
         p->mfu * 100);
  printf("busy             ");
  for (int b = 0; b < VT_BOUND_COUNT; b++)
    printf(" %s %.0f %%%s", vt_bound_name((vt_bound)b), 100 * t->busy[b] / t->seconds,
           b + 1 < VT_BOUND_COUNT ? "," : "\n");
  if (t->busy[VT_BOUND_ICI] > 0)
    printf("collectives       %s, %s of it not hidden\n", vt_cli_seconds(t->busy[VT_BOUND_ICI]),
           vt_cli_seconds(t->exposed));
  printf("HBM per device    %s of %s\n", vt_cli_bytes((double)p->hbm_peak_bytes),
         vt_cli_bytes((double)slice->chip->hbm_limit_bytes));
  printf("energy            %s in the chips\n", vt_cli_count(p->joules, "J"));
  if (p->usd > 0)
    printf("cost              %.3g USD a run, at %.2f USD an hour\n", p->usd,
           vt_slice_usd_per_hour(slice));
  if (steps) {
    double all = t->seconds * (double)steps;
    printf("%" PRId64 " runs  %s, %.4g USD, %s\n", steps,
           all < 7200 ? vt_cli_seconds(all) : vt_cli_count(all / 3600, "h"), p->usd * (double)steps,
           vt_cli_count(p->joules * (double)steps, "J"));
  }
  if (advice) print_advice(advice);
  print_kernels(t, arena);
}

// Prints one file, behind an empty line where `apart`, or adds it to `list`.
static vt_status predict(const char *file, const vt_slice *slice, const vt_args *args, bool apart,
                         json_t *list) {
  vt_bytes bytes;
  vt_arena arena = {0};
  vt_prediction prediction;
  int64_t steps = vt_args_number(args, "steps", 0);
  VT_TRY(vt_cli_map_program(file, &bytes));
  vt_padding_advice tried, *advice = NULL;
  vt_status st = vt_predict(bytes, slice, &arena, &prediction);
  if (!st && (vt_args_on(args, "advice") || vt_args_text(args, "html"))) {
    vt_predict_advise(bytes, slice, &prediction, &arena, &tried);
    advice = &tried;
  }
  if (!st && list)
    json_array_append_new(
        list, as_json(file, slice, &prediction, steps, vt_args_on(args, "kernels"), advice));
  else if (!st) {
    if (apart) printf("\n");
    print(file, slice, &prediction, steps, advice, &arena);
  }
  const char *html = vt_args_text(args, "html"), *trace = vt_args_text(args, "trace");
  const char *xspace = vt_args_text(args, "xspace");
  vt_status written = NULL;
  if (!st && html) written = vt_cli_write_page(&prediction, advice, slice, file, html);
  if (!st && !written && trace) written = vt_cli_write_trace(&prediction, slice, file, trace);
  if (!st && !written && xspace) written = vt_cli_write_xspace(&prediction, slice, file, xspace);
  if (!st) vt_prediction_free(&prediction);
  vt_arena_free(&arena);
  vt_file_unmap(&bytes);
  return written ? written : vt_status_wrap(st, "%s", file);
}

static void print_json(const json_t *list) {
  const json_t *shown = json_array_size(list) == 1 ? json_array_get(list, 0) : list;
  char *text = json_dumps(shown, JSON_INDENT(1) | JSON_REAL_PRECISION(12) | JSON_ENCODE_ANY);
  printf("%s\n", text);
  free(text);
}

int vt_cli_predict(const vt_args *args) {
  vt_slice slice;
  vt_arena arena = {0};
  vt_status st = vt_cli_slice_with(args, &arena, &slice);
  if (!st) st = vt_cli_price(args, &slice);
  bool drawn =
      vt_args_text(args, "html") || vt_args_text(args, "trace") || vt_args_text(args, "xspace");
  if (!st && args->words.size > 1 && drawn)
    st =
        vt_error(VT_INVALID_ARGUMENT, "--html, --trace and --xspace are for one program at a time");
  if (st) return vt_cli_fail("predict", st);
  json_t *list = vt_args_on(args, "json") ? json_array() : NULL;
  int failed = 0;
  bool shown = false;
  for (size_t i = 0; i < args->words.size; i++) {
    st = predict(args->words.data[i], &slice, args, shown, list);
    shown = shown || !st;
    if (!st) continue;
    failed = vt_cli_fail("predict", st);
    if (list) json_array_append_new(list, json_null());
  }
  if (list) print_json(list);
  json_decref(list);
  vt_arena_free(&arena);
  return failed;
}
