// SPDX-License-Identifier: Apache-2.0
// guest_level.c - chooses the back end of the options, and the best level of guests that this host
// supports; explains why not a better one.
#include <stdio.h>
#include <string.h>

#include "cloud/control/guest.h"

static const char *const names[] = {
    "rows without a machine behind them (level 0): the API answers, nobody can enter them",
    "processes with users, homes and an sshd of their own on 127.x.y.z (level 1)",
    "isolated Linux machines (level 2)"};

static vt_status create(vt_cloud *cloud, int level, vt_guest_driver **out_driver) {
  cloud->options.guest_level = level;
  if (strcmp(cloud->options.backend, "slurm") == 0) return vt_guest_slurm_create(cloud, out_driver);
  return level == 0 ? vt_guest_none_create(out_driver) : vt_guest_linux_create(cloud, out_driver);
}

// `why`: what prevented a better level, "" = none was tried.
static void say(vt_cloud *cloud, int level, const char *why) {
  size_t size = sizeof cloud->machines;
  if (level == 0 && !*why)
    snprintf(cloud->machines, size, "%s; `vtpud --guests=auto` has the best that this host can",
             names[level]);
  else if (*why)
    snprintf(cloud->machines, size, "%s; not better because %s", names[level], why);
  else
    snprintf(cloud->machines, size, "%s", names[level]);
}

vt_status vt_guest_create(vt_cloud *cloud, int level, vt_guest_driver **out_driver) {
  vt_text why = {0};
  vt_status st;
  // What a cluster's hosts support shows when a worker boots there.
  if (level < 0 && strcmp(cloud->options.backend, "slurm") == 0) level = 2;
  if (level >= 0) {
    st = create(cloud, level, out_driver);
    say(cloud, level, "");
    return vt_status_wrap(st, "guests of level %d (--guests=auto takes the best there is)", level);
  }
  for (level = 2; (st = create(cloud, level, out_driver)) && level > 0; level--) {
    vt_text_printf(&why, "%slevel %d: %s", why.size ? ", " : "", level, vt_status_message(st));
    vt_status_free(st);
  }
  say(cloud, level, vt_text_string(&why));
  vt_text_free(&why);
  return st;
}
