// SPDX-License-Identifier: Apache-2.0
// init.c - process 1 of a worker: mounts, network, environment, then sshd, the agent and the user's
// scripts. Signals: SIGTERM ends the worker, SIGUSR1 announces its end (runs the shutdown script),
// SIGCHLD reaps.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/activity.h"
#include "cloud/worker/boot.h"
#include "cloud/worker/filter.h"
#include "cloud/worker/pci.h"

int vt_boot_run(const char *const *argv) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    execvp(argv[0], (char *const *)argv);
    _exit(127);
  }
  while (waitpid(pid, &status, 0) != pid)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#define RUN(...) vt_boot_run((const char *const[]){__VA_ARGS__, NULL})

static void set_up_network(const vt_boot *b) {
  char address[64];
  snprintf(address, sizeof address, "%s/16", b->ip);
  if (RUN("ip", "link", "set", "lo", "up") != 0 ||
      RUN("ip", "addr", "add", address, "dev", "eth0") != 0 ||
      RUN("ip", "link", "set", "eth0", "up") != 0 ||
      RUN("ip", "route", "add", "default", "via", b->gateway, "dev", "eth0") != 0)
    vt_boot_fail(b, false, "the network of the guest");
}

static void must_mount(const vt_boot *b, const char *type, const char *on, unsigned long flags,
                       const char *options) {
  if (mount(type, on, type, flags, options) != 0) vt_boot_fail(b, true, "mount %s", on);
}

// Device nodes of the host by bind mount: guests may not create nodes.
static void bind_devices(const vt_boot *b, const char *root) {
  static const char *const names[] = {"null", "zero", "full", "random", "urandom", "tty"};
  char target[720], from[64], name[32];
  snprintf(target, sizeof target, "%s/dev", root);
  must_mount(b, "tmpfs", target, MS_NOSUID | MS_NOEXEC, "mode=755,size=1m,nr_inodes=4k");
  for (size_t i = 0; i < sizeof names / sizeof *names + (size_t)b->chips; i++) {
    size_t basic = sizeof names / sizeof *names;
    bool vfio = strcmp(b->device_files, "vfio") == 0;
    if (i < basic) {
      snprintf(from, sizeof from, "/dev/%s", names[i]);
      snprintf(target, sizeof target, "%s/dev/%s", root, names[i]);
    } else {
      // Programs only check that the files exist: the device is libvtpu.so.
      snprintf(from, sizeof from, "/dev/null");
      snprintf(target, sizeof target, "%s/dev/vfio", root);
      if (vfio) mkdir(target, 0755);
      vt_pci_device_file(b->device_files, (int)(i - basic), name);
      snprintf(target, sizeof target, "%s/dev/%s", root, name);
    }
    int fd = open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) close(fd);
    if (fd < 0 || mount(from, target, NULL, MS_BIND, NULL) != 0)
      vt_boot_fail(b, true, "%s", target);
  }
}

static void link_devices(const char *root) {
  static const char *const links[][2] = {{"/proc/self/fd", "fd"},
                                         {"/proc/self/fd/0", "stdin"},
                                         {"/proc/self/fd/1", "stdout"},
                                         {"/proc/self/fd/2", "stderr"},
                                         {"pts/ptmx", "ptmx"}};
  char path[720];
  for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
    snprintf(path, sizeof path, "%s/dev/%s", root, links[i][1]);
    if (symlink(links[i][0], path) != 0) perror(path);
  }
}

static void fake_pci(const vt_boot *b, const char *root) {
  char path[720], target[720];
  snprintf(path, sizeof path, "%s/run/vtpu-pci", root);
  snprintf(target, sizeof target, "%s/sys/bus/pci/devices", root);
  mkdir(path, 0755);
  if (!vt_pci_write(path, b->chips, (int)strtol(b->pci_device, NULL, 16), b->device_files))
    vt_boot_fail(b, true, "%s", path);
  if (access(target, F_OK) == 0 && mount(path, target, NULL, MS_BIND, NULL) != 0)
    vt_boot_fail(b, true, "%s", target);
}

// In a control group, files in memory count as the worker's memory; otherwise they are kept small.
static void mount_memory(const vt_boot *b, const char *on, const char *mode) {
  char options[96];
  long long mib = (b->memory_bytes >> 20) / 2 + 1;
  // Every file takes about one KiB of kernel memory, however small.
  snprintf(options, sizeof options, "mode=%s,size=%lldm,nr_inodes=%lldk", mode, mib,
           mib > 1024 ? 1024
           : mib < 16 ? 16
                      : mib);
  must_mount(b, "tmpfs", on, MS_NOSUID | MS_NODEV, options);
}

static void remount(const vt_boot *b, const char *path, unsigned long flags) {
  if (mount(path, path, NULL, MS_BIND, NULL) != 0 ||
      mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | flags, NULL) != 0)
    vt_boot_fail(b, true, "%s", path);
}

// Hides what belongs to the machine, not to a guest. Where a guest's root has no access anyhow this
// is a second barrier.
static void mask_kernel(const vt_boot *b, const char *root) {
  static const char *const hidden[] = {"proc/acpi",          "proc/asound",
                                       "proc/interrupts",    "proc/kcore",
                                       "proc/keys",          "proc/key-users",
                                       "proc/kallsyms",      "proc/kmsg",
                                       "proc/kpagecgroup",   "proc/kpagecount",
                                       "proc/kpageflags",    "proc/latency_stats",
                                       "proc/sched_debug",   "proc/scsi",
                                       "proc/slabinfo",      "proc/timer_list",
                                       "proc/vmallocinfo",   "sys/firmware",
                                       "sys/kernel/debug",   "sys/kernel/security",
                                       "sys/kernel/tracing", "sys/devices/virtual/powercap"};
  static const char *const fixed[] = {"proc/bus", "proc/fs", "proc/irq", "proc/sys",
                                      "proc/sysrq-trigger"};
  char path[720];
  struct stat info;
  for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
    snprintf(path, sizeof path, "%s/%s", root, hidden[i]);
    if (stat(path, &info) != 0) continue;
    if (S_ISDIR(info.st_mode))
      must_mount(b, "tmpfs", path, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=0");
    else if (mount("/dev/null", path, NULL, MS_BIND, NULL) != 0)
      vt_boot_fail(b, true, "%s", path);
  }
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
    snprintf(path, sizeof path, "%s/%s", root, fixed[i]);
    if (access(path, F_OK) == 0) remount(b, path, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);
  }
}

static void mount_all(const vt_boot *b, const char *root) {
  char path[720];
  snprintf(path, sizeof path, "%s/proc", root);
  must_mount(b, "proc", path, MS_NOSUID | MS_NOEXEC | MS_NODEV, "hidepid=2");
  snprintf(path, sizeof path, "%s/sys", root);
  must_mount(b, "sysfs", path, MS_NOSUID | MS_NOEXEC | MS_NODEV | MS_RDONLY, NULL);
  snprintf(path, sizeof path, "%s/run", root);
  mount_memory(b, path, "755");
  bind_devices(b, root);
  link_devices(root);
  snprintf(path, sizeof path, "%s/dev/pts", root);
  mkdir(path, 0755);
  must_mount(b, "devpts", path, MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5");
  snprintf(path, sizeof path, "%s/dev/shm", root);
  mkdir(path, 01777);
  mount_memory(b, path, "1777");
  fake_pci(b, root);
  mask_kernel(b, root);
}

static void enter_root(const vt_boot *b, const char *root) {
  if (chdir(root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0)
    vt_boot_fail(b, true, "pivot_root %s", root);
  if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
    vt_boot_fail(b, true, "leaving the host's files");
}

// From here on, for everything that is started: no mounts, namespaces, modules, devices, clock or
// raw network, and no system calls that programs of a TPU VM do not need. sudo still works: it gets
// what process 1 keeps.
void vt_boot_confine(const vt_boot *b) {
  if (b->level == 1) { // the host's set-uid programs are not for a guest's users
    if (geteuid() != 0) return;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) vt_boot_fail(b, true, "no_new_privs");
  }
  if (!vt_filter_install(VT_FILTER_GUEST)) vt_boot_fail(b, true, "this kernel has no seccomp");
  if (!vt_filter_capabilities()) vt_boot_fail(b, true, "capabilities");
}

void vt_boot_write_hosts(const vt_boot *b, const char *root) {
  char text[16384], path[600];
  int n = snprintf(text, sizeof text, "127.0.0.1 localhost\n%s metadata.google.internal metadata\n",
                   b->metadata);
  for (const char *p = b->peers; *p && n < (int)sizeof text - 256;) {
    size_t size = strcspn(p, ","), ip = strcspn(p, ":");
    n += snprintf(text + n, sizeof text - (size_t)n, "%.*s %.*s\n", (int)ip, p,
                  (int)(size - ip - 1), p + ip + 1);
    p += size + (p[size] == ',');
  }
  snprintf(path, sizeof path, "%s/etc/hosts", root);
  vt_boot_write(path, text, 0644);
  snprintf(path, sizeof path, "%s/etc/hostname", root);
  snprintf(text, sizeof text, "%s\n", b->hostname);
  vt_boot_write(path, text, 0644);
}

// One list for logins by sshd (SetEnv) and for shells (profile.d). At level 1 other workers' users
// can reach the files, so that the one that all may read has no cookie there: logins bring it.
void vt_boot_write_sshd(const vt_boot *b, const char *root, const char *more,
                        const vt_variable *variables, size_t count) {
  char hostnames[8192] = "", path[600], ssh[12288], profile[12288], worker[16], search[700];
  int n = 0, s = 0, p = 0;
  for (const char *q = b->peers; *q && n < (int)sizeof hostnames - 64;) {
    n += snprintf(hostnames + n, sizeof hostnames - (size_t)n, "%s%.*s", n ? "," : "",
                  (int)strcspn(q, ":"), q);
    q += strcspn(q, ",");
    q += *q == ',';
  }
  snprintf(search, sizeof search, "%s%s/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games",
           b->python, *b->python ? ":" : "");
  snprintf(worker, sizeof worker, "%d", b->worker);
  const vt_variable common[] = {{"TPU_NAME", b->node},
                                {"TPU_ACCELERATOR_TYPE", b->accelerator_type},
                                {"TPU_WORKER_ID", worker},
                                {"TPU_WORKER_HOSTNAMES", hostnames},
                                {"VTPU_COOKIE", b->cookie},
                                {"PJRT_DEVICE", *b->library ? "TPU" : ""},
                                {"PATH", search}};
  size_t commons = sizeof common / sizeof *common;
  for (size_t i = 0; i < commons + count; i++) {
    const vt_variable *v = i < commons ? &common[i] : &variables[i - commons];
    if (!*v->value) continue;
    s +=
        snprintf(ssh + s, sizeof ssh - (size_t)s, "%s %s=%s", s ? "" : "SetEnv", v->name, v->value);
    if (b->level == 1 && v->value == b->cookie) continue;
    p += snprintf(profile + p, sizeof profile - (size_t)p, "export %s='%s'\n", v->name, v->value);
  }
  char config[16384];
  snprintf(
      config, sizeof config,
      "Port 22\nListenAddress %s\nHostKey %s/etc/ssh/ssh_host_ed25519_key\nPidFile none\nUsePAM "
      "no\nPasswordAuthentication no\n"
      "KbdInteractiveAuthentication no\nPermitRootLogin no\n%sAcceptEnv LANG LC_*\n"
      "Subsystem sftp internal-sftp\nAllowTcpForwarding yes\nMaxStartups 100:30:200\nUseDNS "
      "no\nPrintMotd no\n%s\n",
      b->ip, root, more, ssh);
  snprintf(path, sizeof path, "%s/etc/vtpu/sshd_config", root);
  unlink(path); // one of an earlier boot keeps its mode
  vt_boot_write(path, config, 0600);
  snprintf(path, sizeof path, "%s/etc/profile.d/vtpu.sh", root);
  vt_boot_write(path, profile, 0644);
}

// Where processes report how busy the chips are (base/activity.h), the id of this boot, and how the
// worker runs.
void vt_boot_make_activity(const vt_boot *b, const char *root, int level) {
  struct timespec now;
  char epoch[24], path[600], text[900];
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(epoch, sizeof epoch, "%lld", (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
  snprintf(path, sizeof path, "%s/run/vtpu", root);
  mkdir(path, 0755);
  const char *host = getenv("SLURMD_NODENAME");
  snprintf(text, sizeof text, "%s%slevel %d: %s; %s%s%s", host ? host : "", host ? ": " : "", level,
           level == 2       ? "namespaces"
           : geteuid() == 0 ? "users of its own on the host, shared files and network"
                            : "the user of the daemon; not isolated",
           b->limit_text, *b->disk_text ? ", " : "", b->disk_text);
  snprintf(path, sizeof path, "%s/run/vtpu/guest", root);
  vt_boot_write(path, text, 0644);
  snprintf(path, sizeof path, "%s" VT_ACTIVITY_FOLDER ".epoch", root);
  bool good = vt_boot_write(path, epoch, 0644);
  snprintf(path, sizeof path, "%s" VT_ACTIVITY_FOLDER, root);
  if (!good || (mkdir(path, 01777) != 0 && errno != EEXIST) || chmod(path, 01777) != 0)
    vt_boot_fail(b, true, "%s", path);
}

void vt_boot_make_host_key(const vt_boot *b, const char *root) {
  char path[600];
  snprintf(path, sizeof path, "%s/etc/ssh/ssh_host_ed25519_key", root);
  if (access(path, F_OK) == 0) return;
  if (RUN("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", b->hostname, "-f", path) != 0)
    vt_boot_fail(b, false, "ssh-keygen failed");
}

static pid_t spawn(const char *const *argv) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setsid();
  execvp(argv[0], (char *const *)argv);
  _exit(127);
}

// A script in the user's metadata, run as root once fetched; no-op when there is none.
static void run_script(const vt_boot *b, const vt_services *services, const char *name) {
  if (fork() != 0) return;
  static char text[256 << 10];
  char path[600], tag[32];
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  const char *memory = getenv(VT_BOOT_MEMORY); // only the agent's
  if (memory) close(atoi(memory));
  unsetenv(VT_BOOT_MEMORY);
  snprintf(path, sizeof path, "/computeMetadata/v1/instance/attributes/%s", name);
  if (!vt_boot_metadata(b->metadata, path, NULL, text, sizeof text, tag)) _exit(0);
  snprintf(path, sizeof path, "%s/run/%s", services->root, name);
  unlink(path);
  if (!vt_boot_write(path, text, services->script_id ? 0755 : 0700)) _exit(1);
  char log[600];
  snprintf(log, sizeof log, "%s/var/log/%s.log", services->root, name);
  int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0644);
  if (fd >= 0) dup2(fd, 1), dup2(fd, 2);
  unsigned id = services->script_id;
  if (id && geteuid() == 0 &&
      (setgroups(0, NULL) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0))
    _exit(126);
  execl(path, path, (char *)NULL);
  execl("/bin/sh", "sh", path, (char *)NULL);
  _exit(127);
}

static void end_all(void) {
  struct timespec step = {.tv_nsec = 20000000}, none = {0};
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  kill(-1, SIGTERM);
  for (int i = 0; i < 100; i++) { // two seconds for programs that save their work
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
    }
    if (pid < 0) break;
    sigtimedwait(&child, NULL, i ? &step : &none);
  }
  kill(-1, SIGKILL);
}

_Noreturn void vt_boot_supervise(const vt_boot *b, const vt_services *services) {
  sigset_t signals;
  sigfillset(&signals);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  pid_t sshd_pid = spawn(services->sshd), agent_pid = spawn(services->agent);
  run_script(b, services, "startup-script");
  for (;;) {
    siginfo_t info;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    int number = sigwaitinfo(&signals, &info);
    if (number == SIGTERM) {
      services->end();
      _exit(0);
    }
    if (number == SIGUSR1) run_script(b, services, "shutdown-script");
    if (number != SIGCHLD) continue;
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;) {
      struct timespec pause = {.tv_nsec = 200000000}; // a service that exits at once must not spin
      if (pid == sshd_pid || pid == agent_pid) nanosleep(&pause, NULL);
      if (pid == sshd_pid) sshd_pid = spawn(services->sshd);
      if (pid == agent_pid) agent_pid = spawn(services->agent);
    }
  }
}

static void make_root(const vt_boot *b) {
  static const char root[] = VT_BOOT_ROOT;
  setsid();
  // With a shared parent our mounts would propagate to the launcher's namespace.
  if (mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
    vt_boot_fail(b, true, "mount propagation");
  if (mount(root, root, NULL, MS_BIND | MS_REC, NULL) != 0)
    vt_boot_fail(b, true, "bind of %s", root);
  if (sethostname(b->hostname, strlen(b->hostname)) != 0) vt_boot_fail(b, true, "hostname");
}

_Noreturn void vt_boot_probe(const vt_boot *boot) {
  make_root(boot);
  mount_all(boot, VT_BOOT_ROOT);
  enter_root(boot, VT_BOOT_ROOT);
  vt_boot_confine(boot);
  _exit(0);
}

_Noreturn void vt_boot_init(const vt_boot *boot) {
  static const char *const sshd[] = {"/usr/sbin/sshd",        "-D", "-e", "-f",
                                     "/etc/vtpu/sshd_config", NULL};
  static const char *const agent[] = {"/opt/vtpu/vtpu-guest", "agent", NULL};
  static const vt_services services = {sshd, agent, "", 0, end_all};
  make_root(boot);
  set_up_network(boot);
  mount_all(boot, VT_BOOT_ROOT);
  enter_root(boot, VT_BOOT_ROOT);
  vt_boot_limit_self(boot);
  // Hides the host's control groups from guests. A kernel without cgroup namespaces hides nothing
  // more.
  (void)unshare(CLONE_NEWCGROUP);
  vt_boot_confine(boot);
  // From here on the host's folder is unreachable: errors go to the log only.
  umask(022);
  vt_boot_write_hosts(boot, "");
  const vt_variable library = {"TPU_LIBRARY_PATH", *boot->library ? "/opt/vtpu/libvtpu.so" : ""};
  static char more[9000], deny[8192];
  vt_boot_deny_system("", 0, deny, sizeof deny);
  snprintf(more, sizeof more,
           "AuthorizedKeysFile .ssh/authorized_keys\n"
           "AuthorizedKeysCommand /opt/vtpu/vtpu-guest keys %%u\n"
           "AuthorizedKeysCommandUser nobody\n%s",
           deny);
  vt_boot_write_sshd(boot, "", more, &library, 1);
  vt_boot_make_activity(boot, "", 2);
  mkdir("/run/sshd", 0755);
  vt_boot_make_host_key(boot, "");
  vt_boot_supervise(boot, &services);
}
