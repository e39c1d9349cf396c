// SPDX-License-Identifier: Apache-2.0
// worker.h - a worker as it is requested and as the launcher reads it: only numbers and plain
// names. The requester is not trusted; host paths and ids are derived here from the numbers. Plain
// libc.
#ifndef VT_CLOUD_WORKER_H
#define VT_CLOUD_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VT_WORKER_PEERS = 4096, VT_WORKER_DISKS = 128 };
enum { VT_SPEC_MAX = 256 << 10 }; // bytes of a description

typedef struct vt_worker_disk {
  int64_t uid;
  uint32_t read_only; // 0, 1
  uint32_t size_gb;
  char name[64];
} vt_worker_disk;

// No pointers: sent as it is.
typedef struct vt_worker {
  int64_t uid;                // of the node
  uint32_t index, count;      // of this worker; number of the node's workers
  uint32_t ip;                // host order
  uint32_t project;           // 24 bits; workers with the same number can reach each other
  uint32_t chips, pci_device; // of one worker
  uint32_t vfio;              // 0, 1: naming scheme of its chips' device files
  uint32_t boot_disk_gb;
  char node[64], accelerator_type[32], version[128]; // version: of the runtime
  uint32_t peer_count, disk_count;
  uint32_t peers[VT_WORKER_PEERS]; // addresses of the node's workers, in order
  vt_worker_disk disks[VT_WORKER_DISKS];
  char cookie[33]; // a word that the node's workers share, in hexadecimal digits
} vt_worker;

// Settings shared by all workers of a cloud, from whoever started the daemon.
typedef struct vt_worker_site {
  int level;
  const char *tag;     // four characters of this cloud, in the names of its interfaces
  const char *hub;     // where workers of other hosts are reached, "" = there are none
  const char *disks;   // the folder of data disks
  const char *library; // libvtpu.so, "" = none
  const char *python;  // bin folder, or "VERSION=FOLDER,...,FOLDER"
  const char *limits;  // "auto", "rlimit"
  long long memory_mib;
  int cpus;
} vt_worker_site;

// NULL, or what is wrong with it.
const char *vt_worker_check(const vt_worker *worker, int level);
// The lines `key=value` that vtpu-guest reads, for a checked worker. False: they do not fit.
bool vt_worker_text(const vt_worker *worker, const vt_worker_site *site, char *out, size_t size);
bool vt_worker_version_good(const char *version, size_t size); // of `size` bytes at most
bool vt_worker_address_good(int level, uint32_t ip);           // in the pool of that level
// A range of 65536 host uids of its own: its files and processes belong to no other worker, and not
// to the host.
unsigned vt_worker_uid_base(int level, uint32_t ip);
enum { VT_WORKER_RANGES = 60000 }; // of them
// "t1v-n-1a2b3c4d-w-0"
void vt_worker_hostname(int64_t uid, int64_t index, char out_name[64]);
// The folder with the Python of a runtime version, from a list "VERSION=FOLDER,...,FOLDER": that of
// the version, else the one without a version, else "".
void vt_worker_python(const char *list, const char *version, char out_folder[4096]);

#endif
