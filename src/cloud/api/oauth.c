// SPDX-License-Identifier: Apache-2.0
// oauth.c - the token endpoint, the consent page of command-line sign-in, console sessions. Grants:
// authorization_code with PKCE (RFC 7636), refresh_token, jwt-bearer (RFC 7523). Replies omit the
// scope: gcloud aborts when it differs by a letter from its request.
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/handlers.h"
#include "cloud/api/password.h"

#define ACCESS_LIFETIME  VT_HOUR
#define CODE_LIFETIME    (10 * 60 * VT_SECOND)
#define SESSION_LIFETIME (12 * VT_HOUR)
#define SCOPE            "https://www.googleapis.com/auth/cloud-platform"

static vt_status oauth_error(vt_call *call, const char *error, const char *description) {
  call->status = 400;
  call->reply = json_pack("{s:s, s:s}", "error", error, "error_description", description);
  return VT_OK;
}

static json_t *id_claims(vt_call *call, const char *email, const char *audience) {
  int64_t now = vt_cloud_now(call->cloud) / VT_SECOND;
  return json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:I}", "iss", vt_call_base_url(call), "aud",
                   audience, "sub", email, "email", email, "email_verified", 1, "iat",
                   (json_int_t)now, "exp", (json_int_t)(now + 3600));
}

// The result of a token request: for whom, the tokens' origin, and whether to issue a refresh
// token.
typedef struct grant {
  const char *email, *origin;
  bool with_refresh;
} grant;

static vt_status issue(vt_call *call, const grant *g) {
  char *access = NULL, *refresh = NULL, hash[65];
  const char *client = vt_call_query(call, "client_id");
  vt_token_start start = {g->email, "refresh", SCOPE, g->origin, 0};
  vt_status st = VT_OK;
  if (g->with_refresh) {
    st = vt_token_create(call->cloud, &start, &refresh);
    if (!st) {
      vt_token_hash(refresh, hash);
      start.origin = vt_arena_printf(&call->arena, "token:%s", hash);
    }
  }
  start.kind = "access";
  start.lifetime_ns = ACCESS_LIFETIME;
  if (!st) st = vt_token_create(call->cloud, &start, &access);
  if (!st) {
    json_t *claims = id_claims(call, g->email, client ? client : "vtpu");
    char *id_token = vt_jwt_sign(call->cloud, claims);
    json_decref(claims);
    call->reply = json_pack("{s:s, s:i, s:s, s:s}", "access_token", access, "expires_in", 3599,
                            "token_type", "Bearer", "id_token", id_token);
    if (refresh) json_object_set_new(call->reply, "refresh_token", json_string(refresh));
    vt_memory_free(id_token);
  }
  vt_memory_free(access);
  vt_memory_free(refresh);
  return st;
}

// scope of a code: "challenge method redirect_uri"
static bool pkce_holds(const char *bound, const char *verifier) {
  char challenge[129] = "", method[8] = "";
  if (sscanf(bound, "%128s %7s", challenge, method) < 2 || strcmp(challenge, "-") == 0) return true;
  if (!verifier) return false;
  if (strcmp(method, "plain") == 0) return strcmp(challenge, verifier) == 0;
  unsigned char digest[32], text[64];
  EVP_Digest(verifier, strlen(verifier), digest, NULL, EVP_sha256(), NULL);
  EVP_EncodeBlock(text, digest, sizeof digest);
  for (unsigned char *p = text; *p; p++)
    *p = *p == '+' ? '-' : *p == '/' ? '_' : *p == '=' ? 0 : *p;
  return strcmp(challenge, (char *)text) == 0;
}

// Some clients send the parameters as JSON.
static void take_json(vt_call *call) {
  const char *key;
  json_t *value;
  json_object_foreach(call->body, key, value) if (json_is_string(value)) {
    vt_pair pair = {
        vt_arena_copy(&call->arena, key, strlen(key)),
        vt_arena_copy(&call->arena, json_string_value(value), strlen(json_string_value(value)))};
    vt_array_push_in(&call->arena, &call->query, pair);
  }
}

static vt_status grant_code(vt_call *call) {
  const char *code = vt_call_query(call, "code");
  vt_token found = {.email = ""};
  if (code) VT_TRY(vt_token_find(call->cloud, code, "code", &call->arena, &found));
  if (!*found.email) return oauth_error(call, "invalid_grant", "Malformed auth code.");
  VT_TRY(vt_token_revoke(call->cloud, found.hash)); // a code works once, right or wrong
  if (!pkce_holds(found.scope, vt_call_query(call, "code_verifier")))
    return oauth_error(call, "invalid_grant", "Invalid code verifier.");
  const grant g = {found.email, "password", true};
  return issue(call, &g);
}

static vt_status grant_refresh(vt_call *call) {
  const char *token = vt_call_query(call, "refresh_token");
  vt_token found = {.email = ""};
  if (token) VT_TRY(vt_token_find(call->cloud, token, "refresh", &call->arena, &found));
  if (!*found.email) return oauth_error(call, "invalid_grant", "Bad Request");
  const grant g = {found.email, vt_arena_printf(&call->arena, "token:%s", found.hash), false};
  return issue(call, &g);
}

static vt_status grant_assertion(vt_call *call) {
  const char *assertion = vt_call_query(call, "assertion");
  vt_jwt jwt = {.email = ""};
  if (assertion) VT_TRY(vt_jwt_check(call, assertion, true, &jwt));
  if (!*jwt.email) return oauth_error(call, "invalid_grant", "Invalid JWT Signature.");
  const grant g = {jwt.email, vt_arena_printf(&call->arena, "key:%s", jwt.key), false};
  return issue(call, &g);
}

vt_status vt_oauth_token(vt_call *call) {
  if (!vt_call_query(call, "grant_type") && call->body) take_json(call);
  const char *type = vt_call_query(call, "grant_type");
  if (!type) return oauth_error(call, "invalid_request", "grant_type is missing");
  if (strcmp(type, "refresh_token") == 0) return grant_refresh(call);
  if (strcmp(type, "urn:ietf:params:oauth:grant-type:jwt-bearer") == 0)
    return grant_assertion(call);
  if (strcmp(type, "authorization_code") == 0) return grant_code(call);
  return oauth_error(call, "unsupported_grant_type", "Invalid grant_type.");
}

vt_status vt_oauth_revoke(vt_call *call) {
  const char *token = vt_call_query(call, "token");
  char hash[65];
  if (!token) return oauth_error(call, "invalid_request", "token is missing");
  call->reply = json_object();
  vt_token_hash(token, hash);
  return vt_token_revoke(call->cloud, hash);
}

vt_status vt_oauth_userinfo(vt_call *call) {
  call->reply =
      json_pack("{s:s, s:s, s:b}", "sub", call->caller, "email", call->caller, "email_verified", 1);
  return VT_OK;
}

// --- consent page --------------------------------------------------------------------------------

static void put_escaped(vt_text *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
    case '<':
      vt_text_put(out, "&lt;");
      break;
    case '>':
      vt_text_put(out, "&gt;");
      break;
    case '&':
      vt_text_put(out, "&amp;");
      break;
    case '"':
      vt_text_put(out, "&quot;");
      break;
    case '\'':
      vt_text_put(out, "&#39;");
      break;
    default:
      vt_text_put_n(out, text, 1);
    }
  }
}

static void page(vt_call *call, const char *inner_start) {
  // Chromium applies form-action to the redirect after the form, too: the code goes to the
  // requesting program, on this machine.
  call->content_type = "text/html; charset=UTF-8";
  vt_call_reply_header(call, "Content-Security-Policy",
                       "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self' "
                       "http://localhost:* http://127.0.0.1:*; frame-ancestors 'none'");
  vt_text_put(&call->raw,
              "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
              "content='width=device-width'><title>vtpu sign-in</title><link rel=stylesheet "
              "href=/console/console.css><body class=consent><h1>Sign in to vtpu</h1>");
  vt_text_put(&call->raw, inner_start);
}

vt_status vt_oauth_consent(vt_call *call) {
  static const char *const kept[] = {"client_id", "redirect_uri", "state", "code_challenge",
                                     "code_challenge_method"};
  page(call, "<form method=post><label>E-mail<input name=email type=email autocomplete=username "
             "required></label>"
             "<label>Password<input name=password type=password autocomplete=current-password "
             "required></label>");
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    const char *value = vt_call_query(call, kept[i]);
    if (!value) continue;
    vt_text_printf(&call->raw, "<input type=hidden name=%s value=\"", kept[i]);
    put_escaped(&call->raw, value);
    vt_text_put(&call->raw, "\">");
  }
  vt_text_put(&call->raw, "<button>Allow</button></form></html>");
  return VT_OK;
}

// A code may be sent only to the loopback address of the caller's machine; otherwise it is shown
// for copying.
static bool is_loopback(const char *uri) {
  static const char *const good[] = {"http://localhost:", "http://127.0.0.1:"};
  for (size_t i = 0; i < 2; i++) {
    size_t n = strlen(good[i]),
           digits = strspn(uri + (strncmp(uri, good[i], n) == 0 ? n : 0), "0123456789");
    if (strncmp(uri, good[i], n) == 0 && digits > 0 &&
        (uri[n + digits] == '/' || !uri[n + digits]) && !strpbrk(uri, "\r\n"))
      return true;
  }
  return false;
}

vt_status vt_oauth_grant(vt_call *call) {
  const char *email = vt_call_query(call, "email"), *password = vt_call_query(call, "password");
  const char *redirect = vt_call_query(call, "redirect_uri"), *state = vt_call_query(call, "state");
  const char *challenge = vt_call_query(call, "code_challenge"),
             *method = vt_call_query(call, "code_challenge_method");
  bool right = false;
  vt_status st = email && password ? vt_password_check(call, email, password, &right) : VT_OK;
  if (st && vt_status_code(st) != VT_RESOURCE_EXHAUSTED) return st;
  if (!right) {
    call->status = st ? 429 : 403;
    page(call, "<p role=alert>");
    put_escaped(&call->raw, st ? vt_status_message(st) : "Wrong e-mail or password.");
    vt_text_put(&call->raw, "</p><p><a href=''>Try again</a></p></html>");
    vt_status_free(st);
    return VT_OK;
  }
  char *code;
  const vt_token_start start = {
      email, "code",
      vt_arena_printf(&call->arena, "%s %s", challenge ? challenge : "-", method ? method : "S256"),
      "password", CODE_LIFETIME};
  VT_TRY(vt_token_create(call->cloud, &start, &code));
  if (redirect && is_loopback(redirect)) {
    vt_text url = {0};
    vt_text_printf(&url, "%s%scode=%s&scope=" SCOPE "&state=", redirect,
                   strchr(redirect, '?') ? "&" : "?", code);
    for (const char *p = state ? state : ""; *p; p++)
      vt_text_printf(&url, "%%%02X", (unsigned char)*p);
    call->status = 302;
    vt_call_reply_header(call, "Location", vt_text_string(&url));
    vt_text_free(&url);
  } else {
    page(call, "<p>Copy this code into the program that asked for it:</p><p><code>");
    put_escaped(&call->raw, code);
    vt_text_put(&call->raw, "</code></p></html>");
  }
  vt_memory_free(code);
  return VT_OK;
}

// --- console sessions ----------------------------------------------------------------------------

static void set_cookie(vt_call *call, const char *token, int64_t seconds) {
  vt_call_reply_header(call, "Set-Cookie",
                       vt_arena_printf(&call->arena,
                                       "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%lld%s",
                                       call->secure ? "__Host-vtpu" : "vtpu", token,
                                       (long long)seconds, call->secure ? "; Secure" : ""));
}

// A session ends no later than the token that it was made with.
static vt_status start_session(vt_call *call, const char *email, const vt_token *made_with) {
  char *token;
  int64_t now = vt_cloud_now(call->cloud), lifetime = SESSION_LIFETIME;
  if (made_with->expires_ns && made_with->expires_ns - now < lifetime)
    lifetime = made_with->expires_ns - now;
  const vt_token_start start = {
      email, "session", "",
      *made_with->email ? vt_arena_printf(&call->arena, "token:%s", made_with->hash) : "password",
      lifetime};
  VT_TRY(vt_token_create(call->cloud, &start, &token));
  set_cookie(call, token, lifetime / VT_SECOND);
  vt_memory_free(token);
  call->reply = json_pack("{s:s}", "email", email);
  return VT_OK;
}

vt_status vt_session_create(vt_call *call) {
  const char *email = json_string_value(json_object_get(call->body, "email"));
  const char *password = json_string_value(json_object_get(call->body, "password"));
  const char *access = json_string_value(json_object_get(call->body, "token"));
  vt_token found = {.email = ""};
  bool right = false;
  if (!vt_call_header(call, "x-vtpu-console"))
    return vt_error(VT_PERMISSION_DENIED, "This call is for the console.");
  if (access) VT_TRY(vt_token_find(call->cloud, access, "access", &call->arena, &found));
  if (*found.email)
    email = found.email, right = true;
  else if (email && password)
    VT_TRY(vt_password_check(call, email, password, &right));
  if (!right) return vt_error(VT_UNAUTHENTICATED, "Wrong e-mail, password or token.");
  return start_session(call, email, &found);
}

vt_status vt_session_delete(vt_call *call) {
  set_cookie(call, "", 0);
  vt_call_reply_header(call, "Clear-Site-Data", "\"cache\", \"cookies\", \"storage\"");
  call->reply = json_object();
  return vt_store_run(call->cloud->store, NULL,
                      "DELETE FROM tokens WHERE email = ? AND kind = 'session'", "s", call->caller);
}

vt_status vt_me(vt_call *call) {
  call->reply = json_pack("{s:s, s:s}", "email", call->caller, "role", call->caller_role);
  return VT_OK;
}
