// SPDX-License-Identifier: Apache-2.0
// memory.h - the host memory of what base keeps (arenas, arrays, maps, texts), and what happens
// when there is none left.
//
// Code that builds data with these does not look at each request. Where none can be had the process
// ends with a message, unless the thread is in vt_attempt_run: then what runs there is left at once
// and the answer is RESOURCE_EXHAUSTED, as a C++ exception would do it. Nobody on the way is asked,
// so a function that holds what is not memory of base (a lock, an object of a library, memory of
// malloc) while it calls such code has an attempt of its own and gives that back behind it:
//
//   vt_attempt attempt;
//   vt_status st = vt_attempt_run(&attempt, stages, &job);
//   if (st) destroy(job.made); // where memory was out: whole as far as it is, so as ever
//   vt_attempt_end(&attempt);  // gives back what nobody could destroy
//
// What code in an attempt puts into structures that are not destroyed before vt_attempt_end, such
// as a cache of the process, it puts there in vt_attempt_keep: that memory no attempt watches.
#ifndef VT_BASE_MEMORY_H
#define VT_BASE_MEMORY_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct vt_memory_link {       // at the start of each block
  struct vt_memory_link *prev, *next; // NULL: no attempt watches it
} vt_memory_link;

typedef struct vt_attempt {
  struct vt_attempt *outer;
  vt_memory_link blocks; // made while it ran and not freed since
  jmp_buf out;
  bool left;  // memory was out
  bool keeps; // watches nothing
} vt_attempt;

vt_status vt_attempt_run(vt_attempt *attempt, vt_status (*run)(void *user), void *user) VT_CHECKED;
// Frees what is left when memory was out; otherwise it is watched by the attempt around, if any.
void vt_attempt_end(vt_attempt *attempt);
// An attempt of its own; `run` allocates for structures that stay as they are when memory is out,
// and nothing else.
vt_status vt_attempt_keep(vt_status (*run)(void *user), void *user) VT_CHECKED;

// Memory as of realloc and free, aligned to 16 bytes, watched by the thread's attempt; never NULL.
void *vt_memory_resize(void *data, size_t size);
void vt_memory_free(void *data);
// Watches a block that was made otherwise and begins with the link; unwatched before it is freed.
void vt_memory_watch(vt_memory_link *block);
void vt_memory_unwatch(vt_memory_link *block);
// Ends the thread's attempt, or the process.
_Noreturn void vt_memory_out(size_t size, const char *what);

#ifndef NDEBUG
// Set by tests: whether a request, also one within a block of an arena, finds no memory.
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
