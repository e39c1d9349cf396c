// SPDX-License-Identifier: Apache-2.0
// mosaic_config.c - the backend_config of a kernel's call: JSON with the kernel as base64.
//
// Fields that only guide a compiler are skipped; those that change what a kernel means or ask for
// what is not here are errors. The JSON is read once from front to back; nesting is limited.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mosaic/mosaic_ir.h"

enum { MAX_DEPTH = 16 };

typedef struct reader {
  const char *at, *end;
  vt_arena *arena;
  vt_mconfig *config;
  vt_string body; // base64
  bool has_body;
  vt_status st;
} reader;

static void fail(reader *r, const char *what) {
  if (!r->st)
    r->st = vt_error(VT_INVALID_ARGUMENT, "backend_config: %s, %zu bytes before its end", what,
                     (size_t)(r->end - r->at));
  r->at = r->end;
}

static char peek(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
    r->at++;
  return r->at < r->end ? *r->at : '\0';
}

static bool take(reader *r, char c) {
  if (peek(r) != c) return false;
  r->at++;
  return true;
}

// Escapes are kept as written: nothing that matters here has any.
static vt_string read_string(reader *r) {
  if (!take(r, '"')) {
    fail(r, "a string was expected");
    return (vt_string){"", 0};
  }
  const char *start = r->at;
  while (r->at < r->end && *r->at != '"') r->at += *r->at == '\\' && r->end - r->at > 1 ? 2 : 1;
  if (r->at >= r->end) {
    fail(r, "a string without an end");
    return (vt_string){"", 0};
  }
  return (vt_string){start, (size_t)(r->at++ - start)};
}

static bool same(vt_string s, const char *text) {
  return s.size == strlen(text) && !memcmp(s.data, text, s.size);
}

static void read_object(reader *r, int depth, void (*field)(reader *r, vt_string name, int depth));

static void skip_field(reader *r, vt_string name, int depth);

static void skip_value(reader *r, int depth) {
  char c = peek(r);
  if (depth > MAX_DEPTH) {
    fail(r, "nested too deeply");
  } else if (c == '"') {
    (void)read_string(r);
  } else if (c == '{') {
    read_object(r, depth + 1, skip_field);
  } else if (take(r, '[')) {
    if (take(r, ']')) return;
    do skip_value(r, depth + 1);
    while (take(r, ','));
    if (!take(r, ']')) fail(r, "']' was expected");
  } else {
    const char *start = r->at;
    while (r->at < r->end && (strchr("+-.", *r->at) || (*r->at >= '0' && *r->at <= '9') ||
                              (*r->at >= 'a' && *r->at <= 'z') || *r->at == 'E'))
      r->at++;
    if (r->at == start) fail(r, "a value was expected");
  }
}

static void skip_field(reader *r, vt_string name, int depth) {
  (void)name;
  skip_value(r, depth);
}

static void read_object(reader *r, int depth, void (*field)(reader *r, vt_string name, int depth)) {
  if (!take(r, '{')) {
    fail(r, "'{' was expected");
    return;
  }
  if (take(r, '}')) return;
  do {
    vt_string name = read_string(r);
    if (!take(r, ':')) fail(r, "':' was expected");
    if (r->st) return;
    field(r, name, depth);
  } while (!r->st && take(r, ','));
  if (!r->st && !take(r, '}')) fail(r, "'}' was expected");
}

static bool read_bool(reader *r) {
  (void)peek(r);
  bool value = r->end - r->at >= 4 && !memcmp(r->at, "true", 4);
  if (!value && (r->end - r->at < 5 || memcmp(r->at, "false", 5) != 0)) {
    fail(r, "true or false was expected");
    return false;
  }
  r->at += value ? 4 : 5;
  return value;
}

static int64_t read_number(reader *r) {
  int64_t value = 0;
  bool any = false;
  for (char c = peek(r); c >= '0' && c <= '9'; c = r->at < r->end ? *r->at : '\0') {
    if (value > INT32_MAX) fail(r, "a smaller number was expected");
    value = value * 10 + (c - '0');
    any = true;
    if (r->at < r->end) r->at++;
  }
  if (!any) fail(r, "a number was expected");
  return value;
}

// The user's guess: any number, of which a negative one says nothing.
static void cost_field(reader *r, vt_string name, int depth) {
  char text[40] = "";
  (void)peek(r);
  const char *start = r->at;
  skip_value(r, depth + 1);
  snprintf(text, sizeof text, "%.*s", (int)(r->at - start < 39 ? r->at - start : 39), start);
  double value = fmin(fmax(strtod(text, NULL), 0), 1e30);
  if (same(name, "flops"))
    r->config->flops = value;
  else if (same(name, "transcendentals"))
    r->config->transcendentals = value;
  else if (same(name, "bytes_accessed"))
    r->config->bytes = value;
}

static void call_field(reader *r, vt_string name, int depth) {
  if (same(name, "body")) {
    r->body = read_string(r);
    r->has_body = true;
  } else if (same(name, "has_communication")) {
    r->config->has_communication = read_bool(r);
  } else if (same(name, "disable_bounds_checks")) {
    r->config->disable_bounds_checks = read_bool(r);
  } else if (same(name, "disable_semaphore_checks")) {
    r->config->disable_semaphore_checks = read_bool(r);
  } else if (same(name, "collective_id")) {
    r->config->collective_id = read_number(r);
  } else if (same(name, "internal_scratch_in_bytes")) {
    r->config->scratch = read_number(r);
  } else if (same(name, "cost_estimate")) {
    r->config->says = true;
    read_object(r, depth + 1, cost_field);
  } else if (same(name, "serialization_format")) {
    int64_t format = read_number(r);
    if (!r->st && format != 1)
      r->st = vt_error(VT_UNIMPLEMENTED, "serialization format %" PRId64 " of a kernel", format);
  } else if (same(name, "needs_hlo_passes")) {
    if (read_bool(r) && !r->st)
      r->st = vt_error(VT_UNIMPLEMENTED, "a kernel that holds StableHLO ops is not supported");
  } else {
    skip_value(r, depth + 1);
  }
}

// [{"memory_space": 1, "offset": 0, "size": N}]: the limit of VMEM that the program sets.
static void memory_field(reader *r, vt_string name, int depth) {
  if (same(name, "size"))
    r->config->vmem_limit = read_number(r);
  else
    skip_value(r, depth + 1);
}

static void read_memory(reader *r, int depth) {
  if (!take(r, '[')) fail(r, "'[' was expected");
  if (r->st || take(r, ']')) return;
  do read_object(r, depth + 1, memory_field);
  while (take(r, ','));
  if (!take(r, ']')) fail(r, "']' was expected");
}

static void top_field(reader *r, vt_string name, int depth) {
  if (same(name, "custom_call_config")) {
    read_object(r, depth + 1, call_field);
  } else if (same(name, "scoped_memory_configs")) {
    read_memory(r, depth);
  } else if (same(name, "device_type")) {
    vt_string device = read_string(r);
    if (!r->st && same(device, "DEVICE_TYPE_SPARSECORE"))
      r->st = vt_error(VT_UNIMPLEMENTED, "a SparseCore kernel is not supported");
  } else {
    skip_value(r, depth + 1);
  }
}

static int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static vt_status decode(vt_string text, vt_arena *arena, vt_bytes *out) {
  size_t n = text.size;
  while (n && text.size - n < 2 && text.data[n - 1] == '=') n--;
  uint8_t *bytes = vt_arena_push(arena, n / 4 * 3 + 3);
  size_t size = 0;
  uint32_t held = 0;
  for (size_t i = 0; i < n; i++) {
    int d = digit(text.data[i]);
    if (d < 0) return vt_error(VT_INVALID_ARGUMENT, "backend_config: body is not base64");
    held = held << 6 | (uint32_t)d;
    if (i % 4) bytes[size++] = (uint8_t)(held >> (6 - 2 * (i % 4)));
  }
  *out = (vt_bytes){bytes, size};
  return VT_OK;
}

vt_status vt_mosaic_config(vt_string text, vt_arena *arena, vt_mconfig *out_config,
                           vt_bytes *out_body) {
  *out_config = (vt_mconfig){.collective_id = -1};
  reader r = {.at = text.data, .end = text.data + text.size, .arena = arena, .config = out_config};
  read_object(&r, 0, top_field);
  if (!r.st && peek(&r)) fail(&r, "something follows the object");
  if (!r.st && !r.has_body) fail(&r, "no body");
  if (r.st) return r.st;
  return decode(r.body, arena, out_body);
}
