// SPDX-License-Identifier: Apache-2.0
// migrate.h - a database has a schema version, in its table schema_version. An older database is
// brought to the newest version by the rows of migrations.def, each in one transaction together
// with its version number: an interrupted migration leaves the previous version intact.
#ifndef VT_CLOUD_MIGRATE_H
#define VT_CLOUD_MIGRATE_H

#include "cloud/store/store.h"

typedef struct vt_migration {
  int version;
  const char *sql;
} vt_migration;
extern const vt_migration vt_migrations[];
extern const int vt_migration_count;

// The schema version of a database: 0 has no number, -1 is empty.
vt_status vt_schema_version(vt_store *store, int64_t *out_version) VT_CHECKED;
// Creates the tables of an empty database, or migrates an older one to the newest version. errors
// FAILED_PRECONDITION: its version is unknown to the migrations.
vt_status vt_schema_migrate(vt_store *store, const vt_migration *migrations, int count) VT_CHECKED;

#endif
