// SPDX-License-Identifier: Apache-2.0
// When the threads of the team sleep, and the team that makes them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <unistd.h>

#include "host/waiting.h"

static bool decide(int64_t preempted, int64_t runs, bool asleep, int *quiet) {
  return vt_waiting_decide(&(vt_waiting_window){preempted, runs, 100000}, asleep, quiet);
}

static void two_quiet_windows_wake(void **state) {
  (void)state;
  int quiet = 0;
  assert_true(decide(3, 0, true, &quiet));
  assert_true(!decide(3, 0, true, &quiet));
  assert_true(!decide(3, 0, false, &quiet));
}

static void a_busy_window_between_them_does_not(void **state) {
  (void)state;
  int quiet = 0;
  assert_true(decide(3, 0, true, &quiet));
  assert_true(decide(40, 0, true, &quiet));
  assert_true(decide(3, 0, true, &quiet));
}

static void preemptions_put_to_sleep(void **state) {
  (void)state;
  int quiet = 5;
  assert_true(!decide(10, 0, false, &quiet)); // neither quiet nor busy: as it was
  assert_true(decide(30, 0, false, &quiet));
  assert_true(quiet == 0);
}

static void two_of_a_run_are_its_own(void **state) {
  (void)state;
  int quiet = 0;
  assert_true(!decide(30, 15, false, &quiet));
  assert_true(decide(300, 15, false, &quiet));
}

static int threads_now(void) {
  DIR *folder = opendir("/proc/self/task");
  int count = -2; // . and ..
  while (folder && readdir(folder)) count++;
  if (folder) closedir(folder);
  return count;
}

static void the_first_run_begins_asleep(void **state) {
  (void)state;
  int before = threads_now();
  assert_true(vt_waiting_team(0, 8) == 8);
  vt_waiting_begin();
  assert_true(threads_now() == before); // not managed
  vt_waiting_manage();
  vt_waiting_begin();
  vt_waiting_begin();
  for (int i = 0; i < 10000 && threads_now() < before + 2; i++) usleep(1000);
  assert_true(threads_now() >= before + 2);
  for (int i = 0; i < 1000; i++) vt_waiting_end();
}

static void little_work_is_for_one(void **state) {
  (void)state; // after the test above: asleep
  assert_true(vt_waiting_team(0, 8) == 1);
  assert_true(vt_waiting_team(30 * 1000, 2) == 1);
  assert_true(vt_waiting_team(70 * 1000, 2) == 2);
  assert_true(vt_waiting_team(70 * 1000, 8) == 1);
  assert_true(vt_waiting_team(1000 * 1000, 8) == 8);
  assert_true(vt_waiting_team(1000 * 1000, 1) == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_quiet_windows_wake),
      cmocka_unit_test(a_busy_window_between_them_does_not),
      cmocka_unit_test(preemptions_put_to_sleep),
      cmocka_unit_test(two_of_a_run_are_its_own),
      cmocka_unit_test(the_first_run_begins_asleep),
      cmocka_unit_test(little_work_is_for_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
