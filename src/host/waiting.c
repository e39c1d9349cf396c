// SPDX-License-Identifier: Apache-2.0
// waiting.c - see waiting.h.
//
// GNU OpenMP spins as long as GOMP_SPINCOUNT says, read once, but only 100 turns while it has more
// threads than there are processors. So one more thread with a team of its own, all asleep, ends
// the spinning, and its end allows it again.
// Which of the two: whoever spins on a busy machine uses up time that another process wants, and is
// preempted. Preemptions per second of this process's processor time tell busy from idle; two a run
// do not count, since the caller that wakes when a run ends takes the place of one that spins.
// Measured on two cores, ResNet-50: with 100 turns 13 to 28 alone and 85 to 8,400 beside one to six
// others, with 10,000 turns 60 alone and 230 to 900 beside others.
#include "host/waiting.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

enum { LOOK_NS = 50 * 1000 * 1000, WINDOW_US = 100 * 1000, QUIET_WINDOWS = 2 };
enum { QUIET = 50, BUSY = 150 }; // preemptions a second
enum { OWN_PREEMPTIONS = 2 };    // of a run

static bool managed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lifted = PTHREAD_COND_INITIALIZER;
static struct {
  bool asleep;         // the other team is there
  uint64_t generation; // of that team
  int members;         // its threads: with those of the team that computes, one too many
  int quiet;
  vt_waiting_window seen;    // since the process began, when last looked at
} state;                     // under the lock
static atomic_bool sleeping; // as in the state, for whoever does not need to know for sure
static atomic_int formed;    // threads of other teams: their loop must do something
static atomic_llong runs, next_look;
static atomic_bool begun;

void vt_waiting_manage(void) {
  managed = true;
}

static void *be_many(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  uint64_t mine = state.generation;
  int members = state.members;
  pthread_mutex_unlock(&lock);
#pragma omp parallel num_threads(members)
  atomic_fetch_add(&formed, 1);
  pthread_mutex_lock(&lock);
  while (state.asleep && mine == state.generation) pthread_cond_wait(&lifted, &lock);
  pthread_mutex_unlock(&lock);
  return NULL; // which ends its team
}

// Where no thread can be made, those that wait go on spinning.
static void set_asleep(bool wanted) {
  sleeping = state.asleep = wanted;
  state.generation++;
  pthread_cond_broadcast(&lifted);
  if (!wanted) return;
  int missing = omp_get_num_procs() - omp_get_max_threads();
  state.members = missing > 0 ? missing + 2 : 2;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_t attributes;
  pthread_t thread;
  if (!pthread_attr_init(&attributes)) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_create(&thread, &attributes, be_many, NULL);
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int32_t vt_waiting_team(int64_t nanoseconds, int32_t threads) {
  // A region of threads that spin, and each thread that has to be woken: 30 to 50 us on two virtual
  // cores. Not measured by itself on more.
  enum { SPINNING_NS = 8 * 1000, WAKING_NS = 20 * 1000 };
  if (!managed || threads < 2) return threads;
  int64_t cost = sleeping ? WAKING_NS * (threads - 1) : SPINNING_NS;
  return nanoseconds - nanoseconds / threads >= cost ? threads : 1;
}

bool vt_waiting_decide(const vt_waiting_window *w, bool asleep, int *quiet) {
  int64_t rate = (w->preempted - OWN_PREEMPTIONS * w->runs) * 1000000 / w->busy_us;
  *quiet = rate < QUIET ? *quiet + 1 : 0;
  return asleep ? *quiet < QUIET_WINDOWS : rate > BUSY;
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t busy_us(const struct rusage *usage) {
  return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000LL + usage->ru_utime.tv_usec +
         usage->ru_stime.tv_usec;
}

static void look(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage)) return;
  vt_waiting_window now = {usage.ru_nivcsw, runs, busy_us(&usage)}, window = now;
  window.preempted -= state.seen.preempted;
  window.runs -= state.seen.runs;
  window.busy_us -= state.seen.busy_us;
  if (window.busy_us < WINDOW_US) return;
  state.seen = now;
  bool asleep = vt_waiting_decide(&window, state.asleep, &state.quiet);
  if (asleep != state.asleep) set_asleep(asleep);
}

void vt_waiting_begin(void) {
  if (!managed || atomic_exchange(&begun, true)) return;
  pthread_mutex_lock(&lock);
  set_asleep(true);
  pthread_mutex_unlock(&lock);
}

void vt_waiting_end(void) {
  if (!managed) return;
  runs++;
  int64_t now = now_ns();
  if (now < next_look || pthread_mutex_trylock(&lock)) return;
  next_look = now + LOOK_NS;
  look();
  pthread_mutex_unlock(&lock);
}
