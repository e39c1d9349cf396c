// SPDX-License-Identifier: Apache-2.0
// npz.h - NumPy's .npy and .npz files: reads and writes named dense arrays.
//
// Reads C-ordered arrays of numbers and bools, little endian, stored or deflated in the archive;
// Fortran order is transposed. Writes without compression. Everything read is checked.
#ifndef VT_BASE_NPZ_H
#define VT_BASE_NPZ_H

#include <stdint.h>

#include "base/arena.h"
#include "base/file.h"

enum { VT_NPZ_MAX_RANK = 32 };

typedef struct vt_npz_array {
  const char *name; // without ".npy"
  char kind;        // 'b' bool, 'i', 'u', 'f', 'c', 'V' raw bytes (types NumPy lacks)
  int32_t item_bytes;
  int32_t rank;
  int64_t dims[VT_NPZ_MAX_RANK];
  void *data; // C order; the size is the product of dims times item_bytes
} vt_npz_array;

typedef struct vt_npz {
  vt_npz_array *arrays;
  uint32_t count;
} vt_npz;

// Reads a .npz (or a single .npy, as one array named "") into `arena`, data aligned to 64 bytes.
// errors NOT_FOUND, INVALID_ARGUMENT: malformed, with the location
vt_status vt_npz_read(const char *path, vt_arena *arena, vt_npz *out) VT_CHECKED;
vt_status vt_npz_parse(vt_bytes bytes, vt_arena *arena, vt_npz *out) VT_CHECKED;
// The array of that name, or NULL.
const vt_npz_array *vt_npz_find(const vt_npz *npz, const char *name);
int64_t vt_npz_bytes(const vt_npz_array *array);
// Writes a .npz, or a .npy when the path ends in that and there is one array.
vt_status vt_npz_write(const char *path, const vt_npz_array *arrays, uint32_t count) VT_CHECKED;

#endif
