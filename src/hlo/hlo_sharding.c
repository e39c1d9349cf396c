// SPDX-License-Identifier: Apache-2.0
// hlo_sharding.c - xla.OpSharding messages as text.
//
// Fields: 1 type, 3 tiles along each dimension, 4 devices, 6 last dimension replicated, 8 types of
// the last dimensions. Other fields are skipped, damaged messages end early.
#include <inttypes.h>

#include "hlo/hlo_writers.h"

typedef struct reader {
  const uint8_t *at, *end;
} reader;

static uint64_t get_varint(reader *r) {
  uint64_t value = 0;
  for (int shift = 0; r->at < r->end && shift < 64; shift += 7) {
    uint8_t byte = *r->at++;
    value |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

static reader get_bytes(reader *r) {
  uint64_t size = get_varint(r), left = (uint64_t)(r->end - r->at);
  if (size > left) size = left;
  reader inner = {r->at, r->at + size};
  r->at += size;
  return inner;
}

static void put_list(vt_text *out, reader list) {
  for (bool first = true; list.at < list.end; first = false)
    vt_text_printf(out, "%s%" PRIu64, first ? "" : ",", get_varint(&list));
}

static const char *type_text(uint64_t type) {
  static const char *const words[] = {"replicated", "maximal", "tuple",    "other",
                                      "manual",     "unknown", "unreduced"};
  return type < sizeof words / sizeof *words ? words[type] : "unknown";
}

static void put_last_types(vt_text *out, reader types) {
  vt_text_put(out, " last_tile_dims={");
  for (bool first = true; types.at < types.end; first = false)
    vt_text_printf(out, "%s%s", first ? "" : ", ", type_text(get_varint(&types)));
  vt_text_put(out, "}");
}

void vt_hlo_put_sharding(vt_text *out, vt_string message) {
  reader r = {(const uint8_t *)message.data, (const uint8_t *)message.data + message.size};
  reader dims = {0}, devices = {0}, last = {0};
  uint64_t type = 0, replicated = 0;
  while (r.at < r.end) {
    uint64_t tag = get_varint(&r);
    bool bytes = (tag & 7) == 2;
    reader inner = {0};
    uint64_t number = 0;
    if (bytes)
      inner = get_bytes(&r);
    else
      number = get_varint(&r);
    if (tag >> 3 == 1) type = number;
    if (tag >> 3 == 3) dims = inner;
    if (tag >> 3 == 4) devices = inner;
    if (tag >> 3 == 6) replicated = number;
    if (tag >> 3 == 8) last = inner;
  }
  if (type == 1) {
    vt_text_put(out, "{maximal device=");
    put_list(out, devices);
    vt_text_put(out, "}");
  } else if (type != 3) {
    vt_text_printf(out, "{%s}", type_text(type));
  } else {
    vt_text_put(out, "{devices=[");
    put_list(out, dims);
    vt_text_put(out, "]");
    put_list(out, devices);
    if (replicated) vt_text_put(out, " last_tile_dim_replicate");
    if (last.at < last.end) put_last_types(out, last);
    vt_text_put(out, "}");
  }
}
