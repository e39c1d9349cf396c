// SPDX-License-Identifier: Apache-2.0
// node_test.c - the life of nodes over the API: create, states, quota, capacity, preemption, stop
// and start, paging.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/call.h"

#define Z  "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define ZA "/v2alpha1/projects/" TESTING_PROJECT "/locations/us-central2-b"

static void create(vt_testing *t, const char *zone_url, const char *id, const char *type,
                   const char *scheduling) {
  char url[256], body[512];
  snprintf(url, sizeof url, "%s/nodes?nodeId=%s", zone_url, id);
  snprintf(body, sizeof body,
           "{\"acceleratorType\":\"%s\",\"runtimeVersion\":\"tpu-ubuntu2204-base\","
           "\"schedulingConfig\":{%s}}",
           type, scheduling);
  json_decref(vt_testing_call(t, "POST", url, body, 200));
  vt_testing_reconcile(t);
}

static void operation_of_a_create_completes(void **state) {
  vt_testing t;
  char url[512];
  (void)state;
  vt_testing_open(&t, "");
  json_t *operation = vt_testing_call(
      &t, "POST", Z "/nodes?nodeId=a&requestId=r1",
      "{\"acceleratorType\":\"v4-16\",\"runtimeVersion\":\"tpu-ubuntu2204-base\"}", 200);
  assert_true(json_is_false(json_object_get(operation, "done")));
  // The same request, with its members in any order.
  json_t *again = vt_testing_call(
      &t, "POST", Z "/nodes?requestId=r1&nodeId=a",
      "{\"runtimeVersion\":\"tpu-ubuntu2204-base\",\"acceleratorType\":\"v4-16\"}", 200);
  assert_string_equal(vt_testing_text(again, "name"), vt_testing_text(operation, "name"));
  json_decref(again);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=a",
                              "{\"acceleratorType\":\"v4-16\",\"runtimeVersion\":\"v2-alpha\"}",
                              409));
  vt_testing_reconcile(&t);
  snprintf(url, sizeof url, "/v2/%s", vt_testing_text(operation, "name"));
  vt_testing_expect(&t, url, "response.@type", "type.googleapis.com/google.cloud.tpu.v2.Node");
  vt_testing_expect(&t, url, "response.state", "READY");
  vt_testing_expect(&t, Z "/nodes/a", "health", "HEALTHY");
  json_t *node = vt_testing_call(&t, "GET", Z "/nodes/a", NULL, 200);
  assert_int_equal(json_array_size(json_object_get(node, "networkEndpoints")), 2);
  json_decref(node);
  json_decref(operation);
  vt_testing_close(&t);
}

// A request id belongs to a method, a resource and the request's content.
static void request_ids_name_one_request(void **state) {
  const char *body = "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}";
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=a&requestId=r1", body, 200));
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=a&requestId=r1", "{}", 400));
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=b&requestId=r1", body, 400));
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=b&requestId=r2", body, 200));
  vt_testing_reconcile(&t);
  json_t *first = vt_testing_call(&t, "DELETE", Z "/nodes/a?requestId=r1", NULL, 200);
  json_t *other = vt_testing_call(&t, "DELETE", Z "/nodes/b?requestId=r1", NULL, 200);
  json_t *again = vt_testing_call(&t, "DELETE", Z "/nodes/a?requestId=r1", NULL, 200);
  assert_string_equal(vt_testing_text(first, "metadata.verb"), "delete");
  assert_string_equal(vt_testing_text(first, "name"), vt_testing_text(again, "name"));
  assert_string_not_equal(vt_testing_text(first, "name"), vt_testing_text(other, "name"));
  json_decref(first);
  json_decref(other);
  json_decref(again);
  vt_testing_reconcile(&t);
  json_decref(vt_testing_call(&t, "GET", Z "/nodes/a", NULL, 404));
  json_decref(vt_testing_call(&t, "GET", Z "/nodes/b", NULL, 404));
  vt_testing_close(&t);
}

typedef struct bad_row {
  const char *url, *body;
  int status;
  const char *message;
} bad_row;

static const bad_row bad_rows[] = {
    {Z "/nodes?nodeId=x", "{\"acceleratorType\":\"v4-8\"}", 400, "runtimeVersion is required"},
    {Z "/nodes?nodeId=x", "{\"acceleratorType\":\"v9-8\",\"runtimeVersion\":\"v2-alpha\"}", 400,
     "v9-8 was not found in zone us-central2-b"},
    {Z "/nodes?nodeId=x", "{\"acceleratorType\":\"v2-8\",\"runtimeVersion\":\"v2-alpha\"}", 400,
     "v2-8 was not found in zone"},
    {Z "/nodes?nodeId=x", "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"windows\"}", 400,
     "runtime version windows"},
    {Z "/nodes?nodeId=a/b", "{}", 400, "runtimeVersion is required|invalid node id"},
    {Z "/nodes?nodeId=x",
     "{\"labels\":{\"BAD\":\"x\"},\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}",
     400, "Invalid label"},
    {Z "/nodes?nodeId=x", "{", 400, "Invalid JSON payload"},
    {Z "/nodes?nodeId=x", "[]", 400, "expected an object"},
    {Z "/nodes?nodeId=x", "{\"colour\":\"red\"}", 400,
     "Invalid JSON payload received. Unknown name \"colour\" at 'node': Cannot find field."},
    {Z "/nodes?nodeId=x", "{\"networkConfig\":{\"mtu\":1}}", 400,
     "Unknown name \"mtu\" at 'node.network_config': Cannot find field."},
    {Z "/nodes?nodeId=x", "{\"data_disks\":[{},{\"size\":1}]}", 400,
     "Unknown name \"size\" at 'node.data_disks[1]': Cannot find field."},
    {Z "/nodes?nodeId=x", "{\"dataDisks\":[{\"workerIds\":[]}]}", 400, // of v2alpha1
     "Unknown name \"workerIds\" at 'node.data_disks[0]': Cannot find field."},
    {Z "/nodes/x:start", "{\"soon\":true}", 400, "Unknown name \"soon\": Cannot find field."},
    {Z "/queuedResources?queuedResourceId=x", "{\"tpu\":{\"nodeSpec\":[{\"node\":{\"a\":1}}]}}",
     400, "Unknown name \"a\" at 'queued_resource.tpu.node_spec[0].node': Cannot find field."},
    {"/v2/projects/" TESTING_PROJECT "/locations/mars-a/nodes?nodeId=x",
     "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}", 403,
     "Location mars-a is not found or access is unauthorized."},
    {"/v2/projects/other/locations/us-central2-b/nodes?nodeId=x", "{}", 403,
     "Permission 'tpu.nodes.create' denied on 'projects/other'"},
    {"/v2/nothing", "{}", 404, "was not found"},
};

static void mistakes_are_named(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof bad_rows / sizeof *bad_rows; i++) {
    json_t *reply =
        vt_testing_call(&t, "POST", bad_rows[i].url, bad_rows[i].body, bad_rows[i].status);
    const char *message = vt_testing_text(reply, "error.message"), *want = bad_rows[i].message,
               *bar = strchr(want, '|');
    char first[128];
    snprintf(first, sizeof first, "%.*s", (int)(bar ? bar - want : (long)strlen(want)), want);
    if (!strstr(message, first) && !(bar && strstr(message, bar + 1)))
      fail_msg("%s: %s", bad_rows[i].url, message);
    json_decref(reply);
  }
  static const char *const sizes[] = {"2147483648", "99999999999999999999", "1e3", "%2B1", "-1"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char url[128];
    snprintf(url, sizeof url, Z "/nodes?pageSize=%s", sizes[i]);
    json_decref(vt_testing_call(&t, "GET", url, NULL, 400));
  }
  json_decref(vt_testing_call(&t, "GET", Z "/nodes?pageSize=2147483647", NULL, 200));
  json_t *missing = vt_testing_call(&t, "GET", Z "/nodes/none", NULL, 404);
  assert_string_equal(vt_testing_text(missing, "error.details.0.resourceName"),
                      "projects/" TESTING_PROJECT "/locations/us-central2-b/nodes/none");
  json_decref(missing);
  vt_testing_close(&t);
}

static void preemptible_node_ends_after_a_day(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, Z, "p", "v4-8", "\"preemptible\":true");
  create(&t, Z, "s", "v4-8", "\"spot\":true");
  vt_testing_expect(&t, Z "/nodes/p", "state", "READY");
  vt_testing_advance(&t, 24 * 3600 - 1);
  vt_testing_expect(&t, Z "/nodes/p", "state", "READY");
  vt_testing_advance(&t, 2);
  vt_testing_expect(&t, Z "/nodes/p", "state", "PREEMPTED");
  vt_testing_expect(&t, Z "/nodes/s", "state", "READY");
  json_t *refused = vt_testing_call(&t, "POST", Z "/nodes/p:start", "{}", 200);
  assert_true(json_is_true(json_object_get(refused, "done")));
  assert_int_equal(json_integer_value(json_object_get(json_object_get(refused, "error"), "code")),
                   3);
  assert_non_null(strstr(vt_testing_text(refused, "error.message"),
                         "start is not supported while in state PREEMPTED"));
  json_decref(refused);
  vt_testing_close(&t);
}

static void on_demand_takes_chips_from_spot(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/capacity",
                              "{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":8}", 200));
  create(&t, Z, "spot1", "v4-8", "\"spot\":true");
  create(&t, Z, "firm1", "v4-8", "");
  create(&t, Z, "firm2", "v4-8", "");
  vt_testing_expect(&t, Z "/nodes/firm2", "state", "CREATING");
  vt_testing_advance(&t, 29);
  vt_testing_expect(&t, Z "/nodes/spot1", "state", "READY");
  vt_testing_advance(&t, 1);
  vt_testing_expect(&t, Z "/nodes/spot1", "state", "PREEMPTED");
  vt_testing_expect(&t, Z "/nodes/firm2", "state", "READY");
  json_t *operation =
      vt_testing_call(&t, "POST", Z "/nodes?nodeId=firm3",
                      "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}", 200);
  char url[512];
  vt_testing_reconcile(&t);
  snprintf(url, sizeof url, "/v2/%s", vt_testing_text(operation, "name"));
  json_t *done = vt_testing_call(&t, "GET", url, NULL, 200);
  assert_int_equal(json_integer_value(json_object_get(json_object_get(done, "error"), "code")), 8);
  assert_non_null(strstr(vt_testing_text(done, "error.message"),
                         "There is no more capacity in the zone \"us-central2-b\"; you can try"));
  json_decref(done);
  json_decref(operation);
  json_decref(vt_testing_call(&t, "GET", Z "/nodes/firm3", NULL, 404));
  vt_testing_close(&t);
}

static void stop_and_start(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, Z, "a", "v4-8", "");
  create(&t, Z, "pod", "v4-16", "");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/a:stop", "{}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/nodes/a", "state", "STOPPED");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/a:start", "{}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/nodes/a", "state", "READY");
  json_t *refused = vt_testing_call(&t, "POST", Z "/nodes/pod:stop", "{}", 200);
  assert_string_not_equal(vt_testing_text(refused, "error.message"), "");
  json_decref(refused);
  json_decref(vt_testing_call(&t, "DELETE", Z "/nodes/a", NULL, 200));
  vt_testing_reconcile(&t);
  json_decref(vt_testing_call(&t, "GET", Z "/nodes/a", NULL, 404));
  vt_testing_close(&t);
}

static void maintenance_passes(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, ZA, "a", "v4-8", "");
  json_decref(vt_testing_call(&t, "POST", ZA "/nodes/a:simulateMaintenanceEvent",
                              "{\"workerIds\":[]}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, ZA "/nodes/a", "state", "REPAIRING");
  vt_testing_expect(&t, ZA "/nodes/a", "health", "UNHEALTHY_MAINTENANCE");
  vt_testing_expect(&t, ZA "/nodes/a", "upcomingMaintenance.maintenanceStatus", "ONGOING");
  vt_testing_advance(&t, 31);
  vt_testing_expect(&t, ZA "/nodes/a", "state", "READY");
  vt_testing_expect(&t, ZA "/nodes/a", "upcomingMaintenance.maintenanceStatus", "");
  vt_testing_close(&t);
}

static void metadata_is(vt_testing *t, const char *node, const char *path, const char *want) {
  char *text = vt_testing_metadata(t, node, path);
  if (strcmp(text, want) != 0) fail_msg("%s of %s is '%s', not '%s'", path, node, text, want);
  free(text);
}

#define ANNOUNCE "/vtpu/v1/projects/" TESTING_PROJECT "/nodes/us-central2-b/%s:announceMaintenance"

static void announce(vt_testing *t, const char *id, const char *body, int want) {
  char url[256];
  snprintf(url, sizeof url, ANNOUNCE, id);
  json_decref(vt_testing_call(t, "POST", url, body, want));
}

static void announced_maintenance_comes_in_time(void **state) {
  static const char *const versions[] = {Z "/nodes/a", ZA "/nodes/a"};
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, ZA, "a", "v4-8", "");
  announce(&t, "a", "{}", 400);
  announce(&t, "a", "{\"seconds\":-1}", 400);
  announce(&t, "none", "{\"seconds\":1}", 404);
  announce(&t, "a", "{\"seconds\":7200}", 200);
  vt_testing_reconcile(&t);
  for (int i = 0; i < 2; i++) {
    vt_testing_expect(&t, versions[i], "state", "READY");
    vt_testing_expect(&t, versions[i], "upcomingMaintenance.type", "SCHEDULED");
    vt_testing_expect(&t, versions[i], "upcomingMaintenance.maintenanceStatus", "PENDING");
  }
  metadata_is(&t, "a", "instance/maintenance-event", "NONE");
  metadata_is(&t, "a", "instance/upcoming-maintenance/maintenance-status", "PENDING");
  vt_testing_advance(&t, 3599);
  metadata_is(&t, "a", "instance/maintenance-event", "NONE");
  vt_testing_advance(&t, 2); // an hour before
  metadata_is(&t, "a", "instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE");
  vt_testing_expect(&t, ZA "/nodes/a", "state", "READY");
  vt_testing_expect(&t, "/vtpu/v1/projects/" TESTING_PROJECT "/events", "events.0.detail",
                    "the maintenance begins within the hour");
  vt_testing_advance(&t, 3600);
  vt_testing_expect(&t, ZA "/nodes/a", "state", "REPAIRING");
  vt_testing_expect(&t, ZA "/nodes/a", "upcomingMaintenance.maintenanceStatus", "ONGOING");
  vt_testing_expect(&t, ZA "/nodes/a", "upcomingMaintenance.type", "SCHEDULED");
  announce(&t, "a", "{\"seconds\":1}", 400);
  vt_testing_advance(&t, 31);
  vt_testing_expect(&t, ZA "/nodes/a", "state", "READY");
  vt_testing_expect(&t, ZA "/nodes/a", "upcomingMaintenance.type", "");
  metadata_is(&t, "a", "instance/maintenance-event", "NONE");
  vt_testing_close(&t);
}

static void maintenance_is_performed_early_or_called_off(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, ZA, "a", "v4-8", "");
  create(&t, ZA, "b", "v4-8", "");
  json_t *refused = vt_testing_call(&t, "POST", ZA "/nodes/a:performMaintenance", "{}", 200);
  assert_non_null(strstr(vt_testing_text(refused, "error.message"), "no upcoming maintenance"));
  json_decref(refused);
  announce(&t, "a", "{\"seconds\":86400}", 200);
  json_decref(vt_testing_call(&t, "POST", ZA "/nodes/a:performMaintenance", "{}", 200));
  vt_testing_expect(&t, ZA "/nodes/a", "upcomingMaintenance.maintenanceStatus", "ONGOING");
  vt_testing_advance(&t, 31);
  vt_testing_expect(&t, ZA "/nodes/a", "state", "READY");
  vt_testing_advance(&t, 86400);
  vt_testing_expect(&t, ZA "/nodes/a", "state", "READY"); // already done
  announce(&t, "b", "{\"seconds\":60}", 200);
  announce(&t, "b", "{\"cancel\":true}", 200);
  vt_testing_advance(&t, 61);
  vt_testing_expect(&t, ZA "/nodes/b", "state", "READY");
  // A node that is not running when its window begins misses it.
  announce(&t, "b", "{\"seconds\":60}", 200);
  json_decref(vt_testing_call(&t, "POST", ZA "/nodes/b:stop", "{}", 200));
  vt_testing_advance(&t, 61);
  vt_testing_expect(&t, ZA "/nodes/b", "state", "STOPPED");
  vt_testing_expect(&t, ZA "/nodes/b", "upcomingMaintenance.type", "");
  vt_testing_close(&t);
}

static void maintenance_of_a_queued_resource(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(
      &t, "POST", ZA "/queuedResources?queuedResourceId=q",
      "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"p\",\"multiNodeParams\":{\"nodeCount\":2,"
      "\"nodeIdPrefix\":\"s\"},\"node\":{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":"
      "\"v2-alpha\"}}]}}",
      200));
  vt_testing_reconcile(&t);
  const char *info = ZA "/queuedResources/q:getMaintenanceInfo",
             *perform = ZA "/queuedResources/q:performMaintenanceQueuedResource";
  json_t *refused = vt_testing_call(&t, "POST", perform, "{}", 200);
  assert_non_null(strstr(vt_testing_text(refused, "error.message"), "no node of it"));
  json_decref(refused);
  announce(&t, "s-0", "{\"seconds\":7200}", 200);
  announce(&t, "s-1", "{\"seconds\":7200}", 200);
  vt_testing_expect(&t, info, "nodeUpcomingMaintenances.1.upcomingMaintenance.type", "SCHEDULED");
  json_decref(vt_testing_call(&t, "POST", perform, "{\"nodeNames\":[\"s-1\"]}", 200));
  vt_testing_expect(&t, ZA "/nodes/s-0", "state", "READY");
  vt_testing_expect(&t, ZA "/nodes/s-1", "state", "REPAIRING");
  vt_testing_advance(&t, 31);
  vt_testing_expect(&t, ZA "/nodes/s-1", "state", "READY");
  vt_testing_expect(&t, info, "nodeUpcomingMaintenances.1.upcomingMaintenance.type", "");
  json_decref(vt_testing_call(&t, "POST", perform, "{}", 200));
  vt_testing_expect(&t, ZA "/nodes/s-0", "state", "REPAIRING");
  vt_testing_close(&t);
}

static void patches_touch_the_masked_fields_only(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, Z, "a", "v4-8", "");
  json_decref(vt_testing_call(&t, "PATCH", Z "/nodes/a?updateMask=labels,description",
                              "{\"labels\":{\"k\":\"v\"},\"description\":\"d\",\"state\":"
                              "\"STOPPED\",\"acceleratorType\":\"v4-16\"}",
                              200));
  vt_testing_expect(&t, Z "/nodes/a", "labels.k", "v");
  vt_testing_expect(&t, Z "/nodes/a", "description", "d");
  vt_testing_expect(&t, Z "/nodes/a", "acceleratorType", "v4-8");
  json_decref(vt_testing_call(&t, "PATCH", Z "/nodes/a?updateMask=acceleratorType", "{}", 400));
  json_decref(vt_testing_call(&t, "PATCH", Z "/nodes/a", "{}", 400));
  vt_testing_close(&t);
}

static void lists_are_paged(void **state) {
  vt_testing t;
  char url[512] = Z "/nodes?pageSize=3", id[16];
  size_t seen = 0;
  (void)state;
  vt_testing_open(&t, "");
  for (int i = 0; i < 7; i++) {
    snprintf(id, sizeof id, "n%d", i);
    create(&t, Z, id, "v4-8", "");
  }
  for (int pages = 0;; pages++) {
    assert_true(pages < 3);
    json_t *reply = vt_testing_call(&t, "GET", url, NULL, 200);
    seen += json_array_size(json_object_get(reply, "nodes"));
    const char *token = vt_testing_text(reply, "nextPageToken");
    snprintf(url, sizeof url, Z "/nodes?pageSize=3&pageToken=%s", token);
    bool last = !*token;
    json_decref(reply);
    if (last) break;
  }
  assert_int_equal(seen, 7);
  vt_testing_expect(&t, "/v2/projects/" TESTING_PROJECT "/locations/-/nodes?pageSize=1",
                    "nodes.0.state", "READY");
  json_decref(vt_testing_call(&t, "GET", Z "/nodes?pageToken=%21", NULL, 400));
  vt_testing_close(&t);
}

static void get_bytes(vt_testing *t, const char *url, vt_text *out) {
  vt_call call;
  char path[256], bearer[256];
  size_t n = strcspn(url, "?");
  snprintf(path, sizeof path, "%.*s", (int)n, url);
  snprintf(bearer, sizeof bearer, "Bearer %s", t->token);
  vt_call_init(&call, t->cloud, "GET", path);
  vt_call_add_query(&call, url + n + 1);
  vt_call_add_header(&call, "Authorization", bearer);
  vt_call_run(&call);
  vt_call_render(&call);
  assert_int_equal(call.status, 200);
  *out = call.raw;
  call.raw = (vt_text){0};
  vt_call_fini(&call);
}

// Lists are assembled from cached texts; a field mask that names every field bypasses the cache.
static void lists_show_what_is_stored(void **state) {
  static const char *const versions[] = {"v1", "v1alpha1", "v2", "v2alpha1"};
  static const char *const forms[] = {"prettyPrint=true", "prettyPrint=false",
                                      "$alt=json;enum-encoding=int",
                                      "prettyPrint=false&$alt=json;enum-encoding=int"};
  vt_testing t;
  char url[256], id[8];
  (void)state;
  vt_testing_open(&t, "");
  srand(7);
  for (int step = 0; step < 40; step++) {
    int status, node = rand() % 6;
    snprintf(id, sizeof id, "n%d", node);
    snprintf(url, sizeof url, "%s/nodes?nodeId=%s", node % 2 ? Z : ZA, id);
    static const char *const verbs[] = {"", ":stop", ":start", ":simulateMaintenanceEvent"};
    const char *verb = verbs[rand() % 4];
    if (*verb) snprintf(url, sizeof url, ZA "/nodes/%s%s", id, verb);
    json_decref(vt_testing_call_as(&t, t.token, "POST", url,
                                   "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\","
                                   "\"labels\":{\"a\":\"b\"}}",
                                   &status));
    snprintf(url, sizeof url, Z "/nodes/%s", id);
    if (rand() % 5 == 0) json_decref(vt_testing_call_as(&t, t.token, "DELETE", url, "", &status));
    if (rand() % 2) vt_testing_reconcile(&t);
    for (int i = 0; i < 16; i++) {
      vt_text kept, built;
      char *p = url;
      p += snprintf(p, sizeof url, "/%s/projects/%s/locations/%s/nodes?%s&pageSize=%d",
                    versions[i / 4], TESTING_PROJECT, step % 2 ? "-" : "us-central2-b",
                    forms[i % 4], 1 + step % 7);
      get_bytes(&t, url, &kept);
      snprintf(p, sizeof url - (size_t)(p - url), "&fields=nodes,nextPageToken");
      get_bytes(&t, url, &built);
      assert_string_equal(vt_text_string(&kept), vt_text_string(&built));
      vt_text_free(&kept);
      vt_text_free(&built);
    }
  }
  vt_testing_close(&t);
}

static void quota_is_a_429_with_its_name(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", "/v1/projects", "{\"projectId\":\"small-one\"}", 200));
  json_decref(vt_testing_call(
      &t, "POST", "/v1/projects/small-one/services/tpu.googleapis.com:enable", "{}", 200));
  json_t *reply =
      vt_testing_call(&t, "POST", "/v2/projects/small-one/locations/us-east5-b/nodes?nodeId=a",
                      "{\"acceleratorType\":\"v6e-4\",\"runtimeVersion\":\"v2-alpha-tpuv6e\","
                      "\"schedulingConfig\":{\"spot\":true}}",
                      429);
  assert_string_equal(vt_testing_text(reply, "error.message"),
                      "Quota limit 'TPUV6EPreemptiblePerProjectPerZoneForTPUAPI' has been "
                      "exceeded. Limit: 0 in zone us-east5-b.");
  assert_string_equal(vt_testing_text(reply, "error.details.0.@type"),
                      "type.googleapis.com/google.rpc.QuotaFailure");
  json_decref(reply);
  // Two on-demand v2-8 are within everybody's default quota, a third is not.
  for (int i = 0; i < 3; i++) {
    char url[128];
    snprintf(url, sizeof url, "/v2/projects/small-one/locations/us-central1-f/nodes?nodeId=n%d", i);
    json_decref(
        vt_testing_call(&t, "POST", url, "{\"runtimeVersion\":\"v2-alpha\"}", i < 2 ? 200 : 429));
  }
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operation_of_a_create_completes),
      cmocka_unit_test(request_ids_name_one_request),
      cmocka_unit_test(mistakes_are_named),
      cmocka_unit_test(preemptible_node_ends_after_a_day),
      cmocka_unit_test(on_demand_takes_chips_from_spot),
      cmocka_unit_test(stop_and_start),
      cmocka_unit_test(maintenance_passes),
      cmocka_unit_test(announced_maintenance_comes_in_time),
      cmocka_unit_test(maintenance_is_performed_early_or_called_off),
      cmocka_unit_test(maintenance_of_a_queued_resource),
      cmocka_unit_test(patches_touch_the_masked_fields_only),
      cmocka_unit_test(lists_are_paged),
      cmocka_unit_test(lists_show_what_is_stored),
      cmocka_unit_test(quota_is_a_429_with_its_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
