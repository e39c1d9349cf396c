// SPDX-License-Identifier: Apache-2.0
// deferred_test.c - buffers that get their data later, poisoned executions, and the profiler,
// checked through a plugin's function table.
#include <stdlib.h>
#include <string.h>

#include "pjrt/proto.h"
#include "plugin_support.h"

static plugin p;
static PJRT_Client *client;
static int64_t four[1] = {4};
static const float ones[4] = {1, 1, 1, 1}, ramp[4] = {1, 2, 3, 4};

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

static PJRT_Memory *memory_of(int device) {
  ARGS(Device_DefaultMemory, memory);
  memory.device = plugin_device(&p, client, device);
  plugin_ok(&p, SLOT_Device_DefaultMemory, &memory);
  return memory.memory;
}

static PJRT_Error *ready_error(PJRT_Buffer *buffer) {
  ARGS(Buffer_ReadyEvent, ready);
  ready.buffer = buffer;
  plugin_ok(&p, SLOT_Buffer_ReadyEvent, &ready);
  return plugin_await(&p, ready.event);
}

static bool is_ready(PJRT_Buffer *buffer) {
  ARGS(Buffer_ReadyEvent, ready);
  ARGS(Event_IsReady, is);
  ARGS(Event_Destroy, destroy);
  ready.buffer = buffer;
  plugin_ok(&p, SLOT_Buffer_ReadyEvent, &ready);
  is.event = destroy.event = ready.event;
  plugin_ok(&p, SLOT_Event_IsReady, &is);
  plugin_ok(&p, SLOT_Event_Destroy, &destroy);
  return is.is_ready;
}

// Starts `add` on two buffers of device 0 without waiting. out_results gets its two results.
static void start_add(PJRT_LoadedExecutable *add, int launch_id, PJRT_Buffer *a, PJRT_Buffer *b,
                      PJRT_Buffer *out_results[2], PJRT_Event **out_event) {
  PJRT_Buffer *args[2] = {a, b}, **results[1] = {out_results};
  PJRT_Buffer *const *arguments[1] = {args};
  PJRT_ExecuteOptions options = {.struct_size = sizeof options, .launch_id = launch_id};
  ARGS(LoadedExecutable_Execute, run);
  run.executable = add;
  run.options = &options;
  run.argument_lists = arguments;
  run.num_devices = 1;
  run.num_args = 2;
  run.output_lists = results;
  run.device_complete_events = out_event;
  plugin_ok(&p, SLOT_LoadedExecutable_Execute, &run);
}

static PJRT_Buffer *make_alias(PJRT_FulfillAliasBufferCallback **out_handle) {
  ARGS(Client_CreateAliasBuffer, alias);
  alias.client = client;
  alias.memory = memory_of(0);
  alias.shape_dims = four;
  alias.shape_num_dims = 1;
  alias.shape_element_type = 11;
  plugin_ok(&p, SLOT_Client_CreateAliasBuffer, &alias);
  *out_handle = alias.fulfill_alias_buffer_cb;
  return alias.alias_buffer;
}

static void fulfil(PJRT_FulfillAliasBufferCallback *handle, PJRT_Buffer *buffer, int code) {
  ARGS(Client_FulfillAliasBuffer, args);
  args.client = client;
  args.buffer = buffer;
  args.status_code = code;
  args.error_message = "lost";
  args.error_message_size = 4;
  args.fulfill_alias_buffer_cb = handle;
  plugin_ok(&p, SLOT_Client_FulfillAliasBuffer, &args);
}

static PJRT_AsyncHostToDeviceTransferManager *make_transfer(PJRT_ShapeSpec *specs, size_t count) {
  ARGS(Client_CreateBuffersForAsyncHostToDevice, make);
  make.client = client;
  make.shape_specs = specs;
  make.num_shape_specs = count;
  make.memory = memory_of(2);
  plugin_ok(&p, SLOT_Client_CreateBuffersForAsyncHostToDevice, &make);
  return make.transfer_manager;
}

static PJRT_Buffer *retrieve(PJRT_AsyncHostToDeviceTransferManager *manager, int index) {
  ARGS(AsyncHostToDeviceTransferManager_RetrieveBuffer, get);
  get.transfer_manager = manager;
  get.buffer_index = index;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_RetrieveBuffer, &get);
  return get.buffer_out;
}

static void a_transfer_fills_its_buffers_in_pieces(void **state) {
  (void)state;
  int64_t matrix[2] = {2, 2};
  PJRT_ShapeSpec specs[4] = {
      {.struct_size = sizeof *specs, .dims = four, .num_dims = 1, .element_type = 11},
      {.struct_size = sizeof *specs, .dims = matrix, .num_dims = 2, .element_type = 11},
      {.struct_size = sizeof *specs, .dims = four, .num_dims = 1, .element_type = 11},
      {.struct_size = sizeof *specs, .dims = four, .num_dims = 1, .element_type = 11}};
  PJRT_AsyncHostToDeviceTransferManager *manager = make_transfer(specs, 4);
  ARGS(AsyncHostToDeviceTransferManager_BufferCount, count);
  count.transfer_manager = manager;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_BufferCount, &count);
  assert_int_equal(count.buffer_count, 4);
  ARGS(AsyncHostToDeviceTransferManager_BufferSize, size);
  size.transfer_manager = manager;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_BufferSize, &size);
  assert_int_equal(size.buffer_size, 16);
  size.buffer_index = 4;
  plugin_fails(&p, SLOT_AsyncHostToDeviceTransferManager_BufferSize, &size, 3, "4");
  ARGS(AsyncHostToDeviceTransferManager_Device, device);
  device.transfer_manager = manager;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_Device, &device);
  assert_ptr_equal(device.device_out, plugin_device(&p, client, 2));

  // In two pieces, the second first.
  PJRT_Buffer *buffers[4];
  for (int i = 0; i < 4; i++) buffers[i] = retrieve(manager, i);
  assert_false(is_ready(buffers[0]));
  ARGS(AsyncHostToDeviceTransferManager_TransferData, piece);
  piece.transfer_manager = manager;
  piece.data = ramp + 2;
  piece.offset = piece.transfer_size = 8;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_TransferData, &piece);
  assert_null(plugin_await(&p, piece.done_with_h2d_transfer));
  piece.offset = 12;
  plugin_fails(&p, SLOT_AsyncHostToDeviceTransferManager_TransferData, &piece, 3, "16");
  piece.data = ramp;
  piece.offset = 0;
  piece.is_last_transfer = true;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_TransferData, &piece);
  assert_null(plugin_await(&p, piece.done_with_h2d_transfer));
  float back[4];
  plugin_fetch(&p, buffers[0], back, sizeof back);
  assert_memory_equal(back, ramp, sizeof back);
  plugin_fails(&p, SLOT_AsyncHostToDeviceTransferManager_TransferData, &piece, 9, "complete");

  // A column-major literal, an error, and an abandoned one.
  static const int64_t columns[2] = {0, 1};
  PJRT_Buffer_MemoryLayout layout = {
      .tiled = {.minor_to_major = columns, .minor_to_major_size = 2}};
  ARGS(AsyncHostToDeviceTransferManager_TransferLiteral, literal);
  literal.transfer_manager = manager;
  literal.buffer_index = 1;
  literal.data = ramp;
  literal.shape_dims = matrix;
  literal.shape_num_dims = 2;
  literal.shape_element_type = 11;
  literal.shape_layout = &layout;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_TransferLiteral, &literal);
  assert_null(plugin_await(&p, literal.done_with_h2d_transfer));
  plugin_fetch(&p, buffers[1], back, sizeof back);
  const float rows[4] = {1, 3, 2, 4};
  assert_memory_equal(back, rows, sizeof back);
  ARGS(AsyncHostToDeviceTransferManager_SetBufferError, bad);
  bad.transfer_manager = manager;
  bad.buffer_index = 2;
  bad.error_code = 15;
  bad.error_message = "lost";
  bad.error_message_size = 4;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_SetBufferError, &bad);
  plugin_error_is(&p, ready_error(buffers[2]), 15, "lost");
  ARGS(AsyncHostToDeviceTransferManager_AddMetadata, metadata);
  metadata.transfer_manager = manager;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_AddMetadata, &metadata);
  ARGS(AsyncHostToDeviceTransferManager_Destroy, destroy);
  destroy.transfer_manager = manager;
  plugin_ok(&p, SLOT_AsyncHostToDeviceTransferManager_Destroy, &destroy);
  plugin_error_is(&p, ready_error(buffers[3]), 1, "given up");
  for (int i = 0; i < 4; i++) plugin_buffer_destroy(&p, buffers[i]);
}

// A program on an alias is started, others run in the meantime, and one of those gives the alias
// its data.
static void an_alias_gets_its_data_from_a_later_run(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  PJRT_Device *device = plugin_device(&p, client, 0);
  PJRT_Buffer *b = plugin_buffer(&p, client, device, 11, 1, four, ramp);
  PJRT_FulfillAliasBufferCallback *handle;
  PJRT_Buffer *alias = make_alias(&handle), *first[2], *chained[2], *second[2];
  PJRT_Event *events[3];
  float want[4], got[4];
  start_add(add, 1, b, b, second, &events[2]); // what add does to ramp + ramp
  assert_null(plugin_await(&p, events[2]));
  plugin_fetch(&p, second[0], want, sizeof want);
  for (int i = 0; i < 2; i++) plugin_buffer_destroy(&p, second[i]);

  start_add(add, 1, alias, b, first, &events[0]);
  start_add(add, 2, first[0], b, chained, &events[1]); // waits too, through the other
  assert_false(is_ready(first[0]) || is_ready(chained[0]));
  start_add(add, 3, b, b, second, &events[2]);
  assert_null(plugin_await(&p, events[2]));
  plugin_fetch(&p, second[0], got, sizeof got);
  assert_memory_equal(got, want, sizeof got);
  fulfil(handle, b, 0);
  assert_null(plugin_await(&p, events[0]));
  assert_null(plugin_await(&p, events[1]));
  plugin_fetch(&p, first[0], got, sizeof got);
  assert_memory_equal(got, want, sizeof got);
  plugin_buffer_destroy(&p, alias);
  for (int i = 0; i < 2; i++) {
    plugin_buffer_destroy(&p, first[i]);
    plugin_buffer_destroy(&p, chained[i]);
    plugin_buffer_destroy(&p, second[i]);
  }

  alias = make_alias(&handle);
  fulfil(handle, NULL, 15);
  plugin_error_is(&p, ready_error(alias), 15, "lost");
  plugin_buffer_destroy(&p, alias);
  plugin_buffer_destroy(&p, b);
  plugin_executable_destroy(&p, add);
}

static void a_donation_waits_for_its_event(void **state) {
  (void)state;
  for (int held = 0; held < 2; held++) { // alone, and while another buffer shows the same data
    PJRT_Buffer *a = plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 1, four, ramp);
    ARGS(Buffer_CopyToMemory, copy);
    copy.buffer = a;
    copy.dst_memory = memory_of(1);
    if (held) plugin_ok(&p, SLOT_Buffer_CopyToMemory, &copy);
    ARGS(Buffer_DonateWithControlDependency, donate);
    donate.buffer = a;
    plugin_ok(&p, SLOT_Buffer_DonateWithControlDependency, &donate);
    ARGS(Buffer_IsDeleted, deleted);
    deleted.buffer = a;
    plugin_ok(&p, SLOT_Buffer_IsDeleted, &deleted);
    assert_true(deleted.is_deleted);
    assert_false(is_ready(donate.out_buffer));
    PJRT_Buffer_DonateWithControlDependency_Callback_Args ready = {
        .struct_size = sizeof ready, .callback_data = donate.callback_data};
    donate.dependency_ready_callback(&ready);
    float back[4];
    plugin_fetch(&p, donate.out_buffer, back, sizeof back);
    assert_memory_equal(back, ramp, sizeof back);
    plugin_fails(&p, SLOT_Buffer_DonateWithControlDependency, &donate, 3, "deleted or donated");
    plugin_buffer_destroy(&p, donate.out_buffer);
    plugin_buffer_destroy(&p, a);
    if (!held) continue;
    plugin_fetch(&p, copy.dst_buffer, back, sizeof back);
    assert_memory_equal(back, ramp, sizeof back);
    plugin_buffer_destroy(&p, copy.dst_buffer);
  }
  PJRT_Buffer *a = plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 1, four, ramp);
  ARGS(Buffer_DonateWithControlDependency, donate);
  donate.buffer = a;
  plugin_ok(&p, SLOT_Buffer_DonateWithControlDependency, &donate);
  PJRT_Buffer_DonateWithControlDependency_Callback_Args failed = {.callback_data =
                                                                      donate.callback_data,
                                                                  .error_code = 10,
                                                                  .error_message = "went wrong",
                                                                  .error_message_size = 10};
  donate.dependency_ready_callback(&failed);
  plugin_error_is(&p, ready_error(donate.out_buffer), 10, "went wrong");
  plugin_buffer_destroy(&p, donate.out_buffer);
  plugin_buffer_destroy(&p, a);
}

static void a_raw_copy_may_learn_its_place_later(void **state) {
  (void)state;
  PJRT_FulfillAliasBufferCallback *handle;
  PJRT_Buffer *alias = make_alias(&handle);
  PJRT_Buffer *b = plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 1, four, ramp);
  float back[2] = {0};
  ARGS(Buffer_CopyRawToHostFuture, copy);
  copy.buffer = alias;
  copy.offset = 4;
  copy.transfer_size = 16;
  plugin_fails(&p, SLOT_Buffer_CopyRawToHostFuture, &copy, 3, "16");
  copy.transfer_size = 8;
  plugin_ok(&p, SLOT_Buffer_CopyRawToHostFuture, &copy);
  PJRT_Buffer_CopyRawToHostFuture_Callback_Args place = {
      .struct_size = sizeof place, .callback_data = copy.callback_data, .dst = back};
  copy.future_ready_callback(&place);
  fulfil(handle, b, 0);
  assert_null(plugin_await(&p, copy.event));
  assert_true(back[0] == 2 && back[1] == 3);
  copy.buffer = b; // the reverse: the data is there first
  plugin_ok(&p, SLOT_Buffer_CopyRawToHostFuture, &copy);
  place.callback_data = copy.callback_data;
  place.error_code = 1;
  place.error_message = "no room";
  place.error_message_size = 7;
  copy.future_ready_callback(&place);
  plugin_error_is(&p, plugin_await(&p, copy.event), 1, "no room");
  plugin_buffer_destroy(&p, alias);
  plugin_buffer_destroy(&p, b);
}

static void count_call(void *data, void *user) {
  (void)data;
  ++*(int *)user;
}

static void bitcasts_and_views_show_the_same_bytes(void **state) {
  (void)state;
  PJRT_Buffer *b = plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 1, four, ramp);
  int64_t eight[2] = {2, 4};
  ARGS(Buffer_Bitcast, cast);
  cast.buffer = b;
  cast.element_type = 7; // unsigned, 16 bits
  cast.dims = eight;
  cast.num_dims = 2;
  plugin_ok(&p, SLOT_Buffer_Bitcast, &cast);
  uint16_t halves[8];
  plugin_fetch(&p, cast.out_buffer, halves, sizeof halves);
  assert_memory_equal(halves, ramp, sizeof ramp);
  plugin_buffer_destroy(&p, cast.out_buffer);
  cast.num_dims = 1;
  plugin_fails(&p, SLOT_Buffer_Bitcast, &cast, 3, "16 bytes");
  plugin_buffer_destroy(&p, b);

  int calls = 0;
  float data[4], back[4];
  memcpy(data, ramp, sizeof data);
  ARGS(Client_CreateViewOfDeviceBuffer, view);
  view.client = client;
  view.device_buffer_ptr = data;
  view.dims = four;
  view.num_dims = 1;
  view.element_type = 11;
  view.device = plugin_device(&p, client, 0);
  view.on_delete_callback = count_call;
  view.on_delete_callback_arg = &calls;
  plugin_ok(&p, SLOT_Client_CreateViewOfDeviceBuffer, &view);
  plugin_fetch(&p, view.buffer, back, sizeof back);
  assert_memory_equal(back, ramp, sizeof back);
  plugin_buffer_destroy(&p, view.buffer);
  assert_int_equal(calls, 1);
}

static void a_poisoned_execution_makes_error_results(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  PJRT_Buffer *b = plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 1, four, ones);
  PJRT_FulfillAliasBufferCallback *handle;
  PJRT_Buffer *alias = make_alias(&handle), *results[2];
  PJRT_Event *event;
  start_add(add, 77, alias, b, results, &event);
  ARGS(Device_PoisonExecution, poison);
  poison.device = plugin_device(&p, client, 0);
  poison.launch_id = 78;
  poison.error_code = 10;
  poison.error_message = "stopped";
  poison.error_message_size = 7;
  plugin_ok(&p, SLOT_Device_PoisonExecution, &poison);
  assert_false(poison.poisoned);
  poison.launch_id = 77;
  plugin_ok(&p, SLOT_Device_PoisonExecution, &poison);
  assert_true(poison.poisoned);
  plugin_error_is(&p, plugin_await(&p, event), 10, "stopped");
  plugin_error_is(&p, ready_error(results[0]), 10, "stopped");
  plugin_ok(&p, SLOT_Device_PoisonExecution, &poison);
  assert_false(poison.poisoned);
  for (int i = 0; i < 2; i++) plugin_buffer_destroy(&p, results[i]);
  fulfil(handle, b, 0); // the run continues unseen; the next one follows it
  start_add(add, 79, b, b, results, &event);
  assert_null(plugin_await(&p, event));
  for (int i = 0; i < 2; i++) plugin_buffer_destroy(&p, results[i]);
  plugin_buffer_destroy(&p, alias);
  plugin_buffer_destroy(&p, b);
  plugin_executable_destroy(&p, add);
}

static void buffers_move_between_memories(void **state) {
  (void)state;
  ARGS(Client_TopologyDescription, topology);
  topology.client = client;
  plugin_ok(&p, SLOT_Client_TopologyDescription, &topology);
  ARGS(TopologyDescription_GetMemorySpaceKindIds, kinds);
  kinds.topology = topology.topology;
  plugin_ok(&p, SLOT_TopologyDescription_GetMemorySpaceKindIds, &kinds);
  assert_int_equal(kinds.num_memory_space_kind_ids, 3);
  int64_t dims[2] = {16, 8};
  ARGS(TopologyDescription_MakeCanonicalShapeForMemorySpace, shape);
  shape.topology = topology.topology;
  shape.dims = dims;
  shape.num_dims = 2;
  shape.element_type = 13;
  plugin_ok(&p, SLOT_TopologyDescription_MakeCanonicalShapeForMemorySpace, &shape);
  // bf16 is 16 there; {0,1}; neither dimension is dynamic.
  static const char want[] = "\x10\x10\x18\x10\x18\x08\x2a\x04\x08\x00\x08\x01\x30\x00\x30\x00";
  assert_int_equal(shape.serialized_shape_size, sizeof want - 1);
  assert_memory_equal(shape.serialized_shape, want, sizeof want - 1);
  shape.serialized_shape_deleter(shape.serialized_shape);
  shape.memory_space_kind_id = 3;
  plugin_fails(&p, SLOT_TopologyDescription_MakeCanonicalShapeForMemorySpace, &shape, 3, "3");
}

// The names of the planes, and the number of events of all lines.
static int read_space(vt_bytes bytes, vt_text *out_names) {
  vt_wire space = vt_wire_open(bytes);
  vt_wire_field f;
  bool more;
  int events = 0;
  while (!vt_wire_next(&space, &f, &more) && more) {
    assert_int_equal(f.number, 1);
    vt_wire plane = vt_wire_open(f.bytes);
    vt_wire_field g;
    while (!vt_wire_next(&plane, &g, &more) && more) {
      if (g.number == 2)
        vt_text_printf(out_names, "%.*s;", (int)g.bytes.size, (const char *)g.bytes.data);
      if (g.number != 3) continue;
      vt_wire line = vt_wire_open(g.bytes);
      vt_wire_field h;
      while (!vt_wire_next(&line, &h, &more) && more) events += h.number == 4;
      more = true;
    }
    more = true;
  }
  return events;
}

static void a_profile_shows_runs_and_compilations(void **state) {
  (void)state;
  const PJRT_Extension_Base *e = p.api->extension_start;
  while (e && e->type != PJRT_EXTENSION_PROFILER) e = e->next;
  assert_non_null(e);
  const PLUGIN_Profiler_Api *api = ((const PJRT_Profiler_Extension *)(const void *)e)->api;
  assert_int_equal(api->struct_size, 80);
  PLUGIN_Profiler_Create_Args create = {.struct_size = sizeof create};
  assert_null(api->create(&create));
  PLUGIN_Profiler_Args profiler = {.struct_size = sizeof profiler, .profiler = create.profiler};
  PLUGIN_Profiler_CollectData_Args data = {.struct_size = sizeof data, .profiler = create.profiler};
  assert_null(api->start(&profiler));
  plugin_error_is(&p, api->collect_data(&data), 9, "stop");
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  PJRT_Buffer *b = plugin_buffer(&p, client, plugin_device(&p, client, 0), 11, 1, four, ones);
  ARGS(Device_CreateAsyncTrackingEvent, track);
  track.device = plugin_device(&p, client, 1);
  track.description = "a transfer";
  track.description_size = 10;
  plugin_ok(&p, SLOT_Device_CreateAsyncTrackingEvent, &track);
  for (int i = 0; i < 3; i++) {
    PJRT_Buffer *results[2];
    PJRT_Event *event;
    if (i == 2) assert_null(api->stop(&profiler)); // the last run is not recorded
    start_add(add, i, b, b, results, &event);
    assert_null(plugin_await(&p, event));
    for (int r = 0; r < 2; r++) plugin_buffer_destroy(&p, results[r]);
    if (i) continue;
    ARGS(AsyncTrackingEvent_Destroy, tracked);
    tracked.event = track.event;
    plugin_ok(&p, SLOT_AsyncTrackingEvent_Destroy, &tracked);
  }
  assert_null(api->collect_data(&data));
  vt_text names = {0};
  int events = read_space((vt_bytes){data.buffer, data.buffer_size_in_bytes}, &names);
  assert_string_equal(vt_text_string(&names), "/host:vtpu;/host:metadata;/device:TPU:0;");
  // Compilation, two runs, the tracked span; on the device two steps, their runs, two kernels each.
  assert_int_equal(events, 4 + 2 + 2 + 4);
  vt_text_free(&names);
  assert_null(api->destroy(&profiler));
  plugin_buffer_destroy(&p, b);
  plugin_executable_destroy(&p, add);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_transfer_fills_its_buffers_in_pieces),
      cmocka_unit_test(an_alias_gets_its_data_from_a_later_run),
      cmocka_unit_test(a_donation_waits_for_its_event),
      cmocka_unit_test(a_raw_copy_may_learn_its_place_later),
      cmocka_unit_test(bitcasts_and_views_show_the_same_bytes),
      cmocka_unit_test(a_poisoned_execution_makes_error_results),
      cmocka_unit_test(buffers_move_between_memories),
      cmocka_unit_test(a_profile_shows_runs_and_compilations),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
