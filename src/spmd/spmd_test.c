// SPDX-License-Identifier: Apache-2.0
// spmd_test.c - tilings of shardings, and their OpSharding messages.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/spmd.h"

static const vt_mesh_axis axes[] = {{"x", 4}, {"y", 2}};
static const vt_mesh mesh = {"mesh", 2, axes, 0, NULL};
static const int64_t reversed_ids[] = {7, 6, 5, 4, 3, 2, 1, 0};
static const vt_mesh reversed = {"reversed", 2, axes, 8, reversed_ids};
static const int64_t dims[] = {16, 6};
static const vt_type type = {VT_F32, 2, dims};

#define X     {0, 1, 4}
#define Y     {1, 1, 2}
#define X_MAJ {0, 1, 2}
#define X_MIN {0, 2, 2}

// Axes of both dimensions, what tile each device holds, and the message.
static const struct {
  const vt_mesh *mesh;
  uint32_t count[2];
  vt_axis_ref refs[2][2];
  int32_t tiles[8];
  int64_t shard[2];
  const char *proto;
} rows[] = {
    {&mesh, {1, 1}, {{X}, {Y}}, {0, 1, 2, 3, 4, 5, 6, 7}, {4, 3}, "08031a02040222080001020304050607"},
    {&mesh, {1, 0}, {{Y}}, {0, 1, 0, 1, 0, 1, 0, 1}, {8, 6}, "08031a0302010422080002040601030507" "3001"},
    {&mesh, {2, 0}, {{Y, X}}, {0, 4, 1, 5, 2, 6, 3, 7}, {2, 6}, "08031a02080122080002040601030507"},
    {&mesh, {0, 1}, {{{0}}, {X}}, {0, 0, 1, 1, 2, 2, 3, 3}, {16, 2}, "08031a0301040222080001020304050607" "3001"},
    {&mesh, {1, 1}, {{X_MIN}, {Y}}, {0, 1, 2, 3, 0, 1, 2, 3}, {8, 3}, "08031a0302020222080004010502060307" "3001"},
    {&mesh, {1, 0}, {{X_MAJ}}, {0, 0, 0, 0, 1, 1, 1, 1}, {8, 6}, "08031a0302010422080001020304050607" "3001"},
    {&reversed, {1, 1}, {{X}, {Y}}, {7, 6, 5, 4, 3, 2, 1, 0}, {4, 3}, "08031a02040222080706050403020100"},
    {&mesh, {0, 0}, {{{0}}}, {0}, {16, 6}, ""},
};

static void check_proto(const vt_tiling *tiling, const char *hex) {
  assert_int_equal(tiling->proto_size, strlen(hex) / 2);
  for (size_t i = 0; i < tiling->proto_size; i++) {
    static const char digits[] = "0123456789abcdef";
    assert_int_equal(hex[2 * i], digits[tiling->proto[i] >> 4]);
    assert_int_equal(hex[2 * i + 1], digits[tiling->proto[i] & 15]);
  }
}

static void test_mesh(void **state) {
  (void)state;
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    vt_arena arena = {0};
    vt_dim_sharding d[2] = {{rows[r].count[0], rows[r].refs[0], true, -1}, {rows[r].count[1], rows[r].refs[1], true, -1}};
    vt_sharding s = {.kind = VT_SHARDING_MESH, .mesh = rows[r].mesh, .rank = 2, .dims = d};
    vt_tiling tiling;
    assert_null(vt_tiling_make(&s, NULL, 0, type, 8, &arena, &tiling));
    for (int i = 0; i < 8; i++) assert_int_equal(tiling.tile_of_device[i], rows[r].tiles[i]);
    for (int i = 0; i < 2; i++) assert_int_equal(tiling.shard.dims[i], rows[r].shard[i]);
    check_proto(&tiling, rows[r].proto);
    vt_arena_free(&arena);
  }
}

static void test_ranges(void **state) {
  (void)state;
  vt_arena arena = {0};
  vt_axis_ref x = X, y = Y;
  vt_dim_sharding d[2] = {{1, &y, true, -1}, {1, &x, true, -1}};
  vt_sharding s = {.kind = VT_SHARDING_MESH, .mesh = &mesh, .rank = 2, .dims = d};
  vt_tiling t;
  int64_t offsets[2], sizes[2];
  assert_null(vt_tiling_make(&s, NULL, 0, type, 8, &arena, &t));
  vt_tiling_range(&t, 5, offsets, sizes);  // x = 2, y = 1; 6 columns in 4 tiles of 2
  assert_int_equal(offsets[0], 8);
  assert_int_equal(offsets[1], 4);
  assert_int_equal(sizes[1], 2);
  vt_tiling_range(&t, 7, offsets, sizes);  // the last tile is empty
  assert_int_equal(offsets[1], 6);
  assert_int_equal(sizes[1], 0);
  vt_string manual = {"y", 1};
  assert_null(vt_tiling_make(&s, &manual, 1, type, 8, &arena, &t));
  assert_int_equal(t.shard.dims[0], 8);
  assert_int_equal(t.shard.dims[1], 6);
  vt_arena_free(&arena);
}

static void test_maximal(void **state) {
  (void)state;
  vt_arena arena = {0};
  vt_tiling t;
  const int64_t id = 3;
  vt_mesh single = {"single", 0, NULL, 1, &id}, empty = {"empty", 0, NULL, 0, NULL};
  vt_sharding one = {.mesh = &single};
  assert_null(vt_tiling_make(&one, NULL, 0, type, 8, &arena, &t));
  assert_int_equal(t.tile_of_device[3], 0);
  assert_int_equal(t.tile_of_device[2], -1);
  check_proto(&t, "08011a0101220103");
  vt_status st = vt_tiling_make(&one, NULL, 0, type, 2, &arena, &t);
  assert_non_null(st);
  vt_status_free(st);
  vt_dim_sharding open[2] = {{0}};
  vt_sharding none = {.mesh = &empty, .rank = 2, .dims = open};
  assert_null(vt_tiling_make(&none, NULL, 0, type, 8, &arena, &t));
  check_proto(&t, "");
  vt_arena_free(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mesh),
      cmocka_unit_test(test_ranges),
      cmocka_unit_test(test_maximal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
