// SPDX-License-Identifier: Apache-2.0
// event.c - something that completes once, and its waiters.
//
// Most events a program sees are complete when it gets them: these share one static object without
// lock or reference count. A callback may release the event it was registered on, so completing
// holds a reference of its own.
// In a forked child, pending events never complete: there they are errors.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fork.h"
#include "runtime/runtime.h"

struct vt_event {
  atomic_int refs;
  atomic_bool complete;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  vt_status error; // valid once complete
  vt_waiter *first, *last;
};

static vt_event the_done = {.complete = true};
static vt_event no_memory = {.complete = true}; // the error used when allocating an event fails

static bool is_constant(const vt_event *event) {
  return event == &the_done || event == &no_memory;
}

vt_event *vt_event_done(void) {
  return &the_done;
}

vt_event *vt_event_failed(vt_status error) {
  vt_event *event = vt_event_create();
  if (!event) {
    vt_status_free(error);
    return &no_memory;
  }
  vt_event_complete(event, error);
  return event;
}

vt_event *vt_event_create(void) {
  vt_event *event = calloc(1, sizeof *event);
  if (!event) return NULL;
  atomic_init(&event->refs, 1);
  pthread_mutex_init(&event->mutex, NULL);
  pthread_cond_init(&event->changed, NULL);
  return event;
}

vt_event *vt_event_retain(vt_event *event) {
  vt_assert(is_constant(event) || atomic_load(&event->refs) > 0);
  if (!is_constant(event)) atomic_fetch_add_explicit(&event->refs, 1, memory_order_relaxed);
  return event;
}

void vt_event_release(vt_event *event) {
  if (!event || is_constant(event) || vt_forked()) return; // its condition may have waiters
  vt_assert(atomic_load(&event->refs) > 0);
  if (atomic_fetch_sub_explicit(&event->refs, 1, memory_order_acq_rel) != 1) return;
  for (vt_waiter *w = event->first; w;) {
    vt_waiter *next = w->next;
    if (w->own) free(w);
    w = next;
  }
  vt_status_free(event->error);
  pthread_cond_destroy(&event->changed);
  pthread_mutex_destroy(&event->mutex);
  free(event);
}

void vt_event_complete(vt_event *event, vt_status error) {
  if (is_constant(event) || vt_forked()) {
    vt_status_free(error);
    return;
  }
  vt_event_retain(event);
  vt_lock(&event->mutex);
  if (atomic_load(&event->complete)) {
    vt_unlock(&event->mutex);
    vt_status_free(error);
    vt_event_release(event);
    return;
  }
  vt_assert(!event->error);
  event->error = error;
  vt_waiter *waiters = event->first;
  event->first = event->last = NULL;
  atomic_store_explicit(&event->complete, true, memory_order_release);
  pthread_cond_broadcast(&event->changed);
  vt_unlock(&event->mutex);
  while (waiters) {
    vt_waiter waiter = *waiters; // its callback may free the waiter's memory
    if (waiter.own) free(waiters);
    waiter.callback(vt_status_copy(event->error), waiter.user);
    waiters = waiter.next;
  }
  vt_event_release(event);
}

bool vt_event_is_complete(const vt_event *event) {
  return atomic_load_explicit(&event->complete, memory_order_acquire) || vt_forked();
}

// Of a complete event.
static vt_status error_of(const vt_event *event) {
  vt_assert(atomic_load(&event->complete) || vt_forked());
  if (event == &no_memory) return vt_error_no_memory();
  return atomic_load(&event->complete) ? vt_status_copy(event->error) : vt_fork_check();
}

vt_status vt_event_error(vt_event *event) {
  return vt_event_is_complete(event) ? error_of(event) : VT_OK;
}

vt_status vt_event_await(vt_event *event) {
  if (!vt_event_is_complete(event)) {
    vt_lock(&event->mutex);
    while (!atomic_load(&event->complete)) pthread_cond_wait(&event->changed, &event->mutex);
    vt_unlock(&event->mutex);
  }
  return error_of(event);
}

// Enqueues the waiter; false: the event is complete.
static bool add_waiter(vt_event *event, vt_waiter *waiter) {
  if (vt_event_is_complete(event)) return false;
  vt_lock(&event->mutex);
  bool pending = !atomic_load(&event->complete);
  if (pending) {
    vt_assert(!waiter->next && !event->first == !event->last);
    *(event->last ? &event->last->next : &event->first) = waiter;
    event->last = waiter;
  }
  vt_unlock(&event->mutex);
  return pending;
}

void vt_event_on_complete(vt_event *event, vt_waiter *waiter, vt_event_callback callback,
                          void *user) {
  vt_assert(callback);
  *waiter = (vt_waiter){.callback = callback, .user = user};
  if (!add_waiter(event, waiter)) callback(error_of(event), user);
}

vt_status vt_event_call(vt_event *event, vt_event_callback callback, void *user) {
  vt_assert(callback);
  if (!vt_event_is_complete(event)) {
    vt_waiter *waiter = malloc(sizeof *waiter);
    if (!waiter) return vt_error_no_memory();
    *waiter = (vt_waiter){.callback = callback, .user = user, .own = true};
    if (add_waiter(event, waiter)) return VT_OK;
    free(waiter);
  }
  callback(error_of(event), user);
  return VT_OK;
}
