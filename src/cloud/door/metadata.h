// SPDX-License-Identifier: Apache-2.0
// metadata.h - the metadata server of the guests: what a worker, identified by its address, learns
// about itself.
#ifndef VT_CLOUD_METADATA_H
#define VT_CLOUD_METADATA_H

#include "cloud/state/node.h"

// Lines "name uid" of the accounts that the ssh keys of node and project name, or that OS Login
// allows, "name uid login" for one that cannot become root, and one that begins with '#' and
// changes with the keys. The ids are those of login_name.h.
vt_status vt_metadata_users(vt_cloud *cloud, const vt_node *node, vt_text *out_lines) VT_CHECKED;
// Answers a request of the worker with address call->peer. Takes the lock; if the client waits for
// a change, asks to be run again at the next one (vt_call.wait).
void vt_metadata_run(vt_call *call);
// Whether all workers of the node have confirmed its current users.
vt_status vt_metadata_synced(vt_cloud *cloud, const vt_node *node, bool *out_synced) VT_CHECKED;
// Whether OS Login is on for a node.
vt_status vt_metadata_os_login(vt_cloud *cloud, const vt_node *node, bool *out_on) VT_CHECKED;
// "t1v-n-1a2b3c4d-w-0"
void vt_metadata_hostname(int64_t uid, int64_t worker, char out_name[64]);

typedef struct vt_metadata_server vt_metadata_server;
// errors UNAVAILABLE: the address is not there.
vt_status vt_metadata_start(vt_cloud *cloud, const char *address, uint16_t port,
                            vt_metadata_server **out_server) VT_CHECKED;
// For one worker of level 1, at its own address: the kernel tells whose socket it is, and only the
// ids [first_uid, first_uid + count) and the daemon's own are answered.
vt_status vt_metadata_start_worker(vt_cloud *cloud, const char *ip, int64_t first_uid,
                                   int64_t count, vt_metadata_server **out_server) VT_CHECKED;
// Of one worker, while the cloud goes on. Ends its clients' long polls, so call it without the
// lock.
void vt_metadata_end(vt_metadata_server *server);
void vt_metadata_stop(vt_metadata_server *server); // with the cloud; accepts NULL

#endif
