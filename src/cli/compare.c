// SPDX-License-Identifier: Apache-2.0
// compare.c - `vtpu compare`: one program on several slices. A file is predicted; a program of a
// framework is run on each slice in turn, and what is dearest on the first counts as the step on
// all.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/predictions.h"
#include "cli/cli.h"
#include "cli/run.h"
#include "runtime/predict.h"

enum { MOST_TYPES = 64 };

// One slice's line.
typedef struct candidate {
  vt_slice slice;
  char why[512]; // it does not fit, or fails; "" = it does
  char step[VT_PREDICTIONS_NAME], bound[VT_PREDICTIONS_BOUND];
  double seconds, mfu, hbm, joules;
} candidate;

static double usd_per_step(const candidate *c) {
  return vt_slice_usd_per_hour(&c->slice) * c->seconds / 3600;
}

// What the user says of a training: examples or tokens of one step, and of all of it; 0: nothing.
typedef struct training {
  int64_t examples;
  double total;
} training;

static double steps_of(const training *t) {
  return ceil(t->total / (double)t->examples);
}

// A step's price is what a million of them cost, or of the examples in them.
static double million_usd(const candidate *c, const training *t) {
  return 1e6 * usd_per_step(c) / (double)(t->examples ? t->examples : 1);
}

// ---- the figures --------------------------------------------------------------------------------

static void take_error(vt_status st, candidate *c) {
  const char *message = vt_status_message(st);
  snprintf(c->why, sizeof c->why, "%.*s", (int)strcspn(message, "\n"), message);
  vt_status_free(st);
}

static void predict_file(const char *file, candidate *c) {
  vt_bytes bytes;
  vt_arena arena = {0};
  vt_prediction p;
  vt_status st = vt_cli_map_program(file, &bytes);
  if (!st) {
    st = vt_predict(bytes, &c->slice, &arena, &p);
    if (!st) {
      c->seconds = p.timing.seconds;
      c->mfu = p.mfu;
      c->hbm = (double)p.hbm_peak_bytes;
      c->joules = p.joules;
      snprintf(c->bound, sizeof c->bound, "%s", vt_bound_name(p.timing.bound));
      snprintf(c->step, sizeof c->step, "%s", p.module->name ? p.module->name : file);
      vt_prediction_free(&p);
    }
    vt_file_unmap(&bytes);
  }
  vt_arena_free(&arena);
  if (st) take_error(st, c);
}

// The program of that name; NULL or none such: the dearest.
static const vt_predicted_program *find_step(const vt_run_use *use, const char *name) {
  for (uint32_t i = 0; name && i < use->program_count; i++) {
    const vt_predicted_program *p = &use->programs_run[i];
    if (p->bound[0] && !strcmp(p->name, name)) return p;
  }
  return &use->programs_run[0];
}

static void run_program(char **command, const char *step, candidate *c) {
  vt_arena arena = {0};
  vt_run_use use;
  fprintf(stderr, "vtpu compare: %s\n", c->slice.name);
  vt_run_ask ask = {.predict = true, .unexecuted = vt_run_is_large(&c->slice)};
  vt_status st = vt_run_on(&c->slice, command, &ask, &arena, &use);
  if (st) {
    take_error(st, c);
  } else if (use.hbm_refused) {
    snprintf(c->why, sizeof c->why, "does not fit: %s asked for, with %s a device",
             vt_cli_bytes((double)use.hbm_asked),
             vt_cli_bytes((double)c->slice.chip->hbm_limit_bytes));
  } else if (use.exit_code) {
    snprintf(c->why, sizeof c->why, "the program ended with exit code %d", use.exit_code);
  } else if (!use.program_count || !use.programs_run[0].bound[0]) {
    snprintf(c->why, sizeof c->why, "the program ran nothing on the TPU");
  } else {
    const vt_predicted_program *p = find_step(&use, step);
    c->seconds = p->seconds;
    c->mfu = p->mfu;
    c->hbm = (double)p->hbm_peak_bytes;
    c->joules = p->joules;
    snprintf(c->bound, sizeof c->bound, "%s", p->bound);
    snprintf(c->step, sizeof c->step, "%s", p->name);
  }
  vt_arena_free(&arena);
}

// ---- the table ----------------------------------------------------------------------------------

// The fastest, or the one of the least price; NULL: none has one.
static const candidate *best(const candidate *all, size_t count, bool price) {
  const candidate *found = NULL;
  for (size_t i = 0; i < count; i++) {
    const candidate *c = &all[i];
    if (*c->why || (price && usd_per_step(c) <= 0)) continue;
    bool better =
        found && (price ? usd_per_step(c) < usd_per_step(found) : c->seconds < found->seconds);
    if (!found || better) found = c;
  }
  return found;
}

static void print_line(const candidate *c, const training *t, bool fastest, bool cheapest) {
  char price[32] = "-", memory[64];
  if (usd_per_step(c) > 0) snprintf(price, sizeof price, "%.4g", million_usd(c, t));
  snprintf(memory, sizeof memory, "%s of %s", vt_cli_bytes(c->hbm),
           vt_cli_bytes((double)c->slice.chip->hbm_limit_bytes));
  printf("%-16s %8d %11s %6.1f %% %-7s %-26s %12s", c->slice.name, vt_slice_devices(&c->slice),
         vt_cli_seconds(c->seconds), 100 * c->mfu, c->bound, memory, price);
  if (t->examples) printf(" %12s", vt_cli_count((double)t->examples / c->seconds, "/s"));
  if (t->total > 0)
    printf(" %9.3g h %12.4g", steps_of(t) * c->seconds / 3600, steps_of(t) * usd_per_step(c));
  printf("%s%s\n", fastest ? "  fastest" : "", cheapest ? "  cheapest" : "");
}

static void print_table(const candidate *all, size_t count, const training *t) {
  const candidate *fastest = best(all, count, false), *cheapest = best(all, count, true);
  if (fastest) printf("a step is %s\n", fastest->step);
  if (t->total > 0) printf("the whole is %.4g steps\n", steps_of(t));
  printf("%-16s %8s %11s %8s %-7s %-26s %12s%s%s\n", "slice", "devices", "a step", "MFU", "bound",
         "HBM of a device", t->examples ? "USD, 1e6 ex." : "USD, 1e6",
         t->examples ? "     examples" : "", t->total > 0 ? "   the whole   USD, whole" : "");
  for (size_t i = 0; i < count; i++) {
    const candidate *c = &all[i];
    if (*c->why)
      printf("%-16s %8d %s\n", c->slice.name, vt_slice_devices(&c->slice), c->why);
    else
      print_line(c, t, c == fastest, c == cheapest);
  }
}

static void print_json(const candidate *all, size_t count, const training *t) {
  json_t *list = json_array();
  for (size_t i = 0; i < count; i++) {
    const candidate *c = &all[i];
    json_t *row = json_pack("{s:s, s:i, s:b}", "accelerator_type", c->slice.name, "devices",
                            vt_slice_devices(&c->slice), "fits", !*c->why);
    json_t *more =
        *c->why ? json_pack("{s:s}", "why", c->why)
                : json_pack("{s:s, s:f, s:f, s:s, s:f, s:f, s:f}", "step", c->step, "seconds",
                            c->seconds, "mfu", c->mfu, "bound", c->bound, "hbm_peak_bytes", c->hbm,
                            "usd", usd_per_step(c), "energy_j", c->joules);
    json_object_update(row, more);
    if (t->examples && !*c->why)
      json_object_set_new(row, "examples_per_second", json_real((double)t->examples / c->seconds));
    if (t->total > 0 && !*c->why) {
      json_object_set_new(row, "total_seconds", json_real(steps_of(t) * c->seconds));
      json_object_set_new(row, "total_usd", json_real(steps_of(t) * usd_per_step(c)));
    }
    json_decref(more);
    json_array_append_new(list, row);
  }
  char *text = json_dumps(list, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
  printf("%s\n", text);
  free(text);
  json_decref(list);
}

// ---- the command --------------------------------------------------------------------------------

static vt_status read_types(const char *text, candidate *all, size_t *out_count) {
  char name[64];
  *out_count = 0;
  for (const char *at = text; *at;) {
    size_t size = strcspn(at, ",");
    if (size >= sizeof name || *out_count == MOST_TYPES)
      return vt_error(VT_INVALID_ARGUMENT, "%s: at most %d types of usual length", text,
                      MOST_TYPES);
    snprintf(name, sizeof name, "%.*s", (int)size, at);
    if (*name) VT_TRY(vt_slice_from_name(name, &all[(*out_count)++].slice));
    at += size + (at[size] != 0);
  }
  return *out_count ? VT_OK : vt_error(VT_INVALID_ARGUMENT, "-t: no slice is named");
}

// 1200000, 1.2M, 15T.
static vt_status read_training(const vt_args *args, training *out) {
  static const char units[] = "KMBT";
  const char *text = vt_args_text(args, "total");
  *out = (training){.examples = vt_args_number(args, "examples", 0)};
  if (!text) return VT_OK;
  char *end;
  out->total = strtod(text, &end);
  const char *unit = *end ? strchr(units, *end == 'G' ? 'B' : *end) : NULL;
  if (unit) out->total *= pow(1000, (double)(unit - units + 1)), end++;
  if (*end || !(out->total > 0) || !isfinite(out->total))
    return vt_error(VT_INVALID_ARGUMENT, "--total %s: want a number such as 1200000, 1.2M or 15T",
                    text);
  if (!out->examples)
    return vt_error(VT_INVALID_ARGUMENT, "--total needs --examples, those of one step");
  return VT_OK;
}

int vt_cli_compare(const vt_args *args) {
  static candidate all[MOST_TYPES];
  size_t count = 0;
  const char *types = vt_args_text(args, "slices");
  training t;
  vt_status st = read_training(args, &t);
  if (!st && !types)
    st = vt_error(VT_INVALID_ARGUMENT, "name the slices: -t v3-8,v4-8,v5litepod-8,v6e-8");
  if (!st && (args->words.size > 0) == (args->rest_count > 0))
    st = vt_error(VT_INVALID_ARGUMENT, "name a file, or a program: vtpu compare -t v3-8,v4-8 -- "
                                       "python3 train.py");
  if (!st) st = read_types(types, all, &count);
  for (size_t i = 0; i < count && !st; i++) {
    st = vt_cli_price(args, &all[i].slice);
    if (!st || vt_args_text(args, "region")) continue;
    vt_status_free(st); // others may have one: this is compared without
    st = VT_OK;
  }
  if (st) return vt_cli_fail("compare", st);
  const char *step = NULL;
  for (size_t i = 0; i < count; i++) {
    if (args->rest_count)
      run_program(args->rest, step, &all[i]);
    else
      predict_file(args->words.data[0], &all[i]);
    if (!step && !*all[i].why) step = all[i].step;
  }
  if (vt_args_on(args, "json"))
    print_json(all, count, &t);
  else
    print_table(all, count, &t);
  return best(all, count, false) ? 0 : 1;
}
