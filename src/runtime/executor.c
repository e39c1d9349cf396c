// SPDX-License-Identifier: Apache-2.0
// executor.c - the one thread that runs programs, in the order they were submitted.
//
// Small jobs run on the submitting thread when nothing is queued or running; `busy` then holds off
// the executor thread, so order and mutual exclusion hold either way. The thread starts with the
// first queued job: a process that only lists devices may still fork. It blocks all signals, so
// that Ctrl-C reaches the thread that handles it. A caller that is far ahead waits for space in the
// queue: each job in the queue holds its arguments' memory.
#include <signal.h>

#include "base/check.h"
#include "runtime/runtime_internal.h"

enum { MOST_QUEUED = 32 };

void vt_executor_init(vt_executor *executor) {
  *executor = (vt_executor){0};
  pthread_mutex_init(&executor->mutex, NULL);
  pthread_cond_init(&executor->work, NULL);
  pthread_cond_init(&executor->idle, NULL);
  pthread_cond_init(&executor->room, NULL);
}

static void *executor_main(void *user) {
  vt_executor *executor = user;
  pthread_mutex_lock(&executor->mutex);
  for (;;) {
    while (executor->busy || (!executor->first && !executor->stopping))
      pthread_cond_wait(&executor->work, &executor->mutex);
    vt_job *job = executor->first;
    if (!job) break;
    vt_assert(executor->queued > 0 && executor->last);
    executor->first = job->next;
    if (!executor->first) executor->last = NULL;
    if (executor->queued-- <= MOST_QUEUED) pthread_cond_broadcast(&executor->room);
    executor->busy = true;
    pthread_mutex_unlock(&executor->mutex);
    job->run(job);
    pthread_mutex_lock(&executor->mutex);
    vt_assert(executor->busy);
    executor->busy = false;
    if (!executor->first) pthread_cond_broadcast(&executor->idle);
  }
  pthread_mutex_unlock(&executor->mutex);
  return NULL;
}

static vt_status executor_start(vt_executor *executor) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&executor->thread, NULL, executor_main, executor);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) return vt_error(VT_RESOURCE_EXHAUSTED, "the executor thread could not be started");
  pthread_setname_np(executor->thread, "vtpu-executor");
  executor->started = true;
  return VT_OK;
}

// With the mutex held. A host callback that runs on the executor itself must not wait for it.
static void wait_for_room(vt_executor *executor) {
  while (executor->queued >= MOST_QUEUED && !pthread_equal(pthread_self(), executor->thread))
    pthread_cond_wait(&executor->room, &executor->mutex);
}

void vt_executor_wait_for_room(vt_executor *executor) {
  if (vt_forked()) return;
  pthread_mutex_lock(&executor->mutex);
  if (executor->started) wait_for_room(executor);
  pthread_mutex_unlock(&executor->mutex);
}

vt_status vt_executor_submit(vt_executor *executor, vt_job *job, vt_submit how) {
  vt_assert(job->run);
  VT_TRY(vt_fork_check());
  pthread_mutex_lock(&executor->mutex);
  if (how == VT_SUBMIT_INLINE && !executor->busy && !executor->first) {
    executor->busy = true;
    pthread_mutex_unlock(&executor->mutex);
    job->run(job);
    pthread_mutex_lock(&executor->mutex);
    executor->busy = false;
    if (executor->first)
      pthread_cond_signal(&executor->work);
    else
      pthread_cond_broadcast(&executor->idle);
    pthread_mutex_unlock(&executor->mutex);
    return VT_OK;
  }
  vt_status st = executor->started ? VT_OK : executor_start(executor);
  if (!st && how != VT_SUBMIT_QUEUE) wait_for_room(executor);
  if (!st) {
    vt_assert(!executor->stopping && !executor->first == !executor->queued);
    executor->queued++;
    job->next = NULL;
    if (executor->last)
      executor->last->next = job;
    else
      executor->first = job;
    executor->last = job;
    pthread_cond_signal(&executor->work);
  }
  pthread_mutex_unlock(&executor->mutex);
  return st;
}

void vt_executor_drain(vt_executor *executor) {
  pthread_mutex_lock(&executor->mutex);
  while (executor->busy || executor->first) pthread_cond_wait(&executor->idle, &executor->mutex);
  pthread_mutex_unlock(&executor->mutex);
}

void vt_executor_fini(vt_executor *executor) {
  pthread_mutex_lock(&executor->mutex);
  executor->stopping = true;
  pthread_cond_broadcast(&executor->work);
  pthread_mutex_unlock(&executor->mutex);
  if (executor->started) pthread_join(executor->thread, NULL);
  executor->started = false;
  vt_assert(!executor->first && !executor->busy);
  pthread_cond_destroy(&executor->room);
  pthread_cond_destroy(&executor->idle);
  pthread_cond_destroy(&executor->work);
  pthread_mutex_destroy(&executor->mutex);
}
