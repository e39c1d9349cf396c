// SPDX-License-Identifier: Apache-2.0
// arena.c - blocks of doubling size, newest first.
#include "base/check.h"
#include "base/arena.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define VT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VT_ASAN 1
#endif
#endif
#ifdef VT_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
enum { RED_ZONE = 16 };
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
enum { RED_ZONE = 0 };
#endif

// The first block is of a size that malloc has at hand.
enum { FIRST_BLOCK = 896, MAX_BLOCK = 1 << 22, DEFAULT_ALIGN = 16 };

struct vt_arena_block {
  vt_memory_link link;
  vt_arena_block *next;
  size_t size;
  size_t touched; // from the beginning: the system has given these pages
  bool zero;      // made for one large allocation: the system may have zeros at hand
  char *data;     // behind the block, aligned: aligned_alloc costs more than the few bytes
};

static void note_touched(const vt_arena *arena) {
  vt_arena_block *block = arena->blocks;
  if (block && block->touched < arena->used) block->touched = arena->used;
}

// ---- blocks for the next arena ------------------------------------------------------------------

// Large blocks are kept for the next arena, two of each size: malloc would give them back to the
// system, and the next stage of a compilation would wait for its pages again.
enum { LEAST_KEPT = FIRST_BLOCK << 6, KEPT_SIZES = 8, KEPT = 2 * KEPT_SIZES };
enum { LEAST_TOUCHED = 1 << 14 };
enum { GROWTH = 4 }; // a brief arena that is full is likely to want as much again by this
_Static_assert(LEAST_KEPT << (KEPT_SIZES - 2) < MAX_BLOCK &&
                   LEAST_KEPT << (KEPT_SIZES - 1) > MAX_BLOCK,
               "all sizes from the least to the largest");
static _Atomic(vt_arena_block *) kept[KEPT];
static _Atomic(size_t) kept_touched[KEPT]; // of these: where to look first

static size_t kept_size(int place) {
  return place / 2 + 1 < KEPT_SIZES ? (size_t)LEAST_KEPT << place / 2 : MAX_BLOCK;
}

static bool keep(vt_arena_block *block) {
#ifdef VT_ASAN
  return false; // it sees what reads a block that was freed
#endif
  size_t touched = block->touched, size = block->size;
  for (int place = 0; place < KEPT && kept_size(place) <= size; place++) {
    vt_arena_block *none = NULL;
    if (kept_size(place) != size) continue;
    if (!atomic_compare_exchange_strong(&kept[place], &none, block)) continue;
    atomic_store_explicit(&kept_touched[place], touched, memory_order_relaxed);
    return true;
  }
  return false;
}

// The largest of at most `size` and at least `enough`: there are pages behind it.
static vt_arena_block *take_kept(size_t size, size_t enough) {
  vt_arena_block *block = NULL;
  int last = size < LEAST_KEPT ? -1 : KEPT - 1;
  for (int place = last; place >= 0 && kept_size(place) >= enough && !block; place--)
    if (kept_size(place) <= size && atomic_load_explicit(&kept[place], memory_order_relaxed))
      block = atomic_exchange(&kept[place], NULL);
  return block;
}

// One of at least `enough`: with as few pages behind it as are `wanted`, or with the most.
static vt_arena_block *take_touched(size_t enough, size_t wanted) {
  int best = KEPT;
  size_t most = 0;
  for (int place = KEPT - 1; place >= 0 && kept_size(place) >= enough; place--) {
    size_t touched = atomic_load_explicit(&kept_touched[place], memory_order_relaxed);
    if (!atomic_load_explicit(&kept[place], memory_order_relaxed)) continue;
    bool better = most < wanted ? touched > most : touched >= wanted && touched < most;
    if (best < KEPT && !better) continue;
    best = place;
    most = touched;
  }
  return best < KEPT ? atomic_exchange(&kept[best], NULL) : NULL;
}

// `zero`: for one large allocation, of zeros.
static vt_arena_block *make_block(size_t size, bool zero) {
  vt_arena_block *block = NULL;
  if (size > SIZE_MAX - sizeof *block - 64) return NULL;
  block = zero ? calloc(1, sizeof *block + size + 63) : malloc(sizeof *block + size + 63);
  if (!block) return NULL;
  block->size = size;
  block->touched = 0;
  block->zero = zero;
  block->data = (char *)(((uintptr_t)(block + 1) + 63) & ~(uintptr_t)63);
  return block;
}

static vt_arena_block *add_block(vt_arena *arena, size_t at_least) {
  size_t size = arena->blocks ? arena->blocks->size : FIRST_BLOCK / 2;
  if (size < MAX_BLOCK) size *= 2;
  bool large = size < at_least;
  while (size < at_least && size < MAX_BLOCK) size *= 2;
  if (size > MAX_BLOCK) size = MAX_BLOCK;
  if (size < at_least) size = at_least;
  size_t wanted = arena->total_bytes ? arena->total_bytes / GROWTH : SIZE_MAX;
  vt_arena_block *block = arena->brief ? take_touched(at_least, wanted) : take_kept(size, at_least);
  if (!block) block = make_block(size, large);
  if (!block) return NULL;
  vt_memory_watch(&block->link);
  note_touched(arena);
  block->next = arena->blocks;
  arena->blocks = block;
  arena->used = 0;
  bool enough = arena->brief && block->touched >= LEAST_TOUCHED && block->touched >= at_least;
  arena->size = enough ? block->touched : block->size;
  POISON(block->data, block->size);
  return block;
}

// ---- arenas -------------------------------------------------------------------------------------

// Zeros are written here, not to whole blocks: most are never filled.
static inline void *place(vt_arena *arena, size_t size, size_t align, bool clear) {
  vt_assert(align && !(align & (align - 1)) && align <= 64);
  vt_assert(arena->used <= arena->size);
  size_t at = (arena->used + align - 1) & ~(align - 1);
  if (size > SIZE_MAX / 2) size = SIZE_MAX / 2; // add_block reports it
  if (!arena->blocks || at + size + RED_ZONE > arena->size) {
    if (!add_block(arena, size + RED_ZONE + align)) return NULL;
    at = 0;
  }
  char *p = arena->blocks->data + at;
  arena->used = at + size + RED_ZONE;
  arena->total_bytes += size;
  UNPOISON(p, size);
  if (clear && !arena->blocks->zero) memset(p, 0, size);
  vt_assert(arena->used <= arena->size && !((uintptr_t)p & (align - 1)));
  return p;
}

static inline void *push(vt_arena *arena, size_t size, size_t align, bool clear) {
  return vt_memory_refused() ? NULL : place(arena, size, align, clear);
}

void *vt_arena_try_push(vt_arena *arena, size_t size, size_t align) {
  return push(arena, size, align, true);
}

void *vt_arena_push_aligned(vt_arena *arena, size_t size, size_t align) {
  void *p = push(arena, size, align, true);
  if (!p) vt_memory_out(size, "compiler data");
  return p;
}

// Room of whole units in a block that has them, cleared here: most are of one to eight. NULL: there
// is none, or it is not small.
static inline void *place_small(vt_arena *arena, size_t size) {
  enum { UNIT = DEFAULT_ALIGN, MOST = 8 * UNIT };
  size_t at = (arena->used + UNIT - 1) & ~(size_t)(UNIT - 1), end = at;
  if (RED_ZONE || size > MOST || at + MOST > arena->size) return NULL;
  char *data = arena->blocks->data;
  for (; end < at + size; end += UNIT) memset(data + end, 0, UNIT);
  arena->used = at + size;
  arena->total_bytes += size;
  return data + at;
}

// Apart, so that the way of most allocations is short.
static __attribute__((noinline)) void *push_other(vt_arena *arena, size_t size, bool refused) {
  void *p = refused ? NULL : place(arena, size, DEFAULT_ALIGN, true);
  if (!p) vt_memory_out(size, "compiler data");
  return p;
}

void *vt_arena_push(vt_arena *arena, size_t size) {
  bool refused = vt_memory_refused();
  void *p = refused ? NULL : place_small(arena, size);
  return p ? p : push_other(arena, size, refused);
}

void *vt_arena_push_raw(vt_arena *arena, size_t size) {
  void *p = push(arena, size, DEFAULT_ALIGN, false);
  if (!p) vt_memory_out(size, "compiler data");
  return p;
}

char *vt_arena_copy(vt_arena *arena, const void *bytes, size_t size) {
  vt_assert(bytes || !size);
  char *p = vt_arena_push(arena, size + 1);
  if (size) memcpy(p, bytes, size);
  return p;
}

char *vt_arena_printf(vt_arena *arena, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char *p = vt_arena_push(arena, n < 0 ? 1 : (size_t)n + 1); // leaves `again` when memory runs out
  if (n >= 0) vsnprintf(p, (size_t)n + 1, format, again);
  va_end(again);
  return p;
}

static void free_blocks(vt_arena_block *block) {
  while (block) {
    vt_arena_block *next = block->next;
    UNPOISON(block->data, block->size);
    vt_memory_unwatch(&block->link);
    block->zero = false;
    if (!keep(block)) free(block);
    block = next;
  }
}

void vt_arena_reset(vt_arena *arena) {
  if (!arena->blocks) return;
  note_touched(arena);
  free_blocks(arena->blocks->next);
  arena->blocks->next = NULL;
  arena->blocks->zero = false;
  arena->used = 0;
  arena->total_bytes = 0;
  POISON(arena->blocks->data, arena->blocks->size);
}

void vt_arena_hurry(vt_arena *arena) {
  arena->brief = true;
  arena->size = arena->used;
}

void vt_arena_free(vt_arena *arena) {
  note_touched(arena);
  free_blocks(arena->blocks);
  *arena = (vt_arena){.brief = arena->brief};
}

void vt_arena_adopt(vt_arena *to, vt_arena *from) {
  note_touched(from);
  if (to->blocks) {
    vt_arena_block *oldest = to->blocks;
    while (oldest->next) oldest = oldest->next;
    oldest->next = from->blocks;
    to->total_bytes += from->total_bytes;
  } else {
    *to = *from;
  }
  *from = (vt_arena){0};
}
