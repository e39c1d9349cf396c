// SPDX-License-Identifier: Apache-2.0
// cursor.h - reads the primitive encodings of MLIR bytecode from a range of the file.
//
// Errors are sticky: the first one is kept in *failure with its offset; after that every read gives
// 0 and every count is 0, so loops end and the caller checks once. All cursors of one import share
// the failure.
#ifndef VT_IMPORT_CURSOR_H
#define VT_IMPORT_CURSOR_H

#include "base/file.h"
#include "base/status.h"
#include "ir/module.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vt_cursor {
  const uint8_t *file;
  size_t at, end;     // offsets into the file
  vt_status *failure; // owned by the import
} vt_cursor;

void vt_cursor_fail(vt_cursor *c, const char *format, ...) VT_PRINTF(2, 3);
uint8_t vt_cursor_byte(vt_cursor *c);
uint64_t vt_cursor_varint(vt_cursor *c);
int64_t vt_cursor_svarint(vt_cursor *c);
// varint >> 1, with the low bit in *out_flag.
uint64_t vt_cursor_flagged(vt_cursor *c, bool *out_flag);
// A count of items that take at least `bytes_each` (>= 1) bytes of the rest.
uint32_t vt_cursor_count(vt_cursor *c, size_t bytes_each);
// An index below `limit`; `what` names the table.
uint32_t vt_cursor_index(vt_cursor *c, uint32_t limit, const char *what);
vt_bytes vt_cursor_bytes(vt_cursor *c, uint64_t size);
vt_bytes vt_cursor_blob(vt_cursor *c);       // varint size, bytes
const char *vt_cursor_cstring(vt_cursor *c); // up to a NUL; "" on error
void vt_cursor_align(vt_cursor *c, uint64_t alignment);
// A number of `bits` bits, of which at most 64 are kept.
uint64_t vt_cursor_bits(vt_cursor *c, uint32_t bits);
static inline bool vt_cursor_failed(const vt_cursor *c) {
  return *c->failure != VT_OK;
}
static inline bool vt_cursor_more(const vt_cursor *c) {
  return !*c->failure && c->at < c->end;
}

#endif
