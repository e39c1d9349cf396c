// SPDX-License-Identifier: Apache-2.0
// row.c - see row.h. Statements are built from the names of store_tables.def; values are bound.
#include "base/check.h"
#include "cloud/store/row.h"

#include <stdarg.h>
#include <string.h>

#include "base/text.h"
#include "cloud/store/store_backend.h"

#define KEY(kind, column)      {#column, VT_COLUMN_##kind, true, offsetof(row, column)},
#define COLUMN(kind, column)   {#column, VT_COLUMN_##kind, false, offsetof(row, column)},
#define AS(kind, column, name) {#column, VT_COLUMN_##kind, false, offsetof(row, name)},
#define TABLE(table, constraints)                                                                  \
  static const vt_column *columns_of_##table(size_t *out_count) {                                  \
    typedef vt_##table##_row row;                                                                  \
    static const vt_column columns[] = {VT_TABLE_##table(KEY, COLUMN, AS)};                        \
    *out_count = sizeof columns / sizeof *columns;                                                 \
    return columns;                                                                                \
  }                                                                                                \
  const vt_table vt_table_##table = {#table, constraints, columns_of_##table};
VT_TABLES(TABLE)
#undef TABLE

const vt_table *const vt_tables[] = {
#define TABLE(table, constraints) &vt_table_##table,
    VT_TABLES(TABLE) NULL};

// --- statements ----------------------------------------------------------------------------------

typedef enum use { ALL, KEYS, OTHERS } use;

// "name<after>, name<after>": the columns for that use.
static void put_names(vt_text *sql, const vt_table *table, use which, const char *after,
                      const char *between) {
  size_t count;
  const vt_column *c = table->columns(&count);
  const char *separator = "";
  for (size_t i = 0; i < count; i++) {
    if (which != ALL && c[i].key != (which == KEYS)) continue;
    vt_text_printf(sql, "%s%s%s", separator, c[i].name, after);
    separator = between;
  }
}

void vt_table_create_sql(const vt_table *table, vt_text *out_sql) {
  size_t count;
  const vt_column *c = table->columns(&count);
  vt_text_printf(out_sql, "CREATE TABLE %s (", table->name);
  for (size_t i = 0; i < count; i++)
    vt_text_printf(out_sql, "%s %s%s, ", c[i].name,
                   c[i].kind == VT_COLUMN_TEXT || c[i].kind == VT_COLUMN_OPTIONAL ? "TEXT"
                                                                                  : "BIGINT",
                   c[i].kind == VT_COLUMN_OPTIONAL ? "" : " NOT NULL");
  vt_text_put(out_sql, "PRIMARY KEY (");
  put_names(out_sql, table, KEYS, "", ", ");
  vt_text_printf(out_sql, ")%s)", table->constraints);
}

static void put_insert(vt_text *sql, const vt_table *table, vt_row_write how) {
  size_t count;
  const vt_column *c = table->columns(&count);
  vt_text_printf(sql, "INSERT INTO %s (", table->name);
  put_names(sql, table, ALL, "", ", ");
  vt_text_put(sql, ") VALUES (");
  for (size_t i = 0; i < count; i++) vt_text_put(sql, i ? ", ?" : "?");
  vt_text_put(sql, ")");
  if (how == VT_ROW_ADD) vt_text_put(sql, " ON CONFLICT DO NOTHING");
  if (how != VT_ROW_PUT) return;
  vt_text_put(sql, " ON CONFLICT (");
  put_names(sql, table, KEYS, "", ", ");
  vt_text_put(sql, ") DO UPDATE SET ");
  for (size_t i = 0, n = 0; i < count; i++)
    if (!c[i].key) vt_text_printf(sql, "%s%s = excluded.%s", n++ ? ", " : "", c[i].name, c[i].name);
}

static void put_update(vt_text *sql, const vt_table *table) {
  size_t count;
  const vt_column *c = table->columns(&count);
  vt_text_printf(sql, "UPDATE %s SET ", table->name);
  for (size_t i = 0, n = 0; i < count; i++)
    if (!c[i].key)
      vt_text_printf(sql, "%s%s = %s%s", n++ ? ", " : "", c[i].name,
                     c[i].kind == VT_COLUMN_VERSION ? c[i].name : "?",
                     c[i].kind == VT_COLUMN_VERSION ? " + 1" : "");
  vt_text_put(sql, " WHERE ");
  put_names(sql, table, KEYS, " = ?", " AND ");
  for (size_t i = 0; i < count; i++)
    if (c[i].kind == VT_COLUMN_VERSION) vt_text_printf(sql, " AND %s = ?", c[i].name);
}

static vt_value value_of(const vt_column *c, const void *row) {
  const void *field = (const char *)row + c->offset;
  switch (c->kind) {
  case VT_COLUMN_INTEGER:
  case VT_COLUMN_VERSION:
    return (vt_value){.type = 'i', .number = *(const int64_t *)field};
  case VT_COLUMN_FLAG:
    return (vt_value){.type = 'i', .number = *(const bool *)field};
  case VT_COLUMN_TEXT:
  case VT_COLUMN_OPTIONAL:
    break;
  }
  const char *text = *(const char *const *)field;
  return (vt_value){.type = 's', .text = text || c->kind == VT_COLUMN_OPTIONAL ? text : ""};
}

vt_status vt_row_do(vt_store *store, vt_row_write how, const vt_table *table, const void *row,
                    int64_t *out_changed) {
  vt_assert(row);
  vt_value values[VT_STORE_MAX_VALUES];
  size_t count;
  int used = 0;
  vt_text sql = {0};
  const vt_column *c = table->columns(&count);
  vt_assert(count + 1 <= VT_STORE_MAX_VALUES);
  if (how != VT_ROW_UPDATE) {
    put_insert(&sql, table, how);
    for (size_t i = 0; i < count; i++) values[used++] = value_of(&c[i], row);
  } else {
    put_update(&sql, table);
    for (size_t i = 0; i < count; i++)
      if (!c[i].key && c[i].kind != VT_COLUMN_VERSION) values[used++] = value_of(&c[i], row);
    for (size_t i = 0; i < count; i++)
      if (c[i].key) values[used++] = value_of(&c[i], row);
    for (size_t i = 0; i < count; i++)
      if (c[i].kind == VT_COLUMN_VERSION) values[used++] = value_of(&c[i], row);
  }
  vt_assert(used > 0 && used <= (int)count + 1);
  vt_status st = vt_store_run_values(store, out_changed, vt_text_string(&sql), values, used);
  vt_text_free(&sql);
  return st;
}

static vt_status select_rows(vt_store *store, vt_rows **out_rows, const vt_table *table,
                             const char *rest, const char *types, va_list args) {
  vt_text sql = {0};
  vt_text_put(&sql, "SELECT ");
  put_names(&sql, table, ALL, "", ", ");
  vt_text_printf(&sql, " FROM %s %s", table->name, rest);
  vt_status st = vt_store_query_list(store, out_rows, vt_text_string(&sql), types, args);
  vt_text_free(&sql);
  return st;
}

vt_status vt_row_select(vt_store *store, vt_rows **out_rows, const vt_table *table,
                        const char *rest, const char *types, ...) {
  va_list args;
  va_start(args, types);
  vt_status st = select_rows(store, out_rows, table, rest, types, args);
  va_end(args);
  return st;
}

void vt_row_read(const vt_rows *rows, const vt_table *table, vt_arena *arena, void *out_row) {
  size_t count;
  const vt_column *c = table->columns(&count);
  for (size_t i = 0; i < count; i++) {
    void *field = (char *)out_row + c[i].offset;
    const char *text;
    switch (c[i].kind) {
    case VT_COLUMN_INTEGER:
    case VT_COLUMN_VERSION:
      *(int64_t *)field = vt_rows_int(rows, (int)i);
      break;
    case VT_COLUMN_FLAG:
      *(bool *)field = vt_rows_int(rows, (int)i) != 0;
      break;
    case VT_COLUMN_TEXT:
    case VT_COLUMN_OPTIONAL:
      text = vt_rows_text(rows, (int)i);
      *(const char **)field = c[i].kind == VT_COLUMN_OPTIONAL && vt_rows_null(rows, (int)i)
                                  ? NULL
                                  : vt_arena_copy(arena, text, strlen(text));
      break;
    }
  }
}

vt_status vt_row_load(vt_store *store, vt_arena *arena, const vt_table *table, void *out_row,
                      bool *out_found, const char *rest, const char *types, ...) {
  va_list args;
  vt_rows *rows;
  *out_found = false;
  va_start(args, types);
  vt_status st = select_rows(store, &rows, table, rest, types, args);
  va_end(args);
  if (st) return st;
  if ((*out_found = vt_rows_next(rows))) vt_row_read(rows, table, arena, out_row);
  return vt_rows_end(rows);
}

// --- copies --------------------------------------------------------------------------------------

vt_status vt_table_copy(vt_store *to, vt_store *from, const vt_table *table) {
  vt_arena arena = {0};
  vt_rows *rows;
  size_t count, size = 0;
  const vt_column *c = table->columns(&count);
  // A field extends at most to the offset of the next one.
  for (size_t i = 0; i < count; i++)
    if (c[i].offset + sizeof(int64_t) > size) size = c[i].offset + sizeof(int64_t);
  vt_status st = vt_row_select(from, &rows, table, "", "");
  if (st) return st;
  while (!st && vt_rows_next(rows)) {
    void *row = vt_arena_push(&arena, size);
    vt_row_read(rows, table, &arena, row);
    st = vt_row_do(to, VT_ROW_INSERT, table, row, NULL);
    vt_arena_reset(&arena);
  }
  st = vt_rows_stop(rows, st);
  vt_arena_free(&arena);
  return vt_status_wrap(st, "table %s", table->name);
}
