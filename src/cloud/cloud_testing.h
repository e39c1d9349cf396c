// SPDX-License-Identifier: Apache-2.0
// cloud_testing.h - a cloud inside the test's process: virtual time, calls without a socket. The
// store is SQLite or, when VTPU_TEST_STORE is the URL of a PostgreSQL server (see
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
  char *token; // the administrator's, who owns project "demo-project"
  char store[512], schema[64];
  bool keeps; // keep the store when the cloud closes
} vt_testing;

#define TESTING_PROJECT "demo-project"

// `state_dir` "" gives a store that ends with the cloud; otherwise the folder's earlier store is
// reopened.
void vt_testing_open(vt_testing *t, const char *state_dir);
// The same with a clock of the test's instead of the virtual one.
void vt_testing_open_with_clock(vt_testing *t, const char *state_dir,
                                int64_t (*read_clock)(int clock_id));
void vt_testing_close(vt_testing *t);
// Removes a state folder and its store.
void vt_testing_remove(const char *state_dir);
// Sets t->store to the location of a state folder's store, in the form vt_store_open takes, and
// creates it empty.
void vt_testing_prepare(vt_testing *t, const char *state_dir);
// Whether the tests run on PostgreSQL.
bool vt_testing_on_postgres(void);
// One call with `token` (NULL = anonymous). Returns the reply as JSON (NULL when it is not JSON);
// *out_status is its HTTP status.
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
// Compares the text at the path in the reply to a GET.
void vt_testing_expect(vt_testing *t, const char *url, const char *path, const char *want);
// What the node's first worker reads at a path of its metadata ("instance/name"); the caller frees
// it.
char *vt_testing_metadata(vt_testing *t, const char *node, const char *path);
// The HTTP status of the same.
int vt_testing_metadata_status(vt_testing *t, const char *node, const char *path);
// What a worker's agent sends: its report of chip use (returns the HTTP status); and its heartbeat,
// with the boot `epoch` and its symptoms (returns the reply, which the caller frees).
int vt_testing_report(vt_testing *t, const char *node, int worker, const char *text);
char *vt_testing_beat(vt_testing *t, const char *node, int worker, int epoch, const char *body);
// Creates a node in us-central2-b and waits until it is READY.
void vt_testing_create(vt_testing *t, const char *id, const char *type);
// Creates a second account with its own token and no project; the caller frees the token.
char *vt_testing_account(vt_testing *t, const char *email, const char *role);

#endif
