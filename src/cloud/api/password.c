// SPDX-License-Identifier: Apache-2.0
// password.c - see password.h. Wrong passwords are counted per account, per address, and per
// address that has signed in to the account before: others' attempts do not delay that one. After
// the free attempts, each one doubles the wait. Counts are kept in memory, in a fixed-size table
// whose slots nobody can choose.
#include "cloud/api/password.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "cloud/api/account.h"

enum {
  ROUNDS = 210000,
  MAX_PASSWORD = 1024,
  HASHING = 2, // at once
  BURST = 4,   // bucket of hashes for unknown addresses: size, and refill per second
  A_SECOND = 2,
  SLOTS = 4096,
  WAYS = 8,
  FREE_OF_ACCOUNT = 5,
  FREE_OF_ADDRESS = 30, // many people may share one
  MAX_WAIT_S = 900
};
#define FORGET_NS VT_HOUR

typedef struct count {
  uint64_t key; // 0 = free
  int wrong;
  bool known; // the pair has signed in before
  int64_t last_ns, until_ns;
} count;

struct vt_guard {
  uint64_t seed;
  int hashing;
  double budget; // of hashes for unknown addresses
  int64_t budget_ns;
  count counts[SLOTS];
};

void vt_guard_free(struct vt_guard *guard) {
  free(guard);
}

static vt_status find_guard(vt_cloud *cloud, struct vt_guard **out_guard) {
  if (!cloud->guard) cloud->guard = calloc(1, sizeof *cloud->guard);
  *out_guard = cloud->guard;
  if (!cloud->guard) return vt_error_no_memory();
  if (!cloud->guard->seed) cloud->guard->seed = (uint64_t)vt_cloud_random();
  return VT_OK;
}

// --- counts --------------------------------------------------------------------------------------

// The counter of two texts. Evicts the neighbour that matters least: not waiting, with the fewest
// wrong attempts, the oldest.
static count *count_of(struct vt_guard *g, int64_t now, const char *kind, const char *a,
                       const char *b) {
  uint64_t key = vt_hash_bytes(kind, strlen(kind), g->seed);
  key = vt_hash_bytes(a, strlen(a), key);
  key = vt_hash_bytes(b, strlen(b), key) | 1;
  count *worst = NULL;
  for (size_t i = 0; i < WAYS; i++) {
    count *c = &g->counts[(key / 2 + i) % SLOTS];
    if (c->key == key) {
      if (now - c->last_ns > FORGET_NS && now >= c->until_ns) c->wrong = 0;
      return c;
    }
    bool waits = c->until_ns > now, worst_waits = worst && worst->until_ns > now;
    if (!worst || waits < worst_waits ||
        (waits == worst_waits &&
         (c->wrong < worst->wrong || (c->wrong == worst->wrong && c->last_ns < worst->last_ns))))
      worst = c;
  }
  *worst = (count){.key = key, .last_ns = now};
  return worst;
}

static int64_t seconds_left(const count *c, int64_t now) {
  return c->until_ns > now ? (c->until_ns - now + VT_SECOND - 1) / VT_SECOND : 0;
}

// How long the counter has to wait after one more attempt; 0 = no wait.
static int64_t add_wrong(count *c, int64_t now, int free_ones) {
  c->wrong++;
  c->last_ns = now;
  int over = c->wrong - free_ones;
  if (over < 0) return 0;
  int64_t wait = over < 10 ? INT64_C(1) << over : MAX_WAIT_S;
  if (wait > MAX_WAIT_S) wait = MAX_WAIT_S;
  c->until_ns = now + wait * VT_SECOND;
  return wait;
}

typedef struct counts {
  count *account, *address, *pair;
} counts;

static counts counts_of(vt_call *call, struct vt_guard *g, const char *email) {
  int64_t now = vt_cloud_now(call->cloud);
  // One at a time, so that none evicts another: they are looked up again before each use.
  counts c;
  c.pair = count_of(g, now, "pair", email, call->peer);
  c.account = count_of(g, now, "account", email, "");
  c.address = count_of(g, now, "address", "", call->peer);
  return c;
}

static vt_status check_counts(vt_call *call, struct vt_guard *g, const char *email) {
  int64_t now = vt_cloud_now(call->cloud);
  counts c = counts_of(call, g, email);
  int64_t wait = seconds_left(c.address, now),
          other = seconds_left(c.pair->known ? c.pair : c.account, now);
  if (other > wait) wait = other;
  if (!wait) return VT_OK;
  return vt_error(VT_RESOURCE_EXHAUSTED,
                  "Too many wrong passwords for this account or from this address. Try again in "
                  "%lld s.",
                  (long long)wait);
}

typedef struct lockout {
  const char *email, *peer;
  int64_t account_s, address_s;
} lockout;

// Makes any input printable; account names have no other characters.
static const char *shown(const char *text) {
  for (const char *p = text; *p; p++)
    if (*p <= ' ' || *p > '~' || p - text > 254) return "(no address)";
  return text;
}

static vt_status tell(vt_cloud *cloud, void *context) {
  const lockout *l = context;
  char detail[160];
  snprintf(detail, sizeof detail,
           "wrong passwords from %s: the account waits %lld s, the address %lld s", l->peer,
           (long long)l->account_s, (long long)l->address_s);
  return vt_cloud_event(cloud, "sign-in", "", shown(l->email), shown(l->email), detail);
}

// Counts the result, and logs when somebody has to wait. Outside a transaction.
static vt_status count_answer(vt_call *call, struct vt_guard *g, const char *email, bool right) {
  int64_t now = vt_cloud_now(call->cloud);
  counts c = counts_of(call, g, email);
  if (right) {
    c.pair->known = true;
    c.pair->wrong = c.account->wrong = 0;
    c.pair->last_ns = now;
    return VT_OK;
  }
  lockout l = {.email = email, .peer = *call->peer ? call->peer : "(unknown)"};
  l.account_s = add_wrong(c.pair->known ? c.pair : c.account, now, FREE_OF_ACCOUNT);
  l.address_s = add_wrong(c.address, now, FREE_OF_ADDRESS);
  return l.account_s || l.address_s ? vt_cloud_transact(call->cloud, tell, &l) : VT_OK;
}

// --- hashes --------------------------------------------------------------------------------------

static void to_hex(const unsigned char *bytes, size_t size, char *out_text) {
  for (size_t i = 0; i < size; i++) snprintf(out_text + 2 * i, 3, "%02x", bytes[i]);
}

static void hash(const char *password, const unsigned char salt[16],
                 char out_hash[VT_PASSWORD_HASH]) {
  unsigned char key[32];
  PKCS5_PBKDF2_HMAC(password, (int)strlen(password), salt, 16, ROUNDS, EVP_sha256(), sizeof key,
                    key);
  to_hex(salt, 16, out_hash);
  to_hex(key, 32, out_hash + 32);
}

// Hashes without holding the lock. Outside a transaction.
static vt_status hash_unlocked(vt_cloud *cloud, struct vt_guard *g, const char *password,
                               const unsigned char salt[16], char out_hash[VT_PASSWORD_HASH]) {
  if (g->hashing >= HASHING)
    return vt_error(VT_RESOURCE_EXHAUSTED, "Others are signing in. Try again in a second.");
  g->hashing++;
  pthread_mutex_unlock(&cloud->lock);
  hash(password, salt, out_hash);
  pthread_mutex_lock(&cloud->lock);
  g->hashing--;
  return VT_OK;
}

// A hash takes a core, and its call's thread, for a tenth of a second: addresses that have not
// signed in before get few of them, so that other calls find threads.
static vt_status ration(vt_call *call, struct vt_guard *g, const char *email) {
  int64_t now = vt_cloud_now(call->cloud);
  if (call->cloud->options.virtual_time || counts_of(call, g, email).pair->known) return VT_OK;
  g->budget += (double)(now - g->budget_ns) / 1e9 * A_SECOND;
  if (!g->budget_ns || g->budget > BURST) g->budget = BURST;
  g->budget_ns = now;
  if (g->budget < 1)
    return vt_error(VT_RESOURCE_EXHAUSTED, "Others are signing in. Try again in a second.");
  g->budget -= 1;
  return VT_OK;
}

bool vt_password_is_hashing(const vt_cloud *cloud) {
  return cloud->guard && cloud->guard->hashing > 0;
}

vt_status vt_password_hash(vt_cloud *cloud, const char *password, char out_hash[VT_PASSWORD_HASH]) {
  struct vt_guard *g;
  unsigned char salt[16];
  if (strlen(password) < 8 || strlen(password) > MAX_PASSWORD)
    return vt_error(VT_INVALID_ARGUMENT, "A password has 8 to %d characters.", MAX_PASSWORD);
  if (RAND_bytes(salt, sizeof salt) != 1) return vt_error(VT_INTERNAL, "no random numbers");
  VT_TRY(find_guard(cloud, &g));
  vt_store_rollback(cloud->store);
  VT_TRY(hash_unlocked(cloud, g, password, salt, out_hash));
  return vt_store_begin(cloud->store);
}

vt_status vt_password_store(vt_cloud *cloud, const char *email, const char *text) {
  VT_TRY(vt_store_run(cloud->store, NULL, "UPDATE accounts SET password = ? WHERE email = ?", "ss",
                      text, email));
  return vt_token_revoke_signed_in(cloud, email);
}

static vt_status load(vt_cloud *cloud, const char *email, char out_hash[VT_PASSWORD_HASH]) {
  vt_rows *rows;
  *out_hash = 0;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT password FROM accounts WHERE email = ? AND disabled = 0", "s",
                        email));
  if (vt_rows_next(rows) && strlen(vt_rows_text(rows, 0)) == VT_PASSWORD_HASH - 1)
    snprintf(out_hash, VT_PASSWORD_HASH, "%s", vt_rows_text(rows, 0));
  return vt_rows_end(rows);
}

static vt_status check(vt_call *call, const char *email, const char *password, bool *out_right) {
  struct vt_guard *g;
  char stored[VT_PASSWORD_HASH], text[VT_PASSWORD_HASH], now_stored[VT_PASSWORD_HASH];
  unsigned char salt[16] = {0};
  VT_TRY(find_guard(call->cloud, &g));
  VT_TRY(check_counts(call, g, email));
  VT_TRY(ration(call, g, email));
  VT_TRY(load(call->cloud, email, stored));
  for (int i = 0; i < 16 && *stored; i++) {
    unsigned value = 0;
    sscanf(stored + 2 * i, "%2x", &value);
    salt[i] = (unsigned char)value;
  }
  VT_TRY(
      hash_unlocked(call->cloud, g, strlen(password) <= MAX_PASSWORD ? password : "", salt, text));
  // The password may have changed, or its account been disabled, meanwhile.
  VT_TRY(load(call->cloud, email, now_stored));
  *out_right = *stored && strcmp(stored, now_stored) == 0 &&
               CRYPTO_memcmp(text, stored, VT_PASSWORD_HASH - 1) == 0;
  return count_answer(call, g, email, *out_right);
}

vt_status vt_password_check(vt_call *call, const char *email, const char *password,
                            bool *out_right) {
  *out_right = false;
  vt_store_rollback(call->cloud->store);
  vt_status st = check(call, email, password, out_right);
  vt_status begun = vt_store_begin(call->cloud->store);
  if (!st) return begun;
  vt_status_free(begun);
  return st;
}
