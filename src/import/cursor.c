// SPDX-License-Identifier: Apache-2.0
// cursor.c - see cursor.h. Layouts: "Encoding" in MLIR's BytecodeFormat document, version 6.
#include "base/check.h"
#include "import/cursor.h"

#include <inttypes.h>
#include <string.h>

void vt_cursor_fail(vt_cursor *c, const char *format, ...) {
  vt_assert(c->at <= c->end);
  if (!*c->failure) {
    va_list args;
    va_start(args, format);
    *c->failure =
        vt_status_wrap(vt_errorv(VT_INVALID_ARGUMENT, format, args), "bytecode offset %zu", c->at);
    va_end(args);
  }
  c->at = c->end;
}

uint8_t vt_cursor_byte(vt_cursor *c) {
  if (*c->failure) return 0;
  if (c->at >= c->end) {
    vt_cursor_fail(c, "unexpected end of data");
    return 0;
  }
  return c->file[c->at++];
}

uint64_t vt_cursor_varint(vt_cursor *c) {
  if (*c->failure || c->at >= c->end) {
    vt_cursor_fail(c, "unexpected end of data");
    return 0;
  }
  uint8_t first = c->file[c->at];
  size_t more = first ? (size_t)__builtin_ctz(first) : 8; // bytes after the first
  if (c->end - c->at - 1 < more) {
    vt_cursor_fail(c, "unexpected end of data in a number");
    return 0;
  }
  uint64_t value = 0;
  if (more == 8) {
    for (size_t i = 0; i < 8; i++) value |= (uint64_t)c->file[c->at + 1 + i] << (8 * i);
  } else {
    for (size_t i = 0; i <= more; i++) value |= (uint64_t)c->file[c->at + i] << (8 * i);
    value >>= more + 1;
  }
  c->at += more + 1;
  vt_assert(c->at <= c->end);
  return value;
}

int64_t vt_cursor_svarint(vt_cursor *c) {
  uint64_t u = vt_cursor_varint(c);
  return (int64_t)((u >> 1) ^ (0 - (u & 1)));
}

uint64_t vt_cursor_flagged(vt_cursor *c, bool *out_flag) {
  uint64_t u = vt_cursor_varint(c);
  *out_flag = u & 1;
  return u >> 1;
}

uint32_t vt_cursor_count(vt_cursor *c, size_t bytes_each) {
  vt_assert(bytes_each >= 1);
  uint64_t n = vt_cursor_varint(c);
  size_t left = c->end - c->at;
  if (n > left / bytes_each || n > UINT32_MAX) {
    vt_cursor_fail(c, "count %" PRIu64 " is more than the %zu bytes left can hold", n, left);
    return 0;
  }
  return (uint32_t)n;
}

uint32_t vt_cursor_index(vt_cursor *c, uint32_t limit, const char *what) {
  uint64_t n = vt_cursor_varint(c);
  if (n < limit) return (uint32_t)n;
  vt_cursor_fail(c, "%s number %" PRIu64 " of %" PRIu32, what, n, limit);
  return 0;
}

vt_bytes vt_cursor_bytes(vt_cursor *c, uint64_t size) {
  if (*c->failure || size > c->end - c->at) {
    vt_cursor_fail(c, "%" PRIu64 " bytes wanted, %zu left", size, c->end - c->at);
    return (vt_bytes){0};
  }
  vt_bytes bytes = {c->file + c->at, (size_t)size};
  c->at += (size_t)size;
  return bytes;
}

vt_bytes vt_cursor_blob(vt_cursor *c) {
  uint64_t size = vt_cursor_varint(c);
  return vt_cursor_bytes(c, size);
}

const char *vt_cursor_cstring(vt_cursor *c) {
  if (*c->failure) return "";
  const uint8_t *start = c->file + c->at;
  const uint8_t *nul = c->at < c->end ? memchr(start, 0, c->end - c->at) : NULL;
  if (!nul) {
    vt_cursor_fail(c, "unterminated text");
    return "";
  }
  c->at += (size_t)(nul - start) + 1;
  return (const char *)start;
}

void vt_cursor_align(vt_cursor *c, uint64_t alignment) {
  if (!alignment || alignment & (alignment - 1) || alignment > (1u << 24)) {
    vt_cursor_fail(c, "alignment %" PRIu64, alignment);
    return;
  }
  while (c->at & (alignment - 1)) {
    if (vt_cursor_byte(c) != 0xCB) {
      vt_cursor_fail(c, "bad padding byte");
      return;
    }
  }
}

uint64_t vt_cursor_bits(vt_cursor *c, uint32_t bits) {
  if (bits <= 8) return vt_cursor_byte(c);
  uint64_t value;
  if (bits <= 64) {
    value = (uint64_t)vt_cursor_svarint(c);
  } else {
    uint32_t words = vt_cursor_count(c, 1);
    value = words ? (uint64_t)vt_cursor_svarint(c) : 0;
    for (uint32_t i = 1; i < words; i++) (void)vt_cursor_svarint(c);
  }
  return bits >= 64 ? value : value & (((uint64_t)1 << bits) - 1);
}
