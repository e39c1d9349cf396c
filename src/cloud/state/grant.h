// SPDX-License-Identifier: Apache-2.0
// grant.h - research grants: applications, their review, the quota they give, and their end.
#ifndef VT_CLOUD_GRANT_H
#define VT_CLOUD_GRANT_H

#include "cloud/store/cloud.h"

// Reminds 7 days before the end of a grant; at the end takes its quota back and gives its nodes
// notice.
vt_status vt_grant_expire(vt_cloud *cloud) VT_CHECKED;

#endif
