// SPDX-License-Identifier: Apache-2.0
// contract_grid.c - programs of several replicas, of several partitions that each run the program
// on their own arrays, and of both: the meaning of ids and replica groups there.
#include "contract.h"

#include <stdlib.h>
#include <string.h>

static const int64_t four[] = {4};

static void check_counts(PJRT_LoadedExecutable *loaded, size_t replicas, size_t partitions) {
  ARGS(LoadedExecutable_GetExecutable, get);
  get.loaded_executable = loaded;
  plugin_ok(P, SLOT_LoadedExecutable_GetExecutable, &get);
  ARGS(Executable_NumReplicas, r);
  r.executable = get.executable;
  plugin_ok(P, SLOT_Executable_NumReplicas, &r);
  assert_int_equal(r.num_replicas, replicas);
  ARGS(Executable_NumPartitions, p);
  p.executable = get.executable;
  plugin_ok(P, SLOT_Executable_NumPartitions, &p);
  assert_int_equal(p.num_partitions, partitions);
  ARGS(Executable_Destroy, destroy);
  destroy.executable = get.executable;
  plugin_ok(P, SLOT_Executable_Destroy, &destroy);
}

// Four replicas: each runs the program on its own argument; collectives without a channel are
// between replicas.
#define REPLICAS                                                                                   \
  "module @replicas attributes {mhlo.num_replicas = 4 : i32, mhlo.num_partitions = 1 : i32} {\n"   \
  "  func.func public @main(%x: tensor<4xf32>) -> (tensor<ui32>, tensor<4xf32>, tensor<8xf32>, "   \
  "tensor<4xf32>, tensor<4xf32>, tensor<2xf32>) {\n"                                               \
  "    %id = stablehlo.replica_id : tensor<ui32>\n"                                                \
  "    %sum = \"stablehlo.all_reduce\"(%x) <{replica_groups = dense<[[0, 3], [1, 2]]> : "          \
  "tensor<2x2xi64>}> ({\n"                                                                         \
  "    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                  \
  "      %s = stablehlo.add %a, %b : tensor<f32>\n"                                                \
  "      stablehlo.return %s : tensor<f32>\n"                                                      \
  "    }) : (tensor<4xf32>) -> tensor<4xf32>\n"                                                    \
  "    %all = \"stablehlo.all_gather\"(%x) <{all_gather_dim = 0 : i64, replica_groups = "          \
  "dense<[[0, 3], [1, 2]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32>\n"               \
  "    %swap = \"stablehlo.all_to_all\"(%x) <{split_dimension = 0 : i64, concat_dimension = 0 "    \
  ": i64, split_count = 4 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> : "    \
  "(tensor<4xf32>) -> tensor<4xf32>\n"                                                             \
  "    %next = \"stablehlo.collective_permute\"(%x) <{source_target_pairs = dense<[[0, 1], [1, "   \
  "2], [2, 3]]> : tensor<3x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>\n"                          \
  "    %part = \"stablehlo.reduce_scatter\"(%x) <{scatter_dimension = 0 : i64, replica_groups = "  \
  "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> ({\n"                                               \
  "    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                  \
  "      %s = stablehlo.add %a, %b : tensor<f32>\n"                                                \
  "      stablehlo.return %s : tensor<f32>\n"                                                      \
  "    }) : (tensor<4xf32>) -> tensor<2xf32>\n"                                                    \
  "    return %id, %sum, %all, %swap, %next, %part : tensor<ui32>, tensor<4xf32>, "                \
  "tensor<8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2xf32>\n"                                   \
  "  }\n"                                                                                          \
  "}\n"

// Element i of what replica d starts with.
static float own(int d, int i) {
  return (float)(10 * d + i);
}

static void check_replica(int d, PJRT_Buffer *const *outs) {
  static const int partner[4] = {3, 2, 1, 0};
  uint32_t id;
  float sum[4], all[8], swap[4], next[4], part[2];
  plugin_fetch(P, outs[0], &id, sizeof id);
  plugin_fetch(P, outs[1], sum, sizeof sum);
  plugin_fetch(P, outs[2], all, sizeof all);
  plugin_fetch(P, outs[3], swap, sizeof swap);
  plugin_fetch(P, outs[4], next, sizeof next);
  plugin_fetch(P, outs[5], part, sizeof part);
  assert_int_equal(id, d);
  int p = partner[d], low = d < p ? d : p, even = d & ~1;
  for (int i = 0; i < 4; i++) {
    assert_true(sum[i] == own(d, i) + own(p, i));
    assert_true(all[i] == own(low, i) && all[4 + i] == own(3 - low, i));
    assert_true(swap[i] == own(i, d));
    assert_true(next[i] == (d ? own(d - 1, i) : 0));
  }
  for (int i = 0; i < 2; i++) {
    int at = 2 * (d & 1) + i;
    assert_true(part[i] == own(even, at) + own(even + 1, at));
  }
}

static void replicas_run_on_their_own_arrays(void **state) {
  (void)state;
  PJRT_LoadedExecutable *loaded = plugin_compile_grid(P, CLIENT, REPLICAS, 4, 1, false);
  check_counts(loaded, 4, 1);
  PJRT_Buffer *args[4][1], *outs[4][6], **results[4];
  PJRT_Buffer *const *arguments[4];
  for (int d = 0; d < 4; d++) {
    const float x[4] = {own(d, 0), own(d, 1), own(d, 2), own(d, 3)};
    args[d][0] = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, d), 11, 1, four, x);
    arguments[d] = args[d];
    results[d] = outs[d];
  }
  for (int again = 0; again < 2; again++) {
    assert_null(plugin_execute(P, loaded, 4, 1, arguments, results));
    for (int d = 0; d < 4; d++) {
      check_replica(d, outs[d]);
      for (int r = 0; r < 6; r++) plugin_buffer_destroy(P, outs[d][r]);
    }
  }
  for (int d = 0; d < 4; d++) plugin_buffer_destroy(P, args[d][0]);
  plugin_executable_destroy(P, loaded);
}

// Two replicas of two partitions, device = replica * 2 + partition, and a region that is manual
// over the partitions. The four ways to read groups: replicas, for each partition; replicas with
// all their partitions; devices; partitions, for each replica.
#define GRID                                                                                       \
  "module @grid attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 2 : i32} {\n"       \
  "  sdy.mesh @mesh = <[\"p\"=2]>\n"                                                               \
  "  func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, "               \
  "[{\"p\"}]>}) -> (tensor<2xui32>, tensor<2xui32>, tensor<4xf32>, tensor<4xf32>, "                \
  "tensor<4xf32>, tensor<16xf32>, tensor<4xf32>, tensor<4xf32>) {\n"                               \
  "    %m:8 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{\"p\"}]>] "                       \
  "out_shardings=[<@mesh, [{\"p\"}]>, <@mesh, [{\"p\"}]>, <@mesh, [{\"p\"}]>, <@mesh, "            \
  "[{\"p\"}]>, <@mesh, [{\"p\"}]>, <@mesh, [{\"p\"}]>, <@mesh, [{\"p\"}]>, <@mesh, "               \
  "[{\"p\"}]>] manual_axes={\"p\"} (%l: tensor<2xf32>) {\n"                                        \
  "      %r = stablehlo.replica_id : tensor<ui32>\n"                                               \
  "      %p = stablehlo.partition_id : tensor<ui32>\n"                                             \
  "      %r1 = stablehlo.reshape %r : (tensor<ui32>) -> tensor<1xui32>\n"                          \
  "      %p1 = stablehlo.reshape %p : (tensor<ui32>) -> tensor<1xui32>\n"                          \
  "      %each = \"stablehlo.all_reduce\"(%l) <{replica_groups = dense<[[0, 1]]> : "               \
  "tensor<1x2xi64>}> ({\n"                                                                         \
  "      ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                \
  "        %s = stablehlo.add %a, %b : tensor<f32>\n"                                              \
  "        stablehlo.return %s : tensor<f32>\n"                                                    \
  "      }) : (tensor<2xf32>) -> tensor<2xf32>\n"                                                  \
  "      %all = \"stablehlo.all_reduce\"(%l) <{channel_handle = "                                  \
  "#stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0], [1]]> : "         \
  "tensor<2x1xi64>}> ({\n"                                                                         \
  "      ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                \
  "        %s = stablehlo.add %a, %b : tensor<f32>\n"                                              \
  "        stablehlo.return %s : tensor<f32>\n"                                                    \
  "      }) : (tensor<2xf32>) -> tensor<2xf32>\n"                                                  \
  "      %dev = \"stablehlo.all_reduce\"(%l) <{channel_handle = "                                  \
  "#stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 3], [1, "          \
  "2]]> : tensor<2x2xi64>, use_global_device_ids}> ({\n"                                           \
  "      ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                \
  "        %s = stablehlo.add %a, %b : tensor<f32>\n"                                              \
  "        stablehlo.return %s : tensor<f32>\n"                                                    \
  "      }) : (tensor<2xf32>) -> tensor<2xf32>\n"                                                  \
  "      %row = \"stablehlo.all_gather\"(%l) <{all_gather_dim = 0 : i64, channel_handle = "        \
  "#stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[1, 0]]> : "           \
  "tensor<1x2xi64>}> : (tensor<2xf32>) -> tensor<8xf32>\n"                                         \
  "      %pp = \"stablehlo.collective_permute\"(%l) <{channel_handle = "                           \
  "#stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1], "         \
  "[1, 0]]> : tensor<2x2xi64>}> : (tensor<2xf32>) -> tensor<2xf32>\n"                              \
  "      %rp = \"stablehlo.collective_permute\"(%l) <{source_target_pairs = dense<[[0, "           \
  "1]]> : tensor<1x2xi64>}> : (tensor<2xf32>) -> tensor<2xf32>\n"                                  \
  "      sdy.return %r1, %p1, %each, %all, %dev, %row, %pp, %rp : tensor<1xui32>, "                \
  "tensor<1xui32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<8xf32>, "                   \
  "tensor<2xf32>, tensor<2xf32>\n"                                                                 \
  "    } : (tensor<4xf32>) -> (tensor<2xui32>, tensor<2xui32>, tensor<4xf32>, "                    \
  "tensor<4xf32>, tensor<4xf32>, tensor<16xf32>, tensor<4xf32>, tensor<4xf32>)\n"                  \
  "    return %m#0, %m#1, %m#2, %m#3, %m#4, %m#5, %m#6, %m#7 : tensor<2xui32>, "                   \
  "tensor<2xui32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<16xf32>, "                  \
  "tensor<4xf32>, tensor<4xf32>\n"                                                                 \
  "  }\n"                                                                                          \
  "}\n"

static void check_grid(int d, PJRT_Buffer *const *outs) {
  uint32_t r, p;
  float each[2], all[2], dev[2], row[8], pp[2], rp[2];
  plugin_fetch(P, outs[0], &r, sizeof r);
  plugin_fetch(P, outs[1], &p, sizeof p);
  plugin_fetch(P, outs[2], each, sizeof each);
  plugin_fetch(P, outs[3], all, sizeof all);
  plugin_fetch(P, outs[4], dev, sizeof dev);
  plugin_fetch(P, outs[5], row, sizeof row);
  plugin_fetch(P, outs[6], pp, sizeof pp);
  plugin_fetch(P, outs[7], rp, sizeof rp);
  assert_int_equal(r, d / 2);
  assert_int_equal(p, d % 2);
  static const int in_row[4] = {2, 3, 0, 1};
  for (int i = 0; i < 2; i++) {
    assert_true(each[i] == own(d, i) + own(d ^ 2, i));
    assert_true(all[i] == own(d, i) + own(d ^ 1, i));
    assert_true(dev[i] == own(d, i) + own(3 - d, i));
    for (int k = 0; k < 4; k++) assert_true(row[2 * k + i] == own(in_row[k], i));
    assert_true(pp[i] == own(d ^ 1, i));
    assert_true(rp[i] == (d < 2 ? 0 : own(d - 2, i)));
  }
}

// Runs on the first `devices` devices, each with its own x of two elements; frees the results.
static void run_own(PJRT_LoadedExecutable *loaded, int devices, int results,
                    void (*check)(int device, PJRT_Buffer *const *outs)) {
  enum { MOST = 8 };
  static const int64_t two[] = {2};
  PJRT_Buffer *args[MOST][1], *outs[MOST][MOST], **lists[MOST] = {0};
  PJRT_Buffer *const *arguments[MOST] = {0};
  for (int d = 0; d < devices; d++) {
    const float x[2] = {own(d, 0), own(d, 1)};
    args[d][0] = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, d), 11, 1, two, x);
    arguments[d] = args[d];
    lists[d] = outs[d];
  }
  assert_null(plugin_execute(P, loaded, (size_t)devices, 1, arguments, lists));
  for (int d = 0; d < devices; d++) {
    check(d, outs[d]);
    for (int r = 0; r < results; r++) plugin_buffer_destroy(P, outs[d][r]);
    plugin_buffer_destroy(P, args[d][0]);
  }
}

static void replicas_of_partitions_form_a_grid(void **state) {
  (void)state;
  PJRT_LoadedExecutable *loaded = plugin_compile_grid(P, CLIENT, GRID, 2, 2, true);
  check_counts(loaded, 2, 2);
  run_own(loaded, 4, 8, check_grid);
  plugin_executable_destroy(P, loaded);
}

// Two replicas of one program on whole arrays, each sharded over four partitions: one half of the
// mesh's axes manually, the other by propagation. %all is between the replicas.
#define CUT                                                                                        \
  "module @cut attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 4 : i32} {\n"        \
  "  sdy.mesh @mesh = <[\"x\"=2, \"y\"=2]>\n"                                                      \
  "  func.func public @main(%x: tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, "   \
  "{\"y\"}]>}) -> (tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, {\"y\"}]>}, "    \
  "tensor<2x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"y\"}]>}) {\n"                      \
  "    %half = sdy.manual_computation(%x) in_shardings=[<@mesh, [{\"x\"}, {?}]>] "                 \
  "out_shardings=[<@mesh, [{}, {?}]>] manual_axes={\"x\"} (%l: tensor<2x2xf32>) {\n"               \
  "      %sum = \"stablehlo.all_reduce\"(%l) <{channel_handle = #stablehlo.channel_handle<handle " \
  "= 1, type = 1>, replica_groups = dense<[[0, 2], [1, 3], [4, 6], [5, 7]]> : tensor<4x2xi64>, "   \
  "use_global_device_ids}> ({\n"                                                                   \
  "      ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                \
  "        %s = stablehlo.add %a, %b : tensor<f32>\n"                                              \
  "        stablehlo.return %s : tensor<f32>\n"                                                    \
  "      }) : (tensor<2x2xf32>) -> tensor<2x2xf32>\n"                                              \
  "      sdy.return %sum : tensor<2x2xf32>\n"                                                      \
  "    } : (tensor<4x2xf32>) -> tensor<2x2xf32>\n"                                                 \
  "    %all = \"stablehlo.all_reduce\"(%x) <{replica_groups = dense<[[0, 1]]> : "                  \
  "tensor<1x2xi64>}> "                                                                             \
  "({\n"                                                                                           \
  "    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                  \
  "      %s = stablehlo.add %a, %b : tensor<f32>\n"                                                \
  "      stablehlo.return %s : tensor<f32>\n"                                                      \
  "    }) : (tensor<4x2xf32>) -> tensor<4x2xf32>\n"                                                \
  "    return %all, %half : tensor<4x2xf32>, tensor<2x2xf32>\n"                                    \
  "  }\n"                                                                                          \
  "}\n"

// Element (i, j) of replica r's array.
static float cell(int r, int i, int j) {
  return (float)(100 * r + 10 * i + j);
}

static void arguments_are_cut_over_partitions(void **state) {
  (void)state;
  enum { DEVICES = 8 };
  static const int64_t tile[] = {2, 1};
  PJRT_LoadedExecutable *loaded = plugin_compile_grid(P, CLIENT, CUT, 2, 4, true);
  check_counts(loaded, 2, 4);
  PJRT_Buffer *args[DEVICES][1], *outs[DEVICES][2], **lists[DEVICES];
  PJRT_Buffer *const *arguments[DEVICES];
  for (int d = 0; d < DEVICES; d++) {
    int r = d / 4, x = d / 2 % 2, y = d % 2;
    const float own_part[2] = {cell(r, 2 * x, y), cell(r, 2 * x + 1, y)};
    args[d][0] = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, d), 11, 2, tile, own_part);
    arguments[d] = args[d];
    lists[d] = outs[d];
  }
  assert_null(plugin_execute(P, loaded, DEVICES, 1, arguments, lists));
  for (int d = 0; d < DEVICES; d++) {
    int r = d / 4, x = d / 2 % 2, y = d % 2;
    float all[2], half[2];
    plugin_fetch(P, outs[d][0], all, sizeof all);
    plugin_fetch(P, outs[d][1], half, sizeof half);
    for (int i = 0; i < 2; i++) {
      assert_true(all[i] == cell(0, 2 * x + i, y) + cell(1, 2 * x + i, y));
      assert_true(half[i] == cell(r, i, y) + cell(r, 2 + i, y));
    }
    for (int k = 0; k < 2; k++) plugin_buffer_destroy(P, outs[d][k]);
    plugin_buffer_destroy(P, args[d][0]);
  }
  plugin_executable_destroy(P, loaded);
}

// A parameter and a result that are on device 2 alone: what the other devices have is not read, and
// stays.
#define OWNED                                                                                      \
  "module @owned attributes {mhlo.num_partitions = 4 : i32} {\n"                                   \
  "  sdy.mesh @mesh = <[\"x\"=4]>\n"                                                               \
  "  sdy.mesh @one = <[], device_ids=[2]>\n"                                                       \
  "  func.func public @main(%o: tensor<4xf32> {sdy.sharding = #sdy.sharding<@one, []>}, "          \
  "%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}]>}) -> "                        \
  "(tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}]>}, tensor<4xf32> {sdy.sharding "  \
  "= #sdy.sharding<@one, []>}) {\n"                                                                \
  "    %sum = stablehlo.add %o, %x : tensor<4xf32>\n"                                              \
  "    %product = stablehlo.multiply %o, %x : tensor<4xf32>\n"                                     \
  "    return %sum, %product : tensor<4xf32>, tensor<4xf32>\n"                                     \
  "  }\n"                                                                                          \
  "}\n"

static void run_owned(void) {
  enum { DEVICES = 4, OWNER = 2 };
  static const int64_t one[] = {1};
  PJRT_LoadedExecutable *loaded = plugin_compile_grid(P, CLIENT, OWNED, 1, DEVICES, true);
  PJRT_Buffer *args[DEVICES][2], *outs[DEVICES][2], **lists[DEVICES];
  PJRT_Buffer *const *arguments[DEVICES];
  float o[4];
  for (int d = 0; d < DEVICES; d++) {
    const float x = 2 * (float)d;
    for (int i = 0; i < 4; i++) o[i] = own(d, i);
    args[d][0] = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, d), 11, 1, four, o);
    args[d][1] = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, d), 11, 1, one, &x);
    arguments[d] = args[d];
    lists[d] = outs[d];
  }
  for (int round = 0; round < 2; round++) {
    assert_null(plugin_execute(P, loaded, DEVICES, 2, arguments, lists));
    for (int d = 0; d < DEVICES; d++) {
      float sum, product[4];
      plugin_fetch(P, outs[d][0], &sum, sizeof sum);
      plugin_fetch(P, outs[d][1], product, sizeof product);
      plugin_fetch(P, args[d][0], o, sizeof o);
      assert_true(sum == own(OWNER, d) + 2 * (float)d);
      for (int i = 0; i < 4; i++) {
        assert_true(d != OWNER || product[i] == own(OWNER, i) * 2 * (float)i);
        assert_true(o[i] == own(d, i));
      }
      for (int k = 0; k < 2; k++) plugin_buffer_destroy(P, outs[d][k]);
    }
  }
  for (int d = 0; d < DEVICES; d++)
    for (int k = 0; k < 2; k++) plugin_buffer_destroy(P, args[d][k]);
  plugin_executable_destroy(P, loaded);
}

static void one_device_owns_a_parameter(void **state) {
  (void)state;
  run_owned();
  setenv("VTPU_PARTITIONED", "1", 1);
  run_owned();
  unsetenv("VTPU_PARTITIONED");
}

int contract_grid(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(replicas_run_on_their_own_arrays),
      cmocka_unit_test(replicas_of_partitions_form_a_grid),
      cmocka_unit_test(arguments_are_cut_over_partitions),
      cmocka_unit_test(one_device_owns_a_parameter),
  };
  return cmocka_run_group_tests_name("grids", tests, contract_setup, contract_teardown);
}
