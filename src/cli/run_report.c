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
#include "cli/page.h"
#include "cli/run.h"

enum { SHOWN_PROGRAMS = 8, SHOWN_FUNCTIONS = 5 };

// ---- pages --------------------------------------------------------------------------------------

static void add_page(const vt_activity_page *page, vt_run_use *use) {
  use->programs += page->programs;
  use->busy_ns += page->busy_ns;
  use->device_ps += page->device_ps;
  use->hbm_refused += page->hbm_refused;
  if (!use->opened_ns || page->opened_ns < use->opened_ns) use->opened_ns = page->opened_ns;
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

// Of several processes, the clock of the one that started most programs.
static void add_clock(const vt_virtual_clock *clock, vt_run_use *use) {
  if (clock->launches <= use->launches) return;
  use->launches = clock->launches;
  use->starved_ps = clock->starved_ps;
  use->clock_ps = clock->device_ps + use->starved_ps;
  use->host_ns = clock->host_ns;
  use->setup_ns = clock->setup_ns;
}

static void add_programs(int fd, vt_arena *arena, vt_run_use *use) {
  use->predict = true;
  vt_predictions *file = mmap(NULL, sizeof *file, PROT_READ, MAP_PRIVATE, fd, 0);
  if (file == MAP_FAILED) return;
  uint64_t count = file->magic == VT_PREDICTIONS_MAGIC ? file->count : 0;
  for (uint64_t i = 0; i < count && i < VT_PREDICTIONS_MOST; i++)
    add_program(&file->programs[i], arena, use);
  if (file->magic == VT_PREDICTIONS_MAGIC) add_clock(&file->clock, use);
  munmap(file, sizeof *file);
}

static void add_compiled(int fd, size_t size, vt_arena *arena, vt_run_use *use) {
  const size_t most = 256u << 20;
  if (size > most) size = most;
  char *text = malloc(size + 1);
  ssize_t n = text ? read(fd, text, size) : -1;
  if (n > 0) {
    text[n] = 0;
    vt_run_add_compiled(text, arena, use);
  }
  free(text);
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

void vt_run_collect(const char *folder, bool keep, vt_arena *arena, vt_run_use *use) {
  DIR *entries = opendir(folder);
  for (struct dirent *e; entries && (e = readdir(entries));) {
    vt_activity_page page;
    int fd = openat(dirfd(entries), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    struct stat stat;
    bool programs = !strncmp(e->d_name, "programs-", 9);
    bool compiled = !strncmp(e->d_name, "compiled-", 9), sized = fstat(fd, &stat) == 0;
    bool whole = !programs && !compiled && read(fd, &page, sizeof page) == (ssize_t)sizeof page;
    if (whole && page.magic == VT_ACTIVITY_MAGIC) add_page(&page, use);
    if (programs && sized && stat.st_size == sizeof(vt_predictions)) add_programs(fd, arena, use);
    if (compiled && sized && stat.st_size > 0) add_compiled(fd, (size_t)stat.st_size, arena, use);
    close(fd);
    if (!keep) (void)unlinkat(dirfd(entries), e->d_name, 0);
  }
  if (entries) closedir(entries);
  if (!keep) (void)rmdir(folder);
  if (use->program_count)
    qsort(use->programs_run, use->program_count, sizeof *use->programs_run, by_total);
  vt_run_sort_compiled(use);
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

static double clock_s(const vt_run_use *use) {
  return 1e-12 * (double)use->clock_ps;
}
static double starved_s(const vt_run_use *use) {
  return 1e-12 * (double)use->starved_ps;
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

// One run after the other as on the slice (runtime/clock.c).
static void put_clock(const vt_run_use *use, put_row *put, void *to) {
  char text[256];
  if (!use->predict || !use->launches) return;
  double all = clock_s(use), starved = starved_s(use);
  snprintf(text, sizeof text,
           "%s from the first program on: %s in programs (predicted), %s waiting "
           "for the host (%.0f %%)",
           vt_cli_seconds(all), vt_cli_seconds(all - starved), vt_cli_seconds(starved),
           all > 0 ? 100 * starved / all : 0);
  put(to, "virtual clock", text);
  snprintf(text, sizeof text,
           "%s of work between programs (measured here); tracing and compiling "
           "took %s more",
           vt_cli_seconds(1e-9 * (double)use->host_ns),
           vt_cli_seconds(1e-9 * (double)(use->setup_ns + use->compile_ns)));
  put(to, "host", text);
}

// What was compiled more than once, and why.
static void put_compiled(const vt_run_use *use, put_row *put, void *to) {
  char text[1024];
  uint64_t again = 0, shown = 0;
  for (size_t i = 0; i < use->functions.size; i++) again += use->functions.data[i]->again;
  if (!use->compilations) return;
  snprintf(text, sizeof text, "%llu programs in %s, %llu of them again",
           (unsigned long long)use->compilations, vt_cli_seconds(1e-9 * (double)use->compile_ns),
           (unsigned long long)again);
  put(to, "compiled", text);
  for (size_t i = 0; i < use->functions.size && shown < SHOWN_FUNCTIONS; i++) {
    const vt_run_function *f = use->functions.data[i];
    if (!f->again) continue;
    shown++;
    snprintf(text, sizeof text, "%llu more time%s, %s:", (unsigned long long)f->again,
             f->again == 1 ? "" : "s", vt_cli_seconds(1e-9 * (double)f->again_ns));
    put(to, f->name, text);
    for (uint32_t r = 0; r < f->reason_count; r++) {
      const vt_run_reason *why = &f->reasons[r];
      snprintf(text, sizeof text, "%s%s%s", why->place, *why->place ? ": " : "", why->why);
      put(to, "", text);
    }
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
  if (use->unexecuted)
    put(to, "", "predicted only: nothing ran here, and all results were zeros (--execute)");
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
  put_clock(use, put, to);
  put_programs(use, put, to);
  put_compiled(use, put, to);
}

static void print_row(void *to, const char *name, const char *value) {
  fprintf(to, "  %-13s %s\n", name, value);
}

void vt_run_print(const vt_run_use *use, FILE *to) {
  fprintf(to, "%s\n", use->command[0]);
  put_rows(use, print_row, to);
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

static json_t *again_of(const vt_run_use *use) {
  json_t *list = json_array();
  for (size_t i = 0; i < use->functions.size; i++) {
    const vt_run_function *f = use->functions.data[i];
    if (!f->again) continue;
    json_t *reasons = json_array();
    for (uint32_t r = 0; r < f->reason_count; r++)
      json_array_append_new(reasons,
                            json_pack("{s:s, s:s, s:I}", "place", f->reasons[r].place, "why",
                                      f->reasons[r].why, "times", (json_int_t)f->reasons[r].times));
    json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:o}", "name", f->name, "times",
                                          (json_int_t)f->again, "seconds",
                                          1e-9 * (double)f->again_ns, "reasons", reasons));
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
  if (report) {
    json_object_set_new(report, "compilations", json_integer((json_int_t)use->compilations));
    json_object_set_new(report, "compile_seconds", json_real(1e-9 * (double)use->compile_ns));
    json_object_set_new(report, "compiled_again", again_of(use));
  }
  if (report && use->predict) {
    json_object_set_new(
        report, "clock",
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:I}", "seconds", clock_s(use), "device_seconds",
                  clock_s(use) - starved_s(use), "input_bound_seconds", starved_s(use),
                  "host_seconds", 1e-9 * (double)use->host_ns, "setup_seconds",
                  1e-9 * (double)use->setup_ns, "launches", (json_int_t)use->launches));
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
  vt_cli_begin_page(&out, "vtpu run", "vtpu run");
  vt_text_put(&out, "<p><code>");
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
  if (use->predict && use->launches) {
    vt_text_put(&out, "</table>\n<h2>On the slice</h2>\n<table>\n");
    put_bar(&out, "in programs", clock_s(use) - starved_s(use), clock_s(use));
    put_bar(&out, "waiting for the host", starved_s(use), clock_s(use));
  }
  vt_text_put(&out,
              "</table>\n<p>Time, programs and memory are measured on this machine. The time on "
              "the slice is ");
  vt_text_put(&out,
              use->predict ? "predicted" : "a lower bound from the published peaks of the chip");
  vt_text_put(&out, "; the cost is its public price for that time.</p>\n");
  return vt_cli_end_page(&out, path);
}
