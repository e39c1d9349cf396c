// SPDX-License-Identifier: Apache-2.0
// run_files.c - the files by which frameworks find chips, shown to one program:
// /sys/bus/pci/devices and the driver's files in /dev. Nothing of the machine changes: they are
// mounts in a namespace of the program's own, which any user may have where the kernel allows user
// namespaces.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cli/run.h"
#include "cloud/worker/pci.h"

enum { PATH_SIZE = 4400 };
static const char PCI_FOLDER[] = "/sys/bus/pci/devices";

typedef struct why {
  char *text;
  size_t size;
} why;

__attribute__((format(printf, 2, 3))) static bool refuse(const why *w, const char *format, ...) {
  int error = errno;
  va_list args;
  va_start(args, format);
  int n = vsnprintf(w->text, w->size, format, args);
  va_end(args);
  if (n >= 0 && (size_t)n < w->size)
    snprintf(w->text + n, w->size - (size_t)n, ": %s", strerror(error));
  return false;
}

static bool put(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  if (fd >= 0) close(fd);
  return good;
}

// Mounts of its own; a user who may not have them becomes the root of a user namespace, in which he
// keeps his number.
static bool enter(const why *w) {
  char map[64];
  unsigned user = geteuid(), group = getegid();
  if (user != 0 || unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return refuse(w, "namespaces");
    (void)put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", user, user);
    if (!put("/proc/self/uid_map", map)) return refuse(w, "/proc/self/uid_map");
    snprintf(map, sizeof map, "%u %u 1", group, group);
    if (!put("/proc/self/gid_map", map)) return refuse(w, "/proc/self/gid_map");
  }
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return refuse(w, "mounts");
  return true;
}

static bool mount_empty(const why *w, const char *folder) {
  if (mount("vtpu", folder, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=16m") != 0)
    return refuse(w, "mount %s", folder);
  return true;
}

// One entry of a folder that is now below a mount shows again at `path`.
static void show_again(int below, const char *name, const char *path) {
  char from[PATH_SIZE], target[PATH_SIZE];
  struct stat info;
  if (fstatat(below, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (S_ISLNK(info.st_mode)) {
    ssize_t n = readlinkat(below, name, target, sizeof target - 1);
    target[n < 0 ? 0 : n] = 0;
    if (n > 0) (void)!symlink(target, path);
    return;
  }
  if (S_ISDIR(info.st_mode)) {
    if (mkdir(path, 0755) != 0) return;
  } else {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) close(fd);
  }
  snprintf(from, sizeof from, "/proc/self/fd/%d/%s", below, name);
  (void)mount(from, path, NULL, MS_BIND | MS_REC, NULL);
}

// Makes room in a folder in which nothing can be created: a new one takes its place and has all
// that it had.
static bool make_room(const why *w, const char *folder) {
  char path[PATH_SIZE];
  int below = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *entries = below >= 0 ? fdopendir(below) : NULL;
  if (!entries) return refuse(w, "%s", folder);
  bool good = mount_empty(w, folder);
  for (struct dirent *e; good && (e = readdir(entries));) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    show_again(below, e->d_name, path);
  }
  closedir(entries);
  return good;
}

static bool show_pci(const why *w, const vt_slice *slice) {
  if (access(PCI_FOLDER, F_OK) == 0) {
    if (!mount_empty(w, PCI_FOLDER)) return false;
  } else { // a machine without a PCI bus
    if (!make_room(w, "/sys/bus")) return false;
    (void)mkdir("/sys/bus/pci", 0755);
    if (mkdir(PCI_FOLDER, 0755) != 0) return refuse(w, "%s", PCI_FOLDER);
  }
  int chips = slice->chips * slice->slices;
  if (!vt_pci_write(PCI_FOLDER, chips, slice->chip->pci_device, slice->chip->device_files))
    return refuse(w, "%s", PCI_FOLDER);
  return true;
}

// What opens new terminals, shown again by itself, finds no /dev/pts beside it and opens none. A
// new one takes its place; a user who may make no device files gets terminals of his own.
static void show_terminals(void) {
  static const char multiplexer[] = "/dev/ptmx";
  struct stat info;
  if (lstat(multiplexer, &info) != 0 || S_ISLNK(info.st_mode)) return; // a link needs nothing
  if (umount2(multiplexer, MNT_DETACH) != 0 || unlink(multiplexer) != 0) return;
  if (mknod(multiplexer, S_IFCHR | 0666, makedev(5, 2)) == 0) {
    (void)chmod(multiplexer, 0666);
    return;
  }
  static const char options[] = "newinstance,ptmxmode=0666,mode=0620";
  (void)mount("vtpu", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options);
  (void)!symlink("pts/ptmx", multiplexer);
}

// Programs only look whether the files are there: the device is libvtpu.so.
static bool show_device_files(const why *w, const vt_slice *slice) {
  char name[32], path[64];
  if (!make_room(w, "/dev")) return false;
  show_terminals();
  (void)mkdir("/dev/vfio", 0755);
  for (int i = 0; i < slice->chips * slice->slices; i++) {
    vt_pci_device_file(slice->chip->device_files, i, name);
    snprintf(path, sizeof path, "/dev/%s", name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return refuse(w, "%s", path);
    close(fd);
  }
  return true;
}

bool vt_run_show_chips(const vt_slice *slice, char *out_why, size_t why_size) {
  why w = {out_why, why_size};
  if (!slice->chip->pci_device) return true;
  return enter(&w) && show_pci(&w, slice) && show_device_files(&w, slice);
}
