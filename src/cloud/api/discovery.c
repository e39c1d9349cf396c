// SPDX-License-Identifier: Apache-2.0
// discovery.c - the discovery documents of the four API versions, generated from routes.def and
// schema.def, and the universe descriptor. Client libraries build their methods from these; rootUrl
// is the host in the client's request.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cloud/api/handlers.h"

#define SCOPE "https://www.googleapis.com/auth/cloud-platform"

static json_t *property(const vt_field *f) {
  static const char *const types[] = {"string", "boolean", "integer", "string", "string", "string",
                                      "string", "string",  "object",  "object", "string", NULL};
  static const char *const formats[] = {NULL,
                                        NULL,
                                        "int32",
                                        "int64",
                                        "byte",
                                        "google-datetime",
                                        "google-duration",
                                        "google-fieldmask",
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};
  json_t *p = json_object();
  if (f->kind == VT_FIELD_MSG)
    json_object_set_new(p, "$ref", json_string(f->ref));
  else
    json_object_set_new(p, "type", json_string(types[f->kind]));
  if (f->kind <= VT_FIELD_MSG && formats[f->kind])
    json_object_set_new(p, "format", json_string(formats[f->kind]));
  if (f->kind == VT_FIELD_MAP)
    json_object_set_new(p, "additionalProperties", json_pack("{s:s}", "type", "string"));
  if (f->kind == VT_FIELD_ANY)
    json_object_set_new(p, "additionalProperties", json_pack("{s:s}", "type", "any"));
  if (f->kind == VT_FIELD_ENUM) {
    json_t *names = json_array();
    for (const vt_field *v = vt_enumeration_find(f->ref); v && (v = vt_message_next(v));)
      json_array_append_new(names, json_string(v->name));
    json_object_set_new(p, "enum", names);
  }
  if (f->flags & VT_FIELD_REP) p = json_pack("{s:s, s:o}", "type", "array", "items", p);
  if (f->flags & VT_FIELD_OUT) json_object_set_new(p, "readOnly", json_true());
  return p;
}

static json_t *schemas(unsigned api) {
  json_t *all = json_object();
  const vt_message *m;
  for (int i = 0; (m = vt_message_at(i)); i++) {
    // A field of this version may still refer to a message of another one.
    unsigned shown = m->versions & api ? api : m->versions;
    json_t *properties = json_object();
    for (const vt_field *f = m; (f = vt_message_next(f));)
      if (f->versions & shown) json_object_set_new(properties, f->name, property(f));
    json_object_set_new(
        all, m->name,
        json_pack("{s:s, s:s, s:o}", "id", m->name, "type", "object", "properties", properties));
  }
  return all;
}

static const char *method_name(const vt_route *r) {
  const char *last = strrchr(r->path, '/') + 1, *colon = strchr(last, ':');
  bool item = *last == '{';
  if (colon) return colon + 1;
  if (strcmp(r->method, "POST") == 0) return "create";
  if (strcmp(r->method, "DELETE") == 0) return "delete";
  if (strcmp(r->method, "PATCH") == 0) return "patch";
  return item ? "get" : "list";
}

// "pageSize" is an integer, "force" and "returnPartialSuccess" are booleans, the rest text.
static const char *query_type(const char *name) {
  if (strcmp(name, "pageSize") == 0) return "integer";
  return strcmp(name, "force") == 0 || strcmp(name, "returnPartialSuccess") == 0 ? "boolean"
                                                                                 : "string";
}

// The resource object for a path, creating its parents: projects.locations.nodes.
static json_t *resource_of(json_t *document, const char *path) {
  json_t *at = document;
  for (const char *p = path + 5; *p;) { // after "/{v}/"
    size_t n = strcspn(p, "/");
    char name[64];
    if (*p != '{' && n < sizeof name) {
      memcpy(name, p, n);
      name[n] = 0;
      json_t *resources = json_object_get(at, "resources");
      if (!resources) json_object_set_new(at, "resources", resources = json_object());
      at = json_object_get(resources, name);
      if (!at) json_object_set_new(resources, name, at = json_object());
    }
    p += n + (p[n] == '/');
  }
  return at;
}

static void add_method(vt_call *call, json_t *document, const vt_route *r, const char *version) {
  char query[256], pattern[512] = "^", flat[512], id[256];
  const char *name = method_name(r), *last = strrchr(r->path, '/') + 1, *colon = strchr(last, ':');
  bool item = *last == '{', on_parent = colon && strncmp(colon, ":generate", 9) == 0;
  bool named =
      (item && !on_parent) || strcmp(last, "locations") == 0 || strcmp(last, "operations") == 0;
  const char *parameter = named ? "name" : "parent";
  // The part of the path that is the resource: all of it for items, all but the collection
  // otherwise.
  size_t end = item ? (colon ? (size_t)(colon - r->path) : strlen(r->path))
                    : (size_t)(last - 1 - r->path),
         n = 1;
  for (const char *p = r->path + 5; p < r->path + end;) {
    size_t size = strcspn(p, "/:");
    n += (size_t)snprintf(pattern + n, sizeof pattern - n, "%s%.*s", n > 1 ? "/" : "",
                          *p == '{' ? 5 : (int)size, *p == '{' ? "[^/]+" : p);
    p += size + 1;
  }
  snprintf(pattern + n, sizeof pattern - n, "$");
  json_t *parameters = json_pack("{s:{s:s, s:s, s:b, s:s}}", parameter, "location", "path", "type",
                                 "string", "required", 1, "pattern", pattern);
  snprintf(query, sizeof query, "%s", r->query);
  for (char *save, *q = strtok_r(query, ",", &save); q; q = strtok_r(NULL, ",", &save))
    json_object_set_new(parameters, q,
                        json_pack("{s:s, s:s}", "location", "query", "type", query_type(q)));
  snprintf(flat, sizeof flat, "%s%s", version, r->path + 4);
  snprintf(id, sizeof id, "tpu.projects.locations.%s", name);
  const char *path = vt_arena_printf(&call->arena, "%s/{+%s}%s", version, parameter, r->path + end);
  json_t *method = json_pack("{s:s, s:s, s:s, s:s, s:o, s:[s], s:[s]}", "id", id, "path", path,
                             "flatPath", flat, "httpMethod", r->method, "parameters", parameters,
                             "parameterOrder", parameter, "scopes", SCOPE);
  if (*r->request) json_object_set_new(method, "request", json_pack("{s:s}", "$ref", r->request));
  if (*r->response)
    json_object_set_new(method, "response", json_pack("{s:s}", "$ref", r->response));
  json_t *resource = resource_of(
      document, vt_arena_printf(&call->arena, "%.*s",
                                (int)(colon ? colon - r->path : (long)strlen(r->path)), r->path));
  json_t *methods = json_object_get(resource, "methods");
  if (!methods) json_object_set_new(resource, "methods", methods = json_object());
  json_object_set_new(methods, name, method);
}

static const struct standard {
  const char *name, *type;
} standards[] = {
    {"alt", "string"},          {"fields", "string"},         {"key", "string"},
    {"access_token", "string"}, {"oauth_token", "string"},    {"prettyPrint", "boolean"},
    {"quotaUser", "string"},    {"callback", "string"},       {"$.xgafv", "string"},
    {"uploadType", "string"},   {"upload_protocol", "string"}};

vt_status vt_discovery(vt_call *call) {
  const char *version = vt_call_param(call, "version"), *root;
  if (!*version && vt_call_query(call, "version")) version = vt_call_query(call, "version");
  if (!*version) version = "v2";
  if (strcmp(version, "v2alpha") == 0) version = "v2alpha1";
  unsigned api = strcmp(version, "v1") == 0         ? VT_API_V1
                 : strcmp(version, "v1alpha1") == 0 ? VT_API_V1A
                 : strcmp(version, "v2") == 0       ? VT_API_V2
                 : strcmp(version, "v2alpha1") == 0 ? VT_API_V2A
                                                    : 0;
  if (!api)
    return vt_error(VT_NOT_FOUND,
                    "Discovery document not found for API service: tpu.googleapis.com version: %s",
                    version);
  root = vt_arena_printf(&call->arena, "%s/", vt_call_base_url(call));
  json_t *document =
      json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s}",
                "kind", "discovery#restDescription", "discoveryVersion", "v1", "id",
                vt_arena_printf(&call->arena, "tpu:%s", version), "name", "tpu", "version", version,
                "title", "Cloud TPU API", "canonicalName", "TPU", "protocol", "rest", "rootUrl",
                root, "baseUrl", root, "basePath", "", "servicePath", "", "batchPath", "batch",
                "version_module", 1, "revision", "1");
  json_t *parameters = json_object();
  for (size_t i = 0; i < sizeof standards / sizeof *standards; i++)
    json_object_set_new(parameters, standards[i].name,
                        json_pack("{s:s, s:s}", "type", standards[i].type, "location", "query"));
  json_object_set_new(document, "parameters", parameters);
  json_object_set_new(document, "auth",
                      json_pack("{s:{s:{s:{s:s}}}}", "oauth2", "scopes", SCOPE, "description",
                                "All of your projects"));
  json_object_set_new(document, "schemas", schemas(api));
  const vt_route *r;
  for (int i = 0; (r = vt_route_at(i)); i++)
    if ((r->versions & api) && strncmp(r->path, "/{v}/projects/{project}/locations", 33) == 0)
      add_method(call, document, r, version);
  call->reply = document;
  vt_call_reply_header(call, "Cache-Control", "no-cache"); // the same for everybody; has an ETag
  return VT_OK;
}

vt_status vt_universe(vt_call *call) {
  const char *domain = call->cloud->options.universe;
  call->reply =
      json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "version", "v1", "universeDomain", domain,
                "universeShortName", "vtpu", "projectPrefix", "", "authenticationDomain",
                vt_arena_printf(&call->arena, "auth.%s", domain), "cloudWebDomain",
                vt_arena_printf(&call->arena, "cloud.%s", domain), "state", "primary");
  return VT_OK;
}
