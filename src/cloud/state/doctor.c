// SPDX-License-Identifier: Apache-2.0
// doctor.c - the verdict of doctor.h, and the call that shows the data behind it. In: the holders
// of the chips. A host runs a program when one of its processes has the chips open; if several do,
// the oldest counts.
#include "cloud/state/doctor.h"

#include <stdio.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/state/health.h"

enum { NAMED = 8 }; // most hosts that a sentence lists by number

// "host 1", "hosts 1 and 3", "hosts 0, 1, 2 and 5 more": the workers for which `has` is false.
static void put_missing(vt_text *out, const bool *has, int64_t workers, int64_t missing) {
  int64_t named = missing <= NAMED ? missing : NAMED, said = 0;
  vt_text_put(out, missing == 1 ? "host " : "hosts ");
  for (int64_t w = 0; w < workers && said < named; w++) {
    if (has[w]) continue;
    const char *before = said == 0 ? "" : said + 1 == missing ? " and " : ", ";
    vt_text_printf(out, "%s%lld", before, (long long)w);
    said++;
  }
  if (missing > named) vt_text_printf(out, " and %lld more", (long long)(missing - named));
}

// The value of "NAME=VALUE" in a comma-separated list; returns its size, 0 = not found.
static size_t version_of(const char *list, const char *name, size_t size, const char **out_value) {
  for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
    if (strncmp(p, name, size) == 0 && p[size] == '=') {
      *out_value = p + size + 1;
      return strcspn(*out_value, ",");
    }
  return 0;
}

// Whether two hosts report different versions of the same thing; describes the first such thing.
static bool put_difference(vt_text *out, const vt_holder *a, const vt_holder *b) {
  for (const char *p = a->versions; *p; p += strcspn(p, ","), p += *p == ',') {
    size_t name = strcspn(p, "=,");
    const char *mine, *theirs;
    if (p[name] != '=') continue;
    size_t n = version_of(p, p, name, &mine), m = version_of(b->versions, p, name, &theirs);
    if (!m || (n == m && memcmp(mine, theirs, n) == 0)) continue;
    vt_text_printf(out, "; versions differ: worker %lld runs %.*s %.*s, worker %lld %.*s %.*s",
                   (long long)a->worker, (int)name, p, (int)n, mine, (long long)b->worker,
                   (int)name, p, (int)m, theirs);
    return true;
  }
  return false;
}

static void put_silent(const vt_cloud *cloud, int64_t uid, int64_t workers, vt_text *out) {
  for (int64_t w = 0; w < workers; w++)
    if (vt_health_silent(cloud, uid, w))
      vt_text_printf(out, "; worker %lld is not heard of", (long long)w);
}

vt_status vt_doctor_verdict(vt_cloud *cloud, vt_arena *arena, int64_t uid, int64_t workers,
                            vt_verdict *out_verdict) {
  vt_holders holders;
  vt_text text = {0}, more = {0};
  const vt_holder *first = NULL, *last = NULL;
  int64_t running = 0;
  *out_verdict = (vt_verdict){.text = ""};
  VT_TRY(vt_holders_read(cloud, arena, uid, &holders));
  bool *has = vt_arena_push(arena, (size_t)workers * sizeof *has);
  memset(has, 0, (size_t)workers * sizeof *has);
  for (size_t i = 0; i < holders.size; i++) {
    const vt_holder *h = &holders.data[i];
    if (h->worker < 0 || h->worker >= workers || has[h->worker]) continue;
    has[h->worker] = true;
    running++;
    if (!first) first = h;
    if (!last || h->since_ns > last->since_ns) last = h;
    if (!more.size) put_difference(&more, first, h);
  }
  if (!running)
    vt_text_put(&text, "No host runs a program");
  else if (workers == 1)
    vt_text_put(&text, "The host runs a program");
  else
    vt_text_printf(&text, "%lld of %lld hosts run a program", (long long)running,
                   (long long)workers);
  if (running && running < workers) {
    vt_text_put(&text, ": ");
    put_missing(&text, has, workers, workers - running);
    vt_text_printf(&text, " %s not started; start it with --worker=all",
                   workers - running == 1 ? "has" : "have");
    out_verdict->waiting = last->worker;
    out_verdict->waiting_ns = vt_cloud_now(cloud) - last->since_ns;
  }
  put_silent(cloud, uid, workers, &more);
  vt_text_printf(&text, "%s.", vt_text_string(&more));
  out_verdict->trouble = more.size || (running && running < workers);
  out_verdict->text = vt_arena_copy(arena, vt_text_string(&text), text.size);
  vt_text_free(&more);
  vt_text_free(&text);
  return VT_OK;
}

// --- a worker lives ------------------------------------------------------------------------------

typedef struct heartbeat {
  int64_t uid, worker, epoch;
  const char *text;
  vt_arena arena;
} heartbeat;

static vt_status listen_to(vt_cloud *cloud, void *context) {
  heartbeat *b = context;
  vt_node node;
  bool found, changed;
  VT_TRY(vt_node_load_uid(cloud, &b->arena, b->uid, &node, &found));
  if (!found) return VT_OK;
  vt_status st = VT_OK;
  if (b->epoch) st = vt_holders_forget(cloud, b->uid, b->worker, b->epoch);
  if (!st) st = vt_health_symptoms(cloud, &node, b->worker, b->text);
  if (!st) st = vt_health_settle(cloud, &b->arena, &node, &changed);
  vt_node_fini(&node);
  return st;
}

vt_status vt_doctor_beat(vt_cloud *cloud, vt_arena *arena, const vt_node *node, int64_t worker,
                         int64_t epoch, const char *text, vt_text *out_reply) {
  vt_verdict verdict;
  heartbeat b = {.uid = node->uid, .worker = worker, .epoch = epoch, .text = text};
  int64_t old = 0;
  bool differs;
  vt_health_heard(cloud, node->uid, worker);
  // After a reboot a worker has nothing to report until somebody uses its chips.
  VT_TRY(vt_store_int(cloud->store, &old, 0,
                      "SELECT COUNT(*) FROM holders WHERE node = ? AND worker = ? AND epoch <> ?",
                      "iii", node->uid, worker, epoch));
  VT_TRY(vt_health_differs(cloud, arena, node, &differs));
  if ((epoch && old) || differs || strstr(text, "symptom ")) {
    vt_status st = vt_cloud_transact(cloud, listen_to, &b);
    vt_arena_free(&b.arena);
    if (st) return st;
  }
  if (node->state != VT_NODE_READY) return VT_OK;
  VT_TRY(vt_holders_orders(cloud, node->uid, worker, out_reply));
  VT_TRY(vt_doctor_verdict(cloud, arena, node->uid, node->workers, &verdict));
  vt_text_printf(out_reply, "verdict %s\n", verdict.text);
  return VT_OK;
}

// --- who looks -----------------------------------------------------------------------------------

static json_t *versions_json(const char *list) {
  json_t *all = json_object();
  for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
    size_t n = strcspn(p, ","), name = strcspn(p, "=,");
    char key[128];
    if (name == 0 || name >= n || name >= sizeof key) continue;
    memcpy(key, p, name);
    key[name] = 0;
    json_object_set_new(all, key, json_stringn(p + name + 1, n - name - 1));
  }
  return all;
}

static json_t *holder_json(const vt_holder *h) {
  char since[40];
  vt_time_format(h->since_ns, since);
  return json_pack("{s:I, s:s, s:s, s:s, s:b, s:o}", "pid", (json_int_t)h->pid, "user", h->user,
                   "since", since, "program", h->program, "releasing", h->release_ns != 0,
                   "versions", versions_json(h->versions));
}

vt_status vt_node_doctor(vt_call *call) {
  vt_node node;
  vt_holders holders = {0};
  vt_verdict verdict = {.text = ""};
  VT_TRY(vt_node_find(call, &node));
  vt_status st = VT_OK;
  if (node.state == VT_NODE_READY)
    st = vt_doctor_verdict(call->cloud, &call->arena, node.uid, node.workers, &verdict);
  if (!st) st = vt_holders_read(call->cloud, &call->arena, node.uid, &holders);
  json_t *workers = json_array();
  for (int64_t w = 0; !st && w < node.workers; w++) {
    json_t *list = json_array();
    for (size_t i = 0; i < holders.size; i++)
      if (holders.data[i].worker == w) json_array_append_new(list, holder_json(&holders.data[i]));
    json_array_append_new(workers, json_pack("{s:i, s:b, s:o}", "worker", (int)w, "silent",
                                             (int)vt_health_silent(call->cloud, node.uid, w),
                                             "holders", list));
  }
  call->reply = json_pack("{s:s, s:s, s:s, s:s, s:b, s:o}", "node", node.id, "zone", node.zone,
                          "state", vt_node_state_name(node.state), "verdict", verdict.text,
                          "trouble", (int)verdict.trouble, "workers", workers);
  vt_node_fini(&node);
  return st;
}
