// SPDX-License-Identifier: Apache-2.0
// scheduler.h - who gets chips: quota of projects, capacity of zones, and which spot nodes make
// room.
#ifndef VT_CLOUD_SCHEDULER_H
#define VT_CLOUD_SCHEDULER_H

#include "cloud/state/node.h"

typedef enum vt_placement { VT_PLACED, VT_PLACE_WAIT, VT_PLACE_NONE } vt_placement;

// Whether these nodes, new ones of one project and zone, fit the project's quotas all together,
// each by its own type and class; `alone` leaves what is in use out (could it ever fit?). On
// RESOURCE_EXHAUSTED *out_detail (may be NULL) is the google.rpc detail, a new reference.
vt_status vt_quota_check(vt_cloud *cloud, const vt_node *nodes, size_t count, bool alone,
                         json_t **out_detail) VT_CHECKED;
// Whether what is in use under the quotas of a node is within them. errors RESOURCE_EXHAUSTED.
vt_status vt_quota_holds(vt_cloud *cloud, const vt_node *node) VT_CHECKED;
// "TPUV2sPreemptiblePodPerProjectPerZoneForTPUAPI"; place is "Zone" or "Region".
void vt_quota_id(const vt_accelerator *type, bool spot, const char *place, char out_id[128]);

// A quota id of this cloud: what a family, an on-demand or spot class, and single device or pod are
// counted under. A unit is a core, for v5e and v6e a chip; -1 is no limit.
typedef struct vt_quota {
  char id[128];
  const vt_family *family;
  bool spot, by_zone; // else by region
  int64_t otherwise;  // limit of a project that nobody has given another
} vt_quota;
const vt_quota *vt_quota_at(int index);        // NULL past the last
const vt_quota *vt_quota_find(const char *id); // NULL when unknown
vt_status vt_quota_limit(vt_cloud *cloud, const char *project, const vt_quota *quota,
                         const char *place, int64_t *out_limit) VT_CHECKED;
vt_status vt_quota_set(vt_cloud *cloud, const char *project, const char *quota, const char *place,
                       int64_t units) VT_CHECKED;
// Units that the project's nodes take at the place.
vt_status vt_quota_used(vt_cloud *cloud, const char *project, const vt_quota *quota,
                        const char *place, int64_t *out_used) VT_CHECKED;

// Free chips of a family in a zone.
vt_status vt_capacity_free(vt_cloud *cloud, const char *zone, const char *family,
                           int64_t *out_chips) VT_CHECKED;
// Whether these nodes find chips now, all of them; makes room as vt_place does, for all or for
// none, but takes nothing.
vt_status vt_room(vt_cloud *cloud, const vt_node *nodes, size_t count,
                  vt_placement *out_placement) VT_CHECKED;
// Gives the node its chips if they are free (node->placed, saved). Otherwise, for a node that
// outranks spot nodes, spot nodes are given notice until enough chips come free: VT_PLACE_WAIT.
// VT_PLACE_NONE: no way now.
vt_status vt_place(vt_cloud *cloud, vt_node *node, vt_placement *out_placement) VT_CHECKED;
// The error of a node that found no place: google.rpc.Status with code 8 and the text clients look
// for.
json_t *vt_place_error(const vt_node *node);

// outage.c. The outage of the zone that goes on now, NULL for none; zone NULL: of any.
const vt_outage *vt_outage_now(const vt_cloud *cloud, const char *zone);
// When the next one begins or ends; INT64_MAX for never.
int64_t vt_outage_due(const vt_cloud *cloud);
// The error of a node that can not come up in one: google.rpc.Status with code 14.
json_t *vt_outage_error(const vt_node *node);

#endif
