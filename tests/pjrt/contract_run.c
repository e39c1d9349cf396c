// SPDX-License-Identifier: Apache-2.0
// contract_run.c - programs: compiled, queried, run on one device and several, with donation,
// serialised, destroyed in any order; and the events of all this.
#include "contract.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ADD                                                                                        \
  "module @sums {\n"                                                                               \
  "  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>)\n"                               \
  "      -> (tensor<4xf32>, tensor<f32>) {\n"                                                      \
  "    %0 = stablehlo.add %a, %b : tensor<4xf32>\n"                                                \
  "    %z = stablehlo.constant dense<0.0> : tensor<f32>\n"                                         \
  "    %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0]\n"         \
  "        : (tensor<4xf32>, tensor<f32>) -> tensor<f32>\n"                                        \
  "    return %0, %1 : tensor<4xf32>, tensor<f32>\n"                                               \
  "  }\n"                                                                                          \
  "}\n"
// The first argument is donated.
#define DONATE                                                                                     \
  "module @donate {\n"                                                                             \
  "  func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32},\n"                   \
  "                         %b: tensor<4xf32>) -> tensor<4xf32> {\n"                               \
  "    %0 = stablehlo.add %a, %b : tensor<4xf32>\n"                                                \
  "    return %0 : tensor<4xf32>\n"                                                                \
  "  }\n"                                                                                          \
  "}\n"
// A quarter of the array on each of four devices, and its sum on all.
#define SHARDED                                                                                    \
  "module @sharded attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {\n"    \
  "  func.func public @main(\n"                                                                    \
  "      %a: tensor<8xf32> {mhlo.sharding = \"{devices=[4]<=[4]}\"})\n"                            \
  "      -> (tensor<8xf32> {mhlo.sharding = \"{devices=[4]<=[4]}\"},\n"                            \
  "          tensor<f32> {mhlo.sharding = \"{replicated}\"}) {\n"                                  \
  "    %0 = stablehlo.add %a, %a : tensor<8xf32>\n"                                                \
  "    %z = stablehlo.constant dense<0.0> : tensor<f32>\n"                                         \
  "    %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0]\n"         \
  "        : (tensor<8xf32>, tensor<f32>) -> tensor<f32>\n"                                        \
  "    return %0, %1 : tensor<8xf32>, tensor<f32>\n"                                               \
  "  }\n"                                                                                          \
  "}\n"
// Long enough to be still running at the next call: counts to a million.
#define SLOW                                                                                       \
  "module @slow {\n"                                                                               \
  "  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"                               \
  "    %i = stablehlo.constant dense<0> : tensor<i32>\n"                                           \
  "    %n = stablehlo.constant dense<20000> : tensor<i32>\n"                                       \
  "    %s = stablehlo.constant dense<1> : tensor<i32>\n"                                           \
  "    %one = stablehlo.constant dense<1.0> : tensor<4xf32>\n"                                     \
  "    %r:2 = stablehlo.while(%k = %i, %x = %a) : tensor<i32>, tensor<4xf32>\n"                    \
  "    cond {\n"                                                                                   \
  "      %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"           \
  "      stablehlo.return %c : tensor<i1>\n"                                                       \
  "    } do {\n"                                                                                   \
  "      %k2 = stablehlo.add %k, %s : tensor<i32>\n"                                               \
  "      %x2 = stablehlo.add %x, %one : tensor<4xf32>\n"                                           \
  "      stablehlo.return %k2, %x2 : tensor<i32>, tensor<4xf32>\n"                                 \
  "    }\n"                                                                                        \
  "    return %r#1 : tensor<4xf32>\n"                                                              \
  "  }\n"                                                                                          \
  "}\n"

static const int64_t four[1] = {4};

static PJRT_Buffer *put(int device, const float *data) {
  return plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, device), 11, 1, four, data);
}

static void check_sums(PJRT_LoadedExecutable *add) {
  const float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40};
  float out[4], sum;
  PJRT_Buffer *args[2] = {put(0, a), put(0, b)}, *outs[2] = {0}, **results[1] = {outs};
  PJRT_Buffer *const *arguments[1] = {args};
  assert_null(plugin_execute(P, add, 1, 2, arguments, results));
  plugin_fetch(P, outs[0], out, sizeof out);
  plugin_fetch(P, outs[1], &sum, sizeof sum);
  assert_true(out[0] == 11 && out[3] == 44 && sum == 110);
  for (int i = 0; i < 2; i++) {
    plugin_buffer_destroy(P, args[i]);
    plugin_buffer_destroy(P, outs[i]);
  }
}

static void a_program_runs_and_gives_its_results(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile_text(P, CLIENT, ADD, 1, NULL);
  for (int i = 0; i < 3; i++) check_sums(add);
  plugin_executable_destroy(P, add);
}

static void runs_with_wrong_arguments_are_refused(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile_text(P, CLIENT, ADD, 1, NULL);
  const float a[5] = {1, 2, 3, 4, 5};
  const int64_t five[1] = {5};
  PJRT_Buffer *x = put(0, a), *outs[2] = {0}, **results[1] = {outs};
  PJRT_Buffer *long_one = plugin_buffer(P, CLIENT, plugin_device(P, CLIENT, 0), 11, 1, five, a);
  PJRT_Buffer *args[3] = {x, x, x}, *wrong[2] = {x, long_one};
  PJRT_Buffer *const *arguments[2] = {args, args}, *const * wrong_arguments[1] = {wrong};
  plugin_error_is(P, plugin_execute(P, add, 1, 1, arguments, results), 3, NULL);
  plugin_error_is(P, plugin_execute(P, add, 1, 3, arguments, results), 3, NULL);
  plugin_error_is(P, plugin_execute(P, add, 1, 2, wrong_arguments, results), 3, NULL);
  ARGS(Buffer_Delete, delete);
  delete.buffer = x;
  plugin_ok(P, SLOT_Buffer_Delete, &delete);
  plugin_error_is(P, plugin_execute(P, add, 1, 2, arguments, results), 3, NULL);
  plugin_buffer_destroy(P, x);
  plugin_buffer_destroy(P, long_one);
  check_sums(add); // and nothing of it lasts
  plugin_executable_destroy(P, add);
}

static void programs_that_cannot_run_are_refused(void **state) {
  (void)state;
  static const char *const programs[] = {
      "", "module", "func.func @main() { unknown.op }",
      "module { func.func public @other() { return } }",
      "module { func.func public @main(%a: tensor<4xf32>) -> tensor<5xf32> {\n"
      "  %0 = stablehlo.add %a, %a : tensor<5xf32>\n  return %0 : tensor<5xf32> } }"};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    PJRT_Error *error = NULL;
    if (plugin_compile_text(P, CLIENT, programs[i], 1, &error))
      fail_msg("compiled: %s", programs[i]);
    ARGS(Error_GetCode, code);
    code.error = error;
    plugin_ok(P, SLOT_Error_GetCode, &code);
    assert_true(code.code > 0 && code.code <= 16);
    plugin_error_is(P, error, code.code, NULL);
  }
  PJRT_LoadedExecutable *add = plugin_compile_text(P, CLIENT, ADD, 1, NULL);
  check_sums(add);
  plugin_executable_destroy(P, add);
}

static void an_executable_answers_questions(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile_text(P, CLIENT, ADD, 1, NULL);
  PJRT_Executable *e = plugin_get_executable(P, add);
  ARGS(Executable_Name, name);
  name.executable = e;
  plugin_ok(P, SLOT_Executable_Name, &name);
  assert_int_equal(name.executable_name_size, 4);
  assert_memory_equal(name.executable_name, "sums", 4);
  ARGS(Executable_NumReplicas, replicas);
  replicas.executable = e;
  plugin_ok(P, SLOT_Executable_NumReplicas, &replicas);
  assert_int_equal(replicas.num_replicas, 1);
  ARGS(Executable_NumPartitions, partitions);
  partitions.executable = e;
  plugin_ok(P, SLOT_Executable_NumPartitions, &partitions);
  assert_int_equal(partitions.num_partitions, 1);
  ARGS(Executable_NumOutputs, outputs);
  outputs.executable = e;
  plugin_ok(P, SLOT_Executable_NumOutputs, &outputs);
  assert_int_equal(outputs.num_outputs, 2);
  ARGS(Executable_OutputElementTypes, types);
  types.executable = e;
  plugin_ok(P, SLOT_Executable_OutputElementTypes, &types);
  assert_int_equal(types.num_output_types, 2);
  assert_int_equal(types.output_types[0], 11);
  assert_int_equal(types.output_types[1], 11);
  ARGS(Executable_OutputDimensions, dims);
  dims.executable = e;
  plugin_ok(P, SLOT_Executable_OutputDimensions, &dims);
  assert_int_equal(dims.num_outputs, 2);
  assert_int_equal(dims.dim_sizes[0], 1);
  assert_int_equal(dims.dim_sizes[1], 0);
  assert_int_equal(dims.dims[0], 4);
  ARGS(Executable_OutputMemoryKinds, kinds);
  kinds.executable = e;
  PJRT_Error *error = plugin_call(P, SLOT_Executable_OutputMemoryKinds, &kinds);
  if (error) { // a plugin with one memory kind need not report it
    plugin_error_is(P, error, 12, NULL);
  } else {
    assert_int_equal(kinds.num_outputs, 2);
    for (int i = 0; i < 2; i++) assert_true(kinds.memory_kind_sizes[i] > 0);
  }
  ARGS(Executable_GetCostAnalysis, cost);
  cost.executable = e;
  plugin_ok(P, SLOT_Executable_GetCostAnalysis, &cost);
  bool flops = false;
  for (size_t i = 0; i < cost.num_properties; i++) {
    const PJRT_NamedValue *v = &cost.properties[i];
    if (v->name_size != 5 || memcmp(v->name, "flops", 5)) continue;
    flops = true;
    assert_int_equal(v->type, PJRT_VALUE_FLOAT);
    assert_true(v->f32 >= 7 && v->f32 <= 8); // four sums, and three or four to reduce
  }
  assert_true(flops);
  ARGS(Executable_SizeOfGeneratedCodeInBytes, code);
  code.executable = e;
  plugin_ok(P, SLOT_Executable_SizeOfGeneratedCodeInBytes, &code);
  ARGS(Executable_GetCompiledMemoryStats, memory);
  memory.executable = e;
  plugin_ok(P, SLOT_Executable_GetCompiledMemoryStats, &memory);
  assert_true(memory.argument_size_in_bytes >= 32);
  assert_true(memory.output_size_in_bytes >= 20);
  ARGS(LoadedExecutable_AddressableDevices, devices);
  devices.executable = add;
  plugin_ok(P, SLOT_LoadedExecutable_AddressableDevices, &devices);
  assert_int_equal(devices.num_addressable_devices, 1);
  assert_ptr_equal(devices.addressable_devices[0], plugin_device(P, CLIENT, 0));
  ARGS(LoadedExecutable_GetDeviceAssignment, assignment);
  assignment.executable = add;
  plugin_ok(P, SLOT_LoadedExecutable_GetDeviceAssignment, &assignment);
  assert_true(assignment.serialized_bytes_size > 0);
  assignment.serialized_device_assignment_deleter(assignment.serialized_device_assignment);
  plugin_executable_destroy(P, add);
  plugin_ok(P, SLOT_Executable_NumOutputs, &outputs); // it outlives its source
  assert_int_equal(outputs.num_outputs, 2);
  plugin_drop_executable(P, e);
}

// Equal programs have equal fingerprints, others do not; the optimised program is returned in two
// calls, the first of which gives its size.
static void equal_programs_have_equal_fingerprints(void **state) {
  (void)state;
  static const char *const texts[3] = {ADD, ADD, DONATE};
  char prints[3][256] = {0};
  for (int i = 0; i < 3; i++) {
    PJRT_LoadedExecutable *loaded = plugin_compile_text(P, CLIENT, texts[i], 1, NULL);
    PJRT_Executable *e = plugin_get_executable(P, loaded);
    ARGS(Executable_Fingerprint, f);
    f.executable = e;
    PJRT_Error *error = plugin_call(P, SLOT_Executable_Fingerprint, &f);
    if (error) { // some plugins have none
      plugin_error_is(P, error, 12, NULL);
    } else {
      assert_in_range(f.executable_fingerprint_size, 1, sizeof prints[i] - 1);
      memcpy(prints[i], f.executable_fingerprint, f.executable_fingerprint_size);
    }
    PJRT_Program program = {.struct_size = sizeof program};
    ARGS(Executable_OptimizedProgram, text);
    text.executable = e;
    text.program = &program;
    plugin_ok(P, SLOT_Executable_OptimizedProgram, &text);
    assert_true(program.code_size > 0 && program.format_size > 0);
    program.code = calloc(1, program.code_size);
    plugin_ok(P, SLOT_Executable_OptimizedProgram, &text);
    free(program.code);
    plugin_drop_executable(P, e);
    plugin_executable_destroy(P, loaded);
  }
  assert_string_equal(prints[0], prints[1]);
  if (prints[0][0]) assert_string_not_equal(prints[0], prints[2]);
}

static void an_executable_reads_back_from_its_bytes(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile_text(P, CLIENT, ADD, 1, NULL);
  PJRT_Executable *e = plugin_get_executable(P, add);
  ARGS(Executable_Serialize, s);
  s.executable = e;
  plugin_ok(P, SLOT_Executable_Serialize, &s);
  size_t size = s.serialized_bytes_size;
  char *bytes = malloc(size);
  memcpy(bytes, s.serialized_bytes, size);
  s.serialized_executable_deleter(s.serialized_executable);
  plugin_drop_executable(P, e);
  plugin_executable_destroy(P, add);
  ARGS(Executable_DeserializeAndLoad, d);
  d.client = CLIENT;
  d.serialized_executable = bytes;
  d.serialized_executable_size = size;
  plugin_ok(P, SLOT_Executable_DeserializeAndLoad, &d);
  free(bytes);
  check_sums(d.loaded_executable);
  e = plugin_get_executable(P, d.loaded_executable);
  ARGS(Executable_NumOutputs, outputs);
  outputs.executable = e;
  plugin_ok(P, SLOT_Executable_NumOutputs, &outputs);
  assert_int_equal(outputs.num_outputs, 2);
  plugin_drop_executable(P, e);
  plugin_executable_destroy(P, d.loaded_executable);
  d.serialized_executable = "not a program";
  d.serialized_executable_size = 13;
  PJRT_Error *error = plugin_call(P, SLOT_Executable_DeserializeAndLoad, &d);
  assert_non_null(error);
  ARGS(Error_Destroy, destroy);
  destroy.error = error;
  ((void (*)(PJRT_Error_Destroy_Args *))P->api->slots[SLOT_Error_Destroy])(&destroy);
}

static bool is_deleted(PJRT_Buffer *buffer) {
  ARGS(Buffer_IsDeleted, a);
  a.buffer = buffer;
  plugin_ok(P, SLOT_Buffer_IsDeleted, &a);
  return a.is_deleted;
}

static PJRT_Error *execute_with(PJRT_LoadedExecutable *loaded, PJRT_ExecuteOptions *options,
                                size_t args, PJRT_Buffer *const *list, PJRT_Buffer **outs,
                                PJRT_Event **events) {
  PJRT_Buffer *const *arguments[1] = {list};
  PJRT_Buffer **results[1] = {outs};
  ARGS(LoadedExecutable_Execute, a);
  a.executable = loaded;
  a.options = options;
  a.argument_lists = arguments;
  a.num_devices = 1;
  a.num_args = args;
  a.output_lists = results;
  a.device_complete_events = events;
  return plugin_call(P, SLOT_LoadedExecutable_Execute, &a);
}

static void donated_buffers_are_gone_after_the_run(void **state) {
  (void)state;
  PJRT_LoadedExecutable *donate = plugin_compile_text(P, CLIENT, DONATE, 1, NULL);
  const float a[4] = {1, 2, 3, 4};
  float out[4];
  PJRT_Buffer *args[2] = {put(0, a), put(0, a)}, *outs[1] = {0};
  PJRT_Buffer *same[2] = {args[0], args[0]}; // donated and read
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  PJRT_Error *error = execute_with(donate, &options, 2, same, outs, NULL);
  plugin_error_is(P, error, 3, NULL);
  assert_false(is_deleted(args[0]));
  const int64_t kept[1] = {0}; // the caller withdraws the donation
  options.non_donatable_input_indices = kept;
  options.num_non_donatable_input_indices = 1;
  assert_null(execute_with(donate, &options, 2, args, outs, NULL));
  plugin_fetch(P, outs[0], out, sizeof out);
  assert_true(out[0] == 2 && out[3] == 8);
  assert_false(is_deleted(args[0]));
  plugin_buffer_destroy(P, outs[0]);
  plugin_fetch(P, args[0], out, sizeof out);
  assert_memory_equal(out, a, sizeof a);
  options.num_non_donatable_input_indices = 0;
  assert_null(execute_with(donate, &options, 2, args, outs, NULL));
  plugin_fetch(P, outs[0], out, sizeof out);
  assert_true(out[0] == 2 && out[3] == 8);
  assert_true(is_deleted(args[0]));
  assert_false(is_deleted(args[1]));
  PJRT_Buffer *none[1];
  plugin_error_is(P, execute_with(donate, &options, 2, args, none, NULL), 3, NULL);
  plugin_buffer_destroy(P, outs[0]);
  plugin_buffer_destroy(P, args[0]);
  plugin_buffer_destroy(P, args[1]);
  plugin_executable_destroy(P, donate);
}

static void one_program_runs_on_several_devices(void **state) {
  (void)state;
  PJRT_LoadedExecutable *sharded = plugin_compile_text(P, CLIENT, SHARDED, 4, NULL);
  ARGS(LoadedExecutable_AddressableDevices, devices);
  devices.executable = sharded;
  plugin_ok(P, SLOT_LoadedExecutable_AddressableDevices, &devices);
  assert_int_equal(devices.num_addressable_devices, 4);
  PJRT_Buffer *args[4][1], *outs[4][2], **results[4];
  PJRT_Buffer *const *arguments[4];
  const int64_t two[1] = {2};
  for (int d = 0; d < 4; d++) {
    const float part[2] = {(float)(2 * d), (float)(2 * d + 1)};
    assert_ptr_equal(devices.addressable_devices[d], plugin_device(P, CLIENT, d));
    args[d][0] = plugin_buffer(P, CLIENT, devices.addressable_devices[d], 11, 1, two, part);
    arguments[d] = args[d];
    results[d] = outs[d];
  }
  for (int again = 0; again < 2; again++) {
    assert_null(plugin_execute(P, sharded, 4, 1, arguments, results));
    for (int d = 0; d < 4; d++) {
      float part[2], sum;
      plugin_fetch(P, outs[d][0], part, sizeof part);
      plugin_fetch(P, outs[d][1], &sum, sizeof sum);
      assert_true(part[0] == (float)(4 * d) && part[1] == (float)(4 * d + 2) && sum == 56);
      ARGS(Buffer_Device, where);
      where.buffer = outs[d][0];
      plugin_ok(P, SLOT_Buffer_Device, &where);
      assert_ptr_equal(where.device, devices.addressable_devices[d]);
      for (int r = 0; r < 2; r++) plugin_buffer_destroy(P, outs[d][r]);
    }
  }
  plugin_error_is(P, plugin_execute(P, sharded, 3, 1, arguments, results), 3,
                  NULL); // one is missing
  for (int d = 0; d < 4; d++) plugin_buffer_destroy(P, args[d][0]);
  plugin_executable_destroy(P, sharded);
}

static void count_call(PJRT_Error *error, void *user) {
  if (error) plugin_error_is(P, error, 0, NULL);
  atomic_fetch_add((atomic_int *)user, 1);
}

// A chain of runs is queued, each argument destroyed before it can have been used. Every event
// fires once, even when asked after it has fired, and results are right.
static void each_event_of_a_queue_fires_once(void **state) {
  (void)state;
  enum { RUNS = 10 };
  PJRT_LoadedExecutable *slow = plugin_compile_text(P, CLIENT, SLOW, 1, NULL);
  const float zeros[4] = {0};
  float out[4];
  PJRT_Buffer *x = put(0, zeros);
  PJRT_Event *events[RUNS];
  atomic_int calls = 0;
  for (int i = 0; i < RUNS; i++) {
    PJRT_Buffer *args[1] = {x}, *outs[1];
    PJRT_ExecuteOptions options = {.struct_size = sizeof options, .launch_id = i};
    assert_null(execute_with(slow, &options, 1, args, outs, &events[i]));
    ARGS(Event_OnReady, on_ready);
    on_ready.event = events[i];
    on_ready.callback = count_call;
    on_ready.user_arg = &calls;
    plugin_ok(P, SLOT_Event_OnReady, &on_ready);
    plugin_buffer_destroy(P, x);
    x = outs[0];
  }
  for (int i = 0; i < RUNS; i++) {
    ARGS(Event_Await, await);
    await.event = events[i];
    assert_null(plugin_call(P, SLOT_Event_Await, &await));
    ARGS(Event_IsReady, ready);
    ready.event = events[i];
    plugin_ok(P, SLOT_Event_IsReady, &ready);
    assert_true(ready.is_ready);
    ARGS(Event_Error, error);
    error.event = events[i];
    assert_null(plugin_call(P, SLOT_Event_Error, &error));
    ARGS(Event_OnReady, late);
    late.event = events[i];
    late.callback = count_call;
    late.user_arg = &calls;
    plugin_ok(P, SLOT_Event_OnReady, &late);
    assert_null(plugin_await(P, events[i])); // again, and destroys it
  }
  plugin_fetch(P, x, out, sizeof out);
  assert_true(out[0] == 20000 * RUNS && out[3] == 20000 * RUNS);
  plugin_buffer_destroy(P, x);
  plugin_executable_destroy(P, slow);
  assert_int_equal(calls, 2 * RUNS);
}

// Everything is destroyed while the run that needs it may still be running; only the result is
// kept, and read after its executable is gone.
static void everything_may_be_destroyed_while_a_run_goes_on(void **state) {
  (void)state;
  PJRT_LoadedExecutable *slow = plugin_compile_text(P, CLIENT, SLOW, 1, NULL);
  const float zeros[4] = {0};
  float out[4];
  PJRT_Buffer *args[1] = {put(0, zeros)}, *outs[1];
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  PJRT_Event *event;
  assert_null(execute_with(slow, &options, 1, args, outs, &event));
  ARGS(Event_Destroy, destroy);
  destroy.event = event;
  plugin_ok(P, SLOT_Event_Destroy, &destroy);
  plugin_buffer_destroy(P, args[0]);
  plugin_executable_destroy(P, slow);
  plugin_fetch(P, outs[0], out, sizeof out);
  assert_true(out[0] == 20000 && out[3] == 20000);
  plugin_buffer_destroy(P, outs[0]);
}

static void a_deleted_executable_does_not_run(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile_text(P, CLIENT, ADD, 1, NULL);
  ARGS(LoadedExecutable_IsDeleted, gone);
  gone.executable = add;
  plugin_ok(P, SLOT_LoadedExecutable_IsDeleted, &gone);
  assert_false(gone.is_deleted);
  ARGS(LoadedExecutable_Delete, delete);
  delete.executable = add;
  plugin_ok(P, SLOT_LoadedExecutable_Delete, &delete);
  plugin_executable_destroy(P, add);
}

// Destroying a client ends its queue: queued runs have run or are dropped, nothing hangs.
static void a_client_takes_its_queue_with_it(void **state) {
  (void)state;
  PJRT_Client *client = plugin_client(P);
  PJRT_LoadedExecutable *slow = plugin_compile_text(P, client, SLOW, 1, NULL);
  const float zeros[4] = {0};
  PJRT_Buffer *args[1], *outs[1];
  args[0] = plugin_buffer(P, client, plugin_device(P, client, 0), 11, 1, four, zeros);
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  assert_null(execute_with(slow, &options, 1, args, outs, NULL));
  plugin_buffer_destroy(P, outs[0]);
  plugin_buffer_destroy(P, args[0]);
  plugin_executable_destroy(P, slow);
  plugin_client_destroy(P, client);
}

int contract_run(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_program_runs_and_gives_its_results),
      cmocka_unit_test(runs_with_wrong_arguments_are_refused),
      cmocka_unit_test(programs_that_cannot_run_are_refused),
      cmocka_unit_test(an_executable_answers_questions),
      cmocka_unit_test(equal_programs_have_equal_fingerprints),
      cmocka_unit_test(an_executable_reads_back_from_its_bytes),
      cmocka_unit_test(donated_buffers_are_gone_after_the_run),
      cmocka_unit_test(one_program_runs_on_several_devices),
      cmocka_unit_test(each_event_of_a_queue_fires_once),
      cmocka_unit_test(everything_may_be_destroyed_while_a_run_goes_on),
      cmocka_unit_test(a_deleted_executable_does_not_run),
      cmocka_unit_test(a_client_takes_its_queue_with_it),
  };
  return cmocka_run_group_tests_name("programs", tests, contract_setup, contract_teardown);
}
