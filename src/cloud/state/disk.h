// SPDX-License-Identifier: Apache-2.0
// disk.h - data disks: made by name in a zone, attached to nodes, paid for while they exist.
//
// A disk is a file of the host, as large as it may become, mounted in workers of level 2 at
// /mnt/disks/NAME. Which disks a node has is `dataDisks` of its body; the table of
// attachments is an index of that, so that a disk written by one node is not given to another.
#ifndef VT_CLOUD_DISK_H
#define VT_CLOUD_DISK_H

#include "cloud/state/node.h"
#include "cloud/worker/worker.h"

// Makes the attachments what the node's body says. errors NOT_FOUND, INVALID_ARGUMENT,
// FAILED_PRECONDITION: attached elsewhere, or not possible at this level of guests
vt_status vt_disks_attach(vt_cloud *cloud, const vt_node *node) VT_CHECKED;
vt_status vt_disks_detach_all(vt_cloud *cloud, int64_t node_uid) VT_CHECKED;
// Removes what deleted disks held. Once a minute, and when the daemon starts.
vt_status vt_disks_sweep(vt_cloud *cloud) VT_CHECKED;
// Those of a node, for its workers.
vt_status vt_disks_of_node(vt_cloud *cloud, int64_t node_uid, vt_worker *out_worker) VT_CHECKED;

#endif
