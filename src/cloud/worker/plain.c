// SPDX-License-Identifier: Apache-2.0
// plain.c - a worker of level 1: no namespaces; its own sshd on an address 127.x.y.z, with its own
// accounts, homes, host names and metadata in place of the host's files.
//
// The accounts are host ids that nothing else uses (65536 per worker), so that the host's own
// permissions keep workers apart; libnss_wrapper shows sshd and every program of a login the
// worker's passwd, group and hosts files. Without root everybody is the daemon's user: good for
// trying things, but no isolation. The worker's folder serves as its root: etc, home, keys, run,
// var.
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/activity.h"
#include "cloud/worker/boot.h"

// --- ending --------------------------------------------------------------------------------------

// Signals every process below `pid`. Orphans are reparented to the worker's first process, so all
// are below it.
static int signal_children(pid_t pid, int number) {
  char path[64], text[16384];
  int count = 0;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  for (char *end, *p = text; *p; p = end + (*end == ' ')) {
    pid_t child = (pid_t)strtol(p, &end, 10);
    if (end == p) break;
    count += 1 + signal_children(child, number);
    kill(child, number);
  }
  return count;
}

void vt_boot_end_children(void) {
  struct timespec step = {.tv_nsec = 20000000};
  for (int i = 0; i < 150; i++) { // two seconds for programs that save their work
    int number = i == 0 ? SIGTERM : i >= 100 ? SIGKILL : 0;
    int count = signal_children(getpid(), number);
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    if (count == 0) return;
    nanosleep(&step, NULL);
  }
}

// --- files ---------------------------------------------------------------------------------------

static void make_folder(const vt_boot *b, const char *name, unsigned mode) {
  char path[600];
  snprintf(path, sizeof path, "%s%s", b->folder, name);
  if ((mkdir(path, mode) != 0 && errno != EEXIST) || chmod(path, mode) != 0)
    vt_boot_fail(b, true, "%s", path);
}

// The host's system accounts, which programs expect, but none of people.
static void copy_accounts(const vt_boot *b, const char *name) {
  char path[600], line[1024];
  snprintf(path, sizeof path, "/etc/%s", name);
  FILE *in = fopen(path, "re");
  snprintf(path, sizeof path, "%s/etc/%s", b->folder, name);
  if (access(path, F_OK) == 0) { // of an earlier boot, with the worker's own
    if (in) fclose(in);
    return;
  }
  FILE *out = fopen(path, "we");
  if (!in || !out) vt_boot_fail(b, true, "%s", path);
  while (fgets(line, sizeof line, in)) {
    const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    long id = second ? strtol(second + 1, NULL, 10) : 0;
    if (second && (id < 1000 || id == 65534)) fputs(line, out);
  }
  fclose(in);
  if (fclose(out) != 0) vt_boot_fail(b, true, "%s", path);
}

static void empty_run(const vt_boot *b) {
  char path[600];
  snprintf(path, sizeof path, "%s/run", b->folder);
  const char *const argv[] = {"rm", "-rf", path, NULL};
  vt_boot_run(argv);
  make_folder(b, "/run", 0755);
}

static const char *find_wrapper(const vt_boot *b) {
  static char path[256];
  glob_t found = {0};
  if (glob("/usr/lib/*/libnss_wrapper.so", 0, NULL, &found) == 0 && found.gl_pathc)
    snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
  globfree(&found);
  if (!*path) vt_boot_fail(b, false, "libnss_wrapper.so is not there (Debian: libnss-wrapper)");
  return path;
}

static void write_sshd(const vt_boot *b) {
  char passwd[600], group[600], hosts[600], activity[600], more[9000], deny[8192];
  snprintf(passwd, sizeof passwd, "%s/etc/passwd", b->folder);
  snprintf(group, sizeof group, "%s/etc/group", b->folder);
  snprintf(hosts, sizeof hosts, "%s/etc/hosts", b->folder);
  snprintf(activity, sizeof activity, "%s" VT_ACTIVITY_FOLDER, b->folder);
  vt_boot_deny_system(b->folder, b->uid_base, deny, sizeof deny);
  snprintf(more, sizeof more, "AuthorizedKeysFile %s/keys/%%u\nStrictModes no\nPrintLastLog no\n%s",
           b->folder, deny);
  const vt_variable variables[] = {{"LD_PRELOAD", find_wrapper(b)},
                                   {"NSS_WRAPPER_PASSWD", passwd},
                                   {"NSS_WRAPPER_GROUP", group},
                                   {"NSS_WRAPPER_HOSTS", hosts},
                                   {"NSS_WRAPPER_HOSTNAME", b->hostname},
                                   {"GCE_METADATA_HOST", b->metadata},
                                   {"GCE_METADATA_IP", b->metadata},
                                   {"VTPU_ACTIVITY", activity},
                                   {"JAX_PLATFORMS", *b->library ? "tpu,cpu" : ""},
                                   // There are no PCI devices here to show JAX a TPU VM.
                                   {"JAX_FORCE_TPU_INIT", *b->library ? "1" : ""},
                                   {"TPU_LIBRARY_PATH", b->library}};
  size_t count = sizeof variables / sizeof *variables;
  vt_boot_write_sshd(b, b->folder, more, variables, count);
  // sshd itself must find the accounts, too.
  for (size_t i = 0; i < 4; i++) setenv(variables[i].name, variables[i].value, 1);
}

_Noreturn void vt_boot_plain(const vt_boot *boot) {
  static char config[600], self[4096], base[16];
  static const char *sshd[] = {"/usr/sbin/sshd", "-D", "-e", "-f", config, NULL};
  static const char *agent[] = {self, "agent", NULL, NULL, base, NULL};
  static const char *const folders[] = {"/etc",  "/etc/ssh", "/etc/vtpu", "/etc/profile.d",
                                        "/home", "/keys",    "/var",      "/var/log"};
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) make_folder(boot, folders[i], 0755);
  empty_run(boot);
  copy_accounts(boot, "passwd");
  copy_accounts(boot, "group");
  vt_boot_write_hosts(boot, boot->folder);
  vt_boot_make_activity(boot, boot->folder, 1);
  vt_boot_make_host_key(boot, boot->folder);
  if (geteuid() == 0) mkdir("/run/sshd", 0755);
  vt_boot_limit_self(boot);
  write_sshd(boot);
  snprintf(config, sizeof config, "%s/etc/vtpu/sshd_config", boot->folder);
  snprintf(base, sizeof base, "%u", boot->uid_base);
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  agent[2] = boot->metadata;
  agent[3] = boot->folder;
  vt_boot_confine(boot);
  const vt_services services = {sshd, agent, boot->folder, boot->uid_base, vt_boot_end_children};
  vt_boot_supervise(boot, &services);
}
