// SPDX-License-Identifier: Apache-2.0
// map.c - see map.h. The table of slots is kept at most half full.
#include "base/check.h"
#include "base/map.h"

#include <string.h>

#include "base/memory.h"

// Both halves of a product: each bit of the sum depends on all bits of the word.
static inline uint64_t mix(uint64_t word, uint64_t h) {
  __extension__ typedef unsigned __int128 wide;
  wide product = (wide)(word ^ h) * 0x9E3779B97F4A7C15u;
  return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

uint64_t vt_hash_bytes(const void *bytes, size_t size, uint64_t seed) {
  const unsigned char *p = bytes;
  uint64_t h = seed ^ size * 0xBF58476D1CE4E5B9u, word;
  for (; size >= sizeof word; size -= sizeof word, p += sizeof word) {
    memcpy(&word, p, sizeof word);
    h = mix(word, h);
  }
  word = 0;
  if (size) memcpy(&word, p, size);
  return vt_hash_u64(word, h);
}

typedef struct map_key {
  uint64_t hash, small; // small: the bytes of a key of up to 8
  const void *bytes;
  size_t size;
} map_key;

// Most keys are pointers.
static inline map_key make_key(const void *bytes, size_t size) {
  map_key key = {.bytes = bytes, .size = size};
  if (size && size <= sizeof key.small) memcpy(&key.small, bytes, size);
  key.hash =
      size == sizeof key.small ? vt_hash_u64(key.small, size) : vt_hash_bytes(bytes, size, 0);
  return key;
}

static inline bool is_key(const vt_map_entry *entry, const map_key *key) {
  if (entry->hash != key->hash || entry->key_size != key->size) return false;
  if (key->size <= sizeof key->small) return entry->key.small == key->small;
  return !memcmp(entry->key.large, key->bytes, key->size);
}

static inline uint32_t *slot_of(const vt_map *map, const map_key *key) {
  size_t mask = map->slot_count - 1;
  vt_assert(map->slot_count && !(map->slot_count & mask) && (key->bytes || !key->size));
  for (size_t i = (size_t)key->hash & mask;; i = (i + 1) & mask) {
    uint32_t *slot = &map->slots[i];
    if (!*slot || is_key(&map->entries[*slot - 1], key)) return slot;
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
    size_t at = (size_t)map->entries[i].hash & (count - 1);
    while (slots[at]) at = (at + 1) & (count - 1);
    slots[at] = (uint32_t)i + 1;
  }
}

void **vt_map_at(vt_map *map, const void *key, size_t key_size) {
  map_key wanted = make_key(key, key_size);
  if ((map->size + 1) * 2 > map->slot_count) grow_slots(map);
  uint32_t *slot = slot_of(map, &wanted);
  vt_assert(map->size * 2 < map->slot_count && *slot <= map->size);
  if (*slot) return &map->entries[*slot - 1].value;
  if (map->size == map->capacity) {
    size_t capacity = map->capacity ? map->capacity * 2 : 8;
    map->entries = vt_memory_resize(map->entries, capacity * sizeof *map->entries);
    map->capacity = capacity;
  }
  vt_map_entry entry = {.hash = wanted.hash, .key.small = wanted.small, .key_size = key_size};
  if (key_size > sizeof entry.key.small) entry.key.large = vt_arena_copy(&map->keys, key, key_size);
  map->entries[map->size] = entry;
  *slot = (uint32_t)++map->size;
  vt_assert(map->size <= map->capacity);
  return &map->entries[map->size - 1].value;
}

void *vt_map_find(const vt_map *map, const void *key, size_t key_size) {
  if (!map->slot_count) return NULL;
  map_key wanted = make_key(key, key_size);
  uint32_t slot = *slot_of(map, &wanted);
  return slot ? map->entries[slot - 1].value : NULL;
}

bool vt_map_has(const vt_map *map, const void *key, size_t key_size) {
  map_key wanted = make_key(key, key_size);
  return map->slot_count && *slot_of(map, &wanted);
}

void vt_map_free(vt_map *map) {
  vt_arena_free(&map->keys);
  vt_memory_free(map->entries);
  vt_memory_free(map->slots);
  *map = (vt_map){0};
}
