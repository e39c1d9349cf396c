// SPDX-License-Identifier: Apache-2.0
// status.c - errors with the memory layout that the PJRT C API prescribes for PJRT_Error: the first
// word points to a table of functions, so that a caller may use either that table or PJRT_Api's
// entries.
#include "base/check.h"
#include "base/status.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct error_table {
  size_t struct_size;
  size_t instance_size;
  void *extension_start;
  void (*destroy)(struct PJRT_Error *error);
  void (*message)(const struct PJRT_Error *error, const char **out_message, size_t *out_size);
  int (*get_code)(const struct PJRT_Error *error);
  struct PJRT_Error *(*for_each_payload)(const struct PJRT_Error *error, void *visitor, void *user);
} error_table;

struct PJRT_Error {
  const error_table *table;
  vt_code code;
  size_t message_size;
  const char *message;
};

static void table_destroy(struct PJRT_Error *error) {
  vt_status_free(error);
}
static void table_message(const struct PJRT_Error *error, const char **out_message,
                          size_t *out_size) {
  *out_message = error->message;
  *out_size = error->message_size;
}
static int table_get_code(const struct PJRT_Error *error) {
  return (int)error->code;
}
static struct PJRT_Error *table_for_each_payload(const struct PJRT_Error *error, void *visitor,
                                                 void *user) {
  (void)error, (void)visitor, (void)user;
  return NULL;
}

static const error_table the_table = {
    .struct_size = sizeof(error_table),
    .instance_size = sizeof(struct PJRT_Error),
    .destroy = table_destroy,
    .message = table_message,
    .get_code = table_get_code,
    .for_each_payload = table_for_each_payload,
};

#define NO_MEMORY_TEXT                                                                             \
  "out of host memory: this machine refused more; raise ulimit -v or the container's limit, or "   \
  "try a smaller batch: the arrays of all devices of a slice live there"
static struct PJRT_Error no_memory = {&the_table, VT_RESOURCE_EXHAUSTED, sizeof NO_MEMORY_TEXT - 1,
                                      NO_MEMORY_TEXT};

vt_status vt_error_no_memory(void) {
  return &no_memory;
}

static vt_status make(vt_code code, const char *prefix, size_t prefix_size, const char *text,
                      size_t text_size) {
  vt_assert(code && (prefix || !prefix_size) && (text || !text_size));
  struct PJRT_Error *error = malloc(sizeof *error + prefix_size + text_size + 1);
  if (!error) return &no_memory;
  char *message = (char *)(error + 1);
  if (prefix_size) memcpy(message, prefix, prefix_size);
  if (text_size) memcpy(message + prefix_size, text, text_size);
  message[prefix_size + text_size] = 0;
  *error = (struct PJRT_Error){&the_table, code, prefix_size + text_size, message};
  return error;
}

vt_status vt_errorv(vt_code code, const char *format, va_list args) {
  char small[512];
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, format, args);
  vt_status st;
  if (n < 0) {
    st = make(code, "", 0, format, strlen(format));
  } else if ((size_t)n < sizeof small) {
    st = make(code, "", 0, small, (size_t)n);
  } else {
    char *large = malloc((size_t)n + 1);
    if (!large) {
      st = &no_memory;
    } else {
      vsnprintf(large, (size_t)n + 1, format, again);
      st = make(code, "", 0, large, (size_t)n);
      free(large);
    }
  }
  va_end(again);
  return st;
}

vt_status vt_error(vt_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vt_status st = vt_errorv(code, format, args);
  va_end(args);
  return st;
}

vt_status vt_status_wrap(vt_status st, const char *format, ...) {
  if (!st || st == &no_memory) return st;
  va_list args;
  va_start(args, format);
  vt_status context = vt_errorv(st->code, format, args);
  va_end(args);
  char separator[] = ": ";
  vt_status with_colon = make(st->code, context->message, context->message_size, separator, 2);
  vt_status result =
      make(st->code, with_colon->message, with_colon->message_size, st->message, st->message_size);
  vt_status_free(context);
  vt_status_free(with_colon);
  vt_status_free(st);
  return result;
}

vt_status vt_status_copy(vt_status st) {
  if (!st || st == &no_memory) return st;
  return make(st->code, "", 0, st->message, st->message_size);
}

vt_code vt_status_code(vt_status st) {
  return st ? st->code : (vt_code)0;
}
const char *vt_status_message(vt_status st) {
  return st ? st->message : "";
}
size_t vt_status_message_size(vt_status st) {
  return st ? st->message_size : 0;
}

const char *vt_code_name(vt_code code) {
  switch ((int)code) {
#define CODE(name, value)                                                                          \
  case value:                                                                                      \
    return #name;
#include "base/codes.def"
#undef CODE
  default:
    return "UNKNOWN";
  }
}

void vt_status_free(vt_status st) {
  if (st && st != &no_memory) free(st);
}
