// SPDX-License-Identifier: Apache-2.0
// file.c - see file.h.
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static vt_status file_error(const char *what, const char *path) {
  int cause = errno;
  vt_code code = cause == ENOENT                      ? VT_NOT_FOUND
                 : cause == EACCES || cause == EPERM  ? VT_PERMISSION_DENIED
                 : cause == ENOSPC || cause == EDQUOT ? VT_RESOURCE_EXHAUSTED
                                                      : VT_INTERNAL;
  return vt_error(code, "%s %s: %s", what, path, strerror(cause));
}

vt_status vt_file_map(const char *path, vt_bytes *out_bytes) {
  *out_bytes = (vt_bytes){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error("cannot open", path);
  struct stat info;
  vt_status st = VT_OK;
  if (fstat(fd, &info) < 0) {
    st = file_error("cannot stat", path);
  } else if (!S_ISREG(info.st_mode)) {
    st = vt_error(VT_INVALID_ARGUMENT, "%s is not a regular file", path);
  } else if (info.st_size > 0) {
    void *p = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
      st = file_error("cannot map", path);
    else
      *out_bytes = (vt_bytes){p, (size_t)info.st_size};
  }
  close(fd);
  return st;
}

void vt_file_unmap(vt_bytes *bytes) {
  if (bytes->data) munmap((void *)(uintptr_t)bytes->data, bytes->size);
  *bytes = (vt_bytes){0};
}

vt_status vt_file_write(const char *path, const void *bytes, size_t size) {
  size_t name_size = strlen(path) + 8;
  char *temporary = malloc(name_size);
  if (!temporary) return vt_error_no_memory();
  snprintf(temporary, name_size, "%s.XXXXXX", path);
  vt_status st = VT_OK;
  int fd = mkostemp(temporary, O_CLOEXEC);
  if (fd < 0) {
    st = file_error("cannot create", path);
    free(temporary);
    return st;
  }
  const char *at = bytes;
  while (!st && size) {
    ssize_t n = write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      st = file_error("cannot write", path);
    } else {
      at += n;
      size -= (size_t)n;
    }
  }
  if (!st && fchmod(fd, 0644) < 0) st = file_error("cannot set the mode of", path);
  if (close(fd) < 0 && !st) st = file_error("cannot close", path);
  if (!st && rename(temporary, path) < 0) st = file_error("cannot rename to", path);
  if (st) unlink(temporary);
  free(temporary);
  return st;
}
