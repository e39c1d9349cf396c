// SPDX-License-Identifier: Apache-2.0
// boot.h - the parts of vtpu-guest: the launcher outside (launcher.c), the disk it builds
// (root_disk.c), what runs inside as process 1 (init.c) and as the agent (agent.c).
// Plain libc; errors end the process with a message.
#ifndef VT_CLOUD_BOOT_H
#define VT_CLOUD_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct vt_boot {
  char folder[512]; // of the guest, on the host
  const char *hostname, *ip, *gateway, *metadata, *bridge, *veth, *hub, *library, *python,
      *accelerator_type, *pci_device, *device_files;
  const char *peers, *node;
  unsigned uid_base;
  int chips, worker, workers, level;
  const char *disks;      // "name:rw:/folder of the host,..."
  const char *limits;     // "" the best there is, "rlimit"
  long long memory_bytes; // 0 = a share of the host's
  int cpu_percent;        // 100 = one CPU, 0 = all
  bool grouped;           // the limits are those of a group, not of each process
  char limit_text[320];   // what they are, for people
  int boot_disk_gb;       // 0 = no limit
  char disk_text[240];    // how large it is, for people
} vt_boot;

// Where the root of the guest is mounted before it becomes the root, in the launcher's own mount
// namespace.
#define VT_BOOT_ROOT "/mnt"

// Writes `failed` in the guest's folder and ends the process. errno is added when `with_errno`.
_Noreturn void vt_boot_fail(const vt_boot *boot, bool with_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Makes the guest's own files (first boot) and mounts its root on VT_BOOT_ROOT, in the caller's
// mount namespace. `user_ns` is a descriptor of the user namespace that the guest will have.
void vt_boot_disk(vt_boot *boot, int user_ns);
// Mounts the disks of the spec at /mnt/disks of a guest that runs, and takes away all others.
void vt_boot_disks(const vt_boot *boot, int user_ns, int mount_ns, const char *mounts);
// The helper (helper.h) behind that descriptor; its exit code.
int vt_helper_serve(int fd, int count, char **arguments);
// Process 1 of the guest; never returns. Called in all its namespaces, root of its user namespace,
// once its veth is there.
_Noreturn void vt_boot_init(const vt_boot *boot);
// Follows the metadata server: makes accounts, publishes host keys. Never returns.
// `root` and `uid_base` are those of level 1, "" and 0 where the worker has a root of its own.
_Noreturn void vt_boot_agent(const char *metadata, const char *root, unsigned uid_base);
// Level 1 (plain.c): the same services as an ordinary tree of processes. Never returns.
_Noreturn void vt_boot_plain(const vt_boot *boot);
// The last step before programs of the worker run: capabilities and system calls.
void vt_boot_confine(const vt_boot *boot);
// Ends every process below this one; to be called by the last of them.
void vt_boot_end_children(void);
// Tries all that level 2 needs of this kernel, in the namespaces of the worker; ends the process.
_Noreturn void vt_boot_probe(const vt_boot *boot);

// What process 1 keeps running.
typedef struct vt_services {
  const char *const *sshd, *const *agent;
  const char *root;   // before the paths of its files
  unsigned script_id; // of the user's scripts, 0 = root
  void (*end)(void);  // SIGTERM
} vt_services;
_Noreturn void vt_boot_supervise(const vt_boot *boot, const vt_services *services);
int vt_boot_run(const char *const *argv); // its exit status, -1 when it could not run
// Files of one boot below `root`: where chips report, what the guest is. Host key, names of peers.
void vt_boot_make_activity(const vt_boot *boot, const char *root, int level);
void vt_boot_make_host_key(const vt_boot *boot, const char *root);
void vt_boot_write_hosts(const vt_boot *boot, const char *root);
// The environment of logins: in sshd's configuration, and as a profile where `profile` is set.
typedef struct vt_variable {
  const char *name, *value;
} vt_variable;
void vt_boot_write_sshd(const vt_boot *boot, const char *root, const char *more,
                        const vt_variable *variables, size_t count);
// Limits of the worker (limit.c): outside, before its first process goes on; inside, by that
// process; and when it is over.
void vt_boot_limit(vt_boot *boot, pid_t init);
void vt_boot_limit_self(const vt_boot *boot);
void vt_boot_unlimit(void);
// Tells the metadata server how busy the chips are and who has them, from the pages in `folder`
// (base/activity.h); `passwd` names the users.
void vt_boot_report_chips(const char *server, const char *folder, const char *passwd);
// Tells it that the worker lives, and does what the reply says (heartbeat.c). `root` is before the
// paths of the worker's files, `uid_base` as for the agent.
void vt_boot_heartbeat(const char *server, const char *root, unsigned uid_base);
// Notes a symptom of the API for the next heartbeat; the worker's log has it too.
void vt_boot_symptom(const char *type, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// What the launcher sees of the worker's memory, in a file without a name that both have open
// (limit.c): the launcher makes it before the first fork and writes it every two seconds,
// the agent finds its number in VT_BOOT_MEMORY and looks for symptoms in it.
#define VT_BOOT_MEMORY "VTPU_MEMORY"
int vt_boot_memory_open(void);
void vt_boot_memory_write(const vt_boot *boot, int fd);
void vt_boot_memory_check(const char *root);
// Ends the process that holds a page of `folder` since then (release.c): "" = it was asked
// to, NULL = nothing to do, else why not. `step`, every second, goes on with it; true when one
// ended.
const char *vt_boot_release(const char *folder, unsigned uid_base, long pid,
                            unsigned long long opened_ns);
bool vt_boot_release_step(void);
// Accounts of people (people.c), below `root`, their ids from `uid_base` + 2000 on: makes
// one, or gives it another id with all that is in its home. False for a name that the system of the
// worker has, which nobody may log in as.
bool vt_boot_make_user(const char *root, unsigned uid_base, const char *name, unsigned uid);
// The line of sshd's configuration that keeps everybody out who is not one of these people.
void vt_boot_deny_system(const char *root, unsigned uid_base, char *out, size_t size);
// Writes text to a new or emptied file; false on an error.
bool vt_boot_write(const char *path, const char *text, unsigned mode);
// A GET (body NULL) or PUT of the metadata server; the body of the reply and its ETag. False on
// failure.
bool vt_boot_metadata(const char *server, const char *path, const char *body, char *out,
                      size_t size, char out_etag[32]);

#endif
