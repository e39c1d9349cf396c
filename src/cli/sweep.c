// SPDX-License-Identifier: Apache-2.0
// sweep.c - `vtpu sweep`: how the time of a program follows a property of the chip, as a table, as
// JSON, or as a chart on a page.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "chip/custom.h"
#include "cli/cli.h"
#include "cli/page.h"
#include "runtime/predict.h"

enum { MOST_POINTS = 256, BAR = 40 };
enum { WIDTH = 960, HEIGHT = 400, LEFT = 90, RIGHT = 30, BOTTOM = 50, TOP = 20, TICKS = 4 };

typedef struct point {
  double factor, value, seconds;
  vt_bound bound;
} point;

typedef struct range {
  char name[32];
  double from, to;
} range;

// "hbm_bandwidth=0.5..4": the property and the factors.
static vt_status read_range(const char *text, range *out) {
  const char *equals = strchr(text, '='), *dots = strstr(text, "..");
  char from[32] = "", *end = from, *last = from;
  if (!equals || !dots || dots < equals || dots - equals > (ptrdiff_t)sizeof from ||
      (size_t)(equals - text) >= sizeof out->name)
    return vt_error(VT_INVALID_ARGUMENT,
                    "--param %s: name a property and factors, such as hbm_bandwidth=0.5..4", text);
  snprintf(out->name, sizeof out->name, "%.*s", (int)(equals - text), text);
  // Apart from the dots: "1." is a number too.
  snprintf(from, (size_t)(dots - equals), "%s", equals + 1);
  out->from = strtod(from, &end);
  out->to = strtod(dots + 2, &last);
  bool numbers = end > from && !*end && last > dots + 2 && !*last;
  if (!numbers || !(out->from >= 1e-6 && out->to >= out->from && out->to <= 1e6))
    return vt_error(VT_INVALID_ARGUMENT,
                    "--param %s: the factors go from a number to a larger one, between 1e-6 and "
                    "1e6, such as 0.5..4",
                    text);
  // As `hbm = 2 TB/s` in a chip of one's own; how much there is of it changes no time.
  if (!strcmp(out->name, "hbm")) snprintf(out->name, sizeof out->name, "hbm_bandwidth");
  return VT_OK;
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
      points[i].bound = p.timing.bound;
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
           vt_bound_name(points[i].bound));
    for (int k = 0; k < (int)round(BAR * points[i].seconds / most); k++) putchar('#');
    putchar('\n');
  }
}

static void print_json(const range *r, const point *points, int64_t count) {
  json_t *list = json_array();
  for (int64_t i = 0; i < count; i++)
    json_array_append_new(list, json_pack("{s:f, s:f, s:f, s:s}", "factor", points[i].factor,
                                          r->name, points[i].value, "seconds", points[i].seconds,
                                          "bound", vt_bound_name(points[i].bound)));
  char *text = json_dumps(list, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
  printf("%s\n", text);
  free(text);
  json_decref(list);
}

// ---- the page -----------------------------------------------------------------------------------

static double across(const range *r, double factor) {
  double span = log(r->to / r->from);
  double share = span > 0 ? log(factor / r->from) / span : 0.5;
  return LEFT + (WIDTH - LEFT - RIGHT) * share;
}

static double down(double most, double seconds) {
  return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * seconds / most;
}

static void put_axes(vt_text *out, const range *r, const point *points, int64_t count,
                     double most) {
  for (int i = 0; i <= TICKS; i++) {
    double y = down(most, most * i / TICKS);
    vt_text_printf(out,
                   "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#8884\"/>"
                   "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                   LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, vt_cli_seconds(most * i / TICKS));
  }
  int64_t step = count > 9 ? (count + 8) / 9 : 1; // names of at most nine points
  for (int64_t i = 0; i < count; i += step) {
    char value[48];
    vt_chip_put_custom(r->name, points[i].value, value, sizeof value);
    vt_text_printf(out,
                   "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>"
                   "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">x %.3g</text>\n",
                   across(r, points[i].factor), HEIGHT - BOTTOM + 20, value,
                   across(r, points[i].factor), HEIGHT - BOTTOM + 36, points[i].factor);
  }
}

static void put_chart(vt_text *out, const range *r, const point *points, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; i++) most = fmax(most, points[i].seconds);
  vt_text_printf(out,
                 "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"time of a run by %s\">\n",
                 WIDTH, HEIGHT, r->name);
  put_axes(out, r, points, count, most);
  vt_text_put(out, "<polyline fill=\"none\" stroke=\"#5f6368\" stroke-width=\"2\" points=\"");
  for (int64_t i = 0; i < count; i++)
    vt_text_printf(out, "%.1f,%.1f ", across(r, points[i].factor), down(most, points[i].seconds));
  vt_text_put(out, "\"/>\n");
  for (int64_t i = 0; i < count; i++)
    vt_text_printf(out,
                   "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"><title>%s, bound by "
                   "%s</title></circle>\n",
                   across(r, points[i].factor), down(most, points[i].seconds),
                   vt_cli_bound_color(points[i].bound), vt_cli_seconds(points[i].seconds),
                   vt_bound_name(points[i].bound));
  vt_text_put(out, "</svg>\n<p>Bound by");
  for (int b = 0; b < VT_BOUND_COUNT; b++)
    vt_text_printf(out, " <span style=\"color:%s\">&#9679; %s</span>",
                   vt_cli_bound_color((vt_bound)b), vt_bound_name((vt_bound)b));
  vt_text_put(out, "</p>\n");
}

static vt_status write_page(const char *path, const char *program, const vt_slice *slice,
                            const range *r, const point *points, int64_t count) {
  vt_text out = {0};
  vt_cli_begin_page(&out, "vtpu sweep", program);
  vt_text_printf(&out, "<p>Time of one run on %s by %s.</p>\n", slice->name, r->name);
  put_chart(&out, r, points, count);
  vt_text_printf(&out, "<table><tr><th>factor</th><th>%s</th><th>a run</th><th>bound</th></tr>\n",
                 r->name);
  for (int64_t i = 0; i < count; i++) {
    char value[48];
    vt_chip_put_custom(r->name, points[i].value, value, sizeof value);
    vt_text_printf(&out, "<tr><td>%.3g</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
                   points[i].factor, value, vt_cli_seconds(points[i].seconds),
                   vt_bound_name(points[i].bound));
  }
  vt_text_put(&out, "</table>\n<p>A model of the chip says this, not a measurement.</p>\n");
  return vt_cli_end_page(&out, path);
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
  if (!st) st = vt_cli_map_program(args->words.data[0], &program);
  if (!st) {
    st = measure(program, &slice, &r, count, points);
    vt_file_unmap(&program);
  }
  const char *page = vt_args_text(args, "html");
  if (!st && page) st = write_page(page, args->words.data[0], &slice, &r, points, count);
  if (!st && vt_args_on(args, "json"))
    print_json(&r, points, count);
  else if (!st)
    print_table(&r, points, count);
  vt_arena_free(&arena);
  return st ? vt_cli_fail("sweep", st) : 0;
}
