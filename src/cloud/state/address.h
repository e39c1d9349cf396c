// SPDX-License-Identifier: Apache-2.0
// address.h - the addresses of workers: each cloud of a machine has a block of its own, so that no
// two of them meet, and with the addresses go the host's ids of the workers (vt_worker_uid_base).
#ifndef VT_CLOUD_ADDRESS_H
#define VT_CLOUD_ADDRESS_H

#include "cloud/store/cloud.h"

// Takes the block that this cloud had before, else a free one, until the cloud is closed. For
// machines on this host; a cloud without, or on a cluster, has all addresses. errors UNAVAILABLE:
// somebody else has it, or there is none left.
vt_status vt_addresses_hold(vt_cloud *cloud) VT_CHECKED;
void vt_addresses_release(vt_cloud *cloud);
// The address number `n` of this cloud, for any n.
void vt_address_at(const vt_cloud *cloud, int64_t n, char out_ip[32]);
int64_t vt_address_count(const vt_cloud *cloud);

#endif
