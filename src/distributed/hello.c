// SPDX-License-Identifier: Apache-2.0
// hello.c - see hello.h.
#include "distributed/hello.h"

#include <ctype.h>
#include <string.h>

#include "base/check.h"

static const char magic[8] = "vtpujob1";
enum { COOKIE_AT = 8, NUMBERS_AT = COOKIE_AT + VT_COOKIE_BYTES, TEXTS_AT = NUMBERS_AT + 16 };
enum { HEAD_MOST = 1 << 24 };

void vt_put_u32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}
void vt_put_u64(uint8_t *at, uint64_t value) {
  for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> (8 * i));
}
uint32_t vt_get_u32(const uint8_t *at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) value |= (uint32_t)at[i] << (8 * i);
  return value;
}
uint64_t vt_get_u64(const uint8_t *at) {
  return vt_get_u32(at) | (uint64_t)vt_get_u32(at + 4) << 32;
}

// ---- hello --------------------------------------------------------------------------------------

static void put_cookie(const char *cookie, uint8_t *at) {
  size_t size = strlen(cookie);
  memset(at, 0, VT_COOKIE_BYTES);
  memcpy(at, cookie, size < VT_COOKIE_BYTES ? size : VT_COOKIE_BYTES);
}

static uint8_t *put_text(uint8_t *at, const char *text, size_t room) {
  memset(at, 0, room);
  memcpy(at, text, strnlen(text, room - 1));
  return at + room;
}

void vt_hello_write(const vt_hello *hello, const char *cookie, uint8_t bytes[VT_HELLO_BYTES]) {
  memset(bytes, 0, VT_HELLO_BYTES);
  memcpy(bytes, magic, sizeof magic);
  put_cookie(cookie, bytes + COOKIE_AT);
  const int32_t numbers[] = {hello->index, hello->count, hello->pid, hello->port};
  for (int i = 0; i < 4; i++) vt_put_u32(bytes + NUMBERS_AT + 4 * i, (uint32_t)numbers[i]);
  uint8_t *at = put_text(bytes + TEXTS_AT, hello->slice, sizeof hello->slice);
  at = put_text(at, hello->version, sizeof hello->version);
  at = put_text(at, hello->machine, sizeof hello->machine);
  at = put_text(at, hello->host, sizeof hello->host);
  vt_assert(at <= bytes + VT_HELLO_BYTES);
}

bool vt_hello_is_ours(const uint8_t *bytes, size_t size, const char *cookie) {
  uint8_t wanted[VT_COOKIE_BYTES], differs = 0;
  if (size < NUMBERS_AT || memcmp(bytes, magic, sizeof magic)) return false;
  put_cookie(cookie, wanted);
  for (int i = 0; i < VT_COOKIE_BYTES; i++) // in a time that says nothing
    differs = (uint8_t)(differs | (bytes[COOKIE_AT + i] ^ wanted[i]));
  return differs == 0;
}

// A text that ends within its room and can be printed.
static bool get_text(const uint8_t **at, char *out, size_t room) {
  memcpy(out, *at, room);
  *at += room;
  if (memchr(out, 0, room) == NULL) return false;
  for (const char *c = out; *c; c++)
    if (!isprint((unsigned char)*c)) return false;
  return true;
}

vt_status vt_hello_read(vt_bytes bytes, vt_hello *out_hello) {
  if (bytes.size != VT_HELLO_BYTES || memcmp(bytes.data, magic, sizeof magic))
    return vt_error(VT_INVALID_ARGUMENT, "not the first message of a process");
  int32_t *const numbers[] = {&out_hello->index, &out_hello->count, &out_hello->pid,
                              &out_hello->port};
  for (int i = 0; i < 4; i++) *numbers[i] = (int32_t)vt_get_u32(bytes.data + NUMBERS_AT + 4 * i);
  const uint8_t *at = bytes.data + TEXTS_AT;
  bool good = get_text(&at, out_hello->slice, sizeof out_hello->slice) &&
              get_text(&at, out_hello->version, sizeof out_hello->version) &&
              get_text(&at, out_hello->machine, sizeof out_hello->machine) &&
              get_text(&at, out_hello->host, sizeof out_hello->host);
  good = good && out_hello->count >= 1 && out_hello->count <= VT_PROCESSES_MOST &&
         out_hello->index >= 0 && out_hello->index < out_hello->count && out_hello->port >= 0 &&
         out_hello->port <= 65535;
  return good ? VT_OK : vt_error(VT_INVALID_ARGUMENT, "a first message with impossible values");
}

vt_status vt_hello_compare(const vt_hello *a, const vt_hello *b) {
  if (a->count != b->count)
    return vt_error(VT_FAILED_PRECONDITION,
                    "process %d (host %s) expects %d processes, process %d (host %s) expects %d",
                    a->index, a->host, a->count, b->index, b->host, b->count);
  if (strcmp(a->version, b->version))
    return vt_error(VT_FAILED_PRECONDITION,
                    "process %d (host %s) has %s, process %d (host %s) has %s; install the same "
                    "on all hosts",
                    a->index, a->host, a->version, b->index, b->host, b->version);
  if (strcmp(a->slice, b->slice))
    return vt_error(VT_FAILED_PRECONDITION,
                    "process %d (host %s) is of %s, process %d (host %s) of %s; set "
                    "TPU_ACCELERATOR_TYPE alike",
                    a->index, a->host, a->slice, b->index, b->host, b->slice);
  if (strcmp(a->machine, b->machine))
    return vt_error(VT_FAILED_PRECONDITION,
                    "process %d (host %s) computes with {%s}, process %d (host %s) with {%s}: "
                    "their results would differ. Set VTPU_CPU, OMP_NUM_THREADS and the named "
                    "VTPU_ variables alike on all hosts",
                    a->index, a->host, a->machine, b->index, b->host, b->machine);
  return VT_OK;
}

// ---- welcome ------------------------------------------------------------------------------------

enum { MEMBER_BYTES = VT_HOST_NAME + 8 };

void vt_welcome_write(const vt_member *members, int32_t count, vt_text *out) {
  for (int32_t i = 0; i < count; i++) {
    uint8_t row[MEMBER_BYTES];
    vt_put_u32(row, (uint32_t)members[i].address.port);
    vt_put_u32(row + 4, (uint32_t)members[i].pid);
    put_text(row + 8, members[i].address.host, VT_HOST_NAME);
    vt_text_put_n(out, row, sizeof row);
  }
}

vt_status vt_welcome_read(vt_bytes bytes, int32_t count, vt_member *out_members) {
  bool good = bytes.size == (size_t)count * MEMBER_BYTES;
  for (int32_t i = 0; good && i < count; i++) {
    const uint8_t *row = bytes.data + (size_t)i * MEMBER_BYTES, *text = row + 8;
    vt_member *member = &out_members[i];
    member->address.port = (int32_t)vt_get_u32(row);
    member->pid = (int32_t)vt_get_u32(row + 4);
    good = get_text(&text, member->address.host, VT_HOST_NAME) && member->address.port >= 0 &&
           member->address.port <= 65535;
  }
  return good ? VT_OK : vt_error(VT_INVALID_ARGUMENT, "a list of processes with impossible values");
}

// ---- frames -------------------------------------------------------------------------------------

void vt_frame_write(vt_frame frame, uint8_t bytes[VT_FRAME_BYTES]) {
  vt_put_u32(bytes, frame.kind);
  vt_put_u32(bytes + 4, frame.head);
  vt_put_u64(bytes + 8, frame.body);
}

vt_status vt_frame_read(const uint8_t bytes[VT_FRAME_BYTES], vt_frame *out_frame) {
  *out_frame = (vt_frame){vt_get_u32(bytes), vt_get_u32(bytes + 4), vt_get_u64(bytes + 8)};
  bool empty = out_frame->head == 0 && out_frame->body == 0;
  switch (out_frame->kind) {
  case VT_FRAME_MESSAGE:
  case VT_FRAME_APART:
    if (out_frame->head > 0 && out_frame->head <= HEAD_MOST && out_frame->body <= INT64_MAX)
      return VT_OK;
    break;
  case VT_FRAME_PING:
  case VT_FRAME_BYE:
    if (empty) return VT_OK;
    break;
  case VT_FRAME_LOST:
    if (out_frame->head == 0 && out_frame->body < VT_PROCESSES_MOST) return VT_OK;
    break;
  case VT_FRAME_WELCOME:
  case VT_FRAME_REFUSED:
    if (out_frame->head == 0 && out_frame->body <= VT_WELCOME_MOST) return VT_OK;
    break;
  default:
    break;
  }
  return vt_error(VT_INVALID_ARGUMENT, "a message of kind %u with %u and %llu bytes",
                  out_frame->kind, out_frame->head, (unsigned long long)out_frame->body);
}
