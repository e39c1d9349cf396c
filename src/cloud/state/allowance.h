// SPDX-License-Identifier: Apache-2.0
// allowance.h - limits on what one worker may ask of the metadata server: how often, and how much
// it may store there. All functions run under the cloud's lock.
#ifndef VT_CLOUD_ALLOWANCE_H
#define VT_CLOUD_ALLOWANCE_H

#include "cloud/state/node.h"

typedef enum vt_purse { VT_PURSE_ASKS, VT_PURSE_WRITES, VT_PURSE_REPORTS, VT_PURSES } vt_purse;

// Whether a worker may make one more request of that kind now; if so, counts it.
bool vt_allowance_spend(vt_cloud *cloud, int64_t uid, int64_t worker, vt_purse purse);
// An access token for the worker's account: the previous one while it has time left, else a new
// one. *out_token is the call's; NULL when the account may not have one.
vt_status vt_allowance_token(vt_call *call, const vt_node *node, int64_t worker, const char *email,
                             int64_t project_number, const char **out_token,
                             int64_t *out_seconds) VT_CHECKED;
void vt_allowances_free(struct vt_allowances *allowances); // accepts NULL

// Writes (the call's body) or deletes the guest attribute "namespace/key". errors INVALID_ARGUMENT
// (name or text), RESOURCE_EXHAUSTED (too many, or too large).
vt_status vt_attribute_write(vt_call *call, const vt_node *node, int64_t worker,
                             const char *name) VT_CHECKED;
vt_status vt_attribute_delete(vt_call *call, const vt_node *node, int64_t worker,
                              const char *name) VT_CHECKED;

#endif
