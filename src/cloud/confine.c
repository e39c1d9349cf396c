// SPDX-License-Identifier: Apache-2.0
// confine.c - see confine.h.
#include "cloud/confine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cloud/worker/filter.h"

// Sanitizers inspect their own process at exit.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

vt_status vt_confine_choose(const char *user, vt_confine *out) {
  *out = (vt_confine){.uid = geteuid(), .gid = getegid()};
  if (geteuid() != 0) return VT_OK;
  struct passwd *account = getpwnam(*user ? user : "vtpud");
  if (!account && !*user) {
    account = getpwnam("nobody");
    vt_log(VT_LOG_INFO, "there is no account vtpud: calls are answered by a process of nobody's");
  }
  if (!account)
    return vt_error(VT_INVALID_ARGUMENT, "there is no account %s on this host",
                    *user ? user : "vtpud, nor nobody,");
  *out = (vt_confine){account->pw_uid, account->pw_gid, account->pw_uid != 0};
  return VT_OK;
}

// --- the state -----------------------------------------------------------------------------------

// Only files that the daemon itself creates there.
static bool is_ours(const char *name) {
  static const char *const names[] = {"cloud.db*", "backup-*.db", "terminal_key*",   "terminal-*",
                                      "ca.pem",    "ca-key.pem",  "googleapis*.pem", "token",
                                      "lock",      "key.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (fnmatch(names[i], name, 0) == 0) return true;
  return false;
}

// Never follows a link, and skips files with more than one hard link.
static vt_status give_file(const vt_confine *c, int folder, const char *name) {
  struct stat info;
  int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? VT_OK : vt_error(VT_UNAVAILABLE, "%s", strerror(errno));
  vt_status st = VT_OK;
  if (fstat(fd, &info) != 0 ||
      (S_ISREG(info.st_mode) && info.st_uid != c->uid && info.st_nlink == 1 &&
       fchownat(fd, "", c->uid, c->gid, AT_EMPTY_PATH) != 0))
    st = vt_error(VT_UNAVAILABLE, "%s: %s", name, strerror(errno));
  close(fd);
  return st;
}

vt_status vt_confine_state(const vt_confine *c, const char *state) {
  if (mkdir(state, 0711) != 0 && errno != EEXIST)
    return vt_error(VT_UNAVAILABLE, "%s: %s", state, strerror(errno));
  if (!c->drops) return VT_OK;
  int folder = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0 || fchown(folder, 0, c->gid) != 0 || fchmod(folder, 01771) != 0) {
    vt_status st = vt_error(VT_UNAVAILABLE, "%s: %s", state, strerror(errno));
    if (folder >= 0) close(folder);
    return st;
  }
  vt_status st = VT_OK;
  DIR *dir = fdopendir(folder);
  for (struct dirent *e; !st && dir && (e = readdir(dir));)
    if (is_ours(e->d_name)) st = give_file(c, dirfd(dir), e->d_name);
  if (dir)
    closedir(dir);
  else
    close(folder);
  return vt_status_wrap(st, "%s", state);
}

vt_status vt_confine_file(const vt_confine *c, vt_arena *arena, const char *path,
                          const char **out_path) {
  vt_bytes file;
  *out_path = path;
  if (!c->drops || !*path) return VT_OK;
  VT_TRY(vt_file_map(path, &file));
  int fd = memfd_create("file", MFD_CLOEXEC);
  bool good = fd >= 0 && write(fd, file.data, file.size) == (ssize_t)file.size;
  vt_file_unmap(&file);
  if (!good) return vt_error(VT_UNAVAILABLE, "%s: %s", path, strerror(errno));
  *out_path = vt_arena_printf(arena, "/proc/self/fd/%d", fd);
  return VT_OK;
}

// --- giving up -----------------------------------------------------------------------------------

static bool allow_below(int rules, const char *path, uint64_t access) {
  struct landlock_path_beneath_attr attr = {.allowed_access = access};
  attr.parent_fd = open(path, O_PATH | O_CLOEXEC);
  if (attr.parent_fd < 0) return false;
  bool good = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) == 0;
  close(attr.parent_fd);
  return good;
}

// The first folder on the way to `path` that the account may not search; false when there is none.
static bool find_wall(const vt_confine *c, const char *path, char out_wall[4096]) {
  struct stat info;
  for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
    snprintf(out_wall, 4096, "%.*s", (int)(p - path), path);
    if (stat(out_wall, &info) != 0) return false;
    mode_t bit = info.st_uid == c->uid ? S_IXUSR : info.st_gid == c->gid ? S_IXGRP : S_IXOTH;
    if (!(info.st_mode & bit)) return true;
  }
  return false;
}

// When a parent of the state folder is closed to the account (as root's home is), a tmpfs with
// nothing but the path to the state folder covers it. Only this process sees the mount.
static vt_status reach_state(const vt_confine *c, const char *state) {
  char wall[4096], way[4096];
  if (!find_wall(c, state, wall)) return VT_OK;
  snprintf(way, sizeof way, "%s", state);
  if (unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
    return vt_error(VT_UNAVAILABLE, "%s is closed to the account that answers calls: %s", wall,
                    strerror(errno));
  int tree = (int)syscall(SYS_open_tree, AT_FDCWD, state, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  bool good = tree >= 0 && mount("vtpud", wall, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                                 "mode=711,size=64k") == 0;
  for (char *p = way + strlen(wall) + 1; good && (p = strchr(p, '/')); p++) {
    *p = 0;
    good = mkdir(way, 0711) == 0;
    *p = '/';
  }
  good = good && mkdir(state, 0700) == 0 &&
         syscall(SYS_move_mount, tree, "", AT_FDCWD, state, MOVE_MOUNT_F_EMPTY_PATH) == 0;
  vt_status st = good ? VT_OK : vt_error(VT_UNAVAILABLE, "a way to %s: %s", state, strerror(errno));
  if (tree >= 0) close(tree);
  return st;
}

// Restricts writing to the state folder and to devices such as terminals. Without Landlock in the
// kernel, file ownership alone protects the rest.
static void restrict_files(const char *state) {
  const uint64_t make = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                        LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                        LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                        LANDLOCK_ACCESS_FS_MAKE_SYM,
                 write = LANDLOCK_ACCESS_FS_WRITE_FILE,
                 removal = LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR;
  struct landlock_ruleset_attr attr = {.handled_access_fs = make | write | removal};
  int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
  if (rules < 0) return;
  bool good = allow_below(rules, state, write | removal | LANDLOCK_ACCESS_FS_MAKE_REG) &&
              allow_below(rules, "/dev", write) &&
              syscall(SYS_landlock_restrict_self, rules, 0) == 0;
  close(rules);
  if (!good) vt_log(VT_LOG_WARNING, "Landlock: %s", strerror(errno));
}

vt_status vt_confine_enter(const vt_confine *c, const char *state) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[2] = {0};
  if (!c->drops) return VT_OK;
  VT_TRY(reach_state(c, state));
  // Temporary files would go elsewhere by default.
  if (setenv("SQLITE_TMPDIR", state, 1) != 0) return vt_error_no_memory();
  for (int i = 0; i < 64 && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
    if (prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0)
      return vt_error(VT_UNAVAILABLE, "capability %d: %s", i, strerror(errno));
  if (setgroups(0, NULL) != 0 || setresgid(c->gid, c->gid, c->gid) != 0 ||
      setresuid(c->uid, c->uid, c->uid) != 0 || syscall(SYS_capset, &header, none) != 0 ||
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return vt_error(VT_UNAVAILABLE, "giving up root: %s", strerror(errno));
  if (setresuid(0, 0, 0) == 0) return vt_error(VT_INTERNAL, "root can be had back");
  restrict_files(state);
  if (SANITIZED) (void)prctl(PR_SET_DUMPABLE, 1);
  if (!vt_filter_install(SANITIZED ? VT_FILTER_GUEST : VT_FILTER_DAEMON))
    vt_log(VT_LOG_WARNING, "this kernel has no seccomp filters: %s", strerror(errno));
  return VT_OK;
}
