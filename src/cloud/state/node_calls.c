// SPDX-License-Identifier: Apache-2.0
// node_calls.c - the calls on projects.locations.nodes. They write rows and operations only; the
// reconciler makes reality match the rows.
#include <stdio.h>
#include <string.h>

#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/state/billing.h"
#include "cloud/state/disk.h"
#include "cloud/state/node.h"
#include "cloud/state/node_life.h"
#include "cloud/state/operation.h"
#include "cloud/state/scheduler.h"
#include "cloud/state/service_account.h"

// The body as a v2alpha1 Node, new reference in *out_body.
static vt_status clean_node(vt_call *call, const json_t *in, json_t **out_body) {
  json_t *empty = json_object();
  vt_status st = vt_schema_clean(vt_message_find("Node"), call->api, in ? in : empty, out_body);
  json_decref(empty);
  if (st) return st;
  const char *version = json_string_value(json_object_get(*out_body, "tensorflowVersion"));
  if (!(call->api & (VT_API_V1 | VT_API_V1A))) return VT_OK;
  if (!version || !*version) version = "2.12.0";
  // A release number means the image of that release.
  const char *image = strncmp(version, "tpu-", 4) == 0 || strncmp(version, "v2-", 3) == 0
                          ? version
                          : vt_arena_printf(&call->arena, "tpu-vm-tf-%s", version);
  json_object_set_new(*out_body, "runtimeVersion", json_string(image));
  json_object_set_new(*out_body, "tensorflowVersion", json_string(version));
  const char *network = json_string_value(json_object_get(*out_body, "network"));
  if (network)
    json_object_set_new(*out_body, "networkConfig",
                        json_pack("{s:s, s:b}", "network", network, "enableExternalIps", 1));
  return VT_OK;
}

static vt_status check_new(vt_call *call, vt_node *node) {
  int64_t taken;
  json_t *detail = NULL;
  VT_TRY(vt_store_int(call->cloud->store, &taken, 0,
                      "SELECT 1 FROM nodes WHERE project = ? AND zone = ? AND id = ?", "sss",
                      node->project, node->zone, node->id));
  if (taken) return vt_call_exists(call, vt_node_name(&call->arena, node));
  vt_status st = vt_quota_check(call->cloud, node, 1, false, &detail);
  if (detail) vt_call_add_detail(call, detail);
  return st;
}

vt_status vt_nodes_create(vt_call *call) {
  bool replayed;
  vt_node node = {0};
  json_t *body = NULL;
  const char *operation;
  VT_TRY(vt_operation_replay(call, &replayed));
  if (replayed) return VT_OK;
  VT_TRY(clean_node(call, call->body, &body));
  vt_status st =
      vt_node_prepare(call->cloud, &call->arena, call->project, vt_call_param(call, "zone"),
                      vt_call_query(call, "nodeId"), body, &node);
  if (st) goto out;
  node.api = call->api_name;
  node.creator = call->caller;
  const char *reservation = json_string_value(
      json_object_get(json_object_get(body, "schedulingConfig"), "reservationName"));
  const char *slash = reservation ? strrchr(reservation, '/') : NULL;
  if (reservation) node.reservation = slash ? slash + 1 : reservation;
  VT_TRY_OUT(vt_sa_may_act(call, body));
  VT_TRY_OUT(vt_bill_may_begin(call->cloud, call->project));
  VT_TRY_OUT(check_new(call, &node));
  VT_TRY_OUT(vt_node_create(call->cloud, &node));
  VT_TRY_OUT(vt_operation_for_call(call, "create", vt_node_name(&call->arena, &node), node.uid,
                                   &operation));
  st = vt_operation_reply(call, operation);
out:
  vt_node_fini(&node);
  return st;
}

vt_status vt_nodes_get(vt_call *call) {
  vt_node node;
  VT_TRY(vt_node_find(call, &node));
  vt_status st = vt_node_view(call->cloud, &node, call->api_name, &call->reply);
  vt_node_fini(&node);
  return st;
}

// --- changes -------------------------------------------------------------------------------------

// A change that the state does not allow gives a failed operation, as in the real service.
static vt_status refuse(vt_call *call, const vt_node *node, const char *what) {
  char eid[24];
  const char *operation;
  vt_error_id(what, eid);
  const char *text = vt_arena_printf(
      &call->arena,
      "Cloud TPU received a bad request. %s is not supported while in state %s [EID: %s]", what,
      vt_node_state_name(node->state), eid);
  VT_TRY(
      vt_operation_for_call(call, what, vt_node_name(&call->arena, node), node->uid, &operation));
  VT_TRY(
      vt_operation_finish(call->cloud, operation, vt_rpc_status(VT_INVALID_ARGUMENT, text), NULL));
  return vt_operation_reply(call, operation);
}

static const struct patchable {
  const char *mask, *group, *field;
} patchables[] = {{"description", NULL, "description"},
                  {"labels", NULL, "labels"},
                  {"tags", NULL, "tags"},
                  {"metadata", NULL, "metadata"},
                  {"data_disks", NULL, "dataDisks"},
                  {"dataDisks", NULL, "dataDisks"},
                  {"network_config.enable_external_ips", "networkConfig", "enableExternalIps"},
                  {"networkConfig.enableExternalIps", "networkConfig", "enableExternalIps"},
                  {"network_config.enableExternalIps", "networkConfig", "enableExternalIps"}};

static void patch_field(json_t *body, const json_t *from, const struct patchable *p) {
  json_t *target = body;
  const json_t *source = from;
  if (p->group) {
    target = json_object_get(body, p->group);
    source = json_object_get(from, p->group);
    if (!target) json_object_set_new(body, p->group, target = json_object());
  }
  json_t *value = json_object_get(source, p->field);
  if (value)
    json_object_set(target, p->field, value);
  else
    json_object_del(target, p->field);
}

static vt_status apply_mask(vt_call *call, vt_node *node, const json_t *clean, const char *mask) {
  const char *p = mask;
  while (*p) {
    size_t n = strcspn(p, ",");
    const struct patchable *found = NULL;
    for (size_t i = 0; i < sizeof patchables / sizeof *patchables; i++)
      if (strlen(patchables[i].mask) == n && memcmp(patchables[i].mask, p, n) == 0)
        found = &patchables[i];
    if (!found)
      return vt_error(
          VT_INVALID_ARGUMENT,
          "Cloud TPU received a bad request. update_mask field '%.*s' can not be updated", (int)n,
          p);
    patch_field(node->body, clean, found);
    p += n + (p[n] == ',');
  }
  (void)call;
  return vt_check_node(node->body);
}

vt_status vt_nodes_patch(vt_call *call) {
  const char *mask = vt_call_query(call, "updateMask"), *operation;
  vt_node node;
  json_t *clean = NULL, *response = NULL;
  if (!mask || !*mask)
    return vt_error(VT_INVALID_ARGUMENT,
                    "Cloud TPU received a bad request. update_mask is required");
  VT_TRY(vt_node_find(call, &node));
  vt_status st = clean_node(call, call->body, &clean);
  if (st) goto out;
  if (node.state == VT_NODE_PREEMPTED || node.state == VT_NODE_DELETING ||
      node.state == VT_NODE_TERMINATED) {
    st = refuse(call, &node, "update");
    goto out;
  }
  // A caller who gives a worker keys or scripts can act as its account.
  if (strstr(mask, "metadata")) VT_TRY_OUT(vt_sa_may_act(call, node.body));
  VT_TRY_OUT(apply_mask(call, &node, clean, mask));
  VT_TRY_OUT(vt_node_save(call->cloud, &node));
  bool disks = strstr(mask, "data_disks") || strstr(mask, "dataDisks");
  if (disks) VT_TRY_OUT(vt_disks_attach(call->cloud, &node));
  VT_TRY_OUT(vt_operation_for_call(call, "update", vt_node_name(&call->arena, &node), node.uid,
                                   &operation));
  // New keys are done when every worker knows their users, disks when every worker has mounted
  // them; the reconciler checks both.
  if ((!disks && !strstr(mask, "metadata")) || call->cloud->options.guest_level < 1 ||
      node.state != VT_NODE_READY) {
    VT_TRY_OUT(vt_node_response(call->cloud, &node, call->api_name, &response));
    VT_TRY_OUT(vt_operation_finish(call->cloud, operation, NULL, response));
  }
  st = vt_operation_reply(call, operation);
out:
  json_decref(clean);
  vt_node_fini(&node);
  return st;
}

// One step that the reconciler completes: checks and changes the state, opens the operation.
static vt_status begin(vt_call *call, const char *verb, unsigned from, vt_node_state to,
                       bool (*may)(const vt_node *node)) {
  vt_node node;
  const char *operation;
  VT_TRY(vt_node_find(call, &node));
  vt_status st = VT_OK;
  if (!(from & (1u << node.state)) || (may && !may(&node))) {
    st = refuse(call, &node, verb);
    goto out;
  }
  VT_TRY_OUT(vt_node_set_state(call->cloud, &node, to, verb));
  VT_TRY_OUT(
      vt_operation_for_call(call, verb, vt_node_name(&call->arena, &node), node.uid, &operation));
  st = vt_operation_reply(call, operation);
out:
  vt_node_fini(&node);
  return st;
}

vt_status vt_nodes_delete(vt_call *call) {
  bool replayed;
  VT_TRY(vt_operation_replay(call, &replayed));
  if (replayed) return VT_OK;
  unsigned any = (1u << VT_NODE_STATE_COUNT) - 1;
  return begin(call, "delete", any & ~(1u << VT_NODE_DELETING), VT_NODE_DELETING, NULL);
}

vt_status vt_nodes_start(vt_call *call) {
  VT_TRY(vt_bill_may_begin(call->cloud, call->project));
  return begin(call, "start", 1u << VT_NODE_STOPPED, VT_NODE_STARTING, NULL);
}

static bool may_stop(const vt_node *node) {
  return !*node->queued && node->workers == 1;
}

vt_status vt_nodes_stop(vt_call *call) {
  return begin(call, "stop", 1u << VT_NODE_READY, VT_NODE_STOPPING, may_stop);
}

vt_status vt_nodes_reimage(vt_call *call) {
  const char *version = json_string_value(json_object_get(call->body, "tensorflowVersion"));
  vt_node node;
  VT_TRY(vt_bill_may_begin(call->cloud, call->project)); // a STOPPED one starts
  VT_TRY(vt_node_find(call, &node));
  if (version && *version) {
    json_object_set_new(node.body, "tensorflowVersion", json_string(version));
    json_object_set_new(
        node.body, "runtimeVersion",
        json_string(vt_arena_printf(
            &call->arena, strncmp(version, "tpu-", 4) == 0 ? "%s" : "tpu-vm-tf-%s", version)));
  }
  vt_status st = vt_node_save(call->cloud, &node);
  vt_node_fini(&node);
  if (st) return st;
  return begin(call, "reimage", 1u << VT_NODE_READY | 1u << VT_NODE_STOPPED, VT_NODE_REIMAGING,
               NULL);
}

// --- guest attributes ----------------------------------------------------------------------------

// "" or no workerIds means all workers.
static bool wants_worker(const json_t *ids, int64_t worker) {
  if (!json_is_array(ids) || json_array_size(ids) == 0) return true;
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const char *id = json_string_value(json_array_get(ids, i));
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)worker);
    if (id && (!*id || strcmp(id, text) == 0)) return true;
  }
  return false;
}

static vt_status worker_attributes(vt_call *call, const vt_node *node, int64_t worker,
                                   const char *path, json_t *items) {
  vt_rows *rows;
  VT_TRY(vt_store_query(
      call->cloud->store, &rows,
      "SELECT namespace, key, value FROM guest_attributes WHERE node = ? AND worker = ? ORDER BY "
      "namespace, key",
      "ii", node->uid, worker));
  while (vt_rows_next(rows)) {
    const char *space = vt_rows_text(rows, 0), *key = vt_rows_text(rows, 1);
    const char *full = vt_arena_printf(&call->arena, "%s/%s", space, key);
    size_t n = strlen(path);
    if (n && strncmp(full, path, n) != 0) continue;
    json_array_append_new(items, json_pack("{s:s, s:s, s:s}", "namespace", space, "key", key,
                                           "value", vt_rows_text(rows, 2)));
  }
  return vt_rows_end(rows);
}

vt_status vt_nodes_guest_attributes(vt_call *call) {
  vt_node node;
  const json_t *ids = json_object_get(call->body, "workerIds");
  const char *path = json_string_value(json_object_get(call->body, "queryPath"));
  VT_TRY(vt_node_find(call, &node));
  vt_status st = VT_OK;
  json_t *list = json_array();
  call->reply = json_pack("{s:o}", "guestAttributes", list);
  for (int64_t w = 0; w < node.workers && !st; w++) {
    if (!wants_worker(ids, w)) continue;
    json_t *items = json_array();
    st = worker_attributes(call, &node, w, path ? path : "", items);
    json_array_append_new(list, json_pack("{s:s, s:{s:o}}", "queryPath", path ? path : "",
                                          "queryValue", "items", items));
  }
  vt_node_fini(&node);
  return st;
}
