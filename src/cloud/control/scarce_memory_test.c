// SPDX-License-Identifier: Apache-2.0
// scarce_memory_test.c - the n-th request for memory of a call finds none, for every n, alone or
// with all behind it: the reply is RESOURCE_EXHAUSTED, the state is as before the call or as after
// it, nothing is left over (LeakSanitizer, in the build that has it), and the next call works.
//
// The cloud is linked into this program, with malloc and its like replaced for our code, and
// SQLite's through its own interface; JSON is in base's memory. What OpenSSL and the C library ask
// for is not refused.
#include "cloud/cloud_testing.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/call.h"
#include "cloud/store/row.h"
#include "refused_memory.h"

enum { MAX_TABLES = 64 };

static sqlite3_mem_methods sqlite_memory;

static void *sqlite_malloc(int size) {
  return refuses_request() ? NULL : sqlite_memory.xMalloc(size);
}

static void *sqlite_realloc(void *data, int size) {
  return refuses_request() ? NULL : sqlite_memory.xRealloc(data, size);
}

// --- calls ---------------------------------------------------------------------------------------

typedef struct request {
  const char *method, *url, *body; // # is the number of the attempt, $ the id in the reply before
} request;

typedef struct tried {
  const char *name;
  request before, tried, after; // method NULL: none; after: the state is then as before `before`
} tried;

typedef struct world {
  vt_testing t;
  long number;
  char id[128];
  int commits;
  char why[256];
  const request *of;
  int status;
} world;

static void fill(const world *w, const char *text, char *out, size_t size) {
  size_t n = 0;
  for (const char *p = text ? text : ""; *p && n < size; p++) {
    if (*p == '#')
      n += (size_t)snprintf(out + n, size - n, "%ld", w->number);
    else if (*p == '$')
      n += (size_t)snprintf(out + n, size - n, "%s", w->id);
    else
      out[n++] = *p;
  }
  assert_true(n < size);
  out[n] = 0;
}

// As a transport does.
static vt_status serve(void *user) {
  world *w = user;
  char url[512], body[512];
  fill(w, w->of->url, url, sizeof url);
  fill(w, w->of->body, body, sizeof body);
  json_t *reply = vt_testing_call_as(&w->t, w->t.token, w->of->method, url,
                                     w->of->body ? body : NULL, &w->status);
  snprintf(w->why, sizeof w->why, "%s", vt_testing_text(reply, "error.message"));
  if (!refusing_memory() && *vt_testing_text(reply, "id"))
    snprintf(w->id, sizeof w->id, "%s", vt_testing_text(reply, "id"));
  json_decref(reply);
  return VT_OK;
}

static void ask(world *w, const request *r) {
  if (!r->method) return;
  w->of = r;
  assert_null(serve(w));
  if (w->status != 200 && w->status != 404)
    fail_msg("%s %s: %d %s", r->method, r->url, w->status, w->why);
  vt_testing_reconcile(&w->t);
}

// --- states --------------------------------------------------------------------------------------

typedef struct rows {
  int64_t of[MAX_TABLES];
} rows;

static rows count_rows(world *w) {
  rows out = {0};
  for (int i = 0; vt_tables[i]; i++) {
    char sql[128];
    assert_true(i < MAX_TABLES);
    snprintf(sql, sizeof sql, "SELECT COUNT(*) FROM %s", vt_tables[i]->name);
    assert_null(vt_store_int(w->t.cloud->store, &out.of[i], 0, sql, ""));
  }
  return out;
}

static rows difference(rows a, const rows *b) {
  for (int i = 0; i < MAX_TABLES; i++) a.of[i] -= b->of[i];
  return a;
}

static void count_commit(void *context, int stage) {
  if (stage == 1) ((world *)context)->commits++;
}

// --- sweeps --------------------------------------------------------------------------------------

typedef struct outcome {
  int status;
  bool committed;
  rows added;
} outcome;

// One attempt at the call; `n` 0: with memory.
static outcome attempt(world *w, const tried *c, long n, bool behind) {
  ask(w, &c->before);
  rows before = count_rows(w);
  vt_attempt try;
  w->of = &c->tried;
  w->commits = 0;
  refuse_memory(n, behind);
  vt_status st = vt_attempt_run(&try, serve, w);
  refuse_no_memory();
  vt_attempt_end(&try);
  if (st) w->status = 429;
  rows after = count_rows(w);
  outcome o = {w->status, w->commits > 0, difference(after, &before)};
  assert_false(vt_store_in_transaction(w->t.cloud->store));
  if (w->status != 200 && (w->status != 429 || !refused_requests()))
    fail_msg("%s, request %ld: status %d %s", c->name, n, w->status, w->why);
  vt_testing_reconcile(&w->t);
  ask(w, &c->after);
  w->number++;
  return o;
}

static long sweep(world *w, const tried *c, bool behind) {
  const rows none = {0};
  attempt(w, c, 0, false); // the first one may add what the others change
  outcome whole = attempt(w, c, 0, false);
  assert_int_equal(whole.status, 200);
  for (long n = 1;; n++) {
    outcome o = attempt(w, c, n, behind);
    const rows *want = o.committed ? &whole.added : &none;
    for (int i = 0; vt_tables[i]; i++)
      if (o.added.of[i] != want->of[i])
        fail_msg("%s, request %ld: %lld rows more in %s, not %lld", c->name, n,
                 (long long)o.added.of[i], vt_tables[i]->name, (long long)want->of[i]);
    if (o.status == 200 && !o.committed && whole.committed)
      fail_msg("%s, request %ld: answered and not done", c->name, n);
    if (!refused_requests()) return n;
  }
}

#define Z     "/v2/projects/" TESTING_PROJECT "/locations/us-central2-b"
#define NODE  "{\"acceleratorType\":\"v4-8\",\"runtimeVersion\":\"v2-alpha\"}"
#define QUEUE Z "/queuedResources"
#define ITEM                                                                                       \
  "{\"tpu\":{\"nodeSpec\":[{\"parent\":\"projects/" TESTING_PROJECT                                \
  "/locations/us-central2-b\",\"nodeId\":\"q#\",\"node\":" NODE "}]},\"spot\":{}}"
#define GRANT                                                                                      \
  "{\"project\":\"" TESTING_PROJECT                                                                \
  "\",\"purpose\":\"memory that runs out\",\"days\":30,\"items\":[{\"zone\":"                      \
  "\"us-central2-b\",\"family\":\"v4\",\"chips\":8,\"mode\":\"spot\"}]}"
#define TOKENS "/vtpu/v1/accounts/other@example.com/tokens"

static const tried calls[] = {
    {"create a node", {0}, {"POST", Z "/nodes?nodeId=n#", NODE}, {"DELETE", Z "/nodes/n#", NULL}},
    {"get a node", {0}, {"GET", Z "/nodes/kept", NULL}, {0}},
    {"list nodes",
     {"PATCH", Z "/nodes/kept?updateMask=description", "{\"description\":\"#\"}"},
     {"GET", Z "/nodes", NULL},
     {0}},
    {"delete a node",
     {"POST", Z "/nodes?nodeId=n#", NODE},
     {"DELETE", Z "/nodes/n#", NULL},
     {"DELETE", Z "/nodes/n#", NULL}},
    {"queue a resource",
     {0},
     {"POST", QUEUE "?queuedResourceId=q#", ITEM},
     {"DELETE", QUEUE "/q#?force=true", NULL}},
    {"get a queued resource", {0}, {"GET", QUEUE "/kept", NULL}, {0}},
    {"list queued resources", {0}, {"GET", QUEUE, NULL}, {0}},
    {"delete a queued resource",
     {"POST", QUEUE "?queuedResourceId=q#", ITEM},
     {"DELETE", QUEUE "/q#?force=true", NULL},
     {"DELETE", QUEUE "/q#?force=true", NULL}},
    {"apply for a grant", {0}, {"POST", "/vtpu/v1/grants", GRANT}, {0}},
    {"list grants", {0}, {"GET", "/vtpu/v1/grants", NULL}, {0}},
    {"approve a grant",
     {"POST", "/vtpu/v1/grants", GRANT},
     {"POST", "/vtpu/v1/grants/$:approve", "{}"},
     {0}},
    {"create a token", {0}, {"POST", TOKENS, "{\"days\":1}"}, {"DELETE", TOKENS, NULL}},
    {"list tokens", {0}, {"GET", TOKENS, NULL}, {0}},
    {"revoke tokens",
     {"POST", TOKENS, "{\"days\":1}"},
     {"DELETE", TOKENS, NULL},
     {"DELETE", TOKENS, NULL}},
};

static void open_world(world *w) {
  static const request kept[] = {
      {"POST", Z "/nodes?nodeId=kept", NODE},
      {"POST", QUEUE "?queuedResourceId=kept", ITEM},
      {"POST", "/vtpu/v1/accounts", "{\"email\":\"other@example.com\",\"role\":\"user\"}"}};
  *w = (world){0};
  vt_testing_open(&w->t, "");
  w->t.cloud->options.requests_per_minute = 0;
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    ask(w, &kept[i]);
  }
  w->number++;
  vt_store_on_commit(w->t.cloud->store, count_commit, w);
}

static void every_request_may_be_refused(void **state) {
  const tried *c = *state;
  for (int behind = 0; behind < 2; behind++) {
    world w;
    open_world(&w);
    long requests = sweep(&w, c, behind);
    print_message("%s: %ld requests, %s\n", c->name, requests,
                  behind ? "all refused from the n-th on" : "one refused");
    assert_true(requests > 20);
    vt_testing_close(&w.t);
  }
}

int main(int argc, char **argv) {
  enum { COUNT = sizeof calls / sizeof *calls };
  struct CMUnitTest tests[COUNT];
  if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory) != SQLITE_OK) return 1;
  sqlite3_mem_methods ours = sqlite_memory;
  ours.xMalloc = sqlite_malloc;
  ours.xRealloc = sqlite_realloc;
  if (sqlite3_config(SQLITE_CONFIG_MALLOC, &ours) != SQLITE_OK) return 1;
#ifndef NDEBUG
  vt_memory_refuses = refuses_request;
#endif
  for (int i = 0; i < COUNT; i++)
    tests[i] = (struct CMUnitTest){.name = calls[i].name,
                                   .test_func = every_request_may_be_refused,
                                   .initial_state = (void *)(uintptr_t)&calls[i]};
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
