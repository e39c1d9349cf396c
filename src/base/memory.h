// SPDX-License-Identifier: Apache-2.0
// memory.h - the host memory of base's containers (arenas, arrays, maps, texts), and what happens
// when it runs out.
//
// Code that builds data with these does not check each allocation. When one fails, the process ends
// with a message, unless the thread is in vt_attempt_run: then the code it runs is abandoned at
// once and it returns RESOURCE_EXHAUSTED, like a C++ exception. Functions in between are not
// consulted, so one that holds anything other than memory of base (a lock, an object of a library,
// memory from malloc) while it calls such code needs its own attempt, and releases what it holds
// afterwards:
//
//   vt_attempt attempt;
//   vt_status st = vt_attempt_run(&attempt, stages, &job);
//   if (st) destroy(job.made); // out of memory: consistent as far as it was built
//   vt_attempt_end(&attempt);  // frees what could not be destroyed
//
// For structures that outlive vt_attempt_end, such as a process-wide cache, code in an attempt
// allocates in vt_attempt_keep: no attempt watches that memory.
#ifndef VT_BASE_MEMORY_H
#define VT_BASE_MEMORY_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct vt_memory_link {       // at the start of each block
  struct vt_memory_link *prev, *next; // NULL: not watched by an attempt
} vt_memory_link;

typedef struct vt_attempt {
  struct vt_attempt *outer;
  vt_memory_link blocks; // allocated while it ran and not freed since
  jmp_buf out;
  bool left;  // out of memory
  bool keeps; // watches nothing
} vt_attempt;

vt_status vt_attempt_run(vt_attempt *attempt, vt_status (*run)(void *user), void *user) VT_CHECKED;
// Frees what is left if memory ran out; otherwise the enclosing attempt, if any, watches it.
void vt_attempt_end(vt_attempt *attempt);
// A separate attempt; `run` allocates only for structures that stay consistent when memory runs
// out.
vt_status vt_attempt_keep(vt_status (*run)(void *user), void *user) VT_CHECKED;

// Like realloc and free, aligned to 16 bytes, watched by the thread's attempt; never NULL.
void *vt_memory_resize(void *data, size_t size);
void vt_memory_free(void *data);
// Watches a block allocated elsewhere that begins with the link; unwatch it before freeing it.
void vt_memory_watch(vt_memory_link *block);
void vt_memory_unwatch(vt_memory_link *block);
// Ends the thread's attempt, or the process.
_Noreturn void vt_memory_out(size_t size, const char *what);

#ifndef NDEBUG
// Set by tests: whether an allocation, even one within a block of an arena, fails.
extern bool (*vt_memory_refuses)(void);
#endif
static inline bool vt_memory_refused(void) {
#ifndef NDEBUG
  return vt_memory_refuses && vt_memory_refuses();
#else
  return false;
#endif
}

#endif
