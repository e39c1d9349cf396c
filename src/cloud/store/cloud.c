// SPDX-License-Identifier: Apache-2.0
// cloud.c - see cloud.h: the lock on a state folder, the clock, change notification, random names,
// audit rows.
#include "cloud/store/cloud.h"
#include "cloud/store/row.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

// A daemon that was just killed, or a process of its, may hold the lock for a moment.
static bool lock_soon(int fd) {
  const struct timespec pause = {.tv_nsec = 50000000};
  for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
    if (errno != EWOULDBLOCK || tries == 60) return false;
    nanosleep(&pause, NULL);
  }
  return true;
}

vt_status vt_cloud_lock_state(const char *state_dir, int *out_lock) {
  char path[512], text[32] = "";
  *out_lock = -1;
  snprintf(path, sizeof path, "%s/lock", state_dir);
  // With O_CREAT, opening another account's file in a sticky folder fails (sysctl
  // fs.protected_regular).
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return vt_error(VT_UNAVAILABLE, "%s: %s", path, strerror(errno));
  if (!lock_soon(fd)) {
    int error = errno;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(fd);
    if (error != EWOULDBLOCK) return vt_error(VT_UNAVAILABLE, "%s: %s", path, strerror(error));
    return vt_error(VT_UNAVAILABLE, "the state folder %s is in use by process %ld", state_dir,
                    strtol(text, NULL, 10));
  }
  int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
    // On a full disk the lock holds without the process id in the file.
    vt_log(VT_LOG_WARNING, "%s: %s", path, strerror(errno));
  }
  *out_lock = fd;
  return VT_OK;
}

int64_t vt_cloud_now(const vt_cloud *cloud) {
  if (cloud->options.virtual_time) return cloud->virtual_ns;
  return cloud->anchor_ns + cloud->options.read_clock(CLOCK_BOOTTIME) - cloud->anchor_boot_ns;
}

void vt_cloud_poke(vt_cloud *cloud) {
  cloud->poke = true;
  pthread_cond_broadcast(&cloud->wake);
  pthread_mutex_lock(&cloud->hearing);
  cloud->change++;
  for (vt_ear *ear = cloud->ears; ear; ear = ear->next) {
    const uint64_t one = 1;
    if (ear->listens) ear->listens = write(ear->fd, &one, sizeof one) != sizeof one;
  }
  pthread_mutex_unlock(&cloud->hearing);
}

void vt_cloud_add_ear(vt_cloud *cloud, vt_ear *ear) {
  pthread_mutex_lock(&cloud->hearing);
  ear->next = cloud->ears;
  cloud->ears = ear;
  pthread_mutex_unlock(&cloud->hearing);
}

void vt_cloud_remove_ear(vt_cloud *cloud, vt_ear *ear) {
  pthread_mutex_lock(&cloud->hearing);
  for (vt_ear **at = &cloud->ears; *at; at = &(*at)->next)
    if (*at == ear) {
      *at = ear->next;
      break;
    }
  pthread_mutex_unlock(&cloud->hearing);
}

uint64_t vt_cloud_hear(vt_cloud *cloud, vt_ear *ear) {
  pthread_mutex_lock(&cloud->hearing);
  ear->listens = true;
  uint64_t change = cloud->change;
  pthread_mutex_unlock(&cloud->hearing);
  return change;
}

int64_t vt_cloud_random(void) {
  uint64_t value = 0;
  if (RAND_bytes((unsigned char *)&value, sizeof value) != 1)
    abort(); // without entropy no secret is safe
  value &= (UINT64_C(1) << 62) - 1;
  return value ? (int64_t)value : 1;
}

void vt_cloud_random_hex(char *out_text, int digits) {
  for (int i = 0; i < digits; i += 8) {
    char part[9];
    snprintf(part, sizeof part, "%08llx", (unsigned long long)vt_cloud_random() & 0xffffffffu);
    int n = digits - i < 8 ? digits - i : 8;
    memcpy(out_text + i, part, (size_t)n);
  }
  out_text[digits] = 0;
}

vt_status vt_cloud_next(vt_cloud *cloud, const char *counter, int64_t *out_value) {
  VT_TRY(vt_store_run(
      cloud->store, NULL,
      "INSERT INTO counters (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = "
      "counters.value + 1",
      "s", counter));
  return vt_store_int(cloud->store, out_value, 1, "SELECT value FROM counters WHERE name = ?", "s",
                      counter);
}

vt_status vt_cloud_event(vt_cloud *cloud, const char *kind, const char *project, const char *actor,
                         const char *target, const char *detail) {
  int64_t id;
  VT_TRY(vt_cloud_next(cloud, "events", &id));
  const vt_events_row row = {.id = id,
                             .at_ns = vt_cloud_now(cloud),
                             .kind = kind,
                             .project = project,
                             .actor = actor,
                             .target = target,
                             .detail = detail};
  return vt_row_insert(cloud->store, events, &row);
}

typedef struct job {
  void (*work)(void *context);
  void *context;
} job;

static vt_status do_job(void *user) {
  const job *j = user;
  j->work(j->context);
  return VT_OK;
}

void vt_cloud_lock_for(vt_cloud *cloud, void (*work)(void *context), void *context) {
  job j = {work, context};
  vt_attempt attempt;
  pthread_mutex_lock(&cloud->lock);
  vt_status st = vt_attempt_run(&attempt, do_job, &j);
  if (st) vt_store_abandon(cloud->store);
  pthread_mutex_unlock(&cloud->lock);
  vt_attempt_end(&attempt);
  if (st) vt_memory_out(0, "a call");
}

vt_status vt_cloud_transact(vt_cloud *cloud, vt_status (*work)(vt_cloud *cloud, void *context),
                            void *context) {
  vt_status st = VT_OK;
  for (int attempt = 0; attempt < VT_CLOUD_ATTEMPTS; attempt++) {
    vt_status_free(st);
    VT_TRY(vt_store_begin(cloud->store));
    st = work(cloud, context);
    if (!st) st = vt_store_commit(cloud->store);
    if (!st) return VT_OK;
    vt_store_rollback(cloud->store);
    if (!vt_store_conflicted(cloud->store)) break;
  }
  return st;
}
