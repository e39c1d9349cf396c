// SPDX-License-Identifier: Apache-2.0
// api.c - the table of slots, and nothing else.
#include <string.h>

#include "pjrt/objects.h"

enum {
#define SLOT(state, slot, name, ...) SLOT_##name = slot,
#include "pjrt/pjrt_slots.def"
#undef SLOT
};

// Structures that have grown since version 0.54, the first whose callers take this plugin (JAX
// 0.4.36): how long they were. Up to JAX 0.6 one was longer than it said.
static const struct {
  int slot;
  size_t said, had;
} older[] = {
    {SLOT_Plugin_Attributes, 24, 32},
    {SLOT_Client_Create, 72, 72},
    {SLOT_Executable_DeserializeAndLoad, 48, 48},
    {SLOT_Client_CreateViewOfDeviceBuffer, 104, 104},
    {SLOT_Executable_GetCompiledMemoryStats, 104, 104},
    {SLOT_Client_CreateErrorBuffer, 96, 96},
    {SLOT_Device_PoisonExecution, 49, 49},
};

// How much of a shorter structure can be read and written; 0: it is of no caller that is served.
static size_t bytes_there(int slot, size_t said) {
  for (size_t i = 0; i < sizeof older / sizeof *older; i++)
    if (older[i].slot == slot && said >= older[i].said)
      return said > older[i].had ? said : older[i].had;
  return 0;
}

static vt_status small_struct(const char *name, size_t expected, size_t got) {
  return vt_error(
      VT_INVALID_ARGUMENT,
      "PJRT_%s_Args has %zu bytes where version %d.%d has %zu: the caller is older than "
      "this plugin supports; take a newer JAX or PyTorch (docs/how-to/frameworks.md has the "
      "versions)",
      name, got, PJRT_MAJOR, PJRT_MINOR, expected);
}

// Before a slot runs, a check ensures that the caller's structure has all fields of this version,
// so that none past its end is read or written. What an older caller's lacks is zero, and dropped.
#define CHECKED_VOID(name, bytes)
#define CHECKED_HAVE(name, bytes)                                                                  \
  static vt_status checked_##name(PJRT_##name##_Args *args) {                                      \
    if (args->struct_size >= (bytes)) return vt_pjrt_##name(args);                                 \
    size_t there = bytes_there(SLOT_##name, args->struct_size);                                    \
    if (!there) return small_struct(#name, bytes, args->struct_size);                              \
    PJRT_##name##_Args whole = {0};                                                                \
    memcpy(&whole, args, there);                                                                   \
    vt_status st = vt_pjrt_##name(&whole);                                                         \
    memcpy(args, &whole, there);                                                                   \
    return st;                                                                                     \
  }
#define SLOT(state, slot, name, bytes, last, ...) CHECKED_##state(name, bytes)
#include "pjrt/pjrt_slots.def"
#undef SLOT

#define FUNCTION_VOID(name) vt_pjrt_##name
#define FUNCTION_HAVE(name) checked_##name

static const PJRT_Api the_api = {
    .struct_size = sizeof(PJRT_Api),
    .extension_start = &vt_pjrt_layouts.base,
    .version = {.struct_size = 24, .major = PJRT_MAJOR, .minor = PJRT_MINOR},
    .slots = {
#define SLOT(state, slot, name, bytes, last, ...) [slot] = (void (*)(void))FUNCTION_##state(name),
#include "pjrt/pjrt_slots.def"
#undef SLOT
    }};

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void) {
  return &the_api;
}
