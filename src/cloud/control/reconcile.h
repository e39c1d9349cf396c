// SPDX-License-Identifier: Apache-2.0
// reconcile.h - makes reality match the rows: boots and ends guests, changes states, serves the
// queue, ends grants.
//
// Each step is one transaction, so a daemon killed anywhere continues from the last step. Under the
// cloud's lock.
#ifndef VT_CLOUD_RECONCILE_H
#define VT_CLOUD_RECONCILE_H

#include "cloud/store/cloud.h"

// Steps until nothing more can be done now; *out_busy: guests are booting or ending, call again
// soon.
vt_status vt_reconcile(vt_cloud *cloud, bool *out_busy) VT_CHECKED;
// When the next timed step is due, INT64_MAX for never.
vt_status vt_reconcile_due(vt_cloud *cloud, int64_t *out_ns) VT_CHECKED;
// Advances the virtual clock to `to_ns`, running each timed step at its time.
vt_status vt_reconcile_advance(vt_cloud *cloud, int64_t to_ns) VT_CHECKED;

// A thread that reconciles whenever something changed or became due.
typedef struct vt_reconciler vt_reconciler;
vt_status vt_reconciler_start(vt_cloud *cloud, vt_reconciler **out_reconciler) VT_CHECKED;
void vt_reconciler_stop(vt_reconciler *reconciler); // accepts NULL

#endif
