// SPDX-License-Identifier: Apache-2.0
// bench.c - `vtpu v1 bench`: TOPS, inferences, counters and power of the six workloads, next to the
// published figures. In: parameters and workload names. Out: tables, JSON, charts. Owns nothing.
#include "tpu1/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tpu1/cli.h"

typedef struct published {
  bool has_counters;
  double tops, active, useful, unused, stall, shift, other, raw, input;
  double cpu, gpu, host_percent;
} published;

static const published published_rows[VT_TPU1_WORKLOADS] = {
#define COUNTERS(NAME, tops_, active_, useful_, unused_, stall_, shift_, other_, raw_, input_)     \
  [VT_TPU1_##NAME].has_counters = true, [VT_TPU1_##NAME].tops = tops_,                             \
  [VT_TPU1_##NAME].active = active_, [VT_TPU1_##NAME].useful = useful_,                            \
  [VT_TPU1_##NAME].unused = unused_, [VT_TPU1_##NAME].stall = stall_,                              \
  [VT_TPU1_##NAME].shift = shift_, [VT_TPU1_##NAME].other = other_, [VT_TPU1_##NAME].raw = raw_,   \
  [VT_TPU1_##NAME].input = input_,
#define SPEED(NAME, cpu_, gpu_, host_)                                                             \
  [VT_TPU1_##NAME].cpu = cpu_, [VT_TPU1_##NAME].gpu = gpu_, [VT_TPU1_##NAME].host_percent = host_,
#include "tpu1/published.def"
};

typedef struct server {
  const char *name, *what;
  double dies, tdp_w, idle_w, busy_w, die_busy_w;
} server;
enum { TPU, CPU, GPU };
#define DOLLARS_PER_KWH 0.10 // assumed: a large customer's price
static const server servers[] = {
#define SERVER(NAME, what, dies, tdp, idle, busy, die)                                             \
  [NAME] = {#NAME, what, dies, tdp, idle, busy, die},
#include "tpu1/power.def"
};

vt_status vt_tpu1_measure(vt_tpu1_workload workload, int64_t batch, const vt_tpu1_chip *chip,
                          vt_tpu1_result *out) {
  vt_status st = VT_OK;
  vt_tpu1_build build;
  vt_tpu1_plan plan = {0};
  vt_tpu1_timing timing = {0};
  memset(out, 0, sizeof *out);
  out->workload = workload;
  VT_TRY_OUT(vt_tpu1_workload_build(workload, batch, chip, &build, &out->built));
  vt_tpu1_program program = vt_tpu1_build_program(&build);
  VT_TRY_OUT(vt_tpu1_plan_make(&program, chip, &plan));
  vt_tpu1_time(&plan, chip, false, &timing);
  const vt_tpu1_counters *n = &timing.counters;
  out->counters = *n;
  out->chip_s = (double)n->cycles / chip->clock_hz;
  out->batch_s = out->chip_s + chip->host_turnaround_s;
  out->tops = vt_tpu1_tops(n, chip);
  out->useful_tops = 2 * (double)n->macs / out->chip_s / 1e12;
  out->macs_per_byte = (double)n->macs / (double)n->weight_bytes;
out:
  vt_tpu1_timing_free(&timing);
  vt_tpu1_plan_free(&plan);
  vt_tpu1_build_free(&build);
  return st;
}

typedef struct options {
  vt_tpu1_chip chip;
  vt_text factors; // JSON members of the scaled parameters
  bool chosen[VT_TPU1_WORKLOADS], any;
  const char *json, *roofline, *sensitivity;
  int64_t batch;
} options;

static void row_counters(const vt_tpu1_result *r, vt_tpu1_counter_kind kind, vt_text *text,
                         const char *format) {
  const vt_tpu1_counter_info *info;
  const char *comma = "";
  for (int i = 0; (info = vt_tpu1_counter_get(i)); i++) {
    if (info->kind != kind) continue;
    double value =
        100 * (double)vt_tpu1_counter_value(&r->counters, info) / (double)r->counters.cycles;
    vt_text_put(text, comma);
    vt_text_printf(text, "\"%s\": ", info->name);
    vt_text_printf(text, "%.2f", value);
    comma = format;
  }
}

static void json_result(const options *o, const vt_tpu1_result *r, vt_text *text) {
  const vt_tpu1_workload_info *info = vt_tpu1_workload_get(r->workload);
  const published *p = &published_rows[r->workload];
  vt_text_printf(text,
                 "    {\"name\": \"%s\", \"batch\": %lld, \"tops\": %.4f, \"tops_all_cycles\": "
                 "%.4f, \"cycles\": %lld,\n",
                 info->name, (long long)r->built.batch, r->tops, r->useful_tops,
                 (long long)r->counters.cycles);
  vt_text_printf(text,
                 "     \"chip_ms\": %.6f, \"batch_ms\": %.6f, \"inferences_per_second\": %.1f,\n",
                 r->chip_s * 1e3, r->batch_s * 1e3, (double)r->built.batch / r->batch_s);
  vt_text_printf(text,
                 "     \"inferences_per_second_chip\": %.1f, \"cycles_per_tile\": %.1f, "
                 "\"macs_per_weight_byte\": %.1f,\n",
                 (double)r->built.batch / r->chip_s,
                 (double)r->counters.cycles / (double)r->counters.tiles, r->macs_per_byte);
  vt_text_printf(text, "     \"energy_mj_per_inference\": %.6f,\n     \"counters_percent\": {",
                 o->chip.busy_w * r->chip_s / (double)r->built.batch * 1e3);
  row_counters(r, VT_TPU1_COUNTER_SPLIT, text, ", ");
  vt_text_put(text, ",\n       ");
  row_counters(r, VT_TPU1_COUNTER_OF_ACTIVE, text, ", ");
  vt_text_put(text, ", ");
  row_counters(r, VT_TPU1_COUNTER_CAUSE, text, ", ");
  vt_text_put(text, ",\n       ");
  row_counters(r, VT_TPU1_COUNTER_UNIT, text, ", ");
  vt_text_put(text, "},\n     \"counters\": {");
  const vt_tpu1_counter_info *counter;
  for (int i = 0; (counter = vt_tpu1_counter_get(i)); i++)
    vt_text_printf(text, "%s\"%s\": %lld", i ? ", " : "", counter->name,
                   (long long)vt_tpu1_counter_value(&r->counters, counter));
  vt_text_put(text, "}");
  if (p->has_counters)
    vt_text_printf(text,
                   ",\n     \"published\": {\"tops\": %g, \"array_active\": %g, \"useful_macs\": "
                   "%g, \"unused_macs\": %g, "
                   "\"weight_stall\": %g, \"weight_shift\": %g, \"non_matrix\": %g, \"raw_stall\": "
                   "%g, \"input_stall\": %g}",
                   p->tops, p->active, p->useful, p->unused, p->stall, p->shift, p->other, p->raw,
                   p->input);
  vt_text_put(text, "}");
}

static vt_status write_json(const options *o, const vt_tpu1_result *results, int count) {
  vt_text text = {0};
  vt_text_printf(&text, "{\"parameters\": {%s},\n  \"workloads\": [\n",
                 vt_text_string(&o->factors));
  for (int i = 0; i < count; i++) {
    json_result(o, &results[i], &text);
    vt_text_put(&text, i + 1 < count ? ",\n" : "\n");
  }
  vt_text_put(&text, "  ]}\n");
  vt_status st = VT_OK;
  if (strcmp(o->json, "-") == 0)
    fwrite(text.data, 1, text.size, stdout);
  else
    st = vt_file_write(o->json, text.data, text.size);
  vt_text_free(&text);
  return st;
}

static void print_summary(const vt_tpu1_result *results, int count) {
  printf("%-6s %5s %8s %9s %10s %9s %11s %8s %7s\n", "", "batch", "TOPS", "published", "cycles",
         "chip ms", "inf/s", "cyc/tile", "UB MiB");
  for (int i = 0; i < count; i++) {
    const vt_tpu1_result *r = &results[i];
    const published *p = &published_rows[r->workload];
    char against[32] = "-";
    if (p->has_counters)
      snprintf(against, sizeof against, "%.1f %+.0f%%", p->tops, 100 * (r->tops / p->tops - 1));
    double ub = (double)r->counters.ub_peak_rows * 256 / 1048576;
    printf("%-6s %5lld %8.2f %9s %10lld %9.3f %11.0f %8.0f %7.1f\n",
           vt_tpu1_workload_get(r->workload)->name, (long long)r->built.batch, r->tops, against,
           (long long)r->counters.cycles, r->chip_s * 1e3, (double)r->built.batch / r->batch_s,
           (double)r->counters.cycles / (double)r->counters.tiles, ub);
  }
}

static double published_counter(const published *p, const char *name) {
  const struct {
    const char *name;
    double value;
  } rows[] = {{"array_active", p->active}, {"weight_stall", p->stall}, {"weight_shift", p->shift},
              {"non_matrix", p->other},    {"useful_macs", p->useful}, {"unused_macs", p->unused},
              {"raw_stall", p->raw},       {"input_stall", p->input}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (p->has_counters && strcmp(rows[i].name, name) == 0) return rows[i].value;
  return -1;
}

static void print_counters(const vt_tpu1_result *results, int count) {
  const vt_tpu1_counter_info *info;
  printf("\n%-16s", "% of cycles");
  for (int i = 0; i < count; i++) printf(" %13s", vt_tpu1_workload_get(results[i].workload)->name);
  printf("   (published)\n");
  for (int c = 0; (info = vt_tpu1_counter_get(c)); c++) {
    if (info->kind < VT_TPU1_COUNTER_SPLIT || info->kind > VT_TPU1_COUNTER_UNIT) continue;
    printf("%-16s", info->name);
    for (int i = 0; i < count; i++) {
      const vt_tpu1_result *r = &results[i];
      double value =
          100 * (double)vt_tpu1_counter_value(&r->counters, info) / (double)r->counters.cycles;
      double want = published_counter(&published_rows[r->workload], info->name);
      char cell[32];
      snprintf(cell, sizeof cell, want < 0 ? "%.1f       " : "%.1f (%4.1f)", value, want);
      printf(" %13s", cell);
    }
    printf("\n");
  }
}

// Performance per watt as published: the speed ratio times the ratio of server power per die, at
// TDP.
static void print_power(const options *o, const vt_tpu1_result *results, int count) {
  double watts[3];
  for (int s = 0; s < 3; s++) watts[s] = servers[s].tdp_w / servers[s].dies;
  printf("\n%-6s %12s %14s %14s %16s %16s\n", "", "die mJ/inf", "server mJ/inf", "energy $/1e9",
         "perf/W over CPU", "perf/W over GPU");
  for (int i = 0; i < count; i++) {
    const vt_tpu1_result *r = &results[i];
    const published *p = &published_rows[r->workload];
    double s = r->batch_s / (double)r->built.batch;
    char cpu[24] = "-", gpu[24] = "-";
    if (p->has_counters) { // the published speed, corrected by the model's figure for this chip
      double scale = r->tops / p->tops;
      snprintf(cpu, sizeof cpu, "%.1f", p->cpu * scale * watts[CPU] / watts[TPU]);
      snprintf(gpu, sizeof gpu, "%.1f", p->gpu * scale * watts[GPU] / watts[TPU]);
    }
    double server_j = servers[TPU].busy_w / servers[TPU].dies * s;
    printf("%-6s %12.4f %14.4f %14.2f %16s %16s\n", vt_tpu1_workload_get(r->workload)->name,
           o->chip.busy_w * r->chip_s / (double)r->built.batch * 1e3, server_j * 1e3,
           server_j * 1e9 / 3.6e6 * DOLLARS_PER_KWH, cpu, gpu);
  }
  printf("Power: die %g W busy (%g idle, %g TDP), server %g W busy with %g dies. Energy at $%.2f "
         "per kWh, in dollars for 1e9 inferences.\n",
         o->chip.busy_w, o->chip.idle_w, o->chip.tdp_w, servers[TPU].busy_w, servers[TPU].dies,
         DOLLARS_PER_KWH);
}

static vt_status options_of(const vt_args *args, options *o) {
  *o = (options){.json = vt_args_text(args, "json"),
                 .roofline = vt_args_text(args, "roofline"),
                 .sensitivity = vt_args_text(args, "sensitivity"),
                 .batch = vt_args_number(args, "batch", 0)};
  VT_TRY(vt_tpu1_chip_of_args(args, &o->chip));
  for (size_t i = 0; i < args->flags.size; i++) {
    const char *text = args->flags.data[i].value, *equals = strchr(text, '=');
    if (strcmp(args->flags.data[i].flag->name, "param") != 0) continue;
    vt_text_printf(&o->factors, "%s\"%.*s\": %g", o->factors.size ? ", " : "", (int)(equals - text),
                   text, strtod(equals + 1, NULL));
  }
  for (size_t i = 0; i < args->words.size; i++) {
    int w = 0;
    while (w < VT_TPU1_WORKLOADS &&
           strcmp(args->words.data[i], vt_tpu1_workload_get((vt_tpu1_workload)w)->name))
      w++;
    if (w == VT_TPU1_WORKLOADS)
      return vt_error(VT_INVALID_ARGUMENT, "unknown workload '%s'", args->words.data[i]);
    o->chosen[w] = o->any = true;
  }
  return VT_OK;
}

static vt_status write_charts(const options *o) {
  vt_text svg = {0}, table = {0};
  vt_status st = VT_OK;
  if (o->roofline) {
    VT_TRY_OUT(vt_tpu1_plot_roofline(&o->chip, &svg));
    VT_TRY_OUT(vt_file_write(o->roofline, svg.data, svg.size));
  }
  if (o->sensitivity) {
    vt_text_free(&svg);
    VT_TRY_OUT(vt_tpu1_plot_sensitivity(&svg, &table));
    VT_TRY_OUT(vt_file_write(o->sensitivity, svg.data, svg.size));
    printf("\n%s", vt_text_string(&table));
  }
out:
  vt_text_free(&svg);
  vt_text_free(&table);
  return st;
}

static vt_status bench(options *o) {
  vt_tpu1_result results[VT_TPU1_WORKLOADS];
  int count = 0;
  for (int w = 0; w < VT_TPU1_WORKLOADS; w++)
    if (o->chosen[w] || !o->any)
      VT_TRY(vt_tpu1_measure((vt_tpu1_workload)w, o->batch, &o->chip, &results[count++]));
  if (!o->json || strcmp(o->json, "-")) {
    print_summary(results, count);
    print_counters(results, count);
    print_power(o, results, count);
  }
  if (o->json) VT_TRY(write_json(o, results, count));
  return write_charts(o);
}

int vt_tpu1_bench_main(const vt_args *args) {
  options o;
  vt_status st = options_of(args, &o);
  if (!st) st = bench(&o);
  if (st) fprintf(stderr, "vtpu v1 bench: %s\n", vt_status_message(st));
  int rc = st ? 1 : 0;
  vt_status_free(st);
  vt_text_free(&o.factors);
  return rc;
}
