// SPDX-License-Identifier: Apache-2.0
// reconcile.c - the steps of reconcile.h: nodes in transition, expired notices, the queue, alerts.
// Order within a pass: nodes that are ending (they free chips), then nodes that are starting, then
// the queue by rank and age. A failed step is logged and retried in the next pass; it never stops
// the others.
#include "base/check.h"
#include "cloud/control/reconcile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/log.h"
#include "cloud/api/token.h"
#include "cloud/control/guest.h"
#include "cloud/door/metadata.h"
#include "cloud/state/billing.h"
#include "cloud/state/disk.h"
#include "cloud/state/grant.h"
#include "cloud/state/health.h"
#include "cloud/state/node_life.h"
#include "cloud/state/operation.h"
#include "cloud/state/queue.h"
#include "cloud/state/retention.h"
#include "cloud/state/scheduler.h"

typedef struct step {
  int64_t uid;
  vt_arena arena;
  bool changed, busy;
} step;

typedef vt_status (*step_work)(vt_cloud *cloud, void *step);

// --- nodes ---------------------------------------------------------------------------------------

static vt_status finish(vt_cloud *cloud, step *s, const vt_node *node, const char *verb,
                        json_t *error) {
  const char *name, *api;
  json_t *response = NULL;
  VT_TRY(vt_operation_open_of(cloud, &s->arena, node->uid, verb, &name, &api));
  if (!*name) {
    json_decref(error);
    return VT_OK;
  }
  // The response of a delete differs: the node in the old API, empty in the new one.
  if (!error && (strcmp(verb, "delete") != 0 || strncmp(api, "v1", 2) == 0))
    VT_TRY(vt_node_response(cloud, node, api, &response));
  return vt_operation_finish(cloud, name, error, response);
}

static vt_status finish_all(vt_cloud *cloud, step *s, const vt_node *node, vt_code code,
                            const char *why) {
  for (;;) {
    const char *name, *api;
    VT_TRY(vt_operation_open_of(cloud, &s->arena, node->uid, "", &name, &api));
    if (!*name) return VT_OK;
    VT_TRY(vt_operation_finish(cloud, name, vt_rpc_status(code, why), NULL));
  }
}

// Boots the workers that are not up. The combined state of all workers is the worst one; RUNNING
// when all run.
static vt_status boot(vt_cloud *cloud, step *s, const vt_node *node, vt_guest_state *out_state) {
  *out_state = VT_GUEST_RUNNING;
  for (int64_t w = 0; w < node->workers; w++) {
    const char *ip;
    VT_TRY(vt_node_worker_ip(cloud, &s->arena, node->uid, w, &ip));
    vt_guest_state state = cloud->guests->poll(cloud->guests, node, w, ip);
    if (state == VT_GUEST_ABSENT) {
      vt_status st = cloud->guests->start(cloud->guests, node, w, ip);
      if (st) {
        vt_log(VT_LOG_WARNING, "%s worker %d: %s", node->id, (int)w, vt_status_message(st));
        vt_status_free(st);
        *out_state = VT_GUEST_FAILED;
        return VT_OK;
      }
      state = cloud->guests->poll(cloud->guests, node, w, ip);
    }
    if (state > *out_state) *out_state = state;
  }
  return VT_OK;
}

static bool end_guests(vt_cloud *cloud, const vt_node *node, bool erase) {
  bool gone = true;
  for (int64_t w = 0; w < node->workers; w++)
    if (!cloud->guests->stop(cloud->guests, node->uid, w, erase)) gone = false;
  return gone;
}

static vt_status give_up(vt_cloud *cloud, step *s, vt_node *node, const char *verb, json_t *error) {
  s->changed = true;
  VT_TRY(finish(cloud, s, node, verb, error));
  // Workers that did boot are ended on failure.
  if (strcmp(verb, "create") == 0)
    return vt_node_set_state(cloud, node, VT_NODE_DELETING, "could not be created");
  end_guests(cloud, node, false);
  return vt_node_set_state(cloud, node, VT_NODE_STOPPED, "could not start");
}

static void end_by(vt_node *node, int64_t ends_ns) {
  if (!node->ends_ns || ends_ns < node->ends_ns) node->ends_ns = ends_ns;
}

static vt_status now_ready(vt_cloud *cloud, step *s, vt_node *node, const char *verb) {
  int64_t now = vt_cloud_now(cloud),
          bound = json_integer_value(json_object_get(node->body, "bounded_ns")),
          until = json_integer_value(json_object_get(node->body, "ends_at_ns"));
  bool creating = node->state == VT_NODE_CREATING;
  s->changed = true;
  if (strcmp(node->klass, "preemptible") == 0)
    node->ends_ns = now + cloud->options.preemptible_limit_ns;
  if (bound > 0) end_by(node, vt_add_clamped(now, bound));
  if (until > 0) end_by(node, until);
  VT_TRY(vt_node_set_state(cloud, node, VT_NODE_READY, "all workers answer"));
  if (creating) VT_TRY(vt_bill_open_disk(cloud, node));
  return finish(cloud, s, node, verb, NULL);
}

// The back end took a worker away: the whole slice is gone, as at the end of a notice.
static vt_status taken_away(vt_cloud *cloud, step *s, vt_node *node) {
  s->changed = true;
  VT_TRY(vt_node_give_notice(cloud, node, "PREEMPTED", "its place in the cluster was taken"));
  node->notice_ns = vt_cloud_now(cloud) - cloud->options.notice_ns;
  return vt_node_save(cloud, node);
}

static vt_status come_up(vt_cloud *cloud, step *s, vt_node *node, const char *verb) {
  vt_placement placement;
  vt_guest_state state;
  if (vt_outage_now(cloud, node->zone))
    return *node->queued ? VT_OK : give_up(cloud, s, node, verb, vt_outage_error(node));
  if (!node->placed) { // the budget may be spent by now
    vt_status st = vt_bill_may_begin(cloud, node->project);
    if (vt_status_code(st) == VT_FAILED_PRECONDITION) {
      json_t *error = vt_rpc_status(VT_FAILED_PRECONDITION, vt_status_message(st));
      vt_status_free(st);
      return give_up(cloud, s, node, verb, error);
    }
    VT_TRY(st);
  }
  VT_TRY(vt_place(cloud, node, &placement));
  if (placement == VT_PLACE_NONE) return give_up(cloud, s, node, verb, vt_place_error(node));
  if (placement == VT_PLACE_WAIT) return VT_OK;
  VT_TRY(boot(cloud, s, node, &state));
  if (state == VT_GUEST_PREEMPTED) return taken_away(cloud, s, node);
  // A queued resource waits; the creator of a node gets the error at once.
  if (state == VT_GUEST_NO_ROOM && !*node->queued)
    return give_up(cloud, s, node, verb, vt_place_error(node));
  if (state == VT_GUEST_FAILED)
    return give_up(cloud, s, node, verb,
                   vt_rpc_status(VT_INTERNAL, "A worker of the TPU did not start."));
  if (state == VT_GUEST_RUNNING) return now_ready(cloud, s, node, verb);
  s->busy = true;
  return VT_OK;
}

static vt_status go_down(vt_cloud *cloud, step *s, vt_node *node) {
  bool erase = node->state == VT_NODE_DELETING;
  if (!end_guests(cloud, node, erase)) {
    s->busy = true;
    return VT_OK;
  }
  s->changed = true;
  if (node->state == VT_NODE_STOPPING) {
    VT_TRY(vt_node_set_state(cloud, node, VT_NODE_STOPPED, "guests ended"));
    return finish(cloud, s, node, "stop", NULL);
  }
  VT_TRY(finish(cloud, s, node, "delete", NULL));
  VT_TRY(finish_all(cloud, s, node, VT_CANCELLED, "The TPU was deleted."));
  return vt_node_remove(cloud, node);
}

// The end of a maintenance event, or of a repair once the guests are back.
static vt_status repair(vt_cloud *cloud, step *s, vt_node *node) {
  vt_guest_state state;
  bool maintenance = vt_maintenance_ongoing(node);
  if (vt_outage_now(cloud, node->zone)) {
    if (!end_guests(cloud, node, false)) s->busy = true;
    return VT_OK;
  }
  if (maintenance && vt_cloud_now(cloud) < node->maintenance_ns + cloud->options.notice_ns)
    return VT_OK;
  VT_TRY(boot(cloud, s, node, &state));
  if (state == VT_GUEST_PREEMPTED) return taken_away(cloud, s, node);
  if (state == VT_GUEST_FAILED) {
    s->changed = true;
    node->health = "TIMEOUT";
    node->health_text = "A worker does not come back.";
    return vt_node_set_state(cloud, node, VT_NODE_UNKNOWN, "repair failed");
  }
  if (state != VT_GUEST_RUNNING) {
    s->busy = true;
    return VT_OK;
  }
  s->changed = true;
  if (maintenance) {
    node->maintenance = "";
    node->maintenance_ns = 0;
  }
  return vt_node_set_state(cloud, node, VT_NODE_READY, "repaired");
}

static vt_status reimage(vt_cloud *cloud, step *s, vt_node *node) {
  if (!end_guests(cloud, node, true)) {
    s->busy = true;
    return VT_OK;
  }
  s->changed = true;
  VT_TRY(vt_node_set_state(cloud, node, VT_NODE_STARTING, "new image"));
  return VT_OK;
}

// An expired notice, and the approaching end of a bounded node.
static vt_status end_notice(vt_cloud *cloud, step *s, vt_node *node) {
  int64_t now = vt_cloud_now(cloud), notice = cloud->options.notice_ns;
  if (node->ends_ns && !node->notice_ns && now >= node->ends_ns - notice) {
    bool preemptible = strcmp(node->klass, "preemptible") == 0;
    s->changed = true;
    VT_TRY(vt_node_give_notice(cloud, node, preemptible ? "PREEMPTED" : "TERMINATED",
                               "its time is over"));
    for (int64_t w = 0; w < node->workers; w++) cloud->guests->notify(cloud->guests, node->uid, w);
  }
  if (!node->notice_ns || now < node->notice_ns + notice) return VT_OK;
  if (!end_guests(cloud, node, true)) {
    s->busy = true;
    return VT_OK;
  }
  s->changed = true;
  bool preempted = strcmp(node->notice, "PREEMPTED") == 0;
  VT_TRY(finish_all(cloud, s, node, VT_ABORTED, "The TPU was preempted."));
  if (preempted) return vt_node_set_state(cloud, node, VT_NODE_PREEMPTED, "capacity taken back");
  return vt_node_set_state(cloud, node, VT_NODE_TERMINATED, "its time is over");
}

// READY nodes whose guests died restart through REPAIRING; those whose guests only do not answer
// show it in their health.
static vt_status check_ready(vt_cloud *cloud, step *s, vt_node *node) {
  for (int64_t w = 0; w < node->workers; w++) {
    const char *ip;
    VT_TRY(vt_node_worker_ip(cloud, &s->arena, node->uid, w, &ip));
    vt_guest_state state = cloud->guests->poll(cloud->guests, node, w, ip);
    if (state == VT_GUEST_RUNNING || state == VT_GUEST_UNKNOWN) continue;
    if (state == VT_GUEST_PREEMPTED) return taken_away(cloud, s, node);
    s->changed = true;
    node->health = "TIMEOUT";
    node->health_text = "A worker does not answer.";
    if (state == VT_GUEST_FAILED) cloud->guests->stop(cloud->guests, node->uid, w, false);
    return vt_node_set_state(cloud, node, VT_NODE_REPAIRING, "a worker was lost");
  }
  vt_health_expect(cloud, node, false);
  return vt_health_settle(cloud, &s->arena, node, &s->changed);
}

static vt_status step_node(vt_cloud *cloud, void *context) {
  step *s = context;
  vt_node node;
  bool found;
  VT_TRY(vt_node_load_uid(cloud, &s->arena, s->uid, &node, &found));
  if (!found) return VT_OK;
  vt_status st = VT_OK;
  if (node.notice_ns || (node.ends_ns && node.state == VT_NODE_READY)) {
    VT_TRY_OUT(end_notice(cloud, s, &node));
    if (s->changed || s->busy) goto out;
  }
  switch (node.state) {
  case VT_NODE_CREATING:
    st = come_up(cloud, s, &node, "create");
    break;
  case VT_NODE_STARTING: {
    const char *name, *api;
    VT_TRY_OUT(vt_operation_open_of(cloud, &s->arena, node.uid, "reimage", &name, &api));
    st = come_up(cloud, s, &node, *name ? "reimage" : "start");
    break;
  }
  case VT_NODE_STOPPING:
  case VT_NODE_DELETING:
    st = go_down(cloud, s, &node);
    break;
  case VT_NODE_REIMAGING:
    st = reimage(cloud, s, &node);
    break;
  case VT_NODE_RESTARTING:
  case VT_NODE_REPAIRING:
    st = repair(cloud, s, &node);
    break;
  case VT_NODE_READY:
    st = check_ready(cloud, s, &node);
    break;
  default:
    break;
  }
out:
  vt_node_fini(&node);
  return st;
}

// A READY node in a zone with an outage.
static vt_status step_outage(vt_cloud *cloud, void *context) {
  step *s = context;
  vt_node node;
  bool found;
  VT_TRY(vt_node_load_uid(cloud, &s->arena, s->uid, &node, &found));
  vt_status st = VT_OK;
  if (!found || node.state != VT_NODE_READY) goto out;
  s->changed = true;
  if (!vt_node_is_spot(&node)) {
    node.health = "TIMEOUT";
    node.health_text = "The zone is out.";
    st = vt_node_set_state(cloud, &node, VT_NODE_REPAIRING, "the zone is out");
  } else if (end_guests(cloud, &node, true)) {
    VT_TRY_OUT(finish_all(cloud, s, &node, VT_ABORTED, "The TPU was preempted."));
    st = vt_node_set_state(cloud, &node, VT_NODE_PREEMPTED, "the zone is out");
  } else {
    s->changed = false;
    s->busy = true;
  }
out:
  vt_node_fini(&node);
  return st;
}

static vt_status step_maintenance(vt_cloud *cloud, void *context) {
  step *s = context;
  vt_node node;
  bool found;
  VT_TRY(vt_node_load_uid(cloud, &s->arena, s->uid, &node, &found));
  s->changed = found;
  vt_status st = found ? vt_maintenance_step(cloud, &s->arena, &node) : VT_OK;
  vt_node_fini(&node);
  return st;
}

// In "kind" projects preempted nodes do not hold quota: they are removed automatically.
static vt_status step_reap(vt_cloud *cloud, void *context) {
  step *s = context;
  vt_node node;
  bool found;
  VT_TRY(vt_node_load_uid(cloud, &s->arena, s->uid, &node, &found));
  vt_status st = VT_OK;
  if (found && node.state == VT_NODE_PREEMPTED && !*node.queued) {
    s->changed = true;
    st = vt_node_set_state(cloud, &node, VT_NODE_DELETING,
                           "preempted nodes of this project are removed");
  }
  vt_node_fini(&node);
  return st;
}

// A metadata update is done when all workers know its users, or after ten seconds.
static vt_status step_update(vt_cloud *cloud, void *context) {
  step *s = context;
  vt_node node;
  bool found, synced = true;
  VT_TRY(vt_node_load_uid(cloud, &s->arena, s->uid, &node, &found));
  if (!found) return VT_OK;
  vt_status st = vt_metadata_synced(cloud, &node, &synced);
  for (int64_t w = 0; !st && w < node.workers; w++) {
    const char *ip;
    st = vt_node_worker_ip(cloud, &s->arena, node.uid, w, &ip);
    if (!st && !cloud->guests->disks(cloud->guests, &node, w, ip)) synced = false;
  }
  int64_t begun = 0;
  if (!st)
    st = vt_store_int(
        cloud->store, &begun, 0,
        "SELECT MIN(created_ns) FROM operations WHERE done = 0 AND node = ? AND verb = 'update'",
        "i", s->uid);
  if (!st && !synced && vt_cloud_now(cloud) < begun + 10 * VT_SECOND &&
      node.state == VT_NODE_READY) {
    s->busy = true;
  } else if (!st) {
    s->changed = true;
    st = finish(cloud, s, &node, "update", NULL);
  }
  vt_node_fini(&node);
  return st;
}

// --- queued resources ----------------------------------------------------------------------------

static vt_status remove_nodes(vt_cloud *cloud, step *s, const vt_queued *q, size_t *out_left) {
  int64_t *uids;
  VT_TRY(vt_queued_nodes(cloud, &s->arena, q, &uids, out_left));
  for (size_t i = 0; i < *out_left; i++) {
    vt_node node;
    bool found;
    VT_TRY(vt_node_load_uid(cloud, &s->arena, uids[i], &node, &found));
    vt_status st = VT_OK;
    if (found && node.state != VT_NODE_DELETING) {
      s->changed = true;
      st = vt_node_set_state(cloud, &node, VT_NODE_DELETING, "its queued resource ends");
    }
    vt_node_fini(&node);
    if (st) return st;
  }
  return VT_OK;
}

// How many of its nodes are READY, in transition, or lost.
static vt_status count_nodes(vt_cloud *cloud, const vt_queued *q, int64_t *out_ready,
                             int64_t *out_coming, int64_t *out_lost) {
  vt_rows *rows;
  *out_ready = *out_coming = *out_lost = 0;
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT state, COUNT(*) FROM nodes WHERE project = ? AND zone = ? AND queued = ? "
      "GROUP BY state",
      "sss", q->project, q->zone, q->id));
  while (vt_rows_next(rows)) {
    const char *state = vt_rows_text(rows, 0);
    int64_t *sum = strcmp(state, "READY") == 0 || strcmp(state, "REPAIRING") == 0     ? out_ready
                   : strcmp(state, "CREATING") == 0 || strcmp(state, "STARTING") == 0 ? out_coming
                                                                                      : out_lost;
    *sum += vt_rows_int(rows, 1);
  }
  return vt_rows_end(rows);
}

static vt_status delete_queued(vt_cloud *cloud, step *s, vt_queued *q) {
  size_t left;
  const char *name, *api;
  VT_TRY(remove_nodes(cloud, s, q, &left));
  if (left) return VT_OK;
  s->changed = true;
  VT_TRY(vt_operation_open_of(cloud, &s->arena, q->uid, "delete", &name, &api));
  json_t *response = NULL;
  if (strcmp(api, "v2alpha1") == 0) { // v2 returns nothing here, v2alpha1 the request
    VT_TRY(vt_queued_view(cloud, q, &response));
    json_object_set_new(
        response, "@type",
        json_string("type.googleapis.com/google.cloud.tpu.v2alpha1.QueuedResource"));
  }
  if (*name) VT_TRY(vt_operation_finish(cloud, name, NULL, response));
  return vt_queued_remove(cloud, q);
}

static vt_status watch_active(vt_cloud *cloud, step *s, vt_queued *q) {
  int64_t ready, coming, lost;
  VT_TRY(count_nodes(cloud, q, &ready, &coming, &lost));
  bool active = strcmp(q->state, "ACTIVE") == 0;
  if (lost || (active && ready + coming == 0)) {
    s->changed = true;
    return vt_queued_set_state(cloud, q, "SUSPENDING", "SERVICE", NULL);
  }
  if (active) return VT_OK;
  if (ready + coming == 0) {
    s->changed = true;
    return vt_queued_set_state(cloud, q, "FAILED", "SERVICE",
                               vt_rpc_status(VT_INTERNAL, "The nodes could not be started."));
  }
  if (coming) return VT_OK;
  s->changed = true;
  return vt_queued_set_state(cloud, q, "ACTIVE", "SERVICE", NULL);
}

static vt_status suspend(vt_cloud *cloud, step *s, vt_queued *q) {
  size_t left;
  VT_TRY(remove_nodes(cloud, s, q, &left));
  if (left) return VT_OK;
  s->changed = true;
  return vt_queued_set_state(cloud, q, "SUSPENDED", "SERVICE", NULL);
}

static vt_status step_queued(vt_cloud *cloud, void *context) {
  step *s = context;
  vt_queued q;
  bool found;
  VT_TRY(vt_queued_load_uid(cloud, &s->arena, s->uid, &q, &found));
  if (!found) return VT_OK;
  vt_status st = VT_OK;
  if (strcmp(q.state, "DELETING") == 0)
    st = delete_queued(cloud, s, &q);
  else if (strcmp(q.state, "SUSPENDING") == 0)
    st = suspend(cloud, s, &q);
  else if (strcmp(q.state, "ACTIVE") == 0 || strcmp(q.state, "PROVISIONING") == 0)
    st = watch_active(cloud, s, &q);
  vt_queued_fini(&q);
  return st;
}

typedef struct provision {
  step s;
  int placement;
} provision;

static vt_status work_provision(vt_cloud *cloud, void *context) {
  provision *p = context;
  vt_queued q;
  bool found;
  VT_TRY(vt_queued_load_uid(cloud, &p->s.arena, p->s.uid, &q, &found));
  vt_status st = VT_OK;
  if (found) st = vt_queued_provision(cloud, &p->s.arena, &q, &p->placement);
  if (found && !st && p->placement == VT_PLACED)
    st = vt_queued_set_state(cloud, &q, "PROVISIONING", "SERVICE", NULL);
  vt_queued_fini(&q);
  return st;
}

typedef struct verdict {
  step s;
  const char *state;
  json_t *error;
} verdict;

static vt_status work_verdict(vt_cloud *cloud, void *context) {
  verdict *v = context;
  vt_queued q;
  bool found;
  VT_TRY(vt_queued_load_uid(cloud, &v->s.arena, v->s.uid, &q, &found));
  vt_status st = VT_OK;
  if (found && strcmp(q.state, v->state) != 0) {
    st = vt_queued_set_state(cloud, &q, v->state, "SERVICE", json_incref(v->error));
  }
  vt_queued_fini(&q);
  return st;
}

static vt_status set_verdict(vt_cloud *cloud, int64_t uid, const char *state, json_t *error) {
  verdict v = {.s = {.uid = uid}, .state = state, .error = error};
  vt_status st = vt_cloud_transact(cloud, work_verdict, &v);
  json_decref(v.error);
  vt_arena_free(&v.s.arena);
  return st;
}

typedef struct waiting {
  int64_t uid, valid_after_ns, valid_until_ns;
  bool accepted;
} waiting;

static vt_status serve_one(vt_cloud *cloud, const waiting *w, bool *changed) {
  int64_t now = vt_cloud_now(cloud);
  if (w->valid_until_ns && now >= w->valid_until_ns) {
    *changed = true;
    return set_verdict(
        cloud, w->uid, "FAILED",
        vt_rpc_status(VT_DEADLINE_EXCEEDED,
                      "The request was not served before the end of its queueing policy."));
  }
  if (now < w->valid_after_ns) return VT_OK;
  provision p = {.s = {.uid = w->uid}};
  vt_status st = vt_cloud_transact(cloud, work_provision, &p);
  vt_arena_free(&p.s.arena);
  vt_code code = vt_status_code(st);
  if (code == VT_INVALID_ARGUMENT || code == VT_RESOURCE_EXHAUSTED ||
      code == VT_PERMISSION_DENIED || code == VT_ALREADY_EXISTS) {
    json_t *error = vt_rpc_status(code, vt_status_message(st));
    vt_status_free(st);
    *changed = true;
    return set_verdict(cloud, w->uid, "FAILED", error);
  }
  if (st) return st;
  if (p.placement == VT_PLACED)
    *changed = true;
  else if (w->accepted)
    return set_verdict(cloud, w->uid, "WAITING_FOR_RESOURCES", NULL);
  return VT_OK;
}

// --- passes --------------------------------------------------------------------------------------

static void log_and_free(const char *what, vt_status st) {
  if (!st) return;
  vt_log(VT_LOG_WARNING, "%s: %s", what, vt_status_message(st));
  vt_status_free(st);
}

static vt_status list_uids(vt_cloud *cloud, vt_arena *arena, int64_t **out, size_t *out_count,
                           const char *sql, const char *types, va_list args) {
  VT_ARRAY(int64_t) uids = {0};
  vt_rows *rows;
  VT_TRY(vt_store_query_list(cloud->store, &rows, sql, types, args));
  while (vt_rows_next(rows)) vt_array_push_in(arena, &uids, vt_rows_int(rows, 0));
  *out = uids.data;
  *out_count = uids.size;
  return vt_rows_end(rows);
}

// The result of a pass: whether it changed something, and whether something is in progress.
typedef struct progress {
  bool changed, busy;
} progress;

// Runs `work`, each time in its own transaction, for each uid that the query returns.
static vt_status each(vt_cloud *cloud, progress *p, step_work work, const char *sql,
                      const char *types, ...) {
  vt_arena arena = {0};
  int64_t *uids;
  size_t count = 0;
  va_list args;
  va_start(args, types);
  vt_status st = list_uids(cloud, &arena, &uids, &count, sql, types, args);
  va_end(args);
  for (size_t i = 0; !st && i < count; i++) {
    step s = {.uid = uids[i]};
    vt_status one = vt_cloud_transact(cloud, work, &s);
    // Optimistic versions turn a lost race into an error; the next pass retries.
    log_and_free("reconcile", one);
    if (!one && s.changed) p->changed = true;
    if (s.busy) p->busy = true;
    vt_arena_free(&s.arena);
  }
  vt_arena_free(&arena);
  return st;
}

enum { QUEUE_HEAD = 50, QUEUE_REST = 50 };

static vt_status serve_queue(vt_cloud *cloud, bool *changed) {
  vt_arena arena = {0};
  VT_ARRAY(waiting) list = {0};
  vt_rows *rows;
  vt_status st = vt_store_query(
      cloud->store, &rows,
      "SELECT uid, valid_after_ns, valid_until_ns, state FROM queued WHERE state IN ('ACCEPTED', "
      "'WAITING_FOR_RESOURCES') ORDER BY rank, created_ns, uid",
      "");
  if (!st) {
    while (vt_rows_next(rows)) {
      waiting w = {vt_rows_int(rows, 0), vt_rows_int(rows, 1), vt_rows_int(rows, 2),
                   strcmp(vt_rows_text(rows, 3), "ACCEPTED") == 0};
      vt_array_push_in(&arena, &list, w);
    }
    st = vt_rows_end(rows);
  }
  // A pass serves the head of a long queue, and a part of the rest that advances from pass to pass.
  for (size_t i = 0; !st && i < list.size && i < QUEUE_HEAD; i++)
    log_and_free("queue", serve_one(cloud, &list.data[i], changed));
  for (size_t i = 0; !st && i < QUEUE_REST && QUEUE_HEAD + i < list.size; i++) {
    size_t at = QUEUE_HEAD + cloud->queue_at++ % (list.size - QUEUE_HEAD);
    log_and_free("queue", serve_one(cloud, &list.data[at], changed));
  }
  vt_arena_free(&arena);
  return st;
}

static vt_status watch(vt_cloud *cloud, void *context) {
  (void)context;
  VT_TRY(vt_token_sweep(cloud));
  VT_TRY(vt_bill_check_budgets(cloud));
  VT_TRY(vt_grant_expire(cloud));
  if (cloud->options.guest_level == 2) VT_TRY(vt_disks_sweep(cloud));
  return vt_bill_check_idle(cloud);
}

static vt_status pass(vt_cloud *cloud, progress *p) {
  int64_t now = vt_cloud_now(cloud), notice = cloud->options.notice_ns;
  VT_TRY(each(cloud, p, step_node,
              "SELECT uid FROM nodes WHERE state IN ('DELETING', 'STOPPING', 'REIMAGING') ORDER BY "
              "uid",
              ""));
  for (int i = 0; i < VT_MAX_OUTAGES; i++) {
    const vt_outage *o = &cloud->outages[i];
    if (now < o->from_ns || now >= o->until_ns) continue;
    VT_TRY(each(cloud, p, step_outage,
                "SELECT uid FROM nodes WHERE state = 'READY' AND zone = ? ORDER BY uid", "s",
                o->zone));
  }
  VT_TRY(each(cloud, p, step_node,
              "SELECT uid FROM nodes WHERE notice_ns > 0 AND notice_ns <= ? AND placed = 1 ORDER "
              "BY notice_ns, uid",
              "i", now - notice));
  VT_TRY(each(cloud, p, step_node,
              "SELECT uid FROM nodes WHERE ends_ns > 0 AND ends_ns <= ? AND notice_ns = 0 AND "
              "state = 'READY' ORDER BY uid",
              "i", now + notice));
  VT_TRY(each(cloud, p, step_maintenance,
              "SELECT uid FROM nodes WHERE maintenance = 'ANNOUNCED' AND maintenance_ns <= ? ORDER "
              "BY maintenance_ns, uid",
              "i", now + VT_MAINTENANCE_REMINDER_NS));
  VT_TRY(each(cloud, p, step_maintenance,
              "SELECT uid FROM nodes WHERE maintenance = 'SOON' AND maintenance_ns <= ? ORDER BY "
              "maintenance_ns, uid",
              "i", now));
  VT_TRY(each(cloud, p, step_node,
              "SELECT uid FROM nodes WHERE state IN ('CREATING', 'STARTING', 'RESTARTING', "
              "'REPAIRING') ORDER BY class IN ('spot', 'preemptible'), created_ns, uid",
              ""));
  if (cloud->options.guest_level > 0)
    VT_TRY(each(cloud, p, step_update,
                "SELECT DISTINCT node FROM operations WHERE done = 0 AND verb = 'update'", ""));
  if (cloud->guests->watched)
    VT_TRY(
        each(cloud, p, step_node, "SELECT uid FROM nodes WHERE state = 'READY' ORDER BY uid", ""));
  VT_TRY(each(cloud, p, step_reap,
              "SELECT nodes.uid FROM nodes, projects WHERE nodes.state = 'PREEMPTED' AND "
              "nodes.project = projects.id AND "
              "projects.personality = 'kind' AND nodes.state_ns <= ?",
              "i", now - cloud->options.kind_reap_ns));
  VT_TRY(each(cloud, p, step_queued,
              "SELECT uid FROM queued WHERE state IN ('ACTIVE', 'PROVISIONING', 'SUSPENDING', "
              "'DELETING') ORDER BY uid",
              ""));
  return serve_queue(cloud, &p->changed);
}

vt_status vt_reconcile(vt_cloud *cloud, bool *out_busy) {
  progress p = {.changed = true};
  cloud->poke = false;
  // Each pass advances every object by at least one state; 64 is far above the longest chain.
  for (int i = 0; p.changed && i < 64; i++) {
    p = (progress){0};
    vt_status st = pass(cloud, &p);
    *out_busy = p.busy;
    if (st) return st;
  }
  VT_TRY(vt_health_sweep(cloud));
  int64_t now = vt_cloud_now(cloud), every = cloud->options.virtual_time ? VT_HOUR : 60 * VT_SECOND;
  if (now / every != cloud->watched_ns / every) {
    cloud->watched_ns = now;
    cloud->poke = cloud->sweeping = true;
    VT_TRY(vt_cloud_transact(cloud, watch, NULL));
  }
  if (cloud->sweeping) VT_TRY(vt_retention_step(cloud, &cloud->sweeping));
  return VT_OK;
}

vt_status vt_reconcile_due(vt_cloud *cloud, int64_t *out_ns) {
  const struct due {
    const char *sql, *types; // "i": now
    int sign;                // added to the notice time
    int64_t ahead_ns;
  } dues[] = {
      {"SELECT MIN(ends_ns) FROM nodes WHERE ends_ns > 0 AND notice_ns = 0 AND state = "
       "'READY'",
       "", -1, 0},
      {"SELECT MIN(notice_ns) FROM nodes WHERE notice_ns > 0 AND placed = 1", "", 1, 0},
      {"SELECT MIN(maintenance_ns) FROM nodes WHERE maintenance IN ('SCHEDULED', "
       "'UNSCHEDULED')",
       "", 1, 0},
      {"SELECT MIN(maintenance_ns) FROM nodes WHERE maintenance = 'SOON'", "", 0, 0},
      {"SELECT MIN(maintenance_ns) FROM nodes WHERE maintenance = 'ANNOUNCED'", "", 0,
       VT_MAINTENANCE_REMINDER_NS},
      {"SELECT MIN(valid_until_ns) FROM queued WHERE state IN ('ACCEPTED', "
       "'WAITING_FOR_RESOURCES') AND valid_until_ns > ?",
       "i", 0, 0},
      {"SELECT MIN(valid_after_ns) FROM queued WHERE state IN ('ACCEPTED', "
       "'WAITING_FOR_RESOURCES') AND valid_after_ns > ?",
       "i", 0, 0},
      {"SELECT MIN(end_ns) FROM grants WHERE state = 'APPROVED' AND end_ns > ?", "i", 0, 0},
      {"SELECT MIN(state_ns) FROM nodes WHERE state = 'PREEMPTED' AND queued = '' AND project IN "
       "(SELECT id FROM projects WHERE personality = 'kind')",
       "", 0, -cloud->options.kind_reap_ns}};
  int64_t now = vt_cloud_now(cloud);
  *out_ns = vt_outage_due(cloud);
  for (size_t i = 0; i < sizeof dues / sizeof *dues; i++) {
    int64_t at;
    VT_TRY(vt_store_int(cloud->store, &at, INT64_MAX, dues[i].sql, dues[i].types, now));
    if (at != INT64_MAX)
      at = vt_add_clamped(at, dues[i].sign * cloud->options.notice_ns - dues[i].ahead_ns);
    if (at < *out_ns) *out_ns = at;
  }
  return VT_OK;
}

vt_status vt_reconcile_advance(vt_cloud *cloud, int64_t to_ns) {
  vt_assert(cloud->options.virtual_time);
  bool busy;
  VT_TRY(vt_reconcile(cloud, &busy));
  while (cloud->virtual_ns < to_ns) {
    int64_t due, hour = (cloud->virtual_ns / VT_HOUR + 1) * VT_HOUR;
    VT_TRY(vt_reconcile_due(cloud, &due));
    if (due <= cloud->virtual_ns)
      due = cloud->virtual_ns + VT_SECOND; // overdue but not possible yet
    if (hour < due) due = hour;
    cloud->virtual_ns = due < to_ns ? due : to_ns;
    VT_TRY(vt_reconcile(cloud, &busy));
  }
  return VT_OK;
}

// --- the thread ----------------------------------------------------------------------------------

struct vt_reconciler {
  vt_cloud *cloud;
  pthread_t thread;
  bool stop;
};

static void sleep_until(vt_cloud *cloud, int64_t wait_ns) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  int64_t ns = (int64_t)at.tv_sec * VT_SECOND + at.tv_nsec + wait_ns;
  at = (struct timespec){.tv_sec = (time_t)(ns / VT_SECOND), .tv_nsec = (long)(ns % VT_SECOND)};
  pthread_cond_timedwait(&cloud->wake, &cloud->lock, &at);
}

static void *run(void *argument) {
  vt_reconciler *r = argument;
  vt_cloud *cloud = r->cloud;
  pthread_mutex_lock(&cloud->lock);
  while (!r->stop) {
    bool busy = false;
    int64_t due = INT64_MAX, wait;
    log_and_free("reconcile", vt_reconcile(cloud, &busy));
    log_and_free("reconcile", vt_reconcile_due(cloud, &due));
    // Waits are bounded, so that clock jumps are noticed; guests that boot or end are polled often.
    wait = busy || cloud->sweeping  ? 20 * VT_SECOND / 1000
           : cloud->guests->watched ? VT_SECOND
                                    : 10 * VT_SECOND;
    if (!cloud->options.virtual_time && due != INT64_MAX) {
      int64_t until = due - vt_cloud_now(cloud);
      if (until < VT_SECOND / 100) until = VT_SECOND / 100;
      if (until < wait) wait = until;
    }
    if (!r->stop && !cloud->poke) sleep_until(cloud, wait);
  }
  pthread_mutex_unlock(&cloud->lock);
  return NULL;
}

vt_status vt_reconciler_start(vt_cloud *cloud, vt_reconciler **out_reconciler) {
  vt_reconciler *r = calloc(1, sizeof *r);
  *out_reconciler = NULL;
  if (!r) return vt_error_no_memory();
  r->cloud = cloud;
  int rc = pthread_create(&r->thread, NULL, run, r);
  if (rc) {
    free(r);
    return vt_error(VT_INTERNAL, "no thread: %s", strerror(rc));
  }
  *out_reconciler = r;
  return VT_OK;
}

void vt_reconciler_stop(vt_reconciler *reconciler) {
  if (!reconciler) return;
  pthread_mutex_lock(&reconciler->cloud->lock);
  reconciler->stop = true;
  pthread_cond_broadcast(&reconciler->cloud->wake);
  pthread_mutex_unlock(&reconciler->cloud->lock);
  pthread_join(reconciler->thread, NULL);
  free(reconciler);
}
