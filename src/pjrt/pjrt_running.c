// SPDX-License-Identifier: Apache-2.0
// pjrt_running.c - running executions, which a client may poison by their launch id, and
// PJRT_AsyncTrackingEvent.
//
// Only an execution that has not ended when Execute returns gets a record. Poisoning completes its
// event with the error, which its results share; the run itself continues, but its writes are never
// seen.
#include <stdlib.h>
#include <string.h>

#include "pjrt/objects.h"

typedef struct running {
  struct running *next;
  vt_waiter waiter;
  PJRT_Client *client;
  int32_t launch_id;
  vt_event *done;
  size_t device_count;
  PJRT_Device *devices[];
} running;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static running *list; // newest first

static void forget(vt_status error, void *user) {
  running *record = user;
  vt_status_free(error);
  vt_lock(&list_lock);
  running **at = &list;
  while (*at != record) at = &(*at)->next;
  *at = record->next;
  vt_unlock(&list_lock);
  vt_event_release(record->done);
  free(record);
}

void vt_running_add(PJRT_LoadedExecutable *loaded, PJRT_Device *only, int32_t launch_id,
                    vt_event *done) {
  if (vt_event_is_complete(done)) return;
  size_t count = only ? 1 : loaded->device_count;
  running *record = malloc(sizeof *record + count * sizeof(PJRT_Device *));
  if (!record) return; // then it cannot be poisoned
  *record = (running){.client = loaded->client,
                      .launch_id = launch_id,
                      .done = vt_event_retain(done),
                      .device_count = count};
  memcpy(record->devices, only ? &only : loaded->devices, count * sizeof(PJRT_Device *));
  vt_lock(&list_lock);
  record->next = list;
  list = record;
  vt_unlock(&list_lock);
  vt_event_on_complete(done, &record->waiter, forget, record);
}

static bool runs_on(const running *record, const PJRT_Device *device) {
  for (size_t i = 0; i < record->device_count; i++)
    if (record->devices[i] == device) return true;
  return false;
}

// The oldest execution with this launch id that has not ended.
vt_status vt_pjrt_Device_PoisonExecution(PJRT_Device_PoisonExecution_Args *args) {
  vt_event *done = NULL;
  VT_TRY(vt_fork_check());
  vt_lock(&list_lock);
  for (const running *record = list; record; record = record->next) {
    if (record->launch_id != args->launch_id || !runs_on(record, args->device)) continue;
    vt_event_release(done);
    done = vt_event_retain(record->done);
  }
  vt_unlock(&list_lock);
  args->poisoned = done && !vt_event_is_complete(done);
  if (args->poisoned)
    vt_event_complete(
        done, vt_error_from_pjrt(args->error_code, args->error_message, args->error_message_size));
  vt_event_release(done);
  return VT_OK;
}

// Something a client does on a device during the lifetime of the object. A trace shows it.
struct PJRT_AsyncTrackingEvent {
  int32_t device;
  int64_t start_ns;
  char description[];
};

vt_status vt_pjrt_Device_CreateAsyncTrackingEvent(PJRT_Device_CreateAsyncTrackingEvent_Args *args) {
  PJRT_AsyncTrackingEvent *event = calloc(1, sizeof *event + args->description_size + 1);
  if (!event) return vt_error_no_memory();
  event->device = args->device->device->id;
  event->start_ns = vt_trace_now();
  if (args->description_size) memcpy(event->description, args->description, args->description_size);
  args->event = event;
  return VT_OK;
}

vt_status vt_pjrt_AsyncTrackingEvent_Destroy(PJRT_AsyncTrackingEvent_Destroy_Args *args) {
  if (!args->event) return VT_OK;
  vt_trace_span span = {.line = VT_TRACE_TRACKED,
                        .device = args->event->device,
                        .name = args->event->description,
                        .start_ns = args->event->start_ns,
                        .end_ns = vt_trace_now()};
  vt_trace_add(&span);
  free(args->event);
  return VT_OK;
}
