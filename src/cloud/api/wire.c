// SPDX-License-Identifier: Apache-2.0
// wire.c - table-driven protobuf encoding: varints, length-delimited fields, the well-known types
// that have their own JSON form (Timestamp, Duration, FieldMask, Any, maps). Source: protobuf
// encoding guide, proto3 JSON mapping.
#include "cloud/api/wire.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/check.h"

typedef struct reader {
  const unsigned char *p, *end;
} reader;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, MAX_DEPTH = 32 };

static bool read_varint(reader *r, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && r->p < r->end; shift += 7) {
    unsigned char byte = *r->p++;
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

// The content of one field: a number, or a range of bytes.
static bool read_content(reader *r, unsigned kind, uint64_t *out_number, reader *out_bytes) {
  *out_number = 0;
  *out_bytes = (reader){r->p, r->p};
  switch (kind) {
  case VARINT:
    return read_varint(r, out_number);
  case FIXED64:
  case FIXED32: {
    size_t n = kind == FIXED64 ? 8 : 4;
    if ((size_t)(r->end - r->p) < n) return false;
    memcpy(out_number, r->p, n);
    r->p += n;
    return true;
  }
  case BYTES:
    if (!read_varint(r, out_number) || *out_number > (uint64_t)(r->end - r->p)) return false;
    *out_bytes = (reader){r->p, r->p + *out_number};
    r->p += *out_number;
    return true;
  default:
    return false;
  }
}

static json_t *read_time(reader r, bool duration) {
  uint64_t tag, number;
  int64_t seconds = 0, nanos = 0;
  reader bytes;
  char text[40];
  while (r.p < r.end) {
    if (!read_varint(&r, &tag) || !read_content(&r, (unsigned)tag & 7, &number, &bytes))
      return NULL;
    if (tag >> 3 == 1) seconds = (int64_t)number;
    if (tag >> 3 == 2) nanos = (int64_t)number;
  }
  // The cloud does not keep times before 1970 or after 2262.
  if (seconds < 0 || seconds > 9223372035 || nanos < 0 || nanos > 999999999) return NULL;
  (duration ? vt_duration_format : vt_time_format)(seconds * 1000000000 + nanos, text);
  return json_string(text);
}

// Text as in proto3: UTF-8. proto3 allows NUL, but our rows cannot hold it. NULL when invalid.
static json_t *read_text(const void *bytes, size_t size) {
  return vt_text_is_good(bytes, size) ? json_stringn(bytes, size) : NULL;
}

static json_t *read_mask(reader r) {
  uint64_t tag, number;
  reader bytes;
  vt_text paths = {0};
  while (r.p < r.end) {
    if (!read_varint(&r, &tag) || !read_content(&r, (unsigned)tag & 7, &number, &bytes)) {
      vt_text_free(&paths);
      return NULL;
    }
    if (tag != (1 << 3 | BYTES)) continue;
    if (paths.size) vt_text_put(&paths, ",");
    vt_text_put_n(&paths, bytes.p, (size_t)(bytes.end - bytes.p));
  }
  json_t *text = read_text(vt_text_string(&paths), paths.size);
  vt_text_free(&paths);
  return text;
}

static bool read_map_entry(reader r, json_t *map) {
  uint64_t tag, number;
  reader bytes, key = {0}, value = {0};
  while (r.p < r.end) {
    if (!read_varint(&r, &tag) || !read_content(&r, (unsigned)tag & 7, &number, &bytes))
      return false;
    if (tag == (1 << 3 | BYTES)) key = bytes;
    if (tag == (2 << 3 | BYTES)) value = bytes;
  }
  const char *name = key.p ? (const char *)key.p : "";
  size_t size = (size_t)(key.end - key.p);
  json_t *text = vt_text_is_good(name, size) ? read_text(value.p ? (const char *)value.p : "",
                                                         (size_t)(value.end - value.p))
                                             : NULL;
  return text && json_object_setn_new(map, name, size, text) == 0;
}

static vt_status decode(const vt_message *message, unsigned api, reader r, int depth,
                        json_t **out_json);

static vt_status bad(const vt_field *field) {
  return vt_error(VT_INVALID_ARGUMENT, "malformed field '%s'", field->name);
}

static vt_status decode_value(const vt_field *f, unsigned api, uint64_t number, reader bytes,
                              int depth, json_t **out) {
  char text[24];
  switch (f->kind) {
  case VT_FIELD_STRING:
  case VT_FIELD_BYTES:
    *out = read_text(bytes.p, (size_t)(bytes.end - bytes.p));
    break;
  case VT_FIELD_BOOL:
    *out = json_boolean(number != 0);
    break;
  case VT_FIELD_INT32:
    *out = json_integer((int32_t)number);
    break;
  case VT_FIELD_INT64:
    snprintf(text, sizeof text, "%lld", (long long)number);
    *out = json_string(text);
    break;
  case VT_FIELD_ENUM: {
    const char *name = vt_enum_name(vt_enumeration_find(f->ref), (int)number);
    *out = name ? json_string(name) : json_integer((json_int_t)(int32_t)number);
    break;
  }
  case VT_FIELD_TIME:
    *out = read_time(bytes, false);
    break;
  case VT_FIELD_DURATION:
    *out = read_time(bytes, true);
    break;
  case VT_FIELD_MASK:
    *out = read_mask(bytes);
    break;
  case VT_FIELD_MSG:
    return decode(vt_message_find(f->ref), api, bytes, depth + 1, out);
  default:
    *out = json_null();
    break;
  }
  return *out ? VT_OK : bad(f);
}

static vt_status decode_field(const vt_field *f, unsigned api, uint64_t number, reader bytes,
                              int depth, json_t *out) {
  json_t *value = NULL;
  if (f->kind == VT_FIELD_MAP) {
    json_t *map = json_object_get(out, f->name);
    if (!map) json_object_set_new(out, f->name, map = json_object());
    return read_map_entry(bytes, map) ? VT_OK : bad(f);
  }
  VT_TRY(decode_value(f, api, number, bytes, depth, &value));
  if (!(f->flags & VT_FIELD_REP)) return json_object_set_new(out, f->name, value), VT_OK;
  json_t *list = json_object_get(out, f->name);
  if (!list) json_object_set_new(out, f->name, list = json_array());
  json_array_append_new(list, value);
  return VT_OK;
}

static vt_status decode(const vt_message *message, unsigned api, reader r, int depth,
                        json_t **out_json) {
  *out_json = NULL;
  if (depth > MAX_DEPTH)
    return vt_error(VT_INVALID_ARGUMENT, "messages nested over %d deep", MAX_DEPTH);
  json_t *out = json_object();
  while (r.p < r.end) {
    uint64_t tag, number;
    reader bytes;
    if (!read_varint(&r, &tag) || tag >> 3 == 0 || tag >> 3 > 536870911 ||
        !read_content(&r, (unsigned)tag & 7, &number, &bytes)) {
      json_decref(out);
      return vt_error(VT_INVALID_ARGUMENT, "malformed %s", message->name);
    }
    const vt_field *f = vt_message_field_by_number(message, (int)(tag >> 3), api);
    if (!f || f->number == 0) continue;
    vt_status st = decode_field(f, api, number, bytes, depth, out);
    if (st) {
      json_decref(out);
      return st;
    }
  }
  *out_json = out;
  return VT_OK;
}

vt_status vt_wire_decode(const vt_message *message, unsigned api, const void *bytes, size_t size,
                         json_t **out_json) {
  reader r = {bytes, (const unsigned char *)bytes + size};
  return decode(message, api, r, 0, out_json);
}

// --- encoding ------------------------------------------------------------------------------------

static void put_varint(vt_text *out, uint64_t value) {
  unsigned char bytes[10];
  size_t n = 0;
  do {
    bytes[n++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>= 7;
  } while (value);
  vt_text_put_n(out, bytes, n);
}

static void put_bytes(vt_text *out, int number, const void *bytes, size_t size) {
  put_varint(out, (uint64_t)number << 3 | BYTES);
  put_varint(out, size);
  if (size) vt_text_put_n(out, bytes, size);
}

static void put_number(vt_text *out, int number, uint64_t value) {
  put_varint(out, (uint64_t)number << 3 | VARINT);
  put_varint(out, value);
}

static void put_seconds(vt_text *out, int number, int64_t ns) {
  vt_text inner = {0};
  if (ns / 1000000000) put_number(&inner, 1, (uint64_t)(ns / 1000000000));
  if (ns % 1000000000) put_number(&inner, 2, (uint64_t)(ns % 1000000000));
  put_bytes(out, number, inner.data, inner.size);
  vt_text_free(&inner);
}

static void put_map(vt_text *out, int number, const json_t *map) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)map, key, value) {
    vt_text inner = {0};
    const char *text = json_string_value(value);
    put_bytes(&inner, 1, key, strlen(key));
    put_bytes(&inner, 2, text ? text : "", text ? strlen(text) : 0);
    put_bytes(out, number, inner.data, inner.size);
    vt_text_free(&inner);
  }
}

static void put_any(vt_text *out, int number, unsigned api, const json_t *any) {
  const char *type = json_string_value(json_object_get(any, "@type"));
  const char *dot = type ? strrchr(type, '.') : NULL;
  const vt_message *message = dot ? vt_message_find(dot + 1) : NULL;
  vt_text inner = {0}, value = {0};
  if (!type) return;
  put_bytes(&inner, 1, type, strlen(type));
  if (message) vt_wire_encode(message, vt_schema_api_of_type(type, api), any, &value);
  if (value.size) put_bytes(&inner, 2, value.data, value.size);
  put_bytes(out, number, inner.data, inner.size);
  vt_text_free(&value);
  vt_text_free(&inner);
}

static void put_value(vt_text *out, const vt_field *f, unsigned api, const json_t *value) {
  const char *text = json_string_value(value);
  int64_t ns;
  int number;
  switch (f->kind) {
  case VT_FIELD_STRING:
  case VT_FIELD_BYTES:
    if (text) put_bytes(out, f->number, text, strlen(text));
    break;
  case VT_FIELD_BOOL:
    put_number(out, f->number, json_is_true(value));
    break;
  case VT_FIELD_INT32:
  case VT_FIELD_INT64:
    put_number(out, f->number,
               (uint64_t)(text ? strtoll(text, NULL, 10) : json_integer_value(value)));
    break;
  case VT_FIELD_ENUM:
    if (text && vt_enum_number(vt_enumeration_find(f->ref), text, &number))
      put_number(out, f->number, (uint64_t)number);
    else if (json_is_integer(value))
      put_number(out, f->number, (uint64_t)json_integer_value(value));
    break;
  case VT_FIELD_TIME:
    if (text && vt_time_parse(text, &ns)) put_seconds(out, f->number, ns);
    break;
  case VT_FIELD_DURATION:
    if (text && vt_duration_parse(text, &ns)) put_seconds(out, f->number, ns);
    break;
  case VT_FIELD_MAP:
    put_map(out, f->number, value);
    break;
  case VT_FIELD_ANY:
    put_any(out, f->number, api, value);
    break;
  case VT_FIELD_MSG: {
    vt_text inner = {0};
    vt_wire_encode(vt_message_find(f->ref), api, value, &inner);
    put_bytes(out, f->number, inner.data, inner.size);
    vt_text_free(&inner);
    break;
  }
  default:
    break; // only clients send masks
  }
}

void vt_wire_encode(const vt_message *message, unsigned api, const json_t *json,
                    vt_text *out_bytes) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)json, key, value) {
    const vt_field *f = vt_message_field(message, key, api);
    if (!f || f->number == 0 || json_is_null(value)) continue;
    if (json_is_array(value))
      for (size_t i = 0; i < json_array_size(value); i++)
        put_value(out_bytes, f, api, json_array_get(value, i));
    else
      put_value(out_bytes, f, api, value);
  }
}
