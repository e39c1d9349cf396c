// SPDX-License-Identifier: Apache-2.0
// health.h - the health of a node: heartbeats of its workers, and observed symptoms.
//
// Heartbeats are kept in memory only: a daemon that starts treats every worker as just heard.
// Health is a column of the node and follows from heartbeats and symptoms while the node is READY:
//   TIMEOUT               no heartbeat of a worker for VT_SILENCE_NS
//   UNHEALTHY_TENSORFLOW  a run that does not end (VT_STUCK_NS), or hosts that have the chips open
//                         and run nothing while others have not started (VT_WAITING_NS)
//   HEALTHY               otherwise
// Symptoms are rows, the last one per kind and worker, until the node stops.
#ifndef VT_CLOUD_HEALTH_H
#define VT_CLOUD_HEALTH_H

#include "cloud/state/node.h"

#define VT_SILENCE_NS (10 * VT_SECOND) // five heartbeats
#define VT_STUCK_NS   VT_HOUR
#define VT_WAITING_NS (300 * VT_SECOND)

struct vt_pulses;
void vt_pulses_free(struct vt_pulses *pulses); // accepts NULL

// Records a worker's heartbeat.
void vt_health_heard(vt_cloud *cloud, int64_t uid, int64_t worker);
// Starts the timeout of workers never heard from, where the machines behind them are real; `anew`:
// all others count as heard now, too.
void vt_health_expect(vt_cloud *cloud, const vt_node *node, bool anew);
// How long the longest run of a worker's programs has been going on, from its reports; for workers
// with a timeout.
void vt_health_longest(vt_cloud *cloud, int64_t uid, int64_t worker, int64_t longest_ns);
bool vt_health_silent(const vt_cloud *cloud, int64_t uid, int64_t worker);

// Stores the lines "symptom TYPE DETAILS" of a worker and ignores others. In the caller's
// transaction.
vt_status vt_health_symptoms(vt_cloud *cloud, vt_node *node, int64_t worker,
                             const char *text) VT_CHECKED;
// The list in the API's form; a new reference.
vt_status vt_health_view(vt_cloud *cloud, int64_t uid, json_t **out_list) VT_CHECKED;
vt_status vt_health_forget(vt_cloud *cloud, int64_t uid) VT_CHECKED;

// Whether the health of a READY node needs an update.
vt_status vt_health_differs(vt_cloud *cloud, vt_arena *arena, const vt_node *node,
                            bool *out_differs) VT_CHECKED;
// Updates it, with the matching symptom and a row of the audit trail. In the caller's transaction.
vt_status vt_health_settle(vt_cloud *cloud, vt_arena *arena, vt_node *node,
                           bool *out_changed) VT_CHECKED;
// Settles the nodes of workers that went silent; called by the reconciler, outside transactions.
vt_status vt_health_sweep(vt_cloud *cloud) VT_CHECKED;

#endif
