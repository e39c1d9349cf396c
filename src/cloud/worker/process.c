// SPDX-License-Identifier: Apache-2.0
// process.c - see process.h.
#include "cloud/worker/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_text(const char *path, char *out, size_t size, struct stat *info) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  ssize_t n = fd < 0 || fstat(fd, info) != 0 ? -1 : read(fd, out, size - 1);
  if (fd >= 0) close(fd);
  out[n > 0 ? n : 0] = 0;
  return n > 0;
}

bool vt_process_read(pid_t pid, vt_process *out) {
  char path[64], text[1024], state;
  struct stat info;
  int parent;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (!read_text(path, text, sizeof text, &info)) return false;
  const char *p = strrchr(text, ')'); // the name may contain anything
  if (!p ||
      sscanf(p + 1,
             " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
             &state, &parent, &out->start) != 3)
    return false;
  out->pid = pid;
  out->parent = parent;
  out->uid = info.st_uid;
  return state != 'Z' && state != 'X';
}

bool vt_process_named(const char *path, vt_process *out) {
  char text[64];
  struct stat info;
  int pid;
  unsigned long long start;
  return read_text(path, text, sizeof text, &info) && sscanf(text, "%d %llu", &pid, &start) == 2 &&
         pid > 1 && vt_process_read(pid, out) && out->start == start;
}
