// SPDX-License-Identifier: Apache-2.0
// doctor_test.c - workers' reports of the chip holders, and the doctor's verdict on them: hosts
// that have not started, versions that differ, holders that are gone; text from users' processes.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define Z      "/v2alpha1/projects/demo-project/locations/us-central2-b"
#define DOCTOR "/vtpu/v1/projects/demo-project/nodes/us-central2-b/%s:doctor"
#define SUMS                                                                                       \
  "epoch %d\nprograms 1\nbusy_ns 1\ndevice_ns 1\nprocesses 1\nrunning 0\nhbm_bytes 1\n"            \
  "hbm_limit 9\n"
#define JAX(version) "libvtpu=0.1.0,JAX=" version ",python=3.11.2"

static void report(vt_testing *t, const char *id, int worker, int epoch, const char *lines) {
  char text[2048];
  snprintf(text, sizeof text, SUMS "%s", epoch, lines);
  assert_int_equal(vt_testing_report(t, id, worker, text), 200);
}

static json_t *look(vt_testing *t, const char *id) {
  char url[128];
  snprintf(url, sizeof url, DOCTOR, id);
  return vt_testing_call(t, "GET", url, NULL, 200);
}

static void says(vt_testing *t, const char *id, const char *verdict) {
  char url[128], line[512];
  json_t *seen = look(t, id);
  assert_string_equal(vt_testing_text(seen, "verdict"), verdict);
  json_decref(seen);
  // The console's list and every worker get the same verdict.
  snprintf(url, sizeof url, "/vtpu/v1/projects/demo-project/use?node=%s", id);
  vt_testing_expect(t, url, "nodes.0.verdict", verdict);
  char *reply = vt_testing_beat(t, id, 0, 0, "");
  snprintf(line, sizeof line, "verdict %s\n", verdict);
  assert_string_equal(reply, line);
  free(reply);
}

static void hosts_that_have_not_started(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "pod", "v4-32");
  says(&t, "pod", "No host runs a program.");
  report(&t, "pod", 0, 1, "holder 7 100 5 ada " JAX("0.10.2") " python3 train.py\n");
  says(&t, "pod",
       "1 of 4 hosts run a program: hosts 1, 2 and 3 have not started; start it with "
       "--worker=all.");
  report(&t, "pod", 2, 1, "holder 9 100 5 ada " JAX("0.10.2") " python3 train.py\n");
  says(&t, "pod",
       "2 of 4 hosts run a program: hosts 1 and 3 have not started; start it with --worker=all.");
  report(&t, "pod", 1, 1, "holder 9 100 5 ada " JAX("0.10.2") " python3 train.py\n");
  says(&t, "pod",
       "3 of 4 hosts run a program: host 3 has not started; start it with --worker=all.");
  report(&t, "pod", 3, 1, "holder 9 100 5 ada " JAX("0.10.2") " python3 train.py\n");
  says(&t, "pod", "4 of 4 hosts run a program.");
  for (int w = 0; w < 4; w++) report(&t, "pod", w, 1, "");
  says(&t, "pod", "No host runs a program.");
  vt_testing_create(&t, "one", "v4-8");
  says(&t, "one", "No host runs a program.");
  report(&t, "one", 0, 1, "holder 9 100 5 ada - python3\n");
  says(&t, "one", "The host runs a program.");
  // For a large slice, not every host is listed by number.
  vt_testing_create(&t, "huge", "v4-128");
  report(&t, "huge", 3, 1, "holder 7 100 5 ada - python3\n");
  says(&t, "huge",
       "1 of 16 hosts run a program: hosts 0, 1, 2, 4, 5, 6, 7, 8 and 7 more have not started; "
       "start it with --worker=all.");
  vt_testing_close(&t);
}

static void versions_that_differ(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "pod", "v4-32");
  for (int w = 0; w < 4; w++)
    report(&t, "pod", w, 1,
           w == 2 ? "holder 7 100 5 ada " JAX("0.9.1") " python3 train.py\n"
                  : "holder 7 100 5 ada " JAX("0.10.2") " python3 train.py\n");
  says(&t, "pod",
       "4 of 4 hosts run a program; versions differ: worker 0 runs JAX 0.10.2, worker 2 JAX "
       "0.9.1.");
  // The oldest process represents a host; a version that only one host reports is no difference.
  report(&t, "pod", 2, 1,
         "holder 8 200 1 ada " JAX(
             "0.9.1") " python3\n"
                      "holder 6 50 9 ada libvtpu=0.1.0,JAX=0.10.2,torch=3 python3\n");
  says(&t, "pod", "4 of 4 hosts run a program.");
  report(&t, "pod", 3, 1, "");
  report(&t, "pod", 0, 1, "holder 17 300 5 ada libvtpu=0.2.0,JAX=0.10.2 python3\n");
  says(&t, "pod",
       "3 of 4 hosts run a program: host 3 has not started; start it with --worker=all; versions "
       "differ: worker 0 runs libvtpu 0.2.0, worker 1 libvtpu 0.1.0.");
  vt_testing_close(&t);
}

static void holders_are_those_of_now(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "one", "v4-8");
  vt_testing_advance(&t, 100);
  report(&t, "one", 0, 1, "holder 7 100 60000000000 ada " JAX("0.10.2") " python3 train.py\n");
  json_t *first = look(&t, "one");
  const json_t *holder = json_array_get(
      json_object_get(json_array_get(json_object_get(first, "workers"), 0), "holders"), 0);
  assert_int_equal(json_integer_value(json_object_get(holder, "pid")), 7);
  assert_string_equal(vt_testing_text(holder, "user"), "ada");
  assert_string_equal(vt_testing_text(holder, "program"), "python3 train.py");
  assert_string_equal(vt_testing_text(holder, "versions.JAX"), "0.10.2");
  assert_string_equal(vt_testing_text(holder, "versions.python"), "3.11.2");
  // The time of the first report is kept.
  vt_testing_advance(&t, 10);
  report(&t, "one", 0, 1, "holder 7 100 71000000000 ada " JAX("0.10.2") " python3 train.py\n");
  json_t *second = look(&t, "one");
  assert_true(json_equal(first, second));
  json_decref(second);
  // The same pid in another process is another holder.
  report(&t, "one", 0, 1, "holder 7 200 0 bob - perl\n");
  second = look(&t, "one");
  assert_false(json_equal(first, second));
  assert_string_equal(vt_testing_text(second, "workers.0.holders.0.user"), "bob");
  assert_int_equal(json_array_size(json_object_get(
                       json_array_get(json_object_get(second, "workers"), 0), "holders")),
                   1);
  json_decref(first);
  json_decref(second);
  // A rebooted worker says so in its first heartbeat, and its earlier holders are dropped.
  free(vt_testing_beat(&t, "one", 0, 1, ""));
  says(&t, "one", "The host runs a program.");
  free(vt_testing_beat(&t, "one", 0, 2, ""));
  says(&t, "one", "No host runs a program.");
  // A node that is not READY has neither programs nor a verdict.
  report(&t, "one", 0, 2, "holder 7 100 5 ada - python3\n");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/one:stop", "{}", 200));
  vt_testing_reconcile(&t);
  second = look(&t, "one");
  assert_string_equal(vt_testing_text(second, "verdict"), "");
  assert_string_equal(vt_testing_text(second, "workers.0.holders.0.user"), "");
  json_decref(second);
  vt_testing_close(&t);
}

static void words_of_processes_are_only_words(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "one", "v4-8");
  report(&t, "one", 0, 1,
         "holder\nholder \nholder 1\nholder -1 2 3 a b c\nholder 0 2 3 a b c\nholder 1 2 3\n"
         "holder 1 2 3 a\nholder 1 2 99999999999999999999 a b c\nholder x y z a b c\n");
  says(&t, "one", "No host runs a program.");
  report(&t, "one", 0, 1,
         "holder 1 2 3 <b>\x01 =,=,,a=,b,=c,<i>=<u>,\xff=\xfe \xc3\x28<script>\n"
         "holder 2 2 3 x y\n");
  json_t *seen = look(&t, "one");
  assert_string_equal(vt_testing_text(seen, "workers.0.holders.0.user"), "<b>?");
  assert_string_equal(vt_testing_text(seen, "workers.0.holders.0.program"), "?(<script>");
  assert_string_equal(vt_testing_text(seen, "workers.0.holders.1.program"), "");
  json_decref(seen);
  // However many lines arrive, a worker shows few.
  char *text = malloc(1 << 20);
  size_t n = (size_t)snprintf(text, 512, SUMS, 1);
  for (int i = 1; i < 5000; i++) n += (size_t)snprintf(text + n, 64, "holder %d 1 1 a v=1 p\n", i);
  assert_int_equal(vt_testing_report(&t, "one", 0, text), 200);
  free(text);
  seen = look(&t, "one");
  assert_int_equal(json_array_size(json_object_get(
                       json_array_get(json_object_get(seen, "workers"), 0), "holders")),
                   32);
  json_decref(seen);
  vt_testing_close(&t);
}

// The reply to a POST to the node's :release; the body is dropped.
static int release(vt_testing *t, const char *token, const char *body) {
  int status;
  json_decref(vt_testing_call_as(t, token, "POST",
                                 "/vtpu/v1/projects/demo-project/nodes/us-central2-b/pod:release",
                                 body, &status));
  return status;
}

static void releases_are_asked_for_until_it_is_gone(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "pod", "v4-16");
  assert_int_equal(release(&t, t.token, "{\"worker\":1}"), 400); // nobody has its chips
  report(&t, "pod", 1, 1,
         "holder 7 100 5 ada - python3 train.py\nholder 8 200 4 bob - python3 -i\n");
  assert_int_equal(release(&t, t.token, "{\"worker\":1,\"pid\":9}"), 404);
  assert_int_equal(release(&t, t.token, "{\"worker\":0,\"pid\":7}"), 404);
  assert_int_equal(release(&t, t.token, "{\"worker\":2,\"pid\":7}"), 400);
  assert_int_equal(release(&t, t.token, "{\"worker\":-1}"), 400);
  assert_int_equal(release(&t, t.token, "{\"worker\":\"1\"}"), 400);
  assert_int_equal(release(&t, t.token, "{\"worker\":1,\"pid\":\"7\"}"), 400);
  assert_int_equal(release(&t, t.token, "{}"), 400);
  char *reply = vt_testing_beat(&t, "pod", 1, 1, "");
  assert_null(strstr(reply, "release"));
  free(reply);
  assert_int_equal(release(&t, t.token, "{\"worker\":1,\"pid\":7}"), 200);
  assert_int_equal(release(&t, t.token, "{\"worker\":1,\"pid\":7}"), 200); // once is enough
  // Repeated in every reply to that worker's heartbeat until its report no longer has the process.
  for (int i = 0; i < 2; i++) {
    reply = vt_testing_beat(&t, "pod", 1, 1, "");
    assert_non_null(strstr(reply, "release 7 100 "));
    assert_null(strstr(reply, "release 8"));
    free(reply);
  }
  reply = vt_testing_beat(&t, "pod", 0, 1, "");
  assert_null(strstr(reply, "release"));
  free(reply);
  json_t *seen = look(&t, "pod");
  const json_t *holders =
      json_object_get(json_array_get(json_object_get(seen, "workers"), 1), "holders");
  assert_true(json_is_true(json_object_get(json_array_get(holders, 0), "releasing")));
  assert_true(json_is_false(json_object_get(json_array_get(holders, 1), "releasing")));
  json_decref(seen);
  report(&t, "pod", 1, 1, "holder 8 200 4 bob - python3 -i\n");
  assert_int_equal(release(&t, t.token, "{\"worker\":1}"), 200); // any holder
  report(&t, "pod", 1, 1, "");
  reply = vt_testing_beat(&t, "pod", 1, 1, "");
  assert_null(strstr(reply, "release"));
  free(reply);
  // Each is in the audit trail once, by name.
  int count = 0;
  size_t i;
  json_t *events = vt_testing_call(&t, "GET", "/vtpu/v1/projects/demo-project/events", NULL, 200),
         *event;
  json_array_foreach(json_object_get(events, "events"), i, event) {
    if (strcmp(vt_testing_text(event, "kind"), "release") != 0) continue;
    assert_string_equal(vt_testing_text(event, "detail"),
                        count == 0 ? "worker 1: process 8 of bob (python3 -i)"
                                   : "worker 1: process 7 of ada (python3 train.py)");
    assert_non_null(strchr(vt_testing_text(event, "actor"), '@'));
    count++;
  }
  assert_int_equal(count, 2);
  json_decref(events);
  vt_testing_close(&t);
}

// Read access does not allow release.
static void a_viewer_releases_nothing(void **state) {
  (void)state;
  vt_testing t;
  int status;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "pod", "v4-16");
  report(&t, "pod", 0, 1, "holder 7 100 5 ada - python3 train.py\n");
  char *viewer = vt_testing_account(&t, "eve@example.org", "user");
  assert_int_equal(release(&t, viewer, "{\"worker\":0}"), 403);
  json_decref(vt_testing_call(&t, "POST", "/v1/projects/demo-project:setIamPolicy",
                              "{\"policy\":{\"bindings\":[{\"role\":\"roles/owner\",\"members\":["
                              "\"user:admin@vtpu.localhost\"]},{\"role\":\"roles/tpu.viewer\","
                              "\"members\":[\"user:eve@example.org\"]}]}}",
                              200));
  json_decref(vt_testing_call_as(&t, viewer, "GET",
                                 "/vtpu/v1/projects/demo-project/nodes/us-central2-b/pod:doctor",
                                 NULL, &status));
  assert_int_equal(status, 200);
  assert_int_equal(release(&t, viewer, "{\"worker\":0}"), 403);
  char *reply = vt_testing_beat(&t, "pod", 0, 1, "");
  assert_null(strstr(reply, "release"));
  free(reply);
  free(viewer);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hosts_that_have_not_started),
      cmocka_unit_test(versions_that_differ),
      cmocka_unit_test(holders_are_those_of_now),
      cmocka_unit_test(words_of_processes_are_only_words),
      cmocka_unit_test(releases_are_asked_for_until_it_is_gone),
      cmocka_unit_test(a_viewer_releases_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
