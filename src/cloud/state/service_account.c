// SPDX-License-Identifier: Apache-2.0
// service_account.c - see service_account.h.
#include "cloud/state/service_account.h"

#include <string.h>

#include "cloud/api/account.h"
#include "cloud/store/row.h"

const char *vt_sa_default(const vt_cloud *cloud, vt_arena *arena, int64_t project_number) {
  return vt_arena_printf(arena, "%lld-compute@developer.%s", (long long)project_number,
                         cloud->options.universe);
}

const char *vt_sa_of_node(const vt_cloud *cloud, vt_arena *arena, const json_t *body,
                          int64_t project_number) {
  const char *email =
      json_string_value(json_object_get(json_object_get(body, "serviceAccount"), "email"));
  if (email && *email && strcmp(email, "default") != 0) return email;
  return vt_sa_default(cloud, arena, project_number);
}

static vt_status is_own(vt_call *call, const char *email, bool *out_own) {
  int64_t exists;
  // The default account is created when the first worker asks for it.
  *out_own = strcmp(email, vt_sa_default(call->cloud, &call->arena, call->project_number)) == 0;
  if (*out_own) return VT_OK;
  VT_TRY(vt_store_int(
      call->cloud->store, &exists, 0,
      "SELECT 1 FROM accounts WHERE email = ? AND kind = 'service' AND project = ? AND "
      "disabled = 0",
      "ss", email, call->project));
  *out_own = exists;
  return VT_OK;
}

vt_status vt_sa_may_act(vt_call *call, const json_t *body) {
  bool own, may;
  const char *email = vt_sa_of_node(call->cloud, &call->arena, body, call->project_number);
  VT_TRY(is_own(call, email, &own));
  VT_TRY(vt_account_has(call, VT_ACT_AS, &may));
  if (own && may) return VT_OK;
  vt_call_add_detail(call, json_pack("{s:s, s:s, s:s, s:{s:s}}", "@type",
                                     "type.googleapis.com/google.rpc.ErrorInfo", "reason",
                                     "IAM_PERMISSION_DENIED", "domain", "iam.googleapis.com",
                                     "metadata", "permission", VT_ACT_AS));
  return vt_error(VT_PERMISSION_DENIED,
                  "Permission '" VT_ACT_AS "' denied on service account %s (or it may not exist).",
                  email);
}

// --- tokens of workers ---------------------------------------------------------------------------

// A deleted default account leaves a row that keeps its address from being reused.
#define DELETED "deleted"

static vt_status make_default(vt_cloud *cloud, vt_arena *arena, const char *project,
                              const char *email) {
  int64_t known;
  VT_TRY(
      vt_store_int(cloud->store, &known, 0, "SELECT 1 FROM accounts WHERE email = ?", "s", email));
  if (known) return VT_OK;
  VT_TRY(vt_account_create(cloud, email, "service", "user", project, "default of the guests"));
  const vt_members_row row = {.project = project,
                              .role = "roles/editor",
                              .member = vt_arena_printf(arena, "serviceAccount:%s", email)};
  return vt_row_add(cloud->store, members, &row);
}

static vt_status issue(vt_cloud *cloud, vt_arena *arena, const vt_node *node, const char *email,
                       int64_t project_number, char **out_token) {
  int64_t live;
  if (strcmp(email, vt_sa_default(cloud, arena, project_number)) == 0)
    VT_TRY(make_default(cloud, arena, node->project, email));
  VT_TRY(vt_store_int(cloud->store, &live, 0,
                      "SELECT 1 FROM accounts WHERE email = ? AND kind = 'service' AND project = ? "
                      "AND disabled = 0",
                      "ss", email, node->project));
  if (!live) return VT_OK;
  const vt_token_start start = {.email = email,
                                .kind = "guest",
                                .origin = vt_arena_printf(arena, "node:%lld", (long long)node->uid),
                                .lifetime_ns = VT_HOUR};
  return vt_token_create(cloud, &start, out_token);
}

vt_status vt_sa_issue(vt_cloud *cloud, vt_arena *arena, const vt_node *node, const char *email,
                      int64_t project_number, char **out_token) {
  *out_token = NULL;
  VT_TRY(vt_store_begin(cloud->store));
  vt_status st = issue(cloud, arena, node, email, project_number, out_token);
  if (!st) st = vt_store_commit(cloud->store);
  vt_store_rollback(cloud->store);
  return st;
}

vt_status vt_sa_remove(vt_call *call, const char *email) {
  vt_store *store = call->cloud->store;
  const char *member = vt_arena_printf(&call->arena, "serviceAccount:%s", email);
  bool is_default =
      strcmp(email, vt_sa_default(call->cloud, &call->arena, call->project_number)) == 0;
  VT_TRY(vt_store_run(store, NULL, "DELETE FROM sa_keys WHERE email = ?", "s", email));
  VT_TRY(vt_store_run(store, NULL, "DELETE FROM login_keys WHERE email = ?", "s", email));
  VT_TRY(vt_token_revoke_all(call->cloud, email));
  VT_TRY(vt_store_run(store, NULL, "DELETE FROM members WHERE member = ?", "s", member));
  if (is_default)
    return vt_store_run(store, NULL,
                        "UPDATE accounts SET kind = '" DELETED "', disabled = 1 WHERE email = ?",
                        "s", email);
  return vt_store_run(store, NULL, "DELETE FROM accounts WHERE email = ?", "s", email);
}
