// SPDX-License-Identifier: Apache-2.0
// wire.h - the wire format of protocol buffers, field by field.
//
// The reader trusts nothing: every length is checked against what is left. Whoever reads a message
// skips the fields that it does not know.
#ifndef VT_BASE_WIRE_H
#define VT_BASE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/text.h"

typedef struct vt_wire {
  const uint8_t *at, *end;
} vt_wire;

typedef struct vt_wire_field {
  uint32_t number;
  uint32_t wire;  // 0 varint, 1 64 bits, 2 bytes, 5 32 bits
  uint64_t value; // wire 0, 1, 5
  vt_bytes bytes; // wire 2
} vt_wire_field;

static inline vt_wire vt_wire_open(vt_bytes bytes) {
  return (vt_wire){bytes.data, bytes.size ? bytes.data + bytes.size : bytes.data};
}
// The next field; false at the end. errors INVALID_ARGUMENT
vt_status vt_wire_next(vt_wire *wire, vt_wire_field *out_field, bool *out_more) VT_CHECKED;
// One varint of a packed list.
vt_status vt_wire_varint(vt_wire *wire, uint64_t *out_value) VT_CHECKED;

void vt_wire_put_varint(vt_text *text, uint64_t value);
void vt_wire_put_uint(vt_text *text, uint32_t number, uint64_t value);
void vt_wire_put_bytes(vt_text *text, uint32_t number, const void *bytes, size_t size);

#endif
