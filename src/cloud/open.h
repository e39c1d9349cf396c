// SPDX-License-Identifier: Apache-2.0
// open.h - a cloud is opened, gets its first project, and is closed.
#ifndef VT_CLOUD_OPEN_H
#define VT_CLOUD_OPEN_H

#include "cloud/store/cloud.h"

void vt_cloud_options_default(vt_cloud_options *out_options);
// `options` is copied, its strings are borrowed. errors as vt_store_open.
vt_status vt_cloud_open(const vt_cloud_options *options, vt_cloud **out_cloud) VT_CHECKED;
void vt_cloud_close(vt_cloud *cloud); // accepts NULL
// The first project and its administrator, made where they are missing, and the administrator's
// token of the start, freed by the caller: for a cloud that lasts NULL after the first start.
typedef enum vt_first_token {
  VT_TOKEN_FIRST, // with a new account only; lives VT_FIRST_TOKEN_NS
  VT_TOKEN_NEW,   // another one, and the one before ends
  VT_TOKEN_ALWAYS // the same, without an end: it goes with the cloud
} vt_first_token;
#define VT_FIRST_TOKEN_NS (90 * VT_DAY)
vt_status vt_cloud_seed(vt_cloud *cloud, const char *project, const char *account,
                        vt_first_token token, char **out_token) VT_CHECKED;

#endif
