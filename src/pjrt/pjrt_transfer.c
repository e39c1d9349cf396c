// SPDX-License-Identifier: Apache-2.0
// pjrt_transfer.c - PJRT_AsyncHostToDeviceTransferManager: buffers that exist at once and get their
// data in pieces.
//
// A piece is copied before the call returns, so the event that goes with it is always complete.
#include <stdlib.h>
#include <string.h>

#include "pjrt/objects.h"

typedef struct slot {
  vt_fill *fill;     // NULL once finished
  vt_buffer *buffer; // NULL once retrieved
  size_t bytes;
} slot;

struct PJRT_AsyncHostToDeviceTransferManager {
  PJRT_Device *device;
  pthread_mutex_t mutex;
  size_t count;
  slot slots[];
};
typedef PJRT_AsyncHostToDeviceTransferManager manager;

static void manager_free(manager *m) {
  for (size_t i = 0; i < m->count; i++) {
    vt_fill_destroy(m->slots[i].fill);
    vt_buffer_destroy(m->slots[i].buffer);
  }
  pthread_mutex_destroy(&m->mutex);
  free(m);
}

static vt_status slot_make(PJRT_Memory *memory, const PJRT_ShapeSpec *spec,
                           const PJRT_Buffer_MemoryLayout *layout, slot *s) {
  vt_type type;
  char room[VT_LAYOUT_TEXT];
  const char *text = NULL;
  VT_TRY(vt_type_from_pjrt(spec->element_type, spec->dims, spec->num_dims, &type));
  VT_TRY(vt_layout_from_pjrt(layout, type.rank, room, &text));
  VT_TRY(vt_fill_create(memory->memory, type, text, &s->fill, &s->buffer));
  s->bytes = (size_t)vt_fill_bytes(s->fill);
  return VT_OK;
}

vt_status vt_pjrt_Client_CreateBuffersForAsyncHostToDevice(
    PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args) {
  if (!args->memory) return vt_error(VT_INVALID_ARGUMENT, "no memory is given for the buffers");
  if (args->num_device_layouts && args->num_device_layouts != args->num_shape_specs)
    return vt_error(VT_INVALID_ARGUMENT, "%zu layouts for %zu shapes", args->num_device_layouts,
                    args->num_shape_specs);
  manager *m = calloc(1, sizeof *m + args->num_shape_specs * sizeof *m->slots);
  if (!m) return vt_error_no_memory();
  pthread_mutex_init(&m->mutex, NULL);
  m->device = args->memory->device;
  vt_status st = VT_OK;
  for (; m->count < args->num_shape_specs && !st; m->count++)
    st = slot_make(args->memory, &args->shape_specs[m->count],
                   args->num_device_layouts ? args->device_layouts[m->count] : NULL,
                   &m->slots[m->count]);
  if (st) {
    manager_free(m);
    return st;
  }
  args->transfer_manager = m;
  return VT_OK;
}

vt_status vt_pjrt_AsyncHostToDeviceTransferManager_Destroy(
    PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *args) {
  if (args->transfer_manager) manager_free(args->transfer_manager);
  return VT_OK;
}

static vt_status slot_at(manager *m, int index, slot **out_slot) {
  if (index < 0 || (size_t)index >= m->count)
    return vt_error(VT_INVALID_ARGUMENT, "buffer %d of a transfer of %zu", index, m->count);
  *out_slot = &m->slots[index];
  return VT_OK;
}

// The slot at `index`, which must still take data, with the manager locked.
static vt_status open_slot(manager *m, int index, slot **out_slot) {
  VT_TRY(slot_at(m, index, out_slot));
  vt_lock(&m->mutex);
  if ((*out_slot)->fill) return VT_OK;
  vt_unlock(&m->mutex);
  return vt_error(VT_FAILED_PRECONDITION, "buffer %d of the transfer is already complete", index);
}

// Ends the transfer of a slot; unlocks.
static void close_slot(manager *m, slot *s, vt_status error) {
  vt_fill *fill = s->fill;
  s->fill = NULL;
  vt_unlock(&m->mutex);
  vt_fill_finish(fill, error);
}

vt_status vt_pjrt_AsyncHostToDeviceTransferManager_TransferData(
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args) {
  manager *m = args->transfer_manager;
  slot *s = NULL;
  VT_TRY(open_slot(m, args->buffer_index, &s));
  vt_status st = vt_fill_write(s->fill, args->offset, args->data, args->transfer_size);
  if (!st && args->is_last_transfer)
    close_slot(m, s, VT_OK);
  else
    vt_unlock(&m->mutex);
  if (!st) args->done_with_h2d_transfer = vt_event_to_pjrt(vt_event_done());
  return st;
}

vt_status vt_pjrt_AsyncHostToDeviceTransferManager_TransferLiteral(
    PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args *args) {
  manager *m = args->transfer_manager;
  slot *s = NULL;
  vt_type type;
  int64_t strides[VT_MAX_RANK], dense[VT_MAX_RANK];
  bool given = false;
  VT_TRY(
      vt_type_from_pjrt(args->shape_element_type, args->shape_dims, args->shape_num_dims, &type));
  VT_TRY(vt_host_strides(type, args->shape_layout, strides, &given));
  VT_TRY(open_slot(m, args->buffer_index, &s));
  size_t bytes = (size_t)vt_type_bytes(type);
  void *rows = NULL;
  vt_status st = VT_OK;
  if (bytes != s->bytes)
    st = vt_error(VT_INVALID_ARGUMENT, "a literal of %zu bytes for a buffer of %zu", bytes,
                  s->bytes);
  if (!st && given && !(rows = malloc(bytes ? bytes : 1))) st = vt_error_no_memory();
  if (rows) {
    size_t element = vt_dtype_bytes(type.dtype);
    vt_type_strides(type, dense);
    for (int32_t i = 0; i < type.rank; i++) dense[i] *= (int64_t)element;
    vt_copy_strided(type.rank, type.dims, element, rows, dense, args->data, strides);
  }
  if (!st) st = vt_fill_write(s->fill, 0, rows ? rows : args->data, (int64_t)bytes);
  free(rows);
  if (!st)
    close_slot(m, s, VT_OK);
  else
    vt_unlock(&m->mutex);
  if (!st) args->done_with_h2d_transfer = vt_event_to_pjrt(vt_event_done());
  return st;
}

vt_status vt_pjrt_AsyncHostToDeviceTransferManager_SetBufferError(
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args *args) {
  slot *s = NULL;
  VT_TRY(open_slot(args->transfer_manager, args->buffer_index, &s));
  close_slot(args->transfer_manager, s,
             vt_error_from_pjrt(args->error_code, args->error_message, args->error_message_size));
  return VT_OK;
}

vt_status vt_pjrt_AsyncHostToDeviceTransferManager_RetrieveBuffer(
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *args) {
  manager *m = args->transfer_manager;
  slot *s = NULL;
  VT_TRY(slot_at(m, args->buffer_index, &s));
  vt_lock(&m->mutex);
  vt_buffer *buffer = s->buffer;
  s->buffer = NULL;
  vt_unlock(&m->mutex);
  if (!buffer)
    return vt_error(VT_FAILED_PRECONDITION, "buffer %d of the transfer was already retrieved",
                    args->buffer_index);
  args->buffer_out = vt_buffer_to_pjrt(buffer);
  return VT_OK;
}

vt_status vt_pjrt_AsyncHostToDeviceTransferManager_Device(
    PJRT_AsyncHostToDeviceTransferManager_Device_Args *args) {
  args->device_out = args->transfer_manager->device;
  return VT_OK;
}

vt_status vt_pjrt_AsyncHostToDeviceTransferManager_BufferCount(
    PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args *args) {
  args->buffer_count = args->transfer_manager->count;
  return VT_OK;
}

vt_status vt_pjrt_AsyncHostToDeviceTransferManager_BufferSize(
    PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args *args) {
  slot *s = NULL;
  VT_TRY(slot_at(args->transfer_manager, args->buffer_index, &s));
  args->buffer_size = s->bytes;
  return VT_OK;
}

// Names and values that a client attaches for its own logs; nothing depends on them.
vt_status vt_pjrt_AsyncHostToDeviceTransferManager_AddMetadata(
    PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args *args) {
  (void)args;
  return VT_OK;
}
