// SPDX-License-Identifier: Apache-2.0
// storage.c - host memory of whole arrays, shared by the buffers that show parts of it.
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

vt_storage *vt_storage_create(vt_type type, vt_event *ready) {
  vt_storage *storage = malloc(sizeof *storage + sizeof(int64_t) * (size_t)type.rank);
  if (!storage) return NULL;
  static _Atomic uint64_t ids;
  atomic_init(&storage->refs, 1);
  storage->id = atomic_fetch_add_explicit(&ids, 1, memory_order_relaxed) + 1;
  atomic_init(&storage->out, false);
  storage->ready = vt_event_retain(ready);
  storage->data = NULL;
  if (type.rank) memcpy(storage->dims, type.dims, sizeof(int64_t) * (size_t)type.rank);
  storage->type = (vt_type){type.dtype, type.rank, storage->dims};
  return storage;
}

vt_storage *vt_storage_retain(vt_storage *storage) {
  atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
  return storage;
}

void vt_storage_release(vt_storage *storage) {
  if (!storage) return;
  if (atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1) return;
  vt_host_free(storage->data);
  vt_event_release(storage->ready);
  free(storage);
}

vt_status vt_storage_allocate(vt_storage *storage, bool zeroed) {
  if (storage->data) return VT_OK;
  int64_t bytes = vt_type_bytes(storage->type);
  storage->data = zeroed ? vt_host_alloc_zeroed(bytes) : vt_host_alloc(bytes);
  return storage->data ? VT_OK : vt_error_no_memory();
}
