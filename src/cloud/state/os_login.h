// SPDX-License-Identifier: Apache-2.0
// os_login.h - accounts of TPU VMs that come from identities instead of metadata: who may log in to
// a project's workers, under which name, with which keys.
#ifndef VT_CLOUD_OS_LOGIN_H
#define VT_CLOUD_OS_LOGIN_H

#include "base/array.h"
#include "cloud/state/node.h"

// One key of a login profile that may log in.
typedef struct vt_login_key {
  const char *email, *user, *key; // user: the POSIX name
  bool admin;                     // may become root
} vt_login_key;
typedef VT_ARRAY(vt_login_key) vt_login_keys;

// Whether the metadata of the node, or else of its project, says enable-oslogin=TRUE.
bool vt_os_login_on(const vt_node *node, const json_t *project_metadata);
// The unexpired keys of all accounts that may log in to the project's workers, by e-mail; in
// `arena`.
vt_status vt_os_login_keys(vt_cloud *cloud, vt_arena *arena, const char *project,
                           vt_login_keys *out_keys) VT_CHECKED;
// The POSIX name of an account, in `arena`.
vt_status vt_os_login_user(vt_cloud *cloud, vt_arena *arena, const char *email,
                           const char **out_name) VT_CHECKED;

#endif
