// SPDX-License-Identifier: Apache-2.0
// replay_test.c - requests that unmodified clients sent (gcloud, google-api-python-client, ray,
// SkyPilot), in order: each must get the status that was recorded, and a long-running operation
// must complete. Rows of replay/*.jsonl have record.h's form, written by hand and without
// responses. {last} is the latest operation returned; {fingerprint}, {etag} and {refresh} are
// values that the server returned; `before` is the state that the client found.
#include "cloud/cloud_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "cloud/api/account.h"
#include "cloud/api/call.h"
#include "cloud/control/guest.h"
#include "cloud/door/metadata.h"
#include "cloud/open.h"

#define PROJECT "trc-demo"

typedef struct replay {
  vt_testing t;
  char last[256], *refresh;
} replay;

static void open_cloud(replay *r) {
  char *token = NULL;
  memset(r, 0, sizeof *r);
  vt_testing_open(&r->t, "");
  assert_null(vt_cloud_seed(r->t.cloud, PROJECT, "admin@vtpu.localhost", VT_TOKEN_FIRST, &token));
  free(token);
  const vt_token_start start = {"admin@vtpu.localhost", "refresh", "", "", 0};
  assert_null(vt_token_create(r->t.cloud, &start, &r->refresh));
  json_decref(vt_testing_call(&r->t, "POST", "/v1/projects/" PROJECT "/serviceAccounts",
                              "{\"accountId\":\"ray-autoscaler-sa-v1\"}", 200));
}

static void close_cloud(replay *r) {
  vt_memory_free(r->refresh);
  vt_testing_close(&r->t);
}

static void substitute(vt_text *out, const char *text, const char *name, const char *value) {
  size_t n = strlen(name);
  for (const char *p; (p = strstr(text, name)); text = p + n) {
    vt_text_put_n(out, text, (size_t)(p - text));
    vt_text_put(out, value);
  }
  vt_text_put(out, text);
}

// The text with its placeholders filled in; freed by the caller.
static char *fill(replay *r, const char *text) {
  const char *names[] = {"{last}", "{refresh}", "{fingerprint}", "{etag}"};
  char values[4][256] = {{0}};
  snprintf(values[0], 256, "%s", r->last);
  snprintf(values[1], 256, "%s", r->refresh);
  if (strstr(text, names[2])) {
    json_t *project = vt_testing_call(&r->t, "GET", "/compute/v1/projects/" PROJECT, NULL, 200);
    snprintf(values[2], 256, "%s", vt_testing_text(project, "commonInstanceMetadata.fingerprint"));
    json_decref(project);
  }
  if (strstr(text, names[3])) {
    json_t *policy =
        vt_testing_call(&r->t, "POST", "/v1/projects/" PROJECT ":getIamPolicy", "{}", 200);
    snprintf(values[3], 256, "%s", vt_testing_text(policy, "etag"));
    json_decref(policy);
  }
  char *now = strdup(text);
  for (int i = 0; i < 4; i++) {
    vt_text next = {0};
    substitute(&next, now, names[i], values[i]);
    free(now);
    now = strdup(vt_text_string(&next));
    vt_text_free(&next);
  }
  return now;
}

static const char *first_worker(replay *r, vt_arena *arena) {
  vt_rows *rows;
  const char *ip = "";
  assert_null(vt_store_query(r->t.cloud->store, &rows,
                             "SELECT ip FROM workers ORDER BY node, worker LIMIT 1", ""));
  if (vt_rows_next(rows))
    ip = vt_arena_copy(arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0)));
  assert_null(vt_rows_end(rows));
  return ip;
}

static json_t *send_row(replay *r, const json_t *row, int *out_status) {
  vt_call call;
  char *path = fill(r, vt_testing_text(row, "path")), *body = fill(r, vt_testing_text(row, "body")),
       bearer[256];
  char *question = strchr(path, '?');
  if (question) *question++ = 0;
  vt_call_init(&call, r->t.cloud, vt_testing_text(row, "method"), path);
  if (question) vt_call_add_query(&call, question);
  snprintf(bearer, sizeof bearer, "Bearer %s", r->t.token);
  vt_call_add_header(&call, "Authorization", bearer);
  vt_call_add_header(&call, "Host", vt_testing_text(row, "host"));
  if (*vt_testing_text(row, "type"))
    vt_call_add_header(&call, "Content-Type", vt_testing_text(row, "type"));
  call.body_text = body;
  call.body_size = strlen(body);
  if (strncmp(path, "/computeMetadata/", 17) == 0) { // from inside: the first worker asks
    vt_call_add_header(&call, "Metadata-Flavor", "Google");
    call.peer = first_worker(r, &call.arena);
    vt_metadata_run(&call);
  } else {
    vt_call_run(&call);
  }
  *out_status = call.status;
  json_t *reply = json_incref(call.reply);
  vt_call_fini(&call);
  free(path);
  free(body);
  return reply;
}

// "before" of a row: the state that the client found.
static void prepare(replay *r, const char *before) {
  if (!*before) return;
  bool quota = strcmp(before, "no quota") == 0;
  assert_null(vt_store_run(r->t.cloud->store, NULL, "UPDATE quotas SET units = ?", "i",
                           (int64_t)(quota ? 0 : -1)));
  if (!quota)
    json_decref(vt_testing_call(&r->t, "POST", "/vtpu/v1/capacity",
                                "{\"zone\":\"us-central2-b\",\"family\":\"v4\",\"chips\":0}", 200));
}

static void replay_row(replay *r, const char *file, int line, const json_t *row) {
  int status, want = (int)json_integer_value(json_object_get(row, "status"));
  prepare(r, vt_testing_text(row, "before"));
  json_t *reply = send_row(r, row, &status);
  if (status == 409 && want == 200) { // a recording contains several runs, each on a fresh server
    json_decref(reply);
    close_cloud(r);
    open_cloud(r);
    reply = send_row(r, row, &status);
  }
  if (status != want)
    fail_msg("%s:%d: %s %s: %d, not %d: %s", file, line, vt_testing_text(row, "method"),
             vt_testing_text(row, "path"), status, want, vt_testing_text(reply, "error.message"));
  const char *operation = strstr(vt_testing_text(reply, "name"), "/operations/");
  if (operation) {
    snprintf(r->last, sizeof r->last, "%s", operation + 12);
    if (strstr(vt_testing_text(row, "path"), "{last}") &&
        !json_is_true(json_object_get(reply, "done")))
      fail_msg("%s:%d: the operation is not done", file, line);
  }
  json_decref(reply);
  vt_testing_reconcile(&r->t);
}

static void replay_file(const char *name) {
  char path[512], line[65536];
  replay r;
  snprintf(path, sizeof path, VTPU_SOURCE_DIR "/tests/cloud/replay/%s.jsonl", name);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  open_cloud(&r);
  for (int number = 1; fgets(line, sizeof line, file); number++) {
    json_t *row = json_loads(line, 0, NULL);
    assert_non_null(row);
    replay_row(&r, name, number, row);
    json_decref(row);
  }
  fclose(file);
  close_cloud(&r);
}

static void gcloud_vm(void **state) {
  (void)state, replay_file("gcloud-vm");
}
static void gcloud_ssh_pod(void **state) {
  (void)state, replay_file("gcloud-ssh-pod");
}
static void gcloud_login_quota(void **state) {
  (void)state, replay_file("gcloud-login-quota");
}
static void python_clients(void **state) {
  (void)state, replay_file("python-clients");
}
static void universe(void **state) {
  (void)state, replay_file("universe");
}
static void ray_up(void **state) {
  (void)state, replay_file("ray-up");
}
static void skypilot(void **state) {
  (void)state, replay_file("skypilot-ray");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gcloud_vm),
                                     cmocka_unit_test(gcloud_ssh_pod),
                                     cmocka_unit_test(gcloud_login_quota),
                                     cmocka_unit_test(python_clients),
                                     cmocka_unit_test(universe),
                                     cmocka_unit_test(ray_up),
                                     cmocka_unit_test(skypilot)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
