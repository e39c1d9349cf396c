// SPDX-License-Identifier: Apache-2.0
// clean.c - see clean.h. A worker is identified by the process that its folder names; its processes
// are its first ones, their descendants, and, while these live, all processes with ids in its
// range.
#include "cloud/control/clean.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "cloud/store/cloud.h"
#include "cloud/worker/helper_client.h"
#include "cloud/worker/network.h"
#include "cloud/worker/process.h"

enum { ROUNDS = 100, IDS = 65536 }; // for killing; ids per worker

// --- processes -----------------------------------------------------------------------------------

// The owner of the folder created the workers: root, or the account of an unprivileged daemon.
typedef struct worker {
  const char *folder;
  uid_t owner;
} worker;

typedef struct process {
  vt_process is;
  bool ours;
} process;
typedef VT_ARRAY(process) processes;

static void list_processes(processes *out) {
  DIR *dir = opendir("/proc");
  process p = {0};
  out->size = 0;
  for (struct dirent *e; dir && (e = readdir(dir));)
    if (isdigit((unsigned char)*e->d_name) && vt_process_read(atoi(e->d_name), &p.is))
      vt_array_push(out, p);
  if (dir) closedir(dir);
}

// Marks the process named in a file of a worker's folder, if it lives. A file written by root may
// name any process, one written by an account only the account's own.
static bool mark_named(processes *all, const worker *w, const char *name) {
  char path[1000];
  vt_process named;
  snprintf(path, sizeof path, "%s/%s", w->folder, name);
  if (!vt_process_named(path, &named) || (w->owner != 0 && named.uid != w->owner)) return false;
  for (size_t i = 0; i < all->size; i++)
    if (all->data[i].is.pid == named.pid && all->data[i].is.start == named.start)
      return all->data[i].ours = true;
  return false;
}

static void mark_descendants(processes *all) {
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < all->size; i++)
      for (size_t k = 0; !all->data[i].ours && k < all->size; k++)
        if (all->data[k].ours && all->data[k].is.pid == all->data[i].is.parent)
          more = all->data[i].ours = true;
  }
}

// A live worker's ids are exclusive to it, because its address is, too. Only root assigns them.
static void mark_ids(processes *all, const worker *w) {
  char path[1000], line[512];
  unsigned base = 0;
  snprintf(path, sizeof path, "%s/spec", w->folder);
  FILE *file = w->owner == 0 ? fopen(path, "re") : NULL;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "uid_base=%u", &base) == 1) break;
  if (file) fclose(file);
  for (size_t i = 0; base >= 16u * IDS && i < all->size; i++)
    all->data[i].ours |= all->data[i].is.uid - base < IDS;
}

// Ends the processes of one worker; returns how many there were.
static size_t end_worker(const worker *w) {
  processes all = {0};
  struct timespec pause = {.tv_nsec = 20000000};
  size_t ended = 0;
  for (int round = 0; round < ROUNDS; round++) {
    size_t count = 0;
    list_processes(&all);
    bool launcher = mark_named(&all, w, "launcher"), first = mark_named(&all, w, "pid");
    if (!launcher && !first && !round) break;
    if (!round && first) mark_ids(&all, w);
    mark_descendants(&all);
    for (size_t i = 0; i < all.size; i++)
      if (all.data[i].ours && all.data[i].is.pid != getpid()) {
        count++;
        kill(all.data[i].is.pid, SIGKILL);
      }
    if (!round) ended = count;
    if (!count) break;
    nanosleep(&pause, NULL);
  }
  vt_array_free(&all);
  return ended;
}

// --- what they leave -----------------------------------------------------------------------------

// Mounts below a folder, the last one first.
static size_t unmount_below(const char *folder) {
  char line[4096], at[2048];
  VT_ARRAY(char *) places = {0};
  size_t size = strlen(folder), count = 0;
  FILE *file = fopen("/proc/self/mountinfo", "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "%*d %*d %*s %*s %2047s", at) == 1 && strncmp(at, folder, size) == 0 &&
        at[size] == '/')
      vt_array_push(&places, strdup(at));
  if (file) fclose(file);
  for (size_t i = places.size; i-- > 0;) {
    count += umount2(places.data[i], MNT_DETACH | UMOUNT_NOFOLLOW) == 0;
    free(places.data[i]);
  }
  vt_array_free(&places);
  return count;
}

// Removes control groups of workers whose first process is gone; one with a process in it stays.
static size_t remove_groups(void) {
  static const char *const patterns[] = {"/sys/fs/cgroup/vtpu/*", "/sys/fs/cgroup/*/vtpu/*",
                                         "/sys/fs/cgroup/*/*/vtpu/*",
                                         "/sys/fs/cgroup/*/*/*/vtpu/*"};
  size_t count = 0;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    glob_t found = {0};
    if (glob(patterns[i], GLOB_ONLYDIR, NULL, &found) == 0)
      for (size_t k = 0; k < found.gl_pathc; k++) {
        int pid = atoi(strrchr(found.gl_pathv[k], '/') + 1);
        if (pid > 1 && kill(pid, 0) != 0 && errno == ESRCH) count += rmdir(found.gl_pathv[k]) == 0;
      }
    globfree(&found);
  }
  return count;
}

static bool remove_tree(const char *path) {
  return vt_net_run((const char *const[]){"rm", "-rf", "--one-file-system", path, NULL}) == 0;
}

// --- clouds --------------------------------------------------------------------------------------

// Everything of a cloud that is not running; `whole`: with its folder.
static void clean_one(const char *state_dir, bool whole) {
  char guests[600], path[900], tag[8];
  size_t workers = 0, ended = 0;
  snprintf(guests, sizeof guests, "%s/guests", state_dir);
  // Processes are ended only for callers who have the right to end them.
  struct stat info;
  int folder = open(guests, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  bool trusted =
      folder >= 0 && fstat(folder, &info) == 0 && (geteuid() == 0 || info.st_uid == geteuid());
  DIR *dir = trusted ? fdopendir(folder) : NULL;
  if (!dir && folder >= 0) close(folder);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    long long uid, number;
    if (sscanf(e->d_name, "%lld-%lld", &uid, &number) != 2) continue;
    snprintf(path, sizeof path, "%s/%s", guests, e->d_name);
    size_t count = end_worker(&(worker){path, info.st_uid});
    ended += count;
    workers += count > 0;
  }
  if (dir) closedir(dir);
  size_t mounts = unmount_below(state_dir);
  vt_helper_tag(state_dir, tag);
  if (geteuid() == 0 && vt_net_sweep(tag, true) && !vt_net_metadata_served()) vt_net_leave();
  if (folder >= 0 && !trusted)
    printf("vtpud: %s belongs to somebody else: its workers are left alone\n", guests);
  printf("vtpud: %s: ended %zu processes of %zu workers, removed %zu mounts and its networks",
         state_dir, ended, workers, mounts);
  if (whole) printf(remove_tree(state_dir) ? " and the folder" : "; the folder is still there");
  puts("");
}

static vt_status clean_state(const char *folder, bool whole) {
  char path[600], *state_dir = realpath(folder, NULL); // its mounts appear under this name
  int lock;
  vt_status st = VT_OK;
  snprintf(path, sizeof path, "%s/lock", folder);
  if (!state_dir || access(path, F_OK) != 0)
    st = vt_error(VT_FAILED_PRECONDITION, "%s is not the state of a cloud of this version", folder);
  else
    st = vt_status_wrap(vt_cloud_lock_state(state_dir, &lock), "nothing is removed");
  if (!st) {
    clean_one(state_dir, whole);
    close(lock);
  }
  free(state_dir);
  return st;
}

vt_status vt_clean(const char *state_dir) {
  glob_t found = {0};
  vt_status st = VT_OK;
  if (*state_dir) {
    st = clean_state(state_dir, false);
  } else if (glob("/tmp/vtpud-??????", GLOB_ONLYDIR, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++) {
      struct stat info;
      // Folders of others are theirs to clean.
      if (lstat(found.gl_pathv[i], &info) != 0 || !S_ISDIR(info.st_mode) ||
          info.st_uid != geteuid())
        continue;
      vt_status one = clean_state(found.gl_pathv[i], true);
      if (one) printf("vtpud: %s\n", vt_status_message(one));
      vt_status_free(one);
    }
  }
  globfree(&found);
  size_t groups = st ? 0 : remove_groups();
  if (groups) printf("vtpud: removed %zu control groups\n", groups);
  return st;
}
