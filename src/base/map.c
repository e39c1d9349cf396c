// SPDX-License-Identifier: Apache-2.0
// map.c - see map.h. The table of slots is kept at most half full.
#include "base/check.h"
#include "base/map.h"

#include <string.h>

#include "base/memory.h"

uint64_t vt_hash_bytes(const void *bytes, size_t size, uint64_t seed) {
  const unsigned char *p = bytes;
  uint64_t h = 0xCBF29CE484222325u ^ seed;
  for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001B3u;
  return vt_hash_u64(h, size);
}

static uint32_t *slot_of(const vt_map *map, uint64_t hash, const void *key, size_t key_size) {
  size_t mask = map->slot_count - 1;
  vt_assert(map->slot_count && !(map->slot_count & mask) && (key || !key_size));
  for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
    uint32_t *slot = &map->slots[i];
    if (!*slot) return slot;
    const vt_map_entry *entry = &map->entries[*slot - 1];
    if (entry->hash == hash && entry->key_size == key_size &&
        (!key_size || !memcmp(entry->key, key, key_size)))
      return slot;
  }
}

static void grow_slots(vt_map *map) {
  size_t count = map->slot_count ? map->slot_count * 2 : 16;
  vt_assert(map->size * 2 <= count);
  uint32_t *slots = vt_memory_resize(NULL, count * sizeof *slots);
  memset(slots, 0, count * sizeof *slots);
  vt_memory_free(map->slots);
  map->slots = slots;
  map->slot_count = count;
  for (size_t i = 0; i < map->size; i++) {
    const vt_map_entry *entry = &map->entries[i];
    *slot_of(map, entry->hash, entry->key, entry->key_size) = (uint32_t)i + 1;
  }
}

void **vt_map_at(vt_map *map, const void *key, size_t key_size) {
  uint64_t hash = vt_hash_bytes(key, key_size, 0);
  if ((map->size + 1) * 2 > map->slot_count) grow_slots(map);
  uint32_t *slot = slot_of(map, hash, key, key_size);
  vt_assert(map->size * 2 < map->slot_count && *slot <= map->size);
  if (*slot) return &map->entries[*slot - 1].value;
  if (map->size == map->capacity) {
    size_t capacity = map->capacity ? map->capacity * 2 : 8;
    map->entries = vt_memory_resize(map->entries, capacity * sizeof *map->entries);
    map->capacity = capacity;
  }
  char *copy = vt_memory_resize(NULL, key_size + 1);
  if (key_size) memcpy(copy, key, key_size);
  copy[key_size] = 0;
  map->entries[map->size] = (vt_map_entry){hash, copy, key_size, NULL};
  *slot = (uint32_t)++map->size;
  vt_assert(map->size <= map->capacity);
  return &map->entries[map->size - 1].value;
}

void *vt_map_find(const vt_map *map, const void *key, size_t key_size) {
  if (!map->slot_count) return NULL;
  uint32_t slot = *slot_of(map, vt_hash_bytes(key, key_size, 0), key, key_size);
  return slot ? map->entries[slot - 1].value : NULL;
}

bool vt_map_has(const vt_map *map, const void *key, size_t key_size) {
  return map->slot_count && *slot_of(map, vt_hash_bytes(key, key_size, 0), key, key_size);
}

void vt_map_free(vt_map *map) {
  for (size_t i = 0; i < map->size; i++) vt_memory_free((void *)(uintptr_t)map->entries[i].key);
  vt_memory_free(map->entries);
  vt_memory_free(map->slots);
  *map = (vt_map){0};
}
