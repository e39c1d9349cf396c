// SPDX-License-Identifier: Apache-2.0
// grant.h - research grants: applications, review, the quota they add, and expiry.
#ifndef VT_CLOUD_GRANT_H
#define VT_CLOUD_GRANT_H

#include "cloud/store/cloud.h"

// Sends a reminder 7 days before a grant expires; on expiry removes its quota and gives its nodes
// notice.
vt_status vt_grant_expire(vt_cloud *cloud) VT_CHECKED;

#endif
