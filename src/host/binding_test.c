// SPDX-License-Identifier: Apache-2.0
// Where the threads of a team may run during a run, and after it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

#include "host/binding.h"

enum { TEAM = 2, PAUSE_US = 500 };

static cpu_set_t all;      // that the process may use: two
static cpu_set_t of[TEAM]; // of each thread of the team

static void look(void) {
#pragma omp parallel
  {
    int i = omp_get_thread_num();
    if (i < TEAM) sched_getaffinity(0, sizeof of[i], &of[i]);
  }
}

static void assert_apart(void) {
  cpu_set_t taken;
  CPU_ZERO(&taken);
  look();
  for (int i = 0; i < TEAM; i++) {
    assert_int_equal(CPU_COUNT(&of[i]), 1);
    CPU_OR(&taken, &taken, &of[i]);
  }
  assert_true(CPU_EQUAL(&taken, &all));
}

static void assert_free(void) {
  look();
  for (int i = 0; i < TEAM; i++) assert_true(CPU_EQUAL(&of[i], &all));
}

static void each_has_its_own_until_the_end(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    usleep(PAUSE_US);
    vt_binding_begin();
    assert_apart();
    vt_binding_end();
    assert_free();
  }
  vt_binding_end(); // of nothing
}

static void a_lift_is_for_the_rest(void **state) {
  (void)state;
  usleep(PAUSE_US);
  vt_binding_begin();
  vt_binding_lift();
  assert_free();
  vt_binding_lift();
  vt_binding_end();
  usleep(PAUSE_US);
  vt_binding_begin();
  assert_apart();
  vt_binding_end();
}

static void *run_beside(void *unused) {
  vt_binding_begin();
  cpu_set_t mine;
  bool free = !sched_getaffinity(0, sizeof mine, &mine) && CPU_COUNT(&mine) == CPU_COUNT(&all);
  vt_binding_end();
  return free ? &all : unused;
}

static void a_run_beside_another_is_free(void **state) {
  (void)state;
  pthread_t other;
  void *free = NULL;
  usleep(PAUSE_US);
  vt_binding_begin();
  // A thread that a bound one makes is bound: this one is made free, as those of others are.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setaffinity_np(&attributes, sizeof all, &all);
  assert_int_equal(pthread_create(&other, &attributes, run_beside, NULL), 0);
  pthread_join(other, &free);
  pthread_attr_destroy(&attributes);
  assert_non_null(free);
  assert_apart();
  vt_binding_end();
  assert_free();
}

static void other_teams_are_left_alone(void **state) {
  (void)state;
  for (int n = TEAM - 1; n <= TEAM + 1; n += 2) {
    omp_set_num_threads(n);
    usleep(PAUSE_US);
    vt_binding_begin();
    look();
    for (int i = 0; i < TEAM && i < n; i++) assert_true(CPU_EQUAL(&of[i], &all));
    vt_binding_end();
  }
  omp_set_num_threads(TEAM);
  // One that the user has bound.
  look();
  cpu_set_t one = all;
  for (int i = 0, kept = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &one) && kept++) CPU_CLR(i, &one);
#pragma omp parallel
  if (omp_get_thread_num() == 1) sched_setaffinity(0, sizeof one, &one);
  usleep(PAUSE_US);
  vt_binding_begin();
  look();
  assert_true(CPU_EQUAL(&of[0], &all) && CPU_EQUAL(&of[1], &one));
  vt_binding_end();
  look();
  assert_true(CPU_EQUAL(&of[0], &all) && CPU_EQUAL(&of[1], &one));
#pragma omp parallel
  if (omp_get_thread_num() == 1) sched_setaffinity(0, sizeof all, &all);
}

int main(void) {
  cpu_set_t may;
  if (sched_getaffinity(0, sizeof may, &may) || CPU_COUNT(&may) < TEAM) {
    print_message("skipped: nothing is bound with one processor\n");
    return 0;
  }
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&all) < TEAM; i++)
    if (CPU_ISSET(i, &may)) CPU_SET(i, &all);
  if (sched_setaffinity(0, sizeof all, &all)) return 1;
  omp_set_num_threads(TEAM);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_has_its_own_until_the_end),
      cmocka_unit_test(a_lift_is_for_the_rest),
      cmocka_unit_test(a_run_beside_another_is_free),
      cmocka_unit_test(other_teams_are_left_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
