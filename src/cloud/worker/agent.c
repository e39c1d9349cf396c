// SPDX-License-Identifier: Apache-2.0
// agent.c - inside a worker: accounts for everybody with an ssh key; the host key and the host name
// as guest attributes.
// In:  lines "name uid" of the metadata server, by long poll.
// Out: accounts (people.c); the ETag of the last applied list as guest attribute vtpu/synced, which
// the daemon waits for.
#include <arpa/inet.h>
#include <dirent.h>
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
#include "cloud/worker/boot.h"

enum { TICK_MS = 1000, BEAT_EVERY_S = 2, USE_EVERY_S = 5 };

static const char *the_server;
// For a worker of level 1 the folder that serves as its root, and the first of its host ids; "" and
// 0 in a root of its own.
static const char *the_root;
static unsigned the_uid_base;

static const char *own_path(const char *path, char out_path[600]) {
  snprintf(out_path, 600, "%s%s", the_root, path);
  return out_path;
}

static int dial(const char *server, int limit_s) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
  inet_pton(AF_INET, server, &to.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct timeval limit = {.tv_sec = limit_s};
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

// One request and its reply. `idle` is called now and then while waiting.
static bool exchange(const char *server, const char *path, const char *body, char *out, size_t size,
                     char out_etag[32], void (*idle)(void)) {
  static char reply[300 << 10];
  char head[1024];
  size_t used = 0;
  int fd = dial(server, idle ? 330 : 30); // above the longest long poll
  if (fd < 0) return false;
  int n = snprintf(head, sizeof head,
                   "%s %s HTTP/1.1\r\nHost: %s\r\nMetadata-Flavor: Google\r\nConnection: "
                   "close\r\nContent-Length: %zu\r\n\r\n",
                   body ? "PUT" : "GET", path, server, body ? strlen(body) : 0);
  bool sent = n < (int)sizeof head && write(fd, head, (size_t)n) == n &&
              (!body || write(fd, body, strlen(body)) == (ssize_t)strlen(body));
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  while (sent && idle && poll(&wait, 1, TICK_MS) == 0) idle();
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

// At level 1 sshd cannot run a command that prints keys: they are files, rewritten with every
// change.
static void write_keys(const char *name) {
  static char text[256 << 10];
  char path[700], tag[32], folder[600];
  snprintf(path, sizeof path, "/computeMetadata/v1/vtpu/authorized-keys?user=%s", name);
  if (!vt_boot_metadata(the_server, path, NULL, text, sizeof text, tag)) return;
  snprintf(path, sizeof path, "%s/%s", own_path("/keys", folder), name);
  if (!vt_boot_write(path, text, 0644)) perror(path);
}

// Whether `users` has a line with that name.
static bool listed(const char *users, const char *name) {
  size_t size = strlen(name);
  for (const char *p = users; *p; p += strcspn(p, "\n"), p += *p == '\n')
    if (strncmp(p, name, size) == 0 && p[size] == ' ') return true;
  return false;
}

// Removes keys of users who may no longer log in.
static void drop_keys(const char *users) {
  char folder[600], path[900];
  DIR *keys = opendir(own_path("/keys", folder));
  for (struct dirent *e; keys && (e = readdir(keys));) {
    if (*e->d_name == '.' || listed(users, e->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    unlink(path);
  }
  if (keys) closedir(keys);
}

// Every account of ours is a member of google-sudoers; the file is small and ours, so it is
// rewritten whole.
static void write_sudoers(const char *users) {
  char text[16384];
  int n = snprintf(text, sizeof text, "%%google-sudoers ALL=(ALL:ALL) NOPASSWD:ALL\n");
  for (const char *p = users; *p && n < (int)sizeof text - 128;) {
    size_t line = strcspn(p, "\n"); // "name id", or "name id login" for one without sudo
    if (*p != '#' && !(line > 6 && memcmp(p + line - 6, " login", 6) == 0))
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

static bool read_text(const char *path, char *out, size_t size) {
  char full[600];
  int fd = open(own_path(path, full), O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
  if (fd >= 0) close(fd);
  out[n > 0 ? n : 0] = 0;
  return n > 0;
}

static void publish(const char *server) {
  static char key[8192], unused[1024];
  char tag[32], name[256] = "";
  read_text("/etc/ssh/ssh_host_ed25519_key.pub", key, sizeof key);
  // "ssh-ed25519 AAAA... comment": clients want the middle.
  char *middle = strchr(key, ' ');
  if (middle) {
    middle++;
    middle[strcspn(middle, " \n")] = 0;
    vt_boot_metadata(server, "/computeMetadata/v1/instance/guest-attributes/hostkeys/ssh-ed25519",
                     middle, unused, sizeof unused, tag);
  }
  if (read_text("/run/vtpu/guest", key, sizeof key))
    vt_boot_metadata(server, "/computeMetadata/v1/instance/guest-attributes/vtpu/guest", key,
                     unused, sizeof unused, tag);
  read_text("/etc/hostname", name, sizeof name);
  name[strcspn(name, "\n")] = 0;
  vt_boot_metadata(server, "/computeMetadata/v1/instance/guest-attributes/guest/hostname", name,
                   unused, sizeof unused, tag);
}

// Runs now and then while there is nothing else to do.
static void tick(void) {
  static time_t next_beat, next_use;
  struct timespec now;
  char folder[600], passwd[600];
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (now.tv_sec >= next_beat) {
    next_beat = now.tv_sec + BEAT_EVERY_S;
    vt_boot_heartbeat(the_server, the_root, the_uid_base);
  }
  if (vt_boot_release_step() || now.tv_sec >= next_use) {
    next_use = now.tv_sec + USE_EVERY_S;
    vt_boot_report_chips(the_server, own_path(VT_ACTIVITY_FOLDER, folder),
                         own_path("/etc/passwd", passwd));
  }
}

_Noreturn void vt_boot_agent(const char *server, const char *root, unsigned uid_base) {
  static char users[64 << 10], unused[1024];
  char tag[32] = "0", path[160], put_tag[32], next[32];
  bool published = false;
  the_server = server;
  the_root = root;
  the_uid_base = uid_base;
  for (;;) {
    snprintf(path, sizeof path,
             "/computeMetadata/v1/vtpu/users?wait_for_change=%s&timeout_sec=300&last_etag=%s",
             strcmp(tag, "0") == 0 ? "false" : "true", tag);
    if (!exchange(server, path, NULL, users, sizeof users, next, tick)) {
      struct timespec pause = {.tv_nsec = 500000000};
      nanosleep(&pause, NULL);
      continue;
    }
    for (const char *p = users; *p;) {
      char name[40];
      unsigned uid;
      if (*p != '#' && sscanf(p, "%39s %u", name, &uid) == 2) {
        if (vt_boot_make_user(the_root, the_uid_base, name, uid) && *root) write_keys(name);
      }
      p += strcspn(p, "\n");
      p += *p == '\n';
    }
    if (*root)
      drop_keys(users);
    else
      write_sudoers(users);
    if (!published) publish(server);
    published = true;
    snprintf(tag, sizeof tag, "%s", next);
    vt_boot_metadata(server, "/computeMetadata/v1/instance/guest-attributes/vtpu/synced", tag,
                     unused, sizeof unused, put_tag);
  }
}
