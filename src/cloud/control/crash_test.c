// SPDX-License-Identifier: Apache-2.0
// crash_test.c - a daemon killed at every boundary of every transaction of a scenario: after the
// restart the scenario can be finished, no operation stays open, no chip stays allocated, no second
// is billed twice or lost. The scenario runs in a child that kills itself before or after the n-th
// commit; the parent opens what is left.
#include "cloud/cloud_testing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cloud/control/guest.h"
#include "cloud/state/billing.h"

#define Z "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"

static const struct act {
  const char *method, *url, *body;
  int advance_s; // after the call
} story[] = {
    {"POST", Z "/nodes?nodeId=a", "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}",
     100},
    {"POST", Z "/queuedResources?queuedResourceId=q",
     "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"p\",\"nodeId\":\"n\",\"node\":{\"acceleratorType\":"
     "\"v4-16\",\"runtimeVersion\":\"v2-alpha\"}}]},\"spot\":{}}",
     100},
    {"PATCH", Z "/nodes/a?updateMask=labels", "{\"labels\":{\"x\":\"y\"}}", 0},
    {"POST", "/v1/users/admin@vtpu.localhost:importSshPublicKey",
     "{\"key\":\"ssh-ed25519 "
     "AAAAC3NzaC1lZDI1NTE5AAAAIaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
     0},
    {"POST",
     "/v1/projects/" TESTING_PROJECT "/locations/global/quotaPreferences?quotaPreferenceId=more",
     "{\"service\":\"tpu.googleapis.com\",\"quotaId\":\"TPUV4sPerProjectPerZoneForTPUAPI\","
     "\"dimensions\":{\"zone\":\"us-central2-b\"},\"quotaConfig\":{\"preferredValue\":64}}",
     0},
    {"POST", "/vtpu/v1/projects/" TESTING_PROJECT "/nodes/us-central2-b/a:announceMaintenance",
     "{\"seconds\":20}", 100},
    {"POST", Z "/nodes/a:stop", "{}", 50},
    {"POST", Z "/nodes/a:start", "{}", 50},
    {"POST", "/vtpu/v1/projects/" TESTING_PROJECT "/nodes/us-central2-b/n:preempt", "{}", 100},
    {"POST", Z "/queuedResources/q:reset", "{}", 100},
    {"DELETE", Z "/queuedResources/q?force=true", NULL, 10},
    {"DELETE", Z "/nodes/a", NULL, 10},
};
enum { acts = sizeof story / sizeof *story };

typedef struct trap {
  int left, stage;
} trap;

static void spring(void *context, int stage) {
  trap *t = context;
  if (stage == t->stage && --t->left == 0) kill(getpid(), SIGKILL);
}

static void play(vt_testing *t) {
  int status;
  for (int i = 0; i < acts; i++) {
    json_decref(
        vt_testing_call_as(t, t->token, story[i].method, story[i].url, story[i].body, &status));
    vt_testing_reconcile(t);
    if (story[i].advance_s) vt_testing_advance(t, story[i].advance_s);
  }
}

// Whether the child finished before the n-th commit.
static bool run_and_kill(const char *folder, int n, int stage) {
  int status;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    vt_testing t;
    trap at = {n, stage};
    vt_testing_open(&t, folder);
    vt_store_on_commit(t.cloud->store, spring, &at);
    play(&t);
    vt_testing_close(&t);
    _exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status);
}

static int64_t count(vt_testing *t, const char *sql) {
  int64_t value;
  assert_null(vt_store_int(t->cloud->store, &value, 0, sql, ""));
  return value;
}

// No two intervals of one node and kind overlap in the bill, and none is open without a node.
static void check_bill(vt_testing *t) {
  assert_int_equal(count(t, "SELECT COUNT(*) FROM usage a, usage b WHERE a.id < b.id AND a.node = "
                            "b.node AND a.kind = b.kind AND "
                            "a.start_ns < CASE WHEN b.end_ns = 0 THEN 9000000000000000000 ELSE "
                            "b.end_ns END AND b.start_ns < CASE WHEN "
                            "a.end_ns = 0 THEN 9000000000000000000 ELSE a.end_ns END"),
                   0);
  assert_int_equal(
      count(t,
            "SELECT COUNT(*) FROM usage WHERE end_ns = 0 AND node NOT IN (SELECT uid FROM nodes)"),
      0);
  assert_int_equal(count(t, "SELECT COUNT(*) FROM nodes WHERE state IN ('READY', 'REPAIRING') AND "
                            "uid NOT IN (SELECT node FROM usage WHERE "
                            "end_ns = 0 AND kind = 'tpu')"),
                   0);
}

static void after_a_crash(const char *folder) {
  vt_testing t;
  vt_testing_open(&t, folder);
  vt_testing_reconcile(&t);
  vt_testing_advance(&t, 60);
  check_bill(&t);
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM operations WHERE done = 0"), 0);
  play(&t); // leftovers may make a step fail, but the end is the same
  vt_testing_advance(&t, 120);
  int status;
  json_decref(
      vt_testing_call_as(&t, t.token, "DELETE", Z "/queuedResources/q?force=true", NULL, &status));
  json_decref(vt_testing_call_as(&t, t.token, "DELETE", Z "/nodes/a", NULL, &status));
  vt_testing_advance(&t, 60);
  check_bill(&t);
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM nodes"), 0);
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM queued"), 0);
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM workers"), 0);
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM usage WHERE end_ns = 0"), 0);
  assert_int_equal(count(&t, "SELECT COUNT(*) FROM operations WHERE done = 0"), 0);
  vt_testing_close(&t);
}

// On PostgreSQL a statement is a round trip between processes, and the sweep takes minutes: there
// every seventh boundary is tested unless VTPU_SWEEP asks for all.
static void the_story_survives_every_kill(void **state) {
  int kills = 0, stride = vt_testing_on_postgres() && !getenv("VTPU_SWEEP") ? 7 : 1;
  (void)state;
  for (int stage = 0; stage < 2; stage++) {
    bool finished = false;
    for (int n = 1 + (stride > 1) * 3 * stage; !finished; n += stride) {
      // In memory if possible: this tests killed processes, not the disk.
      char folder[64];
      snprintf(folder, sizeof folder, "%s/vtpu-crash-XXXXXX",
               access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
      assert_true(n < 500);
      assert_non_null(mkdtemp(folder));
      finished = run_and_kill(folder, n, stage);
      after_a_crash(folder);
      kills += !finished;
      vt_testing_remove(folder);
    }
  }
  print_message("%d kills\n", kills);
  assert_true(kills > 2 * acts / stride);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_story_survives_every_kill)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
