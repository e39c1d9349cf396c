// SPDX-License-Identifier: Apache-2.0
// view.c - the pipeline of a run: as text for a terminal and as one self-contained HTML page. In: a
// traced timing. Out: text. Owns nothing.
#include "tpu1/bench.h"

#include <string.h>

typedef struct look {
  char letter;
  const char *color, *name;
} look;

static const look looks[VT_TPU1_WHATS] = {
    [VT_TPU1_WHAT_WORK] = {'#', "#2e7d4f", "works"},
    [VT_TPU1_WHAT_STALL] = {'w', "#b5482a", "weight stall"},
    [VT_TPU1_WHAT_SHIFT] = {'>', "#e0a03f", "weight shift"},
    [VT_TPU1_WHAT_RAW] = {'r', "#7b5ea7", "RAW: waits for the activation unit"},
    [VT_TPU1_WHAT_INPUT] = {'i', "#3aa0d8", "waits for host input"},
    [VT_TPU1_WHAT_OTHER] = {'.', "#c9c9c9", "other wait"},
};

static const char *const lane_names[VT_TPU1_UNITS] = {"host read", "weights", "matrix", "activate",
                                                      "host write"};
// The four stages of the published pipeline, and which units form each.
static const char *const stage_names[VT_TPU1_UNITS] = {"1 read", "1 read", "2 matrix", "3 activate",
                                                       "4 write"};

enum { MAX_WIDTH = 400 };

void vt_tpu1_view_text(const vt_tpu1_view *view, int64_t from, int64_t to, int width,
                       vt_text *text) {
  static const int64_t zero[VT_TPU1_WHATS];
  int64_t cycles = view->timing->counters.cycles;
  if (to <= 0 || to > cycles) to = cycles;
  if (from < 0 || from >= to) from = 0;
  if (width < 10 || width > MAX_WIDTH) width = 100;
  vt_text_printf(text, "%s: cycles %lld..%lld, one column = %.1f cycles\n", view->title,
                 (long long)from, (long long)to, (double)(to - from) / width);
  for (int u = 0; u < VT_TPU1_UNITS; u++) {
    int64_t share[MAX_WIDTH][VT_TPU1_WHATS];
    for (int c = 0; c < width; c++) memcpy(share[c], zero, sizeof zero);
    for (size_t i = 0; i < view->timing->segments.size; i++) {
      const vt_tpu1_segment *s = &view->timing->segments.data[i];
      if (s->unit != (vt_tpu1_unit)u || s->end <= from || s->start >= to) continue;
      int64_t start = s->start < from ? from : s->start, end = s->end > to ? to : s->end;
      for (int64_t c = (start - from) * width / (to - from); c < width; c++) {
        int64_t c0 = from + c * (to - from) / width, c1 = from + (c + 1) * (to - from) / width;
        if (c0 >= end) break;
        share[c][s->what] += (end < c1 ? end : c1) - (start > c0 ? start : c0);
      }
    }
    vt_text_printf(text, "%-10s %-10s |", stage_names[u], lane_names[u]);
    for (int c = 0; c < width; c++) {
      int best = -1;
      for (int w = 0; w < VT_TPU1_WHATS; w++)
        if (share[c][w] > 0 && (best < 0 || share[c][w] > share[c][best])) best = w;
      vt_text_printf(text, "%c", best < 0 ? ' ' : looks[best].letter);
    }
    vt_text_put(text, "|\n");
  }
  for (int w = 0; w < VT_TPU1_WHATS; w++)
    vt_text_printf(text, "%s%c %s", w ? ", " : "", looks[w].letter, looks[w].name);
  vt_text_put(text, "\n");
}

static void html_segments(const vt_tpu1_view *view, vt_text *html) {
  vt_text_put(html, "const S=[");
  for (size_t i = 0; i < view->timing->segments.size; i++) {
    const vt_tpu1_segment *s = &view->timing->segments.data[i];
    vt_text_printf(html, "%s%d,%d,%lld,%lld,%zu", i ? "," : "", (int)s->unit, (int)s->what,
                   (long long)s->start, (long long)(s->end - s->start), s->pc);
  }
  vt_text_put(html, "];\nconst P={");
  const vt_tpu1_program *program = view->plan->program;
  const char *comma = "";
  for (size_t i = 0; i < view->plan->steps.size; i++) {
    vt_text line = {0};
    size_t pc = view->plan->steps.data[i].pc;
    vt_tpu1_print(&program->code[pc], &line);
    vt_text_printf(html, "%s%zu:\"%s\"", comma, pc, vt_text_string(&line));
    comma = ",";
    vt_text_free(&line);
  }
  vt_text_put(html, "};\n");
}

// Wheel zooms at the pointer, dragging pans, hovering names the instruction.
static const char script[] =
    "const c=document.getElementById('c'),g=c.getContext('2d'),L=110,H=46;let a=0,b=N,drag=null;\n"
    "function X(t){return L+(t-a)/(b-a)*(c.width-L-10)}\n"
    "function draw(){c.width=c.clientWidth;g.font='13px "
    "sans-serif';g.clearRect(0,0,c.width,c.height);\n"
    " for(let "
    "u=0;u<5;u++){g.fillStyle='#f4f4f4';g.fillRect(L,u*H+6,c.width-L-10,H-12);g.fillStyle='#222';g."
    "fillText(U[u],6,u*H+H/2+4)}\n"
    " for(let i=0;i<S.length;i+=5){let "
    "x=X(S[i+2]),y=X(S[i+2]+S[i+3]);if(y<L||x>c.width-10)continue;x=Math.max(x,L);y=Math.min(y,c."
    "width-10);\n"
    "  g.fillStyle=C[S[i+1]];g.fillRect(x,S[i]*H+6,Math.max(y-x,.6),H-12)}\n"
    " g.fillStyle='#222';for(let k=0;k<=8;k++){let "
    "t=a+(b-a)*k/8;g.fillText(Math.round(t).toLocaleString(),Math.min(X(t),c.width-80),5*H+16)}}\n"
    "c.onwheel=e=>{e.preventDefault();let "
    "t=a+(e.offsetX-L)/"
    "(c.width-L-10)*(b-a),f=e.deltaY>0?1.25:.8;a=Math.max(0,t-(t-a)*f);b=Math.min(N,t+(b-t)*f);if("
    "b-a<20)b=a+20;draw()};\n"
    "c.onmousedown=e=>drag=[e.offsetX,a,b];window.onmouseup=()=>drag=null;\n"
    "c.onmousemove=e=>{if(drag){let "
    "d=(drag[0]-e.offsetX)/"
    "(c.width-L-10)*(drag[2]-drag[1]);d=Math.max(-drag[1],Math.min(N-drag[2],d));a=drag[1]+d;b="
    "drag[2]+d;draw();return}\n"
    " let t=a+(e.offsetX-L)/(c.width-L-10)*(b-a),u=Math.floor(e.offsetY/H),o='';for(let "
    "i=0;i<S.length;i+=5)if(S[i]==u&&S[i+2]<=t&&t<S[i+2]+S[i+3])o=W[S[i+1]]+', cycles "
    "'+S[i+2]+'..'+(S[i+2]+S[i+3])+' ('+S[i+3]+'): #'+S[i+4]+' '+(P[S[i+4]]||'end of program');\n"
    " document.getElementById('o').textContent=o||'\\u00a0'};\n"
    "window.onresize=draw;draw();\n";

void vt_tpu1_view_html(const vt_tpu1_view *view, vt_text *html) {
  const vt_tpu1_counters *n = &view->timing->counters;
  vt_text_printf(
      html,
      "<!doctype html><meta charset=\"utf-8\"><title>%s on TPU v1</title>\n"
      "<style>body{font:14px "
      "sans-serif;margin:24px;max-width:1400px}canvas{width:100%%;height:260px;display:block}"
      "td{padding:2px 14px 2px "
      "0}td+td{text-align:right}.k{display:inline-block;width:12px;height:12px;margin:0 5px 0 "
      "16px}</style>\n"
      "<h1>%s on TPU v1</h1><p>%lld cycles, %.3f ms. Wheel: zoom. Drag: move. Pointer: "
      "instruction.</p><p>",
      view->title, view->title, (long long)n->cycles,
      (double)n->cycles / view->chip->clock_hz * 1e3);
  for (int w = 0; w < VT_TPU1_WHATS; w++)
    vt_text_printf(html, "<span class=\"k\" style=\"background:%s\"></span>%s", looks[w].color,
                   looks[w].name);
  vt_text_put(html, "</p><canvas id=\"c\" height=\"260\"></canvas><p id=\"o\">&nbsp;</p><table>\n");
  const vt_tpu1_counter_info *info;
  for (int i = 0; (info = vt_tpu1_counter_get(i)); i++) {
    int64_t value = vt_tpu1_counter_value(n, info);
    vt_text_printf(html, "<tr><td>%s<td>%lld<td>%s<td>", info->name, (long long)value, info->unit);
    if (info->kind <= VT_TPU1_COUNTER_UNIT)
      vt_text_printf(html, "%.1f %%", 100 * (double)value / (double)n->cycles);
    vt_text_printf(html, "<td style=\"text-align:left\">%s\n", info->meaning);
  }
  vt_text_put(html, "</table><script>\n");
  vt_text_printf(
      html, "const N=%lld,U=['1 host read','1 weights','2 matrix','3 activate','4 host write'],C=[",
      (long long)n->cycles);
  for (int w = 0; w < VT_TPU1_WHATS; w++)
    vt_text_printf(html, "%s'%s'", w ? "," : "", looks[w].color);
  vt_text_put(html, "],W=[");
  for (int w = 0; w < VT_TPU1_WHATS; w++)
    vt_text_printf(html, "%s'%s'", w ? "," : "", looks[w].name);
  vt_text_put(html, "];\n");
  html_segments(view, html);
  vt_text_put(html, script);
  vt_text_put(html, "</script>\n");
}
