// SPDX-License-Identifier: Apache-2.0
// disk.h - data disks: created by name in a zone, attached to nodes, billed while they exist.
//
// A disk is a sparse file on the host, mounted in workers of level 2 at /mnt/disks/NAME. A node's
// body lists its disks in `dataDisks`; the table of attachments indexes that, so that a disk
// written by one node is not given to another.
#ifndef VT_CLOUD_DISK_H
#define VT_CLOUD_DISK_H

#include "cloud/state/node.h"
#include "cloud/worker/worker.h"

// Makes the attachments match the node's body. errors NOT_FOUND, INVALID_ARGUMENT,
// FAILED_PRECONDITION: attached elsewhere, or not possible at this level of guests
vt_status vt_disks_attach(vt_cloud *cloud, const vt_node *node) VT_CHECKED;
vt_status vt_disks_detach_all(vt_cloud *cloud, int64_t node_uid) VT_CHECKED;
// Removes the contents of deleted disks. Runs once a minute and at start.
vt_status vt_disks_sweep(vt_cloud *cloud) VT_CHECKED;
// The disks of a node, for its workers.
vt_status vt_disks_of_node(vt_cloud *cloud, int64_t node_uid, vt_worker *out_worker) VT_CHECKED;

#endif
