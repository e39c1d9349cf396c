// SPDX-License-Identifier: Apache-2.0
// migrate_test.c - a database of the last version without a number (form_0.sql) migrates to today's
// with all its rows; a newer one is refused; a migration that fails, or whose process is killed,
// leaves the previous version.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cloud/store/migrate.h"
#include "cloud/store/row.h"
#include "cloud/store/store_backend.h"

#define Z         "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define ADA       "vta.1c4a08214e1c682f537303702840262e1e14a087233b36a09652c369e1f52588"
#define ADA_FIRST "e13e3e49dde56525" // her token that this one was derived from

static void must(vt_status st) {
  if (st) fail_msg("%s", vt_status_message(st));
}

static void open_bare(const char *place, vt_store **out_store) {
  if (vt_testing_on_postgres() && strstr(place, "://"))
    must(vt_store_postgres_open(place, out_store));
  else
    must(vt_store_sqlite_open(place, false, out_store));
}

// Runs the statements of form_0.sql in one transaction.
static void fill(const char *place) {
  vt_store *store;
  vt_bytes file;
  open_bare(place, &store);
  must(vt_file_map(FORM_0, &file));
  char *text = malloc(file.size + 1), *at = text;
  memcpy(text, file.data, file.size);
  text[file.size] = 0;
  vt_file_unmap(&file);
  must(vt_store_begin(store));
  for (char *end; (end = strstr(at, ";\n")); at = end + 2) {
    *end = 0;
    must(store->backend->plain(store, at));
  }
  must(vt_store_commit(store));
  free(text);
  vt_store_close(store);
}

static int64_t version_of(const char *place) {
  vt_store *store;
  int64_t version;
  open_bare(place, &store);
  must(vt_schema_version(store, &version));
  vt_store_close(store);
  return version;
}

static int64_t newest(void) {
  return vt_migrations[vt_migration_count - 1].version;
}

static void make_folder(char folder[], vt_testing *t) {
  assert_non_null(mkdtemp(folder));
  vt_testing_prepare(t, folder);
}

static int status_as_ada(vt_testing *t) {
  int status;
  json_decref(vt_testing_call_as(t, ADA, "GET", "/vtpu/v1/me/tokens", NULL, &status));
  return status;
}

static void look_at_tokens(vt_testing *t) {
  json_t *reply = vt_testing_call(t, "GET", "/vtpu/v1/accounts/ada@example.org/tokens", NULL, 200);
  assert_string_equal(vt_testing_text(reply, "tokens.0.origin"), "token");
  assert_string_equal(vt_testing_text(reply, "tokens.1.origin"), "account");
  json_decref(reply);
  assert_int_equal(status_as_ada(t), 200);
  // Revoking the parent token still revokes this one.
  json_decref(vt_testing_call(t, "DELETE", "/vtpu/v1/accounts/ada@example.org/tokens/" ADA_FIRST,
                              NULL, 200));
  assert_int_equal(status_as_ada(t), 401);
}

static void look_at_bill(vt_testing *t) {
  json_t *reply =
      vt_testing_call(t, "GET", "/vtpu/v1/projects/" TESTING_PROJECT "/bill", NULL, 200);
  assert_int_equal(json_array_size(json_object_get(reply, "lines")), 7);
  bool found = false;
  for (size_t i = 0; i < 7; i++) {
    const json_t *line = json_array_get(json_object_get(reply, "lines"), i);
    if (strcmp(vt_testing_text(line, "node"), "gone") != 0 ||
        strcmp(vt_testing_text(line, "kind"), "tpu") != 0)
      continue;
    assert_string_equal(vt_testing_text(line, "usd"), "0.001246667");
    found = true;
  }
  assert_true(found);
  json_decref(reply);
}

static void look_at_everything(vt_testing *t) {
  json_t *reply = vt_testing_call(t, "GET", Z "/nodes/keeps", NULL, 200);
  assert_string_equal(vt_testing_text(reply, "state"), "READY");
  assert_string_equal(vt_testing_text(reply, "labels.team"), "a");
  assert_string_equal(vt_testing_text(reply, "networkEndpoints.0.ipAddress"), "10.168.0.3");
  json_decref(reply);
  vt_testing_expect(t, Z "/queuedResources/waits", "state.state", "ACTIVE");
  reply = vt_testing_call(t, "GET", "/vtpu/v1/grants", NULL, 200);
  assert_string_equal(vt_testing_text(reply, "grants.0.state"), "APPROVED");
  assert_string_equal(vt_testing_text(reply, "grants.0.purpose"), "a survey of schedules");
  json_decref(reply);
  reply = vt_testing_call(
      t, "GET", "/v1/projects/" TESTING_PROJECT "/locations/global/quotaPreferences", NULL, 200);
  assert_string_equal(vt_testing_text(reply, "quotaPreferences.0.quotaConfig.grantedValue"), "64");
  json_decref(reply);
  reply = vt_testing_call(t, "GET",
                          "/compute/v1/projects/" TESTING_PROJECT "/zones/us-central2-b/disks/data",
                          NULL, 200);
  assert_string_equal(vt_testing_text(reply, "sizeGb"), "10");
  json_decref(reply);
  look_at_bill(t);
  look_at_tokens(t);
  // The migrated database stays usable.
  json_decref(vt_testing_call(t, "DELETE", Z "/nodes/keeps", NULL, 200));
  vt_testing_reconcile(t);
  json_decref(vt_testing_call(t, "GET", Z "/nodes/keeps", NULL, 404));
}

// It has the columns that today's statements name, and no others.
static void has_the_newest_form(vt_store *store) {
  int64_t count;
  for (int i = 0; vt_tables[i]; i++) {
    vt_rows *rows;
    must(vt_row_select(store, &rows, vt_tables[i], "LIMIT 0", ""));
    assert_false(vt_rows_next(rows));
    must(vt_rows_end(rows));
  }
  must(vt_store_int(store, &count, -1, store->backend->count_tables, "s", "token_origins"));
  assert_int_equal(count, 0);
}

static void a_database_without_a_number_is_migrated(void **state) {
  vt_testing t;
  char folder[] = "/tmp/vtpu-migrate-XXXXXX";
  (void)state;
  make_folder(folder, &t);
  fill(t.store);
  assert_int_equal(version_of(t.store), 0);
  vt_testing_open(&t, folder);
  has_the_newest_form(t.cloud->store);
  look_at_everything(&t);
  vt_testing_close(&t);
  assert_int_equal(version_of(t.store), newest());
  vt_testing_open(&t, folder); // nothing is done twice
  vt_testing_close(&t);
  vt_testing_remove(folder);
}

static void a_new_database_has_the_newest_form(void **state) {
  vt_testing t;
  char folder[] = "/tmp/vtpu-migrate-XXXXXX";
  (void)state;
  make_folder(folder, &t);
  assert_int_equal(version_of(t.store), -1);
  vt_testing_open(&t, folder);
  has_the_newest_form(t.cloud->store);
  vt_testing_close(&t);
  assert_int_equal(version_of(t.store), newest());
  vt_testing_remove(folder);
}

static void a_newer_form_is_refused(void **state) {
  vt_testing t;
  vt_store *store;
  char folder[] = "/tmp/vtpu-migrate-XXXXXX", want[80];
  (void)state;
  make_folder(folder, &t);
  must(vt_store_open(t.store, false, &store));
  must(vt_store_run(store, NULL, "UPDATE schema_version SET version = 99", ""));
  vt_store_close(store);
  vt_status st = vt_store_open(t.store, false, &store);
  assert_int_equal(vt_status_code(st), VT_FAILED_PRECONDITION);
  snprintf(want, sizeof want, "has form 99 and this vtpud knows forms up to %d", (int)newest());
  assert_non_null(strstr(vt_status_message(st), want));
  assert_non_null(strstr(vt_status_message(st), "--restore"));
  vt_status_free(st);
  assert_int_equal(version_of(t.store), 99);
  vt_testing_remove(folder);
}

static void a_migration_that_fails_leaves_the_form_before_it(void **state) {
  static const vt_migration wrong[] = {
      {1, ""},
      {2, "ALTER TABLE tokens ADD COLUMN origin TEXT; DROP TABLE token_origins; UPDATE nonsense"}};
  vt_testing t;
  vt_store *store;
  int64_t count;
  char folder[] = "/tmp/vtpu-migrate-XXXXXX";
  (void)state;
  make_folder(folder, &t);
  fill(t.store);
  open_bare(t.store, &store);
  vt_status st = vt_schema_migrate(store, wrong, 2);
  assert_non_null(strstr(vt_status_message(st), "stays at form 1"));
  vt_status_free(st);
  must(vt_store_int(store, &count, 0, "SELECT COUNT(*) FROM token_origins", ""));
  assert_int_equal(count, 3);
  vt_store_close(store);
  assert_int_equal(version_of(t.store), 1);
  vt_testing_open(&t, folder);
  look_at_everything(&t);
  vt_testing_close(&t);
  vt_testing_remove(folder);
}

// --- killed --------------------------------------------------------------------------------------

static int steps_left;

static void count_down(void *context, int stage) {
  (void)context, (void)stage;
  if (steps_left-- == 0) _exit(9);
}

// Whether the migration was killed in call number `at` of its commit hook.
static bool killed_at(const char *place, int at) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    vt_store *store;
    steps_left = at;
    open_bare(place, &store);
    vt_store_on_commit(store, count_down, NULL);
    vt_status st = vt_schema_migrate(store, vt_migrations, vt_migration_count);
    _exit(st != VT_OK);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 9));
  return WEXITSTATUS(status) == 9;
}

static void a_migration_that_is_killed_goes_on(void **state) {
  bool killed = true;
  int at = 0;
  (void)state;
  for (; killed; at++) {
    vt_testing t;
    char folder[] = "/tmp/vtpu-migrate-XXXXXX";
    make_folder(folder, &t);
    fill(t.store);
    killed = killed_at(t.store, at);
    // Before a step's commit the database has the previous version, after it the step's version.
    assert_int_equal(version_of(t.store), (at + 1) / 2 < newest() ? (at + 1) / 2 : newest());
    vt_testing_open(&t, folder);
    look_at_everything(&t);
    vt_testing_close(&t);
    vt_testing_remove(folder);
  }
  assert_int_equal(at - 1, 2 * newest()); // each of its commits was killed once
}

static void a_backup_of_an_older_form_restores(void **state) {
  vt_testing t;
  vt_store *store;
  char folder[] = "/tmp/vtpu-migrate-XXXXXX", other[] = "/tmp/vtpu-migrate-XXXXXX", backup[64];
  (void)state;
  assert_non_null(mkdtemp(other));
  snprintf(backup, sizeof backup, "%s/backup.db", other);
  fill(backup);
  make_folder(folder, &t);
  must(vt_store_open(t.store, false, &store));
  must(vt_store_restore(store, backup));
  vt_store_close(store);
  assert_int_equal(version_of(backup), 0); // the file is unchanged
  vt_testing_open(&t, folder);
  look_at_everything(&t);
  vt_testing_close(&t);
  vt_testing_remove(folder);
  vt_testing_remove(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_database_without_a_number_is_migrated),
      cmocka_unit_test(a_new_database_has_the_newest_form),
      cmocka_unit_test(a_newer_form_is_refused),
      cmocka_unit_test(a_migration_that_fails_leaves_the_form_before_it),
      cmocka_unit_test(a_migration_that_is_killed_goes_on),
      cmocka_unit_test(a_backup_of_an_older_form_restores),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
