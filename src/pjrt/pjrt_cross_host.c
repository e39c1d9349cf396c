// SPDX-License-Identifier: Apache-2.0
// pjrt_cross_host.c - extension CrossHostTransfers: arrays between devices of two processes.
#include "pjrt/objects.h"

static PJRT_Error *send(PJRT_CrossHost_Send_Args *args) {
  for (size_t i = 0; i < args->count; i++) {
    vt_event *sent = NULL;
    vt_status st = vt_transfer_send(vt_buffer_of_pjrt(args->buffers[i]), args->device_ids[i],
                                    args->keys[i], &sent);
    // Those before are on their way, and their events with the caller.
    args->sent[i] = vt_event_to_pjrt(st ? vt_event_failed(st) : sent);
  }
  return NULL;
}

static vt_status receive_one(const PJRT_CrossHost_Receive_Args *args, size_t i) {
  vt_type type;
  char room[VT_LAYOUT_TEXT];
  const char *layout = NULL;
  vt_buffer *buffer = NULL;
  VT_TRY(vt_type_from_pjrt(args->types[i], args->dims[i], args->num_dims[i], &type));
  if (args->layouts) VT_TRY(vt_layout_from_pjrt(args->layouts[i], type.rank, room, &layout));
  vt_memory *memory = &args->device->device->memories[VT_MEMORY_DEVICE];
  VT_TRY(vt_transfer_receive(memory, type, layout, args->device_ids[i], args->keys[i], &buffer));
  args->buffers[i] = vt_buffer_to_pjrt(buffer);
  return VT_OK;
}

static PJRT_Error *receive(PJRT_CrossHost_Receive_Args *args) {
  for (size_t i = 0; i < args->count; i++) {
    vt_status st = receive_one(args, i);
    if (!st) continue;
    while (i-- > 0) vt_buffer_destroy(vt_buffer_of_pjrt(args->buffers[i]));
    return st;
  }
  return NULL;
}

// Callers try the functions above first, and these where those are missing.
static PJRT_Error *make_receive_buffers(void *args) {
  (void)args;
  return vt_error(VT_UNIMPLEMENTED, "MakeCrossHostReceiveBuffers; use CrossHostReceiveBuffers");
}

static void copy_to_remote_device(PJRT_CrossHost_CopyToRemoteDevice_Args *args) {
  args->done(vt_error(VT_UNIMPLEMENTED, "CopyToRemoteDevice; use CrossHostSendBuffers"), false,
             args->user);
}

PJRT_CrossHostTransfers_Extension vt_pjrt_cross_host = {
    .base = {sizeof vt_pjrt_cross_host, PJRT_EXTENSION_CROSS_HOST_TRANSFERS,
             &vt_pjrt_profiler.base},
    .make_receive_buffers = make_receive_buffers,
    .copy_to_remote_device = copy_to_remote_device,
    .receive = receive,
    .send = send};
