// SPDX-License-Identifier: Apache-2.0
// pci.c - see pci.h.
#include "cloud/worker/pci.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VENDOR = 0x1ae0, FIRST_SLOT = 4, SLOTS = 32, BUSES = 256 };

static bool put(int folder, const char *name, const char *text) {
  int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
  if (fd < 0) return false;
  bool good = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return good;
}

static bool put_number(int folder, const char *name, int number) {
  char text[16];
  snprintf(text, sizeof text, "0x%04x\n", (unsigned)number);
  return put(folder, name, text);
}

// Every device has a class, and readers of the list rely on it (Gloo, in JAX's CPU client).
static const char unassigned_class[] = "0xff0000\n";

static bool write_chip(int chip, int folder, int device, const char *driver) {
  char group[64];
  snprintf(group, sizeof group, "../../../kernel/iommu_groups/%d", chip);
  return put_number(folder, "vendor", VENDOR) && put_number(folder, "device", device) &&
         put_number(folder, "subsystem_vendor", VENDOR) &&
         put_number(folder, "subsystem_device", device) && put(folder, "class", unassigned_class) &&
         put(folder, "numa_node", "0\n") &&
         (strcmp(driver, "vfio") != 0 || symlinkat(group, folder, "iommu_group") == 0);
}

bool vt_pci_write(const char *folder, int chips, int device, const char *driver) {
  for (int i = 0; i < chips; i++) {
    char path[4096];
    int slot = FIRST_SLOT + i;
    snprintf(path, sizeof path, "%s/%04x:%02x:%02x.0", folder, slot / SLOTS / BUSES,
             slot / SLOTS % BUSES, slot % SLOTS);
    if (mkdir(path, 0755) != 0) return false;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    bool good = write_chip(i, fd, device, driver);
    close(fd);
    if (!good) return false;
  }
  return true;
}

void vt_pci_device_file(const char *driver, int chip, char out_name[32]) {
  snprintf(out_name, 32, strcmp(driver, "vfio") == 0 ? "vfio/%d" : "accel%d", chip);
}
