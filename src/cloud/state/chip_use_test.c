// SPDX-License-Identifier: Apache-2.0
// chip_use_test.c - workers' reports through the metadata server: device time on the bill, idle
// detection, what is shown, and reports that are rejected.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define Z   "/v2alpha1/projects/demo-project/locations/us-central2-b"
#define USE "/vtpu/v1/projects/demo-project/use?node=%s"

static int report(vt_testing *t, const char *id, int worker, int64_t epoch, int64_t programs,
                  int64_t busy_ms, int64_t device_ms) {
  char text[512];
  snprintf(text, sizeof text,
           "epoch %lld\nprograms %lld\nbusy_ns %lld\ndevice_ns %lld\nprocesses 1\nrunning 0\n"
           "hbm_bytes 4096\nhbm_limit 8192\n",
           (long long)epoch, (long long)programs, (long long)busy_ms * 1000000,
           (long long)device_ms * 1000000);
  return vt_testing_report(t, id, worker, text);
}

static double number(vt_testing *t, const char *id, const char *name) {
  char url[128];
  snprintf(url, sizeof url, USE, id);
  json_t *reply = vt_testing_call(t, "GET", url, NULL, 200);
  const json_t *node = json_array_get(json_object_get(reply, "nodes"), 0);
  double value = json_number_value(json_object_get(json_object_get(node, "chips"), name));
  json_decref(reply);
  return value;
}

static double billed(vt_testing *t, const char *id) {
  json_t *bill = vt_testing_call(t, "GET", "/vtpu/v1/projects/demo-project/bill", NULL, 200), *line;
  size_t i;
  double sum = 0;
  json_array_foreach(json_object_get(bill, "lines"), i, line) {
    if (strcmp(vt_testing_text(line, "node"), id) == 0)
      sum += json_number_value(json_object_get(line, "deviceSeconds"));
  }
  json_decref(bill);
  return sum;
}

static void device_time_is_on_the_bill(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "one", "v4-8");
  vt_testing_advance(&t, 10);
  assert_int_equal(report(&t, "one", 0, 1, 10, 2000, 500), 200);
  vt_testing_advance(&t, 4);
  assert_int_equal(report(&t, "one", 0, 1, 30, 4000, 1500), 200);
  assert_true(number(&t, "one", "dutyCycle") == 0.5); // 2 s of 4
  assert_true(number(&t, "one", "hbmBytes") == 4096);
  assert_true(billed(&t, "one") == 1.5);
  // Stopped and started: the guest counts from zero, the bill continues on a new line.
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/one:stop", "{}", 200));
  vt_testing_reconcile(&t);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/one:start", "{}", 200));
  vt_testing_reconcile(&t);
  assert_int_equal(report(&t, "one", 0, 2, 5, 100, 250), 200);
  assert_true(number(&t, "one", "programs") == 35);
  assert_true(number(&t, "one", "deviceSeconds") == 1.75);
  assert_true(billed(&t, "one") == 1.75);
  // No report for a long time: the chips are idle now.
  vt_testing_advance(&t, 60);
  assert_true(number(&t, "one", "dutyCycle") == 0);
  vt_testing_close(&t);
}

// The workers of a slice run the same programs, so their device time counts once.
static void a_slice_counts_once(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "pod", "v4-16");
  assert_int_equal(report(&t, "pod", 0, 1, 10, 2000, 500), 200);
  assert_int_equal(report(&t, "pod", 1, 1, 10, 2000, 500), 200);
  assert_true(billed(&t, "pod") == 0.5);
  assert_int_equal(report(&t, "pod", 1, 1, 12, 2100, 700), 200);
  assert_true(billed(&t, "pod") == 0.7);
  vt_testing_close(&t);
}

static int idle_alerts(vt_testing *t, const char *id) {
  char end[80];
  int count = 0;
  size_t i;
  json_t *reply = vt_testing_call(t, "GET", "/vtpu/v1/projects/demo-project/events", NULL, 200),
         *event;
  snprintf(end, sizeof end, "/nodes/%s", id);
  json_array_foreach(json_object_get(reply, "events"), i, event) {
    const char *target = vt_testing_text(event, "target");
    size_t n = strlen(target), m = strlen(end);
    if (strcmp(vt_testing_text(event, "kind"), "idle") == 0 && n >= m &&
        strcmp(target + n - m, end) == 0)
      count++;
  }
  json_decref(reply);
  return count;
}

static void only_idle_chips_are_told(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "busy", "v4-8");
  vt_testing_create(&t, "idle", "v4-8");
  for (int hour = 1; hour <= 5; hour++) {
    vt_testing_advance(&t, 3600);
    assert_int_equal(report(&t, "busy", 0, 1, hour, hour, hour), 200);
  }
  assert_int_equal(idle_alerts(&t, "busy"), 0);
  assert_int_equal(idle_alerts(&t, "idle"), 1);
  // Use clears the alert; the next idle time raises it again.
  assert_int_equal(report(&t, "idle", 0, 1, 1, 1, 1), 200);
  vt_testing_advance(&t, 5 * 3600);
  assert_int_equal(idle_alerts(&t, "idle"), 2);
  assert_int_equal(idle_alerts(&t, "busy"), 1);
  vt_testing_close(&t);
}

static json_t *jobs_of(vt_testing *t) {
  json_t *reply = vt_testing_call(t, "GET", "/vtpu/v1/projects/demo-project/jobs", NULL, 200);
  json_t *jobs = json_incref(json_object_get(reply, "jobs"));
  json_decref(reply);
  return jobs;
}

static void report_jobs(vt_testing *t, const char *id, int64_t epoch, const char *lines) {
  char text[1024];
  snprintf(text, sizeof text,
           "epoch %lld\nprograms 9\nbusy_ns 9\ndevice_ns 9\nprocesses 1\nrunning 1\n"
           "hbm_bytes 1\nhbm_limit 9\n%s",
           (long long)epoch, lines);
  assert_int_equal(vt_testing_report(t, id, 0, text), 200);
}

static void jobs_have_reports(void **state) {
  (void)state;
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "one", "v4-8");
  report_jobs(&t, "one", 1, "job 17 3 2000000000 1000000000 4096 0 python3 train.py\n");
  vt_testing_advance(&t, 60);
  report_jobs(&t, "one", 1,
              "job 17 30 20000000000 3600000000000 1024 0 python3 train.py\n"
              "job 18 1 1000 1000 0 1 \njob no\njob 19 -1 0 0 0 0 x\njob 20\n");
  json_t *jobs = jobs_of(&t);
  assert_int_equal(json_array_size(jobs), 2);
  json_t *short_one = json_array_get(jobs, 0), *train = json_array_get(jobs, 1);
  assert_string_equal(vt_testing_text(short_one, "name"), "process 18");
  assert_true(json_is_false(json_object_get(short_one, "running")));
  assert_string_equal(vt_testing_text(train, "name"), "python3 train.py");
  assert_true(json_is_true(json_object_get(train, "running")));
  assert_int_equal(json_integer_value(json_object_get(train, "programs")), 30);
  assert_int_equal(json_integer_value(json_object_get(train, "hbmBytes")), 4096); // the maximum
  // An hour of the chip costs an hour's price.
  double price = json_number_value(json_object_get(train, "usdPerHour"));
  assert_true(price > 0 && json_number_value(json_object_get(train, "deviceUsd")) == price);
  json_decref(jobs);
  // Reported twice is one job; the same pid later is another one; a boot ends the jobs before it.
  report_jobs(&t, "one", 1, "job 18 1 1000 1000 0 1 \n");
  report_jobs(&t, "one", 1, "job 18 2 2000 2000 0 1 \n");
  report_jobs(&t, "one", 2, "job 17 1 1000 1000 0 0 python3 other.py\n");
  jobs = jobs_of(&t);
  assert_int_equal(json_array_size(jobs), 4);
  assert_true(json_is_false(json_object_get(json_array_get(jobs, 3), "running")));
  assert_string_equal(vt_testing_text(json_array_get(jobs, 0), "name"), "python3 other.py");
  json_decref(jobs);
  // Jobs outlive their node.
  json_decref(vt_testing_call(&t, "DELETE", Z "/nodes/one", NULL, 200));
  vt_testing_reconcile(&t);
  jobs = jobs_of(&t);
  assert_int_equal(json_array_size(jobs), 4);
  assert_true(json_is_false(json_object_get(json_array_get(jobs, 0), "running")));
  json_decref(jobs);
  vt_testing_close(&t);
}

static void nonsense_is_refused(void **state) {
  (void)state;
  static const char *const bad[] = {
      "", "epoch 1\n",
      "epoch 1\nprograms -1\nbusy_ns 0\ndevice_ns 0\nprocesses 0\nrunning 0\nhbm_bytes 0\n"
      "hbm_limit 0\n",
      "epoch 1\nprograms 99999999999999999999\nbusy_ns 0\ndevice_ns 0\nprocesses 0\nrunning 0\n"
      "hbm_bytes 0\nhbm_limit 0\n",
      "epoch 1\nprograms x\nbusy_ns 0\ndevice_ns 0\nprocesses 0\nrunning 0\nhbm_bytes 0\n"
      "hbm_limit 0\n"};
  vt_testing t;
  vt_testing_open(&t, "");
  vt_testing_create(&t, "one", "v4-8");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(vt_testing_report(&t, "one", 0, bad[i]), 400);
  assert_int_equal(report(&t, "one", 0, 1, 10, 10, 10), 200);
  assert_int_equal(report(&t, "one", 0, 1, 5, 5, 5), 200); // sums do not shrink
  assert_true(number(&t, "one", "programs") == 10);
  assert_true(billed(&t, "one") == 0.01);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(device_time_is_on_the_bill), cmocka_unit_test(a_slice_counts_once),
      cmocka_unit_test(only_idle_chips_are_told),   cmocka_unit_test(jobs_have_reports),
      cmocka_unit_test(nonsense_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
