// SPDX-License-Identifier: Apache-2.0
// scheduler.h - allocation of chips: quota of projects, capacity of zones, and which spot nodes
// make room.
#ifndef VT_CLOUD_SCHEDULER_H
#define VT_CLOUD_SCHEDULER_H

#include "cloud/state/node.h"

typedef enum vt_placement { VT_PLACED, VT_PLACE_WAIT, VT_PLACE_NONE } vt_placement;

// Whether these new nodes of one project and zone together fit the project's quotas, each by its
// own type and class; `alone` ignores what is in use (could it ever fit?). On RESOURCE_EXHAUSTED
// *out_detail (may be NULL) is the google.rpc detail, a new reference.
vt_status vt_quota_check(vt_cloud *cloud, const vt_node *nodes, size_t count, bool alone,
                         json_t **out_detail) VT_CHECKED;
// Whether usage under the quotas of a node is within them. errors RESOURCE_EXHAUSTED.
vt_status vt_quota_holds(vt_cloud *cloud, const vt_node *node) VT_CHECKED;
// "TPUV2sPreemptiblePodPerProjectPerZoneForTPUAPI"; place is "Zone" or "Region".
void vt_quota_id(const vt_accelerator *type, bool spot, const char *place, char out_id[128]);

// A quota id of this cloud, by family, on-demand or spot class, and single device or pod. A unit is
// a core, for v5e and v6e a chip; -1 is unlimited.
typedef struct vt_quota {
  char id[128];
  const vt_family *family;
  bool spot, by_zone; // else by region
  int64_t otherwise;  // default limit of a project
} vt_quota;
const vt_quota *vt_quota_at(int index);        // NULL past the last
const vt_quota *vt_quota_find(const char *id); // NULL when unknown
vt_status vt_quota_limit(vt_cloud *cloud, const char *project, const vt_quota *quota,
                         const char *place, int64_t *out_limit) VT_CHECKED;
vt_status vt_quota_set(vt_cloud *cloud, const char *project, const char *quota, const char *place,
                       int64_t units) VT_CHECKED;
// Units that the project's nodes use at the place.
vt_status vt_quota_used(vt_cloud *cloud, const char *project, const vt_quota *quota,
                        const char *place, int64_t *out_used) VT_CHECKED;

// Free chips of a family in a zone.
vt_status vt_capacity_free(vt_cloud *cloud, const char *zone, const char *family,
                           int64_t *out_chips) VT_CHECKED;
// Whether all these nodes find chips now; makes room as vt_place does, for all or for none, but
// takes nothing.
vt_status vt_room(vt_cloud *cloud, const vt_node *nodes, size_t count,
                  vt_placement *out_placement) VT_CHECKED;
// Gives the node its chips if they are free (node->placed, saved). Otherwise, for a node that
// outranks spot nodes, gives spot nodes notice until enough chips come free: VT_PLACE_WAIT.
// VT_PLACE_NONE: not possible now.
vt_status vt_place(vt_cloud *cloud, vt_node *node, vt_placement *out_placement) VT_CHECKED;
// The error of a node that found no place: google.rpc.Status with code 8 and the text clients look
// for.
json_t *vt_place_error(const vt_node *node);

// outage.c. The current outage of the zone, NULL for none; zone NULL: any zone.
const vt_outage *vt_outage_now(const vt_cloud *cloud, const char *zone);
// When the next outage begins or ends; INT64_MAX for never.
int64_t vt_outage_due(const vt_cloud *cloud);
// The error of a node that cannot start in an outage: google.rpc.Status with code 14.
json_t *vt_outage_error(const vt_node *node);

#endif
