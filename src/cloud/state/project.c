// SPDX-License-Identifier: Apache-2.0
// project.c - projects and their IAM policies, in the form of Resource Manager.
#include <stdio.h>
#include <string.h>

#include "cloud/api/account.h"
#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/store/row.h"

static json_t *project_row(const vt_rows *rows) {
  char number[24], created[40];
  snprintf(number, sizeof number, "%lld", (long long)vt_rows_int(rows, 1));
  vt_time_format(vt_rows_int(rows, 3), created);
  return json_pack("{s:s, s:s, s:s, s:s, s:s}", "projectId", vt_rows_text(rows, 0), "projectNumber",
                   number, "name", vt_rows_text(rows, 2), "lifecycleState", "ACTIVE", "createTime",
                   created);
}

vt_status vt_projects_get(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT id, number, display_name, created_ns FROM projects WHERE id = ?",
                        "s", call->project));
  if (vt_rows_next(rows)) call->reply = project_row(rows);
  return vt_rows_end(rows);
}

vt_status vt_projects_list(vt_call *call) {
  vt_rows *rows;
  const char *user = vt_arena_printf(&call->arena, "user:%s", call->caller);
  const char *service = vt_arena_printf(&call->arena, "serviceAccount:%s", call->caller);
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT id, number, display_name, created_ns FROM projects WHERE ? = "
                        "'admin' OR id IN (SELECT project "
                        "FROM members WHERE member = ? OR member = ?) ORDER BY id",
                        "sss", call->caller_role, user, service));
  json_t *list = json_array();
  while (vt_rows_next(rows)) json_array_append_new(list, project_row(rows));
  call->reply = json_pack("{s:o}", "projects", list);
  return vt_rows_end(rows);
}

vt_status vt_projects_create(vt_call *call) {
  const char *id = json_string_value(json_object_get(call->body, "projectId"));
  const char *name = json_string_value(json_object_get(call->body, "name"));
  int64_t number, taken;
  if (!id || !vt_check_id(id))
    return vt_error(VT_INVALID_ARGUMENT,
                    "projectId has 4 to 30 lower-case letters, digits and hyphens, a letter first");
  VT_TRY(vt_check_text("name", json_object_get(call->body, "name"), VT_MAX_DISPLAY_NAME));
  VT_TRY(
      vt_store_int(call->cloud->store, &taken, 0, "SELECT 1 FROM projects WHERE id = ?", "s", id));
  if (taken) return vt_error(VT_ALREADY_EXISTS, "Requested entity already exists");
  VT_TRY(vt_cloud_next(call->cloud, "projects", &number));
  const vt_projects_row row = {.id = id,
                               .number = 100000000000 + number,
                               .display_name = name ? name : id,
                               .policy_etag = 1,
                               .billing_account = "",
                               .personality = "faithful",
                               .metadata = "{}",
                               .metadata_version = 1,
                               .created_ns = vt_cloud_now(call->cloud)};
  VT_TRY(vt_row_insert(call->cloud->store, projects, &row));
  const vt_members_row owner = {
      id, "roles/owner",
      vt_arena_printf(&call->arena, "%s:%s",
                      strcmp(call->caller_role, "service") == 0 ? "serviceAccount" : "user",
                      call->caller)};
  VT_TRY(vt_row_insert(call->cloud->store, members, &owner));
  call->reply = json_pack(
      "{s:s, s:b, s:{s:s, s:s}}", "name", vt_arena_printf(&call->arena, "operations/cp.%s", id),
      "done", 1, "response", "@type", "type.googleapis.com/google.cloudresourcemanager.v1.Project",
      "projectId", id);
  return VT_OK;
}

static vt_status policy_view(vt_call *call) {
  vt_rows *rows;
  int64_t etag;
  VT_TRY(vt_store_int(call->cloud->store, &etag, 1, "SELECT policy_etag FROM projects WHERE id = ?",
                      "s", call->project));
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT role, member FROM members WHERE project = ? ORDER BY role, member",
                        "s", call->project));
  json_t *bindings = json_array(), *last = NULL;
  while (vt_rows_next(rows)) {
    if (!last ||
        strcmp(json_string_value(json_object_get(last, "role")), vt_rows_text(rows, 0)) != 0) {
      last = json_pack("{s:s, s:[]}", "role", vt_rows_text(rows, 0), "members");
      json_array_append_new(bindings, last);
    }
    json_array_append_new(json_object_get(last, "members"), json_string(vt_rows_text(rows, 1)));
  }
  char text[16];
  snprintf(text, sizeof text, "BwXe%08llx", (long long)etag & 0xffffffff);
  call->reply = json_pack("{s:i, s:s, s:o}", "version", 1, "etag", text, "bindings", bindings);
  return vt_rows_end(rows);
}

vt_status vt_projects_get_policy(vt_call *call) {
  return policy_view(call);
}

static bool member_valid(const char *member) {
  const char *colon = strchr(member, ':');
  return colon && strlen(member) < 300 &&
         (strncmp(member, "user:", 5) == 0 || strncmp(member, "serviceAccount:", 15) == 0 ||
          strncmp(member, "group:", 6) == 0);
}

vt_status vt_projects_set_policy(vt_call *call) {
  json_t *policy = json_object_get(call->body, "policy"),
         *bindings = json_object_get(policy, "bindings"), *binding, *member;
  const char *etag = json_string_value(json_object_get(policy, "etag"));
  size_t i, j;
  bool owned = false;
  VT_TRY(policy_view(call));
  bool stale =
      etag && *etag && strcmp(etag, json_string_value(json_object_get(call->reply, "etag"))) != 0;
  json_decref(call->reply);
  call->reply = NULL;
  if (stale)
    return vt_error(VT_ABORTED, "There were concurrent policy changes. Please retry the whole "
                                "read-modify-write with exponential backoff.");
  if (!json_is_array(bindings)) return vt_error(VT_INVALID_ARGUMENT, "policy.bindings is required");
  VT_TRY(vt_store_run(call->cloud->store, NULL, "DELETE FROM members WHERE project = ?", "s",
                      call->project));
  json_array_foreach(bindings, i, binding) {
    const char *role = json_string_value(json_object_get(binding, "role"));
    if (!role || strncmp(role, "roles/", 6) != 0)
      return vt_error(VT_INVALID_ARGUMENT, "Invalid role in bindings[%zu]", i);
    json_array_foreach(json_object_get(binding, "members"), j, member) {
      const char *text = json_string_value(member);
      if (!text || !member_valid(text))
        return vt_error(VT_INVALID_ARGUMENT, "Invalid member in bindings[%zu]", i);
      if (strcmp(role, "roles/owner") == 0) owned = true;
      const vt_members_row row = {.project = call->project, .role = role, .member = text};
      VT_TRY(vt_row_add(call->cloud->store, members, &row));
    }
  }
  if (!owned) return vt_error(VT_INVALID_ARGUMENT, "A project keeps at least one owner.");
  VT_TRY(vt_store_run(call->cloud->store, NULL,
                      "UPDATE projects SET policy_etag = policy_etag + 1 WHERE id = ?", "s",
                      call->project));
  return policy_view(call);
}

vt_status vt_projects_test_permissions(vt_call *call) {
  json_t *list = json_array(), *item;
  size_t i;
  json_array_foreach(json_object_get(call->body, "permissions"), i, item) {
    bool has = false;
    if (json_is_string(item)) VT_TRY(vt_account_has(call, json_string_value(item), &has));
    if (has) json_array_append(list, item);
  }
  call->reply = json_pack("{s:o}", "permissions", list);
  return VT_OK;
}

vt_status vt_done_operation(vt_call *call) {
  call->reply =
      json_pack("{s:s, s:b, s:{}}", "name",
                vt_arena_printf(&call->arena, "operations/%s", vt_call_param(call, "operation")),
                "done", 1, "response");
  return VT_OK;
}
