// SPDX-License-Identifier: Apache-2.0
// arena.h - bump allocation with one lifetime: everything pushed lives until vt_arena_free or
// vt_arena_reset.
//
// A zeroed vt_arena is a valid empty arena. Memory comes zeroed, aligned to 16 bytes (64 by
// push_aligned). When host memory runs out, the thread's attempt ends, or the process (memory.h).
// Under AddressSanitizer the unused parts and a gap after each allocation are poisoned.
// Threads: one arena belongs to one thread at a time.
#ifndef VT_BASE_ARENA_H
#define VT_BASE_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct vt_arena_block vt_arena_block;
typedef struct vt_arena {
  vt_arena_block *blocks; // newest first
  size_t used, size;      // of the newest block
  size_t total_bytes;
  bool brief; // freed before long: may use the largest block at hand, whatever it needs
} vt_arena;

void *vt_arena_push(vt_arena *arena, size_t size);
void *vt_arena_push_raw(vt_arena *arena, size_t size); // not cleared: anything may be in it
void *vt_arena_push_aligned(vt_arena *arena, size_t size, size_t align);
// The same for sizes from a program or a file: NULL when there is not enough memory.
void *vt_arena_try_push(vt_arena *arena, size_t size, size_t align);
// A copy of `size` bytes followed by a NUL.
char *vt_arena_copy(vt_arena *arena, const void *bytes, size_t size);
char *vt_arena_printf(vt_arena *arena, const char *format, ...) VT_PRINTF(2, 3);
void vt_arena_reset(vt_arena *arena); // empties, keeps the newest block
// From now on it is brief; what follows goes into blocks that are at hand, not to the end of the
// newest one, whose pages the system has yet to give.
void vt_arena_hurry(vt_arena *arena);
void vt_arena_free(vt_arena *arena);
// What is in `from` lives as long as `to` from now on; `from` is empty.
void vt_arena_adopt(vt_arena *to, vt_arena *from);

#define VT_NEW(arena, type)          ((type *)vt_arena_push(arena, sizeof(type)))
#define VT_NEW_ARRAY(arena, type, n) ((type *)vt_arena_push(arena, sizeof(type) * (size_t)(n)))

#endif
