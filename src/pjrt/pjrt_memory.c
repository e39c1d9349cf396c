// SPDX-License-Identifier: Apache-2.0
// pjrt_memory.c - slots of PJRT_Memory, and the slots for the client's own data that its first word
// promises.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/objects.h"

// There are few keys, set at start-up and read often: a list that is only ever prepended to needs
// no lock for reading.
static pthread_mutex_t user_data_lock = PTHREAD_MUTEX_INITIALIZER;

static vt_user_data *find_user_data(const PJRT_Memory *memory, const void *key) {
  vt_user_data *entry = __atomic_load_n(&memory->user_data, __ATOMIC_ACQUIRE);
  while (entry && entry->key != key) entry = entry->next;
  return entry;
}

static void *get_user_data(PJRT_Memory *memory, const void *key) {
  vt_user_data *entry = find_user_data(memory, key);
  return entry ? entry->data : NULL;
}

static void set_user_data(PJRT_Memory *memory, const void *key, void *data,
                          void (*destroy)(void *data)) {
  vt_lock(&user_data_lock);
  vt_user_data *entry = find_user_data(memory, key);
  if (entry) {
    void *old = entry->data;
    void (*old_destroy)(void *data) = entry->destroy;
    entry->data = data;
    entry->destroy = destroy;
    vt_unlock(&user_data_lock);
    if (old_destroy) old_destroy(old);
    return;
  }
  entry = malloc(sizeof *entry);
  if (!entry) abort(); // the interface has no error, and its caller relies on it
  *entry = (vt_user_data){memory->user_data, key, data, destroy};
  __atomic_store_n(&memory->user_data, entry, __ATOMIC_RELEASE);
  vt_unlock(&user_data_lock);
}

static const PJRT_Memory_Table memory_table = {.struct_size = sizeof(PJRT_Memory_Table),
                                               .instance_size = sizeof(PJRT_Memory),
                                               .get_user_data = get_user_data,
                                               .set_user_data = set_user_data};

void vt_memory_fill(PJRT_Memory *memory, PJRT_Device *device, vt_memory *runtime_memory) {
  *memory = (PJRT_Memory){.table = &memory_table, .device = device, .memory = runtime_memory};
  snprintf(memory->to_string, sizeof memory->to_string, "%s memory of TPU_%d",
           vt_memory_kind_name(runtime_memory->kind), (int)runtime_memory->device->id);
  runtime_memory->front = memory;
}

void vt_memory_clear(PJRT_Memory *memory) {
  while (memory->user_data) {
    vt_user_data *entry = memory->user_data;
    memory->user_data = entry->next;
    if (entry->destroy) entry->destroy(entry->data);
    free(entry);
  }
}

vt_status vt_pjrt_Memory_Id(PJRT_Memory_Id_Args *args) {
  args->id = args->memory->memory->id;
  return VT_OK;
}

vt_status vt_pjrt_Memory_Kind(PJRT_Memory_Kind_Args *args) {
  args->kind = vt_memory_kind_name(args->memory->memory->kind);
  args->kind_size = strlen(args->kind);
  return VT_OK;
}

vt_status vt_pjrt_Memory_Kind_Id(PJRT_Memory_Kind_Id_Args *args) {
  args->kind_id = (int)args->memory->memory->kind;
  return VT_OK;
}

vt_status vt_pjrt_Memory_DebugString(PJRT_Memory_DebugString_Args *args) {
  args->debug_string = args->memory->to_string;
  args->debug_string_size = strlen(args->debug_string);
  return VT_OK;
}

vt_status vt_pjrt_Memory_ToString(PJRT_Memory_ToString_Args *args) {
  args->to_string = args->memory->to_string;
  args->to_string_size = strlen(args->to_string);
  return VT_OK;
}

vt_status vt_pjrt_Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args *args) {
  PJRT_Device *device = args->memory->device;
  args->devices = &device->client->device_list[device->device->id];
  args->num_devices = 1;
  return VT_OK;
}

// Extension: the memories of a device that exists only as a description.
struct PJRT_MemoryDescription {
  vt_memory_kind kind;
};
static const PJRT_MemoryDescription descriptions[VT_MEMORY_KINDS] = {
    {VT_MEMORY_DEVICE}, {VT_MEMORY_PINNED_HOST}, {VT_MEMORY_UNPINNED_HOST}};
static const PJRT_MemoryDescription *const description_list[VT_MEMORY_KINDS] = {
    &descriptions[0], &descriptions[1], &descriptions[2]};

static PJRT_Error *device_memories(PJRT_DeviceDescription_MemoryDescriptions_Args *args) {
  args->memories = description_list;
  args->count = VT_MEMORY_KINDS;
  args->default_index = VT_MEMORY_DEVICE;
  return NULL;
}

static PJRT_Error *memory_kind(PJRT_MemoryDescription_Kind_Args *args) {
  args->kind = vt_memory_kind_name(args->memory->kind);
  args->kind_size = strlen(args->kind);
  args->kind_id = (int)args->memory->kind;
  return NULL;
}

PJRT_MemoryDescriptions_Extension vt_pjrt_memory_descriptions = {
    .base = {sizeof vt_pjrt_memory_descriptions, PJRT_EXTENSION_MEMORY_DESCRIPTIONS,
             &vt_pjrt_cross_host.base},
    .device_memories = device_memories,
    .memory_kind = memory_kind};
