// SPDX-License-Identifier: Apache-2.0
// migrate.h - the form of a database has a number, in its table schema_version. A database of an
// older form is brought to the newest one by the rows of migrations.def, each in a transaction with
// the number that it leads to: what interrupts one leaves the form before it, whole.
#ifndef VT_CLOUD_MIGRATE_H
#define VT_CLOUD_MIGRATE_H

#include "cloud/store/store.h"

typedef struct vt_migration {
  int version;
  const char *sql;
} vt_migration;
extern const vt_migration vt_migrations[];
extern const int vt_migration_count;

// The form of a database: 0 has no number, -1 is empty.
vt_status vt_schema_version(vt_store *store, int64_t *out_version) VT_CHECKED;
// Makes the tables of an empty database, and of an older one the form of the last migration.
// errors FAILED_PRECONDITION: it has a form that the migrations do not know.
vt_status vt_schema_migrate(vt_store *store, const vt_migration *migrations, int count) VT_CHECKED;

#endif
