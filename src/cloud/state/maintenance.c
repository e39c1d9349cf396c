// SPDX-License-Identifier: Apache-2.0
// maintenance.c - node maintenance: announced for a time, with a reminder an hour before; begins at
// its time, earlier at the owner's request, or at once through a simulated event. A node's row has
// one word for it and one time: ANNOUNCED and SOON (the reminder was sent) until the window begins,
// SCHEDULED or UNSCHEDULED while it lasts and the node is REPAIRING. The table below maps each word
// to what clients see; the reconciler ends it, like any repair.
#include <string.h>

#include "cloud/api/account.h"
#include "cloud/api/handlers.h"
#include "cloud/state/node.h"
#include "cloud/state/node_life.h"
#include "cloud/state/operation.h"
#include "cloud/state/queue.h"

static const struct word {
  const char *word, *type, *status;
  bool begun, near; // near: programs on the node should save their work
} words[] = {{"ANNOUNCED", "SCHEDULED", "PENDING", false, false},
             {"SOON", "SCHEDULED", "PENDING", false, true},
             {"SCHEDULED", "SCHEDULED", "ONGOING", true, true},
             {"UNSCHEDULED", "UNSCHEDULED", "ONGOING", true, true}};

static const struct word *word_of(const vt_node *node) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i].word, node->maintenance) == 0) return &words[i];
  return NULL;
}

bool vt_maintenance_ongoing(const vt_node *node) {
  const struct word *w = word_of(node);
  return w && w->begun;
}

bool vt_maintenance_near(const vt_node *node) {
  const struct word *w = word_of(node);
  return w && w->near;
}

json_t *vt_maintenance_view(const vt_cloud *cloud, const vt_node *node) {
  const struct word *w = word_of(node);
  char start[40], end[40];
  if (!w) return NULL;
  vt_time_format(node->maintenance_ns, start);
  vt_time_format(node->maintenance_ns + cloud->options.notice_ns, end);
  return json_pack("{s:s, s:s, s:b, s:s, s:s, s:s}", "type", w->type, "maintenanceStatus",
                   w->status, "canReschedule", !w->begun, "windowStartTime", start, "windowEndTime",
                   end, "latestWindowStartTime", start);
}

static vt_status event(vt_cloud *cloud, vt_arena *arena, const vt_node *node, const char *actor,
                       const char *detail) {
  vt_cloud_poke(cloud);
  return vt_cloud_event(cloud, "maintenance", node->project, actor, vt_node_name(arena, node),
                        detail);
}

static vt_status begin(vt_cloud *cloud, vt_node *node, bool scheduled) {
  node->maintenance = scheduled ? "SCHEDULED" : "UNSCHEDULED";
  node->maintenance_ns = vt_cloud_now(cloud);
  node->health = "UNHEALTHY_MAINTENANCE";
  node->health_text = "The TPU had a maintenance event.";
  return vt_node_set_state(cloud, node, VT_NODE_REPAIRING, "maintenance event");
}

vt_status vt_maintenance_step(vt_cloud *cloud, vt_arena *arena, vt_node *node) {
  const struct word *w = word_of(node);
  int64_t now = vt_cloud_now(cloud);
  if (!w || w->begun) return VT_OK;
  if (now >= node->maintenance_ns) {
    if (node->state == VT_NODE_READY) return begin(cloud, node, true);
    node->maintenance = ""; // nothing runs on it
    node->maintenance_ns = 0;
    return vt_node_save(cloud, node);
  }
  if (w->near || now < node->maintenance_ns - VT_MAINTENANCE_REMINDER_NS) return VT_OK;
  node->maintenance = "SOON";
  VT_TRY(vt_node_save(cloud, node));
  return event(cloud, arena, node, "vtpud", "the maintenance begins within the hour");
}

// --- calls ---------------------------------------------------------------------------------------

static vt_status refuse(vt_call *call, const char *target, int64_t uid, const char *why) {
  const char *operation;
  char eid[24];
  vt_error_id(why, eid);
  const char *text =
      vt_arena_printf(&call->arena, "Cloud TPU received a bad request. %s [EID: %s]", why, eid);
  VT_TRY(vt_operation_for_call(call, "maintenance", target, uid, &operation));
  VT_TRY(
      vt_operation_finish(call->cloud, operation, vt_rpc_status(VT_INVALID_ARGUMENT, text), NULL));
  return vt_operation_reply(call, operation);
}

// Starts an event now: a simulated one, or the announced one early.
static vt_status now_for(vt_call *call, bool announced_only) {
  vt_node node;
  const char *operation;
  json_t *response = NULL;
  VT_TRY(vt_node_find(call, &node));
  const struct word *w = word_of(&node);
  const char *name = vt_node_name(&call->arena, &node);
  vt_status st = VT_OK;
  if (node.state != VT_NODE_READY) {
    st = refuse(call, name, node.uid,
                vt_arena_printf(&call->arena, "maintenance is not supported while in state %s",
                                vt_node_state_name(node.state)));
    goto out;
  }
  if (announced_only && !w) {
    st = refuse(call, name, node.uid, "the node has no upcoming maintenance to perform");
    goto out;
  }
  VT_TRY_OUT(begin(call->cloud, &node, w != NULL && announced_only));
  VT_TRY_OUT(vt_operation_for_call(call, "maintenance", name, node.uid, &operation));
  VT_TRY_OUT(vt_node_response(call->cloud, &node, call->api_name, &response));
  VT_TRY_OUT(vt_operation_finish(call->cloud, operation, NULL, response));
  st = vt_operation_reply(call, operation);
out:
  vt_node_fini(&node);
  return st;
}

vt_status vt_nodes_simulate_maintenance(vt_call *call) {
  return now_for(call, false);
}

vt_status vt_nodes_perform_maintenance(vt_call *call) {
  return now_for(call, true);
}

vt_status vt_queued_maintenance_info(vt_call *call) {
  vt_queued q;
  int64_t *nodes;
  size_t count;
  VT_TRY(vt_queued_find(call, &q));
  json_t *list = json_array();
  call->reply = json_pack("{s:o}", "nodeUpcomingMaintenances", list);
  vt_status st = vt_queued_nodes(call->cloud, &call->arena, &q, &nodes, &count);
  for (size_t i = 0; i < count && !st; i++) {
    vt_node node;
    bool found;
    st = vt_node_load_uid(call->cloud, &call->arena, nodes[i], &node, &found);
    json_t *upcoming = !st && found ? vt_maintenance_view(call->cloud, &node) : NULL;
    if (upcoming)
      json_array_append_new(
          list, json_pack("{s:s, s:s, s:o}", "nodeName", vt_node_name(&call->arena, &node),
                          "nodeUid", vt_arena_printf(&call->arena, "%lld", (long long)node.uid),
                          "upcomingMaintenance", upcoming));
    vt_node_fini(&node);
  }
  vt_queued_fini(&q);
  return st;
}

// Whether nodeNames contains the node, by id or full name; an empty list matches all.
static bool named(vt_call *call, const vt_node *node) {
  const json_t *names = json_object_get(call->body, "nodeNames"), *item;
  const char *name = vt_node_name(&call->arena, node);
  size_t i;
  json_array_foreach(names, i, item) if (json_is_string(item) &&
                                         (strcmp(json_string_value(item), node->id) == 0 ||
                                          strcmp(json_string_value(item), name) == 0)) return true;
  return json_array_size(names) == 0;
}

vt_status vt_queued_maintenance(vt_call *call) {
  vt_queued q;
  const char *operation;
  int64_t *nodes;
  size_t count, begun = 0;
  VT_TRY(vt_queued_find(call, &q));
  const char *target = vt_call_name(call, "queuedResources", q.id);
  vt_status st = vt_queued_nodes(call->cloud, &call->arena, &q, &nodes, &count);
  for (size_t i = 0; i < count && !st; i++) {
    vt_node node;
    bool found;
    st = vt_node_load_uid(call->cloud, &call->arena, nodes[i], &node, &found);
    const struct word *w = !st && found ? word_of(&node) : NULL;
    if (w && !w->begun && node.state == VT_NODE_READY && named(call, &node)) {
      st = begin(call->cloud, &node, true);
      begun++;
    }
    vt_node_fini(&node);
  }
  if (!st && !begun) {
    st = refuse(call, target, q.uid, "no node of it has upcoming maintenance to perform");
  } else if (!st) {
    st = vt_operation_for_call(call, "maintenance", target, q.uid, &operation);
    if (!st) st = vt_operation_finish(call->cloud, operation, NULL, NULL);
    if (!st) st = vt_operation_reply(call, operation);
  }
  vt_queued_fini(&q);
  return st;
}

// {"seconds": n}: announces it for n seconds from now; {"cancel": true} cancels it.
vt_status vt_admin_maintenance(vt_call *call) {
  vt_node node;
  int64_t seconds;
  bool cancel = json_is_true(json_object_get(call->body, "cancel"));
  VT_TRY(vt_account_find_project(call, vt_call_param(call, "project")));
  VT_TRY(vt_call_integer(call, "seconds", 0, 90 * 86400, -1, &seconds));
  if (!cancel && seconds < 0)
    return vt_error(VT_INVALID_ARGUMENT,
                    "seconds until the maintenance begins, 0 to 90 days, or cancel");
  VT_TRY(vt_node_find(call, &node));
  vt_status st = VT_OK;
  if (vt_maintenance_ongoing(&node))
    st = vt_error(VT_FAILED_PRECONDITION, "the node is in maintenance now");
  if (!st && !cancel && node.state != VT_NODE_READY)
    st = vt_error(VT_FAILED_PRECONDITION, "the node is %s, not READY",
                  vt_node_state_name(node.state));
  node.maintenance = cancel ? "" : "ANNOUNCED";
  node.maintenance_ns = cancel ? 0 : vt_cloud_now(call->cloud) + seconds * VT_SECOND;
  char time[40];
  vt_time_format(node.maintenance_ns, time);
  if (!st) st = vt_node_save(call->cloud, &node);
  if (!st)
    st = event(call->cloud, &call->arena, &node, call->caller,
               cancel ? "the maintenance is called off"
                      : vt_arena_printf(&call->arena, "maintenance is announced for %s", time));
  if (!st) {
    json_t *view = vt_maintenance_view(call->cloud, &node);
    call->reply = json_object();
    if (view) json_object_set_new(call->reply, "upcomingMaintenance", view);
  }
  vt_node_fini(&node);
  return st;
}
