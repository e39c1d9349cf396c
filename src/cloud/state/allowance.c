// SPDX-License-Identifier: Apache-2.0
// allowance.c - see allowance.h. This state is lost when the daemon ends: buckets are then full,
// and the next token is a new one.
#include "cloud/state/allowance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "cloud/api/check.h"
#include "cloud/api/metrics.h"
#include "cloud/api/token.h"
#include "cloud/state/service_account.h"
#include "cloud/store/row.h"

// A token bucket holds `most` requests and gains `per_s`. An agent needs one report every two
// seconds.
static const struct {
  double most, per_s;
} purses[VT_PURSES] = {
    [VT_PURSE_ASKS] = {2000, 200}, [VT_PURSE_WRITES] = {100, 5}, [VT_PURSE_REPORTS] = {1000, 20}};

enum { MAX_NAME = 128, MAX_VALUE = 32 << 10, MAX_ATTRIBUTES = 128, MAX_ALL = 256 << 10 };
// A token with less time left is not given out again, as on Compute Engine.
#define TOKEN_LIFETIME VT_HOUR
#define TOKEN_RENEWAL  (5 * 60 * VT_SECOND)

typedef struct allowance {
  int64_t uid, worker;
  double left[VT_PURSES];
  int64_t at_ns;
  char email[320], token[80], hash[65];
  int64_t expires_ns;
} allowance;

// A slot belongs to its last user: workers that share one alternate, which errs on the side of
// allowing requests and costs an extra token.
enum { SLOTS = 4096 };
struct vt_allowances {
  allowance slots[SLOTS];
};

static allowance *allowance_of(vt_cloud *cloud, int64_t uid, int64_t worker) {
  if (!cloud->allowances) cloud->allowances = calloc(1, sizeof *cloud->allowances);
  if (!cloud->allowances) return NULL;
  uint64_t hash = vt_hash_u64((uint64_t)uid, (uint64_t)worker);
  allowance *a = &cloud->allowances->slots[hash % SLOTS];
  if (a->uid == uid && a->worker == worker) return a;
  *a = (allowance){.uid = uid, .worker = worker, .at_ns = vt_metrics_clock()};
  for (int i = 0; i < VT_PURSES; i++) a->left[i] = purses[i].most;
  return a;
}

bool vt_allowance_spend(vt_cloud *cloud, int64_t uid, int64_t worker, vt_purse purse) {
  allowance *a = allowance_of(cloud, uid, worker);
  if (!a) return true;
  int64_t now = vt_metrics_clock();
  double passed = (double)(now - a->at_ns) / (double)VT_SECOND;
  for (int i = 0; i < VT_PURSES; i++) {
    a->left[i] += passed * purses[i].per_s;
    if (a->left[i] > purses[i].most) a->left[i] = purses[i].most;
  }
  a->at_ns = now;
  if (a->left[purse] < 1) return false;
  a->left[purse] -= 1;
  return true;
}

void vt_allowances_free(struct vt_allowances *allowances) {
  free(allowances);
}

vt_status vt_allowance_token(vt_call *call, const vt_node *node, int64_t worker, const char *email,
                             int64_t project_number, const char **out_token, int64_t *out_seconds) {
  vt_cloud *cloud = call->cloud;
  int64_t now = vt_cloud_now(cloud);
  allowance *a = allowance_of(cloud, node->uid, worker);
  bool lives = false;
  char *token;
  *out_token = NULL;
  if (a && a->expires_ns - now > TOKEN_RENEWAL && strcmp(a->email, email) == 0)
    VT_TRY(vt_token_lives(cloud, a->hash, &lives));
  if (lives) {
    *out_token = a->token;
    *out_seconds = (a->expires_ns - now) / VT_SECOND;
    return VT_OK;
  }
  VT_TRY(vt_sa_issue(cloud, &call->arena, node, email, project_number, &token));
  if (!token) return VT_OK;
  *out_token = vt_arena_copy(&call->arena, token, strlen(token));
  *out_seconds = TOKEN_LIFETIME / VT_SECOND - 1;
  if (a && strlen(email) < sizeof a->email && strlen(token) < sizeof a->token) {
    strcpy(a->email, email);
    strcpy(a->token, token);
    vt_token_hash(token, a->hash);
    a->expires_ns = now + TOKEN_LIFETIME;
  }
  vt_memory_free(token);
  return VT_OK;
}

// --- guest attributes ----------------------------------------------------------------------------

// Keys that the agent itself writes always fit, however many others there are.
static bool is_ours(const char *name) {
  static const char *const ours[] = {"hostkeys/ssh-ed25519", "guest/hostname", "vtpu/guest",
                                     "vtpu/synced"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
    if (strcmp(ours[i], name) == 0) return true;
  return false;
}

// Splits "namespace/key".
static vt_status split(vt_call *call, const char *name, const char **out_space,
                       const char **out_key) {
  static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  size_t space = strspn(name, good), key = name[space] == '/' ? strspn(name + space + 1, good) : 0;
  if (!space || !key || name[space + 1 + key] || space > MAX_NAME || key > MAX_NAME)
    return vt_error(VT_INVALID_ARGUMENT,
                    "guest attributes are NAMESPACE/KEY, each of 1 to %d letters, digits, _ . -",
                    MAX_NAME);
  *out_space = vt_arena_copy(&call->arena, name, space);
  *out_key = name + space + 1;
  return VT_OK;
}

static vt_status has_room(vt_call *call, const vt_node *node, int64_t worker, const char *name,
                          const char *space, const char *key) {
  vt_rows *rows;
  int64_t count = 0, size = (int64_t)call->body_size;
  if (is_ours(name)) return VT_OK;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT namespace, key, LENGTH(value) FROM guest_attributes WHERE node = ? "
                        "AND worker = ?",
                        "ii", node->uid, worker));
  while (vt_rows_next(rows)) {
    if (strcmp(vt_rows_text(rows, 0), space) == 0 && strcmp(vt_rows_text(rows, 1), key) == 0)
      continue;
    count++;
    size += vt_rows_int(rows, 2);
  }
  VT_TRY(vt_rows_end(rows));
  if (count < MAX_ATTRIBUTES && size <= MAX_ALL) return VT_OK;
  return vt_error(VT_RESOURCE_EXHAUSTED,
                  "a worker has at most %d guest attributes with %d bytes in all", MAX_ATTRIBUTES,
                  MAX_ALL);
}

typedef struct attribute {
  const vt_call *call;
  int64_t node, worker;
  const char *space, *key;
} attribute;

static vt_status put(vt_cloud *cloud, void *context) {
  const attribute *a = context;
  const vt_guest_attributes_row row = {.node = a->node,
                                       .worker = a->worker,
                                       .namespace = a->space,
                                       .key = a->key,
                                       .value = a->call->body_text};
  return vt_row_put(cloud->store, guest_attributes, &row);
}

static vt_status drop(vt_cloud *cloud, void *context) {
  const attribute *a = context;
  return vt_store_run(cloud->store, NULL,
                      "DELETE FROM guest_attributes WHERE node = ? AND worker = ? AND namespace = "
                      "? AND key = ?",
                      "iiss", a->node, a->worker, a->space, a->key);
}

vt_status vt_attribute_write(vt_call *call, const vt_node *node, int64_t worker, const char *name) {
  attribute a = {call, node->uid, worker, "", ""};
  VT_TRY(split(call, name, &a.space, &a.key));
  if (call->body_size > MAX_VALUE)
    return vt_error(VT_INVALID_ARGUMENT, "a guest attribute has at most %d bytes", MAX_VALUE);
  if (!vt_text_is_good(call->body_text ? call->body_text : "", call->body_size))
    return vt_error(VT_INVALID_ARGUMENT, "a guest attribute is UTF-8 without NUL");
  VT_TRY(has_room(call, node, worker, name, a.space, a.key));
  call->body_text =
      vt_arena_copy(&call->arena, call->body_text ? call->body_text : "", call->body_size);
  VT_TRY(vt_cloud_transact(call->cloud, put, &a));
  vt_cloud_poke(call->cloud);
  return VT_OK;
}

vt_status vt_attribute_delete(vt_call *call, const vt_node *node, int64_t worker,
                              const char *name) {
  attribute a = {call, node->uid, worker, "", ""};
  VT_TRY(split(call, name, &a.space, &a.key));
  return vt_cloud_transact(call->cloud, drop, &a);
}
