// SPDX-License-Identifier: Apache-2.0
// pool.c - host memory for tensors: 64-byte aligned blocks with a padded end, kept by size class
// when freed.
//
// A fresh mapping costs a page fault per 4 KiB, more than the arithmetic done on it, so freed
// blocks stay with the process, up to twice the recent peak of memory in use. A repeated step finds
// its blocks; leftovers of a larger program are released.
// Threads: any; one lock, held for a few instructions.
// Under AddressSanitizer nothing is kept, so that use after free and padding overruns are detected.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fork.h"
#include "host/host.h"

#if defined(__SANITIZE_ADDRESS__)
enum { KEEP = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { KEEP = 0 };
#else
enum { KEEP = 1 };
#endif
#else
enum { KEEP = 1 };
#endif

enum {
  PAD = 128, // guaranteed past the end
  HEADER = 64,
  FIRST_SHIFT = 9, // classes 2^s * {4, 5, 6, 7} / 4 from 512 bytes on
  CLASSES = (62 - FIRST_SHIFT) * 4,
  HUGE_BYTES = 2 << 20, // from this size on blocks are mapped with huge pages
  WINDOW = 16384,       // allocations; "recent" is this window and the previous one
  LEAST_BYTES = 64 << 20,
};

typedef struct block {
  struct block *next;
  uint32_t class;
} block;
_Static_assert(sizeof(block) <= HEADER, "the header has room for the links");

static struct {
  pthread_mutex_t lock;
  block *free[CLASSES];
  int64_t idle_bytes, used_bytes;
  int64_t peak, last_peak; // of used_bytes, in this window and the last
  int64_t allocations;     // in this window
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t class_bytes(uint32_t class) {
  return ((int64_t)(4 + class % 4) << (FIRST_SHIFT + class / 4)) / 4;
}

static uint32_t class_of(int64_t bytes) {
  if (bytes <= 1 << FIRST_SHIFT) return 0;
  uint32_t shift =
      63 - (uint32_t)__builtin_clzll((uint64_t)(bytes - 1)); // 2^shift < bytes <= 2^(shift+1)
  uint32_t class = (shift - FIRST_SHIFT) * 4;
  while (class_bytes(class) < bytes) class ++;
  vt_assert(class < CLASSES && (!class || class_bytes(class - 1) < bytes));
  return class;
}

// Huge pages are for what is about to be written: the first write to one clears all of it.
static block *map_block(int64_t bytes, bool huge) {
  if (bytes < HUGE_BYTES) return aligned_alloc(64, (size_t)bytes);
  size_t size = (size_t)bytes;
  char *p =
      mmap(NULL, size + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  size_t skip = (HUGE_BYTES - (uintptr_t)p % HUGE_BYTES) % HUGE_BYTES;
  if (skip) munmap(p, skip);
  if (skip < HUGE_BYTES) munmap(p + skip + size, HUGE_BYTES - skip);
  madvise(p + skip, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return (block *)(void *)(p + skip);
}

static void unmap_block(block *b) {
  int64_t bytes = class_bytes(b->class);
  if (bytes < HUGE_BYTES)
    free(b);
  else
    munmap(b, (size_t)bytes);
}

// How much memory may be idle besides what is in use, at most a quarter of the machine's memory.
static int64_t idle_limit(void) {
  static int64_t quarter;
  if (!quarter) quarter = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 4;
  int64_t peak = pool.peak > pool.last_peak ? pool.peak : pool.last_peak;
  int64_t most = 2 * peak > LEAST_BYTES ? 2 * peak : LEAST_BYTES;
  return most - pool.used_bytes < quarter ? most - pool.used_bytes : quarter;
}

// Removes idle blocks from the lists, largest first, until the rest may stay; the caller unmaps
// them without the lock.
static block *surplus(void) {
  int64_t limit = idle_limit();
  block *taken = NULL;
  for (uint32_t class = CLASSES; class --&&pool.idle_bytes > limit;)
    while (pool.free[class] && pool.idle_bytes > limit) {
      block *b = pool.free[class];
      pool.free[class] = b->next;
      pool.idle_bytes -= class_bytes(class);
      vt_assert(pool.idle_bytes >= 0 && b->class == class);
      b->next = taken;
      taken = b;
    }
  return taken;
}

static void unmap_all(block *list) {
  while (list) {
    block *next = list->next;
    unmap_block(list);
    list = next;
  }
}

// Counts a block in use; returns blocks to unmap.
static block *count_used(int64_t bytes) {
  pool.used_bytes += bytes;
  if (++pool.allocations == WINDOW) {
    pool.allocations = 0;
    pool.last_peak = pool.peak;
    pool.peak = 0;
  }
  if (pool.used_bytes > pool.peak) pool.peak = pool.used_bytes;
  return surplus();
}

// Allocates a block that count_used has already counted.
static void *fresh_block(uint32_t class, bool huge) {
  block *b = map_block(class_bytes(class), huge);
  if (!b) {
    vt_lock(&pool.lock);
    pool.used_bytes -= class_bytes(class);
    vt_unlock(&pool.lock);
    return NULL;
  }
  b->class = class;
  return (char *)b + HEADER;
}

void *vt_host_alloc(int64_t bytes) {
  vt_assert(bytes >= 0);
  if (bytes > INT64_MAX / 4) return NULL;
  if (!KEEP) {
    block *fresh = aligned_alloc(64, (size_t)((bytes + HEADER + PAD + 63) & ~(int64_t)63));
    return fresh ? (char *)fresh + HEADER : NULL;
  }
  uint32_t class = class_of(bytes + HEADER + PAD);
  vt_lock(&pool.lock);
  block *b = pool.free[class];
  if (b) {
    pool.free[class] = b->next;
    pool.idle_bytes -= class_bytes(class);
    vt_assert(pool.idle_bytes >= 0 && b->class == class);
  }
  block *left = count_used(class_bytes(class));
  vt_unlock(&pool.lock);
  unmap_all(left);
  if (b) return (char *)b + HEADER;
  return fresh_block(class, true);
}

void *vt_host_alloc_zeroed(int64_t bytes) {
  if (KEEP && bytes >= HUGE_BYTES &&
      bytes <= INT64_MAX / 4) { // fresh pages are zero, and cost nothing until touched
    uint32_t class = class_of(bytes + HEADER + PAD);
    vt_lock(&pool.lock);
    block *left = count_used(class_bytes(class));
    vt_unlock(&pool.lock);
    unmap_all(left);
    return fresh_block(class, false);
  }
  void *data = vt_host_alloc(bytes);
  if (data) memset(data, 0, (size_t)bytes);
  return data;
}

void vt_host_free(void *data) {
  if (!data || vt_forked()) return; // the lists may be in the middle of a change
  block *b = (block *)(void *)((char *)data - HEADER);
  if (!KEEP) {
    free(b);
    return;
  }
  int64_t bytes = class_bytes(b->class);
  vt_lock(&pool.lock);
  b->next = pool.free[b->class];
  pool.free[b->class] = b;
  pool.idle_bytes += bytes;
  pool.used_bytes -= bytes;
  vt_assert(pool.used_bytes >= 0);
  block *left = surplus();
  vt_unlock(&pool.lock);
  unmap_all(left);
}
