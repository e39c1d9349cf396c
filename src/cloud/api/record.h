// SPDX-License-Identifier: Apache-2.0
// record.h - client requests and their replies as JSON lines, for tests that replay them
// (python/vtpu/replay.py). A row: method, path, host, type, body, agent, caller ("" nobody),
// status, and `reply` if it is JSON. Calls over gRPC are recorded as the REST calls they map to.
//
// No secret is written: the call's credentials are left out, and a value in a path, a body or a
// reply that is secret by its name or format is replaced by "{secret}".
#ifndef VT_CLOUD_RECORD_H
#define VT_CLOUD_RECORD_H

#include "cloud/api/call.h"

typedef struct vt_recorder vt_recorder;

// Creates the file `path`, readable by its owner only. errors ALREADY_EXISTS, UNAVAILABLE.
vt_status vt_recorder_create(const char *path, vt_recorder **out_recorder) VT_CHECKED;
void vt_recorder_destroy(vt_recorder *recorder); // accepts NULL

// The request part of the call's row, before it runs; NULL when not recording.
json_t *vt_record_request(const vt_call *call);
// Completes the row with the reply and writes it. Takes `row`; NULL is a no-op. Call without the
// cloud's lock; concurrent calls are written in the order in which they end.
void vt_record_reply(const vt_call *call, json_t *row);

// For tests. Text of any kind; "a=b&c=d"; a value, as a new reference.
void vt_record_redact_text(const char *text, size_t size, vt_text *out);
void vt_record_redact_pairs(const char *text, size_t size, vt_text *out);
json_t *vt_record_redact_json(const json_t *value);

#endif
