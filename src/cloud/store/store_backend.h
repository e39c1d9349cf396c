// SPDX-License-Identifier: Apache-2.0
// store_backend.h - what a database backend implements for store.h: store_sqlite.c and
// store_postgres.c. Transactions and arguments are in store.c, tables in row.c and migrate.c.
#ifndef VT_CLOUD_STORE_BACKEND_H
#define VT_CLOUD_STORE_BACKEND_H

#include "base/text.h"
#include "cloud/store/row.h"
#include "cloud/store/store.h"

enum { VT_STORE_MAX_VALUES = 48 };

typedef struct vt_value {
  char type;        // 's' or 'i'
  int64_t number;   // of an 'i'
  const char *text; // of an 's', NULL is SQL NULL
} vt_value;

typedef struct vt_backend {
  void (*close)(vt_store *store); // frees the store
  // Runs statements without placeholders and rows. `plain`: for definitions and settings.
  vt_status (*begin)(vt_store *store);
  vt_status (*commit)(vt_store *store);
  void (*rollback)(vt_store *store);
  vt_status (*plain)(vt_store *store, const char *sql);
  // Starts a statement with its values; the caller passes the rows to `end`.
  vt_status (*query)(vt_store *store, const char *sql, const vt_value *values, int count,
                     vt_rows **out_rows);
  bool (*next)(vt_rows *rows);
  bool (*is_null)(const vt_rows *rows, int column);
  int64_t (*number)(const vt_rows *rows, int column);
  const char *(*text)(const vt_rows *rows, int column); // NULL is ""
  // The error of the whole statement, and how many rows it changed (out_changed may be NULL).
  vt_status (*end)(vt_rows *rows, int64_t *out_changed);
  // A consistent copy in a new SQLite file; NULL: store.c copies the tables.
  vt_status (*backup)(vt_store *store, const char *path);
  const char *count_tables; // a query: the number of tables with a name
} vt_backend;

// The first member of each backend's own struct.
struct vt_store {
  const vt_backend *backend;
  bool in_transaction;
  bool conflicted; // the transaction conflicted with another writer
  void (*hook)(void *context, int stage);
  void *hook_context;
  vt_rows *open; // being read
};

struct vt_rows {
  vt_store *store;
  vt_rows *next; // of the store's open ones
};

// As vt_store_run, with the arguments as values.
vt_status vt_store_run_values(vt_store *store, int64_t *out_changed, const char *sql,
                              const vt_value *values, int count) VT_CHECKED;

// row.c: creates a table; copies all its rows from another store.
void vt_table_create_sql(const vt_table *table, vt_text *out_sql);
vt_status vt_table_copy(vt_store *to, vt_store *from, const vt_table *table) VT_CHECKED;

// Opens without creating tables. errors as vt_store_open.
vt_status vt_store_sqlite_open(const char *path, bool durable, vt_store **out_store) VT_CHECKED;
// The contents of a SQLite store, in memory.
vt_status vt_store_sqlite_copy(vt_store *store, vt_store **out_copy) VT_CHECKED;
vt_status vt_store_postgres_open(const char *url, vt_store **out_store) VT_CHECKED;

#endif
