// SPDX-License-Identifier: Apache-2.0
// chip_use.h - chip use of a node as its workers report it, kept for idle detection, the bill,
// metrics and users.
//
// A worker reports sums that only grow within one boot (`epoch`). For a slice, the worker with the
// most use counts, since its workers run the same programs. Reports are not trusted: they inform
// and warn, but set no price.
#ifndef VT_CLOUD_CHIP_USE_H
#define VT_CLOUD_CHIP_USE_H

#include "cloud/state/node.h"

typedef struct vt_chip_use {
  double duty;                             // fraction of the last seconds that the chips were busy
  int64_t programs, busy_ns, device_ns;    // since the node was created; device: virtual time
  int64_t processes, hbm_bytes, hbm_limit; // now
  int64_t reported_ns;                     // 0 = never
} vt_chip_use;

// Stores a worker's report, lines "name value", in its own transaction. errors INVALID_ARGUMENT
vt_status vt_use_report(vt_cloud *cloud, const vt_node *node, int64_t worker,
                        const char *text) VT_CHECKED;
vt_status vt_use_read(vt_cloud *cloud, int64_t uid, vt_chip_use *out_use) VT_CHECKED;
vt_status vt_use_forget(vt_cloud *cloud, int64_t uid) VT_CHECKED; // when the node is gone
// One gauge or counter per READY node, in Prometheus format.
vt_status vt_use_metrics(vt_cloud *cloud, vt_text *out_text) VT_CHECKED;

#endif
