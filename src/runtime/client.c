// SPDX-License-Identifier: Apache-2.0
// client.c - the slice of this process: its devices and their memories.
#include "base/check.h"
#include "runtime/runtime_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/outside.h"
#include "distributed/metadata.h"
#include "distributed/peers.h"
#include "host/cpu.h"

static const char *const kind_names[VT_MEMORY_KINDS] = {"device", "pinned_host", "unpinned_host"};

const char *vt_memory_kind_name(vt_memory_kind kind) {
  vt_assert(kind >= 0 && kind < VT_MEMORY_KINDS);
  return kind_names[kind];
}

vt_memory_kind vt_memory_kind_from_name(const char *name, size_t size) {
  if (size == 0) return VT_MEMORY_DEVICE;
  for (int i = 0; i < VT_MEMORY_KINDS; i++)
    if (strlen(kind_names[i]) == size && !memcmp(kind_names[i], name, size))
      return (vt_memory_kind)i;
  return VT_MEMORY_KINDS;
}

// The number of slices of a multislice, as told to a worker; 1 when unset.
static vt_status slices_of_environment(int32_t *out_slices) {
  const char *text = vt_worker_variable(NULL, "MEGASCALE_NUM_SLICES");
  char *end = NULL;
  *out_slices = 1;
  if (!text || !*text) return VT_OK;
  long slices = strtol(text, &end, 10);
  if (*end || slices < 1 || slices > INT32_MAX)
    return vt_error(VT_INVALID_ARGUMENT, "MEGASCALE_NUM_SLICES is \"%s\", not a number of slices",
                    text);
  *out_slices = (int32_t)slices;
  return VT_OK;
}

vt_status vt_slice_from_environment(vt_slice *out_slice) {
  static const char *const names[] = {"VTPU_ACCELERATOR_TYPE", "TPU_ACCELERATOR_TYPE"};
  const char *type = NULL, *from = NULL;
  for (size_t i = 0; i < 2 && !type; i++) {
    from = names[i];
    type = vt_worker_variable(NULL, from);
    if (type && !*type) type = NULL;
  }
  if (!type) return vt_slice_from_name("v3-8", out_slice);
  int32_t slices;
  VT_TRY(slices_of_environment(&slices));
  vt_status st = vt_slice_from_name(type, out_slice);
  if (!st && out_slice->slices == 1) st = vt_slice_join(out_slice, slices);
  return vt_status_wrap(st, "%s", from);
}

// NULL `join`: this process has the whole slice.
static vt_status create(const vt_slice *slice, const vt_join *join, vt_client **out_client) {
  *out_client = NULL;
  VT_TRY(vt_fork_check());
  vt_fork_watch();
  if (vt_outside_ready) VT_TRY(vt_outside_ready());
  int32_t count = vt_slice_devices(slice);
  vt_assert(count >= 1);
  vt_client *client = calloc(1, sizeof *client);
  if (!client) return vt_error_no_memory();
  client->devices = calloc((size_t)count, sizeof *client->devices);
  client->accounts = calloc((size_t)count, sizeof *client->accounts);
  if (!client->devices || !client->accounts) {
    free(client->devices);
    free(client->accounts);
    free(client);
    return vt_error_no_memory();
  }
  atomic_init(&client->refs, 1);
  client->slice = *slice;
  client->device_count = count;
  client->process = join ? join->index : 0;
  client->process_count = join ? join->count : 1;
  for (int32_t i = 0; i < count; i++) {
    vt_device *device = &client->devices[i];
    device->client = client;
    device->id = i;
    device->place = vt_slice_place(slice, i);
    device->process = join ? vt_join_process(join, &device->place) : 0;
    client->here_count += device->process == client->process;
    for (int k = 0; k < VT_MEMORY_KINDS; k++)
      device->memories[k] =
          (vt_memory){.id = i * VT_MEMORY_KINDS + k, .kind = (vt_memory_kind)k, .device = device};
  }
  pthread_mutex_init(&client->lock, NULL);
  vt_executor_init(&client->executor);
  vt_activity_open(client);
  *out_client = client;
  vt_status st = vt_client_set_split(client);
  if (!st) return VT_OK;
  *out_client = NULL;
  vt_client_destroy(client);
  return st;
}

vt_status vt_client_create(const vt_slice *slice, vt_client **out_client) {
  return create(slice, NULL, out_client);
}

// ---- several processes --------------------------------------------------------------------------

// What decides the bits of results on this machine. Processes that differ in it do not compute
// together: values that all of them hold would drift apart.
static void describe_machine(char *out, size_t size) {
  static const char *const settings[] = {"VTPU_CPU",         "VTPU_MATMUL_PRECISION",
                                         "VTPU_EVALUATOR",   "VTPU_PARTITIONED",
                                         "VTPU_SKIP_PASSES", "VTPU_SPLIT"};
  int n = snprintf(out, size, "%s, x86-64-v%d%s%s, %d threads",
                   __builtin_cpu_is("amd")     ? "AMD"
                   : __builtin_cpu_is("intel") ? "Intel"
                                               : "other",
                   vt_host_level(), vt_host_fast_bf16() ? ", bf16" : "",
                   vt_host_has_amx() ? ", AMX" : "", vt_host_threads());
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    const char *value = getenv(settings[i]);
    if (value && *value && (size_t)n < size)
      n += snprintf(out + n, size - (size_t)n, ", %s=%s", settings[i], value);
  }
}

static vt_status open_crossing(vt_client *client, const vt_join *join, const char *version) {
  char machine[256];
  vt_peers *peers = NULL;
  describe_machine(machine, sizeof machine);
  vt_peers_self self = {client->slice.name, version, machine};
  VT_TRY(vt_peers_join(join, &self, &peers));
  return vt_crossing_open(client, peers);
}

vt_status vt_client_join(const vt_slice *slice, const char *version, const vt_store *store,
                         vt_client **out_client) {
  vt_arena scratch = {0};
  vt_join join;
  vt_status st = vt_join_read(slice, vt_worker_variable, NULL, store, &scratch, &join);
  if (!st) st = create(slice, join.count > 1 ? &join : NULL, out_client);
  if (!st && join.count > 1) {
    st = open_crossing(*out_client, &join, version);
    if (st) {
      vt_client_destroy(*out_client);
      *out_client = NULL;
    }
  }
  vt_arena_free(&scratch);
  return st;
}

int32_t vt_client_process(const vt_client *client) {
  return client->process;
}

void vt_client_retain(vt_client *client) {
  vt_assert(atomic_load(&client->refs) > 0);
  atomic_fetch_add_explicit(&client->refs, 1, memory_order_relaxed);
}

void vt_client_release(vt_client *client) {
  vt_assert(atomic_load(&client->refs) > 0);
  if (atomic_fetch_sub_explicit(&client->refs, 1, memory_order_acq_rel) != 1) return;
  for (int32_t i = 0; i < client->device_count; i++) // each buffer held the client
    vt_assert(!client->accounts[i].live && !client->accounts[i].in_use);
  pthread_mutex_destroy(&client->lock);
  free((void *)(uintptr_t)client->split.process_of);
  free(client->accounts);
  free(client->devices);
  free(client);
}

void vt_client_destroy(vt_client *client) {
  if (!client) return;
  if (client->crossing && !vt_forked()) vt_crossing_finish(client);
  atomic_store(&client->closed, true);
  if (!vt_forked()) {
    vt_meetings_cancel(client);
    vt_executor_drain(&client->executor);
    vt_executor_fini(&client->executor);
    if (client->crossing) vt_crossing_close(client);
  }
  vt_client_release(client);
}

void vt_client_drain(vt_client *client) {
  if (!vt_forked()) vt_executor_drain(&client->executor);
}

const vt_slice *vt_client_slice(const vt_client *client) {
  return &client->slice;
}
int32_t vt_client_device_count(const vt_client *client) {
  return client->device_count;
}
vt_device *vt_client_device(vt_client *client, int32_t index) {
  vt_assert(index >= 0 && index < client->device_count);
  return &client->devices[index];
}

vt_device_memory_stats vt_device_stats(vt_device *device) {
  vt_assert(device->id >= 0 && device->id < device->client->device_count);
  vt_client *client = device->client;
  vt_lock(&client->lock);
  vt_account account = client->accounts[device->id];
  vt_unlock(&client->lock);
  return (vt_device_memory_stats){.bytes_in_use = account.in_use,
                                  .peak_bytes_in_use = account.peak,
                                  .num_allocs = account.allocs,
                                  .largest_alloc_bytes = account.largest,
                                  .limit_bytes = client->slice.chip->hbm_limit_bytes,
                                  .reserved_bytes = client->slice.chip->hbm_reserved_bytes};
}

void vt_device_clear_stats(vt_device *device) {
  vt_lock(&device->client->lock);
  vt_account *account = &device->client->accounts[device->id];
  account->peak = account->in_use;
  account->allocs = account->largest = 0;
  vt_unlock(&device->client->lock);
}
