// SPDX-License-Identifier: Apache-2.0
// job.c - the table of job.h, and the call that shows it.
#include "cloud/state/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/state/billing.h"
#include "cloud/store/row.h"

enum { KEPT = 1000, SHOWN = 200, NAME_SIZE = 128 }; // kept per project

typedef struct job {
  int64_t pid, programs, busy_ns, device_ns, hbm_bytes, ended;
  char name[NAME_SIZE];
} job;

static bool parse(const char *line, job *out_job) {
  int64_t *const fields[] = {&out_job->pid,       &out_job->programs,  &out_job->busy_ns,
                             &out_job->device_ns, &out_job->hbm_bytes, &out_job->ended};
  size_t used = 0;
  int n = 0;
  *out_job = (job){0};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++, line += n)
    if (sscanf(line, "%" SCNd64 "%n", fields[i], &n) != 1 || *fields[i] < 0 || *fields[i] >> 60)
      return false;
  for (line += *line == ' '; *line && *line != '\n' && used + 1 < NAME_SIZE; line++)
    out_job->name[used++] = *line >= ' ' && *line < 127 ? *line : '?';
  return true;
}

static vt_status add(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t epoch,
                     const job *j) {
  int64_t id, now = vt_cloud_now(cloud);
  int64_t price =
      node->type->chips * vt_price_nanos(node->type, node->zone, vt_node_is_spot(node)); // an hour
  VT_TRY(vt_cloud_next(cloud, "jobs", &id));
  const vt_jobs_row row = {.id = id,
                           .node = node->uid,
                           .worker = worker,
                           .epoch = epoch,
                           .pid = j->pid,
                           .project = node->project,
                           .zone = node->zone,
                           .node_id = node->id,
                           .type = node->type->name,
                           .name = j->name,
                           .price_nanos = price,
                           .start_ns = now - j->busy_ns,
                           .at_ns = now,
                           .end_ns = j->ended ? now : 0,
                           .programs = j->programs,
                           .busy_ns = j->busy_ns,
                           .device_ns = j->device_ns,
                           .hbm_bytes = j->hbm_bytes};
  VT_TRY(vt_row_insert(cloud->store, jobs, &row));
  return vt_store_run(cloud->store, NULL,
                      "DELETE FROM jobs WHERE project = ? AND id < (SELECT MIN(id) FROM (SELECT id "
                      "FROM jobs WHERE project = ? ORDER BY id DESC LIMIT ?) AS kept)",
                      "ssi", node->project, node->project, (int64_t)KEPT);
}

static vt_status take(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t epoch,
                      const job *j) {
  int64_t id = 0, ended = 0, programs = 0, now = vt_cloud_now(cloud);
  vt_rows *rows;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT id, end_ns, programs FROM jobs WHERE node = ? AND worker = ? AND "
                        "epoch = ? AND pid = ? ORDER BY id DESC LIMIT 1",
                        "iiii", node->uid, worker, epoch, j->pid));
  if (vt_rows_next(rows)) {
    id = vt_rows_int(rows, 0);
    ended = vt_rows_int(rows, 1);
    programs = vt_rows_int(rows, 2);
  }
  VT_TRY(vt_rows_end(rows));
  if (ended && j->ended && programs == j->programs) return VT_OK; // reported twice
  if (!id || ended) return add(cloud, node, worker, epoch, j);    // ended: the pid was reused
  return vt_store_run(
      cloud->store, NULL,
      "UPDATE jobs SET at_ns = ?, end_ns = ?, programs = ?, busy_ns = ?, device_ns = ?, hbm_bytes "
      "= CASE WHEN hbm_bytes > ? THEN hbm_bytes ELSE ? END WHERE id = ?",
      "iiiiiiii", now, (int64_t)(j->ended ? now : 0), j->programs, j->busy_ns, j->device_ns,
      j->hbm_bytes, j->hbm_bytes, id);
}

vt_status vt_jobs_report(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t epoch,
                         const char *text) {
  // Jobs from before a worker's reboot ended at the latest when it was last heard from.
  VT_TRY(vt_store_run(cloud->store, NULL,
                      "UPDATE jobs SET end_ns = at_ns WHERE node = ? AND worker = ? AND epoch <> ? "
                      "AND end_ns = 0",
                      "iii", node->uid, worker, epoch));
  for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
    job j;
    if (strncmp(p, "job ", 4) == 0 && parse(p + 4, &j))
      VT_TRY(take(cloud, node, worker, epoch, &j));
  }
  return VT_OK;
}

vt_status vt_jobs_end(vt_cloud *cloud, int64_t uid) {
  return vt_store_run(cloud->store, NULL,
                      "UPDATE jobs SET end_ns = at_ns WHERE node = ? AND end_ns = 0", "i", uid);
}

static json_t *view(const vt_rows *rows) {
  char start[40], end[40] = "";
  bool runs = vt_rows_int(rows, 8) == 0 && strcmp(vt_rows_text(rows, 14), "READY") == 0;
  // Stopping a node ends its jobs.
  int64_t end_ns = vt_rows_int(rows, 8) ? vt_rows_int(rows, 8) : vt_rows_int(rows, 7);
  double device = (double)vt_rows_int(rows, 11) / 1e9;
  vt_time_format(vt_rows_int(rows, 6), start);
  if (!runs) vt_time_format(end_ns, end);
  const char *name = vt_rows_text(rows, 4);
  char unnamed[32];
  snprintf(unnamed, sizeof unnamed, "process %lld", (long long)vt_rows_int(rows, 13));
  return json_pack(
      "{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:f, s:f, s:I, s:f, s:f}", "node",
      vt_rows_text(rows, 0), "worker", (int)vt_rows_int(rows, 1), "zone", vt_rows_text(rows, 2),
      "acceleratorType", vt_rows_text(rows, 3), "name", *name ? name : unnamed, "startTime", start,
      "endTime", end, "running", runs, "programs", (json_int_t)vt_rows_int(rows, 9), "busySeconds",
      (double)vt_rows_int(rows, 10) / 1e9, "deviceSeconds", device, "hbmBytes",
      (json_int_t)vt_rows_int(rows, 12), "usdPerHour", (double)vt_rows_int(rows, 5) / 1e9,
      "deviceUsd", (double)vt_rows_int(rows, 5) / 1e9 * device / 3600);
}

vt_status vt_jobs_list(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(
      call->cloud->store, &rows,
      "SELECT node_id, worker, jobs.zone, jobs.type, name, price_nanos, start_ns, at_ns, end_ns, "
      "programs, jobs.busy_ns, device_ns, hbm_bytes, pid, COALESCE(nodes.state, '') FROM jobs LEFT "
      "JOIN nodes ON nodes.uid = jobs.node WHERE jobs.project = ? ORDER BY jobs.id DESC LIMIT ?",
      "si", call->project, (int64_t)SHOWN));
  json_t *list = json_array();
  while (vt_rows_next(rows)) json_array_append_new(list, view(rows));
  call->reply = json_pack("{s:o}", "jobs", list);
  return vt_rows_end(rows);
}
