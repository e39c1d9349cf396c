// SPDX-License-Identifier: Apache-2.0
// token.c - see token.h.
#include "cloud/api/token.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "cloud/store/row.h"

void vt_token_hash(const char *token, char out_hash[65]) {
  unsigned char digest[32];
  EVP_Digest(token, strlen(token), digest, NULL, EVP_sha256(), NULL);
  for (size_t i = 0; i < sizeof digest; i++) snprintf(out_hash + 2 * i, 3, "%02x", digest[i]);
}

vt_status vt_token_create(vt_cloud *cloud, const vt_token_start *start, char **out_token) {
  unsigned char bytes[32];
  char hash[65];
  *out_token = NULL;
  if (RAND_bytes(bytes, sizeof bytes) != 1) return vt_error(VT_INTERNAL, "no random numbers");
  char *token = vt_memory_resize(NULL, 80);
  snprintf(token, 80, "vt%c.", start->kind[0]);
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(token + 4 + 2 * i, 3, "%02x", bytes[i]);
  vt_token_hash(token, hash);
  int64_t now = vt_cloud_now(cloud);
  const vt_tokens_row row = {.hash = hash,
                             .email = start->email,
                             .kind = start->kind,
                             .scope = start->scope ? start->scope : "",
                             .expires_ns =
                                 start->lifetime_ns ? vt_add_clamped(now, start->lifetime_ns) : 0,
                             .created_ns = now,
                             .origin = start->origin};
  vt_status st = vt_row_insert(cloud->store, tokens, &row);
  if (st) {
    vt_memory_free(token);
    return st;
  }
  *out_token = token;
  return VT_OK;
}

vt_status vt_token_find(vt_cloud *cloud, const char *token, const char *kind, vt_arena *arena,
                        vt_token *out_token) {
  char hash[65];
  vt_rows *rows;
  *out_token = (vt_token){"", "", "", 0};
  vt_token_hash(token, hash);
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT tokens.email, scope, expires_ns FROM tokens, accounts WHERE hash = ? AND "
      "tokens.kind = ? AND (expires_ns = 0 OR expires_ns > ?) AND accounts.email = tokens.email "
      "AND accounts.disabled = 0",
      "ssi", hash, kind, vt_cloud_now(cloud)));
  if (vt_rows_next(rows)) {
    const char *email = vt_rows_text(rows, 0), *scope = vt_rows_text(rows, 1);
    *out_token = (vt_token){vt_arena_copy(arena, email, strlen(email)),
                            vt_arena_copy(arena, scope, strlen(scope)),
                            vt_arena_copy(arena, hash, strlen(hash)), vt_rows_int(rows, 2)};
  }
  return vt_rows_end(rows);
}

vt_status vt_token_lives(vt_cloud *cloud, const char *credential, bool *out_lives) {
  int64_t live = 1, now = vt_cloud_now(cloud);
  if (strncmp(credential, "key:", 4) == 0) {
    char id[64] = "";
    int64_t until = 0;
    sscanf(credential, "key:%63[^:]:%" SCNd64, id, &until);
    VT_TRY(vt_store_int(cloud->store, &live, 0,
                        "SELECT 1 FROM sa_keys WHERE id = ? AND (expires_ns = 0 OR expires_ns > ?)",
                        "si", id, now));
    live = live && until > now / VT_SECOND;
  } else if (*credential) {
    VT_TRY(vt_store_int(cloud->store, &live, 0,
                        "SELECT 1 FROM tokens WHERE hash = ? AND (expires_ns = 0 OR expires_ns > "
                        "?)",
                        "si", credential, now));
  }
  *out_lives = live;
  return VT_OK;
}

// --- ends ----------------------------------------------------------------------------------------

// The tokens that `first` selects (one argument) and, transitively, those derived from them.
#define WITH_DESCENDANTS(first)                                                                    \
  "WITH RECURSIVE gone(hash) AS (SELECT hash FROM tokens WHERE " first                             \
  " UNION SELECT tokens.hash FROM tokens JOIN gone ON tokens.origin = 'token:' || gone.hash) "     \
  "DELETE FROM tokens WHERE hash IN (SELECT hash FROM gone)"

static vt_status revoke(vt_cloud *cloud, const char *sql, const char *argument) {
  return vt_store_run(cloud->store, NULL, sql, "s", argument);
}

vt_status vt_token_revoke(vt_cloud *cloud, const char *hash) {
  return revoke(cloud, WITH_DESCENDANTS("hash = ?"), hash);
}

vt_status vt_token_revoke_from(vt_cloud *cloud, const char *origin) {
  return revoke(cloud, WITH_DESCENDANTS("origin = ?"), origin);
}

vt_status vt_token_revoke_all(vt_cloud *cloud, const char *email) {
  return revoke(cloud, WITH_DESCENDANTS("email = ?"), email);
}

vt_status vt_token_revoke_signed_in(vt_cloud *cloud, const char *email) {
  return revoke(cloud, WITH_DESCENDANTS("email = ? AND kind IN ('session', 'refresh', 'code')"),
                email);
}

vt_status vt_token_sweep(vt_cloud *cloud) {
  return vt_store_run(cloud->store, NULL,
                      "DELETE FROM tokens WHERE expires_ns > 0 AND expires_ns <= ?", "i",
                      vt_cloud_now(cloud));
}
