// SPDX-License-Identifier: Apache-2.0
// authority.h - this cloud's own certificate authority, for clients that call Google's host names.
#ifndef VT_CLOUD_AUTHORITY_H
#define VT_CLOUD_AUTHORITY_H

#include "base/arena.h"
#include "base/status.h"

typedef struct vt_authority {
  const char *ca, *certificate, *key; // PEM files
} vt_authority;

// Makes ca.pem (once, for ten years; it can vouch for Google's names, the universe and this
// machine only) and a certificate of it for those names, in `folder`. Paths go to `arena`.
vt_status vt_authority_make(const char *folder, const char *universe, const char *address,
                            vt_arena *arena, vt_authority *out_authority) VT_CHECKED;

#endif
