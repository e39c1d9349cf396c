// SPDX-License-Identifier: Apache-2.0
// wire_fuzz.c - any bytes as any message: decoding and re-encoding must not crash, and what decodes
// must encode to bytes that decode to the same JSON.
#include <stdint.h>
#include <stdlib.h>

#include "cloud/api/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const names[] = {"Node", "QueuedResource", "CreateNodeRequest",
                                      "UpdateNodeRequest"};
  static const unsigned apis[] = {VT_API_V1, VT_API_V2, VT_API_V2A};
  if (size < 1) return 0;
  const vt_message *message = vt_message_find(names[data[0] % 4]);
  unsigned api = apis[data[0] / 4 % 3];
  json_t *first, *second;
  vt_text bytes = {0};
  vt_status st = vt_wire_decode(message, api, data + 1, size - 1, &first);
  if (st) {
    vt_status_free(st);
    return 0;
  }
  vt_wire_encode(message, api, first, &bytes);
  st = vt_wire_decode(message, api, vt_text_string(&bytes), bytes.size, &second);
  if (st) abort();
  json_decref(first);
  json_decref(second);
  vt_text_free(&bytes);
  return 0;
}
