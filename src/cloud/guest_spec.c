// SPDX-License-Identifier: Apache-2.0
// guest_spec.c - see guest_spec.h.
#include "cloud/guest_spec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/map.h"
#include "cloud/guest_net.h"
#include "cloud/metadata.h"

unsigned vt_guest_uid_base(int level, const char *ip) {
  int a = 0, b = 0, c = 0;
  unsigned number;
  if (level == 1) {
    sscanf(ip, "127.%d.%d.%d", &a, &b, &c);
    number = ((unsigned)(a - 64) * 64516 + (unsigned)b * 254 + (unsigned)c) % VT_GUEST_RANGES;
  } else {
    sscanf(ip, "10.164.%d.%d", &a, &b);
    number = (unsigned)(a * 250 + b);
  }
  return 65536u * (16u + number);
}

void vt_guest_python(const char *list, const char *version, char out_folder[4096]) {
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

static void put_spec(vt_text *t, const char *key, const char *value) {
  vt_text_printf(t, "%s=%s\n", key, value);
}

static void write_spec(const vt_cloud *cloud, const vt_guest_site *site, const vt_node *node,
                       int64_t worker, const char *ip, vt_text *t) {
  const vt_cloud_options *o = &cloud->options;
  char text[128];
  vt_metadata_hostname(node->uid, worker, text);
  put_spec(t, "hostname", text);
  put_spec(t, "ip", ip);
  put_spec(t, "gateway", VT_NET_GATEWAY);
  put_spec(t, "metadata", o->guest_level == 1 ? ip : VT_NET_METADATA);
  put_spec(t, "level", o->guest_level == 1 ? "1" : "2");
  put_spec(t, "hub", site->hub);
  snprintf(text, sizeof text, "vtb%.4s%06llx", site->tag,
           (unsigned long long)vt_hash_bytes(node->project, strlen(node->project), 3) & 0xffffff);
  put_spec(t, "bridge", text);
  snprintf(text, sizeof text, "vtg%.4s%07llx", site->tag,
           (unsigned long long)vt_hash_bytes(ip, strlen(ip), 4) & 0xfffffff);
  put_spec(t, "veth", text);
  snprintf(text, sizeof text, "%u", vt_guest_uid_base(o->guest_level, ip));
  put_spec(t, "uid_base", text);
  put_spec(t, "library", o->library_path);
  const char *version = json_string_value(json_object_get(node->body, "runtimeVersion"));
  char python[4096];
  vt_guest_python(o->python_path, version ? version : "", python);
  put_spec(t, "python", python);
  put_spec(t, "accelerator_type", node->type->name);
  snprintf(text, sizeof text, "%d", node->type->chips_per_vm);
  put_spec(t, "chips", text);
  snprintf(text, sizeof text, "0x%04x", (unsigned)node->type->family->pci_device);
  put_spec(t, "pci_device", text);
  put_spec(t, "device_files", node->type->family->device_files);
  snprintf(text, sizeof text, "%lld", (long long)worker);
  put_spec(t, "worker", text);
  snprintf(text, sizeof text, "%lld", (long long)node->workers);
  put_spec(t, "workers", text);
  put_spec(t, "node", node->id);
  put_spec(t, "limits", o->guest_limits);
  snprintf(text, sizeof text, "%lld", (long long)o->guest_memory_mib);
  put_spec(t, "memory_mib", text);
  snprintf(text, sizeof text, "%d", o->guest_cpus);
  put_spec(t, "cpus", text);
  put_spec(t, "disks", site->disks);
}

static vt_status add_hosts(vt_cloud *cloud, const vt_node *node, vt_text *t) {
  vt_rows *rows;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT worker, ip FROM workers WHERE node = ? ORDER BY worker", "i",
                        node->uid));
  vt_text_put(t, "peers=");
  while (vt_rows_next(rows)) {
    char name[64];
    vt_metadata_hostname(node->uid, vt_rows_int(rows, 0), name);
    vt_text_printf(t, "%s%s:%s", vt_rows_int(rows, 0) ? "," : "", vt_rows_text(rows, 1), name);
  }
  vt_text_put(t, "\n");
  return vt_rows_end(rows);
}

vt_status vt_guest_spec(vt_cloud *cloud, const vt_guest_site *site, const vt_node *node,
                        int64_t worker, const char *ip, vt_text *out_spec) {
  write_spec(cloud, site, node, worker, ip, out_spec);
  return add_hosts(cloud, node, out_spec);
}

bool vt_guest_answers_ssh(const char *ip) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(22)};
  inet_pton(AF_INET, ip, &to.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool up = connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
  if (!up && errno == EINPROGRESS) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    up = poll(&p, 1, 5) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
         error == 0;
  }
  close(fd);
  return up;
}

vt_status vt_guest_launcher(char out_path[4096]) {
  ssize_t n = readlink("/proc/self/exe", out_path, 4096 - 16);
  if (n <= 0) return vt_error(VT_INTERNAL, "/proc/self/exe: %s", strerror(errno));
  out_path[n] = 0;
  strcpy(strrchr(out_path, '/') + 1, "vtpu-guest");
  if (access(out_path, X_OK) != 0)
    return vt_error(VT_UNIMPLEMENTED, "the launcher %s is not there", out_path);
  return VT_OK;
}
