// SPDX-License-Identifier: Apache-2.0
// account.c - identities of calls, project roles, and the rate limit of an account.
#include "cloud/api/account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "cloud/store/row.h"

enum { RATE_SLOTS = 1024 };

struct vt_rate {
  uint64_t account;
  double tokens;
  int64_t at_ns;
};

static const struct role {
  const char *name, *pattern;
} roles[] = {
#define ROLE(name, pattern) {name, pattern},
#include "cloud/api/roles.def"
#undef ROLE
};

// One '*' in a pattern matches any text.
static bool pattern_matches(const char *pattern, const char *text) {
  const char *star = strchr(pattern, '*');
  if (!star) return strcmp(pattern, text) == 0;
  size_t head = (size_t)(star - pattern), tail = strlen(star + 1), n = strlen(text);
  return n >= head + tail && memcmp(pattern, text, head) == 0 &&
         memcmp(star + 1, text + n - tail, tail) == 0;
}

bool vt_role_allows(const char *role, const char *permission) {
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (strcmp(roles[i].name, role) == 0 && pattern_matches(roles[i].pattern, permission))
      return true;
  return false;
}

// --- projects ------------------------------------------------------------------------------------

static vt_status load_project(vt_call *call, const char *project, bool *out_found) {
  vt_rows *rows;
  bool number = *project && strspn(project, "0123456789") == strlen(project);
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT id, number FROM projects WHERE id = ? OR number = ?", "si", project,
                        number ? (int64_t)strtoll(project, NULL, 10) : -1));
  *out_found = vt_rows_next(rows);
  if (*out_found) {
    const char *id = vt_rows_text(rows, 0);
    call->project = vt_arena_copy(&call->arena, id, strlen(id));
    call->project_number = vt_rows_int(rows, 1);
  }
  return vt_rows_end(rows);
}

static vt_status caller_has(vt_call *call, const char *permission, bool any_role, bool *out_has) {
  *out_has = strcmp(call->caller_role, "admin") == 0;
  if (*out_has) return VT_OK;
  const char *member = vt_arena_printf(
      &call->arena, "%s:%s", strcmp(call->caller_role, "service") == 0 ? "serviceAccount" : "user",
      call->caller);
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT role FROM members WHERE project = ? AND member = ?", "ss",
                        call->project, member));
  while (vt_rows_next(rows))
    if (any_role || vt_role_allows(vt_rows_text(rows, 0), permission)) *out_has = true;
  return vt_rows_end(rows);
}

vt_status vt_account_has(vt_call *call, const char *permission, bool *out_has) {
  return caller_has(call, permission, false, out_has);
}

vt_status vt_account_allow(vt_call *call, const char *project, const char *permission) {
  bool found, has = false;
  VT_TRY(load_project(call, project, &found));
  if (found) VT_TRY(caller_has(call, permission, false, &has));
  if (has) return VT_OK;
  const char *asked = vt_arena_printf(&call->arena, "projects/%s", project);
  call->project = "";
  return vt_call_denied(call, permission, asked);
}

vt_status vt_account_find_project(vt_call *call, const char *project) {
  bool found, has = false;
  VT_TRY(load_project(call, project, &found));
  if (found) VT_TRY(caller_has(call, "", true, &has));
  if (has) return VT_OK;
  call->project = "";
  return vt_error(VT_PERMISSION_DENIED,
                  "The caller does not have permission on project '%s', or it does not exist.",
                  project);
}

// --- accounts ------------------------------------------------------------------------------------

vt_status vt_account_create(vt_cloud *cloud, const char *email, const char *kind, const char *role,
                            const char *project, const char *display_name) {
  char unique[32];
  snprintf(unique, sizeof unique, "1%020lld", (long long)vt_cloud_random());
  const vt_accounts_row row = {.email = email,
                               .kind = kind,
                               .role = role,
                               .project = project,
                               .display_name = display_name,
                               .unique_id = unique,
                               .created_ns = vt_cloud_now(cloud)};
  return vt_row_insert(cloud->store, accounts, &row);
}

// --- identity of a call --------------------------------------------------------------------------

static const char *cookie(vt_call *call, const char *name) {
  const char *text = vt_call_header(call, "cookie");
  size_t n = strlen(name);
  while (text && *text) {
    text += strspn(text, "; ");
    size_t size = strcspn(text, ";");
    if (size > n && memcmp(text, name, n) == 0 && text[n] == '=')
      return vt_arena_copy(&call->arena, text + n + 1, size - n - 1);
    text += size;
  }
  return NULL;
}

static vt_status set_caller(vt_call *call, const char *email) {
  vt_rows *rows;
  if (!*email) return VT_OK;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT role, kind FROM accounts WHERE email = ? AND disabled = 0", "s",
                        email));
  if (vt_rows_next(rows)) {
    const char *role = vt_rows_text(rows, strcmp(vt_rows_text(rows, 1), "service") == 0 ? 1 : 0);
    call->caller = email;
    call->caller_role = vt_arena_copy(&call->arena, role, strlen(role));
  }
  return vt_rows_end(rows);
}

vt_status vt_account_still(vt_cloud *cloud, const char *credential, const char *caller,
                           const char *project, const char *permission, bool *out_still) {
  bool live;
  vt_call call;
  *out_still = false;
  VT_TRY(vt_token_lives(cloud, credential, &live));
  if (!live) return VT_OK;
  vt_call_init(&call, cloud, "GET", "/");
  vt_status st = set_caller(&call, caller);
  if (!st && *call.caller) {
    st = vt_account_allow(&call, project, permission);
    *out_still = !st;
    if (vt_status_code(st) == VT_PERMISSION_DENIED) {
      vt_status_free(st);
      st = VT_OK;
    }
  }
  vt_call_fini(&call);
  return st;
}

vt_status vt_account_identify(vt_call *call) {
  const char *header = vt_call_header(call, "authorization"), *token = NULL;
  vt_token found = {.email = "", .hash = ""};
  if (header && strncasecmp(header, "Bearer ", 7) == 0) token = header + 7;
  if (!token) token = vt_call_query(call, "access_token");
  if (!token) token = vt_call_query(call, "oauth_token");
  if (token && strncmp(token, "eyJ", 3) == 0) {
    vt_jwt jwt;
    VT_TRY(vt_jwt_check(call, token, false, &jwt));
    call->credential = jwt.credential;
    return set_caller(call, jwt.email);
  }
  if (token) {
    VT_TRY(vt_token_find(call->cloud, token, "access", &call->arena, &found));
    if (!*found.email) VT_TRY(vt_token_find(call->cloud, token, "guest", &call->arena, &found));
  } else {
    token = cookie(call, call->secure ? "__Host-vtpu" : "vtpu");
    if (!token) return VT_OK;
    VT_TRY(vt_token_find(call->cloud, token, "session", &call->arena, &found));
    call->by_cookie = true;
  }
  call->credential = found.hash;
  return set_caller(call, found.email);
}

vt_status vt_account_check_rate(vt_call *call) {
  vt_cloud *cloud = call->cloud;
  int64_t per_minute = cloud->options.requests_per_minute;
  if (per_minute <= 0) return VT_OK;
  if (!cloud->rates) cloud->rates = calloc(RATE_SLOTS, sizeof *cloud->rates);
  if (!cloud->rates) return vt_error_no_memory();
  // One token bucket per account; two accounts that share a slot alternate in it, which errs on the
  // side of allowing calls.
  uint64_t account = vt_hash_bytes(call->caller, strlen(call->caller), 0);
  struct vt_rate *rate = &cloud->rates[account % RATE_SLOTS];
  int64_t now = vt_cloud_now(cloud);
  double limit = (double)per_minute;
  if (rate->account != account) *rate = (struct vt_rate){account, limit, now};
  rate->tokens += (double)(now - rate->at_ns) / 60e9 * limit;
  if (rate->tokens > limit) rate->tokens = limit;
  rate->at_ns = now;
  if (rate->tokens < 1)
    return vt_error(VT_RESOURCE_EXHAUSTED,
                    "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' "
                    "of service 'tpu.googleapis.com' for consumer '%s'.",
                    call->caller);
  rate->tokens -= 1;
  return VT_OK;
}
