// SPDX-License-Identifier: Apache-2.0
// chip_use.h - how busy the chips of a node are: what its workers report, kept for idle detection,
// the bill, metrics and whoever looks.
//
// A worker reports sums that only grow within one boot (`epoch`). Of a slice, the worker that used
// it most counts: the workers of a slice run the same programs. Reports are the word of the worker:
// they show and they warn, they are no price.
#ifndef VT_CLOUD_CHIP_USE_H
#define VT_CLOUD_CHIP_USE_H

#include "cloud/state/node.h"

typedef struct vt_chip_use {
  double duty;                             // share of the last seconds that the chips were busy
  int64_t programs, busy_ns, device_ns;    // since the node was made; device: virtual time
  int64_t processes, hbm_bytes, hbm_limit; // now
  int64_t reported_ns;                     // 0 = never
} vt_chip_use;

// Takes a worker's report, lines "name value", in a transaction of its own.
// errors INVALID_ARGUMENT
vt_status vt_use_report(vt_cloud *cloud, const vt_node *node, int64_t worker,
                        const char *text) VT_CHECKED;
vt_status vt_use_read(vt_cloud *cloud, int64_t uid, vt_chip_use *out_use) VT_CHECKED;
vt_status vt_use_forget(vt_cloud *cloud, int64_t uid) VT_CHECKED; // the node is gone
// One gauge or counter a READY node, as Prometheus reads it.
vt_status vt_use_metrics(vt_cloud *cloud, vt_text *out_text) VT_CHECKED;

#endif
