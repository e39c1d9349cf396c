// SPDX-License-Identifier: Apache-2.0
// contract_test.c - the promises of the PJRT interface, checked only through a plugin's function
// table: contract_test [PLUGIN [OPTION=NUMBER ...]]. Without arguments it checks the plugin of this
// build. The cases hold for every plugin: CTest runs them on ours and on XLA's own for CPUs, so
// error codes and effects are compared, never texts. Programs are MLIR text, which all of them
// accept. Exit 77: there is no such plugin.
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

plugin contract_plugin;
PJRT_Client *contract_client;

int contract_setup(void **state) {
  (void)state;
  if (!contract_plugin.api) contract_plugin = plugin_load(plugin_path());
  contract_client = plugin_client(P);
  return 0;
}

int contract_teardown(void **state) {
  (void)state;
  plugin_client_destroy(P, CLIENT);
  return 0;
}

static void the_table_has_its_version_and_every_slot(void **state) {
  (void)state;
  assert_int_equal(P->api->version.major, 0);
  assert_true(P->api->version.minor >= 29);
  int slots = (int)((P->api->struct_size - offsetof(PJRT_Api, slots)) / sizeof(void *));
  assert_true(slots > SLOT_LoadedExecutable_GetDeviceAssignment);
  for (int i = 0; i < slots && i < PJRT_SLOTS; i++) assert_non_null(P->api->slots[i]);
  int steps = 0;
  for (PJRT_Extension_Base *e = P->api->extension_start; e && steps < 100; e = e->next) steps++;
  assert_true(steps < 100);
  ARGS(Plugin_Attributes, a);
  plugin_ok(P, SLOT_Plugin_Attributes, &a);
  for (size_t i = 0; i < a.num_attributes; i++) assert_true(a.attributes[i].name_size > 0);
}

// Either the structure is invalid or the plugin has no such function.
static void error_is_refusal(PJRT_Error *error) {
  ARGS(Error_GetCode, a);
  a.error = error;
  plugin_ok(P, SLOT_Error_GetCode, &a);
  plugin_error_is(P, error, a.code == 12 ? 12 : 3, NULL);
}

// XLA's plugin reads the arguments of these before their size, and ends the process.
static bool aborts(int slot) {
  return slot == SLOT_Client_CreateViewOfDeviceBuffer &&
         strcmp(plugin_path(), VTPU_PLUGIN_FILE) != 0;
}

// A caller whose structure is too small for the answer gets an error before anything is touched.
// Slots without a status are left out, and the two whose failure could not be queried.
static void structures_too_small_are_refused(void **state) {
  (void)state;
  char zeros[512];
#define SMALL_VOID(name)
#define SMALL_HAVE(name)                                                                           \
  if (plugin_has(P, SLOT_##name) && SLOT_##name != SLOT_Error_GetCode &&                           \
      SLOT_##name != SLOT_Error_ForEachPayload && !aborts(SLOT_##name)) {                          \
    memset(zeros, 0, sizeof zeros);                                                                \
    ((PJRT_##name##_Args *)(void *)zeros)->struct_size = 8;                                        \
    PJRT_Error *error = plugin_call(P, SLOT_##name, zeros);                                        \
    if (!error) fail_msg("PJRT_" #name " took a structure of 8 bytes");                            \
    error_is_refusal(error);                                                                       \
    for (size_t i = 8; i < sizeof zeros; i++) assert_int_equal(zeros[i], 0);                       \
  }
#define SLOT(state_, slot, name, bytes, last, ...) SMALL_##state_(name)
#include "pjrt/pjrt_slots.def"
#undef SLOT
  if (strcmp(plugin_path(), VTPU_PLUGIN_FILE) != 0) return;
  PJRT_Client_Devices_Args old = {.struct_size = 24};
  plugin_fails(P, SLOT_Client_Devices, &old, 3, "take a newer JAX or PyTorch");
}

// A newer caller's structures are longer; fields unknown to the plugin stay unchanged.
static void longer_structures_of_newer_callers_are_taken(void **state) {
  (void)state;
  struct {
    PJRT_Client_Devices_Args a;
    char more[64];
  } devices = {.a = {.struct_size = sizeof devices, .client = CLIENT}};
  memset(devices.more, 0x5a, sizeof devices.more);
  plugin_ok(P, SLOT_Client_Devices, &devices);
  for (size_t i = 0; i < sizeof devices.more; i++) assert_int_equal(devices.more[i], 0x5a);
  struct {
    PJRT_Client_LookupDevice_Args a;
    char more[64];
  } lookup = {.a = {.struct_size = sizeof lookup, .client = CLIENT, .id = 0}};
  plugin_ok(P, SLOT_Client_LookupDevice, &lookup);
  assert_ptr_equal(lookup.a.device, devices.a.devices[0]);
}

static void errors_have_a_code_and_a_message(void **state) {
  (void)state;
  ARGS(Client_LookupDevice, lookup);
  lookup.client = CLIENT;
  lookup.id = 1 << 20;
  PJRT_Error *error = plugin_call(P, SLOT_Client_LookupDevice, &lookup);
  assert_non_null(error);
  ARGS(Error_Message, first);
  first.error = error;
  ((void (*)(PJRT_Error_Message_Args *))P->api->slots[SLOT_Error_Message])(&first);
  assert_true(first.message_size > 0);
  PJRT_Error_Message_Args again = first;
  ((void (*)(PJRT_Error_Message_Args *))P->api->slots[SLOT_Error_Message])(&again);
  assert_int_equal(first.message_size, again.message_size);
  assert_memory_equal(first.message, again.message, first.message_size);
  plugin_error_is(P, error, 3, NULL);
  ARGS(Error_Destroy, nothing); // like free
  ((void (*)(PJRT_Error_Destroy_Args *))P->api->slots[SLOT_Error_Destroy])(&nothing);
}

static void a_client_lists_its_devices(void **state) {
  (void)state;
  ARGS(Client_PlatformName, name);
  name.client = CLIENT;
  plugin_ok(P, SLOT_Client_PlatformName, &name);
  assert_true(name.platform_name_size > 0);
  ARGS(Client_PlatformVersion, version);
  version.client = CLIENT;
  plugin_ok(P, SLOT_Client_PlatformVersion, &version);
  assert_true(version.platform_version_size > 0);
  ARGS(Client_ProcessIndex, process);
  process.client = CLIENT;
  process.process_index = 99;
  plugin_ok(P, SLOT_Client_ProcessIndex, &process);
  assert_int_equal(process.process_index, 0);
  ARGS(Client_Devices, all);
  all.client = CLIENT;
  plugin_ok(P, SLOT_Client_Devices, &all);
  ARGS(Client_AddressableDevices, near);
  near.client = CLIENT;
  plugin_ok(P, SLOT_Client_AddressableDevices, &near);
  assert_int_equal(all.num_devices, 8);
  assert_int_equal(near.num_addressable_devices, 8);
  for (size_t i = 0; i < 8; i++) {
    assert_ptr_equal(all.devices[i], near.addressable_devices[i]);
    assert_ptr_equal(plugin_device(P, CLIENT, (int)i), all.devices[i]);
    ARGS(Client_LookupAddressableDevice, lookup);
    lookup.client = CLIENT;
    lookup.local_hardware_id = (int)i;
    plugin_ok(P, SLOT_Client_LookupAddressableDevice, &lookup);
    assert_ptr_equal(lookup.addressable_device, all.devices[i]);
  }
  ARGS(Client_LookupAddressableDevice, missing);
  missing.client = CLIENT;
  missing.local_hardware_id = 99;
  plugin_fails(P, SLOT_Client_LookupAddressableDevice, &missing, 3, NULL);
  missing.local_hardware_id = -1;
  plugin_fails(P, SLOT_Client_LookupAddressableDevice, &missing, 3, NULL);
}

static void default_assignments_are_device_numbers(void **state) {
  (void)state;
  int ids[8];
  memset(ids, 0xff, sizeof ids);
  ARGS(Client_DefaultDeviceAssignment, a);
  a.client = CLIENT;
  a.num_replicas = 1;
  a.num_partitions = 8;
  a.default_assignment_size = 8;
  a.default_assignment = ids;
  plugin_ok(P, SLOT_Client_DefaultDeviceAssignment, &a);
  bool seen[8] = {0};
  for (int i = 0; i < 8; i++) {
    assert_in_range(ids[i], 0, 7);
    assert_false(seen[ids[i]]);
    seen[ids[i]] = true;
  }
  a.default_assignment_size = 7; // no room
  PJRT_Error *error = plugin_call(P, SLOT_Client_DefaultDeviceAssignment, &a);
  assert_non_null(error);
  ARGS(Error_GetCode, code);
  code.error = error;
  plugin_ok(P, SLOT_Error_GetCode, &code);
  plugin_error_is(P, error, code.code, NULL);
}

static void check_text(int slot, void *args, const char *const *text, const size_t *size) {
  plugin_ok(P, slot, args);
  assert_non_null(*text);
  assert_true(*size > 0 && *size < 4096);
}

static void devices_describe_themselves(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++) {
    PJRT_Device *device = plugin_device(P, CLIENT, i);
    ARGS(Device_GetDescription, get);
    get.device = device;
    plugin_ok(P, SLOT_Device_GetDescription, &get);
    ARGS(DeviceDescription_Id, id);
    id.device_description = get.device_description;
    plugin_ok(P, SLOT_DeviceDescription_Id, &id);
    assert_int_equal(id.id, i);
    ARGS(DeviceDescription_ProcessIndex, process);
    process.device_description = get.device_description;
    plugin_ok(P, SLOT_DeviceDescription_ProcessIndex, &process);
    assert_int_equal(process.process_index, 0);
    ARGS(DeviceDescription_Kind, kind);
    kind.device_description = get.device_description;
    check_text(SLOT_DeviceDescription_Kind, &kind, &kind.device_kind, &kind.device_kind_size);
    ARGS(DeviceDescription_DebugString, debug);
    debug.device_description = get.device_description;
    check_text(SLOT_DeviceDescription_DebugString, &debug, &debug.debug_string,
               &debug.debug_string_size);
    ARGS(DeviceDescription_ToString, string);
    string.device_description = get.device_description;
    check_text(SLOT_DeviceDescription_ToString, &string, &string.to_string, &string.to_string_size);
    ARGS(DeviceDescription_Attributes, attributes);
    attributes.device_description = get.device_description;
    plugin_ok(P, SLOT_DeviceDescription_Attributes, &attributes);
    for (size_t k = 0; k < attributes.num_attributes; k++)
      assert_true(attributes.attributes[k].name_size > 0);
    ARGS(Device_IsAddressable, near);
    near.device = device;
    plugin_ok(P, SLOT_Device_IsAddressable, &near);
    assert_true(near.is_addressable);
    ARGS(Device_LocalHardwareId, local);
    local.device = device;
    plugin_ok(P, SLOT_Device_LocalHardwareId, &local);
    assert_int_equal(local.local_hardware_id, i);
  }
}

static void memories_describe_themselves(void **state) {
  (void)state;
  ARGS(Client_AddressableMemories, all);
  all.client = CLIENT;
  plugin_ok(P, SLOT_Client_AddressableMemories, &all);
  for (int i = 0; i < 8; i++) {
    PJRT_Device *device = plugin_device(P, CLIENT, i);
    ARGS(Device_AddressableMemories, memories);
    memories.device = device;
    plugin_ok(P, SLOT_Device_AddressableMemories, &memories);
    assert_true(memories.num_memories > 0);
    ARGS(Device_DefaultMemory, home);
    home.device = device;
    plugin_ok(P, SLOT_Device_DefaultMemory, &home);
    bool listed = false;
    for (size_t k = 0; k < memories.num_memories; k++) {
      PJRT_Memory *memory = memories.memories[k];
      listed |= memory == home.memory;
      bool global = false;
      for (size_t m = 0; m < all.num_addressable_memories; m++)
        global |= all.addressable_memories[m] == memory;
      assert_true(global);
      ARGS(Memory_AddressableByDevices, by);
      by.memory = memory;
      plugin_ok(P, SLOT_Memory_AddressableByDevices, &by);
      bool reached = false;
      for (size_t d = 0; d < by.num_devices; d++) reached |= by.devices[d] == device;
      assert_true(reached);
      ARGS(Memory_Kind, kind);
      kind.memory = memory;
      check_text(SLOT_Memory_Kind, &kind, &kind.kind, &kind.kind_size);
      ARGS(Memory_DebugString, debug);
      debug.memory = memory;
      check_text(SLOT_Memory_DebugString, &debug, &debug.debug_string, &debug.debug_string_size);
      ARGS(Memory_ToString, string);
      string.memory = memory;
      check_text(SLOT_Memory_ToString, &string, &string.to_string, &string.to_string_size);
    }
    assert_true(listed);
  }
  for (size_t a = 0; a < all.num_addressable_memories; a++) // ids are unique to the memory
    for (size_t b = 0; b < a; b++) {
      ARGS(Memory_Id, x);
      ARGS(Memory_Id, y);
      x.memory = all.addressable_memories[a];
      y.memory = all.addressable_memories[b];
      plugin_ok(P, SLOT_Memory_Id, &x);
      plugin_ok(P, SLOT_Memory_Id, &y);
      assert_int_not_equal(x.id, y.id);
    }
}

static void a_topology_describes_its_devices(void **state) {
  (void)state;
  ARGS(Client_TopologyDescription, t);
  t.client = CLIENT;
  plugin_ok(P, SLOT_Client_TopologyDescription, &t);
  ARGS(TopologyDescription_GetDeviceDescriptions, d);
  d.topology = t.topology;
  plugin_ok(P, SLOT_TopologyDescription_GetDeviceDescriptions, &d);
  assert_int_equal(d.num_descriptions, 8);
  ARGS(Client_PlatformName, client);
  client.client = CLIENT;
  plugin_ok(P, SLOT_Client_PlatformName, &client);
  ARGS(TopologyDescription_PlatformName, name);
  name.topology = t.topology;
  plugin_ok(P, SLOT_TopologyDescription_PlatformName, &name);
  assert_int_equal(name.platform_name_size, client.platform_name_size);
  assert_memory_equal(name.platform_name, client.platform_name, name.platform_name_size);
  ARGS(TopologyDescription_PlatformVersion, version);
  version.topology = t.topology;
  check_text(SLOT_TopologyDescription_PlatformVersion, &version, &version.platform_version,
             &version.platform_version_size);
}

// Two clients of one plugin coexist; the first is destroyed first.
static void two_clients_live_side_by_side(void **state) {
  (void)state;
  PJRT_Client *first = plugin_client(P), *second = plugin_client(P);
  int64_t four[1] = {4};
  float data[4] = {1, 2, 3, 4}, back[4];
  PJRT_Buffer *buffer = plugin_buffer(P, second, plugin_device(P, second, 1), 11, 1, four, data);
  plugin_client_destroy(P, first);
  plugin_fetch(P, buffer, back, sizeof back);
  assert_memory_equal(back, data, sizeof back);
  plugin_buffer_destroy(P, buffer);
  plugin_client_destroy(P, second);
}

int main(int argc, char **argv) {
  if (argc > 1 && !plugin_use(argv[1], argc - 2, argv + 2)) {
    printf("skipped: no %s\n", argv[1]);
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table_has_its_version_and_every_slot),
      cmocka_unit_test(structures_too_small_are_refused),
      cmocka_unit_test(longer_structures_of_newer_callers_are_taken),
      cmocka_unit_test(errors_have_a_code_and_a_message),
      cmocka_unit_test(a_client_lists_its_devices),
      cmocka_unit_test(default_assignments_are_device_numbers),
      cmocka_unit_test(devices_describe_themselves),
      cmocka_unit_test(memories_describe_themselves),
      cmocka_unit_test(a_topology_describes_its_devices),
      cmocka_unit_test(two_clients_live_side_by_side),
  };
  int failed = cmocka_run_group_tests_name("objects", tests, contract_setup, contract_teardown);
  failed += contract_buffers();
  failed += contract_run();
  failed += contract_grid();
  return failed ? 1 : 0;
}
