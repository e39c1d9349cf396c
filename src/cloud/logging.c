// SPDX-License-Identifier: Apache-2.0
// logging.c - the part of Cloud Logging that TPU clients touch: write and list entries.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/account.h"
#include "cloud/handlers.h"

enum { MAX_ENTRIES = 1000 };

// "projects/p/logs/x" or "projects/p" to p, and the right to it.
static vt_status enter_project(vt_call *call, const char *name, const char *permission) {
  if (!name || strncmp(name, "projects/", 9) != 0)
    return vt_error(VT_INVALID_ARGUMENT, "a resource name like projects/PROJECT is required");
  return vt_account_allow(call, vt_arena_copy(&call->arena, name + 9, strcspn(name + 9, "/")),
                          permission);
}

vt_status vt_logging_write(vt_call *call) {
  json_t *entries = json_object_get(call->body, "entries"), *entry;
  const char *log = json_string_value(json_object_get(call->body, "logName"));
  size_t i;
  if (json_array_size(entries) > MAX_ENTRIES)
    return vt_error(VT_INVALID_ARGUMENT, "at most %d entries in one call", MAX_ENTRIES);
  json_array_foreach(entries, i, entry) {
    const char *own = json_string_value(json_object_get(entry, "logName"));
    char time[40], *text;
    int64_t id, now = vt_cloud_now(call->cloud);
    if (!json_is_object(entry))
      return vt_error(VT_INVALID_ARGUMENT, "entries[%zu] is not an object", i);
    VT_TRY(enter_project(call, own ? own : log, "logging.logEntries.create"));
    if (!own) json_object_set_new(entry, "logName", json_string(log));
    vt_time_format(now, time);
    json_object_set_new(entry, "receiveTimestamp", json_string(time));
    if (!json_object_get(entry, "timestamp"))
      json_object_set_new(entry, "timestamp", json_string(time));
    VT_TRY(vt_cloud_next(call->cloud, "log_entries", &id));
    text = json_dumps(entry, JSON_COMPACT);
    vt_status st =
        vt_store_run(call->cloud->store, NULL,
                     "INSERT INTO log_entries (id, project, at_ns, body) VALUES (?, ?, ?, ?)",
                     "isis", id, call->project, now, text);
    free(text);
    if (st) return st;
  }
  call->reply = json_object();
  return VT_OK;
}

vt_status vt_logging_list(vt_call *call) {
  const char *name =
      json_string_value(json_array_get(json_object_get(call->body, "resourceNames"), 0));
  const char *order = json_string_value(json_object_get(call->body, "orderBy"));
  int64_t size = json_integer_value(json_object_get(call->body, "pageSize"));
  bool newest = order && strstr(order, "desc");
  vt_rows *rows;
  VT_TRY(enter_project(call, name, "logging.logEntries.list"));
  VT_TRY(vt_store_query(
      call->cloud->store, &rows,
      newest ? "SELECT body FROM log_entries WHERE project = ? ORDER BY id DESC LIMIT ?"
             : "SELECT body FROM log_entries WHERE project = ? ORDER BY id LIMIT ?",
      "si", call->project, size > 0 && size < MAX_ENTRIES ? size : MAX_ENTRIES));
  json_t *entries = json_array();
  while (vt_rows_next(rows))
    json_array_append_new(entries, json_loads(vt_rows_text(rows, 0), 0, NULL));
  call->reply = json_pack("{s:o}", "entries", entries);
  return vt_rows_end(rows);
}
