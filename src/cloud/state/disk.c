// SPDX-License-Identifier: Apache-2.0
// disk.c - the disks of disk.h, their part of the Compute Engine API, and their lines in the
// ledger.
#include "cloud/state/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/state/billing.h"
#include "cloud/store/row.h"
#include "cloud/worker/helper_client.h"

// nano-USD per GB and hour: 0.04, 0.10 and 0.17 USD per GB and month of 730 hours.
static const struct disk_type {
  const char *name;
  int64_t price_nanos;
} types[] = {{"pd-balanced", 136986}, {"pd-standard", 54795}, {"pd-ssd", 232877}};

static const struct disk_type *find_type(const char *name) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, name) == 0) return &types[i];
  return NULL;
}

static bool name_valid(const char *name) {
  size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
  return n > 0 && n <= 63 && !name[n] && *name >= 'a' && *name <= 'z';
}

static const char *last_part(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// --- attachments ---------------------------------------------------------------------------------

// "projects/p/zones/z/disks/d", a full link, or a bare name in the node's own place.
static vt_status find_disk(vt_cloud *cloud, const vt_node *node, const char *source,
                           int64_t *out_uid) {
  char place[512], bare[512];
  const char *at = strstr(source, "projects/");
  snprintf(place, sizeof place, "projects/%s/zones/%s/disks/", node->project, node->zone);
  snprintf(bare, sizeof bare, "%s%s", place, source);
  if (!strchr(source, '/')) at = bare;
  *out_uid = 0;
  if (at && strncmp(at, place, strlen(place)) == 0)
    VT_TRY(vt_store_int(cloud->store, out_uid, 0,
                        "SELECT uid FROM disks WHERE project = ? AND zone = ? AND id = ?", "sss",
                        node->project, node->zone, at + strlen(place)));
  if (*out_uid) return VT_OK;
  return vt_error(VT_NOT_FOUND, "Resource '%s' was not found", source);
}

static vt_status attach_one(vt_cloud *cloud, const vt_node *node, const json_t *disk) {
  const char *source = json_string_value(json_object_get(disk, "sourceDisk")),
             *mode = json_string_value(json_object_get(disk, "mode"));
  bool read_only = mode && strcmp(mode, "READ_ONLY") == 0;
  int64_t uid, other;
  if (!source || !*source)
    return vt_error(VT_INVALID_ARGUMENT,
                    "Cloud TPU received a bad request. sourceDisk is required");
  if (cloud->options.guest_level == 1)
    return vt_error(VT_FAILED_PRECONDITION,
                    "Data disks need guests of level 2; this cloud has level 1.");
  if (strcmp(cloud->options.backend, "slurm") == 0)
    return vt_error(VT_FAILED_PRECONDITION,
                    "Data disks are files of one host; the workers of this cloud are on several.");
  VT_TRY(find_disk(cloud, node, source, &uid));
  if (!read_only && node->workers > 1)
    return vt_error(VT_INVALID_ARGUMENT,
                    "Cloud TPU received a bad request. A disk of a node with %d workers has to be "
                    "READ_ONLY",
                    (int)node->workers);
  // One writer, or any number of readers.
  VT_TRY(
      vt_store_int(cloud->store, &other, 0,
                   "SELECT COUNT(*) FROM attachments WHERE disk = ? AND node <> ? AND (read_only "
                   "= 0 OR ? = 0)",
                   "iii", uid, node->uid, (int64_t)read_only));
  if (other)
    return vt_error(VT_FAILED_PRECONDITION,
                    "The disk resource '%s' is already being used by another node.", source);
  VT_TRY(vt_store_int(cloud->store, &other, 0,
                      "SELECT COUNT(*) FROM attachments WHERE disk = ? AND node = ?", "ii", uid,
                      node->uid));
  if (other)
    return vt_error(VT_INVALID_ARGUMENT,
                    "Cloud TPU received a bad request. The disk '%s' is named twice", source);
  const vt_attachments_row row = {.disk = uid, .node = node->uid, .read_only = read_only};
  return vt_row_insert(cloud->store, attachments, &row);
}

vt_status vt_disks_detach_all(vt_cloud *cloud, int64_t node_uid) {
  return vt_store_run(cloud->store, NULL, "DELETE FROM attachments WHERE node = ?", "i", node_uid);
}

vt_status vt_disks_attach(vt_cloud *cloud, const vt_node *node) {
  json_t *list = json_object_get(node->body, "dataDisks"), *disk;
  size_t i;
  VT_TRY(vt_disks_detach_all(cloud, node->uid));
  json_array_foreach(list, i, disk) VT_TRY(attach_one(cloud, node, disk));
  return VT_OK;
}

vt_status vt_disks_of_node(vt_cloud *cloud, int64_t node_uid, vt_worker *out) {
  vt_rows *rows;
  out->disk_count = 0;
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT disks.uid, disks.id, attachments.read_only, disks.size_gb FROM attachments, disks "
      "WHERE attachments.node = ? AND disks.uid = attachments.disk ORDER BY "
      "disks.id",
      "i", node_uid));
  while (vt_rows_next(rows) && out->disk_count < VT_WORKER_DISKS) {
    vt_worker_disk *disk = &out->disks[out->disk_count++];
    disk->uid = vt_rows_int(rows, 0);
    disk->read_only = vt_rows_int(rows, 2) != 0;
    disk->size_gb = (uint32_t)vt_rows_int(rows, 3);
    snprintf(disk->name, sizeof disk->name, "%s", vt_rows_text(rows, 1));
  }
  return vt_rows_end(rows);
}

// --- calls ---------------------------------------------------------------------------------------

static const char *link_of(vt_call *call, const char *collection, const char *name) {
  return vt_arena_printf(&call->arena, "%s/compute/v1/projects/%s/zones/%s/%s/%s",
                         vt_call_base_url(call), call->project, vt_call_param(call, "zone"),
                         collection, name);
}

static json_t *done(vt_call *call, const char *verb, const char *disk) {
  char hex[17];
  vt_cloud_random_hex(hex, 16);
  const char *name = vt_arena_printf(&call->arena, "operation-%s", hex);
  return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s}", "kind", "compute#operation", "name",
                   name, "operationType", verb, "status", "DONE", "progress", 100, "zone",
                   link_of(call, "", ""), "targetLink", link_of(call, "disks", disk), "selfLink",
                   link_of(call, "operations", name));
}

vt_status vt_disks_operation(vt_call *call) {
  call->reply = done(call, "insert", "");
  json_object_set_new(call->reply, "name", json_string(vt_call_param(call, "operation")));
  return VT_OK;
}

static vt_status ledger(vt_call *call, int64_t uid, const char *name, const struct disk_type *type,
                        int64_t gb) {
  int64_t id;
  VT_TRY(vt_cloud_next(call->cloud, "usage", &id));
  const vt_usage_row row = {.id = id,
                            .kind = "data-disk",
                            .node = uid,
                            .project = call->project,
                            .zone = vt_call_param(call, "zone"),
                            .node_id = name,
                            .type = type->name,
                            .klass = "on-demand",
                            .units = gb,
                            .price_nanos = type->price_nanos,
                            .start_ns = vt_cloud_now(call->cloud)};
  return vt_row_insert(call->cloud->store, usage, &row);
}

vt_status vt_disks_insert(vt_call *call) {
  const char *zone = vt_call_param(call, "zone"),
             *name = json_string_value(json_object_get(call->body, "name")),
             *type = json_string_value(json_object_get(call->body, "type"));
  const json_t *size = json_object_get(call->body, "sizeGb");
  int64_t gb, taken, uid = vt_cloud_random();
  const struct disk_type *kind = find_type(type ? last_part(type) : "pd-standard");
  if (!vt_zone_exists(zone)) return vt_call_not_found(call, vt_call_name(call, "zones", zone));
  if (!name || !name_valid(name))
    return vt_error(VT_INVALID_ARGUMENT, "Invalid value for field 'resource.name': '%s'.",
                    name ? name : "");
  if (!kind)
    return vt_error(VT_INVALID_ARGUMENT, "Invalid value for field 'resource.type': '%s'.", type);
  bool whole = vt_json_integer(size, &gb);
  if (!size) gb = 500;
  if ((size && !whole) || gb < 1 || gb > 65536)
    return vt_error(VT_INVALID_ARGUMENT, "Invalid value for field 'resource.sizeGb': 1 to 65536.");
  VT_TRY(vt_store_int(call->cloud->store, &taken, 0,
                      "SELECT 1 FROM disks WHERE project = ? AND zone = ? AND id = ?", "sss",
                      call->project, zone, name));
  if (taken) return vt_call_exists(call, link_of(call, "disks", name));
  VT_TRY(vt_bill_may_begin(call->cloud, call->project));
  const vt_disks_row row = {.uid = uid,
                            .project = call->project,
                            .zone = zone,
                            .id = name,
                            .type = kind->name,
                            .size_gb = gb,
                            .created_ns = vt_cloud_now(call->cloud)};
  VT_TRY(vt_row_insert(call->cloud->store, disks, &row));
  VT_TRY(ledger(call, uid, name, kind, gb));
  call->reply = done(call, "insert", name);
  return VT_OK;
}

static json_t *view(vt_call *call, const vt_rows *rows) {
  char time[40];
  const char *name = vt_rows_text(rows, 1);
  vt_time_format(vt_rows_int(rows, 4), time);
  json_t *disk = json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "kind", "compute#disk", "id",
      vt_arena_printf(&call->arena, "%lld", (long long)vt_rows_int(rows, 0)), "name", name,
      "sizeGb", vt_arena_printf(&call->arena, "%lld", (long long)vt_rows_int(rows, 3)), "zone",
      link_of(call, "", ""), "status", "READY", "type",
      link_of(call, "diskTypes", vt_rows_text(rows, 2)), "selfLink", link_of(call, "disks", name),
      "creationTimestamp", time);
  const char *user = vt_rows_text(rows, 5);
  if (*user)
    json_object_set_new(
        disk, "users",
        json_pack("[s]", vt_arena_printf(&call->arena, "projects/%s/locations/%s/nodes/%s",
                                         call->project, vt_call_param(call, "zone"), user)));
  return disk;
}

#define SELECT_DISKS                                                                               \
  "SELECT uid, id, type, size_gb, created_ns, (SELECT MIN(nodes.id) FROM attachments, nodes "      \
  "WHERE attachments.disk = disks.uid AND nodes.uid = attachments.node) FROM disks WHERE project " \
  "= ? AND zone = ? "

vt_status vt_disks_list(vt_call *call) {
  vt_rows *rows;
  json_t *items = json_array();
  call->reply = json_pack("{s:s, s:o}", "kind", "compute#diskList", "items", items);
  VT_TRY(vt_store_query(call->cloud->store, &rows, SELECT_DISKS "ORDER BY id LIMIT 1000", "ss",
                        call->project, vt_call_param(call, "zone")));
  while (vt_rows_next(rows)) json_array_append_new(items, view(call, rows));
  return vt_rows_end(rows);
}

vt_status vt_disks_get(vt_call *call) {
  vt_rows *rows;
  const char *name = vt_call_param(call, "disk");
  VT_TRY(vt_store_query(call->cloud->store, &rows, SELECT_DISKS "AND id = ?", "sss", call->project,
                        vt_call_param(call, "zone"), name));
  if (vt_rows_next(rows)) call->reply = view(call, rows);
  VT_TRY(vt_rows_end(rows));
  return call->reply ? VT_OK : vt_call_not_found(call, link_of(call, "disks", name));
}

vt_status vt_disks_sweep(vt_cloud *cloud) {
  if (!cloud->helper) return VT_OK; // no disk has ever been attached
  vt_helper_reply *reply = malloc(sizeof *reply), *unused = malloc(sizeof *unused);
  vt_status st = reply && unused ? vt_helper_ask(cloud->helper, VT_HELPER_DISK_LIST, 0, 0, reply)
                                 : vt_error_no_memory();
  for (uint32_t i = 0; !st && i < reply->count; i++) {
    int64_t known, uid = reply->ids[i].uid;
    st = vt_store_int(cloud->store, &known, 0, "SELECT 1 FROM disks WHERE uid = ?", "i", uid);
    if (!st && !known) st = vt_helper_ask(cloud->helper, VT_HELPER_DISK_REMOVE, uid, 0, unused);
  }
  free(reply);
  free(unused);
  return st;
}

// The call deletes the row; the next sweep deletes its folder.
vt_status vt_disks_delete(vt_call *call) {
  vt_cloud *cloud = call->cloud;
  const char *name = vt_call_param(call, "disk"), *zone = vt_call_param(call, "zone");
  int64_t uid, used;
  VT_TRY(vt_store_int(cloud->store, &uid, 0,
                      "SELECT uid FROM disks WHERE project = ? AND zone = ? AND id = ?", "sss",
                      call->project, zone, name));
  if (!uid) return vt_call_not_found(call, link_of(call, "disks", name));
  VT_TRY(vt_store_int(cloud->store, &used, 0, "SELECT COUNT(*) FROM attachments WHERE disk = ?",
                      "i", uid));
  if (used)
    return vt_error(VT_INVALID_ARGUMENT, "The disk resource '%s' is already being used.", name);
  VT_TRY(vt_store_run(cloud->store, NULL, "DELETE FROM disks WHERE uid = ?", "i", uid));
  VT_TRY(vt_store_run(cloud->store, NULL,
                      "UPDATE usage SET end_ns = ? WHERE end_ns = 0 AND node = ? AND kind = "
                      "'data-disk'",
                      "ii", vt_cloud_now(cloud), uid));
  vt_cloud_poke(cloud);
  call->reply = done(call, "delete", name);
  return VT_OK;
}
