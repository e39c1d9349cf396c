// SPDX-License-Identifier: Apache-2.0
// confine.h - drops what the process that serves untrusted clients does not need: root,
// capabilities, privileges of the programs it starts, system calls, write access to files.
#ifndef VT_CLOUD_CONFINE_H
#define VT_CLOUD_CONFINE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct vt_confine {
  uid_t uid;
  gid_t gid;
  bool drops; // false: this process is not root, or is to stay root
} vt_confine;

// The account to run as: `user`, or if that is "", vtpud if there is such an account, else nobody.
// errors INVALID_ARGUMENT: no such account.
vt_status vt_confine_choose(const char *user, vt_confine *out_confine) VT_CHECKED;
// Makes the state folder one that the account can write to but not rearrange: files of root's in it
// stay in place. Daemon files left by an earlier run as root change owner to the account. errors
// UNAVAILABLE.
vt_status vt_confine_state(const vt_confine *confine, const char *state) VT_CHECKED;
// A path at which the account can read a file that only we can read now; in `arena`. The same path
// when no privileges are dropped.
vt_status vt_confine_file(const vt_confine *confine, vt_arena *arena, const char *path,
                          const char **out_path) VT_CHECKED;
// Becomes the account, irrevocably. Call before starting threads and before reading from any
// client.
vt_status vt_confine_enter(const vt_confine *confine, const char *state) VT_CHECKED;

#endif
