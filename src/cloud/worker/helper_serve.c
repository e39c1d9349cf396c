// SPDX-License-Identifier: Apache-2.0
// helper_serve.c - the helper, `vtpu-guest host FD NAME=VALUE...`: answers requests of helper.h one
// at a time until the other side is gone. Its arguments come from whoever started the daemon; its
// requests from a process that serves untrusted clients.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cloud/worker/boot.h"
#include "cloud/worker/helper_host.h"
#include "cloud/worker/network.h"

enum { MAX_DOORS = 4, END_STEPS = 500 };

static struct {
  uint32_t ip, port;
} doors[MAX_DOORS]; // that the daemon may listen on, besides the metadata server's
static size_t door_count;
static const char *state;
static bool throw_away; // the state folder is not kept

// --- the start -----------------------------------------------------------------------------------

static bool add_door(const char *value) {
  struct in_addr address;
  char ip[32];
  unsigned port;
  if (door_count == MAX_DOORS || sscanf(value, "%31[^:]:%u", ip, &port) != 2 || port > 65535 ||
      inet_pton(AF_INET, ip, &address) != 1)
    return false;
  doors[door_count].ip = ntohl(address.s_addr);
  doors[door_count++].port = port;
  return true;
}

static bool set(vt_host *h, const char *argument) {
  const char *value = strchr(argument, '=');
  size_t n = value ? (size_t)(value++ - argument) : 0;
#define IS(name) (n == sizeof name - 1 && memcmp(argument, name, n) == 0)
  if (IS("state"))
    state = value;
  else if (IS("tag"))
    h->site.tag = value;
  else if (IS("library"))
    h->site.library = value;
  else if (IS("python"))
    h->site.python = value;
  else if (IS("limits"))
    h->site.limits = value;
  else if (IS("memory_mib"))
    h->site.memory_mib = atoll(value);
  else if (IS("cpus"))
    h->site.cpus = atoi(value);
  else if (IS("throw_away"))
    throw_away = *value == '1';
  else
    return IS("door") && add_door(value);
#undef IS
  return true;
}

// A folder that only we own, even below a shared one: else another user could put their own in its
// place.
static bool make_own(const char *name, char out_path[512]) {
  struct stat info;
  if (snprintf(out_path, 512, "%s/%s", state, name) >= 512) return false;
  if (mkdir(out_path, 0700) != 0 && errno != EEXIST) return false;
  return lstat(out_path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & 022) == 0;
}

static bool prepare(vt_host *h) {
  ssize_t n = readlink("/proc/self/exe", h->launcher, sizeof h->launcher - 1);
  h->launcher[n > 0 ? n : 0] = 0;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  setsid();
  umask(077);
  // The daemon ends us by closing its side.
  signal(SIGTERM, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  if (state && n > 0 && make_own("guests", h->guests) && make_own("disks", h->disks)) return true;
  fprintf(stderr, "vtpud: helper: %s has no folders guests and disks that are only ours\n",
          state ? state : "nothing");
  return false;
}

// --- requests ------------------------------------------------------------------------------------

static bool may_listen(const vt_host *h, uint32_t ip, uint32_t port) {
  if (port == 80 && h->site.level == 1 && vt_worker_address_good(1, ip)) return true;
  if (port == 80 && h->site.level == 2 && ip == (169u << 24 | 254u << 16 | 169u << 8 | 254u))
    return true;
  for (size_t i = 0; i < door_count; i++)
    if (doors[i].ip == ip && doors[i].port == port) return true;
  return false;
}

static int open_door(const vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)r->port), .sin_addr.s_addr = htonl(r->ip)};
  int on = 1;
  if (!may_listen(h, r->ip, r->port)) {
    vt_host_fail(out, VT_PERMISSION_DENIED, "no address that was given at the start");
    return -1;
  }
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 4096) == 0) return fd;
  vt_host_fail(out, VT_UNAVAILABLE, "%s", strerror(errno));
  if (fd >= 0) close(fd);
  return -1;
}

// Nothing is kept of the guests of a throw-away cloud.
static void close_all(vt_host *h) {
  struct timespec step = {.tv_nsec = 20000000};
  if (throw_away)
    for (int i = 0; i < END_STEPS && !vt_host_end_all(h); i++) nanosleep(&step, NULL);
  vt_host_close(h);
  if (throw_away)
    (void)vt_net_run((const char *const[]){"rm", "-rf", "--one-file-system", state, NULL});
}

// Returns the descriptor for the reply, -1 without one.
static int answer(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  static void (*const calls[VT_HELPER_OPS])(vt_host *, const vt_helper_request *,
                                            vt_helper_reply *) = {
      [VT_HELPER_OPEN] = vt_host_open,           [VT_HELPER_START] = vt_host_start,
      [VT_HELPER_POLL] = vt_host_poll,           [VT_HELPER_UP] = vt_host_up,
      [VT_HELPER_DISKS] = vt_host_disks,         [VT_HELPER_STOP] = vt_host_stop,
      [VT_HELPER_NOTIFY] = vt_host_notify,       [VT_HELPER_LIST] = vt_host_list,
      [VT_HELPER_DISK_LIST] = vt_host_disk_list, [VT_HELPER_DISK_REMOVE] = vt_host_disk_remove};
  if (r->op == VT_HELPER_OUTPUT) return vt_host_output(h, r, out);
  if (r->op == VT_HELPER_LISTEN) return open_door(h, r, out);
  if (r->op == VT_HELPER_CLOSE)
    close_all(h);
  else
    calls[r->op](h, r, out);
  return -1;
}

static bool reply(int fd, const vt_helper_reply *out, int passed) {
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec bytes = {(void *)out,
                        offsetof(vt_helper_reply, ids) + out->count * sizeof *out->ids};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
  if (passed >= 0) {
    message.msg_control = control.room;
    message.msg_controllen = sizeof control.room;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &passed, sizeof passed);
  }
  ssize_t sent;
  while ((sent = sendmsg(fd, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (passed >= 0) close(passed);
  return sent >= 0;
}

int vt_helper_serve(int fd, int count, char **arguments) {
  static vt_helper_request request;
  static vt_helper_reply out;
  static vt_host host = {
      .site = {
          .level = -1, .tag = "0000", .hub = "", .library = "", .python = "", .limits = "auto"}};
  for (int i = 0; i < count; i++)
    if (!set(&host, arguments[i])) {
      fprintf(stderr, "vtpud: helper: what is '%s'?\n", arguments[i]);
      return 2;
    }
  if (!prepare(&host)) return 1;
  host.site.disks = host.disks;
  bool closed = false;
  while (!closed) {
    memset(&request, 0, sizeof request);
    ssize_t n = recv(fd, &request, sizeof request, MSG_TRUNC);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    memset(&out, 0, offsetof(vt_helper_reply, ids));
    const char *wrong = vt_helper_check(&request, (size_t)n, host.site.level);
    int passed = -1;
    if (wrong)
      vt_host_fail(&out, VT_INVALID_ARGUMENT, "helper: %s", wrong);
    else
      passed = answer(&host, &request, &out);
    closed = !wrong && request.op == VT_HELPER_CLOSE;
    if (!reply(fd, &out, passed)) break;
  }
  if (!closed) close_all(&host);
  return 0;
}
