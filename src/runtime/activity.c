// SPDX-License-Identifier: Apache-2.0
// activity.c - this process's page of base/activity.h, so that its machine can tell how busy its
// chips are. Created with the first client if the directory for it exists; without it, a run costs
// one pointer test.
#include "base/activity.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/runtime_internal.h"

static _Atomic(vt_activity_page *) the_page;
static pid_t page_owner;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static char framework[64]; // "JAX=0.10.2", as the page has it

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// One word of the page's versions: special characters are replaced by a plain one.
static void put_word(char *out, size_t size, const char *word, size_t word_size) {
  size_t n = strlen(out);
  for (size_t i = 0; i < word_size && word[i] && n + 1 < size; i++)
    out[n++] = word[i] > ' ' && word[i] <= '~' && word[i] != '=' && word[i] != ',' ? word[i] : '_';
  out[n] = 0;
}

void vt_activity_framework(const char *name, size_t name_size, const char *version,
                           size_t version_size) {
  vt_lock(&opening);
  *framework = 0;
  put_word(framework, sizeof framework / 2, name, name_size);
  strcat(framework, "=");
  put_word(framework, sizeof framework, version, version_size);
  vt_unlock(&opening);
}

// This library, the framework (as it names itself, or from the variables that others set for
// libtpu), and the Python that it runs in.
static void write_versions(char out[VT_ACTIVITY_VERSIONS]) {
  const char *name = getenv("TPU_ML_PLATFORM"), *version = getenv("TPU_ML_PLATFORM_VERSION");
  void *symbol = dlsym(RTLD_DEFAULT, "Py_GetVersion");
  const char *(*python)(void);
  memcpy(&python, &symbol, sizeof python);
  snprintf(out, VT_ACTIVITY_VERSIONS, "libvtpu=%s", VTPU_VERSION);
  if (!*framework && name && *name && version) {
    put_word(framework, sizeof framework / 2, name, strlen(name));
    strcat(framework, "=");
    put_word(framework, sizeof framework, version, strlen(version));
  }
  size_t n = strlen(out);
  if (*framework) snprintf(out + n, VT_ACTIVITY_VERSIONS - n, " %s", framework);
  if (!python) return;
  n = strlen(out);
  snprintf(out + n, VT_ACTIVITY_VERSIONS - n, " python=");
  put_word(out, VT_ACTIVITY_VERSIONS, python(), strcspn(python(), " "));
}

// The file appears under its name once it is locked and has its size. The descriptor stays open:
// closing it would release the lock.
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
  if (page != MAP_FAILED) {
    vt_activity_page *made = page;
    made->magic = VT_ACTIVITY_MAGIC;
    made->opened_ns = now_ns();
    write_versions(made->versions);
  }
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
  vt_lock(&opening);
  // A forked child starts its own page; the inherited one belongs to the parent.
  if (page_owner != getpid()) {
    atomic_store(&the_page, map_page(folder));
    page_owner = getpid();
  }
  vt_activity_page *page = atomic_load(&the_page);
  uint64_t limit = (uint64_t)client->slice.chip->hbm_limit_bytes * (uint64_t)client->here_count;
  if (page && atomic_load(&page->hbm_limit) < limit) atomic_store(&page->hbm_limit, limit);
  vt_unlock(&opening);
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

uint64_t vt_activity_busy_ns(uint64_t now, bool *out_running) {
  vt_activity_page *page = atomic_load_explicit(&the_page, memory_order_relaxed);
  *out_running = page && atomic_load_explicit(&page->running, memory_order_relaxed) > 0;
  if (!page) return 0;
  uint64_t busy = atomic_load_explicit(&page->busy_ns, memory_order_relaxed);
  uint64_t since = atomic_load_explicit(&page->since_ns, memory_order_relaxed);
  return *out_running && now > since ? busy + (now - since) : busy;
}

void vt_activity_hbm(int64_t bytes) {
  vt_activity_page *page = atomic_load_explicit(&the_page, memory_order_relaxed);
  if (!page) return;
  uint64_t now = atomic_fetch_add_explicit(&page->hbm_bytes, (uint64_t)bytes, memory_order_relaxed);
  uint64_t peak = atomic_load_explicit(&page->hbm_peak, memory_order_relaxed);
  now += (uint64_t)bytes;
  while (bytes > 0 && now > peak && !atomic_compare_exchange_weak(&page->hbm_peak, &peak, now)) {
  }
}

void vt_activity_hbm_refused(int64_t bytes) {
  vt_activity_page *page = atomic_load_explicit(&the_page, memory_order_relaxed);
  if (!page) return;
  atomic_store_explicit(&page->hbm_asked, (uint64_t)bytes, memory_order_relaxed);
  atomic_fetch_add_explicit(&page->hbm_refused, 1, memory_order_relaxed);
}
