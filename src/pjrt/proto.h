// SPDX-License-Identifier: Apache-2.0
// proto.h - the few protocol buffer messages of the interface, read and written by hand.
//
// Readers trust nothing: every length is checked against what is left. Unknown fields are skipped.
#ifndef VT_PJRT_PROTO_H
#define VT_PJRT_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/file.h"
#include "base/text.h"

typedef struct vt_proto {
  const uint8_t *at, *end;
} vt_proto;

typedef struct vt_proto_field {
  uint32_t number;
  uint32_t wire;  // 0 varint, 1 64 bits, 2 bytes, 5 32 bits
  uint64_t value; // wire 0, 1, 5
  vt_bytes bytes; // wire 2
} vt_proto_field;

static inline vt_proto vt_proto_open(vt_bytes bytes) {
  return (vt_proto){bytes.data, bytes.size ? bytes.data + bytes.size : bytes.data};
}
// The next field; false at the end. errors INVALID_ARGUMENT
vt_status vt_proto_next(vt_proto *proto, vt_proto_field *out_field, bool *out_more) VT_CHECKED;
// One varint of a packed list.
vt_status vt_proto_varint(vt_proto *proto, uint64_t *out_value) VT_CHECKED;

void vt_proto_put_varint(vt_text *text, uint64_t value);
void vt_proto_put_uint(vt_text *text, uint32_t number, uint64_t value);
void vt_proto_put_bytes(vt_text *text, uint32_t number, const void *bytes, size_t size);

// The parts of CompileOptionsProto that vtpu reads.
typedef struct vt_compile_options {
  int32_t replicas, partitions; // 0 = not given
  uint32_t device_count;        // of device_ids; 0 = none given
  // [replicas * partitions], computation-minor as replica * partitions + partition
  int32_t *device_ids;
  bool portable;    // compiled for any one device
  bool partitioned; // use_spmd_partitioning: the program is on whole arrays, to be partitioned
  VT_ARRAY(char) xla_flags; // overrides by name, "--name=value" with spaces between
} vt_compile_options;
// errors INVALID_ARGUMENT: malformed, or a device assignment that does not fit its own counts
vt_status vt_compile_options_read(vt_bytes bytes, vt_arena *arena,
                                  vt_compile_options *out_options) VT_CHECKED;

// DeviceAssignmentProto; device_ids as vt_compile_options has them.
void vt_device_assignment_write(int32_t replicas, int32_t partitions, const int32_t *device_ids,
                                vt_text *out_text);

#endif
