// SPDX-License-Identifier: Apache-2.0
// store_postgres.c - the PostgreSQL backend of store.h, over libpq. Owns: the connection.
// In:  SQL with `?` placeholders, which become $1, $2 ... of declared types. Out: rows, statuses.
// One writer: the connection holds an advisory lock named after the schema; a daemon that cannot
// get it does not start. A lost connection is reopened by the next statement outside a transaction,
// at most once a second; until then every statement fails at once with UNAVAILABLE.
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/log.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/text.h"
#include "cloud/store/store_backend.h"

enum { OID_INT8 = 20, OID_TEXT = 25 };

// Detects a dead server in seconds, not hours; settings in the URL take precedence.
static const char *const keywords[] = {"connect_timeout",
                                       "keepalives_idle",
                                       "keepalives_interval",
                                       "keepalives_count",
                                       "tcp_user_timeout",
                                       "fallback_application_name",
                                       "dbname",
                                       NULL};
static const char *const defaults[] = {"3", "5", "2", "3", "5000", "vtpud"};

typedef struct statement {
  char name[24];
  vt_text sql;          // with $1, $2
  unsigned prepared_on; // the connection that prepared it
} statement;

typedef struct postgres_store {
  vt_store base;
  char *url;
  PGconn *connection;
  unsigned number;   // of the connection, from 1
  int64_t retry_ns;  // no reconnect before this
  char why[256];     // the connection was last lost
  vt_map statements; // SQL text to statement
} postgres_store;

typedef struct postgres_rows {
  vt_rows base;
  PGresult *result;
  int row;
} postgres_rows;

static int64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// --- errors --------------------------------------------------------------------------------------

// One line of libpq's message.
static vt_status say(vt_code code, const char *what, const char *message) {
  return vt_error(code, "store: %s: %.*s", what, (int)strcspn(message, "\n"), message);
}

static vt_status lost(postgres_store *store, const char *message) {
  if (*message)
    vt_log(VT_LOG_WARNING, "the database is away: %.*s", (int)strcspn(message, "\n"), message);
  snprintf(store->why, sizeof store->why, "%.*s", (int)strcspn(message, "\n"), message);
  PQfinish(store->connection);
  store->connection = NULL;
  return vt_error(VT_UNAVAILABLE, "the database does not answer; try again later");
}

static bool begins(const char *state, const char *class) {
  return strncmp(state, class, strlen(class)) == 0;
}

// Classifies by SQLSTATE, whose first two characters are the class.
static vt_status result_error(postgres_store *store, const PGresult *result, const char *what) {
  const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
  const char *message = result ? PQresultErrorMessage(result) : PQerrorMessage(store->connection);
  // An error without SQLSTATE comes from libpq: the connection broke. 57P0x: the server is closing
  // it.
  if (!state || begins(state, "57P0") || PQstatus(store->connection) != CONNECTION_OK)
    return lost(store, message);
  if (strcmp(state, "23505") == 0) return say(VT_ALREADY_EXISTS, what, message);
  if (strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0) {
    store->base.conflicted = true;
    return say(VT_UNAVAILABLE, what, message);
  }
  if (begins(state, "08") || begins(state, "57") || begins(state, "58") || begins(state, "55") ||
      strcmp(state, "25006") == 0)
    return say(VT_UNAVAILABLE, what, message);
  if (strcmp(state, "53100") == 0)
    return vt_error(VT_UNAVAILABLE, "the disk of the database is full; nothing was changed");
  if (begins(state, "53")) return say(VT_UNAVAILABLE, what, message);
  if (strcmp(state, "22021") == 0 || strcmp(state, "22P05") == 0)
    return vt_error(VT_INVALID_ARGUMENT, "a text of the request is not UTF-8");
  return say(VT_INTERNAL, what, message);
}

// --- the connection ------------------------------------------------------------------------------

static vt_status simple(postgres_store *store, const char *sql) {
  PGresult *result = PQexec(store->connection, sql);
  ExecStatusType got = PQresultStatus(result);
  vt_status st =
      got == PGRES_COMMAND_OK || got == PGRES_TUPLES_OK ? VT_OK : result_error(store, result, sql);
  PQclear(result);
  return st;
}

static void ignore_notice(void *context, const PGresult *result) {
  (void)context, (void)result; // "relation already exists, skipping", once per table at each start
}

// The lock of a killed daemon is free once the server has noticed; wait for that.
static vt_status become_writer(postgres_store *store) {
  VT_TRY(simple(store, "SET lock_timeout = '5s'"));
  vt_status st = simple(store, "SELECT pg_advisory_lock(hashtext('vtpud ' || current_schema()))");
  if (st && store->connection) {
    vt_status_free(st);
    return vt_error(VT_UNAVAILABLE,
                    "another vtpud uses this database (its advisory lock is taken); one database "
                    "has one daemon");
  }
  if (st) return st;
  return simple(store, "SET lock_timeout = 0");
}

static vt_status make_connection(postgres_store *store) {
  const char *values[sizeof keywords / sizeof *keywords] = {0};
  memcpy(values, defaults, sizeof defaults);
  values[sizeof defaults / sizeof *defaults] = store->url;
  store->connection = PQconnectdbParams(keywords, values, 1);
  if (!store->connection) return vt_error_no_memory();
  if (PQstatus(store->connection) != CONNECTION_OK)
    return lost(store, PQerrorMessage(store->connection));
  PQsetNoticeReceiver(store->connection, ignore_notice, NULL);
  store->number++;
  VT_TRY(simple(store, "SET client_encoding = 'UTF8'"));
  VT_TRY(simple(store, "SET default_transaction_isolation = 'serializable'"));
  return become_writer(store);
}

// The connection, reopened if it was lost.
static vt_status reach(postgres_store *store) {
  if (store->connection) return VT_OK;
  if (store->base.in_transaction || monotonic_ns() < store->retry_ns)
    return vt_error(VT_UNAVAILABLE, "the database does not answer; try again later");
  vt_status st = make_connection(store);
  if (!st) {
    vt_log(VT_LOG_WARNING, "the database is back");
    return VT_OK;
  }
  PQfinish(store->connection);
  store->connection = NULL;
  store->retry_ns = monotonic_ns() + 1000000000;
  return st;
}

static void postgres_close(vt_store *base) {
  postgres_store *store = (postgres_store *)base;
  for (size_t i = 0; i < store->statements.size; i++) {
    statement *s = store->statements.entries[i].value;
    if (s) vt_text_free(&s->sql);
    free(s);
  }
  vt_map_free(&store->statements);
  PQfinish(store->connection);
  free(store->url);
  free(store);
}

static vt_status postgres_begin(vt_store *base) {
  postgres_store *store = (postgres_store *)base;
  VT_TRY(reach(store));
  vt_status st = simple(store, "BEGIN");
  if (!st || store->connection) return st;
  // The connection broke while idle: retrying loses nothing.
  vt_status again = reach(store);
  if (again) {
    vt_status_free(again);
    return st;
  }
  vt_status_free(st);
  return simple(store, "BEGIN");
}

// PostgreSQL answers COMMIT of a failed transaction with ROLLBACK, not with an error.
static vt_status postgres_commit(vt_store *base) {
  postgres_store *store = (postgres_store *)base;
  if (!store->connection)
    return vt_error(VT_UNAVAILABLE, "the database does not answer; try again later");
  PGresult *result = PQexec(store->connection, "COMMIT");
  vt_status st = VT_OK;
  if (PQresultStatus(result) != PGRES_COMMAND_OK)
    st = result_error(store, result, "COMMIT");
  else if (strcmp(PQcmdStatus(result), "COMMIT") != 0)
    st = vt_error(VT_INTERNAL, "store: a transaction with an error in it was to be committed");
  PQclear(result);
  return st;
}

static void postgres_rollback(vt_store *base) {
  postgres_store *store = (postgres_store *)base;
  if (!store->connection || PQtransactionStatus(store->connection) == PQTRANS_IDLE) return;
  vt_status_free(simple(store, "ROLLBACK"));
}

// Text compares bytewise, as in SQLite, whatever the database's locale.
static vt_status postgres_plain(vt_store *base, const char *sql) {
  postgres_store *store = (postgres_store *)base;
  vt_text text = {0};
  VT_TRY(reach(store));
  for (const char *p = sql; *p;) {
    const char *type = strstr(p, " TEXT");
    size_t n = type ? (size_t)(type - p) + 5 : strlen(p);
    vt_text_put_n(&text, p, n);
    if (type) vt_text_put(&text, " COLLATE \"C\"");
    p += n;
  }
  vt_status st = simple(store, vt_text_string(&text));
  vt_text_free(&text);
  return st;
}

// --- statements ----------------------------------------------------------------------------------

static void number_places(const char *sql, vt_text *out) {
  int place = 0;
  bool quoted = false;
  for (const char *p = sql; *p; p++) {
    if (*p == '\'') quoted = !quoted;
    if (*p == '?' && !quoted)
      vt_text_printf(out, "$%d", ++place);
    else
      vt_text_put_n(out, p, 1);
  }
}

typedef struct place {
  postgres_store *store;
  const char *sql;
  statement *statement;
} place;

static vt_status find_statement(void *user) {
  place *p = user;
  vt_map *map = &p->store->statements;
  void **slot = vt_map_at(map, p->sql, strlen(p->sql));
  statement *s = p->statement = *slot;
  if (!s) {
    s = p->statement = *slot = calloc(1, sizeof *s);
    if (!s) return vt_error_no_memory();
    snprintf(s->name, sizeof s->name, "s%zu", map->size);
  }
  if (s->prepared_on == p->store->number) return VT_OK;
  s->sql.size = 0;
  number_places(p->sql, &s->sql);
  return VT_OK;
}

static vt_status prepare(postgres_store *store, const char *sql, const vt_value *values, int count,
                         const char **out_name) {
  place at = {store, sql, NULL};
  VT_TRY(vt_attempt_keep(find_statement, &at));
  statement *s = at.statement;
  *out_name = s->name;
  if (s->prepared_on == store->number) return VT_OK;
  Oid types[VT_STORE_MAX_VALUES];
  for (int i = 0; i < count; i++) types[i] = values[i].type == 'i' ? OID_INT8 : OID_TEXT;
  PGresult *result = PQprepare(store->connection, s->name, vt_text_string(&s->sql), count, types);
  vt_status st =
      PQresultStatus(result) == PGRES_COMMAND_OK ? VT_OK : result_error(store, result, sql);
  PQclear(result);
  if (!st) s->prepared_on = store->number;
  return st;
}

static vt_status execute(postgres_store *store, const char *sql, const vt_value *values, int count,
                         PGresult **out_result) {
  const char *name, *texts[VT_STORE_MAX_VALUES];
  char numbers[VT_STORE_MAX_VALUES][24];
  *out_result = NULL;
  VT_TRY(prepare(store, sql, values, count, &name));
  for (int i = 0; i < count; i++) {
    texts[i] = values[i].text;
    if (values[i].type != 'i') continue;
    snprintf(numbers[i], sizeof numbers[i], "%lld", (long long)values[i].number);
    texts[i] = numbers[i];
  }
  PGresult *result = PQexecPrepared(store->connection, name, count, texts, NULL, NULL, 0);
  ExecStatusType got = PQresultStatus(result);
  if (got == PGRES_COMMAND_OK || got == PGRES_TUPLES_OK) {
    *out_result = result;
    return VT_OK;
  }
  vt_status st = result_error(store, result, sql);
  PQclear(result);
  return st;
}

static vt_status postgres_query(vt_store *base, const char *sql, const vt_value *values, int count,
                                vt_rows **out_rows) {
  postgres_store *store = (postgres_store *)base;
  PGresult *result;
  VT_TRY(reach(store));
  vt_status st = execute(store, sql, values, count, &result);
  if (st && !store->connection && !base->in_transaction) {
    // As in begin; statements that change rows run in a transaction and never get here.
    vt_status again = reach(store);
    if (!again) {
      vt_status_free(st);
      st = execute(store, sql, values, count, &result);
    }
    vt_status_free(again);
  }
  if (st) return st;
  postgres_rows *rows = calloc(1, sizeof *rows);
  if (!rows) {
    PQclear(result);
    return vt_error_no_memory();
  }
  *rows = (postgres_rows){.base.store = base, .result = result, .row = -1};
  *out_rows = &rows->base;
  return VT_OK;
}

static bool postgres_next(vt_rows *base) {
  postgres_rows *rows = (postgres_rows *)base;
  if (rows->row + 1 >= PQntuples(rows->result)) return false;
  rows->row++;
  return true;
}

static bool postgres_is_null(const vt_rows *base, int column) {
  const postgres_rows *rows = (const postgres_rows *)base;
  return PQgetisnull(rows->result, rows->row, column);
}

static const char *postgres_text(const vt_rows *base, int column) {
  const postgres_rows *rows = (const postgres_rows *)base;
  return PQgetvalue(rows->result, rows->row, column); // "" for NULL
}

static int64_t postgres_number(const vt_rows *rows, int column) {
  return strtoll(postgres_text(rows, column), NULL, 10);
}

static vt_status postgres_end(vt_rows *base, int64_t *out_changed) {
  postgres_rows *rows = (postgres_rows *)base;
  if (out_changed) *out_changed = strtoll(PQcmdTuples(rows->result), NULL, 10);
  PQclear(rows->result);
  free(rows);
  return VT_OK;
}

static const vt_backend postgres_backend = {postgres_close,
                                            postgres_begin,
                                            postgres_commit,
                                            postgres_rollback,
                                            postgres_plain,
                                            postgres_query,
                                            postgres_next,
                                            postgres_is_null,
                                            postgres_number,
                                            postgres_text,
                                            postgres_end,
                                            NULL,
                                            "SELECT COUNT(*) FROM information_schema.tables WHERE "
                                            "table_schema = current_schema() AND table_name = ?"};

vt_status vt_store_postgres_open(const char *url, vt_store **out_store) {
  *out_store = NULL;
  postgres_store *store = calloc(1, sizeof *store);
  if (!store || !(store->url = strdup(url))) {
    free(store);
    return vt_error_no_memory();
  }
  store->base.backend = &postgres_backend;
  vt_status st = make_connection(store);
  if (!st) {
    *out_store = &store->base;
    return VT_OK;
  }
  if (!store->connection) { // clients must not learn where the database is; the operator may
    vt_status_free(st);
    st = vt_error(VT_UNAVAILABLE, "%s", store->why);
  }
  postgres_close(&store->base);
  return vt_status_wrap(st, "the database of --store");
}
