// SPDX-License-Identifier: Apache-2.0
// array.c - growth of VT_ARRAY: doubling from 8 elements.
#include "base/check.h"
#include "base/array.h"

#include <stdint.h>
#include <string.h>

void *vt_array_grow(vt_arena *arena, void *data, size_t size, size_t *capacity,
                    size_t element_size) {
  vt_assert(size <= *capacity && element_size);
  size_t wanted = *capacity ? *capacity * 2 : 8;
  vt_assert(wanted > size && wanted <= SIZE_MAX / element_size);
  void *grown;
  if (arena) {
    grown = vt_arena_push_raw(arena, wanted * element_size);
    if (size) memcpy(grown, data, size * element_size);
  } else {
    grown = vt_memory_resize(data, wanted * element_size);
  }
  *capacity = wanted;
  return grown;
}
