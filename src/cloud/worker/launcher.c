// SPDX-License-Identifier: Apache-2.0
// launcher.c - vtpu-guest, the launcher of one worker.
//   vtpu-guest boot FOLDER    builds the worker that FOLDER/spec describes and stays until it ends
//   vtpu-guest peers FOLDER IP=HOST...   sends its packets to others of its node to those hosts
//   vtpu-guest keys USER      inside: prints the ssh keys of USER (AuthorizedKeysCommand of sshd)
//   vtpu-guest agent          inside: keeps accounts in step with the metadata server
//   vtpu-guest host FD ...    the helper of a daemon (helper_serve.c): boots and ends its workers
//   vtpu-guest probe FOLDER   tries what a boot of level 2 needs, in an empty folder
// A worker of level 1 is a process tree (plain.c). One of level 2 has its own user, mount, pid,
// network, UTS and IPC namespaces. Its root is root of a range of 65536 host ids that nothing else
// uses; the host's /usr shows through an overlay whose owners are shifted into that range.
#include "cloud/worker/boot.h"
#include "cloud/worker/network.h"
#include "cloud/worker/process.h"
#include "cloud/worker/worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t networked; // the process that set up its worker's network and will remove it

static void close_network(const vt_boot *b) {
  if (networked != getpid()) return;
  networked = 0;
  vt_net_close(b->bridge, b->veth, b->ip);
}

_Noreturn void vt_boot_fail(const vt_boot *boot, bool with_errno, const char *format, ...) {
  char text[512], path[600];
  int error = errno;
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  size_t n = strlen(text);
  if (with_errno) snprintf(text + n, sizeof text - n, ": %s", strerror(error));
  fprintf(stderr, "vtpu-guest: %s\n", text);
  snprintf(path, sizeof path, "%s/failed", boot->folder);
  vt_boot_write(path, text, 0600);
  close_network(boot);
  _exit(1);
}

bool vt_boot_write(const char *path, const char *text, unsigned mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return false;
  size_t size = strlen(text);
  bool good = write(fd, text, size) == (ssize_t)size;
  return close(fd) == 0 && good;
}

static const char *get(char *spec, const char *key) {
  size_t n = strlen(key);
  for (char *line = spec; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    if (strncmp(line, key, n) == 0 && line[n] == '=')
      return strndup(line + n + 1, strcspn(line + n + 1, "\n"));
  return "";
}

static void read_spec(vt_boot *b, const char *folder) {
  static char spec[VT_SPEC_MAX];
  char path[600];
  snprintf(b->folder, sizeof b->folder, "%s", folder);
  snprintf(path, sizeof path, "%s/spec", folder);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, spec, sizeof spec - 1);
  if (n < 0) vt_boot_fail(b, true, "%s", path);
  close(fd);
  b->hostname = get(spec, "hostname");
  b->ip = get(spec, "ip");
  b->gateway = get(spec, "gateway");
  b->metadata = get(spec, "metadata");
  b->bridge = get(spec, "bridge");
  b->veth = get(spec, "veth");
  b->hub = get(spec, "hub");
  b->library = get(spec, "library");
  b->python = get(spec, "python");
  b->accelerator_type = get(spec, "accelerator_type");
  b->pci_device = get(spec, "pci_device");
  b->device_files = get(spec, "device_files");
  b->peers = get(spec, "peers");
  b->node = get(spec, "node");
  b->cookie = get(spec, "cookie");
  b->uid_base = (unsigned)strtoul(get(spec, "uid_base"), NULL, 10);
  b->chips = atoi(get(spec, "chips"));
  b->worker = atoi(get(spec, "worker"));
  b->workers = atoi(get(spec, "workers"));
  b->level = atoi(get(spec, "level"));
  b->disks = get(spec, "disks");
  b->limits = get(spec, "limits");
  b->memory_bytes = atoll(get(spec, "memory_mib")) << 20;
  b->boot_disk_gb = atoi(get(spec, "boot_disk_gb"));
  b->cpu_percent = 100 * atoi(get(spec, "cpus"));
  if (!*b->ip || b->uid_base < 65536) vt_boot_fail(b, false, "%s is not a spec", path);
}

// "pid starttime", in the format the daemon reads.
static void write_pid(const vt_boot *b, const char *name, pid_t pid) {
  char path[600], text[64], temporary[640];
  vt_process process;
  if (!vt_process_read(pid, &process)) vt_boot_fail(b, false, "process %d is gone", (int)pid);
  snprintf(text, sizeof text, "%d %llu\n", (int)pid, process.start);
  snprintf(temporary, sizeof temporary, "%s/%s.new", b->folder, name);
  snprintf(path, sizeof path, "%s/%s", b->folder, name);
  if (!vt_boot_write(temporary, text, 0600) || rename(temporary, path) != 0)
    vt_boot_fail(b, true, "%s", path);
}

// A user namespace with the worker's ids, held open by the returned descriptor.
static int make_user_namespace(const vt_boot *b) {
  int ready[2], release[2];
  char path[64], map[64], byte = 0;
  if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(release, O_CLOEXEC) != 0) vt_boot_fail(b, true, "pipe");
  pid_t pid = fork();
  if (pid == 0) {
    close(release[1]);
    byte = unshare(CLONE_NEWUSER) == 0;
    if (write(ready[1], &byte, 1) == 1 && read(release[0], &byte, 1) >= 0) _exit(0);
    _exit(1);
  }
  if (pid < 0 || read(ready[0], &byte, 1) != 1 || !byte)
    vt_boot_fail(b, false, "user namespaces are not allowed here");
  snprintf(map, sizeof map, "0 %u 65536\n", b->uid_base);
  snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
  bool good = vt_boot_write(path, map, 0600);
  snprintf(path, sizeof path, "/proc/%d/gid_map", (int)pid);
  if (!good || !vt_boot_write(path, map, 0600)) vt_boot_fail(b, true, "%s", path);
  snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) vt_boot_fail(b, true, "%s", path);
  close(release[1]);
  waitpid(pid, NULL, 0);
  close(ready[0]);
  close(ready[1]);
  close(release[0]);
  return fd;
}

static void become_root(const vt_boot *b, int user_ns) {
  if (setns(user_ns, CLONE_NEWUSER) != 0) vt_boot_fail(b, true, "setns");
  if (setgroups(0, NULL) != 0 || setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0)
    vt_boot_fail(b, true, "becoming root of the guest");
  if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC) != 0)
    vt_boot_fail(b, true, "unshare");
}

// In the child: enters the user namespace, creates the others, and becomes process 1 once the
// parent says that the network is ready.
static void enter(vt_boot *b, int user_ns, const int tell[2], const int go[2]) {
  become_root(b, user_ns);
  pid_t init = fork();
  if (init < 0) vt_boot_fail(b, true, "fork");
  if (init > 0) {
    if (write(tell[1], &init, sizeof init) != sizeof init) _exit(1);
    _exit(0);
  }
  close(tell[0]);
  close(tell[1]);
  close(go[1]);
  if (read(go[0], b, sizeof *b) != (ssize_t)sizeof *b) _exit(1); // with the limits
  vt_boot_init(b);
}

static pid_t the_init; // of this launcher, once it runs

// A signal to the launcher is meant for the worker; so is its notice.
static void pass_on(int number) {
  if (the_init > 0) kill(the_init, number);
}

// The worker runs in `init`; until it ends, the launcher's signals are forwarded to it. Meanwhile
// its memory is sampled for the agent.
static int hold(const vt_boot *b, pid_t init, int memory) {
  struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
  struct timespec pause = {.tv_sec = 2};
  sigset_t child;
  int status = 0;
  the_init = init;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  while (waitpid(init, &status, WNOHANG) == 0) {
    vt_boot_memory_write(b, memory);
    sigtimedwait(&child, NULL, &pause);
  }
  return status;
}

static void open_network(const vt_boot *b) {
  const char *missing;
  networked = getpid();
  missing = vt_net_open(b->bridge, b->veth, b->ip, b->hub);
  if (missing) vt_boot_fail(b, false, "%s", missing);
}

// The first process of the worker waits until its limits are set; processes it leaves behind end
// with it.
static int boot_plain(vt_boot *b) {
  int go[2], status = 0;
  if (pipe2(go, O_CLOEXEC) != 0) vt_boot_fail(b, true, "pipe");
  int memory = vt_boot_memory_open();
  pid_t init = fork();
  if (init == 0) {
    close(go[1]);
    if (read(go[0], b, sizeof *b) != (ssize_t)sizeof *b) _exit(1);
    vt_boot_plain(b);
  }
  close(go[0]);
  if (init < 0) vt_boot_fail(b, true, "fork");
  vt_boot_limit(b, init);
  write_pid(b, "pid", init);
  if (write(go[1], b, sizeof *b) != (ssize_t)sizeof *b)
    vt_boot_fail(b, true, "the guest ended at once");
  close(go[1]);
  status = hold(b, init, memory);
  vt_boot_end_children();
  vt_boot_unlimit();
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    vt_boot_fail(b, false, "the guest ended while it was booting; see its log");
  return 0;
}

// Everything that a boot of level 2 asks of the kernel, without a network and without a guest.
static int probe(const char *folder) {
  vt_boot b = {
      .hostname = "probe", .disks = "", .library = "", .python = "", .device_files = "accel"};
  int status = 1;
  snprintf(b.folder, sizeof b.folder, "%s", folder);
  b.uid_base = 65536 * 15;
  b.memory_bytes = 64 << 20;
  b.pci_device = "0x0063";
  b.chips = 1;
  umask(022);
  int user_ns = make_user_namespace(&b);
  if (unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    vt_boot_fail(&b, true, "mount namespace");
  vt_boot_disk(&b, user_ns);
  pid_t child = fork();
  if (child == 0) {
    become_root(&b, user_ns);
    pid_t init = fork();
    if (init == 0) vt_boot_probe(&b);
    if (init < 0 || waitpid(init, &status, 0) != init) _exit(1);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    vt_boot_fail(&b, false, "a guest can not mount or drop privileges here; see the log");
  return 0;
}

static int boot(const char *folder) {
  vt_boot b = {0};
  int tell[2], go[2], status = 0;
  pid_t init = 0;
  umask(022);
  read_spec(&b, folder);
  write_pid(&b, "launcher", getpid());
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  setpriority(PRIO_PROCESS, 0, 5);
  if (b.level == 1) return boot_plain(&b);
  open_network(&b);
  int user_ns = make_user_namespace(&b);
  if (unshare(CLONE_NEWNS) != 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    vt_boot_fail(&b, true, "mount namespace");
  vt_boot_disk(&b, user_ns);
  if (pipe2(tell, O_CLOEXEC) != 0 || pipe2(go, O_CLOEXEC) != 0) vt_boot_fail(&b, true, "pipe");
  int memory = vt_boot_memory_open();
  pid_t child = fork();
  if (child == 0) enter(&b, user_ns, tell, go);
  close(tell[1]);
  close(go[0]);
  if (child < 0 || read(tell[0], &init, sizeof init) != sizeof init)
    vt_boot_fail(&b, false, "the guest did not begin");
  waitpid(child, NULL, 0);
  vt_boot_limit(&b, init);
  if (!vt_net_enter(b.veth, init)) vt_boot_fail(&b, false, "the guest gets no network");
  write_pid(&b, "pid", init);
  if (write(go[1], &b, sizeof b) != (ssize_t)sizeof b)
    vt_boot_fail(&b, true, "the guest ended at once");
  close(go[1]);
  status = hold(&b, init, memory);
  vt_boot_unlimit();
  close_network(&b);
  // Process 1 exits with 0 when it was told to end; it cannot write to this folder itself.
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    vt_boot_fail(&b, false, "the guest ended while it was booting; see its log");
  return 0;
}

// The disks of a running guest have changed.
static int disks(const char *folder) {
  static char mounts[1 << 16];
  vt_boot b = {0};
  char path[600], text[64];
  umask(022);
  read_spec(&b, folder);
  snprintf(path, sizeof path, "%s/pid", folder);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  text[n > 0 ? n : 0] = 0;
  int init = atoi(text);
  snprintf(path, sizeof path, "/proc/%d/ns/user", init);
  int user_ns = open(path, O_RDONLY | O_CLOEXEC);
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", init);
  int mount_ns = open(path, O_RDONLY | O_CLOEXEC);
  snprintf(path, sizeof path, "/proc/%d/mounts", init);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t used = 0;
  while (fd >= 0 && used < sizeof mounts - 1 &&
         (n = read(fd, mounts + used, sizeof mounts - 1 - used)) > 0)
    used += (size_t)n;
  if (user_ns < 0 || mount_ns < 0 || !used) {
    fprintf(stderr, "vtpu-guest: the guest of %s is gone\n", folder);
    return 1;
  }
  vt_boot_disks(&b, user_ns, mount_ns, mounts);
  return 0;
}

// What launchers that were killed left of their networks on this host.
static int sweep(void) {
  (void)vt_net_sweep("", false);
  return 0;
}

static bool is_address(const char *text, size_t size) {
  struct in_addr address;
  char copy[INET_ADDRSTRLEN];
  if (size >= sizeof copy) return false;
  snprintf(copy, sizeof copy, "%.*s", (int)size, text);
  return inet_pton(AF_INET, copy, &address) == 1;
}

// Where the other workers of its node are has changed.
static int peers(const char *folder, int count, char **list) {
  vt_boot b = {0};
  read_spec(&b, folder);
  for (int i = 0; i < count; i++) {
    size_t n = strcspn(list[i], "=");
    if (list[i][n] && is_address(list[i], n) &&
        is_address(list[i] + n + 1, strlen(list[i] + n + 1)))
      continue;
    fprintf(stderr, "vtpu-guest: %s is not ADDRESS=HOST\n", list[i]);
    return 2;
  }
  if (vt_net_peers(b.bridge, b.veth, b.ip, count, list)) return 0;
  fprintf(stderr, "vtpu-guest: no direct way from %s to its peers\n", b.ip);
  return 1;
}

static int keys(const char *user) {
  static char text[256 << 10];
  char path[256], tag[32];
  // sshd passes any name a client offers; only plain ones are accepted.
  if (!*user || strlen(user) > 32 ||
      strspn(user, "abcdefghijklmnopqrstuvwxyz0123456789_-.") != strlen(user))
    return 1;
  snprintf(path, sizeof path, "/computeMetadata/v1/vtpu/authorized-keys?user=%s", user);
  if (!vt_boot_metadata("169.254.169.254", path, NULL, text, sizeof text, tag)) return 1;
  fputs(text, stdout);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "boot") == 0) return boot(argv[2]);
  if (argc == 3 && strcmp(argv[1], "keys") == 0) return keys(argv[2]);
  if (argc == 3 && strcmp(argv[1], "disks") == 0) return disks(argv[2]);
  if (argc == 3 && strcmp(argv[1], "probe") == 0) return probe(argv[2]);
  if (argc > 2 && strcmp(argv[1], "peers") == 0) return peers(argv[2], argc - 3, argv + 3);
  if (argc == 2 && strcmp(argv[1], "sweep") == 0) return sweep();
  if (argc > 3 && strcmp(argv[1], "host") == 0)
    return vt_helper_serve(atoi(argv[2]), argc - 3, argv + 3);
  if (argc == 2 && strcmp(argv[1], "agent") == 0) vt_boot_agent("169.254.169.254", "", 0);
  if (argc == 5 && strcmp(argv[1], "agent") == 0)
    vt_boot_agent(argv[2], argv[3], (unsigned)strtoul(argv[4], NULL, 10));
  fputs("usage: vtpu-guest boot FOLDER | disks FOLDER | probe FOLDER | keys USER | sweep | agent "
        "[SERVER ROOT IDS]\n",
        stderr);
  return 2;
}
