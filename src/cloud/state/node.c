// SPDX-License-Identifier: Apache-2.0
// node.c - the row of a node: load, check, insert, change state, remove.
// Owns: the order of effects of a state change (vt_node_set_state). The API side is node_calls.c,
// the view node_view.c.
#include "cloud/state/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/check.h"
#include "cloud/state/address.h"
#include "cloud/store/json.h"

static const struct state_facts {
  const char *name;
  bool holds, billed, moves;
} states[] = {
#define NODE_STATE(name, holds, billed, moves) {#name, holds, billed, moves},
#include "cloud/state/node_states.def"
#undef NODE_STATE
};

const char *vt_node_state_name(vt_node_state state) {
  return states[state].name;
}
bool vt_node_state_holds(vt_node_state state) {
  return states[state].holds;
}
bool vt_node_state_billed(vt_node_state state) {
  return states[state].billed;
}

static vt_node_state find_state(const char *name) {
  for (int i = 0; i < VT_NODE_STATE_COUNT; i++)
    if (strcmp(states[i].name, name) == 0) return (vt_node_state)i;
  return VT_NODE_UNKNOWN;
}

static vt_status read_node(const vt_rows *rows, vt_arena *arena, vt_node *out_node) {
  *out_node = (vt_node){0};
  vt_row_read(rows, &vt_table_nodes, arena, &out_node->row);
  out_node->state = find_state(out_node->state_name);
  out_node->type = vt_accelerator_find(out_node->type_name);
  VT_TRY(vt_check_stored(out_node->text, "node", out_node->id, &out_node->body));
  if (out_node->type) return VT_OK;
  vt_node_fini(out_node);
  return vt_error(VT_DATA_LOSS,
                  "a stored node has an accelerator type that this version does not know");
}

static vt_status load_one(vt_rows *rows, vt_arena *arena, vt_node *out_node, bool *out_found) {
  *out_found = vt_rows_next(rows);
  vt_status st = vt_rows_stop(rows, *out_found ? read_node(rows, arena, out_node) : VT_OK);
  if (st) vt_node_fini(out_node);
  return st;
}

vt_status vt_node_load(vt_cloud *cloud, vt_arena *arena, const char *project, const char *zone,
                       const char *id, vt_node *out_node, bool *out_found) {
  vt_rows *rows;
  memset(out_node, 0, sizeof *out_node);
  *out_found = false;
  VT_TRY(vt_row_select(cloud->store, &rows, &vt_table_nodes,
                       "WHERE project = ? AND zone = ? AND id = ?", "sss", project, zone, id));
  return load_one(rows, arena, out_node, out_found);
}

vt_status vt_node_load_uid(vt_cloud *cloud, vt_arena *arena, int64_t uid, vt_node *out_node,
                           bool *out_found) {
  vt_rows *rows;
  memset(out_node, 0, sizeof *out_node);
  *out_found = false;
  VT_TRY(vt_row_select(cloud->store, &rows, &vt_table_nodes, "WHERE uid = ?", "i", uid));
  return load_one(rows, arena, out_node, out_found);
}

vt_status vt_node_find(vt_call *call, vt_node *out_node) {
  bool found;
  const char *id = vt_call_param(call, "node");
  VT_TRY(vt_node_load(call->cloud, &call->arena, call->project, vt_call_param(call, "zone"), id,
                      out_node, &found));
  return found ? VT_OK : vt_call_not_found(call, vt_call_name(call, "nodes", id));
}

void vt_node_fini(vt_node *node) {
  json_decref(node->body);
  node->body = NULL;
}

const char *vt_node_name(vt_arena *arena, const vt_node *node) {
  return vt_arena_printf(arena, "projects/%s/locations/%s/nodes/%s", node->project, node->zone,
                         node->id);
}

bool vt_node_id_valid(const char *id) {
  size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.~+%-");
  return n > 0 && n <= 63 && !id[n] && strcmp(id, "-") != 0;
}

int64_t vt_node_boot_disk_gb(const vt_node *node) {
  int64_t gb;
  const json_t *size = json_object_get(json_object_get(node->body, "bootDiskConfig"), "diskSizeGb");
  return vt_json_integer(size, &gb) && gb >= 1 && gb <= VT_BOOT_DISK_MAX_GB ? gb : VT_BOOT_DISK_GB;
}

// --- a new node ----------------------------------------------------------------------------------

static vt_status bad_request(const char *format, const char *a, const char *b) {
  char eid[24], text[512];
  vt_error_id(format, eid);
  snprintf(text, sizeof text, format, a, b);
  return vt_error(VT_INVALID_ARGUMENT, "Cloud TPU received a bad request. %s [EID: %s]", text, eid);
}

static vt_status find_type(json_t *body, const char *zone, const vt_accelerator **out_type) {
  const char *name = json_string_value(json_object_get(body, "acceleratorType"));
  const json_t *config = json_object_get(body, "acceleratorConfig");
  if (name && *name && config)
    return bad_request("acceleratorType and acceleratorConfig are mutually exclusive%s%s", "", "");
  if (config) {
    const char *type = json_string_value(json_object_get(config, "type"));
    const char *topology = json_string_value(json_object_get(config, "topology"));
    *out_type = type && topology ? vt_accelerator_by_shape(type, topology) : NULL;
    if (!*out_type)
      return bad_request("the accelerator config %s with topology %s is not supported",
                         type ? type : "(none)", topology ? topology : "(none)");
  } else {
    if (!name || !*name) name = "v2-8";
    *out_type = vt_accelerator_find(name);
    if (!*out_type) return bad_request("the accelerator %s was not found in zone %s", name, zone);
  }
  if (!vt_zone_offers(zone, *out_type))
    return bad_request("the accelerator %s was not found in zone %s", (*out_type)->name, zone);
  return VT_OK;
}

static const char *find_class(const json_t *body) {
  const json_t *scheduling = json_object_get(body, "schedulingConfig");
  const char *model = json_string_value(json_object_get(scheduling, "provisioningModel"));
  if (json_is_true(json_object_get(scheduling, "preemptible"))) return "preemptible";
  if (json_is_true(json_object_get(scheduling, "spot")) || (model && strcmp(model, "SPOT") == 0))
    return "spot";
  if (json_is_true(json_object_get(scheduling, "reserved")) ||
      (model && strcmp(model, "RESERVATION_BOUND") == 0))
    return "reserved";
  return "on-demand";
}

static bool image_known(const char *version) {
  return vt_image_exists(version) || strncmp(version, "tpu-vm-tf-", 10) == 0 ||
         strncmp(version, "tpu-vm-pt-", 10) == 0 || strncmp(version, "tpu-vm-v4-pt-", 13) == 0;
}

// Replaces "default" and a missing network by "projects/p/global/networks/default", as the service
// does.
static void complete_network(vt_arena *arena, const char *project, const char *zone, json_t *body) {
  char region[64];
  vt_zone_region(zone, region);
  json_t *config = json_object_get(body, "networkConfig");
  if (!config && json_object_get(body, "networkConfigs")) return;
  if (!config) {
    config = json_pack("{s:b}", "enableExternalIps", 1);
    json_object_set_new(body, "networkConfig", config);
  }
  const char *network = json_string_value(json_object_get(config, "network"));
  const char *subnetwork = json_string_value(json_object_get(config, "subnetwork"));
  if (!network || !*network) network = "default";
  if (!strchr(network, '/'))
    json_object_set_new(
        config, "network",
        json_string(vt_arena_printf(arena, "projects/%s/global/networks/%s", project, network)));
  if (!subnetwork || !*subnetwork) subnetwork = "default";
  if (!strchr(subnetwork, '/'))
    json_object_set_new(config, "subnetwork",
                        json_string(vt_arena_printf(arena, "projects/%s/regions/%s/subnetworks/%s",
                                                    project, region, subnetwork)));
}

static vt_status check_boot_disk(const json_t *body) {
  int64_t gb;
  const json_t *size = json_object_get(json_object_get(body, "bootDiskConfig"), "diskSizeGb");
  if (!size || (vt_json_integer(size, &gb) && gb >= 0 && gb <= VT_BOOT_DISK_MAX_GB)) return VT_OK;
  return bad_request("bootDiskConfig.diskSizeGb is 1 to 65536%s%s", "", "");
}

static vt_status check_body(vt_cloud *cloud, vt_arena *arena, const char *project, const char *zone,
                            json_t *body, vt_node *node) {
  const char *version = json_string_value(json_object_get(body, "runtimeVersion"));
  (void)cloud;
  VT_TRY(find_type(body, zone, &node->type));
  if (!version || !*version) return bad_request("runtimeVersion is required%s%s", "", "");
  if (!image_known(version))
    return bad_request("the runtime version %s was not found in zone %s", version, zone);
  if (vt_image_exists(version) && !vt_image_boots(version, node->type->family))
    return bad_request("the runtime version %s does not run on %s", version, node->type->name);
  if (json_object_get(body, "networkConfig") && json_object_get(body, "networkConfigs"))
    return bad_request("networkConfig and networkConfigs are mutually exclusive%s%s", "", "");
  VT_TRY(vt_check_node(body));
  VT_TRY(check_boot_disk(body));
  complete_network(arena, project, zone, body);
  json_object_set_new(body, "acceleratorType", json_string(node->type->name));
  return VT_OK;
}

vt_status vt_node_prepare(vt_cloud *cloud, vt_arena *arena, const char *project, const char *zone,
                          const char *id, json_t *body, vt_node *out_node) {
  int64_t now = vt_cloud_now(cloud);
  char hex[9];
  vt_cloud_random_hex(hex, 8);
  if (!id || !*id) id = vt_arena_printf(arena, "node-%s", hex);
  *out_node = (vt_node){.uid = vt_cloud_random(),
                        .project = project,
                        .zone = zone,
                        .id = id,
                        .queued = "",
                        .creator = "",
                        .state = VT_NODE_CREATING,
                        .api = "v2",
                        .health = "HEALTH_UNSPECIFIED",
                        .health_text = "",
                        .created_ns = now,
                        .state_ns = now,
                        .notice = "",
                        .maintenance = "",
                        .reservation = "",
                        .body = body};
  if (!vt_zone_exists(zone))
    return vt_error(VT_PERMISSION_DENIED, "Location %s is not found or access is unauthorized.",
                    zone);
  if (!vt_node_id_valid(id)) return bad_request("invalid node id '%s'%s", id, "");
  VT_TRY(check_body(cloud, arena, project, zone, body, out_node));
  out_node->klass = find_class(body);
  out_node->workers = out_node->type->vms;
  return VT_OK;
}

// Addresses come from a counter over those of this cloud; used ones are skipped.
static vt_status add_worker(vt_cloud *cloud, const vt_node *node, int64_t worker) {
  int64_t count = vt_address_count(cloud);
  for (int64_t tries = 0; tries < count; tries++) {
    int64_t n, used;
    char ip[32];
    VT_TRY(vt_cloud_next(cloud, "addresses", &n));
    vt_address_at(cloud, n, ip);
    VT_TRY(vt_store_int(cloud->store, &used, 0, "SELECT 1 FROM workers WHERE ip = ?", "s", ip));
    const vt_workers_row row = {.node = node->uid, .worker = worker, .ip = ip};
    if (!used) return vt_row_insert(cloud->store, workers, &row);
  }
  return vt_error(VT_RESOURCE_EXHAUSTED, "IP space of the network is exhausted.");
}

// Updates the row from state, type and body; the caller frees `text`.
static vt_nodes_row row_of(const vt_node *node, char **out_text) {
  vt_nodes_row row = node->row;
  row.state_name = states[node->state].name;
  row.type_name = node->type->name;
  row.family = node->type->family->name;
  row.chips = node->type->chips;
  row.text = *out_text = vt_json_text(node->body, JSON_COMPACT);
  return row;
}

vt_status vt_node_insert(vt_cloud *cloud, vt_node *node) {
  char *text;
  node->version = 1;
  const vt_nodes_row row = row_of(node, &text);
  vt_status st = vt_row_insert(cloud->store, nodes, &row);
  vt_memory_free(text);
  for (int64_t w = 0; !st && w < node->workers; w++) st = add_worker(cloud, node, w);
  return st;
}

vt_status vt_node_save(vt_cloud *cloud, vt_node *node) {
  char *text;
  int64_t changed = 0;
  const vt_nodes_row row = row_of(node, &text);
  vt_status st = vt_row_update(cloud->store, nodes, &row, &changed);
  vt_memory_free(text);
  if (!st && changed != 1) st = vt_error(VT_ABORTED, "node %s changed under this call", node->id);
  node->version++;
  return st;
}

vt_status vt_node_give_notice(vt_cloud *cloud, vt_node *node, const char *state, const char *why) {
  char name[512];
  if (node->notice_ns || !vt_node_state_holds(node->state)) return VT_OK;
  node->notice_ns = vt_cloud_now(cloud);
  node->notice = state;
  VT_TRY(vt_node_save(cloud, node));
  snprintf(name, sizeof name, "projects/%s/locations/%s/nodes/%s", node->project, node->zone,
           node->id);
  vt_cloud_poke(cloud);
  return vt_cloud_event(cloud, "notice", node->project, "vtpud", name, why);
}

vt_status vt_node_worker_ip(vt_cloud *cloud, vt_arena *arena, int64_t uid, int64_t worker,
                            const char **out_ip) {
  vt_rows *rows;
  *out_ip = "";
  VT_TRY(vt_store_query(cloud->store, &rows, "SELECT ip FROM workers WHERE node = ? AND worker = ?",
                        "ii", uid, worker));
  if (vt_rows_next(rows))
    *out_ip = vt_arena_copy(arena, vt_rows_text(rows, 0), strlen(vt_rows_text(rows, 0)));
  return vt_rows_end(rows);
}
