// SPDX-License-Identifier: Apache-2.0
// record.h - what clients ask and what they are told, as JSON lines, for tests that send it again
// (python/vtpu/replay.py). A row: method, path, host, type, body, agent, caller ("" nobody),
// status, and `reply` where it is JSON. Calls over gRPC are the REST calls that they stand for.
//
// No secret is written: credentials of the call are left out, and where a name or its look says
// that a value in a path, a body or a reply is one, "{secret}" stands for it.
#ifndef VT_CLOUD_RECORD_H
#define VT_CLOUD_RECORD_H

#include "cloud/api/call.h"

typedef struct vt_recorder vt_recorder;

// A new file at `path`, for its owner only. errors ALREADY_EXISTS, UNAVAILABLE.
vt_status vt_recorder_create(const char *path, vt_recorder **out_recorder) VT_CHECKED;
void vt_recorder_destroy(vt_recorder *recorder); // accepts NULL

// The request half of the call's row, before it runs; NULL when nothing is recorded.
json_t *vt_record_request(const vt_call *call);
// Completes the row with the reply and writes it. Takes `row`; NULL is nothing. Without the cloud's
// lock; rows of calls that run side by side come in the order of their ends.
void vt_record_reply(const vt_call *call, json_t *row);

// For tests. Text of any kind; "a=b&c=d"; a value, as a new reference.
void vt_record_redact_text(const char *text, size_t size, vt_text *out);
void vt_record_redact_pairs(const char *text, size_t size, vt_text *out);
json_t *vt_record_redact_json(const json_t *value);

#endif
