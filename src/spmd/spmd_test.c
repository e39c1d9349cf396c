// SPDX-License-Identifier: Apache-2.0
// spmd_test.c - tilings of shardings, and their OpSharding messages.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/text.h"
#include "import/import.h"
#include "import/sharding_text.h"
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

// Axes of both dimensions, the tile that each device holds, and the message.
static const struct {
  const vt_mesh *mesh;
  uint32_t count[2];
  vt_axis_ref refs[2][2];
  int32_t tiles[8];
  int64_t shard[2];
  const char *proto;
} rows[] = {
    {&mesh,
     {1, 1},
     {{X}, {Y}},
     {0, 1, 2, 3, 4, 5, 6, 7},
     {4, 3},
     "08031a02040222080001020304050607"},
    {&mesh,
     {1, 0},
     {{Y}},
     {0, 1, 0, 1, 0, 1, 0, 1},
     {8, 6},
     "08031a0302010422080002040601030507"
     "3001"},
    {&mesh, {2, 0}, {{Y, X}}, {0, 4, 1, 5, 2, 6, 3, 7}, {2, 6}, "08031a02080122080002040601030507"},
    {&mesh,
     {0, 1},
     {{{0}}, {X}},
     {0, 0, 1, 1, 2, 2, 3, 3},
     {16, 2},
     "08031a0301040222080001020304050607"
     "3001"},
    {&mesh,
     {1, 1},
     {{X_MIN}, {Y}},
     {0, 1, 2, 3, 0, 1, 2, 3},
     {8, 3},
     "08031a0302020222080004010502060307"
     "3001"},
    {&mesh,
     {1, 0},
     {{X_MAJ}},
     {0, 0, 0, 0, 1, 1, 1, 1},
     {8, 6},
     "08031a0302010422080001020304050607"
     "3001"},
    {&reversed,
     {1, 1},
     {{X}, {Y}},
     {7, 6, 5, 4, 3, 2, 1, 0},
     {4, 3},
     "08031a02040222080706050403020100"},
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

static void shardings_over_a_mesh_become_tiles(void **state) {
  (void)state;
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    vt_arena arena = {0};
    vt_dim_sharding d[2] = {{rows[r].count[0], rows[r].refs[0], true, -1},
                            {rows[r].count[1], rows[r].refs[1], true, -1}};
    vt_sharding s = {.kind = VT_SHARDING_MESH, .mesh = rows[r].mesh, .rank = 2, .dims = d};
    vt_tiling tiling;
    assert_null(vt_tiling_make(&s, NULL, 0, type, 8, &arena, &tiling));
    for (int i = 0; i < 8; i++) assert_int_equal(tiling.tile_of_device[i], rows[r].tiles[i]);
    for (int i = 0; i < 2; i++) assert_int_equal(tiling.shard.dims[i], rows[r].shard[i]);
    check_proto(&tiling, rows[r].proto);
    vt_arena_free(&arena);
  }
}

static void each_device_holds_its_range_of_the_array(void **state) {
  (void)state;
  vt_arena arena = {0};
  vt_axis_ref x = X, y = Y;
  vt_dim_sharding d[2] = {{1, &y, true, -1}, {1, &x, true, -1}};
  vt_sharding s = {.kind = VT_SHARDING_MESH, .mesh = &mesh, .rank = 2, .dims = d};
  vt_tiling t;
  int64_t offsets[2], sizes[2];
  assert_null(vt_tiling_make(&s, NULL, 0, type, 8, &arena, &t));
  vt_tiling_range(&t, 5, offsets, sizes); // x = 2, y = 1; 6 columns in 4 tiles of 2
  assert_int_equal(offsets[0], 8);
  assert_int_equal(offsets[1], 4);
  assert_int_equal(sizes[1], 2);
  vt_tiling_range(&t, 7, offsets, sizes); // the last tile is empty
  assert_int_equal(offsets[1], 6);
  assert_int_equal(sizes[1], 0);
  vt_string manual = {"y", 1};
  assert_null(vt_tiling_make(&s, &manual, 1, type, 8, &arena, &t));
  assert_int_equal(t.shard.dims[0], 8);
  assert_int_equal(t.shard.dims[1], 6);
  vt_arena_free(&arena);
}

static void one_device_may_hold_the_whole_array(void **state) {
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

// ---- propagation: what XLA chose ----------------------------------------------------------------

#define FIXTURES VTPU_SOURCE_DIR "/src/spmd/fixtures/"

static void plan_fixture(const char *name, vt_arena *arena, vt_tiling **out_results,
                         uint32_t *out_count) {
  char path[512];
  vt_bytes bytes = {0};
  vt_module *module = NULL;
  vt_tiling *params;
  snprintf(path, sizeof path, FIXTURES "%s.mlirbc", name);
  vt_status st = vt_file_map(path, &bytes);
  if (!st) st = vt_import(bytes, &module);
  if (!st) st = vt_spmd_plan(module, 8, arena, &params, out_results);
  if (st) fail_msg("%s: %s", name, vt_status_message(st));
  *out_count = module->main->return_count;
  for (uint32_t i = 0; i < *out_count; i++) { // data that the test reads must outlive the module
    vt_type *global = &(*out_results)[i].global;
    *global = vt_type_make(arena, global->dtype, global->rank, global->dims);
  }
  vt_module_destroy(module);
  vt_file_unmap(&bytes);
}

static void print_tiling(const vt_tiling *t) {
  for (int32_t d = 0; d < t->global.rank; d++)
    fprintf(stderr, "%s%d", d ? "," : "got [", (int)t->counts[d]);
  for (int32_t i = 0; i < t->device_count; i++)
    fprintf(stderr, "%s%d", i ? "," : "] tiles ", t->tile_of_device[i]);
  fprintf(stderr, "\n");
}

static bool is_expected(const vt_tiling *t, const vt_tile_assignment *want) {
  if (want->kind == VT_TILES_REPLICATED) return vt_tiling_is_replicated(t);
  int64_t tiles = 1;
  for (int32_t d = 0; d < t->global.rank; d++) {
    if (t->counts[d] != want->tile_dims[d]) return false;
    tiles *= want->tile_dims[d];
  }
  for (int64_t i = 0; i < want->device_count; i++)
    if (t->tile_of_device[want->devices[i]] != i / (want->device_count / tiles)) return false;
  return true;
}

// Lines of "name rank {sharding}": one per result of each program.
static void open_results_are_cut_as_xla_cuts_them(void **state) {
  (void)state;
  FILE *file = fopen(FIXTURES "expected.txt", "r");
  char line[512], name[128], current[128] = "";
  vt_arena arena = {0};
  vt_tiling *results = NULL;
  uint32_t count = 0, at = 0, wrong = 0;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    int rank, offset;
    assert_int_equal(sscanf(line, "%127s %d %n", name, &rank, &offset), 2);
    if (strcmp(name, current)) {
      assert_int_equal(at, count);
      plan_fixture(name, &arena, &results, &count);
      strcpy(current, name);
      at = 0;
    }
    assert_true(at < count);
    vt_tile_assignment want;
    assert_null(vt_tiles_parse(&arena, (vt_string){line + offset, strcspn(line + offset, "\n")},
                               rank, &want));
    if (!is_expected(&results[at], &want)) {
      fprintf(stderr, "result %u: XLA says %s", at, line);
      print_tiling(&results[at]);
      wrong++;
    }
    at++;
  }
  fclose(file);
  vt_arena_free(&arena);
  assert_int_equal(wrong, 0);
}

// GSPMD's textual shardings give the same tilings: for an argument, an op, a result.
static void gspmd_text_leads_to_the_same_tiles(void **state) {
  (void)state;
  static const char text[] =
      "module attributes {mhlo.num_partitions = 8 : i32} {\n"
      "  func.func @main(%x: tensor<8x4xf32> {mhlo.sharding = \"{devices=[1,4,2]<=[2,4]T(1,0) "
      "last_tile_dim_replicate}\"},\n"
      "      %y: tensor<8x4xf32> {mhlo.sharding = \"{maximal device=5}\"}) -> (tensor<8x4xf32>, "
      "tensor<4x8xf32>,\n"
      "      tensor<8x4xf32> {mhlo.sharding = \"{devices=[8,1]0,2,1,3,4,6,5,7}\"}) {\n"
      "    %0 = stablehlo.tanh %x {mhlo.sharding = \"{devices=[2,4]<=[8]}\"} : tensor<8x4xf32>\n"
      "    %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>\n"
      "    return %0, %1, %y : tensor<8x4xf32>, tensor<4x8xf32>, tensor<8x4xf32> } }";
  vt_arena arena = {0};
  vt_module *module = NULL;
  vt_tiling *params, *results;
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text, sizeof text - 1}, &module);
  if (!st) st = vt_spmd_plan(module, 8, &arena, &params, &results);
  if (st) fail_msg("%s", vt_status_message(st));
  check_proto(&params[0], "08031a030104022208"
                          "0004010502060307"
                          "3001");
  check_proto(&params[1], "08011a0101220105");
  check_proto(&results[0], "08031a02020422080001020304050607");
  check_proto(&results[1], "08031a02040222080004010502060307");
  check_proto(&results[2], "08031a02080122080002010304060507");
  vt_arena_free(&arena);
  vt_module_destroy(module);
}

// ---- calls of elementwise functions -------------------------------------------------------------

enum { LINES = 40 };

// A function of an array and a scalar that is called twice on arrays cut in four, with `first` as
// its first operation and `last` as its last, on `array`.
static vt_module *import_calls(const char *first, const char *last, const char *array, int lines) {
  vt_text text = {0};
  vt_module *module = NULL;
  vt_text_printf(
      &text,
      "module attributes {mhlo.num_partitions = 4 : i32} {\n"
      "  sdy.mesh @mesh = <[\"x\"=4]>\n"
      "  func.func @main(%%x: tensor<8x8xui32> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, "
      "{}]>},\n"
      "      %%s: tensor<ui32>) -> (tensor<8x8xui32>, tensor<8x8xui32>) {\n"
      "    %%c = stablehlo.constant dense<5> : tensor<8x8xui32>\n"
      "    %%k = stablehlo.constant dense<7> : tensor<ui32>\n"
      "    %%0 = call @f(%%x, %%s) : (tensor<8x8xui32>, tensor<ui32>) -> tensor<8x8xui32>\n"
      "    %%1 = call @f(%s) : (tensor<8x8xui32>, tensor<ui32>) -> tensor<8x8xui32>\n"
      "    return %%0, %%1 : tensor<8x8xui32>, tensor<8x8xui32> }\n"
      "  func.func private @f(%%v: tensor<8x8xui32>, %%s: tensor<ui32>) -> tensor<8x8xui32> {\n"
      "    %%b = stablehlo.broadcast_in_dim %%s, dims = [] : (tensor<ui32>) -> tensor<8x8xui32>\n"
      "    %%0 = %s : tensor<8x8xui32>\n",
      array, first);
  for (int i = 0; i < lines; i++)
    vt_text_printf(&text, "    %%%d = stablehlo.add %%%d, %%b : tensor<8x8xui32>\n", i + 1, i);
  vt_text_printf(&text, "    %%last = %s\n    return %%last : tensor<8x8xui32> } }", last);
  vt_status st = vt_import((vt_bytes){(const uint8_t *)text.data, text.size}, &module);
  if (st) fail_msg("%s", vt_status_message(st));
  vt_text_free(&text);
  return module;
}

static int count_code(const vt_func *func, vt_opcode code) {
  int count = 0;
  for (const vt_op *op = func->first; op; op = op->next) count += op->code == code;
  return count;
}

#define XOR_OF(value) "stablehlo.xor " value ", %b"
#define SAME          "stablehlo.not %40 : tensor<8x8xui32>"

static void calls_of_elementwise_functions_stay(void **state) {
  (void)state;
  static const struct {
    const char *first, *last, *second_call;
    int lines, calls;
  } cases[] = {
      {XOR_OF("%v"), SAME, "%0, %s", LINES, 2},
      // of constants alone
      {XOR_OF("%v"), SAME, "%c, %k", LINES, 1},
      // short
      {XOR_OF("%v"), "stablehlo.not %3 : tensor<8x8xui32>", "%0, %s", 3, 0},
      // dimensions change places
      {XOR_OF("%v"),
       "stablehlo.transpose %40, dims = [1, 0] : (tensor<8x8xui32>) -> tensor<8x8xui32>", "%0, %s",
       LINES, 0},
      // an array that has nothing to do with the result
      {XOR_OF("%b"), SAME, "%0, %s", LINES, 0},
      // a stated sharding
      {"stablehlo.xor %v, %b {mhlo.sharding = \"{replicated}\"}", SAME, "%0, %s", LINES, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    vt_module *module =
        import_calls(cases[i].first, cases[i].last, cases[i].second_call, cases[i].lines);
    vt_spmd_inline(module, true);
    assert_int_equal(count_code(module->main, VT_OP_CALL), cases[i].calls);
    assert_int_equal(module->func_count, cases[i].calls ? 2 : 1);
    vt_status st = vt_spmd_annotate(module, 4);
    if (!st) st = vt_spmd_partition(module, 4, NULL);
    if (st) fail_msg("%s", vt_status_message(st));
    const vt_func *main = module->main;
    assert_int_equal(count_code(main, VT_OP_CALL), 0);
    assert_int_equal(count_code(main, VT_OP_ADD), 2 * cases[i].lines);
    if (cases[i].calls) assert_int_equal(main->returns[0]->type.dims[0], 2);
    vt_module_destroy(module);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shardings_over_a_mesh_become_tiles),
      cmocka_unit_test(each_device_holds_its_range_of_the_array),
      cmocka_unit_test(one_device_may_hold_the_whole_array),
      cmocka_unit_test(open_results_are_cut_as_xla_cuts_them),
      cmocka_unit_test(gspmd_text_leads_to_the_same_tiles),
      cmocka_unit_test(calls_of_elementwise_functions_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
