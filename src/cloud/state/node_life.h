// SPDX-License-Identifier: Apache-2.0
// node_life.h - creates a node, changes its state and deletes it, with its bill, capacity, health,
// disks and audit trail, all in the caller's transaction.
#ifndef VT_CLOUD_NODE_LIFE_H
#define VT_CLOUD_NODE_LIFE_H

#include "cloud/state/node.h"

// Stores a prepared node in CREATING and attaches its disks. errors ALREADY_EXISTS.
vt_status vt_node_create(vt_cloud *cloud, vt_node *node) VT_CHECKED;
vt_status vt_node_set_state(vt_cloud *cloud, vt_node *node, vt_node_state state,
                            const char *why) VT_CHECKED;
// Deletes the row and everything that depends on it (workers, guest attributes); bills and
// operations stay.
vt_status vt_node_remove(vt_cloud *cloud, vt_node *node) VT_CHECKED;

#endif
