// SPDX-License-Identifier: Apache-2.0
// root.h - where process 0 is, by a key-value store of the framework: for processes of which the
// environment says nothing.
//
// Process 0 publishes where it listens; it tells all others the rest (rendezvous.c).
#ifndef VT_DISTRIBUTED_ROOT_H
#define VT_DISTRIBUTED_ROOT_H

#include "distributed/join.h"

enum { VT_ROOT_ADDRESSES = 8, VT_ROOT_VALUE = 4096, VT_SECRET = 33 };

typedef struct vt_root {
  char secret[VT_SECRET]; // compared as VTPU_COOKIE is
  int32_t count;
  vt_address addresses[VT_ROOT_ADDRESSES]; // of one process
} vt_root;

// Process 0 listens on `port` of all its addresses. errors: those of the store
vt_status vt_root_publish(const vt_store *store, int32_t port, vt_root *out) VT_CHECKED;
// Waits for it.
vt_status vt_root_find(const vt_store *store, double timeout_s, vt_root *out) VT_CHECKED;
// "SECRET host:port,host:port". errors INVALID_ARGUMENT
vt_status vt_root_read(const char *text, vt_root *out) VT_CHECKED;

#endif
