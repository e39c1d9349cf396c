// SPDX-License-Identifier: Apache-2.0
// sweep.c - `vtpu sweep`: how the time of a program follows a property of the chip.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "chip/custom.h"
#include "cli/cli.h"
#include "runtime/predict.h"

enum { MOST_POINTS = 256, BAR = 40 };

typedef struct point {
  double factor, value, seconds;
  const char *bound;
} point;

typedef struct range {
  char name[32];
  double from, to;
} range;

// "hbm_bandwidth=0.5..4": the property and the factors.
static vt_status read_range(const char *text, range *out) {
  const char *equals = strchr(text, '=');
  char *end = NULL;
  if (equals && (size_t)(equals - text) < sizeof out->name) {
    snprintf(out->name, sizeof out->name, "%.*s", (int)(equals - text), text);
    out->from = strtod(equals + 1, &end);
    if (end > equals + 1 && !strncmp(end, "..", 2)) {
      const char *at = end + 2;
      out->to = strtod(at, &end);
      if (end > at && !*end && out->from > 0 && out->to >= out->from && out->to <= 1e6)
        return VT_OK;
    }
  }
  return vt_error(VT_INVALID_ARGUMENT,
                  "--param %s: name a property and factors, such as hbm_bandwidth=0.5..4", text);
}

// Factors in equal ratios, ends included.
static vt_status measure(vt_bytes program, const vt_slice *slice, const range *r, int64_t count,
                         point *points) {
  for (int64_t i = 0; i < count; i++) {
    vt_arena arena = {0};
    vt_slice changed = *slice;
    vt_prediction p;
    double share = count > 1 ? (double)i / (double)(count - 1) : 0;
    points[i].factor = r->from * pow(r->to / r->from, share);
    vt_status st = vt_chip_scale(slice->chip, r->name, points[i].factor, &arena, &changed.chip,
                                 &points[i].value);
    if (!st) st = vt_predict(program, &changed, &arena, &p);
    if (!st) {
      points[i].seconds = p.timing.seconds;
      points[i].bound = vt_bound_name(p.timing.bound);
      vt_prediction_free(&p);
    }
    vt_arena_free(&arena);
    VT_TRY(st);
  }
  return VT_OK;
}

static void print_table(const range *r, const point *points, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; i++) most = fmax(most, points[i].seconds);
  printf("%8s  %-16s %11s  %-7s\n", "factor", r->name, "a run", "bound");
  for (int64_t i = 0; i < count; i++) {
    char value[48];
    vt_chip_put_custom(r->name, points[i].value, value, sizeof value);
    printf("%8.3g  %-16s %11s  %-7s ", points[i].factor, value, vt_cli_seconds(points[i].seconds),
           points[i].bound);
    for (int k = 0; k < (int)round(BAR * points[i].seconds / most); k++) putchar('#');
    putchar('\n');
  }
}

static void print_json(const range *r, const point *points, int64_t count) {
  json_t *list = json_array();
  for (int64_t i = 0; i < count; i++)
    json_array_append_new(list, json_pack("{s:f, s:f, s:f, s:s}", "factor", points[i].factor,
                                          r->name, points[i].value, "seconds", points[i].seconds,
                                          "bound", points[i].bound));
  char *text = json_dumps(list, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
  printf("%s\n", text);
  free(text);
  json_decref(list);
}

int vt_cli_sweep(const vt_args *args) {
  static point points[MOST_POINTS];
  const char *param = vt_args_text(args, "param");
  int64_t count = vt_args_number(args, "points", 9);
  vt_slice slice;
  vt_arena arena = {0};
  vt_bytes program = {0};
  range r = {0};
  vt_status st = VT_OK;
  if (!param) st = vt_error(VT_INVALID_ARGUMENT, "name what changes: --param hbm_bandwidth=0.5..4");
  if (!st) st = read_range(param, &r);
  if (!st) st = vt_cli_slice_with(args, &arena, &slice);
  if (!st) st = vt_file_map(args->words.data[0], &program);
  if (!st) {
    st = measure(program, &slice, &r, count, points);
    vt_file_unmap(&program);
  }
  if (!st && vt_args_on(args, "json"))
    print_json(&r, points, count);
  else if (!st)
    print_table(&r, points, count);
  vt_arena_free(&arena);
  return st ? vt_cli_fail("sweep", st) : 0;
}
