// SPDX-License-Identifier: Apache-2.0
// coroutine.c - see coroutine.h: contexts of the C library, and what sanitizers must be told when
// the stack is another one.
#include "base/coroutine.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

// Pages that nobody touches take no memory.
enum { STACK_BYTES = 1 << 20 };

struct vt_coroutine {
  void (*run)(void *user);
  void *user;
  ucontext_t inside, outside;
  char *stack; // the page below may not be touched
  bool over;
#ifdef __SANITIZE_ADDRESS__
  const void *outer_stack;
  size_t outer_bytes;
#endif
#ifdef __SANITIZE_THREAD__
  void *fiber, *outer_fiber;
#endif
};

static size_t guard_bytes(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

static void enter(vt_coroutine *c) {
#ifdef __SANITIZE_ADDRESS__
  void *fake = NULL;
  __sanitizer_start_switch_fiber(&fake, c->stack, STACK_BYTES);
#endif
#ifdef __SANITIZE_THREAD__
  c->outer_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(c->fiber, 0);
#endif
  swapcontext(&c->outside, &c->inside);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

static void leave(vt_coroutine *c) {
#ifdef __SANITIZE_ADDRESS__
  void *fake = NULL;
  __sanitizer_start_switch_fiber(c->over ? NULL : &fake, c->outer_stack, c->outer_bytes);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(c->outer_fiber, 0);
#endif
  swapcontext(&c->inside, &c->outside);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, &c->outer_stack, &c->outer_bytes);
#endif
}

// makecontext passes integers only.
static void begin(unsigned high, unsigned low) {
  vt_coroutine *c = (vt_coroutine *)(uintptr_t)((uint64_t)high << 32 | low);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(NULL, &c->outer_stack, &c->outer_bytes);
#endif
  c->run(c->user);
  c->over = true;
  leave(c);
}

vt_status vt_coroutine_create(void (*run)(void *user), void *user, vt_coroutine **out_coroutine) {
  vt_coroutine *c = calloc(1, sizeof *c);
  if (!c) return vt_error_no_memory();
  size_t guard = guard_bytes();
  char *memory = mmap(NULL, guard + STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE) || getcontext(&c->inside)) {
    if (memory != MAP_FAILED) munmap(memory, guard + STACK_BYTES);
    free(c);
    return vt_error_no_memory();
  }
  c->run = run;
  c->user = user;
  c->stack = memory + guard;
  c->inside.uc_stack.ss_sp = c->stack;
  c->inside.uc_stack.ss_size = STACK_BYTES;
#ifdef __SANITIZE_THREAD__
  c->fiber = __tsan_create_fiber(0);
#endif
  uint64_t address = (uintptr_t)c;
  makecontext(&c->inside, (void (*)(void))begin, 2, (unsigned)(address >> 32), (unsigned)address);
  *out_coroutine = c;
  return VT_OK;
}

void vt_coroutine_resume(vt_coroutine *c) {
  vt_assert(!c->over);
  enter(c);
}

void vt_coroutine_yield(vt_coroutine *c) {
  leave(c);
}

void vt_coroutine_destroy(vt_coroutine *c) {
  if (!c) return;
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(c->fiber);
#endif
  munmap(c->stack - guard_bytes(), guard_bytes() + STACK_BYTES);
  free(c);
}
