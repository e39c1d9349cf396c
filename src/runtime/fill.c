// SPDX-License-Identifier: Apache-2.0
// fill.c - buffers whose data arrives later: from a client that sends it in pieces, from another
// buffer, or from a donated one after some other event.
//
// The buffer exists at once and can be an argument; programs that take it start when it is filled
// (execute.c). A fill is finished exactly once; if abandoned, its buffer is an error.
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "runtime/runtime_internal.h"

struct vt_fill {
  vt_storage *storage;
  vt_storage *source; // donated: gives the data when the fill is finished
  vt_event *fetched;  // of another buffer: complete when its data has been copied
  vt_waiter waiter;   // for the source, or what was fetched
  int32_t rank;
  int64_t partial, offset[VT_MAX_RANK]; // in `source`
};

static vt_status fill_make(vt_type type, bool allocate, vt_fill **out_fill) {
  vt_event *ready = vt_event_create();
  vt_fill *fill = calloc(1, sizeof *fill);
  if (fill && ready) fill->storage = vt_storage_create(type, 1, ready);
  vt_event_release(ready);
  if (!fill || !fill->storage) {
    free(fill);
    return vt_error_no_memory();
  }
  fill->rank = type.rank;
  fill->storage->outside = true;
  vt_status st = allocate ? vt_storage_allocate(fill->storage, false) : VT_OK;
  if (!st) {
    *out_fill = fill;
    return VT_OK;
  }
  vt_storage_release(fill->storage);
  free(fill);
  return st;
}

static void fill_free(vt_fill *fill) {
  vt_storage_release(fill->storage);
  vt_storage_release(fill->source);
  vt_event_release(fill->fetched);
  free(fill);
}

vt_status vt_fill_create(vt_memory *memory, vt_type type, const char *layout, vt_fill **out_fill,
                         vt_buffer **out_buffer) {
  VT_TRY(vt_fork_check());
  VT_TRY(vt_type_check(type));
  VT_TRY(fill_make(type, true, out_fill));
  vt_status st =
      vt_buffer_enter(memory, vt_storage_retain((*out_fill)->storage), layout, out_buffer);
  if (!st) return VT_OK;
  fill_free(*out_fill);
  *out_fill = NULL;
  return st;
}

vt_status vt_fill_donated(vt_buffer *buffer, vt_fill **out_fill, vt_buffer **out_buffer) {
  vt_client *client = buffer->client;
  VT_TRY(vt_fork_check());
  vt_fill *fill = NULL;
  vt_type type = vt_buffer_type(buffer);
  VT_TRY(fill_make(type, false, &fill));
  vt_buffer *shown = vt_buffer_create(buffer->memory, fill->storage, type, 0, NULL, buffer->layout,
                                      buffer->hbm_bytes);
  if (!shown) {
    fill_free(fill);
    return vt_error_no_memory();
  }
  vt_lock(&client->lock);
  fill->source = vt_buffer_detach(buffer);
  if (fill->source) {
    fill->partial = buffer->partial;
    if (buffer->rank) memcpy(fill->offset, buffer->offset, sizeof(int64_t) * (size_t)buffer->rank);
    // The donated buffer has just given these bytes back.
    vt_status st = vt_hbm_take(client, buffer->memory->device, buffer->hbm_bytes);
    vt_status_free(st);
    vt_buffer_link(shown);
  }
  vt_unlock(&client->lock);
  if (fill->source) {
    *out_fill = fill;
    *out_buffer = shown;
    return VT_OK;
  }
  vt_buffer_free(shown);
  fill_free(fill);
  return vt_error(VT_INVALID_ARGUMENT, "the buffer to donate was deleted or donated");
}

int64_t vt_fill_bytes(const vt_fill *fill) {
  return vt_type_bytes(fill->storage->type);
}

vt_status vt_fill_write(vt_fill *fill, int64_t offset, const void *bytes, int64_t size) {
  int64_t room = vt_fill_bytes(fill);
  if (offset < 0 || size < 0 || offset > room || size > room - offset)
    return vt_error(VT_INVALID_ARGUMENT, "%lld bytes from %lld on do not fit into %lld",
                    (long long)size, (long long)offset, (long long)room);
  if (size) memcpy((char *)fill->storage->data + offset, bytes, (size_t)size);
  return VT_OK;
}

// Takes over the donated memory when nobody else holds it, else copies.
static vt_status take_source(vt_fill *fill) {
  vt_assert(!fill->storage->data && vt_event_is_complete(fill->source->ready));
  vt_storage *to = fill->storage, *from = fill->source;
  bool whole = from->partials == 1 && vt_type_same_dims(to->type, from->type);
  if (whole && atomic_load(&from->refs) == 1) {
    to->data = from->data;
    atomic_store(&to->out, atomic_load(&from->out));
    from->data = NULL;
    return VT_OK;
  }
  VT_TRY(vt_storage_allocate(to, false));
  int64_t to_strides[VT_MAX_RANK], from_strides[VT_MAX_RANK];
  size_t element = vt_dtype_bytes(to->type.dtype);
  const char *data = (const char *)from->data + vt_storage_at(from, fill->partial, fill->offset);
  vt_type_strides(to->type, to_strides);
  vt_type_strides(from->type, from_strides);
  for (int32_t i = 0; i < fill->rank; i++) {
    to_strides[i] *= (int64_t)element;
    from_strides[i] *= (int64_t)element;
  }
  vt_copy_strided(fill->rank, to->dims, element, to->data, to_strides, data, from_strides);
  return VT_OK;
}

static void finish(vt_status error, void *user) {
  vt_fill *fill = user;
  if (!error && fill->source) error = take_source(fill);
  vt_event_complete(fill->storage->ready, error);
  fill_free(fill);
}

void vt_fill_finish(vt_fill *fill, vt_status error) {
  if (!error && fill->source)
    vt_event_on_complete(fill->source->ready, &fill->waiter, finish, fill);
  else
    finish(error, fill);
}

void vt_fill_destroy(vt_fill *fill) {
  if (fill)
    finish(vt_error(VT_CANCELLED, "the transfer that fills this buffer was given up"), fill);
}

vt_status vt_fill_from(vt_fill *fill, vt_buffer *source) {
  VT_TRY(vt_buffer_to_host(source, fill->storage->data, NULL, &fill->fetched));
  vt_event_on_complete(fill->fetched, &fill->waiter, finish, fill);
  return VT_OK;
}
