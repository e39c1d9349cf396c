// SPDX-License-Identifier: Apache-2.0
// health_test.c - node health from workers' heartbeats, on the virtual clock, and symptoms that
// workers report or that follow from their reports.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/call.h"

#define Z "/v2alpha1/projects/demo-project/locations/us-central2-b/nodes/"

static void heartbeat(vt_testing *t, const char *id, int worker) {
  free(vt_testing_beat(t, id, worker, 1, ""));
}

static void is(vt_testing *t, const char *id, const char *health, const char *description) {
  char url[128];
  snprintf(url, sizeof url, Z "%s", id);
  vt_testing_expect(t, url, "state", "READY");
  vt_testing_expect(t, url, "health", health);
  vt_testing_expect(t, url, "healthDescription", description);
}

static int events(vt_testing *t, const char *kind) {
  int count = 0;
  size_t i;
  json_t *reply = vt_testing_call(t, "GET", "/vtpu/v1/projects/demo-project/events", NULL, 200),
         *event;
  json_array_foreach(json_object_get(reply, "events"), i,
                     event) if (strcmp(vt_testing_text(event, "kind"), kind) == 0) count++;
  json_decref(reply);
  return count;
}

static size_t symptoms(vt_testing *t, const char *id) {
  char url[128];
  snprintf(url, sizeof url, Z "%s", id);
  json_t *node = vt_testing_call(t, "GET", url, NULL, 200);
  size_t count = json_array_size(json_object_get(node, "symptoms"));
  json_decref(node);
  return count;
}

static void a_silent_worker_is_a_timeout(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "pod", "v4-16");
  vt_testing_create(&t, "mute", "v4-8"); // of workers never heard from
  is(&t, "pod", "HEALTHY", "");
  for (int i = 0; i < 20; i++) {
    heartbeat(&t, "pod", 0);
    heartbeat(&t, "pod", 1);
    vt_testing_advance(&t, 2);
  }
  is(&t, "pod", "HEALTHY", "");
  heartbeat(&t, "pod", 0);
  heartbeat(&t, "pod", 1);
  vt_testing_advance(&t, 9);
  heartbeat(&t, "pod", 0);
  is(&t, "pod", "HEALTHY", "");
  vt_testing_advance(&t, 1); // ten seconds after the last heartbeat of worker 1
  is(&t, "pod", "TIMEOUT", "Worker 1 is not heard of.");
  is(&t, "mute", "HEALTHY", "");
  vt_testing_expect(&t, "/vtpu/v1/projects/demo-project/nodes/us-central2-b/pod:doctor", "verdict",
                    "No host runs a program; worker 1 is not heard of.");
  // Lists show it too, despite their cache.
  vt_testing_expect(&t, "/v2/projects/demo-project/locations/us-central2-b/nodes", "nodes.1.health",
                    "TIMEOUT");
  vt_testing_advance(&t, 3600);
  assert_int_equal(events(&t, "health"), 1);
  heartbeat(&t, "pod", 0);
  is(&t, "pod", "TIMEOUT", "Worker 1 is not heard of.");
  heartbeat(&t, "pod", 1);
  is(&t, "pod", "HEALTHY", "");
  // Stopped workers send nothing, and started ones get their time.
  vt_testing_create(&t, "one", "v4-8");
  heartbeat(&t, "one", 0);
  json_decref(vt_testing_call(&t, "POST", Z "one:stop", "{}", 200));
  vt_testing_reconcile(&t);
  vt_testing_advance(&t, 3600);
  vt_testing_expect(&t, Z "one", "health", "HEALTH_UNSPECIFIED");
  json_decref(vt_testing_call(&t, "POST", Z "one:start", "{}", 200));
  vt_testing_reconcile(&t);
  is(&t, "one", "HEALTHY", "");
  vt_testing_advance(&t, 9);
  is(&t, "one", "HEALTHY", "");
  vt_testing_advance(&t, 2);
  is(&t, "one", "TIMEOUT", "Worker 0 is not heard of.");
  vt_testing_close(&t);
}

static void workers_tell_symptoms(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "one", "v4-8");
  free(vt_testing_beat(&t, "one", 0, 1,
                       "symptom OUT_OF_MEMORY 2 processes were ended\n"
                       "symptom PROJECT_ABUSE no\nsymptom MESH_BUILD_FAIL no\nsymptom\nsymptom \n"
                       "symptom LOW_MEMORY\nsymptom HBM_OUT_OF_MEMORY \x01\xff<b>\n"));
  assert_int_equal(symptoms(&t, "one"), 2);
  vt_testing_expect(&t, Z "one", "symptoms.0.symptomType", "HBM_OUT_OF_MEMORY");
  vt_testing_expect(&t, Z "one", "symptoms.0.details", "\?\?<b>");
  vt_testing_expect(&t, Z "one", "symptoms.1.symptomType", "OUT_OF_MEMORY");
  vt_testing_expect(&t, Z "one", "symptoms.1.workerId", "0");
  vt_testing_expect(&t, Z "one", "symptoms.1.details", "2 processes were ended");
  vt_testing_expect(&t, "/v1/projects/demo-project/locations/us-central2-b/nodes/one",
                    "symptoms.1.symptomType", "OUT_OF_MEMORY");
  is(&t, "one", "HEALTHY", ""); // the machine keeps working
  assert_int_equal(events(&t, "symptom"), 2);
  // A repeated symptom is reported once a minute.
  json_t *node = vt_testing_call(&t, "GET", Z "one", NULL, 200);
  char first[64];
  snprintf(first, sizeof first, "%s", vt_testing_text(node, "symptoms.1.createTime"));
  json_decref(node);
  for (int i = 0; i < 35; i++) {
    vt_testing_advance(&t, 2);
    free(vt_testing_beat(&t, "one", 0, 1, "symptom OUT_OF_MEMORY more\n"));
  }
  assert_int_equal(events(&t, "symptom"), 3);
  assert_int_equal(symptoms(&t, "one"), 2);
  vt_testing_expect(&t, Z "one", "symptoms.1.details", "more");
  node = vt_testing_call(&t, "GET", Z "one", NULL, 200);
  assert_true(strcmp(vt_testing_text(node, "symptoms.1.createTime"), first) > 0);
  json_decref(node);
  // They go with the machine that had them.
  json_decref(vt_testing_call(&t, "POST", Z "one:stop", "{}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "one", "state", "STOPPED");
  assert_int_equal(symptoms(&t, "one"), 0);
  vt_testing_close(&t);
}

static void report(vt_testing *t, const char *id, int worker, int running, const char *lines) {
  char text[512];
  snprintf(text, sizeof text,
           "epoch 1\nprograms 0\nbusy_ns 0\ndevice_ns 0\nprocesses 1\nrunning %d\nhbm_bytes 1\n"
           "hbm_limit 9\n%s",
           running, lines);
  assert_int_equal(vt_testing_report(t, id, worker, text), 200);
}

static void hosts_that_wait_are_a_symptom(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "pod", "v4-16");
  report(&t, "pod", 1, 0, "holder 7 100 0 ada - python3 train.py\n");
  for (int i = 0; i < 149; i++) {
    vt_testing_advance(&t, 2);
    heartbeat(&t, "pod", 0);
    heartbeat(&t, "pod", 1);
  }
  is(&t, "pod", "HEALTHY", "");
  vt_testing_advance(&t, 2); // five minutes
  heartbeat(&t, "pod", 0);
  is(&t, "pod", "UNHEALTHY_TENSORFLOW", "Hosts of the slice wait for others.");
  vt_testing_expect(&t, Z "pod", "symptoms.0.symptomType", "MESH_BUILD_FAIL");
  vt_testing_expect(&t, Z "pod", "symptoms.0.workerId", "1");
  vt_testing_expect(
      &t, Z "pod", "symptoms.0.details",
      "1 of 2 hosts run a program: host 0 has not started; start it with --worker=all.");
  // A running host does not wait, whatever its peers do.
  report(&t, "pod", 1, 1, "holder 7 100 0 ada - python3 train.py\n");
  heartbeat(&t, "pod", 0);
  is(&t, "pod", "HEALTHY", "");
  report(&t, "pod", 0, 0, "holder 7 100 0 ada - python3 train.py\n");
  heartbeat(&t, "pod", 0);
  is(&t, "pod", "HEALTHY", "");
  vt_testing_close(&t);
}

static void a_run_without_end_is_a_symptom(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "one", "v4-8");
  heartbeat(&t, "one", 0);
  report(&t, "one", 0, 1, "longest_ns 3599000000000\n");
  heartbeat(&t, "one", 0);
  is(&t, "one", "HEALTHY", "");
  report(&t, "one", 0, 1, "longest_ns 3600000000000\n");
  heartbeat(&t, "one", 0);
  is(&t, "one", "UNHEALTHY_TENSORFLOW", "A program on worker 0 does not end.");
  vt_testing_expect(&t, Z "one", "symptoms.0.symptomType", "EXECUTE_TIMED_OUT");
  // A silent worker is worse.
  vt_testing_advance(&t, 11);
  is(&t, "one", "TIMEOUT", "Worker 0 is not heard of.");
  report(&t, "one", 0, 1, "longest_ns 5000000\n");
  heartbeat(&t, "one", 0);
  is(&t, "one", "HEALTHY", "");
  assert_int_equal(symptoms(&t, "one"), 1);
  report(&t, "one", 0, 1, "longest_ns -5\n");
  report(&t, "one", 0, 1, "longest_ns x\n");
  heartbeat(&t, "one", 0);
  is(&t, "one", "HEALTHY", "");
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_silent_worker_is_a_timeout),
      cmocka_unit_test(workers_tell_symptoms),
      cmocka_unit_test(hosts_that_wait_are_a_symptom),
      cmocka_unit_test(a_run_without_end_is_a_symptom),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
