// SPDX-License-Identifier: Apache-2.0
// pjrt_topology.c - slots of PJRT_TopologyDescription: a slice to compile for, with or without
// devices here.
//
// A serialised topology is its name and number of slices: "vtpu-topology 1 v5e:4x4 1".
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/map.h"
#include "pjrt/objects.h"
#include "pjrt/proto.h"

void vt_topology_free(PJRT_TopologyDescription *topology) {
  if (!topology) return;
  free(topology->list);
  free(topology->descriptions);
  free(topology);
}

vt_status vt_topology_make(const vt_slice *slice, vt_client *client,
                           PJRT_TopologyDescription **out_topology) {
  PJRT_TopologyDescription *topology = calloc(1, sizeof *topology);
  if (!topology) return vt_error_no_memory();
  topology->slice = *slice;
  topology->count = (size_t)vt_slice_devices(slice);
  topology->descriptions = calloc(topology->count, sizeof *topology->descriptions);
  topology->list = calloc(topology->count, sizeof *topology->list);
  if (!topology->descriptions || !topology->list) {
    vt_topology_free(topology);
    return vt_error_no_memory();
  }
  for (size_t i = 0; i < topology->count; i++) {
    int32_t id = (int32_t)i, process = client ? vt_client_device(client, id)->process
                                              : vt_slice_place(slice, id).host;
    vt_device_description_fill(&topology->descriptions[i], &topology->slice, id, process);
    topology->list[i] = &topology->descriptions[i];
  }
  *out_topology = topology;
  return VT_OK;
}

// The slice of this name; an empty name is the slice of the environment.
static vt_status slice_from_name(const char *bytes, size_t size, int64_t slices,
                                 vt_slice *out_slice) {
  char name[64];
  if (size >= sizeof name || memchr(bytes, 0, size))
    return vt_error(VT_INVALID_ARGUMENT, "malformed topology name of %zu bytes", size);
  if (size) memcpy(name, bytes, size);
  name[size] = 0;
  if (slices < INT32_MIN || slices > INT32_MAX)
    return vt_error(VT_INVALID_ARGUMENT, "num_slices is %lld", (long long)slices);
  VT_TRY(size ? vt_slice_from_name(name, out_slice) : vt_slice_from_environment(out_slice));
  return vt_slice_join(out_slice, (int32_t)slices);
}

// num_slices is the one option that changes the shape; the others tune things that a virtual slice
// lacks.
vt_status vt_pjrt_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args) {
  int64_t slices = 1;
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *option = &args->create_options[i];
    static const char name[] = "num_slices";
    if (option->type == PJRT_VALUE_INT64 && option->name_size == sizeof name - 1 &&
        !memcmp(option->name, name, sizeof name - 1))
      slices = option->int64;
  }
  vt_slice slice;
  VT_TRY(slice_from_name(args->topology_name, args->topology_name_size, slices, &slice));
  return vt_topology_make(&slice, NULL, &args->topology);
}

vt_status vt_pjrt_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args) {
  vt_topology_free(args->topology);
  return VT_OK;
}

vt_status
vt_pjrt_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args *args) {
  args->platform_name = VT_PLATFORM_NAME;
  args->platform_name_size = sizeof VT_PLATFORM_NAME - 1;
  return VT_OK;
}

vt_status
vt_pjrt_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args *args) {
  args->platform_version = vt_plugin_platform_version();
  args->platform_version_size = strlen(args->platform_version);
  return VT_OK;
}

vt_status vt_pjrt_TopologyDescription_GetDeviceDescriptions(
    PJRT_TopologyDescription_GetDeviceDescriptions_Args *args) {
  args->descriptions = args->topology->list;
  args->num_descriptions = args->topology->count;
  return VT_OK;
}

vt_status vt_pjrt_TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args *args) {
  args->attributes = NULL;
  args->num_attributes = 0;
  return VT_OK;
}

static const char serialized_head[] = "vtpu-topology 1 ";

vt_status vt_pjrt_TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args *args) {
  const vt_slice *slice = &args->topology->slice;
  char *text = malloc(96);
  if (!text) return vt_error_no_memory();
  int size = snprintf(text, 96, "%s%s:%dx%dx%d %d", serialized_head, slice->chip->topology,
                      slice->dims[0], slice->dims[1], slice->dims[2], slice->slices);
  args->serialized_bytes = text;
  args->serialized_bytes_size = (size_t)size;
  args->serialized_topology = (PJRT_SerializedTopology *)text;
  args->serialized_topology_deleter = (void (*)(PJRT_SerializedTopology *))free;
  return VT_OK;
}

vt_status vt_pjrt_TopologyDescription_Deserialize(PJRT_TopologyDescription_Deserialize_Args *args) {
  char text[97], name[64];
  int slices = 0;
  size_t size = args->serialized_topology_size;
  if (size < sizeof text) {
    memcpy(text, args->serialized_topology, size);
    text[size] = 0;
  }
  if (size >= sizeof text || strncmp(text, serialized_head, sizeof serialized_head - 1) ||
      sscanf(text + sizeof serialized_head - 1, "%63s %d", name, &slices) != 2)
    return vt_error(VT_INVALID_ARGUMENT, "not a topology that vtpu serialised");
  vt_slice slice;
  VT_TRY(slice_from_name(name, strlen(name), slices, &slice));
  return vt_topology_make(&slice, NULL, &args->topology);
}

vt_status vt_pjrt_TopologyDescription_Fingerprint(PJRT_TopologyDescription_Fingerprint_Args *args) {
  // JAX asks this before it hands a program to one of its threads, which a forked child lacks: the
  // place to report it.
  VT_TRY(vt_fork_check());
  const vt_slice *slice = &args->topology->slice;
  uint64_t hash = vt_hash_bytes(slice->chip->kind, strlen(slice->chip->kind), 1);
  for (int i = 0; i < 3; i++) hash = vt_hash_u64((uint64_t)slice->dims[i], hash);
  args->fingerprint = vt_hash_u64((uint64_t)slice->slices, hash);
  return VT_OK;
}

vt_status vt_pjrt_TopologyDescription_GetMemorySpaceKindIds(
    PJRT_TopologyDescription_GetMemorySpaceKindIds_Args *args) {
  static const int kinds[VT_MEMORY_KINDS] = {VT_MEMORY_DEVICE, VT_MEMORY_PINNED_HOST,
                                             VT_MEMORY_UNPINNED_HOST};
  args->memory_space_kind_ids = kinds;
  args->num_memory_space_kind_ids = VT_MEMORY_KINDS;
  return VT_OK;
}

// xla.PrimitiveType of an element type: the same names as PJRT_Buffer_Type in another order.
static uint64_t primitive_type(vt_dtype dtype) {
  static const uint8_t numbers[VT_DTYPE_LIMIT] = {
      [VT_PRED] = 1,        [VT_S8] = 2,          [VT_S16] = 3,
      [VT_S32] = 4,         [VT_S64] = 5,         [VT_U8] = 6,
      [VT_U16] = 7,         [VT_U32] = 8,         [VT_U64] = 9,
      [VT_F16] = 10,        [VT_F32] = 11,        [VT_F64] = 12,
      [VT_C64] = 15,        [VT_BF16] = 16,       [VT_TOKEN] = 17,
      [VT_C128] = 18,       [VT_F8E5M2] = 19,     [VT_F8E4M3FN] = 20,
      [VT_S4] = 21,         [VT_U4] = 22,         [VT_F8E4M3B11FNUZ] = 23,
      [VT_F8E5M2FNUZ] = 24, [VT_F8E4M3FNUZ] = 25, [VT_S2] = 26,
      [VT_U2] = 27,         [VT_F8E4M3] = 28,     [VT_F8E3M4] = 29,
      [VT_F4E2M1FN] = 32,   [VT_F8E8M0FNU] = 33};
  return numbers[dtype];
}

static void free_shape(const char *shape) {
  vt_memory_free((void *)(uintptr_t)shape);
}

// An xla.ShapeProto: {2: element type, 3: dimensions, 5: layout, 6: which are dynamic}; its layout
// is {1: minor to major, 8: memory space}, where 5 is the host's.
vt_status vt_pjrt_TopologyDescription_MakeCanonicalShapeForMemorySpace(
    PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args *args) {
  enum { HOST_SPACE = 5 };
  vt_type type;
  char room[VT_LAYOUT_TEXT];
  const char *asked = NULL;
  int kind = args->memory_space_kind_id;
  if (kind < 0 || kind >= VT_MEMORY_KINDS)
    return vt_error(VT_INVALID_ARGUMENT, "memory space of kind %d; there are %d", kind,
                    VT_MEMORY_KINDS);
  VT_TRY(vt_type_from_pjrt(args->element_type, args->dims, args->num_dims, &type));
  VT_TRY(vt_layout_from_pjrt(args->layout, type.rank, room, &asked));
  int32_t order[VT_MAX_RANK];
  vt_layout_default(args->topology->slice.chip, (vt_memory_kind)kind, type, order);
  vt_text shape = {0}, layout = {0};
  for (int32_t i = 0; i < type.rank; i++)
    vt_wire_put_uint(&layout, 1,
                     (uint64_t)(asked ? args->layout->tiled.minor_to_major[i] : order[i]));
  if (kind != VT_MEMORY_DEVICE) vt_wire_put_uint(&layout, 8, HOST_SPACE);
  vt_wire_put_uint(&shape, 2, primitive_type(type.dtype));
  for (int32_t i = 0; i < type.rank; i++) vt_wire_put_uint(&shape, 3, (uint64_t)type.dims[i]);
  vt_wire_put_bytes(&shape, 5, layout.data, layout.size);
  for (int32_t i = 0; i < type.rank; i++) vt_wire_put_uint(&shape, 6, 0);
  vt_text_free(&layout);
  args->serialized_shape = shape.data;
  args->serialized_shape_size = shape.size;
  args->serialized_shape_deleter = free_shape;
  return VT_OK;
}
