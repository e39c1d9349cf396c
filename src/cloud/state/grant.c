// SPDX-License-Identifier: Apache-2.0
// grant.c - applications for research grants: form, review, approval as quota rows, reminder and
// expiry. States: PENDING, APPROVED, REJECTED, EXPIRED. A grant's body has `items`: {zone, family,
// chips, mode}, mode on-demand or spot. Approval adds their units to the project's quota; expiry
// removes them.
#include "cloud/state/grant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/handlers.h"
#include "cloud/state/catalogue.h"
#include "cloud/state/node.h"
#include "cloud/state/scheduler.h"
#include "cloud/store/json.h"
#include "cloud/store/row.h"

enum { MAX_DAYS = 366 };

static json_t *view(const vt_grants_row *g) {
  char created[40], start[40], end[40];
  vt_time_format(g->created_ns, created);
  vt_time_format(g->start_ns, start);
  vt_time_format(g->end_ns, end);
  json_t *body = json_loads(g->body, 0, NULL);
  json_t *reply =
      json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", g->id, "applicant", g->applicant, "project",
                g->project, "state", g->state, "reviewer", g->reviewer, "createTime", created);
  if (g->start_ns) json_object_set_new(reply, "startTime", json_string(start));
  if (g->end_ns) json_object_set_new(reply, "endTime", json_string(end));
  if (body) json_object_update_missing(reply, body);
  json_decref(body);
  return reply;
}

static vt_status check_items(const json_t *items) {
  if (!json_is_array(items) || json_array_size(items) == 0 || json_array_size(items) > 64)
    return vt_error(VT_INVALID_ARGUMENT, "items: 1 to 64 of {zone, family, chips, mode}");
  for (size_t i = 0; i < json_array_size(items); i++) {
    const json_t *item = json_array_get(items, i);
    const char *zone = json_string_value(json_object_get(item, "zone"));
    const char *family = json_string_value(json_object_get(item, "family"));
    const char *mode = json_string_value(json_object_get(item, "mode"));
    int64_t chips;
    bool whole = vt_json_integer(json_object_get(item, "chips"), &chips);
    if (!zone || !vt_zone_exists(zone))
      return vt_error(VT_INVALID_ARGUMENT, "items[%zu].zone is not a zone", i);
    if (!family || !vt_family_find(family))
      return vt_error(VT_INVALID_ARGUMENT, "items[%zu].family is not a TPU family", i);
    if (!whole || !json_is_integer(json_object_get(item, "chips")) || chips < 1 || chips > 100000)
      return vt_error(VT_INVALID_ARGUMENT, "items[%zu].chips has to be 1 to 100000", i);
    if (!mode || (strcmp(mode, "on-demand") != 0 && strcmp(mode, "spot") != 0))
      return vt_error(VT_INVALID_ARGUMENT, "items[%zu].mode has to be on-demand or spot", i);
  }
  return VT_OK;
}

// Adds (sign 1) or removes (-1) the units of a grant.
static vt_status apply(vt_cloud *cloud, const char *project, const json_t *items, int sign) {
  for (size_t i = 0; i < json_array_size(items); i++) {
    const json_t *item = json_array_get(items, i);
    const vt_family *family = vt_family_find(json_string_value(json_object_get(item, "family")));
    const char *zone = json_string_value(json_object_get(item, "zone"));
    bool spot = strcmp(json_string_value(json_object_get(item, "mode")), "spot") == 0;
    int64_t units =
        sign * json_integer_value(json_object_get(item, "chips")) * family->cores_per_chip;
    char seen[4][128] = {{0}};
    // Every quota id of the family (single, pod, serving) gets the units once.
    for (int a = 0; vt_accelerator_at(a); a++) {
      char id[128];
      int slot = 0;
      if (vt_accelerator_at(a)->family != family) continue;
      vt_quota_id(vt_accelerator_at(a), spot, "Zone", id);
      while (slot < 4 && *seen[slot] && strcmp(seen[slot], id) != 0) slot++;
      if (slot == 4 || *seen[slot]) continue;
      snprintf(seen[slot], sizeof seen[slot], "%s", id);
      VT_TRY(
          vt_store_run(cloud->store, NULL,
                       "INSERT INTO quotas (project, quota, place, units) VALUES (?, ?, ?, ?) ON "
                       "CONFLICT "
                       "(project, quota, place) DO UPDATE SET units = CASE WHEN quotas.units < 0 "
                       "THEN quotas.units WHEN quotas.units + excluded.units < 0 THEN 0 ELSE "
                       "quotas.units + excluded.units END",
                       "sssi", project, id, zone, units));
    }
  }
  return VT_OK;
}

typedef struct due_grant {
  const char *id, *project;
  int64_t end_ns;
  json_t *body;
} due_grant;

static vt_status end_grant(vt_cloud *cloud, vt_arena *arena, const due_grant *g) {
  VT_ARRAY(int64_t) uids = {0};
  vt_rows *rows;
  VT_TRY(apply(cloud, g->project, json_object_get(g->body, "items"), -1));
  VT_TRY(vt_store_run(cloud->store, NULL, "UPDATE grants SET state = 'EXPIRED' WHERE id = ?", "s",
                      g->id));
  VT_TRY(vt_cloud_event(cloud, "grant", g->project, "vtpud", g->id, "the grant has ended"));
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT uid FROM nodes WHERE project = ? AND placed = 1", "s", g->project));
  while (vt_rows_next(rows)) vt_array_push_in(arena, &uids, vt_rows_int(rows, 0));
  VT_TRY(vt_rows_end(rows));
  for (size_t i = 0; i < uids.size; i++) {
    vt_node node;
    bool found;
    VT_TRY(vt_node_load_uid(cloud, arena, uids.data[i], &node, &found));
    vt_status st = vt_quota_holds(cloud, &node);
    if (vt_status_code(st) == VT_RESOURCE_EXHAUSTED) {
      vt_status_free(st);
      st = vt_node_give_notice(cloud, &node, "TERMINATED", "the grant has ended");
    }
    vt_node_fini(&node);
    if (st) return st;
  }
  return VT_OK;
}

vt_status vt_grant_expire(vt_cloud *cloud) {
  vt_arena arena = {0};
  VT_ARRAY(due_grant) list = {0};
  vt_rows *rows;
  int64_t now = vt_cloud_now(cloud);
  vt_status st = vt_store_query(
      cloud->store, &rows,
      "SELECT id, project, end_ns, body FROM grants WHERE state = 'APPROVED' AND (end_ns <= ? OR "
      "(reminded = 0 AND end_ns <= ?))",
      "ii", now, now + 7 * VT_DAY);
  if (!st) {
    while (vt_rows_next(rows)) {
      due_grant g = {vt_arena_copy(&arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0))),
                     vt_arena_copy(&arena, vt_rows_text(rows, 1), strlen(vt_rows_text(rows, 1))),
                     vt_rows_int(rows, 2), json_loads(vt_rows_text(rows, 3), 0, NULL)};
      vt_array_push_in(&arena, &list, g);
    }
    st = vt_rows_end(rows);
  }
  for (size_t i = 0; i < list.size; i++) {
    const due_grant *g = &list.data[i];
    if (!st && g->end_ns <= now) st = end_grant(cloud, &arena, g);
    if (!st && g->end_ns > now) {
      st = vt_store_run(cloud->store, NULL, "UPDATE grants SET reminded = 1 WHERE id = ?", "s",
                        g->id);
      if (!st)
        st = vt_cloud_event(cloud, "grant", g->project, "vtpud", g->id,
                            "the grant ends within 7 days");
    }
    json_decref(g->body);
  }
  vt_arena_free(&arena);
  return st;
}

// --- calls ---------------------------------------------------------------------------------------

vt_status vt_grants_apply(vt_call *call) {
  const char *project = json_string_value(json_object_get(call->body, "project"));
  const char *purpose = json_string_value(json_object_get(call->body, "purpose"));
  json_t *items = json_object_get(call->body, "items");
  int64_t days;
  VT_TRY(vt_call_integer(call, "days", 1, MAX_DAYS, 0, &days));
  if (!project || !*project) return vt_error(VT_INVALID_ARGUMENT, "project is required");
  if (!purpose || strlen(purpose) < 10 || strlen(purpose) > 4000)
    return vt_error(VT_INVALID_ARGUMENT,
                    "purpose: 10 to 4000 characters on what the chips are for");
  if (!days) return vt_error(VT_INVALID_ARGUMENT, "days has to be 1 to %d", MAX_DAYS);
  VT_TRY(vt_account_find_project(call, project));
  VT_TRY(check_items(items));
  char id[16] = "grant-", *text;
  vt_cloud_random_hex(id + 6, 8);
  json_t *body =
      json_pack("{s:s, s:I, s:O}", "purpose", purpose, "days", (json_int_t)days, "items", items);
  text = vt_json_text(body, JSON_COMPACT);
  json_decref(body);
  const vt_grants_row row = {.id = id,
                             .applicant = call->caller,
                             .project = call->project,
                             .state = "PENDING",
                             .created_ns = vt_cloud_now(call->cloud),
                             .body = text};
  vt_status st = vt_row_insert(call->cloud->store, grants, &row);
  vt_memory_free(text);
  if (st) return st;
  call->reply = json_pack("{s:s, s:s}", "id", id, "state", "PENDING");
  return VT_OK;
}

vt_status vt_grants_list(vt_call *call) {
  bool all = strcmp(call->caller_role, "admin") == 0 || strcmp(call->caller_role, "reviewer") == 0;
  vt_rows *rows;
  VT_TRY(vt_row_select(call->cloud->store, &rows, &vt_table_grants,
                       "WHERE ? = 1 OR applicant = ? ORDER BY created_ns DESC, id LIMIT 500", "is",
                       (int64_t)all, call->caller));
  json_t *list = json_array();
  while (vt_rows_next(rows)) {
    vt_grants_row g;
    vt_row_read(rows, &vt_table_grants, &call->arena, &g);
    json_array_append_new(list, view(&g));
  }
  call->reply = json_pack("{s:o}", "grants", list);
  return vt_rows_end(rows);
}

static vt_status decide(vt_call *call, bool approve) {
  const char *id = vt_call_param(call, "grant");
  vt_grants_row g;
  bool found;
  VT_TRY(vt_row_load(call->cloud->store, &call->arena, &vt_table_grants, &g, &found, "WHERE id = ?",
                     "s", id));
  if (!found) return vt_call_not_found(call, vt_arena_printf(&call->arena, "grants/%s", id));
  if (strcmp(g.state, "PENDING") != 0)
    return vt_error(VT_FAILED_PRECONDITION, "the application is %s already", g.state);
  vt_status st = VT_OK;
  json_t *body = json_loads(g.body, 0, NULL);
  // A reviewer may grant other chips than requested.
  json_t *other = json_object_get(call->body, "items");
  if (other) json_object_set(body, "items", other);
  const json_t *items = json_object_get(body, "items");
  char *text = NULL;
  int64_t now = vt_cloud_now(call->cloud), days = json_integer_value(json_object_get(body, "days"));
  VT_TRY_OUT(vt_call_integer(call, "days", 1, MAX_DAYS, days, &days));
  VT_TRY_OUT(check_items(items));
  json_object_set_new(body, "days", json_integer((json_int_t)days));
  g.state = approve ? "APPROVED" : "REJECTED";
  g.reviewer = call->caller;
  g.start_ns = approve ? now : 0;
  g.end_ns = approve ? now + days * VT_DAY : 0;
  g.body = text = vt_json_text(body, JSON_COMPACT);
  VT_TRY_OUT(vt_row_update(call->cloud->store, grants, &g, NULL));
  if (approve) VT_TRY_OUT(apply(call->cloud, g.project, items, 1));
  VT_TRY_OUT(vt_cloud_event(call->cloud, "grant", g.project, call->caller, id,
                            approve ? "approved" : "rejected"));
  call->reply = json_pack("{s:s, s:s}", "id", id, "state", g.state);
out:
  vt_memory_free(text);
  json_decref(body);
  return st;
}

vt_status vt_grants_approve(vt_call *call) {
  return decide(call, true);
}
vt_status vt_grants_reject(vt_call *call) {
  return decide(call, false);
}
