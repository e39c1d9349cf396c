// SPDX-License-Identifier: Apache-2.0
// code_cache.c - see code_cache.h. The time of use of a file is its time of modification, renewed
// when an hour old: times of access are not kept on every disk. The empty file `checked` has the
// time at which some process last looked at the size of the folder.
#include "host/code_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/map.h"

enum { HOUR = 3600, WEEK = 7 * 24 * HOUR, DEFAULT_MIB = 1024, BLOCK = 4096 };
enum { TARGET_DIGITS = 16, CODE_DIGITS = 32, NAME_SIZE = TARGET_DIGITS + CODE_DIGITS + 16 };

// ---- Names.

vt_code_path vt_code_cache_find(uint64_t target, uint32_t count, char *const *names) {
  vt_code_path path = {""};
  const char *dir = getenv("VTPU_CACHE_DIR"), *below = "";
  if (dir && !*dir) return path;
  if (!dir && (dir = getenv("XDG_CACHE_HOME")) && *dir) below = "/vtpu";
  if (!dir || !*dir) dir = getenv("HOME"), below = "/.cache/vtpu";
  if (!dir || !*dir) return path;
  uint64_t low = 1, high = 2;
  for (uint32_t i = 0; i < count; i++) {
    low = vt_hash_bytes(names[i], strlen(names[i]), low);
    high = vt_hash_bytes(names[i], strlen(names[i]), high);
  }
  int n = snprintf(path.text, sizeof path.text, "%s%s/%016llx-%016llx%016llx.o", dir, below,
                   (unsigned long long)target, (unsigned long long)low, (unsigned long long)high);
  if (n < 0 || (size_t)n >= sizeof path.text) path.text[0] = 0;
  return path;
}

// Whether a file is ours: TARGET-CODE.o, CODE.o of older builds, or either with the six characters
// that vt_file_write adds while it writes.
static bool is_object_name(const char *name, bool *out_unfinished) {
  static const char digits[] = "0123456789abcdef";
  size_t n = strspn(name, digits);
  if (n == TARGET_DIGITS && name[n] == '-') {
    name += n + 1;
    n = strspn(name, digits);
  }
  if (n != CODE_DIGITS || strncmp(name + n, ".o", 2) != 0) return false;
  const char *rest = name + n + 2;
  *out_unfinished = *rest;
  return !*rest || (*rest == '.' && strlen(rest) == 7);
}

// ---- What the folder holds.

typedef struct object_file {
  char name[NAME_SIZE];
  int64_t bytes, used; // on disk; seconds since the epoch
  bool first;          // of another target, unused for long
} object_file;
typedef struct object_files {
  object_file *data;
  size_t size, capacity;
} object_files;

static int by_worth(const void *a, const void *b) {
  const object_file *x = a, *y = b;
  if (x->first != y->first) return x->first ? -1 : 1;
  return x->used < y->used ? -1 : x->used > y->used;
}

static bool add_file(object_files *files, const object_file *file) {
  if (files->size == files->capacity) {
    size_t capacity = files->capacity ? 2 * files->capacity : 256;
    object_file *data = realloc(files->data, capacity * sizeof *data);
    if (!data) return false;
    files->data = data;
    files->capacity = capacity;
  }
  files->data[files->size++] = *file;
  return true;
}

// Reads the folder. Removes what a process that ended early left unfinished.
static object_files list_objects(int folder, DIR *entries, const char *target) {
  object_files files = {0};
  int64_t now = time(NULL);
  for (struct dirent *entry; (entry = readdir(entries));) {
    bool unfinished;
    struct stat info;
    if (!is_object_name(entry->d_name, &unfinished)) continue;
    if (fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode))
      continue; // gone
    int64_t unused = now - info.st_mtim.tv_sec;
    if (unfinished) {
      if (unused > HOUR) unlinkat(folder, entry->d_name, 0);
      continue;
    }
    object_file file = {.bytes = (info.st_size + BLOCK - 1) / BLOCK * BLOCK,
                        .used = info.st_mtim.tv_sec,
                        .first = unused > WEEK && strncmp(entry->d_name, target, TARGET_DIGITS)};
    memcpy(file.name, entry->d_name, strlen(entry->d_name) + 1); // is_object_name: it fits
    if (!add_file(&files, &file)) break; // no memory: the rest is as good as new
  }
  return files;
}

static void remove_beyond(int folder, object_files *files, int64_t limit) {
  int64_t total = 0, removed = 0;
  for (size_t i = 0; i < files->size; i++) total += files->data[i].bytes;
  if (total <= limit) return;
  qsort(files->data, files->size, sizeof *files->data, by_worth);
  for (size_t i = 0; i < files->size && total > limit / 4 * 3; i++) {
    unlinkat(folder, files->data[i].name, 0); // another process may have been faster
    total -= files->data[i].bytes;
    removed++;
  }
  vt_log(VT_LOG_INFO, "code cache: removed %lld files, %lld bytes are left", (long long)removed,
         (long long)total);
}

// ---- When to look.

static int64_t limit_bytes(void) {
  const char *text = getenv("VTPU_CACHE_MIB");
  char *end;
  long long mib = text && *text ? strtoll(text, &end, 10) : DEFAULT_MIB;
  if (text && *text && (*end || mib < 0)) mib = DEFAULT_MIB;
  return mib > INT64_MAX >> 20 ? INT64_MAX : (int64_t)mib << 20;
}

// True once an hour, for one process.
static bool is_time(int folder) {
  struct stat info;
  if (!fstatat(folder, "checked", &info, 0) && time(NULL) - info.st_mtim.tv_sec < HOUR)
    return false;
  int fd = openat(folder, "checked", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  futimens(fd, NULL);
  close(fd);
  return true;
}

static void trim(const vt_code_path *path, size_t added) {
  static _Atomic int64_t unchecked; // bytes that this process has added since it looked
  vt_code_path folder_path = *path;
  char *name = strrchr(folder_path.text, '/');
  int64_t limit = limit_bytes();
  bool many = atomic_fetch_add(&unchecked, (int64_t)added + BLOCK) > limit / 16;
  *name = 0;
  DIR *entries = opendir(folder_path.text);
  if (!entries) return;
  if (is_time(dirfd(entries)) || many) {
    atomic_store(&unchecked, 0);
    object_files files = list_objects(dirfd(entries), entries, name + 1);
    remove_beyond(dirfd(entries), &files, limit);
    free(files.data);
  }
  closedir(entries);
}

// ---- Files.

static bool make_folders(const vt_code_path *path) {
  vt_code_path folder = *path;
  for (char *p = folder.text + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    bool failed = mkdir(folder.text, 0700) && errno != EEXIST;
    *p = '/';
    if (failed) return false;
  }
  return true;
}

bool vt_code_cache_load(const vt_code_path *path, vt_bytes *out_bytes) {
  struct stat info;
  if (!path->text[0] || stat(path->text, &info)) return false;
  vt_status st = vt_file_map(path->text, out_bytes);
  if (!st && time(NULL) - info.st_mtim.tv_sec > HOUR) utimensat(AT_FDCWD, path->text, NULL, 0);
  vt_status_free(st);
  return !st;
}

void vt_code_cache_save(const vt_code_path *path, const void *bytes, size_t size) {
  if (!path->text[0] || !make_folders(path)) return;
  vt_status st = vt_file_write(path->text, bytes, size);
  if (st)
    vt_log(VT_LOG_INFO, "code cache: %s", vt_status_message(st));
  else
    trim(path, size);
  vt_status_free(st);
}
