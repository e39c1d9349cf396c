// SPDX-License-Identifier: Apache-2.0
// people_test.c - accounts in a worker's files: a person's is created once and changes its id
// together with its home; the system's stay unchanged and locked.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cloud/worker/boot.h"

enum { BASE = 65536 * 20 };

static char root[64];

// That of vtpu-guest is beside what else it runs.
int vt_boot_run(const char *const *argv) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    execvp(argv[0], (char *const *)argv);
    _exit(127);
  }
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void put(const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s%s", root, name);
  FILE *file = fopen(path, "we");
  assert_non_null(file);
  fputs(text, file);
  assert_int_equal(fclose(file), 0);
}

static bool has(const char *name, const char *text) {
  char path[128], all[8192] = "";
  snprintf(path, sizeof path, "%s%s", root, name);
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  all[fread(all, 1, sizeof all - 1, file)] = 0;
  fclose(file);
  return strstr(all, text) != NULL;
}

static unsigned owner(const char *name) {
  char path[128];
  struct stat info;
  snprintf(path, sizeof path, "%s%s", root, name);
  assert_int_equal(lstat(path, &info), 0);
  return info.st_uid;
}

static void give(const char *name, unsigned id) {
  char path[128];
  snprintf(path, sizeof path, "%s%s", root, name);
  assert_int_equal(lchown(path, id, id), 0);
}

static int open_root(void **state) {
  static const char *const folders[] = {"", "/etc", "/home", "/home/ada"};
  (void)state;
  snprintf(root, sizeof root, "/tmp/vtpu-people-XXXXXX");
  if (!mkdtemp(root)) return -1;
  for (size_t i = 1; i < sizeof folders / sizeof *folders; i++) {
    char path[128];
    snprintf(path, sizeof path, "%s%s", root, folders[i]);
    if (mkdir(path, 0755) != 0) return -1;
  }
  char passwd[512];
  snprintf(passwd, sizeof passwd,
           "root:x:0:0::/root:/bin/bash\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"
           "trick:x:7:7::%s/home/trick:/bin/bash\nada:x:%d:%d::/moved/home/ada:/bin/bash\n"
           "last:x:8:8::/:/bin/sh\n",
           root, BASE + 2500, BASE + 2500);
  put("/etc/passwd", passwd);
  snprintf(passwd, sizeof passwd, "root:x:0:\nsudo:x:27:\nada:x:%d:\n", BASE + 2500);
  put("/etc/group", passwd);
  return 0;
}

static int close_root(void **state) {
  (void)state;
  return vt_boot_run((const char *const[]){"rm", "-rf", root, NULL});
}

static void a_home_goes_with_its_id(void **state) {
  (void)state;
  if (geteuid() != 0) skip(); // everybody is one user then
  char link[128];
  put("/home/ada/file", "hers");
  put("/home/ada/other", "another's");
  put("/etc/outside", "the system's");
  snprintf(link, sizeof link, "%s/home/ada/link", root);
  assert_int_equal(symlink("../../etc/outside", link), 0);
  give("/home/ada", BASE + 2500);
  give("/home/ada/file", BASE + 2500);
  give("/home/ada/link", BASE + 2500);
  give("/home/ada/other", BASE + 2777);
  assert_true(vt_boot_make_user(root, BASE, "ada", 2600));
  char line[160];
  snprintf(line, sizeof line, "\nada:x:%d:%d::%s/home/ada:/bin/bash\nlast:", BASE + 2600,
           BASE + 2600, root);
  assert_true(has("/etc/passwd", line));
  snprintf(line, sizeof line, "\nada:x:%d:\n", BASE + 2600);
  assert_true(has("/etc/group", line));
  assert_int_equal(owner("/home/ada"), BASE + 2600);
  assert_int_equal(owner("/home/ada/file"), BASE + 2600);
  assert_int_equal(owner("/home/ada/link"), BASE + 2600);
  assert_int_equal(owner("/home/ada/other"), BASE + 2777);
  assert_int_equal(owner("/etc/outside"), 0);
  // Repeating changes nothing.
  assert_true(vt_boot_make_user(root, BASE, "ada", 2600));
  assert_true(vt_boot_make_user(root, BASE, "bob", 2601));
  assert_int_equal(owner("/home/bob"), BASE + 2601);
}

static void the_system_keeps_its_accounts(void **state) {
  static const char *const names[] = {"root", "daemon", "trick", "last", "sudo"};
  char deny[256];
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (vt_boot_make_user(root, BASE, names[i], 2700)) fail_msg("%s was taken over", names[i]);
  assert_true(has("/etc/passwd", "daemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"));
  vt_boot_deny_system(root, BASE, deny, sizeof deny);
  assert_string_equal(deny, geteuid() ? "DenyUsers root root daemon trick ada last\n"
                                      : "DenyUsers root root daemon trick last\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_home_goes_with_its_id, open_root, close_root),
      cmocka_unit_test_setup_teardown(the_system_keeps_its_accounts, open_root, close_root),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
