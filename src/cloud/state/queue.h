// SPDX-License-Identifier: Apache-2.0
// queue.h - queued resources: requests for nodes that wait until there are chips for all of them.
//
// States: ACCEPTED, WAITING_FOR_RESOURCES, PROVISIONING, ACTIVE; SUSPENDING, SUSPENDED when a node
// was taken away; FAILED when it cannot be served; DELETING. The create operation is done as soon
// as the request is in the queue.
#ifndef VT_CLOUD_QUEUE_H
#define VT_CLOUD_QUEUE_H

#include "cloud/state/node.h"

// `error` is the JSON of a google.rpc.Status, "" none.
typedef struct vt_queued {
  VT_ROW_MEMBERS(queued);
  json_t *body; // decoded `text`
} vt_queued;

vt_status vt_queued_load_uid(vt_cloud *cloud, vt_arena *arena, int64_t uid, vt_queued *out_queued,
                             bool *out_found) VT_CHECKED;
// The one in the call's path; NOT_FOUND with the text clients expect.
vt_status vt_queued_find(vt_call *call, vt_queued *out_queued) VT_CHECKED;
void vt_queued_fini(vt_queued *queued);
vt_status vt_queued_set_state(vt_cloud *cloud, vt_queued *queued, const char *state,
                              const char *initiator,
                              json_t *error) VT_CHECKED; // takes `error`
vt_status vt_queued_remove(vt_cloud *cloud, const vt_queued *queued) VT_CHECKED;
vt_status vt_queued_view(vt_cloud *cloud, const vt_queued *queued, json_t **out_json) VT_CHECKED;
// Uids of its nodes, in id order.
vt_status vt_queued_nodes(vt_cloud *cloud, vt_arena *arena, const vt_queued *queued,
                          int64_t **out_uids, size_t *out_count) VT_CHECKED;
// Tries to create all nodes of the request at once, each with its chips. *out_placement as
// vt_place; creates nothing unless VT_PLACED (0 placed, 1 wait, 2 none). errors INVALID_ARGUMENT,
// RESOURCE_EXHAUSTED: the request cannot be served.
vt_status vt_queued_provision(vt_cloud *cloud, vt_arena *arena, const vt_queued *queued,
                              int *out_placement) VT_CHECKED;

#endif
