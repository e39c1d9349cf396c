// SPDX-License-Identifier: Apache-2.0
// password.h - passwords of accounts: PBKDF2-HMAC-SHA256 with 16 bytes of salt, hashed outside of
// the cloud's lock, and guesses that get slower.
//
// The functions that hash are for handlers of changing calls: they let go of the lock and of the
// transaction meanwhile, so what was read before may have changed, and what was written is undone.
#ifndef VT_CLOUD_PASSWORD_H
#define VT_CLOUD_PASSWORD_H

#include "cloud/api/call.h"

enum { VT_PASSWORD_HASH = 97 };

// Whether it is the account's. An account that is not there, has no password or is disabled takes
// the same time as a wrong one. Wrong ones count against the account and the caller's address.
// errors RESOURCE_EXHAUSTED: one of these has to wait, or the daemon hashes as many as it may.
vt_status vt_password_check(vt_call *call, const char *email, const char *password,
                            bool *out_right) VT_CHECKED;
// What the store keeps of a new password. errors INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
vt_status vt_password_hash(vt_cloud *cloud, const char *password,
                           char out_hash[VT_PASSWORD_HASH]) VT_CHECKED;
// Gives the account that password, and ends what was signed in with the one before.
vt_status vt_password_store(vt_cloud *cloud, const char *email, const char *hash) VT_CHECKED;
// Whether one is being hashed now; under the lock. For tests.
bool vt_password_is_hashing(const vt_cloud *cloud);
void vt_guard_free(struct vt_guard *guard); // accepts NULL

#endif
