// SPDX-License-Identifier: Apache-2.0
// queue.h - tasks done one at a time and in order, by a thread of the queue or by whoever waits for
// one: what must keep an order, and may go on beside something else.
//
// The thread starts with the first task that is for it, and takes no signals. A task that fails is
// the last one that runs until the queue is cleared.
// Threads: one puts, waits and clears.
#ifndef VT_BASE_QUEUE_H
#define VT_BASE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct vt_task {
  struct vt_task *next;
  vt_status (*run)(struct vt_task *task);
  bool beside; // not to wait until somebody needs it
  bool done;
} vt_task;

typedef struct vt_queue {
  pthread_mutex_t lock;
  pthread_cond_t work, idle; // something is for the thread; nothing runs
  vt_task *first, **last;
  int32_t beside; // tasks in the list that are
  bool runs, started, stopping;
  bool settled;    // since a wait for all nothing was put; of the thread that puts
  vt_status error; // of the task that failed
  pthread_t thread;
} vt_queue;

void vt_queue_init(vt_queue *queue);
void vt_queue_fini(vt_queue *queue); // no task is left

// Borrows the task until it is done, or the queue is cleared.
void vt_queue_put(vt_queue *queue, vt_task *task);
// Until the task is done, with those before it; NULL = all. Does what the thread has not begun.
// errors of a task
vt_status vt_queue_wait(vt_queue *queue, const vt_task *task) VT_CHECKED;
// Forgets the tasks that have not begun, and an error; waits for the one that has.
void vt_queue_clear(vt_queue *queue);

#endif
