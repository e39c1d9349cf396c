// SPDX-License-Identifier: Apache-2.0
// admin.c - our own calls under /vtpu/v1 for administrators and tests: clock, capacity, preemption,
// backup, metrics, the audit trail, ssh configuration.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cloud/api/account.h"
#include "cloud/api/handlers.h"
#include "cloud/api/metrics.h"
#include "cloud/control/reconcile.h"
#include "cloud/state/chip_use.h"
#include "cloud/state/node.h"
#include "cloud/state/scheduler.h"
#include "cloud/store/row.h"

enum { MAX_CHIPS = 10000000 }; // per zone or reservation

vt_status vt_health(vt_call *call) {
  call->reply = json_pack("{s:s}", "status", "ok");
  return VT_OK;
}

vt_status vt_metrics_get(vt_call *call) {
  call->content_type = "text/plain; version=0.0.4; charset=utf-8";
  VT_TRY(vt_metrics_write(call->cloud, &call->raw));
  return vt_use_metrics(call->cloud, &call->raw);
}

typedef struct journey {
  vt_cloud *cloud;
  int64_t to_ns;
} journey;

static vt_status travel(void *user) {
  const journey *j = user;
  return vt_reconcile_advance(j->cloud, j->to_ns);
}

// The clock moves outside the call's transaction: each step on the way has its own. What the guest
// drivers allocate outlives the call.
vt_status vt_admin_clock(vt_call *call) {
  int64_t seconds, to;
  char time[40];
  if (!call->cloud->options.virtual_time)
    return vt_error(VT_FAILED_PRECONDITION, "This cloud runs on real time.");
  VT_TRY(vt_call_integer(call, "seconds", 0, 400 * 86400, 0, &seconds));
  to = call->cloud->virtual_ns + seconds * VT_SECOND;
  if (to > VT_LAST_INSTANT) return vt_error(VT_INVALID_ARGUMENT, "The clock ends with 2199.");
  vt_store_rollback(call->cloud->store);
  vt_status st = vt_attempt_keep(travel, &(journey){call->cloud, to});
  if (st) vt_store_abandon(call->cloud->store);
  VT_TRY(vt_status_wrap(st, "clock"));
  VT_TRY(vt_store_begin(call->cloud->store));
  vt_time_format(vt_cloud_now(call->cloud), time);
  call->reply = json_pack("{s:s}", "now", time);
  return VT_OK;
}

vt_status vt_admin_faults(vt_call *call) {
  const json_t *body = call->body;
  vt_faults f = {.share = json_number_value(json_object_get(body, "share"))};
  int64_t code, seconds;
  VT_TRY(vt_call_integer(call, "code", 429, 503, 0, &code));
  VT_TRY(vt_call_integer(call, "delayMs", 0, 10000, 0, &f.delay_ms));
  VT_TRY(vt_call_integer(call, "seconds", 0, 86400, 0, &seconds));
  const json_t *share = json_object_get(body, "share");
  if ((share && !json_is_number(share)) || !(f.share >= 0 && f.share <= 1) ||
      (f.share > 0 && code != 429 && code != 503))
    return vt_error(VT_INVALID_ARGUMENT, "share is 0 to 1, code 429 or 503");
  f.exhausted = code == 429;
  f.until_ns = vt_cloud_now(call->cloud) + seconds * VT_SECOND;
  call->cloud->faults = f;
  call->reply = json_object();
  return VT_OK;
}

vt_status vt_admin_preempt(vt_call *call) {
  vt_node node;
  VT_TRY(vt_account_find_project(call, vt_call_param(call, "project")));
  VT_TRY(vt_node_find(call, &node));
  vt_status st = VT_OK;
  if (node.state != VT_NODE_READY)
    st = vt_error(VT_FAILED_PRECONDITION, "the node is %s, not READY",
                  vt_node_state_name(node.state));
  if (!st)
    st = vt_node_give_notice(call->cloud, &node, "PREEMPTED", "asked for by an administrator");
  vt_node_fini(&node);
  call->reply = json_object();
  return st;
}

vt_status vt_admin_capacity(vt_call *call) {
  const char *zone = json_string_value(json_object_get(call->body, "zone"));
  const char *family = json_string_value(json_object_get(call->body, "family"));
  int64_t chips;
  VT_TRY(vt_call_integer(call, "chips", 0, MAX_CHIPS, -1, &chips));
  if (!zone || !vt_zone_exists(zone) || !family || !vt_family_find(family) || chips < 0)
    return vt_error(VT_INVALID_ARGUMENT, "zone, family and chips are required");
  call->reply = json_object();
  const vt_capacity_row row = {.zone = zone, .family = family, .chips = chips};
  return vt_row_put(call->cloud->store, capacity, &row);
}

vt_status vt_admin_capacity_list(vt_call *call) {
  VT_ARRAY(json_t *) list = {0};
  vt_rows *rows;
  json_t *items = json_array();
  call->reply = json_pack("{s:o}", "capacity", items);
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT zone, family, chips FROM capacity ORDER BY zone, family", ""));
  while (vt_rows_next(rows)) {
    json_t *item = json_pack("{s:s, s:s, s:I}", "zone", vt_rows_text(rows, 0), "family",
                             vt_rows_text(rows, 1), "chips", (json_int_t)vt_rows_int(rows, 2));
    json_array_append_new(items, item);
    vt_array_push_in(&call->arena, &list, item);
  }
  VT_TRY(vt_rows_end(rows));
  for (size_t i = 0; i < list.size; i++) {
    int64_t free_chips;
    VT_TRY(vt_capacity_free(call->cloud, json_string_value(json_object_get(list.data[i], "zone")),
                            json_string_value(json_object_get(list.data[i], "family")),
                            &free_chips));
    json_object_set_new(list.data[i], "free", json_integer(free_chips));
  }
  return VT_OK;
}

vt_status vt_admin_reservation(vt_call *call) {
  const char *project = json_string_value(json_object_get(call->body, "project"));
  const char *zone = json_string_value(json_object_get(call->body, "zone"));
  const char *id = json_string_value(json_object_get(call->body, "id"));
  const char *family = json_string_value(json_object_get(call->body, "family"));
  int64_t chips, days, now = vt_cloud_now(call->cloud);
  VT_TRY(vt_call_integer(call, "chips", 1, MAX_CHIPS, 0, &chips));
  VT_TRY(vt_call_integer(call, "days", 1, 3660, 365, &days));
  if (!project || !zone || !vt_zone_exists(zone) || !id || !vt_node_id_valid(id) || !family ||
      !vt_family_find(family) || chips < 1)
    return vt_error(VT_INVALID_ARGUMENT, "project, zone, id, family and chips are required");
  VT_TRY(vt_account_find_project(call, project));
  call->reply = json_object();
  const vt_reservations_row row = {.project = call->project,
                                   .zone = zone,
                                   .id = id,
                                   .family = family,
                                   .chips = chips,
                                   .state = "ACTIVE",
                                   .start_ns = now,
                                   .end_ns = now + days * VT_DAY};
  return vt_row_insert(call->cloud->store, reservations, &row);
}

// Copies the database to a file beside the live one; never outside the state folder.
vt_status vt_admin_backup(vt_call *call) {
  if (!*call->cloud->options.state_dir)
    return vt_error(VT_FAILED_PRECONDITION, "This cloud keeps its state in memory.");
  const char *path =
      vt_arena_printf(&call->arena, "%s/backup-%lld.db", call->cloud->options.state_dir,
                      (long long)(vt_cloud_now(call->cloud) / VT_SECOND));
  vt_store_rollback(call->cloud->store);
  vt_status st = vt_store_backup(call->cloud->store, path);
  VT_TRY(vt_status_wrap(st, "backup"));
  VT_TRY(vt_store_begin(call->cloud->store));
  call->reply = json_pack("{s:s}", "path", path);
  return VT_OK;
}

static vt_status events(vt_call *call, const char *project) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT at_ns, kind, project, actor, target, detail FROM events WHERE (? = "
                        "'' OR project = ?) AND kind <> "
                        "'secret' ORDER BY id DESC LIMIT 500",
                        "ss", project, project));
  json_t *items = json_array();
  while (vt_rows_next(rows)) {
    char time[40];
    vt_time_format(vt_rows_int(rows, 0), time);
    json_array_append_new(items, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "time", time, "kind",
                                           vt_rows_text(rows, 1), "project", vt_rows_text(rows, 2),
                                           "actor", vt_rows_text(rows, 3), "target",
                                           vt_rows_text(rows, 4), "detail", vt_rows_text(rows, 5)));
  }
  call->reply = json_pack("{s:o}", "events", items);
  return vt_rows_end(rows);
}

vt_status vt_admin_events(vt_call *call) {
  return events(call, "");
}
vt_status vt_project_events(vt_call *call) {
  return events(call, call->project);
}

vt_status vt_project_quota(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(
      call->cloud->store, &rows,
      "SELECT quota, place, units FROM quotas WHERE project = ? ORDER BY quota, place", "s",
      call->project));
  json_t *items = json_array();
  while (vt_rows_next(rows))
    json_array_append_new(items, json_pack("{s:s, s:s, s:I}", "quota", vt_rows_text(rows, 0),
                                           "place", vt_rows_text(rows, 1), "units",
                                           (json_int_t)vt_rows_int(rows, 2)));
  call->reply = json_pack("{s:o}", "quota", items);
  return vt_rows_end(rows);
}

// `faithful`: a preempted node stays and holds its quota until somebody deletes it, as in the real
// cloud. `kind`: its quota is free at once, and the node is removed automatically.
vt_status vt_personality_get(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows, "SELECT personality FROM projects WHERE id = ?",
                        "s", call->project));
  if (vt_rows_next(rows)) call->reply = json_pack("{s:s}", "personality", vt_rows_text(rows, 0));
  return vt_rows_end(rows);
}

vt_status vt_personality_set(vt_call *call) {
  const char *personality = json_string_value(json_object_get(call->body, "personality"));
  if (!personality || (strcmp(personality, "faithful") != 0 && strcmp(personality, "kind") != 0))
    return vt_error(VT_INVALID_ARGUMENT, "personality has to be faithful or kind");
  VT_TRY(vt_store_run(call->cloud->store, NULL, "UPDATE projects SET personality = ? WHERE id = ?",
                      "ss", personality, call->project));
  return vt_personality_get(call);
}

// Blocks for ~/.ssh/config, for plain ssh and editors that connect over it.
vt_status vt_ssh_config(vt_call *call) {
  vt_rows *rows;
  VT_TRY(vt_store_query(call->cloud->store, &rows,
                        "SELECT nodes.id, nodes.zone, nodes.uid, workers.worker, workers.ip, "
                        "nodes.workers FROM nodes, workers WHERE "
                        "nodes.project = ? AND workers.node = nodes.uid ORDER BY nodes.zone, "
                        "nodes.id, workers.worker",
                        "s", call->project));
  const char *user = vt_call_query(call, "user");
  if (!user || !*user || strspn(user, "abcdefghijklmnopqrstuvwxyz0123456789_-") != strlen(user))
    user = vt_arena_printf(&call->arena, "%.*s", (int)strcspn(call->caller, "@"), call->caller);
  while (vt_rows_next(rows)) {
    const char *id = vt_rows_text(rows, 0);
    bool many = vt_rows_int(rows, 5) > 1;
    vt_text_printf(&call->raw, "Host %s", id);
    if (many) vt_text_printf(&call->raw, "-w%lld", (long long)vt_rows_int(rows, 3));
    vt_text_printf(&call->raw,
                   "\n  HostName %s\n  User %s\n  IdentityFile ~/.ssh/google_compute_engine\n  "
                   "HostKeyAlias tpu.%lld-%lld\n"
                   "  StrictHostKeyChecking accept-new\n\n",
                   vt_rows_text(rows, 4), user, (long long)vt_rows_int(rows, 2),
                   (long long)vt_rows_int(rows, 3));
  }
  return vt_rows_end(rows);
}
