// SPDX-License-Identifier: Apache-2.0
// job.h - jobs: processes of TPU VMs that used the chips, what they ran, how long it took here, and
// the time and cost it would have taken on the slice. Workers report them with their chip use and
// are trusted as little: shown, never billed.
#ifndef VT_CLOUD_JOB_H
#define VT_CLOUD_JOB_H

#include "cloud/state/node.h"

// Stores the lines "job PID PROGRAMS BUSY_NS DEVICE_NS HBM_BYTES ENDED NAME" of a worker's report
// and ignores others. `epoch`: the boot of the worker. In the caller's transaction.
vt_status vt_jobs_report(vt_cloud *cloud, const vt_node *node, int64_t worker, int64_t epoch,
                         const char *text) VT_CHECKED;
// The node is gone: ends its jobs.
vt_status vt_jobs_end(vt_cloud *cloud, int64_t uid) VT_CHECKED;

#endif
