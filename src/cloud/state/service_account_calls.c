// SPDX-License-Identifier: Apache-2.0
// service_account_calls.c - service accounts and their keys, in the form of IAM.
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/state/service_account.h"
#include "cloud/store/json.h"

static json_t *sa_view(vt_call *call, const char *email, const char *name, const char *unique) {
  return json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:s}", "name",
      vt_arena_printf(&call->arena, "projects/%s/serviceAccounts/%s", call->project, email),
      "projectId", call->project, "uniqueId", unique, "email", email, "displayName", name,
      "oauth2ClientId", unique);
}

static vt_status find_sa(vt_call *call, const char *email) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT display_name, unique_id FROM accounts WHERE email = ? AND kind = "
                        "'service' AND project = ?",
                        "ss", email, call->project));
  bool found = vt_rows_next(rows);
  if (found) call->reply = sa_view(call, email, vt_rows_text(rows, 0), vt_rows_text(rows, 1));
  VT_TRY(vt_rows_end(rows));
  if (found) return VT_OK;
  return vt_call_not_found(
      call, vt_arena_printf(&call->arena, "projects/%s/serviceAccounts/%s", call->project, email));
}

vt_status vt_sa_get(vt_call *call) {
  return find_sa(call, vt_call_param(call, "email"));
}

vt_status vt_sa_list(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT email, display_name, unique_id FROM accounts WHERE kind = "
                        "'service' AND project = ? ORDER BY email",
                        "s", call->project));
  json_t *list = json_array();
  while (vt_rows_next(rows))
    json_array_append_new(
        list, sa_view(call, vt_rows_text(rows, 0), vt_rows_text(rows, 1), vt_rows_text(rows, 2)));
  call->reply = json_pack("{s:o}", "accounts", list);
  return vt_rows_end(rows);
}

vt_status vt_sa_create(vt_call *call) {
  const char *id = json_string_value(json_object_get(call->body, "accountId"));
  const char *name = json_string_value(
      json_object_get(json_object_get(call->body, "serviceAccount"), "displayName"));
  int64_t taken;
  if (!id || !vt_check_id(id))
    return vt_error(VT_INVALID_ARGUMENT,
                    "accountId has 4 to 30 lower-case letters, digits and hyphens");
  VT_TRY(
      vt_check_text("serviceAccount.displayName",
                    json_object_get(json_object_get(call->body, "serviceAccount"), "displayName"),
                    VT_MAX_DISPLAY_NAME));
  const char *email =
      vt_arena_printf(&call->arena, "%s@%s.iam.gserviceaccount.com", id, call->project);
  VT_TRY(vt_store_int(call->cloud->store, &taken, 0, "SELECT 1 FROM accounts WHERE email = ?", "s",
                      email));
  if (taken)
    return vt_call_exists(call, vt_arena_printf(&call->arena, "projects/%s/serviceAccounts/%s",
                                                call->project, email));
  VT_TRY(vt_account_create(call->cloud, email, "service", "user", call->project, name ? name : ""));
  return find_sa(call, email);
}

vt_status vt_sa_delete(vt_call *call) {
  const char *email = vt_call_param(call, "email");
  VT_TRY(find_sa(call, email));
  VT_TRY(vt_sa_remove(call, email));
  json_object_clear(call->reply);
  return VT_OK;
}

static const char *key_name(vt_call *call, const char *id) {
  return vt_arena_printf(&call->arena, "projects/%s/serviceAccounts/%s/keys/%s", call->project,
                         vt_call_param(call, "email"), id);
}

static void drop_reply(vt_call *call) {
  json_decref(call->reply);
  call->reply = NULL;
}

vt_status vt_sa_keys_list(vt_call *call) {
  vt_rows *rows;
  VT_TRY(find_sa(call, vt_call_param(call, "email")));
  drop_reply(call);
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT id, created_ns FROM sa_keys WHERE email = ? ORDER BY id", "s",
                        vt_call_param(call, "email")));
  json_t *list = json_array();
  while (vt_rows_next(rows)) {
    char created[40];
    vt_time_format(vt_rows_int(rows, 1), created);
    json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name",
                                          key_name(call, vt_rows_text(rows, 0)), "validAfterTime",
                                          created, "keyAlgorithm", "KEY_ALG_RSA_2048"));
  }
  call->reply = json_pack("{s:o}", "keys", list);
  return vt_rows_end(rows);
}

// The key file that clients load: gcloud's format, with our own token endpoint and universe.
vt_status vt_sa_keys_create(vt_call *call) {
  const char *email = vt_call_param(call, "email"), *base = vt_call_base_url(call);
  char id[41], *pem = NULL;
  VT_TRY(find_sa(call, email));
  const char *unique = vt_arena_printf(&call->arena, "%s",
                                       json_string_value(json_object_get(call->reply, "uniqueId")));
  drop_reply(call);
  vt_status st = vt_sa_key_create(call->cloud, email, &pem, id);
  if (st) {
    free(pem);
    return st;
  }
  json_t *file = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "type",
                           "service_account", "project_id", call->project, "private_key_id", id,
                           "private_key", pem, "client_email", email, "client_id", unique,
                           "auth_uri", vt_arena_printf(&call->arena, "%s/o/oauth2/auth", base),
                           "token_uri", vt_arena_printf(&call->arena, "%s/token", base),
                           "universe_domain", call->cloud->options.universe);
  free(pem);
  char *text = vt_json_text(file, JSON_INDENT(2));
  json_decref(file);
  const char *encoded =
      vt_call_page_token(call, text, ""); // base64 with the URL alphabet and a final newline
  vt_memory_free(text);
  char *plain = vt_arena_copy(&call->arena, encoded, strlen(encoded));
  for (char *p = plain; *p; p++) *p = *p == '-' ? '+' : *p == '_' ? '/' : *p;
  call->reply = json_pack("{s:s, s:s, s:s, s:s}", "name", key_name(call, id), "privateKeyType",
                          "TYPE_GOOGLE_CREDENTIALS_FILE", "privateKeyData", plain, "keyAlgorithm",
                          "KEY_ALG_RSA_2048");
  return VT_OK;
}

vt_status vt_sa_keys_delete(vt_call *call) {
  VT_TRY(find_sa(call, vt_call_param(call, "email")));
  json_object_clear(call->reply);
  int64_t gone;
  VT_TRY(vt_store_run(call->cloud->store, &gone, "DELETE FROM sa_keys WHERE email = ? AND id = ?",
                      "ss", vt_call_param(call, "email"), vt_call_param(call, "key")));
  if (!gone) return vt_call_not_found(call, key_name(call, vt_call_param(call, "key")));
  return vt_token_revoke_from(call->cloud,
                              vt_arena_printf(&call->arena, "key:%s", vt_call_param(call, "key")));
}
