// SPDX-License-Identifier: Apache-2.0
// pci.h - the files by which programs find TPU chips on a machine. Plain libc.
#ifndef VT_CLOUD_PCI_H
#define VT_CLOUD_PCI_H

#include <stdbool.h>

// Fills `folder` as /sys/bus/pci/devices: a folder for each chip, which has the files that
// frameworks and tpu-info read. `device` is the PCI device, `driver` "vfio" or "accel".
// errors: false, errno says why.
bool vt_pci_write(const char *folder, int chips, int device, const char *driver);
// The name of a chip's file below /dev.
void vt_pci_device_file(const char *driver, int chip, char out_name[32]);

#endif
