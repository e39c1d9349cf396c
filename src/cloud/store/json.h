// SPDX-License-Identifier: Apache-2.0
// json.h - JSON values in base's memory: an attempt (base/memory.h) that runs out of it is
// abandoned inside the JSON library, too, so that no field goes missing, and frees the values it
// has made.
#ifndef VT_CLOUD_JSON_H
#define VT_CLOUD_JSON_H

#include <jansson.h>

// Moves the library to base's memory; before the process makes its first value that it keeps.
void vt_json_start(void);
// The text of a value, with the flags of json_dumps; the caller frees it with vt_memory_free. NULL:
// `json` is NULL, or neither an object nor an array without JSON_ENCODE_ANY.
char *vt_json_text(const json_t *json, size_t flags);

#endif
