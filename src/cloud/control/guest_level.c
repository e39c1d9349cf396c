// SPDX-License-Identifier: Apache-2.0
// guest_level.c - the back end of the options, and the level of guests that this host can have,
// best first, and why not a better one.
#include <string.h>

#include "base/log.h"
#include "cloud/control/guest.h"

static const char *const names[] = {"no machines, the API only",
                                    "an sshd for each worker on 127.x.y.z, users of its own",
                                    "isolated Linux workers"};

static vt_status create(vt_cloud *cloud, int level, vt_guest_driver **out_driver) {
  cloud->options.guest_level = level;
  if (strcmp(cloud->options.backend, "slurm") == 0) return vt_guest_slurm_create(cloud, out_driver);
  return level == 0 ? vt_guest_none_create(out_driver) : vt_guest_linux_create(cloud, out_driver);
}

vt_status vt_guest_create(vt_cloud *cloud, int level, vt_guest_driver **out_driver) {
  // What the hosts of a cluster can is seen when a worker boots there.
  if (level < 0 && strcmp(cloud->options.backend, "slurm") == 0) level = 2;
  if (level >= 0) {
    vt_status st = create(cloud, level, out_driver);
    return vt_status_wrap(st, "guests of level %d (--guests=auto takes the best there is)", level);
  }
  for (level = 2;; level--) {
    vt_status st = create(cloud, level, out_driver);
    if (!st || level == 0) {
      if (!st) vt_log(VT_LOG_WARNING, "guests: level %d, %s", level, names[level]);
      return st;
    }
    vt_log(VT_LOG_WARNING, "guests: level %d is not possible here: %s", level,
           vt_status_message(st));
    vt_status_free(st);
  }
}
