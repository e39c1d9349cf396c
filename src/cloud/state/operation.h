// SPDX-License-Identifier: Apache-2.0
// operation.h - long-running operations: rows that a client polls until `done`.
//
// An operation starts and finishes in the transaction of its change. A response is stored as it
// will be shown.
#ifndef VT_CLOUD_OPERATION_H
#define VT_CLOUD_OPERATION_H

#include "cloud/api/call.h"

typedef struct vt_operation_start {
  const char *project, *zone, *api_name, *caller, *request_id; // request_id may be NULL
  const char *verb, *target;
  int64_t node; // uid, 0 = none
} vt_operation_start;

// Creates an open operation. *out_name is "operation-...", in `arena`.
vt_status vt_operation_create(vt_cloud *cloud, vt_arena *arena, const vt_operation_start *start,
                              const char **out_name) VT_CHECKED;
// Completes it with either error (a google.rpc.Status) or response (with or without @type; NULL
// gives Empty); takes both.
vt_status vt_operation_finish(vt_cloud *cloud, const char *name, json_t *error,
                              json_t *response) VT_CHECKED;
// The API object, new reference. errors NOT_FOUND.
vt_status vt_operation_view(vt_cloud *cloud, const char *name, json_t **out_json) VT_CHECKED;
// Sets call->reply to the operation.
vt_status vt_operation_reply(vt_call *call, const char *name) VT_CHECKED;
// When requestId names an earlier request of the caller for the same method and resource: sets its
// reply, and *out_replayed. errors INVALID_ARGUMENT: the earlier request had other content.
vt_status vt_operation_replay(vt_call *call, bool *out_replayed) VT_CHECKED;
// Starts an operation with the fields of the call.
vt_status vt_operation_for_call(vt_call *call, const char *verb, const char *target, int64_t node,
                                const char **out_name) VT_CHECKED;
// The name and API name of a node's oldest open operation with that verb ("" any), "" when none.
vt_status vt_operation_open_of(vt_cloud *cloud, vt_arena *arena, int64_t node, const char *verb,
                               const char **out_name, const char **out_api) VT_CHECKED;

#endif
