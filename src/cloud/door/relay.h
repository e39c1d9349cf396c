// SPDX-License-Identifier: Apache-2.0
// relay.h - the tunnels of a cloud: TCP connections to workers, relayed over WebSockets.
#ifndef VT_CLOUD_RELAY_H
#define VT_CLOUD_RELAY_H

#include <stdbool.h>

#include "base/status.h"

vt_status vt_relays_create(struct vt_relays **out_relays) VT_CHECKED;
void vt_relays_destroy(struct vt_relays *relays); // after the doors are closed; accepts NULL

// A connected non-blocking socket, or -1 after a few seconds. `own_address`: only to a program that
// listens at exactly this address, not to one of the host that listens on all.
int vt_relay_dial(const char *ip, int port, bool own_address);
bool vt_relay_listens(const char *ip, int port);

#endif
