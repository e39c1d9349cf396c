// SPDX-License-Identifier: Apache-2.0
// service_account.h - the service account that the workers of a node speak as, who may run
// something as it, and the tokens that workers get.
#ifndef VT_CLOUD_SERVICE_ACCOUNT_H
#define VT_CLOUD_SERVICE_ACCOUNT_H

#include "cloud/state/node.h"

#define VT_ACT_AS "iam.serviceAccounts.actAs"

// "100000000001-compute@developer.vtpu.localhost", the account of nodes that name none.
const char *vt_sa_default(const vt_cloud *cloud, vt_arena *arena, int64_t project_number);
// The account of a node: the one its body names, else the project's default.
const char *vt_sa_of_node(const vt_cloud *cloud, vt_arena *arena, const json_t *body,
                          int64_t project_number);
// Whether the caller may run something as the account of `body`, a clean Node: it has to be one of
// call->project, and the caller needs iam.serviceAccounts.actAs there. errors PERMISSION_DENIED,
// the same for an account that is not there, is another project's, or is not to be used.
vt_status vt_sa_may_act(vt_call *call, const json_t *body) VT_CHECKED;
// A token of the node's account for its workers, "" when the account is not there or is disabled. A
// transaction of its own. The default account is made with the first token; one that was deleted
// stays so.
vt_status vt_sa_issue(vt_cloud *cloud, vt_arena *arena, const vt_node *node, const char *email,
                      int64_t project_number, char **out_token) VT_CHECKED;
// Forgets an account and all that it could sign in with.
vt_status vt_sa_remove(vt_call *call, const char *email) VT_CHECKED;

#endif
