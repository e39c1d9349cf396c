// SPDX-License-Identifier: Apache-2.0
// image.c - see image.h. Tools: mkfs.ext4 (e2fsprogs).
#include "cloud/worker/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cloud/worker/network.h"

enum { TRIES = 20, DEVICE = 64 };
#define GIB (1LL << 30)

// --- room ----------------------------------------------------------------------------------------

// How much the images in a folder may still grow: their maximum sizes minus their allocated blocks.
static long long promised_in(const char *folder) {
  long long sum = 0;
  struct stat info;
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    char path[1024];
    const char *dot = strrchr(e->d_name, '.');
    snprintf(path, sizeof path,
             dot && strcmp(dot, ".img") == 0 ? "%.500s/%s" : "%.500s/%s/disk.img", folder,
             e->d_name);
    if (lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > info.st_blocks * 512LL)
      sum += info.st_size - info.st_blocks * 512LL;
  }
  if (dir) closedir(dir);
  return sum;
}

// While there is room, all images together cannot fill their file system: a new one gets at most a
// quarter of the space not yet promised. Without room it gets one GiB, and the host may run out
// first.
static long long choose_size(const char *path, long long want, const char *const *images) {
  char folder[700];
  struct statvfs host;
  snprintf(folder, sizeof folder, "%s", path);
  *strrchr(folder, '/') = 0;
  if (statvfs(folder, &host) != 0) return GIB;
  long long unit = (long long)host.f_frsize, total = (long long)host.f_blocks * unit;
  long long spare = total / 16 < 8 * GIB ? total / 16 : 8 * GIB;
  long long room = (long long)host.f_bavail * unit - spare;
  for (size_t i = 0; images[i]; i++) room -= promised_in(images[i]);
  long long size = room / 4 < want ? room / 4 : want;
  if (size < GIB) size = want < GIB ? want : GIB;
  return size >> 20 << 20;
}

static const char *make(const char *path, long long size, uid_t owner) {
  static char why[200];
  char options[128];
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool good = fd >= 0 && ftruncate(fd, size) == 0;
  snprintf(why, sizeof why, "a file of %lld MiB: %s", size >> 20, strerror(errno));
  if (fd >= 0) close(fd);
  snprintf(options, sizeof options,
           "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=%u:%u", owner, owner);
  if (good) {
    good = vt_net_run((const char *const[]){"mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4",
                                            "-E", options, path, NULL}) == 0;
    snprintf(why, sizeof why, "mkfs.ext4 (e2fsprogs) does not work here");
  }
  if (!good && fd >= 0) unlink(path);
  return good ? NULL : why;
}

// --- loop devices --------------------------------------------------------------------------------

// The loop device that already has the image, for another mount of it.
static bool find_device(const char *path, char out_device[DEVICE]) {
  bool found = false;
  DIR *dir = opendir("/sys/block");
  for (struct dirent *e; dir && !found && (e = readdir(dir));) {
    char file[320], backing[1024];
    if (strncmp(e->d_name, "loop", 4) != 0 || strlen(e->d_name) > 16) continue;
    snprintf(file, sizeof file, "/sys/block/%s/loop/backing_file", e->d_name);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, backing, sizeof backing - 1);
    if (fd >= 0) close(fd);
    backing[n > 0 ? n : 0] = 0;
    backing[strcspn(backing, "\n")] = 0;
    found = strcmp(backing, path) == 0;
    if (found) snprintf(out_device, DEVICE, "/dev/%.16s", e->d_name);
  }
  if (dir) closedir(dir);
  return found;
}

// A loop device for the image; it is freed with its last mount. Returns its descriptor, which holds
// it until then.
static int attach(const char *path, char out_device[DEVICE]) {
  int image = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW), device = -1;
  struct loop_config config = {.fd = (unsigned)image, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
  for (int i = 0; image >= 0 && device < 0 && i < TRIES; i++) {
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    if (control >= 0) close(control);
    if (number < 0) break;
    snprintf(out_device, DEVICE, "/dev/loop%d", number);
    device = open(out_device, O_RDWR | O_CLOEXEC);
    if (device < 0) break;
    if (ioctl(device, LOOP_CONFIGURE, &config) == 0) break;
    int error = errno; // EBUSY: another process was faster
    close(device);
    device = -1;
    errno = error;
    if (error != EBUSY) break;
  }
  if (image >= 0) close(image);
  return device;
}

static const char *mount_image(const char *path, const char *at) {
  static char why[200];
  for (int i = 0; i < TRIES; i++) {
    char device[DEVICE];
    int held = -1;
    if (!find_device(path, device) && (held = attach(path, device)) < 0) {
      snprintf(why, sizeof why, "no loop device: %s", strerror(errno));
      return why;
    }
    bool good = mount(device, at, "ext4", MS_NODEV, "noinit_itable") == 0;
    snprintf(why, sizeof why, "mount of %s: %s", device, strerror(errno));
    if (held >= 0) close(held);
    if (good) return NULL;
    usleep(50000); // the device was being released
  }
  return why;
}

const char *vt_image_mount(const char *path, const char *at, long long want_gb, uid_t owner,
                           const char *const *images) {
  struct stat info;
  const char *why = NULL;
  // Serialized: promised space is counted, and an image gets only one device.
  int lock = open(images[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (lock >= 0 && flock(lock, LOCK_EX) != 0 && errno == EINTR) {
  }
  bool made = lstat(path, &info) != 0;
  if (made) why = make(path, choose_size(path, want_gb * GIB, images), owner);
  if (!why && (why = mount_image(path, at)) && made) unlink(path);
  if (lock >= 0) close(lock);
  return why;
}
