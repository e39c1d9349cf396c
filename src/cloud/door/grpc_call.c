// SPDX-License-Identifier: Apache-2.0
// grpc_call.c - maps a gRPC method to its REST call (grpc.def): request message to path, query and
// body, reply JSON to message. Both use the same checks, since it is the same call.
#include <stdio.h>
#include <string.h>

#include "cloud/api/wire.h"
#include "cloud/door/grpc.h"

static const struct rpc {
  const char *service, *method, *request, *verb, *path, *body;
} rpcs[] = {
#define RPC(service, method, request, verb, path, body)                                            \
  {service, method, request, verb, path, body},
#include "cloud/door/grpc.def"
#undef RPC
};

bool vt_grpc_method_at(int index, const char **out_service, const char **out_method,
                       const char **out_request) {
  if (index < 0 || (size_t)index >= sizeof rpcs / sizeof *rpcs) return false;
  *out_service = rpcs[index].service;
  *out_method = rpcs[index].method;
  *out_request = rpcs[index].request;
  return true;
}

// "/google.cloud.tpu.v2.Tpu/GetNode" to its row and version.
static const struct rpc *find(const char *method, char version[16]) {
  char service[128];
  const char *slash = *method == '/' ? strchr(method + 1, '/') : NULL;
  if (!slash || (size_t)(slash - method) > sizeof service) return NULL;
  snprintf(service, sizeof service, "%.*s", (int)(slash - method - 1), method + 1);
  snprintf(version, 16, "v2alpha1"); // operations and locations are the same in all
  const char *name = service;
  if (strncmp(service, "google.cloud.tpu.", 17) == 0) {
    snprintf(version, 16, "%.*s", (int)strcspn(service + 17, "."), service + 17);
    name = strrchr(service, '.') + 1;
  }
  for (size_t i = 0; i < sizeof rpcs / sizeof *rpcs; i++)
    if (strcmp(rpcs[i].service, name) == 0 && strcmp(rpcs[i].method, slash + 1) == 0)
      return &rpcs[i];
  return NULL;
}

static vt_api api_of(const char *version) {
  return strcmp(version, "v1") == 0         ? VT_API_V1
         : strcmp(version, "v1alpha1") == 0 ? VT_API_V1A
         : strcmp(version, "v2") == 0       ? VT_API_V2
                                            : VT_API_V2A;
}

// Resource names keep their slashes; characters that would end a path or begin an escape are
// escaped.
static void put_name(vt_text *out, const char *name) {
  for (; *name; name++) {
    if (strchr("%?#", *name) || (unsigned char)*name <= ' ')
      vt_text_printf(out, "%%%02X", (unsigned char)*name);
    else
      vt_text_put_n(out, name, 1);
  }
}

// Fills in {field} and {field.field}, and removes the used fields from the request.
static void make_path(const struct rpc *rpc, const char *version, json_t *request, vt_text *out) {
  vt_text_printf(out, "/%s", version);
  for (const char *p = rpc->path; *p;) {
    if (*p != '{') {
      vt_text_put_n(out, p++, 1);
      continue;
    }
    char field[64];
    snprintf(field, sizeof field, "%.*s", (int)strcspn(p + 1, "}"), p + 1);
    p = strchr(p, '}') + 1;
    char *dot = strchr(field, '.');
    json_t *in = request;
    if (dot) {
      *dot = 0;
      in = json_object_get(request, field);
    }
    const char *value = json_string_value(json_object_get(in, dot ? dot + 1 : field));
    put_name(out, value && *value ? value : "-");
    json_object_del(in, dot ? dot + 1 : field);
  }
}

static void add_query(vt_call *call, const json_t *request) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)request, key, value) {
    const char *text = json_string_value(value);
    if (json_is_boolean(value)) text = json_is_true(value) ? "true" : "false";
    if (json_is_integer(value))
      text = vt_arena_printf(&call->arena, "%lld", (long long)json_integer_value(value));
    if (!text) continue;
    vt_pair pair = {vt_arena_copy(&call->arena, key, strlen(key)),
                    vt_arena_copy(&call->arena, text, strlen(text))};
    vt_array_push_in(&call->arena, &call->query, pair);
  }
}

static vt_code code_of(const char *name) {
  for (int code = 1; code <= 16; code++)
    if (name && strcmp(vt_code_name((vt_code)code), name) == 0) return (vt_code)code;
  return VT_UNKNOWN;
}

vt_status vt_grpc_unary(vt_call *call, const char *method, const void *bytes, size_t size,
                        vt_text *out_bytes) {
  char version[16];
  const struct rpc *rpc = find(method, version);
  json_t *request;
  vt_text path = {0};
  if (!rpc) return vt_error(VT_UNIMPLEMENTED, "Method not found: %.200s", method);
  VT_TRY(vt_wire_decode(vt_message_find(rpc->request), api_of(version), bytes, size, &request));
  make_path(rpc, version, request, &path);
  call->method = rpc->verb;
  call->wants_json = true;
  call->path = vt_arena_copy(&call->arena, vt_text_string(&path), path.size);
  vt_text_free(&path);
  if (strcmp(rpc->body, "*") == 0) {
    call->body = json_incref(request);
  } else {
    if (*rpc->body) {
      json_t *body = json_object_get(request, rpc->body);
      call->body = body ? json_incref(body) : json_object();
      json_object_del(request, rpc->body);
    }
    add_query(call, request);
  }
  json_decref(request);
  vt_call_run(call);
  const json_t *error = json_object_get(call->reply, "error");
  // A failed operation has an "error" too, but it is a reply.
  if (call->status >= 400)
    return vt_error(code_of(json_string_value(json_object_get(error, "status"))), "%s",
                    json_string_value(json_object_get(error, "message")));
  const vt_message *reply =
      call->route && *call->route->response ? vt_message_find(call->route->response) : NULL;
  if (reply) vt_wire_encode(reply, api_of(version), call->reply, out_bytes);
  return VT_OK;
}
