// SPDX-License-Identifier: Apache-2.0
// queue.c - see queue.h.
#include "base/queue.h"

#include <signal.h>

#include "base/check.h"

void vt_queue_init(vt_queue *q) {
  *q = (vt_queue){.last = &q->first, .settled = true};
  pthread_mutex_init(&q->lock, NULL);
  pthread_cond_init(&q->work, NULL);
  pthread_cond_init(&q->idle, NULL);
}

// With the lock held, which is released meanwhile.
static void run_first(vt_queue *q) {
  vt_task *task = q->first;
  vt_assert(task && !q->runs);
  q->first = task->next;
  if (!q->first) q->last = &q->first;
  q->beside -= task->beside;
  q->runs = true;
  pthread_mutex_unlock(&q->lock);
  vt_status st = task->run(task);
  pthread_mutex_lock(&q->lock);
  q->runs = false;
  task->done = true;
  q->error = st;
  pthread_cond_broadcast(&q->idle);
}

static void *queue_main(void *user) {
  vt_queue *q = user;
  pthread_mutex_lock(&q->lock);
  while (!q->stopping) {
    if (q->beside && !q->runs && !q->error)
      run_first(q);
    else
      pthread_cond_wait(q->beside && q->runs ? &q->idle : &q->work, &q->lock);
  }
  pthread_mutex_unlock(&q->lock);
  return NULL;
}

// Without a thread, whoever waits does it all.
static void start(vt_queue *q) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  q->started = !pthread_create(&q->thread, NULL, queue_main, q);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (q->started) pthread_setname_np(q->thread, "vtpu-queue");
}

void vt_queue_put(vt_queue *q, vt_task *task) {
  pthread_mutex_lock(&q->lock);
  if (task->beside && !q->started) start(q);
  q->settled = false;
  task->next = NULL;
  task->done = false;
  *q->last = task;
  q->last = &task->next;
  q->beside += task->beside;
  if (task->beside) pthread_cond_signal(&q->work);
  pthread_mutex_unlock(&q->lock);
}

vt_status vt_queue_wait(vt_queue *q, const vt_task *task) {
  if (q->settled) return VT_OK;
  pthread_mutex_lock(&q->lock);
  while (!q->error && (task ? !task->done : q->first || q->runs)) {
    if (q->runs)
      pthread_cond_wait(&q->idle, &q->lock);
    else
      run_first(q);
  }
  vt_status st = q->error ? vt_status_copy(q->error) : VT_OK;
  q->settled = !task && !st;
  pthread_mutex_unlock(&q->lock);
  return st;
}

void vt_queue_clear(vt_queue *q) {
  pthread_mutex_lock(&q->lock);
  q->first = NULL;
  q->last = &q->first;
  q->beside = 0;
  while (q->runs) pthread_cond_wait(&q->idle, &q->lock);
  vt_status_free(q->error);
  q->error = VT_OK;
  pthread_mutex_unlock(&q->lock);
}

void vt_queue_fini(vt_queue *q) {
  pthread_mutex_lock(&q->lock);
  vt_assert(!q->first && !q->runs);
  q->stopping = true;
  pthread_cond_broadcast(&q->work);
  pthread_mutex_unlock(&q->lock);
  if (q->started) pthread_join(q->thread, NULL);
  vt_status_free(q->error);
  pthread_cond_destroy(&q->idle);
  pthread_cond_destroy(&q->work);
  pthread_mutex_destroy(&q->lock);
}
