// SPDX-License-Identifier: Apache-2.0
// node_view.c - the client's view of a node, in each version of the API.
// In:  a vt_node and its workers.
// Out: the Node object; always with `health` (old clients crash without it), with acceleratorType
// even if the config form was sent, with one network endpoint per worker, in worker order.
#include <stdio.h>
#include <string.h>

#include "cloud/state/health.h"

static const char *api_enum(const char *api) {
  if (strcmp(api, "v1") == 0) return "V1";
  if (strcmp(api, "v1alpha1") == 0) return "V1_ALPHA1";
  return strcmp(api, "v2alpha1") == 0 ? "V2_ALPHA1" : "V2";
}

static vt_status add_endpoints(vt_cloud *cloud, const vt_node *node, json_t *view) {
  const json_t *config = json_object_get(node->body, "networkConfig");
  const json_t *external = json_object_get(config, "enableExternalIps");
  bool is_external = !external || json_is_true(external);
  vt_rows *rows;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT ip FROM workers WHERE node = ? ORDER BY worker", "i", node->uid));
  json_t *list = json_array();
  while (vt_rows_next(rows)) {
    json_t *endpoint = json_pack("{s:s, s:i}", "ipAddress", vt_rows_text(rows, 0), "port", 8470);
    json_object_set_new(endpoint, "accessConfig",
                        is_external ? json_pack("{s:s}", "externalIp", vt_rows_text(rows, 0))
                                    : json_object());
    json_array_append_new(list, endpoint);
  }
  json_object_set_new(view, "networkEndpoints", list);
  return vt_rows_end(rows);
}

static void add_scheduling(const vt_node *node, json_t *view) {
  json_t *scheduling = json_object_get(view, "schedulingConfig");
  scheduling = scheduling ? json_deep_copy(scheduling) : json_object();
  if (strcmp(node->klass, "preemptible") == 0)
    json_object_set_new(scheduling, "preemptible", json_true());
  if (strcmp(node->klass, "spot") == 0) json_object_set_new(scheduling, "spot", json_true());
  if (strcmp(node->klass, "reserved") == 0)
    json_object_set_new(scheduling, "reserved", json_true());
  if (node->ends_ns) {
    char time[40];
    vt_time_format(node->ends_ns, time);
    json_object_set_new(scheduling, "terminationTimestamp", json_string(time));
  }
  json_object_set_new(view, "schedulingConfig", scheduling);
}

// v1 spells a few things differently.
static void to_v1(const vt_node *node, json_t *view) {
  const json_t *first = json_array_get(json_object_get(view, "networkEndpoints"), 0);
  const json_t *config = json_object_get(view, "networkConfig");
  const char *network = json_string_value(json_object_get(config, "network"));
  const char *version = json_string_value(json_object_get(node->body, "tensorflowVersion"));
  if (!version) version = json_string_value(json_object_get(node->body, "runtimeVersion"));
  json_object_set_new(view, "tensorflowVersion", json_string(version ? version : ""));
  if (first) json_object_set(view, "ipAddress", json_object_get(first, "ipAddress"));
  json_object_set_new(view, "port", json_string("8470"));
  const char *slash = network ? strrchr(network, '/') : NULL;
  json_object_set_new(view, "network", json_string(slash ? slash + 1 : "default"));
  const char *email =
      json_string_value(json_object_get(json_object_get(view, "serviceAccount"), "email"));
  if (email) json_object_set_new(view, "serviceAccount", json_string(email));
}

vt_status vt_node_view(vt_cloud *cloud, const vt_node *node, const char *api_name,
                       json_t **out_json) {
  char text[512], time[40];
  json_t *view = json_copy(node->body);
  snprintf(text, sizeof text, "projects/%s/locations/%s/nodes/%s", node->project, node->zone,
           node->id);
  json_object_set_new(view, "name", json_string(text));
  snprintf(text, sizeof text, "%lld", (long long)node->uid);
  json_object_set_new(view, "id", json_string(text));
  json_object_set_new(view, "state", json_string(vt_node_state_name(node->state)));
  json_object_set_new(view, "health", json_string(node->health));
  if (*node->health_text)
    json_object_set_new(view, "healthDescription", json_string(node->health_text));
  vt_time_format(node->created_ns, time);
  json_object_set_new(view, "createTime", json_string(time));
  json_object_set_new(view, "apiVersion", json_string(api_enum(node->api)));
  json_object_set_new(view, "acceleratorType", json_string(node->type->name));
  json_object_set_new(view, "acceleratorConfig",
                      json_pack("{s:s, s:s}", "type", node->type->family->type_enum, "topology",
                                node->type->topology));
  if (*node->queued) {
    snprintf(text, sizeof text, "projects/%s/locations/%s/queuedResources/%s", node->project,
             node->zone, node->queued);
    json_object_set_new(view, "queuedResource", json_string(text));
  }
  json_t *maintenance = vt_maintenance_view(cloud, node);
  if (maintenance) json_object_set_new(view, "upcomingMaintenance", maintenance);
  add_scheduling(node, view);
  json_t *symptoms;
  vt_status st = vt_health_view(cloud, node->uid, &symptoms);
  if (json_array_size(symptoms)) json_object_set(view, "symptoms", symptoms);
  json_decref(symptoms);
  if (!st) st = add_endpoints(cloud, node, view);
  *out_json = NULL;
  if (st) {
    json_decref(view);
    return st;
  }
  if (strncmp(api_name, "v1", 2) == 0) to_v1(node, view);
  json_object_del(view, "bounded_ns"); // our addition to the API
  *out_json = view;
  return VT_OK;
}

vt_status vt_node_response(vt_cloud *cloud, const vt_node *node, const char *api_name,
                           json_t **out_json) {
  char type[96];
  VT_TRY(vt_node_view(cloud, node, api_name, out_json));
  snprintf(type, sizeof type, "type.googleapis.com/google.cloud.tpu.%s.Node", api_name);
  json_object_set_new(*out_json, "@type", json_string(type));
  return VT_OK;
}
