// SPDX-License-Identifier: Apache-2.0
// account.h - who calls, and what they may do: accounts, service-account keys, project roles. For
// tokens see token.h, for passwords password.h.
//
// All functions run under the cloud's lock.
#ifndef VT_CLOUD_ACCOUNT_H
#define VT_CLOUD_ACCOUNT_H

#include "cloud/api/call.h"
#include "cloud/api/token.h"

// Finds the identity of a call: bearer token, access_token parameter, self-signed JWT, console
// cookie. Missing or bad credentials leave call->caller empty. errors: of the store only.
vt_status vt_account_identify(vt_call *call) VT_CHECKED;
// errors RESOURCE_EXHAUSTED when the account exceeds its rate limit.
vt_status vt_account_check_rate(vt_call *call) VT_CHECKED;
// Sets call->project when the caller has `permission` there; else PERMISSION_DENIED, also for
// unknown projects.
vt_status vt_account_allow(vt_call *call, const char *project, const char *permission) VT_CHECKED;
// Sets call->project when it exists and the caller is any member of it (or an administrator).
vt_status vt_account_find_project(vt_call *call, const char *project) VT_CHECKED;
// For what outlives its call: whether `credential` is still valid for `caller` and the caller is
// still allowed.
vt_status vt_account_still(vt_cloud *cloud, const char *credential, const char *caller,
                           const char *project, const char *permission, bool *out_still) VT_CHECKED;
// Whether the caller has the permission in call->project.
vt_status vt_account_has(vt_call *call, const char *permission, bool *out_has) VT_CHECKED;

// kind user or service; role admin, reviewer, user. errors ALREADY_EXISTS.
vt_status vt_account_create(vt_cloud *cloud, const char *email, const char *kind, const char *role,
                            const char *project, const char *display_name) VT_CHECKED;

// The claims of a JWT signed by a service-account key; email "" when it is not valid now.
typedef struct vt_jwt {
  const char *email, *key, *credential; // key: id; credential: as call->credential
} vt_jwt;
// `grant`: the JWT is the assertion of a token request, with the token endpoint as audience;
// otherwise a bearer token, with a service as audience.
vt_status vt_jwt_check(vt_call *call, const char *jwt, bool grant, vt_jwt *out_jwt) VT_CHECKED;
// A JWT of ours over `claims`, HS256 with the cloud's secret (id_token of the login flow, identity
// of guests).
char *vt_jwt_sign(const vt_cloud *cloud, const json_t *claims);
// Creates an RSA key of a service account: returns the private PEM (caller frees) and key id; the
// public half is stored.
vt_status vt_sa_key_create(vt_cloud *cloud, const char *email, char **out_private_pem,
                           char out_id[41]) VT_CHECKED;

#endif
