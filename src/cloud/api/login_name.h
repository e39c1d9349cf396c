// SPDX-License-Identifier: Apache-2.0
// login_name.h - names of people's accounts on workers: which names are valid, and the user id of
// each.
#ifndef VT_CLOUD_LOGIN_NAME_H
#define VT_CLOUD_LOGIN_NAME_H

#include "cloud/store/cloud.h"

// Ids of people on workers, before they are shifted into the host's ids (guest_spec.h).
enum { VT_LOGIN_FIRST_ID = 2000, VT_LOGIN_IDS = 58000 };

// Whether a name is valid for a person: up to 32 lower-case letters, digits, '_', '-' and '.',
// beginning with a letter, and not a user or group of the system, here or in Debian's packages.
bool vt_login_name_valid(const char *name, size_t size);
// The id of a name on all workers of a project; assigned on first use and never reused there.
// errors RESOURCE_EXHAUSTED: the project has too many names.
vt_status vt_login_id(vt_cloud *cloud, const char *project, const char *name,
                      int64_t *out_id) VT_CHECKED;
// The same without assigning one: the id it has, or most likely will get.
vt_status vt_login_id_known(vt_cloud *cloud, const char *project, const char *name,
                            int64_t *out_id) VT_CHECKED;

#endif
