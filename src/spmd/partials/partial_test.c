// SPDX-License-Identifier: Apache-2.0
// partial_test.c - programs on values that differ between devices are correct: for any partials of
// the parameters, joining each result's partials gives what the program computes on the joined
// parameters. Runs both with the evaluator, on small integers.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eval/eval.h"
#include "import/import.h"
#include "spmd/spmd.h"

enum { DEVICES = 8, MAX_IO = 4 };

// Programs over the mesh x = 4, y = 2. U and V are parameters that are unreduced along both axes
// and along x, C is sharded along x, R is replicated; UU, UV name such results. Bodies return.
static const struct {
  const char *name, *text;
} programs[] = {
    {"identity", "(%u: tensor<4x6xf32> {U2}) -> (tensor<4x6xf32> {U2}) {"
                 "  return %u : tensor<4x6xf32> }"},
    {"reduced", "(%u: tensor<4x6xf32> {U2}) -> (tensor<4x6xf32> {X2}, tensor<4x6xf32>) {"
                "  return %u, %u : tensor<4x6xf32>, tensor<4x6xf32> }"},
    {"some axes reduced", "(%u: tensor<4x6xf32> {U2}) -> (tensor<4x6xf32> {V2}) {"
                          "  return %u : tensor<4x6xf32> }"},
    {"more axes", "(%v: tensor<4x6xf32> {V2}) -> (tensor<4x6xf32> {U2}) {"
                  "  return %v : tensor<4x6xf32> }"},
    {"cut", "(%c: tensor<4x6xf32> {X2}) -> (tensor<4x6xf32> {U2}, tensor<4x6xf32> {V2}) {"
            "  return %c, %c : tensor<4x6xf32>, tensor<4x6xf32> }"},
    {"sums", "(%u: tensor<4x6xf32> {U2}, %v: tensor<4x6xf32> {V2}, %r: tensor<4x6xf32>)"
             " -> (tensor<4x6xf32> {U2}) {"
             "  %0 = stablehlo.add %u, %v : tensor<4x6xf32>"
             "  %1 = stablehlo.subtract %0, %r : tensor<4x6xf32>"
             "  %2 = stablehlo.negate %1 : tensor<4x6xf32>"
             "  %3 = sdy.sharding_constraint %2 <@m, [{}, {}], unreduced={\"x\", \"y\"}>"
             "    : tensor<4x6xf32>"
             "  return %3 : tensor<4x6xf32> }"},
    {"products", "(%u: tensor<4x6xf32> {U2}, %r: tensor<4x6xf32>) -> (tensor<4x6xf32> {U2}) {"
                 "  %0 = stablehlo.multiply %u, %r : tensor<4x6xf32>"
                 "  %1 = stablehlo.multiply %r, %0 : tensor<4x6xf32>"
                 "  %c = stablehlo.constant dense<2.0> : tensor<4x6xf32>"
                 "  %2 = stablehlo.divide %1, %c : tensor<4x6xf32>"
                 "  return %2 : tensor<4x6xf32> }"},
    {"square", "(%u: tensor<4x6xf32> {U2}) -> (tensor<4x6xf32> {U2}) {"
               "  %0 = stablehlo.multiply %u, %u : tensor<4x6xf32>"
               "  return %0 : tensor<4x6xf32> }"},
    {"not linear", "(%u: tensor<4x6xf32> {U2}, %r: tensor<4x6xf32>) -> (tensor<4x6xf32> {U2}) {"
                   "  %0 = stablehlo.maximum %u, %r : tensor<4x6xf32>"
                   "  %1 = stablehlo.abs %0 : tensor<4x6xf32>"
                   "  return %1 : tensor<4x6xf32> }"},
    {"choice", "(%u: tensor<4x6xf32> {U2}, %v: tensor<4x6xf32> {V2}, %p: tensor<i1>)"
               " -> (tensor<4x6xf32> {U2}) {"
               "  %0 = stablehlo.select %p, %u, %v : tensor<i1>, tensor<4x6xf32>"
               "  return %0 : tensor<4x6xf32> }"},
    {"moves", "(%u: tensor<4x6xf32> {U2}) -> (tensor<3x10xf32> {U2}) {"
              "  %0 = stablehlo.transpose %u, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>"
              "  %1 = stablehlo.reshape %0 : (tensor<6x4xf32>) -> tensor<3x8xf32>"
              "  %2 = stablehlo.reverse %1, dims = [1] : tensor<3x8xf32>"
              "  %3 = stablehlo.slice %2 [0:3, 1:7:2] : (tensor<3x8xf32>) -> tensor<3x3xf32>"
              "  %4 = stablehlo.concatenate %3, %1, dim = 1"
              "    : (tensor<3x3xf32>, tensor<3x8xf32>) -> tensor<3x11xf32>"
              "  %5 = stablehlo.slice %4 [0:3, 0:7] : (tensor<3x11xf32>) -> tensor<3x7xf32>"
              "  %z = stablehlo.constant dense<0.0> : tensor<f32>"
              "  %6 = stablehlo.pad %5, %z, low = [0, 1], high = [0, 2], interior = [0, 0]"
              "    : (tensor<3x7xf32>, tensor<f32>) -> tensor<3x10xf32>"
              "  return %6 : tensor<3x10xf32> }"},
    {"spread out", "(%u: tensor<6xf32> {U1}) -> (tensor<4x6xf32> {U2}) {"
                   "  %0 = stablehlo.broadcast_in_dim %u, dims = [1]"
                   "    : (tensor<6xf32>) -> tensor<4x6xf32>"
                   "  return %0 : tensor<4x6xf32> }"},
    {"padded with ones", "(%u: tensor<6xf32> {U1}) -> (tensor<7xf32> {U1}) {"
                         "  %o = stablehlo.constant dense<1.0> : tensor<f32>"
                         "  %0 = stablehlo.pad %u, %o, low = [0], high = [1], interior = [0]"
                         "    : (tensor<6xf32>, tensor<f32>) -> tensor<7xf32>"
                         "  return %0 : tensor<7xf32> }"},
    {"sum of a cut dimension",
     "(%c: tensor<8x6xf32> {XY2}) -> (tensor<6xf32> {U1}, tensor<6xf32> {V1}) {"
     "  %z = stablehlo.constant dense<0.0> : tensor<f32>"
     "  %0 = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [0]"
     "    : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>"
     "  return %0, %0 : tensor<6xf32>, tensor<6xf32> }"},
    {"sum of partials and a cut dimension",
     "(%c: tensor<8x6xf32> {XV2}) -> (tensor<6xf32> {U1}, tensor<f32> {U0}) {"
     "  %z = stablehlo.constant dense<0.0> : tensor<f32>"
     "  %0 = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [0]"
     "    : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>"
     "  %1 = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [1, 0]"
     "    : (tensor<8x6xf32>, tensor<f32>) -> tensor<f32>"
     "  return %0, %1 : tensor<6xf32>, tensor<f32> }"},
    {"sum that starts at one",
     "(%u: tensor<4x6xf32> {U2}) -> (tensor<6xf32> {U1}) {"
     "  %o = stablehlo.constant dense<1.0> : tensor<f32>"
     "  %0 = stablehlo.reduce(%u init: %o) applies stablehlo.add across dimensions = [0]"
     "    : (tensor<4x6xf32>, tensor<f32>) -> tensor<6xf32>"
     "  return %0 : tensor<6xf32> }"},
    {"contraction", "(%a: tensor<3x8xf32> {YX2T}, %b: tensor<8x5xf32>)"
                    " -> (tensor<3x5xf32> {U2}, tensor<3x5xf32> {V2}) {"
                    "  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0],"
                    "    precision = [HIGHEST, HIGHEST]"
                    "    : (tensor<3x8xf32>, tensor<8x5xf32>) -> tensor<3x5xf32>"
                    "  return %0, %0 : tensor<3x5xf32>, tensor<3x5xf32> }"},
    {"contraction of two dimensions with batches",
     "(%a: tensor<3x2x4x8xf32>, %b: tensor<8x2x5x4xf32> {B4}) -> (tensor<2x3x5xf32> {U3}) {"
     "  %0 = stablehlo.dot_general %a, %b, batching_dims = [1] x [1],"
     "    contracting_dims = [2, 3] x [3, 0], precision = [HIGHEST, HIGHEST]"
     "    : (tensor<3x2x4x8xf32>, tensor<8x2x5x4xf32>) -> tensor<2x3x5xf32>"
     "  return %0 : tensor<2x3x5xf32> }"},
    {"scatter of cut rows into partials",
     "(%u: tensor<6x4xf32> {U2}, %c: tensor<8x4xf32> {XY2})"
     " -> (tensor<6x4xf32> {U2}, tensor<6x4xf32> {V2}) {"
     "  %i = stablehlo.constant dense<[[0], [2], [5], [2], [1], [-1], [3], [9]]> : tensor<8x1xi32>"
     "  %0 = \"stablehlo.scatter\"(%u, %i, %c) <{indices_are_sorted = false,"
     "    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],"
     "    inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,"
     "    unique_indices = false}>"
     "    ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):"
     "      %s = stablehlo.add %p, %q : tensor<f32> stablehlo.return %s : tensor<f32> })"
     "    : (tensor<6x4xf32>, tensor<8x1xi32>, tensor<8x4xf32>) -> tensor<6x4xf32>"
     "  return %0, %0 : tensor<6x4xf32>, tensor<6x4xf32> }"},
    {"scatter by cut indices, sorted, without a vector",
     "(%n: tensor<8xf32> {X1}) -> (tensor<3x4xf32> {U2}) {"
     "  %0 = stablehlo.abs %n : tensor<8xf32>"
     "  %1 = stablehlo.convert %0 : (tensor<8xf32>) -> tensor<8xi32>"
     "  %z = stablehlo.constant dense<0.0> : tensor<3x4xf32>"
     "  %o = stablehlo.constant dense<2.0> : tensor<3x8x2xf32>"
     "  %2 = \"stablehlo.scatter\"(%z, %1, %o) <{indices_are_sorted = true,"
     "    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 2],"
     "    scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = false}>"
     "    ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):"
     "      %s = stablehlo.add %p, %q : tensor<f32> stablehlo.return %s : tensor<f32> })"
     "    : (tensor<3x4xf32>, tensor<8xi32>, tensor<3x8x2xf32>) -> tensor<3x4xf32>"
     "  return %2 : tensor<3x4xf32> }"},
    {"scatter with batches",
     "(%c: tensor<2x8x3xf32> {B3}) -> (tensor<2x5x3xf32> {U3}) {"
     "  %z = stablehlo.constant dense<0.0> : tensor<2x5x3xf32>"
     "  %i = stablehlo.constant dense<[[[0], [1], [4], [4], [1], [0], [2], [3]],"
     "    [[4], [4], [4], [0], [3], [5], [1], [2]]]> : tensor<2x8x1xi64>"
     "  %0 = \"stablehlo.scatter\"(%z, %i, %c) <{indices_are_sorted = false,"
     "    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2],"
     "    inserted_window_dims = [1], input_batching_dims = [0],"
     "    scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1],"
     "    index_vector_dim = 2>, unique_indices = false}>"
     "    ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):"
     "      %s = stablehlo.add %p, %q : tensor<f32> stablehlo.return %s : tensor<f32> })"
     "    : (tensor<2x5x3xf32>, tensor<2x8x1xi64>, tensor<2x8x3xf32>) -> tensor<2x5x3xf32>"
     "  return %0 : tensor<2x5x3xf32> }"},
    {"into a call and a loop",
     "(%u: tensor<4x6xf32> {U2}) -> (tensor<4x6xf32> {U2}) {"
     "  %0 = func.call @twice(%u) : (tensor<4x6xf32>) -> tensor<4x6xf32>"
     "  %i = stablehlo.constant dense<0> : tensor<i32>"
     "  %1:2 = stablehlo.while(%k = %i, %s = %0) : tensor<i32>, tensor<4x6xf32>"
     "    cond { %n = stablehlo.constant dense<3> : tensor<i32>"
     "      %l = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>"
     "      stablehlo.return %l : tensor<i1> }"
     "    do { %o = stablehlo.constant dense<1> : tensor<i32>"
     "      %m = stablehlo.add %k, %o : tensor<i32>"
     "      %t = stablehlo.add %s, %u : tensor<4x6xf32>"
     "      stablehlo.return %m, %t : tensor<i32>, tensor<4x6xf32> }"
     "  return %1#1 : tensor<4x6xf32> }"
     "func.func private @twice(%a: tensor<4x6xf32>) -> tensor<4x6xf32> {"
     "  %0 = stablehlo.add %a, %a : tensor<4x6xf32>"
     "  return %0 : tensor<4x6xf32> }"},
    {"manual sum", "(%u: tensor<4x6xf32> {U2}) -> (tensor<4x6xf32>) {"
                   "  %0 = sdy.manual_computation(%u)"
                   "    in_shardings=[<@m, [{}, {}], unreduced={\"x\", \"y\"}>]"
                   "    out_shardings=[<@m, [{}, {}], unreduced={\"x\", \"y\"}>]"
                   "    manual_axes={\"x\", \"y\"} (%a: tensor<4x6xf32>) {"
                   "    %1 = stablehlo.add %a, %a : tensor<4x6xf32>"
                   "    sdy.return %1 : tensor<4x6xf32>"
                   "  } : (tensor<4x6xf32>) -> tensor<4x6xf32>"
                   "  return %0 : tensor<4x6xf32> }"},
    {"manual over one axis", "(%r: tensor<4x6xf32>) -> (tensor<4x6xf32> {U2}) {"
                             "  %0 = sdy.manual_computation(%r)"
                             "    in_shardings=[<@m, [{}, {}], unreduced={\"x\"}>]"
                             "    out_shardings=[<@m, [{}, {}], unreduced={\"x\"}>]"
                             "    manual_axes={\"x\"} (%a: tensor<4x6xf32>) {"
                             "    %1 = stablehlo.negate %a : tensor<4x6xf32>"
                             "    sdy.return %1 : tensor<4x6xf32>"
                             "  } : (tensor<4x6xf32>) -> tensor<4x6xf32>"
                             "  return %0 : tensor<4x6xf32> }"},
};

static const struct {
  const char *key, *sharding;
} shardings[] = {
    {"{U0}", "[], unreduced={\"x\", \"y\"}"},
    {"{U1}", "[{}], unreduced={\"x\", \"y\"}"},
    {"{U2}", "[{}, {}], unreduced={\"x\", \"y\"}"},
    {"{U3}", "[{}, {}, {}], unreduced={\"x\", \"y\"}"},
    {"{V1}", "[{}], unreduced={\"x\"}"},
    {"{V2}", "[{}, {}], unreduced={\"x\"}"},
    {"{X1}", "[{\"x\"}]"},
    {"{B3}", "[{}, {\"x\"}, {}]"},
    {"{X2}", "[{\"x\"}, {\"y\"}]"},
    {"{XY2}", "[{\"x\", \"y\"}, {}]"},
    {"{XV2}", "[{\"x\"}, {}], unreduced={\"y\"}"},
    {"{YX2T}", "[{}, {\"y\", \"x\"}]"},
    {"{B4}", "[{\"y\"}, {}, {}, {\"x\"}]"},
};

// The program with its shardings written out.
static vt_module *read_program(const char *text) {
  vt_text out = {0};
  vt_module *module = NULL;
  vt_text_put(&out, "module @test attributes {mhlo.num_partitions = 8 : i32} {\n"
                    "sdy.mesh @m = <[\"x\"=4, \"y\"=2]>\nfunc.func public @main");
  while (*text) {
    size_t k = 0, count = sizeof shardings / sizeof *shardings;
    while (k < count && strncmp(text, shardings[k].key, strlen(shardings[k].key))) k++;
    if (k == count) {
      vt_text_printf(&out, "%c", *text++);
      continue;
    }
    vt_text_printf(&out, "{sdy.sharding = #sdy.sharding<@m, %s>}", shardings[k].sharding);
    text += strlen(shardings[k].key);
  }
  vt_text_put(&out, "\n}\n");
  vt_status st = vt_import((vt_bytes){(const uint8_t *)out.data, out.size}, &module);
  if (st) fail_msg("%s\n%s", vt_status_message(st), vt_text_string(&out));
  vt_text_free(&out);
  return module;
}

static vt_tensor new_tensor(vt_type type) {
  vt_tensor t = {type, calloc((size_t)vt_type_bytes(type) + 1, 1)};
  assert_non_null(t.data);
  return t;
}

static unsigned random_state = 1;
static int next_random(void) {
  random_state = random_state * 1103515245u + 12345u;
  return (int)(random_state >> 16 & 0x7FFF);
}

static void fill(vt_tensor t) {
  for (int64_t i = 0; i < vt_type_elements(t.type); i++) {
    if (t.type.dtype == VT_F32)
      ((float *)t.data)[i] = (float)(next_random() % 17 - 8);
    else
      ((uint8_t *)t.data)[i] = (uint8_t)(next_random() % 2);
  }
}

// Adds up the partials.
static void join(vt_tensor partials, int64_t count, vt_tensor out) {
  int64_t n = vt_type_elements(out.type);
  if (count == 1) {
    memcpy(out.data, partials.data, (size_t)vt_type_bytes(out.type));
    return;
  }
  memset(out.data, 0, (size_t)vt_type_bytes(out.type));
  for (int64_t i = 0; i < n * count; i++)
    ((float *)out.data)[i % n] += ((const float *)partials.data)[i];
}

static void run(const vt_module *module, const vt_tensor *args, vt_tensor *results) {
  vt_eval_env env = {.partition_count = DEVICES};
  vt_status st = vt_eval_func(module->main, &env, args, results);
  if (st) fail_msg("%s", vt_status_message(st));
}

static void check_program(const char *name, const char *text) {
  vt_arena arena = {0};
  vt_tiling *params, *results;
  vt_tensor args[MAX_IO], joined[MAX_IO], want[MAX_IO], got[MAX_IO];
  vt_module *plain = read_program(text), *module = read_program(text);
  const vt_func *main = module->main;
  vt_status st = vt_spmd_plan(module, DEVICES, &arena, &params, &results);
  if (!st) st = vt_spmd_expand_partials(module, DEVICES, &arena, params, results);
  if (!st) st = vt_module_verify(module);
  if (st) fail_msg("%s: %s", name, vt_status_message(st));
  for (uint32_t i = 0; i < main->param_count; i++) {
    args[i] = new_tensor(main->params[i]->type);
    joined[i] = new_tensor(plain->main->params[i]->type);
    assert_int_equal(vt_type_elements(args[i].type),
                     vt_type_elements(joined[i].type) * params[i].partials);
    fill(args[i]);
    join(args[i], params[i].partials, joined[i]);
  }
  for (uint32_t i = 0; i < main->return_count; i++) {
    got[i] = new_tensor(main->returns[i]->type);
    want[i] = new_tensor(plain->main->returns[i]->type);
  }
  // The plain program has no partials: a manual computation in it is the identity or a sign of its
  // operand, represented by the whole array.
  run(module, args, got);
  run(plain, joined, want);
  for (uint32_t i = 0; i < main->return_count; i++) {
    vt_tensor sum = new_tensor(want[i].type);
    join(got[i], results[i].partials, sum);
    for (int64_t k = 0; k < vt_type_elements(sum.type); k++)
      if (((float *)sum.data)[k] != ((float *)want[i].data)[k])
        fail_msg("%s: result %u, element %d is %g, expected %g", name, i, (int)k,
                 (double)((float *)sum.data)[k], (double)((float *)want[i].data)[k]);
    free(sum.data);
  }
  for (uint32_t i = 0; i < main->param_count; i++) free(args[i].data), free(joined[i].data);
  for (uint32_t i = 0; i < main->return_count; i++) free(got[i].data), free(want[i].data);
  vt_arena_free(&arena);
  vt_module_destroy(plain);
  vt_module_destroy(module);
}

static void versions_joined_mean_what_the_program_says(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    for (int round = 0; round < 3; round++) check_program(programs[i].name, programs[i].text);
}

// Which results of a manual computation differ is proven.
static void results_that_differ_are_proven(void **state) {
  (void)state;
  static const struct {
    const char *body;
    int64_t partials;
  } rows[] = {
      {"sdy.return %a : tensor<2xf32>", 8},
      {"%0 = stablehlo.constant dense<1.0> : tensor<2xf32> sdy.return %0 : tensor<2xf32>", 1},
      {"%0 = \"stablehlo.all_reduce\"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 1,"
       " type = 1>, replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>,"
       " use_global_device_ids}> ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):"
       " %s = stablehlo.add %p, %q : tensor<f32> stablehlo.return %s : tensor<f32> })"
       " : (tensor<2xf32>) -> tensor<2xf32> sdy.return %0 : tensor<2xf32>",
       2},
      {"%0 = \"stablehlo.all_reduce\"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 1,"
       " type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>,"
       " use_global_device_ids}> ({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):"
       " %s = stablehlo.add %p, %q : tensor<f32> stablehlo.return %s : tensor<f32> })"
       " : (tensor<2xf32>) -> tensor<2xf32> sdy.return %0 : tensor<2xf32>",
       1},
      // Half of the devices exchange data, the others do not: the result depends on y too.
      {"%c = stablehlo.constant dense<1.0> : tensor<2xf32>"
       " %0 = \"stablehlo.collective_permute\"(%c) <{channel_handle ="
       " #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs ="
       " dense<[[0, 2], [2, 0]]> : tensor<2x2xi64>}> : (tensor<2xf32>) -> tensor<2xf32>"
       " sdy.return %0 : tensor<2xf32>",
       8},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    vt_text text = {0};
    vt_arena arena = {0};
    vt_tiling *params, *results;
    vt_text_printf(&text,
                   "(%%c: tensor<16xf32>) -> (tensor<2xf32>) {"
                   "  %%0 = sdy.manual_computation(%%c) in_shardings=[<@m, [{\"x\", \"y\"}]>]"
                   "    out_shardings=[<@m, [{}]>] manual_axes={\"x\", \"y\"} (%%a: tensor<2xf32>)"
                   "    { %s } : (tensor<16xf32>) -> tensor<2xf32>"
                   "  return %%0 : tensor<2xf32> }",
                   rows[i].body);
    vt_module *module = read_program(vt_text_string(&text));
    vt_status st = vt_spmd_plan(module, DEVICES, &arena, &params, &results);
    if (!st) st = vt_spmd_expand_partials(module, DEVICES, &arena, params, results);
    if (!st) st = vt_module_verify(module);
    if (st) fail_msg("%s", vt_status_message(st));
    if (results[0].partials != rows[i].partials)
      fail_msg("row %zu has %d partials", i, (int)results[0].partials);
    vt_text_free(&text);
    vt_arena_free(&arena);
    vt_module_destroy(module);
  }
}

static void check_proto(const vt_tiling *tiling, const char *hex) {
  assert_int_equal(tiling->proto_size, strlen(hex) / 2);
  for (size_t i = 0; i < tiling->proto_size; i++) {
    char two[3];
    snprintf(two, sizeof two, "%02x", tiling->proto[i]);
    assert_memory_equal(hex + 2 * i, two, 2);
  }
}

// Which partial each device holds, and the message: types of the last tile dimensions after the
// devices, replicated before unreduced.
static void each_device_holds_its_version(void **state) {
  (void)state;
  static const int32_t along_y[] = {0, 1, 0, 1, 0, 1, 0, 1}, along_x[] = {0, 0, 1, 1, 2, 2, 3, 3};
  vt_arena arena = {0};
  vt_tiling *params, *results;
  vt_module *module = read_program("(%c: tensor<8x6xf32> {XV2}, %v: tensor<4x6xf32> {V2}) -> () {"
                                   "  return }");
  vt_status st = vt_spmd_plan(module, DEVICES, &arena, &params, &results);
  if (st) fail_msg("%s", vt_status_message(st));
  assert_int_equal(params[0].partials, 2);
  assert_memory_equal(params[0].partial_of_device, along_y, sizeof along_y);
  assert_int_equal(params[0].shard.dims[0], 2);
  check_proto(&params[0], "08031a0304010222080001020304050607420106");
  assert_int_equal(params[1].partials, 4);
  assert_memory_equal(params[1].partial_of_device, along_x, sizeof along_x);
  check_proto(&params[1], "08031a04010102042208000204060103050742020006");
  vt_arena_free(&arena);
  vt_module_destroy(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(versions_joined_mean_what_the_program_says),
      cmocka_unit_test(each_device_holds_its_version),
      cmocka_unit_test(results_that_differ_are_proven),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
