// SPDX-License-Identifier: Apache-2.0
// file.h - reading and writing whole files, and borrowed byte ranges.
#ifndef VT_BASE_FILE_H
#define VT_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct vt_bytes {
  const uint8_t *data;
  size_t size;
} vt_bytes;

// Maps a file for reading. errors NOT_FOUND, PERMISSION_DENIED, INTERNAL with path and cause.
vt_status vt_file_map(const char *path, vt_bytes *out_bytes) VT_CHECKED;
void vt_file_unmap(vt_bytes *bytes); // accepts zero; zeroes
// Writes `path` through a temporary file next to it and a rename: readers see the old or the new
// content.
vt_status vt_file_write(const char *path, const void *bytes, size_t size) VT_CHECKED;

#endif
