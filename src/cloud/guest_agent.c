// SPDX-License-Identifier: Apache-2.0
// guest_agent.c - inside a worker: accounts for everybody with an ssh key, the host key and the
// name as guest attributes. In:  lines "name uid" of the metadata server, by long poll. Out:
// /etc/passwd, group, shadow, homes; the ETag of what was done as guest attribute vtpu/synced,
// which is what the daemon waits for.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/activity.h"
#include "cloud/guest_boot.h"

enum { USE_EVERY_MS = 5000 };

static int dial(const char *server) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
  inet_pton(AF_INET, server, &to.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct timeval limit = {.tv_sec = 330}; // over the longest long poll
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

// One request and its reply. While the reply is not there, `idle` is called now and then.
static bool exchange(const char *server, const char *path, const char *body, char *out, size_t size,
                     char out_etag[32], void (*idle)(void)) {
  static char reply[300 << 10];
  char head[1024];
  size_t used = 0;
  int fd = dial(server);
  if (fd < 0) return false;
  int n = snprintf(head, sizeof head,
                   "%s %s HTTP/1.1\r\nHost: %s\r\nMetadata-Flavor: Google\r\nConnection: "
                   "close\r\nContent-Length: %zu\r\n\r\n",
                   body ? "PUT" : "GET", path, server, body ? strlen(body) : 0);
  bool sent = n < (int)sizeof head && write(fd, head, (size_t)n) == n &&
              (!body || write(fd, body, strlen(body)) == (ssize_t)strlen(body));
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  while (sent && idle && poll(&wait, 1, USE_EVERY_MS) == 0) idle();
  for (ssize_t got; sent && used < sizeof reply - 1 &&
                    (got = read(fd, reply + used, sizeof reply - 1 - used)) > 0;)
    used += (size_t)got;
  close(fd);
  reply[used] = 0;
  const char *end = strstr(reply, "\r\n\r\n"), *tag = strcasestr(reply, "\r\nETag: ");
  if (!end || strncmp(reply, "HTTP/1.1 200", 12) != 0) return false;
  snprintf(out, size, "%s", end + 4);
  *out_etag = 0;
  if (tag && tag < end) snprintf(out_etag, 32, "%.*s", (int)strcspn(tag + 8, "\r"), tag + 8);
  return true;
}

bool vt_boot_metadata(const char *server, const char *path, const char *body, char *out,
                      size_t size, char out_etag[32]) {
  return exchange(server, path, body, out, size, out_etag, NULL);
}

// Whether `name` opens a line of a passwd-like file.
static bool has_line(const char *path, const char *name) {
  static char text[1 << 20];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  size_t size = strlen(name);
  for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
    if (strncmp(p, name, size) == 0 && p[size] == ':') return true;
  return false;
}

static bool append(const char *path, const char *line) {
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  bool good = write(fd, line, strlen(line)) == (ssize_t)strlen(line);
  return close(fd) == 0 && good;
}

static void make_user(const char *name, int uid) {
  char line[256], home[64];
  if (!has_line("/etc/group", "google-sudoers")) append("/etc/group", "google-sudoers:x:1999:\n");
  if (has_line("/etc/passwd", name)) return;
  snprintf(home, sizeof home, "/home/%s", name);
  if (mkdir(home, 0755) == 0 || errno == EEXIST)
    if (chown(home, (uid_t)uid, (gid_t)uid) != 0) perror(home);
  snprintf(line, sizeof line, "%s:*:19000:0:99999:7:::\n", name);
  append("/etc/shadow", line);
  snprintf(line, sizeof line, "%s:x:%d:\n", name, uid);
  append("/etc/group", line);
  // Last, since an entry here is what makes the account exist.
  snprintf(line, sizeof line, "%s:x:%d:%d::%s:/bin/bash\n", name, uid, uid, home);
  append("/etc/passwd", line);
}

// Every account of ours is a member of google-sudoers, written whole: the file is small and ours.
static void write_sudoers(const char *users) {
  char text[16384];
  int n = snprintf(text, sizeof text, "%%google-sudoers ALL=(ALL:ALL) NOPASSWD:ALL\n");
  for (const char *p = users; *p && n < (int)sizeof text - 128;) {
    n += snprintf(text + n, sizeof text - (size_t)n, "%.*s ALL=(ALL:ALL) NOPASSWD:ALL\n",
                  (int)strcspn(p, " \n"), p);
    p += strcspn(p, "\n");
    p += *p == '\n';
  }
  unlink("/etc/sudoers.d/google-sudoers");
  if (vt_boot_write("/etc/sudoers.d/google-sudoers", text, 0440) &&
      chmod("/etc/sudoers.d/google-sudoers", 0440) != 0)
    perror("google-sudoers");
}

static void publish(const char *server) {
  static char key[8192], unused[1024];
  char tag[32], name[256] = "";
  int fd = open("/etc/ssh/ssh_host_ed25519_key.pub", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, key, sizeof key - 1);
  if (fd >= 0) close(fd);
  key[n > 0 ? n : 0] = 0;
  // "ssh-ed25519 AAAA... comment": clients want the middle.
  char *middle = strchr(key, ' ');
  if (middle) {
    middle++;
    middle[strcspn(middle, " \n")] = 0;
    vt_boot_metadata(server, "/computeMetadata/v1/instance/guest-attributes/hostkeys/ssh-ed25519",
                     middle, unused, sizeof unused, tag);
  }
  fd = open("/run/vtpu/guest", O_RDONLY | O_CLOEXEC);
  n = fd < 0 ? -1 : read(fd, key, sizeof key - 1);
  if (fd >= 0) close(fd);
  key[n > 0 ? n : 0] = 0;
  if (n > 0)
    vt_boot_metadata(server, "/computeMetadata/v1/instance/guest-attributes/vtpu/guest", key,
                     unused, sizeof unused, tag);
  gethostname(name, sizeof name - 1);
  vt_boot_metadata(server, "/computeMetadata/v1/instance/guest-attributes/guest/hostname", name,
                   unused, sizeof unused, tag);
}

static const char *the_server;
static void report_use(void) {
  vt_boot_use(the_server, VT_ACTIVITY_FOLDER);
}

_Noreturn void vt_boot_agent(const char *server) {
  static char users[64 << 10], unused[1024];
  char tag[32] = "0", path[160], put_tag[32], next[32];
  bool published = false;
  the_server = server;
  for (;;) {
    snprintf(path, sizeof path,
             "/computeMetadata/v1/vtpu/users?wait_for_change=%s&timeout_sec=300&last_etag=%s",
             strcmp(tag, "0") == 0 ? "false" : "true", tag);
    if (!exchange(server, path, NULL, users, sizeof users, next, report_use)) {
      struct timespec pause = {.tv_nsec = 500000000};
      nanosleep(&pause, NULL);
      continue;
    }
    for (const char *p = users; *p;) {
      char name[40];
      int uid;
      if (sscanf(p, "%39s %d", name, &uid) == 2) make_user(name, uid);
      p += strcspn(p, "\n");
      p += *p == '\n';
    }
    write_sudoers(users);
    if (!published) publish(server);
    published = true;
    snprintf(tag, sizeof tag, "%s", next);
    vt_boot_metadata(server, "/computeMetadata/v1/instance/guest-attributes/vtpu/synced", tag,
                     unused, sizeof unused, put_tag);
  }
}
