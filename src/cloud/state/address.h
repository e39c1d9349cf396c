// SPDX-License-Identifier: Apache-2.0
// address.h - the addresses of workers. Each cloud on a machine has its own block, so that their
// addresses never collide; the host ids of the workers (vt_worker_uid_base) come with the block.
#ifndef VT_CLOUD_ADDRESS_H
#define VT_CLOUD_ADDRESS_H

#include "cloud/store/cloud.h"

// Takes the block that this cloud had before, else a free one, until the cloud is closed. For
// machines on this host; a cloud without machines, or on a cluster, has all addresses. errors
// UNAVAILABLE: another process has it, or none is left.
vt_status vt_addresses_hold(vt_cloud *cloud) VT_CHECKED;
void vt_addresses_release(vt_cloud *cloud);
// Address number `n` of this cloud, for any n.
void vt_address_at(const vt_cloud *cloud, int64_t n, char out_ip[32]);
int64_t vt_address_count(const vt_cloud *cloud);

#endif
