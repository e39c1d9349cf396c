// SPDX-License-Identifier: Apache-2.0
// store.c - the part of store.h that SQLite and PostgreSQL share: which one a place means, the
// tables, transactions, arguments, and copies between stores.
#include "cloud/store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cloud/store/store_backend.h"

static const char *const table_sql[] = {
#define TABLE(name, columns) "CREATE TABLE IF NOT EXISTS " #name " (" columns ")",
#define INDEX(name, on)      "CREATE INDEX IF NOT EXISTS " #name " ON " on,
#include "cloud/store/store_tables.def"
#undef TABLE
#undef INDEX
};

static const struct table {
  const char *name, *columns;
} tables[] = {
#define TABLE(name, columns) {#name, columns},
#define INDEX(name, on)
#include "cloud/store/store_tables.def"
#undef TABLE
#undef INDEX
};
enum { table_count = sizeof tables / sizeof *tables };

static bool is_url(const char *place) {
  return strncmp(place, "postgresql://", 13) == 0 || strncmp(place, "postgres://", 11) == 0;
}

vt_status vt_store_open(const char *place, bool durable, vt_store **out_store) {
  vt_store *store;
  *out_store = NULL;
  if (is_url(place))
    VT_TRY(vt_store_postgres_open(place, &store));
  else
    VT_TRY(vt_store_sqlite_open(place, durable, &store));
  vt_status st = vt_store_begin(store);
  for (size_t i = 0; !st && i < sizeof table_sql / sizeof *table_sql; i++)
    st = store->backend->plain(store, table_sql[i]);
  if (!st) st = vt_store_commit(store);
  if (st) {
    vt_store_close(store);
    return st;
  }
  *out_store = store;
  return VT_OK;
}

void vt_store_close(vt_store *store) {
  if (store) store->backend->close(store);
}

// --- transactions --------------------------------------------------------------------------------

vt_status vt_store_begin(vt_store *store) {
  assert(!store->in_transaction);
  store->conflicted = false;
  VT_TRY(store->backend->begin(store));
  store->in_transaction = true;
  return VT_OK;
}

vt_status vt_store_commit(vt_store *store) {
  assert(store->in_transaction);
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
  if (!store->in_transaction) return;
  store->backend->rollback(store);
  store->in_transaction = false;
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

static vt_status start(vt_store *store, const char *sql, const char *types, va_list args,
                       vt_rows **out_rows) {
  vt_value values[VT_STORE_MAX_VALUES] = {{0}};
  int count = (int)strlen(types);
  assert(count <= VT_STORE_MAX_VALUES);
  *out_rows = NULL;
  for (int i = 0; i < count; i++) {
    values[i].type = types[i];
    if (types[i] == 'i') {
      values[i].number = va_arg(args, int64_t);
    } else {
      assert(types[i] == 's');
      values[i].text = va_arg(args, const char *);
    }
  }
  return store->backend->query(store, sql, values, count, out_rows);
}

static vt_status finish(vt_rows *rows, int64_t *out_changed) {
  while (vt_rows_next(rows)) {
  }
  return rows->store->backend->end(rows, out_changed);
}

vt_status vt_store_run(vt_store *store, int64_t *out_changed, const char *sql, const char *types,
                       ...) {
  va_list args;
  vt_rows *rows;
  va_start(args, types);
  vt_status st = start(store, sql, types, args, &rows);
  va_end(args);
  if (out_changed) *out_changed = 0;
  return st ? st : finish(rows, out_changed);
}

vt_status vt_store_query(vt_store *store, vt_rows **out_rows, const char *sql, const char *types,
                         ...) {
  va_list args;
  va_start(args, types);
  vt_status st = start(store, sql, types, args, out_rows);
  va_end(args);
  return st;
}

vt_status vt_store_int(vt_store *store, int64_t *out_value, int64_t otherwise, const char *sql,
                       const char *types, ...) {
  va_list args;
  vt_rows *rows;
  va_start(args, types);
  vt_status st = start(store, sql, types, args, &rows);
  va_end(args);
  *out_value = otherwise;
  if (st) return st;
  if (vt_rows_next(rows) && !store->backend->is_null(rows, 0)) *out_value = vt_rows_int(rows, 0);
  return vt_rows_end(rows);
}

bool vt_rows_next(vt_rows *rows) {
  return rows->store->backend->next(rows);
}

int64_t vt_rows_int(const vt_rows *rows, int column) {
  return rows->store->backend->number(rows, column);
}

const char *vt_rows_text(const vt_rows *rows, int column) {
  return rows->store->backend->text(rows, column);
}

vt_status vt_rows_end(vt_rows *rows) {
  return rows ? rows->store->backend->end(rows, NULL) : VT_OK;
}

vt_status vt_rows_stop(vt_rows *rows, vt_status st) {
  vt_status end = vt_rows_end(rows);
  if (!st) return end;
  vt_status_free(end);
  return st;
}

// --- copies --------------------------------------------------------------------------------------

typedef struct columns {
  vt_text names, places;
  char types[VT_STORE_MAX_VALUES + 1];
  int count;
} columns;

// Reads the columns of a row of store_tables.def; keys are left out.
static void read_columns(const char *definition, columns *out) {
  for (const char *p = definition; *p;) {
    size_t name = strcspn(p, " "), end = 0;
    for (int depth = 0; p[end] && (depth || p[end] != ','); end++)
      depth += p[end] == '(' ? 1 : p[end] == ')' ? -1 : 0;
    bool key = strncmp(p, "PRIMARY ", 8) == 0 || strncmp(p, "UNIQUE ", 7) == 0;
    if (!key) {
      assert(out->count < VT_STORE_MAX_VALUES);
      out->types[out->count] = strncmp(p + name, " BIGINT", 7) == 0 ? 'i' : 's';
      if (out->count++) {
        vt_text_put(&out->names, ", ");
        vt_text_put(&out->places, ", ");
      }
      vt_text_put_n(&out->names, p, name);
      vt_text_put(&out->places, "?");
    }
    p += end;
    p += strspn(p, ", ");
  }
}

static vt_status copy_row(vt_store *to, const char *sql, const columns *c, const vt_rows *from) {
  vt_value values[VT_STORE_MAX_VALUES];
  vt_rows *rows;
  for (int i = 0; i < c->count; i++) {
    bool null = from->store->backend->is_null(from, i);
    values[i] = (vt_value){.type = c->types[i]};
    if (c->types[i] == 'i')
      values[i].number = vt_rows_int(from, i);
    else
      values[i].text = null ? NULL : vt_rows_text(from, i);
  }
  VT_TRY(to->backend->query(to, sql, values, c->count, &rows));
  return finish(rows, NULL);
}

static vt_status copy_table(vt_store *to, vt_store *from, const struct table *table) {
  columns c = {0};
  vt_text select = {0}, insert = {0};
  vt_rows *rows;
  read_columns(table->columns, &c);
  vt_text_printf(&select, "SELECT %s FROM %s", vt_text_string(&c.names), table->name);
  vt_text_printf(&insert, "INSERT INTO %s (%s) VALUES (%s)", table->name, vt_text_string(&c.names),
                 vt_text_string(&c.places));
  vt_status st = vt_store_query(from, &rows, vt_text_string(&select), "");
  if (!st) {
    while (!st && vt_rows_next(rows)) st = copy_row(to, vt_text_string(&insert), &c, rows);
    vt_status end = vt_rows_end(rows);
    if (!st)
      st = end;
    else
      vt_status_free(end);
  }
  vt_text_free(&select);
  vt_text_free(&insert);
  vt_text_free(&c.names);
  vt_text_free(&c.places);
  return vt_status_wrap(st, "table %s", table->name);
}

// One transaction on each side: what is read is one moment, what is written is all or nothing.
static vt_status copy_tables(vt_store *to, vt_store *from) {
  VT_TRY(vt_store_begin(from));
  vt_status st = vt_store_begin(to);
  for (int i = 0; !st && i < table_count; i++) st = copy_table(to, from, &tables[i]);
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

vt_status vt_store_restore(vt_store *store, const char *path) {
  vt_store *from;
  int64_t rows;
  if (access(path, R_OK) != 0) return vt_error(VT_NOT_FOUND, "%s: %s", path, strerror(errno));
  VT_TRY(vt_store_int(store, &rows, 0, "SELECT COUNT(*) FROM events", ""));
  if (rows)
    return vt_error(VT_FAILED_PRECONDITION,
                    "the store holds a cloud already (%lld events); restore into an empty one",
                    (long long)rows);
  VT_TRY(vt_store_open(path, true, &from));
  VT_TRY(vt_store_run(store, NULL, "DELETE FROM capacity", ""));
  vt_status st = copy_tables(store, from);
  vt_store_close(from);
  return st;
}
