// SPDX-License-Identifier: Apache-2.0
// filter.h - what processes may ask of the kernel: a seccomp filter over the rows of filter.def,
// and the capabilities that a worker's root has. Plain libc; inherited by every child, for ever.
#ifndef VT_CLOUD_FILTER_H
#define VT_CLOUD_FILTER_H

#include <stdbool.h>
#include <stddef.h>

struct sock_filter;

typedef enum vt_filtered {
  VT_FILTER_GUEST, // process 1 of a worker and all below it
  VT_FILTER_DAEMON // the process of vtpud that talks to strangers, and the ssh clients it starts
} vt_filtered;

enum { VT_FILTER_MAX = 4096 }; // instructions; the kernel's own bound

// The program of the filter, at most VT_FILTER_MAX instructions; its length.
size_t vt_filter_build(vt_filtered who, struct sock_filter *out_program);
// Filters this process from now on. Needs CAP_SYS_ADMIN in its user namespace, or no_new_privs.
// False with errno where the kernel has no filters.
bool vt_filter_install(vt_filtered who);
// Leaves this process and all it will ever start the capabilities of a container's root: its own
// files, accounts, ports and processes; nothing of the kernel, the network or devices. False with
// errno.
bool vt_filter_capabilities(void);

#endif
