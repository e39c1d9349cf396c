// SPDX-License-Identifier: Apache-2.0
// retention.h - removes rows after their retention period, a few at a time.
#ifndef VT_CLOUD_RETENTION_H
#define VT_CLOUD_RETENTION_H

#include "cloud/store/cloud.h"

// Removes at most a few hundred rows of each kind; *out_more: there are more. Under the lock.
vt_status vt_retention_step(vt_cloud *cloud, bool *out_more) VT_CHECKED;

#endif
