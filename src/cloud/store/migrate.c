// SPDX-License-Identifier: Apache-2.0
// migrate.c - see migrate.h.
#include "cloud/store/migrate.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "cloud/store/row.h"
#include "cloud/store/store_backend.h"

#define CREATE_VERSION "CREATE TABLE schema_version (version BIGINT NOT NULL)"

const vt_migration vt_migrations[] = {
#define MIGRATION(version, sql) {version, sql},
#include "cloud/store/migrations.def"
#undef MIGRATION
};
const int vt_migration_count = sizeof vt_migrations / sizeof *vt_migrations;

static const char *const index_sql[] = {
#define INDEX(name, on) "CREATE INDEX " #name " ON " on,
    VT_INDEXES(INDEX)
#undef INDEX
};

static vt_status has_table(vt_store *store, const char *name, bool *out_has) {
  int64_t count;
  VT_TRY(vt_store_int(store, &count, 0, store->backend->count_tables, "s", name));
  *out_has = count > 0;
  return VT_OK;
}

vt_status vt_schema_version(vt_store *store, int64_t *out_version) {
  bool numbered, used;
  VT_TRY(has_table(store, "schema_version", &numbered));
  VT_TRY(has_table(store, "counters", &used));
  *out_version = used ? 0 : -1;
  if (!numbered) return VT_OK;
  return vt_store_int(store, out_version, *out_version, "SELECT version FROM schema_version", "");
}

static vt_status create_tables(vt_store *store) {
  for (int i = 0; vt_tables[i]; i++) {
    vt_text sql = {0};
    vt_table_create_sql(vt_tables[i], &sql);
    vt_status st = store->backend->plain(store, vt_text_string(&sql));
    vt_text_free(&sql);
    if (st) return st;
  }
  for (size_t i = 0; i < sizeof index_sql / sizeof *index_sql; i++)
    VT_TRY(store->backend->plain(store, index_sql[i]));
  return VT_OK;
}

// One statement at a time, as store.h requires.
static vt_status run_statements(vt_store *store, const char *sql) {
  vt_status st = VT_OK;
  while (!st && *sql) {
    const char *end = strstr(sql, "; ");
    size_t size = end ? (size_t)(end - sql) : strlen(sql);
    vt_text one = {0};
    vt_text_put_n(&one, sql, size);
    st = store->backend->plain(store, vt_text_string(&one));
    vt_text_free(&one);
    sql += size + (end ? 2 : 0);
  }
  return st;
}

// One transaction: migrates to the version after `from` and stores its number. `sql` NULL creates
// the newest schema.
static vt_status step(vt_store *store, int64_t from, int64_t to, const char *sql) {
  VT_TRY(vt_store_begin(store));
  vt_status st = sql ? run_statements(store, sql) : create_tables(store);
  if (!st && from <= 0) {
    st = store->backend->plain(store, CREATE_VERSION);
    if (!st)
      st = vt_store_run(store, NULL, "INSERT INTO schema_version (version) VALUES (?)", "i", to);
  } else if (!st) {
    st = vt_store_run(store, NULL, "UPDATE schema_version SET version = ?", "i", to);
  }
  if (!st) return vt_store_commit(store);
  vt_store_rollback(store);
  return st;
}

vt_status vt_schema_migrate(vt_store *store, const vt_migration *migrations, int count) {
  int64_t version, newest = migrations[count - 1].version;
  VT_TRY(vt_schema_version(store, &version));
  if (version < 0) return step(store, version, newest, NULL);
  if (version > newest)
    return vt_error(VT_FAILED_PRECONDITION,
                    "the database has form %lld and this vtpud knows forms up to %lld: start the "
                    "vtpud that wrote it or a newer one, or restore a backup of before "
                    "(--restore) into an empty state folder",
                    (long long)version, (long long)newest);
  for (int i = 0; i < count; i++) {
    if (migrations[i].version <= version) continue;
    VT_TRY(vt_status_wrap(step(store, version, migrations[i].version, migrations[i].sql),
                          "the database stays at form %lld; bringing it to form %d failed",
                          (long long)version, migrations[i].version));
    version = migrations[i].version;
    vt_log(VT_LOG_INFO, "the database was brought to form %lld", (long long)version);
  }
  return VT_OK;
}
