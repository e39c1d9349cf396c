// SPDX-License-Identifier: Apache-2.0
// array.h - growable arrays of any element type, on the heap or in an arena.
//
//   VT_ARRAY(int64_t) sizes = {0};        // a struct { int64_t *data; size_t size, capacity; }
//   vt_array_push(&sizes, 3);             // heap: vt_array_free(&sizes) when done
//   vt_array_push_in(arena, &sizes, 3);   // arena: nothing to free; do not mix the two on an array
// When host memory runs out, growing does what arenas do (memory.h).
#ifndef VT_BASE_ARRAY_H
#define VT_BASE_ARRAY_H

#include <stddef.h>

#include "base/arena.h"
#include "base/memory.h"

#define VT_ARRAY(type)                                                                             \
  struct {                                                                                         \
    type *data;                                                                                    \
    size_t size, capacity;                                                                         \
  }

// The storage for at least `capacity` elements: `data` moved or grown (heap when arena is NULL).
void *vt_array_grow(vt_arena *arena, void *data, size_t size, size_t *capacity,
                    size_t element_size);

#define vt_array_push_in(arena, array, value)                                                      \
  do {                                                                                             \
    if ((array)->size == (array)->capacity)                                                        \
      (array)->data = vt_array_grow(arena, (array)->data, (array)->size, &(array)->capacity,       \
                                    sizeof *(array)->data);                                        \
    (array)->data[(array)->size++] = (value);                                                      \
  } while (0)
// Room in the arena for `count` elements of an empty array.
#define vt_array_reserve_in(arena, array, count)                                                   \
  do {                                                                                             \
    (array)->data = vt_arena_push_raw(arena, (count) * sizeof *(array)->data);                     \
    (array)->capacity = (count);                                                                   \
  } while (0)
#define vt_array_push(array, value) vt_array_push_in(NULL, array, value)
#define vt_array_free(array)                                                                       \
  do {                                                                                             \
    vt_memory_free((array)->data);                                                                 \
    (array)->data = NULL;                                                                          \
    (array)->size = (array)->capacity = 0;                                                         \
  } while (0)

#endif
