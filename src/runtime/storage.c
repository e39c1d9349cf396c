// SPDX-License-Identifier: Apache-2.0
// storage.c - host memory of whole arrays, shared by the buffers that show parts of it.
#include "base/check.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

vt_storage *vt_storage_create(vt_type type, int64_t partials, vt_event *ready) {
  vt_assert_each(i, type.rank, type.dims[i] >= 0);
  vt_assert(partials >= 1 && type.rank >= 0 && type.rank <= VT_MAX_RANK && ready);
  vt_storage *storage = malloc(sizeof *storage + sizeof(int64_t) * (size_t)type.rank);
  if (!storage) return NULL;
  static _Atomic uint64_t ids;
  atomic_init(&storage->refs, 1);
  storage->id = atomic_fetch_add_explicit(&ids, 1, memory_order_relaxed) + 1;
  atomic_init(&storage->out, false);
  storage->ready = vt_event_retain(ready);
  storage->data = NULL;
  storage->partials = partials;
  storage->outside = false;
  storage->agreed = 0;
  if (type.rank) memcpy(storage->dims, type.dims, sizeof(int64_t) * (size_t)type.rank);
  storage->type = (vt_type){type.dtype, type.rank, storage->dims};
  return storage;
}

vt_storage *vt_storage_retain(vt_storage *storage) {
  vt_assert(atomic_load(&storage->refs) > 0);
  atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
  return storage;
}

void vt_storage_release(vt_storage *storage) {
  if (!storage) return;
  vt_assert(atomic_load(&storage->refs) > 0);
  if (atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1) return;
  vt_host_free(storage->data);
  vt_event_release(storage->ready);
  free(storage);
}

vt_status vt_storage_allocate(vt_storage *storage, bool zeroed) {
  if (storage->data) return VT_OK;
  int64_t bytes = vt_type_bytes(storage->type) * storage->partials;
  storage->data = zeroed ? vt_host_alloc_zeroed(bytes) : vt_host_alloc(bytes);
  return storage->data ? VT_OK : vt_error_no_memory();
}

int64_t vt_storage_at(const vt_storage *storage, int64_t partial, const int64_t *offset) {
  vt_assert_each(i, offset ? storage->type.rank : 0,
                 offset[i] >= 0 && offset[i] <= storage->dims[i]);
  vt_assert(partial >= 0 && partial < storage->partials);
  int64_t strides[VT_MAX_RANK], at = partial * vt_type_elements(storage->type);
  vt_type_strides(storage->type, strides);
  for (int32_t d = 0; d < storage->type.rank && offset; d++) at += offset[d] * strides[d];
  return at * (int64_t)vt_dtype_bytes(storage->type.dtype);
}
