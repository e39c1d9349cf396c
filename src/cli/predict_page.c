// SPDX-License-Identifier: Apache-2.0
// predict_page.c - a prediction as one page of HTML: timeline, roofline, dearest kernels, memory.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/page.h"

enum { WIDTH = 960, LANE = 26, NAMES = 120, CHART = 360, SHOWN = 24, SHOWN_COLLECTIVES = 12 };

void vt_cli_put_place(vt_text *out, const vt_op *op, const char *otherwise) {
  vt_cli_put_escaped(out, op->loc->name[0] ? op->loc->name : otherwise);
  if (!op->loc->file[0]) return;
  vt_text_put(out, " (");
  vt_cli_put_escaped(out, op->loc->file);
  vt_text_printf(out, ":%d)", op->loc->line);
}

// ---- the parts ----------------------------------------------------------------------------------

static void put_figure(vt_text *out, const char *name, const char *value) {
  vt_text_printf(out, "<tr><th>%s</th><td>", name);
  vt_cli_put_escaped(out, value);
  vt_text_put(out, "</td></tr>\n");
}

static void put_figures(vt_text *out, const vt_prediction *p, const vt_slice *slice) {
  const vt_timing *t = &p->timing;
  char text[256];
  snprintf(text, sizeof text, "%s, %d of %d devices", slice->name, p->devices,
           vt_slice_devices(slice));
  put_figure(out, "slice", text);
  snprintf(text, sizeof text, "%s, bound by %s%s", vt_cli_seconds(t->seconds),
           vt_bound_name(t->bound), t->exact_trips ? "" : " (loops of unknown length count once)");
  put_figure(out, "time of one run", text);
  snprintf(text, sizeof text, "%s, %.1f %% of the bf16 peak (MFU)", vt_cli_count(p->flops, "FLOP"),
           100 * p->mfu);
  put_figure(out, "work", text);
  snprintf(text, sizeof text, "%s of %s", vt_cli_bytes((double)p->hbm_peak_bytes),
           vt_cli_bytes((double)slice->chip->hbm_limit_bytes));
  put_figure(out, "HBM of a device", text);
  snprintf(text, sizeof text, "%s, %s of it not hidden", vt_cli_seconds(t->busy[VT_BOUND_ICI]),
           vt_cli_seconds(t->exposed));
  if (t->busy[VT_BOUND_ICI] > 0) put_figure(out, "collectives", text);
  snprintf(text, sizeof text, "%s in the chips", vt_cli_count(p->joules, "J"));
  put_figure(out, "energy", text);
  snprintf(text, sizeof text, "%.3g USD a run, at %.2f USD an hour", p->usd,
           vt_slice_usd_per_hour(slice));
  if (p->usd > 0) put_figure(out, "cost", text);
}

// A lane of the timeline: a unit, of one core where each core has its own.
typedef struct lane {
  char name[24];
  vt_bound unit; // VT_BOUND_COUNT: loops
  int32_t core;  // or ALL_CORES
} lane;
enum { MOST_LANES = 16, ALL_CORES = -1 };

static int list_lanes(int32_t cores, lane *lanes) {
  int count = 0;
  for (int b = 0; b <= VT_BOUND_COUNT; b++) {
    bool own = cores > 1 && (b == VT_BOUND_MXU || b == VT_BOUND_VPU);
    const char *name = b < VT_BOUND_COUNT ? vt_bound_name((vt_bound)b) : "loops";
    for (int32_t core = 0; core < (own ? cores : 1) && count < MOST_LANES; core++) {
      lane *l = &lanes[count++];
      *l = (lane){.unit = (vt_bound)b, .core = own ? core : ALL_CORES};
      snprintf(l->name, sizeof l->name, own ? "%s, core %d" : "%s", name, core);
    }
  }
  return count;
}

static double lane_share(const lane *l, const vt_view_span *v) {
  if (l->unit == VT_BOUND_COUNT) return v->loop ? 0.3 : 0;
  if (l->core != ALL_CORES && l->core >= v->span->cores) return 0;
  return v->span->busy[l->unit] / v->span->seconds;
}

// How busy the lane's unit is in all.
static double lane_busy(const lane *l, const vt_timing *t) {
  double busy = 0;
  if (l->core == ALL_CORES) return t->busy[l->unit] / t->seconds;
  for (uint32_t i = 0; i < t->count; i++)
    if (l->core < t->spans[i].cores) busy += t->spans[i].busy[l->unit] * t->spans[i].trips;
  return busy / t->seconds;
}

// A lane for each unit: how much of a kernel's time the unit works is how dark its part is.
static void put_timeline(vt_text *out, const vt_timing *t, const vt_view_span *view,
                         const vt_chip *chip) {
  lane lanes[MOST_LANES];
  int count = list_lanes(chip->cores / chip->devices, lanes), height = LANE * count;
  vt_text_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"timeline by unit\">\n",
                 WIDTH, height + 20);
  for (int k = 0; k < count; k++) {
    vt_text_printf(out, "<text x=\"0\" y=\"%d\">%s", LANE * k + 17, lanes[k].name);
    if (lanes[k].unit < VT_BOUND_COUNT)
      vt_text_printf(out, " %.0f %%", 100 * lane_busy(&lanes[k], t));
    vt_text_put(out, "</text>\n");
  }
  double scale = (WIDTH - NAMES) / t->seconds;
  for (uint32_t i = 0; i < t->count; i++) {
    const vt_view_span *v = &view[i];
    double x = NAMES + v->start * scale, width = v->seconds * scale;
    if (width < 0.15) continue; // no eye would see it
    for (int k = 0; k < count; k++) {
      vt_bound unit = lanes[k].unit;
      double share = lane_share(&lanes[k], v);
      if (share < 0.02) continue;
      vt_text_printf(out,
                     "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
                     "opacity=\"%.2f\"><title>",
                     x, LANE * k + 2, width, LANE - 4,
                     unit < VT_BOUND_COUNT ? vt_cli_bound_color(unit) : "#5f6368",
                     share > 1 ? 1 : share);
      vt_cli_put_place(out, v->span->op, v->span->kind);
      vt_text_printf(out, ": %s, %s x %.0f</title></rect>\n", v->span->kind,
                     vt_cli_seconds(v->span->seconds), v->span->trips);
    }
  }
  vt_text_printf(out,
                 "<text x=\"%d\" y=\"%d\">0</text><text x=\"%d\" y=\"%d\" "
                 "text-anchor=\"end\">%s</text>\n</svg>\n",
                 NAMES, height + 14, WIDTH, height + 14, vt_cli_seconds(t->seconds));
}

typedef struct chart {
  double x0, x1, y0, y1; // logarithms
} chart;

static double across(const chart *c, double x) {
  return NAMES + (WIDTH - NAMES - 40) * (log10(x) - c->x0) / (c->x1 - c->x0);
}
static double down(const chart *c, double y) {
  return 10 + (CHART - 40) * (c->y1 - log10(y)) / (c->y1 - c->y0);
}

// Matrix products by their arithmetic for each byte of HBM, under the roof of the chip.
static void put_roofline(vt_text *out, const vt_prediction *p, const vt_slice *slice) {
  const vt_timing *t = &p->timing;
  double peak = slice->chip->bf16_flops_per_s / slice->chip->devices;
  double rate = slice->chip->hbm_bytes_per_s / slice->chip->devices, ridge = peak / rate;
  chart c = {0, ceil(log10(ridge)) + 1, floor(log10(rate)), ceil(log10(peak))};
  vt_text_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"roofline\">\n", WIDTH,
                 CHART);
  for (double e = c.x0; e <= c.x1; e++)
    vt_text_printf(out, "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                   across(&c, pow(10, e)), CHART - 12, pow(10, e));
  for (double e = c.y0; e <= c.y1; e++)
    vt_text_printf(out, "<text x=\"0\" y=\"%.0f\">%s</text>\n", down(&c, pow(10, e)) + 4,
                   vt_cli_count(pow(10, e), "FLOP/s"));
  vt_text_printf(out,
                 "<polyline points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\" fill=\"none\" "
                 "stroke=\"#5f6368\" stroke-width=\"2\"/>\n",
                 across(&c, 1), down(&c, rate), across(&c, ridge), down(&c, peak),
                 across(&c, pow(10, c.x1)), down(&c, peak));
  for (uint32_t i = 0; i < t->count; i++) {
    const vt_span *s = &t->spans[i];
    if (s->flops <= 0 || s->seconds <= 0) continue;
    double x = fmin(fmax(s->flops / fmax(s->hbm_bytes, 1), 1), pow(10, c.x1));
    double y = fmax(s->flops / s->seconds, pow(10, c.y0));
    double size = 3 + 14 * sqrt(s->seconds * s->trips / t->seconds);
    vt_text_printf(out,
                   "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" opacity=\"0.6\"><title>",
                   across(&c, x), down(&c, y), size, vt_cli_bound_color(s->bound));
    vt_cli_put_place(out, s->op, s->kind);
    vt_text_put(out, "</title></circle>\n");
  }
  vt_text_put(out,
              "</svg>\n<p>Matrix products: FLOP for each byte of HBM, and FLOP a second. Size: "
              "share of the time.</p>\n");
}

static int by_time(const void *a, const void *b) {
  const vt_view_span *const *x = a, *const *y = b;
  if ((*x)->seconds != (*y)->seconds) return (*x)->seconds < (*y)->seconds ? 1 : -1;
  return (*x > *y) - (*x < *y);
}

// The bytes that a device gives to a collective.
static double given_bytes(const vt_chip *chip, const vt_op *op) {
  double bytes = 0;
  for (uint32_t i = 0; i < vt_op_own_operands(op); i++)
    bytes += (double)vt_chip_compact_bytes(chip, op->operands[i]->type);
  return bytes;
}

static void put_collectives(vt_text *out, const vt_timing *t, const vt_view_span *view,
                            const vt_chip *chip, vt_arena *arena) {
  const vt_view_span **order = VT_NEW_ARRAY(arena, const vt_view_span *, t->count + 1);
  uint32_t count = 0;
  for (uint32_t i = 0; i < t->count; i++)
    if (view[i].collective) order[count++] = &view[i];
  if (!count) return;
  qsort(order, count, sizeof *order, by_time);
  vt_text_printf(out,
                 "<h2>Collectives</h2>\n<p>%s on the links, %s of it not hidden behind kernels.</p>"
                 "\n<table><tr><th>share</th><th>time</th><th>runs</th><th>kind</th>"
                 "<th>bytes of a device</th><th>place</th></tr>\n",
                 vt_cli_seconds(t->busy[VT_BOUND_ICI]), vt_cli_seconds(t->exposed));
  for (uint32_t i = 0; i < count && i < SHOWN_COLLECTIVES; i++) {
    const vt_span *s = order[i]->span;
    vt_text_printf(out, "<tr><td>%.1f %%</td><td>%s</td><td>%.0f</td><td>%s</td><td>%s</td><td>",
                   100 * order[i]->seconds / t->seconds, vt_cli_seconds(s->seconds), s->trips,
                   s->kind, vt_cli_bytes(given_bytes(chip, s->op)));
    vt_cli_put_place(out, s->op, s->kind);
    vt_text_put(out, "</td></tr>\n");
  }
  vt_text_put(out, "</table>\n");
}

static void put_kernels(vt_text *out, const vt_timing *t, const vt_view_span *view,
                        const vt_chip *chip, vt_arena *arena) {
  double peak = chip->bf16_flops_per_s / chip->devices;
  const vt_view_span **order = VT_NEW_ARRAY(arena, const vt_view_span *, t->count + 1);
  uint32_t count = 0;
  for (uint32_t i = 0; i < t->count; i++)
    if (!view[i].loop) order[count++] = &view[i];
  qsort(order, count, sizeof *order, by_time);
  vt_text_printf(out,
                 "<h2>The dearest of %u kernels</h2>\n<table><tr><th>share</th><th>time</th>"
                 "<th>runs</th><th>bound</th><th>kind</th><th>HBM</th><th>of bf16 peak</th>"
                 "<th>place</th></tr>\n",
                 count);
  for (uint32_t i = 0; i < count && i < SHOWN; i++) {
    const vt_span *s = order[i]->span;
    vt_text_printf(out,
                   "<tr><td>%.1f %%</td><td>%s</td><td>%.0f</td><td style=\"color:%s\">%s</td>"
                   "<td>%s</td><td>%s</td><td>%.0f %%</td><td>",
                   100 * order[i]->seconds / t->seconds, vt_cli_seconds(s->seconds), s->trips,
                   vt_cli_bound_color(s->bound), vt_bound_name(s->bound), s->kind,
                   vt_cli_bytes(s->hbm_bytes),
                   s->seconds > 0 ? 100 * s->flops / s->seconds / peak : 0);
    vt_cli_put_place(out, s->op, s->kind);
    vt_text_put(out, "</td></tr>\n");
  }
  vt_text_put(out, "</table>\n");
}

static void put_advice(vt_text *out, const vt_padding_advice *advice) {
  vt_text_put(out, "<h2>Advice</h2>\n");
  if (!advice->count) vt_text_put(out, "<p>No size of a matrix product is worth padding.</p>\n");
  for (uint32_t i = 0; i < advice->count; i++) {
    const vt_padding *a = &advice->items[i];
    vt_text_printf(out, "<p>Pad %lld to %lld: saves %.1f %%. (", (long long)a->from,
                   (long long)a->to, 100 * a->saves);
    vt_cli_put_escaped(out, a->name);
    vt_text_put(out, " ");
    vt_cli_put_escaped(out, a->file);
    vt_text_printf(out, ":%d)</p>\n", a->line);
  }
}

vt_status vt_cli_write_page(const vt_prediction *prediction, const vt_padding_advice *advice,
                            const vt_slice *slice, const char *program, const char *path) {
  vt_text out = {0};
  vt_arena arena = {0};
  const vt_view_span *view = vt_view_of(&prediction->timing, &arena);
  vt_cli_begin_page(&out, "vtpu predict", program);
  vt_text_put(&out, "<table>\n");
  put_figures(&out, prediction, slice);
  vt_text_put(&out, "</table>\n");
  put_advice(&out, advice);
  vt_text_put(&out, "<h2>Timeline</h2>\n");
  put_timeline(&out, &prediction->timing, view, slice->chip);
  vt_text_put(&out, "<h2>Roofline</h2>\n");
  put_roofline(&out, prediction, slice);
  put_kernels(&out, &prediction->timing, view, slice->chip, &arena);
  put_collectives(&out, &prediction->timing, view, slice->chip, &arena);
  vt_cli_put_memory(&out, prediction, slice);
  vt_text_put(&out,
              "<p>A model of the chip says this, not a measurement; vtpu validate shows how far "
              "off it is.</p>\n");
  vt_arena_free(&arena);
  return vt_cli_end_page(&out, path);
}
