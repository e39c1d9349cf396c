// SPDX-License-Identifier: Apache-2.0
// xplane.c - writes the messages of xplane.proto.
#include "runtime/xplane.h"

#include <math.h>
#include <string.h>

// A MemoryAccessBreakdown of op_metrics.proto.
enum { BREAKDOWN_ACCESSED = 1 };
enum { ACCESSED_OPERATION = 1, ACCESSED_SPACE, ACCESSED_BYTES };
enum { OPERATION_READ = 1, SPACE_HBM = 1 };

const char *const vt_xplane_stat_names[STAT_END] = {
    [STAT_CATEGORY] = "hlo_category",
    [STAT_FLOPS] = "flops",
    [STAT_BYTES] = "bytes_accessed",
    [STAT_BREAKDOWN] = "memory_access_breakdown",
    [STAT_OP_NAME] = "tf_op",
    [STAT_SOURCE] = "source",
    [STAT_PROGRAM] = "program_id",
    [STAT_SYMBOL] = "symbol_id",
    [STAT_TIMES] = "times",
    [STAT_BOUND] = "bound_by",
    [STAT_PEAK_FLOPS] = "peak_teraflops_per_second",
    [STAT_PEAK_HBM] = "peak_hbm_bw_gigabytes_per_second",
    [STAT_DEVICE] = "device_type_string",
    [STAT_STEP] = "group_id",
    [STAT_MXU_SHARE] = "matrix_unit_utilization_percent",
    [STAT_HBM_SHARE] = "hbm_utilization_percent",
    [STAT_HLO] = "Hlo Proto",
    [STAT_ALLOCATOR] = "allocator_name",
    [STAT_RESERVED] = "bytes_reserved",
    [STAT_ALLOCATED] = "bytes_allocated",
    [STAT_AVAILABLE] = "bytes_available",
    [STAT_MOST] = "peak_bytes_in_use",
    [STAT_REQUESTED] = "requested_bytes",
    [STAT_ALLOCATION] = "allocation_bytes",
    [STAT_ADDRESS] = "addr",
    [STAT_REGION] = "region_type",
    [STAT_SHAPES] = "tensor_shapes",
};

void vt_xplane_put_message(vt_text *out, uint32_t number, vt_text *message) {
  vt_wire_put_bytes(out, number, message->data, message->size);
  vt_text_free(message);
  *message = (vt_text){0};
}

void vt_xplane_put_string(vt_text *out, uint32_t number, const char *text) {
  vt_wire_put_bytes(out, number, text, strlen(text));
}

void vt_xplane_put_text(vt_text *out, uint32_t field, vt_xplane_stat which, const char *text) {
  vt_text s = {0};
  vt_wire_put_uint(&s, STAT_METADATA_ID, which);
  vt_xplane_put_string(&s, STAT_STRING, text);
  vt_xplane_put_message(out, field, &s);
}

void vt_xplane_put_integer(vt_text *out, uint32_t field, vt_xplane_stat which, uint32_t kind,
                           uint64_t value) {
  vt_text s = {0};
  vt_wire_put_uint(&s, STAT_METADATA_ID, which);
  vt_wire_put_uint(&s, kind, value);
  vt_xplane_put_message(out, field, &s);
}

void vt_xplane_put_count(vt_text *out, uint32_t field, vt_xplane_stat which, double count) {
  vt_xplane_put_integer(out, field, which, STAT_INT64, (uint64_t)fmin(fmax(count, 0), 9e18));
}

void vt_xplane_put_double(vt_text *out, uint32_t field, vt_xplane_stat which, double value) {
  vt_text s = {0};
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  vt_wire_put_uint(&s, STAT_METADATA_ID, which);
  vt_wire_put_varint(&s, STAT_DOUBLE << 3 | 1);
  for (int i = 0; i < 64; i += 8) {
    char byte = (char)(bits >> i & 255);
    vt_text_put_n(&s, &byte, 1);
  }
  vt_xplane_put_message(out, field, &s);
}

// All bytes as one access to HBM: XProf derives its bandwidth from their sum.
void vt_xplane_put_hbm(vt_text *out, uint32_t field, double bytes) {
  vt_text accessed = {0}, breakdown = {0}, s = {0};
  vt_wire_put_uint(&accessed, ACCESSED_OPERATION, OPERATION_READ);
  vt_wire_put_uint(&accessed, ACCESSED_SPACE, SPACE_HBM);
  vt_wire_put_uint(&accessed, ACCESSED_BYTES, (uint64_t)fmin(fmax(bytes, 0), 9e18));
  vt_xplane_put_message(&breakdown, BREAKDOWN_ACCESSED, &accessed);
  vt_wire_put_uint(&s, STAT_METADATA_ID, STAT_BREAKDOWN);
  vt_xplane_put_message(&s, STAT_BYTES_VALUE, &breakdown);
  vt_xplane_put_message(out, field, &s);
}

uint64_t vt_xplane_picoseconds(double seconds) {
  return (uint64_t)fmin(fmax(seconds * 1e12, 0), 9e18);
}

void vt_xplane_put_entry(vt_text *plane, uint32_t field, uint64_t key, vt_text *value) {
  vt_text entry = {0};
  vt_wire_put_uint(&entry, MAP_KEY, key);
  vt_xplane_put_message(&entry, MAP_VALUE, value);
  vt_xplane_put_message(plane, field, &entry);
}

void vt_xplane_put_event(vt_text *line, uint64_t id, double start, double seconds, vt_text *stats) {
  vt_text e = {0};
  vt_wire_put_uint(&e, EVENT_METADATA_ID, id);
  vt_wire_put_uint(&e, EVENT_OFFSET_PS, vt_xplane_picoseconds(start));
  vt_wire_put_uint(&e, EVENT_DURATION_PS, vt_xplane_picoseconds(seconds));
  if (stats && stats->size) vt_text_put_n(&e, stats->data, stats->size);
  vt_xplane_put_message(line, LINE_EVENTS, &e);
}

void vt_xplane_put_stat_names(vt_text *plane) {
  for (uint64_t i = 1; i < STAT_END; i++) {
    vt_text m = {0};
    vt_wire_put_uint(&m, METADATA_ID, i);
    vt_xplane_put_string(&m, METADATA_NAME, vt_xplane_stat_names[i]);
    vt_xplane_put_entry(plane, PLANE_STAT_METADATA, i, &m);
  }
}
