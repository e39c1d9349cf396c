// SPDX-License-Identifier: Apache-2.0
// activity.h - a process's published use of the chips: one page of shared memory, a file named
// after the process in a folder of the host. The runtime writes it (src/runtime/activity.c), the
// agent of a TPU VM adds up the pages (src/cloud/worker/guest_use.c); docs/activity.md describes it
// for other readers. Plain C, no functions: both sides use it without linking each other.
//
// The writer holds a POSIX write lock on the file for its lifetime, so a page without a lock is
// final. Counters only grow and are written with relaxed atomics; a reader sees each of them whole,
// but not a snapshot of all.
#ifndef VT_BASE_ACTIVITY_H
#define VT_BASE_ACTIVITY_H

#include <stdatomic.h>
#include <stdint.h>

// Where pages are written unless VTPU_ACTIVITY names another folder; nowhere when it does not
// exist.
#define VT_ACTIVITY_FOLDER "/run/vtpu/activity"
#define VT_ACTIVITY_MAGIC  UINT64_C(0x3359544341555456) // "VTUACTY3" in memory

enum { VT_ACTIVITY_VERSIONS = 112 };

typedef struct vt_activity_page {
  uint64_t magic;
  _Atomic uint64_t programs;    // runs that ended
  _Atomic uint64_t running;     // runs going on now
  _Atomic uint64_t since_ns;    // CLOCK_MONOTONIC when the last run began
  _Atomic uint64_t busy_ns;     // wall-clock time on this machine in runs that ended
  _Atomic uint64_t device_ps;   // virtual device time of those: what the slice would have needed
  _Atomic uint64_t hbm_bytes;   // HBM in use now, all devices
  _Atomic uint64_t hbm_limit;   // HBM of all devices
  _Atomic uint64_t hbm_refused; // how often something did not fit into a device's HBM
  _Atomic uint64_t hbm_asked;   // bytes of the last such request
  _Atomic uint64_t hbm_peak;    // the most HBM that was in use, all devices
  // Set when the page is created:
  uint64_t opened_ns;                  // CLOCK_MONOTONIC
  char versions[VT_ACTIVITY_VERSIONS]; // "libvtpu=0.1.0 JAX=0.10.2 python=3.11.2", zero-terminated
} vt_activity_page;
_Static_assert(sizeof(vt_activity_page) == 208, "docs/activity.md");

#endif
