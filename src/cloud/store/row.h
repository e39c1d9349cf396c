// SPDX-License-Identifier: Apache-2.0
// row.h - rows of the tables of store_tables.def as structs: vt_nodes_row is a row of `nodes`, with
// one field per column.
//
// The texts of a row that was read are in the reader's arena. A NULL text is stored as "", a NULL
// OPTIONAL as SQL NULL.
#ifndef VT_CLOUD_ROW_H
#define VT_CLOUD_ROW_H

#include <stddef.h>

#include "base/arena.h"
#include "cloud/store/store.h"
#include "cloud/store/store_tables.def"

typedef enum vt_column_kind {
  VT_COLUMN_INTEGER,
  VT_COLUMN_TEXT,
  VT_COLUMN_FLAG,
  VT_COLUMN_OPTIONAL,
  VT_COLUMN_VERSION
} vt_column_kind;

typedef struct vt_column {
  const char *name;
  vt_column_kind kind;
  bool key;
  size_t offset; // of its field
} vt_column;

typedef struct vt_table {
  const char *name, *constraints; // ", UNIQUE (...)" after the columns
  const vt_column *(*columns)(size_t *out_count);
} vt_table;

// The fields of a row.
#define VT_FIELD_INTEGER                int64_t
#define VT_FIELD_TEXT                   const char *
#define VT_FIELD_FLAG                   bool
#define VT_FIELD_OPTIONAL               const char *
#define VT_FIELD_VERSION                int64_t
#define VT_FIELD_AS(kind, column, name) VT_FIELD_##kind name;
#define VT_FIELD(kind, column)          VT_FIELD_##kind column;

#define VT_DECLARE_ROW(table, constraints)                                                         \
  typedef struct vt_##table##_row {                                                                \
    VT_TABLE_##table(VT_FIELD, VT_FIELD, VT_FIELD_AS)                                              \
  } vt_##table##_row;                                                                              \
  extern const vt_table vt_table_##table;
VT_TABLES(VT_DECLARE_ROW)
#undef VT_DECLARE_ROW

// The members of a struct that embeds a row's columns: each can be used directly, and `row` is all
// of them.
#define VT_ROW_MEMBERS(table)                                                                      \
  union {                                                                                          \
    vt_##table##_row row;                                                                          \
    struct {                                                                                       \
      VT_TABLE_##table(VT_FIELD, VT_FIELD, VT_FIELD_AS)                                            \
    };                                                                                             \
  }

extern const vt_table *const vt_tables[]; // in order, NULL-terminated

// Selects all columns of the rows that match `rest` ("WHERE uid = ?"); read each with vt_row_read.
vt_status vt_row_select(vt_store *store, vt_rows **out_rows, const vt_table *table,
                        const char *rest, const char *types, ...) VT_CHECKED;
// The current row of such a query.
void vt_row_read(const vt_rows *rows, const vt_table *table, vt_arena *arena, void *out_row);
// The first row that matches `rest`; *out_found is false when there is none.
vt_status vt_row_load(vt_store *store, vt_arena *arena, const vt_table *table, void *out_row,
                      bool *out_found, const char *rest, const char *types, ...) VT_CHECKED;

typedef enum vt_row_write {
  VT_ROW_INSERT, // ALREADY_EXISTS when there is one with that key
  VT_ROW_ADD,    // does nothing then
  VT_ROW_PUT,    // replaces that one
  VT_ROW_UPDATE  // the row with that key and, if the table has one, that version
} vt_row_write;
vt_status vt_row_do(vt_store *store, vt_row_write how, const vt_table *table, const void *row,
                    int64_t *out_changed) VT_CHECKED;

// vt_row_insert(store, nodes, &row): the compiler checks that `row` is a row of that table.
#define VT_ROW_DO(store, how, table, row, out_changed)                                             \
  vt_row_do(store, how, &vt_table_##table, (const vt_##table##_row *){row}, out_changed)
#define vt_row_insert(store, table, row) VT_ROW_DO(store, VT_ROW_INSERT, table, row, NULL)
#define vt_row_add(store, table, row)    VT_ROW_DO(store, VT_ROW_ADD, table, row, NULL)
#define vt_row_put(store, table, row)    VT_ROW_DO(store, VT_ROW_PUT, table, row, NULL)
#define vt_row_update(store, table, row, out_changed)                                              \
  VT_ROW_DO(store, VT_ROW_UPDATE, table, row, out_changed)

#endif
