// SPDX-License-Identifier: Apache-2.0
// run_report.c - what a program did with the chips, from the pages that its processes wrote
// (base/activity.h): as text, as JSON, as a page of HTML.
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/activity.h"
#include "base/predictions.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/run.h"

enum { SHOWN_PROGRAMS = 8 };

// ---- pages --------------------------------------------------------------------------------------

static void add_page(const vt_activity_page *page, vt_run_use *use) {
  use->programs += page->programs;
  use->busy_ns += page->busy_ns;
  use->device_ps += page->device_ps;
  use->hbm_refused += page->hbm_refused;
  if (page->hbm_peak > use->hbm_peak) use->hbm_peak = page->hbm_peak;
  if (page->hbm_limit > use->hbm_limit) use->hbm_limit = page->hbm_limit;
  if (page->hbm_asked > use->hbm_asked) use->hbm_asked = page->hbm_asked;
  if (!use->processes++)
    snprintf(use->versions, sizeof use->versions, "%.*s", VT_ACTIVITY_VERSIONS - 1, page->versions);
}

// ---- predictions --------------------------------------------------------------------------------

// A program that several processes ran, or compiled again, is one row.
static void add_program(const vt_predicted_program *p, vt_arena *arena, vt_run_use *use) {
  for (uint32_t i = 0; i < use->program_count; i++) {
    vt_predicted_program *known = &use->programs_run[i];
    if (strcmp(known->name, p->name) != 0 || known->seconds != p->seconds) continue;
    known->runs += p->runs;
    return;
  }
  if (!use->programs_run)
    use->programs_run = VT_NEW_ARRAY(arena, vt_predicted_program, VT_PREDICTIONS_MOST);
  if (use->program_count == VT_PREDICTIONS_MOST) return;
  use->programs_run[use->program_count++] = *p;
}

static void add_programs(int fd, vt_arena *arena, vt_run_use *use) {
  vt_predictions *file = mmap(NULL, sizeof *file, PROT_READ, MAP_PRIVATE, fd, 0);
  if (file == MAP_FAILED) return;
  uint64_t count = file->magic == VT_PREDICTIONS_MAGIC ? file->count : 0;
  for (uint64_t i = 0; i < count && i < VT_PREDICTIONS_MOST; i++)
    add_program(&file->programs[i], arena, use);
  munmap(file, sizeof *file);
}

static double total_seconds(const vt_predicted_program *p) {
  return p->seconds * (double)p->runs;
}

static int by_total(const void *a, const void *b) {
  double x = total_seconds(a), y = total_seconds(b);
  if (x != y) return x < y ? 1 : -1;
  return strcmp(((const vt_predicted_program *)a)->name, ((const vt_predicted_program *)b)->name);
}

static double predicted_s(const vt_run_use *use) {
  double sum = 0;
  for (uint32_t i = 0; i < use->program_count; i++) sum += total_seconds(&use->programs_run[i]);
  return sum;
}

// ---- the folder ---------------------------------------------------------------------------------

void vt_run_collect(const char *folder, vt_arena *arena, vt_run_use *use) {
  DIR *entries = opendir(folder);
  for (struct dirent *e; entries && (e = readdir(entries));) {
    vt_activity_page page;
    int fd = openat(dirfd(entries), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    struct stat stat;
    bool programs = !strncmp(e->d_name, "programs-", 9);
    bool whole = !programs && read(fd, &page, sizeof page) == (ssize_t)sizeof page;
    if (whole && page.magic == VT_ACTIVITY_MAGIC) add_page(&page, use);
    if (programs && fstat(fd, &stat) == 0 && stat.st_size == sizeof(vt_predictions))
      add_programs(fd, arena, use);
    close(fd);
    (void)unlinkat(dirfd(entries), e->d_name, 0);
  }
  if (entries) closedir(entries);
  (void)rmdir(folder);
  if (use->program_count)
    qsort(use->programs_run, use->program_count, sizeof *use->programs_run, by_total);
}

// ---- rows ---------------------------------------------------------------------------------------

static double busy_s(const vt_run_use *use) {
  return 1e-9 * (double)use->busy_ns;
}
static double device_s(const vt_run_use *use) {
  return 1e-12 * (double)use->device_ps;
}
static double usd(const vt_run_use *use) {
  return device_s(use) / 3600 * vt_slice_usd_per_hour(use->slice);
}

typedef void put_row(void *to, const char *name, const char *value);

// Time and cost on the slice: predicted, or their lower bound.
static void put_slice_rows(const vt_run_use *use, put_row *put, void *to) {
  char text[256];
  double price = vt_slice_usd_per_hour(use->slice), seconds = predicted_s(use);
  if (use->predict)
    snprintf(text, sizeof text, "%s for these programs (predicted)", vt_cli_seconds(seconds));
  else
    snprintf(text, sizeof text, "%s or more for these programs (roofline of published peaks)",
             vt_cli_seconds(device_s(use)));
  put(to, "on the slice", text);
  if (price > 0) {
    snprintf(text, sizeof text, "%.3g USD%s, on demand at %.2f USD an hour",
             use->predict ? seconds / 3600 * price : usd(use), use->predict ? "" : " or more",
             price);
    put(to, "cost", text);
  }
}

// The programs that take most of the slice's time, up to where little is left.
static void put_programs(const vt_run_use *use, put_row *put, void *to) {
  char text[256];
  double all = predicted_s(use);
  for (uint32_t i = 0; i < use->program_count && i < SHOWN_PROGRAMS; i++) {
    const vt_predicted_program *p = &use->programs_run[i];
    if (!p->runs || (p->bound[0] && total_seconds(p) < all / 100)) continue;
    if (p->bound[0])
      snprintf(text, sizeof text, "%s x %llu, bound by %s, MFU %.1f %%, HBM %s a device",
               vt_cli_seconds(p->seconds), (unsigned long long)p->runs, p->bound, 100 * p->mfu,
               vt_cli_bytes((double)p->hbm_peak_bytes));
    else
      snprintf(text, sizeof text, "%llu runs, no prediction", (unsigned long long)p->runs);
    put(to, p->name, text);
  }
}

// Each row of the report, in order.
static void put_rows(const vt_run_use *use, put_row *put, void *to) {
  char text[256];
  const vt_slice *slice = use->slice;
  snprintf(text, sizeof text, "%s: %d x %s", slice->name, vt_slice_devices(slice),
           slice->chip->kind);
  put(to, "slice", text);
  snprintf(text, sizeof text, "%s here, %s of it in programs on the TPU",
           vt_cli_seconds(use->seconds), vt_cli_seconds(busy_s(use)));
  put(to, "time", text);
  snprintf(text, sizeof text, "%llu run by %d process%s (%s)", (unsigned long long)use->programs,
           use->processes, use->processes == 1 ? "" : "es", use->versions);
  put(to, "programs", text);
  put_slice_rows(use, put, to);
  snprintf(text, sizeof text, "%s at the peak of %s, all devices together",
           vt_cli_bytes((double)use->hbm_peak), vt_cli_bytes((double)use->hbm_limit));
  put(to, "HBM", text);
  if (use->hbm_refused) {
    snprintf(text, sizeof text, "%llu times, the largest of %s",
             (unsigned long long)use->hbm_refused, vt_cli_bytes((double)use->hbm_asked));
    put(to, "did not fit", text);
  }
  if (use->exit_code) {
    snprintf(text, sizeof text, "%d", use->exit_code);
    put(to, "exit code", text);
  }
  put_programs(use, put, to);
}

static void print_row(void *to, const char *name, const char *value) {
  fprintf(to, "  %-13s %s\n", name, value);
}

void vt_run_print(const vt_run_use *use) {
  fprintf(stderr, "vtpu run: %s\n", use->command[0]);
  put_rows(use, print_row, stderr);
}

// ---- files --------------------------------------------------------------------------------------

static json_t *programs_of(const vt_run_use *use) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < use->program_count; i++) {
    const vt_predicted_program *p = &use->programs_run[i];
    json_t *row = json_pack("{s:s, s:I}", "name", p->name, "runs", (json_int_t)p->runs);
    json_t *more = p->bound[0] ? json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:s}", "seconds",
                                           p->seconds, "exposed_collective_seconds", p->exposed,
                                           "flops", p->flops, "mfu", p->mfu, "energy_j", p->joules,
                                           "hbm_peak_bytes", (json_int_t)p->hbm_peak_bytes,
                                           "devices", (json_int_t)p->devices, "bound", p->bound)
                               : NULL;
    if (more) json_object_update(row, more);
    json_decref(more);
    json_array_append_new(list, row);
  }
  return list;
}

vt_status vt_run_write_json(const vt_run_use *use, const char *path) {
  json_t *command = json_array();
  for (char **word = use->command; *word; word++) {
    json_t *text = json_string(*word); // NULL when it is not UTF-8
    json_array_append_new(command, text ? text : json_string("?"));
  }
  json_t *report = json_pack(
      "{s:o, s:i, s:s, s:s, s:i, s:i, s:f, s:I, s:i, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:s}",
      "command", command, "exit_code", use->exit_code, "accelerator_type", use->slice->name,
      "device_kind", use->slice->chip->kind, "devices", vt_slice_devices(use->slice), "chips",
      use->slice->chips * use->slice->slices, "seconds", use->seconds, "programs",
      (json_int_t)use->programs, "processes", use->processes, "busy_seconds", busy_s(use),
      "device_seconds", device_s(use), "usd", usd(use), "hbm_peak_bytes", (json_int_t)use->hbm_peak,
      "hbm_limit_bytes", (json_int_t)use->hbm_limit, "hbm_refused", (json_int_t)use->hbm_refused,
      "hbm_refused_bytes", (json_int_t)use->hbm_asked, "versions", use->versions);
  if (report && use->predict) {
    json_object_set_new(report, "predicted_seconds", json_real(predicted_s(use)));
    json_object_set_new(report, "predicted_usd",
                        json_real(predicted_s(use) / 3600 * vt_slice_usd_per_hour(use->slice)));
    json_object_set_new(report, "predictions", programs_of(use));
  }
  char *text = report ? json_dumps(report, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(report);
  if (!text) return vt_error(VT_RESOURCE_EXHAUSTED, "%s: out of memory", path);
  vt_text out = {0};
  vt_text_printf(&out, "%s\n", text);
  free(text);
  vt_status st = vt_file_write(path, vt_text_string(&out), out.size);
  vt_text_free(&out);
  return st;
}

static void html_row(void *to, const char *name, const char *value) {
  vt_text_put(to, "<tr><th>");
  vt_cli_put_escaped(to, name);
  vt_text_put(to, "</th><td>");
  vt_cli_put_escaped(to, value);
  vt_text_put(to, "</td></tr>\n");
}

// A part of the time as a bar.
static void put_bar(vt_text *out, const char *name, double part, double whole) {
  double share = whole > 0 ? part / whole : 0;
  vt_text_printf(out,
                 "<tr><th>%s</th><td><div class=\"bar\"><div style=\"width:%.1f%%\"></div></div>"
                 "%s, %.1f %%</td></tr>\n",
                 name, 100 * (share > 1 ? 1 : share), vt_cli_seconds(part), 100 * share);
}

vt_status vt_run_write_html(const vt_run_use *use, const char *path) {
  vt_text out = {0};
  vt_text_put(&out,
              "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>vtpu "
              "run</title>\n<style>\nbody{font:16px/1.5 system-ui,sans-serif;margin:2rem "
              "auto;max-width:50rem;padding:0 1rem}\nth{text-align:left;padding-right:2rem;"
              "vertical-align:top;white-space:nowrap}\n.bar{background:#8884;height:.7rem;"
              "margin:.5rem 0 0}\n.bar div{background:#1a73e8;height:100%}\n"
              "code{overflow-wrap:anywhere}\n</style></head>\n<body><h1>vtpu run</h1>\n<p><code>");
  for (char **word = use->command; *word; word++) {
    if (word != use->command) vt_text_put(&out, " ");
    vt_cli_put_escaped(&out, *word);
  }
  vt_text_put(&out, "</code></p>\n<table>\n");
  put_rows(use, html_row, &out);
  vt_text_put(&out, "</table>\n<h2>Where the time went</h2>\n<table>\n");
  put_bar(&out, "in programs on the TPU", busy_s(use), use->seconds);
  double host = use->seconds - busy_s(use);
  put_bar(&out, "elsewhere", host > 0 ? host : 0, use->seconds);
  vt_text_put(&out,
              "</table>\n<p>Time, programs and memory are measured on this machine. The time on "
              "the slice is ");
  vt_text_put(&out,
              use->predict ? "predicted" : "a lower bound from the published peaks of the chip");
  vt_text_put(&out, "; the cost is its public price for that time.</p>\n</body></html>\n");
  vt_status st = vt_file_write(path, vt_text_string(&out), out.size);
  vt_text_free(&out);
  return st;
}
