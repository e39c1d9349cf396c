// SPDX-License-Identifier: Apache-2.0
// check.h - limits on the texts of any resource, the same on create and update. All errors are
// INVALID_ARGUMENT and name the field, key or item. NULL means no text and is valid.
#ifndef VT_CLOUD_CHECK_H
#define VT_CLOUD_CHECK_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

vt_status vt_check_labels(const json_t *labels) VT_CHECKED;
// Of a node, an instance or a project, with Compute Engine's limits.
vt_status vt_check_metadata(const json_t *metadata) VT_CHECKED;
vt_status vt_check_tags(const json_t *tags) VT_CHECKED;
// One line or text of at most `max` bytes without control characters other than line ends and tabs.
vt_status vt_check_text(const char *field, const json_t *text, size_t max) VT_CHECKED;
enum { VT_MAX_DESCRIPTION = 512, VT_MAX_DISPLAY_NAME = 100 };
// The fields of a clean Node that its owner can write and read back: labels, metadata, tags,
// description.
vt_status vt_check_node(const json_t *body) VT_CHECKED;
// Limits of any request: depth, members of a list or object, length of a string.
vt_status vt_check_request(const json_t *body) VT_CHECKED;

// Whether bytes are UTF-8 without a NUL.
bool vt_text_is_good(const char *bytes, size_t size);
// The JSON object of a stored row. errors DATA_LOSS: it is not one; the message names `what`.
vt_status vt_check_stored(const char *text, const char *what, const char *id,
                          json_t **out_json) VT_CHECKED;

// Whether it is a valid id of a project or of a service account.
bool vt_check_id(const char *id);

#endif
