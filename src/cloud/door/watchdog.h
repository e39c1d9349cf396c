// SPDX-License-Identifier: Apache-2.0
// watchdog.h - ends a daemon that does not answer any more, or does not end when it should, so that
// whoever started it can start it again. Threads that wait in turns say so with a heartbeat.
#ifndef VT_CLOUD_WATCHDOG_H
#define VT_CLOUD_WATCHDOG_H

#include <stdatomic.h>

#include "cloud/store/cloud.h"

typedef struct vt_heartbeat {
  struct vt_heartbeat *next;
  const char *name; // what does not answer, in the log
  atomic_uint_fast64_t count;
  uint64_t seen; // the watchdog's
  int silent_s;
} vt_heartbeat;

// From add to remove the heartbeat's owner calls vt_heartbeat_now at least every few seconds.
void vt_heartbeat_add(vt_heartbeat *heartbeat, const char *name);
void vt_heartbeat_remove(vt_heartbeat *heartbeat);
void vt_heartbeat_now(vt_heartbeat *heartbeat);

typedef struct vt_watchdog vt_watchdog;
// Looks every second at all heartbeats and at the cloud's lock. One that is silent for `limit_s`
// ends the process with VT_WATCHDOG_EXIT and a line on stderr; 0 only watches the end. Where
// systemd asked for it ($NOTIFY_SOCKET, $WATCHDOG_USEC), it is told that all is well.
enum { VT_WATCHDOG_EXIT = 70 };
vt_status vt_watchdog_start(vt_cloud *cloud, int64_t limit_s, vt_watchdog **out_dog) VT_CHECKED;
// The process has so long to end, from now on, whatever it does.
void vt_watchdog_end_within(vt_watchdog *dog, int seconds);
// Before the cloud is closed: its lock is looked at no more. The end stays watched. Accepts NULL.
void vt_watchdog_forget_cloud(vt_watchdog *dog);
void vt_watchdog_stop(vt_watchdog *dog); // accepts NULL

#endif
