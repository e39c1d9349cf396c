// SPDX-License-Identifier: Apache-2.0
// chip_use.c - the table of chip_use.h, and the call that shows it.
#include "cloud/state/chip_use.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/state/doctor.h"
#include "cloud/state/health.h"
#include "cloud/state/job.h"
#include "cloud/store/row.h"

// A worker reports every five seconds while its chips are in use; without a report for longer than
// this, it counts as idle.
#define STALE_NS (15 * VT_SECOND)

typedef vt_chip_use_row row; // as reported; `base_*`: sums of earlier boots

// Lines "name value" with known names; sums stay under 2^60, so that nothing here overflows.
static bool parse(const char *text, row *out_row) {
  const struct {
    const char *name;
    int64_t *value;
  } fields[] = {{"epoch", &out_row->epoch},         {"programs", &out_row->programs},
                {"busy_ns", &out_row->busy_ns},     {"device_ns", &out_row->device_ns},
                {"processes", &out_row->processes}, {"running", &out_row->running},
                {"hbm_bytes", &out_row->hbm_bytes}, {"hbm_limit", &out_row->hbm_limit}};
  size_t found = 0;
  *out_row = (row){0};
  for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
      size_t n = strlen(fields[i].name);
      char *end;
      if (strncmp(p, fields[i].name, n) != 0 || p[n] != ' ') continue;
      *fields[i].value = strtoll(p + n + 1, &end, 10);
      if (end == p + n + 1 || *fields[i].value < 0 || *fields[i].value >> 60) return false;
      found++;
    }
  return found == sizeof fields / sizeof *fields;
}

static vt_status load(vt_cloud *cloud, int64_t uid, int64_t worker, row *out_row, bool *out_found) {
  vt_arena none = {0}; // a row without texts
  *out_row = (row){0};
  return vt_row_load(cloud->store, &none, &vt_table_chip_use, out_row, out_found,
                     "WHERE node = ? AND worker = ?", "ii", uid, worker);
}

// Virtual device time of the node's busiest worker, over all its boots.
static vt_status device_time(vt_cloud *cloud, int64_t uid, int64_t *out_ns) {
  return vt_store_int(cloud->store, out_ns, 0,
                      "SELECT MAX(base_device_ns + device_ns) FROM chip_use WHERE node = ?", "i",
                      uid);
}

static int64_t at_least(int64_t value, int64_t least) {
  return value > least ? value : least;
}

// Applies what changed since the last report: to the open interval of the bill, and to the time
// since the chips are idle. The row's version stays: nothing that a call has read changes.
static vt_status account(vt_cloud *cloud, const vt_node *node, int64_t device_ns, bool busy) {
  if (device_ns > 0)
    VT_TRY(
        vt_store_run(cloud->store, NULL,
                     "UPDATE usage SET device_ns = device_ns + ? WHERE node = ? AND kind = 'tpu' "
                     "AND end_ns = 0",
                     "ii", device_ns, node->uid));
  if (!busy) return VT_OK;
  return vt_store_run(cloud->store, NULL,
                      "UPDATE nodes SET busy_ns = ?, idle_alert = 0 WHERE uid = ?", "ii",
                      vt_cloud_now(cloud), node->uid);
}

typedef struct report {
  const vt_node *node;
  int64_t worker;
  row now;
  const char *text;
} report;

static vt_status take(vt_cloud *cloud, void *context) {
  report *r = context;
  row last, now = r->now;
  bool found;
  int64_t before, after;
  VT_TRY(load(cloud, r->node->uid, r->worker, &last, &found));
  VT_TRY(device_time(cloud, r->node->uid, &before));
  now.node = r->node->uid;
  now.worker = r->worker;
  now.at_ns = vt_cloud_now(cloud);
  now.base_programs = last.base_programs;
  now.base_busy_ns = last.base_busy_ns;
  now.base_device_ns = last.base_device_ns;
  row from = last; // the sums of this boot at the last report
  if (!found || last.epoch != now.epoch) {
    now.base_programs += last.programs;
    now.base_busy_ns += last.busy_ns;
    now.base_device_ns += last.device_ns;
    from = (row){.at_ns = last.at_ns};
  }
  // A sum that shrinks within a boot is ignored.
  now.programs = at_least(now.programs, from.programs);
  now.busy_ns = at_least(now.busy_ns, from.busy_ns);
  now.device_ns = at_least(now.device_ns, from.device_ns);
  int64_t elapsed = now.at_ns - from.at_ns, busy = now.busy_ns - from.busy_ns;
  if (elapsed <= 0 || elapsed > STALE_NS) elapsed = 5 * VT_SECOND; // the first after a pause
  now.duty_ppm = busy >= elapsed ? 1000000 : busy * 1000000 / elapsed;
  VT_TRY(vt_row_put(cloud->store, chip_use, &now));
  VT_TRY(device_time(cloud, r->node->uid, &after));
  VT_TRY(vt_jobs_report(cloud, r->node, r->worker, now.epoch, r->text));
  const char *longest = strstr(r->text, "\nlongest_ns ");
  vt_health_longest(cloud, r->node->uid, r->worker, longest ? strtoll(longest + 12, NULL, 10) : 0);
  VT_TRY(vt_holders_report(cloud, r->node, r->worker, now.epoch, r->text));
  return account(cloud, r->node, after - before, now.running || now.programs > from.programs);
}

vt_status vt_use_report(vt_cloud *cloud, const vt_node *node, int64_t worker, const char *text) {
  report r = {.node = node, .worker = worker, .text = text};
  if (!parse(text, &r.now)) return vt_error(VT_INVALID_ARGUMENT, "not a report of chip use");
  return vt_cloud_transact(cloud, take, &r);
}

vt_status vt_use_read(vt_cloud *cloud, int64_t uid, vt_chip_use *out_use) {
  vt_rows *rows;
  int64_t now = vt_cloud_now(cloud), workers = 0;
  *out_use = (vt_chip_use){0};
  VT_TRY(vt_row_select(cloud->store, &rows, &vt_table_chip_use, "WHERE node = ?", "i", uid));
  for (; vt_rows_next(rows); workers++) {
    row r;
    vt_arena none = {0};
    vt_row_read(rows, &vt_table_chip_use, &none, &r);
    bool fresh = now - r.at_ns < STALE_NS;
    double duty = fresh ? (double)r.duty_ppm / 1e6 : 0;
    if (duty > out_use->duty) out_use->duty = duty;
    out_use->programs = at_least(out_use->programs, r.base_programs + r.programs);
    out_use->busy_ns = at_least(out_use->busy_ns, r.base_busy_ns + r.busy_ns);
    out_use->device_ns = at_least(out_use->device_ns, r.base_device_ns + r.device_ns);
    out_use->processes += r.processes;
    out_use->hbm_bytes = at_least(out_use->hbm_bytes, r.hbm_bytes);
    out_use->hbm_limit = at_least(out_use->hbm_limit, r.hbm_limit);
    out_use->reported_ns = at_least(out_use->reported_ns, r.at_ns);
  }
  return vt_rows_end(rows);
}

vt_status vt_use_forget(vt_cloud *cloud, int64_t uid) {
  VT_TRY(vt_jobs_end(cloud, uid));
  VT_TRY(vt_holders_forget(cloud, uid, -1, 0));
  return vt_store_run(cloud->store, NULL, "DELETE FROM chip_use WHERE node = ?", "i", uid);
}

// --- who looks -----------------------------------------------------------------------------------

static json_t *use_json(const vt_chip_use *use) {
  char time[40];
  vt_time_format(use->reported_ns, time);
  return json_pack("{s:f, s:I, s:f, s:f, s:I, s:I, s:I, s:s}", "dutyCycle", use->duty, "programs",
                   (json_int_t)use->programs, "busySeconds", (double)use->busy_ns / 1e9,
                   "deviceSeconds", (double)use->device_ns / 1e9, "processes",
                   (json_int_t)use->processes, "hbmBytes", (json_int_t)use->hbm_bytes, "hbmLimit",
                   (json_int_t)use->hbm_limit, "reportedAt", use->reported_ns ? time : "");
}

// The status of a node's workers: their launcher's description, or why they do not run.
static vt_status guest_text(vt_call *call, int64_t uid, const char **out_text) {
  vt_rows *rows;
  *out_text = call->cloud->options.guest_level ? "" : call->cloud->machines;
  if (**out_text) return VT_OK;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT value FROM guest_attributes WHERE node = ? AND namespace = 'vtpu' "
                        "AND key = 'guest' ORDER BY worker LIMIT 1",
                        "i", uid));
  if (vt_rows_next(rows))
    *out_text = vt_arena_copy(&call->arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0)));
  return vt_rows_end(rows);
}

typedef struct shown {
  int64_t uid, workers, busy_ns, ready_ns;
  const char *zone, *id, *state;
} shown;

static vt_status list_nodes(vt_call *call, shown **out_nodes, size_t *out_count) {
  const char *zone = vt_call_query(call, "zone"), *node = vt_call_query(call, "node");
  VT_ARRAY(shown) list = {0};
  vt_rows *rows;
  if (!zone) zone = "";
  if (!node) node = "";
  VT_TRY(vt_store_query(
      call->cloud->store, &rows,
      "SELECT uid, zone, id, state, workers, busy_ns, ready_ns FROM nodes WHERE project = "
      "? AND (? = '' OR zone = ?) AND (? = '' OR id = ?) ORDER BY zone, id LIMIT "
      "1000",
      "sssss", call->project, zone, zone, node, node));
  while (vt_rows_next(rows)) {
    const char *text[3];
    for (int i = 0; i < 3; i++)
      text[i] =
          vt_arena_copy(&call->arena, vt_rows_text(rows, i + 1), strlen(vt_rows_text(rows, i + 1)));
    shown s = {vt_rows_int(rows, 0),
               vt_rows_int(rows, 4),
               vt_rows_int(rows, 5),
               vt_rows_int(rows, 6),
               text[0],
               text[1],
               text[2]};
    vt_array_push_in(&call->arena, &list, s);
  }
  *out_nodes = list.data;
  *out_count = list.size;
  return vt_rows_end(rows);
}

vt_status vt_nodes_use(vt_call *call) {
  shown *nodes;
  size_t count;
  VT_TRY(list_nodes(call, &nodes, &count));
  json_t *items = json_array();
  call->reply = json_pack("{s:o}", "nodes", items);
  for (size_t i = 0; i < count; i++) {
    vt_chip_use use;
    const char *guest;
    vt_verdict verdict = {.text = ""};
    VT_TRY(vt_use_read(call->cloud, nodes[i].uid, &use));
    VT_TRY(guest_text(call, nodes[i].uid, &guest));
    if (strcmp(nodes[i].state, "READY") == 0)
      VT_TRY(
          vt_doctor_verdict(call->cloud, &call->arena, nodes[i].uid, nodes[i].workers, &verdict));
    int64_t idle = nodes[i].ready_ns ? vt_cloud_now(call->cloud) - nodes[i].busy_ns : 0;
    json_array_append_new(
        items,
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:s, s:I, s:o}", "node", nodes[i].id, "zone",
                  nodes[i].zone, "state", nodes[i].state, "verdict", verdict.text, "trouble",
                  (int)verdict.trouble, "guestLevel", call->cloud->options.guest_level, "guest",
                  guest, "idleSeconds", (json_int_t)(idle / VT_SECOND), "chips", use_json(&use)));
  }
  return VT_OK;
}

typedef struct metric {
  const char *name, *type, *help;
} metric;

static double metric_value(const vt_chip_use *use, size_t which) {
  const double values[] = {use->duty, (double)use->hbm_bytes, (double)use->programs,
                           (double)use->busy_ns / 1e9, (double)use->device_ns / 1e9};
  return values[which];
}

vt_status vt_use_metrics(vt_cloud *cloud, vt_text *out_text) {
  static const metric metrics[] = {
      {"vtpud_node_duty_cycle", "gauge", "Share of the last seconds that the chips were busy."},
      {"vtpud_node_hbm_bytes", "gauge", "HBM in use."},
      {"vtpud_node_programs_total", "counter", "Programs that the chips ran."},
      {"vtpud_node_busy_seconds_total", "counter", "Time of the host in programs."},
      {"vtpud_node_device_seconds_total", "counter", "Virtual device time of the programs."}};
  vt_arena arena = {0};
  VT_ARRAY(shown) list = {0};
  vt_rows *rows;
  vt_status st = vt_store_query(
      cloud->store, &rows,
      "SELECT uid, project, zone, id FROM nodes WHERE uid IN (SELECT node FROM chip_use) AND state "
      "= 'READY' ORDER BY project, zone, id LIMIT 10000",
      "");
  if (st) return st;
  while (vt_rows_next(rows)) {
    shown s = {.uid = vt_rows_int(rows, 0),
               .id = vt_arena_printf(&arena, "project=\"%s\",zone=\"%s\",node=\"%s\"",
                                     vt_rows_text(rows, 1), vt_rows_text(rows, 2),
                                     vt_rows_text(rows, 3))};
    vt_array_push_in(&arena, &list, s);
  }
  st = vt_rows_end(rows);
  for (size_t m = 0; !st && m < sizeof metrics / sizeof *metrics; m++) {
    vt_text_printf(out_text, "# HELP %s %s\n# TYPE %s %s\n", metrics[m].name, metrics[m].help,
                   metrics[m].name, metrics[m].type);
    for (size_t i = 0; !st && i < list.size; i++) {
      vt_chip_use use;
      st = vt_use_read(cloud, list.data[i].uid, &use);
      vt_text_printf(out_text, "%s{%s} %.9g\n", metrics[m].name, list.data[i].id,
                     metric_value(&use, m));
    }
  }
  vt_arena_free(&arena);
  return st;
}
