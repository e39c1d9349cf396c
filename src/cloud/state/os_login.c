// SPDX-License-Identifier: Apache-2.0
// os_login.c - OS Login: profiles of accounts with their POSIX name and ssh keys, and who may log
// in to which project's workers.
// In:  keys that users put into their own profile.
// Out: for a project whose metadata (or a node whose metadata) says enable-oslogin=TRUE, accounts
// of the workers; ssh-keys in the metadata are ignored there.
// A name follows from the e-mail address: user@example.com is user_example_com, a service account
// is sa_ and its number. compute.instances.osLogin allows login, compute.instances.osAdminLogin
// adds root.
#include "cloud/state/os_login.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/map.h"
#include "cloud/api/account.h"
#include "cloud/api/handlers.h"
#include "cloud/api/login_name.h"
#include "cloud/state/service_account.h"
#include "cloud/store/row.h"

enum { MAX_NAME = 32, MAX_KEY = 16 << 10, MAX_KEYS = 64 };

bool vt_os_login_on(const vt_node *node, const json_t *project_metadata) {
  const json_t *own = json_object_get(json_object_get(node->body, "metadata"), "enable-oslogin");
  const char *value =
      json_string_value(own ? own : json_object_get(project_metadata, "enable-oslogin"));
  return value && strcasecmp(value, "true") == 0;
}

// --- names ---------------------------------------------------------------------------------------

// Two addresses can give the same name; the older account keeps it, the other one gets a suffix.
// Characters other than letters and digits become '_', which in LIKE also matches any character.
static vt_status user_name(vt_cloud *cloud, vt_arena *arena, const char *email, const char *kind,
                           const char *unique_id, const char **out_name) {
  char name[MAX_NAME + 1];
  size_t n = 0;
  vt_rows *rows;
  if (strcmp(kind, "service") == 0) {
    *out_name = vt_arena_printf(arena, "sa_%s", unique_id);
    return VT_OK;
  }
  for (const char *p = email; *p && n < MAX_NAME; p++)
    name[n++] = isalnum((unsigned char)*p) ? (char)tolower((unsigned char)*p) : '_';
  name[n] = 0;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT email FROM accounts WHERE kind = 'user' AND LOWER(email) LIKE ? "
                        "ORDER BY created_ns, email LIMIT 1",
                        "s", vt_arena_printf(arena, "%s%s", name, n == MAX_NAME ? "%" : "")));
  bool mine = !vt_rows_next(rows) || strcmp(vt_rows_text(rows, 0), email) == 0;
  VT_TRY(vt_rows_end(rows));
  const char *first = isalpha((unsigned char)*name) ? "" : "u";
  if (mine)
    *out_name = vt_arena_printf(arena, "%s%.*s", first, MAX_NAME - (int)strlen(first), name);
  else
    *out_name = vt_arena_printf(arena, "%s%.24s_%06x", first, name,
                                (unsigned)(vt_hash_bytes(email, strlen(email), 3) & 0xffffff));
  return VT_OK;
}

vt_status vt_os_login_user(vt_cloud *cloud, vt_arena *arena, const char *email,
                           const char **out_name) {
  vt_rows *rows;
  const char *kind = "", *unique = "";
  VT_TRY(vt_store_query(cloud->store, &rows, "SELECT kind, unique_id FROM accounts WHERE email = ?",
                        "s", email));
  if (vt_rows_next(rows)) {
    kind = vt_arena_copy(arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0)));
    unique = vt_arena_copy(arena, vt_rows_text(rows, 1), strlen(vt_rows_text(rows, 1)));
  }
  VT_TRY(vt_rows_end(rows));
  return user_name(cloud, arena, email, kind, unique, out_name);
}

vt_status vt_os_login_keys(vt_cloud *cloud, vt_arena *arena, const char *project,
                           vt_login_keys *out_keys) {
  typedef struct row {
    const char *email, *key, *kind, *unique_id;
    bool in, admin, acts;
  } row;
  VT_ARRAY(row) list = {0};
  vt_rows *rows;
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT k.email, k.key, a.kind, a.unique_id, a.role, m.role FROM login_keys k JOIN accounts "
      "a ON a.email = k.email AND a.disabled = 0 LEFT JOIN members m ON m.project = ? AND "
      "m.member = CASE a.kind WHEN 'service' THEN 'serviceAccount:' ELSE 'user:' END || k.email "
      "WHERE (k.expires_ns = 0 OR k.expires_ns > ?) AND (a.role = 'admin' OR m.role IS NOT NULL) "
      "ORDER BY k.email, k.fingerprint",
      "si", project, vt_cloud_now(cloud)));
  while (vt_rows_next(rows)) {
    const char *text[4];
    const char *role = vt_rows_text(rows, 5);
    bool all = strcmp(vt_rows_text(rows, 4), "admin") == 0;
    for (int i = 0; i < 4; i++)
      text[i] = vt_arena_copy(arena, vt_rows_text(rows, i), strlen(vt_rows_text(rows, i)));
    row r = {text[0],
             text[1],
             text[2],
             text[3],
             all || vt_role_allows(role, "compute.instances.osLogin"),
             all || vt_role_allows(role, "compute.instances.osAdminLogin"),
             all || vt_role_allows(role, VT_ACT_AS)};
    row *last = list.size ? &list.data[list.size - 1] : NULL;
    if (last && strcmp(last->email, r.email) == 0 && strcmp(last->key, r.key) == 0) {
      last->in |= r.in; // another role of the same account
      last->admin |= r.admin;
      last->acts |= r.acts;
    } else {
      vt_array_push_in(arena, &list, r);
    }
  }
  VT_TRY(vt_rows_end(rows));
  for (size_t i = 0; i < list.size; i++) {
    const row *r = &list.data[i];
    vt_login_key key = {.email = r->email, .key = r->key, .admin = r->admin};
    // Logging in to a worker means acting as its service account.
    if ((!r->in && !r->admin) || !r->acts) continue;
    if (i && strcmp(list.data[i - 1].email, r->email) == 0 && out_keys->size)
      key.user = out_keys->data[out_keys->size - 1].user;
    else
      VT_TRY(user_name(cloud, arena, r->email, r->kind, r->unique_id, &key.user));
    vt_array_push_in(arena, out_keys, key);
  }
  return VT_OK;
}

// --- keys ----------------------------------------------------------------------------------------

// "ssh-ed25519 AAAA... comment", one line: the text is copied into files that sshd reads. The
// fingerprint is the SHA-256 of the decoded key.
static bool key_fingerprint(const char *key, char out_hex[65]) {
  static const char *const types[] = {"ssh-ed25519 ", "ssh-rsa ", "ecdsa-sha2-nistp",
                                      "sk-ssh-ed25519@openssh.com ", "sk-ecdsa-sha2-nistp"};
  static unsigned char blob[MAX_KEY];
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  bool known = false;
  if (strlen(key) > MAX_KEY || strpbrk(key, "\r\n")) return false;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strncmp(key, types[i], strlen(types[i])) == 0) known = true;
  const char *text = strchr(key, ' ');
  if (!known || !text) return false;
  text++;
  size_t n = strcspn(text, " ");
  int got = n >= 32 && n % 4 == 0 ? EVP_DecodeBlock(blob, (const unsigned char *)text, (int)n) : -1;
  while (got > 0 && n > 0 && text[n - 1] == '=') n--, got--;
  if (got < 16 || EVP_Digest(blob, (size_t)got, sum, &size, EVP_sha256(), NULL) != 1) return false;
  for (unsigned i = 0; i < size && i < 32; i++) snprintf(out_hex + 2 * i, 3, "%02x", sum[i]);
  return true;
}

static json_t *key_view(vt_call *call, const char *email, const vt_rows *rows) {
  int64_t expires = vt_rows_int(rows, 2);
  json_t *view = json_pack(
      "{s:s, s:s, s:s}", "fingerprint", vt_rows_text(rows, 0), "key", vt_rows_text(rows, 1), "name",
      vt_arena_printf(&call->arena, "users/%s/sshPublicKeys/%s", email, vt_rows_text(rows, 0)));
  if (expires)
    json_object_set_new(
        view, "expirationTimeUsec",
        json_string(vt_arena_printf(&call->arena, "%lld", (long long)(expires / 1000))));
  return view;
}

static vt_status find_key(vt_call *call, const char *email, const char *fingerprint) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT fingerprint, key, expires_ns FROM login_keys WHERE email = ? AND "
                        "fingerprint = ?",
                        "ss", email, fingerprint));
  json_t *view = vt_rows_next(rows) ? key_view(call, email, rows) : NULL;
  json_decref(call->reply);
  call->reply = view;
  VT_TRY(vt_rows_end(rows));
  return view ? VT_OK
              : vt_call_not_found(call, vt_arena_printf(&call->arena, "users/%s/sshPublicKeys/%s",
                                                        email, fingerprint));
}

// expirationTimeUsec of a key, 0 = never; a string or a number.
static vt_status read_expiry(const json_t *body, int64_t *out_ns) {
  const json_t *value = json_object_get(body, "expirationTimeUsec");
  int64_t usec = 0;
  *out_ns = 0;
  if (!value || json_is_null(value)) return VT_OK;
  if (!vt_json_integer(value, &usec) || usec < 0 || !vt_mul(usec, 1000, out_ns))
    return vt_error(VT_INVALID_ARGUMENT, "Invalid value at 'ssh_public_key.expiration_time_usec'");
  return VT_OK;
}

static vt_status put_key(vt_call *call, const char *email, const json_t *body,
                         char out_fingerprint[65]) {
  const char *key = json_string_value(json_object_get(body, "key"));
  int64_t count, expires_ns;
  VT_TRY(read_expiry(body, &expires_ns));
  char *trimmed = key ? vt_arena_copy(&call->arena, key, strlen(key)) : NULL;
  for (size_t n = trimmed ? strlen(trimmed) : 0; n && strchr("\r\n ", trimmed[n - 1]);)
    trimmed[--n] = 0;
  if (!trimmed || !key_fingerprint(trimmed, out_fingerprint))
    return vt_error(VT_INVALID_ARGUMENT, "Invalid value at 'ssh_public_key.key': an OpenSSH public "
                                         "key is required, as in a file id_ed25519.pub");
  VT_TRY(vt_store_int(call->cloud->store, &count, 0,
                      "SELECT COUNT(*) FROM login_keys WHERE email = ? AND fingerprint <> ?", "ss",
                      email, out_fingerprint));
  if (count >= MAX_KEYS)
    return vt_error(VT_RESOURCE_EXHAUSTED, "a login profile has at most %d keys; delete some",
                    (int)MAX_KEYS);
  const vt_login_keys_row row = {
      .email = email, .fingerprint = out_fingerprint, .key = trimmed, .expires_ns = expires_ns};
  return vt_row_put(call->cloud->store, login_keys, &row);
}

// --- calls ---------------------------------------------------------------------------------------

// The account in the path: the caller's own, or any for an administrator.
static vt_status find_user(vt_call *call, const char **out_email, const char **out_kind,
                           const char **out_unique) {
  const char *email = vt_call_param(call, "user");
  vt_rows *rows;
  bool found = false;
  if (strcmp(call->caller_role, "admin") != 0 && strcasecmp(email, call->caller) != 0)
    return vt_error(VT_PERMISSION_DENIED, "The caller does not have permission on users/%s.",
                    email);
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT email, kind, unique_id FROM accounts WHERE LOWER(email) = LOWER(?)",
                        "s", email));
  if (vt_rows_next(rows)) {
    const char **out[] = {out_email, out_kind, out_unique};
    found = true;
    for (int i = 0; i < 3; i++)
      *out[i] = vt_arena_copy(&call->arena, vt_rows_text(rows, i), strlen(vt_rows_text(rows, i)));
  }
  VT_TRY(vt_rows_end(rows));
  return found ? VT_OK : vt_call_not_found(call, vt_arena_printf(&call->arena, "users/%s", email));
}

static vt_status list_keys(vt_call *call, const char *email, json_t **out_map) {
  vt_rows *rows;
  *out_map = json_object();
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT fingerprint, key, expires_ns FROM login_keys WHERE email = ? ORDER "
                        "BY fingerprint",
                        "s", email));
  while (vt_rows_next(rows))
    json_object_set_new(*out_map, vt_rows_text(rows, 0), key_view(call, email, rows));
  return vt_rows_end(rows);
}

static vt_status profile(vt_call *call, const char *email, const char *kind, const char *unique,
                         json_t **out_profile) {
  const char *name, *project = vt_call_query(call, "projectId");
  json_t *keys;
  VT_TRY(user_name(call->cloud, &call->arena, email, kind, unique, &name));
  vt_status st = list_keys(call, email, &keys);
  int64_t id = 0;
  if (!st) st = vt_login_id_known(call->cloud, project ? project : "", name, &id);
  const char *uid = vt_arena_printf(&call->arena, "%lld", (long long)id);
  *out_profile = json_pack(
      "{s:s, s:[{s:b, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}], s:o}", "name", unique,
      "posixAccounts", "primary", 1, "username", name, "uid", uid, "gid", uid, "homeDirectory",
      vt_arena_printf(&call->arena, "/home/%s", name), "shell", "/bin/bash", "operatingSystemType",
      "LINUX", "accountId", project ? project : "", "name",
      vt_arena_printf(&call->arena, "users/%s/projects/%s", email, project ? project : "-"),
      "sshPublicKeys", keys);
  return st;
}

vt_status vt_os_login_profile(vt_call *call) {
  const char *email, *kind, *unique;
  VT_TRY(find_user(call, &email, &kind, &unique));
  return profile(call, email, kind, unique, &call->reply);
}

vt_status vt_os_login_import(vt_call *call) {
  const char *email, *kind, *unique;
  char fingerprint[65];
  json_t *view = NULL;
  // gcloud sends the key itself, the documentation has it inside a message.
  const json_t *inner = json_object_get(call->body, "sshPublicKey");
  VT_TRY(find_user(call, &email, &kind, &unique));
  VT_TRY(put_key(call, email, inner ? inner : call->body, fingerprint));
  vt_status st = profile(call, email, kind, unique, &view);
  call->reply = json_pack("{s:o}", "loginProfile", view);
  return st;
}

vt_status vt_os_login_keys_list(vt_call *call) {
  const char *email, *kind, *unique, *fingerprint;
  json_t *keys, *key, *list = json_array();
  call->reply = json_pack("{s:o}", "sshPublicKeys", list);
  VT_TRY(find_user(call, &email, &kind, &unique));
  vt_status st = list_keys(call, email, &keys);
  json_object_foreach(keys, fingerprint, key) json_array_append(list, key);
  json_decref(keys);
  return st;
}

vt_status vt_os_login_keys_create(vt_call *call) {
  const char *email, *kind, *unique;
  char fingerprint[65];
  VT_TRY(find_user(call, &email, &kind, &unique));
  VT_TRY(put_key(call, email, call->body, fingerprint));
  return find_key(call, email, fingerprint);
}

vt_status vt_os_login_keys_get(vt_call *call) {
  const char *email, *kind, *unique;
  VT_TRY(find_user(call, &email, &kind, &unique));
  return find_key(call, email, vt_call_param(call, "key"));
}

// A key is identified by its fingerprint; only its expiry and comment can change.
vt_status vt_os_login_keys_patch(vt_call *call) {
  const char *email, *kind, *unique, *old = vt_call_param(call, "key"),
                                     *mask = vt_call_query(call, "updateMask");
  char fingerprint[65];
  VT_TRY(find_user(call, &email, &kind, &unique));
  VT_TRY(find_key(call, email, old));
  json_t *body = json_deep_copy(call->reply);
  if (!mask || strstr(mask, "key"))
    if (json_object_get(call->body, "key"))
      json_object_set(body, "key", json_object_get(call->body, "key"));
  if (!mask || strstr(mask, "expirationTimeUsec") || strstr(mask, "expiration_time_usec")) {
    json_object_del(body, "expirationTimeUsec");
    if (json_object_get(call->body, "expirationTimeUsec"))
      json_object_set(body, "expirationTimeUsec",
                      json_object_get(call->body, "expirationTimeUsec"));
  }
  vt_status st = put_key(call, email, body, fingerprint);
  json_decref(body);
  if (!st && strcmp(fingerprint, old) != 0)
    st = vt_error(VT_INVALID_ARGUMENT,
                  "another key has another fingerprint; delete this one and create that");
  return st ? st : find_key(call, email, old);
}

vt_status vt_os_login_keys_delete(vt_call *call) {
  const char *email, *kind, *unique;
  VT_TRY(find_user(call, &email, &kind, &unique));
  VT_TRY(find_key(call, email, vt_call_param(call, "key")));
  json_object_clear(call->reply);
  return vt_store_run(call->cloud->store, NULL,
                      "DELETE FROM login_keys WHERE email = ? AND fingerprint = ?", "ss", email,
                      vt_call_param(call, "key"));
}
