// SPDX-License-Identifier: Apache-2.0
// pjrt_inspect.c - tells a client the shardings that its program inspects.
//
// The custom call @InspectSharding holds the address of a function and its argument as the bytes of
// a structure: it is meant for a compiler in the framework's own process. So it is followed only in
// a compilation that a client requests directly, never for a program from a file or a cache, and
// only into the code of a loaded library.
#include <dlfcn.h>
#include <string.h>

#include "pjrt/objects.h"

typedef struct inspect_args {
  const char *sharding; // OpSharding message
  size_t sharding_size;
  const char *error; // of the callback, NULL = none
  void *error_owner;
  void (*free_error)(struct inspect_args *args);
} inspect_args;

typedef struct inspect_callback {
  void (*call)(void *user, inspect_args *args);
  void *user;
} inspect_callback;

static vt_status inspect(const char *program, const vt_inspection *inspection) {
  inspect_callback callback;
  Dl_info where;
  if (inspection->config.size != sizeof callback)
    return vt_error(VT_INVALID_ARGUMENT, "%s: InspectSharding with %zu bytes of configuration",
                    program, inspection->config.size);
  memcpy(&callback, inspection->config.data, sizeof callback);
  if (!callback.call || !dladdr((void *)(uintptr_t)callback.call, &where))
    return vt_error(VT_INVALID_ARGUMENT,
                    "%s: InspectSharding of another process; only the framework that wrote the "
                    "program can compile it",
                    program);
  inspect_args args = {.sharding =
                           inspection->sharding.size ? (const char *)inspection->sharding.data : "",
                       .sharding_size = inspection->sharding.size};
  callback.call(callback.user, &args);
  if (!args.error) return VT_OK;
  vt_status st = vt_error(VT_INTERNAL, "Error calling inspect_sharding: %s", args.error);
  if (args.free_error) args.free_error(&args);
  return st;
}

vt_status vt_inspect_shardings(const PJRT_Executable *executable) {
  const vt_executable_info *info = executable->info;
  for (size_t i = 0; i < info->inspection_count; i++)
    VT_TRY(inspect(info->name, &info->inspections[i]));
  return VT_OK;
}
