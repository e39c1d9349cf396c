// SPDX-License-Identifier: Apache-2.0
// plugin_support.h - a small client of the PJRT interface for the contract tests: loads a plugin
// and wraps its calls.
#ifndef VT_TESTS_PLUGIN_SUPPORT_H
#define VT_TESTS_PLUGIN_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/text.h"
#include "pjrt/abi.h"

enum {
#define SLOT(state, slot, name, bytes, last, ...) SLOT_##name = slot,
#include "pjrt/pjrt_slots.def"
#undef SLOT
};

// ARGS(Client_Create) a = ...; declares zeroed arguments with their size set.
#define ARGS(name, variable)                                                                       \
  PJRT_##name##_Args variable = {.struct_size = sizeof(PJRT_##name##_Args)}

typedef struct plugin {
  void *library;
  const PJRT_Api *api;
} plugin;

plugin plugin_load(const char *path); // fails the test when it cannot
const char *plugin_path(void);        // the one from plugin_use, otherwise this build's
// A plugin to test instead, by a path that may contain wildcards, and NAME=NUMBER create options;
// false when no such file exists.
bool plugin_use(const char *pattern, int option_count, char **options);
bool plugin_has(const plugin *p, int slot); // the table of an older plugin is shorter
PJRT_Error *plugin_call(const plugin *p, int slot, void *args);
// The call succeeds, or the test fails with the error's text.
void plugin_ok(const plugin *p, int slot, void *args);
// The call fails with `code`; its message contains `part` (NULL = any).
void plugin_fails(const plugin *p, int slot, void *args, int code, const char *part);
void plugin_error_is(const plugin *p, PJRT_Error *error, int code, const char *part);

PJRT_Client *plugin_client(const plugin *p);
void plugin_client_destroy(const plugin *p, PJRT_Client *client);
PJRT_Device *plugin_device(const plugin *p, PJRT_Client *client, int id);
PJRT_Buffer *plugin_buffer(const plugin *p, PJRT_Client *client, PJRT_Device *device, int type,
                           size_t rank, const int64_t *dims, const void *data);
void plugin_buffer_destroy(const plugin *p, PJRT_Buffer *buffer);
void plugin_fetch(const plugin *p, PJRT_Buffer *buffer, void *data, size_t size); // waits
PJRT_Error *plugin_await(const plugin *p, PJRT_Event *event); // destroys the event

vt_bytes plugin_program(const char *name); // fixtures/NAME.mlirbc, mapped
// A program as MLIR text; NULL when the compiler rejects it, with its error in *out_error.
PJRT_LoadedExecutable *plugin_compile_text(const plugin *p, PJRT_Client *client, const char *text,
                                           int partitions, PJRT_Error **out_error);
// The same for a grid of devices; without `spmd` each device runs the program on its own arrays.
PJRT_LoadedExecutable *plugin_compile_grid(const plugin *p, PJRT_Client *client, const char *text,
                                           int replicas, int partitions, bool spmd);
// Compile options for devices 0, 1, 2 ...; free the text.
void plugin_options(int replicas, int partitions, bool spmd, vt_text *out_options);
PJRT_LoadedExecutable *plugin_compile(const plugin *p, PJRT_Client *client, const char *name,
                                      int partitions);
void plugin_executable_destroy(const plugin *p, PJRT_LoadedExecutable *executable);
// What is loaded, as an object of its own.
PJRT_Executable *plugin_get_executable(const plugin *p, PJRT_LoadedExecutable *loaded);
void plugin_drop_executable(const plugin *p, PJRT_Executable *executable);
// arguments[device][arg]; results[device][result] get buffers. Returns the call's error; waits for
// device 0's event.
PJRT_Error *plugin_execute(const plugin *p, PJRT_LoadedExecutable *executable, size_t devices,
                           size_t args, PJRT_Buffer *const *const *arguments,
                           PJRT_Buffer **const *results);
// Runs a program of two arguments and one result on one device and does not wait: `done` counts up
// when the run has succeeded. Returns the result.
PJRT_Buffer *plugin_start(const plugin *p, PJRT_LoadedExecutable *executable, PJRT_Buffer *a,
                          PJRT_Buffer *b, atomic_int *done);

#endif
