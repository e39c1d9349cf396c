// SPDX-License-Identifier: Apache-2.0
// limit.c - limits on a worker's use of the host: memory, CPU, processes.
//
// All workers together are in one group that leaves an eighth of the memory to the host and has a
// lower CPU weight; each worker has its own group below it. If no group can be created, the
// worker's first process sets limits that its children inherit: these apply to each process, not to
// the sum. Methods, in order:
//   cgroup v2   the daemon's own group if it was delegated (systemd: Delegate=yes), else the root
//   cgroup v1   the daemon's own group in each of the three hierarchies
//   rlimits     RLIMIT_DATA and RLIMIT_NPROC, fewer CPUs (sched_setaffinity)
// Always: a lower priority, and first in line for the out-of-memory killer.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cloud/worker/boot.h"

enum { GROUPS = 3, PROCESSES = 8192, PATH = 512 };
#define DAEMON_GROUP "vtpu-daemon" // where a delegated group keeps the daemon, beside its workers

static char made[GROUPS][PATH]; // groups of this worker
static int made_count;
static char reason[160]; // why there is no group

static bool put(const char *folder, const char *name, const char *text) {
  char path[PATH + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool good = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  int error = errno;
  close(fd);
  errno = error;
  return good;
}

static bool put_number(const char *folder, const char *name, long long value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", value);
  return put(folder, name, text);
}

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *p = list; (p = strstr(p, word)); p += n)
    if ((p == list || strchr(", ", p[-1])) && (!p[n] || strchr(", \n", p[n]))) return true;
  return false;
}

// Where the hierarchy of a v1 controller, or v2 ("" as controller), is mounted.
static bool find_mount(const char *controller, char out_path[PATH]) {
  char line[4096], path[512], type[64], options[1024];
  bool found = false;
  FILE *file = fopen("/proc/self/mounts", "re");
  while (file && !found && fgets(line, sizeof line, file)) {
    if (sscanf(line, "%*s %511s %63s %1023s", path, type, options) != 3) continue;
    found = *controller ? strcmp(type, "cgroup") == 0 && has_word(options, controller)
                        : strcmp(type, "cgroup2") == 0;
  }
  if (file) fclose(file);
  if (found) snprintf(out_path, PATH, "%s", path);
  return found;
}

// This process's own group in that hierarchy, "/" or "/a/b".
static bool find_own(const char *controller, char out_path[PATH]) {
  char line[1024];
  bool found = false;
  FILE *file = fopen("/proc/self/cgroup", "re");
  while (file && !found && fgets(line, sizeof line, file)) {
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    if (!path) continue;
    *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    found = *controller ? has_word(list + 1, controller) : !list[1];
    if (found) snprintf(out_path, PATH, "%s", path);
  }
  if (file) fclose(file);
  return found;
}

static long long host_memory(void) {
  return (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
}

static long long common_memory(void) {
  long long all = host_memory(), rest = all / 8;
  return all - (rest > 256 << 20 ? rest : 256 << 20);
}

// BASE/vtpu/<pid of the worker's first process>, with `common` applied to the first of them once.
static bool make_group(const char *base, pid_t init, bool (*common)(const char *group),
                       char out_group[PATH]) {
  char group[PATH];
  int n = snprintf(group, sizeof group, "%s/vtpu", base);
  if (n >= PATH - 24) return false;
  if (mkdir(group, 0755) == 0) {
    if (!common(group)) {
      rmdir(group);
      return false;
    }
  } else if (errno != EEXIST) {
    return false;
  }
  snprintf(out_group, PATH, "%.480s/%d", group, (int)init);
  if (mkdir(out_group, 0755) == 0 || errno == EEXIST) return true;
  return false;
}

static bool enter(const char *group, pid_t init) {
  if (!put_number(group, "cgroup.procs", init)) {
    int error = errno;
    rmdir(group);
    errno = error;
    return false;
  }
  snprintf(made[made_count++], PATH, "%s", group);
  return true;
}

// --- cgroup v2 -----------------------------------------------------------------------------------

#define CONTROLLERS "+memory +cpu +pids"

// A group with controllers for its children may not hold processes itself. A delegated group is
// ours to arrange: its processes move beside the workers.
static bool clear(const char *base) {
  char value[8] = "", leaf[PATH], path[PATH + 64], line[32];
  if (getxattr(base, "trusted.delegate", value, sizeof value - 1) <= 0 &&
      getxattr(base, "user.delegate", value, sizeof value - 1) <= 0)
    return false;
  snprintf(leaf, sizeof leaf, "%.480s/" DAEMON_GROUP, base);
  if (*value != '1' || (mkdir(leaf, 0755) != 0 && errno != EEXIST)) return false;
  snprintf(path, sizeof path, "%s/cgroup.procs", base);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file)) put(leaf, "cgroup.procs", line);
  if (file) fclose(file);
  return true;
}

static bool open_children(const char *base) {
  if (put(base, "cgroup.subtree_control", CONTROLLERS)) return true;
  return errno == EBUSY && clear(base) && put(base, "cgroup.subtree_control", CONTROLLERS);
}

static bool common_v2(const char *group) {
  (void)put_number(group, "cpu.weight", 50); // half of the default
  return put(group, "cgroup.subtree_control", CONTROLLERS) &&
         put_number(group, "memory.max", common_memory());
}

static bool limit_v2(const vt_boot *b, pid_t init) {
  char mount[PATH], own[PATH], base[2 * PATH], group[PATH], text[64];
  if (!find_mount("", mount) || !find_own("", own)) {
    snprintf(reason, sizeof reason, "no cgroup v2");
    return false;
  }
  size_t n = strlen(own), tail = strlen("/" DAEMON_GROUP);
  if (n >= tail && strcmp(own + n - tail, "/" DAEMON_GROUP) == 0) own[n - tail] = 0;
  snprintf(base, sizeof base, "%s%s", mount, strcmp(own, "/") == 0 ? "" : own);
  bool good = open_children(base) && make_group(base, init, common_v2, group);
  if (!good) good = open_children(mount) && make_group(mount, init, common_v2, group);
  if (!good) {
    snprintf(reason, sizeof reason, "cgroup v2 is not delegated to the daemon: %s",
             strerror(errno));
    return false;
  }
  snprintf(text, sizeof text, "%d 100000", b->cpu_percent * 1000);
  if (!put_number(group, "memory.max", b->memory_bytes) ||
      !put_number(group, "pids.max", PROCESSES) || (b->cpu_percent && !put(group, "cpu.max", text)))
    snprintf(reason, sizeof reason, "%.100s: %s", group, strerror(errno));
  else if (enter(group, init)) {
    (void)put_number(group, "memory.swap.max", 0);
    return true;
  }
  rmdir(group);
  return false;
}

// --- cgroup v1 -----------------------------------------------------------------------------------

static bool common_memory_v1(const char *group) {
  return put_number(group, "memory.limit_in_bytes", common_memory());
}

static bool common_cpu_v1(const char *group) {
  return put_number(group, "cpu.shares", 512); // half of the default
}

static bool common_none(const char *group) {
  (void)group;
  return true;
}

static bool limit_v1(const vt_boot *b, pid_t init) {
  static const struct {
    const char *controller, *file;
    bool (*common)(const char *group);
  } parts[GROUPS] = {{"memory", "memory.limit_in_bytes", common_memory_v1},
                     {"cpu", "cpu.cfs_quota_us", common_cpu_v1},
                     {"pids", "pids.max", common_none}};
  const long long values[GROUPS] = {b->memory_bytes, b->cpu_percent ? b->cpu_percent * 1000LL : -1,
                                    PROCESSES};
  for (int i = 0; i < GROUPS; i++) {
    char mount[PATH], own[PATH], base[2 * PATH], group[PATH];
    if (!find_mount(parts[i].controller, mount) || !find_own(parts[i].controller, own)) {
      snprintf(reason, sizeof reason, "no cgroup with the controller %s", parts[i].controller);
      return false;
    }
    snprintf(base, sizeof base, "%s%s", mount, strcmp(own, "/") == 0 ? "" : own);
    if (!make_group(base, init, parts[i].common, group) ||
        !put_number(group, parts[i].file, values[i]) || !enter(group, init)) {
      snprintf(reason, sizeof reason, "cgroup %s/vtpu: %s", parts[i].controller, strerror(errno));
      return false;
    }
  }
  return true;
}

// --- rlimits -------------------------------------------------------------------------------------

// Fewer CPUs than there are, so that one is left to the host; which one differs from worker to
// worker.
static int few_cpus(const vt_boot *b, cpu_set_t *out_set) {
  cpu_set_t all;
  int cpus[CPU_SETSIZE], count = 0, want = (b->cpu_percent + 99) / 100;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return 0;
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &all)) cpus[count++] = i;
  if (want == 0 || want >= count) want = count > 1 ? count - 1 : count;
  CPU_ZERO(out_set);
  for (int i = 0; i < want; i++) CPU_SET(cpus[((int)(b->uid_base / 65536) + i) % count], out_set);
  return want;
}

static int limit_process(const vt_boot *b) {
  struct rlimit data = {(rlim_t)b->memory_bytes, (rlim_t)b->memory_bytes},
                processes = {PROCESSES, PROCESSES};
  cpu_set_t set;
  int cpus = few_cpus(b, &set);
  if (setrlimit(RLIMIT_DATA, &data) != 0 || setrlimit(RLIMIT_NPROC, &processes) != 0)
    fprintf(stderr, "vtpu-guest: limits of the process: %s\n", strerror(errno));
  if (cpus && sched_setaffinity(0, sizeof set, &set) != 0)
    fprintf(stderr, "vtpu-guest: CPUs: %s\n", strerror(errno));
  return cpus;
}

// --- both sides ----------------------------------------------------------------------------------

// A Slurm job confined by its group: a group elsewhere would escape it.
static bool in_job(void) {
  char own[PATH];
  return (find_own("", own) && strstr(own, "/job_")) ||
         (find_own("memory", own) && strstr(own, "/job_"));
}

void vt_boot_limit(vt_boot *b, pid_t init) {
  bool job = in_job(), may_group = strcmp(b->limits, "rlimit") != 0 && !job;
  char cpu[64] = "all CPUs, after the host's own";
  char process[32];
  snprintf(process, sizeof process, "/proc/%d", (int)init);
  (void)put(process, "oom_score_adj", "500");
  if (!b->memory_bytes) b->memory_bytes = host_memory() / 4 * 3;
  if (!may_group)
    snprintf(reason, sizeof reason, job ? "in the group of a Slurm job" : "asked for");
  bool v2 = may_group && limit_v2(b, init);
  if (may_group && !v2) {
    vt_boot_unlimit();
    b->grouped = limit_v1(b, init);
    if (!b->grouped) vt_boot_unlimit();
  }
  b->grouped = b->grouped || v2;
  if (b->cpu_percent)
    snprintf(cpu, sizeof cpu, "%d.%02d CPUs", b->cpu_percent / 100, b->cpu_percent % 100);
  if (b->grouped)
    snprintf(b->limit_text, sizeof b->limit_text, "memory %lld MiB, %s, %d processes (cgroup %s)",
             b->memory_bytes >> 20, cpu, PROCESSES, v2 ? "v2" : "v1");
  else
    snprintf(b->limit_text, sizeof b->limit_text,
             "each process %lld MiB of data, fewer CPUs than the host has, %d processes (rlimits; "
             "%s)",
             b->memory_bytes >> 20, PROCESSES, reason);
}

void vt_boot_limit_self(const vt_boot *b) {
  if (!b->grouped) limit_process(b);
}

// --- what is used of the memory ------------------------------------------------------------------

enum { MEMORY_TEXT = 80, LOW_PERCENT = 95, AGAIN_PERCENT = 85 };

// The number after a name in a file of the worker's group, or the first one for "".
static long long read_group(const char *file, const char *name) {
  static char text[8192];
  char path[PATH + 64];
  snprintf(path, sizeof path, "%s/%s", made[0], file);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  size_t size = strlen(name);
  for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
    if (strncmp(p, name, size) == 0 && (!size || p[size] == ' '))
      return strtoll(p + size, NULL, 10);
  return 0;
}

int vt_boot_memory_open(void) {
  char number[16];
  int fd = memfd_create("memory", 0); // stays open in the agent
  snprintf(number, sizeof number, "%d", fd);
  if (fd >= 0) setenv(VT_BOOT_MEMORY, number, 1);
  return fd;
}

void vt_boot_memory_write(const vt_boot *b, int fd) {
  char text[MEMORY_TEXT + 1];
  if (fd < 0 || made_count == 0) return;
  bool v2 = made_count == 1;
  long long kills = read_group(v2 ? "memory.events" : "memory.oom_control", "oom_kill");
  long long used = read_group(v2 ? "memory.current" : "memory.usage_in_bytes", "");
  long long cache = read_group("memory.stat", v2 ? "inactive_file" : "total_inactive_file");
  int n = snprintf(text, sizeof text, "%lld %lld %lld\n", kills, used > cache ? used - cache : 0,
                   b->memory_bytes);
  if (pwrite(fd, text, (size_t)n, 0) < 0) return; // retried at the next sample
}

void vt_boot_memory_check(const char *root) {
  static long long known = -1;
  static bool low;
  char text[MEMORY_TEXT + 1], path[600], number[24];
  long long kills, used, limit;
  const char *name = getenv(VT_BOOT_MEMORY);
  ssize_t n = name ? pread(atoi(name), text, MEMORY_TEXT, 0) : -1;
  text[n > 0 ? n : 0] = 0;
  if (sscanf(text, "%lld %lld %lld", &kills, &used, &limit) != 3 || limit <= 0) return;
  snprintf(path, sizeof path, "%s/run/vtpu/oom_kills", root);
  if (known < 0) { // a restarted agent continues from the last sample
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    n = fd < 0 ? -1 : read(fd, number, sizeof number - 1);
    if (fd >= 0) close(fd);
    number[n > 0 ? n : 0] = 0;
    known = atoll(number);
  }
  if (kills > known) {
    vt_boot_symptom("OUT_OF_MEMORY", "%lld processes were ended, the worker has %lld MiB",
                    kills - known, limit >> 20);
    known = kills;
    snprintf(number, sizeof number, "%lld", kills);
    (void)vt_boot_write(path, number, 0644);
  }
  long long percent = used * 100 / limit;
  if (percent >= LOW_PERCENT && !low)
    vt_boot_symptom("LOW_MEMORY", "%lld of %lld MiB are in use", used >> 20, limit >> 20);
  low = percent >= LOW_PERCENT || (low && percent >= AGAIN_PERCENT);
}

void vt_boot_unlimit(void) {
  while (made_count > 0) rmdir(made[--made_count]);
}
