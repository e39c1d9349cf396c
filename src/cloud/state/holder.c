// SPDX-License-Identifier: Apache-2.0
// holder.c - the table of holder.h.
#include "cloud/state/holder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/store/row.h"

enum { SHOWN = 32, WORD = 128 }; // shown per worker

typedef struct line {
  int64_t pid, opened_ns, age_ns;
  char user[WORD], versions[WORD], program[WORD];
} line;

static bool parse(const char *text, line *out_line) {
  int64_t *const fields[] = {&out_line->pid, &out_line->opened_ns, &out_line->age_ns};
  size_t used = 0;
  int n = 0;
  *out_line = (line){0};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++, text += n)
    if (sscanf(text, "%" SCNd64 "%n", fields[i], &n) != 1 || *fields[i] < 0 || *fields[i] >> 60)
      return false;
  if (!out_line->pid || strcspn(text, "\n") < 4 ||
      sscanf(text, " %39s %127s%n", out_line->user, out_line->versions, &n) != 2)
    return false;
  for (text += n, text += *text == ' '; *text && *text != '\n' && used + 1 < WORD; text++)
    out_line->program[used++] = *text >= ' ' && *text < 127 ? *text : '?';
  // Text from a user's process; shown as plain text.
  for (char *p = out_line->user; *p; p++)
    if (*p <= ' ' || *p >= 127) *p = '?';
  for (char *p = out_line->versions; *p; p++)
    if (*p <= ' ' || *p >= 127) *p = '?';
  return true;
}

static vt_status put(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t epoch,
                     const line *l) {
  int64_t changed;
  VT_TRY(vt_store_run(cloud->store, &changed,
                      "UPDATE holders SET told = 1 WHERE node = ? AND worker = ? AND pid = ? AND "
                      "opened_ns = ? AND epoch = ?",
                      "iiiii", node->uid, worker, l->pid, l->opened_ns, epoch));
  if (changed) return VT_OK;
  const vt_holders_row row = {.node = node->uid,
                              .worker = worker,
                              .epoch = epoch,
                              .pid = l->pid,
                              .opened_ns = l->opened_ns,
                              .since_ns = vt_cloud_now(cloud) - l->age_ns,
                              .owner = l->user,
                              .versions = l->versions,
                              .program = l->program,
                              .told = true};
  return vt_row_add(cloud->store, holders, &row);
}

vt_status vt_holders_report(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t epoch,
                            const char *text) {
  int count = 0;
  VT_TRY(vt_holders_forget(cloud, node->uid, worker, epoch));
  VT_TRY(vt_store_run(cloud->store, NULL,
                      "UPDATE holders SET told = 0 WHERE node = ? AND worker = ?", "ii", node->uid,
                      worker));
  for (const char *p = text; *p && count < SHOWN; p += strcspn(p, "\n"), p += *p == '\n') {
    line l;
    if (strncmp(p, "holder ", 7) != 0 || !parse(p + 7, &l)) continue;
    VT_TRY(put(cloud, node, worker, epoch, &l));
    count++;
  }
  return vt_store_run(cloud->store, NULL,
                      "DELETE FROM holders WHERE node = ? AND worker = ? AND told = 0", "ii",
                      node->uid, worker);
}

vt_status vt_holders_forget(vt_cloud *cloud, int64_t uid, int64_t worker, int64_t epoch) {
  if (worker < 0)
    return vt_store_run(cloud->store, NULL, "DELETE FROM holders WHERE node = ?", "i", uid);
  return vt_store_run(cloud->store, NULL,
                      "DELETE FROM holders WHERE node = ? AND worker = ? AND epoch <> ?", "iii",
                      uid, worker, epoch);
}

vt_status vt_holders_read(vt_cloud *cloud, vt_arena *arena, int64_t uid, vt_holders *out_holders) {
  vt_rows *rows;
  *out_holders = (vt_holders){0};
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT worker, epoch, pid, opened_ns, since_ns, release_ns, owner, versions, program FROM "
      "holders WHERE node = ? AND EXISTS (SELECT 1 FROM nodes WHERE uid = holders.node AND state = "
      "'READY') "
      "ORDER BY worker, since_ns, pid",
      "i", uid));
  while (vt_rows_next(rows)) {
    const char *text[3];
    for (int i = 0; i < 3; i++)
      text[i] = vt_arena_copy(arena, vt_rows_text(rows, i + 6), strlen(vt_rows_text(rows, i + 6)));
    vt_holder h = {.worker = vt_rows_int(rows, 0),
                   .epoch = vt_rows_int(rows, 1),
                   .pid = vt_rows_int(rows, 2),
                   .opened_ns = vt_rows_int(rows, 3),
                   .since_ns = vt_rows_int(rows, 4),
                   .release_ns = vt_rows_int(rows, 5),
                   .user = text[0],
                   .versions = text[1],
                   .program = text[2]};
    vt_array_push_in(arena, out_holders, h);
  }
  return vt_rows_end(rows);
}

// --- releasing -----------------------------------------------------------------------------------

vt_status vt_holders_orders(vt_cloud *cloud, int64_t uid, int64_t worker, vt_text *out_lines) {
  vt_rows *rows;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT pid, opened_ns, asker FROM holders WHERE node = ? AND worker = ? "
                        "AND release_ns > 0 ORDER BY pid",
                        "ii", uid, worker));
  while (vt_rows_next(rows))
    vt_text_printf(out_lines, "release %lld %lld %s\n", (long long)vt_rows_int(rows, 0),
                   (long long)vt_rows_int(rows, 1), vt_rows_text(rows, 2));
  return vt_rows_end(rows);
}

static vt_status release(vt_call *call, const vt_node *node, const vt_holder *h) {
  char detail[512];
  snprintf(detail, sizeof detail, "worker %lld: process %lld of %s (%s)", (long long)h->worker,
           (long long)h->pid, h->user, h->program);
  VT_TRY(vt_store_run(call->cloud->store, NULL,
                      "UPDATE holders SET release_ns = ?, asker = ? WHERE node = ? AND worker = ? "
                      "AND pid = ? AND opened_ns = ?",
                      "isiiii", vt_cloud_now(call->cloud), call->caller, node->uid, h->worker,
                      h->pid, h->opened_ns));
  return vt_cloud_event(call->cloud, "release", node->project, call->caller,
                        vt_node_name(&call->arena, node), detail);
}

// {"worker": n, "pid": n}: that process; without a pid all processes that have the worker's chips.
static vt_status release_all(vt_call *call, const vt_node *node) {
  const json_t *worker = json_object_get(call->body, "worker"),
               *pid = json_object_get(call->body, "pid");
  vt_holders holders;
  size_t count = 0;
  json_t *released = json_array();
  call->reply = json_pack("{s:o}", "released", released);
  if (!json_is_integer(worker) || (pid && !json_is_integer(pid)))
    return vt_error(VT_INVALID_ARGUMENT, "worker, and pid for one process of it, are numbers");
  if (json_integer_value(worker) < 0 || json_integer_value(worker) >= node->workers)
    return vt_error(VT_INVALID_ARGUMENT, "%s has workers 0 to %lld", node->id,
                    (long long)node->workers - 1);
  VT_TRY(vt_holders_read(call->cloud, &call->arena, node->uid, &holders));
  for (size_t i = 0; i < holders.size; i++) {
    const vt_holder *h = &holders.data[i];
    if (h->worker != json_integer_value(worker) || (pid && h->pid != json_integer_value(pid)))
      continue;
    if (!h->release_ns) VT_TRY(release(call, node, h));
    json_array_append_new(released,
                          json_pack("{s:I, s:I, s:s, s:s}", "worker", (json_int_t)h->worker, "pid",
                                    (json_int_t)h->pid, "user", h->user, "program", h->program));
    count++;
  }
  if (count) return VT_OK;
  if (!pid)
    return vt_error(VT_FAILED_PRECONDITION, "No process has the chips of worker %lld.",
                    (long long)json_integer_value(worker));
  return vt_error(VT_NOT_FOUND, "Process %lld does not have the chips of worker %lld.",
                  (long long)json_integer_value(pid), (long long)json_integer_value(worker));
}

vt_status vt_node_release(vt_call *call) {
  vt_node node;
  VT_TRY(vt_node_find(call, &node));
  vt_status st = release_all(call, &node);
  vt_node_fini(&node);
  return st;
}
