// SPDX-License-Identifier: Apache-2.0
// quota_test.c - quotas and preferences over the API: a project's limits, asking for more, who
// decides, and that the scheduler enforces them.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/call.h"

#define LAB         "student-lab"
#define GLOBAL      "/v1/projects/" LAB "/locations/global"
#define PREFS       GLOBAL "/quotaPreferences"
#define INFOS       GLOBAL "/services/tpu.googleapis.com/quotaInfos"
#define V4          "TPUV4sPerProjectPerZoneForTPUAPI"
#define NODES       "/v2/projects/" LAB "/locations/us-central2-b/nodes?nodeId="
#define NODE_A      "/v2/projects/" LAB "/locations/us-central2-b/nodes/a"
#define QUEUED      "/v2/projects/" LAB "/locations/us-central2-b/queuedResources"
#define PERSONALITY "/vtpu/v1/projects/" LAB "/personality"
#define BODY(quota, value)                                                                         \
  "{\"service\":\"tpu.googleapis.com\",\"quotaId\":\"" quota                                       \
  "\",\"dimensions\":{\"zone\":\"us-central2-b\"},\"quotaConfig\":{\"preferredValue\":" value      \
  "},\"justification\":\"a class of forty\",\"contactEmail\":\"ann@example.com\"}"

typedef struct lab {
  vt_testing t;
  char *student, *reviewer;
} lab;

static void open_lab(lab *l) {
  int status;
  vt_testing_open(&l->t, "");
  l->student = vt_testing_account(&l->t, "ann@example.com", "user");
  l->reviewer = vt_testing_account(&l->t, "rev@example.com", "reviewer");
  json_decref(vt_testing_call_as(&l->t, l->student, "POST", "/v1/projects",
                                 "{\"projectId\":\"" LAB "\"}", &status));
  json_decref(vt_testing_call_as(&l->t, l->student, "POST",
                                 "/v1/projects/" LAB "/services/tpu.googleapis.com:enable", "{}",
                                 &status));
  assert_int_equal(status, 200);
}

static void close_lab(lab *l) {
  free(l->student);
  free(l->reviewer);
  vt_testing_close(&l->t);
}

static json_t *ask(lab *l, const char *method, const char *url, const char *body, int want) {
  int status;
  json_t *reply = vt_testing_call_as(&l->t, l->student, method, url, body, &status);
  if (status != want)
    fail_msg("%s %s: %d, not %d: %s", method, url, status, want,
             vt_testing_text(reply, "error.message"));
  return reply;
}

static void create_node(lab *l, const char *id, const char *type, int want) {
  char url[256], body[256];
  snprintf(url, sizeof url, NODES "%s", id);
  snprintf(body, sizeof body, "{\"acceleratorType\":\"%s\",\"runtimeVersion\":\"v2-alpha\"}", type);
  json_decref(ask(l, "POST", url, body, want));
}

static void is(const json_t *reply, const char *path, const char *want) {
  if (strcmp(vt_testing_text(reply, path), want) != 0)
    fail_msg("%s is '%s', not '%s'", path, vt_testing_text(reply, path), want);
}

static void infos_say_the_limits(void **state) {
  lab l;
  (void)state;
  open_lab(&l);
  json_t *all = ask(&l, "GET", INFOS, NULL, 200);
  size_t count = json_array_size(json_object_get(all, "quotaInfos"));
  assert_in_range(count, 20, 60);
  json_decref(all);
  size_t seen = 0;
  char url[512] = INFOS "?pageSize=7";
  for (int pages = 0; pages < 20; pages++) {
    json_t *page = ask(&l, "GET", url, NULL, 200);
    seen += json_array_size(json_object_get(page, "quotaInfos"));
    const char *token = vt_testing_text(page, "nextPageToken");
    if (*token) snprintf(url, sizeof url, INFOS "?pageSize=7&pageToken=%s", token);
    bool more = *token;
    json_decref(page);
    if (!more) break;
  }
  assert_int_equal(seen, count);
  json_t *one = ask(&l, "GET", INFOS "/TPUV2sPreemptiblePerProjectPerZoneForTPUAPI", NULL, 200);
  is(one, "dimensionsInfos.0.details.value", "48");
  is(one, "dimensions.0", "zone");
  is(one, "metric", "tpu.googleapis.com/TPUV2sPreemptible");
  json_decref(one);
  one = ask(&l, "GET", INFOS "/TPUV6EPerProjectPerRegionForTPUAPI", NULL, 200);
  is(one, "dimensionsInfos.0.details.value", "-1");
  json_decref(one);
  json_decref(ask(&l, "GET", INFOS "/none", NULL, 404));
  json_decref(ask(&l, "GET", GLOBAL "/services/x.googleapis.com/quotaInfos", NULL, 404));
  one = ask(&l, "GET",
            "/v1beta1/projects/" LAB "/services/tpu.googleapis.com/consumerQuotaMetrics/"
            "tpu.googleapis.com%2FTPUV3s",
            NULL, 200);
  is(one, "consumerQuotaLimits.0.quotaBuckets.0.effectiveLimit", "16");
  is(one, "consumerQuotaLimits.0.unit", "1/{project}/{zone}");
  is(one, "consumerQuotaLimits.1.unit", "1/{project}/{region}");
  json_decref(one);
  all = ask(&l, "GET", "/v1beta1/projects/" LAB "/services/tpu.googleapis.com/consumerQuotaMetrics",
            NULL, 200);
  assert_int_equal(json_array_size(json_object_get(all, "metrics")), count / 2);
  json_decref(all);
  close_lab(&l);
}

static void more_is_reviewed(void **state) {
  lab l;
  int status;
  (void)state;
  open_lab(&l);
  create_node(&l, "a", "v4-16", 429);
  json_t *wish = ask(&l, "POST", PREFS "?quotaPreferenceId=more", BODY(V4, "\"64\""), 200);
  assert_true(json_is_true(json_object_get(wish, "reconciling")));
  is(wish, "quotaConfig.preferredValue", "64");
  is(wish, "quotaConfig.grantedValue", "0");
  json_decref(wish);
  json_decref(ask(&l, "POST", PREFS "?quotaPreferenceId=again", BODY(V4, "\"64\""), 409));
  create_node(&l, "a", "v4-16", 429);
  const char *approve = "/vtpu/v1/projects/" LAB "/quotaPreferences/more:approve";
  json_decref(ask(&l, "POST", approve, "{}", 403));
  json_decref(ask(&l, "GET", "/vtpu/v1/quotaPreferences", NULL, 403));
  json_t *waiting =
      vt_testing_call_as(&l.t, l.reviewer, "GET", "/vtpu/v1/quotaPreferences", NULL, &status);
  is(waiting, "quotaPreferences.0.project", LAB);
  is(waiting, "quotaPreferences.0.asker", "ann@example.com");
  is(waiting, "quotaPreferences.0.justification", "a class of forty");
  json_decref(waiting);
  json_t *some =
      ask(&l, "GET", PREFS "?filter=reconciling=true%20AND%20quotaId=%22" V4 "%22", NULL, 200);
  assert_int_equal(json_array_size(json_object_get(some, "quotaPreferences")), 1);
  json_decref(some);
  json_decref(vt_testing_call_as(&l.t, l.reviewer, "POST", approve, "{\"value\":32}", &status));
  assert_int_equal(status, 200);
  json_t *now = ask(&l, "GET", PREFS "/more", NULL, 200);
  assert_true(json_is_false(json_object_get(now, "reconciling")));
  is(now, "quotaConfig.grantedValue", "32");
  is(now, "quotaConfig.preferredValue", "64");
  json_decref(now);
  some = ask(&l, "GET", PREFS "?filter=reconciling=true", NULL, 200);
  assert_int_equal(json_array_size(json_object_get(some, "quotaPreferences")), 0);
  json_decref(some);
  create_node(&l, "a", "v4-32", 200); // 32 cores, all of it
  create_node(&l, "b", "v4-8", 429);
  json_decref(vt_testing_call_as(&l.t, l.reviewer, "POST", approve, "{}", &status));
  assert_int_equal(status, 400);
  json_t *info = ask(&l, "GET", INFOS "/" V4, NULL, 200);
  is(info, "dimensionsInfos.0.dimensions.zone", "us-central2-b");
  is(info, "dimensionsInfos.0.details.value", "32");
  is(info, "dimensionsInfos.1.details.value", "0");
  json_decref(info);
  close_lab(&l);
}

static void a_preference_changes(void **state) {
  lab l;
  int status;
  (void)state;
  open_lab(&l);
  json_decref(ask(&l, "PATCH", PREFS "/p", BODY(V4, "16"), 404));
  json_decref(ask(&l, "PATCH", PREFS "/p?allowMissing=True", BODY(V4, "16"), 200));
  json_decref(vt_testing_call_as(&l.t, l.reviewer, "POST",
                                 "/vtpu/v1/projects/" LAB "/quotaPreferences/p:approve", "{}",
                                 &status));
  assert_int_equal(status, 200);
  create_node(&l, "a", "v4-16", 200);
  json_t *up = ask(&l, "PATCH", PREFS "/p", "{\"quotaConfig\":{\"preferredValue\":\"100\"}}", 200);
  assert_true(json_is_true(json_object_get(up, "reconciling")));
  is(up, "quotaConfig.grantedValue", "16"); // what holds meanwhile
  is(up, "justification", "a class of forty");
  json_decref(up);
  json_decref(vt_testing_call_as(&l.t, l.reviewer, "POST",
                                 "/vtpu/v1/projects/" LAB "/quotaPreferences/p:reject", "{}",
                                 &status));
  assert_int_equal(status, 200);
  json_t *now = ask(&l, "GET", PREFS "/p", NULL, 200);
  is(now, "quotaConfig.grantedValue", "16");
  is(now, "quotaConfig.stateDetail", "A reviewer has rejected the request.");
  json_decref(now);
  json_decref(ask(&l, "PATCH", PREFS "/p",
                  "{\"etag\":\"1\",\"quotaConfig\":{\"preferredValue\":\"8\"}}", 409));
  // Less than what is in use, and much less than before, need confirmation.
  const char *less = "{\"quotaConfig\":{\"preferredValue\":\"8\"}}";
  json_decref(ask(&l, "PATCH", PREFS "/p", less, 400));
  json_decref(
      ask(&l, "PATCH", PREFS "/p?ignoreSafetyChecks=QUOTA_DECREASE_BELOW_USAGE", less, 400));
  json_decref(ask(&l, "PATCH",
                  PREFS "/p?validateOnly=true&ignoreSafetyChecks=QUOTA_DECREASE_BELOW_USAGE", less,
                  200));
  now = ask(&l, "PATCH",
            PREFS "/p?ignoreSafetyChecks=QUOTA_DECREASE_BELOW_USAGE&ignoreSafetyChecks=QUOTA_"
                  "DECREASE_PERCENTAGE_TOO_HIGH",
            less, 200);
  is(now, "quotaConfig.grantedValue", "8");
  json_decref(now);
  close_lab(&l);
}

static void a_policy_grants_by_itself(void **state) {
  lab l;
  (void)state;
  open_lab(&l);
  l.t.cloud->options.quota_auto_grant = 32;
  json_t *wish = ask(&l, "POST", PREFS "?quotaPreferenceId=p", BODY(V4, "32"), 200);
  assert_true(json_is_false(json_object_get(wish, "reconciling")));
  is(wish, "quotaConfig.grantedValue", "32");
  json_decref(wish);
  create_node(&l, "a", "v4-32", 200);
  wish = ask(&l, "PATCH", PREFS "/p", "{\"quotaConfig\":{\"preferredValue\":\"33\"}}", 200);
  assert_true(json_is_true(json_object_get(wish, "reconciling")));
  json_decref(wish);
  wish = ask(&l, "PATCH", PREFS "/p", "{\"quotaConfig\":{\"preferredValue\":\"-1\"}}", 200);
  assert_true(json_is_true(json_object_get(wish, "reconciling"))); // unlimited exceeds any limit
  json_decref(wish);
  close_lab(&l);
}

// Preempts the spot node `id`.
static void lose_node(lab *l, const char *id) {
  char url[256];
  snprintf(url, sizeof url, NODES "%s", id);
  json_decref(ask(l, "POST", url,
                  "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\","
                  "\"schedulingConfig\":{\"spot\":true}}",
                  200));
  vt_testing_reconcile(&l->t);
  snprintf(url, sizeof url, "/vtpu/v1/projects/" LAB "/nodes/us-central2-b/%s:preempt", id);
  json_decref(vt_testing_call(&l->t, "POST", url, "{}", 200));
  vt_testing_advance(&l->t, 30);
}

static void preempted_nodes(lab *l, int spot_again, int found_after) {
  int status;
  json_decref(ask(l, "POST", PREFS, BODY("TPUV4sPreemptiblePerProjectPerZoneForTPUAPI", "8"), 200));
  lose_node(l, "a");
  vt_testing_expect(&l->t, NODE_A, "state", "PREEMPTED");
  json_decref(ask(l, "POST", NODES "b",
                  "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\","
                  "\"schedulingConfig\":{\"spot\":true}}",
                  spot_again));
  vt_testing_advance(&l->t, 599);
  vt_testing_expect(&l->t, NODE_A, "state", "PREEMPTED");
  vt_testing_advance(&l->t, 1);
  json_decref(vt_testing_call_as(&l->t, l->student, "GET", NODE_A, NULL, &status));
  assert_int_equal(status, found_after);
}

static void a_faithful_project_pays_for_preempted_nodes(void **state) {
  lab l;
  (void)state;
  open_lab(&l);
  l.t.cloud->options.quota_auto_grant = 8;
  vt_testing_expect(&l.t, PERSONALITY, "personality", "faithful");
  preempted_nodes(&l, 429, 200);
  vt_testing_advance(&l.t, 30 * 86400);
  vt_testing_expect(&l.t, NODE_A, "state", "PREEMPTED");
  json_decref(ask(&l, "DELETE", NODE_A, NULL, 200));
  vt_testing_reconcile(&l.t);
  create_node(&l, "on-demand", "v4-8", 429); // another quota
  lose_node(&l, "c");
  close_lab(&l);
}

static void a_kind_project_does_not(void **state) {
  lab l;
  (void)state;
  open_lab(&l);
  l.t.cloud->options.quota_auto_grant = 8;
  json_decref(ask(&l, "POST", PERSONALITY, "{\"personality\":\"gentle\"}", 400));
  json_decref(ask(&l, "POST", PERSONALITY, "{\"personality\":\"kind\"}", 200));
  vt_testing_expect(&l.t, PERSONALITY, "personality", "kind");
  preempted_nodes(&l, 200, 404);
  vt_testing_expect(&l.t, "/v2/projects/" LAB "/locations/us-central2-b/nodes/b", "state", "READY");
  // Nodes of a queued resource follow the queue: it is SUSPENDED, and they are removed at once.
  json_decref(ask(&l, "DELETE", "/v2/projects/" LAB "/locations/us-central2-b/nodes/b", NULL, 200));
  json_decref(ask(&l, "POST", QUEUED "?queuedResourceId=q",
                  "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"p\",\"nodeId\":\"n\",\"node\":{"
                  "\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}}]},"
                  "\"spot\":{}}",
                  200));
  vt_testing_reconcile(&l.t);
  vt_testing_expect(&l.t, QUEUED "/q", "state.state", "ACTIVE");
  json_decref(vt_testing_call(
      &l.t, "POST", "/vtpu/v1/projects/" LAB "/nodes/us-central2-b/n:preempt", "{}", 200));
  vt_testing_advance(&l.t, 30);
  vt_testing_expect(&l.t, QUEUED "/q", "state.state", "SUSPENDED");
  // Back to the default: preempted nodes stay.
  json_decref(ask(&l, "POST", PERSONALITY, "{\"personality\":\"faithful\"}", 200));
  lose_node(&l, "d");
  vt_testing_advance(&l.t, 86400);
  vt_testing_expect(&l.t, "/v2/projects/" LAB "/locations/us-central2-b/nodes/d", "state",
                    "PREEMPTED");
  close_lab(&l);
}

static void mistakes_are_named(void **state) {
  static const struct {
    const char *url, *body, *message;
  } rows[] = {
      {PREFS, "{}", "service has to be"},
      {PREFS, BODY("none", "1"), "no quota 'none'"},
      {PREFS, BODY(V4, "-2"), "preferredValue"},
      {PREFS, BODY(V4, "\"x\""), "preferredValue"},
      {PREFS, BODY(V4, "{}"), "preferredValue"},
      {PREFS, BODY("TPUV4sPerProjectPerRegionForTPUAPI", "1"), "dimensions.region"},
      {PREFS "?quotaPreferenceId=a%2Fb", BODY(V4, "1"), "invalid quotaPreferenceId"},
      {"/v1/projects/" LAB "/locations/us-central2-b/quotaPreferences", BODY(V4, "1"), "global"}};
  lab l;
  (void)state;
  open_lab(&l);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_t *reply = ask(&l, "POST", rows[i].url, rows[i].body, 400);
    if (!strstr(vt_testing_text(reply, "error.message"), rows[i].message))
      fail_msg("%zu: %s", i, vt_testing_text(reply, "error.message"));
    json_decref(reply);
  }
  json_decref(ask(&l, "GET", PREFS "?filter=color=red", NULL, 200)); // nothing to filter yet
  json_decref(ask(&l, "POST", PREFS, BODY(V4, "1"), 200));
  json_decref(ask(&l, "GET", PREFS "?filter=color=red", NULL, 400));
  json_decref(ask(&l, "GET", PREFS "/none", NULL, 404));
  close_lab(&l);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(infos_say_the_limits),
                                     cmocka_unit_test(more_is_reviewed),
                                     cmocka_unit_test(a_preference_changes),
                                     cmocka_unit_test(a_policy_grants_by_itself),
                                     cmocka_unit_test(a_faithful_project_pays_for_preempted_nodes),
                                     cmocka_unit_test(a_kind_project_does_not),
                                     cmocka_unit_test(mistakes_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
