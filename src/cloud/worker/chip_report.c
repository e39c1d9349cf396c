// SPDX-License-Identifier: Apache-2.0
// chip_report.c - inside a worker: sums up what its processes say about the chips (base/activity.h)
// and reports changes to the metadata server, in total and by process; also which processes have
// the chips open. A holder is whoever the kernel names as the owner of the page's lock: an ended
// process holds nothing, however it ended. Counters of ended processes are kept in a file beside
// the folder, so that a restarted agent continues from them; `epoch` names the boot that the sums
// began with. The worker's users write the pages, so they are trusted only within this worker.
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
#include "cloud/worker/boot.h"

enum { MAX_PAGES = 4096, MAX_JOBS = 32, MAX_HOLDERS = 32, LINE = 320 };

typedef struct sums {
  uint64_t programs, busy_ns, device_ps;             // only grow
  uint64_t processes, running, hbm_bytes, hbm_limit; // now
  uint64_t holders;                                  // changes with the holders of the chips
  uint64_t longest_ns;                               // of the current runs
} sums;

// A page and the kernel's data about its file.
typedef struct found {
  vt_activity_page page;
  struct stat info;
  long pid; // of the holder of its lock
  bool final;
} found;

// Lines about processes for the next report. Those of ended processes are kept until they are sent.
static char ended_jobs[MAX_JOBS][LINE], live_jobs[MAX_JOBS][LINE], holders[MAX_HOLDERS][LINE];
static size_t ended_job_count, live_job_count, holder_count;

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool read_page(const char *path, found *out) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  // Non-blocking: the name may be a fifo made to block us.
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool good = fstat(fd, &out->info) == 0 && S_ISREG(out->info.st_mode) &&
              out->info.st_size == (off_t)sizeof out->page && fcntl(fd, F_GETLK, &lock) == 0 &&
              read(fd, &out->page, sizeof out->page) == (ssize_t)sizeof out->page &&
              out->page.magic == VT_ACTIVITY_MAGIC;
  out->final = good && lock.l_type == F_UNLCK;
  out->pid = lock.l_pid;
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
  if (!since || since >= now) return;
  s->busy_ns += now - since; // of the current run
  if (now - since > s->longest_ns) s->longest_ns = now - since;
}

// The process's own name; "" when it has ended. Read as the owner of the page: /proc hides other
// users' processes, even from us, and a page must not reveal what its owner may not see.
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

static void put_job(const char *pid, const found *f) {
  char name[97] = "", *to;
  sums own = {0};
  add_page(&own, &f->page, f->final);
  if (!own.programs && !own.running) return;
  if (f->final ? ended_job_count == MAX_JOBS : live_job_count == MAX_JOBS) return;
  to = f->final ? ended_jobs[ended_job_count++] : live_jobs[live_job_count++];
  if (!f->final) read_name(pid, &f->info, name);
  snprintf(to, LINE, "job %.20s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %s\n", pid,
           own.programs, own.busy_ns, own.device_ps / 1000, f->final ? 0 : own.hbm_bytes, f->final,
           name);
}

// The name of an account in a passwd file.
static void read_user(const char *passwd, unsigned uid, char out_name[40]) {
  static char line[1024];
  snprintf(out_name, 40, "uid-%u", uid);
  FILE *file = fopen(passwd, "re");
  while (file && fgets(line, sizeof line, file)) {
    size_t name = strcspn(line, ":");
    const char *id = line[name] ? strchr(line + name + 1, ':') : NULL;
    if (!id || name == 0 || name > 39 || strtoul(id + 1, NULL, 10) != uid) continue;
    line[name] = 0;
    snprintf(out_name, 40, "%.39s", line);
    break;
  }
  if (file) fclose(file);
  for (char *p = out_name; *p; p++)
    if (*p <= ' ' || *p > '~') *p = '?';
}

static void put_holder(const char *passwd, const found *f, sums *s) {
  char user[40], versions[VT_ACTIVITY_VERSIONS], name[97], pid[24];
  uint64_t now = clock_ns(), opened = f->page.opened_ns;
  s->holders += (uint64_t)f->pid * UINT64_C(1000003) + opened;
  if (holder_count == MAX_HOLDERS) return;
  snprintf(pid, sizeof pid, "%ld", f->pid);
  snprintf(versions, sizeof versions, "%.*s", VT_ACTIVITY_VERSIONS - 1, f->page.versions);
  for (char *p = versions; *p; p++)
    if (*p <= ' ' || *p > '~') *p = ',';
  read_user(passwd, f->info.st_uid, user);
  read_name(pid, &f->info, name);
  snprintf(holders[holder_count++], LINE, "holder %s %" PRIu64 " %" PRIu64 " %s %s %s\n", pid,
           opened, opened < now ? now - opened : 0, user, *versions ? versions : "-", name);
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

// An allocation did not fit into HBM since the last look at this page.
static void check_hbm(const char *passwd, const found *f) {
  static struct {
    uint64_t opened_ns, refused;
  } seen[64];
  size_t slot = 0, slots = sizeof seen / sizeof *seen, unused = slots;
  char user[40];
  uint64_t asked = f->page.hbm_asked;
  if (!f->page.hbm_refused) return;
  for (; slot < slots && (!seen[slot].refused || seen[slot].opened_ns != f->page.opened_ns); slot++)
    if (!seen[slot].refused) unused = slot;
  bool known = slot < slots;
  if (!known && unused == slots) return;
  if (!known || seen[slot].refused < f->page.hbm_refused) {
    read_user(passwd, f->info.st_uid, user);
    vt_boot_symptom("HBM_OUT_OF_MEMORY", "a program of %s asked for %.2f GiB that do not fit", user,
                    (double)asked / (1 << 30));
  }
  slot = known ? slot : unused;
  seen[slot].opened_ns = f->page.opened_ns;
  seen[slot].refused = f->final ? 0 : f->page.hbm_refused;
}

// Sums the pages. Those of ended processes move to the kept sums and are removed.
static bool scan(const char *folder, const char *passwd, sums *out_sums) {
  static char ended[MAX_PAGES][24];
  char path[600], text[128];
  sums kept;
  size_t ended_count = 0, pages = 0;
  read_kept(folder, &kept);
  DIR *dir = opendir(folder);
  if (!dir) return false;
  sums live = {0};
  live_job_count = holder_count = 0;
  for (struct dirent *e; pages < MAX_PAGES && (e = readdir(dir));) {
    found f;
    if (*e->d_name < '1' || *e->d_name > '9' || strlen(e->d_name) > 20) continue;
    pages++;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (!read_page(path, &f)) continue;
    add_page(f.final ? &kept : &live, &f.page, f.final);
    put_job(e->d_name, &f);
    check_hbm(passwd, &f);
    if (f.final)
      strcpy(ended[ended_count++], e->d_name);
    else
      put_holder(passwd, &f, &live);
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

// When this boot began, as written by its first process.
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

void vt_boot_report_chips(const char *server, const char *folder, const char *passwd) {
  static sums told;
  static char unused[256];
  static char body[512 + (2 * MAX_JOBS + MAX_HOLDERS) * LINE];
  char tag[32];
  char epoch[24];
  sums now;
  if (!read_epoch(folder, epoch) || !scan(folder, passwd, &now)) return;
  // A worker with unused chips sends no report.
  if (!now.running && memcmp(&now, &told, sizeof now) == 0) return;
  size_t n =
      (size_t)snprintf(body, 512,
                       "epoch %.18s\nprograms %" PRIu64 "\nbusy_ns %" PRIu64 "\ndevice_ns %" PRIu64
                       "\nprocesses %" PRIu64 "\nrunning %" PRIu64 "\nhbm_bytes %" PRIu64
                       "\nhbm_limit %" PRIu64 "\nlongest_ns %" PRIu64 "\n",
                       epoch, now.programs, now.busy_ns, now.device_ps / 1000, now.processes,
                       now.running, now.hbm_bytes, now.hbm_limit, now.longest_ns);
  for (size_t i = 0; i < ended_job_count + live_job_count; i++)
    n += (size_t)snprintf(body + n, sizeof body - n, "%s",
                          i < ended_job_count ? ended_jobs[i] : live_jobs[i - ended_job_count]);
  for (size_t i = 0; i < holder_count; i++)
    n += (size_t)snprintf(body + n, sizeof body - n, "%s", holders[i]);
  if (!vt_boot_metadata(server, "/computeMetadata/v1/vtpu/use", body, unused, sizeof unused, tag))
    return;
  told = now;
  ended_job_count = 0;
}
