// SPDX-License-Identifier: Apache-2.0
// guest_spec.h - shared by back ends with real workers: converts a row to a requested worker
// (worker.h), and checks whether a worker answers.
#ifndef VT_CLOUD_GUEST_SPEC_H
#define VT_CLOUD_GUEST_SPEC_H

#include "cloud/state/node.h"
#include "cloud/worker/worker.h"

// All fields except its disks.
vt_status vt_guest_describe(vt_cloud *cloud, const vt_node *node, int64_t worker, const char *ip,
                            vt_worker *out_worker) VT_CHECKED;
// The lines that the launcher on another host reads: a cluster's, whose workers have no data disks.
vt_status vt_guest_spec(vt_cloud *cloud, const char *tag, const char *hub, const vt_node *node,
                        int64_t worker, const char *ip, vt_text *out_spec) VT_CHECKED;
unsigned vt_guest_uid_base(int level, const char *ip); // see vt_worker_uid_base
bool vt_guest_answers_ssh(const char *ip);             // waits 5 ms at most

#endif
