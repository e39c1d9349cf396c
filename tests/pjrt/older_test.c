// SPDX-License-Identifier: Apache-2.0
// older_test.c - callers of earlier versions of the interface, whose structures are shorter.
#include <string.h>

#include "plugin_support.h"

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

// The caller's structure ends after `size` bytes; what follows is not the plugin's.
static void cut(void *args, size_t size, size_t whole) {
  *(size_t *)args = size;
  memset((char *)args + size, 0x5a, whole - size);
}

static void assert_untouched(const void *args, size_t size, size_t whole) {
  for (size_t i = size; i < whole; i++) assert_int_equal(((const char *)args)[i], 0x5a);
}

// JAX up to 0.6 says that its structure ends before the number of attributes, which it reads.
static void attributes_are_counted(void **state) {
  (void)state;
  ARGS(Plugin_Attributes, new);
  PJRT_Plugin_Attributes_Args old = {.struct_size = 24};
  plugin_ok(&p, SLOT_Plugin_Attributes, &new);
  plugin_ok(&p, SLOT_Plugin_Attributes, &old);
  assert_ptr_equal(old.attributes, new.attributes);
  assert_int_equal(old.num_attributes, new.num_attributes);
}

static void a_client_needs_no_second_callback(void **state) {
  (void)state;
  ARGS(Client_Create, create);
  cut(&create, 72, sizeof create);
  plugin_ok(&p, SLOT_Client_Create, &create);
  plugin_client_destroy(&p, create.client);
  assert_untouched(&create, 72, sizeof create);
}

static void statistics_end_with_the_structure(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  PJRT_Executable *executable = plugin_get_executable(&p, add);
  ARGS(Executable_GetCompiledMemoryStats, new);
  new.executable = executable;
  plugin_ok(&p, SLOT_Executable_GetCompiledMemoryStats, &new);
  for (size_t size = 104; size < sizeof new; size += 8) {
    ARGS(Executable_GetCompiledMemoryStats, old);
    old.executable = executable;
    cut(&old, size, sizeof old);
    plugin_ok(&p, SLOT_Executable_GetCompiledMemoryStats, &old);
    assert_memory_equal((char *)&old + 8, (char *)&new + 8, size - 8);
    assert_untouched(&old, size, sizeof old);
  }
  cut(&new, 96, sizeof new);
  plugin_fails(&p, SLOT_Executable_GetCompiledMemoryStats, &new, 3, "take a newer JAX or PyTorch");
  plugin_drop_executable(&p, executable);
  plugin_executable_destroy(&p, add);
}

// As the compilation cache of JAX 0.4.36 to 0.9 does.
static void a_program_is_loaded_without_options(void **state) {
  (void)state;
  PJRT_LoadedExecutable *add = plugin_compile(&p, client, "add", 1);
  PJRT_Executable *executable = plugin_get_executable(&p, add);
  ARGS(Executable_Serialize, s);
  s.executable = executable;
  plugin_ok(&p, SLOT_Executable_Serialize, &s);
  ARGS(Executable_DeserializeAndLoad, d);
  d.client = client;
  d.serialized_executable = s.serialized_bytes;
  d.serialized_executable_size = s.serialized_bytes_size;
  cut(&d, 48, sizeof d);
  plugin_ok(&p, SLOT_Executable_DeserializeAndLoad, &d);
  assert_untouched(&d, 48, sizeof d);
  plugin_executable_destroy(&p, d.loaded_executable);
  s.serialized_executable_deleter(s.serialized_executable);
  plugin_drop_executable(&p, executable);
  plugin_executable_destroy(&p, add);
}

static void a_view_lies_in_the_memory_of_its_device(void **state) {
  (void)state;
  static _Alignas(64) float data[4] = {1, 2, 3, 4};
  static const int64_t dims[1] = {4};
  float seen[4];
  ARGS(Client_CreateViewOfDeviceBuffer, view);
  view.client = client;
  view.device_buffer_ptr = data;
  view.dims = dims, view.num_dims = 1;
  view.element_type = 11; // f32
  view.device = plugin_device(&p, client, 0);
  cut(&view, 104, sizeof view);
  plugin_ok(&p, SLOT_Client_CreateViewOfDeviceBuffer, &view);
  assert_untouched(&view, 104, sizeof view);
  plugin_fetch(&p, view.buffer, seen, sizeof seen);
  assert_memory_equal(seen, data, sizeof seen);
  plugin_buffer_destroy(&p, view.buffer);
}

// Errors without a payload.
static void errors_have_what_they_had(void **state) {
  (void)state;
  static const int64_t dims[1] = {4};
  ARGS(Device_DefaultMemory, memory);
  memory.device = plugin_device(&p, client, 0);
  plugin_ok(&p, SLOT_Device_DefaultMemory, &memory);
  ARGS(Client_CreateErrorBuffer, broken);
  broken.client = client;
  broken.error_code = 10;
  broken.error_message = "stopped";
  broken.error_message_size = strlen("stopped");
  broken.shape_dims = dims, broken.shape_num_dims = 1;
  broken.shape_element_type = 11; // f32
  broken.memory = memory.memory;
  cut(&broken, 96, sizeof broken);
  plugin_ok(&p, SLOT_Client_CreateErrorBuffer, &broken);
  assert_untouched(&broken, 96, sizeof broken);
  ARGS(Buffer_ReadyEvent, ready);
  ready.buffer = broken.buffer;
  plugin_ok(&p, SLOT_Buffer_ReadyEvent, &ready);
  plugin_error_is(&p, plugin_await(&p, ready.event), 10, "stopped");
  plugin_buffer_destroy(&p, broken.buffer);

  ARGS(Device_PoisonExecution, poison);
  poison.device = memory.device;
  poison.launch_id = 12345; // of no execution
  poison.error_code = 10;
  poison.poisoned = true;
  cut(&poison, 49, sizeof poison);
  plugin_ok(&p, SLOT_Device_PoisonExecution, &poison);
  assert_false(poison.poisoned);
  assert_untouched(&poison, 49, sizeof poison);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attributes_are_counted),
      cmocka_unit_test(a_client_needs_no_second_callback),
      cmocka_unit_test(statistics_end_with_the_structure),
      cmocka_unit_test(a_program_is_loaded_without_options),
      cmocka_unit_test(a_view_lies_in_the_memory_of_its_device),
      cmocka_unit_test(errors_have_what_they_had),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
