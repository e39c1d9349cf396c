// SPDX-License-Identifier: Apache-2.0
// clock.c - the virtual clock: how this process's runs would follow each other on the slice.
//
// The device's time is predicted. The host's is measured: what lies between the return of one
// launch and the next, without the time in which the host only waits for programs that run here.
// That is the larger of
//   - the time in which no program ran here, and
//   - the processor time of the thread that launches.
// If the host waited and no program runs any more, it waited for the device on the slice, too: its
// work begins when the device is done. Otherwise it works beside the device. Where it comes later
// than the device is free, the device waits for the host: for input, mostly.
// What lies between two launches is setting up if a program was compiled in it, and counts apart.
#include <time.h>
#include <unistd.h>

#include "base/predictions.h"
#include "runtime/runtime_internal.h"

static pthread_mutex_t turning = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool compiled;
static pid_t owner;
static pthread_t thread; // of the last launch
static vt_clock_time left;
static double host_s, device_s; // when they are done, since the first launch

static uint64_t clock_ns(clockid_t id) {
  struct timespec now;
  clock_gettime(id, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

vt_clock_time vt_clock_now(void) {
  vt_clock_time now = {.wall_ns = clock_ns(CLOCK_MONOTONIC),
                       .thread_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID)};
  now.busy_ns = vt_activity_busy_ns(now.wall_ns, &now.running);
  return now;
}

void vt_clock_compiled(void) {
  atomic_store(&compiled, true);
}

static uint64_t between(uint64_t from, uint64_t to) {
  return to > from ? to - from : 0;
}

static void add(_Atomic uint64_t *sum, double value) {
  atomic_fetch_add_explicit(sum, (uint64_t)(value + 0.5), memory_order_relaxed);
}

// The host's part of the time between two launches.
static void turn_host(vt_virtual_clock *clock, const vt_clock_time *came) {
  uint64_t gap = between(left.wall_ns, came->wall_ns), busy = between(left.busy_ns, came->busy_ns);
  uint64_t worked =
      pthread_equal(thread, pthread_self()) ? between(left.thread_ns, came->thread_ns) : 0;
  if (busy > gap) busy = gap;
  uint64_t host = gap - busy > worked ? gap - busy : worked;
  if (host > gap) host = gap;
  if (atomic_exchange(&compiled, false)) {
    add(&clock->setup_ns, (double)host);
    host_s = device_s = host_s > device_s ? host_s : device_s;
    return;
  }
  bool waited = gap - host > busy / 2;
  if (waited && !came->running && device_s > host_s) host_s = device_s;
  host_s += 1e-9 * (double)host;
  add(&clock->host_ns, (double)host);
}

void vt_clock_launch(const vt_executable *executable, const vt_clock_time *came) {
  vt_virtual_clock *clock = vt_predicted_clock();
  const struct vt_predicted_program *program = executable->predicted;
  if (!clock || !program) return;
  double seconds = program->bound[0] ? program->seconds : executable->info.roofline.seconds;
  vt_lock(&turning);
  bool first = owner != getpid();
  if (first)
    host_s = device_s = 0, owner = getpid(), atomic_store(&compiled, false);
  else
    turn_host(clock, came);
  if (host_s > device_s) {
    add(&clock->starved_ps, (host_s - device_s) * 1e12);
    device_s = host_s;
  }
  device_s += seconds;
  add(&clock->device_ps, seconds * 1e12);
  add(&clock->launches, 1);
  thread = pthread_self();
  left = vt_clock_now();
  vt_unlock(&turning);
}
