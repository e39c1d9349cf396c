// SPDX-License-Identifier: Apache-2.0
// filter.h - restricts what processes may ask of the kernel: a seccomp filter from the rows of
// filter.def, and the capabilities of a worker's root. Plain libc; inherited by every child,
// permanently.
#ifndef VT_CLOUD_FILTER_H
#define VT_CLOUD_FILTER_H

#include <stdbool.h>
#include <stddef.h>

struct sock_filter;

typedef enum vt_filtered {
  VT_FILTER_GUEST, // process 1 of a worker and all below it
  VT_FILTER_DAEMON // the process of vtpud that serves clients, and the ssh clients it starts
} vt_filtered;

enum { VT_FILTER_MAX = 4096 }; // instructions; the kernel's own limit

// The filter's program, at most VT_FILTER_MAX instructions; returns its length.
size_t vt_filter_build(vt_filtered who, struct sock_filter *out_program);
// Filters this process from now on. Needs CAP_SYS_ADMIN in its user namespace, or no_new_privs.
// False with errno if the kernel has no filters.
bool vt_filter_install(vt_filtered who);
// Limits this process and all its descendants to the capabilities of a container's root: its own
// files, accounts, ports and processes; nothing of the kernel, the network or devices. False with
// errno.
bool vt_filter_capabilities(void);

#endif
