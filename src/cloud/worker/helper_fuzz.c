// SPDX-License-Identifier: Apache-2.0
// helper_fuzz.c - any message to the helper. The first byte selects the open level, and whether the
// rest is padded to the size of its request; an accepted one must give a description with the
// intended lines, of plain values, and no path except those that the helper was started with.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/worker/helper.h"

static const char *const keys[] = {
    "hostname", "ip",         "gateway",      "metadata", "uid_base",
    "level",    "hub",        "library",      "python",   "bridge",
    "veth",     "limits",     "memory_mib",   "cpus",     "accelerator_type",
    "chips",    "pci_device", "device_files", "worker",   "workers",
    "node",     "cookie",     "boot_disk_gb", "disks",    "peers"};

static void check_text(char *text) {
  size_t line = 0;
  for (char *save, *p = strtok_r(text, "\n", &save); p; p = strtok_r(NULL, "\n", &save), line++) {
    size_t n = line < sizeof keys / sizeof *keys ? strlen(keys[line]) : 0;
    if (n == 0 || strncmp(p, keys[line], n) != 0 || p[n] != '=') abort();
    if ((strstr(p, "..") && strcmp(keys[line], "node") != 0) || strpbrk(p, "'\"\\ $`")) abort();
    bool paths = strcmp(keys[line], "disks") == 0;
    for (const char *q = p; (q = strchr(q, '/')); q++) {
      if (!paths || (strncmp(q, "/state/disks/", 13) != 0)) abort();
      q += 13;
      if (*q < '1' || *q > '9') abort();
    }
  }
  if (line != sizeof keys / sizeof *keys) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static vt_helper_request request;
  static char text[VT_SPEC_MAX];
  vt_worker_site site = {.tag = "abcd",
                         .hub = "",
                         .disks = "/state/disks",
                         .library = "",
                         .python = "",
                         .limits = "auto"};
  if (size < 1) return 0;
  int level = data[0] % 4 - 1;
  size_t got = size - 1 < sizeof request ? size - 1 : sizeof request;
  memset(&request, 0, sizeof request);
  memcpy(&request, data + 1, got);
  size_t claimed = data[0] & 128 ? vt_helper_request_size(request.op) : size - 1;
  if (vt_helper_check(&request, claimed, level)) return 0;
  if (claimed != vt_helper_request_size(request.op)) abort();
  if (claimed < sizeof request) return 0;
  site.level = level;
  unsigned base = vt_worker_uid_base(level, request.worker.ip);
  if (base < 65536 * 16 || base > 65536u * 65500) abort(); // never host ids
  if (!vt_worker_text(&request.worker, &site, text, sizeof text)) abort();
  check_text(text);
  return 0;
}
