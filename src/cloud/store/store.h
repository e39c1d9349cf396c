// SPDX-License-Identifier: Apache-2.0
// store.h - the small SQL interface of the cloud: statements with `?` placeholders, rows, one
// transaction at a time.
//
// SQL is the subset that SQLite and PostgreSQL share: TEXT and BIGINT columns, no server-side ids,
// no triggers. After an error inside a transaction only a rollback is allowed. Arguments follow a
// type string, one letter per placeholder: 's' const char * (NULL is SQL NULL), 'i' int64_t.
// errors   ALREADY_EXISTS unique key, UNAVAILABLE disk full, busy, or server away,
//          INVALID_ARGUMENT text that is not UTF-8 (PostgreSQL), INTERNAL anything else
// thread   one at a time (the cloud's lock)
#ifndef VT_CLOUD_STORE_H
#define VT_CLOUD_STORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct vt_store vt_store;
typedef struct vt_rows vt_rows;

// `place` is a file for SQLite, "" for a private in-memory database, or a libpq URL
// `postgresql://user@host/database?...`. An empty database gets its tables; an older one is
// migrated to the newest version (migrate.h); FAILED_PRECONDITION: it is newer. A PostgreSQL
// database has one writer: a second one is refused with UNAVAILABLE.
//   durable  every commit reaches the disk before it returns; otherwise a killed process loses
//            nothing, but a power cut may. On PostgreSQL its own settings decide.
vt_status vt_store_open(const char *place, bool durable, vt_store **out_store) VT_CHECKED;
void vt_store_close(vt_store *store); // accepts NULL

vt_status vt_store_begin(vt_store *store) VT_CHECKED;
vt_status vt_store_commit(vt_store *store) VT_CHECKED; // on an error the transaction is rolled back
void vt_store_rollback(vt_store *store);               // accepts being outside a transaction
// Ends what an attempt (base/memory.h) that ran out of memory has left: rows and a transaction.
void vt_store_abandon(vt_store *store);
bool vt_store_in_transaction(const vt_store *store);
// Whether the last transaction failed only because of a concurrent writer, so that it can be
// retried unchanged. Never with SQLite, which has no other writer.
bool vt_store_conflicted(const vt_store *store);
// A hook called before (stage 0) and after (stage 1) each commit, for crash tests. NULL removes it.
void vt_store_on_commit(vt_store *store, void (*hook)(void *context, int stage), void *context);

// Runs one statement that changes rows; *out_changed (may be NULL) is how many.
vt_status vt_store_run(vt_store *store, int64_t *out_changed, const char *sql, const char *types,
                       ...) VT_CHECKED;
// Runs a query. Read rows with vt_rows_next until it returns false; vt_rows_end then returns the
// error, if any, and frees.
vt_status vt_store_query(vt_store *store, vt_rows **out_rows, const char *sql, const char *types,
                         ...) VT_CHECKED;
// The same for functions that forward their own arguments.
vt_status vt_store_query_list(vt_store *store, vt_rows **out_rows, const char *sql,
                              const char *types, va_list args) VT_CHECKED;
// The first column of the first row, or `otherwise` when there is none or it is NULL.
vt_status vt_store_int(vt_store *store, int64_t *out_value, int64_t otherwise, const char *sql,
                       const char *types, ...) VT_CHECKED;

bool vt_rows_next(vt_rows *rows);
int64_t vt_rows_int(const vt_rows *rows, int column); // NULL is 0
bool vt_rows_null(const vt_rows *rows, int column);
const char *vt_rows_text(const vt_rows *rows,
                         int column);            // NULL is "", valid until the next vt_rows_next
vt_status vt_rows_end(vt_rows *rows) VT_CHECKED; // accepts NULL
// As vt_rows_end, for a reader that stopped with `st`: returns the first of the two errors.
vt_status vt_rows_stop(vt_rows *rows, vt_status st) VT_CHECKED;

// Makes a consistent copy of the database in a new SQLite file, whatever the store is, while the
// daemon runs. Outside a transaction. errors ALREADY_EXISTS the file exists.
vt_status vt_store_backup(vt_store *store, const char *path) VT_CHECKED;
// Fills an empty store from such a file. errors FAILED_PRECONDITION the store has rows.
vt_status vt_store_restore(vt_store *store, const char *path) VT_CHECKED;

#endif
