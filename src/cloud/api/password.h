// SPDX-License-Identifier: Apache-2.0
// password.h - passwords of accounts: PBKDF2-HMAC-SHA256 with 16 bytes of salt, hashed outside the
// cloud's lock, with a back-off for wrong guesses.
//
// The functions that hash are for handlers of changing calls: they release the lock and roll back
// the transaction meanwhile, so earlier reads may be stale and earlier writes are lost.
#ifndef VT_CLOUD_PASSWORD_H
#define VT_CLOUD_PASSWORD_H

#include "cloud/api/call.h"

enum { VT_PASSWORD_HASH = 97 };

// Whether it is the account's password. An account that does not exist, has no password or is
// disabled takes as long as a wrong password. Wrong ones count against the account and the caller's
// address. errors RESOURCE_EXHAUSTED: one of these has to wait, or the daemon is at its limit of
// hashes.
vt_status vt_password_check(vt_call *call, const char *email, const char *password,
                            bool *out_right) VT_CHECKED;
// The stored form of a new password. errors INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
vt_status vt_password_hash(vt_cloud *cloud, const char *password,
                           char out_hash[VT_PASSWORD_HASH]) VT_CHECKED;
// Sets the account's password, and revokes what was signed in with the old one.
vt_status vt_password_store(vt_cloud *cloud, const char *email, const char *hash) VT_CHECKED;
// Whether a password is being hashed now; under the lock. For tests.
bool vt_password_is_hashing(const vt_cloud *cloud);
void vt_guard_free(struct vt_guard *guard); // accepts NULL

#endif
