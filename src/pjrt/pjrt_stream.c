// SPDX-License-Identifier: Apache-2.0
// pjrt_stream.c - host callbacks: the sends and receives of one execution, and
// PJRT_CopyToDeviceStream.
//
// For each send the program passes a chunk to the client, whose Python runs inside the last one on
// the executor thread. For each receive it opens a stream, which the client fills with one or more
// chunks, immediately or from its own thread; the program waits until all bytes have arrived.
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "pjrt/objects.h"

struct PJRT_CopyToDeviceStream {
  atomic_int refs; // the client and the waiting program
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int64_t total, current;
  char *data;  // of the program; only while it waits
  bool closed; // destroyed by the client
};

typedef struct transfers {
  size_t device_count, send_count, recv_count;
  PJRT_SendCallbackInfo *sends; // [device][send_count]
  PJRT_RecvCallbackInfo *recvs;
} transfers;

static void stream_release(PJRT_CopyToDeviceStream *stream) {
  if (atomic_fetch_sub(&stream->refs, 1) != 1 || vt_forked()) return;
  pthread_cond_destroy(&stream->changed);
  pthread_mutex_destroy(&stream->mutex);
  free(stream);
}

vt_status vt_pjrt_CopyToDeviceStream_Destroy(PJRT_CopyToDeviceStream_Destroy_Args *args) {
  PJRT_CopyToDeviceStream *stream = args->stream;
  if (!stream) return VT_OK;
  vt_lock(&stream->mutex);
  stream->closed = true;
  pthread_cond_broadcast(&stream->changed);
  vt_unlock(&stream->mutex);
  stream_release(stream);
  return VT_OK;
}

vt_status vt_pjrt_CopyToDeviceStream_AddChunk(PJRT_CopyToDeviceStream_AddChunk_Args *args) {
  PJRT_CopyToDeviceStream *stream = args->stream;
  PJRT_Chunk *chunk = args->chunk;
  vt_status st = VT_OK;
  vt_lock(&stream->mutex);
  if (chunk->size > (size_t)(stream->total - stream->current)) {
    st = vt_error(VT_INVALID_ARGUMENT, "host callback: %zu bytes offered, %lld expected",
                  chunk->size, (long long)(stream->total - stream->current));
  } else {
    if (chunk->size && stream->data)
      memcpy(stream->data + stream->current, chunk->data, chunk->size);
    stream->current += (int64_t)chunk->size;
    pthread_cond_broadcast(&stream->changed);
  }
  vt_unlock(&stream->mutex);
  if (chunk->deleter) chunk->deleter(chunk->data, chunk->deleter_arg);
  if (st) return st;
  args->transfer_complete = vt_event_to_pjrt(vt_event_done());
  return VT_OK;
}

vt_status vt_pjrt_CopyToDeviceStream_TotalBytes(PJRT_CopyToDeviceStream_TotalBytes_Args *args) {
  args->total_bytes = args->stream->total;
  return VT_OK;
}

vt_status vt_pjrt_CopyToDeviceStream_GranuleSize(PJRT_CopyToDeviceStream_GranuleSize_Args *args) {
  args->granule_size_in_bytes = 1;
  return VT_OK;
}

vt_status vt_pjrt_CopyToDeviceStream_CurrentBytes(PJRT_CopyToDeviceStream_CurrentBytes_Args *args) {
  vt_lock(&args->stream->mutex);
  args->current_bytes = args->stream->current;
  vt_unlock(&args->stream->mutex);
  return VT_OK;
}

PJRT_Error *vt_callback_error(int code, const char *message, size_t message_size) {
  return vt_error((vt_code)code, "%.*s", (int)message_size, message);
}

static void free_chunk(void *data, void *arg) {
  (void)arg;
  free(data);
}

static vt_status transfer_send(void *user, int32_t device, int64_t channel, vt_type type,
                               const void *data) {
  transfers *t = user;
  for (size_t i = 0; (size_t)device < t->device_count && i < t->send_count; i++) {
    const PJRT_SendCallbackInfo *info = &t->sends[(size_t)device * t->send_count + i];
    if (info->channel_id != channel) continue;
    size_t size = (size_t)vt_type_bytes(type);
    PJRT_Chunk chunk = {.data = malloc(size ? size : 1), .size = size, .deleter = free_chunk};
    if (!chunk.data) return vt_error_no_memory();
    if (size) memcpy(chunk.data, data, size);
    PJRT_CallbackError make_error = vt_callback_error;
    return info->send(&chunk, &make_error, size, true, info->user_arg);
  }
  return vt_error(VT_FAILED_PRECONDITION, "no host callback listens on channel %lld of device %d",
                  (long long)channel, device);
}

static vt_status transfer_recv(void *user, int32_t device, int64_t channel, vt_type type,
                               void *data) {
  transfers *t = user;
  const PJRT_RecvCallbackInfo *info = NULL;
  for (size_t i = 0; (size_t)device < t->device_count && i < t->recv_count && !info; i++) {
    info = &t->recvs[(size_t)device * t->recv_count + i];
    if (info->channel_id != channel) info = NULL;
  }
  if (!info)
    return vt_error(VT_FAILED_PRECONDITION, "no host callback feeds channel %lld of device %d",
                    (long long)channel, device);
  PJRT_CopyToDeviceStream *stream = calloc(1, sizeof *stream);
  if (!stream) return vt_error_no_memory();
  atomic_init(&stream->refs, 2);
  pthread_mutex_init(&stream->mutex, NULL);
  pthread_cond_init(&stream->changed, NULL);
  stream->total = vt_type_bytes(type);
  stream->data = data;
  info->recv(stream, info->user_arg);
  vt_lock(&stream->mutex);
  while (stream->current < stream->total && !stream->closed)
    pthread_cond_wait(&stream->changed, &stream->mutex);
  int64_t got = stream->current, total = stream->total;
  stream->data = NULL;
  vt_unlock(&stream->mutex);
  stream_release(stream);
  if (got == total) return VT_OK;
  return vt_error(VT_INTERNAL, "host callback provided %lld of %lld bytes on channel %lld",
                  (long long)got, (long long)total, (long long)channel);
}

static void transfers_destroy(void *user) {
  transfers *t = user;
  free(t->sends);
  free(t->recvs);
  free(t);
}

vt_status vt_transfers_create(const PJRT_ExecuteOptions *options, size_t device_count,
                              vt_transfer_calls *out_calls) {
  if (!options || (!options->num_send_ops && !options->num_recv_ops)) return VT_OK;
  transfers *t = calloc(1, sizeof *t);
  if (!t) return vt_error_no_memory();
  t->device_count = device_count;
  t->send_count = options->send_callbacks ? options->num_send_ops : 0;
  t->recv_count = options->recv_callbacks ? options->num_recv_ops : 0;
  t->sends = calloc(device_count * t->send_count + 1, sizeof *t->sends);
  t->recvs = calloc(device_count * t->recv_count + 1, sizeof *t->recvs);
  if (!t->sends || !t->recvs) {
    transfers_destroy(t);
    return vt_error_no_memory();
  }
  for (size_t d = 0; d < device_count; d++) {
    for (size_t i = 0; i < t->send_count; i++)
      t->sends[d * t->send_count + i] = options->send_callbacks[d][i];
    for (size_t i = 0; i < t->recv_count; i++)
      t->recvs[d * t->recv_count + i] = options->recv_callbacks[d][i];
  }
  *out_calls =
      (vt_transfer_calls){.calls = {.user = t, .send = transfer_send, .recv = transfer_recv},
                          .destroy = transfers_destroy};
  return VT_OK;
}
