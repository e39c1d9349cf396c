// SPDX-License-Identifier: Apache-2.0
// guest_spec.c - see guest_spec.h.
#include "cloud/control/guest_spec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/map.h"

static uint32_t number_of(const char *ip) {
  struct in_addr address;
  return inet_pton(AF_INET, ip, &address) == 1 ? ntohl(address.s_addr) : 0;
}

unsigned vt_guest_uid_base(int level, const char *ip) {
  return vt_worker_uid_base(level, number_of(ip));
}

static vt_status add_peers(vt_cloud *cloud, const vt_node *node, vt_worker *w) {
  vt_rows *rows;
  VT_TRY(vt_store_query(cloud->store, &rows,
                        "SELECT ip FROM workers WHERE node = ? ORDER BY worker", "i", node->uid));
  while (vt_rows_next(rows) && w->peer_count < VT_WORKER_PEERS)
    w->peers[w->peer_count++] = number_of(vt_rows_text(rows, 0));
  return vt_rows_end(rows);
}

// The same for all workers of a node, or of the nodes of a multislice, now and after a restart; it
// tells nothing of the secret.
static void make_cookie(const vt_cloud *cloud, const vt_node *node, vt_worker *w) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  char text[512];
  int n = snprintf(text, sizeof text, "cookie of node %lld", (long long)node->uid);
  if (*node->queued && json_is_true(json_object_get(node->body, "multisliceNode")))
    n = snprintf(text, sizeof text, "cookie of multislice %s/%s/%s", node->project, node->zone,
                 node->queued);
  if (n >= (int)sizeof text) n = (int)sizeof text - 1;
  HMAC(EVP_sha256(), cloud->secret, (int)strlen(cloud->secret), (const unsigned char *)text,
       (size_t)n, digest, NULL);
  for (size_t i = 0; i < sizeof w->cookie / 2; i++)
    snprintf(w->cookie + 2 * i, 3, "%02x", digest[i]);
}

vt_status vt_guest_describe(vt_cloud *cloud, const vt_node *node, int64_t worker, const char *ip,
                            vt_worker *out) {
  const char *version = json_string_value(json_object_get(node->body, "runtimeVersion"));
  const vt_family *family = node->type->family;
  *out = (vt_worker){
      .uid = node->uid,
      .index = (uint32_t)worker,
      .count = (uint32_t)node->workers,
      .ip = number_of(ip),
      .project = (uint32_t)(vt_hash_bytes(node->project, strlen(node->project), 3) & 0xffffff),
      .chips = (uint32_t)node->type->chips_per_vm,
      .pci_device = (uint32_t)family->pci_device,
      .vfio = strcmp(family->device_files, "vfio") == 0,
      .boot_disk_gb = (uint32_t)vt_node_boot_disk_gb(node)};
  snprintf(out->node, sizeof out->node, "%s", node->id);
  snprintf(out->accelerator_type, sizeof out->accelerator_type, "%s", node->type->name);
  // A version can be any text; one that cannot occur in a list of folders counts as none.
  if (version && vt_worker_version_good(version, sizeof out->version))
    snprintf(out->version, sizeof out->version, "%s", version);
  make_cookie(cloud, node, out);
  VT_TRY(add_peers(cloud, node, out));
  const char *wrong = vt_worker_check(out, cloud->options.guest_level);
  return wrong ? vt_error(VT_INTERNAL, "worker %d of %s: %s", (int)worker, node->id, wrong) : VT_OK;
}

vt_status vt_guest_spec(vt_cloud *cloud, const char *tag, const char *hub, const vt_node *node,
                        int64_t worker, const char *ip, vt_text *out_spec) {
  const vt_cloud_options *o = &cloud->options;
  const vt_worker_site site = {.level = o->guest_level,
                               .tag = tag,
                               .hub = hub,
                               .disks = "",
                               .library = o->library_path,
                               .python = o->python_path,
                               .limits = o->guest_limits,
                               .memory_mib = o->guest_memory_mib,
                               .cpus = o->guest_cpus};
  vt_worker *w = malloc(sizeof *w);
  char *text = malloc(VT_SPEC_MAX);
  vt_status st = w && text ? vt_guest_describe(cloud, node, worker, ip, w) : vt_error_no_memory();
  if (!st && !vt_worker_text(w, &site, text, VT_SPEC_MAX))
    st = vt_error(VT_INTERNAL, "the description of a worker of %s is too long", node->id);
  if (!st) vt_text_put(out_spec, text);
  free(w);
  free(text);
  return st;
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
