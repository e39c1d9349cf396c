// SPDX-License-Identifier: Apache-2.0
// proto.h - the few protocol buffer messages of the interface, read and written by hand.
#ifndef VT_PJRT_PROTO_H
#define VT_PJRT_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/wire.h"

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
