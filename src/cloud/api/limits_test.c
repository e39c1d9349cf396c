// SPDX-License-Identifier: Apache-2.0
// limits_test.c - what one tenant or one worker can make the cloud store and do is bounded: guest
// attributes, tokens, requests of a worker, queued resources; and rows are removed after their
// retention period.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/cloud_testing.h"
#include "cloud/door/metadata.h"
#include "cloud/state/retention.h"

#define Z "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"

// A request of the first worker of node "a"; *out_text (the caller frees it) may be NULL.
static int ask(vt_testing *t, const char *method, const char *path, const char *body, size_t size,
               char **out_text) {
  vt_call call;
  vt_rows *rows;
  char full[600], ip[64] = "";
  assert_null(
      vt_store_query(t->cloud->store, &rows, "SELECT ip FROM workers WHERE worker = 0", ""));
  if (vt_rows_next(rows)) snprintf(ip, sizeof ip, "%s", vt_rows_text(rows, 0));
  assert_null(vt_rows_end(rows));
  snprintf(full, sizeof full, "/computeMetadata/v1/%s", path);
  vt_call_init(&call, t->cloud, method, full);
  vt_call_add_header(&call, "Metadata-Flavor", "Google");
  call.peer = ip;
  call.body_text = body;
  call.body_size = size;
  vt_metadata_run(&call);
  int status = call.status;
  if (out_text) *out_text = strdup(vt_text_string(&call.raw));
  vt_call_fini(&call);
  return status;
}

static int64_t count(vt_testing *t, const char *sql) {
  int64_t n;
  assert_null(vt_store_int(t->cloud->store, &n, 0, sql, ""));
  return n;
}

static void guest_attributes_are_bounded(void **state) {
  static const struct {
    const char *path, *body;
    size_t size;
    int status;
  } rows[] = {
      {"a/b", "text", 4, 200}, {"a/b", "", 0, 200},     {"a/b.c_d-E9", "\xe2\x82\xac", 3, 200},
      {"a/b", "x\0y", 3, 400}, {"a/b", "\xff", 1, 400}, {"a/", "", 0, 400},
      {"/b", "", 0, 400},      {"a", "", 0, 400},       {"a/b/c", "", 0, 400},
      {"a/<b>", "", 0, 400},   {"a/%00", "", 0, 400}};
  static char large[(32 << 10) + 1];
  char path[400], name[140];
  vt_testing t;
  int status = 200, made;
  (void)state;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "a", "v4-8");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    snprintf(path, sizeof path, "instance/guest-attributes/%s", rows[i].path);
    status = ask(&t, "PUT", path, rows[i].body, rows[i].size, NULL);
    if (status != rows[i].status) fail_msg("%s: %d", path, status);
  }
  memset(large, 'x', sizeof large);
  memset(name, 'n', sizeof name);
  name[128] = 0;
  snprintf(path, sizeof path, "instance/guest-attributes/%s/b", name);
  assert_int_equal(ask(&t, "PUT", path, "", 0, NULL), 200);
  name[128] = 'n', name[129] = 0;
  snprintf(path, sizeof path, "instance/guest-attributes/%s/b", name);
  assert_int_equal(ask(&t, "PUT", path, "", 0, NULL), 400);
  assert_int_equal(ask(&t, "PUT", "instance/guest-attributes/a/l", large, 32 << 10, NULL), 200);
  assert_int_equal(ask(&t, "PUT", "instance/guest-attributes/a/l", large, (32 << 10) + 1, NULL),
                   400);
  for (made = 0; made < 20; made++) {
    snprintf(path, sizeof path, "instance/guest-attributes/large/%d", made);
    if ((status = ask(&t, "PUT", path, large, 32 << 10, NULL)) != 200) break;
  }
  assert_int_equal(status, 429);
  assert_true(count(&t, "SELECT SUM(LENGTH(value)) FROM guest_attributes") <= 256 << 10);
  // What the agent writes always fits, and deleting makes room.
  assert_int_equal(
      ask(&t, "PUT", "instance/guest-attributes/hostkeys/ssh-ed25519", large, 1000, NULL), 200);
  assert_int_equal(ask(&t, "DELETE", "instance/guest-attributes/large/0", "", 0, NULL), 200);
  assert_int_equal(ask(&t, "GET", "instance/guest-attributes/large/0", "", 0, NULL), 404);
  assert_int_equal(ask(&t, "PUT", "instance/guest-attributes/large/0", large, 1000, NULL), 200);
  vt_testing_close(&t);
}

static void a_worker_has_so_many_attributes(void **state) {
  vt_testing t;
  char path[80];
  (void)state;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "a", "v4-8");
  assert_null(vt_store_run(
      t.cloud->store, NULL,
      "INSERT INTO guest_attributes (node, worker, namespace, key, value) WITH RECURSIVE n(i) AS "
      "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 127) SELECT uid, 0, 'a', 'k' || i, '' "
      "FROM "
      "n, nodes",
      ""));
  assert_int_equal(ask(&t, "PUT", "instance/guest-attributes/a/x", "", 0, NULL), 200);
  snprintf(path, sizeof path, "instance/guest-attributes/a/y");
  assert_int_equal(ask(&t, "PUT", path, "", 0, NULL), 429);
  assert_int_equal(ask(&t, "PUT", "instance/guest-attributes/a/x", "new", 3, NULL), 200);
  vt_testing_close(&t);
}

// A flood is told to wait; the agent's reports have their own bucket.
static void a_worker_asks_so_often(void **state) {
  static const struct {
    const char *method, *path;
  } rows[] = {{"PUT", "instance/guest-attributes/a/b"},
              {"GET", "instance/id"},
              {"DELETE", "instance/guest-attributes/a/b"}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_testing t;
    int code = 200;
    vt_testing_open(&t, "");
    vt_testing_create(&t, "a", "v4-8");
    for (int n = 0; n < 1000000 && code == 200; n++)
      code = ask(&t, rows[i].method, rows[i].path, "", 0, NULL);
    assert_int_equal(code, 429); // the next one may be allowed again, a moment later
    free(vt_testing_beat(&t, "a", 0, 1, ""));
    vt_testing_close(&t);
  }
}

static void a_worker_has_one_token(void **state) {
  const char *path = "instance/service-accounts/default/token";
  vt_testing t;
  char *first, *text;
  (void)state;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "a", "v4-8");
  assert_int_equal(ask(&t, "GET", path, "", 0, &first), 200);
  int64_t rows = count(&t, "SELECT COUNT(*) FROM tokens");
  for (int i = 0; i < 100; i++) {
    assert_int_equal(ask(&t, "GET", path, "", 0, &text), 200);
    assert_memory_equal(text, first, strlen("{\"access_token\":\"vtg.") + 64);
    free(text);
  }
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM tokens"), rows);
  vt_testing_advance(&t, 50 * 60);
  assert_int_equal(ask(&t, "GET", path, "", 0, &text), 200);
  json_t *reply = json_loads(text, 0, NULL);
  assert_true(json_integer_value(json_object_get(reply, "expires_in")) <= 600);
  json_decref(reply);
  free(text);
  // With less than five minutes left, or after a revocation, there is a new one.
  vt_testing_advance(&t, 6 * 60);
  assert_int_equal(ask(&t, "GET", path, "", 0, &text), 200);
  assert_memory_not_equal(text, first, strlen("{\"access_token\":\"vtg.") + 64);
  free(first);
  first = text;
  assert_null(vt_store_run(t.cloud->store, NULL, "DELETE FROM tokens WHERE kind = 'guest'", ""));
  assert_null(
      vt_store_run(t.cloud->store, NULL, "DELETE FROM tokens WHERE email LIKE '%-compute@%'", ""));
  assert_int_equal(ask(&t, "GET", path, "", 0, &text), 200);
  assert_string_not_equal(text, first);
  free(text);
  free(first);
  vt_testing_close(&t);
}

// --- the queue

#define SPEC(more)                                                                                 \
  "{\"parent\":\"projects/" TESTING_PROJECT "/locations/us-central2-b\"," more                     \
  "\"node\":{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}}"

static int enqueue(vt_testing *t, const char *id, const char *spec, int times) {
  vt_text body = {0};
  char url[160];
  int status;
  vt_text_put(&body, "{\"tpu\":{\"nodeSpec\":[");
  for (int i = 0; i < times; i++) {
    if (i) vt_text_put(&body, ",");
    vt_text_put(&body, spec);
  }
  vt_text_put(&body, "]}}");
  snprintf(url, sizeof url, Z "/queuedResources?queuedResourceId=%s", id);
  json_decref(vt_testing_call_as(t, t->token, "POST", url, vt_text_string(&body), &status));
  vt_text_free(&body);
  return status;
}

static void requests_of_the_queue_are_bounded(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  const char *many = SPEC("\"multisliceParams\":{\"nodeCount\":256},");
  assert_int_equal(enqueue(&t, "most", many, 1), 200);
  assert_int_equal(enqueue(&t, "twice", many, 2), 400);
  assert_int_equal(enqueue(&t, "thousands", many, 3000), 400);
  assert_int_equal(enqueue(&t, "over", SPEC("\"multisliceParams\":{\"nodeCount\":257},"), 1), 400);
  assert_int_equal(
      enqueue(&t, "wrapped", SPEC("\"multisliceParams\":{\"nodeCount\":9223372036854775807},"), 1),
      400);
  vt_testing_close(&t);
}

// This many may wait; when there is room they are served in order, including those behind the head.
static void a_project_has_so_many_requests(void **state) {
  vt_testing t;
  char id[16];
  int made = 0, status = 200;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/capacity",
                              "{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":0}", 200));
  for (; made < 200 && status == 200; made++) {
    snprintf(id, sizeof id, "q%d", made);
    vt_testing_advance(&t, 1);
    status = enqueue(&t, id, SPEC(""), 1);
  }
  assert_int_equal(status, 429);
  assert_int_equal(made, 101);
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/capacity",
                              "{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":240}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/q0", "state.state", "ACTIVE");
  vt_testing_expect(&t, Z "/queuedResources/q49", "state.state", "ACTIVE");
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/capacity",
                              "{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":4000}",
                              200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/q99", "state.state", "ACTIVE");
  vt_testing_close(&t);
}

static void old_rows_go(void **state) {
  static const char *const counts[] = {"SELECT COUNT(*) FROM operations WHERE verb = 'old'",
                                       "SELECT COUNT(*) FROM events WHERE kind = 'old'",
                                       "SELECT COUNT(*) FROM log_entries"};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  t.cloud->options.keep_operations = 10;
  t.cloud->options.keep_events = 20;
  t.cloud->options.keep_logs = 30;
  vt_testing_create(&t, "a", "v4-8");
  for (int i = 0; i < 3; i++) {
    static const char *const fills[] = {
        "INSERT INTO operations (name, project, zone, verb, target, api, node, done, cancel, "
        "caller, created_ns, ended_ns) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        "FROM "
        "n WHERE i < 1000) SELECT 'operation-' || i, 'p', 'z', 'old', '', 'v2', 0, 1, 0, '', ?, ? "
        "FROM n",
        "INSERT INTO events (id, kind, project, actor, target, detail, at_ns) WITH RECURSIVE n(i) "
        "AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT -i, 'old', '', '', '', "
        "'', ? + ? * 0 FROM n",
        "INSERT INTO log_entries (id, project, at_ns, body) WITH RECURSIVE n(i) AS (SELECT 1 UNION "
        "ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i, 'p', ? + ? * 0, '{}' FROM n"};
    assert_null(vt_store_run(t.cloud->store, NULL, fills[i], "ii", vt_cloud_now(t.cloud),
                             vt_cloud_now(t.cloud)));
  }
  int64_t usage = count(&t, "SELECT COUNT(*) FROM usage");
  for (int i = 0; i < 3; i++) {
    vt_testing_advance(&t, 9 * 86400);
    for (int k = i; k < 3; k++) assert_int_equal(count(&t, counts[k]), 1000);
    t.cloud->virtual_ns += 2 * VT_DAY;
    bool more = true;
    int steps = 0;
    for (; more; steps++) assert_null(vt_retention_step(t.cloud, &more));
    assert_true(steps > 4); // a few rows at a time
    t.cloud->virtual_ns -= VT_DAY;
    assert_int_equal(count(&t, counts[i]), 0);
  }
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM events WHERE kind = 'secret'"), 1);
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM usage"), usage);
  vt_testing_expect(&t, Z "/nodes/a", "state", "READY");
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(guest_attributes_are_bounded),
                                     cmocka_unit_test(a_worker_has_so_many_attributes),
                                     cmocka_unit_test(a_worker_asks_so_often),
                                     cmocka_unit_test(a_worker_has_one_token),
                                     cmocka_unit_test(requests_of_the_queue_are_bounded),
                                     cmocka_unit_test(a_project_has_so_many_requests),
                                     cmocka_unit_test(old_rows_go)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
