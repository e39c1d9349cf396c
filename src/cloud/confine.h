// SPDX-License-Identifier: Apache-2.0
// confine.h - the process of vtpud that strangers talk to gives up what it does not need: root,
// capabilities, privileges of programs it starts, calls of the kernel, files to write.
#ifndef VT_CLOUD_CONFINE_H
#define VT_CLOUD_CONFINE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct vt_confine {
  uid_t uid;
  gid_t gid;
  bool drops; // false: this process is not root, or is to stay it
} vt_confine;

// The account of the process: `user`; where that is "", vtpud if there is such an account, else
// nobody. errors INVALID_ARGUMENT: no such account.
vt_status vt_confine_choose(const char *user, vt_confine *out_confine) VT_CHECKED;
// Makes the state folder one that the account can write into but not rearrange: what belongs to
// root in it stays where it is. Files of the daemon's that a run as root has left become the
// account's. errors UNAVAILABLE.
vt_status vt_confine_state(const vt_confine *confine, const char *state) VT_CHECKED;
// A path at which the account can read a file that now only we can; in `arena`. The same path where
// nothing is dropped.
vt_status vt_confine_file(const vt_confine *confine, vt_arena *arena, const char *path,
                          const char **out_path) VT_CHECKED;
// Becomes the account, for ever. Before threads, and before the first byte of a stranger.
vt_status vt_confine_enter(const vt_confine *confine, const char *state) VT_CHECKED;

#endif
