// SPDX-License-Identifier: Apache-2.0
// root_disk.c - the root of a worker: its own /etc, /home, /var, /root, and the host's /usr under
// an overlay. Only what is listed here is visible of the host: /usr, selected files of /etc, the
// Python folder, libvtpu.so. No home, no key, no password hash, no state of the daemon. Overlay
// layers are idmapped mounts of the host's folders, so inside their files belong to the guest's
// root.
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cloud/worker/boot.h"
#include "cloud/worker/image.h"

static const char *const etc_files[] = {"alternatives",
                                        "bash.bashrc",
                                        "bash_completion.d",
                                        "ca-certificates",
                                        "ca-certificates.conf",
                                        "debian_version",
                                        "default",
                                        "environment",
                                        "fonts",
                                        "group",
                                        "host.conf",
                                        "inputrc",
                                        "issue",
                                        "java-11-openjdk",
                                        "java-17-openjdk",
                                        "ld.so.cache",
                                        "ld.so.conf",
                                        "ld.so.conf.d",
                                        "locale.alias",
                                        "locale.gen",
                                        "localtime",
                                        "login.defs",
                                        "magic",
                                        "mime.types",
                                        "nsswitch.conf",
                                        "os-release",
                                        "pam.conf",
                                        "pam.d",
                                        "passwd",
                                        "perl",
                                        "profile",
                                        "profile.d",
                                        "protocols",
                                        "python3",
                                        "python3.11",
                                        "rpc",
                                        "security",
                                        "services",
                                        "shells",
                                        "skel",
                                        "ssl/certs",
                                        "ssl/openssl.cnf",
                                        "sudo.conf",
                                        "sudoers",
                                        "terminfo",
                                        "timezone",
                                        "vim",
                                        "xattr.conf"};
static const char *const own_folders[] = {
    "home",    "opt",           "srv",       "mnt",       "media",        "run",
    "proc",    "sys",           "dev",       "usr",       "etc",          "var",
    "var/lib", "var/log",       "var/cache", "var/spool", "var/empty",    "etc/ssl",
    "etc/ssh", "etc/sudoers.d", "etc/vtpu",  "opt/vtpu",  "etc/profile.d"};

static char files[640]; // the worker's own: its folder, or the mount point of its image
static char disk[650];  // <files>/disk, the root as it is mounted
static unsigned base;   // host uid of the guest's root

static void make_folder(const vt_boot *b, const char *path, unsigned mode) {
  if (mkdir(path, mode) != 0 && errno != EEXIST) vt_boot_fail(b, true, "%s", path);
  if (chmod(path, mode) != 0 || lchown(path, base, base) != 0) vt_boot_fail(b, true, "%s", path);
}

static int shift_owner(const char *path, const struct stat *info, int type, struct FTW *place) {
  (void)place;
  if (info->st_uid >= 65536 || info->st_gid >= 65536) return 0; // already shifted
  if (lchown(path, base + info->st_uid, base + info->st_gid) != 0) return -1;
  // Changing the owner clears set-uid bits, which no file here should have anyway.
  return type == FTW_SL ? 0 : chmod(path, info->st_mode & 01777);
}

static void copy_etc(const vt_boot *b) {
  const char *argv[sizeof etc_files / sizeof *etc_files + 8] = {
      "cp", "-a", "--no-preserve=links", "--parents", "-t", NULL};
  char target[700], path[256];
  size_t n = 6;
  snprintf(target, sizeof target, "%s/etc", disk);
  argv[5] = target;
  for (size_t i = 0; i < sizeof etc_files / sizeof *etc_files; i++) {
    snprintf(path, sizeof path, "/etc/%s", etc_files[i]);
    if (access(path, F_OK) == 0) argv[n++] = etc_files[i];
  }
  argv[n] = NULL;
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    if (chdir("/etc") != 0) _exit(126);
    execvp("cp", (char *const *)argv);
    _exit(127);
  }
  // cp exits with 1 for a dangling link; what matters is checked below.
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
    vt_boot_fail(b, false, "copying /etc failed");
  snprintf(path, sizeof path, "/etc/passwd");
  if (nftw(target, shift_owner, 32, FTW_PHYS) != 0) vt_boot_fail(b, true, "owners of %s", target);
}

// Accounts of people on the host are not accounts of the guest: ids from 1000 on are dropped,
// except nobody's.
static void drop_people(const vt_boot *b, const char *name) {
  char path[720], text[65536], out[65536];
  size_t used = 0;
  snprintf(path, sizeof path, "%s/etc/%s", disk, name);
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (n < 0) vt_boot_fail(b, true, "%s", path);
  text[n] = 0;
  for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    long id = second ? strtol(second + 1, NULL, 10) : 0;
    if (id >= 1000 && id < 65534) continue;
    used += (size_t)snprintf(out + used, sizeof out - used, "%s\n", line);
    if (used >= sizeof out) break;
  }
  if (!vt_boot_write(path, out, 0644) || lchown(path, base, base) != 0)
    vt_boot_fail(b, true, "%s", path);
}

static void write_own(const vt_boot *b, const char *name, unsigned mode, const char *text) {
  char path[720];
  snprintf(path, sizeof path, "%s/%s", disk, name);
  unlink(path);
  if (!vt_boot_write(path, text, mode) || chmod(path, mode) != 0 || lchown(path, base, base) != 0)
    vt_boot_fail(b, true, "%s", path);
}

// A shadow file without passwords: '*' still allows login by key, '!' would lock the account for
// sshd.
static void write_shadow(const vt_boot *b) {
  char path[720], text[65536], out[65536] = "";
  size_t used = 0;
  snprintf(path, sizeof path, "%s/etc/passwd", disk);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  for (char *save, *line = strtok_r(text, "\n", &save); line && used < sizeof out - 256;
       line = strtok_r(NULL, "\n", &save))
    used += (size_t)snprintf(out + used, sizeof out - used, "%.*s:*:19000:0:99999:7:::\n",
                             (int)strcspn(line, ":"), line);
  write_own(b, "etc/shadow", 0600, out);
}

// Files of a first boot; later boots keep them with the user's changes.
static void make_disk(const vt_boot *b) {
  char path[720], link_text[256];
  static const char *const merged[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
  make_folder(b, disk, 0755);
  for (size_t i = 0; i < sizeof own_folders / sizeof *own_folders; i++) {
    snprintf(path, sizeof path, "%s/%s", disk, own_folders[i]);
    make_folder(b, path, 0755);
  }
  snprintf(path, sizeof path, "%s/root", disk);
  make_folder(b, path, 0700);
  snprintf(path, sizeof path, "%s/tmp", disk);
  make_folder(b, path, 01777);
  snprintf(path, sizeof path, "%s/var/tmp", disk);
  make_folder(b, path, 01777);
  for (size_t i = 0; i < sizeof merged / sizeof *merged; i++) {
    char host[32];
    snprintf(host, sizeof host, "/%s", merged[i]);
    ssize_t n = readlink(host, link_text, sizeof link_text - 1);
    if (n <= 0) continue;
    link_text[n] = 0;
    snprintf(path, sizeof path, "%s/%s", disk, merged[i]);
    if (symlink(link_text, path) != 0 && errno != EEXIST) vt_boot_fail(b, true, "%s", path);
  }
  copy_etc(b);
  drop_people(b, "passwd");
  drop_people(b, "group");
  write_shadow(b);
  write_own(b, "etc/sudoers.d/google-sudoers", 0440,
            "%google-sudoers ALL=(ALL:ALL) NOPASSWD:ALL\n");
  write_own(b, "etc/fstab", 0644, "");
  write_own(b, "etc/machine-id", 0644, "");
}

// --- mounts --------------------------------------------------------------------------------------

// A copy of the mount at `from`, its owners shifted into the guest's range; `mount_shifted`
// attaches it at `to`.
static int shifted_tree(const vt_boot *b, int user_ns, const char *from, bool read_only) {
  int tree = (int)syscall(SYS_open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | (unsigned)O_CLOEXEC);
  if (tree < 0) vt_boot_fail(b, true, "open_tree %s", from);
  struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV |
                                        (read_only ? MOUNT_ATTR_RDONLY : 0u),
                            .userns_fd = (unsigned)user_ns};
  if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr) != 0)
    vt_boot_fail(b, true, "the file system of %s can not be id-mapped", from);
  return tree;
}

static void mount_shifted(const vt_boot *b, int user_ns, const char *from, const char *to,
                          bool read_only) {
  int tree = shifted_tree(b, user_ns, from, read_only);
  if (syscall(SYS_move_mount, tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) != 0)
    vt_boot_fail(b, true, "move_mount %s", to);
  close(tree);
}

static void mount_usr(const vt_boot *b, int user_ns) {
  char lower[650], upper[650], work[650], target[700], options[2200];
  snprintf(lower, sizeof lower, "%s/lower", b->folder);
  snprintf(upper, sizeof upper, "%s/upper", files);
  snprintf(work, sizeof work, "%s/work", files);
  snprintf(target, sizeof target, "%s/usr", disk);
  make_folder(b, lower, 0755);
  make_folder(b, upper, 0755);
  if (mkdir(work, 0700) != 0 && errno != EEXIST) vt_boot_fail(b, true, "%s", work);
  mount_shifted(b, user_ns, "/usr", lower, true);
  snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work);
  if (mount("overlay", target, "overlay", MS_NODEV, options) != 0)
    vt_boot_fail(b, true, "overlay on %s (its folder must not lie on an overlay itself)", target);
}

// Shows a folder or file of the host, read-only, at a path of the guest.
static void show(const vt_boot *b, int user_ns, const char *from, const char *to) {
  char target[1400];
  struct stat info, way;
  if (stat(from, &info) != 0) vt_boot_fail(b, true, "%s", from);
  snprintf(target, sizeof target, "%s%s", disk, to);
  for (char *p = target + strlen(disk) + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    if (mkdir(target, 0755) == 0 && lchown(target, base, base) != 0)
      vt_boot_fail(b, true, "%s", target);
    // The guest's users must be able to reach it: its /root gets the search bit, not the read bit.
    if (lstat(target, &way) == 0 && S_ISDIR(way.st_mode) && way.st_uid == base &&
        chmod(target, (way.st_mode & 07777) | 0111) != 0)
      vt_boot_fail(b, true, "%s", target);
    *p = '/';
  }
  if (S_ISDIR(info.st_mode)) {
    if (mkdir(target, 0755) != 0 && errno != EEXIST) vt_boot_fail(b, true, "%s", target);
  } else {
    int fd = open(target, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) vt_boot_fail(b, true, "%s", target);
    close(fd);
  }
  mount_shifted(b, user_ns, from, target, true);
}

// The parent of Python's bin folder and, for a virtual environment, the Python that it was created
// from.
static void show_python(const vt_boot *b, int user_ns) {
  char folder[512], config[640], line[600];
  snprintf(folder, sizeof folder, "%s", b->python);
  char *slash = strrchr(folder, '/');
  if (!slash || slash == folder || strncmp(folder, "/usr/", 5) == 0) return;
  *slash = 0;
  char *real = realpath(folder, NULL);
  show(b, user_ns, real ? real : folder, folder);
  free(real);
  snprintf(config, sizeof config, "%s/pyvenv.cfg", folder);
  FILE *file = fopen(config, "r");
  while (file && fgets(line, sizeof line, file)) {
    if (strncmp(line, "home = /", 8) != 0 || strncmp(line, "home = /usr/", 12) == 0) continue;
    line[strcspn(line, "\n")] = 0;
    slash = strrchr(line, '/');
    *slash = 0;
    show(b, user_ns, line + 7, line + 7);
  }
  if (file) fclose(file);
}

// --- data disks ----------------------------------------------------------------------------------

enum { MAX_DISKS = 128 };

typedef struct data_disk {
  char at[96]; // "/mnt/disks/NAME"
  char from[600];
  bool read_only;
  int tree;
} data_disk;

static size_t parse_disks(const char *list, data_disk out_disks[MAX_DISKS]) {
  size_t count = 0;
  while (*list && count < MAX_DISKS) {
    data_disk *entry = &out_disks[count];
    char name[64], mode[3];
    if (sscanf(list, "%63[^:]:%2[^:]:%599[^,]", name, mode, entry->from) == 3) {
      snprintf(entry->at, sizeof entry->at, "/mnt/disks/%s", name);
      entry->read_only = strcmp(mode, "ro") == 0;
      count++;
    }
    list += strcspn(list, ",");
    list += *list == ',';
  }
  return count;
}

static void make_disk_folder(const vt_boot *b, const char *path) {
  if (mkdir(path, 0755) == 0 && lchown(path, base, base) != 0) vt_boot_fail(b, true, "%s", path);
}

// Whether a mounts file has a mount at that place, with that mode.
static bool mounted(const char *mounts, const char *at, bool read_only) {
  for (const char *p = mounts; *p; p += strcspn(p, "\n"), p += *p == '\n') {
    char place[256], options[256];
    if (sscanf(p, "%*s %255s %*s %255s", place, options) == 2 && strcmp(place, at) == 0 &&
        (strncmp(options, "ro", 2) == 0) == read_only)
      return true;
  }
  return false;
}

// Not while the guest boots: mounts inherited with its user namespace could not be removed again.
// All is done in the guest's own mount namespace by a process that the guest can neither see nor
// trace; paths made by the guest lead nowhere outside it.
void vt_boot_disks(const vt_boot *b, int user_ns, int mount_ns, const char *mounts) {
  static data_disk disks[MAX_DISKS];
  size_t count = parse_disks(b->disks, disks);
  base = b->uid_base;
  for (size_t i = 0; i < count; i++) {
    disks[i].tree = -1;
    if (!mounted(mounts, disks[i].at, disks[i].read_only))
      disks[i].tree = shifted_tree(b, user_ns, disks[i].from, disks[i].read_only);
  }
  if (setns(mount_ns, CLONE_NEWNS) != 0) vt_boot_fail(b, true, "the guest's mounts");
  for (const char *p = mounts; *p; p += strcspn(p, "\n"), p += *p == '\n') {
    char place[256];
    bool keep = false;
    if (sscanf(p, "%*s %255s", place) != 1 || strncmp(place, "/mnt/disks/", 11) != 0) continue;
    for (size_t i = 0; i < count; i++)
      keep = keep || (strcmp(disks[i].at, place) == 0 && disks[i].tree < 0);
    // Like pulling out a disk: open files stay until they are closed.
    if (!keep && umount2(place, MNT_DETACH | UMOUNT_NOFOLLOW) == 0) rmdir(place);
  }
  for (size_t i = 0; i < count; i++) {
    if (disks[i].tree < 0) continue;
    make_disk_folder(b, "/mnt/disks");
    make_disk_folder(b, disks[i].at);
    if (syscall(SYS_move_mount, disks[i].tree, "", AT_FDCWD, disks[i].at,
                MOVE_MOUNT_F_EMPTY_PATH) != 0)
      vt_boot_fail(b, true, "%s", disks[i].at);
  }
}

// The worker's files are in an image with the size of its boot disk; if this host has no images, or
// the worker predates them, in its folder, without a size limit.
static void open_files(vt_boot *b) {
  char image[640], guests[640], disks[640];
  struct stat info;
  struct statvfs size;
  snprintf(image, sizeof image, "%s/disk.img", b->folder);
  snprintf(files, sizeof files, "%s/disk", b->folder);
  snprintf(guests, sizeof guests, "%s/..", b->folder);
  snprintf(disks, sizeof disks, "%s/../../disks", b->folder);
  bool older = stat(files, &info) == 0;
  snprintf(files, sizeof files, "%s/files", b->folder);
  if (mkdir(files, 0700) != 0 && errno != EEXIST) vt_boot_fail(b, true, "%s", files);
  const char *const images[] = {guests, disks, NULL};
  const char *why = older ? "made without one"
                    : !b->boot_disk_gb
                        ? "a trial"
                        : vt_image_mount(image, files, b->boot_disk_gb, base, images);
  if (why && stat(image, &info) == 0) vt_boot_fail(b, false, "its disk: %s", why);
  if (why) snprintf(files, sizeof files, "%s", b->folder);
  if (why)
    snprintf(b->disk_text, sizeof b->disk_text, "disk without a limit (%s)", why);
  else if (statvfs(files, &size) == 0)
    snprintf(b->disk_text, sizeof b->disk_text, "disk %lld MiB",
             (long long)size.f_blocks * (long long)size.f_frsize >> 20);
}

void vt_boot_disk(vt_boot *boot, int user_ns) {
  char path[720], self[4096];
  base = boot->uid_base;
  open_files(boot);
  snprintf(disk, sizeof disk, "%s/disk", files);
  snprintf(path, sizeof path, "%s/made", files);
  if (access(path, F_OK) != 0) {
    make_disk(boot);
    if (!vt_boot_write(path, "", 0600)) vt_boot_fail(boot, true, "%s", path);
  }
  // pivot_root requires the root to be a mount point.
  struct mount_attr attr = {.attr_set = MOUNT_ATTR_NODEV};
  if (mount(disk, disk, NULL, MS_BIND, NULL) != 0 ||
      syscall(SYS_mount_setattr, AT_FDCWD, disk, 0, &attr, sizeof attr) != 0)
    vt_boot_fail(boot, true, "bind of %s", disk);
  mount_usr(boot, user_ns);
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  show(boot, user_ns, self, "/opt/vtpu/vtpu-guest");
  if (*boot->library) show(boot, user_ns, boot->library, "/opt/vtpu/libvtpu.so");
  if (*boot->python) show_python(boot, user_ns);
  // The guest's root may not search the daemon's folders: its disk is at a path open to all.
  if (mount(disk, VT_BOOT_ROOT, NULL, MS_BIND | MS_REC, NULL) != 0)
    vt_boot_fail(boot, true, "bind on " VT_BOOT_ROOT);
}
