// SPDX-License-Identifier: Apache-2.0
// pjrt_error.c - slots of PJRT_Error. A vt_status is a PJRT_Error: base/status.c lays it out.
#include "pjrt/objects.h"

void vt_pjrt_Error_Destroy(PJRT_Error_Destroy_Args *args) {
  vt_status_free(args->error);
}

void vt_pjrt_Error_Message(PJRT_Error_Message_Args *args) {
  args->message = vt_status_message((vt_status)(uintptr_t)args->error);
  args->message_size = vt_status_message_size((vt_status)(uintptr_t)args->error);
}

vt_status vt_pjrt_Error_GetCode(PJRT_Error_GetCode_Args *args) {
  args->code = (int)vt_status_code((vt_status)(uintptr_t)args->error);
  return VT_OK;
}

// Errors carry no payloads. Returning an error here would make the client ask for that error's
// payloads, forever.
vt_status vt_pjrt_Error_ForEachPayload(PJRT_Error_ForEachPayload_Args *args) {
  (void)args;
  return VT_OK;
}
