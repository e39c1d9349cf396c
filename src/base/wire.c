// SPDX-License-Identifier: Apache-2.0
// wire.c - the protocol buffer wire format.
#include "base/wire.h"

vt_status vt_wire_varint(vt_wire *wire, uint64_t *out_value) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (wire->at == wire->end)
      return vt_error(VT_INVALID_ARGUMENT, "message: a number runs past the end");
    uint8_t byte = *wire->at++;
    value |= (uint64_t)(byte & 0x7F) << shift;
    if (!(byte & 0x80)) {
      *out_value = value;
      return VT_OK;
    }
  }
  return vt_error(VT_INVALID_ARGUMENT, "message: a number of more than ten bytes");
}

static vt_status fixed(vt_wire *wire, size_t size, uint64_t *out_value) {
  if ((size_t)(wire->end - wire->at) < size)
    return vt_error(VT_INVALID_ARGUMENT, "message: a fixed number runs past the end");
  *out_value = 0;
  for (size_t i = 0; i < size; i++) *out_value |= (uint64_t)wire->at[i] << (8 * i);
  wire->at += size;
  return VT_OK;
}

vt_status vt_wire_next(vt_wire *wire, vt_wire_field *out_field, bool *out_more) {
  *out_field = (vt_wire_field){0};
  *out_more = wire->at < wire->end;
  if (!*out_more) return VT_OK;
  uint64_t key;
  VT_TRY(vt_wire_varint(wire, &key));
  out_field->number = (uint32_t)(key >> 3);
  out_field->wire = (uint32_t)(key & 7);
  if (key >> 32 || out_field->number == 0)
    return vt_error(VT_INVALID_ARGUMENT, "message: field number %llu",
                    (unsigned long long)(key >> 3));
  switch (out_field->wire) {
  case 0:
    return vt_wire_varint(wire, &out_field->value);
  case 1:
    return fixed(wire, 8, &out_field->value);
  case 5:
    return fixed(wire, 4, &out_field->value);
  case 2: {
    uint64_t size;
    VT_TRY(vt_wire_varint(wire, &size));
    if (size > (uint64_t)(wire->end - wire->at))
      return vt_error(VT_INVALID_ARGUMENT, "message: field %u of %llu bytes runs past the end",
                      out_field->number, (unsigned long long)size);
    out_field->bytes = (vt_bytes){wire->at, (size_t)size};
    wire->at += size;
    return VT_OK;
  }
  default:
    return vt_error(VT_INVALID_ARGUMENT, "message: wire type %u of field %u", out_field->wire,
                    out_field->number);
  }
}

void vt_wire_put_varint(vt_text *text, uint64_t value) {
  uint8_t bytes[10];
  size_t size = 0;
  do {
    bytes[size] = (uint8_t)(value & 0x7F);
    value >>= 7;
    if (value) bytes[size] |= 0x80;
    size++;
  } while (value);
  vt_text_put_n(text, bytes, size);
}

void vt_wire_put_uint(vt_text *text, uint32_t number, uint64_t value) {
  vt_wire_put_varint(text, (uint64_t)number << 3);
  vt_wire_put_varint(text, value);
}

void vt_wire_put_bytes(vt_text *text, uint32_t number, const void *bytes, size_t size) {
  vt_wire_put_varint(text, (uint64_t)number << 3 | 2);
  vt_wire_put_varint(text, size);
  vt_text_put_n(text, bytes, size);
}
