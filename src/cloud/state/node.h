// SPDX-License-Identifier: Apache-2.0
// node.h - TPU nodes: the row, its states, and the client's view of it.
//
// A vt_node is a copy of its row, texts in an arena; vt_node_save writes it back. State changes go
// through node_life.h only.
#ifndef VT_CLOUD_NODE_H
#define VT_CLOUD_NODE_H

#include "cloud/api/call.h"
#include "cloud/state/catalogue.h"
#include "cloud/store/row.h"

typedef enum vt_node_state {
#define NODE_STATE(name, holds, billed, moves) VT_NODE_##name,
#include "cloud/state/node_states.def"
#undef NODE_STATE
  VT_NODE_STATE_COUNT
} vt_node_state;

// Columns: `klass` is on-demand, preemptible, spot or reserved; `api` the API version that created
// it ("v2"); `queued` the id of its queued resource or ""; `placed`: it holds capacity; `ready_ns`:
// READY since; `notice_ns`: when the 30 s notice began, and `notice` the state that follows
// (PREEMPTED, TERMINATED); `ends_ns`: when a preemptible or bounded node must end; `maintenance` a
// word of maintenance.c; `busy_ns`: when its chips were last seen busy.
typedef struct vt_node {
  VT_ROW_MEMBERS(nodes);
  // Decoded state_name, type_name and text; vt_node_save writes these.
  vt_node_state state;
  const vt_accelerator *type;
  json_t *body; // what the user asked for, in v2alpha1 names; owned: vt_node_fini
} vt_node;

const char *vt_node_state_name(vt_node_state state);
bool vt_node_state_holds(vt_node_state state);
bool vt_node_state_billed(vt_node_state state);
static inline bool vt_node_is_spot(const vt_node *node) {
  return node->klass[0] == 'p' || node->klass[0] == 's';
}

// *out_found is false when there is no such node. Release with vt_node_fini.
vt_status vt_node_load(vt_cloud *cloud, vt_arena *arena, const char *project, const char *zone,
                       const char *id, vt_node *out_node, bool *out_found) VT_CHECKED;
vt_status vt_node_load_uid(vt_cloud *cloud, vt_arena *arena, int64_t uid, vt_node *out_node,
                           bool *out_found) VT_CHECKED;
// The node in the call's path; NOT_FOUND with the text clients expect.
vt_status vt_node_find(vt_call *call, vt_node *out_node) VT_CHECKED;
void vt_node_fini(vt_node *node); // accepts a zeroed node

// Checks a clean v2alpha1 Node (the output of vt_schema_clean) and fills a new node from it; takes
// `body`. Stores nothing. errors INVALID_ARGUMENT, PERMISSION_DENIED (zone).
vt_status vt_node_prepare(vt_cloud *cloud, vt_arena *arena, const char *project, const char *zone,
                          const char *id, json_t *body, vt_node *out_node) VT_CHECKED;
// Stores the row of a prepared node in CREATING with its workers' addresses, for vt_node_create.
// errors ALREADY_EXISTS.
vt_status vt_node_insert(vt_cloud *cloud, vt_node *node) VT_CHECKED;
vt_status vt_node_save(vt_cloud *cloud, vt_node *node) VT_CHECKED;
// Starts the 30 s notice after which the node is PREEMPTED or TERMINATED. No-op if it has started.
vt_status vt_node_give_notice(vt_cloud *cloud, vt_node *node, const char *state,
                              const char *why) VT_CHECKED;

// The API object as `api_name` shows it (vt_schema_shape removes fields of other versions later);
// new reference.
vt_status vt_node_view(vt_cloud *cloud, const vt_node *node, const char *api_name,
                       json_t **out_json) VT_CHECKED;
// As vt_node_view, with the "@type" of an operation's response.
vt_status vt_node_response(vt_cloud *cloud, const vt_node *node, const char *api_name,
                           json_t **out_json) VT_CHECKED;
// maintenance.c. Ongoing: the node is down for it; near: programs should save their work.
#define VT_MAINTENANCE_REMINDER_NS VT_HOUR
bool vt_maintenance_ongoing(const vt_node *node);
bool vt_maintenance_near(const vt_node *node);
// The API's UpcomingMaintenance, a new reference; NULL when there is none.
json_t *vt_maintenance_view(const vt_cloud *cloud, const vt_node *node);
// Time-driven steps of announced maintenance: the reminder, the begin.
vt_status vt_maintenance_step(vt_cloud *cloud, vt_arena *arena, vt_node *node) VT_CHECKED;
void vt_node_texts_free(struct vt_node_texts *texts); // accepts NULL
const char *vt_node_name(vt_arena *arena, const vt_node *node);
bool vt_node_id_valid(const char *id);
// Boot disk size of each worker: as requested, else VT_BOOT_DISK_GB.
#define VT_BOOT_DISK_GB     100
#define VT_BOOT_DISK_MAX_GB 65536
int64_t vt_node_boot_disk_gb(const vt_node *node);
// Address of a worker, into `arena`; "" when there is none.
vt_status vt_node_worker_ip(vt_cloud *cloud, vt_arena *arena, int64_t uid, int64_t worker,
                            const char **out_ip) VT_CHECKED;

#endif
