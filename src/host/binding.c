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

enum { MOST_THREADS = 256 };
enum { ASLEEP_NS = 1000 * 1000 }; // after so long without a run all threads have slept

static atomic_int runs;       // under way
static atomic_llong last_end; // of a run

// Of the thread that runs programs: the others in its team, and what all of them may use.
static _Thread_local struct {
  int count;
  pid_t others[MOST_THREADS - 1];
  cpu_set_t processors;
  bool begun, bound;
} team;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void meet(int threads) {
  pid_t *others = team.others;
  team.count = threads - 1;
#pragma omp parallel num_threads(threads)
  if (omp_get_thread_num()) others[omp_get_thread_num() - 1] = gettid();
}

// Whether the team is still the one that was met. Numbers of threads that have ended may be those
// of other processes now.
static bool known(int threads) {
  if (team.count != threads - 1) return false;
  for (int i = 0; i < team.count; i++)
    if (tgkill(getpid(), team.others[i], 0)) return false;
  return true;
}

static bool alike(void) {
  cpu_set_t own;
  for (int i = 0; i < team.count; i++)
    if (sched_getaffinity(team.others[i], sizeof own, &own) || !CPU_EQUAL(&own, &team.processors))
      return false;
  return true;
}

static void bind(pid_t thread, int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  (void)sched_setaffinity(thread, sizeof one, &one);
}

static void bind_all(void) {
  int here = sched_getcpu(), next = 0;
  if (here < 0) return;
  bind(0, here);
  for (int i = 0; i < team.count; i++, next++) {
    while (next == here || !CPU_ISSET(next, &team.processors)) next++;
    bind(team.others[i], next);
  }
  team.bound = true;
}

void vt_binding_begin(void) {
  team.begun = true;
  if (atomic_fetch_add(&runs, 1) || now_ns() - last_end < ASLEEP_NS) return;
  int threads = omp_get_max_threads();
  if (threads < 2 || threads > MOST_THREADS || omp_get_proc_bind() != omp_proc_bind_false) return;
  if (sched_getaffinity(0, sizeof team.processors, &team.processors)) return;
  if (CPU_COUNT(&team.processors) != threads) return;
  if (!known(threads)) meet(threads);
  if (alike()) bind_all();
}

void vt_binding_lift(void) {
  if (!team.bound) return;
  (void)sched_setaffinity(0, sizeof team.processors, &team.processors);
  for (int i = 0; i < team.count; i++)
    (void)sched_setaffinity(team.others[i], sizeof team.processors, &team.processors);
  team.bound = false;
}

void vt_binding_end(void) {
  if (!team.begun) return;
  team.begun = false;
  vt_binding_lift();
  last_end = now_ns();
  atomic_fetch_sub(&runs, 1);
}
