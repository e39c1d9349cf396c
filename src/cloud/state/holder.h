// SPDX-License-Identifier: Apache-2.0
// holder.h - holders: the processes of a worker that have the chips open now, as the worker reports
// them. There are no locks: a holder is a live process, so one that ended in any way is gone from
// the worker's next report.
#ifndef VT_CLOUD_HOLDER_H
#define VT_CLOUD_HOLDER_H

#include "cloud/state/node.h"

typedef struct vt_holder {
  int64_t worker, epoch, pid;
  int64_t opened_ns; // by the worker's clock; identifies the process together with the pid
  int64_t since_ns;
  int64_t release_ns;                    // when its end was requested, 0 = not
  const char *user, *versions, *program; // versions: "libvtpu=0.1.0,JAX=0.10.2", "-" = none
} vt_holder;

typedef VT_ARRAY(vt_holder) vt_holders;

// Replaces the worker's holders by the lines "holder PID OPENED_NS AGE_NS USER VERSIONS PROGRAM" of
// its report; ignores other lines. In the caller's transaction.
vt_status vt_holders_report(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t epoch,
                            const char *text) VT_CHECKED;
// Holders of a READY node, by worker and time; empty for other states.
vt_status vt_holders_read(vt_cloud *cloud, vt_arena *arena, int64_t uid,
                          vt_holders *out_holders) VT_CHECKED;
// The processes a worker has to end, as lines "release PID OPENED_NS WHO".
vt_status vt_holders_orders(vt_cloud *cloud, int64_t uid, int64_t worker,
                            vt_text *out_lines) VT_CHECKED;
// Deletes the holders of a worker that has rebooted since, or all of a node that goes (worker -1).
// In the caller's transaction.
vt_status vt_holders_forget(vt_cloud *cloud, int64_t uid, int64_t worker, int64_t epoch) VT_CHECKED;

#endif
