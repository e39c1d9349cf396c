// SPDX-License-Identifier: Apache-2.0
// router.c - finds a request's row in routes.def and checks the row's conditions: identity,
// project, permission, API.
// In:  a vt_call with its request. Out: the reply, always.
// Order of checks: route, identity, project and permission, API enabled, rate, body. A caller who
// may not see a project learns nothing about it: unknown projects and those of others get the same
// 403.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/api/metrics.h"
#include "cloud/api/record.h"

#define V1  VT_API_V1
#define V1A VT_API_V1A
#define V2  VT_API_V2
#define V2A VT_API_V2A
#define V1E VT_API_V1_EARLY

static const vt_route routes[] = {
#define ROUTE(method, path, versions, handler, permission, service, request, response, query)      \
  {method, path, versions, handler, permission, service, request, response, query},
#include "cloud/api/routes.def"
#undef ROUTE
};
enum { route_count = sizeof routes / sizeof *routes };

static const struct version {
  const char *name;
  vt_api api;
} versions[] = {{"v1", V1},
                {"v1alpha1", V1A},
                {"v2", V2},
                {"v2alpha1", V2A},
                {"v2alpha", V2A},
                {"v1alpha", (vt_api)V1E},
                {"v1beta", (vt_api)V1E}};

const vt_route *vt_route_at(int index) {
  return index >= 0 && index < route_count ? &routes[index] : NULL;
}

// --- matching ------------------------------------------------------------------------------------

// Decodes %XX into the arena; NULL for malformed escapes and invalid text (NUL, not UTF-8).
static const char *decode(vt_call *call, const char *text, size_t size, bool plus_is_space) {
  char *out = vt_arena_copy(&call->arena, text, size), *w = out;
  for (size_t i = 0; i < size; i++) {
    if (out[i] == '%') {
      if (i + 2 >= size || !isxdigit((unsigned char)out[i + 1]) ||
          !isxdigit((unsigned char)out[i + 2]))
        return NULL;
      char hex[3] = {out[i + 1], out[i + 2], 0};
      char c = (char)strtol(hex, NULL, 16);
      *w++ = c;
      i += 2;
    } else {
      *w++ = plus_is_space && out[i] == '+' ? ' ' : out[i];
    }
  }
  *w = 0;
  return vt_text_is_good(out, (size_t)(w - out)) ? out : NULL;
}

static bool match_version(vt_call *call, const vt_route *route, const char *text, size_t size) {
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
    if (strlen(versions[i].name) == size && memcmp(versions[i].name, text, size) == 0) {
      call->api = versions[i].api;
      call->api_name = versions[i].api == V2A ? "v2alpha1" : versions[i].name;
      return (route->versions & versions[i].api) != 0;
    }
  return false;
}

// One segment without its slash. A {name} matches any text without ':' when a verb follows it.
static bool match_segment(vt_call *call, const vt_route *route, const char *t, size_t tn,
                          const char *p, size_t pn) {
  if (*t != '{') return tn == pn && memcmp(t, p, tn) == 0;
  const char *close = memchr(t, '}', tn);
  vt_assert(close);
  size_t name = (size_t)(close - t) - 1, rest = tn - name - 2;
  if (rest > pn || memcmp(close + 1, p + pn - rest, rest) != 0) return false;
  size_t value = pn - rest;
  if (value == 0) return false;
  if (name == 1 && t[1] == 'v') return match_version(call, route, p, value);
  if (memchr(p, ':', value)) return false;
  const char *decoded = decode(call, p, value, false);
  if (!decoded) return false;
  vt_pair pair = {vt_arena_copy(&call->arena, t + 1, name), decoded};
  vt_array_push_in(&call->arena, &call->params, pair);
  return true;
}

static bool match(vt_call *call, const vt_route *route) {
  const char *t = route->path, *p = call->path;
  call->params.size = 0;
  while (*t && *p) {
    if (*t++ != '/' || *p++ != '/') return false;
    if (strcmp(t, "**") == 0) return true; // the rest, for static files
    size_t tn = strcspn(t, "/"), pn = strcspn(p, "/");
    if (!match_segment(call, route, t, tn, p, pn)) return false;
    t += tn;
    p += pn;
  }
  return !*t && !*p;
}

static vt_status find_route(vt_call *call) {
  bool other_method = false;
  for (int i = 0; i < route_count; i++) {
    if (!match(call, &routes[i])) continue;
    if (strcmp(routes[i].method, call->method) == 0) {
      call->route = &routes[i];
      return VT_OK;
    }
    other_method = true;
  }
  call->params.size = 0;
  if (other_method)
    return vt_error(VT_UNIMPLEMENTED, "Method %s is not supported for this path.", call->method);
  return vt_error(VT_NOT_FOUND, "The requested URL %s was not found on this server.", call->path);
}

// --- conditions ----------------------------------------------------------------------------------

static vt_status check_service(vt_call *call) {
  int64_t enabled;
  VT_TRY(vt_store_int(call->cloud->store, &enabled, 0,
                      "SELECT 1 FROM services WHERE project = ? AND service = ?", "ss",
                      call->project, call->route->service));
  if (enabled) return VT_OK;
  char consumer[64];
  snprintf(consumer, sizeof consumer, "projects/%lld", (long long)call->project_number);
  vt_call_add_detail(call, json_pack("{s:s, s:s, s:s, s:{s:s, s:s}}", "@type",
                                     "type.googleapis.com/google.rpc.ErrorInfo", "reason",
                                     "SERVICE_DISABLED", "domain", "googleapis.com", "metadata",
                                     "service", call->route->service, "consumer", consumer));
  const char *title = strcmp(call->route->service, "tpu.googleapis.com") == 0
                          ? "Cloud TPU API"
                          : call->route->service;
  return vt_error(
      VT_PERMISSION_DENIED,
      "%s has not been used in project %lld before or it is disabled. Enable it by visiting "
      "https://console.developers.google.com/apis/api/%s/overview?project=%lld then retry. If you "
      "enabled "
      "this API recently, wait a few minutes for the action to propagate to our systems and retry.",
      title, (long long)call->project_number, call->route->service,
      (long long)call->project_number);
}

static vt_status authorize(vt_call *call) {
  const char *permission = call->route->permission;
  if (strcmp(permission, "-") == 0) return VT_OK;
  VT_TRY(vt_account_identify(call));
  if (!*call->caller)
    return vt_error(VT_UNAUTHENTICATED, "Request had invalid authentication credentials. Expected "
                                        "OAuth 2 access token, login cookie or "
                                        "other valid authentication credential.");
  VT_TRY(vt_account_check_rate(call));
  if (strcmp(permission, "!admin") == 0 && strcmp(call->caller_role, "admin") != 0)
    return vt_error(VT_PERMISSION_DENIED, "This call is for administrators.");
  if (strcmp(permission, "!reviewer") == 0 && strcmp(call->caller_role, "admin") != 0 &&
      strcmp(call->caller_role, "reviewer") != 0)
    return vt_error(VT_PERMISSION_DENIED, "This call is for reviewers.");
  const char *project = vt_call_param(call, "project");
  if (strncmp(call->route->query, "project,", 8) == 0) {
    project = vt_call_query(call, "project"); // the path has no such parameter
    if (!project || !*project)
      return vt_error(VT_INVALID_ARGUMENT, "The parameter `project` is required.");
  }
  if (!*project || *permission == '!') return VT_OK;
  if (strcmp(permission, "@") == 0) return vt_account_find_project(call, project);
  VT_TRY(vt_account_allow(call, project, permission));
  return *call->route->service ? check_service(call) : VT_OK;
}

static vt_status read_body(vt_call *call) {
  if (call->body || call->body_size == 0) return VT_OK;
  const char *type = vt_call_header(call, "content-type");
  bool object = call->body_text[strspn(call->body_text, " \t\r\n")] ==
                '{'; // curl -d says "form" for JSON too
  if (type && strncmp(type, "application/x-www-form-urlencoded", 33) == 0 && !object) {
    vt_call_add_query(call, vt_arena_copy(&call->arena, call->body_text, call->body_size));
    return VT_OK;
  }
  json_error_t error;
  call->body = json_loadb(call->body_text, call->body_size, JSON_REJECT_DUPLICATES, &error);
  if (call->body) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "Invalid JSON payload received. %s at line %d column %d.",
                  error.text, error.line, error.column);
}

// Names in the body that its message does not have. The body of a creation is one field of the
// request: the message Node is "node" in it.
static vt_status check_names(vt_call *call) {
  const char *name = call->route->request;
  const vt_message *message = *name ? vt_message_find(name) : NULL;
  if (!call->body || !message) return VT_OK;
  const char *at = strcmp(name, "Node") == 0             ? "node"
                   : strcmp(name, "QueuedResource") == 0 ? "queued_resource"
                                                         : "";
  vt_text lines = {0};
  vt_schema_unknown(message, call->api, at, call->body, &lines);
  if (!lines.size) return VT_OK;
  json_t *violation = json_pack("{s:s}", "description", vt_text_string(&lines));
  if (*at) json_object_set_new(violation, "field", json_string(at));
  vt_call_add_detail(call,
                     json_pack("{s:s, s:[o]}", "@type", "type.googleapis.com/google.rpc.BadRequest",
                               "fieldViolations", violation));
  vt_status st = vt_error(VT_INVALID_ARGUMENT, "%s", vt_text_string(&lines));
  vt_text_free(&lines);
  return st;
}

// A cookie must not be usable from another site's page: changing calls with a cookie need a header
// that only scripts of this origin can set.
static vt_status check_origin(vt_call *call) {
  if (!call->by_cookie || strcmp(call->method, "GET") == 0 ||
      vt_call_header(call, "x-vtpu-console"))
    return VT_OK;
  return vt_error(VT_PERMISSION_DENIED, "Calls by session cookie need the X-Vtpu-Console header.");
}

// Runs the handler as one transaction, retried from a clean reply on a conflict with another
// writer.
static vt_status change(vt_call *call) {
  vt_store *store = call->cloud->store;
  json_t *body = json_deep_copy(call->body);
  vt_status st = VT_OK;
  for (int attempt = 0; attempt < VT_CLOUD_ATTEMPTS; attempt++) {
    if (attempt) {
      vt_status_free(st);
      vt_call_clear_reply(call);
      json_decref(call->body);
      call->body = json_deep_copy(body);
    }
    st = vt_store_begin(store);
    if (st) break;
    st = call->route->handler(call);
    if (!st && *call->caller)
      st = vt_cloud_event(call->cloud, "call", call->project, call->caller, call->path,
                          call->method);
    if (!st) st = vt_store_commit(store);
    vt_store_rollback(store);
    if (!st || !vt_store_conflicted(store)) break;
  }
  json_decref(body);
  return st;
}

// Every n-th call fails, so that tests are deterministic. Our own calls are exempt: one of them
// ends the fault.
static vt_status fail_on_order(vt_call *call, int64_t *out_delay_ms) {
  vt_faults *f = &call->cloud->faults;
  if (vt_cloud_now(call->cloud) >= f->until_ns || !*call->caller ||
      strncmp(call->route->path, "/vtpu/", 6) == 0)
    return VT_OK;
  *out_delay_ms = f->delay_ms;
  f->owed += f->share;
  if (f->owed < 1) return VT_OK;
  f->owed -= 1;
  return vt_error(f->exhausted ? VT_RESOURCE_EXHAUSTED : VT_UNAVAILABLE,
                  "A fault that was ordered (POST /vtpu/v1/faults). Try again.");
}

static vt_status run_locked(vt_call *call, int64_t *out_delay_ms) {
  if (call->malformed || !decode(call, call->path, strlen(call->path), false))
    return vt_error(VT_INVALID_ARGUMENT, "The URL has text that is not UTF-8, or a NUL in it.");
  VT_TRY(find_route(call));
  VT_TRY(authorize(call));
  VT_TRY(fail_on_order(call, out_delay_ms));
  VT_TRY(check_origin(call));
  VT_TRY(read_body(call));
  if (call->malformed) // a form
    return vt_error(VT_INVALID_ARGUMENT, "The form has text that is not UTF-8, or a NUL in it.");
  if (call->body) VT_TRY(vt_check_request(call->body));
  VT_TRY(check_names(call));
  if (strcmp(call->method, "GET") == 0) return call->route->handler(call);
  VT_TRY(change(call));
  vt_cloud_poke(call->cloud);
  return VT_OK;
}

typedef struct turn {
  vt_call *call;
  int64_t start_ns, delay_ms;
  vt_status st;
} turn;

static vt_status write_error(void *user) {
  turn *t = user;
  vt_call *call = t->call;
  vt_status st = t->st;
  vt_code code = vt_status_code(st);
  json_decref(call->reply);
  call->status = call->error_status ? call->error_status : vt_code_to_http(code);
  vt_text_free(&call->raw);
  call->content_type = NULL;
  json_t *error = json_pack("{s:i, s:s, s:s}", "code", call->status, "message",
                            vt_status_message(st), "status", vt_code_name(code));
  if (!error) // a message that is not UTF-8
    error = json_pack("{s:i, s:s, s:s}", "code", call->status, "message",
                      "malformed text in the request", "status", vt_code_name(code));
  if (call->details) json_object_set(error, "details", call->details);
  call->reply = json_pack("{s:o}", "error", error);
  if (call->status == 401) vt_call_reply_header(call, "WWW-Authenticate", "Bearer realm=\"vtpud\"");
  if (call->status == 429) vt_call_reply_header(call, "Retry-After", "1");
  return VT_OK;
}

static void take_turn(void *context) {
  turn *t = context;
  t->st = run_locked(t->call, &t->delay_ms);
  if (t->st) {
    vt_attempt attempt; // the status is from malloc
    vt_status st = vt_attempt_run(&attempt, write_error, t);
    vt_attempt_end(&attempt);
    vt_status_free(t->st);
    if (st) vt_memory_out(0, "a reply");
  }
  vt_metrics_call(t->call->cloud, t->call, vt_metrics_clock() - t->start_ns);
}

static void run(vt_call *call) {
  turn t = {.call = call, .start_ns = vt_metrics_clock()};
  const char *fields = vt_call_query(call, "fields");
  if (fields && *fields) call->wants_json = true;
  vt_cloud_lock_for(call->cloud, take_turn, &t);
  if (t.delay_ms) {
    struct timespec pause = {.tv_sec = t.delay_ms / 1000, .tv_nsec = t.delay_ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
  }
  if (t.st || !call->reply || !call->route) return;
  const vt_message *message =
      *call->route->response ? vt_message_find(call->route->response) : NULL;
  if (message)
    vt_schema_shape(message, call->api ? call->api : VT_API_ALL, vt_call_enums_as_numbers(call),
                    call->reply);
  if (fields && *fields && json_is_object(call->reply)) vt_schema_select(fields, call->reply);
}

void vt_call_run(vt_call *call) {
  json_t *row = vt_record_request(call);
  run(call);
  vt_record_reply(call, row);
}

void vt_call_add_query(vt_call *call, const char *query) {
  while (*query) {
    size_t n = strcspn(query, "&"), name = strcspn(query, "=&");
    const char *key = decode(call, query, name, true);
    const char *value = name < n ? decode(call, query + name + 1, n - name - 1, true) : "";
    if (!key || !value) call->malformed = true;
    if (key && value && *key) {
      vt_pair pair = {key, value};
      vt_array_push_in(&call->arena, &call->query, pair);
    }
    query += n + (query[n] == '&');
  }
}
