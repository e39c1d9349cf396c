// SPDX-License-Identifier: Apache-2.0
// watchdog.c - see watchdog.h. Silence is counted in the watchdog's own seconds, not by a clock: a
// process resumed after an hour's stop has not been silent.
#include "cloud/door/watchdog.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER; // of the list
static vt_heartbeat *the_heartbeats;

struct vt_watchdog {
  vt_cloud *cloud; // NULL = no longer there
  int64_t limit_s;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool stop;
  int end_s, left_s; // time to end, and what is left of it; 0 = not ending
  int lock_silent_s; // of the cloud's lock
  int notify;        // systemd's socket, -1 = none
};

void vt_heartbeat_add(vt_heartbeat *heartbeat, const char *name) {
  pthread_mutex_lock(&the_lock);
  heartbeat->name = name;
  heartbeat->seen = 0;
  heartbeat->silent_s = 0;
  atomic_store(&heartbeat->count, 1);
  heartbeat->next = the_heartbeats;
  the_heartbeats = heartbeat;
  pthread_mutex_unlock(&the_lock);
}

void vt_heartbeat_remove(vt_heartbeat *heartbeat) {
  pthread_mutex_lock(&the_lock);
  for (vt_heartbeat **at = &the_heartbeats; *at; at = &(*at)->next)
    if (*at == heartbeat) {
      *at = heartbeat->next;
      break;
    }
  pthread_mutex_unlock(&the_lock);
}

void vt_heartbeat_now(vt_heartbeat *heartbeat) {
  atomic_fetch_add(&heartbeat->count, 1);
}

_Noreturn static void end(const char *who, const char *what, int64_t seconds) {
  fprintf(stderr, "vtpud: %s %s for %lld s; ends at once\n", who, what, (long long)seconds);
  fflush(stderr);
  _exit(VT_WATCHDOG_EXIT);
}

static void look_at_beats(const vt_watchdog *dog) {
  pthread_mutex_lock(&the_lock);
  for (vt_heartbeat *b = the_heartbeats; b; b = b->next) {
    uint64_t count = atomic_load(&b->count);
    b->silent_s = count == b->seen ? b->silent_s + 1 : 0;
    b->seen = count;
    if (b->silent_s >= dog->limit_s) end(b->name, "has not answered", dog->limit_s);
  }
  pthread_mutex_unlock(&the_lock);
}

// Waits for the cloud's lock for at most a second, which lengthens the pause between two checks.
static void look_at_lock(vt_watchdog *dog) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  if (pthread_mutex_timedlock(&dog->cloud->lock, &until) == 0) {
    pthread_mutex_unlock(&dog->cloud->lock);
    dog->lock_silent_s = 0;
    return;
  }
  if (++dog->lock_silent_s >= dog->limit_s)
    end("the lock of the cloud", "has not been free", dog->limit_s);
}

static void tell_systemd(const vt_watchdog *dog) {
  static const char well[] = "WATCHDOG=1";
  if (dog->notify >= 0) (void)!write(dog->notify, well, sizeof well - 1);
}

static int open_notify(void) {
  const char *path = getenv("NOTIFY_SOCKET");
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  size_t size = path ? strlen(path) : 0;
  if (size < 2 || size >= sizeof to.sun_path || !getenv("WATCHDOG_USEC")) return -1;
  memcpy(to.sun_path, path, size);
  if (*path == '@') to.sun_path[0] = 0;
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&to, length) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static void *watch(void *argument) {
  vt_watchdog *dog = argument;
  pthread_mutex_lock(&dog->lock);
  while (!dog->stop) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec++;
    int rc = pthread_cond_timedwait(&dog->wake, &dog->lock, &at);
    if (dog->stop || rc != ETIMEDOUT) continue;
    if (dog->left_s && --dog->left_s == 0) end("the daemon", "has been told to end", dog->end_s);
    if (!dog->limit_s) continue;
    look_at_beats(dog);
    if (dog->cloud) look_at_lock(dog);
    tell_systemd(dog);
  }
  pthread_mutex_unlock(&dog->lock);
  return NULL;
}

vt_status vt_watchdog_start(vt_cloud *cloud, int64_t limit_s, vt_watchdog **out_dog) {
  vt_watchdog *dog = calloc(1, sizeof *dog);
  pthread_condattr_t monotonic;
  *out_dog = NULL;
  if (!dog) return vt_error_no_memory();
  dog->cloud = cloud;
  dog->limit_s = limit_s;
  dog->notify = open_notify();
  pthread_mutex_init(&dog->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&dog->wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  int rc = pthread_create(&dog->thread, NULL, watch, dog);
  if (rc == 0) {
    *out_dog = dog;
    return VT_OK;
  }
  if (dog->notify >= 0) close(dog->notify);
  free(dog);
  return vt_error(VT_INTERNAL, "no thread to watch the others: %s", strerror(rc));
}

void vt_watchdog_end_within(vt_watchdog *dog, int seconds) {
  if (!dog) return;
  pthread_mutex_lock(&dog->lock);
  if (!dog->left_s) dog->end_s = dog->left_s = seconds;
  pthread_mutex_unlock(&dog->lock);
}

void vt_watchdog_forget_cloud(vt_watchdog *dog) {
  if (!dog) return;
  pthread_mutex_lock(&dog->lock);
  dog->cloud = NULL;
  pthread_mutex_unlock(&dog->lock);
}

void vt_watchdog_stop(vt_watchdog *dog) {
  if (!dog) return;
  pthread_mutex_lock(&dog->lock);
  dog->stop = true;
  pthread_cond_broadcast(&dog->wake);
  pthread_mutex_unlock(&dog->lock);
  pthread_join(dog->thread, NULL);
  if (dog->notify >= 0) close(dog->notify);
  pthread_mutex_destroy(&dog->lock);
  pthread_cond_destroy(&dog->wake);
  free(dog);
}
