// SPDX-License-Identifier: Apache-2.0
// api.c - the table of slots, and nothing else. Every slot answers; what is not done says so with
// its name.
#include "pjrt/objects.h"

// For each NONE row: a function of the row's type that answers UNIMPLEMENTED.
#define MISSING_VOID(name)
#define MISSING_HAVE(name)
#define MISSING_NONE(name)                                                                         \
  static vt_status missing_##name(PJRT_##name##_Args *args) {                                      \
    (void)args;                                                                                    \
    return vt_error(VT_UNIMPLEMENTED, "PJRT_" #name " is not implemented by vtpu");                \
  }
#define SLOT(state, slot, name, bytes, last, ...) MISSING_##state(name)
#include "pjrt/pjrt_slots.def"
#undef SLOT

#define FUNCTION_VOID(name) vt_pjrt_##name
#define FUNCTION_HAVE(name) vt_pjrt_##name
#define FUNCTION_NONE(name) missing_##name

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
