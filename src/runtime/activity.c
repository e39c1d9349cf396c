// SPDX-License-Identifier: Apache-2.0
// activity.c - this process's page of base/activity.h, so that the machine it runs on can say how
// busy its chips are. Made with the first client when there is a folder for it; without one, a run
// costs one test of a pointer.
#include "base/activity.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/runtime_internal.h"

static _Atomic(vt_activity_page *) the_page;
static pid_t page_owner;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The file appears under its name once it is locked and has its size. The descriptor stays open:
// closing it would give the lock back.
static vt_activity_page *map_page(const char *folder) {
  char path[512], hidden[512];
  int n = snprintf(path, sizeof path, "%s/%ld", folder, (long)getpid());
  snprintf(hidden, sizeof hidden, "%s/.%ld", folder, (long)getpid());
  if (n >= (int)sizeof hidden - 1) return NULL;
  int fd = open(hidden, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return NULL;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  void *page = MAP_FAILED;
  if (ftruncate(fd, sizeof(vt_activity_page)) == 0 && fcntl(fd, F_SETLK, &lock) == 0)
    page = mmap(NULL, sizeof(vt_activity_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) ((vt_activity_page *)page)->magic = VT_ACTIVITY_MAGIC;
  if (page != MAP_FAILED && rename(hidden, path) == 0) return page;
  if (page != MAP_FAILED) munmap(page, sizeof(vt_activity_page));
  unlink(hidden);
  close(fd);
  return NULL;
}

void vt_activity_open(const vt_client *client) {
  const char *folder = getenv("VTPU_ACTIVITY");
  if (!folder) folder = VT_ACTIVITY_FOLDER;
  if (!*folder || access(folder, W_OK) != 0) return;
  pthread_mutex_lock(&opening);
  // A forked child begins a page of its own; that of its parent is the parent's.
  if (page_owner != getpid()) {
    atomic_store(&the_page, map_page(folder));
    page_owner = getpid();
  }
  vt_activity_page *page = atomic_load(&the_page);
  uint64_t limit = (uint64_t)client->slice.chip->hbm_limit_bytes * (uint64_t)client->device_count;
  if (page && atomic_load(&page->hbm_limit) < limit) atomic_store(&page->hbm_limit, limit);
  pthread_mutex_unlock(&opening);
}

uint64_t vt_activity_begin(void) {
  vt_activity_page *page = atomic_load_explicit(&the_page, memory_order_relaxed);
  if (!page) return 0;
  uint64_t now = now_ns();
  atomic_store_explicit(&page->since_ns, now, memory_order_relaxed);
  atomic_fetch_add_explicit(&page->running, 1, memory_order_relaxed);
  return now;
}

void vt_activity_end(uint64_t begun, double device_seconds) {
  vt_activity_page *page = atomic_load_explicit(&the_page, memory_order_relaxed);
  if (!begun || !page) return;
  atomic_fetch_add_explicit(&page->busy_ns, now_ns() - begun, memory_order_relaxed);
  atomic_fetch_add_explicit(&page->device_ps, (uint64_t)(device_seconds * 1e12 + 0.5),
                            memory_order_relaxed);
  atomic_fetch_add_explicit(&page->programs, 1, memory_order_relaxed);
  atomic_fetch_sub_explicit(&page->running, 1, memory_order_relaxed);
}

void vt_activity_hbm(int64_t bytes) {
  vt_activity_page *page = atomic_load_explicit(&the_page, memory_order_relaxed);
  if (page) atomic_fetch_add_explicit(&page->hbm_bytes, (uint64_t)bytes, memory_order_relaxed);
}
