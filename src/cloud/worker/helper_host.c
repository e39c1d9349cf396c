// SPDX-License-Identifier: Apache-2.0
// helper_host.c - levels 1 and 2 on this host: the launcher `vtpu-guest` (launcher.c) creates each
// worker, at level 2 as an isolated Linux, at level 1 as a process tree. After a restart processes
// are found by the pid and start time in the guest's folder. Layout of a guest's folder,
// STATE/guests/<uid>-<worker>/: spec (what to boot), pid ("pid starttime" of its init), launcher
// (the same), failed (why it did not boot), up (it was seen to be ready), disk/ (its own files),
// log. Every project has its own bridge; to all guests the host is 10.164.0.1 and the metadata
// server 169.254.169.254.
#include "cloud/worker/helper_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cloud/worker/boot.h"
#include "cloud/worker/image.h"
#include "cloud/worker/network.h"
#include "cloud/worker/process.h"

enum { GRACE_MS = 3000, FRESH_S = 10, MAX_ENDING = 4096 };

#define RUN(...) vt_net_run((const char *const[]){__VA_ARGS__, NULL})

typedef struct ending {
  long long uid, index, since_ms;
} ending;
static ending endings[MAX_ENDING]; // guests that were asked to end, and when
static size_t ending_count;

void vt_host_fail(vt_helper_reply *out, vt_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  out->code = (int32_t)code;
  vsnprintf(out->text, sizeof out->text, format, args);
  va_end(args);
}

// All paths are built here, from numbers, below a folder that only we can write.
static void worker_path(const vt_host *h, long long uid, long long index, const char *name,
                        char out[700]) {
  snprintf(out, 700, "%s/%lld-%lld%s%s", h->guests, uid, index, *name ? "/" : "", name);
}

// --- processes -----------------------------------------------------------------------------------

static bool read_small(const char *path, char *out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  ssize_t n = read(fd, out, size - 1);
  close(fd);
  out[n > 0 ? n : 0] = 0;
  return n >= 0;
}

// The process named in a file of the guest's folder, 0 when it is not alive.
static pid_t live_pid(const vt_host *h, long long uid, long long index, const char *name) {
  char path[700];
  vt_process process;
  worker_path(h, uid, index, name, path);
  return vt_process_named(path, &process) ? process.pid : 0;
}

// A short-lived child starts the launcher, so that it is reparented and outlives us.
static bool launch(const vt_host *h, long long uid, long long index) {
  char folder[700], log[700];
  worker_path(h, uid, index, "", folder);
  worker_path(h, uid, index, "log", log);
  pid_t pid = fork();
  if (pid < 0) return false;
  if (pid == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < 32; i++) signal(i, SIG_DFL);
    setsid();
    if (fork() != 0) _exit(0);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600),
        null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(fd, 1);
    dup2(fd, 2);
    close_range(3, ~0u, 0);
    execl(h->launcher, "vtpu-guest", "boot", folder, (char *)NULL);
    _exit(127);
  }
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
  }
  return true;
}

// Launchers and removers are reparented to us; nobody else waits for them.
static void reap(void) {
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

// A disk can be large: it is removed in the background; the next start removes leftovers.
static void remove_beside(const char *path) {
  pid_t pid = fork();
  if (pid == 0) {
    if (fork() == 0) execlp("rm", "rm", "-rf", "--one-file-system", path, (char *)NULL);
    _exit(0);
  }
  if (pid > 0) waitpid(pid, NULL, 0);
}

// --- requests ------------------------------------------------------------------------------------

// The folder of a data disk, with its image mounted on it once for all users. If this host has no
// images, or the disk predates them, it is a folder without a size limit.
static void ready_disk(const vt_host *h, const vt_worker_disk *d) {
  const char *const images[] = {h->guests, h->disks, NULL};
  char at[700], image[700];
  struct stat above, own;
  snprintf(at, sizeof at, "%s/%lld", h->disks, (long long)d->uid);
  snprintf(image, sizeof image, "%s/%lld.img", h->disks, (long long)d->uid);
  bool made = mkdir(at, 0755) == 0;
  if (!made && access(image, F_OK) != 0) return;
  if (stat(h->disks, &above) != 0 || stat(at, &own) != 0 || above.st_dev != own.st_dev) return;
  const char *why = vt_image_mount(image, at, d->size_gb, 0, images);
  if (why) fprintf(stderr, "vtpud: the data disk %s has no limit: %s\n", d->name, why);
  (void)chmod(at, 0755); // the root of a new file system, open to read
}

static bool write_spec(const vt_host *h, const vt_worker *w, vt_helper_reply *out) {
  static char text[VT_SPEC_MAX];
  char path[700];
  for (uint32_t i = 0; i < w->disk_count; i++) ready_disk(h, &w->disks[i]);
  worker_path(h, w->uid, w->index, "spec", path);
  if (!vt_worker_text(w, &h->site, text, sizeof text))
    vt_host_fail(out, VT_INVALID_ARGUMENT, "the description of the worker is too long");
  else if (!vt_boot_write(path, text, 0600))
    vt_host_fail(out, VT_UNAVAILABLE, "%s: %s", path, strerror(errno));
  return out->code == 0;
}

void vt_host_start(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  const vt_worker *w = &r->worker;
  char folder[700], path[700];
  // At level 1 its users must be able to search it to reach their homes.
  mode_t mode = h->site.level == 1 ? 0711 : 0700;
  worker_path(h, w->uid, w->index, "", folder);
  if (live_pid(h, w->uid, w->index, "pid") || live_pid(h, w->uid, w->index, "launcher")) return;
  if ((mkdir(folder, mode) != 0 && errno != EEXIST) || chmod(folder, mode) != 0) {
    vt_host_fail(out, VT_UNAVAILABLE, "%s: %s", folder, strerror(errno));
    return;
  }
  worker_path(h, w->uid, w->index, "failed", path);
  unlink(path);
  worker_path(h, w->uid, w->index, "up", path);
  unlink(path);
  if (!write_spec(h, w, out)) return;
  if (!launch(h, w->uid, w->index)) vt_host_fail(out, VT_UNAVAILABLE, "fork: %s", strerror(errno));
}

void vt_host_poll(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  char path[700];
  struct stat info;
  struct timespec now;
  reap();
  if (live_pid(h, r->uid, r->index, "pid")) out->flags |= VT_HELPER_RUNS;
  if (live_pid(h, r->uid, r->index, "launcher")) out->flags |= VT_HELPER_LAUNCHES;
  worker_path(h, r->uid, r->index, "failed", path);
  if (read_small(path, out->text, sizeof out->text)) out->flags |= VT_HELPER_FAILED;
  worker_path(h, r->uid, r->index, "up", path);
  if (access(path, F_OK) == 0) out->flags |= VT_HELPER_WAS_UP;
  worker_path(h, r->uid, r->index, "spec", path);
  clock_gettime(CLOCK_REALTIME, &now);
  if (stat(path, &info) == 0 && now.tv_sec - info.st_mtim.tv_sec < FRESH_S)
    out->flags |= VT_HELPER_FRESH;
}

void vt_host_up(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  char path[700];
  worker_path(h, r->uid, r->index, "up", path);
  if (live_pid(h, r->uid, r->index, "pid") && !vt_boot_write(path, "", 0600))
    vt_host_fail(out, VT_UNAVAILABLE, "%s: %s", path, strerror(errno));
}

void vt_host_disks(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  const vt_worker *w = &r->worker;
  char folder[700];
  if (h->site.level == 1) return;                    // attaching was refused
  if (!live_pid(h, w->uid, w->index, "pid")) return; // it finds them when it boots
  worker_path(h, w->uid, w->index, "", folder);
  if (write_spec(h, w, out) && RUN(h->launcher, "disks", folder) != 0)
    vt_host_fail(out, VT_UNAVAILABLE, "guest %s: its disks; see its log", folder);
}

static long long clock_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Milliseconds since a guest was asked to end; -1 if it was not yet, and starts counting.
static long long ending_since(long long uid, long long index, bool forget) {
  for (size_t i = 0; i < ending_count; i++) {
    ending *e = &endings[i];
    if (e->uid != uid || e->index != index) continue;
    long long since = clock_ms() - e->since_ms;
    if (forget) *e = endings[--ending_count];
    return since;
  }
  if (forget) return 0;
  if (ending_count < MAX_ENDING) endings[ending_count++] = (ending){uid, index, clock_ms()};
  return -1;
}

static bool end_process(const vt_host *h, long long uid, long long index) {
  pid_t init = live_pid(h, uid, index, "pid"), launcher = live_pid(h, uid, index, "launcher");
  if (!init && !launcher) return true;
  long long since = ending_since(uid, index, false);
  if (since < 0 && init) kill(init, SIGTERM);
  if (since < 0 && !init) kill(launcher, SIGKILL); // still building; nothing runs in it yet
  if (since > GRACE_MS && init) kill(init, SIGKILL);
  return false;
}

static bool stop(vt_host *h, long long uid, long long index, bool erase) {
  static const char *const of_boot[] = {"up", "pid", "spec"};
  char folder[700], path[710];
  worker_path(h, uid, index, "", folder);
  reap();
  if (access(folder, F_OK) != 0) return true;
  if (!end_process(h, uid, index)) return false;
  ending_since(uid, index, true);
  for (size_t i = 0; i < sizeof of_boot / sizeof *of_boot; i++) {
    worker_path(h, uid, index, of_boot[i], path);
    unlink(path);
  }
  if (!erase) return true;
  snprintf(path, sizeof path, "%s.gone", folder);
  if (rename(folder, path) != 0) return errno == ENOENT;
  remove_beside(path);
  return true;
}

void vt_host_stop(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  if (stop(h, r->uid, r->index, r->erase)) out->flags |= VT_HELPER_GONE;
}

void vt_host_notify(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  (void)out;
  pid_t init = live_pid(h, r->uid, r->index, "pid");
  if (init) kill(init, SIGUSR1);
}

int vt_host_output(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  char path[700];
  worker_path(h, r->uid, r->index, "log", path);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) vt_host_fail(out, VT_NOT_FOUND, "%s: %s", path, strerror(errno));
  return fd;
}

// --- all of them ---------------------------------------------------------------------------------

// "<uid>-<index>", with a suffix while it is being removed. Returns how many of the three were
// parsed.
static int parse_name(const char *name, long long *out_uid, long long *out_index) {
  char tail[8];
  return sscanf(name, "%lld-%lld%7s", out_uid, out_index, tail);
}

static void put_id(vt_helper_reply *out, long long uid, long long index) {
  if (out->count < VT_HELPER_IDS) out->ids[out->count++] = (vt_helper_id){uid, index};
}

void vt_host_list(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  (void)r;
  DIR *dir = opendir(h->guests);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    long long uid, index;
    if (parse_name(e->d_name, &uid, &index) == 2) put_id(out, uid, index);
  }
  if (dir) closedir(dir);
}

bool vt_host_end_all(vt_host *h) {
  DIR *dir = opendir(h->guests);
  bool gone = true;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    long long uid, index;
    int n = parse_name(e->d_name, &uid, &index);
    if (n == 2) (void)stop(h, uid, index, true);
    if (n >= 2) gone = false; // including those being removed
  }
  if (dir) closedir(dir);
  reap();
  return gone;
}

// "<uid>", and "<uid>.img" if it has one; 0 otherwise.
static long long disk_of(const char *name) {
  char *end;
  long long uid = strtoll(name, &end, 10);
  return end != name && (!*end || strcmp(end, ".img") == 0) ? uid : 0;
}

void vt_host_disk_list(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  (void)r;
  DIR *dir = opendir(h->disks);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    long long uid = disk_of(e->d_name);
    if (uid > 0) put_id(out, uid, 0);
  }
  if (dir) closedir(dir);
}

void vt_host_disk_remove(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  static const char *const parts[] = {"", ".img"};
  (void)out;
  char path[700];
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    snprintf(path, sizeof path, "%s/%lld%s", h->disks, (long long)r->uid, parts[i]);
    (void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
    if (access(path, F_OK) == 0) remove_beside(path);
  }
}

static void unmount_disks(const vt_host *h) {
  DIR *dir = opendir(h->disks);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    char path[800];
    snprintf(path, sizeof path, "%s/%s", h->disks, e->d_name);
    if (disk_of(e->d_name)) (void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
  }
  if (dir) closedir(dir);
}

static bool any_live(const vt_host *h) {
  DIR *dir = opendir(h->guests);
  bool any = false;
  for (struct dirent *e; dir && !any && (e = readdir(dir));) {
    long long uid, index;
    any = parse_name(e->d_name, &uid, &index) == 2 &&
          (live_pid(h, uid, index, "pid") || live_pid(h, uid, index, "launcher"));
  }
  if (dir) closedir(dir);
  return any;
}

// Surviving workers keep their network, and the metadata server's address: without it their
// requests to it would leave this host.
void vt_host_close(const vt_host *h) {
  if (h->site.level != 2) return;
  bool live = any_live(h);
  if (!live) unmount_disks(h);
  if (vt_net_sweep(h->site.tag, !live) && !live) vt_net_leave();
}

// --- levels --------------------------------------------------------------------------------------

static long long read_number(const char *path, long long otherwise) {
  char text[64];
  return read_small(path, text, sizeof text) && *text ? strtoll(text, NULL, 10) : otherwise;
}

static void check_level_1(vt_helper_reply *out) {
  unsigned long first, outside, count, most = 0;
  glob_t found = {0};
  bool wrapper = glob("/usr/lib/*/libnss_wrapper.so", 0, NULL, &found) == 0;
  globfree(&found);
  if (!wrapper) {
    vt_host_fail(out, VT_UNIMPLEMENTED,
                 "guests of level 1 need libnss_wrapper.so (libnss-wrapper)");
    return;
  }
  if (geteuid() != 0 && read_number("/proc/sys/net/ipv4/ip_unprivileged_port_start", 1024) > 22)
    vt_host_fail(out, VT_UNIMPLEMENTED,
                 "without root, sysctl net.ipv4.ip_unprivileged_port_start has to be at most 22");
  FILE *file = fopen("/proc/self/uid_map", "re");
  while (file && fscanf(file, "%lu %lu %lu", &first, &outside, &count) == 3)
    if (first + count > most) most = first + count;
  if (file) fclose(file);
  if (geteuid() == 0 && most < 65536ul * 60016)
    vt_host_fail(out, VT_UNIMPLEMENTED, "the ids of guests are not mapped in this user namespace");
}

// Builds a worker that never runs: the mounts, namespaces and network of a boot.
static void check_level_2(const vt_host *h, vt_helper_reply *out) {
  char folder[600], path[700], why[256] = "";
  if (geteuid() != 0) {
    vt_host_fail(out, VT_UNIMPLEMENTED, "guests of level 2 need root");
    return;
  }
  if (RUN("ip", "-V") != 0) {
    vt_host_fail(out, VT_UNIMPLEMENTED, "guests need the `ip` program (iproute2)");
    return;
  }
  (void)RUN("ip", "link", "del", "vtprobe"); // of a probe that was killed
  if (RUN("ip", "link", "add", "vtprobe", "type", "bridge") != 0) {
    vt_host_fail(out, VT_UNIMPLEMENTED,
                 "this kernel, or this container, allows no network bridges");
    return;
  }
  (void)RUN("ip", "link", "del", "vtprobe");
  snprintf(folder, sizeof folder, "%s/probe", h->guests);
  snprintf(path, sizeof path, "%s/failed", folder);
  (void)RUN("rm", "-rf", "--one-file-system", folder);
  if (mkdir(folder, 0700) != 0) {
    vt_host_fail(out, VT_UNAVAILABLE, "%s: %s", folder, strerror(errno));
    return;
  }
  int rc = RUN(h->launcher, "probe", folder);
  if (rc != 0 && !read_small(path, why, sizeof why))
    snprintf(why, sizeof why, "the trial boot of a guest ended with %d", rc);
  (void)RUN("rm", "-rf", "--one-file-system", folder);
  if (rc != 0) vt_host_fail(out, VT_UNIMPLEMENTED, "%s", why);
}

static void remove_leftovers(const vt_host *h) {
  DIR *dir = opendir(h->guests);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    char path[800];
    long long uid, index;
    snprintf(path, sizeof path, "%s/%s", h->guests, e->d_name);
    if (parse_name(e->d_name, &uid, &index) == 3) remove_beside(path);
  }
  if (dir) closedir(dir);
}

void vt_host_open(vt_host *h, const vt_helper_request *r, vt_helper_reply *out) {
  mode_t mode = r->level == 1 ? 0711 : 0700;
  if (chmod(h->guests, mode) != 0 || chmod(h->disks, 0700) != 0)
    vt_host_fail(out, VT_UNAVAILABLE, "%s: %s", h->guests, strerror(errno));
  else if (access("/usr/sbin/sshd", X_OK) != 0)
    vt_host_fail(out, VT_UNIMPLEMENTED, "guests need OpenSSH's /usr/sbin/sshd");
  else if (r->level == 1)
    check_level_1(out);
  else
    check_level_2(h, out);
  if (out->code) return;
  h->site.level = (int)r->level;
  remove_leftovers(h);
  if (h->site.level == 1) return;
  vt_net_metadata();
  if (!vt_net_guard(true))
    snprintf(out->text, sizeof out->text,
             "nft does not work here: guests can reach ports of the host");
  (void)vt_net_sweep(h->site.tag, !any_live(h)); // left by a daemon that was killed
}
