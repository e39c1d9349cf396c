// SPDX-License-Identifier: Apache-2.0
// instance.c - Compute Engine's calls on one instance, for workers by their host names
// (t1v-n-0123abcd-w-0): description, labels, metadata, guest attributes, boot output. Lists of
// instances are empty, as in the real cloud: the machines of TPU VMs are not the project's, and
// launchers that list both would count them twice. Labels and metadata are those of the node.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/control/guest.h"
#include "cloud/door/metadata.h"
#include "cloud/state/node.h"
#include "cloud/state/service_account.h"
#include "cloud/store/json.h"

enum { MAX_OUTPUT = 1 << 20 };

static const char *link_to(vt_call *call, const char *rest) {
  return vt_arena_printf(&call->arena,
                         "https://www.googleapis.com/compute/v1/projects/%s/zones/%s%s",
                         call->project, vt_call_param(call, "zone"), rest);
}

static vt_status find_worker(vt_call *call, vt_node *out_node, int64_t *out_worker) {
  const char *name = vt_call_param(call, "instance"), *dash = strrchr(name, '-');
  int64_t uid = 0;
  vt_rows *rows;
  bool found = false;
  *out_node = (vt_node){0};
  *out_worker = dash ? strtoll(dash + 1, NULL, 10) : -1;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT uid, workers FROM nodes WHERE project = ? AND zone = ?", "ss",
                        call->project, vt_call_param(call, "zone")));
  while (!uid && vt_rows_next(rows)) {
    char own[64];
    vt_metadata_hostname(vt_rows_int(rows, 0), *out_worker, own);
    if (strcmp(own, name) == 0 && *out_worker < vt_rows_int(rows, 1)) uid = vt_rows_int(rows, 0);
  }
  VT_TRY(vt_rows_end(rows));
  if (uid) VT_TRY(vt_node_load_uid(call->cloud, &call->arena, uid, out_node, &found));
  return found ? VT_OK
               : vt_call_not_found(
                     call, vt_arena_printf(&call->arena, "projects/%s/zones/%s/instances/%s",
                                           call->project, vt_call_param(call, "zone"), name));
}

// Changes with the object; whole groups of base64, since clients decode it.
static const char *fingerprint(vt_call *call, const json_t *object) {
  char *text = object ? vt_json_text(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  uint64_t hash = text ? vt_hash_bytes(text, strlen(text), 4) : 0;
  vt_memory_free(text);
  return vt_arena_printf(&call->arena, "vtpu%08" PRIx64, hash & 0xffffffff);
}

static vt_status check_fingerprint(vt_call *call, const char *field, const json_t *object) {
  const char *sent = json_string_value(json_object_get(call->body, field));
  if (!sent || !*sent || strcmp(sent, fingerprint(call, object)) == 0) return VT_OK;
  call->error_status = 412;
  return vt_error(VT_FAILED_PRECONDITION, "Supplied fingerprint does not match current one.");
}

static void reply_done(vt_call *call, const char *verb) {
  char hex[14];
  vt_cloud_random_hex(hex, 13);
  const char *name = vt_arena_printf(&call->arena, "operation-%s", hex);
  call->reply =
      json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s}", "kind", "compute#operation", "name",
                name, "operationType", verb, "status", "DONE", "progress", 100, "zone",
                link_to(call, ""), "targetLink",
                link_to(call, vt_arena_printf(&call->arena, "/instances/%s",
                                              vt_call_param(call, "instance"))),
                "selfLink", link_to(call, vt_arena_printf(&call->arena, "/operations/%s", name)));
}

vt_status vt_instances_aggregated(vt_call *call) {
  call->reply = json_pack("{s:s, s:{}}", "kind", "compute#instanceAggregatedList", "items");
  return VT_OK;
}

vt_status vt_instances_get(vt_call *call) {
  vt_node node;
  int64_t worker;
  char created[40];
  const char *ip, *key;
  json_t *value, *items = json_array();
  vt_status st = find_worker(call, &node, &worker);
  if (!st) st = vt_node_worker_ip(call->cloud, &call->arena, node.uid, worker, &ip);
  if (st) {
    json_decref(items);
    vt_node_fini(&node);
    return st;
  }
  json_t *metadata = json_object_get(node.body, "metadata"),
         *labels = json_object_get(node.body, "labels");
  json_object_foreach(metadata, key, value)
      json_array_append_new(items, json_pack("{s:s, s:O}", "key", key, "value", value));
  vt_time_format(node.created_ns, created);
  bool runs = node.state == VT_NODE_READY || node.state == VT_NODE_REPAIRING;
  call->reply =
      json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:o}, s:s, s:[{s:s, s:s}]}",
                "kind", "compute#instance", "id",
                vt_arena_printf(&call->arena, "%lld", (long long)(node.uid + worker)), "name",
                vt_call_param(call, "instance"), "zone", link_to(call, ""), "selfLink",
                link_to(call, vt_arena_printf(&call->arena, "/instances/%s",
                                              vt_call_param(call, "instance"))),
                "creationTimestamp", created, "status",
                runs                            ? "RUNNING"
                : node.state == VT_NODE_STOPPED ? "TERMINATED"
                                                : "PROVISIONING",
                "metadata", "kind", "compute#metadata", "fingerprint", fingerprint(call, metadata),
                "items", items, "labelFingerprint", fingerprint(call, labels), "networkInterfaces",
                "name", "nic0", "networkIP", ip);
  if (labels) json_object_set(call->reply, "labels", labels);
  vt_node_fini(&node);
  return VT_OK;
}

vt_status vt_instances_set_labels(vt_call *call) {
  vt_node node;
  int64_t worker;
  const json_t *labels = json_object_get(call->body, "labels");
  json_t *clean = NULL, *body = json_pack("{s:O?}", "labels", labels);
  vt_status st = find_worker(call, &node, &worker);
  if (!st) st = check_fingerprint(call, "labelFingerprint", json_object_get(node.body, "labels"));
  if (!st) st = vt_schema_clean(vt_message_find("Node"), VT_API_V2, body, &clean);
  if (!st) {
    json_t *value = json_object_get(clean, "labels");
    json_object_set_new(node.body, "labels", value ? json_incref(value) : json_object());
    st = vt_check_node(node.body);
    if (!st) st = vt_node_save(call->cloud, &node);
  }
  if (!st) reply_done(call, "setLabels");
  json_decref(body);
  json_decref(clean);
  vt_node_fini(&node);
  return st;
}

vt_status vt_instances_set_metadata(vt_call *call) {
  vt_node node;
  int64_t worker;
  json_t *item, *metadata = json_object();
  size_t i;
  vt_status st = find_worker(call, &node, &worker);
  if (!st) st = vt_sa_may_act(call, node.body);
  if (!st) st = check_fingerprint(call, "fingerprint", json_object_get(node.body, "metadata"));
  json_array_foreach(json_object_get(call->body, "items"), i, item) {
    const char *key = json_string_value(json_object_get(item, "key"));
    json_t *value = json_object_get(item, "value");
    if (!st && (!key || !json_is_string(value)))
      st = vt_error(VT_INVALID_ARGUMENT, "Invalid value for field 'items[%zu]'", i);
    if (!st) json_object_set(metadata, key, value);
  }
  if (!st) {
    json_object_set(node.body, "metadata", metadata);
    st = vt_check_node(node.body);
    if (!st) st = vt_node_save(call->cloud, &node);
  }
  if (!st) reply_done(call, "setMetadata");
  json_decref(metadata);
  vt_node_fini(&node);
  return st;
}

// Output of the worker's first processes and its scripts; `start` is an offset in it.
vt_status vt_instances_serial_port(vt_call *call) {
  vt_node node;
  int64_t worker, next = 0;
  vt_text text = {0};
  const char *asked = vt_call_query(call, "start");
  int64_t start = asked ? strtoll(asked, NULL, 10) : 0;
  VT_TRY(find_worker(call, &node, &worker));
  vt_guest_driver *guests = call->cloud->guests;
  if (start < 0) start = 0;
  if (guests->output) next = guests->output(guests, node.uid, worker, &start, MAX_OUTPUT, &text);
  // Any program can have written to it: invalid UTF-8 would break the reply.
  for (size_t i = 0; i < text.size; i++)
    if ((unsigned char)text.data[i] >= 0x80 || !text.data[i]) text.data[i] = '?';
  call->reply = json_pack("{s:s, s:s, s:s, s:s, s:s}", "kind", "compute#serialPortOutput",
                          "contents", vt_text_string(&text), "start",
                          vt_arena_printf(&call->arena, "%lld", (long long)start), "next",
                          vt_arena_printf(&call->arena, "%lld", (long long)next), "selfLink",
                          link_to(call, vt_arena_printf(&call->arena, "/instances/%s/serialPort",
                                                        vt_call_param(call, "instance"))));
  vt_text_free(&text);
  vt_node_fini(&node);
  return VT_OK;
}
