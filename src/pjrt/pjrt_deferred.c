// SPDX-License-Identifier: Apache-2.0
// pjrt_deferred.c - buffers made from others now or later: aliases that are fulfilled, donations
// that wait for an event, bitcasts, views, and raw copies whose destination comes later.
#include <stdlib.h>
#include <string.h>

#include "pjrt/objects.h"

vt_status vt_error_from_pjrt(int code, const char *message, size_t size) {
  return vt_error((vt_code)(code ? code : VT_UNKNOWN), "%.*s", (int)size, message ? message : "");
}

// Aliases -----------------------------------------------------------------------------------------
// The handle that fulfils an alias is its vt_fill.

vt_status vt_pjrt_Client_CreateAliasBuffer(PJRT_Client_CreateAliasBuffer_Args *args) {
  vt_type type;
  char room[VT_LAYOUT_TEXT];
  const char *layout = NULL;
  vt_fill *fill = NULL;
  vt_buffer *buffer = NULL;
  VT_TRY(
      vt_type_from_pjrt(args->shape_element_type, args->shape_dims, args->shape_num_dims, &type));
  VT_TRY(vt_layout_from_pjrt(args->shape_layout, type.rank, room, &layout));
  if (!args->memory) return vt_error(VT_INVALID_ARGUMENT, "no memory is given for the alias");
  VT_TRY(vt_fill_create(args->memory->memory, type, layout, &fill, &buffer));
  args->alias_buffer = vt_buffer_to_pjrt(buffer);
  args->fulfill_alias_buffer_cb = (PJRT_FulfillAliasBufferCallback *)fill;
  return VT_OK;
}

vt_status vt_pjrt_Client_FulfillAliasBuffer(PJRT_Client_FulfillAliasBuffer_Args *args) {
  vt_fill *fill = (vt_fill *)args->fulfill_alias_buffer_cb;
  if (args->status_code) {
    vt_fill_finish(
        fill, vt_error_from_pjrt(args->status_code, args->error_message, args->error_message_size));
    return VT_OK;
  }
  vt_buffer *buffer = vt_buffer_of_pjrt(args->buffer);
  int64_t bytes = buffer ? vt_type_bytes(vt_buffer_type(buffer)) : -1;
  vt_status st = bytes == vt_fill_bytes(fill)
                     ? vt_fill_from(fill, buffer)
                     : vt_error(VT_INVALID_ARGUMENT, "an alias of %lld bytes for %lld",
                                (long long)vt_fill_bytes(fill), (long long)bytes);
  if (st) vt_fill_finish(fill, vt_status_copy(st));
  return st;
}

// A bitcast reads the same bytes as another array. Elements of fewer than eight bits take one byte
// each here but are packed on the chip, so they can only be cast to their own type.
vt_status vt_pjrt_Buffer_Bitcast(PJRT_Buffer_Bitcast_Args *args) {
  vt_buffer *buffer = vt_buffer_of_pjrt(args->buffer), *out = NULL;
  vt_type from = vt_buffer_type(buffer), to;
  char room[VT_LAYOUT_TEXT];
  const char *layout = NULL;
  vt_fill *fill = NULL;
  VT_TRY(vt_type_from_pjrt(args->element_type, args->dims, args->num_dims, &to));
  VT_TRY(vt_layout_from_pjrt(args->device_layout, to.rank, room, &layout));
  bool narrow = vt_dtype_get(from.dtype)->bits < 8 || vt_dtype_get(to.dtype)->bits < 8;
  if (narrow && vt_dtype_get(from.dtype)->bits != vt_dtype_get(to.dtype)->bits)
    return vt_error(VT_UNIMPLEMENTED, "bitcast between element types of %d and %d bits",
                    vt_dtype_get(from.dtype)->bits, vt_dtype_get(to.dtype)->bits);
  if (vt_type_bytes(from) != vt_type_bytes(to))
    return vt_error(VT_INVALID_ARGUMENT, "bitcast of %lld bytes to an array of %lld",
                    (long long)vt_type_bytes(from), (long long)vt_type_bytes(to));
  VT_TRY(vt_fill_create(vt_buffer_memory(buffer), to, layout, &fill, &out));
  vt_status st = vt_fill_from(fill, buffer);
  if (st) {
    vt_fill_destroy(fill);
    vt_buffer_destroy(out);
    return st;
  }
  args->out_buffer = vt_buffer_to_pjrt(out);
  return VT_OK;
}

// The viewed memory may not change while the view lives, so a copy is indistinguishable from it;
// the memory is given back at once.
vt_status vt_pjrt_Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args *args) {
  vt_type type;
  int64_t strides[VT_MAX_RANK];
  bool given = false;
  vt_buffer *buffer = NULL;
  VT_TRY(vt_type_from_pjrt(args->element_type, args->dims, args->num_dims, &type));
  VT_TRY(vt_host_strides(type, args->layout, strides, &given));
  if (!args->device && !args->memory)
    return vt_error(VT_INVALID_ARGUMENT, "neither a device nor a memory is given for the buffer");
  if (!args->device_buffer_ptr && vt_type_bytes(type) > 0)
    return vt_error(VT_INVALID_ARGUMENT, "no device buffer to view");
  PJRT_Memory *memory = args->memory ? args->memory : &args->device->memories[VT_MEMORY_DEVICE];
  VT_TRY(vt_buffer_from_host(memory->memory, type, args->device_buffer_ptr, given ? strides : NULL,
                             NULL, &buffer));
  if (args->on_delete_callback)
    args->on_delete_callback(args->device_buffer_ptr, args->on_delete_callback_arg);
  args->buffer = vt_buffer_to_pjrt(buffer);
  return VT_OK;
}

// Donation that waits for an event ----------------------------------------------------------------

static void dependency_ready(PJRT_Buffer_DonateWithControlDependency_Callback_Args *args) {
  vt_status error = args->error_code ? vt_error_from_pjrt(args->error_code, args->error_message,
                                                          args->error_message_size)
                                     : VT_OK;
  vt_fill_finish(args->callback_data, error);
}

vt_status
vt_pjrt_Buffer_DonateWithControlDependency(PJRT_Buffer_DonateWithControlDependency_Args *args) {
  vt_fill *fill = NULL;
  vt_buffer *buffer = NULL;
  VT_TRY(vt_fill_donated(vt_buffer_of_pjrt(args->buffer), &fill, &buffer));
  args->callback_data = fill;
  args->dependency_ready_callback = dependency_ready;
  args->out_buffer = vt_buffer_to_pjrt(buffer);
  return VT_OK;
}

// Raw copies whose destination comes later --------------------------------------------------------

typedef struct raw_copy {
  atomic_int pending; // the data, the destination
  char *data;         // of the whole array
  int64_t offset, size;
  void *dst;
  vt_status error; // of the client
  vt_event *fetched, *done;
  vt_waiter waiter;
} raw_copy;

static void raw_copy_part(raw_copy *copy) {
  if (atomic_fetch_sub(&copy->pending, 1) != 1) return;
  vt_status st = copy->error;
  if (!st) st = vt_event_error(copy->fetched);
  if (!st && copy->size) memcpy(copy->dst, copy->data + copy->offset, (size_t)copy->size);
  vt_event_complete(copy->done, st);
  vt_event_release(copy->done);
  vt_event_release(copy->fetched);
  free(copy->data);
  free(copy);
}

static void raw_copy_fetched(vt_status error, void *user) {
  vt_status_free(error); // the event keeps it
  raw_copy_part(user);
}

static void raw_copy_placed(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *args) {
  raw_copy *copy = args->callback_data;
  copy->dst = args->dst;
  if (args->error_code)
    copy->error =
        vt_error_from_pjrt(args->error_code, args->error_message, args->error_message_size);
  raw_copy_part(copy);
}

vt_status vt_pjrt_Buffer_CopyRawToHostFuture(PJRT_Buffer_CopyRawToHostFuture_Args *args) {
  vt_buffer *buffer = vt_buffer_of_pjrt(args->buffer);
  int64_t bytes = vt_type_bytes(vt_buffer_type(buffer));
  VT_TRY(vt_raw_range(bytes, args->offset, args->transfer_size));
  raw_copy *copy = calloc(1, sizeof *copy);
  if (!copy) return vt_error_no_memory();
  atomic_init(&copy->pending, 2);
  copy->offset = args->offset;
  copy->size = args->transfer_size;
  copy->data = malloc(bytes ? (size_t)bytes : 1);
  copy->done = vt_event_create();
  vt_status st = copy->data && copy->done
                     ? vt_buffer_to_host(buffer, copy->data, NULL, &copy->fetched)
                     : vt_error_no_memory();
  if (st) {
    vt_event_release(copy->done);
    free(copy->data);
    free(copy);
    return st;
  }
  args->event = vt_event_to_pjrt(vt_event_retain(copy->done));
  args->callback_data = copy;
  args->future_ready_callback = raw_copy_placed;
  vt_event_on_complete(copy->fetched, &copy->waiter, raw_copy_fetched, copy);
  return VT_OK;
}
