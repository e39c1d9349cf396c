// SPDX-License-Identifier: Apache-2.0
// queued_resource.c - rows, views and calls of queued resources; the reconciler advances them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/memory.h"
#include "cloud/api/check.h"
#include "cloud/api/handlers.h"
#include "cloud/state/billing.h"
#include "cloud/state/node_life.h"
#include "cloud/state/operation.h"
#include "cloud/state/queue.h"
#include "cloud/state/scheduler.h"
#include "cloud/state/service_account.h"
#include "cloud/store/json.h"

static vt_status read_row(vt_arena *arena, const vt_rows *rows, vt_queued *q) {
  *q = (vt_queued){0};
  vt_row_read(rows, &vt_table_queued, arena, &q->row);
  return vt_check_stored(q->text, "queued resource", q->id, &q->body);
}

vt_status vt_queued_load_uid(vt_cloud *cloud, vt_arena *arena, int64_t uid, vt_queued *out_queued,
                             bool *out_found) {
  vt_rows *rows;
  memset(out_queued, 0, sizeof *out_queued);
  *out_found = false;
  VT_TRY(vt_row_select(cloud->store, &rows, &vt_table_queued, "WHERE uid = ?", "i", uid));
  *out_found = vt_rows_next(rows);
  return vt_rows_stop(rows, *out_found ? read_row(arena, rows, out_queued) : VT_OK);
}

void vt_queued_fini(vt_queued *queued) {
  json_decref(queued->body);
  queued->body = NULL;
}

static void full_name(const vt_queued *q, char out_name[512]) {
  snprintf(out_name, 512, "projects/%s/locations/%s/queuedResources/%s", q->project, q->zone,
           q->id);
}

vt_status vt_queued_set_state(vt_cloud *cloud, vt_queued *queued, const char *state,
                              const char *initiator, json_t *error) {
  vt_assert(vt_store_in_transaction(cloud->store) && *state);
  char name[512], detail[256], *text = error ? vt_json_text(error, JSON_COMPACT) : NULL;
  json_decref(error);
  int64_t now = vt_cloud_now(cloud);
  vt_status st = vt_store_run(
      cloud->store, NULL,
      "UPDATE queued SET state = ?, initiator = ?, error = ?, state_ns = ? WHERE uid = ?", "sssii",
      state, initiator, text ? text : "", now, queued->uid);
  vt_memory_free(text);
  if (st) return st;
  snprintf(detail, sizeof detail, "%s to %s", queued->state, state);
  queued->state = state;
  full_name(queued, name);
  vt_cloud_poke(cloud);
  return vt_cloud_event(cloud, "state", queued->project, "vtpud", name, detail);
}

vt_status vt_queued_remove(vt_cloud *cloud, const vt_queued *queued) {
  vt_assert(vt_store_in_transaction(cloud->store));
  char name[512];
  full_name(queued, name);
  VT_TRY(vt_store_run(cloud->store, NULL, "DELETE FROM queued WHERE uid = ?", "i", queued->uid));
  return vt_cloud_event(cloud, "state", queued->project, "vtpud", name, "gone");
}

vt_status vt_queued_nodes(vt_cloud *cloud, vt_arena *arena, const vt_queued *queued,
                          int64_t **out_uids, size_t *out_count) {
  VT_ARRAY(int64_t) uids = {0};
  vt_rows *rows;
  VT_TRY(vt_store_query(
      cloud->store, &rows,
      "SELECT uid FROM nodes WHERE project = ? AND zone = ? AND queued = ? ORDER BY id", "sss",
      queued->project, queued->zone, queued->id));
  while (vt_rows_next(rows)) vt_array_push_in(arena, &uids, vt_rows_int(rows, 0));
  *out_uids = uids.data;
  *out_count = uids.size;
  return vt_rows_end(rows);
}

// --- view ----------------------------------------------------------------------------------------

// "WAITING_FOR_RESOURCES" to "waitingForResourcesData".
static void data_name(const char *state, char out_name[64]) {
  size_t n = 0;
  bool upper = false;
  for (const char *p = state; *p && n < 58; p++) {
    if (*p == '_') {
      upper = true;
    } else {
      out_name[n++] = upper ? *p : (char)(*p - 'A' + 'a');
      upper = false;
    }
  }
  snprintf(out_name + n, 64 - n, "Data");
}

vt_status vt_queued_view(vt_cloud *cloud, const vt_queued *queued, json_t **out_json) {
  char name[512], time[40], data[64];
  (void)cloud;
  json_t *view = json_deep_copy(queued->body), *spec;
  full_name(queued, name);
  json_object_set_new(view, "name", json_string(name));
  vt_time_format(queued->created_ns, time);
  json_object_set_new(view, "createTime", json_string(time));
  json_t *state =
      json_pack("{s:s, s:s}", "state", queued->state, "stateInitiator", queued->initiator);
  json_t *inner = json_object();
  if (*queued->error) json_object_set_new(inner, "error", json_loads(queued->error, 0, NULL));
  data_name(queued->state, data);
  json_object_set_new(state, data, inner);
  json_object_set_new(view, "state", state);
  size_t i;
  json_array_foreach(json_object_get(json_object_get(view, "tpu"), "nodeSpec"), i, spec) {
    // v2 and v2alpha1 name the same field differently; each shows its own name.
    json_t *many = json_object_get(spec, "multisliceParams");
    if (!many) many = json_object_get(spec, "multiNodeParams");
    if (!many) continue;
    json_incref(many);
    json_object_set(spec, "multisliceParams", many);
    json_object_set_new(spec, "multiNodeParams", json_deep_copy(many));
    json_decref(many);
  }
  *out_json = view;
  return VT_OK;
}

// --- from the request to nodes -------------------------------------------------------------------

typedef struct slot {
  const char *id;
  const json_t *node;
} slot;
typedef VT_ARRAY(slot) slots;

// Limits of a request's size, and of a project's waiting and total requests; they alone bound the
// cost of the queue.
enum { MAX_NODES = 256, MAX_WAITING = 100, MAX_OF_PROJECT = 1000 };

// The nodes of a request. errors INVALID_ARGUMENT.
static vt_status list_slots(vt_arena *arena, const char *queued_id, const json_t *body,
                            slots *out) {
  json_t *specs = json_object_get(json_object_get(body, "tpu"), "nodeSpec");
  if (json_array_size(specs) == 0)
    return vt_error(VT_INVALID_ARGUMENT,
                    "Cloud TPU received a bad request. tpu.node_spec is required");
  for (size_t i = 0; i < json_array_size(specs); i++) {
    const json_t *spec = json_array_get(specs, i), *node = json_object_get(spec, "node");
    const json_t *many = json_object_get(spec, "multisliceParams");
    const char *id = json_string_value(json_object_get(spec, "nodeId"));
    if (!many) many = json_object_get(spec, "multiNodeParams");
    if (!node)
      return vt_error(VT_INVALID_ARGUMENT,
                      "Cloud TPU received a bad request. node_spec.node is required");
    if (id && *id && many)
      return vt_error(
          VT_INVALID_ARGUMENT,
          "Cloud TPU received a bad request. node_id and multislice_params are mutually exclusive");
    int64_t count = many ? json_integer_value(json_object_get(many, "nodeCount")) : 1;
    const char *prefix = json_string_value(json_object_get(many, "nodeIdPrefix"));
    if (many && (count < 2 || count > MAX_NODES))
      return vt_error(VT_INVALID_ARGUMENT,
                      "Cloud TPU received a bad request. node_count has to be 2 to %d", MAX_NODES);
    if (count > MAX_NODES - (int64_t)out->size)
      return vt_error(VT_INVALID_ARGUMENT,
                      "Cloud TPU received a bad request. A request is for at most %d nodes",
                      MAX_NODES);
    if (!prefix || !*prefix) prefix = queued_id;
    for (int64_t n = 0; n < count; n++) {
      slot s = {many        ? vt_arena_printf(arena, "%s-%lld", prefix, (long long)n)
                : id && *id ? id
                            : queued_id,
                node};
      vt_array_push_in(arena, out, s);
    }
  }
  return VT_OK;
}

static const char *class_of(const json_t *body) {
  const char *model = json_string_value(json_object_get(body, "provisioningModel"));
  const json_t *guaranteed = json_object_get(body, "guaranteed");
  if (json_object_get(body, "spot") || (model && strcmp(model, "SPOT") == 0)) return "spot";
  if (json_object_get(body, "bestEffort")) return "preemptible";
  if (json_is_true(json_object_get(guaranteed, "reserved")) ||
      json_object_get(body, "reservationName") ||
      (model && strcmp(model, "RESERVATION_BOUND") == 0))
    return "reserved";
  return ""; // specified by each node
}

// How long the nodes of a request may run, 0 = unlimited.
typedef struct run_limits {
  int64_t bound_ns, until_ns;
} run_limits;

// False when the request has a limit that cannot be met. `now_ns` 0: it was accepted already.
static bool read_run_limits(const json_t *body, int64_t now_ns, run_limits *out) {
  const json_t *run = json_object_get(body, "runDuration");
  const char *bound = json_string_value(json_object_get(run, "maxRunDuration")),
             *until = json_string_value(json_object_get(run, "terminationTime"));
  *out = (run_limits){0};
  if (bound && (!vt_duration_parse(bound, &out->bound_ns) || out->bound_ns < 30 * VT_SECOND ||
                out->bound_ns > 120 * VT_DAY))
    return false;
  return !until || (vt_time_parse(until, &out->until_ns) && out->until_ns > now_ns);
}

// A node for a slot, prepared but not stored.
static vt_status prepare_slot(vt_cloud *cloud, vt_arena *arena, const vt_queued *q, const slot *s,
                              size_t of, vt_node *out_node) {
  json_t *body = json_deep_copy(s->node);
  vt_status st = vt_node_prepare(cloud, arena, q->project, q->zone, s->id, body, out_node);
  if (st) {
    vt_node_fini(out_node);
    return st;
  }
  const char *reservation = json_string_value(json_object_get(q->body, "reservationName"));
  const char *slash = reservation ? strrchr(reservation, '/') : NULL;
  if (reservation) out_node->reservation = slash ? slash + 1 : reservation;
  if (*q->klass) out_node->klass = q->klass;
  out_node->queued = q->id;
  out_node->api = q->api;
  out_node->creator = q->creator;
  if (of > 1) json_object_set_new(body, "multisliceNode", json_true());
  run_limits limits;
  if (read_run_limits(q->body, 0, &limits)) {
    if (limits.bound_ns) json_object_set_new(body, "bounded_ns", json_integer(limits.bound_ns));
    if (limits.until_ns) json_object_set_new(body, "ends_at_ns", json_integer(limits.until_ns));
  }
  return VT_OK;
}

static void free_nodes(vt_node *nodes, size_t count) {
  for (size_t i = 0; i < count; i++) vt_node_fini(&nodes[i]);
}

// The nodes of a request, prepared but not stored; *out_count of them. Pass them to free_nodes even
// on an error.
static vt_status prepare_all(vt_cloud *cloud, vt_arena *arena, const vt_queued *q,
                             vt_node **out_nodes, size_t *out_count) {
  slots list = {0};
  *out_count = 0;
  *out_nodes = NULL;
  VT_TRY(list_slots(arena, q->id, q->body, &list));
  *out_nodes = vt_arena_push(arena, list.size * sizeof **out_nodes);
  for (size_t i = 0; i < list.size; i++) {
    VT_TRY(prepare_slot(cloud, arena, q, &list.data[i], list.size, &(*out_nodes)[i]));
    ++*out_count;
  }
  return VT_OK;
}

static vt_status store_slot(vt_cloud *cloud, vt_node *node, int *out_placement) {
  vt_placement placement;
  VT_TRY(vt_node_create(cloud, node));
  VT_TRY(vt_place(cloud, node, &placement));
  *out_placement = (int)placement;
  return VT_OK;
}

// Whether quota, budget and chips suffice for all nodes of a request. errors: they never will.
static vt_status may_provision(vt_cloud *cloud, const vt_node *nodes, size_t count,
                               vt_placement *out_room) {
  *out_room = VT_PLACE_NONE;
  VT_TRY(vt_quota_check(cloud, nodes, count, true, NULL));
  vt_status st = vt_quota_check(cloud, nodes, count, false, NULL);
  if (!st) st = vt_bill_may_begin(cloud, nodes->project);
  if (!st) return vt_room(cloud, nodes, count, out_room);
  vt_code code = vt_status_code(st);
  if (code != VT_RESOURCE_EXHAUSTED && code != VT_FAILED_PRECONDITION) return st;
  vt_status_free(st); // waits for the project's own nodes to end, or for the next month
  return VT_OK;
}

vt_status vt_queued_provision(vt_cloud *cloud, vt_arena *arena, const vt_queued *queued,
                              int *out_placement) {
  vt_node *nodes;
  size_t count;
  vt_placement room = VT_PLACE_NONE;
  vt_status st = prepare_all(cloud, arena, queued, &nodes, &count);
  if (!st) st = may_provision(cloud, nodes, count, &room);
  *out_placement = (int)room;
  for (size_t i = 0; !st && room == VT_PLACED && i < count; i++) {
    st = store_slot(cloud, &nodes[i], out_placement);
    if (!st && *out_placement != VT_PLACED)
      st = vt_error(VT_ABORTED, "no room for all nodes of the request");
  }
  free_nodes(nodes, count);
  return st;
}

// --- calls ---------------------------------------------------------------------------------------

static vt_status read_policy(vt_call *call, const json_t *body, vt_queued *q) {
  const json_t *policy = json_object_get(body, "queueingPolicy"),
               *interval = json_object_get(policy, "validInterval");
  const char *text;
  int64_t now = vt_cloud_now(call->cloud);
  if ((text = json_string_value(json_object_get(policy, "validUntilDuration"))) &&
      vt_duration_parse(text, &q->valid_until_ns))
    q->valid_until_ns = vt_add_clamped(now, q->valid_until_ns);
  if ((text = json_string_value(json_object_get(policy, "validAfterDuration"))) &&
      vt_duration_parse(text, &q->valid_after_ns))
    q->valid_after_ns = vt_add_clamped(now, q->valid_after_ns);
  if ((text = json_string_value(json_object_get(policy, "validUntilTime"))))
    (void)vt_time_parse(text, &q->valid_until_ns);
  if ((text = json_string_value(json_object_get(policy, "validAfterTime"))))
    (void)vt_time_parse(text, &q->valid_after_ns);
  if ((text = json_string_value(json_object_get(interval, "startTime"))))
    (void)vt_time_parse(text, &q->valid_after_ns);
  if ((text = json_string_value(json_object_get(interval, "endTime"))))
    (void)vt_time_parse(text, &q->valid_until_ns);
  if (q->valid_until_ns && (q->valid_until_ns < now || q->valid_until_ns < q->valid_after_ns))
    return vt_error(VT_INVALID_ARGUMENT,
                    "Cloud TPU received a bad request. queueing_policy is over before it begins");
  return VT_OK;
}

static vt_status check_names(vt_call *call, const vt_node *nodes, size_t count) {
  json_t *seen = json_object();
  vt_status st = VT_OK;
  for (size_t i = 0; !st && i < count; i++) {
    int64_t taken;
    st = vt_store_int(call->cloud->store, &taken, 0,
                      "SELECT 1 FROM nodes WHERE project = ? AND zone = ? AND id = ?", "sss",
                      nodes[i].project, nodes[i].zone, nodes[i].id);
    if (!st && (taken || json_object_get(seen, nodes[i].id)))
      st = vt_call_exists(call, vt_node_name(&call->arena, &nodes[i]));
    json_object_set_new(seen, nodes[i].id, json_true());
  }
  json_decref(seen);
  return st;
}

// Checks a request for all errors that can be known now.
static vt_status check_request(vt_call *call, const vt_queued *q) {
  vt_node *nodes;
  size_t count;
  json_t *detail = NULL;
  run_limits limits;
  if (!read_run_limits(q->body, vt_cloud_now(call->cloud), &limits))
    return vt_error(VT_INVALID_ARGUMENT,
                    "Cloud TPU received a bad request. run_duration: max_run_duration has to be "
                    "30 seconds to 120 days, termination_time in the future");
  vt_status st = prepare_all(call->cloud, &call->arena, q, &nodes, &count);
  for (size_t i = 0; !st && i < count; i++) st = vt_sa_may_act(call, nodes[i].body);
  if (!st) st = vt_quota_check(call->cloud, nodes, count, true, &detail);
  if (detail) vt_call_add_detail(call, detail);
  if (!st) st = check_names(call, nodes, count);
  free_nodes(nodes, count);
  return st;
}

static vt_status check_count(vt_call *call) {
  int64_t waiting, all;
  VT_TRY(vt_store_int(call->cloud->store, &waiting, 0,
                      "SELECT COUNT(*) FROM queued WHERE project = ? AND state IN ('ACCEPTED', "
                      "'WAITING_FOR_RESOURCES')",
                      "s", call->project));
  VT_TRY(vt_store_int(call->cloud->store, &all, 0, "SELECT COUNT(*) FROM queued WHERE project = ?",
                      "s", call->project));
  if (waiting < MAX_WAITING && all < MAX_OF_PROJECT) return VT_OK;
  return vt_error(VT_RESOURCE_EXHAUSTED,
                  "The project has %lld queued resources, %lld of them waiting; %d and %d are the "
                  "most.",
                  (long long)all, (long long)waiting, MAX_OF_PROJECT, MAX_WAITING);
}

static vt_status insert(vt_call *call, const vt_queued *q) {
  vt_assert(vt_store_in_transaction(call->cloud->store));
  char *text = vt_json_text(q->body, JSON_COMPACT);
  vt_queued_row row = q->row;
  row.rank = *q->klass == 's' || *q->klass == 'p';
  row.text = text;
  vt_status st = vt_row_insert(call->cloud->store, queued, &row);
  vt_memory_free(text);
  return st;
}

static vt_status create(vt_call *call, vt_queued *q) {
  int64_t taken;
  const char *operation, *name = vt_call_name(call, "queuedResources", q->id);
  json_t *view;
  if (!vt_zone_exists(q->zone))
    return vt_error(VT_PERMISSION_DENIED, "Location %s is not found or access is unauthorized.",
                    q->zone);
  if (!vt_node_id_valid(q->id))
    return vt_error(VT_INVALID_ARGUMENT, "invalid queued resource id '%s'", q->id);
  VT_TRY(vt_store_int(call->cloud->store, &taken, 0,
                      "SELECT 1 FROM queued WHERE project = ? AND zone = ? AND id = ?", "sss",
                      q->project, q->zone, q->id));
  if (taken) return vt_call_exists(call, name);
  VT_TRY(check_count(call));
  VT_TRY(read_policy(call, q->body, q));
  VT_TRY(vt_bill_may_begin(call->cloud, call->project));
  VT_TRY(check_request(call, q));
  VT_TRY(insert(call, q));
  VT_TRY(vt_operation_for_call(call, "create", name, q->uid, &operation));
  VT_TRY(vt_queued_view(call->cloud, q, &view));
  json_object_set_new(
      view, "@type",
      json_string(vt_arena_printf(
          &call->arena, "type.googleapis.com/google.cloud.tpu.%s.QueuedResource", call->api_name)));
  VT_TRY(vt_operation_finish(call->cloud, operation, NULL, view));
  return vt_operation_reply(call, operation);
}

vt_status vt_queued_create(vt_call *call) {
  bool replayed;
  char hex[9];
  json_t *empty = json_object(), *body = NULL;
  const char *id = vt_call_query(call, "queuedResourceId");
  vt_status st = vt_operation_replay(call, &replayed);
  if (!st && !replayed)
    st = vt_schema_clean(vt_message_find("QueuedResource"), call->api,
                         call->body ? call->body : empty, &body);
  json_decref(empty);
  if (st || replayed) return st;
  vt_cloud_random_hex(hex, 8);
  int64_t now = vt_cloud_now(call->cloud);
  vt_queued q = {.uid = vt_cloud_random(),
                 .project = call->project,
                 .zone = vt_call_param(call, "zone"),
                 .id = id && *id ? id : vt_arena_printf(&call->arena, "queued-%s", hex),
                 .state = "ACCEPTED",
                 .initiator = "USER",
                 .error = "",
                 .klass = class_of(body),
                 .api = call->api_name,
                 .creator = call->caller,
                 .created_ns = now,
                 .state_ns = now,
                 .body = body};
  st = create(call, &q);
  json_decref(body);
  return st;
}

vt_status vt_queued_find(vt_call *call, vt_queued *out) {
  const char *id = vt_call_param(call, "queued");
  int64_t uid;
  bool found;
  VT_TRY(vt_store_int(call->cloud->store, &uid, 0,
                      "SELECT uid FROM queued WHERE project = ? AND zone = ? AND id = ?", "sss",
                      call->project, vt_call_param(call, "zone"), id));
  if (!uid) return vt_call_not_found(call, vt_call_name(call, "queuedResources", id));
  return vt_queued_load_uid(call->cloud, &call->arena, uid, out, &found);
}

vt_status vt_queued_get(vt_call *call) {
  vt_queued q;
  VT_TRY(vt_queued_find(call, &q));
  vt_status st = vt_queued_view(call->cloud, &q, &call->reply);
  vt_queued_fini(&q);
  return st;
}

vt_status vt_queued_list(vt_call *call) {
  vt_page page;
  vt_rows *rows;
  const char *token = NULL, *zone = vt_call_param(call, "zone");
  VT_TRY(vt_call_page(call, 500, 1000, &page));
  VT_TRY(vt_row_select(
      call->cloud->store, &rows, &vt_table_queued,
      "WHERE project = ? AND (? = '-' OR zone = ?) AND (zone, id) > (?, ?) ORDER BY zone, id "
      "LIMIT ?",
      "sssssi", call->project, zone, zone, page.after_zone, page.after, page.limit + 1));
  json_t *list = json_array();
  call->reply = json_pack("{s:o}", "queuedResources", list);
  vt_queued last = {.zone = "", .id = ""};
  vt_status st = VT_OK;
  while (!st && vt_rows_next(rows)) {
    vt_queued q;
    json_t *view = NULL;
    if ((int64_t)json_array_size(list) == page.limit) {
      token = vt_call_page_token(call, last.zone, last.id);
      break;
    }
    st = read_row(&call->arena, rows, &q);
    if (!st) st = vt_queued_view(call->cloud, &q, &view);
    if (view) json_array_append_new(list, view);
    vt_queued_fini(&q);
    last = q;
  }
  if (token) json_object_set_new(call->reply, "nextPageToken", json_string(token));
  return vt_rows_stop(rows, st);
}

vt_status vt_queued_delete(vt_call *call) {
  vt_queued q;
  bool replayed;
  const char *operation;
  VT_TRY(vt_operation_replay(call, &replayed));
  if (replayed) return VT_OK;
  VT_TRY(vt_queued_find(call, &q));
  vt_status st = VT_OK;
  int64_t *nodes;
  size_t count;
  VT_TRY_OUT(vt_queued_nodes(call->cloud, &call->arena, &q, &nodes, &count));
  bool at_rest = strcmp(q.state, "FAILED") == 0 || strcmp(q.state, "SUSPENDED") == 0 ||
                 strcmp(q.state, "ACCEPTED") == 0 || strcmp(q.state, "WAITING_FOR_RESOURCES") == 0;
  if (strcmp(q.state, "DELETING") == 0 || (count && !at_rest && !vt_call_flag(call, "force"))) {
    st = vt_error(VT_FAILED_PRECONDITION,
                  "Cloud TPU received a bad request. delete is not supported while in state %s; "
                  "use force to delete its nodes too",
                  q.state);
    goto out;
  }
  for (size_t i = 0; i < count; i++) {
    vt_node node;
    bool found;
    VT_TRY_OUT(vt_node_load_uid(call->cloud, &call->arena, nodes[i], &node, &found));
    if (found && node.state != VT_NODE_DELETING)
      st = vt_node_set_state(call->cloud, &node, VT_NODE_DELETING, "queued resource is deleted");
    vt_node_fini(&node);
    if (st) goto out;
  }
  VT_TRY_OUT(vt_queued_set_state(call->cloud, &q, "DELETING", "USER", NULL));
  VT_TRY_OUT(vt_operation_for_call(call, "delete", vt_call_name(call, "queuedResources", q.id),
                                   q.uid, &operation));
  st = vt_operation_reply(call, operation);
out:
  vt_queued_fini(&q);
  return st;
}

vt_status vt_queued_reset(vt_call *call) {
  vt_queued q;
  const char *operation;
  json_t *view = NULL;
  VT_TRY(vt_queued_find(call, &q));
  vt_status st = VT_OK;
  if (strcmp(q.state, "SUSPENDED") != 0 && strcmp(q.state, "FAILED") != 0) {
    st = vt_error(VT_FAILED_PRECONDITION,
                  "Cloud TPU received a bad request. reset is not supported while in state %s",
                  q.state);
    goto out;
  }
  VT_TRY_OUT(vt_queued_set_state(call->cloud, &q, "WAITING_FOR_RESOURCES", "USER", NULL));
  VT_TRY_OUT(vt_operation_for_call(call, "reset", vt_call_name(call, "queuedResources", q.id),
                                   q.uid, &operation));
  VT_TRY_OUT(vt_queued_view(call->cloud, &q, &view));
  json_object_set_new(
      view, "@type",
      json_string(vt_arena_printf(
          &call->arena, "type.googleapis.com/google.cloud.tpu.%s.QueuedResource", call->api_name)));
  VT_TRY_OUT(vt_operation_finish(call->cloud, operation, NULL, view));
  st = vt_operation_reply(call, operation);
out:
  vt_queued_fini(&q);
  return st;
}
