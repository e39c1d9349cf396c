// SPDX-License-Identifier: Apache-2.0
// code_cache_test.c - the folder of compiled objects keeps its size, by one process and by several.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/code_cache.h"

enum { MIB = 1 << 20, OBJECT = 16 << 10, DAY = 24 * 3600 };

static char folder[] = "/tmp/vtpu-code-cache-XXXXXX";

static int begin(void **state) {
  (void)state;
  strcpy(folder + sizeof folder - 7, "XXXXXX");
  return !mkdtemp(folder) || setenv("VTPU_CACHE_DIR", folder, 1) ||
         setenv("VTPU_CACHE_MIB", "1", 1);
}

// Calls f on each file's name; returns their bytes.
static int64_t each_file(void (*f)(const char *path)) {
  int64_t total = 0;
  DIR *entries = opendir(folder);
  assert_non_null(entries);
  for (struct dirent *entry; (entry = readdir(entries));) {
    char path[512];
    struct stat info;
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (stat(path, &info)) continue;
    total += info.st_size;
    if (f) f(path);
  }
  closedir(entries);
  return total;
}

static void delete_file(const char *path) {
  unlink(path);
}

static int end(void **state) {
  (void)state;
  each_file(delete_file);
  return rmdir(folder);
}

static vt_code_path path_of(uint64_t target, int object) {
  char name[32], *names[] = {name};
  snprintf(name, sizeof name, "kernel_%d", object);
  return vt_code_cache_find(target, 1, names);
}

static void save(uint64_t target, int object) {
  char bytes[OBJECT];
  memset(bytes, object, sizeof bytes);
  vt_code_path path = path_of(target, object);
  vt_code_cache_save(&path, bytes, sizeof bytes);
}

// Whether it is there; then it is whole.
static bool load(uint64_t target, int object) {
  vt_bytes bytes;
  vt_code_path path = path_of(target, object);
  if (!vt_code_cache_load(&path, &bytes)) return false;
  assert_int_equal(bytes.size, OBJECT);
  for (size_t i = 0; i < OBJECT; i++) assert_int_equal(bytes.data[i], (uint8_t)object);
  vt_file_unmap(&bytes);
  return true;
}

static void set_age(uint64_t target, int object, int64_t seconds) {
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - seconds}};
  vt_code_path path = path_of(target, object);
  assert_return_code(utimensat(AT_FDCWD, path.text, times, 0), 0);
}

static void an_object_comes_back(void **state) {
  (void)state;
  assert_false(load(1, 0));
  save(1, 0);
  assert_true(load(1, 0));
  assert_false(load(2, 0));
  assert_false(load(1, 1));
}

static void no_folder_keeps_nothing(void **state) {
  (void)state;
  setenv("VTPU_CACHE_DIR", "", 1);
  save(1, 0);
  assert_false(load(1, 0));
}

static void the_least_recently_used_go(void **state) {
  (void)state;
  for (int i = 0; i < 50; i++) {
    save(1, i);
    set_age(1, i, DAY - i);
  }
  assert_true(load(1, 3)); // used again
  for (int i = 50; i < 90; i++) save(1, i);
  assert_true(each_file(NULL) <= MIB + MIB / 16);
  assert_true(load(1, 3));
  assert_true(load(1, 89));
  assert_false(load(1, 0));
  assert_false(load(1, 4));
}

static void other_builds_unused_for_long_go_first(void **state) {
  (void)state;
  for (int i = 0; i < 30; i++) {
    save(1, i);
    set_age(1, i, 9 * DAY);
    save(2, i);
    set_age(2, i, i < 15 ? 8 * DAY : DAY);
  }
  for (int i = 30; i < 50; i++) save(1, i);
  for (int i = 0; i < 15; i++) assert_false(load(2, i));
  for (int i = 15; i < 30; i++) assert_true(load(2, i));
}

static void other_files_stay(void **state) {
  (void)state;
  static const char *const others[] = {"notes.o", "0123456789abcdef.o", "README"};
  for (int i = 0; i < 3; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, others[i]);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_return_code(fd, errno);
    assert_return_code(ftruncate(fd, 4 * MIB), errno);
    close(fd);
  }
  for (int i = 0; i < 90; i++) save(1, i);
  assert_true(each_file(NULL) > 12 * MIB + MIB / 2);
}

// All write, read and trim the same objects.
static void processes_share_a_folder(void **state) {
  (void)state;
  pid_t children[4];
  for (int c = 0; c < 4; c++) {
    children[c] = fork();
    assert_return_code(children[c], errno);
    if (children[c]) continue;
    for (int i = 0; i < 400; i++) {
      int object = (i * (c + 1) * 7) % 150;
      if (!load(1, object)) save(1, object);
    }
    _exit(0);
  }
  for (int c = 0; c < 4; c++) {
    int status;
    assert_int_equal(waitpid(children[c], &status, 0), children[c]);
    assert_int_equal(status, 0);
  }
  assert_true(each_file(NULL) <= MIB + 4 * MIB / 16);
}

int main(void) {
#define FOLDER_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      FOLDER_TEST(an_object_comes_back),       FOLDER_TEST(no_folder_keeps_nothing),
      FOLDER_TEST(the_least_recently_used_go), FOLDER_TEST(other_builds_unused_for_long_go_first),
      FOLDER_TEST(other_files_stay),           FOLDER_TEST(processes_share_a_folder)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
