// SPDX-License-Identifier: Apache-2.0
// fork.h - what remains of the devices in a child of fork(): nothing runs, nothing waits,
// everything inherited can be discarded. Threads do not survive a fork, and a lock that one of them
// held stays locked: a child must neither take locks nor wait. OpenMP cannot start its threads a
// second time either, so a child of a process that has used a device gets none; one forked before
// that is like any other.
#ifndef VT_BASE_FORK_H
#define VT_BASE_FORK_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

// From now on children count as forked.
void vt_fork_watch(void);
bool vt_forked(void);
// FAILED_PRECONDITION in a forked child.
vt_status vt_fork_check(void) VT_CHECKED;

// Locks in the process that has the threads; does nothing in a forked child.
static inline void vt_lock(pthread_mutex_t *mutex) {
  if (!vt_forked()) pthread_mutex_lock(mutex);
}
static inline void vt_unlock(pthread_mutex_t *mutex) {
  if (!vt_forked()) pthread_mutex_unlock(mutex);
}

#endif
