// SPDX-License-Identifier: Apache-2.0
// guest_none.c - level 0: no machines, only the API. Every worker runs as soon as it is requested.
#include <stdlib.h>

#include "cloud/control/guest.h"

static vt_status none_start(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                            const char *ip) {
  (void)driver, (void)node, (void)worker, (void)ip;
  return VT_OK;
}

static vt_guest_state none_poll(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                                const char *ip) {
  (void)driver, (void)node, (void)worker, (void)ip;
  return VT_GUEST_RUNNING;
}

static bool none_stop(vt_guest_driver *driver, int64_t uid, int64_t worker, bool erase) {
  (void)driver, (void)uid, (void)worker, (void)erase;
  return true;
}

static bool none_disks(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                       const char *ip) {
  (void)driver, (void)node, (void)worker, (void)ip;
  return true;
}

static void none_notify(vt_guest_driver *driver, int64_t uid, int64_t worker) {
  (void)driver, (void)uid, (void)worker;
}

static vt_status none_sweep(vt_guest_driver *driver) {
  (void)driver;
  return VT_OK;
}

static bool none_end_all(vt_guest_driver *driver) {
  (void)driver;
  return true;
}

static void none_destroy(vt_guest_driver *driver) {
  free(driver);
}

vt_status vt_guest_none_create(vt_guest_driver **out_driver) {
  *out_driver = calloc(1, sizeof **out_driver);
  if (!*out_driver) return vt_error_no_memory();
  **out_driver = (vt_guest_driver){none_start, none_poll,    none_stop,    none_disks, none_notify,
                                   none_sweep, none_end_all, none_destroy, false,      NULL};
  return VT_OK;
}
