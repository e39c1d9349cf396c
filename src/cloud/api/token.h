// SPDX-License-Identifier: Apache-2.0
// token.h - opaque tokens: 256 random bits that the store has the SHA-256 of, and what each came
// from, so that it ends with that.
//
// An origin is "token:HASH" (a session made with a token, an access token of a refresh token),
// "key:ID" (a key of a service account), "node:UID" (a worker's), "password", "start" (of the
// daemon) or "account" (an administrator made it). All functions run under the cloud's lock.
#ifndef VT_CLOUD_TOKEN_H
#define VT_CLOUD_TOKEN_H

#include "base/arena.h"
#include "cloud/store/cloud.h"

// Of a new token: kind access, refresh, session, code or guest. lifetime 0 = does not expire.
// NULL texts are "".
typedef struct vt_token_start {
  const char *email, *kind, *scope, *origin;
  int64_t lifetime_ns;
} vt_token_start;

// A live token that was found, in the finder's arena; email "" when there is none.
typedef struct vt_token {
  const char *email, *scope, *hash;
  int64_t expires_ns; // 0 = never
} vt_token;

// The text leaves here only; freed by the caller.
vt_status vt_token_create(vt_cloud *cloud, const vt_token_start *start,
                          char **out_token) VT_CHECKED;
// The live token of that kind and of an account that is not disabled.
vt_status vt_token_find(vt_cloud *cloud, const char *token, const char *kind, vt_arena *arena,
                        vt_token *out_token) VT_CHECKED;
// The hash by which the store knows a token.
void vt_token_hash(const char *token, char out_hash[65]);
// Whether what a call was made with still stands: a token's hash, "key:ID:SECONDS" of a JWT that
// ends then, or "".
vt_status vt_token_lives(vt_cloud *cloud, const char *credential, bool *out_lives) VT_CHECKED;

// Ends a token and all that came from it. No-op for one that is not there.
vt_status vt_token_revoke(vt_cloud *cloud, const char *hash) VT_CHECKED;
// Ends all tokens with that origin, and what came from them.
vt_status vt_token_revoke_from(vt_cloud *cloud, const char *origin) VT_CHECKED;
// Ends all tokens of an account, and what came from them.
vt_status vt_token_revoke_all(vt_cloud *cloud, const char *email) VT_CHECKED;
// Ends what an account has signed in to: sessions, refresh tokens, codes, and what came from them.
vt_status vt_token_revoke_signed_in(vt_cloud *cloud, const char *email) VT_CHECKED;
// Removes what has expired.
vt_status vt_token_sweep(vt_cloud *cloud) VT_CHECKED;

#endif
