// SPDX-License-Identifier: Apache-2.0
// call.h - one API call, whatever transport it came over (HTTP/1.1, gRPC, a test): its request and
// its reply.
//
// A transport fills in the request, calls vt_call_run, and sends the reply. Handlers are named by
// routes.def. They run under the cloud's lock, those of changing methods inside a transaction that
// commits when they return VT_OK. Strings are in the call's arena. vt_call_fini releases the call's
// JSON.
#ifndef VT_CLOUD_CALL_H
#define VT_CLOUD_CALL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/text.h"
#include "cloud/api/schema.h"
#include "cloud/store/cloud.h"

typedef struct vt_call vt_call;
struct vt_stream;
typedef vt_status (*vt_handler)(vt_call *call);

typedef struct vt_route {
  const char *method, *path; // "/{v}/projects/{project}/locations/{zone}/nodes/{node}:start"
  unsigned versions;         // of {v}; 0 when the path has none
  vt_handler handler;
  // "tpu.nodes.get"; "@" any identity, "-" no check, "!admin" / "!reviewer" role
  const char *permission;
  const char *service;            // API that the project must have enabled, "" none
  const char *request, *response; // messages of schema.def, "" none or free-form
  const char *query;              // names of its own query parameters, comma separated (discovery)
} vt_route;

typedef struct vt_pair {
  const char *name, *value;
} vt_pair;

// What happens to a connection that a handler has upgraded to a WebSocket (stream.h): `run` in its
// own thread without the cloud's lock, or `drop` when the upgrade fails. Each takes `context`.
typedef struct vt_upgrade {
  void (*run)(void *context, struct vt_stream *stream);
  void (*drop)(void *context);
  void *context;
} vt_upgrade;

// A call that waits for a change of the cloud sets `again`; it is run again from the start when the
// cloud's change count differs from `seen`, or at its deadline. `hurry`: it may not wait any longer
// (its client left, or the server stops). The rest is the handler's, kept between runs.
typedef struct vt_wait {
  bool again, hurry;
  uint64_t seen;
  int64_t until_ns; // of vt_metrics_clock; 0 in the first run
  char tag[24];
} vt_wait;

struct vt_call {
  vt_cloud *cloud;
  vt_arena arena;
  // request
  const char *method, *path;        // path as sent, percent-decoded by segment later
  VT_ARRAY(vt_pair) query, headers; // decoded query; headers with lower-case names
  const char *body_text;
  size_t body_size;
  json_t *body;
  const char *peer; // peer address, for logs and the metadata server
  bool secure;      // came over TLS
  bool malformed;   // the query contains invalid text
  bool wants_json;  // the reply must be `reply`, not bytes: gRPC, field masks
  // resolved by the router
  const vt_route *route;
  vt_api api;
  const char *api_name;     // "v2alpha1"
  VT_ARRAY(vt_pair) params; // of the path
  const char *caller;       // e-mail of the identity, "" for nobody
  const char *caller_role;  // admin, reviewer, user, service
  bool by_cookie;           // identity is a console session
  const char *credential;   // the credential, as vt_token_lives takes it; "" for nobody
  const char *project;      // id of the project in the path, "" none
  int64_t project_number;
  // reply
  int status;       // HTTP
  int error_status; // HTTP status of an error not given by the code (412), 0 = by code
  json_t *reply;    // or
  vt_text raw;      // raw bytes with `content_type`
  const char *content_type;
  json_t *details; // google.rpc details of an error
  VT_ARRAY(vt_pair) reply_headers;
  vt_upgrade upgrade; // status 101; transports without upgrades leave it
  vt_wait wait;       // transports that cannot wait leave it
};

void vt_call_init(vt_call *call, vt_cloud *cloud, const char *method, const char *path);
void vt_call_fini(vt_call *call);
// Clears what a failed handler has put into the reply.
void vt_call_clear_reply(vt_call *call);
// Adds the parameters of "a=b&c=d" to the query; invalid text is left out and marks the call
// malformed.
void vt_call_add_query(vt_call *call, const char *query);
void vt_call_add_header(vt_call *call, const char *name, const char *value);
// Routes, authenticates, authorizes, runs. Always leaves a reply. Takes and releases the cloud's
// lock. A transport makes, runs and renders a call in one attempt (base/memory.h): when memory runs
// out, only `upgrade` is left to drop.
void vt_call_run(vt_call *call);
// The reply as bytes (JSON is serialized once). Adds the headers of reply_headers.def that the
// handler did not set and, to replies of reads, the ETag; if that matches the reply becomes a 304.
void vt_call_render(vt_call *call);

// The rows of reply_headers.def for every reply, whatever the transport; false past the last.
bool vt_reply_header_at(size_t index, bool tls, vt_pair *out_header);

const char *vt_call_param(const vt_call *call, const char *name); // of the path; "" when absent
const char *vt_call_query(const vt_call *call, const char *name); // NULL when absent
const char *vt_call_header(const vt_call *call,
                           const char *name);             // lower-case name; NULL when absent
bool vt_call_flag(const vt_call *call, const char *name); // "true", "True", "1"
bool vt_call_pretty(const vt_call *call);                 // unless prettyPrint=false
bool vt_call_enums_as_numbers(const vt_call *call);       // $alt=json;enum-encoding=int
void vt_call_reply_header(vt_call *call, const char *name, const char *value);
const char *vt_call_base_url(vt_call *call); // "http://host:port" as the client wrote it

// An integer of the body, `otherwise` when absent. errors INVALID_ARGUMENT: not an integer, or
// outside [min, max].
vt_status vt_call_integer(const vt_call *call, const char *name, int64_t min, int64_t max,
                          int64_t otherwise, int64_t *out_value) VT_CHECKED;

// "projects/p/locations/z/nodes/n" of the call's project and {zone}; `id` NULL gives the parent.
const char *vt_call_name(vt_call *call, const char *collection, const char *id);

// Errors with the texts and details clients match on.
vt_status vt_call_not_found(vt_call *call, const char *resource) VT_CHECKED;
vt_status vt_call_exists(vt_call *call, const char *resource) VT_CHECKED;
vt_status vt_call_denied(vt_call *call, const char *permission, const char *resource) VT_CHECKED;
// Appends a google.rpc detail; takes `detail`.
void vt_call_add_detail(vt_call *call, json_t *detail);
int vt_code_to_http(vt_code code);
// The reply to a request whose attempt (base/memory.h) ran out of memory.
#define VT_CALL_NO_MEMORY                                                                          \
  "{\"error\":{\"code\":429,\"message\":\"out of host "                                            \
  "memory\",\"status\":\"RESOURCE_EXHAUSTED\"}}\n"
// {"code":8,"message":"..."} of a google.rpc.Status; new reference.
json_t *vt_rpc_status(vt_code code, const char *message);
// "0x1f2e...", stable for an internal reason, for users to quote.
void vt_error_id(const char *reason, char out_text[24]);

// Pages: limit from pageSize (default and maximum given), the key to start after from pageToken.
typedef struct vt_page {
  int64_t limit;
  const char *after_zone, *after;
} vt_page;
vt_status vt_call_page(vt_call *call, int64_t default_size, int64_t max_size,
                       vt_page *out_page) VT_CHECKED;
// Token for the page after the item (zone, id).
const char *vt_call_page_token(vt_call *call, const char *zone, const char *id);
// "projects/p/locations/-": all zones.
bool vt_call_all_zones(const vt_call *call);

// Routes of routes.def, in order; NULL past the last.
const vt_route *vt_route_at(int index);
// Whether `role` of a project ("roles/tpu.viewer") has `permission`.
bool vt_role_allows(const char *role, const char *permission);

#define VT_CALL_JSON  "application/json; charset=UTF-8"
#define HANDLER(name) vt_status name(vt_call *call) VT_CHECKED

#endif
