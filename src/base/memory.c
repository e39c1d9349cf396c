// SPDX-License-Identifier: Apache-2.0
// memory.c - blocks with a link, and attempts that hold the links of their thread.
#include "base/check.h"
#include "base/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert(sizeof(vt_memory_link) % 16 == 0, "what lies behind a link is aligned");

#ifndef NDEBUG
bool (*vt_memory_refuses)(void);
#endif

static _Thread_local vt_attempt *running;

static void link_in(vt_attempt *attempt, vt_memory_link *link) {
  vt_assert(attempt->blocks.next->prev == &attempt->blocks);
  vt_memory_link *head = &attempt->blocks;
  *link = (vt_memory_link){head, head->next};
  head->next->prev = link;
  head->next = link;
}

void vt_memory_watch(vt_memory_link *block) {
  *block = (vt_memory_link){0};
  if (running && !running->keeps) link_in(running, block);
}

void vt_memory_unwatch(vt_memory_link *block) {
  if (!block->next) return;
  vt_assert(block->next->prev == block && block->prev->next == block);
  block->prev->next = block->next;
  block->next->prev = block->prev;
  *block = (vt_memory_link){0};
}

void *vt_memory_resize(void *data, size_t size) {
  vt_memory_link *old = data ? (vt_memory_link *)data - 1 : NULL;
  if (size > SIZE_MAX / 2 || vt_memory_refused()) vt_memory_out(size, "a table");
  if (old) vt_memory_unwatch(old);
  vt_memory_link *link = realloc(old, sizeof *link + size);
  if (!link) {
    if (old) vt_memory_watch(old);
    vt_memory_out(size, "a table");
  }
  vt_memory_watch(link);
  return link + 1;
}

void vt_memory_free(void *data) {
  if (!data) return;
  vt_memory_link *link = (vt_memory_link *)data - 1;
  vt_memory_unwatch(link);
  free(link);
}

_Noreturn void vt_memory_out(size_t size, const char *what) {
  if (running) {
    running->left = true;
    longjmp(running->out, 1);
  }
  fprintf(stderr, "vtpu: out of host memory (%zu bytes for %s)\n", size, what);
  abort();
}

static vt_status run_in(vt_attempt *attempt, vt_status (*run)(void *user), void *user) {
  attempt->outer = running;
  attempt->blocks = (vt_memory_link){&attempt->blocks, &attempt->blocks};
  attempt->left = false;
  running = attempt;
  vt_status st = setjmp(attempt->out) ? vt_error_no_memory() : run(user);
  running = attempt->outer;
  return st;
}

vt_status vt_attempt_run(vt_attempt *attempt, vt_status (*run)(void *user), void *user) {
  attempt->keeps = false;
  return run_in(attempt, run, user);
}

vt_status vt_attempt_keep(vt_status (*run)(void *user), void *user) {
  vt_attempt attempt;
  attempt.keeps = true;
  return run_in(&attempt, run, user);
}

void vt_attempt_end(vt_attempt *attempt) {
  vt_assert(running != attempt && !attempt->keeps);
  while (attempt->blocks.next != &attempt->blocks) {
    vt_memory_link *link = attempt->blocks.next;
    vt_memory_unwatch(link);
    if (attempt->left)
      free(link);
    else if (attempt->outer && !attempt->outer->keeps)
      link_in(attempt->outer, link);
  }
}
