// SPDX-License-Identifier: Apache-2.0
// compute.c - the part of Compute Engine that TPU clients read: a project with its metadata, zones,
// networks, firewall rules; and lists that are always empty.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/state/catalogue.h"
#include "cloud/state/service_account.h"
#include "cloud/store/json.h"

static const char *self_link(vt_call *call, const char *rest) {
  return vt_arena_printf(&call->arena, "https://www.googleapis.com/compute/v1/projects/%s%s",
                         call->project, rest);
}

// Changes whenever the metadata does. Clients decode it as base64 and encode it again: whole groups
// of four, no padding.
static void fingerprint(int64_t version, char out_text[16]) {
  snprintf(out_text, 16, "vtpu%08llx", (long long)version & 0xffffffff);
}

vt_status vt_compute_project(vt_call *call) {
  vt_rows *rows;
  char print[16], number[24];
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT metadata, metadata_version FROM projects WHERE id = ?", "s",
                        call->project));
  json_t *items = json_array(), *metadata = NULL, *value;
  int64_t version = 1;
  const char *key;
  vt_status st = VT_OK;
  if (vt_rows_next(rows)) {
    st = vt_check_stored(vt_rows_text(rows, 0), "metadata of project", call->project, &metadata);
    version = vt_rows_int(rows, 1);
  }
  json_object_foreach(metadata, key, value)
      json_array_append_new(items, json_pack("{s:s, s:O}", "key", key, "value", value));
  json_decref(metadata);
  fingerprint(version, print);
  snprintf(number, sizeof number, "%lld", (long long)call->project_number);
  call->reply = json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:o}}", "kind", "compute#project", "id", number,
      "name", call->project, "selfLink", self_link(call, ""), "defaultServiceAccount",
      vt_arena_printf(&call->arena, "%lld-compute@developer.%s", (long long)call->project_number,
                      call->cloud->options.universe),
      "commonInstanceMetadata", "kind", "compute#metadata", "fingerprint", print, "items", items);
  return vt_rows_stop(rows, st);
}

static json_t *compute_done(vt_call *call, const char *name, const char *verb) {
  return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s}", "kind", "compute#operation", "name", name,
                   "operationType", verb, "status", "DONE", "progress", 100, "targetLink",
                   self_link(call, ""), "selfLink",
                   self_link(call, vt_arena_printf(&call->arena, "/global/operations/%s", name)));
}

vt_status vt_compute_set_metadata(vt_call *call) {
  json_t *items = json_object_get(call->body, "items"), *item, *metadata = json_object();
  const char *print = json_string_value(json_object_get(call->body, "fingerprint"));
  char now_print[16], *text;
  int64_t version;
  size_t i;
  vt_status st = vt_sa_may_act(call, NULL); // keys and scripts for every worker of the project
  if (!st)
    st = vt_store_int(call->cloud->store, &version, 1,
                      "SELECT metadata_version FROM projects WHERE id = ?", "s", call->project);
  if (st) goto out;
  fingerprint(version, now_print);
  if (print && *print && strcmp(print, now_print) != 0) {
    call->error_status = 412;
    st = vt_error(VT_FAILED_PRECONDITION,
                  "Supplied fingerprint does not match current metadata fingerprint.");
    goto out;
  }
  json_array_foreach(items, i, item) {
    const char *key = json_string_value(json_object_get(item, "key")),
               *value = json_string_value(json_object_get(item, "value"));
    if (!key || !value) {
      st = vt_error(VT_INVALID_ARGUMENT, "Invalid value for field 'metadata.items[%zu]'", i);
      goto out;
    }
    json_object_set_new(metadata, key, json_string(value));
  }
  VT_TRY_OUT(vt_check_metadata(metadata));
  text = vt_json_text(metadata, JSON_COMPACT);
  st = vt_store_run(
      call->cloud->store, NULL,
      "UPDATE projects SET metadata = ?, metadata_version = metadata_version + 1 WHERE id = ?",
      "ss", text, call->project);
  vt_memory_free(text);
  char hex[14];
  vt_cloud_random_hex(hex, 13);
  if (!st)
    call->reply =
        compute_done(call, vt_arena_printf(&call->arena, "operation-%s", hex), "setMetadata");
out:
  json_decref(metadata);
  return st;
}

vt_status vt_compute_operation(vt_call *call) {
  call->reply = compute_done(call, vt_call_param(call, "operation"), "setMetadata");
  return VT_OK;
}

static json_t *zone_view(vt_call *call, const char *zone) {
  char region[64];
  vt_zone_region(zone, region);
  return json_pack("{s:s, s:s, s:s, s:s, s:s}", "kind", "compute#zone", "name", zone, "status",
                   "UP", "region",
                   self_link(call, vt_arena_printf(&call->arena, "/regions/%s", region)),
                   "selfLink", self_link(call, vt_arena_printf(&call->arena, "/zones/%s", zone)));
}

vt_status vt_compute_zones(vt_call *call) {
  json_t *items = json_array();
  for (int i = 0; vt_zone_at(i); i++) json_array_append_new(items, zone_view(call, vt_zone_at(i)));
  call->reply = json_pack("{s:s, s:o}", "kind", "compute#zoneList", "items", items);
  return VT_OK;
}

vt_status vt_compute_zone(vt_call *call) {
  const char *zone = vt_call_param(call, "zone");
  if (!vt_zone_exists(zone))
    return vt_call_not_found(
        call, vt_arena_printf(&call->arena, "projects/%s/zones/%s", call->project, zone));
  call->reply = zone_view(call, zone);
  return VT_OK;
}

vt_status vt_compute_regions(vt_call *call) {
  json_t *items = json_array(), *seen = json_object();
  for (int i = 0; vt_zone_at(i); i++) {
    char region[64];
    vt_zone_region(vt_zone_at(i), region);
    if (json_object_get(seen, region)) continue;
    json_object_set_new(seen, region, json_true());
    json_array_append_new(items, json_pack("{s:s, s:s, s:s}", "kind", "compute#region", "name",
                                           region, "status", "UP"));
  }
  json_decref(seen);
  call->reply = json_pack("{s:s, s:o}", "kind", "compute#regionList", "items", items);
  return VT_OK;
}

vt_status vt_compute_subnetworks(vt_call *call) {
  const char *region = vt_call_param(call, "region");
  call->reply = json_pack(
      "{s:s, s:[{s:s, s:s, s:s, s:s, s:s}]}", "kind", "compute#subnetworkList", "items", "kind",
      "compute#subnetwork", "name", "default", "ipCidrRange", "10.164.0.0/16", "network",
      self_link(call, "/global/networks/default"), "selfLink",
      self_link(call, vt_arena_printf(&call->arena, "/regions/%s/subnetworks/default", region)));
  return VT_OK;
}

static json_t *network_view(vt_call *call) {
  return json_pack("{s:s, s:s, s:s, s:b}", "kind", "compute#network", "name", "default", "selfLink",
                   self_link(call, "/global/networks/default"), "autoCreateSubnetworks", 1);
}

vt_status vt_compute_networks(vt_call *call) {
  call->reply =
      json_pack("{s:s, s:[o]}", "kind", "compute#networkList", "items", network_view(call));
  return VT_OK;
}

vt_status vt_compute_network(vt_call *call) {
  const char *name = vt_call_param(call, "network");
  if (strcmp(name, "default") != 0)
    return vt_call_not_found(
        call, vt_arena_printf(&call->arena, "projects/%s/global/networks/%s", call->project, name));
  call->reply = network_view(call);
  return VT_OK;
}

// The ingress rules of the default network; provisioners read them before they use it.
static const struct firewall {
  const char *name, *source, *allowed; // JSON
} firewalls[] = {
    {"default-allow-internal", "10.128.0.0/9",
     "[{\"IPProtocol\":\"tcp\",\"ports\":[\"0-65535\"]},{\"IPProtocol\":\"udp\",\"ports\":[\"0-"
     "65535\"]},"
     "{\"IPProtocol\":\"icmp\"}]"},
    {"default-allow-ssh", "0.0.0.0/0", "[{\"IPProtocol\":\"tcp\",\"ports\":[\"22\"]}]"}};

static json_t *firewalls_view(vt_call *call) {
  json_t *list = json_array();
  for (size_t i = 0; i < sizeof firewalls / sizeof *firewalls; i++) {
    const struct firewall *f = &firewalls[i];
    json_t *allowed = json_loads(f->allowed, 0, NULL);
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:s, s:s, s:i, s:[s], s:o}", "kind", "compute#firewall", "name",
                        f->name, "network",
                        vt_arena_printf(&call->arena,
                                        "https://www.googleapis.com/compute/v1/projects/%s/global/"
                                        "networks/default",
                                        call->project),
                        "direction", "INGRESS", "priority", 65534, "sourceRanges", f->source,
                        "allowed", allowed));
  }
  return list;
}

vt_status vt_compute_firewalls(vt_call *call) {
  call->reply =
      json_pack("{s:s, s:o}", "kind", "compute#firewallList", "items", firewalls_view(call));
  return VT_OK;
}

vt_status vt_compute_effective_firewalls(vt_call *call) {
  VT_TRY(vt_compute_network(call)); // only that it exists
  json_decref(call->reply);
  call->reply = json_pack("{s:o}", "firewalls", firewalls_view(call));
  return VT_OK;
}

vt_status vt_compute_empty(vt_call *call) {
  call->reply = json_pack("{s:s, s:[]}", "kind", "compute#list", "items");
  return VT_OK;
}
