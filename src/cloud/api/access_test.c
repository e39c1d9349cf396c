// SPDX-License-Identifier: Apache-2.0
// access_test.c - who may call what, for every row of routes.def: no access without an identity,
// none to another's project, administrators' calls only for administrators; tokens, sessions, keys,
// roles.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/wire.h"
#include "cloud/door/grpc.h"

// Routes that need no identity; every new public route must be added here deliberately.
static const char *const public_paths[] = {"/token",
                                           "/o/oauth2/auth",
                                           "/revoke",
                                           "/$discovery/rest",
                                           "/discovery/v1/apis/tpu/{version}/rest",
                                           "/universe-descriptor-data/universe-descriptor.json",
                                           "/healthz",
                                           "/vtpu/v1/session",
                                           "/",
                                           "/console/{file}"};

static bool is_public(const char *path) {
  for (size_t i = 0; i < sizeof public_paths / sizeof *public_paths; i++)
    if (strcmp(public_paths[i], path) == 0) return true;
  return false;
}

// A path with every {name} filled in: {v} with one of the row's versions, the project as given, the
// rest with "x".
static void fill(const vt_route *route, const char *project, char out[1024]) {
  size_t n = 0;
  for (const char *p = route->path; *p;) {
    const char *value = NULL;
    if (strncmp(p, "{v}", 3) == 0)
      value = route->versions & VT_API_V2 ? "v2" : route->versions & VT_API_V2A ? "v2alpha1" : "v1";
    else if (strncmp(p, "{project}", 9) == 0)
      value = project;
    else if (strncmp(p, "{zone}", 6) == 0)
      value = "us-central2-b";
    else if (*p == '{')
      value = "x";
    if (value) {
      n += (size_t)snprintf(out + n, 1024 - n, "%s", value);
      p = strchr(p, '}') + 1;
    } else {
      out[n++] = *p++;
    }
  }
  out[n] = 0;
}

static void every_route_asks_who_calls(void **state) {
  vt_testing t;
  const vt_route *route;
  char url[1024];
  int status;
  (void)state;
  vt_testing_open(&t, "");
  for (int i = 0; (route = vt_route_at(i)); i++) {
    fill(route, TESTING_PROJECT, url);
    json_decref(vt_testing_call_as(&t, NULL, route->method, url, "{}", &status));
    if (strcmp(route->permission, "-") == 0) {
      if (!is_public(route->path)) fail_msg("%s %s is public", route->method, route->path);
    } else if (status != 401) {
      fail_msg("%s %s without identity: %d", route->method, url, status);
    }
    if (strcmp(route->permission, "-") == 0) continue;
    json_decref(vt_testing_call_as(&t, "vta.0000", route->method, url, "{}", &status));
    if (status != 401) fail_msg("%s %s with a made-up token: %d", route->method, url, status);
  }
  vt_testing_close(&t);
}

static void every_route_keeps_strangers_out(void **state) {
  vt_testing t;
  const vt_route *route;
  char url[1024];
  int status;
  (void)state;
  vt_testing_open(&t, "");
  char *stranger = vt_testing_account(&t, "eve@example.com", "user");
  for (int i = 0; (route = vt_route_at(i)); i++) {
    bool of_project = strstr(route->path, "{project}") != NULL, admin = *route->permission == '!';
    if ((!of_project && !admin) || strcmp(route->permission, "-") == 0) continue;
    fill(route, TESTING_PROJECT, url);
    json_decref(vt_testing_call_as(&t, stranger, route->method, url, "{}", &status));
    if (status != 403) fail_msg("%s %s by a stranger: %d", route->method, url, status);
    if (!of_project || admin) continue;
    // An unknown project looks the same as another's.
    fill(route, "no-such-project", url);
    json_decref(vt_testing_call_as(&t, stranger, route->method, url, "{}", &status));
    if (status != 403) fail_msg("%s %s in no project: %d", route->method, url, status);
  }
  free(stranger);
  vt_testing_close(&t);
}

// The status of one gRPC call with every resource name of its request in `project`.
static vt_code grpc_as(vt_testing *t, const char *token, const char *service, const char *method,
                       const char *request, const char *version, const char *project) {
  char path[128], parent[128], name[160], bearer[256];
  vt_call call;
  vt_text bytes = {0}, reply = {0};
  if (strcmp(service, "Tpu") == 0)
    snprintf(path, sizeof path, "/google.cloud.tpu.%s.Tpu/%s", version, method);
  else
    snprintf(path, sizeof path, "/%s/%s", service, method);
  snprintf(parent, sizeof parent, "projects/%s/locations/us-central2-b", project);
  const char *kind = strstr(method, "Queued")        ? "queuedResources"
                     : strstr(method, "Operation")   ? "operations"
                     : strstr(method, "Accelerator") ? "acceleratorTypes"
                     : strstr(method, "Runtime")     ? "runtimeVersions"
                     : strstr(method, "TensorFlow")  ? "tensorflowVersions"
                                                     : "nodes";
  snprintf(name, sizeof name, "%s/%s/x", parent, kind);
  if (strcmp(method, "GetLocation") == 0 || strcmp(method, "ListOperations") == 0)
    snprintf(name, sizeof name, "%s", parent);
  if (strcmp(method, "ListLocations") == 0) snprintf(name, sizeof name, "projects/%s", project);
  json_t *message =
      json_pack("{s:s, s:s, s:{s:s}}", "parent", parent, "name", name, "node", "name", name);
  vt_wire_encode(vt_message_find(request), VT_API_ALL, message, &bytes);
  json_decref(message);
  vt_call_init(&call, t->cloud, "POST", "/");
  if (token) {
    snprintf(bearer, sizeof bearer, "Bearer %s", token);
    vt_call_add_header(&call, "Authorization", bearer);
  }
  vt_status st = vt_grpc_unary(&call, path, vt_text_string(&bytes), bytes.size, &reply);
  vt_code code = vt_status_code(st);
  vt_status_free(st);
  vt_call_fini(&call);
  vt_text_free(&bytes);
  vt_text_free(&reply);
  return code;
}

static void every_grpc_method_asks_who_calls(void **state) {
  static const char *const versions[] = {"v1", "v2", "v2alpha1"};
  vt_testing t;
  const char *service, *method, *request;
  (void)state;
  vt_testing_open(&t, "");
  char *stranger = vt_testing_account(&t, "eve@example.com", "user");
  for (int i = 0; vt_grpc_method_at(i, &service, &method, &request); i++) {
    int known = 0;
    for (int v = 0; v < 3; v++) {
      vt_code nobody = grpc_as(&t, NULL, service, method, request, versions[v], TESTING_PROJECT);
      // A method that this version lacks is not found, whoever calls it.
      if (nobody == VT_NOT_FOUND || nobody == VT_UNIMPLEMENTED) continue;
      known++;
      if (nobody != VT_UNAUTHENTICATED)
        fail_msg("%s %s without identity: %d", method, versions[v], (int)nobody);
      const char *const projects[] = {TESTING_PROJECT, "no-such-project"};
      for (int p = 0; p < 2; p++) {
        vt_code foreign = grpc_as(&t, stranger, service, method, request, versions[v], projects[p]);
        if (foreign != VT_PERMISSION_DENIED)
          fail_msg("%s %s by a stranger in %s: %d", method, versions[v], projects[p], (int)foreign);
      }
    }
    if (!known) fail_msg("%s is in no version", method);
  }
  free(stranger);
  vt_testing_close(&t);
}

// --- what a reply says to a browser --------------------------------------------------------------

static const char *header_of(const vt_call *call, const char *name) {
  const char *value = NULL;
  for (size_t i = 0; i < call->reply_headers.size; i++) {
    if (strcasecmp(call->reply_headers.data[i].name, name) != 0) continue;
    if (value) fail_msg("%s has %s twice", call->path, name);
    value = call->reply_headers.data[i].value;
  }
  return value;
}

// Only replies that are the same for everybody may be cached.
static bool may_be_kept(const char *path) {
  return strcmp(path, "/") == 0 || strncmp(path, "/console/", 9) == 0 ||
         strstr(path, "discovery/") != NULL;
}

static void check_headers(vt_testing *t, const char *token, bool secure, const char *method,
                          const char *url) {
  static const char *const exact[][2] = {{"X-Content-Type-Options", "nosniff"},
                                         {"X-Frame-Options", "DENY"},
                                         {"Referrer-Policy", "no-referrer"},
                                         {"X-Permitted-Cross-Domain-Policies", "none"},
                                         {"Cross-Origin-Opener-Policy", "same-origin"},
                                         {"Cross-Origin-Embedder-Policy", "require-corp"},
                                         {"Cross-Origin-Resource-Policy", "same-origin"}};
  char bearer[256];
  vt_call call;
  vt_call_init(&call, t->cloud, method, url);
  call.secure = secure;
  call.body_text = "{}";
  call.body_size = 2;
  snprintf(bearer, sizeof bearer, "Bearer %s", token ? token : "");
  if (token) vt_call_add_header(&call, "Authorization", bearer);
  vt_call_run(&call);
  vt_call_render(&call);
  for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
    const char *value = header_of(&call, exact[i][0]);
    if (!value || strcmp(value, exact[i][1]) != 0)
      fail_msg("%s %s: %s is %s", method, url, exact[i][0], value ? value : "missing");
  }
  const char *csp = header_of(&call, "Content-Security-Policy");
  if (!csp || strncmp(csp, "default-src 'none'", 18) != 0 || strstr(csp, "unsafe-") ||
      !strstr(csp, "frame-ancestors 'none'") || !strstr(csp, "base-uri 'none'"))
    fail_msg("%s %s: Content-Security-Policy is %s", method, url, csp ? csp : "missing");
  const char *cache = header_of(&call, "Cache-Control");
  if (!cache || strcmp(cache, "no-store") != 0)
    if (!cache || !may_be_kept(url))
      fail_msg("%s %s: Cache-Control is %s", method, url, cache ? cache : "missing");
  const char *permissions = header_of(&call, "Permissions-Policy");
  if (!permissions || !strstr(permissions, "camera=()") || !strstr(permissions, "geolocation=()"))
    fail_msg("%s %s: Permissions-Policy", method, url);
  const char *hsts = header_of(&call, "Strict-Transport-Security");
  if ((hsts != NULL) != secure || (hsts && strncmp(hsts, "max-age=", 8) != 0))
    fail_msg("%s %s: Strict-Transport-Security is %s", method, url, hsts ? hsts : "missing");
  vt_call_fini(&call);
}

static void every_reply_has_the_headers(void **state) {
  vt_testing t;
  const vt_route *route;
  char url[1024];
  (void)state;
  vt_testing_open(&t, "");
  for (int i = 0; i < 4; i++) {
    const char *token = i & 1 ? t.token : NULL;
    bool secure = i & 2;
    for (int r = 0; (route = vt_route_at(r)); r++) {
      fill(route, TESTING_PROJECT, url);
      check_headers(&t, token, secure, route->method, url);
    }
    check_headers(&t, token, secure, "GET", "/no/such/page");
    check_headers(&t, token, secure, "PUT", "/vtpu/v1/me");
    check_headers(&t, token, secure, "GET", "/console/console.js");
  }
  vt_testing_close(&t);
}

// A console session works only for pages of this origin, and scripts cannot read its cookie.
static void sessions_do_not_travel(void **state) {
  vt_testing t;
  vt_call call;
  char cookie[256] = "";
  (void)state;
  vt_testing_open(&t, "");
  for (int secure = 0; secure < 2; secure++) {
    char body[256];
    vt_call_init(&call, t.cloud, "POST", "/vtpu/v1/session");
    call.secure = secure;
    call.body_size = (size_t)snprintf(body, sizeof body, "{\"token\":\"%s\"}", t.token);
    call.body_text = body;
    vt_call_add_header(&call, "X-Vtpu-Console", "1");
    vt_call_run(&call);
    assert_int_equal(call.status, 200);
    for (size_t i = 0; i < call.reply_headers.size; i++)
      if (strcmp(call.reply_headers.data[i].name, "Set-Cookie") == 0)
        snprintf(cookie, sizeof cookie, "%s", call.reply_headers.data[i].value);
    assert_non_null(strstr(cookie, "; HttpOnly"));
    assert_non_null(strstr(cookie, "; SameSite=Strict"));
    assert_non_null(strstr(cookie, "; Path=/"));
    assert_null(strstr(cookie, "Domain="));
    assert_int_equal(strncmp(cookie, "__Host-", 7) == 0, secure);
    assert_int_equal(strstr(cookie, "; Secure") != NULL, secure);
    vt_call_fini(&call);
    cookie[strcspn(cookie, ";")] = 0;
    // Every changing route refuses the cookie without the header that only scripts of this origin
    // send.
    const vt_route *route;
    for (int i = 0; (route = vt_route_at(i)); i++) {
      char url[1024];
      if (strcmp(route->method, "GET") == 0 || *route->permission == '-') continue;
      fill(route, TESTING_PROJECT, url);
      vt_call_init(&call, t.cloud, route->method, url);
      call.secure = secure;
      vt_call_add_header(&call, "Cookie", cookie);
      vt_call_run(&call);
      if (call.status != 403) fail_msg("%s %s by cookie: %d", route->method, url, call.status);
      vt_call_fini(&call);
    }
  }
  vt_testing_close(&t);
}

static void viewers_look_and_do_not_touch(void **state) {
  vt_testing t;
  const vt_route *route;
  char url[1024];
  int status;
  (void)state;
  vt_testing_open(&t, "");
  char *viewer = vt_testing_account(&t, "vic@example.com", "user");
  json_decref(vt_testing_call(&t, "POST", "/v1/projects/" TESTING_PROJECT ":setIamPolicy",
                              "{\"policy\":{\"bindings\":[{\"role\":\"roles/"
                              "owner\",\"members\":[\"user:admin@vtpu.localhost\"]},{\"role\":"
                              "\"roles/tpu.viewer\",\"members\":[\"user:vic@example.com\"]}]}}",
                              200));
  json_decref(vt_testing_call_as(
      &t, viewer, "GET", "/v2/projects/" TESTING_PROJECT "/locations/-/nodes", NULL, &status));
  assert_int_equal(status, 200);
  for (int i = 0; (route = vt_route_at(i)); i++) {
    if (!strstr(route->path, "{project}") || strcmp(route->method, "GET") == 0 ||
        *route->permission == '@')
      continue;
    fill(route, TESTING_PROJECT, url);
    json_decref(vt_testing_call_as(&t, viewer, route->method, url, "{}", &status));
    if (status != 403) fail_msg("%s %s by a viewer: %d", route->method, url, status);
  }
  free(viewer);
  vt_testing_close(&t);
}

static void a_disabled_api_says_how_to_enable_it(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(
      &t, "POST", "/v1/projects/" TESTING_PROJECT "/services/tpu.googleapis.com:disable", "{}",
      200));
  json_t *reply =
      vt_testing_call(&t, "GET", "/v2/projects/" TESTING_PROJECT "/locations/-/nodes", NULL, 403);
  assert_string_equal(vt_testing_text(reply, "error.details.0.reason"), "SERVICE_DISABLED");
  assert_non_null(strstr(vt_testing_text(reply, "error.message"),
                         "Cloud TPU API has not been used in project"));
  json_decref(reply);
  json_decref(vt_testing_call(&t, "POST",
                              "/v1/projects/" TESTING_PROJECT "/services/tpu.googleapis.com:enable",
                              "{}", 200));
  json_decref(
      vt_testing_call(&t, "GET", "/v2/projects/" TESTING_PROJECT "/locations/-/nodes", NULL, 200));
  vt_testing_close(&t);
}

static void logs_stay_in_their_project(void **state) {
  vt_testing t;
  int status;
  (void)state;
  vt_testing_open(&t, "");
  char *stranger = vt_testing_account(&t, "eve@example.com", "user");
  const char *entry = "{\"logName\":\"projects/" TESTING_PROJECT
                      "/logs/run\",\"entries\":[{\"textPayload\":\"secret\"}]}";
  json_decref(vt_testing_call(&t, "POST", "/v2/entries:write", entry, 200));
  json_t *list = vt_testing_call(&t, "POST", "/v2/entries:list",
                                 "{\"resourceNames\":[\"projects/" TESTING_PROJECT "\"]}", 200);
  assert_string_equal(vt_testing_text(list, "entries.0.textPayload"), "secret");
  json_decref(list);
  json_decref(vt_testing_call_as(&t, stranger, "POST", "/v2/entries:list",
                                 "{\"resourceNames\":[\"projects/" TESTING_PROJECT "\"]}",
                                 &status));
  assert_int_equal(status, 403);
  json_decref(vt_testing_call_as(&t, stranger, "POST", "/v2/entries:write", entry, &status));
  assert_int_equal(status, 403);
  json_t *skus = vt_testing_call(&t, "GET", "/v1/services/E000-3F24-B8AA/skus", NULL, 200);
  assert_non_null(json_object_get(skus, "nextPageToken"));
  assert_true(json_array_size(json_object_get(skus, "skus")) > 10);
  json_decref(skus);
  free(stranger);
  vt_testing_close(&t);
}

static void faults_come_when_ordered(void **state) {
  vt_testing t;
  int status, failed = 0;
  const char *list = "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes";
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/faults", "{\"share\":2}", 400));
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/faults", "{\"share\":1,\"code\":200}", 400));
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/faults",
                              "{\"share\":0.25,\"code\":429,\"seconds\":60,\"delayMs\":1}", 200));
  for (int i = 0; i < 40; i++) {
    json_decref(vt_testing_call_as(&t, t.token, "GET", list, NULL, &status));
    assert_true(status == 200 || status == 429);
    failed += status == 429;
  }
  assert_int_equal(failed, 10);
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/faults",
                              "{\"share\":1,\"code\":503,\"seconds\":60}", 200));
  json_decref(vt_testing_call(&t, "GET", list, NULL, 503));
  json_decref(vt_testing_call(&t, "GET", "/vtpu/v1/me", NULL, 200)); // our own calls are exempt
  json_decref(vt_testing_call_as(&t, NULL, "GET", list, NULL, &status));
  assert_int_equal(status, 401);
  vt_testing_advance(&t, 61);
  json_decref(vt_testing_call(&t, "GET", list, NULL, 200));
  vt_testing_close(&t);
}

static void tokens_end(void **state) {
  vt_testing t;
  char *token;
  int status;
  (void)state;
  vt_testing_open(&t, "");
  const vt_token_start hour = {"admin@vtpu.localhost", "access", "", "", VT_HOUR};
  assert_null(vt_token_create(t.cloud, &hour, &token));
  json_decref(vt_testing_call_as(&t, token, "GET", "/vtpu/v1/me", NULL, &status));
  assert_int_equal(status, 200);
  vt_testing_advance(&t, 3600);
  json_decref(vt_testing_call_as(&t, token, "GET", "/vtpu/v1/me", NULL, &status));
  assert_int_equal(status, 401);
  vt_memory_free(token);
  // A refresh token is not an access token, but yields one.
  const vt_token_start refresh = {"admin@vtpu.localhost", "refresh", "", "", 0};
  assert_null(vt_token_create(t.cloud, &refresh, &token));
  json_decref(vt_testing_call_as(&t, token, "GET", "/vtpu/v1/me", NULL, &status));
  assert_int_equal(status, 401);
  char body[256];
  snprintf(body, sizeof body, "{\"grant_type\":\"refresh_token\",\"refresh_token\":\"%s\"}", token);
  json_t *reply = vt_testing_call(&t, "POST", "/token", body, 200);
  json_decref(vt_testing_call_as(&t, vt_testing_text(reply, "access_token"), "GET", "/vtpu/v1/me",
                                 NULL, &status));
  assert_int_equal(status, 200);
  json_decref(reply);
  vt_memory_free(token);
  vt_testing_close(&t);
}

static void tampered_jwts_are_nobody(void **state) {
  vt_testing t;
  int status;
  static const char *const jwts[] = {
      "eyJ", "eyJ.eyJ.eyJ", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJhZG1pbkB2dHB1LmxvY2FsaG9zdCJ9.",
      "eyJhbGciOiJub25lIn0.eyJpc3MiOiJhZG1pbkB2dHB1LmxvY2FsaG9zdCJ9.AAAA"};
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof jwts / sizeof *jwts; i++) {
    json_decref(vt_testing_call_as(&t, jwts[i], "GET", "/vtpu/v1/me", NULL, &status));
    assert_int_equal(status, 401);
  }
  // What we sign ourselves (id_token) is not accepted as a credential either.
  json_t *claims =
      json_pack("{s:s, s:s}", "iss", "admin@vtpu.localhost", "sub", "admin@vtpu.localhost");
  char *own = vt_jwt_sign(t.cloud, claims);
  json_decref(vt_testing_call_as(&t, own, "GET", "/vtpu/v1/me", NULL, &status));
  assert_int_equal(status, 401);
  vt_memory_free(own);
  json_decref(claims);
  vt_testing_close(&t);
}

static void grants_give_and_take_quota(void **state) {
  vt_testing t;
  int status;
  char url[128];
  const char *create = "/v2/projects/student-lab/locations/us-central2-b/nodes?nodeId=a";
  const char *node = "{\"acceleratorType\":\"v4-16\",\"runtimeVersion\":\"v2-alpha\"}";
  (void)state;
  vt_testing_open(&t, "");
  char *student = vt_testing_account(&t, "ann@example.com", "user"),
       *reviewer = vt_testing_account(&t, "rev@example.com", "reviewer");
  json_decref(vt_testing_call_as(&t, student, "POST", "/v1/projects",
                                 "{\"projectId\":\"student-lab\"}", &status));
  assert_int_equal(status, 200);
  json_decref(vt_testing_call_as(&t, student, "POST",
                                 "/v1/projects/student-lab/services/tpu.googleapis.com:enable",
                                 "{}", &status));
  json_decref(vt_testing_call_as(&t, student, "POST", create, node, &status));
  assert_int_equal(status, 429);
  json_t *grant = vt_testing_call_as(
      &t, student, "POST", "/vtpu/v1/grants",
      "{\"project\":\"student-lab\",\"purpose\":\"small language "
      "models\",\"days\":30,\"items\":[{\"zone\":"
      "\"us-central2-b\",\"family\":\"v4\",\"chips\":8,\"mode\":\"on-demand\"}]}",
      &status);
  assert_int_equal(status, 200);
  snprintf(url, sizeof url, "/vtpu/v1/grants/%s:approve", vt_testing_text(grant, "id"));
  json_decref(grant);
  json_decref(vt_testing_call_as(&t, student, "POST", url, "{}", &status));
  assert_int_equal(status, 403);
  json_decref(vt_testing_call_as(&t, reviewer, "POST", url, "{}", &status));
  assert_int_equal(status, 200);
  json_decref(vt_testing_call_as(&t, student, "POST", create, node, &status));
  assert_int_equal(status, 200);
  vt_testing_reconcile(&t);
  json_t *view =
      vt_testing_call_as(&t, student, "GET",
                         "/v2/projects/student-lab/locations/us-central2-b/nodes/a", NULL, &status);
  assert_string_equal(vt_testing_text(view, "state"), "READY");
  json_decref(view);
  vt_testing_advance(&t, 31 * 86400);
  view =
      vt_testing_call_as(&t, student, "GET",
                         "/v2/projects/student-lab/locations/us-central2-b/nodes/a", NULL, &status);
  assert_string_equal(vt_testing_text(view, "state"), "TERMINATED");
  json_decref(view);
  free(student);
  free(reviewer);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_route_asks_who_calls),
      cmocka_unit_test(every_route_keeps_strangers_out),
      cmocka_unit_test(every_grpc_method_asks_who_calls),
      cmocka_unit_test(every_reply_has_the_headers),
      cmocka_unit_test(sessions_do_not_travel),
      cmocka_unit_test(viewers_look_and_do_not_touch),
      cmocka_unit_test(a_disabled_api_says_how_to_enable_it),
      cmocka_unit_test(logs_stay_in_their_project),
      cmocka_unit_test(faults_come_when_ordered),
      cmocka_unit_test(tokens_end),
      cmocka_unit_test(tampered_jwts_are_nobody),
      cmocka_unit_test(grants_give_and_take_quota),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
