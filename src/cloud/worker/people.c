// SPDX-License-Identifier: Apache-2.0
// people.c - the accounts of people in a worker: lines of passwd, group and shadow, and homes. An
// account is a person's if its id is in their range and its home is in the worker's /home. The
// other lines of passwd are the system's (at level 1 the host's): they are not changed, and sshd
// refuses them.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cloud/worker/boot.h"

enum { FIRST_ID = 2000, IDS = 65536 }; // of people, of a worker (login_name.h, guest_spec.h)

// Of the worker being handled.
typedef struct place {
  const char *root;
  unsigned uid_base;
  bool one_uid; // level 1 without privileges: everybody is the daemon's user
  char passwd[600], group[600];
} place;

static place place_of(const char *root, unsigned uid_base) {
  place p = {.root = root, .uid_base = uid_base, .one_uid = *root && geteuid() != 0};
  snprintf(p.passwd, sizeof p.passwd, "%s/etc/passwd", root);
  snprintf(p.group, sizeof p.group, "%s/etc/group", root);
  return p;
}

static void home_of(const place *p, const char *name, char out_home[700]) {
  snprintf(out_home, 700, "%s/home/%s", p->root, name);
}

// --- files of lines ------------------------------------------------------------------------------

static const char *read_lines(const char *path) {
  static char text[1 << 20];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  return text;
}

// The line that starts with `name`, NULL when there is none; valid until the next search.
static const char *find_line(const char *path, const char *name) {
  size_t size = strlen(name);
  const char *p = read_lines(path);
  for (; *p; p += strcspn(p, "\n"), p += *p == '\n')
    if (strncmp(p, name, size) == 0 && p[size] == ':') return p;
  return NULL;
}

static bool append(const char *path, const char *line) {
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  bool good = write(fd, line, strlen(line)) == (ssize_t)strlen(line);
  return close(fd) == 0 && good;
}

// Replaces the line that starts with `name` by `line`.
static void replace_line(const char *path, const char *name, const char *line) {
  char fresh[620];
  const char *at = find_line(path, name), *text = read_lines(path);
  if (!at) return;
  const char *rest = at + strcspn(at, "\n");
  snprintf(fresh, sizeof fresh, "%s.new", path);
  int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return;
  size_t before = (size_t)(at - text), size = strcspn(line, "\n"), after = strlen(rest);
  bool good = write(fd, text, before) == (ssize_t)before &&
              write(fd, line, size) == (ssize_t)size && write(fd, rest, after) == (ssize_t)after;
  if (close(fd) != 0 || !good || rename(fresh, path) != 0) {
    perror(path);
    unlink(fresh);
  }
}

// --- accounts ------------------------------------------------------------------------------------

// Whether a line of passwd is a person's, and its id.
static bool is_person(const place *p, const char *line, unsigned *out_id) {
  char name[40] = "", want[60];
  unsigned id = 0;
  if (sscanf(line, "%39[^:]:%*[^:]:%u:", name, &id) != 2) return false;
  // name:x:id:group:text:home:shell
  const char *field = line;
  for (int i = 0; i < 5; i++) {
    size_t n = strcspn(field, ":\n");
    if (field[n] != ':') return false;
    field += n + 1;
  }
  // Compares only the end: the worker's folder may have been moved since.
  int size = (int)strcspn(field, ":\n"), tail = snprintf(want, sizeof want, "/home/%s", name);
  *out_id = id;
  bool own = p->one_uid ? id == geteuid() : id >= p->uid_base + FIRST_ID && id - p->uid_base < IDS;
  return own && size >= tail && memcmp(field + size - tail, want, (size_t)tail) == 0;
}

// At level 1 the host's /etc/profile resets PATH for login shells; this runs after it.
static void write_profile(const place *p, const char *home, unsigned uid) {
  char path[720], text[700];
  snprintf(path, sizeof path, "%s/.profile", home);
  int n = snprintf(text, sizeof text,
                   "[ ! -r ~/.bashrc ] || . ~/.bashrc\n. '%s/etc/profile.d/vtpu.sh'\n", p->root);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return; // an existing home keeps its owner
  if (write(fd, text, (size_t)n) != n || (fchown(fd, uid, uid) != 0 && !p->one_uid)) perror(path);
  close(fd);
}

static void write_account(const place *p, const char *name, unsigned uid, const char *home,
                          bool again) {
  char account[800], group[100];
  snprintf(group, sizeof group, "%s:x:%u:\n", name, uid);
  snprintf(account, sizeof account, "%s:x:%u:%u::%s:/bin/bash\n", name, uid, uid, home);
  if (again) {
    replace_line(p->group, name, group);
    replace_line(p->passwd, name, account);
    return;
  }
  append(p->group, group);
  // Last, since this entry makes the account exist.
  append(p->passwd, account);
}

// Files in a home that belonged to its owner get the new id, too.
static void move_home(const char *home, unsigned from, unsigned to) {
  char owner[32], was[40];
  snprintf(owner, sizeof owner, "%u:%u", to, to);
  snprintf(was, sizeof was, "--from=%u", from);
  const char *const argv[] = {"chown", "-R", "-h", was, owner, home, NULL};
  if (vt_boot_run(argv) != 0) fprintf(stderr, "vtpu-guest: %s could not be given over\n", home);
}

bool vt_boot_make_user(const char *root, unsigned uid_base, const char *name, unsigned uid) {
  place p = place_of(root, uid_base);
  char home[700], line[100];
  unsigned known;
  home_of(&p, name, home);
  uid = p.one_uid ? geteuid() : uid_base + uid;
  if (!*root && !find_line(p.group, "google-sudoers")) append(p.group, "google-sudoers:x:1999:\n");
  const char *account = find_line(p.passwd, name);
  if (account) {
    if (!is_person(&p, account, &known)) return false;
    if (known == uid) return true;
    write_account(&p, name, uid, home, true);
    move_home(home, known, uid);
    return true;
  }
  if (find_line(p.group, name)) return false; // a group of the system
  if (mkdir(home, *root ? 0700 : 0755) == 0 || errno == EEXIST)
    if (chown(home, uid, uid) != 0 && !p.one_uid) perror(home);
  if (*root) write_profile(&p, home, uid);
  snprintf(line, sizeof line, "%s:*:19000:0:99999:7:::\n", name);
  if (!*root) append("/etc/shadow", line);
  write_account(&p, name, uid, home, false);
  return true;
}

void vt_boot_deny_system(const char *root, unsigned uid_base, char *out, size_t size) {
  place p = place_of(root, uid_base);
  unsigned id;
  size_t used = (size_t)snprintf(out, size, "DenyUsers root");
  for (const char *line = read_lines(p.passwd); *line;
       line += strcspn(line, "\n"), line += *line == '\n') {
    size_t n = strcspn(line, ":\n");
    // Other characters would be a pattern to sshd, and such an account cannot log in anyway.
    bool plain = n && strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
                                   ".-") >= n;
    if (line[n] != ':' || !plain || is_person(&p, line, &id) || used + n + 4 > size) continue;
    used += (size_t)snprintf(out + used, size - used, " %.*s", (int)n, line);
  }
  snprintf(out + used, size - used, "\n");
}
