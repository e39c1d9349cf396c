// SPDX-License-Identifier: Apache-2.0
// watchdog.h - ends a daemon that hangs, or does not stop when it should, so that its supervisor
// can restart it. Looping threads report progress with a heartbeat.
#ifndef VT_CLOUD_WATCHDOG_H
#define VT_CLOUD_WATCHDOG_H

#include <stdatomic.h>

#include "cloud/store/cloud.h"

typedef struct vt_heartbeat {
  struct vt_heartbeat *next;
  const char *name; // name in the log
  atomic_uint_fast64_t count;
  uint64_t seen; // the watchdog's
  int silent_s;
} vt_heartbeat;

// Between add and remove the heartbeat's owner calls vt_heartbeat_now at least every few seconds.
void vt_heartbeat_add(vt_heartbeat *heartbeat, const char *name);
void vt_heartbeat_remove(vt_heartbeat *heartbeat);
void vt_heartbeat_now(vt_heartbeat *heartbeat);

typedef struct vt_watchdog vt_watchdog;
// Checks all heartbeats and the cloud's lock every second. One that is silent for `limit_s` ends
// the process with VT_WATCHDOG_EXIT and a line on stderr; 0 only watches the shutdown. Notifies
// systemd if it asked for that ($NOTIFY_SOCKET, $WATCHDOG_USEC).
enum { VT_WATCHDOG_EXIT = 70 };
vt_status vt_watchdog_start(vt_cloud *cloud, int64_t limit_s, vt_watchdog **out_dog) VT_CHECKED;
// From now on the process has this long to end, whatever it does.
void vt_watchdog_end_within(vt_watchdog *dog, int seconds);
// Call before the cloud is closed: its lock is no longer checked. The shutdown is still watched.
// Accepts NULL.
void vt_watchdog_forget_cloud(vt_watchdog *dog);
void vt_watchdog_stop(vt_watchdog *dog); // accepts NULL

#endif
