// SPDX-License-Identifier: Apache-2.0
// terminal.h - login shells of workers in a browser. While one is open, a key of the daemon's opens
// that account on that node; the key is in no metadata that users read or write.
#ifndef VT_CLOUD_TERMINAL_H
#define VT_CLOUD_TERMINAL_H

#include "cloud/state/node.h"

// All of these under the cloud's lock.

// Iterates over the accounts with an open terminal on a node: *at begins NULL. `key` is the public
// key of the account. NULL past the last.
typedef struct vt_terminal_user {
  const char *user, *key;
  bool admin; // may become root
} vt_terminal_user;
const vt_terminal_user *vt_terminal_users(const vt_cloud *cloud, int64_t uid, const void **at);

#endif
