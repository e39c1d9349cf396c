// SPDX-License-Identifier: Apache-2.0
// network.c - see network.h. Tools: ip (iproute2) and nft. Without nft the bridges still keep
// projects of one host apart, but the host's own ports are open to workers.
#include "cloud/worker/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// Protocol number of our routes and rules to workers on other hosts, which marks them as ours
// (rtnetlink(7), rtm_protocol: numbers above RTPROT_STATIC are free), and the preference of the
// rules, before the main table's.
#define ROUTES "164"
#define BEFORE "164"
// What the hub puts into packets that its rules let pass, and hosts clear in those of their own
// workers: a code point for local use (RFC 2474, pool 2).
#define HUB_MARK "0x2b"

int vt_net_run(const char *const *argv) {
  pid_t pid;
  int status;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  int rc = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (rc) return -1;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#define RUN(...) vt_net_run((const char *const[]){__VA_ARGS__, NULL})

static bool set(const char *value, const char *format, const char *name) {
  char path[128];
  snprintf(path, sizeof path, format, name);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool good = fd >= 0 && write(fd, value, strlen(value)) > 0;
  if (fd >= 0) close(fd);
  return good;
}

static bool load_rules(const char *rules) {
  int fd = memfd_create("rules", 0);
  char path[32];
  bool good = fd >= 0 && write(fd, rules, strlen(rules)) == (ssize_t)strlen(rules);
  snprintf(path, sizeof path, "/dev/fd/%d", fd);
  good = good && RUN("nft", "-f", path) == 0;
  if (fd >= 0) close(fd);
  return good;
}

// Frames within one bridge pass the forward chain too, if the kernel filters bridges.
static void let_within(const char *bridge) {
  (void)RUN("nft", "insert", "rule", "inet", "vtpu", "forward", "iifname", bridge, "oifname",
            bridge, "accept");
}

bool vt_net_guard(bool again) {
  static const char rules[] =
      "table inet vtpu\ndelete table inet vtpu\ntable inet vtpu {\n"
      " map peers { type ipv4_addr : verdict; }\n"
      " chain source { type filter hook prerouting priority -10; policy accept;\n"
      "  iifname \"vtb*\" fib saddr . iif oif missing drop\n"
      "  iifname \"vtb*\" ip dscp set 0\n }\n"
      " chain input { type filter hook input priority 0; policy accept;\n"
      "  iifname \"vtb*\" jump worker\n"
      "  ip saddr " VT_NET_WORKERS " jump worker\n }\n"
      " chain worker {\n"
      "  ip daddr " VT_NET_METADATA " tcp dport 80 accept\n"
      "  ct state established,related accept\n"
      "  icmp type echo-request accept\n"
      "  drop\n }\n"
      " chain forward { type filter hook forward priority 0; policy accept;\n"
      "  iifname \"vtb*\" oifname \"vtb*\" drop\n"
      "  oifname \"vtb*\" ip saddr " VT_NET_WORKERS " jump elsewhere\n }\n"
      " chain elsewhere {\n"
      "  ip dscp " HUB_MARK " accept\n"
      "  ip daddr vmap @peers\n"
      "  counter drop\n }\n}\n";
  if (!again && RUN("nft", "list", "table", "inet", "vtpu") == 0) return true;
  if (!load_rules(rules)) return false;
  struct if_nameindex *names = if_nameindex();
  for (struct if_nameindex *n = names; n && n->if_index; n++)
    if (strncmp(n->if_name, "vtb", 3) == 0) let_within(n->if_name);
  if (names) if_freenameindex(names);
  return true;
}

// Workers look each other up on their bridge; this host answers for those on other hosts.
static bool join_hosts(const char *bridge, const char *hub) {
  (void)set("0", "/proc/sys/net/ipv4/neigh/%s/proxy_delay", bridge);
  if (!set("1", "/proc/sys/net/ipv4/conf/%s/proxy_arp", bridge) ||
      !set("1", "/proc/sys/net/ipv4/%s", "ip_forward"))
    return false;
  if (vt_net_is_here(hub)) return true;
  return RUN("ip", "route", "replace", VT_NET_WORKERS, "via", hub) == 0 &&
         RUN("ip", "route", "replace", VT_NET_METADATA "/32", "via", hub) == 0;
}

// Serializes creation and removal of bridges in this network namespace, so that none is removed
// while somebody is about to use it. Closing the descriptor, or dying, releases the lock.
static int lock_network(void) {
  int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) {
  }
  return fd;
}

static void peer_name(const char *veth, char out_name[IF_NAMESIZE]) {
  snprintf(out_name, IF_NAMESIZE, "%s", veth);
  if (strlen(out_name) > 2) out_name[2] = 'p';
}

static const char *make_bridge(const char *bridge) {
  if (if_nametoindex(bridge)) return NULL;
  if (RUN("ip", "link", "add", bridge, "type", "bridge") != 0)
    return "this kernel, or this container, allows no network bridges";
  if (RUN("ip", "addr", "replace", VT_NET_GATEWAY "/32", "dev", bridge) != 0 ||
      RUN("ip", "link", "set", bridge, "up") != 0)
    return "can not set up the bridge of the project";
  let_within(bridge);
  return NULL;
}

static const char *make_port(const char *bridge, const char *veth) {
  char peer[IF_NAMESIZE];
  peer_name(veth, peer);
  // The previous boot's port disappears some time after its last process.
  (void)RUN("ip", "link", "del", veth);
  if (RUN("ip", "link", "add", veth, "type", "veth", "peer", "name", peer) != 0)
    return "this kernel has no veth";
  if (RUN("ip", "link", "set", veth, "master", bridge) != 0 ||
      RUN("ip", "link", "set", veth, "up") != 0)
    return "can not join the bridge of the project";
  return NULL;
}

// --- the other workers of its node ---------------------------------------------------------------

// A worker's own table of routes: its address as a number.
static void table_of(const char *ip, char out[16]) {
  struct in_addr address = {0};
  (void)inet_pton(AF_INET, ip, &address);
  snprintf(out, 16, "%u", ntohl(address.s_addr));
}

static void forget_peers(const char *veth, const char *ip) {
  char rules[256], table[16];
  table_of(ip, table);
  while (RUN("ip", "rule", "del", "from", ip, "lookup", table) == 0) {
  }
  (void)RUN("ip", "route", "flush", "table", table);
  // Each by itself: what is not there makes a file of rules fail as a whole.
  snprintf(rules, sizeof rules, "delete element inet vtpu peers { %s }\n", ip);
  (void)load_rules(rules);
  snprintf(rules, sizeof rules, "delete chain inet vtpu peers-%s\n", veth);
  (void)load_rules(rules);
}

// Packets that come to the worker from another host: from its peers.
static bool admit_peers(const char *veth, const char *ip, int count, char *const *peers) {
  char *rules = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&rules, &size);
  if (!out) return false;
  fprintf(out, "add chain inet vtpu peers-%s\n", veth);
  for (int i = 0; i < count; i++)
    fprintf(out, "add rule inet vtpu peers-%s ip saddr %.*s accept\n", veth,
            (int)strcspn(peers[i], "="), peers[i]);
  fprintf(out, "add element inet vtpu peers { %s : jump peers-%s }\n", ip, veth);
  bool good = fclose(out) == 0 && load_rules(rules);
  free(rules);
  return good;
}

static bool reach_peers(const char *bridge, const char *ip, int count, char *const *peers) {
  char table[16], peer[32];
  bool good = true;
  table_of(ip, table);
  for (int i = 0; i < count && good; i++) {
    size_t n = strcspn(peers[i], "=");
    snprintf(peer, sizeof peer, "%.*s", (int)n, peers[i]);
    if (vt_net_is_here(peers[i] + n + 1)) continue;
    good = RUN("ip", "route", "replace", peer, "via", peers[i] + n + 1, "table", table, "proto",
               ROUTES) == 0;
  }
  return good && RUN("ip", "rule", "add", "pref", BEFORE, "from", ip, "iif", bridge, "lookup",
                     table, "protocol", ROUTES) == 0;
}

bool vt_net_peers(const char *bridge, const char *veth, const char *ip, int count,
                  char *const *peers) {
  int lock = lock_network();
  bool good = if_nametoindex(veth) != 0; // not after vt_net_close
  if (good) {
    forget_peers(veth, ip);
    good = !count || (admit_peers(veth, ip, count, peers) && reach_peers(bridge, ip, count, peers));
    if (!good) forget_peers(veth, ip);
  }
  if (lock >= 0) close(lock);
  return good;
}

const char *vt_net_open(const char *bridge, const char *veth, const char *ip, const char *hub) {
  int lock = lock_network();
  if (!vt_net_guard(false)) fputs("vtpu-guest: nft does not work here\n", stderr);
  forget_peers(veth, ip); // of a launcher that was killed
  const char *missing = make_bridge(bridge);
  if (!missing) missing = make_port(bridge, veth);
  if (!missing && RUN("ip", "route", "replace", ip, "dev", bridge) != 0)
    missing = "no route to the worker";
  if (!missing && *hub && !join_hosts(bridge, hub)) missing = "no route to the other hosts";
  if (lock >= 0) close(lock);
  return missing;
}

bool vt_net_enter(const char *veth, int pid) {
  char peer[IF_NAMESIZE], number[16];
  peer_name(veth, peer);
  snprintf(number, sizeof number, "%d", pid);
  return RUN("ip", "link", "set", peer, "netns", number, "name", "eth0") == 0;
}

// --- removing ------------------------------------------------------------------------------------

// Whether a bridge has ports; true when that is unknown.
static bool has_ports(const char *bridge) {
  char byte;
  int fd = memfd_create("ports", MFD_CLOEXEC), status = -1;
  pid_t pid = fd < 0 ? -1 : fork();
  if (pid == 0) {
    dup2(fd, 1);
    execlp("ip", "ip", "-o", "link", "show", "master", bridge, (char *)NULL);
    _exit(127);
  }
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  bool none = status == 0 && pread(fd, &byte, 1, 0) == 0;
  if (fd >= 0) close(fd);
  return !none;
}

// Interfaces whose name has that prefix; returns the number of those left.
static int remove_links(const char *prefix, bool only_empty) {
  int left = 0;
  struct if_nameindex *names = if_nameindex();
  for (struct if_nameindex *n = names; n && n->if_index; n++) {
    if (strncmp(n->if_name, prefix, strlen(prefix)) != 0) continue;
    if ((only_empty && has_ports(n->if_name)) || RUN("ip", "link", "del", n->if_name) != 0) left++;
  }
  if (names) if_freenameindex(names);
  return left;
}

static bool remove_unused(void) {
  bool none = remove_links("vtb", true) == 0;
  if (none) (void)RUN("nft", "delete", "table", "inet", "vtpu");
  while (none && RUN("ip", "rule", "del", "pref", BEFORE, "protocol", ROUTES) == 0) {
  }
  return none;
}

void vt_net_close(const char *bridge, const char *veth, const char *ip) {
  int lock = lock_network();
  (void)RUN("ip", "link", "del", veth);
  (void)RUN("ip", "route", "del", ip, "dev", bridge);
  forget_peers(veth, ip);
  (void)remove_unused();
  if (lock >= 0) close(lock);
}

bool vt_net_sweep(const char *tag, bool idle) {
  static const char *const kinds[] = {"vtg", "vtp", "vtb"};
  int lock = lock_network();
  for (size_t i = 0; idle && i < sizeof kinds / sizeof *kinds; i++) {
    char prefix[IF_NAMESIZE];
    snprintf(prefix, sizeof prefix, "%s%.4s", kinds[i], tag);
    (void)remove_links(prefix, false);
  }
  bool none = remove_unused();
  if (lock >= 0) close(lock);
  return none;
}

// --- the hub -------------------------------------------------------------------------------------

bool vt_net_hub(void) {
  // A packet is marked with the number of its sender's project; the receiver must be in the same
  // one. Hosts see by another mark that it has passed here; on this host, which may have workers,
  // that is before its own rules.
  static const char rules[] =
      "table inet vtpu_hub\ndelete table inet vtpu_hub\ntable inet vtpu_hub {\n"
      " map project { type ipv4_addr : mark; }\n"
      " set member { type ipv4_addr . mark; }\n"
      " chain forward { type filter hook forward priority -5; policy accept;\n"
      "  ip saddr " VT_NET_WORKERS " ip daddr " VT_NET_WORKERS " goto between\n }\n"
      " chain between {\n"
      "  meta mark set ip saddr map @project\n"
      "  ip daddr . meta mark @member ip dscp set " HUB_MARK " accept\n"
      "  drop\n }\n}\n";
  (void)set("1", "/proc/sys/net/ipv4/%s", "ip_forward");
  return load_rules(rules);
}

void vt_net_metadata(void) {
  (void)RUN("ip", "addr", "add", VT_NET_METADATA "/32", "dev", "lo");
}

// A listening socket claims its address and port exclusively.
bool vt_net_metadata_served(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(80)};
  int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  inet_pton(AF_INET, VT_NET_METADATA, &at.sin_addr);
  bool taken = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
               bind(fd, (struct sockaddr *)&at, sizeof at) != 0 && errno == EADDRINUSE;
  if (fd >= 0) close(fd);
  return taken;
}

void vt_net_leave(void) {
  (void)RUN("nft", "delete", "table", "inet", "vtpu_hub");
  (void)RUN("ip", "route", "flush", "proto", ROUTES);
  (void)RUN("ip", "addr", "del", VT_NET_METADATA "/32", "dev", "lo");
}

bool vt_net_place(const char *ip, unsigned project, const char *host, bool gone) {
  char rules[512], mark[16];
  const char *verb = gone ? "delete" : "add";
  snprintf(mark, sizeof mark, "0x%08x", project);
  snprintf(rules, sizeof rules,
           "%s element inet vtpu_hub project { %s%s%s }\n"
           "%s element inet vtpu_hub member { %s . %s }\n",
           verb, ip, gone ? "" : " : ", gone ? "" : mark, verb, ip, mark);
  bool good = load_rules(rules);
  if (*host && gone) (void)RUN("ip", "route", "del", ip, "via", host);
  if (*host && !gone)
    good = RUN("ip", "route", "replace", ip, "via", host, "proto", ROUTES) == 0 && good;
  return good;
}

bool vt_net_is_here(const char *address) {
  struct ifaddrs *all = NULL;
  struct in_addr want;
  bool found = false;
  if (inet_pton(AF_INET, address, &want) != 1 || getifaddrs(&all) != 0) return false;
  if (ntohl(want.s_addr) >> 24 == 127) found = true;
  for (struct ifaddrs *a = all; a && !found; a = a->ifa_next)
    found = a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
            ((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr.s_addr == want.s_addr;
  freeifaddrs(all);
  return found;
}
