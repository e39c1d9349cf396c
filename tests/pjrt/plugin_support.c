// SPDX-License-Identifier: Apache-2.0
// plugin_support.c - see plugin_support.h.
#include "plugin_support.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/proto.h"

enum { MAX_OPTIONS = 4 };
static char used_path[1024];
static PJRT_NamedValue used_options[MAX_OPTIONS];
static size_t used_count;

const char *plugin_path(void) {
  return used_path[0] ? used_path : VTPU_PLUGIN_FILE;
}

bool plugin_use(const char *pattern, int option_count, char **options) {
  glob_t found = {0};
  bool ok = !glob(pattern, 0, NULL, &found);
  if (ok) snprintf(used_path, sizeof used_path, "%s", found.gl_pathv[0]);
  globfree(&found);
  for (int i = 0; i < option_count && i < MAX_OPTIONS; i++) {
    char *value = strchr(options[i], '=');
    if (!value) continue;
    used_options[used_count++] = (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                                                   .name = options[i],
                                                   .name_size = (size_t)(value - options[i]),
                                                   .type = PJRT_VALUE_INT64,
                                                   .int64 = strtoll(value + 1, NULL, 10),
                                                   .value_size = 1};
  }
  return ok;
}

bool plugin_has(const plugin *p, int slot) {
  return p->api->struct_size >= offsetof(PJRT_Api, slots) + sizeof(void *) * ((size_t)slot + 1) &&
         p->api->slots[slot];
}

plugin plugin_load(const char *path) {
  plugin p = {.library = dlopen(path, RTLD_LAZY | RTLD_LOCAL)};
  if (!p.library) fail_msg("%s", dlerror());
  const PJRT_Api *(*get)(void) = NULL;
  *(void **)&get = dlsym(p.library, "GetPjrtApi");
  assert_non_null(get);
  p.api = get();
  assert_non_null(p.api);
  return p;
}

PJRT_Error *plugin_call(const plugin *p, int slot, void *args) {
  return ((PJRT_Error * (*)(void *)) p->api->slots[slot])(args);
}

static void error_destroy(const plugin *p, PJRT_Error *error) {
  ARGS(Error_Destroy, a);
  a.error = error;
  ((void (*)(PJRT_Error_Destroy_Args *))p->api->slots[SLOT_Error_Destroy])(&a);
}

static const char *error_text(const plugin *p, PJRT_Error *error, char *text, size_t room) {
  ARGS(Error_Message, a);
  a.error = error;
  ((void (*)(PJRT_Error_Message_Args *))p->api->slots[SLOT_Error_Message])(&a);
  snprintf(text, room, "%.*s", (int)a.message_size, a.message);
  return text;
}

void plugin_ok(const plugin *p, int slot, void *args) {
  PJRT_Error *error = plugin_call(p, slot, args);
  char text[4096];
  if (error) fail_msg("slot %d: %s", slot, error_text(p, error, text, sizeof text));
}

void plugin_error_is(const plugin *p, PJRT_Error *error, int code, const char *part) {
  if (!error) fail_msg("no error where code %d was expected", code);
  char text[8192];
  error_text(p, error, text, sizeof text);
  ARGS(Error_GetCode, a);
  a.error = error;
  plugin_ok(p, SLOT_Error_GetCode, &a);
  if (plugin_has(p, SLOT_Error_ForEachPayload)) {
    ARGS(Error_ForEachPayload, payload);
    payload.error = error;
    plugin_ok(p, SLOT_Error_ForEachPayload, &payload);
  }
  if (a.code != code) fail_msg("code %d where %d was expected: %s", a.code, code, text);
  if (part && !strstr(text, part)) fail_msg("\"%s\" does not say \"%s\"", text, part);
  error_destroy(p, error);
}

void plugin_fails(const plugin *p, int slot, void *args, int code, const char *part) {
  plugin_error_is(p, plugin_call(p, slot, args), code, part);
}

PJRT_Client *plugin_client(const plugin *p) {
  ARGS(Plugin_Initialize, init);
  plugin_ok(p, SLOT_Plugin_Initialize, &init);
  ARGS(Client_Create, a);
  a.create_options = used_options;
  a.num_options = used_count;
  // Callers of vtpu without a key-value store leave these fields unset.
  if (!used_path[0])
    memset(&a.kv_get_callback, 0xAB, sizeof a.kv_get_callback + sizeof a.kv_get_user_arg);
  plugin_ok(p, SLOT_Client_Create, &a);
  return a.client;
}

void plugin_client_destroy(const plugin *p, PJRT_Client *client) {
  ARGS(Client_Destroy, a);
  a.client = client;
  plugin_ok(p, SLOT_Client_Destroy, &a);
}

PJRT_Device *plugin_device(const plugin *p, PJRT_Client *client, int id) {
  ARGS(Client_LookupDevice, a);
  a.client = client;
  a.id = id;
  plugin_ok(p, SLOT_Client_LookupDevice, &a);
  return a.device;
}

PJRT_Error *plugin_await(const plugin *p, PJRT_Event *event) {
  ARGS(Event_Await, await);
  await.event = event;
  PJRT_Error *error = plugin_call(p, SLOT_Event_Await, &await);
  ARGS(Event_Destroy, destroy);
  destroy.event = event;
  plugin_ok(p, SLOT_Event_Destroy, &destroy);
  return error;
}

PJRT_Buffer *plugin_buffer(const plugin *p, PJRT_Client *client, PJRT_Device *device, int type,
                           size_t rank, const int64_t *dims, const void *data) {
  ARGS(Client_BufferFromHostBuffer, a);
  a.client = client;
  a.data = data;
  a.type = type;
  a.dims = dims;
  a.num_dims = rank;
  a.host_buffer_semantics = PJRT_HOST_IMMUTABLE_DURING_CALL;
  a.device = device;
  plugin_ok(p, SLOT_Client_BufferFromHostBuffer, &a);
  assert_null(plugin_await(p, a.done_with_host_buffer));
  return a.buffer;
}

void plugin_buffer_destroy(const plugin *p, PJRT_Buffer *buffer) {
  ARGS(Buffer_Destroy, a);
  a.buffer = buffer;
  plugin_ok(p, SLOT_Buffer_Destroy, &a);
}

void plugin_fetch(const plugin *p, PJRT_Buffer *buffer, void *data, size_t size) {
  ARGS(Buffer_ToHostBuffer, a);
  a.src = buffer;
  a.dst = data;
  a.dst_size = size;
  plugin_ok(p, SLOT_Buffer_ToHostBuffer, &a);
  PJRT_Error *error = plugin_await(p, a.event);
  char text[4096];
  if (error) fail_msg("fetch: %s", error_text(p, error, text, sizeof text));
}

vt_bytes plugin_program(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/pjrt/fixtures/%s.mlirbc", VTPU_SOURCE_DIR, name);
  vt_bytes bytes = {0};
  assert_null(vt_file_map(path, &bytes));
  return bytes;
}

void plugin_options(int replicas, int partitions, bool spmd, vt_text *out_options) {
  vt_text assignment = {0}, build = {0};
  int32_t ids[64];
  for (int i = 0; i < replicas * partitions; i++) ids[i] = i;
  vt_device_assignment_write(replicas, partitions, ids, &assignment);
  vt_wire_put_uint(&build, 4, (uint64_t)replicas);
  vt_wire_put_uint(&build, 5, (uint64_t)partitions);
  vt_wire_put_uint(&build, 6, spmd); // use_spmd_partitioning
  vt_wire_put_bytes(&build, 9, assignment.data, assignment.size);
  vt_wire_put_uint(&build, 19, spmd); // use_shardy_partitioner
  vt_wire_put_bytes(out_options, 3, build.data, build.size);
  vt_text_free(&assignment);
  vt_text_free(&build);
}

static PJRT_Error *compile(const plugin *p, PJRT_Client *client, vt_bytes code, int replicas,
                           int partitions, bool spmd, PJRT_LoadedExecutable **out_executable) {
  vt_text options = {0};
  plugin_options(replicas, partitions, spmd, &options);
  PJRT_Program program = {.struct_size = sizeof program,
                          .code = (char *)(uintptr_t)code.data,
                          .code_size = code.size,
                          .format = "mlir",
                          .format_size = 4};
  ARGS(Client_Compile, a);
  a.client = client;
  a.program = &program;
  a.compile_options = options.data;
  a.compile_options_size = options.size;
  PJRT_Error *error = plugin_call(p, SLOT_Client_Compile, &a);
  vt_text_free(&options);
  *out_executable = a.executable;
  return error;
}

PJRT_LoadedExecutable *plugin_compile(const plugin *p, PJRT_Client *client, const char *name,
                                      int partitions) {
  vt_bytes code = plugin_program(name);
  PJRT_LoadedExecutable *executable = NULL;
  PJRT_Error *error = compile(p, client, code, 1, partitions, partitions > 1, &executable);
  char text[4096];
  if (error) fail_msg("%s: %s", name, error_text(p, error, text, sizeof text));
  vt_file_unmap(&code);
  return executable;
}

PJRT_LoadedExecutable *plugin_compile_text(const plugin *p, PJRT_Client *client, const char *text,
                                           int partitions, PJRT_Error **out_error) {
  PJRT_LoadedExecutable *executable = NULL;
  vt_bytes code = {(const uint8_t *)text, strlen(text)};
  PJRT_Error *error = compile(p, client, code, 1, partitions, partitions > 1, &executable);
  char message[4096];
  if (error && !out_error) fail_msg("compile: %s", error_text(p, error, message, sizeof message));
  if (out_error) *out_error = error;
  return error ? NULL : executable;
}

PJRT_LoadedExecutable *plugin_compile_grid(const plugin *p, PJRT_Client *client, const char *text,
                                           int replicas, int partitions, bool spmd) {
  PJRT_LoadedExecutable *executable = NULL;
  vt_bytes code = {(const uint8_t *)text, strlen(text)};
  PJRT_Error *error = compile(p, client, code, replicas, partitions, spmd, &executable);
  char message[4096];
  if (error) fail_msg("compile: %s", error_text(p, error, message, sizeof message));
  return executable;
}

void plugin_executable_destroy(const plugin *p, PJRT_LoadedExecutable *executable) {
  ARGS(LoadedExecutable_Destroy, a);
  a.executable = executable;
  plugin_ok(p, SLOT_LoadedExecutable_Destroy, &a);
}

PJRT_Executable *plugin_get_executable(const plugin *p, PJRT_LoadedExecutable *loaded) {
  ARGS(LoadedExecutable_GetExecutable, get);
  get.loaded_executable = loaded;
  plugin_ok(p, SLOT_LoadedExecutable_GetExecutable, &get);
  return get.executable;
}

void plugin_drop_executable(const plugin *p, PJRT_Executable *executable) {
  ARGS(Executable_Destroy, destroy);
  destroy.executable = executable;
  plugin_ok(p, SLOT_Executable_Destroy, &destroy);
}

PJRT_Error *plugin_execute(const plugin *p, PJRT_LoadedExecutable *executable, size_t devices,
                           size_t args, PJRT_Buffer *const *const *arguments,
                           PJRT_Buffer **const *results) {
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  PJRT_Event *events[64];
  ARGS(LoadedExecutable_Execute, a);
  a.executable = executable;
  a.options = &options;
  a.argument_lists = arguments;
  a.num_devices = devices;
  a.num_args = args;
  a.output_lists = results;
  a.device_complete_events = events;
  PJRT_Error *error = plugin_call(p, SLOT_LoadedExecutable_Execute, &a);
  if (error) return error;
  for (size_t d = 0; d < devices; d++) {
    PJRT_Error *failed = plugin_await(p, events[d]);
    if (!failed) continue;
    if (error)
      error_destroy(p, failed);
    else
      error = failed;
  }
  return error;
}

static void count_done(PJRT_Error *error, void *done) {
  if (!error) atomic_fetch_add((atomic_int *)done, 1); // the count is asserted by the test's thread
}

PJRT_Buffer *plugin_start(const plugin *p, PJRT_LoadedExecutable *executable, PJRT_Buffer *a,
                          PJRT_Buffer *b, atomic_int *done) {
  PJRT_Buffer *args[2] = {a, b}, *outs[1] = {NULL}, **results[1] = {outs};
  PJRT_Buffer *const *arguments[1] = {args};
  PJRT_Event *events[1];
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  ARGS(LoadedExecutable_Execute, run);
  run.executable = executable;
  run.options = &options;
  run.argument_lists = arguments;
  run.num_devices = 1;
  run.num_args = 2;
  run.output_lists = results;
  run.device_complete_events = events;
  plugin_ok(p, SLOT_LoadedExecutable_Execute, &run);
  ARGS(Event_OnReady, on_ready);
  on_ready.event = events[0];
  on_ready.callback = count_done;
  on_ready.user_arg = done;
  plugin_ok(p, SLOT_Event_OnReady, &on_ready);
  ARGS(Event_Destroy, destroy);
  destroy.event = events[0];
  plugin_ok(p, SLOT_Event_Destroy, &destroy);
  return outs[0];
}
