// SPDX-License-Identifier: Apache-2.0
// task_queue.h - tasks of a team's threads, each with a queue of its own.
//
// A thread's tasks follow each other: it reads and writes memory in order, and finds what it wrote
// and fetched before in its own cache. One that has none left steals those of others.
#ifndef VT_HOST_TASK_QUEUE_H
#define VT_HOST_TASK_QUEUE_H

#include <stdint.h>

typedef struct vt_task_queue {
  _Alignas(64) int64_t next;
  int64_t end;
} vt_task_queue;

// Where a thread takes tasks from.
typedef struct vt_task_turn {
  vt_task_queue *queues;
  int32_t team;
  int32_t at;   // the queue; a thread begins with its own
  int32_t left; // queues that may have some
} vt_task_turn;

// Before the threads begin. Fewer than `team` of them do all tasks, too.
static inline void vt_share_tasks(vt_task_queue *queues, int32_t team, int64_t tasks) {
  for (int32_t i = 0; i < team; i++)
    queues[i] = (vt_task_queue){.next = tasks * i / team, .end = tasks * (i + 1) / team};
}

// -1: none is left.
static inline int64_t vt_take_task(vt_task_turn *turn) {
  for (; turn->left > 0; turn->left--, turn->at = (turn->at + 1) % turn->team) {
    vt_task_queue *queue = &turn->queues[turn->at];
    int64_t task = __atomic_fetch_add(&queue->next, 1, __ATOMIC_RELAXED);
    if (task < queue->end) return task;
  }
  return -1;
}

#endif
