// SPDX-License-Identifier: Apache-2.0
// queue_test.c - queued resources: waiting for chips, all nodes or none, suspension, reset,
// deadlines, deletion.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <string.h>

#define Z        "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define NODE     "\"node\":{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"tpu-ubuntu2204-base\"}"
#define SPEC(id) "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"p\",\"nodeId\":\"" id "\"," NODE "}]}"

static void set_capacity(vt_testing *t, int chips) {
  char body[128];
  snprintf(body, sizeof body, "{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":%d}", chips);
  json_decref(vt_testing_call(t, "POST", "/vtpu/v1/capacity", body, 200));
}

static void enqueue(vt_testing *t, const char *id, const char *body) {
  char url[256];
  snprintf(url, sizeof url, Z "/queuedResources?queuedResourceId=%s", id);
  json_t *operation = vt_testing_call(t, "POST", url, body, 200);
  assert_true(json_is_true(json_object_get(operation, "done")));
  json_decref(operation);
  vt_testing_reconcile(t);
}

static void a_request_becomes_active(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  enqueue(&t, "q", SPEC("n") "}");
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "ACTIVE");
  vt_testing_expect(&t, Z "/nodes/n", "queuedResource",
                    "projects/" TESTING_PROJECT "/locations/us-central2-b/queuedResources/q");
  json_decref(vt_testing_call(&t, "DELETE", Z "/queuedResources/q", NULL, 400));
  json_decref(vt_testing_call(&t, "DELETE", Z "/queuedResources/q?force=True", NULL, 200));
  vt_testing_reconcile(&t);
  json_decref(vt_testing_call(&t, "GET", Z "/queuedResources/q", NULL, 404));
  json_decref(vt_testing_call(&t, "GET", Z "/nodes/n", NULL, 404));
  vt_testing_close(&t);
}

static void requests_wait_in_order(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  set_capacity(&t, 4);
  enqueue(&t, "first", SPEC("n1") "}");
  enqueue(&t, "spot", SPEC("n2") ",\"spot\":{}}");
  enqueue(&t, "firm", SPEC("n3") "}");
  vt_testing_expect(&t, Z "/queuedResources/spot", "state.state", "WAITING_FOR_RESOURCES");
  vt_testing_expect(&t, Z "/queuedResources/firm", "state.state", "WAITING_FOR_RESOURCES");
  json_decref(vt_testing_call(&t, "DELETE", Z "/queuedResources/first?force=true", NULL, 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/firm", "state.state", "ACTIVE");
  vt_testing_expect(&t, Z "/queuedResources/spot", "state.state", "WAITING_FOR_RESOURCES");
  vt_testing_close(&t);
}

static void slices_come_all_or_none(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  set_capacity(&t, 8);
  enqueue(&t, "many",
          "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"p\",\"multisliceParams\":{\"nodeCount\":3,"
          "\"nodeIdPrefix\":\"s\"}," NODE "}]}}");
  vt_testing_expect(&t, Z "/queuedResources/many", "state.state", "WAITING_FOR_RESOURCES");
  json_t *nodes = vt_testing_call(&t, "GET", Z "/nodes", NULL, 200);
  assert_int_equal(json_array_size(json_object_get(nodes, "nodes")), 0);
  json_decref(nodes);
  set_capacity(&t, 12);
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/many", "state.state", "ACTIVE");
  json_t *node = vt_testing_call(&t, "GET", Z "/nodes/s-2", NULL, 200);
  assert_true(json_is_true(json_object_get(node, "multisliceNode")));
  json_decref(node);
  vt_testing_close(&t);
}

static void preempted_request_is_suspended_and_reset(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  enqueue(&t, "q", SPEC("n") ",\"spot\":{}}");
  json_decref(vt_testing_call(&t, "POST",
                              "/vtpu/v1/projects/" TESTING_PROJECT "/nodes/us-central2-b/n:preempt",
                              "{}", 200));
  vt_testing_advance(&t, 29);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "ACTIVE");
  vt_testing_advance(&t, 2);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "SUSPENDED");
  vt_testing_expect(&t, Z "/queuedResources/q", "state.stateInitiator", "SERVICE");
  json_decref(vt_testing_call(&t, "GET", Z "/nodes/n", NULL, 404));
  json_decref(vt_testing_call(&t, "POST", Z "/queuedResources/q:reset", "{}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "ACTIVE");
  vt_testing_expect(&t, Z "/nodes/n", "state", "READY");
  vt_testing_close(&t);
}

static void a_request_fails_at_its_deadline(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  set_capacity(&t, 0);
  enqueue(&t, "late", SPEC("n") ",\"queueingPolicy\":{\"validUntilDuration\":\"3600s\"}}");
  vt_testing_advance(&t, 3599);
  vt_testing_expect(&t, Z "/queuedResources/late", "state.state", "WAITING_FOR_RESOURCES");
  vt_testing_advance(&t, 1);
  vt_testing_expect(&t, Z "/queuedResources/late", "state.state", "FAILED");
  json_t *view = vt_testing_call(&t, "GET", Z "/queuedResources/late", NULL, 200);
  assert_true(*vt_testing_text(view, "state.failedData.error.message"));
  json_decref(view);
  set_capacity(&t, 8);
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/late", "state.state", "FAILED");
  json_decref(vt_testing_call(&t, "DELETE", Z "/queuedResources/late", NULL, 200));
  vt_testing_close(&t);
}

static void a_request_runs_for_its_duration(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST",
                              "/v2alpha1/projects/" TESTING_PROJECT
                              "/locations/us-central2-b/queuedResources?queuedResourceId=q",
                              SPEC("n") ",\"runDuration\":{\"maxRunDuration\":\"7200s\"}}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/nodes/n", "state", "READY");
  vt_testing_advance(&t, 7199);
  vt_testing_expect(&t, Z "/nodes/n", "state", "READY");
  vt_testing_advance(&t, 2);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "SUSPENDED");
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_request_becomes_active),
      cmocka_unit_test(requests_wait_in_order),
      cmocka_unit_test(slices_come_all_or_none),
      cmocka_unit_test(preempted_request_is_suspended_and_reset),
      cmocka_unit_test(a_request_fails_at_its_deadline),
      cmocka_unit_test(a_request_runs_for_its_duration),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
