// SPDX-License-Identifier: Apache-2.0
// outage.c - POST /vtpu/v1/outages: takes a zone down for a while at a test's request. Spot nodes
// there are PREEMPTED without notice; the others lose their machines, are REPAIRING with health
// TIMEOUT, and come back with their disks when it ends. Meanwhile creates and starts fail and
// queued resources wait. Kept in memory only: a restarted daemon finds the zone well.
#include <stdio.h>
#include <string.h>

#include "cloud/api/handlers.h"
#include "cloud/state/catalogue.h"
#include "cloud/state/scheduler.h"

enum { MAX_OUTAGE_S = 30 * 86400 };

const vt_outage *vt_outage_now(const vt_cloud *cloud, const char *zone) {
  int64_t now = vt_cloud_now(cloud);
  for (int i = 0; i < VT_MAX_OUTAGES; i++) {
    const vt_outage *o = &cloud->outages[i];
    if (now >= o->from_ns && now < o->until_ns && (!zone || strcmp(o->zone, zone) == 0)) return o;
  }
  return NULL;
}

int64_t vt_outage_due(const vt_cloud *cloud) {
  int64_t now = vt_cloud_now(cloud), due = INT64_MAX;
  for (int i = 0; i < VT_MAX_OUTAGES; i++) {
    const vt_outage *o = &cloud->outages[i];
    int64_t at = now < o->from_ns ? o->from_ns : o->until_ns;
    if (at > now && at < due) due = at;
  }
  return due;
}

json_t *vt_outage_error(const vt_node *node) {
  char text[512], eid[24];
  vt_error_id("outage", eid);
  snprintf(text, sizeof text,
           "The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill "
           "the request: ZONE_RESOURCE_POOL_EXHAUSTED. Try a different zone, or try again later. "
           "[EID: %s]",
           node->project, node->zone, eid);
  return vt_rpc_status(VT_UNAVAILABLE, text);
}

// One outage per zone; a slot is free again when its outage is over.
vt_status vt_admin_outage(vt_call *call) {
  const char *asked = json_string_value(json_object_get(call->body, "zone")), *zone = NULL;
  int64_t in, seconds, now = vt_cloud_now(call->cloud);
  VT_TRY(vt_call_integer(call, "inSeconds", 0, MAX_OUTAGE_S, 0, &in));
  VT_TRY(vt_call_integer(call, "seconds", 0, MAX_OUTAGE_S, 0, &seconds));
  for (int i = 0; asked && vt_zone_at(i); i++)
    if (strcmp(vt_zone_at(i), asked) == 0) zone = vt_zone_at(i);
  if (!zone) return vt_error(VT_INVALID_ARGUMENT, "zone is a zone; 0 seconds end its outage");
  vt_outage *place = NULL;
  for (int i = 0; i < VT_MAX_OUTAGES; i++) {
    vt_outage *o = &call->cloud->outages[i];
    if (o->until_ns <= now && !place) place = o;
    if (o->until_ns > now && strcmp(o->zone, zone) == 0) {
      place = o;
      break;
    }
  }
  if (!place) return vt_error(VT_RESOURCE_EXHAUSTED, "at most %d zones at once", VT_MAX_OUTAGES);
  *place = (vt_outage){zone, now + in * VT_SECOND, now + (seconds ? in + seconds : 0) * VT_SECOND};
  call->reply = json_object();
  return vt_cloud_event(call->cloud, "outage", "", call->caller, zone,
                        seconds ? "a zone outage was ordered" : "the zone outage was called off");
}
