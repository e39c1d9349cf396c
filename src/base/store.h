// SPDX-License-Identifier: Apache-2.0
// store.h - a key-value store that several processes share, lent by whoever started them.
#ifndef VT_BASE_STORE_H
#define VT_BASE_STORE_H

#include <stdint.h>

#include "base/status.h"

typedef struct vt_store {
  int32_t index, count; // which of the processes this is
  void *user;
  vt_status (*put)(void *user, const char *key, const char *value);
  // Waits until the key is there. errors DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED: longer than `size`
  vt_status (*get)(void *user, const char *key, double timeout_s, char *out, size_t size);
} vt_store;

#endif
