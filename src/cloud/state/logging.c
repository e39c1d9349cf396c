// SPDX-License-Identifier: Apache-2.0
// logging.c - the part of Cloud Logging that TPU clients use: write and list entries; sinks, which
// are stored and listed (no entry leaves this cloud).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/state/node.h"
#include "cloud/store/json.h"
#include "cloud/store/row.h"

// The limits of Cloud Logging.
enum {
  MAX_ENTRIES = 1000,
  MAX_ENTRY = 256 << 10,
  MAX_SINKS = 200,
  MAX_EXCLUSIONS = 50,
  MAX_FILTER = 20000,
  MAX_SINK_TEXT = 8000,
  MAX_DESTINATION = 1024
};

// Extracts p from "projects/p/logs/x" or "projects/p" and checks access to it.
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
    text = vt_json_text(entry, JSON_COMPACT);
    if (strlen(text) > MAX_ENTRY) {
      vt_memory_free(text);
      return vt_error(VT_INVALID_ARGUMENT, "entries[%zu] has over %d bytes", i, MAX_ENTRY);
    }
    const vt_log_entries_row row = {.id = id, .project = call->project, .at_ns = now, .body = text};
    vt_status st = vt_row_insert(call->cloud->store, log_entries, &row);
    vt_memory_free(text);
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
  json_t *entries = json_array(), *entry;
  vt_status st = VT_OK;
  while (!st && vt_rows_next(rows)) {
    st = vt_check_stored(vt_rows_text(rows, 0), "log entry of project", call->project, &entry);
    json_array_append_new(entries, entry);
  }
  call->reply = json_pack("{s:o}", "entries", entries);
  return vt_rows_stop(rows, st);
}

// --- sinks ---------------------------------------------------------------------------------------

static vt_status find_sink(vt_call *call, const char *name, json_t **out_sink) {
  vt_rows *rows;
  *out_sink = NULL;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT body FROM log_sinks WHERE project = ? AND name = ?", "ss",
                        call->project, name));
  vt_status st =
      vt_rows_next(rows) ? vt_check_stored(vt_rows_text(rows, 0), "sink", name, out_sink) : VT_OK;
  return vt_rows_stop(rows, st);
}

static vt_status must_find_sink(vt_call *call, json_t **out_sink) {
  const char *name = vt_call_param(call, "sink");
  VT_TRY(find_sink(call, name, out_sink));
  if (*out_sink) return VT_OK;
  return vt_call_not_found(
      call, vt_arena_printf(&call->arena, "projects/%s/sinks/%s", call->project, name));
}

static vt_status check_sink(const json_t *sink) {
  const char *destination = json_string_value(json_object_get(sink, "destination"));
  const json_t *exclusions = json_object_get(sink, "exclusions"),
               *disabled = json_object_get(sink, "disabled");
  if (!destination || !strstr(destination, ".googleapis.com/"))
    return vt_error(VT_INVALID_ARGUMENT,
                    "destination: SERVICE.googleapis.com/RESOURCE is required");
  VT_TRY(vt_check_text("destination", json_object_get(sink, "destination"), MAX_DESTINATION));
  VT_TRY(vt_check_text("filter", json_object_get(sink, "filter"), MAX_FILTER));
  VT_TRY(vt_check_text("description", json_object_get(sink, "description"), MAX_SINK_TEXT));
  if (disabled && !json_is_boolean(disabled))
    return vt_error(VT_INVALID_ARGUMENT, "disabled: true or false");
  if (exclusions && (!json_is_array(exclusions) || json_array_size(exclusions) > MAX_EXCLUSIONS))
    return vt_error(VT_INVALID_ARGUMENT, "exclusions: a list of at most %d", MAX_EXCLUSIONS);
  return VT_OK;
}

// Takes `sink`, which becomes the reply.
static vt_status save_sink(vt_call *call, const char *name, json_t *sink) {
  static const char *const fields[] = {"destination", "filter", "description", "disabled",
                                       "exclusions"};
  char now[40];
  const char *mask = vt_call_query(call, "updateMask");
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    json_t *value = json_object_get(call->body, fields[i]);
    if (value && (!mask || !*mask || strstr(mask, fields[i])))
      json_object_set(sink, fields[i], value);
  }
  call->reply = sink;
  VT_TRY(check_sink(sink));
  vt_time_format(vt_cloud_now(call->cloud), now);
  json_object_set_new(sink, "name", json_string(name));
  json_object_set_new(sink, "updateTime", json_string(now));
  if (!json_object_get(sink, "createTime"))
    json_object_set_new(sink, "createTime", json_string(now));
  json_object_set_new(
      sink, "writerIdentity",
      json_string(vt_arena_printf(&call->arena, "serviceAccount:service-%lld@gcp-sa-logging.%s",
                                  (long long)call->project_number, call->cloud->options.universe)));
  char *text = vt_json_text(sink, JSON_COMPACT);
  const vt_log_sinks_row row = {.project = call->project, .name = name, .body = text};
  vt_status st = vt_row_put(call->cloud->store, log_sinks, &row);
  vt_memory_free(text);
  return st;
}

vt_status vt_sinks_create(vt_call *call) {
  const char *name = json_string_value(json_object_get(call->body, "name"));
  json_t *old;
  int64_t count;
  if (!name || !vt_node_id_valid(name))
    return vt_error(VT_INVALID_ARGUMENT, "name: letters, digits and -_. of at most 63");
  VT_TRY(vt_store_int(call->cloud->store, &count, 0,
                      "SELECT COUNT(*) FROM log_sinks WHERE project = ?", "s", call->project));
  if (count >= MAX_SINKS)
    return vt_error(VT_RESOURCE_EXHAUSTED, "A project has at most %d sinks.", MAX_SINKS);
  VT_TRY(find_sink(call, name, &old));
  json_decref(old);
  if (old)
    return vt_call_exists(
        call, vt_arena_printf(&call->arena, "projects/%s/sinks/%s", call->project, name));
  return save_sink(call, name, json_object());
}

vt_status vt_sinks_get(vt_call *call) {
  return must_find_sink(call, &call->reply);
}

vt_status vt_sinks_update(vt_call *call) {
  json_t *sink;
  VT_TRY(must_find_sink(call, &sink));
  return save_sink(call, vt_call_param(call, "sink"), sink);
}

vt_status vt_sinks_delete(vt_call *call) {
  json_t *sink;
  VT_TRY(must_find_sink(call, &sink));
  json_decref(sink);
  call->reply = json_object();
  return vt_store_run(call->cloud->store, NULL,
                      "DELETE FROM log_sinks WHERE project = ? AND name = ?", "ss", call->project,
                      vt_call_param(call, "sink"));
}

vt_status vt_sinks_list(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT body FROM log_sinks WHERE project = ? ORDER BY name LIMIT 1000",
                        "s", call->project));
  json_t *list = json_array(), *sink;
  vt_status st = VT_OK;
  while (!st && vt_rows_next(rows)) {
    st = vt_check_stored(vt_rows_text(rows, 0), "sink of project", call->project, &sink);
    json_array_append_new(list, sink);
  }
  call->reply = json_pack("{s:o}", "sinks", list);
  return vt_rows_stop(rows, st);
}
