// SPDX-License-Identifier: Apache-2.0
// pjrt_device.c - slots of PJRT_Device and PJRT_DeviceDescription.
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "pjrt/objects.h"

static PJRT_NamedValue int_value(const char *name, int64_t value) {
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = name,
                           .name_size = strlen(name),
                           .type = PJRT_VALUE_INT64,
                           .int64 = value,
                           .value_size = 1};
}

void vt_device_description_fill(PJRT_DeviceDescription *description, const vt_slice *slice,
                                int32_t id, int32_t process) {
  vt_assert(id >= 0 && id < vt_slice_devices(slice) && process >= 0);
  vt_place place = vt_slice_place(slice, id);
  *description = (PJRT_DeviceDescription){.slice = slice, .id = id, .process = process};
  for (int i = 0; i < 3; i++) description->coords[i] = place.coords[i];
  description->to_string_size =
      (size_t)snprintf(description->to_string, sizeof description->to_string,
                       "TpuDevice(id=%d, process_index=%d, coords=(%d,%d,%d), core_on_chip=%d)", id,
                       process, place.coords[0], place.coords[1], place.coords[2], place.core);
  description->debug_string_size =
      (size_t)snprintf(description->debug_string, sizeof description->debug_string,
                       "TPU_%d(process=%d,(%d,%d,%d,%d))", id, process, place.coords[0],
                       place.coords[1], place.coords[2], place.core);
  PJRT_NamedValue *a = description->attributes;
  a[0] = (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = "coords",
                           .name_size = sizeof "coords" - 1,
                           .type = PJRT_VALUE_INT64_LIST,
                           .int64_list = description->coords,
                           .value_size = 3};
  a[1] = int_value("core_on_chip", place.core);
  a[2] = int_value("num_cores", slice->chip->cores / slice->chip->devices);
  a[3] = int_value("slice_index", place.slice);
  // As on a TPU, devices of a slice alone have none: PyTorch/XLA's tests list all attributes.
  description->attribute_count =
      slice->slices > 1 ? VT_DEVICE_ATTRIBUTES : VT_DEVICE_ATTRIBUTES - 1;
}

vt_status vt_pjrt_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args) {
  args->id = args->device_description->id;
  return VT_OK;
}

vt_status vt_pjrt_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args) {
  args->process_index = args->device_description->process;
  return VT_OK;
}

vt_status vt_pjrt_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args) {
  args->attributes = args->device_description->attributes;
  args->num_attributes = args->device_description->attribute_count;
  return VT_OK;
}

vt_status vt_pjrt_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args) {
  args->device_kind = args->device_description->slice->chip->kind;
  args->device_kind_size = strlen(args->device_kind);
  return VT_OK;
}

vt_status vt_pjrt_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args *args) {
  args->debug_string = args->device_description->debug_string;
  args->debug_string_size = args->device_description->debug_string_size;
  return VT_OK;
}

vt_status vt_pjrt_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args *args) {
  args->to_string = args->device_description->to_string;
  args->to_string_size = args->device_description->to_string_size;
  return VT_OK;
}

vt_status vt_pjrt_Device_GetDescription(PJRT_Device_GetDescription_Args *args) {
  args->device_description = &args->device->description;
  return VT_OK;
}

vt_status vt_pjrt_Device_IsAddressable(PJRT_Device_IsAddressable_Args *args) {
  const vt_device *device = args->device->device;
  args->is_addressable = device->process == vt_client_process(device->client);
  return VT_OK;
}

vt_status vt_pjrt_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args *args) {
  const PJRT_Client *client = args->device->client;
  args->local_hardware_id = -1; // of another process
  for (size_t i = 0; i < client->here_count; i++)
    if (client->here_list[i] == args->device) args->local_hardware_id = (int)i;
  return VT_OK;
}

vt_status vt_pjrt_Device_AddressableMemories(PJRT_Device_AddressableMemories_Args *args) {
  args->memories = args->device->memory_list;
  args->num_memories = VT_MEMORY_KINDS;
  return VT_OK;
}

vt_status vt_pjrt_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args *args) {
  args->memory = &args->device->memories[VT_MEMORY_DEVICE];
  return VT_OK;
}

// The caller does not clear the structure: every field is written.
vt_status vt_pjrt_Device_MemoryStats(PJRT_Device_MemoryStats_Args *args) {
  vt_device_memory_stats stats = vt_device_stats(args->device->device);
  int64_t free_bytes = stats.limit_bytes - stats.bytes_in_use;
  args->bytes_in_use = stats.bytes_in_use;
  args->peak_bytes_in_use = stats.peak_bytes_in_use;
  args->peak_bytes_in_use_is_set = true;
  args->num_allocs = stats.num_allocs;
  args->num_allocs_is_set = true;
  args->largest_alloc_size = stats.largest_alloc_bytes;
  args->largest_alloc_size_is_set = true;
  args->bytes_limit = stats.limit_bytes;
  args->bytes_limit_is_set = true;
  args->bytes_reserved = 0;
  args->bytes_reserved_is_set = true;
  args->peak_bytes_reserved = 0;
  args->peak_bytes_reserved_is_set = true;
  args->bytes_reservable_limit = stats.limit_bytes;
  args->bytes_reservable_limit_is_set = true;
  args->largest_free_block_bytes = free_bytes;
  args->largest_free_block_bytes_is_set = true;
  args->pool_bytes = 0;
  args->pool_bytes_is_set = false;
  args->peak_pool_bytes = 0;
  args->peak_pool_bytes_is_set = false;
  return VT_OK;
}

static void keep_attributes(PJRT_Device_Attributes *attributes) {
  (void)attributes;
}

vt_status vt_pjrt_Device_GetAttributes(PJRT_Device_GetAttributes_Args *args) {
  args->attributes = args->device->description.attributes;
  args->num_attributes = args->device->description.attribute_count;
  args->device_attributes =
      (PJRT_Device_Attributes *)args->device; // the owner outlives every reader
  args->attributes_deleter = keep_attributes;
  return VT_OK;
}

vt_status vt_pjrt_Device_ClearMemoryStats(PJRT_Device_ClearMemoryStats_Args *args) {
  vt_device_clear_stats(args->device->device);
  return VT_OK;
}
