// SPDX-License-Identifier: Apache-2.0
// wire.h - converts protobuf bytes of the messages in schema.def to JSON and back, for gRPC.
// thread: any.
#ifndef VT_CLOUD_WIRE_H
#define VT_CLOUD_WIRE_H

#include "base/text.h"
#include "cloud/api/schema.h"

// errors INVALID_ARGUMENT for bytes that are not such a message. Unknown fields are skipped.
// *out_json is a new reference.
vt_status vt_wire_decode(const vt_message *message, unsigned api, const void *bytes, size_t size,
                         json_t **out_json) VT_CHECKED;
// Appends the message; JSON fields that are not in the table are left out.
void vt_wire_encode(const vt_message *message, unsigned api, const json_t *json,
                    vt_text *out_bytes);

#endif
