// SPDX-License-Identifier: Apache-2.0
// map.h - hash map from byte strings or integers to pointers. Open addressing; keys are copied.
//
// A zeroed vt_map is a valid empty map. Iteration order is insertion order, so output made from a
// map is deterministic. Values are borrowed. No removal: nothing here needs it.
#ifndef VT_BASE_MAP_H
#define VT_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct vt_map_entry {
  uint64_t hash;
  union {
    uint64_t small; // a key of up to 8 bytes
    const void *large;
  } key;
  size_t key_size;
  void *value;
} vt_map_entry;
typedef struct vt_map {
  vt_map_entry *entries; // in insertion order
  size_t size, capacity;
  vt_arena keys;   // large ones
  uint32_t *slots; // entry index + 1, 0 = free
  size_t slot_count;
} vt_map;

// Stable across runs and machines of one byte order.
uint64_t vt_hash_bytes(const void *bytes, size_t size, uint64_t seed);
static inline uint64_t vt_hash_u64(uint64_t a, uint64_t seed) {
  uint64_t h = (a ^ seed) * 0x9E3779B97F4A7C15u;
  h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
  return h ^ (h >> 32);
}

// The slot of the value under the key, inserted (as NULL) when absent. Valid until the next
// insertion.
void **vt_map_at(vt_map *map, const void *key, size_t key_size);
// The value, or NULL when absent.
void *vt_map_find(const vt_map *map, const void *key, size_t key_size);
bool vt_map_has(const vt_map *map, const void *key, size_t key_size);
void vt_map_free(vt_map *map);
static inline const void *vt_map_key(const vt_map_entry *entry) {
  return entry->key_size > sizeof entry->key.small ? entry->key.large : &entry->key.small;
}

static inline void **vt_map_at_ptr(vt_map *map, const void *key) {
  return vt_map_at(map, &key, sizeof key);
}
static inline void *vt_map_find_ptr(const vt_map *map, const void *key) {
  return vt_map_find(map, &key, sizeof key);
}

#endif
