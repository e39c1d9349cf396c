// SPDX-License-Identifier: Apache-2.0
// cloud_testing.h - a cloud inside the test's process: virtual time, calls without a socket. Its
// store is SQLite, or, where VTPU_TEST_STORE has the URL of a PostgreSQL server (see
// tests/cloud/with_postgres.sh), a schema of its own there. Failures end the test through cmocka.
#ifndef VT_CLOUD_TESTING_H
#define VT_CLOUD_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>

#include "cloud/store/cloud.h"

typedef struct vt_testing {
  vt_cloud *cloud;
  char *token; // of the administrator, owner of project "demo-project"
  char store[512], schema[64];
  bool keeps; // the store stays when the cloud is closed
} vt_testing;

#define TESTING_PROJECT "demo-project"

// `state_dir` "" is a store that ends with the cloud; what was kept for a folder is found again.
void vt_testing_open(vt_testing *t, const char *state_dir);
// On a clock of the test's in place of the virtual one.
void vt_testing_open_with_clock(vt_testing *t, const char *state_dir,
                                int64_t (*read_clock)(int clock_id));
void vt_testing_close(vt_testing *t);
// Removes a state folder and what was kept for it.
void vt_testing_remove(const char *state_dir);
// Says in t->store where the store of a state folder is, as vt_store_open takes it, and makes the
// empty place.
void vt_testing_prepare(vt_testing *t, const char *state_dir);
// Whether the tests run on PostgreSQL.
bool vt_testing_on_postgres(void);
// One call with `token` (NULL = nobody); the reply as JSON (NULL when it is not), *out_status its
// HTTP status.
json_t *vt_testing_call_as(vt_testing *t, const char *token, const char *method, const char *url,
                           const char *body, int *out_status);
// As the administrator; fails the test unless the status is `want`.
json_t *vt_testing_call(vt_testing *t, const char *method, const char *url, const char *body,
                        int want);
void vt_testing_reconcile(vt_testing *t);
void vt_testing_advance(vt_testing *t, int64_t seconds);
// The text at a path like "state" or "state.state" or "nodes.0.name"; "" when absent. Borrowed from
// `json`.
const char *vt_testing_text(const json_t *json, const char *path);
// Text of the path in the reply to a GET, compared.
void vt_testing_expect(vt_testing *t, const char *url, const char *path, const char *want);
// What the first worker of the node reads at a path of its metadata ("instance/name"); freed by the
// caller.
char *vt_testing_metadata(vt_testing *t, const char *node, const char *path);
// The HTTP status of the same.
int vt_testing_metadata_status(vt_testing *t, const char *node, const char *path);
// What the agent of a worker says: its report of chip use, with the HTTP status; and that it lives,
// in the boot `epoch`, and what ails it, with the reply, freed by the caller.
int vt_testing_report(vt_testing *t, const char *node, int worker, const char *text);
char *vt_testing_beat(vt_testing *t, const char *node, int worker, int epoch, const char *body);
// A node in us-central2-b, READY.
void vt_testing_create(vt_testing *t, const char *id, const char *type);
// A second account with its own token and no project; freed by the caller.
char *vt_testing_account(vt_testing *t, const char *email, const char *role);

#endif
