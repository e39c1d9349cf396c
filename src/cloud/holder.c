// SPDX-License-Identifier: Apache-2.0
// holder.c - the table of holder.h.
#include "cloud/holder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 32, WORD = 128 }; // shown: of one worker

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
  // Words of a user's process; they are shown as text.
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
  return vt_store_run(cloud->store, NULL,
                      "INSERT INTO holders (node, worker, epoch, pid, opened_ns, since_ns, owner, "
                      "versions, program, told) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT "
                      "(node, worker, pid, opened_ns) DO NOTHING",
                      "iiiiiisss", node->uid, worker, epoch, l->pid, l->opened_ns,
                      vt_cloud_now(cloud) - l->age_ns, l->user, l->versions, l->program);
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
      "SELECT worker, epoch, pid, opened_ns, since_ns, owner, versions, program FROM holders WHERE "
      "node = ? AND EXISTS (SELECT 1 FROM nodes WHERE uid = holders.node AND state = 'READY') "
      "ORDER BY worker, since_ns, pid",
      "i", uid));
  while (vt_rows_next(rows)) {
    const char *text[3];
    for (int i = 0; i < 3; i++)
      text[i] = vt_arena_copy(arena, vt_rows_text(rows, i + 5), strlen(vt_rows_text(rows, i + 5)));
    vt_holder h = {vt_rows_int(rows, 0),
                   vt_rows_int(rows, 1),
                   vt_rows_int(rows, 2),
                   vt_rows_int(rows, 3),
                   vt_rows_int(rows, 4),
                   text[0],
                   text[1],
                   text[2]};
    vt_array_push_in(arena, out_holders, h);
  }
  return vt_rows_end(rows);
}
