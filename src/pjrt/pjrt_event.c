// SPDX-License-Identifier: Apache-2.0
// pjrt_event.c - slots of PJRT_Event, which is the runtime's event; a handle is one reference.
#include "pjrt/objects.h"

vt_status vt_pjrt_Event_Destroy(PJRT_Event_Destroy_Args *args) {
  vt_event_release(vt_event_of_pjrt(args->event));
  return VT_OK;
}

vt_status vt_pjrt_Event_IsReady(PJRT_Event_IsReady_Args *args) {
  args->is_ready = vt_event_is_complete(vt_event_of_pjrt(args->event));
  return VT_OK;
}

vt_status vt_pjrt_Event_Error(PJRT_Event_Error_Args *args) {
  return vt_event_error(vt_event_of_pjrt(args->event));
}

vt_status vt_pjrt_Event_Await(PJRT_Event_Await_Args *args) {
  return vt_event_await(vt_event_of_pjrt(args->event));
}

vt_status vt_pjrt_Event_OnReady(PJRT_Event_OnReady_Args *args) {
  return vt_event_call(vt_event_of_pjrt(args->event), args->callback, args->user_arg);
}

vt_status vt_pjrt_Event_Create(PJRT_Event_Create_Args *args) {
  VT_TRY(vt_fork_check());
  vt_event *event = vt_event_create();
  args->event = vt_event_to_pjrt(event);
  return event ? VT_OK : vt_error_no_memory();
}

vt_status vt_pjrt_Event_Set(PJRT_Event_Set_Args *args) {
  vt_event *event = vt_event_of_pjrt(args->event);
  if (vt_event_is_complete(event))
    return vt_error(VT_FAILED_PRECONDITION, "the event is already set");
  vt_event_complete(event, args->error_code == 0
                               ? VT_OK
                               : vt_error((vt_code)args->error_code, "%.*s",
                                          (int)args->error_message_size, args->error_message));
  return VT_OK;
}
