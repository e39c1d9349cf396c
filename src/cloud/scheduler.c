// SPDX-License-Identifier: Apache-2.0
// scheduler.c - quota sums, capacity sums, and the choice of victims.
// Victims: spot before preemptible is not told apart; the youngest go first, since they lose the
// least work, and only as many as are needed. A reserved node takes the chips of its reservation
// and needs no free capacity besides.
#include "cloud/scheduler.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"

void vt_quota_id(const vt_accelerator *type, bool spot, const char *place, char out_id[128]) {
  const char *family = type->family->name;
  bool split = strcmp(family, "v2") == 0 ||
               strcmp(family, "v3") == 0; // single devices and pods are counted apart
  bool serving = strcmp(family, "v5e") == 0 && type->vms == 1;
  snprintf(out_id, 128, "TPU%s%s%s%sPerProjectPer%sForTPUAPI", type->family->quota_word,
           serving ? "Serving" : "", spot ? "Preemptible" : "", split && type->vms > 1 ? "Pod" : "",
           place);
}

// --- quota
// -------------------------------------------------------------------------------------------------------

enum { MAX_QUOTAS = 128 };
static vt_quota quotas[MAX_QUOTAS];
static int quota_count;

static void add_quota(const vt_accelerator *type, bool spot, bool by_zone) {
  vt_quota *q = &quotas[quota_count];
  assert(quota_count < MAX_QUOTAS);
  vt_quota_id(type, spot, by_zone ? "Zone" : "Region", q->id);
  for (int i = 0; i < quota_count; i++)
    if (strcmp(quotas[i].id, q->id) == 0) return;
  bool single = type->vms == 1 &&
                (strcmp(type->family->name, "v2") == 0 || strcmp(type->family->name, "v3") == 0);
  q->family = type->family;
  q->spot = spot;
  q->by_zone = by_zone;
  q->otherwise = !by_zone ? -1 : !single ? 0 : spot ? 48 : 16;
  quota_count++;
}

static void list_quotas(void) {
  for (int i = 0; vt_accelerator_at(i); i++)
    for (int j = 0; j < 4; j++) add_quota(vt_accelerator_at(i), j & 2, !(j & 1));
}

const vt_quota *vt_quota_at(int index) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, list_quotas);
  return index >= 0 && index < quota_count ? &quotas[index] : NULL;
}

const vt_quota *vt_quota_find(const char *id) {
  const vt_quota *q;
  for (int i = 0; (q = vt_quota_at(i)); i++)
    if (strcmp(q->id, id) == 0) return q;
  return NULL;
}

vt_status vt_quota_limit(vt_cloud *cloud, const char *project, const vt_quota *quota,
                         const char *place, int64_t *out_limit) {
  VT_TRY(vt_store_int(cloud->store, out_limit, INT64_MIN,
                      "SELECT units FROM quotas WHERE project = ? AND quota = ? AND place = ?",
                      "sss", project, quota->id, place));
  if (*out_limit == INT64_MIN)
    VT_TRY(
        vt_store_int(cloud->store, out_limit, quota->otherwise,
                     "SELECT units FROM quotas WHERE project = ? AND quota = '*' AND place = '*'",
                     "s", project));
  return VT_OK;
}

vt_status vt_quota_set(vt_cloud *cloud, const char *project, const char *quota, const char *place,
                       int64_t units) {
  return vt_store_run(cloud->store, NULL,
                      "INSERT INTO quotas (project, quota, place, units, grant_id) VALUES (?, ?, "
                      "?, ?, NULL) ON CONFLICT (project, quota, place) DO UPDATE SET units = "
                      "excluded.units",
                      "sssi", project, quota, place, units);
}

vt_status vt_quota_used(vt_cloud *cloud, const char *project, const vt_quota *quota,
                        const char *place, int64_t *out_used) {
  vt_rows *rows;
  *out_used = 0;
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT type, zone, class, COUNT(*) FROM nodes WHERE project = ? AND family = ? AND state <> "
      "'DELETING' AND NOT (state = 'PREEMPTED' AND project IN (SELECT id FROM projects WHERE "
      "personality = 'kind')) GROUP BY type, zone, class",
      "ss", project, quota->family->name));
  while (vt_rows_next(rows)) {
    const vt_accelerator *type = vt_accelerator_find(vt_rows_text(rows, 0));
    const char *zone = vt_rows_text(rows, 1), *klass = vt_rows_text(rows, 2);
    char id[128], region[64];
    if (!type || strcmp(klass, "reserved") == 0) continue;
    vt_quota_id(type, *klass == 'p' || *klass == 's', quota->by_zone ? "Zone" : "Region", id);
    vt_zone_region(zone, region);
    if (strcmp(id, quota->id) == 0 && strcmp(quota->by_zone ? zone : region, place) == 0)
      *out_used += vt_accelerator_units(type) * vt_rows_int(rows, 3);
  }
  return vt_rows_end(rows);
}

static vt_status check_one(vt_cloud *cloud, const vt_node *node, int64_t count, bool alone,
                           const char *kind, const char *place, json_t **out_detail) {
  char id[128], text[256], lower[8];
  int64_t limit, used = 0;
  vt_quota_id(node->type, vt_node_is_spot(node), kind, id);
  const vt_quota *quota = vt_quota_find(id);
  VT_TRY(vt_quota_limit(cloud, node->project, quota, place, &limit));
  if (limit < 0) return VT_OK;
  if (!alone) VT_TRY(vt_quota_used(cloud, node->project, quota, place, &used));
  if (used + vt_accelerator_units(node->type) * count <= limit) return VT_OK;
  snprintf(lower, sizeof lower, "%s", strcmp(kind, "Zone") == 0 ? "zone" : "region");
  snprintf(text, sizeof text, "Quota '%s' exhausted. Limit %lld in %s %s", id, (long long)limit,
           lower, place);
  if (out_detail)
    *out_detail =
        json_pack("{s:s, s:[{s:s, s:s}]}", "@type", "type.googleapis.com/google.rpc.QuotaFailure",
                  "violations", "subject", node->project, "description", text);
  return vt_error(VT_RESOURCE_EXHAUSTED,
                  "Quota limit '%s' has been exceeded. Limit: %lld in %s %s.", id, (long long)limit,
                  lower, place);
}

vt_status vt_quota_check(vt_cloud *cloud, const vt_node *node, int64_t count, bool alone,
                         json_t **out_detail) {
  char region[64];
  if (out_detail) *out_detail = NULL;
  if (strcmp(node->klass, "reserved") == 0) return VT_OK;
  vt_zone_region(node->zone, region);
  VT_TRY(check_one(cloud, node, count, alone, "Zone", node->zone, out_detail));
  return check_one(cloud, node, count, alone, "Region", region, out_detail);
}

// --- capacity
// ----------------------------------------------------------------------------------------------------

vt_status vt_capacity_free(vt_cloud *cloud, const char *zone, const char *family,
                           int64_t *out_chips) {
  int64_t chips, used, reserved;
  VT_TRY(vt_store_int(cloud->store, &chips, 0,
                      "SELECT chips FROM capacity WHERE zone = ? AND family = ?", "ss", zone,
                      family));
  VT_TRY(vt_store_int(cloud->store, &used, 0,
                      "SELECT CAST(SUM(chips) AS BIGINT) FROM nodes WHERE zone = ? AND family = ? "
                      "AND placed = 1 AND class <> 'reserved'",
                      "ss", zone, family));
  VT_TRY(vt_store_int(cloud->store, &reserved, 0,
                      "SELECT CAST(SUM(chips) AS BIGINT) FROM reservations WHERE zone = ? AND "
                      "family = ? AND state = 'ACTIVE'",
                      "ss", zone, family));
  *out_chips = chips - used - reserved;
  return VT_OK;
}

static vt_status room_reserved(vt_cloud *cloud, const vt_node *node, int64_t count,
                               vt_placement *out_placement) {
  int64_t chips, used;
  VT_TRY(vt_store_int(cloud->store, &chips, 0,
                      "SELECT CAST(SUM(chips) AS BIGINT) FROM reservations WHERE project = ? AND "
                      "zone = ? AND family = ? AND state = 'ACTIVE' "
                      "AND (? = '' OR id = ?)",
                      "sssss", node->project, node->zone, node->type->family->name,
                      node->reservation, node->reservation));
  VT_TRY(vt_store_int(cloud->store, &used, 0,
                      "SELECT CAST(SUM(chips) AS BIGINT) FROM nodes WHERE project = ? AND zone = ? "
                      "AND family = ? AND placed = 1 AND class = "
                      "'reserved' AND (? = '' OR reservation = ?)",
                      "sssss", node->project, node->zone, node->type->family->name,
                      node->reservation, node->reservation));
  *out_placement = chips - used >= node->type->chips * count ? VT_PLACED : VT_PLACE_NONE;
  return VT_OK;
}

// Spot nodes that are on their way out already count; more get notice until `missing` chips are
// covered.
static vt_status make_room(vt_cloud *cloud, const vt_node *node, int64_t missing,
                           vt_placement *out_placement) {
  vt_arena arena = {0};
  VT_ARRAY(int64_t) victims = {0};
  vt_rows *rows;
  vt_status st = vt_store_query(
      cloud->store, &rows,
      "SELECT uid, chips, notice_ns, state FROM nodes WHERE zone = ? AND family = ? AND placed = "
      "1 AND class IN ('spot', 'preemptible') AND uid <> ? ORDER BY notice_ns = 0, created_ns "
      "DESC, uid",
      "ssi", node->zone, node->type->family->name, node->uid);
  if (!st) {
    while (missing > 0 && vt_rows_next(rows)) {
      missing -= vt_rows_int(rows, 1);
      if (!vt_rows_int(rows, 2)) vt_array_push_in(&arena, &victims, vt_rows_int(rows, 0));
    }
    st = vt_rows_end(rows);
  }
  *out_placement = missing > 0 ? VT_PLACE_NONE : VT_PLACE_WAIT;
  for (size_t i = 0; !st && missing <= 0 && i < victims.size; i++) {
    vt_node victim;
    bool found;
    st = vt_node_load_uid(cloud, &arena, victims.data[i], &victim, &found);
    if (!st && found)
      st = vt_node_give_notice(cloud, &victim, "PREEMPTED",
                               "capacity needed for a request of higher priority");
    vt_node_fini(&victim);
  }
  vt_arena_free(&arena);
  return st;
}

vt_status vt_room(vt_cloud *cloud, const vt_node *node, int64_t count,
                  vt_placement *out_placement) {
  *out_placement = VT_PLACE_NONE;
  if (vt_outage_now(cloud, node->zone)) return VT_OK;
  if (strcmp(node->klass, "reserved") == 0) return room_reserved(cloud, node, count, out_placement);
  int64_t free_chips, need = node->type->chips * count;
  VT_TRY(vt_capacity_free(cloud, node->zone, node->type->family->name, &free_chips));
  *out_placement = free_chips >= need ? VT_PLACED : VT_PLACE_NONE;
  if (free_chips >= need || vt_node_is_spot(node)) return VT_OK;
  return make_room(cloud, node, need - free_chips, out_placement);
}

vt_status vt_place(vt_cloud *cloud, vt_node *node, vt_placement *out_placement) {
  *out_placement = VT_PLACED;
  if (node->placed) return VT_OK;
  VT_TRY(vt_room(cloud, node, 1, out_placement));
  if (*out_placement != VT_PLACED) return VT_OK;
  node->placed = true;
  return vt_node_save(cloud, node);
}

json_t *vt_place_error(const vt_node *node) {
  char text[512], eid[24];
  if (strcmp(node->klass, "reserved") == 0) {
    vt_error_id("reservation", eid);
    snprintf(text, sizeof text,
             "Insufficient reserved capacity. Contact customer support to increase your "
             "reservation. [EID: %s]",
             eid);
  } else {
    vt_error_id("capacity", eid);
    snprintf(text, sizeof text,
             "There is no more capacity in the zone \"%s\"; you can try in another zone where "
             "Cloud TPU Nodes are offered "
             "(see https://cloud.google.com/tpu/docs/regions) [EID: %s]",
             node->zone, eid);
  }
  return vt_rpc_status(VT_RESOURCE_EXHAUSTED, text);
}
