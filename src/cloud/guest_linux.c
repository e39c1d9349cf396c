// SPDX-License-Identifier: Apache-2.0
#include "cloud/guest.h"
vt_status vt_guest_linux_create(vt_cloud *cloud, vt_guest_driver **out_driver) {
  (void)cloud, (void)out_driver;
  return vt_error(VT_UNIMPLEMENTED, "guests");
}
