// SPDX-License-Identifier: Apache-2.0
// assign_test.c - tile assignments: equal ones are one, derived ones hold what they should, groups
// come apart and together again.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/partition/assign.h"

static vt_arena arena;
static vt_assigns t = {.arena = &arena};

static const vt_assign *grid(int32_t x, int32_t y, int32_t copies) {
  return vt_assign_make(&t, 2, (int32_t[]){x, y}, copies, NULL);
}

static void equal_ones_are_one(void **state) {
  (void)state;
  assert_ptr_equal(grid(4, 2, 1), grid(4, 2, 1));
  assert_ptr_not_equal(grid(4, 2, 1), grid(2, 4, 1));
  // The order of devices that hold the same tile does not count.
  const int32_t turned[] = {1, 0, 3, 2, 5, 4, 7, 6};
  assert_ptr_equal(vt_assign_make(&t, 2, (int32_t[]){2, 2}, 2, turned), grid(2, 2, 2));
  assert_ptr_equal(vt_assign_keep(&t, grid(4, 2, 1), 0), vt_assign_whole(&t, 2, 8));
}

static void derived_ones(void **state) {
  (void)state;
  const vt_assign *a = grid(4, 2, 1);
  const vt_assign *turned = vt_assign_transpose(&t, a, (int32_t[]){1, 0});
  const int32_t by_column[] = {0, 2, 4, 6, 1, 3, 5, 7};
  assert_int_equal(turned->dims[0], 2);
  assert_memory_equal(vt_assign_devices(&t, turned), by_column, sizeof by_column);
  assert_ptr_equal(vt_assign_transpose(&t, turned, (int32_t[]){1, 0}), a);
  assert_ptr_equal(vt_assign_merge(&t, vt_assign_split(&t, grid(8, 1, 1), 0, 2), 0), grid(8, 1, 1));
  const vt_assign *moved = vt_assign_move(&t, a, 0, 1); // tiles of 1, cut by those of 0
  assert_int_equal(moved->dims[0], 1);
  assert_int_equal(moved->dims[1], 8);
  assert_memory_equal(vt_assign_devices(&t, moved), by_column, sizeof by_column);
  assert_int_equal(vt_assign_replicate(&t, a, 1)->copies, 4);
}

static void groups_come_apart_and_together(void **state) {
  (void)state;
  const vt_assign *a = vt_assign_transpose(&t, grid(4, 2, 1), (int32_t[]){1, 0});
  const int32_t second = 1;
  vt_grouping g = vt_group_on(&t, a, 1, &second, NULL);
  assert_int_equal(g.groups->count, 4);
  assert_int_equal(vt_groups_listed(&t, g.groups).ids[2], 2); // the second group: devices 2 and 3
  assert_ptr_equal(vt_ungroup(&t, &g), a);
  int32_t count, dims[VT_MAX_RANK + 1];
  assert_true(vt_group_dims(&t, a, g.groups, &count, dims));
  assert_int_equal(count, 1);
  assert_int_equal(dims[0], 1);
  // The same groups with their devices the other way round: they keep their tiles.
  const int32_t swapped[] = {1, 0, 3, 2, 5, 4, 7, 6};
  const vt_groups *other = vt_groups_make(&t, 4, 2, swapped);
  vt_grouping same = g;
  assert_true(vt_align_if_same(&t, &same, other, false));
  assert_ptr_equal(vt_ungroup(&t, &same), a);
  const int32_t mixed[] = {0, 2, 1, 3, 4, 6, 5, 7};
  assert_false(vt_align_if_same(&t, &g, vt_groups_make(&t, 4, 2, mixed), true));
}

static int finish(void **state) {
  (void)state;
  vt_assigns_free(&t);
  vt_arena_free(&arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_ones_are_one),
      cmocka_unit_test(derived_ones),
      cmocka_unit_test(groups_come_apart_and_together),
  };
  return cmocka_run_group_tests(tests, NULL, finish);
}
