// SPDX-License-Identifier: Apache-2.0
// open.h - opens a cloud, creates its first project, closes it.
#ifndef VT_CLOUD_OPEN_H
#define VT_CLOUD_OPEN_H

#include "cloud/store/cloud.h"

void vt_cloud_options_default(vt_cloud_options *out_options);
// Copies `options` but borrows its strings. errors as vt_store_open.
vt_status vt_cloud_open(const vt_cloud_options *options, vt_cloud **out_cloud) VT_CHECKED;
void vt_cloud_close(vt_cloud *cloud); // accepts NULL
// Creates the first project and its administrator where they are missing. Returns the
// administrator's initial token, which the caller frees; for a persistent cloud, NULL after the
// first start.
typedef enum vt_first_token {
  VT_TOKEN_FIRST, // only with a new account; lives VT_FIRST_TOKEN_NS
  VT_TOKEN_NEW,   // a new one that replaces the previous one
  VT_TOKEN_ALWAYS // a new one that does not expire: it goes with the cloud
} vt_first_token;
#define VT_FIRST_TOKEN_NS (90 * VT_DAY)
vt_status vt_cloud_seed(vt_cloud *cloud, const char *project, const char *account,
                        vt_first_token token, char **out_token) VT_CHECKED;

#endif
