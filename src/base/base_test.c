// SPDX-License-Identifier: Apache-2.0
// base_test.c - status, arena, array, map, text, file, queue, coroutine.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/coroutine.h"
#include "base/file.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/queue.h"
#include "base/status.h"
#include "base/text.h"

static void status_carries_code_and_message(void **state) {
  (void)state;
  vt_status st = vt_error(VT_NOT_FOUND, "no %s at %d", "thing", 7);
  assert_int_equal(vt_status_code(st), VT_NOT_FOUND);
  assert_string_equal(vt_status_message(st), "no thing at 7");
  st = vt_status_wrap(st, "while %s", "looking");
  assert_string_equal(vt_status_message(st), "while looking: no thing at 7");
  assert_int_equal(vt_status_message_size(st), strlen("while looking: no thing at 7"));
  vt_status copy = vt_status_copy(st);
  vt_status_free(st);
  assert_int_equal(vt_status_code(copy), VT_NOT_FOUND);
  vt_status_free(copy);
  vt_status_free(VT_OK);
  vt_status_free(vt_error_no_memory());
  assert_string_equal(vt_code_name(VT_UNIMPLEMENTED), "UNIMPLEMENTED");
}

static void long_messages_are_whole(void **state) {
  (void)state;
  char *text = malloc(5001);
  memset(text, 'x', 5000);
  text[5000] = 0;
  vt_status st = vt_error(VT_INTERNAL, "%s", text);
  assert_int_equal(vt_status_message_size(st), 5000);
  vt_status_free(st);
  free(text);
}

static void arena_memory_is_zero_and_aligned(void **state) {
  (void)state;
  vt_arena arena = {0};
  for (size_t size = 1; size < 20000; size = size * 3 + 1) {
    char *p = vt_arena_push(&arena, size);
    assert_int_equal((uintptr_t)p % 16, 0);
    for (size_t i = 0; i < size; i++) assert_int_equal(p[i], 0);
    memset(p, 0xAA, size);
    assert_int_equal((uintptr_t)vt_arena_push_aligned(&arena, 3, 64) % 64, 0);
  }
  assert_string_equal(vt_arena_printf(&arena, "%d-%s", 4, "x"), "4-x");
  vt_arena_reset(&arena);
  char *p = vt_arena_push(&arena, 100);
  for (size_t i = 0; i < 100; i++) assert_int_equal(p[i], 0);
  vt_arena_free(&arena);
}

// Large blocks come back to the next arena, whoever wrote what into them.
static void arena_memory_is_zero_when_used_again(void **state) {
  (void)state;
  for (size_t size = 1000; size < 10000000; size *= 3) {
    for (int round = 0; round < 3; round++) {
      vt_arena arena = {.brief = round % 2};
      for (int i = 0; i < 3; i++) {
        char *p = vt_arena_push(&arena, size);
        for (size_t at = 0; at < size; at += 97) assert_int_equal(p[at], 0);
        memset(p, 0xff, size);
      }
      vt_arena_free(&arena);
    }
  }
}

// Of two blocks a brief arena takes the one of which more was used, and no more of it than that:
// the system has given those pages.
static void brief_arenas_take_used_pages(void **state) {
  (void)state;
#ifdef __SANITIZE_ADDRESS__
  skip(); // blocks are not kept
#endif
  enum { KEPT = 16, USED = 50000, LITTLE = 8000 };
  vt_arena others[KEPT], arena = {0}, brief = {.brief = true};
  for (int i = 0; i < KEPT; i++) { // what earlier tests left
    others[i] = (vt_arena){.brief = true};
    vt_arena_push(&others[i], 1);
  }
  uintptr_t used = (uintptr_t)vt_arena_push(&arena, USED);
  vt_arena_push(&arena, LITTLE); // in the next block, which is larger
  vt_arena_free(&arena);
  for (uintptr_t at = 0; at + 80 <= USED; at += 80)
    assert_int_equal((uintptr_t)vt_arena_push(&brief, 80), used + at);
  uintptr_t next = (uintptr_t)vt_arena_push(&brief, 80);
  assert_true(next < used || next >= used + USED);
  vt_arena_free(&brief);
  for (int i = 0; i < KEPT; i++) vt_arena_free(&others[i]);
}

static void map_keeps_insertion_order(void **state) {
  (void)state;
  vt_map map = {0};
  static int values[1000];
  for (int i = 0; i < 1000; i++) {
    char key[16];
    int n = snprintf(key, sizeof key, "key%d", i * 7919 % 1000);
    *vt_map_at(&map, key, (size_t)n) = &values[i * 7919 % 1000];
  }
  assert_int_equal(map.size, 1000);
  for (int i = 0; i < 1000; i++) {
    char key[16];
    int n = snprintf(key, sizeof key, "key%d", i);
    assert_ptr_equal(vt_map_find(&map, key, (size_t)n), &values[i]);
    assert_ptr_equal(map.entries[i].value, &values[i * 7919 % 1000]);
  }
  assert_null(vt_map_find(&map, "other", 5));
  assert_false(vt_map_has(&map, "other", 5));
  vt_map_free(&map);
}

static void arrays_grow(void **state) {
  (void)state;
  vt_arena arena = {0};
  VT_ARRAY(int) heap = {0}, pushed = {0};
  for (int i = 0; i < 100; i++) {
    vt_array_push(&heap, i);
    vt_array_push_in(&arena, &pushed, i);
  }
  for (int i = 0; i < 100; i++) assert_int_equal(heap.data[i] + pushed.data[i], 2 * i);
  vt_array_free(&heap);
  vt_arena_free(&arena);
}

static void files_round_trip(void **state) {
  (void)state;
  char path[] = "/tmp/vtpu_base_test_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  assert_null(vt_file_write(path, "hello", 5));
  vt_bytes bytes;
  assert_null(vt_file_map(path, &bytes));
  assert_int_equal(bytes.size, 5);
  assert_memory_equal(bytes.data, "hello", 5);
  vt_file_unmap(&bytes);
  unlink(path);
  vt_status st = vt_file_map(path, &bytes);
  assert_int_equal(vt_status_code(st), VT_NOT_FOUND);
  vt_status_free(st);
}

static void text_grows(void **state) {
  (void)state;
  vt_text text = {0};
  assert_string_equal(vt_text_string(&text), "");
  for (int i = 0; i < 300; i++) vt_text_printf(&text, "%d,", i);
  vt_text_put(&text, "end");
  assert_int_equal(text.size, strlen(text.data));
  assert_string_equal(text.data + text.size - 7, "299,end");
  vt_text_free(&text);
}

// Arrays, maps and texts that are abandoned halfway, in a nested attempt.
typedef struct attempt_case {
  vt_arena kept;
  int inner_made, outer_made;
} attempt_case;

static vt_status keep_in_arena(void *user) {
  attempt_case *c = user;
  memset(vt_arena_push(&c->kept, 100000), 1, 100000);
  return VT_OK;
}

static vt_status run_out(void *user) {
  attempt_case *c = user;
  vt_text text = {0};
  vt_map map = {0};
  VT_ARRAY(int) numbers = {0};
  vt_arena scratch = {0};
  for (int i = 0; i < 100; i++) {
    vt_text_printf(&text, "%d ", i);
    *vt_map_at(&map, &i, sizeof i) = c;
    vt_array_push(&numbers, i);
    vt_arena_push(&scratch, 1000);
  }
  c->inner_made++;
  vt_memory_out(1, "a test");
}

static vt_status go_on_without(void *user) {
  attempt_case *c = user;
  vt_text text = {0};
  vt_text_put(&text, "made before");
  assert_null(vt_attempt_keep(keep_in_arena, c));
  vt_attempt attempt;
  vt_status st = vt_attempt_run(&attempt, run_out, c);
  vt_attempt_end(&attempt);
  assert_int_equal(vt_status_code(st), VT_RESOURCE_EXHAUSTED);
  assert_string_equal(vt_text_string(&text), "made before");
  c->outer_made++;
  vt_text_put(&text, ", and left to the attempt");
  vt_memory_out(1, "a test");
}

static void attempts_give_back_what_they_made(void **state) {
  (void)state;
  attempt_case c = {0};
  for (int i = 0; i < 3; i++) {
    vt_attempt attempt;
    vt_status st = vt_attempt_run(&attempt, go_on_without, &c);
    vt_attempt_end(&attempt);
    assert_int_equal(vt_status_code(st), VT_RESOURCE_EXHAUSTED);
    vt_status_free(st);
  }
  assert_int_equal(c.inner_made, 3);
  assert_int_equal(c.outer_made, 3);
  vt_arena_free(&c.kept); // LeakSanitizer looks for the rest
}

static vt_status make_text(void *user) {
  vt_text_put(user, "stays");
  return VT_OK;
}

static void what_a_good_attempt_made_stays(void **state) {
  (void)state;
  vt_text text = {0};
  vt_attempt attempt;
  assert_null(vt_attempt_run(&attempt, make_text, &text));
  vt_attempt_end(&attempt);
  vt_text_put(&text, " and grows");
  assert_string_equal(vt_text_string(&text), "stays and grows");
  vt_text_free(&text);
}

typedef struct noted {
  vt_task task;
  int number, *order;
  bool fails;
} noted;

static vt_status note(vt_task *task) {
  noted *n = (noted *)(void *)task;
  while (*n->order) n->order++;
  *n->order = n->number;
  return n->fails ? vt_error(VT_ABORTED, "task %d", n->number) : VT_OK;
}

static void tasks_keep_their_order(void **state) {
  (void)state;
  for (int times = 0; times < 200; times++) {
    int order[7] = {0};
    noted tasks[6];
    vt_queue queue;
    vt_queue_init(&queue);
    for (int i = 0; i < 6; i++) {
      tasks[i] = (noted){{.run = note, .beside = i % 3 == 1}, i + 1, order, false};
      vt_queue_put(&queue, &tasks[i].task);
      if (i == 2) assert_null(vt_queue_wait(&queue, &tasks[times % 3].task));
    }
    assert_null(vt_queue_wait(&queue, NULL));
    for (int i = 0; i < 6; i++) assert_int_equal(order[i], i + 1);
    vt_queue_fini(&queue);
  }
}

static void a_task_that_fails_is_the_last(void **state) {
  (void)state;
  for (int times = 0; times < 200; times++) {
    int order[4] = {0};
    noted tasks[3];
    vt_queue queue;
    vt_queue_init(&queue);
    for (int i = 0; i < 3; i++) {
      tasks[i] = (noted){{.run = note, .beside = times % 2}, i + 1, order, i == 1};
      vt_queue_put(&queue, &tasks[i].task);
    }
    vt_status st = vt_queue_wait(&queue, &tasks[2].task);
    assert_int_equal(vt_status_code(st), VT_ABORTED);
    vt_status_free(st);
    vt_queue_clear(&queue);
    assert_int_equal(order[1], 2);
    assert_int_equal(order[2], 0);
    tasks[2].order = order;
    vt_queue_put(&queue, &tasks[2].task); // again of use
    assert_null(vt_queue_wait(&queue, &tasks[2].task));
    assert_int_equal(order[2], 3);
    vt_queue_fini(&queue);
  }
}

// Counts to its end by one at a time, deep in a recursion.
typedef struct counter {
  vt_coroutine *coroutine;
  int at, end;
} counter;

static void count_on(counter *c, int depth) {
  if (depth) count_on(c, depth - 1);
  while (c->at < c->end) {
    c->at++;
    vt_coroutine_yield(c->coroutine);
  }
}

static void count(void *user) {
  count_on(user, 100);
}

static void coroutines_go_on_where_they_stopped(void **state) {
  (void)state;
  counter counters[5] = {0};
  for (int i = 0; i < 5; i++) {
    counters[i].end = 4 * i;
    assert_null(vt_coroutine_create(count, &counters[i], &counters[i].coroutine));
  }
  for (int turn = 1; turn < 10; turn++)
    for (int i = 0; i < 5; i++) {
      if (turn > counters[i].end + 1) continue; // it was over in the turn before
      vt_coroutine_resume(counters[i].coroutine);
      assert_int_equal(counters[i].at, turn < counters[i].end ? turn : counters[i].end);
    }
  for (int i = 0; i < 5; i++) vt_coroutine_destroy(counters[i].coroutine); // some are not over
  vt_coroutine_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(status_carries_code_and_message),
      cmocka_unit_test(long_messages_are_whole),
      cmocka_unit_test(arena_memory_is_zero_and_aligned),
      cmocka_unit_test(arena_memory_is_zero_when_used_again),
      cmocka_unit_test(brief_arenas_take_used_pages),
      cmocka_unit_test(map_keeps_insertion_order),
      cmocka_unit_test(arrays_grow),
      cmocka_unit_test(files_round_trip),
      cmocka_unit_test(text_grows),
      cmocka_unit_test(attempts_give_back_what_they_made),
      cmocka_unit_test(what_a_good_attempt_made_stays),
      cmocka_unit_test(tasks_keep_their_order),
      cmocka_unit_test(a_task_that_fails_is_the_last),
      cmocka_unit_test(coroutines_go_on_where_they_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
