// SPDX-License-Identifier: Apache-2.0
// side_test.c - the Compute Engine and Cloud Logging calls that launchers of TPU programs make:
// workers as instances, and log sinks.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZONES "/compute/v1/projects/" TESTING_PROJECT "/zones/us-central2-b"
#define SINKS "/v2/projects/" TESTING_PROJECT "/sinks"

// The URL of the second worker of a new node.
static void open_with_worker(vt_testing *t, char url[300]) {
  vt_testing_open(t, "");
  json_decref(vt_testing_call(
      t, "POST", "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes?nodeId=a",
      "{\"acceleratorType\":\"v4-16\",\"runtimeVersion\":\"v2-alpha\",\"labels\":{\"x\":\"y\"},"
      "\"metadata\":{\"k\":\"v\"}}",
      200));
  vt_testing_reconcile(t);
  char *name = vt_testing_metadata(t, "a", "instance/name");
  assert_int_equal(strlen(name), strlen("t1v-n-01234567-w-0"));
  name[strlen(name) - 1] = '1';
  snprintf(url, 300, ZONES "/instances/%s", name);
  free(name);
}

static void workers_are_instances(void **state) {
  vt_testing t;
  char url[300], more[400], body[200], print[64];
  (void)state;
  open_with_worker(&t, url);
  vt_testing_expect(&t, url, "status", "RUNNING");
  vt_testing_expect(&t, url, "labels.x", "y");
  vt_testing_expect(&t, url, "metadata.items.0.key", "k");
  json_t *one = vt_testing_call(&t, "GET", url, NULL, 200);
  snprintf(print, sizeof print, "%s", vt_testing_text(one, "labelFingerprint"));
  json_decref(one);
  snprintf(more, sizeof more, "%s/setLabels", url);
  json_decref(vt_testing_call(&t, "POST", more, "{\"labelFingerprint\":\"x\"}", 412));
  snprintf(body, sizeof body, "{\"labels\":{\"team\":\"b\"},\"labelFingerprint\":\"%s\"}", print);
  one = vt_testing_call(&t, "POST", more, body, 200);
  assert_string_equal(vt_testing_text(one, "status"), "DONE");
  json_decref(one);
  json_decref(vt_testing_call(&t, "POST", more, body, 412)); // it has changed
  vt_testing_expect(&t, "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes/a",
                    "labels.team", "b");
  json_decref(vt_testing_call(&t, "POST", more, "{\"labels\":{\"BAD\":1}}", 400));
  snprintf(more, sizeof more, "%s/setMetadata", url);
  json_decref(vt_testing_call(&t, "POST", more, "{\"items\":[{\"key\":\"\"}]}", 400));
  json_decref(vt_testing_call(&t, "POST", more,
                              "{\"items\":[{\"key\":\"colour\",\"value\":\"red\"}]}", 200));
  char *text = vt_testing_metadata(&t, "a", "instance/attributes/colour");
  assert_string_equal(text, "red");
  free(text);
  snprintf(more, sizeof more, "%s/serialPort?start=-5", url);
  vt_testing_expect(&t, more, "start", "0"); // level 0 prints nothing
  static const char *const missing[] = {"t1v-n-00000000-w-0", "x", "-"};
  for (int i = 0; i < 3; i++) {
    snprintf(more, sizeof more, ZONES "/instances/%s", missing[i]);
    json_decref(vt_testing_call(&t, "GET", more, NULL, 404));
  }
  url[strlen(url) - 1] = '2'; // a node with two workers has no third
  json_decref(vt_testing_call(&t, "GET", url, NULL, 404));
  one = vt_testing_call(&t, "GET", ZONES "/instances", NULL, 200);
  assert_int_equal(json_array_size(json_object_get(one, "items")), 0);
  json_decref(one);
  one = vt_testing_call(&t, "GET", "/compute/v1/projects/" TESTING_PROJECT "/aggregated/instances",
                        NULL, 200);
  assert_true(json_is_object(json_object_get(one, "items")));
  json_decref(one);
  vt_testing_close(&t);
}

static void sinks_are_kept(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  const char *sink =
      "{\"name\":\"s\",\"destination\":\"storage.googleapis.com/b\",\"filter\":\"x\"}";
  json_decref(vt_testing_call(&t, "POST", SINKS, "{\"name\":\"s\"}", 400));
  json_decref(vt_testing_call(&t, "POST", SINKS, "{\"destination\":\"a.googleapis.com/b\"}", 400));
  json_decref(vt_testing_call(&t, "POST", SINKS "?uniqueWriterIdentity=True", sink, 200));
  json_decref(vt_testing_call(&t, "POST", SINKS, sink, 409));
  vt_testing_expect(&t, SINKS, "sinks.0.filter", "x");
  json_decref(vt_testing_call(&t, "PATCH", SINKS "/s?updateMask=filter",
                              "{\"filter\":\"y\",\"description\":\"not named\"}", 200));
  vt_testing_expect(&t, SINKS "/s", "filter", "y");
  vt_testing_expect(&t, SINKS "/s", "description", "");
  vt_testing_expect(&t, SINKS "/s", "destination", "storage.googleapis.com/b");
  json_decref(vt_testing_call(&t, "DELETE", SINKS "/s", NULL, 200));
  json_decref(vt_testing_call(&t, "GET", SINKS "/s", NULL, 404));
  json_decref(vt_testing_call(&t, "PUT", SINKS "/s", sink, 404));
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(workers_are_instances),
                                     cmocka_unit_test(sinks_are_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
