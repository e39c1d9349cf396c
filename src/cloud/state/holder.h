// SPDX-License-Identifier: Apache-2.0
// holder.h - holders: the processes of a worker that have the chips open now, as the worker tells
// them. Nothing is locked: a holder is a process that lives, so one that ended, however it ended,
// holds nothing at the worker's next report.
#ifndef VT_CLOUD_HOLDER_H
#define VT_CLOUD_HOLDER_H

#include "cloud/state/node.h"

typedef struct vt_holder {
  int64_t worker, epoch, pid;
  int64_t opened_ns; // the worker's own clock; with the pid, the name of the process
  int64_t since_ns;
  int64_t release_ns;                    // when somebody asked the worker to end it, 0 = not
  const char *user, *versions, *program; // versions: "libvtpu=0.1.0,JAX=0.10.2", "-" = none told
} vt_holder;

typedef VT_ARRAY(vt_holder) vt_holders;

// Takes the lines "holder PID OPENED_NS AGE_NS USER VERSIONS PROGRAM" of a worker's report in place
// of the worker's last ones; other lines are not its own. In the caller's transaction.
vt_status vt_holders_report(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t epoch,
                            const char *text) VT_CHECKED;
// Those of a READY node, by worker and time; none otherwise.
vt_status vt_holders_read(vt_cloud *cloud, vt_arena *arena, int64_t uid,
                          vt_holders *out_holders) VT_CHECKED;
// What a worker is to end, as lines "release PID OPENED_NS WHO".
vt_status vt_holders_orders(vt_cloud *cloud, int64_t uid, int64_t worker,
                            vt_text *out_lines) VT_CHECKED;
// Those of a worker whose boot is another one by now, or all of a node (worker -1) that goes. In
// the caller's transaction.
vt_status vt_holders_forget(vt_cloud *cloud, int64_t uid, int64_t worker, int64_t epoch) VT_CHECKED;

#endif
