// SPDX-License-Identifier: Apache-2.0
// boot.h - the parts of vtpu-guest: the launcher outside (launcher.c), the disk it builds
// (root_disk.c), and inside process 1 (init.c) and the agent (agent.c). Plain libc; errors end the
// process with a message.
#ifndef VT_CLOUD_BOOT_H
#define VT_CLOUD_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct vt_boot {
  char folder[512]; // of the guest, on the host
  const char *hostname, *ip, *gateway, *metadata, *bridge, *veth, *hub, *library, *python,
      *accelerator_type, *pci_device, *device_files;
  const char *peers, *node, *cookie;
  unsigned uid_base;
  int chips, worker, workers, level;
  const char *disks;      // "name:rw:/folder of the host,..."
  const char *limits;     // "" the best available, "rlimit"
  long long memory_bytes; // 0 = a share of the host's
  int cpu_percent;        // 100 = one CPU, 0 = all
  bool grouped;           // the limits apply to a group, not to each process
  char limit_text[320];   // a description for people
  int boot_disk_gb;       // 0 = no limit
  char disk_text[240];    // its size, for people
} vt_boot;

// Where the root of the guest is mounted before it becomes the root, in the launcher's own mount
// namespace.
#define VT_BOOT_ROOT "/mnt"

// Writes `failed` to the guest's folder and ends the process. Appends errno when `with_errno`.
_Noreturn void vt_boot_fail(const vt_boot *boot, bool with_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Creates the guest's own files (first boot) and mounts its root on VT_BOOT_ROOT, in the caller's
// mount namespace. `user_ns` is a descriptor of the user namespace that the guest will have.
void vt_boot_disk(vt_boot *boot, int user_ns);
// Mounts the disks of the spec at /mnt/disks of a running guest, and unmounts all others.
void vt_boot_disks(const vt_boot *boot, int user_ns, int mount_ns, const char *mounts);
// The helper (helper.h), serving that descriptor; returns its exit code.
int vt_helper_serve(int fd, int count, char **arguments);
// Process 1 of the guest; never returns. Call it in all its namespaces, as root of its user
// namespace, once its veth exists.
_Noreturn void vt_boot_init(const vt_boot *boot);
// Follows the metadata server: creates accounts, publishes host keys. Never returns. `root` and
// `uid_base` are those of level 1, "" and 0 if the worker has its own root.
_Noreturn void vt_boot_agent(const char *metadata, const char *root, unsigned uid_base);
// Level 1 (plain.c): the same services as an ordinary process tree. Never returns.
_Noreturn void vt_boot_plain(const vt_boot *boot);
// The last step before programs of the worker run: drops capabilities and filters system calls.
void vt_boot_confine(const vt_boot *boot);
// Ends every process below this one; for the last of them to call.
void vt_boot_end_children(void);
// Tries everything that level 2 needs of this kernel, in the worker's namespaces; ends the process.
_Noreturn void vt_boot_probe(const vt_boot *boot);

// Services that process 1 keeps running.
typedef struct vt_services {
  const char *const *sshd, *const *agent;
  const char *root;   // prefix of its file paths
  unsigned script_id; // of the user's scripts, 0 = root
  void (*end)(void);  // SIGTERM
} vt_services;
_Noreturn void vt_boot_supervise(const vt_boot *boot, const vt_services *services);
int vt_boot_run(const char *const *argv); // its exit status, -1 when it could not run
// Files of one boot below `root`: where chips report, what the guest is. Host key, names of peers.
void vt_boot_make_activity(const vt_boot *boot, const char *root, int level);
void vt_boot_make_host_key(const vt_boot *boot, const char *root);
void vt_boot_write_hosts(const vt_boot *boot, const char *root);
// The environment of logins: in sshd's configuration, and as a shell profile if `profile` is set.
typedef struct vt_variable {
  const char *name, *value;
} vt_variable;
void vt_boot_write_sshd(const vt_boot *boot, const char *root, const char *more,
                        const vt_variable *variables, size_t count);
// Limits of the worker (limit.c): outside, before its first process continues; inside, by that
// process; and after its end.
void vt_boot_limit(vt_boot *boot, pid_t init);
void vt_boot_limit_self(const vt_boot *boot);
void vt_boot_unlimit(void);
// Reports to the metadata server how busy the chips are and who has them, from the pages in
// `folder` (base/activity.h); `passwd` names the users.
void vt_boot_report_chips(const char *server, const char *folder, const char *passwd);
// Sends the worker's heartbeat and follows the reply (heartbeat.c). `root` is the prefix of the
// worker's files, `uid_base` as for the agent.
void vt_boot_heartbeat(const char *server, const char *root, unsigned uid_base);
// Queues a symptom of the API for the next heartbeat, and writes it to the worker's log.
void vt_boot_symptom(const char *type, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// The launcher's view of the worker's memory, in an unnamed file that both have open (limit.c): the
// launcher creates it before the first fork and writes it every two seconds; the agent finds its
// descriptor in VT_BOOT_MEMORY and checks it for symptoms.
#define VT_BOOT_MEMORY "VTPU_MEMORY"
int vt_boot_memory_open(void);
void vt_boot_memory_write(const vt_boot *boot, int fd);
void vt_boot_memory_check(const char *root);
// Ends the process that has held a page of `folder` since then (release.c): "" = it was asked to,
// NULL = nothing to do, else why not. `step`, called every second, continues; true when one ended.
const char *vt_boot_release(const char *folder, unsigned uid_base, long pid,
                            unsigned long long opened_ns);
bool vt_boot_release_step(void);
// Accounts of people (people.c), below `root`, with ids from `uid_base` + 2000: creates one, or
// changes its id with everything in its home. False for a name that the worker's system has, which
// nobody may log in as.
bool vt_boot_make_user(const char *root, unsigned uid_base, const char *name, unsigned uid);
// The line of sshd's configuration that admits only these people.
void vt_boot_deny_system(const char *root, unsigned uid_base, char *out, size_t size);
// Writes text to a new or truncated file; false on an error.
bool vt_boot_write(const char *path, const char *text, unsigned mode);
// A GET (body NULL) or PUT to the metadata server; returns the body of the reply and its ETag.
// False on failure.
bool vt_boot_metadata(const char *server, const char *path, const char *body, char *out,
                      size_t size, char out_etag[32]);

#endif
