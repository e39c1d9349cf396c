// SPDX-License-Identifier: Apache-2.0
// node_life.c - see node_life.h.
#include "base/check.h"
#include "cloud/state/node_life.h"

#include <stdio.h>

#include "cloud/api/token.h"
#include "cloud/state/billing.h"
#include "cloud/state/chip_use.h"
#include "cloud/state/disk.h"
#include "cloud/state/health.h"

vt_status vt_node_create(vt_cloud *cloud, vt_node *node) {
  vt_assert(vt_store_in_transaction(cloud->store));
  VT_TRY(vt_node_insert(cloud, node));
  return vt_disks_attach(cloud, node);
}

// What its workers were granted ends with them.
static vt_status revoke_tokens(vt_cloud *cloud, int64_t uid) {
  char origin[40];
  snprintf(origin, sizeof origin, "node:%lld", (long long)uid);
  return vt_token_revoke_from(cloud, origin);
}

vt_status vt_node_set_state(vt_cloud *cloud, vt_node *node, vt_node_state state, const char *why) {
  vt_assert(state >= 0 && state < VT_NODE_STATE_COUNT && vt_store_in_transaction(cloud->store));
  vt_node_state before = node->state;
  int64_t now = vt_cloud_now(cloud);
  char detail[256], name[512];
  node->state = state;
  node->state_ns = now;
  if (!vt_node_state_holds(state)) node->placed = false;
  if (state == VT_NODE_READY && !node->ready_ns) {
    node->ready_ns = now;
    node->busy_ns = now;
    node->idle_alert = false;
  }
  if (!vt_node_state_billed(state)) node->ready_ns = 0;
  if (state == VT_NODE_READY) {
    node->health = "HEALTHY";
    node->health_text = "";
    vt_health_expect(cloud, node, true);
  } else if (state == VT_NODE_PREEMPTED || state == VT_NODE_STOPPED ||
             state == VT_NODE_TERMINATED) {
    node->notice_ns = node->ends_ns = 0;
    node->health = "HEALTH_UNSPECIFIED";
    VT_TRY(vt_health_forget(cloud, node->uid));
    VT_TRY(revoke_tokens(cloud, node->uid));
  }
  vt_assert(!node->placed || vt_node_state_holds(state));
  vt_assert(!node->ready_ns == !vt_node_state_billed(state));
  vt_assert(state != VT_NODE_READY || node->workers > 0);
  VT_TRY(vt_node_save(cloud, node));
  if (vt_node_state_billed(state) && !vt_node_state_billed(before))
    VT_TRY(vt_bill_open(cloud, node));
  if (!vt_node_state_billed(state) && vt_node_state_billed(before))
    VT_TRY(vt_bill_close(cloud, node, state == VT_NODE_PREEMPTED));
  snprintf(detail, sizeof detail, "%s to %s: %s", vt_node_state_name(before),
           vt_node_state_name(state), why);
  snprintf(name, sizeof name, "projects/%s/locations/%s/nodes/%s", node->project, node->zone,
           node->id);
  VT_TRY(vt_cloud_event(cloud, "state", node->project, "vtpud", name, detail));
  vt_cloud_poke(cloud);
  return VT_OK;
}

vt_status vt_node_remove(vt_cloud *cloud, vt_node *node) {
  vt_assert(vt_store_in_transaction(cloud->store));
  char name[512];
  VT_TRY(vt_bill_close(cloud, node, false));
  VT_TRY(vt_bill_close_disk(cloud, node));
  VT_TRY(vt_store_run(cloud->store, NULL, "DELETE FROM workers WHERE node = ?", "i", node->uid));
  VT_TRY(vt_store_run(cloud->store, NULL, "DELETE FROM guest_attributes WHERE node = ?", "i",
                      node->uid));
  VT_TRY(revoke_tokens(cloud, node->uid));
  VT_TRY(vt_use_forget(cloud, node->uid));
  VT_TRY(vt_health_forget(cloud, node->uid));
  VT_TRY(vt_disks_detach_all(cloud, node->uid));
  VT_TRY(vt_store_run(cloud->store, NULL, "DELETE FROM nodes WHERE uid = ?", "i", node->uid));
  snprintf(name, sizeof name, "projects/%s/locations/%s/nodes/%s", node->project, node->zone,
           node->id);
  vt_cloud_poke(cloud);
  return vt_cloud_event(cloud, "state", node->project, "vtpud", name, "gone");
}
