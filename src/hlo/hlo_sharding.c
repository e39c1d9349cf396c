// SPDX-License-Identifier: Apache-2.0
// hlo_sharding.c - xla.OpSharding messages as text.
//
// Fields: 1 type, 3 tiles along each dimension, 4 devices, 5 shardings of a tuple's parts, 6 last
// dimension replicated, 8 types of the last dimensions, 9 and 10 the devices as 0 .. n-1 in another
// shape and order of dimensions, 11 to 13 whether it is of a group, which, and how (0 as, 1 like).
// Other fields are skipped, damaged messages end early.
#include <inttypes.h>
#include <stdlib.h>

#include "base/wire.h"
#include "hlo/hlo_writers.h"

enum { REPLICATED, MAXIMAL, TUPLE, OTHER, MANUAL, UNKNOWN, UNREDUCED };

typedef struct sharding {
  uint64_t type, replicated, grouped, group, like;
  vt_text dims, devices, last, shape, order; // "1,2,3"
} sharding;

static const char *type_text(uint64_t type) {
  static const char *const words[] = {"replicated", "maximal", "tuple",    "other",
                                      "manual",     "unknown", "unreduced"};
  return type < sizeof words / sizeof *words ? words[type] : "unknown";
}

// Numbers come packed or one by one.
static void put_numbers(vt_text *out, const vt_wire_field *field, bool words) {
  vt_wire list = vt_wire_open(field->bytes);
  uint64_t number = field->value;
  while (field->wire == 0 || list.at < list.end) {
    vt_status st = field->wire == 0 ? VT_OK : vt_wire_varint(&list, &number);
    vt_status_free(st);
    if (st) return;
    if (out->size) vt_text_put(out, words ? ", " : ",");
    if (words)
      vt_text_put(out, type_text(number));
    else
      vt_text_printf(out, "%" PRIu64, number);
    if (field->wire == 0) return;
  }
}

static void put_sharding(vt_text *out, vt_bytes message, int depth);

static void put_devices(vt_text *out, const sharding *s) {
  vt_text_printf(out, "devices=[%s]", vt_text_string(&s->dims));
  if (s->shape.size)
    vt_text_printf(out, "<=[%s]", vt_text_string(&s->shape));
  else
    vt_text_put(out, vt_text_string(&s->devices));
  bool turned = false; // the order of one dimension, or 0,1,2, is not shown
  const char *order = vt_text_string(&s->order);
  for (int at = 0; *order; at++) {
    char *end;
    turned = turned || strtol(order, &end, 10) != at;
    if (!turned) order = *end ? end + 1 : end;
    if (turned) break;
  }
  if (s->shape.size && turned) vt_text_printf(out, "T(%s)", vt_text_string(&s->order));
  if (s->replicated) vt_text_put(out, " last_tile_dim_replicate");
  if (s->last.size) vt_text_printf(out, " last_tile_dims={%s}", vt_text_string(&s->last));
}

static void put_one(vt_text *out, const sharding *s) {
  vt_text_put(out, "{");
  if (s->type == MAXIMAL)
    vt_text_printf(out, "maximal device=%s", vt_text_string(&s->devices));
  else if (s->type != OTHER)
    vt_text_put(out, type_text(s->type));
  else
    put_devices(out, s);
  if (s->grouped)
    vt_text_printf(out, " %s %" PRIu64, s->like ? "shard_like" : "shard_as", s->group);
  vt_text_put(out, "}");
}

enum { MAX_DEPTH = 2 }; // of tuples: shardings are of their leaves

static void put_sharding(vt_text *out, vt_bytes message, int depth) {
  vt_wire wire = vt_wire_open(message);
  vt_wire_field field;
  sharding s = {0};
  vt_text parts = {0};
  bool more = true;
  while (more) {
    vt_status st = vt_wire_next(&wire, &field, &more);
    vt_status_free(st);
    if (st || !more) break;
    vt_text *lists[] = {
        [3] = &s.dims, [4] = &s.devices, [8] = &s.last, [9] = &s.shape, [10] = &s.order};
    if (field.number == 1) s.type = field.value;
    if (field.number == 6) s.replicated = field.value;
    if (field.number == 11) s.grouped = field.value;
    if (field.number == 12) s.group = field.value;
    if (field.number == 13) s.like = field.value;
    if (field.number < sizeof lists / sizeof *lists && lists[field.number] &&
        (field.wire == 0 || field.wire == 2))
      put_numbers(lists[field.number], &field, field.number == 8);
    if (field.number != 5 || depth == MAX_DEPTH) continue;
    if (parts.size) vt_text_put(&parts, ", ");
    put_sharding(&parts, field.bytes, depth + 1);
  }
  if (s.type == TUPLE)
    vt_text_printf(out, "{%s}", vt_text_string(&parts));
  else
    put_one(out, &s);
  vt_text *texts[] = {&s.dims, &s.devices, &s.last, &s.shape, &s.order, &parts};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) vt_text_free(texts[i]);
}

void vt_hlo_put_sharding(vt_text *out, vt_string message) {
  if (message.size && message.data[0] == '{')
    vt_text_put_n(out, message.data, message.size);
  else
    put_sharding(out, (vt_bytes){(const uint8_t *)message.data, message.size}, 0);
}
