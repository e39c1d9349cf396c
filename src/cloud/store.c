// SPDX-License-Identifier: Apache-2.0
// store.c - the SQLite side of store.h.
// In:  SQL with `?` places. Out: rows, statuses. Owns: the connection and its prepared statements.
// Statements are prepared once and kept by their text; one that is still being read is prepared a
// second time.
#include "cloud/store.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"

struct vt_rows {
  vt_store *store;
  sqlite3_stmt *statement;
  bool busy, cached;
  int last; // of sqlite3_step
};

struct vt_store {
  sqlite3 *db;
  vt_map statements; // SQL text to vt_rows
  bool in_transaction;
  void (*hook)(void *context, int stage);
  void *hook_context;
};

static const char *const table_sql[] = {
#define TABLE(name, columns) "CREATE TABLE IF NOT EXISTS " #name " (" columns ")",
#define INDEX(name, on)      "CREATE INDEX IF NOT EXISTS " #name " ON " on,
#include "cloud/store_tables.def"
#undef TABLE
#undef INDEX
};

static vt_status store_error(vt_store *store, int rc, const char *what) {
  vt_code code = VT_INTERNAL;
  int primary = rc & 0xff;
  if (primary == SQLITE_CONSTRAINT) code = VT_ALREADY_EXISTS;
  if (primary == SQLITE_FULL || primary == SQLITE_BUSY || primary == SQLITE_IOERR)
    code = VT_UNAVAILABLE;
  if (primary == SQLITE_NOMEM) return vt_error_no_memory();
  return vt_error(code, "store: %s: %s", what, sqlite3_errmsg(store->db));
}

static vt_status run_plain(vt_store *store, const char *sql) {
  int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
  return rc == SQLITE_OK ? VT_OK : store_error(store, rc, sql);
}

vt_status vt_store_open(const char *path, bool durable, vt_store **out_store) {
  vt_status st = VT_OK;
  *out_store = NULL;
  vt_store *store = calloc(1, sizeof *store);
  if (!store) return vt_error_no_memory();
  int rc = sqlite3_open(*path ? path : ":memory:", &store->db);
  if (rc != SQLITE_OK) {
    st = store_error(store, rc, path);
    goto out;
  }
  sqlite3_extended_result_codes(store->db, 1);
  sqlite3_busy_timeout(store->db, 5000);
  VT_TRY_OUT(run_plain(store, "PRAGMA journal_mode=WAL"));
  VT_TRY_OUT(run_plain(store, durable ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL"));
  VT_TRY_OUT(run_plain(store, "PRAGMA cache_size=-32768"));
  VT_TRY_OUT(run_plain(store, "BEGIN IMMEDIATE"));
  for (size_t i = 0; i < sizeof table_sql / sizeof *table_sql; i++)
    VT_TRY_OUT(run_plain(store, table_sql[i]));
  VT_TRY_OUT(run_plain(store, "COMMIT"));
  *out_store = store;
  store = NULL;
out:
  vt_store_close(store);
  return st;
}

void vt_store_close(vt_store *store) {
  if (!store) return;
  for (size_t i = 0; i < store->statements.size; i++) {
    vt_rows *rows = store->statements.entries[i].value;
    sqlite3_finalize(rows->statement);
    free(rows);
  }
  vt_map_free(&store->statements);
  sqlite3_close(store->db);
  free(store);
}

vt_status vt_store_begin(vt_store *store) {
  assert(!store->in_transaction);
  VT_TRY(run_plain(store, "BEGIN IMMEDIATE"));
  store->in_transaction = true;
  return VT_OK;
}

vt_status vt_store_commit(vt_store *store) {
  assert(store->in_transaction);
  if (store->hook) store->hook(store->hook_context, 0);
  vt_status st = run_plain(store, "COMMIT");
  if (st) {
    vt_store_rollback(store);
    return st;
  }
  store->in_transaction = false;
  if (store->hook) store->hook(store->hook_context, 1);
  return VT_OK;
}

void vt_store_rollback(vt_store *store) {
  if (!store->in_transaction) return;
  // Fails only when SQLite has rolled back by itself (full disk), which is the wanted state.
  sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
  store->in_transaction = false;
}

bool vt_store_in_transaction(const vt_store *store) {
  return store->in_transaction;
}

void vt_store_on_commit(vt_store *store, void (*hook)(void *context, int stage), void *context) {
  store->hook = hook;
  store->hook_context = context;
}

static vt_status prepare(vt_store *store, const char *sql, vt_rows **out_rows) {
  void **slot = vt_map_at(&store->statements, sql, strlen(sql));
  vt_rows *rows = *slot;
  *out_rows = NULL;
  if (rows && !rows->busy) {
    rows->busy = true;
    *out_rows = rows;
    return VT_OK;
  }
  bool cached = rows == NULL;
  rows = calloc(1, sizeof *rows);
  if (!rows) return vt_error_no_memory();
  rows->store = store;
  int rc =
      sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &rows->statement, NULL);
  if (rc != SQLITE_OK) {
    free(rows);
    return store_error(store, rc, sql);
  }
  rows->busy = true;
  rows->cached = cached;
  if (cached) *slot = rows;
  *out_rows = rows;
  return VT_OK;
}

static void release(vt_rows *rows) {
  if (rows->cached) {
    sqlite3_reset(rows->statement);
    sqlite3_clear_bindings(rows->statement);
    rows->busy = false;
    return;
  }
  sqlite3_finalize(rows->statement);
  free(rows);
}

static vt_status bind(vt_store *store, const char *sql, const char *types, va_list args,
                      vt_rows **out_rows) {
  vt_rows *rows;
  VT_TRY(prepare(store, sql, &rows));
  assert((size_t)sqlite3_bind_parameter_count(rows->statement) == strlen(types));
  for (int i = 0; types[i]; i++) {
    int rc = SQLITE_OK;
    if (types[i] == 'i') {
      rc = sqlite3_bind_int64(rows->statement, i + 1, va_arg(args, int64_t));
    } else {
      assert(types[i] == 's');
      const char *text = va_arg(args, const char *);
      rc = text ? sqlite3_bind_text(rows->statement, i + 1, text, -1, SQLITE_TRANSIENT)
                : sqlite3_bind_null(rows->statement, i + 1);
    }
    if (rc != SQLITE_OK) {
      release(rows);
      return store_error(store, rc, sql);
    }
  }
  rows->last = SQLITE_ROW;
  *out_rows = rows;
  return VT_OK;
}

vt_status vt_store_run(vt_store *store, int64_t *out_changed, const char *sql, const char *types,
                       ...) {
  va_list args;
  va_start(args, types);
  vt_rows *rows;
  vt_status st = bind(store, sql, types, args, &rows);
  va_end(args);
  if (st) return st;
  int rc = sqlite3_step(rows->statement);
  if (rc != SQLITE_DONE && rc != SQLITE_ROW) st = store_error(store, rc, sql);
  if (out_changed) *out_changed = st ? 0 : sqlite3_changes64(store->db);
  release(rows);
  return st;
}

vt_status vt_store_query(vt_store *store, vt_rows **out_rows, const char *sql, const char *types,
                         ...) {
  va_list args;
  va_start(args, types);
  *out_rows = NULL;
  vt_status st = bind(store, sql, types, args, out_rows);
  va_end(args);
  return st;
}

vt_status vt_store_int(vt_store *store, int64_t *out_value, int64_t otherwise, const char *sql,
                       const char *types, ...) {
  va_list args;
  va_start(args, types);
  vt_rows *rows = NULL;
  vt_status st = bind(store, sql, types, args, &rows);
  va_end(args);
  *out_value = otherwise;
  if (st) return st;
  if (vt_rows_next(rows) && sqlite3_column_type(rows->statement, 0) != SQLITE_NULL)
    *out_value = vt_rows_int(rows, 0);
  return vt_rows_end(rows);
}

bool vt_rows_next(vt_rows *rows) {
  if (rows->last != SQLITE_ROW) return false;
  rows->last = sqlite3_step(rows->statement);
  return rows->last == SQLITE_ROW;
}

int64_t vt_rows_int(const vt_rows *rows, int column) {
  return sqlite3_column_int64(rows->statement, column);
}

const char *vt_rows_text(const vt_rows *rows, int column) {
  const char *text = (const char *)sqlite3_column_text(rows->statement, column);
  return text ? text : "";
}

vt_status vt_rows_end(vt_rows *rows) {
  if (!rows) return VT_OK;
  vt_status st = VT_OK;
  if (rows->last != SQLITE_ROW && rows->last != SQLITE_DONE)
    st = store_error(rows->store, rows->last, sqlite3_sql(rows->statement));
  release(rows);
  return st;
}

vt_status vt_store_backup(vt_store *store, const char *path) {
  sqlite3 *copy = NULL;
  vt_status st = VT_OK;
  int rc = sqlite3_open(path, &copy);
  if (rc == SQLITE_OK) {
    sqlite3_backup *backup = sqlite3_backup_init(copy, "main", store->db, "main");
    if (backup) sqlite3_backup_step(backup, -1);
    rc = backup ? sqlite3_backup_finish(backup) : sqlite3_errcode(copy);
  }
  if (rc != SQLITE_OK)
    st = vt_error(VT_UNAVAILABLE, "backup to %s: %s", path, sqlite3_errmsg(copy));
  sqlite3_close(copy);
  return st;
}
