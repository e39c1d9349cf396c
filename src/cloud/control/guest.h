// SPDX-License-Identifier: Apache-2.0
// guest.h - the machines behind the workers of nodes, as the reconciler drives them: the back end.
// One driver per daemon: this host, or the hosts of a Slurm cluster.
//
// Every function is idempotent and quick (it starts processes but does not wait for them) and runs
// under the cloud's lock; a restarted daemon finds its earlier guests with `poll`. Level 0 has no
// machines: every worker counts as running.
#ifndef VT_CLOUD_GUEST_H
#define VT_CLOUD_GUEST_H

#include "cloud/state/node.h"

typedef enum vt_guest_state {
  VT_GUEST_RUNNING,
  VT_GUEST_STARTING,
  VT_GUEST_UNKNOWN, // currently unknown: ask again, change nothing
  VT_GUEST_ABSENT,
  VT_GUEST_NO_ROOM,   // starts when a host has room
  VT_GUEST_PREEMPTED, // preempted by the back end
  VT_GUEST_FAILED
} vt_guest_state;

struct vt_guest_driver {
  // Starts booting one worker. errors: the host cannot (no disk, no privilege).
  vt_status (*start)(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                     const char *ip) VT_CHECKED;
  vt_guest_state (*poll)(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                         const char *ip);
  // Ends a worker's processes, and removes its disk if `erase`. Returns whether everything is gone.
  bool (*stop)(vt_guest_driver *driver, int64_t uid, int64_t worker, bool erase);
  // Makes the disks that a running worker sees match its node's; returns whether they do.
  bool (*disks)(vt_guest_driver *driver, const vt_node *node, int64_t worker, const char *ip);
  // Announces its end to a worker: runs its shutdown script.
  void (*notify)(vt_guest_driver *driver, int64_t uid, int64_t worker);
  // After a restart: ends the guests that no node owns.
  vt_status (*sweep)(vt_guest_driver *driver) VT_CHECKED;
  // Ends every guest and erases its disk, whether or not a node owns it; returns whether all are
  // gone. For throw-away clouds.
  bool (*end_all)(vt_guest_driver *driver);
  void (*destroy)(vt_guest_driver *driver);
  bool watched; // its guests may end by themselves, so those of READY nodes are polled
  // NULL when there is no log: the worker's output, up to `limit` bytes from *start, which advances
  // when older output is gone; returns the offset after them.
  int64_t (*output)(vt_guest_driver *driver, int64_t uid, int64_t worker, int64_t *start,
                    int64_t limit, vt_text *out_text);
};

// Level 0.
vt_status vt_guest_none_create(vt_guest_driver **out_driver) VT_CHECKED;
// Levels 1 and 2 (guest_linux.c), the one in the cloud's options. errors UNIMPLEMENTED with the
// reason if this host does not support it.
vt_status vt_guest_linux_create(vt_cloud *cloud, vt_guest_driver **out_driver) VT_CHECKED;
// The hosts of a Slurm cluster (slurm_driver.c), one job per worker; configured by the cloud's
// options. Level 0 or 2. errors INVALID_ARGUMENT, UNIMPLEMENTED.
vt_status vt_guest_slurm_create(vt_cloud *cloud, vt_guest_driver **out_driver) VT_CHECKED;
// A level, or -1: the best that this host supports. Sets the cloud's option, and `machines` to a
// description of it and why it is not a better one. The back end is the one of the cloud's options.
vt_status vt_guest_create(vt_cloud *cloud, int level, vt_guest_driver **out_driver) VT_CHECKED;

#endif
