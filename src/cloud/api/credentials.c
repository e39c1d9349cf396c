// SPDX-License-Identifier: Apache-2.0
// credentials.c - accounts and their credentials: creating, disabling, roles, passwords, and the
// list of tokens with their expiry. Administrators for every account, everybody for their own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/handlers.h"
#include "cloud/api/password.h"
#include "cloud/store/row.h"

enum { ID_SIZE = 16 /* also in the query of revoke_one */, MAX_TOKENS = 1000, MAX_DAYS = 3660 };

static bool role_known(const char *role) {
  return strcmp(role, "admin") == 0 || strcmp(role, "reviewer") == 0 || strcmp(role, "user") == 0;
}

// Printable and without characters that separate names elsewhere (members of policies, lines of
// files).
static bool email_valid(const char *email) {
  const char *at = strchr(email, '@');
  if (!at || at == email || !at[1] || strlen(email) > 254) return false;
  for (const char *p = email; *p; p++)
    if (*p <= ' ' || *p > '~' || strchr("\"'\\:,;<>()/", *p)) return false;
  return true;
}

static vt_status account_view(vt_call *call, const char *email, json_t **out_view) {
  vt_rows *rows;
  *out_view = NULL;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT kind, role, disabled, created_ns, password IS NOT NULL AND "
                        "password <> '' FROM accounts WHERE email = ? AND kind IN ('user', "
                        "'service')",
                        "s", email));
  if (vt_rows_next(rows)) {
    char time[40];
    const char *has = vt_rows_text(rows, 4);
    vt_time_format(vt_rows_int(rows, 3), time);
    *out_view =
        json_pack("{s:s, s:s, s:s, s:b, s:b, s:s}", "email", email, "kind", vt_rows_text(rows, 0),
                  "role", vt_rows_text(rows, 1), "disabled", (int)vt_rows_int(rows, 2),
                  "hasPassword", *has == '1' || *has == 't', "createTime", time);
  }
  VT_TRY(vt_rows_end(rows));
  return *out_view ? VT_OK
                   : vt_call_not_found(call, vt_arena_printf(&call->arena, "accounts/%s", email));
}

// --- accounts ------------------------------------------------------------------------------------

// The reply of a call that creates a token; lifetime 0 = does not expire.
static vt_status reply_token(vt_call *call, const char *email, int64_t days) {
  char *token;
  const vt_token_start start = {email, "access", "", "account", days * VT_DAY};
  VT_TRY(vt_token_create(call->cloud, &start, &token));
  json_object_set_new(call->reply, "token", json_string(token));
  vt_memory_free(token);
  return VT_OK;
}

vt_status vt_admin_account(vt_call *call) {
  const char *email = json_string_value(json_object_get(call->body, "email"));
  const char *role = json_string_value(json_object_get(call->body, "role"));
  const char *password = json_string_value(json_object_get(call->body, "password"));
  char hash[VT_PASSWORD_HASH];
  int64_t taken, days;
  if (!email || !email_valid(email)) return vt_error(VT_INVALID_ARGUMENT, "email is required");
  if (!role) role = "user";
  if (!role_known(role))
    return vt_error(VT_INVALID_ARGUMENT, "role has to be admin, reviewer or user");
  VT_TRY(vt_call_integer(call, "days", 1, MAX_DAYS, 0, &days));
  if (password) VT_TRY(vt_password_hash(call->cloud, password, hash));
  VT_TRY(vt_store_int(call->cloud->store, &taken, 0, "SELECT 1 FROM accounts WHERE email = ?", "s",
                      email));
  if (taken) return vt_error(VT_ALREADY_EXISTS, "the account exists");
  VT_TRY(vt_account_create(call->cloud, email, "user", role, "", ""));
  if (password) VT_TRY(vt_password_store(call->cloud, email, hash));
  call->reply = json_pack("{s:s, s:s}", "email", email, "role", role);
  return reply_token(call, email, days);
}

vt_status vt_admin_accounts_list(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT email, kind, role, disabled FROM accounts WHERE kind IN ('user', "
                        "'service') ORDER BY email LIMIT 1000",
                        ""));
  json_t *items = json_array();
  while (vt_rows_next(rows))
    json_array_append_new(items,
                          json_pack("{s:s, s:s, s:s, s:b}", "email", vt_rows_text(rows, 0), "kind",
                                    vt_rows_text(rows, 1), "role", vt_rows_text(rows, 2),
                                    "disabled", (int)vt_rows_int(rows, 3)));
  call->reply = json_pack("{s:o}", "accounts", items);
  return vt_rows_end(rows);
}

vt_status vt_account_get(vt_call *call) {
  return account_view(call, vt_call_param(call, "email"), &call->reply);
}

static vt_status set_disabled(vt_call *call, const char *email, bool disabled) {
  if (disabled && strcmp(email, call->caller) == 0)
    return vt_error(VT_FAILED_PRECONDITION, "An administrator does not disable their own account.");
  VT_TRY(vt_store_run(call->cloud->store, NULL, "UPDATE accounts SET disabled = ? WHERE email = ?",
                      "is", (int64_t)disabled, email));
  // Permanent: an account that is enabled again has to sign in again.
  return disabled ? vt_token_revoke_all(call->cloud, email) : VT_OK;
}

static vt_status set_role(vt_call *call, const char *email, const char *role) {
  if (!role || !role_known(role))
    return vt_error(VT_INVALID_ARGUMENT, "role has to be admin, reviewer or user");
  if (strcmp(email, call->caller) == 0 && strcmp(role, "admin") != 0)
    return vt_error(VT_FAILED_PRECONDITION, "An administrator does not give up their own role.");
  int64_t changed;
  VT_TRY(vt_store_run(call->cloud->store, &changed,
                      "UPDATE accounts SET role = ? WHERE email = ? AND kind = 'user'", "ss", role,
                      email));
  return changed ? VT_OK
                 : vt_error(VT_FAILED_PRECONDITION, "A service account has the roles of policies.");
}

// {"disabled": true, "role": "user", "password": "..."}, each optional.
vt_status vt_account_patch(vt_call *call) {
  const char *email = vt_call_param(call, "email");
  const json_t *disabled = json_object_get(call->body, "disabled"),
               *role = json_object_get(call->body, "role"),
               *password = json_object_get(call->body, "password");
  char hash[VT_PASSWORD_HASH];
  json_t *view;
  if ((disabled && !json_is_boolean(disabled)) || (password && !json_is_string(password)) ||
      (!disabled && !role && !password))
    return vt_error(VT_INVALID_ARGUMENT, "disabled (true or false), role or password is required");
  VT_TRY(account_view(call, email, &view));
  bool person = strcmp(json_string_value(json_object_get(view, "kind")), "user") == 0;
  json_decref(view);
  if (password && !person)
    return vt_error(VT_FAILED_PRECONDITION, "A service account has keys and no password.");
  if (password) VT_TRY(vt_password_hash(call->cloud, json_string_value(password), hash));
  if (password) VT_TRY(vt_password_store(call->cloud, email, hash));
  if (role) VT_TRY(set_role(call, email, json_string_value(role)));
  if (disabled) VT_TRY(set_disabled(call, email, json_is_true(disabled)));
  return account_view(call, email, &call->reply);
}

// {"password": "...", "oldPassword": "..."}; the old one if there is one.
vt_status vt_me_set_password(vt_call *call) {
  const char *password = json_string_value(json_object_get(call->body, "password")),
             *old = json_string_value(json_object_get(call->body, "oldPassword"));
  char hash[VT_PASSWORD_HASH];
  json_t *view;
  bool right = true;
  if (!password) return vt_error(VT_INVALID_ARGUMENT, "password is required");
  VT_TRY(account_view(call, call->caller, &view));
  bool has = json_is_true(json_object_get(view, "hasPassword")),
       person = strcmp(json_string_value(json_object_get(view, "kind")), "user") == 0;
  json_decref(view);
  if (!person)
    return vt_error(VT_FAILED_PRECONDITION, "A service account has keys and no password.");
  if (has) VT_TRY(vt_password_check(call, call->caller, old ? old : "", &right));
  if (!right) return vt_error(VT_PERMISSION_DENIED, "oldPassword is wrong.");
  VT_TRY(vt_password_hash(call->cloud, password, hash));
  call->reply = json_object();
  return vt_password_store(call->cloud, call->caller, hash);
}

// --- tokens --------------------------------------------------------------------------------------

static const char *origin_shown(const char *origin) {
  return strncmp(origin, "token:", 6) == 0 ? "token" : origin;
}

// A token is identified by the first digits of its hash, which do not allow signing in.
static vt_status list_tokens(vt_call *call, const char *email) {
  vt_rows *rows;
  VT_TRY(vt_store_query(
      call->cloud->store, &rows,
      "SELECT hash, kind, expires_ns, created_ns, origin FROM tokens WHERE email = ? AND "
      "(expires_ns = 0 OR expires_ns > ?) ORDER BY created_ns DESC, hash LIMIT ?",
      "sii", email, vt_cloud_now(call->cloud), (int64_t)MAX_TOKENS));
  json_t *items = json_array();
  while (vt_rows_next(rows)) {
    const char *hash = vt_rows_text(rows, 0);
    char created[40], expires[40];
    vt_time_format(vt_rows_int(rows, 3), created);
    json_t *item = json_pack("{s:s%, s:s, s:s, s:s, s:b}", "id", hash, (size_t)ID_SIZE, "kind",
                             vt_rows_text(rows, 1), "createTime", created, "origin",
                             origin_shown(vt_rows_text(rows, 4)), "current",
                             (int)(strcmp(hash, call->credential) == 0));
    vt_time_format(vt_rows_int(rows, 2), expires);
    if (vt_rows_int(rows, 2)) json_object_set_new(item, "expireTime", json_string(expires));
    json_array_append_new(items, item);
  }
  call->reply = json_pack("{s:o}", "tokens", items);
  return vt_rows_end(rows);
}

static vt_status revoke_one(vt_call *call, const char *email) {
  const char *id = vt_call_param(call, "token"), *hash = "";
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT hash FROM tokens WHERE email = ? AND SUBSTR(hash, 1, 16) = ?", "ss",
                        email, id));
  if (vt_rows_next(rows))
    hash = vt_arena_copy(&call->arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0)));
  VT_TRY(vt_rows_end(rows));
  if (!*hash)
    return vt_call_not_found(call,
                             vt_arena_printf(&call->arena, "accounts/%s/tokens/%s", email, id));
  call->reply = json_object();
  return vt_token_revoke(call->cloud, hash);
}

vt_status vt_account_tokens_list(vt_call *call) {
  json_t *view;
  VT_TRY(account_view(call, vt_call_param(call, "email"), &view));
  json_decref(view);
  return list_tokens(call, vt_call_param(call, "email"));
}

vt_status vt_account_tokens_create(vt_call *call) {
  const char *email = vt_call_param(call, "email");
  int64_t days;
  json_t *view;
  VT_TRY(vt_call_integer(call, "days", 1, MAX_DAYS, 0, &days));
  VT_TRY(account_view(call, email, &view));
  bool disabled = json_is_true(json_object_get(view, "disabled"));
  json_decref(view);
  if (disabled) return vt_error(VT_FAILED_PRECONDITION, "The account is disabled.");
  call->reply = json_pack("{s:s}", "email", email);
  return reply_token(call, email, days);
}

vt_status vt_account_tokens_delete(vt_call *call) {
  return revoke_one(call, vt_call_param(call, "email"));
}

vt_status vt_account_tokens_delete_all(vt_call *call) {
  json_t *view;
  VT_TRY(account_view(call, vt_call_param(call, "email"), &view));
  json_decref(view);
  call->reply = json_object();
  return vt_token_revoke_all(call->cloud, vt_call_param(call, "email"));
}

vt_status vt_me_tokens_list(vt_call *call) {
  return list_tokens(call, call->caller);
}

vt_status vt_me_tokens_delete(vt_call *call) {
  return revoke_one(call, call->caller);
}
