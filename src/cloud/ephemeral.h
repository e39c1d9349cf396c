// SPDX-License-Identifier: Apache-2.0
// ephemeral.h - what clients need to find a throw-away cloud: environment variables, a token file,
// a key file.
#ifndef VT_CLOUD_EPHEMERAL_H
#define VT_CLOUD_EPHEMERAL_H

#include "base/arena.h"
#include "cloud/store/cloud.h"

typedef struct vt_ephemeral {
  const char *address, *project, *account, *token; // account: the token's owner
  const char *googleapis, *ca;                     // "" when off
  uint16_t port;
  bool secure;
} vt_ephemeral;

typedef void (*vt_variable_use)(const char *name, const char *value);

// Makes a service account that owns the project, writes its key and the token to the state folder,
// and calls `use` for every variable. Call under the cloud's lock.
vt_status vt_ephemeral_variables(vt_cloud *cloud, const vt_ephemeral *e, vt_arena *arena,
                                 vt_variable_use use) VT_CHECKED;

#endif
