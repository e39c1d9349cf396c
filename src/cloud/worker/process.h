// SPDX-License-Identifier: Apache-2.0
// process.h - processes of this host as /proc shows them. A worker's folder names its processes in
// files "pid starttime", which mean one process for ever. Plain libc.
#ifndef VT_CLOUD_PROCESS_H
#define VT_CLOUD_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct vt_process {
  pid_t pid, parent;
  uid_t uid;
  unsigned long long start; // clock ticks since the boot of the host
} vt_process;

// False when there is no such process, or it is over and nobody has waited for it yet.
bool vt_process_read(pid_t pid, vt_process *out);
// The process that the file names; false when it is not alive, or the file is none of ours.
bool vt_process_named(const char *path, vt_process *out);

#endif
