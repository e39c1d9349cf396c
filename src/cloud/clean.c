// SPDX-License-Identifier: Apache-2.0
// clean.c - see clean.h. A worker is known by the pid and start time in its folder; what belongs to
// it is its first processes, their descendants, and, while these live, whoever has its range of
// ids.
#include "cloud/clean.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/map.h"
#include "cloud/cloud.h"
#include "cloud/guest_net.h"

enum { ROUNDS = 100, IDS = 65536 }; // of killing; ids of a worker

// --- processes -----------------------------------------------------------------------------------

typedef struct process {
  pid_t pid, parent;
  unsigned uid;
  unsigned long long start;
  bool ours;
} process;
typedef VT_ARRAY(process) processes;

static bool read_text(const char *path, char *out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
  if (fd >= 0) close(fd);
  out[n > 0 ? n : 0] = 0;
  return n > 0;
}

static bool read_process(const char *name, process *out) {
  char path[300], text[1024], state = 0;
  struct stat info;
  snprintf(path, sizeof path, "/proc/%s/stat", name);
  if (!isdigit((unsigned char)*name) || !read_text(path, text, sizeof text)) return false;
  const char *p = strrchr(text, ')'); // the name may hold anything
  int parent;
  if (!p ||
      sscanf(p + 1,
             " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
             &state, &parent, &out->start) != 3 ||
      state == 'Z' || state == 'X' || stat(path, &info) != 0)
    return false;
  out->pid = atoi(name);
  out->parent = parent;
  out->uid = info.st_uid;
  out->ours = false;
  return true;
}

static void list_processes(processes *out) {
  DIR *dir = opendir("/proc");
  process p;
  out->size = 0;
  for (struct dirent *e; dir && (e = readdir(dir));)
    if (read_process(e->d_name, &p)) vt_array_push(out, p);
  if (dir) closedir(dir);
}

// Marks the process that a file "pid starttime" of a worker's folder names, if it lives.
static bool mark_named(processes *all, const char *folder, const char *name) {
  char path[1000], text[64];
  int pid;
  unsigned long long start;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (!read_text(path, text, sizeof text) || sscanf(text, "%d %llu", &pid, &start) != 2 || pid <= 1)
    return false;
  for (size_t i = 0; i < all->size; i++)
    if (all->data[i].pid == pid && all->data[i].start == start) return all->data[i].ours = true;
  return false;
}

static void mark_descendants(processes *all) {
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < all->size; i++)
      for (size_t k = 0; !all->data[i].ours && k < all->size; k++)
        if (all->data[k].ours && all->data[k].pid == all->data[i].parent)
          more = all->data[i].ours = true;
  }
}

// Ids of a worker that lives are nobody else's, because it has its address, too.
static void mark_ids(processes *all, const char *folder) {
  char path[1000], line[512];
  unsigned base = 0;
  snprintf(path, sizeof path, "%s/spec", folder);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "uid_base=%u", &base) == 1) break;
  if (file) fclose(file);
  for (size_t i = 0; base >= 16u * IDS && i < all->size; i++)
    all->data[i].ours |= all->data[i].uid - base < IDS;
}

// Ends the processes of one worker; returns how many there were.
static size_t end_worker(const char *folder) {
  processes all = {0};
  struct timespec pause = {.tv_nsec = 20000000};
  size_t ended = 0;
  for (int round = 0; round < ROUNDS; round++) {
    size_t count = 0;
    list_processes(&all);
    bool launcher = mark_named(&all, folder, "launcher"), first = mark_named(&all, folder, "pid");
    if (!launcher && !first && !round) break;
    if (!round && first) mark_ids(&all, folder);
    mark_descendants(&all);
    for (size_t i = 0; i < all.size; i++)
      if (all.data[i].ours && all.data[i].pid != getpid()) {
        count++;
        kill(all.data[i].pid, SIGKILL);
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

// Control groups of workers whose first process is gone; one with a process in it does not go.
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

// All of a cloud that does not live; `whole` with its folder.
static void clean_one(const char *state_dir, bool whole) {
  char guests[600], path[900], tag[8];
  size_t workers = 0, ended = 0;
  snprintf(guests, sizeof guests, "%s/guests", state_dir);
  // What processes to end is taken from nobody but whoever may end them.
  struct stat info;
  bool trusted = lstat(guests, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
  DIR *dir = trusted ? opendir(guests) : NULL;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    long long uid, worker;
    if (sscanf(e->d_name, "%lld-%lld", &uid, &worker) != 2) continue;
    snprintf(path, sizeof path, "%s/%s", guests, e->d_name);
    size_t count = end_worker(path);
    ended += count;
    workers += count > 0;
  }
  if (dir) closedir(dir);
  size_t mounts = unmount_below(state_dir);
  // As the driver of the workers makes it.
  snprintf(tag, sizeof tag, "%04llx",
           (unsigned long long)vt_hash_bytes(state_dir, strlen(state_dir), 0) & 0xffff);
  if (geteuid() == 0) (void)vt_net_sweep(tag, true);
  printf("vtpud: %s: ended %zu processes of %zu workers, removed %zu mounts and its networks",
         state_dir, ended, workers, mounts);
  if (whole) printf(remove_tree(state_dir) ? " and the folder" : "; the folder is still there");
  puts("");
}

static vt_status clean_state(const char *state_dir, bool whole) {
  char path[600];
  int lock;
  snprintf(path, sizeof path, "%s/lock", state_dir);
  if (access(path, F_OK) != 0)
    return vt_error(VT_FAILED_PRECONDITION, "%s is not the state of a cloud of this version",
                    state_dir);
  vt_status st = vt_cloud_lock_state(state_dir, &lock);
  if (st) {
    vt_status_free(st);
    return vt_error(VT_FAILED_PRECONDITION, "the cloud of %s lives: nothing of it is removed",
                    state_dir);
  }
  clean_one(state_dir, whole);
  close(lock);
  return VT_OK;
}

static bool may_clean(uid_t owner) {
  const struct passwd *nobody = geteuid() == 0 ? getpwnam("nobody") : NULL;
  return owner == geteuid() || (nobody && owner == nobody->pw_uid);
}

vt_status vt_clean(const char *state_dir) {
  glob_t found = {0};
  vt_status st = VT_OK;
  if (*state_dir) {
    st = clean_state(state_dir, false);
  } else if (glob("/tmp/vtpud-??????", GLOB_ONLYDIR, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++) {
      struct stat info;
      // Folders of others are theirs to clean, but that a daemon without privileges was root's.
      if (lstat(found.gl_pathv[i], &info) != 0 || !S_ISDIR(info.st_mode) || !may_clean(info.st_uid))
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
