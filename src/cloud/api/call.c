// SPDX-License-Identifier: Apache-2.0
// call.c - the life cycle of a vt_call, its lookups, error bodies, pages and names.
#include "cloud/api/call.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "cloud/api/check.h"
#include "cloud/store/json.h"

void vt_call_init(vt_call *call, vt_cloud *cloud, const char *method, const char *path) {
  memset(call, 0, sizeof *call);
  call->cloud = cloud;
  call->method = method;
  call->path = vt_arena_copy(&call->arena, path, strlen(path));
  call->api_name = "";
  call->caller = call->caller_role = call->project = call->peer = call->credential = "";
  call->status = 200;
}

void vt_call_fini(vt_call *call) {
  if (call->upgrade.drop) call->upgrade.drop(call->upgrade.context);
  json_decref(call->body);
  json_decref(call->reply);
  json_decref(call->details);
  vt_text_free(&call->raw);
  vt_arena_free(&call->arena);
}

void vt_call_clear_reply(vt_call *call) {
  if (call->upgrade.drop) call->upgrade.drop(call->upgrade.context);
  call->upgrade = (vt_upgrade){0};
  json_decref(call->reply);
  json_decref(call->details);
  call->reply = call->details = NULL;
  vt_text_free(&call->raw);
  call->reply_headers.size = 0;
  call->content_type = NULL;
  call->status = 200;
  call->error_status = 0;
}

void vt_call_add_header(vt_call *call, const char *name, const char *value) {
  char *lower = vt_arena_copy(&call->arena, name, strlen(name));
  for (char *p = lower; *p; p++)
    if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
  vt_pair pair = {lower, vt_arena_copy(&call->arena, value, strlen(value))};
  vt_array_push_in(&call->arena, &call->headers, pair);
}

static const char *find_pair(const vt_pair *pairs, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(pairs[i].name, name) == 0) return pairs[i].value;
  return NULL;
}

const char *vt_call_param(const vt_call *call, const char *name) {
  const char *value = find_pair(call->params.data, call->params.size, name);
  return value ? value : "";
}

const char *vt_call_query(const vt_call *call, const char *name) {
  return find_pair(call->query.data, call->query.size, name);
}

const char *vt_call_header(const vt_call *call, const char *name) {
  return find_pair(call->headers.data, call->headers.size, name);
}

bool vt_call_flag(const vt_call *call, const char *name) {
  const char *value = vt_call_query(call, name);
  return value && (strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0);
}

bool vt_call_pretty(const vt_call *call) {
  const char *pretty = vt_call_query(call, "prettyPrint");
  return !pretty || strcasecmp(pretty, "false") != 0;
}

bool vt_call_enums_as_numbers(const vt_call *call) {
  const char *alt = vt_call_query(call, "$alt");
  return alt && strstr(alt, "enum-encoding=int");
}

void vt_call_reply_header(vt_call *call, const char *name, const char *value) {
  vt_pair pair = {vt_arena_copy(&call->arena, name, strlen(name)),
                  vt_arena_copy(&call->arena, value, strlen(value))};
  vt_array_push_in(&call->arena, &call->reply_headers, pair);
}

const char *vt_call_base_url(vt_call *call) {
  const char *host = vt_call_header(call, "host");
  if (host && !vt_text_is_good(host, strlen(host))) host = NULL;
  return vt_arena_printf(&call->arena, "%s://%s", call->secure ? "https" : "http",
                         host ? host : "localhost");
}

const char *vt_call_name(vt_call *call, const char *collection, const char *id) {
  const char *zone = vt_call_param(call, "zone");
  if (!id) return vt_arena_printf(&call->arena, "projects/%s/locations/%s", call->project, zone);
  return vt_arena_printf(&call->arena, "projects/%s/locations/%s/%s/%s", call->project, zone,
                         collection, id);
}

vt_status vt_call_integer(const vt_call *call, const char *name, int64_t min, int64_t max,
                          int64_t otherwise, int64_t *out_value) {
  const json_t *value = json_object_get(call->body, name);
  *out_value = otherwise;
  if (!value || json_is_null(value)) return VT_OK;
  if (!json_is_string(value) && vt_json_integer(value, out_value) && *out_value >= min &&
      *out_value <= max)
    return VT_OK;
  return vt_error(VT_INVALID_ARGUMENT, "%s has to be a whole number from %lld to %lld", name,
                  (long long)min, (long long)max);
}

// --- errors --------------------------------------------------------------------------------------

int vt_code_to_http(vt_code code) {
  switch (code) {
  case VT_INVALID_ARGUMENT:
  case VT_FAILED_PRECONDITION:
  case VT_OUT_OF_RANGE:
    return 400;
  case VT_UNAUTHENTICATED:
    return 401;
  case VT_PERMISSION_DENIED:
    return 403;
  case VT_NOT_FOUND:
    return 404;
  case VT_ALREADY_EXISTS:
  case VT_ABORTED:
    return 409;
  case VT_RESOURCE_EXHAUSTED:
    return 429;
  case VT_CANCELLED:
    return 499;
  case VT_UNIMPLEMENTED:
    return 501;
  case VT_UNAVAILABLE:
    return 503;
  case VT_DEADLINE_EXCEEDED:
    return 504;
  default:
    return 500;
  }
}

void vt_call_add_detail(vt_call *call, json_t *detail) {
  if (!call->details) call->details = json_array();
  json_array_append_new(call->details, detail);
}

static void add_resource(vt_call *call, const char *resource) {
  vt_call_add_detail(call,
                     json_pack("{s:s, s:s}", "@type", "type.googleapis.com/google.rpc.ResourceInfo",
                               "resourceName", resource));
}

vt_status vt_call_not_found(vt_call *call, const char *resource) {
  add_resource(call, resource);
  return vt_error(VT_NOT_FOUND, "Resource '%s' was not found", resource);
}

vt_status vt_call_exists(vt_call *call, const char *resource) {
  add_resource(call, resource);
  return vt_error(VT_ALREADY_EXISTS, "Resource '%s' already exists", resource);
}

vt_status vt_call_denied(vt_call *call, const char *permission, const char *resource) {
  vt_call_add_detail(call, json_pack("{s:s, s:s, s:s, s:{s:s, s:s}}", "@type",
                                     "type.googleapis.com/google.rpc.ErrorInfo", "reason",
                                     "IAM_PERMISSION_DENIED", "domain", "iam.googleapis.com",
                                     "metadata", "permission", permission, "resource", resource));
  return vt_error(VT_PERMISSION_DENIED, "Permission '%s' denied on '%s'", permission, resource);
}

json_t *vt_rpc_status(vt_code code, const char *message) {
  return json_pack("{s:i, s:s}", "code", (int)code, "message", message);
}

void vt_error_id(const char *reason, char out_text[24]) {
  snprintf(out_text, 24, "0x%" PRIx64, vt_hash_bytes(reason, strlen(reason), 0));
}

// --- pages ---------------------------------------------------------------------------------------

bool vt_call_all_zones(const vt_call *call) {
  return strcmp(vt_call_param(call, "zone"), "-") == 0;
}

vt_status vt_call_page(vt_call *call, int64_t default_size, int64_t max_size, vt_page *out_page) {
  const char *size = vt_call_query(call, "pageSize"), *token = vt_call_query(call, "pageToken");
  out_page->limit = default_size;
  out_page->after_zone = out_page->after = "";
  if (size && *size) {
    int64_t value;
    if (!vt_integer_parse(size, &value) || value > INT32_MAX || value < INT32_MIN)
      return vt_error(VT_INVALID_ARGUMENT, "Invalid value at 'page_size' (TYPE_INT32), \"%s\"",
                      size);
    if (value < 0)
      return vt_error(VT_INVALID_ARGUMENT, "The page size must not be negative: %s", size);
    if (value > 0) out_page->limit = value > max_size ? max_size : value;
  }
  if (!token || !*token) return VT_OK;
  size_t n = strlen(token);
  if (n > 1024 || n % 4) return vt_error(VT_INVALID_ARGUMENT, "Invalid value at 'page_token'");
  char *plain = vt_arena_push(&call->arena, n + 1), *fixed = vt_arena_copy(&call->arena, token, n);
  for (char *p = fixed; *p; p++) *p = *p == '-' ? '+' : *p == '_' ? '/' : *p;
  int got = EVP_DecodeBlock((unsigned char *)plain, (const unsigned char *)fixed, (int)n);
  char *slash = got > 0 ? strchr(plain, '\n') : NULL;
  if (!slash) return vt_error(VT_INVALID_ARGUMENT, "Invalid value at 'page_token'");
  *slash = 0;
  out_page->after_zone = plain;
  out_page->after = slash + 1;
  return VT_OK;
}

const char *vt_call_page_token(vt_call *call, const char *zone, const char *id) {
  const char *plain = vt_arena_printf(&call->arena, "%s\n%s", zone, id);
  size_t n = strlen(plain);
  char *out = vt_arena_push(&call->arena, n * 4 / 3 + 8);
  EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)plain, (int)n);
  for (char *p = out; *p; p++) *p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
  return out;
}

// --- rendering -----------------------------------------------------------------------------------

bool vt_reply_header_at(size_t index, bool tls, vt_pair *out_header) {
  static const struct {
    bool tls;
    vt_pair header;
  } rows[] = {
#define ANY                       false
#define TLS                       true
#define HEADER(over, name, value) {over, {name, value}},
#include "cloud/api/reply_headers.def"
#undef HEADER
#undef ANY
#undef TLS
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if ((rows[i].tls && !tls) || index--) continue;
    *out_header = rows[i].header;
    return true;
  }
  return false;
}

static void put_browser_headers(vt_call *call) {
  size_t own = call->reply_headers.size;
  vt_pair pair;
  for (size_t i = 0; vt_reply_header_at(i, call->secure, &pair); i++)
    if (!find_pair(call->reply_headers.data, own, pair.name))
      vt_array_push_in(&call->arena, &call->reply_headers, pair);
}

void vt_call_render(vt_call *call) {
  put_browser_headers(call);
  if (call->reply && !call->raw.size) {
    size_t flags = vt_call_pretty(call) ? JSON_INDENT(2) : JSON_COMPACT;
    char *text = vt_json_text(call->reply, flags | JSON_ENCODE_ANY);
    if (text) vt_text_put(&call->raw, text);
    vt_text_put(&call->raw, "\n");
    vt_memory_free(text);
    if (!call->content_type) call->content_type = VT_CALL_JSON;
  }
  if (!call->content_type) call->content_type = "text/plain; charset=UTF-8";
  if (call->status != 200 || strcmp(call->method, "GET") != 0) return;
  const char *etag = vt_arena_printf(&call->arena, "\"%016" PRIx64 "\"",
                                     vt_hash_bytes(call->raw.data, call->raw.size, 1));
  vt_call_reply_header(call, "ETag", etag);
  const char *known = vt_call_header(call, "if-none-match");
  if (known && strcmp(known, etag) == 0) {
    call->status = 304;
    vt_text_free(&call->raw);
  }
}
