// SPDX-License-Identifier: Apache-2.0
// store_sqlite.c - the SQLite backend of store.h. Owns: the connection and its prepared statements.
// Statements are prepared once and cached by their text; one that is still being read is prepared a
// second time.
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/map.h"
#include "base/memory.h"
#include "cloud/store/store_backend.h"

typedef struct sqlite_store {
  vt_store base;
  sqlite3 *db;
  vt_map statements; // SQL text to sqlite_rows
  sqlite3_stmt *rollback;
} sqlite_store;

typedef struct sqlite_rows {
  vt_rows base;
  sqlite3_stmt *statement;
  bool busy, cached;
  int last; // of sqlite3_step
} sqlite_rows;

static vt_status store_error(sqlite_store *store, int rc, const char *what) {
  vt_code code = VT_INTERNAL;
  int primary = rc & 0xff;
  if (primary == SQLITE_CONSTRAINT) code = VT_ALREADY_EXISTS;
  if (primary == SQLITE_FULL || primary == SQLITE_BUSY || primary == SQLITE_IOERR ||
      primary == SQLITE_CANTOPEN || primary == SQLITE_READONLY)
    code = VT_UNAVAILABLE;
  if (primary == SQLITE_NOMEM) return vt_error_no_memory();
  if (primary == SQLITE_FULL)
    return vt_error(code, "the disk of the state folder is full; nothing was changed");
  return vt_error(code, "store: %s: %s", what, sqlite3_errmsg(store->db));
}

static vt_status run_plain(vt_store *base, const char *sql) {
  sqlite_store *store = (sqlite_store *)base;
  int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
  return rc == SQLITE_OK ? VT_OK : store_error(store, rc, sql);
}

static void sqlite_close(vt_store *base) {
  sqlite_store *store = (sqlite_store *)base;
  for (size_t i = 0; i < store->statements.size; i++) {
    sqlite_rows *rows = store->statements.entries[i].value;
    if (rows) sqlite3_finalize(rows->statement);
    free(rows);
  }
  vt_map_free(&store->statements);
  sqlite3_finalize(store->rollback);
  sqlite3_close(store->db);
  free(store);
}

// Prepares the rollback, too, which then needs no memory. Anew each time: an old one expires with a
// change of the schema.
static vt_status sqlite_begin(vt_store *base) {
  sqlite_store *store = (sqlite_store *)base;
  sqlite3_finalize(store->rollback);
  int rc = sqlite3_prepare_v2(store->db, "ROLLBACK", -1, &store->rollback, NULL);
  return rc == SQLITE_OK ? run_plain(base, "BEGIN IMMEDIATE") : store_error(store, rc, "ROLLBACK");
}

static vt_status sqlite_commit(vt_store *store) {
  return run_plain(store, "COMMIT");
}

static void sqlite_rollback(vt_store *store) {
  // Fails only when SQLite has already rolled back (full disk), which is what we want.
  sqlite3_step(((sqlite_store *)store)->rollback);
  sqlite3_reset(((sqlite_store *)store)->rollback);
}

typedef struct place {
  vt_map *map;
  const char *sql;
  void **slot;
} place;

static vt_status find_place(void *user) {
  place *p = user;
  p->slot = vt_map_at(p->map, p->sql, strlen(p->sql));
  return VT_OK;
}

static vt_status prepare(sqlite_store *store, const char *sql, sqlite_rows **out_rows) {
  place at = {&store->statements, sql, NULL};
  *out_rows = NULL;
  VT_TRY(vt_attempt_keep(find_place, &at));
  sqlite_rows *rows = *at.slot;
  if (rows && !rows->busy) {
    rows->busy = true;
    *out_rows = rows;
    return VT_OK;
  }
  bool cached = rows == NULL;
  rows = calloc(1, sizeof *rows);
  if (!rows) return vt_error_no_memory();
  rows->base.store = &store->base;
  int rc =
      sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &rows->statement, NULL);
  if (rc != SQLITE_OK) {
    free(rows);
    return store_error(store, rc, sql);
  }
  rows->busy = true;
  rows->cached = cached;
  if (cached) *at.slot = rows;
  *out_rows = rows;
  return VT_OK;
}

static void release(sqlite_rows *rows) {
  if (rows->cached) {
    sqlite3_reset(rows->statement);
    sqlite3_clear_bindings(rows->statement);
    rows->busy = false;
    return;
  }
  sqlite3_finalize(rows->statement);
  free(rows);
}

static vt_status sqlite_query(vt_store *base, const char *sql, const vt_value *values, int count,
                              vt_rows **out_rows) {
  sqlite_store *store = (sqlite_store *)base;
  sqlite_rows *rows;
  // SQLite rolls back by itself when the disk is full; later statements must not run outside the
  // transaction.
  if (base->in_transaction && sqlite3_get_autocommit(store->db))
    return vt_error(VT_UNAVAILABLE, "the disk of the state folder is full; nothing was changed");
  VT_TRY(prepare(store, sql, &rows));
  vt_assert(sqlite3_bind_parameter_count(rows->statement) == count);
  for (int i = 0; i < count; i++) {
    const vt_value *v = &values[i];
    int rc = v->type == 'i' ? sqlite3_bind_int64(rows->statement, i + 1, v->number)
             : v->text ? sqlite3_bind_text(rows->statement, i + 1, v->text, -1, SQLITE_TRANSIENT)
                       : sqlite3_bind_null(rows->statement, i + 1);
    if (rc != SQLITE_OK) {
      release(rows);
      return store_error(store, rc, sql);
    }
  }
  rows->last = SQLITE_ROW;
  *out_rows = &rows->base;
  return VT_OK;
}

static bool sqlite_next(vt_rows *base) {
  sqlite_rows *rows = (sqlite_rows *)base;
  if (rows->last != SQLITE_ROW) return false;
  rows->last = sqlite3_step(rows->statement);
  return rows->last == SQLITE_ROW;
}

static bool sqlite_is_null(const vt_rows *rows, int column) {
  return sqlite3_column_type(((const sqlite_rows *)rows)->statement, column) == SQLITE_NULL;
}

static int64_t sqlite_number(const vt_rows *rows, int column) {
  return sqlite3_column_int64(((const sqlite_rows *)rows)->statement, column);
}

static const char *sqlite_text(const vt_rows *rows, int column) {
  sqlite3_stmt *statement = ((const sqlite_rows *)rows)->statement;
  const char *text = (const char *)sqlite3_column_text(statement, column);
  if (!text && sqlite3_errcode(sqlite3_db_handle(statement)) == SQLITE_NOMEM)
    vt_memory_out(0, "a column");
  return text ? text : "";
}

static vt_status sqlite_end(vt_rows *base, int64_t *out_changed) {
  sqlite_rows *rows = (sqlite_rows *)base;
  sqlite_store *store = (sqlite_store *)base->store;
  vt_status st = VT_OK;
  if (rows->last != SQLITE_ROW && rows->last != SQLITE_DONE)
    st = store_error(store, rows->last, sqlite3_sql(rows->statement));
  if (out_changed) *out_changed = st ? 0 : sqlite3_changes64(store->db);
  release(rows);
  return st;
}

static int copy_database(sqlite3 *to, sqlite3 *from) {
  sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
  if (!backup) return sqlite3_errcode(to);
  sqlite3_backup_step(backup, -1);
  return sqlite3_backup_finish(backup);
}

static vt_status sqlite_backup(vt_store *store, const char *path) {
  sqlite3 *copy = NULL;
  vt_status st = VT_OK;
  int rc = sqlite3_open(path, &copy);
  if (rc == SQLITE_OK) rc = copy_database(copy, ((sqlite_store *)store)->db);
  if (rc != SQLITE_OK) st = vt_error(VT_UNAVAILABLE, "%s: %s", path, sqlite3_errmsg(copy));
  sqlite3_close(copy);
  return st;
}

static const vt_backend sqlite_backend = {
    sqlite_close,
    sqlite_begin,
    sqlite_commit,
    sqlite_rollback,
    run_plain,
    sqlite_query,
    sqlite_next,
    sqlite_is_null,
    sqlite_number,
    sqlite_text,
    sqlite_end,
    sqlite_backup,
    "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"};

vt_status vt_store_sqlite_open(const char *path, bool durable, vt_store **out_store) {
  vt_status st = VT_OK;
  *out_store = NULL;
  sqlite_store *store = calloc(1, sizeof *store);
  if (!store) return vt_error_no_memory();
  store->base.backend = &sqlite_backend;
  int rc = sqlite3_open(*path ? path : ":memory:", &store->db);
  if (rc != SQLITE_OK) {
    st = store_error(store, rc, path);
    goto out;
  }
  sqlite3_extended_result_codes(store->db, 1);
  sqlite3_busy_timeout(store->db, 5000);
  VT_TRY_OUT(run_plain(&store->base, "PRAGMA journal_mode=WAL"));
  VT_TRY_OUT(
      run_plain(&store->base, durable ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL"));
  VT_TRY_OUT(run_plain(&store->base, "PRAGMA cache_size=-32768"));
  *out_store = &store->base;
  return VT_OK;
out:
  sqlite_close(&store->base);
  return st;
}

vt_status vt_store_sqlite_copy(vt_store *store, vt_store **out_copy) {
  VT_TRY(vt_store_sqlite_open("", false, out_copy));
  sqlite_store *copy = (sqlite_store *)*out_copy;
  int rc = copy_database(copy->db, ((sqlite_store *)store)->db);
  if (rc == SQLITE_OK) return VT_OK;
  vt_status st = store_error(copy, rc, "copy");
  sqlite_close(*out_copy);
  *out_copy = NULL;
  return st;
}
