// SPDX-License-Identifier: Apache-2.0
// fork.h - what is left of the devices in a child of fork(): nothing runs, nothing waits, all that
// was inherited can be thrown away.
// Threads do not cross a fork, and a lock that one of them held stays locked: a child must neither
// take locks nor wait. OpenMP's threads cannot be had a second time either, so a child of a process
// that has used a device gets none; one forked before that is like any other.
#ifndef VT_BASE_FORK_H
#define VT_BASE_FORK_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

// Children from now on are forked ones.
void vt_fork_watch(void);
bool vt_forked(void);
// FAILED_PRECONDITION in a forked child.
vt_status vt_fork_check(void) VT_CHECKED;

// A lock in the process that has the threads; in a forked child, nothing.
static inline void vt_lock(pthread_mutex_t *mutex) {
  if (!vt_forked()) pthread_mutex_lock(mutex);
}
static inline void vt_unlock(pthread_mutex_t *mutex) {
  if (!vt_forked()) pthread_mutex_unlock(mutex);
}

#endif
