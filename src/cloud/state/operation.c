// SPDX-License-Identifier: Apache-2.0
// operation.c - google.longrunning.Operation over the `operations` table, and its four calls.
#include "base/check.h"
#include "cloud/state/operation.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/handlers.h"
#include "cloud/store/json.h"
#include "cloud/store/row.h"

vt_status vt_operation_create(vt_cloud *cloud, vt_arena *arena, const vt_operation_start *start,
                              const char **out_name) {
  char hex[40];
  int64_t now = vt_cloud_now(cloud), order;
  vt_cloud_random_hex(hex, 29);
  VT_TRY(vt_cloud_next(cloud, "operations", &order));
  *out_name = vt_arena_printf(arena, "operation-%lld-%.13s-%.8s-%.8s", (long long)(now / 1000000),
                              hex, hex + 13, hex + 21);
  const vt_operations_row row = {.name = *out_name,
                                 .project = start->project,
                                 .zone = start->zone,
                                 .verb = start->verb,
                                 .target = start->target,
                                 .api = start->api_name,
                                 .node = start->node,
                                 .request_id = start->request_id,
                                 .caller = start->caller,
                                 .created_ns = now};
  return vt_row_insert(cloud->store, operations, &row);
}

vt_status vt_operation_finish(vt_cloud *cloud, const char *name, json_t *error, json_t *response) {
  vt_assert(vt_store_in_transaction(cloud->store) && !(error && response));
  if (!error && !response)
    response = json_pack("{s:s}", "@type", "type.googleapis.com/google.protobuf.Empty");
  char *error_text = error ? vt_json_text(error, JSON_COMPACT) : NULL;
  char *response_text = response ? vt_json_text(response, JSON_COMPACT) : NULL;
  json_decref(error);
  json_decref(response);
  vt_status st = vt_store_run(
      cloud->store, NULL,
      "UPDATE operations SET done = 1, ended_ns = ?, error = ?, response = ? WHERE name = ? "
      "AND done = 0",
      "isss", vt_cloud_now(cloud), error_text, response_text, name);
  vt_memory_free(error_text);
  vt_memory_free(response_text);
  return st;
}

static json_t *view(const vt_operations_row *o) {
  char name[512], type[96], created[40], ended[40];
  snprintf(name, sizeof name, "projects/%s/locations/%s/operations/%s", o->project, o->zone,
           o->name);
  snprintf(type, sizeof type, "type.googleapis.com/google.cloud.tpu.%s.OperationMetadata", o->api);
  vt_time_format(o->created_ns, created);
  json_t *metadata = json_pack("{s:s, s:s, s:s, s:s, s:b, s:s}", "@type", type, "createTime",
                               created, "target", o->target, "verb", o->verb, "cancelRequested",
                               (int)o->cancel, "apiVersion", o->api);
  if (o->done) {
    vt_time_format(o->ended_ns, ended);
    json_object_set_new(metadata, "endTime", json_string(ended));
  }
  json_t *reply =
      json_pack("{s:s, s:o, s:b}", "name", name, "metadata", metadata, "done", (int)o->done);
  if (o->done && o->error) json_object_set_new(reply, "error", json_loads(o->error, 0, NULL));
  if (o->done && !o->error && o->response)
    json_object_set_new(reply, "response", json_loads(o->response, 0, NULL));
  return reply;
}

vt_status vt_operation_view(vt_cloud *cloud, const char *name, json_t **out_json) {
  vt_arena arena = {0};
  vt_operations_row o;
  bool found;
  *out_json = NULL;
  vt_status st = vt_row_load(cloud->store, &arena, &vt_table_operations, &o, &found,
                             "WHERE name = ?", "s", name);
  if (!st && found) *out_json = view(&o);
  if (!st && !found) st = vt_error(VT_NOT_FOUND, "Operation '%s' was not found", name);
  vt_arena_free(&arena);
  return st;
}

vt_status vt_operation_reply(vt_call *call, const char *name) {
  json_decref(call->reply);
  return vt_operation_view(call->cloud, name, &call->reply);
}

// --- request ids ---------------------------------------------------------------------------------

static void put_digest(EVP_MD_CTX *digest, char out_hex[33]) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  EVP_DigestFinal_ex(digest, bytes, NULL);
  for (size_t i = 0; i < 16; i++) snprintf(out_hex + 2 * i, 3, "%02x", bytes[i]);
}

static void add_text(EVP_MD_CTX *digest, const char *text) {
  EVP_DigestUpdate(digest, text, strlen(text) + 1);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const vt_pair *)a)->name, ((const vt_pair *)b)->name);
}

// A request id is scoped to one method and resource: `out_key` identifies these, `out_rest` the
// rest of the request (other parameters and the body, with names in any order).
static void digest_request(vt_call *call, const char *id, char out_key[33], char out_rest[33]) {
  // The reply's format and the caller's credentials are not part of the request.
  static const char *const apart[] = {"requestId", "alt",          "$alt",        "prettyPrint",
                                      "fields",    "access_token", "oauth_token", "key"};
  EVP_MD_CTX *digest = EVP_MD_CTX_new();
  EVP_DigestInit_ex(digest, EVP_sha256(), NULL);
  add_text(digest, call->method);
  add_text(digest, call->route->path);
  for (size_t i = 0; i < call->params.size; i++) add_text(digest, call->params.data[i].value);
  add_text(digest, id);
  put_digest(digest, out_key);
  EVP_DigestInit_ex(digest, EVP_sha256(), NULL);
  size_t count = call->query.size;
  vt_pair *query = vt_arena_push(&call->arena, (count + 1) * sizeof *query);
  for (size_t i = 0; i < count; i++) query[i] = call->query.data[i];
  qsort(query, count, sizeof *query, by_name);
  for (size_t i = 0; i < count; i++) {
    bool skip = false;
    for (size_t j = 0; j < sizeof apart / sizeof *apart; j++)
      skip |= strcmp(query[i].name, apart[j]) == 0;
    if (skip) continue;
    add_text(digest, query[i].name);
    add_text(digest, query[i].value);
  }
  char *body = call->body ? vt_json_text(call->body, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  add_text(digest, body ? body : "");
  vt_memory_free(body);
  put_digest(digest, out_rest);
  EVP_MD_CTX_free(digest);
}

// The request id stored in an operation's row: key and rest, 64 hexadecimal digits, so that every
// collation sorts them alike; "" for a call without one.
static const char *request_key(vt_call *call, char out_key[33]) {
  const char *id = vt_call_query(call, "requestId");
  char rest[33];
  if (!id || !*id) return "";
  digest_request(call, id, out_key, rest);
  return vt_arena_printf(&call->arena, "%s%s", out_key, rest);
}

vt_status vt_operation_replay(vt_call *call, bool *out_replayed) {
  const char *id = vt_call_query(call, "requestId"), *name = "", *known = "";
  char key[33];
  *out_replayed = false;
  if (!id || !*id) return VT_OK;
  if (strlen(id) > 64) return vt_error(VT_INVALID_ARGUMENT, "Invalid value at 'request_id'");
  const char *full = request_key(call, key);
  vt_rows *rows;
  VT_TRY(vt_store_query(
      call->cloud->store, &rows,
      "SELECT name, request_id FROM operations WHERE project = ? AND request_id >= ? AND "
      "request_id <= ? AND caller = ? LIMIT 1",
      "ssss", call->project,
      vt_arena_printf(&call->arena, "%s00000000000000000000000000000000", key),
      vt_arena_printf(&call->arena, "%sffffffffffffffffffffffffffffffff", key), call->caller));
  if (vt_rows_next(rows)) {
    name = vt_arena_copy(&call->arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0)));
    known = vt_arena_copy(&call->arena, vt_rows_text(rows, 1), strlen(vt_rows_text(rows, 1)));
  }
  VT_TRY(vt_rows_end(rows));
  if (!*name) return VT_OK;
  if (strcmp(known, full) != 0)
    return vt_error(VT_INVALID_ARGUMENT,
                    "Invalid value at 'request_id': '%s' was used for a request that says "
                    "something else",
                    id);
  *out_replayed = true;
  return vt_operation_reply(call, name);
}

vt_status vt_operation_for_call(vt_call *call, const char *verb, const char *target, int64_t node,
                                const char **out_name) {
  char key[33];
  vt_operation_start start = {call->project,
                              vt_call_param(call, "zone"),
                              call->api_name,
                              call->caller,
                              request_key(call, key),
                              verb,
                              target,
                              node};
  return vt_operation_create(call->cloud, &call->arena, &start, out_name);
}

vt_status vt_operation_open_of(vt_cloud *cloud, vt_arena *arena, int64_t node, const char *verb,
                               const char **out_name, const char **out_api) {
  vt_rows *rows;
  *out_name = *out_api = "";
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT name, api FROM operations WHERE done = 0 AND node = ? AND (? = '' "
                        "OR verb = ?) ORDER BY "
                        "created_ns, name LIMIT 1",
                        "iss", node, verb, verb));
  if (vt_rows_next(rows)) {
    *out_name = vt_arena_copy(arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0)));
    *out_api = vt_arena_copy(arena, vt_rows_text(rows, 1), strlen(vt_rows_text(rows, 1)));
  }
  return vt_rows_end(rows);
}

// --- calls ---------------------------------------------------------------------------------------

vt_status vt_operations_list(vt_call *call) {
  vt_page page;
  VT_TRY(vt_call_page(call, 500, 1000, &page));
  const char *filter = vt_call_query(call, "filter");
  int done = -1; // the one filter clients send: done=true or done=false
  if (filter && *filter) {
    if (strcmp(filter, "done=true") == 0 || strcmp(filter, "done = true") == 0)
      done = 1;
    else if (strcmp(filter, "done=false") == 0 || strcmp(filter, "done = false") == 0)
      done = 0;
    else
      return vt_error(VT_INVALID_ARGUMENT,
                      "Invalid filter '%s': only done=true and done=false are understood", filter);
  }
  vt_rows *rows;
  VT_TRY(vt_row_select(
      call->cloud->store, &rows, &vt_table_operations,
      "WHERE project = ? AND (? = '-' OR zone = ?) AND (zone, name) > (?, ?) AND (? = -1 OR done = "
      "?) ORDER BY zone, name LIMIT ?",
      "sssssiii", call->project, vt_call_param(call, "zone"), vt_call_param(call, "zone"),
      page.after_zone, page.after, (int64_t)done, (int64_t)done, page.limit + 1));
  json_t *list = json_array();
  const char *token = NULL;
  vt_operations_row o = {.zone = "", .name = ""};
  while (vt_rows_next(rows)) {
    if ((int64_t)json_array_size(list) == page.limit) {
      token = vt_call_page_token(call, o.zone, o.name);
      break;
    }
    vt_row_read(rows, &vt_table_operations, &call->arena, &o);
    json_array_append_new(list, view(&o));
  }
  call->reply = json_pack("{s:o}", "operations", list);
  if (token) json_object_set_new(call->reply, "nextPageToken", json_string(token));
  return vt_rows_end(rows);
}

static vt_status check_mine(vt_call *call) {
  int64_t exists;
  const char *name = vt_call_param(call, "operation");
  VT_TRY(vt_store_int(call->cloud->store, &exists, 0,
                      "SELECT 1 FROM operations WHERE name = ? AND project = ? AND zone = ?", "sss",
                      name, call->project, vt_call_param(call, "zone")));
  return exists ? VT_OK : vt_call_not_found(call, vt_call_name(call, "operations", name));
}

vt_status vt_operations_get(vt_call *call) {
  VT_TRY(check_mine(call));
  return vt_operation_reply(call, vt_call_param(call, "operation"));
}

vt_status vt_operations_cancel(vt_call *call) {
  VT_TRY(check_mine(call));
  call->reply = json_object();
  return vt_store_run(call->cloud->store, NULL,
                      "UPDATE operations SET cancel = 1 WHERE name = ? AND done = 0", "s",
                      vt_call_param(call, "operation"));
}

vt_status vt_operations_delete(vt_call *call) {
  VT_TRY(check_mine(call));
  int64_t changed;
  VT_TRY(vt_store_run(call->cloud->store, &changed,
                      "DELETE FROM operations WHERE name = ? AND done = 1", "s",
                      vt_call_param(call, "operation")));
  if (!changed) return vt_error(VT_FAILED_PRECONDITION, "The operation is not done.");
  call->reply = json_object();
  return VT_OK;
}
