// SPDX-License-Identifier: Apache-2.0
// store.c - the part of store.h that SQLite and PostgreSQL share: choosing the backend,
// transactions, arguments, and copies between stores.
#include "base/check.h"
#include "cloud/store/store.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cloud/store/migrate.h"
#include "cloud/store/row.h"
#include "cloud/store/store_backend.h"

static bool is_url(const char *place) {
  return strncmp(place, "postgresql://", 13) == 0 || strncmp(place, "postgres://", 11) == 0;
}

static vt_status open_bare(const char *place, bool durable, vt_store **out_store) {
  return is_url(place) ? vt_store_postgres_open(place, out_store)
                       : vt_store_sqlite_open(place, durable, out_store);
}

vt_status vt_store_open(const char *place, bool durable, vt_store **out_store) {
  vt_store *store;
  *out_store = NULL;
  VT_TRY(open_bare(place, durable, &store));
  vt_status st = vt_schema_migrate(store, vt_migrations, vt_migration_count);
  if (st) {
    vt_store_close(store);
    return vt_status_wrap(st, "%s", is_url(place) ? "the database of --store" : place);
  }
  *out_store = store;
  return VT_OK;
}

void vt_store_close(vt_store *store) {
  if (store) store->backend->close(store);
}

// --- open rows -----------------------------------------------------------------------------------

static vt_status open_rows(vt_store *store, const char *sql, const vt_value *values, int count,
                           vt_rows **out_rows) {
  vt_assert(count >= 0 && count <= VT_STORE_MAX_VALUES);
  *out_rows = NULL;
  VT_TRY(store->backend->query(store, sql, values, count, out_rows));
  (*out_rows)->next = store->open;
  store->open = *out_rows;
  return VT_OK;
}

static vt_status end_rows(vt_rows *rows, int64_t *out_changed) {
  vt_rows **at = &rows->store->open;
  while (*at != rows) at = &(*at)->next;
  vt_assert(*at == rows);
  *at = rows->next;
  return rows->store->backend->end(rows, out_changed);
}

// --- transactions --------------------------------------------------------------------------------

vt_status vt_store_begin(vt_store *store) {
  vt_assert(!store->in_transaction);
  store->conflicted = false;
  VT_TRY(store->backend->begin(store));
  store->in_transaction = true;
  return VT_OK;
}

vt_status vt_store_commit(vt_store *store) {
  vt_assert(store->in_transaction);
  vt_assert(!store->open); // every query has ended
  if (store->hook) store->hook(store->hook_context, 0);
  vt_status st = store->backend->commit(store);
  if (st) {
    vt_store_rollback(store);
    return st;
  }
  store->in_transaction = false;
  if (store->hook) store->hook(store->hook_context, 1);
  return VT_OK;
}

void vt_store_rollback(vt_store *store) {
  vt_assert(store->backend);
  if (!store->in_transaction) return;
  store->backend->rollback(store);
  store->in_transaction = false;
}

void vt_store_abandon(vt_store *store) {
  while (store->open) vt_status_free(end_rows(store->open, NULL));
  vt_store_rollback(store);
}

bool vt_store_in_transaction(const vt_store *store) {
  return store->in_transaction;
}

bool vt_store_conflicted(const vt_store *store) {
  return store->conflicted;
}

void vt_store_on_commit(vt_store *store, void (*hook)(void *context, int stage), void *context) {
  store->hook = hook;
  store->hook_context = context;
}

// --- statements ----------------------------------------------------------------------------------

vt_status vt_store_query_list(vt_store *store, vt_rows **out_rows, const char *sql,
                              const char *types, va_list args) {
  vt_value values[VT_STORE_MAX_VALUES] = {{0}};
  int count = (int)strlen(types);
  vt_assert(count <= VT_STORE_MAX_VALUES);
  for (int i = 0; i < count; i++) {
    values[i].type = types[i];
    if (types[i] == 'i') {
      values[i].number = va_arg(args, int64_t);
    } else {
      vt_assert(types[i] == 's');
      values[i].text = va_arg(args, const char *);
    }
  }
  return open_rows(store, sql, values, count, out_rows);
}

static vt_status finish(vt_rows *rows, int64_t *out_changed) {
  while (vt_rows_next(rows)) {
  }
  return end_rows(rows, out_changed);
}

vt_status vt_store_run_values(vt_store *store, int64_t *out_changed, const char *sql,
                              const vt_value *values, int count) {
  vt_assert(count >= 0 && count <= VT_STORE_MAX_VALUES);
  vt_assert_each(i, count, values[i].type == 'i' || values[i].type == 's');
  vt_rows *rows;
  if (out_changed) *out_changed = 0;
  VT_TRY(open_rows(store, sql, values, count, &rows));
  return finish(rows, out_changed);
}

vt_status vt_store_run(vt_store *store, int64_t *out_changed, const char *sql, const char *types,
                       ...) {
  va_list args;
  vt_rows *rows;
  va_start(args, types);
  vt_status st = vt_store_query_list(store, &rows, sql, types, args);
  va_end(args);
  if (out_changed) *out_changed = 0;
  return st ? st : finish(rows, out_changed);
}

vt_status vt_store_query(vt_store *store, vt_rows **out_rows, const char *sql, const char *types,
                         ...) {
  va_list args;
  va_start(args, types);
  vt_status st = vt_store_query_list(store, out_rows, sql, types, args);
  va_end(args);
  return st;
}

vt_status vt_store_int(vt_store *store, int64_t *out_value, int64_t otherwise, const char *sql,
                       const char *types, ...) {
  va_list args;
  vt_rows *rows;
  va_start(args, types);
  vt_status st = vt_store_query_list(store, &rows, sql, types, args);
  va_end(args);
  *out_value = otherwise;
  if (st) return st;
  if (vt_rows_next(rows) && !store->backend->is_null(rows, 0)) *out_value = vt_rows_int(rows, 0);
  return vt_rows_end(rows);
}

bool vt_rows_next(vt_rows *rows) {
  vt_assert(rows && rows->store);
  return rows->store->backend->next(rows);
}

int64_t vt_rows_int(const vt_rows *rows, int column) {
  vt_assert(column >= 0 && column < VT_STORE_MAX_VALUES);
  return rows->store->backend->number(rows, column);
}

bool vt_rows_null(const vt_rows *rows, int column) {
  vt_assert(column >= 0 && column < VT_STORE_MAX_VALUES);
  return rows->store->backend->is_null(rows, column);
}

const char *vt_rows_text(const vt_rows *rows, int column) {
  vt_assert(column >= 0 && column < VT_STORE_MAX_VALUES);
  return rows->store->backend->text(rows, column);
}

vt_status vt_rows_end(vt_rows *rows) {
  return rows ? end_rows(rows, NULL) : VT_OK;
}

vt_status vt_rows_stop(vt_rows *rows, vt_status st) {
  vt_status end = vt_rows_end(rows);
  if (!st) return end;
  vt_status_free(end);
  return st;
}

// --- copies --------------------------------------------------------------------------------------

// One transaction on each side: reads see one snapshot, writes are all or nothing.
static vt_status copy_tables(vt_store *to, vt_store *from) {
  VT_TRY(vt_store_begin(from));
  vt_status st = vt_store_begin(to);
  for (int i = 0; !st && vt_tables[i]; i++) st = vt_table_copy(to, from, vt_tables[i]);
  vt_store_rollback(from);
  if (!st) return vt_store_commit(to);
  vt_store_rollback(to);
  return st;
}

vt_status vt_store_backup(vt_store *store, const char *path) {
  vt_store *copy;
  if (access(path, F_OK) == 0) return vt_error(VT_ALREADY_EXISTS, "%s is there already", path);
  if (store->backend->backup) return store->backend->backup(store, path);
  VT_TRY(vt_store_open(path, true, &copy));
  vt_status st = copy_tables(copy, store);
  vt_store_close(copy);
  if (st) unlink(path);
  return st;
}

// Restores a backup of any version that this vtpud knows, migrated to the newest; the file is not
// changed.
static vt_status open_backup(const char *path, vt_store **out_store) {
  int64_t version, newest = vt_migrations[vt_migration_count - 1].version;
  vt_store *file, *copy = NULL;
  *out_store = NULL;
  VT_TRY(vt_store_sqlite_open(path, true, &file));
  vt_status st = vt_schema_version(file, &version);
  if (!st && version < 0) st = vt_error(VT_INVALID_ARGUMENT, "it is no backup of a vtpud");
  if (!st && version == newest) {
    *out_store = file;
    return VT_OK;
  }
  if (!st) st = vt_store_sqlite_copy(file, &copy);
  if (!st) st = vt_schema_migrate(copy, vt_migrations, vt_migration_count);
  vt_store_close(file);
  if (st)
    vt_store_close(copy);
  else
    *out_store = copy;
  return vt_status_wrap(st, "%s", path);
}

vt_status vt_store_restore(vt_store *store, const char *path) {
  vt_store *from;
  int64_t rows;
  if (access(path, R_OK) != 0) return vt_error(VT_NOT_FOUND, "%s: %s", path, strerror(errno));
  VT_TRY(vt_store_int(store, &rows, 0, "SELECT COUNT(*) FROM events", ""));
  if (rows)
    return vt_error(VT_FAILED_PRECONDITION,
                    "the store holds a cloud already (%lld events); restore into an empty one",
                    (long long)rows);
  VT_TRY(open_backup(path, &from));
  vt_status st = vt_store_run(store, NULL, "DELETE FROM capacity", "");
  if (!st) st = copy_tables(store, from);
  vt_store_close(from);
  return st;
}
