// SPDX-License-Identifier: Apache-2.0
// scheduler.c - quota sums, capacity sums, and the choice of victims. Spot and preemptible victims
// are not ranked; the youngest go first, since they lose the least work, and only as many as
// needed. A reserved node takes the chips of its reservation and needs no other free capacity.
#include "cloud/state/scheduler.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/array.h"
#include "base/checked.h"
#include "cloud/store/row.h"

void vt_quota_id(const vt_accelerator *type, bool spot, const char *place, char out_id[128]) {
  vt_assert(type->vms >= 1);
  const char *family = type->family->name;
  bool split = strcmp(family, "v2") == 0 ||
               strcmp(family, "v3") == 0; // single devices and pods count separately
  bool serving = strcmp(family, "v5e") == 0 && type->vms == 1;
  snprintf(out_id, 128, "TPU%s%s%s%sPerProjectPer%sForTPUAPI", type->family->quota_word,
           serving ? "Serving" : "", spot ? "Preemptible" : "", split && type->vms > 1 ? "Pod" : "",
           place);
}

// --- quota ---------------------------------------------------------------------------------------

enum { MAX_QUOTAS = 128 };
static vt_quota quotas[MAX_QUOTAS];
static int quota_count;

static void add_quota(const vt_accelerator *type, bool spot, bool by_zone) {
  vt_quota *q = &quotas[quota_count];
  vt_assert(quota_count < MAX_QUOTAS);
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
  const vt_quotas_row row = {.project = project, .quota = quota, .place = place, .units = units};
  return vt_row_put(cloud->store, quotas, &row);
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
    vt_assert(vt_rows_int(rows, 3) > 0 && vt_accelerator_units(type) > 0);
    if (strcmp(id, quota->id) == 0 && strcmp(quota->by_zone ? zone : region, place) == 0)
      *out_used += vt_accelerator_units(type) * vt_rows_int(rows, 3);
  }
  return vt_rows_end(rows);
}

// Whether `more` units fit at a place; `node` determines the quota.
static vt_status check_units(vt_cloud *cloud, const vt_node *node, int64_t more, bool alone,
                             bool by_zone, json_t **out_detail) {
  char id[128], text[256], region[64];
  int64_t limit, used = 0;
  vt_zone_region(node->zone, region);
  const char *place = by_zone ? node->zone : region, *lower = by_zone ? "zone" : "region";
  vt_quota_id(node->type, vt_node_is_spot(node), by_zone ? "Zone" : "Region", id);
  const vt_quota *quota = vt_quota_find(id);
  vt_assert(quota);
  VT_TRY(vt_quota_limit(cloud, node->project, quota, place, &limit));
  if (limit < 0) return VT_OK;
  if (!alone) VT_TRY(vt_quota_used(cloud, node->project, quota, place, &used));
  if (vt_add_clamped(used, more) <= limit) return VT_OK;
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

static bool is_reserved(const vt_node *node) {
  return strcmp(node->klass, "reserved") == 0;
}

static bool same_quota(const vt_node *a, const vt_node *b) {
  char x[128], y[128];
  vt_quota_id(a->type, vt_node_is_spot(a), "Zone", x);
  vt_quota_id(b->type, vt_node_is_spot(b), "Zone", y);
  return strcmp(x, y) == 0 && strcmp(a->zone, b->zone) == 0;
}

// The nodes of a request that count under the same key: the first of them, and their sum.
typedef struct group {
  const vt_node *first;
  int64_t sum;
} group;
typedef VT_ARRAY(group) groups;

// Adds `amount` to the group of `node`.
static void add_to(vt_arena *arena, groups *list, const vt_node *node, int64_t amount,
                   bool (*same)(const vt_node *a, const vt_node *b)) {
  vt_assert(amount > 0);
  for (size_t i = 0; i < list->size; i++)
    if (same(list->data[i].first, node)) {
      list->data[i].sum = vt_add_clamped(list->data[i].sum, amount);
      return;
    }
  group g = {node, amount};
  vt_array_push_in(arena, list, g);
}

vt_status vt_quota_check(vt_cloud *cloud, const vt_node *nodes, size_t count, bool alone,
                         json_t **out_detail) {
  vt_arena arena = {0};
  groups list = {0};
  vt_status st = VT_OK;
  if (out_detail) *out_detail = NULL;
  for (size_t i = 0; i < count; i++)
    if (!is_reserved(&nodes[i]))
      add_to(&arena, &list, &nodes[i], vt_accelerator_units(nodes[i].type), same_quota);
  // A request is in one zone, hence in one region.
  for (size_t i = 0; !st && i < list.size; i++) {
    st = check_units(cloud, list.data[i].first, list.data[i].sum, alone, true, out_detail);
    if (!st)
      st = check_units(cloud, list.data[i].first, list.data[i].sum, alone, false, out_detail);
  }
  vt_arena_free(&arena);
  return st;
}

vt_status vt_quota_holds(vt_cloud *cloud, const vt_node *node) {
  if (is_reserved(node)) return VT_OK;
  VT_TRY(check_units(cloud, node, 0, false, true, NULL));
  return check_units(cloud, node, 0, false, false, NULL);
}

// --- capacity ------------------------------------------------------------------------------------

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
  vt_assert(used >= 0 && reserved >= 0 && *out_chips <= chips);
  return VT_OK;
}

// Free chips of the project's reservations of a family; `reservation` "" means all of them.
static vt_status reserved_free(vt_cloud *cloud, const vt_node *node, const char *reservation,
                               int64_t *out_chips) {
  int64_t chips, used;
  VT_TRY(vt_store_int(cloud->store, &chips, 0,
                      "SELECT CAST(SUM(chips) AS BIGINT) FROM reservations WHERE project = ? AND "
                      "zone = ? AND family = ? AND state = 'ACTIVE' "
                      "AND (? = '' OR id = ?)",
                      "sssss", node->project, node->zone, node->type->family->name, reservation,
                      reservation));
  VT_TRY(vt_store_int(cloud->store, &used, 0,
                      "SELECT CAST(SUM(chips) AS BIGINT) FROM nodes WHERE project = ? AND zone = ? "
                      "AND family = ? AND placed = 1 AND class = "
                      "'reserved' AND (? = '' OR reservation = ?)",
                      "sssss", node->project, node->zone, node->type->family->name, reservation,
                      reservation));
  *out_chips = chips - used;
  vt_assert(used >= 0 && *out_chips <= chips);
  return VT_OK;
}

static bool same_family(const vt_node *a, const vt_node *b) {
  return a->type->family == b->type->family && strcmp(a->zone, b->zone) == 0;
}

static bool same_reservation(const vt_node *a, const vt_node *b) {
  return same_family(a, b) && strcmp(a->reservation, b->reservation) == 0;
}

// Reserved nodes take chips of their reservation; there must be enough for all of them together.
static vt_status room_reserved(vt_cloud *cloud, vt_arena *arena, const vt_node *nodes, size_t count,
                               bool *out_room) {
  groups own = {0}, all = {0};
  int64_t chips;
  for (size_t i = 0; i < count; i++) {
    if (!is_reserved(&nodes[i])) continue;
    add_to(arena, &own, &nodes[i], nodes[i].type->chips, same_reservation);
    add_to(arena, &all, &nodes[i], nodes[i].type->chips, same_family);
  }
  *out_room = true;
  for (size_t i = 0; i < own.size; i++) {
    VT_TRY(reserved_free(cloud, own.data[i].first, own.data[i].first->reservation, &chips));
    if (chips < own.data[i].sum) *out_room = false;
  }
  for (size_t i = 0; i < all.size; i++) {
    VT_TRY(reserved_free(cloud, all.data[i].first, "", &chips));
    if (chips < all.data[i].sum) *out_room = false;
  }
  return VT_OK;
}

// Spot nodes that already have notice count; more have to go until `missing` chips are covered.
// With `give_notice` they get notice, all or none.
static vt_status make_room(vt_cloud *cloud, const vt_node *node, int64_t missing, bool give_notice,
                           bool *out_enough) {
  vt_assert(missing > 0);
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
      vt_assert(vt_rows_int(rows, 1) > 0);
      missing -= vt_rows_int(rows, 1);
      if (!vt_rows_int(rows, 2)) vt_array_push_in(&arena, &victims, vt_rows_int(rows, 0));
    }
    st = vt_rows_end(rows);
  }
  *out_enough = missing <= 0;
  for (size_t i = 0; !st && give_notice && missing <= 0 && i < victims.size; i++) {
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

// How many chips of the group's family are missing in total; negative when spot nodes of the
// request would need them, since nothing makes room for those.
static vt_status count_missing(vt_cloud *cloud, const group *all, const vt_node *nodes,
                               size_t count, int64_t *out_missing) {
  int64_t free_chips, spot = 0;
  for (size_t i = 0; i < count; i++)
    if (!is_reserved(&nodes[i]) && vt_node_is_spot(&nodes[i]) && same_family(all->first, &nodes[i]))
      spot = vt_add_clamped(spot, nodes[i].type->chips);
  VT_TRY(vt_capacity_free(cloud, all->first->zone, all->first->type->family->name, &free_chips));
  vt_assert(spot <= all->sum);
  *out_missing = free_chips >= all->sum ? 0 : free_chips < spot ? -1 : all->sum - free_chips;
  return VT_OK;
}

// Whether all the nodes find room. Victims get notice only when that suffices.
static vt_status room_shared(vt_cloud *cloud, vt_arena *arena, const vt_node *nodes, size_t count,
                             vt_placement *out_placement) {
  groups list = {0};
  *out_placement = VT_PLACED;
  for (size_t i = 0; i < count; i++)
    if (!is_reserved(&nodes[i])) add_to(arena, &list, &nodes[i], nodes[i].type->chips, same_family);
  for (int give_notice = 0; give_notice < 2; give_notice++)
    for (size_t i = 0; i < list.size; i++) {
      int64_t missing;
      bool enough = true;
      VT_TRY(count_missing(cloud, &list.data[i], nodes, count, &missing));
      if (missing > 0) {
        VT_TRY(make_room(cloud, list.data[i].first, missing, give_notice, &enough));
        *out_placement = VT_PLACE_WAIT;
      }
      if (missing < 0 || !enough) {
        *out_placement = VT_PLACE_NONE;
        return VT_OK;
      }
    }
  return VT_OK;
}

vt_status vt_room(vt_cloud *cloud, const vt_node *nodes, size_t count,
                  vt_placement *out_placement) {
  vt_arena arena = {0};
  bool reserved;
  *out_placement = VT_PLACE_NONE;
  for (size_t i = 0; i < count; i++)
    if (vt_outage_now(cloud, nodes[i].zone)) return VT_OK;
  vt_status st = room_reserved(cloud, &arena, nodes, count, &reserved);
  if (!st && reserved) st = room_shared(cloud, &arena, nodes, count, out_placement);
  vt_arena_free(&arena);
  return st;
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
  if (is_reserved(node)) {
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
