// SPDX-License-Identifier: Apache-2.0
// api.c - the table of slots, and nothing else.
#include "pjrt/objects.h"

// Before a slot runs, a check ensures that the caller's structure has all fields of this version,
// so that none past its end is read or written.
static vt_status small_struct(const char *name, size_t expected, size_t got) {
  return vt_error(
      VT_INVALID_ARGUMENT,
      "PJRT_%s_Args has %zu bytes where version %d.%d has %zu: the caller is older than "
      "this plugin supports; take a newer JAX or PyTorch (docs/how-to/frameworks.md has the "
      "versions)",
      name, got, PJRT_MAJOR, PJRT_MINOR, expected);
}
#define CHECKED_VOID(name, bytes)
#define CHECKED_HAVE(name, bytes)                                                                  \
  static vt_status checked_##name(PJRT_##name##_Args *args) {                                      \
    if (args->struct_size < (bytes)) return small_struct(#name, bytes, args->struct_size);         \
    return vt_pjrt_##name(args);                                                                   \
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
