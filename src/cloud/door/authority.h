// SPDX-License-Identifier: Apache-2.0
// authority.h - this cloud's own certificate authority, for clients that call Google's host names.
#ifndef VT_CLOUD_AUTHORITY_H
#define VT_CLOUD_AUTHORITY_H

#include "base/arena.h"
#include "base/status.h"

typedef struct vt_authority {
  const char *ca, *certificate, *key; // PEM files
} vt_authority;

// Creates ca.pem in `folder` (once, for ten years, constrained to Google's names, the universe and
// this machine) and a certificate signed by it for those names. Paths are in `arena`.
vt_status vt_authority_make(const char *folder, const char *universe, const char *address,
                            vt_arena *arena, vt_authority *out_authority) VT_CHECKED;

#endif
