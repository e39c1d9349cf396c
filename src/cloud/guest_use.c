// SPDX-License-Identifier: Apache-2.0
// guest_use.c - inside a worker: adds up what its processes say about the chips (base/activity.h)
// and tells the metadata server when it changed, in sum and by process.
// Counters of processes that ended are kept in a file beside the folder, so that an agent that is
// started again goes on where the last one was; `epoch` names the boot that the sums began with.
// Pages are written by the users of the worker: nothing in them is believed beyond this worker.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/activity.h"
#include "cloud/guest_boot.h"

enum { MAX_PAGES = 4096, MAX_JOBS = 32, JOB_SIZE = 256 };

typedef struct sums {
  uint64_t programs, busy_ns, device_ps;             // only grow
  uint64_t processes, running, hbm_bytes, hbm_limit; // now
} sums;

// Lines about processes of the next report. Those of processes that ended wait until they are told.
static char ended_jobs[MAX_JOBS][JOB_SIZE], live_jobs[MAX_JOBS][JOB_SIZE];
static size_t ended_job_count, live_job_count;

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool read_page(const char *path, vt_activity_page *out_page, struct stat *out_info,
                      bool *out_final) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  // Not blocking: the name may be a fifo of somebody who wants to hold us up.
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool good = fstat(fd, out_info) == 0 && S_ISREG(out_info->st_mode) &&
              out_info->st_size == (off_t)sizeof *out_page && fcntl(fd, F_GETLK, &lock) == 0 &&
              read(fd, out_page, sizeof *out_page) == (ssize_t)sizeof *out_page &&
              out_page->magic == VT_ACTIVITY_MAGIC;
  *out_final = good && lock.l_type == F_UNLCK;
  close(fd);
  return good;
}

static void add_page(sums *s, const vt_activity_page *page, bool final) {
  uint64_t now = clock_ns(), since = page->since_ns;
  s->programs += page->programs;
  s->busy_ns += page->busy_ns;
  s->device_ps += page->device_ps;
  if (final) return;
  s->processes++;
  s->hbm_bytes += page->hbm_bytes;
  s->hbm_limit = page->hbm_limit > s->hbm_limit ? page->hbm_limit : s->hbm_limit;
  if (!page->running) return;
  s->running++;
  if (since && since < now) s->busy_ns += now - since; // of the run that is not over yet
}

// What the process calls itself; "" when it has gone. It is looked at as the owner of the page:
// /proc hides the processes of others, also from us, and no page shows what its owner may not see.
static void read_name(const char *pid, const struct stat *owner, char out_name[97]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
  setfsgid(owner->st_gid);
  setfsuid(owner->st_uid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, out_name, 96);
  if (fd >= 0) close(fd);
  setfsuid(geteuid());
  setfsgid(getegid());
  for (ssize_t i = 0; i < n; i++)
    if (out_name[i] < ' ' || out_name[i] > '~') out_name[i] = ' ';
  out_name[n > 0 ? n : 0] = 0;
}

static void put_job(const char *pid, const vt_activity_page *page, const struct stat *owner,
                    bool final) {
  char name[97] = "", *to;
  sums own = {0};
  add_page(&own, page, final);
  if (!own.programs && !own.running) return;
  if (final ? ended_job_count == MAX_JOBS : live_job_count == MAX_JOBS) return;
  to = final ? ended_jobs[ended_job_count++] : live_jobs[live_job_count++];
  if (!final) read_name(pid, owner, name);
  snprintf(to, JOB_SIZE, "job %.20s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %s\n", pid,
           own.programs, own.busy_ns, own.device_ps / 1000, final ? 0 : own.hbm_bytes, final, name);
}

static void kept_path(const char *folder, char out_path[600]) {
  snprintf(out_path, 600, "%s.ended", folder);
}

static void read_kept(const char *folder, sums *out_sums) {
  char path[600], text[128] = "";
  kept_path(folder, path);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  *out_sums = (sums){0};
  (void)sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &out_sums->programs, &out_sums->busy_ns,
               &out_sums->device_ps);
}

// Adds the pages up. Those of processes that ended move into the kept sums and go.
static bool scan(const char *folder, sums *out_sums) {
  static char ended[MAX_PAGES][24];
  char path[600], text[128];
  sums kept;
  size_t ended_count = 0, pages = 0;
  read_kept(folder, &kept);
  DIR *dir = opendir(folder);
  if (!dir) return false;
  sums live = {0};
  live_job_count = 0;
  for (struct dirent *e; pages < MAX_PAGES && (e = readdir(dir));) {
    vt_activity_page page;
    struct stat info;
    bool final;
    if (*e->d_name < '1' || *e->d_name > '9' || strlen(e->d_name) > 20) continue;
    pages++;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (!read_page(path, &page, &info, &final)) continue;
    add_page(final ? &kept : &live, &page, final);
    put_job(e->d_name, &page, &info, final);
    if (final) strcpy(ended[ended_count++], e->d_name);
  }
  if (ended_count) {
    kept_path(folder, path);
    snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", kept.programs,
             kept.busy_ns, kept.device_ps);
    vt_boot_write(path, text, 0644);
  }
  for (size_t i = 0; i < ended_count; i++) unlinkat(dirfd(dir), ended[i], 0);
  closedir(dir);
  live.programs += kept.programs;
  live.busy_ns += kept.busy_ns;
  live.device_ps += kept.device_ps;
  *out_sums = live;
  return true;
}

// When this boot began, as its first process wrote it.
static bool read_epoch(const char *folder, char out_epoch[24]) {
  char path[600];
  snprintf(path, sizeof path, "%s.epoch", folder);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  ssize_t n = fd < 0 ? -1 : read(fd, out_epoch, 23);
  if (fd >= 0) close(fd);
  out_epoch[n > 0 ? n : 0] = 0;
  out_epoch[strspn(out_epoch, "0123456789")] = 0;
  return *out_epoch != 0;
}

void vt_boot_use(const char *server, const char *folder) {
  static sums told;
  static char unused[256];
  static bool ever;
  static char body[512 + 2 * MAX_JOBS * JOB_SIZE];
  char tag[32];
  char epoch[24];
  sums now;
  if (!read_epoch(folder, epoch) || !scan(folder, &now)) return;
  // A worker whose chips nobody uses says nothing.
  if (!now.running && memcmp(&now, &told, sizeof now) == 0 && (ever || !now.programs)) return;
  size_t n = (size_t)snprintf(body, 512,
                              "epoch %.18s\nprograms %" PRIu64 "\nbusy_ns %" PRIu64
                              "\ndevice_ns %" PRIu64 "\nprocesses %" PRIu64 "\nrunning %" PRIu64
                              "\nhbm_bytes %" PRIu64 "\nhbm_limit %" PRIu64 "\n",
                              epoch, now.programs, now.busy_ns, now.device_ps / 1000, now.processes,
                              now.running, now.hbm_bytes, now.hbm_limit);
  for (size_t i = 0; i < ended_job_count + live_job_count; i++)
    n += (size_t)snprintf(body + n, sizeof body - n, "%s",
                          i < ended_job_count ? ended_jobs[i] : live_jobs[i - ended_job_count]);
  if (!vt_boot_metadata(server, "/computeMetadata/v1/vtpu/use", body, unused, sizeof unused, tag))
    return;
  told = now;
  ended_job_count = 0;
  ever = true;
}
