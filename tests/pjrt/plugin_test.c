// SPDX-License-Identifier: Apache-2.0
// plugin_test.c - what is specific to libvtpu.so: slices, HBM, its messages, extensions, forks, and
// that it does not leak. Cases that hold for every plugin are in contract_test.c.
#include "base/wire.h"
#include "plugin_support.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static plugin p;
static PJRT_Client *client;

static int setup(void **state) {
  (void)state;
  p = plugin_load(plugin_path());
  client = plugin_client(&p);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  plugin_client_destroy(&p, client);
  return 0;
}

static void the_table_has_its_version_and_every_slot(void **state) {
  (void)state;
  assert_true(p.api->struct_size >= 0x450);
  assert_int_equal(p.api->version.major, 0);
  assert_true(p.api->version.minor >= 29);
  for (int i = 0; i < PJRT_SLOTS; i++) assert_non_null(p.api->slots[i]);
}

static void extensions_are_chained_and_known(void **state) {
  (void)state;
  int seen = 0;
  for (PJRT_Extension_Base *e = p.api->extension_start; e; e = e->next) {
    if (e->type == PJRT_EXTENSION_LAYOUTS) seen |= 1;
    if (e->type == PJRT_EXTENSION_SHARDINGS) seen |= 2;
    if (e->type == PJRT_EXTENSION_MEMORY_DESCRIPTIONS) seen |= 4;
    if (e->type == PJRT_EXTENSION_PROFILER) seen |= 8;
  }
  assert_int_equal(seen, 15);
  PJRT_Layouts_Extension *layouts = (PJRT_Layouts_Extension *)(void *)p.api->extension_start;
  PJRT_Layouts_Client_GetDefaultLayout_Args a = {.client = client, .type = 11, .num_dims = 3};
  int64_t dims[3] = {1, 2, 3};
  a.dims = dims;
  assert_null(layouts->client_default(&a));
  PJRT_Layouts_MemoryLayout_Serialize_Args s = {.layout = a.layout};
  assert_null(layouts->layout_serialize(&s));
  assert_int_equal(s.size, 7);
  assert_memory_equal(s.bytes, "{2,1,0}", 7);
  s.deleter(s.owner);
  PJRT_Layouts_MemoryLayout_Destroy_Args d = {.layout = a.layout};
  assert_null(layouts->layout_destroy(&d));
}

static void devices_say_what_a_v3_8_is(void **state) {
  (void)state;
  ARGS(Client_Devices, devices);
  devices.client = client;
  plugin_ok(&p, SLOT_Client_Devices, &devices);
  assert_int_equal(devices.num_devices, 8);
  for (size_t i = 0; i < devices.num_devices; i++) {
    ARGS(Device_GetDescription, description);
    description.device = devices.devices[i];
    plugin_ok(&p, SLOT_Device_GetDescription, &description);
    ARGS(DeviceDescription_Kind, kind);
    kind.device_description = description.device_description;
    plugin_ok(&p, SLOT_DeviceDescription_Kind, &kind);
    assert_int_equal(kind.device_kind_size, 6);
    assert_memory_equal(kind.device_kind, "TPU v3", 6);
    ARGS(Device_GetAttributes, attributes);
    attributes.device = devices.devices[i];
    plugin_ok(&p, SLOT_Device_GetAttributes, &attributes);
    assert_int_equal(attributes.num_attributes, 3); // coords, core_on_chip, num_cores
    assert_non_null(attributes.attributes_deleter);
    attributes.attributes_deleter(attributes.device_attributes);
    ARGS(Device_AddressableMemories, memories);
    memories.device = devices.devices[i];
    plugin_ok(&p, SLOT_Device_AddressableMemories, &memories);
    assert_int_equal(memories.num_memories, 3);
  }
  ARGS(Client_LookupDevice, lookup);
  lookup.client = client;
  lookup.id = 8;
  plugin_fails(&p, SLOT_Client_LookupDevice, &lookup, 3, "v3-8");
}

static void release_user_data(void *data) {
  ++*(int *)data;
}

static void user_data_of_a_memory_is_kept_and_destroyed(void **state) {
  (void)state;
  ARGS(Device_DefaultMemory, a);
  a.device = plugin_device(&p, client, 1);
  plugin_ok(&p, SLOT_Device_DefaultMemory, &a);
  const PJRT_Memory_Table *table = *(const PJRT_Memory_Table **)(void *)a.memory;
  static int keys[2], first, second;
  table->set_user_data(a.memory, &keys[0], &first, release_user_data);
  table->set_user_data(a.memory, &keys[1], &second, NULL);
  assert_ptr_equal(table->get_user_data(a.memory, &keys[0]), &first);
  assert_ptr_equal(table->get_user_data(a.memory, &keys[1]), &second);
  assert_null(table->get_user_data(a.memory, &first));
  table->set_user_data(a.memory, &keys[0], NULL, NULL);
  assert_int_equal(first, 1);
}

static void buffers_hold_what_was_put_into_them(void **state) {
  (void)state;
  PJRT_Device *device = plugin_device(&p, client, 3);
  int32_t data[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
  int64_t dims[2] = {2, 3}, strides[2] = {4, 8};
  ARGS(Client_BufferFromHostBuffer, a);
  a.client = client;
  a.data = data;
  a.type = 4;
  a.dims = dims;
  a.num_dims = 2;
  a.byte_strides = strides;
  a.num_byte_strides = 2;
  a.device = device;
  plugin_ok(&p, SLOT_Client_BufferFromHostBuffer, &a);
  assert_null(plugin_await(&p, a.done_with_host_buffer));
  data[0] = 99; // the plugin has its own copy, or the caller would not have been notified
  plugin_fetch(&p, a.buffer, back, sizeof back);
  const int32_t want[6] = {1, 3, 5, 2, 4, 6};
  assert_memory_equal(back, want, sizeof want);
  ARGS(Buffer_ToHostBuffer, host);
  host.src = a.buffer;
  plugin_ok(&p, SLOT_Buffer_ToHostBuffer, &host);
  assert_int_equal(host.dst_size, 24);
  host.dst = back;
  host.dst_size = 23;
  plugin_fails(&p, SLOT_Buffer_ToHostBuffer, &host, 3, "24");
  static const int64_t column_major[2] = {0, 1}, nonsense[2] = {1, 1};
  PJRT_Buffer_MemoryLayout layout = {
      .tiled = {.minor_to_major = column_major, .minor_to_major_size = 2}};
  host.dst_size = 24;
  host.host_layout = &layout;
  plugin_ok(&p, SLOT_Buffer_ToHostBuffer, &host);
  assert_null(plugin_await(&p, host.event));
  const int32_t columns[6] = {1, 2, 3, 4, 5, 6};
  assert_memory_equal(back, columns, sizeof columns);
  layout.tiled.minor_to_major = nonsense;
  plugin_fails(&p, SLOT_Buffer_ToHostBuffer, &host, 3, "permutation");
  ARGS(Buffer_CopyRawToHost, raw);
  raw.buffer = a.buffer;
  raw.dst = back;
  raw.offset = 8;
  raw.transfer_size = 8;
  plugin_ok(&p, SLOT_Buffer_CopyRawToHost, &raw);
  assert_null(plugin_await(&p, raw.event));
  assert_memory_equal(back, want + 2, 8);
  raw.transfer_size = 17;
  plugin_fails(&p, SLOT_Buffer_CopyRawToHost, &raw, 3, "24");
  ARGS(Buffer_Device, where);
  where.buffer = a.buffer;
  plugin_ok(&p, SLOT_Buffer_Device, &where);
  assert_ptr_equal(where.device, device);
  ARGS(Buffer_CopyToDevice, copy);
  copy.buffer = a.buffer;
  copy.dst_device = plugin_device(&p, client, 6);
  plugin_ok(&p, SLOT_Buffer_CopyToDevice, &copy);
  ARGS(Buffer_Delete, del);
  del.buffer = a.buffer;
  plugin_ok(&p, SLOT_Buffer_Delete, &del);
  ARGS(Buffer_IsDeleted, deleted);
  deleted.buffer = a.buffer;
  plugin_ok(&p, SLOT_Buffer_IsDeleted, &deleted);
  assert_true(deleted.is_deleted);
  layout.tiled.minor_to_major = column_major;
  plugin_fails(&p, SLOT_Buffer_ToHostBuffer, &host, 3, "deleted");
  plugin_fetch(&p, copy.dst_buffer, back, sizeof back);
  assert_memory_equal(back, want, sizeof want);
  plugin_buffer_destroy(&p, a.buffer);
  plugin_buffer_destroy(&p, copy.dst_buffer);
}

static void impossible_buffers_are_refused(void **state) {
  (void)state;
  int64_t dims[2] = {1LL << 40, 1LL << 40}, negative[1] = {-1};
  char byte = 0;
  ARGS(Client_BufferFromHostBuffer, a);
  a.client = client;
  a.data = &byte;
  a.dims = dims;
  a.num_dims = 2;
  a.type = 11;
  a.device = plugin_device(&p, client, 0);
  plugin_fails(&p, SLOT_Client_BufferFromHostBuffer, &a, 3, NULL);
  a.dims = negative;
  a.num_dims = 1;
  plugin_fails(&p, SLOT_Client_BufferFromHostBuffer, &a, 3, NULL);
  a.num_dims = 0;
  a.type = 99;
  plugin_fails(&p, SLOT_Client_BufferFromHostBuffer, &a, 12, "99");
  a.type = 11;
  a.byte_strides = dims;
  a.num_byte_strides = 1;
  plugin_fails(&p, SLOT_Client_BufferFromHostBuffer, &a, 3, "1 strides for 0 dimensions");
  a.num_byte_strides = 0;
  a.device = NULL;
  plugin_fails(&p, SLOT_Client_BufferFromHostBuffer, &a, 3, NULL);
  // 41 MiB on the host; no order of these dimensions fills a tile with more than nine elements.
  int64_t large[16] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
  ARGS(Client_CreateUninitializedBuffer, u);
  u.client = client;
  u.shape_dims = large;
  u.shape_num_dims = 16;
  u.shape_element_type = 2;
  u.device = plugin_device(&p, client, 0);
  PJRT_Buffer *held[4];
  int count = 0;
  PJRT_Error *error = NULL;
  while (count < 4 && !(error = plugin_call(&p, SLOT_Client_CreateUninitializedBuffer, &u)))
    held[count++] = u.buffer;
  plugin_error_is(&p, error, 8, "Largest buffers in hbm");
  while (count--) plugin_buffer_destroy(&p, held[count]);
}

static void a_program_runs_and_gives_its_results(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  PJRT_Device *device = plugin_device(&p, client, 0);
  int64_t four[1] = {4}, five[1] = {5};
  float a[5] = {1, 2, 3, 4, 5}, b[4] = {10, 20, 30, 40}, out[4];
  PJRT_Buffer *args[2] = {plugin_buffer(&p, client, device, 11, 1, four, a),
                          plugin_buffer(&p, client, device, 11, 1, four, b)};
  PJRT_Buffer *const *arguments[1] = {args};
  PJRT_Buffer *outs[2] = {0}, **results[1] = {outs};
  for (int i = 0; i < 3; i++) {
    assert_null(plugin_execute(&p, add, 1, 2, arguments, results));
    plugin_fetch(&p, outs[0], out, sizeof out);
    assert_true(out[0] == 11 && out[3] == 44);
    plugin_fetch(&p, outs[1], out, sizeof out);
    assert_true(out[0] == 2 && out[3] == 8);
    plugin_buffer_destroy(&p, outs[0]);
    plugin_buffer_destroy(&p, outs[1]);
  }
  plugin_error_is(&p, plugin_execute(&p, add, 1, 1, arguments, results), 3, "takes 2 arguments");
  plugin_error_is(&p, plugin_execute(&p, add, 2, 2, arguments, results), 3, NULL);
  PJRT_Buffer *wrong[2] = {args[0], plugin_buffer(&p, client, device, 11, 1, five, a)};
  PJRT_Buffer *const *wrong_arguments[1] = {wrong};
  plugin_error_is(&p, plugin_execute(&p, add, 1, 2, wrong_arguments, results), 3, "tensor<5xf32>");
  plugin_buffer_destroy(&p, wrong[1]);
  wrong[1] = plugin_buffer(&p, client, plugin_device(&p, client, 2), 11, 1, four, a);
  plugin_error_is(&p, plugin_execute(&p, add, 1, 2, wrong_arguments, results), 3, "device 2");
  plugin_buffer_destroy(&p, wrong[1]);
  plugin_buffer_destroy(&p, args[0]);
  plugin_buffer_destroy(&p, args[1]);
  plugin_executable_destroy(&p, add);
}

static void donated_buffers_are_gone_after_the_run(void **state) {
  (void)state;
  PJRT_LoadedExecutable *donate = plugin_compile(&p, client, "donate", 1);
  PJRT_Device *device = plugin_device(&p, client, 0);
  int64_t four[1] = {4};
  float a[4] = {1, 2, 3, 4}, out[4];
  PJRT_Buffer *args[2] = {plugin_buffer(&p, client, device, 11, 1, four, a),
                          plugin_buffer(&p, client, device, 11, 1, four, a)};
  PJRT_Buffer *const *arguments[1] = {args};
  PJRT_Buffer *outs[1] = {0}, **results[1] = {outs};
  PJRT_Buffer *same[2] = {args[0], args[0]};
  PJRT_Buffer *const *same_arguments[1] = {same};
  plugin_error_is(&p, plugin_execute(&p, donate, 1, 2, same_arguments, results), 3, "donate");
  assert_null(plugin_execute(&p, donate, 1, 2, arguments, results));
  plugin_fetch(&p, outs[0], out, sizeof out);
  assert_true(out[0] == 2 && out[3] == 8);
  ARGS(Buffer_IsDeleted, deleted);
  deleted.buffer = args[0];
  plugin_ok(&p, SLOT_Buffer_IsDeleted, &deleted);
  assert_true(deleted.is_deleted);
  plugin_error_is(&p, plugin_execute(&p, donate, 1, 2, arguments, results), 3,
                  "deleted or donated");
  plugin_buffer_destroy(&p, outs[0]);
  plugin_buffer_destroy(&p, args[0]);
  plugin_buffer_destroy(&p, args[1]);
  plugin_executable_destroy(&p, donate);
}

// An argument that is an error makes results that are the same error.
static void an_error_argument_makes_error_results(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  PJRT_Device *device = plugin_device(&p, client, 0);
  int64_t four[1] = {4};
  float a[4] = {1, 2, 3, 4};
  ARGS(Device_DefaultMemory, memory);
  memory.device = device;
  plugin_ok(&p, SLOT_Device_DefaultMemory, &memory);
  ARGS(Client_CreateErrorBuffer, bad);
  bad.client = client;
  bad.error_code = 15;
  bad.error_message = "lost";
  bad.error_message_size = 4;
  bad.shape_dims = four;
  bad.shape_num_dims = 1;
  bad.shape_element_type = 11;
  bad.memory = memory.memory;
  plugin_ok(&p, SLOT_Client_CreateErrorBuffer, &bad);
  PJRT_Buffer *args[2] = {plugin_buffer(&p, client, device, 11, 1, four, a), bad.buffer};
  PJRT_Buffer *const *arguments[1] = {args};
  PJRT_Buffer *outs[2] = {0}, **results[1] = {outs};
  plugin_error_is(&p, plugin_execute(&p, add, 1, 2, arguments, results), 15, "lost");
  for (int i = 0; i < 2; i++) {
    ARGS(Buffer_ReadyEvent, ready);
    ready.buffer = outs[i];
    plugin_ok(&p, SLOT_Buffer_ReadyEvent, &ready);
    plugin_error_is(&p, plugin_await(&p, ready.event), 15, "lost");
    plugin_buffer_destroy(&p, outs[i]);
    plugin_buffer_destroy(&p, args[i]);
  }
  plugin_executable_destroy(&p, add);
}

// rows over x, tiles over x and y of a 4 x 2 mesh: gathers different shardings, results come back
// sharded as requested.
static void shards_are_gathered_and_results_cut_as_asked(void **state) {
  (void)state;
  PJRT_LoadedExecutable *sharded = plugin_compile(&p, client, "sharded", 8);
  PJRT_Buffer *args[8][2], *outs[8][3], **results[8];
  PJRT_Buffer *const *arguments[8];
  int64_t row_dims[2] = {2, 4}, tile_dims[2] = {2, 2};
  for (int d = 0; d < 8; d++) {
    int x = d / 2, y = d % 2;
    float row[2][4], tile[2][2];
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 4; j++) row[i][j] = (float)((2 * x + i) * 4 + j);
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) tile[i][j] = (float)(100 * (2 * x + i) + 2 * y + j);
    PJRT_Device *device = plugin_device(&p, client, d);
    args[d][0] = plugin_buffer(&p, client, device, 11, 2, row_dims, row);
    args[d][1] = plugin_buffer(&p, client, device, 11, 2, tile_dims, tile);
    arguments[d] = args[d];
    results[d] = outs[d];
  }
  float sum = 0;
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 4; j++) sum += (float)(i * 4 + j) * (float)(100 * i + j);
  for (int again = 0; again < 2; again++) { // the second run finds gathered shards
    assert_null(plugin_execute(&p, sharded, 8, 2, arguments, results));
    for (int d = 0; d < 8; d++) {
      int x = d / 2, y = d % 2;
      float tile[2][2], total, rows[2][4];
      plugin_fetch(&p, outs[d][0], tile, sizeof tile);
      plugin_fetch(&p, outs[d][1], &total, sizeof total);
      plugin_fetch(&p, outs[d][2], rows, sizeof rows);
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
          int r = 2 * x + i, c = 2 * y + j;
          assert_true(tile[i][j] == (float)(r * 4 + c + 100 * r + c));
        }
      assert_true(total == sum);
      assert_true(rows[1][3] == (float)((2 * x + 1) * 4 + 3 - 100 * (2 * x + 1) - 3));
      for (int r = 0; r < 3; r++) plugin_buffer_destroy(&p, outs[d][r]);
    }
  }
  float back[2][2];
  plugin_fetch(&p, args[5][1], back, sizeof back); // still the original data
  assert_true(back[0][0] == 402 && back[1][1] == 503);
  ARGS(LoadedExecutable_GetExecutable, get);
  get.loaded_executable = sharded;
  plugin_ok(&p, SLOT_LoadedExecutable_GetExecutable, &get);
  PJRT_Shardings_Extension *shardings =
      (PJRT_Shardings_Extension *)(void *)p.api->extension_start->next;
  PJRT_Shardings_Executable_Args s = {.executable = get.executable};
  assert_null(shardings->output_shardings(&s));
  assert_int_equal(s.count, 3);
  assert_true(s.sizes[0] > 0);
  assert_int_equal(s.sizes[1], 0);
  ARGS(Executable_Destroy, destroy);
  destroy.executable = get.executable;
  plugin_ok(&p, SLOT_Executable_Destroy, &destroy);
  for (int d = 0; d < 8; d++)
    for (int i = 0; i < 2; i++) plugin_buffer_destroy(&p, args[d][i]);
  plugin_executable_destroy(&p, sharded);
}

static void compile_fails(vt_bytes code, const char *format, int code_want, const char *part) {
  vt_text options = {0};
  plugin_options(1, 1, false, &options);
  PJRT_Program program = {.code = (char *)(uintptr_t)code.data,
                          .code_size = code.size,
                          .format = format,
                          .format_size = strlen(format)};
  ARGS(Client_Compile, a);
  a.client = client;
  a.program = &program;
  a.compile_options = options.data;
  a.compile_options_size = options.size;
  plugin_fails(&p, SLOT_Client_Compile, &a, code_want, part);
  vt_text_free(&options);
}

// Two replicas of two partitions without shardings and without SPMD partitioning: each device runs
// the program on its own arrays. Ids of an all_to_all with a channel are partitions of one replica;
// those of the sum are devices.
#define OWN                                                                                        \
  "module @own attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 2 : i32} {\n"        \
  "  func.func public @main(%x: tensor<2xf32>) -> (tensor<ui32>, tensor<ui32>, tensor<2xf32>, "    \
  "tensor<2xf32>) {\n"                                                                             \
  "    %r = stablehlo.replica_id : tensor<ui32>\n"                                                 \
  "    %p = stablehlo.partition_id : tensor<ui32>\n"                                               \
  "    %swap = \"stablehlo.all_to_all\"(%x) <{split_dimension = 0 : i64, concat_dimension = 0 "    \
  ": i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, "             \
  "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}> : (tensor<2xf32>) -> "       \
  "tensor<2xf32>\n"                                                                                \
  "    %sum = \"stablehlo.all_reduce\"(%x) <{channel_handle = #stablehlo.channel_handle<handle = " \
  "2, type = 1>, replica_groups = dense<[[0, 3], [1, 2]]> : tensor<2x2xi64>, "                     \
  "use_global_device_ids}> ({\n"                                                                   \
  "    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                  \
  "      %s = stablehlo.add %a, %b : tensor<f32>\n"                                                \
  "      stablehlo.return %s : tensor<f32>\n"                                                      \
  "    }) : (tensor<2xf32>) -> tensor<2xf32>\n"                                                    \
  "    return %r, %p, %swap, %sum : tensor<ui32>, tensor<ui32>, tensor<2xf32>, tensor<2xf32>\n"    \
  "  }\n"                                                                                          \
  "}\n"

static float own(int d, int i) {
  return (float)(10 * d + i);
}

static void check_own(int d, PJRT_Buffer *const *outs) {
  uint32_t id[2];
  float swap[2], sum[2];
  for (int k = 0; k < 2; k++) plugin_fetch(&p, outs[k], &id[k], sizeof id[k]);
  plugin_fetch(&p, outs[2], swap, sizeof swap);
  plugin_fetch(&p, outs[3], sum, sizeof sum);
  assert_int_equal(id[0], d / 2);
  assert_int_equal(id[1], d % 2);
  for (int i = 0; i < 2; i++) {
    assert_true(swap[i] == own(d / 2 * 2 + i, d % 2));
    assert_true(sum[i] == own(d, i) + own(3 - d, i));
  }
}

static void partitions_may_run_on_arrays_of_their_own(void **state) {
  (void)state;
  enum { DEVICES = 4 };
  static const int64_t two[] = {2};
  PJRT_LoadedExecutable *loaded = plugin_compile_grid(&p, client, OWN, 2, 2, false);
  PJRT_Buffer *args[DEVICES][1], *outs[DEVICES][4], **lists[DEVICES];
  PJRT_Buffer *const *arguments[DEVICES];
  for (int d = 0; d < DEVICES; d++) {
    const float x[2] = {own(d, 0), own(d, 1)};
    args[d][0] = plugin_buffer(&p, client, plugin_device(&p, client, d), 11, 1, two, x);
    arguments[d] = args[d];
    lists[d] = outs[d];
  }
  assert_null(plugin_execute(&p, loaded, DEVICES, 1, arguments, lists));
  for (int d = 0; d < DEVICES; d++) {
    check_own(d, outs[d]);
    for (int r = 0; r < 4; r++) plugin_buffer_destroy(&p, outs[d][r]);
    plugin_buffer_destroy(&p, args[d][0]);
  }
  plugin_executable_destroy(&p, loaded);
}

// One replica of several, on the device that the caller chooses, as PyTorch/XLA runs them.
static void a_replica_that_meets_no_other_runs_alone(void **state) {
  (void)state;
  static const char twice[] =
      "module attributes {mhlo.num_replicas = 4 : i32} {\n"
      "  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
      "    %y = stablehlo.add %x, %x : tensor<2xf32>\n    return %y : tensor<2xf32>\n  }\n}\n";
  static const int64_t two[] = {2};
  const float x[2] = {1, 2};
  float out[2];
  PJRT_LoadedExecutable *loaded[2] = {plugin_compile_grid(&p, client, twice, 4, 1, false),
                                      plugin_compile_grid(&p, client, OWN, 2, 2, false)};
  PJRT_Device *device = plugin_device(&p, client, 2);
  PJRT_Buffer *arg = plugin_buffer(&p, client, device, 11, 1, two, x), *outs[4] = {NULL};
  PJRT_Buffer *const *arguments[1] = {&arg};
  PJRT_Buffer **results[1] = {outs};
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  for (int i = 0; i < 2; i++) {
    ARGS(LoadedExecutable_Execute, run);
    run.executable = loaded[i];
    run.options = &options;
    run.argument_lists = arguments;
    run.num_devices = run.num_args = 1;
    run.output_lists = results;
    run.execute_device = device;
    if (i) {
      plugin_fails(&p, SLOT_LoadedExecutable_Execute, &run, 3, "what the others compute");
      continue;
    }
    plugin_ok(&p, SLOT_LoadedExecutable_Execute, &run);
    plugin_fetch(&p, outs[0], out, sizeof out);
    assert_true(out[0] == 2 && out[1] == 4);
    plugin_buffer_destroy(&p, outs[0]);
  }
  plugin_buffer_destroy(&p, arg);
  for (int i = 0; i < 2; i++) plugin_executable_destroy(&p, loaded[i]);
}

// `count` arguments, all the same.
static void start_replica_of(PJRT_LoadedExecutable *loaded, int d, size_t count, float value,
                             PJRT_Buffer **out) {
  static const int64_t two[] = {2};
  PJRT_Device *device = plugin_device(&p, client, d);
  PJRT_Buffer *arg = plugin_buffer(&p, client, device, 11, 1, two, (float[]){value, 10 * value});
  PJRT_Buffer *both[2] = {arg, arg}, *const * arguments[1] = {both}, **results[1] = {out};
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  ARGS(LoadedExecutable_Execute, run);
  run.executable = loaded;
  run.options = &options;
  run.argument_lists = arguments;
  run.num_devices = 1;
  run.num_args = count;
  run.output_lists = results;
  run.execute_device = device;
  plugin_ok(&p, SLOT_LoadedExecutable_Execute, &run);
  plugin_buffer_destroy(&p, arg); // the run has what it needs
}

static PJRT_Buffer *start_replica(PJRT_LoadedExecutable *loaded, int d, float value) {
  PJRT_Buffer *out = NULL;
  start_replica_of(loaded, d, 1, value, &out);
  return out;
}

#define REPLICAS_THAT(op)                                                                          \
  "module attributes {mhlo.num_replicas = 4 : i32} {\n"                                            \
  "  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"                               \
  "    %y = \"stablehlo.all_reduce\"(%x) <{replica_groups = dense<[[0, 1, 2, 3]]> : "              \
  "tensor<1x4xi64>}> ({\n    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                            \
  "      %s = stablehlo." op " %a, %b : tensor<f32>\n      stablehlo.return %s : tensor<f32>\n"    \
  "    }) : (tensor<2xf32>) -> tensor<2xf32>\n    return %y : tensor<2xf32>\n  }\n}\n"

// Each replica is started by itself, one of them twice before the others come, and all sum up with
// the others of the same run. Programs that were compiled apart are the same.
static void replicas_started_one_by_one_meet(void **state) {
  (void)state;
  static const char sum[] = REPLICAS_THAT("add");
  PJRT_LoadedExecutable *loaded[2] = {plugin_compile_grid(&p, client, sum, 4, 1, false),
                                      plugin_compile_grid(&p, client, sum, 4, 1, false)};
  PJRT_Buffer *first[4], *second[4];
  float got[2];
  first[3] = start_replica(loaded[0], 3, 4);
  second[3] = start_replica(loaded[0], 3, 40);
  for (int d = 0; d < 3; d++) first[d] = start_replica(loaded[d % 2], d, (float)(d + 1));
  for (int d = 0; d < 3; d++) second[d] = start_replica(loaded[1], d, (float)(10 * (d + 1)));
  for (int d = 0; d < 4; d++) {
    plugin_fetch(&p, first[d], got, sizeof got);
    assert_true(got[0] == 10 && got[1] == 100);
    plugin_fetch(&p, second[d], got, sizeof got);
    assert_true(got[0] == 100 && got[1] == 1000);
    plugin_buffer_destroy(&p, first[d]);
    plugin_buffer_destroy(&p, second[d]);
  }
  for (int i = 0; i < 2; i++) plugin_executable_destroy(&p, loaded[i]);
}

// A gather as PyTorch/XLA writes it: a sum of what each pads to its own place `at`. Each goes on in
// its own way; replica 0 has a result more, replica 3 a parameter less.
static PJRT_LoadedExecutable *gathering(int at) {
  char text[1600];
  static const char reduce[] =
      "    %all = \"stablehlo.all_reduce\"(%pad) <{replica_groups = dense<[[0, 1, 2, 3]]> : "
      "tensor<1x4xi64>}> ({\n    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
      "      %s = stablehlo.add %a, %b : tensor<f32>\n      stablehlo.return %s : tensor<f32>\n"
      "    }) : (tensor<8xf32>) -> tensor<8xf32>\n";
  snprintf(
      text, sizeof text,
      "module attributes {mhlo.num_replicas = 4 : i32} {\n"
      "  func.func public @main(%%x: tensor<2xf32>%s) -> (%stensor<8xf32>) {\n"
      "    %%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "    %%pad = stablehlo.pad %%x, %%zero, low = [%d], high = [%d], interior = [0] : "
      "(tensor<2xf32>, tensor<f32>) -> tensor<8xf32>\n%s"
      "    %%y = stablehlo.%s %%all : tensor<8xf32>\n    return %s%%y : %stensor<8xf32>\n  }\n}\n",
      at < 3 ? ", %unused: tensor<2xf32>" : "", at ? "" : "tensor<2xf32>, ", 2 * at, 6 - 2 * at,
      reduce, at % 2 ? "negate" : "abs", at ? "" : "%x, ", at ? "" : "tensor<2xf32>, ");
  return plugin_compile_grid(&p, client, text, 4, 1, false);
}

static void replicas_of_different_programs_meet(void **state) {
  (void)state;
  PJRT_LoadedExecutable *loaded[4];
  PJRT_Buffer *out[2][4][2] = {0};
  float got[8];
  for (int d = 0; d < 4; d++) loaded[d] = gathering(d);
  for (int d = 3; d >= 0; d--) // each runs ahead of those that come later
    for (int run = 0; run < 2; run++)
      start_replica_of(loaded[d], d, d < 3 ? 2 : 1, (float)(d + 1 + 100 * run), out[run][d]);
  for (int run = 0; run < 2; run++)
    for (int d = 0; d < 4; d++) {
      plugin_fetch(&p, out[run][d][d == 0], got, sizeof got);
      for (int i = 0; i < 8; i++) {
        float all = (float)((i / 2 + 1 + 100 * run) * (i % 2 ? 10 : 1));
        assert_true(got[i] == (d % 2 ? -all : all));
      }
      plugin_buffer_destroy(&p, out[run][d][d == 0]);
    }
  for (int run = 0; run < 2; run++) {
    plugin_fetch(&p, out[run][0][0], got, 2 * sizeof *got);
    assert_true(got[0] == (float)(1 + 100 * run));
    plugin_buffer_destroy(&p, out[run][0][0]);
  }
  for (int d = 0; d < 4; d++) plugin_executable_destroy(&p, loaded[d]);
}

static void check_different(PJRT_Buffer *buffer) {
  ARGS(Buffer_ReadyEvent, ready);
  ready.buffer = buffer;
  plugin_ok(&p, SLOT_Buffer_ReadyEvent, &ready);
  ARGS(Event_Await, await);
  await.event = ready.event;
  plugin_fails(&p, SLOT_Event_Await, &await, 9, "different programs");
  ARGS(Event_Destroy, destroy);
  destroy.event = ready.event;
  plugin_ok(&p, SLOT_Event_Destroy, &destroy);
  plugin_buffer_destroy(&p, buffer);
}

// A replica comes to another collective than the others: nothing waits for ever, then or later.
static void replicas_that_part_are_told(void **state) {
  (void)state;
  static const char sum[] = REPLICAS_THAT("add"), product[] = REPLICAS_THAT("multiply");
  PJRT_Client *shared = client;
  client = plugin_client(&p);
  PJRT_LoadedExecutable *loaded = plugin_compile_grid(&p, client, sum, 4, 1, false),
                        *other = plugin_compile_grid(&p, client, product, 4, 1, false);
  PJRT_Buffer *out[4];
  for (int d = 0; d < 4; d++) out[d] = start_replica(d == 2 ? other : loaded, d, 1);
  for (int d = 0; d < 4; d++) check_different(out[d]);
  check_different(start_replica(loaded, 1, 1));
  plugin_executable_destroy(&p, other);
  plugin_executable_destroy(&p, loaded);
  ARGS(Client_Destroy, destroy);
  destroy.client = client;
  plugin_ok(&p, SLOT_Client_Destroy, &destroy);
  client = shared;
}

static void programs_that_cannot_run_are_refused(void **state) {
  (void)state;
  vt_bytes code = plugin_program("add");
  compile_fails(code, "jaxpr", 12, "mlir");
  static const uint8_t broken[] = "\x0a\x01m\x1a\x7f";
  compile_fails((vt_bytes){broken, sizeof broken - 1}, "hlo", 3, "runs past the end");
  for (size_t cut = 0; cut < code.size; cut += 13) {
    uint8_t *copy = malloc(cut + 1); // exact bounds for the sanitizer
    memcpy(copy, code.data, cut);
    compile_fails((vt_bytes){copy, cut}, "mlir", 3, NULL);
    free(copy);
  }
  vt_file_unmap(&code);
  code = plugin_program("large");
  compile_fails(code, "mlir", 8, "Ran out of memory in memory space hbm");
  vt_file_unmap(&code);
}

static void an_executable_reads_back_from_its_bytes(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  ARGS(LoadedExecutable_GetExecutable, get);
  get.loaded_executable = add;
  plugin_ok(&p, SLOT_LoadedExecutable_GetExecutable, &get);
  ARGS(Executable_Serialize, s);
  s.executable = get.executable;
  plugin_ok(&p, SLOT_Executable_Serialize, &s);
  ARGS(Executable_DeserializeAndLoad, d);
  d.client = client;
  d.serialized_executable = s.serialized_bytes;
  d.serialized_executable_size = s.serialized_bytes_size;
  plugin_ok(&p, SLOT_Executable_DeserializeAndLoad, &d);
  plugin_executable_destroy(&p, d.loaded_executable);
  for (size_t at = 0; at < s.serialized_bytes_size; at += 11) { // damage anywhere is an error
    char *bytes = malloc(s.serialized_bytes_size);
    memcpy(bytes, s.serialized_bytes, s.serialized_bytes_size);
    bytes[at] ^= 4;
    d.serialized_executable = bytes;
    PJRT_Error *error = plugin_call(&p, SLOT_Executable_DeserializeAndLoad, &d);
    plugin_error_is(&p, error, at < 8 ? 3 : 9, NULL);
    free(bytes);
  }
  d.serialized_executable = s.serialized_bytes;
  for (d.serialized_executable_size = 0; d.serialized_executable_size < 40;
       d.serialized_executable_size++) {
    PJRT_Error *error = plugin_call(&p, SLOT_Executable_DeserializeAndLoad, &d);
    plugin_error_is(&p, error, d.serialized_executable_size < 32 ? 3 : 9, NULL);
  }
  s.serialized_executable_deleter(s.serialized_executable);
  PJRT_Program program = {.struct_size = sizeof program, .code_size = 12345};
  ARGS(Executable_OptimizedProgram, text);
  text.executable = get.executable;
  text.program = &program;
  plugin_ok(&p, SLOT_Executable_OptimizedProgram, &text);
  program.code = calloc(1, program.code_size + 1);
  plugin_ok(&p, SLOT_Executable_OptimizedProgram, &text);
  assert_int_equal(program.format_size, strlen("hlo_with_config"));
  assert_memory_equal(program.format, "hlo_with_config", program.format_size);
  assert_non_null(memmem(program.code, program.code_size, "parameter", strlen("parameter")));
  free(program.code);
  ARGS(Executable_Destroy, destroy);
  destroy.executable = get.executable;
  plugin_executable_destroy(&p, add); // the executable outlives its source
  plugin_ok(&p, SLOT_Executable_Destroy, &destroy);
}

static PJRT_LoadedExecutable *compile_as(const char *format, vt_bytes code) {
  vt_text options = {0};
  plugin_options(1, 1, false, &options);
  PJRT_Program program = {.code = (char *)(uintptr_t)code.data,
                          .code_size = code.size,
                          .format = format,
                          .format_size = strlen(format)};
  ARGS(Client_Compile, a);
  a.client = client;
  a.program = &program;
  a.compile_options = options.data;
  a.compile_options_size = options.size;
  plugin_ok(&p, SLOT_Client_Compile, &a);
  vt_text_free(&options);
  return a.executable;
}

static void expect_sums(PJRT_LoadedExecutable *add) {
  int64_t four[1] = {4};
  float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40}, out[4];
  PJRT_Device *device = plugin_device(&p, client, 0);
  PJRT_Buffer *args[2] = {plugin_buffer(&p, client, device, 11, 1, four, a),
                          plugin_buffer(&p, client, device, 11, 1, four, b)};
  PJRT_Buffer *const *arguments[1] = {args};
  PJRT_Buffer *outs[2] = {0}, **results[1] = {outs};
  assert_null(plugin_execute(&p, add, 1, 2, arguments, results));
  plugin_fetch(&p, outs[0], out, sizeof out);
  assert_true(out[0] == 11 && out[3] == 44);
  plugin_fetch(&p, outs[1], out, sizeof out);
  assert_true(out[0] == 2 && out[3] == 8);
  for (int i = 0; i < 2; i++) {
    plugin_buffer_destroy(&p, outs[i]);
    plugin_buffer_destroy(&p, args[i]);
  }
}

// A compiled program is HLO with its configuration, which compiles again, as does the module in it.
static void hlo_compiles_as_stablehlo_does(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  ARGS(LoadedExecutable_GetExecutable, get);
  get.loaded_executable = add;
  plugin_ok(&p, SLOT_LoadedExecutable_GetExecutable, &get);
  PJRT_Program program = {.struct_size = sizeof program};
  ARGS(Executable_OptimizedProgram, text);
  text.executable = get.executable;
  text.program = &program;
  plugin_ok(&p, SLOT_Executable_OptimizedProgram, &text);
  program.code = calloc(1, program.code_size + 1);
  plugin_ok(&p, SLOT_Executable_OptimizedProgram, &text);
  ARGS(Executable_Destroy, destroy);
  destroy.executable = get.executable;
  plugin_ok(&p, SLOT_Executable_Destroy, &destroy);
  plugin_executable_destroy(&p, add);

  vt_bytes whole = {(const uint8_t *)program.code, program.code_size};
  vt_wire message = vt_wire_open(whole);
  vt_wire_field module;
  bool more;
  assert_null(vt_wire_next(&message, &module, &more));
  assert_true(more && module.number == 1);
  PJRT_LoadedExecutable *again[2] = {compile_as("hlo_with_config", whole),
                                     compile_as("hlo", module.bytes)};
  for (int i = 0; i < 2; i++) {
    expect_sums(again[i]);
    plugin_executable_destroy(&p, again[i]);
  }
  free(program.code);
}

static void a_topology_compiles_without_a_client(void **state) {
  (void)state;
  ARGS(TopologyDescription_Create, t);
  static const char name[] = "v5e:4x4";
  t.topology_name = name;
  t.topology_name_size = sizeof name - 1;
  plugin_ok(&p, SLOT_TopologyDescription_Create, &t);
  ARGS(TopologyDescription_GetDeviceDescriptions, d);
  d.topology = t.topology;
  plugin_ok(&p, SLOT_TopologyDescription_GetDeviceDescriptions, &d);
  assert_int_equal(d.num_descriptions, 16);
  ARGS(TopologyDescription_Serialize, s);
  s.topology = t.topology;
  plugin_ok(&p, SLOT_TopologyDescription_Serialize, &s);
  ARGS(TopologyDescription_Deserialize, back);
  back.serialized_topology = s.serialized_bytes;
  back.serialized_topology_size = s.serialized_bytes_size;
  plugin_ok(&p, SLOT_TopologyDescription_Deserialize, &back);
  ARGS(TopologyDescription_Fingerprint, f), g = f;
  f.topology = t.topology;
  g.topology = back.topology;
  plugin_ok(&p, SLOT_TopologyDescription_Fingerprint, &f);
  plugin_ok(&p, SLOT_TopologyDescription_Fingerprint, &g);
  assert_true(f.fingerprint == g.fingerprint);
  s.serialized_topology_deleter(s.serialized_topology);
  vt_bytes code = plugin_program("add");
  vt_text options = {0};
  plugin_options(1, 1, false, &options);
  PJRT_Program program = {.code = (char *)(uintptr_t)code.data,
                          .code_size = code.size,
                          .format = "mlir",
                          .format_size = 4};
  ARGS(Compile, c);
  c.topology = t.topology;
  c.program = &program;
  c.compile_options = options.data;
  c.compile_options_size = options.size;
  plugin_ok(&p, SLOT_Compile, &c);
  ARGS(Executable_Destroy, e);
  e.executable = c.executable;
  plugin_ok(&p, SLOT_Executable_Destroy, &e);
  vt_text_free(&options);
  vt_file_unmap(&code);
  ARGS(TopologyDescription_Destroy, destroy);
  destroy.topology = t.topology;
  plugin_ok(&p, SLOT_TopologyDescription_Destroy, &destroy);
  destroy.topology = back.topology;
  plugin_ok(&p, SLOT_TopologyDescription_Destroy, &destroy);
  t.topology_name = "v5e:9x";
  t.topology_name_size = 6;
  plugin_fails(&p, SLOT_TopologyDescription_Create, &t, 3, "v5e:9x");
  back.serialized_topology = "abc";
  back.serialized_topology_size = 3;
  plugin_fails(&p, SLOT_TopologyDescription_Deserialize, &back, 3, NULL);
}

static void a_slice_that_does_not_exist_is_refused(void **state) {
  (void)state;
  setenv("VTPU_ACCELERATOR_TYPE", "v3-9", 1);
  ARGS(Client_Create, a);
  plugin_fails(&p, SLOT_Client_Create, &a, 5, "v3-8");
  setenv("VTPU_ACCELERATOR_TYPE", "v6e-4", 1);
  plugin_ok(&p, SLOT_Client_Create, &a);
  ARGS(Client_Devices, d);
  d.client = a.client;
  plugin_ok(&p, SLOT_Client_Devices, &d);
  assert_int_equal(d.num_devices, 4);
  plugin_client_destroy(&p, a.client);
  unsetenv("VTPU_ACCELERATOR_TYPE");
}

static void run_once(const plugin *q, PJRT_Client *c) {
  PJRT_LoadedExecutable *add = plugin_compile(q, c, "add", 1);
  int64_t four[1] = {4};
  float a[4] = {1, 2, 3, 4}, out[4];
  PJRT_Buffer *x = plugin_buffer(q, c, plugin_device(q, c, 0), 11, 1, four, a);
  PJRT_Buffer *args[2] = {x, x}, *outs[2] = {0}, **results[1] = {outs};
  PJRT_Buffer *const *arguments[1] = {args};
  assert_null(plugin_execute(q, add, 1, 2, arguments, results));
  plugin_fetch(q, outs[0], out, sizeof out);
  assert_true(out[3] == 8);
  plugin_buffer_destroy(q, outs[0]);
  plugin_buffer_destroy(q, outs[1]);
  plugin_buffer_destroy(q, x);
  plugin_executable_destroy(q, add);
}

// A second copy of the library in one process has its own devices and does not disturb the first.
static void two_copies_of_the_library_live_side_by_side(void **state) {
  (void)state;
  char path[] = "/tmp/vtpu_plugin_XXXXXX.so", command[1024];
  int file = mkstemps(path, 3);
  assert_true(file >= 0);
  close(file);
  snprintf(command, sizeof command, "cp '%s' '%s'", plugin_path(), path);
  assert_int_equal(system(command), 0);
  plugin second = plugin_load(path);
  unlink(path);
  assert_ptr_not_equal(second.api, p.api);
  PJRT_Client *other = plugin_client(&second);
  run_once(&second, other);
  run_once(&p, client);
  plugin_client_destroy(&second, other);
  run_once(&p, client);
}

static void a_forked_child_is_refused_and_its_parent_goes_on(void **state) {
  (void)state;
  run_once(&p, client);
  pid_t child = fork();
  if (child == 0) {
    int64_t four[1] = {4};
    float a[4] = {0};
    ARGS(Client_BufferFromHostBuffer, b);
    b.client = client;
    b.data = a;
    b.type = 11;
    b.dims = four;
    b.num_dims = 1;
    b.device = plugin_device(&p, client, 0);
    plugin_fails(&p, SLOT_Client_BufferFromHostBuffer, &b, 9, "fork");
    plugin_client_destroy(&p, client);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  run_once(&p, client);
}

static void run_queued(PJRT_Client *c) {
  int64_t dims[2] = {256, 256};
  static float data[256 * 256];
  PJRT_LoadedExecutable *medium = plugin_compile(&p, c, "medium", 1);
  PJRT_Buffer *args[2], *outs[1] = {0}, **results[1] = {outs};
  for (int i = 0; i < 2; i++)
    args[i] = plugin_buffer(&p, c, plugin_device(&p, c, 0), 11, 2, dims, data);
  PJRT_Buffer *const *arguments[1] = {args};
  assert_null(plugin_execute(&p, medium, 1, 2, arguments, results));
  plugin_buffer_destroy(&p, outs[0]);
  for (int i = 0; i < 2; i++) plugin_buffer_destroy(&p, args[i]);
  plugin_executable_destroy(&p, medium);
}

// A chain of runs is queued; arguments are destroyed before they are used; events fire once each,
// results are right.
static void queued_runs_outlive_their_arguments(void **state) {
  (void)state;
  enum { SIDE = 256, STEPS = 20 };
  PJRT_LoadedExecutable *medium = plugin_compile(&p, client, "medium", 1);
  PJRT_Device *device = plugin_device(&p, client, 0);
  int64_t dims[2] = {SIDE, SIDE};
  static float ones[SIDE * SIDE], out[SIDE * SIDE];
  for (int i = 0; i < SIDE * SIDE; i++) ones[i] = 1;
  PJRT_Buffer *a = plugin_buffer(&p, client, device, 11, 2, dims, ones);
  PJRT_Buffer *b = plugin_buffer(&p, client, device, 11, 2, dims, ones);
  atomic_int calls = 0;
  for (int i = 0; i < STEPS; i++) {
    PJRT_Buffer *sum = plugin_start(&p, medium, a, b, &calls);
    plugin_buffer_destroy(&p, b);
    b = sum;
  }
  plugin_buffer_destroy(&p, a);
  plugin_executable_destroy(&p, medium);
  plugin_fetch(&p, b, out, sizeof out);
  plugin_buffer_destroy(&p, b);
  for (int i = 0; i < SIDE * SIDE; i++)
    assert_true(out[i] > 16.2f && out[i] < 16.3f); // 1 + 20 tanh(1)
  assert_int_equal(calls, STEPS);
}

// 1,000 of each; the process must not grow by more than the noise of its allocator.
static void nothing_grows_over_a_thousand_clients(void **state) {
  (void)state;
  const char *wanted = getenv("VTPU_LEAK_ROUNDS");
  int rounds = wanted ? atoi(wanted) : 1100;
  size_t before = 0;
  for (int i = 0; i < rounds; i++) {
    if (i == 100) before = mallinfo2().uordblks;
    PJRT_Client *c = plugin_client(&p);
    run_once(&p, c);
    if (i % 100 == 0) run_queued(c);
    plugin_client_destroy(&p, c);
  }
  size_t after = mallinfo2().uordblks;
  if (before && after > before + 100000)
    fail_msg("%zu bytes in use grew to %zu over %d rounds", before, after, rounds - 100);
}

// plugin_test [CASE]: all cases, or those whose name matches.
int main(int argc, char **argv) {
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_has_its_version_and_every_slot),
      cmocka_unit_test(extensions_are_chained_and_known),
      cmocka_unit_test(devices_say_what_a_v3_8_is),
      cmocka_unit_test(user_data_of_a_memory_is_kept_and_destroyed),
      cmocka_unit_test(buffers_hold_what_was_put_into_them),
      cmocka_unit_test(impossible_buffers_are_refused),
      cmocka_unit_test(a_program_runs_and_gives_its_results),
      cmocka_unit_test(donated_buffers_are_gone_after_the_run),
      cmocka_unit_test(an_error_argument_makes_error_results),
      cmocka_unit_test(shards_are_gathered_and_results_cut_as_asked),
      cmocka_unit_test(partitions_may_run_on_arrays_of_their_own),
      cmocka_unit_test(a_replica_that_meets_no_other_runs_alone),
      cmocka_unit_test(replicas_started_one_by_one_meet),
      cmocka_unit_test(replicas_of_different_programs_meet),
      cmocka_unit_test(replicas_that_part_are_told),
      cmocka_unit_test(programs_that_cannot_run_are_refused),
      cmocka_unit_test(an_executable_reads_back_from_its_bytes),
      cmocka_unit_test(hlo_compiles_as_stablehlo_does),
      cmocka_unit_test(a_topology_compiles_without_a_client),
      cmocka_unit_test(a_slice_that_does_not_exist_is_refused),
      cmocka_unit_test(queued_runs_outlive_their_arguments),
      cmocka_unit_test(two_copies_of_the_library_live_side_by_side),
      cmocka_unit_test(a_forked_child_is_refused_and_its_parent_goes_on),
      cmocka_unit_test(nothing_grows_over_a_thousand_clients),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
