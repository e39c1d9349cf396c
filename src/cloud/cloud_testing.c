// SPDX-License-Identifier: Apache-2.0
// cloud_testing.c - see cloud_testing.h.
#include "cloud/cloud_testing.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "base/memory.h"
#include "cloud/api/call.h"
#include "cloud/control/guest.h"
#include "cloud/control/reconcile.h"
#include "cloud/door/metadata.h"
#include "cloud/open.h"
#include "cloud/store/json.h"

static void must(vt_status st) {
  if (st) fail_msg("%s", vt_status_message(st));
}

bool vt_testing_on_postgres(void) {
  return getenv("VTPU_TEST_STORE") != NULL;
}

static void run_sql(const char *format, const char *schema) {
  char sql[128];
  PGconn *connection = PQconnectdb(getenv("VTPU_TEST_STORE"));
  if (PQstatus(connection) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(connection));
  snprintf(sql, sizeof sql, format, schema);
  PQclear(PQexec(connection, "SET client_min_messages = warning"));
  PGresult *result = PQexec(connection, sql);
  if (PQresultStatus(result) != PGRES_COMMAND_OK) fail_msg("%s", PQerrorMessage(connection));
  PQclear(result);
  PQfinish(connection);
}

static void find_place(vt_testing *t, const char *state_dir) {
  static int count;
  if (!vt_testing_on_postgres()) {
    *t->schema = 0;
    snprintf(t->store, sizeof t->store, "%s%s", state_dir, *state_dir ? "/cloud.db" : "");
    return;
  }
  if (*state_dir)
    snprintf(t->schema, sizeof t->schema, "t%016llx",
             (unsigned long long)vt_hash_bytes(state_dir, strlen(state_dir), 0));
  else
    snprintf(t->schema, sizeof t->schema, "t%d_%d", (int)getpid(), ++count);
  snprintf(t->store, sizeof t->store, "%s&options=-csearch_path%%3D%s", getenv("VTPU_TEST_STORE"),
           t->schema);
}

void vt_testing_remove(const char *state_dir) {
  vt_testing t;
  char command[600];
  find_place(&t, state_dir);
  if (*t.schema) run_sql("DROP SCHEMA IF EXISTS %s CASCADE", t.schema);
  snprintf(command, sizeof command, "rm -rf %s", state_dir);
  assert_int_equal(system(command), 0);
}

void vt_testing_prepare(vt_testing *t, const char *state_dir) {
  find_place(t, state_dir);
  if (*t->schema) run_sql("CREATE SCHEMA IF NOT EXISTS %s", t->schema);
}

void vt_testing_open(vt_testing *t, const char *state_dir) {
  vt_testing_open_with_clock(t, state_dir, NULL);
}

void vt_testing_open_with_clock(vt_testing *t, const char *state_dir,
                                int64_t (*read_clock)(int clock_id)) {
  vt_cloud_options options;
  vt_testing_prepare(t, state_dir);
  t->keeps = *state_dir;
  vt_cloud_options_default(&options);
  options.virtual_time = read_clock == NULL;
  options.read_clock = read_clock;
  options.state_dir = state_dir;
  if (*t->schema) options.store = t->store;
  must(vt_cloud_open(&options, &t->cloud));
  must(vt_guest_none_create(&t->cloud->guests));
  must(
      vt_cloud_seed(t->cloud, TESTING_PROJECT, "admin@vtpu.localhost", VT_TOKEN_ALWAYS, &t->token));
}

void vt_testing_close(vt_testing *t) {
  t->cloud->guests->destroy(t->cloud->guests);
  vt_cloud_close(t->cloud);
  vt_memory_free(t->token);
  if (*t->schema && !t->keeps) run_sql("DROP SCHEMA %s CASCADE", t->schema);
}

json_t *vt_testing_call_as(vt_testing *t, const char *token, const char *method, const char *url,
                           const char *body, int *out_status) {
  vt_call call;
  char path[1024], header[8192];
  size_t n = strcspn(url, "?");
  assert_true(n < sizeof path);
  memcpy(path, url, n);
  path[n] = 0;
  vt_call_init(&call, t->cloud, method, path);
  if (url[n]) vt_call_add_query(&call, url + n + 1);
  if (token) {
    snprintf(header, sizeof header, "Bearer %s", token);
    vt_call_add_header(&call, "Authorization", header);
  }
  vt_call_add_header(&call, "Host", "localhost");
  call.body_text = body ? body : "";
  call.body_size = strlen(call.body_text);
  vt_call_run(&call);
  vt_call_render(&call);
  *out_status = call.status;
  json_t *reply = json_loadb(vt_text_string(&call.raw), call.raw.size, JSON_DECODE_ANY, NULL);
  vt_call_fini(&call);
  return reply;
}

json_t *vt_testing_call(vt_testing *t, const char *method, const char *url, const char *body,
                        int want) {
  int status;
  json_t *reply = vt_testing_call_as(t, t->token, method, url, body, &status);
  if (status != want) {
    char *text = vt_json_text(reply, JSON_COMPACT);
    fail_msg("%s %s: %d, not %d: %s", method, url, status, want, text ? text : "");
  }
  return reply;
}

void vt_testing_reconcile(vt_testing *t) {
  bool busy;
  pthread_mutex_lock(&t->cloud->lock);
  must(vt_reconcile(t->cloud, &busy));
  pthread_mutex_unlock(&t->cloud->lock);
}

void vt_testing_advance(vt_testing *t, int64_t seconds) {
  pthread_mutex_lock(&t->cloud->lock);
  must(vt_reconcile_advance(t->cloud, t->cloud->virtual_ns + seconds * VT_SECOND));
  pthread_mutex_unlock(&t->cloud->lock);
}

const char *vt_testing_text(const json_t *json, const char *path) {
  while (json && *path) {
    char name[64];
    size_t n = strcspn(path, ".");
    assert_true(n < sizeof name);
    memcpy(name, path, n);
    name[n] = 0;
    json = json_is_array(json) ? json_array_get(json, (size_t)atoi(name))
                               : json_object_get(json, name);
    path += n + (path[n] == '.');
  }
  return json_is_string(json) ? json_string_value(json) : "";
}

void vt_testing_expect(vt_testing *t, const char *url, const char *path, const char *want) {
  json_t *reply = vt_testing_call(t, "GET", url, NULL, 200);
  if (strcmp(vt_testing_text(reply, path), want) != 0)
    fail_msg("%s: %s is '%s', not '%s'", url, path, vt_testing_text(reply, path), want);
  json_decref(reply);
}

char *vt_testing_account(vt_testing *t, const char *email, const char *role) {
  char body[256];
  snprintf(body, sizeof body, "{\"email\":\"%s\",\"role\":\"%s\"}", email, role);
  json_t *reply = vt_testing_call(t, "POST", "/vtpu/v1/accounts", body, 200);
  char *token = strdup(vt_testing_text(reply, "token"));
  json_decref(reply);
  return token;
}

// One worker's request to the metadata server; returns its status and body.
static int ask(vt_testing *t, const char *node, int worker, const char *method, const char *path,
               const char *body, char **out_text) {
  vt_call call;
  vt_rows *rows;
  char full[256], ip[64] = "";
  assert_null(vt_store_query(t->cloud->store, &rows,
                             "SELECT ip FROM workers, nodes WHERE uid = node AND id = ? AND "
                             "worker = ?",
                             "si", node, (int64_t)worker));
  if (vt_rows_next(rows)) snprintf(ip, sizeof ip, "%s", vt_rows_text(rows, 0));
  assert_null(vt_rows_end(rows));
  size_t n = strcspn(path, "?");
  snprintf(full, sizeof full, "/computeMetadata/v1/%.*s", (int)n, path);
  vt_call_init(&call, t->cloud, method, full);
  if (path[n]) vt_call_add_query(&call, path + n + 1);
  vt_call_add_header(&call, "Metadata-Flavor", "Google");
  call.peer = ip;
  call.body_text = body;
  call.body_size = strlen(body);
  vt_metadata_run(&call);
  int status = call.status;
  if (out_text) *out_text = strdup(vt_text_string(&call.raw));
  vt_call_fini(&call);
  return status;
}

char *vt_testing_metadata(vt_testing *t, const char *node, const char *path) {
  char *text;
  assert_int_equal(ask(t, node, 0, "GET", path, "", &text), 200);
  return text;
}

int vt_testing_metadata_status(vt_testing *t, const char *node, const char *path) {
  return ask(t, node, 0, "GET", path, "", NULL);
}

int vt_testing_report(vt_testing *t, const char *node, int worker, const char *text) {
  return ask(t, node, worker, "PUT", "vtpu/use", text, NULL);
}

char *vt_testing_beat(vt_testing *t, const char *node, int worker, int epoch, const char *body) {
  char path[64], *text;
  snprintf(path, sizeof path, "vtpu/beat?epoch=%d", epoch);
  assert_int_equal(ask(t, node, worker, "PUT", path, body, &text), 200);
  return text;
}

void vt_testing_create(vt_testing *t, const char *id, const char *type) {
  char url[160], body[128];
  snprintf(url, sizeof url,
           "/v2alpha1/projects/" TESTING_PROJECT "/locations/us-central2-b/nodes?nodeId=%s", id);
  snprintf(body, sizeof body, "{\"acceleratorType\":\"%s\",\"runtimeVersion\":\"v2-alpha\"}", type);
  json_decref(vt_testing_call(t, "POST", url, body, 200));
  vt_testing_reconcile(t);
}
