// SPDX-License-Identifier: Apache-2.0
// proto.c - reads and writes the messages that the interface carries.
#include "pjrt/proto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// DeviceAssignmentProto: 1 replicas, 2 computations, 3 repeated {1 device ids, one per replica}.
enum { MAX_DEVICES = 1 << 20 };

static vt_status read_computation(vt_bytes bytes, vt_arena *arena, vt_compile_options *options,
                                  uint64_t replicas, uint64_t computations, uint64_t computation) {
  (void)arena;
  uint64_t replica = 0;
  vt_wire proto = vt_wire_open(bytes);
  vt_wire_field field;
  bool more;
  for (;;) {
    VT_TRY(vt_wire_next(&proto, &field, &more));
    if (!more) break;
    if (field.number != 1 || (field.wire != 2 && field.wire != 0)) continue;
    vt_wire list = vt_wire_open(field.bytes);
    bool packed = field.wire == 2;
    while (!packed || list.at < list.end) {
      uint64_t id = field.value;
      if (packed) VT_TRY(vt_wire_varint(&list, &id));
      if (replica >= replicas)
        return vt_error(VT_INVALID_ARGUMENT,
                        "device assignment: more than %llu ids of a computation",
                        (unsigned long long)replicas);
      if (id > INT32_MAX)
        return vt_error(VT_INVALID_ARGUMENT, "device assignment: id out of range");
      options->device_ids[replica++ * computations + computation] = (int32_t)id;
      if (!packed) break;
    }
  }
  if (replica != replicas)
    return vt_error(VT_INVALID_ARGUMENT,
                    "device assignment: %llu ids of a computation, %llu replicas",
                    (unsigned long long)replica, (unsigned long long)replicas);
  return VT_OK;
}

static vt_status read_assignment(vt_bytes bytes, vt_arena *arena, vt_compile_options *options) {
  uint64_t replicas = 0, computations = 0, seen = 0;
  vt_wire_field field;
  bool more;
  for (int pass = 0; pass < 2; pass++) {
    vt_wire proto = vt_wire_open(bytes);
    for (;;) {
      VT_TRY(vt_wire_next(&proto, &field, &more));
      if (!more) break;
      if (pass == 0 && field.wire == 0 && field.number == 1) replicas = field.value;
      if (pass == 0 && field.wire == 0 && field.number == 2) computations = field.value;
      if (pass == 0 || field.number != 3 || field.wire != 2) continue;
      if (seen >= computations)
        return vt_error(VT_INVALID_ARGUMENT, "device assignment: more than %llu computations",
                        (unsigned long long)computations);
      VT_TRY(read_computation(field.bytes, arena, options, replicas, computations, seen++));
    }
    if (pass) break;
    if (replicas < 1 || computations < 1 || replicas > MAX_DEVICES || computations > MAX_DEVICES ||
        replicas * computations > MAX_DEVICES)
      return vt_error(VT_INVALID_ARGUMENT,
                      "device assignment of %llu replicas and %llu computations",
                      (unsigned long long)replicas, (unsigned long long)computations);
    // An id takes at least a byte: allocate nothing for counts that the message cannot hold.
    if (replicas * computations > bytes.size)
      return vt_error(VT_INVALID_ARGUMENT, "device assignment: too short for its counts");
    options->device_count = (uint32_t)(replicas * computations);
    options->device_ids = VT_NEW_ARRAY(arena, int32_t, options->device_count);
  }
  if (seen != computations)
    return vt_error(VT_INVALID_ARGUMENT, "device assignment: %llu of %llu computations",
                    (unsigned long long)seen, (unsigned long long)computations);
  return VT_OK;
}

static vt_status read_count(const vt_wire_field *field, const char *what, int32_t *out_count) {
  if (field->value < 1 || field->value > MAX_DEVICES)
    return vt_error(VT_INVALID_ARGUMENT, "options: %s is %lld", what, (long long)field->value);
  *out_count = (int32_t)field->value;
  return VT_OK;
}

// ExecutableBuildOptionsProto: 4 replicas, 5 partitions, 6 SPMD partitioning, 9 device assignment.
static vt_status read_build_options(vt_bytes bytes, vt_arena *arena, vt_compile_options *options) {
  vt_wire proto = vt_wire_open(bytes);
  vt_wire_field field;
  bool more;
  for (;;) {
    VT_TRY(vt_wire_next(&proto, &field, &more));
    if (!more) return VT_OK;
    if (field.number == 4 && field.wire == 0)
      VT_TRY(read_count(&field, "num_replicas", &options->replicas));
    if (field.number == 5 && field.wire == 0)
      VT_TRY(read_count(&field, "num_partitions", &options->partitions));
    if (field.number == 6 && field.wire == 0) options->partitioned = field.value != 0;
    if (field.number == 9 && field.wire == 2) VT_TRY(read_assignment(field.bytes, arena, options));
  }
}

enum override_kind { OVERRIDE_BOOL, OVERRIDE_INT, OVERRIDE_FLOAT };
static const struct {
  const char *name;
  enum override_kind kind;
} overrides[] = {
#define OVERRIDE(name, kind) {name, OVERRIDE_##kind},
#include "pjrt/overrides.def"
#undef OVERRIDE
};

// True when the text of an option given as a string reads as a value of this kind.
static bool text_fits(vt_bytes text, enum override_kind kind) {
  char copy[32] = {0}, *end = copy;
  if (text.size == 0 || text.size >= sizeof copy) return false;
  memcpy(copy, text.data, text.size);
  if (kind == OVERRIDE_BOOL)
    return !strcasecmp(copy, "true") || !strcasecmp(copy, "false") || !strcmp(copy, "0") ||
           !strcmp(copy, "1");
  if (kind == OVERRIDE_INT)
    (void)strtoll(copy, &end, 10);
  else
    (void)strtod(copy, &end);
  return *end == 0;
}

// OptionOverrideProto: 1 string, 2 bool, 3 int, 4 double.
static vt_status check_override(vt_bytes name, vt_bytes value) {
  static const char *const kinds[] = {"bool", "int", "float"};
  for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++) {
    if (strlen(overrides[i].name) != name.size || memcmp(overrides[i].name, name.data, name.size))
      continue;
    vt_wire proto = vt_wire_open(value);
    vt_wire_field field;
    bool more;
    VT_TRY(vt_wire_next(&proto, &field, &more));
    if (more && field.number == 1 && field.wire == 2 && !text_fits(field.bytes, overrides[i].kind))
      return vt_error(VT_INVALID_ARGUMENT, "compile option %s: '%.*s' is not a valid %s value.",
                      overrides[i].name, (int)(field.bytes.size < 80 ? field.bytes.size : 80),
                      (const char *)field.bytes.data, kinds[overrides[i].kind]);
    return VT_OK;
  }
  if (name.size >= 4 && !memcmp(name.data, "xla_", 4)) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "No such compile option: '%.*s'",
                  (int)(name.size < 80 ? name.size : 80), (const char *)name.data);
}

static void put_word(vt_compile_options *options, vt_arena *arena, vt_bytes word, char end) {
  for (size_t i = 0; i < word.size; i++)
    if (word.data[i] > ' ') vt_array_push_in(arena, &options->xla_flags, (char)word.data[i]);
  vt_array_push_in(arena, &options->xla_flags, end);
}

// An option with a string or an integer, as XLA's flags are written.
static vt_status put_flag(vt_bytes name, vt_bytes value, vt_arena *arena,
                          vt_compile_options *options) {
  vt_wire proto = vt_wire_open(value);
  vt_wire_field field;
  bool more;
  VT_TRY(vt_wire_next(&proto, &field, &more));
  if (!more || (field.number != 1 && field.number != 3)) return VT_OK;
  if (field.wire == 0)
    field.bytes.data = (const uint8_t *)vt_arena_printf(arena, "%" PRId64, (int64_t)field.value);
  if (field.wire == 0) field.bytes.size = strlen((const char *)field.bytes.data);
  if (field.wire != 0 && field.wire != 2) return VT_OK;
  put_word(options, arena, (vt_bytes){(const uint8_t *)"-", 1}, '-');
  put_word(options, arena, name, '=');
  put_word(options, arena, field.bytes, ' ');
  return VT_OK;
}

// An entry of the map: 1 name, 2 value.
static vt_status read_override(vt_bytes bytes, vt_arena *arena, vt_compile_options *options) {
  vt_wire proto = vt_wire_open(bytes);
  vt_wire_field field;
  vt_bytes name = {(const uint8_t *)"", 0}, value = {(const uint8_t *)"", 0};
  bool more;
  for (;;) {
    VT_TRY(vt_wire_next(&proto, &field, &more));
    if (!more) break;
    if (field.number == 1 && field.wire == 2) name = field.bytes;
    if (field.number == 2 && field.wire == 2) value = field.bytes;
  }
  VT_TRY(check_override(name, value));
  return put_flag(name, value, arena, options);
}

// CompileOptionsProto: 3 build options, 4 compile_portable_executable, 7 overrides by name.
vt_status vt_compile_options_read(vt_bytes bytes, vt_arena *arena,
                                  vt_compile_options *out_options) {
  *out_options = (vt_compile_options){0};
  vt_wire proto = vt_wire_open(bytes);
  vt_wire_field field;
  bool more;
  for (;;) {
    VT_TRY(vt_wire_next(&proto, &field, &more));
    if (!more) return VT_OK;
    if (field.number == 3 && field.wire == 2)
      VT_TRY(read_build_options(field.bytes, arena, out_options));
    if (field.number == 4 && field.wire == 0) out_options->portable = field.value != 0;
    if (field.number == 7 && field.wire == 2)
      VT_TRY(read_override(field.bytes, arena, out_options));
  }
}

void vt_device_assignment_write(int32_t replicas, int32_t partitions, const int32_t *device_ids,
                                vt_text *out_text) {
  vt_wire_put_uint(out_text, 1, (uint64_t)replicas);
  vt_wire_put_uint(out_text, 2, (uint64_t)partitions);
  for (int32_t i = 0; i < partitions; i++) {
    vt_text id = {0}, computation = {0};
    for (int32_t r = 0; r < replicas; r++)
      vt_wire_put_varint(&id, (uint64_t)device_ids[r * partitions + i]);
    vt_wire_put_bytes(&computation, 1, id.data, id.size);
    vt_wire_put_bytes(out_text, 3, computation.data, computation.size);
    vt_text_free(&id);
    vt_text_free(&computation);
  }
}
