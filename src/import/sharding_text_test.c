// SPDX-License-Identifier: Apache-2.0
// sharding_text_test.c - HLO's text of shardings.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "import/sharding_text.h"

static const struct {
  const char *text;
  int32_t rank;
  int kind;
  int32_t tile_rank;
  int64_t tiles[3];
  int64_t devices[8];
} rows[] = {
    {"{replicated}", 2, VT_TILES_REPLICATED, 0, {0}, {0}},
    {"{manual}", 2, VT_TILES_MANUAL, 0, {0}, {0}},
    {"{maximal device=3}", 2, VT_TILES_MAXIMAL, 0, {0}, {0}},
    {"{devices=[2,4]<=[8]}", 2, VT_TILES_LIST, 2, {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7}},
    {"{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
     2,
     VT_TILES_LIST,
     3,
     {1, 4, 2},
     {0, 4, 1, 5, 2, 6, 3, 7}},
    {"{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
     2,
     VT_TILES_LIST,
     3,
     {2, 1, 4},
     {0, 1, 2, 3, 4, 5, 6, 7}},
    {"{devices=[4,2]<=[2,2,2]T(2,0,1)}", 2, VT_TILES_LIST, 2, {4, 2}, {0, 2, 4, 6, 1, 3, 5, 7}},
    {"{devices=[2,2,2]7,6,5,4,3,2,1,0 last_tile_dims={manual}}",
     2,
     VT_TILES_LIST,
     3,
     {2, 2, 2},
     {7, 6, 5, 4, 3, 2, 1, 0}},
    {"{devices=[8]<=[8] metadata={op_name=\"a{b}\"}}",
     1,
     VT_TILES_LIST,
     1,
     {8},
     {0, 1, 2, 3, 4, 5, 6, 7}},
    {"{{replicated}, {manual}}", 0, VT_TILES_REPLICATED, 0, {0}, {0}},
};

static const struct {
  const char *text;
  uint32_t manual;
} subgroups[] = {
    {"{devices=[1,2,2]<=[4] last_tile_dim_replicate}", 0},
    {"{devices=[1,2,2]<=[4] last_tile_dims={manual, replicated}}", 2},
    {"{devices=[1,2,2]<=[4] last_tile_dims={replicated, manual}}", 1},
    {"{devices=[1,2,2]<=[4] last_tile_dims={manual,manual}}", 3},
    {"{devices=[1,4]<=[4] last_tile_dims={,;, }}", 0},
};

static const struct {
  const char *text;
  int64_t group; // -1: none
} groups[] = {
    {"{unknown shard_as 0}", 0},
    {"{replicated shard_like 12}", 12},
    {"{devices=[1,2,2]<=[4] last_tile_dim_replicate shard_as 3}", 3},
    {"{unknown}", -1},
    {"{devices=[4]<=[4] metadata={op_name=\" shard_as 1\"}}", -1},
};

static void gspmd_text_has_sharding_groups(void **state) {
  (void)state;
  for (size_t r = 0; r < sizeof groups / sizeof *groups; r++) {
    vt_arena arena = {0};
    vt_tile_assignment s;
    vt_status st =
        vt_tiles_parse(&arena, (vt_string){groups[r].text, strlen(groups[r].text)}, 1, &s);
    if (st) fail_msg("%s", vt_status_message(st));
    assert_int_equal(s.grouped ? s.group : -1, groups[r].group);
    vt_arena_free(&arena);
  }
}

static void gspmd_text_has_manual_subgroups(void **state) {
  (void)state;
  for (size_t r = 0; r < sizeof subgroups / sizeof *subgroups; r++) {
    vt_arena arena = {0};
    vt_tile_assignment s;
    vt_string text = {subgroups[r].text, strlen(subgroups[r].text)};
    vt_status st = vt_tiles_parse(&arena, text, 1, &s);
    if (st) fail_msg("%s", vt_status_message(st));
    assert_int_equal(s.manual, subgroups[r].manual);
    vt_arena_free(&arena);
  }
  static const char zeros[] = "{devices=[1,4]<=[4] last_tile_dims={ma\0nual\0}}";
  vt_arena arena = {0};
  vt_tile_assignment s;
  vt_status_free(vt_tiles_parse(&arena, (vt_string){zeros, sizeof zeros - 1}, 1, &s)); // it ends
  vt_arena_free(&arena);
}

static const char *const bad[] = {"",
                                  "{",
                                  "{{{{{{",
                                  "{devices=[2,4]}",
                                  "{devices=[2,4]<=[4]}",
                                  "{devices=[0]<=[0]}",
                                  "{devices=[2,4]<=[2,4]T(1,1)}",
                                  "{devices=[2]0}",
                                  "{maximal}",
                                  "{replicated",
                                  "{devices=[99999999999999999999]<=[1]}",
                                  "{devices=[8]<=[8]}",
                                  "{other}",
                                  "{devices=[2,2,2]<=[8]}",
                                  "{devices=[2,4]<=[8] last_tile_dims={manual",
                                  "{unknown shard_as}",
                                  "{unknown shard_as 0",
                                  "{devices=[2,4]<=[8] metadata={"};

static void gspmd_text_becomes_a_sharding(void **state) {
  (void)state;
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    vt_arena arena = {0};
    vt_tile_assignment s;
    vt_status st =
        vt_tiles_parse(&arena, (vt_string){rows[r].text, strlen(rows[r].text)}, rows[r].rank, &s);
    if (st) fail_msg("%s", vt_status_message(st));
    assert_int_equal((int)s.kind, rows[r].kind);
    assert_int_equal(s.tile_rank, rows[r].tile_rank);
    for (int32_t i = 0; i < s.tile_rank; i++) assert_int_equal(s.tile_dims[i], rows[r].tiles[i]);
    for (int64_t i = 0; i < s.device_count; i++) assert_int_equal(s.devices[i], rows[r].devices[i]);
    vt_arena_free(&arena);
  }
}

static void malformed_gspmd_text_is_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    vt_arena arena = {0};
    vt_tile_assignment s;
    vt_status st = vt_tiles_parse(&arena, (vt_string){bad[i], strlen(bad[i])}, 2, &s);
    if (!st) fail_msg("'%s' was accepted", bad[i]);
    vt_status_free(st);
    vt_arena_free(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gspmd_text_becomes_a_sharding),
                                     cmocka_unit_test(gspmd_text_has_manual_subgroups),
                                     cmocka_unit_test(gspmd_text_has_sharding_groups),
                                     cmocka_unit_test(malformed_gspmd_text_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
