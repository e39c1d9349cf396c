// SPDX-License-Identifier: Apache-2.0
// worker.c - see worker.h.
#include "cloud/worker/worker.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

// --- checks --------------------------------------------------------------------------------------

static bool plain(const char *text, size_t size, const char *letters, bool may_be_empty) {
  size_t n = strnlen(text, size);
  return n < size && (n || may_be_empty) && strspn(text, letters) == n;
}

bool vt_worker_address_good(int level, uint32_t ip) {
  unsigned last = ip & 255;
  if (level == 1) return ip >> 22 == (127u << 24 | 64u << 16) >> 22 && last >= 1 && last <= 254;
  return ip >> 16 == (10u << 8 | 164u) && (ip >> 8 & 255) < 250 && last >= 2 && last < 252;
}

bool vt_worker_version_good(const char *version, size_t size) {
  return plain(version, size, LETTERS "._", true);
}

static const char *check_disks(const vt_worker *w) {
  if (w->disk_count > VT_WORKER_DISKS) return "too many disks";
  for (uint32_t i = 0; i < w->disk_count; i++) {
    const vt_worker_disk *d = &w->disks[i];
    if (d->uid <= 0 || d->read_only > 1 || d->size_gb < 1 || d->size_gb > 65536 ||
        !plain(d->name, sizeof d->name, LETTERS, false))
      return "a disk that can not be";
    for (uint32_t j = 0; j < i; j++)
      if (strcmp(w->disks[j].name, d->name) == 0) return "two disks of one name";
  }
  return NULL;
}

const char *vt_worker_check(const vt_worker *w, int level) {
  if (w->uid <= 0) return "no node";
  if (w->count < 1 || w->count > VT_WORKER_PEERS || w->index >= w->count) return "no such worker";
  if (!vt_worker_address_good(level, w->ip)) return "an address that is no worker's";
  if (w->project >> 24) return "no such project";
  if (w->chips > 16 || w->pci_device > 0xffff || w->vfio > 1) return "no such chips";
  if (w->boot_disk_gb < 1 || w->boot_disk_gb > 65536) return "no such disk size";
  if (!plain(w->node, sizeof w->node, LETTERS "_.~+%", false)) return "no name of a node";
  if (!plain(w->accelerator_type, sizeof w->accelerator_type, LETTERS, false))
    return "no name of an accelerator";
  if (!vt_worker_version_good(w->version, sizeof w->version)) return "no name of a version";
  if (!plain(w->cookie, sizeof w->cookie, "0123456789abcdef", true)) return "no cookie";
  if (w->peer_count > w->count) return "too many peers";
  for (uint32_t i = 0; i < w->peer_count; i++)
    if (!vt_worker_address_good(level, w->peers[i])) return "a peer that is no worker";
  return check_disks(w);
}

// --- names and numbers ---------------------------------------------------------------------------

unsigned vt_worker_uid_base(int level, uint32_t ip) {
  unsigned a = ip >> 16 & 255, b = ip >> 8 & 255, c = ip & 255;
  unsigned number = level == 1 ? ((a - 64) * 64516 + b * 254 + c) % VT_WORKER_RANGES : b * 250 + c;
  return 65536u * (16u + number);
}

void vt_worker_hostname(int64_t uid, int64_t index, char out_name[64]) {
  snprintf(out_name, 64, "t1v-n-%08" PRIx64 "-w-%" PRId64, (uint64_t)uid & 0xffffffffu, index);
}

void vt_worker_python(const char *list, const char *version, char out_folder[4096]) {
  size_t name = strlen(version);
  *out_folder = '\0';
  for (const char *p = list; *p; p += *p == ',') {
    const char *end = p + strcspn(p, ","), *equals = memchr(p, '=', (size_t)(end - p));
    bool exact = equals && (size_t)(equals - p) == name && memcmp(p, version, name) == 0;
    const char *folder = equals ? equals + 1 : p;
    if (exact || !equals) snprintf(out_folder, 4096, "%.*s", (int)(end - folder), folder);
    if (exact) return;
    p = end;
  }
}

// --- the description -----------------------------------------------------------------------------

typedef struct text {
  char *at;
  size_t left; // 0 = it did not fit
} text;

__attribute__((format(printf, 2, 3))) static void put(text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->at, t->left, format, args);
  va_end(args);
  if (n < 0 || (size_t)n >= t->left) {
    t->left = 0;
  } else {
    t->at += n;
    t->left -= (size_t)n;
  }
}

static const char *dotted(uint32_t ip, char out[16]) {
  snprintf(out, 16, "%u.%u.%u.%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
  return out;
}

static void put_site(const vt_worker *w, const vt_worker_site *s, text *t) {
  char python[4096];
  vt_worker_python(s->python, w->version, python);
  put(t, "level=%d\nhub=%s\nlibrary=%s\npython=%s\n", s->level, s->hub, s->library, python);
  put(t, "bridge=vtb%.4s%06" PRIx32 "\nveth=vtg%.4s%07" PRIx32 "\n", s->tag, w->project, s->tag,
      w->ip & 0xfffffff);
  put(t, "limits=%s\nmemory_mib=%lld\ncpus=%d\n", s->limits, s->memory_mib, s->cpus);
}

bool vt_worker_text(const vt_worker *w, const vt_worker_site *s, char *out, size_t size) {
  text t = {out, size};
  char ip[16], name[64];
  vt_worker_hostname(w->uid, w->index, name);
  dotted(w->ip, ip);
  put(&t, "hostname=%s\nip=%s\ngateway=10.164.0.1\nmetadata=%s\nuid_base=%u\n", name, ip,
      s->level == 1 ? ip : "169.254.169.254", vt_worker_uid_base(s->level, w->ip));
  put_site(w, s, &t);
  put(&t, "accelerator_type=%s\nchips=%" PRIu32 "\npci_device=0x%04" PRIx32 "\ndevice_files=%s\n",
      w->accelerator_type, w->chips, w->pci_device, w->vfio ? "vfio" : "accel");
  put(&t, "worker=%" PRIu32 "\nworkers=%" PRIu32 "\nnode=%s\ncookie=%s\nboot_disk_gb=%" PRIu32 "\n",
      w->index, w->count, w->node, w->cookie, w->boot_disk_gb);
  put(&t, "disks=");
  for (uint32_t i = 0; i < w->disk_count; i++)
    put(&t, "%s%s:%s:%s/%" PRId64, i ? "," : "", w->disks[i].name,
        w->disks[i].read_only ? "ro" : "rw", s->disks, w->disks[i].uid);
  put(&t, "\npeers=");
  for (uint32_t i = 0; i < w->peer_count; i++) {
    vt_worker_hostname(w->uid, i, name);
    put(&t, "%s%s:%s", i ? "," : "", dotted(w->peers[i], ip), name);
  }
  put(&t, "\n");
  return t.left > 0;
}
