// SPDX-License-Identifier: Apache-2.0
// release.c - inside a worker: ends processes that have the chips, at the request of somebody who
// may change the node. SIGTERM, and SIGKILL if the process still exists five seconds later.
//
// The process is the one the kernel names as the holder of a page's lock, signalled through a
// pidfd, so that neither a page's name nor a reused pid leads to another one. The signal is sent
// with the rights of the page's owner: a page cannot end somebody else's process.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/activity.h"
#include "cloud/worker/boot.h"

enum { MAX_ENDING = 64, PATIENCE_S = 5 };

typedef struct ending {
  long pid;
  unsigned long long opened_ns;
  int process; // descriptor
  unsigned owner;
  time_t since;
  bool killed;
} ending;

static ending endings[MAX_ENDING];
static size_t ending_count;

static time_t clock_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// Whether `pid` holds the page opened at that time; its owner.
static bool holds(const char *path, long pid, unsigned long long opened_ns, unsigned *out_owner) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  vt_activity_page page;
  struct stat info;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
              read(fd, &page, sizeof page) == (ssize_t)sizeof page &&
              page.magic == VT_ACTIVITY_MAGIC && page.opened_ns == opened_ns &&
              fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid == pid;
  close(fd);
  *out_owner = info.st_uid;
  return good;
}

static bool find(const char *folder, long pid, unsigned long long opened_ns, char out_path[900],
                 unsigned *out_owner) {
  bool found = false;
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && !found && (e = readdir(dir));) {
    if (*e->d_name < '1' || *e->d_name > '9') continue;
    snprintf(out_path, 900, "%s/%s", folder, e->d_name);
    found = holds(out_path, pid, opened_ns, out_owner);
  }
  if (dir) closedir(dir);
  return found;
}

// Sends the signal with the owner's rights.
static int signal_as(int process, unsigned owner, int number) {
  uid_t own = geteuid();
  if (own == 0 && owner != 0 && setresuid(owner, owner, 0) != 0) return -1;
  int done = (int)syscall(SYS_pidfd_send_signal, process, number, NULL, 0), error = errno;
  if (own == 0 && owner != 0 && setresuid(0, 0, 0) != 0) _exit(1);
  errno = error;
  return done;
}

const char *vt_boot_release(const char *folder, unsigned uid_base, long pid,
                            unsigned long long opened_ns) {
  char path[900];
  unsigned owner, again;
  for (size_t i = 0; i < ending_count; i++)
    if (endings[i].pid == pid && endings[i].opened_ns == opened_ns) return NULL; // requested twice
  if (ending_count == MAX_ENDING) return "too many at once";
  if (!find(folder, pid, opened_ns, path, &owner)) return NULL; // it has ended
  // At level 1 ids are the host's: only this worker's are allowed.
  if (uid_base && geteuid() == 0 && owner - uid_base >= 65536)
    return "its user is not of this worker";
  int process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
  if (process < 0) return errno == ESRCH ? NULL : strerror(errno);
  // Still the same process, now that the descriptor refers to it.
  if (!holds(path, pid, opened_ns, &again) || again != owner) {
    close(process);
    return NULL;
  }
  if (signal_as(process, owner, SIGTERM) != 0) {
    const char *why = strerror(errno);
    close(process);
    return why;
  }
  endings[ending_count++] = (ending){pid, opened_ns, process, owner, clock_s(), false};
  return "";
}

bool vt_boot_release_step(void) {
  bool ended = false;
  for (size_t i = 0; i < ending_count;) {
    ending *e = &endings[i];
    struct pollfd gone = {.fd = e->process, .events = POLLIN};
    if (poll(&gone, 1, 0) > 0) {
      close(e->process);
      *e = endings[--ending_count];
      ended = true;
      continue;
    }
    if (!e->killed && clock_s() - e->since >= PATIENCE_S)
      e->killed = signal_as(e->process, e->owner, SIGKILL) == 0;
    i++;
  }
  return ended;
}
