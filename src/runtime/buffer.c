// SPDX-License-Identifier: Apache-2.0
// buffer.c - an array on a device: a rectangle of a storage, accounted in the device's HBM.
//
// The storage a buffer shows may be replaced by an equal one (execute.c gathers shards into one
// array and makes them show it), so the pointer is read with the client's lock held and the storage
// retained before use.
#include "base/check.h"
#include "base/memory.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

vt_buffer *vt_buffer_create(vt_memory *memory, vt_storage *storage, vt_type shard, int64_t partial,
                            const int64_t *offset, const char *layout, int64_t hbm_bytes) {
  vt_assert(shard.rank >= 0 && shard.rank <= storage->type.rank);
  vt_assert(partial >= 0 && partial < storage->partials && hbm_bytes >= 0);
  vt_assert_each(i, offset ? shard.rank : 0, offset[i] >= 0 && offset[i] <= storage->dims[i]);
  size_t dims_bytes = sizeof(int64_t) * (size_t)shard.rank;
  vt_buffer *buffer = malloc(sizeof *buffer + 2 * dims_bytes);
  char *own_layout = layout ? strdup(layout) : NULL;
  if (!buffer || (layout && !own_layout)) {
    free(buffer);
    free(own_layout);
    return NULL;
  }
  *buffer = (vt_buffer){.client = memory->device->client,
                        .memory = memory,
                        .storage = vt_storage_retain(storage),
                        .hbm_bytes = memory->kind == VT_MEMORY_DEVICE ? hbm_bytes : 0,
                        .dtype = shard.dtype,
                        .rank = shard.rank,
                        .partial = partial,
                        .layout = own_layout};
  buffer->dims = (int64_t *)(buffer + 1);
  buffer->offset = buffer->dims + shard.rank;
  if (shard.rank) {
    memcpy(buffer->dims, shard.dims, dims_bytes);
    if (offset)
      memcpy(buffer->offset, offset, dims_bytes);
    else
      memset(buffer->offset, 0, dims_bytes);
  }
  vt_client_retain(buffer->client);
  return buffer;
}

void vt_buffer_link(vt_buffer *buffer) {
  vt_assert(buffer->hbm_bytes <= buffer->client->accounts[buffer->memory->device->id].in_use);
  vt_assert(buffer->storage && !buffer->next && !buffer->prev);
  vt_account *account = &buffer->client->accounts[buffer->memory->device->id];
  buffer->next = account->live;
  if (account->live) account->live->prev = buffer;
  account->live = buffer;
}

vt_storage *vt_buffer_detach(vt_buffer *buffer) {
  vt_storage *storage = buffer->storage;
  if (!storage) return NULL;
  buffer->storage = NULL;
  vt_account *account = &buffer->client->accounts[buffer->memory->device->id];
  vt_assert(buffer->prev ? buffer->prev->next == buffer : account->live == buffer);
  vt_assert(!buffer->next || buffer->next->prev == buffer);
  if (buffer->prev)
    buffer->prev->next = buffer->next;
  else
    account->live = buffer->next;
  if (buffer->next) buffer->next->prev = buffer->prev;
  buffer->prev = buffer->next = NULL;
  vt_hbm_give(buffer->client, buffer->memory->device, buffer->hbm_bytes);
  return storage;
}

// The storage, retained, and the buffer's place in it; NULL when deleted.
static vt_storage *buffer_storage(vt_buffer *buffer) {
  vt_lock(&buffer->client->lock);
  vt_storage *storage = buffer->storage ? vt_storage_retain(buffer->storage) : NULL;
  vt_unlock(&buffer->client->lock);
  return storage;
}

static vt_status say_deleted(void *user) {
  const vt_buffer *buffer = user;
  vt_text shape = {0};
  vt_type_print(&shape, vt_buffer_type(buffer));
  vt_status st =
      vt_error(VT_INVALID_ARGUMENT, "buffer %s was deleted or donated", vt_text_string(&shape));
  vt_text_free(&shape);
  return st;
}

static vt_status deleted_error(const vt_buffer *buffer) {
  vt_attempt attempt; // the client may be locked
  vt_status st = vt_attempt_run(&attempt, say_deleted, (void *)(uintptr_t)buffer);
  vt_attempt_end(&attempt);
  return st;
}

// A buffer keeps the text of a layout only when it is not the default.
static const char *kept_layout(const vt_memory *memory, vt_type type, const char *layout) {
  const vt_chip *chip = memory->device->client->slice.chip;
  return layout && !vt_layout_is_default(chip, memory->kind, type, layout) ? layout : NULL;
}

static vt_status check_here(const vt_memory *memory) {
  const vt_device *device = memory->device;
  if (device->process == device->client->process) return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT,
                  "device %d belongs to process %d, this is process %d: only a transfer between "
                  "processes reaches it",
                  device->id, device->process, device->client->process);
}

vt_status vt_buffer_enter(vt_memory *memory, vt_storage *storage, const char *layout,
                          vt_buffer **out_buffer) {
  vt_assert(storage->partials == 1);
  vt_client *client = memory->device->client;
  int64_t bytes = vt_layout_bytes(client->slice.chip, memory->kind, storage->type, layout);
  vt_buffer *buffer = vt_buffer_create(memory, storage, storage->type, 0, NULL,
                                       kept_layout(memory, storage->type, layout), bytes);
  vt_storage_release(storage);
  if (!buffer) return vt_error_no_memory();
  vt_status st = check_here(memory);
  if (st) {
    vt_buffer_free(buffer);
    return st;
  }
  vt_lock(&client->lock);
  st = vt_hbm_take(client, memory->device, bytes);
  if (!st) vt_buffer_link(buffer);
  vt_unlock(&client->lock);
  if (st)
    vt_buffer_free(buffer);
  else
    *out_buffer = buffer;
  return st;
}

static vt_status buffer_make(vt_type type, bool zeroed, vt_storage **out_storage) {
  VT_TRY(vt_fork_check());
  VT_TRY(vt_type_check(type));
  *out_storage = vt_storage_create(type, 1, vt_event_done());
  if (!*out_storage) return vt_error_no_memory();
  vt_status st = vt_storage_allocate(*out_storage, zeroed);
  if (st) vt_storage_release(*out_storage);
  return st;
}

static void byte_strides(vt_type type, int64_t *strides) {
  vt_type_strides(type, strides);
  for (int32_t i = 0; i < type.rank; i++) strides[i] *= (int64_t)vt_dtype_bytes(type.dtype);
}

// On the host an element of fewer than 8 bits is in the low bits of a byte and the other bits are
// unspecified; here signed integers are sign-extended and all others zero-extended.
static void extend_narrow(vt_type type, void *data) {
  const vt_dtype_info *info = vt_dtype_get(type.dtype);
  if (info->bits >= 8 || info->bytes != 1 || info->kind == VT_KIND_BOOL) return;
  int spare = 8 - info->bits;
  int64_t n = vt_type_elements(type);
  uint8_t *bytes = data;
  for (int64_t i = 0; i < n; i++) {
    uint8_t up = (uint8_t)(bytes[i] << spare);
    int extended = info->kind == VT_KIND_SIGNED ? (int8_t)up >> spare : up >> spare;
    bytes[i] = (uint8_t)extended;
  }
}

vt_status vt_buffer_from_host(vt_memory *memory, vt_type type, const void *data,
                              const int64_t *host_strides, const char *layout,
                              vt_buffer **out_buffer) {
  vt_storage *storage = NULL;
  VT_TRY(buffer_make(type, false, &storage));
  size_t element = vt_dtype_bytes(type.dtype);
  if (!host_strides) {
    if (vt_type_bytes(type)) memcpy(storage->data, data, (size_t)vt_type_bytes(type));
  } else if (vt_type_elements(type)) {
    int64_t strides[VT_MAX_RANK];
    byte_strides(type, strides);
    vt_copy_strided(type.rank, type.dims, element, storage->data, strides, data, host_strides);
  }
  extend_narrow(type, storage->data);
  return vt_buffer_enter(memory, storage, layout, out_buffer);
}

vt_status vt_buffer_zeros(vt_memory *memory, vt_type type, vt_buffer **out_buffer) {
  vt_storage *storage = NULL;
  VT_TRY(buffer_make(type, true, &storage));
  return vt_buffer_enter(memory, storage, NULL, out_buffer);
}

vt_status vt_buffer_poisoned(vt_memory *memory, vt_type type, vt_status error,
                             vt_buffer **out_buffer) {
  vt_event *ready = vt_event_failed(error);
  vt_status st = vt_fork_check();
  if (!st) st = vt_type_check(type);
  vt_storage *storage = st ? NULL : vt_storage_create(type, 1, ready);
  vt_event_release(ready);
  if (st) return st;
  return storage ? vt_buffer_enter(memory, storage, NULL, out_buffer) : vt_error_no_memory();
}

void vt_buffer_delete(vt_buffer *buffer) {
  vt_lock(&buffer->client->lock);
  vt_storage *storage = vt_buffer_detach(buffer);
  vt_unlock(&buffer->client->lock);
  vt_storage_release(storage);
}

void vt_buffer_free(vt_buffer *buffer) {
  if (!buffer) return;
  vt_assert(!buffer->next && !buffer->prev);
  vt_storage_release(buffer->storage);
  vt_storage_release(buffer->pinned);
  vt_client_release(buffer->client);
  free(buffer->layout);
  free(buffer);
}

void vt_buffer_destroy(vt_buffer *buffer) {
  if (!buffer) return;
  vt_buffer_delete(buffer);
  vt_buffer_free(buffer);
}

bool vt_buffer_is_deleted(const vt_buffer *buffer) {
  vt_lock(&buffer->client->lock);
  bool deleted = !buffer->storage;
  vt_unlock(&buffer->client->lock);
  return deleted;
}

vt_type vt_buffer_type(const vt_buffer *buffer) {
  return (vt_type){buffer->dtype, buffer->rank, buffer->dims};
}
vt_memory *vt_buffer_memory(const vt_buffer *buffer) {
  return buffer->memory;
}
int64_t vt_buffer_hbm_bytes(const vt_buffer *buffer) {
  return vt_layout_bytes(buffer->client->slice.chip, VT_MEMORY_DEVICE, vt_buffer_type(buffer),
                         buffer->layout);
}

const char *vt_buffer_layout(const vt_buffer *buffer) {
  return buffer->layout;
}

vt_event *vt_buffer_ready(vt_buffer *buffer) {
  vt_storage *storage = buffer_storage(buffer);
  if (!storage) return vt_event_failed(deleted_error(buffer));
  vt_event *event = vt_event_retain(storage->ready);
  vt_storage_release(storage);
  return event;
}

// A copy to the host that waits for its source.
typedef struct fetch {
  vt_storage *storage;
  vt_event *done;
  vt_waiter waiter;
  void *dst;
  int32_t rank;
  int64_t partial, dims[VT_MAX_RANK], offset[VT_MAX_RANK], dst_strides[VT_MAX_RANK];
} fetch;

static void fetch_copy(const fetch *f) {
  vt_assert(vt_event_is_complete(f->storage->ready));
  size_t element = vt_dtype_bytes(f->storage->type.dtype);
  int64_t src_strides[VT_MAX_RANK];
  byte_strides(f->storage->type, src_strides);
  const char *src = f->storage->data;
  if (element && src)
    vt_copy_strided(f->rank, f->dims, element, f->dst, f->dst_strides,
                    src + vt_storage_at(f->storage, f->partial, f->offset), src_strides);
}

static void fetch_run(vt_status error, void *user) {
  fetch *f = user;
  if (!error) fetch_copy(f);
  vt_event_complete(f->done, error);
  vt_event_release(f->done);
  vt_storage_release(f->storage);
  free(f);
}

static void fetch_fill(fetch *f, const vt_buffer *buffer, void *dst, const int64_t *dst_strides) {
  vt_assert(buffer->rank >= 0 && buffer->rank <= VT_MAX_RANK);
  f->dst = dst;
  f->rank = buffer->rank;
  f->partial = buffer->partial;
  if (buffer->rank) {
    memcpy(f->dims, buffer->dims, sizeof(int64_t) * (size_t)buffer->rank);
    memcpy(f->offset, buffer->offset, sizeof(int64_t) * (size_t)buffer->rank);
  }
  if (dst_strides)
    memcpy(f->dst_strides, dst_strides, sizeof(int64_t) * (size_t)buffer->rank);
  else
    byte_strides(vt_buffer_type(buffer), f->dst_strides);
}

vt_status vt_buffer_to_host(vt_buffer *buffer, void *dst, const int64_t *dst_strides,
                            vt_event **out_event) {
  VT_TRY(vt_fork_check());
  // Storage and offsets change together when shards are gathered: both are read under the lock.
  fetch local;
  vt_lock(&buffer->client->lock);
  local.storage = buffer->storage ? vt_storage_retain(buffer->storage) : NULL;
  fetch_fill(&local, buffer, dst, dst_strides);
  vt_unlock(&buffer->client->lock);
  if (!local.storage) return deleted_error(buffer);
  if (vt_event_is_complete(local.storage->ready)) {
    vt_status error = vt_event_error(local.storage->ready);
    if (!error) fetch_copy(&local);
    *out_event = error ? vt_event_failed(error) : vt_event_done();
    vt_storage_release(local.storage);
    return VT_OK;
  }
  fetch *f = malloc(sizeof *f);
  local.done = vt_event_create();
  if (!f || !local.done) {
    free(f);
    vt_event_release(local.done);
    vt_storage_release(local.storage);
    return vt_error_no_memory();
  }
  *f = local;
  *out_event = vt_event_retain(f->done);
  vt_event_on_complete(f->storage->ready, &f->waiter, fetch_run, f);
  return VT_OK;
}

vt_status vt_buffer_copy_to(vt_buffer *buffer, vt_memory *memory, vt_buffer **out_buffer) {
  vt_assert(memory->device->client == buffer->client);
  vt_client *client = memory->device->client;
  VT_TRY(vt_fork_check());
  VT_TRY(check_here(memory));
  vt_type type = vt_buffer_type(buffer);
  // Unpinned host memory is plain memory of the process: row-major only.
  const char *layout = memory->kind == VT_MEMORY_UNPINNED_HOST ? NULL : buffer->layout;
  int64_t bytes = vt_layout_bytes(client->slice.chip, memory->kind, type, layout);
  vt_lock(&client->lock);
  vt_status st =
      buffer->storage ? vt_hbm_take(client, memory->device, bytes) : deleted_error(buffer);
  if (!st) {
    *out_buffer = vt_buffer_create(memory, buffer->storage, type, buffer->partial, buffer->offset,
                                   kept_layout(memory, type, layout), bytes);
    if (*out_buffer) {
      vt_buffer_link(*out_buffer);
    } else {
      vt_hbm_give(client, memory->device, bytes);
      st = vt_error_no_memory();
    }
  }
  vt_unlock(&client->lock);
  return st;
}

// True when the buffer's rectangle is one run of memory, and where it starts.
static bool dense_at(const vt_buffer *buffer, const vt_storage *storage, int64_t *out_byte) {
  vt_assert(buffer->rank == storage->type.rank);
  bool partial = false; // an outer dimension covers more than one index but not all
  for (int32_t i = buffer->rank; i-- > 0;) {
    if (partial && buffer->dims[i] > 1) return false;
    if (buffer->dims[i] != storage->dims[i]) partial = true;
  }
  *out_byte = vt_storage_at(storage, buffer->partial, buffer->offset);
  return true;
}

// Gives the buffer its own storage when its rows are not contiguous.
static vt_status make_dense(vt_buffer *buffer) {
  vt_type type = vt_buffer_type(buffer);
  vt_storage *own = NULL;
  VT_TRY(buffer_make(type, false, &own));
  fetch f;
  vt_lock(&buffer->client->lock);
  f.storage = buffer->storage ? vt_storage_retain(buffer->storage) : NULL;
  fetch_fill(&f, buffer, own->data, NULL);
  vt_unlock(&buffer->client->lock);
  if (!f.storage) {
    vt_storage_release(own);
    return deleted_error(buffer);
  }
  fetch_copy(&f);
  vt_storage_release(f.storage);
  vt_lock(&buffer->client->lock);
  vt_storage *before = buffer->storage;
  if (before) {
    buffer->storage = own;
    buffer->partial = 0;
    memset(buffer->offset, 0, sizeof(int64_t) * (size_t)buffer->rank);
  }
  vt_unlock(&buffer->client->lock);
  vt_storage_release(before ? before : own);
  return VT_OK;
}

vt_status vt_buffer_pointer(vt_buffer *buffer, void **out_data) {
  VT_TRY(vt_fork_check());
  for (int attempt = 0; attempt < 3; attempt++) {
    vt_event *ready = vt_buffer_ready(buffer);
    vt_status st = vt_event_await(ready);
    vt_event_release(ready);
    if (st) return st;
    vt_lock(&buffer->client->lock);
    vt_storage *storage = buffer->storage;
    int64_t at = 0;
    bool dense = storage && dense_at(buffer, storage, &at);
    *out_data = dense ? (char *)storage->data + at : NULL;
    if (dense) atomic_store(&storage->out, true);
    vt_unlock(&buffer->client->lock);
    if (!storage) return deleted_error(buffer);
    if (dense) return VT_OK;
    VT_TRY(make_dense(buffer));
  }
  return vt_error(VT_INTERNAL, "buffer changes while its address is asked for");
}

vt_status vt_buffer_pin(vt_buffer *buffer) {
  void *data = NULL;
  VT_TRY(vt_buffer_pointer(buffer, &data));
  vt_lock(&buffer->client->lock);
  if (!buffer->pins++ && buffer->storage) buffer->pinned = vt_storage_retain(buffer->storage);
  vt_unlock(&buffer->client->lock);
  return VT_OK;
}

vt_status vt_buffer_unpin(vt_buffer *buffer) {
  vt_lock(&buffer->client->lock);
  if (buffer->pins == 0) {
    vt_unlock(&buffer->client->lock);
    return vt_error(VT_FAILED_PRECONDITION, "no external reference to this buffer is held");
  }
  vt_storage *pinned = NULL;
  if (--buffer->pins == 0) {
    pinned = buffer->pinned;
    buffer->pinned = NULL;
  }
  vt_unlock(&buffer->client->lock);
  vt_storage_release(pinned);
  return VT_OK;
}
