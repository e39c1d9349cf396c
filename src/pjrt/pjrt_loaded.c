// SPDX-License-Identifier: Apache-2.0
// pjrt_loaded.c - slots of PJRT_LoadedExecutable: compiling for the client's devices, and running.
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "pjrt/objects.h"
#include "pjrt/proto.h"

static void loaded_free(PJRT_LoadedExecutable *loaded) {
  if (!loaded) return;
  vt_executable_unwrap(loaded->executable);
  vt_text_free(&loaded->assignment);
  free(loaded->devices);
  free(loaded->logical_ids);
  free(loaded);
}

static vt_status write_assignment(void *user) {
  PJRT_LoadedExecutable *loaded = user;
  const vt_executable_info *info = loaded->executable->info;
  vt_device_assignment_write(info->replicas, info->partitions / info->replicas, info->device_ids,
                             &loaded->assignment);
  return VT_OK;
}

vt_status vt_executable_load(PJRT_Client *client, PJRT_Executable *executable,
                             PJRT_LoadedExecutable **out_loaded) {
  const vt_executable_info *info = executable->info;
  size_t count = (size_t)info->partitions;
  PJRT_LoadedExecutable *loaded = calloc(1, sizeof *loaded);
  if (!loaded) {
    vt_executable_unwrap(executable);
    return vt_error_no_memory();
  }
  loaded->client = client;
  loaded->executable = executable;
  loaded->devices = calloc(count, sizeof *loaded->devices);
  loaded->logical_ids = calloc(count, sizeof *loaded->logical_ids);
  if (!loaded->devices || !loaded->logical_ids) {
    loaded_free(loaded);
    return vt_error_no_memory();
  }
  for (size_t i = 0; i < count; i++) {
    int32_t id = info->device_ids[i];
    if ((size_t)id >= client->device_count) {
      loaded_free(loaded);
      return vt_error(VT_INVALID_ARGUMENT, "the program is for device %d; %s has %zu devices", id,
                      vt_client_slice(client->client)->name, client->device_count);
    }
    if (client->device_list[id]->device->process != vt_client_process(client->client)) continue;
    int partitions = info->partitions / info->replicas;
    loaded->devices[loaded->device_count] = client->device_list[id];
    loaded->logical_ids[loaded->device_count++] =
        (PJRT_LogicalDeviceIds){.replica = (int)i / partitions, .partition = (int)i % partitions};
  }
  vt_attempt attempt;
  vt_status st = vt_attempt_run(&attempt, write_assignment, loaded);
  if (st)
    loaded_free(loaded);
  else
    *out_loaded = loaded;
  vt_attempt_end(&attempt);
  return st;
}

vt_status vt_pjrt_Client_Compile(PJRT_Client_Compile_Args *args) {
  PJRT_Executable *executable = NULL;
  vt_bytes options = {(const uint8_t *)args->compile_options, args->compile_options_size};
  const vt_client *client = args->client->client;
  VT_TRY(vt_program_compile(vt_client_slice(client), vt_client_split(client), args->program,
                            options, &executable));
  vt_status st = vt_inspect_shardings(executable);
  if (st) {
    vt_executable_unwrap(executable);
    return st;
  }
  return vt_executable_load(args->client, executable, &args->executable);
}

vt_status vt_pjrt_Client_Load(PJRT_Client_Load_Args *args) {
  atomic_fetch_add(&args->executable->refs, 1);
  return vt_executable_load(args->client, args->executable, &args->loaded_executable);
}

vt_status vt_pjrt_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args) {
  PJRT_Executable *executable = NULL;
  vt_bytes bytes = {(const uint8_t *)args->serialized_executable, args->serialized_executable_size};
  vt_bytes options = {(const uint8_t *)args->overridden_serialized_compile_options,
                      args->overridden_serialized_compile_options_size};
  if (!options.data) options.size = 0;
  const vt_client *client = args->client->client;
  VT_TRY(vt_program_deserialize(vt_client_slice(client), vt_client_split(client), bytes, options,
                                &executable));
  return vt_executable_load(args->client, executable, &args->loaded_executable);
}

vt_status vt_pjrt_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args) {
  loaded_free(args->executable);
  return VT_OK;
}

vt_status vt_pjrt_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args) {
  PJRT_Executable *executable = args->loaded_executable->executable;
  atomic_fetch_add(&executable->refs, 1);
  args->executable = executable;
  return VT_OK;
}

vt_status
vt_pjrt_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args *args) {
  args->addressable_devices = args->executable->devices;
  args->num_addressable_devices = args->executable->device_count;
  return VT_OK;
}

vt_status vt_pjrt_LoadedExecutable_AddressableDeviceLogicalIds(
    PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args *args) {
  args->addressable_device_logical_ids = args->executable->logical_ids;
  args->num_addressable_device_logical_ids = args->executable->device_count;
  return VT_OK;
}

static void keep_assignment(PJRT_DeviceAssignmentSerialized *owner) {
  (void)owner;
}

vt_status
vt_pjrt_LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args *args) {
  args->serialized_bytes = args->executable->assignment.data;
  args->serialized_bytes_size = args->executable->assignment.size;
  args->serialized_device_assignment = (PJRT_DeviceAssignmentSerialized *)args->executable;
  args->serialized_device_assignment_deleter = keep_assignment;
  return VT_OK;
}

vt_status vt_pjrt_LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args *args) {
  atomic_store(&args->executable->deleted, true);
  return VT_OK;
}

vt_status vt_pjrt_LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args *args) {
  args->is_deleted = atomic_load(&args->executable->deleted);
  return VT_OK;
}

vt_status vt_pjrt_LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args *args) {
  args->executable_fingerprint = args->executable->executable->fingerprint;
  args->executable_fingerprint_size = sizeof args->executable->executable->fingerprint - 1;
  return VT_OK;
}

// Marks the arguments that this call keeps although the program may donate them. NULL when there
// are none.
static vt_status kept_arguments(const PJRT_ExecuteOptions *options, size_t num_args,
                                bool **out_keep) {
  *out_keep = NULL;
  if (!options || !options->num_non_donatable_input_indices) return VT_OK;
  bool *keep = calloc(num_args ? num_args : 1, sizeof *keep);
  if (!keep) return vt_error_no_memory();
  for (size_t i = 0; i < options->num_non_donatable_input_indices; i++) {
    int64_t index = options->non_donatable_input_indices[i];
    if (index >= 0 && (size_t)index < num_args) keep[index] = true;
  }
  *out_keep = keep;
  return VT_OK;
}

// Waits for the run. A failed run has no results, like a call that failed immediately.
static vt_status finish_run(const PJRT_LoadedExecutable_Execute_Args *args, vt_event *done) {
  vt_status st = vt_event_await(done);
  if (!st) return VT_OK;
  const vt_executable_info *info = args->executable->executable->info;
  for (size_t d = 0; d < args->num_devices; d++)
    for (size_t r = 0; r < info->result_count; r++) {
      vt_buffer_destroy(vt_buffer_of_pjrt(args->output_lists[d][r]));
      args->output_lists[d][r] = NULL;
    }
  vt_event_release(done);
  return st;
}

vt_status vt_pjrt_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args) {
  PJRT_LoadedExecutable *loaded = args->executable;
  const vt_executable_info *info = loaded->executable->info;
  if (atomic_load(&loaded->deleted))
    return vt_error(VT_FAILED_PRECONDITION, "%s: the executable was deleted", info->name);
  bool chosen = args->num_devices == 1 && args->execute_device;
  if (args->num_devices != loaded->device_count && !chosen)
    return vt_error(VT_INVALID_ARGUMENT,
                    "%s runs on %zu devices of this process, arguments are for %zu", info->name,
                    loaded->device_count, args->num_devices);
  bool *keep = NULL;
  vt_transfer_calls transfer = {0};
  VT_TRY(kept_arguments(args->options, args->num_args, &keep));
  vt_status st = vt_transfers_create(args->options, args->num_devices, &transfer);
  vt_event *done = NULL;
  if (!st) {
    vt_execution execution = {
        .arguments = (vt_buffer *const *const *)args->argument_lists,
        .results = (vt_buffer * *const *)args->output_lists,
        .argument_count = (uint32_t)args->num_args,
        .keep = keep,
        .transfer = transfer.calls.user ? &transfer : NULL,
        .device = args->execute_device ? args->execute_device->device : NULL,
    };
    st = vt_executable_execute(loaded->client->client, loaded->executable->executable, &execution,
                               &done);
  }
  free(keep);
  if (st) return st;
  vt_running_add(loaded, args->execute_device, args->options ? args->options->launch_id : 0, done);
  if (loaded->client->blocking) VT_TRY(finish_run(args, done));
  for (size_t d = 0; args->device_complete_events && d < args->num_devices; d++)
    args->device_complete_events[d] = vt_event_to_pjrt(vt_event_retain(done));
  vt_event_release(done);
  return VT_OK;
}

// A context carries user data to custom calls on other platforms; here it is only an identity.
struct PJRT_ExecuteContext {
  char unused;
};

vt_status vt_pjrt_ExecuteContext_Create(PJRT_ExecuteContext_Create_Args *args) {
  args->context = calloc(1, sizeof *args->context);
  return args->context ? VT_OK : vt_error_no_memory();
}

vt_status vt_pjrt_ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args *args) {
  free(args->context);
  return VT_OK;
}
