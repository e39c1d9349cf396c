// SPDX-License-Identifier: Apache-2.0
// login_name.h - names of people's accounts on workers: which may be one, and the user id of each.
#ifndef VT_CLOUD_LOGIN_NAME_H
#define VT_CLOUD_LOGIN_NAME_H

#include "cloud/store/cloud.h"

// Ids of people on workers, before the shift into the host's ids (guest_spec.h).
enum { VT_LOGIN_FIRST_ID = 2000, VT_LOGIN_IDS = 58000 };

// Whether a name may be one of a person: up to 32 lower-case letters, digits, '_', '-' and '.', a
// letter first, and not a user or group of the system, here or as Debian's packages name them.
bool vt_login_name_valid(const char *name, size_t size);
// The id of a name on all workers of a project, made when it is first asked for and kept for ever:
// nobody else gets it there. errors RESOURCE_EXHAUSTED: the project has named too many.
vt_status vt_login_id(vt_cloud *cloud, const char *project, const char *name,
                      int64_t *out_id) VT_CHECKED;
// The same without making one: what it is, or most likely will be.
vt_status vt_login_id_known(vt_cloud *cloud, const char *project, const char *name,
                            int64_t *out_id) VT_CHECKED;

#endif
