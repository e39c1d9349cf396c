// SPDX-License-Identifier: Apache-2.0
// pjrt_buffer.c - slots of PJRT_Buffer, which is the runtime's buffer.
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "pjrt/objects.h"

vt_status vt_type_from_pjrt(int type, const int64_t *dims, size_t num_dims, vt_type *out_type) {
  if (type <= 0 || type >= VT_DTYPE_LIMIT || vt_dtype_get((vt_dtype)type)->bits == 0)
    return vt_error(VT_UNIMPLEMENTED, "element type %d of the PJRT interface is not supported",
                    type);
  if (num_dims > VT_MAX_RANK)
    return vt_error(VT_INVALID_ARGUMENT, "%zu dimensions; at most %d", num_dims, VT_MAX_RANK);
  *out_type = (vt_type){(vt_dtype)type, (int32_t)num_dims, dims};
  return vt_type_check(*out_type);
}

vt_status vt_layout_from_pjrt(const PJRT_Buffer_MemoryLayout *layout, int32_t rank,
                              char text[VT_LAYOUT_TEXT], const char **out_text) {
  const size_t room = VT_LAYOUT_TEXT;
  *out_text = NULL;
  if (!layout || layout->type != PJRT_LAYOUT_TILED || rank == 0) return VT_OK;
  if (layout->tiled.minor_to_major_size != (size_t)rank)
    return vt_error(VT_INVALID_ARGUMENT, "layout of %zu dimensions for an array of %d",
                    layout->tiled.minor_to_major_size, rank);
  size_t at = 0;
  for (int32_t i = 0; i < rank; i++) {
    int64_t d = layout->tiled.minor_to_major[i];
    if (d < 0 || d >= rank)
      return vt_error(VT_INVALID_ARGUMENT, "layout names dimension %lld", (long long)d);
    at += (size_t)snprintf(text + at, room - at, "%c%lld", i ? ',' : '{', (long long)d);
  }
  vt_assert(at + 2 <= room);
  snprintf(text + at, room - at, "}");
  *out_text = text;
  return VT_OK;
}

vt_status vt_pjrt_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args) {
  vt_type type;
  VT_TRY(vt_type_from_pjrt(args->type, args->dims, args->num_dims, &type));
  if (args->num_byte_strides && args->num_byte_strides != args->num_dims)
    return vt_error(VT_INVALID_ARGUMENT, "%zu strides for %zu dimensions", args->num_byte_strides,
                    args->num_dims);
  if (!args->device && !args->memory)
    return vt_error(VT_INVALID_ARGUMENT, "neither a device nor a memory is given for the buffer");
  if (!args->data && vt_type_bytes(type) > 0) return vt_error(VT_INVALID_ARGUMENT, "no host data");
  PJRT_Memory *memory = args->memory ? args->memory : &args->device->memories[VT_MEMORY_DEVICE];
  vt_buffer *buffer = NULL;
  char text[VT_LAYOUT_TEXT];
  const char *layout = NULL;
  VT_TRY(vt_layout_from_pjrt(args->device_layout, type.rank, text, &layout));
  VT_TRY(vt_buffer_from_host(memory->memory, type, args->data,
                             args->num_byte_strides ? args->byte_strides : NULL, layout, &buffer));
  args->buffer = vt_buffer_to_pjrt(buffer);
  args->done_with_host_buffer = vt_event_to_pjrt(vt_event_done());
  return VT_OK;
}

vt_status vt_pjrt_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args) {
  vt_buffer_destroy(vt_buffer_of_pjrt(args->buffer));
  return VT_OK;
}

vt_status vt_pjrt_Buffer_ElementType(PJRT_Buffer_ElementType_Args *args) {
  args->type = (int)vt_buffer_type(vt_buffer_of_pjrt(args->buffer)).dtype;
  return VT_OK;
}

vt_status vt_pjrt_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args) {
  vt_type type = vt_buffer_type(vt_buffer_of_pjrt(args->buffer));
  args->dims = type.dims;
  args->num_dims = (size_t)type.rank;
  return VT_OK;
}

vt_status vt_pjrt_Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args *args) {
  vt_type type = vt_buffer_type(vt_buffer_of_pjrt(args->buffer));
  args->unpadded_dims = type.dims;
  args->num_dims = (size_t)type.rank;
  return VT_OK;
}

vt_status vt_pjrt_Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args *args) {
  args->dynamic_dim_indices = NULL;
  args->num_dynamic_dims = 0;
  return VT_OK;
}

// Row-major strides would be accurate too, but clients expect the tiled form with its order of
// dimensions.
vt_status vt_pjrt_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args) {
  static const int64_t order[VT_MAX_RANK] = {31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21,
                                             20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10,
                                             9,  8,  7,  6,  5,  4,  3,  2,  1,  0};
  vt_type type = vt_buffer_type(vt_buffer_of_pjrt(args->buffer));
  args->layout =
      (PJRT_Buffer_MemoryLayout){.struct_size = sizeof args->layout, .type = PJRT_LAYOUT_TILED};
  args->layout.tiled.struct_size = sizeof args->layout.tiled;
  args->layout.tiled.minor_to_major = order + VT_MAX_RANK - type.rank;
  args->layout.tiled.minor_to_major_size = (size_t)type.rank;
  return VT_OK;
}

// The actual storage: row-major, without the chip's padding, which only the HBM account knows
// (MemoryStats). Clients size their host copies by this.
vt_status vt_pjrt_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args) {
  args->on_device_size_in_bytes =
      (size_t)vt_type_bytes(vt_buffer_type(vt_buffer_of_pjrt(args->buffer)));
  return VT_OK;
}

vt_status vt_pjrt_Buffer_Device(PJRT_Buffer_Device_Args *args) {
  args->device = vt_device_to_pjrt(vt_buffer_memory(vt_buffer_of_pjrt(args->buffer))->device);
  return VT_OK;
}

vt_status vt_pjrt_Buffer_Memory(PJRT_Buffer_Memory_Args *args) {
  args->memory = vt_memory_to_pjrt(vt_buffer_memory(vt_buffer_of_pjrt(args->buffer)));
  return VT_OK;
}

vt_status vt_pjrt_Buffer_Delete(PJRT_Buffer_Delete_Args *args) {
  vt_buffer_delete(vt_buffer_of_pjrt(args->buffer));
  return VT_OK;
}

vt_status vt_pjrt_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args) {
  args->is_deleted = vt_buffer_is_deleted(vt_buffer_of_pjrt(args->buffer));
  return VT_OK;
}

// True would let a client read the array without copying it, and see a donated one change.
vt_status vt_pjrt_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args *args) {
  args->is_on_cpu = false;
  return VT_OK;
}

vt_status vt_pjrt_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args) {
  args->event = vt_event_to_pjrt(vt_buffer_ready(vt_buffer_of_pjrt(args->buffer)));
  return VT_OK;
}

vt_status vt_host_strides(vt_type type, const PJRT_Buffer_MemoryLayout *layout, int64_t *strides,
                          bool *out_given) {
  *out_given = false;
  if (!layout || type.rank == 0) return VT_OK;
  if (layout->type == PJRT_LAYOUT_STRIDES) {
    if (layout->strides.num_byte_strides != (size_t)type.rank)
      return vt_error(VT_INVALID_ARGUMENT, "%zu strides for %d dimensions",
                      layout->strides.num_byte_strides, type.rank);
    memcpy(strides, layout->strides.byte_strides, sizeof(int64_t) * (size_t)type.rank);
    *out_given = true;
    return VT_OK;
  }
  if (layout->tiled.num_tiles) return vt_error(VT_UNIMPLEMENTED, "tiled layouts in host memory");
  if (layout->tiled.minor_to_major_size != (size_t)type.rank)
    return vt_error(VT_INVALID_ARGUMENT, "layout of %zu dimensions for an array of %d",
                    layout->tiled.minor_to_major_size, type.rank);
  uint64_t seen = 0;
  int64_t step = (int64_t)vt_dtype_bytes(type.dtype);
  for (int32_t i = 0; i < type.rank; i++) {
    int64_t d = layout->tiled.minor_to_major[i];
    if (d < 0 || d >= type.rank || (seen >> d & 1))
      return vt_error(VT_INVALID_ARGUMENT, "minor_to_major is not a permutation of the dimensions");
    seen |= (uint64_t)1 << d;
    if (d != type.rank - 1 - i) *out_given = true;
    strides[d] = step;
    step *= type.dims[d];
  }
  return VT_OK;
}

vt_status vt_pjrt_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args) {
  vt_buffer *buffer = vt_buffer_of_pjrt(args->src);
  vt_type type = vt_buffer_type(buffer);
  size_t needed = (size_t)vt_type_bytes(type);
  if (!args->dst) {
    args->dst_size = needed;
    return VT_OK;
  }
  if (args->dst_size < needed)
    return vt_error(VT_INVALID_ARGUMENT, "destination of %zu bytes for an array of %zu",
                    args->dst_size, needed);
  int64_t strides[VT_MAX_RANK];
  bool given = false;
  VT_TRY(vt_host_strides(type, args->host_layout, strides, &given));
  vt_event *event = NULL;
  VT_TRY(vt_buffer_to_host(buffer, args->dst, given ? strides : NULL, &event));
  args->event = vt_event_to_pjrt(event);
  return VT_OK;
}

vt_status vt_pjrt_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args) {
  vt_buffer *copy = NULL;
  VT_TRY(vt_buffer_copy_to(vt_buffer_of_pjrt(args->buffer),
                           args->dst_device->memories[VT_MEMORY_DEVICE].memory, &copy));
  args->dst_buffer = vt_buffer_to_pjrt(copy);
  return VT_OK;
}

vt_status vt_pjrt_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args *args) {
  vt_buffer *copy = NULL;
  VT_TRY(vt_buffer_copy_to(vt_buffer_of_pjrt(args->buffer), args->dst_memory->memory, &copy));
  args->dst_buffer = vt_buffer_to_pjrt(copy);
  return VT_OK;
}

vt_status vt_pjrt_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args) {
  void *data = NULL;
  VT_TRY(vt_buffer_pointer(vt_buffer_of_pjrt(args->buffer), &data));
  args->buffer_pointer = (uintptr_t)data;
  return VT_OK;
}

vt_status vt_pjrt_Buffer_IncreaseExternalReferenceCount(
    PJRT_Buffer_IncreaseExternalReferenceCount_Args *args) {
  return vt_buffer_pin(vt_buffer_of_pjrt(args->buffer));
}

vt_status vt_pjrt_Buffer_DecreaseExternalReferenceCount(
    PJRT_Buffer_DecreaseExternalReferenceCount_Args *args) {
  return vt_buffer_unpin(vt_buffer_of_pjrt(args->buffer));
}

vt_status
vt_pjrt_Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args *args) {
  return vt_buffer_pointer(vt_buffer_of_pjrt(args->buffer), &args->device_memory_ptr);
}

vt_status
vt_pjrt_Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args *args) {
  vt_type type;
  VT_TRY(
      vt_type_from_pjrt(args->shape_element_type, args->shape_dims, args->shape_num_dims, &type));
  if (!args->device && !args->memory)
    return vt_error(VT_INVALID_ARGUMENT, "neither a device nor a memory is given for the buffer");
  PJRT_Memory *memory = args->memory ? args->memory : &args->device->memories[VT_MEMORY_DEVICE];
  vt_buffer *buffer = NULL;
  VT_TRY(vt_buffer_zeros(memory->memory, type, &buffer));
  args->buffer = vt_buffer_to_pjrt(buffer);
  return VT_OK;
}

vt_status vt_pjrt_Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args *args) {
  vt_type type;
  VT_TRY(
      vt_type_from_pjrt(args->shape_element_type, args->shape_dims, args->shape_num_dims, &type));
  vt_buffer *buffer = NULL;
  vt_status error =
      vt_error_from_pjrt(args->error_code, args->error_message, args->error_message_size);
  VT_TRY(vt_buffer_poisoned(args->memory->memory, type, error, &buffer));
  args->buffer = vt_buffer_to_pjrt(buffer);
  return VT_OK;
}

vt_status vt_raw_range(int64_t bytes, int64_t offset, int64_t size) {
  if (offset >= 0 && size >= 0 && offset <= bytes && size <= bytes - offset) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "%lld bytes from %lld on asked for; the array has %lld",
                  (long long)size, (long long)offset, (long long)bytes);
}

vt_status vt_pjrt_Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args *args) {
  vt_buffer *buffer = vt_buffer_of_pjrt(args->buffer);
  int64_t bytes = vt_type_bytes(vt_buffer_type(buffer));
  VT_TRY(vt_raw_range(bytes, args->offset, args->transfer_size));
  void *data = NULL;
  VT_TRY(vt_buffer_pointer(buffer, &data));
  if (args->transfer_size)
    memcpy(args->dst, (const char *)data + args->offset, (size_t)args->transfer_size);
  args->event = vt_event_to_pjrt(vt_event_done());
  return VT_OK;
}
