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

#define NODE_OF(id, type, more)                                                                    \
  "{\"nodeId\":\"" id "\",\"node\":{\"acceleratorType\":\"" type                                   \
  "\",\"runtimeVersion\":\"v2-alpha\"" more "}}"
#define OF(nodes)   "{\"tpu\":{\"nodeSpec\":[" nodes "]}}"
#define SPOT        ",\"schedulingConfig\":{\"spot\":true}"
#define RESERVED    ",\"schedulingConfig\":{\"reserved\":true}"
#define PREEMPTIBLE ",\"schedulingConfig\":{\"preemptible\":true}"

// Each node of a request counts under its own type and class.
static void unlike_nodes_are_counted_apart(void **state) {
  static const char *const over[] = {
      OF(NODE_OF("a", "v3-8", SPOT) "," NODE_OF("b", "v3-256", "")),
      OF(NODE_OF("a", "v3-8", SPOT) "," NODE_OF("b", "v3-256", SPOT)),
      OF(NODE_OF("a", "v3-8", RESERVED) "," NODE_OF("b", "v3-32", "")),
      OF(NODE_OF("a", "v3-8", "") "," NODE_OF("b", "v3-8", SPOT) "," NODE_OF(
          "c", "v3-8", "") "," NODE_OF("d", "v3-8", "")),
      OF(NODE_OF("a", "v2-8", "") "," NODE_OF("b", "v3-8", "") "," NODE_OF("c", "v3-32", ""))};
  const char *url = "/v2/projects/small-lab/locations/europe-west4-a/queuedResources?"
                    "queuedResourceId=q";
  vt_testing t;
  int status;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", "/v1/projects", "{\"projectId\":\"small-lab\"}", 200));
  json_decref(vt_testing_call(
      &t, "POST", "/v1/projects/small-lab/services/tpu.googleapis.com:enable", "{}", 200));
  for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
    json_t *reply = vt_testing_call_as(&t, t.token, "POST", url, over[i], &status);
    if (status != 429) fail_msg("%s: %d", over[i], status);
    assert_non_null(strstr(vt_testing_text(reply, "error.message"), "Quota limit"));
    json_decref(reply);
  }
  // Two on-demand nodes and a spot one fit such a project's quota.
  json_decref(vt_testing_call(
      &t, "POST", url,
      OF(NODE_OF("a", "v3-8", "") "," NODE_OF("b", "v3-8", "") "," NODE_OF("c", "v3-8", SPOT)),
      200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, "/v2/projects/small-lab/locations/europe-west4-a/queuedResources/q",
                    "state.state", "ACTIVE");
  vt_testing_close(&t);
}

static void unlike_nodes_come_all_or_none(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  set_capacity(&t, 8);
  enqueue(&t, "q", OF(NODE_OF("a", "v4-8", "") "," NODE_OF("b", "v4-16", "")));
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "WAITING_FOR_RESOURCES");
  json_decref(vt_testing_call(&t, "GET", Z "/nodes/a", NULL, 404));
  set_capacity(&t, 12);
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "ACTIVE");
  json_decref(vt_testing_call(&t, "DELETE", Z "/queuedResources/q?force=true", NULL, 200));
  vt_testing_reconcile(&t);
  // Spot nodes make room only when that suffices, and never for spot nodes of the request.
  enqueue(&t, "spot", OF(NODE_OF("s", "v4-8", SPOT)));
  set_capacity(&t, 8);
  enqueue(&t, "large", OF(NODE_OF("a", "v4-8", "") "," NODE_OF("b", "v4-16", "")));
  vt_testing_advance(&t, 1); // two with the same time may come in either order
  enqueue(
      &t, "mixed",
      OF(NODE_OF("m", "v4-8", SPOT) "," NODE_OF("n", "v4-8", SPOT) "," NODE_OF("o", "v4-8", "")));
  vt_testing_advance(&t, 100);
  vt_testing_expect(&t, Z "/nodes/s", "state", "READY");
  vt_testing_expect(&t, Z "/queuedResources/large", "state.state", "WAITING_FOR_RESOURCES");
  vt_testing_expect(&t, Z "/queuedResources/mixed", "state.state", "WAITING_FOR_RESOURCES");
  set_capacity(&t, 12);
  vt_testing_advance(&t, 100);
  vt_testing_expect(&t, Z "/queuedResources/large", "state.state", "ACTIVE");
  vt_testing_expect(&t, Z "/queuedResources/spot", "state.state", "SUSPENDED");
  json_decref(vt_testing_call(&t, "POST", Z "/queuedResources?queuedResourceId=twice",
                              OF(NODE_OF("x", "v4-8", "") "," NODE_OF("x", "v4-8", "")), 409));
  vt_testing_close(&t);
}

static void a_reserved_node_needs_its_reservation(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  enqueue(&t, "q", OF(NODE_OF("a", "v4-8", "") "," NODE_OF("b", "v4-8", RESERVED)));
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "WAITING_FOR_RESOURCES");
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/reservations",
                              "{\"project\":\"" TESTING_PROJECT
                              "\",\"zone\":\"us-central2-b\",\"id\":\"r\",\"family\":\"v4\","
                              "\"chips\":4}",
                              200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "ACTIVE");
  vt_testing_close(&t);
}

static void durations_are_kept_or_refused(void **state) {
  static const char *const bad[] = {"\"maxRunDuration\":\"9223372036s\"",
                                    "\"maxRunDuration\":\"7889400000s\"",
                                    "\"maxRunDuration\":\"10368001s\"",
                                    "\"maxRunDuration\":\"0s\"",
                                    "\"maxRunDuration\":\"29.999999999s\"",
                                    "\"maxRunDuration\":\"-60s\"",
                                    "\"maxRunDuration\":\"1e5s\"",
                                    "\"maxRunDuration\":\"99999999999999999999s\"",
                                    "\"terminationTime\":\"2025-12-31T23:59:59Z\"",
                                    "\"terminationTime\":\"9999-12-31T23:59:59Z\"",
                                    "\"terminationTime\":\"2026-02-30T00:00:00Z\""};
  const char *url = "/v2alpha1/projects/" TESTING_PROJECT
                    "/locations/us-central2-b/queuedResources?queuedResourceId=q";
  vt_testing t;
  char body[512];
  int status;
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(body, sizeof body, SPEC("n") ",\"runDuration\":{%s}}", bad[i]);
    json_decref(vt_testing_call_as(&t, t.token, "POST", url, body, &status));
    if (status != 400) fail_msg("%s: %d", bad[i], status);
  }
  // A preemptible node has 24 hours, whatever other limit it has.
  json_decref(vt_testing_call(
      &t, "POST", url,
      "{\"tpu\":{\"nodeSpec\":[" NODE_OF(
          "n", "v4-8", PREEMPTIBLE) "]},\"runDuration\":{\"maxRunDuration\":\"10368000s\"}}",
      200));
  vt_testing_advance(&t, 86399);
  vt_testing_expect(&t, Z "/nodes/n", "state", "READY");
  vt_testing_advance(&t, 2);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "SUSPENDED");
  // A deadline can be an instant, too.
  json_decref(vt_testing_call(&t, "POST",
                              "/v2alpha1/projects/" TESTING_PROJECT
                              "/locations/us-central2-b/queuedResources?queuedResourceId=r",
                              SPEC("m") ",\"runDuration\":{\"terminationTime\":"
                                        "\"2026-01-03T00:00:00Z\"}}",
                              200));
  vt_testing_advance(&t, 86398);
  vt_testing_expect(&t, Z "/nodes/m", "state", "READY");
  vt_testing_advance(&t, 2);
  vt_testing_expect(&t, Z "/queuedResources/r", "state.state", "SUSPENDED");
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
      cmocka_unit_test(unlike_nodes_are_counted_apart),
      cmocka_unit_test(unlike_nodes_come_all_or_none),
      cmocka_unit_test(a_reserved_node_needs_its_reservation),
      cmocka_unit_test(durations_are_kept_or_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
