// SPDX-License-Identifier: Apache-2.0
// binding.c - see binding.h.
//
// A virtual processor that has halted counts as preempted by its host, so Linux wakes a thread on
// the processor of whoever wakes it, though the other is idle, and moves it at the next tick of its
// clock. A thread that may use one processor alone is woken there.
#include "host/binding.h"

#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { ASLEEP_NS = 250 * 1000 }; // after so long without a run all threads have slept or will soon
// Of larger teams GNU OpenMP ends threads when a library asks for a smaller one, and those that
// take their places would be bound as the thread that makes them.
enum { TEAM = 2 };

static atomic_int runs;       // under way
static atomic_llong last_end; // of a run

// Of the thread that runs programs: the other one in its team, and what both may use.
static _Thread_local struct {
  pid_t other;
  cpu_set_t processors;
  bool begun, bound;
} team;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void meet(void) {
  pid_t *other = &team.other;
#pragma omp parallel num_threads(TEAM)
  if (omp_get_thread_num()) *other = gettid();
}

// Whether the team is still the one that was met. The number of a thread that has ended may be that
// of another process now.
static bool known(void) {
  return team.other && !tgkill(getpid(), team.other, 0);
}

static bool alike(void) {
  cpu_set_t own;
  return !sched_getaffinity(team.other, sizeof own, &own) && CPU_EQUAL(&own, &team.processors);
}

static void bind(pid_t thread, int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  (void)sched_setaffinity(thread, sizeof one, &one);
}

static void bind_both(void) {
  int here = sched_getcpu(), there = 0;
  if (here < 0) return;
  while (there == here || !CPU_ISSET(there, &team.processors)) there++;
  bind(0, here);
  bind(team.other, there);
  team.bound = true;
}

void vt_binding_begin(void) {
  team.begun = true;
  if (atomic_fetch_add(&runs, 1) || now_ns() - last_end < ASLEEP_NS) return;
  if (omp_get_max_threads() != TEAM || omp_get_proc_bind() != omp_proc_bind_false) return;
  if (sched_getaffinity(0, sizeof team.processors, &team.processors)) return;
  if (CPU_COUNT(&team.processors) != TEAM) return;
  if (!known()) meet();
  if (alike()) bind_both();
}

void vt_binding_lift(void) {
  if (!team.bound) return;
  (void)sched_setaffinity(0, sizeof team.processors, &team.processors);
  (void)sched_setaffinity(team.other, sizeof team.processors, &team.processors);
  team.bound = false;
}

void vt_binding_end(void) {
  if (!team.begun) return;
  team.begun = false;
  vt_binding_lift();
  last_end = now_ns();
  atomic_fetch_sub(&runs, 1);
}
