// SPDX-License-Identifier: Apache-2.0
// service_account.h - the service account of a node's workers, who may act as it, and the tokens
// that workers get.
#ifndef VT_CLOUD_SERVICE_ACCOUNT_H
#define VT_CLOUD_SERVICE_ACCOUNT_H

#include "cloud/state/node.h"

#define VT_ACT_AS "iam.serviceAccounts.actAs"

// "100000000001-compute@developer.vtpu.localhost", the default account of nodes.
const char *vt_sa_default(const vt_cloud *cloud, vt_arena *arena, int64_t project_number);
// The account of a node: the one its body names, else the project's default.
const char *vt_sa_of_node(const vt_cloud *cloud, vt_arena *arena, const json_t *body,
                          int64_t project_number);
// Whether the caller may act as the account of `body`, a clean Node: the account must belong to
// call->project, and the caller needs iam.serviceAccounts.actAs there. errors PERMISSION_DENIED,
// the same for an account that does not exist, is another project's, or may not be used.
vt_status vt_sa_may_act(vt_call *call, const json_t *body) VT_CHECKED;
// A token of the node's account for its workers, "" when the account does not exist or is disabled.
// Opens its own transaction. The default account is created with its first token; once deleted it
// stays deleted.
vt_status vt_sa_issue(vt_cloud *cloud, vt_arena *arena, const vt_node *node, const char *email,
                      int64_t project_number, char **out_token) VT_CHECKED;
// Deletes an account and all its credentials.
vt_status vt_sa_remove(vt_call *call, const char *email) VT_CHECKED;

#endif
