// SPDX-License-Identifier: Apache-2.0
// text.h - a growing string for printers and reports. A zeroed vt_text is empty and valid.
#ifndef VT_BASE_TEXT_H
#define VT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct vt_text {
  char *data; // NUL-terminated once anything was appended; owned
  size_t size, capacity;
} vt_text;

void vt_text_put(vt_text *text, const char *string);
void vt_text_put_n(vt_text *text, const void *bytes, size_t size);
// As vt_text_put_n, for a text that outlives the caller's attempt; false when memory runs out.
bool vt_text_try_put_n(vt_text *text, const void *bytes, size_t size);
void vt_text_printf(vt_text *text, const char *format, ...) VT_PRINTF(2, 3);
const char *vt_text_string(const vt_text *text); // borrowed; "" when empty
void vt_text_free(vt_text *text);

// Distance of a typed name from a known one: twice the edit distance; 1 when the typed name is a
// prefix of the known one. Only the first 63 bytes of a known name count.
int vt_text_distance(const char *typed, const char *known);

#endif
