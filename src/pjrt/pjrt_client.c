// SPDX-License-Identifier: Apache-2.0
// pjrt_client.c - slots of PJRT_Client except compiling and buffers.
#include <stdlib.h>
#include <string.h>

#include "pjrt/objects.h"

static void client_free(PJRT_Client *client) {
  if (!client) return;
  for (size_t i = 0; client->devices && i < client->device_count; i++)
    for (int k = 0; k < VT_MEMORY_KINDS; k++) vt_memory_clear(&client->devices[i].memories[k]);
  vt_client_destroy(client->client);
  vt_topology_free(client->topology);
  free(client->memory_list);
  free(client->device_list);
  free(client->here_list);
  free(client->devices);
  free(client);
}

static void client_fill_device(PJRT_Client *client, size_t index) {
  PJRT_Device *device = &client->devices[index];
  device->client = client;
  device->device = vt_client_device(client->client, (int32_t)index);
  device->device->front = device;
  vt_device_description_fill(&device->description, vt_client_slice(client->client), (int32_t)index,
                             device->device->process);
  bool here = device->device->process == vt_client_process(client->client);
  for (int k = 0; k < VT_MEMORY_KINDS; k++) {
    vt_memory_fill(&device->memories[k], device, &device->device->memories[k]);
    device->memory_list[k] = &device->memories[k];
    if (here)
      client->memory_list[client->here_count * VT_MEMORY_KINDS + (size_t)k] = &device->memories[k];
  }
  client->device_list[index] = device;
  if (here) client->here_list[client->here_count++] = device;
}

static const PJRT_NamedValue *find_option(const PJRT_Client_Create_Args *args, const char *name) {
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *option = &args->create_options[i];
    if (option->name_size == strlen(name) && memcmp(option->name, name, option->name_size) == 0)
      return option;
  }
  return NULL;
}

// JAX identifies itself in two options.
static void note_framework(const PJRT_Client_Create_Args *args) {
  const PJRT_NamedValue *name = find_option(args, "ml_framework_name"),
                        *version = find_option(args, "ml_framework_version");
  if (name && version && name->type == PJRT_VALUE_STRING && version->type == PJRT_VALUE_STRING)
    vt_activity_framework(name->string, name->value_size, version->string, version->value_size);
}

// ---- the framework's key-value store ------------------------------------------------------------

static vt_status store_put(void *user, const char *key, const char *value) {
  const PJRT_Client_Create_Args *args = user;
  PJRT_CallbackError make_error = vt_callback_error;
  PJRT_KeyValuePutCallback_Args put = {.struct_size = sizeof put,
                                       .key = key,
                                       .key_size = strlen(key),
                                       .value = value,
                                       .value_size = strlen(value),
                                       .callback_error = &make_error,
                                       .user_arg = args->kv_put_user_arg};
  return args->kv_put_callback(&put);
}

static vt_status store_get(void *user, const char *key, double timeout_s, char *out, size_t size) {
  const PJRT_Client_Create_Args *args = user;
  PJRT_CallbackError make_error = vt_callback_error;
  PJRT_KeyValueGetCallback_Args get = {.struct_size = sizeof get,
                                       .key = key,
                                       .key_size = strlen(key),
                                       .timeout_in_ms = (int)(timeout_s * 1000),
                                       .callback_error = &make_error,
                                       .user_arg = args->kv_get_user_arg};
  VT_TRY(args->kv_get_callback(&get));
  bool fits = get.value && get.value_size < size;
  if (fits) {
    memcpy(out, get.value, get.value_size);
    out[get.value_size] = 0;
  }
  if (get.value && get.value_deleter_callback) get.value_deleter_callback(get.value);
  return fits ? VT_OK : vt_error(VT_RESOURCE_EXHAUSTED, "a value of %zu bytes", get.value_size);
}

static bool int_option(const PJRT_Client_Create_Args *args, const char *name, int32_t *out) {
  const PJRT_NamedValue *option = find_option(args, name);
  if (!option || option->type != PJRT_VALUE_INT64 || option->int64 < 0 || option->int64 > INT32_MAX)
    return false;
  *out = (int32_t)option->int64;
  return true;
}

// The callbacks are unset memory unless the framework is distributed, and it is if it says which
// process this is. JAX does for plugins other than "tpu", and there python/vtpu/jax_plugin.py does.
static const vt_store *find_store(PJRT_Client_Create_Args *args, vt_store *out) {
  *out = (vt_store){.user = args, .put = store_put, .get = store_get};
  bool told =
      int_option(args, "node_id", &out->index) && int_option(args, "num_nodes", &out->count);
  bool useful = told && out->count > 1 && out->index < out->count;
  return useful && args->kv_get_callback && args->kv_put_callback ? out : NULL;
}

// Other options come from LIBTPU users and are accepted unchecked.
// VTPU_LAUNCH_BLOCKING=1 makes every call wait until its program ends, to find the call that an
// error or a printed line came from.
static bool blocking_wanted(void) {
  const char *wanted = getenv("VTPU_LAUNCH_BLOCKING");
  return wanted && !strcmp(wanted, "1");
}

vt_status vt_pjrt_Client_Create(PJRT_Client_Create_Args *args) {
  vt_status st = VT_OK;
  vt_slice slice;
  vt_store store;
  PJRT_Client *client = calloc(1, sizeof *client);
  if (!client) return vt_error_no_memory();
  VT_TRY_OUT(vt_slice_from_environment(&slice));
  note_framework(args);
  VT_TRY_OUT(
      vt_client_join(&slice, vt_plugin_version(), find_store(args, &store), &client->client));
  size_t count = client->device_count = (size_t)vt_client_device_count(client->client);
  client->devices = calloc(count, sizeof *client->devices);
  client->device_list = calloc(count, sizeof *client->device_list);
  client->here_list = calloc(count, sizeof *client->here_list);
  client->memory_list = calloc(count * VT_MEMORY_KINDS, sizeof *client->memory_list);
  if (!client->devices || !client->device_list || !client->here_list || !client->memory_list) {
    st = vt_error_no_memory();
    goto out;
  }
  for (size_t i = 0; i < count; i++) client_fill_device(client, i);
  VT_TRY_OUT(vt_topology_make(&slice, client->client, &client->topology));
  client->blocking = blocking_wanted();
  args->client = client;
  return VT_OK;
out:
  client_free(client);
  return st;
}

vt_status vt_pjrt_Client_Destroy(PJRT_Client_Destroy_Args *args) {
  client_free(args->client);
  return VT_OK;
}

vt_status vt_pjrt_Client_PlatformName(PJRT_Client_PlatformName_Args *args) {
  args->platform_name = VT_PLATFORM_NAME;
  args->platform_name_size = sizeof VT_PLATFORM_NAME - 1;
  return VT_OK;
}

vt_status vt_pjrt_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args *args) {
  args->process_index = vt_client_process(args->client->client);
  return VT_OK;
}

vt_status vt_pjrt_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args) {
  args->platform_version = vt_plugin_platform_version();
  args->platform_version_size = strlen(args->platform_version);
  return VT_OK;
}

vt_status vt_pjrt_Client_Devices(PJRT_Client_Devices_Args *args) {
  args->devices = args->client->device_list;
  args->num_devices = args->client->device_count;
  return VT_OK;
}

vt_status vt_pjrt_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args) {
  args->addressable_devices = args->client->here_list;
  args->num_addressable_devices = args->client->here_count;
  return VT_OK;
}

vt_status vt_pjrt_Client_LookupDevice(PJRT_Client_LookupDevice_Args *args) {
  if (args->id < 0 || (size_t)args->id >= args->client->device_count)
    return vt_error(VT_INVALID_ARGUMENT, "no device with id %d; %s has %zu", args->id,
                    vt_client_slice(args->client->client)->name, args->client->device_count);
  args->device = args->client->device_list[args->id];
  return VT_OK;
}

vt_status vt_pjrt_Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args *args) {
  int id = args->local_hardware_id;
  if (id < 0 || (size_t)id >= args->client->here_count)
    return vt_error(VT_INVALID_ARGUMENT, "no device with hardware id %d; this process has %zu", id,
                    args->client->here_count);
  args->addressable_device = args->client->here_list[id];
  return VT_OK;
}

vt_status vt_pjrt_Client_AddressableMemories(PJRT_Client_AddressableMemories_Args *args) {
  args->addressable_memories = args->client->memory_list;
  args->num_addressable_memories = args->client->here_count * VT_MEMORY_KINDS;
  return VT_OK;
}

vt_status vt_pjrt_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args *args) {
  args->topology = args->client->topology;
  return VT_OK;
}

vt_status vt_pjrt_Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args *args) {
  int64_t needed = (int64_t)args->num_replicas * args->num_partitions;
  if (args->num_replicas < 1 || args->num_partitions < 1 ||
      needed > (int64_t)args->client->device_count)
    return vt_error(VT_INVALID_ARGUMENT,
                    "%d replicas of %d partitions do not fit the %zu devices of %s",
                    args->num_replicas, args->num_partitions, args->client->device_count,
                    vt_client_slice(args->client->client)->name);
  if (args->default_assignment_size < (size_t)needed)
    return vt_error(VT_INVALID_ARGUMENT, "space for %zu device ids, %lld needed",
                    args->default_assignment_size, (long long)needed);
  // A program that fits into this process runs here.
  bool here = needed <= (int64_t)args->client->here_count;
  for (int i = 0; i < (int)needed; i++)
    args->default_assignment[i] = here ? args->client->here_list[i]->device->id : i;
  return VT_OK;
}

// Which processes are alive the runtime knows by itself, and sooner.
vt_status vt_pjrt_Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args *args) {
  (void)args;
  return VT_OK;
}

// Host memory needs no preparation for transfers that are copies.
vt_status vt_pjrt_Client_DmaMap(PJRT_Client_DmaMap_Args *args) {
  (void)args;
  return VT_OK;
}

vt_status vt_pjrt_Client_DmaUnmap(PJRT_Client_DmaUnmap_Args *args) {
  (void)args;
  return VT_OK;
}
