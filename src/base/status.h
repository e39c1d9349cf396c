// SPDX-License-Identifier: Apache-2.0
// status.h - the one error type. It is the object that PJRT hands out, so nothing is translated at
// the ABI.
//
// NULL (VT_OK) is success; otherwise its holder owns the status and frees or returns it.
// A function that owns nothing uses VT_TRY; one that owns something has one label `out` and uses
// VT_TRY_OUT with a local `vt_status st`.
#ifndef VT_BASE_STATUS_H
#define VT_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

typedef struct PJRT_Error *vt_status;
#define VT_OK ((vt_status)0)

typedef enum vt_code {
#define CODE(name, value) VT_##name = value,
#include "base/codes.def"
#undef CODE
} vt_code;

#define VT_CHECKED                 __attribute__((warn_unused_result))
#define VT_NONNULL                 __attribute__((returns_nonnull))
#define VT_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

#define VT_TRY(call)                                                                               \
  do {                                                                                             \
    vt_status vt_try_ = (call);                                                                    \
    if (vt_try_) return vt_try_;                                                                   \
  } while (0)
#define VT_TRY_OUT(call)                                                                           \
  do {                                                                                             \
    if ((st = (call))) goto out;                                                                   \
  } while (0)

// A new error. Never NULL: when memory runs out it is the static out-of-memory error.
vt_status vt_error(vt_code code, const char *format, ...) VT_CHECKED VT_NONNULL VT_PRINTF(2, 3);
vt_status vt_errorv(vt_code code, const char *format, va_list args) VT_CHECKED VT_NONNULL;
// The static error for failed host allocations; freeing it is a no-op.
vt_status vt_error_no_memory(void) VT_CHECKED VT_NONNULL;
// Takes `st`, returns it with "context: " before its message. VT_OK stays VT_OK.
vt_status vt_status_wrap(vt_status st, const char *format, ...) VT_CHECKED VT_PRINTF(2, 3);
// A second owned status with the same code and message.
vt_status vt_status_copy(vt_status st) VT_CHECKED;

vt_code vt_status_code(vt_status st);        // VT_OK gives 0
const char *vt_status_message(vt_status st); // borrowed, NUL-terminated; VT_OK gives ""
size_t vt_status_message_size(vt_status st);
const char *vt_code_name(vt_code code); // "INVALID_ARGUMENT"; "UNKNOWN" when not in the table
void vt_status_free(vt_status st);      // accepts VT_OK

#endif
