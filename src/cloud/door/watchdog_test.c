// SPDX-License-Identifier: Apache-2.0
// watchdog_test.c - processes that hang end by themselves and say where; others do not. Each case
// is a process of its own.
#include "cloud/door/watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cloud/cloud_testing.h"

enum { LIMIT_S = 2 };

static vt_watchdog *watch_over(vt_cloud *cloud, int limit_s) {
  vt_watchdog *dog;
  if (vt_watchdog_start(cloud, limit_s, &dog)) _exit(1);
  return dog;
}

static void lock_is_kept(vt_cloud *cloud) {
  watch_over(cloud, LIMIT_S);
  pthread_mutex_lock(&cloud->lock);
  for (;;) pause();
}

static void thread_stands(vt_cloud *cloud) {
  static vt_heartbeat alive, dead;
  vt_heartbeat_add(&alive, "a thread that lives");
  vt_heartbeat_add(&dead, "the thread that stands");
  watch_over(cloud, LIMIT_S);
  for (;; usleep(10000)) vt_heartbeat_now(&alive);
}

static void does_not_end(vt_cloud *cloud) {
  vt_watchdog_end_within(watch_over(cloud, 0), 1);
  for (;;) pause();
}

// Silence that has ended, removed heartbeats and a closed cloud end nothing.
static void lives(vt_cloud *cloud) {
  static vt_heartbeat heartbeat, gone;
  vt_heartbeat_add(&heartbeat, "a thread that lives");
  vt_heartbeat_add(&gone, "a thread that has ended");
  vt_watchdog *dog = watch_over(cloud, 600);
  vt_heartbeat_remove(&gone);
  vt_watchdog_forget_cloud(dog);
  pthread_mutex_lock(&cloud->lock);
  for (int i = 0; i < 30; i++, usleep(100000)) vt_heartbeat_now(&heartbeat);
  vt_heartbeat_remove(&heartbeat);
  vt_watchdog_end_within(dog, 600);
  vt_watchdog_stop(dog);
  _exit(0);
}

static void ends_who_stands_still(void **state) {
  static const struct {
    void (*run)(vt_cloud *cloud);
    int code;
    const char *says;
  } rows[] = {{lock_is_kept, VT_WATCHDOG_EXIT, "vtpud: the lock of the cloud has not been free"},
              {thread_stands, VT_WATCHDOG_EXIT, "vtpud: the thread that stands has not answered"},
              {does_not_end, VT_WATCHDOG_EXIT, "vtpud: the daemon has been told to end"},
              {lives, 0, ""}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char said[400] = "";
    int out[2], status;
    vt_testing t;
    vt_testing_open(&t, "");
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
      dup2(out[1], 2);
      rows[i].run(t.cloud);
      _exit(1);
    }
    close(out[1]);
    for (ssize_t n, at = 0; (n = read(out[0], said + at, sizeof said - 1 - (size_t)at)) > 0;)
      at += n;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), rows[i].code);
    assert_memory_equal(said, rows[i].says, strlen(rows[i].says));
    close(out[0]);
    vt_testing_close(&t);
  }
}

// systemd is notified that all is well if it asked for it.
static void tells_systemd(void **state) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  char word[64] = "";
  vt_testing t;
  vt_watchdog *dog;
  (void)state;
  vt_testing_open(&t, "");
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  char name[64];
  snprintf(name, sizeof name, "@vtpu-watchdog-test-%d", (int)getpid());
  memcpy(at.sun_path + 1, name + 1, strlen(name) - 1);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
  assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
  setenv("NOTIFY_SOCKET", name, 1);
  setenv("WATCHDOG_USEC", "120000000", 1);
  assert_null(vt_watchdog_start(t.cloud, 600, &dog));
  assert_int_equal(recv(fd, word, sizeof word - 1, 0), (int)strlen("WATCHDOG=1"));
  assert_string_equal(word, "WATCHDOG=1");
  vt_watchdog_stop(dog);
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  close(fd);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ends_who_stands_still),
                                     cmocka_unit_test(tells_systemd)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
