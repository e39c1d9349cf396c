// SPDX-License-Identifier: Apache-2.0
// store.h - the small SQL interface of the cloud: statements with `?` places, rows, one transaction
// at a time.
//
// SQL is the subset that SQLite and PostgreSQL share: TEXT and BIGINT columns, no server-side ids,
// no triggers; after an error inside a transaction nothing but a rollback is allowed. Arguments
// follow a type string, one letter a place: 's' const char * (NULL is SQL NULL), 'i' int64_t.
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

// `place` is a file for SQLite, "" for a private database in memory, or a URL
// `postgresql://user@host/database?...` of libpq. An empty database gets its tables, one of an
// older form is brought to the newest (migrate.h); FAILED_PRECONDITION: it has a newer form. A
// PostgreSQL database has one writer: a second one is refused with UNAVAILABLE.
//   durable  every commit reaches the disk before it returns; otherwise a killed process loses
//   nothing, a power cut may. On PostgreSQL its own settings decide.
vt_status vt_store_open(const char *place, bool durable, vt_store **out_store) VT_CHECKED;
void vt_store_close(vt_store *store); // accepts NULL

vt_status vt_store_begin(vt_store *store) VT_CHECKED;
vt_status vt_store_commit(vt_store *store) VT_CHECKED; // on an error the transaction is rolled back
void vt_store_rollback(vt_store *store);               // accepts "no transaction"
bool vt_store_in_transaction(const vt_store *store);
// Whether the last transaction failed only because somebody else wrote to the database meanwhile:
// it may be run again as it is. Never with SQLite, which has no such somebody.
bool vt_store_conflicted(const vt_store *store);
// Called before (stage 0) and after (stage 1) each commit; for crash sweeps. NULL removes.
void vt_store_on_commit(vt_store *store, void (*hook)(void *context, int stage), void *context);

// One statement that changes rows; *out_changed (may be NULL) is how many.
vt_status vt_store_run(vt_store *store, int64_t *out_changed, const char *sql, const char *types,
                       ...) VT_CHECKED;
// A query. Rows are read with vt_rows_next until it says false, then vt_rows_end gives the error,
// if any, and frees.
vt_status vt_store_query(vt_store *store, vt_rows **out_rows, const char *sql, const char *types,
                         ...) VT_CHECKED;
// The same for functions that pass their own arguments on.
vt_status vt_store_query_list(vt_store *store, vt_rows **out_rows, const char *sql,
                              const char *types, va_list args) VT_CHECKED;
// The first column of the first row, `otherwise` when there is none or it is NULL.
vt_status vt_store_int(vt_store *store, int64_t *out_value, int64_t otherwise, const char *sql,
                       const char *types, ...) VT_CHECKED;

bool vt_rows_next(vt_rows *rows);
int64_t vt_rows_int(const vt_rows *rows, int column); // NULL is 0
bool vt_rows_null(const vt_rows *rows, int column);
const char *vt_rows_text(const vt_rows *rows,
                         int column);            // NULL is "", valid until the next vt_rows_next
vt_status vt_rows_end(vt_rows *rows) VT_CHECKED; // accepts NULL
// As vt_rows_end, of a reader that has stopped with `st`: the first error of the two.
vt_status vt_rows_stop(vt_rows *rows, vt_status st) VT_CHECKED;

// A consistent copy of the database in a new SQLite file, whatever the store is, while the daemon
// runs. Outside a transaction. errors ALREADY_EXISTS the file is there.
vt_status vt_store_backup(vt_store *store, const char *path) VT_CHECKED;
// Fills an empty store from such a file. errors FAILED_PRECONDITION the store has rows.
vt_status vt_store_restore(vt_store *store, const char *path) VT_CHECKED;

#endif
