// SPDX-License-Identifier: Apache-2.0
// guest_linux.c - levels 1 and 2: each worker is made by the launcher `vtpu-guest` (guest_main.c),
// at level 2 an isolated Linux, at level 1 a tree of processes. In:  nodes to boot or end. Out:
// processes, found again after a restart by the pid and start time in the guest's folder. Layout of
// a guest's folder, STATE/guests/<uid>-<worker>/: spec (what to boot), pid ("pid starttime" of its
// init), failed (why it did not boot), disk/ (its own files), log. Every project has a bridge of
// its own; all guests know the host as 10.164.0.1 and the metadata server as 169.254.169.254.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "cloud/disk.h"
#include "cloud/guest.h"
#include "cloud/guest_net.h"
#include "cloud/guest_spec.h"
#include "cloud/metadata.h"
#include "cloud/metrics.h"

#define GRACE_NS (3 * VT_SECOND)

typedef struct ending {
  int64_t uid, worker, since_ns;
} ending;

// Level 1: the metadata server of one worker. It ends in a thread of its own, since a client may be
// waiting in it for the lock that we hold.
typedef struct door {
  int64_t uid, worker;
  vt_metadata_server *server;
  pthread_t thread;
  bool ending;
  atomic_bool ended;
} door;

typedef struct linux_driver {
  vt_guest_driver base;
  vt_cloud *cloud;
  int level;
  VT_ARRAY(door *) doors;
  char folder[512], launcher[4096], tag[8];
  vt_metadata_server *metadata;
  VT_ARRAY(ending) endings; // guests that were told to end, and when
} linux_driver;

#define RUN(...) vt_net_run((const char *const[]){__VA_ARGS__, NULL})

static void guest_folder(const linux_driver *d, int64_t uid, int64_t worker, char out[600]) {
  snprintf(out, 600, "%s/%lld-%lld", d->folder, (long long)uid, (long long)worker);
}

// --- processes
// ---------------------------------------------------------------------------------------------------

// Start time of a process in clock ticks, 0 when there is none: with the pid it names one process
// for ever.
static unsigned long long start_time(pid_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char *p = strrchr(text, ')'); // the name may hold anything
  char state = 0;
  unsigned long long start = 0;
  if (!p ||
      sscanf(p + 1,
             " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
             &state, &start) != 2)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : start;
}

static bool read_small(const char *folder, const char *name, char *out, size_t size) {
  char path[700];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  ssize_t n = read(fd, out, size - 1);
  close(fd);
  out[n > 0 ? n : 0] = 0;
  return n >= 0;
}

// The process named in a file "pid starttime" of the guest's folder, 0 when it is not alive.
static pid_t live_pid(const char *folder, const char *name) {
  char text[64];
  int pid;
  unsigned long long start;
  if (!read_small(folder, name, text, sizeof text) || sscanf(text, "%d %llu", &pid, &start) != 2)
    return 0;
  return start_time(pid) == start ? pid : 0;
}

// --- level 1: doors
// -----------------------------------------------------------------------------------------------

static void *end_door(void *argument) {
  door *the_door = argument;
  vt_metadata_end(the_door->server);
  atomic_store(&the_door->ended, true);
  return NULL;
}

static void forget_doors(linux_driver *d, int64_t uid, int64_t worker) {
  for (size_t i = 0; i < d->doors.size; i++) {
    door *the_door = d->doors.data[i];
    if (!the_door->ending && the_door->uid == uid && the_door->worker == worker)
      the_door->ending = pthread_create(&the_door->thread, NULL, end_door, the_door) == 0;
    if (!the_door->ending || !atomic_load(&the_door->ended)) continue;
    pthread_join(the_door->thread, NULL);
    free(the_door);
    d->doors.data[i--] = d->doors.data[--d->doors.size];
  }
}

static vt_status open_door(linux_driver *d, int64_t uid, int64_t worker, const char *ip) {
  for (size_t i = 0; i < d->doors.size; i++)
    if (d->doors.data[i]->uid == uid && d->doors.data[i]->worker == worker &&
        !d->doors.data[i]->ending)
      return VT_OK;
  door *the_door = calloc(1, sizeof *the_door);
  if (!the_door) return vt_error_no_memory();
  the_door->uid = uid;
  the_door->worker = worker;
  vt_status st = vt_metadata_start_worker(d->cloud, ip, vt_guest_uid_base(d->level, ip), 65536,
                                          &the_door->server);
  if (st)
    free(the_door);
  else
    vt_array_push(&d->doors, the_door);
  return st;
}

// --- the driver
// --------------------------------------------------------------------------------------------------

// The launcher is started through a short-lived child, so that it belongs to nobody here and
// outlives the daemon.
static vt_status launch(const linux_driver *d, const char *folder) {
  pid_t pid = fork();
  if (pid < 0) return vt_error(VT_UNAVAILABLE, "fork: %s", strerror(errno));
  if (pid == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (fork() != 0) _exit(0);
    char log[700];
    snprintf(log, sizeof log, "%s/log", folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600),
        null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(fd, 1);
    dup2(fd, 2);
    close_range(3, ~0u, 0);
    execl(d->launcher, "vtpu-guest", "boot", folder, (char *)NULL);
    _exit(127);
  }
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
  }
  return VT_OK;
}

static vt_status write_spec_file(linux_driver *d, const vt_node *node, int64_t worker,
                                 const char *ip) {
  char folder[600], path[700];
  vt_text spec = {0}, disks = {0};
  guest_folder(d, node->uid, worker, folder);
  snprintf(path, sizeof path, "%s/spec", folder);
  vt_status st = vt_disks_of_node(d->cloud, node->uid, &disks);
  const vt_guest_site site = {.tag = d->tag, .hub = "", .disks = vt_text_string(&disks)};
  if (!st) st = vt_guest_spec(d->cloud, &site, node, worker, ip, &spec);
  if (!st) st = vt_file_write(path, spec.data, spec.size);
  vt_text_free(&disks);
  vt_text_free(&spec);
  return st;
}

static bool linux_disks(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                        const char *ip) {
  linux_driver *d = (linux_driver *)driver;
  char folder[600];
  if (d->level == 1) return true; // attaching was refused
  guest_folder(d, node->uid, worker, folder);
  if (!live_pid(folder, "pid")) return true; // it will find them when it boots
  vt_status st = write_spec_file(d, node, worker, ip);
  bool good = !st && RUN(d->launcher, "disks", folder) == 0;
  if (!good)
    vt_log(VT_LOG_WARNING, "guest %s: disks: %s", folder, st ? vt_status_message(st) : "see log");
  vt_status_free(st);
  return good;
}

static vt_status linux_start(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                             const char *ip) {
  linux_driver *d = (linux_driver *)driver;
  char folder[600], path[700];
  guest_folder(d, node->uid, worker, folder);
  if (strncmp(ip, d->level == 1 ? "127." : "10.", d->level == 1 ? 4 : 3) != 0)
    return vt_error(VT_FAILED_PRECONDITION, "%s is no address of level %d", ip, d->level);
  if (d->level == 1) VT_TRY(open_door(d, node->uid, worker, ip));
  // At level 1 its users walk through it to their homes.
  mode_t mode = d->level == 1 ? 0711 : 0700;
  if ((mkdir(folder, mode) != 0 && errno != EEXIST) || chmod(folder, mode) != 0)
    return vt_error(VT_UNAVAILABLE, "%s: %s", folder, strerror(errno));
  snprintf(path, sizeof path, "%s/failed", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/up", folder);
  unlink(path);
  VT_TRY(write_spec_file(d, node, worker, ip));
  return launch(d, folder);
}

static vt_guest_state linux_poll(vt_guest_driver *driver, const vt_node *node, int64_t worker,
                                 const char *ip) {
  linux_driver *d = (linux_driver *)driver;
  char folder[600], path[700], why[256];
  guest_folder(d, node->uid, worker, folder);
  if (live_pid(folder, "pid")) {
    if (d->level == 1) { // also after a restart of the daemon
      vt_status st = open_door(d, node->uid, worker, ip);
      if (st) vt_log(VT_LOG_WARNING, "guest %s: %s", folder, vt_status_message(st));
      vt_status_free(st);
    }
    snprintf(path, sizeof path, "%s/up", folder);
    if (access(path, F_OK) == 0) return VT_GUEST_RUNNING;
    if (!vt_guest_answers_ssh(ip)) return VT_GUEST_STARTING;
    // Ready is: ssh answers and the agent knows the users. Remembered as a file, so that later
    // polls are cheap.
    bool synced = false;
    vt_status st = vt_metadata_synced(d->cloud, node, &synced);
    vt_status_free(st);
    if (!synced && node->workers == 1) return VT_GUEST_STARTING;
    if (!linux_disks(driver, node, worker, ip)) return VT_GUEST_STARTING;
    st = vt_file_write(path, "", 0);
    vt_status_free(st);
    return VT_GUEST_RUNNING;
  }
  if (live_pid(folder, "launcher")) return VT_GUEST_STARTING;
  if (read_small(folder, "failed", why, sizeof why)) {
    vt_log(VT_LOG_WARNING, "guest %s: %s", folder, why);
    return VT_GUEST_FAILED;
  }
  snprintf(path, sizeof path, "%s/up", folder);
  if (access(path, F_OK) == 0) return VT_GUEST_ABSENT; // it ran, and it is gone
  snprintf(path, sizeof path, "%s/spec", folder);
  struct stat info;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  // Just launched: the launcher has not said so yet.
  if (stat(path, &info) == 0 && now.tv_sec - info.st_mtim.tv_sec < 10 &&
      !live_pid(folder, "launcher"))
    return VT_GUEST_STARTING;
  return VT_GUEST_ABSENT;
}

// The time since a guest was told to end; begins with the first call.
static int64_t ending_since(linux_driver *d, int64_t uid, int64_t worker, bool forget) {
  int64_t now = vt_metrics_clock();
  for (size_t i = 0; i < d->endings.size; i++) {
    ending *e = &d->endings.data[i];
    if (e->uid != uid || e->worker != worker) continue;
    int64_t since = now - e->since_ns;
    if (forget) *e = d->endings.data[--d->endings.size];
    return since;
  }
  if (forget) return 0;
  ending e = {uid, worker, now};
  vt_array_push(&d->endings, e);
  return -1;
}

// Launchers and removers come to the daemon when their parent is gone; nobody else waits for them.
// Other children (the command of --ephemeral) are left to whoever started them.
static void reap(void) {
  siginfo_t info = {0};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d", (int)info.si_pid);
    if (!read_small(path, "comm", name, sizeof name) ||
        (strncmp(name, "vtpu-guest", 10) != 0 && strncmp(name, "rm", 2) != 0))
      return;
    waitpid(info.si_pid, NULL, WNOHANG);
    info.si_pid = 0;
  }
}

static bool end_process(linux_driver *d, const char *folder, int64_t uid, int64_t worker) {
  pid_t init = live_pid(folder, "pid"), launcher = live_pid(folder, "launcher");
  if (!init && !launcher) return true;
  int64_t since = ending_since(d, uid, worker, false);
  if (since < 0 && init) kill(init, SIGTERM);
  if (since < 0 && !init) kill(launcher, SIGKILL); // still building; nothing runs in it yet
  if (since > GRACE_NS && init) kill(init, SIGKILL);
  return false;
}

static bool linux_stop(vt_guest_driver *driver, int64_t uid, int64_t worker, bool erase) {
  linux_driver *d = (linux_driver *)driver;
  char folder[600], path[700];
  guest_folder(d, uid, worker, folder);
  reap();
  if (access(folder, F_OK) != 0) return true;
  if (!end_process(d, folder, uid, worker)) return false;
  ending_since(d, uid, worker, true);
  snprintf(path, sizeof path, "%s/up", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/pid", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/spec", folder);
  unlink(path);
  if (!erase) return true;
  forget_doors(d, uid, worker);
  snprintf(path, sizeof path, "%s.gone", folder);
  if (rename(folder, path) != 0) return errno == ENOENT;
  // A disk can be large: removed beside the daemon, a leftover by the next sweep.
  pid_t pid = fork();
  if (pid == 0) {
    if (fork() == 0) execlp("rm", "rm", "-rf", "--one-file-system", path, (char *)NULL);
    _exit(0);
  }
  if (pid > 0) waitpid(pid, NULL, 0);
  return true;
}

static bool linux_end_all(vt_guest_driver *driver) {
  linux_driver *d = (linux_driver *)driver;
  DIR *dir = opendir(d->folder);
  bool gone = true;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    long long uid, worker;
    char tail[8];
    int n = sscanf(e->d_name, "%lld-%lld%7s", &uid, &worker, tail);
    if (n == 2) (void)linux_stop(driver, uid, worker, true);
    if (n >= 2) gone = false; // also the ones that are being removed
  }
  if (dir) closedir(dir);
  return gone;
}

static void linux_notify(vt_guest_driver *driver, int64_t uid, int64_t worker) {
  char folder[600];
  guest_folder((linux_driver *)driver, uid, worker, folder);
  pid_t init = live_pid(folder, "pid");
  if (init) kill(init, SIGUSR1);
}

static vt_status linux_sweep(vt_guest_driver *driver) {
  linux_driver *d = (linux_driver *)driver;
  DIR *dir = opendir(d->folder);
  if (!dir) return vt_error(VT_UNAVAILABLE, "%s: %s", d->folder, strerror(errno));
  vt_status st = VT_OK;
  for (struct dirent *e; !st && (e = readdir(dir));) {
    long long uid, worker;
    char tail[8] = "", path[800];
    int64_t owned;
    int n = sscanf(e->d_name, "%lld-%lld%7s", &uid, &worker, tail);
    snprintf(path, sizeof path, "%s/%s", d->folder, e->d_name);
    if (n == 3) (void)RUN("rm", "-rf", "--one-file-system", path);
    if (n != 2) continue;
    st = vt_store_int(d->cloud->store, &owned, 0,
                      "SELECT 1 FROM workers WHERE node = ? AND worker = ?", "ii", (int64_t)uid,
                      (int64_t)worker);
    if (st || owned) continue;
    pid_t init = live_pid(path, "pid"), launcher = live_pid(path, "launcher");
    if (launcher && !init) kill(launcher, SIGKILL);
    if (init) kill(init, SIGKILL);
    (void)linux_stop(driver, uid, worker, true);
  }
  closedir(dir);
  return st;
}

static bool any_live(const linux_driver *d) {
  DIR *dir = opendir(d->folder);
  bool any = false;
  for (struct dirent *e; dir && !any && (e = readdir(dir));) {
    char path[800];
    if (*e->d_name == '.') continue;
    snprintf(path, sizeof path, "%s/%s", d->folder, e->d_name);
    any = live_pid(path, "pid") || live_pid(path, "launcher");
  }
  if (dir) closedir(dir);
  return any;
}

// Workers that go on keep their network, and the address of the metadata server: without it what
// they ask of it would leave this host.
static void close_networks(const linux_driver *d) {
  bool live = any_live(d);
  if (vt_net_sweep(d->tag, !live) && !live)
    (void)RUN("ip", "addr", "del", VT_NET_METADATA "/32", "dev", "lo");
}

static void linux_destroy(vt_guest_driver *driver) {
  linux_driver *d = (linux_driver *)driver;
  vt_metadata_stop(d->metadata);
  if (d->metadata) close_networks(d);
  pthread_mutex_lock(&d->cloud->lock); // no agent's long poll holds us up
  d->cloud->closing = true;
  pthread_mutex_unlock(&d->cloud->lock);
  for (size_t i = 0; i < d->doors.size; i++) {
    if (d->doors.data[i]->ending)
      pthread_join(d->doors.data[i]->thread, NULL);
    else
      vt_metadata_stop(d->doors.data[i]->server);
    free(d->doors.data[i]);
  }
  vt_array_free(&d->doors);
  vt_array_free(&d->endings);
  free(d);
}

static int64_t read_number(const char *path, int64_t otherwise) {
  char text[64];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  return n > 0 ? strtoll(text, NULL, 10) : otherwise;
}

static vt_status check_level_1(void) {
  unsigned long first, outside, count, most = 0;
  glob_t found = {0};
  bool wrapper = glob("/usr/lib/*/libnss_wrapper.so", 0, NULL, &found) == 0;
  globfree(&found);
  if (!wrapper)
    return vt_error(VT_UNIMPLEMENTED, "guests of level 1 need libnss_wrapper.so (libnss-wrapper)");
  if (geteuid() != 0 && read_number("/proc/sys/net/ipv4/ip_unprivileged_port_start", 1024) > 22)
    return vt_error(
        VT_UNIMPLEMENTED,
        "without root, sysctl net.ipv4.ip_unprivileged_port_start has to be at most 22");
  FILE *file = fopen("/proc/self/uid_map", "re");
  while (file && fscanf(file, "%lu %lu %lu", &first, &outside, &count) == 3)
    if (first + count > most) most = first + count;
  if (file) fclose(file);
  if (geteuid() == 0 && most < 65536ul * 60016)
    return vt_error(VT_UNIMPLEMENTED, "the ids of guests are not mapped in this user namespace");
  return VT_OK;
}

// Builds a worker that never runs: mounts, namespaces and network as a boot will ask for them.
static vt_status check_level_2(const linux_driver *d) {
  char folder[600], why[256] = "";
  if (geteuid() != 0) return vt_error(VT_UNIMPLEMENTED, "guests of level 2 need root");
  if (RUN("ip", "-V") != 0)
    return vt_error(VT_UNIMPLEMENTED, "guests need the `ip` program (iproute2)");
  (void)RUN("ip", "link", "del", "vtprobe"); // of a trial that was killed
  if (RUN("ip", "link", "add", "vtprobe", "type", "bridge") != 0)
    return vt_error(VT_UNIMPLEMENTED, "this kernel, or this container, allows no network bridges");
  (void)RUN("ip", "link", "del", "vtprobe");
  snprintf(folder, sizeof folder, "%s/probe", d->folder);
  (void)RUN("rm", "-rf", "--one-file-system", folder);
  if (mkdir(folder, 0700) != 0) return vt_error(VT_UNAVAILABLE, "%s: %s", folder, strerror(errno));
  int rc = RUN(d->launcher, "probe", folder);
  if (rc != 0 && !read_small(folder, "failed", why, sizeof why))
    snprintf(why, sizeof why, "the trial boot of a guest ended with %d", rc);
  (void)RUN("rm", "-rf", "--one-file-system", folder);
  return rc == 0 ? VT_OK : vt_error(VT_UNIMPLEMENTED, "%s", why);
}

static vt_status check_host(const linux_driver *d) {
  if (access("/usr/sbin/sshd", X_OK) != 0)
    return vt_error(VT_UNIMPLEMENTED, "guests need OpenSSH's /usr/sbin/sshd");
  return d->level == 1 ? check_level_1() : check_level_2(d);
}

static int64_t linux_output(vt_guest_driver *driver, int64_t uid, int64_t worker, int64_t *start,
                            int64_t limit, vt_text *out_text) {
  char folder[600], path[700], buffer[4096];
  guest_folder((const linux_driver *)driver, uid, worker, folder);
  snprintf(path, sizeof path, "%s/log", folder);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  int64_t end = fd < 0 ? 0 : (int64_t)lseek(fd, 0, SEEK_END);
  if (*start > end) *start = end;
  if (end - *start > limit) *start = end - limit;
  int64_t at = *start;
  for (ssize_t n; at < end && (n = pread(fd, buffer, sizeof buffer, (off_t)at)) > 0; at += n)
    vt_text_put_n(out_text, buffer, (size_t)n);
  if (fd >= 0) close(fd);
  return at;
}

vt_status vt_guest_linux_create(vt_cloud *cloud, vt_guest_driver **out_driver) {
  vt_status st = VT_OK;
  *out_driver = NULL;
  linux_driver *d = calloc(1, sizeof *d);
  if (!d) return vt_error_no_memory();
  d->base = (vt_guest_driver){linux_start, linux_poll,    linux_stop,    linux_disks, linux_notify,
                              linux_sweep, linux_end_all, linux_destroy, true,        linux_output};
  d->cloud = cloud;
  d->level = cloud->options.guest_level;
  snprintf(d->tag, sizeof d->tag, "%04llx",
           (unsigned long long)vt_hash_bytes(cloud->options.state_dir,
                                             strlen(cloud->options.state_dir), 0) &
               0xffff);
  snprintf(d->folder, sizeof d->folder, "%s/guests", cloud->options.state_dir);
  VT_TRY_OUT(vt_guest_launcher(d->launcher));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  mode_t mode = d->level == 1 ? 0711 : 0700;
  if ((mkdir(d->folder, mode) != 0 && errno != EEXIST) || chmod(d->folder, mode) != 0 ||
      (d->level == 1 && chmod(cloud->options.state_dir, 0711) != 0)) {
    st = vt_error(VT_UNAVAILABLE, "%s: %s", d->folder, strerror(errno));
    goto out;
  }
  VT_TRY_OUT(check_host(d));
  if (d->level == 1) {
    *out_driver = &d->base;
    return VT_OK;
  }
  // Guests route to it through their gateway, so it can live on the loopback interface.
  (void)RUN("ip", "addr", "add", VT_NET_METADATA "/32", "dev", "lo");
  if (!vt_net_guard(true))
    vt_log(VT_LOG_WARNING, "nft does not work here: guests can reach ports of the host");
  (void)vt_net_sweep(d->tag, !any_live(d)); // what a daemon that was killed has left
  VT_TRY_OUT(vt_metadata_start(cloud, VT_NET_METADATA, 80, &d->metadata));
  *out_driver = &d->base;
  d = NULL;
out:
  if (d) linux_destroy(&d->base);
  return st;
}
