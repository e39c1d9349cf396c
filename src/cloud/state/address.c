// SPDX-License-Identifier: Apache-2.0
// address.c - see address.h. A block is claimed by a socket name that disappears with the process.
// Guests that outlive their daemon hold their addresses by listening on them.
#include "cloud/state/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cloud/store/row.h"
#include "cloud/worker/worker.h"

enum { BLOCK = 2000, BLOCKS = VT_WORKER_RANGES / BLOCK };
enum { IDS = 65536, FIRST_RANGE = 16 }; // as vt_worker_uid_base has them

// Level 1 has as many addresses as there are ranges of host ids: two workers sharing a range would
// be one user to the host.
static void write_address(int level, int64_t number, char out_ip[32]) {
  if (level == 1)
    snprintf(out_ip, 32, "127.64.%d.%d", (int)(number / 254), (int)(1 + number % 254));
  else
    snprintf(out_ip, 32, "10.164.%d.%d", (int)(number / 250), (int)(number % 250));
}

int64_t vt_address_count(const vt_cloud *cloud) {
  return cloud->options.guest_level == 0 ? INT64_C(64) * 62500
         : cloud->address_block          ? BLOCK
                                         : VT_WORKER_RANGES;
}

void vt_address_at(const vt_cloud *cloud, int64_t n, char out_ip[32]) {
  int64_t count = vt_address_count(cloud);
  if (cloud->options.guest_level == 0) {
    snprintf(out_ip, 32, "10.%d.%d.%d", (int)(168 + n / 62500 % 64), (int)(n / 250 % 250),
             (int)(2 + n % 250));
    return;
  }
  int64_t first = cloud->address_block ? (cloud->address_block - 1) * BLOCK : 0;
  int64_t number = first + n % count;
  // The network's own address and the gateway's. Numbers past the end wrap around; addresses in use
  // are skipped.
  if (cloud->options.guest_level >= 2 && number % 250 < 2) number += 2;
  write_address(cloud->options.guest_level, number, out_ip);
}

// Whether anybody in this network namespace listens on an address of the block.
static bool in_use(int64_t block) {
  char line[512], low[32], high[32];
  unsigned address, port, state;
  struct in_addr first, last;
  bool used = false;
  write_address(1, block * BLOCK, low);
  write_address(1, block * BLOCK + BLOCK - 1, high);
  inet_pton(AF_INET, low, &first);
  inet_pton(AF_INET, high, &last);
  FILE *file = fopen("/proc/self/net/tcp", "re");
  while (file && !used && fgets(line, sizeof line, file))
    // The address is printed as its word in memory; 0A is LISTEN.
    used = sscanf(line, " %*d: %8X:%4X %*8X:%*4X %2X", &address, &port, &state) == 3 &&
           state == 0x0A && ntohl(address) >= ntohl(first.s_addr) &&
           ntohl(address) <= ntohl(last.s_addr);
  if (file) fclose(file);
  return used;
}

// Whether a process of this machine has an id that belongs to the block. Other network namespaces
// have their own addresses but share the ids.
static bool ids_in_use(int64_t block) {
  DIR *dir = opendir("/proc");
  bool used = false;
  for (struct dirent *e; dir && !used && (e = readdir(dir));) {
    struct stat info;
    if (!isdigit((unsigned char)*e->d_name) || fstatat(dirfd(dir), e->d_name, &info, 0) != 0)
      continue;
    int64_t range = (int64_t)(info.st_uid / IDS) - FIRST_RANGE;
    used = range > block * BLOCK && range <= block * BLOCK + BLOCK; // level 1 starts at one
  }
  if (dir) closedir(dir);
  return used;
}

// A name that only one process of the network namespace can have, and that ends with it: an
// unprivileged daemon has no folder of its own on this machine.
static int name_block(int64_t block) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int n =
      snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "vtpu-addresses-%lld", (long long)block);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
  if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) == 0) return fd;
  close(fd);
  return -1;
}

static vt_status keep_block(vt_cloud *cloud, void *context) {
  (void)context;
  const vt_counters_row row = {.name = "address_block", .value = cloud->address_block};
  return vt_row_put(cloud->store, counters, &row);
}

vt_status vt_addresses_hold(vt_cloud *cloud) {
  int64_t kept;
  if (cloud->options.guest_level == 0 || strcmp(cloud->options.backend, "local") != 0) return VT_OK;
  VT_TRY(vt_store_int(cloud->store, &kept, 0,
                      "SELECT value FROM counters WHERE name = 'address_block'", ""));
  for (int64_t b = kept ? kept - 1 : 0; b < (kept ? kept : BLOCKS); b++) {
    int lock = name_block(b);
    if (lock >= 0 && !kept && (in_use(b) || ids_in_use(b))) {
      close(lock);
      continue;
    }
    if (lock < 0) continue;
    cloud->address_lock = lock;
    cloud->address_block = b + 1;
    return kept ? VT_OK : vt_cloud_transact(cloud, keep_block, NULL);
  }
  if (kept)
    return vt_error(VT_UNAVAILABLE,
                    "the addresses of this cloud's workers (block %lld) are another "
                    "one's, which runs on this machine",
                    (long long)kept);
  return vt_error(
      VT_UNAVAILABLE,
      "all %d blocks of addresses are taken by clouds of this machine, or by workers of "
      "clouds that are gone (vtpud --clean ends those)",
      BLOCKS);
}

void vt_addresses_release(vt_cloud *cloud) {
  if (cloud->address_block) close(cloud->address_lock);
  cloud->address_block = 0;
}
