// SPDX-License-Identifier: Apache-2.0
// token.h - opaque tokens: 256 random bits, of which the store keeps the SHA-256, and each token's
// origin: revoking the origin revokes the token.
//
// An origin is "token:HASH" (a session made with a token, an access token of a refresh token),
// "key:ID" (a key of a service account), "node:UID" (a worker's), "password", "start" (of the
// daemon) or "account" (an administrator created it). All functions run under the cloud's lock.
#ifndef VT_CLOUD_TOKEN_H
#define VT_CLOUD_TOKEN_H

#include "base/arena.h"
#include "cloud/store/cloud.h"

// Of a new token: kind access, refresh, session, code or guest. lifetime 0 = does not expire. NULL
// texts are "".
typedef struct vt_token_start {
  const char *email, *kind, *scope, *origin;
  int64_t lifetime_ns;
} vt_token_start;

// A live token, in the finder's arena; email "" when there is none.
typedef struct vt_token {
  const char *email, *scope, *hash;
  int64_t expires_ns; // 0 = never
} vt_token;

// The only place that returns the token's text; the caller frees it.
vt_status vt_token_create(vt_cloud *cloud, const vt_token_start *start,
                          char **out_token) VT_CHECKED;
// Finds the live token of that kind whose account is not disabled.
vt_status vt_token_find(vt_cloud *cloud, const char *token, const char *kind, vt_arena *arena,
                        vt_token *out_token) VT_CHECKED;
// The hash under which the store keeps a token.
void vt_token_hash(const char *token, char out_hash[65]);
// Whether a call's credential is still valid: a token's hash, "key:ID:SECONDS" of a JWT that
// expires then, or "".
vt_status vt_token_lives(vt_cloud *cloud, const char *credential, bool *out_lives) VT_CHECKED;

// Revokes a token and all tokens derived from it. No-op if it does not exist.
vt_status vt_token_revoke(vt_cloud *cloud, const char *hash) VT_CHECKED;
// Revokes all tokens with that origin, and those derived from them.
vt_status vt_token_revoke_from(vt_cloud *cloud, const char *origin) VT_CHECKED;
// Revokes all tokens of an account, and those derived from them.
vt_status vt_token_revoke_all(vt_cloud *cloud, const char *email) VT_CHECKED;
// Revokes an account's sign-ins: sessions, refresh tokens, codes, and those derived from them.
vt_status vt_token_revoke_signed_in(vt_cloud *cloud, const char *email) VT_CHECKED;
// Removes expired tokens.
vt_status vt_token_sweep(vt_cloud *cloud) VT_CHECKED;

#endif
