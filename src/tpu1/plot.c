// SPDX-License-Identifier: Apache-2.0
// plot.c - the two charts of the paper, from the model: roofline with the six workloads, and
// sensitivity to memory, clock, matrix size and accumulators. In: a chip. Out: SVG text, and the
// data of the second chart.
#include <math.h>
#include <stdio.h>

#include "tpu1/bench.h"

enum { WIDTH = 720, HEIGHT = 460, LEFT = 70, RIGHT = 150, TOP = 40, BOTTOM = 55 };

typedef struct axes {
  double x0, x1, y0, y1; // ranges, logarithmic
} axes;

static double px(const axes *a, double x) {
  return (double)LEFT +
         (double)(WIDTH - LEFT - RIGHT) * (log(x) - log(a->x0)) / (log(a->x1) - log(a->x0));
}
static double py(const axes *a, double y) {
  return HEIGHT - BOTTOM -
         (HEIGHT - TOP - BOTTOM) * (log(y) - log(a->y0)) / (log(a->y1) - log(a->y0));
}

static const char *const colors[] = {"#1b6ca8", "#3aa0d8", "#b5482a",
                                     "#e0875f", "#2e7d4f", "#7bb661"};

static void chart_open(vt_text *svg, const char *title, const char *x_name, const char *y_name) {
  vt_text_printf(
      svg,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n"
      "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
      "<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n"
      "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n"
      "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
      WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, title, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_name,
      (TOP + HEIGHT - BOTTOM) / 2, y_name);
}

static void tick_x(vt_text *svg, const axes *a, double x, const char *label) {
  vt_text_printf(svg,
                 "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/><text "
                 "x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                 px(a, x), px(a, x), TOP, HEIGHT - BOTTOM, px(a, x), HEIGHT - BOTTOM + 18, label);
}

static void tick_y(vt_text *svg, const axes *a, double y, const char *label) {
  vt_text_printf(svg,
                 "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text "
                 "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                 LEFT, WIDTH - RIGHT, py(a, y), py(a, y), LEFT - 8, py(a, y) + 4, label);
}

vt_status vt_tpu1_plot_roofline(const vt_tpu1_chip *chip, vt_text *svg) {
  const axes a = {10, 10000, 0.1, 200};
  double peak = chip->dim * chip->dim * 2 * chip->clock_hz / 1e12;
  double ridge = peak * 1e12 / 2 / chip->weight_bytes_per_s;
  chart_open(svg, "TPU v1 roofline", "MACs per byte of weights read", "TOPS");
  for (double x = 10; x <= 10000; x *= 10) {
    char label[16];
    snprintf(label, sizeof label, "%g", x);
    tick_x(svg, &a, x, label);
  }
  for (double y = 0.1; y <= 100; y *= 10) {
    char label[16];
    snprintf(label, sizeof label, "%g", y);
    tick_y(svg, &a, y, label);
  }
  double at_left = 2 * a.x0 * chip->weight_bytes_per_s / 1e12;
  vt_text_printf(svg,
                 "<polyline fill=\"none\" stroke=\"black\" stroke-width=\"2\" points=\"%.1f,%.1f "
                 "%.1f,%.1f %.1f,%.1f\"/>\n",
                 px(&a, a.x0), py(&a, at_left), px(&a, ridge), py(&a, peak), px(&a, a.x1),
                 py(&a, peak));
  vt_text_printf(svg,
                 "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.1f TOPS, ridge at %.0f MACs "
                 "per byte</text>\n",
                 px(&a, a.x1), py(&a, peak) - 6, peak, ridge);
  for (int w = 0; w < VT_TPU1_WORKLOADS; w++) {
    vt_tpu1_result r;
    VT_TRY(vt_tpu1_measure((vt_tpu1_workload)w, 0, chip, &r));
    double x = (double)r.built.macs / (double)r.built.weights;
    vt_text_printf(svg,
                   "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"6\" fill=\"%s\"><title>%s: %.2f TOPS at "
                   "%.0f MACs per byte</title></circle>\n",
                   px(&a, x), py(&a, r.tops), colors[w],
                   vt_tpu1_workload_get((vt_tpu1_workload)w)->name, r.tops, x);
    vt_text_printf(
        svg,
        "<circle cx=\"%d\" cy=\"%d\" r=\"6\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s %.1f</text>\n",
        WIDTH - RIGHT + 20, TOP + 20 + 20 * w, colors[w], WIDTH - RIGHT + 32, TOP + 24 + 20 * w,
        vt_tpu1_workload_get((vt_tpu1_workload)w)->name, r.tops);
  }
  vt_text_put(svg, "</svg>\n");
  return VT_OK;
}

// A curve of the sensitivity chart: the parameters that are scaled together.
typedef struct curve {
  const char *name, *params[2];
} curve;

static const curve curves[] = {{"memory", {"memory", NULL}},
                               {"clock + accumulators", {"clock", "accumulators"}},
                               {"clock", {"clock", NULL}},
                               {"matrix + accumulators", {"matrix", "accumulators"}},
                               {"matrix", {"matrix", NULL}}};
enum { CURVES = sizeof curves / sizeof curves[0] };
static const double factors[] = {0.25, 0.5, 1, 2, 4};
enum { FACTORS = sizeof factors / sizeof factors[0] };
static const double shares[VT_TPU1_WORKLOADS] = {
#define WORKLOAD(NAME, fc, conv, vector, pool, weights, batch, intensity, share) share / 2.0,
#include "tpu1/workloads.def"
};

// Speed of the mix relative to `base`; 0 when a workload does not fit the scaled chip.
static vt_status relative(const curve *c, double factor, const double *base_s, double *out) {
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  double sum = 0, total = 0;
  for (int i = 0; i < 2 && c->params[i]; i++)
    VT_TRY(vt_tpu1_chip_scale(&chip, c->params[i], factor));
  *out = 0;
  for (int w = 0; w < VT_TPU1_WORKLOADS; w++) {
    vt_tpu1_result r;
    vt_status st = vt_tpu1_measure((vt_tpu1_workload)w, 0, &chip, &r);
    if (st &&
        (vt_status_code(st) == VT_RESOURCE_EXHAUSTED || vt_status_code(st) == VT_UNIMPLEMENTED)) {
      vt_status_free(st);
      return VT_OK;
    }
    VT_TRY(st);
    sum += shares[w] * base_s[w] / r.chip_s;
    total += shares[w];
  }
  *out = sum / total;
  return VT_OK;
}

vt_status vt_tpu1_plot_sensitivity(vt_text *svg, vt_text *table) {
  const axes a = {0.25, 4, 0.2, 4};
  double base_s[VT_TPU1_WORKLOADS];
  vt_tpu1_chip chip = vt_tpu1_chip_default();
  for (int w = 0; w < VT_TPU1_WORKLOADS; w++) {
    vt_tpu1_result r;
    VT_TRY(vt_tpu1_measure((vt_tpu1_workload)w, 0, &chip, &r));
    base_s[w] = r.chip_s;
  }
  chart_open(svg, "TPU v1: speed of the workload mix when one parameter changes", "factor",
             "relative speed (weighted by fleet share)");
  vt_text_printf(table, "%-28s", "relative speed at factor");
  for (int f = 0; f < FACTORS; f++) {
    char label[16];
    snprintf(label, sizeof label, "%gx", factors[f]);
    tick_x(svg, &a, factors[f], label);
    tick_y(svg, &a, factors[f], label);
    vt_text_printf(table, " %6s", label);
  }
  vt_text_put(table, "\n");
  for (int c = 0; c < CURVES; c++) {
    vt_text points = {0};
    vt_text_printf(table, "%-28s", curves[c].name);
    for (int f = 0; f < FACTORS; f++) {
      double y;
      vt_status st = relative(&curves[c], factors[f], base_s, &y);
      if (st) {
        vt_text_free(&points);
        return st;
      }
      if (y > 0) vt_text_printf(&points, "%.1f,%.1f ", px(&a, factors[f]), py(&a, y));
      vt_text_printf(table, y > 0 ? " %6.2f" : "      -", y);
    }
    vt_text_put(table, "\n");
    vt_text_printf(svg,
                   "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>\n",
                   colors[c], vt_text_string(&points));
    vt_text_printf(svg,
                   "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" "
                   "stroke-width=\"3\"/><text x=\"%d\" y=\"%d\" font-size=\"10\">%s</text>\n",
                   WIDTH - RIGHT + 8, WIDTH - RIGHT + 24, TOP + 20 + 20 * c, TOP + 20 + 20 * c,
                   colors[c], WIDTH - RIGHT + 28, TOP + 24 + 20 * c, curves[c].name);
    vt_text_free(&points);
  }
  vt_text_put(svg, "</svg>\n");
  return VT_OK;
}
