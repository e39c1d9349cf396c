// SPDX-License-Identifier: Apache-2.0
// team.c - see team.h.
//
// A helper that has finished its part of a loop looks for the next one for SPIN_NS, in turn with
// whoever else wants its core, and then sleeps. Waking it takes as long as many a step of a model
// that makes one token at a time. Where it was kept from its core for BUSY_NS, others need the
// core: during the next LEAST_RESTS loops it sleeps at once, or twice as many as the last time. Who
// sleeps is the first to run when woken.
//
// `gate` holds the number of the loop and, below it, the places that are left in it. Who takes one
// may read the loop; the caller closes the gate, and waits until all who entered have left.
#include "host/team.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fork.h"
#include "host/cpu.h"

enum {
  MAX_HELPERS = 255,
  PLACES = 1 << 16,
  SPIN_NS = 200 * 1000,
  BUSY_NS = 1000 * 1000,
  LEAST_RESTS = 50,
  MOST_RESTS = 1600,
  LOOKS = 40,       // between two looks at the clock
  LAST_LOOKS = 500, // some 20 us
  FLUSH_SUBNORMALS = 0x8040
};

static struct {
  pthread_mutex_t lock; // of the caller
  int helpers;          // started
  bool patient;
  void (*task)(void *context, int64_t i);
  void *context;
  int64_t count;
  _Atomic int64_t next; // that nobody has taken
  _Atomic uint64_t gate;
  _Atomic uint32_t left;           // of those who entered; a futex
  _Atomic bool waits;              // the caller does, asleep
  _Atomic uint32_t bell, sleepers; // of the helpers; bell is a futex
} team = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void futex_wait(_Atomic uint32_t *at, uint32_t value) {
  syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *at, int count) {
  syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void take_tasks(void) {
  for (;;) {
    int64_t i = atomic_fetch_add_explicit(&team.next, 1, memory_order_relaxed);
    if (i >= team.count) return;
    team.task(team.context, i);
  }
}

// Takes part in the loop if there is a new one with a place; false when not.
static bool enter(uint64_t *seen) {
  uint64_t gate = atomic_load_explicit(&team.gate, memory_order_acquire);
  if (gate / PLACES == *seen || gate % PLACES == 0) return false;
  if (!atomic_compare_exchange_strong(&team.gate, &gate, gate - 1)) return false;
  *seen = gate / PLACES;
  take_tasks();
  atomic_fetch_add(&team.left, 1);
  if (atomic_load(&team.waits)) futex_wake(&team.left, 1);
  return true;
}

// Of a helper: the last loop it took part in, how many it will not wait for awake, and how many it
// will not when it is next kept from its core.
typedef struct helper {
  uint64_t seen;
  int rests, next_rests;
} helper;

// Waits for a loop without sleeping.
static bool look_out(helper *h) {
  int64_t start = now_ns(), last = start;
  while (last - start < SPIN_NS) {
    for (int i = 0; i < LOOKS; i++) {
      if (enter(&h->seen)) {
        if (h->next_rests > LEAST_RESTS) h->next_rests--;
        return true;
      }
      _mm_pause();
    }
    sched_yield();
    int64_t now = now_ns();
    if (now - last > BUSY_NS) {
      h->rests = h->next_rests;
      if (h->next_rests < MOST_RESTS) h->next_rests *= 2;
      return false;
    }
    last = now;
  }
  return false;
}

static void sleep_until_rung(uint64_t *seen) {
  for (;;) {
    uint32_t bell = atomic_load(&team.bell);
    atomic_fetch_add(&team.sleepers, 1);
    bool entered = enter(seen);
    if (!entered) futex_wait(&team.bell, bell);
    atomic_fetch_sub(&team.sleepers, 1);
    if (entered || enter(seen)) return;
  }
}

static void *helper_main(void *unused) {
  (void)unused;
  _mm_setcsr(_mm_getcsr() | FLUSH_SUBNORMALS);
  helper h = {.next_rests = LEAST_RESTS};
  for (;;) {
    sleep_until_rung(&h.seen);
    for (bool entered = team.patient; entered && !h.rests;) entered = look_out(&h);
    if (h.rests) h.rests--;
  }
  return NULL;
}

static void start_helpers(int wanted) {
  if (wanted > MAX_HELPERS) wanted = MAX_HELPERS;
  if (team.helpers >= wanted) return;
  const char *policy = getenv("OMP_WAIT_POLICY");
  team.patient = !policy || strcasecmp(policy, "passive") != 0;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (pthread_t thread; team.helpers < wanted; team.helpers++)
    if (pthread_create(&thread, &attributes, helper_main, NULL)) break;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// Until all who entered have left. They are at their last tasks: a moment awake, then asleep.
static void wait_for(uint32_t entered) {
  for (int i = 0; i < LAST_LOOKS; i++) {
    if (atomic_load_explicit(&team.left, memory_order_acquire) == entered) return;
    _mm_pause();
  }
  atomic_store(&team.waits, true);
  for (uint32_t left; (left = atomic_load(&team.left)) != entered;) futex_wait(&team.left, left);
  atomic_store(&team.waits, false);
}

static void run_with(int helpers) {
  uint64_t number = atomic_load(&team.gate) / PLACES + 1;
  atomic_store_explicit(&team.next, 0, memory_order_relaxed);
  atomic_store_explicit(&team.left, 0, memory_order_relaxed);
  atomic_store(&team.gate, number * PLACES + (uint64_t)helpers);
  atomic_fetch_add(&team.bell, 1);
  if (atomic_load(&team.sleepers)) futex_wake(&team.bell, helpers);
  take_tasks();
  uint64_t places = atomic_exchange(&team.gate, number * PLACES) % PLACES;
  wait_for((uint32_t)helpers - (uint32_t)places);
}

void vt_team_run(int64_t count, void (*task)(void *context, int64_t i), void *context) {
  int threads = vt_host_threads();
  if (threads > count) threads = (int)count;
  if (threads < 2 || vt_forked()) {
    for (int64_t i = 0; i < count; i++) task(context, i);
    return;
  }
  if (pthread_mutex_trylock(&team.lock)) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < count; i++) task(context, i);
    return;
  }
  start_helpers(threads - 1);
  team.task = task, team.context = context, team.count = count;
  run_with(threads - 1 < team.helpers ? threads - 1 : team.helpers);
  pthread_mutex_unlock(&team.lock);
}
