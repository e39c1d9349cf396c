// SPDX-License-Identifier: Apache-2.0
// fault_test.c - environment faults: the disk fills up at any moment of a scenario and is emptied
// again, the machine's clock jumps forwards and backwards, a zone goes down. Errors are clear, rows
// stay consistent, every second is billed once.
#include "cloud/cloud_testing.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include "cloud/control/reconcile.h"
#include "cloud/state/billing.h"

#define Z    "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define NODE "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}"

static int64_t count(vt_testing *t, const char *sql) {
  int64_t value;
  assert_null(vt_store_int(t->cloud->store, &value, 0, sql, ""));
  return value;
}

// No two intervals of one node and kind overlap, none runs backwards, none is open without a node.
static void check_bill(vt_testing *t) {
  assert_int_equal(
      count(t, "SELECT COUNT(*) FROM usage a, usage b WHERE a.id < b.id AND a.node = b.node AND "
               "a.kind = b.kind AND (a.end_ns = 0 OR a.end_ns > b.start_ns) AND (b.end_ns = 0 OR "
               "b.end_ns > a.start_ns)"),
      0);
  assert_int_equal(count(t, "SELECT COUNT(*) FROM usage WHERE end_ns > 0 AND end_ns < start_ns"),
                   0);
  assert_int_equal(
      count(t,
            "SELECT COUNT(*) FROM usage WHERE end_ns = 0 AND node NOT IN (SELECT uid FROM nodes)"),
      0);
  assert_int_equal(count(t, "SELECT COUNT(*) FROM nodes WHERE state = 'READY' AND uid NOT IN "
                            "(SELECT node FROM usage WHERE end_ns = 0 AND kind = 'tpu')"),
                   0);
}

// --- a full disk ---------------------------------------------------------------------------------

typedef struct disk {
  char folder[64], filler[96];
} disk;

// A small file system of our own; false if mounts are not allowed.
static bool make_disk(disk *d) {
  snprintf(d->folder, sizeof d->folder, "/tmp/vtpu-fault-XXXXXX");
  assert_non_null(mkdtemp(d->folder));
  snprintf(d->filler, sizeof d->filler, "%s/filler", d->folder);
  return unshare(CLONE_NEWNS) == 0 && mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
         mount("tmpfs", d->folder, "tmpfs", 0, "size=8m") == 0;
}

static void fill(const disk *d, size_t leave_bytes) {
  static char block[4096];
  int fd = open(d->filler, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  off_t size = 0;
  assert_true(fd >= 0);
  for (ssize_t n; (n = write(fd, block, sizeof block)) > 0;) size += n;
  size = size > (off_t)leave_bytes ? size - (off_t)leave_bytes : 0;
  assert_int_equal(ftruncate(fd, size), 0);
  close(fd);
}

static int play(vt_testing *t) {
  static const struct act {
    const char *method, *url, *body;
  } story[] = {{"POST", Z "/nodes?nodeId=a", NODE},
               {"POST", Z "/nodes?nodeId=b", NODE},
               {"POST", Z "/nodes/a:stop", "{}"},
               {"GET", Z "/nodes", NULL},
               {"POST", Z "/nodes/a:start", "{}"},
               {"PATCH", Z "/nodes/a?updateMask=labels", "{\"labels\":{\"x\":\"y\"}}"},
               {"DELETE", Z "/nodes/b", NULL}};
  int refused = 0;
  bool busy;
  for (size_t i = 0; i < sizeof story / sizeof *story; i++) {
    int status;
    json_t *reply =
        vt_testing_call_as(t, t->token, story[i].method, story[i].url, story[i].body, &status);
    if (status == 503) {
      const char *why = vt_testing_text(reply, "error.message");
      if (!strstr(why, "full")) fail_msg("%s: '%s' does not say why", story[i].url, why);
      refused++;
    } else if (status >= 500) {
      fail_msg("%s %s: %d %s", story[i].method, story[i].url, status,
               vt_testing_text(reply, "error.message"));
    }
    json_decref(reply);
    pthread_mutex_lock(&t->cloud->lock);
    vt_status_free(vt_reconcile(t->cloud, &busy)); // failed writes are retried
    t->cloud->virtual_ns += 100 * VT_SECOND;
    pthread_mutex_unlock(&t->cloud->lock);
  }
  return refused;
}

static void recover(vt_testing *t) {
  int status;
  vt_testing_advance(t, 60);
  check_bill(t);
  assert_int_equal(count(t, "SELECT COUNT(*) FROM operations WHERE done = 0"), 0);
  json_decref(vt_testing_call_as(t, t->token, "POST", Z "/nodes?nodeId=a", NODE, &status));
  assert_true(status == 200 || status == 409);
  json_decref(vt_testing_call_as(t, t->token, "DELETE", Z "/nodes/b", NULL, &status));
  json_decref(vt_testing_call(t, "DELETE", Z "/nodes/a", NULL, 200));
  vt_testing_advance(t, 60);
  check_bill(t);
  assert_int_equal(count(t, "SELECT COUNT(*) FROM nodes"), 0);
  assert_int_equal(count(t, "SELECT COUNT(*) FROM usage WHERE end_ns = 0"), 0);
}

static void a_full_disk_is_an_answer_and_no_harm(void **state) {
  disk d;
  int refused = 0;
  (void)state;
  if (vt_testing_on_postgres()) skip(); // the disk is its server's
  if (!make_disk(&d)) {
    print_message("no mounts allowed here\n");
    skip();
  }
  for (size_t leave = 0; leave <= 256 << 10; leave += 16 << 10) {
    vt_testing t;
    char state_dir[96];
    snprintf(state_dir, sizeof state_dir, "%s/%zu", d.folder, leave);
    vt_testing_open(&t, state_dir);
    fill(&d, leave);
    refused += play(&t);
    check_bill(&t);
    unlink(d.filler);
    recover(&t);
    vt_testing_close(&t);
    vt_testing_remove(state_dir);
  }
  print_message("%d calls refused\n", refused);
  assert_true(refused > 10);
  umount2(d.folder, MNT_DETACH);
  rmdir(d.folder);
}

// The same with SQLite's own limit, which also works without privileges.
static void a_database_at_its_limit_recovers(void **state) {
  vt_testing t;
  char sql[64];
  (void)state;
  if (vt_testing_on_postgres()) skip();
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=first", NODE, 200));
  vt_testing_reconcile(&t);
  snprintf(sql, sizeof sql, "PRAGMA max_page_count = %d", (int)count(&t, "PRAGMA page_count"));
  count(&t, sql);
  int status = 200, made = 0;
  for (; status != 503 && made < 500; made++) {
    char url[128];
    snprintf(url, sizeof url, Z "/queuedResources?queuedResourceId=q%d", made);
    json_t *reply = vt_testing_call_as(
        &t, t.token, "POST", url,
        "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"p\",\"nodeId\":\"n\",\"node\":{\"acceleratorType\":"
        "\"v4-4096\",\"runtimeVersion\":\"v2-alpha\"}}]}}",
        &status);
    json_decref(reply);
  }
  assert_int_equal(status, 503);
  vt_testing_expect(&t, Z "/nodes/first", "state", "READY"); // reading still works
  check_bill(&t);
  count(&t, "PRAGMA max_page_count = 1073741823");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=second", NODE, 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/nodes/second", "state", "READY");
  check_bill(&t);
  vt_testing_close(&t);
}

// --- a clock that jumps --------------------------------------------------------------------------

static int64_t wall_ns, boot_ns;

static int64_t read_fake(int clock_id) {
  return clock_id == CLOCK_REALTIME ? wall_ns : boot_ns;
}

static uint32_t next(uint32_t *seed) {
  return *seed = *seed * 1664525u + 1013904223u, *seed >> 8;
}

static void pass_second(vt_testing *t) {
  wall_ns += VT_SECOND;
  boot_ns += VT_SECOND;
  vt_testing_reconcile(t);
}

static bool is_ready(vt_testing *t) {
  int status;
  json_t *node = vt_testing_call_as(t, t->token, "GET", Z "/nodes/a", NULL, &status);
  bool ready = status == 200 && strcmp(vt_testing_text(node, "state"), "READY") == 0;
  json_decref(node);
  return ready;
}

// Steps of up to a day either way in the middle of random histories: the charge is what a stop
// watch shows.
static void jumps_are_neither_billed_nor_lost(void **state) {
  (void)state;
  for (uint32_t history = 1; history <= (vt_testing_on_postgres() ? 1 : 5); history++) {
    static const char *const calls[][2] = {{"POST", Z "/nodes?nodeId=a"},
                                           {"POST", Z "/nodes/a:stop"},
                                           {"POST", Z "/nodes/a:start"},
                                           {"DELETE", Z "/nodes/a"}};
    vt_testing t;
    uint32_t seed = history * 104729;
    int64_t ready_s = 0, last = 0;
    wall_ns = INT64_C(1800000000) * VT_SECOND + 123456789;
    boot_ns = 5000 * VT_SECOND + 987654321;
    vt_testing_open_with_clock(&t, "", read_fake);
    for (int step = 0; step < 60; step++) {
      int status;
      uint32_t call = next(&seed) % 4;
      json_decref(vt_testing_call_as(&t, t.token, calls[call][0], calls[call][1],
                                     call == 0 ? NODE : "{}", &status));
      vt_testing_reconcile(&t);
      if (next(&seed) % 3 == 0) wall_ns += ((int64_t)(next(&seed) % 172800) - 86400) * VT_SECOND;
      for (uint32_t s = next(&seed) % 20; s > 0; s--) {
        bool ready = is_ready(&t);
        pass_second(&t);
        ready_s += ready;
        assert_true(vt_cloud_now(t.cloud) >= last);
        last = vt_cloud_now(t.cloud);
      }
    }
    check_bill(&t);
    vt_rows *rows;
    vt_int128 got = 0;
    assert_null(vt_store_query(
        t.cloud->store, &rows,
        "SELECT units, price_nanos, start_ns, end_ns FROM usage WHERE kind = 'tpu'", ""));
    while (vt_rows_next(rows)) {
      int64_t end = vt_rows_int(rows, 3);
      got += vt_bill_interval(vt_rows_int(rows, 0), vt_rows_int(rows, 1), vt_rows_int(rows, 2),
                              end ? end : last, 0, INT64_MAX);
    }
    assert_null(vt_rows_end(rows));
    assert_true(ready_s > 60);
    vt_int128 want = (vt_int128)4 * 3220000000 * ready_s;
    if (got != want)
      fail_msg("history %u: the ledger has %lld, the watch %lld nano-USD", history,
               (long long)(got / 3600), (long long)(want / 3600));
    vt_testing_close(&t);
  }
}

// A daemon that starts with the machine's clock behind continues from the latest time in its rows;
// once the clock is right again, so is its time.
static void a_start_never_goes_back(void **state) {
  vt_testing t;
  char folder[] = "/tmp/vtpu-fault-XXXXXX";
  (void)state;
  assert_non_null(mkdtemp(folder));
  wall_ns = INT64_C(1800000000) * VT_SECOND;
  boot_ns = 100 * VT_SECOND;
  vt_testing_open_with_clock(&t, folder, read_fake);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=a", NODE, 200));
  for (int i = 0; i < 100; i++) pass_second(&t);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=b", NODE, 200));
  int64_t before = vt_cloud_now(t.cloud);
  vt_testing_close(&t);
  wall_ns -= VT_DAY;
  boot_ns = 3 * VT_SECOND; // another boot
  vt_testing_open_with_clock(&t, folder, read_fake);
  assert_true(vt_cloud_now(t.cloud) >= before);
  for (int i = 0; i < 50; i++) pass_second(&t);
  vt_testing_expect(&t, Z "/nodes/a", "state", "READY");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/a:stop", "{}", 200));
  pass_second(&t);
  check_bill(&t);
  assert_int_equal(count(&t, "SELECT (end_ns - start_ns) / 1000000000 FROM usage WHERE kind = "
                             "'tpu' AND node_id = 'a'"),
                   149); // READY after the first second
  vt_testing_close(&t);
  wall_ns += 2 * VT_DAY;
  vt_testing_open_with_clock(&t, folder, read_fake);
  assert_true(vt_cloud_now(t.cloud) >= wall_ns);
  vt_testing_reconcile(&t);
  check_bill(&t);
  vt_testing_close(&t);
  vt_testing_remove(folder);
}

// --- a zone that is out --------------------------------------------------------------------------

static void order(vt_testing *t, int in, int seconds) {
  char body[128];
  snprintf(body, sizeof body, "{\"zone\":\"us-central2-b\",\"inSeconds\":%d,\"seconds\":%d}", in,
           seconds);
  json_decref(vt_testing_call(t, "POST", "/vtpu/v1/outages", body, 200));
  vt_testing_reconcile(t);
}

static void create(vt_testing *t, const char *zone, const char *id, bool spot, char url[512]) {
  char body[256];
  snprintf(url, 512, "/v2/projects/" TESTING_PROJECT "/locations/%s/nodes?nodeId=%s", zone, id);
  snprintf(body, sizeof body,
           "{\"acceleratorType\":\"%s\",\"runtimeVersion\":\"%s\",\"schedulingConfig\":{\"spot\":"
           "%s}}",
           *zone == 'u' ? "v4-8" : "v3-8", *zone == 'u' ? "v2-alpha" : "tpu-ubuntu2204-base",
           spot ? "true" : "false");
  json_t *operation = vt_testing_call(t, "POST", url, body, 200);
  snprintf(url, 512, "/v2/%s", vt_testing_text(operation, "name"));
  json_decref(operation);
  vt_testing_reconcile(t);
}

static void a_zone_goes_out_and_comes_back(void **state) {
  vt_testing t;
  char url[512];
  (void)state;
  vt_testing_open(&t, "");
  create(&t, "us-central2-b", "firm", false, url);
  create(&t, "us-central2-b", "spot", true, url);
  create(&t, "us-central2-b", "asleep", false, url);
  create(&t, "europe-west4-a", "far", false, url);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/asleep:stop", "{}", 200));
  order(&t, 3600, 600);
  vt_testing_advance(&t, 3599);
  vt_testing_expect(&t, Z "/nodes/firm", "state", "READY");
  vt_testing_expect(&t, Z "/nodes/spot", "state", "READY");
  vt_testing_advance(&t, 1);
  vt_testing_expect(&t, Z "/nodes/firm", "state", "REPAIRING");
  vt_testing_expect(&t, Z "/nodes/firm", "health", "TIMEOUT");
  vt_testing_expect(&t, Z "/nodes/firm", "healthDescription", "The zone is out.");
  vt_testing_expect(&t, Z "/nodes/spot", "state", "PREEMPTED");
  vt_testing_expect(&t, "/v2/projects/" TESTING_PROJECT "/locations/europe-west4-a/nodes/far",
                    "state", "READY");
  // Nothing starts.
  create(&t, "us-central2-b", "late", false, url);
  json_t *done = vt_testing_call(&t, "GET", url, NULL, 200);
  assert_int_equal(json_integer_value(json_object_get(json_object_get(done, "error"), "code")), 14);
  assert_non_null(strstr(vt_testing_text(done, "error.message"), "ZONE_RESOURCE_POOL_EXHAUSTED"));
  json_decref(done);
  json_decref(vt_testing_call(&t, "GET", Z "/nodes/late", NULL, 404));
  json_t *start = vt_testing_call(&t, "POST", Z "/nodes/asleep:start", "{}", 200);
  vt_testing_reconcile(&t);
  snprintf(url, sizeof url, "/v2/%s", vt_testing_text(start, "name"));
  json_decref(start);
  done = vt_testing_call(&t, "GET", url, NULL, 200);
  assert_int_equal(json_integer_value(json_object_get(json_object_get(done, "error"), "code")), 14);
  json_decref(done);
  vt_testing_expect(&t, Z "/nodes/asleep", "state", "STOPPED");
  json_decref(vt_testing_call(
      &t, "POST", Z "/queuedResources?queuedResourceId=q",
      "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"p\",\"nodeId\":\"n\",\"node\":" NODE "}]}}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "WAITING_FOR_RESOURCES");
  create(&t, "europe-west4-a", "elsewhere", false, url);
  vt_testing_expect(&t, url, "response.state", "READY");
  vt_testing_advance(&t, 599);
  vt_testing_expect(&t, Z "/nodes/firm", "state", "REPAIRING");
  vt_testing_advance(&t, 1);
  vt_testing_expect(&t, Z "/nodes/firm", "state", "READY");
  vt_testing_expect(&t, Z "/nodes/firm", "health", "HEALTHY");
  vt_testing_expect(&t, Z "/nodes/spot", "state", "PREEMPTED");
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "ACTIVE");
  create(&t, "us-central2-b", "late", false, url);
  vt_testing_expect(&t, url, "response.state", "READY");
  check_bill(&t);
  // Cancelled, before and in the middle.
  order(&t, 60, 600);
  order(&t, 0, 0);
  vt_testing_advance(&t, 120);
  vt_testing_expect(&t, Z "/nodes/firm", "state", "READY");
  order(&t, 0, 600);
  vt_testing_expect(&t, Z "/nodes/firm", "state", "REPAIRING");
  order(&t, 0, 0);
  vt_testing_expect(&t, Z "/nodes/firm", "state", "READY");
  json_decref(
      vt_testing_call(&t, "POST", "/vtpu/v1/outages", "{\"zone\":\"mars-a\",\"seconds\":1}", 400));
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/outages",
                              "{\"zone\":\"us-central2-b\",\"seconds\":-1}", 400));
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_disk_is_an_answer_and_no_harm),
      cmocka_unit_test(a_database_at_its_limit_recovers),
      cmocka_unit_test(jumps_are_neither_billed_nor_lost),
      cmocka_unit_test(a_start_never_goes_back),
      cmocka_unit_test(a_zone_goes_out_and_comes_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
