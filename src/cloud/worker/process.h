// SPDX-License-Identifier: Apache-2.0
// process.h - processes of this host as seen in /proc. Files in a worker's folder identify a
// process by "pid starttime", which is never reused. Plain libc.
#ifndef VT_CLOUD_PROCESS_H
#define VT_CLOUD_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct vt_process {
  pid_t pid, parent;
  uid_t uid;
  unsigned long long start; // clock ticks since the boot of the host
} vt_process;

// False when there is no such process, or only a zombie.
bool vt_process_read(pid_t pid, vt_process *out);
// The process named in the file; false when it is not alive, or the file is not ours.
bool vt_process_named(const char *path, vt_process *out);

#endif
