// SPDX-License-Identifier: Apache-2.0
// predict_memory.c - the part of a prediction's page about memory: HBM over time, and what lies in
// it at the peak, since when and until when.
#include <math.h>
#include <stdio.h>

#include "chip/memory.h"
#include "cli/cli.h"
#include "cli/page.h"

enum {
  WIDTH = 960,
  LEFT = 120, // as the timeline
  HEIGHT = 180,
  SHOWN = 24
};
enum { COLUMNS = WIDTH - LEFT };

// ---- over time ----------------------------------------------------------------------------------

// The most that is live in each column of the chart, and the column of the peak.
static int fill_columns(const vt_hbm_use *use, const double *times, double *columns) {
  int peak = 0;
  for (int c = 0; c < COLUMNS; c++) columns[c] = (double)use->fixed_bytes;
  for (uint32_t i = 0; i < use->point_count; i++) {
    int from = (int)(times[i] * (COLUMNS - 1)), to = (int)(times[i + 1] * (COLUMNS - 1));
    double bytes = (double)(use->fixed_bytes + use->points[i].bytes);
    for (int c = from; c <= to; c++) columns[c] = fmax(columns[c], bytes);
    if (use->points[i].op == use->peak) peak = from;
  }
  return peak;
}

static void put_level(vt_text *out, double bytes, double scale, const char *color,
                      const char *name) {
  double y = HEIGHT - bytes * scale;
  vt_text_printf(out,
                 "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"%s\" "
                 "stroke-dasharray=\"4 3\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s %s"
                 "</text>\n",
                 LEFT, y, WIDTH, y, color, WIDTH, y < 14 ? y + 12 : y - 4, name,
                 vt_cli_bytes(bytes));
}

static void put_chart(vt_text *out, const vt_prediction *p, const vt_slice *slice) {
  vt_arena arena = {0};
  const vt_hbm_use *use = &p->hbm;
  double *columns = VT_NEW_ARRAY(&arena, double, COLUMNS);
  int peak = fill_columns(use, vt_view_times(p, &arena), columns);
  double limit = (double)slice->chip->hbm_limit_bytes, most = columns[peak];
  double top = limit < 4 * most ? fmax(limit, most) : most; // a limit far above says nothing
  double scale = top > 0 ? (HEIGHT - 20) / top : 0;
  vt_text_printf(out,
                 "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"HBM over time\">\n"
                 "<polygon fill=\"#1a73e8\" opacity=\"0.35\" points=\"%d,%d",
                 WIDTH, HEIGHT + 20, LEFT, HEIGHT);
  for (int c = 0; c < COLUMNS; c++) {
    bool corner =
        !c || c + 1 == COLUMNS || columns[c] != columns[c - 1] || columns[c] != columns[c + 1];
    if (corner) vt_text_printf(out, " %d,%.1f", LEFT + c, HEIGHT - columns[c] * scale);
  }
  vt_text_printf(out, " %d,%d\"/>\n", WIDTH - 1, HEIGHT);
  put_level(out, (double)use->fixed_bytes, scale, "#5f6368", "arguments and results");
  if (top >= limit) put_level(out, limit, scale, "#d93025", "a device has");
  vt_text_printf(out, "<circle cx=\"%d\" cy=\"%.1f\" r=\"4\" fill=\"#d93025\"><title>", LEFT + peak,
                 HEIGHT - most * scale);
  vt_text_printf(out, "%s</title></circle>\n<text x=\"0\" y=\"%.1f\">%s</text>\n",
                 vt_cli_bytes(most), HEIGHT - most * scale + 4, vt_cli_bytes(most));
  vt_text_printf(out,
                 "<text x=\"%d\" y=\"%d\">0</text><text x=\"%d\" y=\"%d\" "
                 "text-anchor=\"end\">%s</text>\n</svg>\n",
                 LEFT, HEIGHT + 16, WIDTH, HEIGHT + 16, vt_cli_seconds(p->timing.seconds));
  vt_arena_free(&arena);
}

// ---- at the peak --------------------------------------------------------------------------------

static void explain(vt_text *out, const vt_prediction *p) {
  const vt_hbm_use *use = &p->hbm;
  vt_text_printf(out, "<p>%s are arguments and results, there from start to end",
                 vt_cli_bytes((double)use->fixed_bytes));
  if (use->peak) {
    vt_text_printf(out, "; %s are temporaries, most of them live while ",
                   vt_cli_bytes((double)use->temp_bytes));
    vt_cli_put_place(out, use->peak, vt_op_short_name(use->peak->code));
    vt_text_put(out, " runs");
  }
  if (use->unpadded_bytes && use->temp_bytes > use->unpadded_bytes)
    vt_text_printf(out, ". Padding takes %s of the temporaries",
                   vt_cli_bytes((double)(use->temp_bytes - use->unpadded_bytes)));
  if (use->kept_bytes > use->peak_bytes)
    vt_text_printf(out,
                   ". Kept all at once they would take %s; the compiler computes some of them "
                   "again to make the program fit",
                   vt_cli_bytes((double)use->kept_bytes));
  vt_text_put(out, ".</p>\n");
}

static void put_entry(vt_text *out, const vt_prediction *p, const vt_chip *chip,
                      const vt_hbm_entry *e) {
  vt_text shape = {0};
  const vt_func *main = p->module->main;
  int64_t dense = vt_chip_dense_bytes(e->type);
  vt_chip_print_shape(chip, e->type, NULL, &shape);
  vt_text_printf(out, "<tr><td>%s</td><td>%.2f</td><td>%s</td><td>%s",
                 vt_cli_bytes((double)e->bytes), dense > 0 ? (double)e->bytes / (double)dense : 1,
                 vt_text_string(&shape), e->kind);
  vt_text_free(&shape);
  if (!e->op) vt_text_printf(out, " %u", e->index);
  bool named = !strcmp(e->kind, "argument") && main->param_info && e->index < main->param_count;
  vt_text_put(out, "</td><td class=\"place\">");
  if (e->op)
    vt_cli_put_place(out, e->op, vt_op_short_name(e->op->code));
  else if (named)
    vt_cli_put_escaped(out, main->param_info[e->index].name);
  vt_text_put(out, "</td><td>");
  if (e->last)
    vt_cli_put_place(out, e->last, vt_op_short_name(e->last->code));
  else
    vt_text_put(out, "the end");
  vt_text_put(out, "</td></tr>\n");
}

void vt_cli_put_memory(vt_text *out, const vt_prediction *p, const vt_slice *slice) {
  const vt_hbm_use *use = &p->hbm;
  vt_text_put(out, "<h2>HBM over time</h2>\n");
  put_chart(out, p, slice);
  vt_text_printf(out, "<h2>HBM of a device at its peak: %s</h2>\n",
                 vt_cli_bytes((double)use->peak_bytes));
  explain(out, p);
  vt_text_put(out, "<table><tr><th>size</th><th>padding</th><th>array</th><th>what</th>"
                   "<th>made by</th><th>last read by</th></tr>\n");
  for (uint32_t i = 0; i < use->count && i < SHOWN; i++)
    put_entry(out, p, slice->chip, &use->entries[i]);
  vt_text_put(out, "</table>\n");
  if (use->count > SHOWN)
    vt_text_printf(out, "<p>and %u smaller arrays.</p>\n", use->count - SHOWN);
}
