// SPDX-License-Identifier: Apache-2.0
// store_test.c - the contract of store.h on the store that the test runs on: values, errors,
// transactions, sort order of texts, backup and restore between stores; on PostgreSQL also the
// single writer, transactions that conflict and are retried, and a server that goes away and comes
// back.
#include "cloud/cloud_testing.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define Z "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define NODE                                                                                       \
  "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\",\"labels\":{\"a\":\"b\"}}"

static void must(vt_status st) {
  if (st) fail_msg("%s", vt_status_message(st));
}

static void fails(vt_status st, vt_code code) {
  if (vt_status_code(st) != code)
    fail_msg("%s (%s), not %s", vt_code_name(vt_status_code(st)), vt_status_message(st),
             vt_code_name(code));
  vt_status_free(st);
}

static int64_t count(vt_store *store, const char *sql) {
  int64_t value;
  must(vt_store_int(store, &value, -1, sql, ""));
  return value;
}

static const char put[] = "INSERT INTO counters (name, value) VALUES (?, ?)";

static void values_and_errors(void **state) {
  vt_testing t;
  vt_rows *rows;
  int64_t changed;
  (void)state;
  vt_testing_open(&t, "");
  vt_store *s = t.cloud->store;
  must(vt_store_begin(s));
  must(vt_store_run(s, &changed, put, "si", "x-big", INT64_MAX));
  must(vt_store_run(s, NULL, put, "si", "x-small", INT64_MIN));
  must(vt_store_run(s, NULL, put, "si", "x-it's \"?\" \\ \n\xc3\xa9\xe2\x82\xac", INT64_C(0)));
  assert_int_equal(changed, 1);
  must(vt_store_commit(s));
  assert_true(count(s, "SELECT value FROM counters WHERE name = 'x-big'") == INT64_MAX);
  assert_true(count(s, "SELECT value FROM counters WHERE name = 'x-small'") == INT64_MIN);
  assert_int_equal(count(s, "SELECT value FROM counters WHERE name = 'nothing'"), -1);
  assert_int_equal(count(s, "SELECT MAX(value) FROM counters WHERE name = 'nothing'"), -1);
  must(vt_store_query(s, &rows, "SELECT name FROM counters WHERE name LIKE 'x-it%'", ""));
  assert_true(vt_rows_next(rows));
  assert_string_equal(vt_rows_text(rows, 0), "x-it's \"?\" \\ \n\xc3\xa9\xe2\x82\xac");
  assert_false(vt_rows_next(rows));
  must(vt_rows_end(rows));
  must(vt_store_begin(s));
  must(vt_store_run(s, &changed, "UPDATE counters SET value = 7 WHERE name LIKE 'x-%' AND ? > 0",
                    "i", INT64_MAX));
  assert_int_equal(changed, 3);
  fails(vt_store_run(s, NULL, put, "si", "x-big", INT64_C(1)), VT_ALREADY_EXISTS);
  vt_store_rollback(s);
  assert_true(count(s, "SELECT value FROM counters WHERE name = 'x-big'") == INT64_MAX);
  fails(vt_store_run(s, NULL, "SELECT nonsense", ""), VT_INTERNAL);
  // NULL stays NULL, and reads as "" and 0.
  must(vt_store_begin(s));
  must(vt_store_run(s, NULL,
                    "INSERT INTO tokens (hash, email, kind, scope, expires_ns, created_ns, origin) "
                    "VALUES ('h', 'e', 'k', ?, 0, 0, '')",
                    "s", NULL));
  must(vt_store_commit(s));
  assert_int_equal(count(s, "SELECT COUNT(*) FROM tokens WHERE hash = 'h' AND scope IS NULL"), 1);
  vt_testing_close(&t);
}

static void texts_are_ordered_by_bytes(void **state) {
  static const char *const want[] = {"A", "B", "_", "a", "a-b", "a0", "aB", "b", "\xc3\xa9"};
  vt_testing t;
  vt_rows *rows;
  (void)state;
  vt_testing_open(&t, "");
  vt_store *s = t.cloud->store;
  must(vt_store_begin(s));
  must(vt_store_run(s, NULL, "DELETE FROM counters", ""));
  for (size_t i = 0; i < 9; i++)
    must(vt_store_run(s, NULL, put, "si", want[(i * 5) % 9], (int64_t)i));
  must(vt_store_commit(s));
  must(vt_store_query(s, &rows, "SELECT name FROM counters ORDER BY name", ""));
  for (size_t i = 0; i < 9; i++) {
    assert_true(vt_rows_next(rows));
    assert_string_equal(vt_rows_text(rows, 0), want[i]);
  }
  must(vt_rows_end(rows));
  assert_int_equal(count(s, "SELECT COUNT(*) FROM counters WHERE name > 'a'"), 5);
  vt_testing_close(&t);
}

static void text_that_is_not_utf8_is_an_answer(void **state) {
  vt_testing t;
  int status;
  (void)state;
  vt_testing_open(&t, "");
  json_t *reply = vt_testing_call_as(&t, t.token, "GET", Z "/nodes/%ff%fe", NULL, &status);
  json_decref(reply);
  assert_true(status == 400 || status == 404);
  json_decref(vt_testing_call(&t, "GET", Z "/nodes", NULL, 200));
  vt_testing_close(&t);
}

// --- backup --------------------------------------------------------------------------------------

// A new store of the other kind: SQLite when the test runs on PostgreSQL, and vice versa.
static void copy_between(const char *from, const char *to_place) {
  vt_store *to;
  must(vt_store_open(to_place, false, &to));
  must(vt_store_restore(to, from));
  fails(vt_store_restore(to, from), VT_FAILED_PRECONDITION);
  vt_store_close(to);
}

static void a_backup_restores_on_either_store(void **state) {
  vt_testing t, again;
  char folder[] = "/tmp/vtpu-store-XXXXXX", other[] = "/tmp/vtpu-store-XXXXXX", path[600];
  (void)state;
  assert_non_null(mkdtemp(folder));
  assert_non_null(mkdtemp(other));
  vt_testing_open(&t, folder);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=a", NODE, 200));
  vt_testing_advance(&t, 1000);
  json_t *reply = vt_testing_call(&t, "POST", "/vtpu/v1/backup", "{}", 200);
  snprintf(path, sizeof path, "%s", vt_testing_text(reply, "path"));
  json_decref(reply);
  json_t *node = vt_testing_call(&t, "GET", Z "/nodes/a", NULL, 200);
  json_t *bill =
      vt_testing_call(&t, "GET", "/vtpu/v1/projects/" TESTING_PROJECT "/bill", NULL, 200);
  // The restore brings back the state at the time of the backup.
  json_decref(vt_testing_call(&t, "DELETE", Z "/nodes/a", NULL, 200));
  vt_testing_reconcile(&t);
  vt_testing_prepare(&again, other);
  copy_between(path, again.store);
  vt_testing_open(&again, other);
  again.cloud->virtual_ns = t.cloud->virtual_ns;
  json_t *node2 = vt_testing_call(&again, "GET", Z "/nodes/a", NULL, 200);
  json_t *bill2 =
      vt_testing_call(&again, "GET", "/vtpu/v1/projects/" TESTING_PROJECT "/bill", NULL, 200);
  assert_true(json_equal(node, node2));
  assert_string_equal(vt_testing_text(bill, "usd"), vt_testing_text(bill2, "usd"));
  // The restored store stays usable.
  json_decref(vt_testing_call(&again, "DELETE", Z "/nodes/a", NULL, 200));
  vt_testing_reconcile(&again);
  assert_int_equal(count(again.cloud->store, "SELECT COUNT(*) FROM nodes"), 0);
  json_decref(node);
  json_decref(node2);
  json_decref(bill);
  json_decref(bill2);
  vt_testing_close(&t);
  vt_testing_close(&again);
  vt_testing_remove(folder);
  vt_testing_remove(other);
}

// --- PostgreSQL only -----------------------------------------------------------------------------

static void one_database_has_one_writer(void **state) {
  vt_testing t;
  vt_store *second;
  if (!vt_testing_on_postgres()) skip();
  (void)state;
  vt_testing_open(&t, "");
  fails(vt_store_open(t.store, false, &second), VT_UNAVAILABLE);
  vt_testing_close(&t);
}

typedef struct race {
  const char *store;
  int attempts, to_lose;
  int64_t seen;
} race;

// Reads a counter, lets another writer add 100 to it, then adds 1 to what it read.
static vt_status lose(vt_cloud *cloud, void *context) {
  race *r = context;
  VT_TRY(vt_store_int(cloud->store, &r->seen, 0, "SELECT value FROM counters WHERE name = 'race'",
                      ""));
  if (r->attempts++ < r->to_lose) {
    PGconn *other = PQconnectdb(r->store);
    PGresult *result = PQexec(other, "UPDATE counters SET value = value + 100 WHERE name = 'race'");
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    PQfinish(other);
  }
  return vt_store_run(cloud->store, NULL, "UPDATE counters SET value = ? WHERE name = 'race'", "i",
                      r->seen + 1);
}

static void a_transaction_that_loses_runs_again(void **state) {
  vt_testing t;
  if (!vt_testing_on_postgres()) skip();
  (void)state;
  vt_testing_open(&t, "");
  must(vt_store_run(t.cloud->store, NULL, put, "si", "race", INT64_C(0)));
  race r = {.store = t.store, .to_lose = 3};
  must(vt_cloud_transact(t.cloud, lose, &r));
  assert_int_equal(r.attempts, 4);
  assert_int_equal(count(t.cloud->store, "SELECT value FROM counters WHERE name = 'race'"), 301);
  race hopeless = {.store = t.store, .to_lose = 1000};
  fails(vt_cloud_transact(t.cloud, lose, &hopeless), VT_UNAVAILABLE);
  assert_int_equal(hopeless.attempts, VT_CLOUD_ATTEMPTS);
  vt_testing_close(&t);
}

static void a_server_that_goes_away_comes_back(void **state) {
  vt_testing t;
  int status = 0;
  vt_store *none;
  char folder[] = "/tmp/vtpu-store-XXXXXX";
  if (!vt_testing_on_postgres()) skip();
  (void)state;
  assert_non_null(mkdtemp(folder));
  vt_testing_open(&t, folder);
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=a", NODE, 200));
  vt_testing_reconcile(&t);
  assert_int_equal(system(getenv("VTPU_TEST_STORE_STOP")), 0);
  for (int i = 0; i < 3; i++) {
    json_t *reply = vt_testing_call(&t, "GET", Z "/nodes/a", NULL, 503);
    assert_string_equal(vt_testing_text(reply, "error.status"), "UNAVAILABLE");
    json_decref(reply);
    json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=b", NODE, 503));
  }
  fails(vt_store_open(t.store, false, &none), VT_UNAVAILABLE);
  assert_int_equal(system(getenv("VTPU_TEST_STORE_START")), 0);
  for (int i = 0; i < 2400 && status != 200; i++) {
    struct timespec step = {.tv_nsec = 50000000};
    nanosleep(&step, NULL);
    json_decref(vt_testing_call_as(&t, t.token, "GET", Z "/nodes/a", NULL, &status));
  }
  assert_int_equal(status, 200);
  vt_testing_expect(&t, Z "/nodes/a", "state", "READY");
  json_decref(vt_testing_call(&t, "POST", Z "/nodes?nodeId=b", NODE, 200));
  // A server restart between two calls fails neither of them.
  assert_int_equal(system(getenv("VTPU_TEST_STORE_STOP")), 0);
  assert_int_equal(system(getenv("VTPU_TEST_STORE_START")), 0);
  vt_testing_reconcile(&t);
  vt_testing_expect(&t, Z "/nodes/b", "state", "READY");
  vt_testing_close(&t);
  vt_testing_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_and_errors),
      cmocka_unit_test(texts_are_ordered_by_bytes),
      cmocka_unit_test(text_that_is_not_utf8_is_an_answer),
      cmocka_unit_test(a_backup_restores_on_either_store),
      cmocka_unit_test(one_database_has_one_writer),
      cmocka_unit_test(a_transaction_that_loses_runs_again),
      cmocka_unit_test(a_server_that_goes_away_comes_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
