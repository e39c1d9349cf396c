// SPDX-License-Identifier: Apache-2.0
// billing_test.c - the ledger: exact sums, free first minute, budgets, and a property over random
// histories: the ledger charges what an observer with a stop watch would charge, to the
// nano-dollar.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <string.h>

#include "cloud/state/billing.h"

#define Z     "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define ALPHA "/v2alpha1/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define BIG_DISK                                                                                   \
  "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"tpu-ubuntu2204-base\","                      \
  "\"bootDiskConfig\":{\"diskSizeGb\":%s}}"
#define BILL "/vtpu/v1/projects/" TESTING_PROJECT "/bill"

static void create(vt_testing *t, const char *id, const char *scheduling) {
  char url[256], body[512];
  snprintf(url, sizeof url, Z "/nodes?nodeId=%s", id);
  snprintf(body, sizeof body,
           "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"tpu-ubuntu2204-base\","
           "\"schedulingConfig\":{%s}}",
           scheduling);
  json_decref(vt_testing_call(t, "POST", url, body, 200));
  vt_testing_reconcile(t);
}

static void an_hour_costs_its_price(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, "a", "");
  vt_testing_advance(&t, 3600);
  // 4 chips at 3.22 and 100 GB at 0.000136986 USD an hour
  vt_testing_expect(&t, BILL, "usd", "12.893698600");
  vt_testing_expect(&t, BILL, "lines.0.usd", "12.880000000");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/a:stop", "{}", 200));
  vt_testing_reconcile(&t);
  vt_testing_advance(&t, 3600);
  vt_testing_expect(&t, BILL, "usd", "12.907397200"); // a stopped node pays for its disk
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/credit",
                              "{\"usd\":10}", 200));
  vt_testing_expect(&t, BILL, "dueUsd", "2.907397200");
  vt_testing_close(&t);
}

static void a_boot_disk_costs_its_size(void **state) {
  static const struct {
    const char *size, *usd; // of one hour: 4 chips, and the disk
  } rows[] = {{"500", "12.948493000"},
              {"\"2000\"", "13.153972000"},
              {"10", "12.881369860"},
              {"65536", "21.857514496"},
              {"0", "12.893698600"}};
  static const char *const refused[] = {"-1", "65537", "9223372036854775807", "1.5", "\"x\""};
  char body[256];
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_testing t;
    vt_testing_open(&t, "");
    snprintf(body, sizeof body, BIG_DISK, rows[i].size);
    json_decref(vt_testing_call(&t, "POST", ALPHA "/nodes?nodeId=a", body, 200));
    vt_testing_reconcile(&t);
    vt_testing_advance(&t, 3600);
    vt_testing_expect(&t, BILL, "usd", rows[i].usd);
    vt_testing_close(&t);
  }
  vt_testing t;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    snprintf(body, sizeof body, BIG_DISK, refused[i]);
    json_decref(vt_testing_call(&t, "POST", ALPHA "/nodes?nodeId=a", body, 400));
  }
  vt_testing_close(&t);
}

static void preempted_in_the_first_minute_is_free(void **state) {
  static const struct {
    int after_s;
    const char *usd;
  } rows[] = {{20, "0.000000000"},
              {40, "0.071672222"}}; // 20 + 30 s of notice are under a minute; 70 s at 4 x 0.9215
  (void)state;
  for (size_t i = 0; i < 2; i++) {
    vt_testing t;
    vt_testing_open(&t, "");
    create(&t, "a", "\"spot\":true");
    vt_testing_advance(&t, rows[i].after_s);
    json_decref(vt_testing_call(
        &t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/nodes/us-central2-b/a:preempt", "{}",
        200));
    vt_testing_advance(&t, 100);
    vt_testing_expect(&t, BILL, "lines.0.usd", rows[i].usd);
    vt_testing_close(&t);
  }
}

static void a_budget_stops_the_project(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/budget",
                              "{\"usd\":100,\"stops\":true}", 200));
  create(&t, "a", "");
  vt_testing_advance(&t, 7 * 3600);
  vt_testing_expect(&t, Z "/nodes/a", "state", "READY");
  vt_testing_advance(&t, 2 * 3600);
  vt_testing_expect(&t, Z "/nodes/a", "state", "TERMINATED");
  json_t *events =
      vt_testing_call(&t, "GET", "/vtpu/v1/projects/" TESTING_PROJECT "/events", NULL, 200);
  int alerts = 0;
  for (size_t i = 0; i < json_array_size(json_object_get(events, "events")); i++)
    if (strcmp(vt_testing_text(json_array_get(json_object_get(events, "events"), i), "kind"),
               "budget") == 0)
      alerts++;
  assert_int_equal(alerts, 3);
  json_decref(events);
  vt_testing_close(&t);
}

static void idle_chips_are_told_once(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, "a", "");
  vt_testing_advance(&t, 8 * 3600);
  json_t *events =
      vt_testing_call(&t, "GET", "/vtpu/v1/projects/" TESTING_PROJECT "/events", NULL, 200);
  int alerts = 0;
  for (size_t i = 0; i < json_array_size(json_object_get(events, "events")); i++)
    if (strcmp(vt_testing_text(json_array_get(json_object_get(events, "events"), i), "kind"),
               "idle") == 0)
      alerts++;
  assert_int_equal(alerts, 1);
  json_decref(events);
  vt_testing_close(&t);
}

// --- credit, and budgets that stop ---------------------------------------------------------------

// Nano-USD of "12.893698600".
static int64_t nanos_of(const char *usd) {
  long long whole, part;
  assert_int_equal(sscanf(usd, "%lld.%9lld", &whole, &part), 2);
  return whole * 1000000000 + part;
}

static json_t *bill_of(vt_testing *t, const char *month) {
  char url[128];
  snprintf(url, sizeof url, BILL "?month=%s", month);
  return vt_testing_call(t, "GET", url, NULL, 200);
}

// Checks that the lines and parts of a month's bill add up. Returns the credit it used.
static int64_t check_month(vt_testing *t, const char *month) {
  json_t *bill = bill_of(t, month), *line;
  size_t i;
  int64_t lines = 0, total = nanos_of(vt_testing_text(bill, "usd")),
          credit = nanos_of(vt_testing_text(bill, "creditUsd")),
          due = nanos_of(vt_testing_text(bill, "dueUsd"));
  json_array_foreach(json_object_get(bill, "lines"), i, line) lines +=
      nanos_of(vt_testing_text(line, "usd"));
  assert_true(lines == total);
  assert_true(credit + due == total);
  assert_true(credit >= 0 && due >= 0);
  json_decref(bill);
  return credit;
}

static void give_credit(vt_testing *t, const char *body) {
  json_decref(
      vt_testing_call(t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/credit", body, 200));
}

static void credit_pays_once(void **state) {
  static const char *const months[] = {"2026-01", "2026-02", "2026-03", "2026-04"};
  vt_testing t;
  int64_t sum = 0;
  (void)state;
  vt_testing_open(&t, "");
  give_credit(&t, "{\"usd\":100,\"days\":365}");
  create(&t, "a", "");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/a:stop", "{}", 200));
  vt_testing_advance(&t, 100 * 86400);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/a:start", "{}", 200));
  vt_testing_advance(&t, 86400);
  for (size_t i = 0; i < 4; i++) sum += check_month(&t, months[i]);
  assert_true(sum == 100 * INT64_C(1000000000));
  assert_true(check_month(&t, "2026-01") > 9 * INT64_C(1000000000)); // a month of a disk
  // New credit does not change an earlier month.
  int64_t before = check_month(&t, "2026-03");
  give_credit(&t, "{\"usd\":1000}");
  assert_true(check_month(&t, "2026-03") == before);
  vt_testing_close(&t);
}

static void large_credits_are_not_too_much(void **state) {
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  create(&t, "a", "");
  for (int i = 0; i < 24; i++) give_credit(&t, "{\"usd\":9e8}");
  vt_testing_advance(&t, 3600);
  vt_testing_expect(&t, BILL, "creditUsd", "12.893698600");
  vt_testing_expect(&t, BILL, "dueUsd", "0.000000000");
  vt_testing_close(&t);
}

static void a_spent_budget_keeps_the_door_shut(void **state) {
  const char *node = "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}";
  const char *queued = "{\"tpu\":{\"nodeSpec\":[{\"nodeId\":\"q\",\"node\":{\"acceleratorType\":"
                       "\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}}]}}";
  static const char small[] = "{\"usd\":100,\"stops\":true}";
  vt_testing t;
  (void)state;
  vt_testing_open(&t, "");
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/capacity",
                              "{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":4}", 200));
  create(&t, "stopped", "");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/stopped:stop", "{}", 200));
  create(&t, "a", "");
  json_decref(vt_testing_call(&t, "POST", Z "/queuedResources?queuedResourceId=q", queued, 200));
  json_decref(
      vt_testing_call(&t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/budget", small, 200));
  vt_testing_advance(&t, 9 * 3600);
  vt_testing_expect(&t, Z "/nodes/a", "state", "TERMINATED");
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "WAITING_FOR_RESOURCES");
  json_t *reply = vt_testing_call(&t, "POST", Z "/nodes?nodeId=b", node, 400);
  assert_non_null(strstr(vt_testing_text(reply, "error.message"), "is spent"));
  json_decref(reply);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/stopped:start", "{}", 400));
  json_decref(vt_testing_call(
      &t, "POST", "/v1/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes/stopped:reimage",
      "{}", 400));
  json_decref(vt_testing_call(&t, "POST", Z "/queuedResources?queuedResourceId=r", queued, 400));
  // A budget that only alerts stops nothing; nor does a raised one, or a new month.
  json_decref(vt_testing_call(&t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/budget",
                              "{\"usd\":100}", 200));
  json_decref(vt_testing_call(&t, "POST", Z "/nodes/stopped:start", "{}", 200));
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/nodes/stopped", "state", "READY");
  json_decref(
      vt_testing_call(&t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/budget", small, 200));
  vt_testing_advance(&t, 2 * 3600); // a running node is stopped again
  vt_testing_expect(&t, Z "/nodes/stopped", "state", "TERMINATED");
  vt_testing_advance(&t, 31 * 86400 - 10 * 3600);
  vt_testing_expect(&t, Z "/queuedResources/q", "state.state", "ACTIVE");
  vt_testing_close(&t);
}

static void a_price_of_nothing_is_no_budget(void **state) {
  static const char *const bad[] = {"0", "-1", "1e-12", "1e300", "1e9", "\"5\"", "null", "true"};
  vt_testing t;
  char body[64];
  (void)state;
  vt_testing_open(&t, "");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(body, sizeof body, "{\"usd\":%s}", bad[i]);
    json_decref(
        vt_testing_call(&t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/budget", body, 400));
    json_decref(
        vt_testing_call(&t, "POST", "/vtpu/v1/projects/" TESTING_PROJECT "/credit", body, 400));
  }
  vt_testing_close(&t);
}

// --- the property --------------------------------------------------------------------------------

enum { NODES = 4, STEPS = 40 };

static uint32_t next(uint32_t *seed) {
  return *seed = *seed * 1664525u + 1013904223u, *seed >> 8;
}

typedef struct watch {
  bool exists, ready;
  int64_t price;
  vt_int128 charged,
      since_ready; // since_ready: of the open interval, dropped when preempted within 60 s
  int64_t ready_s;
} watch;

static void observe(vt_testing *t, watch *w, const char *id, int64_t seconds) {
  char url[256];
  int status;
  if (w->ready) {
    w->since_ready += (vt_int128)4 * w->price * seconds;
    w->ready_s += seconds;
  }
  snprintf(url, sizeof url, Z "/nodes/%s", id);
  json_t *node = vt_testing_call_as(t, t->token, "GET", url, NULL, &status);
  const char *now = status == 200 ? vt_testing_text(node, "state") : "";
  bool ready = strcmp(now, "READY") == 0;
  if (w->ready && !ready) {
    if (!(strcmp(now, "PREEMPTED") == 0 && w->ready_s < 60)) w->charged += w->since_ready;
    w->since_ready = 0;
    w->ready_s = 0;
  }
  w->ready = ready;
  w->exists = status == 200;
  json_decref(node);
}

static void act(vt_testing *t, uint32_t *seed, watch *w, const char *id) {
  char url[256];
  int status;
  const char *method = "POST", *body = "{}";
  uint32_t dice = next(seed) % 5;
  if (!w->exists) {
    bool spot = next(seed) % 2;
    w->price = spot ? 921500000 : 3220000000;
    snprintf(url, sizeof url, Z "/nodes?nodeId=%s", id);
    body = spot ? "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\","
                  "\"schedulingConfig\":{\"spot\":true}}"
                : "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}";
  } else if (dice == 0) {
    snprintf(url, sizeof url, Z "/nodes/%s:stop", id);
  } else if (dice == 1) {
    snprintf(url, sizeof url, Z "/nodes/%s:start", id);
  } else if (dice == 2) {
    method = "DELETE";
    snprintf(url, sizeof url, Z "/nodes/%s", id);
  } else if (dice == 3) {
    snprintf(url, sizeof url,
             "/vtpu/v1/projects/" TESTING_PROJECT "/nodes/us-central2-b/%s:preempt", id);
  } else {
    return;
  }
  json_decref(vt_testing_call_as(t, t->token, method, url, body,
                                 &status)); // refusals are part of the history
  vt_testing_reconcile(t);
}

static void random_histories_add_up(void **state) {
  (void)state;
  for (uint32_t history = 1; history <= (vt_testing_on_postgres() ? 1 : 6); history++) {
    vt_testing t;
    watch watches[NODES] = {{0}};
    uint32_t seed = history * 7919;
    vt_testing_open(&t, "");
    int64_t from = vt_cloud_now(t.cloud);
    for (int step = 0; step < STEPS; step++) {
      int node = (int)(next(&seed) % NODES);
      char id[8];
      snprintf(id, sizeof id, "n%d", node);
      act(&t, &seed, &watches[node], id);
      for (int n = 0; n < NODES; n++) {
        snprintf(id, sizeof id, "n%d", n);
        observe(&t, &watches[n], id, 0);
      }
      // Second by second, so that the observer sees every change at its time.
      for (int64_t s = 1 + next(&seed) % 40; s > 0; s--) {
        vt_testing_advance(&t, 1);
        for (int n = 0; n < NODES; n++) {
          snprintf(id, sizeof id, "n%d", n);
          observe(&t, &watches[n], id, 1);
        }
      }
    }
    vt_int128 want = 0, got = 0;
    for (int n = 0; n < NODES; n++) want += watches[n].charged + watches[n].since_ready;
    int64_t now = vt_cloud_now(t.cloud);
    vt_rows *rows;
    assert_null(vt_store_query(
        t.cloud->store, &rows,
        "SELECT units, price_nanos, start_ns, end_ns FROM usage WHERE waived = 0 AND kind = 'tpu'",
        ""));
    while (vt_rows_next(rows)) {
      int64_t end = vt_rows_int(rows, 3);
      got += vt_bill_interval(vt_rows_int(rows, 0), vt_rows_int(rows, 1), vt_rows_int(rows, 2),
                              end ? end : now, from, now);
    }
    assert_null(vt_rows_end(rows));
    if (got != want)
      fail_msg("history %u: the ledger has %lld, the watch %lld nano-USD", history,
               (long long)(got / 3600), (long long)(want / 3600));
    vt_testing_close(&t);
  }
}

// Credits of any amount and length, granted at any time of a year: no month gets more than it
// costs, and all months together no more than was granted.
static void random_credits_pay_no_more_than_they_are(void **state) {
  (void)state;
  for (uint32_t history = 1; history <= (vt_testing_on_postgres() ? 1 : 4); history++) {
    vt_testing t;
    uint32_t seed = history * 104729;
    vt_int128 given = 0, used = 0;
    char month[32], body[96];
    vt_testing_open(&t, "");
    create(&t, "a", "");
    for (int step = 0; step < 24; step++) {
      int64_t cents = 1 + next(&seed) % (next(&seed) % 3 ? 100000 : 10000000),
              days = next(&seed) % 5 ? 1 + next(&seed) % 120 : 0;
      snprintf(body, sizeof body, "{\"usd\":%lld.%02lld,\"days\":%lld}", (long long)(cents / 100),
               (long long)(cents % 100), (long long)days);
      if (next(&seed) % 2) {
        give_credit(&t, body);
        given += (vt_int128)cents * 10000000;
      }
      json_decref(vt_testing_call_as(&t, t.token, "POST",
                                     next(&seed) % 2 ? Z "/nodes/a:stop" : Z "/nodes/a:start", "{}",
                                     &(int){0}));
      vt_testing_advance(&t, 1 + next(&seed) % (10 * 86400));
    }
    for (int m = 1; m <= 12; m++) {
      snprintf(month, sizeof month, "2026-%02d", m);
      used += check_month(&t, month);
    }
    assert_true(used <= given);
    vt_testing_close(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_hour_costs_its_price),
      cmocka_unit_test(a_boot_disk_costs_its_size),
      cmocka_unit_test(preempted_in_the_first_minute_is_free),
      cmocka_unit_test(a_budget_stops_the_project),
      cmocka_unit_test(credit_pays_once),
      cmocka_unit_test(large_credits_are_not_too_much),
      cmocka_unit_test(a_spent_budget_keeps_the_door_shut),
      cmocka_unit_test(a_price_of_nothing_is_no_budget),
      cmocka_unit_test(random_credits_pay_no_more_than_they_are),
      cmocka_unit_test(idle_chips_are_told_once),
      cmocka_unit_test(random_histories_add_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
